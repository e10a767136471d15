# SPDX-License-Identifier: MIT
"""A reader of control blocks (pool/stats_abi.h), written from the description alone: fields are found by their names."""
import os
import pathlib
import struct

HEADER = struct.Struct("<8sIIQIIQQQQIIQIIQII")  # up to and without boot_id
SECTION = struct.Struct("<24sQIIII")
FIELD = struct.Struct("<40sIIII")
U64, TEXT = 1, 2


def folder():
    return pathlib.Path(f"/dev/shm/poolshim-{os.getuid()}")


def find(pid):
    """The file of a process, or None."""
    found = sorted(folder().glob(f"{pid}-*")) if folder().is_dir() else []
    return found[-1] if found else None


def text_of(raw):
    return raw.split(b"\0", 1)[0].decode(errors="replace")


def value_of(data, at, kind, n, stride):
    if kind == TEXT:
        return text_of(data[at:at + n])
    values = [struct.unpack_from("<Q", data, at + i * stride)[0] for i in range(n)]
    return values[0] if n == 1 else values


def read(path):
    """{section: [{field: value}]}; raises ValueError for what is no control block."""
    data = pathlib.Path(path).read_bytes()
    try:
        return parse(data)
    except struct.error as error:
        raise ValueError(f"{path}: too short: {error}") from error


def parse(data):
    (magic, version, _, file_bytes, pid, _, _, _, _, _, is_ready, n_sections, sections_at, section_bytes, n_fields,
     fields_at, field_bytes, _) = HEADER.unpack_from(data)
    if magic != b"poolshim" or version != 1 or file_bytes != len(data) or not is_ready:
        raise ValueError(f"no control block: {magic} version {version}, {file_bytes} of {len(data)} bytes, ready {is_ready}")
    fields = [FIELD.unpack_from(data, fields_at + i * field_bytes) for i in range(n_fields)]
    found = {"pid": pid}
    for i in range(n_sections):
        name, at, item_bytes, n_items, first, n = SECTION.unpack_from(data, sections_at + i * section_bytes)
        found[text_of(name)] = [
            {text_of(field[0]): value_of(data, at + item * item_bytes + field[1], *field[2:])
             for field in fields[first:first + n]} for item in range(n_items)]
    return found
