#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""RTLD_NEXT keeps its callers' places, as gcc and clang compile them at -O0 and -O2; prints TAP.

The host's output must be the same alone and under the shim, for each order of preloads. A wrapper
that calls the real dlsym instead of jumping to it must show: else the comparison would see nothing.

usage: forward.py --sim DIR --library LIBRARY [--first LIBRARIES]
"""

import argparse
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SHIM = object()

# Preloads, in order, under the shim; without it the others keep theirs.
ORDERS = {
    "no other library": [SHIM],
    "a tool before the shim": ["a", SHIM],
    "a tool after the shim": [SHIM, "a"],
    "tools on both sides": ["a", SHIM, "b"],
    "two tools before": ["a", "b", SHIM],
    "two tools after": [SHIM, "a", "b"],
}


class Tap:
    def __init__(self):
        self.n_tests = 0
        self.n_failed = 0

    def test(self, is_right, name, output):
        self.n_tests += 1
        self.n_failed += not is_right
        print(f"{'ok' if is_right else 'not ok'} {self.n_tests} - {name}")
        if not is_right:
            print("".join(f"# {line}\n" for line in output.splitlines()), end="", flush=True)

    def skip(self, name, why):
        self.n_tests += 1
        print(f"ok {self.n_tests} - {name} # SKIP {why}")

    def finish(self):
        print(f"1..{self.n_tests}")
        return 1 if self.n_failed else 0


class Lab:
    def __init__(self, args, compiler, level):
        self.args = args
        self.compiler = compiler
        self.level = level
        self.folder = None

    def build(self, folder):
        self.folder = folder
        shared = ["-shared", "-fPIC", "-fvisibility=hidden"]
        for name in ("a", "b"):
            self.compile(f"lib{name}.so", "tool.c", *shared, f"-DTOOL_NAME={name}")
        self.compile("libcalling.so", "calling.c", "-shared", "-fPIC")
        self.compile("host", "host.c")

    def compile(self, output, source, *options):
        subprocess.run([self.compiler, self.level, "-D_GNU_SOURCE", "-Wall", "-Werror", "-o",
                        str(self.folder / output), str(HERE / source), *options, "-ldl"],
                       check=True, stdin=subprocess.DEVNULL)

    def run(self, order, shim):
        """The host's output; `shim` stands where SHIM is, None: nothing does."""
        preload = [self.args.first] if self.args.first else []
        for word in order:
            if word is not SHIM:
                preload.append(str(self.folder / f"lib{word}.so"))
            elif shim:
                preload.append(str(shim))
        env = {k: v for k, v in os.environ.items() if not k.startswith(("POOLSHIM_", "LD_"))}
        env.update(LD_LIBRARY_PATH=str(self.args.sim.resolve()), POOLSHIM_DUMP="none",
                   ASAN_OPTIONS="detect_leaks=0", LD_PRELOAD=":".join(preload))
        done = subprocess.run([str(self.folder / "host")], env=env, check=False, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60)
        return f"{done.stdout}status {done.returncode}\n"

    def jumps(self):
        """Does the tool's last call leave it by a jump?"""
        text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(self.folder / "liba.so")],
                              check=True, text=True, stdout=subprocess.PIPE).stdout
        body = re.search(r"<tail_next_a>:\n(.*?)\n\n", text + "\n\n", re.S).group(1)
        return "dlsym" in body and not re.search(r"\b(?:call|bl)\b", body)


def difference(left, right):
    return "\n".join(difflib.unified_diff(left.splitlines(), right.splitlines(), "native",
                                          "shimmed", "", "", 0, ""))


def test_level(tap, lab):
    kind = f"{lab.compiler} {lab.level}"
    if lab.level == "-O2":
        tap.test(lab.jumps(), f"{kind}: a last call of dlsym is a jump", "it is a call")
    for name, order in ORDERS.items():
        native = lab.run(order, None)
        n_tools = len(order) - 1
        wanted = f"start: next {n_tools - 1}" if n_tools else "start: nobody"
        tap.test(wanted in native.splitlines() and native.endswith("status 0\n"),
                 f"{kind}: {name}: natively each tool has its next", native)
        shimmed = lab.run(order, lab.args.library.resolve())
        tap.test(shimmed == native, f"{kind}: {name}: the same under the shim",
                 difference(native, shimmed))
    order = ORDERS["a tool after the shim"]
    tap.test(lab.run(order, None) != lab.run(order, lab.folder / "libcalling.so"),
             f"{kind}: a wrapper that calls would show", "it did not")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sim", type=pathlib.Path, required=True)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--first", default="")
    args = parser.parse_args()
    tap = Tap()
    for compiler in ("gcc", "clang"):
        for level in ("-O0", "-O2"):
            if not shutil.which(compiler):
                tap.skip(f"{compiler} {level}", f"no {compiler} here")
                continue
            with tempfile.TemporaryDirectory() as folder:
                lab = Lab(args, compiler, level)
                lab.build(pathlib.Path(folder))
                test_level(tap, lab)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
