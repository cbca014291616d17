# SPDX-License-Identifier: MIT
"""The other side of bench_matmul: PyTorch's products, among them cuBLASLt's with a bias and gelu fused, in TFLOP/s, bf16.

    python3 bench/peer_matmul.py
"""
try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    raise SystemExit(0)

from peer_timing import seconds

SHAPES = [(8192, 8192, 8192), (4096, 4096, 4096), (65536, 2304, 768), (65536, 3072, 768), (65536, 768, 768), (65536, 768, 3072),
          (65536, 50304, 768), (4000, 5120, 1600), (1000, 1003, 1001), (1000, 1000, 1000), (4104, 4104, 4104)]


def main():
    if not torch.cuda.is_available():
        print("skipped: no GPU")
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
