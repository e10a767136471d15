# SPDX-License-Identifier: MIT
"""What the static checks share: the files of the source tree, C without comments, ELF, reporting."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
C_SUFFIXES = {".c", ".h", ".def", ".S"}

_COMMENT_OR_TEXT = re.compile(
    r"""/\*.*?\*/ | //[^\n]* | ("(?:\\.|[^"\\\n])*") | ('(?:\\.|[^'\\\n])*')""", re.S | re.X)


def source_files(root):
    """Every file of the tree, as paths relative to it; no build folder, no fetched file, nothing
    of git's (in a second working tree .git is a file)."""
    for folder, names, files in os.walk(root):
        here = pathlib.Path(folder)
        names[:] = sorted(
            name for name in names
            if (name == ".ci" or not name.startswith(".")) and name != "__pycache__"
            and not (here / name / "meson-private").exists()
            and not (here / name / "build.ninja").exists())
        for name in sorted(files):
            path = here / name
            if name != ".git" and path.is_file() and not path.is_symlink():
                yield path.relative_to(root)


def read_text(path):
    """The text of a file; None when it holds bytes that are no text."""
    data = path.read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def strip_comments(text):
    """C without its comments; every line keeps its number."""
    def replace(match):
        if match.group(1) or match.group(2):
            return match.group(0)
        return re.sub(r"[^\n]+", " ", match.group(0))
    return _COMMENT_OR_TEXT.sub(replace, text)


def table_rows(path, macro):
    """The first argument of each row macro(...) of a .def file, in order."""
    text = strip_comments(path.read_text(encoding="utf-8"))
    return re.findall(rf"^[ \t]*{macro}\([ \t]*(\w+)", text, re.M)


def readelf(path, *options):
    """What readelf prints of an ELF file or an archive."""
    result = subprocess.run(
        ["readelf", "--wide", *options, str(path)], check=True, text=True,
        stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"})
    return result.stdout


class Report:
    """Collects what is wrong; its exit status is that of the check."""

    def __init__(self, check):
        self.check = check
        self.n_problems = 0

    def problem(self, where, what, line=None):
        place = f"{where}:{line}" if line else str(where)
        print(f"{place}: {what}")
        self.n_problems += 1

    def finish(self, n_seen, what):
        if n_seen == 0:
            self.problem(self.check, f"no {what} found: the check looked in the wrong place")
        if self.n_problems == 0:
            print(f"{self.check}: {n_seen} {what}, nothing wrong")
        sys.stdout.flush()
        return 1 if self.n_problems else 0
