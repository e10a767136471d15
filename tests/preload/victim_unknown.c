/* SPDX-License-Identifier: MIT */
/*
 * A function or a table of the driver's that no table of the shim's knows is handed out untouched,
 * named in the dump, and puts coverage in doubt. What is known, or not the driver's, does not.
 *
 * usage: victim_unknown WAY DUMP.json [PLUGIN]    under the shim, on the software device
 *   WAY  known, foreign, dlsym, early (before anything else is looked up), next, dlvsym, proc,
 *        table, recorded_table, linked (by PLUGIN, which is loaded late)
 */
#include <unistd.h>

#include "shim/driver_api.h"
#include "tests/preload/victim_dump.h"

/* The software device's, in no header. */
#define UNKNOWN "cuSimUnknown"

static const char *const known[] = {
#define DRIVER_API_VERSION(version)
#define DRIVER(symbol, ...) #symbol,
#define SUBMIT(symbol, ...) #symbol,
#define SYNC(symbol, ...) #symbol,
#include "shim/driver_api.def"
};

typedef CUresult call_nothing(void);

/* Found, the driver's own, and alive. */
static void
expect_driver_function(void *function)
{
	Dl_info info;

	EXPECT(function && dladdr(function, &info) && strstr(info.dli_fname, "libcuda.so"),
	       "the answer is not the driver's");
	if (function)
		EXPECT(((call_nothing *)function)() == CUDA_ERROR_NOT_SUPPORTED,
		       "it is another function");
}

static void
ask_for_the_known(void)
{
	void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
	CUdriverProcAddressQueryResult status;
	void *found;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		EXPECT(dlsym(libcuda, known[i]), "%s is not found", known[i]);
		for (cuuint64_t flags = 0; flags <= 2; flags++)
			cuGetProcAddress_v2(known[i], &found, 13000, flags, &status);
	}
	dlsym(libcuda, "cuNoSuchFunction");
	dlsym(libcuda, "cusim_violations"); /* exported by libcuda, in another form */
	cuGetProcAddress_v2("cuNoSuchFunction", &found, 13000, 0, &status);
	cuGetProcAddress_v2("", &found, 13000, 0, &status);
	dlclose(libcuda);
}

/* A function of this name in the program, which libcuda does not have. */
__attribute__((visibility("default"))) CUresult cuMine(void);

CUresult
cuMine(void)
{
	return CUDA_SUCCESS;
}

static void
ask_for_what_is_not_the_drivers(void)
{
	void *self = dlopen(NULL, RTLD_NOW);

	EXPECT(dlsym(self, "cuMine") == (void *)cuMine, "the program's own function is not found");
	EXPECT(dlsym(RTLD_DEFAULT, "cuMine") == (void *)cuMine, "nor by default");
	dlclose(self);
}

static void
ask_proc_address(void)
{
	CUdriverProcAddressQueryResult status;
	void *found = NULL;

	MUST(cuGetProcAddress_v2(UNKNOWN, &found, 13000, 0, &status));
	expect_driver_function(found);
}

static void
ask_for_table(const unsigned char id[16])
{
	const void *table = NULL;
	CUuuid copy;

	memcpy(copy.bytes, id, sizeof(copy.bytes));
	MUST(cuGetExportTable(&table, &copy));
	EXPECT(table, "no table came");
}

static const unsigned char unknown_table[16] = {0xf7, 0xcf, 0xf9, 0x51, 5};
static const unsigned char recorded_tables[][16] = {
	{0xf8, 0xcf, 0xf9, 0x51, 5},                     /* the runtime's */
	{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, /* cuBLAS's */
	 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2},
};

static void
ask_for_recorded_tables(void)
{
	for (size_t i = 0; i < sizeof(recorded_tables) / sizeof(recorded_tables[0]); i++)
		ask_for_table(recorded_tables[i]);
}

static const char *plugin_path;

static void
load_plugin(void)
{
	void *plugin = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
	call_nothing *call = NULL;

	if (plugin)
		*(void **)&call = dlsym(plugin, "plugin_call");
	EXPECT(call && call() == CUDA_ERROR_NOT_SUPPORTED, "the plug-in does not work");
}

static void
go(const char *way)
{
	if (!strcmp(way, "linked"))
		load_plugin();
	else if (!strcmp(way, "known"))
		ask_for_the_known();
	else if (!strcmp(way, "foreign"))
		ask_for_what_is_not_the_drivers();
	else if (!strcmp(way, "proc"))
		ask_proc_address();
	else if (!strcmp(way, "table"))
		ask_for_table(unknown_table);
	else if (!strcmp(way, "recorded_table"))
		ask_for_recorded_tables();
	else if (!strcmp(way, "next"))
		expect_driver_function(dlsym(RTLD_NEXT, UNKNOWN));
	else if (!strcmp(way, "dlvsym"))
		dlvsym(RTLD_DEFAULT, UNKNOWN, "NONE_1"); /* found or not, it was asked for */
	else
		expect_driver_function(dlsym(RTLD_DEFAULT, UNKNOWN));
}

static void
check_dump(const char *way, const char *text)
{
	const bool is_in_doubt = strcmp(way, "known") != 0 && strcmp(way, "foreign") != 0 &&
				 strcmp(way, "recorded_table") != 0;
	const char *name =
		strcmp(way, "table") != 0
			? "\"unknown\": [\"" UNKNOWN "\"]"
			: "\"unknown\": [\"export table f7cff951050000000000000000000000\"]";

	EXPECT((strstr(text, "\"stream_order\": \"off\"") != NULL) == is_in_doubt,
	       "blocks are%s handed out by stream order", is_in_doubt ? "" : " not");
	EXPECT((strstr(text, "\"why\": \"coverage in doubt: ") != NULL) == is_in_doubt,
	       "coverage is%s in doubt", is_in_doubt ? " not" : "");
	EXPECT(strstr(text, is_in_doubt ? name : "\"unknown\": []"),
	       "what is unknown is told wrongly");
}

int
main(int argc, char **argv)
{
	struct poolshim_api api;
	char *text;

	if (argc != 3 && argc != 4)
		return 2;
	victim_dump_path = argv[2];
	plugin_path = argv[3];
	if (!strcmp(argv[1], "early"))
		go(argv[1]);
	victim_start();
	if (strcmp(argv[1], "early") != 0)
		go(argv[1]);
	if (!poolshim_find(&api))
		victim_fail(__FILE__, __LINE__, "the shim is not loaded");
	if (!victim_n_failed) {
		text = victim_dump(&api);
		check_dump(argv[1], text);
		if (victim_n_failed)
			fprintf(stderr, "%.*s\n", 900, strstr(text, "\"coverage\""));
		free(text);
	}
	return victim_end("victim_unknown");
}
