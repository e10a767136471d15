/* SPDX-License-Identifier: MIT */
#include "shim/poolshim.h"

#include <errno.h>

#include "shim/device.h"
#include "shim/dump.h"
#include "shim/init.h"
#include "shim/serve.h"

/* The figures of a device; all zero for one that is not known. */
static const struct stats *
stats_of(int device)
{
	static const struct stats nothing;
	const struct device *facts = init_is_active() ? device_find(device) : NULL;

	return facts ? facts->stats : &nothing;
}

static const struct stats *
host_stats(void)
{
	static const struct stats nothing;

	return init_is_active() ? device_host_stats() : &nothing;
}

/* total is read first: a malloc in between can only make the rest smaller. */
static size_t
free_bytes_of(const struct stats *stats)
{
	const uint64_t total_bytes = stats_read(&stats->total_bytes);
	const uint64_t used_bytes = stats_read(&stats->used_bytes);

	return used_bytes < total_bytes ? total_bytes - used_bytes : 0;
}

size_t
poolshim_used_bytes(int device)
{
	return stats_read(&stats_of(device)->used_bytes);
}

size_t
poolshim_free_bytes(int device)
{
	return free_bytes_of(stats_of(device));
}

size_t
poolshim_total_bytes(int device)
{
	return stats_read(&stats_of(device)->total_bytes);
}

size_t
poolshim_n_free_blocks(int device)
{
	return stats_read(&stats_of(device)->n_free_blocks);
}

void
poolshim_free_all_blocks(int device)
{
	serve_trim_device(device);
}

/* In poolshim.h 0 says that there is none. */
static int
set_limit(struct device *device, size_t bytes)
{
	if (!device)
		return -1;
	device_set_limit(device, bytes ? bytes : LIMIT_NONE);
	return 0;
}

static size_t
get_limit(const struct account *account)
{
	const uint64_t bytes = limit_get(account);

	return bytes == LIMIT_NONE ? 0 : bytes;
}

int
poolshim_set_limit(int device, size_t bytes)
{
	struct device *facts = init_is_active() ? device_get(device) : NULL;

	return set_limit(facts, bytes);
}

int
poolshim_set_limit_fraction(int device, double fraction)
{
	struct device *facts = init_is_active() ? device_get(device) : NULL;
	size_t bytes;

	if (!facts || !(fraction >= 0 && fraction <= 1))
		return -1;
	bytes = (size_t)((double)facts->total_bytes * fraction);
	/* A share so small that no byte is left is a limit, not none. */
	return set_limit(facts, bytes == 0 && fraction > 0 ? 1 : bytes);
}

size_t
poolshim_get_limit(int device)
{
	const struct device *facts = init_is_active() ? device_get(device) : NULL;

	return facts ? get_limit(&facts->account) : 0;
}

size_t
poolshim_host_used_bytes(void)
{
	return stats_read(&host_stats()->used_bytes);
}

size_t
poolshim_host_free_bytes(void)
{
	return free_bytes_of(host_stats());
}

size_t
poolshim_host_total_bytes(void)
{
	return stats_read(&host_stats()->total_bytes);
}

size_t
poolshim_host_n_free_blocks(void)
{
	return stats_read(&host_stats()->n_free_blocks);
}

void
poolshim_host_free_all_blocks(void)
{
	serve_trim_host();
}

int
poolshim_host_set_limit(size_t bytes)
{
	device_set_host_limit(bytes ? bytes : LIMIT_NONE);
	return 0;
}

size_t
poolshim_host_get_limit(void)
{
	return get_limit(&device_host_account);
}

int
poolshim_dump(const char *path)
{
	return init_is_own_process() ? dump_write_to(path) : -ENODEV;
}
