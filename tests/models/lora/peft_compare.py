# SPDX-License-Identifier: MIT
"""peft_compare.py - adapters against Hugging Face's PEFT, in both directions, for a small random model of each family

    peft_compare.py LORA_RUN

Adapters that Ignis has made are opened by PEFT, and the model that they were merged into by transformers; adapters that PEFT has made are opened by
Ignis, saved again, and opened by PEFT: the scores are the same within rounding in f32. Without the packages the check is skipped."""
import os
import subprocess
import sys
import tempfile

try:
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config
except ImportError as error:
    print(f"skipped: the Python package is not installed ({error})")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

IDS = [1, 5, 3, 2, 7, 4, 6, 0, 9]
SIZES = dict(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40,
             max_position_embeddings=64)
MODELS = {
    "gpt2": GPT2Config(vocab_size=61, n_positions=32, n_embd=24, n_layer=2, n_head=3, n_inner=40),
    "llama": LlamaConfig(**SIZES, head_dim=8),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
}
TOLERANCE = 1e-5  # of the largest score: sums of f32 in different orders, through two layers
passed = failed = 0


def check(what, got, wanted, other):
    """Both scores are the same, and adapters that change nothing would be seen."""
    global passed, failed
    off = float((got - wanted).abs().max() / wanted.abs().max())
    effect = float((other - wanted).abs().max() / wanted.abs().max())
    good = off <= TOLERANCE and effect > 0.05
    passed, failed = passed + good, failed + (not good)
    if not good:
        print(f"FAIL {what}: off by {off:.2g}; the adapters change {effect:.2g}")


def scores(model):
    with torch.no_grad():
        return model.eval()(torch.tensor([IDS])).logits


def run(program, model, adapter, out):
    os.makedirs(out)
    subprocess.run([program, model, adapter, out] + [str(i) for i in IDS], check=True)
    return load_file(out + "/logits.safetensors")["logits"]


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder).float()


def compare(program, folder, name):
    model = AutoModelForCausalLM.from_config(MODELS[name]).float()
    for weight in model.parameters():
        weight.data += 0.05 * torch.randn_like(weight)
    base = f"{folder}/{name}"
    model.save_pretrained(base)
    plain = scores(model)
    ours = run(program, base, "-", base + "/ours")
    check(name + ", made by Ignis", scores(PeftModel.from_pretrained(load(base), base + "/ours/adapter")), ours, plain)
    check(name + ", merged by Ignis", scores(load(base + "/ours/merged")), ours, plain)
    configs = {
        "defaults": LoraConfig(task_type="CAUSAL_LM"),
        "all products, rslora": LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=7, use_rslora=True, target_modules="all-linear", lora_dropout=0.1),
        "one layer": LoraConfig(task_type="CAUSAL_LM", r=4, layers_to_transform=[1], init_lora_weights="gaussian",
                                target_modules=["c_proj" if name == "gpt2" else "o_proj"]),
    }
    for what, config in configs.items():
        theirs = get_peft_model(load(base), config)
        for weight_name, weight in theirs.named_parameters():
            if "lora_B" in weight_name:
                weight.data = 0.2 * torch.randn_like(weight)
        path = f"{base}/{what}"
        theirs.save_pretrained(path)
        got = run(program, base, path, path + "/out")
        check(f"{name}, made by PEFT: {what}", got, scores(theirs), plain)
        check(f"{name}, saved again: {what}", scores(PeftModel.from_pretrained(load(base), path + "/out/adapter")), scores(theirs), plain)


torch.manual_seed(0)
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    for name in MODELS:
        compare(os.path.abspath(sys.argv[1]), folder, name)
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed != 0)
