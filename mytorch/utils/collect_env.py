"""Collects information about the machine for bug reports: `python -m mytorch.utils.collect_env`."""

import importlib.metadata
import os
import platform
import sys
from collections import namedtuple

_PACKAGES = "numpy ml_dtypes numba triton cupy-cuda12x cupy-cuda13x safetensors einops mpi4py tiktoken".split()

SystemEnv = namedtuple(
    "SystemEnv", "mytorch_version python_version executable os libc cpu byte_order threads simd blas packages cuda gpus"
)


def version_of(package: str) -> str | None:
    """Returns the version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def get_env_info() -> SystemEnv:
    """Returns a SystemEnv with versions and machine properties as strings."""
    import numpy

    from ..cuda import device_count, get_device_name, is_available
    from ..kernels import threads
    from ..version import __version__

    blas = numpy.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    has_gpu = is_available()
    gpus = [get_device_name(i) for i in range(device_count())] if has_gpu else []
    return SystemEnv(
        mytorch_version=__version__,
        python_version=sys.version.replace("\n", " "),
        executable=sys.executable,
        os=platform.platform(),
        libc="-".join(platform.libc_ver()),
        cpu=f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        byte_order=sys.byteorder,
        threads=str(threads.get_num_threads()),
        simd=" ".join(numpy.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", [])),
        blas=f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
        packages="".join(f"\n    {name}=={version_of(name)}" for name in _PACKAGES if version_of(name)),
        cuda="yes" if has_gpu else "no",
        gpus=", ".join(gpus) or "none",
    )


def pretty_str(env: SystemEnv) -> str:
    """Formats a SystemEnv, one line for each field."""
    return "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in env._asdict().items())


def get_pretty_env_info() -> str:
    """Returns the report as text."""
    return pretty_str(get_env_info())


if __name__ == "__main__":
    sys.stdout.write(get_pretty_env_info() + "\n")
