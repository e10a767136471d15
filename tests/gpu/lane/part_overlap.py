# SPDX-License-Identifier: MIT
"""Streams at once with blocks of their own for each kernel: the time of the same program with memory taken once."""
from lane.json_run import json_run, pool_figures
from lane.programs import runtime_programs

PROGRAMS = runtime_programs("gpu_overlap", "tests/gpu/gpu_overlap.cu", runtimes=("static",))

N_KERNELS = 1000
N_ROUNDS = 3
N_STREAMS = (2, 8)
RATIO_MAX = 1.1


def one(session, n_streams, found):
    """Each way and kind once: native and shimmed, fresh and once."""
    for way in ("once", "fresh"):
        for kind in ("native", "shimmed"):
            name = f"overlap {n_streams} {way}"
            argv = [session.program("gpu_overlap_static"), str(n_streams), str(N_KERNELS), way]
            said, result = json_run(session, name, argv, kind == "shimmed")
            session.check(f"{name}: {kind} run ended well", said is not None and result.code == 0, f"exit {result.code}")
            if said:
                found.setdefault(f"{kind} {way}", []).append({**said, "pool": pool_figures(result.dump)})


def run(session):
    for n_streams in N_STREAMS:
        found = {}
        for _ in range(N_ROUNDS):
            one(session, n_streams, found)
        session.record("overlap", str(n_streams), found)
        gpu_ms = {key: sorted(run["gpu_ms"] for run in runs)[len(runs) // 2] for key, runs in found.items()}
        for key, value in gpu_ms.items():
            session.say(f"overlap {n_streams} streams, {key}: {value} ms")
        if {"shimmed fresh", "native once"} <= set(gpu_ms):
            waits = [run["pool"].get("wait_count") for run in found["shimmed fresh"]]
            ratio = gpu_ms["shimmed fresh"] / gpu_ms["native once"]
            session.check(f"overlap {n_streams}: at most {RATIO_MAX} of the time with memory taken once", ratio <= RATIO_MAX,
                          f"ratio {ratio:.3f}, waits {waits}")
