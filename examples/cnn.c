// SPDX-License-Identifier: MIT
/*  cnn.c - a convolutional network learns to read digits that the program draws itself

    No two digits are alike: each is a few strokes that are shifted, turned, stretched and slanted by chance, by a shaky hand, with another pen each
    time, and there is noise all over. The network sees 16 x 16 pixels and says which digit that was meant to be. It has two layers of the
    classic kind, each of a convolution, a batch_norm, a bend and a max_pool, and a linear layer on top (LeCun et al., Gradient-Based Learning
    Applied to Document Recognition, 1998; the norms: Ioffe, Szegedy, 2015).

    At the end there is a table of what it takes new digits for, and pictures of some that it gets wrong.

        cc -I. examples/cnn.c -o cnn -lm -ldl -lpthread && ./cnn

    On Ignis' simulator, which has no GPU to use, the network is smaller, and learns for a shorter time.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 16, DIGITS = 10, LAYERS = 2, BATCH = 32 }; /* SIZE: pixels along each side of an image */

/* --- the digits -------------------------------------------------------------------------------------------------- */

/*  The points that the pen goes through, from 00 at the top left to 46 at the bottom right; a space lifts it. */
static const char *const strokes[DIGITS] = {"103041453616050110",          "112026 1636", "01103041420646",
                                            "011030414233133344453616 05", "36300444",    "400003334445360605",
                                            "3010010516364544331304",      "004016",      "13020110304142331304051636454433",
                                            "4233130201103041443616"};

static float uniform(float low, float high) { return low + (high - low) * (float)rand() / (float)RAND_MAX; }

/*  A line from a to b, whose ends and edges are soft. */
static void draw_line(float *pixels, const float *a, const float *b, float pen)
{
    float dx = b[0] - a[0], dy = b[1] - a[1], square = dx * dx + dy * dy + 1e-6f;
    int x, y;
    for (y = 0; y < SIZE; y++)
        for (x = 0; x < SIZE; x++) {
            float along = fminf(fmaxf((((float)x - a[0]) * dx + ((float)y - a[1]) * dy) / square, 0), 1);
            float ink = pen + 0.5f - hypotf((float)x - a[0] - along * dx, (float)y - a[1] - along * dy);
            pixels[y * SIZE + x] = fmaxf(pixels[y * SIZE + x], fminf(ink, 1));
        }
}

static void draw_digit(int digit, float *pixels)
{
    float angle = uniform(-0.3f, 0.3f), slant = uniform(-0.3f, 0.3f), width = uniform(1.4f, 2.4f), height = uniform(1.4f, 2.0f);
    float left = SIZE / 2 + uniform(-2, 2), top = SIZE / 2 + uniform(-2, 2), pen = uniform(0.3f, 1), from[2], to[2] = {0, 0};
    bool is_down = false;
    const char *at;
    int i;
    memset(pixels, 0, SIZE * SIZE * sizeof *pixels);
    for (at = strokes[digit]; *at; at += *at == ' ' ? 1 : 2) {
        if (*at != ' ') {
            float v = height * ((float)(at[1] - '3') + uniform(-0.25f, 0.25f));
            float u = width * ((float)(at[0] - '2') + uniform(-0.25f, 0.25f)) + slant * v;
            memcpy(from, to, sizeof to);
            to[0] = left + u * cosf(angle) - v * sinf(angle);
            to[1] = top + u * sinf(angle) + v * cosf(angle);
            if (is_down)
                draw_line(pixels, from, to, pen);
        }
        is_down = *at != ' ';
    }
    for (i = 0; i < SIZE * SIZE; i++)
        pixels[i] += uniform(-0.3f, 0.3f);
}

/*  A batch of digits by chance, and which ones they are. */
static ignis_tensor draw_batch(float *pixels, int32_t *digits)
{
    int i;
    for (i = 0; i < BATCH; i++)
        draw_digit(digits[i] = rand() % DIGITS, pixels + i * SIZE * SIZE);
    return ignis_tensor_from_host(pixels, IGNIS_SHAPE(BATCH, SIZE, SIZE, 1), NULL);
}

/*  Some images side by side, two rows of pixels as one of characters. */
static void print_images(float images[][SIZE * SIZE], int count)
{
    static const char ink[] = " .:-=+*#%@";
    int i, x, y;
    for (y = 0; y < SIZE; y += 2)
        for (i = 0; i < count; i++) {
            for (x = 0; x < SIZE; x++)
                putchar(ink[(int)(fminf(fmaxf((images[i][y * SIZE + x] + images[i][(y + 1) * SIZE + x]) / 2, 0), 0.99f) * 10)]);
            printf(i + 1 < count ? "  " : "\n");
        }
}

/* --- the network ------------------------------------------------------------------------------------------------- */

typedef struct network {
    ignis_tensor weight[LAYERS + 1], scale[LAYERS + 1], shift[LAYERS + 1];
    ignis_tensor mean[LAYERS], var[LAYERS]; /* running averages of what the norms have seen, for when they are not trained any more */
} network;

/*  Weights may be of any size, as there is a norm behind them; those of the last layer, which has none, begin with zeros. */
static network network_make(int channels, ignis_optimizer optimizer)
{
    ignis_tensor_desc trained = {.requires_grad = true};
    network net;
    int i, from = 1;
    for (i = 0; i < LAYERS; i++, from = channels, channels *= 2) {
        net.weight[i] = ignis_tensor_randn(IGNIS_SHAPE(channels, 3, 3, from), &trained);
        net.scale[i] = ignis_tensor_ones(IGNIS_SHAPE(channels), &trained);
        net.shift[i] = ignis_tensor_zeros(IGNIS_SHAPE(channels), &trained);
        net.mean[i] = ignis_tensor_zeros(IGNIS_SHAPE(channels), NULL);
        net.var[i] = ignis_tensor_ones(IGNIS_SHAPE(channels), NULL);
        ignis_optimizer_add(optimizer, net.scale[i], false);
    }
    net.weight[LAYERS] = ignis_tensor_zeros(IGNIS_SHAPE(DIGITS, from * (SIZE >> LAYERS) * (SIZE >> LAYERS)), &trained);
    net.shift[LAYERS] = ignis_tensor_zeros(IGNIS_SHAPE(DIGITS), &trained);
    for (i = 0; i <= LAYERS; i++) {
        ignis_optimizer_add(optimizer, net.weight[i], false);
        ignis_optimizer_add(optimizer, net.shift[i], false);
    }
    return net;
}

/*  images [n, SIZE, SIZE, 1] -> a number for each digit [n, DIGITS]: the largest one is the answer */
static ignis_tensor network_apply(const network *net, ignis_tensor images, bool is_training)
{
    ignis_conv_desc same_size = {.padding = {1, 1}};
    ignis_pool_desc half = {.window = {2, 2}};
    ignis_tensor x = images, none = {0};
    int i;
    for (i = 0; i < LAYERS; i++) {
        ignis_batch_norm_desc norm = {
            .running_mean = ignis_tensor_data(net->mean[i]), .running_var = ignis_tensor_data(net->var[i]), .eval = !is_training};
        x = ignis_conv2d(x, net->weight[i], none, &same_size);
        x = ignis_batch_norm(x, net->scale[i], net->shift[i], &norm);
        x = ignis_max_pool(ignis_relu(x), &half);
    }
    return ignis_linear(ignis_reshape(x, IGNIS_SHAPE(BATCH, -1)), net->weight[LAYERS], net->shift[LAYERS]);
}

/* --- learning, and what has come of it --------------------------------------------------------------------------- */

int main(void)
{
    enum { SHOWN = 4, TESTS = 512 };
    static const char simulator[] = "Ignis Simulator";
    static float pixels[BATCH * SIZE * SIZE], wrong[SHOWN][SIZE * SIZE];
    int table[DIGITS][DIGITS] = {{0}}, right = 0, mistakes = 0, tests, step, i, k;
    int32_t digits[BATCH];
    int64_t answers[BATCH];
    char captions[SHOWN * (SIZE + 2) + 1] = "";
    ignis_tensor_desc integers = {.dtype = IGNIS_I32};
    ignis_reduce_desc each_row = {.dims = {-1}, .dim_count = 1};
    ignis_device_info device;

    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &device) != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */
    bool is_small = strncmp(device.name, simulator, sizeof simulator - 1) == 0;
    int channels = is_small ? 8 : 32, steps = is_small ? 100 : 1500;
    ignis_scope everything = ignis_scope_begin();
    ignis_schedule_desc schedule = {.kind = IGNIS_SCHEDULE_COSINE, .warmup = 10, .total = steps, .floor = 0.02};
    ignis_adamw_desc adamw = {.lr = is_small ? 0.045 : 0.005, .schedule = schedule, .drop_grad = true};
    ignis_optimizer optimizer = ignis_adamw(&adamw);
    network net = network_make(channels, optimizer);
    srand(1);

    for (step = 1; step <= steps; step++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor scores = network_apply(&net, draw_batch(pixels, digits), true);
        ignis_tensor loss = ignis_cross_entropy(scores, ignis_tensor_from_host(digits, IGNIS_SHAPE(BATCH), &integers), NULL);
        ignis_backward(loss, IGNIS_NO_ARRAY);
        ignis_optimizer_step(optimizer);
        if (step == 1 || step % (steps / 4) == 0)
            printf("step %4d: loss %.3f\n", step, ignis_item(loss));
        ignis_scope_end(scope);
        if (ignis_status_last() != IGNIS_OK)
            return 1;
    }

    ignis_no_grad_begin();
    for (tests = 0; tests < TESTS; tests += BATCH) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor scores = network_apply(&net, draw_batch(pixels, digits), false);
        ignis_tensor best = ignis_map_reduce(IGNIS_REDUCE_ARGMAX, "scores", IGNIS_INPUTS(scores), &each_row);
        if (ignis_tensor_to_host(best, answers, IGNIS_I64, BATCH) != IGNIS_OK)
            return 1;
        ignis_scope_end(scope);
        for (i = 0; i < BATCH; i++) {
            table[digits[i]][answers[i]]++;
            right += digits[i] == answers[i];
            if (digits[i] == answers[i] || mistakes == SHOWN)
                continue;
            sprintf(captions + mistakes * (SIZE + 2), "%d, taken for %d    ", (int)digits[i], (int)answers[i]);
            memcpy(wrong[mistakes++], pixels + i * SIZE * SIZE, sizeof wrong[0]);
        }
    }
    ignis_no_grad_end();

    printf("\n%.1f %% of %d new digits are read right. What was drawn, and what it was taken for:\n\n    ", 100.0 * right / tests, tests);
    for (i = -1; i < DIGITS; i++) {
        for (k = 0; k < DIGITS; k++)
            i < 0 ? printf("%5d", k) : table[i][k] ? printf("%5d", table[i][k]) : printf("    .");
        i < DIGITS - 1 ? printf("\n%4d", i + 1) : printf("\n\n%s\n", captions);
    }
    print_images(wrong, mistakes);

    ignis_optimizer_free(optimizer);
    ignis_scope_end(everything);
    return ignis_shutdown() != IGNIS_OK;
}
