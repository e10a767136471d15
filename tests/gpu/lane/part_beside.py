# SPDX-License-Identifier: MIT
"""Other tools in the same process: checkers and debuggers of device code, profilers, sanitizers, edited LD_PRELOAD.

Where a tool does not even run a program natively, that is recorded (`tools`) and nothing is judged.
"""
import pathlib
import re
import shutil
import sys

from lane.compare import check_equal, compare
from lane.machine import has_torch, said_by
from lane.programs import driver_program, runtime_programs

WORKLOADS = pathlib.Path(__file__).resolve().parent.parent / "workloads"
TOOL_LIMIT_S = 60

PROGRAMS = [
    *runtime_programs("gpu_overrun", "tests/gpu/gpu_overrun.cu", runtimes=("static",), flags=("-g", "-G")),
    driver_program("gpu_driver", "tests/gpu/gpu_driver.c"),
    driver_program("gpu_driver_asan", "tests/gpu/gpu_driver.c", flags=("-g", "-fsanitize=address")),
    driver_program("gpu_driver_asan_static", "tests/gpu/gpu_driver.c",
                   flags=("-g", "-fsanitize=address", "-static-libasan")),
]

# What each tool prints once it has done its work, in runs native and shimmed alike.
SANITIZER_LINE = re.compile(r"(Invalid __global__ write of size \d+ bytes|ERROR SUMMARY: \d+ errors?)")
DEBUGGER_LINE = re.compile(r"(hit Breakpoint \d+|hit Temporary breakpoint \d+|exited normally|exited with code \d+)")
PROFILER_LINE = re.compile(r"==PROF== Profiling \"(\w+)")


def find_tool(session, name):
    for folder in ("bin", "compute-sanitizer"):
        path = pathlib.Path(session.cuda_home, folder, name)
        if path.is_file():
            return str(path)
    return shutil.which(name)


def run_tool(session, name, tool, arguments, pattern, shim_extra=None):
    """Both runs under the tool; (what it said natively, what it said shimmed, the dump), or None where it is of no use."""
    path = find_tool(session, tool)
    if not path:
        session.record("tools", name, "not installed")
        session.note(f"{name}: {tool} is not installed")
        return None
    native = session.run(name, [path, *arguments], False, limit_s=TOOL_LIMIT_S)
    said = pattern.findall("\n".join(native.lines) + native.errors)
    if not said:
        why = (native.errors.strip() or native.last)[-300:]
        session.record("tools", name, f"fails natively: exit {native.code}, {why}")
        session.note(f"{name}: {tool} does not work here without the shim either: exit {native.code}, {why}")
        return None
    shimmed = session.run(name, [path, *arguments], True, shim_extra, limit_s=TOOL_LIMIT_S)
    found = pattern.findall("\n".join(shimmed.lines) + shimmed.errors)
    session.record("tools", name, {"native": said, "shimmed": found})
    session.check(f"{name}: exit code", native.code == shimmed.code, f"native {native.code}, shimmed {shimmed.code}")
    return said, found, shimmed.dump


def check_stepped_down(session, name, dump):
    modes = {device.get("mode") for device in (dump or {}).get("devices", [])}
    session.check(f"{name}: the shim stepped down to account", modes == {"account"}, str(modes))
    session.record("tools", f"{name}: why", [device.get("mode_why") for device in (dump or {}).get("devices", [])])


def sanitizer(session, what):
    name = f"compute_sanitizer_{what}"
    found = run_tool(session, name, "compute-sanitizer", [session.program("gpu_overrun_static"), what], SANITIZER_LINE)
    if not found:
        return
    native, shimmed, dump = found
    session.check(f"{name}: the same findings", native == shimmed, f"native {native}, shimmed {shimmed}")
    if what == "over":
        session.check(f"{name}: the overrun is found", any("Invalid __global__ write" in line for line in shimmed),
                      str(shimmed))
    check_stepped_down(session, name, dump)


def sanitizer_overruled(session):
    """A mode that was asked for is kept: the pool serves, and hides the overrun or not."""
    name = "compute_sanitizer_pool"
    found = run_tool(session, name, "compute-sanitizer", [session.program("gpu_overrun_static"), "in"], SANITIZER_LINE,
                     {"POOLSHIM_MODE": "pool"})
    if found:
        modes = {device.get("mode") for device in (found[2] or {}).get("devices", [])}
        session.check(f"{name}: the mode asked for is kept", modes == {"pool"}, str(modes))
        session.check(f"{name}: no finding in a right program", found[1] == found[0], f"{found[0]} {found[1]}")


def debugger(session):
    name = "cuda_gdb"
    arguments = ["-batch", "-ex", "set breakpoint pending on", "-ex", "break touch", "-ex", "run", "-ex", "continue", "-ex", "continue",
                 session.program("gpu_overrun_static")]
    found = run_tool(session, name, "cuda-gdb", arguments, DEBUGGER_LINE)
    if not found:
        return
    native, shimmed, dump = found
    session.check(f"{name}: stops in the kernel and goes on alike", native == shimmed, f"native {native}, shimmed {shimmed}")
    check_stepped_down(session, name, dump)


def profiler(session):
    name = "ncu"
    found = run_tool(session, name, "ncu", ["--set", "none", "--metrics", "gpu__time_duration.sum", "--clock-control",
                                            "none", session.program("gpu_overrun_static")], PROFILER_LINE)
    if found:
        session.check(f"{name}: the same kernels", found[0] == found[1], f"native {found[0]}, shimmed {found[1]}")
        modes = {device.get("mode") for device in (found[2] or {}).get("devices", [])}
        session.check(f"{name}: a profiler does not step the shim down", modes == {"pool"}, str(modes))


def torch_profiler(session):
    """PyTorch's profiler listens by CUPTI."""
    name = "torch_profiler"
    if not has_torch():
        session.note(f"{name}: PyTorch is not installed or sees no GPU")
        return
    command = [sys.executable, WORKLOADS / "torch_profiled.py"]
    native, shimmed = session.run(name, command, False), session.run(name, command, True)
    session.check(f"{name}: native run ended well", native.code == 0 and native.last.startswith("RESULT"),
                  native.last or native.errors.strip()[-200:])
    check_equal(session, name, native, shimmed)


def asan(session, how):
    """A host with AddressSanitizer: its library is first, as it insists, or inside the program."""
    name = f"asan_{how}"
    program = session.program("gpu_driver_asan" + ("_static" if how == "static" else ""))
    options = {"ASAN_OPTIONS": "protect_shadow_gap=0:detect_leaks=0"}
    first = said_by("gcc", "-print-file-name=libasan.so").strip()
    preload = {"LD_PRELOAD": f"{first}:{session.library}"} if how == "shared" else {}
    native, shimmed = compare(session, name, [program], options, preload)
    session.check(f"{name}: native run is right", native.code == 0, native.errors.strip()[-300:])
    session.check(f"{name}: the shim served it", served(shimmed.dump), "")


def served(dump):
    return any(device.get("alloc_count", 0) > 0 for device in (dump or {}).get("devices", []))


# name: how a launcher starts the program, and whether the shim is still there
LAUNCHERS = {
    "stdbuf": (["stdbuf", "-oL", "{program}"], True),
    "shell_appends": (["sh", "-c", 'LD_PRELOAD="$LD_PRELOAD:libdl.so.2" exec "$0"', "{program}"], True),
    "shell_prepends": (["sh", "-c", 'LD_PRELOAD="libdl.so.2${LD_PRELOAD:+:$LD_PRELOAD}" exec "$0"', "{program}"], True),
    "shell_child": (["sh", "-c", '"$0"; exit $?', "{program}"], True),
    "env_cleared": (["env", "-u", "LD_PRELOAD", "{program}"], False),
}


def launcher(session, how):
    name = f"launcher_{how}"
    words, is_kept = LAUNCHERS[how]
    argv = [word.replace("{program}", session.program("gpu_driver")) for word in words]
    dump = session.temporary("launcher.json")
    native = session.run(name, argv, False)
    code, output, errors = session.end(f"{name} shimmed", session.popen(argv, True, None, dump))
    session.check(f"{name}: exit code", code == native.code == 0, f"native {native.code}, shimmed {code}")
    session.check(f"{name}: same output", output.splitlines() == native.lines and errors == native.errors,
                  (output + errors)[-200:])
    if is_kept:
        session.check(f"{name}: the shim served it", dump.exists() and served(session.read_dump(name, dump)))
    else:
        session.check(f"{name}: the shim is not there", not dump.exists())


def run(session):
    jobs = [(f"compute_sanitizer_{what}", sanitizer, what) for what in ("in", "over")]
    jobs += [("compute_sanitizer_pool", sanitizer_overruled), ("cuda_gdb", debugger), ("ncu", profiler),
             ("torch_profiler", torch_profiler)]
    session.each(jobs, 1)  # each has the device's counters or its debugger to itself
    jobs = [(f"asan_{how}", asan, how) for how in ("shared", "static")]
    session.each(jobs + [(f"launcher_{how}", launcher, how) for how in LAUNCHERS])
