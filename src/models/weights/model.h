/* >>model - checkpoints opened ---------------------------------------------------------------------------------- */

/*  An open model: its weights on a device, its description, its tokenizer. */
typedef struct ignis_model {
    uint64_t id;
} ignis_model;

typedef enum ignis_model_family {
    IGNIS_MODEL_GPT2 = 1,
    IGNIS_MODEL_LLAMA, /* Llama 2 and 3, TinyLlama, SmolLM, SmolLM2 */
    IGNIS_MODEL_QWEN2, /* and Qwen2.5 */
    IGNIS_MODEL_QWEN3,
    IGNIS_MODEL_MISTRAL,   /* of folders; GGUF files of Mistral say llama */
    IGNIS_MODEL_MINISTRAL, /* as MISTRAL */
    IGNIS_MODEL_GEMMA,
    IGNIS_MODEL_GEMMA2,
    IGNIS_MODEL_GEMMA3, /* the text models, and the text part in GGUF files of others */
    IGNIS_MODEL_PHI3,   /* Phi-3, Phi-3.5, Phi-4, Phi-4-mini */
    IGNIS_MODEL_GLM,    /* GLM-4 in folders for transformers */
    IGNIS_MODEL_GLM4,   /* GLM-4-0414 */
    IGNIS_MODEL_GRANITE,
    IGNIS_MODEL_OLMO2, /* and GGUF files of OLMo 3 */
    IGNIS_MODEL_OLMO3,
    IGNIS_MODEL_SMOLLM3,
    IGNIS_MODEL_MINICPM,
    IGNIS_MODEL_STABLELM,
    IGNIS_MODEL_INTERNLM2,
    IGNIS_MODEL_COHERE,  /* Command-R */
    IGNIS_MODEL_COHERE2, /* Command R7B, Command A */
    IGNIS_MODEL_NEOX,    /* GPT-NeoX, Pythia */
    IGNIS_MODEL_FALCON,  /* Falcon 7B, 11B, 40B and 180B; Falcon 3 is LLAMA */
    IGNIS_MODEL_QWEN3_MOE,
    IGNIS_MODEL_MIXTRAL, /* GGUF files of it say llama, and have experts */
    IGNIS_MODEL_OLMOE,
    IGNIS_MODEL_QWEN2_MOE, /* and Qwen1.5-MoE */
    IGNIS_MODEL_GPT_OSS,
    IGNIS_MODEL_GRANITE_MOE,
    IGNIS_MODEL_GLM4_MOE,    /* GLM-4.5, GLM-4.6 */
    IGNIS_MODEL_DEEPSEEK_V2, /* and V2-Lite, V2.5 */
    IGNIS_MODEL_DEEPSEEK_V3, /* and R1; GGUF files of Kimi-K2 */
    IGNIS_MODEL_KIMI_K2,     /* of folders */
    /* encoders: their texts have hidden states and vectors, and no next token */
    IGNIS_MODEL_BERT, /* MiniLM, BGE, E5, cross-encoders */
    IGNIS_MODEL_NOMIC_BERT,
    IGNIS_MODEL_ROBERTA,     /* of folders; GGUF files say bert */
    IGNIS_MODEL_XLM_ROBERTA, /* as ROBERTA */
    /* with recurrent layers */
    IGNIS_MODEL_QWEN3_NEXT,
    IGNIS_MODEL_QWEN3_5, /* text models, in GGUF files also the text part of others */
    IGNIS_MODEL_QWEN3_5_MOE,
    IGNIS_MODEL_FAMILY_COUNT
} ignis_model_family;

/*  How the hidden states of a text become one vector. */
typedef enum ignis_pooling {
    /* as the model's files say (1_Pooling/config.json, or pooling_type of a GGUF file); else the mean in encoders, the
       last token in other models */
    IGNIS_POOLING_DEFAULT = 0,
    IGNIS_POOLING_MEAN,  /* of all tokens */
    IGNIS_POOLING_FIRST, /* the state of the first token, [CLS] in BERT */
    IGNIS_POOLING_LAST,
    IGNIS_POOLING_COUNT
} ignis_pooling;

/*  The storage of a model's matrices on the device. Norms, biases and GPT-2's positions always have the
    model's dtype. */
typedef enum ignis_weights {
    /* quantised as in the file; in the model's dtype if the file is not quantised, or with requires_grad or
       parallel */
    IGNIS_WEIGHTS_DEFAULT = 0,
    IGNIS_WEIGHTS_NUMBERS, /* in the model's dtype */
    IGNIS_WEIGHTS_Q8_0,    /* all quantised: 34 bytes for 32 elements, */
    IGNIS_WEIGHTS_Q4_0,    /* 18 for 32, */
    IGNIS_WEIGHTS_Q4_K,    /* 144 for 256; Q8_0 if rows are not multiples of 256 elements */
    IGNIS_WEIGHTS_F8,      /* e4m3 with an f32 scale: 136 bytes for 128; Q8_0 if rows are not multiples of 128 elements.
                              Matrices that the file has quantised stay as they are */
    IGNIS_WEIGHTS_COUNT
} ignis_weights;

/*  The storage of the keys and values of sequences. Quantised ones take less memory and bandwidth, at some cost of
    accuracy. Each key and value of a head is quantised by itself, so a text has the same bits alone and in any
    batch. */
typedef enum ignis_cache_type {
    IGNIS_CACHE_DEFAULT = 0, /* as numbers of cache_dtype */
    IGNIS_CACHE_F8,          /* e4m3 with a power of two for each head: 1 byte an element; head_dim a multiple of 16 */
    IGNIS_CACHE_Q8_0,        /* 34 bytes for 32 elements; head_dim a multiple of 32, as of */
    IGNIS_CACHE_Q4_0,        /* 18 bytes for 32 elements */
    IGNIS_CACHE_COUNT
} ignis_cache_type;

typedef struct ignis_model_desc {
    const char *path; /* required: a folder with config.json and model.safetensors (or its shards), or a .gguf file */
    /* of computation, and of weights that are not quantised: f32, f16, bf16 or f64 (that of most in the file; else
       bf16) */
    ignis_dtype dtype;
    ignis_weights weights; /* how matrices are stored (as in the file) */
    int device;            /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    bool requires_grad;    /* whether ignis_backward computes gradients for the weights (false) */
    int context;           /* tokens of a sequence, at most (the model's, but at most 4096) */
    int sequences;         /* at a time (1) */
    ignis_dtype
        cache_dtype; /* of their keys and values: f32, f16 or bf16 (dtype; with f64 ignis_sequence_begin fails) */
    bool (*progress_fn)(int64_t done, int64_t total,
                        void *user_data); /* called with the bytes of the file that were read; false stops (none) */
    void *user_data;                      /* for progress_fn */
    ignis_model_parallel parallel;        /* the ranks that share the model, and this rank (none) */
    ignis_cache_type cache_type;          /* how keys and values are stored (as numbers of cache_dtype) */
    /* Whether sequences multiply 8-bit activations with the weights of layers that are F8 (false). Each row of an
       activation is rounded to e4m3 with an f32 scale of its own, as it comes (W8A8). For devices of compute capability
       9.0. */
    bool f8_activations;
} ignis_model_desc;

typedef struct ignis_model_info {
    ignis_model_family family;
    int layers, hidden, heads, kv_heads, head_dim, inner, vocab;
    int model_context;           /* tokens that the model was trained for */
    int context, sequences;      /* as in ignis_model_desc, filled in */
    ignis_dtype dtype;           /* of computation, and of weights that are not quantised */
    ignis_dtype cache_dtype;     /* of the keys and values of sequences */
    ignis_cache_type cache_type; /* how they are stored */
    bool tied;                   /* one table serves as embedding and head */
    /* this rank, and how many share the model; 0, 1: not shared. The members below are for this rank's share */
    int rank, ranks;
    int64_t parameters;           /* elements of all weights */
    int64_t quantised;            /* of them, elements that are quantised on the device */
    int64_t file_bytes;           /* of the weights in the file */
    int64_t weight_bytes;         /* of the weights on the device */
    int64_t cache_bytes_of_token; /* for keys and values of all layers that have some */
    int64_t cache_bytes;          /* of all sequences at their full context; layers with a window keep the window */
    int64_t state_bytes;          /* of each sequence in recurrent layers, besides the cache; 0: there are none */
    int64_t workspace_bytes;      /* about the additional memory for a pass over the first 512 tokens of a sequence */
    int32_t ends[16];             /* tokens that end a text: see ignis_model_inspect */
    int end_count;                /* of ends; 0: there are none */
} ignis_model_info;

/*  ignis_model_inspect - describe a model and the memory it will take, from its files alone: no device is
    needed, nor ignis_setup
    It checks a model as ignis_model_open does, except the values of its weights. With desc->parallel.rank and
    .size it describes that rank's share.
    info->ends: of a folder those of generation_config.json, or else of config.json; of a GGUF file those of
    its keys (eos_token_id, eot_token_id, eom_token_id, ...), and tokens of its vocabulary that llama.cpp
    knows by their texts (<|eot_id|>, <|im_end|>, <end_of_turn>, ...).
    An entry of config.json, a key of a GGUF file's architecture, or a tensor that the table of the family does
    not have is refused by name. Exceptions among the tensors of folders:
    rotary_emb.inv_freq; of GPT-2 attn.bias, the causal mask, and attn.masked_bias; lm_head.weight if
    tie_word_embeddings is true.
    Returns: IGNIS_OK, and *info filled, or the reason.
    Errors: ARGUMENT (null, a number or dtype of desc out of its range), IO (a file is missing or cannot be
    read), FORMAT (a damaged file; a description that is incomplete, or contradicts itself or the weights: the
    message names what is missing or has another shape), UNSUPPORTED (another family, a tensor that it does
    not use, a GGUF file that is a part of several, or an entry of the description or a type of weights that
    Ignis does not have: the message names it and its value; sizes that cannot be divided equally among the
    ranks of desc->parallel; parallel with requires_grad; f8_activations without F8 weights of layers, or with a dtype
    other than f16 and bf16), MEMORY.
    Ownership: info is the caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_model_inspect(const ignis_model_desc *desc, ignis_model_info *info);

/*  ignis_model_open - read a model from its files to a device
    The family is "model_type" of config.json, or "general.architecture" of a GGUF file. Weights are F32, F16,
    BF16 or F64 in safetensors files; in GGUF files also Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ2, IQ3, IQ4
    and MXFP4. A GGUF model in several files is opened by its first one, whose name ends in -00001-of-00003.gguf.
    Folders may have a quantization_config of fp8, compressed-tensors (FP8 alone), awq, gptq or mxfp4. FP8 stays
    quantised, with the values of the file, if rows are multiples of 128 elements, and scales are of multiples of 128
    columns or of rows.
    By default quantised matrices stay quantised. Exceptions are converted to the model's dtype: a
    weight of several tensors (q, k and v; gate and up) of which one is not quantised; gate and up of different
    types. IGNIS_WEIGHTS_Q8_0, _Q4_0 and _Q4_K quantise every matrix, whatever its type in the file,
    except those whose rows are not multiples of 32 elements. Q8_0 and Q4_0 give the blocks of ggml's reference.
    IGNIS_WEIGHTS_F8 quantises those that the file has not quantised, embedding and head among them: 128 elements of
    a row have a scale, with which the greatest of them is 448. Activations stay in the dtype (W8A16), unless
    desc->f8_activations is set. Then the products of layers with F8 weights, quantised here or in the file, take e4m3
    tensor cores, for steps and prompts of sequences: 128 products are added by a tensor core, and their sum, times
    the weights' scale, in f32. Each row has the same bits alone and in any batch. Norms, attention, experts, the
    embedding, the head, and weights of other types keep activations of the dtype, as do ignis_model_forward and
    ignis_model_hidden.
    Several threads read and convert while the caller's thread copies and calls desc->progress_fn. With
    desc->parallel a rank reads its share only, in the dtype; only sequences work with a share.
    Returns: the model, or no handle.
    Errors: those of ignis_model_inspect; IO (desc->progress_fn has returned false), DEVICE, UNSUPPORTED (this
    thread captures a graph; desc->f8_activations on a device that is not of compute capability 9.0), CUDA.
    Ownership: the caller's, until ignis_model_free; the weights are the model's, whatever scope is current.
    Threads: any. Streams: writes on the current stream, and waits for it. */
IGNIS_API ignis_model ignis_model_open(const ignis_model_desc *desc);

/*  ignis_model_query - fill in facts about a model
    Returns: IGNIS_OK, and *info filled, or the reason.
    Errors: ARGUMENT (null info), FREED.
    Ownership: info is the caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_model_query(ignis_model model, ignis_model_info *info);

/*  ignis_model_tensor - find a weight by its Hugging Face name, such as "model.norm.weight" or
    "transformer.h.0.mlp.c_fc.weight"
    Weights that are read by one product are one tensor: "model.layers.0.self_attn.qkv_proj.weight" has the
    rows of q_proj, k_proj and v_proj, and "model.layers.0.mlp.gate_up_proj.weight" those of gate_proj and
    up_proj; their biases likewise. The name of one part gives a new tensor over its rows: it shares their
    memory and requires no gradient; use it to read and write values. Where Ignis has rows or columns of heads in
    another order than a family's folders, the name gives a copy in the folders' order. Weights of products are
    [out, in], also those of GPT-2, whose files are transposed. A tied head is the embedding. The name of a
    quantised weight, or of a part of it, gives a new tensor with a copy in the model's dtype: use it to read values.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (null, no such weight), FREED, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: a weight is the model's: do not release it; a part as ignis_tensor_from_array, a copy as
    ignis_tensor_from_host.
    Threads: any. Streams: copies are queued on the current stream. */
IGNIS_API ignis_tensor ignis_model_tensor(ignis_model model, const char *name);

/*  ignis_model_tokenizer - get the tokenizer of a model's folder, or of its GGUF file
    The first call opens it: a program that has ids, in training say, needs no tokenizer and does not wait for
    one.
    Returns: the tokenizer, or no handle.
    Errors: FREED, and those of ignis_tokenizer_open: IO if the folder has none.
    Ownership: the model's: do not free it.
    Threads: any. */
IGNIS_API ignis_tokenizer ignis_model_tokenizer(ignis_model model);

/*  ignis_model_weights - list all weights that are not quantised, each once: the parameters for an optimizer
    tensors may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT, FREED.
    Ownership: the tensors are the model's: do not release them.
    Threads: any. */
IGNIS_API int ignis_model_weights(ignis_model model, ignis_tensor *tensors, int capacity);

/*  ignis_model_forward - compute the logits of the next token at every position of whole texts
    Shapes: ids [seq] or [batch, seq], of i32 or i64, from position 0; the result is [seq, vocab] or [batch,
    seq, vocab]. Each position attends to itself and those before it. It consists of recorded operations of
    Ignis: with ignis_model_desc.requires_grad a model is trained through it. Adapters that are set
    (ignis_model_set_lora) take part. Gradients flow through quantised weights, to adapters; the tape keeps
    only their blocks.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (ids of other shapes, or longer than GPT-2's positions), UNSUPPORTED (a share of a
    model; an encoder), and those of ignis_embedding, ignis_linear, ignis_rope, ignis_sdpa and the norms.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_model_forward(ignis_model model, ignis_tensor ids);

/*  ignis_model_save - write a model as a folder that transformers and ignis_model_open open: config.json and
    model.safetensors
    Names and layouts are those of Hugging Face. config.json is written for GPT-2, Llama, Qwen2 and Qwen3, and
    copied from the model's folder for other families. The dtype is the model's; quantised weights are converted to
    it. The folder is made if it does not exist. Other files are copied if the folder that the model was
    opened from has them: generation_config.json, tokenizer.json, tokenizer_config.json,
    special_tokens_map.json, added_tokens.json, chat_template.jinja and .json, vocab.json, merges.txt,
    tokenizer.model. Of a GGUF file nothing is copied. Adapters (>>lora) are not written unless they are
    merged.
    Returns: IGNIS_OK, or the reason; then the folder may have some of the files, each of them whole.
    Errors: ARGUMENT (null), FREED, UNSUPPORTED (this thread captures a graph; a share of a model; a GGUF
    file's own frequencies, which config.json cannot express; a GGUF file of other families), and those of ignis_save.
    Ownership: as ignis_save.
    Threads: any. Streams: reads on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_model_save(ignis_model model, const char *folder);

/*  ignis_model_free - free a model and its weights
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: the handle is stale afterwards. The handles of the weights are stale as soon as no sequence, no
    adapters and no call of another thread use the model. The tape keeps those that it needs until
    ignis_backward or ignis_tape_clear.
    Threads: any. A call of another thread that is using it ends normally. */
IGNIS_API ignis_status ignis_model_free(ignis_model model);
