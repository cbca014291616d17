/*  Rows of tensors that several families have, and how a row of a family is written. */

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

#define IGNIS__GGUF_PART_ROW(member, rows, how, gguf)                       \
    {                                                                       \
        IGNIS__ROW_LAYER(member), rows, 'H', how, NULL, "blk.#." gguf, NULL \
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

#define IGNIS__ROWS(list) list, IGNIS__COUNT(list)
#define IGNIS__KEYS(list) list, IGNIS__COUNT(list)
#define IGNIS__NO_KEYS NULL, 0
