#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests poolshim run; prints TAP. The command is copied beside a stand-in for the library, so that
# what is seen is the command's doing alone.
#
# usage: test_run.sh COMMAND OPTIONS_DEF CC...
set -u

command=$1
options_def=$2
shift 2
compiler=("$@")

top=$(mktemp -d) || exit 1
trap 'rm -rf -- "$top"' EXIT
unset LD_PRELOAD "${!POOLSHIM_@}"
# AddressSanitizer, when the command has it, wants to be in front of what these tests preload.
export ASAN_OPTIONS=verify_asan_link_order=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}

n_tests=0
n_failed=0

# check NAME CONDITION-WORDS...: one TAP line; on failure also what the last run printed.
check()
{
	local name=$1
	shift
	n_tests=$((n_tests + 1))
	if "$@"; then
		echo "ok $n_tests - $name"
		return
	fi
	n_failed=$((n_failed + 1))
	echo "not ok $n_tests - $name"
	printf 'status %s\n%s\n' "$status" "$output" | sed 's/^/# /'
}

# make_tree FOLDER: a build tree with the command and a library that does nothing.
make_tree()
{
	mkdir -p "$1/tools" "$1/shim"
	cp -- "$command" "$1/tools/poolshim"
	cp -- "$top/stand_in.so" "$1/shim/libpoolshim.so"
}

run()
{
	output=$("$tree/tools/poolshim" run "$@" 2>&1 </dev/null)
	status=$?
}

has_line()
{
	grep -qxF -- "$1" <<<"$output"
}

has_status()
{
	[ "$status" -eq "$1" ]
}

is_one_line()
{
	[ "$(wc -l <<<"$output")" -eq 1 ] && [ -n "$output" ]
}

is_usage_error()
{
	has_status 2 && is_one_line
}

echo 'int poolshim_stand_in(void); int poolshim_stand_in(void) { return 0; }' >"$top/stand_in.c"
"${compiler[@]}" -shared -fPIC -o "$top/stand_in.so" "$top/stand_in.c" || exit 1

tree=$top/build
make_tree "$tree"
library=$tree/shim/libpoolshim.so

run -- env
check "the library is preloaded" has_line "LD_PRELOAD=$library"
check "no option is set unasked" test -z "$(grep ^POOLSHIM_ <<<"$output")"
check "the status is that of the program" has_status 0
run -- sh -c 'exit 42'
check "a failed program's status comes through" has_status 42
run --limit 8GiB --mode=account -- env
check "a flag with a separate value sets its variable" has_line POOLSHIM_LIMIT=8GiB
check "a flag with a joined value sets its variable" has_line POOLSHIM_MODE=account
run --limit 1g --limit 2g env
check "the last of two equal flags counts" has_line POOLSHIM_LIMIT=2g
POOLSHIM_LIMIT=3g run -- env
check "a variable that was set stays without its flag" has_line POOLSHIM_LIMIT=3g
POOLSHIM_LIMIT=3g run --limit 4g -- env
check "a flag is stronger than its variable" has_line POOLSHIM_LIMIT=4g
run --dump 'a b:%p' -- env
check "a value goes through as it is" has_line 'POOLSHIM_DUMP=a b:%p'

run printf '%s|' --limit -x '' 'a b' --
check "the program's own words are left alone" test "$output" = "--limit|-x||a b|--|"

LD_PRELOAD=$top/stand_in.so run -- env
check "what was preloaded stays in front" has_line "LD_PRELOAD=$top/stand_in.so:$library"
LD_PRELOAD="$top/stand_in.so $library" run -- env
check "the library is not added twice, separator space" \
	has_line "LD_PRELOAD=$top/stand_in.so $library"
LD_PRELOAD="$library:$top/stand_in.so" run -- env
check "the library is not added twice, separator colon" \
	has_line "LD_PRELOAD=$library:$top/stand_in.so"
run "$tree/tools/poolshim" run -- env
check "a nested run adds nothing" has_line "LD_PRELOAD=$library"

run
check "no program: status 2 and one line" is_usage_error
run --
check "only '--': status 2 and one line" is_usage_error
run --bogus 1 -- env
check "an unknown flag: status 2 and one line" is_usage_error
run --limit
check "a flag without a value: status 2 and one line" is_usage_error
run -- "$top/no-such-program"
check "a missing program: status 127" has_status 127
check "a missing program: one line" is_one_line
run -- "$top/stand_in.c"
check "a file that cannot run: status 126" has_status 126

output=$("$tree/tools/poolshim" 2>&1)
status=$?
check "no verb: status 2 and one line" is_usage_error
output=$("$tree/tools/poolshim" bogus 2>&1)
status=$?
check "an unknown verb: status 2 and one line" is_usage_error
output=$("$tree/tools/poolshim" --version 2>&1)
status=$?
check "--version prints one line" is_one_line
output=$("$tree/tools/poolshim" --help 2>&1)
status=$?
check "--help names the verb run" grep -q '^  run ' <<<"$output"
output=$("$tree/tools/poolshim" --help 2>&1 >/dev/full)
status=$?
check "output that cannot be written is a failure" has_status 1

run --help
check "run --help ends well" has_status 0
missing=
for flag in $(sed -n 's/^OPTION(\([A-Z_]*\),.*/\1/p' "$options_def" | tr 'A-Z_' 'a-z-'); do
	grep -q -- "^  --$flag=" <<<"$output" || missing="$missing $flag"
done
check "run --help lists each option of the table" test -z "$missing"

tree="$top/a b"
make_tree "$tree"
run -- sh -c 'grep -c "/a b/shim/libpoolshim.so" /proc/$$/maps >/dev/null && echo loaded'
check "a folder with a space in its name works" has_line loaded
tree=$top/a:b
make_tree "$tree"
run -- env
check "a folder with a colon in its name is refused" has_status 1
check "the refusal is one line" is_one_line

echo "1..$n_tests"
[ $n_failed -eq 0 ]
