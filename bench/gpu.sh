#!/bin/sh
# Everything that only a GPU can show, in one run: tests, memory checker, examples, benchmarks with their peers; the results last.
#
#   sh bench/gpu.sh [folder for the logs] [stage ...]        stages: test memcheck examples bench peers
cd "$(dirname "$0")/.." || exit 1
logs=${1:-build/gpu}
[ $# -gt 0 ] && shift
stages=${*:-test memcheck examples bench peers}
mkdir -p "$logs"
PATH=$PATH:/usr/local/cuda/bin

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
    peers) for peer in bench/peer_*.py; do python3 "$peer" || exit 1; done ;;
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
    bench | peers) cat "$logs/$name.log" ;;
    *) grep -aE '^[0-9]+ passed|^FAIL|^skip|ERROR SUMMARY: [1-9]|LEAK SUMMARY: [1-9]' "$logs/$name.log" | tail -n 12 ;;
    esac
done
mv "$logs/summary.new" "$logs/summary"
cat "$logs/summary"
! grep -q 'exit [1-9]' "$logs/summary"
