# SPDX-License-Identifier: MIT
"""The PyTorch side of bench_training.c: python3 bench/peer_training.py [file with the output of bench_training] [section ...]

Prints the same rows: PyTorch in eager mode, and beside it the best other way that was tried, which is named. With a file both sides stand
in one table, and the last columns divide Ignis by each. Sections: host mlp memory attention gpt llama gpt-xl"""
import os
import re
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    print("PyTorch is not installed")
    raise SystemExit(0)
if not torch.cuda.is_available():
    print("PyTorch sees no GPU")
    raise SystemExit(0)

DEVICE = "cuda"
rows = {}  # name: [unit, eager, other, name of the other]


def row(name, unit, eager, other=None, way=""):
    rows[name] = [unit, eager, other, way]
    print(f"{name}: {eager:.3f} {unit}" + (f", {way} {other:.3f}" if other else ""), file=sys.stderr, flush=True)


def seconds(step, wait=True, repeats=11, goal=0.02):
    """The median time of a step. wait: until the device is done; else only what the caller waits."""

    def batch(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        if wait:
            torch.cuda.synchronize()
        spent = time.perf_counter() - begin
        torch.cuda.synchronize()
        return spent

    batch(3)
    steps = 1
    while steps < 4096 and batch(steps) < goal:
        steps *= 2
    return statistics.median(batch(steps) / steps for _ in range(repeats))


def tried(what, fn):
    """What fn gives, or None, and why on stderr, when PyTorch cannot do it here."""
    try:
        return fn()
    except Exception as failure:  # a backend or compiler that is missing must not end the benchmark
        print(f"{what}: {type(failure).__name__}: {str(failure)[:300]}", file=sys.stderr)
        return None


# --- small operations, a small network --------------------------------------------------------------------------------


def bench_host():
    a, b = torch.randn(1024, device=DEVICE), torch.randn(1024, device=DEVICE)
    many = 64

    def add_many(x):
        for _ in range(many):
            torch.add(x, b)

    row("add of 1024 floats", "us", seconds(lambda: add_many(a), wait=False) / many * 1e6)
    c = a.clone().requires_grad_()
    row("add of 1024 floats, recorded", "us", seconds(lambda: add_many(c), wait=False) / many * 1e6)


def bench_mlp():
    x, targets = torch.randn(64, 64, device=DEVICE), torch.randint(0, 10, (64,), device=DEVICE)

    def network(capturable):
        net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)).to(DEVICE)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.0, capturable=capturable)

        def step():
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(net(x), targets).backward()
            optimizer.step()

        return step

    row("MLP 64-128-128-10 train step", "us", seconds(network(False)) * 1e6)
    step = network(True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    row("MLP train step, CUDA graph", "us", seconds(graph.replay) * 1e6)


# --- operations that memory bounds --------------------------------------------------------------------------------------


def forward_and_backward(fn, inputs, gradient):
    """Seconds of the forward, and of the backward: both together less the forward."""
    forward = seconds(lambda: fn(*inputs))
    first = lambda result: result[0] if isinstance(result, tuple) else result
    both = seconds(lambda: torch.autograd.grad(first(fn(*inputs)), inputs, gradient))
    return forward, both - forward


def bench_rows(count, n):
    size, bytes_ = f"{count}x{n}", 2 * count * n
    x = torch.randn(count, n, device=DEVICE, dtype=torch.bfloat16)
    y = torch.empty_like(x)
    row(f"device copy of {size} bf16", "TB/s", 2 * bytes_ / seconds(lambda: y.copy_(x)) / 1e12)
    gradient = torch.randn_like(x)
    x.requires_grad_()
    w, b = (t.to(DEVICE, torch.bfloat16).requires_grad_() for t in (torch.ones(n), torch.zeros(n)))
    other = torch.randn_like(x).requires_grad_()

    def add_layer_norm(x, other, w, b):
        total = x + other
        return F.layer_norm(total, (n,), w, b, 1e-5), total

    table = {
        "layer_norm": (lambda x, w, b: F.layer_norm(x, (n,), w, b, 1e-5), [x, w, b]),
        "add_layer_norm": (add_layer_norm, [x, other, w, b]),
        "rms_norm": (lambda x, w: F.rms_norm(x, (n,), w, 1e-5), [x, w]),
        "softmax": (lambda x: torch.softmax(x, -1), [x]),
        "log_softmax": (lambda x: torch.log_softmax(x, -1), [x]),
        "gelu": (lambda x: F.gelu(x, approximate="tanh"), [x]),
    }
    for name, (fn, inputs) in table.items():
        eager = forward_and_backward(fn, inputs, gradient)
        torch._dynamo.reset()
        compiled = tried(name, lambda: forward_and_backward(torch.compile(fn), inputs, gradient))
        for which, passes in enumerate((4 if name == "add_layer_norm" else 2, 3)):
            row(f"{name} {size} {'backward' if which else 'forward'}", "TB/s", passes * bytes_ / eager[which] / 1e12,
                passes * bytes_ / compiled[which] / 1e12 if compiled else None, "torch.compile")


def bench_cross_entropy(count, n):
    size, bytes_ = f"{count}x{n}", 2 * count * n
    x = torch.randn(count, n, device=DEVICE, dtype=torch.bfloat16).requires_grad_()
    targets = torch.randint(0, n, (count,), device=DEVICE)

    def times(fn):
        with torch.no_grad():  # forward where no gradient is wanted
            forward = seconds(lambda: fn(x, targets))
        return forward, seconds(lambda: torch.autograd.grad(fn(x, targets), x))

    eager = times(F.cross_entropy)
    torch._dynamo.reset()
    compiled = tried("cross_entropy", lambda: times(torch.compile(F.cross_entropy)))

    def compare(what, unit, figure):
        row(f"cross_entropy {size} {what}", unit, figure(*eager), compiled and figure(*compiled), "torch.compile")

    compare("forward", "TB/s", lambda forward, both: bytes_ / forward / 1e12)
    compare("backward", "TB/s", lambda forward, both: 2 * bytes_ / (both - forward) / 1e12)
    compare("both", "ms", lambda forward, both: both * 1e3)
    compare("both, rate", "TB/s", lambda forward, both: 2 * bytes_ / both / 1e12)


def bench_head(count, width, n):
    """The head of a language model and its loss, forward and backward."""
    x = torch.randn(count, width, device=DEVICE, dtype=torch.bfloat16).requires_grad_()
    w = (0.02 * torch.randn(n, width, device=DEVICE)).to(torch.bfloat16).requires_grad_()
    targets = torch.randint(0, n, (count,), device=DEVICE)

    def loss(x, w):
        return F.cross_entropy(x @ w.t(), targets)

    def time(fn):
        return seconds(lambda: torch.autograd.grad(fn(x, w), (x, w)))

    eager = time(loss)
    torch._dynamo.reset()
    compiled = tried("head", lambda: time(torch.compile(loss)))
    row(f"head {count}x{width}x{n}", "ms", eager * 1e3, compiled and compiled * 1e3, "torch.compile")


def bench_adamw():
    parameters = [nn.Parameter(torch.randn(1000000, device=DEVICE)) for _ in range(100)]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    plain, fused = torch.optim.AdamW(parameters), torch.optim.AdamW(parameters, fused=True)
    rates = [28 * 1e8 / seconds(o.step) / 1e12 for o in (plain, fused)]
    row("AdamW 100M f32", "TB/s", rates[0], rates[1], "fused=True")


def bench_memory():
    bench_rows(65536, 768)
    bench_rows(16384, 4096)
    bench_rows(8192, 12288)
    bench_rows(100000, 257)
    bench_rows(4096, 50257)
    bench_cross_entropy(65536, 768)
    bench_cross_entropy(16384, 4096)
    bench_cross_entropy(16384, 50304)
    bench_head(32768, 768, 50304)
    bench_adamw()


# --- attention ------------------------------------------------------------------------------------------------------------


ROWS_WITH = ""  # of the attention, those with this text in their names


def bench_attention():
    """The shapes of bench_training.c."""
    bf16 = torch.bfloat16
    shapes = [(f"D{d} {'causal' if causal else 'full'} S{length}", d, 2048 // d, 2048 // d, 16384 // length, length, length, causal, bf16)
              for d in (64, 128) for causal in (True, False) for length in (1024, 4096, 16384)]
    shapes += [
        ("D72 causal S4096", 72, 28, 28, 4, 4096, 4096, True, bf16),
        ("D80 causal S4096", 80, 25, 25, 4, 4096, 4096, True, bf16),
        ("D96 causal S4096", 96, 21, 21, 4, 4096, 4096, True, bf16),
        ("D192 causal S4096", 192, 10, 10, 4, 4096, 4096, True, bf16),
        ("D256 causal S4096", 256, 8, 8, 4, 4096, 4096, True, bf16),
        ("D256 full S4096", 256, 8, 8, 4, 4096, 4096, False, bf16),
        ("D128 causal S4096 heads 32/8", 128, 32, 8, 4, 4096, 4096, True, bf16),
        ("D128 causal S4000", 128, 16, 16, 4, 4000, 4000, True, bf16),
        ("D64 causal S4000", 64, 32, 32, 4, 4000, 4000, True, bf16),
        ("D128 causal S4096 f16", 128, 16, 16, 4, 4096, 4096, True, torch.float16),
        ("D128 causal S4096 of 8 heads", 128, 8, 8, 1, 4096, 4096, True, bf16),
        ("D128 causal S1024 of 8 heads", 128, 8, 8, 1, 1024, 1024, True, bf16),
        ("D64 causal S1024 of 12 heads", 64, 12, 12, 1, 1024, 1024, True, bf16),
        ("D64 full S77 on 4096", 64, 32, 32, 4, 77, 4096, False, bf16),
        ("D128 full S77 on 4096", 128, 16, 16, 4, 77, 4096, False, bf16),
        ("D64 causal S128", 64, 32, 32, 128, 128, 128, True, bf16),
        ("D128 causal S128", 128, 16, 16, 128, 128, 128, True, bf16),
        ("D64 causal S1024 packed", 64, 12, 12, 32, 1024, 1024, True, bf16, True),
        ("D128 causal S4096 heads 32/8 packed", 128, 32, 8, 4, 4096, 4096, True, bf16, True),
    ]
    for shape in shapes:
        if ROWS_WITH in shape[0]:
            bench_attention_shape(*shape)
    masked = [
        ("D64 causal S16384 window 1024", 64, 32, 32, 1, 16384, True, dict(window=1024)),
        ("D128 causal S16384 window 4096 heads 32/8", 128, 32, 8, 1, 16384, True, dict(window=4096)),
        ("D128 causal S16384 window 512", 128, 16, 16, 1, 16384, True, dict(window=512)),
        ("D128 full S4096 lengths", 128, 16, 16, 4, 4096, False, dict(lengths=True)),
        ("D128 full S4000 lengths", 128, 16, 16, 4, 4000, False, dict(lengths=True)),
        ("D64 causal S1000 lengths", 64, 32, 32, 16, 1000, True, dict(lengths=True)),
        ("D256 causal S4096 softcap heads 16/8", 256, 16, 8, 4, 4096, True, dict(softcap=50)),
        ("D256 causal S8192 window 4096 softcap heads 16/8", 256, 16, 8, 2, 8192, True, dict(window=4096, softcap=50)),
        ("D64 full S512 bias", 64, 12, 12, 32, 512, False, dict(bias=512)),
        ("D64 causal S2048 bias of keys", 64, 16, 16, 8, 2048, True, dict(bias=1)),
        ("D64 causal S16384 documents 512", 64, 32, 32, 1, 16384, True, dict(document=512)),
        ("D128 causal S16384 documents 1024", 128, 16, 16, 1, 16384, True, dict(document=1024)),
        ("D128 causal S16384 documents 4096 heads 32/8", 128, 32, 8, 1, 16384, True, dict(document=4096)),
        ("D64 causal S4096 sinks heads 64/8", 64, 64, 8, 2, 4096, True, dict(sinks=True)),
        ("D64 causal S4096 sinks window 128 heads 64/8", 64, 64, 8, 2, 4096, True, dict(window=128, sinks=True)),
    ]
    for name, d, heads, kv_heads, batch, length, causal, options in masked:
        if ROWS_WITH not in name:
            continue
        tried(name, lambda: bench_masked_attention(name, d, heads, kv_heads, batch, length, causal, **options))


def bench_masked_attention(name, d, heads, kv_heads, batch, length, causal, window=0, lengths=False, softcap=0, bias=0, document=0, sinks=False):
    """Windows, lengths, documents, softcap and sinks by flex_attention, compiled, with its block mask made beforehand; a bias by it and, which is what
    the column of eager mode has then, by scaled_dot_product_attention with a mask. Sinks are applied to its result, as transformers does."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    inputs = [torch.randn(batch, length, n, d, device=DEVICE, dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
              for n in (heads, kv_heads, kv_heads)]
    gradient = torch.randn(batch, length, heads, d, device=DEVICE, dtype=torch.bfloat16).transpose(1, 2)
    if bias:
        inputs.append(torch.randn(heads, bias, length, device=DEVICE, dtype=torch.bfloat16).requires_grad_())
    if sinks:
        inputs.append(torch.randn(heads, device=DEVICE, dtype=torch.bfloat16).requires_grad_())
    ends = torch.tensor([length * (batch - b) // batch if lengths else length for b in range(batch)], device=DEVICE)

    ids, count = torch.zeros(length, dtype=torch.int32, device=DEVICE), 0
    first = 0
    while document and first < length:  # as bench_training.c has them
        rows = document * (count % 3 + 1) // 2
        ids[first:first + rows] = count
        first, count = first + rows, count + 1

    def seen(b, h, i, j):
        mask = j < ends[b]
        if document:
            mask = mask & (ids[i] == ids[j])
        if causal:
            mask = mask & (j <= i)
        if window:
            mask = mask & (i - j < window)
        return mask

    places = torch.arange(length, device=DEVICE)
    pairs = sum(seen(b, 0, places[:, None], places[None, :]).sum().item() for b in range(batch)) if window or lengths or document else \
        batch * length * length * (0.5 if causal else 1)
    flops = 4 * pairs * d * heads
    mask = create_block_mask(seen, batch if lengths else None, None, length, length, device=DEVICE) if causal or window or lengths or document else None

    def with_sinks(q, k, v, sinks, **options):
        out, lse = flex_attention(q, k, v, return_lse=True, **options)
        return out * torch.sigmoid(lse - sinks[:, None])[..., None].to(out.dtype)

    compiled = torch.compile(with_sinks if sinks else flex_attention, dynamic=False)

    def flex(*x):
        def score(s, b, h, i, j):
            if softcap:
                s = softcap * torch.tanh(s / softcap)
            return s + x[3][h, i if bias > 1 else 0, j] if bias else s

        return compiled(*(x if sinks else x[:3]), score_mod=score if softcap or bias else None, block_mask=mask, enable_gqa=heads != kv_heads)

    def masked(q, k, v, added):
        added = added[None].expand(batch, heads, length, length)
        if causal:
            added = added.masked_fill(~torch.ones(length, length, dtype=torch.bool, device=DEVICE).tril(), float("-inf"))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=added)

    best = tried("flex_attention", lambda: forward_and_backward(flex, inputs, gradient))
    eager = forward_and_backward(masked, inputs, gradient) if bias else best
    if not eager:
        return
    for which, factor in enumerate((1, 2.5)):
        row(f"sdpa {name} {'backward' if which else 'forward'}", "TFLOP/s", factor * flops / eager[which] / 1e12,
            factor * flops / best[which] / 1e12 if best else None, "flex_attention")


def bench_attention_shape(name, d, heads, kv_heads, batch, sq, sk, causal, dtype, packed=False):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def tensor(length, heads):  # as a network has it: [batch, length, heads, d] in memory
        return torch.randn(batch, length, heads, d, device=DEVICE, dtype=dtype).transpose(1, 2)

    def parts(qkv):  # of what one projection gives
        return (y.view(batch, sq, -1, d).transpose(1, 2) for y in qkv.split([heads * d, kv_heads * d, kv_heads * d], 2))

    def attention(*inputs):
        q, k, v = parts(inputs[0]) if packed else inputs
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != kv_heads)

    if packed:
        inputs = [torch.randn(batch, sq, (heads + 2 * kv_heads) * d, device=DEVICE, dtype=dtype).requires_grad_()]
    else:
        inputs = [tensor(sq, heads).requires_grad_()] + [tensor(sk, kv_heads).requires_grad_() for _ in range(2)]
    gradient = tensor(sq, heads)
    flops = 4 * sq * sk * d * heads * batch * (0.5 if causal else 1)

    def times(backend):
        with sdpa_kernel(backend):
            return forward_and_backward(attention, inputs, gradient)

    flash = times(SDPBackend.FLASH_ATTENTION)
    cudnn = tried("cuDNN", lambda: times(SDPBackend.CUDNN_ATTENTION))
    for which, factor in enumerate((1, 2.5)):
        row(f"sdpa {name} {'backward' if which else 'forward'}", "TFLOP/s", factor * flops / flash[which] / 1e12,
            factor * flops / cudnn[which] / 1e12 if cudnn else None, "cuDNN")


# --- GPT-2 ------------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocab=50304, context=1024, layers=12, heads=12, width=768):
        super().__init__()
        self.table, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.table(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.table.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.qkv, self.out = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split([c, self.kv_heads * self.size, self.kv_heads * self.size], 2)
        q, k, v = (y.view(b, t, -1, self.size).transpose(1, 2) for y in (q, k, v))

        def turn(y):
            first, second = y.chunk(2, -1)
            return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(v.dtype)

        y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, vocab=128256, context=2048, layers=16, heads=32, kv_heads=8, width=2048, hidden=8192):
        super().__init__()
        self.table = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv_heads, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        size = width // heads
        angles = torch.outer(torch.arange(context), 500000.0 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.table.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def bench_model(name, make, batch, context, classes):
    tokens, targets = (torch.randint(0, classes, (batch, context), device=DEVICE) for _ in range(2))

    def rate(compile_it):
        torch.manual_seed(0)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        model = make().to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
        call = torch.compile(model) if compile_it else model

        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                loss = call(tokens, targets)
            loss.backward()
            optimizer.step()

        spent = seconds(step)
        return batch * context / spent / 1e3, torch.cuda.max_memory_reserved() / 2**30

    torch.backends.cuda.matmul.allow_tf32 = True
    plain = tried(name, lambda: rate(False)) or (float("nan"), float("nan"))
    torch._dynamo.reset()
    compiled = tried(name, lambda: rate(True)) or (None, None)
    row(f"{name} train step", "ktokens/s", plain[0], compiled[0], "torch.compile")
    row(f"{name}, peak of device memory", "GiB", plain[1], compiled[1], "torch.compile")


def bench_gpt():
    bench_model("GPT-2 124M, B 32, T 1024", GPT, 32, 1024, 50257)


def bench_llama():
    bench_model("Llama 1B, B 4, T 2048", Llama, 4, 2048, 128256)


def bench_gpt_xl():
    bench_model("GPT-2 1.5B, B 8, T 1024", lambda: GPT(layers=48, heads=25, width=1600), 8, 1024, 50257)


# --- the table ------------------------------------------------------------------------------------------------------------------

SECTIONS = {
    "host": bench_host,
    "mlp": bench_mlp,
    "memory": bench_memory,
    "attention": bench_attention,
    "gpt": bench_gpt,
    "llama": bench_llama,
    "gpt-xl": bench_gpt_xl,
}


def read_ignis(path):
    """Name: value, of the table that bench_training prints last."""
    found = {}
    with open(path) as file:
        for line in file:
            cells = re.match(r"(\S.*?)\s+([\d.]+) (us|ms|TB/s|TFLOP/s|ktokens/s|GiB)\b", line)
            if cells:
                found[cells.group(1)] = float(cells.group(2))
    return found


def cell(value, width):
    return f"{value:{width}.3f}" if value is not None else " " * width


def main():
    global ROWS_WITH
    chosen = [a for a in sys.argv[1:] if a in SECTIONS]
    ROWS_WITH = "".join(a[5:] for a in sys.argv[1:] if a.startswith("rows="))
    files = [a for a in sys.argv[1:] if a not in SECTIONS and not a.startswith("rows=")]
    if len(files) > 1 or any(not os.path.exists(f) for f in files):
        raise SystemExit(__doc__)
    ignis = read_ignis(files[0]) if files else {}
    for name, run in SECTIONS.items():
        if not chosen or name in chosen:
            run()
    print(f"\nPyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    print(f"{'':<44} {'Ignis':>10} {'eager':>10} {'other':>10} {'unit':<10} {'Ignis/eager':>11} {'/other':>7}  other")
    for name, (unit, eager, other, way) in rows.items():
        own = ignis.get(name)
        print(f"{name:<44} {cell(own, 10)} {cell(eager, 10)} {cell(other, 10)} {unit:<10} {cell(own and own / eager, 11)}"
              f" {cell(own / other if own and other else None, 7)}  {way if other else ''}".rstrip())


if __name__ == "__main__":
    main()
