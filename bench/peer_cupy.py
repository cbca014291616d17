# SPDX-License-Identifier: MIT
"""The CuPy side of bench_foundation.c: python3 bench/peer_cupy.py"""
import statistics
import time

begin = time.perf_counter()
try:
    import cupy
except ImportError:
    print("CuPy is not installed")
    raise SystemExit(0)
if not cupy.cuda.is_available():
    print("CuPy sees no GPU")
    raise SystemExit(0)

first = cupy.ones(1024, dtype=cupy.float32)
first = float((first + first)[0])
start_ms = (time.perf_counter() - begin) * 1e3


def median_us(step, steps=200, repeats=21):
    times = []
    for _ in range(repeats):
        cupy.cuda.Device().synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        times.append((time.perf_counter() - begin) / steps * 1e6)
        cupy.cuda.Device().synchronize()
    return statistics.median(times)


a = cupy.ones(1024, dtype=cupy.float32)
out = cupy.empty_like(a)
median_us(lambda: cupy.add(a, a, out=out), repeats=2)
print(f"CuPy {cupy.__version__}")
print(f"{'import to the first result':<34} {start_ms:10.2f} ms")
print(f"{'add into an array, not waiting':<34} {median_us(lambda: cupy.add(a, a, out=out)):10.2f} us")
print(f"{'array create + free':<34} {median_us(lambda: cupy.empty(1024, dtype=cupy.float32)) * 1e3:10.2f} ns")
