#!/bin/sh
# SPDX-License-Identifier: MIT
# Compares the kernels as programs carry them with the files of kernels/: both must have the same tokens in the same lines, as the compiler sees
# them. Before that, tries hard cases of the tokenizer, and texts in which the comparison must find a difference.

out=build/texts
rm -rf $out
mkdir -p $out/made/shared/models $out/cases
failed=0
fail() { echo "FAIL: $*" && failed=1; }

# tokens FILE: the tokens of each line, as the compiler prints them. Each directive becomes the definition of one macro that nothing uses: then all
# branches of an #if are kept, nothing is expanded, and where a directive ends counts too.
tokens()
{
    sed 's/^[[:space:]]*#[[:space:]]*/#define directive /' "$1" | ${CC:-cc} -E -dD -w -x c++ - | sed 's/^ *//'
}

# same FILE FILE: whether both have the same tokens
same()
{
    tokens "$1" >$out/expected && tokens "$2" >$out/found && [ -s $out/expected ] && cmp -s $out/expected $out/found
}

# ---- the tokenizer: text, and what is embedded
cat >$out/cases/text.cu <<'END'
// A comment that goes on \
   in the next line
#define SUM(a, b) \
    ((a) + /* left */ \
     (b))     // right
#define JOINED int\
    x
#define LONG 1 /* of two
    lines */ + 2
	int	tab = '"' + '\'' + '/';  /* "quoted" and 'c' */
const char *a = "// no comment /* nor this */ \" \\", *b = "two  spaces";
const char *c = "one \
  literal" "	";

/* three
   // lines
   long */ int after = 1'000'000/2;
int d = a/**/b - -c;
#pragma unroll 4   // of a loop
asm("mov.u32 %0, %1; // in asm" : "=r"(x) : "r"(y)); /* 1 */ /* 2 */
END
cat >$out/cases/stripped.cu <<'END'


#define SUM(a, b) \
((a) + \
(b))
#define JOINED int\
 x
#define LONG 1 \
+ 2
int tab = '"' + '\'' + '/';
const char *a = "// no comment /* nor this */ \" \\", *b = "two  spaces";
const char *c = "one \
  literal" "	";



int after = 1'000'000/2;
int d = a b - -c;
#pragma unroll 4
asm("mov.u32 %0, %1; // in asm" : "=r"(x) : "r"(y));
END
build/embed --strip $out/cases/text.cu >$out/cases/found.cu
cmp $out/cases/found.cu $out/cases/stripped.cu || fail 'the hard cases are stripped in another way'
same $out/cases/text.cu $out/cases/found.cu || fail 'the hard cases have other tokens when they are stripped'

# ---- what cannot be embedded, with the line that is named
refused()
{
    printf "$2" >$out/cases/refused.cu
    build/embed --strip $out/cases/refused.cu >/dev/null 2>$out/message && fail "accepted: $1"
    grep -q "refused.cu:$3: $1" $out/message || fail "not refused as: $1: $(cat $out/message)"
}
refused 'the comment has no end' 'int a;\n/* b\n' 2
refused 'the literal has no end in its line' 'int a;\nint b = "c;\n' 2
refused 'raw string literals cannot be embedded' 'int a = R"(b)";\n' 1
refused 'a backslash outside of literals does not end its line' '#define A \\ \n' 1

# ---- the comparison: these are not the same as the hard cases
differs()
{
    sed "$2" $out/cases/stripped.cu >$out/cases/other.cu
    cmp -s $out/cases/other.cu $out/cases/stripped.cu && fail "the text of $1 was not changed"
    same $out/cases/text.cu $out/cases/other.cu && fail "not told apart: $1"
}
differs 'a token that is missing' 's/unroll 4/unroll/'
differs 'two tokens that became one' 's/^int d/intd/'
differs 'spaces in a literal' 's/two  spaces/two spaces/'
differs 'a line that is missing' 13d
differs 'a line that ended too early' 's/^#define LONG 1 .$/#define LONG 1/'

# ---- the kernels
build/kernel_texts $out/made || fail 'the texts cannot be written'
files=$(find kernels -name '*.cu' -o -name '*.cuh'; find src/shared -name '*.h')
for file in $files; do
    case $file in
    src/*) made=$out/made/${file#src/} ;;
    *) made=$out/made/$(basename "$file") ;;
    esac
    [ "$(wc -l <"$file")" = "$(wc -l <"$made")" ] && same "$file" "$made" || fail "$file: the text in programs has other tokens, or in other lines"
done
[ "$(find $out/made -type f | wc -l)" = "$(echo "$files" | wc -l)" ] || fail 'the headers have not as many texts as there are files'

[ $failed = 0 ] && echo "kernel texts: $(find $out/made -type f -exec cat {} + | wc -c) bytes in programs, $(cat $files | wc -c) in the files"
exit $failed
