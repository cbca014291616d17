#!/bin/sh
# SPDX-License-Identifier: MIT
# Training that was interrupted goes on as if nothing had happened, to the last bit.
#
#   tests/resume.sh train_gpt [folder for what the runs write]
#
# Three runs in f32, and three in bf16 from a CUDA graph: one to the end; one that gets SIGINT on the way, when it has begun to write a
# sample; and one that goes on from what the second has saved. First and third must leave the same model, course of the loss and picture.

program=$1
out=${2:-build/resume}
steps=39 # below 40 the loss on held-out text is measured at each step, so an interruption adds no measurement of its own
mkdir -p "$out"

start() { # name [option ...]; what calls it becomes the program
    name=$1
    shift
    exec "$program" ignis.h --out "$out/$name.svg" --save "$out/$name.safetensors" "$@" >"$out/$name.log" 2>&1
}

run() { (start "$@"); }

fail() {
    echo "FAIL: resume, $1" && tail -n 5 "$out"/*.log
    exit 1
}

# Interrupts a run at its second sample, a quarter of the way, which takes long enough for that; a sample that was too short is doubled.
interrupted() { # name [option ...]
    bytes=25
    while [ $bytes -lt 10000 ]; do
        rm -f "$out/$1.log"
        start "$@" --sample $bytes &
        child=$!
        until grep -aqs 'after 9 steps' "$out/$1.log" || ! kill -0 $child 2>/dev/null; do sleep 0.02; done
        kill -INT $child 2>/dev/null
        wait $child || return 1
        if grep -aq '^Interrupted after step' "$out/$1.log"; then return 0; fi
        bytes=$((2 * bytes))
    done
    return 1
}

for kind in f32 bf16; do
    graph=0
    if [ $kind = bf16 ]; then graph=1; fi
    set -- --steps $steps --layers 1 --width 32 --heads 2 --context 32 --batch 2 --dtype $kind --graph $graph
    run $kind.whole "$@" --sample 0 || fail "$kind, the run to the end"
    interrupted $kind.first "$@" || fail "$kind, the run that is interrupted"
    at=$(sed -n 's/^Interrupted after step \([0-9]*\);.*/\1/p' "$out/$kind.first.log")
    if [ "$at" -lt 1 ] || [ "$at" -ge $steps ]; then fail "$kind: interrupted after step $at of $steps"; fi
    if cmp -s "$out/$kind.first.safetensors" "$out/$kind.whole.safetensors"; then fail "$kind: the interrupted run saved the end"; fi
    run $kind.second --resume "$out/$kind.first.safetensors" --graph $graph --sample 0 || fail "$kind, the run that goes on"
    for what in safetensors svg; do
        cmp "$out/$kind.whole.$what" "$out/$kind.second.$what" || fail "$kind, interrupted after step $at"
    done
    echo "ok   resume, $kind: the same after $steps steps as without an interruption after $at"
done
