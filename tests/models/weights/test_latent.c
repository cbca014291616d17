// SPDX-License-Identifier: MIT
/*  test_latent.c - tiny models with latent attention (DeepSeek-V2, V2-Lite, V3, Kimi-K2), from folders and GGUF files,
    against the test's own forward in double

    The forward here follows the layouts and formulas of transformers: keys and values of each head, rotated in adjacent
    pairs. It knows nothing of the library's tables, and nothing of latents that are attended to. */
#include "sequence_faults.h"

#include "own_forward.h"

/*  CONTEXT: of 5 splits, so that attention of LONG tokens, which have 2, has more blocks than splits */
enum { CONTEXT = 260, LONG = 68, SEQ = 13 };
enum { H = 32, I = 64, X = 32, V = 61, LAYERS = 3, HEADS = 3, PLAIN = 16, TURN = 8 };
enum { HEAD = PLAIN + TURN, EXPERTS = 6, CHOSEN = 3, GROUPS = 3, USED = 2, SHARED = 2, ORIGINAL = 24 };

/*  What a model is. q_rank 0: q is a product of its own. */
typedef struct latent_model {
    const char *model_type, *json;
    int latent, q_rank, value;
    bool sigmoid, grouped, normalised, more_layers;
    double scale, yarn, mscale, all; /* scale: of shares; yarn: the factor, 0: none */
    bool halves;                     /* GGUF: kv_b is in two tensors */
} latent_model;

static const latent_model models[] = {
    {.model_type = "deepseek_v2", /* V2-Lite; whatever the groups are, it takes the best experts */
     .json = "\"q_lora_rank\": null, \"topk_method\": \"greedy\", \"n_group\": 3, \"topk_group\": 1, "
             "\"norm_topk_prob\": false, \"scoring_func\": \"softmax\", \"routed_scaling_factor\": 1.0",
     .latent = 24,
     .value = 8,
     .scale = 1,
     .yarn = 4,
     .mscale = 0.707,
     .all = 0.707},
    {.model_type = "deepseek_v2",
     .json = "\"q_lora_rank\": 32, \"topk_method\": \"group_limited_greedy\", \"n_group\": 3, \"topk_group\": 2, "
             "\"norm_topk_prob\": false, \"routed_scaling_factor\": 3.0",
     .latent = 24,
     .q_rank = 32,
     .value = 8,
     .grouped = true,
     .scale = 3,
     .yarn = 4,
     .mscale = 1,
     .all = 0.5},
    {.model_type = "deepseek_v3",
     .json = "\"q_lora_rank\": 32, \"topk_method\": \"noaux_tc\", \"n_group\": 3, \"topk_group\": 2, "
             "\"norm_topk_prob\": true, \"scoring_func\": \"sigmoid\", \"routed_scaling_factor\": 2.5, "
             "\"num_nextn_predict_layers\": 1",
     .latent = 72,
     .q_rank = 32,
     .value = 16,
     .sigmoid = true,
     .grouped = true,
     .normalised = true,
     .more_layers = true,
     .scale = 2.5,
     .yarn = 4,
     .mscale = 1,
     .all = 1,
     .halves = true},
    {.model_type = "kimi_k2",
     .json = "\"q_lora_rank\": 32, \"topk_method\": \"noaux_tc\", \"n_group\": 1, \"topk_group\": 1, "
             "\"norm_topk_prob\": true, \"scoring_func\": \"sigmoid\", \"routed_scaling_factor\": 2.5",
     .latent = 72,
     .q_rank = 32,
     .value = 16,
     .sigmoid = true,
     .normalised = true,
     .scale = 2.5},
};
enum { V2_LITE, V2, V3, KIMI };

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static void add(ck_model *m, int rows, int columns, const char *name, const char *gguf, int layer)
{
    char hf[96], own[64];
    snprintf(hf, sizeof hf, layer < 0 ? "%s" : "model.layers.%%d.%s", name);
    snprintf(own, sizeof own, layer < 0 ? "%s" : "blk.%%d.%s", gguf);
    ck_add(m, rows, columns, hf, own, layer, false, false);
}

static void make_tensors(const latent_model *f, ck_model *m)
{
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"}, *const gguf[] = {"gate", "up", "down"};
    char name[64], own[64];
    int l, e, k;
    memset(m, 0, sizeof *m);
    m->family = f->model_type;
    m->vocab = V, m->seed = 70 + (int)(f - models);
    add(m, V, H, "model.embed_tokens.weight", "token_embd.weight", -1);
    add(m, H, 0, "model.norm.weight", "output_norm.weight", -1);
    add(m, V, H, "lm_head.weight", "output.weight", -1);
    for (l = 0; l < LAYERS; l++) {
        add(m, H, 0, "input_layernorm.weight", "attn_norm.weight", l);
        if (f->q_rank) {
            add(m, f->q_rank, H, "self_attn.q_a_proj.weight", "attn_q_a.weight", l);
            add(m, f->q_rank, 0, "self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight", l);
            add(m, HEADS * HEAD, f->q_rank, "self_attn.q_b_proj.weight", "attn_q_b.weight", l);
        } else {
            add(m, HEADS * HEAD, H, "self_attn.q_proj.weight", "attn_q.weight", l);
        }
        add(m, f->latent + TURN, H, "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight", l);
        add(m, f->latent, 0, "self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight", l);
        add(m, HEADS * (PLAIN + f->value), f->latent, "self_attn.kv_b_proj.weight", "attn_kv_b.weight", l);
        add(m, H, HEADS * f->value, "self_attn.o_proj.weight", "attn_output.weight", l);
        add(m, H, 0, "post_attention_layernorm.weight", "ffn_norm.weight", l);
        if (l > 0)
            add(m, EXPERTS, H, "mlp.gate.weight", "ffn_gate_inp.weight", l);
        if (l > 0 && f->sigmoid)
            add(m, EXPERTS, 0, "mlp.gate.e_score_correction_bias", "exp_probs_b.bias", l);
        for (k = 0; k < 3; k++) {
            const int inner = l > 0 ? SHARED * X : I;
            for (e = 0; l > 0 && e < EXPERTS; e++) {
                snprintf(name, sizeof name, "mlp.experts.%d.%s.weight", e, parts[k]);
                snprintf(own, sizeof own, "ffn_%s_exps.weight", gguf[k]);
                add(m, k == 2 ? H : X, k == 2 ? X : H, name, own, l);
            }
            snprintf(name, sizeof name, "mlp.%s%s.weight", l > 0 ? "shared_experts." : "", parts[k]);
            snprintf(own, sizeof own, "ffn_%s%s.weight", gguf[k], l > 0 ? "_shexp" : "");
            add(m, k == 2 ? H : inner, k == 2 ? inner : H, name, own, l);
        }
    }
    if (f->more_layers)
        add(m, H, 0, "enorm.weight", "nextn.enorm.weight", LAYERS);
}

/* --- the forward, in double --------------------------------------------------------------------------------------- */

static const double *of_layer(const ck_model *m, int layer, const char *name)
{
    char format[96];
    snprintf(format, sizeof format, "model.layers.%%d.%s", name);
    return ck_values(m, format, layer);
}

static void norm(const double *x, const double *w, int n, double *y)
{
    double square = 0;
    int i;
    for (i = 0; i < n; i++)
        square += x[i] * x[i] / n;
    for (i = 0; i < n; i++)
        y[i] = x[i] / sqrt(square + 1e-5) * w[i];
}

/*  m of yarn: 0.1 mscale ln(factor) + 1. */
static double mscale_of(const latent_model *f, double mscale) { return 0.1 * mscale * log(f->yarn) + 1; }

/*  Rotates adjacent pairs. */
static void rotate(const latent_model *f, double *x, int position)
{
    const double factor = f->yarn > 0 ? mscale_of(f, f->mscale) / mscale_of(f, f->all) : 1;
    int i;
    for (i = 0; i < TURN / 2; i++) {
        double w = pow(10000, -2.0 * i / TURN), a = x[2 * i], b = x[2 * i + 1];
        /* of 8 elements and an original context of 24 the slope is from 0 to 1 */
        if (f->yarn > 0)
            w += (w / f->yarn - w) * fmin(i, 1);
        x[2 * i] = factor * (a * cos(position * w) - b * sin(position * w));
        x[2 * i + 1] = factor * (b * cos(position * w) + a * sin(position * w));
    }
}

static void attention(const latent_model *f, const ck_model *m, int l, const double *h, int seq, double *out)
{
    enum { MOST = LONG + 4 };
    static double q[MOST][HEADS * HEAD], k[MOST][HEADS * HEAD], v[MOST][HEADS * 16];
    double low[H * 4], latent[96], both[HEADS * 32], score[MOST], attended[HEADS * 16];
    const double mscale = f->yarn > 0 ? mscale_of(f, f->all) : 1, scale = mscale * mscale / sqrt(HEAD);
    int s, j, i, head;
    for (s = 0; s < seq; s++) {
        const double *x = h + s * H;
        if (f->q_rank) {
            ck_linear(low, of_layer(m, l, "self_attn.q_a_proj.weight"), NULL, x, f->q_rank, H);
            norm(low, of_layer(m, l, "self_attn.q_a_layernorm.weight"), f->q_rank, low);
            ck_linear(q[s], of_layer(m, l, "self_attn.q_b_proj.weight"), NULL, low, HEADS * HEAD, f->q_rank);
        } else {
            ck_linear(q[s], of_layer(m, l, "self_attn.q_proj.weight"), NULL, x, HEADS * HEAD, H);
        }
        ck_linear(latent, of_layer(m, l, "self_attn.kv_a_proj_with_mqa.weight"), NULL, x, f->latent + TURN, H);
        rotate(f, latent + f->latent, s);
        norm(latent, of_layer(m, l, "self_attn.kv_a_layernorm.weight"), f->latent, low);
        ck_linear(both, of_layer(m, l, "self_attn.kv_b_proj.weight"), NULL, low, HEADS * (PLAIN + f->value), f->latent);
        for (head = 0; head < HEADS; head++) {
            const double *of = both + head * (PLAIN + f->value);
            rotate(f, q[s] + head * HEAD + PLAIN, s);
            memcpy(k[s] + head * HEAD, of, PLAIN * sizeof *of);
            memcpy(k[s] + head * HEAD + PLAIN, latent + f->latent, TURN * sizeof *of);
            memcpy(v[s] + head * f->value, of + PLAIN, (size_t)f->value * sizeof *of);
        }
    }
    for (s = 0; s < seq; s++) {
        for (head = 0; head < HEADS; head++) {
            double most = -1e300, sum = 0;
            for (j = 0; j <= s; j++) {
                for (score[j] = 0, i = 0; i < HEAD; i++)
                    score[j] += q[s][head * HEAD + i] * k[j][head * HEAD + i] * scale;
                most = score[j] > most ? score[j] : most;
            }
            for (j = 0; j <= s; j++)
                sum += score[j] = exp(score[j] - most);
            for (i = 0; i < f->value; i++)
                for (attended[head * f->value + i] = 0, j = 0; j <= s; j++)
                    attended[head * f->value + i] += score[j] / sum * v[j][head * f->value + i];
        }
        ck_linear(out + s * H, of_layer(m, l, "self_attn.o_proj.weight"), NULL, attended, H, HEADS * f->value);
    }
}

/*  Adds `share` of a gated MLP. where: of its tensors, with a place for the name. */
static void gated(const ck_model *m, int l, const char *where, int inner, double share, const double *h, double *out)
{
    double gate[I], up[I], y[H];
    char name[64];
    int i;
    snprintf(name, sizeof name, where, "gate_proj");
    ck_linear(gate, of_layer(m, l, name), NULL, h, inner, H);
    snprintf(name, sizeof name, where, "up_proj");
    ck_linear(up, of_layer(m, l, name), NULL, h, inner, H);
    for (i = 0; i < inner; i++)
        gate[i] *= up[i] / (1 + exp(-gate[i]));
    snprintf(name, sizeof name, where, "down_proj");
    ck_linear(y, of_layer(m, l, name), NULL, gate, H, inner);
    for (i = 0; i < H; i++)
        out[i] += share * y[i];
}

/*  Leaves the groups that count most: of two experts each, by their sum (V3) or the better one (V2). */
static void leave_groups(const latent_model *f, double *choice)
{
    double counts[GROUPS];
    int g, k, above;
    for (g = 0; g < GROUPS; g++)
        counts[g] = f->sigmoid ? choice[2 * g] + choice[2 * g + 1] : fmax(choice[2 * g], choice[2 * g + 1]);
    for (g = 0; g < GROUPS; g++) {
        for (above = 0, k = 0; k < GROUPS; k++)
            above += counts[k] > counts[g];
        if (above >= USED)
            choice[2 * g] = choice[2 * g + 1] = -1e300;
    }
}

static void mixture(const latent_model *f, const ck_model *m, int l, const double *h, double *out)
{
    double scores[EXPERTS], choice[EXPERTS], all = 0, chosen = 0;
    const double *bias = of_layer(m, l, "mlp.gate.e_score_correction_bias");
    int e, slot, best[CHOSEN];
    char name[64];
    ck_linear(scores, of_layer(m, l, "mlp.gate.weight"), NULL, h, EXPERTS, H);
    for (e = 0; e < EXPERTS; e++)
        all += exp(scores[e]);
    for (e = 0; e < EXPERTS; e++) {
        scores[e] = f->sigmoid ? 1 / (1 + exp(-scores[e])) : exp(scores[e]) / all;
        choice[e] = scores[e] + (bias ? bias[e] : 0);
    }
    if (f->grouped)
        leave_groups(f, choice);
    for (slot = 0; slot < CHOSEN; slot++) {
        for (best[slot] = 0, e = 1; e < EXPERTS; e++)
            best[slot] = choice[e] > choice[best[slot]] ? e : best[slot];
        choice[best[slot]] = -2e300;
        chosen += scores[best[slot]];
    }
    for (slot = 0; slot < CHOSEN; slot++) {
        snprintf(name, sizeof name, "mlp.experts.%d.%%s.weight", best[slot]);
        gated(m, l, name, X, scores[best[slot]] * f->scale / (f->normalised ? chosen : 1), h, out);
    }
    gated(m, l, "mlp.shared_experts.%s.weight", SHARED * X, 1, h, out);
}

static void forward(const void *row, const ck_model *m, const int32_t *ids, int seq, double *logits)
{
    const latent_model *f = (const latent_model *)row;
    double *x = (double *)calloc((size_t)(seq * H), 8), *h = (double *)calloc((size_t)(seq * H), 8),
           *a = (double *)calloc((size_t)(seq * H), 8);
    int l, s, i;
    for (i = 0; i < seq * H; i++)
        x[i] = m->tensors[0].v[ids[i / H] * H + i % H];
    for (l = 0; l < LAYERS; l++) {
        for (s = 0; s < seq; s++)
            norm(x + s * H, of_layer(m, l, "input_layernorm.weight"), H, h + s * H);
        attention(f, m, l, h, seq, a);
        for (s = 0; s < seq; s++) {
            for (i = 0; i < H; i++)
                x[s * H + i] += a[s * H + i];
            norm(x + s * H, of_layer(m, l, "post_attention_layernorm.weight"), H, h);
            if (l > 0)
                mixture(f, m, l, h, x + s * H);
            else
                gated(m, l, "mlp.%s.weight", I, 1, h, x + s * H);
        }
    }
    for (s = 0; s < seq; s++) {
        norm(x + s * H, m->tensors[1].v, H, h);
        ck_linear(logits + s * V, m->tensors[2].v, NULL, h, V, H);
    }
    free(x), free(h), free(a);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/*  change: entries ahead of the others; the first of two with one name does not count. */
static void write_config(const latent_model *f, const char *change, const char *more)
{
    char text[2048], yarn[256] = "";
    if (f->yarn > 0)
        snprintf(yarn, sizeof yarn,
                 "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": %g, \"original_max_position_embeddings\": %d, "
                 "\"beta_fast\": 32, \"beta_slow\": 1, \"mscale\": %g, \"mscale_all_dim\": %g}, ",
                 f->yarn, ORIGINAL, f->mscale, f->all);
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", %s\"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
             "\"num_key_value_heads\": %d, \"intermediate_size\": %d, \"moe_intermediate_size\": %d, "
             "\"vocab_size\": %d, \"max_position_embeddings\": %d, \"kv_lora_rank\": %d, \"qk_nope_head_dim\": %d, "
             "\"qk_rope_head_dim\": %d, \"v_head_dim\": %d, \"n_routed_experts\": %d, \"num_experts_per_tok\": %d, "
             "\"n_shared_experts\": %d, \"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, \"rms_norm_eps\": 1e-05, "
             "\"rope_theta\": 10000, \"tie_word_embeddings\": false, \"aux_loss_alpha\": 0.001, %s%s%s}",
             f->model_type, change, H, LAYERS, HEADS, HEADS, I, X, V, CONTEXT, f->latent, PLAIN, TURN, f->value,
             EXPERTS, CHOSEN, SHARED, yarn, f->json, more);
    ck_write_text(test_path("f"), "config.json", text);
}

static void write_folder(const latent_model *f, const ck_model *m, ignis_dtype dtype)
{
    char path[256];
    test_remove_folder(test_path("f"));
    CHECK_INT(ignis__folder_make_all(test_path("f")), true);
    write_config(f, "", "");
    snprintf(path, sizeof path, "%s/model.safetensors", test_path("f"));
    ck_write_safetensors(m, path, dtype, 0, 1);
}

/*  Begins a tensor of a GGUF file in its list; dims are in the order of the file. */
static void begin_tensor(ck_bytes *list, ck_bytes *data, const char *name, int ndim, const int *dims)
{
    int i;
    while (data->size % 32)
        ck_put(data, "", 1);
    ck_text(list, name), ck_u32(list, (uint32_t)ndim);
    for (i = 0; i < ndim; i++)
        ck_u64(list, (uint64_t)dims[i]);
    ck_u32(list, 0), ck_u64(list, data->size);
}

/*  Puts the halves of kv_b as newer converters do: of keys with rows and columns exchanged. */
static void put_halves(const latent_model *f, const ck_tensor *t, ck_bytes *list, ck_bytes *data)
{
    const int k_dims[] = {PLAIN, f->latent, HEADS}, v_dims[] = {f->latent, f->value, HEADS}, width = PLAIN + f->value;
    char name[64];
    int head, c, r, layer = atoi(t->gguf + 4);
    snprintf(name, sizeof name, "blk.%d.attn_k_b.weight", layer);
    begin_tensor(list, data, name, 3, k_dims);
    for (head = 0; head < HEADS; head++)
        for (c = 0; c < f->latent; c++)
            for (r = 0; r < PLAIN; r++)
                ck_f32(data, (float)t->v[(head * width + r) * f->latent + c]);
    snprintf(name, sizeof name, "blk.%d.attn_v_b.weight", layer);
    begin_tensor(list, data, name, 3, v_dims);
    for (head = 0; head < HEADS; head++)
        for (r = 0; r < f->value; r++)
            for (c = 0; c < f->latent; c++)
                ck_f32(data, (float)t->v[(head * width + PLAIN + r) * f->latent + c]);
}

/*  key, value: a number that replaces that of the key, or is added. */
static void write_gguf(const latent_model *f, const ck_model *m, const char *key, int value)
{
    static const char a[] = "deepseek2";
    struct {
        const char *name;
        int value;
    } numbers[] = {{"block_count", LAYERS},
                   {"embedding_length", H},
                   {"feed_forward_length", I},
                   {"expert_feed_forward_length", X},
                   {"context_length", CONTEXT},
                   {"attention.head_count", HEADS},
                   {"attention.head_count_kv", f->halves ? 1 : HEADS},
                   {"attention.key_length", f->halves ? f->latent + TURN : HEAD},
                   {"attention.value_length", f->halves ? f->latent : f->value},
                   {"attention.kv_lora_rank", f->latent},
                   {"rope.dimension_count", TURN},
                   {"expert_count", EXPERTS},
                   {"expert_used_count", CHOSEN},
                   {"expert_shared_count", SHARED},
                   {"expert_gating_func", f->sigmoid ? 2 : 1},
                   {"expert_group_count", f->grouped ? GROUPS : 1},
                   {"expert_group_used_count", f->grouped ? USED : 1},
                   {"leading_dense_block_count", 1},
                   {"rope.scaling.original_context_length", ORIGINAL},
                   {"attention.q_lora_rank", f->q_rank},
                   {"attention.key_length_mla", f->halves ? HEAD : 0},
                   {"attention.value_length_mla", f->halves ? f->value : 0}};
    ck_bytes head = {0}, list = {0}, data = {0}, keys = {0};
    uint32_t count = 1, tensors = 0;
    int i, k, e;
    for (i = 0; i < COUNT_OF(numbers); i++) {
        const int number = key && strcmp(key, numbers[i].name) == 0 ? value : numbers[i].value;
        if (number)
            ck_key_u32(&keys, a, numbers[i].name, number), count++;
    }
    ck_key_f32(&keys, a, "attention.layer_norm_rms_epsilon", 1e-5), count++;
    ck_key_f32(&keys, a, "rope.freq_base", 10000), count++;
    ck_key_f32(&keys, a, "expert_weights_scale", f->scale), count++;
    if (f->yarn > 0) {
        const char type[] = "deepseek2.rope.scaling.type";
        ck_text(&keys, type), ck_u32(&keys, 8), ck_text(&keys, "yarn"), count++;
        ck_key_f32(&keys, a, "rope.scaling.factor", f->yarn), count++;
        ck_key_f32(&keys, a, "rope.scaling.yarn_log_multiplier", 0.1 * f->all), count++;
    }
    if (f->normalised) {
        const char truth = 1;
        ck_text(&keys, "deepseek2.expert_weights_norm"), ck_u32(&keys, 7), ck_put(&keys, &truth, 1), count++;
    }
    for (i = 0; i < m->count; i++) {
        const ck_tensor *t = &m->tensors[i];
        const bool experts = strstr(t->gguf, "_exps.");
        const int dims[] = {t->columns ? t->columns : t->rows, t->rows, EXPERTS};
        if (strstr(t->gguf, "nextn")) /* converters leave those layers out */
            continue;
        if (f->halves && strstr(t->gguf, "attn_kv_b")) {
            put_halves(f, t, &list, &data);
            tensors += 2;
            continue;
        }
        begin_tensor(&list, &data, t->gguf, experts ? 3 : t->columns ? 2 : 1, dims);
        for (e = 0; e < (experts ? EXPERTS : 1); e++)
            for (k = 0; k < t->rows * (t->columns ? t->columns : 1); k++)
                ck_f32(&data, (float)t[e].v[k]);
        i += experts ? EXPERTS - 1 : 0;
        tensors++;
    }
    ck_put(&head, "GGUF", 4), ck_u32(&head, 3), ck_u64(&head, tensors), ck_u64(&head, count);
    ck_text(&head, "general.architecture"), ck_u32(&head, 8), ck_text(&head, a);
    ck_put(&head, keys.data, keys.size);
    ck_put(&head, list.data, list.size);
    while (head.size % 32)
        ck_put(&head, "", 1);
    ck_put(&head, data.data, data.size);
    test_write_file(test_path("m.gguf"), head.data, head.size);
    free(head.data), free(list.data), free(data.data), free(keys.data);
}

/* --- comparisons -------------------------------------------------------------------------------------------------- */

static ignis_model open_model(const char *path, ignis_dtype dtype, ignis_weights weights)
{
    ignis_model_desc desc;
    ignis_model model;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.dtype = dtype;
    desc.weights = weights;
    desc.sequences = 3;
    model = ignis_model_open(&desc);
    if (!model.id)
        test__fail(__FILE__, __LINE__, ignis_status_message());
    return model;
}

static own_forward own_of(const latent_model *f, ck_model *m)
{
    const own_forward own = {f->model_type, f, m, forward};
    return own;
}

/*  Gives tensors the values that a model has: those of its blocks. */
static void take_values(ck_model *m, ignis_model model)
{
    int i;
    for (i = 0; i < m->count; i++) {
        const ck_tensor *t = &m->tensors[i];
        const int64_t count = (int64_t)t->rows * (t->columns ? t->columns : 1);
        ignis_scope scope = ignis_scope_begin();
        if (!strstr(t->name, "enorm"))
            CHECK_OK(ignis_tensor_to_host(ignis_model_tensor(model, t->name), t->v, IGNIS_F64, count));
        CHECK_OK(ignis_scope_end(scope));
    }
}

TEST(folders_agree_with_a_forward_in_double)
{
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(models); i++) {
        ignis_model_info info;
        ignis_model model;
        ck_model m;
        make_tensors(&models[i], &m);
        write_folder(&models[i], &m, IGNIS_F32);
        model = open_model(test_path("f"), IGNIS_F32, IGNIS_WEIGHTS_DEFAULT);
        check_whole(own_of(&models[i], &m), model, SEQ, SEQ, 1e-5); /* sums of f32 */
        check_sequences(own_of(&models[i], &m), model, LONG, 1e-5);
        if (i == 0)
            check_saved_and_polled(model, (int32_t[LONG]){1, 2, 3, 2, 1}, LONG, V);
        check_tensors(own_of(&models[i], &m), model, SEQ);
        CHECK_OK(ignis_model_query(model, &info)); /* one row a token, for all heads */
        CHECK_INT(info.cache_bytes_of_token, LAYERS * (models[i].latent + TURN) * 4);
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

TEST(gguf_files_agree_with_a_forward_in_double)
{
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(models); i++) {
        latent_model f = models[i];
        ignis_model_info info;
        ignis_model model;
        ck_model m;
        f.mscale = f.all; /* GGUF files do not tell them apart */
        make_tensors(&models[i], &m);
        write_gguf(&f, &m, NULL, 0);
        model = open_model(test_path("m.gguf"), IGNIS_F32, IGNIS_WEIGHTS_DEFAULT);
        check_whole(own_of(&f, &m), model, SEQ, SEQ, 1e-5);
        check_sequences(own_of(&f, &m), model, LONG, 1e-5);
        CHECK_OK(ignis_model_query(model, &info));
        CHECK_INT(info.family, f.sigmoid ? IGNIS_MODEL_DEEPSEEK_V3 : IGNIS_MODEL_DEEPSEEK_V2);
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

/*  In bf16, as numbers and with products as Q8_0, and in f64. */
TEST(other_dtypes_agree_with_a_forward_in_double)
{
    static const struct {
        int model;
        ignis_dtype dtype;
        ignis_weights weights;
        double tolerance;
    } cases[] = {{V2_LITE, IGNIS_F16, IGNIS_WEIGHTS_DEFAULT, 5e-3}, /* 11 bits, over 3 layers */
                 {V3, IGNIS_BF16, IGNIS_WEIGHTS_DEFAULT, 4e-2},     /* 8 bits */
                 {V3, IGNIS_BF16, IGNIS_WEIGHTS_Q8_0, 4e-2},
                 {V3, IGNIS_F32, IGNIS_WEIGHTS_Q8_0, 1e-5},
                 {V2, IGNIS_F64, IGNIS_WEIGHTS_DEFAULT, 1e-6}};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        const latent_model *f = &models[cases[i].model];
        ignis_model model;
        ck_model m;
        make_tensors(f, &m);
        if (cases[i].dtype == IGNIS_F16 || cases[i].dtype == IGNIS_BF16)
            ck_round_all(&m, cases[i].dtype);
        write_folder(f, &m, IGNIS_F32);
        model = open_model(test_path("f"), cases[i].dtype, cases[i].weights);
        if (cases[i].weights)
            take_values(&m, model);
        check_sequences(own_of(f, &m), model, LONG, cases[i].tolerance);
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

/*  Checks that a description is refused before memory is taken. */
static void refuse(const char *path, ignis_status status, const char *message)
{
    ignis_model_desc desc;
    ignis_model_info info;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    CHECK_INT(ignis_model_inspect(&desc, &info), status);
    CHECK_HAS(ignis_status_message(), message);
    ignis_status_clear();
    CHECK_INT(memory().live_bytes, 0);
}

TEST(folders_that_contradict_themselves_are_refused)
{
    static const struct {
        int model;
        const char *more, *message;
        ignis_status status;
    } cases[] = {
        {V3, "\"kv_lora_rank\": 80", "self_attn.kv_a_proj_with_mqa.weight' of", IGNIS_ERROR_FORMAT},
        {V3, "\"q_lora_rank\": 24", "is [32, 32]; its description makes it [24, 32]", IGNIS_ERROR_FORMAT},
        {V3, "\"q_lora_rank\": null", "has no tensor 'model.layers.0.self_attn.q_proj.weight', [72, 32]",
         IGNIS_ERROR_FORMAT},
        {V2_LITE, "\"q_lora_rank\": 32", "has no tensor 'model.layers.0.self_attn.q_a_proj.weight', [32, 32]",
         IGNIS_ERROR_FORMAT},
        {V3, "\"qk_rope_head_dim\": 7", "7 elements of heads of 23 rotate, 16 do not", IGNIS_ERROR_FORMAT},
        {V3, "\"qk_head_dim\": 20", "8 elements of heads of 20 rotate, 16 do not", IGNIS_ERROR_FORMAT},
        {V3, "\"v_head_dim\": null", "and heads of values have 0", IGNIS_ERROR_FORMAT},
        {V3, "\"v_head_dim\": 8", "is [96, 72]; its description makes it [72, 72]", IGNIS_ERROR_FORMAT},
        {V3, "\"v_head_dim\": 32", "heads of 'TEST' have 24 elements, those of values 32", IGNIS_ERROR_UNSUPPORTED},
        {V3, "\"qk_nope_head_dim\": 256", "have 264 elements, those of values 16; up to 256", IGNIS_ERROR_UNSUPPORTED},
        {V3, "\"kv_lora_rank\": null", "has no kv_lora_rank", IGNIS_ERROR_FORMAT},
        {V3, "\"qk_rope_head_dim\": null", "has no qk_rope_head_dim", IGNIS_ERROR_FORMAT},
        {V3, "\"topk_group\": 1", "6 experts are in 3 groups, and a token has 3 experts of 1 groups",
         IGNIS_ERROR_FORMAT},
        {V3, "\"topk_method\": \"greedy\"", "has topk_method 'greedy', which Ignis cannot do", IGNIS_ERROR_UNSUPPORTED},
        {V3, "\"scoring_func\": \"softmax\"", "has scoring_func 'softmax'", IGNIS_ERROR_UNSUPPORTED},
        {V3, "\"rope_interleave\": false", "has rope_interleave false", IGNIS_ERROR_UNSUPPORTED},
        {V2, "\"norm_topk_prob\": true", "has norm_topk_prob true", IGNIS_ERROR_UNSUPPORTED},
        {V2, "\"moe_layer_freq\": 2", "has moe_layer_freq 2", IGNIS_ERROR_UNSUPPORTED},
        {V2, "\"index_topk\": 2048", "has 'index_topk' 2048, an entry that the table of deepseek_v2",
         IGNIS_ERROR_UNSUPPORTED},
    };
    ck_model m;
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        const latent_model *f = &models[cases[i].model];
        char more[128], message[160];
        const char *place = strstr(cases[i].message, "TEST");
        make_tensors(f, &m);
        write_folder(f, &m, IGNIS_F32);
        snprintf(more, sizeof more, ", %s", cases[i].more);
        write_config(f, "", more);
        snprintf(message, sizeof message, "%.*s%s%s",
                 (int)(place ? place - cases[i].message : (int)strlen(cases[i].message)), cases[i].message,
                 place ? test_path("f") : "", place ? place + 4 : "");
        refuse(test_path("f"), cases[i].status, message);
        ck_free(&m);
    }
}

TEST(gguf_files_that_contradict_themselves_are_refused)
{
    static const struct {
        int model;
        const char *key;
        int value;
        const char *message;
        ignis_status status;
    } cases[] = {
        {V3, "attention.key_length", 88, "keys of the cache have 88 elements, latents 72, and 8 rotate",
         IGNIS_ERROR_FORMAT},
        {V3, "attention.key_length_mla", 32, "tensor 'blk.0.attn_q_b.weight' of", IGNIS_ERROR_FORMAT},
        {V3, "attention.value_length_mla", 8, "tensor 'blk.0.attn_v_b.weight' of", IGNIS_ERROR_FORMAT},
        {V3, "attention.kv_lora_rank", 64, "keys of the cache have 80 elements", IGNIS_ERROR_FORMAT},
        {V2, "attention.kv_lora_rank", 32, "tensor 'blk.0.attn_kv_a_mqa.weight' of", IGNIS_ERROR_FORMAT},
        {V2, "attention.key_length", 0, "8 elements of heads of 0 rotate", IGNIS_ERROR_FORMAT},
        {V2, "expert_gating_func", 2, "has no tensor 'blk.1.exp_probs_b.bias', [6]", IGNIS_ERROR_FORMAT},
        {V3, "expert_gating_func", 3, "expert_gating_func 3, not 1", IGNIS_ERROR_UNSUPPORTED},
        {V3, "rope.dimension_count", 6, "keys of the cache have 80 elements, latents 72, and 6 rotate",
         IGNIS_ERROR_FORMAT},
    };
    latent_model f = models[V2];
    ck_model m;
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        make_tensors(&models[cases[i].model], &m);
        write_gguf(&models[cases[i].model], &m, cases[i].key, cases[i].value);
        refuse(test_path("m.gguf"), cases[i].status, cases[i].message);
        ck_free(&m);
    }
    make_tensors(&models[V2], &m); /* neither kv_b nor its halves */
    for (i = 0; !strstr(m.tensors[i].gguf, "attn_kv_b");)
        i++;
    snprintf(m.tensors[i].gguf, sizeof m.tensors[i].gguf, "blk.0.attn_k_v.weight");
    write_gguf(&f, &m, NULL, 0);
    refuse(test_path("m.gguf"), IGNIS_ERROR_FORMAT, "has no tensor 'blk.0.attn_k_b.weight', [3, 24, 16]");
    ck_free(&m);
}

/*  What only other families support is refused by name. */
TEST(ranks_and_adapters_of_kv_b_are_refused)
{
    static const char *const targets[] = {"kv_b_proj"};
    ignis_lora_desc lora;
    ignis_model_desc desc;
    ignis_model_info info;
    ignis_model model;
    ck_model m;
    SETUP(NULL);
    make_tensors(&models[V3], &m);
    write_folder(&models[V3], &m, IGNIS_F32);
    memset(&desc, 0, sizeof desc);
    memset(&lora, 0, sizeof lora);
    desc.path = test_path("f");
    desc.parallel.size = 2;
    CHECK_INT(ignis_model_inspect(&desc, &info), IGNIS_ERROR_UNSUPPORTED);
    CHECK_HAS(ignis_status_message(), "a model of deepseek_v3 cannot be shared by 2 ranks");
    ignis_status_clear();
    model = open_model(test_path("f"), IGNIS_F32, IGNIS_WEIGHTS_DEFAULT);
    lora.targets = targets;
    lora.target_count = 1;
    CHECK(!ignis_lora_create(model, &lora).id);
    CHECK_HAS(ignis_status_message(), "'kv_b_proj', which is no product of the model, deepseek_v3 of 3 layers");
    ignis_status_clear();
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

/*  A whole text, and sequences, are computed with adapters as with weights that have them merged. */
TEST(adapters_have_the_values_of_merged_weights)
{
    static const char *const all[] = {"all-linear"}, *const of_sequences[] = {"q_a_proj", "kv_a_proj_with_mqa",
                                                                              "o_proj", "down_proj"};
    static double wanted[LONG * V];
    const latent_model *f = &models[V3];
    float scores[SEQ * V], steps[V], chunk[V];
    int32_t ids[LONG];
    ignis_tensor_desc desc = tensor_desc(IGNIS_I32, false);
    ignis_sequence sequence;
    ignis_scope scope;
    ignis_model model;
    ignis_lora lora;
    ck_model m;
    SETUP(NULL);
    make_tensors(f, &m);
    write_folder(f, &m, IGNIS_F32);
    model = open_model(test_path("f"), IGNIS_F32, IGNIS_WEIGHTS_DEFAULT);
    ids_of(ids, LONG, V);
    lora = make_adapters(model, all, 1, LAYERS * 7);
    CHECK_OK(ignis_model_set_lora(model, lora));
    scope = ignis_scope_begin();
    CHECK_OK(ignis_tensor_to_host(ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(SEQ), &desc)),
                                  scores, IGNIS_F32, SEQ * V));
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_model_set_lora(model, (ignis_lora){0}));
    sequence = ignis_sequence_begin(model);
    CHECK_INT(ignis_sequence_set_lora(sequence, lora), IGNIS_ERROR_UNSUPPORTED);
    CHECK_HAS(ignis_status_message(), "sequences do not support an adapter beside model.layers.0.self_attn.q_b_proj");
    ignis_status_clear();
    CHECK_OK(ignis_lora_merge(lora));
    CHECK_OK(ignis_lora_free(lora));
    take_values(&m, model);
    forward(f, &m, ids, SEQ, wanted);
    check_own(own_of(f, &m), "text with adapters", scores, wanted, SEQ * V, 1e-5); /* sums of f32 */
    lora = make_adapters(model, of_sequences, COUNT_OF(of_sequences), LAYERS * COUNT_OF(of_sequences));
    CHECK_OK(ignis_sequence_set_lora(sequence, lora));
    CHECK_OK(ignis_sequence_feed(sequence, ids, 9));
    CHECK_OK(ignis_sequence_logits(sequence, steps, V));
    CHECK_OK(ignis_sequence_truncate(sequence, 0));
    CHECK_OK(ignis_sequence_feed(sequence, ids, LONG));
    CHECK_OK(ignis_sequence_logits(sequence, chunk, V));
    CHECK_OK(ignis_sequence_free(sequence));
    CHECK_OK(ignis_lora_merge(lora));
    CHECK_OK(ignis_lora_free(lora));
    take_values(&m, model);
    forward(f, &m, ids, LONG, wanted);
    check_own(own_of(f, &m), "steps with adapters", steps, wanted + 8 * V, V, 1e-5);
    check_own(own_of(f, &m), "chunk with adapters", chunk, wanted + (LONG - 1) * V, V, 1e-5);
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

/* --- failures ----------------------------------------------------------------------------------------------------- */

static void check_faults(const char *prefix, int stride)
{
    ck_model m;
    make_tensors(&models[V3], &m);
    write_folder(&models[V3], &m, IGNIS_F32);
    ck_free(&m);
    check_sequence_faults(test_path("f"), prefix, stride, V);
}

TEST(each_host_allocation_fails_once) { check_faults(NULL, 13); }
TEST(each_allocation_fails_once) { check_faults("cuMemAlloc", 19); }

int main(int argc, char **argv) { return test_run(argc, argv); }
