#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tables of upper and lower case in src/models/chat/case_mapping.c, between its two marks: those of Python, in which jinja2 is written.

    tools/case_tables.py [--check]        --check: changes nothing, and fails where the tables would change, if Python has the same Unicode
"""
import os
import re
import sys
import unicodedata

POINTS = [c for c in range(128, 0x110000) if not 0xD800 <= c < 0xE000]
FAR = 1 << 25


def runs(change):
    """(first, last, step, difference) of characters that become one other character."""
    out = []
    for c in POINTS:
        to = change(chr(c))
        if len(to) != 1 or ord(to) == c:
            continue
        by = ord(to) - c
        if out and out[-1][3] == by:
            first, last, step, _ = out[-1]
            if c - last in ((step,) if last > first else (1, 2)):
                out[-1] = (first, c, c - last, by)
                continue
        out.append((c, c, 1, by))
    return out


def quoted(text):
    return '"' + "".join("\\x%02X" % byte if byte > 126 else chr(byte) for byte in text.encode()) + '"'


def joined(items):
    lines, line = [], "   "
    for text in items:
        if len(line) + len(text) + 2 > 116:
            lines.append(line)
            line = "   "
        line += " " + text + ","
    return lines + [line, "};"]


def generate():
    out = ["/*  Of Unicode %s. Runs of letters that change by the same: the first << 43 | 2^42 for every second |"
           % unicodedata.unidata_version, "    the last - the first << 26 | 2^25 + the change. */"]
    for name, change in (("lower", str.lower), ("upper", str.upper)):
        out.append("static const uint64_t ignis__case_%s[] = {" % name)
        out += joined("0x%X" % (first << 43 | (step - 1) << 42 | last - first << 26 | FAR + by) for first, last, step, by in runs(change))
    out += ["/*  Letters that become several, or others at the beginning of a word. */", "static const struct {", "    uint32_t code;",
            "    const char *upper, *title;", "} ignis__case_special[] = {"]
    special = [c for c in POINTS if len(chr(c).upper()) > 1 or chr(c).title() != chr(c).upper()]
    out += joined("{0x%X, %s, %s}" % (c, quoted(chr(c).upper()), quoted(chr(c).title())) for c in special)
    several = [c for c in POINTS if len(chr(c).lower()) > 1]
    assert several == [0x130]  # which ignis__case_write knows
    return re.sub(r'(\\x[0-9A-F]{2})(?=[0-9A-Fa-f])(?!\\)', r'\1" "', "\n".join(out))


path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "models", "chat", "case_mapping.c")
with open(path, encoding="utf-8", newline="") as file:
    header = file.read()
begin = "/*  From here on written by tools/case_tables.py. */\n/* clang-format off */\n"
end = "/* clang-format on */\n/*  As far as here. Other letters than these and ASCII have no case. */\n"
head, rest = header.split(begin)
middle, tail = rest.split(end)
if "--check" in sys.argv:
    if "Unicode %s." % unicodedata.unidata_version not in middle:
        print("skipped: this Python has Unicode %s" % unicodedata.unidata_version)
        sys.exit(0)
    sys.exit("the tables of case in src/models/chat/case_mapping.c are not those of tools/case_tables.py" if middle != generate() + "\n" else 0)
with open(path, "w", encoding="utf-8", newline="") as file:
    file.write(head + begin + generate() + "\n" + end + tail)
