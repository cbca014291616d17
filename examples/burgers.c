// SPDX-License-Identifier: MIT
/*  burgers.c - a physics-informed network solves Burgers' equation, by gradients of its gradients

    Burgers' equation is a wave that steepens into a shock, which friction keeps smooth:

        du/dt + u du/dx = nu d2u/dx2        u(x, 0) = -sin(pi x)        u(-1, t) = u(1, t) = 0

    A network N(x, t) makes a function that has these values at the start and at the ends, whatever N is:

        u(x, t) = t (1 - x^2) N(x, t) - sin(pi x)

    ignis_grad computes du/dx and du/dt at random points. With create_graph they are on the tape, so d2u/dx2 is the
    gradient of du/dx, and the mean square of the difference of both sides has a gradient by the weights (Raissi,
    Perdikaris and Karniadakis 2019). No solution is shown to the network. The program compares it with the exact one
    (Cole 1951), and draws both into burgers.png, one above the other: x goes up, t to the right. burgers_loss.svg has
    the curve of the mean square.

        cc -I. examples/burgers.c -o burgers -lm -ldl -lpthread && ./burgers

    Another file name may follow the program's. On Ignis' simulator there are few steps, and the shock stays blurred.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LAYERS 4
#define WIDE 96 /* pixels of the picture along t, and along x */
#define HIGH 48

static const double pi = 3.14159265358979324, nu = 0.03;

typedef struct network {
    ignis_tensor w[LAYERS], b[LAYERS];
} network;

/*  Weights from -limit to limit that look random. */
static void network_begin(network *net, int width, ignis_optimizer optimizer)
{
    static float values[64 * 64];
    ignis_tensor_desc trained = {.requires_grad = true};
    unsigned state = 1;
    for (int l = 0; l < LAYERS; l++) {
        const int in = l ? width : 2, out = l < LAYERS - 1 ? width : 1;
        const float limit = sqrtf(6.0f / (float)(in + out));
        for (int i = 0; i < in * out; i++) {
            state = state * 1664525u + 1013904223u;
            values[i] = limit * ((float)(state >> 8) / (1 << 23) - 1);
        }
        net->w[l] = ignis_tensor_from_host(values, IGNIS_SHAPE(out, in), &trained);
        net->b[l] = ignis_tensor_zeros(IGNIS_SHAPE(out), &trained);
        ignis_optimizer_add(optimizer, net->w[l], false);
        ignis_optimizer_add(optimizer, net->b[l], false);
    }
}

/*  u at points x [n, 1] and t [n, 1] */
static ignis_tensor solution(const network *net, ignis_tensor x, ignis_tensor t)
{
    const ignis_tensor both[] = {x, t};
    ignis_tensor h = ignis_concat(both, 2, 1);
    for (int l = 0; l < LAYERS; l++) {
        h = ignis_linear(h, net->w[l], net->b[l]);
        if (l < LAYERS - 1)
            h = ignis_map("tanh(h)", IGNIS_INPUTS(h));
    }
    return ignis_map("t*(1 - x*x)*h - sin(pi*x)", IGNIS_INPUTS(x, t, h));
}

/*  The mean square of du/dt + u du/dx - nu d2u/dx2 */
static ignis_tensor residual(const network *net, ignis_tensor x, ignis_tensor t)
{
    const ignis_grad_desc graph = {.create_graph = true};
    const ignis_tensor places[] = {x, t};
    ignis_tensor u = solution(net, x, t), sum = ignis_sum(u), first[2], second;
    ignis_grad(&sum, 1, places, 2, first, &graph);
    sum = ignis_sum(first[0]);
    ignis_grad(&sum, 1, &x, 1, &second, &graph);
    return ignis_map_mean("r = u_t + u*u_x - nu*u_xx; r*r",
                          IGNIS_INPUTS(u, IGNIS_NAMED(u_x, first[0]), IGNIS_NAMED(u_t, first[1]),
                                       IGNIS_NAMED(u_xx, second), IGNIS_VALUE(nu, nu)));
}

/*  The exact solution: a quotient of two integrals. */
static double exact(double x, double t)
{
    double above = 0, below = 0;
    if (t == 0)
        return -sin(pi * x);
    for (int i = -300; i <= 300; i++) {
        const double z = i * 0.02, y = x - z * sqrt(4 * nu * t),
                     weight = exp(-z * z - (cos(pi * y) + 1) / (2 * pi * nu));
        above += sin(pi * y) * weight;
        below += weight;
    }
    return -above / below;
}

int main(int argc, char **argv)
{
    static unsigned char picture[3 * WIDE * 2 * HIGH];
    static float x[WIDE * HIGH], t[WIDE * HIGH], u[WIDE * HIGH];
    const char *path = argc > 1 ? argv[1] : "burgers.png", *curve_path = argc > 2 ? argv[2] : "burgers_loss.svg";
    const ignis_adamw_desc adam = {.lr = 2e-3, .drop_grad = true};
    const ignis_tensor_desc leaf = {.requires_grad = true};
    double error = 0, size = 0, at[64], losses[64];
    int looks = 0;
    ignis_device_info device;
    network net;
    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &device) != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */
    const int is_small = strstr(device.name, "imulat") != NULL, steps = is_small ? 60 : 6000,
              points = is_small ? 64 : 2048;
    ignis_optimizer optimizer = ignis_adamw(&adam);
    ignis_progress progress = {.total = steps - 1, .label = "burgers"};
    network_begin(&net, is_small ? 16 : 64, optimizer);
    for (int step = 0; step < steps && ignis_status_last() == IGNIS_OK; step++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor r = ignis_tensor_rand(IGNIS_SHAPE(points, 1), &leaf),
                     time = ignis_tensor_rand(IGNIS_SHAPE(points, 1), &leaf),
                     left = residual(&net, ignis_map("2*r - 1", IGNIS_INPUTS(r)), time);
        ignis_backward(left, IGNIS_NO_ARRAY);
        ignis_optimizer_step(optimizer);
        if (step % (steps / 60 + 1) == 0 || step == steps - 1) { /* ignis_item waits, so not in each step */
            at[looks] = step;
            losses[looks] = ignis_item(left);
            ignis_progress_print(&progress, step, "loss", losses[looks++]);
        }
        ignis_scope_end(scope);
    }
    for (int i = 0; i < WIDE * HIGH; i++) {
        x[i] = 1 - 2 * (float)(i / WIDE) / (HIGH - 1);
        t[i] = (float)(i % WIDE) / (WIDE - 1);
    }
    ignis_scope scope = ignis_scope_begin();
    ignis_no_grad_begin();
    ignis_tensor_to_host(solution(&net, ignis_tensor_from_host(x, IGNIS_SHAPE(WIDE * HIGH, 1), NULL),
                                  ignis_tensor_from_host(t, IGNIS_SHAPE(WIDE * HIGH, 1), NULL)),
                         u, IGNIS_F32, WIDE * HIGH);
    ignis_no_grad_end();
    ignis_scope_end(scope);
    for (int i = 0; i < WIDE * HIGH; i++) {
        const double right = exact(x[i], t[i]);
        error += (u[i] - right) * (u[i] - right), size += right * right;
        ignis_picture_colour(picture + 3 * i, 0.5 + u[i] / 2);
        ignis_picture_colour(picture + 3 * (i + WIDE * HIGH), 0.5 + right / 2);
    }
    const ignis_curve curve = {.name = "mean square", .values = losses, .at = at, .count = looks};
    const ignis_curves_desc diagram = {.title = "Burgers' equation", .x_label = "step", .log_y = true};
    printf(
        "%d steps: the mean square of the equation fell from %.3f to %.5f; u is %.1f %% from the exact one; see %s\n",
        steps, losses[0], losses[looks - 1], 100 * sqrt(error / size), path);
    for (int l = 0; l < LAYERS; l++)
        ignis_tensor_release(net.w[l]), ignis_tensor_release(net.b[l]);
    ignis_optimizer_free(optimizer);
    if (ignis_status_last() != IGNIS_OK)
        fprintf(stderr, "%s\n", ignis_status_message());
    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK || !(losses[looks - 1] < losses[0]) ||
           ignis_picture_write(path, picture, WIDE, 2 * HIGH) != IGNIS_OK ||
           ignis_curves_write(curve_path, &curve, 1, &diagram) != IGNIS_OK;
}
