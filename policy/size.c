/* SPDX-License-Identifier: MIT */
#include "policy/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* Own versions: the ones in ctype.h and strtod() follow the host program's locale. */
static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static char
to_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool
size_text_is(const char *text, size_t len, const char *word)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (!word[i] || to_lower(text[i]) != to_lower(word[i]))
			return false;
	return !word[len];
}

static const char unit_letters[] = "kmgtpe";

/*
 * The power of two that a unit stands for: "", "b", or a letter alone, with "b", with "i" or with
 * "ib". -1: not a unit.
 */
static int
unit_shift(const char *unit, size_t len)
{
	int i;

	if (len == 0 || size_text_is(unit, len, "b"))
		return 0;
	for (i = 0; unit_letters[i]; i++)
		if (to_lower(unit[0]) == unit_letters[i])
			break;
	if (!unit_letters[i])
		return -1;
	if (len == 1 || size_text_is(unit + 1, len - 1, "b") ||
	    size_text_is(unit + 1, len - 1, "i") || size_text_is(unit + 1, len - 1, "ib"))
		return 10 * (i + 1);
	return -1;
}

/* A number as written: whole part, and the fraction in billionths (further digits are cut). */
struct decimal {
	uint64_t whole;
	uint32_t fraction_ppb;
	bool has_fraction;
};

/* Returns how many characters were read, -EINVAL (not a number) or -ERANGE. */
static int
decimal_parse(const char *text, size_t len, struct decimal *ret_number)
{
	struct decimal number = {0};
	uint32_t place = SIZE_PPB_WHOLE;
	size_t i;

	for (i = 0; i < len && is_digit(text[i]); i++)
		if (__builtin_mul_overflow(number.whole, 10, &number.whole) ||
		    __builtin_add_overflow(number.whole, text[i] - '0', &number.whole))
			return -ERANGE;
	if (i == 0)
		return -EINVAL;

	if (i < len && text[i] == '.') {
		number.has_fraction = true;
		if (++i == len || !is_digit(text[i]))
			return -EINVAL;
		for (; i < len && is_digit(text[i]); i++) {
			place /= 10;
			number.fraction_ppb += place * (uint32_t)(text[i] - '0');
		}
	}

	*ret_number = number;
	return (int)i;
}

/* Longer than any number that can be right; keeps the lengths above inside an int. */
enum { NUMBER_LEN_MAX = 256 };

int
size_parse(const char *text, size_t len, uint64_t *ret_bytes)
{
	struct decimal number;
	uint64_t bytes, fraction_bytes;
	int n_read, shift;

	if (len > NUMBER_LEN_MAX)
		return -EINVAL;
	n_read = decimal_parse(text, len, &number);
	if (n_read < 0)
		return n_read;
	shift = unit_shift(text + n_read, len - (size_t)n_read);
	if (shift < 0 || (number.has_fraction && shift == 0))
		return -EINVAL;

	fraction_bytes = size_of_share(number.fraction_ppb, UINT64_C(1) << shift);
	if (__builtin_mul_overflow(number.whole, UINT64_C(1) << shift, &bytes) ||
	    __builtin_add_overflow(bytes, fraction_bytes, &bytes))
		return -ERANGE;

	*ret_bytes = bytes;
	return 0;
}

int
size_parse_share(const char *text, size_t len, uint32_t *ret_ppb)
{
	struct decimal number;
	uint64_t ppb;
	int n_read;

	if (len > NUMBER_LEN_MAX)
		return -EINVAL;
	n_read = decimal_parse(text, len, &number);
	if (n_read < 0)
		return n_read;
	if ((size_t)n_read + 1 != len || text[n_read] != '%')
		return -EINVAL;
	if (number.whole > 100)
		return -ERANGE;

	/* One per cent is a hundredth, so a billionth of a per cent is below what is kept. */
	ppb = number.whole * (SIZE_PPB_WHOLE / 100) + number.fraction_ppb / 100;
	if (ppb > SIZE_PPB_WHOLE || (number.whole == 100 && number.fraction_ppb))
		return -ERANGE;

	*ret_ppb = (uint32_t)ppb;
	return 0;
}

uint64_t
size_of_share(uint32_t ppb, uint64_t total_bytes)
{
	uint64_t whole = total_bytes / SIZE_PPB_WHOLE;
	uint64_t rest = total_bytes % SIZE_PPB_WHOLE;

	/* Both factors of the second product are at most a billion, so it fits. */
	return whole * ppb + rest * ppb / SIZE_PPB_WHOLE;
}

size_t
size_print(uint64_t bytes, char *buf, size_t buf_bytes)
{
	static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	size_t i = 0;

	while (bytes && bytes % 1024 == 0 && i + 1 < sizeof(units) / sizeof(units[0])) {
		bytes /= 1024;
		i++;
	}
	return (size_t)snprintf(buf, buf_bytes, "%" PRIu64 "%s", bytes, units[i]);
}

size_t
size_print_share(uint32_t ppb, char *buf, size_t buf_bytes)
{
	uint32_t percent = ppb / (SIZE_PPB_WHOLE / 100);
	uint32_t fraction = ppb % (SIZE_PPB_WHOLE / 100);
	int n_digits = 7;

	if (!fraction)
		return (size_t)snprintf(buf, buf_bytes, "%" PRIu32 "%%", percent);
	while (fraction % 10 == 0) {
		fraction /= 10;
		n_digits--;
	}
	return (size_t)snprintf(buf, buf_bytes, "%" PRIu32 ".%0*" PRIu32 "%%", percent, n_digits,
				fraction);
}
