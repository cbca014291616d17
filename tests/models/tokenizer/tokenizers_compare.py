#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds Ignis' tokenizers against the Python package tokenizers.

    tests/models/tokenizer/tokenizers_compare.py PROGRAM [TEXTS [SEED]]        PROGRAM is text_ids.c, compiled

Trains a vocabulary of each kind on the text at hand, and compares the ids of random texts (10,000 for each kind), with the nastiest of
Unicode among them, and the texts of their ids and of random ids, at once and as a stream.
The last line: N passed, N failed, N skipped
"""
import base64
import glob
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

try:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as error:
    print(f"skipped: the Python package tokenizers is not installed ({error})")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

try:
    import gguf
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as model_pb2
except ImportError:
    gguf = None

program = sys.argv[1]
count = int(sys.argv[2]) if len(sys.argv) > 2 else 10000
rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
passed = failed = 0

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
APART = "e\u0301t\u00e9"
BYTES = pre_tokenizers.ByteLevel.alphabet()
MIXED = ("Die Straße führt nach Köln. Ça va, naïve façade? Ελληνικά και русский текст, 中文字符和漢字カタカナ한국어 텍스트 "
         "हिन्दी पाठ العربية עברית ภาษาไทย 😀😃👩‍👩‍👧 don't we'll I'VE they'RE x = 3.14159; 123456789 2²³½ Ⅷ\n\n\t  \r\n")


def corpus():
    lines = []
    for name in sorted(glob.glob(os.path.join(root, "*.md")) + glob.glob(os.path.join(root, "examples", "*.c"))):
        with open(name, encoding="utf-8") as file:
            lines += file.read().splitlines(True)
    return lines + [MIXED] * 20


def learn(tokenizer, **how):
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=how.pop("size", 3000), show_progress=False, **how))


def bytes_kind(split, normalizer=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    learn(tokenizer, initial_alphabet=BYTES)
    return tokenizer


def gpt2():
    tokenizer = bytes_kind(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    return tokenizer


def prefix():
    tokenizer = bytes_kind(pre_tokenizers.ByteLevel(add_prefix_space=True))
    tokenizer.add_special_tokens([AddedToken("<mask>", special=True, lstrip=True, normalized=False), AddedToken("<s>", special=True)])
    tokenizer.add_tokens([AddedToken("word", single_word=True), AddedToken("right", rstrip=True), AddedToken(" both ", lstrip=True, rstrip=True)])
    return tokenizer


def split(pattern, **how):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), how.pop("behavior", "isolated"), **how),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama3():
    tokenizer = bytes_kind(split(LLAMA3), ignore_merges=True)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"] + ["<|reserved_special_token_%d|>" % i for i in range(250)])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                             special_tokens=[("<|begin_of_text|>", begin)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def qwen2():
    tokenizer = bytes_kind(split(QWEN2), normalizers.NFC())
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ("<tool_call>", "</tool_call>", "<think>", "</think>")])
    return tokenizer


def qwen2_apart():
    tokenizer = qwen2()
    tokenizer.add_tokens([AddedToken(APART, normalized=True)])
    return tokenizer


CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE = r"[^\r\n\p{L}\p{N}]?"
OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def by_case(end, digits):
    return f"{BEFORE}{UPPER}*{LOWER}+{end}|{BEFORE}{UPPER}+{LOWER}*{end}|{digits}|{OTHERS}"


def o200k():
    return bytes_kind(split(by_case(CONTRACTION, r"\p{N}{1,3}")))


def tekken():
    return bytes_kind(split(by_case("", r"\p{N}")), ignore_merges=True)


def steps(*parts, regex=False):
    return bytes_kind(pre_tokenizers.Sequence([*parts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)]))


def isolated(*patterns):
    return [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]


MARKS_AND_LETTERS = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|"
                     r"\s+(?!\S)|\s+")


def deepseek():
    return steps(*isolated(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", MARKS_AND_LETTERS))


def tiny_aya():
    return steps(*isolated(r"\d{1,3}(?=(?:\d{3})*\b)", by_case(CONTRACTION, r"\p{N}{1,3}")))


def kimi():
    """The pattern of tokenization_kimi.py."""
    upper, lower = (f"[{some}\\p{{Lm}}\\p{{Lo}}\\p{{M}}&&[^\\p{{Han}}]]" for some in (r"\p{Lu}\p{Lt}", r"\p{Ll}"))
    return bytes_kind(split(rf"[\p{{Han}}]+|{BEFORE}{upper}*{lower}+{CONTRACTION}|{BEFORE}{upper}+{lower}*{CONTRACTION}|\p{{N}}{{1,3}}|"
                            rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"))


def superbpe():
    return steps(*isolated(r"\p{N}+", r"(?=(\d{3})+(?!\d))"))


def exaone_moe():
    return bytes_kind(split(CONTRACTION[:-1] + "|" + BEFORE + r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|"
                            r"\s+(?!\S)|\s+"))


def afmoe():
    """The first pattern is llama.cpp's code for numbers: groups of three from the end."""
    return steps(*isolated(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", "[一-鿿㐀-䶿豈-\ufaff぀-ゟ゠-ヿ･-ﾟ⼀-\u2fdfเ-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+",
                           MARKS_AND_LETTERS))


def scripts():
    return steps(*isolated(r"[\p{Han}\p{Hiragana}\p{Katakana}]+|\p{Hangul}\P{Thai}|[^\p{Lao}\p{Khmer}\p{Myanmar}]\b|[\p{^Han}&&[^\p{L}\d]]{2}(?:\d\s){1,2}\p{L}"))


def deepseek_coder():
    return steps(*isolated(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+"), pre_tokenizers.Digits(individual_digits=True))


def bailing():
    return steps(*isolated(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"))


def falcon():
    return steps(pre_tokenizers.Punctuation("contiguous"), *isolated("[0-9][0-9][0-9]"), regex=True)


def punctuation():
    return steps(pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=False), regex=True)


def whitespace():
    return steps(pre_tokenizers.Whitespace())


def whitespace_pieces():
    """Jina's embeddings of Chinese."""
    tokenizer = pieces()
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\S+"), "removed", invert=True)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B:1", special_tokens=[])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def whitespace_split():
    return steps(pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_next"))


def behaviors():
    return steps(pre_tokenizers.Split(" ", "merged_with_previous"), pre_tokenizers.Split("e", "merged_with_next"),
                 pre_tokenizers.Split(Regex(r"[\p{Ll}\d]"), "contiguous"), pre_tokenizers.Split(Regex(r"\p{Sc}|$"), "removed"),
                 pre_tokenizers.Split(Regex(r"\p{Lu}\p{Ll}*(?=\s)"), "isolated", invert=True))


def removed():
    return bytes_kind(split(GPT2, behavior="removed", invert=True))


def smollm():
    tokenizer = bytes_kind(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    return tokenizer


def digits():
    return bytes_kind(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel(add_prefix_space=True)]))


def holes():
    """Some bytes have no token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    learn(tokenizer, size=800, special_tokens=["<unk>"], limit_alphabet=60)
    return tokenizer


def unsplit():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    learn(tokenizer, size=1500, initial_alphabet=BYTES)
    return tokenizer


def pieces(size=2000, **model):
    """A vocabulary of characters, as SentencePiece makes it: control tokens, bytes, pieces."""
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Replace(" ", "\u2581")
    learner.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    learn(learner, size=size, limit_alphabet=150)
    state = json.loads(learner.to_str())["model"]
    vocabulary = {t: i for i, t in enumerate(["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)])}
    for token in sorted(state["vocab"], key=state["vocab"].get):
        vocabulary.setdefault(token, len(vocabulary))
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in state["merges"]]
    if model.pop("runs", False):  # tokens of several spaces, and one with a space inside
        for k in (2, 4):
            vocabulary["\u2581" * k] = len(vocabulary)
            merges.append(("\u2581" * (k // 2), "\u2581" * (k // 2)))
    if model.pop("inside", False):
        vocabulary["e\u2581"] = len(vocabulary)
        merges.insert(20, ("e", "\u2581"))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", **{"fuse_unk": True, "byte_fallback": True, **model}))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=model.get("fuse_unk", False)) for t in ("<unk>", "<s>", "</s>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def llama2(**how):
    tokenizer = pieces(**how)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    return tokenizer


def metaspace(scheme, split, decoder=False, **how):
    tokenizer = pieces(**how)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    if decoder:
        tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme, split=split)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def word_pieces(pre=None, size=3000, limit=100, cleanup=True, **how):
    """BERT's kind of tokenizer."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=limit))
    tokenizer.normalizer = normalizers.BertNormalizer(**how)
    tokenizer.pre_tokenizer = pre or pre_tokenizers.BertPreTokenizer()
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=size, show_progress=False, special_tokens=tokens, limit_alphabet=200))
    tokenizer.decoder = decoders.WordPiece(cleanup=cleanup)
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                             special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def bert_processing():
    tokenizer = word_pieces(pre_tokenizers.Whitespace(), size=800, limit=7, cleanup=False, lowercase=False, handle_chinese_chars=False)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def charsmap():
    """The map of characters of published models: sentencepiece writes it into each model that it trains with nmt_nfkc."""
    with tempfile.TemporaryDirectory() as folder:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["abc"]), model_prefix=os.path.join(folder, "m"), vocab_size=8,
                                                 normalization_rule_name="nmt_nfkc", hard_vocab_limit=False, minloglevel=2)
        model = model_pb2.ModelProto()
        with open(os.path.join(folder, "m.model"), "rb") as file:
            model.ParseFromString(file.read())
        return normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)


def map_of(changes):
    """A map of few texts: a double array whose nodes have blocks of 256 children each."""
    keys = {key.encode(): value.encode() for key, value in changes.items()}
    units, blocks, blob = {}, 0, b"".join(value + b"\0" for value in keys.values())
    places = dict(zip(keys, [sum(len(v) + 1 for v in list(keys.values())[:i]) for i in range(len(keys))]))

    def add(at, prefix):
        nonlocal blocks
        blocks += 1
        block = 256 * blocks
        units[at] = (at ^ block) << 10 | (prefix in keys) << 8 | (prefix[-1] if prefix else 0)
        if prefix in keys:
            units[block] = places[prefix] | 1 << 31
        for byte in sorted({key[len(prefix)] for key in keys if key.startswith(prefix) and len(key) > len(prefix)}):
            add(block ^ byte, prefix + bytes([byte]))

    add(0, b"")
    array = [units.get(i, 0) for i in range(256 * (blocks + 1))]
    return normalizers.Precompiled(struct.pack("<I%dI" % len(array), 4 * len(array), *array) + blob)


def unigram(normalizer, pre, size=2000, fallback=False, scores=None, lstrip=True):
    """T5's and XLM-RoBERTa's kind of tokenizer."""
    learner = Tokenizer(models.Unigram())
    learner.normalizer = normalizers.NFKC()
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=size, show_progress=False, unk_token="<unk>", special_tokens=["<s>", "<pad>", "</s>", "<unk>"])
    learner.train_from_iterator(corpus(), trainer)
    vocabulary = [(text, struct.unpack("f", struct.pack("f", score))[0]) for text, score in json.loads(learner.to_str())["model"]["vocab"]]  # as in files
    if scores:
        vocabulary = [(text, scores()) for text, _ in vocabulary]
    if fallback:
        vocabulary += [("<0x%02X>" % i, 0.0) for i in range(fallback)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=3, byte_fallback=bool(fallback)))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.Metaspace() if not fallback else decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<s>", "<pad>", "</s>", "<unk>")] +
                                 [AddedToken("<mask>", special=True, lstrip=lstrip, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer


def xlm_roberta():
    return unigram(normalizers.Sequence([charsmap(), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "\u2581")]),
                   pre_tokenizers.Metaspace())


def t5():
    return unigram(charsmap(), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), lstrip=False)


def t5_first():
    normalizer = normalizers.Sequence([charsmap(), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "\u2581")])
    return unigram(normalizer, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), size=800)


def albert():
    return unigram(normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                         normalizers.Nmt(), charsmap(), normalizers.Replace(Regex(" {2,}"), " ")]),
                   pre_tokenizers.Metaspace(), size=600)


def unigram_bytes():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Metaspace(split=False)])
    return unigram(normalizers.NFD(), pre, fallback=256)


def unigram_some_bytes():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.Metaspace("\u2581", "never")])
    return unigram(normalizers.NFKC(), pre, size=300, fallback=200)


def unigram_few_scores():
    """Scores that are equal, and above 0."""
    return unigram(normalizers.NFKD(), pre_tokenizers.CharDelimiterSplit(" "), size=500, scores=lambda: rng.choice([-2.0, -1.5, 3.0, 100.0]))


def small_map():
    """Prefixes in a map, and parts of clusters."""
    changes = {"a": "", "th": "TH", "e\u0301": "E", "e\u0301t": "never", "\r": " ", "\u0915": "K", "\u0958": "Q", "\u0301": "'", "\u0300": "`", "\xA9": "(c)",
               "\u200D": "-", "\uAC00": "ga", "\u1100": "g", "\u11A8": "k", "\U0001F600": ":)", "\u0600": "", "\u304B": "ka", "\u3099": "\u2581"}
    return unigram(map_of(changes), pre_tokenizers.Metaspace(), size=400)


def gemma():
    tokenizer = pieces()
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def gemma4():
    tokenizer = gemma()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[^\\n]+|[\\n]+"), "isolated")
    return tokenizer


def pieces_in_steps():
    tokenizer = pieces(runs=True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex("x*"), "-")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Metaspace()])
    return tokenizer


def nfkd():
    return bytes_kind(split(LLAMA3), normalizers.NFKD())


def raw():
    tokenizer = pieces(byte_fallback=False, fuse_unk=False)
    tokenizer.add_tokens([AddedToken("the", single_word=True, normalized=True)])
    return tokenizer


KINDS = {
    "gpt2": gpt2, "prefix": prefix, "llama3": llama3, "qwen2": qwen2, "qwen2 with more": qwen2_apart, "removed": removed, "smollm": smollm, "o200k": o200k,
    "tekken": tekken, "deepseek": deepseek, "deepseek coder": deepseek_coder, "bailing": bailing, "falcon": falcon, "punctuation": punctuation,
    "whitespace": whitespace, "whitespace pieces": whitespace_pieces, "tiny aya": tiny_aya, "kimi": kimi, "superbpe": superbpe,
    "exaone moe": exaone_moe, "afmoe": afmoe, "scripts": scripts, "whitespace split": whitespace_split, "behaviors": behaviors, "digits": digits, "holes": holes,
    "unsplit": unsplit, "llama2": llama2, "llama2 with runs": lambda: llama2(runs=True), "llama2 with spaces inside": lambda: llama2(inside=True),
    "llama2 without bytes": lambda: llama2(byte_fallback=False), "metaspace first": lambda: metaspace("first", False),
    "metaspace always": lambda: metaspace("always", True, decoder=True, runs=True), "metaspace never": lambda: metaspace("never", False, decoder=True),
    "raw": raw, "bert": word_pieces, "bert with case": lambda: word_pieces(lowercase=False),
    "gemma": gemma, "gemma4": gemma4, "pieces in steps": pieces_in_steps, "nfkd": nfkd,
    "unigram with bytes": unigram_bytes, "unigram with some bytes": unigram_some_bytes, "unigram of few scores": unigram_few_scores,
    "bert with accents": lambda: word_pieces(strip_accents=False, clean_text=False), "bert processing": bert_processing,
}

if gguf:  # the others have a map of characters, which sentencepiece makes
    KINDS.update({"xlm-roberta": xlm_roberta, "t5": t5, "t5 first": t5_first, "albert": albert, "small map": small_map})

PRE = {"gpt2": "gpt-2", "llama3": "llama-bpe", "smollm": "smollm", "qwen2": "qwen2", "o200k": "gpt-4o", "tekken": "tekken", "deepseek": "deepseek-v3",
       "deepseek coder": "deepseek-coder", "bailing": "bailingmoe", "bert": "bert", "gemma4": "gemma4", "t5": "t5",
       "tiny aya": "tiny_aya", "kimi": "kimi-k2", "superbpe": "superbpe", "exaone moe": "exaone-moe", "afmoe": "afmoe", "whitespace pieces": "whitespace"}  # those that a GGUF file can say

NASTY = [chr(c) for c in (0, 1, 9, 10, 11, 12, 13, 28, 31, 32, 127, 0x80, 0x85, 0xA0, 0xAD, 0x130, 0x131, 0x17F, 0x212A, 0x300, 0x301, 0x323, 0x345,
                          0x41E, 0x5D0, 0x627, 0x64B, 0x651, 0x915, 0x93C, 0x94D, 0xE01, 0xE33, 0x1100, 0x1161, 0x11A8, 0xAC00, 0xAC01, 0x1680, 0x180E,
                          0x1E9B, 0x2000, 0x200B, 0x200D, 0x2028, 0x2029, 0x202F, 0x2060, 0x2126, 0x2160, 0x24B6, 0x2581, 0x3000, 0x3099, 0x304B,
                          0x4E00, 0xF900, 0xFB1D, 0xFB2C, 0xFE0F, 0xFEFF, 0xFFFD, 0xFFFF, 0x600, 0x6DD, 0x94D, 0x958, 0xA9, 0xE47,
                          0x1F1E6, 0x200C, 0xFB01, 0xFDFA, 0xFF21, 0xFF76, 0xFF9E, 0x11DE0, 0x1D15E, 0x1D7CE, 0x16EF4, 0x1F600, 0x2F800, 0x10FFFF)]
WORDS = ["the", "word", "right", " both ", "don't", "I'LL", "we've", "'s", "'S", "'\u017f", "'", "it's", "123", "4567", "0", "e\u0301te\u0301", "été",
         "\r\n", "\n\n", "  ", "   \n ", " ", " ", " ", "\t", "_", "...", "!?", "<s>", "</s>", "<unk>", "<0x41>", "<mask>", "  <mask>  ", "<|endoftext|>",
         "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|reserved_special_token_1", "<|reserved_special_token_12|>", "<think>", "\u2581", "tensor",
         "Ignis", "array", "1234567", "12 34567 x9", "1 000,000.25", "漢字かなカタカナ", "ไทย ລາວ ខ្មែរ မြန်မာ", "안녕 하세요 여러분", "e\u0301 e\u0301 a b",
          "aaaa" * 9, "Straße", "漢字", "한국어", "हिन्दी", "👩‍👩‍👧", "int main(void)", "x=3.14;"]


def random_text(lines):
    parts = []
    for _ in range(rng.choice([0, 1, 1, 2, 3, 5, 8, 20])):
        how = rng.random()
        if how < 0.3:
            parts.append(rng.choice(WORDS))
        elif how < 0.5:
            parts.append(rng.choice(NASTY))
        elif how < 0.7:
            line = rng.choice(lines)
            begin = rng.randrange(len(line) + 1)
            parts.append(line[begin:begin + rng.randrange(80)])
        elif how < 0.8:
            parts.append(rng.choice(MIXED) * rng.choice([1, 1, 2, 3, 50]))
        elif how < 0.9:
            base = rng.choice([0, 0x80, 0x300, 0x400, 0x1E00, 0x2000, 0xAC00, 0x1F300, 0x10000, 0x1D100])
            parts.append("".join(chr(base + rng.randrange(256)) for _ in range(rng.randrange(6))))
        else:
            code = rng.randrange(0x110000)
            parts.append(chr(code) if not 0xD800 <= code < 0xE000 else " ")
    return "".join(parts)


def check(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok and failed < 40:
        print("failed:", what)


class Other:
    """The program, asked one thing after the other."""

    def __init__(self, path):
        self.process = subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, kind, flags, data, size, width):
        self.process.stdin.write(kind + struct.pack("<ii", flags, size) + data)
        self.process.stdin.flush()
        head = self.process.stdout.read(4)
        if len(head) < 4:
            sys.exit(f"failed: the program has ended, with {self.process.wait()}\n0 passed, 1 failed, 0 skipped")
        got = struct.unpack("<i", head)[0]
        return self.process.stdout.read(max(got, 0) * width)

    def encode(self, data, flags=0):
        return [i[0] for i in struct.iter_unpack("<i", self.ask(b"e", flags, data, len(data), 4))]

    def decode(self, ids, control, kind=b"d"):
        return self.ask(kind, int(control), struct.pack("<%di" % len(ids), *ids), len(ids), 1)

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def same_text(got, wanted, fallback):
    """How many U+FFFD stand for broken bytes differs; and of <0xXX> in a row that are not UTF-8 together, tokenizers drops the whole ones, too."""
    if fallback and "\ufffd" in wanted:
        return True
    return re.sub("\ufffd+", "\ufffd", got) == re.sub("\ufffd+", "\ufffd", wanted)


def compare(name, path, tokenizer, lines):
    other = Other(path)
    fallback = "ByteFallback" in str(tokenizer.decoder)
    apart = tokenizer.token_to_id(APART)  # tokenizers decodes its normalized form, as if that were byte-level
    ids_below = tokenizer.get_vocab_size()
    for i in range(count):
        text = random_text(lines)
        if "GGUF" in name and "ByteLevel" not in str(tokenizer.decoder):  # a GGUF file has no added token for what is unknown
            text = text.replace("<unk>", "<?>")
        data = text.encode()
        if i % 10 == 9:  # not UTF-8
            data = bytearray(data)
            for _ in range(rng.randrange(4)):
                data.insert(rng.randrange(len(data) + 1), rng.choice([0x80, 0xC0, 0xC3, 0xE2, 0xED, 0xF0, 0xF4, 0xFF]))
            data = bytes(data)
            text = data.decode(errors="replace")
        flags = rng.randrange(4)
        if "Unigram" in str(tokenizer.model) and any(t.content in text for t in tokenizer.get_added_tokens_decoder().values()):
            flags &= 1  # tokenizers finds control tokens in plain text, too
        tokenizer.encode_special_tokens = bool(flags & 2)
        wanted = tokenizer.encode(text, add_special_tokens=not flags & 1).ids
        got = other.encode(data, flags)
        check(got == wanted, f"{name}: ids of {data!r} with {flags}: {got}, not {wanted}")
        ids = wanted if i % 2 else [rng.randrange(ids_below) for _ in range(rng.randrange(12))]
        ids = [i for i in ids if i != apart]
        control = rng.random() < 0.5
        out = tokenizer.decode(ids, skip_special_tokens=not control)
        got = other.decode(ids, control)
        check(same_text(got.decode(errors="replace"), out, fallback), f"{name}: text of {ids}: {got!r}, not {out!r}")
        stream = other.decode(ids, control, b"s")
        check(stream.decode() == got.decode(errors="replace"), f"{name}: stream of {ids}: {stream!r}, not {got!r}")
    check(other.close() == 0, f"{name}: the program ends with an error")


TYPES = {"normal": 1, "unknown": 2, "control": 3, "user": 4, "unused": 5, "byte": 6}


def write_gguf(path, model, pre, tokens, types, scores=None, merges=None, **facts):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if scores:
        writer.add_token_scores(scores)
    if merges:
        writer.add_token_merges(merges)
    for name, value in facts.items():
        getattr(writer, "add_" + name)(*value if isinstance(value, tuple) else (value,))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_of(tokenizer, path, pre):
    """What a converter writes for a byte-level tokenizer, or for WordPiece."""
    state = json.loads(tokenizer.to_str())
    added = {t["id"]: t for t in state["added_tokens"]}
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    types = [TYPES["control" if added[i]["special"] else "user"] if i in added else TYPES["normal"] for i in range(len(tokens))]
    if pre == "bert":
        tokens = [t if i in added else t[2:] if t.startswith("##") else "\u2581" + t for i, t in enumerate(tokens)]
        types[tokenizer.token_to_id("[UNK]")] = TYPES["control"]
        return write_gguf(path, "bert", "jina-v2-en", tokens, types, bos_token_id=2, sep_token_id=3, unk_token_id=1)
    if pre == "t5":
        types[3] = TYPES["unknown"]
        scores = [score for _, score in state["model"]["vocab"]] + [0.0]
        return write_gguf(path, "t5", "default", tokens, types, scores, bos_token_id=0, eos_token_id=2, unk_token_id=3, add_bos_token=True,
                          add_eos_token=True, add_space_prefix=True, remove_extra_whitespaces=True,
                          precompiled_charsmap=base64.b64decode(state["normalizer"]["precompiled_charsmap"]))
    merges = [m if isinstance(m, str) else " ".join(m) for m in state["model"]["merges"]]
    if pre == "whitespace":
        types[:259] = [TYPES["unknown"], TYPES["control"], TYPES["control"]] + [TYPES["byte"]] * 256
        return write_gguf(path, "gpt2", pre, tokens, types, merges=merges, unk_token_id=0, bool=("tokenizer.ggml.normalizer.lowercase", True))
    if pre == "gemma4":
        types[:259] = [TYPES["unknown"], TYPES["control"], TYPES["control"]] + [TYPES["byte"]] * 256
        return write_gguf(path, "gpt2", pre, tokens, types, merges=merges, bos_token_id=1)
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    write_gguf(path, "gpt2", pre, tokens, types, merges=merges, **({"bos_token_id": begin} if begin else {}))


def tekken_of(trained, path):
    """Writes tekken.json, Mistral's form of a tokenizer, and returns what tokenizers takes for the same: each pair of tokens that forms a third."""
    state = json.loads(trained.to_str())["model"]
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    tokens = sorted(state["vocab"], key=state["vocab"].get)
    byte_of = {chr(b if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else 323 if b == 173 else 256 + b if b <= 32 else 289 + b - 127): b for b in range(256)}
    vocab = [dict(rank=rank, token_bytes=base64.b64encode(bytes(byte_of[c] for c in token)).decode(), token_str=None) for rank, token in enumerate(tokens)]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(dict(config=dict(pattern=by_case("", r"\p{N}"), num_vocab_tokens=len(tokens), default_vocab_size=8 + len(tokens) - 5,
                                   default_num_special_tokens=8, version="v7"), vocab=vocab,
                       special_tokens=[dict(rank=i, token_str=name, is_control=True) for i, name in enumerate(names)]), file)
    tokens = tokens[:-5]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    merges = [(token[:i], token[i:]) for token in tokens for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
    names += [f"<SPECIAL_{i}>" for i in range(5, 8)]
    tokenizer = Tokenizer(models.BPE({**{name: i for i, name in enumerate(names)}, **{token: 8 + rank for token, rank in ranks.items()}}, merges,
                                     ignore_merges=True))
    tokenizer.pre_tokenizer = split(by_case("", r"\p{N}"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer


def compare_sentencepiece(folder, lines):
    """A vocabulary with scores, as in the GGUF files of Llama 2, against the package that makes them."""
    path = os.path.join(folder, "pieces.gguf")
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter([line.rstrip("\n") for line in lines]), model_prefix=os.path.join(folder, "pieces"),
                                             vocab_size=1500, model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                                             remove_extra_whitespaces=False, character_coverage=0.99, minloglevel=2)
    model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "pieces.model"))
    size = model.get_piece_size()
    types = [TYPES["unknown" if model.is_unknown(i) else "control" if model.is_control(i) else "byte" if model.is_byte(i) else "normal"]
             for i in range(size)]
    write_gguf(path, "llama", None, [model.id_to_piece(i) for i in range(size)], types, [model.get_score(i) for i in range(size)],
               bos_token_id=1, eos_token_id=2)
    other = Other(path)
    space = model.piece_to_id("<0x20>")
    for i in range(count):
        text = random_text(lines).replace("\0", "")
        wanted = model.encode(text)
        got = other.encode(text.encode(), 2 | 1)
        check(got == wanted, f"sentencepiece: ids of {text!r}: {got}, not {wanted}")
        ids = wanted if i % 2 else [rng.randrange(3, size) for _ in range(rng.randrange(12))]
        ids = [i for i in ids if i != space]  # at the front tokenizers takes it for a space, sentencepiece does not
        out, got = model.decode(ids), other.decode(ids, False)
        check(same_text(got.decode(errors="replace"), out, True), f"sentencepiece: text of {ids}: {got!r}, not {out!r}")
        check(other.decode(ids, False, b"s").decode() == got.decode(errors="replace"), f"sentencepiece: stream of {ids}")
    check(other.encode(b"")[:2] == [1], "sentencepiece: bos")
    check(other.close() == 0, "sentencepiece: the program ends with an error")
    print(f"sentencepiece: {size} tokens, {count} texts; {failed} failed so far", flush=True)


def main():
    skipped = 0
    lines = corpus()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer.json")
        chosen = os.environ.get("KINDS", "")
        for name, make in KINDS.items():
            if chosen not in name:
                continue
            tokenizer = make()
            tokenizer.save(path)
            tokenizer = Tokenizer.from_file(path)
            compare(name, path, tokenizer, lines)
            print(f"{name}: {tokenizer.get_vocab_size()} tokens, {count} texts; {failed} failed so far", flush=True)
            if name == "tekken":
                path_tekken = os.path.join(folder, "tekken.json")
                compare("tekken.json", path_tekken, tekken_of(tokenizer, path_tekken), lines)
            if gguf and name in PRE:
                path_gguf = os.path.join(folder, "tokenizer.gguf")
                gguf_of(tokenizer, path_gguf, PRE[name])
                compare(name + ", GGUF", path_gguf, tokenizer, lines)
        if not gguf:
            print("skipped: the Python packages gguf and sentencepiece are not installed, so no GGUF file is compared")
            skipped = 1
        elif chosen in "sentencepiece":
            compare_sentencepiece(folder, lines)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
