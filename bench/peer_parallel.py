# SPDX-License-Identifier: MIT
"""Data-parallel training of GPT-2 124M under PyTorch's DistributedDataParallel: what bench_parallel is held against.

    python3 bench/peer_parallel.py [number of GPUs ...]      (1 2 4, as many as there are)

The model and its size on each GPU are those of peer_training.py: 32 sequences of 1024 tokens, bf16 by autocast, fused AdamW. Ways: eager,
torch.compile, and torch.compile with gradients that travel as bf16 (DDP's own hook for it), as Ignis' do. NVLink multicast (NVLS) is off.
"""
import os
import statistics
import sys
import time

os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29518")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
except ImportError:
    print("PyTorch is not installed")
    raise SystemExit(0)

from peer_training import GPT

BATCH, CONTEXT = 32, 1024
WAYS = ("eager", "compile", "compile, bf16 gradients")


def seconds_per_step(step):
    """The median of some batches of steps, on the wall clock, from all ranks idle to all ranks idle."""

    def batch(steps):
        torch.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps

    batch(5)
    return statistics.median(batch(5) for _ in range(5))


def rate(rank, n, way):
    device = torch.device("cuda", rank)
    torch.manual_seed(0)
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    if n > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True, static_graph=True)
        if way.endswith("bf16 gradients"):
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    call = model if way == "eager" else torch.compile(model)
    torch.manual_seed(1 + rank)
    tokens, targets = (torch.randint(0, 50257, (BATCH, CONTEXT), device=device) for _ in range(2))

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = call(tokens, targets)
        loss.backward()
        optimizer.step()

    return n * BATCH * CONTEXT / seconds_per_step(step)


def work(rank, n):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=n, device_id=torch.device("cuda", rank))
    torch.backends.cuda.matmul.allow_tf32 = True
    for way in WAYS[:2] if n == 1 else WAYS:
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        tokens = rate(rank, n, way)
        if rank == 0:
            print(f"GPT-2 124M, DDP on {n}: {way:<24} {tokens / 1e3:10.1f} ktokens/s", flush=True)
    dist.destroy_process_group()


def main():
    there = torch.cuda.device_count()
    wanted = [int(a) for a in sys.argv[1:]] or [n for n in (1, 2, 4, 8) if n <= there]
    if not wanted or max(wanted) > there:
        print(f"peer_parallel: {wanted} GPUs asked for, {there} there")
        return
    print(f"# PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    for n in wanted:
        mp.spawn(work, (n,), n)


if __name__ == "__main__":
    main()
