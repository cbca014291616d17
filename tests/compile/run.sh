#!/bin/bash
# SPDX-License-Identifier: MIT
# The compile matrix: each header, alone and together, in every mode, by every compiler and for every standard, with the
# strict warnings as errors; then what an object file exports, which macros leak, and how long compiling takes.
# Prints what failed and what was skipped. The last line: compile matrix: N combinations ok, N failed, N skipped
#
# SHORT=1, as CI runs it: each compiler, each standard and each mode, but not each of them with all others.
set -u
cd "$(dirname "$0")/../.." || exit 1

out=build/compile
src=tests/compile
rm -rf $out
mkdir -p $out

# In a long file GCC takes nine tenths of the time to look for misleading indentation: `make parts` looks for it.
strict='-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef -Wno-misleading-indentation -Werror'
implement=-DIGNIS_IMPLEMENTATION
if [ -n "${CUDA_PATH:-}" ]; then toolkit=$CUDA_PATH; else toolkit=/usr/local/cuda; fi
PATH=$PATH:$toolkit/bin
libs='-lm -ldl -lpthread'

count=0
skipped=0
all=$([ "${SHORT:-}" = 1 ] || echo 1) # empty: not every combination

# job COMMAND... : one combination. %o stands for an output file of its own.
job()
{
    count=$((count + 1))
    echo "${*//%o/$out/$count}" >>$out/jobs
}

# timed NAME FLAGS... : the implementation optimized by gcc; how long that takes stands in $out/NAME.times
timed()
{
    local name=$1
    shift
    job "gcc -O2 $strict -I. -c -o %o.o $implement $* && times >$out/$name.times"
}

# has TOOL : whether it is installed; says so if not
has()
{
    command -v "$1" >/dev/null && return
    echo "skipped: $1 is not installed"
    skipped=$((skipped + 1))
    return 1
}

# Modes and standards are found by reading: the programs below make code of it all, by every compiler.
as=-fsyntax-only

# main_modes COMPILER AND FLAGS : all headers, declared and implemented
main_modes()
{
    job "$* $as $src/together.c"
    job "$* $as $src/together.c $implement"
}

# every_mode COMPILER AND FLAGS : the modes that take one source file
every_mode()
{
    main_modes "$@"
    job "$* $as $src/ignis.c"
    job "$* $as $src/ignis.c $implement"
    job "$* $as $src/ignis.c $implement -DIGNIS_NO_TENSORS"
    job "$* $as $src/models.c"
    job "$* $as $src/models.c $implement"
    job "$* $as $src/kernels.c"
    job "$* $as $src/kernels.c $implement"
    job "$* $as $src/twice.c"
    job "$* $as $src/collective.c"
    job "$* $as $src/collective.c $implement -DIGNIS_STATIC"
    job "$* $as $src/collective.c $implement -DIGNIS_NO_TENSORS"
}

# linked USER.C COMPILER AND FLAGS : two units make a program, once with one implementation and once with one in each; both
# run. Without warnings, which every_mode has looked for, gcc takes three fifths of the time.
# SHORT=1: for each compiler two of the four programs, which are those of gcc and clang++ or those of clang and g++.
linked()
{
    local user=$src/$1 take=
    shift
    if [ -z "$all" ]; then take=$(case $1 in gcc | clang++) echo 1 ;; *) echo 2 ;; esac); fi
    if [ "$take" != 2 ]; then
        job "$* -c $src/ignis.c -o %o.o $implement && $* $user -x none %o.o -o %o $libs && %o"
        job "$* -c $src/collective.c -o %o.o $implement -DIGNIS_TRACE_CALLS && $* $user -x none %o.o -o %o -DWITH_COLLECTIVE -DIGNIS_TRACE_CALLS $libs && %o"
    fi
    if [ "$take" != 1 ]; then
        job "$* -c $src/ignis.c -o %o.o $implement -DIGNIS_STATIC && $* $user -x none %o.o -o %o $implement -DIGNIS_STATIC $libs && %o"
        job "$* -c $src/collective.c -o %o.o $implement && $* $user -x none %o.o -o %o -DWITH_COLLECTIVE $libs && %o"
    fi
}

# Under a strict standard, system headers that come before the implementation hide what it needs, unless _POSIX_C_SOURCE is
# defined; the implementation says so.
posix=-D_POSIX_C_SOURCE=200809L
timed all $src/together.c
timed arrays $src/ignis.c -DIGNIS_NO_TENSORS
# A program with arrays and a kernel of its own carries no kernels of operations.
if has gcc; then job "gcc -O2 -s -DIGNIS_NO_TENSORS -I. examples/hello.c -o %o $libs && test \$(wc -c <%o) -lt 400000"; fi
for cc in gcc clang; do
    has $cc || continue
    every_mode $cc -std=c99 $posix $strict -I.
    main_modes $cc $strict -I.
    for std in ${all:+c11} c17; do main_modes $cc -std=$std $posix $strict -I.; done
    job "$cc -std=c99 $strict -I. -fsyntax-only $src/ignis.c $implement"
    job "$cc -std=c99 -I. -include stdio.h -c $src/ignis.c -o %o.o $implement 2>&1 | grep '#error.*_POSIX_C_SOURCE'"
    # Where NaN is assumed away the implementation says so, and compiles only for those who insist; declarations do not mind.
    for flag in -ffast-math -ffinite-math-only -Ofast; do
        job "$cc -I. -O1 $flag -fsyntax-only $src/ignis.c $implement 2>&1 | grep '#error.*IGNIS_ALLOW_FAST_MATH'"
        job "$cc -I. -O1 $flag -fsyntax-only $src/ignis.c $implement -DIGNIS_ALLOW_FAST_MATH"
        job "$cc -I. -O1 $flag -fsyntax-only $src/ignis.c"
    done
    job "$cc -I. -O1 -ffast-math -fno-fast-math -fsyntax-only $src/ignis.c $implement"
    job "$cc -I. -fsyntax-only -D_M_FP_FAST=1 $src/ignis.c $implement 2>&1 | grep '#error.*IGNIS_ALLOW_FAST_MATH'"
    if [ "$all" ] || [ $cc = gcc ]; then job "$cc -O1 -ffast-math $strict -I. $src/fast_math.c -o %o $implement -DIGNIS_ALLOW_FAST_MATH $libs && %o"; fi
    # clang's warnings do not depend on optimizing, as those of gcc do.
    if [ "$all" ] && [ $cc != gcc ]; then job "$cc -O2 $strict -I. -c $src/together.c -o %o.o $implement"; fi
    job "$cc -fvisibility=hidden '-DIGNIS_API=__attribute__((visibility(\"default\")))' -I. -c $src/collective.c -o %o.o $implement"
    linked user.c $cc -I.
    # Two shared libraries have an Ignis each when it is hidden, and one together when it is not.
    for hide in -DIGNIS_HIDDEN -fvisibility=hidden -fvisibility=default; do
        if [ -z "$all" ] && [ $cc$hide != gcc-DIGNIS_HIDDEN ] && [ $cc$hide != gcc-fvisibility=default ] &&
            [ $cc$hide != clang-fvisibility=hidden ]; then continue; fi
        lib="$cc -I. -shared -fPIC $src/shared.c $hide"
        ends=$([ $hide = -fvisibility=default ] && echo 1 || echo 0)
        job "$lib -o %o.1.so -DLIBRARY=one && $lib -o %o.2.so -DLIBRARY=two && $cc $src/shared.c -o %o ./%o.1.so ./%o.2.so $libs && { %o; [ \$? = $ends ]; }"
    done
done

for cxx in g++ clang++; do
    has $cxx || continue
    # Classes over hidden functions; what the declaring file does not hide the implementing one does.
    hidden="$cxx -std=c++11 $strict -I. -fPIC -DIGNIS_HIDDEN"
    job "$hidden -c $src/hidden.cpp -o %o.o && $hidden -x c++ -c $src/ignis.c -o %o.i.o $implement && $cxx -shared %o.o %o.i.o -o %o.so $libs && ! nm -D --defined-only %o.so | grep ' ignis_'"
    job "$hidden -c $src/hidden.cpp -o %o.o $implement"
    # {} in the place of a desc.
    job "$cxx -std=c++11 $strict -I. $as $src/empty.cpp"
    job "$cxx -std=c++11 $strict -I. $as $src/empty.cpp -DWITH_MODELS -DIGNIS_TRACE_CALLS"
    every_mode $cxx -x c++ -std=c++11 $strict -I.
    if [ "$all" ]; then every_mode $cxx -x c++ -std=c++20 $strict -I.; else main_modes $cxx -x c++ -std=c++20 $strict -I.; fi
    for std in ${all:+c++14} c++17; do main_modes $cxx -x c++ -std=$std $strict -I.; done
    if [ "$all" ]; then job "$cxx -x c++ -O2 $strict -I. -c $src/collective.c -o %o.o $implement"; fi
    linked user.cpp $cxx -x c++ -std=c++11 -I.
    two="$cxx -std=c++11 -I. $src/user.cpp $implement -DIGNIS_STATIC -DWITH_COLLECTIVE"
    job "$two -c -o %o.o -DFIRST_UNIT && $two %o.o -o %o -DWITH_FIRST_UNIT $libs && %o"
    if has gcc; then # a C implementation for a C++ program
        job "gcc -I. -c $src/collective.c -o %o.o $implement && $cxx -std=c++11 $strict -I. $src/user.cpp %o.o -o %o -DWITH_COLLECTIVE $libs && %o"
    fi
done

# Names that other headers make macros of.
for language in c c++; do job "gcc -x $language -I. -include $src/macros.h -fsyntax-only $src/orders.c -DORDER=1 $implement"; done

# Any order of the headers, and IGNIS_MODELS of before version 0.5.
for order in 1 2 3 4 5; do
    job "gcc -std=c99 $strict -I. $as $src/orders.c -DORDER=$order $implement"
    job "g++ -x c++ -std=c++11 $strict -I. $as $src/orders.c -DORDER=$order -DLATER"
done
job "gcc -std=c99 $posix $strict -I. $as $src/orders.c -DORDER=1 -DLATER"
job "gcc -std=c99 $posix $strict -I. $as $src/orders.c -DORDER=2 -DLATER -DIGNIS_STATIC"
job "g++ -x c++ -std=c++11 $strict -I. $as $src/orders.c -DORDER=4 $implement -DIGNIS_STATIC"
job "gcc -std=c99 $strict -I. $as $src/orders.c -DORDER=2 $implement -DIGNIS_TRACE_CALLS"
job "gcc -I. $as $src/models.c -DIGNIS_NO_TENSORS 2>&1 | grep '#error.*ignis_models.h needs tensors'"
# The kernels of models are known before main, in C and in C++.
job "gcc -std=c99 $strict -I. $src/models.c -o %o -DWITH_MAIN $implement $libs && %o"
job "g++ -x c++ -std=c++11 $strict -I. $src/models.c -o %o -DWITH_MAIN $implement $libs && %o"

# Of the kernels of Ignis a linker keeps those that a program can launch (docs/shipping.md). This program can launch no
# product: a line of gemm.cu must not be in it.
small="gcc -O2 -s -I. examples/custom_kernel.c $libs"
sections='-ffunction-sections -fdata-sections -Wl,--gc-sections'
for way in -flto "$sections"; do
    job "$small $way -o %o && [ \$(stat -c %s %o) -lt 400000 ] && grep -q ignis.cuh %o && ! grep -q 'multiply<8, 8>' %o"
done

# Headers of different versions do not go together, and the error names both.
mixed=$out/mixed
mkdir $mixed $mixed/kernels $mixed/unversioned $mixed/collective $mixed/models $mixed/older
sed 's/VERSION 5/VERSION 9/' ignis_kernels.h >$mixed/kernels/ignis_kernels.h
sed '/IGNIS_KERNELS_VERSION/d' ignis_kernels.h >$mixed/unversioned/ignis_kernels.h
sed 's/COLLECTIVE_VERSION 5/COLLECTIVE_VERSION 9/' ignis_collective.h >$mixed/collective/ignis_collective.h
sed '/define IGNIS_VERSION /d; s/\(IGNIS_VERSION_MINOR\) .*/\1 3/' ignis.h >$mixed/older/ignis.h
for case in kernels unversioned; do
    cp ignis.h $mixed/$case
    job "gcc -I$mixed/$case -fsyntax-only $src/ignis.c $implement 2>&1 | grep '#error.*ignis.h and ignis_kernels.h'"
done
sed 's/MODELS_VERSION 5/MODELS_VERSION 9/' ignis_models.h >$mixed/models/ignis_models.h
cp ignis.h $mixed/collective
cp ignis.h $mixed/models
cp ignis_collective.h ignis_models.h $mixed/older
job "gcc -I$mixed/collective -fsyntax-only $src/collective.c 2>&1 | grep '#error.*ignis.h and ignis_collective.h'"
for older in models older; do job "gcc -I$mixed/$older -fsyntax-only $src/models.c 2>&1 | grep '#error.*ignis.h and ignis_models.h'"; done
job "gcc -I$mixed/older -fsyntax-only $src/collective.c 2>&1 | grep '#error.*ignis.h and ignis_collective.h'"
job "gcc -I. -include $mixed/older/ignis.h -fsyntax-only $src/ignis.c 2>&1 | grep '#error.*two versions of ignis.h'"

# Other systems. musl's macros for control messages trip -Wconversion.
if has aarch64-linux-gnu-gcc; then main_modes aarch64-linux-gnu-gcc -std=c99 $strict -I.; fi
if has musl-gcc; then
    job "musl-gcc -std=c99 $strict -I. $src/ignis.c -o %o -DWITH_MAIN $implement && %o"
    job "musl-gcc -std=c99 -I. -include stdio.h -c $src/ignis.c -o %o.o $implement 2>&1 | grep '#error.*_POSIX_C_SOURCE'"
    main_modes musl-gcc -std=c99 $strict -Wno-conversion -Wno-sign-conversion -I.
fi
# macOS: the Python package ziglang brings its headers. The collective layer needs Linux or Windows. Without the sanitizer that zig adds by
# itself: it takes twice as long, and half a minute more where its library is built.
if python3 -c 'import ziglang' 2>/dev/null; then
    export ZIG_GLOBAL_CACHE_DIR=$PWD/$out/zig
    zig="python3 -m ziglang cc -fno-sanitize=undefined -target aarch64-macos $strict -Wno-unused-command-line-argument -I."
    job "$zig -std=c99 -c $src/ignis.c -o %o.o $implement"
    job "$zig -std=c99 $posix -c $src/ignis.c -o %o.o $implement"
    job "$zig -x c++ -std=c++11 -c $src/ignis.c -o %o.o $implement"
    # There it says that there is no driver; here it links.
    job "$zig -std=c99 $src/ignis.c -o %o -DWITH_MAIN $implement"
    # The oldest glibc that programs find: the collective layer needs no newer one, and no newer Linux headers.
    old="python3 -m ziglang cc -fno-sanitize=undefined -target x86_64-linux-gnu.2.17 -std=c99 -Wno-unused-command-line-argument -I."
    job "$old $src/collective.c -o %o -DWITH_MAIN $implement $libs && %o && ! nm -D %o | grep -E 'GLIBC_2\\.(1[89]|[2-9][0-9])'"
else
    echo "skipped: the headers of macOS: the Python package ziglang is not installed"
    skipped=$((skipped + 1))
fi

# Without -Wpedantic and -Wundef, which nvcc's generated code and the toolkit's headers trip.
if has nvcc; then
    nvcc="nvcc -x cu -I. --Werror all-warnings -Xcompiler -Wall,-Wextra,-Wconversion,-Wsign-conversion,-Wshadow,-Werror"
    job "$nvcc -c $src/ignis.c -o %o.o"
    for std in ${all:+c++14 c++17} c++20; do job "$nvcc -std=$std -c $src/together.c -o %o.o $implement"; done
    if [ "$all" ]; then job "$nvcc -c $src/together.c -o %o.o $implement -DIGNIS_STATIC"; fi
    job "$nvcc -c $src/twice.c -o %o.o"
    job "$nvcc $src/ignis.c -o %o -DWITH_MAIN $implement && %o"
    job "$nvcc examples/interop_cudart.cu -o %o"
fi

# The Windows branch compiles and links.
if has x86_64-w64-mingw32-gcc; then
    every_mode x86_64-w64-mingw32-gcc -std=c99 $strict -I.
    if [ "$all" ]; then job "x86_64-w64-mingw32-gcc -std=c11 $strict -I. $src/ignis.c -o %o.exe -DWITH_MAIN $implement"; fi
    job "x86_64-w64-mingw32-gcc -std=c17 -O2 $strict -I. $src/collective.c -o %o.exe -DWITH_MAIN $implement"
fi
if has x86_64-w64-mingw32-g++; then
    if [ "$all" ]; then every_mode x86_64-w64-mingw32-g++ -x c++ -std=c++11 $strict -I.; fi
    for std in ${all:+c++17} c++20; do
        job "x86_64-w64-mingw32-g++ -x c++ -std=$std $strict -I. $src/collective.c -o %o.exe -DWITH_MAIN $implement"
    done
fi

# IGNIS_LINK_CUDA binds to the toolkit's libraries. The toolkit's headers, which rename functions by macros, may come first.
if [ -e $toolkit/include/cuda.h ]; then
    link="-DIGNIS_LINK_CUDA -isystem $toolkit/include"
    link_libs="-L$toolkit/lib64/stubs -L$toolkit/lib64 -lcuda -lnvrtc -lcublasLt $libs"
    job "gcc $strict -I. -isystem $toolkit/include -include cuda.h -include nvrtc.h -c $src/collective.c -o %o.o $implement"
    job "gcc $strict -I. $link $src/ignis.c -o %o -DWITH_MAIN $implement $link_libs"
    job "gcc $strict -I. $link $src/collective.c -o %o -DWITH_MAIN $implement $link_libs"
    job "g++ -x c++ -std=c++11 $strict -I. $link $src/collective.c -o %o -DWITH_MAIN $implement $link_libs"
    job "g++ -x c++ -std=c++11 $strict -I. $link -fsyntax-only $src/models.c $implement"
    if has clang; then job "clang $strict -I. $link $src/ignis.c -o %o -DWITH_MAIN $implement $link_libs"; fi
else
    echo "skipped: IGNIS_LINK_CUDA: there is no CUDA toolkit in $toolkit"
    skipped=$((skipped + 1))
fi

# one COMMAND : runs one combination; prints "ok", or the command and what it said
one()
{
    local said
    if said=$(eval "$1" 2>&1); then echo ok; else printf 'FAIL: %s\n%s\n' "$1" "$said"; fi
}
export -f one
xargs -d '\n' -P "$(nproc)" -I{} bash -c 'one "$1"' one {} <$out/jobs >$out/results
grep -v '^ok$' $out/results
failed=$(grep -c '^FAIL: ' $out/results)
passed=$((count - failed))

# report NAME FOUND : a check that expects to find nothing
report()
{
    if [ -z "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL: %s:\n%s\n' "$1" "$2"
    fi
}

# An object with the implementation exports the public functions alone, and needs nothing of CUDA.
gcc -I. -c $src/orders.c -DORDER=1 -o $out/symbols.o $implement
report 'exported, but not a public name' "$(nm -g --defined-only $out/symbols.o | awk '$3 !~ /^ignis_[a-z]/ { print $3 }')"
report 'private name without its prefix' "$(nm --defined-only $out/symbols.o | awk '$2 ~ /[tdbr]/ && $3 !~ /^ignis_|\.[0-9]+$/ { print $3 }')"
report 'linked against CUDA' "$(nm -u $out/symbols.o | grep -E ' (cu|nvrtc|nccl)')"

# Macros that reach a user of the declarations. Those of old public names, which stay for one version, name a public function or field.
printf '#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n' | gcc -dM -E -x c - >$out/macros.std
gcc -dM -E -I. $src/models.c -include $src/together.c >$out/macros.ignis
report 'macro without the prefix' "$(sort $out/macros.std $out/macros.std $out/macros.ignis | uniq -u | awk '$2 !~ /^IGNIS_/ && !($2 ~ /^ignis_/ && $3 ~ /^ignis_/) { print $2 }')"

# seconds COMMAND... : its user time
seconds()
{
    local TIMEFORMAT=%U
    { time "$@" >/dev/null 2>&1; } 2>&1
}
ten_times() { for _ in 1 2 3 4 5 6 7 8 9 10; do "$@"; done; }
: >$out/empty.c
user_time() { awk 'END { split($1, part, /[ms]/); print 60 * part[1] + part[2] }' $out/$1.times; }
arrays=$(user_time arrays)
whole=$(user_time all)
declared=$(seconds ten_times gcc -I. -c $src/ignis.c -o $out/time.o)
empty=$(seconds ten_times gcc -c $out/empty.c -o $out/time.o)
over=$(awk "BEGIN { printf \"%.4f\", ($declared - $empty) / 10 }")
echo "compile time (user): the implementation with gcc -O2 and the collective layer $whole s, without tensors $arrays s, the declarations $over s over an empty file"
# Twice what a slow machine takes that does little else: these find what makes compilers slow, not machines that are.
report 'arrays and kernels alone take 9 s or more to compile' "$(awk "BEGIN { if ($arrays >= 9) print $arrays }")"
report 'with tensors and the collective layer it takes 42 s or more to compile' "$(awk "BEGIN { if ($whole >= 42) print $whole }")"
report 'the declarations take 0.1 s or more to compile' "$(awk "BEGIN { if ($over >= 0.1) print $over }")"

echo "compile matrix: $passed combinations ok, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
