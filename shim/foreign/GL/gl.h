/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Stand-in for OpenGL's header: the types that cudaGL.h uses, as OpenGL defines them. The functions
 * that take them are forwarded, never called by this library, so no more than their size counts.
 */
typedef unsigned int GLuint;
typedef unsigned int GLenum;
