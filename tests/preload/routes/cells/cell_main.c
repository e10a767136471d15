/* SPDX-License-Identifier: MIT */
/* The program over what it is linked with: libcuda (cell_linked.c) or a runtime (cell_runtime.c).
 */
#include "tests/preload/routes/cells/cell.h"

int
main(void)
{
	cell_print("device", "version %d", cell_plugin_version());
	cell_run_all(cell_plugin_ops(), "", true);
	return 0;
}
