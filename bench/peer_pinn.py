# SPDX-License-Identifier: MIT
"""examples/pinn.c in PyTorch, to compare their lengths: python3 bench/peer_pinn.py [steps]"""
import sys

import torch
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
device = "cuda" if torch.cuda.is_available() else "cpu"
layers = [nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)]
network = nn.Sequential(*layers).to(device)
optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=0)


def solution(x, t):
    h = network(torch.cat([x, t], 1))
    return t * (1 - x * x) * h - torch.sin(torch.pi * x)


def derivative(output, by):
    return torch.autograd.grad(output.sum(), by, create_graph=True)[0]


for step in range(steps):
    x = (2 * torch.rand(256, 1, device=device) - 1).requires_grad_()
    t = torch.rand(256, 1, device=device, requires_grad=True)
    u = solution(x, t)
    u_t, u_x = derivative(u, t), derivative(u, x)
    u_xx = derivative(u_x, x)
    loss = (u_t + u * u_x - 0.03 * u_xx).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 200 == 0:
        print(f"{step} {loss.item():.5f}")
