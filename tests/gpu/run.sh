#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Build the library and the GPU programs, run them native and shimmed, write the results.
#
# usage: tests/gpu/run.sh -o DIR [-b BUILD] [-p PARTS] [-- OPTION...]
#   -o DIR    where results.json, dumps.json and log.txt go (made if missing)
#   -b BUILD  where to build (default: a temporary folder, removed at the end); kept, the next run builds what changed
#   -p PARTS  only these parts, comma-separated (tests/gpu/measure.py --list prints them)
#   OPTION    for measure.py
#
# Needs a GPU with its driver, gcc, nvcc, Python 3, Meson and Ninja; nothing is installed. What else is missing (PyTorch,
# CuPy, JAX, compute-sanitizer) is left out and named in the results. POOLSHIM_COMMIT names the commit where there is
# no git. Exit code 1: a check failed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=
build=
parts=

usage()
{
	sed -n '3,15s/^# \{0,1\}//p' "$0"
	exit 2
}

while getopts 'o:b:p:h' option; do
	case $option in
	o) out=$OPTARG ;;
	b) build=$OPTARG ;;
	p) parts=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ -n "$out" ] || usage

if ! command -v nvcc >/dev/null; then
	PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
fi
for tool in gcc nvcc python3 meson ninja; do
	command -v "$tool" >/dev/null || { echo "run.sh: $tool is missing" >&2; exit 2; }
done
cuda=$(cd "$(dirname "$(readlink -f "$(command -v nvcc)")")/.." && pwd)

if [ -z "$build" ]; then
	build=$(mktemp -d)
	trap 'rm -rf "$build"' EXIT
fi
mkdir -p "$out" "$build"

[ -f "$build/shim/build.ninja" ] ||
	meson setup "$build/shim" "$root" --buildtype=release -Dtools=disabled -Dtests=disabled >"$build/setup.log" ||
	{ cat "$build/setup.log" >&2; exit 1; }
ninja -C "$build/shim" >"$build/ninja.log" || { cat "$build/ninja.log" >&2; exit 1; }

export PYTHONDONTWRITEBYTECODE=1
python3 "$here/measure.py" --out "$out" --library "$build/shim/shim/libpoolshim.so" --work "$build" \
	--cuda-home "$cuda" ${parts:+--only "$parts"} "$@"
