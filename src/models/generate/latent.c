/*  models/generate/latent.c - latent attention (DeepSeek-V2, 2024, section 2.1) over the KV cache

    latent_forward.c has the same for whole texts. The cache keeps one row of a token for all heads: the latent, after
    its norm, and the rotated elements. Layers have no slab of values; pages, forks and windows are as in other models.
    A head's key is a product of the latent, so q is multiplied with the keys' half of kv_b instead, and attends to the
    latents themselves. The result is multiplied with the values' half. So a step reads the cache once. Rows of a
    prompt are computed in the same way. A row has the same bits alone, in any batch and in any chunk.
    qkv, q_b and o are products as those of other families, and may be quantised; kv_b is in the model's dtype.
    May use: engine.c; kernels/models/latent.cu, attention_latent.cu, attention_latent_mma.cu. Locks: the caller holds
    the engine's lock. */

#include "room.h"

/*  Allocates the buffers of latent attention. Allocates nothing if the model has none. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc_latent(const char *call, ignis__engine *engine, int64_t rows)
{
    enum { PRODUCTS = 1 << 14 }; /* rows of products with keys, of all heads: two for each block of an H200 */
    const ignis__model *model = engine->model;
    const int64_t heads = model->heads, at_a_time = ignis__clamp(PRODUCTS / heads, engine->step_rows, rows);
    return !model->latent ||
           ((!model->q_rank ||
             (ignis__engine_alloc(call, engine, &engine->q_normed, rows, model->q_rank, model->dtype) &&
              ignis__engine_alloc(call, engine, &engine->q, rows, heads * model->head_dim, model->dtype))) &&
            ignis__engine_alloc(call, engine, &engine->query, at_a_time, heads * (model->latent + model->rotary),
                                model->dtype) &&
            ignis__engine_alloc(call, engine, &engine->latents, at_a_time, heads * model->latent, model->dtype));
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

/*  A variant of attention_latent_mma.cu. heads: of a block; 0: the kernel on plain cores. */
typedef struct ignis__latent_variant {
    int heads;
    size_t shared;
    char define[112];
} ignis__latent_variant;

/*  Describes a variant. heads: 16 or 64; tiles: of keys in shared memory, 1 or 2. */
static ignis__latent_variant ignis__latent_describe_variant(const ignis__model *model, int heads, int tiles,
                                                            bool is_chunk)
{
    /* attention_latent_mma.cu has the same: bytes of a row, floats of `tops` */
    const int row = (model->latent + model->rotary + 63) / 64 * 128, tops = (heads == 16 ? 8 : 4) * heads;
    ignis__latent_variant variant;
    variant.heads = heads;
    variant.shared =
        (size_t)((heads + tiles * IGNIS__SPLIT) * row + heads * IGNIS__SPLIT * 2 + tops * (int)sizeof(float));
    snprintf(variant.define, sizeof variant.define,
             "-DIGNIS_LATENT=%d -DIGNIS_ROTARY=%d -DIGNIS_ROWS=%d -DIGNIS_STAGES=%d -DIGNIS_CHUNK=%d", model->latent,
             model->rotary, heads, tiles, is_chunk);
    return variant;
}

/*  Describes the kernel on plain cores. */
static ignis__latent_variant ignis__latent_describe_plain(const ignis__model *model)
{
    ignis__latent_variant variant;
    variant.heads = 0;
    variant.shared = 0;
    snprintf(variant.define, sizeof variant.define, "-DIGNIS_LATENT=%d -DIGNIS_ROTARY=%d", model->latent,
             model->rotary);
    return variant;
}

/*  Chooses the kernel of attention. Of latents of 512 + 64 elements, shared memory has two tiles beside 64 heads on
    sm_90, one on sm_80, and one beside 16 heads on sm_86. */
static ignis__latent_variant ignis__latent_choose(ignis__op *op, const ignis__model *model, bool is_chunk)
{
    const ignis_device_info *info = &op->work.device->info;
    const bool is_half = model->dtype == IGNIS_F16 || model->dtype == IGNIS_BF16;
    ignis__latent_variant variant, chosen = ignis__latent_describe_plain(model);
    int heads, tiles;
    if (!op->ok || !is_half)
        return chosen;
    if (ignis__requests.path[0])
        ignis__record_builtin(IGNIS__BUILTIN(ATTENTION_LATENT), model->dtype, chosen.define, 0, 79);
    for (heads = is_chunk || model->heads > 16 ? 64 : 16; heads > 0; heads = heads == 64 ? 16 : 0)
        for (tiles = 2; tiles > 0; tiles--) {
            variant = ignis__latent_describe_variant(model, heads, tiles, is_chunk);
            if (ignis__requests.path[0])
                ignis__record_builtin(IGNIS__BUILTIN(LATENT_MMA), model->dtype, variant.define, 80, IGNIS__EVERY_ARCH);
            if (!chosen.heads && info->compute_major >= 8 && variant.shared <= (size_t)info->shared_per_block &&
                ignis__variant_exists(op->work.device, IGNIS__BUILTIN(LATENT_MMA), model->dtype, variant.define))
                chosen = variant;
        }
    return chosen;
}

/*  Launches attention of paged->count rows to latents. is_chunk: the rows are of one sequence, one after the other. */
IGNIS__PRIVATE void ignis__latent_attention(ignis__op *op, const ignis__model *model, const ignis__paged *paged,
                                            bool is_chunk)
{
    /* attention_latent.cu has the same: THREADS, heads of a block, half of them in f64 */
    enum { THREADS = 256, HEADS = 16 };
    const ignis__latent_variant variant = ignis__latent_choose(op, model, is_chunk);
    const int64_t sms = op->work.device->info.multiprocessors;
    const int heads = variant.heads               ? variant.heads
                      : model->dtype == IGNIS_F64 ? HEADS / 2
                                                  : HEADS,
              blocks = variant.heads ? 1 : 2; /* of an SM */
    const int64_t groups = ignis__ceil_div(model->heads, heads);
    const bool joins = variant.heads && is_chunk; /* blocks have heads of several rows, and all of their keys */
    ignis__paged p = *paged;
    void *params[] = {&p};
    ignis__op_launch(op, variant.heads ? IGNIS__BUILTIN(LATENT_MMA) : IGNIS__BUILTIN(ATTENTION_LATENT), model->dtype,
                     variant.define,
                     joins ? ignis__launch_grid(1, 1, ignis__ceil_div((int64_t)p.count * model->heads, heads), THREADS,
                                                1, variant.shared)
                           : ignis__launch_grid(ignis__clamp(blocks * sms / (groups * p.count), 1, p.splits), groups,
                                                p.count, THREADS, 1, variant.shared),
                     params);
}

/*  Computes attention of rows whose q and whose rows of the cache are there: q becomes that of latents, attends to the
    cache, and what it finds becomes values. is_chunk: the rows are of one sequence, one after the other. */
IGNIS__PRIVATE void ignis__latent_attend(ignis__op *op, const ignis__engine *engine, const ignis__engine_layer *layer,
                                         const ignis__paged *paged, int count, bool is_chunk)
{
    /* latent.cu has the same: THREADS, columns of a thread, rows of a block */
    enum { THREADS = 256, COLUMNS = 2 * THREADS, ROWS = 8 };
    const ignis__model *model = engine->model;
    const int64_t size = ignis__dtypes[model->dtype].size;
    /* tensor cores need no scratch for a chunk */
    const int most =
        is_chunk && ignis__latent_choose(op, model, true).heads ? (int)engine->query->shape.dim[0] : engine->step_rows;
    ignis__latent p = ignis__latent_describe(op, engine, layer, paged, count);
    ignis__paged at = *paged;
    void *of_values[] = {&p};
    int rows;
    at.q = p.query;
    at.q_row = (int64_t)model->heads * (model->latent + model->rotary);
    at.out = p.attended;
    at.kv_heads = 1;
    at.head_dim = model->latent;
    for (; op->ok && count > 0; count -= rows) {
        rows = count < most ? count : most;
        p.count = at.count = rows;
        ignis__latent_launch(op, IGNIS__BUILTIN(LATENT_QUERY), engine, &p,
                             ignis__launch_grid(ignis__ceil_div(model->latent, COLUMNS), model->heads,
                                                ignis__ceil_div(rows, ROWS), THREADS, 1, 0));
        ignis__latent_attention(op, model, &at, is_chunk);
        ignis__op_launch(op, IGNIS__BUILTIN(LATENT_VALUES), model->dtype, NULL,
                         ignis__launch_grid(ignis__ceil_div(model->value_dim, THREADS / 32), model->heads,
                                            ignis__ceil_div(rows, ROWS), THREADS, 1, 0),
                         of_values);
        p.q += (ignis__address)((int64_t)rows * p.q_row * size);
        p.out += (ignis__address)((int64_t)rows * model->heads * model->value_dim * size);
        p.rows = at.rows += sizeof(ignis__generate_row) * (ignis__address)rows;
    }
}
