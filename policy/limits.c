/* SPDX-License-Identifier: MIT */
#include "policy/limits.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "policy/size.h"

/* A piece of the option's text; never owns it. */
struct span {
	const char *text;
	size_t len;
};

static struct span
span_trim(struct span s)
{
	while (s.len && (s.text[0] == ' ' || s.text[0] == '\t')) {
		s.text++;
		s.len--;
	}
	while (s.len && (s.text[s.len - 1] == ' ' || s.text[s.len - 1] == '\t'))
		s.len--;
	return s;
}

static int
value_parse(struct span s, struct limit_value *ret_value)
{
	struct limit_value value = {0};
	int r;

	if (!size_text_is(s.text, s.len, "none")) {
		if (s.len && s.text[s.len - 1] == '%') {
			r = size_parse_share(s.text, s.len, &value.share_ppb);
			if (value.share_ppb)
				value.kind = LIMIT_KIND_SHARE;
		} else {
			r = size_parse(s.text, s.len, &value.bytes);
			if (value.bytes)
				value.kind = LIMIT_KIND_BYTES;
		}
		if (r < 0)
			return r;
	}

	*ret_value = value;
	return 0;
}

/* The device in front of the '='. */
static int
ordinal_parse(struct span s, int *ret_device)
{
	int device = 0;
	size_t i;

	if (s.len == 0)
		return -EINVAL;
	for (i = 0; i < s.len; i++) {
		if (s.text[i] < '0' || s.text[i] > '9')
			return -EINVAL;
		device = device * 10 + (s.text[i] - '0');
		if (device >= LIMIT_N_DEVICES)
			return -ERANGE;
	}

	*ret_device = device;
	return 0;
}

/*
 * One DEVICE=VALUE of a list. A device named twice is refused: one of the two was meant for
 * another.
 */
static int
item_parse(struct span item, struct limit_spec *spec)
{
	const char *equals = memchr(item.text, '=', item.len);
	struct span key, value;
	int device, r;

	if (!equals)
		return -EINVAL;
	key = (struct span){item.text, (size_t)(equals - item.text)};
	value = (struct span){equals + 1, item.len - key.len - 1};

	r = ordinal_parse(span_trim(key), &device);
	if (r < 0)
		return r;
	if (spec->listed & UINT64_C(1) << device)
		return -EINVAL;
	r = value_parse(span_trim(value), &spec->by_device[device]);
	if (r < 0)
		return r;
	spec->listed |= UINT64_C(1) << device;
	return 0;
}

int
limit_spec_parse(const char *text, struct limit_spec *ret_spec)
{
	struct limit_spec spec = {0};
	size_t len;
	int r;

	if (!strchr(text, '=')) {
		r = value_parse(span_trim((struct span){text, strlen(text)}), &spec.all);
		if (r < 0)
			return r;
		*ret_spec = spec;
		return 0;
	}

	for (;; text += len + 1) {
		len = strcspn(text, ",");
		r = item_parse((struct span){text, len}, &spec);
		if (r < 0)
			return r;
		if (!text[len])
			break;
	}

	*ret_spec = spec;
	return 0;
}

static size_t
value_print(const struct limit_value *value, char *buf, size_t buf_bytes)
{
	switch (value->kind) {
	case LIMIT_KIND_BYTES:
		return size_print(value->bytes, buf, buf_bytes);
	case LIMIT_KIND_SHARE:
		return size_print_share(value->share_ppb, buf, buf_bytes);
	case LIMIT_KIND_NONE:
		break;
	}
	return (size_t)snprintf(buf, buf_bytes, "none");
}

size_t
limit_spec_print(const struct limit_spec *spec, char *buf, size_t buf_bytes)
{
	char value[SIZE_TEXT_MAX];
	size_t len = 0;
	int device;

	if (!spec->listed)
		return value_print(&spec->all, buf, buf_bytes);

	for (device = 0; device < LIMIT_N_DEVICES; device++) {
		if (!(spec->listed & UINT64_C(1) << device))
			continue;
		value_print(&spec->by_device[device], value, sizeof(value));
		len += (size_t)snprintf(len < buf_bytes ? buf + len : NULL,
					len < buf_bytes ? buf_bytes - len : 0, "%s%d=%s",
					len ? "," : "", device, value);
	}
	return len;
}

uint64_t
limit_spec_bytes(const struct limit_spec *spec, int device, uint64_t total_bytes)
{
	const struct limit_value *value = &spec->all;
	uint64_t bytes;

	if (spec->listed) {
		if (device < 0 || device >= LIMIT_N_DEVICES)
			return LIMIT_NONE;
		value = &spec->by_device[device]; /* not listed: all zero, LIMIT_KIND_NONE */
	}

	switch (value->kind) {
	case LIMIT_KIND_BYTES:
		return value->bytes;
	case LIMIT_KIND_SHARE:
		/* A share of a byte is still a limit; 0 would read as none where limits are set. */
		bytes = size_of_share(value->share_ppb, total_bytes);
		return bytes ? bytes : 1;
	case LIMIT_KIND_NONE:
		break;
	}
	return LIMIT_NONE;
}

/*
 * Order: an account is only a number. It says how much is held, never that some memory is ready for
 * use; whoever hands memory from one thread to another does so under the pool's lock. So every
 * access is relaxed: the compare-and-swap alone keeps the sum right.
 */
void
account_init(struct account *account, uint64_t limit_bytes)
{
	atomic_init(&account->held_bytes, 0);
	atomic_init(&account->peak_bytes, 0);
	atomic_init(&account->limit_bytes, limit_bytes);
	atomic_init(&account->n_released, 0);
}

/* The peak only grows; a loser of the race tries again only while it is still the higher one. */
static void
peak_raise(struct account *account, uint64_t held_bytes)
{
	uint64_t peak = atomic_load_explicit(&account->peak_bytes, memory_order_relaxed);

	while (peak < held_bytes &&
	       !atomic_compare_exchange_weak_explicit(&account->peak_bytes, &peak, held_bytes,
						      memory_order_relaxed, memory_order_relaxed))
		;
}

int
limit_reserve(struct account *account, uint64_t bytes)
{
	uint64_t held = atomic_load_explicit(&account->held_bytes, memory_order_relaxed);
	uint64_t limit, sum;

	do {
		/* Read again each time: a limit lowered meanwhile holds for this request too. */
		limit = atomic_load_explicit(&account->limit_bytes, memory_order_relaxed);
		if (__builtin_add_overflow(held, bytes, &sum) || sum > limit)
			return LIMIT_E_REACHED;
	} while (!atomic_compare_exchange_weak_explicit(
		&account->held_bytes, &held, sum, memory_order_relaxed, memory_order_relaxed));

	peak_raise(account, sum);
	return LIMIT_OK;
}

void
limit_release(struct account *account, uint64_t bytes)
{
	uint64_t held = atomic_load_explicit(&account->held_bytes, memory_order_relaxed);
	uint64_t rest;

	do {
		/*
		 * More than was taken is a bug of the caller; a huge count would then block
		 * everything.
		 */
		assert(bytes <= held);
		rest = bytes <= held ? held - bytes : 0;
	} while (!atomic_compare_exchange_weak_explicit(
		&account->held_bytes, &held, rest, memory_order_relaxed, memory_order_relaxed));
	atomic_fetch_add_explicit(&account->n_released, 1, memory_order_relaxed);
}

void
limit_set(struct account *account, uint64_t limit_bytes)
{
	atomic_store_explicit(&account->limit_bytes, limit_bytes, memory_order_relaxed);
}

uint64_t
limit_get(const struct account *account)
{
	return atomic_load_explicit(&account->limit_bytes, memory_order_relaxed);
}

uint64_t
limit_held_bytes(const struct account *account)
{
	return atomic_load_explicit(&account->held_bytes, memory_order_relaxed);
}

uint64_t
limit_peak_bytes(const struct account *account)
{
	return atomic_load_explicit(&account->peak_bytes, memory_order_relaxed);
}

uint64_t
limit_n_released(const struct account *account)
{
	return atomic_load_explicit(&account->n_released, memory_order_relaxed);
}

uint64_t
limit_free_bytes(const struct account *account, uint64_t driver_free_bytes)
{
	uint64_t held = limit_held_bytes(account);
	uint64_t limit = limit_get(account);
	uint64_t room = held < limit ? limit - held : 0;

	return room < driver_free_bytes ? room : driver_free_bytes;
}
