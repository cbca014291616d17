#!/bin/sh
# Compiles tests/prototypes.cpp against the CUDA toolkit's headers; and with planted mistakes, which the compiler must refuse.
toolkit=${CUDA_PATH:-/usr/local/cuda}
check() { ${CXX:-g++} -std=c++11 -fsyntax-only -isystem "$toolkit/include" -I. "$@" tests/prototypes.cpp; }

check || exit 1
for mistake in PLANTED_SIZE PLANTED_COUNT; do
    if ! check -D$mistake 2>&1 | grep -q 'the prototype of cuMemFree_v2 differs'; then
        echo "tests/prototypes.cpp does not notice $mistake"
        exit 1
    fi
done
echo "prototypes agree with the headers in $toolkit/include"
