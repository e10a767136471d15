/* SPDX-License-Identifier: MIT */
/* Tells whether it runs with more rights than its caller has, and what is loaded. */
#include <link.h>
#include <stdio.h>
#include <sys/auxv.h>

static int
print_object(struct dl_phdr_info *info, size_t n_bytes, void *data)
{
	(void)n_bytes, (void)data;
	printf("child loaded: %s\n", info->dlpi_name);
	return 0;
}

int
main(void)
{
	printf("secure: %lu\n", getauxval(AT_SECURE));
	dl_iterate_phdr(print_object, NULL);
	return 0;
}
