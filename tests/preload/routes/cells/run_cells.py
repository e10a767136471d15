#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One route of the matrix: run its program natively, under the shim, and under the shim with POOLSHIM_MODE=off,
and judge each kind of memory. TAP on stdout, one line a cell: "ROUTE KIND".

A cell holds when the statuses and values of all three runs are equal, and the program's proofs say that the shim
saw the calls in the second run and only there. For a route that cannot be caught (--missed) no proof may say so, and
the dump must name what went past the shim.

usage: run_cells.py --route NAME --library SHIM [options] -- PROGRAM ARGUMENT...
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

KINDS = ("device", "pinned", "async", "pitch", "managed", "vmm", "array", "info")
MODES = ("native", "pool", "off")


class Run:
    """The lines that one run printed, by kind."""

    def __init__(self, code, text, dump):
        self.code = code
        self.values = {kind: [] for kind in KINDS}
        self.proofs = {kind: [] for kind in KINDS}
        self.other = []
        self.dump = dump
        for line in text.splitlines():
            word, kind, rest = (line.split(" ", 2) + ["", ""])[:3]
            if word == "cell" and kind in KINDS:
                self.values[kind].append(rest)
            elif word == "proof" and kind in KINDS:
                self.proofs[kind].append(rest)
            else:
                self.other.append(line)

    def proofs_that_say(self, kind, answer):
        return [proof for proof in self.proofs[kind] if proof.split(" ", 1)[0] == answer]


def environment(args, mode, folder):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("POOLSHIM_", "CUSIM_", "LD_PRELOAD"))}
    paths = list(args.path)
    preload = [args.first, *args.before]
    if mode != "native":
        preload.append(args.library.name)  # by name: LD_PRELOAD cannot hold a path with a space
        paths.append(str(args.library.parent))
    preload += args.after
    env["LD_LIBRARY_PATH"] = ":".join(paths + [p for p in [env.get("LD_LIBRARY_PATH")] if p])
    if any(preload):
        env["LD_PRELOAD"] = ":".join(p for p in preload if p)
    env.update(POOLSHIM_DUMP=f"{folder}/dump.json", POOLSHIM_MODE="off" if mode == "off" else "pool")
    env.update(setting.split("=", 1) for setting in args.env)
    return env


def run(args, mode):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(args.command, env=environment(args, mode, folder), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=args.timeout,
                              check=False)
        path = pathlib.Path(folder, "dump.json")
        dump = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return Run(done.returncode, done.stdout, dump)


def faults_of_missed(args, dump):
    """What the dump does not say of a route that goes past the shim. "OBJECT HOW" is what it must name."""
    if dump is None:
        return ["there is no dump"]
    named = [f"{entry['object'].rsplit('/', 1)[-1]} {entry['how']}" for entry in dump["coverage"].get("missed", [])]
    faults = [f"the dump does not name {wanted}: {named}" for wanted in args.missed if wanted not in named]
    if args.missed and "in doubt" not in dump["coverage"]["why"]:
        faults.append(f"coverage is not in doubt: {dump['coverage']['why']}")
    if not args.missed and named:
        faults.append(f"the dump names what was not missed: {named}")
    return faults


def faults_of_proofs(args, runs, kind):
    pool, off = runs["pool"], runs["off"]
    said_in = {"pool": pool.proofs_that_say(kind, "yes"), "off": off.proofs_that_say(kind, "yes")}
    if args.missed:
        return [f"a call was seen after all: {proof}" for proofs in said_in.values() for proof in proofs]
    faults = [f"not seen: {proof}" for proof in pool.proofs_that_say(kind, "no")]
    faults += [f"seen with POOLSHIM_MODE=off too, so it proves nothing: {proof}" for proof in said_in["off"]]
    return faults


def judge(args, runs, kind):
    """(what is wrong, why the cell proves nothing or None)"""
    faults = []
    native = runs["native"]
    for mode in MODES:
        if runs[mode].code != 0:
            faults.append(f"{mode}: exit code {runs[mode].code}")
        if runs[mode].values[kind] != native.values[kind]:
            for left, right in zip(native.values[kind], runs[mode].values[kind]):
                if left != right:
                    faults.append(f"natively '{left}', {mode} '{right}'")
            if len(native.values[kind]) != len(runs[mode].values[kind]):
                faults.append(f"natively {len(native.values[kind])} values, {mode} {len(runs[mode].values[kind])}")
    if not native.values[kind]:
        faults.append("the program printed nothing of this kind")
    if native.proofs[kind]:
        faults.append("the native run met the shim")
    faults += faults_of_proofs(args, runs, kind)
    faults += faults_of_missed(args, runs["pool"].dump)
    if args.missed or faults or runs["pool"].proofs_that_say(kind, "yes"):
        return faults, None
    none = runs["pool"].proofs_that_say(kind, "none")
    if none:
        return [], none[0].split(" ", 1)[1]
    return ["nothing proves that the shim saw the calls"], None


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--route", required=True)
    parser.add_argument("--library", type=pathlib.Path, required=True, help="libpoolshim.so")
    parser.add_argument("--path", action="append", default=[], help="folder of a libcuda or libcudart to use")
    parser.add_argument("--first", default="", help="preloaded before all else (sanitizers)")
    parser.add_argument("--before", action="append", default=[], help="preloaded before the shim")
    parser.add_argument("--after", action="append", default=[], help="preloaded after the shim")
    parser.add_argument("--missed", action="append", default=[], metavar="'OBJECT HOW'",
                        help="the route goes past the shim, and the dump must name this")
    parser.add_argument("--env", action="append", default=[], metavar="K=V")
    parser.add_argument("--json", type=pathlib.Path, help="also write the cells here")
    parser.add_argument("--timeout", type=float, default=150)
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


def main():
    args = parse()
    runs = {mode: run(args, mode) for mode in MODES}
    cells = {}
    print(f"1..{len(KINDS)}")
    for number, kind in enumerate(KINDS, 1):
        faults, skip = judge(args, runs, kind)
        print(f"{'not ok' if faults else 'ok'} {number} - {args.route} {kind}{' # SKIP ' + skip if skip else ''}")
        for fault in faults:
            print(f"# {fault}")
        cells[kind] = {"result": "fail" if faults else "unproved" if skip else "pass", "why": faults or skip or "",
                       "values": runs["native"].values[kind]}
    for mode in MODES if any(cell["result"] == "fail" for cell in cells.values()) else ():
        for line in runs[mode].other:
            print(f"# {mode}: {line}")
    if args.json:
        args.json.write_text(json.dumps({"route": args.route, "cells": cells}, indent=1) + "\n", encoding="utf-8")
    return 1 if any(cell["result"] == "fail" for cell in cells.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
