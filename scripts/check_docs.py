#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that README.md and the man page list every option with its default, and no other.

README.md: a table row whose first cell names POOLSHIM_X and whose second starts with the default.
The man page: an entry (.TP) for --x and POOLSHIM_X that says "Default: \\fBvalue\\fR.".

usage: check_docs.py [ROOT]
"""

import pathlib
import re
import sys

from check_common import ROOT, Report, strip_comments

OPTION = re.compile(r'^[ \t]*OPTION\(\s*(\w+)\s*,\s*\w+\s*,\s*\w+\s*,\s*"([^"]*)"', re.M)
VARIABLE = re.compile(r"\bPOOLSHIM_([A-Z][A-Z0-9_]*)")
TABLE = "policy/options.def"
README = "README.md"
MAN = "tools/man/poolshim.1"


def read_options(root):
    """Each option's name and default."""
    return dict(OPTION.findall(strip_comments((root / TABLE).read_text(encoding="utf-8"))))


def cells(line):
    return [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]


def readme_defaults(text):
    """Each option that a table row documents: its line and the first word of the second cell."""
    found = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith("|"):
            continue
        row = cells(line)
        name = VARIABLE.fullmatch(row[0])
        if name and len(row) > 1:
            words = re.split(r"[\s,;]+", row[1])
            found[name.group(1)] = (number, words[0])
    return found


def man_defaults(text):
    """Each option that an entry of the man page documents: its line and its default, if given."""
    found = {}
    line = 1
    for entry in re.split(r"(?m)^(?=\.TP$)", text):
        # The tag is the line after .TP; only a tag with the flag documents the option.
        tag = entry.split("\n")[1] if entry.startswith(".TP\n") else ""
        name = VARIABLE.search(tag)
        if name and "\\-\\-" + name.group(1).lower().replace("_", "\\-") in tag:
            preset = re.search(r"Default: \\fB([^\\]*)\\fR\.", entry)
            found[name.group(1)] = (line, preset.group(1) if preset else None)
        line += entry.count("\n")
    return found


def check(report, path, text, options, documented):
    for name, preset in options.items():
        if name not in documented:
            report.problem(path, f"POOLSHIM_{name} is not documented")
        elif documented[name][1] != preset:
            line, said = documented[name]
            report.problem(path, f"POOLSHIM_{name}: the default is '{preset}', not '{said}'", line)
    for number, line in enumerate(text.split("\n"), 1):
        for name in VARIABLE.findall(line):
            if name not in options:
                report.problem(path, f"POOLSHIM_{name} is not an option", number)


def main(argv):
    root = pathlib.Path(argv[1]) if len(argv) > 1 else ROOT
    report = Report("check_docs")
    options = read_options(root)
    for path, parse in ((README, readme_defaults), (MAN, man_defaults)):
        if not (root / path).exists():
            report.problem(path, "is missing")
            continue
        text = (root / path).read_text(encoding="utf-8")
        check(report, path, text, options, parse(text))
    return report.finish(len(options), "options")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
