#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The control block of a process under the shim, and what `poolshim list` and `stats` make of it.

usage: control.py POOLSHIM VICTIM    (run by run_victim.py: the shim is preloaded already)

POOLSHIM is the command, VICTIM the program victim_control.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys

FAULTS = []
FOLDER = pathlib.Path(f"/dev/shm/poolshim-{os.geteuid()}")
HELD = {"requested_bytes": 1000 + 3000000, "alloc_count": 3, "free_count": 1, "n_used_blocks": 2}


def expect(is_ok, what):
    if not is_ok:
        FAULTS.append(what)
        print(f"not right: {what}", file=sys.stderr)


class Victim:
    """A running victim_control, stopped before each of its ways."""

    def __init__(self, command, *ways, **env):
        self.process = subprocess.Popen([command, *ways], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.PIPE, env={**os.environ, **env})
        self.wait_ready()
        self.pid = self.process.pid

    def wait_ready(self):
        line = self.process.stdout.readline()
        expect(line.startswith("ready "), f"the victim said {line!r}")

    def go_on(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self):
        """The exit status, negative for a signal."""
        try:
            self.process.communicate("go\n", timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            expect(False, "the victim did not end")
        return self.process.returncode

    def blocks(self):
        return list(FOLDER.glob(f"{self.pid}-*")) if FOLDER.exists() else []


class Tool:
    def __init__(self, command):
        self.command = command
        # The command is no part of what is tested here: without the shim.
        self.env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}

    def run(self, *words):
        return subprocess.run([self.command, *words], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False, timeout=60)

    def stats(self, pid):
        """The statistics; None when the command says that there are none."""
        done = self.run("stats", "--json", str(pid))
        expect(done.returncode in (0, 1), f"stats ended with {done.returncode}: {done.stderr}")
        if done.returncode == 1:
            expect(len(done.stderr.splitlines()) == 1, f"stats said {done.stderr!r}")
            return None
        return json.loads(done.stdout)

    def listed(self, pid):
        done = self.run("list", "--json")
        expect(done.returncode == 0, f"list ended with {done.returncode}: {done.stderr}")
        found = [p for p in json.loads(done.stdout)["processes"] if p["pid"] == pid]
        return found[0] if found else None


def check_held(stats, state, what):
    expect(stats is not None, f"{what}: no statistics")
    if stats is None:
        return
    expect(stats["state"] == state, f"{what}: state {stats['state']}")
    device = stats["devices"][0]
    for name, value in HELD.items():
        expect(device[name] == value, f"{what}: {name} is {device[name]}, not {value}")
    expect(device["used_bytes"] + device["free_bytes"] == device["total_bytes"], f"{what}: used + free is not total")
    expect(stats["host"]["requested_bytes"] == 5000, f"{what}: pinned {stats['host']['requested_bytes']}")
    expect(device["external"]["managed"] == device["external_bytes"] == device["peak_external"]["managed"] == 70000,
           f"{what}: outside the pool {device['external']}")
    expect("context" not in device["external"], f"{what}: a context that nobody measured is told")
    expect(sum(size["count"] for size in device["sizes"]) == 3, f"{what}: the histogram {device['sizes']}")
    expect(device["name"] == "Software device 0" and device["uuid"].startswith("GPU-"), f"{what}: identity {device}")
    expect(sum(stats["coverage"]["routes"].values()) > 0, f"{what}: no route was counted")


def check_alive(tool, program):
    victim = Victim(program, "allocate", "exit", POOLSHIM_LIMIT="512MiB")
    (block,) = victim.blocks() or [None]
    expect(block is not None and block.stat().st_mode & 0o777 == 0o600, "the block's mode is not 0600")
    expect(FOLDER.stat().st_mode & 0o777 == 0o700, "the folder's mode is not 0700")
    stats = tool.stats(victim.pid)
    check_held(stats, "alive", "a running process")
    expect(stats["devices"][0]["limit_bytes"] == 512 << 20, "the limit is not shown")
    expect(stats["config"]["POOLSHIM_LIMIT"] == "512MiB", "the options are not shown")
    expect(stats["exe"].endswith("/victim_control") and stats["mode"] == "pool", "the process is not described")
    entry = tool.listed(victim.pid)
    expect(entry is not None and entry["state"] == "alive" and entry["program"] == "victim_control", f"list: {entry}")
    text = tool.run("list").stdout
    expect(any(line.split()[0] == str(victim.pid) for line in text.splitlines()), "list as text misses the process")
    text = tool.run("stats", str(victim.pid)).stdout
    expect(f"pid {victim.pid}" in text and "GPU 0" in text and "pinned host memory" in text, f"stats as text: {text}")
    expect("outside the pool" in text and "managed" in text, f"stats as text misses what is outside the pool: {text}")
    victim.go_on()
    victim.wait_ready()
    expect(tool.stats(victim.pid)["devices"][0]["alloc_count"] == 6, "the figures are not live")
    expect(victim.end() == 7, "the victim did not end as it should")
    expect(tool.stats(victim.pid) is None and not victim.blocks(), "a block was left behind by exit()")
    expect(tool.listed(victim.pid) is None, "a process that ended in order is listed")


def check_ends(tool, program):
    for way, status in (("kill", -signal.SIGKILL), ("_exit", 7), ("quick_exit", 7), ("abort", -signal.SIGABRT)):
        victim = Victim(program, way)
        expect(victim.end() == status, f"{way}: ended with {victim.process.returncode}")
        check_held(tool.stats(victim.pid), "ended", way)
        entry = tool.listed(victim.pid)
        expect(entry is not None and entry["state"] == "ended", f"{way}: list says {entry}")
        expect(tool.stats(victim.pid).get("ended_seen") is not None, f"{way}: nobody wrote down that it ended")
        for block in victim.blocks():
            block.unlink()


def check_children(tool, program):
    """A child, however it was made, writes nothing into its parent's block and does not remove it."""
    for way in ("fork", "clone"):
        victim = Victim(program, way, "exit")
        victim.go_on()
        victim.wait_ready()
        check_held(tool.stats(victim.pid), "alive", f"after {way}")
        expect(victim.end() == 7, f"{way}: ended with {victim.process.returncode}")


def check_exec(tool, program):
    """The process has become another program: what the old one left is its last state, not a running one's."""
    victim = Victim(program, "exec")
    victim.go_on()
    victim.process.stdin.write("now cat\n")
    victim.process.stdin.flush()
    expect(victim.process.stdout.readline() == "now cat\n", "exec did not work")
    check_held(tool.stats(victim.pid), "ended", "after exec")
    victim.end()
    for block in victim.blocks():
        block.unlink()
    victim = Victim(program, "exec-again")
    before = victim.blocks()[0].stat().st_ino
    victim.go_on()
    victim.wait_ready()
    check_held(tool.stats(victim.pid), "alive", "after exec of the same program")
    expect(victim.blocks()[0].stat().st_ino != before, "two programs wrote into one block")
    expect(victim.end() == 7 and not victim.blocks(), "the second program's block was left behind")


def main():
    tool, program = Tool(sys.argv[1]), sys.argv[2]
    check_alive(tool, program)
    check_ends(tool, program)
    check_children(tool, program)
    check_exec(tool, program)
    return 1 if FAULTS else 0


if __name__ == "__main__":
    sys.exit(main())
