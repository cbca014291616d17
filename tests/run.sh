#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs test programs and sums their results.
#
#   tests/run.sh program...
#       SIDE_BY_SIDE  programs that run at the same time (1)
#       TIME_LIMIT    seconds that one program may take (900)
#       WRAPPER       command that each program is run under (none)
#
# A program ends with "name: N passed, N failed, N skipped". One that crashes, runs too long or ends without that line
# counts as one more failure. The output of a failing program is shown; that of the others is in program.log. The seconds
# of CPU are those to compare on a busy machine.

# Runs one program; what is shown of it goes to program.shown, whose last line is its three numbers.
run_one()
{
    log=$1.log
    start=$(date +%s)
    timeout -k 5 "${TIME_LIMIT:-900}" $WRAPPER "$1" >"$log" 2>&1 </dev/null
    code=$?
    seconds=$(($(date +%s) - start))
    times >"$1.times" # of this shell, then of what it has run: the program, and the compilers that it started
    cpu=$(awk 'NR == 2 { split($0, part, /[ms ]+/); print int(60 * (part[1] + part[3]) + part[2] + part[4] + 0.5) }' "$1.times")
    result=$(grep -E '^[a-z0-9_]+: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
    read -r p f s <<EOF
$(echo "${result:-: 0 passed, 0 failed, 0 skipped}" | sed 's/.*: //; s/[^0-9 ]//g')
EOF
    why=
    if [ -z "$result" ]; then why='no result line'; fi
    case $code in
    0) ;;
    124 | 137) why="stopped after ${TIME_LIMIT:-900} s" ;;
    *) if [ "$f" -eq 0 ]; then why="exit status $code"; fi ;;
    esac
    if [ -n "$why" ]; then f=$((f + 1)); fi
    if [ "$f" -gt 0 ]; then
        sed 's/^/    /' "$log"
        echo "FAIL ${result:-${1##*/}}${why:+ ($why)}, $seconds s (CPU $cpu s)"
    else
        sed -n 's/^skip: /    skip: /p' "$log"
        echo "ok   $result, $seconds s (CPU $cpu s)"
    fi
    echo "$p $f $s"
}

if [ "$1" = --one ]; then
    run_one "$2" >"$2.shown"
    exec sed '$d' "$2.shown"
fi
if [ $# -eq 0 ]; then
    echo "there are no test programs"
    exit 1
fi
for program; do rm -f "$program.shown"; done
printf '%s\n' "$@" | xargs -n 1 -P "${SIDE_BY_SIDE:-1}" sh "$0" --one
passed=0 failed=0 skipped=0
for program; do
    read -r p f s <<EOF
$(tail -n 1 "$program.shown" 2>/dev/null || echo 0 1 0)
EOF
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
