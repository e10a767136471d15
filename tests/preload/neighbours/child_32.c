/* SPDX-License-Identifier: MIT */
/* A program for i386 that needs nothing but the loader and libc: no header and no start file of it.
 */
int write(int fd, const void *bytes, unsigned int n_bytes);
void _exit(int status) __attribute__((noreturn));
void _start(void);

void
_start(void)
{
	static const char line[] = "32-bit child runs\n";

	_exit(write(1, line, sizeof(line) - 1) == sizeof(line) - 1 ? 7 : 1);
}
