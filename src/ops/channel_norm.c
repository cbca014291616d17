/*  >>ops.channel_norm - batch_norm and group_norm: statistics over pixels, for each channel or group

    Plans how blocks share x, launches statistics, normalization and the backward.
    Uses: operation; kernels CHANNEL_NORM. */

#include "room.h"

/*  Plans the kernels that read all of x. addresses: the bitwise or of the addresses of all arrays of its
    dtype. */
static void ignis__channels_plan(ignis__op *op, ignis_dtype dtype, ignis__address addresses, ignis__channel_sizes *s,
                                 unsigned *threads, int64_t *blocks)
{
    int64_t pack = ignis__pack_elements(dtype), packs, tiles;
    s->packed = s->channels % pack == 0 && addresses % 16 == 0;
    packs = s->packed ? s->channels / pack : s->channels;
    threads[0] = (unsigned)ignis__power_of_2_up(ignis__clamp(packs, 1, 32));
    threads[1] = IGNIS__CHANNEL_THREADS / threads[0];
    tiles = ignis__ceil_div(packs, threads[0]) * s->outer;
    s->parts = ignis__clamp(4 * (int64_t)op->work.device->info.multiprocessors / tiles, 1,
                            ignis__ceil_div(s->rows, 4 * (int64_t)threads[1]));
    s->part_length = ignis__ceil_div(s->rows, s->parts);
    s->parts = ignis__ceil_div(s->rows, s->part_length);
    *blocks = ignis__clamp(tiles * s->parts, 1, INT32_MAX);
}

/*  Launches a kernel with a warp for each group. */
static void ignis__channels_launch_groups(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype,
                                          const ignis__channel_sizes *s, void **params)
{
    ignis__op_launch_row(op, builtin, dtype,
                         ignis__clamp(ignis__ceil_div(s->outer * s->groups, IGNIS__CHANNEL_WARPS), 1, INT32_MAX),
                         32 * IGNIS__CHANNEL_WARPS, params);
}

/*  Computes the gradients. Saved: x, w, means, rstds. */
static ignis_status ignis__channel_norm_backward(const ignis_backward_args *args)
{
    const ignis__channel_norm *norm = (const ignis__channel_norm *)args->params;
    ignis__channel_gradient p = IGNIS__ZERO;
    ignis__channel_sizes *sizes = &p.sizes;
    ignis__array *gradients[3] = {NULL, NULL, NULL};
    ignis__address dw, db, grads = 0, products = 0;
    ignis_dtype dtype, wide;
    unsigned threads[2];
    int64_t blocks;
    ignis__op op;
    bool is_wide;
    int i;
    void *sums[] = {&grads, &products, &p.dy, &p.x, &p.mean, &p.rstd, sizes},
         *weights[] = {&dw, &db, &grads, &products, sizes},
         *averages[] = {&p.average_g, &p.average_gh, &grads, &products, &p.w, sizes}, *backward[] = {&p};
    if (!ignis__op_begin_backward(&op, norm->call, args))
        return ignis__failed();
    p.sizes = norm->sizes;
    dtype = op.in[1]->dtype;
    is_wide = op.in[2]->dtype != dtype;
    wide = ignis__wide_dtype(dtype);
    for (i = 0; i < 3; i++) /* x, w, b */
        if (args->needed[i])
            gradients[i] = ignis__op_new_like(&op, op.in[i ? 2 : 1]);
    if (op.in[1]->numel == 0) {
        for (i = 1; i < 3; i++)
            if (gradients[i])
                ignis__op_zero(&op, gradients[i]);
        return ignis__op_finish_backward(&op, args, 3, gradients);
    }
    p.dy = ignis__op_read(&op, op.in[0]);
    p.x = ignis__op_read(&op, op.in[1]);
    p.w = ignis__op_read(&op, op.in[2]);
    p.mean = ignis__op_read(&op, op.in[3]);
    p.rstd = ignis__op_read(&op, op.in[4]);
    p.dx = gradients[0] ? ignis__op_write(&op, gradients[0]) : 0;
    dw = gradients[1] ? ignis__op_write(&op, gradients[1]) : 0;
    db = gradients[2] ? ignis__op_write(&op, gradients[2]) : 0;
    ignis__channels_plan(&op, dtype, p.dx | p.dy | p.x, sizes, threads, &blocks);
    if (gradients[1] || gradients[2] || !norm->given) {
        grads = ignis__op_write(&op, ignis__op_new_row(&op, sizes->outer * sizes->parts * sizes->channels, wide));
        products = ignis__op_write(&op, ignis__op_new_row(&op, sizes->outer * sizes->parts * sizes->channels, wide));
        ignis__op_launch(&op, IGNIS__BUILTIN(CHANNEL_SUMS), dtype, NULL,
                         ignis__launch_grid(blocks, 1, 1, threads[0], threads[1], 0), sums);
    }
    if (gradients[1] || gradients[2])
        ignis__op_launch_row(&op, IGNIS__BUILTIN(CHANNEL_WEIGHTS), op.in[2]->dtype,
                             ignis__ceil_div(sizes->channels, 32), 32 * IGNIS__CHANNEL_WARPS, weights);
    if (gradients[0] && !norm->given) {
        p.average_g = ignis__op_write(&op, ignis__op_new_row(&op, sizes->outer * sizes->groups, wide));
        p.average_gh = ignis__op_write(&op, ignis__op_new_row(&op, sizes->outer * sizes->groups, wide));
        ignis__channels_launch_groups(
            &op, is_wide ? IGNIS__BUILTIN(CHANNEL_AVERAGES_WIDE) : IGNIS__BUILTIN(CHANNEL_AVERAGES), dtype, sizes,
            averages);
    }
    if (gradients[0])
        ignis__op_launch(&op, is_wide ? IGNIS__BUILTIN(CHANNEL_BACKWARD_WIDE) : IGNIS__BUILTIN(CHANNEL_BACKWARD), dtype,
                         NULL, ignis__launch_grid(blocks, 1, 1, threads[0], threads[1], 0), backward);
    return ignis__op_finish_backward(&op, args, 3, gradients);
}

/*  Ends an operation on x, w and b, whose sizes are known. running: mean and variance, held; NULL: none. */
IGNIS__PRIVATE ignis_tensor ignis__channel_norm_end(ignis__op *op, const char *name, ignis__channel_norm *norm,
                                                    double momentum, double eps, ignis__array *const *running)
{
    static const char *const names[] = {"x", "w", "b"};
    ignis__channel_sizes sizes = norm->sizes;
    ignis_dtype dtype = op->in[0]->dtype, wide = ignis__wide_dtype(dtype);
    const bool is_wide = op->in[1]->dtype != dtype;
    ignis__array *out = NULL, *means = NULL, *rstds = NULL;
    ignis__address x, y, w, b, mean, rstd, part_means = 0, squares = 0, running_mean = 0, running_var = 0;
    unsigned threads[2];
    int64_t blocks;
    int i;
    void *statistics[] = {&part_means, &squares, &x, &sizes}, *apply[] = {&y, &x, &w, &b, &mean, &rstd, &sizes},
         *finish[] = {&mean, &rstd, &part_means, &squares, &running_mean, &running_var, &momentum, &eps, &sizes, &x};
    for (i = 1; i < 3 && op->ok; i++)
        if (ignis__op_is_weight(op, i, names[i]))
            ignis__op_is_row(op, i, names[i], sizes.channels);
    if (op->ok && sizes.channels >= IGNIS__IMAGE_LIMIT)
        ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "x is %s, with 2^28 channels or more",
                       ignis__shape_write(&op->in[0]->shape).text);
    ignis__op_eps(op, &eps);
    norm->eps = eps;
    out = ignis__op_new_like(op, op->in[0]);
    means = ignis__op_new_rows(op, sizes.outer, sizes.groups, wide);
    rstds = ignis__op_new_rows(op, sizes.outer, sizes.groups, wide);
    x = ignis__op_read(op, op->in[0]);
    w = ignis__op_read(op, op->in[1]);
    b = ignis__op_read(op, op->in[2]);
    y = ignis__op_write(op, out);
    mean = ignis__op_write(op, means);
    rstd = ignis__op_write(op, rstds);
    if (running) {
        running_mean = ignis__op_read(op, running[0]);
        running_var = ignis__op_read(op, running[1]);
        if (!norm->given) {
            running_mean = ignis__op_write(op, running[0]);
            running_var = ignis__op_write(op, running[1]);
        }
    }
    if (op->ok && out->numel > 0) {
        ignis__channels_plan(op, dtype, x | y, &sizes, threads, &blocks);
        if (!norm->given) {
            part_means = ignis__op_write(op, ignis__op_new_row(op, sizes.outer * sizes.parts * sizes.channels, wide));
            squares = ignis__op_write(op, ignis__op_new_row(op, sizes.outer * sizes.parts * sizes.channels, wide));
            ignis__op_launch(op, IGNIS__BUILTIN(CHANNEL_STATISTICS), dtype, NULL,
                             ignis__launch_grid(blocks, 1, 1, threads[0], threads[1], 0), statistics);
        }
        ignis__channels_launch_groups(op, IGNIS__BUILTIN(CHANNEL_FINISH), dtype, &sizes, finish);
        ignis__op_launch(op, is_wide ? IGNIS__BUILTIN(CHANNEL_APPLY_WIDE) : IGNIS__BUILTIN(CHANNEL_APPLY), dtype, NULL,
                         ignis__launch_grid(blocks, 1, 1, threads[0], threads[1], 0), apply);
    }
    ignis__op_save_inputs(op, 0, 2);
    ignis__op_save(op, means);
    ignis__op_save(op, rstds);
    return ignis__op_end_recorded(op, out, name, ignis__channel_norm_backward, norm, sizeof *norm);
}
