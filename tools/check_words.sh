#!/bin/sh
# SPDX-License-Identifier: MIT
# Counts habits of style that docs/STYLE.md forbids, in src/, kernels/ and sim/, and long lines in all other C sources, too. Compares the counts
# with tools/words.limits. A count above its limit fails. The limits only fall.
#
#   sh tools/check_words.sh               checks; names the lines that were added since the limits were written
#   sh tools/check_words.sh --lower       writes the counts of today as limits where they are lower
#   sh tools/check_words.sh --list NAME   prints every place of one pattern
#   sh tools/check_words.sh --count FILE...   prints the counts over these files, without limits

limits=tools/words.limits

# places FILE...: prints "pattern file:line: text" for each place. Prose is the text of comments, of chapters of the manual (.txt) and of strings.
places()
{
    awk '
    function place(name, line, text) { sub(/^ +/, "", text); print name " " FILENAME ":" line ": " substr(text, 1, 100) }
    function count(name, pattern, text,    times) { times = gsub(pattern, "&", text); while (times-- > 0) place(name, FNR, $0) }
    # Looks for all patterns in one line of prose. A phrase of two words may begin at the end of the line before it: `last` is its last word.
    function prose(text,    phrase, bare) {
        phrase = " " last " " text " "; text = " " text " "
        count("begins_what", "[ (]What ", text)
        count("begins_these", "[ (](These|Those) ", text)
        count("begins_the_same", "[ (]The same ", phrase)
        count("so_many", " so many[ .,;:)]", phrase)
        bare = phrase
        gsub(/ there (is|are|was|were|be) none/, " ", bare) # "NULL if there is none" is the form of failure
        count("is_none", " (is|are|was|were|be) none[ .,;:)]| (that|which|what|who) (is|are) no ", bare)
        count("who", "[ (]([Ww]ho|[Ww]hom|[Ww]hoever)[ .,;:)]", text)
        count("stands_lies", "[ (](stand|stands|stood|lie|lies)[ .,;:)]", text)
        count("behind", "[ (](behind|Behind)[ .,;:)]| ahead of ", phrase)
        last = match(text, /[A-Za-z]+ *$/) ? substr(text, RSTART, RLENGTH) : ""
        sub(/ +$/, "", last)
    }
    # Tells how many parameters the longest list in a signature has.
    function parameters(text,    i, c, depth, commas, most) {
        while (gsub(/<[^<>()]*>/, "", text)) { } # arguments of templates
        for (i = 1; i <= length(text); i++) {
            c = substr(text, i, 1)
            if (c == "(") { if (depth++ == 0) commas = 0 }
            else if (c == ")") depth--
            else if (c == "," && depth == 1 && ++commas > most) most = commas
        }
        return most + 1
    }
    # Whose parameters others choose: kernels, and functions with the signatures of a library or of a PTX instruction.
    BEGIN { fixed = "__global__|typedef|^[^(]*=|[ *](cu[A-Z]|cublas|ignis__dry_|ignis_ptx_|sim_ptx_)" }
    function end_file() { if (part && head_words < 3) print "no_head " part ":1: the part does not begin with a head" }
    FNR == 1 {
        end_file()
        in_comment = 0; last = signature = ""; body = 0; comments = 0; titled = 0; head_words = 0
        chapter = FILENAME ~ /[.]txt$/; kernels = FILENAME ~ /^kernels\//
        part = chapter || FILENAME !~ /^(src|kernels)\// || FILENAME ~ /[.]h$/ ? "" : FILENAME
    }
    length($0) > 120 { place("over_120_columns", FNR, $0) }
    chapter { prose($0); next }
    {
        rest = $0; code = ""
        gsub(/\\./, "_", rest)
        while (rest != "") {
            if (in_comment) {
                end = index(rest, "*/"); text = end ? substr(rest, 1, end - 1) : rest
                rest = end ? substr(rest, end + 2) : ""
                if (comments == 1 && text ~ /[a-z]/) {
                    if (text ~ /(>>[a-z][a-z0-9_.]*|[a-z0-9_]+[.](c|h|cu|cuh|cpp)) - /) titled = 1
                    head_words += titled
                }
                prose(text)
                if (end) { in_comment = 0; last = "" }
            } else if (match(rest, /"[^"]*"|\/\*|\/\//)) {
                token = substr(rest, RSTART, RLENGTH)
                code = code substr(rest, 1, RSTART - 1)
                rest = substr(rest, RSTART + RLENGTH)
                if (token == "/*") { in_comment = 1; comments++; last = "" }
                else if (token == "//") { if (rest !~ /SPDX/) { if (code ~ /[^ ]/) last = ""; prose(rest) } rest = "" }
                else { prose(substr(token, 2, length(token) - 2)); last = ""; code = code "\"\"" }
            } else { code = code rest; rest = "" }
        }
    }
    code ~ /[^ ]/ && comments == 0 && code !~ /^#/ { comments = 2 } # code before any comment: no head
    /^[{]/ { body = FNR }
    /^[}]/ { if (body && FNR - body + 1 > 100 && !kernels) place("function_over_100_lines", body, (FNR - body + 1) " lines"); body = 0 }
    code ~ /^[A-Za-z_]/ { signature = "" }
    code ~ /^[A-Za-z_]/ || signature != "" {
        signature = signature code
        if (code ~ /[{;]/) {
            if (code ~ /[{]/ && signature !~ fixed && parameters(signature) > 8) place("over_8_parameters", FNR, signature)
            signature = ""
        }
    }
    END { end_file() }
    ' "$@"
}

names='begins_what begins_these begins_the_same so_many is_none who stands_lies behind over_120_columns function_over_100_lines over_8_parameters no_head'
# counts: of standard input, "pattern count" in a fixed order
counts() { awk -v names="$names" '{ count[$1]++ } END { n = split(names, name, " "); for (i = 1; i <= n; i++) print name[i], count[name[i]] + 0 }'; }

if [ "$1" = --count ]; then
    shift
    places "$@" | counts
    exit
fi

cd "$(dirname "$0")/.." || exit 1
found=$(mktemp)
trap 'rm -f "$found"' EXIT
places $(find src kernels sim -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -path 'src/*.txt' | sort) >"$found"
# Of the other programs, only the lengths of lines.
find tests tools bench examples apps -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' | sort | xargs awk '
    length($0) > 120 { text = $0; sub(/^ +/, "", text); print "over_120_columns " FILENAME ":" FNR ": " substr(text, 1, 100) }' >>"$found"

case $1 in
--list)
    sed -n "s/^$2 //p" "$found"
    exit
    ;;
--lower)
    counts <"$found" | awk 'FILENAME != "-" { limit[$1] = $2; next } !($1 in limit) || $2 < limit[$1] { limit[$1] = $2 } { print $1, limit[$1] }' $limits - >"$found.new" || exit 1
    mv "$found.new" $limits
    exit
    ;;
esac

# Lines added since the limits were written, as file:line.
added()
{
    base=$(git log -1 --format=%H -- $limits 2>/dev/null)
    git diff -U0 --no-color "${base:-HEAD}" -- src kernels sim tests tools bench examples apps 2>/dev/null | awk '
        /^[+][+][+] b\// { file = substr($2, 3) }
        /^@@/ { split(substr($3, 2), span, ","); n = span[2] == "" ? 1 : span[2]; for (i = 0; i < n; i++) print file ":" span[1] + i }'
}

counts <"$found" | awk 'FILENAME != "-" { limit[$1] = $2; next }
    !($1 in limit) || $2 > limit[$1] { print "over", $1, $2, limit[$1] + 0; next }
    $2 < limit[$1] { print "under", $1, $2, limit[$1] }' $limits - >"$found.result"
failed=0
while read -r kind name count limit; do
    if [ "$kind" = over ]; then
        failed=1
        echo "FAIL: $name: $count places, the limit is $limit. Added since the limits were written (all: sh tools/check_words.sh --list $name):"
        added >"$found.added"
        sed -n "s/^$name //p" "$found" | awk 'FILENAME != "-" { new[$1] = 1; next } { split($1, at, ":"); if (at[1] ":" at[2] in new) print "  " $0 }' "$found.added" -
    else
        echo "$name: $count places, the limit is $limit: lower it with sh tools/check_words.sh --lower"
    fi
done <"$found.result"
rm -f "$found.result" "$found.added"
[ $failed = 0 ] && echo "no count is above its limit in $limits"
exit $failed
