#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What scripts/test asks of Meson's files: which targets some suites need, and what was passed.

usage: meson_tests.py targets BUILD SUITE[,SUITE...]
       meson_tests.py count [--broken N] BUILD...

"count" reads the logs of the last "meson test" of each build folder. A test that prints TAP counts
once for each of its lines, any other test once. It prints each failure and each skipped test with
its reason, a line for each folder, and last "N passed, N failed". Status 1 when something failed.
"""

import argparse
import json
import pathlib
import re
import sys

TAP_PLAN = re.compile(r"1\.\.\d+", re.M)
TAP_LINE = re.compile(r"^(not )?ok\b[ \t]*(?:\d+\b)?[ \t]*-?[ \t]*(.*)$", re.M)
TAP_DIRECTIVE = re.compile(r"(?:^|\s)#\s*(SKIP|TODO)\b[ \t]*(.*)$", re.I)
GOOD_RESULTS = {"OK", "EXPECTEDFAIL"}


class Count:
    def __init__(self):
        self.n_passed = 0
        self.failures = []
        self.skips = []

    def add(self, other):
        self.n_passed += other.n_passed
        self.failures += other.failures
        self.skips += other.skips


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def print_targets(build, suites):
    """Each program that a test of these suites runs, and each target it depends on."""
    files = {t["id"]: t["filename"] for t in read_json(build / "meson-info/intro-targets.json")}
    base = build.resolve()
    wanted = set()
    for test in read_json(build / "meson-info/intro-tests.json"):
        if not suites & {suite.split(":")[-1] for suite in test["suite"]}:
            continue
        for target in test["depends"]:
            wanted.update(files.get(target, []))
        wanted.update(word for word in test["cmd"] if word.startswith(f"{base}/"))
    known = {name for names in files.values() for name in names}
    for path in sorted(wanted & known):
        print(pathlib.Path(path).relative_to(base))


def count_tap(name, test):
    count = Count()
    for failed, rest in TAP_LINE.findall(test["stdout"]):
        directive = TAP_DIRECTIVE.search(rest)
        what = TAP_DIRECTIVE.sub("", rest).strip()
        kind = directive.group(1).upper() if directive else ""
        if kind == "SKIP":
            count.skips.append(f"{name}: {what}: {directive.group(2) or 'no reason given'}")
        elif failed and kind != "TODO":
            count.failures.append(f"{name}: {what}")
        else:
            count.n_passed += 1
    # A crash, a time-out or a plan that was not kept fails beside the lines that were printed.
    if test["result"] not in GOOD_RESULTS | {"SKIP"} and not count.failures:
        count.failures.append(f"{name}: {test['result']}, status {test['returncode']}")
    return count


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no reason given"


def count_exit_code(name, test):
    count = Count()
    if test["result"] in GOOD_RESULTS:
        count.n_passed = 1
    elif test["result"] == "SKIP":
        count.skips.append(f"{name}: {last_line(test.get('stderr') or test['stdout'])}")
    else:
        count.failures.append(f"{name}: {test['result']}, status {test['returncode']}")
    return count


def count_build(build):
    count = Count()
    log = build / "meson-logs/testlog.json"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    if not lines:
        count.failures.append(f"{build.name}: no test ran")
    for line in lines:
        test = json.loads(line)
        test["stdout"] = test.get("stdout") or ""
        name = f"{build.name}: {test['name']}"
        is_tap = TAP_PLAN.search(test["stdout"]) and TAP_LINE.search(test["stdout"])
        count.add((count_tap if is_tap else count_exit_code)(name, test))
    return count


def print_count(builds, n_broken):
    total = Count()
    summaries = []
    for build in builds:
        count = count_build(build)
        summaries.append(f"{build.name}: {count.n_passed} passed, {len(count.failures)} failed, "
                         f"{len(count.skips)} skipped")
        total.add(count)
    for skip in total.skips:
        print(f"skipped: {skip}")
    for failure in total.failures:
        print(f"failed: {failure}")
    for summary in summaries:
        print(summary)
    n_failed = len(total.failures) + n_broken
    print(f"{total.n_passed} passed, {n_failed} failed", flush=True)
    return 1 if n_failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    targets = verbs.add_parser("targets")
    targets.add_argument("build", type=pathlib.Path)
    targets.add_argument("suites", type=lambda text: set(text.split(",")))
    count = verbs.add_parser("count")
    count.add_argument("--broken", type=int, default=0, help="builds that failed before any test")
    count.add_argument("builds", nargs="*", type=pathlib.Path)
    args = parser.parse_args()

    if args.verb == "targets":
        print_targets(args.build, args.suites)
        return 0
    return print_count(args.builds, args.broken)


if __name__ == "__main__":
    sys.exit(main())
