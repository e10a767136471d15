/* SPDX-License-Identifier: MIT */
/* An order that has nothing to do, for programs that take the announcements (shim/submit.h) alone.
 */
#include "shim/order.h"

bool
order_before_submission(struct submit_target target, const struct heap_touch *touch, bool can_wait,
			struct heap **ret_blocked)
{
	(void)target, (void)touch, (void)can_wait, (void)ret_blocked;
	return true;
}

void
order_after_blocker(struct heap *blocked)
{
	(void)blocked;
}
