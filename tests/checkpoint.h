// SPDX-License-Identifier: MIT
/*  checkpoint.h - small models with random weights, as folders and as GGUF files of every type, and their forward in
    double */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include <math.h>
#include <sys/stat.h>

enum { CK_TENSORS = 128 };

typedef struct ck_tensor {
    char name[96], gguf[64];
    int rows, columns; /* columns 0: one dimension */
    bool in_out;       /* a folder has it [in, out] */
    bool pairs;        /* a GGUF file of llama has its rows in another order */
    bool middle;       /* a folder has a dimension of 1 behind its rows */
    bool leading;      /* a folder has two dimensions of 1 ahead of its rows */
    int experts;       /* whose rows follow each other: in a folder a dimension ahead of their rows; 0: none */
    double *v;         /* [rows, columns] */
} ck_tensor;

/*  What a model is; the weights follow from it and from the seed. */
typedef struct ck_model {
    const char *family;
    int layers, hidden, heads, kv_heads, head_dim, inner, vocab, context;
    bool tied, biases;
    const char *stretch; /* null, "linear", "llama3", "yarn" */
    bool old_config;     /* rope_theta and rope_scaling, torch_dtype */
    double theta, eps;
    int seed;
    ck_tensor tensors[CK_TENSORS];
    int count;
} ck_model;

static bool ck_is_gpt2(const ck_model *m) { return strcmp(m->family, "gpt2") == 0; }

static void ck_add(ck_model *m, int rows, int columns, const char *name, const char *gguf, int layer, bool in_out,
                   bool pairs)
{
    ck_tensor *t = &m->tensors[m->count];
    double scale = strstr(name, "norm") || strstr(name, "ln_") ? 0.3 : 0.9 / sqrt(columns ? columns : 4);
    double shift = (strstr(name, "norm") || strstr(name, "ln_")) && !strstr(name, "bias") ? 1 : 0;
    int64_t i, n = (int64_t)rows * (columns ? columns : 1);
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, name, layer);
    snprintf(t->gguf, sizeof t->gguf, gguf, layer);
    t->rows = rows, t->columns = columns, t->in_out = in_out, t->pairs = pairs;
    t->v = (double *)malloc((size_t)n * sizeof *t->v);
    for (i = 0; i < n; i++)
        t->v[i] = (double)(float)(shift + scale * noise((uint64_t)(m->seed * 1000 + m->count), i));
    m->count++;
}

/*  Fills in the weights. */
static inline void ck_make(ck_model *m)
{
    int q = m->heads * m->head_dim, k = m->kv_heads * m->head_dim, h = m->hidden, l;
    bool qwen2 = strcmp(m->family, "qwen2") == 0, qwen3 = strcmp(m->family, "qwen3") == 0;
    m->count = 0;
    if (ck_is_gpt2(m)) {
#define CK_G(rows, columns, name, gguf, in_out) ck_add(m, rows, columns, "transformer." name, gguf, l, in_out, false)
        l = 0;
        CK_G(m->vocab, h, "wte.weight", "token_embd.weight", false);
        CK_G(m->context, h, "wpe.weight", "position_embd.weight", false);
        CK_G(h, 0, "ln_f.weight", "output_norm.weight", false);
        CK_G(h, 0, "ln_f.bias", "output_norm.bias", false);
        if (!m->tied)
            ck_add(m, m->vocab, h, "lm_head.weight", "output.weight", 0, false, false);
        for (; l < m->layers; l++) {
            CK_G(h, 0, "h.%d.ln_1.weight", "blk.%d.attn_norm.weight", false);
            CK_G(h, 0, "h.%d.ln_1.bias", "blk.%d.attn_norm.bias", false);
            CK_G(3 * h, h, "h.%d.attn.c_attn.weight", "blk.%d.attn_qkv.weight", true);
            CK_G(3 * h, 0, "h.%d.attn.c_attn.bias", "blk.%d.attn_qkv.bias", false);
            CK_G(h, h, "h.%d.attn.c_proj.weight", "blk.%d.attn_output.weight", true);
            CK_G(h, 0, "h.%d.attn.c_proj.bias", "blk.%d.attn_output.bias", false);
            CK_G(h, 0, "h.%d.ln_2.weight", "blk.%d.ffn_norm.weight", false);
            CK_G(h, 0, "h.%d.ln_2.bias", "blk.%d.ffn_norm.bias", false);
            CK_G(m->inner, h, "h.%d.mlp.c_fc.weight", "blk.%d.ffn_up.weight", true);
            CK_G(m->inner, 0, "h.%d.mlp.c_fc.bias", "blk.%d.ffn_up.bias", false);
            CK_G(h, m->inner, "h.%d.mlp.c_proj.weight", "blk.%d.ffn_down.weight", true);
            CK_G(h, 0, "h.%d.mlp.c_proj.bias", "blk.%d.ffn_down.bias", false);
        }
        return;
    }
#define CK_L(rows, columns, name, gguf, pairs) \
    ck_add(m, rows, columns, "model.layers.%d." name, "blk.%d." gguf, l, false, pairs)
    ck_add(m, m->vocab, h, "model.embed_tokens.weight", "token_embd.weight", 0, false, false);
    ck_add(m, h, 0, "model.norm.weight", "output_norm.weight", 0, false, false);
    if (!m->tied)
        ck_add(m, m->vocab, h, "lm_head.weight", "output.weight", 0, false, false);
    for (l = 0; l < m->layers; l++) {
        CK_L(h, 0, "input_layernorm.weight", "attn_norm.weight", false);
        CK_L(q, h, "self_attn.q_proj.weight", "attn_q.weight", true);
        CK_L(k, h, "self_attn.k_proj.weight", "attn_k.weight", true);
        CK_L(k, h, "self_attn.v_proj.weight", "attn_v.weight", false);
        if (qwen2 || m->biases) {
            CK_L(q, 0, "self_attn.q_proj.bias", "attn_q.bias", true);
            CK_L(k, 0, "self_attn.k_proj.bias", "attn_k.bias", true);
            CK_L(k, 0, "self_attn.v_proj.bias", "attn_v.bias", false);
        }
        if (qwen3) {
            CK_L(m->head_dim, 0, "self_attn.q_norm.weight", "attn_q_norm.weight", false);
            CK_L(m->head_dim, 0, "self_attn.k_norm.weight", "attn_k_norm.weight", false);
        }
        CK_L(h, q, "self_attn.o_proj.weight", "attn_output.weight", false);
        CK_L(h, 0, "post_attention_layernorm.weight", "ffn_norm.weight", false);
        CK_L(m->inner, h, "mlp.gate_proj.weight", "ffn_gate.weight", false);
        CK_L(m->inner, h, "mlp.up_proj.weight", "ffn_up.weight", false);
        CK_L(h, m->inner, "mlp.down_proj.weight", "ffn_down.weight", false);
        if (m->biases) {
            CK_L(h, 0, "self_attn.o_proj.bias", "attn_output.bias", false);
            CK_L(m->inner, 0, "mlp.gate_proj.bias", "ffn_gate.bias", false);
            CK_L(m->inner, 0, "mlp.up_proj.bias", "ffn_up.bias", false);
            CK_L(h, 0, "mlp.down_proj.bias", "ffn_down.bias", false);
        }
    }
}

static inline void ck_free(ck_model *m)
{
    int i;
    for (i = 0; i < m->count; i++)
        free(m->tensors[i].v);
    m->count = 0;
}

/*  The values of a tensor by its name in a folder; null for none. */
static double *ck_values(const ck_model *m, const char *format, int layer)
{
    char name[96];
    int i;
    snprintf(name, sizeof name, format, layer);
    for (i = 0; i < m->count; i++)
        if (strcmp(m->tensors[i].name, name) == 0)
            return m->tensors[i].v;
    return NULL;
}

static double ck_round(double value, ignis_dtype dtype)
{
    unsigned char bytes[8];
    double back;
    ignis__convert(bytes, dtype, &value, IGNIS_F64, 1);
    ignis__convert(&back, IGNIS_F64, bytes, dtype, 1);
    return back;
}

/*  Rounds all weights to a dtype. */
static inline void ck_round_all(ck_model *m, ignis_dtype dtype)
{
    int64_t k;
    int i;
    for (i = 0; i < m->count; i++)
        for (k = 0; k < (int64_t)m->tensors[i].rows * (m->tensors[i].columns ? m->tensors[i].columns : 1); k++)
            m->tensors[i].v[k] = ck_round(m->tensors[i].v[k], dtype);
}

/* --- bytes ------------------------------------------------------------------------------------------------------- */

typedef struct ck_bytes {
    unsigned char *data;
    size_t size, capacity;
} ck_bytes;

static void ck_put(ck_bytes *b, const void *data, size_t size)
{
    if (b->size + size > b->capacity) {
        b->capacity = (b->size + size) * 2;
        b->data = (unsigned char *)realloc(b->data, b->capacity);
    }
    if (size)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}
static void ck_u32(ck_bytes *b, uint32_t value) { ck_put(b, &value, 4); }
static void ck_u64(ck_bytes *b, uint64_t value) { ck_put(b, &value, 8); }
static void ck_f32(ck_bytes *b, float value) { ck_put(b, &value, 4); }
static void ck_text(ck_bytes *b, const char *text)
{
    ck_u64(b, strlen(text));
    ck_put(b, text, strlen(text));
}
static void ck_numbers(ck_bytes *b, const double *v, int64_t count, ignis_dtype dtype)
{
    unsigned char bytes[8];
    int64_t i;
    for (i = 0; i < count; i++) {
        ignis__convert(bytes, dtype, &v[i], IGNIS_F64, 1);
        ck_put(b, bytes, (size_t)ignis__dtypes[dtype].size);
    }
}

/* --- a folder ---------------------------------------------------------------------------------------------------- */

static const char *ck_dtype_name(ignis_dtype dtype)
{
    return dtype == IGNIS_F16 ? "F16" : dtype == IGNIS_BF16 ? "BF16" : "F32";
}

/*  Tensors first, first + step, ... as a safetensors file. */
static void ck_write_safetensors(const ck_model *m, const char *path, ignis_dtype dtype, int first, int step)
{
    ck_bytes data = {0}, header = {0}, file = {0};
    char line[256];
    int i, r, c;
    for (i = first; i < m->count; i += step) {
        const ck_tensor *t = &m->tensors[i];
        size_t begin = data.size;
        if (t->in_out)
            for (c = 0; c < t->columns; c++)
                for (r = 0; r < t->rows; r++)
                    ck_numbers(&data, &t->v[(int64_t)r * t->columns + c], 1, dtype);
        else
            ck_numbers(&data, t->v, (int64_t)t->rows * (t->columns ? t->columns : 1), dtype);
        snprintf(line, sizeof line, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s", header.size ? "," : "{", t->name,
                 ck_dtype_name(dtype), t->leading ? "1,1," : "");
        ck_put(&header, line, strlen(line));
        if (t->experts)
            snprintf(line, sizeof line, "%d,%d", t->experts, t->rows / t->experts);
        else
            snprintf(line, sizeof line, "%d", t->in_out ? t->columns : t->rows);
        ck_put(&header, line, strlen(line));
        if (t->columns) {
            snprintf(line, sizeof line, t->middle ? ",1,%d" : ",%d", t->in_out ? t->rows : t->columns);
            ck_put(&header, line, strlen(line));
        }
        snprintf(line, sizeof line, "],\"data_offsets\":[%zu,%zu]}", begin, data.size);
        ck_put(&header, line, strlen(line));
    }
    ck_put(&header, "}", 1);
    ck_u64(&file, header.size);
    ck_put(&file, header.data, header.size);
    ck_put(&file, data.data, data.size);
    test_write_file(path, file.data, file.size);
    free(data.data), free(header.data), free(file.data);
}

static void ck_write_text(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%.200s/%.50s", folder, name);
    test_write_file(path, text, strlen(text));
}

/*  The text of config.json. */
static void ck_config(const ck_model *m, char *out, size_t capacity)
{
    char rope[512] = "", stretch[256] = "";
    if (ck_is_gpt2(m)) {
        snprintf(out, capacity,
                 "{\"model_type\": \"gpt2\", \"n_embd\": %d, \"n_layer\": %d, \"n_head\": %d, \"n_positions\": %d, "
                 "\"n_inner\": %d, "
                 "\"vocab_size\": %d, \"layer_norm_epsilon\": %g, \"activation_function\": \"gelu_new\", "
                 "\"scale_attn_weights\": true, "
                 "\"tie_word_embeddings\": %s, \"eos_token_id\": 2, \"task_specific_params\": {\"a\": [1, {\"b\": "
                 "null}]}}\n",
                 m->hidden, m->layers, m->heads, m->context, m->inner, m->vocab, m->eps, m->tied ? "true" : "false");
        return;
    }
    if (m->stretch && strcmp(m->stretch, "linear") == 0)
        snprintf(stretch, sizeof stretch, "\"%s\": \"linear\", \"factor\": 3.5", m->old_config ? "type" : "rope_type");
    else if (m->stretch && strcmp(m->stretch, "llama3") == 0)
        snprintf(stretch, sizeof stretch,
                 "\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                 "\"original_max_position_embeddings\": 64");
    else if (m->stretch)
        snprintf(stretch, sizeof stretch,
                 "\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 32");
    if (m->old_config)
        snprintf(rope, sizeof rope, "\"torch_dtype\": \"float32\", \"rope_theta\": %g, \"rope_scaling\": %s%s%s",
                 m->theta, m->stretch ? "{" : "null", stretch, m->stretch ? "}" : "");
    else
        snprintf(rope, sizeof rope, "\"dtype\": \"float32\", \"rope_parameters\": {\"rope_theta\": %g%s%s}", m->theta,
                 m->stretch ? ", " : ", \"rope_type\": \"default\"", stretch);
    snprintf(
        out, capacity,
        "{\n \"model_type\": \"%s\", \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d,\n"
        " \"num_key_value_heads\": %d, \"head_dim\": %d, \"intermediate_size\": %d, \"vocab_size\": %d,\n"
        " \"max_position_embeddings\": %d, \"rms_norm_eps\": %g, \"hidden_act\": \"silu\", \"tie_word_embeddings\": "
        "%s,\n"
        " \"use_sliding_window\": false, \"bos_token_id\": 1, \"eos_token_id\": [2, 3], %s\n}\n",
        m->family, m->hidden, m->layers, m->heads, m->kv_heads, m->head_dim, m->inner, m->vocab, m->context, m->eps,
        m->tied ? "true" : "false", rope);
}

/*  Writes a folder. shards: 1, or more with an index. */
static inline void ck_write_folder(const ck_model *m, const char *folder, ignis_dtype dtype, int shards)
{
    static char text[65536];
    char path[256];
    size_t length;
    int i;
    test_remove_folder(folder);
    CHECK_INT(ignis__folder_make_all(folder), true);
    ck_config(m, text, sizeof text);
    ck_write_text(folder, "config.json", text);
    if (shards == 1) {
        snprintf(path, sizeof path, "%.200s/model.safetensors", folder);
        ck_write_safetensors(m, path, dtype, 0, 1);
        return;
    }
    length = (size_t)snprintf(text, sizeof text, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (i = 0; i < m->count; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s\"%s\": \"model-%05d-of-%05d.safetensors\"",
                                   i ? ", " : "", m->tensors[i].name, i % shards + 1, shards);
    snprintf(text + length, sizeof text - length, "}}\n");
    ck_write_text(folder, "model.safetensors.index.json", text);
    for (i = 0; i < shards; i++) {
        snprintf(path, sizeof path, "%.200s/model-%05d-of-%05d.safetensors", folder, i + 1, shards);
        ck_write_safetensors(m, path, dtype, i, shards);
    }
}

/* --- packed weights ----------------------------------------------------------------------------------------------- */

/*  Adds a tensor whose bytes are all `fill` to the header and data of a safetensors file. */
static void ck_put_tensor(ck_bytes *header, ck_bytes *data, const char *name, const char *type, int bytes, int rows,
                          int columns, int fill)
{
    char line[256];
    size_t begin = data->size;
    int64_t i, size = (int64_t)bytes * rows * (columns ? columns : 1);
    char byte = (char)fill;
    for (i = 0; i < size; i++)
        ck_put(data, &byte, 1);
    snprintf(line, sizeof line, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%d", header->size ? "," : "{", name, type, rows);
    ck_put(header, line, strlen(line));
    snprintf(line, sizeof line, columns ? ",%d" : "", columns);
    ck_put(header, line, strlen(line));
    ck_put(header, bytes == 16 ? ",16]" : "]", bytes == 16 ? 4 : 1); /* blocks of 16 bytes are a dimension */
    snprintf(line, sizeof line, ",\"data_offsets\":[%zu,%zu]}", begin, data->size);
    ck_put(header, line, strlen(line));
}

/*  Writes a model whose projections are packed, as a folder: GPTQ of four bits in groups of 32, of numbers 0, zeros
    `zero` and scales 2^-10; the same of AWQ, if zero is negative; or FP8 in blocks of 128; or MXFP4, if zero is 0.
    description: the quantization_config. */
static inline void ck_write_packed(const ck_model *m, const char *folder, bool f8, int zero, const char *description)
{
    ck_bytes data = {0}, header = {0}, file = {0};
    char text[8192], name[160], config[4096];
    int i;
    for (i = 0; i < m->count; i++) {
        const ck_tensor *t = &m->tensors[i];
        int cut = (int)strlen(t->name) - 7;
        if (!t->columns || !strstr(t->name, "_proj")) {
            ck_put_tensor(&header, &data, t->name, "BF16", 2, t->rows, t->columns, 0x3c);
        } else if (f8) {
            ck_put_tensor(&header, &data, t->name, "F8_E4M3", 1, t->rows, t->columns, 0x38);
            snprintf(name, sizeof name, "%s_scale_inv", t->name);
            ck_put_tensor(&header, &data, name, "F32", 4, (t->rows + 127) / 128, (t->columns + 127) / 128, 0x3c);
        } else if (zero == 0) {
            snprintf(name, sizeof name, "%s_blocks", t->name);
            ck_put_tensor(&header, &data, name, "U8", 16, t->rows, t->columns / 32, 0x22);
            snprintf(name, sizeof name, "%s_scales", t->name);
            ck_put_tensor(&header, &data, name, "U8", 1, t->rows, t->columns / 32, 120);
        } else {
            const bool awq = zero < 0;
            snprintf(name, sizeof name, "%.*s.qweight", cut, t->name);
            ck_put_tensor(&header, &data, name, "I32", 4, awq ? t->columns : t->columns / 8,
                          awq ? t->rows / 8 : t->rows, 0);
            snprintf(name, sizeof name, "%.*s.qzeros", cut, t->name);
            ck_put_tensor(&header, &data, name, "I32", 4, t->columns / 32, t->rows / 8,
                          awq ? -17 * zero : 17 * (zero - 1));
            snprintf(name, sizeof name, "%.*s.scales", cut, t->name);
            ck_put_tensor(&header, &data, name, "F16", 2, t->columns / 32, t->rows, 0x14);
        }
    }
    ck_put(&header, "}", 1);
    ck_u64(&file, header.size);
    ck_put(&file, header.data, header.size);
    ck_put(&file, data.data, data.size);
    mkdir(folder, 0700);
    snprintf(text, sizeof text, "%.200s/model.safetensors", folder);
    test_write_file(text, file.data, file.size);
    ck_config(m, config, sizeof config);
    snprintf(text, sizeof text, "{\"quantization_config\": %s, %s", description, config + 1);
    ck_write_text(folder, "config.json", text);
    free(data.data), free(header.data), free(file.data);
}

/* --- GGUF -------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t id;
    int elements, bytes;
} ck_types[] = {{"F32", 0, 1, 4},       {"F16", 1, 1, 2},       {"BF16", 30, 1, 2},
                {"Q8_0", 8, 32, 34},    {"Q4_0", 2, 32, 18},    {"Q4_1", 3, 32, 20},
                {"Q4_K", 12, 256, 144}, {"Q5_K", 13, 256, 176}, {"Q6_K", 14, 256, 210}};
enum { CK_TYPES = 9 };

static double ck_half(const unsigned char *at)
{
    double value;
    ignis__convert(&value, IGNIS_F64, at, IGNIS_F16, 1);
    return value;
}

/*  The value of one element of a block, straight from the description of the format. */
static double ck_element(uint32_t id, const unsigned char *b, int i)
{
    int s, e, j = i / 32, q;
    const unsigned char *c = b + 4;
    switch (id) {
    case 8: return ck_half(b) * (signed char)b[2 + i];
    case 2: return ck_half(b) * ((i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4) - 8);
    case 3: return ck_half(b) * (i < 16 ? b[4 + i] & 15 : b[4 + i - 16] >> 4) + ck_half(b + 2);
    case 14:
        q = b[64 * (i / 128) + 32 * (i / 32 % 2) + i % 32] >> (i % 128 < 64 ? 0 : 4) & 15;
        q += 16 * (b[128 + 32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3);
        return ck_half(b + 208) * (signed char)b[192 + i / 16] * (q - 32);
    default: break;
    }
    if (j < 4)
        s = c[j] % 64, e = c[j + 4] % 64;
    else
        s = c[j + 4] % 16 + 16 * (c[j - 4] / 64), e = c[j + 4] / 16 + 16 * (c[j] / 64);
    q = id == 12 ? b[16 + 32 * (j / 2) + i % 32] : b[48 + 32 * (j / 2) + i % 32];
    q = j % 2 ? q / 16 : q % 16;
    if (id == 13)
        q += 16 * (b[16 + i % 32] >> j & 1);
    return ck_half(b) * s * q - ck_half(b + 2) * e;
}

/*  A random block with scales that make sensible weights. */
static inline void ck_block(int type, unsigned char *b, uint64_t seed, int64_t at)
{
    double scale = 0.002;
    int i;
    for (i = 0; i < ck_types[type].bytes; i++)
        b[i] = (unsigned char)(int)(127.99 * (1 + noise(seed, at * 256 + i)));
    scale *= 1.5 + noise(seed + 1, at);
    if (ck_types[type].id == 2 || ck_types[type].id == 3)
        scale *= 8;
    else if (ck_types[type].id != 8)
        scale /= 20;
    ignis__convert(ck_types[type].id == 14 ? b + 208 : b, IGNIS_F16, &scale, IGNIS_F64, 1);
    if (ck_types[type].id == 3)
        scale *= -7;
    if (ck_types[type].id != 8 && ck_types[type].id != 2 && ck_types[type].id != 14)
        ignis__convert(b + 2, IGNIS_F16, &scale, IGNIS_F64, 1);
}

static void ck_key_u32(ck_bytes *b, const char *family, const char *name, int value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", family, name);
    ck_text(b, key);
    ck_u32(b, 4);
    ck_u32(b, (uint32_t)value);
}
static void ck_key_f32(ck_bytes *b, const char *family, const char *name, double value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", family, name);
    ck_text(b, key);
    ck_u32(b, 6);
    ck_f32(b, (float)value);
}

/*  The file's row in which row `row` of a tensor is. */
static int ck_gguf_row(const ck_model *m, const ck_tensor *t, int row)
{
    int half = m->head_dim / 2, i = row % m->head_dim;
    return t->pairs && strcmp(m->family, "llama") == 0 ? row - i + (i < half ? 2 * i : 2 * (i - half) + 1) : row;
}

/*  One more key of the family, whose value is 7; null: none. */
static const char *ck_extra_key;

/*  More keys: writes them, and returns how many; null: none. */
static int (*ck_more_keys)(ck_bytes *head);

/*  Texts of the tokens behind the first three; null: there are none. ck_token_type: of all tokens; 0: the file does not
    say. */
static const char *const *ck_tokens;
static int ck_token_count, ck_token_type;

/*  Another of ck_types, which v and down are of, as in files of several types; 0: the same as all. */
static int ck_other_type;

static int ck_type_of(const ck_tensor *t, int type)
{
    bool other = ck_other_type && (strstr(t->gguf, "attn_v") || strstr(t->gguf, "ffn_down"));
    return t->columns ? (other ? ck_other_type : type) : 0;
}

/*  Files of the model, and which one ck_gguf makes: of every ck_parts tensors one. The first file has all keys. */
static int ck_parts = 1, ck_part;

/*  A GGUF file, whose matrices are of one of ck_types; of quantised ones the model gets the values. divisors:
    rope_freqs.weight, or null. */
static inline ck_bytes ck_gguf(ck_model *m, int type, const float *divisors)
{
    ck_bytes head = {0}, data = {0};
    int keys = 0, i, r, c;
    uint64_t places[CK_TENSORS + 1];
    bool gpt2 = ck_is_gpt2(m);
    for (i = 0; i < m->count; i++) {
        ck_tensor *t = &m->tensors[i];
        int kind = ck_type_of(t, type);
        if ((i + 1) % ck_parts != ck_part)
            continue;
        while (data.size % 32)
            ck_put(&data, "", 1);
        places[i] = data.size;
        if (ck_types[kind].elements == 1) {
            ignis_dtype dtype = kind == 1 ? IGNIS_F16 : kind == 2 ? IGNIS_BF16 : IGNIS_F32;
            int columns = t->columns ? t->columns : 1;
            for (r = 0; r < t->rows; r++) { /* the file's */
                int from = 0;
                while (ck_gguf_row(m, t, from) != r)
                    from++;
                ck_numbers(&data, t->v + (int64_t)from * columns, columns, dtype);
            }
            for (r = 0; r < t->rows * columns; r++)
                t->v[r] = ck_round(t->v[r], dtype);
        } else {
            int blocks = t->columns / ck_types[kind].elements, row_bytes = blocks * ck_types[kind].bytes;
            unsigned char block[256];
            for (r = 0; r < t->rows * blocks; r++) {
                ck_block(kind, block, (uint64_t)(m->seed + 77 * i), r);
                ck_put(&data, block, (size_t)ck_types[kind].bytes);
            }
            for (r = 0; r < t->rows; r++)
                for (c = 0; c < t->columns; c++)
                    t->v[(int64_t)r * t->columns + c] =
                        ck_element(ck_types[kind].id,
                                   data.data + places[i] +
                                       (size_t)(ck_gguf_row(m, t, r) * row_bytes +
                                                c / ck_types[kind].elements * ck_types[kind].bytes),
                                   c % ck_types[kind].elements);
        }
    }
    while (data.size % 32)
        ck_put(&data, "", 1);
    places[m->count] = data.size;
    if (divisors && (m->count + 1) % ck_parts == ck_part)
        ck_put(&data, divisors, (size_t)m->head_dim * 2);
    ck_put(&head, "GGUF", 4);
    ck_u32(&head, 3);
    for (i = r = 0; i < m->count + (divisors != NULL); i++)
        r += (i + 1) % ck_parts == ck_part;
    ck_u64(&head, (uint64_t)r);
    ck_u64(&head, 0); /* written below */
    ck_text(&head, "general.architecture"), ck_u32(&head, 8), ck_text(&head, m->family), keys++;
    ck_text(&head, "tokenizer.ggml.tokens"), ck_u32(&head, 9), ck_u32(&head, 8),
        ck_u64(&head, (uint64_t)(3 + ck_token_count)), keys++;
    ck_text(&head, "a"), ck_text(&head, ""), ck_text(&head, "<s>");
    for (i = 0; i < ck_token_count; i++)
        ck_text(&head, ck_tokens[i]);
    if (ck_token_type) {
        ck_text(&head, "tokenizer.ggml.token_type"), ck_u32(&head, 9), ck_u32(&head, 5),
            ck_u64(&head, (uint64_t)(3 + ck_token_count)), keys++;
        for (i = 0; i < 3 + ck_token_count; i++)
            ck_u32(&head, (uint32_t)ck_token_type);
    }
    ck_key_u32(&head, m->family, "block_count", m->layers), keys++;
    ck_key_u32(&head, m->family, "embedding_length", m->hidden), keys++;
    ck_key_u32(&head, m->family, "feed_forward_length", m->inner), keys++;
    ck_key_u32(&head, m->family, "context_length", m->context), keys++;
    ck_key_u32(&head, m->family, "attention.head_count", m->heads), keys++;
    if (!gpt2) {
        ck_key_u32(&head, m->family, "attention.head_count_kv", m->kv_heads), keys++;
        ck_key_u32(&head, m->family, "attention.key_length", m->head_dim), keys++;
        ck_key_f32(&head, m->family, "rope.freq_base", m->theta), keys++;
        if (m->stretch) {
            char key[64];
            snprintf(key, sizeof key, "%s.rope.scaling.type", m->family);
            ck_text(&head, key), ck_u32(&head, 8), ck_text(&head, m->stretch), keys++;
            ck_key_f32(&head, m->family, "rope.scaling.factor", strcmp(m->stretch, "linear") == 0 ? 3.5 : 4), keys++;
            ck_key_u32(&head, m->family, "rope.scaling.original_context_length", 32), keys++;
        }
    }
    ck_key_f32(&head, m->family, gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", m->eps),
        keys++;
    ck_text(&head, "tokenizer.ggml.eos_token_id"), ck_u32(&head, 4), ck_u32(&head, 2), keys++;
    if (ck_extra_key)
        ck_key_u32(&head, m->family, ck_extra_key, 7), keys++;
    if (ck_part > 0) /* this file has no keys but those of parts */
        head.size = 24, keys = 0;
    keys += ck_more_keys ? ck_more_keys(&head) : 0;
    memcpy(head.data + 16, &keys, 4);
    for (i = 0; i < m->count + (divisors != NULL); i++) {
        const ck_tensor *t = &m->tensors[i < m->count ? i : 0];
        if ((i + 1) % ck_parts != ck_part)
            continue;
        if (i == m->count) {
            ck_text(&head, "rope_freqs.weight"), ck_u32(&head, 1), ck_u64(&head, (uint64_t)(m->head_dim / 2)),
                ck_u32(&head, 0);
        } else {
            ck_text(&head, t->gguf), ck_u32(&head, t->columns ? 2 : 1);
            if (t->columns)
                ck_u64(&head, (uint64_t)t->columns);
            ck_u64(&head, (uint64_t)t->rows), ck_u32(&head, ck_types[ck_type_of(t, type)].id);
        }
        ck_u64(&head, places[i]);
    }
    while (head.size % 32)
        ck_put(&head, "", 1);
    ck_put(&head, data.data, data.size);
    free(data.data);
    return head;
}

/* --- the forward, in double -------------------------------------------------------------------------------------- */

static void ck_linear(double *out, const double *w, const double *bias, const double *x, int rows, int columns)
{
    int r, c;
    for (r = 0; r < rows; r++) {
        out[r] = bias ? bias[r] : 0;
        for (c = 0; c < columns; c++)
            out[r] += w[(int64_t)r * columns + c] * x[c];
    }
}

static void ck_norm(double *out, const double *x, const double *w, const double *bias, int n, double eps,
                    bool layer_norm)
{
    double mean = 0, square = 0;
    int i;
    for (i = 0; i < n && layer_norm; i++)
        mean += x[i] / n;
    for (i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean) / n;
    for (i = 0; i < n; i++)
        out[i] = (x[i] - mean) / sqrt(square + eps) * w[i] + (bias ? bias[i] : 0);
}

/*  Frequencies and the factor of attention. */
static double ck_frequencies(const ck_model *m, double *f)
{
    const double pi = 3.14159265358979323846;
    int i, d = m->head_dim;
    double low, high, t;
    for (i = 0; i < d / 2; i++) {
        f[i] = pow(m->theta, -2.0 * i / d);
        if (m->stretch && strcmp(m->stretch, "linear") == 0) {
            f[i] /= 3.5;
        } else if (m->stretch && strcmp(m->stretch, "llama3") == 0) {
            double wave = 2 * pi / f[i], s = (64 / wave - 1) / (4 - 1);
            f[i] = wave > 64 / 1.0 ? f[i] / 8 : wave < 64 / 4.0 ? f[i] : (1 - s) * f[i] / 8 + s * f[i];
        } else if (m->stretch) {
            low = floor(d * log(32 / (2 * pi * 32)) / (2 * log(m->theta)));
            high = ceil(d * log(32 / (2 * pi * 1)) / (2 * log(m->theta)));
            low = low < 0 ? 0 : low;
            high = high > d - 1 ? d - 1 : high;
            t = (i - low) / (high - low);
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            f[i] = f[i] * (1 - t) + f[i] / 4 * t;
        }
    }
    return m->stretch && strcmp(m->stretch, "yarn") == 0 ? 0.1 * log(4) + 1 : 1;
}

/*  Norm of a head where there is one, and rope. */
static void ck_head(const ck_model *m, double *x, const double *w, const double *f, double factor, int position)
{
    int i, half = m->head_dim / 2;
    if (w)
        ck_norm(x, x, w, NULL, m->head_dim, m->eps, false);
    for (i = 0; i < half && f; i++) {
        double a = x[i], b = x[i + half], c = cos(position * f[i]) * factor, s = sin(position * f[i]) * factor;
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

/*  logits [seq, vocab] of ids [seq]. */
static inline void ck_forward(const ck_model *m, const int32_t *ids, int seq, double *logits)
{
    int h = m->hidden, d = m->head_dim, q = m->heads * d, k = m->kv_heads * d, width = q + 2 * k, l, s, i, j, n, head;
    bool gpt2 = ck_is_gpt2(m);
    const char *in = gpt2 ? "transformer.h.%d." : "model.layers.%d.";
    double *x = (double *)calloc((size_t)(seq * h), 8), *qkv = (double *)calloc((size_t)(seq * width), 8),
           *y = (double *)calloc((size_t)(h + 2 * m->inner), 8);
    double *up = (double *)calloc((size_t)(2 * m->inner), 8), *out = (double *)calloc((size_t)(q + h), 8),
           *score = (double *)calloc((size_t)seq, 8), f[256];
    double factor = gpt2 ? 1 : ck_frequencies(m, f);
    const double *embedding = ck_values(m, gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight", 0);
    char name[96];
#define CK_W(what) (snprintf(name, sizeof name, "%s%s", in, what), ck_values(m, name, l))
    for (s = 0; s < seq; s++)
        for (i = 0; i < h; i++)
            x[s * h + i] =
                embedding[ids[s] * h + i] + (gpt2 ? ck_values(m, "transformer.wpe.weight", 0)[s * h + i] : 0);
    for (l = 0; l < m->layers; l++) {
        for (s = 0; s < seq; s++) {
            double *row = qkv + s * width;
            ck_norm(y, x + s * h, CK_W(gpt2 ? "ln_1.weight" : "input_layernorm.weight"), CK_W("ln_1.bias"), h, m->eps,
                    gpt2);
            if (gpt2) {
                ck_linear(row, CK_W("attn.c_attn.weight"), CK_W("attn.c_attn.bias"), y, width, h);
            } else {
                ck_linear(row, CK_W("self_attn.q_proj.weight"), CK_W("self_attn.q_proj.bias"), y, q, h);
                ck_linear(row + q, CK_W("self_attn.k_proj.weight"), CK_W("self_attn.k_proj.bias"), y, k, h);
                ck_linear(row + q + k, CK_W("self_attn.v_proj.weight"), CK_W("self_attn.v_proj.bias"), y, k, h);
                for (head = 0; head < m->heads + m->kv_heads; head++)
                    ck_head(m, row + head * d,
                            CK_W(head < m->heads ? "self_attn.q_norm.weight" : "self_attn.k_norm.weight"), f, factor,
                            s);
            }
        }
        for (s = 0; s < seq; s++) {
            for (head = 0; head < m->heads; head++) {
                const double *a = qkv + s * width + head * d;
                int group = head / (m->heads / m->kv_heads);
                double most = -1e300, sum = 0;
                for (j = 0; j <= s; j++) {
                    for (score[j] = 0, i = 0; i < d; i++)
                        score[j] += a[i] * qkv[j * width + q + group * d + i] / sqrt(d);
                    most = score[j] > most ? score[j] : most;
                }
                for (j = 0; j <= s; j++)
                    sum += score[j] = exp(score[j] - most);
                for (i = 0; i < d; i++)
                    for (out[head * d + i] = 0, j = 0; j <= s; j++)
                        out[head * d + i] += score[j] / sum * qkv[j * width + q + k + group * d + i];
            }
            ck_linear(y, CK_W(gpt2 ? "attn.c_proj.weight" : "self_attn.o_proj.weight"),
                      gpt2 ? CK_W("attn.c_proj.bias") : CK_W("self_attn.o_proj.bias"), out, h, q);
            for (i = 0; i < h; i++)
                x[s * h + i] += y[i];
        }
        for (s = 0; s < seq; s++) {
            ck_norm(y, x + s * h, CK_W(gpt2 ? "ln_2.weight" : "post_attention_layernorm.weight"), CK_W("ln_2.bias"), h,
                    m->eps, gpt2);
            ck_linear(up, CK_W(gpt2 ? "mlp.c_fc.weight" : "mlp.up_proj.weight"),
                      gpt2 ? CK_W("mlp.c_fc.bias") : CK_W("mlp.up_proj.bias"), y, m->inner, h);
            if (!gpt2)
                ck_linear(up + m->inner, CK_W("mlp.gate_proj.weight"), CK_W("mlp.gate_proj.bias"), y, m->inner, h);
            for (n = 0; n < m->inner; n++) {
                double g = gpt2 ? up[n] : up[m->inner + n];
                up[n] = gpt2 ? 0.5 * g * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g)))
                             : up[n] * g / (1 + exp(-g));
            }
            ck_linear(y, CK_W(gpt2 ? "mlp.c_proj.weight" : "mlp.down_proj.weight"),
                      gpt2 ? CK_W("mlp.c_proj.bias") : CK_W("mlp.down_proj.bias"), up, h, m->inner);
            for (i = 0; i < h; i++)
                x[s * h + i] += y[i];
        }
    }
    for (s = 0; s < seq; s++) {
        const double *table = m->tied ? embedding : ck_values(m, "lm_head.weight", 0);
        ck_norm(y, x + s * h, ck_values(m, gpt2 ? "transformer.ln_f.weight" : "model.norm.weight", 0),
                ck_values(m, "transformer.ln_f.bias", 0), h, m->eps, gpt2);
        ck_linear(logits + (int64_t)s * m->vocab, table, NULL, y, m->vocab, h);
    }
    free(x), free(qkv), free(y), free(up), free(out), free(score);
}

#endif
