/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Blocks of other processes that this one has opened by sealed handles (policy/ipc_handle.h).
 *
 * The driver maps a whole allocation of the exporter's; several blocks of it may be open, and each
 * several times. It is opened once for a context and closed with the last of them: how often a
 * driver lets one process open an allocation differs between versions. Whatever was opened by the
 * driver's own handle is the driver's alone.
 *
 * Locking: an internal lock, never held across a driver call. While the driver opens or closes an
 * allocation, threads that want the same one wait.
 */
#include <stdbool.h>

#include "policy/ipc_handle.h"
#include "shim/hooks.h"

/* What a program has open at an address. */
struct import_info {
	CUdeviceptr addr; /* 0: inside an opened allocation, and in no open block */
	size_t size_bytes;
	uint64_t serial; /* no other import of this process has it */
};

/* The driver's functions: to open of the version that was called, and to close. */
typedef CUresult imports_open_fn(CUdeviceptr *ret_addr, CUipcMemHandle handle, unsigned flags);
typedef CUresult imports_close_fn(CUdeviceptr addr);

/* handle: as unsealed. */
CUresult imports_open(const CUipcMemHandle *handle, const struct ipc_part *part, unsigned flags,
		      imports_open_fn *open, imports_close_fn *close, CUdeviceptr *ret_addr);

/* False: not opened here, so the driver's to close. */
bool imports_close(CUdeviceptr addr, imports_close_fn *close, CUresult *ret_status);

/* False: no allocation that was opened here lies there. */
bool imports_find(CUdeviceptr addr, struct import_info *ret_info);

/*
 * The context is gone, and with it all that was opened in it before imports_now() answered this:
 * its handle may be another context's already.
 */
void imports_forget(CUcontext context, uint64_t before);
uint64_t imports_now(void);
