#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the GPU programs native and shimmed, compare what they print, time them, and write one results.json.

Called by run.sh, which builds the programs. A run is native, shimmed (the library preloaded) or, for PyTorch, native with
its own cache. Lines that start with TIME are measurements; all other output must be equal. Times are medians of
alternating runs, kept with every single value.
"""
import argparse
import ctypes
import datetime
import difflib
import itertools
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
RUN_LIMIT_S = 90
SIGUSR1_BIT = 1 << (signal.SIGUSR1 - 1)

# What the walking skeleton must reach: shimmed time as a share of the native time.
THRUST_1M_RATIO_MAX = 0.5
TORCH_RATIO_MAX = 0.45


class Session:
    """One run of this script: where things are, what was found, what was checked."""

    def __init__(self, args):
        self.out = pathlib.Path(args.out)
        self.programs = pathlib.Path(args.programs)
        self.library = str(pathlib.Path(args.library).resolve())
        self.work = pathlib.Path(args.work)
        self.checks, self.dumps, self.times, self.notes = [], {}, {}, []
        self.log = open(self.out / "log.txt", "w", encoding="utf-8")
        self.n_runs = 0

    def check(self, name, is_ok, detail=""):
        self.checks.append({"name": name, "ok": bool(is_ok), "detail": detail})
        self.say(f"{'ok' if is_ok else 'NOT OK'} {name} {detail}".rstrip())

    def say(self, line):
        print(line, flush=True)
        self.log.write(line + "\n")
        self.log.flush()

    def environment(self, is_shimmed, extra, dump):
        env = {k: v for k, v in os.environ.items() if not k.startswith("POOLSHIM_") and k != "LD_PRELOAD"}
        env.update(extra or {})
        if is_shimmed:
            env["LD_PRELOAD"] = self.library
            env["POOLSHIM_DUMP"] = str(dump)
        return env

    def run(self, name, argv, is_shimmed, extra=None):
        """Run to the end; the dump of a shimmed run is kept under its name. Returns (exit code, output lines, dump)."""
        self.n_runs += 1
        dump = self.work / f"dump-{self.n_runs}.json"
        start = time.monotonic()
        try:
            done = subprocess.run(argv, env=self.environment(is_shimmed, extra, dump), timeout=RUN_LIMIT_S,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
            code, output, errors = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as expired:
            code, output, errors = "timeout", (expired.stdout or b"").decode(errors="replace"), ""
        kind = "shimmed" if is_shimmed else "native"
        self.log.write(f"--- {name} {kind}: exit {code}, {time.monotonic() - start:.1f} s\n{output[-3000:]}{errors[-2000:]}\n")
        found = self.read_dump(name, dump) if is_shimmed else None
        return code, output.splitlines(), found

    def read_dump(self, name, path):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            self.check(f"{name}: the dump can be read", False, str(error))
            return None
        self.dumps[name] = found
        return found


def comparable(lines):
    return [line for line in lines if not line.startswith("TIME ")]


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": values}


def differences(native, shimmed):
    """The first lines that differ, each as the run that has it shows it."""
    return "; ".join(itertools.islice(difflib.unified_diff(native, shimmed, "native", "shimmed", "", "", 0, ""), 24))


def compare(session, name, argv, extra=None):
    """One program, native and shimmed: same exit code, same lines. Returns both outputs and the dump."""
    native_code, native, _ = session.run(name, argv, False, extra)
    code, shimmed, dump = session.run(name, argv, True, extra)
    session.check(f"{name}: exit code", code == native_code, f"native {native_code}, shimmed {code}")
    is_equal = comparable(native) == comparable(shimmed)
    session.check(f"{name}: same output", is_equal,
                  f"{len(comparable(native))} lines" if is_equal else
                  differences(comparable(native), comparable(shimmed)))
    return native_code, native, shimmed, dump


def check_device_books(session, name, dump):
    for device in (dump or {}).get("devices", []):
        total = device["used_bytes"] + device["free_bytes"]
        session.check(f"{name}: used + free = total", total == device["total_bytes"],
                      f"{total} and {device['total_bytes']}")


def correctness(session):
    table = str(session.programs / "victim_table")
    for route in ("direct", "dlsym", "proc"):
        code, _, _, _ = compare(session, f"victim_table_{route}", [table, route])
        session.check(f"victim_table_{route}: native run is right", code == 0)
    plain = [("gpu_driver", ["gpu_driver"])]
    for runtime in ("static", "shared"):
        for program in ("gpu_order", "gpu_devices", "gpu_managed", "gpu_cpu_visible"):
            plain.append((f"{program}_{runtime}", [f"{program}_{runtime}"]))
    for name, command in plain:
        code, native, shimmed, dump = compare(session, name, [str(session.programs / command[0])])
        session.check(f"{name}: native run is right", code == 0)
        check_device_books(session, name, dump)
        note_times(session, name, native, shimmed)
    # Memory that is short makes the pool hand freed blocks out again at once, or wait.
    name = "gpu_order_static_limit"
    code, lines, dump = session.run(name, [str(session.programs / "gpu_order_static")], True,
                                    {"POOLSHIM_LIMIT": "48MiB"})
    session.check(f"{name}: no word wrong", code == 0, lines[-1] if lines else "")
    peak = dump["devices"][0].get("peak_total_bytes", 0) if dump and dump.get("devices") else -1
    session.check(f"{name}: the limit held", 0 <= peak <= 48 << 20, f"peak {peak}")
    for runtime in ("static", "shared"):
        held(session, f"gpu_held_{runtime}")


def note_times(session, name, native, shimmed):
    for kind, lines in (("native", native), ("shimmed", shimmed)):
        for line in lines:
            match = re.match(r"TIME (\S+) ([0-9.]+)$", line)
            if match:
                session.times.setdefault(name, {}).setdefault(match[1], {})[kind] = float(match[2])


def held(session, name):
    _, native, _, dump = compare(session, name, [str(session.programs / name)])
    match = re.search(r"device (\d+) host (\d+)", " ".join(native))
    if not match or not dump or not dump.get("devices"):
        session.check(f"{name}: requested_bytes at exit", False, "no output or no device in the dump")
        return
    for what, said, found in (("device", int(match[1]), dump["devices"][0].get("requested_bytes")),
                              ("pinned", int(match[2]), dump.get("host", {}).get("requested_bytes"))):
        session.check(f"{name}: requested_bytes at exit, {what}", said == found, f"held {said}, dump {found}")


def thrust(session, n_rounds):
    for runtime in ("static", "shared"):
        name, seen, sums = f"thrust_{runtime}", {}, {}
        for _ in range(n_rounds):
            for kind in ("native", "shimmed"):
                code, lines, _ = session.run(name, [str(session.programs / f"thrust_sort_{runtime}")],
                                             kind == "shimmed")
                session.check(f"{name}: {kind} run ended well", code == 0) if code else None
                for line in lines:
                    match = re.match(r"thrust n=(\d+) ([0-9.]+) us/iter sum (\d+)", line)
                    if match:
                        seen.setdefault(match[1], {}).setdefault(kind, []).append(float(match[2]))
                        sums.setdefault(match[1], set()).add(match[3])
        session.check(f"{name}: the same sums in all runs", len(sums) == 3 and all(len(s) == 1 for s in sums.values()),
                      str({n: sorted(s) for n, s in sums.items()}))
        record_ratios(session, name, seen, "us/iter")
        ratio = session.times[name].get("1000000", {}).get("ratio")
        session.check(f"{name}: 1 M keys in at most {THRUST_1M_RATIO_MAX} of the native time",
                      ratio is not None and ratio <= THRUST_1M_RATIO_MAX, f"ratio {ratio}")


def record_ratios(session, name, seen, unit):
    session.times[name] = {}
    for key, by_kind in seen.items():
        entry = {"unit": unit, **{kind: summary(values) for kind, values in by_kind.items()}}
        if "native" in by_kind and "shimmed" in by_kind:
            entry["ratio"] = round(entry["shimmed"]["median"] / entry["native"]["median"], 4)
        session.times[name][key] = entry


TORCH_LIMIT_MIB = 2560  # the workload has 1704 MiB live at its peak

TORCH_KINDS = {
    "native": (False, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    "shimmed": (True, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    "limited": (True, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "POOLSHIM_LIMIT": f"{TORCH_LIMIT_MIB}MiB"}),
    "own_cache": (False, {}),
}


def torch_argv():
    return [sys.executable, str(HERE / "workloads" / "torch_workloads.py"), "fixed"]


def parse_torch(lines):
    for line in lines:
        match = re.match(r"RESULT fixed ([0-9.]+) ms/iter device (\d+) MiB .*value (\S+)", line)
        if match:
            return float(match[1]), int(match[2]), match[3]
    return None


def torch(session, n_rounds):
    seen, values, device_mib = {"fixed": {}}, {}, {}
    for _ in range(n_rounds):
        for kind, (is_shimmed, extra) in TORCH_KINDS.items():
            name = "torch_fixed_limited" if kind == "limited" else "torch_fixed"
            code, lines, dump = session.run(name, torch_argv(), is_shimmed, extra)
            found = parse_torch(lines)
            if code or not found:
                session.check(f"torch_fixed: {kind} run ended well", False, f"exit {code}")
                return
            seen["fixed"].setdefault(kind, []).append(found[0])
            device_mib.setdefault(kind, []).append(found[1])
            values.setdefault(kind, set()).add(found[2])
            check_device_books(session, name, dump)
    peak = session.dumps["torch_fixed_limited"]["devices"][0]["peak_total_bytes"]
    session.check("torch_fixed_limited: the limit held", peak <= TORCH_LIMIT_MIB << 20, f"peak {peak}")
    record_ratios(session, "torch", seen, "ms/iter")
    session.times["torch"]["fixed"]["device_mib"] = device_mib
    session.times["torch"]["fixed"]["values"] = {kind: sorted(v) for kind, v in values.items()}
    session.check("torch_fixed: the native value to the last digit", len(set().union(*values.values())) == 1,
                  str(values))
    ratio = session.times["torch"]["fixed"]["ratio"]
    session.check(f"torch_fixed: at most {TORCH_RATIO_MAX} of the native time", ratio <= TORCH_RATIO_MAX,
                  f"ratio {ratio}")
    torch_signal(session, values["native"])


# Programs of other frameworks: the module they need, arguments, environment, and what to read from their output.
FRAMEWORKS = {
    "cupy": ("cupy", ["cupy_elementwise.py", "none"], {}, r"cupy \['none'\] ([0-9.]+) us/iter sum (\S+)"),
    "jax": ("jax", ["jax_steps.py"], {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, r"jax ([0-9.]+) ms/iter (\S+)"),
}


def frameworks(session):
    """Without their own pools, native and shimmed: the same values. One run each: the times are no measurement."""
    for name, (module, argv, extra, pattern) in FRAMEWORKS.items():
        if not has_module(module):
            session.notes.append(f"{module} is not installed: its run was left out")
            continue
        command = [sys.executable, str(HERE / "workloads" / argv[0]), *argv[1:]]
        found = {}
        for kind in ("native", "shimmed"):
            code, lines, dump = session.run(name, command, kind == "shimmed", extra)
            match = re.search(pattern, "\n".join(lines))
            session.check(f"{name}: {kind} run ended well", code == 0 and match is not None, f"exit {code}")
            if match:
                found[kind] = (float(match[1]), match[2])
            check_device_books(session, name, dump)
        if len(found) == 2:
            session.check(f"{name}: the same value", found["native"][1] == found["shimmed"][1], str(found))
            session.times[name] = {kind: {"time": time_, "value": value} for kind, (time_, value) in found.items()}


def has_module(name):
    done = subprocess.run([sys.executable, "-c", f"import {name}"], check=False, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
    return done.returncode == 0


def catches_sigusr1(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
    match = re.search(r"^SigCgt:\s*([0-9a-f]+)", status, re.M)
    return bool(match and int(match[1], 16) & SIGUSR1_BIT)


def torch_signal(session, native_values):
    """SIGUSR1 while the training runs: a dump for each, and the value of an undisturbed run."""
    dump = session.work / "signal-%n.json"
    env = session.environment(True, TORCH_KINDS["shimmed"][1], dump)
    child = subprocess.Popen(torch_argv(), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    start = time.monotonic()
    n_signals = 0
    while child.poll() is None and time.monotonic() - start < RUN_LIMIT_S:
        if catches_sigusr1(child.pid):
            child.send_signal(signal.SIGUSR1)
            n_signals += 1
        time.sleep(0.25)
    if child.poll() is None:
        child.kill()
    output, errors = child.communicate()
    session.log.write(f"--- torch_signal: exit {child.returncode}, {n_signals} signals\n{output}{errors[-2000:]}\n")
    found = parse_torch(output.splitlines())
    session.check("torch_signal: the same value", found is not None and {found[2]} == native_values,
                  f"exit {child.returncode}, {found}")
    dumps = []
    for path in sorted(session.work.glob("signal-*.json")):
        dumps.append(session.read_dump("torch_signal", path))
    by_signal = [d for d in dumps if d and d.get("reason") == "signal"]
    session.check("torch_signal: SIGUSR1 gave dumps", bool(by_signal), f"{n_signals} signals, {len(by_signal)} dumps")
    if by_signal:
        session.dumps["torch_signal"] = by_signal[-1]
        used = max(d["devices"][0]["used_bytes"] for d in by_signal if d.get("devices"))
        session.check("torch_signal: a dump shows memory in use", used > 0, f"{used} bytes")


def machine(args):
    """The card as the driver names it, without any tool that may be missing."""
    name, version = ctypes.create_string_buffer(256), ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        sys.exit(f"measure.py: no driver: {error}")
    if driver.cuInit(0) or driver.cuDeviceGetName(name, 256, 0) or driver.cuDriverGetVersion(ctypes.byref(version)):
        sys.exit("measure.py: no usable GPU")
    module = pathlib.Path("/sys/module/nvidia/version")
    release = module.read_text(encoding="utf-8").strip() if module.exists() else "unknown"
    nvcc = subprocess.run([args.cuda_home + "/bin/nvcc", "--version"], stdout=subprocess.PIPE, text=True, check=True)
    return {
        "card": name.value.decode(),
        "driver": release,
        "driver_cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
        "cuda": re.search(r"release ([0-9.]+)", nvcc.stdout)[1],
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit(),
        "n_cpus": os.cpu_count(),
    }


def commit():
    if os.environ.get("POOLSHIM_COMMIT"):
        return os.environ["POOLSHIM_COMMIT"]
    git = subprocess.run(["git", "-C", str(HERE), "rev-parse", "HEAD"], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True, check=False) if which("git") else None
    return git.stdout.strip() if git and git.returncode == 0 else "unknown"


def which(name):
    return any(os.access(os.path.join(d, name), os.X_OK) for d in os.environ.get("PATH", "").split(":"))


def has_torch():
    done = subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("out", "programs", "library", "work", "cuda-home"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--rounds", type=int, default=3, help="alternating runs of each timed program")
    args = parser.parse_args()

    start = time.monotonic()
    session = Session(args)
    result = {"schema": "poolshim-gpu-results-1", **machine(args)}
    session.say(f"{result['card']}, driver {result['driver']}, CUDA {result['cuda']}, commit {result['commit']}")
    correctness(session)
    thrust(session, args.rounds)
    if has_torch():
        torch(session, args.rounds)
    else:
        session.notes.append("PyTorch is not installed or sees no GPU: its runs were left out")

    frameworks(session)

    n_failed = sum(not c["ok"] for c in session.checks)
    result.update(n_passed=len(session.checks) - n_failed, n_failed=n_failed,
                  seconds=round(time.monotonic() - start, 1), times=session.times, checks=session.checks,
                  notes=session.notes)
    (session.out / "results.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (session.out / "dumps.json").write_text(json.dumps(session.dumps, indent=1) + "\n", encoding="utf-8")
    session.say(f"{result['n_passed']} passed, {n_failed} failed in {result['seconds']} s")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
