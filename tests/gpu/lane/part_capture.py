# SPDX-License-Identifier: MIT
"""What calls answer while a stream is captured, by mode, call and thread: the native statuses, and the native capture."""
from lane.json_run import both
from lane.programs import runtime_programs

PROGRAMS = runtime_programs("gpu_capture", "tests/gpu/gpu_capture.cu", runtimes=("static",))

# Natively these are not allowed in the capturing thread, or in any while a global capture is open, and end the
# capture. The pool serves them without the driver, so they succeed and the capture goes on: [status, capturing, end,
# output].
SERVED = {"malloc", "free", "hostalloc", "freehost"}
REFUSED_NATIVELY, SERVED_INSTEAD = [900, 2, 901, -1], [0, 1, 0, 1]


def is_as_it_should(name, native, shimmed):
    if native == shimmed:
        return True
    return name.split()[1] in SERVED and native == REFUSED_NATIVELY and shimmed == SERVED_INSTEAD


def run(session):
    program = [session.program("gpu_capture_static")]
    found = both(session, "capture", "capture", {"native": program, "shimmed": program})
    if len(found) != 2:
        return
    native, shimmed = found["native"]["cells"], found["shimmed"]["cells"]
    session.check("capture: the same cells", set(native) == set(shimmed), f"{len(native)}, {len(shimmed)}")
    for name in sorted(set(native) & set(shimmed)):
        if not is_as_it_should(name, native[name], shimmed[name]):
            session.check(f"capture {name}: [status, capturing, end, output]", False,
                          f"native {native[name]}, shimmed {shimmed[name]}")
    n_equal = sum(native[name] == shimmed.get(name) for name in native)
    n_good = sum(is_as_it_should(name, native[name], shimmed.get(name)) for name in native)
    session.check("capture: every cell as natively, or served where that is listed", n_good == len(native),
                  f"{n_good} of {len(native)}, {n_equal} of them equal")
