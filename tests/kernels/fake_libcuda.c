/* As much of libcuda as Triton's driver calls: it loads any binary, and a launch runs nothing but notes what it was given.

   gcc -shared -fPIC -I TRITON/backends/nvidia/include -Wl,-soname,libcuda.so.1 -o libcuda.so.1 fake_libcuda.c */

#include <cuda.h>
#include <stdint.h>
#include <string.h>

int launches, wanted;        /* how many there were; how many parameters of the next to keep */
unsigned grid[3], threads, shared;
uint64_t stream;
char name[512];
uint64_t parameters[64];

CUresult cuInit(unsigned flags) { return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char **text) { *text = "refused by the fake"; return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { *version = 13000; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int number) { *device = number; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { *count = 1; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { *context = (CUcontext)1; return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *context) { *context = (CUcontext)1; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) { return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *device) { *device = 0; return CUDA_SUCCESS; }
CUresult cuCtxGetLimit(size_t *value, CUlimit limit) { *value = 0; return CUDA_SUCCESS; }
CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return CUDA_SUCCESS; }
CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *status) { *status = CU_STREAM_CAPTURE_STATUS_NONE; return CUDA_SUCCESS; }

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) { /* an H200's */
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 49152; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232448; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 233472; break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
  default: *value = 0;
  }
  return CUDA_SUCCESS;
}

/* A function's handle is the place of its name in what was loaded. */
static char names[1 << 20];
static size_t used = 1;

CUresult cuModuleLoadData(CUmodule *module, const void *image) { *module = (CUmodule)image; return CUDA_SUCCESS; }
CUresult cuModuleUnload(CUmodule module) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *called) {
  if (used + strlen(called) + 1 > sizeof names) return CUDA_ERROR_OUT_OF_MEMORY;
  *function = (CUfunction)(uintptr_t)used;
  strcpy(names + used, called);
  used += strlen(called) + 1;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) { return CUDA_SUCCESS; }
CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) { return CUDA_SUCCESS; }

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  *(CUdeviceptr *)value = pointer;
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values, CUdeviceptr pointer) {
  for (unsigned i = 0; i < count; i++) *(uint64_t *)values[i] = pointer;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **given, void **extra) {
  if (config->gridDimX > 0x7fffffffu || config->gridDimY > 65535 || config->gridDimZ > 65535) return CUDA_ERROR_INVALID_VALUE;
  if (config->blockDimX * config->blockDimY * config->blockDimZ > 1024 || config->sharedMemBytes > 232448) return CUDA_ERROR_INVALID_VALUE;
  if ((uintptr_t)function == 0 || (uintptr_t)function >= used) return CUDA_ERROR_INVALID_HANDLE;
  grid[0] = config->gridDimX, grid[1] = config->gridDimY, grid[2] = config->gridDimZ;
  threads = config->blockDimX, shared = config->sharedMemBytes, stream = (uint64_t)config->hStream;
  strncpy(name, names + (uintptr_t)function, sizeof name - 1);
  for (int i = 0; i < wanted && i < 64; i++) memcpy(parameters + i, given[i], 8);
  launches++;
  return CUDA_SUCCESS;
}
