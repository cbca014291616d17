/* --- the kernels of models --------------------------------------------------------------------------------------- */

/*  kernel_table.c - the table of the kernels in kernels/models, as ignis.h has one for its own (builtin_table.c there)

    Known before main begins: a program may read a record before it opens a model. */

/*  Numbers continue those of ignis.h; X is as for IGNIS__BUILTINS. */
#define IGNIS__MODEL_BUILTINS(X)                                                       \
    X(BLOCKS_ROWS, BLOCKS_CU, "ignis_blocks_rows", PLAIN)                              \
    X(BLOCKS_EMBEDDING, BLOCKS_CU, "ignis_blocks_embedding", PLAIN)                    \
    X(BLOCKS_EMBED, BLOCKS_CU, "ignis_blocks_embed", PLAIN)                            \
    X(GENERATE_WORDS, GENERATE_CU, "ignis_generate_words", PLAIN)                      \
    X(GENERATE_ROWS, GENERATE_CU, "ignis_generate_rows", PLAIN)                        \
    X(GENERATE_CHUNK, GENERATE_CU, "ignis_generate_chunk", PLAIN)                      \
    X(GENERATE_EMBED, GENERATE_CU, "ignis_generate_embed", WAITS)                      \
    X(GENERATE_NORM, GENERATE_CU, "ignis_generate_norm", WAITS)                        \
    X(GENERATE_GATE, GENERATE_CU, "ignis_generate_gate", WAITS)                        \
    X(GENERATE_CACHE, GENERATE_CU, "ignis_generate_cache", WAITS)                      \
    X(GENERATE_GATHER, GENERATE_CU, "ignis_generate_gather", WAITS)                    \
    X(GENERATE_COPY, GENERATE_CU, "ignis_generate_copy", PLAIN)                        \
    X(GENERATE_DRAW, GENERATE_DRAW_CU, "ignis_generate_draw", WAITS)                   \
    X(GENERATE_DRAW_BINS, GENERATE_DRAW_CU, "ignis_generate_draw_bins", WAITS)         \
    X(GENERATE_DRAW_CUT, GENERATE_DRAW_CU, "ignis_generate_draw_cut", WAITS)           \
    X(GEMV_1, GEMV_CU, "ignis_gemv_1", PLAIN)                                          \
    X(GEMV_2, GEMV_CU, "ignis_gemv_2", PLAIN)                                          \
    X(GEMV_4, GEMV_CU, "ignis_gemv_4", PLAIN)                                          \
    X(GEMV_8, GEMV_CU, "ignis_gemv_8", PLAIN)                                          \
    X(GEMV_GATED_1, GEMV_CU, "ignis_gemv_gated_1", PLAIN)                              \
    X(GEMV_GATED_2, GEMV_CU, "ignis_gemv_gated_2", PLAIN)                              \
    X(GEMV_GATED_4, GEMV_CU, "ignis_gemv_gated_4", PLAIN)                              \
    X(GEMV_GATED_8, GEMV_CU, "ignis_gemv_gated_8", PLAIN)                              \
    X(GEMV_MMA_NORM, GEMV_MMA_CU, "ignis_gemv_mma_norm", WAITS)                        \
    X(GEMV_MMA_1, GEMV_MMA_CU, "ignis_gemv_mma_1", WAITS)                              \
    X(GEMV_MMA_8, GEMV_MMA_CU, "ignis_gemv_mma_8", WAITS)                              \
    X(GEMV_MMA_16, GEMV_MMA_CU, "ignis_gemv_mma_16", WAITS)                            \
    X(GEMV_MMA_32, GEMV_MMA_CU, "ignis_gemv_mma_32", WAITS)                            \
    X(GEMV_MMA_64, GEMV_MMA_CU, "ignis_gemv_mma_64", WAITS)                            \
    X(GEMV_CLUSTER, GEMV_CLUSTER_CU, "ignis_gemv_cluster", WAITS)                      \
    X(GEMV_CLUSTER_BLOCKS, GEMV_CLUSTER_BLOCKS_CU, "ignis_gemv_cluster_blocks", WAITS) \
    X(GEMV_BLOCKS_ROWS, GEMV_BLOCKS_CU, "ignis_gemv_blocks_rows", WAITS)               \
    X(GEMV_BLOCKS_1, GEMV_BLOCKS_CU, "ignis_gemv_blocks_1", WAITS)                     \
    X(GEMV_BLOCKS_8, GEMV_BLOCKS_CU, "ignis_gemv_blocks_8", WAITS)                     \
    X(GEMV_BLOCKS_16, GEMV_BLOCKS_CU, "ignis_gemv_blocks_16", WAITS)                   \
    X(GEMV_BLOCKS_32, GEMV_BLOCKS_CU, "ignis_gemv_blocks_32", WAITS)                   \
    X(GEMV_BLOCKS_64, GEMV_BLOCKS_CU, "ignis_gemv_blocks_64", WAITS)                   \
    X(PAGED_1, ATTENTION_PAGED_CU, "ignis_attention_paged_1", WAITS)                   \
    X(PAGED_2, ATTENTION_PAGED_CU, "ignis_attention_paged_2", WAITS)                   \
    X(PAGED_MMA, ATTENTION_PAGED_MMA_CU, "ignis_attention_paged_mma", WAITS)           \
    X(PAGED_MANY, ATTENTION_PAGED_MANY_CU, "ignis_attention_paged_many", WAITS)        \
    X(GENERATE_STEP, GENERATE_STEP_CU, "ignis_generate_step", TOGETHER)

enum { IGNIS__BUILTINS_BEFORE_MODELS = IGNIS__BUILTIN_COUNT - 1, IGNIS__MODEL_BUILTINS(IGNIS__BUILTIN_ENUM) IGNIS__BUILTIN_MODELS_END };

static const ignis__builtin_row ignis__model_kernel_rows[] = {
#define IGNIS__BUILTIN_ROW(name, source, entry, how) \
    {&ignis__model_kernel_sources[IGNIS__SOURCE_##source - IGNIS__SOURCE_COUNT], entry, IGNIS__KERNEL_##how},
    IGNIS__MODEL_BUILTINS(IGNIS__BUILTIN_ROW)
#undef IGNIS__BUILTIN_ROW
};

static const ignis__kernel_part ignis__model_kernel_parts[] = {
    IGNIS__PART(BLOCKS_ROWS, BLOCKS_EMBED),
    IGNIS__PART(GENERATE_WORDS, GENERATE_DRAW),
    IGNIS__PART(GEMV_1, GEMV_8),
    IGNIS__PART(GEMV_GATED_1, GEMV_GATED_8),
    IGNIS__PART(GEMV_BLOCKS_ROWS, GEMV_BLOCKS_64),
    IGNIS__PART(GEMV_MMA_NORM, GEMV_MMA_8),
    IGNIS__PART(GEMV_MMA_16, GEMV_MMA_64),
    IGNIS__PART(PAGED_1, PAGED_2),
};

static int ignis__model_kernel_dtypes(const char *name)
{
    if (strncmp(name, "attention", 9) == 0 || strncmp(name, "gemv_", 5) == 0 || strncmp(name, "generate_step", 13) == 0)
        return 0;
    return strncmp(name, "generate_draw", 13) == 0 ? 1 /* logits are floats in any case */ : 4 /* the floating types come first */;
}

static ignis__kernel_table ignis__model_kernels = {ignis__model_kernel_sources,
                                                   ignis__model_kernel_rows,
                                                   ignis__model_kernel_parts,
                                                   IGNIS__COUNT(ignis__model_kernel_sources),
                                                   IGNIS__BUILTIN_COUNT,
                                                   IGNIS__COUNT(ignis__model_kernel_rows),
                                                   IGNIS__COUNT(ignis__model_kernel_parts),
                                                   ignis__model_kernel_dtypes,
                                                   {0}};

#ifdef __cplusplus
static struct ignis__model_kernels_known {
    ignis__model_kernels_known() { ignis__kernels_above = &ignis__model_kernels; }
} ignis__model_kernels_are_known;
#else
static ignis__kernel_table *ignis__kernels_above = &ignis__model_kernels;
#endif
