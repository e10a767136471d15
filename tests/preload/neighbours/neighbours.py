#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs under the shim together with others that edit or fill LD_PRELOAD; prints TAP.

Other programs' allocators before and after the shim, a host with AddressSanitizer, stdbuf and shells
that change LD_PRELOAD, a 32-bit child, a child with more rights. What this machine lacks is skipped,
with the reason.

usage: neighbours.py --sim DIR --library LIBRARY --victim PROGRAM [--asan-victim PROGRAM]
                     [--command POOLSHIM] --cc WORD... (the compiler, last)
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


class Skip(Exception):
    pass


class Tap:
    def __init__(self):
        self.n_tests = 0
        self.n_failed = 0

    def run(self, name, test, *args):
        """A test returns what is wrong, as text, or nothing; it may raise Skip."""
        self.n_tests += 1
        try:
            wrong = test(*args)
        except Skip as reason:
            print(f"ok {self.n_tests} - {name} # SKIP {reason}")
            return
        self.n_failed += bool(wrong)
        print(f"{'not ok' if wrong else 'ok'} {self.n_tests} - {name}")
        for line in (wrong or "").splitlines():
            print(f"# {line}")
        sys.stdout.flush()

    def finish(self):
        print(f"1..{self.n_tests}")
        return 1 if self.n_failed else 0


class Lab:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.library = args.library.resolve()
        self.victim = args.victim.resolve()

    def run(self, argv, preload, **more_env):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("POOLSHIM_", "CUSIM_", "LD_"))}
        env["LD_LIBRARY_PATH"] = f"{self.args.sim.resolve()}:{self.library.parent}"
        env["POOLSHIM_DUMP"] = "none"
        env.update(more_env)
        if preload:
            env["LD_PRELOAD"] = ":".join(str(word) for word in preload)
        return subprocess.run([str(word) for word in argv], env=env, check=False, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=100, cwd=self.folder)

    def compile(self, source, *options):
        program = self.folder / pathlib.Path(source).stem
        done = subprocess.run([*self.args.cc, "-o", str(program), str(HERE / source), *options],
                              check=False, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise Skip(f"{source} does not build here: {done.stdout.splitlines()[-1]}")
        return program


def what_is_wrong(done, *wanted, unwanted=(), may_complain=False):
    """The output when a line is missing or one too many, when the status is bad, or on any word on
    stderr."""
    lines = done.stdout.splitlines()
    problems = [f"no line '{line}'" for line in wanted if line not in lines]
    problems += [f"a line '{line}'" for line in unwanted if line in lines]
    if done.returncode:
        problems.append(f"status {done.returncode}")
    if done.stderr and not may_complain:
        problems.append("words on stderr")
    if not problems:
        return None
    return "\n".join([*problems, "stdout:", done.stdout, "stderr:", done.stderr])


SERVED = ("neighbours: ok", "pool: served", "loaded: libpoolshim.so")


def find_library(name):
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                   "/usr/lib", "/usr/local/lib"):
        path = pathlib.Path(folder) / name
        if path.exists():
            return path
    raise Skip(f"no {name} here")


def allocator(lab, name, is_first):
    other = find_library(name)
    preload = [other, lab.library] if is_first else [lab.library, other]
    done = lab.run([lab.victim], preload)
    # the file may be a link to one with more digits
    lines = [line for line in done.stdout.splitlines() if line.startswith("malloc: ")]
    return what_is_wrong(done, *SERVED, f"malloc: {name}") if lines else "\n".join(
        ["tells no malloc", done.stdout, done.stderr])


def alone(lab):
    return what_is_wrong(lab.run([lab.victim], [lab.library]), *SERVED, "malloc: libc.so.6")


def native(lab):
    done = lab.run([lab.victim], [])
    return what_is_wrong(done, "neighbours: ok", unwanted=SERVED[1:])


def asan_host(lab):
    if not lab.args.asan_victim:
        raise Skip("no program with AddressSanitizer was built")
    runtime = subprocess.run([*lab.args.cc, "-print-file-name=libasan.so"], check=True, text=True,
                             stdout=subprocess.PIPE).stdout.strip()
    preload = [runtime] if "/" in runtime else []  # clang's is inside the program
    done = lab.run([lab.args.asan_victim.resolve()], [*preload, lab.library],
                   ASAN_OPTIONS="detect_leaks=0")
    return what_is_wrong(done, *SERVED)


def asan_host_last(lab):
    """What happens in the other order is AddressSanitizer's own refusal, which README.md tells."""
    if not lab.args.asan_victim:
        raise Skip("no program with AddressSanitizer was built")
    done = lab.run([lab.args.asan_victim.resolve()], [lab.library], ASAN_OPTIONS="detect_leaks=0")
    is_refused = done.returncode and "ASan runtime does not come first" in done.stderr
    return None if is_refused or not what_is_wrong(done, *SERVED) else done.stdout + done.stderr


def stdbuf(lab):
    if not shutil.which("stdbuf"):
        raise Skip("no stdbuf here")
    done = lab.run(["stdbuf", "-oL", lab.victim], [lab.library])
    return what_is_wrong(done, *SERVED, "loaded: libstdbuf.so")


def shell(lab, line):
    done = lab.run(["sh", "-c", line.replace("VICTIM", f"'{lab.victim}'")], [lab.library])
    return what_is_wrong(done, *SERVED)


def shell_prepends(lab):
    other = find_library("libjemalloc.so.2")
    line = f"LD_PRELOAD={other}:$LD_PRELOAD '{lab.victim}'"
    done = lab.run(["sh", "-c", line], [lab.library])
    return what_is_wrong(done, *SERVED, "loaded: libjemalloc.so.2")


def stripped(lab):
    done = lab.run(["env", "-u", "LD_PRELOAD", lab.victim], [lab.library])
    return what_is_wrong(done, "neighbours: ok", unwanted=SERVED[1:])


def child_32(lab):
    libc = pathlib.Path("/lib32/libc.so.6")
    if not pathlib.Path("/lib/ld-linux.so.2").exists() or not libc.exists():
        raise Skip("no 32-bit loader and libc (package libc6-i386)")
    child = lab.compile("child_32.c", "-m32", "-ffreestanding", "-nostdlib", "-no-pie",
                        "-fcf-protection=none", "-fno-stack-protector", str(libc),
                        "-Wl,--dynamic-linker=/lib/ld-linux.so.2")
    alone_done = lab.run([child], [])
    if alone_done.returncode != 7:
        raise Skip("this kernel runs no 32-bit program")
    done = lab.run([lab.victim, child], [lab.library])
    wrong = what_is_wrong(done, *SERVED, "32-bit child runs", "child: exit 7", may_complain=True)
    if wrong:
        return wrong
    # The loader's own line, once: the child goes on without the library.
    lines = done.stderr.splitlines()
    if len(lines) != 1 or "wrong ELF class: ELFCLASS64" not in lines[0] or "ignored" not in lines[0]:
        return f"stderr is not the loader's one line:\n{done.stderr}"
    return None


def child_secure(lab):
    if os.geteuid() != 0:
        raise Skip("only root can make a program of another user")
    child = lab.compile("child_secure.c")
    lab.folder.chmod(0o755)
    os.chown(child, 65534, 65534)
    child.chmod(0o4755)
    done = lab.run([lab.victim, child], [lab.library])
    if "secure: 0" in done.stdout:
        raise Skip("set-user-id has no effect in this folder")
    wrong = what_is_wrong(done, *SERVED, "secure: 1", "child: exit 0", may_complain=True)
    loaded = [line for line in done.stdout.splitlines()
              if line.startswith("child loaded: ") and "libpoolshim" in line]
    return wrong or "\n".join(loaded)


def command_keeps_preload(lab):
    if not lab.args.command:
        raise Skip("the command was not built")
    done = lab.run([lab.args.command.resolve(), "run", "--", lab.victim],
                   [find_library("libjemalloc.so.2")], POOLSHIM_DUMP="none")
    return what_is_wrong(done, *SERVED, "malloc: libjemalloc.so.2")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sim", type=pathlib.Path, required=True)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--victim", type=pathlib.Path, required=True)
    parser.add_argument("--asan-victim", type=pathlib.Path)
    parser.add_argument("--command", type=pathlib.Path)
    parser.add_argument("--cc", nargs=argparse.REMAINDER, required=True)
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(parser.parse_args(), pathlib.Path(folder))
        tap.run("the program alone", native, lab)
        tap.run("under the shim", alone, lab)
        for name in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4"):
            tap.run(f"{name} before the shim", allocator, lab, name, True)
            tap.run(f"{name} after the shim", allocator, lab, name, False)
        tap.run("a host with AddressSanitizer", asan_host, lab)
        tap.run("AddressSanitizer behind the shim refuses by itself", asan_host_last, lab)
        tap.run("stdbuf adds its own library", stdbuf, lab)
        tap.run("a shell runs it", shell, lab, "VICTIM; exit $?")
        tap.run("a shell becomes it", shell, lab, "exec VICTIM")
        tap.run("a shell in a shell runs it", shell, lab, "sh -c 'exec \"$0\"' VICTIM")
        tap.run("a shell prepends another library", shell_prepends, lab)
        tap.run("env takes LD_PRELOAD away", stripped, lab)
        tap.run("a 32-bit child goes on without the library", child_32, lab)
        tap.run("a child with more rights goes on without the library", child_secure, lab)
        tap.run("poolshim run keeps what is preloaded", command_keeps_preload, lab)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
