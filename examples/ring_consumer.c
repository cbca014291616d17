// SPDX-License-Identifier: MIT
/*  ring_consumer.c - the other half of examples/ring_producer.c: follows a ball through the frames of the ring

    It waits for a notification, finds the ball in the slot that the notification names, and returns the slot. The frame
    is read where the producer drew it; only three numbers come to the host. With an argument n it kills itself at the
    n-th frame, as a crash would: it returns no slot and sends no goodbye.

        cc -I. examples/ring_producer.c -o ring_producer -lm -ldl -lpthread
        cc -I. examples/ring_consumer.c -o ring_consumer -lm -ldl -lpthread
        (./ring_producer & ./ring_consumer 20 || ./ring_consumer; wait)
*/
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct notice {
    int32_t frame, slot; /* frame -1: the end */
} notice;

static const char *source = "extern \"C\" __global__ void find(const unsigned char *image, int width, int *found)\n"
                            "{\n"
                            "    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;\n"
                            "    if (x < width && image[y * width + x] > 200) {\n"
                            "        atomicAdd(found, 1);\n"
                            "        atomicAdd(found + 1, x);\n"
                            "        atomicAdd(found + 2, y);\n"
                            "    }\n"
                            "}\n";

int main(int argc, char **argv)
{
    ignis_channel_desc meet = {.name = "ring", .timeout_s = 20};
    ignis_kernel_desc program = {.source = source, .entry = "find"};
    ignis_array_desc three = {.shape = IGNIS_SHAPE(3), .dtype = IGNIS_I32};
    ignis_array_info info = {0};
    int die_at = argc > 1 ? atoi(argv[1]) : 0, frames = 0, bad = 0;
    notice filled = {0, 0};

    ignis_setup(NULL);
    ignis_channel producer = ignis_channel_connect(&meet);
    ignis_array ring = ignis_share_receive(producer), found = ignis_array_create(&three);
    ignis_kernel find = ignis_kernel_compile(&program);
    ignis_array_query(ring, &info); /* [slots, height, width] */
    int width = (int)info.shape.dim[2], height = (int)info.shape.dim[1];
    ignis_launch launch = {.grid = {(unsigned)(width + 63) / 64, (unsigned)height}, .block = {64}};

    while (ignis_status_last() == IGNIS_OK) {
        int32_t sums[3] = {0};
        ignis_channel_receive(producer, &filled, sizeof filled, NULL, NULL, 0, NULL);
        if (ignis_status_last() != IGNIS_OK || filled.frame < 0)
            break;
        if (++frames == die_at) {
            printf("consumer: killed at frame %d\n", filled.frame);
            fflush(stdout);
            _Exit(9); /* as after a crash: it frees and sends nothing */
        }
        ignis_array frame = ignis_array_slice(ring, 0, filled.slot, 1);
        ignis_arg args[] = {ignis_arg_array(frame), ignis_arg_i32(width), ignis_arg_array(found)};
        ignis_array_zero(found);
        ignis_kernel_launch(find, &launch, args, 3);
        ignis_array_to_host(found, sums, IGNIS_I32, 3);                /* waits until the frame was read */
        ignis_channel_send(producer, &filled, sizeof filled, NULL, 0); /* the slot may be filled again */
        ignis_array_free(frame);
        float x = (float)sums[1] / (float)sums[0], y = (float)sums[2] / (float)sums[0];
        bad += x != (float)(20 + 3 * filled.frame) || y != (float)(60 + filled.frame);
        if (filled.frame % 10 == 0)
            printf("consumer: frame %2d: the ball is at %3.0f, %3.0f\n", filled.frame, x, y);
    }
    ignis_array_free(ring);
    ignis_channel_send(producer, &filled, sizeof filled, NULL, 0); /* goodbye */
    if (ignis_status_last() != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */

    printf("consumer: %d frames, %d with the ball elsewhere than it should be\n", frames, bad);
    ignis_array_free(found);
    ignis_kernel_free(find);
    return ignis_shutdown() != IGNIS_OK || bad > 0;
}
