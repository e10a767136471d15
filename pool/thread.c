/* SPDX-License-Identifier: MIT */
#include "pool/thread.h"

uint32_t
thread_self(void)
{
	static _Atomic uint32_t last;
	static _Thread_local uint32_t self;

	if (!self) /* relaxed: only uniqueness matters */
		self = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
	return self;
}
