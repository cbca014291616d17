// SPDX-License-Identifier: MIT
/*  cnn.c - a convolutional network learns to read digits that the program draws itself, and shows what it takes new
    ones for

    No two digits are alike: each is a few strokes that are shifted, turned, stretched and slanted by chance, by a shaky
    hand, with another pen each time, and there is noise all over. Two layers of the classic kind and a linear one on
    top read them (LeCun et al., Gradient-Based Learning Applied to Document Recognition, 1998; the norms: Wu, He, Group
    Normalization, 2018). As each digit is a new one, the last ones are the test, before they are learned from. On the
    simulator the network is smaller, and learns for a shorter time.

        cc -I. examples/cnn.c -o cnn -lm -ldl -lpthread && ./cnn
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>
#include <string.h>

enum { SIZE = 16, DIGITS = 10, POINTS = 16, BATCH = 30, TESTS = 510 }; /* SIZE: pixels along each side of an image */

/*  The points that the pen goes through for each digit, from 10 at the top left to 56 at the bottom right; at the last
    one it stays. */
static const char strokes[] = "20405155462615112020202020202020" /* 0, 1 */ "21303626464646464646464646464646"
                              "11204051521656565656565656565656" /* 2, 3 */ "11204051524323435455462615151515"
                              "46401454545454545454545454545454" /* 4, 5 */ "50101343545546161515151515151515"
                              "40201115264655544323141414141414" /* 6, 7 */ "10502626262626262626262626262626"
                              "23121120405152432314152646555443" /* 8, 9 */ "52432312112040515446262626262626";

#define CHANCE(...) ignis_tensor_rand(IGNIS_SHAPE(BATCH, __VA_ARGS__), NULL)
#define LINE_END(point, axis) ignis_slice(ignis_slice(path, 1, point, POINTS - 1), 2, axis, 1)

/*  Draws a digit into each image of a batch [BATCH, SIZE, SIZE, 1]: a pixel is as dark as the nearest line is near. */
static ignis_tensor draw(ignis_tensor points, ignis_tensor digits)
{
    ignis_tensor frame =
        ignis_map("(index(1) == index(2) ? 1.7 : 0) + chance - 0.5", IGNIS_INPUTS(IGNIS_NAMED(chance, CHANCE(2, 2))));
    ignis_tensor path = ignis_map("point - 51.25 + 0.5*rand()",
                                  IGNIS_INPUTS(IGNIS_NAMED(point, ignis_index_select(points, 0, digits))));
    path = ignis_map("path + 4*shift + 5.5",
                     IGNIS_INPUTS(IGNIS_NAMED(path, ignis_matmul(path, frame)), IGNIS_NAMED(shift, CHANCE(1, 2))));
    ignis_tensor pixels =
        ignis_map_reduce(IGNIS_REDUCE_MAX,
                         "x = index(2) % 16 - x0; y = floor(index(2) / 16) - y0; dx = x1 - x0; dy = y1 - y0;"
                         "along = clamp((x*dx + y*dy) / (dx*dx + dy*dy + 1e-6), 0, 1); away = sqrt(square(x - "
                         "along*dx) + square(y - along*dy));"
                         "clamp(0.8 + 0.7*pen - away, 0, 1) + 0.6*noise - 0.3",
                         IGNIS_INPUTS(IGNIS_NAMED(x0, LINE_END(0, 0)), IGNIS_NAMED(y0, LINE_END(0, 1)),
                                      IGNIS_NAMED(x1, LINE_END(1, 0)), IGNIS_NAMED(y1, LINE_END(1, 1)),
                                      IGNIS_NAMED(pen, CHANCE(1, 1)), IGNIS_NAMED(noise, CHANCE(1, SIZE * SIZE))),
                         &(ignis_reduce_desc){.dims = {1}, .dim_count = 1});
    return ignis_reshape(pixels, IGNIS_SHAPE(BATCH, SIZE, SIZE, 1));
}

/*  A layer: [BATCH, size, size, channels before] -> [BATCH, size / 2, size / 2, channels of the weights] */
static ignis_tensor layer(ignis_tensor x, ignis_tensor weight)
{
    ignis_shape channels = IGNIS_SHAPE(ignis_tensor_shape(weight).dim[0]);
    x = ignis_conv2d(x, weight, (ignis_tensor){0}, &(ignis_conv_desc){.padding = {1, 1}});
    x = ignis_group_norm(x, 4, ignis_tensor_ones(channels, NULL), ignis_tensor_zeros(channels, NULL), 1e-5);
    return ignis_max_pool(ignis_relu(x), &(ignis_pool_desc){.window = {2, 2}});
}

int main(void)
{
    int32_t table[DIGITS][DIGITS] = {{0}}, answers[BATCH], right = 0;
    ignis_tensor_desc trained = {.requires_grad = true}, integers = {.dtype = IGNIS_I32}, bytes = {.dtype = IGNIS_U8};
    ignis_reduce_desc each_row = {.dims = {1}, .dim_count = 1};
    ignis_device_info device;
    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &device) != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */
    int small = strncmp(device.name, "Ignis Simulator", 15) == 0, channels = small ? 8 : 32, steps = small ? 120 : 1500;
    ignis_schedule_desc schedule = {.kind = IGNIS_SCHEDULE_COSINE, .warmup = 10, .total = steps, .floor = 0.02};
    ignis_optimizer optimizer =
        ignis_adamw(&(ignis_adamw_desc){.lr = small ? 0.045 : 0.005, .schedule = schedule, .drop_grad = true});
    ignis_scope everything = ignis_scope_begin();
    ignis_tensor points = ignis_tensor_from_host(strokes, IGNIS_SHAPE(DIGITS, POINTS, 2), &bytes);
    ignis_tensor digits =
        ignis_map("i % 10", IGNIS_INPUTS(IGNIS_NAMED(i, ignis_tensor_arange(0, BATCH, 1, &integers))));
    ignis_tensor weight[] = {
        ignis_tensor_randn(IGNIS_SHAPE(channels, 3, 3, 1), &trained), /* of any size, as a norm follows */
        ignis_tensor_randn(IGNIS_SHAPE(2 * channels, 3, 3, channels), &trained),
        ignis_tensor_zeros(IGNIS_SHAPE(DIGITS, 2 * channels * SIZE / 4 * SIZE / 4), &trained)};
    for (int i = 0; i < 3; i++)
        ignis_optimizer_add(optimizer, weight[i], false);
    for (int step = 1; step <= steps; step++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor images = layer(layer(draw(points, digits), weight[0]), weight[1]);
        ignis_tensor scores = ignis_matmul_t(ignis_reshape(images, IGNIS_SHAPE(BATCH, -1)), weight[2]);
        ignis_tensor best = ignis_map_reduce(IGNIS_REDUCE_ARGMAX, "scores", IGNIS_INPUTS(scores), &each_row);
        ignis_tensor loss = ignis_cross_entropy(scores, digits, NULL);
        ignis_backward(loss, IGNIS_NO_ARRAY);
        ignis_optimizer_step(optimizer);
        if (step == 1 || step % (steps / 4) == 0)
            printf("step %4d: loss %.3f\n", step, ignis_item(loss));
        ignis_tensor_to_host(best, answers, IGNIS_I32, BATCH);
        ignis_scope_end(scope);
        if (ignis_status_last() != IGNIS_OK)
            return 1;
        for (int i = 0; i < BATCH && step > steps - TESTS / BATCH; i++)
            table[i % DIGITS][answers[i]]++;
    }
    for (int i = 0; i < DIGITS; i++)
        right += table[i][i];
    printf("\n%.1f %% of %d digits are read right. What was drawn, and how often it was taken for what:\n",
           100.0 * right / TESTS, TESTS);
    for (int i = 0; i < DIGITS * DIGITS; i++)
        printf(i % DIGITS ? "%5d" : "\n%5d", table[i / DIGITS][i % DIGITS]);
    printf("\n");
    ignis_optimizer_free(optimizer);
    ignis_scope_end(everything);
    return ignis_shutdown() != IGNIS_OK;
}
