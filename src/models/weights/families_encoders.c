/*  models/weights/families_encoders.c - the tables of encoders, whose texts have hidden states and no next token

    As families_dense.c. The tensors of a classifier are optional: rerankers have them.
    May use: room.h, family_rows.h; family_keys.c has the keys that families share. Locks: none. */

#include "room.h"
#include "family_rows.h"

static const ignis__number_key ignis__bert_keys[] = {
    {IGNIS__NUMBER_EPS, 'r', "layer_norm_eps", "attention.layer_norm_epsilon", 1e-12, 0},
    {IGNIS__NUMBER_TYPES, 'w', "type_vocab_size", NULL, 2, 65536},
};

static const ignis__json_must ignis__bert_musts[] = {
    {"hidden_act", 't', 0, {"gelu", NULL, NULL}},
    {"position_embedding_type", 't', 0, {"absolute", NULL, NULL}},
    IGNIS__MUST_BE("is_decoder", 'b', 0),
    IGNIS__MUST_BE("is_causal", 'b', 0),
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

static const char *const ignis__bert_harmless[] = {"attention_probs_dropout_prob",
                                                   "classifier_dropout",
                                                   "directionality",
                                                   "hidden_dropout_prob",
                                                   "gradient_checkpointing",
                                                   "output_past",
                                                   "pooler_fc_size",
                                                   "pooler_num_attention_heads",
                                                   "pooler_num_fc_layers",
                                                   "pooler_size_per_head",
                                                   "pooler_type",
                                                   "sbert_ce_default_activation_function",
                                                   "sentence_transformers",
                                                   NULL};

#define IGNIS__OF_CLASSIFIER(how) ((how) | IGNIS__MODEL_OPTIONAL)
#define IGNIS__BERT_ROW(member, rows, columns, hf, gguf) \
    IGNIS__LAYER_ROW(member, rows, columns, 0, "encoder.layer.#." hf, gguf)
#define IGNIS__BERT_PART(member, rows, columns, name, gguf, end)                                                   \
    {                                                                                                              \
        IGNIS__ROW_LAYER(member), rows, columns, 0, "encoder.layer.#.attention.self." name end, "blk.#." gguf end, \
            "encoder.layer.#.attention.self.qkv" end                                                               \
    }
#define IGNIS__ROWS_OF_BERT                                                                                         \
    IGNIS__MODEL_ROW(embedding, 'V', 'H', 0, "embeddings.word_embeddings.weight", "token_embd.weight"),             \
        IGNIS__MODEL_ROW(positions, 'P', 'H', 0, "embeddings.position_embeddings.weight", "position_embd.weight"),  \
        IGNIS__MODEL_ROW(types, 'T', 'H', 0, "embeddings.token_type_embeddings.weight", "token_types.weight"),      \
        IGNIS__MODEL_ROW(embedding_norm, 'H', 0, 0, "embeddings.LayerNorm.weight", "token_embd_norm.weight"),       \
        IGNIS__MODEL_ROW(embedding_norm_bias, 'H', 0, 0, "embeddings.LayerNorm.bias", "token_embd_norm.bias"),      \
        IGNIS__BERT_PART(qkv, 'Q', 'H', "query", "attn_q", ".weight"),                                              \
        IGNIS__BERT_PART(qkv, 'K', 'H', "key", "attn_k", ".weight"),                                                \
        IGNIS__BERT_PART(qkv, 'K', 'H', "value", "attn_v", ".weight"),                                              \
        IGNIS__BERT_PART(qkv_bias, 'Q', 0, "query", "attn_q", ".bias"),                                             \
        IGNIS__BERT_PART(qkv_bias, 'K', 0, "key", "attn_k", ".bias"),                                               \
        IGNIS__BERT_PART(qkv_bias, 'K', 0, "value", "attn_v", ".bias"),                                             \
        IGNIS__BERT_ROW(o, 'H', 'Q', "attention.output.dense.weight", "attn_output.weight"),                        \
        IGNIS__BERT_ROW(o_bias, 'H', 0, "attention.output.dense.bias", "attn_output.bias"),                         \
        IGNIS__BERT_ROW(attn_norm_behind, 'H', 0, "attention.output.LayerNorm.weight", "attn_output_norm.weight"),  \
        IGNIS__BERT_ROW(attn_norm_behind_bias, 'H', 0, "attention.output.LayerNorm.bias", "attn_output_norm.bias"), \
        IGNIS__BERT_ROW(up, 'I', 'H', "intermediate.dense.weight", "ffn_up.weight"),                                \
        IGNIS__BERT_ROW(up_bias, 'I', 0, "intermediate.dense.bias", "ffn_up.bias"),                                 \
        IGNIS__BERT_ROW(down, 'H', 'I', "output.dense.weight", "ffn_down.weight"),                                  \
        IGNIS__BERT_ROW(down_bias, 'H', 0, "output.dense.bias", "ffn_down.bias"),                                   \
        IGNIS__BERT_ROW(mlp_norm_behind, 'H', 0, "output.LayerNorm.weight", "layer_output_norm.weight"),            \
        IGNIS__BERT_ROW(mlp_norm_behind_bias, 'H', 0, "output.LayerNorm.bias", "layer_output_norm.bias")

static const ignis__model_row ignis__bert_rows[] = {
    IGNIS__ROWS_OF_BERT,
    IGNIS__MODEL_ROW(pooler, 'H', 'H', IGNIS__MODEL_OPTIONAL, "pooler.dense.weight", "cls.weight"),
    IGNIS__MODEL_ROW(pooler_bias, 'H', 0, IGNIS__MODEL_OPTIONAL, "pooler.dense.bias", "cls.bias"),
    IGNIS__MODEL_ROW(classes, 'C', 'H', IGNIS__OF_CLASSIFIER(IGNIS__MODEL_OUTSIDE), "classifier.weight",
                     "cls.output.weight"),
    IGNIS__MODEL_ROW(class_bias, 'C', 0, IGNIS__OF_CLASSIFIER(IGNIS__MODEL_OUTSIDE), "classifier.bias",
                     "cls.output.bias"),
};

/*  A RoBERTa that classifies has its pooler beside the model; the other one serves its training only. */
static const ignis__model_row ignis__roberta_rows[] = {
    IGNIS__ROWS_OF_BERT,
    IGNIS__MODEL_ROW(pooler, 'H', 'H', IGNIS__OF_CLASSIFIER(IGNIS__MODEL_OUTSIDE), "classifier.dense.weight", NULL),
    IGNIS__MODEL_ROW(pooler_bias, 'H', 0, IGNIS__OF_CLASSIFIER(IGNIS__MODEL_OUTSIDE), "classifier.dense.bias", NULL),
    IGNIS__MODEL_ROW(classes, 'C', 'H', IGNIS__OF_CLASSIFIER(IGNIS__MODEL_OUTSIDE), "classifier.out_proj.weight", NULL),
    IGNIS__MODEL_ROW(class_bias, 'C', 0, IGNIS__OF_CLASSIFIER(IGNIS__MODEL_OUTSIDE), "classifier.out_proj.bias", NULL),
};

/*  Heads that guess masked tokens, which only training needs. */
static const ignis__unused_tensor ignis__bert_unused[] = {{"embeddings.position_ids", -1},
                                                          {"cls.predictions.bias", 1},
                                                          {"cls.predictions.decoder.weight", 2},
                                                          {"cls.predictions.decoder.bias", 1},
                                                          {"cls.predictions.transform.dense.weight", 2},
                                                          {"cls.predictions.transform.dense.bias", 1},
                                                          {"cls.predictions.transform.LayerNorm.weight", 1},
                                                          {"cls.predictions.transform.LayerNorm.bias", 1},
                                                          {"cls.seq_relationship.weight", 2},
                                                          {"cls.seq_relationship.bias", 1},
                                                          {NULL, 0}};

static const ignis__unused_tensor ignis__roberta_unused[] = {{"embeddings.position_ids", -1},
                                                             {"pooler.dense.weight", 2},
                                                             {"pooler.dense.bias", 1},
                                                             {"lm_head.bias", 1},
                                                             {"lm_head.decoder.weight", 2},
                                                             {"lm_head.decoder.bias", 1},
                                                             {"lm_head.dense.weight", 2},
                                                             {"lm_head.dense.bias", 1},
                                                             {"lm_head.layer_norm.weight", 1},
                                                             {"lm_head.layer_norm.bias", 1},
                                                             {NULL, 0}};

static const ignis__number_key ignis__nomic_keys[] = {
    {IGNIS__NUMBER_LAYERS, 'W', "n_layer", "block_count", 0, 65536},
    {IGNIS__NUMBER_HIDDEN, 'W', "n_embd", "embedding_length", 0, 1 << 24},
    {IGNIS__NUMBER_HEADS, 'W', "n_head", "attention.head_count", 0, 65536},
    {IGNIS__NUMBER_KV_HEADS, 'w', NULL, NULL, 0, 65536},
    {IGNIS__NUMBER_INNER, 'W', "n_inner", "feed_forward_length", 0, 1 << 26},
    {IGNIS__NUMBER_CONTEXT, 'W', "n_positions", "context_length", 0, 1 << 30},
    {IGNIS__NUMBER_EPS, 'r', "layer_norm_epsilon", "attention.layer_norm_epsilon", 1e-12, 0},
    {IGNIS__NUMBER_HEAD_DIM, 'w', "head_dim", NULL, 0, 65536},
    {IGNIS__NUMBER_TYPES, 'w', "type_vocab_size", NULL, 2, 65536},
    /* as transformers 5 writes them */
    {IGNIS__NUMBER_LAYERS, 'W', "num_hidden_layers", NULL, 0, 65536},
    {IGNIS__NUMBER_HIDDEN, 'W', "hidden_size", NULL, 0, 1 << 24},
    {IGNIS__NUMBER_HEADS, 'W', "num_attention_heads", NULL, 0, 65536},
    {IGNIS__NUMBER_INNER, 'W', "intermediate_size", NULL, 0, 1 << 26},
    {IGNIS__NUMBER_CONTEXT, 'W', "max_position_embeddings", NULL, 0, 1 << 30},
    {IGNIS__NUMBER_EPS, 'r', "layer_norm_eps", NULL, 1e-12, 0},
};

static const ignis__json_must ignis__nomic_musts[] = {
    {"activation_function", 't', 0, {"swiglu", NULL, NULL}},
    IGNIS__MUST_BE("rotary_emb_fraction", 'n', 1),
    IGNIS__MUST_BE("scale_attn_weights", 'b', 1),
    IGNIS__MUST_BE("scale_attn_by_inverse_layer_idx", 'b', 0),
    IGNIS__MUST_BE("is_causal", 'b', 0),
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

static const char *const ignis__nomic_harmless[] = {"attention_probs_dropout_prob",
                                                    "attn_pdrop",
                                                    "classifier_dropout",
                                                    "dense_seq_output",
                                                    "fused_bias_fc",
                                                    "fused_dropout_add_ln",
                                                    "hidden_dropout_prob",
                                                    "max_trained_positions",
                                                    "pad_vocab_size_multiple",
                                                    "reorder_and_upcast_attn",
                                                    "residual_in_fp32",
                                                    "rotary_emb_base",
                                                    "summary_activation",
                                                    "summary_first_dropout",
                                                    "summary_proj_to_labels",
                                                    "summary_type",
                                                    "summary_use_proj",
                                                    "use_flash_attn",
                                                    "use_xentropy",
                                                    NULL};

#define IGNIS__NOMIC_ROW(member, rows, columns, hf, gguf) \
    IGNIS__LAYER_ROW(member, rows, columns, 0, "encoder.layers.#." hf, gguf)
#define IGNIS__NOMIC_PART(member, rows, columns, hf, gguf)                                 \
    {                                                                                      \
        IGNIS__ROW_LAYER(member), rows, columns, 0, "encoder.layers.#." hf, "blk.#." gguf, \
            "encoder.layers.#.mlp.fc12_fc11.weight"                                        \
    }

static const ignis__model_row ignis__nomic_rows[] = {
    IGNIS__MODEL_ROW(embedding, 'V', 'H', 0, "embeddings.word_embeddings.weight", "token_embd.weight"),
    IGNIS__MODEL_ROW(types, 'T', 'H', 0, "embeddings.token_type_embeddings.weight", "token_types.weight"),
    IGNIS__MODEL_ROW(embedding_norm, 'H', 0, 0, "emb_ln.weight", "token_embd_norm.weight"),
    IGNIS__MODEL_ROW(embedding_norm_bias, 'H', 0, 0, "emb_ln.bias", "token_embd_norm.bias"),
    IGNIS__NOMIC_ROW(qkv, '3', 'H', "attn.Wqkv.weight", "attn_qkv.weight"),
    IGNIS__NOMIC_ROW(o, 'H', 'Q', "attn.out_proj.weight", "attn_output.weight"),
    IGNIS__NOMIC_ROW(attn_norm_behind, 'H', 0, "norm1.weight", "attn_output_norm.weight"),
    IGNIS__NOMIC_ROW(attn_norm_behind_bias, 'H', 0, "norm1.bias", "attn_output_norm.bias"),
    IGNIS__NOMIC_PART(up, 'I', 'H', "mlp.fc12.weight", "ffn_gate.weight"),
    IGNIS__NOMIC_PART(up, 'I', 'H', "mlp.fc11.weight", "ffn_up.weight"),
    IGNIS__NOMIC_ROW(down, 'H', 'I', "mlp.fc2.weight", "ffn_down.weight"),
    IGNIS__NOMIC_ROW(mlp_norm_behind, 'H', 0, "norm2.weight", "layer_output_norm.weight"),
    IGNIS__NOMIC_ROW(mlp_norm_behind_bias, 'H', 0, "norm2.bias", "layer_output_norm.bias"),
};

/* --- these families, in the order of ignis_model_family ----------------------------------------------------------- */

#define IGNIS__BERT (IGNIS__ENCODER | IGNIS__LAYER_NORMS | IGNIS__POSITIONS | IGNIS__PLAIN_GELU | IGNIS__EXACT_GELU)

IGNIS__PRIVATE const ignis__family ignis__encoder_families[IGNIS_MODEL_QWEN3_NEXT - IGNIS_MODEL_BERT] = {
    {"bert", "bert", "BertModel", "bert.", IGNIS__BERT, IGNIS__ROWS(ignis__bert_rows), IGNIS__KEYS(ignis__bert_keys),
     ignis__bert_musts, ignis__bert_harmless, ignis__bert_unused},
    {"nomic_bert", "nomic-bert", "NomicBertModel", NULL, IGNIS__ENCODER | IGNIS__LAYER_NORMS,
     IGNIS__ROWS(ignis__nomic_rows), IGNIS__KEYS(ignis__nomic_keys), ignis__nomic_musts, ignis__nomic_harmless,
     ignis__rotary_unused},
    {"roberta", NULL, "RobertaModel", "roberta.", IGNIS__BERT | IGNIS__LATE_POSITIONS, IGNIS__ROWS(ignis__roberta_rows),
     IGNIS__KEYS(ignis__bert_keys), ignis__bert_musts, ignis__bert_harmless, ignis__roberta_unused},
    {"xlm-roberta", NULL, "XLMRobertaModel", "roberta.", IGNIS__BERT | IGNIS__LATE_POSITIONS,
     IGNIS__ROWS(ignis__roberta_rows), IGNIS__KEYS(ignis__bert_keys), ignis__bert_musts, ignis__bert_harmless,
     ignis__roberta_unused},
};
