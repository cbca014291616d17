// SPDX-License-Identifier: MIT
/*  hello.c - two arrays on the GPU, and a kernel of our own

    The whole of Ignis in a few lines: set up, make arrays, compile a CUDA kernel from a string, run it, read the
    result.
    Errors need no check after each call. A call that is given the 0 handle of a failed one does nothing, and the first
    failure is kept, so one question at the end is enough.

        cc -I. examples/hello.c -o hello -lm -ldl -lpthread && ./hello

    Named hello.cu, it is a CUDA program just as well: nvcc -I. hello.cu -o hello
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>

static const char *source = "extern \"C\" __global__ void saxpy(float a, const float *x, float *y)\n"
                            "{\n"
                            "    y[threadIdx.x] += a * x[threadIdx.x];\n"
                            "}\n";

int main(void)
{
    static ignis_array_desc four; /* descs that are zero stand for the defaults */
    static ignis_kernel_desc program;
    static ignis_launch launch;
    float data[4] = {1, 2, 3, 4};
    four.shape = IGNIS_SHAPE(4);
    program.source = source, program.entry = "saxpy";
    launch.grid[0] = 1, launch.block[0] = 4;

    ignis_setup(NULL);
    ignis_array x = ignis_array_create(&four), y = ignis_array_create(&four);
    ignis_array_from_host(x, data, IGNIS_F32, 4);
    ignis_array_fill(y, 100);
    ignis_kernel saxpy = ignis_kernel_compile(&program);
    ignis_arg args[] = {ignis_arg_f32(10), ignis_arg_array(x), ignis_arg_array(y)};
    ignis_kernel_launch(saxpy, &launch, args, 3);
    ignis_array_to_host(y, data, IGNIS_F32, 4);
    if (ignis_status_last() != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */

    printf("y = %g %g %g %g\n", data[0], data[1], data[2], data[3]); /* y = 110 120 130 140 */
    ignis_kernel_free(saxpy);
    ignis_array_free(x);
    ignis_array_free(y);
    return ignis_shutdown();
}
