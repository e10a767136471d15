/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The driver's functions as CUDA's headers declare them, every version and both meanings of stream
 * 0, and the words of driver_api.def.
 *
 * OpenGL's, EGL's and VDPAU's own headers need not be installed: shim/foreign/ has the few types
 * that CUDA's headers take from them.
 */
#define __CUDA_API_VERSION_INTERNAL /* nothing is renamed, and every version has a prototype */
#include <cuda.h>
#include <cudaEGL.h>
#include <cudaGL.h>
#include <vdpau/vdpau.h>

#include <cudaVDPAU.h>

/* Of cudaProfiler.h, which NVIDIA's header wheels leave out. There outputMode is an enum, which is
 * unsigned. */
CUresult cuProfilerInitialize(const char *configFile, const char *outputFile,
			      unsigned int outputMode);
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

/* What a function does: one of these above all, and others as flags. */
enum driver_kind {
	DRIVER_HARMLESS = 0,
	DRIVER_ALLOCATES = 1 << 0,
	DRIVER_FREES = 1 << 1,
	DRIVER_INFORMS = 1 << 2, /* about amounts of memory */
	DRIVER_SUBMITS = 1 << 3,
	DRIVER_SYNCHRONISES = 1 << 4, /* earlier work is complete when it answers so */
	DRIVER_CAPTURES = 1 << 5,
	DRIVER_CONTEXT = 1 << 6,         /* the life of contexts and of the driver */
	DRIVER_ATTRIBUTE = 1 << 7,       /* asks about an address, an object or a device */
	DRIVER_CAN_WAIT = 1 << 8,        /* for others: processes, devices, the CPU */
	DRIVER_MAY_SYNCHRONISE = 1 << 9, /* waits for earlier work, or may; not by its contract */
};

/* Where the stream of a function is. */
enum driver_place {
	DRIVER_PLACE_NONE,
	DRIVER_PLACE_PARAM,
	DRIVER_PLACE_POINTER,
	DRIVER_PLACE_MEMBER,
	DRIVER_PLACE_ARRAY,
	DRIVER_PLACE_DEFAULT, /* stream 0, without a parameter that says so */
	DRIVER_PLACE_EVENT,   /* only an event is known */
	DRIVER_PLACE_CONTEXT, /* all streams of a context */
};
