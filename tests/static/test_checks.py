#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Plants a fault for each static check and wants it found; prints TAP.

A check that finds nothing wrong is worth something only if it can fail.

usage: test_checks.py SCRIPTS CC OPTION...: the compiler, and its options for landing pads
"""

import os
import pathlib
import subprocess
import sys
import tempfile

LICENCE = "/* SPDX-License-Identifier: MIT */\n"
MAN_ENTRY = (".TP\n.BR \\-\\-limit =\\fIVALUE\\fR \", \" POOLSHIM_LIMIT\nMost memory.\n"
             "Default: \\fBnone\\fR.\n")

HOOKS = (LICENCE + 'HOOK(cuInit, "cuInit", NONE, REQUIRED)\n'
         'HOOK(cuMemcpy, "cuMemcpy", LEGACY, OPTIONAL)\n/* HOOK(cuGone, "", NONE, OPTIONAL) */\n')

# A tree in which nothing is wrong. Forbidden words are put together, or this file would hold them.
GOOD_TREE = {
    "pool/heap.h": LICENCE + "#pragma once\n#include <stddef.h>\n",
    "pool/heap.c": LICENCE + '#include "pool/heap.h"\n/* printf() in a comment is fine */\n',
    "policy/options.def": LICENCE + 'OPTION(LIMIT, limit, LIMIT, "none", "a size",\n\t"help")\n',
    "policy/options.c": LICENCE + '#include <stdio.h>\n#include "pool/heap.h"\n',
    "shim/hooks.def": HOOKS,
    "shim/driver_api.def": LICENCE + 'DRIVER_API_VERSION(13000)\n'
                           'DRIVER(cuInit, "cuInit", CONTEXT, 0, NONE, NONE)\n'
                           'SUBMIT(cuLaunch, "cuLaunch", SUBMITS, 0, LEGACY, DEFAULT)\n'
                           'SUBMIT(cuMemcpy, "cuMemcpy", SUBMITS, DRIVER_A | DRIVER_B,\n\tLEGACY)\n'
                           'DRIVER(cuTake, "cuTake", ALLOCATES, 0, NONE, NONE)\n'
                           'SYNC(cuCtxSynchronize, "cuCtxSynchronize", SYNCHRONISES, 0, NONE)\n',
    "shim/uncounted.def": LICENCE + 'UNCOUNTED(cuTake, "why")\n',
    "shim/real.def": LICENCE + "REAL(cuCtxSynchronize, REQUIRED)\n",
    "shim/runtime_hooks.def": LICENCE + "RUNTIME_HOOK(cudaMalloc, b)\n",
    "shim/poolshim.h": LICENCE + "int poolshim_dump(const char *path);\n",
    "shim/init.c": LICENCE + '#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n'
                   '#include "policy/options.h"\n',
    "tools/run.c": LICENCE + '#include <glib.h>\n#include "policy/options.def"\n',
    "tools/man/poolshim.1": '.\\" SPDX-License-Identifier: MIT\n' + MAN_ENTRY,
    "README.md": "# x\n\n| variable | values |\n|---|---|\n| `POOLSHIM_LIMIT` | `none`, a size |\n",
}

# check, what is planted, the file, its new text, what the check must say
TREE_CASES = [
    ("text", "blanks at the end of a line", "pool/heap.c", LICENCE + "int x; \n", "heap.c:2: blanks"),
    ("text", "a line of 101 columns", "pool/heap.c", LICENCE + "\t/*" + "x" * 89 + "*/\n",
     "heap.c:2: 101 columns"),
    ("text", "a file of 501 lines", "pool/heap.c", LICENCE + "\n" * 500, "501 lines"),
    ("text", "spaces where a tab belongs", "pool/heap.c", LICENCE + "        int x;\n", "8 spaces"),
    ("text", "a space before a tab", "pool/heap.c", LICENCE + " \tint x;\n", "space before a tab"),
    ("text", "a tab in Python", "x.py", "# SPDX-License-Identifier: MIT\nif x:\n\ty\n", "a tab in"),
    ("text", "no licence line", "pool/heap.c", "int x;\n", "heap.c:1: no 'SPDX"),
    ("text", "no newline at the end", "pool/heap.c", LICENCE + "int x;", "no newline"),
    ("text", "a carriage return", "pool/heap.c", LICENCE + "int x;\r\n", "carriage return"),
    ("text", "a path of one machine", "README.md", "see /" + "work/main\n", "README.md:1: a path"),
    ("text", "a registry's host", "README.md", "from https://py" + "pi.org/\n", "registry"),
    ("text", "an open end", "pool/heap.c", LICENCE + "/* TO" + "DO: all */\n", "an open end"),
    ("text", "a byte that is no text", "pool/heap.c", LICENCE + "int x;\0\n", "not UTF-8"),
    ("layering", "pool includes shim", "pool/heap.c", '#include "shim/init.h"\n',
     'pool/ may not include "shim/init.h"'),
    ("layering", "pool includes policy", "pool/heap.c", '#include "policy/size.h"\n', "heap.c:1"),
    ("layering", "policy includes shim", "policy/options.c", '#include "shim/log.h"\n', "options.c:1"),
    ("layering", "pool includes CUDA", "pool/heap.c", "#include <cuda.h>\n", "may not use CUDA"),
    ("layering", "policy includes CUDA", "policy/options.c", "#include <cuda_runtime_api.h>\n",
     "may not use CUDA"),
    ("layering", "shim includes GLib", "shim/init.c", "#include <glib.h>\n", "may not use GLib"),
    ("layering", "tools include the pool", "tools/run.c", '#include "pool/heap.h"\n', "run.c:1"),
    ("layering", "tools include CUDA", "tools/run.c", "#include <cuda.h>\n", "may not use CUDA"),
    ("layering", "pool reads the environment", "pool/heap.c", "\nint x = getenv(y);\n",
     "heap.c:2: pool/ may not use getenv()"),
    ("layering", "pool includes stdio", "pool/heap.c", "#include <stdio.h>\n", "may not use output"),
    ("layering", "policy prints", "policy/options.c", 'fprintf(stderr, "x");\n', "fprintf()"),
    ("layering", "policy exits", "policy/options.c", "exit(1);\n", "exit()"),
    ("layering", "an include without its folder", "pool/heap.c", '#include "heap.h"\n',
     "not named from the root"),
    ("layering", "the software device knows the shim", "tests/sim/a.c", '#include "shim/init.h"\n',
     "a.c:1"),
    ("layering", "cuda.h that renames", "shim/init.c", "#include <cuda.h>\n",
     "without __CUDA_API_VERSION_INTERNAL"),
    ("counted", "an allocation that nobody counts", "shim/uncounted.def", LICENCE,
     "cuTake is neither counted nor in uncounted.def"),
    ("counted", "a reason for what is counted", "shim/hooks.def",
     HOOKS + 'HOOK(cuTake, "cuTake", NONE, OPTIONAL)\n', "cuTake has a body in hooks.def"),
    ("counted", "a reason for what allocates nothing", "shim/uncounted.def",
     LICENCE + 'UNCOUNTED(cuTake, "why")\nUNCOUNTED(cuInit, "why")\n',
     "cuInit neither allocates nor frees"),
    ("docs", "an option that the README lacks", "README.md", "# x\n",
     "README.md: POOLSHIM_LIMIT is not documented"),
    ("docs", "another default in the README", "README.md", "| `POOLSHIM_LIMIT` | `8g` |\n",
     "README.md:1: POOLSHIM_LIMIT: the default is 'none', not '8g'"),
    ("docs", "an option of the README that is not there", "README.md",
     GOOD_TREE["README.md"] + "POOLSHIM_GONE\n", "README.md:6: POOLSHIM_GONE is not an option"),
    ("docs", "an option that the man page lacks", "tools/man/poolshim.1", "x\n",
     "poolshim.1: POOLSHIM_LIMIT is not documented"),
    ("docs", "another default in the man page", "tools/man/poolshim.1",
     MAN_ENTRY.replace("none", "8g"), "the default is 'none', not '8g'"),
    ("docs", "a flag that the man page lacks", "tools/man/poolshim.1",
     MAN_ENTRY.replace("\\-\\-limit", "\\-\\-bound"), "not documented"),
]

GOOD_LIBRARY = """
#define PUBLIC __attribute__((visibility("default")))
#ifndef COPY
#define COPY PUBLIC
#endif
#ifndef LAUNCH
#define LAUNCH WEAK_PUBLIC
#endif
PUBLIC int cuInit(void); PUBLIC int cuInit(void) { return 0; }
#define WEAK_PUBLIC __attribute__((weak)) PUBLIC
#ifndef NO_LAUNCH
LAUNCH int cuLaunch(void); LAUNCH int cuLaunch(void) { return 0; }
#endif
PUBLIC int cuCtxSynchronize(void); WEAK_PUBLIC int cuCtxSynchronize(void) { return 0; }
PUBLIC int cuMemcpy(void); COPY int cuMemcpy(void) { return 0; }
PUBLIC int cudaMalloc(void); PUBLIC int cudaMalloc(void) { return 0; }
PUBLIC int poolshim_dump(void); PUBLIC int poolshim_dump(void) { return 0; }
extern int getpid(void);
int hidden(void); int hidden(void) { return getpid(); }
"""
GOOD_LOOKUP = """
#define PUBLIC __attribute__((visibility("default")))
PUBLIC void *dlsym(void *handle, const char *name); void *dlsym(void *h, const char *n) { return h; }
PUBLIC void *dlvsym(void); PUBLIC void *dlvsym(void) { return 0; }
PUBLIC int dlclose(void); PUBLIC int dlclose(void) { return 0; }
"""
CONSTRUCTOR = "__attribute__((constructor)) static void f(void) { hidden(); }"
DESTRUCTOR = CONSTRUCTOR.replace("constructor", "destructor")
IFUNC = ("static int g(void) { return 1; } static void *pick(void) { return (void *)g; }"
         "int f(void) __attribute__((ifunc(\"pick\"))); PUBLIC int (*x)(void) = f;")

# check, what is planted, more C, compiler options, options of the check, what it must say
LIBRARY_CASES = [
    ("exports", "a name that is in no table", "PUBLIC int extra(void); int extra(void) { return 0; }",
     [], [], "extra is exported but is in no table"),
    ("exports", "a row without an export", "", ["-DcudaMalloc=other"], [],
     "cudaMalloc is not exported"),
    ("exports", "a function that submits and is not exported", "", ["-DNO_LAUNCH"], [],
     "cuLaunch is not exported"),
    ("exports", "a row without its body by hand", "", ["-DCOPY=WEAK_PUBLIC"], [],
     "cuMemcpy has a row in hooks.def but no body by hand"),
    ("exports", "a body by hand without a row", "", ["-DLAUNCH=PUBLIC"], [],
     "cuLaunch has a body by hand but no row in hooks.def"),
    ("exports", "a named version node", "", ["-Wl,--version-script=named.map"], [],
     "under a named version"),
    ("exports", "dlsym where none may be", "", [], ["--no-dlsym"], "dlsym is exported but"),
    ("elf", "a constructor", CONSTRUCTOR, [], [], "lib.o: has a constructor (.init_array)"),
    ("elf", "a constructor of an object that it was not shown", CONSTRUCTOR, ["HIDE"], [],
     "constructors: 1 run at load time"),
    ("elf", "a destructor", DESTRUCTOR, [], [], "lib.o: has a destructor"),
    ("elf", "an indirect function", IFUNC, [], [], "indirect function"),
    ("elf", "another library", "extern double cos(double); double g(double); "
     "PUBLIC double g(double x) { return cos(x); }", ["-Wl,--no-as-needed", "-lm"], [],
     "needs libm.so.6 libc.so.6"),
    ("elf", "a named version node", "", ["-Wl,--version-script=named.map"], [],
     "defines a named version node"),
    ("elf", "a stack for code", "", ["-Wl,-z,execstack"], [], "a stack that can be executed"),
    ("elf", "a private function of glibc", "void __call_tls_dtors(void); "
     "void x(void) { __call_tls_dtors(); }", [], [], "needs __call_tls_dtors@GLIBC_PRIVATE"),
    ("elf", "a function that is nowhere", "int gone(void); int x(void) { return gone(); }", [], [],
     "needs gone, which libc does not have"),
    ("elf", "a function that moved between versions",
     "int pthread_once(void); PUBLIC int x(void) { return pthread_once(); }", [], [],
     "needs pthread_once@GLIBC_2.34; the README says"),
    ("elf", "a call of dlsym by name", "void *dlsym(void *, char *); "
     'PUBLIC void *x(void) { return dlsym(0, "x"); }', [], [], "lib.o: refers to dlsym by name"),
    ("elf", "a call of dlopen by name", "void *dlopen(char *, int); "
     'PUBLIC void *x(void) { return dlopen("x", 1); }', [], [], "lib.o: refers to dlopen by name"),
    ("elf", "a README that promises too much", "", ["-DGLIBC=2.0"], [], "the README says 2.0"),
    ("elf", "a README that promises too little", "", ["-DGLIBC=2.99"], [], "the README says 2.99"),
    ("elf", "a README that does not say", "", ["-DGLIBC="], [], "0 times, not once"),
    ("elf", "a function without a landing pad", "", ["NO_PADS"], [],
     "cuInit does not begin with a landing pad"),
    ("elf", "assembly without its mark", "", ["ASSEMBLY"], [], "asm.S.o: has no"),
]


# what is planted, the file, its new text, what the check must say
TABLE_CASES = [
    ("a stream 0 that the catalogue has otherwise", "shim/hooks.def",
     HOOKS.replace("LEGACY", "PER_THREAD"), "cuMemcpy is cuMemcpy PER_THREAD, but cuMemcpy LEGACY"),
    ("another name to ask for", "shim/hooks.def", HOOKS.replace('"cuMemcpy"', '"cuMemCopy"'),
     "cuMemcpy is cuMemCopy LEGACY"),
    ("a function that the catalogue lacks", "shim/real.def", "REAL(cuOld, OPTIONAL)\n",
     "cuOld is not in driver_api.def"),
    ("a function that is called and hooked", "shim/real.def", "REAL(cuInit, REQUIRED)\n",
     "cuInit is in hooks.def already"),
]


class Tap:
    def __init__(self):
        self.n_tests = 0
        self.n_failed = 0

    def test(self, is_right, name, output):
        self.n_tests += 1
        print(f"{'ok' if is_right else 'not ok'} {self.n_tests} - {name}")
        if not is_right:
            self.n_failed += 1
            for line in output.splitlines():
                print(f"# {line}")

    def finish(self):
        print(f"1..{self.n_tests}", flush=True)
        return 1 if self.n_failed else 0


def write_tree(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8"))


def run_check(scripts, check, *args):
    result = subprocess.run(
        [sys.executable, str(scripts / f"check_{check}.py"), *map(str, args)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False)
    return result.returncode, result.stdout


def test_trees(tap, scripts):
    for check in ("text", "layering", "docs"):
        with tempfile.TemporaryDirectory() as folder:
            write_tree(pathlib.Path(folder), GOOD_TREE)
            status, output = run_check(scripts, check, folder)
            tap.test(status == 0, f"{check}: a tree with nothing wrong passes", output)
    for check, planted, name, text, wanted in TREE_CASES:
        with tempfile.TemporaryDirectory() as folder:
            write_tree(pathlib.Path(folder), {**GOOD_TREE, name: text})
            status, output = run_check(scripts, check, folder)
            tap.test(status == 1 and wanted in output, f"{check}: finds {planted}", output)
    with tempfile.TemporaryDirectory() as folder:
        status, output = run_check(scripts, "text", folder)
        tap.test(status == 1, "text: an empty tree does not pass", output)


def machine_of(path):
    result = subprocess.run(["readelf", "-h", str(path)], check=True, stdout=subprocess.PIPE,
                            text=True, env={**os.environ, "LC_ALL": "C"})
    return "aarch64" if "AArch64" in result.stdout else "x86_64"


# The oldest glibc of a machine, and what takes the landing pads away.
OLDEST_GLIBC = {"aarch64": "2.17", "x86_64": "2.2.5"}
NO_PADS = {"aarch64": "-mbranch-protection=none", "x86_64": "-fcf-protection=none"}


def run_compiler(folder, compiler, *args):
    subprocess.run([*compiler, *args], cwd=folder, check=True, stdin=subprocess.DEVNULL)


def compile_object(folder, compiler, source, options):
    name = source.replace(".c", ".o").replace(".S", ".S.o")
    run_compiler(folder, compiler, "-c", "-fPIC", "-O1", "-fvisibility=hidden", "-fno-builtin",
                 "-w", "-o", name, source, *options)
    return folder / name


def build_library(folder, compiler, code, options):
    """Returns the library and its objects; README.md states the glibc of its machine.

    Words in capitals are no options of the compiler: they say what else is to be wrong.
    """
    words = {option for option in options if not option.startswith("-")}
    linking = [option for option in options if option.startswith(("-Wl", "-l"))]
    compiling = [option for option in options if option not in linking and option not in words]
    sources = {"lookup.c": GOOD_LOOKUP, "lib.c": GOOD_LIBRARY + code}
    if "ASSEMBLY" in words:
        sources["asm.S"] = '.section .note.GNU-stack,"",%progbits\n'
    write_tree(folder, {**sources, "named.map": "NODE_1 { global: cuInit; };\n"})
    machine = machine_of(compile_object(folder, compiler, "lookup.c", []))
    if "NO_PADS" in words:
        compiling.append(NO_PADS[machine])
    objects = [compile_object(folder, compiler, source, compiling) for source in sources]
    run_compiler(folder, compiler, "-shared", "-o", "lib.so",
                 *[path.name for path in objects], *linking)
    stated = [option[8:] for option in options if option.startswith("-DGLIBC=")]
    glibc = stated[0] if stated else OLDEST_GLIBC[machine]
    write_tree(folder, {"README.md": f"Needs glibc {glibc} or newer.\n"})
    return folder / "lib.so", objects[:1] if "HIDE" in words else objects


def run_library_check(scripts, compiler, check, code, options, check_options):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_tree(folder, GOOD_TREE)
        library, objects = build_library(folder, compiler, code, options)
        files = [library, *(objects if check == "elf" else [])]
        return run_check(scripts, check, "--root", folder, *check_options, *files)


def test_libraries(tap, scripts, compiler):
    for check in ("exports", "elf"):
        status, output = run_library_check(scripts, compiler, check, "", [], [])
        tap.test(status == 0, f"{check}: a library with nothing wrong passes", output)
    for check, planted, code, options, check_options, wanted in LIBRARY_CASES:
        status, output = run_library_check(scripts, compiler, check, code, options, check_options)
        tap.test(status == 1 and wanted in output, f"{check}: finds {planted}", output)


def test_tables(tap, scripts, compiler):
    for planted, name, text, wanted in TABLE_CASES:
        with tempfile.TemporaryDirectory() as folder_name:
            folder = pathlib.Path(folder_name)
            write_tree(folder, {**GOOD_TREE, name: text})
            library, _ = build_library(folder, compiler, "", [])
            status, output = run_check(scripts, "exports", "--root", folder, library)
            tap.test(status == 1 and wanted in output, f"exports: finds {planted}", output)


def main(argv):
    if len(argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    scripts = pathlib.Path(argv[1])
    tap = Tap()
    test_trees(tap, scripts)
    test_libraries(tap, scripts, argv[2:])
    test_tables(tap, scripts, argv[2:])
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
