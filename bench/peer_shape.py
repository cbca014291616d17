# SPDX-License-Identifier: MIT
"""The other side of bench_shape: PyTorch eager on the same work. With the output of bench_shape, ratios (above 1: Ignis is faster).

    ./bench_shape > shape.txt; python3 bench/peer_shape.py [shape.txt]
"""
import torch

from peer_timing import compare

N = 8192


def runs():
    x, src, row = torch.randn(N, N, device="cuda"), torch.randn(N, N, device="cuda"), torch.randn(1, N, device="cuda")
    half = torch.randn(N, N, device="cuda", dtype=torch.bfloat16)
    index, ids = torch.randint(0, N, (N, N), device="cuda"), torch.randint(0, N, (N,), device="cuda")
    mask, edges = x > 0, src.view(-1).sort()[0][::N].contiguous()
    return {
        "permute": lambda: x.view(N // 32, 32, N).permute(2, 0, 1).contiguous(),
        "permute_heads": lambda: half.view(N // 16, 16, N // 64, 64).permute(0, 2, 1, 3).contiguous(),
        "flip": lambda: x.flip(1),
        "slice_step": lambda: x[:, ::2].contiguous(),
        "expand": lambda: row.expand(N, N).contiguous(),
        "pad": lambda: torch.nn.functional.pad(x, (1, 1, 1, 1)),
        "gather": lambda: x.gather(1, index),
        "index_select": lambda: x.index_select(0, ids),
        "scatter_add": lambda: x.scatter_add(1, index, src),
        "cumsum_rows": lambda: x.cumsum(1),
        "cumsum_columns": lambda: x.cumsum(0),
        "cumsum_all": lambda: x.view(-1).cumsum(0),
        "cumprod": lambda: x.cumprod(1),
        "logcumsumexp": lambda: x.logcumsumexp(1),
        "cummax": lambda: x.cummax(1),
        "cummax_all": lambda: x.view(-1).cummax(0),
        "nonzero": lambda: mask.nonzero(),
        "masked_select": lambda: x.masked_select(mask),
        "searchsorted": lambda: torch.searchsorted(edges, x.view(-1)),
        "scatter": lambda: x.scatter(1, index, src),
        "bincount": lambda: index.view(-1).bincount(minlength=N),
        "histogram": lambda: x.histc(100, -4, 4),
        "unique": lambda: index.unique(),
        "tril": lambda: x.tril(),
        "sort_rows": lambda: x.view(-1, N // 8).sort(dim=1, stable=True),
        "sort_long": lambda: x.sort(dim=1, stable=True),
        "sort_all": lambda: x.view(-1).sort(stable=True),
        "sort_half": lambda: half.view(-1).sort(stable=True),
        "topk": lambda: x.topk(50, 1),
        "topk_one": lambda: x[:8].reshape(-1).topk(50),
    }.items()


if __name__ == "__main__":
    compare(runs, 16)
