#!/usr/bin/env bash
# Download the wheel of cuDNN's frontend into the folder .whl, for a GPU machine that cannot install packages:
#
#     bash benchmarks/fetch_wheels.sh [Python version, default 3.12]
#
# benchmarks/gpu_day.sh installs the wheels of this folder. The frontend has no required dependencies, and cuDNN itself must be on
# the GPU machine. From version 1.23 on, the backward of attention requires cuDNN 9.22.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
platforms=()
for version in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014; do platforms+=(--platform "${version}_x86_64"); done
"${PYTHON:-python3}" -m pip download -q --no-deps --only-binary=:all: --implementation cp --python-version "${1:-3.12}" \
    "${platforms[@]}" -d .whl 'nvidia-cudnn-frontend==1.22.1'
ls -l .whl
