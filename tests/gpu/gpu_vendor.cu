/* SPDX-License-Identifier: MIT */
/*
 * A program that uses cuBLAS, cuFFT and, where its header is there, cuDNN: memory that it asks for
 * itself, and memory that these libraries ask for. Prints values that are the same in every run.
 */
#include <cublas_v2.h>
#include <cufft.h>
#include <vector>
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define HAS_CUDNN 1
#endif

#include "gpu_common.cuh"

enum { N = 512 };

#define MUST_ZERO(call) \
	do { \
		const int must_status = (int)(call); \
		if (must_status) { \
			fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call, \
				must_status); \
			exit(1); \
		} \
	} while (0)

static __global__ void
count_up(float *values, int n_values)
{
	const int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n_values)
		values[i] = (float)(i % 13) - 6;
}

static float *
make(int n_values)
{
	float *values;

	MUST(cudaMalloc(&values, n_values * sizeof(*values)));
	count_up<<<(n_values + 255) / 256, 256>>>(values, n_values);
	MUST(cudaGetLastError());
	return values;
}

static double
sum_of(const float *values, int n_values)
{
	std::vector<float> seen(n_values);
	double sum = 0;

	MUST(cudaMemcpy(seen.data(), values, n_values * sizeof(*values), cudaMemcpyDeviceToHost));
	for (int i = 0; i < n_values; i++)
		sum += seen[i] * (i % 7);
	return sum;
}

static void
multiply()
{
	const float one = 1, zero = 0;
	float *a = make(N * N), *b = make(N * N), *c = make(N * N);
	cublasHandle_t handle;

	MUST_ZERO(cublasCreate(&handle));
	MUST_ZERO(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, N, N, N, &one, a, N, b, N, &zero, c,
			      N));
	MUST(cudaDeviceSynchronize());
	printf("cublas: %.9g\n", sum_of(c, N * N));
	MUST_ZERO(cublasDestroy(handle));
	for (float *block : {a, b, c})
		MUST(cudaFree(block));
}

static void
transform()
{
	float *data = make(2 * N * N);
	cufftHandle plan;

	MUST_ZERO(cufftPlan2d(&plan, N, N, CUFFT_C2C));
	MUST_ZERO(cufftExecC2C(plan, (cufftComplex *)data, (cufftComplex *)data, CUFFT_FORWARD));
	MUST(cudaDeviceSynchronize());
	printf("cufft: %.6g\n", sum_of(data, 2 * N * N));
	MUST_ZERO(cufftDestroy(plan));
	MUST(cudaFree(data));
}

#ifdef HAS_CUDNN
static void
convolve()
{
	enum { IMAGES = 8, CHANNELS = 16, SIDE = 32 };
	const float one = 1, zero = 0;
	const int n_values = IMAGES * CHANNELS * SIDE * SIDE, n_weights = CHANNELS * CHANNELS * 9;
	float *in = make(n_values), *out = make(n_values), *weights = make(n_weights);
	cudnnConvolutionDescriptor_t convolution;
	cudnnTensorDescriptor_t tensor;
	cudnnFilterDescriptor_t filter;
	cudnnHandle_t handle;
	size_t n_bytes = 0;
	void *space = NULL;

	MUST_ZERO(cudnnCreate(&handle));
	MUST_ZERO(cudnnCreateTensorDescriptor(&tensor));
	MUST_ZERO(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, IMAGES,
					     CHANNELS, SIDE, SIDE));
	MUST_ZERO(cudnnCreateFilterDescriptor(&filter));
	MUST_ZERO(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, CHANNELS,
					     CHANNELS, 3, 3));
	MUST_ZERO(cudnnCreateConvolutionDescriptor(&convolution));
	MUST_ZERO(cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1,
						  CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
	MUST_ZERO(cudnnGetConvolutionForwardWorkspaceSize(
		handle, tensor, filter, convolution, tensor,
		CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, &n_bytes));
	if (n_bytes)
		MUST(cudaMalloc(&space, n_bytes));
	MUST_ZERO(cudnnConvolutionForward(handle, &one, tensor, in, filter, weights, convolution,
					  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, space,
					  n_bytes, &zero, tensor, out));
	MUST(cudaDeviceSynchronize());
	printf("cudnn: %.9g\n", sum_of(out, n_values));
	MUST_ZERO(cudnnDestroy(handle));
	for (void *block : {(void *)in, (void *)out, (void *)weights, space})
		MUST(cudaFree(block));
}
#endif

int
main()
{
	multiply();
	transform();
#ifdef HAS_CUDNN
	convolve();
#else
	printf("cudnn: no header\n");
#endif
	return 0;
}
