# SPDX-License-Identifier: MIT
"""Small programs that use the vendor's libraries: python3 account_workloads.py {torch|cupy|jax}

Each prints one line RESULT with values that depend on every step and are the same in every run: algorithms are chosen
without timing them, and nothing is summed in an order of chance.
"""
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def run_torch():
    """A small convolutional network (cuDNN) and matrix products (cuBLAS) trained for some steps, a transform (cuFFT)."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.manual_seed(7)
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(), nn.Flatten(),
                          nn.Linear(64 * 30 * 30, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
    opt = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for _ in range(8):
        x = torch.randn(32, 3, 64, 64, device="cuda")
        loss = F.cross_entropy(model(x), torch.randint(0, 10, (32,), device="cuda"))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    a = torch.randn(1024, 1024, device="cuda")
    product = (a @ a.T).diagonal().double().sum()
    spectrum = torch.fft.fft2(a).abs().amax()
    return [float(loss), float(product), float(spectrum)]


def run_cupy():
    import cupy as cp

    cp.cuda.set_allocator(None)
    a = cp.arange(1024 * 1024, dtype=cp.float32).reshape(1024, 1024) % 17
    for _ in range(20):
        b = a @ a
        c = cp.sqrt(b) + 1
    return [float(c.astype(cp.float64).sum()), float(cp.abs(cp.fft.fft(a, axis=1)).max())]


def run_jax():
    import jax
    import jax.numpy as jnp

    @jax.jit
    def step(x, w):
        return jnp.tanh(x @ w)

    w = jnp.ones((512, 512)) * 1e-3
    x = jnp.ones((256, 512))
    for _ in range(30):
        x = step(x, w) + 1
    return [float(x.sum()), float(jnp.linalg.norm(jnp.fft.fft(x)))]


if __name__ == "__main__":
    print("RESULT", sys.argv[1], *(repr(v) for v in {"torch": run_torch, "cupy": run_cupy, "jax": run_jax}[sys.argv[1]]()))
