// SPDX-License-Identifier: MIT
/*  generate.h - what tests of generation share */
#ifndef GENERATE_H
#define GENERATE_H

static struct {
    ignis_array handle;
    ignis__array *array;
} rooms[256];
static int room_count;

static inline ignis__array *room_of(ignis_array handle)
{
    ignis__array *array = ignis__array_hold("test", handle);
    if (!array || room_count == COUNT_OF(rooms))
        abort();
    rooms[room_count].handle = handle;
    rooms[room_count++].array = array;
    return array;
}

static inline ignis__array *room(ignis_shape shape, ignis_dtype dtype)
{
    ignis_array handle = make(shape, dtype);
    CHECK_OK(ignis_array_zero(handle));
    return room_of(handle);
}

/*  Noise, rounded to the dtype, in the array and in numbers that the caller frees. */
static inline ignis__array *room_noise(ignis_shape shape, ignis_dtype dtype, uint64_t seed, double factor,
                                       double **numbers)
{
    double *values = rounded_noise(shape, dtype, seed, factor);
    ignis__array *array = room(shape, dtype);
    ignis_array handle = rooms[room_count - 1].handle;
    CHECK_OK(ignis_array_from_host(handle, values, IGNIS_F64, shape_numel(shape)));
    if (numbers)
        *numbers = values;
    else
        free(values);
    return array;
}

static inline ignis_array handle_of(const ignis__array *array)
{
    ignis_array handle = {array->slot.handle};
    return handle;
}

static inline double *numbers_of(const ignis__array *array) { return array_values(handle_of(array)); }

static inline void rooms_end(int first)
{
    while (room_count > first) {
        room_count--;
        ignis__array_drop("test", rooms[room_count].array);
        drop(rooms[room_count].handle);
    }
}

static inline ignis__op step_begin(void)
{
    ignis__op op;
    ignis__device *device = ignis__device_get("test", 0);
    memset(&op, 0, sizeof op);
    CHECK(device && ignis__op_begin_on_device(&op, "test", device));
    return op;
}

static inline void step_end(ignis__op *op)
{
    CHECK(op->ok);
    CHECK_OK(ignis__op_leave(op));
}

/*  Sets the scales of a block of random bytes to small numbers: d, and e or m. */
static inline void block_scales(int type, unsigned char *block, int i)
{
    int d = type == IGNIS__GGUF_Q6_K ? 208 : type == IGNIS__GGUF_Q3_K ? 108 : type == IGNIS__GGUF_Q2_K ? 80 : 0;
    if (type == IGNIS__GGUF_MXFP4) {
        block[0] = (unsigned char)(121 + i % 3);
        return;
    }
    block[d] = 0, block[d + 1] = (unsigned char)(8 + i % 3);
    if (type == IGNIS__GGUF_Q2_K || type == IGNIS__GGUF_Q5_K || type == IGNIS__GGUF_Q4_1 || type == IGNIS__GGUF_Q5_1)
        block[d + 2] = 0, block[d + 3] = (unsigned char)(8 + i % 2 + i % 5 / 4 * 128); /* some are below 0 */
}

/*  The bytes of a quantised weight [rows, k]: of `type`, and from row `other_from` on of `other`; and its numbers, both
    of which the caller frees.
    factor: of the numbers. */
static inline unsigned char *blocks_bytes(int rows, int k, int type, int other_from, int other, uint64_t seed,
                                          double factor, ignis__blocks *made, double **numbers)
{
    ignis__blocks blocks;
    unsigned char *bytes, row_bytes[8192];
    float *row = (float *)calloc((size_t)k, sizeof *row);
    int r, i, part, in = 0;
    *numbers = (double *)calloc((size_t)(rows * k), sizeof **numbers);
    memset(&blocks, 0, sizeof blocks);
    blocks.columns = k;
    blocks.count = other_from < rows ? 2 : 1;
    blocks.part[0].type = type, blocks.part[0].rows = other_from < rows ? other_from : rows;
    blocks.part[1].type = other, blocks.part[1].rows = rows - blocks.part[0].rows;
    bytes = (unsigned char *)calloc((size_t)ignis__blocks_bytes(&blocks, blocks.count), 1);
    for (r = 0, part = 0; r < rows; r++, in++) {
        int now, elements, size;
        unsigned char *records;
        if (r == blocks.part[0].rows)
            part = 1, in = 0;
        now = blocks.part[part].type;
        for (i = 0; i < k; i++)
            row[i] = (float)(factor * noise(seed, (int64_t)r * k + i));
        elements = ignis__blocks_types[ignis__blocks_type(now)].file_elements;
        size = ignis__blocks_types[ignis__blocks_type(now)].file_bytes;
        if (now != IGNIS__GGUF_Q4_0 && now != IGNIS__GGUF_Q8_0 && now != IGNIS__GGUF_Q4_K &&
            now != IGNIS__GGUF_F8) { /* any bytes, and scales */
            for (i = 0; i < k / elements * size; i++)
                row_bytes[i] = (unsigned char)(int)(127.99 * (1 + noise(seed + 1, (int64_t)r * k + i)));
            for (i = 0; i < k / elements; i++)
                block_scales(now, row_bytes + size * i, i);
        } else {
            ignis__quantise(now, row, k, row_bytes);
        }
        for (i = 0; i < k; i += elements)
            ignis__dequantise((uint32_t)now, row_bytes + i / elements * size, row + i);
        for (i = 0; i < k; i++)
            (*numbers)[(int64_t)r * k + i] = (double)row[i];
        records = bytes + ignis__blocks_bytes(&blocks, part);
        ignis__blocks_pack((uint32_t)now, row_bytes, k, records + ignis__blocks_row(now, in, k),
                           records + ignis__blocks_bytes_of(now, blocks.part[part].rows, k, false) +
                               in * (k / 256) * ignis__blocks_types[ignis__blocks_type(now)].scale);
    }
    free(row);
    *made = blocks;
    return bytes;
}

/*  Makes an array of blocks_bytes; numbers: freed by the caller. */
static inline ignis__array *room_blocks(int rows, int k, int type, int other_from, int other, uint64_t seed,
                                        double **numbers)
{
    ignis__blocks blocks;
    unsigned char *bytes = blocks_bytes(rows, k, type, other_from, other, seed, 1, &blocks, numbers);
    ignis__array *array = room(IGNIS_SHAPE(ignis__blocks_bytes(&blocks, blocks.count)), IGNIS_U8);
    CHECK_OK(ignis_array_from_host(handle_of(array), bytes, IGNIS_U8, array->numel));
    array->blocks = blocks;
    free(bytes);
    return array;
}

/*  A model with random weights, which the test has as numbers, too. */
typedef struct test_shape {
    int layers, heads, kv_heads, head_dim, hidden, inner, vocab;
    /* learned positions, layer_norm, gelu, biases everywhere; else rope, rms_norm, silu: q, k, v with bias; head
       norms */
    bool gpt2, biased, normed;
    ignis_dtype dtype;
} test_shape;

enum {
    ATTN_NORM,
    ATTN_NORM_BIAS,
    QKV,
    QKV_BIAS,
    Q_NORM,
    K_NORM,
    OUT,
    OUT_BIAS,
    MLP_NORM,
    MLP_NORM_BIAS,
    UP,
    UP_BIAS,
    DOWN,
    DOWN_BIAS,
    PARTS
};

typedef struct test_model {
    test_shape shape;
    ignis__model *model;
    ignis_model handle;
    double *embedding, *positions, *norm, *norm_bias, *head, *part[4][PARTS];
} test_model;

static uint64_t weight_seed;
/* of the blocks of matrices, 0: they are numbers; that of values of heads, the head and half of the layers */
static int weights_type, other_type;

static inline ignis_tensor weight(const test_shape *shape, ignis_shape dims, double factor, double add,
                                  double **numbers)
{
    int64_t i;
    ignis_tensor tensor;
    double *values = rounded_noise(dims, IGNIS_F64, ++weight_seed, factor);
    for (i = 0; i < shape_numel(dims); i++)
        values[i] += add;
    tensor = tensor_of(values, dims, shape->dtype, false);
    *numbers = values;
    if (tensor.id) {
        *numbers = tensor_values(tensor);
        free(values);
    }
    return tensor;
}

/*  A matrix, of which rows from `other_from` on are of the other type, if weights are quantised. */
static inline ignis_tensor matrix(const test_shape *shape, int rows, int k, int other_from, double factor,
                                  double **numbers)
{
    ignis_tensor_desc desc = tensor_desc(IGNIS_U8, false);
    ignis__blocks blocks;
    unsigned char *bytes;
    ignis_tensor tensor;
    ignis__array *array;
    if (!weights_type)
        return weight(shape, IGNIS_SHAPE(rows, k), factor, 0, numbers);
    bytes = blocks_bytes(rows, k, other_from > 0 ? weights_type : other_type, other_from > 0 ? other_from : rows,
                         other_type, ++weight_seed, factor, &blocks, numbers);
    desc.host_dtype = IGNIS_U8;
    tensor = ignis_tensor_from_host(bytes, IGNIS_SHAPE(ignis__blocks_bytes(&blocks, blocks.count)), &desc);
    array = ignis__borrow_array("test", tensor);
    array->blocks = blocks;
    ignis__array_drop("test", array);
    free(bytes);
    return tensor;
}

static inline void test_model_begin(test_model *t, const test_shape *shape, int context, int sequences)
{
    ignis__model *m = (ignis__model *)ignis__pool_take("test", &ignis__models);
    int i, width = (shape->heads + 2 * shape->kv_heads) * shape->head_dim, parts = shape->gpt2 ? 1 : 2,
           own = shape->heads * shape->head_dim, values = width - shape->kv_heads * shape->head_dim;
    memset((char *)m + sizeof m->slot, 0, sizeof *m - sizeof m->slot);
    memset(t, 0, sizeof *t);
    CHECK(ignis__models_enter("test")); /* as ignis_model_open does, which this stands in for */
    weight_seed = 0;                    /* equal shapes are equal models */
    t->shape = *shape;
    t->model = m;
    m->layers = shape->layers, m->heads = shape->heads, m->kv_heads = shape->kv_heads, m->head_dim = shape->head_dim;
    m->value_dim = shape->head_dim;
    m->hidden = shape->hidden, m->inner = shape->inner, m->vocab = shape->vocab, m->sequences = sequences;
    m->context = m->max_tokens = context, m->cache_dtype = shape->dtype;
    m->family = shape->gpt2 ? IGNIS_MODEL_GPT2 : shape->normed ? IGNIS_MODEL_QWEN3 : IGNIS_MODEL_LLAMA;
    m->eps = 1e-5, m->attention_factor = 1;
    m->rms = m->rope = !shape->gpt2, m->gelu = shape->gpt2, m->dtype = shape->dtype;
    m->device = ignis__device_get("test", 0);
    m->layer = (ignis__layer *)ignis__alloc((size_t)shape->layers * sizeof *m->layer);
    for (i = 0; i < shape->head_dim / 2; i++)
        m->frequencies[i] = pow(10000, -2.0 * i / shape->head_dim);
    m->quantised = weights_type;
    m->embedding = matrix(shape, shape->vocab, shape->hidden, shape->vocab, 1, &t->embedding);
    m->norm = weight(shape, IGNIS_SHAPE(shape->hidden), 0.3, 1, &t->norm);
    if (shape->gpt2) {
        m->positions = weight(shape, IGNIS_SHAPE(context, shape->hidden), 0.3, 0, &t->positions);
        m->norm_bias = weight(shape, IGNIS_SHAPE(shape->hidden), 0.1, 0, &t->norm_bias);
        m->head = m->embedding;
        m->tied = true;
    } else {
        m->head = matrix(shape, shape->vocab, shape->hidden, 0, 0.3, &t->head);
    }
    for (i = 0; i < shape->layers; i++) {
        ignis__layer *l = &m->layer[i];
        double **part = t->part[i];
        l->attention_scale = 1 / sqrt((double)shape->head_dim);
        l->attn_norm = weight(shape, IGNIS_SHAPE(shape->hidden), 0.3, 1, &part[ATTN_NORM]);
        l->qkv = matrix(shape, width, shape->hidden, values, 0.3, &part[QKV]);
        l->o = matrix(shape, shape->hidden, own, shape->hidden, 0.3, &part[OUT]);
        l->mlp_norm = weight(shape, IGNIS_SHAPE(shape->hidden), 0.3, 1, &part[MLP_NORM]);
        l->up = matrix(shape, parts * shape->inner, shape->hidden, i % 2 ? 0 : parts * shape->inner, 0.3, &part[UP]);
        l->down = matrix(shape, shape->hidden, shape->inner, i % 2 ? 0 : shape->hidden, 0.3, &part[DOWN]);
        if (shape->gpt2 || shape->biased)
            l->qkv_bias = weight(shape, IGNIS_SHAPE(width), 0.2, 0, &part[QKV_BIAS]);
        if (shape->gpt2) {
            l->attn_norm_bias = weight(shape, IGNIS_SHAPE(shape->hidden), 0.1, 0, &part[ATTN_NORM_BIAS]);
            l->mlp_norm_bias = weight(shape, IGNIS_SHAPE(shape->hidden), 0.1, 0, &part[MLP_NORM_BIAS]);
            l->o_bias = weight(shape, IGNIS_SHAPE(shape->hidden), 0.1, 0, &part[OUT_BIAS]);
            l->up_bias = weight(shape, IGNIS_SHAPE(shape->inner), 0.1, 0, &part[UP_BIAS]);
            l->down_bias = weight(shape, IGNIS_SHAPE(shape->hidden), 0.1, 0, &part[DOWN_BIAS]);
        }
        if (shape->normed) {
            l->q_norm = weight(shape, IGNIS_SHAPE(shape->head_dim), 0.3, 1, &part[Q_NORM]);
            l->k_norm = weight(shape, IGNIS_SHAPE(shape->head_dim), 0.3, 1, &part[K_NORM]);
        }
    }
    t->handle.id = ignis__pool_publish(&ignis__models, m);
}

static inline void test_model_end(test_model *t)
{
    int i, k;
    CHECK_OK(ignis_model_free(t->handle));
    for (i = 0; i < 4; i++)
        for (k = 0; k < PARTS; k++)
            free(t->part[i][k]);
    free(t->embedding), free(t->positions), free(t->norm), free(t->norm_bias), free(t->head);
}

static const test_shape shapes[] = {
    {2, 4, 4, 16, 48, 64, 97, true, true, false, IGNIS_F32},
    {2, 6, 2, 24, 40, 56, 101, false, false, false, IGNIS_F32},
    {2, 4, 1, 16, 40, 56, 131, false, true, false, IGNIS_BF16},
    {3, 8, 1, 8, 32, 40, 77, false, false, true, IGNIS_F16},
    {1, 7, 1, 80, 56, 40, 90, false, true, true, IGNIS_F64},
};

static inline int32_t id_at(int i, int vocab) { return (int32_t)((noise(77, i) + 1) / 2 * vocab) % vocab; }

/*  A sequence with a prompt of up to 160 tokens. */
static inline ignis_sequence prompted(const test_model *t, int count)
{
    ignis_sequence s = ignis_sequence_begin(t->handle);
    int32_t ids[160];
    int i;
    for (i = 0; i < count; i++)
        ids[i] = id_at(i, t->shape.vocab);
    CHECK_OK(ignis_sequence_feed(s, ids, count));
    return s;
}

/*  The operations that training uses say the same of the last token. */
static inline void check_forward(const test_model *t, const int32_t *ids, int count, const float *logits,
                                 double tolerance)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor_desc desc = tensor_desc(IGNIS_I32, false);
    ignis_tensor text, whole;
    double *values;
    int j, far = 0;
    desc.host_dtype = IGNIS_I32;
    text = ignis_tensor_from_host(ids, IGNIS_SHAPE(count), &desc);
    whole = ignis_model_forward(t->handle, text);
    values = tensor_values(whole);
    for (j = 0; j < t->shape.vocab; j++)
        far += fabs(values[(count - 1) * t->shape.vocab + j] - (double)logits[j]) > 2 * tolerance;
    CHECK_INT(far, 0);
    free(values);
    CHECK_OK(ignis_scope_end(scope));
}

static const test_shape small = {2, 4, 2, 16, 40, 48, 120, false, true, true, IGNIS_BF16};

static inline void prompt_of(int number, int length, int32_t *ids)
{
    int i;
    for (i = 0; i < length; i++)
        ids[i] = id_at(number * 1000 + i, small.vocab);
}

/*  A model that goes from byte to byte of a text whose bytes differ, then to <end>, and round. */
static inline void chain_begin(test_model *t, const char *text)
{
    static const test_shape shape = {1, 1, 1, 8, 260, 8, 260, false, false, false, IGNIS_F32};
    enum { N = 260 };
    double *table = (double *)calloc(N * N, sizeof *table);
    int length = (int)strlen(text), i;
    ignis__model *m;
    test_model_begin(t, &shape, 64, 2);
    m = t->model;
    CHECK_OK(ignis_array_zero(ignis_tensor_data(m->layer[0].o)));
    CHECK_OK(ignis_array_zero(ignis_tensor_data(m->layer[0].down)));
    for (i = 0; i < N; i++)
        table[i * N + i] = 1;
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(m->embedding), table, IGNIS_F64, N * N));
    memset(table, 0, N * N * sizeof *table);
    for (i = 0; i < length; i++)
        table[(i + 1 < length ? (unsigned char)text[i + 1] : 256) * N + (unsigned char)text[i]] = 5;
    table[(unsigned char)text[0] * N + 256] = 5;
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(m->head), table, IGNIS_F64, N * N));
    free(table);
    m->path = ignis__copy_string(test_folder);
    m->stops[0] = 256;
    m->stop_count = 1;
}

static const char form[] = "{\"type\": \"object\", \"properties\": {\"n\": {\"type\": \"integer\"}, \"s\": {\"type\": "
                           "\"array\", \"maxItems\": 2, "
                           "\"items\": {\"type\": \"string\", \"maxLength\": 3}}}, \"required\": [\"n\"]}";

#endif
