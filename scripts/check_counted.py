#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that no driver function that allocates or frees is forgotten.

Each one that shim/driver_api.def says so of has either a body by hand (shim/hooks.def), which counts, or
a row with the reason in shim/uncounted.def; none has both, and no row is of another function.

usage: check_counted.py [ROOT]
"""

import pathlib
import re
import sys

from check_common import ROOT, Report, strip_comments, table_rows

ROW = re.compile(r'^(?:DRIVER|SUBMIT|SYNC)\(\s*(\w+),\s*"\w+",\s*(?:ALLOCATES|FREES)\b', re.M)


def main(root):
    report = Report("check_counted")
    text = strip_comments((root / "shim/driver_api.def").read_text(encoding="utf-8"))
    found = ROW.findall(text)
    hooked = set(table_rows(root / "shim/hooks.def", "HOOK"))
    uncounted = table_rows(root / "shim/uncounted.def", "UNCOUNTED")
    for name in found:
        if name not in hooked and name not in uncounted:
            report.problem("shim/driver_api.def", f"{name} is neither counted nor in uncounted.def")
        if name in hooked and name in uncounted:
            report.problem("shim/uncounted.def", f"{name} has a body in hooks.def")
    for name in sorted(set(uncounted) - set(found)):
        report.problem("shim/uncounted.def", f"{name} neither allocates nor frees")
    return report.finish(len(found), "functions that allocate or free")


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
