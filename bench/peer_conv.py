# SPDX-License-Identifier: MIT
"""The other side of bench_conv: PyTorch's convolutions (cuDNN, bf16, channels last, the fastest algorithm that it finds). With the output of
bench_conv, ratios (above 1: Ignis is faster).

    ./bench_conv > conv.txt; python3 bench/peer_conv.py [conv.txt]
"""
import re
import sys

import torch

from peer_timing import seconds

# name: images, height, width, channels, outs, kernel, stride, groups; how often it is in ResNet-50
LAYER = re.compile(r'{"(\w+)",' + r"\s*(-?\d+)," * 8 + r"\s*(-?\d+)}")


def layers():
    """Those of bench_conv.c."""
    with open(__file__.replace("peer_conv.py", "bench_conv.c")) as file:
        for name, *numbers in LAYER.findall(file.read()):
            yield name, [int(n) for n in numbers]


def main():
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return
    ours = {}
    for path in sys.argv[1:]:
        with open(path) as file:
            rows = [line.replace("ms", "").split() for line in file if line.count(" ms") == 2]
            ours = {row[0]: [float(row[1]), float(row[-2] if len(row) > 3 else row[-1])] for row in rows}
    torch.backends.cudnn.benchmark = True
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}: forward, backward")
    total = [0.0, 0.0]
    for name, (times, images, height, width, channels, outs, kernel, stride, groups) in layers():
        if ours and name not in ours:
            continue
        options = {"dtype": torch.bfloat16, "device": "cuda"}
        if height == 1:
            x, w = torch.randn(images, channels, width, **options), torch.randn(outs, channels, kernel, **options)
            convolve = torch.nn.functional.conv1d
        elif name.startswith("conv3d"):
            x, w = torch.randn(images, channels, *[height] * 3, **options), torch.randn(outs, channels, *[kernel] * 3, **options)
            x, w = x.to(memory_format=torch.channels_last_3d), w.to(memory_format=torch.channels_last_3d)
            convolve = torch.nn.functional.conv3d
        elif name.startswith("transpose"):
            x, w = torch.randn(images, channels, height, width, **options), torch.randn(channels, outs, kernel, kernel, **options)
            x, w = x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last)
            convolve = torch.nn.functional.conv_transpose2d
        else:
            x, w = torch.randn(images, channels, height, width, **options), torch.randn(outs, channels // groups, kernel, kernel, **options)
            x, w = x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last)
            convolve = torch.nn.functional.conv2d
        wanted = (x, w) if channels != 3 else (w,)
        for tensor in wanted:
            tensor.requires_grad_()
        run = lambda: convolve(x, w, stride=stride, padding=(kernel - stride) // 2 if name.startswith("transpose") else kernel // 2, groups=groups)
        y = run()
        g = torch.randn_like(y)
        theirs = [1e3 * seconds(run), 1e3 * seconds(lambda: torch.autograd.grad(y, wanted, g, retain_graph=True))]
        total = [a + times * b for a, b in zip(total, theirs)]
        show(name, theirs, ours)
    show("resnet50", total, ours)


def show(name, theirs, ours):
    ratios = "".join(f" {b / a:6.2f}" for a, b in zip(ours.get(name, []), theirs))
    print(f"{name:<26} {theirs[0]:9.4f} ms {theirs[1]:9.4f} ms{ratios}", flush=True)


if __name__ == "__main__":
    main()
