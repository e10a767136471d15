/* SPDX-License-Identifier: MIT */
/*
 * The cells over a linked libcuda: a program (with cell_main.c), and a plug-in that brings libcuda.
 */
#include "tests/preload/routes/cells/cell.h"

static const struct cell_driver driver = {
#define CELL_DRIVER(symbol, query, version, kind) .symbol = symbol,
#include "tests/preload/routes/cells/cell_driver.def"
#undef CELL_DRIVER
};

const struct cell_ops *
cell_plugin_ops(void)
{
	static struct cell_ops ops;

	ops = cell_ops_of_driver(&driver);
	return &ops;
}

int
cell_plugin_version(void)
{
	int version = 0;

	cuDriverGetVersion(&version);
	return version;
}
