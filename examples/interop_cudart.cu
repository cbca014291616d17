// SPDX-License-Identifier: MIT
/*  interop_cudart.cu - Ignis next to code that uses the CUDA runtime

    Ignis works in the device's primary context, the same that cudart uses. So pointers, streams and events can go both
    ways:

      - memory from cudaMalloc becomes an array with ignis_array_desc.ptr; Ignis never frees it,
      - memory of an array becomes a pointer for a __global__ function with ignis_array_device_ptr,
      - ignis_stream_use puts Ignis' work into a cudaStream_t, in order with what else is in there,
      - ignis_stream_forget comes before cudaStreamDestroy.

        nvcc -I. examples/interop_cudart.cu -o interop_cudart && ./interop_cudart
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

static const int n = 1000;

__global__ void square(float *x, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        x[i] *= x[i];
}

static const char *add_index_source = "extern \"C\" __global__ void add_index(float *x, int count)\n"
                                      "{\n"
                                      "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                                      "    if (i < count) x[i] += i;\n"
                                      "}\n";

/*  Ignis reports its own failures on stderr, cudart does not. */
static void require(ignis_status status)
{
    if (status != IGNIS_OK)
        exit(1);
}

static void require(cudaError_t error)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "cudart: %s\n", cudaGetErrorString(error));
    exit(1);
}

int main()
{
    float host[n];
    float *memory = nullptr;
    cudaStream_t stream;

    require(cudaMalloc(reinterpret_cast<void **>(&memory), n * sizeof(float)));
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    require(ignis_setup(nullptr));
    require(ignis_stream_use(stream)); /* from here on Ignis' work of this thread goes into the stream */

    ignis_array_desc desc = {};
    desc.shape = IGNIS_SHAPE(n);
    ignis_array own = ignis_array_create(desc); /* memory of Ignis ... */
    desc.ptr = memory;
    ignis_array wrapped = ignis_array_create(desc); /* ... and of cudaMalloc */

    ignis_kernel_desc program = {};
    program.source = add_index_source;
    program.entry = "add_index";
    ignis_kernel add_index = ignis_kernel_compile(program);
    ignis_launch launch = {{(n + 255) / 256}, {256}, 0, false, false};
    ignis_arg args[] = {ignis_arg_array(wrapped), ignis_arg_i32(n)};

    /* One stream, four authors: no synchronisation is needed until the result is read. */
    require(ignis_array_fill(wrapped, 1));                    /* a kernel of Ignis: 1 */
    require(ignis_kernel_launch(add_index, launch, args, 2)); /* one compiled at run time: 1 + i */
    square<<<(n + 255) / 256, 256, 0, stream>>>(memory, n);   /* one compiled by nvcc: (1 + i)^2 */
    require(cudaGetLastError());
    require(ignis_array_copy(own, wrapped));
    require(cudaMemsetAsync(memory, 0, n * sizeof(float), stream));                                    /* cudart */
    square<<<(n + 255) / 256, 256, 0, stream>>>(static_cast<float *>(ignis_array_device_ptr(own)), n); /* (1 + i)^4 */
    require(cudaGetLastError());
    require(ignis_array_add(wrapped, wrapped, own));
    require(ignis_array_to_host(wrapped, host, IGNIS_F32, n)); /* waits for the stream */

    int wrong = 0;
    for (int i = 0; i < n; i++) {
        float squared = (1.0f + float(i)) * (1.0f + float(i));
        if (host[i] != squared * squared)
            wrong++;
    }
    printf("(1 + i)^4 = %g, %g, %g ... %g: %d of %d are wrong\n", host[0], host[1], host[2], host[n - 1], wrong, n);

    require(ignis_kernel_free(add_index));
    require(ignis_array_free(own));
    require(ignis_array_free(wrapped)); /* leaves the memory to its owner */
    require(ignis_stream_forget(stream));
    require(ignis_shutdown());
    require(cudaStreamDestroy(stream));
    require(cudaFree(memory));
    return wrong != 0;
}
