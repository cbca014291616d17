/*  models/weights/families.c - the table of each family: its keys, its tensors, its features

    A family is data. A new family of known features is a list of rows and an entry of ignis__families. Whatever is
    in no list here is refused by name: an entry that Ignis ignored could change what the model computes.
    May use: room.h. Locks: none. */

#include "room.h"

/* --- keys that families share ------------------------------------------------------------------------------------- */

IGNIS__PRIVATE const ignis__number_key ignis__common_keys[] = {
    {IGNIS__NUMBER_LAYERS, 'W', "num_hidden_layers", "block_count", 0, 65536},
    {IGNIS__NUMBER_HIDDEN, 'W', "hidden_size", "embedding_length", 0, 1 << 24},
    {IGNIS__NUMBER_HEADS, 'W', "num_attention_heads", "attention.head_count", 0, 65536},
    {IGNIS__NUMBER_KV_HEADS, 'w', "num_key_value_heads", "attention.head_count_kv", 0, 65536},
    {IGNIS__NUMBER_INNER, 'W', "intermediate_size", "feed_forward_length", 0, 1 << 26},
    {IGNIS__NUMBER_CONTEXT, 'W', "max_position_embeddings", "context_length", 0, 1 << 30},
    {IGNIS__NUMBER_EPS, 'r', "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6, 0},
    {IGNIS__NUMBER_HEAD_DIM, 'w', "head_dim", "attention.key_length", 0, 65536},
};

IGNIS__PRIVATE const int ignis__common_key_count = IGNIS__COUNT(ignis__common_keys);

#define IGNIS__MUST_BE(name, kind, number)       \
    {                                            \
        name, kind, number, { NULL, NULL, NULL } \
    }

IGNIS__PRIVATE const ignis__json_must ignis__common_musts[] = {
    {"hidden_act", 't', 0, {"silu", "swish", NULL}},
    IGNIS__MUST_BE("is_causal", 'b', 1),
    IGNIS__MUST_BE("is_encoder_decoder", 'b', 0),
    IGNIS__MUST_BE("add_cross_attention", 'b', 0),
    IGNIS__MUST_BE("partial_rotary_factor", 'n', 1),
    IGNIS__MUST_BE("rope_parameters.partial_rotary_factor", 'n', 1),
    IGNIS__MUST_BE("num_experts", 'n', 0),
    IGNIS__MUST_BE("num_local_experts", 'n', 0),
    IGNIS__MUST_BE("use_sliding_window", 'b', 0),
    IGNIS__MUST_BE("rope_interleaved", 'b', 0),
    /* separate settings for each type of layer */
    IGNIS__MUST_BE("rope_parameters.full_attention", '0', 0),
    IGNIS__MUST_BE("rope_parameters.sliding_attention", '0', 0),
    {"layer_types[]", 't', 0, {"full_attention", NULL, NULL}},
    IGNIS__MUST_BE("rope_scaling", '{', 0),
    IGNIS__MUST_BE("rope_parameters", '{', 0),
    IGNIS__MUST_BE("rope_scaling.mscale", '0', 0),
    IGNIS__MUST_BE("rope_parameters.mscale", '0', 0),
    IGNIS__MUST_BE("rope_scaling.mscale_all_dim", '0', 0),
    IGNIS__MUST_BE("rope_parameters.mscale_all_dim", '0', 0),
    IGNIS__MUST_BE("attn_logit_softcapping", '0', 0),
    IGNIS__MUST_BE("final_logit_softcapping", '0', 0),
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

/*  Entries of config.json that change nothing in what a model computes, or that are read elsewhere. */
IGNIS__PRIVATE const char *const ignis__harmless_keys[] = {"architectures",
                                                           "attention_bias",
                                                           "attention_dropout",
                                                           "auto_map",
                                                           "bad_words_ids",
                                                           "begin_suppress_tokens",
                                                           "bos_token_id",
                                                           "chunk_size_feed_forward",
                                                           "cls_token_id",
                                                           "cross_attention_hidden_size",
                                                           "decoder_start_token_id",
                                                           "diversity_penalty",
                                                           "do_sample",
                                                           "dtype",
                                                           "early_stopping",
                                                           "embd_pdrop",
                                                           "encoder_no_repeat_ngram_size",
                                                           "eos_token_id",
                                                           "exponential_decay_length_penalty",
                                                           "finetuning_task",
                                                           "forced_bos_token_id",
                                                           "forced_eos_token_id",
                                                           "hidden_dropout",
                                                           "id2label",
                                                           "initializer_range",
                                                           "is_decoder",
                                                           "is_llama_config",
                                                           "keys_to_ignore_at_inference",
                                                           "label2id",
                                                           "layer_types",
                                                           "length_penalty",
                                                           "mask_token_id",
                                                           "max_length",
                                                           "max_new_tokens",
                                                           "max_sequence_length",
                                                           "max_window_layers",
                                                           "min_length",
                                                           "mlp_bias",
                                                           "model_max_length",
                                                           "model_type",
                                                           "no_repeat_ngram_size",
                                                           "num_beam_groups",
                                                           "num_beams",
                                                           "num_labels",
                                                           "num_return_sequences",
                                                           "original_max_position_embeddings",
                                                           "output_attentions",
                                                           "output_hidden_states",
                                                           "output_scores",
                                                           "pad_token_id",
                                                           "prefix",
                                                           "pretraining_tp",
                                                           "problem_type",
                                                           "pruned_heads",
                                                           "quantization_config", /* packed.c reads it */
                                                           "remove_invalid_values",
                                                           "repetition_penalty",
                                                           "resid_pdrop",
                                                           "return_dict",
                                                           "return_dict_in_generate",
                                                           "rope_theta",
                                                           "sep_token_id",
                                                           "sliding_window",
                                                           "suppress_tokens",
                                                           "task_specific_params",
                                                           "temperature",
                                                           "tf_legacy_loss",
                                                           "tie_encoder_decoder",
                                                           "tie_word_embeddings",
                                                           "tokenizer_class",
                                                           "top_k",
                                                           "top_p",
                                                           "torch_dtype",
                                                           "torchscript",
                                                           "transformers.js_config",
                                                           "transformers_version",
                                                           "typical_p",
                                                           "unk_token_id",
                                                           "use_bfloat16",
                                                           "use_cache",
                                                           "vocab_size",
                                                           NULL};

/*  Entries of rope_scaling and rope_parameters. */
IGNIS__PRIVATE const char *const ignis__rope_keys[] = {"attention_factor",
                                                       "beta_fast",
                                                       "beta_slow",
                                                       "factor",
                                                       "finetuned",
                                                       "high_freq_factor",
                                                       "low_freq_factor",
                                                       "mscale",
                                                       "mscale_all_dim",
                                                       "original_max_position_embeddings",
                                                       "partial_rotary_factor",
                                                       "rope_theta",
                                                       "rope_type",
                                                       "truncate",
                                                       "type",
                                                       NULL};

/* --- tensors that families share ---------------------------------------------------------------------------------- */

#define IGNIS__ROW_MODEL(member) false, offsetof(ignis__model, member)
#define IGNIS__ROW_LAYER(member) true, offsetof(ignis__layer, member)

/*  A tensor of the model; of a layer; of a layer, if the files have it; and part of a weight of several tensors. */
#define IGNIS__MODEL_ROW(member, rows, columns, how, hf, gguf)       \
    {                                                                \
        IGNIS__ROW_MODEL(member), rows, columns, how, hf, gguf, NULL \
    }
#define IGNIS__LAYER_ROW(member, rows, columns, how, hf, gguf)                \
    {                                                                         \
        IGNIS__ROW_LAYER(member), rows, columns, how, hf, "blk.#." gguf, NULL \
    }
#define IGNIS__NAMED_ROW(member, rows, columns, how, hf, gguf) \
    IGNIS__LAYER_ROW(member, rows, columns, how, "model.layers.#." hf, gguf)
#define IGNIS__PART_ROW(member, rows, columns, how, hf, gguf, whole)                                               \
    {                                                                                                              \
        IGNIS__ROW_LAYER(member), rows, columns, how, "model.layers.#." hf, "blk.#." gguf, "model.layers.#." whole \
    }

#define IGNIS__ROWS_OF_MODEL                                                                    \
    IGNIS__MODEL_ROW(embedding, 'V', 'H', 0, "model.embed_tokens.weight", "token_embd.weight"), \
        IGNIS__MODEL_ROW(norm, 'H', 0, 0, "model.norm.weight", "output_norm.weight"),           \
        IGNIS__MODEL_ROW(head, 'V', 'H', IGNIS__MODEL_HEAD, "lm_head.weight", "output.weight")
#define IGNIS__ROWS_OF_QKV                                                                             \
    IGNIS__PART_ROW(qkv, 'Q', 'H', IGNIS__MODEL_PAIRS, "self_attn.q_proj.weight", "attn_q.weight",     \
                    "self_attn.qkv_proj.weight"),                                                      \
        IGNIS__PART_ROW(qkv, 'K', 'H', IGNIS__MODEL_PAIRS, "self_attn.k_proj.weight", "attn_k.weight", \
                        "self_attn.qkv_proj.weight"),                                                  \
        IGNIS__PART_ROW(qkv, 'K', 'H', 0, "self_attn.v_proj.weight", "attn_v.weight", "self_attn.qkv_proj.weight")
#define IGNIS__ROWS_OF_QKV_BIAS(how)                                                                          \
    IGNIS__PART_ROW(qkv_bias, 'Q', 0, (how) | IGNIS__MODEL_PAIRS, "self_attn.q_proj.bias", "attn_q.bias",     \
                    "self_attn.qkv_proj.bias"),                                                               \
        IGNIS__PART_ROW(qkv_bias, 'K', 0, (how) | IGNIS__MODEL_PAIRS, "self_attn.k_proj.bias", "attn_k.bias", \
                        "self_attn.qkv_proj.bias"),                                                           \
        IGNIS__PART_ROW(qkv_bias, 'K', 0, how, "self_attn.v_proj.bias", "attn_v.bias", "self_attn.qkv_proj.bias")
#define IGNIS__ROWS_OF_HEAD_NORMS                                                                          \
    IGNIS__NAMED_ROW(q_norm, 'D', 0, IGNIS__MODEL_PAIRS, "self_attn.q_norm.weight", "attn_q_norm.weight"), \
        IGNIS__NAMED_ROW(k_norm, 'D', 0, IGNIS__MODEL_PAIRS, "self_attn.k_norm.weight", "attn_k_norm.weight")
#define IGNIS__ROWS_OF_O                                                               \
    IGNIS__NAMED_ROW(o, 'H', 'Q', 0, "self_attn.o_proj.weight", "attn_output.weight"), \
        IGNIS__NAMED_ROW(o_bias, 'H', 0, IGNIS__MODEL_OPTIONAL, "self_attn.o_proj.bias", "attn_output.bias")
#define IGNIS__ROWS_OF_MLP                                                                                  \
    IGNIS__PART_ROW(up, 'I', 'H', 0, "mlp.gate_proj.weight", "ffn_gate.weight", "mlp.gate_up_proj.weight"), \
        IGNIS__PART_ROW(up, 'I', 'H', 0, "mlp.up_proj.weight", "ffn_up.weight", "mlp.gate_up_proj.weight"), \
        IGNIS__PART_ROW(up_bias, 'I', 0, IGNIS__MODEL_OPTIONAL, "mlp.gate_proj.bias", "ffn_gate.bias",      \
                        "mlp.gate_up_proj.bias"),                                                           \
        IGNIS__PART_ROW(up_bias, 'I', 0, IGNIS__MODEL_OPTIONAL, "mlp.up_proj.bias", "ffn_up.bias",          \
                        "mlp.gate_up_proj.bias"),                                                           \
        IGNIS__NAMED_ROW(down, 'H', 'I', 0, "mlp.down_proj.weight", "ffn_down.weight"),                     \
        IGNIS__NAMED_ROW(down_bias, 'H', 0, IGNIS__MODEL_OPTIONAL, "mlp.down_proj.bias", "ffn_down.bias")
#define IGNIS__ROW_OF_ATTN_NORM IGNIS__NAMED_ROW(attn_norm, 'H', 0, 0, "input_layernorm.weight", "attn_norm.weight")
#define IGNIS__ROW_OF_MLP_NORM \
    IGNIS__NAMED_ROW(mlp_norm, 'H', 0, 0, "post_attention_layernorm.weight", "ffn_norm.weight")

static const ignis__unused_tensor ignis__rotary_unused[] = {{"rotary_emb.inv_freq", 1}, {NULL, 0}};
static const ignis__json_must ignis__no_musts[] = {{NULL, 0, 0, {NULL, NULL, NULL}}};
static const char *const ignis__none_harmless[] = {NULL};

/* --- GPT-2 -------------------------------------------------------------------------------------------------------- */

static const ignis__number_key ignis__gpt2_keys[] = {
    {IGNIS__NUMBER_LAYERS, 'W', "n_layer", "block_count", 0, 65536},
    {IGNIS__NUMBER_HIDDEN, 'W', "n_embd", "embedding_length", 0, 1 << 24},
    {IGNIS__NUMBER_HEADS, 'W', "n_head", "attention.head_count", 0, 65536},
    {IGNIS__NUMBER_KV_HEADS, 'w', NULL, NULL, 0, 65536},
    {IGNIS__NUMBER_INNER, 'w', "n_inner", "feed_forward_length", 0, 1 << 26},
    {IGNIS__NUMBER_CONTEXT, 'W', "n_positions", "context_length", 0, 1 << 30},
    {IGNIS__NUMBER_EPS, 'r', "layer_norm_epsilon", "attention.layer_norm_epsilon", 1e-5, 0},
    {IGNIS__NUMBER_HEAD_DIM, 'w', NULL, NULL, 0, 65536},
};

static const ignis__json_must ignis__gpt2_musts[] = {
    {"activation_function", 't', 0, {"gelu_new", "gelu_pytorch_tanh", NULL}},
    IGNIS__MUST_BE("scale_attn_weights", 'b', 1),
    IGNIS__MUST_BE("scale_attn_by_inverse_layer_idx", 'b', 0),
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

static const char *const ignis__gpt2_harmless[] = {"attn_pdrop",
                                                   "gradient_checkpointing",
                                                   "n_ctx",
                                                   "reorder_and_upcast_attn",
                                                   "summary_activation",
                                                   "summary_first_dropout",
                                                   "summary_proj_to_labels",
                                                   "summary_type",
                                                   "summary_use_proj",
                                                   NULL};

static const ignis__model_row ignis__gpt2_rows[] = {
    IGNIS__MODEL_ROW(embedding, 'V', 'H', 0, "wte.weight", "token_embd.weight"),
    IGNIS__MODEL_ROW(positions, 'P', 'H', 0, "wpe.weight", "position_embd.weight"),
    IGNIS__MODEL_ROW(norm, 'H', 0, 0, "ln_f.weight", "output_norm.weight"),
    IGNIS__MODEL_ROW(norm_bias, 'H', 0, 0, "ln_f.bias", "output_norm.bias"),
    IGNIS__MODEL_ROW(head, 'V', 'H', IGNIS__MODEL_HEAD, "lm_head.weight", "output.weight"),
    IGNIS__LAYER_ROW(attn_norm, 'H', 0, 0, "h.#.ln_1.weight", "attn_norm.weight"),
    IGNIS__LAYER_ROW(attn_norm_bias, 'H', 0, 0, "h.#.ln_1.bias", "attn_norm.bias"),
    IGNIS__LAYER_ROW(qkv, '3', 'H', IGNIS__MODEL_IN_OUT, "h.#.attn.c_attn.weight", "attn_qkv.weight"),
    IGNIS__LAYER_ROW(qkv_bias, '3', 0, 0, "h.#.attn.c_attn.bias", "attn_qkv.bias"),
    IGNIS__LAYER_ROW(o, 'H', 'Q', IGNIS__MODEL_IN_OUT, "h.#.attn.c_proj.weight", "attn_output.weight"),
    IGNIS__LAYER_ROW(o_bias, 'H', 0, 0, "h.#.attn.c_proj.bias", "attn_output.bias"),
    IGNIS__LAYER_ROW(mlp_norm, 'H', 0, 0, "h.#.ln_2.weight", "ffn_norm.weight"),
    IGNIS__LAYER_ROW(mlp_norm_bias, 'H', 0, 0, "h.#.ln_2.bias", "ffn_norm.bias"),
    IGNIS__LAYER_ROW(up, 'I', 'H', IGNIS__MODEL_IN_OUT, "h.#.mlp.c_fc.weight", "ffn_up.weight"),
    IGNIS__LAYER_ROW(up_bias, 'I', 0, 0, "h.#.mlp.c_fc.bias", "ffn_up.bias"),
    IGNIS__LAYER_ROW(down, 'H', 'I', IGNIS__MODEL_IN_OUT, "h.#.mlp.c_proj.weight", "ffn_down.weight"),
    IGNIS__LAYER_ROW(down_bias, 'H', 0, 0, "h.#.mlp.c_proj.bias", "ffn_down.bias"),
};

static const ignis__unused_tensor ignis__gpt2_unused[] = {{".attn.bias", 4}, {".attn.masked_bias", -1}, {NULL, 0}};

/* --- Llama, Qwen2, Qwen3 ------------------------------------------------------------------------------------------ */

static const ignis__json_must ignis__llama_musts[] = {
    IGNIS__MUST_BE("sliding_window", '0', 0),
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

static const ignis__model_row ignis__llama_rows[] = {
    IGNIS__ROWS_OF_MODEL, IGNIS__ROW_OF_ATTN_NORM, IGNIS__ROWS_OF_QKV, IGNIS__ROWS_OF_QKV_BIAS(IGNIS__MODEL_OPTIONAL),
    IGNIS__ROWS_OF_O,     IGNIS__ROW_OF_MLP_NORM,  IGNIS__ROWS_OF_MLP,
};

static const ignis__model_row ignis__qwen2_rows[] = {
    IGNIS__ROWS_OF_MODEL, IGNIS__ROW_OF_ATTN_NORM, IGNIS__ROWS_OF_QKV, IGNIS__ROWS_OF_QKV_BIAS(0),
    IGNIS__ROWS_OF_O,     IGNIS__ROW_OF_MLP_NORM,  IGNIS__ROWS_OF_MLP,
};

static const ignis__model_row ignis__qwen3_rows[] = {
    IGNIS__ROWS_OF_MODEL,      IGNIS__ROW_OF_ATTN_NORM,
    IGNIS__ROWS_OF_QKV,        IGNIS__ROWS_OF_QKV_BIAS(IGNIS__MODEL_OPTIONAL),
    IGNIS__ROWS_OF_HEAD_NORMS, IGNIS__ROWS_OF_O,
    IGNIS__ROW_OF_MLP_NORM,    IGNIS__ROWS_OF_MLP,
};

/* --- all families, in the order of ignis_model_family ------------------------------------------------------------- */

#define IGNIS__ROWS(list) list, IGNIS__COUNT(list)
#define IGNIS__KEYS(list) list, IGNIS__COUNT(list)
#define IGNIS__NO_KEYS NULL, 0

IGNIS__PRIVATE const ignis__family ignis__families[IGNIS_MODEL_FAMILY_COUNT] = {
    {NULL, NULL, NULL, 0, NULL, 0, NULL, 0, NULL, NULL, NULL},
    {"gpt2", "gpt2", "GPT2LMHeadModel", IGNIS__LAYER_NORMS | IGNIS__POSITIONS | IGNIS__PLAIN_GELU,
     IGNIS__ROWS(ignis__gpt2_rows), IGNIS__KEYS(ignis__gpt2_keys), ignis__gpt2_musts, ignis__gpt2_harmless,
     ignis__gpt2_unused},
    {"llama", "llama", "LlamaForCausalLM", IGNIS__GGUF_PAIRS, IGNIS__ROWS(ignis__llama_rows), IGNIS__NO_KEYS,
     ignis__llama_musts, ignis__none_harmless, ignis__rotary_unused},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", 0, IGNIS__ROWS(ignis__qwen2_rows), IGNIS__NO_KEYS, ignis__no_musts,
     ignis__none_harmless, ignis__rotary_unused},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", 0, IGNIS__ROWS(ignis__qwen3_rows), IGNIS__NO_KEYS, ignis__no_musts,
     ignis__none_harmless, ignis__rotary_unused},
};
