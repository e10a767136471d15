/* SPDX-License-Identifier: MIT */
/*
 * Asks each tool (tool.c) and itself the same questions, and prints the answers: by object and
 * name, so that runs compare. Names that the shim owns are called, not compared.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {"ompt_start_tool", "malloc", "tail_next_a", "no_such_name",
				    "cuNoSuchFunction"};

static void
print_answer(const char *who, const char *handle, const char *name, void *found)
{
	const char *error = dlerror(), *slash;
	Dl_info info = {0};

	if (found)
		dladdr(found, &info);
	slash = info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
	printf("%s %s %s: %s %s (%s)\n", who, handle, name, slash ? slash + 1 : "nothing",
	       info.dli_sname ? info.dli_sname : "-", error ? error : "no error");
}

static void
ask(const char *who, void *(*next)(void *, const char *))
{
	const struct {
		const char *name;
		void *handle;
	} handles[] = {{"NEXT", RTLD_NEXT}, {"DEFAULT", RTLD_DEFAULT}};

	for (size_t h = 0; h < 2; h++) {
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			void *first = next(handles[h].handle, names[i]);

			print_answer(who, handles[h].name, names[i], first);
			for (int again = 0; again < 4; again++)
				if (next(handles[h].handle, names[i]) != first)
					printf("%s %s: another answer\n", who, names[i]);
			dlerror();
		}
	}
}

/* The last thing a host does at -O2 is a jump, too. */
__attribute__((noinline)) static void *
ask_dlsym(void *handle, const char *name)
{
	return dlsym(handle, name);
}

static void
call_init(const char *how, void *function)
{
	printf("cuInit by %s: %d\n", how, function ? ((int (*)(unsigned int))function)(0) : -2);
}

int
main(void)
{
	static const char *const tools[] = {"a", "b"};
	const char *(*start)(unsigned int);
	void *libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	char name[64];

	start = (const char *(*)(unsigned int))dlsym(RTLD_DEFAULT, "ompt_start_tool");
	printf("start: %s\n", start ? start(0) : "nobody");
	ask("host", ask_dlsym);
	for (int i = 0; i < 2; i++) {
		static const char *const kinds[] = {"tail_next_", "plain_next_"};
		void *(*version)(void *, const char *, const char *);

		for (int k = 0; k < 2; k++) {
			void *found;

			snprintf(name, sizeof(name), "%s%s", kinds[k], tools[i]);
			found = dlsym(RTLD_DEFAULT, name);
			if (found)
				ask(name, (void *(*)(void *, const char *))found);
		}
		snprintf(name, sizeof(name), "tail_version_%s", tools[i]);
		version = (void *(*)(void *, const char *, const char *))dlsym(RTLD_DEFAULT, name);
		dlerror();
		if (version)
			print_answer(name, "NEXT", "no version",
				     version(RTLD_NEXT, "ompt_start_tool", "NONE_1"));
	}
	call_init("DEFAULT", dlsym(RTLD_DEFAULT, "cuInit"));
	call_init("NEXT", dlsym(RTLD_NEXT, "cuInit"));
	call_init("handle", dlsym(libcuda, "cuInit"));
	for (int i = 0; i < 2; i++) {
		int (*n_inits)(void);

		snprintf(name, sizeof(name), "n_inits_%s", tools[i]);
		n_inits = (int (*)(void))dlsym(RTLD_DEFAULT, name);
		if (n_inits)
			printf("%s: %d\n", name, n_inits());
	}
	return 0;
}
