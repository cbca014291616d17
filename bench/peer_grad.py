# SPDX-License-Identifier: MIT
"""The other side of bench_grad: PyTorch eager on the same work. With the output of bench_grad, ratios (above 1: Ignis is faster).

    ./bench_grad > grad.txt; python3 bench/peer_grad.py [grad.txt]
"""
import torch

from peer_timing import compare

LAYERS, INPUTS = 4, 64
CASES = [("penalty", 256, 64), ("penalty", 4096, 256), ("penalty", 16384, 1024),
         ("hvp", 256, 64), ("hvp", 4096, 256), ("hvp", 16384, 1024)]


def output(x, w):
    for layer in range(LAYERS):
        x = torch.nn.functional.linear(x, w[2 * layer], w[2 * layer + 1])
        if layer < LAYERS - 1:
            x = torch.tanh(x)
    return x


def penalty(x, w, v):
    g, = torch.autograd.grad(output(x, w).sum(), x, create_graph=True)
    return torch.autograd.grad((g * g).mean(), w, allow_unused=True)


def hvp(x, w, v):
    y = output(x, w)
    g = torch.autograd.grad((y * y).mean(), w, create_graph=True)
    return torch.autograd.grad(g, w, v)


def runs():
    for work, rows, width in CASES:
        name = f"{work}_{rows}_{width}"
        x = torch.randn(rows, INPUTS, device="cuda", requires_grad=True)
        w, v = [], []
        for layer in range(LAYERS):
            n, out = width if layer else INPUTS, width if layer < LAYERS - 1 else 1
            w += [(torch.randn(out, n, device="cuda") / n**0.5).requires_grad_(),
                  torch.zeros(out, device="cuda", requires_grad=True)]
            v += [torch.randn(out, n, device="cuda"), torch.randn(out, device="cuda")]
        yield name, lambda: {"penalty": penalty, "hvp": hvp}[work](x, w, v)


if __name__ == "__main__":
    compare(runs)
