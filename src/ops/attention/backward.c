/*  >>ops.attention.backward - the backward of scaled dot-product attention

    Chooses between wgmma, mma and plain kernels, sizes tiles and scratch, launches. The head of each kernel
    source has the method.
    Uses: select, operands. Invariant: gradients are summed in a fixed order. */

#include "room.h"

/*  Launches the gradient of the sinks, if it is needed. delta: of `rows` rows for each head. */
static void ignis__attention_backward_sinks(ignis__op *op, ignis_dtype dtype, ignis__attention *attention,
                                            ignis__address delta, int rows)
{
    void *params[] = {&attention->params, &delta, &rows, &attention->grad_sinks};
    if (attention->grad_sinks)
        ignis__op_launch_row(op, IGNIS__BUILTIN(SDPA_BACKWARD_SINKS), dtype, attention->params.heads, 512, params);
}

IGNIS__PRIVATE void ignis__attention_backward_run(ignis__op *op, ignis_dtype dtype, ignis__attention *attention)
{
    ignis__attention_params *p = &attention->params;
    ignis__attention_variant variant;
    int64_t blocks = ignis__clamp(ignis__ceil_div((int64_t)p->batches * p->heads * p->sq, 8), 0,
                                  16 * op->work.device->info.multiprocessors);
    void *params[] = {&attention->params};
    p->delta = ignis__op_write(op, ignis__attention_new_statistics(op, attention, dtype, 1));
    if (!op->ok)
        return;
    variant = ignis__attention_choose(op, dtype, attention);
    ignis__attention_cost(attention, dtype, 2, 0, 0);
    ignis__op_launch(op, variant.delta_kernel, dtype, variant.define, ignis__launch_row(blocks, 256, 0), params);
    ignis__attention_backward_sinks(op, dtype, attention, p->delta, p->sq);
    if (p->grad_k.data) {
        ignis__attention_cost(attention, dtype, 2, 4, 4);
        ignis__attention_launch(op, &variant, variant.kv_kernel, &variant.kv, dtype, p->sk, p->kv_heads, attention);
    }
    if (p->grad_q.data) {
        ignis__attention_cost(attention, dtype, 3, 2, 3);
        ignis__attention_launch(op, &variant, variant.q_kernel, &variant.q, dtype, p->sq, p->heads, attention);
    }
    if (p->grad_bias.data) {
        blocks = ignis__ceil_div(p->sk, variant.bias.walk) *
                 (p->bias.row ? ignis__ceil_div(p->sq, variant.bias.rows) : 1) * (p->bias.head ? p->heads : 1) *
                 (p->bias.batch ? p->batches : 1);
        ignis__op_launch(op, variant.bias_kernel, dtype, variant.define,
                         ignis__launch_row(blocks, (unsigned)variant.bias.threads, (size_t)variant.bias.shared),
                         params);
    }
}

/*  Makes the gradient of the bias, an input of the backward function, if it is needed. */
IGNIS__PRIVATE ignis__array *ignis__attention_grad_bias(ignis__op *op, int input, bool needed, ignis__attention *p)
{
    ignis__array *grad;
    if (!p->bias_dtype || !needed)
        return NULL;
    grad = ignis__op_new_like(op, op->in[input]);
    p->params.grad_bias = ignis__attention_bias_rows(&op->in[input]->shape, ignis__op_write(op, grad));
    return grad;
}

/*  As ignis__attention_grad_bias, of the sinks. */
IGNIS__PRIVATE ignis__array *ignis__attention_grad_sinks(ignis__op *op, int input, bool needed, ignis__attention *p)
{
    ignis__array *grad;
    if (!p->has_sinks || !needed)
        return NULL;
    grad = ignis__op_new_like(op, op->in[input]);
    p->grad_sinks = ignis__op_write(op, grad);
    return grad;
}

/*  Returns whether a block keeps queries and steps over keys, not the other way round: all queries of a head
    fit one tile, and there are far more keys. Then no other block has queries of the head of k and v. With a
    softcap, heads of 72 to 128 lack registers for it. */
IGNIS__PRIVATE bool ignis__attention_has_one_query_tile(const ignis__attention *p)
{
    return p->params.sq <= 128 && p->params.sk >= 512 && p->params.heads == p->params.kv_heads &&
           (p->params.softcap <= 0 || p->params.head_dim == 64 || p->params.head_dim > 128);
}

/*  Returns the keys of a block. A block steps over tiles of queries; or the other way round. */
static int ignis__attention_backward_keys(const ignis__attention *p) { return p->params.head_dim <= 128 ? 128 : 64; }
static int ignis__attention_backward_queries(const ignis__attention *p)
{
    return p->params.head_dim == 64 || ignis__attention_has_one_query_tile(p) ? 128 : 64;
}

/*  Returns whether threads add to grad_q themselves instead of TMA. It shortens a block's turn if few tiles
    of queries make blocks wait. */
static bool ignis__attention_adds_directly(const ignis__attention *p)
{
    return p->params.head_dim == 128 && p->params.sq <= 256 && p->params.sk >= 2048 &&
           !ignis__attention_has_one_query_tile(p);
}

/*  Returns the blocks of a cluster, which have neighbouring keys. */
static int ignis__attention_backward_cluster(const ignis__attention *p)
{
    return p->params.head_dim <= 128 || ignis__attention_has_one_query_tile(p) ? 1 : 2;
}

/*  Returns whether the wgmma kernels can run. A tile with few queries would be mostly scratch in f32. */
IGNIS__PRIVATE bool ignis__attention_backward_takes_wgmma(ignis__op *op, ignis_dtype dtype, const ignis__attention *p)
{
    int least = p->params.head_dim == 64 ? 32 : 16;
    bool clustered;
    ignis__attention_request(op, dtype, p, true);
    if (!op->ok || !ignis__attention_takes_wgmma(op, dtype, p))
        return false;
    clustered = ignis__attention_backward_cluster(p) == 1 || op->work.device->clusters;
    if (p->params.sq < least && ignis__attention_backend == IGNIS_ATTENTION_WGMMA)
        ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_UNSUPPORTED,
                   "%s: backward not by IGNIS_ATTENTION_WGMMA, as there are fewer than %d queries", op->work.call,
                   least);
    else if (!clustered && ignis__attention_backend == IGNIS_ATTENTION_WGMMA)
        ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_UNSUPPORTED,
                   "%s: backward not by IGNIS_ATTENTION_WGMMA, as the device has no clusters of blocks", op->work.call);
    return p->params.sq >= least && clustered;
}

/*  Returns the shared memory as the kernels' source computes it: tiles of keys and queries in slabs of 64
    columns, scores, grad_q or data from the cluster's other block, statistics, barriers. */
static int ignis__attention_backward_shared(const ignis__attention *p)
{
    int keys = ignis__attention_backward_keys(p), queries = ignis__attention_backward_queries(p),
        wide = p->params.head_dim > 128;
    int slabs = (p->params.head_dim + 63) / 64, columns = (p->params.head_dim + 15) / 16 * 16,
        stages = slabs == 4 ? 3 : 4;
    if (ignis__attention_has_one_query_tile(p)) {
        stages = slabs == 1 ? 4 : slabs == 4 ? 1 : 2; /* of keys and values */
        return slabs * 128 * (2 * stages * keys + 2 * queries) + (wide ? 2 : 1) * 2 * keys * queries + 2 * 4 * queries +
               8 * (1 + 2 * stages);
    }
    return slabs * 128 * (2 * keys + stages * queries) + (wide ? 6 : 2) * 2 * keys * queries +
           (wide ? 2 * 128 * keys : 2 * 4 * queries * columns) + stages * 4 * queries + 104;
}

/*  Returns the tiles of keys of a chunk if there are few queries: enough for about 256 blocks. */
static int ignis__attention_backward_key_tiles(const ignis__attention *p)
{
    int64_t tiles = ignis__ceil_div(p->params.sk, ignis__attention_backward_keys(p));
    return (int)ignis__ceil_div(
        tiles, ignis__clamp(ignis__ceil_div(256, (int64_t)p->params.batches * p->params.heads), 1, tiles));
}

/*  Returns the key heads processed at a time: their q, grad_out and grad_q fit 40 MiB of L2. More heads make
    fewer blocks wait for a tile. A causal mask has two sections at least: the last one runs in the opposite
    order. */
static int ignis__attention_backward_section_heads(const ignis__attention *p)
{
    int64_t pairs = (int64_t)p->params.batches * p->params.kv_heads,
            bytes = (int64_t)p->params.sq * p->params.head_dim * 8 * (p->params.heads / p->params.kv_heads),
            section = 1;
    while (2 * section * bytes <= (int64_t)40 << 20 && section < pairs)
        section *= 2;
    return (int)ignis__ceil_div(pairs, section < pairs ? ignis__ceil_div(pairs, section) : p->params.causal ? 2 : 1);
}

/*  Launches the backward by wgmma. sums: scratch for column sums of 64 rows each, which the kernels' source
    describes; 0: not needed. rotation: the rotation to undo in the gradients of q and k, whose rows are equal
    in number; NULL: none, and sums are possible. */
IGNIS__PRIVATE void ignis__attention_backward_wgmma(ignis__op *op, ignis_dtype dtype, ignis__attention *attention,
                                                    ignis__address sums, ignis__rotation *rotation)
{
    ignis__attention_params *p = &attention->params;
    int keys = ignis__attention_backward_keys(attention), queries = ignis__attention_backward_queries(attention);
    int cluster = ignis__attention_backward_cluster(attention), slabs = p->head_dim / 64; /* blocks; full ones */
    bool few = ignis__attention_has_one_query_tile(attention), direct = ignis__attention_adds_directly(attention);
    int64_t tiles = ignis__ceil_div(p->sq, queries) * p->heads * p->batches, rows = tiles * queries;
    int64_t columns = ignis__ceil_div(p->head_dim, 16) * 16, turns = tiles * (cluster > 1 ? 4 : direct ? 2 : 1);
    int64_t blocks = cluster * ignis__ceil_div(p->sk, cluster * keys) * p->kv_heads * p->batches;
    int64_t finish = tiles, floats = rows * columns;                  /* of grad_q */
    int lanes = p->head_dim <= 64 ? 8 : p->head_dim <= 128 ? 16 : 32; /* for a row */
    ignis__attention_scratch scratch;
    ignis__tensor_map q, k, v, grad_out, grad_k, grad_v;
    void *params[] = {&attention->params, &scratch, rotation},
         *maps[] = {&q, &k, &v, &grad_out, &grad_k, &grad_v, &attention->params, &scratch};
    char define[96];
    ignis__attention_tma_map(op, &q, dtype, attention, &p->q, false, queries, slabs);
    ignis__attention_tma_map(op, &k, dtype, attention, &p->k, true, keys, cluster > 1 ? 1 : slabs);
    ignis__attention_tma_map(op, &v, dtype, attention, &p->v, true, keys, slabs);
    ignis__attention_tma_map(op, &grad_out, dtype, attention, &p->grad_out, false, queries, slabs);
    ignis__attention_tma_map(op, &grad_k, dtype, attention, &p->grad_k, true, keys, slabs);
    ignis__attention_tma_map(op, &grad_v, dtype, attention, &p->grad_v, true, keys, slabs);
    scratch.section =
        few ? ignis__attention_backward_key_tiles(attention) : ignis__attention_backward_section_heads(attention);
    if (few) {
        blocks = ignis__ceil_div(ignis__ceil_div(p->sk, keys), scratch.section) * p->heads * p->batches;
        floats = blocks * p->sq * columns;
        finish = ignis__ceil_div((int64_t)p->heads * p->batches * p->sq * columns, 8 * 256);
    }
    scratch.grad_q = ignis__op_write(op, ignis__op_new_row(op, floats + 2 * rows + turns + 1, IGNIS_F32));
    scratch.lse = scratch.grad_q + (ignis__address)(floats * 4);
    scratch.delta = scratch.lse + (ignis__address)(rows * 4);
    scratch.turns = scratch.delta + (ignis__address)(rows * 4);
    scratch.next = scratch.turns + (ignis__address)(turns * 4);
    scratch.sums = sums;
    scratch.rows = (int)ignis__ceil_div(p->sq, queries) * queries;
    snprintf(define, sizeof define, "-DIGNIS_HEAD_DIM=%d -DIGNIS_CAUSAL=%d%s", p->head_dim, p->causal,
             ignis__attention_backward_forms[few + 2 * direct]); /* at most one */
    ignis__attention_options(define, sizeof define, attention, ignis__attention_hopper_range(attention));
    ignis__attention_cost(attention, dtype, 2, 0, 0);
    ignis__op_launch(op, IGNIS__BUILTIN(SDPA_HOPPER_BACKWARD_ROWS), dtype, define,
                     ignis__launch_row(ignis__ceil_div(rows / 4 * lanes, 256), 256, 0), params);
    ignis__attention_backward_sinks(op, dtype, attention, scratch.delta, scratch.rows);
    ignis__attention_cost(attention, dtype, 2, 4, 5);
    ignis__op_launch(op, IGNIS__BUILTIN(SDPA_HOPPER_BACKWARD), dtype, define,
                     ignis__launch_row(blocks, 384, (size_t)ignis__attention_backward_shared(attention)), maps);
    if (rotation)
        finish += finish / p->heads * p->kv_heads;
    ignis__op_launch(
        op, rotation ? IGNIS__BUILTIN(SDPA_HOPPER_BACKWARD_ROTATED) : IGNIS__BUILTIN(SDPA_HOPPER_BACKWARD_FINISH),
        dtype, define, ignis__launch_row(finish, 256, 0), params);
}

IGNIS__PRIVATE ignis_status ignis__sdpa_backward(const ignis_backward_args *args)
{
    ignis__attention attention;
    ignis__op op; /* of grad_out, q, k, v, out, lse, the bias, the sinks, the lengths or bounds */
    ignis__array *gradients[5] = {NULL, NULL, NULL, NULL, NULL};
    ignis_dtype dtype;
    int sinks; /* their input of the operation */
    bool wgmma;
    if (!ignis__op_begin_backward(&op, "ignis_sdpa", args))
        return ignis__failed();
    memcpy(&attention, args->params, sizeof attention);
    dtype = op.in[1]->dtype;
    attention.params.q =
        ignis__attention_rows_of(&op.in[1]->shape, attention.params.head_dim, ignis__op_read(&op, op.in[1]));
    attention.params.k =
        ignis__attention_rows_of(&op.in[2]->shape, attention.params.head_dim, ignis__op_read(&op, op.in[2]));
    attention.params.v =
        ignis__attention_rows_of(&op.in[3]->shape, attention.params.head_dim, ignis__op_read(&op, op.in[3]));
    attention.params.out =
        ignis__attention_rows_of(&op.in[4]->shape, attention.params.head_dim, ignis__op_read(&op, op.in[4]));
    attention.params.grad_out = ignis__attention_rows_of(&op.in[4]->shape, attention.params.head_dim,
                                                         ignis__op_read(&op, op.in[0])); /* it has the numel of out */
    attention.params.lse = ignis__op_read(&op, op.in[5]);
    ignis__attention_read_options(&op, 6, &attention);
    wgmma = ignis__attention_backward_takes_wgmma(&op, dtype, &attention);
    if (args->needed[0] || wgmma) {
        gradients[0] = ignis__op_new_like(&op, op.in[1]);
        attention.params.grad_q =
            ignis__attention_rows_of(&op.in[1]->shape, attention.params.head_dim, ignis__op_write(&op, gradients[0]));
    }
    if (args->needed[1] || args->needed[2] || wgmma) { /* made together */
        gradients[1] = ignis__op_new_like(&op, op.in[2]);
        attention.params.grad_k =
            ignis__attention_rows_of(&op.in[2]->shape, attention.params.head_dim, ignis__op_write(&op, gradients[1]));
        gradients[2] = ignis__op_new_like(&op, op.in[3]);
        attention.params.grad_v =
            ignis__attention_rows_of(&op.in[3]->shape, attention.params.head_dim, ignis__op_write(&op, gradients[2]));
    }
    sinks = attention.bias_dtype ? 4 : 3;
    if (attention.bias_dtype)
        gradients[3] = ignis__attention_grad_bias(&op, 6, args->needed[3], &attention);
    if (attention.has_sinks)
        gradients[sinks] = ignis__attention_grad_sinks(&op, sinks + 3, args->needed[sinks], &attention);
    if (wgmma)
        ignis__attention_backward_wgmma(&op, dtype, &attention, 0, NULL);
    else
        ignis__attention_backward_run(&op, dtype, &attention);
    return ignis__op_finish_backward(&op, args, sinks + attention.has_sinks, gradients);
}
