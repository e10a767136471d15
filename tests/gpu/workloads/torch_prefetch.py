# SPDX-License-Identifier: MIT
"""Training with batches that are prefetched on a copy stream and a loss that a third stream follows:

    python3 torch_prefetch.py prefetch

Tensors are used on another stream than the one they were made on, and dropped while that use is queued. record_stream says
so to PyTorch's own cache; without that cache it does nothing. Prints the line of torch_workloads.py.
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
DEV = "cuda"
N_BATCHES, N_STEPS = 8, 60


class Prefetcher:
    """The next batch is on its way while the current one is used."""

    def __init__(self, batches):
        self.batches, self.stream, self.at = batches, torch.cuda.Stream(), 0
        self.fetch()

    def fetch(self):
        x, y = self.batches[self.at % len(self.batches)]
        self.at += 1
        with torch.cuda.stream(self.stream):
            x = x.to(DEV, non_blocking=True)
            self.next = (x - x.mean()) / (x.std() + 1e-3), y.to(DEV, non_blocking=True)

    def take(self):
        current = torch.cuda.current_stream()
        current.wait_stream(self.stream)
        batch = self.next
        for tensor in batch:
            tensor.record_stream(current)
        self.fetch()
        return batch


def make_batches():
    generator = torch.Generator().manual_seed(2)
    sizes = [256 + 128 * (i * 5 % N_BATCHES) for i in range(N_BATCHES)]
    return [(torch.randn(n, 1024, generator=generator).pin_memory(),
             torch.randint(0, 100, (n,), generator=generator).pin_memory()) for n in sizes]


def make_step():
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 100)).to(DEV)
    opt = torch.optim.AdamW(model.parameters(), 1e-4)
    batches, side = Prefetcher(make_batches()), torch.cuda.Stream()
    total = torch.zeros((), device=DEV)

    def step():
        x, y = batches.take()
        output = model(x)
        loss = F.cross_entropy(output, y)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            total.add_(output.detach().float().pow(2).mean())
        output.record_stream(side)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach() + 0

    return step, total


def main(name):
    step, total = make_step()
    for _ in range(N_BATCHES):
        value = step()
    torch.cuda.synchronize()
    start = time.time()
    for _ in range(N_STEPS):
        value = step()
    torch.cuda.synchronize()
    ms = (time.time() - start) / N_STEPS * 1e3
    free, all_bytes = torch.cuda.mem_get_info()
    mib = 2**20
    print(
        f"RESULT {name} {ms:.2f} ms/iter device {(all_bytes - free) / mib:.0f} MiB "
        f"torch_peak_live {torch.cuda.max_memory_allocated() / mib:.0f} "
        f"torch_peak_reserved {torch.cuda.max_memory_reserved() / mib:.0f} value {float(value):.6f}/{float(total):.6f}",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "prefetch")
