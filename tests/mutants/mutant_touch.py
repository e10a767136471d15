# SPDX-License-Identifier: MIT
"""Rules about what submissions touch of the pool's memory, and who else may; see mutant_table.py."""

from mutant_table import Mutant

TOUCHES = [
    Mutant("copies_wait_for_edges",
           "work that touches nothing of what was handed out early waits for no edge",
           "pool/heap_order.c",
           [("has_skipped = !meets_edge_locked(heap, touch);", "has_skipped = false;")],
           ["unit heap_order/heap_order/work_that_touches_nothing*", "preload touch"]),
    Mutant("copies_never_wait",
           "work that touches a block handed out early waits for its edge",
           "pool/heap_order.c",
           [("block->edge_id > heap->order.passed_id;", "false;")],
           ["unit heap_order/heap_order/work_that_touches_what_was*", "preload touch"]),
    Mutant("copies_count_as_waits",
           "what follows work that did not wait for the edge is told of, and waits",
           "pool/heap_order.c",
           [("return !has_skipped;", "return true;")],
           ["unit heap_order/heap_order/work_that_touches_nothing*", "preload touch"]),
    Mutant("ranges_beyond_the_block",
           "a range that leaves its block may meet another one",
           "pool/heap_order.c",
           [("size_bytes > block->addr + block->size_bytes - addr ||", "")],
           ["unit heap_order/heap_order/work_that_reaches_beyond*"]),
    Mutant("edges_never_pass",
           "what was handed out under an edge that is complete is like any other",
           "pool/stream_order.c",
           [("order->passed_id = passed_id;", ";")],
           ["unit heap_order/heap_order/what_was_handed_out_under*"]),
    Mutant("events_wait_for_edges",
           "an event touches no memory",
           "shim/hook_touch.c",
           [("ASYNC_PAIR(cuEventRecord, (CUevent hEvent, CUstream hStream), (hEvent, hStream), hStream,\n"
             "\t   touch_nothing())",
             "PAIR_BY(cuEventRecord, _ptsz, (CUevent hEvent, CUstream hStream), (hEvent, hStream), hStream,\n"
             "\t   SUBMIT_UNKNOWN_CALL, touch_nothing())\n"),
            ("#define BLOCKER_PAIR(",
             "#define SUBMIT_UNKNOWN_CALL(a, b, c, d) SUBMIT_CALL(a, b, d)\n#define BLOCKER_PAIR(")],
           ["preload touch"]),
]
