/*  models - GGUF files, and what all rooms of models share. */
#pragma once

#include "../base/room.h"
#include "../array/room.h"
#include "../kernel/room.h"
#include "../file/room.h"

/*  The kernels of models. Their numbers continue those of ignis.h; X as for IGNIS__BUILTINS. */
#define IGNIS__MODEL_BUILTINS(X)                                                       \
    X(BLOCKS_ROWS, blocks_rows_cu, "ignis_blocks_rows", PLAIN)                         \
    X(BLOCKS_EMBEDDING, blocks_cu, "ignis_blocks_embedding", PLAIN)                    \
    X(BLOCKS_EMBED, blocks_cu, "ignis_blocks_embed", PLAIN)                            \
    X(GENERATE_WORDS, generate_cu, "ignis_generate_words", PLAIN)                      \
    X(GENERATE_ROWS, generate_cu, "ignis_generate_rows", PLAIN)                        \
    X(GENERATE_CHUNK, generate_cu, "ignis_generate_chunk", PLAIN)                      \
    X(GENERATE_EMBED, generate_cu, "ignis_generate_embed", WAITS)                      \
    X(GENERATE_NORM, generate_cu, "ignis_generate_norm", WAITS)                        \
    X(GENERATE_RESIDUAL, generate_cu, "ignis_generate_residual", WAITS)                \
    X(GENERATE_NORM_WIDTH, generate_cu, "ignis_generate_norm_width", WAITS)            \
    X(GENERATE_LOGITS, generate_cu, "ignis_generate_logits", WAITS)                    \
    X(GENERATE_GELU, generate_cu, "ignis_generate_gelu", WAITS)                        \
    X(GENERATE_GATE, generate_cu, "ignis_generate_gate", WAITS)                        \
    X(GENERATE_CACHE, generate_cu, "ignis_generate_cache", WAITS)                      \
    X(GENERATE_GATHER, generate_cu, "ignis_generate_gather", WAITS)                    \
    X(GENERATE_COPY, generate_cu, "ignis_generate_copy", PLAIN)                        \
    X(GENERATE_DRAW, generate_draw_cu, "ignis_generate_draw", WAITS)                   \
    X(GENERATE_DRAW_BINS, generate_draw_cu, "ignis_generate_draw_bins", WAITS)         \
    X(GENERATE_DRAW_CUT, generate_draw_cu, "ignis_generate_draw_cut", WAITS)           \
    X(GEMV_1, gemv_cu, "ignis_gemv_1", PLAIN)                                          \
    X(GEMV_2, gemv_cu, "ignis_gemv_2", PLAIN)                                          \
    X(GEMV_4, gemv_cu, "ignis_gemv_4", PLAIN)                                          \
    X(GEMV_8, gemv_cu, "ignis_gemv_8", PLAIN)                                          \
    X(GEMV_GATED_1, gemv_cu, "ignis_gemv_gated_1", PLAIN)                              \
    X(GEMV_GATED_2, gemv_cu, "ignis_gemv_gated_2", PLAIN)                              \
    X(GEMV_GATED_4, gemv_cu, "ignis_gemv_gated_4", PLAIN)                              \
    X(GEMV_GATED_8, gemv_cu, "ignis_gemv_gated_8", PLAIN)                              \
    X(GEMV_MMA_NORM, gemv_mma_cu, "ignis_gemv_mma_norm", WAITS)                        \
    X(GEMV_MMA_ORDER, gemv_mma_cu, "ignis_gemv_mma_order", WAITS)                      \
    X(GEMV_MMA_1, gemv_mma_cu, "ignis_gemv_mma_1", WAITS)                              \
    X(GEMV_MMA_8, gemv_mma_cu, "ignis_gemv_mma_8", WAITS)                              \
    X(GEMV_MMA_16, gemv_mma_cu, "ignis_gemv_mma_16", WAITS)                            \
    X(GEMV_MMA_32, gemv_mma_cu, "ignis_gemv_mma_32", WAITS)                            \
    X(GEMV_MMA_64, gemv_mma_cu, "ignis_gemv_mma_64", WAITS)                            \
    X(GEMV_CLUSTER, gemv_cluster_cu, "ignis_gemv_cluster", WAITS)                      \
    X(GEMV_HOPPER, gemv_hopper_cu, "ignis_gemv_hopper", WAITS)                         \
    X(GEMV_CLUSTER_BLOCKS, gemv_cluster_blocks_cu, "ignis_gemv_cluster_blocks", WAITS) \
    X(GEMV_HOPPER_BLOCKS, gemv_hopper_blocks_cu, "ignis_gemv_hopper_blocks", WAITS)    \
    X(GEMV_F8_ROWS, gemv_f8_cu, "ignis_gemv_f8_rows", WAITS)                           \
    X(GEMV_F8, gemv_f8_cu, "ignis_gemv_f8", WAITS)                                     \
    X(GEMV_BLOCKS_ROWS, gemv_blocks_cu, "ignis_gemv_blocks_rows", WAITS)               \
    X(GEMV_BLOCKS_1, gemv_blocks_cu, "ignis_gemv_blocks_1", WAITS)                     \
    X(GEMV_BLOCKS_8, gemv_blocks_cu, "ignis_gemv_blocks_8", WAITS)                     \
    X(GEMV_BLOCKS_16, gemv_blocks_cu, "ignis_gemv_blocks_16", WAITS)                   \
    X(GEMV_BLOCKS_32, gemv_blocks_cu, "ignis_gemv_blocks_32", WAITS)                   \
    X(GEMV_BLOCKS_64, gemv_blocks_cu, "ignis_gemv_blocks_64", WAITS)                   \
    X(PAGED_1, attention_paged_cu, "ignis_attention_paged_1", WAITS)                   \
    X(PAGED_2, attention_paged_cu, "ignis_attention_paged_2", WAITS)                   \
    X(PAGED_MMA, attention_paged_mma_cu, "ignis_attention_paged_mma", WAITS)           \
    X(PAGED_MANY, attention_paged_many_cu, "ignis_attention_paged_many", WAITS)        \
    X(LATENT_ROWS, latent_cu, "ignis_latent_rows", WAITS)                              \
    X(LATENT_QUERY, latent_cu, "ignis_latent_query", WAITS)                            \
    X(LATENT_VALUES, latent_cu, "ignis_latent_values", WAITS)                          \
    X(ATTENTION_LATENT, attention_latent_cu, "ignis_attention_latent", WAITS)          \
    X(LATENT_MMA, attention_latent_mma_cu, "ignis_attention_latent_mma", WAITS)        \
    X(EXPERTS_ROUTER, experts_cu, "ignis_experts_router", WAITS)                       \
    X(EXPERTS_CHOOSE, experts_cu, "ignis_experts_choose", WAITS)                       \
    X(EXPERTS_CHOOSE_SIGMOID, experts_cu, "ignis_experts_choose_sigmoid", WAITS)       \
    X(EXPERTS_SHARED, experts_cu, "ignis_experts_shared", WAITS)                       \
    X(EXPERTS_WHOLE, experts_product_cu, "ignis_experts_whole", WAITS)                 \
    X(EXPERTS_UP, experts_product_cu, "ignis_experts_up", WAITS)                       \
    X(EXPERTS_UP_SORTED, experts_product_cu, "ignis_experts_up_sorted", WAITS)         \
    X(EXPERTS_DOWN, experts_product_cu, "ignis_experts_down", WAITS)                   \
    X(EXPERTS_DOWN_SORTED, experts_product_cu, "ignis_experts_down_sorted", WAITS)     \
    X(EXPERTS_SUM, experts_product_cu, "ignis_experts_sum", WAITS)                     \
    X(EXPERTS_SORT, experts_sorted_cu, "ignis_experts_sort", WAITS)                    \
    X(EXPERTS_GATHER, experts_sorted_cu, "ignis_experts_gather", WAITS)                \
    X(EXPERTS_GATE, experts_sorted_cu, "ignis_experts_gate", WAITS)                    \
    X(EXPERTS_COMBINE, experts_sorted_cu, "ignis_experts_combine", WAITS)              \
    X(DELTA_NET_CONV, delta_net_cu, "ignis_delta_net_conv", WAITS)                     \
    X(DELTA_NET_NORM, delta_net_cu, "ignis_delta_net_norm", WAITS)                     \
    X(DELTA_NET_GATE, delta_net_cu, "ignis_delta_net_gate", WAITS)                     \
    X(DELTA_NET_RULE, delta_net_rule_cu, "ignis_delta_net_rule", WAITS)                \
    X(LORA_SHRINK, lora_cu, "ignis_lora_shrink", WAITS)                                \
    X(LORA_EXPAND, lora_cu, "ignis_lora_expand", WAITS)                                \
    X(GENERATE_STEP, generate_step_cu, "ignis_generate_step", TOGETHER)

enum {
    IGNIS__NUMBERS_BEFORE_MODELS = IGNIS__BUILTIN_COUNT - 1,
    IGNIS__MODEL_BUILTINS(IGNIS__BUILTIN_NUMBER) IGNIS__NUMBERS_WITH_MODELS
};

#include <math.h>
typedef enum ignis__gguf_kind { /* the numbers of the format */
                                IGNIS__GGUF_U8,
                                IGNIS__GGUF_I8,
                                IGNIS__GGUF_U16,
                                IGNIS__GGUF_I16,
                                IGNIS__GGUF_U32,
                                IGNIS__GGUF_I32,
                                IGNIS__GGUF_F32,
                                IGNIS__GGUF_BOOL,
                                IGNIS__GGUF_STRING,
                                IGNIS__GGUF_ARRAY,
                                IGNIS__GGUF_U64,
                                IGNIS__GGUF_I64,
                                IGNIS__GGUF_F64,
                                IGNIS__GGUF_KINDS
} ignis__gguf_kind;

#include "../shared/models/weights.h"

#define IGNIS__GGUF_TYPE(name, number, elements, bytes, bits, scales, numbers, divisor) IGNIS__GGUF_##name = number,
/*  The numbers of the format. IGNIS__GGUF_F8 is of Ignis alone. */
typedef enum ignis__gguf_type { IGNIS__BLOCKS_TYPES(IGNIS__GGUF_TYPE) IGNIS__GGUF_NOT_QUANTISED = 0 } ignis__gguf_type;

/*  Types of tensors: `elements` elements take `bytes` bytes. dtype: the one of Ignis with the same layout, if
    there is one. */
struct ignis__gguf_types_type {
    const char *name;
    uint32_t id;
    int elements, bytes;
    ignis_dtype dtype;
    bool readable;
};

typedef struct ignis__gguf_key {
    const char *name;
    int64_t at;    /* place of its value in the head; of its first item, if it is an array */
    uint32_t kind; /* of the value, or of the items of an array */
    int64_t count; /* of items; -1 if it is not an array */
    int64_t name_at;
} ignis__gguf_key;

typedef struct ignis__gguf_tensor {
    const char *name;
    int type;           /* index in ignis__gguf_types; -1 if unknown */
    uint32_t id;        /* the number of the type in the file */
    ignis_shape shape;  /* in the order of Ignis: the fastest dimension last */
    int64_t begin, end; /* of its bytes in the file; both equal if the type is unknown */
    int64_t name_at;
} ignis__gguf_tensor;

/*  An open file, closed with ignis__gguf_close. */
typedef struct ignis__gguf {
    const char *path, *call;
    int descriptor;
    int64_t size;        /* of the file */
    unsigned char *head; /* the bytes of the head that were read */
    int64_t have, at;    /* have: bytes of the head; at: the reader's place in it */
    ignis__gguf_key *keys;
    int64_t key_count; /* sorted by name, as are the tensors */
    ignis__gguf_tensor *tensors;
    int64_t tensor_count;
    bool failed;
} ignis__gguf;

/*  The result of a lookup. BAD has been reported: the key exists, but has another type. */
typedef enum ignis__gguf_found { IGNIS__GGUF_BAD = -1, IGNIS__GGUF_NONE = 0, IGNIS__GGUF_FOUND = 1 } ignis__gguf_found;

/*  The items of an array, in the order of the file. They live as long as the file. */
typedef struct ignis__gguf_items {
    const unsigned char *at;
    uint32_t kind;
    int64_t left;
} ignis__gguf_items;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* kernel_table.c */
IGNIS__MODEL_BUILTINS(IGNIS__BUILTIN_DECLARED)
extern ignis__kernel_table ignis__model_kernels;
extern ignis__kernel_list ignis__model_kernel_list;

#ifndef __cplusplus
extern ignis__kernel_table *ignis__kernels_above;
extern ignis__kernel_list *ignis__kernel_list_above;
#endif

/* setup.c */
IGNIS__PRIVATE bool ignis__models_enter(const char *call);
IGNIS__PRIVATE void ignis__models_close_by(int closer, void (*close)(const char *call));

/* gguf.c */
extern const struct ignis__gguf_types_type ignis__gguf_types[];
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__gguf_close(ignis__gguf *file);
IGNIS__PRIVATE const ignis__gguf_key *ignis__gguf_find(const ignis__gguf *file, const char *name);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE const ignis__gguf_tensor *ignis__gguf_find_tensor(const ignis__gguf *file,
                                                                                     const char *name);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__gguf_found ignis__gguf_find_int(ignis__gguf *file, const char *name,
                                                                          int64_t *value);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__gguf_found ignis__gguf_find_real(ignis__gguf *file, const char *name,
                                                                           double *value);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__gguf_found ignis__gguf_find_bool(ignis__gguf *file, const char *name,
                                                                           bool *value);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE const char *ignis__gguf_next_text(ignis__gguf_items *items, size_t *size);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE int64_t ignis__gguf_next_int(ignis__gguf_items *items);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE double ignis__gguf_next_real(ignis__gguf_items *items);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__gguf_found ignis__gguf_find_string(ignis__gguf *file, const char *name,
                                                                             const char **text, size_t *size);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__gguf_found ignis__gguf_find_array(ignis__gguf *file, const char *name,
                                                                            ignis__gguf_kind like,
                                                                            ignis__gguf_items *items);
IGNIS__MAYBE_UNUSED IGNIS__COLD IGNIS__PRIVATE bool ignis__gguf_open(const char *call, const char *path,
                                                                     ignis__gguf *file);
