#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the GPU programs native and shimmed, compare what they print, time them, and write one results.json.

Called by run.sh, which builds the library. The parts are lane/part_*.py; --only names some of them, --list prints them.
Whatever fails, hangs or does not build is a failed check, and the rest runs.
"""
import argparse
import importlib
import pathlib
import resource
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from lane.machine import machine  # noqa: E402
from lane.programs import build  # noqa: E402
from lane.session import Session  # noqa: E402

# In this order: what is timed first, while the machine is still quiet; what reads all others' dumps last.
PARTS = ("launch", "times", "frameworks", "correctness", "account", "life", "control", "victims", "external", "beside",
         "routes", "coverage")
# Run only where they are named: the proofs of the order rules, which take a run of their own, and answers to one question
# about a driver or a library.
ON_REQUEST = ("stamp", "latency", "hang", "capture", "overlap", "probe", "torch4", "tables", "mutants")
# Parts that use programs of other parts.
USES = {"account": ("times",)}


def part(name):
    return importlib.import_module(f"lane.part_{name}")


def chosen(text):
    names = [name for name in text.split(",") if name] if text else list(PARTS)
    unknown = [name for name in names if name not in PARTS + ON_REQUEST]
    if unknown:
        sys.exit(f"measure.py: no part {' '.join(unknown)}; there are {' '.join(PARTS + ON_REQUEST)}")
    return names


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the parts and end")
    for name in ("out", "library", "work", "cuda-home"):
        parser.add_argument("--" + name)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each program of the times part")
    parser.add_argument("--only", help="parts to run, comma-separated")
    parser.add_argument("--budget-s", type=float, default=540, help="what has not started by then is not run")
    parser.add_argument("--build-only", action="store_true", help="build the programs and end; needs no GPU")
    args = parser.parse_args()
    if args.list:
        print("\n".join(PARTS + ON_REQUEST))
        sys.exit(0)
    if not all((args.out, args.library, args.work, args.cuda_home)):
        parser.error("--out, --library, --work and --cuda-home are needed")
    return args


def run_parts(session, names):
    for name in names:
        start = time.monotonic()
        session.guarded(name, lambda session, name=name: part(name).run(session))
        session.part_seconds[name] = round(time.monotonic() - start, 1)
        session.write()


def main():
    args = arguments()
    names = chosen(args.only)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("measure.py: told to end"))
    session = Session(args.out, pathlib.Path(args.work) / "programs", args.library, args.work, args.cuda_home,
                      HERE.parent.parent, args.budget_s, args.rounds)
    session.facts["parts"] = names
    try:
        if not args.build_only:
            session.facts.update(machine(args.cuda_home))
            session.say(" ".join(f"{key} {value}" for key, value in session.facts.items() if key != "parts"))
        start = time.monotonic()
        build(session, [program for name in names for owner in (name, *USES.get(name, ()))
                        for program in part(owner).PROGRAMS])
        session.part_seconds["build"] = round(time.monotonic() - start, 1)
        session.write()
        if not args.build_only:
            run_parts(session, names)
    except OSError as error:
        session.check("the lane", False, str(error))
    finally:
        session.write()
    passed = len(session.checks) - session.n_failed()
    for failed in (check for check in session.checks if not check["ok"]):
        session.say(f"FAILED {failed['name']}: {failed['detail']}")
    session.say(f"{passed} passed, {session.n_failed()} failed in {time.monotonic() - session.start:.1f} s")
    return 1 if session.n_failed() else 0


if __name__ == "__main__":
    sys.exit(main())
