#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of the GPU lane that need no GPU: how it runs, bounds, compares and counts programs; prints TAP.

usage: test_lane.py
"""
import contextlib
import io
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from lane import (compare, control_block, figures, json_run, part_account, part_beside, part_capture,  # noqa: E402
                  part_coverage, part_external, part_hang, part_launch, part_mutants, part_routes, part_stamp,
                  part_tables, part_times, part_torch4, programs, session as lane_session)
import measure  # noqa: E402
from workloads import table_workloads  # noqa: E402

SHELL = "/bin/sh"


def make_session(folder):
    """The lane with a folder for everything; what is preloaded is a library that changes nothing."""
    root = pathlib.Path(folder)
    for name in ("out", "programs", "work"):
        (root / name).mkdir()
    return lane_session.Session(root / "out", root / "programs", "/nonexistent/libpoolshim.so", root / "work",
                                root / "cuda", HERE.parent.parent)


def failed(session):
    return [check["name"] for check in session.checks if not check["ok"]]


def test_median_has_the_interval_of_the_binomial_distribution(_):
    assert figures.interval_ranks(15) == (3, 11), figures.interval_ranks(15)
    assert figures.interval_ranks(20) == (5, 14), figures.interval_ranks(20)
    assert figures.interval_ranks(3) == (0, 2), "few values have the widest interval"
    for n in (999, 1000):
        low, high = figures.interval_ranks(n)
        assert low in (468, 469) and high == n - 1 - low, "the two forms agree where they meet"


def test_difference_is_of_pairs_and_not_of_medians(_):
    found = figures.difference([(10, 12), (100, 102), (50, 52), (7, 9), (3, 5), (1, 3)])
    assert (found["median"], found["low"], found["high"], found["n"]) == (2, 2, 2, 6), found


def test_a_difference_may_be_as_large_as_the_noise_or_the_limit(_):
    noise = {"median": 0, "low": -9, "high": 2}
    assert figures.within({"median": 4.9}, {"median": 0, "low": 0, "high": 0}, 5.0)
    assert not figures.within({"median": 5.1}, {"median": 0, "low": 0, "high": 0}, 5.0)
    assert figures.within({"median": 8.0}, noise, 5.0)
    assert not figures.within({"median": 9.5}, noise, 5.0)


def test_a_program_that_hangs_is_ended_with_its_children(session):
    start = time.monotonic()
    result = session.run("hang", [SHELL, "-c", "echo before; sleep 600 & wait"], False, limit_s=1)
    assert result.code == "timeout", result.code
    assert time.monotonic() - start < 20, "the children of a program held the lane"


def test_waiting_for_a_line_has_an_end(session):
    child = session.popen([SHELL, "-c", "echo one; exec sleep 600"], False)
    assert session.line_of(child) == "one\n", "the line was lost"
    assert session.line_of(child, 0.2) == "", "a line came from nowhere"
    assert session.end("sleep", child)[0] == -9, "the program was not ended"


def test_a_program_that_is_not_there_is_a_result(session):
    result = session.run("nothing", ["/nonexistent/program"], False)
    assert str(result.code).startswith("not started"), result.code


def test_a_part_that_raises_fails_and_the_next_one_runs(session):
    session.guarded("bad", lambda session: {}["missing"])
    session.guarded("good", lambda session: session.check("good: ran", True))
    assert failed(session) == ["bad: run to its end"], failed(session)
    assert session.checks[-1]["name"] == "good: ran"


def test_what_starts_behind_the_deadline_is_not_run(session):
    session.deadline = time.monotonic() - 1
    session.guarded("late", lambda session: session.check("late: ran", True))
    assert failed(session) == ["late: run"], failed(session)


def test_the_results_are_there_after_a_failure(session):
    session.check("a", True)
    session.check("b", False, "why")
    session.record("cells", "x", 1)
    session.write()
    found = json.loads((session.out / "results.json").read_text(encoding="utf-8"))
    assert (found["n_passed"], found["n_failed"], found["cells"]) == (1, 1, {"x": 1}), found


def test_a_missing_dump_is_a_failed_check(session):
    session.run("no_dump", [SHELL, "-c", "true"], True)
    assert failed(session) == ["no_dump: the dump can be read"], failed(session)


def test_managed_memory_of_a_framework_is_a_failed_check(session):
    for held in (0, 4096):
        dump = {"devices": [{"peak_external": {"managed": held}, "callers": [{"object": "x", "external_count": 1}]}]}
        compare.check_unmanaged(session, str(held), dump)
    assert failed(session) == ["4096: no managed memory"], session.checks


def test_a_dump_is_kept_under_its_name(session):
    session.run("dump", [SHELL, "-c", 'echo "{\\"devices\\": []}" >"$POOLSHIM_DUMP"'], True)
    assert session.dumps == {"dump": {"devices": []}}, session.dumps


def test_lines_that_start_with_time_are_not_compared(session):
    script = 'echo "value 1"; echo "TIME us $$"'
    compare.compare(session, "same", [SHELL, "-c", script], wants_dump=False)
    assert not failed(session), failed(session)
    compare.compare(session, "other", [SHELL, "-c", 'echo "${LD_PRELOAD:-native}"; [ -z "$LD_PRELOAD" ]'],
                    wants_dump=False)
    assert failed(session) == ["other: exit code", "other: same output"], failed(session)


def test_the_environment_of_the_caller_does_not_reach_the_programs(session):
    with environment({"POOLSHIM_MODE": "off", "LD_PRELOAD": ""}):
        result = session.run("env", [SHELL, "-c", 'echo "${POOLSHIM_MODE-none}"'], False)
    assert result.lines == ["none"], result.lines


def fake_program(session, name, script):
    path = pathlib.Path(session.program(name))
    path.write_text(f"#!{SHELL}\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def test_the_last_object_that_a_program_prints_is_read(_):
    assert json_run.last_json(["{\"a\": 1}", "words", "{\"a\": 2}", "TIME x 1"]) == {"a": 2}
    assert json_run.last_json(["{\"a\": 1}", "{broken"]) is None, "half an object counts as one"
    assert json_run.last_json(["words"]) is None


def test_a_cell_that_hangs_only_under_the_shim_is_a_failed_check(session):
    fake_program(session, "gpu_hang_static", '[ -z "$LD_PRELOAD" ] || exec sleep 600\necho \'{"status": 0, "seconds": 0.1}\'')
    slack, part_hang.SLACK_S = part_hang.SLACK_S, 1
    part_hang.cell(session, "free", "host")
    part_hang.SLACK_S = slack
    assert failed(session) == ["hang free host: ends"], failed(session)
    assert session.records["hang"]["free host"]["shimmed"] == "timeout", session.records


def test_a_cell_that_hangs_natively_is_recorded_and_not_judged(session):
    fake_program(session, "gpu_hang_static", "exec sleep 600")
    limits, (part_hang.SLACK_S, part_hang.NATIVE_LIMIT_S) = (part_hang.SLACK_S, part_hang.NATIVE_LIMIT_S), (1, 1)
    part_hang.cell(session, "free", "host")
    part_hang.SLACK_S, part_hang.NATIVE_LIMIT_S = limits
    assert not failed(session) and session.notes, failed(session)


def test_a_wrong_stamp_and_too_few_early_handouts_are_failed_checks(session):
    fake_program(session, "gpu_stamp_static", 'echo "{\\"devices\\": []}" >"${POOLSHIM_DUMP:-/dev/null}"\n'
                 'echo \'{"operations": 10000000, "handed_out_unfinished": 5, "wrong_stamps": 1}\'')
    part_stamp.run(session)
    assert failed(session) == ["stamp: native: no stamp is wrong", "stamp: shimmed: no stamp is wrong",
                               "stamp: natively nothing is handed out unfinished",
                               "stamp: 200000 hand-outs before the old user's end"], failed(session)


def test_torch_values_times_and_memory_are_judged(session):
    def runs(ms, value, peak):
        return [{"ms": ms, "value": value, "device_peak": {"bytes": peak}}]
    part_torch4.judge(session, "good", {"own_cache": runs(10, "1.5", 100), "shimmed": runs(10.1, "1.5", 90)})
    assert not failed(session), failed(session)
    part_torch4.judge(session, "bad", {"own_cache": runs(10, "1.5", 100), "shimmed": runs(10.3, "1.6", 101)})
    assert len(failed(session)) == 2, failed(session)
    assert part_torch4.parse_peak("PEAK 4096 SAMPLES 3000 SECONDS 2.0\n") == {"bytes": 4096, "samples_a_second": 1500}
    line = "RESULT prefetch 3.21 ms/iter device 700 MiB torch_peak_live 0 torch_peak_reserved 0 value 4.5/6.7"
    assert part_torch4.parse([line], "prefetch") == (3.21, "4.5/6.7")


def test_each_mutant_has_its_place_in_the_sources(session):
    for name, (file, old, new) in part_mutants.MUTANTS.items():
        text = (HERE.parent.parent / file).read_text(encoding="utf-8")
        assert text.count(old) == 1 and old != new, name
    del session


def test_a_call_in_a_capture_may_be_served_where_that_is_listed(session):
    judged = part_capture.is_as_it_should
    assert judged("global malloc other", [0, 1, 0, 1], [0, 1, 0, 1])
    assert judged("global malloc other", [900, 2, 901, -1], [0, 1, 0, 1])
    assert not judged("global memset other", [900, 2, 901, -1], [0, 1, 0, 1])
    assert not judged("global malloc other", [0, 1, 0, 1], [900, 2, 901, -1])
    del session


@contextlib.contextmanager
def environment(more):
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_a_program_that_does_not_build_is_a_failed_check(session):
    bad = programs.driver_program("bad", "tests/gpu/does_not_exist.c")
    session.root = session.work
    (session.work / "tests/gpu").mkdir(parents=True)
    with contextlib.redirect_stdout(io.StringIO()):
        programs.build(session, [])
    session.checks.clear()
    try:
        programs.build_one(session, bad)
    except OSError as error:
        raise AssertionError(f"a missing source ended the build: {error}") from error
    assert failed(session) == ["build: bad"], failed(session)


def test_the_lines_of_the_pair_program_are_read(_):
    pairs, objects = part_launch.parse_pairs(
        ["TIME_IN cuLaunchKernel linked libpoolshim.so own libcuda.so.1", "PAIR cuLaunchKernel 3.50 2.00 2.10",
         "PAIR cuLaunchKernel x 2 3"])
    assert pairs == {"cuLaunchKernel": [(3.5, 2.0, 2.1)]}, pairs
    assert objects == {"cuLaunchKernel": ("libpoolshim.so", "libcuda.so.1")}, objects


def test_a_slow_body_is_found_and_a_fast_one_passes(session):
    slow = [(2050.0 + i % 7, 2000.0 + i % 7, 2000.0 + i % 7) for i in range(200)]
    fast = [(2003.0 + i % 7, 2000.0 + i % 7, 2000.0 + i % 7) for i in range(200)]
    part_launch.judge_pair(session, "shimmed", "slow", [slow], ("libpoolshim.so", "libcuda.so.1"))
    part_launch.judge_pair(session, "shimmed", "fast", [fast], ("libpoolshim.so", "libcuda.so.1"))
    part_launch.judge_pair(session, "shimmed", "unhooked", [fast], ("libcuda.so.1", "libcuda.so.1"))
    assert failed(session) == ["launch: slow within a process, at most 5 ns or the noise",
                               "launch: unhooked is the shim's"], failed(session)


def test_callers_must_be_named_and_never_the_driver(session):
    caller = {"object": "libcublas.so.13", "used_bytes": 1, "peak_bytes": 2, "count": 3}
    wrong = {**caller, "object": "libcuda.so.1"}
    part_account.check_callers(session, "good", {"devices": [{"callers": [caller], "used_bytes": 1}]}, [["libcublas"]])
    assert not failed(session), failed(session)
    part_account.check_callers(session, "bad", {"devices": [{"callers": [wrong], "used_bytes": 1}]}, [["libcublas"]])
    part_account.check_callers(session, "none", None, [["libcublas"]])
    assert len(failed(session)) == 4, failed(session)
    part_account.check_callers(session, "sum", {"devices": [{"callers": [caller], "used_bytes": 3}]}, [["libcublas"]])
    assert failed(session)[4:] == ["sum: the callers' bytes add up"], failed(session)
    assert session.records["callers"]["good"] == [caller], "what was named is recorded"


def test_every_cell_of_a_route_is_a_check_and_is_recorded(session):
    cells = {kind: {"result": "pass", "why": []} for kind in part_routes.KINDS}
    cells["managed"] = {"result": "unproved", "why": "never refused"}
    part_routes.judge(session, "good", cells, "")
    assert not failed(session) and len(session.checks) == 8, failed(session)
    cells["vmm"] = {"result": "fail", "why": ["not seen", "x"]}
    part_routes.judge(session, "bad", cells, "")
    assert failed(session) == ["route bad vmm"], failed(session)
    part_routes.judge(session, "none", {}, "no result")
    assert len(failed(session)) == 9, "a route without a result fails in every cell"
    assert session.records["routes"]["bad"]["vmm"] == "fail", session.records


def make_tool(session, name, script):
    folder = pathlib.Path(session.cuda_home, "bin")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!{SHELL}\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)
    program = session.programs / "gpu_overrun_static"
    program.write_text(f"#!{SHELL}\n", encoding="utf-8")
    program.chmod(0o755)


DUMP = 'echo "{\\"devices\\": [{\\"mode\\": \\"%s\\"}]}" >"${POOLSHIM_DUMP-/dev/null}"; '


def test_a_tool_that_fails_natively_is_recorded_and_judges_nothing(session):
    make_tool(session, "compute-sanitizer", "echo no such device >&2; exit 3")
    part_beside.sanitizer(session, "in")
    assert not session.checks, session.checks
    assert "no such device" in session.records["tools"]["compute_sanitizer_in"], session.records


def test_a_shim_that_does_not_step_down_under_a_tool_fails(session):
    make_tool(session, "compute-sanitizer", DUMP % "pool" + "echo 'ERROR SUMMARY: 0 errors'")
    part_beside.sanitizer(session, "in")
    assert failed(session) == ["compute_sanitizer_in: the shim stepped down to account"], failed(session)


def test_an_overrun_that_the_shim_hides_fails(session):
    make_tool(session, "compute-sanitizer",
              DUMP % "account" + '[ "$LD_PRELOAD" ] || echo "Invalid __global__ write of size 1 bytes"; '
              "echo 'ERROR SUMMARY: 1 error'")
    part_beside.sanitizer(session, "over")
    assert failed(session) == ["compute_sanitizer_over: the same findings",
                               "compute_sanitizer_over: the overrun is found"], failed(session)


def test_counts_of_memory_past_the_pool_are_judged_against_the_driver(session):
    figures_, statuses = part_external.parse(["external: vmm: got 0, ended 0",
                                              "TIME vmm asked 100 taken 2097152 counted 100 left 0", "TIME x 3"])
    assert statuses == {"vmm": (0, 0)} and figures_["vmm"]["taken"] == 2097152, figures_
    part_external.judge(session, "vmm", figures_["vmm"], figures_["vmm"])
    assert not failed(session), failed(session)
    part_external.judge(session, "vmm", figures_["vmm"], {"asked": 100, "taken": 1 << 30, "counted": 99, "left": 5})
    assert len(failed(session)) == 4, failed(session)


def test_a_launch_that_was_not_announced_is_found(session):
    for submissions, n_failed in ((60, 0), (59, 1)):
        dump = {"streams": [{"kind": "created", "submissions": submissions, "synchronisations": 6}]}
        part_launch.check_counted(session, "launch: 60 launches, 6 synchronises", dump)
        assert len(failed(session)) == n_failed, failed(session)


def test_processes_take_turns_until_one_ends(session):
    script = 'n=0; while read x; do n=$((n+1)); [ $n -le "$1" ] || exit 1; echo "TURN $n.5 2.25"; done'
    children = {arm: session.popen([SHELL, "-c", script, "x", limit], False, stdin=subprocess.PIPE)
                for arm, limit in zip(part_launch.ARMS, ("9", "9", "4"))}
    rows = part_launch.take_turns(session, children, 9)
    assert len(rows) == 4 and rows[3]["shimmed"] == (4.5, 2.25), rows
    for child in children.values():
        session.end("turns", child)


def test_sets_of_processes_are_judged_by_the_noise_between_them(session):
    quiet = [[{"native": (100.0, 50.0), "shimmed": (103.0, 53.0), "native_again": (101.0, 51.0)}] * 8] * 3
    part_launch.judge_sets(session, quiet)
    assert not failed(session), failed(session)
    slow = [[{"native": (100.0, 50.0), "shimmed": (120.0, 53.0), "native_again": (110.0, 51.0)}] * 8] * 3
    part_launch.judge_sets(session, slow)
    assert failed(session) == ["launch: runtime_ns between processes, at most 5 ns or the noise"], failed(session)


def test_unknown_functions_are_judged_and_private_tables_recorded(session):
    known = {"coverage": {"routes": {"dlsym": 1}, "unknown": []}}
    table = {"coverage": {"routes": {"dlsym": 1}, "unknown": ["export table 2c8e"]}}
    session.dumps.update(a=known, torch_profiler=table)
    part_coverage.run(session)
    assert not failed(session), failed(session)
    assert session.records["coverage"]["torch_profiler"]["unknown"] == ["export table 2c8e"]
    session.dumps["b"] = {"coverage": {"routes": {"dlsym": 1}, "unknown": ["cuNew"]}}
    part_coverage.run(session)
    assert len(failed(session)) == 1 and "cuNew" in session.checks[-2]["detail"], session.checks


def make_block():
    """A control block made byte by byte: one section of two items with a number, three numbers and a text."""
    head, section, field = control_block.HEADER.size + 40, control_block.SECTION.size, control_block.FIELD.size
    at, n_fields, item = head + section, 3, 8 + 24 + 16
    items_at = at + n_fields * field
    n_bytes = items_at + 2 * item
    data = bytearray(n_bytes)
    control_block.HEADER.pack_into(data, 0, b"poolshim", 1, head, n_bytes, 42, 0, 7, 0, 0, 0, 1, 1, head, section,
                                   n_fields, at, field, 0)
    control_block.SECTION.pack_into(data, head, b"devices", items_at, item, 2, 0, n_fields)
    for i, row in enumerate([(b"used_bytes", 0, 1, 1, 8), (b"sizes.count", 8, 1, 3, 8), (b"name", 32, 2, 16, 1)]):
        control_block.FIELD.pack_into(data, at + i * field, *row)
    for i in range(2):
        struct.pack_into("<QQQQ16s", data, items_at + i * item, 100 + i, 1, 2, 3, b"card\0rest")
    return bytes(data)


def test_a_control_block_is_read_by_the_names_of_its_fields(session):
    path = session.work / "42-7"
    path.write_bytes(make_block())
    found = control_block.read(path)
    assert found["pid"] == 42, found
    assert found["devices"][1] == {"used_bytes": 101, "sizes.count": [1, 2, 3], "name": "card"}, found


def test_a_damaged_control_block_is_refused(session):
    good = make_block()
    for damaged in (b"", good[:50], good[:-1], b"X" + good[1:]):
        (session.work / "bad").write_bytes(damaged)
        try:
            control_block.read(session.work / "bad")
        except ValueError:
            continue
        raise AssertionError(f"{len(damaged)} bytes were accepted")


def test_a_trace_is_counted_by_what_submits(_):
    events = [("kernel", "k", "X"), ("kernel", "k", "X"), ("gpu_memcpy", "HtoD", "X"), ("gpu_memset", "fill", "X"),
              ("cuda_runtime", "cudaEventRecord", "X"), ("cuda_runtime", "cudaLaunchKernel", "X"),
              ("gpu_user_annotation", "step", "X"), ("kernel", "flow", "s"), (None, "process_name", "M")]
    trace = {"traceEvents": [{"cat": cat, "name": name, "ph": ph} for cat, name, ph in events]}
    found = table_workloads.count_trace(trace)
    assert found == {"activities": {"kernel": 2, "gpu_memcpy": 1, "gpu_memset": 1},
                     "others": {"cudaEventRecord": 1}}, found


def test_an_activity_that_came_past_the_hooks_is_found(session):
    count = {"name": "lstm", "submissions": 12, "activities": {"kernel": 9, "gpu_memset": 1},
             "others": {"cudaEventRecord": 2}}
    part_tables.check_counts(session, "cudnn", [count])
    assert not failed(session), failed(session)
    part_tables.check_counts(session, "cudnn", [{**count, "submissions": 11}])
    assert failed(session) == ["tables_cudnn_lstm: no activity came past the hooks"], failed(session)
    assert session.records["tables"]["tables_cudnn_lstm"]["unseen"] == 1, session.records
    session.checks.clear()
    part_tables.check_counts(session, "cudnn", [{**count, "submissions": 0, "activities": {}, "others": {}}])
    assert failed(session), "nothing was seen, and it passed"


def test_tables_are_told_apart_from_functions(_):
    dump = {"coverage": {"unknown": ["cuFoo", "export table 6e163fbe"]}}
    assert part_tables.tables_of(dump) == ["6e163fbe"] and part_tables.tables_of(None) == []


def test_times_are_read_from_what_programs_print(_):
    assert part_times.parse_thrust(["thrust n=10 1.5 us/iter sum 7", "x"]) == [("10", 1.5, "7")]
    line = "RESULT fixed 17.90 ms/iter device 4000 MiB torch_peak_live 1 torch_peak_reserved 2 value 0.990700"
    assert part_times.parse_torch([line]) == (17.9, 4000, "0.990700")
    assert part_times.parse_torch(["RESULT other"]) is None


def test_every_part_has_its_programs_and_sources(_):
    for name in measure.PARTS + measure.ON_REQUEST:
        part = measure.part(name)
        assert callable(part.run), name
        for program in part.PROGRAMS:
            for source in program.sources:
                assert (HERE.parent.parent / source).is_file(), f"{name}: {source} is missing"


def test_parts_are_chosen_by_name(_):
    assert measure.chosen("launch,life") == ["launch", "life"]
    assert measure.chosen(None) == list(measure.PARTS)
    assert measure.chosen("tables") == ["tables"], "what is run on request is not to be had"
    try:
        measure.chosen("launch,lunch")
    except SystemExit as error:
        assert "lunch" in str(error.code), error
    else:
        raise AssertionError("a part that does not exist was accepted")


def main():
    tests = [(name, function) for name, function in globals().items() if name.startswith("test_")]
    print(f"1..{len(tests)}")
    n_failed = 0
    for number, (name, function) in enumerate(tests, 1):
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            try:
                with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                    function(make_session(folder))
                is_ok = True
            except Exception:  # pylint: disable=broad-except
                said.write(traceback.format_exc())
                is_ok = False
        n_failed += not is_ok
        print(f"{'ok' if is_ok else 'not ok'} {number} - {name[5:].replace('_', ' ')}")
        if not is_ok:
            print("".join(f"# {line}\n" for line in said.getvalue().splitlines()), end="")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
