#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks what the documentation says:
#   - ignis_kernels.h and the first heading of CHANGELOG.md have the version of ignis.h;
#   - everything public in the headers has a comment, and functions have one of a fixed form (tools/manual.c);
#   - lines of the headers have up to 150 columns, each tag is once in the declarations;
#   - README.md has at most 170 lines; in all papers links lead somewhere, and the make targets, the files and the simulator's variables that
#     they name exist;
#   - the README's program is examples/first.c, that of docs/packages.md examples/hello.c; both compile by the command lines beside them and as
#     C++ without a warning, and print the output beside them;
#   - the programs of docs/several_gpus.md are those of the manual; those of docs/models.md and docs/shipping.md compile;
#   - examples/README.md names every example;
#   - the build command in the head of each example and app works, and so does the program (of train_gpt, which takes long, --help; fit_image is only
#     compiled, and so is vulkan_buffer without a GPU);
#   - the examples in the headers' manuals, between "---- begin example NAME" and "---- end example", compile and run: each is
#     a whole program, or what stands between ignis_setup and ignis_shutdown in one; X_a and X_b run at the same time;
#   - docs/examples.c, with an example for each section, compiles and runs.
# The programs run where the environment says: on the GPU, or on the simulator.
# SHORT=1: examples are parsed as their users compile them, but linked with one compilation of the implementation; cnn, which takes long and
# which `make run` runs, is not run.

out=build/docs
rm -rf $out
mkdir -p $out
failed=0
fail() { echo "FAIL: $*" && failed=1; }

headers='ignis.h ignis_models.h ignis_collective.h'

# ---- the version
version=$(awk '/^#define IGNIS_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' ignis.h)
number=$(echo "$version" | awk -F. '{ print 10000 * $1 + 100 * $2 + $3 }')
head -n 1 ignis_kernels.h | grep -qF -- "- v$version -" || fail "ignis_kernels.h: the first line is not of version $version"
grep -q "^#define IGNIS_KERNELS_VERSION $number " ignis_kernels.h || fail "ignis_kernels.h: IGNIS_KERNELS_VERSION is not $number"
[ "$(awk '/^## / { print $2; exit }' CHANGELOG.md)" = "$version" ] || fail "CHANGELOG.md does not begin with version $version"

# ---- the comments above declarations, and the examples of the manuals
build/manual $out/manual.html || fail 'comments above declarations'
build/manual --examples $out || fail 'examples of the manuals'

# ---- the form of the headers
awk '
    length($0) > 150 && !/^    "/ { print FILENAME ":" FNR ": " length($0) " columns"; bad = 1 }
    FNR == 1 { declared = 0; split("", seen) }
    /^\*\// { declared = 1 }
    /^#ifdef IGNIS_IMPLEMENTATION/ { declared = 2 }
    declared == 1 && /^\/\* >>/ {
        tag = substr($2, 3)
        if (seen[tag]++) { print FILENAME ":" FNR ": >>" tag " is twice in the declarations"; bad = 1 }
    }
    END { exit bad }
' $headers || fail 'lines within 150 columns, each tag once in the declarations'

# ---- the papers
papers="README.md HACKING.md SECURITY.md CHANGELOG.md bench/README.md examples/README.md apps/serve/README.md apps/talk/README.md $(find docs -name '*.md' | sort)"
[ "$(wc -l <README.md)" -le 170 ] || fail "README.md has $(wc -l <README.md) lines, more than 170"

# A link is a path from its page, with the anchor of a heading or without. A heading's anchor: small letters, digits, _ and -, blanks as -.
for paper in $papers; do
    awk '
        /^ *```/ { fenced = !fenced }
        fenced { next }
        { gsub(/`[^`]*`/, ""); while (match($0, /\]\([^)]*\)/)) { print substr($0, RSTART + 2, RLENGTH - 3); $0 = substr($0, RSTART + RLENGTH) } }
    ' "$paper" | grep -v '^https\{0,1\}://' | sort -u | while read -r link; do
        target=${link%%#*} anchor=
        case $link in *#*) anchor=${link#*#} ;; esac
        if [ -z "$target" ]; then target=$paper; else target=$(dirname "$paper")/$target; fi
        if [ ! -e "$target" ]; then
            echo "$paper: the link $link leads nowhere"
        elif [ -n "$anchor" ] && ! awk '/^```/ { fenced = !fenced } !fenced && /^#+ / {
                sub(/^#+ /, ""); $0 = tolower($0); gsub(/[^a-z0-9_ -]/, ""); gsub(/ /, "-"); print }' "$target" | grep -qx -- "$anchor"; then
            echo "$paper: the link $link has an anchor without a heading"
        fi
    done
done >$out/links
if [ -s $out/links ]; then cat $out/links && fail 'links'; fi

# What they name in code: `make TARGET`, files of this repository (not those of a recipe, which are new), variables of the simulator.
awk '
    FNR == 1 { fenced = 0 }
    /^ *```/ { fenced = !fenced; next }
    fenced { sub(/ # .*/, ""); print FILENAME ": " $0; next }
    { n = split($0, part, "`"); for (i = 2; i <= n; i += 2) print FILENAME ": " part[i] }
' README.md HACKING.md SECURITY.md examples/README.md apps/serve/README.md docs/*.md >$out/code
${MAKE:-make} -pRrqn 2>/dev/null | sed -n 's/^\([a-z][a-z-]*\):.*/\1/p' | sort -u >$out/targets
sed -nE 's/.*: .*\bmake ((-[a-zA-Z]+ )*)([a-z][a-z-]*)( .*)?$/\3/p' $out/code | sort -u | comm -23 - $out/targets | sed 's/^/no target of make: /' >$out/missing
grep -oE '(^|[ :"])(src|kernels|sim|tests|tools|bench|examples|apps|packaging)/[A-Za-z0-9_./-]*[A-Za-z0-9_/]' $out/code | grep -oE '[a-z]+/.*' | sort -u |
    grep -vE '/(test_name|name|fuzz_|test_|test_softsign|launch)[.*]?|softsign' | while read -r file; do [ -e "$file" ] || echo "no file: $file"; done >>$out/missing
for name in $(grep -oE 'IGNIS_SIM_[A-Z_]*[A-Z]' $out/code | sort -u); do grep -rqs "$name" sim || echo "no variable of the simulator: $name"; done >>$out/missing
if [ -s $out/missing ]; then cat $out/missing && fail 'papers name what there is not'; fi

for example in examples/*.c examples/*.cpp examples/*.cu; do
    grep -qF "](${example#examples/})" examples/README.md || fail "examples/README.md does not name $example"
done

# blocks PAPER NAME : the blocks of a paper as files $out/NAME.LANGUAGE.NUMBER
blocks()
{
    awk -v out="$out/$2" '
        /^```/ { if (open) { open = 0; close(file) } else { open = 1; file = out "." substr($0, 4) "." ++blocks[substr($0, 4)] }; next }
        open { print >file }
    ' "$1"
}

# program PAPER NAME EXAMPLE : the first C block of a paper is the example, builds by each of the paper's commands, and prints the text that follows
mkdir $out/project
cp $headers ignis_kernels.h $out/project
program()
{
    blocks "$1" "$2"
    sed '1,/^\*\//d' "examples/$3.c" | diff - "$out/$2.c.1" || fail "$1: the program differs from examples/$3.c"
    cp "$out/$2.c.1" "$out/project/$3.c"
    cp "$out/$2.c.1" "$out/project/$3.cu"
    if command -v g++ >/dev/null; then
        (cd $out/project && g++ -Wall -Wextra -Wno-missing-field-initializers -Werror -x c++ "$3.c" -o "$3" -lm -ldl -lpthread) || fail "$1: the program as C++ has warnings"
    fi
    built=0
    for block in "$out/$2".sh.*; do
        if ! grep -qE "^[a-z]+ $3\.(c|cu) " "$block" || grep -q pkg-config "$block"; then continue; fi
        built=$((built + 1))
        if ! command -v "$(awk '{ print $1; exit }' "$block")" >/dev/null; then
            echo "skipped: $(head -n 1 "$block")"
        elif ! (cd $out/project && rm -f "$3" && sh -e "../${block##*/}") >$out/printed; then
            fail "$1: $(head -n 1 "$block")"
        elif ! diff "$out/$2.text.1" $out/printed; then
            fail "$1: $(head -n 1 "$block"): the output differs from the one shown"
        fi
    done
    [ $built -gt 0 ] || fail "$1: no command builds the program"
}
program README.md readme first
program docs/packages.md packages hello

# ---- blocks that are parts of a program
blocks docs/models.md models
{
    printf '#include "ignis_models.h"\nbool show(const char *text, size_t size, void *user_data);\nvoid answer(void);\nvoid answer(void)\n{\n'
    cat $out/models.c.1
    echo '}'
} >$out/answer.c
${CC:-cc} -Wall -Wextra -Werror -I. -c $out/answer.c -o $out/answer.o || fail 'docs/models.md: the program does not compile'
blocks docs/shipping.md shipping
echo 'static const unsigned char ignis_bundle[] = {0};' >$out/game_kernels.h
{
    printf '#include "ignis.h"\n'
    sed 's/^ignis_desc desc/int game(void);\nint game(void)\n{\n&/' $out/shipping.c.1
    printf 'return 0;\n}\n'
} >$out/game.c
${CC:-cc} -Wall -Wextra -Werror -I. -I$out -c $out/game.c -o $out/game.o || fail 'docs/shipping.md: the program does not compile'
blocks docs/several_gpus.md gpus

# ---- one compilation of the implementation
printf '#include "%s"\n' ignis_models.h ignis_collective.h | ${CC:-cc} -I. -DIGNIS_IMPLEMENTATION -x c -c - -o $out/implementation.o ||
    fail 'the implementation does not compile'
implemented='-DIGNIS_IMPLEMENTED -DIGNIS_KERNELS_IMPLEMENTED -DIGNIS_MODELS_IMPLEMENTED -DIGNIS_COLLECTIVE_IMPLEMENTED'

# ---- the heads of the examples
path=$PATH
if [ -n "${SHORT:-}" ]; then
    mkdir $out/compilers
    for compiler in cc c++; do
        compile=$(command -v $compiler)
        printf '#!/bin/sh\n%s -fsyntax-only "$@" && exec %s %s %s "$@"\n' "$compile" "$compile" "$implemented" \
            "$PWD/$out/implementation.o" >$out/compilers/$compiler
        chmod +x $out/compilers/$compiler
    done
    path=$PWD/$out/compilers:$PATH
fi
ln -s "$PWD/examples" "$PWD/apps" $out/project
for example in examples/*.c examples/*.cpp examples/*.cu apps/serve/serve.c apps/talk/talk.c; do
    command=$(awk '/\*\//{ exit } /^ *((cc|c[+][+]|nvcc) -I|[(][.][/])/{ sub(/^ */, ""); print }' "$example")
    case $example in
    *.cu) if ! command -v nvcc >/dev/null || [ -n "${IGNIS_CUDA_LIBRARY:-}" ]; then echo "skipped: $command" && continue; fi ;;
    */train_gpt.c) command="$command --help" ;;
    */moe.c | */pinn.c) command="$command 10" ;; # steps
    */vulkan_buffer.c) # runs on a GPU alone
        if ! echo '#include <vulkan/vulkan.h>' | cc -E - >/dev/null 2>&1; then echo "skipped, without Vulkan's headers: $command" && continue; fi
        if [ -n "${IGNIS_CUDA_LIBRARY:-}" ]; then command=${command%&&*}; fi ;;
    */fit_image.c) command=${command%&&*} ;;
    */cnn.c) if [ -n "${SHORT:-}" ]; then command=${command%&&*}; fi ;;
    */allreduce.c) if [ -z "${IGNIS_CUDA_LIBRARY:-}" ] && ! [ -e /dev/nvidia1 ]; then command=$(echo "$command" | sed 's/launch.sh 2/launch.sh 1/'); fi ;;
    esac
    if [ -z "$command" ]; then
        fail "$example does not say how it is built"
    elif ! (cd $out/project && PATH=$path sh -ec "$command") >$out/printed 2>&1; then
        cat $out/printed
        fail "$example: $command"
    fi
done
echo 'the build commands of the examples work'

# ---- the manuals
for half in a b; do
    sed 1d $out/manual_share_$half.c | diff - $out/gpus.c.$(echo $half | tr ab 12) || fail "docs/several_gpus.md: the example differs from share_$half of the manual"
done
${CC:-cc} -Wall -Wextra -Werror -I. docs/examples.c -o $out/examples -lm -ldl -lpthread || fail 'docs/examples.c does not compile'
(cd $out && ./examples >examples.log 2>&1) || { cat $out/examples.log && fail 'docs/examples.c fails'; }
# They share the compilation of the implementation.
# Example NAME runs, with its output in a file.
run_example() { "$out/manual_$1" >"$out/manual_$1.log" 2>&1 || { cat "$out/manual_$1.log" && return 1; }; }
examples=
for program in "$out"/manual_*.c; do
    header=$(sed -n '1s/.* of \(.*\) .*/\1/p' "$program")
    name=${program##*/manual_}
    examples="$examples ${name%.c}"
    if ! grep -q 'int main(' "$program"; then
        {
            printf '#define IGNIS_IMPLEMENTATION\n#include "%s"\n#include <poll.h>\n#include <stdio.h>\n' "$header"
            printf 'int main(void)\n{\n    ignis_setup(NULL);\n'
            cat "$program"
            printf '    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK;\n}\n'
        } >"$out/whole.c"
        mv "$out/whole.c" "$program"
    fi
    ${CC:-cc} -Wall -Wextra -Werror -I. $implemented "$program" $out/implementation.o -o "${program%.c}" -lm -ldl -lpthread ||
        fail "$program does not compile"
done
for name in $examples; do
    case $name in
    *_a) continue ;;
    *_b)
        run_example "${name%_b}_a" &
        run_example "$name" || fail "example $name fails"
        wait $! || fail "example ${name%_b}_a fails"
        ;;
    *) run_example "$name" || fail "example $name fails" ;;
    esac
done
echo "the examples of the manuals compile and run:$examples"
exit $failed
