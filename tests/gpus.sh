#!/bin/sh
# SPDX-License-Identifier: MIT
# Training on two and on four GPUs goes as on one: the same losses, as far as they are printed. With a rank that is killed
# and starts again, two GPUs give the same model, to the bit; with shards the same losses.
#
#   tests/gpus.sh train_gpt [folder for what the runs write]

program=$1
out=${2:-build/gpus}
mkdir -p "$out"

fail() {
    echo "FAIL: gpus, $1" && tail -n 20 "$out"/*.log
    exit 1
}

run() { # name [option ...]
    name=$1
    shift
    timeout -k 5 "${LIMIT:-300}" "$program" ignis.h --steps 4 --sample 0 --dtype f32 --graph 1 --out "$out/$name.svg" --save "$out/$name.safetensors" "$@" \
        >"$out/$name.log" 2>&1 && grep -ao 'The loss fell .* The picture' "$out/$name.log" >"$out/$name.losses"
}

export IGNIS_SIM_DEVICES="${IGNIS_SIM_DEVICES:-4}"
run 1 || fail 'one GPU'

# Steps of runs in which a rank is killed: those of a GPU would end before.
long=4
[ -n "${IGNIS_CUDA_LIBRARY:-}" ] || long=400

last_child() { ps -o pid= --ppid "$1" | tail -n 1 | tr -d ' '; }

# kill_one LAUNCHER LOG: after the first line of progress, the last process that the launcher has started.
kill_one() {
    while kill -0 "$1" 2>/dev/null; do
        if grep -aq "/$long  loss" "$2" 2>/dev/null; then
            kill -KILL "$(last_child "$1")"
            return
        fi
        sleep 0.1
    done
}

for count in 2 4; do
    if ! run $count --gpus $count; then
        if grep -aq 'both use GPU\|would use device' "$out/$count.log"; then
            echo "skip: gpus: there are fewer than $count devices"
            continue
        fi
        fail "$count GPUs"
    fi
    cmp -s "$out/1.losses" "$out/$count.losses" || fail "the losses of $count differ"
    echo "ok   gpus: $count: $(sed 's/ The picture//' "$out/$count.losses")"
done

# run_killed NAME [option ...]: two GPUs, a rank of which is killed and starts again.
run_killed() {
    rm -f "$out/$1.log"
    run "$@" --gpus 2 --restarts 1 --steps $long &
    launched=$!
    limiter= launcher= # the run starts timeout, which starts the launcher
    while kill -0 $launched 2>/dev/null && [ -z "$launcher" ]; do
        sleep 0.1
        limiter=$(last_child $launched)
        [ -z "$limiter" ] || launcher=$(last_child "$limiter")
    done
    kill_one "$launcher" "$out/$1.log"
    wait $launched || fail 'a rank that is killed'
    grep -aq 'was lost and starts again' "$out/$1.log" || fail 'no rank was killed'
}

# The same options without a kill: with --restarts a step is divided into other launches, and other kernels may be fused.
whole() {
    run "$1" --gpus 2 --restarts 1 --steps $long || fail "$long steps"
}

if [ -f "$out/2.losses" ]; then
    whole long
    run_killed killed
    if ! cmp -s "$out/long.safetensors" "$out/killed.safetensors"; then
        whole again
        cmp -s "$out/long.safetensors" "$out/again.safetensors" || fail 'two runs without a kill give other models'
        fail 'the model with a rank that was killed differs'
    fi
    echo 'ok   gpus: 2, one of which is killed: the same model'
    run_killed shards --shard parameters --shard-ranks 1
    cmp -s "$out/long.losses" "$out/shards.losses" || fail 'the losses with shards and a rank that was killed differ'
    echo 'ok   gpus: 2 with shards, one of which is killed: the same losses'
fi
