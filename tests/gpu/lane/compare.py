# SPDX-License-Identifier: MIT
"""One program, native and shimmed: the same exit code and the same lines, but for those that start with TIME."""
import difflib
import itertools
import re

from lane.figures import summary


def comparable(lines):
    return [line for line in lines if not line.startswith("TIME ")]


def differences(native, shimmed):
    """The first lines that differ, each as the run that has it shows it."""
    return "; ".join(itertools.islice(difflib.unified_diff(native, shimmed, "native", "shimmed", "", "", 0, ""), 24))


def check_equal(session, name, native, shimmed):
    session.check(f"{name}: exit code", shimmed.code == native.code, f"native {native.code}, shimmed {shimmed.code}")
    left, right = comparable(native.lines), comparable(shimmed.lines)
    session.check(f"{name}: same output", left == right,
                  f"{len(left)} lines" if left == right else differences(left, right))


def compare(session, name, argv, extra=None, shim_extra=None, **how):
    """Returns both results. extra is the environment of both runs, shim_extra that of the shimmed one."""
    native = session.run(name, argv, False, extra, **how)
    shimmed = session.run(name, argv, True, {**(extra or {}), **(shim_extra or {})}, **how)
    check_equal(session, name, native, shimmed)
    return native, shimmed


def compare_right(session, name, argv, extra=None, shim_extra=None, **how):
    """The same for a program that judges itself: natively it ends with 0."""
    native, shimmed = compare(session, name, argv, extra, shim_extra, **how)
    session.check(f"{name}: native run is right", native.code == 0, native.errors.strip()[-200:])
    check_books(session, name, shimmed.dump)
    note_times(session, name, native, shimmed)
    return native, shimmed


def check_books(session, name, dump):
    for device in (dump or {}).get("devices", []):
        total = device["used_bytes"] + device["free_bytes"]
        session.check(f"{name}: used + free = total", total == device["total_bytes"],
                      f"{total} and {device['total_bytes']}")


def check_unmanaged(session, name, dump):
    """Managed memory of the program's makes every free wait; frameworks hold none, and what libraries hold is theirs."""
    for device in (dump or {}).get("devices", []):
        held = device["peak_external"]["managed"]
        askers = [row["object"] for row in device.get("callers", []) if row.get("external_count")]
        session.check(f"{name}: no managed memory", held == 0, f"{held} bytes at the most; asked past the pool: {askers}")


def note_times(session, name, native, shimmed):
    for kind, result in (("native", native), ("shimmed", shimmed)):
        for line in result.lines:
            match = re.match(r"TIME (\S+) ([0-9.]+)$", line)
            if match:
                with session.lock:
                    session.times.setdefault(name, {}).setdefault(match[1], {})[kind] = float(match[2])


def record_ratios(session, name, seen, unit):
    session.times[name] = {}
    for key, by_kind in seen.items():
        entry = {"unit": unit, **{kind: summary(values) for kind, values in by_kind.items()}}
        if "native" in by_kind and "shimmed" in by_kind:
            entry["ratio"] = round(entry["shimmed"]["median"] / entry["native"]["median"], 4)
        session.times[name][key] = entry
