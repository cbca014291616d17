// SPDX-License-Identifier: MIT
/*  test_families.c - tiny models of each family, from folders and GGUF files, against the test's own forward in double

    The forward here follows the layouts and formulas of transformers: it knows nothing of the library's tables. */
#include "fault.h"
#include "tensor.h"

#include "own_forward.h"

enum { H = 32, Q = 4, KV = 2, D = 16, I = 64, V = 61, LAYERS = 4, CONTEXT = 96, WINDOW = 5, LONG = 68, SEQ = 13 };

/*  A key of a GGUF file: kind 'u' a whole number, 'f' a real one, 'b' true or false, 't' a text. */
typedef struct gguf_key {
    const char *name;
    char kind;
    double value;
    const char *text;
} gguf_key;

/*  What a family computes, in the words of transformers. Scales are 0 for none. */
typedef struct family {
    const char *model_type, *architecture, *json;
    gguf_key keys[12];
    /* norms of a layer, by the names of their tensors, or NULL */
    const char *before_attention, *behind_attention, *before_mlp, *behind_mlp;
    const char *q_norm, *k_norm; /* per_head: layer norms with weights of each head, whose number is %d in the name */
    bool wide_norms, layer_norm, norm_bias, one_plus, gelu, parallel, biases, tied;
    bool fused_qkv, fused_mlp, grouped, neox, falcon, per_head, gguf_fused;
    int experts, chosen; /* 0: none */
    bool normalised, mixtral, shared, oss, together, rounded;
    int dense_layers, more_layers, groups, used_groups; /* dense_layers: the first ones; more_layers: after the last */
    bool sigmoid; /* shares are sigmoids, with an expert for all tokens of 2 * I */
    double routed_scale;
    int kv_heads; /* 0: KV */
    int seed;     /* of the weights; 0: that of its place in the table */
    bool hf_pairs, gguf_pairs;
    int rotary, window, period, no_rope_period, context;
    bool only_windows_rotate, local_rope;
    double theta, local_theta, linear, yarn, scale, embedding_scale, residual_scale, logit_scale, softcap,
        logit_softcap;
    double factors, attention_factor; /* longrope: frequency i is divided by factors + i / 8 */
} family;

#define LLAMA_NORMS .before_attention = "input_layernorm", .before_mlp = "post_attention_layernorm"
#define WINDOWS                                       \
    {                                                 \
        "attention.sliding_window", 'u', WINDOW, NULL \
    }
#define PATTERN(n)                                       \
    {                                                    \
        "attention.sliding_window_pattern", 'u', n, NULL \
    }
#define ROTARY(n)                            \
    {                                        \
        "rope.dimension_count", 'u', n, NULL \
    }

#define GRANITE_SCALES                                                                             \
    "\"attention_multiplier\": 0.3, \"embedding_multiplier\": 3.0, \"residual_multiplier\": 0.4, " \
    "\"logits_scaling\": 2.5"

#define GLM4_MOE(experts, chosen, used, dense)                                                         \
    "\"n_routed_experts\": " experts ", \"num_experts_per_tok\": " chosen ", \"topk_group\": " used    \
    ", \"first_k_dense_replace\": " dense ", \"n_shared_experts\": 2, \"moe_intermediate_size\": 64, " \
    "\"n_group\": 3, \"routed_scaling_factor\": 2.5, \"norm_topk_prob\": true"

static const family families[] = {
    {.model_type = "mistral", .json = "\"sliding_window\": 5", LLAMA_NORMS, .window = WINDOW, .theta = 10000},
    {.model_type = "ministral",
     .json = "\"sliding_window\": 5, \"layer_types\": [\"sliding_attention\", \"full_attention\", "
             "\"sliding_attention\", \"full_attention\"]",
     LLAMA_NORMS,
     .window = WINDOW,
     .period = 2,
     .theta = 10000},
    {.model_type = "gemma",
     .architecture = "gemma",
     .json = "\"hidden_act\": \"gelu\", \"hidden_activation\": null",
     LLAMA_NORMS,
     .one_plus = true,
     .gelu = true,
     .tied = true,
     .embedding_scale = 5.656854249492381,
     .theta = 10000},
    {.model_type = "gemma2",
     .architecture = "gemma2",
     .json = "\"hidden_activation\": \"gelu_pytorch_tanh\", \"sliding_window\": 5, \"query_pre_attn_scalar\": 16, "
             "\"attn_logit_softcapping\": 2.5, \"final_logit_softcapping\": 3.0",
     .keys = {WINDOWS, {"attn_logit_softcapping", 'f', 2.5, NULL}, {"final_logit_softcapping", 'f', 3, NULL}},
     .before_attention = "input_layernorm",
     .behind_attention = "post_attention_layernorm",
     .before_mlp = "pre_feedforward_layernorm",
     .behind_mlp = "post_feedforward_layernorm",
     .one_plus = true,
     .gelu = true,
     .tied = true,
     .window = WINDOW,
     .period = 2,
     .softcap = 2.5,
     .logit_softcap = 3,
     .embedding_scale = 5.656854249492381,
     .theta = 10000},
    {.model_type = "gemma3_text",
     .architecture = "gemma3",
     .json = "\"hidden_activation\": \"gelu_pytorch_tanh\", \"sliding_window\": 5, \"query_pre_attn_scalar\": 16, "
             "\"sliding_window_pattern\": 3, \"rope_local_base_freq\": 500, \"rope_scaling\": {\"rope_type\": "
             "\"linear\", \"factor\": 8.0}, \"attn_logit_softcapping\": null",
     .keys = {WINDOWS,
              PATTERN(3),
              {"rope.freq_base_swa", 'f', 500, NULL},
              {"rope.scaling.type", 't', 0, "linear"},
              {"rope.scaling.factor", 'f', 8, NULL}},
     .before_attention = "input_layernorm",
     .behind_attention = "post_attention_layernorm",
     .before_mlp = "pre_feedforward_layernorm",
     .behind_mlp = "post_feedforward_layernorm",
     .q_norm = "self_attn.q_norm",
     .k_norm = "self_attn.k_norm",
     .one_plus = true,
     .gelu = true,
     .tied = true,
     .window = WINDOW,
     .period = 3,
     .local_rope = true,
     .local_theta = 500,
     .linear = 8,
     .embedding_scale = 5.656854249492381,
     .theta = 10000},
    {.model_type = "phi3",
     .architecture = "phi3",
     .json = "\"sliding_window\": 5, \"original_max_position_embeddings\": 24, \"partial_rotary_factor\": 0.75, "
             "\"rope_scaling\": {\"type\": \"longrope\", \"long_factor\": [2, 2.125, 2.25, 2.375, 2.5, 2.625], "
             "\"short_factor\": [1, 1, 1, 1, 1, 1]}",
     .keys = {WINDOWS,
              ROTARY(12),
              {"rope.scaling.type", 't', 0, "longrope"},
              {"rope.scaling.attn_factor", 'f', 1.198419202103781, NULL},
              {"rope.scaling.original_context_length", 'u', 24, NULL}},
     LLAMA_NORMS,
     .fused_qkv = true,
     .fused_mlp = true,
     .rotary = 12,
     .window = WINDOW,
     .factors = 2,
     .attention_factor = 1.198419202103781, /* sqrt(1 + ln(96 / 24) / ln(24)) */
     .theta = 10000},
    {.model_type = "glm",
     .architecture = "chatglm",
     .json = "\"partial_rotary_factor\": 0.5",
     .keys = {ROTARY(8)},
     LLAMA_NORMS,
     .fused_mlp = true,
     .biases = true,
     .rotary = 8,
     .hf_pairs = true,
     .gguf_pairs = true,
     .theta = 10000},
    {.model_type = "glm", /* a GGUF file of ChatGLM */
     .architecture = "chatglm",
     .json = "\"partial_rotary_factor\": 0.5",
     .keys = {ROTARY(8)},
     LLAMA_NORMS,
     .fused_mlp = true,
     .biases = true,
     .gguf_fused = true,
     .rotary = 8,
     .hf_pairs = true,
     .gguf_pairs = true,
     .theta = 10000},
    {.model_type = "glm4",
     .architecture = "glm4",
     .json = "\"partial_rotary_factor\": 0.5",
     .keys = {ROTARY(8)},
     .before_attention = "input_layernorm",
     .behind_attention = "post_self_attn_layernorm",
     .before_mlp = "post_attention_layernorm",
     .behind_mlp = "post_mlp_layernorm",
     .fused_mlp = true,
     .biases = true,
     .rotary = 8,
     .hf_pairs = true,
     .gguf_pairs = true,
     .theta = 10000},
    {.model_type = "granite",
     .architecture = "granite",
     .json = "\"attention_multiplier\": 0.3, \"embedding_multiplier\": 3.0, \"residual_multiplier\": 0.4, "
             "\"logits_scaling\": 2.5",
     .keys = {{"attention.scale", 'f', 0.3, NULL},
              {"embedding_scale", 'f', 3, NULL},
              {"residual_scale", 'f', 0.4, NULL},
              {"logit_scale", 'f', 2.5, NULL}},
     LLAMA_NORMS,
     .gguf_pairs = true,
     .tied = true,
     .scale = 0.3,
     .embedding_scale = 3,
     .residual_scale = 0.4,
     .logit_scale = 0.4,
     .theta = 10000},
    {.model_type = "olmo2",
     .architecture = "olmo2",
     .json = "\"attention_bias\": false",
     .behind_attention = "post_attention_layernorm",
     .behind_mlp = "post_feedforward_layernorm",
     .q_norm = "self_attn.q_norm",
     .k_norm = "self_attn.k_norm",
     .wide_norms = true,
     .theta = 10000},
    {.model_type = "olmo3",
     .architecture = "olmo2",
     .json = "\"sliding_window\": 5, \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\", "
             "\"factor\": 4, \"original_max_position_embeddings\": 24, \"rope_theta\": 10000}, "
             "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 10000}}",
     .keys = {WINDOWS,
              {"rope.scaling.type", 't', 0, "yarn"},
              {"rope.scaling.factor", 'f', 4, NULL},
              {"rope.scaling.original_context_length", 'u', 24, NULL}},
     .behind_attention = "post_attention_layernorm",
     .behind_mlp = "post_feedforward_layernorm",
     .q_norm = "self_attn.q_norm",
     .k_norm = "self_attn.k_norm",
     .wide_norms = true,
     .window = WINDOW,
     .period = 4,
     .local_rope = true,
     .local_theta = 10000,
     .yarn = 4,
     .attention_factor = 1.138629436111989, /* 0.1 ln(4) + 1, of the layers that are scaled */
     .theta = 10000},
    {.model_type = "smollm3",
     .architecture = "smollm3",
     .json = "\"no_rope_layers\": [1, 1, 1, 0], \"use_sliding_window\": false, \"sliding_window\": null",
     LLAMA_NORMS,
     .gguf_pairs = true,
     .tied = true,
     .no_rope_period = 4,
     .theta = 10000},
    {.model_type = "minicpm",
     .architecture = "minicpm",
     .json = "\"scale_emb\": 12, \"scale_depth\": 1.4, \"dim_model_base\": 16",
     .keys = {{"embedding_scale", 'f', 12, NULL}, {"residual_scale", 'f', 0.7, NULL}, {"logit_scale", 'f', 2, NULL}},
     LLAMA_NORMS,
     .gguf_pairs = true,
     .tied = true,
     .embedding_scale = 12,
     .residual_scale = 0.7,
     .logit_scale = 0.5,
     .theta = 10000},
    {.model_type = "stablelm",
     .architecture = "stablelm",
     .json = "\"layer_norm_eps\": 1e-05, \"partial_rotary_factor\": 0.25, \"use_qkv_bias\": true",
     .keys = {ROTARY(4)},
     LLAMA_NORMS,
     .layer_norm = true,
     .norm_bias = true,
     .biases = true,
     .rotary = 4,
     .theta = 10000},
    {.model_type = "stablelm", /* StableLM 2 12B */
     .architecture = "stablelm",
     .json = "\"layer_norm_eps\": 1e-05, \"partial_rotary_factor\": 0.25, \"use_qkv_bias\": false, "
             "\"use_parallel_residual\": true, \"qk_layernorm\": true",
     .keys = {ROTARY(4), {"use_parallel_residual", 'b', 1, NULL}},
     .before_attention = "input_layernorm",
     .q_norm = "self_attn.q_layernorm.norms.%d",
     .k_norm = "self_attn.k_layernorm.norms.%d",
     .per_head = true,
     .layer_norm = true,
     .norm_bias = true,
     .parallel = true,
     .rotary = 4,
     .theta = 10000},
    {.model_type = "internlm2",
     .architecture = "internlm2",
     .json = "\"bias\": false, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.0}",
     .before_attention = "attention_norm",
     .before_mlp = "ffn_norm",
     .grouped = true,
     .gguf_pairs = true,
     .theta = 10000},
    {.model_type = "cohere",
     .architecture = "command-r",
     .json = "\"layer_norm_eps\": 1e-05, \"logit_scale\": 0.25",
     .keys = {{"logit_scale", 'f', 0.25, NULL}},
     .before_attention = "input_layernorm",
     .layer_norm = true,
     .parallel = true,
     .hf_pairs = true,
     .gguf_pairs = true,
     .tied = true,
     .logit_scale = 0.25,
     .theta = 10000},
    {.model_type = "cohere", /* Command R+ */
     .architecture = "command-r",
     .json = "\"layer_norm_eps\": 1e-05, \"logit_scale\": 0.25, \"use_qk_norm\": true",
     .keys = {{"logit_scale", 'f', 0.25, NULL}},
     .before_attention = "input_layernorm",
     .q_norm = "self_attn.q_norm",
     .k_norm = "self_attn.k_norm",
     .per_head = true,
     .layer_norm = true,
     .parallel = true,
     .hf_pairs = true,
     .gguf_pairs = true,
     .tied = true,
     .logit_scale = 0.25,
     .theta = 10000},
    {.model_type = "cohere2",
     .architecture = "cohere2",
     .json = "\"layer_norm_eps\": 1e-05, \"logit_scale\": 0.25, \"sliding_window\": 5, \"sliding_window_pattern\": 4",
     .keys = {WINDOWS, {"logit_scale", 'f', 0.25, NULL}},
     .before_attention = "input_layernorm",
     .layer_norm = true,
     .parallel = true,
     .hf_pairs = true,
     .gguf_pairs = true,
     .tied = true,
     .window = WINDOW,
     .period = 4,
     .only_windows_rotate = true,
     .logit_scale = 0.25,
     .theta = 10000},
    {.model_type = "gpt_neox",
     .architecture = "gptneox",
     .json = "\"layer_norm_eps\": 1e-05, \"rotary_pct\": 0.25, \"rotary_emb_base\": 10000, \"hidden_act\": \"gelu\", "
             "\"use_parallel_residual\": true, \"partial_rotary_factor\": 0.25",
     .keys = {ROTARY(4), {"use_parallel_residual", 'b', 1, NULL}},
     LLAMA_NORMS,
     .layer_norm = true,
     .norm_bias = true,
     .parallel = true,
     .neox = true,
     .biases = true,
     .kv_heads = Q,
     .rotary = 4,
     .theta = 10000},
    {.model_type = "gpt_neox", /* blocks one after the other */
     .architecture = "gptneox",
     .json = "\"layer_norm_eps\": 1e-05, \"rotary_pct\": 0.25, \"hidden_act\": \"gelu\", "
             "\"use_parallel_residual\": false",
     .keys = {ROTARY(4), {"use_parallel_residual", 'b', 0, NULL}},
     LLAMA_NORMS,
     .layer_norm = true,
     .norm_bias = true,
     .neox = true,
     .biases = true,
     .kv_heads = Q,
     .rotary = 4,
     .theta = 10000},
    {.model_type = "qwen3_moe",
     .architecture = "qwen3moe",
     .json = "\"num_local_experts\": 5, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 64, \"norm_topk_prob\": "
             "true, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [], \"router_aux_loss_coef\": 0.001",
     .keys = {{"expert_count", 'u', 5, NULL},
              {"expert_used_count", 'u', 3, NULL},
              {"expert_feed_forward_length", 'u', I, NULL}},
     LLAMA_NORMS,
     .q_norm = "self_attn.q_norm",
     .k_norm = "self_attn.k_norm",
     .experts = 5,
     .chosen = 3,
     .normalised = true,
     .theta = 10000},
    {.model_type = "mixtral",
     .architecture = "llama",
     .keys = {{"expert_count", 'u', 4, NULL}, {"expert_used_count", 'u', 2, NULL}},
     .gguf_pairs = true,
     .json = "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"sliding_window\": null, "
             "\"router_jitter_noise\": 0.0, \"router_aux_loss_coef\": 0.02",
     LLAMA_NORMS,
     .experts = 4,
     .chosen = 2,
     .normalised = true,
     .mixtral = true,
     .theta = 10000},
    {.model_type = "olmoe",
     .architecture = "olmoe",
     .json = "\"num_experts\": 6, \"num_experts_per_tok\": 3, \"norm_topk_prob\": false, \"clip_qkv\": null",
     .keys = {{"expert_count", 'u', 6, NULL}, {"expert_used_count", 'u', 3, NULL}},
     LLAMA_NORMS,
     .q_norm = "self_attn.q_norm",
     .k_norm = "self_attn.k_norm",
     .wide_norms = true,
     .experts = 6,
     .chosen = 3,
     .theta = 10000},
    {.model_type = "qwen2_moe",
     .architecture = "qwen2moe",
     .json = "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64, \"qkv_bias\": true, "
             "\"shared_expert_intermediate_size\": 64, \"norm_topk_prob\": false, \"decoder_sparse_step\": 1",
     .keys = {{"expert_count", 'u', 4, NULL},
              {"expert_used_count", 'u', 2, NULL},
              {"expert_feed_forward_length", 'u', I, NULL},
              {"expert_shared_feed_forward_length", 'u', I, NULL}},
     LLAMA_NORMS,
     .biases = true,
     .experts = 4,
     .chosen = 2,
     .shared = true,
     .theta = 10000},
    {.model_type = "gpt_oss",
     .architecture = "gpt-oss",
     .json = "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"sliding_window\": 5, \"swiglu_limit\": 0.6, "
             "\"attention_bias\": true, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"truncate\": "
             "false, \"original_max_position_embeddings\": 24}, \"quantization_config\": {\"quant_method\": "
             "\"mxfp4\"}",
     .keys = {{"expert_count", 'u', 4, NULL},
              {"expert_used_count", 'u', 2, NULL},
              {"expert_feed_forward_length", 'u', I, NULL},
              WINDOWS,
              {"rope.scaling.type", 't', 0, "yarn"},
              {"rope.scaling.factor", 'f', 4, NULL},
              {"rope.scaling.original_context_length", 'u', 24, NULL}},
     LLAMA_NORMS,
     .biases = true,
     .experts = 4,
     .chosen = 2,
     .normalised = true,
     .oss = true,
     .window = WINDOW,
     .period = 2,
     .yarn = 4,
     .attention_factor = 1.138629436111989,
     .theta = 10000},
    {.model_type = "granitemoe",
     .architecture = "granitemoe",
     .json = "\"num_local_experts\": 5, \"num_experts_per_tok\": 2, " GRANITE_SCALES ", "
             "\"output_router_logits\": false, \"router_aux_loss_coef\": 0.01",
     .keys = {{"expert_count", 'u', 5, NULL},
              {"expert_used_count", 'u', 2, NULL},
              {"attention.scale", 'f', 0.3, NULL},
              {"embedding_scale", 'f', 3, NULL},
              {"residual_scale", 'f', 0.4, NULL},
              {"logit_scale", 'f', 2.5, NULL}},
     LLAMA_NORMS,
     .gguf_pairs = true,
     .tied = true,
     .experts = 5,
     .chosen = 2,
     .normalised = true,
     .together = true,
     .scale = 0.3,
     .embedding_scale = 3,
     .residual_scale = 0.4,
     .logit_scale = 0.4,
     .theta = 10000},
    {.model_type = "glm4_moe",
     .architecture = "glm4moe",
     .json = GLM4_MOE("6", "3", "2", "1") ", \"partial_rotary_factor\": 0.5, \"use_qk_norm\": true, "
                                          "\"num_nextn_predict_layers\": 1",
     .keys = {ROTARY(8),
              {"expert_count", 'u', 6, NULL},
              {"expert_used_count", 'u', 3, NULL},
              {"expert_feed_forward_length", 'u', I, NULL},
              {"expert_shared_count", 'u', 2, NULL},
              {"expert_group_count", 'u', 3, NULL},
              {"expert_group_used_count", 'u', 2, NULL},
              {"expert_gating_func", 'u', 2, NULL},
              {"expert_weights_scale", 'f', 2.5, NULL},
              {"leading_dense_block_count", 'u', 1, NULL},
              {"nextn_predict_layers", 'u', 1, NULL}},
     LLAMA_NORMS,
     .q_norm = "self_attn.q_norm",
     .k_norm = "self_attn.k_norm",
     .biases = true,
     .rotary = 8,
     .experts = 6,
     .chosen = 3,
     .groups = 3,
     .used_groups = 2,
     .dense_layers = 1,
     .more_layers = 1,
     .sigmoid = true,
     .normalised = true,
     .routed_scale = 2.5,
     .theta = 10000},
    {.model_type = "glm4_moe", /* without norms of heads, groups, and shares that add up to 1 */
     .architecture = "glm4moe",
     .json = "\"n_routed_experts\": 5, \"num_experts_per_tok\": 2, \"n_shared_experts\": 2, "
             "\"moe_intermediate_size\": 64, \"n_group\": 1, \"topk_group\": 1, \"first_k_dense_replace\": 0, "
             "\"norm_topk_prob\": false, \"partial_rotary_factor\": 0.5, \"use_qk_norm\": false",
     .keys = {ROTARY(8),
              {"expert_count", 'u', 5, NULL},
              {"expert_used_count", 'u', 2, NULL},
              {"expert_feed_forward_length", 'u', I, NULL},
              {"expert_shared_count", 'u', 2, NULL},
              {"leading_dense_block_count", 'u', 0, NULL},
              {"expert_weights_norm", 'b', 0, NULL}},
     LLAMA_NORMS,
     .rotary = 8,
     .experts = 5,
     .chosen = 2,
     .sigmoid = true,
     .routed_scale = 1,
     .theta = 10000},
    {.model_type = "falcon", /* 7B: all heads of queries share one key; transformers writes num_kv_heads, too */
     .architecture = "falcon",
     .json = "\"layer_norm_epsilon\": 1e-05, \"multi_query\": true, \"parallel_attn\": true, \"alibi\": false, "
             "\"bias\": false, \"num_kv_heads\": 4, \"new_decoder_architecture\": false",
     .before_attention = "input_layernorm",
     .layer_norm = true,
     .norm_bias = true,
     .parallel = true,
     .falcon = true,
     .seed = 200,
     .tied = true,
     .kv_heads = 1,
     .theta = 10000},
    {.model_type = "falcon", /* 40B */
     .architecture = "falcon",
     .json = "\"layer_norm_epsilon\": 1e-05, \"num_kv_heads\": 2, \"new_decoder_architecture\": true, "
             "\"activation\": \"gelu\", \"num_ln_in_parallel_attn\": null",
     .before_attention = "ln_attn",
     .before_mlp = "ln_mlp",
     .layer_norm = true,
     .norm_bias = true,
     .parallel = true,
     .falcon = true,
     .seed = 201,
     .theta = 10000},
    {.model_type = "falcon", /* 11B, with biases as only smaller ones have them */
     .architecture = "falcon",
     .json = "\"layer_norm_epsilon\": 1e-05, \"num_kv_heads\": 2, \"new_decoder_architecture\": true, "
             "\"num_ln_in_parallel_attn\": 1, \"bias\": true, \"ff_factor\": 4",
     .before_attention = "input_layernorm",
     .layer_norm = true,
     .norm_bias = true,
     .parallel = true,
     .falcon = true,
     .seed = 202,
     .biases = true,
     .theta = 10000},
};
enum { FAMILIES = COUNT_OF(families) };

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/*  The names of a folder that depend on the family: of its layers, and of a layer's weights. */
static const char *layers_of(const ck_model *m)
{
    return strcmp(m->family, "gpt_neox") == 0 ? "gpt_neox.layers"
           : strcmp(m->family, "falcon") == 0 ? "transformer.h"
                                              : "model.layers";
}

static const char *qkv_name(const family *f)
{
    return f->neox      ? "attention.query_key_value"
           : f->falcon  ? "self_attention.query_key_value"
           : f->grouped ? "attention.wqkv"
                        : "self_attn.qkv_proj";
}

static const char *o_name(const family *f)
{
    return f->neox      ? "attention.dense"
           : f->falcon  ? "self_attention.dense"
           : f->grouped ? "attention.wo"
                        : "self_attn.o_proj";
}

static void add(ck_model *m, int rows, int columns, const char *name, const char *gguf, int layer)
{
    char hf[96], own[64];
    snprintf(hf, sizeof hf, layer < 0 ? "%s%s" : "%s.%%d.%s", layer < 0 ? "" : layers_of(m), name);
    snprintf(own, sizeof own, layer < 0 ? "%s" : "blk.%%d.%s", gguf);
    ck_add(m, rows, columns, hf, own, layer, false, false);
}

static void add_norm(const family *f, ck_model *m, int rows, const char *name, const char *gguf, int layer)
{
    char hf[96], own[64];
    int64_t i;
    if (!name)
        return;
    snprintf(hf, sizeof hf, "%s.weight", name);
    snprintf(own, sizeof own, "%s.weight", gguf);
    add(m, rows, 0, hf, own, layer);
    for (i = 0; f->one_plus && i < rows; i++) /* around 0 */
        m->tensors[m->count - 1].v[i] = (double)(float)(m->tensors[m->count - 1].v[i] - 1);
    snprintf(hf, sizeof hf, "%s.bias", name);
    snprintf(own, sizeof own, "%s.bias", gguf);
    if (f->norm_bias)
        add(m, rows, 0, hf, own, layer);
}

/*  In a GGUF file the norms of all heads are one tensor: write_gguf_file joins them. */
static void add_head_norms(ck_model *m, int heads, const char *name, const char *gguf, int layer)
{
    char hf[64], whole[96];
    int head;
    for (head = 0; head < (strchr(name, '%') ? heads : 1); head++) {
        snprintf(hf, sizeof hf, name, head);
        snprintf(whole, sizeof whole, "%s.weight", hf);
        add(m, strchr(name, '%') ? D : heads, strchr(name, '%') ? 0 : D, whole, gguf, layer);
    }
}

/*  Where the tensor of an expert is: of gate, up or down. */
static void expert_name(const family *f, int expert, int which, char name[64])
{
    static const char *const mixtral[] = {"w1", "w3", "w2"}, *const others[] = {"gate_proj", "up_proj", "down_proj"};
    snprintf(name, 64, "%s.experts.%d.%s", f->mixtral ? "block_sparse_moe" : "mlp", expert,
             (f->mixtral ? mixtral : others)[which]);
}

/*  Numbers of MXFP4 of tensor `tensor`: the exponent of a block of 32, and four bits. */
static int mx_exponent(int tensor, int row, int block) { return 122 + (tensor + row + block) % 2; }
static int mx_number(int tensor, int row, int column)
{
    return (int)(7.99 * (1 + noise(900 + (uint64_t)tensor, row * 128 + column)));
}

/*  Gives the last tensor values that MXFP4 has. */
static void make_mx(ck_model *m)
{
    static const double numbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    ck_tensor *t = &m->tensors[m->count - 1];
    int r, c, n;
    for (r = 0; r < t->rows; r++)
        for (c = 0; c < t->columns; c++) {
            n = mx_number(m->count - 1, r, c);
            t->v[r * t->columns + c] =
                ldexp(n < 8 ? numbers[n] : -numbers[n - 8], mx_exponent(m->count - 1, r, c / 32) - 127);
        }
}

/*  In a GGUF file the experts of a layer are one tensor: write_gguf_file joins them. */
static void add_experts(const family *f, ck_model *m, int l)
{
    static const char *const gguf[] = {"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"};
    char name[64], whole[96];
    int e, which;
    static const char *const biases[] = {"ffn_gate_exps.bias", "ffn_up_exps.bias", "ffn_down_exps.bias"};
    if (f->together) {
        add(m, f->experts, H, "block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight", l);
        add(m, f->experts * 2 * I, H, "block_sparse_moe.input_linear.weight", "ffn_gate_exps.weight", l);
        m->tensors[m->count - 1].experts = f->experts;
        add(m, f->experts * H, I, "block_sparse_moe.output_linear.weight", "ffn_down_exps.weight", l);
        m->tensors[m->count - 1].experts = f->experts;
        return;
    }
    add(m, f->experts, H,
        f->mixtral ? "block_sparse_moe.gate.weight"
        : f->oss   ? "mlp.router.weight"
                   : "mlp.gate.weight",
        "ffn_gate_inp.weight", l);
    for (which = 0; which < 3; which++)
        for (e = 0; e < f->experts; e++) {
            expert_name(f, e, which, name);
            snprintf(whole, sizeof whole, "%s.weight", name);
            add(m, which == 2 ? H : I, which == 2 ? I : H, whole, gguf[which], l);
            if (f->oss)
                make_mx(m);
        }
    for (which = 0; f->oss && which < 3; which++) {
        snprintf(name, sizeof name, "mlp.experts.bias%d",
                 which); /* the folder's names are those of write_oss_experts */
        add(m, f->experts, which == 2 ? H : I, name, biases[which], l);
    }
    if (f->oss) {
        add(m, f->experts, 0, "mlp.router.bias", "ffn_gate_inp.bias", l);
        add(m, H, 0, "self_attn.o_proj.bias", "attn_output.bias", l);
        add(m, Q, 0, "self_attn.sinks", "attn_sinks.weight", l);
    }
    if (f->sigmoid) {
        add(m, f->experts, 0, "mlp.gate.e_score_correction_bias", "exp_probs_b.bias", l);
        add(m, 2 * I, H, "mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", l);
        add(m, 2 * I, H, "mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", l);
        add(m, H, 2 * I, "mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", l);
    }
    if (!f->shared)
        return;
    add(m, 1, H, "mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", l);
    add(m, I, H, "mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", l);
    add(m, I, H, "mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", l);
    add(m, H, I, "mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", l);
}

static void add_linear(const family *f, ck_model *m, int rows, int columns, const char *name, const char *gguf,
                       int layer)
{
    char hf[64], own[64];
    snprintf(hf, sizeof hf, "%s.weight", name);
    snprintf(own, sizeof own, "%s.weight", gguf);
    add(m, rows, columns, hf, own, layer);
    snprintf(hf, sizeof hf, "%s.bias", name);
    snprintf(own, sizeof own, "%s.bias", gguf);
    if (f->biases)
        add(m, rows, 0, hf, own, layer);
}

static void make_tensors(const family *f, ck_model *m)
{
    const int kv_heads = f->kv_heads ? f->kv_heads : KV, q = Q * D, k = kv_heads * D;
    char name[64];
    int l;
    memset(m, 0, sizeof *m);
    m->family = f->model_type;
    m->vocab = V, m->seed = f->seed ? f->seed : 40 + (int)(f - families);
    add(m, V, H,
        f->neox      ? "gpt_neox.embed_in.weight"
        : f->falcon  ? "transformer.word_embeddings.weight"
        : f->grouped ? "model.tok_embeddings.weight"
                     : "model.embed_tokens.weight",
        "token_embd.weight", -1);
    add_norm(f, m, H,
             f->neox     ? "gpt_neox.final_layer_norm"
             : f->falcon ? "transformer.ln_f"
                         : "model.norm",
             "output_norm", -1);
    if (!f->tied)
        add(m, V, H,
            f->neox      ? "embed_out.weight"
            : f->grouped ? "output.weight"
                         : "lm_head.weight",
            "output.weight", -1);
    for (l = 0; l < LAYERS; l++) {
        add_norm(f, m, H, f->before_attention, f->falcon && f->before_mlp ? "attn_norm_2" : "attn_norm", l);
        add_norm(f, m, H, f->behind_attention, "post_attention_norm", l);
        add_norm(f, m, H, f->before_mlp,
                 f->oss || f->sigmoid ? "post_attention_norm"
                 : f->falcon          ? "attn_norm"
                                      : "ffn_norm",
                 l);
        add_norm(f, m, H, f->behind_mlp, "post_ffw_norm", l);
        if (f->per_head) {
            add_head_norms(m, Q, f->q_norm, "attn_q_norm.weight", l);
            add_head_norms(m, kv_heads, f->k_norm, "attn_k_norm.weight", l);
        } else {
            add_norm(f, m, f->wide_norms ? q : D, f->q_norm, "attn_q_norm", l);
            add_norm(f, m, f->wide_norms ? k : D, f->k_norm, "attn_k_norm", l);
        }
        if (f->neox || f->falcon) {
            add_linear(f, m, q + 2 * k, H, qkv_name(f), "attn_qkv", l);
            add_linear(f, m, H, q, o_name(f), "attn_output", l);
            add_linear(f, m, I, H, "mlp.dense_h_to_4h", "ffn_up", l);
            add_linear(f, m, H, I, "mlp.dense_4h_to_h", "ffn_down", l);
            continue;
        }
        if (f->fused_qkv || f->grouped) {
            snprintf(name, sizeof name, "%s.weight", qkv_name(f));
            add(m, q + 2 * k, H, name, "attn_qkv.weight", l);
        } else {
            add(m, q, H, "self_attn.q_proj.weight", "attn_q.weight", l);
            add(m, k, H, "self_attn.k_proj.weight", "attn_k.weight", l);
            add(m, k, H, "self_attn.v_proj.weight", "attn_v.weight", l);
        }
        if (f->biases) {
            add(m, q, 0, "self_attn.q_proj.bias", "attn_q.bias", l);
            add(m, k, 0, "self_attn.k_proj.bias", "attn_k.bias", l);
            add(m, k, 0, "self_attn.v_proj.bias", "attn_v.bias", l);
        }
        snprintf(name, sizeof name, "%s.weight", o_name(f));
        add(m, H, q, name, "attn_output.weight", l);
        if (f->experts && l >= f->dense_layers) {
            add_experts(f, m, l);
            continue;
        }
        if (f->fused_mlp) {
            add(m, 2 * I, H, "mlp.gate_up_proj.weight", "ffn_up.weight", l);
        } else {
            add(m, I, H, f->grouped ? "feed_forward.w1.weight" : "mlp.gate_proj.weight", "ffn_gate.weight", l);
            add(m, I, H, f->grouped ? "feed_forward.w3.weight" : "mlp.up_proj.weight", "ffn_up.weight", l);
        }
        add(m, H, I, f->grouped ? "feed_forward.w2.weight" : "mlp.down_proj.weight", "ffn_down.weight", l);
    }
    if (f->more_layers)
        add_norm(f, m, H, "enorm", "nextn.enorm", LAYERS);
}

/* --- the forward, in double --------------------------------------------------------------------------------------- */

static const double *of_layer(const ck_model *m, int layer, const char *name, const char *end)
{
    char format[96];
    snprintf(format, sizeof format, "%s.%%d.%s%s", layers_of(m), name, end);
    return ck_values(m, format, layer);
}

static void norm(const family *f, const ck_model *m, int layer, const char *name, const double *x, int n, double *y)
{
    const double *w, *b;
    double mean = 0, square = 0;
    int i;
    if (!name) {
        memmove(y, x, (size_t)n * sizeof *y);
        return;
    }
    w = layer < 0 ? m->tensors[1].v : of_layer(m, layer, name, ".weight");
    b = layer < 0 ? (f->norm_bias ? m->tensors[2].v : NULL) : of_layer(m, layer, name, ".bias");
    for (i = 0; f->layer_norm && i < n; i++)
        mean += x[i] / n;
    for (i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean) / n;
    for (i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(square + 1e-5) * (w[i] + (f->one_plus ? 1 : 0)) + (b ? b[i] : 0);
}

/*  The layer norm of a head of q or k, with weights of its own. */
static void head_norm(const ck_model *m, int layer, const char *name, int head, double *x)
{
    char own[64];
    const double *w;
    double mean = 0, square = 0;
    int i;
    snprintf(own, sizeof own, name, head);
    w = of_layer(m, layer, own, ".weight") + (strchr(name, '%') ? 0 : head * D);
    for (i = 0; i < D; i++)
        mean += x[i] / D;
    for (i = 0; i < D; i++)
        square += (x[i] - mean) * (x[i] - mean) / D;
    for (i = 0; i < D; i++)
        x[i] = (x[i] - mean) / sqrt(square + 1e-5) * w[i];
}

static bool windowed(const family *f, int l) { return f->window && !(f->period && (l + 1) % f->period == 0); }

static void rotate(const family *f, int l, double *x, int position)
{
    const int turning = f->rotary ? f->rotary : D;
    const bool local = f->local_rope && windowed(f, l);
    const double factor = f->attention_factor > 0 && !local ? f->attention_factor : 1;
    int i;
    if ((f->no_rope_period && (l + 1) % f->no_rope_period == 0) || (f->only_windows_rotate && !windowed(f, l)))
        return;
    for (i = 0; i < turning / 2; i++) {
        double w = pow(local ? f->local_theta : f->theta, -2.0 * i / turning), a, b;
        double *one = f->hf_pairs ? x + 2 * i : x + i, *other = f->hf_pairs ? one + 1 : one + turning / 2;
        w /= f->linear > 0 && !local ? f->linear : 1;
        w /= f->factors > 0 ? f->factors + i / 8.0 : 1;
        if (f->yarn > 0 && !local) /* of 16 elements and an original context of 24 the slope is from 0 to 1.16, or 2 */
            w += (w / f->yarn - w) *
                 fmin(i / (f->oss && !f->rounded ? D * log(24 / 6.283185307179586) / (2 * log(f->theta)) : 2), 1);
        a = *one, b = *other;
        *one = factor * (a * cos(position * w) - b * sin(position * w));
        *other = factor * (b * cos(position * w) + a * sin(position * w));
    }
}

/*  Rows of q, k and v of a layer, in the order of heads. */
static void project(const family *f, const ck_model *m, int l, const double *x, double *qkv)
{
    const int kv_heads = f->kv_heads ? f->kv_heads : KV, q = Q * D, k = kv_heads * D, group = Q / kv_heads;
    double all[3 * Q * D];
    int head, i;
    if (f->fused_qkv) {
        ck_linear(qkv, of_layer(m, l, qkv_name(f), ".weight"), NULL, x, q + 2 * k, H);
    } else if (f->neox || f->falcon || f->grouped) { /* of each key head: its queries, its key, its value */
        ck_linear(all, of_layer(m, l, qkv_name(f), ".weight"), of_layer(m, l, qkv_name(f), ".bias"), x, q + 2 * k, H);
        for (head = 0; head < Q + 2 * kv_heads; head++) {
            int of = head / (group + 2), in = head % (group + 2),
                to = in < group ? of * group + in : Q + (in - group) * kv_heads + of;
            for (i = 0; i < D; i++)
                qkv[to * D + i] = all[head * D + i];
        }
    } else {
        ck_linear(qkv, of_layer(m, l, "self_attn.q_proj", ".weight"), of_layer(m, l, "self_attn.q_proj", ".bias"), x, q,
                  H);
        ck_linear(qkv + q, of_layer(m, l, "self_attn.k_proj", ".weight"), of_layer(m, l, "self_attn.k_proj", ".bias"),
                  x, k, H);
        ck_linear(qkv + q + k, of_layer(m, l, "self_attn.v_proj", ".weight"),
                  of_layer(m, l, "self_attn.v_proj", ".bias"), x, k, H);
    }
}

static void attention(const family *f, const ck_model *m, int l, const double *h, int seq, double *out)
{
    const int kv_heads = f->kv_heads ? f->kv_heads : KV, q = Q * D, k = kv_heads * D, width = q + 2 * k;
    double *qkv = (double *)calloc((size_t)(seq * width), 8), score[LONG + 4], attended[Q * D];
    int s, j, i, head;
    for (s = 0; s < seq; s++) {
        double *row = qkv + s * width;
        project(f, m, l, h + s * H, row);
        if (f->wide_norms) {
            norm(f, m, l, f->q_norm, row, q, row);
            norm(f, m, l, f->k_norm, row + q, k, row + q);
        }
        for (head = 0; head < Q + kv_heads; head++) {
            if (f->per_head)
                head_norm(m, l, head < Q ? f->q_norm : f->k_norm, head < Q ? head : head - Q, row + head * D);
            else if (f->q_norm && !f->wide_norms)
                norm(f, m, l, head < Q ? f->q_norm : f->k_norm, row + head * D, D, row + head * D);
            rotate(f, l, row + head * D, s);
        }
    }
    for (s = 0; s < seq; s++) {
        for (head = 0; head < Q; head++) {
            const int kv = head / (Q / kv_heads), first = windowed(f, l) && s >= f->window ? s - f->window + 1 : 0;
            double most = -1e300, sum = 0;
            for (j = first; j <= s; j++) {
                for (score[j] = 0, i = 0; i < D; i++)
                    score[j] += qkv[s * width + head * D + i] * qkv[j * width + q + kv * D + i];
                score[j] *= f->scale > 0 ? f->scale : 1 / sqrt(D);
                score[j] = f->softcap > 0 ? f->softcap * tanh(score[j] / f->softcap) : score[j];
                most = score[j] > most ? score[j] : most;
            }
            for (j = first; j <= s; j++)
                sum += score[j] = exp(score[j] - most);
            sum += f->oss ? exp(of_layer(m, l, "self_attn.sinks", "")[head] - most) : 0;
            for (i = 0; i < D; i++)
                for (attended[head * D + i] = 0, j = first; j <= s; j++)
                    attended[head * D + i] += score[j] / sum * qkv[j * width + q + k + kv * D + i];
        }
        ck_linear(out + s * H, of_layer(m, l, o_name(f), ".weight"), of_layer(m, l, o_name(f), ".bias"), attended, H,
                  q);
    }
    free(qkv);
}

/*  The limit of gpt-oss, of the file written last: GGUF files have the published one. */
static double oss_limit;

/*  A gated MLP of three weights, with n inner elements. biases: with the gate of gpt-oss; or NULL. */
static void gated(const double *const weights[3], const double *const biases[3], int n, const double *h, double *out)
{
    double inner[4 * I];
    int i;
    ck_linear(inner, weights[0], biases ? biases[0] : NULL, h, n, H);
    ck_linear(inner + n, weights[1], biases ? biases[1] : NULL, h, n, H);
    for (i = 0; i < n; i++) {
        const double gate = fmin(inner[i], oss_limit), up = fmax(fmin(inner[n + i], oss_limit), -oss_limit);
        inner[i] = biases ? (up + 1) * gate / (1 + exp(-1.702 * gate)) : inner[i] / (1 + exp(-inner[i])) * inner[n + i];
    }
    ck_linear(out, weights[2], biases ? biases[2] : NULL, inner, H, n);
}

/*  The biases of an expert of gpt-oss. */
static void expert_biases(const ck_model *m, int l, int expert, const double *biases[3])
{
    char name[64];
    int which;
    for (which = 0; which < 3; which++) {
        snprintf(name, sizeof name, "mlp.experts.bias%d", which);
        biases[which] = of_layer(m, l, name, "") + expert * (which == 2 ? H : I);
    }
}

/*  The weights of an expert: gate, up, down. */
static void expert_weights(const family *f, const ck_model *m, int l, int expert, const double *weights[3])
{
    char name[64];
    int which;
    for (which = 0; which < 3 && !f->together; which++) {
        expert_name(f, expert, which, name);
        weights[which] = of_layer(m, l, name, ".weight");
    }
    if (!f->together)
        return;
    weights[0] = of_layer(m, l, "block_sparse_moe.input_linear", ".weight") + expert * 2 * I * H;
    weights[1] = weights[0] + I * H;
    weights[2] = of_layer(m, l, "block_sparse_moe.output_linear", ".weight") + expert * H * I;
}

/*  Leaves only the groups whose two largest numbers have the largest sums. */
static void leave_groups(const family *f, double *choice)
{
    const int size = f->groups ? f->experts / f->groups : 0;
    double sums[8];
    int g, i, k, above;
    for (g = 0; g < f->groups; g++) {
        sums[g] = -1e300;
        for (i = 0; i < size; i++)
            for (k = 0; k < i; k++)
                sums[g] = fmax(sums[g], choice[g * size + i] + choice[g * size + k]);
    }
    for (g = 0; g < f->groups; g++) {
        for (above = 0, k = 0; k < f->groups; k++)
            above += sums[k] > sums[g];
        for (i = 0; above >= f->used_groups && i < size; i++)
            choice[g * size + i] = -1e300;
    }
}

/*  A mixture of experts (Shazeer et al. 2017), as transformers has it. */
static void mixture(const family *f, const ck_model *m, int l, const double *h, double *out)
{
    double logits[8], choice[8], shares[8], y[H], all = 0, chosen = 0, most = -1e300;
    bool taken[8] = {false};
    const double *weights[3], *biases[3], *bias = of_layer(m, l, "mlp.gate.e_score_correction_bias", "");
    int e, i, slot, best[8];
    ck_linear(logits,
              of_layer(m, l,
                       f->together  ? "block_sparse_moe.router.layer"
                       : f->oss     ? "mlp.router"
                       : f->mixtral ? "block_sparse_moe.gate"
                                    : "mlp.gate",
                       ".weight"),
              of_layer(m, l, "mlp.router", ".bias"), h, f->experts, H);
    for (e = 0; e < f->experts; e++)
        most = logits[e] > most ? logits[e] : most;
    for (e = 0; e < f->experts; e++)
        all += exp(logits[e] - most);
    for (e = 0; e < f->experts; e++)
        choice[e] = f->sigmoid ? 1 / (1 + exp(-logits[e])) + bias[e] : logits[e];
    leave_groups(f, choice);
    for (slot = 0; slot < f->chosen; slot++) {
        best[slot] = -1;
        for (e = 0; e < f->experts; e++)
            if (!taken[e] && (best[slot] < 0 || choice[e] > choice[best[slot]]))
                best[slot] = e;
        taken[best[slot]] = true;
        e = best[slot];
        shares[slot] = f->sigmoid ? 1 / (1 + exp(-logits[e])) : exp(logits[e] - most);
        chosen += shares[slot];
    }
    memset(out, 0, H * sizeof *out);
    for (slot = 0; slot < f->chosen; slot++) {
        const double share = shares[slot] /
                             (f->normalised ? chosen
                              : f->sigmoid  ? 1
                                            : all) *
                             (f->sigmoid ? f->routed_scale : 1);
        expert_weights(f, m, l, best[slot], weights);
        if (f->oss)
            expert_biases(m, l, best[slot], biases);
        gated(weights, f->oss ? biases : NULL, I, h, y);
        for (i = 0; i < H; i++)
            out[i] += share * y[i];
    }
    if (f->sigmoid) {
        weights[0] = of_layer(m, l, "mlp.shared_experts.gate_proj", ".weight");
        weights[1] = of_layer(m, l, "mlp.shared_experts.up_proj", ".weight");
        weights[2] = of_layer(m, l, "mlp.shared_experts.down_proj", ".weight");
        gated(weights, NULL, 2 * I, h, y);
        for (i = 0; i < H; i++)
            out[i] += y[i];
    }
    if (!f->shared)
        return;
    ck_linear(&all, of_layer(m, l, "mlp.shared_expert_gate", ".weight"), NULL, h, 1, H);
    weights[0] = of_layer(m, l, "mlp.shared_expert.gate_proj", ".weight");
    weights[1] = of_layer(m, l, "mlp.shared_expert.up_proj", ".weight");
    weights[2] = of_layer(m, l, "mlp.shared_expert.down_proj", ".weight");
    gated(weights, NULL, I, h, y);
    for (i = 0; i < H; i++)
        out[i] += y[i] / (1 + exp(-all));
}

static void mlp(const family *f, const ck_model *m, int l, const double *h, double *out)
{
    double gate[2 * I];
    int i;
    if (f->experts && l >= f->dense_layers) {
        mixture(f, m, l, h, out);
        return;
    }
    if (f->neox || f->falcon) {
        ck_linear(gate, of_layer(m, l, "mlp.dense_h_to_4h", ".weight"), of_layer(m, l, "mlp.dense_h_to_4h", ".bias"), h,
                  I, H);
        for (i = 0; i < I; i++)
            gate[i] = 0.5 * gate[i] * (1 + erf(gate[i] / sqrt(2)));
        ck_linear(out, of_layer(m, l, "mlp.dense_4h_to_h", ".weight"), of_layer(m, l, "mlp.dense_4h_to_h", ".bias"),
                  gate, H, I);
        return;
    }
    if (f->fused_mlp) {
        ck_linear(gate, of_layer(m, l, "mlp.gate_up_proj", ".weight"), NULL, h, 2 * I, H);
    } else {
        ck_linear(gate, of_layer(m, l, f->grouped ? "feed_forward.w1" : "mlp.gate_proj", ".weight"), NULL, h, I, H);
        ck_linear(gate + I, of_layer(m, l, f->grouped ? "feed_forward.w3" : "mlp.up_proj", ".weight"), NULL, h, I, H);
    }
    for (i = 0; i < I; i++) {
        double g = gate[i];
        g = f->gelu ? 0.5 * g * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g)))
                    : g / (1 + exp(-g));
        gate[i] = g * gate[I + i];
    }
    ck_linear(out, of_layer(m, l, f->grouped ? "feed_forward.w2" : "mlp.down_proj", ".weight"), NULL, gate, H, I);
}

static void forward(const void *row, const ck_model *m, const int32_t *ids, int seq, double *logits)
{
    const family *f = (const family *)row;
    double *x = (double *)calloc((size_t)(seq * H), 8), *h = (double *)calloc((size_t)(seq * H), 8),
           *a = (double *)calloc((size_t)(seq * H), 8), y[H], z[H];
    const double residual = f->residual_scale > 0 ? f->residual_scale : 1;
    const double *embedding = m->tensors[0].v, *head = f->tied ? embedding : m->tensors[f->norm_bias ? 3 : 2].v;
    int l, s, i;
    for (i = 0; i < seq * H; i++)
        x[i] = embedding[ids[i / H] * H + i % H] * (f->embedding_scale > 0 ? f->embedding_scale : 1);
    for (l = 0; l < LAYERS; l++) {
        for (s = 0; s < seq; s++)
            norm(f, m, l, f->before_attention, x + s * H, H, h + s * H);
        attention(f, m, l, h, seq, a);
        for (s = 0; s < seq; s++) {
            norm(f, m, l, f->behind_attention, a + s * H, H, y);
            if (f->parallel) {
                norm(f, m, l, f->before_mlp, f->before_mlp ? x + s * H : h + s * H, H, h + s * H);
                mlp(f, m, l, h + s * H, z);
                for (i = 0; i < H; i++)
                    x[s * H + i] += y[i] + z[i];
                continue;
            }
            for (i = 0; i < H; i++)
                x[s * H + i] += residual * y[i];
            norm(f, m, l, f->before_mlp, x + s * H, H, y);
            mlp(f, m, l, y, z);
            norm(f, m, l, f->behind_mlp, z, H, y);
            for (i = 0; i < H; i++)
                x[s * H + i] += residual * y[i];
        }
    }
    for (s = 0; s < seq; s++) {
        norm(f, m, -1, "", x + s * H, H, y);
        ck_linear(logits + (int64_t)s * V, head, NULL, y, V, H);
        for (i = 0; i < V; i++) {
            double *to = &logits[(int64_t)s * V + i];
            *to *= f->logit_scale > 0 ? f->logit_scale : 1;
            *to = f->logit_softcap > 0 ? f->logit_softcap * tanh(*to / f->logit_softcap) : *to;
        }
    }
    free(x), free(h), free(a);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static void write_config(const family *f, const char *change)
{
    char text[2048];
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
             "%s\"%s\": %d, \"vocab_size\": %d, "
             "\"max_position_embeddings\": %d, \"tie_word_embeddings\": %s, \"bos_token_id\": 1, %s%s%s%s}",
             f->model_type, H, LAYERS, Q,
             f->falcon     ? "\"head_dim\": 16, "
             : f->kv_heads ? "\"num_key_value_heads\": 4, \"head_dim\": 16, "
                           : "\"num_key_value_heads\": 2, \"head_dim\": 16, ",
             f->falcon ? "ffn_hidden_size" : "intermediate_size", I, V, CONTEXT, f->tied ? "true" : "false",
             f->layer_norm ? "" : "\"rms_norm_eps\": 1e-05, ", change,
             strstr(f->json, "rope_parameters") ? "" : "\"rope_theta\": 10000, ", f->json);
    ck_write_text(test_path("f"), "config.json", text);
}

/*  Appends a tensor to a GGUF file. order: the row of `v` for each row of the file, or null; plus: is added. */
static void put_tensor(ck_bytes *head, ck_bytes *data, const char *name, const double *v, const int *order, int rows,
                       int columns, double plus)
{
    int r, c, n = columns ? columns : 1;
    while (data->size % 32)
        ck_put(data, "", 1);
    ck_text(head, name), ck_u32(head, columns ? 2 : 1);
    if (columns)
        ck_u64(head, (uint64_t)columns);
    ck_u64(head, (uint64_t)rows), ck_u32(head, 0), ck_u64(head, data->size);
    for (r = 0; r < rows; r++)
        for (c = 0; c < n; c++)
            ck_f32(data, (float)(v[(int64_t)(order ? order[r] : r) * n + c] + plus));
}

/*  The rows of the tensor that a GGUF file has in its order: a row of pairs is taken from both halves of a head. */
static void pair_rows(int *order, int rows)
{
    int r;
    for (r = 0; r < rows; r++)
        order[r] = r - r % D + r % D / 2 + r % D % 2 * (D / 2);
}

/*  Types of the experts' gate, up and down in a GGUF file; 0: f32. */
static int expert_types[3];

/*  Appends a tensor as blocks. Its values become those of the blocks. */
static void put_blocks(ck_bytes *data, const ck_tensor *t, int type)
{
    const struct ignis__blocks_types_type *blocks = &ignis__blocks_types[ignis__blocks_type(type)];
    unsigned char bytes[256];
    float row[I];
    int r, i;
    for (r = 0; r < t->rows; r++) {
        double *v = t->v + r * t->columns;
        for (i = 0; i < t->columns; i++)
            row[i] = (float)v[i];
        ignis__quantise(type, row, t->columns, bytes);
        ck_put(data, bytes, (size_t)(t->columns / blocks->file_elements * blocks->file_bytes));
        for (i = 0; i < t->columns; i += blocks->file_elements)
            ignis__dequantise((uint32_t)type, bytes + i / blocks->file_elements * blocks->file_bytes, row + i);
        for (i = 0; i < t->columns; i++)
            v[i] = (double)row[i];
    }
}

/*  Appends a row of numbers as MXFP4: of a GGUF file, or as that of a folder to `blocks` and `scales`. */
static void put_mx(ck_bytes *blocks, ck_bytes *scales, int tensor, int row, int columns)
{
    int block, i;
    for (block = 0; block < columns / 32; block++) {
        unsigned char bytes[17];
        bytes[0] = (unsigned char)mx_exponent(tensor, row, block);
        for (i = 0; i < 16; i++) {
            const int low = scales ? 2 * i : i, high = scales ? 2 * i + 1 : 16 + i;
            bytes[1 + i] = (unsigned char)(mx_number(tensor, row, 32 * block + low) |
                                           mx_number(tensor, row, 32 * block + high) << 4);
        }
        if (scales)
            ck_put(scales, bytes, 1);
        ck_put(blocks, scales ? bytes + 1 : bytes, scales ? 16 : 17);
    }
}

/*  Appends the tensors of all experts as one, [experts, rows, columns], from tensor `first` on. */
static void put_experts(ck_bytes *head, ck_bytes *data, const family *f, const ck_model *m, int first)
{
    const ck_tensor *t = &m->tensors[first];
    const int type = f->oss ? IGNIS__GGUF_MXFP4
                            : expert_types[strstr(t->gguf, "gate") ? 0
                                           : strstr(t->gguf, "up") ? 1
                                                                   : 2];
    int e, i;
    while (data->size % 32)
        ck_put(data, "", 1);
    ck_text(head, t->gguf), ck_u32(head, 3), ck_u64(head, (uint64_t)t->columns);
    ck_u64(head, (uint64_t)t->rows), ck_u64(head, (uint64_t)f->experts), ck_u32(head, (uint32_t)type);
    ck_u64(head, data->size);
    for (e = 0; e < f->experts; e++) {
        if (type && !f->oss)
            put_blocks(data, &t[e], type);
        for (i = 0; f->oss && i < t->rows; i++)
            put_mx(data, NULL, first + e, i, t->columns);
        for (i = 0; !type && i < t->rows * t->columns; i++)
            ck_f32(data, (float)t[e].v[i]);
    }
}

/*  The experts of gpt-oss in a folder: in each layer tensors of all, with rows of gate and up in turn. */
static void write_oss_experts(const family *f, const ck_model *m, const char *path)
{
    ck_bytes data = {0}, header = {0}, file = {0}, scales = {0};
    char name[96], line[256];
    int l, which, e, r, k, c;
#define ENTRY(end, type, ...)                                                                                      \
    snprintf(line, sizeof line, "%s\"model.layers.%d.mlp.experts.%s" end "\":{\"dtype\":\"" type "\",\"shape\":[", \
             header.size ? "," : "{", l, which ? "down_proj" : "gate_up_proj");                                    \
    ck_put(&header, line, strlen(line));                                                                           \
    snprintf(line, sizeof line, __VA_ARGS__);                                                                      \
    ck_put(&header, line, strlen(line));                                                                           \
    snprintf(line, sizeof line, "],\"data_offsets\":[%zu,%zu]}", begin, data.size);                                \
    ck_put(&header, line, strlen(line))
    for (l = 0; l < LAYERS; l++)
        for (which = 0; which < 2; which++) {
            const int rows = which ? H : I, columns = which ? I : H, parts = which ? 1 : 2;
            size_t begin = data.size;
            int first[2];
            for (k = 0; k < parts; k++) {
                snprintf(name, sizeof name, "model.layers.%d.mlp.experts.0.%s", l,
                         which    ? "down_proj.weight"
                         : k == 0 ? "gate_proj.weight"
                                  : "up_proj.weight");
                for (first[k] = 0; strcmp(m->tensors[first[k]].name, name) != 0;)
                    first[k]++;
            }
            scales.size = 0;
            for (e = 0; e < f->experts; e++)
                for (r = 0; r < rows; r++)
                    for (k = 0; k < parts; k++)
                        put_mx(&data, &scales, first[k] + e, r, columns);
            ENTRY("_blocks", "U8", "%d,%d,%d,16", f->experts, parts * rows, columns / 32);
            begin = data.size;
            ck_put(&data, scales.data, scales.size);
            ENTRY("_scales", "U8", "%d,%d,%d", f->experts, parts * rows, columns / 32);
            while (data.size % 4)
                ck_put(&data, "", 1);
            begin = data.size;
            for (e = 0; e < f->experts; e++)
                for (r = 0; r < rows; r++)
                    for (k = 0; k < parts; k++) {
                        snprintf(name, sizeof name, "mlp.experts.bias%d", which ? 2 : k);
                        ck_f32(&data, (float)of_layer(m, l, name, "")[e * rows + r]);
                    }
            ENTRY("_bias", "F32", "%d,%d", f->experts, parts * rows);
        }
    for (c = 0; c < m->count; c++) {
        const ck_tensor *t = &m->tensors[c];
        const size_t begin = data.size;
        if (strstr(t->name, ".experts."))
            continue;
        ck_numbers(&data, t->v, (int64_t)t->rows * (t->columns ? t->columns : 1), IGNIS_F32);
        snprintf(line, sizeof line, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%d", t->name, t->rows);
        ck_put(&header, line, strlen(line));
        if (t->columns) {
            snprintf(line, sizeof line, ",%d", t->columns);
            ck_put(&header, line, strlen(line));
        }
        snprintf(line, sizeof line, "],\"data_offsets\":[%zu,%zu]}", begin, data.size);
        ck_put(&header, line, strlen(line));
    }
#undef ENTRY
    ck_put(&header, "}", 1);
    ck_u64(&file, header.size);
    ck_put(&file, header.data, header.size);
    ck_put(&file, data.data, data.size);
    test_write_file(path, file.data, file.size);
    free(data.data), free(header.data), free(file.data), free(scales.data);
}

static void write_folder(const family *f, const ck_model *m)
{
    char path[256];
    test_remove_folder(test_path("f"));
    CHECK_INT(ignis__folder_make_all(test_path("f")), true);
    write_config(f, "");
    snprintf(path, sizeof path, "%s/model.safetensors", test_path("f"));
    oss_limit = 0.6;
    if (f->oss)
        write_oss_experts(f, m, path);
    else
        ck_write_safetensors(m, path, IGNIS_F32, 0, 1);
}

/*  As put_experts, of a tensor that a folder has for all experts. half: 0 or 1, the first or the second half of each
    expert's rows; -1: all of them. */
static void put_halves(ck_bytes *head, ck_bytes *data, const family *f, const ck_tensor *t, const char *name, int half)
{
    const int halves = half < 0 ? 1 : 2, rows = t->rows / t->experts / halves;
    ck_model of;
    int e;
    for (e = 0; e < t->experts; e++) {
        ck_tensor *to = &of.tensors[e];
        *to = *t;
        to->rows = rows;
        to->v = t->v + (int64_t)(e * halves + (half > 0)) * rows * t->columns;
        snprintf(to->gguf, sizeof to->gguf, "%s", name);
    }
    put_experts(head, data, f, &of, 0);
}

static void write_gguf_file(const family *f, const ck_model *m, const char *path)
{
    static const char *const parts[] = {"attn_q.weight", "attn_k.weight", "attn_v.weight"};
    ck_bytes head = {0}, list = {0}, data = {0};
    uint32_t keys = 9, tensors = 0;
    int order[3 * Q * D], in_pairs[Q * D], i, k, r;
    char name[96];
    for (i = 0; i < m->count; i++) {
        const ck_tensor *t = &m->tensors[i];
        const bool is_q = strstr(t->gguf, "attn_q."), is_k = strstr(t->gguf, "attn_k.");
        const bool moved = f->gguf_pairs && !f->hf_pairs;
        if (f->grouped && strstr(t->gguf, "attn_qkv")) {
            for (k = 0; k < 3; k++, tensors++) {
                const int heads = k == 0 ? Q : KV, group = Q / KV;
                pair_rows(in_pairs, heads * D);
                for (r = 0; r < heads * D; r++) {
                    int row = moved && k < 2 ? in_pairs[r] : r, own = row / D;
                    own = k == 0 ? own / group * (group + 2) + own % group : own * (group + 2) + group + k - 1;
                    order[r] = own * D + row % D;
                }
                snprintf(name, sizeof name, "%.*s%s", (int)(strstr(t->gguf, "attn_qkv") - t->gguf), t->gguf, parts[k]);
                put_tensor(&list, &data, name, t->v, order, heads * D, H, 0);
            }
            continue;
        }
        if ((f->neox || f->falcon) && strstr(t->gguf, "attn_qkv")) { /* all of q, then those of k and v */
            const int kv_heads = f->kv_heads ? f->kv_heads : KV, group = Q / kv_heads;
            for (r = 0; r < t->rows; r++) {
                const int own = r / D, of = own < Q ? own / group : (own - Q) % kv_heads,
                          in = own < Q ? own % group : group + (own - Q) / kv_heads;
                order[r] = (of * (group + 2) + in) * D + r % D;
            }
            put_tensor(&list, &data, t->gguf, t->v, order, t->rows, t->columns, 0);
            tensors++;
            continue;
        }
        if (f->gguf_fused && is_q) { /* q, k and v follow each other */
            double *all = (double *)calloc((size_t)((Q + 2 * KV) * D * H), sizeof *all);
            const int n = t->columns ? t->columns : 1;
            snprintf(name, sizeof name, "%.*sattn_qkv.%s", (int)(strstr(t->gguf, "attn_q.") - t->gguf), t->gguf,
                     t->columns ? "weight" : "bias");
            for (k = 0, r = 0; k < 3; r += t[k++].rows)
                memcpy(all + r * n, t[k].v, sizeof *all * (size_t)(t[k].rows * n));
            put_tensor(&list, &data, name, all, NULL, r, t->columns, 0);
            free(all);
            tensors++;
            i += 2;
            continue;
        }
        if (f->per_head && !t->columns && strstr(t->gguf, "_norm.weight") && strstr(t->gguf, "attn_") &&
            !strstr(t->gguf, "attn_norm")) {
            const int heads = strstr(t->gguf, "attn_q_norm") ? Q : KV;
            double all[Q * D];
            for (k = 0; k < heads; k++, i += k < heads)
                memcpy(all + k * D, m->tensors[i].v, D * sizeof *all);
            put_tensor(&list, &data, t->gguf, all, NULL, heads, D, 0);
            tensors++;
            continue;
        }
        if (t->experts && strstr(t->gguf, "_gate_")) {
            snprintf(name, sizeof name, "%.*sffn_up_exps.weight", (int)(strstr(t->gguf, "ffn_") - t->gguf), t->gguf);
            put_halves(&list, &data, f, t, t->gguf, 0);
            put_halves(&list, &data, f, t, name, 1);
            tensors += 2;
            continue;
        }
        if (t->experts) {
            put_halves(&list, &data, f, t, t->gguf, -1);
            tensors++;
            continue;
        }
        if (strstr(t->gguf, "_exps.weight")) { /* the tensors of all experts follow each other */
            put_experts(&list, &data, f, m, i);
            i += f->experts - 1;
            tensors++;
            continue;
        }
        pair_rows(order, t->rows < 3 * Q * D ? t->rows : 0);
        put_tensor(&list, &data, t->gguf, t->v, moved && (is_q || is_k) ? order : NULL, t->rows, t->columns,
                   f->one_plus && !t->columns ? 1 : 0);
        tensors++;
    }
    for (i = 0; f->factors > 0 && i < 2; i++, tensors++) {
        double factors[D];
        for (k = 0; k < f->rotary / 2; k++)
            factors[k] = i ? f->factors + k / 8.0 : 1;
        put_tensor(&list, &data, i ? "rope_factors_long.weight" : "rope_factors_short.weight", factors, NULL,
                   f->rotary / 2, 0, 0);
    }
    for (i = 0; f->keys[i].name; i++)
        keys++;
    ck_put(&head, "GGUF", 4), ck_u32(&head, 3), ck_u64(&head, tensors), ck_u64(&head, keys);
    ck_text(&head, "general.architecture"), ck_u32(&head, 8), ck_text(&head, f->architecture);
    ck_key_u32(&head, f->architecture, "block_count", LAYERS + f->more_layers);
    ck_key_u32(&head, f->architecture, "embedding_length", H);
    ck_key_u32(&head, f->architecture, "feed_forward_length", I);
    ck_key_u32(&head, f->architecture, "context_length", CONTEXT);
    ck_key_u32(&head, f->architecture, "attention.head_count", Q);
    ck_key_u32(&head, f->architecture, "attention.head_count_kv", f->kv_heads ? f->kv_heads : KV);
    ck_key_u32(&head, f->architecture, "attention.key_length", D);
    ck_key_f32(&head, f->architecture,
               f->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-5);
    for (i = 0; f->keys[i].name; i++) {
        if (f->keys[i].kind == 'u') {
            ck_key_u32(&head, f->architecture, f->keys[i].name, (int)f->keys[i].value);
        } else if (f->keys[i].kind == 'f') {
            ck_key_f32(&head, f->architecture, f->keys[i].name, f->keys[i].value);
        } else if (f->keys[i].kind == 'b') {
            const char truth = (char)f->keys[i].value;
            snprintf(name, sizeof name, "%s.%s", f->architecture, f->keys[i].name);
            ck_text(&head, name), ck_u32(&head, 7), ck_put(&head, &truth, 1);
        } else {
            snprintf(name, sizeof name, "%s.%s", f->architecture, f->keys[i].name);
            ck_text(&head, name), ck_u32(&head, 8), ck_text(&head, f->keys[i].text);
        }
    }
    ck_put(&head, list.data, list.size);
    while (head.size % 32)
        ck_put(&head, "", 1);
    ck_put(&head, data.data, data.size);
    oss_limit = 7;
    test_write_file(path, head.data, head.size);
    free(head.data), free(list.data), free(data.data);
}

/* --- comparisons -------------------------------------------------------------------------------------------------- */

static ignis_model open_model(const char *path, ignis_dtype dtype)
{
    ignis_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.dtype = dtype;
    desc.sequences = 2;
    return ignis_model_open(&desc);
}

static own_forward own_of(const family *f, ck_model *m)
{
    const own_forward own = {f->model_type, f, m, forward};
    return own;
}

/*  The rows of gate and up are apart here, and in turn in the files: no tensor and no folder has them. */
static void check_oss_is_not_saved(ignis_model model)
{
    CHECK(!ignis_model_tensor(model, "model.layers.0.mlp.experts.gate_up_proj").id);
    CHECK_HAS(ignis_status_message(), "has no weight 'model.layers.0.mlp.experts.gate_up_proj'");
    ignis_status_clear();
    CHECK_OK(ignis_tensor_release(ignis_model_tensor(model, "model.layers.0.mlp.experts.down_proj"))); /* a copy */
    CHECK_INT(ignis_model_save(model, test_path("saved")), IGNIS_ERROR_UNSUPPORTED);
    CHECK_HAS(ignis_status_message(), "the experts of a gpt_oss model cannot be written");
    ignis_status_clear();
}

TEST(folders_agree_with_a_forward_in_double)
{
    int i;
    SETUP(NULL);
    for (i = 0; i < FAMILIES; i++) {
        ck_model m;
        ignis_model model;
        make_tensors(&families[i], &m);
        write_folder(&families[i], &m);
        model = open_model(test_path("f"), IGNIS_F32);
        if (!model.id)
            test__fail(__FILE__, __LINE__, ignis_status_message());
        ignis_status_clear();
        if (model.id) {
            check_whole(own_of(&families[i], &m), model, SEQ, 0, 1e-5); /* sums of f32 */
            check_sequences(own_of(&families[i], &m), model, LONG, 1e-5);
            if (families[i].oss)
                check_oss_is_not_saved(model);
            else
                check_tensors(own_of(&families[i], &m), model, SEQ);
        }
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

TEST(gguf_files_agree_with_a_forward_in_double)
{
    int i;
    SETUP(NULL);
    for (i = 0; i < FAMILIES; i++) {
        ck_model m;
        ignis_model model;
        if (!families[i].architecture)
            continue;
        make_tensors(&families[i], &m);
        write_gguf_file(&families[i], &m, test_path("m.gguf"));
        model = open_model(test_path("m.gguf"), IGNIS_F32);
        if (!model.id)
            test__fail(__FILE__, __LINE__, ignis_status_message());
        ignis_status_clear();
        if (model.id)
            check_whole(own_of(&families[i], &m), model, SEQ, 0, 1e-5);
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

TEST(tensor_cores_agree_with_a_forward_in_double)
{
    static const char *const names[] = {"mistral",   "gemma2",     "gemma3_text", "olmo2",  "cohere2",
                                        "qwen3_moe", "granitemoe", "glm4_moe",    "gpt_oss"};
    int i, k;
    SETUP(NULL);
    for (i = 0; i < FAMILIES; i++) {
        ck_model m;
        ignis_model model;
        for (k = 0; k < COUNT_OF(names) && strcmp(names[k], families[i].model_type) != 0;)
            k++;
        if (k == COUNT_OF(names))
            continue;
        make_tensors(&families[i], &m);
        ck_round_all(&m, IGNIS_BF16);
        write_folder(&families[i], &m);
        model = open_model(test_path("f"), IGNIS_BF16);
        check_sequences(own_of(&families[i], &m), model, LONG, 4e-2); /* 8 bits, over 4 layers */
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

static const family *family_of(const char *name)
{
    int i;
    for (i = 0; strcmp(families[i].model_type, name) != 0;)
        i++;
    return &families[i];
}

/*  Experts that a GGUF file has quantised stay so on the device; gate and up may have different types. */
TEST(quantised_experts_agree_with_a_forward_in_double)
{
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_BF16, IGNIS_BF16};
    static const char *const names[] = {"qwen3_moe", "granitemoe", "glm4_moe"};
    ignis_model_info info;
    ignis_model_desc desc;
    int i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("m.gguf");
    for (i = 0; i < 3; i++) {
        const family *f = family_of(names[i]);
        ck_model m;
        ignis_model model;
        expert_types[0] = IGNIS__GGUF_Q8_0, expert_types[1] = i ? IGNIS__GGUF_Q8_0 : IGNIS__GGUF_Q4_0;
        make_tensors(f, &m);
        ck_round_all(&m, IGNIS_BF16);
        write_gguf_file(f, &m, test_path("m.gguf"));
        desc.dtype = dtypes[i];
        CHECK_OK(ignis_model_inspect(&desc, &info));
        CHECK_INT(info.quantised, (int64_t)(LAYERS - f->dense_layers) * 2 * f->experts * I * H);
        model = open_model(test_path("m.gguf"), dtypes[i]);
        if (i == 0)
            check_whole(own_of(f, &m), model, SEQ, 0, 1e-5);
        check_sequences(own_of(f, &m), model, LONG, i ? 4e-2 : 1e-5);
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
    memset(expert_types, 0, sizeof expert_types);
}

static double loss_of(own_forward own, const int32_t *ids, const double *weights)
{
    double logits[5 * V], loss = 0;
    int i;
    own.run(own.family, own.model, ids, 5, logits);
    for (i = 0; i < 5 * V; i++)
        loss += logits[i] * weights[i];
    return loss;
}

/*  Gradients of adapters before the experts pass through all of them, which stay quantised. */
TEST(gradients_through_quantised_experts_are_slopes)
{
    static const char *const targets[] = {"layers.0.self_attn.o_proj"};
    const family *f = family_of("qwen3_moe");
    ignis_tensor_desc i32 = tensor_desc(IGNIS_I32, false), f64 = tensor_desc(IGNIS_F64, false);
    double weights[5 * V], *of[2], *a, *w = NULL;
    ignis_tensor tensors[2], logits;
    ignis_model_info info;
    ignis_model model;
    ignis_scope scope;
    ignis_lora lora;
    own_forward own;
    int32_t ids[5];
    ck_model m;
    int i, k, c;
    SETUP(NULL);
    expert_types[0] = IGNIS__GGUF_Q8_0, expert_types[1] = IGNIS__GGUF_Q4_0;
    make_tensors(f, &m);
    own = own_of(f, &m);
    write_gguf_file(f, &m, test_path("m.gguf"));
    memset(expert_types, 0, sizeof expert_types);
    model = open_model(test_path("m.gguf"), IGNIS_F64);
    CHECK_OK(ignis_model_query(model, &info));
    CHECK_INT(info.quantised, (int64_t)LAYERS * 2 * f->experts * I * H);
    lora = make_adapters(model, targets, 1, 1);
    test_remove_folder(test_path("lora"));
    CHECK_OK(ignis_lora_save(lora, test_path("lora")));
    CHECK_INT(add_adapters(&m, test_path("lora")), 1);
    CHECK_OK(ignis_model_set_lora(model, lora));
    f64.host_dtype = IGNIS_F64;
    ids_of(ids, 5, V);
    for (i = 0; i < 5 * V; i++)
        weights[i] = sin(i);
    scope = ignis_scope_begin();
    logits = ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(5), &i32));
    logits = ignis_mul(logits, ignis_tensor_from_host(weights, IGNIS_SHAPE(5, V), &f64));
    CHECK_OK(ignis_backward(ignis_sum(logits), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
    CHECK_INT(ignis_lora_weights(lora, tensors, 2), 2);
    for (i = 0; i < 2; i++)
        of[i] = array_values(ignis_tensor_grad(tensors[i]));
    a = tensor_values(tensors[0]);
    for (i = 0; i < m.count; i++)
        w = strcmp(m.tensors[i].name, "model.layers.0.self_attn.o_proj.weight") == 0 ? m.tensors[i].v : w;
    for (i = 0; i < 6; i++) { /* of B [H, 2] */
        const int row = 5 * i + 1, column = i % 2;
        const double grad = of[1][row * 2 + column];
        double slope = 0;
        for (k = 1; k >= -1; k -= 2) {
            for (c = 0; c < Q * D; c++)
                w[row * Q * D + c] += k * 1e-5 * 1.5 * a[column * Q * D + c];
            slope += k * loss_of(own, ids, weights) / 2e-5;
            for (c = 0; c < Q * D; c++)
                w[row * Q * D + c] -= k * 1e-5 * 1.5 * a[column * Q * D + c];
        }
        CHECK(fabs(grad) > 1e-3);
        CHECK(fabs(grad - slope) <= 1e-6 * (1 + fabs(slope))); /* rounding, and the third derivative */
    }
    free(of[0]), free(of[1]), free(a);
    CHECK_OK(ignis_model_set_lora(model, (ignis_lora){0}));
    CHECK_OK(ignis_lora_free(lora));
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

/*  A weight that several tensors of a folder become has all rows, also if those of some are in another order. */
TEST(whole_weights_have_all_rows)
{
    static const char *const names[] = {"glm", "olmo2", "phi3"};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(names); i++) {
        ck_model m;
        ignis_model model;
        ignis_scope scope = ignis_scope_begin();
        make_tensors(family_of(names[i]), &m);
        write_folder(family_of(names[i]), &m);
        model = open_model(test_path("f"), IGNIS_F32);
        CHECK_SHAPE_IS(ignis_model_tensor(model, "model.layers.1.self_attn.qkv_proj.weight"),
                       IGNIS_SHAPE((Q + 2 * KV) * D, H));
        CHECK_OK(ignis_scope_end(scope));
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

/*  The slope of yarn is from integer to integer, unless config.json has "truncate": false. gpt-oss has that, and
    OpenAI's own code computes so. Its GGUF files say nothing of it, and are the same model; llama.cpp rounds there. */
TEST(yarn_is_rounded_unless_the_model_says_otherwise)
{
    family changed = *family_of("gpt_oss");
    ignis_model model;
    ignis__model whole;
    ck_model m;
    int i;
    SETUP(NULL);
    changed.json =
        "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"sliding_window\": 5, \"swiglu_limit\": 0.6, "
        "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": "
        "24}, \"quantization_config\": {\"quant_method\": \"mxfp4\"}";
    changed.rounded = true;
    make_tensors(family_of("gpt_oss"), &m);
    write_folder(&changed, &m);
    model = open_model(test_path("f"), IGNIS_F32);
    check_whole(own_of(&changed, &m), model, SEQ, 0, 1e-5); /* sums of f32 */
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
    memset(&whole, 0, sizeof whole); /* gpt-oss-20b: from 8.0928 to 17.3980, as OpenAI's code has it */
    whole.rope_scaling = IGNIS__ROPE_SCALING_YARN;
    whole.rotary = 64, whole.theta = 150000, whole.factor = 32, whole.original = 4096, whole.high = 32, whole.low = 1;
    for (i = 0; i < 2; i++) {
        const double low = i ? 8 : 8.092779115512402, high = i ? 18 : 17.39802450158856;
        int k;
        whole.uncut = i == 0;
        ignis__model_frequencies(&whole);
        for (k = 0; k < 32; k++) {
            const double f = pow(150000, -k / 32.0), t = fmin(fmax((k - low) / (high - low), 0), 1);
            CHECK_CLOSE(whole.frequencies[k] / (f * (1 - t) + f / 32 * t), 1, 1e-12);
        }
    }
}

/*  Adapters of all products but those of routers and experts, in PEFT's files and in the model: of weights whose rows
    have another order in the files, of fused weights, and of an expert for all tokens. */
TEST(adapters_are_those_of_the_files)
{
    static const struct {
        const char *family;
        int products; /* of a layer */
    } cases[] = {{"phi3", 4},     {"glm", 6},    {"stablelm", 7},  {"internlm2", 5}, {"cohere", 7},
                 {"gpt_neox", 4}, {"falcon", 4}, {"qwen2_moe", 7}, {"glm4_moe", 7}};
    static const char *const targets[] = {"all-linear"};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        const family *f = family_of(cases[i].family);
        ck_model m;
        ignis_model model;
        make_tensors(f, &m);
        write_folder(f, &m);
        model = open_model(test_path("f"), IGNIS_F32);
        check_adapters(own_of(f, &m), model, targets, 1, LAYERS * cases[i].products, SEQ);
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

/*  Published files have such windows: 262,144 in that of a Phi-3 for 131,072 tokens. */
TEST(windows_longer_than_the_context_cut_nothing)
{
    family changed = *family_of("mistral");
    ignis_model model;
    ck_model m;
    SETUP(NULL);
    make_tensors(&changed, &m);
    changed.json = "\"sliding_window\": 262144";
    changed.window = 0;
    write_folder(&changed, &m);
    model = open_model(test_path("f"), IGNIS_F32);
    check_sequences(own_of(&changed, &m), model, LONG, 1e-5); /* sums of f32 */
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

TEST(descriptions_that_contradict_themselves_are_refused)
{
    static const struct {
        const char *family, *change, *message;
        ignis_status status;
    } cases[] = {
        {"ministral", "\"layer_types\": [\"sliding_attention\"], ", "a list layer_types[] of another length than its 4",
         IGNIS_ERROR_FORMAT},
        {"mistral", "\"layer_types\": [\"sliding_attention\", \"x\", \"x\", \"x\"], ", "has layer_types[] 'x'",
         IGNIS_ERROR_UNSUPPORTED},
        {"mistral", "", NULL, IGNIS_ERROR_FORMAT},
        {"gemma2", "\"attention_type\": 3, ", "has 'attention_type' 3, an entry that the table of gemma2",
         IGNIS_ERROR_UNSUPPORTED},
        {"gemma3_text", "\"use_bidirectional_attention\": true, ", "has 'use_bidirectional_attention' true",
         IGNIS_ERROR_UNSUPPORTED},
        {"granite", "\"sliding_window\": 7, ", "has sliding_window 7, which Ignis cannot do", IGNIS_ERROR_UNSUPPORTED},
        {"smollm3", "\"no_rope_layers\": [1], ", "a list no_rope_layers[] of another length", IGNIS_ERROR_FORMAT},
        {"qwen3_moe", "\"mlp_only_layers\": [0], ", "has mlp_only_layers[] 0, which Ignis cannot do",
         IGNIS_ERROR_UNSUPPORTED},
        {"qwen3_moe", "\"decoder_sparse_step\": 2, ", "has decoder_sparse_step 2", IGNIS_ERROR_UNSUPPORTED},
        {"qwen3_moe", "\"num_experts\": 6, ", "has 'num_local_experts' 5, an entry that the table",
         IGNIS_ERROR_UNSUPPORTED},
        {"qwen2_moe", "\"qkv_bias\": false, ", "has qkv_bias false", IGNIS_ERROR_UNSUPPORTED},
        {"olmoe", "\"clip_qkv\": 8.0, ", "has 'clip_qkv' 8", IGNIS_ERROR_UNSUPPORTED},
        {"cohere", "\"use_qk_norm\": true, ", "has no tensor 'model.layers.0.self_attn.q_norm.weight', [4, 16]",
         IGNIS_ERROR_FORMAT},
        {"cohere2", "\"use_qk_norm\": true, ", "has 'use_qk_norm' true", IGNIS_ERROR_UNSUPPORTED},
        {"stablelm", "\"qk_layernorm\": true, ",
         "has no tensor 'model.layers.0.self_attn.q_layernorm.norms.0.weight', [16]", IGNIS_ERROR_FORMAT},
        {"stablelm", "\"use_parallel_residual\": true, ", "has a tensor 'model.layers.0.post_attention_layernorm",
         IGNIS_ERROR_UNSUPPORTED},
        {"falcon", "\"alibi\": true, ", "has alibi true, which Ignis cannot do", IGNIS_ERROR_UNSUPPORTED},
        {"falcon", "\"num_ln_in_parallel_attn\": 2, ", "num_ln_in_parallel_attn is 2, and new_decoder_architecture is",
         IGNIS_ERROR_FORMAT},
        {"stablelm", "\"use_parallel_residual\": 1, ", "use_parallel_residual is not true or false",
         IGNIS_ERROR_FORMAT},
    };
    ignis_model_desc desc;
    ignis_model_info info;
    ck_model m;
    int i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("f");
    for (i = 0; i < COUNT_OF(cases); i++) {
        const family *f = family_of(cases[i].family);
        family changed = *f;
        make_tensors(f, &m);
        if (!cases[i].message) /* a windowed layer without a window */
            changed.json = "\"layer_types\": [\"full_attention\", \"sliding_attention\", \"full_attention\", "
                           "\"full_attention\"]";
        write_folder(&changed, &m);
        write_config(&changed, cases[i].message ? cases[i].change : "");
        CHECK_INT(ignis_model_inspect(&desc, &info), cases[i].status);
        CHECK_HAS(ignis_status_message(),
                  cases[i].message ? cases[i].message : "layer 1 has a window, and does not say");
        ignis_status_clear();
        ck_free(&m);
    }
    CHECK_INT(memory().live_bytes, 0);
}

TEST(numbers_of_rotations_and_shares_are_checked)
{
    static const struct {
        const char *family, *json, *message;
    } cases[] = {
        {"phi3", "\"partial_rotary_factor\": 0.7", "rotates 11 elements of heads of 16"},
        {"phi3", "\"partial_rotary_factor\": 1.5", "rotates 24 elements of heads of 16"},
        {"phi3",
         "\"partial_rotary_factor\": 0.75, \"rope_scaling\": {\"type\": \"longrope\", \"long_factor\": [2, 2], "
         "\"short_factor\": [1, 1]}",
         "has 2 items of short_factor; 6 are needed"},
        {"phi3", "\"rope_scaling\": {\"type\": \"longrope\", \"long_factor\": [2], \"short_factor\": [1, -1]}",
         "item 1 of short_factor is not a positive number"},
        {"gemma2", "\"sliding_window\": 5, \"final_logit_softcapping\": -1",
         "has final_logit_softcapping -1; a positive"},
        {"gemma2", "\"final_logit_softcapping\": 1", "has no sliding_window"},
        {"granite", "\"attention_multiplier\": 0.3", "has no embedding_multiplier"},
        {"minicpm", "\"scale_emb\": 12", "has no scale_depth"},
        {"olmoe", "\"num_experts\": 6, \"num_experts_per_tok\": 7", "a token has 7 of 6 experts"},
        {"olmoe", "\"num_experts\": 6", "has no num_experts_per_tok"},
        {"gpt_oss", "\"num_local_experts\": 4, \"num_experts_per_tok\": 2", "has no sliding_window"},
        {"glm4_moe", GLM4_MOE("7", "3", "2", "1"), "7 experts are in 3 groups, and a token has 3 experts of 2 groups"},
        {"glm4_moe", GLM4_MOE("6", "3", "4", "1"), "6 experts are in 3 groups, and a token has 3 experts of 4 groups"},
        {"glm4_moe", GLM4_MOE("6", "3", "1", "1"), "6 experts are in 3 groups, and a token has 3 experts of 1 groups"},
        {"glm4_moe", GLM4_MOE("3", "2", "2", "1"), "3 experts are in 3 groups, and a token has 2 experts of 2 groups"},
        {"glm4_moe", GLM4_MOE("6", "3", "2", "5"), "of 4 layers, 5 have no experts, and 0 are after the others"},
        {"glm4_moe", GLM4_MOE("6", "3", "2", "0.5"), "of 4 layers, 0.5 have no experts"},
        {"glm4_moe", GLM4_MOE("6", "3", "2", "0"), "has no tensor 'model.layers.0.mlp.gate.weight'"},
        {"granitemoe", "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, " GRANITE_SCALES,
         "is [5, 32]; its description makes it [4, 32]"},
        {"granitemoe", "\"num_local_experts\": 0, \"num_experts_per_tok\": 2, " GRANITE_SCALES,
         "has num_local_experts 0; a whole number from 1"},
        {"granitemoe", "\"num_local_experts\": 5, \"num_experts_per_tok\": 6, " GRANITE_SCALES,
         "a token has 6 of 5 experts"},
        {"mixtral", "\"num_local_experts\": 1000, \"num_experts_per_tok\": 2",
         "4 layers of 1000 experts, but there are"},
        {"mixtral", "\"num_local_experts\": 5, \"num_experts_per_tok\": 2", "is [4, 32]; its description"},
    };
    ignis_model_desc desc;
    ignis_model_info info;
    ck_model m;
    int i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("f");
    for (i = 0; i < COUNT_OF(cases); i++) {
        family changed = *family_of(cases[i].family);
        make_tensors(family_of(cases[i].family), &m);
        changed.json = cases[i].json;
        write_folder(&changed, &m);
        CHECK_INT(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT);
        CHECK_HAS(ignis_status_message(), cases[i].message);
        ignis_status_clear();
        ck_free(&m);
    }
    make_tensors(family_of("olmo2"), &m); /* norms over the width need all ranks */
    write_folder(family_of("olmo2"), &m);
    desc.parallel.size = 2;
    CHECK_INT(ignis_model_inspect(&desc, &info), IGNIS_ERROR_UNSUPPORTED);
    CHECK_HAS(ignis_status_message(), "a model of olmo2 cannot be shared by 2 ranks");
    ignis_status_clear();
    ck_free(&m);
    make_tensors(family_of("mixtral"), &m); /* experts are not shared */
    write_folder(family_of("mixtral"), &m);
    CHECK_INT(ignis_model_inspect(&desc, &info), IGNIS_ERROR_UNSUPPORTED);
    CHECK_HAS(ignis_status_message(), "a model of mixtral cannot be shared by 2 ranks");
    ignis_status_clear();
    ck_free(&m);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
