# SPDX-License-Identifier: MIT
"""Libraries with one fault each, in which gpu_stamp must find wrong stamps. Only on request (-p mutants).

Each fault is a rule of the order left out (DESIGN.md 5.1 has them; tests/mutants has many more, against the software
device). The library is built from a copy of the tree. That gpu_stamp finds nothing in the library as it is, is part stamp.
"""
import pathlib
import shutil
import subprocess
import time

from lane.json_run import json_run
from lane.programs import runtime_programs

PROGRAMS = runtime_programs("gpu_stamp", "tests/gpu/gpu_stamp.cu", runtimes=("static",))

LIMIT_S = 60
N_OPERATIONS = 1_000_000

# name: (file, what is there once, what takes its place)
MUTANTS = {
    "a_fence_is_complete_unasked": (
        "shim/backend_cuda.c", "	if (r == CUDA_ERROR_NOT_READY)\n		return BACKEND_E_NOT_READY;\n", ""),
    "early_with_several_streams": (
        "pool/heap_order.c", "order_mode(order, &only) == ORDER_ONE", "order_mode(order, &only) != ORDER_IDLE"),
    "freed_is_complete": (
        "pool/heap_give.c", "if (is_complete || order_is_idle_locked(heap, is_wide))",
        "if (is_complete || !order_is_idle_locked(heap, is_wide))"),
    "a_second_stream_does_not_join": (
        "pool/stream_order.c", "	else if (set->mode == ORDER_ONE && !order_same(set->only, stream))\n"
        "		set->mode = ORDER_SEVERAL;\n", ""),
    "a_thread's_stream_is_the_legacy_one": (
        "shim/submit_read.c", "	if (target.kind == SUBMIT_PER_THREAD)\n		target.thread = thread;\n",
        "	if (target.kind == SUBMIT_PER_THREAD)\n		target.kind = SUBMIT_LEGACY;\n	(void)thread;\n"),
    "a_fence_covers_what_comes_after_it": (
        "pool/epoch.c", "	    backend->ops->n_begun(backend) + 1 != n_covered)", "	    false)"),
}


def mutated_tree(session, name, file, old, new):
    """A copy of the sources with the fault in it, or None."""
    tree = pathlib.Path(session.work) / f"mutant-{name}"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(session.root, tree, ignore=shutil.ignore_patterns("build*", ".git", ".build", "results", "data"))
    text = (tree / file).read_text(encoding="utf-8")
    if text.count(old) != 1:
        return None
    (tree / file).write_text(text.replace(old, new), encoding="utf-8")
    return tree


def build(tree):
    """The library, or None."""
    for command in (["meson", "setup", "out", ".", "--buildtype=release", "-Dtools=disabled", "-Dtests=disabled"],
                    ["ninja", "-C", "out", "shim/libpoolshim.so"]):
        if subprocess.run(command, cwd=tree, capture_output=True, check=False).returncode != 0:
            return None
    return tree / "out/shim/libpoolshim.so"


def one(session, name):
    tree = mutated_tree(session, name, *MUTANTS[name])
    library = build(tree) if tree else None
    if not session.check(f"mutant {name}: was built", library is not None):
        return
    start_s = time.monotonic()
    said, _ = json_run(session, f"mutant_{name}", [session.program("gpu_stamp_static"), str(N_OPERATIONS), "20"], False,
                       extra={"LD_PRELOAD": str(library), "POOLSHIM_DUMP": "none"}, limit_s=LIMIT_S)
    seconds = round(time.monotonic() - start_s, 1)
    session.record("mutants", name, {"said": said, "seconds": seconds})
    n_wrong = (said or {}).get("wrong_stamps")
    session.check(f"mutant {name}: fails within {LIMIT_S} s", n_wrong is not None and n_wrong > 0,
                  f"{n_wrong} wrong stamps in {seconds} s")


def run(session):
    for name in MUTANTS:
        session.guarded(f"mutant {name}", one, name)
