#!/bin/sh
# SPDX-License-Identifier: MIT
# Compiles tests/base/prototypes.cpp against the CUDA toolkit's headers; and with planted mistakes, which the compiler must refuse.
toolkit=${CUDA_PATH:-/usr/local/cuda}
check() { ${CXX:-g++} -std=c++11 -fsyntax-only -isystem "$toolkit/include" -I. "$@" tests/base/prototypes.cpp; }

check || exit 1
for number in $(grep -ohE 'IGNIS__(CU|NVRTC|LT|NCCL)_[A-Z0-9_]+ =' ignis.h ignis_collective.h | sed 's/ =//'); do
    case $number in IGNIS__LT_WORKSPACE | IGNIS__NCCL_ABORTED | IGNIS__NCCL_LATE) continue ;; esac # our own
    if ! grep -q "SAME($number," tests/base/prototypes.cpp; then
        echo "tests/base/prototypes.cpp does not check $number"
        exit 1
    fi
done

# refuses MISTAKE MESSAGE
refuses()
{
    if check "-D$1" 2>&1 | grep -q "$2"; then return; fi
    echo "tests/base/prototypes.cpp does not notice $1"
    exit 1
}
refuses PLANTED_SIZE 'the prototype of cuMemFree_v2 differs'
refuses PLANTED_COUNT 'the prototype of cuMemFree_v2 differs'
refuses PLANTED_NUMBER 'IGNIS__CU_NO_DEVICE is not'
echo "prototypes and numbers agree with the headers in $toolkit/include"
