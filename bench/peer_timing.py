# SPDX-License-Identifier: MIT
"""What the peers of the benchmarks share: the time of a call, the times that a benchmark has printed, and the comparison of both."""
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


def compare(runs, width=18):
    """Prints the milliseconds of each run, and how often a printed time goes into them. runs() yields names, and functions to time."""
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return
    ours = printed_times()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for name, run in runs():
        theirs = 1e3 * seconds(run)
        print(f"{name:<{width}} {theirs:10.4f} ms" + (f" {theirs / ours[name]:6.2f}" if name in ours else ""), flush=True)
