/*  >>ops.linear_cross_entropy - the logits exist in chunks of rows only

    A chunk: product, loss and gradient of its logits, then products for dhidden and dw. Chunks are summed in
    their order.
    Uses: cross_entropy_launch, the matmul folder. f16 computes the logits again in the backward pass. */

#include "room.h"
#include "matmul/room.h"

#define IGNIS__CHUNK_LOGITS ((int64_t)1 << 27) /* of a chunk, about, by default */
/* Rows of a chunk, at least: adding up the weight's gradient takes 6 % of its products. */
#define IGNIS__CHUNK_ROWS 4096

typedef struct ignis__linear_entropy {
    ignis__cross_entropy entropy; /* of all rows */
    ignis__product product;       /* logits = hidden w^T, of all rows */
    int64_t chunk;                /* rows of a chunk, except the last */
} ignis__linear_entropy;

/*  Arrays that the chunks of one call share. NULL: not needed. */
typedef struct ignis__chunks {
    ignis__array *hidden, *w, *logits, *gradient; /* gradient: of the logits; it may be the same array */
    ignis__array *dhidden, *dw;
    ignis__array *part,
        /* Of dw, if chunks of a 16-bit type are summed in f32: that of one chunk, and the sum so far. */
        *sum;
} ignis__chunks;

static int64_t ignis__chunk_count(const ignis__linear_entropy *p)
{
    return ignis__clamp(ignis__ceil_div(p->entropy.rows, p->chunk), 1, INT64_MAX);
}

/*  Returns rows of [rows, n] as an array. */
static ignis__array *ignis__op_view_rows(ignis__op *op, ignis__array *of, int64_t first, int64_t rows, int64_t n)
{
    ignis_shape shape = IGNIS_SHAPE(rows, n);
    return ignis__op_view(op, of, &shape, rows * n, first * n);
}

/*  Makes the arrays of the gradients that are needed. */
static void ignis__chunks_create_gradients(ignis__op *op, const ignis__linear_entropy *p, bool hidden, bool w,
                                           ignis__chunks *c)
{
    ignis_dtype dtype = c->w->dtype, wide = ignis__wide_dtype(dtype);
    if (hidden)
        c->dhidden = ignis__op_new_like(op, c->hidden);
    if (w)
        c->dw = ignis__op_new_like(op, c->w);
    if (w && dtype != wide && ignis__chunk_count(p) > 1) {
        c->part = ignis__op_new_like(op, c->w);
        c->sum = ignis__op_new_row(op, c->w->numel, wide);
    }
    if (c->dw && p->entropy.rows == 0)
        ignis__op_zero(op, c->dw);
}

/*  Describes the product of a chunk's rows, which begin at `first`. */
static ignis__product ignis__chunk_product(const ignis__linear_entropy *p, int64_t first)
{
    ignis__product q = p->product;
    q.m = ignis__clamp(p->entropy.rows - first, 0, p->chunk);
    q.batch_a = q.m * q.k;
    return q;
}

static void ignis__chunk_logits(ignis__op *op, const ignis__linear_entropy *p, const ignis__chunks *c, int64_t first)
{
    ignis__product q = ignis__chunk_product(p, first);
    ignis__array *rows = op->ok && q.m ? ignis__op_view_rows(op, c->hidden, first, q.m, q.k) : NULL;
    if (rows)
        ignis__matmul_run(op, &q, c->logits, rows, c->w, NULL);
}

/*  Computes a chunk's rows of dhidden and its part of dw from the gradient of its logits. Chunks are summed
    in their order. */
static void ignis__chunk_backward(ignis__op *op, const ignis__linear_entropy *entropy, const ignis__chunks *chunks,
                                  int64_t first)
{
    ignis__product product = ignis__chunk_product(entropy, first), of_w = ignis__matmul_product_b(&product),
                   of_hidden = ignis__matmul_product_a(&product);
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__address dw, sum, part;
    int is_first = first == 0, is_last = first + product.m >= entropy->entropy.rows;
    ignis__array *rows;
    if (!op->ok || product.m == 0)
        return;
    if (chunks->dhidden) {
        rows = ignis__op_view_rows(op, chunks->dhidden, first, product.m, product.k);
        if (rows)
            ignis__matmul_run(op, &of_hidden, rows, chunks->gradient, chunks->w, NULL);
    }
    rows = chunks->dw ? ignis__op_view_rows(op, chunks->hidden, first, product.m, product.k) : NULL;
    if (!rows)
        return;
    epilogue.accumulate = !chunks->sum && !is_first;
    ignis__matmul_run(op, &of_w, chunks->sum ? chunks->part : chunks->dw, chunks->gradient, rows, &epilogue);
    if (chunks->sum) {
        void *params[] = {&dw, &sum, &part, &is_first, &is_last, &chunks->dw->numel};
        part = ignis__op_read(op, chunks->part);
        if (!is_first)
            (void)ignis__op_read(op, chunks->sum);
        sum = ignis__op_write(op, chunks->sum);
        dw = ignis__op_write(op, chunks->dw);
        ignis__op_launch_elementwise(op, IGNIS__BUILTIN(CROSS_ENTROPY_ADD_UP), chunks->dw->dtype, chunks->dw->numel,
                                     params);
    }
}

/*  Computes the loss of a chunk, and the gradient of its logits if there is an array for it. */
static void ignis__chunk_loss(ignis__op *op, const ignis__linear_entropy *p, const ignis__chunks *c,
                              const ignis__cross_entropy_work *all, int64_t first)
{
    ignis__cross_entropy entropy = p->entropy;
    ignis__cross_entropy_work work = *all;
    ignis_dtype dtype = c->w->dtype, wide = ignis__wide_dtype(dtype);
    entropy.rows = ignis__chunk_product(p, first).m;
    work.part = true;
    work.loss += (ignis__address)(first / p->chunk * ignis__dtypes[wide].size);
    work.log_sums += (ignis__address)(2 * first * ignis__dtypes[wide].size);
    work.targets += (ignis__address)(first * entropy.target_bytes);
    work.logits = entropy.rows ? ignis__op_read(op, c->logits) : 0;
    work.gradient = c->gradient ? ignis__op_write(op, c->gradient) : 0;
    if (op->ok)
        ignis__cross_entropy_plan(op, &entropy, &work, dtype);
    if (op->ok)
        work.losses = ignis__op_write(op, ignis__op_new_row(op, 2 * work.plan.blocks, wide));
    if (op->ok)
        ignis__cross_entropy_launch(op, &entropy, &work, dtype);
}

/*  Computes the gradients, and the logits once more. Saved: hidden, w, targets, log_sums, scale. */
static ignis_status ignis__linear_entropy_backward(const ignis_backward_args *args)
{
    enum { GRAD, HIDDEN, W, TARGETS, LOG_SUMS, SCALE };
    ignis__op op;
    ignis__linear_entropy p;
    ignis__chunks chunks = IGNIS__ZERO;
    ignis__array *gradients[2];
    int64_t first;
    int kept;
    memcpy(&p, args->params, sizeof p);
    if (!ignis__op_begin_backward(&op, "ignis_linear_cross_entropy", args))
        return ignis__failed();
    chunks.hidden = op.in[HIDDEN];
    chunks.w = op.in[W];
    chunks.logits = chunks.gradient = ignis__op_new_rows(&op, p.chunk, p.entropy.stride, chunks.w->dtype);
    ignis__chunks_create_gradients(&op, &p, args->needed[0], args->needed[1], &chunks);
    kept = op.made_count;
    for (first = 0; op.ok && first < p.entropy.rows; first += p.chunk) {
        int64_t size = ignis__dtypes[op.in[LOG_SUMS]->dtype].size;
        ignis__cross_entropy entropy = p.entropy;
        ignis__cross_entropy_addresses at;
        entropy.rows = ignis__chunk_product(&p, first).m;
        ignis__chunk_logits(&op, &p, &chunks, first);
        at.gradient = at.logits = ignis__op_write(&op, chunks.logits);
        at.grad = ignis__op_read(&op, op.in[GRAD]);
        at.targets = ignis__op_read(&op, op.in[TARGETS]) + (ignis__address)(first * entropy.target_bytes);
        at.log_sums = ignis__op_read(&op, op.in[LOG_SUMS]) + (ignis__address)(2 * first * size);
        at.scale = ignis__op_read(&op, op.in[SCALE]);
        ignis__cross_entropy_launch_backward(&op, &entropy, chunks.w->dtype, &at);
        ignis__chunk_backward(&op, &p, &chunks, first);
        ignis__op_free_made(&op, kept);
    }
    gradients[0] = chunks.dhidden;
    gradients[1] = chunks.dw;
    return ignis__op_finish_backward(&op, args, 2, gradients);
}

/*  Returns the default rows of a chunk. Several chunks need memory for the weight's gradient in f32: a chunk
    in 16 bits and the sum. */
static int64_t ignis__linear_entropy_rows(int64_t rows, const ignis__array *w)
{
    int64_t chunk = ignis__clamp(IGNIS__CHUNK_LOGITS / w->shape.dim[0] / 256 * 256, IGNIS__CHUNK_ROWS, INT64_MAX);
    return ignis__dtypes[w->dtype].size == 2 && rows <= chunk + 3 * w->shape.dim[1] ? rows : chunk;
}

/*  Checks the inputs, and describes the work. */
static bool ignis__linear_entropy_prepare(ignis__op *op, const ignis_cross_entropy_desc *desc,
                                          ignis__linear_entropy *entropy)
{
    const ignis_shape *hidden = &op->in[0]->shape, *w = &op->in[1]->shape;
    int64_t rows, n;
    memset(entropy, 0, sizeof *entropy);
    if (!ignis__op_is_float(op, 0, "hidden") || !ignis__op_same_dtype(op, 1, "weight") ||
        !ignis__op_rows(op, op->in[0], &rows, &n))
        return false;
    if (w->ndim != 2 || w->dim[1] != n || w->dim[0] == 0 || n == 0)
        return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE,
                              "hidden is %s, weight %s; [..., n] and [classes, n] are needed, neither of them 0",
                              ignis__shape_write(hidden).text, ignis__shape_write(w).text);
    if (w->dim[0] >= (int64_t)1 << 30)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "weight is %s, with 2^30 rows or more",
                              ignis__shape_write(w).text);
    if (ignis__cross_entropy_is_soft(desc))
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED,
                              "label_smoothing and IGNIS_REDUCTION_NONE are for ignis_cross_entropy");
    if (desc && desc->chunk < 0)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->chunk is %lld, below 0", (long long)desc->chunk);
    if (!ignis__cross_entropy_prepare(op, desc, rows, w->dim[0], op->in[2], &entropy->entropy))
        return false;
    entropy->chunk = desc && desc->chunk ? desc->chunk : ignis__linear_entropy_rows(rows, op->in[1]);
    entropy->chunk = ignis__clamp(rows, 1, entropy->chunk);
    entropy->product = ignis__product_of(op->in[0]->dtype, rows, w->dim[0], n, 1);
    return true;
}

IGNIS_API ignis_tensor ignis_linear_cross_entropy(ignis_tensor hidden, ignis_tensor weight, ignis_tensor targets,
                                                  const ignis_cross_entropy_desc *desc)
{
    ignis__op op;
    ignis__linear_entropy entropy;
    ignis__chunks chunks = IGNIS__ZERO;
    ignis_tensor inputs[] = {hidden, weight, targets};
    ignis__array *loss = NULL, *losses = NULL, *log_sums = NULL, *scale = NULL;
    ignis__cross_entropy_work work = IGNIS__ZERO;
    ignis_dtype dtype, wide;
    int64_t first;
    bool fused;
    int kept;
    if (!ignis__op_begin(&op, "ignis_linear_cross_entropy", 3, inputs))
        return ignis__no_tensor();
    chunks.hidden = op.in[0];
    chunks.w = op.in[1];
    dtype = chunks.w->dtype;
    wide = ignis__wide_dtype(dtype);
    fused = op.records && ignis__cross_entropy_is_fused(dtype);
    op.knows_one = fused;
    op.ok = ignis__linear_entropy_prepare(&op, desc, &entropy);
    if (op.ok) {
        loss = ignis__op_new_row(&op, 1, wide);
        losses = ignis__chunk_count(&entropy) > 1 ? ignis__op_new_row(&op, ignis__chunk_count(&entropy), wide) : loss;
        scale = ignis__op_new_row(&op, 1, wide);
        log_sums = ignis__op_new_row(&op, 2 * entropy.entropy.rows, wide);
        chunks.logits = ignis__op_new_rows(&op, entropy.chunk, entropy.entropy.stride, dtype);
        work.loss = ignis__op_write(&op, losses);
        work.scale = ignis__op_write(&op, scale);
        work.log_sums = ignis__op_write(&op, log_sums);
        work.targets = ignis__op_read(&op, op.in[2]);
        work.count = ignis__op_write(&op, ignis__op_new_row(&op, IGNIS__COUNT_BLOCKS + 1, IGNIS_I64));
        ignis__cross_entropy_count(&op, &entropy.entropy, &work, dtype);
    }
    if (op.ok && fused) {
        chunks.gradient = chunks.logits; /* replaces them */
        ignis__chunks_create_gradients(&op, &entropy, op.tape_state[0].requires_grad, op.tape_state[1].requires_grad,
                                       &chunks);
    }
    kept = op.made_count;
    for (first = 0; op.ok && (first == 0 || first < entropy.entropy.rows);
         first += entropy.chunk) { /* the loss of no rows is 0, or as a mean NaN */
        ignis__chunk_logits(&op, &entropy, &chunks, first);
        ignis__chunk_loss(&op, &entropy, &chunks, &work, first);
        if (fused)
            ignis__chunk_backward(&op, &entropy, &chunks, first);
        ignis__op_free_made(&op, kept);
    }
    if (op.ok && losses != loss) {
        ignis__axis axis = {1, losses->numel, 1};
        ignis__op_sum(&op, loss, losses, NULL, 1.0, &axis);
    }
    ignis__op_save(&op, chunks.dhidden);
    ignis__op_save(&op, chunks.dw);
    if (!fused) {
        ignis__op_save_inputs(&op, 0, 3);
        ignis__op_save(&op, log_sums);
        ignis__op_save(&op, scale);
    } else {
        for (kept = 0; kept < 3; kept++)
            ignis__op_keep(&op, op.in[kept]);
    }
    return ignis__op_end_recorded(&op, loss, "linear_cross_entropy",
                                  fused ? ignis__cross_entropy_rescale : ignis__linear_entropy_backward, &entropy,
                                  sizeof entropy);
}

/*  Differentiates the loss of logits that exist as a whole. The inputs are the last saved arrays if forward has made
    the gradients, else the first. */
IGNIS__PRIVATE void ignis__vjp_of_linear_cross_entropy(const ignis_vjp_args *args)
{
    const ignis__cross_entropy *entropy = &((const ignis__linear_entropy *)args->params)->entropy;
    const int first = args->node->backward_fn == ignis__cross_entropy_rescale ? args->node->saved_count - 3 : 0;
    ignis_cross_entropy_desc desc = IGNIS__ZERO;
    ignis_tensor inputs[3] = IGNIS__ZERO, targets = ignis__vjp_constant(args, first + 2);
    inputs[0] = ignis__vjp_input(args, 0, first);
    inputs[1] = ignis__vjp_input(args, 1, first + 1);
    desc.ignore_index = entropy->ignore_index;
    desc.ignore_zero = true;
    desc.classes = entropy->classes;
    desc.reduction = entropy->mean ? IGNIS_REDUCTION_MEAN : IGNIS_REDUCTION_SUM;
    ignis__vjp_plain(args, ignis_cross_entropy(ignis_matmul_t(inputs[0], inputs[1]), targets, &desc), inputs);
}
