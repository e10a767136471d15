# SPDX-License-Identifier: MIT
"""PyTorch with other processes: loaders forked once CUDA runs, and tensors handed to a spawned process (CUDA IPC)."""
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset


def consume(tensors, sums):
    """In the other process: read what came, write into it, say what was seen."""
    for _ in range(4):
        tensor = tensors.get(timeout=40)
        sums.put(float(tensor.double().sum()))
        tensor.add_(1)
        torch.cuda.synchronize()
        sums.put(tensor.numel())
        del tensor
    tensors.get(timeout=40)


def share():
    """Sizes below, at and above what allocators keep together."""
    context = mp.get_context("spawn")
    tensors, sums = context.Queue(), context.Queue()
    child = context.Process(target=consume, args=(tensors, sums))
    child.start()
    seen = []
    for n in (1000, 300_000, 6_000_000, 20_000_000):
        tensor = torch.arange(n, device="cuda", dtype=torch.float32) % 11
        torch.cuda.synchronize()
        tensors.put(tensor)
        seen += [sums.get(timeout=40), sums.get(timeout=40), float(tensor.double().sum())]
    tensors.put(None)
    child.join(40)
    return seen, child.exitcode


def load():
    """Workers are forked after CUDA has started; batches are pinned by a thread."""
    data = TensorDataset(torch.arange(4096, dtype=torch.float32).reshape(512, 8))
    total = torch.zeros((), device="cuda", dtype=torch.float64)
    for (batch,) in DataLoader(data, batch_size=32, num_workers=2, pin_memory=True):
        total += batch.cuda(non_blocking=True).double().sum()
    return float(total)


if __name__ == "__main__":
    torch.zeros(1, device="cuda")
    print("RESULT loaded", load(), "shared", *share())
