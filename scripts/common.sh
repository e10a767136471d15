# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What setup, test and demo share. Sourced, never run; sets $root, the top of the source tree.
# None of these scripts reads standard input.

exec </dev/null
root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd -P) || exit 1
me=$(basename -- "$0")

say()
{
	printf '%s: %s\n' "$me" "$*"
}

die()
{
	printf '%s: %s\n' "$me" "$*" >&2
	exit 1
}

usage_error()
{
	printf '%s: %s; try --help\n' "$me" "$*" >&2
	exit 2
}

# The help of a script is its own head comment.
print_help()
{
	sed -n '/^# SPDX/d; 2,/^[^#]/s/^#\( \|$\)//p' "$0" | sed '1{/^$/d}'
}

n_jobs()
{
	nproc 2>/dev/null || echo 2
}

# configure DIR OPTION...: a Meson build folder with these options, made or brought up to date.
# One that belongs to another copy of the tree, or that cannot be brought up to date, is made anew.
configure()
{
	local dir=$1
	shift

	if [ -e "$dir/meson-private/coredata.dat" ] &&
		grep -qsF "\"source\": \"$root\"" "$dir/meson-info/meson-info.json" &&
		meson setup --reconfigure "$dir" "$root" "$@"; then
		return 0
	fi
	rm -rf -- "$dir"
	meson setup "$dir" "$root" "$@"
}
