#!/bin/sh
# SPDX-License-Identifier: MIT
# Everything that only a GPU can show, in one run: tests, memory checker, examples, benchmarks with their peers; the results last.
#
#   sh bench/gpu.sh [folder for the logs] [stage ...]        stages: test memcheck examples bench peers collective parallel attention
#
# collective and parallel are for several GPUs; without them they have nothing to do. attention is only done when it is named: the kernels
# for compute capability 9.0, their tests, the same under the checkers of memory and of races, then their speed beside cuDNN.
cd "$(dirname "$0")/.." || exit 1
logs=${1:-build/gpu}
[ $# -gt 0 ] && shift
stages=${*:-test memcheck examples bench peers collective parallel}
mkdir -p "$logs"
PATH=$PATH:/usr/local/cuda/bin
export NCCL_NVLS_ENABLE=0 # multicast is not asked for on machines that others use too
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')

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

stage() {
    echo "== $1"
    case $1 in
    test) make test ;;
    memcheck) make test-memcheck ;;
    examples)
        make run && make check-resume && for source in examples/*.cu; do
            [ -e "$source" ] || continue
            program=build/$(basename "$source" .cu)
            nvcc -I. "$source" -o "$program" && "$program" || exit 1
        done ;;
    bench) make bench ;;
    peers) for peer in bench/peer_torch.py bench/peer_cupy.py bench/peer_training.py bench/peer_matmul.py; do python3 "$peer" || exit 1; done ;;
    collective)
        make build/default/bench_collective || exit 1
        for n in 2 4 8; do
            [ "$n" -le "$gpus" ] || continue
            build/default/bench_collective ranks=$n ops=all_reduce,all_gather,reduce_scatter,broadcast,all_to_all \
                dtypes=bf16,f32 >"$logs/ignis-$n.txt" && python3 bench/peer_collective.py "$n" >"$logs/nccl-$n.txt" || exit 1
            echo "$n GPUs" && beside "$logs/ignis-$n.txt" "$logs/nccl-$n.txt"
        done ;;
    attention)
        make build/default/test_ops_attention build/default/bench_training && build/default/test_ops_attention wgmma || exit 1
        for tool in memcheck racecheck; do
            echo "$tool"
            WRAPPER=compute-sanitizer compute-sanitizer --tool $tool --report-api-errors no --target-processes application-only \
                --error-exitcode 1 build/default/test_ops_attention wgmma || exit 1
        done
        build/default/bench_training attention wgmma >"$logs/wgmma.txt" && python3 bench/peer_training.py "$logs/wgmma.txt" attention ;;
    parallel)
        make check-gpus build/default/bench_parallel || exit 1
        for n in 1 2 4 8; do
            [ "$n" -le "$gpus" ] && [ "$gpus" -gt 1 ] || continue
            sh examples/launch.sh "$n" build/default/bench_parallel && python3 bench/peer_parallel.py "$n" || exit 1
        done ;;
    esac
}

for name in $stages; do
    start=$(date +%s)
    (stage "$name") > "$logs/$name.log" 2>&1
    result=$?
    echo "$name: exit $result, $(($(date +%s) - start)) s" >> "$logs/summary.new"
done
for name in $stages; do
    case $name in
    bench | peers | collective | parallel | attention) cat "$logs/$name.log" ;;
    *) grep -aE '^[0-9]+ passed|^FAIL|^skip|ERROR SUMMARY: [1-9]|LEAK SUMMARY: [1-9]' "$logs/$name.log" | tail -n 12 ;;
    esac
done
mv "$logs/summary.new" "$logs/summary"
cat "$logs/summary"
! grep -q 'exit [1-9]' "$logs/summary"
