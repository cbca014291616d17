// SPDX-License-Identifier: MIT
/*  bench_conv.c - convolutions in bf16: those of ResNet-50 with 64 images, a depthwise one, one of rows of points, and
    some of volumes

        cc -O2 -I. bench/bench_conv.c -o bench_conv -lm -ldl -lpthread && ./bench_conv [part of a name]

    Forward, and the gradients of x and w together, of the first layer that of w alone, as in training. Lines are what
    bench/peer_conv.py reads, which adds PyTorch's times for the same work in the same order, and the ratios.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

#define ROUNDS 11

/*  Of square images and kernels; the padding keeps their size, but for the stride, which a transposed convolution
    multiplies them by. A height of 1: of rows of points. The depth of volumes is their height. */
typedef struct layer {
    const char *name;
    int times; /* that it is in ResNet-50 */
    int images, height, width, channels, outs, kernel, stride, groups;
} layer;

static const layer layers[] = {{"stem_7x7_3_64_s2", 1, 64, 224, 224, 3, 64, 7, 2, 1},
                               {"1x1_64_64_56", 1, 64, 56, 56, 64, 64, 1, 1, 1},
                               {"1x1_64_256_56", 4, 64, 56, 56, 64, 256, 1, 1, 1},
                               {"1x1_256_64_56", 2, 64, 56, 56, 256, 64, 1, 1, 1},
                               {"3x3_64_64_56", 3, 64, 56, 56, 64, 64, 3, 1, 1},
                               {"1x1_256_128_56", 1, 64, 56, 56, 256, 128, 1, 1, 1},
                               {"3x3_128_128_56_s2", 1, 64, 56, 56, 128, 128, 3, 2, 1},
                               {"1x1_256_512_56_s2", 1, 64, 56, 56, 256, 512, 1, 2, 1},
                               {"1x1_128_512_28", 4, 64, 28, 28, 128, 512, 1, 1, 1},
                               {"1x1_512_128_28", 3, 64, 28, 28, 512, 128, 1, 1, 1},
                               {"3x3_128_128_28", 3, 64, 28, 28, 128, 128, 3, 1, 1},
                               {"1x1_512_256_28", 1, 64, 28, 28, 512, 256, 1, 1, 1},
                               {"3x3_256_256_28_s2", 1, 64, 28, 28, 256, 256, 3, 2, 1},
                               {"1x1_512_1024_28_s2", 1, 64, 28, 28, 512, 1024, 1, 2, 1},
                               {"1x1_256_1024_14", 6, 64, 14, 14, 256, 1024, 1, 1, 1},
                               {"1x1_1024_256_14", 5, 64, 14, 14, 1024, 256, 1, 1, 1},
                               {"3x3_256_256_14", 5, 64, 14, 14, 256, 256, 3, 1, 1},
                               {"1x1_1024_512_14", 1, 64, 14, 14, 1024, 512, 1, 1, 1},
                               {"3x3_512_512_14_s2", 1, 64, 14, 14, 512, 512, 3, 2, 1},
                               {"1x1_1024_2048_14_s2", 1, 64, 14, 14, 1024, 2048, 1, 2, 1},
                               {"1x1_512_2048_7", 3, 64, 7, 7, 512, 2048, 1, 1, 1},
                               {"1x1_2048_512_7", 2, 64, 7, 7, 2048, 512, 1, 1, 1},
                               {"3x3_512_512_7", 2, 64, 7, 7, 512, 512, 3, 1, 1},
                               {"depthwise_3x3_384_28", 0, 64, 28, 28, 384, 384, 3, 1, 384},
                               {"grouped_3x3_256_256_28_32", 0, 64, 28, 28, 256, 256, 3, 1, 32},
                               {"conv3d_3x3x3_32_32_64", 0, 1, 64, 64, 32, 32, 3, 1, 1}, /* of a U-Net of volumes */
                               {"conv3d_3x3x3_128_128_16", 0, 8, 16, 16, 128, 128, 3, 1, 1},
                               {"conv3d_3x3x3_64_128_32_s2", 0, 4, 32, 32, 64, 128, 3, 2, 1},
                               {"conv1d_3_512_512_1500", 0, 16, 1, 1500, 512, 512, 3, 1, 1},
                               {"transpose_4x4_512_256_8_s2", 0, 64, 8, 8, 512, 256, 4, 2, 1}, /* of a DCGAN */
                               {"transpose_4x4_128_64_32_s2", 0, 64, 32, 32, 128, 64, 4, 2, 1},
                               {"transpose_2x2_256_128_64_s2", 0, 16, 64, 64, 256, 128, 2, 2, 1}}; /* of a U-Net */

typedef struct work {
    bool is_row, is_volume, is_transposed, wants_x; /* the gradient of x */
    ignis_conv_desc desc;
    ignis_conv_transpose_desc transposed;
    ignis_tensor x, w, y;
    ignis_array g;
} work;

static ignis_tensor convolve(const work *l)
{
    ignis_tensor none = {0};
    if (l->is_transposed)
        return ignis_conv_transpose2d(l->x, l->w, none, &l->transposed);
    if (l->is_volume)
        return ignis_conv3d(l->x, l->w, none, &l->desc);
    return l->is_row ? ignis_conv1d(l->x, l->w, none, &l->desc) : ignis_conv2d(l->x, l->w, none, &l->desc);
}

/*  Images, or filters, of these sides. */
static ignis_shape shape_of(const work *l, int64_t first, int64_t height, int64_t width, int64_t channels)
{
    if (l->is_row)
        return IGNIS_SHAPE(first, width, channels);
    return l->is_volume ? IGNIS_SHAPE(first, height, height, width, channels)
                        : IGNIS_SHAPE(first, height, width, channels);
}

static void run_forward(const work *l)
{
    ignis_scope scope = ignis_scope_begin();
    (void)convolve(l);
    ignis_scope_end(scope);
}

static void run_backward(const work *l)
{
    if (l->wants_x)
        (void)ignis_tensor_set_grad(l->x, IGNIS_NO_ARRAY);
    (void)ignis_tensor_set_grad(l->w, IGNIS_NO_ARRAY);
    (void)ignis_backward_retain(l->y, l->g);
}

static double seconds_of(void (*run)(const work *l), const work *l)
{
    double times[ROUNDS], start, once;
    int round, i, runs = 1;
    for (round = -2; round < ROUNDS;
         round++) { /* the first one compiles, the second one tells how many runs take 10 ms */
        ignis_synchronize();
        start = now();
        for (i = 0; i < runs; i++)
            run(l);
        ignis_synchronize();
        once = (now() - start) / runs;
        if (round >= 0)
            times[round] = once;
        else if (round == -1)
            runs = once < 1e-5 ? 1000 : once < 0.01 ? (int)(0.01 / once) : 1;
    }
    return median(times, ROUNDS);
}

static int at_most(int x, int most, bool small) { return small && x > most ? most : x; }

int main(int argc, char **argv)
{
    ignis_device_info info;
    ignis_tensor_desc desc;
    double all[2] = {0, 0};
    bool small;
    size_t i;
    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &info) != IGNIS_OK)
        return 1;
    small = strstr(info.name, "imulat") != NULL;
    memset(&desc, 0, sizeof desc);
    desc.dtype = IGNIS_BF16;
    printf("%s, bf16: forward, TFLOP/s, backward, TFLOP/s\n", info.name);
    for (i = 0; i < sizeof layers / sizeof layers[0] && ignis_status_last() == IGNIS_OK; i++) {
        layer l = layers[i];
        ignis_scope scope = ignis_scope_begin();
        double flops, seconds[2];
        int rows, columns;
        work k;
        if (argc > 1 && !strstr(l.name, argv[1])) {
            ignis_scope_end(scope);
            continue;
        }
        l.images = at_most(l.images, 1, small), l.height = at_most(l.height, 8, small),
        l.width = at_most(l.width, 8, small);
        if (l.groups == 1)
            l.channels = at_most(l.channels, 16, small), l.outs = at_most(l.outs, 16, small);
        memset(&k, 0, sizeof k);
        k.is_row = l.height == 1;
        k.desc.groups = l.groups;
        k.is_volume = strncmp(l.name, "conv3d", 6) == 0;
        k.desc.stride[0] = k.desc.stride[1] = k.desc.stride[2] = l.stride;
        k.desc.padding[0] = k.desc.padding[1] = k.desc.padding[2] = l.kernel / 2;
        k.is_transposed = strncmp(l.name, "transpose", 9) == 0;
        k.transposed.stride[0] = k.transposed.stride[1] = l.stride;
        k.transposed.padding[0] = k.transposed.padding[1] = (l.kernel - l.stride) / 2;
        rows = k.is_row ? 1 : (l.height - 1) / l.stride + 1, columns = (l.width - 1) / l.stride + 1;
        if (k.is_transposed)
            rows = l.height * l.stride, columns = l.width * l.stride;
        desc.requires_grad = k.wants_x = l.channels != 3;
        k.x = ignis_tensor_randn(shape_of(&k, l.images, l.height, l.width, l.channels), &desc);
        desc.requires_grad = true;
        k.w = ignis_tensor_randn(k.is_transposed ? shape_of(&k, l.channels, l.kernel, l.kernel, l.outs)
                                                 : shape_of(&k, l.outs, l.kernel, l.kernel, l.channels / l.groups),
                                 &desc);
        desc.requires_grad = false;
        k.y = convolve(&k);
        k.g = ignis_tensor_data(ignis_tensor_randn(shape_of(&k, l.images, rows, columns, l.outs), &desc));
        flops = 2.0 * l.images * rows * columns * l.outs * (l.channels / l.groups) * l.kernel;
        flops *= k.is_row ? 1 : k.is_volume ? (double)rows * l.kernel * l.kernel : l.kernel;
        if (k.is_transposed) /* each pixel of x has a patch */
            flops /= l.stride * l.stride;
        seconds[0] = seconds_of(run_forward, &k);
        seconds[1] = seconds_of(run_backward, &k);
        all[0] += l.times * seconds[0];
        all[1] += l.times * seconds[1];
        printf("%-26s %9.4f ms %6.1f %9.4f ms %6.1f\n", l.name, 1e3 * seconds[0], 1e-12 * flops / seconds[0],
               1e3 * seconds[1], (k.wants_x ? 2e-12 : 1e-12) * flops / seconds[1]);
        fflush(stdout);
        ignis_tape_clear();
        ignis_scope_end(scope);
    }
    if (argc == 1)
        printf("%-26s %9.4f ms        %9.4f ms\n", "resnet50", 1e3 * all[0], 1e3 * all[1]);
    if (ignis_status_last() != IGNIS_OK)
        printf("%s\n", ignis_status_message());
    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK;
}
