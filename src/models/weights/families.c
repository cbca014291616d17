/*  models/weights/families.c - the table of each family: its keys, its tensors, its features

    A family is data. A new family of known features is a list of rows and an entry of ignis__families. Whatever is
    in no list here is refused by name: an entry that Ignis ignored could change what the model computes.
    May use: room.h; family_keys.c has the keys that families share. Locks: none. */

#include "room.h"

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
#define IGNIS__ROWS_OF_QKV_PARTS(how)                                                                          \
    IGNIS__PART_ROW(qkv, 'Q', 'H', (how) | IGNIS__MODEL_PAIRS, "self_attn.q_proj.weight", "attn_q.weight",     \
                    "self_attn.qkv_proj.weight"),                                                              \
        IGNIS__PART_ROW(qkv, 'K', 'H', (how) | IGNIS__MODEL_PAIRS, "self_attn.k_proj.weight", "attn_k.weight", \
                        "self_attn.qkv_proj.weight"),                                                          \
        IGNIS__PART_ROW(qkv, 'K', 'H', how, "self_attn.v_proj.weight", "attn_v.weight", "self_attn.qkv_proj.weight")
#define IGNIS__ROWS_OF_QKV IGNIS__ROWS_OF_QKV_PARTS(0)
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

static const ignis__json_must ignis__qwen_musts[] = {
    IGNIS__MUST_BE("sliding_window", '*', 0), /* use_sliding_window is false */
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

/* --- Mistral, Ministral ----------------------------------------------------------------------------------------- */

static const ignis__number_key ignis__mistral_keys[] = {
    {IGNIS__NUMBER_WINDOW, 'w', "sliding_window", "attention.sliding_window", 0, 1 << 30},
};

static const ignis__json_must ignis__window_musts[] = {
    {"layer_types[]", 't', 0, {"full_attention", "sliding_attention", NULL}},
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

/* --- Gemma -------------------------------------------------------------------------------------------------------- */

static const ignis__json_must ignis__gemma_musts[] = {
    {"hidden_act", 't', 0, {"gelu_pytorch_tanh", "gelu", NULL}}, /* transformers takes tanh for both */
    {"hidden_activation", 't', 0, {"gelu_pytorch_tanh", NULL, NULL}},
    {"layer_types[]", 't', 0, {"full_attention", "sliding_attention", NULL}},
    IGNIS__MUST_BE("rope_parameters.full_attention", '{', 0),
    IGNIS__MUST_BE("rope_parameters.sliding_attention", '{', 0),
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

static const char *const ignis__gemma_harmless[] = {"cache_implementation", "sliding_window_size", NULL};

static const ignis__number_key ignis__gemma2_keys[] = {
    {IGNIS__NUMBER_WINDOW, 'W', "sliding_window", "attention.sliding_window", 0, 1 << 30},
    {IGNIS__NUMBER_WINDOW_PERIOD, 'w', NULL, "attention.sliding_window_pattern", 2, 65536},
    {IGNIS__NUMBER_QUERY_SCALAR, 'p', "query_pre_attn_scalar", NULL, 0, 0},
    {IGNIS__NUMBER_SOFTCAP, 'p', "attn_logit_softcapping", "attn_logit_softcapping", 50, 0},
    {IGNIS__NUMBER_LOGIT_SOFTCAP, 'p', "final_logit_softcapping", "final_logit_softcapping", 30, 0},
};

static const ignis__number_key ignis__gemma3_keys[] = {
    {IGNIS__NUMBER_WINDOW, 'W', "sliding_window", "attention.sliding_window", 0, 1 << 30},
    {IGNIS__NUMBER_WINDOW_PERIOD, 'w', "sliding_window_pattern", "attention.sliding_window_pattern", 6, 65536},
    {IGNIS__NUMBER_QUERY_SCALAR, 'p', "query_pre_attn_scalar", NULL, 0, 0},
    {IGNIS__NUMBER_LOCAL_THETA, 'r', "rope_local_base_freq", "rope.freq_base_swa", 10000, 0},
    {IGNIS__NUMBER_SOFTCAP, 'p', "attn_logit_softcapping", "attn_logit_softcapping", 0, 0},
    {IGNIS__NUMBER_LOGIT_SOFTCAP, 'p', "final_logit_softcapping", "final_logit_softcapping", 0, 0},
};

#define IGNIS__ROWS_OF_GEMMA                                                                                  \
    IGNIS__MODEL_ROW(embedding, 'V', 'H', 0, "model.embed_tokens.weight", "token_embd.weight"),               \
        IGNIS__MODEL_ROW(norm, 'H', 0, IGNIS__MODEL_NORM, "model.norm.weight", "output_norm.weight"),         \
        IGNIS__MODEL_ROW(head, 'V', 'H', IGNIS__MODEL_HEAD, "lm_head.weight", "output.weight"),               \
        IGNIS__NAMED_ROW(attn_norm, 'H', 0, IGNIS__MODEL_NORM, "input_layernorm.weight", "attn_norm.weight"), \
        IGNIS__ROWS_OF_QKV, IGNIS__ROWS_OF_QKV_BIAS(IGNIS__MODEL_OPTIONAL), IGNIS__ROWS_OF_O, IGNIS__ROWS_OF_MLP
#define IGNIS__ROWS_OF_NORMS_AROUND                                                                                   \
    IGNIS__NAMED_ROW(attn_norm_behind, 'H', 0, IGNIS__MODEL_NORM, "post_attention_layernorm.weight",                  \
                     "post_attention_norm.weight"),                                                                   \
        IGNIS__NAMED_ROW(mlp_norm, 'H', 0, IGNIS__MODEL_NORM, "pre_feedforward_layernorm.weight", "ffn_norm.weight"), \
        IGNIS__NAMED_ROW(mlp_norm_behind, 'H', 0, IGNIS__MODEL_NORM, "post_feedforward_layernorm.weight",             \
                         "post_ffw_norm.weight")

static const ignis__model_row ignis__gemma_rows[] = {
    IGNIS__ROWS_OF_GEMMA,
    IGNIS__NAMED_ROW(mlp_norm, 'H', 0, IGNIS__MODEL_NORM, "post_attention_layernorm.weight", "ffn_norm.weight"),
};

static const ignis__model_row ignis__gemma2_rows[] = {IGNIS__ROWS_OF_GEMMA, IGNIS__ROWS_OF_NORMS_AROUND};

static const ignis__model_row ignis__gemma3_rows[] = {
    IGNIS__ROWS_OF_GEMMA,
    IGNIS__ROWS_OF_NORMS_AROUND,
    IGNIS__NAMED_ROW(q_norm, 'D', 0, IGNIS__MODEL_NORM, "self_attn.q_norm.weight", "attn_q_norm.weight"),
    IGNIS__NAMED_ROW(k_norm, 'D', 0, IGNIS__MODEL_NORM, "self_attn.k_norm.weight", "attn_k_norm.weight"),
};

/* --- Phi-3, Phi-4 ------------------------------------------------------------------------------------------------- */

static const ignis__number_key ignis__phi3_keys[] = {
    {IGNIS__NUMBER_WINDOW, 'w', "sliding_window", "attention.sliding_window", 0, 1 << 30},
    {IGNIS__NUMBER_ROTARY_SHARE, 'r', "partial_rotary_factor", NULL, 1, 0},
    {IGNIS__NUMBER_ROTARY, 'w', NULL, "rope.dimension_count", 0, 65536},
};

static const char *const ignis__phi3_harmless[] = {"full_attn_mod", "interpolate_factor", NULL};

#define IGNIS__ROWS_OF_FUSED_MLP                                                   \
    IGNIS__NAMED_ROW(up, 'G', 'H', 0, "mlp.gate_up_proj.weight", "ffn_up.weight"), \
        IGNIS__NAMED_ROW(down, 'H', 'I', 0, "mlp.down_proj.weight", "ffn_down.weight")

static const ignis__model_row ignis__phi3_rows[] = {
    IGNIS__ROWS_OF_MODEL,
    IGNIS__ROW_OF_ATTN_NORM,
    IGNIS__NAMED_ROW(qkv, 'F', 'H', IGNIS__MODEL_PAIRS, "self_attn.qkv_proj.weight", "attn_qkv.weight"),
    IGNIS__NAMED_ROW(o, 'H', 'Q', 0, "self_attn.o_proj.weight", "attn_output.weight"),
    IGNIS__ROW_OF_MLP_NORM,
    IGNIS__ROWS_OF_FUSED_MLP,
};

/* --- GLM-4 -------------------------------------------------------------------------------------------------------- */

static const ignis__number_key ignis__glm_keys[] = {
    {IGNIS__NUMBER_ROTARY_SHARE, 'r', "partial_rotary_factor", NULL, 0.5, 0},
    {IGNIS__NUMBER_ROTARY, 'w', NULL, "rope.dimension_count", 0, 65536},
};

static const ignis__model_row ignis__glm_rows[] = {
    IGNIS__ROWS_OF_MODEL,
    IGNIS__ROW_OF_ATTN_NORM,
    /* GGUF files of ChatGLM have q, k and v in one tensor, those of Glm apart */
    {IGNIS__ROW_LAYER(qkv), 'F', 'H', IGNIS__MODEL_PAIRS | IGNIS__MODEL_FUSED, NULL, "blk.#.attn_qkv.weight", NULL},
    IGNIS__ROWS_OF_QKV_PARTS(IGNIS__MODEL_APART),
    {IGNIS__ROW_LAYER(qkv_bias), 'F', 0, IGNIS__MODEL_PAIRS | IGNIS__MODEL_FUSED, NULL, "blk.#.attn_qkv.bias", NULL},
    IGNIS__ROWS_OF_QKV_BIAS(IGNIS__MODEL_APART | IGNIS__MODEL_OPTIONAL),
    IGNIS__ROWS_OF_O,
    IGNIS__ROW_OF_MLP_NORM,
    IGNIS__ROWS_OF_FUSED_MLP,
};

static const ignis__model_row ignis__glm4_rows[] = {
    IGNIS__ROWS_OF_MODEL,
    IGNIS__ROW_OF_ATTN_NORM,
    IGNIS__ROWS_OF_QKV,
    IGNIS__ROWS_OF_QKV_BIAS(IGNIS__MODEL_OPTIONAL),
    IGNIS__ROWS_OF_O,
    IGNIS__NAMED_ROW(attn_norm_behind, 'H', 0, 0, "post_self_attn_layernorm.weight", "post_attention_norm.weight"),
    IGNIS__ROW_OF_MLP_NORM,
    IGNIS__ROWS_OF_FUSED_MLP,
    IGNIS__NAMED_ROW(mlp_norm_behind, 'H', 0, 0, "post_mlp_layernorm.weight", "post_ffw_norm.weight"),
};

/* --- Granite 3, MiniCPM, SmolLM3: Llama with scales, or with layers that do not rotate ---------------------------- */

static const ignis__number_key ignis__granite_keys[] = {
    {IGNIS__NUMBER_ATTENTION_SCALE, 'R', "attention_multiplier", "attention.scale", 0, 0},
    {IGNIS__NUMBER_EMBEDDING_SCALE, 'R', "embedding_multiplier", "embedding_scale", 0, 0},
    {IGNIS__NUMBER_RESIDUAL_SCALE, 'R', "residual_multiplier", "residual_scale", 0, 0},
    {IGNIS__NUMBER_LOGIT_SCALE, 'R', "logits_scaling", "logit_scale", 0, 0},
};

static const ignis__number_key ignis__minicpm_keys[] = {
    {IGNIS__NUMBER_EMBEDDING_SCALE, 'R', "scale_emb", "embedding_scale", 0, 0},
    {IGNIS__NUMBER_RESIDUAL_SCALE, 'R', "scale_depth", "residual_scale", 0, 0},
    {IGNIS__NUMBER_LOGIT_SCALE, 'p', NULL, "logit_scale", 0, 0},
    {IGNIS__NUMBER_LOGIT_WIDTH, 'p', "dim_model_base", NULL, 0, 0},
};

static const ignis__number_key ignis__smollm3_keys[] = {
    {IGNIS__NUMBER_ROPE_PERIOD, 'w', "no_rope_layer_interval", NULL, 4, 65536},
};

static const char *const ignis__smollm3_harmless[] = {"no_rope_layers", NULL};

/* --- OLMo 2 and 3 ------------------------------------------------------------------------------------------------- */

static const ignis__number_key ignis__olmo2_keys[] = {
    {IGNIS__NUMBER_WINDOW, 'w', NULL, "attention.sliding_window", 0, 1 << 30},
    {IGNIS__NUMBER_WINDOW_PERIOD, 'w', NULL, "attention.sliding_window_pattern", 4, 65536},
};

static const ignis__number_key ignis__olmo3_keys[] = {
    {IGNIS__NUMBER_WINDOW, 'W', "sliding_window", NULL, 0, 1 << 30},
    {IGNIS__NUMBER_WINDOW_PERIOD, 'w', NULL, NULL, 4, 65536},
};

static const ignis__json_must ignis__olmo3_musts[] = {
    {"layer_types[]", 't', 0, {"full_attention", "sliding_attention", NULL}},
    IGNIS__MUST_BE("rope_parameters.full_attention", '{', 0),
    IGNIS__MUST_BE("rope_parameters.sliding_attention", '{', 0),
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

static const ignis__model_row ignis__olmo2_rows[] = {
    IGNIS__ROWS_OF_MODEL,
    IGNIS__ROWS_OF_QKV,
    IGNIS__ROWS_OF_QKV_BIAS(IGNIS__MODEL_OPTIONAL),
    IGNIS__NAMED_ROW(q_norm, 'Q', 0, 0, "self_attn.q_norm.weight", "attn_q_norm.weight"),
    IGNIS__NAMED_ROW(k_norm, 'K', 0, 0, "self_attn.k_norm.weight", "attn_k_norm.weight"),
    IGNIS__ROWS_OF_O,
    IGNIS__NAMED_ROW(attn_norm_behind, 'H', 0, 0, "post_attention_layernorm.weight", "post_attention_norm.weight"),
    IGNIS__ROWS_OF_MLP,
    IGNIS__NAMED_ROW(mlp_norm_behind, 'H', 0, 0, "post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
};

/* --- StableLM ----------------------------------------------------------------------------------------------------- */

static const ignis__number_key ignis__stablelm_keys[] = {
    {IGNIS__NUMBER_EPS, 'r', "layer_norm_eps", "attention.layer_norm_epsilon", 1e-5, 0},
    {IGNIS__NUMBER_ROTARY_SHARE, 'r', "partial_rotary_factor", NULL, 0.25, 0},
    {IGNIS__NUMBER_ROTARY, 'w', NULL, "rope.dimension_count", 0, 65536},
};

static const char *const ignis__stablelm_harmless[] = {"norm_eps", "use_qkv_bias", "use_parallel_residual",
                                                       "qk_layernorm", NULL};

#define IGNIS__HEAD_NORM (IGNIS__MODEL_HEAD_NORM | IGNIS__MODEL_PAIRS)

static const ignis__model_row ignis__stablelm_rows[] = {
    IGNIS__ROWS_OF_MODEL,
    IGNIS__MODEL_ROW(norm_bias, 'H', 0, 0, "model.norm.bias", "output_norm.bias"),
    IGNIS__ROW_OF_ATTN_NORM,
    IGNIS__NAMED_ROW(attn_norm_bias, 'H', 0, 0, "input_layernorm.bias", "attn_norm.bias"),
    IGNIS__ROWS_OF_QKV,
    IGNIS__ROWS_OF_QKV_BIAS(IGNIS__MODEL_OPTIONAL),
    {IGNIS__ROW_LAYER(q_norm), 'D', 0, IGNIS__HEAD_NORM, "model.layers.#.self_attn.q_layernorm.norms.@.weight", NULL,
     NULL},
    {IGNIS__ROW_LAYER(q_norm), 'Q', 0, IGNIS__HEAD_NORM, NULL, "blk.#.attn_q_norm.weight", NULL},
    {IGNIS__ROW_LAYER(k_norm), 'D', 0, IGNIS__HEAD_NORM, "model.layers.#.self_attn.k_layernorm.norms.@.weight", NULL,
     NULL},
    {IGNIS__ROW_LAYER(k_norm), 'K', 0, IGNIS__HEAD_NORM, NULL, "blk.#.attn_k_norm.weight", NULL},
    IGNIS__ROWS_OF_O,
    IGNIS__NAMED_ROW(mlp_norm, 'H', 0, IGNIS__MODEL_SERIAL, "post_attention_layernorm.weight", "ffn_norm.weight"),
    IGNIS__NAMED_ROW(mlp_norm_bias, 'H', 0, IGNIS__MODEL_SERIAL, "post_attention_layernorm.bias", "ffn_norm.bias"),
    IGNIS__ROWS_OF_MLP,
};

/* --- InternLM2: its files have q, k and v in groups of heads, or apart as GGUF files ------------------------------ */

static const char *const ignis__internlm2_harmless[] = {"attn_implementation", NULL};

#define IGNIS__GGUF_PART_ROW(member, rows, how, gguf)                       \
    {                                                                       \
        IGNIS__ROW_LAYER(member), rows, 'H', how, NULL, "blk.#." gguf, NULL \
    }

static const ignis__model_row ignis__internlm2_rows[] = {
    IGNIS__MODEL_ROW(embedding, 'V', 'H', 0, "model.tok_embeddings.weight", "token_embd.weight"),
    IGNIS__MODEL_ROW(norm, 'H', 0, 0, "model.norm.weight", "output_norm.weight"),
    IGNIS__MODEL_ROW(head, 'V', 'H', IGNIS__MODEL_HEAD, "output.weight", "output.weight"),
    IGNIS__NAMED_ROW(attn_norm, 'H', 0, 0, "attention_norm.weight", "attn_norm.weight"),
    {IGNIS__ROW_LAYER(qkv), 'F', 'H', IGNIS__MODEL_GROUPED, "model.layers.#.attention.wqkv.weight", NULL, NULL},
    IGNIS__GGUF_PART_ROW(qkv, 'Q', IGNIS__MODEL_PAIRS, "attn_q.weight"),
    IGNIS__GGUF_PART_ROW(qkv, 'K', IGNIS__MODEL_PAIRS, "attn_k.weight"),
    IGNIS__GGUF_PART_ROW(qkv, 'K', 0, "attn_v.weight"),
    IGNIS__NAMED_ROW(o, 'H', 'Q', 0, "attention.wo.weight", "attn_output.weight"),
    IGNIS__NAMED_ROW(mlp_norm, 'H', 0, 0, "ffn_norm.weight", "ffn_norm.weight"),
    IGNIS__PART_ROW(up, 'I', 'H', 0, "feed_forward.w1.weight", "ffn_gate.weight", "feed_forward.w1_w3.weight"),
    IGNIS__PART_ROW(up, 'I', 'H', 0, "feed_forward.w3.weight", "ffn_up.weight", "feed_forward.w1_w3.weight"),
    IGNIS__NAMED_ROW(down, 'H', 'I', 0, "feed_forward.w2.weight", "ffn_down.weight"),
};

/* --- Command-R ---------------------------------------------------------------------------------------------------- */

static const ignis__number_key ignis__cohere_keys[] = {
    {IGNIS__NUMBER_EPS, 'r', "layer_norm_eps", "attention.layer_norm_epsilon", 1e-5, 0},
    {IGNIS__NUMBER_LOGIT_SCALE, 'r', "logit_scale", "logit_scale", 0.0625, 0},
};

static const ignis__number_key ignis__cohere2_keys[] = {
    {IGNIS__NUMBER_EPS, 'r', "layer_norm_eps", "attention.layer_norm_epsilon", 1e-5, 0},
    {IGNIS__NUMBER_LOGIT_SCALE, 'r', "logit_scale", "logit_scale", 0.0625, 0},
    {IGNIS__NUMBER_WINDOW, 'W', "sliding_window", "attention.sliding_window", 0, 1 << 30},
    {IGNIS__NUMBER_WINDOW_PERIOD, 'w', "sliding_window_pattern", "attention.sliding_window_pattern", 4, 65536},
};

static const char *const ignis__cohere_harmless[] = {
    "cache_implementation", "order_of_interleaved_layers", "position_embedding_type",
    "rotary_pct",           "use_embedding_sharing",       "use_gated_activation",
    "use_parallel_block",   "use_parallel_embedding",      NULL};

static const ignis__json_must ignis__cohere_musts[] = {
    IGNIS__MUST_BE("use_qk_norm", '*', 0), /* hyperparameter.c reads it */
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

static const ignis__model_row ignis__cohere_rows[] = {
    IGNIS__ROWS_OF_MODEL,
    IGNIS__ROW_OF_ATTN_NORM,
    IGNIS__ROWS_OF_QKV,
    IGNIS__ROWS_OF_QKV_BIAS(IGNIS__MODEL_OPTIONAL),
    IGNIS__NAMED_ROW(q_norm, 'Q', 0, IGNIS__HEAD_NORM, "self_attn.q_norm.weight", "attn_q_norm.weight"),
    IGNIS__NAMED_ROW(k_norm, 'K', 0, IGNIS__HEAD_NORM, "self_attn.k_norm.weight", "attn_k_norm.weight"),
    IGNIS__ROWS_OF_O,
    IGNIS__ROWS_OF_MLP,
};

/* --- GPT-NeoX (Pythia) -------------------------------------------------------------------------------------------- */

static const ignis__number_key ignis__neox_keys[] = {
    {IGNIS__NUMBER_EPS, 'r', "layer_norm_eps", "attention.layer_norm_epsilon", 1e-5, 0},
    {IGNIS__NUMBER_ROTARY_SHARE, 'r', "rotary_pct", NULL, 0.25, 0},
    {IGNIS__NUMBER_ROTARY, 'w', NULL, "rope.dimension_count", 0, 65536},
};

static const ignis__json_must ignis__neox_musts[] = {
    {"hidden_act", 't', 0, {"gelu", NULL, NULL}},
    IGNIS__MUST_BE("rope_parameters.partial_rotary_factor", '*', 0), /* read with rotary_pct */
    IGNIS__MUST_BE("partial_rotary_factor", '*', 0), /* transformers 4 writes rotary_pct under this name, too */
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

static const char *const ignis__neox_harmless[] = {"classifier_dropout", "rotary_emb_base", "use_parallel_residual",
                                                   NULL};

#define IGNIS__NEOX_ROW(member, rows, columns, how, hf, gguf) \
    IGNIS__LAYER_ROW(member, rows, columns, how, "gpt_neox.layers.#." hf, gguf)
#define IGNIS__NEOX_HEADS (IGNIS__MODEL_PAIRS | IGNIS__MODEL_GROUPED)

static const ignis__model_row ignis__neox_rows[] = {
    IGNIS__MODEL_ROW(embedding, 'V', 'H', 0, "gpt_neox.embed_in.weight", "token_embd.weight"),
    IGNIS__MODEL_ROW(norm, 'H', 0, 0, "gpt_neox.final_layer_norm.weight", "output_norm.weight"),
    IGNIS__MODEL_ROW(norm_bias, 'H', 0, 0, "gpt_neox.final_layer_norm.bias", "output_norm.bias"),
    IGNIS__MODEL_ROW(head, 'V', 'H', IGNIS__MODEL_HEAD, "embed_out.weight", "output.weight"),
    IGNIS__NEOX_ROW(attn_norm, 'H', 0, 0, "input_layernorm.weight", "attn_norm.weight"),
    IGNIS__NEOX_ROW(attn_norm_bias, 'H', 0, 0, "input_layernorm.bias", "attn_norm.bias"),
    IGNIS__NEOX_ROW(qkv, 'F', 'H', IGNIS__NEOX_HEADS, "attention.query_key_value.weight", "attn_qkv.weight"),
    IGNIS__NEOX_ROW(qkv_bias, 'F', 0, IGNIS__NEOX_HEADS, "attention.query_key_value.bias", "attn_qkv.bias"),
    IGNIS__NEOX_ROW(o, 'H', 'Q', 0, "attention.dense.weight", "attn_output.weight"),
    IGNIS__NEOX_ROW(o_bias, 'H', 0, 0, "attention.dense.bias", "attn_output.bias"),
    IGNIS__NEOX_ROW(mlp_norm, 'H', 0, 0, "post_attention_layernorm.weight", "ffn_norm.weight"),
    IGNIS__NEOX_ROW(mlp_norm_bias, 'H', 0, 0, "post_attention_layernorm.bias", "ffn_norm.bias"),
    IGNIS__NEOX_ROW(up, 'I', 'H', 0, "mlp.dense_h_to_4h.weight", "ffn_up.weight"),
    IGNIS__NEOX_ROW(up_bias, 'I', 0, 0, "mlp.dense_h_to_4h.bias", "ffn_up.bias"),
    IGNIS__NEOX_ROW(down, 'H', 'I', 0, "mlp.dense_4h_to_h.weight", "ffn_down.weight"),
    IGNIS__NEOX_ROW(down_bias, 'H', 0, 0, "mlp.dense_4h_to_h.bias", "ffn_down.bias"),
};

static const ignis__unused_tensor ignis__neox_unused[] = {
    {"rotary_emb.inv_freq", 1}, {".attention.bias", 4}, {".attention.masked_bias", -1}, {NULL, 0}};

/* --- Falcon: q, k and v in groups of heads; in new decoders two norms of the same input --------------------------- */

static const ignis__number_key ignis__falcon_keys[] = {
    {IGNIS__NUMBER_KV_HEADS, 'w', "num_kv_heads", "attention.head_count_kv", 0, 65536},
    {IGNIS__NUMBER_INNER, 'w', "ffn_hidden_size", "feed_forward_length", 0, 1 << 26},
    {IGNIS__NUMBER_CONTEXT, 'w', "max_position_embeddings", "context_length", 2048, 1 << 30},
    {IGNIS__NUMBER_EPS, 'r', "layer_norm_epsilon", "attention.layer_norm_epsilon", 1e-5, 0},
    {IGNIS__NUMBER_NORMS, 'w', "num_ln_in_parallel_attn", NULL, 0, 2},
};

static const ignis__json_must ignis__falcon_musts[] = {
    IGNIS__MUST_BE("alibi", 'b', 0),         /* Falcon-RW: biases of scores by distance instead of rotation */
    IGNIS__MUST_BE("parallel_attn", 'b', 1), /* Falcon-RW */
    IGNIS__MUST_BE("apply_residual_connection_post_layernorm", 'b', 0),
    IGNIS__MUST_BE("ff_factor", 'n', 4),
    {"activation", 't', 0, {"gelu", NULL, NULL}},
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

static const char *const ignis__falcon_harmless[] = {"bias", "multi_query", "new_decoder_architecture", NULL};

#define IGNIS__FALCON_ROW(member, rows, columns, how, hf, gguf) \
    IGNIS__LAYER_ROW(member, rows, columns, how, "transformer.h.#." hf, gguf)

static const ignis__model_row ignis__falcon_rows[] = {
    IGNIS__MODEL_ROW(embedding, 'V', 'H', 0, "transformer.word_embeddings.weight", "token_embd.weight"),
    IGNIS__MODEL_ROW(norm, 'H', 0, 0, "transformer.ln_f.weight", "output_norm.weight"),
    IGNIS__MODEL_ROW(norm_bias, 'H', 0, 0, "transformer.ln_f.bias", "output_norm.bias"),
    IGNIS__MODEL_ROW(head, 'V', 'H', IGNIS__MODEL_HEAD, "lm_head.weight", "output.weight"),
    IGNIS__FALCON_ROW(attn_norm, 'H', 0, IGNIS__MODEL_ONE_NORM, "input_layernorm.weight", "attn_norm.weight"),
    IGNIS__FALCON_ROW(attn_norm_bias, 'H', 0, IGNIS__MODEL_ONE_NORM, "input_layernorm.bias", "attn_norm.bias"),
    IGNIS__FALCON_ROW(attn_norm, 'H', 0, IGNIS__MODEL_TWO_NORMS, "ln_attn.weight", "attn_norm_2.weight"),
    IGNIS__FALCON_ROW(attn_norm_bias, 'H', 0, IGNIS__MODEL_TWO_NORMS, "ln_attn.bias", "attn_norm_2.bias"),
    IGNIS__FALCON_ROW(qkv, 'F', 'H', IGNIS__MODEL_GROUPED, "self_attention.query_key_value.weight", "attn_qkv.weight"),
    IGNIS__FALCON_ROW(qkv_bias, 'F', 0, IGNIS__MODEL_GROUPED | IGNIS__MODEL_OPTIONAL,
                      "self_attention.query_key_value.bias", "attn_qkv.bias"),
    IGNIS__FALCON_ROW(o, 'H', 'Q', 0, "self_attention.dense.weight", "attn_output.weight"),
    IGNIS__FALCON_ROW(o_bias, 'H', 0, IGNIS__MODEL_OPTIONAL, "self_attention.dense.bias", "attn_output.bias"),
    IGNIS__FALCON_ROW(mlp_norm, 'H', 0, IGNIS__MODEL_TWO_NORMS, "ln_mlp.weight", "attn_norm.weight"),
    IGNIS__FALCON_ROW(mlp_norm_bias, 'H', 0, IGNIS__MODEL_TWO_NORMS, "ln_mlp.bias", "attn_norm.bias"),
    IGNIS__FALCON_ROW(up, 'I', 'H', 0, "mlp.dense_h_to_4h.weight", "ffn_up.weight"),
    IGNIS__FALCON_ROW(up_bias, 'I', 0, IGNIS__MODEL_OPTIONAL, "mlp.dense_h_to_4h.bias", "ffn_up.bias"),
    IGNIS__FALCON_ROW(down, 'H', 'I', 0, "mlp.dense_4h_to_h.weight", "ffn_down.weight"),
    IGNIS__FALCON_ROW(down_bias, 'H', 0, IGNIS__MODEL_OPTIONAL, "mlp.dense_4h_to_h.bias", "ffn_down.bias"),
};

/* --- mixtures of experts: Qwen2-MoE and others --------------------------------------------------------------- */

#define IGNIS__EXPERT_ROW(member, rows, columns, hf, gguf) \
    IGNIS__NAMED_ROW(member, rows, columns, IGNIS__MODEL_EXPERTS | IGNIS__MODEL_SPARSE, hf, gguf)
#define IGNIS__ROWS_OF_EXPERTS                                                                               \
    IGNIS__NAMED_ROW(router, 'E', 'H', IGNIS__MODEL_DENSE | IGNIS__MODEL_SPARSE, "mlp.gate.weight",          \
                     "ffn_gate_inp.weight"),                                                                 \
        IGNIS__EXPERT_ROW(gate_experts, 'X', 'H', "mlp.experts.@.gate_proj.weight", "ffn_gate_exps.weight"), \
        IGNIS__EXPERT_ROW(up_experts, 'X', 'H', "mlp.experts.@.up_proj.weight", "ffn_up_exps.weight"),       \
        IGNIS__EXPERT_ROW(down_experts, 'H', 'X', "mlp.experts.@.down_proj.weight", "ffn_down_exps.weight")

static const ignis__number_key ignis__qwen3_moe_keys[] = {
    {IGNIS__NUMBER_EXPERTS, 'W', "num_experts", "expert_count", 0, 1024},
    {IGNIS__NUMBER_EXPERTS, 'W', "num_local_experts", NULL, 0, 1024}, /* as transformers 5 writes it */
    {IGNIS__NUMBER_CHOSEN, 'W', "num_experts_per_tok", "expert_used_count", 0, 32},
    {IGNIS__NUMBER_EXPERT_INNER, 'W', "moe_intermediate_size", "expert_feed_forward_length", 0, 1 << 26},
};

static const ignis__number_key ignis__qwen2_moe_keys[] = {
    {IGNIS__NUMBER_EXPERTS, 'W', "num_experts", "expert_count", 0, 1024},
    {IGNIS__NUMBER_CHOSEN, 'W', "num_experts_per_tok", "expert_used_count", 0, 32},
    {IGNIS__NUMBER_EXPERT_INNER, 'W', "moe_intermediate_size", "expert_feed_forward_length", 0, 1 << 26},
    {IGNIS__NUMBER_SHARED_INNER, 'W', "shared_expert_intermediate_size", "expert_shared_feed_forward_length", 0,
     1 << 26},
};

static const ignis__json_must ignis__qwen3_moe_musts[] = {
    IGNIS__MUST_BE("sliding_window", '*', 0), /* use_sliding_window is false */
    IGNIS__MUST_BE("decoder_sparse_step", 'n', 1),
    IGNIS__MUST_BE("qkv_bias", 'b', 1),          /* Qwen2-MoE */
    IGNIS__MUST_BE("mlp_only_layers[]", '0', 0), /* layers without experts */
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

static const ignis__number_key ignis__mixtral_keys[] = {
    {IGNIS__NUMBER_EXPERTS, 'W', "num_local_experts", "expert_count", 0, 1024},
    {IGNIS__NUMBER_CHOSEN, 'W', "num_experts_per_tok", "expert_used_count", 0, 32},
    {IGNIS__NUMBER_WINDOW, 'w', "sliding_window", NULL, 0, 1 << 30},
};

static const ignis__number_key ignis__olmoe_keys[] = {
    {IGNIS__NUMBER_EXPERTS, 'W', "num_experts", "expert_count", 0, 1024},
    {IGNIS__NUMBER_CHOSEN, 'W', "num_experts_per_tok", "expert_used_count", 0, 32},
};

static const ignis__number_key ignis__granite_moe_keys[] = {
    {IGNIS__NUMBER_EXPERTS, 'W', "num_local_experts", "expert_count", 0, 1024},
    {IGNIS__NUMBER_CHOSEN, 'W', "num_experts_per_tok", "expert_used_count", 0, 32},
    {IGNIS__NUMBER_ATTENTION_SCALE, 'R', "attention_multiplier", "attention.scale", 0, 0},
    {IGNIS__NUMBER_EMBEDDING_SCALE, 'R', "embedding_multiplier", "embedding_scale", 0, 0},
    {IGNIS__NUMBER_RESIDUAL_SCALE, 'R', "residual_multiplier", "residual_scale", 0, 0},
    {IGNIS__NUMBER_LOGIT_SCALE, 'R', "logits_scaling", "logit_scale", 0, 0},
};

static const ignis__number_key ignis__glm4_moe_keys[] = {
    {IGNIS__NUMBER_ROTARY_SHARE, 'r', "partial_rotary_factor", NULL, 0.5, 0},
    {IGNIS__NUMBER_ROTARY, 'w', NULL, "rope.dimension_count", 0, 65536},
    {IGNIS__NUMBER_EXPERTS, 'W', "n_routed_experts", "expert_count", 0, 1024},
    {IGNIS__NUMBER_CHOSEN, 'W', "num_experts_per_tok", "expert_used_count", 0, 32},
    {IGNIS__NUMBER_EXPERT_INNER, 'W', "moe_intermediate_size", "expert_feed_forward_length", 0, 1 << 26},
    {IGNIS__NUMBER_SHARED_COUNT, 'W', "n_shared_experts", "expert_shared_count", 0, 1024},
    {IGNIS__NUMBER_GROUPS, 'w', "n_group", "expert_group_count", 1, 1024},
    {IGNIS__NUMBER_USED_GROUPS, 'w', "topk_group", "expert_group_used_count", 1, 1024},
    {IGNIS__NUMBER_ROUTED_SCALE, 'r', "routed_scaling_factor", "expert_weights_scale", 1, 0},
    {IGNIS__NUMBER_DENSE_LAYERS, 'p', "first_k_dense_replace", "leading_dense_block_count", 1, 0},
    {IGNIS__NUMBER_MORE_LAYERS, 'p', "num_nextn_predict_layers", "nextn_predict_layers", 0, 0},
};

static const char *const ignis__experts_harmless[] = {
    "mlp_only_layers", "norm_topk_prob", "output_router_logits", "router_aux_loss_coef", "router_jitter_noise", NULL};

static const char *const ignis__glm4_moe_harmless[] = {"norm_topk_prob", "output_router_logits", "use_qk_norm", NULL};

#define IGNIS__ROWS_OF_SHARED_EXPERT                                                                    \
    IGNIS__NAMED_ROW(shared_gate, '1', 'H', IGNIS__MODEL_DENSE, "mlp.shared_expert_gate.weight",        \
                     "ffn_gate_inp_shexp.weight"),                                                      \
        IGNIS__PART_ROW(up, 'I', 'H', 0, "mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", \
                        "mlp.shared_expert.gate_up_proj.weight"),                                       \
        IGNIS__PART_ROW(up, 'I', 'H', 0, "mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight",     \
                        "mlp.shared_expert.gate_up_proj.weight"),                                       \
        IGNIS__NAMED_ROW(down, 'H', 'I', 0, "mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight")

static const ignis__model_row ignis__qwen2_moe_rows[] = {
    IGNIS__ROWS_OF_MODEL,   IGNIS__ROW_OF_ATTN_NORM,
    IGNIS__ROWS_OF_QKV,     IGNIS__ROWS_OF_QKV_BIAS(IGNIS__MODEL_OPTIONAL),
    IGNIS__ROWS_OF_O,       IGNIS__ROW_OF_MLP_NORM,
    IGNIS__ROWS_OF_EXPERTS, IGNIS__ROWS_OF_SHARED_EXPERT,
};

static const ignis__model_row ignis__qwen3_moe_rows[] = {
    IGNIS__ROWS_OF_MODEL,      IGNIS__ROW_OF_ATTN_NORM,
    IGNIS__ROWS_OF_QKV,        IGNIS__ROWS_OF_QKV_BIAS(IGNIS__MODEL_OPTIONAL),
    IGNIS__ROWS_OF_HEAD_NORMS, IGNIS__ROWS_OF_O,
    IGNIS__ROW_OF_MLP_NORM,    IGNIS__ROWS_OF_EXPERTS,
};

static const ignis__model_row ignis__mixtral_rows[] = {
    IGNIS__ROWS_OF_MODEL,
    IGNIS__ROW_OF_ATTN_NORM,
    IGNIS__ROWS_OF_QKV,
    IGNIS__ROWS_OF_O,
    IGNIS__ROW_OF_MLP_NORM,
    IGNIS__NAMED_ROW(router, 'E', 'H', IGNIS__MODEL_DENSE, "block_sparse_moe.gate.weight", "ffn_gate_inp.weight"),
    IGNIS__EXPERT_ROW(gate_experts, 'X', 'H', "block_sparse_moe.experts.@.w1.weight", "ffn_gate_exps.weight"),
    IGNIS__EXPERT_ROW(up_experts, 'X', 'H', "block_sparse_moe.experts.@.w3.weight", "ffn_up_exps.weight"),
    IGNIS__EXPERT_ROW(down_experts, 'H', 'X', "block_sparse_moe.experts.@.w2.weight", "ffn_down_exps.weight"),
};

static const ignis__model_row ignis__olmoe_rows[] = {
    IGNIS__ROWS_OF_MODEL,
    IGNIS__ROW_OF_ATTN_NORM,
    IGNIS__ROWS_OF_QKV,
    IGNIS__NAMED_ROW(q_norm, 'Q', 0, 0, "self_attn.q_norm.weight", "attn_q_norm.weight"),
    IGNIS__NAMED_ROW(k_norm, 'K', 0, 0, "self_attn.k_norm.weight", "attn_k_norm.weight"),
    IGNIS__ROWS_OF_O,
    IGNIS__ROW_OF_MLP_NORM,
    IGNIS__ROWS_OF_EXPERTS,
};

/* --- gpt-oss ------------------------------------------------------------------------------------------------------ */

static const ignis__number_key ignis__gpt_oss_keys[] = {
    {IGNIS__NUMBER_EXPERTS, 'W', "num_local_experts", "expert_count", 0, 1024},
    {IGNIS__NUMBER_CHOSEN, 'W', "num_experts_per_tok", "expert_used_count", 0, 32},
    {IGNIS__NUMBER_EXPERT_INNER, 'w', NULL, "expert_feed_forward_length", 0, 1 << 26},
    {IGNIS__NUMBER_EXPERT_LIMIT, 'r', "swiglu_limit", NULL, 7, 0},
    {IGNIS__NUMBER_EPS, 'r', "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5, 0},
    {IGNIS__NUMBER_WINDOW, 'W', "sliding_window", "attention.sliding_window", 0, 1 << 30},
    {IGNIS__NUMBER_WINDOW_PERIOD, 'w', NULL, NULL, 2, 65536},
};

static const char *const ignis__gpt_oss_harmless[] = {"experts_per_token",    "initial_context_length",
                                                      "output_router_logits", "router_aux_loss_coef",
                                                      "swiglu_limit",         NULL};

#define IGNIS__TOGETHER (IGNIS__MODEL_EXPERTS | IGNIS__MODEL_TOGETHER)

static const ignis__model_row ignis__gpt_oss_rows[] = {
    IGNIS__ROWS_OF_MODEL,
    IGNIS__ROW_OF_ATTN_NORM,
    IGNIS__ROWS_OF_QKV,
    IGNIS__ROWS_OF_QKV_BIAS(0),
    IGNIS__NAMED_ROW(sinks, 'N', 0, 0, "self_attn.sinks", "attn_sinks.weight"),
    IGNIS__ROWS_OF_O,
    IGNIS__NAMED_ROW(mlp_norm, 'H', 0, 0, "post_attention_layernorm.weight", "post_attention_norm.weight"),
    IGNIS__NAMED_ROW(router, 'E', 'H', IGNIS__MODEL_DENSE, "mlp.router.weight", "ffn_gate_inp.weight"),
    IGNIS__NAMED_ROW(router_bias, 'E', 0, 0, "mlp.router.bias", "ffn_gate_inp.bias"),
    IGNIS__NAMED_ROW(gate_experts, 'X', 'H', IGNIS__TOGETHER | IGNIS__MODEL_EVEN, "mlp.experts.gate_up_proj",
                     "ffn_gate_exps.weight"),
    IGNIS__NAMED_ROW(gate_experts_bias, 'X', 0, IGNIS__TOGETHER | IGNIS__MODEL_EVEN, "mlp.experts.gate_up_proj_bias",
                     "ffn_gate_exps.bias"),
    IGNIS__NAMED_ROW(up_experts, 'X', 'H', IGNIS__TOGETHER | IGNIS__MODEL_ODD, "mlp.experts.gate_up_proj",
                     "ffn_up_exps.weight"),
    IGNIS__NAMED_ROW(up_experts_bias, 'X', 0, IGNIS__TOGETHER | IGNIS__MODEL_ODD, "mlp.experts.gate_up_proj_bias",
                     "ffn_up_exps.bias"),
    IGNIS__NAMED_ROW(down_experts, 'H', 'X', IGNIS__TOGETHER, "mlp.experts.down_proj", "ffn_down_exps.weight"),
    IGNIS__NAMED_ROW(down_experts_bias, 'H', 0, IGNIS__TOGETHER, "mlp.experts.down_proj_bias", "ffn_down_exps.bias"),
};

/* --- GLM-4.5 ---------------------------------------------------------------------------------------------------- */

/*  The first layers have an MLP, the others experts, and one for all tokens. */
#define IGNIS__ROWS_OF_SHARED_EXPERTS                                                                                  \
    IGNIS__PART_ROW(up, 'I', 'H', IGNIS__MODEL_LEADING, "mlp.gate_proj.weight", "ffn_gate.weight",                     \
                    "mlp.gate_up_proj.weight"),                                                                        \
        IGNIS__PART_ROW(up, 'I', 'H', IGNIS__MODEL_LEADING, "mlp.up_proj.weight", "ffn_up.weight",                     \
                        "mlp.gate_up_proj.weight"),                                                                    \
        IGNIS__NAMED_ROW(down, 'H', 'I', IGNIS__MODEL_LEADING, "mlp.down_proj.weight", "ffn_down.weight"),             \
        IGNIS__ROWS_OF_EXPERTS,                                                                                        \
        IGNIS__PART_ROW(up, 'S', 'H', IGNIS__MODEL_SPARSE, "mlp.shared_experts.gate_proj.weight",                      \
                        "ffn_gate_shexp.weight", "mlp.shared_experts.gate_up_proj.weight"),                            \
        IGNIS__PART_ROW(up, 'S', 'H', IGNIS__MODEL_SPARSE, "mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", \
                        "mlp.shared_experts.gate_up_proj.weight"),                                                     \
        IGNIS__NAMED_ROW(down, 'H', 'S', IGNIS__MODEL_SPARSE, "mlp.shared_experts.down_proj.weight",                   \
                         "ffn_down_shexp.weight")
#define IGNIS__ROW_OF_CHOICE_BIAS                                                                                      \
    IGNIS__NAMED_ROW(choice_bias, 'E', 0, IGNIS__MODEL_SPARSE | IGNIS__MODEL_WIDE, "mlp.gate.e_score_correction_bias", \
                     "exp_probs_b.bias")

#define IGNIS__GLM_NORM (IGNIS__MODEL_PAIRS | IGNIS__MODEL_OPTIONAL | IGNIS__MODEL_SAID)

static const ignis__model_row ignis__glm4_moe_rows[] = {
    IGNIS__ROWS_OF_MODEL,
    IGNIS__ROW_OF_ATTN_NORM,
    IGNIS__ROWS_OF_QKV,
    IGNIS__ROWS_OF_QKV_BIAS(IGNIS__MODEL_OPTIONAL),
    IGNIS__NAMED_ROW(q_norm, 'D', 0, IGNIS__GLM_NORM, "self_attn.q_norm.weight", "attn_q_norm.weight"),
    IGNIS__NAMED_ROW(k_norm, 'D', 0, IGNIS__GLM_NORM, "self_attn.k_norm.weight", "attn_k_norm.weight"),
    IGNIS__ROWS_OF_O,
    IGNIS__NAMED_ROW(mlp_norm, 'H', 0, 0, "post_attention_layernorm.weight", "post_attention_norm.weight"),
    IGNIS__ROWS_OF_SHARED_EXPERTS,
    IGNIS__ROW_OF_CHOICE_BIAS,
};

/* --- DeepSeek-V2, V2-Lite, V3, R1, Kimi-K2 ------------------------------------------------------------------------ */

static const ignis__number_key ignis__deepseek_keys[] = {
    {IGNIS__NUMBER_LATENT, 'W', "kv_lora_rank", "attention.kv_lora_rank", 0, 65536},
    {IGNIS__NUMBER_Q_RANK, 'w', "q_lora_rank", "attention.q_lora_rank", 0, 1 << 24},
    {IGNIS__NUMBER_PLAIN_DIM, 'w', "qk_nope_head_dim", NULL, 0, 65536},
    {IGNIS__NUMBER_ROTARY, 'W', "qk_rope_head_dim", "rope.dimension_count", 0, 65536},
    {IGNIS__NUMBER_HEAD_DIM, 'w', "qk_head_dim", "attention.key_length_mla", 0, 65536},
    {IGNIS__NUMBER_VALUE_DIM, 'w', "v_head_dim", "attention.value_length_mla", 0, 65536},
    {IGNIS__NUMBER_CACHED_KEY, 'w', NULL, "attention.key_length", 0, 1 << 24},
    {IGNIS__NUMBER_CACHED_VALUE, 'w', NULL, "attention.value_length", 0, 1 << 24},
    {IGNIS__NUMBER_YARN_LOG, 'p', NULL, "rope.scaling.yarn_log_multiplier", 0, 0},
    {IGNIS__NUMBER_EXPERTS, 'W', "n_routed_experts", "expert_count", 0, 1024},
    {IGNIS__NUMBER_CHOSEN, 'W', "num_experts_per_tok", "expert_used_count", 0, 32},
    {IGNIS__NUMBER_EXPERT_INNER, 'W', "moe_intermediate_size", "expert_feed_forward_length", 0, 1 << 26},
    {IGNIS__NUMBER_SHARED_COUNT, 'W', "n_shared_experts", "expert_shared_count", 0, 1024},
    {IGNIS__NUMBER_GROUPS, 'w', "n_group", "expert_group_count", 1, 1024},
    {IGNIS__NUMBER_USED_GROUPS, 'w', "topk_group", "expert_group_used_count", 1, 1024},
    {IGNIS__NUMBER_ROUTED_SCALE, 'r', "routed_scaling_factor", "expert_weights_scale", 1, 0},
    {IGNIS__NUMBER_DENSE_LAYERS, 'p', "first_k_dense_replace", "leading_dense_block_count", 0, 0},
    {IGNIS__NUMBER_MORE_LAYERS, 'p', "num_nextn_predict_layers", "nextn_predict_layers", 0, 0},
};

static const ignis__json_must ignis__deepseek2_musts[] = {
    {"topk_method", 't', 0, {"greedy", "group_limited_greedy", NULL}},
    {"scoring_func", 't', 0, {"softmax", NULL, NULL}},
    IGNIS__MUST_BE("norm_topk_prob", 'b', 0), /* transformers ignores it, the original scales nothing then */
    IGNIS__MUST_BE("moe_layer_freq", 'n', 1),
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

static const ignis__json_must ignis__deepseek3_musts[] = {
    {"topk_method", 't', 0, {"noaux_tc", NULL, NULL}},
    {"scoring_func", 't', 0, {"sigmoid", NULL, NULL}},
    IGNIS__MUST_BE("rope_interleave", 'b', 1),
    IGNIS__MUST_BE("moe_layer_freq", 'n', 1),
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

static const char *const ignis__deepseek_harmless[] = {"aux_loss_alpha", "ep_size", "head_dim",
                                                       "norm_topk_prob", "seq_aux", NULL};

#define IGNIS__QKV_ROW(rows, how, hf, gguf) \
    IGNIS__PART_ROW(qkv, rows, 'H', how, hf, gguf, "self_attn.qkv_a_proj.weight")
#define IGNIS__LATENT_ROW(rows, how, hf, gguf)                                        \
    {                                                                                 \
        IGNIS__ROW_LAYER(kv_b), rows, 'L', IGNIS__MODEL_DENSE | (how), hf, gguf, NULL \
    }
#define IGNIS__ROWS_OF_LATENT_ATTENTION                                                                            \
    IGNIS__ROWS_OF_MODEL, IGNIS__ROW_OF_ATTN_NORM,                                                                 \
        IGNIS__QKV_ROW('A', IGNIS__MODEL_LOW_RANK, "self_attn.q_a_proj.weight", "attn_q_a.weight"),                \
        IGNIS__QKV_ROW('Q', IGNIS__MODEL_DIRECT | IGNIS__MODEL_PAIRS, "self_attn.q_proj.weight", "attn_q.weight"), \
        IGNIS__QKV_ROW('M', IGNIS__MODEL_PAIRS, "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"),    \
        IGNIS__NAMED_ROW(q_a_norm, 'A', 0, IGNIS__MODEL_LOW_RANK, "self_attn.q_a_layernorm.weight",                \
                         "attn_q_a_norm.weight"),                                                                  \
        IGNIS__NAMED_ROW(q_b, 'Q', 'A', IGNIS__MODEL_LOW_RANK | IGNIS__MODEL_PAIRS, "self_attn.q_b_proj.weight",   \
                         "attn_q_b.weight"),                                                                       \
        IGNIS__NAMED_ROW(kv_a_norm, 'L', 0, 0, "self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"),        \
        IGNIS__LATENT_ROW('B', 0, "model.layers.#.self_attn.kv_b_proj.weight", NULL),                              \
        IGNIS__LATENT_ROW('B', IGNIS__MODEL_FUSED, NULL, "blk.#.attn_kv_b.weight"),                                \
        IGNIS__LATENT_ROW('U', IGNIS__MODEL_APART | IGNIS__MODEL_OF_HEADS, NULL, "blk.#.attn_k_b.weight"),         \
        IGNIS__LATENT_ROW('W', IGNIS__MODEL_APART | IGNIS__MODEL_OF_HEADS, NULL, "blk.#.attn_v_b.weight"),         \
        IGNIS__NAMED_ROW(o, 'H', 'W', 0, "self_attn.o_proj.weight", "attn_output.weight"), IGNIS__ROW_OF_MLP_NORM, \
        IGNIS__ROWS_OF_SHARED_EXPERTS

static const ignis__model_row ignis__deepseek2_rows[] = {IGNIS__ROWS_OF_LATENT_ATTENTION};
static const ignis__model_row ignis__deepseek3_rows[] = {IGNIS__ROWS_OF_LATENT_ATTENTION, IGNIS__ROW_OF_CHOICE_BIAS};

/* --- Granite-MoE ---------------------------------------------------------------------------------------------- */

#define IGNIS__GRANITE_ROW(member, rows, columns, how, hf, gguf)                                  \
    IGNIS__NAMED_ROW(member, rows, columns, IGNIS__MODEL_EXPERTS | IGNIS__MODEL_TOGETHER | (how), \
                     "block_sparse_moe." hf, gguf)

static const ignis__model_row ignis__granite_moe_rows[] = {
    IGNIS__ROWS_OF_MODEL,
    IGNIS__ROW_OF_ATTN_NORM,
    IGNIS__ROWS_OF_QKV,
    IGNIS__ROWS_OF_QKV_BIAS(IGNIS__MODEL_OPTIONAL),
    IGNIS__ROWS_OF_O,
    IGNIS__ROW_OF_MLP_NORM,
    IGNIS__NAMED_ROW(router, 'E', 'H', IGNIS__MODEL_DENSE, "block_sparse_moe.router.layer.weight",
                     "ffn_gate_inp.weight"),
    IGNIS__GRANITE_ROW(gate_experts, 'X', 'H', IGNIS__MODEL_FIRST_HALF, "input_linear.weight", "ffn_gate_exps.weight"),
    IGNIS__GRANITE_ROW(up_experts, 'X', 'H', IGNIS__MODEL_SECOND_HALF, "input_linear.weight", "ffn_up_exps.weight"),
    IGNIS__GRANITE_ROW(down_experts, 'H', 'X', 0, "output_linear.weight", "ffn_down_exps.weight"),
};

/* --- Qwen3-Next, Qwen3.5: recurrent layers, and attention with a gate --------------------------------------------- */

/*  Keys of experts come last. */
static const ignis__number_key ignis__recurrent_keys[] = {
    {IGNIS__NUMBER_ROTARY_SHARE, 'r', "partial_rotary_factor", NULL, 0.25, 0},
    {IGNIS__NUMBER_ROTARY, 'w', NULL, "rope.dimension_count", 0, 65536},
    {IGNIS__NUMBER_MORE_LAYERS, 'p', NULL, "nextn_predict_layers", 0, 0},
    {IGNIS__NUMBER_ATTENTION_PERIOD, 'w', "full_attention_interval", "full_attention_interval", 4, 65536},
    {IGNIS__NUMBER_DELTA_HEADS, 'W', "linear_num_key_heads", "ssm.group_count", 0, 32768},
    {IGNIS__NUMBER_DELTA_V_HEADS, 'W', "linear_num_value_heads", "ssm.time_step_rank", 0, 32768},
    {IGNIS__NUMBER_DELTA_K, 'W', "linear_key_head_dim", "ssm.state_size", 0, 65536},
    {IGNIS__NUMBER_DELTA_V, 'w', "linear_value_head_dim", NULL, 128, 65536},
    {IGNIS__NUMBER_DELTA_WIDTH, 'w', NULL, "ssm.inner_size", 4096, 1 << 26},
    {IGNIS__NUMBER_DELTA_CONV, 'W', "linear_conv_kernel_dim", "ssm.conv_kernel", 0, 64},
    {IGNIS__NUMBER_EXPERTS, 'W', "num_experts", "expert_count", 0, 1024},
    {IGNIS__NUMBER_CHOSEN, 'W', "num_experts_per_tok", "expert_used_count", 0, 32},
    {IGNIS__NUMBER_EXPERT_INNER, 'W', "moe_intermediate_size", "expert_feed_forward_length", 0, 1 << 26},
    {IGNIS__NUMBER_SHARED_INNER, 'W', "shared_expert_intermediate_size", "expert_shared_feed_forward_length", 0,
     1 << 26},
    {IGNIS__NUMBER_INNER, 'w', "intermediate_size", "feed_forward_length", 0, 1 << 26},
};
enum { IGNIS__RECURRENT_DENSE_KEYS = IGNIS__COUNT(ignis__recurrent_keys) - 5 };

static const ignis__json_must ignis__recurrent_musts[] = {
    {"layer_types[]", 't', 0, {"full_attention", "linear_attention", NULL}},
    IGNIS__MUST_BE("attn_output_gate", 'b', 1),
    IGNIS__MUST_BE("decoder_sparse_step", 'n', 1),
    IGNIS__MUST_BE("mlp_only_layers[]", '0', 0), /* layers without experts */
    {NULL, 0, 0, {NULL, NULL, NULL}},
};

static const char *const ignis__recurrent_harmless[] = {
    "mamba_ssm_dtype", "mlp_only_layers",      "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings",
    "norm_topk_prob",  "output_router_logits", "router_aux_loss_coef",  NULL};

/*  Tensors that predict further tokens. */
static const ignis__unused_tensor ignis__recurrent_unused[] = {{"rotary_emb.inv_freq", 1}, {"mtp.", -2}, {NULL, 0}};

#define IGNIS__ATTENTIVE_ROW(member, rows, columns, how, hf, gguf) \
    IGNIS__NAMED_ROW(member, rows, columns, IGNIS__MODEL_ATTENTIVE | (how), hf, gguf)
#define IGNIS__RECURRENT_ROW(member, rows, columns, how, hf, gguf) \
    IGNIS__NAMED_ROW(member, rows, columns, IGNIS__MODEL_RECURRENT | (how), hf, gguf)
#define IGNIS__RECURRENT_PART(member, rows, how, hf, gguf, whole) \
    IGNIS__PART_ROW(member, rows, 'H', IGNIS__MODEL_RECURRENT | (how), "linear_attn." hf, gguf, "linear_attn." whole)
#define IGNIS__ATTENTIVE_PART(rows, how, hf, gguf) \
    IGNIS__PART_ROW(qkv, rows, 'H', IGNIS__MODEL_ATTENTIVE | (how), "self_attn." hf, gguf, "self_attn.qkv_proj.weight")
#define IGNIS__HEAD_NORM_ROW(member, hf, gguf) \
    IGNIS__ATTENTIVE_ROW(member, 'D', 0, IGNIS__MODEL_NORM | IGNIS__MODEL_PAIRS, hf, gguf)
#define IGNIS__ROWS_OF_RECURRENT                                                                                     \
    IGNIS__MODEL_ROW(embedding, 'V', 'H', 0, "model.embed_tokens.weight", "token_embd.weight"),                      \
        IGNIS__MODEL_ROW(norm, 'H', 0, IGNIS__MODEL_NORM, "model.norm.weight", "output_norm.weight"),                \
        IGNIS__MODEL_ROW(head, 'V', 'H', IGNIS__MODEL_HEAD, "lm_head.weight", "output.weight"),                      \
        IGNIS__NAMED_ROW(attn_norm, 'H', 0, IGNIS__MODEL_NORM, "input_layernorm.weight", "attn_norm.weight"),        \
        IGNIS__NAMED_ROW(mlp_norm, 'H', 0, IGNIS__MODEL_NORM, "post_attention_layernorm.weight",                     \
                         "post_attention_norm.weight"),                                                              \
        IGNIS__ATTENTIVE_PART('g', IGNIS__MODEL_PAIRS, "q_proj.weight", "attn_q.weight"),                            \
        IGNIS__ATTENTIVE_PART('K', IGNIS__MODEL_PAIRS, "k_proj.weight", "attn_k.weight"),                            \
        IGNIS__ATTENTIVE_PART('K', 0, "v_proj.weight", "attn_v.weight"),                                             \
        IGNIS__ATTENTIVE_ROW(gate, 'h', 'H', 0, "self_attn.q_proj.weight", "attn_q.weight"),                         \
        IGNIS__HEAD_NORM_ROW(q_norm, "self_attn.q_norm.weight", "attn_q_norm.weight"),                               \
        IGNIS__HEAD_NORM_ROW(k_norm, "self_attn.k_norm.weight", "attn_k_norm.weight"),                               \
        IGNIS__ATTENTIVE_ROW(o, 'H', 'Q', 0, "self_attn.o_proj.weight", "attn_output.weight"),                       \
        IGNIS__RECURRENT_ROW(conv, 'l', 'w', IGNIS__MODEL_DENSE | IGNIS__MODEL_MIDDLE, "linear_attn.conv1d.weight",  \
                             "ssm_conv1d.weight"),                                                                   \
        IGNIS__RECURRENT_ROW(decay_log, 'n', 0, IGNIS__MODEL_WIDE | IGNIS__MODEL_LOG, "linear_attn.A_log", "ssm_a"), \
        IGNIS__RECURRENT_ROW(decay_bias, 'n', 0, IGNIS__MODEL_WIDE, "linear_attn.dt_bias", "ssm_dt.bias"),           \
        IGNIS__RECURRENT_ROW(delta_norm, 'Y', 0, 0, "linear_attn.norm.weight", "ssm_norm.weight"),                   \
        IGNIS__RECURRENT_ROW(o, 'H', 'Z', 0, "linear_attn.out_proj.weight", "ssm_out.weight")
#define IGNIS__ROWS_OF_APART                                                                               \
    IGNIS__RECURRENT_PART(qkv, 'l', 0, "in_proj_qkv.weight", "attn_qkv.weight", "in_proj_qkvz.weight"),    \
        IGNIS__RECURRENT_PART(qkv, 'Z', 0, "in_proj_z.weight", "attn_gate.weight", "in_proj_qkvz.weight"), \
        IGNIS__RECURRENT_PART(strengths, 'n', IGNIS__MODEL_DENSE, "in_proj_b.weight", "ssm_beta.weight",   \
                              "in_proj_ba.weight"),                                                        \
        IGNIS__RECURRENT_PART(strengths, 'n', IGNIS__MODEL_DENSE, "in_proj_a.weight", "ssm_alpha.weight",  \
                              "in_proj_ba.weight")

static const ignis__model_row ignis__qwen3_5_rows[] = {
    IGNIS__ROWS_OF_RECURRENT,
    IGNIS__ROWS_OF_APART,
    IGNIS__ROWS_OF_MLP,
};

#define IGNIS__JOINED_ROW(rows)                                                                                     \
    {                                                                                                               \
        IGNIS__ROW_LAYER(qkv), rows, 'H', IGNIS__MODEL_RECURRENT, "model.layers.#.linear_attn.in_proj_qkvz.weight", \
            NULL, NULL                                                                                              \
    }

static const ignis__model_row ignis__qwen3_next_rows[] = {
    IGNIS__ROWS_OF_RECURRENT,
    IGNIS__JOINED_ROW('q'),
    IGNIS__JOINED_ROW('k'),
    IGNIS__JOINED_ROW('v'),
    IGNIS__JOINED_ROW('z'),
    IGNIS__GGUF_PART_ROW(qkv, 'l', IGNIS__MODEL_RECURRENT, "attn_qkv.weight"),
    IGNIS__GGUF_PART_ROW(qkv, 'Z', IGNIS__MODEL_RECURRENT, "attn_gate.weight"),
    IGNIS__RECURRENT_ROW(strengths, 'b', 'H', IGNIS__MODEL_DENSE, "linear_attn.in_proj_ba.weight", "ssm_ba.weight"),
    IGNIS__RECURRENT_ROW(strengths, 'a', 'H', IGNIS__MODEL_DENSE, "linear_attn.in_proj_ba.weight", "ssm_ba.weight"),
    IGNIS__ROWS_OF_EXPERTS,
    IGNIS__ROWS_OF_SHARED_EXPERT,
};

/*  Experts of a layer are one tensor, or tensors of their own as transformers 5 writes them. */
#define IGNIS__JOINED_EXPERTS(member, rows, columns, how, hf)                                  \
    {                                                                                          \
        IGNIS__ROW_LAYER(member), rows, columns, IGNIS__TOGETHER | IGNIS__MODEL_FUSED | (how), \
            "model.layers.#.mlp.experts." hf, NULL, NULL                                       \
    }
#define IGNIS__APART_EXPERTS(member, rows, columns, hf, gguf) \
    IGNIS__NAMED_ROW(member, rows, columns, IGNIS__MODEL_EXPERTS | IGNIS__MODEL_APART, "mlp.experts.@." hf, gguf)

static const ignis__model_row ignis__qwen3_5_moe_rows[] = {
    IGNIS__ROWS_OF_RECURRENT,
    IGNIS__ROWS_OF_APART,
    IGNIS__NAMED_ROW(router, 'E', 'H', IGNIS__MODEL_DENSE, "mlp.gate.weight", "ffn_gate_inp.weight"),
    IGNIS__JOINED_EXPERTS(gate_experts, 'X', 'H', IGNIS__MODEL_FIRST_HALF, "gate_up_proj"),
    IGNIS__JOINED_EXPERTS(up_experts, 'X', 'H', IGNIS__MODEL_SECOND_HALF, "gate_up_proj"),
    IGNIS__JOINED_EXPERTS(down_experts, 'H', 'X', 0, "down_proj"),
    IGNIS__APART_EXPERTS(gate_experts, 'X', 'H', "gate_proj.weight", "ffn_gate_exps.weight"),
    IGNIS__APART_EXPERTS(up_experts, 'X', 'H', "up_proj.weight", "ffn_up_exps.weight"),
    IGNIS__APART_EXPERTS(down_experts, 'H', 'X', "down_proj.weight", "ffn_down_exps.weight"),
    IGNIS__ROWS_OF_SHARED_EXPERT,
};

/* --- encoders: BERT, RoBERTa, Nomic ------------------------------------------------------------------------------- */

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

/* --- all families, in the order of ignis_model_family ------------------------------------------------------------- */

#define IGNIS__ROWS(list) list, IGNIS__COUNT(list)
#define IGNIS__KEYS(list) list, IGNIS__COUNT(list)
#define IGNIS__NO_KEYS NULL, 0
#define IGNIS__GEMMA (IGNIS__ONE_PLUS | IGNIS__GELU_GATE | IGNIS__SQUARE_ROOT_SCALE)
#define IGNIS__BERT (IGNIS__ENCODER | IGNIS__LAYER_NORMS | IGNIS__POSITIONS | IGNIS__PLAIN_GELU | IGNIS__EXACT_GELU)
#define IGNIS__DEEPSEEK3 (IGNIS__SIGMOID | IGNIS__HF_PAIRS | IGNIS__GGUF_PAIRS)
#define IGNIS__COHERE (IGNIS__LAYER_NORMS | IGNIS__PARALLEL_BLOCKS | IGNIS__HF_PAIRS | IGNIS__GGUF_PAIRS)

IGNIS__PRIVATE const ignis__family ignis__families[IGNIS_MODEL_FAMILY_COUNT] = {
    {NULL, NULL, NULL, NULL, 0, NULL, 0, NULL, 0, NULL, NULL, NULL},
    {"gpt2", "gpt2", "GPT2LMHeadModel", "transformer.", IGNIS__LAYER_NORMS | IGNIS__POSITIONS | IGNIS__PLAIN_GELU,
     IGNIS__ROWS(ignis__gpt2_rows), IGNIS__KEYS(ignis__gpt2_keys), ignis__gpt2_musts, ignis__gpt2_harmless,
     ignis__gpt2_unused},
    {"llama", "llama", "LlamaForCausalLM", NULL, IGNIS__GGUF_PAIRS, IGNIS__ROWS(ignis__llama_rows), IGNIS__NO_KEYS,
     ignis__no_musts, ignis__none_harmless, ignis__rotary_unused},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", NULL, 0, IGNIS__ROWS(ignis__qwen2_rows), IGNIS__NO_KEYS, ignis__qwen_musts,
     ignis__none_harmless, ignis__rotary_unused},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", NULL, 0, IGNIS__ROWS(ignis__qwen3_rows), IGNIS__NO_KEYS, ignis__qwen_musts,
     ignis__none_harmless, ignis__rotary_unused},
    {"mistral", NULL, "MistralForCausalLM", NULL, IGNIS__GGUF_PAIRS, IGNIS__ROWS(ignis__llama_rows),
     IGNIS__KEYS(ignis__mistral_keys), ignis__window_musts, ignis__none_harmless, ignis__rotary_unused},
    {"ministral", NULL, "MinistralForCausalLM", NULL, IGNIS__GGUF_PAIRS, IGNIS__ROWS(ignis__llama_rows),
     IGNIS__KEYS(ignis__mistral_keys), ignis__window_musts, ignis__none_harmless, ignis__rotary_unused},
    {"gemma", "gemma", "GemmaForCausalLM", NULL, IGNIS__GEMMA, IGNIS__ROWS(ignis__gemma_rows), IGNIS__NO_KEYS,
     ignis__gemma_musts, ignis__gemma_harmless, ignis__rotary_unused},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", NULL, IGNIS__GEMMA, IGNIS__ROWS(ignis__gemma2_rows),
     IGNIS__KEYS(ignis__gemma2_keys), ignis__gemma_musts, ignis__gemma_harmless, ignis__rotary_unused},
    {"gemma3_text", "gemma3", "Gemma3ForCausalLM", NULL, IGNIS__GEMMA | IGNIS__LOCAL_ROPE,
     IGNIS__ROWS(ignis__gemma3_rows), IGNIS__KEYS(ignis__gemma3_keys), ignis__gemma_musts, ignis__gemma_harmless,
     ignis__rotary_unused},
    {"phi3", "phi3", "Phi3ForCausalLM", NULL, 0, IGNIS__ROWS(ignis__phi3_rows), IGNIS__KEYS(ignis__phi3_keys),
     ignis__window_musts, ignis__phi3_harmless, ignis__rotary_unused},
    {"glm", "chatglm", "GlmForCausalLM", NULL, IGNIS__HF_PAIRS | IGNIS__GGUF_PAIRS, IGNIS__ROWS(ignis__glm_rows),
     IGNIS__KEYS(ignis__glm_keys), ignis__no_musts, ignis__none_harmless, ignis__rotary_unused},
    {"glm4", "glm4", "Glm4ForCausalLM", NULL, IGNIS__HF_PAIRS | IGNIS__GGUF_PAIRS, IGNIS__ROWS(ignis__glm4_rows),
     IGNIS__KEYS(ignis__glm_keys), ignis__no_musts, ignis__none_harmless, ignis__rotary_unused},
    {"granite", "granite", "GraniteForCausalLM", NULL, IGNIS__GGUF_PAIRS | IGNIS__LOGITS_DIVIDED,
     IGNIS__ROWS(ignis__llama_rows), IGNIS__KEYS(ignis__granite_keys), ignis__no_musts, ignis__none_harmless,
     ignis__rotary_unused},
    {"olmo2", "olmo2", "Olmo2ForCausalLM", NULL, IGNIS__WIDE_NORMS | IGNIS__LOCAL_ROPE, IGNIS__ROWS(ignis__olmo2_rows),
     IGNIS__KEYS(ignis__olmo2_keys), ignis__no_musts, ignis__none_harmless, ignis__rotary_unused},
    {"olmo3", NULL, "Olmo3ForCausalLM", NULL, IGNIS__WIDE_NORMS | IGNIS__LOCAL_ROPE, IGNIS__ROWS(ignis__olmo2_rows),
     IGNIS__KEYS(ignis__olmo3_keys), ignis__olmo3_musts, ignis__none_harmless, ignis__rotary_unused},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM", NULL, IGNIS__GGUF_PAIRS, IGNIS__ROWS(ignis__llama_rows),
     IGNIS__KEYS(ignis__smollm3_keys), ignis__qwen_musts, ignis__smollm3_harmless, ignis__rotary_unused},
    {"minicpm", "minicpm", "MiniCPMForCausalLM", NULL, IGNIS__GGUF_PAIRS | IGNIS__LOGITS_DIVIDED | IGNIS__DEPTH_SCALE,
     IGNIS__ROWS(ignis__llama_rows), IGNIS__KEYS(ignis__minicpm_keys), ignis__no_musts, ignis__none_harmless,
     ignis__rotary_unused},
    {"stablelm", "stablelm", "StableLmForCausalLM", NULL,
     IGNIS__LAYER_NORMS | IGNIS__PARALLEL_CHOICE | IGNIS__HEAD_LAYER_NORMS, IGNIS__ROWS(ignis__stablelm_rows),
     IGNIS__KEYS(ignis__stablelm_keys), ignis__no_musts, ignis__stablelm_harmless, ignis__rotary_unused},
    {"internlm2", "internlm2", "InternLM2ForCausalLM", NULL, IGNIS__GGUF_PAIRS, IGNIS__ROWS(ignis__internlm2_rows),
     IGNIS__NO_KEYS, ignis__no_musts, ignis__internlm2_harmless, ignis__rotary_unused},
    {"cohere", "command-r", "CohereForCausalLM", NULL, IGNIS__COHERE | IGNIS__HEAD_LAYER_NORMS,
     IGNIS__ROWS(ignis__cohere_rows), IGNIS__KEYS(ignis__cohere_keys), ignis__cohere_musts, ignis__cohere_harmless,
     ignis__rotary_unused},
    {"cohere2", "cohere2", "Cohere2ForCausalLM", NULL, IGNIS__COHERE | IGNIS__ONLY_WINDOWS_ROTATE,
     IGNIS__ROWS(ignis__cohere_rows), IGNIS__KEYS(ignis__cohere2_keys), ignis__window_musts, ignis__cohere_harmless,
     ignis__rotary_unused},
    {"gpt_neox", "gptneox", "GPTNeoXForCausalLM", NULL,
     IGNIS__LAYER_NORMS | IGNIS__PLAIN_GELU | IGNIS__EXACT_GELU | IGNIS__PARALLEL_BLOCKS | IGNIS__PARALLEL_CHOICE,
     IGNIS__ROWS(ignis__neox_rows), IGNIS__KEYS(ignis__neox_keys), ignis__neox_musts, ignis__neox_harmless,
     ignis__neox_unused},
    {"falcon", "falcon", "FalconForCausalLM", NULL,
     IGNIS__LAYER_NORMS | IGNIS__PLAIN_GELU | IGNIS__EXACT_GELU | IGNIS__PARALLEL_BLOCKS | IGNIS__FALCON_CHOICES,
     IGNIS__ROWS(ignis__falcon_rows), IGNIS__KEYS(ignis__falcon_keys), ignis__falcon_musts, ignis__falcon_harmless,
     ignis__rotary_unused},
    {"qwen3_moe", "qwen3moe", "Qwen3MoeForCausalLM", NULL, IGNIS__GGUF_NORMALISED, IGNIS__ROWS(ignis__qwen3_moe_rows),
     IGNIS__KEYS(ignis__qwen3_moe_keys), ignis__qwen3_moe_musts, ignis__experts_harmless, ignis__rotary_unused},
    {"mixtral", "llama", "MixtralForCausalLM", NULL, IGNIS__NORMALISED | IGNIS__GGUF_PAIRS,
     IGNIS__ROWS(ignis__mixtral_rows), IGNIS__KEYS(ignis__mixtral_keys), ignis__no_musts, ignis__experts_harmless,
     ignis__rotary_unused},
    {"olmoe", "olmoe", "OlmoeForCausalLM", NULL, IGNIS__WIDE_NORMS, IGNIS__ROWS(ignis__olmoe_rows),
     IGNIS__KEYS(ignis__olmoe_keys), ignis__no_musts, ignis__experts_harmless, ignis__rotary_unused},
    {"qwen2_moe", "qwen2moe", "Qwen2MoeForCausalLM", NULL, 0, IGNIS__ROWS(ignis__qwen2_moe_rows),
     IGNIS__KEYS(ignis__qwen2_moe_keys), ignis__qwen3_moe_musts, ignis__experts_harmless, ignis__rotary_unused},
    {"gpt_oss", "gpt-oss", "GptOssForCausalLM", NULL, IGNIS__NORMALISED | IGNIS__UNCUT_YARN,
     IGNIS__ROWS(ignis__gpt_oss_rows), IGNIS__KEYS(ignis__gpt_oss_keys), ignis__window_musts, ignis__gpt_oss_harmless,
     ignis__rotary_unused},
    {"granitemoe", "granitemoe", "GraniteMoeForCausalLM", NULL,
     IGNIS__NORMALISED | IGNIS__GGUF_PAIRS | IGNIS__LOGITS_DIVIDED, IGNIS__ROWS(ignis__granite_moe_rows),
     IGNIS__KEYS(ignis__granite_moe_keys), ignis__no_musts, ignis__experts_harmless, ignis__rotary_unused},
    {"glm4_moe", "glm4moe", "Glm4MoeForCausalLM", NULL, IGNIS__SIGMOID, IGNIS__ROWS(ignis__glm4_moe_rows),
     IGNIS__KEYS(ignis__glm4_moe_keys), ignis__no_musts, ignis__glm4_moe_harmless, ignis__rotary_unused},
    {"deepseek_v2", "deepseek2", "DeepseekV2ForCausalLM", NULL, IGNIS__HF_PAIRS | IGNIS__GGUF_PAIRS,
     IGNIS__ROWS(ignis__deepseek2_rows), IGNIS__KEYS(ignis__deepseek_keys), ignis__deepseek2_musts,
     ignis__deepseek_harmless, ignis__rotary_unused},
    {"deepseek_v3", "deepseek2", "DeepseekV3ForCausalLM", NULL, IGNIS__DEEPSEEK3, IGNIS__ROWS(ignis__deepseek3_rows),
     IGNIS__KEYS(ignis__deepseek_keys), ignis__deepseek3_musts, ignis__deepseek_harmless, ignis__rotary_unused},
    {"kimi_k2", NULL, "DeepseekV3ForCausalLM", NULL, IGNIS__DEEPSEEK3, IGNIS__ROWS(ignis__deepseek3_rows),
     IGNIS__KEYS(ignis__deepseek_keys), ignis__deepseek3_musts, ignis__deepseek_harmless, ignis__rotary_unused},
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
    {"qwen3_next", "qwen3next", "Qwen3NextForCausalLM", NULL,
     IGNIS__RECURRENT | IGNIS__ONE_PLUS | IGNIS__GGUF_NORMALISED, IGNIS__ROWS(ignis__qwen3_next_rows),
     IGNIS__KEYS(ignis__recurrent_keys), ignis__recurrent_musts, ignis__recurrent_harmless, ignis__recurrent_unused},
    {"qwen3_5_text", "qwen35", "Qwen3_5ForCausalLM", NULL, IGNIS__RECURRENT | IGNIS__ONE_PLUS | IGNIS__GGUF_TILED,
     IGNIS__ROWS(ignis__qwen3_5_rows), ignis__recurrent_keys, IGNIS__RECURRENT_DENSE_KEYS, ignis__recurrent_musts,
     ignis__recurrent_harmless, ignis__recurrent_unused},
    {"qwen3_5_moe_text", "qwen35moe", "Qwen3_5MoeForCausalLM", NULL,
     IGNIS__RECURRENT | IGNIS__ONE_PLUS | IGNIS__GGUF_TILED | IGNIS__NORMALISED, IGNIS__ROWS(ignis__qwen3_5_moe_rows),
     IGNIS__KEYS(ignis__recurrent_keys), ignis__recurrent_musts, ignis__recurrent_harmless, ignis__recurrent_unused},
};
