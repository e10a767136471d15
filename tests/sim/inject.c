/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Failure injection and call counts, both by exported symbol. A rule that names a base name is
 * spread over all forms of that function, and its count runs over them together.
 */

enum {
	MAX_RULES = 64,
};

struct rule {
	char function[64];
	bool is_base;  /* the name is that of all forms */
	unsigned left; /* calls until it fails; 0: each one */
	bool is_used_up;
	CUresult code;
};

static struct rule rules[MAX_RULES];
static size_t n_rules;
static uint64_t counts[N_ENTRIES];
static bool env_is_read;

static bool
name_is_base(const char *name, bool *ret_is_base)
{
	if (entry_find(name)) {
		*ret_is_base = false;
		return true;
	}
	for (size_t i = 0; i < N_ENTRIES; i++) {
		if (strcmp(entries[i].query, name) == 0) {
			*ret_is_base = true;
			return true;
		}
	}
	return false;
}

static int
rule_add(const char *function, unsigned nth, CUresult code)
{
	struct rule *rule;
	bool is_base;

	if (!name_is_base(function, &is_base) || strlen(function) >= sizeof(rule->function))
		return -1;
	for (size_t i = 0; i < n_rules; i++) {
		if (strcmp(rules[i].function, function) == 0 &&
		    (code == CUDA_SUCCESS || rules[i].is_used_up))
			rules[i--] = rules[--n_rules];
	}
	if (code == CUDA_SUCCESS)
		return 0;
	if (n_rules == MAX_RULES)
		return -1;
	rule = &rules[n_rules++];
	*rule = (struct rule){.is_base = is_base, .left = nth, .code = code};
	strcpy(rule->function, function);
	return 0;
}

/* CUSIM_FAIL=function:nth:code[,function:nth:code] */
void
inject_init(void)
{
	const char *env = getenv("CUSIM_FAIL");
	char *copy, *save = NULL, *word;

	if (env_is_read)
		return;
	env_is_read = true;
	copy = env ? strdup(env) : NULL;
	for (word = copy ? strtok_r(copy, ",", &save) : NULL; word;
	     word = strtok_r(NULL, ",", &save)) {
		char name[64];
		unsigned nth, code;

		if (sscanf(word, "%63[^:]:%u:%u", name, &nth, &code) != 3 ||
		    rule_add(name, nth, (CUresult)code) != 0)
			fprintf(stderr, "cusim: CUSIM_FAIL=%s is not function:nth:code\n", word);
	}
	free(copy);
}

void
inject_count(enum entry_id e)
{
	inject_init();
	counts[e]++;
}

CUresult
inject_take(enum entry_id e)
{
	for (size_t i = 0; i < n_rules; i++) {
		struct rule *rule = &rules[i];

		if (rule->is_used_up ||
		    strcmp(rule->function, rule->is_base ? entries[e].query : entries[e].symbol))
			continue;
		if (rule->left == 0)
			return rule->code;
		if (--rule->left == 0) {
			rule->is_used_up = true;
			return rule->code;
		}
	}
	return CUDA_SUCCESS;
}

int
cusim_fail(const char *function, unsigned nth, int code)
{
	int r;

	pthread_mutex_lock(&sim.lock);
	r = rule_add(function, nth, (CUresult)code);
	pthread_mutex_unlock(&sim.lock);
	return r;
}

void
cusim_fail_clear(void)
{
	pthread_mutex_lock(&sim.lock);
	n_rules = 0;
	pthread_mutex_unlock(&sim.lock);
}

uint64_t
cusim_call_count(const char *function)
{
	bool is_base;
	uint64_t n = 0;

	if (!name_is_base(function, &is_base))
		return 0;
	pthread_mutex_lock(&sim.lock);
	for (size_t i = 0; i < N_ENTRIES; i++) {
		if (strcmp(is_base ? entries[i].query : entries[i].symbol, function) == 0)
			n += counts[i];
	}
	pthread_mutex_unlock(&sim.lock);
	return n;
}

void
cusim_reset_counts(void)
{
	pthread_mutex_lock(&sim.lock);
	memset(counts, 0, sizeof(counts));
	pthread_mutex_unlock(&sim.lock);
}
