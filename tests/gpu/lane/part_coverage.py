# SPDX-License-Identifier: MIT
"""What the dumps of all other parts say of the routes that programs took, and of what the shim did not know.

Runs last. A profiler asks for private tables that no runtime asks for, so runs under one are recorded and not judged.
"""
PROGRAMS = []

UNDER_TOOLS = ("torch_profiler", "ncu", "cuda_gdb", "compute_sanitizer")


def run(session):
    doubtful = {}
    dumps = {name: dump["coverage"] for name, dump in session.dumps.items() if "coverage" in (dump or {})}
    for name, coverage in dumps.items():
        unknown, missed = coverage.get("unknown", []), coverage.get("missed", [])
        session.record("coverage", name, {"routes": coverage["routes"], "unknown": unknown, "missed": missed})
        if (unknown or missed) and not name.startswith(UNDER_TOOLS):
            doubtful[name] = unknown + missed
    session.check("coverage: nothing was unknown or missed in any program's dump", not doubtful,
                  str(doubtful) if doubtful else f"{len(dumps)} dumps")
    pathless = [name for name, coverage in dumps.items() if not any(coverage["routes"].values())]
    session.check("coverage: each dump tells by which routes the driver was found", not pathless, " ".join(pathless))
