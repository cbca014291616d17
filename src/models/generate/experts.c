/*  models/generate/experts.c - the MLP of a layer with a mixture of experts, for the rows of a step or a chunk

    The router chooses on the device, and kernels read the numbers of the chosen experts there, so nothing waits for the
    host, and a graph serves all choices.
    May use: engine.c; kernels/models/experts.cu, experts_product.cu. Locks: the caller holds the engine's lock. */

#include "room.h"

enum { IGNIS__EXPERT_WARPS = 8, IGNIS__EXPERT_TILE = 16 }; /* WARPS of experts.cu, TILE of experts_product.cu */

static void ignis__experts_launch(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, int64_t results,
                                  int64_t rows, void **params)
{
    ignis__op_launch(
        op, builtin, dtype, NULL,
        ignis__launch_grid(ignis__ceil_div(results, IGNIS__EXPERT_WARPS), rows, 1, 32 * IGNIS__EXPERT_WARPS, 1, 0),
        params);
}

/*  Allocates the buffers of experts, for chunks of `rows` rows. Allocates nothing if the model has no experts. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc_experts(const char *call, ignis__engine *engine, int64_t rows)
{
    const ignis__model *model = engine->model;
    const ignis_dtype wide = ignis__wide_dtype(model->dtype);
    return !model->experts || (ignis__engine_alloc(call, engine, &engine->router_logits, rows, model->experts, wide) &&
                               ignis__engine_alloc(call, engine, &engine->chosen, rows, model->chosen, IGNIS_I32) &&
                               ignis__engine_alloc(call, engine, &engine->shares, rows, model->chosen, wide) &&
                               ignis__engine_alloc(call, engine, &engine->expert_inner, rows * model->chosen,
                                                   model->expert_inner, model->dtype) &&
                               (!model->shared_inner || ignis__engine_alloc(call, engine, &engine->shared_inner, rows,
                                                                            model->shared_inner, model->dtype)));
}

/*  Describes a weight of experts. Returns its type, 0 if it is dense. */
static int ignis__experts_weight(ignis__op *op, ignis__array *array, ignis__quantised_weight *weight)
{
    const ignis__address at = ignis__op_read(op, array);
    if (array->blocks.count) {
        *weight = ignis__quantised_part(&array->blocks, 0, at);
        return weight->type;
    }
    weight->records = at;
    weight->k = array->shape.dim[1];
    return 0;
}

/*  Launches products of experts. types: those of the weights. */
static void ignis__experts_multiply(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, int64_t rows,
                                    ignis__experts *p, const int types[2])
{
    void *params[] = {p};
    char define[64];
    snprintf(define, sizeof define, "-DIGNIS_BLOCKS=%d -DIGNIS_BLOCKS_UP=%d", types[0], types[1]);
    ignis__op_launch(op, builtin, dtype, types[0] || types[1] ? define : NULL,
                     ignis__launch_grid(rows, ignis__ceil_div(p->n, IGNIS__EXPERT_TILE), 1, 256, 1, 0), params);
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
    p.scale = model->routed_scale;
    p.experts = model->experts;
    p.slot_count = model->chosen;
    p.normalises = model->normalises;
    p.groups = model->groups;
    p.used_groups = model->used_groups;
    ignis__op_launch_row(op, model->sigmoid ? IGNIS__BUILTIN(EXPERTS_CHOOSE_SIGMOID) : IGNIS__BUILTIN(EXPERTS_CHOOSE),
                         model->dtype, count, 32, params);
}

/*  Adds the results of the experts for the rows of `normed` to `sum`, or writes them to `result` if there is one. */
IGNIS__PRIVATE void ignis__experts_run(ignis__op *op, ignis__engine *engine, const ignis__engine_layer *layer,
                                       int count)
{
    const ignis__model *model = engine->model;
    int experts = model->experts, slot_count = model->chosen, hidden = model->hidden, types[2];
    ignis__address x = ignis__op_write(op, engine->normed), logits = ignis__op_write(op, engine->router_logits),
                   chosen = ignis__op_write(op, engine->chosen), shares = ignis__op_write(op, engine->shares),
                   router = ignis__op_read(op, layer->router),
                   bias = layer->router_bias ? ignis__op_read(op, layer->router_bias) : 0;
    void *of_router[] = {&logits, &x, &router, &bias, &experts, &hidden};
    ignis__experts p;
    ignis__experts_launch(op, IGNIS__BUILTIN(EXPERTS_ROUTER), model->dtype, experts, count, of_router);
    ignis__experts_choose(op, engine, layer, count);
    memset(&p, 0, sizeof p);
    p.x = x;
    p.out = ignis__op_write(op, engine->expert_inner);
    p.chosen = chosen;
    p.shares = shares;
    p.slot_count = slot_count;
    p.n = model->expert_inner;
    p.bias[0] = layer->gate_experts_bias ? ignis__op_read(op, layer->gate_experts_bias) : 0;
    p.bias[1] = layer->up_experts_bias ? ignis__op_read(op, layer->up_experts_bias) : 0;
    p.limit = model->expert_limit;
    types[0] = ignis__experts_weight(op, layer->gate_experts, &p.weights[0]);
    types[1] = ignis__experts_weight(op, layer->up_experts, &p.weights[1]);
    ignis__experts_multiply(op, IGNIS__BUILTIN(EXPERTS_UP), model->dtype, (int64_t)count * slot_count, &p, types);
    p.x = p.out;
    p.out = engine->result ? ignis__op_write(op, engine->result) : 0;
    p.sum = ignis__op_write(op, engine->sum);
    p.bias[0] = layer->down_experts_bias ? ignis__op_read(op, layer->down_experts_bias) : 0;
    p.n = hidden;
    types[0] = types[1] = ignis__experts_weight(op, layer->down_experts, &p.weights[0]);
    ignis__experts_multiply(op, IGNIS__BUILTIN(EXPERTS_DOWN), model->dtype, count, &p, types);
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
