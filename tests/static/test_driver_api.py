#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Plants faults in a small set of CUDA headers and wants gen_driver_api.py to tell; prints TAP.

usage: test_driver_api.py SCRIPTS HEADERS CC
"""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile

from test_checks import Tap

CUDA_H = """
#define CUDA_VERSION 13000
#include <stdlib.h>
typedef enum { CUDA_SUCCESS } CUresult;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUfunc_st *CUfunction;
typedef struct CUctx_st *CUcontext;
typedef unsigned long long CUdeviceptr;
typedef struct config_st { int grid; struct { CUstream stream; } in; } config;
typedef struct params_st { CUfunction f; CUstream hStream; } params;
typedef struct two_st { CUstream a, b; } two;
CUresult cuInit(unsigned int flags);
CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t n);
CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n);
CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t n);
CUresult cuLaunchThing(CUfunction f, CUstream hStream);
CUresult cuLaunchThing_ptsz(CUfunction f, CUstream hStream);
CUresult cuStreamGetThing(CUstream hStream, int *thing);
CUresult cuCtxSynchronize(void);
CUresult cuEventSynchronize(CUevent hEvent);
%s
"""
NEW_FUNCTION = "CUresult cuNewThing(CUstream hStream);"
OTHERS = {
    "cudaGL.h": "#include <GL/gl.h>\nCUresult cuGLThing(GLuint buffer, CUstream hStream);\n",
    "cudaEGL.h": "#include <EGL/eglext.h>\nCUresult cuEGLThing(EGLStreamKHR s, CUstream *pStream);\n",
    "cudaVDPAU.h": "CUresult cuVDPAUThing(VdpDevice device);\n",
}

# what it shows, declarations beyond those above, text of the row, on one line
ROWS = [
    ("a stream parameter makes a submission", "", 'SUBMIT(cuLaunchThing, "cuLaunchThing", SUBMITS, 0, '
     "LEGACY, PARAM, (hStream), (CUfunction f, CUstream hStream), (f, hStream))"),
    ("its _ptsz body has a row of its own", "", 'SUBMIT(cuLaunchThing_ptsz, "cuLaunchThing", SUBMITS, 0, '
     "PER_THREAD, PARAM, (hStream), (CUfunction f, CUstream hStream), (f, hStream))"),
    ("a _ptds body and its like use stream 0 unsaid", "", 'SUBMIT(cuMemcpy, "cuMemcpy", SUBMITS, '
     "DRIVER_MAY_SYNCHRONISE, LEGACY, DEFAULT, (NULL), "
     "(CUdeviceptr dst, CUdeviceptr src, size_t n), (dst, src, n))"),
    ("a question about a stream is none", "",
     'DRIVER(cuStreamGetThing, "cuStreamGetThing", ATTRIBUTE, 0, LEGACY, PARAM)'),
    ("attributes of a copy make no question of it",
     "CUresult cuCopyWithAttributesAsync(CUdeviceptr dst, CUstream hStream);",
     'SUBMIT(cuCopyWithAttributesAsync, "cuCopyWithAttributesAsync", SUBMITS, 0, LEGACY, PARAM, '
     "(hStream), (CUdeviceptr dst, CUstream hStream), (dst, hStream))"),
    ("a capture begins by any name", "CUresult cuStreamBeginRecaptureToGraph(CUstream hStream);",
     'DRIVER(cuStreamBeginRecaptureToGraph, "cuStreamBeginRecaptureToGraph", CAPTURES, 0, LEGACY, '
     "PARAM)"),
    ("a context's synchronise is context-wide", "",
     'SYNC(cuCtxSynchronize, "cuCtxSynchronize", SYNCHRONISES, 0, NONE, CONTEXT, (NULL), (void), ())'),
    ("an event's is known by the event", "", 'SYNC(cuEventSynchronize, "cuEventSynchronize", '
     "SYNCHRONISES, 0, NONE, EVENT, (NULL), (CUevent hEvent), (hEvent))"),
    ("versions go from the query name", "",
     'DRIVER(cuMemAlloc_v2, "cuMemAlloc", ALLOCATES, 0, NONE, NONE)'),
    ("a stream deep inside a struct is found", "CUresult cuRun(const config *c, CUfunction f);",
     'SUBMIT(cuRun, "cuRun", SUBMITS, 0, LEGACY, MEMBER, (c ? c->in.stream : NULL), '
     "(const config *c, CUfunction f), (c, f))"),
    ("an array of structs is known by its number", "CUresult cuRunAll(params *list, unsigned numOf);",
     'SUBMIT(cuRunAll, "cuRunAll", SUBMITS, 0, LEGACY, ARRAY, (list, numOf, hStream), '
     "(params *list, unsigned numOf), (list, numOf))"),
    ("OpenGL's types need no header of OpenGL's", "", 'SUBMIT(cuGLThing, "cuGLThing", SUBMITS, 0, '
     "LEGACY, PARAM, (hStream), (GLuint buffer, CUstream hStream), (buffer, hStream))"),
    ("a pointer to a stream is followed", "", 'SUBMIT(cuEGLThing, "cuEGLThing", SUBMITS, 0, LEGACY, '
     "POINTER, (pStream ? *pStream : NULL), (EGLStreamKHR s, CUstream *pStream), (s, pStream))"),
    ("VDPAU's functions are there", "", 'DRIVER(cuVDPAUThing, "cuVDPAUThing", HARMLESS, 0, NONE, NONE)'),
]


def write_headers(folder, more="", version=13000):
    text = (CUDA_H % more).replace("13000", str(version))
    (folder / "cuda.h").write_text(text, encoding="utf-8")
    for name, other in OTHERS.items():
        (folder / name).write_text(other, encoding="utf-8")


class Generator:
    def __init__(self, scripts, folder, compiler):
        self.script = scripts / "gen_driver_api.py"
        self.folder = folder
        self.table = folder / "table.def"
        self.compiler = compiler

    def run(self, *options, headers=None, output=None):
        result = subprocess.run(
            [sys.executable, str(self.script), "--cc", " ".join(self.compiler), "--headers",
             str(headers or self.folder), "-o", str(output or self.table), *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False)
        return result.returncode, result.stdout

    def rows(self):
        return " ".join(self.table.read_text(encoding="utf-8").split())


def test_rows(tap, gen):
    for name, more, row in ROWS:
        write_headers(gen.folder, more)
        status, output = gen.run()
        tap.test(status == 0 and row in gen.rows(), f"row: {name}", f"wanted {row}\n{output}")
    write_headers(gen.folder, "CUresult cuTwo(two *t);")
    status, output = gen.run()
    tap.test(status == 1 and "leads to several streams" in output,
             "row: two streams in one struct are an error, not a guess", output)
    write_headers(gen.folder)
    first, again = (gen.run(), gen.rows()), (gen.run(), gen.rows())
    tap.test(first == again, "row: the same headers give the same file", "")


def plant(gen, old, new):
    text = gen.table.read_text(encoding="utf-8")
    gen.table.write_text(text.replace(old, new, 1), encoding="utf-8")
    return text


def test_faults(tap, gen):
    write_headers(gen.folder)
    gen.run()
    status, output = gen.run("--check")
    tap.test(status == 0 and "nothing wrong" in output, "check: what was generated passes", output)

    faults = [
        ("a row that is gone", "DRIVER(cuInit, ", "/* DRIVER(", "cuInit"),
        ("a stream 0 of the other kind", "SUBMITS, 0, PER_THREAD, PARAM", "SUBMITS, 0, LEGACY, PARAM",
         "cuLaunchThing_ptsz"),
        ("another class", "ALLOCATES", "HARMLESS", "cuMemAlloc_v2"),
        ("a function that is not in the headers", "DRIVER(cuInit,", "DRIVER(cuOld, 0)\nDRIVER(cuInit,",
         "cuOld"),
        ("a comment that is not the generator's", " * SYNC(symbol", " * Sync(symbol", "Sync(symbol"),
    ]
    for name, old, new, wanted in faults:
        text = plant(gen, old, new)
        if new.startswith("/*"):
            plant(gen, 'NONE, NONE)\nDRIVER(cuMemAlloc', 'NONE, NONE) */\nDRIVER(cuMemAlloc')
        status, output = gen.run("--check")
        tap.test(status == 1 and wanted in output, f"check: finds {name}", output)
        gen.table.write_text(text, encoding="utf-8")

    write_headers(gen.folder, NEW_FUNCTION)
    status, output = gen.run("--check")
    tap.test(status == 1 and "cuNewThing" in output,
             "check: a header of the same version that knows more is a failure", output)
    write_headers(gen.folder, NEW_FUNCTION, 13010)
    status, output = gen.run("--check")
    tap.test(status == 0 and "cuNewThing" in output and "cuInit" not in output,
             "check: a newer header's functions are printed", output)
    write_headers(gen.folder, "", 12090)
    status, output = gen.run("--check")
    tap.test(status == 77 and "too old" in output, "check: an older header cannot tell", output)
    write_headers(gen.folder, "struct {")
    status, output = gen.run("--check")
    tap.test(status == 1, "check: a header that cannot be parsed is a failure", output)


def test_real(tap, gen, headers, scripts):
    """The two that are easily missed are found by their types: no rule names them."""
    status, output = gen.run(headers=headers)
    rows = gen.rows() if status == 0 else ""
    for symbol, place in [("cuLaunchKernelEx", "LEGACY, MEMBER, (config ? config->hStream : NULL)"),
                          ("cuLaunchKernelEx_ptsz",
                           "PER_THREAD, MEMBER, (config ? config->hStream : NULL)"),
                          ("cuLaunchCooperativeKernelMultiDevice",
                           "LEGACY, ARRAY, (launchParamsList, numDevices, hStream)")]:
        query = symbol.removesuffix("_ptsz")
        tap.test(f'SUBMIT({symbol}, "{query}", SUBMITS, 0, {place}' in rows,
                 f"real headers: {symbol} is found", output)
    rules = "".join((scripts / name).read_text(encoding="utf-8")
                    for name in ("gen_driver_api.py", "driver_rules.py"))
    tap.test("LaunchKernelEx" not in rules and "MultiDevice" not in rules,
             "real headers: and no rule names them", "")


def main(argv):
    if len(argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    if importlib.util.find_spec("pycparser") is None:
        print("1..0 # SKIP no pycparser here")
        return 0
    scripts = pathlib.Path(argv[1])
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        gen = Generator(scripts, pathlib.Path(folder), argv[3:])
        test_rows(tap, gen)
        test_faults(tap, gen)
        test_real(tap, gen, pathlib.Path(argv[2]), scripts)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
