# SPDX-License-Identifier: MIT
"""The machine that the lane runs on, as the results name it, without any tool that may be missing."""
import ctypes
import datetime
import functools
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def driver_facts():
    """Asked in this process: it is no CUDA program under test. Raises OSError when there is no usable GPU."""
    name, version = ctypes.create_string_buffer(256), ctypes.c_int()
    driver = ctypes.CDLL("libcuda.so.1")
    if driver.cuInit(0) or driver.cuDeviceGetName(name, 256, 0) or driver.cuDriverGetVersion(ctypes.byref(version)):
        raise OSError("no usable GPU")
    return name.value.decode(), f"{version.value // 1000}.{version.value % 1000 // 10}"


@functools.lru_cache(maxsize=None)
def driver_file():
    """The name of the file that libcuda.so.1 is, as a process sees it in its maps."""
    ctypes.CDLL("libcuda.so.1")
    maps = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8")
    found = re.search(r"/(libcuda\.so[^/\s]*)$", maps, re.M)
    return found[1] if found else "libcuda.so.1"


def said_by(*argv):
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
                              timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def machine(cuda_home):
    card, driver_cuda = driver_facts()
    module = pathlib.Path("/sys/module/nvidia/version")
    release = re.search(r"release ([0-9.]+)", said_by(f"{cuda_home}/bin/nvcc", "--version"))
    return {
        "card": card,
        "driver": module.read_text(encoding="utf-8").strip() if module.exists() else "unknown",
        "driver_cuda": driver_cuda,
        "cuda": release[1] if release else "unknown",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit(),
        "n_cpus": os.cpu_count(),
        "glibc": platform.libc_ver()[1],
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def commit():
    if os.environ.get("POOLSHIM_COMMIT"):
        return os.environ["POOLSHIM_COMMIT"]
    said = said_by("git", "-C", str(HERE), "rev-parse", "HEAD") if shutil.which("git") else ""
    return said.strip() or "unknown"


@functools.lru_cache(maxsize=None)
def has_module(name):
    return runs_python(f"import {name}")


@functools.lru_cache(maxsize=None)
def has_torch():
    return runs_python("import torch; assert torch.cuda.is_available()")


def runs_python(code):
    try:
        done = subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
