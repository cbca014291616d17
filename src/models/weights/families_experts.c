/*  models/weights/families_experts.c - the tables of mixtures of experts, and of families with recurrent layers

    As families_dense.c. The rows of experts have IGNIS__MODEL_EXPERTS; those of recurrent layers and of layers with
    attention say which layers have them.
    May use: room.h, family_rows.h; family_keys.c has the keys that families share. Locks: none. */

#include "room.h"
#include "family_rows.h"

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

/*  Keys of experts in groups, beside which there are experts for all tokens. */
#define IGNIS__KEYS_OF_EXPERT_GROUPS(dense_layers)                                                                \
    {IGNIS__NUMBER_EXPERTS, 'W', "n_routed_experts", "expert_count", 0, 1024},                                    \
        {IGNIS__NUMBER_CHOSEN, 'W', "num_experts_per_tok", "expert_used_count", 0, 32},                           \
        {IGNIS__NUMBER_EXPERT_INNER, 'W', "moe_intermediate_size", "expert_feed_forward_length", 0, 1 << 26},     \
        {IGNIS__NUMBER_SHARED_COUNT, 'W', "n_shared_experts", "expert_shared_count", 0, 1024},                    \
        {IGNIS__NUMBER_GROUPS, 'w', "n_group", "expert_group_count", 1, 1024},                                    \
        {IGNIS__NUMBER_USED_GROUPS, 'w', "topk_group", "expert_group_used_count", 1, 1024},                       \
        {IGNIS__NUMBER_ROUTED_SCALE, 'r', "routed_scaling_factor", "expert_weights_scale", 1, 0},                 \
        {IGNIS__NUMBER_DENSE_LAYERS, 'p', "first_k_dense_replace", "leading_dense_block_count", dense_layers, 0}, \
    {                                                                                                             \
        IGNIS__NUMBER_MORE_LAYERS, 'p', "num_nextn_predict_layers", "nextn_predict_layers", 0, 0                  \
    }

static const ignis__number_key ignis__glm4_moe_keys[] = {
    {IGNIS__NUMBER_ROTARY_SHARE, 'r', "partial_rotary_factor", NULL, 0.5, 0},
    {IGNIS__NUMBER_ROTARY, 'w', NULL, "rope.dimension_count", 0, 65536},
    IGNIS__KEYS_OF_EXPERT_GROUPS(1),
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
    IGNIS__KEYS_OF_EXPERT_GROUPS(0),
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

/* --- these families, in the order of ignis_model_family ----------------------------------------------------------- */

#define IGNIS__DEEPSEEK3 (IGNIS__SIGMOID | IGNIS__HF_PAIRS | IGNIS__GGUF_PAIRS)

IGNIS__PRIVATE const ignis__family ignis__expert_families[IGNIS_MODEL_BERT - IGNIS_MODEL_QWEN3_MOE] = {
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
};

IGNIS__PRIVATE const ignis__family ignis__recurrent_families[IGNIS_MODEL_FAMILY_COUNT - IGNIS_MODEL_QWEN3_NEXT] = {
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
