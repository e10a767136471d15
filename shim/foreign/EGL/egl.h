/* SPDX-License-Identifier: MIT */
#pragma once

/* Stand-in for EGL's header: the types that cudaEGL.h uses, as EGL defines them on Linux. */
typedef int EGLint;
