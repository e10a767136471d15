/* SPDX-License-Identifier: MIT */
#include "tests/sim/unsupported.h"

#define UNSUPPORTED(query, suffix, since, stream0) \
	int query##suffix(void); \
	int query##suffix(void) \
	{ \
		return unsupported_call(UNSUPPORTED_##query##suffix); \
	}
#include "tests/sim/unsupported.def"
#undef UNSUPPORTED

void *const unsupported_functions[N_UNSUPPORTED] = {
#define UNSUPPORTED(query, suffix, since, stream0) (void *)query##suffix,
#include "tests/sim/unsupported.def"
#undef UNSUPPORTED
};
