# SPDX-License-Identifier: MIT
"""Do the driver's private tables that cuDNN and CuPy ask for submit work past the hooks? Only on request (-p tables).

For each library two processes under the shim, in account mode: a plain one, whose dump names the export tables that it
asked for and that shim/export_tables.def does not have; and a counted one, in which the submissions that the shim
counted are compared with the kernels, copies and memsets that CUPTI saw. A table may be listed when no activity came
past the hooks in any workload of a library that asks for it. Submissions that leave no activity (event records, waits)
are taken off first, as far as CUPTI tells of them: what is left over is recorded as `surplus`.
"""
import json
import pathlib
import sys

from lane.machine import has_module, has_torch
from lane.part_coverage import TABLE

PROGRAMS = []

WORKLOAD = pathlib.Path(__file__).resolve().parent.parent / "workloads" / "table_workloads.py"
ACCOUNT = {"POOLSHIM_MODE": "account"}
LIMIT_S = 180  # the first use of each library's kernels loads them


def parse_counts(lines):
    return [json.loads(line.split(" ", 1)[1]) for line in lines if line.startswith("COUNT ")]


def judged(count):
    """The figures of one workload: activities that no submission can stand for, and submissions without an activity."""
    n_activities = sum(count["activities"].values())
    n_others = sum(count["others"].values())
    rest = count["submissions"] - n_others - n_activities
    return {"submissions": count["submissions"], "others": count["others"], "activities": count["activities"],
            "unseen": max(0, -rest), "surplus": max(0, rest)}


def tables_of(dump):
    """The tables that a process asked for and that are not recorded."""
    unknown = (dump or {}).get("coverage", {}).get("unknown", [])
    return [name[len(TABLE):] for name in unknown if name.startswith(TABLE)]


def check_counts(session, library, counts):
    session.check(f"tables_{library}: workloads were counted", counts, f"{len(counts)} workloads")
    for count in counts:
        name, figures = f"tables_{library}_{count['name']}", judged(count)
        session.record("tables", name, figures)
        n_activities = sum(figures["activities"].values())
        session.check(f"{name}: no activity came past the hooks", n_activities > 0 and figures["unseen"] == 0,
                      f"{n_activities} activities, {figures['submissions']} submissions, of them without an activity "
                      f"{sum(figures['others'].values())}; unseen {figures['unseen']}, surplus {figures['surplus']}")


def measure(session, library):
    runs = {way: session.run(f"tables_{library}_{way}", [sys.executable, str(WORKLOAD), library, way], True, ACCOUNT,
                             limit_s=LIMIT_S) for way in ("plain", "counted")}
    for way, result in runs.items():
        session.check(f"tables_{library}_{way}: ended well", result.code == 0 and result.last.startswith("RESULT"),
                      result.last or result.errors.strip()[-200:])
        for line in result.lines:
            if line.startswith("LEFT OUT"):
                session.note(f"tables_{library}_{way}: {line}")
        asked = tables_of(result.dump)
        session.record("tables_asked", f"{library}_{way}", asked)
        session.say(f"tables_{library}_{way}: asked for {' '.join(asked) or 'none that is not listed'}")
    check_counts(session, library, parse_counts(runs["counted"].lines))


def run(session):
    if not has_torch():
        session.note("tables: PyTorch is not installed or sees no GPU: its profiler is what counts, nothing was measured")
        return
    session.guarded("tables_cudnn", measure, "cudnn")
    if has_module("cupy"):
        session.guarded("tables_cupy", measure, "cupy")
    else:
        session.note("tables: CuPy is not installed: it was left out")
