# SPDX-License-Identifier: MIT
"""What happens to a process: ways out, signals in a storm, forks, resets, contexts, plug-ins. Native and shimmed alike."""
import pathlib
import re
import signal
import sys
import time

from lane.compare import compare, compare_right
from lane.machine import has_torch
from lane.programs import Program, runtime_programs

WORKLOADS = pathlib.Path(__file__).resolve().parent.parent / "workloads"
PLUGIN = Program("gpu_plugin.so", ("tests/gpu/gpu_plugin.cu",), "nvcc", "static", ("-shared", "-Xcompiler", "-fPIC"), ())
PROGRAMS = [
    *runtime_programs("gpu_exit", "tests/gpu/gpu_exit.cu", runtimes=("static",)),
    *runtime_programs("gpu_storm", "tests/gpu/gpu_storm.cu", runtimes=("static",)),
    *runtime_programs("gpu_life", "tests/gpu/gpu_life.cu", runtimes=("static", "shared"), libraries=("-lcuda",)),
    PLUGIN,
]

# Ways out, and whether a dump is promised. quick_exit runs no handlers of exit(): nothing is promised, nor forbidden.
WAYS_OUT = {"return": True, "exit": True, "exit_in_thread": True, "exit_without_main": True, "_exit": False, "abort": False,
            "quick_exit": None, "sigkill": False, "sigterm": False, "segv": False}

SCENARIOS = ("fork_before", "fork_after", "new_programs", "reset", "release_to_zero", "contexts", "green",
             "threads_end", "plugin")

SIGNALS_A_SECOND_MIN = 500  # a thousand are asked for; a machine under load gives fewer


N_EXITS_IN_HANDLER = 24


def way_out(session, way, *more):
    name, argv = "_".join(["exit", way, *more]), [session.program("gpu_exit_static"), way, *more]
    native = session.run(name, argv, False)
    dump = session.temporary("exit.json")
    child = session.popen(argv, True, None, dump)
    code, output, errors = session.end(f"{name} shimmed", child)
    session.check(f"{name}: exit code", code == native.code, f"native {native.code}, shimmed {code}")
    session.check(f"{name}: same output", output.splitlines() == native.lines, output.strip())
    session.check(f"{name}: nothing on stderr", errors == native.errors, errors.strip()[-200:])
    is_promised = WAYS_OUT[way]
    if is_promised is not None:
        session.check(f"{name}: {'a dump' if is_promised else 'no dump'}", dump.exists() == is_promised)
    if is_promised and dump.exists():
        found = session.read_dump(name, dump)
        held = re.search(r"device (\d+) pinned (\d+)", output)
        seen = (found["devices"][0]["requested_bytes"], found["host"]["requested_bytes"]) if found else None
        session.check(f"{name}: the dump tells what was held",
                      bool(held) and seen == (int(held[1]), int(held[2])), f"{seen}")
    leftovers = list(pathlib.Path(dump).parent.glob(dump.name + "?*"))
    session.check(f"{name}: no half-written dump", not leftovers, str(leftovers))


def exit_in_handler(session, kind, number):
    """A handler calls exit() somewhere in the middle of an allocation or a free: the process ends."""
    name = f"exit_in_handler_{kind}"
    child = session.popen([session.program("gpu_exit_static"), "loop"], kind == "shimmed")
    line = session.line_of(child)
    time.sleep(number * 0.0017 % 0.05)  # somewhere else each time
    child.send_signal(signal.SIGTERM)
    code, _, _ = session.end(f"{name} {number}", child, 20)
    with session.lock:
        ends = session.records.setdefault("exits_in_handler", {}).setdefault(kind, [])
        ends.append(str(code) if line else f"nothing printed, {code}")


def check_exits_in_handler(session):
    """What does not always end natively need not end under the shim; all others must."""
    ends = session.records.get("exits_in_handler", {})
    native, shimmed = ends.get("native", []), ends.get("shimmed", [])
    is_native_safe = bool(native) and set(native) == {"13"}
    if not is_native_safe:
        session.note(f"exit_in_handler: natively they end with {' '.join(native)}: the shimmed ones are not judged")
    session.check("exit_in_handler: every process ended with its exit code",
                  not is_native_safe or shimmed == ["13"] * N_EXITS_IN_HANDLER, " ".join(shimmed))


def scenario(session, runtime, what):
    name = f"life_{what}_{runtime}"
    compare_right(session, name, [session.program(f"gpu_life_{runtime}"), what, session.program(PLUGIN.name)],
                  wants_dump=False)


def in_account_mode(session, what):
    name = f"life_{what}_account"
    compare(session, name, [session.program("gpu_life_static"), what, session.program(PLUGIN.name)],
            shim_extra={"POOLSHIM_MODE": "account"}, wants_dump=False)


def storm(session, way):
    name, argv = f"storm_{way}", [session.program("gpu_storm_static"), way]
    dump = session.temporary("storm-%n.json")
    if way == "default":  # natively the signal is not sent: it would end the program
        code, output, errors = session.end(f"{name} shimmed", session.popen(argv, True, None, dump))
        lines = output.splitlines()
    else:
        native, shimmed = compare(session, name, argv)
        session.check(f"{name}: native run is right", native.code == 0, native.last)
        code, lines, errors = shimmed.code, shimmed.lines, shimmed.errors
    figures = dict(re.findall(r"^TIME (\S+) ([0-9.]+)$", "\n".join(lines), re.M))
    session.record("storms", way, figures)
    session.check(f"{name}: no block wrong, no crash", code == 0, f"exit {code}, {lines[:1]} {errors.strip()[-200:]}")
    rate = float(figures.get("signals", 0)) / max(float(figures.get("seconds", 0)), 0.001)
    session.check(f"{name}: signals were sent", rate >= SIGNALS_A_SECOND_MIN, f"{rate:.0f} a second")
    if way == "default":
        dumps = sorted(session.work.glob(dump.name.replace("%n", "*")))
        found = [session.read_dump(name, path) for path in dumps]
        by_signal = [d for d in found if d and d["reason"] == "signal"]
        session.check(f"{name}: signals gave dumps, the last one is that of the end",
                      by_signal and found[-1] and any(d and d["reason"] == "exit" for d in found), f"{len(dumps)} dumps")
        for path in dumps:
            path.unlink()


def torch_processes(session):
    """Forked loaders, and tensors handed to another process."""
    if not has_torch():
        session.note("torch_processes: PyTorch is not installed or sees no GPU")
        return
    native, _ = compare(session, "torch_processes", [sys.executable, WORKLOADS / "torch_processes.py"], limit_s=90,
                        wants_dump=False)
    session.check("torch_processes: native run is right", native.code == 0 and native.last.startswith("RESULT"),
                  native.last or native.errors.strip()[-300:])


def run(session):
    jobs = [(f"exit_{way}", way_out, way) for way in WAYS_OUT]
    jobs += [(f"life_{what}_{runtime}", scenario, runtime, what) for what in SCENARIOS
             for runtime in ("static", "shared")]
    jobs += [(f"life_{what}_account", in_account_mode, what) for what in SCENARIOS]
    jobs += [("torch_processes", torch_processes), ("exit_return_clone", way_out, "return", "clone")]
    jobs += [("exit_in_handler", exit_in_handler, kind, number) for number in range(N_EXITS_IN_HANDLER)
             for kind in (("shimmed", "native") if number % 3 == 0 else ("shimmed",))]
    session.each(jobs)
    check_exits_in_handler(session)
    session.each([(f"storm_{way}", storm, way) for way in ("default", "before", "after")], 1)
