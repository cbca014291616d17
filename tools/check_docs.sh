#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks what the documentation says:
#   - ignis_kernels.h and the first heading of CHANGELOG.md have the version of ignis.h;
#   - everything public in the headers has a comment, and functions have one of a fixed form (tools/manual.c);
#   - lines of the headers have up to 150 columns, each tag is once in the declarations;
#   - the README's program is examples/hello.c, compiles by the README's command lines and as C++ without a warning, and prints the README's
#     output;
#   - the README's two programs that share an array are those of the manual, and what it shows of language models compiles;
#   - the build command in the head of each example and app works, and so does the program (of train_gpt, which takes long, --help; fit_image is only
#     compiled, and so is vulkan_buffer without a GPU);
#   - the examples in the headers' manuals, between "---- begin example NAME" and "---- end example", compile and run: each is
#     a whole program, or what stands between ignis_setup and ignis_shutdown in one; X_a and X_b run at the same time.
# The programs run where the environment says: on the GPU, or on the simulator.

out=build/docs
rm -rf $out
mkdir -p $out
failed=0
fail() { echo "FAIL: $*" && failed=1; }

headers='ignis.h ignis_collective.h'

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
    length($0) > 150 { print FILENAME ":" FNR ": " length($0) " columns"; bad = 1 }
    FNR == 1 { declared = 0; split("", seen) }
    /^\*\// { declared = 1 }
    /^#ifdef IGNIS_IMPLEMENTATION/ { declared = 2 }
    declared == 1 && /^\/\* >>/ {
        tag = substr($2, 3)
        if (seen[tag]++) { print FILENAME ":" FNR ": >>" tag " is twice in the declarations"; bad = 1 }
    }
    END { exit bad }
' $headers || fail 'lines within 150 columns, each tag once in the declarations'

# ---- the README: its first C block is hello.c, each sh block that compiles it is run, and its output is the text block that follows
awk -v out=$out '
    /^```/ { if (open) { open = 0; close(file) } else { open = 1; file = out "/readme." substr($0, 4) "." ++blocks[substr($0, 4)] }; next }
    open { print >file }
' README.md
sed '1,/^\*\//d' examples/hello.c | diff - $out/readme.c.1 || fail 'README.md: the program differs from examples/hello.c'
mkdir $out/project
cp $headers ignis_kernels.h $out/project
cp $out/readme.c.1 $out/project/hello.c
cp $out/readme.c.1 $out/project/hello.cu
if command -v g++ >/dev/null; then
    (cd $out/project && g++ -Wall -Wextra -Werror -x c++ hello.c -o hello -lm -ldl -lpthread) || fail 'README.md: the program as C++ has warnings'
fi
for block in "$out"/readme.sh.*; do
    if ! grep -q 'hello\.c' "$block"; then continue; fi
    if ! command -v "$(awk '{ print $1; exit }' "$block")" >/dev/null; then
        echo "skipped: $(head -n 1 "$block")"
    elif ! (cd $out/project && rm -f hello && sh -e "../${block##*/}") >$out/printed; then
        fail "README.md: $(head -n 1 "$block")"
    elif ! diff $out/readme.text.1 $out/printed; then
        fail "README.md: $(head -n 1 "$block"): the output differs from the one shown"
    fi
done

# ---- the README: the block about language models compiles
{
    printf '#define IGNIS_MODELS\n#include "ignis.h"\nbool show(const char *text, size_t size, void *user_data);\nvoid answer(void);\nvoid answer(void)\n{\n'
    cat "$(grep -l ignis_generate $out/readme.c.*)"
    echo '}'
} >$out/answer.c
${CC:-cc} -Wall -Wextra -Werror -I. -c $out/answer.c -o $out/answer.o || fail 'README.md: the block about language models does not compile'

# ---- the heads of the examples
ln -s "$PWD/examples" "$PWD/apps" $out/project
for example in examples/*.c examples/*.cpp examples/*.cu apps/serve/serve.c; do
    command=$(awk '/\*\//{ exit } /^ *(cc|c[+][+]|nvcc) -I/{ sub(/^ */, ""); print }' "$example")
    case $example in
    *.cu) if ! command -v nvcc >/dev/null || [ -n "${IGNIS_CUDA_LIBRARY:-}" ]; then echo "skipped: $command" && continue; fi ;;
    */train_gpt.c) command="$command --help" ;;
    */vulkan_buffer.c) # runs on a GPU alone
        if ! echo '#include <vulkan/vulkan.h>' | cc -E - >/dev/null 2>&1; then echo "skipped, without Vulkan's headers: $command" && continue; fi
        if [ -n "${IGNIS_CUDA_LIBRARY:-}" ]; then command=${command%&&*}; fi ;;
    */fit_image.c) command=${command%&&*} ;;
    */allreduce.c) if [ -z "${IGNIS_CUDA_LIBRARY:-}" ] && ! [ -e /dev/nvidia1 ]; then command=$(echo "$command" | sed 's/launch.sh 2/launch.sh 1/'); fi ;;
    esac
    if [ -z "$command" ]; then
        fail "$example does not say how it is built"
    elif ! (cd $out/project && sh -ec "$command") >$out/printed 2>&1; then
        cat $out/printed
        fail "$example: $command"
    fi
done
echo 'the build commands of the examples work'

# ---- the manuals
for half in a b; do
    sed 1d $out/manual_share_$half.c | diff - $out/readme.c.$(echo $half | tr ab 23) || fail "README.md: the example differs from share_$half of the manual"
done
# Example NAME runs, with its output in a file.
run_example() { "$out/manual_$1" >"$out/manual_$1.log" 2>&1 || { cat "$out/manual_$1.log" && return 1; }; }
examples=
for program in "$out"/manual_*.c; do
    header=$(sed -n '1s/.* of \(.*\) .*/\1/p' "$program")
    name=${program##*/manual_}
    examples="$examples ${name%.c}"
    if ! grep -q 'int main(' "$program"; then
        {
            printf '#define IGNIS_IMPLEMENTATION\n#include "%s"\n#include <stdio.h>\n' "$header"
            printf 'int main(void)\n{\n    ignis_setup(NULL);\n'
            cat "$program"
            printf '    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK;\n}\n'
        } >"$out/whole.c"
        mv "$out/whole.c" "$program"
    fi
    ${CC:-cc} -Wall -Wextra -Werror -I. "$program" -o "${program%.c}" -lm -ldl -lpthread || fail "$program does not compile"
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
