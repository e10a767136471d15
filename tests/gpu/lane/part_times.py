# SPDX-License-Identifier: MIT
"""Thrust and PyTorch without a cache of their own, native and shimmed in turns: the same values, and times."""
import pathlib
import re
import signal
import sys
import time

from lane.compare import check_books, record_ratios
from lane.machine import has_torch
from lane.programs import runtime_programs
from lane.session import RUN_LIMIT_S

WORKLOADS = pathlib.Path(__file__).resolve().parent.parent / "workloads"
SIGUSR1_BIT = 1 << (signal.SIGUSR1 - 1)

# The most that a shimmed run may take, as a share of the native time.
THRUST_1M_RATIO_MAX = 0.5
TORCH_RATIO_MAX = 0.45

PROGRAMS = runtime_programs("thrust_sort", "tests/gpu/workloads/thrust_sort.cu")


def parse_thrust(lines):
    """(size, us an iteration, sum) of each size."""
    found = []
    for line in lines:
        match = re.match(r"thrust n=(\d+) ([0-9.]+) us/iter sum (\d+)", line)
        if match:
            found.append((match[1], float(match[2]), match[3]))
    return found


def thrust(session, runtime):
    name, seen, sums = f"thrust_{runtime}", {}, {}
    for _ in range(session.n_rounds):
        for kind in ("native", "shimmed"):
            result = session.run(name, [session.program(f"thrust_sort_{runtime}")], kind == "shimmed")
            if result.code:
                session.check(f"{name}: {kind} run ended well", False, result.code)
            for size, us, total in parse_thrust(result.lines):
                seen.setdefault(size, {}).setdefault(kind, []).append(us)
                sums.setdefault(size, set()).add(total)
    session.check(f"{name}: the same sums in all runs", len(sums) == 3 and all(len(s) == 1 for s in sums.values()),
                  str({n: sorted(s) for n, s in sums.items()}))
    record_ratios(session, name, seen, "us/iter")
    ratio = session.times[name].get("1000000", {}).get("ratio")
    session.check(f"{name}: 1 M keys in at most {THRUST_1M_RATIO_MAX} of the native time",
                  ratio is not None and ratio <= THRUST_1M_RATIO_MAX, f"ratio {ratio}")


TORCH_LIMIT_MIB = 2560  # the workload has 1704 MiB live at its peak

TORCH_KINDS = {
    "native": (False, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    "shimmed": (True, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    "limited": (True, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "POOLSHIM_LIMIT": f"{TORCH_LIMIT_MIB}MiB"}),
    "own_cache": (False, {}),
}


def torch_argv():
    return [sys.executable, str(WORKLOADS / "torch_workloads.py"), "fixed"]


def parse_torch(lines):
    """(ms an iteration, MiB of the device, value)."""
    for line in lines:
        match = re.match(r"RESULT fixed ([0-9.]+) ms/iter device (\d+) MiB .*value (\S+)", line)
        if match:
            return float(match[1]), int(match[2]), match[3]
    return None


def torch_rounds(session):
    """Returns times, device memory and values, each by kind."""
    times, device_mib, values = {}, {}, {}
    for _ in range(session.n_rounds):
        for kind, (is_shimmed, extra) in TORCH_KINDS.items():
            name = "torch_fixed_limited" if kind == "limited" else "torch_fixed"
            result = session.run(name, torch_argv(), is_shimmed, extra)
            found = parse_torch(result.lines)
            if result.code or not found:
                session.check(f"torch_fixed: {kind} run ended well", False, f"exit {result.code}")
                continue
            times.setdefault(kind, []).append(found[0])
            device_mib.setdefault(kind, []).append(found[1])
            values.setdefault(kind, set()).add(found[2])
            check_books(session, name, result.dump)
    return times, device_mib, values


def torch(session):
    times, device_mib, values = torch_rounds(session)
    devices = session.dumps.get("torch_fixed_limited", {}).get("devices") or [{}]
    peak = devices[0].get("peak_total_bytes", 1 << 62)
    session.check("torch_fixed_limited: the limit held", peak <= TORCH_LIMIT_MIB << 20, f"peak {peak}")
    record_ratios(session, "torch", {"fixed": times}, "ms/iter")
    session.times["torch"]["fixed"]["device_mib"] = device_mib
    session.times["torch"]["fixed"]["values"] = {kind: sorted(v) for kind, v in values.items()}
    session.check("torch_fixed: the native value to the last digit",
                  set(values) == set(TORCH_KINDS) and len(set().union(*values.values())) == 1, str(values))
    ratio = session.times["torch"]["fixed"].get("ratio")
    session.check(f"torch_fixed: at most {TORCH_RATIO_MAX} of the native time",
                  ratio is not None and ratio <= TORCH_RATIO_MAX, f"ratio {ratio}")
    torch_signal(session, values.get("native", set()))


def catches_sigusr1(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
    match = re.search(r"^SigCgt:\s*([0-9a-f]+)", status, re.M)
    return bool(match and int(match[1], 16) & SIGUSR1_BIT)


N_FAST_SIGNALS = 1500


def signal_while(child, limit_s):
    """SIGUSR1 to a program as long as it runs, once it takes the signal: many a millisecond apart, then some.

    Returns how many."""
    start, n_signals = time.monotonic(), 0
    while child.poll() is None and time.monotonic() - start < limit_s:
        if n_signals or catches_sigusr1(child.pid):
            child.send_signal(signal.SIGUSR1)
            n_signals += 1
        time.sleep(0.001 if 0 < n_signals < N_FAST_SIGNALS else 0.25)
    return n_signals


def torch_signal(session, native_values):
    """SIGUSR1 while the training runs: a dump for each, and the value of an undisturbed run."""
    child = session.popen(torch_argv(), True, TORCH_KINDS["shimmed"][1], session.work / "signal-%n.json")
    n_signals = signal_while(child, RUN_LIMIT_S)
    code, output, _ = session.end("torch_signal", child, 5)
    found = parse_torch(output.splitlines())
    session.check("torch_signal: the same value", found is not None and {found[2]} == native_values,
                  f"exit {code}, {found}")
    paths = sorted(session.work.glob("signal-*.json"))
    dumps = [session.read_dump("torch_signal", path) for path in paths]
    for path in paths:
        path.unlink()
    by_signal = [d for d in dumps if d and d.get("reason") == "signal"]
    session.check("torch_signal: the last dump is there", any(d and d.get("reason") == "exit" for d in dumps))
    session.check("torch_signal: SIGUSR1 gave dumps", bool(by_signal), f"{n_signals} signals, {len(by_signal)} dumps")
    if by_signal:
        session.dumps["torch_signal"] = by_signal[-1]
        used = max(d["devices"][0]["used_bytes"] for d in by_signal if d.get("devices"))
        session.check("torch_signal: a dump shows memory in use", used > 0, f"{used} bytes")


def run(session):
    for runtime in ("static", "shared"):
        session.guarded(f"thrust_{runtime}", thrust, runtime)
    if has_torch():
        session.guarded("torch_fixed", torch)
    else:
        session.note("PyTorch is not installed or sees no GPU: its runs were left out")
