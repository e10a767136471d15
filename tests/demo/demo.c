/* SPDX-License-Identifier: MIT */
/*
 * The demo program: plain C on the CUDA runtime API, as a program that knows nothing of poolshim
 * would be written.
 *
 * Each step takes a set of buffers of mixed sizes from cudaMalloc and cudaMallocHost, sends bytes
 * to the device and back through two buffers, compares them, and frees everything it does not keep
 * for the next step. Copies and fills only, so it runs on a GPU and on the software device alike.
 * Prints one line; exit code 0 when every byte came back as sent.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	N_STEPS = 12,
	N_BUFFERS = 32, /* in each step */
	N_KEPT = 8,     /* of which so many live until the end of the next step */
	N_BYTES_MIN = 512,
	N_BYTES_MAX = 4 << 20,
};

struct buffer {
	void *device;
	size_t n_bytes;
};

static struct tally {
	unsigned long n_allocations, n_errors;
	double n_mib_checked;
} tally;

static unsigned long long random_state = 88172645463325252ull;

static void
check(cudaError_t error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "demo: %s: %s\n", what, cudaGetErrorString(error));
	exit(1);
}

static unsigned long long
next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* As programs have it: many small buffers, few large ones, sizes that are rarely round. */
static size_t
random_size(void)
{
	size_t n_bytes = (size_t)N_BYTES_MIN << (next_random() % 14);

	n_bytes += next_random() % n_bytes;
	return n_bytes < N_BYTES_MAX ? n_bytes : N_BYTES_MAX;
}

static void
allocate(struct buffer *buffer)
{
	buffer->n_bytes = random_size();
	check(cudaMalloc(&buffer->device, buffer->n_bytes), "cudaMalloc");
	tally.n_allocations++;
}

static void
release(struct buffer *buffer)
{
	check(cudaFree(buffer->device), "cudaFree");
	buffer->device = NULL;
}

/* Host to device, device to device, device to host: what arrives must be what was sent. */
static void
round_trip(const struct buffer *from, const struct buffer *to, cudaStream_t stream)
{
	const size_t n_bytes = from->n_bytes < to->n_bytes ? from->n_bytes : to->n_bytes;
	const int pattern = (int)(next_random() & 0x7f);
	void *sent, *received;

	check(cudaMallocHost(&sent, n_bytes), "cudaMallocHost");
	check(cudaMallocHost(&received, n_bytes), "cudaMallocHost");
	tally.n_allocations += 2;
	memset(sent, pattern, n_bytes);
	memset(received, pattern + 1, n_bytes);

	check(cudaMemcpyAsync(from->device, sent, n_bytes, cudaMemcpyHostToDevice, stream),
	      "copy to the device");
	check(cudaMemsetAsync(to->device, 0xff, n_bytes, stream), "fill");
	check(cudaMemcpyAsync(to->device, from->device, n_bytes, cudaMemcpyDeviceToDevice, stream),
	      "copy");
	check(cudaMemcpyAsync(received, to->device, n_bytes, cudaMemcpyDeviceToHost, stream),
	      "copy to the host");
	check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");

	if (memcmp(sent, received, n_bytes) != 0)
		tally.n_errors++;
	tally.n_mib_checked += (double)n_bytes / (1 << 20);
	check(cudaFreeHost(sent), "cudaFreeHost");
	check(cudaFreeHost(received), "cudaFreeHost");
}

static void
step(struct buffer kept[N_KEPT], cudaStream_t stream)
{
	struct buffer buffers[N_BUFFERS];

	for (int i = 0; i < N_BUFFERS; i++)
		allocate(&buffers[i]);
	for (int i = 0; i + 1 < N_BUFFERS; i += 2)
		round_trip(&buffers[i], &buffers[i + 1], stream);

	for (int i = 0; i < N_BUFFERS; i++) {
		if (i >= N_KEPT)
			release(&buffers[i]);
		else if (kept[i].device)
			release(&kept[i]);
	}
	memcpy(kept, buffers, N_KEPT * sizeof(kept[0]));
}

static double
seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int
main(void)
{
	struct buffer kept[N_KEPT] = {{0}};
	struct cudaDeviceProp properties;
	cudaStream_t stream;
	double start;

	check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	start = seconds_now();
	for (int i = 0; i < N_STEPS; i++)
		step(kept, stream);
	check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

	printf("demo: %lu allocations in %d steps on %s, %.0f MiB checked, %lu errors, %.1f ms\n",
	       tally.n_allocations, N_STEPS, properties.name, tally.n_mib_checked, tally.n_errors,
	       (seconds_now() - start) * 1e3);
	for (int i = 0; i < N_KEPT; i++)
		release(&kept[i]);
	check(cudaStreamDestroy(stream), "cudaStreamDestroy");
	return tally.n_errors ? 1 : 0;
}
