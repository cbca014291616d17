/*  models/generate/experts.c - the MLP of a layer with a mixture of experts, for the rows of a step or a chunk

    The router chooses on the device, and kernels read the numbers of the chosen experts there, so nothing waits for the
    host, and a graph serves all choices. Few rows of a step multiply with their experts one by one; many, and those of
    a chunk, are sorted by expert, and kernels read the weights of an expert once for several of its rows: those of a
    step with the bits of a row alone, those of a chunk as ignis_grouped_linear.
    May use: engine.c, >>ops.matmul.grouped_linear; kernels/models/experts.cu, experts_product.cu, experts_sorted.cu.
    Locks: the caller holds the engine's lock. */

#include "room.h"

/*  WARPS of experts.cu; TILE of experts_product.cu, and the tiles of a block that multiplies with whole numbers. */
enum { IGNIS__EXPERT_WARPS = 8, IGNIS__EXPERT_TILE = 16, IGNIS__EXPERT_TILES_WHOLE = 4 };

static void ignis__experts_launch(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, int64_t results,
                                  int64_t rows, void **params)
{
    ignis__op_launch(
        op, builtin, dtype, NULL,
        ignis__launch_grid(ignis__ceil_div(results, IGNIS__EXPERT_WARPS), rows, 1, 32 * IGNIS__EXPERT_WARPS, 1, 0),
        params);
}

/*  Returns the bytes of a row of k elements as whole numbers. */
IGNIS__PRIVATE int64_t ignis__experts_whole_bytes(int64_t k)
{
    return ignis__ceil_div(k, 256) * 2 * IGNIS__EXPERTS_WHOLE_BYTES;
}

/*  Allocates the buffers of experts, for chunks of `rows` rows. Allocates nothing if the model has no experts. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc_experts(const char *call, ignis__engine *engine, int64_t rows)
{
    const ignis__model *model = engine->model;
    const ignis_dtype wide = ignis__wide_dtype(model->dtype);
    const int64_t entries = rows * model->chosen, most = ignis__engine_rows_outside_chunks(engine) * model->chosen,
                  widest = model->hidden > model->expert_inner ? model->hidden : model->expert_inner;
    return !model->experts ||
           (ignis__engine_alloc(call, engine, &engine->router_logits, rows, model->experts, wide) &&
            ignis__engine_alloc(call, engine, &engine->chosen, rows, model->chosen, IGNIS_I32) &&
            ignis__engine_alloc(call, engine, &engine->shares, rows, model->chosen, wide) &&
            ignis__engine_alloc(call, engine, &engine->expert_inner, entries, model->expert_inner, model->dtype) &&
            ignis__engine_alloc(call, engine, &engine->expert_order, 1, 2 * entries + model->experts + 1, IGNIS_I32) &&
            ignis__engine_alloc(call, engine, &engine->expert_rows, entries, model->hidden, model->dtype) &&
            ignis__engine_alloc(call, engine, &engine->expert_up, entries, model->expert_inner, model->dtype) &&
            (!model->shared_inner ||
             ignis__engine_alloc(call, engine, &engine->shared_inner, rows, model->shared_inner, model->dtype)) &&
            ignis__engine_alloc(call, engine, &engine->expert_whole, most, ignis__experts_whole_bytes(widest),
                                IGNIS_U8) &&
            ignis__engine_alloc(call, engine, &engine->expert_results, most, model->hidden, wide));
}

/*  Describes a weight of experts, of a model of `dtype`. Returns its type, 0 if it is dense. */
static int ignis__experts_weight(ignis__op *op, ignis__array *array, ignis_dtype dtype, ignis__quantised_weight *weight)
{
    const ignis__address at = ignis__op_read(op, array);
    ignis__dequantise_record(op, &array->blocks, dtype);
    if (array->blocks.count) {
        *weight = ignis__quantised_part(&array->blocks, 0, at);
        return weight->type;
    }
    weight->records = at;
    weight->k = array->shape.dim[1];
    return 0;
}

/*  Launches a kernel of experts_product.cu. types: those of the weights. */
static void ignis__experts_multiply(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype,
                                    ignis__launch_shape launch, ignis__experts *p, const int types[2])
{
    void *params[] = {p};
    char define[64];
    snprintf(define, sizeof define, "-DIGNIS_BLOCKS=%d -DIGNIS_BLOCKS_UP=%d", types[0], types[1]);
    ignis__op_launch(op, builtin, dtype, types[0] || types[1] ? define : NULL, launch, params);
}

/*  Chooses the experts of rows by their logits. */
static void ignis__experts_choose(ignis__op *op, ignis__engine *engine, const ignis__engine_layer *layer, int count)
{
    const ignis__model *model = engine->model;
    ignis__expert_choice p;
    void *params[] = {&p};
    memset(&p, 0, sizeof p);
    p.chosen = ignis__op_write(op, engine->chosen);
    p.shares = ignis__op_write(op, engine->shares);
    p.logits = ignis__op_write(op, engine->router_logits);
    p.bias = layer->choice_bias ? ignis__op_read(op, layer->choice_bias) : 0;
    p.scale = model->routed_scale > 0 ? model->routed_scale : 1;
    p.experts = model->experts;
    p.slot_count = model->chosen;
    p.normalises = model->normalises;
    p.groups = model->groups;
    p.used_groups = model->used_groups;
    ignis__op_launch_row(op, model->sigmoid ? IGNIS__BUILTIN(EXPERTS_CHOOSE_SIGMOID) : IGNIS__BUILTIN(EXPERTS_CHOOSE),
                         model->dtype, count, 32, params);
}

/*  Multiplies rows that are sorted by expert with the matrices of their experts. Quantised ones are converted, some
    experts at a time. p: the params of the kernels that sort. */
static void ignis__experts_multiply_sorted(ignis__op *op, ignis__engine *engine, const ignis__experts_sorted *p,
                                           ignis__array *out, ignis__array *x, ignis__array *weights, int64_t n)
{
    const int64_t experts = p->experts, entries = (int64_t)p->rows * p->slot_count;
    const ignis__product product = ignis__product_of(x->dtype, entries, n, ignis__weight_columns(weights), 1);
    const bool quantised = weights->blocks.count > 0;
    const int64_t most = quantised ? ignis__model_experts_at_once(engine->model) : experts;
    int64_t first, some;
    ignis__gemm_groups groups;
    memset(&groups, 0, sizeof groups);
    groups.rows = entries;
    groups.offset_bytes = 4;
    groups.keeps = 1;
    for (first = 0; op->ok && first < experts; first += some) {
        some = experts - first < most ? experts - first : most;
        if (quantised)
            ignis__op_dequantise(op, engine->dequantised, 0, weights, &weights->blocks, first * n, some * n);
        groups.offsets = p->offsets + (ignis__address)first * 4;
        groups.count = some;
        ignis__groups_multiply(op, &product, out, x, quantised ? engine->dequantised : weights, &groups);
    }
}

/*  Sorts the slots of rows by expert, and sets where they are. p: zeros. */
static void ignis__experts_sort(ignis__op *op, ignis__engine *engine, ignis__experts_sorted *p, int count)
{
    const ignis__model *model = engine->model;
    const ignis__address bytes = (ignis__address)count * (ignis__address)model->chosen * 4;
    void *params[] = {p};
    p->chosen = ignis__op_write(op, engine->chosen);
    p->order = ignis__op_write(op, engine->expert_order);
    p->places = p->order + bytes;
    p->offsets = p->places + bytes;
    p->rows = count;
    p->slot_count = model->chosen;
    p->experts = model->experts;
    ignis__op_launch_row(op, IGNIS__BUILTIN(EXPERTS_SORT), model->dtype,
                         ignis__ceil_div(model->experts, IGNIS__EXPERT_WARPS), 32 * IGNIS__EXPERT_WARPS, params);
}

/*  As ignis__experts_run, for the rows of a chunk, whose experts are chosen. */
static void ignis__experts_run_sorted(ignis__op *op, ignis__engine *engine, const ignis__engine_layer *layer, int count)
{
    const ignis__model *model = engine->model;
    const int64_t entries = (int64_t)count * model->chosen;
    ignis__experts_sorted p;
    void *params[] = {&p};
    memset(&p, 0, sizeof p);
    ignis__experts_sort(op, engine, &p, count);
    p.shares = ignis__op_write(op, engine->shares);
    p.x = ignis__op_write(op, engine->normed);
    p.in = ignis__op_write(op, engine->expert_rows);
    p.gate = ignis__op_write(op, engine->expert_inner);
    p.up = ignis__op_write(op, engine->expert_up);
    p.bias[0] = layer->gate_experts_bias ? ignis__op_read(op, layer->gate_experts_bias) : 0;
    p.bias[1] = layer->up_experts_bias ? ignis__op_read(op, layer->up_experts_bias) : 0;
    p.bias[2] = layer->down_experts_bias ? ignis__op_read(op, layer->down_experts_bias) : 0;
    p.out = engine->result ? ignis__op_write(op, engine->result) : 0;
    p.sum = ignis__op_write(op, engine->sum);
    p.limit = model->expert_limit;
    p.hidden = model->hidden;
    p.inner = model->expert_inner;
    ignis__op_launch_row(op, IGNIS__BUILTIN(EXPERTS_GATHER), model->dtype, entries, 256, params);
    ignis__experts_multiply_sorted(op, engine, &p, engine->expert_inner, engine->expert_rows, layer->gate_experts,
                                   model->expert_inner);
    ignis__experts_multiply_sorted(op, engine, &p, engine->expert_up, engine->expert_rows, layer->up_experts,
                                   model->expert_inner);
    ignis__op_launch_row(op, IGNIS__BUILTIN(EXPERTS_GATE), model->dtype, entries, 256, params);
    ignis__experts_multiply_sorted(op, engine, &p, engine->expert_rows, engine->expert_inner, layer->down_experts,
                                   model->hidden);
    ignis__op_launch_row(op, IGNIS__BUILTIN(EXPERTS_COMBINE), model->dtype, count, 256, params);
}

/*  Launches a kernel of products by experts. Quantised weights multiply rows of x as whole numbers, which are made
    before, if tensor cores support the weights. rows: of x. */
static void ignis__experts_multiply_by_experts(ignis__op *op, ignis__engine *engine, ignis__builtin builtin,
                                               ignis__experts *p, const int types[2], int64_t rows)
{
    const ignis__model *model = engine->model;
    const bool whole = (model->dtype == IGNIS_F16 || model->dtype == IGNIS_BF16) &&
                       op->work.device->info.compute_major >= 8 && types[0] && types[1] &&
                       (types[0] == IGNIS__GGUF_F8) == (types[1] == IGNIS__GGUF_F8);
    const int64_t tiles = ignis__ceil_div(p->n, IGNIS__EXPERT_TILE);
    if (whole) {
        p->whole = ignis__op_write(op, engine->expert_whole);
        ignis__experts_multiply(op, IGNIS__BUILTIN(EXPERTS_WHOLE), model->dtype, ignis__launch_row(rows, 256, 0), p,
                                types);
    }
    ignis__experts_multiply(op, builtin, model->dtype,
                            ignis__launch_grid(model->experts,
                                               whole ? ignis__ceil_div(tiles, IGNIS__EXPERT_TILES_WHOLE) : tiles, 1,
                                               256, 1, 0),
                            p, types);
}

/*  As ignis__experts_run, for the rows of a step, whose experts are chosen. */
static void ignis__experts_run_step(ignis__op *op, ignis__engine *engine, const ignis__engine_layer *layer, int count)
{
    const ignis__model *model = engine->model;
    const int64_t entries = (int64_t)count * model->chosen;
    /* with fewer slots hardly two have an expert in common */
    const bool sorted = count > 1 && 2 * entries >= model->experts;
    const int64_t tiles = ignis__ceil_div(model->expert_inner, IGNIS__EXPERT_TILE),
                  down_tiles = ignis__ceil_div(model->hidden, IGNIS__EXPERT_TILE);
    ignis__experts_sorted order;
    ignis__experts p;
    int types[2];
    memset(&p, 0, sizeof p);
    memset(&order, 0, sizeof order);
    if (sorted)
        ignis__experts_sort(op, engine, &order, count);
    p.order = order.order;
    p.offsets = order.offsets;
    p.x = ignis__op_write(op, engine->normed);
    p.out = ignis__op_write(op, engine->expert_inner);
    p.chosen = ignis__op_write(op, engine->chosen);
    p.shares = ignis__op_write(op, engine->shares);
    p.slot_count = model->chosen;
    p.n = model->expert_inner;
    p.bias[0] = layer->gate_experts_bias ? ignis__op_read(op, layer->gate_experts_bias) : 0;
    p.bias[1] = layer->up_experts_bias ? ignis__op_read(op, layer->up_experts_bias) : 0;
    p.limit = model->expert_limit;
    types[0] = ignis__experts_weight(op, layer->gate_experts, model->dtype, &p.weights[0]);
    types[1] = ignis__experts_weight(op, layer->up_experts, model->dtype, &p.weights[1]);
    if (sorted)
        ignis__experts_multiply_by_experts(op, engine, IGNIS__BUILTIN(EXPERTS_UP_SORTED), &p, types, count);
    else
        ignis__experts_multiply(op, IGNIS__BUILTIN(EXPERTS_UP), model->dtype,
                                ignis__launch_grid(entries, tiles, 1, 256, 1, 0), &p, types);
    p.x = p.out;
    p.out = engine->result ? ignis__op_write(op, engine->result) : 0;
    p.sum = ignis__op_write(op, engine->sum);
    p.results = ignis__op_write(op, engine->expert_results);
    p.bias[0] = layer->down_experts_bias ? ignis__op_read(op, layer->down_experts_bias) : 0;
    p.n = model->hidden;
    types[0] = types[1] = ignis__experts_weight(op, layer->down_experts, model->dtype, &p.weights[0]);
    if (!sorted) {
        ignis__experts_multiply(op, IGNIS__BUILTIN(EXPERTS_DOWN), model->dtype,
                                ignis__launch_grid(count, down_tiles, 1, 256, 1, 0), &p, types);
        return;
    }
    ignis__experts_multiply_by_experts(op, engine, IGNIS__BUILTIN(EXPERTS_DOWN_SORTED), &p, types, entries);
    ignis__experts_multiply(op, IGNIS__BUILTIN(EXPERTS_SUM), model->dtype,
                            ignis__launch_grid(ignis__ceil_div(model->hidden, 256), count, 1, 256, 1, 0), &p, types);
}

/*  Adds the results of the experts for the rows of `normed` to `sum`, or writes them to `result` if there is one.
    is_chunk: as in ignis__engine_multiply. */
IGNIS__PRIVATE void ignis__experts_run(ignis__op *op, ignis__engine *engine, const ignis__engine_layer *layer,
                                       int count, bool is_chunk)
{
    const ignis__model *model = engine->model;
    int experts = model->experts, hidden = model->hidden;
    ignis__address x = ignis__op_write(op, engine->normed), logits = ignis__op_write(op, engine->router_logits),
                   router = ignis__op_read(op, layer->router),
                   bias = layer->router_bias ? ignis__op_read(op, layer->router_bias) : 0;
    void *of_router[] = {&logits, &x, &router, &bias, &experts, &hidden};
    ignis__experts_launch(op, IGNIS__BUILTIN(EXPERTS_ROUTER), model->dtype, experts, count, of_router);
    ignis__experts_choose(op, engine, layer, count);
    if (is_chunk)
        ignis__experts_run_sorted(op, engine, layer, count);
    else
        ignis__experts_run_step(op, engine, layer, count);
}

/*  Multiplies the inner elements of the expert for all tokens by the sigmoid of its gate, for the rows of `normed`. */
IGNIS__PRIVATE void ignis__experts_run_shared_gate(ignis__op *op, ignis__engine *engine,
                                                   const ignis__engine_layer *layer, int count)
{
    int n = engine->model->inner, hidden = engine->model->hidden;
    ignis__address inner = ignis__op_write(op, engine->inner), x = ignis__op_write(op, engine->normed),
                   gate = ignis__op_read(op, layer->shared_gate);
    void *params[] = {&inner, &x, &gate, &n, &hidden};
    ignis__op_launch_row(op, IGNIS__BUILTIN(EXPERTS_SHARED), engine->model->dtype, count, 32 * IGNIS__EXPERT_WARPS,
                         params);
}
