# SPDX-License-Identifier: MIT
"""Memory past the pool, by kind: what the shim counts, beside what was asked for and what the driver's memory info shows."""
import re

from lane.compare import check_equal
from lane.programs import driver_program

PROGRAMS = [driver_program("gpu_external", "tests/gpu/gpu_external.c")]

# The driver hands memory out in blocks of 2 MiB, and the first use of something may load code.
TOLERANCE_BYTES = 4 << 20
CONTEXT_TOLERANCE_BYTES = 32 << 20

# Kinds that take no memory of the device when they are asked for: pages come with their use, or lie on the host.
NOT_TAKEN = ("managed", "vmm_host", "registered")
# Kinds whose size is the driver's to say: more may be kept than was asked for.
BY_THE_DRIVER = ("mipmap", "graph", "context")


def parse(lines):
    """{name: {asked, taken, counted, left}} and {name: (status of its beginning, of its end)}"""
    figures, statuses = {}, {}
    for line in lines:
        match = re.match(r"TIME (\S+) asked (\d+) taken (-?\d+) counted (-?\d+) left (-?\d+)$", line)
        if match:
            figures[match[1]] = dict(zip(("asked", "taken", "counted", "left"), map(int, match.groups()[1:])))
        match = re.match(r"external: (\S+): got (-?\d+), ended (-?\d+)$", line)
        if match:
            statuses[match[1]] = (int(match[2]), int(match[3]))
    return figures, statuses


def judge(session, name, native, shimmed):
    counted, asked = shimmed["counted"], shimmed["asked"]
    tolerance = CONTEXT_TOLERANCE_BYTES if name == "context" else TOLERANCE_BYTES
    session.check(f"external {name}: counted is what was asked for",
                  counted >= asked if name in BY_THE_DRIVER else counted == asked, f"asked {asked}, counted {counted}")
    if name not in NOT_TAKEN:
        session.check(f"external {name}: counted is what the driver took", abs(shimmed["taken"] - counted) <= tolerance,
                      f"taken {shimmed['taken']}, natively {native['taken']}, counted {counted}")
    session.check(f"external {name}: the driver took what it takes natively",
                  abs(shimmed["taken"] - native["taken"]) <= tolerance, f"{native['taken']} and {shimmed['taken']}")
    session.check(f"external {name}: nothing is left when it has ended", shimmed["left"] == 0, f"left {shimmed['left']}")


def external(session):
    argv = [session.program("gpu_external"), session.temporary("external.json")]
    native, shimmed = session.run("external", argv, False), session.run("external", argv, True)
    check_equal(session, "external", native, shimmed)
    (native_figures, statuses), (figures, _) = parse(native.lines), parse(shimmed.lines)
    session.check("external: the program ran to its end", native.code == 0 and len(statuses) > 10,
                  f"exit {native.code}, {len(statuses)} kinds")
    for name, status in statuses.items():
        session.record("external", name, figures.get(name))
        if status[0]:
            session.note(f"external {name}: this driver answers {status[0]}: not judged")
        elif name in figures and name in native_figures:
            judge(session, name, native_figures[name], figures[name])
        else:
            session.check(f"external {name}: the shimmed run got there", False)


def run(session):
    session.guarded("external", external)
