# SPDX-License-Identifier: MIT
"""What libraries submit, by two counts: table_workloads.py {cudnn|cupy} {plain|counted}

plain: run each workload and nothing else, so that the process asks for what its libraries ask for. counted: run each
under torch.profiler, a CUPTI client, and print one line COUNT with a JSON object for each: the submissions that the
shim counted meanwhile, and the trace's counts (count_trace). Needs the shim, in whatever mode; no workload uses graphs, of
which one launch is many activities.
"""
import collections
import ctypes
import json
import os
import pathlib
import sys
import tempfile

# In the trace: what is an activity of the device, and calls that submit but leave none.
ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
NO_ACTIVITY = ("EventRecord", "StreamWaitEvent", "LaunchHostFunc", "StreamAddCallback", "StreamWaitValue",
               "StreamWriteValue")
N_TIMES = 20


def count_trace(trace):
    """Counts of a trace in Chrome's form: activities by category, and submissions that are none by their calls' names."""
    activities, others = collections.Counter(), collections.Counter()
    for event in trace["traceEvents"]:
        category, name = event.get("cat"), event.get("name", "")
        if event.get("ph") != "X":
            continue
        if category in ACTIVITIES:
            activities[category] += 1
        elif category in CALLS and any(part in name for part in NO_ACTIVITY):
            others[name] += 1
    return {"activities": dict(activities), "others": dict(others)}


def submissions(folder):
    """All that the shim has counted so far, as its dump has it."""
    path = os.path.join(folder, "now.json")
    if ctypes.CDLL(None).poolshim_dump(path.encode()) != 0:
        sys.exit("no dump was written")
    with open(path, encoding="utf-8") as file:
        return sum(stream["submissions"] for stream in json.load(file)["streams"])


def cudnn_workloads():
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    import torchvision
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.manual_seed(7)
    x = torch.randn(16, 32, 64, 64, device="cuda", requires_grad=True)
    conv = nn.Conv2d(32, 64, 3, padding=1).cuda()
    back = nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1).cuda()
    half = x.detach().half()
    half_conv = nn.Conv2d(32, 64, 3, padding=1).cuda().half()
    norm = nn.BatchNorm2d(32).cuda()
    lstm, gru = nn.LSTM(64, 128, 2, bidirectional=True).cuda(), nn.GRU(64, 128).cuda()
    steps = torch.randn(32, 8, 64, device="cuda", requires_grad=True)
    query = torch.randn(4, 8, 256, 64, device="cuda", dtype=torch.float16, requires_grad=True)

    deep = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    images = torch.randn(16, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)

    def residual():
        with torch.autocast("cuda", torch.bfloat16):
            deep(images).sum().backward()

    def attention():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            F.scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward()

    return {
        "convolution": lambda: conv(x).sum().backward(),
        "transposed": lambda: back(conv(x)).sum().backward(),
        "half": lambda: half_conv(half),
        "normalisation": lambda: norm(x).sum().backward(),
        "lstm": lambda: lstm(steps)[0].sum().backward(),
        "gru": lambda: gru(steps)[0].sum().backward(),
        "attention": attention,
        "residual": residual,
    }


def cupy_workloads():
    import cupy as cp

    a = cp.arange(512 * 512, dtype=cp.float32).reshape(512, 512) % 17
    positive = cp.eye(512, dtype=cp.float32) * 20 + a / 1000
    return {
        "elementwise": lambda: cp.sqrt(a * 2 + 1) - cp.sin(a),
        "matmul": lambda: (a @ a).T @ a,
        "fft": lambda: cp.fft.ifft2(cp.fft.fft2(a)),
        "reductions": lambda: (a.sum(), a.max(axis=1), cp.argsort(a, axis=1), cp.cumsum(a), a.mean(axis=0)),
        "random": lambda: (cp.random.random((512, 512)), cp.random.standard_normal(1000), cp.random.permutation(1000)),
        "solve": lambda: cp.linalg.solve(positive, a),
        "copies": lambda: cp.asarray(a.get()),
    }


def synchronise(library):
    if library == "cupy":
        import cupy as cp

        cp.cuda.runtime.deviceSynchronize()
    else:
        import torch

        torch.cuda.synchronize()


def counted(name, work, library, folder):
    """One workload under the profiler; the profiler's own start and end are not counted."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        synchronise(library)
        before = submissions(folder)
        for _ in range(N_TIMES):
            work()
        synchronise(library)
        after = submissions(folder)
    path = os.path.join(folder, "trace.json")
    seen.export_chrome_trace(path)
    trace = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    return {"name": name, "submissions": after - before, **count_trace(trace)}


def main(library, way):
    n_failed = 0
    if way == "counted":
        import torch

        torch.zeros(1, device="cuda")  # the profiler sees only devices that PyTorch has in use
    workloads = {"cudnn": cudnn_workloads, "cupy": cupy_workloads}[library]()
    with tempfile.TemporaryDirectory() as folder:
        for name, work in workloads.items():
            try:
                for _ in range(2):  # what is chosen, compiled and loaded at first
                    work()
                if way == "counted":
                    print("COUNT", json.dumps(counted(name, work, library, folder)), flush=True)
            except Exception as error:  # a card or a version without it: the others run
                n_failed += 1
                print("LEFT OUT", name, type(error).__name__, str(error).splitlines()[:1], flush=True)
    synchronise(library)
    print("RESULT", library, way, len(workloads) - n_failed)


if __name__ == "__main__":
    main(*sys.argv[1:3])
