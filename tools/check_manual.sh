#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks build/manual.html, the page that `make manual` has written:
#   - tags are balanced, identifiers stand once, links lead to one of them, and nothing is loaded from elsewhere;
#   - a parser of HTML agrees, and the examples are those that check-docs compiles, to the letter (where python3 is installed);
#   - what is not documented, or not in the fixed form, is named with file and line (planted mistakes);
#   - a browser finds a function by the search in the page, and at 1300 pixels nothing is wider than its place (where one is installed).

page=build/manual.html
out=build/check-manual
rm -rf $out
mkdir -p $out
failed=0
fail() { echo "FAIL: $*" && failed=1; }

# ---- tags
awk '
    { all = all $0 "\n" }
    END {
        while (match(all, /<(script|style)>/)) { # their texts have no tags
            begin = RSTART + RLENGTH; name = substr(all, RSTART + 1, RLENGTH - 2)
            rest = substr(all, begin); end = index(rest, "</" name ">")
            kept = kept substr(all, 1, begin - 1); all = substr(rest, end)
        }
        count = split(kept all, part, "<")
        for (i = 2; i <= count; i++) {
            if (part[i] !~ /^[\/!a-z][^>]*>/) { print "a < that begins no tag: <" substr(part[i], 1, 40); bad = 1; continue }
            name = part[i]; sub(/[ >].*/, "", name); tags++
            if (name ~ /^(!doctype|!DOCTYPE|meta|input|br)$/) continue
            if (name !~ /^\//) stack[depth++] = name
            else if (depth == 0 || stack[--depth] != substr(name, 2)) { print "</" substr(name, 2) "> ends <" stack[depth] ">"; exit bad = 1 }
        }
        if (depth || tags < 1000) { print depth " tags of " tags " are open at the end"; bad = 1 }
        exit bad
    }
' $page || fail 'tags'

# ---- links
grep -o ' id="[^"]*"' $page | sed 's/.*"\(.*\)"/\1/' | sort >$out/ids
grep -o ' href="[^"]*"' $page | sed 's/.*"\(.*\)"/\1/' | sort -u >$out/links
uniq -d $out/ids | grep . && fail 'identifiers that stand twice'
sed 's/^#//' $out/links | comm -23 - $out/ids | grep . && fail 'links that lead nowhere'
grep -nE '<(link|img|iframe|script [^>]*src)|@import|url\(|fetch\(|XMLHttpRequest' $page && fail 'the page loads something'
for name in $(grep -ohE '^IGNIS_API [^(]*' ignis.h ignis_models.h ignis_collective.h | sed 's/.*[ *]//'); do
    grep -qx "$name" $out/ids || fail "$name is not on the page"
done

# ---- a parser's view
mkdir $out/examples
build/manual --examples $out/examples || fail examples
if command -v python3 >/dev/null; then
    python3 - $page $out/examples <<'END' || fail 'the page as html.parser sees it'
import glob, html.parser, os, sys

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.faults, self.texts, self.example = [], [], {}, None
    def handle_starttag(self, tag, attributes):
        identifier = dict(attributes).get("id") or ""
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)
        if tag in ("p", "dd", "dt") and self.open[-2] in ("p", "dd", "dt"):
            self.faults.append((tag, self.getpos()))
        if identifier.startswith("example-"):
            self.example = identifier[8:]
            self.texts[self.example] = ""
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append((tag, self.getpos()))
        if tag == "pre":
            self.example = None
    def handle_data(self, data):
        if self.example:
            self.texts[self.example] += data

page = Page()
page.feed(open(sys.argv[1], encoding="ascii").read())
page.close()
compiled = {}
for path in glob.glob(sys.argv[2] + "/manual_*.c"):
    compiled[os.path.basename(path)[7:-2]] = open(path).read().split("\n", 1)[1]
different = sorted(name for name in set(compiled) | set(page.texts) if compiled.get(name) != page.texts.get(name))
print(len(compiled), "examples on the page are those that check-docs compiles")
if page.faults or page.open or different or not compiled:
    sys.exit("faults: %s, open: %s, examples that differ: %s" % (page.faults[:5], page.open, different))
END
else
    echo 'skipped: python3 is not installed'
fi

# ---- mistakes: planted SCRIPT LINE MESSAGE : of ignis.h changed by the script for sed the tool has to say this of the line
planted()
{
    sed "$1" ignis.h >$out/ignis.h
    if build/manual $out/page.html $out/ignis.h ignis_models.h ignis_collective.h >$out/said 2>&1 || ! grep -qF "$out/ignis.h:$2: $3" $out/said; then
        cat $out/said
        fail "a mistake that is not noticed: ignis.h:$2: $3"
    fi
}
begin=$(grep -n '^/\*  ignis_array_zero - ' ignis.h | sed 's/:.*//')
declared=$((begin + 5)) # the comment has four parts, a line each
this=$begin,$declared
planted "${this}{/Errors: /d}" $((begin + 2)) 'Ownership: is not the next part of the comment of ignis_array_zero, but Errors:'
planted "${this}s/Errors: /Error: /" $((begin + 3)) 'Ownership: is not the next part of the comment of ignis_array_zero, but Errors:'
planted "${this}s/Threads: any. //" $declared 'the comment of ignis_array_zero ends without Threads:'
planted "${this}s/_zero - /_null - /" $declared 'the comment does not name ignis_array_zero'
planted "${this}s/_zero - /_zero: /" "$begin" 'the comment of ignis_array_zero does not begin with'
planted "$begin,$((declared - 1))d" "$begin" 'ignis_array_zero has no comment'
planted "${declared}s/^/int ignis_x;\n/" "$declared" 'this is no declaration that the manual knows'
level=$(grep -n '^typedef enum ignis_log_level' ignis.h | sed 's/:.*//') # its comment is the line above
planted "$((level - 1))d" $((level - 1)) 'ignis_log_level has no comment'
planted 's/^#define IGNIS_MAX_DIMS 8 .*/#define IGNIS_MAX_DIMS 8/' "$(grep -n '^#define IGNIS_MAX_DIMS' ignis.h | sed 's/:.*//')" \
    'IGNIS_MAX_DIMS has no comment'

planted 's|^/[*] >>ops.conv |/* >>ops.folding |' "$(grep -n '^/[*] >>ops.conv ' ignis.h | head -n 1 | sed 's/:.*//')" 'section >>ops.folding has no example'

# ---- a browser
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -n "$browser" ]; then
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/$out/profile" --dump-dom \
        "file://$PWD/$page?search=array_sli" >$out/dom 2>$out/said || fail "$browser ended with $?"
    # The page measures itself: what is wider than its place, but for words inside of a line, ends up in the title.
    sed 's#</body>#<script>document.title = Array.prototype.filter.call(document.querySelectorAll("nav *, header *, main *"), function (e) {\
        return e.clientWidth \&\& e.scrollWidth > e.clientWidth + 1 \&\& getComputedStyle(e).display !== "inline"; }).map(function (e) {\
        return e.textContent.slice(0, 60); }).concat(document.documentElement.scrollWidth > innerWidth ? "the page" : []).join("; ") || "fits";\
        </script></body>#' $page >$out/measured.html
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/$out/profile" --window-size=1300,900 --dump-dom \
        "file://$PWD/$out/measured.html" >$out/measured 2>$out/said || fail "$browser ended with $?"
    grep -q '<title>fits</title>' $out/measured || fail "at 1300 pixels these are cut off: $(sed -n 's/.*<title>\(.*\)/\1/p' $out/measured | head -n 1)"
    if grep -q '<ul id="found"><li><a href="#ignis_array_slice">' $out/dom; then
        echo "$browser: the search finds ignis_array_slice"
    else
        tail -n 5 $out/said
        fail "$browser: the search does not find ignis_array_slice first"
    fi
else
    echo 'skipped: there is no chromium or google-chrome'
fi
exit $failed
