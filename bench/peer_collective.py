# SPDX-License-Identifier: MIT
"""NCCL's collectives through PyTorch: what Ignis' own are held against.

    python3 bench/peer_collective.py [number of GPUs]

One line a measurement: operation, element type, bytes, way, microseconds, bus bandwidth in GB/s. Bytes and bus bandwidth are those of
nccl-tests: the whole buffer of all_reduce, broadcast and all_to_all, the output of all_gather, the input of reduce_scatter. Ways:

    eager       operations called one after the other
    graph       a CUDA graph of many operations
    symm        as graph, on memory that NCCL has registered on all ranks (its symmetric kernels); where this PyTorch offers it

Times are device time between two events, the median of some repetitions on the slowest rank. The whole run ends within 90 seconds: what does
not fit is left out, and a last line says so. NVLink multicast (NVLS) is off.
"""
import os
import statistics
import sys
import time

os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29517")

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
except ImportError:
    print("PyTorch is not installed")
    raise SystemExit(0)

SIZES = [1 << shift for shift in range(10, 31, 2)]
LARGEST = SIZES[-1]
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
SECONDS = 85


def operations(n):
    """Name: (call on an input and an output of the same bytes, bytes on the busiest link per byte of the buffer)."""

    def part(whole):
        rank, count = dist.get_rank(), whole.numel() // n
        return whole[rank * count:(rank + 1) * count]

    return {
        "all_reduce": (lambda a, b: dist.all_reduce(a), 2 * (n - 1) / n),
        "all_gather": (lambda a, b: dist.all_gather_into_tensor(b, part(a)), (n - 1) / n),
        "reduce_scatter": (lambda a, b: dist.reduce_scatter_tensor(part(b), a), (n - 1) / n),
        "broadcast": (lambda a, b: dist.broadcast(a, 0), 1),
        "all_to_all": (lambda a, b: dist.all_to_all_single(b, a), (n - 1) / n),
    }


def median_us(run, count, repetitions):
    """Of one operation; run() queues `count`."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(repetitions):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / count)
    return statistics.median(times)


def measure(call, a, b, size, way):
    count = 20 if size <= 1 << 20 else 8 if size <= 1 << 24 else 4 if size <= 1 << 26 else 2
    repetitions = 11 if size <= 1 << 24 else 5

    def run():
        for _ in range(count):
            call(a, b)

    if way == "eager":
        return median_us(run, count, repetitions)
    run()  # connections are made outside of the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    result = median_us(graph.replay, count, repetitions)
    del graph
    return result


def registered_memory(device):
    """Two buffers in NCCL's symmetric memory, or the reason why not."""
    try:
        backend = dist.group.WORLD._get_backend(device)
        pool = torch.cuda.MemPool(backend.mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            buffers = [torch.zeros(LARGEST // 2, dtype=torch.bfloat16, device=device) for _ in range(2)]
        backend.register_mem_pool(pool, symm=True)
        return (backend, pool, buffers), ""
    except Exception as error:  # which one depends on the version of PyTorch
        return None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def work(rank, n):
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=n, device_id=device)
    begin = time.monotonic()
    symmetric, why = registered_memory(device)
    agreed = torch.tensor([symmetric is not None], dtype=torch.int32, device=device)
    dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
    plain = [torch.zeros(LARGEST // 2, dtype=torch.bfloat16, device=device) for _ in range(2)]
    if rank == 0:
        print(f"# PyTorch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, {n} x {torch.cuda.get_device_name()}")
        if not agreed.item():
            print(f"# no symmetric memory: {why}")
    skipped = 0
    for way in ("graph", "eager", "symm") if agreed.item() else ("graph", "eager"):
        for name, (call, factor) in operations(n).items():
            for dtype_name, dtype in DTYPES.items():
                for size in SIZES:
                    state = torch.tensor([time.monotonic() - begin], dtype=torch.float64, device=device)
                    dist.all_reduce(state, op=dist.ReduceOp.MAX)
                    if state.item() > SECONDS:
                        skipped += 1
                        continue
                    a, b = (x.view(dtype)[:size // dtype.itemsize] for x in (symmetric[2] if way == "symm" else plain))
                    state[0] = measure(call, a, b, size, way)
                    dist.all_reduce(state, op=dist.ReduceOp.MAX)
                    if rank == 0:
                        us = state.item()
                        print(f"{name} {dtype_name} {size} {way} {us:.2f} {factor * size / us / 1e3:.2f}", flush=True)
    if rank == 0 and skipped:
        print(f"# {skipped} measurements left out: {SECONDS} seconds were over")
    torch.cuda.synchronize()
    if symmetric:
        backend, pool, _ = symmetric
        backend.deregister_mem_pool(pool)
    dist.destroy_process_group()


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else torch.cuda.device_count()
    if n < 2 or n > torch.cuda.device_count():
        print(f"peer_collective: {n} GPUs asked for, {torch.cuda.device_count()} there; collectives need 2 or more")
        return
    mp.spawn(work, (n,), n)


if __name__ == "__main__":
    main()
