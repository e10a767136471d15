# SPDX-License-Identifier: MIT
"""The matrix of routes (tests/preload/routes/cells) with the real driver and the real runtimes, each cell a check.

A route fills nearly the whole device several times, so routes run one after the other. Not here: dlvsym (NVIDIA's names
have no version) and a runtime that a plug-in exports (NVIDIA's static one hides its names).
"""
import json
import sys

from lane.programs import driver_program

CELLS = "tests/preload/routes/cells"
KINDS = ("device", "pinned", "async", "pitch", "managed", "vmm", "array", "info")
RUN_LIMIT_S = 30  # of each of the three runs of a route

COMMON = (f"{CELLS}/cell.c", f"{CELLS}/cell_pointers.c")
DL = ("-ldl", "-lpthread")
SHARED = ("-lcudart", *DL)
STATIC = ("-lcudart_static", "-ldl", "-lrt", "-lpthread")
LIBRARY = ("-fPIC", "-shared")


def cell(name, sources, libraries, flags=()):
    return driver_program(name, *(f"{CELLS}/{s}" for s in sources), flags=flags, libraries=libraries)


def with_common(name, sources, libraries, flags=()):
    return driver_program(name, *COMMON, *(f"{CELLS}/{s}" for s in sources), flags=flags, libraries=libraries)


PROGRAMS = [
    with_common("cell_lookup", ["cell_lookup.c"], DL),
    with_common("cell_host", ["cell_host.c"], DL),
    with_common("cell_driver", ["cell_main.c", "cell_linked.c"], ("-lcuda", *DL)),
    with_common("cell_runtime", ["cell_main.c", "cell_runtime.c"], SHARED),
    with_common("cell_runtime_static", ["cell_main.c", "cell_runtime.c"], STATIC),
    with_common("cell_entry", ["cell_entry.c"], SHARED),
    cell("libcell_next.so", ["cell_next.c"], DL, LIBRARY),
    with_common("libcell_plugin_13.so", ["cell_runtime.c"], SHARED, (*LIBRARY, "-fno-optimize-sibling-calls")),
    with_common("libcell_plugin_static.so", ["cell_runtime.c"], STATIC, LIBRARY),
    with_common("libcell_plugin_driver.so", ["cell_linked.c"], ("-lcuda", *DL), LIBRARY),
]

# route: program, its arguments ("@NAME" is the path of a built library), options of run_cells.py
ROUTES = {
    "linked_runtime": ("cell_runtime", [], []),
    "static_runtime": ("cell_runtime_static", [], []),
    "linked_driver": ("cell_driver", [], []),
    "dlsym_handle": ("cell_lookup", ["handle"], []),
    "dlsym_default": ("cell_lookup", ["default"], []),
    "dlsym_next_before": ("cell_lookup", ["next"], ["--before", "@libcell_next.so"]),
    "dlsym_next_after": ("cell_lookup", ["next"], ["--after", "@libcell_next.so"]),
    **{f"proc_address_{form}_{flags}": ("cell_lookup", [form, flags], []) for form in ("v1", "v2") for flags in "012"},
    **{f"entry_point_{form}_{flags}": ("cell_entry", [form, flags], [])
       for form in ("entry", "entry_ptsz", "version") for flags in "012"},
    "local_runtime": ("cell_host", ["local", "@libcell_plugin_13.so"], []),
    "local_static_runtime": ("cell_host", ["local", "@libcell_plugin_static.so"], []),
    # one version is installed: the shared and the static runtime of it, each with its own state
    "two_runtimes": ("cell_host", ["local", "@libcell_plugin_static.so", "@libcell_plugin_13.so"], []),
}


def resolved(session, words):
    return [session.program(word[1:]) if word.startswith("@") else word for word in words]


def route(session, name):
    program, arguments, options = ROUTES[name]
    path = session.temporary("cells.json")
    command = [sys.executable, session.root / CELLS / "run_cells.py", "--route", name, "--library", session.library,
               "--timeout", RUN_LIMIT_S, "--json", path, *resolved(session, options), "--", session.program(program),
               *resolved(session, arguments)]
    result = session.run(f"route {name}", command, False, limit_s=3 * RUN_LIMIT_S + 10)
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):
        cells = {}
    judge(session, name, cells, f"no result: exit {result.code}, {result.errors.strip()[-200:]}")


def judge(session, name, cells, why_none):
    """A cell that proves nothing (managed memory, which a driver never refuses) holds by its equal values alone."""
    session.record("routes", name, {kind: cells.get(kind, {}).get("result", "none") for kind in KINDS})
    session.dumps[f"route {name}"] = cells
    for kind in KINDS:
        found = cells.get(kind, {"result": "none", "why": why_none})
        why = found["why"] if isinstance(found["why"], str) else "; ".join(found["why"])
        session.check(f"route {name} {kind}", found["result"] in ("pass", "unproved"),
                      found["result"] if found["result"] == "pass" else f"{found['result']}: {why}"[:400])


def run(session):
    for name in ROUTES:
        session.guarded(f"route {name}", route, name)
