# SPDX-License-Identifier: MIT
"""PyTorch without its cache under its own profiler, which is a CUPTI client: what it saw, in figures that do not vary."""
import os

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

x = torch.arange(256 * 256, device="cuda", dtype=torch.float32).reshape(256, 256) % 7
torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
    for _ in range(5):
        y = x * 2 + 1
        x = (y / y.amax()).contiguous()
    torch.cuda.synchronize()
counts = {row.key: row.count for row in seen.key_averages()}
print("RESULT", {name: counts.get(name, 0) for name in ("cudaMalloc", "cudaFree", "cudaLaunchKernel")},
      "kernels", sum(row.count for row in seen.key_averages() if "elementwise" in row.key), "sum", repr(float(x.sum())))
