/* SPDX-License-Identifier: MIT */
/*
 * cuGetProcAddress in both arities: route_proc_address REQUESTS, a recording of what a real runtime
 * asks (name, version, flags). Every answer must be the driver's own answer, or the hook of that
 * very function: a body with per-thread streams for flags 2, and never for others.
 */
#include "route.h"

#include "shim/elf_walk.h"

typedef int proc_address_fn(const char *name, void **pfn, int version, unsigned long long flags);
typedef int proc_address_v2_fn(const char *name, void **pfn, int version, unsigned long long flags,
			       int *status);

enum {
	PER_THREAD = 2, /* flags */
	MAX_NAME = 128,
};

static const char *const hooked[] = {
#define HOOK(symbol, query, stream0, need) #symbol,
#include "shim/hooks.def"
#undef HOOK
#define DRIVER_API_VERSION(version)
#define DRIVER(symbol, ...)
#define SUBMIT(symbol, ...) #symbol,
#define SYNC(symbol, ...) #symbol,
#include "shim/driver_api.def"
};

enum {
	N_HOOKED = sizeof(hooked) / sizeof(hooked[0]),
};

static struct elf_symbols driver_symbols, shim_symbols;
static proc_address_v2_fn *ask, *driver_ask;
static proc_address_fn *ask_v1, *driver_ask_v1;
static int n_hooks_given;

static struct elf_symbols
symbols_of(const char *path)
{
	struct link_map *map = dlopen(path, RTLD_NOW);
	struct elf_symbols symbols;

	if (!map || !elf_symbols_init(&symbols, map->l_addr, map->l_ld)) {
		route_check(false, "%s loads", path);
		exit(route_end());
	}
	return symbols;
}

/* Is `got` what the shim owes for the driver's `real`? */
static bool
is_right_swap(void *got, void *real)
{
	bool is_hooked = false;

	if (!route_is_hooking())
		return got == real;
	for (int i = 0; i < N_HOOKED; i++) {
		if (!real || elf_find_function(&driver_symbols, hooked[i]) != real)
			continue;
		is_hooked = true;
		if (elf_find_function(&shim_symbols, hooked[i]) == got)
			return true;
	}
	return !is_hooked && got == real;
}

static bool
ends_with(const char *text, const char *suffix)
{
	const size_t n = strlen(text), n_suffix = strlen(suffix);

	return n >= n_suffix && !strcmp(text + n - n_suffix, suffix);
}

static bool
is_row(const char *symbol, const char *suffix)
{
	char name[MAX_NAME];

	snprintf(name, sizeof(name), "%s%s", symbol, suffix);
	for (int i = 0; i < N_HOOKED; i++)
		if (!strcmp(hooked[i], name))
			return true;
	return false;
}

/* By its name alone: is this a wrapper that flags may get? */
static bool
fits_flags(void *wrapper, unsigned long long flags)
{
	bool is_per_thread;
	Dl_info info;

	if (!dladdr(wrapper, &info) || !info.dli_sname)
		return false;
	is_per_thread = ends_with(info.dli_sname, "_ptsz") || ends_with(info.dli_sname, "_ptds");
	if (flags != PER_THREAD)
		return !is_per_thread;
	return is_per_thread ||
	       (!is_row(info.dli_sname, "_ptsz") && !is_row(info.dli_sname, "_ptds"));
}

/* A request to the function with four arguments: the same answer. */
static bool
is_answered_v1(const char *name, int version, unsigned long long flags, void *want)
{
	void *got = (void *)1, *real = (void *)1;
	int r = ask_v1(name, &got, version, flags),
	    real_r = driver_ask_v1(name, &real, version, flags);

	return r == real_r && is_right_swap(got, real) && (r || got == want);
}

/* One request, to the program's function and to the driver's. */
static bool
is_answered(const char *name, int version, unsigned long long flags)
{
	const bool is_for_itself = !strcmp(name, "cuGetProcAddress");
	void *got = (void *)1, *real = (void *)1;
	int status = -1, real_status = -1;
	int r = ask(name, &got, version, flags, &status);
	int real_r = driver_ask(name, &real, version, flags, &real_status);

	bool is_hook = !r && got && route_is_hooking() && route_is_in(got, "libpoolshim");

	n_hooks_given += is_hook;
	if (r == real_r && status == real_status && is_right_swap(got, real) &&
	    (!is_hook || fits_flags(got, flags)) &&
	    (is_for_itself || is_answered_v1(name, version, flags, got)) &&
	    ask(name, &got, version, flags, NULL) == r && is_right_swap(got, real))
		return true;
	printf("# %s version %d flags %llu: %d in %s, driver: %d in %s\n", name, version, flags, r,
	       route_object(got), real_r, route_object(real));
	return false;
}

static void
check_recording(const char *path)
{
	FILE *file = fopen(path, "r");
	int n_requests = 0, n_per_thread = 0, n_wrong = 0, version;
	char line[256], name[MAX_NAME];
	unsigned long long flags;

	if (!file) {
		route_check(false, "%s opens", path);
		return;
	}
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "GPA2 %127s v=%d f=%llu", name, &version, &flags) != 3) {
			if (sscanf(line, "GPA2 v=%d f=%llu", &version, &flags) != 2)
				continue;
			name[0] = '\0'; /* the runtime's probe */
		}
		n_requests++;
		n_per_thread += flags == PER_THREAD;
		n_wrong += !is_answered(name, version, flags);
	}
	fclose(file);
	route_check(n_requests > 400 && n_per_thread > 50,
		    "%d requests were recorded, %d with flags 2", n_requests, n_per_thread);
	route_check(!n_wrong, "%d of them are answered wrongly", n_wrong);
	route_check(!n_hooks_given == !route_is_hooking(), "%d of them get a hook", n_hooks_given);
}

static void
check_every_row(void)
{
	static const int versions[] = {0, 2000, 3020, 4000, 10000, 11030, 12000, 13000, 99000};
	int n_wrong = 0;

	for (int i = 0; i < N_HOOKED; i++) {
		char name[MAX_NAME];
		char *suffix;

		/* callers ask without the version and stream suffixes */
		snprintf(name, sizeof(name), "%s", hooked[i]);
		while ((suffix = strrchr(name, '_')))
			*suffix = '\0';
		for (size_t v = 0; v < sizeof(versions) / sizeof(versions[0]); v++)
			for (int flags = 0; flags <= 2; flags++)
				n_wrong += !is_answered(name, versions[v], flags);
	}
	route_check(!n_wrong, "every row, version and flag: %d wrong answers", n_wrong);
}

static void
check_self(void)
{
	proc_address_fn *by_4 = NULL;
	proc_address_v2_fn *by_5 = NULL;
	void *pfn = NULL;
	int status = -1;

	route_check(!ask("cuGetProcAddress", (void **)&by_4, 11030, 0, NULL) && by_4,
		    "cuGetProcAddress of 11.3 is there");
	route_check(!ask("cuGetProcAddress", (void **)&by_5, 12000, 0, NULL) && by_5,
		    "cuGetProcAddress of 12.0 is there");
	route_check(route_is_in((void *)by_4, route_hooked_object()) &&
			    route_is_in((void *)by_5, route_hooked_object()),
		    "both are in %s", route_hooked_object());
	route_check((void *)by_4 != (void *)by_5, "they are two functions");
	route_check(!by_4("cuMemAlloc", &pfn, 3020, 0) && route_is_in(pfn, route_hooked_object()),
		    "the one with four arguments answers");
	route_check(!by_5("cuMemAlloc", &pfn, 3020, 0, &status) && !status &&
			    route_is_in(pfn, route_hooked_object()),
		    "the one with five arguments answers");
}

static void
check_streams(void)
{
	void *legacy = NULL, *per_thread = NULL;

	ask("cuMemFreeAsync", &legacy, 11020, 0, NULL);
	ask("cuMemFreeAsync", &per_thread, 11020, PER_THREAD, NULL);
	route_check(legacy && per_thread && legacy != per_thread,
		    "the body with per-thread streams is another one");
	route_check(route_is_in(per_thread, route_hooked_object()), "it is in %s",
		    route_hooked_object());
}

static void
check_odd_arguments(void)
{
	void *got = (void *)1, *real = (void *)1;
	int status = -1;

	route_check(ask("", &got, 0, 0, NULL) == driver_ask("", &real, 0, 0, NULL) && got == real,
		    "an empty name: as the driver");
	route_check(ask("", NULL, 0, 0, NULL) == driver_ask("", NULL, 0, 0, NULL),
		    "an empty name without a place for the result: as the driver");
	route_check(ask("cuMemAlloc", NULL, 3020, 0, &status) ==
			    driver_ask("cuMemAlloc", NULL, 3020, 0, &status),
		    "no place for the result: as the driver");
	route_check(ask(NULL, &got, 3020, 0, NULL) == driver_ask(NULL, &real, 3020, 0, NULL),
		    "no name: as the driver");
	route_check(is_answered("cuNoSuchFunction", 13000, 0), "an unknown name: as the driver");
}

int
main(int argc, char **argv)
{
	void *libcuda;

	if (argc != 2)
		return 2;
	libcuda = dlopen("libcuda.so.1", RTLD_NOW);
	driver_symbols = symbols_of("libcuda.so.1");
	if (route_is_hooking()) {
		Dl_info shim;

		dladdr(dlsym(RTLD_DEFAULT, "dlsym"), &shim);
		shim_symbols = symbols_of(shim.dli_fname);
	}
	ask = (proc_address_v2_fn *)dlsym(libcuda, "cuGetProcAddress_v2");
	driver_ask =
		(proc_address_v2_fn *)elf_find_function(&driver_symbols, "cuGetProcAddress_v2");
	ask_v1 = (proc_address_fn *)dlsym(libcuda, "cuGetProcAddress");
	driver_ask_v1 = (proc_address_fn *)elf_find_function(&driver_symbols, "cuGetProcAddress");
	if (!ask || !driver_ask || !ask_v1 || !driver_ask_v1) {
		route_check(false, "both forms of cuGetProcAddress are there");
		return route_end();
	}
	check_odd_arguments();
	check_self();
	check_streams();
	check_every_row();
	n_hooks_given = 0;
	check_recording(argv[1]);
	return route_end();
}
