# SPDX-License-Identifier: MIT
"""The other side of bench_map: torch.compile on the same formulas. With the output of bench_map, ratios (above 1: Ignis is faster).

    IGNIS_CACHE_DIR=off ./bench_map > map.txt; python3 bench/peer_map.py map.txt
"""
import statistics
import sys

import torch
import torch.nn.functional as F

from peer_timing import seconds

ROWS, COLS = 16384, 4096
FORMULAS = {
    "copy": (lambda a: a.clone(), "a"),
    "silu(a)*b": (lambda a, b: F.silu(a) * b, "a b"),
    "gelu exact": (F.gelu, "a"),
    "gelu": (lambda a: F.gelu(a, approximate="tanh"), "a"),
    "huber": (lambda a, b: F.huber_loss(a, b, reduction="none"), "a b"),
    "bce with logits": (lambda a, b: a.clamp(min=0) - a * b + torch.log1p(torch.exp(-a.abs())), "a b"),
    "a*row": (lambda a, row: a * row, "a row"),
    "a*col": (lambda a, col: a * col, "a col"),
    "masked fill": (lambda a, m: a.masked_fill(m, 1.0), "a m"),
    "softplus": (F.softplus, "a"),
    "silu(a+row)*(b+row)": (lambda a, b, row: F.silu(a + row) * (b + row), "a b row"),
    "focal": (lambda a, b: -(b * torch.log(torch.sigmoid(a)) + (1 - b) * torch.log(1 - torch.sigmoid(a))) * (1 - torch.sigmoid(a)) ** 2, "a b"),
    "sin(a)*b": (lambda a, b: torch.sin(a) * b, "a b"),
    "mish": (F.mish, "a"),
    "kl": (lambda a, b: b * (torch.log(b) - torch.log(a)), "a b"),
    "a*rsqrt(a*a+b*b+1)": (lambda a, b: a * torch.rsqrt(a * a + b * b + 1), "a b"),
    "dropout": (lambda a: F.dropout(a, 0.1), "a"),
    "mean (a-b)^2": (lambda a, b: ((a - b) ** 2).mean(), "a b"),
    "sum of rows a*b": (lambda a, b: (a * b).sum(1, keepdim=True), "a b"),
    "logsumexp of rows": (lambda a: torch.logsumexp(a, 1, keepdim=True), "a"),
    "argmax of rows": (lambda a: a.argmax(1, keepdim=True), "a"),
}


def read(path):
    """Microseconds of bench_map by formula and type: forward, and forward and backward."""
    ours = {}
    with open(path) as file:
        for line in file:
            numbers = line[28:].split()
            if line[22:23] == " " and line[23:28].strip() in ("bf16", "f32") and len(numbers) in (3, 6):
                ours[line[:22].strip(), line[23:28].strip()] = [float(numbers[at]) for at in range(1, len(numbers), 3)]
    return ours


def main():
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return
    ours, ratios = read(sys.argv[1]) if len(sys.argv) > 1 else {}, []
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {ROWS} x {COLS}")
    print(f"{'formula':<22} {'dtype':<5} {'us':>9} {'ratio':>6} {'f+b us':>9} {'ratio':>6}")
    for dtype, type_name in ((torch.bfloat16, "bf16"), (torch.float32, "f32")):
        for name, (formula, names) in FORMULAS.items():
            shapes = {"a": (ROWS, COLS), "b": (ROWS, COLS), "m": (ROWS, COLS), "row": (COLS,), "col": (ROWS, 1)}
            inputs = [torch.ones(shapes[n], device="cuda", dtype=torch.bool if n == "m" else dtype) for n in names.split()]
            torch._dynamo.reset()
            compiled = torch.compile(formula)
            with torch.no_grad():
                times = [seconds(lambda: compiled(*inputs))]
            if name != "argmax of rows":
                leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]
                grad = torch.ones_like(compiled(*inputs))

                def both():
                    for x in leaves:
                        x.grad = None
                    compiled(*inputs).backward(grad)

                times.append(seconds(both))
            line = f"{name:<22} {type_name:<5}"
            for at, time in enumerate(times):
                line += f" {1e6 * time:9.1f}"
                if (name, type_name) in ours:
                    ratios.append(1e6 * time / ours[name, type_name][at])
                    line += f" {ratios[-1]:6.2f}"
            print(line, flush=True)
    if ratios:
        print(f"{len(ratios)} ratios: median {statistics.median(ratios):.2f}, lowest {min(ratios):.2f}")


if __name__ == "__main__":
    main()
