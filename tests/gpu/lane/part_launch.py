# SPDX-License-Identifier: MIT
"""What a kernel launch costs more under the shim, in two ways.

Between processes: three processes on one core, native, shimmed and native again, take turns of about a millisecond, in
changing order; a turn gives the difference shimmed - native and, as noise, native again - native. A process has its own
layout in memory, which costs or saves a little for as long as it lives, so the three are started anew several times: the
difference is the median over the sets of their medians, and the noise is the largest median of a set, natively.
Within a process: batches by the body that the program links and by libcuda's own function in turns, and by the latter a
second time, which again is the noise. Intervals hold the median with 95 % confidence (lane/figures.py).
"""
import itertools
import re
import statistics
import subprocess

from lane.figures import difference, within
from lane.programs import driver_program, runtime_programs

LIMIT_NS = 5.0
N_SETS = 6
N_TURNS = 400
N_PAIR_PROCESSES = 3
ARMS = ("native", "shimmed", "native_again")
APIS = ("runtime_ns", "driver_ns")
FUNCTIONS = ("cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuEventRecord")

PROGRAMS = [
    *runtime_programs("gpu_launch", "tests/gpu/gpu_launch.cu", runtimes=("static",), libraries=("-lcuda",)),
    driver_program("gpu_launch_pair", "tests/gpu/gpu_launch_pair.c"),
]


def check_counted(session, output, dump):
    """Each launch of the program went through the shim, whichever API made it."""
    said = re.search(r"launch: (\d+) launches, (\d+) synchronises", output)
    streams = [stream for stream in (dump or {}).get("streams", []) if stream.get("kind") == "created"]
    n_launches, n_synchronises = (int(said[1]), int(said[2])) if said else (-1, -1)
    found = max((stream["submissions"] for stream in streams), default=0)
    waits = max((stream["synchronisations"] for stream in streams), default=0)
    session.check("launch: every launch was announced", found == n_launches,
                  f"{n_launches} launches, {found} submissions")
    session.check("launch: every synchronise was counted", waits == n_synchronises, f"{n_synchronises}, {waits}")


def one_turn(session, child):
    """(ns a launch by the runtime, by the driver), or None from a process that has ended."""
    try:
        child.stdin.write("\n")
        child.stdin.flush()
    except OSError:
        return None
    match = re.match(r"TURN ([0-9.]+) ([0-9.]+)$", session.line_of(child, 20))
    return (float(match[1]), float(match[2])) if match else None


def take_turns(session, children, n_turns):
    """A row for each turn in which all processes answered: {arm: (by the runtime, by the driver)}."""
    rows = []
    for turn in range(n_turns):
        row = {}
        for arm in ORDERS[turn % len(ORDERS)]:
            row[arm] = one_turn(session, children[arm])
            if not row[arm]:
                return rows
        rows.append(row)
    return rows


ORDERS = list(itertools.permutations(ARMS))


def one_set(session, number):
    dump = session.temporary("launch.json")
    children = {arm: session.popen([session.program("gpu_launch_static")], arm == "shimmed", None, dump,
                                   stdin=subprocess.PIPE) for arm in ARMS}
    rows = take_turns(session, children, N_TURNS)
    for arm, child in children.items():
        code, output, errors = session.end(f"gpu_launch {arm}", child)
        session.check(f"launch: {arm} process of set {number} ended well", code == 0,
                      f"exit {code} {errors.strip()[-200:]}")
        if arm == "shimmed" and number == 0:
            check_counted(session, output, session.read_dump("gpu_launch", dump))
    return rows


def judge_sets(session, sets):
    for i, api in enumerate(APIS):
        medians = {}
        for arm in ("shimmed", "native_again"):
            medians[arm] = [difference((row["native"][i], row[arm][i]) for row in rows)["median"] for rows in sets]
        found = statistics.median(medians["shimmed"])
        noise = max(abs(median) for median in medians["native_again"])
        session.times.setdefault("launch_between_processes", {})[api] = {
            "unit": "ns a launch", "difference": round(found, 2), "noise": round(noise, 2),
            "shimmed_of_each_set": medians["shimmed"], "native_again_of_each_set": medians["native_again"],
            "turns_of_a_set": N_TURNS,
            "native_ns": round(statistics.median(row["native"][i] for rows in sets for row in rows), 2)}
        session.check(f"launch: {api} between processes, at most {LIMIT_NS:g} ns or the noise",
                      found <= max(LIMIT_NS, noise),
                      f"difference {found:.2f}, sets {medians['shimmed']}; noise {noise:.2f}, sets {medians['native_again']}")


def between_processes(session):
    sets = []
    for number in range(N_SETS):
        rows = one_set(session, number)
        if session.check(f"launch: set {number} took its turns", len(rows) == N_TURNS, f"{len(rows)} of {N_TURNS}"):
            sets.append(rows)
        elif not sets:
            return  # it will not do better the next time
    judge_sets(session, sets)


def parse_pairs(lines):
    """{function: [(linked, own, own again)]} and {function: (object of the linked one, of libcuda's own)}."""
    pairs, objects = {}, {}
    for line in lines:
        match = re.match(r"PAIR (\S+) ([0-9.]+) ([0-9.]+) ([0-9.]+)$", line)
        if match:
            pairs.setdefault(match[1], []).append(tuple(float(match[i]) for i in (2, 3, 4)))
        match = re.match(r"TIME_IN (\S+) linked (\S+) own (\S+)$", line)
        if match:
            objects[match[1]] = (match[2], match[3])
    return pairs, objects


def within_a_process(session):
    for kind in ("native", "shimmed"):
        pairs = {}
        for _ in range(N_PAIR_PROCESSES if kind == "shimmed" else 1):
            result = session.run(f"launch_pair_{kind}", [session.program("gpu_launch_pair")], kind == "shimmed")
            found, objects = parse_pairs(result.lines)
            session.check(f"launch: {kind} pair run ended well", result.code == 0 and set(found) == set(FUNCTIONS),
                          f"exit {result.code} {result.errors.strip()[-200:]}")
            for function, rows in found.items():
                pairs.setdefault(function, []).append(rows)
        for function, processes in pairs.items():
            judge_pair(session, kind, function, processes, objects.get(function, ("?", "?")))


def judge_pair(session, kind, function, processes, objects):
    rows = [row for process in processes for row in process]
    found = difference((own, linked) for linked, own, _ in rows)
    noise = difference((own, again) for _, own, again in rows)
    by_process = [difference((own, linked) for linked, own, _ in process)["median"] for process in processes]
    session.times.setdefault("launch_within_a_process", {}).setdefault(function, {})[kind] = {
        "unit": "ns a call", "difference": found, "noise": noise, "median_of_each_process": by_process,
        "linked_in": objects[0], "own_ns": round(statistics.median(row[1] for row in rows), 2)}
    if kind == "native":
        return
    session.check(f"launch: {function} is the shim's", objects[0].startswith("libpoolshim"), f"linked in {objects[0]}")
    session.check(f"launch: {function} is not the shim's where libcuda's own is called",
                  objects[1].startswith("libcuda.so"), f"own in {objects[1]}")
    session.check(f"launch: {function} within a process, at most {LIMIT_NS:g} ns or the noise",
                  within(found, noise, LIMIT_NS), f"difference {found}, noise {noise}")


def run(session):
    session.guarded("launch within a process", within_a_process)
    session.guarded("launch between processes", between_processes)
