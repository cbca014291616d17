// SPDX-License-Identifier: MIT
/*  cg.c - conjugate gradients by formulas: Poisson's equation in f64, without a kernel of one's own, and without
    waiting for a number

    -(d2u/dx2 + d2u/dy2) = f on a square, u = 0 at its edges. With the five-point stencil that is a linear system A u =
    f with a row for each point, which is never written down: A p is a formula of five views of p, that is of the same
    memory from a little earlier or later on (examples/heat.c). Lengths of steps are quotients of scalar products; these
    stay on the device, as arrays of one element that the formulas spread over all points. Only every tenth round the
    host looks at how far it has come. (Hestenes and Stiefel, Methods of Conjugate Gradients for Solving Linear Systems,
    1952.)

    f is chosen for u = x (1 - x) y (1 - y) exp(x), and so that the stencil's own error is in it: what is compared is
    the solver alone. cg.png, or another file that is named, shows u, and from top to bottom how many digits the
    residual has lost.

        cc -I. examples/cg.c -o cg -lm -ldl -lpthread && ./cg
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <math.h>
#include <stdio.h>

#define N 129 /* points along a side, edges included */
#define ROUNDS 600
#define EVERY 10

/*  A p, for the rows between the first and the last one; index(1) finds the edges at the ends of a row. */
#define STENCIL "index(1) == 0 || index(1) == n - 1 ? 0 : 4*p - left - right - up - down"
#define POINTS(p)                                                                                                \
    IGNIS_ARRAYS(IGNIS_NAMED(p, p[0]), IGNIS_NAMED(left, p[1]), IGNIS_NAMED(right, p[2]), IGNIS_NAMED(up, p[3]), \
                 IGNIS_NAMED(down, p[4]), IGNIS_ARRAY_VALUE(n, N))

/*  Zeros on all points, and the views of them: the rows between the edges, and these from the left, right, upper and
    lower neighbours on. */
static ignis_array points(ignis_array *views)
{
    const int64_t offset[5] = {0, -1, 1, -N, N};
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(N * N), .dtype = IGNIS_F64};
    ignis_array all = ignis_array_create(&desc);
    ignis_array_zero(all);
    for (int k = 0; k < 5; k++) {
        ignis_array part = ignis_array_slice(all, 0, N + offset[k], (N - 2) * N);
        views[k] = ignis_array_reshape(part, IGNIS_SHAPE(N - 2, N));
        ignis_array_free(part);
    }
    return all;
}

int main(int argc, char **argv)
{
    static double values[N * N];
    static unsigned char picture[2 * N * N * 3];
    const char *path = argc > 1 ? argv[1] : "cg.png";
    ignis_array_desc rows = {.shape = IGNIS_SHAPE(N - 2, N), .dtype = IGNIS_F64},
                     one = {.shape = IGNIS_SHAPE(1), .dtype = IGNIS_F64};
    ignis_array p[5], u[5], direction, solution, r, q, old, now, pq, swapped;
    double start = 0, residual = 1, error = 1, digits[ROUNDS / EVERY + 1];
    int i, k, round = 0, looks = 0;
    if (ignis_setup(NULL) != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */
    direction = points(p), solution = points(u);
    r = ignis_array_create(&rows), q = ignis_array_create(&rows);
    old = ignis_array_create(&one), now = ignis_array_create(&one), pq = ignis_array_create(&one);

    /* f is A u of the solution: u goes into p for it, and both are forgotten. Then u = 0, and the residual r and the
       direction p are f. */
    ignis_array_map(p[0], "x = index(1)*h; y = (index(0) + 1)*h; x*(1 - x)*y*(1 - y)*exp(x) + 0*u",
                    IGNIS_ARRAYS(IGNIS_NAMED(u, u[0]), IGNIS_ARRAY_VALUE(h, 1.0 / (N - 1))));
    ignis_array_map(r, STENCIL, POINTS(p));
    ignis_array_copy(p[0], r);
    ignis_array_reduce(old, IGNIS_REDUCE_SUM, "r*r", IGNIS_ARRAYS(r));
    for (;; round++) {
        if (round % EVERY == 0) {
            ignis_array_to_host(old, &residual, IGNIS_F64, 1);
            start = round ? start : residual;
            digits[looks++] = residual > 0 ? log10(start / residual) / 2 : 16;
            if (!(residual > 1e-24 * start) || round == ROUNDS)
                break;
        }
        ignis_array_map(q, STENCIL, POINTS(p));
        ignis_array_reduce(pq, IGNIS_REDUCE_SUM, "p*q", IGNIS_ARRAYS(IGNIS_NAMED(p, p[0]), q));
        ignis_array_map(u[0], "u + old/pq*p", IGNIS_ARRAYS(IGNIS_NAMED(u, u[0]), old, pq, IGNIS_NAMED(p, p[0])));
        ignis_array_map(r, "r - old/pq*q", IGNIS_ARRAYS(r, old, pq, q));
        ignis_array_reduce(now, IGNIS_REDUCE_SUM, "r*r", IGNIS_ARRAYS(r));
        ignis_array_map(p[0], "r + now/old*p", IGNIS_ARRAYS(r, now, old, IGNIS_NAMED(p, p[0])));
        swapped = old, old = now, now = swapped;
    }
    ignis_array_reduce(now, IGNIS_REDUCE_MAX,
                       "x = index(1)*h; y = (index(0) + 1)*h; abs(u - x*(1 - x)*y*(1 - y)*exp(x))",
                       IGNIS_ARRAYS(IGNIS_NAMED(u, u[0]), IGNIS_ARRAY_VALUE(h, 1.0 / (N - 1))));
    ignis_array_to_host(now, &error, IGNIS_F64, 1);
    ignis_array_to_host(solution, values, IGNIS_F64, N * N);
    for (i = 0; i < N * N; i++) {
        unsigned char *pixel = picture + 3 * (i / N * 2 * N + i % N);
        ignis_picture_colour(pixel, values[i] / 0.11);
        ignis_picture_colour(pixel + 3 * N, i % N < digits[i / N * looks / N] / 16 * N ? 0.4 : 0);
    }
    printf("%d points, %d rounds: the residual has fallen to %.1e, the largest error is %.1e; see %s\n",
           (N - 2) * (N - 2), round, sqrt(residual / start), error, path);
    for (k = 0; k < 5; k++)
        ignis_array_free(p[k]), ignis_array_free(u[k]);
    ignis_array_free(direction), ignis_array_free(solution), ignis_array_free(r), ignis_array_free(q);
    ignis_array_free(old), ignis_array_free(now), ignis_array_free(pq);
    if (ignis_status_last() != IGNIS_OK)
        fprintf(stderr, "%s\n", ignis_status_message());
    return ignis_shutdown() != IGNIS_OK || !(error < 1e-10) || ignis_picture_write(path, picture, 2 * N, N) != IGNIS_OK;
}
