// SPDX-License-Identifier: MIT
/*  spectral.c - two shear layers roll up into vortices: the Navier-Stokes equations by Fourier transforms, in f64

    A plane flow without pressure terms is its vorticity w = dv/dx - du/dy, which the flow carries along and
    friction spreads:

        dw/dt + u dw/dx + v dw/dy = nu (d2w/dx2 + d2w/dy2)

    On a periodic square a derivative is a product in the spectrum: that of d/dx is the spectrum of w times i kx. The
    velocity follows in the same way, u from i ky / k^2 and v from -i kx / k^2. So four products and one inverse
    transform
    of a batch of four give u, v and both slopes of w. Their products are formed at the points, and transformed
    back. Wave
    numbers above two thirds of the highest are left out, as products of waves would come back there as others (Orszag
    1971). Friction is exact: a factor exp(-nu k^2 t) for each wave number. Steps are Heun's.

    Energy leaves the flow by friction alone: dE/dt = -nu mean(w^2), which no step uses. The program adds both
    sides up
    and compares them. spectral.png shows the vorticity at five times.

        cc -I. examples/spectral.c -o spectral -lm -ldl -lpthread && ./spectral

    Another file name may follow the program's.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PANELS 5
#define END 8.0 /* of time */

/*  Numbers of the equation in the spectrum [n, n/2 + 1, 2]. */
typedef struct flow {
    ignis_tensor waves;       /* [4, n, n/2 + 1, 2]: what makes u, v, dw/dx and dw/dy of w */
    ignis_tensor keep, decay; /* [n, n/2 + 1, 1]: 1 below two thirds of the highest wave number; friction of a step */
} flow;

static const ignis_fft_desc plane = {.ndim = 2};

#define WAVE_NUMBERS "ky = index(0) < n/2 ? index(0) : index(0) - n; kx = index(1); k2 = max(kx*kx + ky*ky, 1);"

static void flow_begin(flow *f, int n, double nu_dt)
{
    const ignis_tensor_desc f64 = {.dtype = IGNIS_F64};
    const ignis_tensor like = ignis_tensor_zeros(IGNIS_SHAPE(n, n / 2 + 1, 2), &f64), one = ignis_slice(like, 2, 0, 1);
    const ignis_inputs inputs = IGNIS_INPUTS(IGNIS_NAMED(zero, like), IGNIS_VALUE(n, n));
    const ignis_tensor four[] = {ignis_map(WAVE_NUMBERS "index(2) ? ky/k2 : zero", inputs),
                                 ignis_map(WAVE_NUMBERS "index(2) ? -kx/k2 : zero", inputs),
                                 ignis_map(WAVE_NUMBERS "index(2) ? kx : zero", inputs),
                                 ignis_map(WAVE_NUMBERS "index(2) ? ky : zero", inputs)};
    f->waves = ignis_stack(four, 4, 0);
    f->keep = ignis_map(WAVE_NUMBERS "zero + (3*kx < n && 3*abs(ky) < n)",
                        IGNIS_INPUTS(IGNIS_NAMED(zero, one), IGNIS_VALUE(n, n)));
    f->decay =
        ignis_map("ky = index(0) < n/2 ? index(0) : index(0) - n; kx = index(1); exp(zero - nu_dt*(kx*kx + ky*ky))",
                  IGNIS_INPUTS(IGNIS_NAMED(zero, one), IGNIS_VALUE(n, n), IGNIS_VALUE(nu_dt, nu_dt)));
}

/*  The spectrum of -(u dw/dx + v dw/dy). *energy receives mean(u^2 + v^2) / 2 (NULL: it is not needed). */
static ignis_tensor carried(const flow *f, ignis_tensor w, ignis_tensor *energy)
{
    ignis_tensor fields[4], product;
    ignis_split(ignis_irfft(ignis_complex_mul(f->waves, w, false), &plane), 0, 4, NULL, fields);
    product = ignis_map("-(u*wx + v*wy)", IGNIS_INPUTS(IGNIS_NAMED(u, fields[0]), IGNIS_NAMED(v, fields[1]),
                                                       IGNIS_NAMED(wx, fields[2]), IGNIS_NAMED(wy, fields[3])));
    if (energy)
        *energy = ignis_map_mean("0.5*(u*u + v*v)", IGNIS_INPUTS(IGNIS_NAMED(u, fields[0]), IGNIS_NAMED(v, fields[1])));
    product = ignis_rfft(ignis_reshape(product, IGNIS_SHAPE(-1, ignis_tensor_shape(product).dim[2])), &plane);
    return ignis_map("keep*product", IGNIS_INPUTS(IGNIS_NAMED(keep, f->keep), product));
}

static ignis_tensor heun(const flow *f, ignis_tensor w, double dt, ignis_tensor *energy)
{
    const ignis_tensor n = carried(f, w, energy), decay = f->decay;
    const ignis_tensor guess = ignis_map("decay*(w + dt*n)", IGNIS_INPUTS(decay, w, n, IGNIS_VALUE(dt, dt)));
    const ignis_tensor m = carried(f, guess, NULL);
    return ignis_map("decay*(w + 0.5*dt*n) + 0.5*dt*m", IGNIS_INPUTS(decay, w, n, m, IGNIS_VALUE(dt, dt)));
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "spectral.png";
    const ignis_tensor_desc f64 = {.dtype = IGNIS_F64};
    ignis_device_info info;
    ignis_tensor w, points;
    ignis_scope all;
    flow f;
    double energy = 0, first_energy = 0, lost = 0, error, *values;
    unsigned char *picture;
    int n, steps, step, panel = 0, i;
    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &info) != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */
    n = strstr(info.name, "imulat") ? 48 : 256;
    steps = 5 * n;
    const double dt = END / steps, nu = 0.32 / n;
    values = (double *)malloc(sizeof *values * (size_t)(n * n));
    picture = (unsigned char *)malloc((size_t)(3 * PANELS * n * n));
    all = ignis_scope_begin();
    flow_begin(&f, n, nu * dt);
    points = ignis_tensor_zeros(IGNIS_SHAPE(n, n), &f64);
    w = ignis_rfft(ignis_map("x = 2*pi*index(1)/n; y = 2*pi*index(0)/n; r = 15/pi;"
                             "lower = r/square(cosh(r*(y - pi/2))); upper = r/square(cosh(r*(3*pi/2 - y)));"
                             "zero + 0.05*cos(x) + (y < pi ? -lower : upper)",
                             IGNIS_INPUTS(IGNIS_NAMED(zero, points), IGNIS_VALUE(n, n))),
                   &plane);
    w = ignis_map("keep*w", IGNIS_INPUTS(IGNIS_NAMED(keep, f.keep), w));
    for (step = 0; step <= steps && ignis_status_last() == IGNIS_OK; step++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor now = ignis_irfft(w, &plane), energy_now, next = heun(&f, w, dt, &energy_now);
        /* friction from half a step before to half a step after; of the first and the last one half of that */
        const double friction = nu * ignis_item(ignis_map_mean("now*now", IGNIS_INPUTS(now)));
        lost += friction * dt * (step == 0 || step == steps ? 0.5 : 1);
        energy = ignis_item(energy_now);
        if (step == 0)
            first_energy = energy;
        if (step == panel * steps / (PANELS - 1)) {
            ignis_tensor_to_host(now, values, IGNIS_F64, (int64_t)n * n);
            for (i = 0; i < n * n; i++)
                ignis_picture_colour(picture + 3 * ((i / n * PANELS + panel) * n + i % n), 0.5 + values[i] / 10);
            panel++;
        }
        w = ignis_scope_return(scope, next);
    }
    error = fabs(first_energy - energy - lost) / first_energy;
    printf(
        "%d x %d points, %d steps: friction took %.3f %% of the energy, the error of its balance is %.1e; %s shows the "
        "vorticity\n",
        n, n, steps, 100 * lost / first_energy, error, path);
    ignis_scope_end(all);
    if (ignis_status_last() != IGNIS_OK)
        fprintf(stderr, "%s\n", ignis_status_message());
    i = ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK || !(error < 1e-4) ||
        ignis_picture_write(path, picture, n * PANELS, n) != IGNIS_OK;
    free(values);
    free(picture);
    return i;
}
