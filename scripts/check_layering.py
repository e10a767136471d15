#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that no include points up, and that pool/ and policy/ stay pure.

usage: check_layering.py [ROOT]
"""

import pathlib
import re
import sys

from check_common import C_SUFFIXES, ROOT, Report, source_files, strip_comments

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]', re.M)
CUDA_HEADER = re.compile(r"(?:cuda|nv)\w*\.h|crt/.*")
GLIB_HEADER = re.compile(r"(?:glib|gio|gobject|gmodule|json-glib).*")
OUTPUT_HEADER = re.compile(r"(?:stdio|stdio_ext|syslog|err)\.h")
CUDA_RENAMES_OFF = re.compile(r"^[ \t]*#[ \t]*define[ \t]+__CUDA_API_VERSION_INTERNAL\b", re.M)
IMPURE_CALL = re.compile(
    r"\b(getenv|secure_getenv|environ|v?[fd]?printf|puts|fputs|perror|exit|_exit|abort)\b[ \t]*"
    r"(?=[(;])")
FORMAT = re.compile(r".*(?:_abi\.h|\.def)")


class Layer:
    """A folder, what its files may include from the tree, and which system headers it may not."""

    def __init__(self, folder, may_include, refused=(), is_pure=False):
        self.folder = folder
        self.may_include = may_include
        self.refused = refused
        self.is_pure = is_pure


CUDA, GLIB, OUTPUT = (CUDA_HEADER, "CUDA"), (GLIB_HEADER, "GLib"), (OUTPUT_HEADER, "output")

# The first folder that a path starts with decides.
LAYERS = [
    Layer("pool/", ["pool/"], [CUDA, GLIB, OUTPUT], is_pure=True),
    Layer("policy/", ["policy/", "pool/"], [CUDA, GLIB], is_pure=True),
    Layer("shim/", ["shim/", "policy/", "pool/"], [GLIB]),
    Layer("tools/replay/", ["tools/", "policy/", "pool/"], [CUDA]),
    Layer("tools/", ["tools/"], [CUDA]),
    # The software device answers for the driver: it must not know the shim that it tests.
    Layer("tests/sim/", ["tests/sim/", "tests/support/"], [GLIB]),
    Layer("tests/", ["tests/", "tools/", "shim/", "policy/", "pool/"]),
]


def layer_of(path):
    for layer in LAYERS:
        if path.as_posix().startswith(layer.folder):
            return layer
    return None


def may_include(layer, header):
    if any(header.startswith(folder) for folder in layer.may_include):
        return True
    return layer.folder == "tools/" and FORMAT.fullmatch(header) is not None


def check_include(report, root, path, line, kind, header, layer):
    for pattern, what in layer.refused:
        if pattern.fullmatch(header):
            report.problem(path, f"{layer.folder} may not use {what}: <{header}>", line)
    if kind == "<":
        return
    in_tests = layer.folder.startswith("tests/")
    if in_tests and (root / path.parent / header).exists():
        return
    if "/" not in header:
        report.problem(path, f'"{header}" is not named from the root of the tree', line)
    elif not may_include(layer, header):
        report.problem(path, f'{layer.folder} may not include "{header}"', line)


def check_file(report, root, path, layer):
    code = strip_comments((root / path).read_text(encoding="utf-8"))
    renames_off = CUDA_RENAMES_OFF.search(code)
    for match in INCLUDE.finditer(code):
        line = code.count("\n", 0, match.start()) + 1
        kind, header = match.groups()
        check_include(report, root, path, line, kind, header, layer)
        # cuda.h renames by macro: a table row would silently get another function's type.
        if layer.folder == "shim/" and header == "cuda.h" and (
                renames_off is None or renames_off.start() > match.start()):
            report.problem(path, "<cuda.h> without __CUDA_API_VERSION_INTERNAL before it", line)
    if not layer.is_pure:
        return
    plain = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', code)
    for match in IMPURE_CALL.finditer(plain):
        line = plain.count("\n", 0, match.start()) + 1
        report.problem(path, f"{layer.folder} may not use {match.group(1)}()", line)


def main(argv):
    root = pathlib.Path(argv[1]) if len(argv) > 1 else ROOT
    report = Report("check_layering")
    n_files = 0
    for path in source_files(root):
        layer = layer_of(path)
        if layer is None or path.suffix not in C_SUFFIXES:
            continue
        n_files += 1
        check_file(report, root, path, layer)
    return report.finish(n_files, "files")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
