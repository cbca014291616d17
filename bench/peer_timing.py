# SPDX-License-Identifier: MIT
"""What the peers of bench_matmul and bench_shape share: the time of a call."""
import statistics
import time

import torch


def seconds(run, rounds=15):
    """The median of rounds, each of which takes about 10 ms."""
    run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    runs = max(1, min(1000, int(0.01 / (time.perf_counter() - start))))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(runs):
            run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / runs)
    return statistics.median(times)
