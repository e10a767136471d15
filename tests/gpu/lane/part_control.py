# SPDX-License-Identifier: MIT
"""The control block: live figures in /dev/shm that a killed process leaves behind, and an orderly end does not."""
import pathlib
import re
import signal
import sys
import time

from lane import control_block
from lane.machine import has_torch
from lane.programs import runtime_programs

WORKLOADS = pathlib.Path(__file__).resolve().parent.parent / "workloads"
READY_LIMIT_S = 40
PROGRAMS = runtime_programs("gpu_exit", "tests/gpu/gpu_exit.cu", runtimes=("static",))

# Ways out that leave the block behind, and those that do not; "wait" ends by SIGKILL from outside.
LEFT = {"wait": True, "_exit": True, "abort": True, "sigkill": True, "return": False, "exit": False}


def read(session, name, pid):
    """The block of a process; a failed check where there is none that can be read."""
    path = control_block.find(pid)
    if not path:
        session.check(f"{name}: there is a control block", False, f"pid {pid}")
        return None
    try:
        return control_block.read(path)
    except (OSError, ValueError) as error:
        session.check(f"{name}: the control block can be read", False, str(error))
        return None


def check_held(session, name, when, block, line):
    held = re.search(r"device (\d+) pinned (\d+)", line)
    if not block or not held:
        session.check(f"{name}: held memory is in the block {when}", False, line or "no line")
        return
    found = (block["devices"][0]["requested_bytes"], block["host"][0]["requested_bytes"])
    session.check(f"{name}: held memory is in the block {when}", found == (int(held[1]), int(held[2])),
                  f"held {held[1]} and {held[2]}, block {found}")


def way(session, how, *more):
    name = "_".join(["control", how, *more])
    child = session.popen([session.program("gpu_exit_static"), how, *more], True)
    line = session.line_of(child)
    if more:
        session.check(f"{name}: the child has ended", session.line_of(child).startswith("child:"))
    if how == "wait":
        check_held(session, name, "while it lives", read(session, name, child.pid), line)
        child.send_signal(signal.SIGKILL)
    code, _, _ = session.end(name, child)
    session.check(f"{name}: held memory, printed by the program", line.startswith("holding:"), f"exit {code} {line}")
    if LEFT[how]:
        check_held(session, name, "after its end", read(session, name, child.pid), line)
        path = control_block.find(child.pid)
        if path:
            path.unlink()
    else:
        session.check(f"{name}: no block is left", control_block.find(child.pid) is None, str(code))


def torch_killed(session):
    """A training that is killed: how much it had allocated is still told."""
    name = "control_torch_killed"
    if not has_torch():
        session.note(f"{name}: PyTorch is not installed or sees no GPU")
        return
    command = [sys.executable, str(WORKLOADS / "torch_workloads.py"), "fixed"]
    child = session.popen(command, True, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
    deadline, n_allocs = time.monotonic() + READY_LIMIT_S, 0
    while n_allocs < 5000 and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
        path = control_block.find(child.pid)
        try:
            n_allocs = control_block.read(path)["devices"][0]["alloc_count"] if path else 0
        except (OSError, ValueError, LookupError):
            n_allocs = 0  # not ready yet
    child.send_signal(signal.SIGKILL)
    code, _, _ = session.end(name, child)
    block = read(session, name, child.pid)
    session.check(f"{name}: it was killed while it allocated", code == -signal.SIGKILL and n_allocs >= 5000,
                  f"exit {code}, {n_allocs} requests")
    if block:
        device = block["devices"][0]
        session.record("control_block", "torch_killed", {key: value for key, value in device.items()
                                                         if isinstance(value, int) and value})
        session.check(f"{name}: the block tells what it used", device["alloc_count"] >= n_allocs
                      and 0 < device["used_bytes"] <= device["total_bytes"],
                      f"{device['alloc_count']} requests, used {device['used_bytes']} of {device['total_bytes']}")
        control_block.find(child.pid).unlink()


def run(session):
    session.each([(f"control_{how}", way, how) for how in LEFT] + [("control_wait_clone", way, "wait", "clone"),
                 ("control_torch_killed", torch_killed)])
