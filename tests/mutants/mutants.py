#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Break one rule at a time and see that its tests fail; prints TAP.

usage: mutants.py [--jobs N] [--list] SOURCE BUILD [NAME...]
  SOURCE  the root of the tree, BUILD  a finished build of it, NAME  only these mutants

The tables are mutant_table.py, mutant_order.py, mutant_pool.py and mutant_touch.py. One file is compiled anew for each mutant, and only the product that
a test runs is linked again, by the commands of the build; the tests run as Meson would run them.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from mutant_order import ORDERS
from mutant_table import MUTANTS
from mutant_pool import ALONE
from mutant_touch import GRAPHS, SHARED, TOUCHES, VENDORS

LIBRARY = "shim/libpoolshim.so"
# A mutant may wait for what never comes: that is a failure of its test, too.
TIMEOUT_S = 30
# Some faults show only when threads meet, which is not on every run: so often a test may miss one.
N_TRIES = 4


class Broken(Exception):
    """The mutant or the build is not what the table says."""


def run(command, folder, env=None, timeout=None):
    """Exit status (None: it did not end) and everything printed."""
    with subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, text=True,
                          errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        try:
            output = process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return None, process.communicate()[0]
    return process.returncode, output


def must_run(command, folder):
    status, output = run(command, folder)
    if status != 0:
        raise Broken(f"{command[0]} failed: {output.strip()}")
    return output


def is_program(name):
    """Is the test a program that holds what it tests? The others load the library."""
    return name.startswith("unit ") or name == "order pool"


class Build:
    """A Meson build folder: its tests and its commands."""

    def __init__(self, source, folder):
        self.source = source
        self.folder = folder
        # "suite name": how Meson runs it
        self.tests = {
            f"{entry['suite'][0].rpartition(':')[2]} {entry['name']}": entry
            for entry in json.loads((folder / "meson-info/intro-tests.json").read_text())
        }
        self.compilations = json.loads((folder / "compile_commands.json").read_text())
        self.links = {}

    def test(self, name):
        if name not in self.tests:
            raise Broken(f"the build has no test '{name}'")
        return self.tests[name]

    def product(self, name):
        """What a mutant changes of a test: a unit test's own program, else the library."""
        program = pathlib.Path(self.test(name)["cmd"][0])
        if not is_program(name):
            return LIBRARY
        return str(program.relative_to(self.folder))

    def link(self, product):
        if product not in self.links:
            lines = must_run(["ninja", "-t", "commands", product], self.folder).splitlines()
            self.links[product] = next(
                (words for words in map(shlex.split, reversed(lines))
                 if product in words and words[words.index(product) - 1] == "-o"), None)
        if not self.links[product]:
            raise Broken(f"no command links {product}")
        return list(self.links[product])

    def compilation(self, file, product):
        """The command that compiles file for product, and the object that it makes."""
        link = self.link(product)
        candidates = [
            entry for entry in self.compilations
            if (self.folder / entry["file"]).resolve() == (self.source / file).resolve()
        ]
        for entry in candidates:
            archive = str(pathlib.Path(entry["output"]).parent).removesuffix(".p")
            if entry["output"] in link or archive in link:
                return shlex.split(entry["command"]), entry["output"]
        raise Broken(f"{file} is no part of {product}")


def mutated_text(source, mutant):
    text = (source / mutant.file).read_text(encoding="utf-8")
    for old, new in mutant.edits:
        n_found = text.count(old)
        if n_found != 1:
            raise Broken(f"{mutant.file} holds this {n_found} times, not once: {old!r}")
        text = text.replace(old, new)
    return text


def compile_mutant(build, mutant, product, folder):
    """Returns the object in the build that is replaced, and the one to take its place."""
    source, made = folder / "mutant.c", folder / "mutant.o"
    command, output = build.compilation(mutant.file, product)
    source.write_text(mutated_text(build.source, mutant), encoding="utf-8")
    words = []
    rest = iter(command)
    for word in rest:
        if word in ("-MF", "-MQ", "-o", "-c"):
            next(rest)
        elif word != "-MD":
            words.append(word)
    # What is left without use in the mutant is not worth a word.
    must_run([*words, "-w", "-o", str(made), "-c", str(source)], build.folder)
    return output, str(made)


def link_mutant(build, product, replaced, made, folder):
    """The product with one object in another's place; it stands before an archive that has it."""
    target = folder / pathlib.Path(product).name
    words = build.link(product)
    words[words.index(product)] = str(target)
    if replaced in words:
        words[words.index(replaced)] = made
    else:
        words.insert(words.index(str(target)) + 1, made)
    must_run(words, build.folder)
    return target


def run_test(build, caught_by, target):
    """Run a test with target (None: the build's own) as its product: passed?, what it printed."""
    name, _, case = caught_by.partition("/")
    test = build.test(name)
    command = list(test["cmd"])
    env = {**os.environ, **test["env"]}
    if is_program(name):
        command[0] = str(target) if target else command[0]
        command += ["--filter", case] if case else []
    elif target:
        command[command.index("--library") + 1] = str(target)
    status, output = run(command, build.folder, env, TIMEOUT_S)
    if status == 0 and name.startswith("unit ") and not re.search(r"^ok ", output, re.M):
        raise Broken(f"'{caught_by}' names no test")
    if status is None:
        output = f"it did not end in {TIMEOUT_S} s\n{output}"
    return status == 0, output


def first_complaint(output):
    """The line that says why a test failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for pattern in (r"^\S+\.[ch]:\d+: ", r"^order_pool: ", r"Assertion|Unexpected signal|CRASH", r"^it did not end",
                    r"^not ok", r"^[-+][^-+]"):
        for line in lines:
            if re.search(pattern, line):
                return line
    return lines[0] if lines else "no word"


def check_unchanged(build, caught_by):
    passed, output = run_test(build, caught_by, None)
    return passed, [] if passed else output.splitlines()


def check_mutant(build, mutant):
    products, notes, is_caught = {}, [], True
    with tempfile.TemporaryDirectory() as folder:
        for caught_by in mutant.caught_by:
            product = build.product(caught_by.partition("/")[0])
            if product not in products:
                place = pathlib.Path(folder) / str(len(products))
                place.mkdir()
                replaced, made = compile_mutant(build, mutant, product, place)
                products[product] = link_mutant(build, product, replaced, made, place)
            for _ in range(N_TRIES):
                passed, output = run_test(build, caught_by, products[product])
                if not passed:
                    break
            notes.append(f"{caught_by}: {'passed' if passed else first_complaint(output)}")
            is_caught &= not passed
    return is_caught, notes


def check_fresh(build, tests):
    """A mutant of a newer source in an older build would fail for other reasons."""
    products = {build.product(name.partition("/")[0]) for name in tests}
    output = must_run(["ninja", "-n", *sorted(products)], build.folder)
    is_fresh = "no work to do" in output
    return is_fresh, [] if is_fresh else output.splitlines()


def guarded(check, *args):
    try:
        return check(*args)
    except Broken as problem:
        return False, str(problem).splitlines()


def steps(mutants):
    """(description, check, its argument)"""
    tests = dict.fromkeys(name for mutant in mutants for name in mutant.caught_by)
    yield "the build is as new as its sources", check_fresh, tests
    for name in tests:
        yield f"unchanged: {name} passes", check_unchanged, name
    for mutant in mutants:
        yield (f"mutant {mutant.name} is caught by {', '.join(mutant.caught_by)}", check_mutant,
               mutant)
    yield "the sources did not change meanwhile", check_fresh, tests


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=min(4, len(os.sched_getaffinity(0))))
    parser.add_argument("--list", action="store_true", help="print the rules and end")
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()

    mutants = [mutant for mutant in MUTANTS + ORDERS + ALONE + TOUCHES + SHARED + GRAPHS + VENDORS
               if not args.names or mutant.name in args.names]
    if args.list:
        for mutant in mutants:
            print(f"{mutant.name}: {mutant.rule} ({mutant.file})")
        return 0
    build = Build(args.source.resolve(), args.build.resolve())
    todo = list(steps(mutants))
    all_right = bool(mutants)
    print(f"1..{len(todo)}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = pool.map(lambda step: guarded(step[1], build, step[2]), todo)
        for number, ((description, _, _), (is_right, notes)) in enumerate(zip(todo, results), 1):
            print(f"{'ok' if is_right else 'not ok'} {number} - {description}")
            print("".join(f"# {note}\n" for note in notes), end="", flush=True)
            all_right &= is_right
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main())
