// SPDX-License-Identifier: MIT
/*  custom_kernel.c - more of what a kernel of your own can have

    Arguments of several types: an array becomes a pointer, numbers keep their type, a struct travels as bytes. Ignis
    compares their number and sizes with the kernel's parameters before the launch.
    A template: the entry names the instance, "scale<float>".
    Dynamic shared memory: the launch says how much, up to the device's limit (far above the usual 48 KB).
    A compile error: what the compiler said, with the file name that the desc gave and the line.

        cc -I. examples/custom_kernel.c -o custom_kernel -lm -ldl -lpthread && ./custom_kernel
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>
#include <stdlib.h>

#define ROWS 4
#define COLUMNS 20000 /* a row of floats: 80 KB */

typedef struct range {
    float low, high;
} range;

static const char clamp_source[] =
    "struct range { float low, high; };\n" /* as in the C program */
    "\n"
    "template <typename T> __global__ void clamp(T *x, long long n, double scale, range limit)\n"
    "{\n"
    "    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "    if (i >= n) return;\n"
    "    float value = x[i] * scale;\n"
    "    x[i] = min(max(value, limit.low), limit.high);\n"
    "}\n";

/* Each block turns one row around, by way of shared memory. */
static const char reverse_source[] =
    "extern \"C\" __global__ void reverse_rows(float *x, int columns)\n"
    "{\n"
    "    extern __shared__ float row[];\n"
    "    float *mine = x + blockIdx.x * (long long)columns;\n"
    "    for (int i = threadIdx.x; i < columns; i += blockDim.x) row[columns - 1 - i] = mine[i];\n"
    "    __syncthreads();\n"
    "    for (int i = threadIdx.x; i < columns; i += blockDim.x) mine[i] = row[i];\n"
    "}\n";

static const char wrong_source[] = "__global__ void forgetful(float *x)\n"
                                   "{\n"
                                   "    x[threadIdx.x] = 1.0f\n"
                                   "}\n";

/*  The one place where this program looks at errors. Ignis has written the message to stderr already. */
static void require(ignis_status status)
{
    if (status == IGNIS_OK)
        return;
    fprintf(stderr, "giving up: %s\n", ignis_status_name(status));
    exit(1);
}

static void show(const char *what, ignis_array x)
{
    static float values[ROWS * COLUMNS];
    require(ignis_array_to_host(x, values, IGNIS_F32, ROWS * COLUMNS));
    printf("%-20s first row: %g %g %g ... %g\n", what, values[0], values[1], values[2], values[COLUMNS - 1]);
}

static ignis_kernel compile(const char *source, const char *name, const char *entry)
{
    ignis_kernel_desc desc = {.source = source, .name = name, .entry = entry};
    return ignis_kernel_compile(&desc);
}

int main(void)
{
    static float values[ROWS * COLUMNS];
    range limit = {-1, 5000};
    int i;

    require(ignis_setup(NULL));
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(ROWS, COLUMNS), .tag = "x"};
    ignis_array x = ignis_array_create(&desc);
    for (i = 0; i < ROWS * COLUMNS; i++)
        values[i] = (float)i;
    require(ignis_array_from_host(x, values, IGNIS_F32, ROWS * COLUMNS));
    show("at first", x);

    ignis_kernel clamp = compile(clamp_source, "clamp.cu", "clamp<float>");
    ignis_launch all = {.grid = {(ROWS * COLUMNS + 255) / 256}, .block = {256}};
    ignis_arg clamp_args[] = {ignis_arg_array(x), ignis_arg_i64(ROWS * COLUMNS), ignis_arg_f64(0.5),
                              ignis_arg_bytes(&limit, sizeof limit)};
    require(ignis_kernel_launch(clamp, &all, clamp_args, 4));
    show("halved and clamped", x);

    ignis_kernel reverse = compile(reverse_source, "reverse.cu", "reverse_rows");
    ignis_launch rows = {.grid = {ROWS}, .block = {128}, .shared_bytes = COLUMNS * sizeof(float)};
    ignis_arg reverse_args[] = {ignis_arg_array(x), ignis_arg_i32(COLUMNS)};
    require(ignis_kernel_launch(reverse, &rows, reverse_args, 2));
    show("turned around", x);

    printf("\nNow two mistakes; what follows is Ignis' own report on stderr.\n\n");
    fflush(stdout);
    ignis_kernel wrong = compile(wrong_source, "forgetful.cu", "forgetful");
    if (wrong.id == 0)
        ignis_status_clear(); /* seen; the next failure is a new one */
    if (ignis_kernel_launch(reverse, &rows, reverse_args, 1) != IGNIS_OK)
        ignis_status_clear();

    ignis_kernel_free(clamp);
    ignis_kernel_free(reverse);
    ignis_array_free(x);
    require(ignis_shutdown());
    return 0;
}
