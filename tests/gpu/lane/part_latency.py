# SPDX-License-Identifier: MIT
"""What a free costs while a kernel of 200 ms runs, and that frees behind what the CPU sees wait as natively."""
from lane.json_run import both, seconds_of
from lane.programs import runtime_programs

PROGRAMS = runtime_programs("gpu_latency", "tests/gpu/gpu_latency.cu", runtimes=("static",))

N_FREES = 100_000
P999_NS_MAX = 5000
NATIVE_FREES = 12_000  # a kernel's first free waits for it: more rounds show nothing more
WAITS_MS_MIN = 190


def judge_frees(session, said):
    n_frees = 0
    for kind, by_call in said["frees"].items():
        for call in ("cudaFree", "cudaFreeHost"):
            n_frees += by_call[call]["n"]
            session.check(f"latency: {call} behind a kernel, {kind}: p99.9 at most {P999_NS_MAX} ns",
                          by_call[call].get("p999_ns", 1 << 62) <= P999_NS_MAX, str(by_call[call]))
    session.check(f"latency: {N_FREES} frees", n_frees >= N_FREES * 0.99, n_frees)


def run(session):
    budget_s = seconds_of("POOLSHIM_LANE_LATENCY_S", 40)
    program = session.program("gpu_latency_static")
    found = both(session, "latency", "latency", {"native": [program, str(NATIVE_FREES), str(budget_s / 2)],
                                                 "shimmed": [program, str(N_FREES), str(budget_s)]},
                 limit_s=budget_s + 30)
    if "shimmed" in found:
        judge_frees(session, found["shimmed"])
    for kind, said in found.items():
        for name, by_call in said["visible"].items():
            if name == "plain_kernel" and kind == "shimmed":
                continue
            session.check(f"latency: {kind}: a free behind {name} waits", min(by_call.values()) >= WAITS_MS_MIN, str(by_call))
