/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What an address is to the program: where the driver knows a segment, the program knows its block.
 *
 * Locking: none of its own; any thread. What is found is as old as the return.
 */
#include <stdbool.h>

#include "pool/heap.h"
#include "shim/hooks.h"

enum seen_kind {
	SEEN_AS_IS,   /* the driver knows it as the program does */
	SEEN_BLOCK,   /* in a block of the pool's */
	SEEN_IMPORT,  /* in a block that another process exported */
	SEEN_NOTHING, /* in memory of the driver's, and nothing of the program's */
};

struct seen {
	enum seen_kind kind;
	CUdeviceptr asked_addr;  /* by the program */
	CUdeviceptr driver_addr; /* what to ask the driver about: the same, or one nobody has */
	/* SEEN_BLOCK and SEEN_IMPORT: */
	CUdeviceptr addr;
	size_t size_bytes; /* as requested */
	uint64_t serial;   /* of the block, for seen_correct() */
	/* SEEN_BLOCK: */
	struct block_info info;
};

/* An address that no memory has, to the driver as good as addr otherwise. */
CUdeviceptr seen_nobodys_addr(CUdeviceptr addr);

void seen_at(CUdeviceptr addr, struct seen *ret_seen);

/* A block that shares the driver's allocation with others. */
bool seen_shares(const struct seen *seen);

/* The program asked for what a network card needs of the memory. With the tokens comes SYNC_MEMOPS
 * (measured). */
void seen_give_to_device(const struct seen *seen);

/* Put what the program shall see in place of what the driver answered. */
void seen_correct(const struct seen *seen, CUpointer_attribute attribute, void *data);
