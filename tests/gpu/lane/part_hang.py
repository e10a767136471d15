# SPDX-License-Identifier: MIT
"""Actions while a kernel spins until the program ends it later: what ends natively ends under the shim, as fast."""
from lane.json_run import json_run
from lane.programs import runtime_programs

PROGRAMS = runtime_programs("gpu_hang", "tests/gpu/gpu_hang.cu", runtimes=("static",))

ACTIONS = ("malloc_hit", "malloc_grow", "malloc_past_peak", "free", "launch_other", "copy_other", "stream_destroy", "capture",
           "trim", "dump")
ENDERS = ("host", "copy", "thread")
NATIVE_LIMIT_S = 8  # the start of CUDA included
SLACK_S = 5
SLOWER_S_MAX = 1


def cell(session, action, ender):
    name = f"hang {action} {ender}"
    argv = [session.program("gpu_hang_static"), action, ender]
    native, native_result = json_run(session, name, argv, False, limit_s=NATIVE_LIMIT_S)
    dump = session.temporary("hang.json")
    shimmed, result = json_run(session, name, argv, True, extra={"POOLSHIM_DUMP": str(dump)}, wants_dump=False,
                               limit_s=native_result.seconds + SLACK_S)
    session.record("hang", f"{action} {ender}", {"native": native or str(native_result.code),
                                                 "shimmed": shimmed or str(result.code)})
    if native is None:
        session.note(f"{name}: does not end natively ({native_result.code}); under the shim: {result.code}")
        return
    session.check(f"{name}: ends", shimmed is not None, f"exit {result.code}")
    if shimmed:
        session.check(f"{name}: the native status", shimmed["status"] == native["status"], f"{native} {shimmed}")
        session.check(f"{name}: within a second of native", shimmed["seconds"] <= native["seconds"] + SLOWER_S_MAX,
                      f"{native['seconds']} s, {shimmed['seconds']} s")


def run(session):
    session.each([(f"hang {action} {ender}", cell, action, ender) for action in ACTIONS for ender in ENDERS], 6)
