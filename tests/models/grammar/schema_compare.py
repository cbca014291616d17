#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random JSON schemas of each feature that the grammars have, and random texts of each, against a validator in here.

    schema_compare.py PROGRAM [TEXTS [SEED]]     PROGRAM is schema_fits; TEXTS texts in all, 10000 unless given
    schema_compare.py PROGRAM --write            writes schema_cases.h for test_grammar.c; then `make format`
    schema_compare.py PROGRAM --jsonschema ...   asks the Python package jsonschema, too

Three things must hold. Each random text of a grammar is valid. Each text that was changed at random and still fits is
valid. Each valid value that is made from the schema fits, when it is written in the canonical form that
ignis_grammar_check promises. A schema may be refused, with a reason: the report has the share of those that are
accepted, by feature.
"""
import datetime
import ipaddress
import json
import os
import random
import re
import subprocess
import sys
from decimal import Decimal

HERE = os.path.dirname(os.path.abspath(__file__))


def write(value):
    """The canonical text of a value."""
    if isinstance(value, dict):
        return "{" + ",".join(write(k) + ":" + write(v) for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value, ensure_ascii=False)


def read(text):
    def pairs(items):
        return dict(items)
    return json.loads(text, parse_float=Decimal, object_pairs_hook=pairs)


# the validator ------------------------------------------------------------------------------------------------------

SPACES = "\\t-\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"


def regex(pattern):
    """A regular expression of ECMA-262 as one of Python."""
    out, at, inside = "", 0, False
    while at < len(pattern):
        c = pattern[at]
        if c == "\\":
            c = pattern[at:at + 2]
            at += 1
            if c == "\\u" and pattern[at + 1:at + 2] == "{":
                end = pattern.index("}", at)
                c, at = "\\U%08x" % int(pattern[at + 2:end], 16), end
            if c in ("\\s", "\\S"):
                c = SPACES if inside else "[" + ("^" if c == "\\S" else "") + SPACES + "]"
        elif inside:
            inside = c != "]"
        elif c == "[":
            inside = True
        elif c == "$":
            c = "\\Z"
        elif c == ".":
            c = "[^\\n\\r\\u2028\\u2029]"
        elif pattern.startswith("(?<", at) and pattern[at + 3] not in "=!":
            c, at = "(?P<", at + 2
        out += c
        at += 1
    return re.compile(out, re.ASCII)


def fits_date(text):
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return False
    try:
        datetime.date(int(text[:4]), int(text[5:7]), int(text[8:]))
        return True
    except ValueError:
        return False


def fits_time(text):
    m = re.fullmatch(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?(?:Z|[+-]([0-9]{2}):([0-9]{2}))", text)
    return bool(m) and all(int(n or 0) < top for n, top in zip(m.groups(), (24, 60, 60, 24, 60)))


def fits_address(kind):
    def fits(text):
        try:
            kind(text)
            return "%" not in text
        except ValueError:
            return False
    return fits


def fits_host(text):
    return 0 < len(text) < 254 and all(
        re.fullmatch("[A-Za-z0-9-]{1,63}", part) and part[0] != "-" and part[-1] != "-" and part[2:4] != "--"
        for part in text.split("."))


def fits_email(text):
    local, at, host = text.rpartition("@")
    return bool(at) and 0 < len(local) <= 64 and fits_host(host) and all(
        re.fullmatch(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+", part) for part in local.split("."))


def fits_uri(text):
    """RFC 3986 by its appendix B, then each part by its characters."""
    m = re.fullmatch(r"([^:/?#]+):(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", text, re.S)
    if not m or not re.fullmatch("[A-Za-z][A-Za-z0-9+.-]*", m[1]) or re.search("%(?![0-9A-Fa-f]{2})", text):
        return False
    unit = r"[A-Za-z0-9._~!$&'()*+,;=:@%-]"
    user, at, host = (m[2] or "").rpartition("@")
    name, colon, port = host.partition(":")
    if not re.fullmatch(r"[A-Za-z0-9._~!$&'()*+,;=:%-]*", user) or not re.fullmatch("[0-9]*", port):
        return False
    if not re.fullmatch(r"[A-Za-z0-9._~!$&'()*+,;=%-]*", name) or not re.fullmatch("(?:/|" + unit + ")*", m[3]):
        return False
    if m[2] is not None and m[3][:1] not in ("", "/") or m[2] is None and m[3].startswith("//"):
        return False
    return all(re.fullmatch("(?:[/?]|" + unit + ")*", part or "") for part in (m[4], m[5]))


def fits_duration(text):
    return bool(re.fullmatch(r"P(?=.)(?:[0-9]+W|(?:[0-9]+Y)?(?:[0-9]+M)?(?:[0-9]+D)?(?:T(?=.)(?:[0-9]+H)?(?:[0-9]+M)?"
                             r"(?:[0-9]+S)?)?)", text))


def fits_pointer(text):
    return text == "" or text[0] == "/" and not re.search("~(?![01])", text)


FORMATS = {
    "date": fits_date,
    "time": fits_time,
    "date-time": lambda text: text[10:11] == "T" and fits_date(text[:10]) and fits_time(text[11:]),
    "duration": fits_duration,
    "uuid": lambda text: bool(re.fullmatch("[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", text)),
    "ipv4": fits_address(ipaddress.IPv4Address),
    "ipv6": fits_address(ipaddress.IPv6Address),
    "email": fits_email,
    "hostname": fits_host,
    "uri": fits_uri,
    "json-pointer": fits_pointer,
    "relative-json-pointer": lambda text: bool(re.match("(0|[1-9][0-9]*)(#\\Z|/|\\Z)", text)) and (
        text.endswith("#") and text[:-1].isdigit() or fits_pointer(text.lstrip("0123456789"))),
}


def is_number(value):
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def has_type(value, name):
    return {"object": isinstance(value, dict), "array": isinstance(value, list), "string": isinstance(value, str),
            "boolean": isinstance(value, bool), "null": value is None, "number": is_number(value),
            "integer": is_number(value) and value == int(value)}[name]


def equal(a, b):
    if is_number(a) and is_number(b):
        return a == b
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return a == b


def resolve(ref, root):
    for part in ref[1:].split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        root = root[int(part)] if isinstance(root, list) else root[part]
    return root


def valid(value, schema, root, followed=()):
    """followed: references on the way to this schema. One that leads back to itself allows no value of its own."""
    if isinstance(schema, bool):
        return schema
    def holds(part, inner=value):
        return valid(inner, part, root, followed if inner is value else ())
    s = schema
    types = s.get("type", [])
    if types and not any(has_type(value, name) for name in ([types] if isinstance(types, str) else types)):
        return False
    if "enum" in s and not any(equal(value, one) for one in s["enum"]) or "const" in s and not equal(value, s["const"]):
        return False
    if "$ref" in s and (s["$ref"] in followed or
                        not valid(value, resolve(s["$ref"], root), root, followed + (s["$ref"],))):
        return False
    if not all(map(holds, s.get("allOf", []))):
        return False
    if "anyOf" in s and not any(map(holds, s["anyOf"])) or "oneOf" in s and sum(map(holds, s["oneOf"])) != 1:
        return False
    if isinstance(value, str):
        if not s.get("minLength", 0) <= len(value) <= s.get("maxLength", 10**9):
            return False
        if "pattern" in s and not regex(s["pattern"]).search(value):
            return False
        return FORMATS.get(s.get("format"), lambda text: True)(value)
    if is_number(value):
        low, high = s.get("exclusiveMinimum"), s.get("exclusiveMaximum")
        if "minimum" in s and (value <= s["minimum"] if low is True else value < s["minimum"]):
            return False
        if "maximum" in s and (value >= s["maximum"] if high is True else value > s["maximum"]):
            return False
        if is_number(low) and value <= low or is_number(high) and value >= high:
            return False
        return "multipleOf" not in s or Decimal(value) % Decimal(s["multipleOf"]) == 0
    if isinstance(value, list):
        if not s.get("minItems", 0) <= len(value) <= s.get("maxItems", 10**9):
            return False
        if s.get("uniqueItems") and any(equal(a, b) for i, a in enumerate(value) for b in value[:i]):
            return False
        row, rest = s.get("prefixItems", []), s.get("items", True)
        if isinstance(rest, list):
            row, rest = rest, s.get("additionalItems", True)
        return all(holds(row[i] if i < len(row) else rest, item) for i, item in enumerate(value))
    if isinstance(value, dict):
        known = s.get("properties", {})
        return all(name in value for name in s.get("required", [])) and all(
            holds(known[k] if k in known else s.get("additionalProperties", True), v) for k, v in value.items())
    return True


# schemas ------------------------------------------------------------------------------------------------------------

PATTERNS = ["^[a-z]{2,5}$", "^(foo|ba[rz])+$", "^\\d{3}-\\d{4}$", "b", "^a", "z$", "^.{1,3}$", "^[^\"\\\\]*$",
            "^\\S+ \\S+$", "^(?:x|y{2,3})?z*$", "^$", "^[\\u00e0-\\u00ff]+$", "^\\w+@\\w+\\.(com|org)$",
            "^(?<a>q)\\/r$", "a|^b|c$", "[^a-z]",
            "^-?[0-9]+(\\.[0-9]+)?$", "^#([0-9a-f]{3}|[0-9a-f]{6})$", "(ab){2,}", "^\\x41\\u{1F600}?$", "^[\\]\\-x]$"]
UNUSABLE = ["(?=a)b", "\\bword\\b", "(a)\\1", "a**", "(", "[b-a]", "\\p{L}"]
NAMES = ["a", "b", "ab", "key", "n\u00e4me", "with \"quote\"", "x/y", "t~", "\u20ac", "", "\U0001F600"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def any_value(self, depth=1):
        r = self.r
        kind = r.randrange(8 if depth else 6)
        if kind == 6:
            return [self.any_value(0) for _ in range(r.randrange(3))]
        if kind == 7:
            return {name: self.any_value(0) for name in r.sample(NAMES, r.randrange(3))}
        return [None, True, False, r.randrange(-20, 99), Decimal(r.randrange(-999, 999)) / 10, self.text()][kind]

    def text(self):
        return "".join(self.r.choice("ab z019-.@/\"\\\n\u00e9\u20ac\U0001F600") for _ in range(self.r.randrange(6)))

    def number(self):
        r = self.r
        return r.choice([0, 1, -1, r.randrange(-20, 20), r.randrange(-5000, 5000),
                         Decimal(r.randrange(-999, 999)) / 100, r.randrange(-10**17, 10**17), Decimal("0.001")])

    def bounds(self, s):
        r = self.r
        a, b = sorted([self.number(), self.number()])
        if r.random() < 0.7:
            s[r.choice(["minimum", "minimum", "exclusiveMinimum"])] = a
        if r.random() < 0.7:
            s[r.choice(["maximum", "maximum", "exclusiveMaximum"])] = b
        if r.random() < 0.1 and "minimum" in s:
            s["exclusiveMinimum"] = True
        return s

    def lengths(self, s, least, most, top):
        a, b = sorted([self.r.randrange(top), self.r.randrange(top)])
        if self.r.random() < 0.6:
            s[least] = a
        if self.r.random() < 0.6:
            s[most] = b
        return s

    def feature(self, name, depth=2):
        r = self.r
        inner = lambda: self.feature(r.choice(FEATURES if depth else PLAIN), max(depth - 1, 0))
        if name == "plain":
            return r.choice([{"type": t} for t in ("string", "number", "integer", "boolean", "null")] +
                            [{}, True, {"type": ["integer", "null"]}, {"title": "x", "x-unit": 3, "readonly": True,
                                                                       "example": 5}])
        if name == "enum":
            s = {"enum": [self.any_value() for _ in range(r.randrange(1, 5))]}
            return r.choice([s, {"const": self.any_value()},
                             dict(s, type=r.choice(["string", "integer", "number", "object"])),
                             dict(s, minLength=2, type=["string", "null"]), dict(s, minimum=0)])
        if name == "length":
            return self.lengths({"type": "string"}, "minLength", "maxLength", 6)
        if name == "pattern":
            s = {"type": "string", "pattern": r.choice(PATTERNS)}
            s = self.lengths(s, "minLength", "maxLength", 9) if r.random() < 0.3 else s
            return {"allOf": [s, {"pattern": r.choice(PATTERNS)}]} if r.random() < 0.2 else s
        if name == "format":
            s = {"type": "string", "format": r.choice(list(FORMATS) + ["int32", "password"])}
            return dict(s, maxLength=r.randrange(8, 60)) if r.random() < 0.3 else s
        if name == "integer":
            return self.bounds({"type": "integer"})
        if name == "number":
            return self.bounds({"type": r.choice(["number", "number", ["number", "string"]])})
        if name == "multiple":
            s = {"type": r.choice(["integer", "number"]), "multipleOf": r.choice([1, 2, 3, 5, 7, 10, 12, Decimal("0.5"),
                                                                                   Decimal("0.01"), Decimal("2.5")])}
            return self.bounds(s) if r.random() < 0.5 else s
        if name == "array":
            return self.lengths({"type": "array", "items": inner()}, "minItems", "maxItems", 4)
        if name == "row":
            row = [inner() for _ in range(r.randrange(1, 4))]
            s = {"type": "array", "prefixItems": row, "items": r.choice([False, inner()])} if r.random() < 0.7 else {
                "items": row, "additionalItems": r.choice([False, inner()])}
            return self.lengths(s, "minItems", "maxItems", 5) if r.random() < 0.5 else s
        if name == "unique":
            s = {"type": "array", "uniqueItems": True, "items": {"enum": [self.any_value()
                                                                          for _ in range(r.randrange(1, 6))]}}
            return self.lengths(s, "minItems", "maxItems", 4) if r.random() < 0.5 else s
        if name in ("object", "additional"):
            names = r.sample(NAMES, r.randrange(0 if name == "object" else 1, 4))
            s = {"type": "object", "properties": {n: inner() for n in names}}
            if r.random() < 0.7:
                s["required"] = [n for n in r.sample(NAMES, 4) if n in names or r.random() < 0.1]
            if name == "additional" or r.random() < 0.2:
                s["additionalProperties"] = r.choice([False, True, inner()])
            return s
        if name == "allOf":
            kind = r.choice(["object", "integer", "length", "array", "additional", "pattern"])
            s = {"allOf": [self.feature(kind, depth - 1 if depth else 0) for _ in range(r.randrange(1, 4))]}
            return dict(self.feature(kind, 0), **s) if r.random() < 0.4 and kind != "pattern" else s
        if name == "anyOf":
            s = {"anyOf": [inner() for _ in range(r.randrange(1, 4))]}
            return dict(s, type=r.choice(["string", "object", "integer"])) if r.random() < 0.3 else s
        if name == "oneOf":
            if r.random() < 0.4:
                return {"oneOf": [{"type": "object", "properties": {"k": {"const": i}, "v": inner()}, "required": ["k"]}
                                  for i in range(r.randrange(1, 4))]}
            if r.random() < 0.3:
                return {"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": r.randrange(2, 6)}]}
            return {"oneOf": [inner() for _ in range(r.randrange(1, 4))]}
        if name == "ref":
            s = {"type": "object", "properties": {"v": inner(), "next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
                 "required": ["next"]}
            if depth == 2 and r.random() < 0.5:
                return s
            return {"$ref": "#/$defs/a~1b"} if depth < 2 else {
                "type": "array", "items": {"$ref": "#/$defs/a~1b", "minimum": 2}, "$defs": {"a/b": inner()}}
        return {"refused": True, r.choice(["not", "if", "contains", "patternProperties", "minProperties",
                                           "dependentRequired"]):
                {"type": "string"}} if r.random() < 0.7 else {"type": "string", "pattern": r.choice(UNUSABLE)}

    def schema(self, name):
        s = self.feature(name)
        if isinstance(s, dict) and "$ref" in write(s) and "$defs" not in s:
            s = dict(s, **{"$defs": {"a/b": self.feature(self.r.choice(PLAIN), 0)}})
        return s if isinstance(s, dict) else {"allOf": [s]}

    # values that a schema is made for

    def flat(self, nodes, root):
        out = []
        for node in nodes:
            if node is True:
                continue
            if node is False:
                return None
            out.append({k: v for k, v in node.items() if k not in ("$ref", "allOf")})
            more = ([resolve(node["$ref"], root)] if "$ref" in node else []) + node.get("allOf", [])
            more = self.flat(more, root)
            if more is None:
                return None
            out += more
        return out

    def value(self, nodes, root, depth=6):
        """A value that is valid for all nodes, with properties in the order of the grammar."""
        nodes = self.flat(nodes, root)
        if nodes is None or depth == 0:
            raise ValueError
        value = self.leaf(nodes, root, depth)
        if not all(valid(value, node, root) for node in nodes):
            raise ValueError
        return value

    def leaf(self, nodes, root, depth):
        r = self.r
        for i, node in enumerate(nodes):
            for word in ("anyOf", "oneOf"):
                if word in node:
                    rest = {k: v for k, v in node.items() if k != word}
                    return self.value(nodes[:i] + [rest] + nodes[i + 1:] + [r.choice(node[word])], root, depth - 1)
        for node in nodes:
            if "enum" in node or "const" in node:
                return r.choice(node.get("enum", [node.get("const")]) if "const" not in node else [node["const"]])
        types = None
        for node in nodes:
            if "type" in node:
                names = set([node["type"]] if isinstance(node["type"], str) else node["type"])
                names |= {"integer"} if "number" in names else set()
                types = names if types is None else types & names
        if types is None:
            types = set()
            for node in nodes:
                types |= {TYPE_OF[word] for word in node if word in TYPE_OF}
        if not types:
            return self.any_value()
        kind = r.choice(sorted(types))
        merged = {k: [node[k] for node in nodes if k in node] for k in set().union(*nodes)} if nodes else {}
        least = max(merged.get("minItems", [0]))
        if kind == "object":
            names = [n for node in nodes for n in node.get("properties", {})]
            names += [n for node in nodes for n in node.get("required", [])]
            names, out = list(dict.fromkeys(names)), {}
            def of(name):
                return [node["properties"][name] if name in node.get("properties", {}) else node["additionalProperties"]
                        for node in nodes if name in node.get("properties", {}) or "additionalProperties" in node]
            for name in names:
                needed = any(name in node.get("required", []) for node in nodes)
                if needed or r.random() < 0.5:
                    try:
                        out[name] = self.value(of(name), root, depth - 1)
                    except ValueError:
                        if needed:
                            raise
            if "additionalProperties" in merged and False not in merged["additionalProperties"] or not names and not (
                    "properties" in merged):
                for name in r.sample([n for n in NAMES if n not in names], r.randrange(3)):
                    try:
                        out[name] = self.value(of(name), root, depth - 1)
                    except ValueError:
                        pass
            return out
        if kind == "array":
            out, count = [], r.randrange(least, min(merged.get("maxItems", [least + 3])) + 1)
            for i in range(count):
                parts = []
                for node in nodes:
                    row, rest = node.get("prefixItems", []), node.get("items", True)
                    if isinstance(rest, list):
                        row, rest = rest, node.get("additionalItems", True)
                    parts.append(row[i] if i < len(row) else rest)
                try:
                    out.append(self.value(parts, root, depth - 1))
                except ValueError:
                    if i < least:
                        raise
                    break
            return out
        if kind == "string":
            return self.string(nodes, merged)
        if kind in ("number", "integer"):
            ends = [0, 10**15] + sum((merged.get(k, []) for k in ("minimum", "maximum", "exclusiveMinimum",
                                                                  "exclusiveMaximum")), [])
            step = max([1] + merged.get("multipleOf", []))
            n = r.choice([e for e in ends if is_number(e)])
            n += r.choice([0, 0, 1, -1, r.randrange(-50, 50), Decimal("0.01"), -Decimal("0.5"),
                           r.randrange(10**6)])
            n = n // step * step if r.random() < 0.7 else n
            n = int(n) if kind == "integer" or n == int(n) else n
            return n if abs(n) < 10**16 else 0
        return {"boolean": r.random() < 0.5, "null": None}[kind]

    def string(self, nodes, merged):
        r, tries = self.r, []
        if "format" in merged:
            tries = SAMPLES.get(merged["format"][0], ["abc"])
        elif "pattern" in merged:
            tries = ["abc", "foobarbaz", "555-1234", "b", "a", "xz", "yyz", "z", "", "\u00e0\u00ff", "me@x.com", "q/r",
                     "cab", "bc", "-12.5", "#0af", "#00ffAA", "#00ffaa", "abab", "ababab", "A", "A\U0001F600",
                     "]", "-", "x", "x y", "\u00e9 \"", "\\ \n\""]
        for _ in range(40):
            text = r.choice(tries) if tries else self.text()
            text = text + self.text() if r.random() < 0.2 and "format" not in merged else text
            if all(valid(text, {k: v for k, v in node.items() if k in ("minLength", "maxLength", "pattern", "format")},
                         {})
                   for node in nodes):
                return text
        raise ValueError

    def changed(self, value):
        """A value with a change somewhere."""
        r = self.r
        if isinstance(value, list) and value and r.random() < 0.8:
            out, i = list(value), r.randrange(len(value))
            if r.random() < 0.3:
                del out[i]
            elif r.random() < 0.3:
                out.insert(i, out[r.randrange(len(out))])
            else:
                out[i] = self.changed(out[i])
            return out
        if isinstance(value, dict) and value and r.random() < 0.8:
            out, name = dict(value), r.choice(list(value))
            if r.random() < 0.3:
                del out[name]
            elif r.random() < 0.3:
                out[r.choice(NAMES)] = self.any_value()
            else:
                out[name] = self.changed(out[name])
            return out
        if isinstance(value, str) and r.random() < 0.7:
            at = r.randrange(len(value) + 1)
            return r.choice([value[:at] + value[at + 1:], value[:at] + self.text() + value[at:], value[:at],
                             value[:at] + r.choice("09az-:Z/.") + value[at + 1:]])
        if is_number(value) and r.random() < 0.7:
            return r.choice([value + 1, value - 1, -value, value * 10, value + Decimal("0.5"),
                             value + Decimal("0.001")])
        return self.any_value()


SAMPLES = {
    "date": ["2024-02-29", "1999-12-31", "2000-02-29", "2023-04-30"],
    "time": ["12:34:56Z", "23:59:59.123456+01:00", "00:00:00-23:59"],
    "date-time": ["2024-02-29T12:34:56Z", "1985-04-12T23:20:50.52+00:00"],
    "duration": ["P1Y2M3DT4H5M6S", "P3W", "PT1M", "P4D"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-00000000FFFF"],
    "ipv4": ["1.2.3.4", "255.255.255.255", "0.0.0.0"],
    "ipv6": ["::", "::1", "1:2:3:4:5:6:7:8", "fe80::1:2", "1::", "1:2:3:4:5:6:7::", "2001:DB8::8:800:200C:417A"],
    "email": ["a@b.c", "first.last+tag@sub-domain.example.com"],
    "hostname": ["example.com", "a", "x-y.z0"],
    "uri": ["http://example.com/a/b?c=d#e", "mailto:a@b.c", "urn:x:y", "ftp://u:p@h:21/", "file:///etc", "x:?",
            "a:b%20c"],
    "json-pointer": ["", "/a/b", "/~0~1", "/\u00e9 \""],
    "relative-json-pointer": ["0", "1#", "12/a"],
}
TYPE_OF = {word: name for name, words in (
    ("object", "properties required additionalProperties"), ("string", "minLength maxLength pattern format"),
    ("array", "prefixItems items additionalItems minItems maxItems uniqueItems"),
    ("number", "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf")) for word in words.split()}
PLAIN = ["plain", "enum", "length", "pattern", "format", "integer", "number", "multiple"]
FEATURES = PLAIN + ["array", "row", "unique", "object", "additional", "allOf", "anyOf", "oneOf", "ref"]
ALL = FEATURES + ["refused"]


class Program:
    def __init__(self, path):
        self.pipe = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, letter, text):
        text = text.encode()
        self.pipe.stdin.write(b"%s%d\n%s" % (letter.encode(), len(text), text))
        self.pipe.stdin.flush()
        line = self.pipe.stdout.readline().decode()
        if not line:
            sys.exit("the program ended at " + letter + " " + text.decode())
        return line.rstrip("\n")

    def walk(self, seed):
        size = int(self.ask("W", str(seed)))
        return None if size < 0 else self.pipe.stdout.read(size).decode()


def fail(what, schema, text, seed):
    sys.exit("schema_compare: %s (seed %d)\n  schema %s\n  text   %s" % (what, seed, write(schema), text))


def compare(program, total, seed, cases=None, other=None):
    counts = {name: [0, 0, 0] for name in ALL}
    sums, reasons, at = {"walked": 0, "changed": 0, "made": 0}, {}, 0
    while sum(sums.values()) < total:
        name, at = ALL[at % len(ALL)], at + 1
        maker = Maker(seed * 1000003 + at)
        schema = maker.schema(name)
        answer = program.ask("S", write(schema))
        counts[name][1] += 1
        if answer != "ok":
            if not re.search(r"at byte \d+ of the schema, .* \(#.*\)|ever ends|begins with itself", answer):
                fail("a refusal without a place: " + answer, schema, "", seed)
            if ("ever ends" in answer or "no text fits" in answer) and "leads back" not in answer:
                counts[name][2] += 1
                for _ in range(20 if "ever ends" in answer else 0): # the other one may be about a part of the schema
                    try:
                        text = write(maker.value([schema], schema))
                    except ValueError:
                        continue
                    if valid(read(text), schema, schema):
                        fail("a schema that a text fits is refused: " + answer, schema, text, seed)
                continue
            reason = re.sub(r".*of the schema, ([a-zA-Z$ ]*).*", r"\1", answer)[:60]
            reasons[reason] = reasons.get(reason, 0) + 1
            continue
        counts[name][0] += 1
        if name == "refused":
            fail("this has to be refused", schema, "", seed)
        kept = []
        for i in range(12):
            text = program.walk(seed * 7919 + at * 100 + i)
            if text is None:
                continue
            value = read(text)
            sums["walked"] += 1
            if not valid(value, schema, schema):
                fail("a text of the grammar is not valid", schema, text, seed)
            kept.append((text, True))
        for i in range(8):
            try:
                value = maker.value([schema], schema)
            except ValueError:
                continue
            if not valid(value, schema, schema):
                continue
            text = write(value)
            sums["made"] += 1
            if program.ask("F", text) != "1":
                fail("a valid text in the canonical form does not fit", schema, text, seed)
            kept.append((text, True))
            for _ in range(3):
                value = maker.changed(value)
                text = write(value)
                fits = program.ask("F", text) == "1"
                sums["changed"] += 1
                if fits and not valid(value, schema, schema):
                    fail("a text that is not valid fits", schema, text, seed)
                kept.append((text, fits))
        if other:
            for text, fits in kept:
                if fits and not other(json.loads(write(schema)), json.loads(text)):
                    fail("jsonschema refuses a text that fits", schema, text, seed)
        if cases is not None:
            cases.append((schema, kept))
    return counts, sums, reasons


def literal(text):
    out, after = "", False
    for byte in text.encode():
        c = chr(byte)
        out += ("\" \"" if after and c in "0123456789abcdefABCDEF" else "") + (
            "\\" + c if c in "\"\\" else c if 32 <= byte < 127 and c != "?" else "\\x%02x" % byte)
        after = not (32 <= byte < 127 and c != "?")
    return '"' + out + '"'


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    program = Program(arguments[0])
    if "--write" in sys.argv:
        cases = []
        compare(program, 1500, 1, cases)
        lines = ["// SPDX-License-Identifier: MIT",
                 "/*  schema_cases.h - written by schema_compare.py --write: schemas, and texts that fit or do not */",
                 "static const struct schema_case {", "    const char *schema, *text;", "    bool fits;",
                 "} schema_cases[] = {"]
        for schema, kept in cases:
            if len(write(schema)) > 400:
                continue
            some = [k for k in kept if len(k[0]) < 100]
            for text, fits in some[:2] + [k for k in some if not k[1]][:2]:
                lines.append("    {%s, %s, %s}," % (literal(write(schema)), literal(text), "true" if fits else "false"))
        with open(os.path.join(HERE, "schema_cases.h"), "w") as file:
            file.write("\n".join(lines + ["};"]) + "\n")
        return
    other = None
    if "--jsonschema" in sys.argv:
        import jsonschema
        other = lambda schema, value: jsonschema.Draft202012Validator(schema).is_valid(value)
    total = int(arguments[1]) if len(arguments) > 1 else 10000
    counts, sums, reasons = compare(program, total, int(arguments[2]) if len(arguments) > 2 else 1, None, other)
    for name, (taken, made, empty) in counts.items():
        print("  %-12s %6d schemas: %6d accepted, %6d that no text fits" % (name, made, taken, empty))
    taken, made = (sum(c[0] + i * (c[1] - c[2] - c[0]) for n, c in counts.items() if n != "refused") for i in (0, 1))
    print("  refused for:", ", ".join("%s (%d)" % r for r in sorted(reasons.items(), key=lambda r: -r[1])[:8]))
    print("schema_compare: %d of %d schemas accepted (%.1f %%), of those that texts fit and that have no unsupported "
          "keyword; %d texts: %d of walks, %d changed, %d made; all sound" % (taken, made, 100.0 * taken / made,
                                                                              sum(sums.values()), sums["walked"],
                                                     sums["changed"], sums["made"]))


main()
