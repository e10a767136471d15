#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random programs (order_random), each natively and with the shim: both end, both find nothing
wrong, and statuses and contents are the same. A failure is printed with the command that repeats
it, and made smaller: fewer steps, fewer threads.

usage: run_order.py --sim FOLDER --library FILE [options] PROGRAM
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

LIMIT_MIB = 96
POOL_COUNTERS = ("early_count", "stream_switch_count", "hit_count", "miss_count", "fence_count",
                 "edge_count", "wait_count")
N_SHRINK_RUNS = 24
N_TRIES = 3  # some faults show only when threads meet


class Case:
    """One program: a seed and how it is run."""

    def __init__(self, seed, n_steps, n_threads, flags):
        self.seed = seed
        self.n_steps = n_steps
        self.n_threads = n_threads
        self.flags = flags

    def arguments(self):
        return ["--seed", str(self.seed), "--ops", str(self.n_steps), "--threads", str(self.n_threads), *self.flags]


def case_of(args, index):
    """Every way to run comes with every number of threads, and no two cases have one seed."""
    flags = []
    if index % 2:
        flags.append("--manual")
    if index % 3:
        flags.append("--check")
    if index % 7 == 6:
        flags += ["--limit", str(LIMIT_MIB)]
    threads = args.threads or [1, 2, 4, 3, 8]
    return Case(args.seed + index, args.ops, threads[index % len(threads)], flags)


def environment(args, case, is_shimmed, dump):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("POOLSHIM_", "CUSIM_"))}
    paths = [args.sim, str(args.library.parent), env.get("LD_LIBRARY_PATH", "")]
    env["LD_LIBRARY_PATH"] = ":".join(p for p in paths if p)
    preload = [args.first]
    if is_shimmed:
        preload.append(args.library.name)
        env.update(POOLSHIM_DUMP=str(dump), POOLSHIM_LOG="off")
        env.update(pair.split("=", 1) for pair in args.env)
    if "--limit" in case.flags:
        env["POOLSHIM_LIMIT" if is_shimmed else "CUSIM_MEMORY"] = f"{LIMIT_MIB}M"
    env["LD_PRELOAD"] = ":".join(p for p in preload if p)
    return env


def run(args, case, is_shimmed, folder):
    """What is wrong (empty: nothing), the figures printed, the statuses."""
    name = "shimmed" if is_shimmed else "native"
    statuses, dump = folder / f"{name}.statuses", folder / "dump.json"
    command = [str(args.program), *case.arguments(), "--statuses", str(statuses), "--watchdog", str(args.watchdog)]
    with subprocess.Popen(command, env=environment(args, case, is_shimmed, dump), text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            output, errors = process.communicate(timeout=args.timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            errors += f"\nHANG: it did not end in {args.timeout} s"
    figures = dict(line.rsplit(" ", 1) for line in output.splitlines() if " " in line)
    if is_shimmed and dump.exists():
        for device in json.loads(dump.read_text())["devices"]:
            for counter in POOL_COUNTERS:
                figures[f"pool {counter}"] = int(figures.get(f"pool {counter}", 0)) + device.get(counter, 0)
    problem = "" if process.returncode == 0 else f"{name}: exit code {process.returncode}\n{errors}"
    return problem, figures, statuses.read_text().splitlines() if statuses.exists() else []


def difference(native, shimmed):
    for left, right in zip(native, shimmed):
        if left != right:
            return f"thread, call, status: native {left}, shimmed {right}"
    return f"native made {len(native)} calls, shimmed {len(shimmed)}" if len(native) != len(shimmed) else ""


def judge(args, case):
    """What is wrong with the case (empty: nothing), and the figures of its shimmed run."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        problem, native, native_statuses = run(args, case, False, folder)
        if problem:
            return problem, {}
        problem, shimmed, shimmed_statuses = run(args, case, True, folder)
    problem = problem or difference(native_statuses, shimmed_statuses)
    if not problem and native.get("checksum") != shimmed.get("checksum"):
        problem = f"checksum: native {native.get('checksum')}, shimmed {shimmed.get('checksum')}"
    return problem, shimmed


def still_fails(args, case):
    return any(judge(args, case)[0] for _ in range(N_TRIES))


def shrink(args, case):
    """A smaller case that fails too: first fewer threads, then bisection of the steps."""
    n_runs = 0
    for n_threads in (1, 2):
        smaller = Case(case.seed, case.n_steps // case.n_threads * n_threads, n_threads, case.flags)
        if n_threads < case.n_threads and still_fails(args, smaller):
            case = smaller
            break
    low, high = 0, case.n_steps
    while high - low > case.n_threads and n_runs < N_SHRINK_RUNS:
        middle = (low + high) // 2
        n_runs += 1
        if still_fails(args, Case(case.seed, middle, case.n_threads, case.flags)):
            high = middle
        else:
            low = middle
    return Case(case.seed, high, case.n_threads, case.flags)


def repeat_command(args, case):
    words = ["python3", sys.argv[0], "--sim", args.sim, "--library", str(args.library), "--seed", str(case.seed),
             "--programs", "1", "--ops", str(case.n_steps), "--threads", str(case.n_threads),
             *(f"--env={pair}" for pair in args.env), "--flags", " ".join(case.flags), str(args.program)]
    return shlex.join(words)


def report(args, case, problem):
    print(f"not ok: {' '.join(case.arguments())}\n{problem.strip()}\nrepeat: {repeat_command(args, case)}", flush=True)
    if args.no_shrink:
        return
    smaller = shrink(args, case)
    print(f"smaller: {repeat_command(args, smaller)}\n{judge(args, smaller)[0].strip()}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sim", required=True)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--first", default="", help="libraries to preload before the shim (sanitizers)")
    parser.add_argument("--env", action="append", default=[], help="K=V for the shimmed runs")
    parser.add_argument("--seed", type=int, default=1, help="of the first program")
    parser.add_argument("--programs", type=int, default=50)
    parser.add_argument("--ops", type=int, default=20000, help="steps of each program")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--flags", help="of the program, in place of those that the index gives")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--watchdog", type=int, default=20)
    parser.add_argument("--timeout", type=int, default=120)
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("program", type=pathlib.Path)
    args = parser.parse_args()

    cases = [case_of(args, index) for index in range(args.programs)]
    for case in cases:
        case.flags = args.flags.split() if args.flags is not None else case.flags
    print(f"seeds {args.seed} to {args.seed + args.programs - 1}", flush=True)
    totals, n_failed = collections.Counter(), 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for case, (problem, figures) in zip(cases, pool.map(lambda c: judge(args, c), cases)):
            totals.update({k: int(v) for k, v in figures.items() if k.startswith(("steps", "pool", "calls"))})
            if problem:
                n_failed += 1
                report(args, case, problem)
    for name, total in totals.items():
        print(f"{name}: {total}")
    print(f"{args.programs} programs, {sum(v for k, v in totals.items() if k.startswith('steps'))} steps, "
          f"{n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
