#!/bin/sh
# SPDX-License-Identifier: MIT
# Compiles as Visual Studio does, without it: clang in its mode for Microsoft's compiler, the headers and libraries of Wine, lld-link. The headers
# in C and C++, with warnings beyond /W4 as errors; then tests and examples, which run under Wine on the simulator.
# Not shown by it: the front end of cl.exe, /analyze, Microsoft's own headers.
cd "$(dirname "$0")/../.." || exit 1
out=build/windows/msvc
headers=/usr/include/wine/wine
libraries=/usr/lib/x86_64-linux-gnu/wine/x86_64-windows
mkdir -p $out

for needed in "$(command -v clang)" "$(command -v lld-link)" $headers/msvcrt/stdio.h $libraries/libucrtbase.a; do
    if ! [ -e "$needed" ]; then
        echo "check-msvc needs clang, lld-link (package lld), and Wine's headers and libraries (libwine-dev): there is no ${needed:-clang or lld-link}"
        exit 1
    fi
done

mode="-fms-extensions -fms-compatibility -fms-compatibility-version=19.40 -nostdlibinc -isystem $(clang -print-resource-dir)/include
    -isystem $headers/msvcrt -isystem $headers/windows -DPIPE_REJECT_REMOTE_CLIENTS=8 -D_InterlockedCompareExchange128=unused -Wno-ignored-attributes -I."
x64="clang --target=x86_64-pc-windows-msvc19.40 $mode"
x64_cpp="clang++ -x c++ --target=x86_64-pc-windows-msvc19.40 $mode"
# /W4 and /sdl: what is used before it is set (C4700 to C4703), conversions (C4244, C4267), shadowing (C4456 to C4459), parameters (C4100)
warnings='-Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wundef -Wconditional-uninitialized -Wimplicit-fallthrough -Wno-unused-function -Werror'

failed=0 count=0
# try NAME COMMAND... : one more that compiles
try()
{
    count=$((count + 1))
    name=$1
    shift
    "$@" >$out/log 2>&1 && return
    failed=$((failed + 1))
    echo "FAIL: $name: $*"
    grep -E 'error|warning' $out/log | head -n 10
}

src=tests/compile
implement=-DIGNIS_IMPLEMENTATION
for std in c99 c17; do
    try declared $x64 -std=$std $warnings -c $src/together.c -o $out/x.obj
    try $std $x64 -std=$std $warnings -c $src/collective.c -o $out/x.obj $implement
done
try 'without tensors' $x64 $warnings -c $src/collective.c -o $out/x.obj $implement -DIGNIS_NO_TENSORS
try models $x64 $warnings -c $src/models.c -o $out/x.obj $implement
try static $x64 $warnings -c $src/collective.c -o $out/x.obj $implement -DIGNIS_STATIC
for std in c++14 c++20; do
    try $std $x64_cpp -std=$std $warnings -c $src/collective.c -o $out/x.obj $implement
done
try arm64 clang --target=aarch64-pc-windows-msvc19.40 $mode $warnings -c $src/collective.c -o $out/x.obj $implement

# What Visual Studio's own start-up library does, and the tests' POSIX.
try 'start.c' $x64 -O0 -fno-stack-protector -c tests/windows/msvc/start.c -o $out/start.obj
# program NAME SOURCE FLAGS... : compiles and links it
program()
{
    name=$1 source=$2
    shift 2
    try "$name" $x64 -O0 -w "$@" -c "$source" -o $out/$name.obj
    try "$name" lld-link /nologo /entry:mainCRTStartup /subsystem:console /out:$out/$name.exe $out/$name.obj $out/start.obj \
        /libpath:$libraries libucrtbase.a libkernel32.a libadvapi32.a libntdll.a /include:_tls_used /nodefaultlib
}
cp build/windows/*.dll $out
for example in hello custom_kernel formula; do program $example examples/$example.c -std=c11; done
tests=
mkdir -p build/windows/include/sys
touch build/windows/include/sys/resource.h build/windows/include/sys/wait.h
for test in $*; do
    program test_$test "$(find tests -name "test_$test.c")" -iquote tests -Itests/windows/msvc -Ibuild/windows/include -include tests/windows/posix.h
    tests="$tests $out/test_$test.exe"
done
# The engine: two static libraries and a program of both.
posix='-include tests/windows/posix.h -Itests/windows/msvc'
try 'engine/core.c' $x64 -O0 -w $posix -c tests/engine/core.c -o $out/core.obj
for part in game main; do
    try "engine/$part.cpp" $x64_cpp -std=c++14 -fno-exceptions -fno-rtti -O0 -w -c tests/engine/$part.cpp -o $out/$part.obj
done
for part in core game; do try "$part.lib" lld-link /lib /out:$out/$part.lib $out/$part.obj; done
try engine lld-link /nologo /entry:mainCRTStartup /subsystem:console /out:$out/test_engine.exe $out/main.obj $out/start.obj $out/game.lib \
    $out/core.lib /libpath:$libraries libucrtbase.a libkernel32.a libadvapi32.a libntdll.a /include:_tls_used /nodefaultlib
tests="$tests $out/test_engine.exe"
echo "$count pieces compiled or linked, $failed failed"
[ "$failed" -eq 0 ] || exit 1

export IGNIS_CACHE_DIR=build/windows/cache WRAPPER=tests/windows/wine.sh
for example in hello custom_kernel formula; do
    tests/windows/wine.sh $out/$example.exe || { echo "FAIL: $example"; failed=1; }
done
sh tests/run.sh $tests || failed=1
tests/windows/wine.sh --end
exit $failed
