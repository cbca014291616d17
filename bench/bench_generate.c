// SPDX-License-Identifier: MIT
/*  bench_generate.c - tokens a second of models with random weights of true shapes, behind 512 tokens, and the time to
    the first one

    Writes each model as a folder that transformers opens, too: peer_generate.py measures the same. The first share is
    that of 4.25 TB/s: the bytes of all weights that a step multiplies with, and of the keys and values that it reads,
    each once. The second one is that of 700 TFLOP/s, which large products of bf16 reach on an H200: two operations for
    each weight and sequence. Every figure is a median, taken warm.

        cc -O2 -I. bench/bench_generate.c -o bench_generate -lm -ldl -lpthread
        ./bench_generate [OPTION=VALUE ...] [llama-135m] [gpt2] [qwen3-0.6b] [llama-1b] [llama-8b]

    - folder=PATH (/dev/shm): where models are written, and stay; llama-8b takes 16 GB.
    - batch=1,8,64: sequences of a step.
    - dtype=f32: another type of the weights.
    - weights=q4_0,q8_0,q4_k,q6_k,q5_0,iq4_xs,mxfp4: those of a GGUF file whose matrices are random blocks. weights=f8:
      the model's, quantised as it is opened; also mixtures of experts.
    - activations: with weights=f8, sequences multiply activations of e4m3.
    - cache=f8,q8_0,q4_0: keys and values of these types, after those of numbers, with the error of logits beside.
    - before=8064: tokens before the steps, instead of 512.
    - adapters=8 rank=16: sequences have adapters (LoRA) of all products, one of 8 sets after the other.
    - long=2048: the time to the first token behind 2048 tokens, too.
    - offline=1000: in place of all that, the tokens a second of 1000 texts, as a program computes them that has all
      prompts at its beginning: prompts of 500 to 1,500 tokens, 500 tokens each, as many texts at a time as batch= says
      last. A text that ends makes room for the next prompt, which is computed between two steps.
    - speculate=7 draft=llama-1b: in place of all that, ignis_generate without drafts, with drafts from the text, and
      from the model draft=; whether all bits are equal. The weights make a text that repeats itself. `in part`: with a
      temperature at which about a fifth of the tokens leaves it.
    - drawn: ignis_generate with ways of sampling, and with a grammar, for which the vocabulary has made up words.
    - start: the time from a program's start to its first token behind 16, with kernels compiled before.
    - plain: no kernel begins before those ahead of it have ended.
    - trace=PATH: a profile of some steps of each number of sequences, PATH/MODEL-SEQUENCES.json, and of a prompt.

    Mixtures of experts are measured if they are named: gpt-oss-20b, with experts in MXFP4, qwen3-30b-a3b, which takes
    61 GB, deepseek-v2-lite, with latent attention, which takes 31 GB, and qwen3-next, 12 of the 48 layers of
    Qwen3-Next-80B-A3B, which takes 41 GB. Of their experts a share counts those that the tokens of a step choose on
    average: choices are random. Of recurrent layers it counts the state that a step reads, and the one that it writes.

    On several GPUs each has its part of the model: sh examples/launch.sh 2 ./bench_generate llama-8b. Weights, and
    shares, are those of one then.
*/
#define _GNU_SOURCE
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"
#include "ignis_models.h"

#include "timing.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PROMPT = 512, LONG_PROMPT = 8192, STEPS = 48, ROUNDS = 5, MOST = 512, BLOCK = 1 << 22 };

static int adapter_count, adapter_rank = 16, long_prompt, before, offline;
static const char *const cache_names[] = {"numbers", "f8", "q8_0", "q4_0"};
static int cache_type; /* a number of ignis_cache_type */
static bool rounds_activations;
static ignis_lora adapters[MOST];

typedef struct shape {
    const char *name;
    int layers, hidden, heads, kv_heads, head_dim, inner, vocab;
    bool is_gpt2, tied, normed; /* normed: heads of q and k have norms */
    int experts, chosen;        /* 0: none; else `inner` is of an expert */
    bool is_oss;
    int latent, shared, dense; /* latent: of DeepSeek-V2's attention, or 0; shared: experts of all tokens; dense: the
                                  inner size of the first layer, which has no experts */
    bool repeats;              /* made by open_repeating */
    /* three layers of four are gated DeltaNets, attention has gates, and an expert is for all tokens: heads of keys and
       of values, elements of each; 0: none */
    int delta_heads, delta_v_heads, delta_dim;
} shape;
enum { DELTA_WINDOW = 4 };

static const shape shapes[] = {
    {"llama-135m", 30, 576, 9, 3, 64, 1536, 49152, false, true, false},
    {"gpt2", 12, 768, 12, 12, 64, 3072, 50257, true, true, false},
    {"qwen3-0.6b", 28, 1024, 16, 8, 128, 3072, 151936, false, true, true},
    {"llama-1b", 16, 2048, 32, 8, 64, 8192, 128256, false, true, false},
    {"llama-8b", 32, 4096, 32, 8, 128, 14336, 128256, false, false, false},
    {"gpt-oss-20b", 24, 2880, 64, 8, 64, 2880, 201088, false, false, false, 32, 4, true},
    {"qwen3-30b-a3b", 48, 2048, 32, 4, 128, 768, 151936, false, false, true, 128, 8},
    {"deepseek-v2-lite", 27, 2048, 16, 16, 128, 1408, 102400, false, false, false, 64, 6, false, 512, 2, 10944},
    {"qwen3-next", 12, 2048, 16, 2, 256, 512, 151936, false, false, true, 512, 10, false, 0, 0, 0, false, 16, 32, 128},
};
static const shape small = {"tiny", 2, 64, 2, 1, 32, 128, 256, false, true, true}, /* for the simulator */
    small_mixtures[] = {
        {"gpt-oss-20b", 2, 64, 4, 2, 16, 32, 256, false, false, false, 4, 2, true},
        {"qwen3-30b-a3b", 2, 64, 4, 2, 16, 32, 256, false, false, true, 8, 2},
        {"deepseek-v2-lite", 2, 64, 4, 4, 16, 32, 256, false, false, false, 8, 2, false, 32, 2, 96},
        {"qwen3-next", 4, 64, 4, 2, 16, 32, 256, false, false, true, 8, 2, false, 0, 0, 0, false, 2, 4, 16}};

/* the folder ------------------------------------------------------------------------------------------------------- */

static uint16_t block[BLOCK]; /* noise of standard deviation 0.02, as bf16: tensors are cut out of its repetitions */

static void make_block(void)
{
    uint64_t state = 88172645463325252u;
    int i;
    for (i = 0; i < BLOCK; i++) {
        float value;
        uint32_t bits;
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        value = ((float)(state >> 40) / 16777216.0f - 0.5f) * 0.0692820f;
        memcpy(&bits, &value, 4);
        block[i] = (uint16_t)((bits + 0x8000) >> 16);
    }
}

/*  Besides 0 and 1, and -1 for noise: 2^-10; noise whose rows begin at the block's; the same rows, each one the next
    row of REPEATED. */
enum { PUT_LITTLE = 2, PUT_SAME = -2, PUT_NEXT = -3, REPEATED = 64 };

/*  Writes a header's line, or, with no header, the tensor's values. */
static void put(FILE *file, bool header, int64_t *at, const char *name, int layer, int rows, int columns, int value)
{
    int64_t count = (int64_t)rows * (columns ? columns : 1), left = count, some;
    if (header) {
        char full[96];
        snprintf(full, sizeof full, name, layer);
        fprintf(file, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%d%s", *at ? "," : "{", full, rows,
                strstr(name, "conv1d") ? ",1" : "");
        if (columns)
            fprintf(file, ",%d", columns);
        fprintf(file, "],\"data_offsets\":[%lld,%lld]}", (long long)*at, (long long)(*at + 2 * count));
    } else if (value == PUT_NEXT || value == PUT_SAME) {
        int i;
        for (i = 0; i < rows; i++) {
            const int64_t row = value == PUT_NEXT ? (i + 1) % REPEATED : i;
            fwrite(block + row % (BLOCK / columns) * columns, 2, (size_t)columns, file);
        }
    } else if (value >= 0) {
        uint16_t number = value == PUT_LITTLE ? 0x3a80 : value ? 0x3f80 : 0;
        while (left-- > 0)
            fwrite(&number, 2, 1, file);
    } else {
        for (; left > 0; left -= some) {
            int64_t from = (*at / 2 + count - left) % BLOCK;
            some = BLOCK - from < left ? BLOCK - from : left;
            fwrite(block + from, 2, (size_t)some, file);
        }
    }
    *at += 2 * count;
}

/*  As put, for matrices of experts in MXFP4: blocks of 16 bytes, then a scale for each, a power of two. */
static void put_mxfp4(FILE *file, bool header, int64_t *at, const char *name, int layer, int experts, int rows,
                      int columns)
{
    static const char *const parts[] = {"blocks", "scales"};
    int64_t blocks = (int64_t)experts * rows * columns / 32, i;
    int part;
    for (part = 0; part < 2; part++) {
        const int64_t bytes = part ? blocks : 16 * blocks;
        if (header) {
            char full[96];
            snprintf(full, sizeof full, name, layer);
            fprintf(file, "%s\"%s_%s\":{\"dtype\":\"U8\",\"shape\":[%d,%d,%d%s],\"data_offsets\":[%lld,%lld]}",
                    *at ? "," : "{", full, parts[part], experts, rows, columns / 32, part ? "" : ",16", (long long)*at,
                    (long long)(*at + bytes));
        } else if (part) {
            for (i = 0; i < bytes; i++)
                fputc(119 + (int)(i % 3), file);
        } else {
            for (i = 0; i < bytes; i += 16)
                fwrite(block + (*at + i) % (BLOCK - 16), 1, 16, file);
        }
        *at += bytes;
    }
}

/*  Writes the router and the experts of a layer. */
static void put_experts(const shape *s, FILE *file, bool header, int64_t *at, int l)
{
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    char name[96];
    int e, i, h = s->hidden;
    if (s->is_oss) {
        put(file, header, at, "model.layers.%d.mlp.router.weight", l, s->experts, h, -1);
        put(file, header, at, "model.layers.%d.mlp.router.bias", l, s->experts, 0, -1);
        put_mxfp4(file, header, at, "model.layers.%d.mlp.experts.gate_up_proj", l, s->experts, 2 * s->inner, h);
        put(file, header, at, "model.layers.%d.mlp.experts.gate_up_proj_bias", l, s->experts, 2 * s->inner, -1);
        put_mxfp4(file, header, at, "model.layers.%d.mlp.experts.down_proj", l, s->experts, h, s->inner);
        put(file, header, at, "model.layers.%d.mlp.experts.down_proj_bias", l, s->experts, h, -1);
        return;
    }
    put(file, header, at, "model.layers.%d.mlp.gate.weight", l, s->experts, h, -1);
    for (e = 0; e < s->experts; e++)
        for (i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "model.layers.%%d.mlp.experts.%d.%s.weight", e, names[i]);
            put(file, header, at, name, l, i == 2 ? h : s->inner, i == 2 ? s->inner : h, -1);
        }
}

/*  Writes latent attention of a layer: q without a low rank, and half as many elements that rotate as that do not. */
static void put_latent(const shape *s, FILE *file, bool header, int64_t *at, int l)
{
    const int h = s->hidden, d = s->head_dim;
    put(file, header, at, "model.layers.%d.self_attn.q_proj.weight", l, s->heads * (d + d / 2), h, -1);
    put(file, header, at, "model.layers.%d.self_attn.kv_a_proj_with_mqa.weight", l, s->latent + d / 2, h, -1);
    put(file, header, at, "model.layers.%d.self_attn.kv_a_layernorm.weight", l, s->latent, 0, 1);
    put(file, header, at, "model.layers.%d.self_attn.kv_b_proj.weight", l, s->heads * 2 * d, s->latent, -1);
    put(file, header, at, "model.layers.%d.self_attn.o_proj.weight", l, h, s->heads * d, -1);
}

/*  Writes a gated layer. where: its name. */
static void put_gated(FILE *file, bool header, int64_t *at, const char *where, int l, int inner, int h)
{
    char name[96];
    snprintf(name, sizeof name, "model.layers.%%d.%s.gate_proj.weight", where);
    put(file, header, at, name, l, inner, h, -1);
    snprintf(name, sizeof name, "model.layers.%%d.%s.up_proj.weight", where);
    put(file, header, at, name, l, inner, h, -1);
    snprintf(name, sizeof name, "model.layers.%%d.%s.down_proj.weight", where);
    put(file, header, at, name, l, h, inner, -1);
}

/*  Writes what a layer of Qwen3-Next has besides its router and experts. Norms multiply by 1 + w. */
static void put_next(const shape *s, FILE *file, bool header, int64_t *at, int l)
{
    const int h = s->hidden, q = s->heads * s->head_dim, k = s->kv_heads * s->head_dim,
              keys = s->delta_heads * s->delta_dim, width = s->delta_v_heads * s->delta_dim;
    put(file, header, at, "model.layers.%d.input_layernorm.weight", l, h, 0, 0);
    put(file, header, at, "model.layers.%d.post_attention_layernorm.weight", l, h, 0, 0);
    put_gated(file, header, at, "mlp.shared_expert", l, s->inner, h);
    put(file, header, at, "model.layers.%d.mlp.shared_expert_gate.weight", l, 1, h, -1);
    if (l % 4 == 3) {
        put(file, header, at, "model.layers.%d.self_attn.q_proj.weight", l, 2 * q, h, -1);
        put(file, header, at, "model.layers.%d.self_attn.k_proj.weight", l, k, h, -1);
        put(file, header, at, "model.layers.%d.self_attn.v_proj.weight", l, k, h, -1);
        put(file, header, at, "model.layers.%d.self_attn.o_proj.weight", l, h, q, -1);
        put(file, header, at, "model.layers.%d.self_attn.q_norm.weight", l, s->head_dim, 0, 0);
        put(file, header, at, "model.layers.%d.self_attn.k_norm.weight", l, s->head_dim, 0, 0);
        return;
    }
    put(file, header, at, "model.layers.%d.linear_attn.in_proj_qkvz.weight", l, 2 * keys + 2 * width, h, -1);
    put(file, header, at, "model.layers.%d.linear_attn.in_proj_ba.weight", l, 2 * s->delta_v_heads, h, -1);
    put(file, header, at, "model.layers.%d.linear_attn.conv1d.weight", l, 2 * keys + width, DELTA_WINDOW, -1);
    put(file, header, at, "model.layers.%d.linear_attn.A_log", l, s->delta_v_heads, 0, -1);
    put(file, header, at, "model.layers.%d.linear_attn.dt_bias", l, s->delta_v_heads, 0, -1);
    put(file, header, at, "model.layers.%d.linear_attn.norm.weight", l, s->delta_dim, 0, 1);
    put(file, header, at, "model.layers.%d.linear_attn.out_proj.weight", l, h, width, -1);
}

static void put_all(const shape *s, FILE *file, bool header)
{
    int64_t at = 0;
    int l, h = s->hidden, q = s->heads * s->head_dim, k = s->kv_heads * s->head_dim;
    const int scale = s->repeats ? PUT_LITTLE : 1; /* what the layers add changes no likeliest token */
    if (s->is_gpt2) {
        put(file, header, &at, "transformer.wte.weight", 0, s->vocab, h, -1);
        put(file, header, &at, "transformer.wpe.weight", 0, 1024, h, -1);
        put(file, header, &at, "transformer.ln_f.weight", 0, h, 0, 1);
        put(file, header, &at, "transformer.ln_f.bias", 0, h, 0, 0);
    } else {
        put(file, header, &at, "model.embed_tokens.weight", 0, s->vocab, h, s->repeats ? PUT_NEXT : -1);
        put(file, header, &at, "model.norm.weight", 0, h, 0, s->delta_heads ? 0 : 1);
        if (!s->tied)
            put(file, header, &at, "lm_head.weight", 0, s->vocab, h, s->repeats ? PUT_SAME : -1);
    }
    for (l = 0; l < s->layers; l++) {
        if (s->is_gpt2) {
            put(file, header, &at, "transformer.h.%d.ln_1.weight", l, h, 0, 1);
            put(file, header, &at, "transformer.h.%d.ln_1.bias", l, h, 0, 0);
            put(file, header, &at, "transformer.h.%d.attn.c_attn.weight", l, h, 3 * h, -1);
            put(file, header, &at, "transformer.h.%d.attn.c_attn.bias", l, 3 * h, 0, -1);
            put(file, header, &at, "transformer.h.%d.attn.c_proj.weight", l, h, h, -1);
            put(file, header, &at, "transformer.h.%d.attn.c_proj.bias", l, h, 0, -1);
            put(file, header, &at, "transformer.h.%d.ln_2.weight", l, h, 0, 1);
            put(file, header, &at, "transformer.h.%d.ln_2.bias", l, h, 0, 0);
            put(file, header, &at, "transformer.h.%d.mlp.c_fc.weight", l, h, s->inner, -1);
            put(file, header, &at, "transformer.h.%d.mlp.c_fc.bias", l, s->inner, 0, -1);
            put(file, header, &at, "transformer.h.%d.mlp.c_proj.weight", l, s->inner, h, -1);
            put(file, header, &at, "transformer.h.%d.mlp.c_proj.bias", l, h, 0, -1);
            continue;
        }
        if (s->delta_heads) {
            put_next(s, file, header, &at, l);
            put_experts(s, file, header, &at, l);
            continue;
        }
        put(file, header, &at, "model.layers.%d.input_layernorm.weight", l, h, 0, scale);
        if (s->latent) {
            put_latent(s, file, header, &at, l);
        } else {
            put(file, header, &at, "model.layers.%d.self_attn.q_proj.weight", l, q, h, -1);
            put(file, header, &at, "model.layers.%d.self_attn.k_proj.weight", l, k, h, -1);
            put(file, header, &at, "model.layers.%d.self_attn.v_proj.weight", l, k, h, -1);
            put(file, header, &at, "model.layers.%d.self_attn.o_proj.weight", l, h, q, -1);
        }
        if (s->normed) {
            put(file, header, &at, "model.layers.%d.self_attn.q_norm.weight", l, s->head_dim, 0, 1);
            put(file, header, &at, "model.layers.%d.self_attn.k_norm.weight", l, s->head_dim, 0, 1);
        }
        if (s->is_oss) {
            put(file, header, &at, "model.layers.%d.self_attn.q_proj.bias", l, q, 0, -1);
            put(file, header, &at, "model.layers.%d.self_attn.k_proj.bias", l, k, 0, -1);
            put(file, header, &at, "model.layers.%d.self_attn.v_proj.bias", l, k, 0, -1);
            put(file, header, &at, "model.layers.%d.self_attn.o_proj.bias", l, h, 0, -1);
            put(file, header, &at, "model.layers.%d.self_attn.sinks", l, s->heads, 0, -1);
        }
        put(file, header, &at, "model.layers.%d.post_attention_layernorm.weight", l, h, 0, scale);
        if (s->experts && !(s->dense && l == 0))
            put_experts(s, file, header, &at, l);
        else
            put_gated(file, header, &at, "mlp", l, s->dense ? s->dense : s->inner, h);
        if (s->shared && l > 0)
            put_gated(file, header, &at, "mlp.shared_experts", l, s->shared * s->inner, h);
    }
    if (header)
        fprintf(file, "}");
}

/*  The folder of a model, which is written if it is not there. */
static bool write_folder(const shape *s, const char *folder)
{
    char path[512];
    FILE *file;
    uint64_t size = 0;
    bool ok;
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/config.json", folder);
    if ((file = fopen(path, "rb"))) {
        fclose(file);
        return true;
    }
    make_block();
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (!(file = fopen(path, "wb")))
        return false;
    fwrite(&size, 8, 1, file);
    put_all(s, file, true);
    size = (uint64_t)ftell(file) - 8;
    put_all(s, file, false);
    rewind(file);
    fwrite(&size, 8, 1, file);
    ok = !ferror(file);
    ok = fclose(file) == 0 && ok;
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (!ok || !(file = fopen(path, "wb")))
        return false;
    if (s->is_gpt2)
        fprintf(file,
                "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", \"n_embd\": %d, \"n_layer\": %d, "
                "\"n_head\": %d, "
                "\"n_positions\": 1024, \"n_ctx\": 1024, "
                "\"vocab_size\": %d, \"layer_norm_epsilon\": 1e-5, \"activation_function\": \"gelu_new\", \"dtype\": "
                "\"bfloat16\"}\n",
                s->hidden, s->layers, s->heads, s->vocab);
    else if (s->is_oss)
        fprintf(
            file,
            "{\"architectures\": [\"GptOssForCausalLM\"], \"model_type\": \"gpt_oss\", \"hidden_size\": %d, "
            "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, "
            "\"intermediate_size\": %d, \"vocab_size\": %d, \"num_local_experts\": %d, "
            "\"num_experts_per_tok\": %d, \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5, "
            "\"hidden_act\": \"silu\", \"swiglu_limit\": 7.0, \"sliding_window\": 128, \"attention_bias\": true, "
            "\"rope_theta\": 150000, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 32.0, \"beta_fast\": "
            "32.0, \"beta_slow\": 1.0, \"truncate\": false, \"original_max_position_embeddings\": 4096}, "
            "\"tie_word_embeddings\": false, \"quantization_config\": {\"quant_method\": \"mxfp4\"}, \"dtype\": "
            "\"bfloat16\"}\n",
            s->hidden, s->layers, s->heads, s->kv_heads, s->head_dim, s->inner, s->vocab, s->experts, s->chosen);
    else if (s->latent)
        fprintf(
            file,
            "{\"architectures\": [\"DeepseekV2ForCausalLM\"], \"model_type\": \"deepseek_v2\", \"hidden_size\": %d, "
            "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
            "\"qk_nope_head_dim\": %d, \"qk_rope_head_dim\": %d, \"v_head_dim\": %d, \"kv_lora_rank\": %d, "
            "\"q_lora_rank\": null, \"intermediate_size\": %d, \"moe_intermediate_size\": %d, \"vocab_size\": %d, "
            "\"n_routed_experts\": %d, \"num_experts_per_tok\": %d, \"n_shared_experts\": %d, "
            "\"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, \"topk_method\": \"greedy\", \"n_group\": 1, "
            "\"topk_group\": 1, \"norm_topk_prob\": false, \"routed_scaling_factor\": 1.0, "
            "\"scoring_func\": \"softmax\", \"max_position_embeddings\": 163840, \"rms_norm_eps\": 1e-6, "
            "\"hidden_act\": \"silu\", \"rope_theta\": 10000, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, "
            "\"beta_fast\": 32, \"beta_slow\": 1, \"mscale\": 0.707, \"mscale_all_dim\": 0.707, "
            "\"original_max_position_embeddings\": 4096}, \"tie_word_embeddings\": false, \"dtype\": "
            "\"bfloat16\"}\n",
            s->hidden, s->layers, s->heads, s->kv_heads, s->head_dim, s->head_dim / 2, s->head_dim, s->latent, s->dense,
            s->inner, s->vocab, s->experts, s->chosen, s->shared);
    else if (s->delta_heads)
        fprintf(
            file,
            "{\"architectures\": [\"Qwen3NextForCausalLM\"], \"model_type\": \"qwen3_next\", \"hidden_size\": %d, "
            "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, "
            "\"intermediate_size\": %d, \"moe_intermediate_size\": %d, \"shared_expert_intermediate_size\": %d, "
            "\"vocab_size\": %d, \"num_experts\": %d, \"num_experts_per_tok\": %d, \"norm_topk_prob\": true, "
            "\"decoder_sparse_step\": 1, \"mlp_only_layers\": [], \"full_attention_interval\": 4, "
            "\"linear_num_key_heads\": %d, \"linear_num_value_heads\": %d, \"linear_key_head_dim\": %d, "
            "\"linear_value_head_dim\": %d, \"linear_conv_kernel_dim\": %d, \"max_position_embeddings\": 262144, "
            "\"rms_norm_eps\": 1e-6, \"hidden_act\": \"silu\", \"rope_theta\": 10000000.0, "
            "\"partial_rotary_factor\": 0.25, \"tie_word_embeddings\": false, \"dtype\": \"bfloat16\"}\n",
            s->hidden, s->layers, s->heads, s->kv_heads, s->head_dim, 2 * s->hidden, s->inner, s->inner, s->vocab,
            s->experts, s->chosen, s->delta_heads, s->delta_v_heads, s->delta_dim, s->delta_dim, DELTA_WINDOW);
    else if (s->experts)
        fprintf(
            file,
            "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\", \"hidden_size\": %d, "
            "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, "
            "\"intermediate_size\": %d, \"moe_intermediate_size\": %d, \"vocab_size\": %d, \"num_experts\": %d, "
            "\"num_experts_per_tok\": %d, \"norm_topk_prob\": true, \"decoder_sparse_step\": 1, "
            "\"mlp_only_layers\": [], \"max_position_embeddings\": 40960, \"rms_norm_eps\": 1e-6, "
            "\"hidden_act\": \"silu\", \"rope_theta\": 1000000.0, \"tie_word_embeddings\": false, \"dtype\": "
            "\"bfloat16\"}\n",
            s->hidden, s->layers, s->heads, s->kv_heads, s->head_dim, 3 * s->hidden, s->inner, s->vocab, s->experts,
            s->chosen);
    else
        fprintf(file,
                "{\"architectures\": [\"%sForCausalLM\"], \"model_type\": \"%s\", \"hidden_size\": %d, "
                "\"num_hidden_layers\": %d, "
                "\"num_attention_heads\": %d, "
                "\"num_key_value_heads\": %d, \"head_dim\": %d, \"intermediate_size\": %d, \"vocab_size\": %d, "
                "\"max_position_embeddings\": 16384, "
                "\"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": %s, \"rope_theta\": "
                "500000.0, \"dtype\": "
                "\"bfloat16\"}\n",
                s->normed ? "Qwen3" : "Llama", s->normed ? "qwen3" : "llama", s->hidden, s->layers, s->heads,
                s->kv_heads, s->head_dim, s->inner, s->vocab, s->tied ? "true" : "false");
    return fclose(file) == 0;
}

/* the figures -------------------------------------------------------------------------------------------------------
   */

static bool ok_or_say(bool ok)
{
    if (!ok)
        fprintf(stderr, "%s\n", ignis_status_message());
    return ok;
}

/*  Returns the seconds that a step of `count` sequences takes after `prompt` tokens each, by ignis_sequence_next_all.
    Below 0: it failed. */
static double step_seconds(const ignis_sequence *sequences, int count, int prompt, int steps, int rounds)
{
    double times[ROUNDS], start;
    int32_t ids[MOST];
    int round, i;
    for (round = -1; round < rounds; round++) {
        for (i = 0; i < count; i++)
            if (ignis_sequence_truncate(sequences[i], prompt) != IGNIS_OK)
                return -1;
        for (i = 0; i < 3; i++) /* the last token of the prompt has no keys yet; the graph is made */
            if (ignis_sequence_next_all(sequences, count, NULL, ids) != IGNIS_OK)
                return -1;
        start = now();
        for (i = 0; i < steps; i++)
            if (ignis_sequence_next_all(sequences, count, NULL, ids) != IGNIS_OK)
                return -1;
        if (round >= 0)
            times[round] = (now() - start) / steps;
    }
    return median(times, rounds);
}

/*  Ways of sampling; the last one with a grammar. */
static const struct way {
    const char *name;
    double temperature, top_p, penalty;
    int top_k;
} ways[] = {{"temperature 1", 1, 0, 0, 0},
            {"top_k 40", 1, 0, 0, 40},
            {"top_p 0.95", 1, 0.95, 0, 0},
            {"top_k 40, top_p 0.95, penalty 1.1", 0.8, 0.95, 1.1, 40},
            {"temperature 1, a grammar", 1, 0, 0, 0}};
enum { WAYS = sizeof ways / sizeof ways[0] };

/*  Seconds of a token of ignis_generate; way: null for the likeliest tokens, else each round is from the same seed. */
static double generate_seconds(ignis_sequence sequence, int prompt, int steps, int rounds, const struct way *way)
{
    double times[ROUNDS];
    ignis_generate_info info;
    ignis_generate_desc desc;
    int round;
    memset(&desc, 0, sizeof desc);
    desc.max_tokens = steps;
    desc.end_count = -1;
    if (way) {
        desc.sampling.temperature = way->temperature;
        desc.sampling.top_p = way->top_p;
        desc.sampling.top_k = way->top_k;
        desc.sampling.repetition_penalty = way->penalty;
        desc.sampling.seed = 1;
    }
    desc.info = &info;
    for (round = -1; round < rounds; round++) {
        if (ignis_sequence_truncate(sequence, prompt) != IGNIS_OK || ignis_generate(sequence, &desc) != IGNIS_OK)
            return -1;
        if (round >= 0)
            times[round] = (info.seconds - info.first) / (info.tokens - 1);
    }
    return median(times, rounds);
}

/*  Seconds from the ids of a prompt to the first token. */
static double first_seconds(ignis_sequence sequence, const int32_t *ids, int prompt, int rounds)
{
    double times[ROUNDS], start;
    int round;
    for (round = -1; round < rounds; round++) {
        if (ignis_sequence_truncate(sequence, 0) != IGNIS_OK)
            return -1;
        start = now();
        if (ignis_sequence_feed(sequence, ids, prompt) != IGNIS_OK || ignis_sequence_next(sequence, NULL) < 0)
            return -1;
        if (round >= 0)
            times[round] = now() - start;
    }
    return median(times, rounds);
}

/*  The program that `start` times: opens a model, and says its first token. */
static int begin_and_say(const char *path)
{
    int32_t ids[16], i;
    ignis_model_desc desc;
    ignis_sequence sequence;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.dtype = IGNIS_BF16;
    desc.context = 64;
    for (i = 0; i < 16; i++)
        ids[i] = i;
    if (ignis_setup(NULL) != IGNIS_OK || !(sequence = ignis_sequence_begin(ignis_model_open(&desc))).id ||
        ignis_sequence_feed(sequence, ids, 16) != IGNIS_OK || (i = ignis_sequence_next(sequence, NULL)) < 0)
        return 1;
    printf("%d\n", (int)i);
    fflush(stdout);
    _Exit(0); /* what follows is not timed */
}

/*  Seconds that it takes. */
static double start_seconds(const char *program, const char *path, int rounds)
{
    double times[ROUNDS], start;
    char command[1000], line[64];
    int round;
    snprintf(command, sizeof command, "'%s' 'started=%s'", program, path);
    for (round = -1; round < rounds; round++) {
        FILE *pipe;
        bool said;
        start = now();
        if (!(pipe = popen(command, "r")))
            return -1;
        said = fgets(line, sizeof line, pipe) != NULL;
        if (round >= 0)
            times[round] = now() - start;
        if (pclose(pipe) != 0 || !said)
            return -1;
    }
    return median(times, rounds);
}

/* a grammar -------------------------------------------------------------------------------------------------------- */

/*  A tokenizer of all bytes, and words of letters, digits, and what stands between them in JSON. */
static bool write_tokenizer(const shape *s, const char *folder)
{
    static const char *const before[] = {"", "", "", "", ":", ",", "{", "["};
    char path[512];
    FILE *file;
    int i, next = 256;
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    if (!(file = fopen(path, "wb")))
        return false;
    fprintf(file, "{\"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                  "\"add_prefix_space\": false, "
                  "\"trim_offsets\": true, \"use_regex\": true}, \"post_processor\": null, \"decoder\": {\"type\": "
                  "\"ByteLevel\"}, "
                  "\"model\": {\"type\": \"BPE\", \"vocab\": {");
    for (i = 0; i < 256; i++) {
        bool itself = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
        fprintf(file, "%s\"\\u%04x\": %d", i ? ", " : "", (unsigned)(itself ? i : next++), i);
    }
    for (; i < s->vocab; i++) {
        char word[8];
        int length = 0, left = i;
        for (; left > 0; left /= i % 5 ? 26 : 10)
            word[length++] = i % 5 ? (char)('a' + left % 26) : (char)('0' + left % 10);
        fprintf(file, ", \"%s%.*s\": %d", before[i % 8], length, word, i);
    }
    fprintf(file, "}, \"merges\": []}}\n");
    return fclose(file) == 0;
}

/*  A long object of JSON, so that no text ends before the last step. */
static const char grammar[] = "root ::= \"{\" pair{300} \"}\"\n"
                              "pair ::= \"\\\"\" [a-z]+ \"\\\": \" value \", \"\n"
                              "value ::= [0-9]+ | \"\\\"\" [a-z ]* \"\\\"\" | \"[\" (value (\", \" value)*)? \"]\"\n";

/* a GGUF file -------------------------------------------------------------------------------------------------------
   */

typedef struct blocks {
    const char *name;
    int id, elements, bytes, scales[2]; /* id: 0 if no file has them; scales: where halves are */
} blocks;

static const blocks block_types[] = {{"q8_0", 8, 32, 34, {0, 0}},    {"q4_0", 2, 32, 18, {0, 0}},
                                     {"q4_k", 12, 256, 144, {0, 2}}, {"q6_k", 14, 256, 210, {208, 208}},
                                     {"q5_0", 6, 32, 22, {0, 0}},    {"iq4_xs", 23, 256, 136, {0, 0}},
                                     {"mxfp4", 39, 32, 17, {0, 0}}, /* a power of two of one byte */
                                     {"f8", 0, 128, 136, {0, 0}}};

static void put_number(FILE *file, uint64_t value, int size) { fwrite(&value, (size_t)size, 1, file); }

static void put_text(FILE *file, const char *text)
{
    put_number(file, strlen(text), 8);
    fwrite(text, 1, strlen(text), file);
}

static void put_key(FILE *file, const char *name, uint32_t value, int type)
{
    put_text(file, name);
    put_number(file, (uint64_t)type, 4);
    put_number(file, value, 4);
}

/*  Writes the head of a tensor, or its blocks. */
static void put_blocks(FILE *file, bool header, const blocks *type, int64_t *at, const char *name, int layer, int rows,
                       int columns)
{
    static unsigned char some[210 * 4096];
    int64_t size = columns ? (int64_t)rows * columns / type->elements * type->bytes : 4 * (int64_t)rows, left, i;
    int k;
    if (header) {
        char full[96];
        snprintf(full, sizeof full, name, layer);
        put_text(file, full);
        put_number(file, columns ? 2 : 1, 4);
        if (columns)
            put_number(file, (uint64_t)columns, 8);
        put_number(file, (uint64_t)rows, 8);
        put_number(file, columns ? (uint64_t)type->id : 0, 4);
        put_number(file, (uint64_t)*at, 8);
    } else if (!columns) {
        for (i = 0; i < rows; i++)
            put_number(file, 0x3f800000, 4);
    } else {
        for (i = 0; i < (int64_t)sizeof some; i++)
            some[i] = (unsigned char)((i * 2654435761u + (uint64_t)*at) >> 13);
        for (i = 0; i < 4096; i++)
            for (k = 0; k < 2; k++) {
                some[i * type->bytes + type->scales[k]] = (unsigned char)(type->bytes == 17 ? 119 + i % 3 : 17 * i);
                if (type->bytes == 17)
                    continue;
                some[i * type->bytes + type->scales[k] + 1] = type->elements == 256 ? 0x01
                                                              : type->bytes <= 22   ? 0x14
                                                                                    : 0x06;
            }
        for (left = size; left > 0; left -= i) {
            i = left < 4096 * type->bytes ? left : 4096 * type->bytes;
            fwrite(some, 1, (size_t)i, file);
        }
    }
    for (; size % 32; size++)
        if (!header)
            fputc(0, file);
    *at += size;
}

static bool write_gguf(const shape *s, const blocks *type, const char *path)
{
    FILE *file = fopen(path, "wb");
    int pass, layer, width = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    float theta = 500000.0f, eps = 1e-5f;
    uint32_t bits;
    if (!file)
        return false;
    setvbuf(file, NULL, _IOFBF, 1 << 20);
    fwrite("GGUF", 1, 4, file);
    put_number(file, 3, 4);
    put_number(file, (uint64_t)(9 * s->layers + (s->tied ? 2 : 3)), 8);
    put_number(file, 10, 8);
    put_text(file, "general.architecture");
    put_number(file, 8, 4);
    put_text(file, "llama");
    put_key(file, "llama.block_count", (uint32_t)s->layers, 4);
    put_key(file, "llama.embedding_length", (uint32_t)s->hidden, 4);
    put_key(file, "llama.feed_forward_length", (uint32_t)s->inner, 4);
    put_key(file, "llama.context_length", 16384, 4);
    put_key(file, "llama.attention.head_count", (uint32_t)s->heads, 4);
    put_key(file, "llama.attention.head_count_kv", (uint32_t)s->kv_heads, 4);
    put_key(file, "llama.attention.key_length", (uint32_t)s->head_dim, 4);
    memcpy(&bits, &theta, 4);
    put_key(file, "llama.rope.freq_base", bits, 6);
    memcpy(&bits, &eps, 4);
    put_key(file, "llama.attention.layer_norm_rms_epsilon", bits, 6);
    for (pass = 0; pass < 2; pass++) {
        int64_t at = 0;
        bool header = pass == 0;
        put_blocks(file, header, type, &at, "token_embd.weight", 0, s->vocab, s->hidden);
        put_blocks(file, header, type, &at, "output_norm.weight", 0, s->hidden, 0);
        if (!s->tied)
            put_blocks(file, header, type, &at, "output.weight", 0, s->vocab, s->hidden);
        for (layer = 0; layer < s->layers; layer++) {
            put_blocks(file, header, type, &at, "blk.%d.attn_norm.weight", layer, s->hidden, 0);
            put_blocks(file, header, type, &at, "blk.%d.attn_q.weight", layer, width, s->hidden);
            put_blocks(file, header, type, &at, "blk.%d.attn_k.weight", layer, kv, s->hidden);
            put_blocks(file, header, type, &at, "blk.%d.attn_v.weight", layer, kv, s->hidden);
            put_blocks(file, header, type, &at, "blk.%d.attn_output.weight", layer, s->hidden, width);
            put_blocks(file, header, type, &at, "blk.%d.ffn_norm.weight", layer, s->hidden, 0);
            put_blocks(file, header, type, &at, "blk.%d.ffn_gate.weight", layer, s->inner, s->hidden);
            put_blocks(file, header, type, &at, "blk.%d.ffn_up.weight", layer, s->inner, s->hidden);
            put_blocks(file, header, type, &at, "blk.%d.ffn_down.weight", layer, s->hidden, s->inner);
        }
        while (header && ftell(file) % 32)
            fputc(0, file);
    }
    return fclose(file) == 0;
}

static bool with_draws, with_caches;
static const char *timed_program; /* where it is asked for */
static int speculated;            /* tokens of a draft */
static const char *draft_name = "llama-1b";
static ignis_comm comm; /* of the ranks that share the models; none without a launcher */
static ignis_comm_info ranks;

/*  Four steps, to look at in ui.perfetto.dev. */
static bool write_trace(const ignis_sequence *sequences, int count, const char *folder, const char *name)
{
    int32_t ids[MOST];
    char path[400];
    int i;
    snprintf(path, sizeof path, "%s/%s-%d.json", folder, name, count);
    if (!ok_or_say(ignis_profile_begin() == IGNIS_OK))
        return false;
    for (i = 0; i < 4; i++)
        if (!ok_or_say(ignis_sequence_next_all(sequences, count, NULL, ids) == IGNIS_OK))
            return false;
    return ok_or_say(ignis_profile_end(path, NULL) == IGNIS_OK);
}

/*  A prompt and the first token behind it, likewise. */
static bool write_prompt_trace(ignis_sequence sequence, const int32_t *ids, int prompt, const char *folder,
                               const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s-prompt.json", folder, name);
    return ok_or_say(ignis_profile_begin() == IGNIS_OK && first_seconds(sequence, ids, prompt, 0) >= 0 &&
                     ignis_profile_end(path, NULL) == IGNIS_OK);
}

/*  Makes the sets of adapters that adapters= asks for. */
static bool make_adapters(ignis_model model)
{
    const char *const all[] = {"all-linear"};
    ignis_lora_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.rank = adapter_rank;
    desc.targets = all;
    desc.target_count = 1;
    for (i = 0; i < adapter_count; i++)
        if (!ok_or_say((adapters[i] = ignis_lora_create(model, &desc)).id != 0))
            return false;
    return true;
}

/*  The bytes of weights that a step of `batch` sequences multiplies with, of a model of `bytes`. */
static double touched_bytes(const shape *s, const ignis_model_info *info, int batch)
{
    const double bytes = (double)info->weight_bytes;
    /* bytes of an element: of f8, or of 16 bits */
    const double each = info->quantised && !s->is_oss ? 136.0 / 128 : 2;
    double unused = 1, experts = 3.0 * (s->layers - (s->dense ? 1 : 0)) * s->experts * s->hidden * s->inner *
                                 (s->is_oss ? 17.0 / 32 : each);
    int i;
    if (!s->experts)
        return bytes - (s->tied ? 0 : (double)s->vocab * s->hidden * bytes / (double)info->parameters);
    for (i = 0; i < batch; i++)
        unused *= 1 - (double)s->chosen / s->experts;
    return bytes - each * s->vocab * s->hidden - unused * experts;
}

/*  The weights that a token is multiplied with. */
static double multiplied_weights(const shape *s, const ignis_model_info *info)
{
    const double unused = 3.0 * s->layers * (s->experts - s->chosen) * s->hidden * s->inner;
    return (double)info->parameters - (s->tied ? 0 : (double)s->vocab * s->hidden) - unused;
}

/*  Compares the next token's logits with those that a cache of numbers has left here: root mean squares, and the
    Kullback-Leibler divergence of the softmax, in nats. */
static bool print_cache_error(const shape *s, ignis_sequence sequence)
{
    static float *numbers, *logits;
    double squares = 0, mean = 0, all = 0, sums[2] = {0, 0}, divergence = 0;
    int i;
    numbers = numbers ? numbers : (float *)malloc(sizeof *numbers << 18);
    logits = logits ? logits : (float *)malloc(sizeof *logits << 18);
    if (!numbers || !logits ||
        !ok_or_say(ignis_sequence_logits(sequence, cache_type ? logits : numbers, s->vocab) == IGNIS_OK))
        return false;
    if (!cache_type)
        return true;
    for (i = 0; i < s->vocab; i++) {
        mean += numbers[i] / s->vocab;
        squares += (double)(logits[i] - numbers[i]) * (logits[i] - numbers[i]);
        sums[0] += exp(numbers[i]);
        sums[1] += exp(logits[i]);
    }
    for (i = 0; i < s->vocab; i++) {
        all += (numbers[i] - mean) * (numbers[i] - mean);
        divergence += exp(numbers[i]) / sums[0] * (numbers[i] - log(sums[0]) - logits[i] + log(sums[1]));
    }
    printf("%-10s cache of %s: logits off by %.2e of their deviation, divergence %.2e\n", s->name,
           cache_names[cache_type], sqrt(squares / all), divergence);
    return true;
}

/*  The tokens of a prompt, and those that each text has behind it, of offline=. */
static int offline_prompt(int text, bool tiny) { return tiny ? 5 + text * 7 % 11 : 500 + text * 389 % 1001; }
static int offline_tokens(bool tiny) { return tiny ? 6 : 500; }

/*  Computes `offline` texts, up to `most` at a time. */
static bool run_offline(const shape *s, ignis_model model, const int32_t *ids, int most, bool tiny)
{
    ignis_sequence sequences[MOST];
    int left[MOST], active = 0, begun = 0, i; /* left: tokens of each text */
    double read = 0, written = 0, start = now(), seconds;
    int32_t next[MOST];
    while (begun < offline || active > 0) {
        /* all places are filled at the beginning; then one prompt between two steps */
        for (i = 0; begun < offline && active < most && (i == 0 || begun < most); i++) {
            const int prompt = offline_prompt(begun, tiny);
            sequences[active] = ignis_sequence_begin(model);
            if (!ok_or_say(sequences[active].id &&
                           ignis_sequence_feed(sequences[active], ids + begun % 97, prompt) == IGNIS_OK))
                return false;
            left[active++] = offline_tokens(tiny);
            read += prompt;
            begun++;
        }
        if (!ok_or_say(ignis_sequence_next_all(sequences, active, NULL, next) == IGNIS_OK))
            return false;
        written += active;
        for (i = active - 1; i >= 0; i--)
            if (--left[i] == 0) {
                ignis_sequence_free(sequences[i]);
                sequences[i] = sequences[--active];
                left[i] = left[active];
            }
    }
    seconds = now() - start;
    printf("%-10s offline: %d texts, %d at a time: %10.1f tokens/s out, %10.1f in and out, %.1f s\n", s->name, offline,
           most, written / seconds, (read + written) / seconds, seconds);
    return true;
}

static bool run(const shape *s, const blocks *type, const char *folder, const char *batches, const char *traces,
                ignis_dtype dtype, bool tiny)
{
    int prompt = tiny     ? 20
                 : before ? before
                          : PROMPT,
        steps = tiny ? 2 : STEPS, rounds = tiny ? 1 : ROUNDS, count = 0, i;
    const int most = tiny && long_prompt ? 40 : long_prompt;
    double token, seconds;
    ignis_sequence sequences[MOST];
    ignis_model_desc desc;
    ignis_model_info info;
    ignis_model model;
    static int32_t ids[LONG_PROMPT];
    const bool is_gguf = type && type->id;
    char path[400];
    const char *word;
    snprintf(path, sizeof path, "%s/ignis-%s%s%s%s", folder, s->name, is_gguf ? "-" : "", is_gguf ? type->name : "",
             is_gguf ? ".gguf" : "");
    if (ranks.rank == 0 &&
        (is_gguf ? !write_gguf(s, type, path) : !write_folder(s, path) || (with_draws && !write_tokenizer(s, path)))) {
        fprintf(stderr, "%s cannot be written\n", path);
        return false;
    }
    if (comm.id && !ok_or_say(ignis_comm_barrier(comm) == IGNIS_OK && ignis_comm_synchronize(comm) == IGNIS_OK))
        return false;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.dtype = dtype;
    if (comm.id)
        desc.parallel = ignis_comm_parallel(comm);
    desc.weights = type && !is_gguf ? IGNIS_WEIGHTS_F8 : IGNIS_WEIGHTS_DEFAULT;
    desc.f8_activations = rounds_activations && type && !is_gguf;
    desc.cache_type = (ignis_cache_type)cache_type;
    desc.context = tiny            ? 64
                   : offline       ? 2048
                   : before        ? before + 2 * STEPS
                   : most > PROMPT ? most + PROMPT
                                   : 2 * PROMPT;
    for (word = batches; word; word = strchr(word, ',') ? strchr(word, ',') + 1 : NULL)
        desc.sequences = atoi(word) > desc.sequences ? atoi(word) : desc.sequences;
    seconds = now();
    model = ignis_model_open(&desc);
    if (!ok_or_say(model.id && ignis_model_query(model, &info) == IGNIS_OK))
        return false;
    if (!make_adapters(model))
        return false;
    token = (double)info.cache_bytes_of_token * (prompt + steps / 2) + (double)info.state_bytes;
    if (type)
        printf("%s: %s%s, %.2f GB of weights on the device\n", s->name, type->name,
               desc.f8_activations ? " with activations of e4m3" : "", (double)info.weight_bytes / 1e9);
    fprintf(stderr, "%s: opened in %.1f s\n", s->name, now() - seconds);
    for (i = 0; i < LONG_PROMPT; i++)
        ids[i] = (i * 7919 + 13) % s->vocab;
    if (offline) {
        const bool ok = run_offline(s, model, ids, desc.sequences, tiny);
        ignis_model_free(model);
        return ok;
    }
    for (word = batches; word; word = strchr(word, ',') ? strchr(word, ',') + 1 : NULL) {
        int batch = atoi(word);
        for (; count < batch && count < MOST; count++) {
            sequences[count] = ignis_sequence_begin(model);
            ids[0] = count;
            if (adapter_count &&
                !ok_or_say(ignis_sequence_set_lora(sequences[count], adapters[count % adapter_count]) == IGNIS_OK))
                return false;
            if (!ok_or_say(sequences[count].id && ignis_sequence_feed(sequences[count], ids, prompt) == IGNIS_OK))
                return false;
        }
        if (word == batches && with_caches && !print_cache_error(s, sequences[0]))
            return false;
        seconds = step_seconds(sequences, batch, prompt, steps, rounds);
        if (!ok_or_say(seconds > 0))
            return false;
        printf("%-10s %3d sequences %10.1f tokens/s %10.1f us a step %6.3f of 4.25 TB/s %6.3f of 700 TFLOP/s%s%s\n",
               s->name, batch, batch / seconds, seconds * 1e6,
               (touched_bytes(s, &info, batch) + batch * token) / seconds / 4.25e12,
               2.0 * batch * multiplied_weights(s, &info) / seconds / 700e12, with_caches ? ", cache of " : "",
               with_caches ? cache_names[cache_type] : "");
        fflush(stdout);
        if (traces && !write_trace(sequences, batch, traces, type ? type->name : s->name))
            return false;
    }
    seconds = generate_seconds(sequences[0], prompt, steps, rounds, NULL);
    if (!ok_or_say(seconds > 0))
        return false;
    printf("%-10s ignis_generate %9.1f tokens/s %10.1f us a token %6.3f of 4.25 TB/s\n", s->name, 1 / seconds,
           seconds * 1e6, (touched_bytes(s, &info, 1) + token) / seconds / 4.25e12);
    for (i = 0; with_draws && !type && i < WAYS; i++) {
        if (i == WAYS - 1 && !ok_or_say(ignis_sequence_truncate(sequences[0], prompt) == IGNIS_OK &&
                                        ignis_sequence_grammar(sequences[0], grammar) == IGNIS_OK))
            return false;
        seconds = generate_seconds(sequences[0], prompt, steps, rounds, &ways[i]);
        if (!ok_or_say(seconds > 0))
            return false;
        printf("%-10s ignis_generate %9.1f tokens/s %10.1f us a token, %s\n", s->name, 1 / seconds, seconds * 1e6,
               ways[i].name);
    }
    if (with_draws && !type && !ok_or_say(ignis_sequence_grammar(sequences[0], NULL) == IGNIS_OK))
        return false;
    seconds = first_seconds(sequences[0], ids, prompt, rounds);
    if (!ok_or_say(seconds > 0))
        return false;
    printf("%-10s %3d tokens to the first one behind them %10.2f ms\n", s->name, prompt, seconds * 1e3);
    if (most) {
        seconds = first_seconds(sequences[0], ids, most, rounds);
        if (!ok_or_say(seconds > 0))
            return false;
        printf("%-10s %3d tokens to the first one behind them %10.2f ms\n", s->name, most, seconds * 1e3);
    }
    if (traces && !write_prompt_trace(sequences[0], ids, prompt, traces, type ? type->name : s->name))
        return false;
    if (timed_program && !type) {
        seconds = start_seconds(timed_program, path, rounds);
        if (!ok_or_say(seconds > 0))
            return false;
        printf("%-10s a program's start to its first token %10.2f ms\n", s->name, seconds * 1e3);
    }
    fflush(stdout);
    for (i = 0; i < count; i++)
        ignis_sequence_free(sequences[i]);
    for (i = 0; i < adapter_count; i++)
        ignis_lora_free(adapters[i]);
    ignis_model_free(model);
    if (type && ranks.rank == 0)
        remove(path);
    return true;
}

/* drafts ----------------------------------------------------------------------------------------------------------- */

/*  A model of a shape that says 0 to REPEATED - 1 again and again: row i of its embedding is row i + 1 of the matrix
    of its logits. */
static ignis_model open_repeating(const shape *s, const char *folder, ignis_dtype dtype, bool tiny)
{
    ignis_model none = {0};
    ignis_model_desc desc;
    shape of = *s;
    char path[400];
    of.tied = false;
    of.repeats = true;
    snprintf(path, sizeof path, "%s/ignis-%s-repeats", folder, s->name);
    if (s->is_gpt2 || s->experts || !write_folder(&of, path)) {
        fprintf(stderr, "%s cannot be written, or is no Llama\n", path);
        return none;
    }
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.dtype = dtype;
    desc.context = tiny ? 160 : 2 * PROMPT;
    desc.sequences = speculated > 7 ? speculated + 1 : 2;
    return ignis_model_open(&desc);
}

/*  What a text must have in common with that without drafts. */
typedef struct said {
    int32_t ids[2 * PROMPT];
    int count;
    double log_prob;
} said;

/*  Prints the tokens a second of `steps` tokens. */
static bool run_way(const shape *s, ignis_sequence sequence, ignis_generate_desc *desc, const char *name, said *text)
{
    const int prompt = ignis_sequence_length(sequence);
    ignis_sequence_info of;
    ignis_generate_info info;
    double times[ROUNDS];
    int round;
    desc->info = &info;
    for (round = -2; round < ROUNDS; round++) {
        if (ignis_sequence_truncate(sequence, prompt) != IGNIS_OK || ignis_generate(sequence, desc) != IGNIS_OK)
            return false;
        if (round >= 0)
            times[round] = (info.seconds - info.first) / (info.tokens - 1);
    }
    memset(text, 0, sizeof *text);
    text->count = ignis_sequence_ids(sequence, text->ids, 2 * PROMPT);
    if (ignis_sequence_query(sequence, &of) != IGNIS_OK || ignis_sequence_truncate(sequence, prompt) != IGNIS_OK)
        return false;
    text->log_prob = of.log_prob;
    printf("%-10s %-34s %10.1f tokens/s %6.2f tokens a step %5d of %5d guesses right", s->name, name,
           1 / median(times, ROUNDS), (double)info.tokens / info.steps, info.accepted, info.guessed);
    return true;
}

/*  A model without drafts, with drafts from the text, and from a model of the shape `by`. */
static bool run_drafts(const shape *s, const shape *by, const char *folder, ignis_dtype dtype, bool tiny)
{
    static const char *const names[] = {"no drafts", "drafts from the text", "drafts from"};
    static said texts[3];
    ignis_model model = open_repeating(s, folder, dtype, tiny), small_model = open_repeating(by, folder, dtype, tiny);
    ignis_sequence sequence = ignis_sequence_begin(model), draft = ignis_sequence_begin(small_model);
    int32_t ids[PROMPT];
    const int prompt = tiny ? 2 * REPEATED + 9 : PROMPT - 7;
    bool ok;
    int i, k;
    for (i = 0; i < prompt; i++)
        ids[i] = i % REPEATED;
    ok = ok_or_say(draft.id && sequence.id && ignis_sequence_feed(sequence, ids, prompt) == IGNIS_OK);
    for (k = 0; ok && k < 2; k++)
        for (i = 0; ok && i < 3; i++) {
            ignis_generate_desc desc;
            char name[80];
            memset(&desc, 0, sizeof desc);
            desc.max_tokens = tiny ? 20 : 4 * STEPS;
            desc.end_count = -1;
            desc.draft_tokens = i ? speculated : 0;
            desc.draft.id = i == 2 ? draft.id : 0;
            desc.sampling.temperature = k ? 0.02 * s->hidden / (log(s->vocab) + 1.4) : 0;
            snprintf(name, sizeof name, "%s%s%s%s", names[i], i == 2 ? " " : "", i == 2 ? by->name : "",
                     k ? ", in part" : "");
            ok = ok_or_say(run_way(s, sequence, &desc, name, &texts[i]));
            printf(i ? ", the bits are %s\n" : "\n",
                   memcmp(&texts[i], &texts[0], sizeof texts[0]) == 0 ? "equal" : "NOT EQUAL");
            fflush(stdout);
            ok = ok && memcmp(&texts[i], &texts[0], sizeof texts[0]) == 0;
        }
    ignis_sequence_free(sequence);
    ignis_sequence_free(draft);
    ignis_model_free(model);
    ignis_model_free(small_model);
    return ok;
}

/*  Returns the shape of a name, or null. */
static const shape *shape_of(const char *name)
{
    int i;
    for (i = 0; i < (int)(sizeof shapes / sizeof shapes[0]); i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    fprintf(stderr, "there is no model %s\n", name);
    return NULL;
}

/*  Runs drafts of the models that are named, or llama-8b. */
static bool run_all_drafts(int argc, char **argv, const char *folder, ignis_dtype dtype, bool tiny)
{
    const shape *by = shape_of(draft_name);
    bool named = false, ok = by != NULL;
    int i;
    if (tiny)
        return run_drafts(&small, &small, folder, dtype, true);
    for (i = 1; ok && i < argc; i++) {
        const shape *s = strchr(argv[i], '=') ? NULL : shape_of(argv[i]);
        named = named || s;
        ok = strchr(argv[i], '=') || (s && run_drafts(s, by, folder, dtype, false));
    }
    return ok && (named || run_drafts(shape_of("llama-8b"), by, folder, dtype, false));
}

/*  Runs a model with a cache of numbers, and with each one that is asked for. */
static bool run_caches(const shape *s, const blocks *type, const char *folder, const char *batches, const char *traces,
                       ignis_dtype dtype, bool tiny, const char *caches)
{
    bool ok = true;
    for (cache_type = 0; ok && cache_type < IGNIS_CACHE_COUNT; cache_type++)
        if (cache_type == 0 || strstr(caches, cache_names[cache_type]))
            ok = run(s, type, folder, batches, traces, dtype, tiny);
    return ok;
}

int main(int argc, char **argv)
{
    const char *folder = "/dev/shm", *batches = "1,8,64", *weights = "", *traces = NULL, *caches = "";
    ignis_dtype dtype = IGNIS_BF16;
    ignis_device_info info;
    bool named = false, ok = true;
    int i, k;
    if (argc == 2 && strncmp(argv[1], "started=", 8) == 0)
        return begin_and_say(argv[1] + 8);
    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &info) != IGNIS_OK)
        return 1;
    if (getenv("IGNIS_WORLD_SIZE")) {
        comm = ignis_comm_init(NULL);
        if (!ok_or_say(comm.id && ignis_comm_query(comm, &ranks) == IGNIS_OK &&
                       ignis_device_use(ranks.device) == IGNIS_OK))
            return 1;
        if (ranks.rank > 0 && !freopen("/dev/null", "w", stdout)) /* one rank reports */
            return 1;
    }
    for (i = 1; i < argc; i++) {
        folder = strncmp(argv[i], "folder=", 7) == 0 ? argv[i] + 7 : folder;
        batches = strncmp(argv[i], "batch=", 6) == 0 ? argv[i] + 6 : batches;
        dtype = strcmp(argv[i], "dtype=f32") == 0 ? IGNIS_F32 : strcmp(argv[i], "dtype=f16") == 0 ? IGNIS_F16 : dtype;
        weights = strncmp(argv[i], "weights=", 8) == 0 ? argv[i] + 8 : weights;
        caches = strncmp(argv[i], "cache=", 6) == 0 ? argv[i] + 6 : caches;
        before = strncmp(argv[i], "before=", 7) == 0 ? atoi(argv[i] + 7) : before;
        traces = strncmp(argv[i], "trace=", 6) == 0 ? argv[i] + 6 : traces;
        adapter_count = strncmp(argv[i], "adapters=", 9) == 0 ? atoi(argv[i] + 9) : adapter_count;
        adapter_rank = strncmp(argv[i], "rank=", 5) == 0 ? atoi(argv[i] + 5) : adapter_rank;
        long_prompt = strncmp(argv[i], "long=", 5) == 0 ? atoi(argv[i] + 5) : long_prompt;
        offline = strncmp(argv[i], "offline=", 8) == 0 ? atoi(argv[i] + 8) : offline;
        speculated = strncmp(argv[i], "speculate=", 10) == 0 ? atoi(argv[i] + 10) : speculated;
        draft_name = strncmp(argv[i], "draft=", 6) == 0 ? argv[i] + 6 : draft_name;
        if (strcmp(argv[i], "plain") == 0)
            ignis__cuda.cuLaunchKernelEx = NULL;
        else if (strcmp(argv[i], "drawn") == 0)
            with_draws = true;
        else if (strcmp(argv[i], "activations") == 0)
            rounds_activations = true;
        else if (strcmp(argv[i], "start") == 0)
            timed_program = argv[0];
        else
            named = named || !strchr(argv[i], '=');
    }
    if (adapter_count < 0 || adapter_count > MOST) {
        fprintf(stderr, "adapters=%d: 0 to %d are possible\n", adapter_count, MOST);
        return 2;
    }
    if (long_prompt < 0 || long_prompt > LONG_PROMPT || before < 0 || before > LONG_PROMPT) {
        fprintf(stderr, "long=%d before=%d: 1 to %d are possible\n", long_prompt, before, LONG_PROMPT);
        return 2;
    }
    with_caches = *caches != 0;
    if (strstr(info.name, "imulat"))
        printf("on the simulator these figures mean nothing\n");
    if (speculated > 0) {
        ok = run_all_drafts(argc, argv, folder, dtype, strstr(info.name, "imulat") != NULL);
    } else if (strstr(info.name, "imulat")) {
        bool mixtures = false;
        for (i = 1; ok && i < argc; i++)
            for (k = 0; ok && k < (int)(sizeof small_mixtures / sizeof small_mixtures[0]); k++)
                if (strcmp(argv[i], small_mixtures[k].name) == 0) {
                    mixtures = true;
                    ok = run_caches(&small_mixtures[k], NULL, folder, "1,8", traces, dtype, true, caches);
                }
        for (k = 0; ok && strcmp(weights, "f8") == 0 && k < (int)(sizeof block_types / sizeof block_types[0]); k++)
            if (!block_types[k].id)
                ok = run_caches(&small, &block_types[k], folder, "1,8", traces, dtype, true, caches);
        ok = ok && (mixtures || (run_caches(&small, NULL, folder, "1,8", traces, dtype, true, caches) &&
                                 run_caches(&small, &block_types[0], folder, "1,8", traces, dtype, true, caches)));
    } else {
        for (k = 0; ok && k < (int)(sizeof shapes / sizeof shapes[0]); k++) {
            bool wanted = !named && shapes[k].layers < 32 && !shapes[k].experts; /* 16 GB only if asked for */
            for (i = 1; i < argc; i++)
                wanted = wanted || strcmp(argv[i], shapes[k].name) == 0;
            if (wanted && !*weights)
                ok = run_caches(&shapes[k], NULL, folder, batches, traces, dtype, false, caches);
            for (i = 0; ok && wanted && i < (int)(sizeof block_types / sizeof block_types[0]); i++)
                ok = !strstr(weights, block_types[i].name) ||
                     (block_types[i].id && (shapes[k].is_gpt2 || shapes[k].experts)) ||
                     run_caches(&shapes[k], &block_types[i], folder, batches, traces, dtype, false, caches);
        }
    }
    if (comm.id)
        ignis_comm_destroy(comm);
    ignis_shutdown();
    return ok ? 0 : 1;
}
