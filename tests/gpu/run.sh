#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Build the library and the GPU programs, run them native and shimmed, write the results.
#
# usage: tests/gpu/run.sh -o DIR [-b BUILD]
#   -o DIR    where results.json, dumps.json and log.txt go (made if missing)
#   -b BUILD  where to build (default: a temporary folder, removed at the end)
#
# Needs a GPU with its driver, gcc, nvcc, Python 3, Meson and Ninja; nothing is installed. Without PyTorch its runs are
# left out and named in the results. POOLSHIM_COMMIT names the commit where there is no git. Exit code 1: a check failed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=
build=

usage()
{
	sed -n '3,12s/^# \{0,1\}//p' "$0"
	exit 2
}

while getopts 'o:b:h' option; do
	case $option in
	o) out=$OPTARG ;;
	b) build=$OPTARG ;;
	*) usage ;;
	esac
done
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
mkdir -p "$out" "$build/programs"

[ -f "$build/shim/build.ninja" ] ||
	meson setup "$build/shim" "$root" --buildtype=release -Dtools=disabled -Dtests=disabled >"$build/setup.log" ||
	{ cat "$build/setup.log" >&2; exit 1; }
ninja -C "$build/shim" >"$build/ninja.log" || { cat "$build/ninja.log" >&2; exit 1; }

cc_driver()
{
	gcc -std=gnu11 -O2 -D_GNU_SOURCE -I "$root" -isystem "$cuda/include" -o "$build/programs/$1" "$2" \
		-L "$cuda/lib64/stubs" -lcuda -ldl -lpthread
}

nvcc_program()
{
	nvcc -O2 -std=c++17 --extended-lambda -arch="${POOLSHIM_GPU_ARCH:-native}" -cudart "$3" \
		-Xlinker -rpath -Xlinker "$cuda/lib64" -o "$build/programs/$1_$3" "$2"
}

cc_driver gpu_driver "$here/gpu_driver.c"
cc_driver victim_table "$root/tests/preload/victim_table.c"
pids=
for runtime in static shared; do
	nvcc_program thrust_sort "$here/workloads/thrust_sort.cu" $runtime & pids="$pids $!"
	nvcc_program gpu_order "$here/gpu_order.cu" $runtime & pids="$pids $!"
	nvcc_program gpu_devices "$here/gpu_devices.cu" $runtime & pids="$pids $!"
	nvcc_program gpu_held "$here/gpu_held.cu" $runtime & pids="$pids $!"
	nvcc_program gpu_managed "$here/gpu_managed.cu" $runtime & pids="$pids $!"
	nvcc_program gpu_cpu_visible "$here/gpu_cpu_visible.cu" $runtime & pids="$pids $!"
done
for pid in $pids; do
	wait "$pid"
done

PYTHONDONTWRITEBYTECODE=1 python3 "$here/measure.py" --out "$out" --programs "$build/programs" \
	--library "$build/shim/shim/libpoolshim.so" --work "$build" --cuda-home "$cuda"
