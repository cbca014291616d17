#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Chat templates against jinja2, set up as Hugging Face's transformers does.

    chat_compare.py PROGRAM [COUNT [SEED]]    the cases beside it and COUNT random templates, through PROGRAM (chat_render.c)
    chat_compare.py --write                   writes chat_cases.h, the cases with jinja2's texts, for test_chat.c

Where jinja2 is missing it says so and ends well."""
import copy
import datetime
import json
import os
import random
import subprocess
import sys
import warnings

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    print("check-chat: skipped: the Python package jinja2 is not installed")
    sys.exit(0)

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = 1735689600 + 12 * 3600  # noon of the first of January 2025, in UTC


class Generation(jinja2.ext.Extension):
    """{% generation %}: what is in it is written as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(form)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


warnings.simplefilter("ignore")  # of what random templates index
ENVIRONMENT = environment()


def thoughts(message):
    """As transformers gives a message to a template: what was thought goes by three names."""
    thought = next((message[key] for key in ("reasoning_content", "thinking", "reasoning") if message.get(key) is not None), None)
    return message if thought is None else {"thinking": thought, **message, "reasoning_content": thought}


def expected(template, variables):
    """("ok", text) or ("error", why)"""
    values = {"tools": None, "documents": None, "add_generation_prompt": False, "messages": []}
    values.update(copy.deepcopy(variables))
    values["messages"] = [thoughts(message) for message in values["messages"]]
    try:
        return "ok", ENVIRONMENT.from_string(template).render(**values)
    except Exception as error:  # whatever Python raises
        return "error", "%s: %s" % (type(error).__name__, error)


class Program:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ, TZ="UTC"))

    def run(self, template, variables):
        source, values = template.encode(), json.dumps(variables, ensure_ascii=False).encode()
        self.process.stdin.write(b"%d %d\n" % (len(source), len(values)) + source + values)
        self.process.stdin.flush()
        kind, size = self.process.stdout.readline().split()
        return kind.decode(), self.process.stdout.read(int(size)).decode()


# --- random templates ---------------------------------------------------------------------------------------------

VARIABLES = {
    "s": "Hello, World", "t": "  two words\n", "u": "h\u00e9llo \u4e16\u754c \U0001f642", "e": "", "q": "it's \"quoted\"\t\\ <b>&amp;",
    "n": 7, "z": 0, "m": -3, "f": 2.5, "g": -0.125, "h": 1e22, "yes": True, "no": False, "nothing": None,
    "l": [3, 1, 2], "k": ["b", "a", "C", "a"], "empty": [], "w": "\u0391\u03a3 \u03a3\u03a3. \u03b1\u03c3\u0301 \u01c6e stra\u00dfe-\u0149o \ufb01n \u0130\u0131 \u1f80 \u0410\u0431\u0412 \u00aa\u0101\u0100", "mixed": [1, "x", None, 2.0, [1, 2], {"a": 1}],
    "d": {"a": 1, "b": "two", "c": [1, 2, 3], "items": 5, "role": "user"}, "nested": {"x": {"y": {"z": "deep"}}},
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Hi there!  "},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello.", "tool_calls": [{"name": "f", "arguments": {"x": 1, "y": [True, None, 1.5]}}]},
        {"role": "user", "content": [{"type": "text", "text": "parts"}, {"type": "image"}]},
    ],
}
# What is thought, by each name and several, in messages of which all is written.
THOUGHTS = [{"messages": [{"role": "assistant", "content": "a", **fields}]} for fields in (
    {"reasoning": "why"}, {"thinking": "hm"}, {"reasoning_content": "so"}, {"reasoning": "why", "thinking": "hm"}, {"thinking": None, "reasoning": "why"},
    {"reasoning_content": None, "thinking": "hm", "reasoning": "why"}, {"reasoning": None}, {"reasoning_content": "so", "reasoning": "why"}, {"reasoning": ""},
    {"thinking": "", "reasoning": "why"}, {"reasoning": ["x"]}, {})]
THOUGHT = "{% for m in messages %}[{{ m.thinking }}|{{ m.reasoning_content }}|{{ m.reasoning }}]{{ m|tojson }}{% endfor %}"
NAMES = [name for name in VARIABLES] + ["missing", "x", "y", "ns", "loop"]
TEXTS = ["''", "'a'", "\"b\"", "', '", "'\\n'", "'Hello'", "'o'", "'<|im_start|>'", "'\\u00e9\\x41'", "'user'", "'content'", "' '", "'l'", "'%'"]
FILTERS = ["trim", "length", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true, sort_keys=true)", "tojson(separators=(',', ':'))", "join", "join(', ')",
           "join('-', attribute='role')", "items|list", "default('x')", "default('x', true)", "d(0)", "first", "last", "string", "list",
           "map('upper')|list", "map(attribute='role')|list", "map(attribute='no', default='?')|join('|')", "selectattr('role', 'equalto', 'user')|list",
           "selectattr('tool_calls')|list|length", "rejectattr('role', 'in', ['user'])|list", "select('string')|list", "reject('none')|list|length",
           "select|list", "upper", "lower", "title", "capitalize", "replace('l', 'L')", "replace('', '.')", "replace('a', 'b', 1)", "int", "int(5)", "float",
           "safe", "indent", "indent(2, true)", "indent(width=3, first=false, blank=true)", "sort", "sort(reverse=true)",
           "sort(attribute='role')", "reverse|list", "reverse", "count", "dictsort", "map('length')|list",
           "map(attribute='content')|map('string')|join", "sort(case_sensitive=true)|list", "trim('H!')", "min", "max", "max(attribute='role')|string", "min(case_sensitive=true)", "max(true)", "format(n, f)",
           "format(a=s, b=n)", "format"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true", "false",
         "odd", "even", "divisibleby 3", "divisibleby(2)", "eq 7", "equalto('a')", "in [1, 7, 'a']", "in l", "callable", "ne none",
         "gt 2", "lt(3)", "sameas true", "ge 1"]
METHODS = [".strip()", ".lstrip()", ".rstrip('\\n')", ".split()", ".split(' ')", ".split('l', 1)", ".rsplit('l', 1)", ".rsplit(None, 1)", ".split(None, 1)",
           ".split('</think>')[-1]", ".startswith('H')", ".endswith(('d', '!'))", ".replace('l', '')", ".upper()", ".lower()", ".title()", ".capitalize()",
           ".items()", ".items()|list", ".keys()|list", ".values()|list", ".get('a')", ".get('q', 'z')", ".find('l')", ".rfind('l')", ".count('l')",
           ".splitlines()", ".splitlines(true)", ".join(k)", ".removeprefix('He')", ".a", ".b", ".c", ".role", ".x", ".x.y.z",
           "['a']", "['role']", "[0]", "[-1]", "[1]", "[9]", "[1:]", "[:-1]", "[::-1]", "[::2]", "[1:3]", "[-2:]", "[5:1:-2]", ".0", ".content", ".index", ".first", ".last",
           ".length", ".index0", ".previtem", ".nextitem", ".items", ".get", ".append(1)", ".revindex"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in", "not in"]


class Random:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def one(self, choices):
        return self.r.choice(choices)

    def atom(self):
        k = self.r.random()
        if k < 0.55:
            return self.one(NAMES)
        if k < 0.75:
            return self.one(TEXTS)
        if k < 0.9:
            return self.one(["0", "1", "2", "-1", "3.5", "10", "1e3", "0.1", "1_000", "true", "false", "none", "None", "True", "123456789012", "1.0", "1e-7"])
        return self.one(["[]", "{}", "()", "[1, 'a']", "{'a': 1, 'b': [2]}", "(1, 2)", "('x',)", "range(3)", "range(1, 8, 3)", "range(5, 0, -2)", "namespace(a=1)",
                         "dict(a=1, b='c')", "[s, n]", "{'k': l, 1: 2}"])

    def expression(self, depth):
        k = self.r.random()
        if depth <= 0 or k < 0.15:
            return self.atom()
        if k < 0.35:
            return "%s %s %s" % (self.expression(depth - 1), self.one(BINARY), self.expression(depth - 1))
        if k < 0.55:
            return "%s|%s" % (self.part(depth - 1), self.one(FILTERS))
        if k < 0.72:
            return "%s%s" % (self.part(depth - 1), self.one(METHODS))
        if k < 0.8:
            return "%s is %s%s" % (self.part(depth - 1), self.one(["", "not "]), self.one(TESTS))
        if k < 0.86:
            return "%s if %s else %s" % (self.expression(depth - 1), self.expression(depth - 1), self.expression(depth - 1))
        if k < 0.89:
            return "%s if %s" % (self.expression(depth - 1), self.expression(depth - 1))
        if k < 0.94:
            return "%s%s" % (self.one(["not ", "-", "not not ", "+"]), self.part(depth - 1))
        return "[%s, %s]" % (self.expression(depth - 1), self.expression(depth - 1))

    def part(self, depth):
        return self.atom() if self.r.random() < 0.6 else "(%s)" % self.expression(depth)

    def space(self):
        return self.one(["", "", " ", "\n", "  \n", "\n  ", "\n\n", "\t", "text", " a\n  ", "\r\n", "\u00a0"])

    def tag(self, kind, text):
        begin, end = self.one(["", "", "-", "-", "+"]), self.one(["", "", "-", "-", "+"])
        if kind == "{":
            return "{{" + self.one(["", "-"]) + " " + text + " " + self.one(["", "-"]) + "}}"
        if kind == "#":
            return "{#" + begin + text + end + "#}"
        return "{%" + begin + " " + text + " " + end + "%}"

    def body(self, depth, loop=False):
        return self.space() + "".join(self.statement(depth, loop) + self.space() for _ in range(self.r.randint(1, 3)))

    def format(self):
        def spec():
            text = self.one(["", "", "", "(a)", "(b)"]) + "".join(self.one(["-", "+", " ", "#", "0"]) for _ in range(self.one([0, 0, 1, 2])))
            return "%" + text + self.one(["", "", "3", "8", "12"]) + self.one(["", "", ".0", ".2", ".5"]) + self.one("ssssrdddiuxXofFeEgGc%")
        text = "".join(self.one(["", "a", "\\u00e9 "]) + spec() for _ in range(self.one([1, 1, 2, 3])))
        values = [self.one(["s", "u", "n", "m", "f", "g", "h", "yes", "nothing", "z", "'x'", "1e300", "0.1", "65", "-255", "l", "e", "missing"]) for _ in range(3)]
        some = values[:self.one([1, 1, 2, 3])]
        return self.one(["{{ '%s' %% %s }}" % (text, values[0]), "{{ '%s' %% (%s,) }}" % (text, ", ".join(some)),
                         "{{ '%s'|format(%s) }}" % (text, ", ".join(some)), "{{ '%s'|format(a=%s, b=%s) }}" % (text, values[0], values[1]),
                         "{{ '%s' %% {'a': %s, 'b': %s} }}" % (text, values[0], values[1])])

    def statement(self, depth, loop):
        k = self.r.random()
        if depth > 0 and self.r.random() < 0.06:
            if self.r.random() < 0.5:
                return self.tag("%", "filter " + self.one(["upper", "trim", "replace('a', 'b')", "upper|trim", "indent(2)|lower", "title", "length"])) + \
                    self.body(depth - 1) + self.tag("%", "endfilter")
            parameters, values = self.one([("", ""), ("(x)", "'v'"), ("(x, y=2)", "s"), ("()", "")])
            body = self.tag("%", "macro wrap(%s)" % self.one(["", "x", "x, y=1"])) + self.space() + \
                self.one(["<{{ caller(%s) }}>" % values, "({{ caller(%s) }}{{ x }})" % values, "{% if caller %}yes{% endif %}",
                          "{{ x }}", "{% for x in l %}{{ caller(" + (values and "x") + ") }}{% endfor %}"]) + self.tag("%", "endmacro")
            return body + self.tag("%", "call%s wrap(%s)" % (parameters, self.one(["", "1", "x=s"]))) + self.body(depth - 1) + self.tag("%", "endcall") + \
                self.one(["", "", "{{ wrap() }}"])
        if depth <= 0 or k < 0.4:
            return self.tag("{", self.expression(self.r.randint(0, 2)))
        if k < 0.45:
            return self.tag("#", " note ")
        if k < 0.6:
            text = self.tag("%", "if " + self.expression(2)) + self.body(depth - 1, loop)
            if self.r.random() < 0.4:
                text += self.tag("%", "elif " + self.expression(1)) + self.body(depth - 1, loop)
            if self.r.random() < 0.5:
                text += self.tag("%", "else") + self.body(depth - 1, loop)
            return text + self.tag("%", "endif")
        if k < 0.76:
            target, what = self.one([("x", "l"), ("x", "messages"), ("x", "k"), ("x, y", "d.items()"), ("x, y", "d|items"), ("x", "s"), ("x", "range(3)"),
                                     ("x", "missing"), ("(x, y)", "[(1, 2), [3, 4]]"), ("x", "d"), ("x", self.expression(1)), ("x", "messages[1:]")])
            text = "for %s in %s" % (target, what)
            if self.r.random() < 0.3:
                text += " if " + self.one(["x", "x is string", "x != 1", self.expression(1)])
            text = self.tag("%", text) + self.body(depth - 1, True)
            if self.r.random() < 0.3:
                text += self.tag("%", "else") + self.body(depth - 1, loop)
            return text + self.tag("%", "endfor")
        if k < 0.86:
            return self.tag("%", "set %s = %s" % (self.one(["x", "y", "ns.a", "x, y", "z"]), self.expression(2)))
        if k < 0.9:
            return self.tag("%", "set x") + self.body(depth - 1) + self.tag("%", "endset")
        if k < 0.94:
            text = self.tag("%", "macro mac(x, y=%s)" % self.expression(1)) + self.body(depth - 1) + self.tag("%", "endmacro")
            return text + "{{ mac(%s) }}" % self.one(["1", "s, l", "x=2", "", "1, y=3", "1, 2, 3", "d"])
        if k < 0.96:
            return self.tag("%", "generation") + self.body(depth - 1) + self.tag("%", "endgeneration")
        if k < 0.98 and loop:
            return self.tag("%", self.one(["break", "continue"]))
        return self.tag("%", "set ns = namespace(a=0, b='')")


def compare(program, template, variables, counts):
    want, text = expected(template, variables)
    got, out = program.run(template, variables)
    if want == "ok" and got == "ok":
        counts["same"] += 1
        same = text == out
    elif want == "ok" and " at 0x" in text:
        counts["lacking"] += 1
        same = got != "ok"
    elif want == "error":
        counts["refused"] += 1
        same = got != "ok"
    else:
        counts["lacking"] += 1
        same = got == "unsupported" or "slices are of texts and lists, not" in out  # jinja2 folds 1[2:3] of constants into nothing
        what = out.split(": ", 1)[-1].split(" (line")[0]
        counts.setdefault("what", {})[what] = counts.setdefault("what", {}).get(what, 0) + 1
    if not same:
        print("template: %r\n  jinja2: %s %r\n  Ignis:  %s %r" % (template, want, text, got, out))
    return same


def cases():
    with open(os.path.join(HERE, "cases.json")) as file:
        for case in json.load(file):
            with open(os.path.join(HERE, case["template"] + ".jinja")) as template:
                yield case["name"], template.read(), case["variables"]


def quoted(text):
    """A C literal: a line for each line, and more for a line that would end behind column 120."""
    lines = []
    for line in text.splitlines(True) or [""]:
        out = [{"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\", "?": "\\?"}.get(chr(byte), chr(byte) if 32 <= byte < 127 else "\\%03o" % byte)
               for byte in line.encode()]
        while sum(map(len, out)) > 108:
            count = next(i for i in range(len(out)) if sum(map(len, out[:i + 1])) > 108)
            space = "".join(" " if char == " " else "x" for char in out[:count]).rfind(" ")
            count = space + 1 if space > 0 else count
            lines.append('        "%s"' % "".join(out[:count]))
            out = out[count:]
        lines.append('        "%s"' % "".join(out))
    return "\n".join(lines)


def header():
    out = ["// SPDX-License-Identifier: MIT", "/*  Written by chat_compare.py --write from this folder: templates, variables, and jinja2's texts. */",
           "/* clang-format off */", "static const struct {", "    const char *name, *source, *variables, *text, *why; /* text: null where the template refuses, and says why */",
           "} chat_cases[] = {"]
    for name, template, variables in cases():
        kind, text = expected(template, variables)
        out += ["    {", '        "%s",' % name, quoted(template) + ",", quoted(json.dumps(variables, ensure_ascii=False)) + ",",
                (quoted(text) if kind == "ok" else "        NULL") + ",", ("        NULL" if kind == "ok" else quoted(text.split(": ", 1)[1])) + ",", "    },"]
    return "\n".join(out + ["};", "/* clang-format on */", ""])


def main():
    path = os.path.join(HERE, "chat_cases.h")
    if sys.argv[1:] == ["--write"]:
        with open(path, "w") as file:
            file.write(header())
        return 0
    program = Program(sys.argv[1])
    count, seed = int(sys.argv[2]) if len(sys.argv) > 2 else 5000, int(sys.argv[3]) if len(sys.argv) > 3 else 1
    counts = {"same": 0, "refused": 0, "lacking": 0}
    bad = 0
    if os.path.exists(path):
        with open(path) as file:
            if file.read() != header():
                print("tests/models/chat/chat_cases.h is not what chat_compare.py --write writes")
                bad += 1
        for _, template, variables in cases():
            bad += not compare(program, template, variables, counts)
    for variables in THOUGHTS:
        bad += not compare(program, THOUGHT, variables, counts)
    letters = [c for c in range(128, 0x20000) if not 0xD800 <= c < 0xE000]
    for i in range(0, len(letters), 4096): # every letter, alone and behind another
        text = " ".join(chr(c) + chr(c) for c in letters[i:i + 4096])
        bad += not compare(program, "{{ s|upper }}{{ s|lower }}", {"s": text}, counts)
        bad += not compare(program, "{% for p in s.split(' ') %}{{ p|capitalize }}{{ p|title }}{% endfor %}", {"s": text}, counts)
    source = Random(seed)
    for i in range(count):
        template = source.body(3) if i % 2 else source.format() if i % 8 == 0 else "{{ %s }}" % source.expression(3)
        bad += not compare(program, template, VARIABLES, counts)
        if bad >= 20:
            break
    what = sorted(counts.pop("what", {}).items(), key=lambda item: -item[1])
    print("check-chat: %d the same, %d refused by both, %d lacking, %d wrong" % (counts["same"], counts["refused"], counts["lacking"], bad))
    if "-v" in os.environ.get("CHAT", ""):
        print(what)
    return bad > 0


sys.exit(main())
