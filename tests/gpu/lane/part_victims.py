# SPDX-License-Identifier: MIT
"""Programs of tests/preload that need no software device, on the real driver and runtimes.

They judge themselves or are compared with their native run. One that already fails natively assumes something of the
software device: it is noted and not judged.
"""
from lane.compare import check_equal
from lane.programs import driver_program

SHARED = ("-lcudart", "-lcuda", "-ldl", "-lpthread")
STATIC = ("-lcudart_static", "-lcuda", "-ldl", "-lrt", "-lpthread")
RUNTIME_VICTIMS = ("exit", "info", "reset", "table_rt", "walk")

PROGRAMS = [driver_program(f"victim_{name}", f"tests/preload/victim_{name}.c") for name in ("fork", "ipc", "seen", "signal")]
for _name in RUNTIME_VICTIMS:
    for _kind, _libraries in (("shared", SHARED), ("static", STATIC)):
        PROGRAMS.append(driver_program(f"victim_{_name}_{_kind}", f"tests/preload/victim_{_name}.c",
                                       libraries=_libraries))

PROCESSES = ("plain", "shimmed", "account", "off")

# name: program, arguments ("{tmp}": a fresh folder), environment of the shimmed run, whether the outputs are compared
VICTIMS = {
    "fork": ("victim_fork", [], {"POOLSHIM_DUMP": "{tmp}/fork-%p.json"}, True),
    **{f"exit_{kind}": (f"victim_exit_{kind}", ["{tmp}"], {}, False) for kind in ("shared", "static")},
    **{f"reset_{kind}": (f"victim_reset_{kind}", [], {}, True) for kind in ("shared", "static")},
    **{f"table_rt_{kind}": (f"victim_table_rt_{kind}", [], {}, True) for kind in ("shared", "static")},
    **{f"signal_{way}": ("victim_signal", [way], {"POOLSHIM_DUMP": "{tmp}/signal.json"}, False)
       for way in ("default", "before", "after", "ignore", "storm")},
    "seen": ("victim_seen", [], {}, True),
    "seen_account": ("victim_seen", [], {"POOLSHIM_MODE": "account"}, True),
    **{f"info_{kind}": (f"victim_info_{kind}", [], {}, False) for kind in ("shared", "static")},
    "ipc_plain_plain": ("victim_ipc", ["plain", "plain"], {}, False),
}
# These mean something under the shim only.
SHIMMED_ONLY = {
    **{f"info_limit_{kind}": (f"victim_info_{kind}", ["8192"], {"POOLSHIM_LIMIT": "8GiB"}, False)
       for kind in ("shared", "static")},
    **{f"walk_{kind}": (f"victim_walk_{kind}", [], {}, False) for kind in ("shared", "static")},
    **{f"ipc_{exporter}_{importer}": ("victim_ipc", [exporter, importer], {}, False)
       for exporter in PROCESSES[:3] for importer in PROCESSES if (exporter, importer) != ("plain", "plain")},
}
SKIPPED = 77
RUN_LIMIT_S = 60


def resolved(words, folder):
    return [word.replace("{tmp}", str(folder)) for word in words]


def run_victim(session, name, row, is_shimmed):
    program, arguments, extra, _ = row
    folder = session.temporary(f"victim_{name}")
    folder.mkdir()
    extra = {key: value.replace("{tmp}", str(folder)) for key, value in extra.items()}
    return session.run(f"victim_{name}", [session.program(program), *resolved(arguments, folder)], is_shimmed,
                       extra if is_shimmed else None, limit_s=RUN_LIMIT_S, wants_dump=False)


def victim(session, name, row):
    native = run_victim(session, name, row, False) if name in VICTIMS else None
    if native and native.code not in (0, SKIPPED):
        session.record("victims", name, f"not judged: natively exit {native.code}, {native.errors.strip()[-300:]}")
        session.note(f"victim_{name} fails natively and is not judged: exit {native.code}, "
                     f"{native.errors.strip()[-200:]}")
        return
    shimmed = run_victim(session, name, row, True)
    session.record("victims", name, f"exit {shimmed.code}")
    session.check(f"victim_{name}: holds under the shim", shimmed.code == 0, shimmed.errors.strip()[-300:])
    if row[3]:
        check_equal(session, f"victim_{name}", native, shimmed)


def jobs_of(rows, is_alone):
    """Those that look at the device's free memory twice need it to themselves."""
    return [(f"victim_{name}", victim, name, row) for name, row in rows.items() if name.startswith("info") == is_alone]


def run(session):
    session.each(jobs_of(VICTIMS, False))
    is_ipc_there = str(session.records["victims"].get("ipc_plain_plain", "")).startswith("exit")
    session.each(jobs_of({name: row for name, row in SHIMMED_ONLY.items() if is_ipc_there or not name.startswith("ipc")},
                         False))
    session.each(jobs_of({**VICTIMS, **SHIMMED_ONLY}, True), 1)
