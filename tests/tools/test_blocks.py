#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests poolshim list and stats on control blocks made by hand; prints TAP.

The files are made here from the description in pool/stats_abi.h, byte by byte, so a change of the fixed part
of the format fails. Good ones, those of another version, and hostile ones: no file may crash the command.

usage: test_blocks.py COMMAND
"""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

HEADER = struct.Struct("=8sIIQIIQQQQIIQIIQII40s")
SECTION = struct.Struct("=24sQIIII")
FIELD = struct.Struct("=40sIIII")
U64, TEXT = 1, 2
HEADER_NAMES = ("magic version header_bytes file_bytes pid uid start_ticks pid_namespace created_ns ended_seen_ns is_ready "
                "n_sections sections_offset section_bytes n_fields fields_offset field_bytes reserved boot_id").split()
PID = 4194305  # above the kernel's largest


class Block:
    """A control block with a few fields: to be changed before it is written."""

    def __init__(self, **header):
        self.header = {
            "magic": b"poolshim", "version": 1, "header_bytes": HEADER.size, "pid": PID, "uid": os.geteuid(),
            "start_ticks": 5, "pid_namespace": os.stat("/proc/self/ns/pid").st_ino, "created_ns": 10**18,
            "ended_seen_ns": 0, "is_ready": 1, "section_bytes": SECTION.size, "field_bytes": FIELD.size,
            "reserved": 0, "boot_id": pathlib.Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()}
        self.changes = header
        # section: items, item bytes, fields (name, offset, type, n, stride)
        self.sections = {
            "process": ([self.text("/opt/app/demo", 64)], 64, [("exe", 0, TEXT, 64, 1)]),
            "host": ([struct.pack("=Q", 4096)], 8, [("total_bytes", 0, U64, 1, 8)]),
            "devices": (
                [struct.pack("=QQQQQ", 1, i, 1000 * (i + 1), 3000 * (i + 1), 77) for i in range(2)], 40,
                [("is_known", 0, U64, 1, 8), ("index", 8, U64, 1, 8), ("used_bytes", 16, U64, 1, 8),
                 ("total_bytes", 24, U64, 1, 8), ("group.part.later_count", 32, U64, 1, 8)]),
        }

    @staticmethod
    def text(value, n_bytes):
        return value.encode().ljust(n_bytes, b"\0")

    def bytes(self):
        fields, sections, items = [], [], []
        sections_offset = self.changes.get("header_bytes", HEADER.size)
        n_fields = sum(len(s[2]) for s in self.sections.values())
        fields_offset = sections_offset + SECTION.size * len(self.sections)
        offset = fields_offset + FIELD.size * n_fields
        for name, (content, item_bytes, own) in self.sections.items():
            sections.append(SECTION.pack(name.encode(), offset, item_bytes, len(content), len(fields), len(own)))
            fields += [FIELD.pack(f[0].encode(), *f[1:]) for f in own]
            items += content
            offset += item_bytes * len(content)
        header = {**self.header, "file_bytes": offset, "n_sections": len(sections), "sections_offset": sections_offset,
                  "n_fields": n_fields, "fields_offset": fields_offset, **self.changes}
        head = HEADER.pack(*(header[name] for name in HEADER_NAMES))
        return head.ljust(sections_offset, b"\0") + b"".join(sections + fields + items)


class Suite:
    def __init__(self, command):
        self.command = command
        self.n_tests = self.n_failed = 0

    def check(self, is_ok, name, detail=""):
        self.n_tests += 1
        self.n_failed += not is_ok
        print(f"{'ok' if is_ok else 'not ok'} {self.n_tests} - {name}")
        if not is_ok:
            print("\n".join(f"# {line}" for line in str(detail).splitlines()))

    def run(self, *words):
        return subprocess.run([self.command, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              errors="replace", check=False, timeout=60)

    def stats(self, folder, *words):
        return self.run("stats", "--folder", folder, *words)

    def read(self, folder, content, pid=PID):
        """`stats --json` of a folder with this file."""
        (folder / f"{pid}-5").write_bytes(content)
        return self.stats(folder, "--json", pid)

    def is_refused(self, done):
        """Exit 1, one line, nothing on stdout: also no sanitizer's report."""
        return done.returncode == 1 and not done.stdout and len(done.stderr.splitlines()) == 1


def test_good(suite, folder):
    done = suite.read(folder, Block().bytes())
    suite.check(done.returncode == 0, "a block of the fixed format is read", done)
    stats = json.loads(done.stdout)
    suite.check(stats["state"] == "ended" and stats["pid"] == PID, "its process has ended", stats)
    suite.check([d["used_bytes"] for d in stats["devices"]] == [1000, 2000], "the figures are found", stats)
    suite.check(stats["devices"][1]["free_bytes"] == 4000, "free is total - used", stats)
    suite.check(stats["devices"][0]["group"] == {"part": {"later_count": 77}},
                "a field that this version does not know is shown, in its groups", stats)
    text = suite.stats(folder, PID).stdout
    suite.check("demo, pid 4194305, ended" in text and "GPU 1" in text, "the text form has them too", text)
    done = suite.run("list", "--folder", folder, "--json")
    entry = json.loads(done.stdout)["processes"][0]
    suite.check((entry["used_bytes"], entry["total_bytes"], entry["pinned_bytes"]) == (3000, 9000, 4096),
                "list adds the devices up", done)
    suite.check(len(suite.run("list", "--folder", folder).stdout.splitlines()) == 2, "list has a line for it")
    suite.check((folder / f"{PID}-5").exists(), "nothing is removed from another folder")


def test_versions(suite, folder):
    longer = Block(header_bytes=HEADER.size + 64, section_bytes=SECTION.size)
    suite.check(suite.read(folder, longer.bytes()).returncode == 0, "a longer header of a newer writer is read")
    suite.check(suite.is_refused(suite.read(folder, Block(version=2).bytes())), "another version is refused")
    older = Block()
    del older.sections["host"]
    older.sections["devices"][2].pop()
    done = suite.read(folder, older.bytes())
    suite.check(done.returncode == 0 and "group" not in json.loads(done.stdout)["devices"][0],
                "a block with fewer fields is read", done)
    suite.check(suite.stats(folder, PID).returncode == 0, "its text form too")
    done = suite.read(folder, Block(pid_namespace=1).bytes())
    suite.check(json.loads(done.stdout)["state"] == "elsewhere", "a pid of another namespace tells nothing", done)
    done = suite.read(folder, Block(pid_namespace=1, boot_id=b"another").bytes())
    suite.check(json.loads(done.stdout)["state"] == "ended", "a process of an earlier boot has ended", done)


def test_own_pid(suite, folder):
    """A pid that is taken by another process: the start time tells, and so does the mapping."""
    pid = os.getpid()
    ticks = int(pathlib.Path("/proc/self/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[19])
    for start, why in ((ticks + 1, "started at another time"), (ticks, "does not map the file")):
        done = suite.read(folder, Block(pid=pid, start_ticks=start).bytes(), pid)
        suite.check(json.loads(done.stdout)["state"] == "ended", f"the process with the pid {why}: ended", done)
    (folder / f"{pid}-5").unlink()


def hostile_blocks():
    good = Block().bytes()
    yield "empty", b""
    yield "truncated in the header", good[:HEADER.size - 1]
    yield "truncated in the tables", good[:HEADER.size + 10]
    yield "truncated in the items", good[:-1]
    yield "of another kind", b"\x7fELF" + good[4:]
    yield "of zeros", bytes(len(good))
    yield "unfinished", Block(is_ready=0).bytes()
    for name, value in (("n_sections", 2**32 - 1), ("n_fields", 2**32 - 1), ("sections_offset", 2**64 - 8),
                        ("fields_offset", 2**64 - 8), ("section_bytes", 8), ("field_bytes", 0), ("header_bytes", 8),
                        ("file_bytes", 2**40), ("sections_offset", 145), ("fields_offset", 2**63)):
        yield f"with {name} = {value}", Block(**{name: value}).bytes()
    for field, why in ((("x", 40, U64, 1, 8), "behind its item"), (("x", 0, U64, 2**32 - 1, 8), "with too many values"),
                       (("x", 2**32 - 4, U64, 1, 8), "at the end of the numbers"), (("x", 0, TEXT, 0, 1), "without bytes"),
                       (("x", 0, U64, 2, 2**32 - 1), "with a wide stride"), (("y" * 40, 0, U64, 1, 8), "without an end")):
        block = Block()
        block.sections["devices"][2][4] = field
        yield f"with a field {why}", block.bytes()
    block = bytearray(good)
    struct.pack_into("=I", block, HEADER.size + 24 + 8 + 4, 2**32 - 1)  # n_items of the first section
    yield "with more items than the file holds", bytes(block)


def test_hostile(suite, folder):
    for why, content in hostile_blocks():
        suite.check(suite.is_refused(suite.read(folder, content)), f"a block {why} is refused with one line")
    path = folder / f"{PID}-5"
    path.unlink()
    os.mkfifo(path)
    suite.check(suite.is_refused(suite.stats(folder, PID)), "a FIFO is not waited for")
    path.unlink()
    (folder / "target").write_bytes(Block().bytes())
    path.symlink_to("target")
    suite.check(suite.is_refused(suite.stats(folder, PID)), "a link is not followed")
    path.unlink()
    with path.open("wb") as sparse:
        sparse.truncate(1 << 40)
    suite.check(suite.is_refused(suite.stats(folder, PID)), "a huge file is not read")
    suite.check(suite.run("list", "--folder", folder).returncode == 0, "list leaves it out")
    block = Block()
    block.sections["process"] = ([Block.text("/x/a\x1b[31m\nb", 64)],) + block.sections["process"][1:]
    path.unlink()
    suite.read(folder, block.bytes())
    suite.check("\x1b" not in suite.stats(folder, PID).stdout + suite.run("list", "--folder", folder).stdout,
                "no control character of a name reaches the terminal")
    block.sections["process"] = ([b"\xff\xfe" * 32],) + block.sections["process"][1:]
    done = suite.read(folder, block.bytes())
    suite.check(done.returncode == 0 and json.loads(done.stdout)["exe"], "a text without an end or meaning is cut", done)


def test_random(suite, folder):
    """Bytes changed at random: any answer, but no crash and no report of a sanitizer."""
    seed = int(os.environ.get("VICTIM_SEED", "20261130"))
    dice = random.Random(seed)
    good, bad = Block().bytes(), []
    for _ in range(150):
        content = bytearray(good)
        for _ in range(dice.randint(1, 6)):
            content[dice.randrange(8, len(content))] = dice.choice((0, 1, 0x7f, 0x80, 0xff, dice.randrange(256)))
        done = suite.read(folder, bytes(content))
        if done.returncode not in (0, 1) or len(done.stderr.splitlines()) > 1:
            bad.append(done)
    suite.check(not bad, f"blocks changed at random (seed {seed}) crash nothing", bad[:1])


def test_words(suite, folder):
    empty = folder / "no-such-folder"
    done = suite.run("list", "--folder", empty)
    suite.check(done.returncode == 0 and done.stdout == "no process under the shim\n", "list says that there is none", done)
    done = suite.run("list", "--folder", empty, "--json")
    suite.check(done.returncode == 0 and json.loads(done.stdout) == {"processes": []}, "so does its JSON form", done)
    suite.check(suite.is_refused(suite.stats(empty, 1)), "stats of nothing: exit 1 and one line")
    (folder / "file").write_bytes(b"")
    suite.check(suite.is_refused(suite.run("list", "--folder", folder / "file")), "list of what is no folder: exit 1")
    for words in (["stats"], ["stats", "x"], ["stats", "0"], ["stats", "-1"], ["stats", "1", "2"], ["list", "1"],
                  ["list", "--no"], ["stats", "99999999999"]):
        done = suite.run(*words)
        suite.check(done.returncode == 2 and len(done.stderr.splitlines()) == 1, f"usage: {' '.join(words)}", done)
    for verb in ("list", "stats"):
        suite.check("--json" in suite.run(verb, "--help").stdout, f"{verb} --help names the options")


def main():
    suite = Suite(sys.argv[1])
    for test in (test_good, test_versions, test_own_pid, test_hostile, test_random, test_words):
        with tempfile.TemporaryDirectory() as folder:
            test(suite, pathlib.Path(folder))
    print(f"1..{suite.n_tests}")
    return 1 if suite.n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
