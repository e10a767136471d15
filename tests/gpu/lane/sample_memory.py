#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The most memory of device 0 in use above what was in use at the start, sampled more than a thousand times a second.

A process of its own, so that its context counts in the start. Prints "ready", samples until stdin ends, then prints
"PEAK bytes SAMPLES n SECONDS s".
"""
import ctypes
import select
import sys
import time

INTERVAL_S = 0.0004


def main():
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0) or \
            cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) or cuda.cuCtxSetCurrent(context):
        return 1
    ask = cuda.cuMemGetInfo_v2
    pointers = ctypes.byref(free), ctypes.byref(total)
    if ask(*pointers):
        return 1
    base = least = free.value
    print("ready", flush=True)
    n_samples, start = 0, time.monotonic()
    while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
        ask(*pointers)
        n_samples += 1
        least = min(least, free.value)
    print(f"PEAK {base - least} SAMPLES {n_samples} SECONDS {time.monotonic() - start:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
