/* --- Ignis' own kernels ----------------------------------------------------------------------------------------------- */

/*  Those of generation, which others do not warm up. */
#ifdef IGNIS_MODELS
#define IGNIS__BUILTINS_MODELS(X)                                               \
    X(BLOCKS_ROWS, BLOCKS_CU, "ignis_blocks_rows")                              \
    X(BLOCKS_EMBEDDING, BLOCKS_CU, "ignis_blocks_embedding")                    \
    X(BLOCKS_EMBED, BLOCKS_CU, "ignis_blocks_embed")                            \
    X(GENERATE_WORDS, GENERATE_CU, "ignis_generate_words")                      \
    X(GENERATE_ROWS, GENERATE_CU, "ignis_generate_rows")                        \
    X(GENERATE_CHUNK, GENERATE_CU, "ignis_generate_chunk")                      \
    X(GENERATE_EMBED, GENERATE_CU, "ignis_generate_embed")                      \
    X(GENERATE_NORM, GENERATE_CU, "ignis_generate_norm")                        \
    X(GENERATE_GATE, GENERATE_CU, "ignis_generate_gate")                        \
    X(GENERATE_CACHE, GENERATE_CU, "ignis_generate_cache")                      \
    X(GENERATE_GATHER, GENERATE_CU, "ignis_generate_gather")                    \
    X(GENERATE_COPY, GENERATE_CU, "ignis_generate_copy")                        \
    X(GENERATE_DRAW, GENERATE_DRAW_CU, "ignis_generate_draw")                   \
    X(GENERATE_DRAW_BINS, GENERATE_DRAW_CU, "ignis_generate_draw_bins")         \
    X(GENERATE_DRAW_CUT, GENERATE_DRAW_CU, "ignis_generate_draw_cut")           \
    X(GEMV_1, GEMV_CU, "ignis_gemv_1")                                          \
    X(GEMV_2, GEMV_CU, "ignis_gemv_2")                                          \
    X(GEMV_4, GEMV_CU, "ignis_gemv_4")                                          \
    X(GEMV_8, GEMV_CU, "ignis_gemv_8")                                          \
    X(GEMV_GATED_1, GEMV_CU, "ignis_gemv_gated_1")                              \
    X(GEMV_GATED_2, GEMV_CU, "ignis_gemv_gated_2")                              \
    X(GEMV_GATED_4, GEMV_CU, "ignis_gemv_gated_4")                              \
    X(GEMV_GATED_8, GEMV_CU, "ignis_gemv_gated_8")                              \
    X(GEMV_MMA_NORM, GEMV_MMA_CU, "ignis_gemv_mma_norm")                        \
    X(GEMV_MMA_1, GEMV_MMA_CU, "ignis_gemv_mma_1")                              \
    X(GEMV_MMA_8, GEMV_MMA_CU, "ignis_gemv_mma_8")                              \
    X(GEMV_MMA_16, GEMV_MMA_CU, "ignis_gemv_mma_16")                            \
    X(GEMV_MMA_32, GEMV_MMA_CU, "ignis_gemv_mma_32")                            \
    X(GEMV_MMA_64, GEMV_MMA_CU, "ignis_gemv_mma_64")                            \
    X(GEMV_CLUSTER, GEMV_CLUSTER_CU, "ignis_gemv_cluster")                      \
    X(GEMV_CLUSTER_BLOCKS, GEMV_CLUSTER_BLOCKS_CU, "ignis_gemv_cluster_blocks") \
    X(GEMV_BLOCKS_ROWS, GEMV_BLOCKS_CU, "ignis_gemv_blocks_rows")               \
    X(GEMV_BLOCKS_1, GEMV_BLOCKS_CU, "ignis_gemv_blocks_1")                     \
    X(GEMV_BLOCKS_8, GEMV_BLOCKS_CU, "ignis_gemv_blocks_8")                     \
    X(GEMV_BLOCKS_16, GEMV_BLOCKS_CU, "ignis_gemv_blocks_16")                   \
    X(GEMV_BLOCKS_32, GEMV_BLOCKS_CU, "ignis_gemv_blocks_32")                   \
    X(GEMV_BLOCKS_64, GEMV_BLOCKS_CU, "ignis_gemv_blocks_64")                   \
    X(PAGED_1, ATTENTION_PAGED_CU, "ignis_attention_paged_1")                   \
    X(PAGED_2, ATTENTION_PAGED_CU, "ignis_attention_paged_2")                   \
    X(PAGED_MMA, ATTENTION_PAGED_MMA_CU, "ignis_attention_paged_mma")           \
    X(PAGED_MANY, ATTENTION_PAGED_MANY_CU, "ignis_attention_paged_many")        \
    X(GENERATE_STEP, GENERATE_STEP_CU, "ignis_generate_step")
#else
#define IGNIS__BUILTINS_MODELS(X)
#endif

/*  X(enumerator, source, entry). Each source is one program a dtype, compiled with -DIGNIS_T=<dtype> when one of its kernels is first used. */
#define IGNIS__BUILTINS(X)                                                                       \
    X(FILL, ELEMENTWISE_CU, "ignis_fill")                                                        \
    X(ADD, ELEMENTWISE_CU, "ignis_add")                                                          \
    X(ADD_EACH, ELEMENTWISE_CU, "ignis_add_each")                                                \
    X(MUL, ELEMENTWISE_CU, "ignis_mul")                                                          \
    X(SCALE, ELEMENTWISE_CU, "ignis_scale")                                                      \
    X(CAST_F16, ELEMENTWISE_CU, "ignis_cast_f16")                                                \
    X(CAST_BF16, ELEMENTWISE_CU, "ignis_cast_bf16")                                              \
    X(CAST_F32, ELEMENTWISE_CU, "ignis_cast_f32")                                                \
    X(CAST_F64, ELEMENTWISE_CU, "ignis_cast_f64")                                                \
    X(CAST_I32, ELEMENTWISE_CU, "ignis_cast_i32")                                                \
    X(CAST_I64, ELEMENTWISE_CU, "ignis_cast_i64")                                                \
    X(CAST_U8, ELEMENTWISE_CU, "ignis_cast_u8")                                                  \
    X(CAST_F8_E4M3, ELEMENTWISE_CU, "ignis_cast_f8_e4m3")                                        \
    X(CAST_F8_E5M2, ELEMENTWISE_CU, "ignis_cast_f8_e5m2")                                        \
    X(SDPA, ATTENTION_CU, "ignis_sdpa")                                                          \
    X(SDPA_BACKWARD_DELTA, ATTENTION_CU, "ignis_sdpa_backward_delta")                            \
    X(SDPA_BACKWARD_KV, ATTENTION_CU, "ignis_sdpa_backward_kv")                                  \
    X(SDPA_BACKWARD_Q, ATTENTION_CU, "ignis_sdpa_backward_q")                                    \
    X(SDPA_BACKWARD_BIAS, ATTENTION_CU, "ignis_sdpa_backward_bias")                              \
    X(SDPA_MMA, ATTENTION_MMA_CU, "ignis_sdpa")                                                  \
    X(SDPA_MMA_BACKWARD_DELTA, ATTENTION_MMA_CU, "ignis_sdpa_backward_delta")                    \
    X(SDPA_MMA_BACKWARD_KV, ATTENTION_MMA_CU, "ignis_sdpa_backward_kv")                          \
    X(SDPA_MMA_BACKWARD_Q, ATTENTION_MMA_CU, "ignis_sdpa_backward_q")                            \
    X(SDPA_MMA_BACKWARD_BIAS, ATTENTION_MMA_CU, "ignis_sdpa_backward_bias")                      \
    X(SDPA_HOPPER, ATTENTION_HOPPER_CU, "ignis_sdpa")                                            \
    X(SDPA_HOPPER_COMBINE, ATTENTION_HOPPER_CU, "ignis_sdpa_combine")                            \
    X(SDPA_HOPPER_BACKWARD_ROWS, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_rows")       \
    X(SDPA_HOPPER_BACKWARD, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward")                 \
    X(SDPA_HOPPER_BACKWARD_FINISH, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_finish")   \
    X(SDPA_HOPPER_BACKWARD_ROTATED, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_rotated") \
    X(SDPA_DECODE_1, ATTENTION_DECODE_CU, "ignis_sdpa_decode_1")                                 \
    X(SDPA_DECODE_2, ATTENTION_DECODE_CU, "ignis_sdpa_decode_2")                                 \
    X(SDPA_DECODE_4, ATTENTION_DECODE_CU, "ignis_sdpa_decode_4")                                 \
    X(SDPA_DECODE_COMBINE, ATTENTION_DECODE_CU, "ignis_sdpa_decode_combine")                     \
    X(SDPA_MMA_DECODE, ATTENTION_DECODE_MMA_CU, "ignis_sdpa_decode")                             \
    X(SDPA_MMA_DECODE_COMBINE, ATTENTION_DECODE_MMA_CU, "ignis_sdpa_decode_combine")             \
    X(SUB, POINTWISE_CU, "ignis_sub")                                                            \
    X(ADD_BROADCAST, POINTWISE_CU, "ignis_add_broadcast")                                        \
    X(SUB_BROADCAST, POINTWISE_CU, "ignis_sub_broadcast")                                        \
    X(MUL_BROADCAST, POINTWISE_CU, "ignis_mul_broadcast")                                        \
    X(BROADCAST_SCALED, POINTWISE_CU, "ignis_broadcast_scaled")                                  \
    X(DROPOUT, POINTWISE_CU, "ignis_dropout")                                                    \
    X(RELU, ACTIVATION_CU, "ignis_relu")                                                         \
    X(RELU_BACKWARD, ACTIVATION_CU, "ignis_relu_backward")                                       \
    X(GELU, ACTIVATION_CU, "ignis_gelu")                                                         \
    X(GELU_BACKWARD, ACTIVATION_CU, "ignis_gelu_backward")                                       \
    X(GELU_EXACT, ACTIVATION_CU, "ignis_gelu_exact")                                             \
    X(GELU_EXACT_BACKWARD, ACTIVATION_CU, "ignis_gelu_exact_backward")                           \
    X(SILU, ACTIVATION_CU, "ignis_silu")                                                         \
    X(SILU_BACKWARD, ACTIVATION_CU, "ignis_silu_backward")                                       \
    X(SILU_MUL, ACTIVATION_CU, "ignis_silu_mul")                                                 \
    X(SILU_MUL_BACKWARD, ACTIVATION_CU, "ignis_silu_mul_backward")                               \
    X(GEMM, GEMM_CU, "ignis_gemm")                                                               \
    X(GEMM_SMALL, GEMM_CU, "ignis_gemm_small")                                                   \
    X(GEMM_TINY, GEMM_CU, "ignis_gemm_tiny")                                                     \
    X(GEMM_MMA, GEMM_MMA_CU, "ignis_gemm_mma")                                                   \
    X(GEMM_MMA_SMALL, GEMM_MMA_CU, "ignis_gemm_mma_small")                                       \
    X(GEMM_HOPPER, GEMM_HOPPER_CU, "ignis_gemm_hopper")                                          \
    X(DEPTHWISE, DEPTHWISE_CU, "ignis_depthwise")                                                \
    X(DEPTHWISE_UNPACKED, DEPTHWISE_CU, "ignis_depthwise_unpacked")                              \
    X(DEPTHWISE_WEIGHTS, DEPTHWISE_CU, "ignis_depthwise_weights")                                \
    X(DEPTHWISE_WEIGHTS_UNPACKED, DEPTHWISE_CU, "ignis_depthwise_weights_unpacked")              \
    X(GROUPED, GROUPED_MMA_CU, "ignis_grouped")                                                  \
    X(GROUPED_WEIGHTS, GROUPED_MMA_CU, "ignis_grouped_weights")                                  \
    X(GEMM_FINISH, GEMM_CU, "ignis_gemm_finish")                                                 \
    X(GEMM_PACK, GEMM_CU, "ignis_gemm_pack")                                                     \
    X(GEMM_SUMS, GEMM_CU, "ignis_gemm_sums")                                                     \
    X(GEMM_APPLY, GEMM_CU, "ignis_gemm_apply")                                                   \
    X(SUM_ROWS, REDUCE_CU, "ignis_sum_rows")                                                     \
    X(DOT_ROWS, REDUCE_CU, "ignis_dot_rows")                                                     \
    X(SUM_COLUMNS, REDUCE_CU, "ignis_sum_columns")                                               \
    X(DOT_COLUMNS, REDUCE_CU, "ignis_dot_columns")                                               \
    X(SUM_FINISH, REDUCE_CU, "ignis_sum_finish")                                                 \
    X(TRANSPOSE_RUNS, SHAPE_CU, "ignis_transpose_runs")                                          \
    X(TRANSPOSE_TILES, SHAPE_CU, "ignis_transpose_tiles")                                        \
    X(COPY_ROWS, SHAPE_CU, "ignis_copy_rows")                                                    \
    X(STRIDED_COPY, SHAPE_CU, "ignis_strided_copy")                                              \
    X(STRIDED_TILES, SHAPE_CU, "ignis_strided_tiles")                                            \
    X(SCAN_ROWS, SCAN_CU, "ignis_scan_rows")                                                     \
    X(SCAN_TILES, SCAN_CU, "ignis_scan_tiles")                                                   \
    X(SCAN_COLUMNS, SCAN_CU, "ignis_scan_columns")                                               \
    X(LINE, PATTERN_CU, "ignis_line")                                                            \
    X(BAND, PATTERN_CU, "ignis_band")                                                            \
    X(ONE_HOT, PATTERN_CU, "ignis_one_hot")                                                      \
    X(GATHER, GATHER_CU, "ignis_gather")                                                         \
    X(SCATTER, GATHER_CU, "ignis_scatter")                                                       \
    X(SCATTER_ADD_ROWS, GATHER_CU, "ignis_scatter_add_rows")                                     \
    X(SCATTER_KEYS, GATHER_CU, "ignis_scatter_keys")                                             \
    X(SEGMENT_SUMS, GATHER_CU, "ignis_segment_sums")                                             \
    X(SEGMENT_FINISH, GATHER_CU, "ignis_segment_finish")                                         \
    X(SORT_SMALL, SORT_CU, "ignis_sort_small")                                                   \
    X(SORT_ROW, SORT_CU, "ignis_sort_row")                                                       \
    X(SORT_SELECT, SORT_CU, "ignis_sort_select")                                                 \
    X(SORT_SELECT_FEW, SORT_CU, "ignis_sort_select_few")                                         \
    X(SORT_COUNT, SORT_CU, "ignis_sort_count")                                                   \
    X(SORT_PASS, SORT_CU, "ignis_sort_pass")                                                     \
    X(RANDOM_ADVANCE, RANDOM_CU, "ignis_random_advance")                                         \
    X(RAND, RANDOM_CU, "ignis_rand")                                                             \
    X(RANDN, RANDOM_CU, "ignis_randn")                                                           \
    X(OPTIM_TABLE, OPTIM_CU, "ignis_optim_table")                                                \
    X(OPTIM_ADVANCE, OPTIM_CU, "ignis_optim_advance")                                            \
    X(ADAMW, OPTIM_CU, "ignis_adamw")                                                            \
    X(ADAM, OPTIM_CU, "ignis_adam")                                                              \
    X(SGD, OPTIM_CU, "ignis_sgd")                                                                \
    X(RMSPROP, OPTIM_CU, "ignis_rmsprop")                                                        \
    X(LION, OPTIM_CU, "ignis_lion")                                                              \
    X(MUON, OPTIM_CU, "ignis_muon")                                                              \
    X(MUON_APPLY, OPTIM_CU, "ignis_muon_apply")                                                  \
    X(GRAD_SQUARES, OPTIM_CU, "ignis_grad_squares")                                              \
    X(GRAD_CLIP, OPTIM_CU, "ignis_grad_clip")                                                    \
    X(GRAD_ZERO, OPTIM_CU, "ignis_grad_zero")                                                    \
    X(LAYER_NORM_WARP, NORM_CU, "ignis_layer_norm_warp")                                         \
    X(LAYER_NORM_ROW, NORM_CU, "ignis_layer_norm_row")                                           \
    X(LAYER_NORM_LONG, NORM_CU, "ignis_layer_norm_long")                                         \
    X(LAYER_NORM_BLOCK, NORM_CU, "ignis_layer_norm_block")                                       \
    X(LAYER_NORM_BACKWARD_AVERAGES, NORM_CU, "ignis_layer_norm_backward_averages")               \
    X(LAYER_NORM_BACKWARD_COLUMNS, NORM_CU, "ignis_layer_norm_backward_columns")                 \
    X(RMS_NORM_WARP, NORM_CU, "ignis_rms_norm_warp")                                             \
    X(RMS_NORM_ROW, NORM_CU, "ignis_rms_norm_row")                                               \
    X(RMS_NORM_LONG, NORM_CU, "ignis_rms_norm_long")                                             \
    X(RMS_NORM_BLOCK, NORM_CU, "ignis_rms_norm_block")                                           \
    X(RMS_NORM_BACKWARD_AVERAGES, NORM_CU, "ignis_rms_norm_backward_averages")                   \
    X(RMS_NORM_BACKWARD_COLUMNS, NORM_CU, "ignis_rms_norm_backward_columns")                     \
    X(NORM_BACKWARD_SUM, NORM_CU, "ignis_norm_backward_sum")                                     \
    X(ADD_LAYER_NORM_WARP, NORM_ADD_CU, "ignis_add_layer_norm_warp")                             \
    X(ADD_LAYER_NORM_ROW, NORM_ADD_CU, "ignis_add_layer_norm_row")                               \
    X(ADD_LAYER_NORM_LONG, NORM_ADD_CU, "ignis_add_layer_norm_long")                             \
    X(ADD_LAYER_NORM_BLOCK, NORM_ADD_CU, "ignis_add_layer_norm_block")                           \
    X(ADD_RMS_NORM_WARP, NORM_ADD_CU, "ignis_add_rms_norm_warp")                                 \
    X(ADD_RMS_NORM_ROW, NORM_ADD_CU, "ignis_add_rms_norm_row")                                   \
    X(ADD_RMS_NORM_LONG, NORM_ADD_CU, "ignis_add_rms_norm_long")                                 \
    X(ADD_RMS_NORM_BLOCK, NORM_ADD_CU, "ignis_add_rms_norm_block")                               \
    X(LAYER_NORM_ROWS_FEW, NORM_UNALIGNED_CU, "ignis_layer_norm_rows_few")                       \
    X(LAYER_NORM_ROWS_WARP, NORM_UNALIGNED_CU, "ignis_layer_norm_rows_warp")                     \
    X(LAYER_NORM_ROWS_BLOCK, NORM_UNALIGNED_CU, "ignis_layer_norm_rows_block")                   \
    X(LAYER_NORM_ROWS_EVEN, NORM_UNALIGNED_CU, "ignis_layer_norm_rows_even")                     \
    X(LAYER_NORM_ROWS_BACKWARD_FEW, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_few")          \
    X(LAYER_NORM_ROWS_BACKWARD_WARP, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_warp")        \
    X(LAYER_NORM_ROWS_BACKWARD_BLOCK, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_block")      \
    X(LAYER_NORM_ROWS_BACKWARD_EVEN, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_even")        \
    X(RMS_NORM_ROWS_FEW, NORM_UNALIGNED_CU, "ignis_rms_norm_rows_few")                           \
    X(RMS_NORM_ROWS_WARP, NORM_UNALIGNED_CU, "ignis_rms_norm_rows_warp")                         \
    X(RMS_NORM_ROWS_BLOCK, NORM_UNALIGNED_CU, "ignis_rms_norm_rows_block")                       \
    X(RMS_NORM_ROWS_EVEN, NORM_UNALIGNED_CU, "ignis_rms_norm_rows_even")                         \
    X(RMS_NORM_ROWS_BACKWARD_FEW, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_few")              \
    X(RMS_NORM_ROWS_BACKWARD_WARP, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_warp")            \
    X(RMS_NORM_ROWS_BACKWARD_BLOCK, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_block")          \
    X(RMS_NORM_ROWS_BACKWARD_EVEN, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_even")            \
    X(CHANNEL_STATISTICS, CHANNEL_NORM_CU, "ignis_channel_statistics")                           \
    X(CHANNEL_FINISH, CHANNEL_NORM_CU, "ignis_channel_finish")                                   \
    X(CHANNEL_APPLY, CHANNEL_NORM_CU, "ignis_channel_apply")                                     \
    X(CHANNEL_SUMS, CHANNEL_NORM_CU, "ignis_channel_sums")                                       \
    X(CHANNEL_WEIGHTS, CHANNEL_NORM_CU, "ignis_channel_weights")                                 \
    X(CHANNEL_AVERAGES, CHANNEL_NORM_CU, "ignis_channel_averages")                               \
    X(CHANNEL_BACKWARD, CHANNEL_NORM_CU, "ignis_channel_backward")                               \
    X(MAX_POOL, POOL_CU, "ignis_max_pool")                                                       \
    X(MAX_POOL_BACKWARD, POOL_CU, "ignis_max_pool_backward")                                     \
    X(AVG_POOL, POOL_CU, "ignis_avg_pool")                                                       \
    X(AVG_POOL_BACKWARD, POOL_CU, "ignis_avg_pool_backward")                                     \
    X(UPSAMPLE, UPSAMPLE_CU, "ignis_upsample")                                                   \
    X(UPSAMPLE_BACKWARD, UPSAMPLE_CU, "ignis_upsample_backward")                                 \
    X(SOFTMAX_WARP, SOFTMAX_CU, "ignis_softmax_warp")                                            \
    X(SOFTMAX_BLOCK, SOFTMAX_CU, "ignis_softmax_block")                                          \
    X(SOFTMAX_LONG, SOFTMAX_CU, "ignis_softmax_long")                                            \
    X(SOFTMAX_BACKWARD_WARP, SOFTMAX_CU, "ignis_softmax_backward_warp")                          \
    X(SOFTMAX_BACKWARD_BLOCK, SOFTMAX_CU, "ignis_softmax_backward_block")                        \
    X(LOG_SOFTMAX_WARP, LOG_SOFTMAX_CU, "ignis_log_softmax_warp")                                \
    X(LOG_SOFTMAX_BLOCK, LOG_SOFTMAX_CU, "ignis_log_softmax_block")                              \
    X(LOG_SOFTMAX_LONG, LOG_SOFTMAX_CU, "ignis_log_softmax_long")                                \
    X(LOG_SOFTMAX_BACKWARD_WARP, LOG_SOFTMAX_CU, "ignis_log_softmax_backward_warp")              \
    X(LOG_SOFTMAX_BACKWARD_BLOCK, LOG_SOFTMAX_CU, "ignis_log_softmax_backward_block")            \
    X(CROSS_ENTROPY_COUNT, SOFTMAX_CU, "ignis_cross_entropy_count")                              \
    X(CROSS_ENTROPY_WARP, SOFTMAX_CU, "ignis_cross_entropy_warp")                                \
    X(CROSS_ENTROPY_FEW, SOFTMAX_CU, "ignis_cross_entropy_few")                                  \
    X(CROSS_ENTROPY_ROUND, SOFTMAX_CU, "ignis_cross_entropy_round")                              \
    X(CROSS_ENTROPY_EXACT, SOFTMAX_CU, "ignis_cross_entropy_exact")                              \
    X(CROSS_ENTROPY_BLOCK, SOFTMAX_CU, "ignis_cross_entropy_block")                              \
    X(CROSS_ENTROPY_LOSS_WARP, SOFTMAX_CU, "ignis_cross_entropy_loss_warp")                      \
    X(CROSS_ENTROPY_LOSS_BLOCK, SOFTMAX_CU, "ignis_cross_entropy_loss_block")                    \
    X(CROSS_ENTROPY_RESCALE, SOFTMAX_CU, "ignis_cross_entropy_rescale")                          \
    X(CROSS_ENTROPY_ADD_UP, SOFTMAX_CU, "ignis_cross_entropy_add_up")                            \
    X(QUANTIZE_LARGEST, QUANTIZE_CU, "ignis_quantize_largest")                                   \
    X(QUANTIZE_F8_E4M3_WARP, QUANTIZE_CU, "ignis_quantize_f8_e4m3_warp")                         \
    X(QUANTIZE_F8_E4M3_BLOCK, QUANTIZE_CU, "ignis_quantize_f8_e4m3_block")                       \
    X(QUANTIZE_F8_E4M3, QUANTIZE_CU, "ignis_quantize_f8_e4m3")                                   \
    X(QUANTIZE_F8_E5M2_WARP, QUANTIZE_CU, "ignis_quantize_f8_e5m2_warp")                         \
    X(QUANTIZE_F8_E5M2_BLOCK, QUANTIZE_CU, "ignis_quantize_f8_e5m2_block")                       \
    X(QUANTIZE_F8_E5M2, QUANTIZE_CU, "ignis_quantize_f8_e5m2")                                   \
    X(CROSS_ENTROPY_BACKWARD, SOFTMAX_CU, "ignis_cross_entropy_backward")                        \
    X(ROPE, ROPE_CU, "ignis_rope")                                                               \
    X(EMBEDDING, EMBEDDING_CU, "ignis_embedding")                                                \
    X(EMBEDDING_KEYS, EMBEDDING_CU, "ignis_embedding_keys")                                      \
    X(EMBEDDING_BOUNDS, EMBEDDING_CU, "ignis_embedding_bounds")                                  \
    X(EMBEDDING_CHUNKS, EMBEDDING_CU, "ignis_embedding_chunks")                                  \
    X(EMBEDDING_ROWS, EMBEDDING_CU, "ignis_embedding_rows")                                      \
    IGNIS__BUILTINS_MODELS(X)

typedef enum ignis__builtin {
#define IGNIS__BUILTIN_ENUM(name, source, entry) IGNIS__BUILTIN_##name,
    IGNIS__BUILTINS(IGNIS__BUILTIN_ENUM)
#undef IGNIS__BUILTIN_ENUM
        IGNIS__BUILTIN_COUNT
} ignis__builtin;

static const struct {
    int source;
    const char *entry;
} ignis__builtins[] = {
#define IGNIS__BUILTIN_ROW(name, source, entry) {IGNIS__SOURCE_##source, entry},
    IGNIS__BUILTINS(IGNIS__BUILTIN_ROW)
#undef IGNIS__BUILTIN_ROW
};

/*  Kernels from a first to a last one of which sizes, addresses or the device choose, or that are always launched together: records and bundles have
    all of them or none. Others are there alone. The first one's name is that of the part. */
static const struct {
    ignis__builtin first, last;
} ignis__parts[] = {
#define IGNIS__PART(first, last)                      \
    {                                                 \
        IGNIS__BUILTIN_##first, IGNIS__BUILTIN_##last \
    }
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
#ifdef IGNIS_MODELS
    IGNIS__PART(BLOCKS_ROWS, BLOCKS_EMBED),
    IGNIS__PART(GENERATE_WORDS, GENERATE_DRAW),
    IGNIS__PART(GEMV_1, GEMV_8),
    IGNIS__PART(GEMV_GATED_1, GEMV_GATED_8),
    IGNIS__PART(GEMV_BLOCKS_ROWS, GEMV_BLOCKS_64),
    IGNIS__PART(GEMV_MMA_NORM, GEMV_MMA_8),
    IGNIS__PART(GEMV_MMA_16, GEMV_MMA_64),
    IGNIS__PART(PAGED_1, PAGED_2),
#endif
#undef IGNIS__PART
};
