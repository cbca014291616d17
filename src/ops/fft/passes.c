/*  >>ops.fft.passes - a Fourier transform along one dimension, by passes of kernels/fft.cu

    Lengths that a block holds take one pass, longer products of small primes two or three, through a scratch array.
    Other lengths are a convolution of more points (Bluestein 1970). Columns that no block can hold are
    transposed before and after.
    Uses: plan, transpose; kernels FFT. */

#include "room.h"

/*  Makes scratch for complex numbers; its address, 0 after a failure. */
static ignis__address ignis__fft_scratch(ignis__op *op, int64_t count, ignis_dtype dtype)
{
    return ignis__op_write(op, ignis__op_new_row(op, 2 * count, dtype));
}

/*  Returns rows of n numbers, one after the other, of index c. */
static ignis__fft_side ignis__fft_rows(int64_t n)
{
    ignis__fft_side side = IGNIS__ZERO;
    side.c = n;
    side.stride = 1;
    side.step = 1;
    side.length = (int)n;
    return side;
}

/*  Moves index a to c, of which there is one: passes of a longer transform need a. */
static void ignis__fft_free_a(ignis__fft_work *work)
{
    if (work->params.count_a > 1) {
        IGNIS_ASSERT(work->count_c == 1);
        work->count_c = work->params.count_a;
        work->params.from.c = work->params.from.a;
        work->params.to.c = work->params.to.a;
    }
    work->params.from.a = work->params.to.a = 0;
    work->params.count_a = 1;
}

/*  Runs the passes of n = parts[0] * ... * parts[count - 1]. The first one reads signals, the last one writes them. */
static void ignis__fft_run_parts(ignis__op *op, ignis__fft_work *whole, const int64_t *parts, int count)
{
    int64_t n = whole->n, done = 1, rest = n; /* done: the product of parts before this one; rest: n / done */
    ignis__address scratch;
    int i;
    ignis__fft_free_a(whole);
    scratch = ignis__fft_scratch(op, n * whole->count_c, whole->dtype);
    for (i = 0; i < count && op->ok; i++, done *= parts[i - 1]) {
        const bool is_last = i == count - 1;
        ignis__fft_work pass = *whole;
        ignis__fft_params *p = &pass.params;
        const int64_t after = rest / parts[i]; /* elements from one of this part to the next */
        pass.n = parts[i];
        if (i > 0) {
            p->in = scratch;
            p->from = ignis__fft_rows(n);
            p->how &= ~(IGNIS__FFT_SWAP_IN | IGNIS__FFT_CHIRP_IN);
            pass.load = IGNIS__FFT_COMPLEX;
        }
        if (!is_last) {
            p->out = scratch;
            p->to = ignis__fft_rows(n);
            p->how &= ~(IGNIS__FFT_SWAP_OUT | IGNIS__FFT_CHIRP_OUT | IGNIS__FFT_SWAP_LAST);
            p->filter = 0;
            p->scale = 1;
            p->turn = rest;
            pass.store = IGNIS__FFT_COMPLEX;
            p->count_a = after;
            p->count_b = (int)done;
            p->from.first_a = p->to.first_a = 1;
            p->from.first_b = p->to.first_b = (int)rest;
            p->from.step = p->to.step = (int)after;
        } else { /* a: the first part's index, which is the fastest of the result; b: that of the one between */
            p->count_a = parts[0];
            p->count_b = (int)(done / parts[0]);
            p->from.first_a = (int)(n / parts[0]);
            p->from.first_b = (int)rest;
            p->from.step = 1;
            p->to.first_a = 1;
            p->to.first_b = (int)parts[0];
            p->to.step = (int)done;
        }
        ignis__fft_pass(op, &pass);
        rest = after;
    }
}

static void ignis__fft_run(ignis__op *op, ignis__fft_work *work);

/*  Returns the points of the convolution that is a transform of n: at least 2 n - 1, in few passes. Above 2^20 it is a
    power of 2, as other lengths are far apart there. */
static int64_t ignis__fft_chirp_points(int64_t n)
{
    int64_t least = 2 * n - 1, points = least > (1 << 20) ? 0 : ignis__fft_smooth_up(least), parts[3];
    return points && ignis__fft_split(points, parts) ? points : ignis__power_of_2_up(least);
}

/*  Runs a transform of any length as a convolution with exp(pi i j^2 / n). */
static void ignis__fft_run_chirp(ignis__op *op, const ignis__fft_work *work)
{
    int64_t n = work->n, m = ignis__fft_chirp_points(n), rows = work->params.count_a * work->count_c;
    const int how = work->params.how;
    ignis__address chirp = ignis__fft_scratch(op, n, work->dtype), filter = ignis__fft_scratch(op, m, work->dtype),
                   scratch = ignis__fft_scratch(op, rows * m, work->dtype);
    void *params[] = {&chirp, &filter, &n, &m};
    ignis__fft_work forward = *work, back = *work, own = IGNIS__ZERO;
    ignis__fft_side side = ignis__fft_rows(m);
    own.n = m;
    own.dtype = work->dtype;
    own.count_c = own.params.count_a = 1;
    own.params.count_b = 1;
    own.params.in = own.params.out = filter;
    own.params.from = own.params.to = side;
    own.params.scale = own.params.inner = 1;
    own.params.points = (int)m;
    side.a = m; /* rows of index a, or of a and c */
    side.c = m * work->params.count_a;
    forward.n = back.n = m;
    forward.store = back.load = IGNIS__FFT_COMPLEX;
    forward.params.out = back.params.in = scratch;
    forward.params.to = back.params.from = side;
    forward.params.scale = 1;
    back.params.scale = work->params.scale / (double)m;
    forward.params.how = IGNIS__FFT_CHIRP_IN | (how & (IGNIS__FFT_SWAP_IN | IGNIS__FFT_PACKED_IN));
    back.params.how = IGNIS__FFT_SWAP_IN | IGNIS__FFT_SWAP_OUT | IGNIS__FFT_CHIRP_OUT | (how & IGNIS__FFT_PACKED_OUT);
    if (how & IGNIS__FFT_SWAP_OUT)
        back.params.how |= IGNIS__FFT_SWAP_LAST;
    forward.params.chirp = back.params.chirp = chirp;
    forward.params.filter = filter;
    ignis__op_launch_row(op, IGNIS__BUILTIN(FFT_CHIRP), work->dtype, ignis__clamp(ignis__ceil_div(m, 256), 1, 4096),
                         256, params);
    ignis__fft_run(op, &own);
    ignis__fft_run(op, &forward);
    ignis__fft_run(op, &back);
}

/*  Runs a transform whose half spectra no pass can write: through complex numbers. */
static void ignis__fft_run_merge(ignis__op *op, const ignis__fft_work *work)
{
    int64_t rows = work->params.count_a * work->count_c, n = work->n;
    ignis__address scratch = ignis__fft_scratch(op, rows * n, work->dtype);
    ignis__fft_work plain = *work;
    ignis__fft_params merge = work->params;
    void *params[] = {&merge, &scratch, &rows, &n};
    plain.store = IGNIS__FFT_COMPLEX;
    plain.params.out = scratch;
    plain.params.to = ignis__fft_rows(n);
    plain.params.to.a = n;
    plain.params.scale = 1;
    ignis__fft_run(op, &plain);
    ignis__op_launch_row(op, IGNIS__BUILTIN(FFT_MERGE), work->dtype,
                         ignis__clamp(ignis__ceil_div(rows * (n / 2 + 1), 256), 1, 1 << 16), 256, params);
}

/*  Runs transforms of one index, a or c, or of both where one pass is enough. */
static void ignis__fft_run(ignis__op *op, ignis__fft_work *work)
{
    int64_t parts[3];
    int count;
    if (!op->ok || work->params.count_a * work->count_c == 0)
        return;
    if (ignis__fft_fits(op, work)) {
        ignis__fft_pass(op, work);
        return;
    }
    if (work->store == IGNIS__FFT_MERGED) {
        ignis__fft_run_merge(op, work);
        return;
    }
    count = ignis__fft_split(work->n, parts);
    if (count > 0)
        ignis__fft_run_parts(op, work, parts, count);
    else
        ignis__fft_run_chirp(op, work);
}

/*  Returns whether transforms beside each other, of both indices, need no transposing. */
static bool ignis__fft_runs_columns(const ignis__op *op, const ignis__fft_work *work)
{
    ignis__fft_work long_work = *work;
    if (ignis__fft_is_smooth(work->n))
        return ignis__fft_fits(op, work);
    long_work.n = ignis__fft_chirp_points(work->n);
    return ignis__fft_fits(op, &long_work);
}

/*  Sets how signals of real transforms, or of complex ones, are stored. */
static void ignis__fft_describe(const ignis__fft_step *step, ignis__fft_work *work, ignis__address from,
                                ignis__address to)
{
    const bool halves = step->load == IGNIS__FFT_PAIRS || step->load == IGNIS__FFT_MERGED;
    const int64_t spectrum = step->n / 2 + 1, size = ignis__dtypes[work->dtype].size;
    const bool to_half = step->store == IGNIS__FFT_MERGED || step->store == IGNIS__FFT_HERMITIAN,
               from_half = step->load == IGNIS__FFT_MERGED || step->load == IGNIS__FFT_HERMITIAN;
    const int64_t read = from_half ? spectrum : step->n, written = to_half ? spectrum : step->n;
    ignis__fft_params *p = &work->params;
    work->load = step->load;
    work->store = step->store;
    work->n = halves ? step->n / 2 : step->n;
    p->in = from;
    p->out = to;
    p->points = (int)work->n;
    p->scale = step->scale;
    p->inner = step->inner_weight;
    p->how = step->is_inverse ? IGNIS__FFT_SWAP_IN | IGNIS__FFT_SWAP_OUT : 0;
    p->from.step = p->to.step = 1;
    p->from.length = (int)(step->in < read ? step->in : read);
    p->to.length = (int)(step->out < written ? step->out : written);
    p->from.stride = p->to.stride = step->inner;
    p->count_b = 1;
    if (step->inner == 1) { /* rows */
        p->count_a = step->outer;
        work->count_c = 1;
        p->from.a = step->in;
        p->to.a = step->out;
    } else {
        p->count_a = step->inner;
        work->count_c = step->outer;
        p->from.a = p->to.a = 1;
        p->from.c = step->in * step->inner;
        p->to.c = step->out * step->inner;
    }
    if (step->in % 2 == 0 && p->from.length % 2 == 0 && from % (2 * (uint64_t)size) == 0)
        p->how |= IGNIS__FFT_PACKED_IN;
    if (step->out % 2 == 0 && p->to.length % 2 == 0)
        p->how |= IGNIS__FFT_PACKED_OUT;
}

/*  Runs a step, in columns only where ignis__fft_runs_columns allows it. */
static ignis__array *ignis__fft_step_direct(ignis__op *op, const ignis__fft_step *step, ignis__array *from,
                                            ignis__array *to, const ignis_shape *shape)
{
    const int64_t written =
        step->store == IGNIS__FFT_MERGED || step->store == IGNIS__FFT_HERMITIAN ? step->n / 2 + 1 : step->n;
    ignis__fft_work work = IGNIS__ZERO;
    ignis__address source = ignis__op_read(op, from), target;
    if (!to)
        to = ignis__op_new(op, shape, from->dtype);
    if (op->ok && step->out > written)
        ignis__op_zero(op, to);
    target = ignis__op_write(op, to);
    if (!op->ok)
        return NULL;
    work.dtype = from->dtype;
    ignis__fft_describe(step, &work, source, target);
    ignis__cost(-1, 5.0 * (double)(work.n * work.count_c * work.params.count_a) * ignis__log2((uint64_t)work.n),
                (int)work.dtype);
    ignis__fft_run(op, &work);
    return to;
}

/*  Transforms columns as rows. */
static ignis__array *ignis__fft_step_transposed(ignis__op *op, const ignis__fft_step *step, ignis__array *from,
                                                const ignis_shape *shape)
{
    ignis__fft_step rows = *step;
    ignis_shape turned = IGNIS_SHAPE(step->outer, step->inner, step->in, 2), result = turned;
    ignis__exchange there, back;
    ignis__array *array;
    there.a = back.a = step->outer;
    there.b = back.b = 1;
    there.c = back.c = 2;
    there.m = step->in;
    there.n = back.m = step->inner;
    back.n = step->out;
    result.dim[2] = step->out;
    rows.outer = step->outer * step->inner;
    rows.inner = 1;
    array = ignis__op_exchange(op, from, &turned, &there);
    if (op->ok)
        array = ignis__fft_step_direct(op, &rows, array, NULL, &result);
    return op->ok ? ignis__op_exchange(op, array, shape, &back) : NULL;
}

/*  Runs a step. The result is `to`, which may be `from` where a step changes no sizes, or a new array of the shape.
    NULL after a failure. */
IGNIS__PRIVATE ignis__array *ignis__fft_step_run(ignis__op *op, const ignis__fft_step *step, ignis__array *from,
                                                 ignis__array *to, const ignis_shape *shape)
{
    ignis__fft_work work = IGNIS__ZERO;
    ignis__address source = ignis__op_read(op, from);
    if (!op->ok)
        return NULL;
    work.dtype = from->dtype;
    if (step->load != IGNIS__FFT_REAL && step->load != IGNIS__FFT_PAIRS &&
        source % (2 * (uint64_t)ignis__dtypes[work.dtype].size)) { /* a view that begins anywhere */
        ignis__array *copy = ignis__op_new_like(op, from);
        ignis__op_copy(op, copy, from);
        from = copy;
    }
    if (!op->ok)
        return NULL;
    ignis__fft_describe(step, &work, 0, 0);
    if (step->inner > 1 && !ignis__fft_runs_columns(op, &work))
        return ignis__fft_step_transposed(op, step, from, shape);
    return ignis__fft_step_direct(op, step, from, to, shape);
}
