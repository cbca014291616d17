#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""published_values.py - writes published_values.h: the texts of a published checkpoint that published.c has to give

    published_values.py SmolLM2-135M-Instruct.Q4_1.gguf

Needs the Python packages gguf, jinja2, numpy and tokenizers, nothing of Ignis. The package gguf decodes the weights.
NumPy multiplies them in double precision, by the formulas of the Llama of Hugging Face's transformers. Prompts become
ids by the packages tokenizers and jinja2 with the file's vocabulary and chat template. Afterwards: make format."""
import os
import sys

import gguf
import jinja2
import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

PROMPTS = ["The capital of France is", "1, 2, 3, 4, 5, 6,", "def add(a, b):\n    return"]
ANSWER = 8
TEXT = ("The sky is blue because air scatters short waves of light more than long ones. In the evening the light "
        "comes a longer way, and the sun looks red.")
CHAT = [{"role": "user", "content": "What is the capital of France?"}]
CHAT_ANSWER = 16


class Reference:
    """The forward of a Llama in a GGUF file, whose heads of q and k rotate adjacent elements."""

    def __init__(self, reader):
        self.w = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64).reshape(
            [int(n) for n in t.shape[::-1]]) for t in reader.tensors}
        self.layers, self.heads, self.kv, self.eps, theta = (reader.fields[f"llama.{key}"].contents() for key in (
            "block_count", "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon",
            "rope.freq_base"))
        self.dim = self.w["blk.0.attn_q.weight"].shape[0] // self.heads
        self.frequencies = theta ** (-np.arange(0, self.dim, 2) / self.dim)
        self.forget()

    def forget(self):
        self.keys, self.values, self.length = [None] * self.layers, [None] * self.layers, 0

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name]

    def rotate(self, x, positions):
        angles = positions[:, None, None] * self.frequencies
        cos, sin, out = np.cos(angles), np.sin(angles), np.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
        out[..., 1::2] = x[..., 1::2] * cos + x[..., 0::2] * sin
        return out

    def logits(self, ids):
        """Logits after each of these tokens, which follow those of the calls before."""
        w, positions = self.w, np.arange(self.length, self.length + len(ids))
        x = w["token_embd.weight"][ids]
        for i in range(self.layers):
            at = f"blk.{i}."
            y = self.norm(x, at + "attn_norm.weight")
            q, k, v = ((y @ w[f"{at}attn_{which}.weight"].T).reshape(len(ids), -1, self.dim) for which in "qkv")
            q, k = self.rotate(q, positions), self.rotate(k, positions)
            self.keys[i] = k if self.keys[i] is None else np.concatenate([self.keys[i], k])
            self.values[i] = v if self.values[i] is None else np.concatenate([self.values[i], v])
            out = np.empty_like(q)
            for head in range(self.heads):
                of = head * self.kv // self.heads
                scores = q[:, head] @ self.keys[i][:, of].T / np.sqrt(self.dim)
                scores[np.arange(scores.shape[1]) > positions[:, None]] = -np.inf
                scores = np.exp(scores - scores.max(-1, keepdims=True))
                out[:, head] = (scores / scores.sum(-1, keepdims=True)) @ self.values[i][:, of]
            x = x + out.reshape(len(ids), -1) @ w[at + "attn_output.weight"].T
            y = self.norm(x, at + "ffn_norm.weight")
            gate = y @ w[at + "ffn_gate.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * (y @ w[at + "ffn_up.weight"].T)) @ w[at + "ffn_down.weight"].T
        self.length += len(ids)
        return self.norm(x, "output_norm.weight") @ w["token_embd.weight"].T

    def answer(self, ids, count, end):
        """The likeliest tokens, and the least distance of one of them to the next."""
        self.forget()
        out, margin = [], np.inf
        while len(out) < count and (not out or out[-1] != end):
            scores = self.logits(np.array(out[-1:] if out else ids))[-1]
            two = np.sort(np.partition(scores, -2)[-2:])
            margin = min(margin, two[1] - two[0])
            out.append(int(scores.argmax()))
        return out, margin

    def perplexity(self, ids):
        self.forget()
        scores = self.logits(np.array(ids))[:-1]
        top = scores.max(-1)
        losses = top + np.log(np.exp(scores - top[:, None]).sum(-1)) - scores[np.arange(len(ids) - 1), ids[1:]]
        return float(np.exp(losses.mean()))


def tokenizer_of(field):
    tokens = field("ggml.tokens")
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)},
                                     [tuple(m.split(" ")) for m in field("ggml.merges")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, field("ggml.token_type")) if kind == 3])
    return tokenizer


def case(text, ids, answer):
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '{"%s", {%s}, %d, {%s}, %d},' % (text, ", ".join(map(str, ids)), len(ids), ", ".join(map(str, answer)),
                                           len(answer))


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    field = lambda name: reader.fields["tokenizer." + name].contents()
    end, tokenizer, reference = field("ggml.eos_token_id"), tokenizer_of(field), Reference(reader)
    ids_of = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(field("chat_template"))
    asked = ids_of(template.render(messages=CHAT, add_generation_prompt=True))
    cases, margins = [], []
    for prompt in PROMPTS + [None]:
        ids = ids_of(prompt) if prompt else asked
        answer, margin = reference.answer(ids, ANSWER if prompt else CHAT_ANSWER, end)
        cases.append(case(prompt or CHAT[0]["content"], ids, answer))
        margins.append(margin)
        print(f"{prompt!r}: {tokenizer.decode(answer)!r}, margin {margin:.3f}")
    ids = ids_of(TEXT)
    perplexity = reference.perplexity(ids)
    print(f"perplexity of {len(ids)} tokens: {perplexity:.9f}")
    lines = ["// SPDX-License-Identifier: MIT",
             "/*  published_values.h - written by published_values.py, which says how: texts of SmolLM2-135M-Instruct "
             "(Q4_1)",
             "",
             "    A prompt, its ids, and the likeliest tokens after it; the last one is a chat. Its answer ends by itself.",
             "    The least difference of two logits that decide about a token is %.3f. */" % min(margins),
             "static const struct published_case {",
             "    const char *prompt;", "    int32_t ids[64];", "    int count;",
             "    int32_t answer[%d];" % CHAT_ANSWER,
             "    int answer_count;", "} published_cases[] = {", *cases, "};", "",
             "static const char published_text[] = \"%s\";" % TEXT,
             "enum { PUBLISHED_TOKENS = %d }; /* of this text */" % len(ids),
             "static const double published_perplexity = %.9f;" % perplexity]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "published_values.h"), "w") as file:
        file.write("\n".join(lines) + "\n")


main()
