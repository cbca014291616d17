# SPDX-License-Identifier: MIT
"""The other side of bench_fft: PyTorch (cuFFT, and torch.einsum) on the same work. With the output of bench_fft, ratios (above 1: Ignis is faster).

    ./bench_fft > fft.txt; python3 bench/peer_fft.py [fft.txt]
"""
import torch

from peer_timing import compare

NUMBERS = 64 << 17  # complex numbers of 64 MiB in f32

ROWS = [("fft_1024", "fft", 1, 1024, torch.float32), ("fft_2048", "fft", 1, 2048, torch.float32), ("fft_4096", "fft", 1, 4096, torch.float32),
        ("fft_8192", "fft", 1, 8192, torch.float32), ("fft_16384", "fft", 1, 16384, torch.float32), ("fft_32768", "fft", 1, 32768, torch.float32),
        ("fft_65536", "fft", 1, 65536, torch.float32), ("fft_262144", "fft", 1, 262144, torch.float32),
        ("fft_1048576", "fft", 1, 1048576, torch.float32), ("fft_64", "fft", 1, 64, torch.float32), ("fft_256", "fft", 1, 256, torch.float32),
        ("fft_1000", "fft", 1, 1000, torch.float32), ("fft_1031", "fft", 1, 1031, torch.float32), ("ifft_1024", "ifft", 1, 1024, torch.float32),
        ("fft_1024_f64", "fft", 1, 1024, torch.float64), ("fft_65536_f64", "fft", 1, 65536, torch.float64),
        ("rfft_1024", "rfft", 1, 1024, torch.float32), ("rfft_65536", "rfft", 1, 65536, torch.float32),
        ("irfft_1024", "irfft", 1, 1024, torch.float32), ("irfft_65536", "irfft", 1, 65536, torch.float32),
        ("fft2_1024", "fft", 2, 1024, torch.float32), ("rfft2_1024", "rfft", 2, 1024, torch.float32), ("fft3_128", "fft", 3, 128, torch.float32)]


def transform(kind, ndim, n, dtype):
    numbers = NUMBERS if dtype == torch.float32 else NUMBERS // 2
    batch = max(1, numbers * (2 if kind in ("rfft", "irfft") else 1) // n**ndim)
    shape = [batch] + [n] * ndim
    if kind == "irfft":
        shape[-1] = n // 2 + 1
    if kind == "rfft":
        x = torch.randn(shape, device="cuda", dtype=dtype)
    else:
        x = torch.view_as_complex(torch.randn(shape + [2], device="cuda", dtype=dtype))
    run = {"fft": torch.fft.fftn, "ifft": torch.fft.ifftn, "rfft": torch.fft.rfftn, "irfft": torch.fft.irfftn}[kind]
    dims = tuple(range(-ndim, 0))
    return lambda: run(x, dim=dims)


def runs():
    for name, *rest in ROWS:
        yield name, transform(*rest)
    q, k = (torch.randn(4, 2048, 16, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    yield "einsum_scores", lambda: torch.einsum("bqhd,bkhd->bhqk", q, k)
    weights = torch.randn(4, 16, 2048, 2048, device="cuda", dtype=torch.bfloat16)
    yield "einsum_values", lambda: torch.einsum("bhqk,bkhd->bqhd", weights, k)


if __name__ == "__main__":
    compare(runs, 16)
