#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Formats C files with clang-format and .clang-format. Tables (*.def) are kept by hand.
#
# usage: scripts/format.sh [--check] [FILE...]
#
#   --check   change nothing; name the files that would change and fail if there are any
#   FILE...   these files; without any, all of pool/ policy/ shim/ tools/ tests/
set -u

. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/common.sh" || exit 1

is_check=no
case ${1-} in
--check)
	is_check=yes
	shift
	;;
-h | --help)
	print_help
	exit 0
	;;
-*) usage_error "unknown option '$1'" ;;
esac
command -v clang-format >/dev/null || die "needs clang-format"

files=("$@")
if [ ${#files[@]} -eq 0 ]; then
	cd -- "$root" || exit 1
	mapfile -d '' files < <(find pool policy shim tools tests -name '*.[ch]' -print0)
fi

status=0
for file in "${files[@]}"; do
	if [ $is_check = no ]; then
		clang-format -i -- "$file" || status=1
	elif ! clang-format -- "$file" | cmp -s - "$file"; then
		echo "$file"
		status=1
	fi
done
exit $status
