// SPDX-License-Identifier: MIT
/*  share_array_b.c - the other half of examples/share_array_a.c: receives its array, and changes it in place

    ignis_channel_connect waits for a. ignis_share_receive returns an ordinary array: kernels, copies and
    ignis_array_free work as with any other. Work on a GPU is asynchronous, so b waits for its own before it tells a to
    read.

        cc -I. examples/share_array_a.c -o share_array_a -lm -ldl -lpthread
        cc -I. examples/share_array_b.c -o share_array_b -lm -ldl -lpthread && (./share_array_a & ./share_array_b; wait)
*/
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"

#include <stdio.h>

static const char *source = "extern \"C\" __global__ void tenfold(float *x) { x[threadIdx.x] *= 10; }";

int main(void)
{
    ignis_channel_desc meet = {.name = "share_array", .timeout_s = 20};
    ignis_kernel_desc program = {.source = source, .entry = "tenfold"};
    ignis_launch launch = {.grid = {1}, .block = {4}};

    ignis_setup(NULL);
    ignis_channel a = ignis_channel_connect(&meet);
    ignis_array x = ignis_share_receive(a);
    ignis_kernel tenfold = ignis_kernel_compile(&program);
    ignis_arg args[] = {ignis_arg_array(x)};
    ignis_kernel_launch(tenfold, &launch, args, 1);
    ignis_synchronize();
    ignis_channel_send(a, "10x", 3, NULL, 0);
    ignis_array_free(x); /* a may free it now */
    ignis_channel_send(a, "bye", 3, NULL, 0);
    if (ignis_status_last() != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */

    printf("b: done\n");
    ignis_kernel_free(tenfold);
    return ignis_shutdown();
}
