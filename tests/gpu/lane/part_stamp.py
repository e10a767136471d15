# SPDX-License-Identifier: MIT
"""Ten million operations of the pool with slow kernels: no wrong stamp, and memory handed out while its old user ran."""
from lane.json_run import both, seconds_of
from lane.programs import runtime_programs

PROGRAMS = runtime_programs("gpu_stamp", "tests/gpu/gpu_stamp.cu", runtimes=("static",))

N_OPERATIONS = 10_000_000
N_UNFINISHED_MIN = 200_000
NATIVE_S = 12  # natively every free waits: a sample is enough to see that the program is right


def run(session):
    budget_s = seconds_of("POOLSHIM_LANE_STAMP_S", 75)
    program = session.program("gpu_stamp_static")
    found = both(session, "stamp", "stamp", {"native": [program, "200000", str(NATIVE_S)],
                                             "shimmed": [program, str(N_OPERATIONS), str(budget_s)]},
                 limit_s=budget_s + 60)
    for kind, said in found.items():
        session.check(f"stamp: {kind}: no stamp is wrong", said["wrong_stamps"] == 0, said["wrong_stamps"])
    if "native" in found:
        session.check("stamp: natively nothing is handed out unfinished", found["native"]["handed_out_unfinished"] == 0,
                      found["native"]["handed_out_unfinished"])
    if "shimmed" in found:
        said = found["shimmed"]
        session.check(f"stamp: {N_OPERATIONS} operations", said["operations"] >= N_OPERATIONS, said["operations"])
        session.check(f"stamp: {N_UNFINISHED_MIN} hand-outs before the old user's end",
                      said["handed_out_unfinished"] >= N_UNFINISHED_MIN, said["handed_out_unfinished"])
