# SPDX-License-Identifier: MIT
"""The PyTorch side of bench_foundation.c: python3 bench/peer_torch.py"""
import statistics
import time

begin = time.perf_counter()
try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    raise SystemExit(0)
if not torch.cuda.is_available():
    print("PyTorch sees no GPU")
    raise SystemExit(0)

first = torch.ones(1024, device="cuda")
first = float((first + first)[0])
start_ms = (time.perf_counter() - begin) * 1e3


def median_us(step, steps=200, repeats=21):
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        times.append((time.perf_counter() - begin) / steps * 1e6)
        torch.cuda.synchronize()
    return statistics.median(times)


torch.set_grad_enabled(False)
a = torch.ones(1024, device="cuda")
out = torch.empty_like(a)
median_us(lambda: torch.add(a, a, out=out), repeats=2)
print(f"PyTorch {torch.__version__}")
print(f"{'import to the first result':<34} {start_ms:10.2f} ms")
print(f"{'add into an array, not waiting':<34} {median_us(lambda: torch.add(a, a, out=out)):10.2f} us")
print(f"{'array create + free':<34} {median_us(lambda: torch.empty(1024, device='cuda')) * 1e3:10.2f} ns")
