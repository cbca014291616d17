// SPDX-License-Identifier: MIT
/*  heat.c - the heat equation by formulas: a plate that cools, in f64, without a kernel of one's own

    du/dt = d2u/dx2 + d2u/dy2 on a square plate whose edges are kept at 0. A point's next temperature follows from its
    own and those of its four neighbours (explicit Euler, five-point stencil), and a neighbour needs no copy: in memory
    it is so many elements away, so "all left neighbours" is a view of the same memory that begins one element earlier.
    Five views and a formula are the step, in one pass. Its price:
    each value is read five times, four of them from caches, and one by one, as not all views begin at a multiple of 16
    bytes.
    What such views take at the ends of rows belongs to the neighbouring row: the formula keeps the edges at 0 by
    index(1).

    Two waves over the plate cool by exp(-(k^2 + l^2) pi^2 t), so the answer is known, and is compared with. heat.png
    shows the plate at six times.

        cc -I. examples/heat.c -o heat -lm -ldl -lpthread && ./heat

    Another file name may follow the program's.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>

#define N 97 /* points along a side, edges included */
#define STEPS 1200
#define PANELS 6

/*  The temperature at a time t, at any point. */
#define SOLUTION                                                                  \
    "x = index(1)*h; y = index(0)*h; it = exp(-2*pi*pi*t)*sin(pi*x)*sin(pi*y) - " \
    "0.7*exp(-25*pi*pi*t)*sin(4*pi*x)*sin(3*pi*y);"

/*  The rows between the first and the last one, from so many elements further on. */
static ignis_array neighbours(ignis_array plate, int64_t offset)
{
    ignis_array flat = ignis_array_reshape(plate, IGNIS_SHAPE(N * N)),
                part = ignis_array_slice(flat, 0, N + offset, (N - 2) * N),
                rows = ignis_array_reshape(part, IGNIS_SHAPE(N - 2, N));
    ignis_array_free(flat);
    ignis_array_free(part);
    return rows;
}

int main(int argc, char **argv)
{
    static double values[N * N];
    static unsigned char picture[N * N * PANELS * 3];
    const char *path = argc > 1 ? argv[1] : "heat.png";
    const double h = 1.0 / (N - 1), dt = 0.2 * h * h; /* stable up to 0.25 h^2 */
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(N, N), .dtype = IGNIS_F64},
                     one = {.shape = IGNIS_SHAPE(1), .dtype = IGNIS_F64};
    ignis_array plate[2], view[2][5], error;
    double largest = 1;
    int i, k, step, panel = 0;
    if (ignis_setup(NULL) != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */
    error = ignis_array_create(&one);
    for (i = 0; i < 2; i++) {
        const int64_t offset[5] = {0, -1, 1, -N, N};
        plate[i] = ignis_array_create(&desc);
        ignis_array_zero(plate[i]);
        for (k = 0; k < 5; k++)
            view[i][k] = neighbours(plate[i], offset[k]);
    }
    ignis_array_map(plate[0], SOLUTION "it + 0*u",
                    IGNIS_ARRAYS(IGNIS_NAMED(u, plate[1]), IGNIS_ARRAY_VALUE(h, h), IGNIS_ARRAY_VALUE(t, 0)));
    for (step = 0; step <= STEPS; step++) {
        ignis_array *from = view[step % 2], *to = view[1 - step % 2];
        if (step == panel * panel * STEPS / ((PANELS - 1) * (PANELS - 1))) { /* often at first, when it cools fast */
            ignis_array_to_host(plate[step % 2], values, IGNIS_F64, N * N);
            for (i = 0; i < N * N; i++)
                ignis_picture_colour(picture + 3 * ((i / N * PANELS + panel) * N + i % N), 0.1 + values[i] / 1.6);
            panel++;
        }
        if (step < STEPS)
            ignis_array_map(to[0], "c = index(1); c == 0 || c == n - 1 ? 0 : u + r*(left + right + up + down - 4*u)",
                            IGNIS_ARRAYS(IGNIS_NAMED(u, from[0]), IGNIS_NAMED(left, from[1]),
                                         IGNIS_NAMED(right, from[2]), IGNIS_NAMED(up, from[3]),
                                         IGNIS_NAMED(down, from[4]), IGNIS_ARRAY_VALUE(r, dt / (h * h)),
                                         IGNIS_ARRAY_VALUE(n, N)));
    }
    ignis_array_reduce(
        error, IGNIS_REDUCE_MAX, SOLUTION "abs(u - it)",
        IGNIS_ARRAYS(IGNIS_NAMED(u, plate[STEPS % 2]), IGNIS_ARRAY_VALUE(h, h), IGNIS_ARRAY_VALUE(t, STEPS * dt)));
    ignis_array_to_host(error, &largest, IGNIS_F64, 1);
    printf("after %d steps of %.2e s the largest error is %.2e; %s shows how the plate cools\n", STEPS, dt, largest,
           path);
    for (i = 0; i < 2; i++) {
        for (k = 0; k < 5; k++)
            ignis_array_free(view[i][k]);
        ignis_array_free(plate[i]);
    }
    ignis_array_free(error);
    if (ignis_status_last() != IGNIS_OK)
        fprintf(stderr, "%s\n", ignis_status_message());
    return ignis_shutdown() != IGNIS_OK || !(largest < 1e-4) ||
           ignis_picture_write(path, picture, N * PANELS, N) != IGNIS_OK;
}
