#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the built library: what it exports, what it needs, and that nothing runs when it loads.

Exported are the rows of shim/hooks.def and shim/runtime_hooks.def, dlsym, dlvsym and dlclose, and
what shim/poolshim.h declares; each without a version, since a program's versioned reference would not
bind to another named node.

usage: check_exports.py [--root ROOT] [--glibc 2.34] [--no-dlsym] LIBRARY
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

from check_common import ROOT, Report, strip_comments, table_rows

NEEDED = ["libc.so.6"]

# The compiler's own start file brings one entry (frame_dummy), of one pointer.
INIT_ARRAY_BYTES = 8


def readelf(library, *options):
    result = subprocess.run(
        ["readelf", "--wide", *options, str(library)], check=True, text=True,
        stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"})
    return result.stdout


def wanted_names(root, with_dlsym):
    names = set(table_rows(root / "shim/hooks.def", "HOOK"))
    names |= set(table_rows(root / "shim/runtime_hooks.def", "RUNTIME_HOOK"))
    header = strip_comments((root / "shim/poolshim.h").read_text(encoding="utf-8"))
    names |= set(re.findall(r"\b(poolshim_\w+)[ \t]*\(", header))
    names.add("dlclose")
    if with_dlsym:
        names |= {"dlsym", "dlvsym"}
    return names


def exported_names(library):
    """Defined dynamic symbols that others can bind to, with their version as readelf prints it."""
    names = set()
    for line in readelf(library, "--dyn-syms").splitlines():
        fields = line.split()
        # Num: Value Size Type Bind Vis Ndx Name
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
            continue
        binding, section, name = fields[4], fields[6], fields[7]
        if binding in {"GLOBAL", "WEAK", "UNIQUE"} and section != "UND":
            names.add(name)
    return names


def check_names(report, library, wanted):
    found = exported_names(library)
    for name in sorted(found):
        if "@" in name:
            report.problem(library, f"{name} is exported under a named version")
    plain = {name.split("@")[0] for name in found}
    for name in sorted(wanted - plain):
        report.problem(library, f"{name} is not exported")
    for name in sorted(plain - wanted):
        report.problem(library, f"{name} is exported but is in no table")


def check_needed(report, library):
    dynamic = readelf(library, "--dynamic")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    if needed != NEEDED:
        report.problem(library, f"needs {' '.join(needed)}; wanted {' '.join(NEEDED)}")
    size = re.search(r"\(INIT_ARRAYSZ\)\s+(\d+)", dynamic)
    if size and int(size.group(1)) > INIT_ARRAY_BYTES:
        report.problem(library, f"constructors: {int(size.group(1)) // 8 - 1} run at load time")
    if re.search(r"\(TEXTREL\)", dynamic):
        report.problem(library, "has text relocations")


def version_key(version):
    return tuple(int(part) for part in version.split("."))


def check_versions(report, library, newest):
    versions = readelf(library, "--version-info")
    if "Version definition section" in versions:
        report.problem(library, "defines a named version node")
    for version in sorted(set(re.findall(r"Name: GLIBC_([\d.]+)", versions)), key=version_key):
        if version_key(version) > version_key(newest):
            report.problem(library, f"needs GLIBC_{version}; {newest} is the newest allowed")
    if re.search(r"Name: GLIBC_PRIVATE", versions):
        report.problem(library, "needs GLIBC_PRIVATE")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--glibc", default="2.34", help="the newest version that may be needed")
    parser.add_argument("--no-dlsym", action="store_true",
                        help="this machine's library exports no dlsym and dlvsym")
    parser.add_argument("library", type=pathlib.Path)
    args = parser.parse_args()

    report = Report("check_exports")
    wanted = wanted_names(args.root, not args.no_dlsym)
    check_names(report, args.library, wanted)
    check_needed(report, args.library)
    check_versions(report, args.library, args.glibc)
    return report.finish(len(wanted), "names")


if __name__ == "__main__":
    sys.exit(main())
