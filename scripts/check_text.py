#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the text of every file: tabs, blanks at the ends of lines, length, licence line, words.

usage: check_text.py [ROOT]
"""

import pathlib
import re
import sys

from check_common import C_SUFFIXES, ROOT, Report, read_text, source_files

TAB_WIDTH = 8
MAX_COLUMNS = 100
MAX_LINES = 500
LICENCE = "SPDX-License-Identifier: MIT"

# Files that are data, or whose form allows no comment.
NO_LICENCE = {".md", ".json", ".txt", ".map"}
HAS_LICENCE_ANYWAY = {"meson_options.txt", "cuda_headers.txt"}
TEXT_SUFFIXES = {".py", ".build", ".md", ".sh", ".txt", ".map", ".1"}
# As long as it gets.
GENERATED = {"shim/driver_api.def"}
SPACES_ONLY = {".py", ".build", ".md"}

# Written as patterns, so that this file does not hold what it looks for.
FORBIDDEN = [
    (re.compile(r"(?<![\w.}-])/(?:work|root|home/\w+)/"), "a path of one machine"),
    (re.compile(r"/tmp/(?:notes|b-)"), "a path of one machine"),
    (re.compile(r"\b(?:deb\.debian|snapshot\.debian|pypi|pythonhosted)\.(?:org|io)\b"),
     "the host of a package registry"),
    (re.compile(r"\b(?:TODO|FIXME|XXX|HACK)(?=[:( ]|$)"), "an open end"),
]


def is_data(path):
    return bool({"data", "results"} & set(path.parts))


def is_c(path):
    return path.suffix in C_SUFFIXES


def is_shell(path, text):
    return path.suffix == ".sh" or re.match(r"#!.*\b(?:ba)?sh\b", text) is not None


def wants_licence(path):
    if path.name in HAS_LICENCE_ANYWAY:
        return True
    if path.name == "LICENSE":
        return False
    return path.suffix not in NO_LICENCE


def check_licence(report, path, lines):
    if path.suffix == ".py" or (lines and lines[0].startswith("#!")):
        found = any(LICENCE in line for line in lines[:2])
    else:
        found = bool(lines) and LICENCE in lines[0]
    if not found:
        report.problem(path, f"no '{LICENCE}' at the top", 1)


def check_indent(report, path, number, line, uses_tabs):
    indent = line[:len(line) - len(line.lstrip(" \t"))]
    if path.suffix in SPACES_ONLY:
        if "\t" in indent:
            report.problem(path, "a tab in an indentation of spaces", number)
    elif " \t" in indent:
        report.problem(path, "a space before a tab", number)
    elif uses_tabs and " " * TAB_WIDTH in indent and line.strip() != "\\":
        report.problem(path, f"{TAB_WIDTH} spaces where a tab belongs", number)


def check_words(report, path, text):
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, what in FORBIDDEN:
            if pattern.search(line):
                report.problem(path, f"{what}: '{pattern.search(line).group(0)}'", number)


def check_lines(report, path, text):
    lines = text.split("\n")
    uses_tabs = is_c(path) or is_shell(path, text)
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            report.problem(path, "blanks at the end of the line", number)
        check_indent(report, path, number, line, uses_tabs)
        n_columns = len(line.expandtabs(TAB_WIDTH))
        if is_c(path) and n_columns > MAX_COLUMNS:
            report.problem(path, f"{n_columns} columns, at most {MAX_COLUMNS}", number)
    if is_c(path) and len(lines) - 1 > MAX_LINES and path.as_posix() not in GENERATED:
        report.problem(path, f"{len(lines) - 1} lines, at most {MAX_LINES}", len(lines) - 1)


def check_file(report, root, path):
    text = read_text(root / path)
    if text is None:
        # What else lies about, a core file or a program built by hand, is not ours to judge.
        if path.suffix in C_SUFFIXES | TEXT_SUFFIXES and not is_data(path):
            report.problem(path, "not UTF-8 text")
        return
    check_words(report, path, text)
    if is_data(path):
        return
    if text and not text.endswith("\n"):
        report.problem(path, "no newline at the end")
    if "\r" in text:
        report.problem(path, "a carriage return")
    if wants_licence(path):
        check_licence(report, path, text.split("\n"))
    check_lines(report, path, text)


def main(argv):
    root = pathlib.Path(argv[1]) if len(argv) > 1 else ROOT
    report = Report("check_text")
    n_files = 0
    for path in source_files(root):
        n_files += 1
        check_file(report, root, path)
    return report.finish(n_files, "files")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
