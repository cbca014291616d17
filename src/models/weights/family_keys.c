/*  models/weights/family_keys.c - the keys of config.json and of GGUF files that all families share, and lists that
    several families have

    The lists of a family come before these lists, and replace their entries of the same number or name.
    May use: room.h. Locks: none. */

#include "room.h"

IGNIS__PRIVATE const ignis__number_key ignis__common_keys[] = {
    {IGNIS__NUMBER_LAYERS, 'W', "num_hidden_layers", "block_count", 0, 65536},
    {IGNIS__NUMBER_HIDDEN, 'W', "hidden_size", "embedding_length", 0, 1 << 24},
    {IGNIS__NUMBER_HEADS, 'W', "num_attention_heads", "attention.head_count", 0, 65536},
    {IGNIS__NUMBER_KV_HEADS, 'w', "num_key_value_heads", "attention.head_count_kv", 0, 65536},
    {IGNIS__NUMBER_INNER, 'W', "intermediate_size", "feed_forward_length", 0, 1 << 26},
    {IGNIS__NUMBER_CONTEXT, 'W', "max_position_embeddings", "context_length", 0, 1 << 30},
    {IGNIS__NUMBER_EPS, 'r', "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6, 0},
    {IGNIS__NUMBER_HEAD_DIM, 'w', "head_dim", "attention.key_length", 0, 65536},
    {IGNIS__NUMBER_POOLING, 'p', NULL, "pooling_type", 0, 0},
};

IGNIS__PRIVATE const int ignis__common_key_count = IGNIS__COUNT(ignis__common_keys);

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
    IGNIS__MUST_BE("sliding_window", '0', 0),
    IGNIS__MUST_BE("rope_interleaved", 'b', 0),
    /* separate settings for each type of layer */
    IGNIS__MUST_BE("rope_parameters.full_attention", '0', 0),
    IGNIS__MUST_BE("rope_parameters.sliding_attention", '0', 0),
    {"layer_types[]", 't', 0, {"full_attention", NULL, NULL}},
    IGNIS__MUST_BE("rope_scaling", '{', 0),
    IGNIS__MUST_BE("rope_parameters", '{', 0),
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
IGNIS__PRIVATE const char *const ignis__rope_keys[] = {"full_attention",
                                                       "long_factor",
                                                       "short_factor",
                                                       "sliding_attention",
                                                       "attention_factor",
                                                       "beta_fast",
                                                       "beta_slow",
                                                       "factor",
                                                       "finetuned",
                                                       "high_freq_factor",
                                                       "low_freq_factor",
                                                       "mscale",
                                                       "mscale_all_dim",
                                                       "mrope_interleaved", /* positions of texts are all equal */
                                                       "mrope_section",
                                                       "original_max_position_embeddings",
                                                       "partial_rotary_factor",
                                                       "rope_theta",
                                                       "rope_type",
                                                       "truncate",
                                                       "type",
                                                       NULL};

/* --- lists of several families ------------------------------------------------------------------------------------ */

IGNIS__PRIVATE const ignis__unused_tensor ignis__rotary_unused[] = {{"rotary_emb.inv_freq", 1}, {NULL, 0}};
IGNIS__PRIVATE const ignis__json_must ignis__no_musts[] = {{NULL, 0, 0, {NULL, NULL, NULL}}};
IGNIS__PRIVATE const char *const ignis__none_harmless[] = {NULL};
IGNIS__PRIVATE const ignis__json_must ignis__window_musts[] = {
    {"layer_types[]", 't', 0, {"full_attention", "sliding_attention", NULL}},
    {NULL, 0, 0, {NULL, NULL, NULL}},
};
