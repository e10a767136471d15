# SPDX-License-Identifier: MIT
"""One run of the GPU lane: where things are, how a program is run, what was checked, and the files that tell it.

A run of a program is native or shimmed (the library preloaded). Each is bounded by a time limit and ends with its whole
process group. The results are written after every part, so that what was found stays when a later part hangs.
"""
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import traceback

RUN_LIMIT_S = 60
BULK = ("PAIR ", "TURN ")  # lines of measurements that come by thousands: not for the log


class Result:
    """What a run of a program left."""

    def __init__(self, code, output, errors, dump, seconds, pid):
        self.code, self.lines, self.errors = code, output.splitlines(), errors
        self.dump, self.seconds, self.pid = dump, seconds, pid

    @property
    def last(self):
        return self.lines[-1] if self.lines else ""


class Session:
    def __init__(self, out, programs, library, work, cuda_home, root, budget_s=1e9, n_rounds=3):
        self.out, self.programs, self.work = pathlib.Path(out), pathlib.Path(programs), pathlib.Path(work)
        self.library = str(pathlib.Path(library).resolve())
        self.cuda_home, self.root = str(cuda_home), pathlib.Path(root)
        self.start = time.monotonic()
        self.deadline = self.start + budget_s
        self.facts, self.checks, self.dumps, self.times, self.notes, self.records = {}, [], {}, {}, [], {}
        self.part_seconds = {}
        self.lock = threading.RLock()
        self.n_rounds, self.n_runs = n_rounds, 0
        self.log_file = open(self.out / "log.txt", "w", encoding="utf-8")

    # What was found

    def check(self, name, is_ok, detail=""):
        with self.lock:
            self.checks.append({"name": name, "ok": bool(is_ok), "detail": str(detail)})
            self.say(f"{'ok' if is_ok else 'NOT OK'} {name} {detail}".rstrip())
        return bool(is_ok)

    def note(self, text):
        with self.lock:
            self.notes.append(text)
            self.say(f"note: {text}")

    def record(self, what, key, value):
        """A finding that is no check: results.json has it under this name."""
        with self.lock:
            self.records.setdefault(what, {})[key] = value

    def say(self, line):
        with self.lock:
            print(line, flush=True)
            self.log(line)

    def log(self, text):
        with self.lock:
            self.log_file.write(text + "\n")
            self.log_file.flush()

    # Runs

    def program(self, name):
        return str(self.programs / name)

    def temporary(self, name):
        """A path in the work folder that no other run has."""
        with self.lock:
            self.n_runs += 1
            return self.work / f"{self.n_runs}-{name}"

    def environment(self, is_shimmed, extra=None, dump=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith("POOLSHIM_") and k != "LD_PRELOAD"}
        if is_shimmed:
            env["LD_PRELOAD"] = self.library
            env["POOLSHIM_DUMP"] = str(dump) if dump else "none"
        env.update(extra or {})
        return env

    def popen(self, argv, is_shimmed, extra=None, dump=None, **how):
        """A program to be watched while it runs; ended by end()."""
        how.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(argv, env=self.environment(is_shimmed, extra, dump),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                start_new_session=True, **how)

    def line_of(self, child, limit_s=40):
        """The next line that a running program prints, "" when it ends or takes too long, which ends it."""
        watchdog = threading.Timer(limit_s, kill_group, [child])
        watchdog.start()
        try:
            return child.stdout.readline()
        finally:
            watchdog.cancel()

    def end(self, name, child, limit_s=RUN_LIMIT_S):
        """Wait for the end, at most so long, then end the whole group. Returns (exit code or why, output, errors)."""
        why = None
        try:
            output, errors = child.communicate(timeout=max(1, min(limit_s, self.deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            why = "timeout"
            kill_group(child)
            try:
                output, errors = child.communicate(timeout=10)
            except (subprocess.TimeoutExpired, ValueError):
                output, errors = "", "the output was lost"
        code = why or child.returncode
        told = "\n".join(line for line in output.splitlines() if not line.startswith(BULK))
        self.log(f"--- {name}: exit {code}\n{told[-3000:]}{errors[-2000:]}")
        return code, output, errors

    def run(self, name, argv, is_shimmed, extra=None, limit_s=RUN_LIMIT_S, wants_dump=True):
        """Run to the end. The dump of a shimmed run is kept under the name, if one is wanted."""
        dump = self.temporary("dump.json") if is_shimmed and wants_dump else None
        start = time.monotonic()
        kind = "shimmed" if is_shimmed else "native"
        try:
            child = self.popen([str(word) for word in argv], is_shimmed, extra, dump)
        except OSError as error:
            return Result(f"not started: {error}", "", "", None, 0.0, 0)
        code, output, errors = self.end(f"{name} {kind}", child, limit_s)
        seconds = time.monotonic() - start
        found = self.read_dump(name, dump) if dump else None
        return Result(code, output, errors, found, seconds, child.pid)

    def read_dump(self, name, path, is_checked=True):
        try:
            found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            if is_checked:
                self.check(f"{name}: the dump can be read", False, str(error))
            return None
        with self.lock:
            self.dumps[name] = found
        return found

    def each(self, jobs, n_at_once=4):
        """Call these at the same time, for what is not timed. A job that raises is a failed check."""
        with concurrent.futures.ThreadPoolExecutor(n_at_once) as pool:
            for future in [pool.submit(self.guarded, *job) for job in jobs]:
                future.result()

    def guarded(self, name, function, *args):
        """Nothing that goes wrong in one part of the lane may end the others."""
        if time.monotonic() > self.deadline:
            self.check(f"{name}: run", False, "the time was up")
            return
        try:
            function(self, *args)
        except Exception as error:  # pylint: disable=broad-except
            self.log(traceback.format_exc())
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.check(f"{name}: run to its end", False, f"{type(error).__name__}: {error} ({where.name})")

    # Results

    def n_failed(self):
        return sum(not c["ok"] for c in self.checks)

    def write(self):
        with self.lock:
            result = {"schema": "poolshim-gpu-results-1", **self.facts,
                      "n_passed": len(self.checks) - self.n_failed(), "n_failed": self.n_failed(),
                      "seconds": round(time.monotonic() - self.start, 1), "part_seconds": self.part_seconds,
                      "times": self.times, **self.records, "checks": self.checks, "notes": self.notes}
            replace(self.out / "results.json", result)
            replace(self.out / "dumps.json", self.dumps)


def replace(path, value):
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def kill_group(child):
    """End what a program left running; its group is its own, so nothing else is hit."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
