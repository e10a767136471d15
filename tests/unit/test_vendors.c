/* SPDX-License-Identifier: MIT */
/* Which objects are a vendor's. */
#include <criterion/criterion.h>

#include "shim/hook_runtime.h"
#include "shim/vendors.h"

/* No runtime has called. */
const void *
runtime_call_site(const void *return_address)
{
	return return_address;
}

Test(vendors, libraries_are_known_by_their_names)
{
	cr_expect(vendors_has("/usr/local/cuda/lib64/libcublas.so.13"));
	cr_expect(vendors_has("libcudnn_ops.so.9.1.0"));
	cr_expect(vendors_has("/a/site-packages/torch/lib/libnccl-1a2b3c4d.so.2"));
}

Test(vendors, everything_else_is_the_program)
{
	cr_expect_not(vendors_has(""), "the main program");
	cr_expect_not(vendors_has("/usr/lib/libcudart.so.13"), "the runtime asks for others");
	cr_expect_not(vendors_has("/a/torch/lib/libtorch_cuda.so"));
	cr_expect_not(vendors_has("/a/libcublas/program"), "a folder is no library");
	cr_expect_not(vendors_has("/a/libcublasx.so"));
	cr_expect_not(vendors_has("/a/libcu.so"));
	cr_expect_not(vendors_has("[anonymous]"));
}

Test(vendors, this_test_is_none)
{
	cr_expect_not(vendors_is_caller(__builtin_return_address(0)));
}
