#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes shim/driver_api.def: every driver function of CUDA's headers, what it does, where its
stream is. The build does not run this: the file is part of the tree.

usage: gen_driver_api.py [--headers FOLDER] [--cc CC] [--check] [-o FILE]

Without options the file of this tree is written anew from the headers that find_cuda_headers
names. --check writes nothing. When FOLDER has the headers of the same CUDA version as the file, the
two must agree in every row (status 1 and the rows otherwise); with newer headers it prints the
functions that the file lacks (status 0); with older ones it says so (status 77, skipped).
"""

import argparse
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from check_common import ROOT
from driver_rules import classify

try:
    from pycparser import c_ast, c_generator, c_parser
except ImportError:
    print("gen_driver_api: needs pycparser (Debian: python3-pycparser)", file=sys.stderr)
    sys.exit(77)

TABLE = ROOT / "shim/driver_api.def"
FOREIGN = ROOT / "shim/foreign"

# With this macro cuda.h renames nothing and declares every version and both meanings of stream 0.
SOURCE = """
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaGL.h>
#include <cudaEGL.h>
#include <vdpau/vdpau.h>
#include <cudaVDPAU.h>
int poolshim_cuda_version = CUDA_VERSION;

/* Of cudaProfiler.h, which NVIDIA's header wheels leave out. */
CUresult cuProfilerInitialize(const char *configFile, const char *outputFile,
                              unsigned int outputMode);
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
"""
# libc's headers, as far as CUDA's use them: the parser does not know the compiler's own words.
LIBC_STAND_INS = {
    "stdlib.h": "typedef unsigned long size_t;\n",
    "stdint.h": "typedef unsigned char uint8_t; typedef unsigned short uint16_t;\n"
                "typedef unsigned int uint32_t; typedef unsigned long uint64_t;\n"
                "typedef signed char int8_t; typedef short int16_t; typedef int int32_t;\n"
                "typedef long int64_t; typedef unsigned long uintptr_t;\n",
}

MAX_COLUMNS = 100


class GeneratorError(Exception):
    """The headers hold something that the rules do not cover."""


def preprocess(headers, compiler):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in LIBC_STAND_INS.items():
            (pathlib.Path(folder) / name).write_text(text, encoding="utf-8")
        result = subprocess.run(
            [*compiler, "-E", "-P", "-nostdinc", "-I", folder, "-I", str(FOREIGN), "-I",
             str(headers), "-D__attribute__(x)=", "-D_Alignas(x)=", "-"],
            input=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        raise GeneratorError(f"the headers in {headers} cannot be read:\n{result.stderr}")
    return result.stdout


class Headers:
    """The functions and types of a parsed header."""

    def __init__(self, text):
        self.functions = {}
        self.typedefs = {}
        self.structs = {}
        self.version = None
        for node in c_parser.CParser().parse(text).ext:
            self.take(node)

    def take(self, node):
        if isinstance(node, c_ast.Typedef):
            self.typedefs[node.name] = node.type
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
            if re.match(r"cu[A-Z]", node.name):
                self.functions[node.name] = node.type
        elif isinstance(node, c_ast.Decl) and node.name == "poolshim_cuda_version":
            self.version = int(node.init.value)
        StructCollector(self.structs).visit(node)

    def strip(self, node):
        """A type without its typedefs; CUstream stays as it is."""
        while True:
            if isinstance(node, c_ast.TypeDecl):
                node = node.type
            elif isinstance(node, c_ast.IdentifierType) and len(node.names) == 1:
                name = node.names[0]
                if name == "CUstream" or name not in self.typedefs:
                    return node
                node = self.typedefs[name]
            else:
                return node

    def is_named(self, node, name):
        node = self.strip(node)
        return isinstance(node, c_ast.IdentifierType) and node.names == [name]

    def is_integer(self, node):
        node = self.strip(node)
        return isinstance(node, c_ast.IdentifierType) and not {"float", "double", "void"} & set(
            node.names) and node.names != ["CUstream"]

    def is_event(self, node):
        while isinstance(node, c_ast.TypeDecl):
            node = node.type
        return isinstance(node, c_ast.IdentifierType) and node.names == ["CUevent"]

    def members(self, node):
        """The members of a struct or union; none for anything else."""
        node = self.strip(node)
        if not isinstance(node, (c_ast.Struct, c_ast.Union)):
            return []
        decls = node.decls or self.structs.get(node.name) or []
        return [decl for decl in decls if isinstance(decl, c_ast.Decl)]

    def stream_members(self, node):
        """Paths to every CUstream inside a struct, its own structs and unions included."""
        paths = []
        for member in self.members(node):
            if self.is_named(member.type, "CUstream"):
                paths.append(member.name)
            elif isinstance(member.type, (c_ast.TypeDecl, c_ast.Struct, c_ast.Union)):
                prefix = f"{member.name}." if member.name else ""
                paths += [prefix + path for path in self.stream_members(member.type)]
        return paths


class StructCollector(c_ast.NodeVisitor):
    """Definitions of structs and unions, wherever they stand."""

    def __init__(self, structs):
        self.structs = structs

    def visit_Struct(self, node):
        if node.name and node.decls:
            self.structs[node.name] = node.decls
        self.generic_visit(node)

    visit_Union = visit_Struct


class Function:
    """One function: its parameters, and where among them a stream is."""

    def __init__(self, headers, symbol, declaration):
        self.symbol = symbol
        self.suffix = re.search(r"(_pt[sd][zs])?$", symbol).group(0)
        self.query = re.sub(r"_v\d+$", "", symbol.removesuffix(self.suffix))
        params = declaration.args.params if declaration.args else []
        if len(params) == 1 and headers.is_named(params[0].type, "void"):
            params = []
        self.params = params
        self.place, self.stream = self.find_stream(headers)
        self.has_event = any(headers.is_event(param.type) for param in params)

    def find_stream(self, headers):
        """(place, C expression) of the stream; (None, None) when no parameter leads to one."""
        found = []
        for index, param in enumerate(self.params):
            if headers.is_named(param.type, "CUstream"):
                found.append(("PARAM", param.name))
            elif isinstance(param.type, c_ast.PtrDecl):
                found += self.find_behind(headers, index, param)
        # The parameter itself is the stream wherever there is one.
        found.sort(key=lambda item: item[0] != "PARAM")
        return found[0] if found else (None, None)

    def find_behind(self, headers, index, param):
        target = param.type.type
        if headers.is_named(target, "CUstream"):
            return [("POINTER", f"{param.name} ? *{param.name} : NULL")]
        paths = headers.stream_members(target)
        if len(paths) > 1:
            raise GeneratorError(f"{self.symbol}: {param.name} leads to several streams: {paths}")
        if not paths:
            return []
        follower = self.params[index + 1] if index + 1 < len(self.params) else None
        if follower is not None and headers.is_integer(follower.type) and re.match(
                r"n[A-Z]|num|count", follower.name):
            return [("ARRAY", f"{param.name}, {follower.name}, {paths[0]}")]
        return [("MEMBER", f"{param.name} ? {param.name}->{paths[0]} : NULL")]

    def parameters(self):
        generator = c_generator.CGenerator()
        return f"({', '.join(generator.visit(param) for param in self.params) or 'void'})"

    def arguments(self):
        return f"({', '.join(param.name for param in self.params)})"


def read_functions(headers):
    return {symbol: Function(headers, symbol, declaration)
            for symbol, declaration in headers.functions.items()}


def wrap(words):
    """A row of comma-separated words, its later lines indented by a tab."""
    lines, line = [], words[0]
    for word in words[1:]:
        separator = "" if line.endswith("(") else " "
        if len((line + separator + word).replace("\t", " " * 8)) > MAX_COLUMNS:
            lines.append(line)
            line = "\t" + word
        else:
            line += separator + word
    return "\n".join([*lines, line])


def row(function, found):
    flags = " | ".join(f"DRIVER_{flag}" for flag in found.flags) or "0"
    stream0 = found.stream0
    fields = [f"{found.macro}({function.symbol},", f'"{function.query}",', f"{found.kind},",
              f"{flags},", f"{stream0},"]
    if found.macro == "DRIVER":
        return wrap([*fields, f"{found.place})"])

    stream = f"({found.stream})" if found.stream else "(NULL)"
    fields += [f"{found.place},", f"{stream},"]
    fields += f"{function.parameters()},".split(" ")
    fields += f"{function.arguments()})".split(" ")
    return wrap(fields)


HEAD = """\
/* SPDX-License-Identifier: MIT */
/*
 * Every driver function. Made by scripts/gen_driver_api.py from cuda.h, cudaGL.h, cudaEGL.h and
 * cudaVDPAU.h of CUDA_VERSION {version}: change the rules there (driver_rules.py), not the rows here.
 *
 * DRIVER(symbol, query, kind, flags, stream0, place)
 *   a function that this library need not watch
 * SUBMIT(symbol, query, kind, flags, stream0, place, stream, parameters, arguments)
 *   a function that submits work: exported, and announced (submit.h) around the driver's call
 * SYNC(symbol, query, kind, flags, stream0, place, stream, parameters, arguments)
 *   a function after which earlier work is known to be complete: exported and counted
 *
 *   symbol      what libcuda exports
 *   query       the name that cuGetProcAddress callers use for it
 *   kind        what it is above all, one of enum driver_kind (driver_api.h)
 *   flags       what else it does, of the same enum
 *   stream0     what stream 0 means in it: LEGACY or PER_THREAD (_ptsz, _ptds bodies), NONE where
 *               there is no stream
 *   place       where its stream is: PARAM, POINTER (to one), MEMBER (of a struct), ARRAY (of
 *               structs), DEFAULT (stream 0, unsaid), EVENT (known by an event only), CONTEXT (all
 *               streams of a context), NONE
 *   stream      a C expression of type CUstream; for ARRAY: array, number, member
 *   parameters, arguments    of the body that is made from the row
 *
 * hooks.def comes first: a function with a row there has a body by hand, which takes the place of
 * the one made from this file (hook_submit.c), and announces too.
 */
"""


def generate(headers):
    functions = read_functions(headers)
    # A function that has a _ptds body uses stream 0 without a parameter that says so; so do the
    # older versions of it.
    default_queries = {f.query for f in functions.values() if f.suffix == "_ptds"}
    rows = []
    for symbol in sorted(functions):
        found = classify(functions[symbol], default_queries)
        rows.append(row(functions[symbol], found))
    return HEAD.format(version=headers.version) + "\n".join(
        [f"DRIVER_API_VERSION({headers.version})", *rows]) + "\n"


def split_rows(text):
    """{symbol: row} of a table, each row on one line."""
    body = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    rows = re.split(r"^(?=[A-Z_]+\()", body, flags=re.M)
    found = {}
    for text_row in rows:
        match = re.match(r"[A-Z_]+\((\w+)", text_row)
        if match:
            found[match.group(1)] = " ".join(text_row.split())
    return found


def table_version(text):
    match = re.search(r"^DRIVER_API_VERSION\((\d+)\)", text, re.M)
    return int(match.group(1)) if match else 0


def check(headers, wanted, table):
    found = table.read_text(encoding="utf-8")
    version = table_version(found)
    found_rows, wanted_rows = split_rows(found), split_rows(wanted)
    if headers.version < version:
        print(f"{table}: from headers {version}; those here are {headers.version}, too old to tell")
        return 77
    lacking = [symbol for symbol in wanted_rows if symbol not in found_rows]
    if headers.version > version:
        print(f"{table}: from headers {version}; those here, {headers.version}, know more: "
              f"{' '.join(name for name in lacking if not name.isdigit()) or 'nothing'}")
        return 0
    n_problems = 0
    for symbol in sorted(wanted_rows.keys() | found_rows.keys()):
        if wanted_rows.get(symbol) != found_rows.get(symbol):
            n_problems += 1
            print(f"{table}: {symbol}\n  file:    {found_rows.get(symbol, 'no row')}\n"
                  f"  headers: {wanted_rows.get(symbol, 'no such function')}")
    if n_problems == 0 and found != wanted:
        n_problems = 1
        print("".join(difflib.unified_diff(found.splitlines(True), wanted.splitlines(True),
                                           str(table), "generated")))
    if n_problems:
        print(f"{table}: {n_problems} rows differ from the headers and rules; run "
              "scripts/gen_driver_api.py with the headers of the same version")
        return 1
    print(f"gen_driver_api: {len(found_rows) - 1} functions of CUDA {version}, nothing wrong")
    return 0


def find_headers():
    result = subprocess.run([str(ROOT / "scripts/find_cuda_headers")], check=True, text=True,
                            stdout=subprocess.PIPE)
    return pathlib.Path(result.stdout.strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headers", type=pathlib.Path, help="the folder that holds cuda.h")
    parser.add_argument("--cc", default=os.environ.get("CC", "cc"), help="the C compiler")
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=TABLE)
    args = parser.parse_args()
    try:
        headers = Headers(preprocess(args.headers or find_headers(), args.cc.split()))
        text = generate(headers)
    except (GeneratorError, c_parser.ParseError) as problem:
        print(f"gen_driver_api: {problem}", file=sys.stderr)
        return 1
    if args.check:
        return check(headers, text, args.output)
    args.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
