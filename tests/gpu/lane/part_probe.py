# SPDX-License-Identifier: MIT
"""Questions to the driver that the order rules rest on: recorded, and judged by no number."""
from lane.json_run import json_run
from lane.programs import driver_program, runtime_programs

PROGRAMS = [
    *runtime_programs("gpu_probe", "tests/gpu/gpu_probe.cu", runtimes=("static",), libraries=("-lcuda",)),
    driver_program("gpu_spy.so", "tests/gpu/gpu_spy.c", flags=("-shared", "-fPIC")),
]


def run(session):
    program = [session.program("gpu_probe_static")]
    for name, extra in (("native", {}), ("spied", {"LD_PRELOAD": session.program("gpu_spy.so")})):
        said, result = json_run(session, f"probe {name}", program, False, extra=extra)
        session.check(f"probe: {name} run ended well", said is not None and result.code == 0, f"exit {result.code}")
        session.record("probe", name, said)
