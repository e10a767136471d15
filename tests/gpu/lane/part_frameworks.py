# SPDX-License-Identifier: MIT
"""CuPy and JAX without their own pools, native and shimmed: the same values. One run each: times are no measurement."""
import pathlib
import re
import sys

from lane.compare import check_books, check_unmanaged
from lane.machine import has_module

WORKLOADS = pathlib.Path(__file__).resolve().parent.parent / "workloads"
PROGRAMS = []

# The module that a program needs, arguments, environment, and what to read from its output.
FRAMEWORKS = {
    "cupy": ("cupy", ["cupy_elementwise.py", "none"], {}, r"cupy \['none'\] ([0-9.]+) us/iter sum (\S+)"),
    "jax": ("jax", ["jax_steps.py"], {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, r"jax ([0-9.]+) ms/iter (\S+)"),
}


def framework(session, name):
    module, argv, extra, pattern = FRAMEWORKS[name]
    if not has_module(module):
        session.note(f"{module} is not installed: its run was left out")
        return
    command = [sys.executable, str(WORKLOADS / argv[0]), *argv[1:]]
    found = {}
    for kind in ("native", "shimmed"):
        result = session.run(name, command, kind == "shimmed", extra)
        match = re.search(pattern, "\n".join(result.lines))
        session.check(f"{name}: {kind} run ended well", result.code == 0 and match is not None, f"exit {result.code}")
        if match:
            found[kind] = (float(match[1]), match[2])
        check_books(session, name, result.dump)
        check_unmanaged(session, name, result.dump)
    if len(found) == 2:
        session.check(f"{name}: the same value", found["native"][1] == found["shimmed"][1], str(found))
        session.times[name] = {kind: {"time": time_, "value": value} for kind, (time_, value) in found.items()}


def run(session):
    session.each([(name, framework, name) for name in FRAMEWORKS])
