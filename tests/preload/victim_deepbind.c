/* SPDX-License-Identifier: MIT */
/*
 * A library that is loaded later, and reaches the driver past the shim: nothing is handed out early
 * from then on.
 *
 * usage: victim_deepbind PLUGIN
 */
#include "tests/preload/victim_scene.h"

int
main(int argc, char **argv)
{
	struct poolshim_api api;
	struct victim_hold hold;
	struct scene scene;

	if (argc != 2)
		return 2;
	victim_start();
	if (!poolshim_find(&api))
		return 77; /* a native free waits for the kernel */
	victim_hold_init(&hold);
	scene_init(&scene, 0);
	EXPECT(scene_becomes_early(&scene, &hold, &api, true),
	       "nothing is early at all: this tests nothing");
	if (!dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND))
		exit(2);
	EXPECT(scene_becomes_early(&scene, &hold, &api, false),
	       "handed out early though a library reaches the driver unseen");
	return victim_end("victim_deepbind");
}
