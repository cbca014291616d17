/*  models/generate/fused_step.c - whether one launch does a decode step of one row, and the tables of that launch

    generate_step.cu runs on sm_90 with weights of f16 or bf16, or quantised ones. Its blocks wait for each other,
    so all of them must fit on the device at once. If the launch is not possible, engine->layer_table stays NULL and
    engine_step.c launches one kernel after the other.
    May use: engine.c. Locks: none; the engine is not published yet. */

#include "room.h"

/*  Returns whether types, as bits, have one. */
static bool ignis__has_blocks_type(int64_t types, int type) { return types >> type & 1; }

/*  Returns the types of the quantised weights as bits. generate_step.cu multiplies all of them with one program. 0 if
    no weight is quantised; -1 if some are and some are not, or if the kernel does not support one. */
IGNIS__COLD static int64_t ignis__engine_single_launch_types(const ignis__engine *engine)
{
    static const uint8_t instances[] = {IGNIS__GGUF_Q4_0,   IGNIS__GGUF_Q8_0,   IGNIS__GGUF_Q4_K, IGNIS__GGUF_Q6_K,
                                        IGNIS__GGUF_IQ4_NL, IGNIS__GGUF_IQ4_XS, IGNIS__GGUF_MXFP4};
    const ignis__model *model = engine->model;
    int64_t types = 0, supported = 0;
    int dense = 0, i, j, part;
    for (i = 0; i < IGNIS__COUNT(instances); i++)
        supported |= (int64_t)1 << instances[i];
    for (i = 0; i <= model->layers; i++) {
        ignis__decode_step_arrays a = ignis__engine_layer_arrays(engine, i);
        for (j = 0; j < 4 && a.weights[j]; j++) {
            const ignis__blocks *blocks = &a.weights[j]->blocks;
            for (part = 0; part < blocks->count; part++)
                if (!ignis__has_blocks_type(supported, blocks->part[part].type))
                    return -1;
                else
                    types |= (int64_t)1 << blocks->part[part].type;
            dense |= !blocks->count;
            /* the kernel has shared memory for the scales of 2^15 columns */
            if (ignis__weight_columns(a.weights[j]) % 8 != 0 || blocks->columns > 1 << 15)
                return -1;
        }
    }
    return !types ? 0 : dense ? -1 : types;
}

/*  Returns whether a layer has norms of the heads of q or k. */
static bool ignis__engine_has_head_norms(const ignis__engine *engine)
{
    bool some = false;
    int i;
    for (i = 0; i < engine->model->layers; i++)
        some |= engine->layer[i].q_norm || engine->layer[i].k_norm;
    return some;
}

/*  The largest number of stages of the ring. Tests lower it. */
IGNIS__PRIVATE int ignis__single_launch_stages = 8;

/*  Returns the bytes of shared memory of a block, and sets the places in it. The ring gets as many stages as fit. */
IGNIS__PRIVATE size_t ignis__engine_single_launch_shared(const ignis__engine *engine, ignis__decode_step *p)
{
    /* generate_step.cu has the same numbers; BARRIERS: bytes per stage */
    enum { FOUND = 4 * 8 * 20 * 4, TURNS = 4 * 16, PADDING = 768, BARRIERS = 3 * 8 };
    const ignis__model *model = engine->model;
    const int head_dim = ignis__paged_head_dim(model->head_dim), grain = engine->step_types ? 256 : 32;
    const int64_t attended = model->heads * model->head_dim;
    /* fixed: the arrays that the kernel declares itself */
    const int64_t fixed = 4096 + 44 * (head_dim + 8) + (ignis__engine_has_head_norms(engine) ? 8 * head_dim : 0);
    const int64_t hidden = ignis__ceil_div(model->hidden, grain) * grain,
                  longest = model->inner > attended ? model->inner : attended;
    const int64_t normed = 2 * hidden + model->hidden * (engine->norm_bias ? 6 : 4),
                  row = 2 * ignis__ceil_div(longest, grain) * grain;
    int64_t stage = 8 * 4 * 1024, scales = 0, rest, free_bytes;
    int i, record = 0;
    for (i = 0; i < IGNIS__COUNT(ignis__blocks_types); i++)
        if (ignis__has_blocks_type(engine->step_types, ignis__blocks_types[i].type) &&
            record < ignis__blocks_types[i].bytes)
            record = ignis__blocks_types[i].bytes;
    if (record) {
        stage = 8 * 16 * record * (record > 144 ? 1 : 2) +
                (ignis__has_blocks_type(engine->step_types, IGNIS__GGUF_Q6_K) ? 4096 : 0) + 16;
        scales = (1 + ignis__ceil_div(ignis__ceil_div(longest > hidden ? longest : hidden, grain), 2)) *
                 128; /* zeros, then scales and sums */
    }
    rest = FOUND + TURNS + PADDING + 128 + scales + (row > normed ? row : normed);
    free_bytes = engine->device->info.shared_per_block - fixed - rest;
    p->ring = free_bytes < 0 ? 0 : (int)ignis__clamp(free_bytes / (stage + BARRIERS), 0, ignis__single_launch_stages);
    /* aligned, so that the banks of shared memory are known */
    p->found_at = (int)(ignis__ceil_div((stage + BARRIERS) * p->ring + TURNS, 128) * 128);
    p->row_at = (int)(p->found_at + FOUND + scales);
    return (size_t)((stage + BARRIERS) * p->ring + rest);
}

/*  Limits of the bytes of a layer's quantised weights between which one launch is faster than one for each product.
    On an H200 it is 7 to 10 % faster with 34 MB to 123 MB of 4-bit weights. It is up to 5 % slower with 2 MB, with 65
    MB of Q8_0, and with 179 MB of Q6_K. Tests set a smaller minimum. */
enum { IGNIS__SINGLE_LAUNCH_MAX_BYTES = 128 << 20, IGNIS__SINGLE_LAUNCH_MAX_BYTES_Q8_0 = 56 << 20 };
IGNIS__PRIVATE int64_t ignis__single_launch_min_bytes = 16 << 20;

/*  Returns whether a model has no feature that generate_step.cu lacks. */
IGNIS__COLD static bool ignis__engine_is_plain(const ignis__engine *engine)
{
    const ignis__model *model = engine->model;
    bool plain = !engine->result && !model->cache_type && !model->latent && !model->experts && !model->gelu_gate &&
                 !model->exact_gelu && !model->parallel_blocks && !model->wide_norms && !model->head_layer_norms &&
                 !(model->norm_offset > 0) && !(model->embedding_scale > 0) && !(model->logit_scale > 0) &&
                 !(model->softcap > 0) && !(model->logit_softcap > 0);
    int i;
    for (i = 0; plain && i < model->layers; i++)
        plain = model->layer[i].window == 0 && model->layer[i].rope == IGNIS__ROPE_COMMON &&
                !(model->layer[i].rest_scale > 0);
    return plain;
}

/*  Returns whether generate_step.cu supports this model. */
IGNIS__COLD static bool ignis__engine_supports_single_launch(const ignis__engine *engine)
{
    const ignis__model *model = engine->model;
    bool takes = (model->dtype == IGNIS_F16 || model->dtype == IGNIS_BF16) && model->parallel.size <= 1 &&
                 model->head_dim % 16 == 0 && model->inner % 8 == 0 && engine->step_types >= 0 &&
                 (engine->step_types || !engine->embedding->blocks.count) && ignis__engine_is_plain(engine);
    ignis__decode_step_arrays first = ignis__engine_layer_arrays(engine, 0);
    int64_t bytes = 0, most;
    int i;
    for (i = 0; takes && i < 4 && first.weights[i]; i++)
        bytes += ignis__blocks_bytes(&first.weights[i]->blocks, first.weights[i]->blocks.count);
    takes = takes &&
            (model->head_dim <= 128 || !ignis__engine_has_head_norms(engine)); /* registers do not suffice for both */
    most = ignis__has_blocks_type(engine->step_types, IGNIS__GGUF_Q8_0) ? IGNIS__SINGLE_LAUNCH_MAX_BYTES_Q8_0
                                                                        : IGNIS__SINGLE_LAUNCH_MAX_BYTES;
    return takes && (!engine->step_types || (bytes >= ignis__single_launch_min_bytes && bytes <= most));
}

/*  Fills in the entry of a weight: a TMA map of its tiles, or the addresses of its parts of one type. Rows of a tile
    that are not adjacent are in two planes of the map. */
IGNIS__COLD static bool ignis__engine_single_launch_weights(ignis__op *op, const ignis__engine *engine,
                                                            ignis__array *array, bool heads, bool gated,
                                                            ignis__decode_step_weights *to)
{
    const ignis__blocks *blocks = &array->blocks;
    const ignis__address at = ignis__op_read(op, array);
    const int64_t n = ignis__weight_rows(array), k = ignis__weight_columns(array);
    const int64_t rows = heads ? engine->model->head_dim / 2 : gated ? n / 2 : n;
    const int64_t dims[] = {k, rows, n / rows}, steps[] = {2 * k, 2 * k * rows};
    const int box[] = {64, heads || gated ? 8 : 16, heads || gated ? 2 : 1};
    const ignis__tensor_map_desc desc = {engine->model->dtype, false, at, 3, dims, steps, box, NULL};
    int i, first = 0;
    if (!blocks->count)
        return ignis__tensor_map_make(&op->work, &to->map, &desc);
    for (i = 0; i < IGNIS__COUNT(to->parts); i++) {
        const bool exists = i < blocks->count;
        to->parts[i].records = exists ? ignis__quantised_part(blocks, i, at).records : 0;
        to->parts[i].type = exists ? blocks->part[i].type : 0;
        to->parts[i].first = first;
        first += exists ? blocks->part[i].rows : 0;
    }
    return true;
}

/*  Prepares single launches for decode steps of one row, if the model and the device support them: the tables of
    generate_step.cu. False, and reported, on failure. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_single_launch(const char *call, ignis__engine *engine)
{
    const ignis__model *model = engine->model;
    const int64_t width = (int64_t)(model->heads + 2 * model->kv_heads) * model->head_dim,
                  found = (int64_t)model->heads * engine->splits * (2 + model->head_dim);
    const int64_t per_layer = sizeof(ignis__decode_step_layer) / 4;
    ignis__decode_step p;
    ignis__op op;
    int i, j;
    engine->step_types = ignis__engine_single_launch_types(engine);
    if (!ignis__engine_supports_single_launch(engine))
        return true;
    snprintf(engine->step_define, sizeof engine->step_define, "-DIGNIS_HEAD_DIM=%d%s",
             ignis__paged_head_dim(model->head_dim),
             ignis__engine_has_head_norms(engine) ? " -DIGNIS_HEAD_NORMS=1" : "");
    if (engine->step_types)
        snprintf(engine->step_define + strlen(engine->step_define),
                 sizeof engine->step_define - strlen(engine->step_define), " -DIGNIS_BLOCKS_TYPES=%lld",
                 (long long)engine->step_types);
    if (ignis__requests.path[0])
        ignis__record_builtin(IGNIS__BUILTIN(GENERATE_STEP), model->dtype, engine->step_define, 90, 90);
    (void)ignis__engine_single_launch_shared(engine, &p);
    if (engine->device->info.compute_major != 9 || !engine->device->clusters || !ignis__cuda.cuTensorMapEncodeTiled ||
        !ignis__cuda.cuLaunchKernelEx || p.ring < 2 ||
        !ignis__variant_exists(engine->device, IGNIS__BUILTIN(GENERATE_STEP), model->dtype, engine->step_define))
        return true;
    if (!ignis__engine_alloc(call, engine, &engine->layer_table, model->layers + 1, per_layer, IGNIS_I32) ||
        !ignis__engine_alloc(
            call, engine, &engine->step_scratch, 1,
            2 * model->hidden + (width + model->heads * model->head_dim + model->inner) / 2 + found + 1, IGNIS_I64) ||
        !ignis__op_begin_on_device(&op, call, engine->device))
        return false;
    ignis__op_zero(&op, engine->step_scratch);
    for (i = 0; op.ok && i <= model->layers; i++) {
        ignis__decode_step_arrays a = ignis__engine_layer_arrays(engine, i);
        ignis__decode_step_layer layer;
        int32_t as_words[sizeof layer / 4];
        memset(&layer, 0, sizeof layer);
        for (j = 0; op.ok && j < 4; j++) {
            if (a.weights[j])
                op.ok =
                    ignis__engine_single_launch_weights(&op, engine, a.weights[j], i < model->layers && j == 0,
                                                        i < model->layers && j == 2 && !model->gelu, &layer.weights[j]);
            layer.bias[j] = a.bias[j] ? ignis__op_read(&op, a.bias[j]) : 0;
        }
        for (j = 0; op.ok && j < 2; j++) {
            layer.norm[j] = a.norm[j] ? ignis__op_read(&op, a.norm[j]) : 0;
            layer.norm_bias[j] = a.norm_bias[j] ? ignis__op_read(&op, a.norm_bias[j]) : 0;
            layer.head_norm[j] = a.head_norm[j] ? ignis__op_read(&op, a.head_norm[j]) : 0;
        }
        memcpy(as_words, &layer, sizeof layer);
        ignis__upload_i32(&op, model->dtype, engine->layer_table, i * per_layer, as_words, per_layer);
    }
    return ignis__op_leave(&op) == IGNIS_OK;
}
