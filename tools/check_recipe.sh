#!/bin/sh
# SPDX-License-Identifier: MIT
# Follows the recipe "Add an operation" of HACKING.md in a copy of the tree, build/recipe:
#   - a block of C or CUDA goes to the place that the line above it names, or becomes a new file;
#   - all blocks together have fewer than 80 lines;
#   - the commands of the recipe write the headers, build the test, run it, and make the manual, in which the operation is found;
#   - with a mistake in the gradient's kernel the test fails.
# The copy uses the simulator of this tree. The test runs where the environment says: on the GPU, or on the simulator.

copy=build/recipe
rm -rf $copy
mkdir -p $copy/build
tar -cf - --exclude=./build --exclude=./.git --exclude=./shared . | tar -xf - -C $copy
ln -s ../../sim $copy/build/sim
find build -maxdepth 1 -type f -perm -u+x -exec cp -p {} $copy/build \;

# The blocks of the recipe: build/recipe.N is the text, build/recipe.N.place has the file, and the line above which it goes.
awk '
    /^## / { recipe = $0 == "## Add an operation" }
    !recipe { next }
    /^In `.*above the line that begins with `.*`:$/ {
        file = $0; sub(/^In `/, "", file); sub(/`, above.*/, "", file)
        line = $0; sub(/.*begins with `/, "", line); sub(/`:$/, "", line)
    }
    /^The new file `.*`:$/ { file = $0; sub(/^The new file `/, "", file); sub(/`:$/, "", file); line = "" }
    /^```/ && open { open = 0; close(block); file = ""; next }
    /^```(c|cuda)$/ {
        if (file == "") { print "HACKING.md:" FNR ": a block without a place"; exit 1 }
        open = 1; block = "build/recipe/build/block." ++count
        print file "\n" line >(block ".place")
        close(block ".place")
        next
    }
    /^```sh$/ { open = 1; block = "build/recipe/build/commands"; next }
    open { print >block; lines += block ~ /block/ }
    END {
        if (count < 3 || lines == 0) { print "HACKING.md: the recipe has no blocks"; exit 1 }
        print "the recipe adds " lines " lines"
        if (lines >= 80) { print "HACKING.md: these are not fewer than 80"; exit 1 }
    }
' HACKING.md || exit 1

for block in $copy/build/block.*; do
    case $block in *.place) continue ;; esac
    file=$copy/$(sed -n 1p "$block.place")
    line=$(sed -n 2p "$block.place")
    if [ -z "$line" ]; then
        [ ! -e "$file" ] || { echo "HACKING.md: there is a ${file#"$copy/"} already" && exit 1; }
        cp "$block" "$file"
        continue
    fi
    # The line is compared as it is, without patterns.
    place=$line awk -v block="$block" '
        index($0, ENVIRON["place"]) == 1 {
            found++
            while ((getline text <block) > 0) print text
        }
        { print }
        END { if (found != 1) exit 1 }
    ' "$file" >"$file.new" || { echo "HACKING.md: ${file#"$copy/"} does not have one line that begins with: $line" && exit 1; }
    mv "$file.new" "$file"
done

name=$(sed -n 's/.*IGNIS_API ignis_tensor \(ignis_[a-z_]*\)(.*;$/\1/p' $copy/build/block.* | head -n 1)
(cd $copy && sh -e build/commands) || { echo "the recipe's commands fail" && exit 1; }
grep -q " id=\"$name\"" $copy/build/manual.html || { echo "$name is not in the manual" && exit 1; }

# The mistake. The test has the implementation in itself this time, which is one compilation instead of several.
sed -i '/_softsign_backward(/,/^}/s/divisor \* divisor/divisor/' $copy/kernels/activation.cu
make -s -C $copy headers || exit 1
${CC:-cc} -O0 -w -I$copy -iquote $copy/tests $copy/tests/ops/test_softsign.c -o $copy/build/mistaken -lm -ldl -lpthread || exit 1
if IGNIS_CACHE_DIR=$PWD/$copy/build/default/cache $copy/build/mistaken >$copy/build/mistake.log 2>&1 || ! grep -q ' [1-9] failed' $copy/build/mistake.log; then
    cat $copy/build/mistake.log
    echo 'a mistake in the gradient is not noticed'
    exit 1
fi
echo "$name is added, tested and documented; with a mistake in its gradient the test fails"
