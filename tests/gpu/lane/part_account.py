# SPDX-License-Identifier: MIT
"""POOLSHIM_MODE=account: the native outputs, and `callers` of the dump names the objects that asked for memory.

Which objects were named is recorded for each program; what must be there is a short list of name parts, each group of
which needs one hit.
"""
import pathlib
import sys

from lane.compare import check_equal, comparable, compare
from lane.machine import has_module, has_torch
from lane.programs import runtime_programs

WORKLOADS = pathlib.Path(__file__).resolve().parent.parent / "workloads"
PROGRAMS = [  # and thrust_sort, which is the times part's
    *runtime_programs("gpu_vendor", "tests/gpu/gpu_vendor.cu", libraries=("-lcublas", "-lcufft", "-lcudnn")),
]

ACCOUNT = {"POOLSHIM_MODE": "account"}

# name: what it needs, arguments, and the groups of name parts.
PYTHON = {
    "torch": (has_torch, ["account_workloads.py", "torch"], [["libcublas"], ["libcudnn"], ["libtorch", "libc10"]]),
    "cupy": (lambda: has_module("cupy"), ["account_workloads.py", "cupy"], [["libcublas"], ["cupy"]]),
    "jax": (lambda: has_module("jax"), ["account_workloads.py", "jax"], [["xla", "jax"]]),
}

# Parts of the system that never ask for memory of their own accord. What the driver takes for itself is "[driver]".
NEVER = ("libcuda.so", "libcudart", "libpoolshim", "libc.so", "ld-linux")


def places_of(dump):
    """The devices and the host of a dump."""
    return [*(dump or {}).get("devices", []), (dump or {}).get("host", {})]


def callers_of(dump):
    return [caller for place in places_of(dump) for caller in place.get("callers", [])]


def is_sound(caller):
    return (caller["count"] + caller.get("external_count", 0) > 0 and caller["peak_bytes"] >= caller["used_bytes"]
            and caller.get("peak_external_bytes", 0) >= caller.get("external_bytes", 0))


def check_sums(session, name, dump):
    """What the callers have adds up to what the place has."""
    wrong = []
    for place in places_of(dump):
        for member in ("used_bytes", "external_bytes"):
            total = sum(caller.get(member, 0) for caller in place.get("callers", []))
            if total != place.get(member, 0):
                wrong.append(f"{member}: {total} of {place.get(member)}")
    session.check(f"{name}: the callers' bytes add up", not wrong, "; ".join(wrong))


def check_callers(session, name, dump, groups):
    found = callers_of(dump)
    names = [pathlib.PurePath(caller.get("object", "")).name for caller in found]
    session.record("callers", name, found)
    paths = [caller.get("path") or caller.get("object", "") for caller in found]
    for parts in groups:
        session.check(f"{name}: {' or '.join(parts)} is named as a caller",
                      any(part in path for part in parts for path in paths), " ".join(names) or "no callers")
    wrong = [n for n in names if n.startswith(NEVER)]
    session.check(f"{name}: no caller is a runtime, the driver, the shim or libc", found and not wrong, " ".join(wrong))
    session.check(f"{name}: each caller has asked and its peak covers what it holds",
                  all(is_sound(caller) for caller in found), f"{len(found)} callers")
    check_sums(session, name, dump)


def check_mode(session, name, dump):
    modes = {device.get("mode") for device in (dump or {}).get("devices", [])}
    session.check(f"{name}: the dump says account", modes == {"account"}, str(modes))


def python_program(session, name):
    is_there, argv, groups = PYTHON[name]
    if not is_there():
        session.note(f"account: {name} is not installed or sees no GPU: its run was left out")
        return
    name = f"account_{name}"
    command = [sys.executable, str(WORKLOADS / argv[0]), *argv[1:]]
    native = session.run(name, command, False)
    shimmed = session.run(name, command, True, ACCOUNT)
    session.check(f"{name}: native run ended well", native.code == 0 and native.last.startswith("RESULT"),
                  native.last or native.errors.strip()[-200:])
    check_equal(session, name, native, shimmed)
    check_mode(session, name, shimmed.dump)
    check_callers(session, name, shimmed.dump, groups)


def thrust(session, runtime):
    """The lines but for their times: sizes and sums."""
    name, program = f"account_thrust_{runtime}", f"thrust_sort_{runtime}"
    native = session.run(name, [session.program(program)], False)
    shimmed = session.run(name, [session.program(program)], True, ACCOUNT)
    left, right = ([[line.split()[i] for i in (1, -1)] for line in comparable(r.lines)] for r in (native, shimmed))
    session.check(f"{name}: exit code", native.code == shimmed.code == 0, f"native {native.code}, shimmed {shimmed.code}")
    session.check(f"{name}: the native sums", left == right and len(left) == 3, f"{left} {right}")
    check_mode(session, name, shimmed.dump)
    check_callers(session, name, shimmed.dump, [[program]])


def vendor(session, runtime, mode):
    """A program beside the vendor's libraries: who asked for what, by the program's own runtime and by theirs."""
    name, program = f"vendor_{runtime}_{mode}", f"gpu_vendor_{runtime}"
    native, shimmed = compare(session, name, [session.program(program)], shim_extra={"POOLSHIM_MODE": mode})
    session.check(f"{name}: native run is right", native.code == 0, native.errors.strip()[-200:])
    check_callers(session, name, shimmed.dump, [["libcublas"], ["libcudnn"], ["libcufft"], [program]])


def run(session):
    jobs = [(f"vendor_{runtime}_{mode}", vendor, runtime, mode) for runtime in ("static", "shared")
            for mode in ("account", "pool")]
    jobs += [(f"account_{name}", python_program, name) for name in PYTHON]
    jobs += [(f"account_thrust_{runtime}", thrust, runtime) for runtime in ("static", "shared")]
    session.each(jobs)
