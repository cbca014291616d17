// SPDX-License-Identifier: MIT
/*  ring_producer.c - a ring of video frames that another process reads where they were drawn, on the GPU

    One program renders, another one reads the frames: an encoder, a tracker, a preview. The frames never leave the GPU.
    The ring is one array that both processes map. Two messages of a few bytes a frame tell that a slot was filled, and
    that it may be filled again. So a slow consumer slows the producer down, and never sees half a frame.

    A consumer may be killed at any time. The channel tells the producer at once; it has all slots back and goes on with
    the next consumer. It neither waits for a dead process nor frees memory that a live one uses. Here the first of two
    consumers kills itself.

        cc -I. examples/ring_producer.c -o ring_producer -lm -ldl -lpthread
        cc -I. examples/ring_consumer.c -o ring_consumer -lm -ldl -lpthread
        (./ring_producer & ./ring_consumer 20 || ./ring_consumer; wait)
*/
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"

#include <stdio.h>

#define FRAMES 90
#define SLOTS 3 /* one is drawn, one is in transit, one is read */
#define WIDTH 320
#define HEIGHT 200

typedef struct notice {
    int32_t frame, slot; /* frame -1: the end */
} notice;

static const char *source =
    "extern \"C\" __global__ void draw(unsigned char *image, int width, int height, int frame)\n"
    "{\n"
    "    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;\n"
    "    int ball_x = 20 + 3 * frame, ball_y = 60 + frame, dx = x - ball_x, dy = y - ball_y;\n"
    "    if (x < width)\n"
    "        image[y * width + x] = dx * dx + dy * dy < 100 ? 255 : (x ^ y) & 63;\n"
    "}\n";

static void log_line(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    (void)level, (void)diagnostic, (void)user_data;
    fprintf(stderr, "producer: Ignis says: %s\n", message);
}

int main(void)
{
    ignis_desc setup = {.logger = {log_line, NULL}};
    ignis_channel_desc meet = {.name = "ring", .timeout_s = 20}; /* how long each wait for a consumer may take */
    ignis_vmm_array_desc desc = {.shape = IGNIS_SHAPE(SLOTS, HEIGHT, WIDTH), .dtype = IGNIS_U8, .tag = "ring"};
    ignis_kernel_desc program = {.source = source, .entry = "draw"};
    ignis_launch launch = {.grid = {(WIDTH + 63) / 64, HEIGHT}, .block = {64}};
    ignis_array slots[SLOTS];
    int frame = 0, i;

    ignis_setup(&setup);
    ignis_channel server = ignis_channel_serve(&meet);
    ignis_kernel draw = ignis_kernel_compile(&program);
    ignis_array ring = ignis_vmm_array(&desc);
    for (i = 0; i < SLOTS; i++)
        slots[i] = ignis_array_slice(ring, 0, i, 1);

    while (frame < FRAMES && ignis_status_last() == IGNIS_OK) {
        ignis_channel consumer = ignis_channel_accept(server);
        notice done;
        int busy = 0; /* slots that the consumer has not returned */
        ignis_share_send(consumer, ring);
        while (ignis_status_last() == IGNIS_OK && (frame < FRAMES || busy > 0)) {
            if (busy == SLOTS || frame == FRAMES) {
                ignis_channel_receive(consumer, &done, sizeof done, NULL, NULL, 0, NULL);
                busy--;
                continue;
            }
            notice filled = {frame, frame % SLOTS}; /* slots return in order, so this one is free */
            ignis_arg args[] = {ignis_arg_array(slots[filled.slot]), ignis_arg_i32(WIDTH), ignis_arg_i32(HEIGHT),
                                ignis_arg_i32(frame)};
            ignis_kernel_launch(draw, &launch, args, 4);
            ignis_synchronize(); /* the frame is complete before the consumer is told */
            ignis_channel_send(consumer, &filled, sizeof filled, NULL, 0);
            busy++;
            frame++;
        }
        if (ignis_status_last() == IGNIS_ERROR_PEER) { /* it was killed; its slots are free again */
            printf("producer: the consumer is gone, with %d slots; frame %d is for the next one\n", SLOTS, frame);
            ignis_status_clear();
        } else if (ignis_status_last() == IGNIS_OK) {
            notice end = {-1, 0};
            ignis_channel_send(consumer, &end, sizeof end, NULL, 0);
            ignis_channel_receive(consumer, &done, sizeof done, NULL, NULL, 0, NULL); /* it has freed the ring */
        }
        ignis_channel_close(consumer);
    }
    if (ignis_status_last() != IGNIS_OK)
        return 1;

    printf("producer: %d frames\n", frame);
    for (i = 0; i < SLOTS; i++)
        ignis_array_free(slots[i]);
    ignis_array_free(ring);
    ignis_kernel_free(draw);
    return ignis_shutdown() != IGNIS_OK; /* it closes the server, too */
}
