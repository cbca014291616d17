# SPDX-License-Identifier: MIT
"""The other side of bench_linalg: PyTorch eager on the same work. With the output of bench_linalg, ratios (above 1: Ignis is faster).

    ./bench_linalg > linalg.txt; python3 bench/peer_linalg.py [linalg.txt]

The forms that do not wait are measured where PyTorch has them (cholesky_ex, inv_ex, solve_ex).
"""
import torch

from peer_timing import compare

OPERATIONS = {
    "cholesky": lambda a, b: torch.linalg.cholesky_ex(a),
    "solve": lambda a, b: torch.linalg.solve_ex(a, b),
    "triangular": lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
    "inverse": lambda a, b: torch.linalg.inv_ex(a),
    "logdet": lambda a, b: torch.linalg.slogdet(a),
    "qr": lambda a, b: torch.linalg.qr(a),
    "eigh": lambda a, b: torch.linalg.eigh(a),
    "svd": lambda a, b: torch.linalg.svd(a, full_matrices=False),
}

CASES = [
    ("cholesky_8", 10000), ("cholesky_32", 10000), ("cholesky_64", 10000), ("cholesky_64_f64", 10000),
    ("cholesky_256", 100), ("solve_8", 10000), ("solve_32", 10000), ("solve_64", 10000), ("solve_64_f64", 10000),
    ("triangular_64", 10000), ("inverse_32", 10000), ("logdet_32", 10000), ("qr_32", 1000), ("eigh_32", 1000),
    ("svd_32", 1000), ("cholesky_8192_f64", 1), ("solve_4096", 1), ("qr_2048", 1), ("eigh_1024_f64", 1),
    ("svd_1024_f64", 1),
]


def runs():
    for name, count in CASES:
        words = name.split("_")
        n, dtype = int(words[1]), torch.float64 if words[-1] == "f64" else torch.float32
        x = torch.randn(count, n, n, device="cuda", dtype=dtype)
        a = x @ x.mT / n + torch.eye(n, device="cuda", dtype=dtype)
        b = torch.randn(count, n, 1, device="cuda", dtype=dtype)
        yield name, lambda: OPERATIONS[words[0]](a, b)


if __name__ == "__main__":
    compare(runs)
