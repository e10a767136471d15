#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run a program under the shim, and check the dumps it leaves against the committed sample and against themselves.

usage: check_dump.py --sample SAMPLE [--update] DEMO    (run by run_victim.py: the shim is preloaded already)

Fields may be added to the schema, never changed: each field of the sample must be there with a value of the same type.
--update writes the sample anew, for the commit that adds fields.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FAULTS = []


def expect(is_ok, what):
    if not is_ok:
        FAULTS.append(what)
        print(f"not right: {what}", file=sys.stderr)


def run(demo, **settings):
    """Run the demo with these POOLSHIM_ variables; what it wrote on stderr."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("POOLSHIM_")}
    env.update({f"POOLSHIM_{k}": v for k, v in settings.items()})
    done = subprocess.run([demo], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          check=False, timeout=60)
    expect(done.returncode == 0, f"the demo ended with {done.returncode}: {done.stderr}")
    return done.stderr


def load(folder, pattern):
    paths = list(pathlib.Path(folder).glob(pattern))
    expect(len(paths) == 1, f"{len(paths)} files match {pattern}")
    return json.loads(paths[0].read_text(encoding="utf-8")) if paths else {}


def compare_shape(sample, found, where):
    """Every field of the sample is there, of the same type (whole numbers may stand for fractions)."""
    if isinstance(sample, dict):
        expect(isinstance(found, dict), f"{where} is no object")
        for name in sample if isinstance(found, dict) else ():
            expect(name in found, f"{where}.{name} is missing")
            if name in found:
                compare_shape(sample[name], found[name], f"{where}.{name}")
    elif isinstance(sample, list):
        expect(isinstance(found, list), f"{where} is no list")
        for item in found if sample and isinstance(found, list) else ():
            compare_shape(sample[0], item, f"{where}[]")
    else:
        kinds = {bool: bool, int: int, float: (int, float), str: str}
        expect(isinstance(found, kinds[type(sample)]), f"{where} is {type(found).__name__}, not {type(sample).__name__}")


def check_memory(memory, where):
    expect(memory["used_bytes"] + memory["free_bytes"] == memory["total_bytes"], f"{where}: used + free is not total")
    expect(memory["requested_bytes"] <= memory["used_bytes"], f"{where}: more asked than used")
    expect(memory["alloc_count"] - memory["free_count"] == memory["n_used_blocks"], f"{where}: blocks do not add up")
    expect(memory["hit_count"] + memory["miss_count"] - memory["oom_count"] == memory["alloc_count"],
           f"{where}: hits and misses are not the requests")
    expect(memory["driver_alloc_count"] - memory["driver_free_count"] == memory["n_segments"],
           f"{where}: segments do not add up")
    expect(sum(size["count"] for size in memory["sizes"]) == memory["alloc_count"], f"{where}: the histogram leaks")
    for figure, whole in (("used_bytes", "used_bytes"), ("count", "alloc_count"),
                          ("external_bytes", "external_bytes")):
        expect(sum(caller[figure] for caller in memory["callers"]) == memory[whole],
               f"{where}: the callers' {figure} do not add up to {whole}")
    peaks = [caller["peak_bytes"] + caller["peak_external_bytes"] for caller in memory["callers"]]
    expect(peaks == sorted(peaks, reverse=True), f"{where}: the callers are not in the order of their peaks")
    expect([caller["object"] for caller in memory["callers"]] == ["demo"], f"{where}: somebody else asked")
    for gauge in ("used_bytes", "requested_bytes", "total_bytes", "n_used_blocks", "n_segments", "pending_bytes"):
        expect(memory[gauge] <= memory["peak_" + gauge], f"{where}: {gauge} is above its peak")
    fragmentation = memory["fragmentation"]
    expect(0 <= fragmentation["entropy"] <= 1, f"{where}: entropy {fragmentation['entropy']}")
    expect(fragmentation["level"] in ("low", "medium", "high"), f"{where}: level {fragmentation['level']}")


def check_external(place, where):
    """The sum is that of the kinds that lie there: what is registered lies on the host."""
    kinds = {kind: n for kind, n in place["external"].items() if kind != "registered" or where == "host"}
    expect(sum(kinds.values()) == place["external_bytes"], f"{where}: external_bytes is not the sum of {kinds}")
    for kind, n in place["external"].items():
        expect(n <= place["peak_external"][kind], f"{where}: {kind} is above its peak")


def check_json(demo, sample_path, is_update):
    with tempfile.TemporaryDirectory() as folder:
        run(demo, DUMP=f"{folder}/100%%-%e-%p.json", LIMIT="50%")
        dump = load(folder, "100%-*-*.json")
    if is_update:
        dump["exe"], dump["host"]["name"] = "/opt/app/demo", "node1"
        dump["config"]["POOLSHIM_DUMP"] = "stats-%p.json"
        for caller in dump["devices"][0]["callers"] + dump["host"]["callers"]:
            caller["path"] = dump["exe"]
        sample_path.write_text(json.dumps(dump, indent=2) + "\n", encoding="utf-8")
    compare_shape(json.loads(sample_path.read_text(encoding="utf-8")), dump, "dump")
    expect(dump["schema"] == "poolshim-stats-1", "the schema's name changed")
    expect(dump["reason"] == "exit", f"reason {dump['reason']}")
    expect(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", dump["time"]) is not None, f"time {dump['time']}")
    expect(dump["config"]["POOLSHIM_LIMIT"] == "50%", "config does not show the limit")
    device = dump["devices"][0]
    expect(device["limit_bytes"] * 2 == device["device_total_bytes"], "the limit is not half of the device")
    check_memory(device, "device")
    check_memory(dump["host"], "host")
    check_external(device, "device")
    check_external(dump["host"], "host")


def check_forms(demo):
    text = run(demo)
    lines = text.splitlines()
    expect(len(lines) <= 25 and lines and lines[0].startswith("poolshim "), "the text form is not on stderr")
    expect(all(len(line) <= 100 for line in lines), "a line of the text form is wider than 100 columns")
    expect(run(demo, DUMP="none") == "", "DUMP=none wrote something")
    expect(run(demo, DUMP="stderr", FORMAT="json").startswith("{"), "FORMAT=json gave no JSON on stderr")
    with tempfile.TemporaryDirectory() as folder:
        run(demo, DUMP=f"{folder}/stats.json", FORMAT="text")
        written = pathlib.Path(folder, "stats.json").read_text(encoding="utf-8")
        expect(written.startswith("poolshim "), "FORMAT=text did not beat the suffix")
        expect(os.listdir(folder) == ["stats.json"], f"left behind: {os.listdir(folder)}")
        complaint = run(demo, DUMP=f"{folder}/no/such/folder.json")
        expect("no dump to" in complaint, "a path that cannot be written was not told")
        complaint = run(demo, DUMP="none", LIMIT="much", MOD="pool")
        expect("POOLSHIM_LIMIT" in complaint and "'much'" in complaint, "a bad value was not told")
        expect("POOLSHIM_MOD " in complaint and "POOLSHIM_MODE" in complaint, "a misspelt name was not told")
        check_fifo(demo, folder)


def check_fifo(demo, folder):
    """A FIFO is written to, not replaced."""
    fifo = pathlib.Path(folder, "fifo")
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    run(demo, DUMP=str(fifo))
    expect(os.read(reader, 1 << 16).startswith(b"poolshim "), "nothing came out of the FIFO")
    expect(fifo.is_fifo(), "the FIFO was replaced")
    os.close(reader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=pathlib.Path, required=True)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("demo")
    args = parser.parse_args()
    check_json(args.demo, args.sample, args.update)
    check_forms(args.demo)
    return 1 if FAULTS else 0


if __name__ == "__main__":
    sys.exit(main())
