/* SPDX-License-Identifier: MIT */
#pragma once

/* Stand-in for VDPAU's header: the types that cudaVDPAU.h uses, as VDPAU defines them. */
typedef unsigned int VdpDevice;
typedef unsigned int VdpVideoSurface;
typedef unsigned int VdpOutputSurface;
typedef unsigned int VdpFuncId;
typedef int VdpStatus;
typedef VdpStatus VdpGetProcAddress(VdpDevice device, VdpFuncId function_id,
				    void **function_pointer);
