/* SPDX-License-Identifier: MIT */
#include "tools/text.h"

#include <inttypes.h>

#include <glib.h>

char *
text_size(uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1023.5 && unit < G_N_ELEMENTS(units) - 1) {
		value /= 1024;
		unit++;
	}
	return g_strdup_printf("%.*f %s", unit == 0 || value >= 99.95 ? 0 : 1, value, units[unit]);
}

char *
text_duration(uint64_t seconds)
{
	if (seconds < 60)
		return g_strdup_printf("%" PRIu64 " s", seconds);
	if (seconds < 3600)
		return g_strdup_printf("%" PRIu64 " min %" PRIu64 " s", seconds / 60, seconds % 60);
	if (seconds < 86400)
		return g_strdup_printf("%" PRIu64 " h %" PRIu64 " min", seconds / 3600,
				       seconds / 60 % 60);
	return g_strdup_printf("%" PRIu64 " d %" PRIu64 " h", seconds / 86400, seconds / 3600 % 24);
}

char *
text_plain(const char *text)
{
	GString *plain = g_string_new(NULL);

	for (const char *at = text; *at; at = g_utf8_next_char(at)) {
		const gunichar c = g_utf8_get_char(at);

		g_string_append_unichar(plain, g_unichar_iscntrl(c) ? 0xfffd : c);
	}
	return g_string_free(plain, FALSE);
}
