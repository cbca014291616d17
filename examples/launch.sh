#!/bin/sh
# SPDX-License-Identifier: MIT
# Starts a program as N ranks on this host, a GPU each, and waits for all of them.
#
#   examples/launch.sh N program [argument...]
#
# Each rank gets IGNIS_RANK, IGNIS_WORLD_SIZE, IGNIS_LOCAL_RANK and IGNIS_COMM_DIR, a private folder
# where they meet. The folder is removed at the end. If a rank fails, the others have GRACE seconds (5) to end by
# themselves; then they are killed. The exit status is that of the first rank that failed. Signals go to all ranks.
# With RESTARTS=n a rank that fails or is killed starts again, n times each, and the others go on: for programs whose
# ranks come back (ignis_comm_grow), such as train_gpt --restarts 1. When rank 0 has ended well, no rank starts again, and
# one that did and now waits for it has GRACE seconds, too, which is no failure.

ranks=$1
case $ranks in '' | 0* | *[!0-9]*)
    echo "usage: $0 N program [argument...]" >&2
    exit 2
    ;;
esac
shift
if [ $# -eq 0 ]; then
    echo "$0: no program to start" >&2
    exit 2
fi

IGNIS_COMM_DIR=$(mktemp -d "${TMPDIR:-/tmp}/ignis-job-XXXXXX") || exit 1
IGNIS_WORLD_SIZE=$ranks
export IGNIS_COMM_DIR IGNIS_WORLD_SIZE
trap 'rm -rf "$IGNIS_COMM_DIR"' EXIT

# Each rank leaves its exit status in a file, so that the first to fail is seen whichever it is.
pids=
rank=0
while [ "$rank" -lt "$ranks" ]; do
    IGNIS_RANK=$rank IGNIS_LOCAL_RANK=$rank sh -c '
        left=${RESTARTS:-0}
        ends=
        while :; do
            "$@" &
            child=$!
            echo $child >"$IGNIS_COMM_DIR/pid.$IGNIS_RANK"
            for signal in TERM INT HUP; do trap "ends=1; kill -$signal $child 2>/dev/null" $signal; done
            wait $child
            code=$?
            while kill -0 $child 2>/dev/null; do wait $child; code=$?; done
            if [ $code -eq 0 ] || [ -n "$ends" ] || [ "$left" -le 0 ]; then break; fi
            if [ "$(cat "$IGNIS_COMM_DIR/status.0" 2>/dev/null)" = 0 ]; then break; fi
            left=$((left - 1))
            echo "$0 $IGNIS_RANK has ended with status $code, and starts again" >&2
        done
        echo $code >"$IGNIS_COMM_DIR/status.$IGNIS_RANK.part"
        mv "$IGNIS_COMM_DIR/status.$IGNIS_RANK.part" "$IGNIS_COMM_DIR/status.$IGNIS_RANK"' rank "$@" </dev/null &
    pids="$pids $!"
    rank=$((rank + 1))
done

stop() {
    for pid in $pids; do kill "-$1" "$pid" 2>/dev/null; done
}
trap 'stop TERM' TERM
trap 'stop INT' INT
trap 'stop HUP' HUP

result=0
ended=0
left=
over=
while [ "$ended" -lt "$ranks" ]; do
    sleep 0.1
    ended=0
    rank=0
    while [ "$rank" -lt "$ranks" ]; do
        status=$IGNIS_COMM_DIR/status.$rank
        if [ -f "$status" ]; then
            ended=$((ended + 1))
            read -r code <"$status"
            if [ "$rank" -eq 0 ] && [ "$code" -eq 0 ] && [ "${RESTARTS:-0}" -gt 0 ] && [ -z "$over" ]; then
                over=1
                left=$((10 * ${GRACE:-5}))
            fi
            if [ "$code" -ne 0 ] && [ "$result" -eq 0 ] && [ -z "$over" ]; then
                result=$code
                left=$((10 * ${GRACE:-5}))
                echo "$0: rank $rank has ended with status $code" >&2
            fi
        fi
        rank=$((rank + 1))
    done
    if [ -n "$left" ] && [ "$ended" -lt "$ranks" ]; then
        left=$((left - 1))
        if [ "$left" -eq 0 ]; then
            echo "$0: ending the ranks that are still running" >&2
            stop TERM
        fi
        if [ "$left" -eq -20 ]; then
            for pid in $(cat "$IGNIS_COMM_DIR"/pid.*); do kill -KILL "$pid" 2>/dev/null; done
        fi
    fi
done
exit "$result"
