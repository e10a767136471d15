#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests how scripts/meson_tests.py counts; prints TAP.

usage: test_meson_tests.py SCRIPTS
"""

import json
import pathlib
import subprocess
import sys
import tempfile


def entry(result, stdout="", returncode=0, **more):
    return {"name": "unit - x", "result": result, "stdout": stdout, "returncode": returncode, **more}


# what it shows, the log, the options, the closing line, another line that must be printed
CASES = [
    ("each TAP line counts", [entry("OK", "1..3\nok 1 - a\nok 2 - b\nok - c\n")], [],
     "3 passed, 0 failed", None),
    ("a failed TAP line is a failure",
     [entry("FAIL", "1..2\nok 1 - a\nnot ok 2 - the block was handed out twice\n")], [],
     "1 passed, 1 failed", "failed: B: unit - x: the block was handed out twice"),
    ("a crash after good TAP lines is a failure", [entry("FAIL", "1..3\nok 1 - a\n", -11)], [],
     "1 passed, 1 failed", "failed: B: unit - x: FAIL, status -11"),
    ("a plan that was not kept is a failure", [entry("ERROR", "1..3\nok 1 - a\n")], [],
     "1 passed, 1 failed", None),
    ("a skipped TAP line tells its reason", [entry("OK", "1..1\nok 1 - a # SKIP no toolkit\n")], [],
     "0 passed, 0 failed", "skipped: B: unit - x: a: no toolkit"),
    ("a failure that is expected is none", [entry("OK", "1..1\nnot ok 1 - a # TO" + "DO later\n")],
     [], "1 passed, 0 failed", None),
    ("a program without TAP counts once", [entry("OK", "it looks ok\n")], [],
     "1 passed, 0 failed", None),
    ("a skipped program tells its reason", [entry("SKIP", "no GPU here\n", 77)], [],
     "0 passed, 0 failed", "skipped: B: unit - x: no GPU here"),
    ("a time-out is a failure", [entry("TIMEOUT", "", -15)], [], "0 passed, 1 failed", None),
    ("a build without tests is a failure", [], [], "0 passed, 1 failed", "failed: B: no test ran"),
    ("a broken build is a failure", [entry("OK")], ["--broken", "1"], "1 passed, 1 failed", None),
]


def count(scripts, log, options):
    with tempfile.TemporaryDirectory() as folder:
        build = pathlib.Path(folder) / "B"
        (build / "meson-logs").mkdir(parents=True)
        text = "".join(json.dumps(line) + "\n" for line in log)
        (build / "meson-logs/testlog.json").write_text(text, encoding="utf-8")
        result = subprocess.run(
            [sys.executable, str(scripts / "meson_tests.py"), "count", *options, str(build)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False)
    return result.returncode, result.stdout


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    all_right = True
    print(f"1..{len(CASES)}")
    for number, (name, log, options, closing, line) in enumerate(CASES, 1):
        status, output = count(pathlib.Path(argv[1]), log, options)
        lines = output.splitlines()
        is_right = (lines[-1:] == [closing] and (line is None or line in lines)
                    and status == (0 if closing.endswith(" 0 failed") else 1))
        print(f"{'ok' if is_right else 'not ok'} {number} - {name}")
        if not is_right:
            print("".join(f"# {text}\n" for text in lines), end="")
        all_right = all_right and is_right
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
