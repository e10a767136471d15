/* SPDX-License-Identifier: MIT */
/* Calls by its link a function of the software device's that is in no header. */
int cuSimUnknown(void);
int plugin_call(void);

int
plugin_call(void)
{
	return cuSimUnknown();
}
