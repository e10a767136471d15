#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run a victim on the software device, with the shim preloaded, and judge it.

  --compare    run natively too: exit codes and standard output must be equal
  --native     run natively only
  --env K=V    for the shimmed run (may be repeated); --native-env K=V for the native one
  {tmp}        in arguments and values: a fresh folder

Exit code: that of the shimmed run (77: skipped), or 1 when the comparison fails. A signal is a failure.
"""
import argparse
import difflib
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile


def settings(pairs, tmp):
    return dict(pair.replace("{tmp}", tmp).split("=", 1) for pair in pairs)


def environment(args, is_shimmed, tmp):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("POOLSHIM_", "CUSIM_"))}
    paths = [args.sim] + [str(path.parent) for path in (args.library, args.last) if path and path.name]
    env["LD_LIBRARY_PATH"] = ":".join(paths + [p for p in [env.get("LD_LIBRARY_PATH")] if p])
    preload = [args.first]
    if is_shimmed:
        preload += [args.library.name, args.last.name]  # by name: LD_PRELOAD cannot hold a path with a space
        env.setdefault("POOLSHIM_DUMP", "none")
    env["LD_PRELOAD"] = ":".join(p for p in preload if p)
    if not env["LD_PRELOAD"]:
        del env["LD_PRELOAD"]
    elif args.emulator:
        env["QEMU_SET_ENV"] = "LD_PRELOAD=" + env.pop("LD_PRELOAD")
    env.update(settings(args.env if is_shimmed else args.native_env, tmp))
    return env


def run(args, is_shimmed):
    with tempfile.TemporaryDirectory() as tmp:
        argv = args.emulator.split() + [word.replace("{tmp}", tmp) for word in args.command]
        done = subprocess.run(argv, env=environment(args, is_shimmed, tmp), stdout=subprocess.PIPE,
                              text=True, errors="replace", timeout=args.timeout, check=False)
    return done.returncode, done.stdout


def compare(native, shimmed):
    """Print what differs; True when nothing does."""
    is_equal = native[0] == shimmed[0]
    if not is_equal:
        print(f"exit code: native {native[0]}, shimmed {shimmed[0]}")
    left, right = native[1].splitlines(), shimmed[1].splitlines()
    for line in itertools.islice(difflib.unified_diff(left, right, "native", "shimmed", "", "", 0, ""), 60):
        is_equal = False
        print(line)
    print(f"{len(left)} lines compared, {'all equal' if is_equal else 'NOT equal'}")
    return is_equal


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sim", required=True, help="folder of the software libcuda.so.1 and libcudart.so.13")
    parser.add_argument("--library", type=pathlib.Path, help="libpoolshim.so")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--native-env", action="append", default=[])
    parser.add_argument("--first", default="", help="libraries to preload before the shim (sanitizers)")
    parser.add_argument("--last", type=pathlib.Path, default=pathlib.Path(), help="a library to preload after the shim")
    parser.add_argument("--emulator", default="",
                        help="the command that runs programs of another machine, qemu's user mode")
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    if not args.native and not args.library:
        parser.error("--library is needed unless --native is given")

    native = run(args, False) if args.compare or args.native else None
    result = native if args.native else run(args, True)
    if args.compare:
        return 0 if compare(native, result) else 1
    print(result[1], end="")
    return result[0] if result[0] >= 0 else 1


if __name__ == "__main__":
    sys.exit(main())
