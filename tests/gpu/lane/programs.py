# SPDX-License-Identifier: MIT
"""The programs that the parts need, and how they are built: gcc for C on the driver, nvcc for the runtime.

A program that does not build is a failed check; the parts that need it say so and the others run.
"""
import concurrent.futures
import dataclasses
import os
import subprocess

BUILD_LIMIT_S = 240


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    sources: tuple  # from the root of the project
    compiler: str = "gcc"  # or nvcc
    runtime: str = "none"  # for nvcc: static or shared
    flags: tuple = ()
    libraries: tuple = ("-lcuda", "-ldl", "-lpthread")


def driver_program(name, *sources, flags=(), libraries=("-lcuda", "-ldl", "-lpthread")):
    """A C program that links libcuda."""
    return Program(name, tuple(sources), "gcc", "none", tuple(flags), tuple(libraries))


def runtime_programs(name, source, runtimes=("static", "shared"), flags=(), libraries=()):
    """A CUDA program on the runtime, one program for each kind of runtime: NAME_static, NAME_shared."""
    return [Program(f"{name}_{runtime}", (source,), "nvcc", runtime, tuple(flags), tuple(libraries))
            for runtime in runtimes]


def command(program, target, root, cuda_home):
    sources = [str(root / source) for source in program.sources]
    stubs, lib = f"-L{cuda_home}/lib64/stubs", f"{cuda_home}/lib64"
    if program.compiler == "nvcc":
        arch = os.environ.get("POOLSHIM_GPU_ARCH", "native")
        runtime = [] if program.runtime == "none" else ["-cudart", program.runtime]
        return [f"{cuda_home}/bin/nvcc", "-O2", "-std=c++17", "--extended-lambda", f"-arch={arch}", *runtime, "-I",
                str(root), "-Xlinker", "-rpath", "-Xlinker", lib, *program.flags, "-o", target, *sources, stubs,
                *program.libraries]
    return ["gcc", "-std=gnu11", "-O2", "-D_GNU_SOURCE", "-I", str(root), "-isystem", f"{cuda_home}/include",
            *program.flags, "-o", target, *sources, stubs, f"-L{lib}", f"-Wl,-rpath,{lib}", *program.libraries]


def newest(root, program):
    """When something that the program may be made of last changed: its sources and the headers beside them."""
    paths = [root / source for source in program.sources]
    for folder in {path.parent for path in paths}:
        paths += [p for p in folder.iterdir() if p.suffix in {".h", ".cuh"}]
    return max(p.stat().st_mtime for p in paths)


def build_one(session, program):
    target = session.programs / program.name
    if target.exists() and target.stat().st_mtime >= newest(session.root, program):
        return
    argv = command(program, str(target), session.root, session.cuda_home)
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              timeout=BUILD_LIMIT_S)
        code, said = done.returncode, done.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        code, said = -1, str(error)
    if code:
        session.log(f"--- build {program.name}: {' '.join(argv)}\n{said[-3000:]}")
        session.check(f"build: {program.name}", False, said.strip()[-300:])


def build(session, programs, n_at_once=None):
    session.programs.mkdir(parents=True, exist_ok=True)
    wanted = {program.name: program for program in programs}
    with concurrent.futures.ThreadPoolExecutor(n_at_once or max(2, os.cpu_count() or 2)) as pool:
        list(pool.map(lambda program: build_one(session, program), wanted.values()))
    missing = [name for name in wanted if not (session.programs / name).exists()]
    session.check("build: every program", not missing, f"{len(wanted)} programs, missing: {' '.join(missing) or 'none'}")
