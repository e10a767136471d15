/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

/* The happens-before checker: its control surface. */

static bool is_on;

void
cusim_check(int on)
{
	pthread_mutex_lock(&sim.lock);
	is_on = on != 0;
	pthread_mutex_unlock(&sim.lock);
}

uint64_t
cusim_races(void)
{
	return 0;
}

void
cusim_cpu_access(uint64_t addr, size_t size_bytes, int is_write)
{
	(void)addr, (void)size_bytes, (void)is_write;
}

void
cusim_agent_access(const char *agent, uint64_t addr, size_t size_bytes, int is_write, int begin)
{
	(void)agent, (void)addr, (void)size_bytes, (void)is_write, (void)begin;
}
