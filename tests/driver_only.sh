#!/bin/sh
# SPDX-License-Identifier: MIT
# Programs run where there is the driver and nothing else: no NVRTC, no cuBLASLt, no cache, no bundle but their own.
#
#   sh tests/driver_only.sh [folder of the examples [folder for what is written]]
#
# Records train_gpt, fit_image and save_load, makes a bundle of each with build/ignis_embed for the architectures of ARCHS and PTX, and runs them
# from it with every library but the driver's pointing to nowhere. Each has to say what it says with NVRTC. On a GPU the search paths are hidden,
# too, and the tables show sizes and times. TRAIN: options of train_gpt.

examples=${1:-build/default}
out=${2:-$examples/driver_only}
ARCHS=${ARCHS:-90a}
cold=IGNIS_CACHE_DIR=off
if [ -n "$IGNIS_CUDA_LIBRARY" ]; then cold=IGNIS_VERBOSE=0; fi # on the simulator, whose compiler is slow, from the cache
mkdir -p "$out"

fail() {
    echo "FAIL: driver only, $1"
    tail -n 5 "$out/$2"
    exit 1
}

say() { # name, log, command ...: runs it, and prints how long it took
    what=$1 log=$2
    shift 2
    begin=$(date +%s%N)
    "$@" >"$out/$log" 2>&1 || fail "$what" "$log"
    end=$(date +%s%N)
    printf '%-46s %8d ms\n' "$what" $(((end - begin) / 1000000))
}

# What a program says, without times and names of files, which differ.
words() { grep -aoE '(step +[0-9]+: )?loss [0-9.]+( +held-out [0-9.]+)?|loss fell from.*held-out text from [0-9.]+ to [0-9.]+|says +[-0-9.]+|error [0-9.e-]+|PSNR [0-9.]+|[0-9.]+ dB' "$1"; }

alone="env -u LD_LIBRARY_PATH -u CUDA_HOME -u CUDA_PATH -u VIRTUAL_ENV -u CONDA_PREFIX IGNIS_NVRTC_LIBRARY=/nowhere/nvrtc
    IGNIS_CUBLAS_LIBRARY=/nowhere/cublas IGNIS_NCCL_LIBRARY=/nowhere/nccl IGNIS_CACHE_DIR=off IGNIS_COMPILE=never"

run() { # name, command ...
    name=$1
    shift
    rm -f "$out/$name.record"
    say "$name: recorded" $name.record.log env IGNIS_RECORD="$out/$name.record" IGNIS_MATMUL=own "$@"
    say "$name: bundled for $ARCHS${PTX:+ and PTX $PTX}" $name.embed.log build/ignis_embed "$out/$name.record" --archs "$ARCHS" ${PTX:+--ptx $PTX} \
        -o "$out/$name.ignis"
    sed 's/^/    /' "$out/$name.embed.log"
    say "$name: with NVRTC" $name.nvrtc.log env $cold IGNIS_MATMUL=own "$@"
    say "$name: from the bundle alone" $name.log $alone IGNIS_BUNDLE="$out/$name.ignis" "$@"
    words "$out/$name.nvrtc.log" >"$out/$name.expected"
    words "$out/$name.log" >"$out/$name.said"
    [ -s "$out/$name.said" ] || fail "$name says nothing" $name.log
    cmp -s "$out/$name.expected" "$out/$name.said" || {
        diff "$out/$name.expected" "$out/$name.said" | head -n 6
        fail "$name says something else" $name.log
    }
    if $alone "$@" >"$out/$name.without.log" 2>&1; then fail "$name runs without its bundle" $name.without.log; fi
    grep -aq 'IGNIS_COMPILE_NEVER' "$out/$name.without.log" || fail "$name without its bundle does not say why" $name.without.log
    echo "ok   driver only, $name"
}

run save_load "$examples/save_load" "$out/sine.safetensors"
run fit_image "$examples/fit_image" "$out/fit_image.png"
run train_gpt "$examples/train_gpt" ignis.h --out "$out/loss.svg" --save "$out/gpt.safetensors" ${TRAIN:---steps 20 --sample 0}
