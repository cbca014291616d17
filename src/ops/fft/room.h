/*  ops/fft - Fourier transforms. */
#pragma once

#include "../room.h"

#include "../../shared/fft.h"

/*  Transforms of n complex numbers that wait for their launches. */
typedef struct ignis__fft_work {
    ignis__fft_params params;
    ignis_dtype dtype;
    int64_t n, count_c; /* count_c: indices c */
    int load, store;    /* kinds of signals */
} ignis__fft_work;

/*  The transform along one dimension: [outer, in, inner] becomes [outer, out, inner]. Signals are cut or filled to n
    points, and results are cut or filled to `out`. */
typedef struct ignis__fft_step {
    int64_t outer, in, n, out, inner; /* in and out: real numbers on the side of real signals, else complex ones */
    int load, store;
    bool is_inverse;
    double scale, inner_weight; /* inner_weight: of numbers inside a half spectrum, each of which represents two */
} ignis__fft_step;

#define IGNIS__FFT_LONGEST ((int64_t)1 << 29)

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* plan.c */
extern int64_t ignis__fft_pass_limit;
IGNIS__PRIVATE bool ignis__fft_is_smooth(int64_t n);
IGNIS__PRIVATE int64_t ignis__fft_smooth_up(int64_t n);
IGNIS__PRIVATE bool ignis__fft_fits(const ignis__op *op, const ignis__fft_work *work);
IGNIS__PRIVATE int ignis__fft_split(int64_t n, int64_t *parts);
IGNIS__PRIVATE void ignis__fft_pass(ignis__op *op, const ignis__fft_work *work);

/* passes.c */
IGNIS__PRIVATE ignis__array *ignis__fft_step_run(ignis__op *op, const ignis__fft_step *step, ignis__array *from,
                                                 ignis__array *to, const ignis_shape *shape);

/* of vjp_table.c */
IGNIS__PRIVATE void ignis__vjp_of_fft(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_complex_mul(const ignis_vjp_args *args);
