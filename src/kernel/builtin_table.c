/*  kernel/builtin_table.c - the built-in kernels of ignis.h, and how a header above adds its own

    A table has the sources, kernels and parts of one header, and what is loaded of them on each device. All that
    finds a kernel, a source or a header by name or number goes through the functions at the end, which know both
    tables. Invariant: the key of a program of ignis.h does not depend on the table above. */

/*  Numbers of kernels: IGNIS__BUILTIN_... A header above ignis.h has numbers of its own, from IGNIS__BUILTIN_COUNT
    on. */
typedef int ignis__builtin;

/*  How a kernel is launched. Threads of a WAITS kernel first call ignis_grid_dependency_wait, so it may be launched
    while earlier work still runs. Blocks of a TOGETHER kernel wait for each other, too. */
enum { IGNIS__KERNEL_PLAIN = 0, IGNIS__KERNEL_WAITS = 1, IGNIS__KERNEL_TOGETHER = 3 };

typedef struct ignis__builtin_row {
    const ignis__source *source;
    const char *entry;
    int how; /* IGNIS__KERNEL_... */
} ignis__builtin_row;

/*  A group of kernels, from the first to the last, among which size, alignment or device decides, or that are always
    launched together. Records and bundles have a group whole or not at all. Each other kernel is a part of its own. A
    part is named after its first kernel. */
typedef struct ignis__kernel_part {
    ignis__builtin first, last;
} ignis__kernel_part;

/*  The kernels of a header, and their loaded code. ignis.h has such a table, and a header above it may add one. */
typedef struct ignis__kernel_table {
    const ignis__source *sources;
    const ignis__builtin_row *builtins; /* of the numbers from `first` on */
    const ignis__kernel_part *parts;
    int source_count, first, builtin_count, part_count;
    int (*dtypes)(
        const char *name); /* of a source with kernels: for how many dtypes it is one program without further choices */
    uint64_t code[IGNIS_MAX_DEVICES]; /* the address of the ignis__builtin_code of each device, once it is used */
} ignis__kernel_table;

#define IGNIS__BUILTIN_ENUM(name, source, entry, how) IGNIS__BUILTIN_##name,
#define IGNIS__PART(first, last)                      \
    {                                                 \
        IGNIS__BUILTIN_##first, IGNIS__BUILTIN_##last \
    }

/*  X(enumerator, source, entry, how). Each source is one program per dtype, compiled with -DIGNIS_T=<dtype> at the
    first use of one of its kernels. */
#define IGNIS__BUILTINS(X)                                                                              \
    X(FILL, ELEMENTWISE_CU, "ignis_fill", WAITS)                                                        \
    X(ADD, ELEMENTWISE_CU, "ignis_add", WAITS)                                                          \
    X(ADD_EACH, ELEMENTWISE_CU, "ignis_add_each", WAITS)                                                \
    X(MUL, ELEMENTWISE_CU, "ignis_mul", WAITS)                                                          \
    X(SCALE, ELEMENTWISE_CU, "ignis_scale", WAITS)                                                      \
    X(CAST_F16, ELEMENTWISE_CU, "ignis_cast_f16", WAITS)                                                \
    X(CAST_BF16, ELEMENTWISE_CU, "ignis_cast_bf16", WAITS)                                              \
    X(CAST_F32, ELEMENTWISE_CU, "ignis_cast_f32", WAITS)                                                \
    X(CAST_F64, ELEMENTWISE_CU, "ignis_cast_f64", WAITS)                                                \
    X(CAST_I32, ELEMENTWISE_CU, "ignis_cast_i32", WAITS)                                                \
    X(CAST_I64, ELEMENTWISE_CU, "ignis_cast_i64", WAITS)                                                \
    X(CAST_U8, ELEMENTWISE_CU, "ignis_cast_u8", WAITS)                                                  \
    X(CAST_F8_E4M3, ELEMENTWISE_CU, "ignis_cast_f8_e4m3", WAITS)                                        \
    X(CAST_F8_E5M2, ELEMENTWISE_CU, "ignis_cast_f8_e5m2", WAITS)                                        \
    X(SDPA, ATTENTION_CU, "ignis_sdpa", PLAIN)                                                          \
    X(SDPA_BACKWARD_DELTA, ATTENTION_CU, "ignis_sdpa_backward_delta", PLAIN)                            \
    X(SDPA_BACKWARD_KV, ATTENTION_CU, "ignis_sdpa_backward_kv", PLAIN)                                  \
    X(SDPA_BACKWARD_Q, ATTENTION_CU, "ignis_sdpa_backward_q", PLAIN)                                    \
    X(SDPA_BACKWARD_BIAS, ATTENTION_CU, "ignis_sdpa_backward_bias", PLAIN)                              \
    X(SDPA_MMA, ATTENTION_MMA_CU, "ignis_sdpa", PLAIN)                                                  \
    X(SDPA_MMA_BACKWARD_DELTA, ATTENTION_MMA_CU, "ignis_sdpa_backward_delta", PLAIN)                    \
    X(SDPA_MMA_BACKWARD_KV, ATTENTION_MMA_CU, "ignis_sdpa_backward_kv", PLAIN)                          \
    X(SDPA_MMA_BACKWARD_Q, ATTENTION_MMA_CU, "ignis_sdpa_backward_q", PLAIN)                            \
    X(SDPA_MMA_BACKWARD_BIAS, ATTENTION_MMA_CU, "ignis_sdpa_backward_bias", PLAIN)                      \
    X(SDPA_HOPPER, ATTENTION_HOPPER_CU, "ignis_sdpa", WAITS)                                            \
    X(SDPA_HOPPER_COMBINE, ATTENTION_HOPPER_CU, "ignis_sdpa_combine", WAITS)                            \
    X(SDPA_HOPPER_BACKWARD_ROWS, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_rows", WAITS)       \
    X(SDPA_HOPPER_BACKWARD, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward", WAITS)                 \
    X(SDPA_HOPPER_BACKWARD_FINISH, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_finish", WAITS)   \
    X(SDPA_HOPPER_BACKWARD_ROTATED, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_rotated", WAITS) \
    X(SDPA_DECODE_1, ATTENTION_DECODE_CU, "ignis_sdpa_decode_1", PLAIN)                                 \
    X(SDPA_DECODE_2, ATTENTION_DECODE_CU, "ignis_sdpa_decode_2", PLAIN)                                 \
    X(SDPA_DECODE_4, ATTENTION_DECODE_CU, "ignis_sdpa_decode_4", PLAIN)                                 \
    X(SDPA_DECODE_COMBINE, ATTENTION_DECODE_CU, "ignis_sdpa_decode_combine", PLAIN)                     \
    X(SDPA_MMA_DECODE, ATTENTION_DECODE_MMA_CU, "ignis_sdpa_decode", PLAIN)                             \
    X(SDPA_MMA_DECODE_COMBINE, ATTENTION_DECODE_MMA_CU, "ignis_sdpa_decode_combine", PLAIN)             \
    X(SUB, POINTWISE_CU, "ignis_sub", WAITS)                                                            \
    X(ADD_BROADCAST, POINTWISE_CU, "ignis_add_broadcast", WAITS)                                        \
    X(SUB_BROADCAST, POINTWISE_CU, "ignis_sub_broadcast", WAITS)                                        \
    X(MUL_BROADCAST, POINTWISE_CU, "ignis_mul_broadcast", WAITS)                                        \
    X(BROADCAST_SCALED, POINTWISE_CU, "ignis_broadcast_scaled", WAITS)                                  \
    X(DROPOUT, POINTWISE_CU, "ignis_dropout", WAITS)                                                    \
    X(RELU, ACTIVATION_CU, "ignis_relu", WAITS)                                                         \
    X(RELU_BACKWARD, ACTIVATION_CU, "ignis_relu_backward", WAITS)                                       \
    X(GELU, ACTIVATION_CU, "ignis_gelu", WAITS)                                                         \
    X(GELU_BACKWARD, ACTIVATION_CU, "ignis_gelu_backward", WAITS)                                       \
    X(GELU_EXACT, ACTIVATION_CU, "ignis_gelu_exact", WAITS)                                             \
    X(GELU_EXACT_BACKWARD, ACTIVATION_CU, "ignis_gelu_exact_backward", WAITS)                           \
    X(SILU, ACTIVATION_CU, "ignis_silu", WAITS)                                                         \
    X(SILU_BACKWARD, ACTIVATION_CU, "ignis_silu_backward", WAITS)                                       \
    X(SILU_MUL, ACTIVATION_CU, "ignis_silu_mul", WAITS)                                                 \
    X(SILU_MUL_BACKWARD, ACTIVATION_CU, "ignis_silu_mul_backward", WAITS)                               \
    X(GEMM, GEMM_CU, "ignis_gemm", WAITS)                                                               \
    X(GEMM_SMALL, GEMM_CU, "ignis_gemm_small", WAITS)                                                   \
    X(GEMM_TINY, GEMM_CU, "ignis_gemm_tiny", WAITS)                                                     \
    X(GEMM_MMA, GEMM_MMA_CU, "ignis_gemm_mma", WAITS)                                                   \
    X(GEMM_MMA_SMALL, GEMM_MMA_CU, "ignis_gemm_mma_small", WAITS)                                       \
    X(GEMM_HOPPER, GEMM_HOPPER_CU, "ignis_gemm_hopper", WAITS)                                          \
    X(DEPTHWISE, DEPTHWISE_CU, "ignis_depthwise", PLAIN)                                                \
    X(DEPTHWISE_UNPACKED, DEPTHWISE_CU, "ignis_depthwise_unpacked", PLAIN)                              \
    X(DEPTHWISE_WEIGHTS, DEPTHWISE_CU, "ignis_depthwise_weights", PLAIN)                                \
    X(DEPTHWISE_WEIGHTS_UNPACKED, DEPTHWISE_CU, "ignis_depthwise_weights_unpacked", PLAIN)              \
    X(GROUPED, GROUPED_MMA_CU, "ignis_grouped", PLAIN)                                                  \
    X(GROUPED_WEIGHTS, GROUPED_MMA_CU, "ignis_grouped_weights", PLAIN)                                  \
    X(GEMM_FINISH, GEMM_CU, "ignis_gemm_finish", WAITS)                                                 \
    X(GEMM_PACK, GEMM_CU, "ignis_gemm_pack", WAITS)                                                     \
    X(GEMM_SUMS, GEMM_CU, "ignis_gemm_sums", WAITS)                                                     \
    X(GEMM_APPLY, GEMM_CU, "ignis_gemm_apply", WAITS)                                                   \
    X(SUM_ROWS, REDUCE_CU, "ignis_sum_rows", WAITS)                                                     \
    X(DOT_ROWS, REDUCE_CU, "ignis_dot_rows", WAITS)                                                     \
    X(SUM_COLUMNS, REDUCE_CU, "ignis_sum_columns", WAITS)                                               \
    X(DOT_COLUMNS, REDUCE_CU, "ignis_dot_columns", WAITS)                                               \
    X(SUM_FINISH, REDUCE_CU, "ignis_sum_finish", WAITS)                                                 \
    X(TRANSPOSE_RUNS, SHAPE_CU, "ignis_transpose_runs", PLAIN)                                          \
    X(TRANSPOSE_TILES, SHAPE_CU, "ignis_transpose_tiles", PLAIN)                                        \
    X(COPY_ROWS, SHAPE_CU, "ignis_copy_rows", PLAIN)                                                    \
    X(STRIDED_COPY, SHAPE_CU, "ignis_strided_copy", PLAIN)                                              \
    X(STRIDED_TILES, SHAPE_CU, "ignis_strided_tiles", PLAIN)                                            \
    X(SCAN_ROWS, SCAN_CU, "ignis_scan_rows", PLAIN)                                                     \
    X(SCAN_TILES, SCAN_CU, "ignis_scan_tiles", PLAIN)                                                   \
    X(SCAN_COLUMNS, SCAN_CU, "ignis_scan_columns", PLAIN)                                               \
    X(LINE, PATTERN_CU, "ignis_line", PLAIN)                                                            \
    X(BAND, PATTERN_CU, "ignis_band", PLAIN)                                                            \
    X(ONE_HOT, PATTERN_CU, "ignis_one_hot", PLAIN)                                                      \
    X(GATHER, GATHER_CU, "ignis_gather", PLAIN)                                                         \
    X(SCATTER, GATHER_CU, "ignis_scatter", PLAIN)                                                       \
    X(SCATTER_ADD_ROWS, GATHER_CU, "ignis_scatter_add_rows", PLAIN)                                     \
    X(SCATTER_KEYS, GATHER_CU, "ignis_scatter_keys", PLAIN)                                             \
    X(SEGMENT_SUMS, GATHER_CU, "ignis_segment_sums", PLAIN)                                             \
    X(SEGMENT_FINISH, GATHER_CU, "ignis_segment_finish", PLAIN)                                         \
    X(SORT_SMALL, SORT_CU, "ignis_sort_small", WAITS)                                                   \
    X(SORT_ROW, SORT_CU, "ignis_sort_row", WAITS)                                                       \
    X(SORT_SELECT, SORT_CU, "ignis_sort_select", WAITS)                                                 \
    X(SORT_SELECT_FEW, SORT_CU, "ignis_sort_select_few", WAITS)                                         \
    X(SORT_COUNT, SORT_CU, "ignis_sort_count", WAITS)                                                   \
    X(SORT_PASS, SORT_CU, "ignis_sort_pass", WAITS)                                                     \
    X(RANDOM_ADVANCE, RANDOM_CU, "ignis_random_advance", PLAIN)                                         \
    X(RAND, RANDOM_CU, "ignis_rand", PLAIN)                                                             \
    X(RANDN, RANDOM_CU, "ignis_randn", PLAIN)                                                           \
    X(OPTIM_TABLE, OPTIM_CU, "ignis_optim_table", WAITS)                                                \
    X(OPTIM_ADVANCE, OPTIM_CU, "ignis_optim_advance", WAITS)                                            \
    X(ADAMW, OPTIM_CU, "ignis_adamw", WAITS)                                                            \
    X(ADAM, OPTIM_CU, "ignis_adam", WAITS)                                                              \
    X(SGD, OPTIM_CU, "ignis_sgd", WAITS)                                                                \
    X(RMSPROP, OPTIM_CU, "ignis_rmsprop", WAITS)                                                        \
    X(LION, OPTIM_CU, "ignis_lion", WAITS)                                                              \
    X(MUON, OPTIM_CU, "ignis_muon", WAITS)                                                              \
    X(MUON_APPLY, OPTIM_CU, "ignis_muon_apply", WAITS)                                                  \
    X(GRAD_SQUARES, OPTIM_CU, "ignis_grad_squares", WAITS)                                              \
    X(GRAD_CLIP, OPTIM_CU, "ignis_grad_clip", WAITS)                                                    \
    X(GRAD_ZERO, OPTIM_CU, "ignis_grad_zero", WAITS)                                                    \
    X(LAYER_NORM_WARP, NORM_CU, "ignis_layer_norm_warp", WAITS)                                         \
    X(LAYER_NORM_ROW, NORM_CU, "ignis_layer_norm_row", WAITS)                                           \
    X(LAYER_NORM_LONG, NORM_CU, "ignis_layer_norm_long", WAITS)                                         \
    X(LAYER_NORM_BLOCK, NORM_CU, "ignis_layer_norm_block", WAITS)                                       \
    X(LAYER_NORM_BACKWARD_AVERAGES, NORM_CU, "ignis_layer_norm_backward_averages", WAITS)               \
    X(LAYER_NORM_BACKWARD_COLUMNS, NORM_CU, "ignis_layer_norm_backward_columns", WAITS)                 \
    X(RMS_NORM_WARP, NORM_CU, "ignis_rms_norm_warp", WAITS)                                             \
    X(RMS_NORM_ROW, NORM_CU, "ignis_rms_norm_row", WAITS)                                               \
    X(RMS_NORM_LONG, NORM_CU, "ignis_rms_norm_long", WAITS)                                             \
    X(RMS_NORM_BLOCK, NORM_CU, "ignis_rms_norm_block", WAITS)                                           \
    X(RMS_NORM_BACKWARD_AVERAGES, NORM_CU, "ignis_rms_norm_backward_averages", WAITS)                   \
    X(RMS_NORM_BACKWARD_COLUMNS, NORM_CU, "ignis_rms_norm_backward_columns", WAITS)                     \
    X(NORM_BACKWARD_SUM, NORM_CU, "ignis_norm_backward_sum", WAITS)                                     \
    X(ADD_LAYER_NORM_WARP, NORM_ADD_CU, "ignis_add_layer_norm_warp", WAITS)                             \
    X(ADD_LAYER_NORM_ROW, NORM_ADD_CU, "ignis_add_layer_norm_row", WAITS)                               \
    X(ADD_LAYER_NORM_LONG, NORM_ADD_CU, "ignis_add_layer_norm_long", WAITS)                             \
    X(ADD_LAYER_NORM_BLOCK, NORM_ADD_CU, "ignis_add_layer_norm_block", WAITS)                           \
    X(ADD_RMS_NORM_WARP, NORM_ADD_CU, "ignis_add_rms_norm_warp", WAITS)                                 \
    X(ADD_RMS_NORM_ROW, NORM_ADD_CU, "ignis_add_rms_norm_row", WAITS)                                   \
    X(ADD_RMS_NORM_LONG, NORM_ADD_CU, "ignis_add_rms_norm_long", WAITS)                                 \
    X(ADD_RMS_NORM_BLOCK, NORM_ADD_CU, "ignis_add_rms_norm_block", WAITS)                               \
    X(LAYER_NORM_ROWS_FEW, NORM_UNALIGNED_CU, "ignis_layer_norm_rows_few", WAITS)                       \
    X(LAYER_NORM_ROWS_WARP, NORM_UNALIGNED_CU, "ignis_layer_norm_rows_warp", WAITS)                     \
    X(LAYER_NORM_ROWS_BLOCK, NORM_UNALIGNED_CU, "ignis_layer_norm_rows_block", WAITS)                   \
    X(LAYER_NORM_ROWS_EVEN, NORM_UNALIGNED_CU, "ignis_layer_norm_rows_even", WAITS)                     \
    X(LAYER_NORM_ROWS_BACKWARD_FEW, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_few", WAITS)          \
    X(LAYER_NORM_ROWS_BACKWARD_WARP, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_warp", WAITS)        \
    X(LAYER_NORM_ROWS_BACKWARD_BLOCK, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_block", WAITS)      \
    X(LAYER_NORM_ROWS_BACKWARD_EVEN, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_even", WAITS)        \
    X(RMS_NORM_ROWS_FEW, NORM_UNALIGNED_CU, "ignis_rms_norm_rows_few", WAITS)                           \
    X(RMS_NORM_ROWS_WARP, NORM_UNALIGNED_CU, "ignis_rms_norm_rows_warp", WAITS)                         \
    X(RMS_NORM_ROWS_BLOCK, NORM_UNALIGNED_CU, "ignis_rms_norm_rows_block", WAITS)                       \
    X(RMS_NORM_ROWS_EVEN, NORM_UNALIGNED_CU, "ignis_rms_norm_rows_even", WAITS)                         \
    X(RMS_NORM_ROWS_BACKWARD_FEW, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_few", WAITS)              \
    X(RMS_NORM_ROWS_BACKWARD_WARP, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_warp", WAITS)            \
    X(RMS_NORM_ROWS_BACKWARD_BLOCK, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_block", WAITS)          \
    X(RMS_NORM_ROWS_BACKWARD_EVEN, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_even", WAITS)            \
    X(CHANNEL_STATISTICS, CHANNEL_NORM_CU, "ignis_channel_statistics", PLAIN)                           \
    X(CHANNEL_FINISH, CHANNEL_NORM_CU, "ignis_channel_finish", PLAIN)                                   \
    X(CHANNEL_APPLY, CHANNEL_NORM_CU, "ignis_channel_apply", PLAIN)                                     \
    X(CHANNEL_SUMS, CHANNEL_NORM_CU, "ignis_channel_sums", PLAIN)                                       \
    X(CHANNEL_WEIGHTS, CHANNEL_NORM_CU, "ignis_channel_weights", PLAIN)                                 \
    X(CHANNEL_AVERAGES, CHANNEL_NORM_CU, "ignis_channel_averages", PLAIN)                               \
    X(CHANNEL_BACKWARD, CHANNEL_NORM_CU, "ignis_channel_backward", PLAIN)                               \
    X(MAX_POOL, POOL_CU, "ignis_max_pool", PLAIN)                                                       \
    X(MAX_POOL_BACKWARD, POOL_CU, "ignis_max_pool_backward", PLAIN)                                     \
    X(AVG_POOL, POOL_CU, "ignis_avg_pool", PLAIN)                                                       \
    X(AVG_POOL_BACKWARD, POOL_CU, "ignis_avg_pool_backward", PLAIN)                                     \
    X(UPSAMPLE, UPSAMPLE_CU, "ignis_upsample", PLAIN)                                                   \
    X(UPSAMPLE_BACKWARD, UPSAMPLE_CU, "ignis_upsample_backward", PLAIN)                                 \
    X(SOFTMAX_WARP, SOFTMAX_CU, "ignis_softmax_warp", WAITS)                                            \
    X(SOFTMAX_BLOCK, SOFTMAX_CU, "ignis_softmax_block", WAITS)                                          \
    X(SOFTMAX_LONG, SOFTMAX_CU, "ignis_softmax_long", WAITS)                                            \
    X(SOFTMAX_BACKWARD_WARP, SOFTMAX_CU, "ignis_softmax_backward_warp", WAITS)                          \
    X(SOFTMAX_BACKWARD_BLOCK, SOFTMAX_CU, "ignis_softmax_backward_block", WAITS)                        \
    X(LOG_SOFTMAX_WARP, LOG_SOFTMAX_CU, "ignis_log_softmax_warp", WAITS)                                \
    X(LOG_SOFTMAX_BLOCK, LOG_SOFTMAX_CU, "ignis_log_softmax_block", WAITS)                              \
    X(LOG_SOFTMAX_LONG, LOG_SOFTMAX_CU, "ignis_log_softmax_long", WAITS)                                \
    X(LOG_SOFTMAX_BACKWARD_WARP, LOG_SOFTMAX_CU, "ignis_log_softmax_backward_warp", WAITS)              \
    X(LOG_SOFTMAX_BACKWARD_BLOCK, LOG_SOFTMAX_CU, "ignis_log_softmax_backward_block", WAITS)            \
    X(CROSS_ENTROPY_COUNT, SOFTMAX_CU, "ignis_cross_entropy_count", WAITS)                              \
    X(CROSS_ENTROPY_WARP, SOFTMAX_CU, "ignis_cross_entropy_warp", WAITS)                                \
    X(CROSS_ENTROPY_FEW, SOFTMAX_CU, "ignis_cross_entropy_few", WAITS)                                  \
    X(CROSS_ENTROPY_ROUND, SOFTMAX_CU, "ignis_cross_entropy_round", WAITS)                              \
    X(CROSS_ENTROPY_EXACT, SOFTMAX_CU, "ignis_cross_entropy_exact", WAITS)                              \
    X(CROSS_ENTROPY_BLOCK, SOFTMAX_CU, "ignis_cross_entropy_block", WAITS)                              \
    X(CROSS_ENTROPY_LOSS_WARP, SOFTMAX_CU, "ignis_cross_entropy_loss_warp", WAITS)                      \
    X(CROSS_ENTROPY_LOSS_BLOCK, SOFTMAX_CU, "ignis_cross_entropy_loss_block", WAITS)                    \
    X(CROSS_ENTROPY_RESCALE, SOFTMAX_CU, "ignis_cross_entropy_rescale", WAITS)                          \
    X(CROSS_ENTROPY_ADD_UP, SOFTMAX_CU, "ignis_cross_entropy_add_up", WAITS)                            \
    X(QUANTIZE_LARGEST, QUANTIZE_CU, "ignis_quantize_largest", WAITS)                                   \
    X(QUANTIZE_F8_E4M3_WARP, QUANTIZE_CU, "ignis_quantize_f8_e4m3_warp", WAITS)                         \
    X(QUANTIZE_F8_E4M3_BLOCK, QUANTIZE_CU, "ignis_quantize_f8_e4m3_block", WAITS)                       \
    X(QUANTIZE_F8_E4M3, QUANTIZE_CU, "ignis_quantize_f8_e4m3", WAITS)                                   \
    X(QUANTIZE_F8_E5M2_WARP, QUANTIZE_CU, "ignis_quantize_f8_e5m2_warp", WAITS)                         \
    X(QUANTIZE_F8_E5M2_BLOCK, QUANTIZE_CU, "ignis_quantize_f8_e5m2_block", WAITS)                       \
    X(QUANTIZE_F8_E5M2, QUANTIZE_CU, "ignis_quantize_f8_e5m2", WAITS)                                   \
    X(CROSS_ENTROPY_BACKWARD, SOFTMAX_CU, "ignis_cross_entropy_backward", WAITS)                        \
    X(ROPE, ROPE_CU, "ignis_rope", WAITS)                                                               \
    X(EMBEDDING, EMBEDDING_CU, "ignis_embedding", WAITS)                                                \
    X(EMBEDDING_KEYS, EMBEDDING_CU, "ignis_embedding_keys", WAITS)                                      \
    X(EMBEDDING_BOUNDS, EMBEDDING_CU, "ignis_embedding_bounds", WAITS)                                  \
    X(EMBEDDING_CHUNKS, EMBEDDING_CU, "ignis_embedding_chunks", WAITS)                                  \
    X(EMBEDDING_ROWS, EMBEDDING_CU, "ignis_embedding_rows", WAITS)

enum { IGNIS__BUILTINS(IGNIS__BUILTIN_ENUM) IGNIS__BUILTIN_COUNT };

static const ignis__builtin_row ignis__builtins[] = {
#define IGNIS__BUILTIN_ROW(name, source, entry, how) \
    {&ignis__sources[IGNIS__SOURCE_##source], entry, IGNIS__KERNEL_##how},
    IGNIS__BUILTINS(IGNIS__BUILTIN_ROW)
#undef IGNIS__BUILTIN_ROW
};

static const ignis__kernel_part ignis__parts[] = {
    IGNIS__PART(SDPA_BACKWARD_DELTA, SDPA_BACKWARD_BIAS),
    IGNIS__PART(SDPA_MMA_BACKWARD_DELTA, SDPA_MMA_BACKWARD_BIAS),
    IGNIS__PART(SDPA_HOPPER, SDPA_HOPPER_COMBINE),
    IGNIS__PART(SDPA_HOPPER_BACKWARD_ROWS, SDPA_HOPPER_BACKWARD_ROTATED),
    IGNIS__PART(SDPA_DECODE_1, SDPA_DECODE_COMBINE),
    IGNIS__PART(SDPA_MMA_DECODE, SDPA_MMA_DECODE_COMBINE),
    IGNIS__PART(GEMM, GEMM_SMALL),
    IGNIS__PART(GEMM_MMA, GEMM_MMA_SMALL),
    IGNIS__PART(DEPTHWISE, DEPTHWISE_UNPACKED),
    IGNIS__PART(DEPTHWISE_WEIGHTS, DEPTHWISE_WEIGHTS_UNPACKED),
    IGNIS__PART(GEMM_FINISH, GEMM_SUMS),
    IGNIS__PART(TRANSPOSE_RUNS, TRANSPOSE_TILES),
    IGNIS__PART(STRIDED_COPY, STRIDED_TILES),
    IGNIS__PART(SUM_ROWS, SUM_FINISH),
    IGNIS__PART(SCAN_ROWS, SCAN_COLUMNS),
    IGNIS__PART(SCATTER_ADD_ROWS, SEGMENT_FINISH),
    IGNIS__PART(SORT_SMALL, SORT_SELECT_FEW),
    IGNIS__PART(SORT_COUNT, SORT_PASS),
    IGNIS__PART(LAYER_NORM_WARP, LAYER_NORM_BLOCK),
    IGNIS__PART(LAYER_NORM_BACKWARD_AVERAGES, LAYER_NORM_BACKWARD_COLUMNS),
    IGNIS__PART(RMS_NORM_WARP, RMS_NORM_BLOCK),
    IGNIS__PART(RMS_NORM_BACKWARD_AVERAGES, RMS_NORM_BACKWARD_COLUMNS),
    IGNIS__PART(ADD_LAYER_NORM_WARP, ADD_LAYER_NORM_BLOCK),
    IGNIS__PART(ADD_RMS_NORM_WARP, ADD_RMS_NORM_BLOCK),
    IGNIS__PART(LAYER_NORM_ROWS_FEW, LAYER_NORM_ROWS_EVEN),
    IGNIS__PART(LAYER_NORM_ROWS_BACKWARD_FEW, LAYER_NORM_ROWS_BACKWARD_EVEN),
    IGNIS__PART(RMS_NORM_ROWS_FEW, RMS_NORM_ROWS_EVEN),
    IGNIS__PART(RMS_NORM_ROWS_BACKWARD_FEW, RMS_NORM_ROWS_BACKWARD_EVEN),
    IGNIS__PART(CHANNEL_STATISTICS, CHANNEL_APPLY),
    IGNIS__PART(CHANNEL_SUMS, CHANNEL_BACKWARD),
    IGNIS__PART(SOFTMAX_WARP, SOFTMAX_LONG),
    IGNIS__PART(SOFTMAX_BACKWARD_WARP, SOFTMAX_BACKWARD_BLOCK),
    IGNIS__PART(LOG_SOFTMAX_WARP, LOG_SOFTMAX_LONG),
    IGNIS__PART(LOG_SOFTMAX_BACKWARD_WARP, LOG_SOFTMAX_BACKWARD_BLOCK),
    IGNIS__PART(CROSS_ENTROPY_WARP, CROSS_ENTROPY_BLOCK),
    IGNIS__PART(CROSS_ENTROPY_LOSS_WARP, CROSS_ENTROPY_LOSS_BLOCK),
    IGNIS__PART(EMBEDDING_KEYS, EMBEDDING_ROWS),
    IGNIS__PART(QUANTIZE_F8_E4M3_WARP, QUANTIZE_F8_E4M3_BLOCK),
    IGNIS__PART(QUANTIZE_F8_E5M2_WARP, QUANTIZE_F8_E5M2_BLOCK),
};

static int ignis__own_dtypes(const char *name)
{
    if (strncmp(name, "attention", 9) == 0 || strncmp(name, "gemm_", 5) == 0 || strncmp(name, "grouped_", 8) == 0)
        return 0;
    return strcmp(name, "elementwise.cu") == 0 || strcmp(name, "sort.cu") == 0 ? IGNIS_DTYPE_COUNT - 1
                                                                               : 4 /* the floating types come first */;
}

static ignis__kernel_table ignis__own_kernels = {ignis__sources,
                                                 ignis__builtins,
                                                 ignis__parts,
                                                 IGNIS__SOURCE_COUNT,
                                                 0,
                                                 IGNIS__BUILTIN_COUNT,
                                                 IGNIS__COUNT(ignis__parts),
                                                 ignis__own_dtypes,
                                                 {0}};

/*  The table of a header above. A program may read a record before it uses that header, so the header's
    implementation sets this before main begins: in C by a second declaration that has a value, in C++ by a
    constructor. */
static ignis__kernel_table *ignis__kernels_above;

/*  Returns a table by its index from 0 on. NULL if there are no more. */
static ignis__kernel_table *ignis__kernel_table_at(int index)
{
    return index == 0 ? &ignis__own_kernels : index == 1 ? ignis__kernels_above : NULL;
}

static ignis__kernel_table *ignis__table_of_builtin(ignis__builtin builtin)
{
    return builtin < IGNIS__BUILTIN_COUNT ? &ignis__own_kernels : ignis__kernels_above;
}

static const ignis__builtin_row *ignis__builtin_row_of(ignis__builtin builtin)
{
    const ignis__kernel_table *table = ignis__table_of_builtin(builtin);
    return &table->builtins[builtin - table->first];
}

/*  Returns a source of any table by its index from 0 on. NULL if there are no more. */
static const ignis__source *ignis__source_at(int index)
{
    const ignis__kernel_table *table;
    int i;
    for (i = 0; (table = ignis__kernel_table_at(i)) != NULL; index -= table->source_count, i++)
        if (index < table->source_count)
            return &table->sources[index];
    return NULL;
}

/*  Returns the number of a kernel of a source, by its index from 0 on. -1 if there are no more. */
static ignis__builtin ignis__builtin_of_source(const ignis__source *source, int index)
{
    const ignis__kernel_table *table;
    int i, k;
    for (i = 0; (table = ignis__kernel_table_at(i)) != NULL; i++)
        for (k = 0; k < table->builtin_count; k++)
            if (table->builtins[k].source == source && index-- == 0)
                return table->first + k;
    return -1;
}

/*  Returns the next header in memory that a source (NULL: a program of the caller) may include; *at is 0 for the
    first. A source of a header above has the headers of its own table, too. Others do not, so that their programs are
    the same with and without a header above. NULL if there are no more. */
static const ignis__source *ignis__header_next(const ignis__source *from, int *at)
{
    const ignis__kernel_table *above = ignis__kernels_above;
    bool is_above = above && (uintptr_t)from - (uintptr_t)above->sources < (size_t)above->source_count * sizeof *from;
    const ignis__source *source;
    while ((source = ignis__source_at((*at)++)) != NULL)
        if (ignis__source_is_header(source) && (is_above || *at <= IGNIS__SOURCE_COUNT))
            return source;
    return NULL;
}
