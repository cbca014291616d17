#!/bin/sh
# SPDX-License-Identifier: MIT
# What only a GPU can show, in one run: tests, examples, models, benchmarks beside their peers; what they say, and a table of the parts last.
#
#   sh bench/gpu.sh [part ...]       default: tests memcheck examples bench peers generate training comm collective parallel
#
#   tests       make test. SIDE_BY_SIDE=4 in the environment: so many programs at once
#   memcheck    tests under the memory checker
#   examples    make run, and training that goes on after an interruption
#   frame       the loop of an engine: median and worst frame; and of a Llama of 1B that writes beside 4 and 10 ms of rendering. IGNIS_FRAMES=600 MODELS=llama-8b
#   graphics    make check-graphics, with an engine in libraries
#   families    logits and texts of each family of language models beside transformers. FAMILIES='gemma2 olmo3'
#   torch       every operation beside PyTorch
#   bench       make bench
#   peers       PyTorch and CuPy beside some of those
#   generate    tokens a second beside transformers with torch.compile, then of quantised weights. MODELS='gpt2 llama-1b llama-8b' BATCH=1,16,64
#   drafts      ignis_generate of a model of 8B that checks guesses of a model of 1B, and of its own text. GUESSES='7 15'. Takes 20 GB of memory as files
#   mixtures    gpt-oss-20b, Qwen3-30B-A3B, DeepSeek-V2-Lite and a quarter of Qwen3-Next-80B-A3B in shape: 1 and 64 sequences, prompts of 512 and
#               2,048 tokens, beside transformers. They take 14, 61, 31 and 41 GB of memory as files, one after the other. MODELS='qwen3-next' BATCH=1,64
#   batches     tokens a second of 1 to 256 sequences of a Llama of 8B, with weights of bf16 and Q4_0. MODELS='llama-1b llama-8b' BATCH=1,64,512
#               WEIGHTS=q4_0,q4_k,q8_0,f8
#   offline     1,000 texts of a Llama of 8B, prompts of 500 to 1,500 tokens, 500 tokens each, 256 at a time. BATCH=128
#   caches      keys and values of f8, q8_0 and q4_0 beside numbers: 1 and 64 sequences behind 8,064 tokens, tokens a second and the error of logits.
#               MODELS='llama-8b' CACHE=f8 BATCH=64
#   training    training steps beside PyTorch, eager and torch.compile. SECTIONS='mlp memory gpt llama', as bench_training has them
#   attention   the kernels for compute capability 9.0: tests, the same under the checker of memory, speed beside cuDNN
#   races       those kernels, and those of generation, under the checker of races
#   comm        several GPUs: tests
#   collective  several GPUs: collective operations beside NCCL
#   shards      a Llama, the largest of 1B, 3B and 8B that fits, with parameters that the GPUs share, beside PyTorch's FSDP2; and each kind of shard
#               on one GPU, where none may cost more than 2 %, and the ways to keep activations. KINDS='gradients parameters tensor' BUCKET=100 (MiB; else a layer)
#               SHARD_RANKS=2 (that divide a copy of the model; else all)
#   parallel    several GPUs: data-parallel training beside DistributedDataParallel, and tokens a second of models that they share
#
# TOTAL=580: seconds for all of it; what does not fit is stopped, or left out. LOGS=build/gpu: where the logs go, a file for each part.
# With IGNIS_SIM=1 it all runs on the simulator, in tiny sizes, without the peers, to see that it works.
cd "$(dirname "$0")/.." || exit 1
logs=${LOGS:-build/gpu}
out=build/default
PATH=$PATH:/usr/local/cuda/bin
export PYTHONUNBUFFERED=1 NCCL_NVLS_ENABLE=0 # multicast is not asked for on machines that others use too
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
python=${PYTHON:-python3}

# Programs of a part, compiled side by side.
build() {
    programs=
    for name; do programs="$programs $out/$name"; done
    make -s -j"$(nproc)" $programs
}

# A folder in memory, as long as the part takes.
room_for_models() {
    folder=$(mktemp -d /dev/shm/ignis.XXXXXX) && trap 'rm -rf "$folder"' EXIT && trap 'exit 1' TERM || exit 1
}

# Seconds that a part may take.
limit() {
    case $1 in
    tests | memcheck | bench) echo 1200 ;;
    graphics) echo 120 ;;
    frame) echo 200 ;;
    mixtures) echo 1200 ;;
    families) echo 300 ;;
    generate | batches | training | comm | collective | parallel | shards) echo 500 ;;
    *) echo 600 ;;
    esac
}

# Ignis beside NCCL: rows of bench_collective, then lines of peer_collective.py, made a table.
beside() {
    awk '$1 == "row" {
             for (i = 2; i <= NF; i++) { split($i, pair, "="); row[pair[1]] = pair[2] }
             key = sprintf("%-14s %-4s %10s %-5s", row["op"], row["dtype"], row["bytes"], row["mode"])
             if (!(key in ours)) order[count++] = key
             ours[key] = row["us"]
         }
         $1 != "row" && $4 ~ /^(graph|eager)$/ { theirs[sprintf("%-14s %-4s %10s %-5s", $1, $2, $3, $4)] = $5 }
         END {
             printf "%-36s %10s %10s %6s\n", "", "Ignis, us", "NCCL, us", "ratio"
             for (i = 0; i < count; i++)
                 if (order[i] in theirs)
                     printf "%s %10.2f %10.2f %6.2f\n", order[i], ours[order[i]], theirs[order[i]], ours[order[i]] / theirs[order[i]]
         }' "$@"
}

part() {
    case $1 in
    tests) make -j"$(nproc)" test ;;
    memcheck) make -j"$(nproc)" test-memcheck ;;
    examples) make run && make check-resume ;;
    frame)
        model=${MODELS:-llama-1b}
        export IGNIS_FRAMES=${IGNIS_FRAMES:-600}
        room_for_models
        build frame_loop character bench_generate && $out/frame_loop &&
            $out/bench_generate "folder=$folder" batch=1 drawn "$model" &&
            for load in 4 10; do IGNIS_LOAD_MS=$load $out/character "$folder"/ignis-* "static " || exit 1; done ;;
    graphics) make -j"$(nproc)" check-graphics && { grep -h 'median' $out/gpu_*.log || true; } ;;
    families) $python tests/models/generate/transformers_compare.py ${FAMILIES:-} ;;
    torch) $python tests/ops/torch_compare.py ;;
    bench) make -j"$(nproc)" bench ;;
    peers) for peer in torch cupy matmul; do $python bench/peer_$peer.py || exit 1; done ;;
    generate)
        models=${MODELS:-gpt2 llama-1b llama-8b} batch=batch=${BATCH:-1,16,64}
        room_for_models
        build bench_generate && $out/bench_generate "folder=$folder" batch=1 start llama-135m &&
            $out/bench_generate "folder=$folder" $batch drawn $models &&
            $out/bench_generate "folder=$folder" $batch weights=q4_0,q8_0,q4_k,q5_0,iq4_xs,mxfp4,f8 $models &&
            $python bench/peer_generate.py "folder=$folder" $batch compile $models ;;
    drafts)
        room_for_models
        build bench_generate || exit 1
        for guesses in ${GUESSES:-7}; do
            $out/bench_generate "folder=$folder" speculate=$guesses draft=llama-1b llama-8b || exit 1
        done ;;
    mixtures)
        build bench_generate || exit 1
        for model in ${MODELS:-gpt-oss-20b qwen3-30b-a3b deepseek-v2-lite qwen3-next}; do
            room_for_models
            $out/bench_generate "folder=$folder" batch=${BATCH:-1,64} long=2048 "$model" &&
                $python bench/peer_generate.py random steps=8 "folder=$folder" batch=${BATCH:-1,64} long=2048 "$model" || exit 1
            rm -rf "$folder"
        done ;;
    batches)
        models=${MODELS:-llama-8b} batch=batch=${BATCH:-1,2,4,8,16,32,64,128,256}
        room_for_models
        build test_generate_batch bench_generate && $out/test_generate_batch &&
            $out/bench_generate "folder=$folder" $batch "weights=${WEIGHTS:-q4_0}" $models &&
            $out/bench_generate "folder=$folder" $batch $models ;;
    offline)
        room_for_models
        build bench_generate && $out/bench_generate "folder=$folder" batch="${BATCH:-256}" offline=1000 ${MODELS:-llama-8b} ;;
    caches)
        room_for_models
        build test_cache_types bench_generate && $out/test_cache_types &&
            $out/bench_generate "folder=$folder" before=8064 batch="${BATCH:-1,64}" cache="${CACHE:-f8,q8_0,q4_0}" ${MODELS:-llama-8b} ;;
    training)
        sections=${SECTIONS:-mlp memory gpt llama}
        build bench_training && $out/bench_training $sections >"$logs/training.txt" &&
            $python bench/peer_training.py "$logs/training.txt" $sections ;;
    attention)
        build test_ops_attention bench_training && $out/test_ops_attention wgmma || exit 1
        WRAPPER=compute-sanitizer compute-sanitizer --tool memcheck --report-api-errors no --target-processes application-only \
            --error-exitcode 1 $out/test_ops_attention wgmma || exit 1
        $out/bench_training attention wgmma >"$logs/wgmma.txt" && $python bench/peer_training.py "$logs/wgmma.txt" attention ;;
    races) # in a copy where each lane of a warp arrives at barriers: kernels/hopper.cuh says why
        copy=$logs/races found=0
        rm -rf "$copy" && mkdir -p "$copy" && cp -r ignis*.h tests "$copy" &&
            sed -i 's/IGNIS_WARP_ARRIVALS = 1;/IGNIS_WARP_ARRIVALS = 32;/' "$copy/ignis_kernels.h" || exit 1
        for test in ops_attention generate_kernels; do
            cc -O1 -w -I"$copy" -iquote "$copy/tests" "$(find "$copy/tests" -name "test_$test.c")" -o "$copy/test_$test" -lm -ldl -lpthread || exit 1
        done
        # Of ignis_sdpa_backward it would report a word that threads poll on purpose.
        for run in 'ops_attention wgmma' 'generate_kernels products_of_quantised' 'generate_kernels steps_of_one_row' \
            'generate_kernels keys_of_many_rows'; do
            echo "racecheck of $run"
            WRAPPER=compute-sanitizer compute-sanitizer --tool racecheck --report-api-errors no --target-processes application-only \
                --error-exitcode 1 --kernel-regex-exclude kne=ignis_sdpa_backward "$copy/test_${run% *}" ${run#* } >"$copy/${run#* }.txt" 2>&1 || found=1
            tail -n 2 "$copy/${run#* }.txt"
        done
        exit $found ;;
    comm)
        make -j"$(nproc)" check-gpus && make -j"$(nproc)" test TESTS="$(find tests/collective tests/models/generate/test_generate_parallel.c -name 'test_*.c' |
            sed "s|.*/\(.*\)\.c|$out/\1|" | tr '\n' ' ')" ;;
    collective)
        build bench_collective || exit 1
        for n in 2 4 8; do
            [ "$n" -le "$gpus" ] || continue
            $out/bench_collective ranks=$n ops=all_reduce,all_gather,reduce_scatter,broadcast,all_to_all \
                dtypes=bf16,f32 >"$logs/ignis-$n.txt" && $python bench/peer_collective.py "$n" >"$logs/nccl-$n.txt" || exit 1
            echo "$n GPUs" && beside "$logs/ignis-$n.txt" "$logs/nccl-$n.txt"
        done ;;
    parallel)
        build bench_parallel bench_generate || exit 1
        room_for_models
        for n in 1 2 4 8; do
            [ "$n" -le "$gpus" ] && [ "$gpus" -gt 1 ] || continue
            sh examples/launch.sh "$n" $out/bench_parallel && $python bench/peer_parallel.py "$n" &&
                sh examples/launch.sh "$n" $out/bench_generate "folder=$folder" ${MODELS:-llama-1b llama-8b} || exit 1
        done ;;
    shards)
        build bench_shards || exit 1
        memory=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | head -n 1)
        for kind in none optimizer gradients parameters; do
            sh examples/launch.sh 1 $out/bench_shards llama-1b $kind || exit 1
        done
        for again in all keep-products offload; do
            sh examples/launch.sh 1 $out/bench_shards llama-1b none 0 - $again || exit 1
        done
        [ "$gpus" -gt 1 ] || exit 0
        model=llama-1b # MiB: 16 bytes a parameter, divided, and room for activations and scores
        [ "${memory:-0}" -gt $((49000 / gpus + 55000)) ] && model=llama-3b
        [ "${memory:-0}" -gt $((115000 / gpus + 60000)) ] && model=llama-8b
        for kind in ${KINDS:-gradients parameters tensor}; do
            sh examples/launch.sh "$gpus" $out/bench_shards $model $kind "${BUCKET:-0}" - none "$([ $kind = tensor ] || echo "${SHARD_RANKS:-0}")" || exit 1
        done
        $python bench/peer_shards.py "$gpus" $model ;;
    *) echo "there is no part $1" && exit 2 ;;
    esac
}

if [ "${IGNIS_SIM:-0}" = 1 ]; then
    eval "$(make -s sim-env)"
    gpus=2
fi
export IGNIS_CACHE_DIR="${IGNIS_CACHE_DIR:-$PWD/$out/cache}"
if [ "$1" = --part ]; then
    part "$2"
    exit
fi

parts=${*:-tests memcheck examples bench peers generate training comm collective parallel}
mkdir -p "$logs"
: >"$logs/summary"
begin=$(date +%s)
for name in $parts; do
    start=$(date +%s) most=$(limit "$name") code=0
    left=$((${TOTAL:-100000} - start + begin))
    [ "$left" -lt "$most" ] && most=$left
    if [ "$most" -lt 5 ]; then
        printf '%-10s left out\n' "$name" >>"$logs/summary" && continue
    fi
    timeout -k 5 "$most" sh bench/gpu.sh --part "$name" >"$logs/$name.log" 2>&1 </dev/null || code=$?
    case $code in
    0) result=ok ;;
    124 | 137) result="stopped after $most s" ;;
    *) result="failed, exit $code" ;;
    esac
    echo "== $name"
    case $name in
    tests | memcheck | examples) grep -aE '^FAIL|^skip|ERROR SUMMARY: [1-9]|LEAK SUMMARY: [1-9]' "$logs/$name.log" | tail -n 20 ;;
    *) cat "$logs/$name.log" ;;
    esac
    [ "$code" = 0 ] || tail -n 5 "$logs/$name.log"
    printf '%-10s %-22s %5d s  %s\n' "$name" "$result" $(($(date +%s) - start)) \
        "$(grep -aE '[0-9]+ passed, [0-9]+ failed|^[0-9]+ frames' "$logs/$name.log" | tail -n 1)" >>"$logs/summary"
done
echo '== parts'
cat "$logs/summary"
! grep -qE ' (failed|stopped|left out)' "$logs/summary"
