# SPDX-License-Identifier: MIT
"""What the peers of the benchmarks share: the time of a call, and the times that a benchmark has printed."""
import statistics
import sys
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


def printed_times():
    """The milliseconds by name in the files that the command line names, of lines "name value ms"."""
    times = {}
    for path in sys.argv[1:]:
        with open(path) as file:
            times.update((words[0], float(words[1])) for words in map(str.split, file) if len(words) > 2 and words[2] == "ms")
    return times
