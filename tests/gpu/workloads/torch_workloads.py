# SPDX-License-Identifier: MIT
"""Real PyTorch workloads for running under the shim. One process, one workload:

    python3 torch_workloads.py {fixed|varlen|moe|resnet|gnn}

With PYTORCH_NO_CUDA_MEMORY_CACHING=1 every tensor is a cudaMalloc/cudaFree of its own, so the shim is the only cache.
Prints one line: time per iteration, device memory in use at the end, PyTorch's own peaks (0 without its cache) and a
value that depends on every step: it must not change between the driver, PyTorch's allocator and the shim.
"""
import random
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
random.seed(1)
DEV = "cuda"


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self, dim=512, heads=8, layers=6, vocab=8000):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(layers)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def update(loss, opt):
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss


def language_model(shape):
    model = LanguageModel().to(DEV)
    opt = torch.optim.AdamW(model.parameters(), 1e-4)

    def step():
        batch, length = shape()
        t = torch.randint(0, 8000, (batch, length + 1), device=DEV)
        return update(F.cross_entropy(model(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten()), opt)

    return step


def mixture_of_experts():
    n_experts = 8
    experts = nn.ModuleList(
        [nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(n_experts)]
    ).to(DEV)
    gate, embed = nn.Linear(512, n_experts).to(DEV), nn.Embedding(1000, 512).to(DEV)
    opt = torch.optim.AdamW([*experts.parameters(), *gate.parameters(), *embed.parameters()], 1e-4)

    def step():
        x = embed(torch.randint(0, 1000, (random.randint(2000, 16000),), device=DEV))
        prob = gate(x).softmax(-1)
        pick, y = prob.argmax(-1), torch.zeros_like(x)
        for e in range(n_experts):
            idx = (pick == e).nonzero().squeeze(-1)
            if idx.numel():
                y = y.index_add(0, idx, experts[e](x[idx]) * prob[idx, e : e + 1])
        return update((y - x).pow(2).mean(), opt)

    return step


def resnet():
    import torchvision

    model = torchvision.models.resnet50().to(DEV).to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step():
        x = torch.randn(32, 3, 224, 224, device=DEV).to(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x), torch.randint(0, 1000, (32,), device=DEV))
        return update(loss, opt)

    return step


def graph_network():
    w1, w2 = nn.Linear(128, 256).to(DEV), nn.Linear(256, 40).to(DEV)
    features = torch.randn(200000, 128, device=DEV)
    opt = torch.optim.Adam([*w1.parameters(), *w2.parameters()], 1e-3)

    def step():
        n = random.randint(3000, 30000)
        n_edges = n * random.randint(4, 25)
        ids = torch.randint(0, 200000, (n,), device=DEV)
        src, dst = (torch.randint(0, n, (n_edges,), device=DEV) for _ in range(2))
        h = F.relu(w1(torch.zeros(n, 128, device=DEV).index_add(0, dst, features[ids][src])))
        z = w2(torch.zeros(n, 256, device=DEV).index_add(0, dst, h[src]))
        return update(F.cross_entropy(z, torch.randint(0, 40, (n,), device=DEV)), opt)

    return step


WORKLOADS = {
    "fixed": (25, lambda: language_model(lambda: (16, 256))),
    "varlen": (25, lambda: language_model(lambda: (random.choice([4, 8, 16, 24]), random.randint(16, 512)))),
    "moe": (40, mixture_of_experts),
    "resnet": (15, resnet),
    "gnn": (60, graph_network),
}


def main(name):
    n_steps, make = WORKLOADS[name]
    step = make()
    for _ in range(2):
        value = step()
    torch.cuda.synchronize()
    start = time.time()
    for _ in range(n_steps):
        value = step()
    torch.cuda.synchronize()
    ms = (time.time() - start) / n_steps * 1e3
    free, total = torch.cuda.mem_get_info()
    mib = 2**20
    print(
        f"RESULT {name} {ms:.2f} ms/iter device {(total - free) / mib:.0f} MiB "
        f"torch_peak_live {torch.cuda.max_memory_allocated() / mib:.0f} "
        f"torch_peak_reserved {torch.cuda.max_memory_reserved() / mib:.0f} value {float(value):.6f}",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1])
