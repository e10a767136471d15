/* SPDX-License-Identifier: MIT */
// A plain Thrust program: every sort, copy and reduction takes its temporary storage with cudaMalloc and gives it back with cudaFree.
// Build: nvcc -O2 --extended-lambda -o thrust_sort thrust_sort.cu      (static runtime; add -cudart shared for the other route)
#include <chrono>
#include <cstdio>
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

static double run(thrust::device_vector<unsigned> &v, int n_iter)
{
	double sum = 0;
	for (int i = 0; i < n_iter; i++) {
		thrust::sequence(v.begin(), v.end());
		thrust::transform(v.begin(), v.end(), v.begin(), [] __device__(unsigned x) { return x * 2654435761u; });
		thrust::sort(v.begin(), v.end());
		thrust::device_vector<unsigned> copy(v);
		sum += thrust::reduce(copy.begin(), copy.end(), 0u);
	}
	return sum;
}

int main()
{
	for (int n : {10000, 1000000, 50000000}) {
		thrust::device_vector<unsigned> v(n);
		const int n_iter = n > 10000000 ? 20 : 200;
		run(v, 5);
		cudaDeviceSynchronize();
		auto start = std::chrono::steady_clock::now();
		double sum = run(v, n_iter);
		cudaDeviceSynchronize();
		double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
		printf("thrust n=%d %.1f us/iter sum %.0f\n", n, us / n_iter, sum);
	}
	return 0;
}
