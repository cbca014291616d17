/*  >>ops.image - ignis_grid_sample: images at the positions of a grid

    The gradient of the image sums weighted rows by sorted ids, as that of a table. Second derivatives are those of the
    same result made of formulas and rows of pixels.
    Uses: embedding, vjp; kernels/grid_sample.cu, kernels/embedding.cu. */

#include "room.h"

enum { IGNIS__GRID_SIDES = 3 };

/*  Describes the sampling of `x` by a grid of points, for arrays at these addresses. shares: a thread may have more
    packs, if 128 bytes stay side by side. */
static ignis__sampling ignis__sampling_of(const ignis__sampling *like, const ignis__array *x, const ignis_shape *grid,
                                          ignis__address addresses, bool shares)
{
    ignis__sampling p = *like;
    int64_t pack = ignis__pack_elements(x->dtype), points = 1, packs;
    int i;
    for (i = 1; i < grid->ndim - 1; i++)
        points *= grid->dim[i];
    p.packed = p.channels % pack == 0 && addresses % 16 == 0;
    p.share = shares && p.packed && p.channels % (IGNIS__IMAGE_SHARE * 8 * pack) == 0 ? IGNIS__IMAGE_SHARE : 1;
    packs = p.packed ? p.channels / pack / p.share : p.channels;
    p.packs = ignis__divisor_of(packs);
    p.points = ignis__divisor_of(points);
    p.count = grid->dim[0] * points * packs;
    p.lanes = (int)ignis__clamp(ignis__power_of_2_up(packs), 1, 32);
    return p;
}

/*  Writes the gradient of x: each point adds g to the pixels around it, by their weights. */
static void ignis__grid_sample_grad_x(ignis__op *op, const ignis__sampling *like, ignis__array *dx, ignis__array *g,
                                      ignis__array *grid)
{
    ignis__sampling p = ignis__sampling_of(like, dx, &grid->shape, 0, false);
    int64_t points = grid->numel / p.sides, pixels = p.channels ? dx->numel / p.channels : 0;
    ignis__row_weights rows;
    ignis__array *ids;
    ignis__address keys, weights, positions;
    void *params[] = {&keys, &weights, &positions, &p, &points};
    if (!op->ok || dx->numel == 0)
        return;
    if (points == 0) {
        ignis__op_zero(op, dx);
        return;
    }
    rows.shift = p.is_nearest ? 0 : p.sides;
    ids = ignis__op_new_row(op, points << rows.shift, IGNIS_I32);
    rows.weights = ignis__op_new_row(op, points << rows.shift, ignis__wide_dtype(dx->dtype));
    keys = ignis__op_write(op, ids);
    weights = ignis__op_write(op, rows.weights);
    positions = ignis__op_read(op, grid);
    ignis__op_launch_row(op, IGNIS__BUILTIN(SAMPLE_KEYS), dx->dtype,
                         ignis__clamp(ignis__ceil_div(points, 256), 1, INT32_MAX), 256, params);
    if (op->ok)
        ignis__op_add_rows(op, dx, g, ids, &rows, pixels, p.channels, 0);
}

/*  Writes the gradient of the grid. */
static void ignis__grid_sample_grad_grid(ignis__op *op, const ignis__sampling *like, ignis__array *dgrid,
                                         ignis__array *g, ignis__array *x, ignis__array *grid)
{
    ignis__address to = ignis__op_write(op, dgrid), dy = ignis__op_read(op, g), image = ignis__op_read(op, x),
                   positions = ignis__op_read(op, grid);
    ignis__sampling p = ignis__sampling_of(like, x, &grid->shape, dy | image, false);
    void *params[] = {&to, &dy, &image, &positions, &p};
    if (!op->ok || dgrid->numel == 0)
        return;
    if (p.is_nearest || p.count == 0)
        ignis__op_zero(op, dgrid);
    else
        ignis__op_launch_row(op, IGNIS__BUILTIN(GRID_SAMPLE_GRID), x->dtype,
                             ignis__clamp(ignis__ceil_div(grid->numel / p.sides, 256 / p.lanes), 1, INT32_MAX), 256,
                             params);
}

static ignis_status ignis__grid_sample_backward(const ignis_backward_args *args)
{
    const ignis__sampling *p = (const ignis__sampling *)args->params;
    ignis__array *gradients[2] = {NULL, NULL};
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_grid_sample", args))
        return ignis__failed();
    if (args->needed[0] && (gradients[0] = ignis__op_new_like(&op, op.in[1])) != NULL)
        ignis__grid_sample_grad_x(&op, p, gradients[0], op.in[0], op.in[2]);
    if (args->needed[1] && (gradients[1] = ignis__op_new_like(&op, op.in[2])) != NULL)
        ignis__grid_sample_grad_grid(&op, p, gradients[1], op.in[0], op.in[1], op.in[2]);
    return ignis__op_finish_backward(&op, args, 2, gradients);
}

/*  Checks shapes, and sets the params and the shape of the result. */
static bool ignis__grid_sample_describe(ignis__op *op, ignis__sampling *p, ignis_shape *out)
{
    const ignis_shape *x = &op->in[0]->shape, *grid = &op->in[1]->shape;
    const double most = INT32_MAX;
    double points = (double)grid->dim[0], pixels = (double)x->dim[0];
    int sides = x->ndim - 2, i;
    if ((sides != 2 && sides != 3) || grid->ndim != x->ndim || grid->dim[sides + 1] != sides ||
        grid->dim[0] != x->dim[0])
        return ignis__op_fail(
            op, IGNIS_DIAG_SHAPE_DIFFERS,
            "x is %s, grid is %s; expected [n, height, width, channels] and [n, rows, columns, 2], or "
            "[n, depth, height, width, channels] and [n, planes, rows, columns, 3]",
            ignis__shape_write(x).text, ignis__shape_write(grid).text);
    *out = *grid;
    out->dim[sides + 1] = p->channels = x->dim[sides + 1];
    p->sides = sides;
    for (i = 0; i < sides; i++) {
        int64_t size = x->dim[sides - i];
        if (size < 1)
            return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "x is %s, which has no pixels",
                                  ignis__shape_write(x).text);
        pixels *= (double)size;
        points *= (double)grid->dim[1 + i];
        p->size[i] = (int)(size < INT32_MAX ? size : INT32_MAX);
    }
    if (pixels >= most || points * (double)(1 << sides) >= most || (double)p->channels >= 1 << 30)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED,
                              "x is %s, grid is %s; 2^31 pixels, or positions times %d, or 2^30 channels are too many",
                              ignis__shape_write(x).text, ignis__shape_write(grid).text, 1 << sides);
    return true;
}

IGNIS_API ignis_tensor ignis_grid_sample(ignis_tensor x, ignis_tensor grid, const ignis_grid_sample_desc *desc)
{
    ignis_tensor inputs[] = {x, grid};
    ignis__sampling p = IGNIS__ZERO;
    ignis__address to, from, positions;
    ignis__array *out = NULL;
    ignis_shape shape;
    ignis__op op;
    void *params[] = {&to, &from, &positions, &p};
    if (!ignis__op_begin(&op, "ignis_grid_sample", 2, inputs))
        return ignis__no_tensor();
    if (desc) {
        p.is_nearest = desc->nearest;
        p.align_corners = desc->align_corners;
        p.padding = (int)desc->padding;
        if (p.padding < 0 || p.padding >= IGNIS_GRID_COUNT)
            ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "desc.padding is %d; expected one of ignis_grid_padding",
                           p.padding);
    }
    if (op.ok && ignis__op_is_float(&op, 0, "x")) {
        p.wide_grid = op.in[1]->dtype == ignis__wide_dtype(op.in[0]->dtype);
        if (p.wide_grid || ignis__op_same_dtype(&op, 1, "grid"))
            ignis__grid_sample_describe(&op, &p, &shape);
    }
    if (op.ok)
        out = ignis__op_new(&op, &shape, op.in[0]->dtype);
    if (out && out->numel > 0) {
        ignis__sampling like = p;
        to = ignis__op_write(&op, out);
        from = ignis__op_read(&op, op.in[0]);
        positions = ignis__op_read(&op, op.in[1]);
        p = ignis__sampling_of(&like, op.in[0], &op.in[1]->shape, to | from, true);
        ignis__op_launch_row(&op, IGNIS__BUILTIN(GRID_SAMPLE), out->dtype,
                             ignis__clamp(ignis__ceil_div(p.count, 256), 1, INT32_MAX), 256, params);
    }
    ignis__op_save_inputs(&op, 0, 2);
    return ignis__op_end_recorded(&op, out, "grid_sample", ignis__grid_sample_backward, &p, sizeof p);
}

/* --- by formulas, for second derivatives -------------------------------------------------------------------------- */

/*  A position along a side: the pixels before and after it, and their weights, which are 0 outside. */
typedef struct ignis__grid_side {
    ignis_tensor pixel[2], weight[2];
} ignis__grid_side;

/*  Returns the position along a side in pixels: with padding, moved inside. */
static ignis_tensor ignis__grid_position(const ignis__sampling *p, int side, ignis_tensor grid)
{
    const double n = p->size[side], last = n - 1, low = p->align_corners ? 0 : -0.5, span = p->align_corners ? last : n,
                 scale = span / 2;
    ignis_tensor x = ignis_slice(grid, p->sides + 1, side, 1);
    x = ignis_map("(x + 1)*scale + low", IGNIS_INPUTS(x, IGNIS_VALUE(scale, scale), IGNIS_VALUE(low, low)));
    if (p->padding == IGNIS_GRID_REFLECTION)
        x = span > 0 ? ignis_map("t = abs(x - low); k = floor(t/span); r = t - k*span; "
                                 "(k - 2*floor(k/2) == 0 ? r : span - r) + low",
                                 IGNIS_INPUTS(x, IGNIS_VALUE(span, span), IGNIS_VALUE(low, low)))
                     : ignis_map("0*x", IGNIS_INPUTS(x));
    if (p->padding != IGNIS_GRID_ZEROS)
        x = ignis_map("x > 0 ? x < last ? x : last : 0", IGNIS_INPUTS(x, IGNIS_VALUE(last, last)));
    /* NaN and numbers that no integer has are outside as well */
    return ignis_map("x > -2 && x < last + 2 ? x : -2", IGNIS_INPUTS(x, IGNIS_VALUE(last, last)));
}

static ignis__grid_side ignis__grid_side_of(const ignis__sampling *p, int side, ignis_tensor grid)
{
    static const char *const weights[] = {"f = floor(x); f >= 0 && f <= last ? 1 - x + f : 0",
                                          "f = floor(x); f >= -1 && f < last ? x - f : 0"};
    const ignis_tensor x = ignis__grid_position(p, side, grid);
    const double last = p->size[side] - 1;
    ignis_tensor pixel;
    ignis__grid_side s = IGNIS__ZERO;
    int k;
    pixel = ignis_cast(ignis_map(p->is_nearest ? "round(x)" : "floor(x)", IGNIS_INPUTS(x)), IGNIS_I64);
    for (k = 0; k < 2; k++) {
        s.pixel[k] = ignis_map("pixel + k < 0 ? 0 : pixel + k > last ? last : pixel + k",
                               IGNIS_INPUTS(pixel, IGNIS_VALUE(k, k), IGNIS_VALUE(last, last)));
        s.pixel[k] = ignis_cast(s.pixel[k], IGNIS_I64);
        s.weight[k] = ignis_map(p->is_nearest ? "f = round(x); f >= 0 && f <= last ? 1 + 0*x : 0*x" : weights[k],
                                IGNIS_INPUTS(x, IGNIS_VALUE(last, last)));
    }
    return s;
}

/*  Returns the same result as a sum of weighted rows of pixels. */
static ignis_tensor ignis__grid_sample_plain(const ignis__sampling *p, const ignis_shape *out, ignis_tensor x,
                                             ignis_tensor grid)
{
    ignis__grid_side side[IGNIS__GRID_SIDES];
    ignis_tensor sum = ignis__no_tensor(), table = ignis_reshape(x, IGNIS_SHAPE(-1, p->channels));
    int corners = p->is_nearest ? 1 : 1 << p->sides, c, s;
    for (s = 0; s < p->sides; s++)
        side[s] = ignis__grid_side_of(p, s, grid);
    for (c = 0; c < corners; c++) {
        ignis_tensor id = ignis__no_tensor(), weight = id, row;
        for (s = p->sides - 1; s >= 0; s--) {
            const ignis_tensor at = side[s].pixel[c >> s & 1], w = side[s].weight[c >> s & 1];
            ignis_tensor size = ignis_value((double)p->size[s]);
            id = id.id ? ignis_map("id*size + at", IGNIS_INPUTS(id, size, at))
                       : ignis_map("index(0)*size + at", IGNIS_INPUTS(size, at));
            weight = weight.id ? ignis_mul(weight, w) : w;
        }
        row = ignis_reshape(ignis_embedding(table, ignis_cast(id, IGNIS_I64)), *out);
        sum = sum.id ? ignis_map("sum + weight*row", IGNIS_INPUTS(sum, weight, row))
                     : ignis_map("weight*row", IGNIS_INPUTS(weight, row));
    }
    return sum;
}

IGNIS__PRIVATE void ignis__vjp_of_grid_sample(const ignis_vjp_args *args)
{
    const ignis__sampling *p = (const ignis__sampling *)args->params;
    ignis_tensor inputs[2], grid, plain;
    inputs[0] = ignis__vjp_input(args, 0, 0);
    inputs[1] = ignis__vjp_input(args, 1, 1);
    grid = ignis__vjp_wide(p->is_nearest ? ignis_detach(inputs[1]) : inputs[1]);
    plain = ignis__grid_sample_plain(p, &args->node->output->shape, ignis__vjp_wide(inputs[0]), grid);
    inputs[1] = p->is_nearest ? ignis__no_tensor() : inputs[1];
    ignis__vjp_plain(args, ignis_cast(plain, args->node->output->dtype), inputs);
    if (p->is_nearest && args->needed[1])
        args->grad_inputs[1] = ignis__vjp_zeros(args, 1, *ignis__vjp_shape(args, 1));
}
