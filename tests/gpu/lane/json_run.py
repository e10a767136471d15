# SPDX-License-Identifier: MIT
"""Programs that print one JSON object: run native and shimmed, kept in the results as they said it."""
import json
import os


def last_json(lines):
    for line in reversed(lines):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                return None
    return None


def json_run(session, name, argv, is_shimmed, **how):
    """Returns (the object or None, the result)."""
    result = session.run(name, argv, is_shimmed, **how)
    return last_json(result.lines), result


def both(session, part, name, argvs, **how):
    """argvs: the command by kind. What was said and each device's dump go into the results. Returns the objects by kind."""
    found = {}
    for kind, argv in argvs.items():
        said, result = json_run(session, name, argv, kind == "shimmed", **how)
        session.check(f"{name}: {kind} run ended well", result.code == 0 and said is not None, f"exit {result.code}")
        if said is not None:
            found[kind] = {**said, "pool": pool_figures(result.dump)} if result.dump else said
    session.record(part, name, found)
    return found


FIGURES = ("alloc_count", "hit_count", "miss_count", "early_count", "edge_count", "fence_count", "wait_count", "wait_ns",
           "driver_alloc_count", "peak_requested_bytes", "peak_used_bytes", "peak_total_bytes")


def pool_figures(dump):
    """What the dump of a shimmed run says of the first device, where it says it."""
    devices = (dump or {}).get("devices") or [{}]
    return {key: devices[0][key] for key in FIGURES if key in devices[0]}


def seconds_of(variable, default):
    """A part's budget: how long its programs may go on."""
    return float(os.environ.get(variable, default))
