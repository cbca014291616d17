#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Opens saved trainings with the Python packages transformers and safetensors.

    tests/train/trainings_compare.py PROGRAM        PROGRAM is training_copy.c, compiled

Small random models of transformers are saved as trainings of 1, 2 and 5 ranks: from_pretrained opens the folder, each tensor has its bits, and the
pieces of the optimizer's state are together all of it. The last line: N passed, N failed, N skipped
"""
import glob
import os
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig
except ImportError as error:
    print(f"skipped: a Python package is not installed ({error})")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

MODELS = {
    "gpt2": (GPT2Config(vocab_size=61, n_positions=32, n_embd=24, n_layer=2, n_head=3, n_inner=40), torch.float32),
    "llama": (LlamaConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40,
                          max_position_embeddings=64), torch.bfloat16),
}
passed = failed = 0


def check(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("failed:", what)


def compare(name, config, dtype, ranks, folder):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).to(dtype)
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    tensors = {key: value.contiguous() for key, value in model.state_dict().items() if not (tied and key == "lm_head.weight")}
    save_file(tensors, os.path.join(folder, "in.safetensors"))
    out = os.path.join(folder, "out")
    subprocess.run([sys.argv[1], os.path.join(folder, "in.safetensors"), out, str(ranks)], check=True)
    config.dtype = dtype
    config.save_pretrained(out)
    opened, info = AutoModelForCausalLM.from_pretrained(out, dtype=dtype, output_loading_info=True)
    check(not info["unexpected_keys"] and not info["missing_keys"] and not info["mismatched_keys"], f"{name}, {ranks} ranks: {info}")
    state = opened.state_dict()
    for key, value in tensors.items():
        check(state[key].dtype == dtype and torch.equal(state[key], value), f"{name}, {ranks} ranks: {key}")
    pieces = {}
    files = glob.glob(os.path.join(out, "training-*.safetensors"))
    check(len(files) == ranks, f"{name}: {len(files)} files of {ranks} ranks")
    for path in files:
        with safe_open(path, "pt") as file:
            for key in file.keys():
                pieces[key] = file.get_tensor(key)
    check(pieces["optimizer.0"][3] == 1, f"{name}: one step was taken")
    for key, value in tensors.items():
        at = 0
        while f"optimizer.0.first.{key}@{at}" in pieces:
            piece = pieces[f"optimizer.0.first.{key}@{at}"]
            check(torch.allclose(piece, torch.full_like(piece, 0.1)), f"{name}, {ranks} ranks: the first moment of {key}")
            at += piece.numel()
        check(at == value.numel(), f"{name}, {ranks} ranks: pieces of {key} end at {at} of {value.numel()}")


for name, (config, dtype) in MODELS.items():
    for ranks in (1, 2, 5):
        with tempfile.TemporaryDirectory() as folder:
            compare(name, config, dtype, ranks, folder)
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed != 0)
