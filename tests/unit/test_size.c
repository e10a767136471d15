/* SPDX-License-Identifier: MIT */
#include "policy/size.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "tests/support/rows.h"

#define K UINT64_C(1024)

static const struct size_case {
	const char *text;
	uint64_t want_bytes;
} good_sizes[] = {
	{"0", 0},
	{"1", 1},
	{"4096", 4096},
	{"4096b", 4096},
	{"512K", 512 * K},
	{"512k", 512 * K},
	{"8g", 8 * K *K *K},
	{"8GB", 8 * K *K *K},
	{"8Gi", 8 * K *K *K},
	{"8GiB", 8 * K *K *K},
	{"8gIb", 8 * K *K *K},
	{"3M", 3 * K *K},
	{"2tib", 2 * K *K *K *K},
	{"5p", 5 * K *K *K *K *K},
	{"15E", 15 * K *K *K *K *K *K},
	{"0008K", 8 * K},
	{"1.5GiB", 3 * K *K *K / 2},
	{"0.25k", 256},
	{"0.001K", 1},
	{"18446744073709551615", UINT64_MAX},
};

TEST_ROWS(size, every_way_of_writing_a_size_is_read, good_sizes)
{
	const struct size_case *c = &good_sizes[*row];
	uint64_t bytes = 77;

	cr_expect_eq(size_parse(c->text, strlen(c->text), &bytes), 0, "'%s' was refused", c->text);
	cr_expect_eq(bytes, c->want_bytes, "'%s' was read as %" PRIu64, c->text, bytes);
}

static const struct refused_case {
	const char *text;
	int want;
} bad_sizes[] = {
	{"", -EINVAL},
	{" ", -EINVAL},
	{"-1", -EINVAL},
	{"+1", -EINVAL},
	{"-8G", -EINVAL},
	{"G", -EINVAL},
	{"GiB", -EINVAL},
	{"8X", -EINVAL},
	{"8GiBs", -EINVAL},
	{"8GG", -EINVAL},
	{"8G ", -EINVAL},
	{" 8G", -EINVAL},
	{"8 G", -EINVAL},
	{"8iB", -EINVAL},
	{"8bb", -EINVAL},
	{"0x10", -EINVAL},
	{"1e9", -EINVAL},
	{"nan", -EINVAL},
	{"inf", -EINVAL},
	{"1.5", -EINVAL},
	{"1.5b", -EINVAL},
	{"1.G", -EINVAL},
	{".5G", -EINVAL},
	{"1.5.5G", -EINVAL},
	{"1,5G", -EINVAL},
	{"50%", -EINVAL},
	{"none", -EINVAL},
	{"16E", -ERANGE},
	{"18446744073709551616", -ERANGE},
	{"18014398509481984K", -ERANGE},
	{"99999999999999999999999999", -ERANGE},
};

TEST_ROWS(size, what_is_not_a_size_is_refused_and_nothing_is_written, bad_sizes)
{
	const struct refused_case *c = &bad_sizes[*row];
	uint64_t bytes = 77;

	cr_expect_eq(size_parse(c->text, strlen(c->text), &bytes), c->want, "'%s' was not refused",
		     c->text);
	cr_expect_eq(bytes, 77, "'%s': the result was touched", c->text);
}

static const struct share_case {
	const char *text;
	uint32_t want_ppb;
} good_shares[] = {
	{"0%", 0},
	{"50%", 500000000},
	{"100%", 1000000000},
	{"100.0%", 1000000000},
	{"12.5%", 125000000},
	{"0.0000001%", 1},
	{"33.3333333333333%", 333333333},
};

TEST_ROWS(size, a_share_of_the_whole_is_read, good_shares)
{
	const struct share_case *c = &good_shares[*row];
	uint32_t ppb = 77;

	cr_expect_eq(size_parse_share(c->text, strlen(c->text), &ppb), 0, "'%s' was refused",
		     c->text);
	cr_expect_eq(ppb, c->want_ppb, "'%s' was read as %" PRIu32, c->text, ppb);
}

static const struct refused_case bad_shares[] = {
	{"", -EINVAL},     {"%", -EINVAL},        {"50", -EINVAL},
	{"50%%", -EINVAL}, {"50 %", -EINVAL},     {"-1%", -EINVAL},
	{"nan%", -EINVAL}, {"1G%", -EINVAL},      {"100.1%", -ERANGE},
	{"101%", -ERANGE}, {"1000000%", -ERANGE}, {"99999999999999999999%", -ERANGE},
};

TEST_ROWS(size, what_is_not_a_share_is_refused_and_nothing_is_written, bad_shares)
{
	const struct refused_case *c = &bad_shares[*row];
	uint32_t ppb = 77;

	cr_expect_eq(size_parse_share(c->text, strlen(c->text), &ppb), c->want,
		     "'%s' was not refused", c->text);
	cr_expect_eq(ppb, 77, "'%s': the result was touched", c->text);
}

Test(size, only_the_given_length_is_read)
{
	uint64_t bytes = 0;

	cr_expect_eq(size_parse("8GiB,9", 4, &bytes), 0, "what follows the text was read too");
	cr_expect_eq(bytes, 8 * K * K * K, "8GiB was read as %" PRIu64, bytes);
}

Test(size, an_endless_number_is_refused)
{
	char text[5000];
	uint64_t bytes;

	memset(text, '0', sizeof(text));
	cr_expect_eq(size_parse(text, sizeof(text), &bytes), -EINVAL, "5000 zeros are a size");
}

Test(size, a_share_never_overflows)
{
	cr_expect_eq(size_of_share(1000000000, UINT64_MAX), UINT64_MAX, "all of it is not all");
	cr_expect_eq(size_of_share(500000000, UINT64_MAX), UINT64_MAX / 2, "half is not half");
	cr_expect_eq(size_of_share(125000000, 80 * K * K * K), 10 * K * K * K,
		     "an eighth of 80 GiB is not 10 GiB");
	cr_expect_eq(size_of_share(0, UINT64_MAX), 0, "nothing is something");
}

static const struct printed_case {
	uint64_t bytes;
	const char *want;
} printed_sizes[] = {
	{0, "0"},
	{1, "1"},
	{1023, "1023"},
	{1024, "1KiB"},
	{1536, "1536"},
	{8 * K * K * K, "8GiB"},
	{8 * K * K * K + K, "8388609KiB"},
	{UINT64_C(15) << 60, "15EiB"},
	{UINT64_MAX, "18446744073709551615"},
};

TEST_ROWS(size, a_printed_size_reads_back, printed_sizes)
{
	const struct printed_case *c = &printed_sizes[*row];
	char text[SIZE_TEXT_MAX];
	size_t len = size_print(c->bytes, text, sizeof(text));
	uint64_t bytes = 77;

	cr_expect_str_eq(text, c->want, "%" PRIu64 " was printed as '%s'", c->bytes, text);
	cr_expect_eq(len, strlen(c->want), "'%s' has not the length %zu", text, len);
	cr_expect_eq(size_parse(text, len, &bytes), 0, "'%s' was refused", text);
	cr_expect_eq(bytes, c->bytes, "'%s' was read as %" PRIu64, text, bytes);
}

TEST_ROWS(size, a_printed_share_reads_back, good_shares)
{
	const struct share_case *c = &good_shares[*row];
	char text[SIZE_TEXT_MAX];
	size_t len = size_print_share(c->want_ppb, text, sizeof(text));
	uint32_t ppb = 77;

	cr_expect_eq(size_parse_share(text, len, &ppb), 0, "'%s' was refused", text);
	cr_expect_eq(ppb, c->want_ppb, "'%s' was read as %" PRIu32, text, ppb);
}

Test(size, a_small_buffer_gets_a_cut_text)
{
	char text[4] = "xxx";

	cr_expect_eq(size_print(8 * K * K * K, text, 3), 4, "the whole length was not given");
	cr_expect_str_eq(text, "8G", "the text was not cut at the buffer's end");
}
