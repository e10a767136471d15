/* SPDX-License-Identifier: MIT */
/*
 * dlsym and dlvsym for x86-64: a jump, not a call.
 *
 * dlsym finds its caller by the return address (RTLD_NEXT and RTLD_DEFAULT mean something else for
 * each caller), so a name that is not ours must reach the real function with the caller's return
 * address, stack and arguments as they were. lookup_dlsym_target() and lookup_dlvsym_target() say
 * where to go: to the real function, or to our own answer in lookup.c, which gets the return
 * address as one argument more (the real functions do not look at it).
 *
 * Both targets return straight to the caller. Neither has arguments in vector registers. Both begin
 * with a landing pad where the process checks that (IBT): all its objects are built for it then.
 */
	.text

/* void *dlsym(void *handle, const char *name) */
	.globl	dlsym
	.type	dlsym, @function
	.p2align 4
dlsym:
	.cfi_startproc
	endbr64
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	subq	$8, %rsp		/* a call needs the stack on 16 bytes */
	.cfi_adjust_cfa_offset 8
	movq	%rsi, %rdi
	call	lookup_dlsym_target
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	movq	(%rsp), %rdx
	jmp	*%rax
	.cfi_endproc
	.size	dlsym, . - dlsym

/* void *dlvsym(void *handle, const char *name, const char *version) */
	.globl	dlvsym
	.type	dlvsym, @function
	.p2align 4
dlvsym:
	.cfi_startproc
	endbr64
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	pushq	%rdx			/* three pushes: the stack is on 16 bytes */
	.cfi_adjust_cfa_offset 8
	movq	%rsi, %rdi
	call	lookup_dlvsym_target
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	movq	(%rsp), %rcx
	jmp	*%rax
	.cfi_endproc
	.size	dlvsym, . - dlvsym

/* The linker keeps the marks if all objects have them. */
	.section .note.gnu.property, "a"
	.p2align 3
	.long	4			/* bytes of the name */
	.long	16			/* bytes of what follows it */
	.long	5			/* NT_GNU_PROPERTY_TYPE_0 */
	.asciz	"GNU"
	.long	0xc0000002		/* GNU_PROPERTY_X86_FEATURE_1_AND */
	.long	4
	.long	3			/* IBT, SHSTK */
	.long	0

	.section .note.GNU-stack, "", @progbits
