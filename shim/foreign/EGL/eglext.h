/* SPDX-License-Identifier: MIT */
#pragma once

/* Stand-in for EGL's extensions: handles are pointers to what nobody else can see. */
typedef void *EGLImageKHR;
typedef void *EGLStreamKHR;
typedef void *EGLSyncKHR;
