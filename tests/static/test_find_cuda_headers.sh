#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests scripts/find_cuda_headers with toolkits of empty files; prints TAP.
#
# usage: test_find_cuda_headers.sh SCRIPTS
set -u

top=$(mktemp -d) || exit 1
trap 'rm -rf -- "$top"' EXIT
tree="$top/a tree"
mkdir -p "$tree/scripts"
cp -- "$1/find_cuda_headers" "$tree/scripts/"

n_tests=0
n_failed=0

# want NAME STATUS OUTPUT: compares with what the last run answered.
want()
{
	n_tests=$((n_tests + 1))
	if [ "$status" -eq "$2" ] && [ "$output" = "$3" ]; then
		echo "ok $n_tests - $1"
		return
	fi
	n_failed=$((n_failed + 1))
	echo "not ok $n_tests - $1"
	printf 'status %s, wanted %s\n%s\n' "$status" "$2" "$output" | sed 's/^/# /'
}

find_headers()
{
	output=$("$tree/scripts/find_cuda_headers" "$@" 2>"$top/stderr")
	status=$?
}

# make_headers FOLDER VERSION
make_headers()
{
	mkdir -p "$1/crt"
	echo "#define CUDA_VERSION $2" >"$1/cuda.h"
	for file in cudaEGL.h cudaGL.h cudaVDPAU.h cuda_runtime_api.h; do
		: >"$1/$file"
	done
	: >"$1/crt/host_defines.h"
}

wheels=$tree/.deps/cuda/include
find_headers --only-wheels
want "no headers: status 1 and nothing on stdout" 1 ""
output=$(wc -l <"$top/stderr")
want "no headers: one line says so" 1 1

make_headers "$wheels" 13000
find_headers --only-wheels
want "the wheels' headers are found in a folder with a space" 0 "$wheels"
make_headers "$wheels" 12090
find_headers --only-wheels
want "headers of 12.9 are refused" 1 ""
make_headers "$wheels" 13000
rm "$wheels/crt/host_defines.h"
find_headers --only-wheels
want "headers without crt/host_defines.h are refused" 1 ""
make_headers "$wheels" 13000

make_headers "$top/toolkit/include" 13010
CUDA_HOME=$top/toolkit find_headers
want "CUDA_HOME comes first" 0 "$top/toolkit/include"
CUDA_HOME=$top/toolkit find_headers --only-wheels
want "--only-wheels passes an installed toolkit over" 0 "$wheels"
make_headers "$top/conda/targets/$(uname -m)-linux/include" 13010
CUDA_HOME=$top/conda find_headers
want "a toolkit in conda's layout is found" 0 "$top/conda/targets/$(uname -m)-linux/include"
find_headers --bogus
want "an unknown option is a usage error" 2 ""

echo "1..$n_tests"
[ $n_failed -eq 0 ]
