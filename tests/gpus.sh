#!/bin/sh
# SPDX-License-Identifier: MIT
# Training on two and on four GPUs goes as on one: the same losses, as far as they are printed.
#
#   tests/gpus.sh train_gpt [folder for what the runs write]

program=$1
out=${2:-build/gpus}
mkdir -p "$out"

fail() {
    echo "FAIL: gpus, $1" && tail -n 5 "$out"/*.log
    exit 1
}

run() { # name [option ...]
    name=$1
    shift
    "$program" ignis.h --steps 4 --sample 0 --dtype f32 --graph 1 --out "$out/$name.svg" --save "$out/$name.safetensors" "$@" \
        >"$out/$name.log" 2>&1 && grep -ao 'The loss fell .* The picture' "$out/$name.log" >"$out/$name.losses"
}

export IGNIS_SIM_DEVICES=4
run 1 || fail 'one GPU'
for count in 2 4; do
    if ! run $count --gpus $count; then
        if grep -aq 'both use GPU' "$out/$count.log"; then echo "skip: gpus: there are fewer than $count devices" && exit 0; fi
        fail "$count GPUs"
    fi
    cmp -s "$out/1.losses" "$out/$count.losses" || fail "the losses of $count differ"
    echo "ok   gpus: $count: $(sed 's/ The picture//' "$out/$count.losses")"
done
