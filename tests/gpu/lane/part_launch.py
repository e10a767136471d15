# SPDX-License-Identifier: MIT
"""What a kernel launch costs more under the shim, in two ways.

Between processes: a program that times launches by the runtime and by the driver runs native, shimmed and native again in
turns; the difference of each turn, shimmed against native, beside that of native against native, which is the noise.
Within a process: batches by the body that the program links and by libcuda's own function in turns, and by the latter a
second time, which again is the noise. Intervals hold the median with 95 % confidence (lane/figures.py).
"""
import re
import statistics

from lane.figures import difference, summary, within
from lane.programs import driver_program, runtime_programs

LIMIT_NS = 5.0
N_TURNS = 15
N_PAIR_PROCESSES = 3
ARMS = ("native", "shimmed", "native_again")
APIS = ("runtime_ns", "driver_ns")
FUNCTIONS = ("cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx")

PROGRAMS = [
    *runtime_programs("gpu_launch", "tests/gpu/gpu_launch.cu", runtimes=("static",), libraries=("-lcuda",)),
    driver_program("gpu_launch_pair", "tests/gpu/gpu_launch_pair.c"),
]


def check_counted(session, result):
    """Each launch of the program went through the shim, whichever API made it."""
    said = re.search(r"launch: (\d+) batches of (\d+) in two ways", "\n".join(result.lines))
    streams = [stream for stream in (result.dump or {}).get("streams", []) if stream.get("kind") == "created"]
    n_batches, n_launches = (int(said[1]), int(said[2])) if said else (-1, -1)
    found = max((stream["submissions"] for stream in streams), default=0)
    waits = max((stream["synchronisations"] for stream in streams), default=0)
    session.check("launch: every launch was announced", found == 2 * n_batches * n_launches,
                  f"{2 * n_batches * n_launches} launches, {found} submissions")
    session.check("launch: every synchronise was counted", waits == 2 * n_batches, f"{2 * n_batches}, {waits}")


def turns(session):
    """One list for each arm and API: what each turn measured. The order of the arms changes from turn to turn."""
    seen = {api: {arm: [] for arm in ARMS} for api in APIS}
    for turn in range(N_TURNS):
        row = {}
        for i in range(len(ARMS)):
            arm = ARMS[(turn + i) % len(ARMS)]
            result = session.run("gpu_launch", [session.program("gpu_launch_static")], arm == "shimmed")
            found = dict(re.findall(r"^TIME (\S+) ([0-9.]+)$", "\n".join(result.lines), re.M))
            if result.code or any(api not in found for api in APIS):
                session.check(f"launch: {arm} run ended well", False, f"exit {result.code}")
                break
            if arm == "shimmed" and turn == 0:
                check_counted(session, result)
            row[arm] = {api: float(found[api]) for api in APIS}
        if len(row) == len(ARMS):
            for api in APIS:
                for arm in ARMS:
                    seen[api][arm].append(row[arm][api])
    return seen


def between_processes(session):
    seen = turns(session)
    for api, by_arm in seen.items():
        if not by_arm["native"]:
            session.check(f"launch: {api} between processes", False, "no turn was complete")
            continue
        found = difference(zip(by_arm["native"], by_arm["shimmed"]))
        noise = difference(zip(by_arm["native"], by_arm["native_again"]))
        session.times.setdefault("launch_between_processes", {})[api] = {
            "unit": "ns a launch", "difference": found, "noise": noise,
            **{arm: summary(values) for arm, values in by_arm.items()}}
        session.check(f"launch: {api} between processes, at most {LIMIT_NS:g} ns or the noise",
                      within(found, noise, LIMIT_NS), f"difference {found}, noise {noise}")


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
        "unit": "ns a launch", "difference": found, "noise": noise, "median_of_each_process": by_process,
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
