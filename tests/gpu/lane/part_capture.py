# SPDX-License-Identifier: MIT
"""What calls answer while a stream is captured, by mode, call and thread: the native statuses, and the native capture."""
from lane.json_run import both
from lane.programs import runtime_programs

PROGRAMS = runtime_programs("gpu_capture", "tests/gpu/gpu_capture.cu", runtimes=("static",))


def run(session):
    program = [session.program("gpu_capture_static")]
    found = both(session, "capture", "capture", {"native": program, "shimmed": program})
    if len(found) != 2:
        return
    native, shimmed = found["native"]["cells"], found["shimmed"]["cells"]
    session.check("capture: the same cells", set(native) == set(shimmed), f"{len(native)}, {len(shimmed)}")
    for name in sorted(set(native) & set(shimmed)):
        if native[name] != shimmed[name]:
            session.check(f"capture {name}: [status, capturing, end, output]", False,
                          f"native {native[name]}, shimmed {shimmed[name]}")
    n_equal = sum(native[name] == shimmed.get(name) for name in native)
    session.check("capture: every cell as natively", n_equal == len(native), f"{n_equal} of {len(native)}")
