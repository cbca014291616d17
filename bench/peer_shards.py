# SPDX-License-Identifier: MIT
"""Training of a Llama under PyTorch's FSDP2 (fully_shard): what bench_shards is held against.

    python3 bench/peer_shards.py [number of GPUs] [llama-1b | llama-3b | llama-8b]

The model and its size on each GPU are those of bench_shards.c: 4 sequences (8B: 2) of 2048 tokens, fused AdamW, parameters gathered and gradients reduced in
bf16, each block a unit. Ways: eager, and each block compiled. NVLink multicast (NVLS) is off.
"""
import os
import statistics
import sys

os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29519")
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
except ImportError:
    print("PyTorch with FSDP2 is not installed")
    raise SystemExit(0)

import time

from peer_training import Llama

CONTEXT, VOCAB = 2048, 128256
SHAPES = {
    "llama-1b": dict(layers=16, width=2048, hidden=8192, heads=32, kv_heads=8),
    "llama-3b": dict(layers=28, width=3072, hidden=8192, heads=24, kv_heads=8),
    "llama-8b": dict(layers=32, width=4096, hidden=14336, heads=32, kv_heads=8),
}


def sharded(shape, compiled):
    """The model on this GPU, of which it is given its shards alone: nothing has all of it."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    with torch.device("meta"):
        model = Llama(vocab=VOCAB, context=CONTEXT, **shape)
    for block in model.blocks:
        if compiled:
            block.compile()
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device="cuda")
    size = shape["width"] // shape["heads"]
    angles = torch.outer(torch.arange(CONTEXT, device="cuda"), 500000.0 ** (-torch.arange(0, size, 2, device="cuda") / size))
    model.cos, model.sin = angles.cos(), angles.sin()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.02) if p.dim() > 1 else p.fill_(1)
    return model


def rate(rank, n, name, compiled):
    batch = 2 if name == "llama-8b" else 4
    torch.manual_seed(1 + rank)
    torch.cuda.reset_peak_memory_stats()
    model = sharded(SHAPES[name], compiled)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    tokens, targets = (torch.randint(0, VOCAB, (batch, CONTEXT), device="cuda") for _ in range(2))

    def steps(count):
        torch.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(count):
            model(tokens, targets).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / count

    steps(2)
    spent = statistics.median(steps(3) for _ in range(3))
    return n * batch * CONTEXT / spent, torch.cuda.max_memory_allocated() / 2**30


def work(rank, n, name):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=n, device_id=torch.device("cuda", rank))
    for compiled in (False, True):
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        tokens, peak = rate(rank, n, name, compiled)
        if rank == 0:
            way = "blocks compiled" if compiled else "eager"
            print(f"{name} on {n}, FSDP2      {way:<18} {tokens:9.0f} tokens/s  peak {peak:6.2f} GiB", flush=True)
    dist.destroy_process_group()


def main():
    there = torch.cuda.device_count()
    n = int(sys.argv[1]) if len(sys.argv) > 1 else there
    name = sys.argv[2] if len(sys.argv) > 2 else "llama-1b"
    if n < 1 or n > there:
        print(f"peer_shards: {n} GPUs asked for, {there} there")
        return
    print(f"# PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    mp.spawn(work, (n, name), n)


if __name__ == "__main__":
    main()
