#!/bin/sh
# Training on two GPUs goes as on one: the same losses, as far as they are printed.
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

run one || fail 'one GPU'
if ! run two --gpus 2; then
    if grep -aq 'both use GPU' "$out/two.log"; then echo 'skip: gpus: there is one device' && exit 0; fi
    fail 'two GPUs'
fi
cmp -s "$out/one.losses" "$out/two.losses" || fail 'the losses differ'
echo "ok   gpus: $(sed 's/ The picture//' "$out/two.losses")"
