# SPDX-License-Identifier: MIT
"""Programs that judge themselves, native and shimmed: wrong calls, blocks used again, frees as barriers, books."""
import re

from lane.compare import compare, compare_right
from lane.programs import driver_program, runtime_programs

RUNTIME_PROGRAMS = ("gpu_order", "gpu_devices", "gpu_managed", "gpu_cpu_visible")
LIMIT_MIB = 48

PROGRAMS = [
    driver_program("gpu_driver", "tests/gpu/gpu_driver.c"),
    driver_program("victim_table", "tests/preload/victim_table.c"),
]
for _name in (*RUNTIME_PROGRAMS, "gpu_held"):
    PROGRAMS += runtime_programs(_name, f"tests/gpu/{_name}.cu")


def victim_table(session, route):
    name = f"victim_table_{route}"
    native, _ = compare(session, name, [session.program("victim_table"), route])
    session.check(f"{name}: native run is right", native.code == 0)


def program(session, name):
    compare_right(session, name, [session.program(name)])


def with_little_memory(session):
    """Memory that is short makes the pool hand freed blocks out again at once, or wait."""
    name = "gpu_order_static_limit"
    result = session.run(name, [session.program("gpu_order_static")], True, {"POOLSHIM_LIMIT": f"{LIMIT_MIB}MiB"})
    session.check(f"{name}: no word wrong", result.code == 0, result.last)
    devices = (result.dump or {}).get("devices")
    peak = devices[0].get("peak_total_bytes", -1) if devices else -1
    session.check(f"{name}: the limit held", 0 <= peak <= LIMIT_MIB << 20, f"peak {peak}")


def held(session, name):
    native, shimmed = compare(session, name, [session.program(name)])
    match = re.search(r"device (\d+) host (\d+)", " ".join(native.lines))
    dump = shimmed.dump
    if not match or not dump or not dump.get("devices"):
        session.check(f"{name}: requested_bytes at exit", False, "no output or no device in the dump")
        return
    for what, said, found in (("device", int(match[1]), dump["devices"][0].get("requested_bytes")),
                              ("pinned", int(match[2]), dump.get("host", {}).get("requested_bytes"))):
        session.check(f"{name}: requested_bytes at exit, {what}", said == found, f"held {said}, dump {found}")


def run(session):
    jobs = [(f"victim_table_{route}", victim_table, route) for route in ("direct", "dlsym", "proc")]
    jobs += [(name, program, name) for name in ["gpu_driver"] + [
        f"{name}_{runtime}" for runtime in ("static", "shared") for name in RUNTIME_PROGRAMS
        if name != "gpu_cpu_visible"]]
    jobs += [("gpu_order_static_limit", with_little_memory)]
    jobs += [(f"gpu_held_{runtime}", held, f"gpu_held_{runtime}") for runtime in ("static", "shared")]
    session.each(jobs)
    for runtime in ("static", "shared"):  # these are timed: alone
        session.guarded(f"gpu_cpu_visible_{runtime}", program, f"gpu_cpu_visible_{runtime}")
