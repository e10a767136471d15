# SPDX-License-Identifier: MIT
"""What the dumps of all other parts say of the routes that programs took, and of what the shim did not know.

Runs last. Private tables that the vendor's libraries and tools ask for are recorded (`unknown`) and not judged: the shim
does not know them, says so, and takes no liberties in such a process.
"""
PROGRAMS = []

TABLE = "export table "


def run(session):
    doubtful = {}
    dumps = {name: dump["coverage"] for name, dump in session.dumps.items() if "coverage" in (dump or {})}
    for name, coverage in dumps.items():
        unknown, missed = coverage.get("unknown", []), coverage.get("missed", [])
        session.record("coverage", name, {"routes": coverage["routes"], "unknown": unknown, "missed": missed})
        names = [entry for entry in unknown if not str(entry).startswith(TABLE)]
        if names or missed:
            doubtful[name] = names + missed
    session.check("coverage: no function was unknown and no object missed in any program's dump", not doubtful,
                  str(doubtful) if doubtful else f"{len(dumps)} dumps")
    pathless = [name for name, coverage in dumps.items() if not any(coverage["routes"].values())]
    session.check("coverage: each dump tells by which routes the driver was found", not pathless, " ".join(pathless))
