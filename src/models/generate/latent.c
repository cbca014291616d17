/*  models/generate/latent.c - latent attention (DeepSeek-V2, 2024, section 2.1) over the KV cache

    latent_forward.c has the same for whole texts. The cache keeps one row of a token for all heads: the latent, after
    its norm, and the rotated elements. Layers have no slab of values; pages, forks and windows are as in other models.
    A head's key is a product of the latent, so q is multiplied with the keys' half of kv_b instead, and attends to the
    latents themselves. The result is multiplied with the values' half. So a step reads the cache once. Rows of a
    prompt are computed in the same way. A row has the same bits alone, in any batch and in any chunk.
    qkv, q_b and o are products as those of other families, and may be quantised; kv_b is in the model's dtype.
    May use: engine.c; kernels/models/latent.cu, attention_latent.cu. Locks: the caller holds the engine's lock. */

#include "room.h"

/*  Allocates the buffers of latent attention. Allocates nothing if the model has none. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc_latent(const char *call, ignis__engine *engine, int64_t rows)
{
    const ignis__model *model = engine->model;
    const int64_t heads = model->heads;
    return !model->latent ||
           ((!model->q_rank ||
             (ignis__engine_alloc(call, engine, &engine->q_normed, rows, model->q_rank, model->dtype) &&
              ignis__engine_alloc(call, engine, &engine->q, rows, heads * model->head_dim, model->dtype))) &&
            ignis__engine_alloc(call, engine, &engine->query, engine->step_rows,
                                heads * (model->latent + model->rotary), model->dtype) &&
            ignis__engine_alloc(call, engine, &engine->latents, engine->step_rows, heads * model->latent,
                                model->dtype));
}

/*  Launches a kernel of latent.cu that needs frequencies. */
static void ignis__latent_launch(ignis__op *op, ignis__builtin builtin, const ignis__engine *engine, ignis__latent *p,
                                 ignis__launch_shape shape)
{
    const double *table = engine->frequencies[0];
    float floats[IGNIS__ROPE_HALF];
    void *params[2];
    params[0] = p;
    params[1] =
        engine->model->dtype == IGNIS_F64 ? (void *)(uintptr_t)table : ignis__rope_round_frequencies(floats, table);
    ignis__op_launch(op, builtin, engine->model->dtype, NULL, shape, params);
}

/*  Describes a layer and the rows of a pass. */
static ignis__latent ignis__latent_describe(ignis__op *op, const ignis__engine *engine,
                                            const ignis__engine_layer *layer, const ignis__paged *paged, int count)
{
    const ignis__model *model = engine->model;
    ignis__array *q = model->q_rank ? engine->q : engine->qkv;
    ignis__latent p;
    memset(&p, 0, sizeof p);
    p.qkv = ignis__op_write(op, engine->qkv);
    p.qkv_row = engine->qkv->shape.dim[1];
    p.q_normed = model->q_rank ? ignis__op_write(op, engine->q_normed) : 0;
    p.q_weight = model->q_rank ? ignis__op_read(op, layer->q_a_norm) : 0;
    p.latent_weight = ignis__op_read(op, layer->kv_a_norm);
    p.cache = paged->k;
    p.q = ignis__op_write(op, q);
    p.q_row = q->shape.dim[1];
    p.query = ignis__op_write(op, engine->query);
    p.kv_b = ignis__op_read(op, layer->kv_b);
    p.attended = ignis__op_write(op, engine->latents);
    p.out = ignis__op_write(op, engine->attended);
    p.rows = paged->rows;
    p.eps = model->eps;
    p.factor = model->attention_factor;
    p.count = count;
    p.heads = model->heads;
    p.q_rank = model->q_rank;
    p.latent_at = model->q_rank ? model->q_rank : model->heads * model->head_dim;
    p.latent = model->latent;
    p.rotary = model->rotary;
    p.plain = model->head_dim - model->rotary;
    p.value_dim = model->value_dim;
    p.table = paged->table;
    return p;
}

/*  Normalises the low rank of q, and writes latents and rotated elements to the cache. paged: of the layer. */
IGNIS__PRIVATE void ignis__latent_write(ignis__op *op, const ignis__engine *engine, const ignis__engine_layer *layer,
                                        const ignis__paged *paged, int count)
{
    ignis__latent p = ignis__latent_describe(op, engine, layer, paged, count);
    ignis__latent_launch(op, IGNIS__BUILTIN(LATENT_ROWS), engine, &p, ignis__launch_row(count, 256, 0));
}

/*  Computes attention of rows whose q and whose rows of the cache are there: q becomes that of latents, attends to the
    cache, and what it finds becomes values. The buffers have room for engine->step_rows rows at a time. */
IGNIS__PRIVATE void ignis__latent_attend(ignis__op *op, const ignis__engine *engine, const ignis__engine_layer *layer,
                                         const ignis__paged *paged, int count)
{
    /* latent.cu has the same: THREADS, columns of a thread, rows of a block; attention_latent.cu: heads of a block,
       half of them in f64 */
    enum { THREADS = 256, COLUMNS = 2 * THREADS, ROWS = 8, HEADS = 16 };
    const ignis__model *model = engine->model;
    const int64_t size = ignis__dtypes[model->dtype].size, sms = op->work.device->info.multiprocessors,
                  groups = ignis__ceil_div(model->heads, model->dtype == IGNIS_F64 ? HEADS / 2 : HEADS);
    ignis__latent p = ignis__latent_describe(op, engine, layer, paged, count);
    ignis__paged at = *paged;
    void *of_values[] = {&p}, *of_attention[] = {&at};
    char define[64];
    int rows;
    at.q = p.query;
    at.q_row = (int64_t)model->heads * (model->latent + model->rotary);
    at.out = p.attended;
    at.kv_heads = 1;
    at.head_dim = model->latent;
    snprintf(define, sizeof define, "-DIGNIS_LATENT=%d -DIGNIS_ROTARY=%d", model->latent, model->rotary);
    for (; op->ok && count > 0; count -= rows) {
        rows = count < engine->step_rows ? count : engine->step_rows;
        p.count = at.count = rows;
        ignis__latent_launch(op, IGNIS__BUILTIN(LATENT_QUERY), engine, &p,
                             ignis__launch_grid(ignis__ceil_div(model->latent, COLUMNS), model->heads,
                                                ignis__ceil_div(rows, ROWS), THREADS, 1, 0));
        ignis__op_launch(
            op, IGNIS__BUILTIN(ATTENTION_LATENT), model->dtype, define,
            ignis__launch_grid(ignis__clamp(2 * sms / (groups * rows), 1, at.splits), groups, rows, THREADS, 1, 0),
            of_attention);
        ignis__op_launch(op, IGNIS__BUILTIN(LATENT_VALUES), model->dtype, NULL,
                         ignis__launch_grid(ignis__ceil_div(model->value_dim, THREADS / 32), model->heads,
                                            ignis__ceil_div(rows, ROWS), THREADS, 1, 0),
                         of_values);
        p.q += (ignis__address)((int64_t)rows * p.q_row * size);
        p.out += (ignis__address)((int64_t)rows * model->heads * model->value_dim * size);
        p.rows = at.rows += sizeof(ignis__generate_row) * (ignis__address)rows;
    }
}
