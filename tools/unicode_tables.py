#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tables of Unicode in src/models/tokenizer/unicode_table.c, between its two marks.

    tools/unicode_tables.py [--check]        --check: changes nothing, and fails where the tables would change

The Python package tokenizers is asked what each character is, as its ids are what Ignis must give; Python's own unicodedata, which knows
another version of Unicode, only names one character of each combining class.
"""
import os
import struct
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, POINTS))
LETTER, NUMBER, WORD, DIGIT = 1, 2, 4, 8
# as ignis__pattern_categories in src/models/tokenizer/pattern.c
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cs Cn".split()
# as ignis__pattern_scripts there; the first is for all others
SCRIPTS = ["", "Han", "Hiragana", "Katakana", "Hangul", "Thai", "Lao", "Khmer", "Myanmar"]


def members(pattern):
    """The code points that a pattern of one character matches."""
    runs = pre_tokenizers.Split(Regex("[^%s]+" % pattern), "removed").pre_tokenize_str(TEXT)
    return {ord(c) for text, _ in runs for c in text}


def numeric():
    """What the pre-tokenizer Digits takes for a digit."""
    runs = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str("".join(chr(c) + "a" for c in POINTS))
    return {ord(text) for text, (begin, _) in runs if len(text) == 1 and begin % 2 == 0}


def punctuation():
    """What the pre-tokenizer Punctuation cuts out."""
    runs = pre_tokenizers.Punctuation().pre_tokenize_str("".join(chr(c) + "a" for c in POINTS))
    return {ord(text) for text, (begin, _) in runs if len(text) == 1 and begin % 2 == 0}


def categories():
    """The general category of every character, as patterns have it."""
    return {c: i for i, name in enumerate(CATEGORIES) if name != "Cs" for c in members(r"\p{%s}" % name)}


def beside(**how):
    """What added tokens see beside them: how many ids "Q" and a character become."""
    tokenizer = Tokenizer(models.WordLevel({"Q": 0, "u": 1}, unk_token="u"))
    tokenizer.add_tokens([AddedToken("Q", normalized=False, **how)])
    codes = tokenizer.encode_batch(["Q" + chr(c) for c in POINTS])
    return [code.ids for code in codes]


def combining():
    """The combining class of every character that has one, found by which characters change places beside it."""
    nfd = normalizers.NFD().normalize_str
    known = {}
    for c in POINTS:
        if unicodedata.combining(chr(c)) and (c == 0x345 or nfd("\u0345" + chr(c)) == chr(c) + "\u0345"):
            known.setdefault(unicodedata.combining(chr(c)), chr(c))
    order = sorted(known)
    first, last = known[order[0]], known[order[-1]]
    classes = {}
    for c in POINTS:
        char = chr(c)
        if c < 0x300 or nfd(char) != char or unicodedata.category(char) in ("Lo", "Ll", "Lu") and not unicodedata.combining(char):
            continue
        if nfd(char + first) == char + first and nfd(last + char) == last + char:
            continue
        # not below the classes that stay before it
        fits = [k for k in order if nfd(known[k] + char) == known[k] + char and nfd(char + known[k]) == char + known[k]]
        if len(fits) != 1:
            sys.exit(f"U+{c:04X} has no combining class that is known, but {fits}")
        classes[c] = fits[0]
    return classes


def runs(value):
    """Where a function of code points changes: (first, value)."""
    out, before = [], 0
    for c in range(0x110000):
        now = value(c)
        if now != before:
            out.append((c, now))
            before = now
    return out


def bert():
    """1 for a character that BertNormalizer drops as a control, 2 for one that it drops as an accent, 4 for one that StripAccents drops."""
    how = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    clean = normalizers.BertNormalizer(**{**how, "clean_text": True}).normalize_str
    strip = normalizers.BertNormalizer(**{**how, "strip_accents": True}).normalize_str
    accents = normalizers.StripAccents().normalize_str
    return {c: (clean(chr(c)) == "") + 2 * (c > 127 and strip("a" + chr(c)) == "a") + 4 * (accents(chr(c)) == "") for c in POINTS}


def lower():
    """The runs of characters above 127 that Lowercase makes one other character."""
    changes = {c: normalizers.Lowercase().normalize_str(chr(c)) for c in POINTS if c > 127 and c != 0x130}  # that one becomes two
    if any(len(to) != 1 for to in changes.values()):
        sys.exit("another character becomes several in lower case")
    return changed_runs({c: ord(to) for c, to in changes.items()})


def changed_runs(changes):
    """(first, last, step, difference) of characters that become others."""
    out = []
    for c, to in changes.items():
        by = to - c
        if by and out and out[-1][3] == by:
            first, last, step, _ = out[-1]
            if c - last in ((step,) if last > first else (1, 2)):
                out[-1] = (first, c, c - last, by)
                continue
        if by:
            out.append((c, c, 1, by))
    return out


CLUSTERS = "OTHER CONTROL EXTEND SPACING PREPEND ZWJ PICTOGRAPH CONSONANT LINKER APART L V T LV LVT".split()  # as ignis__cluster


def all_to_one():
    """Precompiled with a map that makes each character but the line feed a "Q": a double array whose nodes share their children."""
    lead, ends, value = 256, (512, 768, 1024), 1280  # blocks of children: of the root, with one, two and three bytes to come; all values
    units = {0: lead << 10, value: 1 << 31}

    def add(block, byte, to, leaf=0):
        units[block ^ byte] = (block ^ byte ^ to) << 10 | leaf << 8 | byte

    for byte in [*range(1, 10), *range(11, 0x80)]:
        add(lead, byte, value, 1)
    for first, last, more in ((0xC2, 0xDF, 1), (0xE0, 0xEF, 2), (0xF0, 0xF4, 3)):
        for byte in range(first, last + 1):
            add(lead, byte, ends[more - 1])
    for more in (1, 2, 3):
        for byte in range(0x80, 0xC0):
            add(ends[more - 1], byte, ends[more - 2] if more > 1 else value, int(more == 1))
    array = [units.get(i, 0) for i in range(2048)]
    return normalizers.Precompiled(struct.pack("<I2048I", 4 * len(array), *array) + b"Q\0")


def clusters():
    """What each character is to grapheme clusters. A cluster of less than 6 bytes becomes one "Q", a longer one a "Q" for each character. That tells
    all that Precompiled can know: of characters of 4 bytes only what they are beside ASCII."""
    one = all_to_one().normalize_str

    def ask(before, behind, wanted):
        lines = one("\n".join(before + chr(c) + behind if c not in (10, 13) else "" for c in POINTS)).split("\n")
        return {c for c, line in zip(POINTS, lines) if c > 31 and line == "Q" * wanted}

    grave, zwj = "\u0300", "\u200D"
    joins, prepends = ask("a", "", 1), ask("", "a", 1)
    controls = {c for c in ask("", grave, 2) if len(chr(c).encode()) < 4} | {*range(32)}
    extends = {c for c in joins if one("\u00A9" + chr(c) + zwj + "\u00A9" + grave).count("Q") == 5}
    linked = {c for c in extends if one("\u0915" + chr(c) + "\u094D\u0915" + grave).count("Q") == 5}
    before = {name: ask("", first + grave, 3) - prepends for name, first in (("L", "\u1100"), ("V", "\u1161"), ("T", "\u11A8"))}
    kinds = {c: "CONTROL" for c in controls}
    kinds.update({c: "PREPEND" for c in prepends})
    kinds.update({c: "EXTEND" if c in linked else "APART" if c in extends else "SPACING" for c in joins})
    kinds.update({c: "LINKER" for c in ask("\u0915", "\u0915" + grave, 4) - prepends})
    kinds.update({c: "PICTOGRAPH" for c in ask("", zwj + "\u00A9" + grave, 4)})
    kinds.update({c: "CONSONANT" for c in ask("", "\u094D\u0915" + grave, 4)})
    kinds.update({c: "L" if c in before["L"] else "V" if c in before["V"] else "T" for c in before["T"] | before["L"]})  # LV and LVT by their numbers
    kinds[0x200D] = "ZWJ"
    return kinds


def compatible():
    """What NFKD makes of characters that NFD does not change: the runs of those that become one other, and (character, text) of others."""
    nfd, nfkd = normalizers.NFD().normalize_str, normalizers.NFKD().normalize_str
    changes = {c: nfkd(chr(c)) for c in POINTS if nfd(chr(c)) == chr(c) != nfkd(chr(c))}
    return changed_runs({c: ord(text) for c, text in changes.items() if len(text) == 1}), [(c, text) for c, text in changes.items() if len(text) != 1]


def table(kind, name, comment, values, form):
    lines, line = [f"/*  {comment} */", f"IGNIS__PRIVATE const {kind} {name}[] = {{"], "   "
    for value in values:
        text = form % value
        if len(line) + len(text) + 2 > 120:
            lines.append(line)
            line = "   "
        line += " " + text + ","
    return lines + [line, "};"]


def generate():
    letters, numbers = members(r"\p{L}"), members(r"\p{N}")
    words = {c for c, ids in zip(POINTS, beside(single_word=True)) if 0 not in ids}
    spaces = members(r"\s")
    if spaces != {*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}:
        sys.exit("white space is not what ignis__char_space takes for it")
    if spaces != {c for c, ids in zip(POINTS, beside(rstrip=True)) if len(ids) == 1}:
        sys.exit("white space beside added tokens is not what patterns take for it")
    digits = numeric()  # of another version of Unicode than patterns

    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    classes = combining()
    single = {}  # one step of a canonical decomposition
    pairs = []
    whole_of = {nfd(chr(c)): chr(c) for c in POINTS}
    for c in POINTS:
        whole = nfd(chr(c))
        if whole == chr(c) or 0xAC00 <= c < 0xD7A4:
            continue
        if len(whole) == 1:
            single[c] = (ord(whole), 0)
            continue
        last = whole[-1]
        head = nfc(whole[:-1])
        if len(head) != 1:
            head = whole_of.get(whole[:-1], "")  # one that NFC does not make
        if len(head) != 1 or nfd(head + last) != whole:
            sys.exit(f"U+{c:04X} is not one character and another")
        single[c] = (ord(head), ord(last))
        if nfc(head + last) == chr(c):
            pairs.append((ord(head), ord(last), c))
    moves = {c for c in POINTS if c in classes or nfc(chr(c)) != chr(c)}
    moves |= {second for _, second, _ in pairs} | {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}

    kinds = runs(lambda c: (c in letters) * LETTER | (c in numbers) * NUMBER | (c in words) * WORD | (c in digits) * DIGIT)
    marks = runs(lambda c: classes.get(c, 0) << 1 | (c in moves))
    print(f"{len(kinds)} runs of kinds, {len(marks)} of combining classes, {len(single)} decompositions, {len(pairs)} compositions", file=sys.stderr)
    out = table("uint32_t", "ignis__char_kinds",
                "Where the kind of characters changes: the first one << 4 | 1 letter | 2 number | 4 of a word | 8 number to the\n"
                "    pre-tokenizer Digits.",
                [c << 4 | v for c, v in kinds], "0x%X")
    out += table("uint32_t", "ignis__char_marks",
                 "Where what NFC has to know changes: the first character << 9 | combining class << 1 | 1 where it may change with\n"
                 "    the character before it.",
                 [c << 9 | v for c, v in marks], "0x%X")
    out += table("uint64_t", "ignis__char_parts", "A character << 42 | what it is made of, for NFD: the first << 21 | the second or 0.",
                 [c << 42 | a << 21 | b for c, (a, b) in sorted(single.items())], "0x%X")
    category, cut = categories(), punctuation()
    out += table("uint32_t", "ignis__char_categories",
                 "Where the category of characters changes: the first one << 6 | 32 punctuation to the pre-tokenizer Punctuation |\n"
                 "    its general category, as pattern.c counts them.",
                 [c << 6 | v for c, v in runs(lambda c: category.get(c, CATEGORIES.index("Cs")) | (c in cut) * 32)], "0x%X")
    script = {c: SCRIPTS.index(name) for name in SCRIPTS[1:] for c in members(r"\p{%s}" % name)}
    out += table("uint32_t", "ignis__char_scripts", "Where the script of characters changes: the first one << 4 | its script, as pattern.c counts them.",
                 [c << 4 | v for c, v in runs(lambda c: script.get(c, 0))], "0x%X")
    if members(r"\w") != words - {0x200C, 0x200D}:
        sys.exit("characters of words in patterns are not what pattern.c takes for them")
    drops = bert()
    out += table("uint32_t", "ignis__char_drops",
                 "Where what BertNormalizer and StripAccents drop changes: the first one << 3 | 1 a control | 2 an accent | 4 to\n"
                 "    StripAccents.",
                 [c << 3 | v for c, v in runs(lambda c: drops.get(c, 0))], "0x%X")
    out += table("uint64_t", "ignis__char_lower",
                 "Runs of letters whose lower case is as far from them: the first << 43 | 2^42 for every second |\n"
                 "    the last - the first << 26 | 2^25 + the change.",
                 [first << 43 | (step - 1) << 42 | last - first << 26 | (1 << 25) + by for first, last, step, by in lower()], "0x%X")
    single_runs, texts = compatible()
    points = "".join(text for _, text in texts)
    out += table("uint64_t", "ignis__char_compat", "Runs of characters that NFKD makes another one, in the form of ignis__char_lower.",
                 [first << 43 | (step - 1) << 42 | last - first << 26 | (1 << 25) + by for first, last, step, by in single_runs], "0x%X")
    starts = [sum(len(text) for _, text in texts[:i]) for i in range(len(texts))]
    out += table("uint64_t", "ignis__char_compat_texts",
                 "Characters that NFKD makes several: one << 24 | their number << 16 | the place of the first in\n"
                 "    ignis__char_compat_points.",
                 [c << 24 | len(text) << 16 | start for (c, text), start in zip(texts, starts)], "0x%X")
    out += table("uint32_t", "ignis__char_compat_points", "Characters of those texts.", [ord(c) for c in points], "0x%X")
    kind_of = clusters()
    out += table("uint32_t", "ignis__char_clusters", "Where the kind of characters to grapheme clusters changes: the first one << 4 | ignis__cluster.",
                 [c << 4 | v for c, v in runs(lambda c: CLUSTERS.index(kind_of.get(c, "OTHER")) if not 0xAC00 <= c < 0xD7A4 else 0)], "0x%X")
    place = {c: i for i, c in enumerate(sorted(single))}
    out += table("uint16_t", "ignis__char_pairs", "Rows of ignis__char_parts that NFC makes one character again, sorted by what they are made of.",
                 [place[c] for _, _, c in sorted(pairs)], "%d")
    return out


path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "models", "tokenizer", "unicode_table.c")
with open(path, encoding="utf-8", newline="") as file:
    header = file.read()
begin = "/*  From here on written by tools/unicode_tables.py. */\n/* clang-format off */\n"
end = "/* clang-format on */\n"
head, rest = header.split(begin)
_, tail = rest.split(end)
written = head + begin + "\n".join(generate()) + "\n" + end + tail
if "--check" in sys.argv:
    sys.exit("the tables of Unicode in src/models/tokenizer/unicode_table.c are not those of tools/unicode_tables.py" if written != header else 0)
with open(path, "w", encoding="utf-8", newline="") as file:
    file.write(written)
