# SPDX-License-Identifier: MIT
"""The matrix of routes (tests/preload/routes/cells) with the real driver and the real runtimes, each cell a check.

One route fills nearly the whole device several times and all compare the driver's memory info, so they run one after the
other. Not here: dlvsym (NVIDIA's names
have no version) and a runtime that a plug-in exports (NVIDIA's static one hides its names).
"""
import json
import sys

from lane.machine import driver_file
from lane.programs import driver_program

CELLS = "tests/preload/routes/cells"
KINDS = ("device", "pinned", "async", "pitch", "managed", "vmm", "array", "info")
RUN_LIMIT_S = 30  # of each of the three runs of a route

COMMON = (f"{CELLS}/cell.c", f"{CELLS}/cell_pointers.c", f"{CELLS}/cell_prove.c")
DL = ("-ldl", "-lpthread")
SHARED = ("-lcudart", *DL)
STATIC = ("-lcudart_static", "-ldl", "-lrt", "-lpthread")
LIBRARY = ("-fPIC", "-shared", "-Wl,-z,defs")


def cell(name, sources, libraries, flags=()):
    return driver_program(name, *(f"{CELLS}/{s}" for s in sources), flags=flags, libraries=libraries)


def plugin(name, source, libraries, flags=()):
    """A plug-in has the calls; the cells themselves, which name libcuda and call dlsym, are the host's."""
    return cell(name, ["cell_pointers.c", source], libraries, (*LIBRARY, *flags))


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
    plugin("libcell_plugin_13.so", "cell_runtime.c", SHARED, ["-fno-optimize-sibling-calls"]),
    plugin("libcell_plugin_13b.so", "cell_runtime.c", SHARED, ["-fno-optimize-sibling-calls"]),
    plugin("libcell_plugin_static.so", "cell_runtime.c", STATIC),
    plugin("libcell_plugin_driver.so", "cell_linked.c", ("-lcuda", *DL)),
]

# route: program, its arguments, options of run_cells.py. "@NAME" is the path of a built library, DRIVER the name of
# libcuda's file.
ROUTES = {
    "linked_runtime": ("cell_runtime", [], []),
    "static_runtime": ("cell_runtime_static", [], []),
    "linked_driver": ("cell_driver", [], ["--env", "CELL_FILL=1"]),
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
    # the runtime was there before and is caught, whoever calls it
    "deepbind_late": ("cell_host", ["late", "@libcell_plugin_13.so", "@libcell_plugin_13b.so"], []),
    # not to be caught: the dump must name them
    "deepbind_runtime": ("cell_host", ["deepbind", "@libcell_plugin_13.so"],
                         ["--missed", "libcell_plugin_13.so deepbind", "--missed", "libcudart.so.13 deepbind"]),
    "deepbind_static_runtime": ("cell_host", ["deepbind", "@libcell_plugin_static.so"],
                                ["--missed", "libcell_plugin_static.so deepbind"]),
    "deepbind_driver": ("cell_host", ["deepbind", "@libcell_plugin_driver.so"],
                        ["--missed", "libcell_plugin_driver.so deepbind"]),
    "dlmopen": ("cell_host", ["dlmopen", "@libcell_plugin_13.so"],
                ["--missed", "libcell_plugin_13.so dlmopen", "--missed", "DRIVER dlmopen"]),
}

# A driver need not bear to be loaded like that: where the native run fails, the route is named and not judged.
MAY_FAIL_NATIVELY = ("deepbind", "dlmopen")


def resolved(session, words):
    words = [session.program(word[1:]) if word.startswith("@") else word for word in words]
    return [word.replace("DRIVER", driver_file()) for word in words]


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
    whys = [why for cell in cells.values() for why in cell["why"] if cell["result"] == "fail"]
    if name.startswith(MAY_FAIL_NATIVELY) and any(why.startswith("native: exit code") for why in whys):
        session.record("routes", name, "fails natively")
        session.note(f"route {name}: its program fails natively: {whys[0]}")
        return
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
