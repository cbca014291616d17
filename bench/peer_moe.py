# SPDX-License-Identifier: MIT
"""examples/moe.c in PyTorch, to compare their lengths: python3 bench/peer_moe.py [steps]"""
import sys

import torch
from torch import nn
from torch.nn import functional as F

EXPERTS, WIDTH = 4, 32
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
device = "cuda" if torch.cuda.is_available() else "cpu"


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(2, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(2, WIDTH), nn.GELU(approximate="tanh"), nn.Linear(WIDTH, 1)) for _ in range(EXPERTS)
        )

    def forward(self, x):
        top, best = self.gate(x).topk(2)
        top = top.softmax(-1)
        y = x.new_zeros(len(x), 1)
        for e, expert in enumerate(self.experts):
            row, place = torch.where(best == e)
            h = expert(x[row])
            y = y.index_add(0, row, h * top[row, place, None])
        return y


network = Mixture().to(device)
optimizer = torch.optim.AdamW(network.parameters(), lr=5e-3, weight_decay=0)
for step in range(steps):
    x = 2 * torch.rand(256, 2, device=device) - 1
    a, b = x.split(1, 1)
    target = torch.where(a < 0, torch.sin(6 * b), torch.where(b < 0, a * a, -a))
    loss = F.mse_loss(network(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 200 == 0:
        print(f"{step} {loss.item():.5f}")
