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

    def __init__(self, command, *ways, umask=-1, **env):
        self.process = subprocess.Popen([command, *ways], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.PIPE, umask=umask, env={**os.environ, **env})
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


def run_quietly(program, what, level="info", user=None, **env):
    """A run without a block: it ends as it should, and says why there is none if it was asked to."""
    process = subprocess.Popen([program, "exit"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, "POOLSHIM_LOG": level, **env}, user=user, group=user,
                               extra_groups=None if user is None else [])
    try:
        said, errors = process.communicate("go\n", timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        said, errors = process.communicate()
    expect(process.returncode == 7, f"{what}: ended with {process.returncode}: {errors}")
    expect(said.startswith("ready "), f"{what}: the program said {said!r}")
    n_lines = sum("no control block" in line for line in errors.splitlines())
    expect(n_lines == (level == "info"), f"{what}: {n_lines} lines on stderr: {errors!r}")


def check_small_limit(program):
    """posix_fallocate beyond RLIMIT_FSIZE would send SIGXFSZ, which ends the program."""
    run_quietly(program, "a limit on the size of files", VICTIM_FILE_BYTES="4096")
    run_quietly(program, "the same, unasked", "warn", VICTIM_FILE_BYTES="4096")


def check_umask(tool, program):
    victim = Victim(program, "exit", umask=0o277)
    (block,) = victim.blocks() or [None]
    expect(block is not None and block.stat().st_mode & 0o777 == 0o600, "the program's umask decides the block's mode")
    expect(victim.end() == 7, "the victim did not end as it should")


def check_folders(program):
    """As another user, whose folder is what somebody else has prepared."""
    uid = 60000 + os.getpid() % 5000
    folder, elsewhere = pathlib.Path(f"/dev/shm/poolshim-{uid}"), pathlib.Path(f"/dev/shm/elsewhere-{uid}")
    elsewhere.mkdir(0o700)
    os.chown(elsewhere, uid, uid)

    def prepare(what, make):
        make()
        run_quietly(program, what, user=uid)
        expect(not any(elsewhere.iterdir()), f"{what}: a block was written elsewhere")

    def own(mode, owner):
        folder.mkdir()
        folder.chmod(mode)
        os.chown(folder, owner, owner)

    try:
        prepare("a link to a folder of the user's own", lambda: folder.symlink_to(elsewhere))
        folder.unlink()
        prepare("a folder of somebody else", lambda: own(0o777, 0))
        folder.rmdir()
        prepare("a folder that others may write to", lambda: own(0o770, uid))
        folder.rmdir()
        prepare("a file in the folder's place", lambda: folder.write_bytes(b""))
        folder.unlink()
        prepare("a folder without permission", lambda: own(0o500, uid))
        folder.rmdir()
    finally:
        elsewhere.rmdir()


def check_mounts(program):
    """Shared memory that is full, or cannot be written: in a mount namespace, where one can be had."""
    for what, option in (("a full file system", "size=4k,nr_inodes=100"), ("a read-only file system", "ro")):
        script = f'mount -t tmpfs -o {option} none /dev/shm && exec "$@"'
        if subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", "true"], check=False,
                          stderr=subprocess.DEVNULL).returncode != 0:
            print(f"{what}: left out, no mount namespace")
            continue
        process = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", program, "exit"], input="go\n",
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=60,
                                 env={**os.environ, "POOLSHIM_LOG": "info"})
        expect(process.returncode == 7 and "no control block" in process.stderr,
               f"{what}: ended with {process.returncode}: {process.stderr}")


def check_many(tool, program):
    """As many processes as a machine may have ranks: each has its block, and a start stays short."""
    victims = [Victim(program, "exit") for _ in range(12)]
    listed = json.loads(tool.run("list", "--json").stdout)["processes"]
    pids = {process["pid"] for process in listed if process["state"] == "alive"}
    expect({victim.pid for victim in victims} <= pids, "list misses processes")
    for victim in victims:
        expect(victim.end() == 7 and not victim.blocks(), "a block was left behind")


def main():
    tool, program = Tool(sys.argv[1]), sys.argv[2]
    check_alive(tool, program)
    check_ends(tool, program)
    check_children(tool, program)
    check_exec(tool, program)
    check_small_limit(program)
    check_umask(tool, program)
    check_many(tool, program)
    if os.geteuid() == 0:
        check_folders(program)
        check_mounts(program)
    else:
        print("folders of other users and full file systems: left out, not root")
    return 1 if FAULTS else 0


if __name__ == "__main__":
    sys.exit(main())
