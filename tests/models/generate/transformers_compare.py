# SPDX-License-Identifier: MIT
"""Models against transformers: python3 tests/models/generate/transformers_compare.py [--size tiny|true] [--program generate_logits] [family ...]

Makes models with random weights, in the shapes of real ones (true) or small ones (tiny, what it takes where there is no GPU), rounds them to bf16,
and saves them with transformers. generate_logits.c, built with cc, feeds a prompt and then eight tokens more, one by one, goes on by the likeliest
token, and saves the model again. The truth is transformers in f64 with the same weights. What has to be:

    logits      an error is the norm of the difference, divided by that of the truth. Ignis in bf16 and f32 may have twice what transformers has
                in that dtype, f32 at least 2e-6
    greedy      each token is the truth's likeliest one behind those before it, or below it by no more than twice the largest error of a logit
    saved       transformers opens the folder that Ignis has saved in bf16, and computes the same logits to the bit

Runs on the GPU; where there is none, on the simulator, with PyTorch on the CPU."""
import argparse
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config
except ImportError as error:
    print(f"PyTorch or transformers is not installed ({error})")
    raise SystemExit(0)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS, GREEDY = 8, 16
ROPE = dict(rope_type="llama3", factor=32.0, high_freq_factor=4.0, low_freq_factor=1.0, rope_theta=500000.0)
torch.backends.cuda.matmul.allow_tf32 = False
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def configs(size):
    """Name: configuration. Those of GPT-2 124M, Llama 3.2 1B, Qwen2.5 0.5B and Qwen3 0.6B."""
    if size == "tiny":
        shared = dict(vocab_size=131, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                      max_position_embeddings=128)
        return {
            "gpt2": GPT2Config(vocab_size=131, n_positions=128, n_embd=48, n_layer=2, n_head=3),
            "llama": LlamaConfig(rope_parameters=dict(ROPE, original_max_position_embeddings=16), head_dim=16, **shared),
            "qwen2": Qwen2Config(tie_word_embeddings=True, **shared),
            "qwen3": Qwen3Config(tie_word_embeddings=True, head_dim=32, **shared),
        }
    return {
        "gpt2": GPT2Config(),
        "llama": LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                             num_key_value_heads=8, head_dim=64, max_position_embeddings=131072, tie_word_embeddings=True,
                             rope_parameters=dict(ROPE, original_max_position_embeddings=8192), rms_norm_eps=1e-5),
        "qwen2": Qwen2Config(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                             num_key_value_heads=2, tie_word_embeddings=True),
        "qwen3": Qwen3Config(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
                             num_key_value_heads=8, head_dim=128, tie_word_embeddings=True),
    }


@torch.no_grad()
def scores(model, ids, first):
    """The logits behind each token from `first` on."""
    return model(input_ids=torch.tensor(ids, device=DEVICE).unsqueeze(0)).logits[0, first:].double().cpu()


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa").to(DEVICE).eval()


def write(config, folder):
    torch.manual_seed(1)
    with torch.device(DEVICE):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for parameter in model.parameters():
        if parameter.dim() == 1:  # norms and biases that are not all ones and zeros
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)


def compare(program, name, config, prompt, top):
    """How much of it is wrong."""
    folder = os.path.join(top, "model")
    write(config, folder)
    ids = torch.randint(0, config.vocab_size, (prompt + STEPS,)).tolist()
    outs = {}
    for dtype in ("bf16", "f32"):
        outs[dtype] = os.path.join(top, dtype)
        os.mkdir(outs[dtype])
        subprocess.run([program, folder, dtype, outs[dtype], str(prompt), str(GREEDY)] + [str(i) for i in ids], check=True)
    model = load(folder)
    peer = {"bf16": scores(model, ids, prompt - 1)}
    saved = torch.equal(scores(load(os.path.join(outs["bf16"], "model")), ids, prompt - 1), peer["bf16"])
    peer["f32"] = scores(model.float(), ids, prompt - 1)
    truth = scores(model.double(), ids, prompt - 1)
    wrong = 0
    for dtype, least in (("bf16", 0), ("f32", 2e-6)):
        ours = torch.from_numpy(numpy.fromfile(os.path.join(outs[dtype], "logits"), numpy.float32).reshape(truth.shape)).double()
        error, theirs = (((x - truth).norm() / truth.norm()).item() for x in (ours, peer[dtype]))
        text = numpy.fromfile(os.path.join(outs[dtype], "greedy"), numpy.int32).tolist()
        behind = scores(model, text, len(ids) - 1)[:-1]
        drawn = torch.tensor(text[len(ids):]).unsqueeze(1)
        short = (behind.max(-1).values - behind.gather(1, drawn)[:, 0]).max().item()
        margin = 2 * (ours - truth).abs().max().item()
        likeliest = (behind.argmax(-1) == drawn[:, 0]).sum().item()
        ok = [error <= max(2 * theirs, least), text[:len(ids)] == ids and len(drawn) == GREEDY and short <= margin, saved]
        wrong += not all(ok)
        failed = [what for what, good in zip(("logits", "greedy", "saved"), ok) if not good]
        print(f"{name:6} {dtype:4} error {error:.2e}, transformers {theirs:.2e}; {likeliest} of {GREEDY} tokens the likeliest, others by {short:.1e} of"
              f" {margin:.1e}; saved {'the same' if saved else 'another'}{'  FAIL ' + ', '.join(failed) if failed else ''}", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=("tiny", "true"), default="true" if DEVICE == "cuda" else "tiny")
    parser.add_argument("--program", help="generate_logits, if it is built")
    parser.add_argument("families", nargs="*")
    options = parser.parse_args()
    models = {name: config for name, config in configs(options.size).items() if not options.families or name in options.families}
    wrong = 0
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory() as top:
        program = options.program or os.path.join(top, "generate_logits")
        if not options.program:
            subprocess.run([os.environ.get("CC", "cc"), "-O0", "-I", ROOT, os.path.join(ROOT, "tests/models/generate/generate_logits.c"), "-o", program, "-lm",
                            "-ldl", "-lpthread"], check=True)
        for name, config in models.items():
            with tempfile.TemporaryDirectory(dir=memory) as folder:
                wrong += compare(program, name, config, 100 if options.size == "true" else 20, folder)
    print(f"transformers_compare: {2 * len(models) - wrong} passed, {wrong} failed, 0 skipped")
    return wrong > 0


sys.exit(main())
