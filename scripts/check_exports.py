#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks what the built library exports.

Exported are the rows of shim/hooks.def and shim/runtime_hooks.def, what submits or synchronises in
shim/driver_api.def, dlsym, dlvsym and dlclose, and what shim/poolshim.h declares; each without a version,
since a program's versioned reference would not bind to another named node. A function that both
tables have must have its body by hand, not the weak one that is made from driver_api.def.

usage: check_exports.py [--root ROOT] [--no-dlsym] LIBRARY
"""

import argparse
import pathlib
import re
import sys

from check_common import ROOT, Report, readelf, strip_comments, table_rows


def generated_names(root):
    table = root / "shim/driver_api.def"
    return set(table_rows(table, "SUBMIT")) | set(table_rows(table, "SYNC"))


def wanted_names(root, with_dlsym):
    names = set(table_rows(root / "shim/hooks.def", "HOOK")) | generated_names(root)
    names |= set(table_rows(root / "shim/runtime_hooks.def", "RUNTIME_HOOK"))
    header = strip_comments((root / "shim/poolshim.h").read_text(encoding="utf-8"))
    names |= set(re.findall(r"\b(poolshim_\w+)[ \t]*\(", header))
    names.add("dlclose")
    if with_dlsym:
        names |= {"dlsym", "dlvsym"}
    return names


def exported_names(library):
    """{name: binding} of the dynamic symbols that others can bind to, with their version as readelf
    prints it."""
    names = {}
    for line in readelf(library, "--dyn-syms").splitlines():
        fields = line.split()
        # Num: Value Size Type Bind Vis Ndx Name
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
            continue
        binding, section, name = fields[4], fields[6], fields[7]
        if binding in {"GLOBAL", "WEAK", "UNIQUE"} and section != "UND":
            names[name] = binding
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


def check_bodies(report, library, root):
    """Which functions have the weak body of a row, and which one written by hand."""
    found = exported_names(library)
    if "WEAK" not in found.values():
        return  # link-time optimisation has made the choice, and left no trace of it
    by_hand = set(table_rows(root / "shim/hooks.def", "HOOK"))
    for name in sorted(generated_names(root) & found.keys()):
        if name in by_hand and found[name] == "WEAK":
            report.problem(library, f"{name} has a row in hooks.def but no body by hand")
        if name not in by_hand and found[name] != "WEAK":
            report.problem(library, f"{name} has a body by hand but no row in hooks.def")


def read_rows(path, macro, pattern):
    text = strip_comments(path.read_text(encoding="utf-8"))
    return {match.group(1): match.groups()[1:]
            for match in re.finditer(rf"^{macro}\(\s*(\w+),\s*{pattern}", text, re.M)}


def check_tables(report, root):
    """hooks.def says of its functions what driver_api.def says, and real.def has none of them."""
    known = read_rows(root / "shim/driver_api.def", "(?:DRIVER|SUBMIT|SYNC)",
                      r'"(\w+)",\s*\w+,\s*[\w |]+,\s*(\w+)')
    by_hand = read_rows(root / "shim/hooks.def", "HOOK", r'"(\w+)",\s*(\w+)')
    for name, row in by_hand.items():
        if name not in known:
            report.problem("shim/hooks.def", f"{name} is not in driver_api.def")
        elif row != known[name]:
            report.problem("shim/hooks.def", f"{name} is {' '.join(row)}, but "
                           f"{' '.join(known[name])} in driver_api.def")
    for name in table_rows(root / "shim/real.def", "REAL"):
        if name not in known:
            report.problem("shim/real.def", f"{name} is not in driver_api.def")
        if name in by_hand:
            report.problem("shim/real.def", f"{name} is in hooks.def already")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--no-dlsym", action="store_true",
                        help="this machine's library exports no dlsym and dlvsym")
    parser.add_argument("library", type=pathlib.Path)
    args = parser.parse_args()

    report = Report("check_exports")
    wanted = wanted_names(args.root, not args.no_dlsym)
    check_tables(report, args.root)
    check_names(report, args.library, wanted)
    check_bodies(report, args.library, args.root)
    return report.finish(len(wanted), "names")


if __name__ == "__main__":
    sys.exit(main())
