# SPDX-License-Identifier: MIT
"""The other side of bench_layers: PyTorch, eager and compiled, on the same work in channels_last bf16. With the output of bench_layers, ratios
(above 1: Ignis is faster).

    ./bench_layers > layers.txt; python3 bench/peer_layers.py [layers.txt]

Weights are f32, as torch.nn's modules have them, where PyTorch is faster with that.
"""
import torch
import torch.nn.functional as F

from peer_timing import printed_times, seconds


def grid_of(x, grids={}):
    """The positions of bench_layers: images that are turned."""
    if x.shape not in grids:
        turn = torch.tensor([[0.9, -0.2, 0], [0.2, 0.9, 0]], device=x.device).expand(x.shape[0], 2, 3)
        grids[x.shape] = F.affine_grid(turn, list(x.shape), align_corners=False).to(x.dtype)
    return grids[x.shape]


def layers():
    """name, n, size, channels, function of x, w, b, mean and var"""
    def norm(training):
        return lambda x, w, b, mean, var: F.batch_norm(x, mean, var, w, b, training, 0.1, 1e-5)

    return [
        ("max_pool", 64, 112, 64, lambda x, *_: F.max_pool2d(x, 3, 2, 1)),
        ("avg_pool", 64, 56, 256, lambda x, *_: F.avg_pool2d(x, 2)),
        ("nearest", 16, 64, 256, lambda x, *_: F.interpolate(x, scale_factor=2, mode="nearest")),
        ("bilinear", 16, 64, 256, lambda x, *_: F.interpolate(x, scale_factor=2, mode="bilinear")),
        ("pad_reflect", 64, 56, 256, lambda x, *_: F.pad(x, (1, 1, 1, 1), mode="reflect")),
        ("unfold", 16, 56, 64, lambda x, *_: F.unfold(x, 3, padding=1)),
        ("grid_sample", 16, 64, 256, lambda x, *_: F.grid_sample(x, grid_of(x), align_corners=False)),
        ("batch_norm_64", 64, 112, 64, norm(True)),
        ("batch_norm_256", 64, 56, 256, norm(True)),
        ("batch_norm_2048", 64, 7, 2048, norm(True)),
        ("batch_norm_eval", 64, 56, 256, norm(False)),
        ("group_norm_256", 64, 56, 256, lambda x, w, b, *_: F.group_norm(x, 32, w.to(x.dtype), b.to(x.dtype))),
        ("group_norm_512", 16, 32, 512, lambda x, w, b, *_: F.group_norm(x, 32, w.to(x.dtype), b.to(x.dtype))),
    ]


def main():
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return
    ours = printed_times()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}\n{'':<18} {'eager':>10} {'compiled':>13}")
    for name, n, size, channels, fn in layers():
        for backward in (False, True):
            def fresh(*shape):
                return torch.rand(shape, device="cuda").requires_grad_(backward)

            x = torch.randn(n, channels, size, size, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
            x.requires_grad_(backward)
            w, b, mean, var = fresh(channels), fresh(channels), torch.rand(channels, device="cuda"), torch.rand(channels, device="cuda")
            times = []
            for run in (fn, torch.compile(fn)):
                gradient = torch.randn_like(run(x, w, b, mean, var))

                def call():
                    y = run(x, w, b, mean, var)
                    if backward:
                        y.backward(gradient)
                        x.grad = w.grad = b.grad = None

                times.append(1e3 * seconds(call))
            label = name + ("+" if backward else "")
            ratios = [f" ({t / ours[label]:5.2f})" if label in ours else "" for t in times]
            print(f"{label:<18} {times[0]:10.4f}{ratios[0]} {times[1]:10.4f}{ratios[1]} ms", flush=True)


if __name__ == "__main__":
    main()
