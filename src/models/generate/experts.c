/*  models/generate/experts.c - the MLP of a layer with a mixture of experts, for the rows of a step or a chunk

    The router chooses on the device, and kernels read the numbers of the chosen experts there, so nothing waits for the
    host, and a graph serves all choices.
    May use: engine.c; kernels/models/experts.cu. Locks: the caller holds the engine's lock. */

#include "room.h"

enum { IGNIS__EXPERT_WARPS = 8 }; /* of a block: WARPS of experts.cu */

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
                                                   model->expert_inner, model->dtype));
}

/*  Adds the results of the experts for the rows of `normed` to `sum`, or writes them to `result` if there is one. */
IGNIS__PRIVATE void ignis__experts_run(ignis__op *op, ignis__engine *engine, const ignis__engine_layer *layer,
                                       int count)
{
    const ignis__model *model = engine->model;
    int experts = model->experts, slot_count = model->chosen, n = model->expert_inner, hidden = model->hidden;
    int normalises = model->normalises;
    ignis__address x = ignis__op_write(op, engine->normed), logits = ignis__op_write(op, engine->router_logits),
                   chosen = ignis__op_write(op, engine->chosen), shares = ignis__op_write(op, engine->shares),
                   inner = ignis__op_write(op, engine->expert_inner), sum = ignis__op_write(op, engine->sum),
                   result = engine->result ? ignis__op_write(op, engine->result) : 0,
                   router = ignis__op_read(op, layer->router), gate = ignis__op_read(op, layer->gate_experts),
                   up = ignis__op_read(op, layer->up_experts), down = ignis__op_read(op, layer->down_experts);
    void *of_router[] = {&logits, &x, &router, &experts, &hidden};
    void *of_choice[] = {&chosen, &shares, &logits, &experts, &slot_count, &normalises};
    void *of_up[] = {&inner, &x, &gate, &up, &chosen, &slot_count, &n, &hidden};
    void *of_down[] = {&sum, &result, &inner, &down, &chosen, &shares, &slot_count, &n, &hidden};
    ignis__experts_launch(op, IGNIS__BUILTIN(EXPERTS_ROUTER), model->dtype, experts, count, of_router);
    ignis__op_launch_row(op, IGNIS__BUILTIN(EXPERTS_CHOOSE), model->dtype, count, 32, of_choice);
    ignis__experts_launch(op, IGNIS__BUILTIN(EXPERTS_UP), model->dtype, n, (int64_t)count * slot_count, of_up);
    ignis__experts_launch(op, IGNIS__BUILTIN(EXPERTS_DOWN), model->dtype, hidden, count, of_down);
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
