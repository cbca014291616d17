// SPDX-License-Identifier: MIT
/*  wgan_gp.c - two networks against each other: a Wasserstein GAN, its critic held by a penalty on its gradient

    A generator makes points of the plane from noise. A critic gives each point a number, and learns to make the numbers
    of real points larger. The difference of the means is a distance of the two distributions as long as the critic's
    slope is 1, so its square distance from 1, at random places between real and generated points, is a penalty
    (Gulrajani et al. 2017). The slope is a gradient, and the penalty needs a gradient of that: ignis_derivative records
    it. The generator learns to make the critic's numbers larger.

    Real points are around eight centres on a circle. wgan_gp.png, or the file that the command names, shows the
    critic's numbers, black to yellow, real points in white and generated ones in blue.

        cc -I. examples/wgan_gp.c -o wgan_gp -lm -ldl -lpthread && ./wgan_gp

    On Ignis' simulator there are few steps, and the points have only set out.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LAYERS 3
#define SIDE 128 /* pixels of the picture */
#define REACH 1.5f
#define SHOWN 256 /* points */

typedef struct network {
    ignis_tensor w[LAYERS], b[LAYERS];
    ignis_optimizer optimizer;
} network;

static network network_make(int width, int outs)
{
    const ignis_adamw_desc adam = {.lr = 1e-3, .beta1 = 0.5, .beta2 = 0.9};
    network net;
    net.optimizer = ignis_adamw(&adam);
    for (int l = 0; l < LAYERS; l++) {
        const int out = l < LAYERS - 1 ? width : outs;
        net.w[l] = ignis_parameter(net.optimizer, IGNIS_SHAPE(out, l ? width : 2), NULL);
        net.b[l] = ignis_parameter(net.optimizer, IGNIS_SHAPE(out), NULL);
    }
    return net;
}

static ignis_tensor run(const network *net, ignis_tensor h)
{
    for (int l = 0; l < LAYERS; l++) {
        h = ignis_linear(h, net->w[l], net->b[l]);
        if (l < LAYERS - 1)
            h = ignis_map("max(h, 0.2*h)", IGNIS_INPUTS(h));
    }
    return h;
}

static ignis_tensor generated(const network *generator, int count)
{
    return run(generator, ignis_tensor_randn(IGNIS_SHAPE(count, 2), NULL));
}

static ignis_tensor real(int count)
{
    ignis_tensor k = ignis_map_shape("floor(8*rand())*pi/4", IGNIS_SHAPE(count, 1), IGNIS_NO_INPUTS, NULL);
    k = ignis_expand(k, IGNIS_SHAPE(count, 2));
    return ignis_map("(index(1) == 0 ? cos(k) : sin(k)) + 0.04*randn()", IGNIS_INPUTS(k));
}

static void learn(const network *net, ignis_tensor loss)
{
    ignis_optimizer_zero_grad(net->optimizer); /* those that the other network's step has left */
    ignis_backward(loss, IGNIS_NO_ARRAY);
    ignis_optimizer_step(net->optimizer);
}

static ignis_tensor critic_loss(const network *critic, ignis_tensor fake, int count)
{
    static const ignis_reduce_desc rows = {{1}, 1, true};
    const ignis_tensor_desc leaf = {.requires_grad = true}; /* so that `between` is on the tape */
    ignis_tensor truth = real(count), e = ignis_tensor_rand(IGNIS_SHAPE(count, 1), &leaf),
                 between = ignis_map("lerp(fake, truth, e)", IGNIS_INPUTS(fake, truth, e)),
                 slope = ignis_derivative(run(critic, between), between),
                 size = ignis_map_reduce(IGNIS_REDUCE_NORM, "slope", IGNIS_INPUTS(slope), &rows);
    fake = run(critic, fake), truth = run(critic, truth);
    return ignis_map_mean("fake - truth + 10*(size - 1)*(size - 1)", IGNIS_INPUTS(fake, truth, size));
}

/*  The mean distance from generated points to the nearest centre; fills SHOWN points. */
static double distance(const network *generator, float *points)
{
    double sum = 0;
    ignis_tensor_to_host(generated(generator, SHOWN), points, IGNIS_F32, 2 * SHOWN);
    for (int i = 0; i < SHOWN; i++) {
        double least = 1e9;
        for (int k = 0; k < 8; k++)
            least = fmin(least, hypot(points[2 * i] - cos(k * atan(1)), points[2 * i + 1] - sin(k * atan(1))));
        sum += least / SHOWN;
    }
    return sum;
}

static void draw(unsigned char *picture, const float *points, unsigned red, unsigned green)
{
    for (int i = 0; i < SHOWN; i++) {
        const int x = (int)((points[2 * i] / REACH + 1) * SIDE / 2),
                  y = (int)((points[2 * i + 1] / REACH + 1) * SIDE / 2);
        if (x >= 0 && x < SIDE && y >= 0 && y < SIDE) {
            unsigned char *pixel = picture + 3 * (y * SIDE + x);
            pixel[0] = (unsigned char)red, pixel[1] = (unsigned char)green, pixel[2] = 255;
        }
    }
}

int main(int argc, char **argv)
{
    static unsigned char picture[3 * SIDE * SIDE];
    static float values[SIDE * SIDE], fake[2 * SHOWN], truth[2 * SHOWN];
    const char *path = argc > 1 ? argv[1] : "wgan_gp.png";
    ignis_device_info device;
    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &device) != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */
    const int small = strstr(device.name, "imulat") != NULL, steps = small ? 12 : 3000, count = small ? 32 : 512;
    ignis_scope all = ignis_scope_begin();
    network critic = network_make(small ? 16 : 128, 1), generator = network_make(small ? 16 : 128, 2);
    const double before = distance(&generator, fake);
    for (int step = 0; step < steps && ignis_status_last() == IGNIS_OK; step++) {
        ignis_scope scope = ignis_scope_begin();
        for (int turn = 0; turn < 4; turn++)
            learn(&critic, critic_loss(&critic, ignis_detach(generated(&generator, count)), count));
        ignis_tensor score = run(&critic, generated(&generator, count));
        learn(&generator, ignis_map_mean("-score", IGNIS_INPUTS(score)));
        ignis_scope_end(scope);
    }
    const double after = distance(&generator, fake);
    ignis_tensor at = ignis_map_shape("1.5*((index(2) == 0 ? index(1) : index(0))/64 - 1)", /* by REACH and SIDE */
                                      IGNIS_SHAPE(SIDE, SIDE, 2), IGNIS_NO_INPUTS, NULL);
    ignis_tensor score = run(&critic, at);
    ignis_tensor_to_host(score, values, IGNIS_F32, SIDE * SIDE);
    ignis_tensor_to_host(real(SHOWN), truth, IGNIS_F32, 2 * SHOWN);
    const double least = ignis_item(ignis_map_reduce(IGNIS_REDUCE_MIN, "score", IGNIS_INPUTS(score), NULL)),
                 most = ignis_item(ignis_map_reduce(IGNIS_REDUCE_MAX, "score", IGNIS_INPUTS(score), NULL));
    for (int i = 0; i < SIDE * SIDE; i++)
        ignis_picture_colour(picture + 3 * i, 0.6 * (values[i] - least) / (most - least));
    draw(picture, truth, 255, 255);
    draw(picture, fake, 60, 160);
    printf("%d steps: points are %.3f from the nearest centre, and were %.3f; see %s\n", steps, after, before, path);
    ignis_optimizer_free(critic.optimizer), ignis_optimizer_free(generator.optimizer);
    return ignis_status_last() != IGNIS_OK || ignis_scope_end(all) != IGNIS_OK || ignis_shutdown() != IGNIS_OK ||
           ignis_picture_write(path, picture, SIDE, SIDE) != IGNIS_OK || !(after < before);
}
