# SPDX-License-Identifier: MIT
"""Every operation of Ignis against PyTorch: python3 tests/ops/torch_compare.py [--cases 3] [--seed 1] [operation ...]

Builds torch_driver.c with cc, gives it random cases in f32 and bf16 (formulas: in f16 and f64 too), and compares outputs and gradients. The truth is PyTorch's
result in f64 for the very same inputs. An error is the largest difference, divided by the largest number of the tensor.
The limit is what three roundings of the element type make (f32: 1e-5, for sums of some hundred terms; bf16: 6e-3), or twice the error that
PyTorch itself has in that type, up to 1e-4 and 3e-2: attention rounds probabilities to bf16, for example, in both. Operations
that only move or convert elements have to be exact. "second" are second derivatives: the gradients of gradients. Then a block of GPT and one of Llama are trained for 20 steps by AdamW in f32,
and the losses have to be PyTorch's to 1e-4. Runs on the GPU; where there is none, on the simulator, with PyTorch on the CPU."""
import argparse
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("PyTorch is not installed")
    raise SystemExit(0)

import formulas

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DTYPES = {torch.float16: 1, torch.bfloat16: 2, torch.float32: 3, torch.float64: 4, torch.int32: 5, torch.int64: 6, torch.uint8: 7}
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64",
         torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8"}
FLOOR = {torch.float32: 1e-5, torch.bfloat16: 6e-3, torch.float16: 8e-4, torch.float64: 1e-13}
CEILING = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float64: 1e-12}
LOSS_LIMIT = 1e-4
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Case:
    """One call. inputs are tensors; reference(*inputs) gives the outputs, in the type of what it is given; wanted are the inputs whose
    gradients are compared (none for integers). exact: True, or "values" if the gradients are sums, which round."""

    def __init__(self, op, inputs, reference, ints=(), doubles=(), native=None, exact=False, differentiate=True, check=None, note=""):
        self.op, self.inputs, self.reference, self.native = op, inputs, reference, native or reference
        self.ints, self.doubles, self.exact, self.check, self.note = ints, doubles, exact, check, note
        self.wanted = [differentiate and x.is_floating_point() for x in inputs]
        self.dtype = inputs[0].dtype
        self.gradients = []


# --- the files ------------------------------------------------------------------------------------------------------


def tensor_bytes(x):
    x = x.detach().to("cpu").contiguous()
    return x.reshape(-1).view(torch.uint8).numpy().tobytes() if x.numel() else b""


def write_tensor(file, x, requires_grad):
    file.write(struct.pack("<3q8q", DTYPES[x.dtype], requires_grad, x.dim(), *(list(x.shape) + [0] * (8 - x.dim()))))
    file.write(tensor_bytes(x))


def write_cases(path, cases):
    with open(path, "wb") as file:
        file.write(struct.pack("<q", len(cases)))
        for case in cases:
            ints, doubles = list(case.ints), list(case.doubles)
            file.write(case.op.encode().ljust(32, b"\0"))
            file.write(struct.pack("<16q8d", *(ints + [0] * (16 - len(ints))), *(doubles + [0.0] * (8 - len(doubles)))))
            file.write(struct.pack("<2q", len(case.inputs), len(case.gradients)))
            for x, wanted in zip(case.inputs, case.wanted):
                write_tensor(file, x, wanted)
            for x in case.gradients:
                write_tensor(file, x, False)


def read_tensor(file):
    dtype, _, ndim, *dims = struct.unpack("<3q8q", file.read(88))
    if ndim < 0:
        return None
    dtype = next(t for t, code in DTYPES.items() if code == dtype)
    shape = dims[:ndim]
    data = file.read(math.prod(shape) * torch.empty(0, dtype=dtype).element_size())
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)


def read_results(path, cases):
    with open(path, "rb") as file:
        for case in cases:
            case.message = file.read(512).split(b"\0")[0].decode()
            count = struct.unpack("<q", file.read(8))[0]
            case.outputs = [read_tensor(file) for _ in range(count)]
            case.input_gradients = [read_tensor(file) for _ in case.inputs] if count else []


# --- PyTorch's side ---------------------------------------------------------------------------------------------------


def outputs_of(fn, inputs):
    out = fn(*inputs)
    return list(out) if isinstance(out, (tuple, list)) else [out]


def values_and_gradients(fn, inputs, wanted, gradients):
    """Outputs, and for each wanted input its gradient (None for the others)."""
    inputs = [x.detach().clone().requires_grad_(w) for x, w in zip(inputs, wanted)]
    outputs = outputs_of(fn, inputs)
    chosen = [x for x, w in zip(inputs, wanted) if w]
    if not gradients or not chosen:
        return [y.detach() for y in outputs], [None] * len(inputs)
    found = iter(torch.autograd.grad(outputs, chosen, [g.to(y.dtype) for g, y in zip(gradients, outputs)], allow_unused=True))
    return [y.detach() for y in outputs], [next(found) if w else None for w in wanted]


def in_type(inputs, dtype, device):
    return [x.to(device).to(dtype) if x.is_floating_point() and dtype else x.to(device) for x in inputs]


def error_of(got, truth):
    """The largest difference over the largest number; infinity when shapes, or places of NaN, differ."""
    if got is None or list(got.shape) != list(truth.shape):
        return math.inf
    got, truth = got.to("cpu").double(), truth.to("cpu").double()
    if not torch.equal(torch.isnan(got), torch.isnan(truth)):
        return math.inf
    got, truth = torch.nan_to_num(got, nan=0.0), torch.nan_to_num(truth, nan=0.0)
    if got.numel() == 0:
        return 0.0
    size = float(truth.abs().max())
    return float((got - truth).abs().max()) / (size if size > 0 else 1.0)


# --- cases --------------------------------------------------------------------------------------------------------------


class Maker:
    """Random sizes and tensors of one element type."""

    def __init__(self, dtype, seed):
        self.dtype, self.seed, self.random = dtype, seed, random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def size(self, most=40):
        return self.random.choice([1, 2, 3, 5, 8, 13, 17, 31, 32, 33, 37, 64, 65, 100, 128, 200, 257, 384]) % most + 1

    def lead(self):
        return [self.size(9) for _ in range(self.random.randrange(3))]

    def normal(self, *shape, scale=1.0):
        return (torch.randn(list(shape), generator=self.generator) * scale).to(self.dtype)

    def integers(self, low, high, *shape, dtype=torch.int64):
        return torch.randint(low, high, list(shape), generator=self.generator).to(dtype)


def spread_cases(m, op, fn):
    shape = m.lead() + [m.size(), m.size(300)]
    yield Case(op, [m.normal(*shape), m.normal(*shape)], fn)
    yield Case(op, [m.normal(*shape), m.normal(shape[-1])], fn, note="row")
    yield Case(op, [m.normal(*shape), m.normal(1)], fn, note="element")
    yield Case(op, [m.normal(*shape), m.normal(*shape[:-1], 1)], fn, note="column")


def add_cases(m):
    yield from spread_cases(m, "add", lambda a, b: a + b)


def sub_cases(m):
    yield from spread_cases(m, "sub", lambda a, b: a - b)


def mul_cases(m):
    yield from spread_cases(m, "mul", lambda a, b: a * b)


def scale_cases(m):
    factor = struct.unpack("<f", struct.pack("<f", m.random.uniform(-3, 3)))[0]
    yield Case("scale", [m.normal(*m.lead(), m.size(300))], lambda x: x * factor, doubles=[factor])


def add_bias_cases(m):
    n = m.size(300)
    yield Case("add_bias", [m.normal(*m.lead(), m.size(), n), m.normal(n)], lambda x, b: x + b)


def matmul_cases(m):
    rows, k, n, batch = m.size(130), m.size(130), m.size(130), m.lead()
    yield Case("matmul", [m.normal(rows, k), m.normal(k, n)], lambda a, b: a @ b)
    yield Case("matmul", [m.normal(*batch, rows, k), m.normal(k, n)], lambda a, b: a @ b, note="shared b")
    yield Case("matmul", [m.normal(*batch, rows, k), m.normal(*batch, k, n)], lambda a, b: a @ b, note="batch")
    yield Case("matmul", [m.normal(3, 1, m.size(20), k), m.normal(2, k, n)], lambda a, b: a @ b, note="spread")


def matmul_t_cases(m):
    rows, k, n, batch = m.size(130), m.size(130), m.size(130), m.lead()
    yield Case("matmul_t", [m.normal(*batch, rows, k), m.normal(n, k)], lambda a, b: a @ b.transpose(-1, -2), note="shared b")
    yield Case("matmul_t", [m.normal(*batch, rows, k), m.normal(*batch, n, k)], lambda a, b: a @ b.transpose(-1, -2))


def linear_cases(m):
    k, n = m.size(130), m.size(130)
    inputs = [m.normal(*m.lead(), m.size(200), k), m.normal(n, k), m.normal(n)]
    yield Case("linear", inputs, F.linear)
    yield Case("linear", inputs[:2], F.linear, note="no bias")


def conv_of(m, sides, groups, channels, outs, bias):
    """Channels are last in Ignis, and second in PyTorch."""
    stride, padding, dilation, kernel = ([m.random.randint(low, high) for _ in range(sides)] for low, high in ((1, 3), (0, 3), (1, 2), (1, 4)))
    size = [d * (k - 1) + 1 + m.random.randint(0, 12) for k, d in zip(kernel, dilation)]
    inputs = [m.normal(m.random.randint(1, 3), *size, groups * channels), m.normal(groups * outs, *kernel, channels)]
    fn = (F.conv1d, F.conv2d, F.conv3d)[sides - 1]
    first = lambda x: x.movedim(-1, 1)
    convolve = lambda x, w, b=None: fn(first(x), first(w), b, stride, padding, dilation, groups).movedim(1, -1)
    ints = [groups] + [n for pair in (stride, padding, dilation) for n in (pair * 3)[:3]]
    note = f"stride {stride} padding {padding} dilation {dilation} groups {groups}"
    return Case(f"conv{sides}d", inputs + [m.normal(groups * outs)] * bias, convolve, ints=ints, note=note)


def conv1d_cases(m):
    yield conv_of(m, 1, 1, m.random.randint(1, 40), m.random.randint(1, 40), True)
    yield conv_of(m, 1, m.random.randint(2, 4), m.random.randint(1, 16), m.random.randint(1, 9), False)


def conv2d_cases(m):
    yield conv_of(m, 2, 1, 8 * m.random.randint(1, 9), 8 * m.random.randint(1, 9), True)
    yield conv_of(m, 2, 1, m.random.randint(1, 40), m.random.randint(1, 40), False)
    yield conv_of(m, 2, m.random.randint(2, 4), m.random.randint(1, 16), m.random.randint(1, 9), True)
    yield conv_of(m, 2, m.random.randint(2, 40), 1, 1, True)


def conv3d_cases(m):
    yield conv_of(m, 3, 1, 8 * m.random.randint(1, 3), 8 * m.random.randint(1, 3), True)
    yield conv_of(m, 3, m.random.randint(2, 3), m.random.randint(1, 5), m.random.randint(1, 5), False)
    yield conv_of(m, 3, m.random.randint(2, 17), 1, 1, True)


def conv_transpose_of(m, sides, groups, channels, outs, bias):
    """As conv_of; padding that leaves some pixels, and pixels more after the last one, fewer than the stride."""
    stride, dilation, kernel = ([m.random.randint(low, high) for _ in range(sides)] for low, high in ((1, 3), (1, 2), (1, 4)))
    padding = [m.random.randint(0, d * (k - 1) // 2) for d, k in zip(dilation, kernel)]
    more = [m.random.randint(0, s - 1) for s in stride]
    size = [m.random.randint(1, 7) for _ in range(sides)]
    inputs = [m.normal(m.random.randint(1, 3), *size, groups * channels), m.normal(groups * channels, *kernel, outs)]
    fn = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[sides - 1]
    first = lambda x: x.movedim(-1, 1)
    convolve = lambda x, w, b=None: fn(first(x), first(w), b, stride, padding, more, groups, dilation).movedim(1, -1)
    ints = [groups] + [n for row in (stride, padding, dilation, more) for n in (row * 3)[:3]]
    note = f"stride {stride} padding {padding} dilation {dilation} output padding {more} groups {groups}"
    return Case(f"conv_transpose{sides}d", inputs + [m.normal(groups * outs)] * bias, convolve, ints=ints, note=note)


def conv_transpose_cases(m):
    for sides in (1, 2, 3):
        yield conv_transpose_of(m, sides, 1, 8 * m.random.randint(1, 4), 8 * m.random.randint(1, 4), True)
        yield conv_transpose_of(m, sides, m.random.randint(1, 3), m.random.randint(1, 9), m.random.randint(1, 9), False)


def symmetric(x):
    """A matrix of eigenvalues from 1 on."""
    return x @ x.mT / x.shape[-1] + torch.eye(x.shape[-2], dtype=x.dtype, device=x.device)


LINALG = {
    0: lambda x: torch.linalg.cholesky(symmetric(x)), 1: lambda x, b: torch.linalg.solve(symmetric(x), b), 2: lambda x: torch.linalg.inv(symmetric(x)),
    3: lambda x: torch.linalg.det(symmetric(x)), 4: lambda x: torch.linalg.slogdet(symmetric(x))[1], 5: lambda x: torch.linalg.eigvalsh(symmetric(x)),
    6: torch.linalg.svdvals, 7: lambda x: torch.linalg.matrix_exp(symmetric(x)),
    8: lambda x, b: torch.linalg.solve_triangular(symmetric(x).tril(), b, upper=False),
}


def linalg_cases(m):
    """In f32, as PyTorch's have no bf16."""
    for number, fn in LINALG.items():
        n, batch = m.size(24), m.size(5)
        apart = torch.diag(4.0 * torch.arange(n)) if number in (5, 6) else 0.0  # vectors turn by what is rounded over the distance of values
        inputs = [m.normal(batch, n, n).float() + apart] + ([m.normal(batch, n, m.size(7)).float()] if number in (1, 8) else [])
        yield Case("linalg", inputs, fn, ints=[number], note=f"function {number}, {n} x {n}")


def activation_cases(m, op, fn, exact=False):
    yield Case(op, [m.normal(*m.lead(), m.size(400), scale=2.5)], fn, exact=exact)


def relu_cases(m):
    yield from activation_cases(m, "relu", torch.relu, exact=True)


def gelu_cases(m):
    yield from activation_cases(m, "gelu", lambda x: F.gelu(x, approximate="tanh"))


def gelu_exact_cases(m):
    yield from activation_cases(m, "gelu_exact", F.gelu)


def silu_cases(m):
    yield from activation_cases(m, "silu", F.silu)


def silu_mul_cases(m):
    shape = m.lead() + [m.size(400)]
    yield Case("silu_mul", [m.normal(*shape, scale=2), m.normal(*shape)], lambda a, b: F.silu(a) * b)


def softmax_cases(m):
    yield Case("softmax", [m.normal(*m.lead(), m.size(), m.size(400), scale=3)], lambda x: torch.softmax(x, -1))
    yield Case("softmax", [m.normal(2, m.random.choice([3000, 9001]), scale=3)], lambda x: torch.softmax(x, -1), note="long")


def log_softmax_cases(m):
    yield Case("log_softmax", [m.normal(*m.lead(), m.size(), m.size(400), scale=3)], lambda x: torch.log_softmax(x, -1))
    yield Case("log_softmax", [m.normal(2, m.random.choice([3000, 9001]), scale=3)], lambda x: torch.log_softmax(x, -1), note="long")


def layer_norm_cases(m):
    for n in (m.size(400), m.random.choice([768, 2048, 5001])):
        w, b = m.normal(n) + 1, m.normal(n)
        yield Case("layer_norm", [m.normal(*m.lead(), m.size(), n), w, b], lambda x, w, b: F.layer_norm(x, [x.shape[-1]], w, b, 1e-5), doubles=[1e-5])


def rms_norm(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def rms_norm_cases(m):
    for n in (m.size(400), m.random.choice([768, 2048, 5001])):
        yield Case("rms_norm", [m.normal(*m.lead(), m.size(), n), m.normal(n) + 1], rms_norm, doubles=[1e-5],
                   native=lambda x, w: rms_norm(x.float(), w.float()).to(x.dtype))


def rope(x, heads, offset, inverse):
    seq, width = x.shape[-2], x.shape[-1]
    angle = (torch.arange(seq, device=x.device, dtype=torch.float64) + offset)[:, None] * inverse.to(x.device).double()
    cos, sin = torch.cos(angle).to(x.dtype)[:, None, :], torch.sin(angle).to(x.dtype)[:, None, :]
    parts = x.reshape(list(x.shape[:-1]) + [heads, width // heads])
    half = width // heads // 2
    a, b = parts[..., :half], parts[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


def rope_cases(m):
    heads, half, offset, base = m.size(5), m.size(32), m.random.randrange(50), m.random.choice([10000.0, 500000.0])
    inverse = torch.tensor([base ** (-i / half) for i in range(half)], dtype=torch.float64).float()
    x = m.normal(*m.lead(), m.size(60), heads * 2 * half)
    yield Case("rope", [x], lambda x: rope(x, heads, offset, inverse), ints=[heads, offset], doubles=[base])
    scaled = inverse / torch.linspace(1, 8, half)
    offset = 4000
    case = Case("rope", [x, scaled], lambda x, f: rope(x, heads, offset, scaled), ints=[heads, offset], note="frequencies given")
    case.wanted[1] = False
    yield case


def attention_mask(sq, sk, causal, device):
    i, j = torch.arange(sq, device=device)[:, None], torch.arange(sk, device=device)[None, :]
    return j < i + sk - sq + 1 if causal else j < sk + 0 * i


def split_heads(x, heads):
    return x.reshape(list(x.shape[:-1]) + [heads, x.shape[-1] // heads]).transpose(-2, -3)


def attention(q, k, v, heads, kv_heads, causal, scale):
    """Explicit scores; a query that sees nothing gets zeros."""
    sq, sk = q.shape[-2], k.shape[-2]
    qh, kh, vh = split_heads(q, heads), split_heads(k, kv_heads), split_heads(v, kv_heads)
    kh, vh = (x.repeat_interleave(heads // kv_heads, -3) for x in (kh, vh))
    mask = attention_mask(sq, sk, causal, q.device)
    scores = (qh @ kh.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1] // heads))).masked_fill(~mask, -1e30)
    out = (torch.softmax(scores, -1) * mask.to(q.dtype)) @ vh
    return out.transpose(-2, -3).reshape(q.shape)


def fused_attention(q, k, v, heads, kv_heads, causal, scale):
    """PyTorch's own in bf16; in f32 it might use tf32."""
    sq, sk = q.shape[-2], k.shape[-2]
    if q.dtype != torch.bfloat16 or (causal and sq > sk):
        return attention(q, k, v, heads, kv_heads, causal, scale)
    qh, kh, vh = split_heads(q, heads), split_heads(k, kv_heads), split_heads(v, kv_heads)
    kh, vh = (x.repeat_interleave(heads // kv_heads, -3) for x in (kh, vh))
    out = F.scaled_dot_product_attention(qh, kh, vh, attn_mask=attention_mask(sq, sk, causal, q.device) if causal else None,
                                         scale=scale or 1 / math.sqrt(q.shape[-1] // heads))
    return out.transpose(-2, -3).reshape(q.shape)


def sdpa_cases(m):
    for d in (m.random.choice([16, 32, 64]), m.random.choice([80, 96, 128]), m.random.choice([7, 20, 100, 160, 192, 256])):
        kv_heads, group = m.random.choice([1, 2, 3]), m.random.choice([1, 1, 2, 4])
        heads, batch = kv_heads * group, [m.size(3)] if m.random.random() < 0.8 else []
        sq, sk = m.size(150), m.size(150)
        for causal in (True, False):
            scale = 0.0 if m.random.random() < 0.7 else 0.21
            args = (heads, kv_heads, causal, scale)
            keys = m.random.choice([sq, sq, sk, sq + sk])
            yield Case("sdpa", [m.normal(*batch, sq, heads * d), m.normal(*batch, keys, kv_heads * d), m.normal(*batch, keys, kv_heads * d)],
                       lambda q, k, v, a=args: attention(q, k, v, *a), native=lambda q, k, v, a=args: fused_attention(q, k, v, *a),
                       ints=[heads, kv_heads, 0 if causal else 1], doubles=[scale], note=f"d {d}, {sq} x {keys}, {heads}/{kv_heads} heads, {causal=}")


def masked_attention(q, k, v, bias, sinks, lengths, heads, kv_heads, causal, window, softcap, decode=False):
    """Explicit scores with all that there is; bias, sinks and lengths may be None. decode: the query comes last in its sequence."""
    sq, sk = q.shape[-2], k.shape[-2]
    qh, kh, vh = split_heads(q, heads), split_heads(k, kv_heads), split_heads(v, kv_heads)
    kh, vh = (x.repeat_interleave(heads // kv_heads, -3) for x in (kh, vh))
    j = torch.arange(sk, device=q.device)
    ends = (torch.full([q.shape[0]], sk) if lengths is None else lengths.long().clamp(0, sk)).to(q.device)[:, None, None, None]
    place = ends - 1 if decode else (torch.arange(sq, device=q.device) + sk - sq)[:, None]
    mask = (j < ends) & (j - place < (1 if causal else window or sk + sq)) & (place - j < (window or sk + sq))
    scores = qh @ kh.transpose(-1, -2) / math.sqrt(q.shape[-1] // heads)
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    scores = (scores if bias is None else scores + bias).masked_fill(~mask, -1e30)
    if sinks is not None:
        scores = torch.cat([scores, sinks[None, :, None, None].expand(*scores.shape[:-1], 1)], -1)
    out = (torch.softmax(scores, -1)[..., :sk] * mask.to(q.dtype)) @ vh
    return out.transpose(-2, -3).reshape(q.shape)


def masked_cases(m, op, decode):
    for d in (m.random.choice([64, 128]), m.random.choice([20, 72, 80, 256])):
        for _ in range(2):
            kv_heads, group, batch = m.random.choice([1, 2]), m.random.choice([1, 2, 4]), m.size(3)
            heads, sq, causal = kv_heads * group, 1 if decode else m.size(150), m.random.random() < 0.7
            sk = m.size(300) if decode else m.random.choice([sq, m.size(150)])
            window, softcap = m.random.choice([0, 1, m.size(60), m.size(200)]), m.random.choice([0.0, 0.0, 2.0, 30.0])
            has_bias, has_sinks, has_lengths = (m.random.random() < 0.5 for _ in range(3))
            inputs = [m.normal(batch, sq, heads * d), m.normal(batch, sk, kv_heads * d), m.normal(batch, sk, kv_heads * d)]
            if has_bias:
                inputs.append(m.normal(*(m.random.choice([n, 1]) for n in (batch, heads, sq)), sk))
            if has_sinks:
                inputs.append(m.normal(heads))
            if has_lengths:
                inputs.append(m.integers(0, sk + 1, batch, dtype=torch.int32))

            def reference(*x, args=(heads, kv_heads, causal or decode, window, softcap, decode), has=(has_bias, has_sinks, has_lengths)):
                rest = list(x[3:])
                return masked_attention(*x[:3], *(rest.pop(0) if given else None for given in has), *args)

            yield Case(op, inputs, reference, ints=[heads, kv_heads, 0 if causal else 1, window, has_bias, has_sinks, has_lengths], doubles=[softcap],
                       differentiate=not decode, note=f"d {d}, {sq} x {sk}, {heads}/{kv_heads} heads, {causal=}, {window=}, {softcap=}, "
                       f"bias {list(inputs[3].shape) if has_bias else None}, sinks {has_sinks}, lengths {has_lengths}")


def masked_sdpa_cases(m):
    yield from masked_cases(m, "masked_sdpa", False)


def masked_decode_sdpa_cases(m):
    yield from masked_cases(m, "masked_decode_sdpa", True)


def decode_sdpa_cases(m):
    d, kv_heads, group, batch, past = m.random.choice([16, 64, 80, 128, 256]), m.size(3), m.random.choice([1, 2, 4]), m.size(3), m.size(400)
    heads = kv_heads * group
    for lead in ([batch], []):
        yield Case("decode_sdpa", [m.normal(*lead, 1, heads * d), m.normal(*lead, past, kv_heads * d), m.normal(*lead, past, kv_heads * d)],
                   lambda q, k, v: attention(q, k, v, heads, kv_heads, False, 0), native=lambda q, k, v: fused_attention(q, k, v, heads, kv_heads, False, 0),
                   ints=[heads], differentiate=False, note=f"d {d}, {past} keys, {heads}/{kv_heads} heads")


def transpose_cases(m):
    shape = m.lead() + [m.size(70), m.size(70)]
    a, b = m.random.randrange(len(shape)), m.random.randrange(len(shape))
    yield Case("transpose", [m.normal(*shape)], lambda x: x.transpose(a, b), ints=[a, b], exact=True)
    yield Case("transpose", [m.normal(*shape)], lambda x: x.transpose(-1, -2), ints=[-1, -2], exact=True)


def reshape_cases(m):
    a, b, c = m.size(), m.size(), m.size()
    yield Case("reshape", [m.normal(a, b, c)], lambda x: x.reshape(c, a * b), ints=[2, c, -1], exact=True)


def sum_cases(m):
    yield Case("sum", [m.normal(*m.lead(), m.size(400)) + 0.5], lambda x: x.sum().reshape(1))
    yield Case("sum", [m.normal(m.random.choice([5000, 100001])) + 0.5], lambda x: x.sum().reshape(1), note="long")


def mean_cases(m):
    yield Case("mean", [m.normal(*m.lead(), m.size(400)) + 0.5], lambda x: x.mean().reshape(1))


def along_cases(m, op, fn):
    shape = m.lead() + [m.size(), m.size(300)]
    for dim in sorted({0, len(shape) // 2, len(shape) - 1}):
        yield Case(op, [m.normal(*shape) + 0.5], lambda x, d=dim: fn(x, d), ints=[dim], note=f"dim {dim}")
    yield Case(op, [m.normal(*shape) + 0.5], lambda x: fn(x, -2), ints=[-2])


def sum_dim_cases(m):
    yield from along_cases(m, "sum_dim", lambda x, d: x.sum(d))


def mean_dim_cases(m):
    yield from along_cases(m, "mean_dim", lambda x, d: x.mean(d))


def embedding_cases(m):
    vocab, n = m.random.choice([3, 50, 1000]), m.size(300)
    ids = m.integers(0, vocab, *m.lead(), m.size(200), dtype=m.random.choice([torch.int32, torch.int64]))
    yield Case("embedding", [m.normal(vocab, n), ids], lambda t, i: F.embedding(i.long(), t))


def cross_entropy(x, targets, ignore, total, classes):
    x = x if x.dtype == torch.float64 else x.float()
    x = x.reshape(-1, x.shape[-1])[:, :classes]
    return F.cross_entropy(x, targets.reshape(-1).long(), ignore_index=ignore, reduction="sum" if total else "mean").reshape(1)


def cross_entropy_cases(m):
    for columns, ignore, total, padding in ((m.size(400), -100, 0, 0), (m.size(50) + 5, 3, 1, 3), (m.random.choice([5003, 50304]), -100, 0, 47)):
        classes = columns - padding
        lead = [m.size(4), m.size(9)] if columns > 5000 else m.lead() + [m.size(60)]
        targets = m.integers(0, classes, *lead, dtype=m.random.choice([torch.int32, torch.int64]))
        targets = torch.where(m.integers(0, 4, *lead) == 0, torch.full_like(targets, ignore), targets)
        targets.reshape(-1)[0] = 0
        yield Case("cross_entropy", [m.normal(*lead, columns, scale=2), targets], lambda x, t, a=(ignore, total, classes): cross_entropy(x, t, *a),
                   ints=[ignore, 0, total, classes if padding else 0], note=f"{columns} columns, {ignore=}, {total=}, {padding=}")


def map_cases(m):
    """The table of formulas, each in this type or in the other one of floats or of 16 bits, so that rounds go through all four. See formulas.h
    about the inputs."""
    other = {torch.float32: torch.float64, torch.bfloat16: torch.float16}[m.dtype]
    for number, text in enumerate(formulas.TABLE):
        dtype = other if (number + m.seed) % 2 else m.dtype
        shape = m.lead() + [m.size(), m.size(50)]
        shapes = [shape, shape[-1:] if number % 3 == 1 else shape, shape[:-1] + [1] if number % 4 == 2 else shape]
        inputs = [((8 * m.integers(4, 32, *s) + 2 * i + 1) / 256).to(dtype) for i, s in enumerate(shapes)]
        if torch.isfinite(formulas.compute(text, *inputs)).all():
            yield Case("map", inputs, lambda a, b, c, t=text: formulas.compute(t, a, b, c), ints=[number], note=text)


REDUCERS = {
    1: torch.sum, 2: torch.mean, 3: torch.prod, 4: lambda x, d: x.max(d).values, 5: lambda x, d: x.min(d).values,
    6: lambda x, d: (x > 1).any(d).byte(), 7: lambda x, d: (x > 1).all(d).byte(), 8: torch.argmax, 9: torch.argmin, 10: torch.logsumexp,
}


def map_reduce_cases(m):
    """Reductions of a formula: ints are the reducer, the first and the last one of the dimensions that it is along."""
    for reducer, fn in REDUCERS.items():
        for first, last in ((0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (0, 2)):
            shape = [m.size(9), m.size(20), m.size(40)]
            rest = shape[:first] + shape[last + 1:] or [1]

            def reference(a, b, first=first, last=last, fn=fn, rest=rest):
                return fn((1 + a * b / 8).flatten(first, last), first).reshape(rest)

            yield Case("map_reduce", [m.normal(*shape), m.normal(shape[-1])], reference, ints=[reducer, first, last],
                       differentiate=reducer in (1, 2, 3, 4, 5, 10), note=f"reducer {reducer}, dimensions {first} to {last}")


REDUCTIONS = ("mean", "sum", "none")


def as_loss(x):
    """Ignis' losses are f32 at least, from inputs that are as they are."""
    return x if x.dtype == torch.float64 else x.float()


def loss_cases(m, op, fn, inputs, ints=(), doubles=()):
    """fn(*inputs, reduction=...) in each reduction; a mean or sum has one element."""
    for number, reduction in enumerate(REDUCTIONS):
        yield Case(op, inputs(), lambda *t, r=reduction: fn(*(as_loss(x) if x.is_floating_point() else x for x in t), reduction=r).reshape(
            list(t[0].shape) if r == "none" else [1]), ints=[number] + list(ints), doubles=doubles, note=reduction)


def mse_loss_cases(m):
    shape = m.lead() + [m.size(300)]
    yield from loss_cases(m, "mse_loss", F.mse_loss, lambda: [m.normal(*shape), m.normal(*shape)])


def l1_loss_cases(m):
    shape = m.lead() + [m.size(300)]
    yield from loss_cases(m, "l1_loss", F.l1_loss, lambda: [m.normal(*shape), m.normal(*shape)])


def huber_loss_cases(m):
    shape = m.lead() + [m.size(300)]
    yield from loss_cases(m, "huber_loss", lambda x, t, reduction: F.huber_loss(x, t, delta=0.75, reduction=reduction),
                          lambda: [m.normal(*shape), m.normal(*shape)], doubles=[0.75])


def bce_with_logits_cases(m):
    rows, columns = m.size(20), m.size(100)
    for case in loss_cases(m, "bce_with_logits", lambda x, t, w, p, reduction: F.binary_cross_entropy_with_logits(
            x, t, weight=w, pos_weight=p, reduction=reduction), lambda: [m.normal(rows, columns, scale=3), m.normal(rows, columns).sigmoid(),
                                                                         m.normal(rows, 1).exp(), m.normal(columns).exp()]):
        case.wanted = [True, False, False, False]
        yield case


def kl_div_cases(m):
    """PyTorch's mean is over elements, or over the first dimension ("batchmean"); Ignis' is over rows, and what is not reduced is a row's sum."""
    rows, columns = m.size(50), m.size(300)

    def reference(x, t, number, log_target):
        terms = F.kl_div(as_loss(x), as_loss(t), reduction="none", log_target=log_target).sum(-1)
        return terms if number == 2 else (terms.sum() if number == 1 else terms.mean()).reshape(1)

    for number in range(3):
        for logs in (False, True):
            x, t = m.normal(rows, columns).float().log_softmax(-1).to(m.dtype), m.normal(rows, columns).float().log_softmax(-1)
            yield Case("kl_div", [x, (t if logs else t.exp()).to(m.dtype)], lambda x, t, a=(number, logs): reference(x, t, *a), ints=[number, logs],
                       note=f"{REDUCTIONS[number]}, {logs=}")


def cosine_similarity_cases(m):
    shape = m.lead() + [m.size(20), m.size(300) + 1]
    yield Case("cosine_similarity", [m.normal(*shape), m.normal(*shape)], lambda a, b: F.cosine_similarity(as_loss(a), as_loss(b), dim=-1))


def row_loss_cases(m, op, fn, smoothing):
    for number, reduction in enumerate(REDUCTIONS):
        rows, classes = m.size(50), m.size(300)
        targets = m.integers(0, classes, rows, dtype=m.random.choice([torch.int32, torch.int64]))
        targets = torch.where(m.integers(0, 4, rows) == 0, torch.full_like(targets, -7), targets)
        targets[0] = 0
        yield Case(op, [m.normal(rows, classes, scale=2), targets], lambda x, t, r=reduction: fn(as_loss(x), t.long(), r).reshape(
            [len(t)] if r == "none" else [1]), ints=[number, -7], doubles=[smoothing], note=reduction)


def nll_loss_cases(m):
    yield from row_loss_cases(m, "nll_loss", lambda x, t, r: F.nll_loss(x, t, ignore_index=-7, reduction=r), 0.0)


def smooth_cross_entropy_cases(m):
    for smoothing in (0.0, 0.1):
        yield from row_loss_cases(m, "smooth_cross_entropy", lambda x, t, r, e=smoothing: F.cross_entropy(
            x, t, ignore_index=-7, reduction=r, label_smoothing=e), smoothing)


def check_dropout(case):
    """Elements are 0, or divided by 1 - p; so are their gradients; and about as many are 0 as there should be."""
    p, (x, y, g, dx) = case.doubles[0], (t.double() for t in (case.inputs[0], case.outputs[0], case.gradients[0], case.input_gradients[0]))
    kept = (y != 0) | (x == 0)
    share = float((~kept).double().mean())
    sigma = math.sqrt(p * (1 - p) / x.numel())
    if abs(share - p) > 6 * sigma + 2 / x.numel():
        return math.inf, math.inf
    return error_of(y, torch.where(kept, x / (1 - p), 0 * x)), error_of(dx, torch.where(kept, g / (1 - p), 0 * g))


def dropout_cases(m):
    p = m.random.choice([0.0, 0.1, 0.5, 0.9])
    yield Case("dropout", [m.normal(*m.lead(), m.size(), 200)], lambda x: x, doubles=[p], check=check_dropout)


def cast_cases(m):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        yield Case("cast", [m.normal(*m.lead(), m.size(300))], lambda x, d=dtype: x.to(d), ints=[DTYPES[dtype]], exact=True, note=str(dtype))


def concat_cases(m):
    shape, count = m.lead() + [m.size(), m.size(60)], m.random.choice([1, 2, 3, 11])
    dim = m.random.randrange(len(shape))
    inputs = []
    for _ in range(count):
        shape[dim] = m.size(50)
        inputs.append(m.normal(*shape))
    yield Case("concat", inputs, lambda *x: torch.cat(x, dim), ints=[dim], exact=True)


def split_cases(m):
    shape, count = m.lead() + [m.size(), m.size(60)], m.random.choice([1, 2, 3, 7])
    dim = m.random.randrange(len(shape))
    shape[dim] = count * m.size(20)
    yield Case("split", [m.normal(*shape)], lambda x, n=shape[dim] // count: x.split(n, dim), ints=[dim, count, 0], exact=True, note="equal")
    sizes = [m.size(30) for _ in range(count)]
    shape[dim] = sum(sizes)
    yield Case("split", [m.normal(*shape)], lambda x: x.split(sizes, dim), ints=[dim, count, 1] + sizes, exact=True)


def permute_cases(m):
    shape = [m.size(40) for _ in range(m.random.choice([1, 2, 3, 4]))]
    dims = m.random.sample(range(len(shape)), len(shape))
    yield Case("permute", [m.normal(*shape)], lambda x: x.permute(dims), ints=dims, exact=True)


def flip_cases(m):
    shape = m.lead() + [m.size(), m.size(200)]
    dims = sorted(m.random.sample(range(len(shape)), m.random.randrange(1, len(shape) + 1)))
    yield Case("flip", [m.normal(*shape)], lambda x: x.flip(dims), ints=[len(dims)] + dims, exact=True)


def slice_step_cases(m):
    shape = m.lead() + [m.size(), m.size(200)]
    dim, step = m.random.randrange(len(shape)), m.random.choice([1, 2, 3])
    start = m.random.randrange(shape[dim])
    index = torch.arange(start, shape[dim], step)
    yield Case("slice_step", [m.normal(*shape)], lambda x: x[(slice(None),) * dim + (slice(start, None, step),)], ints=[dim, start, len(index), step], exact=True)


def expand_cases(m):
    shape = [m.random.choice([1, m.size(30)]) for _ in range(3)]
    out = [m.size(9)] + [s if s > 1 else m.size(30) for s in shape]
    yield Case("expand", [m.normal(*shape)], lambda x: x.expand(out), ints=[4] + out)


def stack_cases(m):
    shape, count = m.lead() + [m.size(60)], m.random.choice([1, 2, 3, 11])
    dim = m.random.randrange(-len(shape) - 1, len(shape) + 1)
    yield Case("stack", [m.normal(*shape) for _ in range(count)], lambda *x: torch.stack(x, dim), ints=[dim], exact=True)


def pad_cases(m):
    shape = [m.size(30) for _ in range(3)]
    before, after = ([m.random.randrange(4) for _ in shape] for _ in range(2))
    widths = [w for d in (2, 1, 0) for w in (before[d], after[d])]
    yield Case("pad", [m.normal(*shape)], lambda x: F.pad(x, widths, value=1.5), ints=before + [0] * 5 + after, doubles=[1.5], exact=True)


def index_cases(m, op, fn):
    shape = m.lead() + [m.size(30), m.size(30)]
    for dim in sorted({0, len(shape) - 1}):
        sizes = [m.size(300) if d == dim else s for d, s in enumerate(shape)]
        index = m.integers(0, shape[dim], *sizes, dtype=m.random.choice([torch.int32, torch.int64]))
        yield Case(op, [m.normal(*shape), index] + ([m.normal(*sizes)] if op == "scatter_add" else []), lambda *x, d=dim: fn(d, *x), ints=[dim], note=f"dim {dim}")


def gather_cases(m):
    yield from index_cases(m, "gather", lambda d, x, i: x.gather(d, i.long()))


def scatter_add_cases(m):
    yield from index_cases(m, "scatter_add", lambda d, x, i, y: x.scatter_add(d, i.long(), y))


def index_select_cases(m):
    shape = m.lead() + [m.size(), m.size(100)]
    for dim in range(len(shape)):
        yield Case("index_select", [m.normal(*shape), m.integers(0, shape[dim], m.size(300))], lambda x, i, d=dim: x.index_select(d, i), ints=[dim])


def fft_cases(m):
    """In f32: PyTorch's complex numbers have no bf16."""
    n, inverse = m.size(300) + 1, m.random.randrange(2)
    norm = m.random.randrange(3)
    name = ["backward", "ortho", "forward"][norm]
    two = m.random.randrange(2)
    dims = (-2, -1) if two else (-1,)

    def reference(x):
        fn = torch.fft.ifftn if inverse else torch.fft.fftn
        return torch.view_as_real(fn(torch.view_as_complex(x.contiguous()), dim=dims, norm=name))

    def real(x):
        return torch.view_as_real(torch.fft.rfftn(x, dim=dims, norm=name))

    def back(x):
        return torch.fft.irfftn(torch.view_as_complex(x.contiguous()), s=(m_rows, n) if two else (n,), dim=dims, norm=name)

    m_rows = m.size(30)
    yield Case("fft", [m.normal(3, m_rows, n, 2).float()], reference, ints=[0, 1 + two, norm, inverse, n])
    yield Case("fft", [m.normal(3, m_rows, n).float()], real, ints=[1, 1 + two, norm, 0, n], note="rfft")
    yield Case("fft", [m.normal(3, m_rows, n // 2 + 1, 2).float()], back, ints=[2, 1 + two, norm, 0, n], note="irfft")


def einsum_cases(m):
    sizes = {c: m.size(12) for c in "bijkl"}
    for number, equation in enumerate(["bij,bjk->bik", "ji,kj->ki", "ij,jk,kl->il", "bij,bij->b", "iij,jk->ik"]):
        terms = equation.split("->")[0].split(",")
        yield Case("einsum", [m.normal(*(sizes[c] for c in term)) for term in terms], lambda *x, e=equation: torch.einsum(e, *x),
                   ints=[number], note=equation)


def cumsum_cases(m):
    shape = m.lead() + [m.size(300), m.size(300)]
    for dim in range(len(shape)):
        yield Case("cumsum", [m.normal(*shape)], lambda x, d=dim: x.cumsum(d), ints=[dim], note=f"dim {dim}")


def cumprod_cases(m):
    shape = m.lead() + [m.size(300), m.size(300)]
    for dim in range(len(shape)):
        yield Case("cumprod", [1 + m.normal(*shape) / 16], lambda x, d=dim: x.cumprod(d), ints=[dim], note=f"dim {dim}")


def logcumsumexp_cases(m):
    shape = m.lead() + [m.size(300), m.size(300)]
    for dim in range(len(shape)):
        yield Case("logcumsumexp", [m.normal(*shape)], lambda x, d=dim: x.logcumsumexp(d), ints=[dim], note=f"dim {dim}")


def extreme_cases(m, op, fn):
    shape = m.lead() + [m.size(300), m.size(300)]
    for dim in range(len(shape)):
        yield Case(op, [m.normal(*shape)], lambda x, d=dim: fn(x, d)[0], ints=[dim, 0], exact="values", note=f"dim {dim}")
        yield Case(op, [m.normal(*shape)], lambda x, d=dim: fn(x, d), ints=[dim, 1], exact=True, differentiate=False, note="indices")


def cummax_cases(m):
    yield from extreme_cases(m, "cummax", lambda x, d: x.cummax(d))


def cummin_cases(m):
    yield from extreme_cases(m, "cummin", lambda x, d: x.cummin(d))


def scatter_cases(m):
    shape = [m.size(30), m.size(30)]
    for dim in range(2):  # PyTorch leaves the order of equal indices open: each place at most once
        index = torch.stack([torch.randperm(shape[dim], dtype=torch.int64) for _ in range(shape[1 - dim])], 1 - dim)
        yield Case("scatter", [m.normal(*shape), index, m.normal(*shape)], lambda x, i, y, d=dim: x.scatter(d, i, y), ints=[dim], exact=True, note=f"dim {dim}")


def index_put_cases(m):
    """As scatter: where slices replace others, each place at most once."""
    shape, inner = [m.size(30), m.size(30)], m.size(20)
    for add in (0, 1):
        count = m.size(200) if add else m.random.randint(1, shape[0])
        rows = m.integers(0, shape[0], count) if add else torch.randperm(shape[0])[:count]
        columns = m.integers(0, shape[1], count)
        yield Case("index_put", [m.normal(*shape, inner), m.normal(count, inner), rows, columns],
                   lambda x, v, i, j, a=add: x.index_put((i, j), v, accumulate=bool(a)), ints=[2, add], exact=not add, note="added" if add else "")


def nonzero_cases(m):
    yield Case("nonzero", [m.integers(0, 2, *m.lead(), m.size(300))], lambda x: x.nonzero(), exact=True, differentiate=False)


def masked_select_cases(m):
    shape = m.lead() + [m.size(300)]
    yield Case("masked_select", [m.normal(*shape), m.integers(0, 2, *shape)], lambda x, i: x.masked_select(i != 0), exact=True)


def unique_cases(m):
    yield Case("unique", [m.integers(0, 50, *m.lead(), m.size(300))], lambda x: x.unique(return_inverse=True, return_counts=True), exact=True,
               differentiate=False)


def searchsorted_cases(m):
    right = m.random.randrange(2)
    yield Case("searchsorted", [m.normal(m.size(300)).sort()[0], m.normal(*m.lead(), m.size(300))], lambda s, x: torch.searchsorted(s, x, right=bool(right)),
               ints=[right], exact=True, differentiate=False)


def bincount_cases(m):
    yield Case("bincount", [m.integers(0, 40, m.size(300))], lambda x: x.bincount(minlength=50)[:50], ints=[50], exact=True, differentiate=False)


def tril_cases(m):
    diagonal = m.random.randrange(-9, 10)
    yield Case("tril", [m.normal(*m.lead(), m.size(), m.size(70))], lambda x: x.tril(diagonal), ints=[diagonal], exact=True)


def triu_cases(m):
    diagonal = m.random.randrange(-9, 10)
    yield Case("triu", [m.normal(*m.lead(), m.size(), m.size(70))], lambda x: x.triu(diagonal), ints=[diagonal], exact=True)


def sort_cases(m):
    shape, descending = m.lead() + [m.size(), m.random.choice([m.size(300), 5000])], m.random.randrange(2)
    for dim in sorted({0, len(shape) - 1}):
        yield Case("sort", [m.normal(*shape)], lambda x, d=dim: x.sort(dim=d, descending=bool(descending), stable=True)[0], ints=[dim, descending, 0], exact=True)
        yield Case("sort", [m.normal(*shape)], lambda x, d=dim: x.sort(dim=d, descending=bool(descending), stable=True), ints=[dim, descending, 1], exact=True,
                   differentiate=False, note="indices")


def topk_cases(m):
    """PyTorch's may take any of equal elements, so there is no gradient to compare."""
    n = m.random.choice([m.size(300), 5000])
    k, largest = m.random.randrange(1, n + 1), m.random.randrange(2)
    yield Case("topk", [m.normal(m.size(5), n)], lambda x: x.topk(k, -1, bool(largest))[0], ints=[k, -1, largest], exact=True, differentiate=False)


# --- images: channels are PyTorch's second dimension, and Ignis' last ---------------------------------------------------------


def channels_last(fn):
    return lambda x, *rest: fn(x.movedim(-1, 1), *rest).movedim(1, -1)


def window_means(x, sizes, strides, padding, ceil, exclude):
    """Average pooling as a product with one matrix an axis: PyTorch's own gradients are wrong in 2.11 where pixels are apart in memory."""
    for axis, (size, stride, pad) in enumerate(zip(sizes, strides, padding), 1):
        length = x.shape[axis]
        count = -(-(length + 2 * pad - size) // stride) + 1 if ceil else (length + 2 * pad - size) // stride + 1
        if (count - 1) * stride >= length + pad:
            count -= 1  # a window has to begin in the input or in the padding before it
        means = torch.zeros(count, length, dtype=x.dtype, device=x.device)
        for i in range(count):
            begin = i * stride - pad
            end = min(begin + size, length + pad)
            inside = max(begin, 0), min(end, length)
            means[i, inside[0]:inside[1]] = 1 / (inside[1] - inside[0] if exclude else end - begin)
        x = torch.movedim(torch.tensordot(means, x, ([1], [axis])), 0, axis)
    return x


def pool_cases(m, op, of_signals, of_images, takes_exclude):
    for is_signal in (False, True):
        sizes = [m.random.choice([1, 2, 3, 5]) for _ in range(2)]
        strides, padding = [m.random.choice([1, 2, 3]) for _ in sizes], [m.random.randrange(size // 2 + 1) for size in sizes]
        ceil, exclude = m.random.randrange(2), m.random.randrange(2) if takes_exclude else 0
        more = {"count_include_pad": not exclude} if takes_exclude else {}
        channels = m.random.choice([1, 3, 8, 16, 33])
        if is_signal:
            shape, ints = [m.size(3), 5 + m.size(30), channels], [sizes[0], 0, strides[0], 0, padding[0], 0, ceil, exclude]
            fn = channels_last(lambda x, a=(sizes[0], strides[0], padding[0]), k=more, c=bool(ceil): of_signals(x, *a, ceil_mode=c, **k))
        else:
            shape, ints = [m.size(3), 5 + m.size(12), 5 + m.size(12), channels], sizes + strides + padding + [ceil, exclude]
            fn = channels_last(lambda x, a=(sizes, strides, padding), k=more, c=bool(ceil): of_images(x, *a, ceil_mode=c, **k))
        exact = (lambda x, a=(sizes[:1] if is_signal else sizes, strides, padding, ceil, exclude): window_means(x, *a)) if takes_exclude else None
        yield Case(op, [m.normal(*shape)], exact or fn, native=fn, ints=ints, note=f"{ints}")


def max_pool_cases(m):
    yield from pool_cases(m, "max_pool", F.max_pool1d, F.max_pool2d, False)


def avg_pool_cases(m):
    yield from pool_cases(m, "avg_pool", F.avg_pool1d, F.avg_pool2d, True)


def upsample_cases(m):
    """Nearest pixels of a whole factor only: of others PyTorch rounds the factor to f32."""
    shape, factor = [m.size(3), m.size(12), m.size(12), m.random.choice([1, 3, 8, 16, 33])], m.random.choice([2, 3])
    size = [m.size(30), m.size(30)]
    yield Case("upsample", [m.normal(*shape)], channels_last(lambda x: F.interpolate(x, scale_factor=factor, mode="nearest")),
               ints=[factor * shape[1], factor * shape[2], 0, 0], note="nearest")
    for align in (False, True):
        yield Case("upsample", [m.normal(*shape)], channels_last(lambda x, a=align: F.interpolate(x, size, mode="bilinear", align_corners=a)),
                   ints=size + [1, int(align)], note=f"bilinear {size} {align}")
        yield Case("upsample", [m.normal(*shape[:2], shape[3])],
                   channels_last(lambda x, a=align: F.interpolate(x, size[:1], mode="linear", align_corners=a)),
                   ints=[size[0], 0, 1, int(align)], note=f"linear {size[0]} {align}")


def pad_border_cases(m):
    for which, mode in enumerate(("reflect", "replicate", "circular")):
        shape = [m.size(3), 4 + m.size(9), 4 + m.size(9), m.random.choice([1, 3, 8, 16])]
        before, after = ([0, m.random.randrange(4), m.random.randrange(4), 0] for _ in range(2))
        widths = [before[2], after[2], before[1], after[1]]
        ints = [which] + before + [0] * 3 + after
        yield Case("pad_border", [m.normal(*shape)], channels_last(lambda x, w=widths, k=mode: F.pad(x, w, mode=k)), ints=ints, note=mode)


def unfold_cases(m, back=False):
    """Rows have taps before channels, PyTorch's columns channels before taps."""
    kernel, stride, padding, dilation = ([m.random.randint(low, high) for _ in range(2)] for low, high in ((1, 3), (1, 3), (0, 2), (1, 2)))
    size = [d * (k - 1) + 1 + m.random.randint(0, 9) for k, d in zip(kernel, dilation)]
    n, channels, options = m.size(3), m.random.choice([1, 3, 8, 16]), (kernel, dilation, padding, stride)
    ints, taps = kernel + stride + padding + dilation + size, kernel[0] * kernel[1]
    if not back:
        rows = lambda x: F.unfold(x.movedim(-1, 1), *options).unflatten(1, (channels, taps)).permute(0, 3, 2, 1).flatten(2)
        yield Case("unfold", [m.normal(n, *size, channels)], rows, ints=ints)
        return
    counts = [(s + 2 * p - d * (k - 1) - 1) // t + 1 for s, k, t, p, d in zip(size, kernel, stride, padding, dilation)]
    columns = lambda x: x.unflatten(2, (taps, channels)).permute(0, 3, 2, 1).flatten(1, 2)
    image = lambda x: F.fold(columns(x), size, *options).movedim(1, -1)
    yield Case("fold", [m.normal(n, counts[0] * counts[1], taps * channels)], image, ints=ints)


def fold_cases(m):
    yield from unfold_cases(m, True)


def grid_sample_cases(m):
    for sides in (2, 3):
        for padding, name in enumerate(("zeros", "border", "reflection")):
            align, n, channels = m.random.randrange(2), m.size(3), m.random.choice([1, 3, 8, 40])
            x, grid = m.normal(n, *[m.size(9) for _ in range(sides)], channels), m.normal(n, *[m.size(9) for _ in range(sides)], sides)
            sample = lambda x, g, k=name, a=bool(align): F.grid_sample(x.movedim(-1, 1), g, "bilinear", k, a).movedim(1, -1)
            yield Case("grid_sample", [x, grid], sample, ints=[0, padding, align], note=f"{sides}d {name} {align}")


def batch_norm_cases(m):
    for evaluate in (0, 1):
        for outputs in (0, 1):
            channels = m.random.choice([1, 5, 8, 64, 264])
            running = [m.normal(channels).float(), m.normal(channels).float().abs() + 0.5]
            x = m.normal(m.size(4), 1 + m.size(12), 1 + m.size(12), channels) + m.random.choice([0, 1])

            def fn(x, w, b, mean, var, evaluate=evaluate, outputs=outputs):
                mean, var = mean.to(x.dtype).clone(), var.to(x.dtype).clone()
                y = F.batch_norm(x.movedim(-1, 1), mean, var, w, b, not evaluate, 0.3, 1e-5).movedim(1, -1)
                return (y, mean, var) if outputs else y

            case = Case("batch_norm", [x, m.normal(channels) + 1, m.normal(channels)] + running, fn, ints=[evaluate, outputs], doubles=[0.3],
                        note="evaluated" if evaluate else "trained")
            case.wanted = [not outputs] * 3 + [False] * 2
            yield case


def group_norm_cases(m):
    for groups in (1, 4):
        channels = groups * m.random.choice([1, 3, 8, 64])
        yield Case("group_norm", [m.normal(m.size(4), m.size(12), 1 + m.size(12), channels), m.normal(channels) + 1, m.normal(channels)],
                   channels_last(lambda x, w, b, g=groups: F.group_norm(x, g, w, b, 1e-5)), ints=[groups])


# --- second derivatives -------------------------------------------------------------------------------------------------


SECOND = ("mul", "matmul", "linear", "conv1d", "conv2d", "conv3d", "conv_transpose", "pad_border", "unfold", "fold", "gelu", "silu", "silu_mul",
          "softmax", "log_softmax", "layer_norm", "rms_norm", "group_norm", "rope", "sdpa", "mean_dim", "gather", "index_select", "scatter", "scatter_add",
          "index_put", "cumsum", "cumprod", "logcumsumexp", "fft", "einsum", "linalg", "mse_loss", "max_pool", "avg_pool", "tril")


def second_of(case):
    """The case whose outputs are the gradients of the sum of the cubes of this one's. Of a norm the sum of squares is constant."""

    def gradients(*inputs):
        inputs = [x.detach().requires_grad_() if w and not x.requires_grad else x for x, w in zip(inputs, case.wanted)]
        total = sum((y * y * y).sum() / 6 for y in outputs_of(case.reference, inputs))
        return torch.autograd.grad(total, [x for x, w in zip(inputs, case.wanted) if w], create_graph=True)

    second = Case("d " + case.op, case.inputs, gradients, case.ints, case.doubles, note=case.note)
    second.wanted = case.wanted
    return second


def second_cases(m):
    """In f32: gradients of gradients in 16 bits are mostly their rounding. Those of eigenvalues and singular values divide by their differences, which
    may be small."""
    for name in SECOND if m.dtype == torch.float32 else ():
        for case in globals()[name + "_cases"](m):
            if any(case.wanted) and (case.op != "linalg" or case.ints[0] not in (5, 6)):
                yield second_of(case)


# --- optimizers ---------------------------------------------------------------------------------------------------------


def optimized(make, tensors, steps, decay_first_only, weight_decay, max_norm):
    """Parameters, each followed by its gradient, after so many steps with that gradient, in the precision of a master copy."""
    wide = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    parameters = [torch.nn.Parameter(x.detach().to(wide).clone()) for x in tensors[::2]]
    groups = [{"params": [p], "weight_decay": weight_decay if i == 0 or not decay_first_only else 0.0} for i, p in enumerate(parameters)]
    optimizer = make(groups)
    for _ in range(steps):
        for p, g in zip(parameters, tensors[1::2]):
            p.grad = g.detach().to(wide).clone()
        if max_norm:
            torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        optimizer.step()
    return [p.detach().to(x.dtype) for p, x in zip(parameters, tensors[::2])]


def optimizer_inputs(m):
    inputs = []
    for shape in ([m.size(300)], [m.size(), m.size(200)], [1]):
        inputs += [m.normal(*shape, scale=0.05), m.normal(*shape)]
    return inputs


def optimizer_cases(m, op, doubles, make, weight_decay):
    for max_norm in (0.0, 0.5, 1e6):
        steps, first_only = m.random.choice([1, 7, 20]), m.random.randrange(2)
        case = Case(op, optimizer_inputs(m), lambda *t, a=(steps, first_only, weight_decay, max_norm): optimized(make, t, *a),
                    ints=[steps, first_only], doubles=doubles + [max_norm], note=f"{steps} steps, clipping {max_norm}")
        case.wanted = [True, False] * 3
        case.values_only = True
        yield case


def adamw_cases(m):
    yield from optimizer_cases(m, "adamw", [0.01, 0.85, 0.97, 1e-6, 0.3],
                               lambda groups: torch.optim.AdamW(groups, lr=0.01, betas=(0.85, 0.97), eps=1e-6), 0.3)


def adam_cases(m):
    yield from optimizer_cases(m, "adam", [0.01, 0.85, 0.97, 1e-6, 0.3],
                               lambda groups: torch.optim.Adam(groups, lr=0.01, betas=(0.85, 0.97), eps=1e-6), 0.3)


def rmsprop_cases(m):
    for momentum in (0.0, 0.9):
        yield from optimizer_cases(m, "rmsprop", [0.01, momentum, 0.9, 1e-6, 0.3],
                                   lambda groups, mu=momentum: torch.optim.RMSprop(groups, lr=0.01, alpha=0.9, eps=1e-6, momentum=mu), 0.3)


def check_muon(case):
    """Both make matrices orthogonal in bf16, in products of different order: steps may differ by some hundredths of their size."""
    steps = [(y.double() - x.double(), t.cpu().double() - x.double()) for x, y, t in zip(case.inputs[::2], case.outputs, case.truth[0])]
    worst = max(float((a - b).norm() / b.norm()) for a, b in steps)
    return (0.0 if worst < 0.05 else worst, 0.0)


def muon_cases(m):
    if not hasattr(torch.optim, "Muon") or m.dtype != torch.float32: # of bf16 the step is lost in the parameter's rounding
        return
    for like in (0.0, 1.0):
        inputs = [m.normal(*shape, scale=0.05) for shape in ([24, 100], [24, 100], [100, 24], [100, 24], [64, 64], [64, 64])]
        case = Case("muon", inputs, lambda *t, a=like: optimized(lambda groups: torch.optim.Muon(
            groups, lr=0.01, momentum=0.9, adjust_lr_fn="match_rms_adamw" if a else "original"), t, 3, 0, 0.1, 0.0),
            ints=[3, 0], doubles=[0.01, 0.9, like, 0.0, 0.1, 0.0], check=check_muon, note=f"{like=}")
        case.wanted = [True, False] * 3
        case.values_only = True
        yield case


def sgd_cases(m):
    for momentum in (0.0, 0.9):
        yield from optimizer_cases(m, "sgd", [0.01, momentum, 0.2, 0, 0], lambda groups, mu=momentum: torch.optim.SGD(groups, lr=0.01, momentum=mu), 0.2)


# --- blocks of transformers -----------------------------------------------------------------------------------------------


def gpt_loss(parameters, tokens, targets, heads, _):
    p = iter(parameters)
    table = next(p)
    x = F.embedding(tokens.long(), table) + next(p)
    h = F.linear(F.layer_norm(x, [x.shape[-1]], next(p), next(p)), next(p), next(p))
    q, k, v = h.split(x.shape[-1], -1)
    h = fused_attention(q, k, v, heads, heads, True, 0)
    x = x + F.linear(h, next(p), next(p))
    h = F.layer_norm(x, [x.shape[-1]], next(p), next(p))
    h = F.gelu(F.linear(h, next(p), next(p)), approximate="tanh")
    x = x + F.linear(h, next(p), next(p))
    x = F.layer_norm(x, [x.shape[-1]], next(p), next(p))
    return cross_entropy(x @ table.transpose(0, 1), targets, -100, 0, None)


def llama_loss(parameters, tokens, targets, heads, kv_heads):
    p = iter(parameters)
    x = F.embedding(tokens.long(), next(p))
    h = rms_norm(x, next(p))
    half = x.shape[-1] // heads // 2
    inverse = torch.tensor([10000.0 ** (-i / half) for i in range(half)], dtype=torch.float64).float()
    q, k, v = F.linear(h, next(p)), F.linear(h, next(p)), F.linear(h, next(p))
    h = fused_attention(rope(q, heads, 0, inverse), rope(k, kv_heads, 0, inverse), v, heads, kv_heads, True, 0)
    x = x + F.linear(h, next(p))
    h = rms_norm(x, next(p))
    gate, up = F.linear(h, next(p)), F.linear(h, next(p))
    x = x + F.linear(F.silu(gate) * up, next(p))
    x = rms_norm(x, next(p))
    return cross_entropy(F.linear(x, next(p)), targets, -100, 0, None)


def train(loss_of, parameters, tokens, targets, heads, kv_heads, steps, lr, weight_decay, max_norm):
    parameters = [torch.nn.Parameter(x.to(DEVICE).clone()) for x in parameters]
    tokens, targets = tokens.to(DEVICE), targets.to(DEVICE)
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(parameters, tokens, targets, heads, kv_heads)
        loss.sum().backward()
        if max_norm:
            torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        optimizer.step()
        losses.append(float(loss.detach().reshape(-1)[0]))
    return losses


def training_cases(op, small):
    m = Maker(torch.float32, 5)
    batch, seq, width, heads, vocab, steps = (2, 9, 32, 4, 37, 20) if small else (4, 64, 128, 4, 257, 20)
    tokens, targets = m.integers(0, vocab, batch, seq, dtype=torch.int32), m.integers(0, vocab, batch, seq)

    def weight(*shape):
        return m.normal(*shape, scale=0.08)

    if op == "train_gpt":
        kv_heads, loss_of = heads, gpt_loss
        shapes = [(3 * width, width), (3 * width,), (width, width), (width,), (width,), (width,), (4 * width, width), (4 * width,),
                  (width, 4 * width), (width,)]
        parameters = [weight(vocab, width), weight(seq, width), 1 + weight(width), weight(width)] + [weight(*s) for s in shapes]
        parameters[8] = parameters[8] + 1
        parameters += [1 + weight(width), weight(width)]
    else:
        kv_heads, loss_of, narrow, hidden = heads // 2, llama_loss, width // 2, 3 * width
        parameters = [weight(vocab, width), 1 + weight(width), weight(width, width), weight(narrow, width), weight(narrow, width), weight(width, width),
                      1 + weight(width), weight(hidden, width), weight(hidden, width), weight(width, hidden), 1 + weight(width), weight(vocab, width)]
    lr, weight_decay, max_norm = 3e-3, 0.1, 1.0
    case = Case(op, [tokens, targets] + parameters, None, ints=[heads, kv_heads, steps], doubles=[lr, weight_decay, max_norm])
    case.expected = lambda: train(loss_of, parameters, tokens, targets, heads, kv_heads, steps, lr, weight_decay, max_norm)
    case.dtype = torch.float32
    return case


# --- the comparison ---------------------------------------------------------------------------------------------------------


MAKERS = {name[:-len("_cases")]: fn for name, fn in sorted(globals().items()) if name.endswith("_cases")
          and name not in ("spread_cases", "activation_cases", "masked_cases", "along_cases", "optimizer_cases", "index_cases", "pool_cases", "training_cases", "write_cases",
                           "loss_cases", "row_loss_cases", "extreme_cases")}
TRAININGS = ("train_gpt", "train_llama")


def prepare(case, maker):
    """Computes the truth, PyTorch's own result, and draws the gradients of the outputs."""
    shapes = outputs_of(case.native, in_type(case.inputs, None, "cpu"))
    if any(case.wanted) and not getattr(case, "values_only", False):
        case.gradients = [maker.normal(*y.shape).to(y.dtype) for y in shapes]
    exact_in = None if case.exact is True else torch.float64
    gradients = [g.to(DEVICE) for g in case.gradients]
    case.truth = values_and_gradients(case.reference, in_type(case.inputs, exact_in, DEVICE), case.wanted, gradients)
    case.own = case.truth if case.exact is True else values_and_gradients(case.native, in_type(case.inputs, None, DEVICE), case.wanted, gradients)


def compare(case):
    """Errors of Ignis (outputs, gradients), and of PyTorch."""
    if case.check:
        return case.check(case) + (0.0, 0.0)
    (values, gradients), (own_values, own_gradients) = case.truth, case.own
    if len(values) != len(case.outputs):
        return math.inf, math.inf, 0.0, 0.0
    forward = max(error_of(a, b) for a, b in zip(case.outputs, values))
    own_forward = max(error_of(a, b) for a, b in zip(own_values, values))
    backward = own_backward = 0.0
    for got, truth, own in zip(case.input_gradients, gradients, own_gradients):
        if truth is not None:
            backward = max(backward, error_of(got, truth))
            own_backward = max(own_backward, error_of(own, truth))
    return forward, backward, own_forward, own_backward


def limits_of(case, own_forward, own_backward):
    """The largest errors allowed of values and of gradients."""
    if case.exact is True:  # of integers, too
        return 0.0, 0.0
    floor, ceiling = FLOOR[case.dtype], CEILING[case.dtype]
    if "digamma" in case.note:
        floor, ceiling = max(floor, 1e-9), max(ceiling, 1e-9)  # the truth: PyTorch's trigamma in f64 is right to 4e-10
    forward, backward = (min(max(floor, 2 * own), ceiling) for own in (own_forward, own_backward))
    return (0.0 if case.exact else forward), backward


def build_driver():
    driver = os.path.join(ROOT, "build", "torch_driver")
    os.makedirs(os.path.dirname(driver), exist_ok=True)
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_driver.c")
    include = os.environ.get("IGNIS_INCLUDE", ROOT)
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-I" + include, "-iquote", os.path.join(ROOT, "tests"), source, "-o", driver, "-lm", "-ldl", "-lpthread"], check=True)
    return driver


def run_driver(cases):
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, "cases"), os.path.join(folder, "results")]
        write_cases(paths[0], cases)
        subprocess.run([build_driver()] + paths, check=True)
        read_results(paths[1], cases)


def report(cases):
    """One row for each operation and type; returns how many cases are wrong."""
    wrong = 0
    rows = {}
    for case in cases:
        forward, backward, own_forward, own_backward = compare(case) if not case.message else (math.inf,) * 2 + (0.0,) * 2
        most_forward, most_backward = limits_of(case, own_forward, own_backward)
        bad = not (forward <= most_forward and backward <= most_backward)
        if bad:
            wrong += 1
            shapes = ", ".join(str(list(x.shape)) for x in case.inputs)
            print(f"FAIL {case.op} {NAMES[case.dtype]} {shapes} {case.note}: {case.message or f'errors {forward:.3g}, {backward:.3g}'}")
        row = rows.setdefault((case.op, NAMES[case.dtype]), [0, 0, 0.0, 0.0, 0.0, 0.0])
        row[0] += 1
        row[1] += bad
        for i, value in enumerate((forward, own_forward, backward, own_backward)):
            row[2 + i] = max(row[2 + i], value)
    print(f"\n{'operation':<16} {'type':<5} {'cases':>5}  {'values: Ignis':>13} {'PyTorch':>9}  {'gradients: Ignis':>16} {'PyTorch':>9}")
    for (op, dtype), row in rows.items():
        print(f"{op:<16} {dtype:<5} {row[0]:>5}  {row[2]:>13.2g} {row[3]:>9.2g}  {row[4]:>16.2g} {row[5]:>9.2g}  {'FAIL' if row[1] else 'ok'}")
    return wrong


def report_training(cases):
    wrong = 0
    for case in cases:
        expected = case.expected()
        losses = case.outputs[0].tolist() if case.outputs else []
        difference = max((abs(a - b) for a, b in zip(losses, expected)), default=math.inf) if len(losses) == len(expected) else math.inf
        bad = not difference <= LOSS_LIMIT
        wrong += bad
        print(f"{case.op:<16} {len(expected)} steps: loss {expected[0]:.6f} to {expected[-1]:.6f}, largest difference {difference:.2g}"
              f"  {'FAIL ' + case.message if bad else 'ok'}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description="Every operation of Ignis against PyTorch")
    parser.add_argument("--cases", type=int, default=3, help="times that each operation's cases are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("operations", nargs="*", help="these only (all)")
    options = parser.parse_args()
    unknown = set(options.operations) - set(MAKERS) - set(TRAININGS)
    if unknown:
        raise SystemExit(f"there is no operation {', '.join(sorted(unknown))}")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    cases = []
    for name, make in MAKERS.items():
        if options.operations and name not in options.operations:
            continue
        for dtype in (torch.float32, torch.bfloat16):
            for round_ in range(options.cases):
                maker = Maker(dtype, options.seed * 1000 + round_)
                for case in make(maker):
                    prepare(case, maker)
                    cases.append(case)
    trainings = [training_cases(name, DEVICE == "cpu") for name in TRAININGS if not options.operations or name in options.operations]
    run_driver(cases + trainings)
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name() if DEVICE == 'cuda' else 'the CPU'}")
    wrong = (report(cases) if cases else 0) + (report_training(trainings) if trainings else 0)
    total = len(cases) + len(trainings)
    print(f"torch_compare: {total - wrong} passed, {wrong} failed, 0 skipped")
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
