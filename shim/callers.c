/* SPDX-License-Identifier: MIT */
/*
 * From address to tag, fastest first: the thread's last answer, the table of sites, the loader's
 * list.
 *
 * Why a remembered answer is true. The code at the address is about to be returned to, so its
 * object is loaded for as long as the look-up takes: whatever is remembered for it was stored
 * before its unload began. An unload raises `unloads` before it begins, and when it has ended
 * clears the sites and then moves `unloads` on. An object that comes to lie at the same address
 * was loaded after the old one went, and both happen under the loader's lock, so whoever calls from
 * it sees the raised count (and remembers and trusts nothing) or the new one (and an empty table).
 *
 * Why the loader's lock does no harm. dl_iterate_phdr takes the lock that guards the list, not the
 * one that is held while constructors and destructors run: glibc holds it only to link objects in
 * and out, and around the callbacks of dl_iterate_phdr. It is recursive, so such a callback may
 * itself allocate. Nobody who holds it waits for a lock of this library's, since none is held here.
 * What is left is a program whose callback waits for another thread's CUDA call.
 */
#include "shim/callers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "pool/thread.h"
#include "shim/elf_walk.h"

enum {
	PATH_BYTES = 256, /* with the end; of a longer path the end is kept */
	N_SITES = 1024,   /* a power of two */
	N_PROBES = 4,
	TAG_BITS = 8,
};

_Static_assert(STATS_N_TAGS <= 1 << TAG_BITS, "a site has no room for the tag");

/* `unloads`: how many are under way, and above that how many have ended. */
#define UNLOADS_UNDER_WAY UINT64_C(0xffff)
#define UNLOADS_ENDED_ONE UINT64_C(0x10000)

struct object {
	uint64_t path_hash; /* of the whole path */
	char path[PATH_BYTES];
};

static struct object objects[STATS_N_TAGS]; /* from CALLERS_FIRST on; appended, never changed */
static atomic_uint n_tags = CALLERS_FIRST;
static pthread_mutex_t append_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic uint64_t unloads;
static _Atomic uint64_t seen_unloads; /* the loader's own count, when it was last looked at */

/* Address and tag in one word; 0: empty. */
static _Atomic uint64_t sites[N_SITES];
static atomic_bool are_sites_used; /* a program without CUDA never touches the table */

static _Thread_local struct {
	uintptr_t address;
	uint64_t unloads;
	unsigned tag;
} last;

static uint64_t
path_hash(const char *path)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (; *path; path++)
		hash = (hash ^ (unsigned char)*path) * UINT64_C(0x100000001b3);
	return hash;
}

/* The tag of a known path among the first n, or 0. */
static unsigned
find_object(uint64_t hash, unsigned n)
{
	for (unsigned tag = CALLERS_FIRST; tag < n; tag++)
		if (objects[tag].path_hash == hash)
			return tag;
	return 0;
}

static unsigned
append_locked(const char *path, uint64_t hash)
{
	const unsigned n = atomic_load_explicit(&n_tags, memory_order_relaxed);
	const unsigned known = find_object(hash, n);
	const size_t len = strlen(path);

	if (known || n == STATS_N_TAGS)
		return known ? known : CALLERS_OTHER;
	objects[n].path_hash = hash;
	strcpy(objects[n].path, len < PATH_BYTES ? path : path + len - (PATH_BYTES - 1));
	/* Release: the entry, for the acquires in object_tag() and callers_path(). */
	atomic_store_explicit(&n_tags, n + 1, memory_order_release);
	return n;
}

static unsigned
object_tag(const char *path)
{
	const uint64_t hash = path_hash(path);
	unsigned tag = find_object(hash, atomic_load_explicit(&n_tags, memory_order_acquire));

	if (tag)
		return tag;
	thread_lock(&append_lock);
	tag = append_locked(path, hash);
	thread_unlock(&append_lock);
	return tag;
}

const char *
callers_path(unsigned tag)
{
	static const char *const no_objects[CALLERS_FIRST] = {
		[CALLERS_DRIVER] = "[driver]",
		[CALLERS_OTHER] = "[other]",
		[CALLERS_ANONYMOUS] = "[anonymous]",
	};

	if (tag < CALLERS_FIRST)
		return no_objects[tag];
	return tag < atomic_load_explicit(&n_tags, memory_order_acquire) ? objects[tag].path : NULL;
}

static uint64_t
site_of(uintptr_t address, unsigned tag)
{
	return (uint64_t)address << TAG_BITS | tag;
}

static size_t
first_place(uintptr_t address)
{
	return (address * UINT64_C(0x9e3779b97f4a7c15)) >> 32;
}

static bool
find_site(uintptr_t address, unsigned *ret_tag)
{
	const size_t place = first_place(address);

	for (size_t i = 0; i < N_PROBES; i++) {
		/* Relaxed: one word, and see the head of this file. */
		const uint64_t site =
			atomic_load_explicit(&sites[(place + i) % N_SITES], memory_order_relaxed);

		if (site >> TAG_BITS == address) {
			*ret_tag = site & ((1 << TAG_BITS) - 1);
			return true;
		}
	}
	return false;
}

/* Into the first empty place of its four, or over the first. */
static void
remember_site(uintptr_t address, unsigned tag)
{
	const size_t place = first_place(address);
	size_t at = place % N_SITES;

	if (address >> (64 - TAG_BITS))
		return;
	atomic_store_explicit(&are_sites_used, true, memory_order_relaxed);
	for (size_t i = 0; i < N_PROBES; i++) {
		if (!atomic_load_explicit(&sites[(place + i) % N_SITES], memory_order_relaxed)) {
			at = (place + i) % N_SITES;
			break;
		}
	}
	atomic_store_explicit(&sites[at], site_of(address, tag), memory_order_relaxed);
}

static void
forget_sites(void)
{
	if (!atomic_load_explicit(&are_sites_used, memory_order_relaxed))
		return;
	for (size_t i = 0; i < N_SITES; i++)
		atomic_store_explicit(&sites[i], 0, memory_order_relaxed);
}

void
callers_begin_unload(void)
{
	/* The loader's lock, taken next, orders it before what is loaded afterwards. */
	atomic_fetch_add_explicit(&unloads, 1, memory_order_acq_rel);
}

void
callers_end_unload(void)
{
	forget_sites();
	/* Release: who sees the new count sees the table as it is now. */
	atomic_fetch_add_explicit(&unloads, UNLOADS_ENDED_ONE - 1, memory_order_acq_rel);
}

/* An unload that nobody told of: what was remembered before it is not trusted any more. */
static void
compare_unloads(uint64_t n_unloads)
{
	if (atomic_exchange_explicit(&seen_unloads, n_unloads, memory_order_relaxed) == n_unloads)
		return;
	callers_begin_unload();
	callers_end_unload();
}

/* Ask the loader. Code in no object is not remembered: an object may be loaded where it was. */
static unsigned
find_tag(uintptr_t address, bool *ret_is_object)
{
	struct elf_object object;

	*ret_is_object = elf_object_at((const void *)address, &object);
	if (!*ret_is_object)
		return CALLERS_ANONYMOUS;
	compare_unloads(object.n_unloads);
	return object_tag(object.name);
}

static unsigned
tag_slow(uintptr_t address, uint64_t now)
{
	const bool is_settled = !(now & UNLOADS_UNDER_WAY);
	bool is_object = true;
	unsigned tag;

	if (!is_settled)
		return find_tag(address, &is_object);
	if (!find_site(address, &tag)) {
		tag = find_tag(address, &is_object);
		if (is_object)
			remember_site(address, tag);
	}
	if (is_object) {
		last.address = address;
		last.unloads = now;
		last.tag = tag;
	}
	return tag;
}

unsigned
callers_tag(const void *return_address)
{
	/* Acquire: pairs with the release in callers_end_unload(). */
	const uint64_t now = atomic_load_explicit(&unloads, memory_order_acquire);

	if (__builtin_expect(last.address == (uintptr_t)return_address && last.unloads == now, 1))
		return last.tag;
	return tag_slow((uintptr_t)return_address, now);
}
