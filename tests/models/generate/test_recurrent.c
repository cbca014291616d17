// SPDX-License-Identifier: MIT
/*  test_recurrent.c - models with recurrent layers, from folders and GGUF files, against the test's own forward in
    double; sequences that are truncated and forked

    The forward here computes the delta rule token by token, as torch_recurrent_gated_delta_rule of transformers. */
#include "sequence_faults.h"

#include "own_forward.h"

enum { H = 32, Q = 4, KV = 2, D = 16, ROTARY = 4, I = 24, V = 61, LAYERS = 4, CONTEXT = 144, SEQ = 70 };
enum { EXPERTS = 3, CHOSEN = 2, INNER = 32 };

/*  A family. joined: q, k, v and the gate are one tensor of a folder; tiled: heads of v have another order in a GGUF
    file; together: so are the experts in a folder. */
typedef struct family {
    const char *model_type, *architecture;
    bool joined, tiled, experts, together;
    int heads, v_heads, k, v, window; /* of recurrent layers */
} family;

static const family families[] = {
    {"qwen3_next", "qwen3next", true, false, true, false, 2, 4, 8, 12, 4},
    {"qwen3_5_text", "qwen35", false, true, false, false, 2, 6, 12, 40, 3},
    {"qwen3_5_moe_text", "qwen35moe", false, true, true, true, 2, 2, 8, 8, 2},
    {"qwen3_5_moe_text", NULL, false, false, true, false, 1, 2, 40, 36, 2}, /* more rows than 32, columns than 32 */
};
enum { FAMILIES = COUNT_OF(families), MOST = 2 * 2 * 12 + 2 * 6 * 40 };

static bool recurs(int layer) { return layer != 2; }
static int channels_of(const family *f) { return 2 * f->heads * f->k + f->v_heads * f->v; }

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static ck_tensor *add(ck_model *m, int rows, int columns, const char *name, const char *gguf, int layer)
{
    char hf[96], own[64];
    snprintf(hf, sizeof hf, layer < 0 ? "%s" : "model.layers.%%d.%s", name);
    snprintf(own, sizeof own, layer < 0 ? "%s" : "blk.%%d.%s", gguf);
    ck_add(m, rows, columns, hf, own, layer, false, false);
    return &m->tensors[m->count - 1];
}

/*  Norms multiply by 1 + w. */
static void add_norm(ck_model *m, int rows, const char *name, const char *gguf, int layer)
{
    ck_tensor *t = add(m, rows, 0, name, gguf, layer);
    int i;
    for (i = 0; i < rows; i++)
        t->v[i] = (double)(float)(t->v[i] - 1);
}

static void add_recurrent(const family *f, ck_model *m, int l)
{
    const int channels = channels_of(f), width = f->v_heads * f->v;
    ck_tensor *t;
    if (f->joined) {
        add(m, channels + width, H, "linear_attn.in_proj_qkvz.weight", "attn_qkv.weight", l);
        add(m, 2 * f->v_heads, H, "linear_attn.in_proj_ba.weight", "ssm_ba.weight", l);
    } else {
        add(m, channels, H, "linear_attn.in_proj_qkv.weight", "attn_qkv.weight", l);
        add(m, width, H, "linear_attn.in_proj_z.weight", "attn_gate.weight", l);
        add(m, f->v_heads, H, "linear_attn.in_proj_b.weight", "ssm_beta.weight", l);
        add(m, f->v_heads, H, "linear_attn.in_proj_a.weight", "ssm_alpha.weight", l);
    }
    t = add(m, channels, f->window, "linear_attn.conv1d.weight", "ssm_conv1d.weight", l);
    t->middle = true;
    add(m, f->v_heads, 0, "linear_attn.A_log", "ssm_a", l);
    add(m, f->v_heads, 0, "linear_attn.dt_bias", "ssm_dt.bias", l);
    add(m, f->v, 0, "linear_attn.norm.weight", "ssm_norm.weight", l);
    add(m, H, width, "linear_attn.out_proj.weight", "ssm_out.weight", l);
}

static void add_mlp(const family *f, ck_model *m, int l)
{
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"}, *const short_names[] = {"gate", "up",
                                                                                                      "down"};
    char name[64], gguf[64];
    int e, which;
    if (f->experts)
        add(m, EXPERTS, H, "mlp.gate.weight", "ffn_gate_inp.weight", l);
    if (f->together) {
        add(m, EXPERTS * 2 * INNER, H, "mlp.experts.gate_up_proj", "ffn_gate_exps.weight", l)->experts = EXPERTS;
        add(m, EXPERTS * H, INNER, "mlp.experts.down_proj", "ffn_down_exps.weight", l)->experts = EXPERTS;
    }
    for (which = 0; f->experts && !f->together && which < 3; which++)
        for (e = 0; e < EXPERTS; e++) {
            snprintf(name, sizeof name, "mlp.experts.%d.%s.weight", e, names[which]);
            snprintf(gguf, sizeof gguf, "ffn_%s_exps.weight", short_names[which]);
            add(m, which == 2 ? H : INNER, which == 2 ? INNER : H, name, gguf, l);
        }
    if (f->experts)
        add(m, 1, H, "mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", l);
    for (which = 0; which < 3; which++) {
        snprintf(name, sizeof name, "mlp.%s%s.weight", f->experts ? "shared_expert." : "", names[which]);
        snprintf(gguf, sizeof gguf, "ffn_%s%s.weight", short_names[which], f->experts ? "_shexp" : "");
        add(m, which == 2 ? H : I, which == 2 ? I : H, name, gguf, l);
    }
}

static void make_tensors(const family *f, ck_model *m)
{
    int l;
    memset(m, 0, sizeof *m);
    m->family = f->model_type;
    m->vocab = V, m->seed = 70 + (int)(f - families);
    add(m, V, H, "model.embed_tokens.weight", "token_embd.weight", -1);
    add_norm(m, H, "model.norm.weight", "output_norm.weight", -1);
    add(m, V, H, "lm_head.weight", "output.weight", -1);
    for (l = 0; l < LAYERS; l++) {
        add_norm(m, H, "input_layernorm.weight", "attn_norm.weight", l);
        add_norm(m, H, "post_attention_layernorm.weight", "post_attention_norm.weight", l);
        if (recurs(l)) {
            add_recurrent(f, m, l);
        } else {
            add(m, 2 * Q * D, H, "self_attn.q_proj.weight", "attn_q.weight", l);
            add(m, KV * D, H, "self_attn.k_proj.weight", "attn_k.weight", l);
            add(m, KV * D, H, "self_attn.v_proj.weight", "attn_v.weight", l);
            add_norm(m, D, "self_attn.q_norm.weight", "attn_q_norm.weight", l);
            add_norm(m, D, "self_attn.k_norm.weight", "attn_k_norm.weight", l);
            add(m, H, Q * D, "self_attn.o_proj.weight", "attn_output.weight", l);
        }
        add_mlp(f, m, l);
    }
}

/* --- the forward, in double --------------------------------------------------------------------------------------- */

static double *of_layer(const ck_model *m, int layer, const char *name)
{
    char format[96];
    snprintf(format, sizeof format, "model.layers.%%d.%s", name);
    return ck_values(m, format, layer);
}

static double sigmoid_of(double x) { return 1 / (1 + exp(-x)); }

static void one_plus_norm(const double *w, const double *x, int n, double *y)
{
    double square = 0;
    int i;
    for (i = 0; i < n; i++)
        square += x[i] * x[i] / n;
    for (i = 0; i < n; i++)
        y[i] = x[i] / sqrt(square + 1e-6) * (1 + w[i]);
}

/*  q, k, v and the gate of a token, then strengths and decays, each in the order of heads. */
static void project(const family *f, const ck_model *m, int l, const double *h, double *qkvz, double *gains)
{
    const int keys = f->heads * f->k, channels = channels_of(f), width = f->v_heads * f->v;
    const int group = f->v_heads / f->heads, span = 2 * f->k + 2 * group * f->v;
    double all[MOST], pair[16];
    int head, i;
    if (!f->joined) {
        ck_linear(qkvz, of_layer(m, l, "linear_attn.in_proj_qkv.weight"), NULL, h, channels, H);
        ck_linear(qkvz + channels, of_layer(m, l, "linear_attn.in_proj_z.weight"), NULL, h, width, H);
        ck_linear(gains, of_layer(m, l, "linear_attn.in_proj_b.weight"), NULL, h, f->v_heads, H);
        ck_linear(gains + f->v_heads, of_layer(m, l, "linear_attn.in_proj_a.weight"), NULL, h, f->v_heads, H);
        return;
    }
    ck_linear(all, of_layer(m, l, "linear_attn.in_proj_qkvz.weight"), NULL, h, channels + width, H);
    ck_linear(pair, of_layer(m, l, "linear_attn.in_proj_ba.weight"), NULL, h, 2 * f->v_heads, H);
    for (head = 0; head < f->heads; head++) {
        for (i = 0; i < f->k; i++) {
            qkvz[head * f->k + i] = all[head * span + i];
            qkvz[keys + head * f->k + i] = all[head * span + f->k + i];
        }
        for (i = 0; i < group * f->v; i++) {
            qkvz[2 * keys + head * group * f->v + i] = all[head * span + 2 * f->k + i];
            qkvz[channels + head * group * f->v + i] = all[head * span + 2 * f->k + group * f->v + i];
        }
        for (i = 0; i < group; i++) {
            gains[head * group + i] = pair[head * 2 * group + i];
            gains[f->v_heads + head * group + i] = pair[head * 2 * group + group + i];
        }
    }
}

static void unit(const double *x, int n, double scale, double *y)
{
    double square = 0;
    int i;
    for (i = 0; i < n; i++)
        square += x[i] * x[i];
    for (i = 0; i < n; i++)
        y[i] = scale * x[i] / sqrt(square + 1e-6);
}

static void delta_net(const family *f, const ck_model *m, int l, const double *h, int seq, double *out)
{
    const int keys = f->heads * f->k, channels = channels_of(f), width = f->v_heads * f->v, row = channels + width;
    const double *conv = of_layer(m, l, "linear_attn.conv1d.weight"),
                 *weight = of_layer(m, l, "linear_attn.norm.weight");
    const double *logs = of_layer(m, l, "linear_attn.A_log"), *biases = of_layer(m, l, "linear_attn.dt_bias");
    double *all = (double *)calloc((size_t)(seq * row), 8), *state = (double *)calloc((size_t)(width * f->k), 8);
    double mixed[MOST], gains[16], result[MOST], q[64], k[64];
    int s, c, i, j, head;
    for (s = 0; s < seq; s++) {
        project(f, m, l, h + s * H, all + s * row, gains);
        for (c = 0; c < channels; c++) {
            for (mixed[c] = 0, i = 0; i < f->window; i++)
                mixed[c] +=
                    s - f->window + 1 + i < 0 ? 0 : conv[c * f->window + i] * all[(s - f->window + 1 + i) * row + c];
            mixed[c] *= sigmoid_of(mixed[c]);
        }
        for (head = 0; head < f->v_heads; head++) {
            const int of = head / (f->v_heads / f->heads);
            const double strength = sigmoid_of(gains[head]),
                         decay = exp(-exp(logs[head]) * log1p(exp(gains[f->v_heads + head] + biases[head])));
            double *own = state + head * f->k * f->v, square = 0;
            unit(mixed + of * f->k, f->k, 1 / sqrt(f->k), q);
            unit(mixed + keys + of * f->k, f->k, 1, k);
            for (j = 0; j < f->v; j++) {
                double found = 0, *to = &result[head * f->v + j];
                for (i = 0; i < f->k; i++)
                    found += (own[i * f->v + j] *= decay) * k[i];
                for (*to = 0, i = 0; i < f->k; i++) {
                    own[i * f->v + j] += k[i] * (mixed[2 * keys + head * f->v + j] - found) * strength;
                    *to += own[i * f->v + j] * q[i];
                }
                square += *to * *to / f->v;
            }
            for (j = 0; j < f->v; j++) {
                const double z = all[s * row + channels + head * f->v + j];
                result[head * f->v + j] *= weight[j] / sqrt(square + 1e-6) * z * sigmoid_of(z);
            }
        }
        ck_linear(out + s * H, of_layer(m, l, "linear_attn.out_proj.weight"), NULL, result, H, width);
    }
    free(all), free(state);
}

static void rotate(double *x, int position)
{
    int i;
    for (i = 0; i < ROTARY / 2; i++) {
        const double w = position * pow(10000, -2.0 * i / ROTARY), a = x[i], b = x[i + ROTARY / 2];
        x[i] = a * cos(w) - b * sin(w);
        x[i + ROTARY / 2] = b * cos(w) + a * sin(w);
    }
}

static void attention(const ck_model *m, int l, const double *h, int seq, double *out)
{
    enum { ROW = 2 * Q * D + 2 * KV * D };
    double *all = (double *)calloc((size_t)(seq * ROW), 8), score[CONTEXT], attended[Q * D];
    int s, j, i, head;
    for (s = 0; s < seq; s++) {
        double *row = all + s * ROW; /* of each head q, then its gate */
        ck_linear(row, of_layer(m, l, "self_attn.q_proj.weight"), NULL, h + s * H, 2 * Q * D, H);
        ck_linear(row + 2 * Q * D, of_layer(m, l, "self_attn.k_proj.weight"), NULL, h + s * H, KV * D, H);
        ck_linear(row + 2 * Q * D + KV * D, of_layer(m, l, "self_attn.v_proj.weight"), NULL, h + s * H, KV * D, H);
        for (head = 0; head < Q + KV; head++) {
            double *x = head < Q ? row + 2 * head * D : row + (2 * Q + head - Q) * D;
            one_plus_norm(of_layer(m, l, head < Q ? "self_attn.q_norm.weight" : "self_attn.k_norm.weight"), x, D, x);
            rotate(x, s);
        }
        for (head = 0; head < Q; head++) {
            double most = -1e300, sum = 0;
            for (j = 0; j <= s; j++) {
                for (score[j] = 0, i = 0; i < D; i++)
                    score[j] += row[2 * head * D + i] / 4 * all[j * ROW + (2 * Q + head / 2) * D + i];
                most = score[j] > most ? score[j] : most;
            }
            for (j = 0; j <= s; j++)
                sum += score[j] = exp(score[j] - most);
            for (i = 0; i < D; i++) {
                for (attended[head * D + i] = 0, j = 0; j <= s; j++)
                    attended[head * D + i] += score[j] / sum * all[j * ROW + (2 * Q + KV + head / 2) * D + i];
                attended[head * D + i] *= sigmoid_of(row[(2 * head + 1) * D + i]);
            }
        }
        ck_linear(out + s * H, of_layer(m, l, "self_attn.o_proj.weight"), NULL, attended, H, Q * D);
    }
    free(all);
}

static void gated(const double *gate, const double *up, const double *down, int n, const double *h, double *out)
{
    double inner[2 * INNER];
    int i;
    ck_linear(inner, gate, NULL, h, n, H);
    ck_linear(inner + n, up, NULL, h, n, H);
    for (i = 0; i < n; i++)
        inner[i] *= sigmoid_of(inner[i]) * inner[n + i];
    ck_linear(out, down, NULL, inner, H, n);
}

static void mixture(const family *f, const ck_model *m, int l, const double *h, double *out)
{
    double logits[EXPERTS], y[H], share, sum = 0, gate;
    char name[3][64];
    int e, i, k, above;
    ck_linear(logits, of_layer(m, l, "mlp.gate.weight"), NULL, h, EXPERTS, H);
    memset(out, 0, H * sizeof *out);
    for (k = 0; k < 2; k++) /* shares add up to 1 */
        for (e = 0; e < EXPERTS; e++) {
            const double *weights[3];
            for (above = 0, i = 0; i < EXPERTS; i++)
                above += logits[i] > logits[e];
            if (above >= CHOSEN)
                continue;
            share = exp(logits[e]);
            if (k == 0) {
                sum += share;
                continue;
            }
            snprintf(name[0], sizeof name[0], "mlp.experts.%d.gate_proj.weight", e);
            snprintf(name[1], sizeof name[1], "mlp.experts.%d.up_proj.weight", e);
            snprintf(name[2], sizeof name[2], "mlp.experts.%d.down_proj.weight", e);
            for (i = 0; i < 3; i++)
                weights[i] = of_layer(m, l, name[i]);
            if (f->together) {
                weights[0] = of_layer(m, l, "mlp.experts.gate_up_proj") + e * 2 * INNER * H;
                weights[1] = weights[0] + INNER * H;
                weights[2] = of_layer(m, l, "mlp.experts.down_proj") + e * H * INNER;
            }
            gated(weights[0], weights[1], weights[2], INNER, h, y);
            for (i = 0; i < H; i++)
                out[i] += share / sum * y[i];
        }
    ck_linear(&gate, of_layer(m, l, "mlp.shared_expert_gate.weight"), NULL, h, 1, H);
    gated(of_layer(m, l, "mlp.shared_expert.gate_proj.weight"), of_layer(m, l, "mlp.shared_expert.up_proj.weight"),
          of_layer(m, l, "mlp.shared_expert.down_proj.weight"), I, h, y);
    for (i = 0; i < H; i++)
        out[i] += y[i] * sigmoid_of(gate);
}

static void forward(const void *row, const ck_model *m, const int32_t *ids, int seq, double *logits)
{
    const family *f = (const family *)row;
    double *x = (double *)calloc((size_t)(seq * H), 8), *h = (double *)calloc((size_t)(seq * H), 8),
           *a = (double *)calloc((size_t)(seq * H), 8), y[H], z[H];
    int l, s, i;
    for (i = 0; i < seq * H; i++)
        x[i] = m->tensors[0].v[ids[i / H] * H + i % H];
    for (l = 0; l < LAYERS; l++) {
        for (s = 0; s < seq; s++)
            one_plus_norm(of_layer(m, l, "input_layernorm.weight"), x + s * H, H, h + s * H);
        if (recurs(l))
            delta_net(f, m, l, h, seq, a);
        else
            attention(m, l, h, seq, a);
        for (s = 0; s < seq; s++) {
            for (i = 0; i < H; i++)
                x[s * H + i] += a[s * H + i];
            one_plus_norm(of_layer(m, l, "post_attention_layernorm.weight"), x + s * H, H, y);
            if (f->experts)
                mixture(f, m, l, y, z);
            else
                gated(of_layer(m, l, "mlp.gate_proj.weight"), of_layer(m, l, "mlp.up_proj.weight"),
                      of_layer(m, l, "mlp.down_proj.weight"), I, y, z);
            for (i = 0; i < H; i++)
                x[s * H + i] += z[i];
        }
    }
    for (s = 0; s < seq; s++) {
        one_plus_norm(m->tensors[1].v, x + s * H, H, y);
        ck_linear(logits + (int64_t)s * V, m->tensors[2].v, NULL, y, V, H);
    }
    free(x), free(h), free(a);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static void write_config(const family *f, const char *change)
{
    char text[2048], sizes[600];
    snprintf(sizes, sizeof sizes,
             "\"linear_num_key_heads\": %d, \"linear_num_value_heads\": %d, \"linear_key_head_dim\": %d, "
             "\"linear_value_head_dim\": %d, \"linear_conv_kernel_dim\": %d%s",
             f->heads, f->v_heads, f->k, f->v, f->window,
             f->experts ? ", \"num_experts\": 3, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
                          "\"shared_expert_intermediate_size\": 24, \"norm_topk_prob\": true, \"mlp_only_layers\": []"
                        : ", \"attn_output_gate\": true, \"mtp_num_hidden_layers\": 1");
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", %s, \"layer_types\": [\"linear_attention\", \"linear_attention\", "
             "\"full_attention\", \"linear_attention\"], %s\"hidden_size\": %d, \"num_hidden_layers\": %d, "
             "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, \"intermediate_size\": %d, "
             "\"vocab_size\": %d, \"max_position_embeddings\": %d, \"tie_word_embeddings\": false, \"rms_norm_eps\": "
             "1e-06, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000, "
             "\"partial_rotary_factor\": 0.25, \"mrope_section\": [1, 1, 0], \"mrope_interleaved\": true}}",
             f->model_type, sizes, change, H, LAYERS, Q, KV, D, I, V, CONTEXT);
    ck_write_text(test_path("f"), "config.json", text);
}

static void write_folder(const family *f, const ck_model *m)
{
    char path[256];
    test_remove_folder(test_path("f"));
    CHECK_INT(ignis__folder_make_all(test_path("f")), true);
    write_config(f, "");
    snprintf(path, sizeof path, "%s/model.safetensors", test_path("f"));
    ck_write_safetensors(m, path, IGNIS_F32, 0, 1);
}

/*  Appends a tensor of a GGUF file, [experts, rows, columns] if there are experts. */
static void put_tensor(ck_bytes *head, ck_bytes *data, const char *name, const double *v, int experts, int rows,
                       int columns)
{
    int64_t i, count = (int64_t)rows * (columns ? columns : 1) * (experts ? experts : 1);
    while (data->size % 32)
        ck_put(data, "", 1);
    ck_text(head, name), ck_u32(head, 1u + (columns > 0) + (experts > 0));
    if (columns)
        ck_u64(head, (uint64_t)columns);
    ck_u64(head, (uint64_t)rows);
    if (experts)
        ck_u64(head, (uint64_t)experts);
    ck_u32(head, 0), ck_u64(head, data->size);
    for (i = 0; i < count; i++)
        ck_f32(data, (float)v[i]);
}

/*  Returns where head `head` of v of a GGUF file is in a folder. */
static int tiled_head(const family *f, int head)
{
    return f->tiled ? head % f->heads * (f->v_heads / f->heads) + head / f->heads : head;
}

/*  Copies heads of v, `size` elements each, in the order of GGUF files. */
static void tile(const family *f, const double *from, int size, double *to)
{
    int head;
    for (head = 0; head < f->v_heads; head++)
        memcpy(to + head * size, from + tiled_head(f, head) * size, (size_t)size * sizeof *to);
}

/*  Writes the values of a tensor as a GGUF file has them. Returns its rows; the rest of it goes to `gate`. */
static int gguf_values(const family *f, const ck_tensor *t, double *to, double *gate)
{
    const int channels = channels_of(f), keys = f->heads * f->k, group = f->v_heads / f->heads,
              n = t->columns ? t->columns : 1, span = 2 * f->k + 2 * group * f->v;
    int64_t i, count = (int64_t)t->rows * n;
    int head, r;
    memcpy(to, t->v, (size_t)count * sizeof *to);
    if (strstr(t->name, "in_proj_qkvz")) {
        for (head = 0; head < f->heads; head++) {
            const double *from = t->v + (int64_t)head * span * n;
            memcpy(to + head * f->k * n, from, (size_t)(f->k * n) * sizeof *to);
            memcpy(to + (keys + head * f->k) * n, from + f->k * n, (size_t)(f->k * n) * sizeof *to);
            memcpy(to + (2 * keys + head * group * f->v) * n, from + 2 * f->k * n,
                   (size_t)(group * f->v * n) * sizeof *to);
            memcpy(gate + head * group * f->v * n, from + (2 * f->k + group * f->v) * n,
                   (size_t)(group * f->v * n) * sizeof *to);
        }
        return channels;
    }
    if (strstr(t->name, "in_proj_qkv") || strstr(t->name, "conv1d"))
        tile(f, t->v + 2 * keys * n, f->v * n, to + 2 * keys * n);
    else if (strstr(t->name, "in_proj_z"))
        tile(f, t->v, f->v * n, to);
    else if (strstr(t->name, "in_proj_b.") || strstr(t->name, "in_proj_a.") || strstr(t->name, "dt_bias") ||
             strstr(t->name, "A_log"))
        tile(f, t->v, n, to);
    for (r = 0; strstr(t->name, "out_proj") && r < t->rows; r++)
        tile(f, t->v + r * n, f->v, to + r * n);
    for (i = 0; strstr(t->name, "A_log") && i < count; i++)
        to[i] = -exp(to[i]);
    for (i = 0; strstr(t->name, "norm.weight") && !strstr(t->name, "linear_attn") && i < count; i++)
        to[i] += 1;
    return t->rows;
}

/*  decay: a value that all of ssm_a have instead, or 0. */
static void write_gguf_file(const family *f, const ck_model *m, double decay)
{
    static double values[MOST * H], gate[MOST * H];
    ck_bytes head = {0}, list = {0}, data = {0};
    uint32_t keys = 16, tensors = 0;
    int i, e, rows;
    char name[96];
    for (i = 0; i < m->count; i++, tensors++) {
        const ck_tensor *t = &m->tensors[i];
        if (t->experts && strstr(t->name, "gate_up")) {
            for (e = 0; e < EXPERTS; e++) {
                memcpy(values + e * INNER * H, t->v + 2 * e * INNER * H, INNER * H * sizeof *values);
                memcpy(gate + e * INNER * H, t->v + (2 * e + 1) * INNER * H, INNER * H * sizeof *values);
            }
            put_tensor(&list, &data, t->gguf, values, EXPERTS, INNER, H);
            snprintf(name, sizeof name, "%.*sffn_up_exps.weight", (int)(strstr(t->gguf, "ffn_") - t->gguf), t->gguf);
            put_tensor(&list, &data, name, gate, EXPERTS, INNER, H);
            tensors++;
            continue;
        }
        if (strstr(t->gguf, "_exps.")) {
            for (e = 0; e < EXPERTS && !t->experts; e++)
                memcpy(values + e * INNER * H, t[e].v, INNER * H * sizeof *values);
            put_tensor(&list, &data, t->gguf, t->experts ? t->v : values, EXPERTS, strstr(t->gguf, "down") ? H : INNER,
                       strstr(t->gguf, "down") ? INNER : H);
            i += t->experts ? 0 : EXPERTS - 1;
            continue;
        }
        rows = gguf_values(f, t, values, gate);
        for (e = 0; strstr(t->name, "A_log") && decay != 0 && e < rows; e++)
            values[e] = decay;
        put_tensor(&list, &data, t->gguf, values, 0, rows, t->columns);
        if (rows < t->rows) {
            snprintf(name, sizeof name, "%.*sattn_gate.weight", (int)(strstr(t->gguf, "attn_") - t->gguf), t->gguf);
            put_tensor(&list, &data, name, gate, 0, t->rows - rows, t->columns);
            tensors++;
        }
    }
    keys += f->experts ? 4 : 0;
    ck_put(&head, "GGUF", 4), ck_u32(&head, 3), ck_u64(&head, tensors), ck_u64(&head, keys);
    ck_text(&head, "general.architecture"), ck_u32(&head, 8), ck_text(&head, f->architecture);
    ck_key_u32(&head, f->architecture, "block_count", LAYERS);
    ck_key_u32(&head, f->architecture, "embedding_length", H);
    ck_key_u32(&head, f->architecture, "feed_forward_length", I);
    ck_key_u32(&head, f->architecture, "context_length", CONTEXT);
    ck_key_u32(&head, f->architecture, "attention.head_count", Q);
    ck_key_u32(&head, f->architecture, "attention.head_count_kv", KV);
    ck_key_u32(&head, f->architecture, "attention.key_length", D);
    ck_key_u32(&head, f->architecture, "rope.dimension_count", ROTARY);
    ck_key_f32(&head, f->architecture, "attention.layer_norm_rms_epsilon", 1e-6);
    ck_key_u32(&head, f->architecture, "full_attention_interval", 3);
    ck_key_u32(&head, f->architecture, "ssm.group_count", f->heads);
    ck_key_u32(&head, f->architecture, "ssm.time_step_rank", f->v_heads);
    ck_key_u32(&head, f->architecture, "ssm.state_size", f->k);
    ck_key_u32(&head, f->architecture, "ssm.inner_size", f->v_heads * f->v);
    ck_key_u32(&head, f->architecture, "ssm.conv_kernel", f->window);
    if (f->experts) {
        ck_key_u32(&head, f->architecture, "expert_count", EXPERTS);
        ck_key_u32(&head, f->architecture, "expert_used_count", CHOSEN);
        ck_key_u32(&head, f->architecture, "expert_feed_forward_length", INNER);
        ck_key_u32(&head, f->architecture, "expert_shared_feed_forward_length", I);
    }
    ck_put(&head, list.data, list.size);
    while (head.size % 32)
        ck_put(&head, "", 1);
    ck_put(&head, data.data, data.size);
    test_write_file(test_path("m.gguf"), head.data, head.size);
    free(head.data), free(list.data), free(data.data);
}

/* --- comparisons -------------------------------------------------------------------------------------------------- */

static ignis_model open_model(const char *path, ignis_dtype dtype, bool learns)
{
    ignis_model_desc desc;
    ignis_model model;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.dtype = dtype;
    desc.sequences = 3;
    desc.requires_grad = learns;
    model = ignis_model_open(&desc);
    if (!model.id)
        test__fail(__FILE__, __LINE__, ignis_status_message());
    ignis_status_clear();
    return model;
}

static own_forward own_of(const family *f, ck_model *m)
{
    const own_forward own = {f->model_type, f, m, forward};
    return own;
}

TEST(folders_agree_with_a_forward_in_double)
{
    ck_model m;
    int i;
    SETUP(NULL);
    for (i = 0; i < FAMILIES; i++) {
        ignis_model model;
        make_tensors(&families[i], &m);
        write_folder(&families[i], &m);
        model = open_model(test_path("f"), IGNIS_F32, false);
        check_whole(own_of(&families[i], &m), model, SEQ, 9, 3e-5); /* sums of f32, and a triangular system */
        check_sequences(own_of(&families[i], &m), model, SEQ, 1e-5);
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

TEST(gguf_files_agree_with_a_forward_in_double)
{
    ck_model m;
    int i;
    SETUP(NULL);
    for (i = 0; i < FAMILIES; i++) {
        ignis_model model;
        if (!families[i].architecture)
            continue;
        make_tensors(&families[i], &m);
        write_gguf_file(&families[i], &m, 0);
        model = open_model(test_path("m.gguf"), IGNIS_F32, false);
        check_whole(own_of(&families[i], &m), model, SEQ, 9, 3e-5);
        if (i == 1)
            check_sequences(own_of(&families[i], &m), model, SEQ, 1e-5);
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

TEST(tensor_cores_agree_with_a_forward_in_double)
{
    ck_model m;
    ignis_model model;
    SETUP(NULL);
    make_tensors(&families[0], &m);
    ck_round_all(&m, IGNIS_BF16);
    write_folder(&families[0], &m);
    model = open_model(test_path("f"), IGNIS_BF16, false);
    check_sequences(own_of(&families[0], &m), model, SEQ, 4e-2); /* 8 bits, over 4 layers */
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

/*  The logits after the first `count` ids of a new sequence, fed in chunks of `chunk` tokens. */
static void fresh_logits(ignis_model model, const int32_t *ids, int count, int chunk, float *logits)
{
    ignis_sequence sequence = ignis_sequence_begin(model);
    int at;
    for (at = 0; at < count; at += chunk)
        CHECK_OK(ignis_sequence_feed(sequence, ids + at, count - at < chunk ? count - at : chunk));
    CHECK_OK(ignis_sequence_logits(sequence, logits, V));
    CHECK_OK(ignis_sequence_free(sequence));
}

TEST(truncated_sequences_have_the_bits_of_new_ones)
{
    static const struct {
        int fed, left, more;
    } cases[] = {{9, 8, 1}, {9, 8, 0}, {9, 7, 0}, {9, 3, 2}, {9, 1, 0}, {9, 0, 4}, {SEQ, SEQ - 1, 1}, {SEQ, 4, 2}};
    float logits[V], wanted[V];
    int32_t ids[SEQ + 4];
    ignis_sequence sequence;
    ignis_model model;
    ck_model m;
    int i;
    SETUP(NULL);
    ids_of(ids, SEQ + 4, V);
    make_tensors(&families[0], &m);
    write_folder(&families[0], &m);
    model = open_model(test_path("f"), IGNIS_F32, false);
    for (i = 0; i < COUNT_OF(cases); i++) {
        const int left = cases[i].left, count = left + cases[i].more;
        sequence = ignis_sequence_begin(model);
        CHECK_OK(ignis_sequence_feed(sequence, ids, cases[i].fed));
        CHECK_OK(ignis_sequence_logits(sequence, logits, V)); /* computes the last token, too */
        CHECK_OK(ignis_sequence_truncate(sequence, left));
        CHECK_OK(ignis_sequence_feed(sequence, ids + left, cases[i].more));
        CHECK_OK(ignis_sequence_logits(sequence, logits, V));
        if (cases[i].fed < SEQ) {
            fresh_logits(model, ids, count, count, wanted);
        } else { /* tokens of a chunk stay so */
            ignis_sequence other = ignis_sequence_begin(model);
            CHECK_OK(ignis_sequence_feed(other, ids, SEQ));
            CHECK_OK(ignis_sequence_truncate(other, left));
            CHECK_OK(ignis_sequence_feed(other, ids + left, cases[i].more));
            CHECK_OK(ignis_sequence_logits(other, wanted, V));
            CHECK_OK(ignis_sequence_free(other));
        }
        CHECK_INT(memcmp(logits, wanted, sizeof logits), 0);
        CHECK_OK(ignis_sequence_free(sequence));
    }
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

/*  Steps come after the last pieces: the states of recurrent layers are the same then. */
TEST(a_prompt_has_the_same_bits_in_any_pieces)
{
    enum { ALL = 140, PIECES = 2 };
    static const int pieces[][PIECES] = {{ALL, 0}, {65, ALL - 65}, {70, ALL - 70}};
    float logits[V], wanted[V];
    int32_t ids[ALL + 1];
    ck_model m;
    ignis_model model;
    int i, k, at;
    SETUP(NULL);
    ids_of(ids, ALL + 1, V);
    make_tensors(&families[3], &m);
    write_folder(&families[3], &m);
    model = open_model(test_path("f"), IGNIS_F32, false);
    for (i = 0; i < COUNT_OF(pieces); i++) {
        ignis_sequence sequence = ignis_sequence_begin(model);
        for (k = at = 0; k < PIECES; at += pieces[i][k++])
            CHECK_OK(ignis_sequence_feed(sequence, ids + at, pieces[i][k]));
        CHECK_OK(ignis_sequence_feed(sequence, ids + at, 1));
        CHECK_OK(ignis_sequence_logits(sequence, i == 0 ? wanted : logits, V));
        if (i > 0)
            CHECK_INT(memcmp(logits, wanted, sizeof logits), 0);
        CHECK_OK(ignis_sequence_free(sequence));
    }
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

TEST(saved_and_polled_sequences_have_the_same_bits)
{
    int32_t ids[SEQ];
    ignis_model model;
    ck_model m;
    SETUP(NULL);
    ids_of(ids, SEQ, V);
    make_tensors(&families[0], &m);
    write_folder(&families[0], &m);
    model = open_model(test_path("f"), IGNIS_F32, false);
    check_saved_and_polled(model, ids, SEQ, V);
    check_saved_and_polled(model, ids, 5, V);
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

TEST(forks_go_their_own_ways)
{
    float logits[V], wanted[V];
    int32_t ids[12], others[12];
    ignis_sequence sequence, fork;
    ignis_model model;
    ck_model m;
    int i;
    SETUP(NULL);
    ids_of(ids, 12, V);
    memcpy(others, ids, sizeof others);
    for (i = 6; i < 12; i++)
        others[i] = (ids[i] + 5) % V;
    make_tensors(&families[1], &m);
    write_folder(&families[1], &m);
    model = open_model(test_path("f"), IGNIS_F32, false);
    sequence = ignis_sequence_begin(model);
    CHECK_OK(ignis_sequence_feed(sequence, ids, 6));
    fork = ignis_sequence_fork(sequence);
    CHECK_OK(ignis_sequence_feed(sequence, ids + 6, 6));
    CHECK_OK(ignis_sequence_feed(fork, others + 6, 6));
    CHECK_OK(ignis_sequence_logits(fork, logits, V));
    fresh_logits(model, others, 12, 12, wanted);
    CHECK_INT(memcmp(logits, wanted, sizeof logits), 0);
    CHECK_OK(ignis_sequence_free(fork));
    CHECK_OK(ignis_sequence_logits(sequence, logits, V));
    fresh_logits(model, ids, 12, 5, wanted); /* in pieces */
    CHECK_INT(memcmp(logits, wanted, sizeof logits), 0);
    CHECK_OK(ignis_sequence_free(sequence));
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

/*  ignis_generate computes tokens ahead, which the caller may not take. */
TEST(generated_tokens_are_those_of_single_steps)
{
    ignis_generate_desc desc;
    int32_t ids[30], got[30], next, i, count;
    ignis_sequence sequence, other;
    ignis_model model;
    ck_model m;
    SETUP(NULL);
    ids_of(ids, 5, V);
    memset(&desc, 0, sizeof desc);
    make_tensors(&families[0], &m);
    write_folder(&families[0], &m);
    model = open_model(test_path("f"), IGNIS_F32, false);
    sequence = ignis_sequence_begin(model), other = ignis_sequence_begin(model);
    CHECK_OK(ignis_sequence_feed(sequence, ids, 5));
    CHECK_OK(ignis_sequence_feed(other, ids, 5));
    desc.end_count = -1;
    for (count = 5, i = 0; i < 3; i++) { /* with and without a token ahead at the end */
        desc.max_tokens = 5 + i;
        CHECK_OK(ignis_generate(sequence, &desc));
        count += desc.max_tokens;
        CHECK_OK(ignis_sequence_feed(sequence, ids, 1));
        count++;
    }
    CHECK_INT(ignis_sequence_ids(sequence, got, 30), count);
    for (i = 5; i < count; i++) {
        if (i == 10 || i == 17 || i == 25) {
            CHECK_OK(ignis_sequence_feed(other, ids, 1));
            continue;
        }
        next = ignis_sequence_next(other, NULL);
        CHECK_INT(next, got[i]);
    }
    CHECK_OK(ignis_sequence_free(other));
    CHECK_OK(ignis_sequence_free(sequence));
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

/* --- adapters ----------------------------------------------------------------------------------------------------- */

/*  The order of heads of v of a GGUF file is another one, of rows and of columns. */
TEST(tensors_have_the_order_of_folders)
{
    static const char *const names[] = {"in_proj_qkv.weight", "in_proj_z.weight", "in_proj_a.weight",
                                        "conv1d.weight",      "dt_bias",          "out_proj.weight"};
    const family *f = &families[1];
    ignis_scope scope;
    ignis_model model;
    ck_model m;
    int i, k;
    SETUP(NULL);
    make_tensors(f, &m);
    write_gguf_file(f, &m, 0);
    model = open_model(test_path("m.gguf"), IGNIS_F32, false);
    scope = ignis_scope_begin();
    for (i = 0; i < COUNT_OF(names); i++) {
        char name[96], part[64];
        double *got, *wanted;
        ignis_tensor tensor;
        snprintf(part, sizeof part, "linear_attn.%s", names[i]);
        snprintf(name, sizeof name, "model.layers.1.%s", part);
        wanted = of_layer(&m, 1, part);
        tensor = ignis_model_tensor(model, name);
        got = tensor_values(tensor);
        for (k = 0; k < numel_of(tensor) && got[k] == wanted[k];)
            k++;
        CHECK_INT(k, numel_of(tensor));
        free(got);
    }
    CHECK_INT(shape_of(ignis_model_tensor(model, "model.layers.1.linear_attn.in_proj_qkvz.weight")).dim[0],
              channels_of(f) + f->v_heads * f->v);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

/*  By steps and in a chunk, of folders and of GGUF files, where heads of v have another order. */
TEST(adapters_have_the_values_of_merged_weights)
{
    static const char *const targets[] = {"in_proj_qkv", "in_proj_z", "linear_attn.out_proj"};
    const family *f = &families[1];
    int i;
    SETUP(NULL);
    for (i = 0; i < 2; i++) {
        ignis_model model;
        ck_model m;
        make_tensors(f, &m);
        if (i == 0)
            write_folder(f, &m);
        else
            write_gguf_file(f, &m, 0);
        model = open_model(test_path(i ? "m.gguf" : "f"), IGNIS_F32, false);
        check_adapters(own_of(f, &m), model, targets, COUNT_OF(targets), 9, i ? SEQ : 9);
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

static double loss_of(const family *f, const ck_model *m, const int32_t *ids)
{
    double logits[5 * V], loss = 0;
    int i;
    forward(f, m, ids, 5, logits);
    for (i = 0; i < 5 * V; i++)
        loss += logits[i] * sin(i);
    return loss;
}

TEST(gradients_are_slopes)
{
    static const char *const names[] = {"linear_attn.in_proj_qkv.weight",
                                        "linear_attn.in_proj_z.weight",
                                        "linear_attn.in_proj_b.weight",
                                        "linear_attn.in_proj_a.weight",
                                        "linear_attn.conv1d.weight",
                                        "linear_attn.A_log",
                                        "linear_attn.dt_bias",
                                        "linear_attn.norm.weight",
                                        "linear_attn.out_proj.weight",
                                        "self_attn.o_proj.weight"};
    const family *f = &families[1];
    double weights[5 * V];
    int32_t ids[5];
    ignis_tensor_desc i32 = tensor_desc(IGNIS_I32, false), f64 = tensor_desc(IGNIS_F64, false);
    ignis_tensor logits, loss;
    ignis_scope scope;
    ignis_model model;
    ck_model m;
    int i, k;
    SETUP(NULL);
    f64.host_dtype = IGNIS_F64;
    ids_of(ids, 5, V);
    for (i = 0; i < 5 * V; i++)
        weights[i] = sin(i);
    make_tensors(f, &m);
    write_folder(f, &m);
    model = open_model(test_path("f"), IGNIS_F64, true);
    scope = ignis_scope_begin();
    logits = ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(5), &i32));
    loss = ignis_sum(ignis_mul(logits, ignis_tensor_from_host(weights, IGNIS_SHAPE(5, V), &f64)));
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    for (i = 0; i < COUNT_OF(names); i++) {
        const int layer = strstr(names[i], "self") ? 2 : 1;
        char whole[64], name[96];
        double *v = of_layer(&m, layer, names[i]), before = v[0], slope, *grads;
        const ck_tensor *t = m.tensors;
        int64_t at = 0, count;
        ignis_tensor weight;
        while (t->v != v)
            t++;
        /* gradients are those of whole weights */
        snprintf(whole, sizeof whole, "%s", names[i]);
        if (strstr(names[i], "in_proj_qkv") || strstr(names[i], "in_proj_z")) {
            snprintf(whole, sizeof whole, "linear_attn.in_proj_qkvz.weight");
            at = strstr(names[i], "in_proj_z") ? channels_of(f) * H : 0;
        } else if (strstr(names[i], "in_proj_b") || strstr(names[i], "in_proj_a")) {
            snprintf(whole, sizeof whole, "linear_attn.in_proj_ba.weight");
            at = strstr(names[i], "in_proj_a") ? f->v_heads * H : 0;
        }
        snprintf(name, sizeof name, "model.layers.%d.%s", layer, whole);
        weight = ignis_model_tensor(model, name);
        count = numel_of(weight);
        grads = (double *)calloc((size_t)count, sizeof *grads);
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(weight), grads, IGNIS_F64, count));
        v[0] = before + 1e-5;
        slope = loss_of(f, &m, ids);
        v[0] = before - 1e-5;
        slope = (slope - loss_of(f, &m, ids)) / 2e-5;
        v[0] = before;
        if (!(fabs(grads[at] - slope) <= 1e-6 * (1 + fabs(slope)))) { /* rounding, and the third derivative */
            printf("%s: %.9g, expected %.9g\n", names[i], grads[at], slope);
            CHECK(false);
        }
        for (k = 0; k < count && grads[k] == 0;)
            k++;
        CHECK(k < count);
        free(grads);
    }
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

/* --- bad input ---------------------------------------------------------------------------------------------------- */

TEST(contradictions_are_refused)
{
    static const struct {
        int family;
        const char *change, *message;
        ignis_status status;
    } cases[] = {
        {0, "\"layer_types\": [\"linear_attention\", \"x\", \"full_attention\", \"x\"], ", "has layer_types[] 'x'",
         IGNIS_ERROR_UNSUPPORTED},
        {0, "\"layer_types\": [\"linear_attention\"], ", "a list layer_types[] of another length", IGNIS_ERROR_FORMAT},
        {0, "\"linear_num_value_heads\": 3, ", "3 heads of values of 36 elements together, and 2 heads of keys",
         IGNIS_ERROR_FORMAT},
        {0, "\"linear_num_key_heads\": 0, ", "has linear_num_key_heads 0; a whole number", IGNIS_ERROR_FORMAT},
        {0, "\"linear_conv_kernel_dim\": 65, ", "from 1 to 64", IGNIS_ERROR_FORMAT},
        {0, "\"linear_value_head_dim\": 60000, \"linear_num_value_heads\": 30000, ", "recurrent layers of 3.6e+09 rows",
         IGNIS_ERROR_FORMAT},
        {0, "\"linear_key_head_dim\": 65536, \"linear_value_head_dim\": 65536, ", "states of 1.71799e+10 elements",
         IGNIS_ERROR_FORMAT},
        {0, "\"linear_key_head_dim\": 12, ", "is [80, 1, 4]; its description makes it [96, 1, 4]", IGNIS_ERROR_FORMAT},
        {1, "\"linear_conv_kernel_dim\": 4, ", "is [288, 1, 3]; its description makes it [288, 1, 4]",
         IGNIS_ERROR_FORMAT},
        {1, "\"attn_output_gate\": false, ", "has attn_output_gate false", IGNIS_ERROR_UNSUPPORTED},
        {0, "\"mlp_only_layers\": [1], ", "has mlp_only_layers[] 1", IGNIS_ERROR_UNSUPPORTED},
    };
    ignis_model_desc desc;
    ignis_model_info info;
    ck_model m;
    int i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("f");
    for (i = 0; i < COUNT_OF(cases); i++) {
        make_tensors(&families[cases[i].family], &m);
        write_folder(&families[cases[i].family], &m);
        write_config(&families[cases[i].family], cases[i].change);
        CHECK_INT(ignis_model_inspect(&desc, &info), cases[i].status);
        CHECK_HAS(ignis_status_message(), cases[i].message);
        ignis_status_clear();
        ck_free(&m);
    }
    CHECK_INT(memory().live_bytes, 0);
}

TEST(what_these_models_lack_is_refused)
{
    static const char *const products[] = {"q_proj", "in_proj_qkvz", "in_proj_ba", "conv1d", "shared_expert_gate"};
    ignis_model_desc desc;
    ignis_lora_desc adapters;
    const char *targets[1];
    ignis_model_info info;
    ignis_model model;
    ck_model m;
    int i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    memset(&adapters, 0, sizeof adapters);
    make_tensors(&families[0], &m);
    write_folder(&families[0], &m);
    desc.path = test_path("f");
    desc.parallel.size = 2;
    CHECK_INT(ignis_model_inspect(&desc, &info), IGNIS_ERROR_UNSUPPORTED);
    CHECK_HAS(ignis_status_message(), "a model of qwen3_next cannot be shared by 2 ranks");
    ignis_status_clear();
    desc.parallel.size = 0;
    CHECK_OK(ignis_model_inspect(&desc, &info));
    CHECK_INT(info.cache_bytes_of_token, 2 * KV * D * 4); /* of one layer */
    CHECK_INT(info.state_bytes, 2 * 3 * (4 * 8 * 12 + 80 * 3) * 4);
    model = open_model(test_path("f"), IGNIS_F32, false);
    CHECK_INT(ignis_model_save(model, test_path("saved")), IGNIS_ERROR_UNSUPPORTED);
    CHECK_HAS(ignis_status_message(), "the projections of a qwen3_next model cannot be written");
    ignis_status_clear();
    CHECK(!ignis_model_tensor(model, "model.layers.2.self_attn.q_proj.weight").id);
    CHECK_HAS(ignis_status_message(), "has no weight 'model.layers.2.self_attn.q_proj.weight'");
    ignis_status_clear();
    adapters.targets = targets, adapters.target_count = 1;
    for (i = 0; i < COUNT_OF(products); i++) {
        char message[96];
        targets[0] = products[i];
        snprintf(message, sizeof message, "desc->targets[0] is '%s', which is no product", products[i]);
        CHECK(!ignis_lora_create(model, &adapters).id);
        CHECK_HAS(ignis_status_message(), message);
        ignis_status_clear();
    }
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
    make_tensors(&families[1], &m);
    write_gguf_file(&families[1], &m, 0.5);
    desc.path = test_path("m.gguf");
    CHECK(!ignis_model_open(&desc).id);
    CHECK_HAS(ignis_status_message(), "tensor 'blk.0.ssm_a' has 0.5; expected numbers below 0");
    ignis_status_clear();
    ck_free(&m);
}

/* --- failures ----------------------------------------------------------------------------------------------------- */

static void check_faults(const char *prefix, int stride)
{
    ck_model m;
    make_tensors(&families[0], &m);
    write_folder(&families[0], &m);
    ck_free(&m);
    check_sequence_faults(test_path("f"), prefix, stride, V);
}

TEST(each_host_allocation_fails_once) { check_faults(NULL, 13); }
TEST(each_allocation_fails_once) { check_faults("cuMemAlloc", 19); }
TEST(each_launch_fails_once) { check_faults("cuLaunchKernel", 223); }

int main(int argc, char **argv) { return test_run(argc, argv); }
