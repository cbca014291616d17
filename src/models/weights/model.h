/* >>model - checkpoints opened ---------------------------------------------------------------------------------- */

/*  A model that was opened: its weights on a device, its description, its tokenizer. */
typedef struct ignis_model {
    uint64_t id;
} ignis_model;

typedef enum ignis_model_family {
    IGNIS_MODEL_GPT2 = 1,
    IGNIS_MODEL_LLAMA, /* Llama 2 and 3, TinyLlama, SmolLM, SmolLM2 */
    IGNIS_MODEL_QWEN2, /* and Qwen2.5 */
    IGNIS_MODEL_QWEN3,
    IGNIS_MODEL_FAMILY_COUNT
} ignis_model_family;

/*  How the matrices of a model lie on the device. Norms, biases and GPT-2's positions are numbers of the model's dtype always. */
typedef enum ignis_weights {
    IGNIS_WEIGHTS_DEFAULT =
        0, /* quantised as in the file, if they are; numbers of the dtype with requires_grad or parallel */
    IGNIS_WEIGHTS_NUMBERS, /* numbers of the dtype */
    IGNIS_WEIGHTS_Q8_0,    /* all quantised: 34 bytes for 32 elements, */
    IGNIS_WEIGHTS_Q4_0,    /* 18 for 32, */
    IGNIS_WEIGHTS_Q4_K,    /* 144 for 256; where rows are no multiples of 256 elements, Q8_0 */
    IGNIS_WEIGHTS_COUNT
} ignis_weights;

typedef struct ignis_model_desc {
    const char *path; /* required: a folder with config.json and model.safetensors (or its shards), or a .gguf file */
    ignis_dtype
        dtype; /* of what is computed, and of weights that are not quantised: f32, f16, bf16 or f64 (that of most in the file; else bf16) */
    ignis_weights weights; /* whether matrices are quantised (as in the file) */
    int device;            /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    bool requires_grad;    /* whether ignis_backward computes gradients for the weights (false) */
    int context;           /* tokens that a sequence has room for (the model's, but at most 4096) */
    int sequences;         /* that are there at a time (1) */
    ignis_dtype
        cache_dtype; /* of their keys and values: f32, f16 or bf16 (dtype, and no other is taken by ignis_sequence_begin) */
    bool (*progress_fn)(int64_t done, int64_t total,
                        void *user_data); /* bytes of the file that were read; false stops (none) */
    void *user_data;                      /* for progress_fn */
    ignis_model_parallel parallel;        /* the ranks that share the model, of which this is one (none) */
} ignis_model_desc;

typedef struct ignis_model_info {
    ignis_model_family family;
    int layers, hidden, heads, kv_heads, head_dim, inner, vocab;
    int model_context;       /* tokens that the model was made for */
    int context, sequences;  /* as in ignis_model_desc, filled in */
    ignis_dtype dtype;       /* of what is computed, and of weights that are not quantised */
    ignis_dtype cache_dtype; /* of the keys and values of sequences */
    bool tied;               /* one table serves as embedding and head */
    int rank, ranks;         /* that share it, and this one; 0, 1: nobody else. What follows is this rank's share */
    int64_t parameters;      /* numbers in the weights */
    int64_t quantised;       /* of them, those that are quantised on the device */
    int64_t file_bytes;      /* of the weights in the file */
    int64_t weight_bytes;    /* of the weights on the device */
    int64_t cache_bytes_of_token; /* keys and values of all layers */
    int64_t cache_bytes;          /* those of all sequences at their full context */
    int64_t workspace_bytes;      /* what a pass over the first 512 tokens of a sequence takes besides, about */
    int32_t ends[16];             /* tokens that end a text: see ignis_model_inspect */
    int end_count;                /* of ends; 0: there are none */
} ignis_model_info;

/*  ignis_model_inspect - what a model is and how much memory it will take, from its files alone: no device is needed, nor ignis_setup
    All of a model but the values of its weights is checked, as ignis_model_open does. With desc->parallel.rank and .size it is
    about that rank's share.
    info->ends: of a folder those of generation_config.json, or else of config.json; of a GGUF file those that its keys name (eos_token_id,
    eot_token_id, eom_token_id, ...), and tokens of its vocabulary that llama.cpp knows by their texts (<|eot_id|>, <|im_end|>, <end_of_turn>, ...).
    A tensor of the files that the family has no use for is refused by name. These alone are passed over, in folders: rotary_emb.inv_freq; of GPT-2
    attn.bias, the causal mask, and attn.masked_bias; lm_head.weight where tie_word_embeddings is true.
    Returns: IGNIS_OK, and *info filled, or the reason.
    Errors: ARGUMENT (null, a number or dtype of desc out of its range), IO (a file is missing or cannot be read), FORMAT (a damaged file; a
    description that is not complete or contradicts itself or the weights: which is missing, or has another shape), UNSUPPORTED (another
    family, a tensor that it has no use for, a GGUF file that is a part of several, or something in the description or a type of weights that
    Ignis does not have: the message names it and its value; sizes of which the ranks of desc->parallel cannot have equal shares; these with
    requires_grad), MEMORY.
    Ownership: info is the caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_model_inspect(const ignis_model_desc *desc, ignis_model_info *info);

/*  ignis_model_open - read a model from its files to a device
    Families go by "model_type" of config.json, or "general.architecture" of a GGUF file. Weights in safetensors files are F32, F16, BF16 or
    F64; in GGUF files also Q8_0, Q4_0, Q4_1, Q4_K, Q5_K and Q6_K. By default matrices stay quantised, but for Q4_1 and Q5_K; these become numbers
    of the model's dtype, as does a weight of several tensors (q, k and v; gate and up) of which one is not quantised, and gate and up where their
    types differ. IGNIS_WEIGHTS_Q8_0, _Q4_0 and _Q4_K quantise every matrix, whatever it is in the file, but for those whose rows are no multiples of
    32 elements; Q8_0 and Q4_0 give the blocks that ggml's reference does. Several threads read and convert while others' parts are copied;
    desc->progress_fn is called on the caller's thread. With desc->parallel a rank reads and has its share, in numbers of the dtype: only sequences
    work with that.
    Returns: the model, or no handle.
    Errors: those of ignis_model_inspect; IO (desc->progress_fn has returned false), DEVICE, UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the caller's, until ignis_model_free; the weights are the model's, whatever scope is current.
    Threads: any. Streams: writes on the current stream, and waits for it. */
IGNIS_API ignis_model ignis_model_open(const ignis_model_desc *desc);

/*  ignis_model_query - what a model is
    Returns: IGNIS_OK, and *info filled, or the reason.
    Errors: ARGUMENT (null info), FREED.
    Ownership: info is the caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_model_query(ignis_model model, ignis_model_info *info);

/*  ignis_model_tensor - a weight by its Hugging Face name, such as "model.norm.weight" or "transformer.h.0.mlp.c_fc.weight"
    Weights that one product reads are one tensor: "model.layers.0.self_attn.qkv_proj.weight" has the rows of q_proj, k_proj and v_proj, and
    "model.layers.0.mlp.gate_up_proj.weight" those of gate_proj and up_proj; their biases likewise. The name of one of its parts gives a new
    tensor over those rows, which shares their memory and requires no gradient: for reading and writing values. Weights of products are [out,
    in], those of GPT-2 too, whose files have them the other way round. A tied head is its embedding. The name of a quantised weight, or of a part
    of it, gives a new tensor with a copy of its numbers in the model's dtype: for reading.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (null, no such weight), FREED, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: a weight is the model's: do not release it; a part as ignis_tensor_from_array, a copy as ignis_tensor_from_host.
    Threads: any. Streams: copies are queued on the current stream. */
IGNIS_API ignis_tensor ignis_model_tensor(ignis_model model, const char *name);

/*  ignis_model_tokenizer - the tokenizer in a model's folder, or in its GGUF file
    It is opened by the first call, so that who has ids only, in training say, neither needs one nor waits for it.
    Returns: the tokenizer, or no handle.
    Errors: FREED, and those of ignis_tokenizer_open: IO where the folder has none.
    Ownership: the model's: do not free it.
    Threads: any. */
IGNIS_API ignis_tokenizer ignis_model_tokenizer(ignis_model model);

/*  ignis_model_weights - all weights of a model that are not quantised, each once: what an optimizer gets
    tensors may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT, FREED.
    Ownership: the tensors are the model's: do not release them.
    Threads: any. */
IGNIS_API int ignis_model_weights(ignis_model model, ignis_tensor *tensors, int capacity);

/*  ignis_model_forward - the scores of every next token, for whole texts
    Shapes: ids [seq] or [batch, seq], of i32 or i64, from position 0; the result is [seq, vocab] or [batch, seq, vocab]. Each place sees those
    before it. Made of Ignis' operations, and recorded as they are: with ignis_model_desc.requires_grad a model is trained through it. Adapters that
    are set (ignis_model_set_lora) take part. Gradients pass quantised weights, to adapters, and the tape keeps the blocks alone.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (ids of other shapes, or longer than GPT-2's positions), UNSUPPORTED (a share of a model), and those of
    ignis_embedding, ignis_linear, ignis_rope,
    ignis_sdpa and the norms.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_model_forward(ignis_model model, ignis_tensor ids);

/*  ignis_model_save - write a model as a folder, which transformers and ignis_model_open open: config.json and model.safetensors
    Names and layouts are those of Hugging Face; the dtype is the model's, of which quantised weights are written as numbers. The folder is made if
    need be. What the folder that the model was opened from still has of a tokenizer, a chat template and generation_config.json is copied, file by
    file: tokenizer.json, tokenizer_config.json, special_tokens_map.json, added_tokens.json, chat_template.jinja and .json, vocab.json, merges.txt,
    tokenizer.model. A GGUF
    file has nothing to copy. Adapters (>>lora) are not part of it before they are merged.
    Returns: IGNIS_OK, or the reason; then the folder may have some of the files, each of them whole.
    Errors: ARGUMENT (null), FREED, UNSUPPORTED (this thread captures a graph; a share of a model; a GGUF file's own frequencies, which
    config.json has no words for), and those of ignis_save.
    Ownership: as ignis_save.
    Threads: any. Streams: reads on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_model_save(ignis_model model, const char *folder);

/*  ignis_model_free - free a model and its weights
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: the handle is stale afterwards, and those of the weights are when no sequence, no adapters and no call of another thread use the model
    any more. What the tape needs of them stays until ignis_backward or ignis_tape_clear.
    Threads: any. Calls of other threads that use it end as if it were still there. */
IGNIS_API ignis_status ignis_model_free(ignis_model model);
