# SPDX-License-Identifier: MIT
"""PyTorch's own cache natively against the shim with that cache off: time a step, values, and memory of the device."""
import pathlib
import re
import statistics
import subprocess
import sys
import time

from lane.compare import check_books, check_unmanaged
from lane.json_run import pool_figures, seconds_of
from lane.machine import has_torch

HERE = pathlib.Path(__file__).resolve().parent
WORKLOADS = HERE.parent / "workloads"
PROGRAMS = []

NAMES = ("fixed", "varlen", "moe", "resnet", "gnn", "prefetch")
RATIO_MAX = 1.02
N_MORE_NATIVE = 6
KINDS = {"own_cache": (False, {}), "shimmed": (True, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})}


def parse(lines, name):
    """(ms a step, value)"""
    for line in lines:
        match = re.match(rf"RESULT {name} ([0-9.]+) ms/iter .*value (\S+)", line)
        if match:
            return float(match[1]), match[2]
    return None


def parse_peak(text):
    match = re.search(r"PEAK (-?\d+) SAMPLES (\d+) SECONDS ([0-9.]+)", text)
    if not match:
        return None
    return {"bytes": int(match[1]), "samples_a_second": round(int(match[2]) / max(float(match[3]), 1e-9))}


def sampled(session, name, argv, is_shimmed, extra):
    """Run while another process watches the device's memory. Returns the result and the peak."""
    sampler = session.popen([sys.executable, str(HERE / "sample_memory.py")], False, stdin=subprocess.PIPE)
    is_ready = session.line_of(sampler) == "ready\n"
    result = session.run(name, argv, is_shimmed, extra)
    _, output, _ = session.end(f"{name} memory", sampler, 10)  # closes its stdin
    return result, parse_peak(output) if is_ready else None


def one_run(session, name, kind, found):
    is_shimmed, extra = KINDS[kind]
    script = "torch_prefetch.py" if name == "prefetch" else "torch_workloads.py"
    result, peak = sampled(session, f"torch4_{name}", [sys.executable, str(WORKLOADS / script), name], is_shimmed, extra)
    said = parse(result.lines, name)
    session.check(f"torch4_{name}: {kind} run ended well", result.code == 0 and said is not None, f"exit {result.code}")
    if said:
        found.setdefault(name, {}).setdefault(kind, []).append(
            {"ms": said[0], "value": said[1], "device_peak": peak, "pool": pool_figures(result.dump)})
    check_books(session, f"torch4_{name}", result.dump)
    check_unmanaged(session, f"torch4_{name}", result.dump)


def values_of(by_kind):
    return {kind: {run["value"] for run in runs} for kind, runs in by_kind.items()}


def find_native_values(session, name, found):
    """Some workloads add in an order that is not fixed: run natively until every value was seen there, for a few times."""
    for _ in range(N_MORE_NATIVE):
        by_kind = found.get(name, {})
        if len(by_kind) == 2 and not values_of(by_kind)["shimmed"] <= values_of(by_kind)["own_cache"]:
            session.guarded(f"torch4_{name}", one_run, name, "own_cache", found)


def judge(session, name, by_kind):
    session.record("torch4", name, by_kind)
    if len(by_kind) != 2:
        return
    values = values_of(by_kind)
    session.check(f"torch4_{name}: native values", values["shimmed"] <= values["own_cache"],
                  str({kind: sorted(those) for kind, those in values.items()}))
    medians = {kind: statistics.median(run["ms"] for run in runs) for kind, runs in by_kind.items()}
    ratio = round(medians["shimmed"] / medians["own_cache"], 4)
    session.check(f"torch4_{name}: at most {RATIO_MAX} of the time of PyTorch's own cache", ratio <= RATIO_MAX,
                  f"ratio {ratio}, {medians}")
    peaks = {kind: max((run["device_peak"] or {}).get("bytes", 0) for run in runs) for kind, runs in by_kind.items()}
    session.note(f"torch4_{name}: peak of the device, baseline taken off: {peaks}")


def run(session):
    if not has_torch():
        session.note("PyTorch is not installed or sees no GPU: its runs were left out")
        return
    budget_s = seconds_of("POOLSHIM_LANE_TORCH4_S", 230)
    deadline, found, n_rounds = time.monotonic() + budget_s, {}, 0
    while n_rounds < session.n_rounds and time.monotonic() < deadline:
        for name in NAMES:
            for kind in KINDS:
                session.guarded(f"torch4_{name}", one_run, name, kind, found)
        n_rounds += 1
    if n_rounds < session.n_rounds:
        session.note(f"torch4: {n_rounds} rounds of {session.n_rounds} in {budget_s} s")
    for name in NAMES:
        find_native_values(session, name, found)
        judge(session, name, found.get(name, {}))
