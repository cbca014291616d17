#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes text_tables.h: small tokenizers, and the ids and texts that the Python package tokenizers makes of texts with them.

    tests/models/tokenizer/text_tables.py > tests/models/tokenizer/text_tables.h        afterwards clang-format
"""
import json

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

LEARNED = ["the tensor of the other tensors is there, and the others are not; they're here, aren't they? it's we'll I'm you've he'd",
           "hello world, hello other world; the world is not the tensor", "return 0;\n    return 1;\n        if (x == 12) {\n\n\n",
           "été à la Straße, naïve café", "привет мир, привет", "中文 中文字 漢字", "😀😀 aaaaaaaa"] * 3
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
LOW = "\u2581"


def learn(alphabet, pre, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(LEARNED, trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=alphabet))
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]


def split(pattern):
    return {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, BYTES(False, False)]}


def BYTES(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def added(first, *texts, **how):
    return [{"id": first + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **how}
            for i, t in enumerate(texts)]


def template(front, back=()):
    one = [{"SpecialToken": {"id": t, "type_id": 0}} for t, _ in front] + [{"Sequence": {"id": "A", "type_id": 0}}]
    one += [{"SpecialToken": {"id": t, "type_id": 0}} for t, _ in back]
    return {"type": "TemplateProcessing", "single": one, "pair": one + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in [*front, *back]}}


bytes_vocabulary, bytes_merges = learn(pre_tokenizers.ByteLevel.alphabet(), pre_tokenizers.ByteLevel(add_prefix_space=False), 330)
N = len(bytes_vocabulary)
learned, pieces_merges = learn([], pre_tokenizers.Metaspace(), 130)
pieces_vocabulary = {t: i for i, t in enumerate(["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)])}
for token in sorted(learned, key=learned.get):
    pieces_vocabulary.setdefault(token, len(pieces_vocabulary))
P = len(pieces_vocabulary)
PIECES_DECODER = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": LOW}, "content": " "}, {"type": "ByteFallback"},
                                                   {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": LOW}, {"type": "Replace", "pattern": {"String": " "}, "content": LOW}]}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": LOW, "prepend_scheme": scheme, "split": split}


CONTROL = added(N, "<|endoftext|>", "<|im_start|>", "<|im_end|>")
PLAIN_PIECES = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
# name, model, more of the model, added tokens, normalizer, pre_tokenizer, post_processor, decoder
FAMILIES = [
    ("gpt2", "bytes", {}, CONTROL[:1], None, BYTES(), BYTES(), BYTES()),
    ("gpt2", "bytes", {}, CONTROL[:1] + added(N + 1, "<mask>", lstrip=True) + added(N + 2, "word", "right", special=False, single_word=True) +
     added(N + 4, "<r>", rstrip=True), None, BYTES(True), None, BYTES()),
    ("llama3", "bytes", {"ignore_merges": True}, added(N, "<|begin_of_text|>", "<|end_of_text|>", "<|eot|>", "<|eot"), None, split(LLAMA3),
     {"type": "Sequence", "processors": [BYTES(), template([("<|begin_of_text|>", N)])]}, BYTES()),
    ("qwen2", "bytes", {}, CONTROL + added(N + 3, "<think>", "</think>", special=False), {"type": "NFC"}, split(QWEN2), BYTES(), BYTES()),
    ("smollm", "bytes", {}, CONTROL, None, {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES()]}, None, BYTES()),
    ("llama", "pieces", PLAIN_PIECES, added(0, "<unk>", "<s>", "</s>", normalized=True), PREPEND, None, template([("<s>", 1)]), PIECES_DECODER),
    ("llama", "pieces", PLAIN_PIECES, added(0, "<unk>", "<s>", "</s>"), None, metaspace("first", False), template([("<s>", 1)], [("</s>", 2)]), PIECES_DECODER),
    ("llama", "pieces", {**PLAIN_PIECES, "byte_fallback": False}, added(0, "<unk>", "<s>", "</s>"), None, metaspace("always", True), None, metaspace("always", True)),
]
TEXTS = ["", "hello world", " hello  world ", "the tensors aren't there; they'RE I'LL we've it's'", "12345 678x9", "a\n\n  b \r\n\r\n  \t c  ", "   ",
         "\n", "été e\u0301te\u0301 q\u0323\u0307 q\u0307\u0323 \u212b \uac01 \u1100\u1161\u11a8 \u1100\u1161 \u0958 \u1e9b\u0323", "привет мир 中文字 漢字 😀👩\u200d👧",
         "<|endoftext|>hello<|im_start|>user\nthe world<|im_end|>", "x  <mask>  y word wordy word, right <r>  the", "<|begin_of_text|>a<|eot|><|eot b<|eo",
         "<s>hello</s> the<unk> </s>", "<think>the</think> not", "\u0130\u017f '\u017fa \u2581\u2581the\u2581 \u3000\u00a0x\u0085y", "a\0b\x7f\x80\uffff\U0010ffff",
         "return 0;\n        if (x == 12) {\n\n\n}", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "½²Ⅷ٣߁ 𝟘९", "the <0x41> <0x0A>\u2581hello"]


def literal(data, width=130):
    """Bytes as lines of C."""
    lines, line = [], ""
    for byte in data:
        c = chr(byte)
        item = "\\" + c if c in '"\\?' else c if 32 <= byte < 127 else "\\n" if c == "\n" else "\\%03o" % byte
        if len(line) + len(item) > width:
            lines.append(line)
            line = ""
        line += item
    return " ".join('"%s"' % x for x in lines + [line])


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def lines_of(name, items):
    print(f"static const char *const {name}[] = {{")
    for i in range(0, len(items), 24):
        print("    " + literal((",".join(items[i:i + 24]) + ("," if i + 24 < len(items) else "")).encode()) + ",")
    print("    NULL};\n")


print(f"""// SPDX-License-Identifier: MIT
/*  text_tables.h - written by text_tables.py, with tokenizers {tokenizers.__version__}: small tokenizers, texts, ids */
#ifndef TEXT_TABLES_H
#define TEXT_TABLES_H

enum {{ BYTES_TOKENS = {N}, PIECES_TOKENS = {P} }};

/*  Vocabularies and merges, in parts. */""")
lines_of("bytes_vocabulary", [compact(t) + ":%d" % i for t, i in sorted(bytes_vocabulary.items(), key=lambda x: x[1])])
lines_of("bytes_merges", [compact(m) for m in bytes_merges])
lines_of("pieces_vocabulary", [compact(t) + ":%d" % i for t, i in pieces_vocabulary.items()])
lines_of("pieces_merges", [compact(m.split(" ")) for m in pieces_merges])
print("""typedef struct text_family {
    const char *name;
    bool pieces;
    const char *model, *added, *normalizer, *pre_tokenizer, *post_processor, *decoder; /* as JSON; model: fields, each behind a comma */
} text_family;

static const text_family families[] = {""")
rows, ids = [], []
for number, (name, kind, model, tokens, *parts) in enumerate(FAMILIES):
    fields = "".join(",%s:%s" % (compact(k), compact(v)) for k, v in model.items())
    print("    {%s}," % ", ".join(["\"%s\"" % name, "true" if kind == "pieces" else "false"] + [literal(x.encode()) for x in
                                  [fields, compact(tokens)] + [compact(p) for p in parts]]))
    vocabulary, merges = (pieces_vocabulary, pieces_merges) if kind == "pieces" else (bytes_vocabulary, bytes_merges)
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
             **dict(zip(("normalizer", "pre_tokenizer", "post_processor", "decoder"), parts)),
             "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                       "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary, "merges": merges, **model}}
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    special = {t["id"] for t in tokens if t["special"]}  # the package itself does not leave out those that are normalized
    for at, text in enumerate(TEXTS):
        for flags in (0, 3):
            if flags and at not in (10, 12, 13, 14):
                continue
            tokenizer.encode_special_tokens = flags == 3
            got = tokenizer.encode(text, add_special_tokens=not flags).ids
            rows.append((number, flags, text.encode(), len(got), tokenizer.decode([i for i in got if i not in special]).encode()))
            ids += got
print("""};

/*  What becomes of a text: the next ids of text_ids, and their text without control tokens. flags: 3: plain and no_bos. */
typedef struct text_case {
    int family, flags, size;
    const char *text;
    int count, out_size;
    const char *out;
} text_case;

static const text_case text_cases[] = {""")
for number, flags, text, size, out in rows:
    print("    {%d, %d, %d, %s, %d, %d, %s}," % (number, flags, len(text), literal(text), size, len(out), literal(out)))
print("};\n\nstatic const int32_t text_ids[] = {")
for i in range(0, len(ids), 24):
    print("    " + " ".join("%d," % x for x in ids[i:i + 24]))
print("};\n\n#endif /* TEXT_TABLES_H */")
