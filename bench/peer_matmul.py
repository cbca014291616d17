# SPDX-License-Identifier: MIT
"""The other side of bench_matmul: PyTorch's products, among them cuBLASLt's with a bias and gelu fused, in TFLOP/s, bf16; of 8 bits (e4m3) those
with exact sums and with fast ones, and the microseconds of rounding to 8 bits by the largest number, of a row and of all (torch.compile).

    python3 bench/peer_matmul.py [e4m3 [8192x4800x1600 ...]]
"""
import sys

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    raise SystemExit(0)

from peer_timing import seconds

SHAPES = [(8192, 8192, 8192), (4096, 4096, 4096), (65536, 2304, 768), (65536, 3072, 768), (65536, 768, 768), (65536, 768, 3072),
          (65536, 50304, 768), (4000, 5120, 1600), (1000, 1003, 1001), (1000, 1000, 1000), (4104, 4104, 4104)]


QUANTIZED = [(32768, 768), (32768, 3072), (16384, 4096), (8192, 8192), (4096, 16384), (1024, 4096), (100000, 257)]


def in_graph(run, count=20):
    """Seconds of a call among so many in a CUDA graph, as bench_matmul's graph has them."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            run()
    return seconds(graph.replay, 5) / count


@torch.compile
def quantize(x, per_row):
    scale = (x.abs().amax(-1, keepdim=True) if per_row else x.abs().amax()).float() / 448
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def eights(shapes):
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, f8_e4m3; microseconds")
    one = torch.ones((), device="cuda")
    for m, n, k in shapes:
        a, b = (torch.randn(*shape, device="cuda").to(torch.float8_e4m3fn) for shape in ((m, k), (n, k)))
        for name, fast in ("exact", False), ("fast", True):
            taken = in_graph(lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=fast))
            print(f"{f'{m} x {n} x {k}':<26} {'a b^T, ' + name:<18} {1e6 * taken:9.1f}", flush=True)
        del a, b
    for m, n in QUANTIZED:
        x = torch.randn(m, n, device="cuda", dtype=torch.bfloat16)
        torch._dynamo.reset()
        for name, per_row in ("rows", True), ("all", False):
            print(f"{f'{m} x {n}':<26} {'quantize, ' + name:<18} {1e6 * in_graph(lambda: quantize(x, per_row)):9.1f}", flush=True)


def main():
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return
    if "e4m3" in sys.argv:
        asked = [tuple(map(int, word.split("x"))) for word in sys.argv[1:] if "x" in word]
        eights(asked or [shape for shape in SHAPES if shape[2] % 16 == 0])
        return
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, bf16; TFLOP/s")
    for m, n, k in SHAPES:
        a, b, bt = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for shape in ((m, k), (k, n), (n, k)))
        bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)
        forms = {"a b": lambda: a @ b, "a b^T": lambda: a @ bt.t(),
                 "a b^T, bias, gelu": lambda: torch._addmm_activation(bias, a, bt.t(), use_gelu=True)}
        for name, run in forms.items():
            print(f"{f'{m} x {n} x {k}':<26} {name:<18} {2e-12 * m * n * k / seconds(run):9.1f}", flush=True)
        del a, b, bt, bias


if __name__ == "__main__":
    main()
