/* ===============================================================================================================
   >>model - checkpoints opened: config.json, shards, GGUF; their weights as tensors.
   =============================================================================================================== */

/*  From files to weights in four steps: the description becomes an ignis__model (sizes, frequencies); the files' headers become a sorted list of
    what tensors there are; one table of rows says which of them become which rows of which weight; their bytes are read, converted and copied in
    pieces. The table also serves who asks for a weight by name, and who writes the model back. */

#define IGNIS__MODEL_HALF 128 /* frequencies: heads of up to 256 elements, as attention has them */
#define IGNIS__RANKS 64       /* that share a model, at most */
#define IGNIS__MODEL_STOPS 16 /* as many as ignis_model_info.ends */

typedef struct ignis__layer {
    ignis_tensor attn_norm, attn_norm_bias;
    ignis_tensor qkv, qkv_bias; /* rows of q, k and v */
    ignis_tensor q_norm, k_norm;
    ignis_tensor o, o_bias;
    ignis_tensor mlp_norm, mlp_norm_bias;
    ignis_tensor up, up_bias; /* where it is gated: rows of the gate, then of up */
    ignis_tensor down, down_bias;
} ignis__layer;

/*  How positions are stretched, as the description says it. */
typedef enum ignis__stretch {
    IGNIS__STRETCH_NONE,
    IGNIS__STRETCH_LINEAR,
    IGNIS__STRETCH_LLAMA3,
    IGNIS__STRETCH_YARN,
    IGNIS__STRETCH_TABLE /* by a GGUF file's own divisors */
} ignis__stretch;

typedef struct ignis__model {
    ignis__slot slot; /* first */
    ignis_model_family family;
    int layers, heads, kv_heads, head_dim, hidden, inner, vocab, context; /* heads, kv_heads, inner: of this rank's share */
    ignis_model_parallel parallel;                                        /* size: 1 at least */
    double attention_scale;
    bool rms, rope, gelu; /* else: layer norms, positions, a gate with silu */
    bool tied;            /* the head is the embedding */
    double frequencies[IGNIS__MODEL_HALF];
    ignis_dtype dtype, cache_dtype;
    ignis_weights weights;
    int room, sequences; /* of the cache: tokens of a sequence, sequences */
    int32_t bos;         /* -1: none */
    int32_t stops[IGNIS__MODEL_STOPS];
    int stop_count; /* tokens that end a text */
    ignis__device *device;
    ignis_tensor embedding, positions, norm, norm_bias, head;
    ignis__layer *layer;
    double eps, theta, attention_factor;
    ignis__stretch stretch;
    double factor, low, high, original; /* of llama3: low_freq_factor and the like; of yarn: beta_fast, beta_slow */
    bool uncut;                         /* yarn's ends of the slope are not rounded to whole numbers */
    int64_t parameters, quantised, weight_bytes, file_bytes;
    char *path;                /* as ignis_model_open was given it */
    ignis_tokenizer tokenizer; /* once somebody has asked for it; under the slot's lock */
    struct ignis__lora *lora;  /* that are set, or null; under the slot's lock. They hold the model, and leave when they are freed */
    void *engine;              /* what sequences share; null: there was none yet */
    void (*engine_destroy)(const char *call, void *engine);
} ignis__model;

static ignis__pool ignis__models = IGNIS__POOL(ignis__model, IGNIS__KIND_MODEL, "model", IGNIS_DIAG_MODEL_FREED);

static const char *const ignis__model_families[IGNIS_MODEL_FAMILY_COUNT] = {"", "gpt2", "llama", "qwen2", "qwen3"};
