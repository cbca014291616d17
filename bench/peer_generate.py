# SPDX-License-Identifier: MIT
"""What bench_generate measures, by transformers: python3 bench/peer_generate.py [compile] [random] [folder=/dev/shm] [batch=1,8,64] [steps=48] [gpt2] [qwen3-0.6b]
[llama-1b] [llama-8b] [gpt-oss-20b] [qwen3-30b-a3b] [deepseek-v2-lite] [qwen3-next] [long=2048]

Opens the folders that bench_generate has written. Decoding has a static cache of 1024 tokens and takes the likeliest token on the device; the whole
step is a CUDA graph, or, with compile, torch.compile of the model in its mode reduce-overhead. Nothing is copied to the host between tokens. Mixtures
of experts are measured without a graph, too, as not all versions can capture them; long=2048 measures a prompt of so many tokens, too. random: weights are
drawn on the device instead of read, which takes a minute and more for mixtures; experts in MXFP4 become bf16, as transformers would have converted them.
Without a GPU it runs on the CPU, in tiny sizes, to see that it works; there bench_generate on the simulator writes the model tiny."""
import statistics
import sys
import time

try:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, StaticCache
except ImportError:
    print("PyTorch or transformers is not installed")
    raise SystemExit(0)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
wait = torch.cuda.synchronize if DEVICE == "cuda" else lambda: None
PROMPT, STEPS, ROUNDS, ROOM = (512, 48, 5, 1024) if DEVICE == "cuda" else (20, 2, 1, 64)
compiled, drawn = "compile" in sys.argv, "random" in sys.argv
options = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
STEPS = int(options.get("steps", STEPS))
folder, batches = options.get("folder", "/dev/shm"), [int(b) for b in options.get("batch", "1,8,64").split(",")]
MIXTURES = ("gpt-oss-20b", "qwen3-30b-a3b", "deepseek-v2-lite", "qwen3-next")
names = [word for word in sys.argv[1:] if "=" not in word and word not in ("compile", "random")] or ["gpt2", "llama-1b"]
long_prompt = int(options.get("long", 0))
if DEVICE == "cpu":
    names, batches, long_prompt = [name for name in names if name in MIXTURES] or ["tiny"], [1, 8], 40 if long_prompt else 0
print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {'torch.compile' if compiled else 'CUDA graph'}")


def timed(run, rounds=ROUNDS):
    times = []
    for _ in range(rounds):
        wait()
        start = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@torch.no_grad()
def decode(model, batch, captured):
    cache = StaticCache(config=model.config, max_cache_len=ROOM)
    ids = (torch.arange(PROMPT, device=DEVICE) * 7919 + 13).remainder(model.config.vocab_size).repeat(batch, 1)
    place = torch.arange(PROMPT, device=DEVICE)
    for first in range(0, PROMPT, PROMPT if batch < 64 else 64):
        some = slice(first, first + (PROMPT if batch < 64 else 64))
        model(input_ids=ids[:, some], past_key_values=cache, position_ids=place[some].unsqueeze(0), use_cache=True, logits_to_keep=1)
    token = ids[:, -1:].clone()
    at = torch.full((1,), PROMPT, device=DEVICE, dtype=torch.int64)
    torch._dynamo.reset()
    forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=False, dynamic=False) if compiled and captured is None else model.forward

    def step():
        logits = forward(input_ids=token, past_key_values=cache, position_ids=at.unsqueeze(0), use_cache=True).logits
        token.copy_(logits[:, -1:].argmax(-1))
        at.add_(1)

    if not captured:
        for _ in range(4):
            step()
        run = step
    else:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay

    def steps():
        at.fill_(PROMPT)
        for layer in cache.layers:
            if hasattr(layer, "cumulative_length"):  # not of recurrent layers, whose state goes on
                layer.cumulative_length.fill_(PROMPT)
        for _ in range(STEPS):
            run()

    steps()
    return timed(steps) / STEPS


@torch.no_grad()
def first(model, prompt=PROMPT):
    ids = (torch.arange(prompt, device=DEVICE) * 7919 + 13).remainder(model.config.vocab_size).unsqueeze(0)

    def run():
        model(input_ids=ids, use_cache=True, logits_to_keep=1).logits[:, -1].argmax(-1).item()

    run()
    return timed(run)


@torch.no_grad()
def products(config):
    """The matrix products of a prompt, by torch.matmul: those of one layer, whose weights are new each time, for each layer."""
    heads, hidden = config.num_attention_heads, config.hidden_size
    size = getattr(config, "head_dim", None) or hidden // heads
    width = (heads + 2 * (getattr(config, "num_key_value_heads", None) or heads)) * size
    gated = hasattr(config, "intermediate_size")  # else as GPT-2 has it
    inner = config.intermediate_size if gated else 4 * hidden
    shapes = [(width, hidden), (hidden, heads * size), (inner * (2 if gated else 1), hidden), (hidden, inner)]
    weights = [torch.randn(n, k, device=DEVICE, dtype=torch.bfloat16) * 0.02 for n, k in shapes]
    x = [torch.randn(PROMPT, k, device=DEVICE, dtype=torch.bfloat16) for _, k in shapes]

    def run():
        for _ in range(config.num_hidden_layers):
            for some, weight in zip(x, weights):
                torch.matmul(some, weight.T)

    run()
    return timed(run)


def opened(path):
    """The model; by eager attention where this version has no other one for it, as of gpt-oss."""
    config = transformers.AutoConfig.from_pretrained(path)
    if drawn and hasattr(config, "quantization_config"):
        del config.quantization_config
    for attention in ("sdpa", "eager"):
        try:
            if not drawn:
                return AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, attn_implementation=attention).to(DEVICE).eval()
            with torch.device(DEVICE):
                return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation=attention).eval()
        except ValueError:
            if attention == "eager":
                raise


for name in names:
    model = opened(f"{folder}/ignis-{name}")
    ways = [("torch.compile", None)] if compiled else [("CUDA graph", True)]
    ways = [("eager", False)] if DEVICE == "cpu" else ways + [("eager", False)] if name in MIXTURES else ways
    for batch in batches:
        for way, captured in ways:
            try:
                seconds = decode(model, batch, captured)
                print(f"{name:10} {batch:3} sequences {batch / seconds:10.1f} tokens/s {seconds * 1e6:10.1f} us a step, {way}", flush=True)
            except Exception as error:  # a version without this path: the rest is still worth measuring
                print(f"{name:10} {batch:3} sequences: {way}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            torch.cuda.empty_cache()
    print(f"{name:10} {PROMPT} tokens to the first one behind them {first(model) * 1e3:10.2f} ms", flush=True)
    if long_prompt:
        print(f"{name:10} {long_prompt} tokens to the first one behind them {first(model, long_prompt) * 1e3:10.2f} ms", flush=True)
    if name not in MIXTURES:
        print(f"{name:10} {PROMPT} tokens, the matrix products alone  {products(model.config) * 1e3:10.2f} ms", flush=True)
    del model
    torch.cuda.empty_cache()
