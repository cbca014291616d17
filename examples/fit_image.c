// SPDX-License-Identifier: MIT
/*  fit_image.c - a neural network learns a picture, and you can watch it

    A picture is a function: give it a place (x, y), and it answers with a colour. A multi-layer perceptron (MLP), a few
    matrix products with a bend after each, can learn any function, so here one learns a picture that the program draws
    itself. It sees nothing but single pixels: a place, and the colour that belongs there.

    Left to itself an MLP learns only blurs: it is reluctant to change its answer within a short distance. The remedy is
    to give it the place in waves, Fourier features: sin and cos of 2 pi (a x + b y) for many random (a, b) (Tancik et
    al., Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains, NeurIPS 2020).

    The program writes fit_image.png again and again, a strip: the picture itself, then what the network has made of it
    so far.
    Keep it open in a viewer that reloads.

        cc -I. examples/fit_image.c -o fit_image -lm -ldl -lpthread && ./fit_image

    Another file name may follow the program's. On Ignis' simulator, which has no GPU to use, the network is smaller.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 128 /* pixels along each side of the picture */
#define PANELS 6 /* of the strip: the picture, and the network's answer at five moments */
#define LAYERS 4

/* --- the picture to learn ---------------------------------------------------------------------------------------- */

/*  How far inside of a shape a point must be to have its full colour: a pixel's width, for smooth edges. */
static float inside(float depth)
{
    float share = 0.5f + depth * SIZE;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

static void paint(float *pixel, float share, float red, float green, float blue)
{
    pixel[0] += share * (red - pixel[0]);
    pixel[1] += share * (green - pixel[1]);
    pixel[2] += share * (blue - pixel[2]);
}

/*  An evening: sky, sun, two rows of hills, and a window frame, as networks find straight lines hard. x and y are
    between 0 and 1. */
static void draw(float x, float y, float *pixel)
{
    float sun = hypotf(x - 0.62f, y - 0.42f);
    float hills = 0.62f + 0.07f * sinf(7 * x + 1) + 0.03f * sinf(19 * x), meadow = 0.8f + 0.05f * sinf(5 * x + 4);
    float edge = fminf(fminf(x, 1 - x), fminf(y, 1 - y)), bar = fminf(fabsf(x - 0.35f), fabsf(y - 0.25f));
    pixel[0] = 0.15f + 0.8f * y, pixel[1] = 0.2f + 0.45f * y, pixel[2] = 0.55f - 0.15f * y;
    paint(pixel, expf(-6 * sun), 1.0f, 0.75f, 0.35f);
    paint(pixel, inside(0.13f - sun), 1.0f, 0.93f, 0.6f);
    paint(pixel, inside(y - hills), 0.32f, 0.2f, 0.4f);
    paint(pixel, inside(y - meadow), 0.12f, 0.3f, 0.2f);
    paint(pixel, inside(0.012f - bar), 0.25f, 0.15f, 0.1f);
    paint(pixel, inside(0.035f - edge), 0.25f, 0.15f, 0.1f);
}

/* --- the network ------------------------------------------------------------------------------------------------- */

typedef struct network {
    ignis_tensor weight[LAYERS], bias[LAYERS];
} network;

/*  Weights are random, just large enough that signals neither fade nor grow from layer to layer (He et al. 2015); those
    of the last one are small, so that it starts with nothing instead of noise. */
static network network_make(int inputs, int width, int outputs)
{
    ignis_tensor_desc trained = {.requires_grad = true};
    network net;
    int i;
    for (i = 0; i < LAYERS; i++) {
        int from = i == 0 ? inputs : width, to = i == LAYERS - 1 ? outputs : width;
        net.weight[i] = ignis_tensor_randn(IGNIS_SHAPE(to, from), &trained);
        net.bias[i] = ignis_tensor_zeros(IGNIS_SHAPE(to), &trained);
        ignis_array_scale(ignis_tensor_data(net.weight[i]), ignis_tensor_data(net.weight[i]),
                          sqrt((i == LAYERS - 1 ? 0.02 : 2.0) / from));
    }
    return net;
}

/*  waves [n, inputs] -> colours [n, 3] */
static ignis_tensor network_apply(const network *net, ignis_tensor waves)
{
    ignis_tensor x = waves;
    int i;
    for (i = 0; i < LAYERS; i++) {
        x = ignis_linear(x, net->weight[i], net->bias[i]);
        if (i < LAYERS - 1)
            x = ignis_relu(x);
    }
    return x;
}

/* --- learning ---------------------------------------------------------------------------------------------------- */

static float random_normal(
    void) /* the sum of twelve numbers between 0 and 1 is close to normal, with a variance of 1 */
{
    float sum = -6;
    int i;
    for (i = 0; i < 12; i++)
        sum += (float)rand() / (float)RAND_MAX;
    return sum;
}

/*  Puts colours, those of a picture or those that the network gives, into one panel of the strip. */
static void panel_set(unsigned char *strip, int panel, const float *colours)
{
    int x, y, k;
    for (y = 0; y < SIZE; y++) {
        for (x = 0; x < SIZE; x++) {
            for (k = 0; k < 3; k++) {
                float value = colours[3 * (y * SIZE + x) + k] * 255 + 0.5f;
                strip[3 * (y * SIZE * PANELS + panel * SIZE + x) + k] = (unsigned char)(value < 0     ? 0
                                                                                        : value > 255 ? 255
                                                                                                      : value);
            }
        }
    }
}

int main(int argc, char **argv)
{
    static const char simulator[] = "Ignis Simulator";
    static float picture[SIZE * SIZE * 3], answer[SIZE * SIZE * 3];
    static unsigned char strip[SIZE * SIZE * PANELS * 3];
    const char *path = argc > 1 ? argv[1] : "fit_image.png";
    ignis_device_info device;
    ignis_tensor_desc integers = {.dtype = IGNIS_I32};
    int i, k, step, panel = 0;

    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &device) != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */
    int is_small = strncmp(device.name, simulator, sizeof simulator - 1) == 0;
    int waves = is_small ? 48 : 128, width = is_small ? 64 : 256, batch = is_small ? 1024 : 8192,
        steps = is_small ? 810 : 4050;

    /* All pixels: the colour of each, and its place as waves. The longer ones give the shapes, the shorter ones the
       edges. */
    float *frequencies = (float *)malloc(2 * (size_t)waves * sizeof *frequencies);
    float *features = (float *)malloc(SIZE * SIZE * 2 * (size_t)waves * sizeof *features);
    int32_t *pixels = (int32_t *)malloc((size_t)batch * sizeof *pixels);
    if (!frequencies || !features || !pixels)
        return 1;
    srand(1);
    for (i = 0; i < 2 * waves; i++)
        frequencies[i] = 2.5f * random_normal(); /* waves per picture */
    for (i = 0; i < SIZE * SIZE; i++) {
        float x = ((float)(i % SIZE) + 0.5f) / SIZE, y = ((float)(i / SIZE) + 0.5f) / SIZE;
        draw(x, y, picture + 3 * i);
        for (k = 0; k < waves; k++) {
            float angle = 6.2831853f * (frequencies[2 * k] * x + frequencies[2 * k + 1] * y);
            features[(2 * i) * waves + k] = sinf(angle);
            features[(2 * i + 1) * waves + k] = cosf(angle);
        }
    }
    memset(strip, 255, sizeof strip);
    panel_set(strip, 0, picture);

    network net = network_make(2 * waves, width, 3);
    ignis_schedule_desc schedule = {.kind = IGNIS_SCHEDULE_COSINE, .warmup = 10, .total = steps, .floor = 0.02};
    ignis_adamw_desc adamw = {.lr = is_small ? 0.008 : 0.003, .schedule = schedule, .drop_grad = true};
    ignis_optimizer optimizer = ignis_adamw(&adamw);
    for (i = 0; i < LAYERS; i++) {
        ignis_optimizer_add(optimizer, net.weight[i], false);
        ignis_optimizer_add(optimizer, net.bias[i], false);
    }
    ignis_tensor places = ignis_tensor_from_host(features, IGNIS_SHAPE(SIZE * SIZE, 2 * waves), NULL);
    ignis_tensor colours = ignis_tensor_from_host(picture, IGNIS_SHAPE(SIZE * SIZE, 3), NULL);

    for (step = 0; step <= steps; step++) {
        ignis_scope scope = ignis_scope_begin();

        /* A panel of the strip at the start, soon after, and so on: each one after three times as many steps as the one
           before. */
        int due = panel == 0 ? 0 : (int)(steps / pow(3, PANELS - 2 - panel));
        if (step == due) {
            ignis_no_grad_begin();
            ignis_tensor_to_host(network_apply(&net, places), answer, IGNIS_F32, SIZE * SIZE * 3);
            ignis_no_grad_end();
            double error = 0;
            for (i = 0; i < SIZE * SIZE * 3; i++)
                error += (answer[i] - picture[i]) * (answer[i] - picture[i]) / (SIZE * SIZE * 3);
            panel_set(strip, ++panel, answer);
            if (ignis_status_last() != IGNIS_OK)
                return 1;
            if (ignis_picture_write(path, strip, SIZE * PANELS, SIZE) != IGNIS_OK) {
                fprintf(stderr, "%s cannot be written\n", path);
                return 1;
            }
            printf("step %4d: mean squared error %.5f, %.1f dB; %s has %d panels now\n", step, error,
                   -10 * log10(error), path, panel + 1);
            fflush(stdout);
        }

        /* Pixels by chance. Picking rows out of a table by their numbers is what ignis_embedding does. */
        for (i = 0; i < batch; i++)
            pixels[i] = (int32_t)((double)rand() / ((double)RAND_MAX + 1) * SIZE * SIZE);
        ignis_tensor chosen = ignis_tensor_from_host(pixels, IGNIS_SHAPE(batch), &integers);
        ignis_tensor x = ignis_embedding(places, chosen), wanted = ignis_embedding(colours, chosen);
        ignis_tensor difference = ignis_sub(network_apply(&net, x), wanted);
        ignis_backward(ignis_mean(ignis_mul(difference, difference)), IGNIS_NO_ARRAY);
        ignis_optimizer_step(optimizer);
        ignis_scope_end(scope);
        if (ignis_status_last() != IGNIS_OK)
            return 1;
    }

    ignis_optimizer_free(optimizer);
    ignis_tensor_release(places);
    ignis_tensor_release(colours);
    for (i = 0; i < LAYERS; i++) {
        ignis_tensor_release(net.weight[i]);
        ignis_tensor_release(net.bias[i]);
    }
    free(frequencies), free(features), free(pixels);
    return ignis_shutdown() != IGNIS_OK;
}
