#include "room.h"

/*  Types of quantised weights as bits, all of which generate_step.cu multiplies with one program; 0: weights are numbers; -1: there are both, or some
    that it does not take. */
IGNIS__COLD static int ignis__engine_whole_types(const ignis__engine *e)
{
    const ignis__model *m = e->model;
    int types = 0, dense = 0, i, j, part;
    for (i = 0; i <= m->layers; i++) {
        ignis__step_arrays a = ignis__engine_arrays(e, i);
        for (j = 0; j < 4 && a.weights[j]; j++) {
            const ignis__blocks *blocks = &a.weights[j]->blocks;
            for (part = 0; part < blocks->count; part++)
                types |= 1 << blocks->part[part].type;
            dense |= !blocks->count;
            if (ignis__weight_columns(a.weights[j]) % 8 != 0 ||
                blocks->columns > 1 << 15) /* there is room for scales of so many */
                return -1;
        }
    }
    return !types ? 0 : dense ? -1 : types;
}

/*  Whether heads of q and k have norms. */
static bool ignis__engine_head_norms(const ignis__engine *e)
{
    bool some = false;
    int i;
    for (i = 0; i < e->model->layers; i++)
        some |= e->layer[i].q_norm || e->layer[i].k_norm;
    return some;
}

/*  Stages of the ring at most. Tests have fewer. */
IGNIS__PRIVATE int ignis__step_stages = 8;

/*  Bytes of shared memory of its blocks, with as many stages in the ring as there is room for. */
IGNIS__PRIVATE size_t ignis__engine_whole_shared(const ignis__engine *e, ignis__step *p)
{
    /* generate_step.cu has the same; BARRIERS: of a stage */
    enum { FOUND = 4 * 8 * 20 * 4, TURNS = 4 * 16, PADDING = 768, BARRIERS = 3 * 8 };
    const ignis__model *m = e->model;
    const int head_dim = ignis__paged_head_dim(m->head_dim), grain = e->step_types ? 256 : 32;
    const int64_t attended = m->heads * m->head_dim;
    const int64_t fixed =
        4096 + 44 * (head_dim + 8) + (ignis__engine_head_norms(e) ? 8 * head_dim : 0); /* what it declares itself */
    const int64_t hidden = ignis__ceil_div(m->hidden, grain) * grain,
                  longest = m->inner > attended ? m->inner : attended;
    const int64_t normed = 2 * hidden + m->hidden * (e->norm_bias ? 6 : 4),
                  row = 2 * ignis__ceil_div(longest, grain) * grain;
    int64_t stage = 8 * 4 * 1024, scales = 0, rest, room;
    int i, record = 0;
    for (i = 0; i < IGNIS__COUNT(ignis__blocks_types); i++)
        if (e->step_types >> ignis__blocks_types[i].type & 1 && record < ignis__blocks_types[i].bytes)
            record = ignis__blocks_types[i].bytes;
    if (record) {
        stage = 8 * 16 * record * (record > 144 ? 1 : 2) + (e->step_types >> IGNIS__GGUF_Q6_K & 1 ? 4096 : 0) + 16;
        scales = (1 + ignis__ceil_div(ignis__ceil_div(longest > hidden ? longest : hidden, grain), 2)) *
                 128; /* zeros, and scales and sums */
    }
    rest = FOUND + TURNS + PADDING + 128 + scales + (row > normed ? row : normed);
    room = e->device->info.shared_per_block - fixed - rest;
    p->ring = room < 0 ? 0 : (int)ignis__clamp(room / (stage + BARRIERS), 0, ignis__step_stages);
    p->found_at = (int)(ignis__ceil_div((stage + BARRIERS) * p->ring + TURNS, 128) *
                        128); /* so that banks of shared memory are known */
    p->row_at = (int)(p->found_at + FOUND + scales);
    return (size_t)((stage + BARRIERS) * p->ring + rest);
}

/*  Bytes of a layer's quantised weights with which one launch is faster than one for each product. On an H200 7 to 10 % with 34 MB to 123 MB of four
    bits; with 2 MB, and with 65 MB of Q8_0 and 179 MB of Q6_K, up to 5 % slower. Tests have a smaller least. */
enum { IGNIS__STEP_MOST = 128 << 20, IGNIS__STEP_MOST_Q8_0 = 56 << 20 };
IGNIS__PRIVATE int64_t ignis__step_least = 16 << 20;

/*  Whether generate_step.cu does steps of such a model. */
IGNIS__COLD static bool ignis__engine_whole_takes(const ignis__engine *e)
{
    const ignis__model *m = e->model;
    bool takes = (m->dtype == IGNIS_F16 || m->dtype == IGNIS_BF16) && m->parallel.size <= 1 && m->head_dim % 16 == 0 &&
                 m->inner % 8 == 0 && e->step_types >= 0 && (e->step_types || !e->embedding->blocks.count);
    ignis__step_arrays first = ignis__engine_arrays(e, 0);
    int64_t bytes = 0, most;
    int i;
    for (i = 0; takes && i < 4 && first.weights[i]; i++)
        bytes += ignis__blocks_bytes(&first.weights[i]->blocks, first.weights[i]->blocks.count);
    takes = takes && (m->head_dim <= 128 || !ignis__engine_head_norms(e)); /* there are no registers for both */
    most = e->step_types >> IGNIS__GGUF_Q8_0 & 1 ? IGNIS__STEP_MOST_Q8_0 : IGNIS__STEP_MOST;
    return takes && (!e->step_types || (bytes >= ignis__step_least && bytes <= most));
}

/*  What it reads of a weight: the map of its tiles, or where parts of one type are. Rows of a tile that are apart are in two planes. */
IGNIS__COLD static bool ignis__engine_whole_weights(ignis__op *op, const ignis__engine *e, ignis__array *array,
                                                    bool heads, bool gated, ignis__step_weights *to)
{
    const ignis__blocks *blocks = &array->blocks;
    const ignis__address at = ignis__op_read(op, array);
    const int64_t n = ignis__weight_rows(array), k = ignis__weight_columns(array);
    const int64_t rows = heads ? e->model->head_dim / 2 : gated ? n / 2 : n;
    const int64_t dims[] = {k, rows, n / rows}, steps[] = {2 * k, 2 * k * rows};
    const int box[] = {64, heads || gated ? 8 : 16, heads || gated ? 2 : 1};
    int i, first = 0;
    if (!blocks->count)
        return ignis__tensor_map_make(&op->work, &to->map, e->model->dtype, false, at, 3, dims, steps, box, NULL);
    for (i = 0; i < IGNIS__COUNT(to->parts); i++) {
        const bool there = i < blocks->count;
        to->parts[i].records = there ? ignis__quantised_part(blocks, i, at).records : 0;
        to->parts[i].type = there ? blocks->part[i].type : 0;
        to->parts[i].first = first;
        first += there ? blocks->part[i].rows : 0;
    }
    return true;
}

/*  Makes steps of one row one launch, where they can be: the tables of generate_step.cu. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_whole(const char *call, ignis__engine *e)
{
    const ignis__model *m = e->model;
    const int64_t width = (int64_t)(m->heads + 2 * m->kv_heads) * m->head_dim,
                  found = (int64_t)m->heads * e->splits * (2 + m->head_dim);
    const int64_t per_layer = sizeof(ignis__step_layer) / 4;
    ignis__step p;
    ignis__op op;
    int i, j;
    e->step_types = ignis__engine_whole_types(e);
    if (!ignis__engine_whole_takes(e))
        return true;
    snprintf(e->step_define, sizeof e->step_define, "-DIGNIS_HEAD_DIM=%d%s", ignis__paged_head_dim(m->head_dim),
             ignis__engine_head_norms(e) ? " -DIGNIS_HEAD_NORMS=1" : "");
    if (e->step_types)
        snprintf(e->step_define + strlen(e->step_define), sizeof e->step_define - strlen(e->step_define),
                 " -DIGNIS_BLOCKS_TYPES=%d", e->step_types);
    if (ignis__requests.path[0])
        ignis__record_builtin(IGNIS__BUILTIN_GENERATE_STEP, m->dtype, e->step_define, 90, 90);
    (void)ignis__engine_whole_shared(e, &p);
    if (e->device->info.compute_major != 9 || !e->device->clusters || !ignis__cuda.cuTensorMapEncodeTiled ||
        !ignis__cuda.cuLaunchKernelEx || p.ring < 2 ||
        !ignis__variant_exists(e->device, IGNIS__BUILTIN_GENERATE_STEP, m->dtype, e->step_define))
        return true;
    if (!ignis__engine_room(call, e, &e->table, m->layers + 1, per_layer, IGNIS_I32) ||
        !ignis__engine_room(call, e, &e->words, 1,
                            2 * m->hidden + (width + m->heads * m->head_dim + m->inner) / 2 + found + 1, IGNIS_I64) ||
        !ignis__next_begin(&op, call, e->device))
        return false;
    ignis__op_zero(&op, e->words);
    for (i = 0; op.ok && i <= m->layers; i++) {
        ignis__step_arrays a = ignis__engine_arrays(e, i);
        ignis__step_layer layer;
        int32_t as_words[sizeof layer / 4];
        memset(&layer, 0, sizeof layer);
        for (j = 0; op.ok && j < 4; j++) {
            if (a.weights[j])
                op.ok = ignis__engine_whole_weights(&op, e, a.weights[j], i < m->layers && j == 0,
                                                    i < m->layers && j == 2 && !m->gelu, &layer.weights[j]);
            layer.bias[j] = a.bias[j] ? ignis__op_read(&op, a.bias[j]) : 0;
        }
        for (j = 0; op.ok && j < 2; j++) {
            layer.norm[j] = a.norm[j] ? ignis__op_read(&op, a.norm[j]) : 0;
            layer.norm_bias[j] = a.norm_bias[j] ? ignis__op_read(&op, a.norm_bias[j]) : 0;
            layer.head_norm[j] = a.head_norm[j] ? ignis__op_read(&op, a.head_norm[j]) : 0;
        }
        memcpy(as_words, &layer, sizeof layer);
        ignis__step_words(&op, m->dtype, e->table, i * per_layer, as_words, per_layer);
    }
    return ignis__op_leave(&op) == IGNIS_OK;
}
