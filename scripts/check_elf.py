#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the built library as an ELF file: what it needs, and that nothing runs when it loads.

- It needs libc alone, and no glibc newer than the README states; it has no version of its own.
- No object has a constructor, an indirect function or, apart from the dump at exit, a destructor.
- Nothing refers to dlsym and its relatives by name: that would be this library's own export. Libc's
  are found in its tables (shim/lookup.c), what moved between versions of glibc by shim/moved.h.
- Exported functions begin with a landing pad, and the assembly says so, for IBT and BTI.

usage: check_elf.py [--root ROOT] [--no-landing-pads] LIBRARY OBJECTS...

OBJECTS: the object files that the library is made of, or archives of them.
"""

import argparse
import pathlib
import re
import sys

from check_common import ROOT, Report, readelf

NEEDED = ["libc.so.6"]

# The compiler's own start file brings one entry (frame_dummy), of one pointer.
INIT_ARRAY_BYTES = 8

RUNS_AT_LOAD = re.compile(r"\.(?:preinit_array|init_array|ctors|init)\b")
RUNS_AT_EXIT = re.compile(r"\.(?:fini_array|dtors|fini)\b")
MAY_RUN_AT_EXIT = re.compile(r"[/_]init\.c\.o\b")  # shim/init.c: the dump at exit

LOADER_CALL = re.compile(r"_*(?:libc_|dl_)?dl(?:m?open(?:_mode)?|v?sym|close|addr1?|info|error)$|"
                         r"_dl_v?sym$")

# First bytes of a function, and the mark of an object whose functions all have them.
LANDING_PADS = {
    "X86-64": ([bytes.fromhex("f30f1efa")], "IBT"),  # endbr64
    "AArch64": ([bytes.fromhex("5f2403d5"), bytes.fromhex("3f2303d5")], "BTI"),  # bti c; paciasp
}


def symbols(text):
    """(value, type, binding, section, name) of each row that readelf prints of a symbol table."""
    for line in text.splitlines():
        fields = line.split()
        # Num: Value Size Type Bind Vis Ndx Name
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit():
            yield int(fields[1], 16), fields[3], fields[4], fields[6], fields[7]


def members(path, *options):
    """What readelf prints of each object file, by name; an archive holds several."""
    text = readelf(path, *options)
    parts = re.split(r"^File: (.*)$", text, flags=re.M)
    if len(parts) == 1:
        yield str(path), text
    for name, part in zip(parts[1::2], parts[2::2]):
        yield name, part


def check_dynamic(report, library):
    dynamic = readelf(library, "--dynamic")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    if needed != NEEDED:
        report.problem(library, f"needs {' '.join(needed)}; wanted {' '.join(NEEDED)}")
    size = re.search(r"\(INIT_ARRAYSZ\)\s+(\d+)", dynamic)
    if size and int(size.group(1)) > INIT_ARRAY_BYTES:
        report.problem(library, f"constructors: {int(size.group(1)) // 8 - 1} run at load time")
    if re.search(r"\(PREINIT_ARRAY\)", dynamic):
        report.problem(library, "has a .preinit_array")
    if re.search(r"\(TEXTREL\)", dynamic):
        report.problem(library, "has text relocations")
    if re.search(r"^\s*GNU_STACK.*\bRWE\b", readelf(library, "--program-headers"), re.M):
        report.problem(library, "asks for a stack that can be executed")
    if re.search(r"_(?:IRELATIV|COPY)\w*\b", readelf(library, "--relocs")):
        report.problem(library, "an indirect function is resolved at load time")


def version_key(version):
    return tuple(int(part) for part in version.split("."))


def stated_glibc(report, root):
    """The version in the README's 'glibc N.N or newer'."""
    found = re.findall(r"glibc\s+(\d+(?:\.\d+)+)\s+or\s+newer",
                       (root / "README.md").read_text(encoding="utf-8"))
    if len(found) != 1:
        report.problem("README.md", f"says 'glibc N.N or newer' {len(found)} times, not once")
        return None
    return found[0]


def check_versions(report, library, stated):
    """Returns how many references to libc the library has."""
    newest = "0"
    n_references = 0
    for _, _, binding, section, name in symbols(readelf(library, "--dyn-syms")):
        if section != "UND":
            continue
        n_references += 1
        version = re.search(r"@GLIBC_([\d.]+)$", name)
        if "@GLIBC_PRIVATE" in name:
            report.problem(library, f"needs {name}")
        elif version:
            newest = max(newest, version.group(1), key=version_key)
            if stated and version_key(version.group(1)) > version_key(stated):
                report.problem(library, f"needs {name}; the README says {stated} (see shim/moved.h)")
        elif binding != "WEAK":
            report.problem(library, f"needs {name}, which libc does not have")
    if stated and version_key(newest) < version_key(stated):
        report.problem(library, f"needs glibc {newest}; the README says {stated}")
    if "Version definition section" in readelf(library, "--version-info"):
        report.problem(library, "defines a named version node")
    return n_references


def check_objects(report, path):
    for name, text in members(path, "--section-headers"):
        for section in RUNS_AT_LOAD.findall(text):
            report.problem(name, f"has a constructor ({section})")
        if RUNS_AT_EXIT.search(text) and not MAY_RUN_AT_EXIT.search(name):
            report.problem(name, "has a destructor")
    for name, text in members(path, "--syms"):
        for _, kind, _, section, symbol in symbols(text):
            if section == "UND" and LOADER_CALL.match(symbol):
                report.problem(name, f"refers to {symbol} by name")
            if kind == "IFUNC":
                report.problem(name, f"{symbol} is an indirect function")


def machine_of(path):
    return re.search(r"Machine:.*?(X86-64|AArch64|\S+)$", readelf(path, "--file-header"),
                     re.M).group(1)


def read_at(library, address, n_bytes):
    """Bytes of the file that are loaded at an address."""
    for line in readelf(library, "--program-headers").splitlines():
        fields = line.split()
        # LOAD Offset VirtAddr PhysAddr FileSiz ...
        if fields[:1] != ["LOAD"]:
            continue
        offset, start, size = (int(fields[i], 16) for i in (1, 2, 4))
        if start <= address < start + size:
            with open(library, "rb") as file:
                file.seek(offset + address - start)
                return file.read(n_bytes)
    return b""


def check_landing_pads(report, library, objects):
    pads, mark = LANDING_PADS.get(machine_of(library), ([], None))
    if not pads:
        return
    for value, kind, binding, section, name in symbols(readelf(library, "--dyn-syms")):
        if kind == "FUNC" and section != "UND" and binding != "LOCAL" and \
                read_at(library, value, 4) not in pads:
            report.problem(library, f"{name} does not begin with a landing pad")
    for path in objects:
        for name, text in members(path, "--notes"):
            if ".S.o" in name and mark not in text:
                report.problem(name, f"has no {mark} mark")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--no-landing-pads", action="store_true",
                        help="the compiler makes none")
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("objects", type=pathlib.Path, nargs="+")
    args = parser.parse_args()

    report = Report("check_elf")
    check_dynamic(report, args.library)
    n_references = check_versions(report, args.library, stated_glibc(report, args.root))
    for path in args.objects:
        check_objects(report, path)
    if not args.no_landing_pads:
        check_landing_pads(report, args.library, args.objects)
    return report.finish(n_references, "references to libc")


if __name__ == "__main__":
    sys.exit(main())
