#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs test programs one after the other and sums their results.
#
#   tests/run.sh program...
#       TIME_LIMIT  seconds that one program may take (300)
#       WRAPPER     command that each program is run under (none)
#
# A program ends with "name: N passed, N failed, N skipped". One that crashes, runs too long or ends without that line
# counts as one more failure. The output of a failing program is shown; that of the others is in program.log.

passed=0 failed=0 skipped=0
for program; do
    log=$program.log
    start=$(date +%s)
    timeout -k 5 "${TIME_LIMIT:-300}" $WRAPPER "$program" >"$log" 2>&1 </dev/null
    code=$?
    seconds=$(($(date +%s) - start))
    result=$(grep -E '^[a-z0-9_]+: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
    read -r p f s <<EOF
$(echo "${result:-: 0 passed, 0 failed, 0 skipped}" | sed 's/.*: //; s/[^0-9 ]//g')
EOF
    why=
    if [ -z "$result" ]; then why='no result line'; fi
    case $code in
    0) ;;
    124 | 137) why="stopped after ${TIME_LIMIT:-300} s" ;;
    *) if [ "$f" -eq 0 ]; then why="exit status $code"; fi ;;
    esac
    if [ -n "$why" ]; then f=$((f + 1)); fi
    if [ "$f" -gt 0 ]; then
        sed 's/^/    /' "$log"
        echo "FAIL ${result:-${program##*/}}${why:+ ($why)}, $seconds s"
    else
        sed -n 's/^skip: /    skip: /p' "$log"
        echo "ok   $result, $seconds s"
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
if [ $# -eq 0 ]; then echo "there are no test programs" && failed=1; fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
