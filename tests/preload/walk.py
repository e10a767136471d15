#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The walk of victim_walk.c from Python: the runtime loaded privately by ctypes, the shim's functions from the process.

usage: walk.py [LIBCUDART]    default libcudart.so.13, found on the library path
Exit code: 0 all well, 1 a step went wrong, 77 the shim is not loaded.
"""
import ctypes
import sys

ASKED_BYTES, ROUNDED_BYTES = 400, 512

failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)
        print("walk.py:", message, file=sys.stderr)


def shim_function(process, name, *argtypes, restype=ctypes.c_size_t):
    function = getattr(process, "poolshim_" + name)
    function.argtypes, function.restype = argtypes, restype
    return function


class Shim:
    """The functions of shim/poolshim.h, for device 0 and for pinned memory."""

    def __init__(self):
        process = ctypes.CDLL(None)
        for name in ("used_bytes", "free_bytes", "total_bytes", "n_free_blocks"):
            device = shim_function(process, name, ctypes.c_int)
            setattr(self, name, lambda device=device: device(0))
            setattr(self, "host_" + name, shim_function(process, "host_" + name))
        give_back = shim_function(process, "free_all_blocks", ctypes.c_int, restype=None)
        self.free_all_blocks = lambda: give_back(0)
        self.host_free_all_blocks = shim_function(process, "host_free_all_blocks", restype=None)


class Runtime:
    """Four calls of the CUDA runtime; an error ends the program."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)  # RTLD_LOCAL, as Python packages load it

    def call(self, name, *args):
        error = getattr(self.library, name)(*args)
        if error:
            sys.exit(f"walk.py: {name} gave error {error}")

    def take(self, name):
        pointer = ctypes.c_void_p()
        self.call(name, ctypes.byref(pointer), ctypes.c_size_t(ASKED_BYTES))
        return pointer


def walk_device(shim, runtime):
    expect(shim.total_bytes() == 0, f"total {shim.total_bytes()} before anything was asked for")
    array = runtime.take("cudaMalloc")
    expect(shim.used_bytes() == ROUNDED_BYTES, f"400 bytes count as {shim.used_bytes()}")
    total = shim.total_bytes()
    expect(total >= ROUNDED_BYTES, f"total {total} holds less than is used")
    runtime.call("cudaFree", array)
    expect(shim.used_bytes() == 0, f"a freed block still counts: used {shim.used_bytes()}")
    expect(shim.total_bytes() == total, f"a free changed the total from {total} to {shim.total_bytes()}")
    expect(shim.used_bytes() + shim.free_bytes() == shim.total_bytes(), "used + free is not total")
    shim.free_all_blocks()
    expect(shim.total_bytes() == 0, f"{shim.total_bytes()} bytes were not given back")


def walk_pinned(shim, runtime):
    seen = [shim.host_n_free_blocks()]
    array = runtime.take("cudaMallocHost")
    during = shim.host_n_free_blocks()
    runtime.call("cudaFreeHost", array)
    seen.append(shim.host_n_free_blocks())
    shim.host_free_all_blocks()
    seen.append(shim.host_n_free_blocks())
    expect(during == 0, f"{during} free pinned blocks while one is in use")
    expect(seen == [0, 1, 0], f"free pinned blocks were {seen}, not 0, 1, 0")


def main(path):
    runtime = Runtime(path)
    runtime.call("cudaFree", None)
    try:
        shim = Shim()
    except AttributeError:
        print("walk.py: the shim is not loaded, nothing to walk through")
        return 77
    walk_device(shim, runtime)
    walk_pinned(shim, runtime)
    if not failures:
        print("walk.py: ok")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else "libcudart.so.13"))
