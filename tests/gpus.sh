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

# Runs in which a rank is killed: enough steps that it dies between two validations, and on a GPU before the end.
long=120 small='--layers 1 --width 16 --heads 2 --context 16 --batch 2'
[ -n "${IGNIS_CUDA_LIBRARY:-}" ] || long=400 small=

last_child() { ps -o pid= --ppid "$1" | tail -n 1 | tr -d ' '; }

# kill_one LAUNCHER LOG: some steps after the first line of progress, the last process that the launcher has started.
kill_one() {
    while kill -0 "$1" 2>/dev/null; do
        if grep -aq "/$long  loss" "$2" 2>/dev/null; then
            sleep 0.2
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
    run "$@" --gpus 2 --restarts 1 --steps $long $small &
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

# Where the model differs: checksums of runs without a kill, each twice.
compare() {
    for name in again plain plain-again one one-again; do
        case $name in again) options='--gpus 2 --restarts 1' ;; plain*) options='--gpus 2' ;; *) options= ;; esac
        run $name $options --steps $long $small || fail "$name"
    done
    for name in long again killed plain plain-again one one-again; do
        echo "     $(cksum <"$out/$name.safetensors") $name"
    done
}

if [ -f "$out/2.losses" ]; then
    run long --gpus 2 --restarts 1 --steps $long $small || fail "$long steps"
    run_killed killed
    if ! cmp -s "$out/long.safetensors" "$out/killed.safetensors"; then
        compare
        fail 'the model with a rank that was killed differs'
    fi
    echo 'ok   gpus: 2, one of which is killed: the same model'
    run_killed shards --shard parameters --shard-ranks 1
    cmp -s "$out/long.losses" "$out/shards.losses" || fail 'the losses with shards and a rank that was killed differ'
    echo 'ok   gpus: 2 with shards, one of which is killed: the same losses'
fi
