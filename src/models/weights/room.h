/*  models/weights - checkpoints: configuration, tensors, quantised weights. */
#pragma once

#include "../../base/room.h"
#include "../../device/room.h"
#include "../../array/room.h"
#include "../../tensor/room.h"
#include "../../ops/room.h"
#include "../../ops/matmul/room.h"
#include "../../file/room.h"
#include "../room.h"
#include "../tokenizer/room.h"

#include "../../shared/models/cache_types.h"

#define IGNIS__MODEL_HALF 128 /* frequencies: heads of up to 256 elements, the limit of attention */
#define IGNIS__RANKS 64       /* that share a model, at most */
#define IGNIS__MODEL_STOPS 16 /* the size of ignis_model_info.ends */
/*  How the heads of a layer are rotated. */
typedef enum ignis__rope_kind {
    IGNIS__ROPE_COMMON,
    IGNIS__ROPE_LOCAL, /* by the frequencies of windowed layers */
    IGNIS__ROPE_NONE
} ignis__rope_kind;

typedef struct ignis__layer {
    ignis_tensor attn_norm, attn_norm_bias;
    ignis_tensor qkv, qkv_bias; /* rows of q, k and v */
    ignis_tensor q_norm, k_norm;
    /* Of latent attention. qkv has the rows of q, or of q's low rank, then those of the latent and of the elements of
       keys that rotate. kv_b: for each head the rows of keys that do not rotate, then for each head those of values. */
    ignis_tensor q_a_norm, q_b, kv_a_norm, kv_b;
    ignis_tensor o, o_bias;
    ignis_tensor mlp_norm, mlp_norm_bias;
    ignis_tensor up, up_bias; /* gated: the rows of gate, then those of up */
    ignis_tensor down, down_bias;
    /* Of a mixture of experts, instead of up and down or besides them. The rows of an expert follow those of the one
       before. */
    ignis_tensor router, gate_experts, up_experts, down_experts;
    ignis_tensor choice_bias; /* is added to the sigmoids of the router's logits for the choice */
    ignis_tensor shared_gate; /* of an expert for all tokens, which is up and down */
    ignis_tensor router_bias, gate_experts_bias, up_experts_bias, down_experts_bias;
    ignis_tensor sinks; /* of heads: scores that the softmax has besides those of keys */
    ignis_tensor gate;  /* of the results of attention, which are multiplied by its sigmoid */
    /* Of a recurrent layer, whose qkv has the rows of q, k, v and of the gate of its results, and whose o follows them:
       of the convolution of q, k and v; of strengths, then of decays, a row for each head of v; decays */
    ignis_tensor conv, strengths, decay_log, decay_bias, delta_norm;
    /* of the results of attention and MLP, before they are added; of the sums, in encoders */
    ignis_tensor attn_norm_behind, mlp_norm_behind, attn_norm_behind_bias, mlp_norm_behind_bias;
    int window;     /* keys that a token sees, its own included; 0: all */
    bool recurrent; /* it has a state instead of keys: a gated DeltaNet, see generate/delta_net.c */
    ignis__rope_kind rope;
    double attention_scale;
    double rest_scale; /* of the elements of q and k that do not rotate; 0: 1 */
} ignis__layer;

/*  How RoPE frequencies are scaled, as in the description. */
typedef enum ignis__rope_scaling {
    IGNIS__ROPE_SCALING_NONE,
    IGNIS__ROPE_SCALING_LINEAR,
    IGNIS__ROPE_SCALING_LLAMA3,
    IGNIS__ROPE_SCALING_YARN,
    IGNIS__ROPE_SCALING_DYNAMIC, /* changes nothing up to the model's context */
    IGNIS__ROPE_SCALING_LONGROPE,
    IGNIS__ROPE_SCALING_TABLE /* by the divisors of a GGUF file */
} ignis__rope_scaling;

typedef struct ignis__model {
    ignis__slot slot; /* has to be the first member */
    ignis_model_family family;
    int layers, heads, kv_heads, head_dim, hidden, inner, vocab,
        context;                       /* heads, kv_heads, inner: of this rank's share */
    int experts, chosen, expert_inner; /* experts of a layer, those of a token, their inner elements; 0: no experts */
    double expert_limit;               /* the gate of experts is that of gpt-oss, with this limit; 0: it is silu */
    bool normalises;                   /* the shares of a token's experts add up to 1 */
    bool sigmoid;                      /* shares are sigmoids of the router's logits, not of their softmax */
    int groups, used_groups;           /* of experts with sigmoids: a token's experts are from the used groups */
    double routed_scale;               /* of the shares of such experts */
    int dense_layers;                  /* the first layers, which have no experts */
    int shared_inner;                  /* of the expert for all tokens; 0: inner */
    int more_layers;                   /* in the files after the model's own, to predict further tokens; unused */
    ignis_model_parallel parallel;     /* size: at least 1 */
    /* Of latent attention (DeepSeek-V2, 2024, section 2.1). latent: elements of a token's latent, 0: none; q_rank: of
       the low rank of q, 0: q is a product of its own. There is one row of keys for all heads: kv_heads is 1. Of
       head_dim elements the last `rotary` ones rotate. */
    int latent, q_rank;
    int value_dim;          /* of the heads of values; without latent attention head_dim */
    double attention_scale; /* without the factor of scaled frequencies, which not all layers have */
    bool rms, rope, gelu;   /* otherwise: layer norms, learned positions, an MLP with a gate */
    /* exact_gelu: gelu is by erf; gelu_gate: the gate is gelu, not silu; parallel_blocks: attention and MLP have the
       same input; wide_norms: the norms of q and k are over all heads; head_layer_norms: they are layer norms, with
       weights of each head */
    bool gelu_gate, parallel_blocks, wide_norms, head_layer_norms, exact_gelu;
    bool two_norms; /* Falcon: parallel blocks have a norm each */
    int rotary;     /* elements of a head that rotate */
    /* Of recurrent layers: heads of q and k, and of v; elements of a head of each; tokens that the convolution reads;
       their number. tiled: head h of v has head h % delta_heads of q and k; else heads of v with one of k follow each
       other */
    int delta_heads, delta_v_heads, delta_k, delta_v, delta_conv, recurrent_layers;
    bool tiled;
    /* 0 if the model has none of it; norm_offset: is added to the weights of RMS norms */
    double norm_offset, embedding_scale, residual_scale, logit_scale, softcap, logit_softcap;
    bool tied; /* the head is the embedding */
    double frequencies[IGNIS__MODEL_HALF], local_frequencies[IGNIS__MODEL_HALF];
    ignis_dtype dtype, cache_dtype;
    ignis_cache_type cache_type;
    ignis_weights weights;
    bool f8_activations;
    int max_tokens, sequences; /* of the KV cache: tokens of a sequence, number of sequences */
    int32_t bos;               /* -1 if there is none */
    int32_t stops[IGNIS__MODEL_STOPS];
    int stop_count; /* tokens that end a text */
    ignis__device *device;
    ignis_tensor embedding, positions, norm, norm_bias, head;
    /* Encoders: all tokens see each other, and norms are of sums. types: rows that are added to embeddings; pooler,
       classes: the head of a classifier; pooling: an ignis_pooling, 0 if the files have none, -1 if they have an
       unknown one */
    bool encoder, prefixed; /* prefixed: names of the folder have the family's prefix */
    ignis_tensor types, embedding_norm, embedding_norm_bias, pooler, pooler_bias, classes, class_bias;
    int type_count, class_count, first_position, pooling;
    ignis__layer *layer;
    double eps, theta, attention_factor;
    double softmax_factor; /* yarn in DeepSeek: all scores are multiplied by its square */
    ignis__rope_scaling rope_scaling;
    double factor, low, high, original; /* llama3: low_freq_factor and the like; yarn: beta_fast, beta_slow */
    bool uncut;                         /* yarn: the ends of the slope are not rounded to integers */
    int64_t parameters, quantised, weight_bytes, file_bytes;
    char *path;                /* as given to ignis_model_open */
    ignis_tokenizer tokenizer; /* opened by the first request; guarded by the slot's lock */
    /* the adapters that are set, or NULL; guarded by the slot's lock. Adapters hold the model and are taken off
       when freed */
    struct ignis__lora *lora;
    void *engine; /* shared by sequences; NULL until the first one */
    void (*engine_destroy)(const char *call, void *engine);
} ignis__model;

/*  A value of a JSON file under its full name: "rope_scaling.factor"; "layer_types[]" for each item of an
    array. */
typedef struct ignis__config_item {
    char name[64]; /* longer names are cut; nothing looks them up */
    char kind;     /* 'n' a number, 't' a text, 'b' true or false, '0' null, '{' an object, '[' an array */
    double number; /* true is 1 */
    const char *text;
} ignis__config_item;

typedef struct ignis__config {
    char *file; /* the text of the file, which has the texts of items */
    ignis__config_item *items;
    int count, capacity;
    bool no_memory;
} ignis__config;

/*  A tensor of one of the files. */
typedef struct ignis__model_source {
    const char *name;
    ignis_shape shape;
    int file;            /* index in the list of paths */
    int64_t begin, end;  /* of its bytes in that file */
    const char *type;    /* for messages; NULL if unknown */
    uint32_t id;         /* the number of the type in a GGUF file */
    ignis_dtype dtype;   /* 0 if Ignis does not have it */
    uint32_t quant;      /* an ignis__gguf_type, or 0 */
    int packed;          /* 1 + an index of the files' packed weights, or 0 */
    bool used;           /* it is a part of a weight, or was read otherwise */
    int elements, bytes; /* `elements` elements take `bytes` bytes */
} ignis__model_source;

/*  The bytes of a tensor that a packed weight consists of. */
typedef struct ignis__packed_tensor {
    int file, bytes; /* bytes: of an element */
    int64_t begin;
    ignis_dtype dtype;
    bool exists;
} ignis__packed_tensor;

typedef enum ignis__packing {
    IGNIS__PACKED_NONE,
    IGNIS__PACKED_F8,
    IGNIS__PACKED_AWQ,
    IGNIS__PACKED_GPTQ,
    IGNIS__PACKED_MXFP4
} ignis__packing;

/*  A quantised weight of safetensors files, whose numbers and scales are tensors of their own: packed.c. */
typedef struct ignis__packed {
    char name[128];
    ignis__packing kind;
    ignis__packed_tensor numbers, scales, zeros, order; /* order: the group of each column */
    int64_t rows, columns, block_rows, group;           /* block_rows, group: rows and columns with one scale */
    int bits, type;      /* type: an ignis__gguf_type with the same values; 0: rows are read as f32 */
    int added;           /* to zeros as stored */
    bool any_order, sym; /* any_order: columns of one group are anywhere; sym: all zeros are the middle */
} ignis__packed;

/*  count times `size` bytes of a file, `step` apart. */
typedef struct ignis__packed_region {
    int file;
    int64_t begin, step, size, count;
} ignis__packed_region;

typedef struct ignis__packed_range {
    int64_t first, every, rows, skip, columns; /* every: see ignis__model_part */
} ignis__packed_range;

typedef struct ignis__model_files {
    const char *call, *path;
    bool is_gguf, bare;            /* bare: names in the folder lack "model.", as those of embedders do */
    ignis__gguf gguf, *more_parts; /* more_parts: after the first one of a GGUF model in several files */
    int more_count;
    ignis__config config, index, generation;
    ignis__load *shards;
    char **paths; /* of the shards, or of the GGUF file */
    int path_count;
    ignis__model_source *sources; /* sorted by name */
    int64_t source_count;
    ignis__packed *packed; /* of safetensors files, if config.json has a quantization_config */
    ignis_model_family family;
} ignis__model_files;

/*  The type of a tensor for messages: its name, or its number in the file. */
typedef struct ignis__model_type {
    char text[24];
} ignis__model_type;

/*  Features of a family's layers. Without them a layer has RMS norms, rotated heads, and an MLP gated by silu. */
enum {
    IGNIS__LAYER_NORMS = 1, /* with means; biases, if the table has them */
    IGNIS__POSITIONS = 2,   /* learned positions, no rotation */
    IGNIS__PLAIN_GELU = 4,  /* an MLP without a gate */
    /* elements of a head of q and k that rotate together are adjacent in GGUF files, in folders */
    IGNIS__GGUF_PAIRS = 8,
    IGNIS__HF_PAIRS = 16,
    IGNIS__ONE_PLUS = 32,              /* RMS norms multiply by 1 + w; GGUF files have 1 + w */
    IGNIS__GELU_GATE = 64,             /* the gate is gelu */
    IGNIS__PARALLEL_BLOCKS = 128,      /* attention and MLP have the same input, and are added together */
    IGNIS__WIDE_NORMS = 256,           /* norms of q and k over all heads */
    IGNIS__SQUARE_ROOT_SCALE = 512,    /* embeddings are scaled by the square root of their width */
    IGNIS__LOGITS_DIVIDED = 1024,      /* the logit scale is a divisor */
    IGNIS__LOCAL_ROPE = 2048,          /* windowed layers rotate by frequencies of their own, without scaling */
    IGNIS__ONLY_WINDOWS_ROTATE = 4096, /* layers without a window do not rotate */
    IGNIS__ENCODER = 131072,           /* all tokens see each other, norms are of sums, there is no head */
    IGNIS__LATE_POSITIONS = 262144,    /* the first position is the row after that of pad_token_id */
    IGNIS__EXACT_GELU = 16384,         /* with IGNIS__PLAIN_GELU: by erf, not by tanh */
    IGNIS__DEPTH_SCALE = 8192,         /* the residual scale is divided by the square root of the layers */
    IGNIS__HEAD_LAYER_NORMS = 524288,  /* heads of q and k may have layer norms */
    IGNIS__PARALLEL_CHOICE = 1048576,  /* the files say whether blocks are parallel; IGNIS__PARALLEL_BLOCKS: if not */
    /* the shares of a token's experts add up to 1: always, or in GGUF files, where folders say it */
    IGNIS__NORMALISED = 32768,
    IGNIS__GGUF_NORMALISED = 65536,
    IGNIS__UNCUT_YARN = 2097152, /* in GGUF files, which do not say it, as config.json does: see ignis__model */
    IGNIS__SIGMOID = 4194304,    /* shares of experts are sigmoids */
    /* folders say by names of Falcon how many heads of keys there are, and whether attention and MLP have own norms */
    IGNIS__FALCON_CHOICES = 8388608,
    /* some layers are recurrent; GGUF files have the heads of v in another order: see ignis__model */
    IGNIS__RECURRENT = 67108864,
    IGNIS__GGUF_TILED = 134217728
};

/*  The layout of a tensor in the file, if it differs, and whether it exists. */
enum {
    IGNIS__MODEL_IN_OUT = 1,    /* [in, out] in a safetensors file */
    IGNIS__MODEL_PAIRS = 2,     /* rows of heads that are rotated: see IGNIS__GGUF_PAIRS */
    IGNIS__MODEL_NORM = 16,     /* of an RMS norm: see IGNIS__ONE_PLUS */
    IGNIS__MODEL_GROUPED = 32,  /* in a folder each head of k follows its heads of q, and precedes its head of v */
    IGNIS__MODEL_OUTSIDE = 256, /* its name has no prefix */
    IGNIS__MODEL_HEAD = 4,      /* only if the head is not tied */
    /* of each expert, whose number is @ in the name; in a GGUF file one tensor [experts, rows, columns] */
    IGNIS__MODEL_EXPERTS = 64,
    IGNIS__MODEL_LEADING = 2097152, /* only in the first layers, which have no experts */
    IGNIS__MODEL_SPARSE = 65536,    /* only in layers with experts */
    IGNIS__MODEL_WIDE = 131072,     /* f32, or f64 in a model of that */
    IGNIS__MODEL_SAID = 262144,     /* only if use_qk_norm of config.json is true, or the GGUF file has it */
    IGNIS__MODEL_DENSE = 128,       /* never quantised on the device */
    IGNIS__MODEL_SERIAL = 512,      /* only if the MLP's input is the sum after attention */
    /* only if attention and MLP have one norm, or a norm each: see two_norms of ignis__model */
    IGNIS__MODEL_ONE_NORM = 4194304,
    IGNIS__MODEL_TWO_NORMS = 8388608,
    /* only if heads of q and k have layer norms of their own; [heads, head_dim], or of each head, whose number is @ */
    IGNIS__MODEL_HEAD_NORM = 1024,
    IGNIS__MODEL_FUSED = 2048,    /* of a weight that files have whole or in parts: only if they have it whole */
    IGNIS__MODEL_APART = 4096,    /* only if they do not */
    IGNIS__MODEL_TOGETHER = 8192, /* with IGNIS__MODEL_EXPERTS: one tensor in folders, too */
    /* in a folder every second row, from the first or from the second one on */
    IGNIS__MODEL_EVEN = 16384,
    IGNIS__MODEL_ODD = 32768,
    /* with IGNIS__MODEL_TOGETHER: in folders the first or the second half of each expert's rows. Both rows of the table
       follow each other. */
    IGNIS__MODEL_FIRST_HALF = 1048576,
    IGNIS__MODEL_SECOND_HALF = 524288,
    IGNIS__MODEL_LOW_RANK = 33554432, /* only if q is made through a low rank */
    IGNIS__MODEL_DIRECT = 67108864,   /* only if it is not */
    /* in GGUF files [heads, rows, columns], for rows 'U' with rows and columns exchanged */
    IGNIS__MODEL_OF_HEADS = 16777216,
    IGNIS__MODEL_OPTIONAL = 8, /* only if the files have it, or another part of its weight */
    /* only in recurrent layers; only in the others */
    IGNIS__MODEL_RECURRENT = 134217728,
    IGNIS__MODEL_ATTENTIVE = 268435456,
    /* GGUF files have -exp of it; in folders [rows, 1, columns] */
    IGNIS__MODEL_LOG = 536870912,
    IGNIS__MODEL_MIDDLE = 1073741824
};

/*  A tensor of a file that becomes rows of a weight, after the rows of the table's entry before it with the
    same member. # is the layer. Letters of sizes: V vocabulary, P positions, H hidden, Q and K heads of
    queries and keys, D a head, I inner, 3 three times hidden, F queries, keys and values, G twice inner,
    E experts, X the inner elements of an expert, S those
    of an expert for all tokens, T types of tokens, C classes. Of latent attention: A the low rank of q, L the latent,
    M the latent and what rotates, U the rows of keys in kv_b, W those of values, B both. g, h: rows of q,
    and of the gate of its results, of a tensor that has both for each head in turn. Of recurrent layers: l rows of q,
    k and v, Z of v, n heads of v, Y a head of v, w tokens of the convolution; q, k, v, z, b, a: rows of queries, keys,
    values, gates, strengths and decays, in a tensor that has these for one head of k, then those for the next one. hf
    or gguf is NULL if such files do not have the tensor. */
typedef struct ignis__model_row {
    bool in_layer;
    size_t member;      /* of ignis__layer or ignis__model */
    char rows, columns; /* columns 0: one dimension */
    int how;
    const char *hf, *gguf;
    const char *whole; /* the name of the weight, if several tensors become it */
} ignis__model_row;

/*  Numbers of a description. */
typedef enum ignis__number {
    IGNIS__NUMBER_LAYERS,
    IGNIS__NUMBER_HIDDEN,
    IGNIS__NUMBER_HEADS,
    IGNIS__NUMBER_KV_HEADS,
    IGNIS__NUMBER_INNER,
    IGNIS__NUMBER_CONTEXT,
    IGNIS__NUMBER_EPS,
    IGNIS__NUMBER_HEAD_DIM,
    IGNIS__NUMBER_ROTARY,        /* elements of a head that rotate */
    IGNIS__NUMBER_ROTARY_SHARE,  /* the same as a fraction of a head */
    IGNIS__NUMBER_WINDOW,        /* keys that a token sees in windowed layers */
    IGNIS__NUMBER_WINDOW_PERIOD, /* n: every n-th layer has no window */
    IGNIS__NUMBER_ROPE_PERIOD,   /* does not rotate */
    IGNIS__NUMBER_LOCAL_THETA,   /* the base of the frequencies of windowed layers */
    IGNIS__NUMBER_QUERY_SCALAR,  /* attention is scaled by 1 / sqrt(this) */
    IGNIS__NUMBER_ATTENTION_SCALE,
    IGNIS__NUMBER_EMBEDDING_SCALE,
    IGNIS__NUMBER_RESIDUAL_SCALE,
    IGNIS__NUMBER_LOGIT_SCALE,
    IGNIS__NUMBER_LOGIT_WIDTH, /* logits are divided by the width / this */
    IGNIS__NUMBER_SOFTCAP,     /* of the scores of attention */
    IGNIS__NUMBER_LOGIT_SOFTCAP,
    IGNIS__NUMBER_EXPERTS,
    IGNIS__NUMBER_CHOSEN,       /* experts of a token */
    IGNIS__NUMBER_EXPERT_INNER, /* of an expert; missing: inner */
    IGNIS__NUMBER_SHARED_INNER, /* of the expert for all tokens */
    IGNIS__NUMBER_EXPERT_LIMIT, /* see ignis__model */
    IGNIS__NUMBER_SHARED_COUNT, /* the same, in inner elements of an expert */
    IGNIS__NUMBER_GROUPS,       /* of experts */
    IGNIS__NUMBER_USED_GROUPS,  /* of a token */
    IGNIS__NUMBER_ROUTED_SCALE,
    IGNIS__NUMBER_DENSE_LAYERS,
    IGNIS__NUMBER_MORE_LAYERS, /* GGUF files count them with the layers */
    IGNIS__NUMBER_NORMS,       /* of a layer with parallel blocks */
    IGNIS__NUMBER_LATENT,      /* elements of latents; missing: no latent attention */
    IGNIS__NUMBER_Q_RANK,
    IGNIS__NUMBER_PLAIN_DIM, /* elements of heads of keys that do not rotate */
    IGNIS__NUMBER_VALUE_DIM,
    IGNIS__NUMBER_CACHED_KEY, /* elements of the cached row, and of those in it that values are made of; GGUF files
                                 without the sizes of heads have these sizes instead */
    IGNIS__NUMBER_CACHED_VALUE,
    IGNIS__NUMBER_YARN_LOG, /* softmax_factor is 1 + this ln(factor) */
    IGNIS__NUMBER_TYPES,    /* of tokens */
    IGNIS__NUMBER_POOLING,  /* as llama.cpp numbers them */
    /* of recurrent layers; n: every n-th layer is another one */
    IGNIS__NUMBER_ATTENTION_PERIOD,
    IGNIS__NUMBER_DELTA_HEADS, /* of k */
    IGNIS__NUMBER_DELTA_V_HEADS,
    IGNIS__NUMBER_DELTA_K, /* elements of a head of k */
    IGNIS__NUMBER_DELTA_V,
    IGNIS__NUMBER_DELTA_WIDTH, /* of all heads of v */
    IGNIS__NUMBER_DELTA_CONV,
    IGNIS__NUMBERS
} ignis__number;

/*  Where a number of a description is. kind: 'w' a whole number from 1 to `most`, 'r' a positive number; in
    capitals if it is required; 'p' a positive number or 0. otherwise: its value if it is missing, 0 if it follows
    from other numbers, or if the model does not have the feature. */
typedef struct ignis__number_key {
    ignis__number number;
    char kind;
    const char *json, *gguf; /* NULL: such files have no key for it */
    double otherwise, most;
} ignis__number_key;

/*  An entry of config.json that changes what a model computes, with the only values that Ignis supports. kind:
    as in ignis__config_item; '0': the entry must be missing, or null. */
typedef struct ignis__json_must {
    const char *name;
    char kind;
    double number;
    const char *texts[3];
} ignis__json_must;
#define IGNIS__MUST_BE(name, kind, number)       \
    {                                            \
        name, kind, number, { NULL, NULL, NULL } \
    }

/*  A tensor that changes nothing: its suffix, and its dimensions (-1: any; -2: any, and it is a prefix). */
typedef struct ignis__unused_tensor {
    const char *suffix;
    int ndim;
} ignis__unused_tensor;

/*  A family: where its description and its weights are in the files, and the features of its layers. Its keys and
    musts come before the common ones of family_keys.c, and replace those of the same number or name. Lists of names
    end with NULL, lists of rows with a row whose first pointer is NULL. */
typedef struct ignis__family {
    const char *model_type, *architecture; /* of config.json, of GGUF files */
    const char *class_name;                /* in config.json */
    const char *prefix;                    /* of names, in folders of models with a head; NULL: none */
    unsigned features;
    const ignis__model_row *rows;
    int row_count;
    const ignis__number_key *keys;
    int key_count;
    const ignis__json_must *musts;
    const char *const *harmless; /* further entries of config.json that change nothing */
    const ignis__unused_tensor *unused;
} ignis__family;

/*  A name of the table with the number of its layer. */
typedef struct ignis__model_name {
    char text[96];
} ignis__model_name;

/*  An entry of the table for one layer. */
typedef struct ignis__model_part {
    const ignis__model_row *row;
    int layer, expert;
    int64_t first, rows, columns; /* of the weight */
    int64_t total;                /* at a weight's first part: its rows; else 0 */
    int64_t file_rows, file_columns, run,
        stride; /* each group of `run` rows begins `stride` rows after the group before it in the file */
    int64_t skip_rows, skip_columns; /* before this rank's share in the file */
    int64_t every;                   /* of the file's rows, the part has each `every`-th one */
    /* each head is a run of its own: of a part with q, k and v that ranks share, or whose heads are in groups */
    bool by_heads, grouped;
    bool moved; /* the file has elements of heads in another order: see ignis__model_moves_rows */
    int heads, kv_heads, rank, ranks;
    int plain, value_dim; /* of a part with rows 'B': rows of keys, and of values, of a head in the file */
    int blocks;           /* an ignis__gguf_type, its type on the device; 0 if it is not quantised */
    const ignis__model_source *from;
    ignis_tensor *to;
} ignis__model_part;

/*  A type of quantised weights. On the device: rows of records of 256 elements, `bytes` bytes each, and `scale` bytes
    for each record after them. kernels/models/blocks.cuh has the layout of a record. */
struct ignis__blocks_types_type {
    int type, bytes, scale, file_elements, file_bytes, bits, scales, numbers, divisor;
};

enum {
#define IGNIS__BLOCKS_INDEX(name, number, elements, bytes, bits, scales, numbers, divisor) IGNIS__BLOCKS_##name,
    IGNIS__BLOCKS_TYPES(IGNIS__BLOCKS_INDEX) IGNIS__BLOCKS_COUNT
#undef IGNIS__BLOCKS_INDEX
};

/*  A block of a GGUF file. q: bits of numbers, as shared/models/weights.h describes them; d, e: bits of f16, or of bf16
    for POWER; e is m for ADDED. scale, least: of 16 elements, 1 and 0 in types without them. */
typedef struct ignis__weight_block {
    uint16_t d, e;
    signed char scale[16];
    unsigned char least[16], q[256];
} ignis__weight_block;

enum {
    IGNIS__STEP_ROWS = 512,     /* sequences of a decode step, at most */
    IGNIS__CLUSTER_ROWS = 32,   /* more rows of x than these are multiplied by gemv_hopper.cu, where that is possible */
    IGNIS__WGMMA_COLUMNS = 128, /* rows of x of a block of gemv_hopper.cu, at most */
    IGNIS__GEMV_ROWS = 64,      /* rows that the products of a decode step take at a time, at most */
    IGNIS__PROMPT_ROWS = 64,    /* tokens of a prompt that are computed as the rows of a step are, at most */
    IGNIS__CHUNK = 512,         /* rows of a chunk of a prompt, at most */
    IGNIS__WINDOW_GRAIN = 64,   /* keys of layers with a window are given up this many at a time */
    IGNIS__REWIND = 64 /* tokens by which a sequence can be truncated before windows have to be computed again */
};

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* model.c */
extern ignis__pool ignis__models;

/* family_keys.c */
extern const ignis__number_key ignis__common_keys[];
extern const int ignis__common_key_count;
extern const ignis__json_must ignis__common_musts[];
extern const char *const ignis__harmless_keys[];
extern const char *const ignis__rope_keys[];
extern const ignis__unused_tensor ignis__rotary_unused[];
extern const ignis__json_must ignis__no_musts[];
extern const char *const ignis__none_harmless[];
extern const ignis__json_must ignis__window_musts[];

/* families_dense.c, families_experts.c, families_encoders.c */
extern const ignis__family ignis__dense_families[IGNIS_MODEL_QWEN3_MOE - IGNIS_MODEL_GPT2];
extern const ignis__family ignis__expert_families[IGNIS_MODEL_BERT - IGNIS_MODEL_QWEN3_MOE];
extern const ignis__family ignis__recurrent_families[IGNIS_MODEL_FAMILY_COUNT - IGNIS_MODEL_QWEN3_NEXT];
extern const ignis__family ignis__encoder_families[IGNIS_MODEL_QWEN3_NEXT - IGNIS_MODEL_BERT];

/* families.c */
IGNIS__PRIVATE const ignis__family *ignis__family_of(ignis_model_family family);

/* config_json.c */
IGNIS__PRIVATE void ignis__config_close(ignis__config *config);
IGNIS__COLD IGNIS__PRIVATE bool ignis__config_open(const char *call, const char *path, bool wanted,
                                                   ignis__config *config);
IGNIS__PRIVATE const ignis__config_item *ignis__config_find(const ignis__config *config, const char *name);

/* checkpoint.c */
IGNIS__PRIVATE void ignis__model_files_close(ignis__model_files *files);
IGNIS__PRIVATE char *ignis__model_path(const char *call, const char *folder, const char *name);
IGNIS__PRIVATE ignis__model_source *ignis__model_source_find(const ignis__model_files *files, const char *name);
IGNIS__PRIVATE bool ignis__model_sort_sources(ignis__model_files *files);
IGNIS__PRIVATE ignis__model_type ignis__model_type_write(const ignis__model_source *source);
IGNIS__PRIVATE bool ignis__model_open_folder(ignis__model_files *files);
IGNIS__PRIVATE bool ignis__model_open_gguf(ignis__model_files *files);
IGNIS__PRIVATE bool ignis__model_read_source(const ignis__model_files *files, const ignis__model_source *source,
                                             void *out, int64_t size);

/* config_check.c */
IGNIS__PRIVATE ignis__gguf_found ignis__model_read_number(ignis__model_files *files, const char *json, const char *gguf,
                                                          double *value);
IGNIS__PRIVATE bool ignis__model_read_real(ignis__model_files *files, const char *json, const char *gguf,
                                           double otherwise, double *real);
IGNIS__PRIVATE bool ignis__model_read_numbers(ignis__model_files *files, double numbers[IGNIS__NUMBERS]);
IGNIS__PRIVATE bool ignis__model_refuse_unknown_keys(const ignis__model_files *files);
IGNIS__PRIVATE bool ignis__model_refuse_unknown_gguf_keys(ignis__model_files *files, const ignis__model *model);

/* rope_scaling.c */
IGNIS__PRIVATE double ignis__ln(double x);
IGNIS__PRIVATE bool ignis__model_read_rope_scaling(ignis__model_files *files, ignis__model *model);
IGNIS__PRIVATE void ignis__model_frequencies(ignis__model *model);
IGNIS__PRIVATE void ignis__model_plain_frequencies(const ignis__model *model, double theta, double *to);
IGNIS__PRIVATE bool ignis__model_read_rope_divisors(ignis__model_files *files, ignis__model *model);

/* hyperparameter.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__model_read_layers(ignis__model_files *files, ignis__model *model);
IGNIS__COLD IGNIS__PRIVATE bool ignis__model_read_hyperparameters(ignis__model_files *files, ignis__model *model);

/* weight_map.c */
IGNIS__PRIVATE ignis__model_name ignis__model_name_write(const char *prefix, const char *pattern, int layer);
IGNIS__PRIVATE ignis_dtype ignis__model_part_dtype(const ignis__model *model, const ignis__model_part *part);
IGNIS__PRIVATE int64_t ignis__model_head_rows(const ignis__model *model);
IGNIS__PRIVATE int64_t ignis__model_file_row(const ignis__model_part *part, int64_t row);
IGNIS__PRIVATE bool ignis__part_is_transposed(const ignis__model_part *part);
IGNIS__PRIVATE int64_t ignis__model_qkv_rows(const ignis__model *model);
IGNIS__PRIVATE int64_t ignis__model_move_unit(const ignis__model *model, const ignis__model_part *part);
IGNIS__PRIVATE bool ignis__model_is_sliced(const ignis__model_row *row);
IGNIS__PRIVATE bool ignis__model_moves_rows(const ignis__model_files *files, const ignis__model *model,
                                            const ignis__model_row *row);
IGNIS__PRIVATE int64_t ignis__model_head_row(const ignis__model_files *files, const ignis__model *model,
                                             const ignis__model_part *part, int64_t row);
IGNIS__PRIVATE const char *ignis__model_prefix(const ignis__model_files *files, const ignis__model *model);
IGNIS__PRIVATE ignis__model_name ignis__model_weight_name(const ignis__model_files *files, const ignis__model *model,
                                                          const ignis__model_row *row, int layer, int expert);
IGNIS__PRIVATE ignis_tensor *ignis__model_member(ignis__model *model, const ignis__model_row *row, int layer);
IGNIS__PRIVATE ignis__model_part *ignis__model_parts_make(const char *call, const ignis__model_files *files,
                                                          ignis__model *model, int *count);

/* quantized_layout.c */
extern const struct ignis__blocks_types_type ignis__blocks_types[IGNIS__BLOCKS_COUNT];
IGNIS__PRIVATE int ignis__blocks_type(int type);
IGNIS__PRIVATE int64_t ignis__blocks_bytes_of(int type, int64_t rows, int64_t columns, bool scales);
IGNIS__PRIVATE int64_t ignis__blocks_row(int type, int64_t row, int64_t columns);
IGNIS__PRIVATE int64_t ignis__blocks_bytes(const ignis__blocks *blocks, int parts);
IGNIS__PRIVATE ignis__blocks ignis__model_describe_blocks(const ignis__model_part *parts, int count);
IGNIS__PRIVATE void ignis__model_choose_types(ignis__model *model, ignis__model_part *parts, int count);

/* tensor_match.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__model_match_tensors(ignis__model_files *files, ignis__model *model,
                                                           ignis__model_part *parts, int count);

/* packed.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__packed_join(ignis__model_files *files);
IGNIS__PRIVATE void ignis__packed_as_floats(ignis__model_files *files, ignis__model_source *source);
IGNIS__PRIVATE int64_t ignis__packed_span(const ignis__packed_region *region);
IGNIS__PRIVATE int64_t ignis__packed_regions(const ignis__packed *p, const ignis__packed_range *range,
                                             ignis__packed_region region[4]);
IGNIS__PRIVATE bool ignis__packed_rows(const ignis__packed *p, const unsigned char *bytes,
                                       const ignis__packed_region region[4], const ignis__packed_range *range,
                                       unsigned char *to, char why[200]);
IGNIS__PRIVATE int64_t ignis__model_source_bytes(const ignis__model_files *files, const ignis__model_source *source,
                                                 int64_t elements);

/* block_grids.c */
extern const uint16_t ignis__grid_iq2_xxs[256], ignis__grid_iq2_xs[512], ignis__grid_iq2_s[1024];
extern const uint16_t ignis__grid_iq3_xxs[256], ignis__grid_iq3_s[512];

/* block_read.c */
IGNIS__PRIVATE void ignis__weight_block_read(uint32_t type, const unsigned char *from, ignis__weight_block *to);
IGNIS__PRIVATE int ignis__weight_block_number(const struct ignis__blocks_types_type *type, int q);

/* dequantize.c */
IGNIS__PRIVATE float ignis__half_at(const unsigned char *at);
IGNIS__PRIVATE void ignis__dequantise(uint32_t type, const unsigned char *block, float *out);
IGNIS__PRIVATE void ignis__blocks_pack(uint32_t type, const unsigned char *from, int64_t columns, unsigned char *record,
                                       unsigned char *scales);

/* quantize.c */
IGNIS__PRIVATE void ignis__quantise(int type, const float *x, int64_t columns, unsigned char *to);
IGNIS__PRIVATE void ignis__model_source_row(const ignis__model_source *source, const unsigned char *from,
                                            int64_t columns, char *to, ignis_dtype dtype);

/* quantized_linear.c */
IGNIS__PRIVATE ignis__quantised_weight ignis__quantised_part(const ignis__blocks *blocks, int part, ignis__address at);
IGNIS__PRIVATE int64_t ignis__blocks_rows(const ignis__blocks *blocks);
IGNIS__COLD IGNIS__PRIVATE void ignis__dequantise_record(const ignis__op *op, const ignis__blocks *blocks,
                                                         ignis_dtype dtype);
IGNIS__PRIVATE void ignis__op_dequantise(ignis__op *op, ignis__array *out, int64_t to, ignis__array *weights,
                                         const ignis__blocks *blocks, int64_t first, int64_t rows);
IGNIS__PRIVATE ignis__blocks ignis__blocks_of(const char *call, ignis_tensor weight);
IGNIS__PRIVATE ignis_tensor ignis__model_dequantise(const char *call, ignis_tensor weight, const ignis__blocks *blocks,
                                                    int64_t first, int64_t rows, ignis_dtype dtype);
IGNIS__PRIVATE ignis_tensor ignis__model_linear(const ignis__model *model, ignis_tensor x, ignis_tensor weight,
                                                ignis_tensor bias);
IGNIS__PRIVATE ignis_tensor ignis__model_embedding(ignis_tensor table, ignis_tensor ids, ignis_dtype dtype);

/* load.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__model_load(const ignis__model_files *files, const ignis__model *model,
                                                  ignis__model_part *parts, int count, const ignis_model_desc *desc);

/* model_open.c */
IGNIS__PRIVATE void ignis__model_tokenizer_end(ignis_tokenizer *handle);
IGNIS__PRIVATE void ignis__model_drop(const char *call, ignis__model *model);
IGNIS__PRIVATE ignis__model *ignis__model_hold(const char *call, ignis_model handle);
IGNIS__PRIVATE void ignis__models_close(const char *call);
IGNIS__PRIVATE bool ignis__model_check_not_shared(const char *call, const ignis__model *model);
extern bool ignis__model_keeps_windows;
IGNIS__PRIVATE int64_t ignis__model_window_tokens(const ignis__model *model, int *window, int *layers);
IGNIS__PRIVATE int64_t ignis__model_cache_elements(const ignis__model *model);
IGNIS__PRIVATE int64_t ignis__model_cache_bytes(const ignis__model *model);
IGNIS__PRIVATE int64_t ignis__blocks_scratch_elements(int64_t columns);
IGNIS__PRIVATE int64_t ignis__f8_rows_bytes(int64_t rows, int64_t columns);
IGNIS__PRIVATE int64_t ignis__delta_width(const ignis__model *model);
IGNIS__PRIVATE int64_t ignis__delta_channels(const ignis__model *model);
IGNIS__PRIVATE int64_t ignis__delta_rows(const ignis__model *model);
IGNIS__PRIVATE int64_t ignis__delta_state(const ignis__model *model);
IGNIS__PRIVATE int ignis__model_widest_inner(const ignis__model *model);
extern int64_t ignis__expert_elements;
IGNIS__PRIVATE int ignis__model_experts_at_once(const ignis__model *model);
IGNIS__PRIVATE int64_t ignis__model_scratch_elements(const ignis__model *model);

/* model_tensor.c */
IGNIS__PRIVATE ignis_tensor ignis__model_reorder_rows(const char *call, const ignis__model *model,
                                                      const ignis__model_part *part, ignis_tensor tensor,
                                                      bool to_folder);
IGNIS__PRIVATE ignis_tensor ignis__model_reorder_columns(const char *call, const ignis__model *model,
                                                         const ignis__model_part *part, ignis_tensor tensor,
                                                         bool to_folder);
IGNIS__PRIVATE ignis_tensor ignis__model_part_tensor(const char *call, const ignis__model *model,
                                                     const ignis__model_part *part);
IGNIS__PRIVATE ignis_tensor ignis__model_slice_rows(const char *call, ignis_tensor weight, int64_t first, int64_t rows,
                                                    ignis_dtype dtype);
IGNIS__COLD IGNIS__PRIVATE ignis_tokenizer ignis__model_tokenizer(ignis__model *model);

/* save.c */
IGNIS__PRIVATE void ignis__model_write_number(ignis__string_writer *text, const char *name, double value);
IGNIS__PRIVATE bool ignis__model_write(const char *call, const char *path, const char *content, int from, int64_t size);
