#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Unpacks NVIDIA's header wheels into the layout of a toolkit: FOLDER/include and FOLDER/lib.

usage: unpack_cuda_wheels.py FOLDER WHEEL...
"""

import pathlib
import re
import sys
import zipfile

# nvidia/cu13/include/x.h, nvidia/cu13/lib/x.so.13; older wheels: nvidia/cuda_runtime/include/x.h
MEMBER = re.compile(r"nvidia/[^/]+/((?:include|lib)/.+)")
LICENCE = re.compile(r"([^/]+)\.dist-info/(?:licenses/)?License\.txt")


def target_of(member):
    """Where a wheel's member goes, relative to the folder; None for what is not needed."""
    match = MEMBER.fullmatch(member)
    if match:
        return match.group(1)
    match = LICENCE.fullmatch(member)
    return f"LICENSE.{match.group(1)}" if match else None


def unpack(folder, wheel):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            target = target_of(member)
            if target is None or member.endswith("/"):
                continue
            if ".." in pathlib.PurePosixPath(target).parts:
                raise ValueError(f"{wheel}: unsafe name {member}")
            path = folder / target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(member))


def main(argv):
    if len(argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    for wheel in argv[2:]:
        unpack(pathlib.Path(argv[1]), wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
