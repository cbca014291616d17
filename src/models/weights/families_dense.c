/*  models/weights/families_dense.c - the tables of families whose layers have attention and one MLP

    The lists of a family are its keys of config.json and of GGUF files, what must be there, the rows of its tensors,
    and keys and tensors that change nothing. A row says where a tensor goes.
    May use: room.h, family_rows.h; family_keys.c has the keys that families share. Locks: none. */

#include "room.h"
#include "family_rows.h"

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

/* --- these families, in the order of ignis_model_family ----------------------------------------------------------- */

#define IGNIS__GEMMA (IGNIS__ONE_PLUS | IGNIS__GELU_GATE | IGNIS__SQUARE_ROOT_SCALE)
#define IGNIS__COHERE (IGNIS__LAYER_NORMS | IGNIS__PARALLEL_BLOCKS | IGNIS__HF_PAIRS | IGNIS__GGUF_PAIRS)

IGNIS__PRIVATE const ignis__family ignis__dense_families[IGNIS_MODEL_QWEN3_MOE - IGNIS_MODEL_GPT2] = {
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
};
