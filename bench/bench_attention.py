# SPDX-License-Identifier: MIT
"""Attention kernels of kernels/ next to PyTorch's flash attention, on a GPU: python3 bench/bench_attention.py [check] [sweep] [table] [decode]

Takes the kernels' sources as they are in the working tree, compiles them with NVRTC, and launches them on PyTorch's tensors:
so tile sizes can be varied (sweep) without building anything. check compares with PyTorch's math in double precision.
TFLOP/s count 4 s s d forward and 10 s s d backward, half of that causal, for both sides."""
import concurrent.futures
import ctypes
import itertools
import os
import re
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kernels")
DTYPES = {torch.float16: 1, torch.bfloat16: 2, torch.float32: 3, torch.float64: 4}


def library(names):
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    raise SystemExit("none of " + ", ".join(names))


def nvrtc_paths():
    try:
        import nvidia
        for folder in nvidia.__path__:
            for top, _, files in os.walk(folder):
                yield from (os.path.join(top, f) for f in sorted(files) if re.fullmatch(r"libnvrtc\.so\.\d+", f))
    except ImportError:
        pass
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


torch.zeros(1, device="cuda")
cuda = library(["libcuda.so.1"])
nvrtc = library(list(nvrtc_paths()))
major, minor = torch.cuda.get_device_capability()
ARCH = f"sm_{major}{minor}" + ("a" if major == 9 else "")
SMS = torch.cuda.get_device_properties(0).multi_processor_count


def text(name):
    with open(os.path.join(ROOT, name), "rb") as f:
        return f.read()


HEADERS = sorted(f for f in os.listdir(ROOT) if f.endswith(".cuh"))


def cubin(name, options):
    """The image and what the compiler said about spills."""
    program = ctypes.c_void_p()
    count = len(HEADERS)
    texts = (ctypes.c_char_p * count)(*[text(h) for h in HEADERS])
    names = (ctypes.c_char_p * count)(*[h.encode() for h in HEADERS])
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text(name), name.encode(), count, texts, names) == 0
    options = [f"-arch={ARCH}", "-std=c++17", "-default-device", "-Xptxas=-v"] + list(options)
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*[o.encode() for o in options]))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    if failed:
        return None, log.value.decode()
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    image = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, image)
    return image, log.value.decode()


class Module:
    def __init__(self, image, log=""):
        self.handle = ctypes.c_void_p()
        self.functions = {}
        error = cuda.cuModuleLoadData(ctypes.byref(self.handle), image)
        assert error == 0, error
        self.spills = {m[0]: int(m[1]) for m in re.findall(r"Function properties for (\w+)\s+.*?(\d+) bytes spill stores", log)}
        self.registers = dict(re.findall(r"Compiling entry function '(\w+)'.*?Used (\d+) registers", log, re.S))

    def launch(self, entry, grid, threads, shared, attention, scratch=None, number=0):
        if (entry, shared) not in self.functions:
            function = ctypes.c_void_p()
            assert cuda.cuModuleGetFunction(ctypes.byref(function), self.handle, entry.encode()) == 0, entry
            if shared > 40 * 1024:
                assert cuda.cuFuncSetAttribute(function, 8, shared) == 0, (entry, shared)
            self.functions[entry, shared] = function
        grid = tuple(grid) + (1,) * (3 - len(grid))
        address = ctypes.c_void_p(scratch.data_ptr() if scratch is not None else 0)
        number = ctypes.c_int(number)
        pointers = (ctypes.c_void_p * 3)(*[ctypes.addressof(x) for x in (attention, address, number)])
        error = cuda.cuLaunchKernel(self.functions[entry, shared], *[ctypes.c_uint(g) for g in grid], ctypes.c_uint(threads),
                                    ctypes.c_uint(1), ctypes.c_uint(1), ctypes.c_uint(shared),
                                    ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), pointers, None)
        if error:
            raise RuntimeError(f"launch of {entry}: error {error}")


class Rows(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("row", ctypes.c_longlong), ("head", ctypes.c_longlong), ("batch", ctypes.c_longlong)]

    def __init__(self, t=None, head_dim=0):
        super().__init__()
        if t is not None:
            self.data, self.row, self.head, self.batch = t.data_ptr(), t.stride(1), head_dim, t.stride(0)


class Attention(ctypes.Structure):
    _fields_ = [(n, Rows) for n in ("q", "k", "v", "out", "grad_out", "grad_q", "grad_k", "grad_v")] + [
        ("lse", ctypes.c_void_p), ("delta", ctypes.c_void_p)] + [
        (n, ctypes.c_int) for n in ("batches", "heads", "kv_heads", "head_dim", "sq", "sk", "causal")] + [
        ("scale", ctypes.c_double), ("softcap", ctypes.c_double), ("bias", Rows), ("grad_bias", Rows), ("lengths", ctypes.c_void_p),
        ("bounds", ctypes.c_void_p), ("window", ctypes.c_int), ("wide_sinks", ctypes.c_int), ("sinks", ctypes.c_void_p)]


def ceil(a, b):
    return -(-a // b)


# What the macros at the top of attention_mma.cu say, as functions of the head dimension.
MMA = {
    "FORWARD_WARPS": lambda d: 4, "FORWARD_TILES": lambda d: 2 if d <= 128 else 1, "FORWARD_KEYS": lambda d: 64 if d <= 64 else 32,
    "KV_WARPS": lambda d: 6 if d == 192 else 4, "KV_TILES": lambda d: 2 if d <= 64 else 1,
    "KV_SPLIT": lambda d: 1 if d <= 128 else 3 if d == 192 else 2, "KV_QUERIES": lambda d: 64 if d <= 128 else 32,
    "Q_WARPS": lambda d: 4, "Q_TILES": lambda d: 2 if d <= 128 else 1, "Q_KEYS": lambda d: 64 if d <= 64 else 32 if d <= 128 else 16,
}


def geometry_mma(d, options):
    """Rows, threads and bytes of shared memory of each kernel."""
    m = {name: int(options.get(name, default(d))) for name, default in MMA.items()}
    forward = 16 * m["FORWARD_TILES"] * m["FORWARD_WARPS"]
    kv = 16 * m["KV_TILES"] * m["KV_WARPS"] // m["KV_SPLIT"]
    q = 16 * m["Q_TILES"] * m["Q_WARPS"]
    return {"forward": (forward, 32 * m["FORWARD_WARPS"], 2 * d * (forward + 4 * m["FORWARD_KEYS"])),
            "kv": (kv, 32 * m["KV_WARPS"], 2 * d * (2 * kv + 4 * m["KV_QUERIES"]) + 16 * m["KV_QUERIES"]),
            "q": (q, 32 * m["Q_WARPS"], 2 * d * (2 * q + 4 * m["Q_KEYS"]) + 8 * q)}


def geometry_portable(d, size):
    row = d * size
    threads = 64 if row > 1024 else 128
    lines = threads // 8
    pack = 16 // size
    forward, backward = (lines * max(1, min(pack, budget // row)) for budget in (2048, 1024))
    stream = min(8 * pack, 16384 // row)
    f = (forward + stream) * (row + 16) + forward * (stream * size + 16)
    g = (2 * backward + stream) * (row + 16) + 2 * backward * (stream * size + 16)
    return {"forward": (forward, threads, f), "kv": (backward, threads, g), "q": (backward, threads, g)}


class Kernels:
    def __init__(self, dtype, d, portable=False, options=None, image=None):
        options = options or {}
        self.options = [f"-DIGNIS_T={DTYPES[dtype]}", f"-DIGNIS_HEAD_DIM={d}"] + [f"-DIGNIS_{k}={v}" for k, v in options.items()]
        self.source = "attention.cu" if portable else "attention_mma.cu"
        self.geometry = geometry_portable(d, 8 if dtype == torch.float64 else 4) if portable else geometry_mma(d, options)
        if image is None:
            image, log = cubin(self.source, self.options)
            if image is None:
                raise SystemExit(log)
            self.module = Module(image, log)

    def parameters(self, q, k, v, heads, kv_heads, causal, grad=None):
        """q, k, v are [batch, rows, heads * head_dim], of any strides but the last."""
        p = Attention()
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        batches, sq, width = q.shape
        out = torch.empty(batches, sq, width, dtype=q.dtype, device=q.device)
        lse = torch.empty(batches, heads, sq, dtype=wide, device=q.device)
        delta = torch.empty_like(lse)
        grads = [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (q, k, v)]
        p.q, p.k, p.v, p.out = (Rows(t, width // heads) for t in (q, k, v, out))
        p.grad_q, p.grad_k, p.grad_v = (Rows(g, width // heads) for g in grads)
        if grad is not None:
            p.grad_out = Rows(grad, width // heads)
        p.lse, p.delta = lse.data_ptr(), delta.data_ptr()
        p.batches, p.heads, p.kv_heads, p.head_dim = batches, heads, kv_heads, width // heads
        p.sq, p.sk, p.causal, p.scale = sq, k.shape[1], int(causal), (width // heads) ** -0.5
        self.keep = (out, lse, delta, grads)
        return p, out, grads

    def forward(self, p):
        rows, threads, shared = self.geometry["forward"]
        self.module.launch("ignis_sdpa", [ceil(p.sq, rows) * p.heads * p.batches], threads, shared, p)

    def delta(self, p):
        self.module.launch("ignis_sdpa_backward_delta", [min(ceil(p.batches * p.sq * p.heads, 8), 16 * SMS)], 256, 0, p)

    def kv(self, p):
        rows, threads, shared = self.geometry["kv"]
        self.module.launch("ignis_sdpa_backward_kv", [ceil(p.sk, rows) * p.kv_heads * p.batches], threads, shared, p)

    def q(self, p):
        rows, threads, shared = self.geometry["q"]
        self.module.launch("ignis_sdpa_backward_q", [ceil(p.sq, rows) * p.heads * p.batches], threads, shared, p)

    def backward(self, p):
        self.delta(p)
        self.kv(p)
        self.q(p)


def milliseconds(f, times=5, repeats=3):
    f()
    best = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(times):
            f()
        end.record()
        end.synchronize()
        best.append(start.elapsed_time(end) / times)
    return sorted(best)[len(best) // 2]


def split(t, heads):
    return t.view(t.shape[0], t.shape[1], heads, -1).transpose(1, 2)


def reference(q, k, v, grad, heads, kv_heads, causal):
    q, k, v = (t.double().requires_grad_() for t in (q, k, v))
    qh, kh, vh = split(q, heads), split(k, kv_heads), split(v, kv_heads)
    kh, vh = (t.repeat_interleave(heads // kv_heads, 1) for t in (kh, vh))
    s = qh @ kh.transpose(-1, -2) * qh.shape[-1] ** -0.5
    sq, sk = q.shape[1], k.shape[1]
    seen = torch.ones(sq, sk, dtype=torch.bool, device=q.device)
    if causal:
        seen = seen.tril(sk - sq)
    weights = s.masked_fill(~seen, float("-inf")).softmax(-1).masked_fill(~seen, 0).nan_to_num(0)
    out = (weights @ vh).transpose(1, 2).reshape(q.shape)
    return [out.detach()] + [g.nan_to_num(0) for g in torch.autograd.grad(out, (q, k, v), grad.double())]


def check():
    torch.manual_seed(1)
    failed = 0
    cases = [(1, 2, 1, 129, 129, True), (2, 4, 2, 300, 300, True), (1, 2, 2, 77, 513, True), (1, 1, 1, 257, 130, True), (2, 3, 3, 1024, 1024, False),
             (1, 8, 2, 1000, 1000, True), (1, 1, 1, 1, 333, True)]
    jobs = [(dtype, d, False) for dtype in (torch.float16, torch.bfloat16) for d in (32, 64, 96, 128, 192, 256)]
    if os.path.exists(os.path.join(ROOT, "attention.cu")):
        jobs += [(dtype, d, True) for dtype in DTYPES for d in (32, 64, 128, 256)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        images = list(pool.map(lambda j: cubin("attention.cu" if j[2] else "attention_mma.cu", [f"-DIGNIS_T={DTYPES[j[0]]}", f"-DIGNIS_HEAD_DIM={j[1]}"]), jobs))
    for (dtype, d, portable), (image, log) in zip(jobs, images):
        kernels = Kernels(dtype, d, portable, image=image)
        kernels.module = Module(image, log)
        worst = [0.0] * 4
        for batch, heads, kv_heads, sq, sk, causal in cases:
            q, grad = (torch.randn(batch, sq, heads * d, dtype=dtype, device="cuda") for _ in range(2))
            k, v = (torch.randn(batch, sk, kv_heads * d, dtype=dtype, device="cuda") for _ in range(2))
            p, out, grads = kernels.parameters(q, k, v, heads, kv_heads, causal, grad)
            kernels.forward(p)
            kernels.backward(p)
            first = [t.clone() for t in [out] + grads]
            kernels.forward(p)
            kernels.backward(p)
            same = all(torch.equal(a, b) for a, b in zip(first, [out] + grads))
            want = reference(q, k, v, grad, heads, kv_heads, causal)
            errors = [float((a.double() - b).abs().max() / b.abs().max().clamp(min=1e-2)) for a, b in zip(first, want)]
            worst = [max(a, b) if b == b else float("nan") for a, b in zip(worst, errors)]
            limit = {1: 3e-3, 2: 2e-2, 3: 3e-5, 4: 1e-11}[DTYPES[dtype]]
            if not same or not all(e < limit for e in errors):
                failed += 1
                print("BAD", dtype, d, portable, batch, heads, kv_heads, sq, sk, causal, "same" if same else "NOT THE SAME BITS", errors)
        spills = {k: s for k, s in kernels.module.spills.items() if s}
        print(f"{str(dtype)[6:]:9} d {d:3} {'portable' if portable else 'mma':8} worst error out, q, k, v: " + " ".join(f"{w:.1e}" for w in worst), "spills" if spills else "", spills or "")
    print("check:", "FAILED" if failed else "passed", failed)


def inputs(d, s, tokens=16384, width=2048, dtype=torch.bfloat16):
    heads, batch = width // d, tokens // s
    q, k, v, grad = (torch.randn(batch, s, width, dtype=dtype, device="cuda") for _ in range(4))
    return q, k, v, grad, heads


def work(d, s, causal, tokens=16384, width=2048):
    return 4.0 * tokens * s * width / (2 if causal else 1) / 1e9  # forward, in TFLOP ms


def torch_figures(q, k, v, grad, heads, causal):
    qh, kh, vh = (split(t, heads).contiguous().requires_grad_() for t in (q, k, v))
    gh = split(grad, heads).contiguous()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = F.scaled_dot_product_attention(qh, kh, vh, is_causal=causal)
        with torch.no_grad():
            forward = milliseconds(lambda: F.scaled_dot_product_attention(qh, kh, vh, is_causal=causal))
        backward = milliseconds(lambda: torch.autograd.grad(out, (qh, kh, vh), gh, retain_graph=True))
    return forward, backward


def table(lengths=(1024, 4096, 16384), dims=(64, 128), masks=(True, False)):
    print(f"{'TFLOP/s':24} {'forward':>8} {'torch':>8} {'ratio':>6} {'backward':>9} {'torch':>8} {'ratio':>6}   ms: forward delta kv q")
    for d in dims:
        kernels = Kernels(torch.bfloat16, d)
        for causal, s in itertools.product(masks, lengths):
            q, k, v, grad, heads = inputs(d, s)
            p, out, _ = kernels.parameters(q, k, v, heads, heads, causal, grad)
            flop = work(d, s, causal)
            torch_forward, torch_backward = torch_figures(q, k, v, grad, heads, causal)
            kernels.forward(p)
            kernels.delta(p)
            parts = [milliseconds(lambda: f(p)) for f in (kernels.forward, kernels.delta, kernels.kv, kernels.q)]
            backward = milliseconds(lambda: kernels.backward(p))
            print(f"D{d:<4} {'causal' if causal else 'full':7} S{s:<8}  {flop / parts[0]:8.0f} {flop / torch_forward:8.0f} {torch_forward / parts[0]:6.2f} "
                  f"{2.5 * flop / backward:9.0f} {2.5 * flop / torch_backward:8.0f} {torch_backward / backward:6.2f}   "
                  + " ".join(f"{x:.3f}" for x in parts))
    for dtype, d, s in ((torch.float32, 64, 2048), (torch.float32, 128, 2048), (torch.float64, 64, 1024), (torch.bfloat16, 64, 2048)):
        if not os.path.exists(os.path.join(ROOT, "attention.cu")):
            break
        kernels = Kernels(dtype, d, True)
        q, k, v, grad, heads = inputs(d, s, dtype=dtype)
        p, out, _ = kernels.parameters(q, k, v, heads, heads, True, grad)
        kernels.forward(p)
        flop = work(d, s, True)
        print(f"portable {str(dtype)[6:]:9} D{d} causal S{s}: forward {flop / milliseconds(lambda: kernels.forward(p), 2):.1f}, "
              f"backward {2.5 * flop / milliseconds(lambda: kernels.backward(p), 2):.1f} TFLOP/s")


def decode_kernels(dtype, d, mma=True):
    size = 64 if d <= 64 else 128 if d <= 128 else 256
    image, log = cubin("attention_decode_mma.cu" if mma else "attention_decode.cu", [f"-DIGNIS_T={DTYPES[dtype]}", f"-DIGNIS_HEAD_DIM={size}"])
    if image is None:
        raise SystemExit(log)
    module = Module(image, log)
    module.mma, module.size = mma, size
    return module


def decode_call(module, q, k, v, heads, kv_heads):
    batch, d, sk = q.shape[0], q.shape[2] // heads, k.shape[1]
    group = heads // kv_heads
    if module.mma:
        warps = 4 if module.size <= 128 else 2
        entry, at_a_time, keys, threads, blocks = "ignis_sdpa_decode", 16, 16 * warps, 32 * warps, 4 if module.size <= 64 else 2
        shared = 12 * keys * module.size
    else:
        at_a_time = group if group < 3 else 4
        entry, keys, threads, shared, blocks = f"ignis_sdpa_decode_{at_a_time}", 64, 256, 0, 2
    passes = ceil(group, at_a_time)
    wanted = min(1024, max(1, blocks * SMS // (passes * kv_heads * batch)))
    split = ceil(ceil(sk, wanted), keys) * keys
    splits = ceil(sk, split)
    out = torch.empty_like(q)
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    scratch = torch.empty(batch * heads * splits * (d + 2), dtype=wide, device="cuda")
    p = Attention()
    p.q, p.k, p.v, p.out = (Rows(t, d) for t in (q, k, v, out))
    p.batches, p.heads, p.kv_heads, p.head_dim, p.sq, p.sk, p.scale = batch, heads, kv_heads, d, 1, sk, d ** -0.5

    def call():
        module.launch(entry, [splits, passes * kv_heads, batch], threads, shared, p, scratch, split)
        module.launch("ignis_sdpa_decode_combine", [batch * heads], 128, 0, p, scratch, splits)
        return out
    return call, splits


def decode():
    torch.manual_seed(2)
    n = 1 << 28
    source, target = torch.empty(n, device="cuda", dtype=torch.float32), torch.empty(n, device="cuda", dtype=torch.float32)
    copy = 8 * n / milliseconds(lambda: target.copy_(source)) / 1e9
    del source, target
    print(f"decode, bf16: device copy {copy:.2f} TB/s; TB/s of k and v")
    for heads, kv_heads, d, batch, s in ((32, 8, 128, 1, 4096), (32, 8, 128, 1, 32768), (32, 8, 128, 1, 131072), (32, 32, 128, 1, 32768), (12, 12, 64, 1, 65536),
                                         (32, 8, 64, 1, 131072), (64, 8, 128, 1, 131072), (32, 8, 128, 16, 8192), (16, 16, 256, 1, 32768)):
        module, plain = decode_kernels(torch.bfloat16, d), decode_kernels(torch.bfloat16, d, False)
        q = torch.randn(batch, 1, heads * d, dtype=torch.bfloat16, device="cuda")
        k, v = (torch.randn(batch, s, kv_heads * d, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        call, splits = decode_call(module, q, k, v, heads, kv_heads)
        want = reference_decode(q, k, v, heads, kv_heads)
        error = float((call().double() - want).abs().max() / want.abs().max())
        ms = milliseconds(call, 20)
        plain_call, _ = decode_call(plain, q, k, v, heads, kv_heads)
        plain_error = float((plain_call().double() - want).abs().max() / want.abs().max())
        plain_ms = milliseconds(plain_call, 20)
        qh, kh, vh = split(q, heads), split(k, kv_heads), split(v, kv_heads)
        with torch.no_grad():
            torch_ms = milliseconds(lambda: F.scaled_dot_product_attention(qh, kh, vh, enable_gqa=heads != kv_heads), 20)
        bytes_read = 4.0 * batch * s * kv_heads * d
        print(f"  heads {heads:2}/{kv_heads:2} d {d:3} batch {batch:2} context {s:6}: {ms * 1e3:7.1f} us {bytes_read / ms / 1e9:5.2f} ({bytes_read / ms / 1e9 / copy:.2f} of copy), "
              f"PyTorch sdpa {torch_ms * 1e3:8.1f} us, splits {splits}, error {error:.1e}; plain {plain_ms * 1e3:7.1f} us, error {plain_error:.1e}")


def reference_decode(q, k, v, heads, kv_heads):
    qh, kh, vh = (split(t.double(), h) for t, h in ((q, heads), (k, kv_heads), (v, kv_heads)))
    group = heads // kv_heads
    qh = qh.view(qh.shape[0], kv_heads, group, qh.shape[3])
    out = (qh @ kh.transpose(-1, -2) * qh.shape[-1] ** -0.5).softmax(-1) @ vh
    return out.reshape(q.shape)


def sweep(d, part, choices, s=4096, causal=True, show=8):
    """Every combination of choices, fastest first."""
    names = list(choices)
    sets = [dict(zip(names, values)) for values in itertools.product(*choices.values())]
    sets = [s for s in sets if s.get("KV_QUERIES", 64) % s.get("KV_STRIP", 16) == 0 and s.get("Q_KEYS", 64) % s.get("Q_STRIP", 16) == 0]
    kernels = [Kernels(torch.bfloat16, d, options=options, image=1) for options in sets]
    kernels = [k for k in kernels if max(g[2] for n, g in k.geometry.items() if n == part) <= 227 * 1024]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        images = list(pool.map(lambda k: cubin(k.source, k.options), kernels))
    q, k, v, grad, heads = inputs(d, s)
    plain = Kernels(torch.bfloat16, d)
    results = []
    for kernel, (image, log) in zip(kernels, images):
        if image is None:
            continue
        kernel.module = Module(image, log)
        p, out, _ = kernel.parameters(q, k, v, heads, heads, causal, grad)
        plain.forward(p)
        plain.delta(p)
        entry = {"forward": "ignis_sdpa", "kv": "ignis_sdpa_backward_kv", "q": "ignis_sdpa_backward_q"}[part]
        try:
            ms = milliseconds(lambda: getattr(kernel, part)(p), 4, 3)
        except RuntimeError as error:
            print(kernel.options, error)
            continue
        kernel.keep = None
        results.append((ms, kernel.options[2:], kernel.module.spills.get(entry), kernel.module.registers.get(entry)))
    results.sort(key=lambda r: r[0])
    print(f"sweep D{d} {part} {'causal' if causal else 'full'} S{s}: {len(results)} variants")
    for ms, options, spills, registers in results[:show]:
        print(f"  {ms:.3f} ms  " + " ".join(o[8:] for o in options) + f"  registers {registers} spills {spills}")


def sweeps():
    sweep(64, "forward", {"FORWARD_WARPS": [4, 8], "FORWARD_TILES": [1, 2], "FORWARD_KEYS": [32, 64, 128], "FORWARD_KEEP": [0, 1], "FORWARD_BLOCKS": [1, 3]})
    sweep(128, "forward", {"FORWARD_WARPS": [4, 8], "FORWARD_TILES": [1, 2], "FORWARD_KEYS": [32, 48, 64], "FORWARD_KEEP": [0, 1]})
    sweep(64, "kv", {"KV_WARPS": [4, 8], "KV_TILES": [1, 2], "KV_QUERIES": [32, 64, 128], "KV_STRIP": [16, 32, 64]})
    sweep(128, "kv", {"KV_WARPS": [4, 8], "KV_TILES": [1], "KV_QUERIES": [32, 48, 64], "KV_STRIP": [16, 32, 48, 64]})
    sweep(64, "q", {"Q_WARPS": [4, 8], "Q_TILES": [1, 2], "Q_KEYS": [32, 64], "Q_STRIP": [16, 32, 64], "Q_BLOCKS": [1, 3]})
    sweep(128, "q", {"Q_WARPS": [4, 8], "Q_TILES": [1, 2], "Q_KEYS": [32, 64], "Q_STRIP": [16, 32]})


if __name__ == "__main__":
    stages = sys.argv[1:] or ["check", "table"]
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    for stage in stages:
        {"check": check, "table": table, "decode": decode, "sweep": sweeps}[stage]()
