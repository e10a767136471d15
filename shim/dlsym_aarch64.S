/* SPDX-License-Identifier: MIT */
/*
 * dlsym and dlvsym for aarch64: a jump, not a call.
 *
 * dlsym finds its caller by the link register (RTLD_NEXT and RTLD_DEFAULT mean something else for
 * each caller), so a name that is not ours must reach the real function with the caller's link
 * register, stack and arguments as they were. lookup_dlsym_target() and lookup_dlvsym_target() say
 * where to go: to the real function, or to our own answer in lookup.c, which gets the return
 * address as one argument more (the real functions do not look at it).
 *
 * Both targets return straight to the caller. Neither has arguments in vector registers. x16 is
 * the register for a jump that stands for a call: "bti c" lets it land.
 */
	.text

/* void *dlsym(void *handle, const char *name) */
	.globl	dlsym
	.type	dlsym, %function
	.p2align 4
dlsym:
	.cfi_startproc
	hint	#34			/* bti c, which older assemblers do not know by name */
	stp	x29, x30, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	.cfi_offset 29, -32
	.cfi_offset 30, -24
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	mov	x0, x1
	bl	lookup_dlsym_target
	mov	x16, x0
	ldp	x0, x1, [sp, #16]
	ldp	x29, x30, [sp], #32
	.cfi_restore 30
	.cfi_restore 29
	.cfi_adjust_cfa_offset -32
	mov	x2, x30
	br	x16
	.cfi_endproc
	.size	dlsym, . - dlsym

/* void *dlvsym(void *handle, const char *name, const char *version) */
	.globl	dlvsym
	.type	dlvsym, %function
	.p2align 4
dlvsym:
	.cfi_startproc
	hint	#34
	stp	x29, x30, [sp, #-48]!
	.cfi_adjust_cfa_offset 48
	.cfi_offset 29, -48
	.cfi_offset 30, -40
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	str	x2, [sp, #32]
	mov	x0, x1
	bl	lookup_dlvsym_target
	mov	x16, x0
	ldr	x2, [sp, #32]
	ldp	x0, x1, [sp, #16]
	ldp	x29, x30, [sp], #48
	.cfi_restore 30
	.cfi_restore 29
	.cfi_adjust_cfa_offset -48
	mov	x3, x30
	br	x16
	.cfi_endproc
	.size	dlvsym, . - dlvsym

/* Landing pads are where branches end (BTI); the linker keeps the mark if all objects have it. */
	.section .note.gnu.property, "a"
	.p2align 3
	.long	4			/* bytes of the name */
	.long	16			/* bytes of what follows it */
	.long	5			/* NT_GNU_PROPERTY_TYPE_0 */
	.asciz	"GNU"
	.long	0xc0000000		/* GNU_PROPERTY_AARCH64_FEATURE_1_AND */
	.long	4
	.long	1			/* BTI */
	.long	0

	.section .note.GNU-stack, "", %progbits
