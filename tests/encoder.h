// SPDX-License-Identifier: MIT
/*  encoder.h - tiny encoders with random weights, as folders and GGUF files */
#ifndef TEST_ENCODER_H
#define TEST_ENCODER_H
#include "checkpoint.h"

enum { H = 32, Q = 2, D = 16, I = 48, V = 40, LAYERS = 2, CONTEXT = 24 };

typedef struct encoder {
    const char *model_type, *architecture, *prefix;
    bool nomic, roberta, classifier;
    bool as_transformers; /* Nomic: config.json has the names of transformers 5 */
} encoder;

static const encoder encoders[] = {
    {"bert", "bert", "", false, false, false, false},
    {"bert", "bert", "bert.", false, false, true, false},
    {"nomic_bert", "nomic-bert", "", true, false, false, false},
    {"roberta", NULL, "", false, true, false, false},
    {"xlm-roberta", NULL, "roberta.", false, true, true, false},
    {"nomic_bert", NULL, "", true, false, false, true},
};
enum { ENCODERS = COUNT_OF(encoders) };

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static void add(const encoder *e, ck_model *m, int rows, int columns, const char *name, const char *gguf, int layer)
{
    char hf[96], own[64];
    snprintf(hf, sizeof hf,
             layer < 0  ? "%s%s"
             : e->nomic ? "%sencoder.layers.%%d.%s"
                        : "%sencoder.layer.%%d.%s",
             e->prefix, name);
    snprintf(own, sizeof own, layer < 0 ? "%s" : "blk.%%d.%s", gguf);
    ck_add(m, rows, columns, hf, own, layer, false, false);
}

/*  A weight and its bias. */
static void add_both(const encoder *e, ck_model *m, int rows, int columns, const char *name, const char *gguf,
                     int layer)
{
    char hf[96], own[64];
    snprintf(hf, sizeof hf, "%s.weight", name);
    snprintf(own, sizeof own, "%s.weight", gguf);
    add(e, m, rows, columns, hf, own, layer);
    snprintf(hf, sizeof hf, "%s.bias", name);
    snprintf(own, sizeof own, "%s.bias", gguf);
    add(e, m, rows, 0, hf, own, layer);
}

static void make_tensors(const encoder *e, ck_model *m)
{
    encoder outside = *e;
    int l;
    outside.prefix = "";
    memset(m, 0, sizeof *m);
    m->family = e->model_type;
    m->seed = 70 + (int)(e - encoders);
    add(e, m, V, H, "embeddings.word_embeddings.weight", "token_embd.weight", -1);
    if (!e->nomic)
        add(e, m, CONTEXT + 2 * e->roberta, H, "embeddings.position_embeddings.weight", "position_embd.weight", -1);
    add(e, m, 2, H, "embeddings.token_type_embeddings.weight", "token_types.weight", -1);
    add_both(e, m, H, 0, e->nomic ? "emb_ln" : "embeddings.LayerNorm", "token_embd_norm", -1);
    for (l = 0; l < LAYERS; l++) {
        if (e->nomic) {
            add(e, m, 3 * Q * D, H, "attn.Wqkv.weight", "attn_qkv.weight", l);
            add(e, m, H, Q * D, "attn.out_proj.weight", "attn_output.weight", l);
            add_both(e, m, H, 0, "norm1", "attn_output_norm", l);
            add(e, m, I, H, "mlp.fc11.weight", "ffn_up.weight", l);
            add(e, m, I, H, "mlp.fc12.weight", "ffn_gate.weight", l);
            add(e, m, H, I, "mlp.fc2.weight", "ffn_down.weight", l);
            add_both(e, m, H, 0, "norm2", "layer_output_norm", l);
            continue;
        }
        add_both(e, m, Q * D, H, "attention.self.query", "attn_q", l);
        add_both(e, m, Q * D, H, "attention.self.key", "attn_k", l);
        add_both(e, m, Q * D, H, "attention.self.value", "attn_v", l);
        add_both(e, m, H, Q * D, "attention.output.dense", "attn_output", l);
        add_both(e, m, H, 0, "attention.output.LayerNorm", "attn_output_norm", l);
        add_both(e, m, I, H, "intermediate.dense", "ffn_up", l);
        add_both(e, m, H, I, "output.dense", "ffn_down", l);
        add_both(e, m, H, 0, "output.LayerNorm", "layer_output_norm", l);
    }
    if (e->classifier && e->roberta) {
        add_both(&outside, m, H, H, "classifier.dense", "cls", -1);
        add_both(&outside, m, 1, H, "classifier.out_proj", "cls.output", -1);
    } else if (e->classifier) {
        add_both(e, m, H, H, "pooler.dense", "cls", -1);
        add_both(&outside, m, 1, H, "classifier", "cls.output", -1);
    }
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static const char words_json[] =
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"[PAD]\", \"special\": true, \"normalized\": false}, {\"id\": 1, "
    "\"content\": \"[UNK]\", \"special\": true, \"normalized\": false}, {\"id\": 2, \"content\": \"[CLS]\", "
    "\"special\": "
    "true, \"normalized\": false}, {\"id\": 3, \"content\": \"[SEP]\", \"special\": true, \"normalized\": false}], "
    "\"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": true, "
    "\"strip_accents\": null, \"lowercase\": true}, \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, "
    "\"post_processor\": {\"type\": \"BertProcessing\", \"sep\": [\"[SEP]\", 3], \"cls\": [\"[CLS]\", 2]}, "
    "\"decoder\": "
    "{\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}, \"model\": {\"type\": \"WordPiece\", "
    "\"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 10, \"vocab\": "
    "{\"[PAD]\": 0, \"[UNK]\": 1, \"[CLS]\": 2, \"[SEP]\": 3, \"the\": 4, \"cat\": 5, \"sat\": 6, \"##s\": 7, \"on\": "
    "8, \"mat\": 9, \".\": 10, \"cats\": 11, \"ta\": 12, \"##ta\": 13, \"caf\": 14, \"##e\": 15}}}";

static void write_config(const encoder *e, const char *folder, const char *change)
{
    char text[1024];
    if (e->as_transformers)
        snprintf(
            text, sizeof text,
            "{\"model_type\": \"nomic_bert\", \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": "
            "%d, \"intermediate_size\": %d, \"max_position_embeddings\": %d, \"vocab_size\": %d, \"head_dim\": %d, "
            "\"hidden_act\": \"silu\", \"rope_parameters\": {\"rope_theta\": 1000.0, \"rope_type\": \"default\"}, "
            "\"attention_probs_dropout_prob\": 0.1, \"hidden_dropout_prob\": 0.1, \"classifier_dropout\": 0.1, "
            "\"type_vocab_size\": 2, %s\"layer_norm_eps\": 1e-12}",
            H, LAYERS, Q, I, CONTEXT, V, D, change);
    else if (e->nomic)
        snprintf(text, sizeof text,
                 "{\"model_type\": \"nomic_bert\", \"n_embd\": %d, \"n_layer\": %d, \"n_head\": %d, \"n_inner\": %d, "
                 "\"n_positions\": %d, \"vocab_size\": %d, \"activation_function\": \"swiglu\", \"rotary_emb_base\": "
                 "1000, \"rotary_emb_fraction\": 1.0, \"rotary_emb_interleaved\": false, \"prenorm\": false, "
                 "\"type_vocab_size\": 2, %s\"layer_norm_epsilon\": 1e-12, \"qkv_proj_bias\": false}",
                 H, LAYERS, Q, I, CONTEXT, V, change);
    else
        snprintf(
            text, sizeof text,
            "{\"model_type\": \"%s\", \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
            "\"intermediate_size\": %d, \"max_position_embeddings\": %d, \"vocab_size\": %d, \"type_vocab_size\": "
            "2, %s\"layer_norm_eps\": 1e-12, \"position_embedding_type\": \"absolute\", \"pad_token_id\": %d}",
            e->model_type, H, LAYERS, Q, I, CONTEXT + 2 * e->roberta, V,
            strstr(change, "hidden_act") ? change : "\"hidden_act\": \"gelu\", ", e->roberta);
    ck_write_text(folder, "config.json", text);
}

/*  Writes a folder, which exists. */
static void write_files(const encoder *e, const ck_model *m, const char *folder)
{
    char path[256];
    write_config(e, folder, "");
    ck_write_text(folder, "tokenizer.json", words_json);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ck_write_safetensors(m, path, IGNIS_F32, 0, 1);
}

static void write_gguf_file(const encoder *e, const ck_model *m, const char *path)
{
    static const char *const texts[] = {"[PAD]",
                                        "[UNK]",
                                        "[CLS]",
                                        "[SEP]",
                                        "\xE2\x96\x81the",
                                        "\xE2\x96\x81"
                                        "cat",
                                        "s"};
    ck_bytes head = {0}, list = {0}, data = {0};
    char name[96];
    int i;
    for (i = 0; i < m->count; i++) {
        const ck_tensor *t = &m->tensors[i];
        while (data.size % 32)
            ck_put(&data, "", 1);
        ck_text(&list, t->gguf), ck_u32(&list, t->columns ? 2 : 1);
        if (t->columns)
            ck_u64(&list, (uint64_t)t->columns);
        ck_u64(&list, (uint64_t)t->rows), ck_u32(&list, 0), ck_u64(&list, data.size);
        ck_numbers(&data, t->v, (int64_t)t->rows * (t->columns ? t->columns : 1), IGNIS_F32);
    }
    ck_put(&head, "GGUF", 4), ck_u32(&head, 3), ck_u64(&head, (uint64_t)m->count), ck_u64(&head, 15);
    ck_text(&head, "general.architecture"), ck_u32(&head, 8), ck_text(&head, e->architecture);
    ck_key_u32(&head, e->architecture, "block_count", LAYERS);
    ck_key_u32(&head, e->architecture, "embedding_length", H);
    ck_key_u32(&head, e->architecture, "feed_forward_length", I);
    ck_key_u32(&head, e->architecture, "context_length", CONTEXT);
    ck_key_u32(&head, e->architecture, "attention.head_count", Q);
    ck_key_u32(&head, e->architecture, "pooling_type", 2);
    ck_key_f32(&head, e->architecture, "attention.layer_norm_epsilon", 1e-12);
    ck_key_f32(&head, e->architecture, "rope.freq_base", 1000);
    snprintf(name, sizeof name, "%s.attention.causal", e->architecture);
    ck_text(&head, name), ck_u32(&head, 7), ck_put(&head, "", 1);
    ck_text(&head, "tokenizer.ggml.model"), ck_u32(&head, 8), ck_text(&head, "bert");
    ck_key_u32(&head, "tokenizer.ggml", "cls_token_id", 2);
    ck_key_u32(&head, "tokenizer.ggml", "seperator_token_id", 3);
    ck_text(&head, "tokenizer.ggml.tokens"), ck_u32(&head, 9), ck_u32(&head, 8), ck_u64(&head, COUNT_OF(texts));
    for (i = 0; i < COUNT_OF(texts); i++)
        ck_text(&head, texts[i]);
    ck_text(&head, "tokenizer.ggml.token_type"), ck_u32(&head, 9), ck_u32(&head, 5), ck_u64(&head, COUNT_OF(texts));
    for (i = 0; i < COUNT_OF(texts); i++)
        ck_u32(&head, i == 1 ? 2 : i < 4 ? 3 : 1);
    ck_put(&head, list.data, list.size);
    while (head.size % 32)
        ck_put(&head, "", 1);
    ck_put(&head, data.data, data.size);
    test_write_file(path, head.data, head.size);
    free(head.data), free(list.data), free(data.data);
}

#endif
