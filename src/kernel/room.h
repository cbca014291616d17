/*  kernel - NVRTC, the cache of compiled kernels, bundles, launches, built-in kernels, elementwise operations, graphs.
    Knows no tensor. */
#pragma once

#include "../base/room.h"
#include "../device/room.h"
#include "../array/room.h"

#include "ignis_kernels.h"
enum { IGNIS__NVRTC_OUT_OF_MEMORY = 1, IGNIS__NVRTC_INVALID_OPTION = 5, IGNIS__NVRTC_COMPILATION = 6 };

/*  A program to compile: text, options, headers, and the names to look up in the result. */
typedef struct ignis__program {
    const char *source;
    const char *name;  /* for compile errors */
    const char *entry; /* a name expression; null: entries are extern "C" and looked up as they are */
    const char *const *options;
    int option_count;
    const ignis_kernel_header *headers; /* besides those of Ignis */
    int header_count;
    const void *image; /* compiled code of the caller instead of text */
    size_t image_size;
    const ignis__source *own;    /* a source of Ignis, of which this is a program; else null */
    const ignis__source *common; /* for other programs: the source of Ignis to include; null: ignis.cuh */
    const char
        *part; /* of a source of Ignis in records and bundles: the first of the kernels that are meant; null: all */
    const char *formula,
        *line; /* of a formula's kernel: its text, which messages have, and its line of a record; else null */
} ignis__program;

/*  A compiled program for one architecture, with the lowered names of its entries, in one block of memory. */
typedef struct ignis__kernel_binary {
    uint64_t key[2];
    char *memory;
    char *lowered;
    void *data;
    size_t size;
    uint64_t holds;                    /* of the memory cache, and of loaders */
    struct ignis__kernel_binary *next; /* in the memory cache */
} ignis__kernel_binary;

/*  A module. Every kernel has its own, loaded from an image, so its __device__ variables are its own, too. */
typedef struct ignis__module {
    void *module; /* CUmodule */
    char *lowered;
    bool from_cache;
} ignis__module;

#define IGNIS__MAX_OPTIONS 64
#define IGNIS__IMAGE_BYTES ((size_t)64 << 20) /* that the memory cache may hold */
struct ignis__kernels_state_type {
    ignis__mutex lock;
    ignis__kernel_binary *images; /* the memory cache, last used first */
    ignis__mutex compiling[16];   /* by key: a thread that needs a program being compiled waits for it */
    char cache_dir[900];          /* "": no disk cache */
    int64_t cache_limit;
    bool cache_broken;     /* a warning was logged */
    bool last_read;        /* the next one was looked for */
    uint64_t last_release; /* of the NVRTC that has last written to the disk cache */
};

/*  How a kernel is launched. Threads of a WAITS kernel first call ignis_grid_dependency_wait, so it may be launched
    while earlier work still runs. Blocks of a TOGETHER kernel wait for each other, too. */
enum { IGNIS__KERNEL_PLAIN = 0, IGNIS__KERNEL_WAITS = 1, IGNIS__KERNEL_TOGETHER = 3 };

/*  A kernel. Operations name the kernels that they launch by IGNIS__BUILTIN(RELU), which is the address of its row.
    So a linker that drops what nothing names keeps the texts of those alone. */
typedef struct ignis__builtin_row {
    const ignis__source *source;
    const char *entry;
    int how;    /* IGNIS__KERNEL_... */
    int number; /* IGNIS__NUMBER_... A header above ignis.h has numbers of its own, from IGNIS__BUILTIN_COUNT on */
} ignis__builtin_row;

typedef const ignis__builtin_row *ignis__builtin;
#define IGNIS__BUILTIN(name) (&ignis__builtin_##name)

/*  A group of kernels, from the first to the last, among which size, alignment or device decides, or that are always
    launched together. Records and bundles have a group whole or not at all. Each other kernel is a part of its own. A
    part is named after its first kernel. */
typedef struct ignis__kernel_part {
    int first, last; /* numbers */
    const char *name;
} ignis__kernel_part;

/*  The kernels of a header by number, and their loaded code. ignis.h has such a table, and a header above it may add
    one. */
typedef struct ignis__kernel_table {
    const ignis__kernel_part *parts;
    uint64_t hash; /* of all sources */
    int source_count, first, builtin_count, part_count;
    uint64_t code[IGNIS_MAX_DEVICES]; /* the address of the ignis__builtin_code of each device, once it is used */
} ignis__kernel_table;

/*  The kernels of a header by name, for warm-up and records. It names all sources, so a program that
    uses it carries their texts. */
typedef struct ignis__kernel_list {
    const ignis__source *const *sources;
    const ignis__builtin *builtins;
    int source_count, builtin_count;
    int (*dtypes)(
        const char *name); /* of a source with kernels: for how many dtypes it is one program without further choices */
} ignis__kernel_list;

/*  Makes numbers, rows, declarations of the rows, and a list from a list of kernels. */
#define IGNIS__BUILTIN_NUMBER(name, source, entry, how) IGNIS__NUMBER_##name,
#define IGNIS__BUILTIN_ROW(name, source, entry, how)                                                 \
    IGNIS__PRIVATE const ignis__builtin_row ignis__builtin_##name = {&ignis__source_##source, entry, \
                                                                     IGNIS__KERNEL_##how, IGNIS__NUMBER_##name};
#define IGNIS__BUILTIN_DECLARED(name, source, entry, how) extern const ignis__builtin_row ignis__builtin_##name;
#define IGNIS__BUILTIN_LISTED(name, source, entry, how) IGNIS__BUILTIN(name),

#define IGNIS__PART(first, last, name)                    \
    {                                                     \
        IGNIS__NUMBER_##first, IGNIS__NUMBER_##last, name \
    }

/*  X(name, source, entry, how). Each source is one program per dtype, compiled with -DIGNIS_T=<dtype> at the
    first use of one of its kernels. */
#define IGNIS__BUILTINS(X)                                                                                   \
    X(FILL, elementwise_cu, "ignis_fill", WAITS)                                                             \
    X(ADD, elementwise_cu, "ignis_add", WAITS)                                                               \
    X(ADD_EACH, elementwise_cu, "ignis_add_each", WAITS)                                                     \
    X(MUL, elementwise_cu, "ignis_mul", WAITS)                                                               \
    X(SCALE, elementwise_cu, "ignis_scale", WAITS)                                                           \
    X(CAST_F16, elementwise_cu, "ignis_cast_f16", WAITS)                                                     \
    X(CAST_BF16, elementwise_cu, "ignis_cast_bf16", WAITS)                                                   \
    X(CAST_F32, elementwise_cu, "ignis_cast_f32", WAITS)                                                     \
    X(CAST_F64, elementwise_cu, "ignis_cast_f64", WAITS)                                                     \
    X(CAST_I32, elementwise_cu, "ignis_cast_i32", WAITS)                                                     \
    X(CAST_I64, elementwise_cu, "ignis_cast_i64", WAITS)                                                     \
    X(CAST_U8, elementwise_cu, "ignis_cast_u8", WAITS)                                                       \
    X(CAST_F8_E4M3, elementwise_cu, "ignis_cast_f8_e4m3", WAITS)                                             \
    X(CAST_F8_E5M2, elementwise_cu, "ignis_cast_f8_e5m2", WAITS)                                             \
    X(DOCUMENT_BOUNDS, attention_bounds_cu, "ignis_document_bounds", WAITS)                                  \
    X(DOCUMENT_BOUNDS_OF_OFFSETS, attention_bounds_cu, "ignis_document_bounds_of_offsets", WAITS)            \
    X(SDPA, attention_cu, "ignis_sdpa", PLAIN)                                                               \
    X(SDPA_BACKWARD_DELTA, attention_cu, "ignis_sdpa_backward_delta", PLAIN)                                 \
    X(SDPA_BACKWARD_KV, attention_cu, "ignis_sdpa_backward_kv", PLAIN)                                       \
    X(SDPA_BACKWARD_Q, attention_cu, "ignis_sdpa_backward_q", PLAIN)                                         \
    X(SDPA_BACKWARD_BIAS, attention_cu, "ignis_sdpa_backward_bias", PLAIN)                                   \
    X(SDPA_BACKWARD_SINKS, attention_sinks_cu, "ignis_sdpa_backward_sinks", WAITS)                           \
    X(SDPA_MMA, attention_mma_cu, "ignis_sdpa", PLAIN)                                                       \
    X(SDPA_MMA_BACKWARD_DELTA, attention_mma_cu, "ignis_sdpa_backward_delta", PLAIN)                         \
    X(SDPA_MMA_BACKWARD_KV, attention_mma_cu, "ignis_sdpa_backward_kv", PLAIN)                               \
    X(SDPA_MMA_BACKWARD_Q, attention_mma_cu, "ignis_sdpa_backward_q", PLAIN)                                 \
    X(SDPA_MMA_BACKWARD_BIAS, attention_mma_cu, "ignis_sdpa_backward_bias", PLAIN)                           \
    X(SDPA_HOPPER, attention_hopper_cu, "ignis_sdpa", WAITS)                                                 \
    X(SDPA_HOPPER_COMBINE, attention_hopper_cu, "ignis_sdpa_combine", WAITS)                                 \
    X(SDPA_HOPPER_BACKWARD_ROWS, attention_hopper_backward_cu, "ignis_sdpa_backward_rows", WAITS)            \
    X(SDPA_HOPPER_BACKWARD, attention_hopper_backward_cu, "ignis_sdpa_backward", WAITS)                      \
    X(SDPA_HOPPER_BACKWARD_FINISH, attention_hopper_backward_cu, "ignis_sdpa_backward_finish", WAITS)        \
    X(SDPA_HOPPER_BACKWARD_ROTATED, attention_hopper_backward_cu, "ignis_sdpa_backward_rotated", WAITS)      \
    X(SDPA_DECODE_1, attention_decode_cu, "ignis_sdpa_decode_1", PLAIN)                                      \
    X(SDPA_DECODE_2, attention_decode_cu, "ignis_sdpa_decode_2", PLAIN)                                      \
    X(SDPA_DECODE_4, attention_decode_cu, "ignis_sdpa_decode_4", PLAIN)                                      \
    X(SDPA_DECODE_COMBINE, attention_decode_cu, "ignis_sdpa_decode_combine", PLAIN)                          \
    X(SDPA_MMA_DECODE, attention_decode_mma_cu, "ignis_sdpa_decode", PLAIN)                                  \
    X(SDPA_MMA_DECODE_COMBINE, attention_decode_mma_cu, "ignis_sdpa_decode_combine", PLAIN)                  \
    X(SUB, pointwise_cu, "ignis_sub", WAITS)                                                                 \
    X(ADD_BROADCAST, pointwise_cu, "ignis_add_broadcast", WAITS)                                             \
    X(SUB_BROADCAST, pointwise_cu, "ignis_sub_broadcast", WAITS)                                             \
    X(MUL_BROADCAST, pointwise_cu, "ignis_mul_broadcast", WAITS)                                             \
    X(BROADCAST_SCALED, pointwise_cu, "ignis_broadcast_scaled", WAITS)                                       \
    X(DROPOUT, pointwise_cu, "ignis_dropout", WAITS)                                                         \
    X(COMPLEX_MUL, pointwise_cu, "ignis_complex_mul", WAITS)                                                 \
    X(RELU, activation_cu, "ignis_relu", WAITS)                                                              \
    X(RELU_BACKWARD, activation_cu, "ignis_relu_backward", WAITS)                                            \
    X(GELU, activation_cu, "ignis_gelu", WAITS)                                                              \
    X(GELU_BACKWARD, activation_cu, "ignis_gelu_backward", WAITS)                                            \
    X(GELU_EXACT, activation_cu, "ignis_gelu_exact", WAITS)                                                  \
    X(GELU_EXACT_BACKWARD, activation_cu, "ignis_gelu_exact_backward", WAITS)                                \
    X(SILU, activation_cu, "ignis_silu", WAITS)                                                              \
    X(SILU_BACKWARD, activation_cu, "ignis_silu_backward", WAITS)                                            \
    X(SILU_MUL, activation_cu, "ignis_silu_mul", WAITS)                                                      \
    X(SILU_MUL_BACKWARD, activation_cu, "ignis_silu_mul_backward", WAITS)                                    \
    X(GEMM, gemm_cu, "ignis_gemm", WAITS)                                                                    \
    X(GEMM_SMALL, gemm_cu, "ignis_gemm_small", WAITS)                                                        \
    X(GEMM_TINY, gemm_cu, "ignis_gemm_tiny", WAITS)                                                          \
    X(GEMM_MMA, gemm_mma_cu, "ignis_gemm_mma", WAITS)                                                        \
    X(GEMM_MMA_SMALL, gemm_mma_cu, "ignis_gemm_mma_small", WAITS)                                            \
    X(GEMM_HOPPER, gemm_hopper_cu, "ignis_gemm_hopper", WAITS)                                               \
    X(DEPTHWISE, depthwise_cu, "ignis_depthwise", PLAIN)                                                     \
    X(DEPTHWISE_UNPACKED, depthwise_cu, "ignis_depthwise_unpacked", PLAIN)                                   \
    X(DEPTHWISE_WEIGHTS, depthwise_cu, "ignis_depthwise_weights", PLAIN)                                     \
    X(DEPTHWISE_WEIGHTS_UNPACKED, depthwise_cu, "ignis_depthwise_weights_unpacked", PLAIN)                   \
    X(GROUPED, grouped_mma_cu, "ignis_grouped", PLAIN)                                                       \
    X(GROUPED_WEIGHTS, grouped_mma_cu, "ignis_grouped_weights", PLAIN)                                       \
    X(GEMM_GROUPED, gemm_grouped_cu, "ignis_gemm_grouped", WAITS)                                            \
    X(GEMM_GROUPED_SMALL, gemm_grouped_cu, "ignis_gemm_grouped_small", WAITS)                                \
    X(GEMM_GROUPED_MMA, gemm_grouped_mma_cu, "ignis_gemm_grouped_mma", WAITS)                                \
    X(GEMM_GROUPED_MMA_SMALL, gemm_grouped_mma_cu, "ignis_gemm_grouped_mma_small", WAITS)                    \
    X(GEMM_FINISH, gemm_cu, "ignis_gemm_finish", WAITS)                                                      \
    X(GEMM_PACK, gemm_cu, "ignis_gemm_pack", WAITS)                                                          \
    X(GEMM_SUMS, gemm_cu, "ignis_gemm_sums", WAITS)                                                          \
    X(GEMM_APPLY, gemm_cu, "ignis_gemm_apply", WAITS)                                                        \
    X(SUM_ROWS, reduce_cu, "ignis_sum_rows", WAITS)                                                          \
    X(DOT_ROWS, reduce_cu, "ignis_dot_rows", WAITS)                                                          \
    X(SUM_COLUMNS, reduce_cu, "ignis_sum_columns", WAITS)                                                    \
    X(DOT_COLUMNS, reduce_cu, "ignis_dot_columns", WAITS)                                                    \
    X(SUM_FINISH, reduce_cu, "ignis_sum_finish", WAITS)                                                      \
    X(TRANSPOSE_RUNS, shape_cu, "ignis_transpose_runs", PLAIN)                                               \
    X(TRANSPOSE_TILES, shape_cu, "ignis_transpose_tiles", PLAIN)                                             \
    X(COPY_ROWS, shape_cu, "ignis_copy_rows", PLAIN)                                                         \
    X(STRIDED_COPY, shape_cu, "ignis_strided_copy", PLAIN)                                                   \
    X(STRIDED_TILES, shape_cu, "ignis_strided_tiles", PLAIN)                                                 \
    X(SCAN_ROWS, scan_cu, "ignis_scan_rows", PLAIN)                                                          \
    X(SCAN_TILES, scan_cu, "ignis_scan_tiles", PLAIN)                                                        \
    X(SCAN_COLUMNS, scan_cu, "ignis_scan_columns", PLAIN)                                                    \
    X(LINE, pattern_cu, "ignis_line", PLAIN)                                                                 \
    X(BAND, pattern_cu, "ignis_band", PLAIN)                                                                 \
    X(ONE_HOT, pattern_cu, "ignis_one_hot", PLAIN)                                                           \
    X(GATHER, gather_cu, "ignis_gather", PLAIN)                                                              \
    X(SCATTER, gather_cu, "ignis_scatter", PLAIN)                                                            \
    X(SCATTER_ADD_ROWS, gather_cu, "ignis_scatter_add_rows", PLAIN)                                          \
    X(SCATTER_KEYS, gather_cu, "ignis_scatter_keys", PLAIN)                                                  \
    X(SEGMENT_SUMS, gather_cu, "ignis_segment_sums", PLAIN)                                                  \
    X(SEGMENT_FINISH, gather_cu, "ignis_segment_finish", PLAIN)                                              \
    X(SCATTER_CLAIM, gather_cu, "ignis_scatter_claim", PLAIN)                                                \
    X(SCATTER_LAST, gather_cu, "ignis_scatter_last", PLAIN)                                                  \
    X(INDEX_JOIN, gather_cu, "ignis_index_join", PLAIN)                                                      \
    X(SELECT_COUNT, select_cu, "ignis_select_count", PLAIN)                                                  \
    X(SELECT_WRITE, select_cu, "ignis_select_write", PLAIN)                                                  \
    X(SEARCH, select_cu, "ignis_search", PLAIN)                                                              \
    X(COUNT_BINS, select_cu, "ignis_count_bins", PLAIN)                                                      \
    X(UNIQUE_HEADS, select_cu, "ignis_unique_heads", PLAIN)                                                  \
    X(UNIQUE_WRITE, select_cu, "ignis_unique_write", PLAIN)                                                  \
    X(SORT_SMALL, sort_cu, "ignis_sort_small", WAITS)                                                        \
    X(SORT_ROW, sort_cu, "ignis_sort_row", WAITS)                                                            \
    X(SORT_SELECT, sort_cu, "ignis_sort_select", WAITS)                                                      \
    X(SORT_SELECT_FEW, sort_cu, "ignis_sort_select_few", WAITS)                                              \
    X(SORT_COUNT, sort_cu, "ignis_sort_count", WAITS)                                                        \
    X(SORT_PASS, sort_cu, "ignis_sort_pass", WAITS)                                                          \
    X(LINALG_COPY, linalg_cu, "ignis_linalg_copy", PLAIN)                                                    \
    X(LINALG_CHOLESKY, linalg_cu, "ignis_linalg_cholesky", PLAIN)                                            \
    X(LINALG_SOLVE_LOWER, linalg_cu, "ignis_linalg_solve_lower", PLAIN)                                      \
    X(LINALG_LU, linalg_cu, "ignis_linalg_lu", PLAIN)                                                        \
    X(LINALG_SOLVE, linalg_cu, "ignis_linalg_solve", PLAIN)                                                  \
    X(LINALG_SWAP_ROWS, linalg_cu, "ignis_linalg_swap_rows", PLAIN)                                          \
    X(LINALG_PERMUTATION, linalg_cu, "ignis_linalg_permutation", PLAIN)                                      \
    X(LINALG_DET, linalg_cu, "ignis_linalg_det", PLAIN)                                                      \
    X(LINALG_QR, linalg_qr_cu, "ignis_linalg_qr", PLAIN)                                                     \
    X(LINALG_QR_PANEL, linalg_qr_cu, "ignis_linalg_qr_panel", PLAIN)                                         \
    X(LINALG_RANK, linalg_qr_cu, "ignis_linalg_rank", PLAIN)                                                 \
    X(LINALG_JACOBI_BEGIN, linalg_jacobi_cu, "ignis_linalg_jacobi_begin", PLAIN)                             \
    X(LINALG_EIGH, linalg_jacobi_cu, "ignis_linalg_eigh", PLAIN)                                             \
    X(LINALG_EIGH_ANGLES, linalg_jacobi_cu, "ignis_linalg_eigh_angles", PLAIN)                               \
    X(LINALG_EIGH_ROTATE, linalg_jacobi_cu, "ignis_linalg_eigh_rotate", PLAIN)                               \
    X(LINALG_SVD, linalg_jacobi_cu, "ignis_linalg_svd", PLAIN)                                               \
    X(LINALG_SVD_ROTATE, linalg_jacobi_cu, "ignis_linalg_svd_rotate", PLAIN)                                 \
    X(LINALG_JACOBI_VALUES, linalg_jacobi_cu, "ignis_linalg_jacobi_values", PLAIN)                           \
    X(LINALG_JACOBI_ROWS, linalg_jacobi_cu, "ignis_linalg_jacobi_rows", PLAIN)                               \
    X(LINALG_SIGN_COLUMNS, linalg_jacobi_cu, "ignis_linalg_sign_columns", PLAIN)                             \
    X(RANDOM_ADVANCE, random_cu, "ignis_random_advance", PLAIN)                                              \
    X(RAND, random_cu, "ignis_rand", PLAIN)                                                                  \
    X(RANDN, random_cu, "ignis_randn", PLAIN)                                                                \
    X(RANDINT, distribution_cu, "ignis_randint", PLAIN)                                                      \
    X(EXPONENTIAL, distribution_cu, "ignis_exponential", PLAIN)                                              \
    X(POISSON, distribution_cu, "ignis_poisson", PLAIN)                                                      \
    X(GAMMA, distribution_cu, "ignis_gamma", PLAIN)                                                          \
    X(BETA, distribution_cu, "ignis_beta", PLAIN)                                                            \
    X(CATEGORICAL, distribution_cu, "ignis_categorical", PLAIN)                                              \
    X(OPTIM_TABLE, optim_cu, "ignis_optim_table", WAITS)                                                     \
    X(OPTIM_ADVANCE, optim_cu, "ignis_optim_advance", WAITS)                                                 \
    X(ADAMW, optim_cu, "ignis_adamw", WAITS)                                                                 \
    X(ADAM, optim_cu, "ignis_adam", WAITS)                                                                   \
    X(SGD, optim_cu, "ignis_sgd", WAITS)                                                                     \
    X(RMSPROP, optim_cu, "ignis_rmsprop", WAITS)                                                             \
    X(LION, optim_cu, "ignis_lion", WAITS)                                                                   \
    X(MUON, optim_cu, "ignis_muon", WAITS)                                                                   \
    X(MUON_APPLY, optim_cu, "ignis_muon_apply", WAITS)                                                       \
    X(GRAD_SQUARES, optim_cu, "ignis_grad_squares", WAITS)                                                   \
    X(GRAD_CLIP, optim_cu, "ignis_grad_clip", WAITS)                                                         \
    X(GRAD_ZERO, optim_cu, "ignis_grad_zero", WAITS)                                                         \
    X(GRAD_ACCUMULATE, optim_extra_cu, "ignis_grad_accumulate", WAITS)                                       \
    X(ADAMW_EXTRA, optim_extra_cu, "ignis_adamw", WAITS)                                                     \
    X(ADAM_EXTRA, optim_extra_cu, "ignis_adam", WAITS)                                                       \
    X(SGD_EXTRA, optim_extra_cu, "ignis_sgd", WAITS)                                                         \
    X(RMSPROP_EXTRA, optim_extra_cu, "ignis_rmsprop", WAITS)                                                 \
    X(LION_EXTRA, optim_extra_cu, "ignis_lion", WAITS)                                                       \
    X(MUON_EXTRA, optim_extra_cu, "ignis_muon", WAITS)                                                       \
    X(MUON_APPLY_EXTRA, optim_extra_cu, "ignis_muon_apply", WAITS)                                           \
    X(GRAD_SQUARES_EXTRA, optim_extra_cu, "ignis_grad_squares", WAITS)                                       \
    X(GRAD_ZERO_EXTRA, optim_extra_cu, "ignis_grad_zero", WAITS)                                             \
    X(LAYER_NORM_WARP, norm_cu, "ignis_layer_norm_warp", WAITS)                                              \
    X(LAYER_NORM_ROW, norm_cu, "ignis_layer_norm_row", WAITS)                                                \
    X(LAYER_NORM_LONG, norm_cu, "ignis_layer_norm_long", WAITS)                                              \
    X(LAYER_NORM_BLOCK, norm_cu, "ignis_layer_norm_block", WAITS)                                            \
    X(LAYER_NORM_BACKWARD_AVERAGES, norm_cu, "ignis_layer_norm_backward_averages", WAITS)                    \
    X(LAYER_NORM_BACKWARD_COLUMNS, norm_cu, "ignis_layer_norm_backward_columns", WAITS)                      \
    X(RMS_NORM_WARP, norm_cu, "ignis_rms_norm_warp", WAITS)                                                  \
    X(RMS_NORM_ROW, norm_cu, "ignis_rms_norm_row", WAITS)                                                    \
    X(RMS_NORM_LONG, norm_cu, "ignis_rms_norm_long", WAITS)                                                  \
    X(RMS_NORM_BLOCK, norm_cu, "ignis_rms_norm_block", WAITS)                                                \
    X(RMS_NORM_BACKWARD_AVERAGES, norm_cu, "ignis_rms_norm_backward_averages", WAITS)                        \
    X(RMS_NORM_BACKWARD_COLUMNS, norm_cu, "ignis_rms_norm_backward_columns", WAITS)                          \
    X(NORM_BACKWARD_SUM, norm_cu, "ignis_norm_backward_sum", WAITS)                                          \
    X(ADD_LAYER_NORM_WARP, norm_add_cu, "ignis_add_layer_norm_warp", WAITS)                                  \
    X(ADD_LAYER_NORM_ROW, norm_add_cu, "ignis_add_layer_norm_row", WAITS)                                    \
    X(ADD_LAYER_NORM_LONG, norm_add_cu, "ignis_add_layer_norm_long", WAITS)                                  \
    X(ADD_LAYER_NORM_BLOCK, norm_add_cu, "ignis_add_layer_norm_block", WAITS)                                \
    X(ADD_RMS_NORM_WARP, norm_add_cu, "ignis_add_rms_norm_warp", WAITS)                                      \
    X(ADD_RMS_NORM_ROW, norm_add_cu, "ignis_add_rms_norm_row", WAITS)                                        \
    X(ADD_RMS_NORM_LONG, norm_add_cu, "ignis_add_rms_norm_long", WAITS)                                      \
    X(ADD_RMS_NORM_BLOCK, norm_add_cu, "ignis_add_rms_norm_block", WAITS)                                    \
    X(LAYER_NORM_ROWS_FEW, norm_unaligned_cu, "ignis_layer_norm_rows_few", WAITS)                            \
    X(LAYER_NORM_ROWS_WARP, norm_unaligned_cu, "ignis_layer_norm_rows_warp", WAITS)                          \
    X(LAYER_NORM_ROWS_BLOCK, norm_unaligned_cu, "ignis_layer_norm_rows_block", WAITS)                        \
    X(LAYER_NORM_ROWS_EVEN, norm_unaligned_cu, "ignis_layer_norm_rows_even", WAITS)                          \
    X(LAYER_NORM_ROWS_BACKWARD_FEW, norm_grad_cu, "ignis_layer_norm_rows_backward_few", WAITS)               \
    X(LAYER_NORM_ROWS_BACKWARD_WARP, norm_grad_cu, "ignis_layer_norm_rows_backward_warp", WAITS)             \
    X(LAYER_NORM_ROWS_BACKWARD_BLOCK, norm_grad_cu, "ignis_layer_norm_rows_backward_block", WAITS)           \
    X(LAYER_NORM_ROWS_BACKWARD_EVEN, norm_grad_cu, "ignis_layer_norm_rows_backward_even", WAITS)             \
    X(RMS_NORM_ROWS_FEW, norm_unaligned_cu, "ignis_rms_norm_rows_few", WAITS)                                \
    X(RMS_NORM_ROWS_WARP, norm_unaligned_cu, "ignis_rms_norm_rows_warp", WAITS)                              \
    X(RMS_NORM_ROWS_BLOCK, norm_unaligned_cu, "ignis_rms_norm_rows_block", WAITS)                            \
    X(RMS_NORM_ROWS_EVEN, norm_unaligned_cu, "ignis_rms_norm_rows_even", WAITS)                              \
    X(RMS_NORM_ROWS_BACKWARD_FEW, norm_grad_cu, "ignis_rms_norm_rows_backward_few", WAITS)                   \
    X(RMS_NORM_ROWS_BACKWARD_WARP, norm_grad_cu, "ignis_rms_norm_rows_backward_warp", WAITS)                 \
    X(RMS_NORM_ROWS_BACKWARD_BLOCK, norm_grad_cu, "ignis_rms_norm_rows_backward_block", WAITS)               \
    X(RMS_NORM_ROWS_BACKWARD_EVEN, norm_grad_cu, "ignis_rms_norm_rows_backward_even", WAITS)                 \
    X(CHANNEL_STATISTICS, channel_norm_cu, "ignis_channel_statistics", PLAIN)                                \
    X(CHANNEL_FINISH, channel_norm_cu, "ignis_channel_finish", PLAIN)                                        \
    X(CHANNEL_APPLY, channel_norm_cu, "ignis_channel_apply", PLAIN)                                          \
    X(CHANNEL_SUMS, channel_norm_cu, "ignis_channel_sums", PLAIN)                                            \
    X(CHANNEL_WEIGHTS, channel_norm_cu, "ignis_channel_weights", PLAIN)                                      \
    X(CHANNEL_AVERAGES, channel_norm_cu, "ignis_channel_averages", PLAIN)                                    \
    X(CHANNEL_BACKWARD, channel_norm_cu, "ignis_channel_backward", PLAIN)                                    \
    X(LAYER_NORM_WIDE_WARP, norm_wide_cu, "ignis_layer_norm_warp", WAITS)                                    \
    X(LAYER_NORM_WIDE_ROW, norm_wide_cu, "ignis_layer_norm_row", WAITS)                                      \
    X(LAYER_NORM_WIDE_LONG, norm_wide_cu, "ignis_layer_norm_long", WAITS)                                    \
    X(LAYER_NORM_WIDE_BLOCK, norm_wide_cu, "ignis_layer_norm_block", WAITS)                                  \
    X(LAYER_NORM_WIDE_BACKWARD_AVERAGES, norm_wide_cu, "ignis_layer_norm_backward_averages", WAITS)          \
    X(LAYER_NORM_WIDE_BACKWARD_COLUMNS, norm_wide_cu, "ignis_layer_norm_backward_columns", WAITS)            \
    X(RMS_NORM_WIDE_WARP, norm_wide_cu, "ignis_rms_norm_warp", WAITS)                                        \
    X(RMS_NORM_WIDE_ROW, norm_wide_cu, "ignis_rms_norm_row", WAITS)                                          \
    X(RMS_NORM_WIDE_LONG, norm_wide_cu, "ignis_rms_norm_long", WAITS)                                        \
    X(RMS_NORM_WIDE_BLOCK, norm_wide_cu, "ignis_rms_norm_block", WAITS)                                      \
    X(RMS_NORM_WIDE_BACKWARD_AVERAGES, norm_wide_cu, "ignis_rms_norm_backward_averages", WAITS)              \
    X(RMS_NORM_WIDE_BACKWARD_COLUMNS, norm_wide_cu, "ignis_rms_norm_backward_columns", WAITS)                \
    X(ADD_LAYER_NORM_WIDE_WARP, norm_add_wide_cu, "ignis_add_layer_norm_warp", WAITS)                        \
    X(ADD_LAYER_NORM_WIDE_ROW, norm_add_wide_cu, "ignis_add_layer_norm_row", WAITS)                          \
    X(ADD_LAYER_NORM_WIDE_LONG, norm_add_wide_cu, "ignis_add_layer_norm_long", WAITS)                        \
    X(ADD_LAYER_NORM_WIDE_BLOCK, norm_add_wide_cu, "ignis_add_layer_norm_block", WAITS)                      \
    X(ADD_RMS_NORM_WIDE_WARP, norm_add_wide_cu, "ignis_add_rms_norm_warp", WAITS)                            \
    X(ADD_RMS_NORM_WIDE_ROW, norm_add_wide_cu, "ignis_add_rms_norm_row", WAITS)                              \
    X(ADD_RMS_NORM_WIDE_LONG, norm_add_wide_cu, "ignis_add_rms_norm_long", WAITS)                            \
    X(ADD_RMS_NORM_WIDE_BLOCK, norm_add_wide_cu, "ignis_add_rms_norm_block", WAITS)                          \
    X(LAYER_NORM_WIDE_ROWS_FEW, norm_unaligned_wide_cu, "ignis_layer_norm_rows_few", WAITS)                  \
    X(LAYER_NORM_WIDE_ROWS_WARP, norm_unaligned_wide_cu, "ignis_layer_norm_rows_warp", WAITS)                \
    X(LAYER_NORM_WIDE_ROWS_BLOCK, norm_unaligned_wide_cu, "ignis_layer_norm_rows_block", WAITS)              \
    X(LAYER_NORM_WIDE_ROWS_EVEN, norm_unaligned_wide_cu, "ignis_layer_norm_rows_even", WAITS)                \
    X(LAYER_NORM_WIDE_ROWS_BACKWARD_FEW, norm_grad_wide_cu, "ignis_layer_norm_rows_backward_few", WAITS)     \
    X(LAYER_NORM_WIDE_ROWS_BACKWARD_WARP, norm_grad_wide_cu, "ignis_layer_norm_rows_backward_warp", WAITS)   \
    X(LAYER_NORM_WIDE_ROWS_BACKWARD_BLOCK, norm_grad_wide_cu, "ignis_layer_norm_rows_backward_block", WAITS) \
    X(LAYER_NORM_WIDE_ROWS_BACKWARD_EVEN, norm_grad_wide_cu, "ignis_layer_norm_rows_backward_even", WAITS)   \
    X(RMS_NORM_WIDE_ROWS_FEW, norm_unaligned_wide_cu, "ignis_rms_norm_rows_few", WAITS)                      \
    X(RMS_NORM_WIDE_ROWS_WARP, norm_unaligned_wide_cu, "ignis_rms_norm_rows_warp", WAITS)                    \
    X(RMS_NORM_WIDE_ROWS_BLOCK, norm_unaligned_wide_cu, "ignis_rms_norm_rows_block", WAITS)                  \
    X(RMS_NORM_WIDE_ROWS_EVEN, norm_unaligned_wide_cu, "ignis_rms_norm_rows_even", WAITS)                    \
    X(RMS_NORM_WIDE_ROWS_BACKWARD_FEW, norm_grad_wide_cu, "ignis_rms_norm_rows_backward_few", WAITS)         \
    X(RMS_NORM_WIDE_ROWS_BACKWARD_WARP, norm_grad_wide_cu, "ignis_rms_norm_rows_backward_warp", WAITS)       \
    X(RMS_NORM_WIDE_ROWS_BACKWARD_BLOCK, norm_grad_wide_cu, "ignis_rms_norm_rows_backward_block", WAITS)     \
    X(RMS_NORM_WIDE_ROWS_BACKWARD_EVEN, norm_grad_wide_cu, "ignis_rms_norm_rows_backward_even", WAITS)       \
    X(CHANNEL_APPLY_WIDE, channel_norm_wide_cu, "ignis_channel_apply", PLAIN)                                \
    X(CHANNEL_AVERAGES_WIDE, channel_norm_wide_cu, "ignis_channel_averages", PLAIN)                          \
    X(CHANNEL_BACKWARD_WIDE, channel_norm_wide_cu, "ignis_channel_backward", PLAIN)                          \
    X(MAX_POOL, pool_cu, "ignis_max_pool", PLAIN)                                                            \
    X(MAX_POOL_BACKWARD, pool_cu, "ignis_max_pool_backward", PLAIN)                                          \
    X(AVG_POOL, pool_cu, "ignis_avg_pool", PLAIN)                                                            \
    X(AVG_POOL_BACKWARD, pool_cu, "ignis_avg_pool_backward", PLAIN)                                          \
    X(UPSAMPLE, upsample_cu, "ignis_upsample", PLAIN)                                                        \
    X(GRID_SAMPLE, grid_sample_cu, "ignis_grid_sample", PLAIN)                                               \
    X(GRID_SAMPLE_GRID, grid_sample_cu, "ignis_grid_sample_grid", PLAIN)                                     \
    X(SAMPLE_KEYS, grid_sample_cu, "ignis_sample_keys", PLAIN)                                               \
    X(UNFOLD, unfold_cu, "ignis_unfold", PLAIN)                                                              \
    X(FOLD, unfold_cu, "ignis_fold", PLAIN)                                                                  \
    X(PAD_BORDER, border_cu, "ignis_pad_border", PLAIN)                                                      \
    X(PAD_BORDER_BACKWARD, border_cu, "ignis_pad_border_backward", PLAIN)                                    \
    X(UPSAMPLE_BACKWARD, upsample_cu, "ignis_upsample_backward", PLAIN)                                      \
    X(SOFTMAX_WARP, softmax_cu, "ignis_softmax_warp", WAITS)                                                 \
    X(SOFTMAX_BLOCK, softmax_cu, "ignis_softmax_block", WAITS)                                               \
    X(SOFTMAX_LONG, softmax_cu, "ignis_softmax_long", WAITS)                                                 \
    X(SOFTMAX_BACKWARD_WARP, softmax_cu, "ignis_softmax_backward_warp", WAITS)                               \
    X(SOFTMAX_BACKWARD_BLOCK, softmax_cu, "ignis_softmax_backward_block", WAITS)                             \
    X(LOG_SOFTMAX_WARP, log_softmax_cu, "ignis_log_softmax_warp", WAITS)                                     \
    X(LOG_SOFTMAX_BLOCK, log_softmax_cu, "ignis_log_softmax_block", WAITS)                                   \
    X(LOG_SOFTMAX_LONG, log_softmax_cu, "ignis_log_softmax_long", WAITS)                                     \
    X(LOG_SOFTMAX_BACKWARD_WARP, log_softmax_cu, "ignis_log_softmax_backward_warp", WAITS)                   \
    X(LOG_SOFTMAX_BACKWARD_BLOCK, log_softmax_cu, "ignis_log_softmax_backward_block", WAITS)                 \
    X(CROSS_ENTROPY_COUNT, softmax_cu, "ignis_cross_entropy_count", WAITS)                                   \
    X(CROSS_ENTROPY_WARP, softmax_cu, "ignis_cross_entropy_warp", WAITS)                                     \
    X(CROSS_ENTROPY_FEW, softmax_cu, "ignis_cross_entropy_few", WAITS)                                       \
    X(CROSS_ENTROPY_ROUND, softmax_cu, "ignis_cross_entropy_round", WAITS)                                   \
    X(CROSS_ENTROPY_EXACT, softmax_cu, "ignis_cross_entropy_exact", WAITS)                                   \
    X(CROSS_ENTROPY_BLOCK, softmax_cu, "ignis_cross_entropy_block", WAITS)                                   \
    X(CROSS_ENTROPY_LOSS_WARP, softmax_cu, "ignis_cross_entropy_loss_warp", WAITS)                           \
    X(CROSS_ENTROPY_LOSS_BLOCK, softmax_cu, "ignis_cross_entropy_loss_block", WAITS)                         \
    X(CROSS_ENTROPY_RESCALE, softmax_cu, "ignis_cross_entropy_rescale", WAITS)                               \
    X(CROSS_ENTROPY_ADD_UP, softmax_cu, "ignis_cross_entropy_add_up", WAITS)                                 \
    X(QUANTIZE_LARGEST, quantize_cu, "ignis_quantize_largest", WAITS)                                        \
    X(QUANTIZE_F8_E4M3_WARP, quantize_cu, "ignis_quantize_f8_e4m3_warp", WAITS)                              \
    X(QUANTIZE_F8_E4M3_BLOCK, quantize_cu, "ignis_quantize_f8_e4m3_block", WAITS)                            \
    X(QUANTIZE_F8_E4M3, quantize_cu, "ignis_quantize_f8_e4m3", WAITS)                                        \
    X(QUANTIZE_F8_E5M2_WARP, quantize_cu, "ignis_quantize_f8_e5m2_warp", WAITS)                              \
    X(QUANTIZE_F8_E5M2_BLOCK, quantize_cu, "ignis_quantize_f8_e5m2_block", WAITS)                            \
    X(QUANTIZE_F8_E5M2, quantize_cu, "ignis_quantize_f8_e5m2", WAITS)                                        \
    X(CROSS_ENTROPY_BACKWARD, softmax_cu, "ignis_cross_entropy_backward", WAITS)                             \
    X(FFT, fft_cu, "ignis_fft", WAITS)                                                                       \
    X(FFT_CHIRP, fft_rows_cu, "ignis_fft_chirp", WAITS)                                                      \
    X(FFT_MERGE, fft_rows_cu, "ignis_fft_merge", WAITS)                                                      \
    X(ROPE, rope_cu, "ignis_rope", WAITS)                                                                    \
    X(EMBEDDING, embedding_cu, "ignis_embedding", WAITS)                                                     \
    X(EMBEDDING_KEYS, embedding_cu, "ignis_embedding_keys", WAITS)                                           \
    X(EMBEDDING_BOUNDS, embedding_cu, "ignis_embedding_bounds", WAITS)                                       \
    X(EMBEDDING_CHUNKS, embedding_cu, "ignis_embedding_chunks", WAITS)                                       \
    X(EMBEDDING_ROWS, embedding_cu, "ignis_embedding_rows", WAITS)

enum { IGNIS__BUILTINS(IGNIS__BUILTIN_NUMBER) IGNIS__BUILTIN_COUNT };

/*  The head of a cache file. A file has one image and is named by its key: this header, the lowered name, the image.
    It is written under another name and then renamed, so a reader finds a complete file or none. An incomplete file
    is compiled again. */
typedef struct ignis__cache_header {
    char magic[8];
    uint64_t key[2];
    uint64_t lowered_size, image_size;
    uint64_t checksum; /* of the bytes after it */
} ignis__cache_header;

/*  Each requested program becomes a line of a file, once per process. tools/ignis_embed.c reads them:

        ignis VERSION                           the version that wrote the lines below
        own FIRST-LAST FILE PART OPTION...      a source of Ignis, for compute capabilities from FIRST to LAST: 90 is
        9.0; of its kernels
                                                the requested PARTs (see ignis__parts), or all if no PART is named
        formula FIRST-LAST "TEXT" "NAMES" INPUTS INTEGERS NUMBERS
                                                a kernel of a formula, as ignis__formula_spec_write writes it; a bundle
                                                has those of other sizes, too
        kernel FIRST-LAST "NAME" "ENTRY" "SOURCE" OPTIONS "OPTION"... "HEADER" "TEXT"...       another program

    The choice of a kernel depends on the device. So that a record serves all devices, the choosing code records the
    choice for each kind of device: compute capability 7.5, 8.0 and newer, and 9.0. */
struct ignis__requests_type {
    ignis__mutex lock;
    char path[1024]; /* "": nothing is recorded */
    bool from_environment;
    uint64_t *lines; /* hashes of the written lines */
    int count, room;
    bool broken; /* a warning was logged */
};

#define IGNIS__EVERY_ARCH 999

#ifndef IGNIS_NO_TENSORS
enum { IGNIS__FORMULA_SPEC = 15 + 3 * IGNIS_MAX_INPUTS + 4 }; /* numbers of an ignis__formula_spec */

#endif

/*  A bundle is a header, its entries, their texts, and blocks of images, all little-endian; tools/ignis_embed.c
    writes it. Images of one architecture are similar, so they are packed together. The part before the blocks, and
    each block, has a checksum: the driver never reads damaged bytes. */
typedef struct ignis__bundle_header {
    char magic[8];
    uint64_t checksum; /* of the bytes from its end to the images */
    uint64_t size;     /* bytes of the bundle */
    uint64_t blocks;   /* offset of the blocks */
    uint64_t sources;  /* ignis__sources_hash */
    uint32_t version, count;
} ignis__bundle_header;

typedef struct ignis__bundle_entry {
    uint64_t key[2];                /* of the program */
    uint64_t included;              /* of the files that it includes */
    uint64_t checksum;              /* of the bytes of the block that are stored */
    uint64_t offset, stored, whole; /* offset and bytes in the file; bytes of the block, packed if those are more */
    uint64_t at, size;              /* of the image in the block; a zero follows it */
    uint32_t text;        /* offset of its name, and after that of the kernel's name in the image, each with a zero */
    uint16_t arch;        /* 90 for 9.0 */
    uint16_t first, last; /* compute capabilities that ask for the program */
    uint8_t kind;         /* 0: machine code; 'a': code for one chip; 'f': for a family of chips; 'p': PTX */
    uint8_t nothing[5];
} ignis__bundle_entry;

#define IGNIS__BUNDLE_IMAGE ((uint64_t)256 << 20) /* bytes, also of a block: larger ones are refused */

/*  An unpacked block. */
typedef struct ignis__bundle_block {
    uint64_t offset, whole; /* in the bundle; bytes */
    unsigned char *bytes;
    struct ignis__bundle_block *next;
} ignis__bundle_block;

typedef struct ignis__bundle {
    const unsigned char *data; /* NULL if there is none */
    void *memory;              /* its part that Ignis allocated */
    ignis__bundle_header header;
    ignis__bundle_block *blocks; /* kept until it is closed */
    bool wgmma;                  /* it has kernels with products of warpgroups */
    char from[300];
} ignis__bundle;

/*  Unpacks blocks of ignis_embed: copies of earlier bytes at a distance, or new bytes. A range coder decodes their
    bits by odds learned from earlier bits at the same position of 16, because instructions have that many bytes. A
    quick and a slow estimate are averaged. */
enum {
    IGNIS__PACK_KIND = 0,   /* new or copied; by the kind before, and the position */
    IGNIS__PACK_AGAIN = 48, /* at a distance of before */
    IGNIS__PACK_WHICH = 52, /* of the last four */
    IGNIS__PACK_NEW = 64,   /* new bytes: after new bytes, after copied bytes */
    IGNIS__PACK_NUMBERS = 33 * 32,
    IGNIS__PACK_LENGTH =
        IGNIS__PACK_NEW + 2 * 16 * 256, /* below 31, at a new distance, at one of before; by the place */
    IGNIS__PACK_LONG = IGNIS__PACK_LENGTH + 2 * 16 * 32,              /* lengths beyond that */
    IGNIS__PACK_DISTANCE = IGNIS__PACK_LONG + IGNIS__PACK_NUMBERS,    /* of 2, 3, 4 and more bytes */
    IGNIS__PACK_LOW = IGNIS__PACK_DISTANCE + 4 * IGNIS__PACK_NUMBERS, /* its lowest 4 bits: of few bytes, of more */
    IGNIS__PACK_ODDS = IGNIS__PACK_LOW + 2 * 16
};

typedef struct ignis__unpacker {
    const unsigned char *at, *end;
    uint32_t range, code;
    uint16_t odds[IGNIS__PACK_ODDS][2];
} ignis__unpacker;

#define IGNIS__MAX_PARAMS 64

/*  A kernel on one device. */
typedef struct ignis__kernel_code {
    ignis__module module;
    void *function;
    int params; /* -1: the driver does not tell */
    size_t param_size[IGNIS__MAX_PARAMS];
    int max_threads, static_shared;
    bool waits;       /* it waits for earlier work by itself, if the desc says so */
    char *entry;      /* which function it is */
    uint64_t entries; /* ignis__kernel_code * of other entries of the module: the newest of a list */
} ignis__kernel_code;

typedef struct ignis__kernel {
    ignis__slot slot;
    char *memory; /* of all that the program points to */
    ignis__program program;
    char *entry;                  /* the first entry of the program, or that of ignis_kernel_entry */
    struct ignis__kernel *shares; /* the kernel whose program it uses, held; NULL if it has its own */
    const char *file;             /* the caller's location from ignis_call_site, or NULL */
    int line;
    uint64_t code[IGNIS_MAX_DEVICES]; /* ignis__kernel_code *, made at the first use on a device */
    uint64_t newest; /* the latest replacement, an ignis__kernel * in no pool, or 0. The slot's lock guards it */
    struct ignis__kernel *
        older; /* the replacement before that. All live as long as the handle's kernel, so that launches need no lock */
    uint64_t reloads, reload; /* reloads of this kernel so far; the number of the reload that made it */
    ignis__tombstone tombstone;
} ignis__kernel;

#include "../shared/tensor_map.h"

/*  The pixels of images in a tile: `count` pixels of a box in each image. The box goes from lower to upper, relative
    to the first and the last pixel, with a step of columns, rows and planes, in this order. */
typedef struct ignis__tensor_pixels {
    int lower[3], upper[3], step[3], count;
} ignis__tensor_pixels;

/*  An array, and tiles of it, for a TMA map: see ignis__tensor_map_make. */
typedef struct ignis__tensor_map_desc {
    ignis_dtype dtype;
    bool rounds; /* f32 is rounded to tf32 when loaded */
    ignis__address data;
    int rank;
    const int64_t *dims, *strides;
    const int *box;
    const ignis__tensor_pixels *pixels;
} ignis__tensor_map_desc;

/*  The loaded code of a table on a device: modules by source and dtype, functions (0 until their first use) by kernel
    and dtype. */
typedef struct ignis__builtin_code {
    ignis__module *modules; /* in one block with this */
    uint64_t *functions;
} ignis__builtin_code;

#define IGNIS__DEFINES 200 /* characters of options that make a variant, with the end */

/*  The function of a kernel in a variant, chosen by more than the dtype. */
typedef struct ignis__variant {
    ignis__builtin builtin;
    ignis_dtype dtype;
    char define[IGNIS__DEFINES]; /* options, separated by spaces */
    ignis__module module;
    void *function;
    struct ignis__variant *next;
} ignis__variant;

struct ignis__variants_type {
    ignis__mutex lock;
    ignis__variant *first[IGNIS_MAX_DEVICES];
};

/*  A line of a record: see ignis__requests. */
typedef struct ignis__request {
    ignis__program program; /* without a text if it is built-in. No name: the line requests nothing */
    int first, last, line;
    const char *options[IGNIS__MAX_OPTIONS]; /* program.options, unless the request was moved */
    ignis_kernel_header *headers;            /* ignis__request_free frees them, and the text of a formula's kernel */
    char *text;
#ifndef IGNIS_NO_TENSORS
    const struct ignis__formula *formula; /* of a line of a formula, and its ignis__formula_spec */
    uint16_t spec[IGNIS__FORMULA_SPEC];
#endif
} ignis__request;

/*  Reads the rest of a line. False: it says why. *whole is false: a word has no quote at its end. */
typedef bool ignis__request_reader(char *line, ignis__request *request, bool *whole, ignis__string_writer *why);

#ifndef IGNIS_NO_TENSORS
/*  The start of an operation's random numbers: seed, first Philox counter, and in a CUDA graph the counter of its
    launches. */
typedef struct ignis__random {
    uint64_t seed, first;
    ignis_array launches; /* no handle if there are none */
} ignis__random;

#endif

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* program.c */
extern struct ignis__kernels_state_type ignis__kernels_state;
IGNIS__COLD IGNIS__PRIVATE char *ignis__source_join(const ignis__source *source);
IGNIS__PRIVATE const ignis__source *ignis__header_next(const ignis__program *program, int *at);

/* builtin_table.c */
IGNIS__BUILTINS(IGNIS__BUILTIN_DECLARED)
extern ignis__kernel_table *ignis__kernels_above;
extern ignis__kernel_list *ignis__kernel_list_above;
IGNIS__PRIVATE ignis__kernel_table *ignis__kernel_table_at(int index);
IGNIS__PRIVATE ignis__kernel_table *ignis__table_of_builtin(ignis__builtin builtin);
IGNIS__PRIVATE const ignis__source *ignis__source_at(int index);
IGNIS__PRIVATE ignis__builtin ignis__builtin_of_source(const ignis__source *source, int index);
IGNIS__PRIVATE int ignis__source_dtypes(const ignis__source *source);

/* disk_cache.c */
extern const char ignis__cache_magic[8];
IGNIS__COLD IGNIS__PRIVATE void ignis__cache_warn(const char *call, const char *what, const char *path,
                                                  const char *why);
IGNIS__COLD IGNIS__PRIVATE void *ignis__cache_read(const char *call, const char *path, size_t *size);
IGNIS__COLD IGNIS__PRIVATE bool ignis__cache_folder(const char *call);
IGNIS__COLD IGNIS__PRIVATE const char *ignis__kernel_binary_fault(const void *data, size_t size);
IGNIS__COLD IGNIS__PRIVATE bool ignis__cache_parse(ignis__kernel_binary *image, char *file, size_t size);
IGNIS__COLD IGNIS__PRIVATE bool ignis__kernel_binary_from_disk(const char *call, ignis__kernel_binary *image);
IGNIS__COLD IGNIS__PRIVATE void ignis__kernel_binary_to_disk(const char *call, const ignis__kernel_binary *image);

/* cache_key.c */
IGNIS__PRIVATE bool ignis__header_is_known(const ignis__program *program, const char *name, size_t length);
IGNIS__COLD IGNIS__PRIVATE void ignis__program_key(const ignis__program *program, uint64_t key[2]);
IGNIS__COLD IGNIS__PRIVATE uint64_t ignis__program_included(const ignis__program *program);
extern bool ignis__compile_never;
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__nvrtc_available(const char *call);
IGNIS__COLD IGNIS__PRIVATE uint64_t ignis__compiler_release(const char *call);
IGNIS__COLD IGNIS__PRIVATE bool ignis__kernel_binary_key(const ignis__program *program, const ignis__device *device,
                                                         uint64_t release, uint64_t key[2]);

/* compile.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__arch_choose(const char *call, const ignis__device *device, char *arch,
                                                   size_t size, bool *is_ptx);
IGNIS__COLD IGNIS__PRIVATE const char *ignis__entry_next(const char **list, size_t *length);
IGNIS__COLD IGNIS__PRIVATE int ignis__entry_index(const char *list, const char *wanted);
IGNIS__COLD IGNIS__PRIVATE char *ignis__entry_copy(const char *call, const char *list, int index);
IGNIS__COLD IGNIS__PRIVATE bool ignis__kernel_binary_compile(const char *call, const ignis__program *program,
                                                             const char *arch, bool is_ptx,
                                                             ignis__kernel_binary *image);

/* record.c */
extern struct ignis__requests_type ignis__requests;
IGNIS__PRIVATE void ignis__program_range(const ignis__program *program, int *first, int *last);
IGNIS__COLD IGNIS__PRIVATE void ignis__program_write(ignis__string_writer *text, const ignis__program *program);
IGNIS__COLD IGNIS__PRIVATE bool ignis__line_append(const char *path, const char *line, bool is_private, char *why,
                                                   size_t size);
IGNIS__COLD IGNIS__PRIVATE void ignis__request_add(const ignis__program *program, int first, int last);

/* bundle.c */
extern const char ignis__bundle_magic[8];
extern ignis__bundle ignis__the_bundle;
IGNIS__PRIVATE ignis__bundle_entry ignis__bundle_get(const ignis__bundle *bundle, uint32_t index);
IGNIS__PRIVATE const char *ignis__bundle_text(const ignis__bundle *bundle, const ignis__bundle_entry *entry);
IGNIS__PRIVATE uint64_t ignis__sources_hash(void);
IGNIS__PRINTF(2, 3)
IGNIS__COLD IGNIS__PRIVATE bool ignis__explain(ignis__string_writer *why, const char *format, ...);
IGNIS__COLD IGNIS__PRIVATE bool ignis__bundle_open(ignis__bundle *bundle, const void *data, size_t size,
                                                   ignis__string_writer *why);
IGNIS__PRIVATE bool ignis__unpack(ignis__unpacker *u, unsigned char *out, size_t size, const unsigned char *packed,
                                  size_t packed_size);
IGNIS__COLD IGNIS__PRIVATE ignis_diagnostic ignis__bundle_unpack(ignis__bundle *bundle,
                                                                 const ignis__bundle_entry *entry, void **unpacked,
                                                                 ignis__string_writer *why);
IGNIS__PRIVATE void ignis__blocks_drop(ignis__bundle *bundle);
IGNIS__PRIVATE int ignis__bundle_serves(const ignis__bundle_entry *entry, int capability);
IGNIS__COLD IGNIS__PRIVATE int ignis__bundle_find(const ignis__bundle *bundle, const uint64_t key[2], int capability,
                                                  int below, ignis__bundle_entry *found);
IGNIS__COLD IGNIS__PRIVATE void ignis__bundle_archs(const ignis__bundle *bundle, const uint64_t *key,
                                                    ignis__string_writer *text);
IGNIS__COLD IGNIS__PRIVATE bool ignis__program_missing(const char *call, const ignis__program *program,
                                                       const ignis__device *device);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__wgmma_compiles(const char *call);
IGNIS__PRIVATE bool ignis__compiler_available(const char *call);
IGNIS__PRIVATE bool ignis__program_bundled(const ignis__device *device, const ignis__program *program);
IGNIS__COLD IGNIS__PRIVATE bool ignis__program_compile(const char *call, const ignis__program *program,
                                                       const ignis__device *device, ignis__kernel_binary *image);

/* module.c */
IGNIS__PRIVATE void ignis__kernel_binary_drop(ignis__kernel_binary *image);
IGNIS__COLD IGNIS__PRIVATE void ignis__module_unload(ignis__module *unit);
IGNIS__PRIVATE void ignis__module_unload_when_idle(const char *call, ignis__device *device, ignis__module *unit);
IGNIS__COLD IGNIS__PRIVATE bool ignis__module_make(const char *call, ignis__device *device,
                                                   const ignis__program *program, ignis__module *unit);

/* bundle_check.c */
IGNIS__PRIVATE void ignis__bundle_close(void);
IGNIS__COLD IGNIS__PRIVATE bool ignis__requests_setup(const char *call, const ignis_desc *desc);
IGNIS__COLD IGNIS__PRIVATE bool ignis__bundle_setup(const char *call, const ignis_desc *desc);
IGNIS__COLD IGNIS__PRIVATE void ignis__bundle_count(const ignis__bundle *bundle, int capability,
                                                    ignis_bundle_info *info, ignis__string_writer *missing);

/* function.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__function_get(const char *call, ignis__device *device, const ignis__module *unit,
                                                    const char *name, void **function);
IGNIS__COLD IGNIS__PRIVATE bool ignis__function_waits(const char *call, ignis__device *device, void *function,
                                                      bool *waits);

/* user_kernel.c */
extern ignis__pool ignis__kernels;
IGNIS__PRIVATE ignis__kernel *ignis__kernel_hold(const char *call, ignis_kernel handle);
IGNIS__PRIVATE ignis__kernel *ignis__kernel_current(ignis__kernel *kernel);
IGNIS__COLD IGNIS__PRIVATE void ignis__kernel_unload(const char *call, ignis__kernel *kernel);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__kernel_drop(const char *call, ignis__kernel *kernel);
IGNIS__PRIVATE void ignis__kernel_drop_held(const char *call, void *item);
IGNIS__COLD IGNIS__PRIVATE ignis__kernel_code *ignis__kernel_code_get(const char *call, ignis__device *device,
                                                                      ignis__kernel *kernel);
IGNIS__PRIVATE ignis__kernel_code *ignis__kernel_code_entry(const char *call, ignis__device *device,
                                                            ignis__kernel *program, ignis__kernel_code *code,
                                                            const char *entry);
IGNIS__PRIVATE ignis__kernel_code *ignis__kernel_code_of(const char *call, ignis__device *device,
                                                         ignis__kernel *kernel);
IGNIS__PRIVATE ignis__program ignis__program_from(const ignis_kernel_desc *desc);
IGNIS__COLD IGNIS__PRIVATE bool ignis__kernel_desc_check(const char *call, const ignis_kernel_desc *desc);
IGNIS__COLD IGNIS__PRIVATE bool ignis__kernel_keep(const char *call, ignis__kernel *kernel, ignis__program program);
IGNIS__COLD IGNIS__PRIVATE bool ignis__kernel_kill(ignis__kernel *kernel);

/* occupancy.c */
IGNIS__PRIVATE bool ignis__block_check(const char *call, const ignis__device *device, const ignis__kernel_code *code,
                                       int64_t threads, int64_t shared_bytes);
IGNIS__PRIVATE bool ignis__kernel_resident(const char *call, ignis__device *device, const ignis__kernel_code *code,
                                           int threads, int64_t shared_bytes, int *blocks);

/* launch.c */
IGNIS__PRIVATE bool ignis__launch_as(const ignis__work *work, void *function, const unsigned grid[3],
                                     const unsigned block[3], unsigned shared, void **params, bool dependent,
                                     bool together);

/* tensor_map.c */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__tensor_map_make(const ignis__work *work, ignis__tensor_map *map,
                                                               const ignis__tensor_map_desc *desc);

/* builtin.c */
IGNIS__PRIVATE const char *ignis__builtin_part(ignis__builtin builtin);
IGNIS__COLD IGNIS__PRIVATE void ignis__record_builtin(ignis__builtin builtin, ignis_dtype dtype, const char *define,
                                                      int first, int last);
IGNIS__PRIVATE void ignis__record_builtin_for_all(ignis__builtin builtin, ignis_dtype dtype);
IGNIS__PRIVATE bool ignis__bundle_has(const ignis__bundle *bundle, ignis__builtin builtin, ignis_dtype dtype,
                                      const char *define, int capability);
IGNIS__COLD IGNIS__PRIVATE bool ignis__builtin_make(const char *call, ignis__device *device,
                                                    const ignis__source *source, const char *part, ignis_dtype dtype,
                                                    const char *defines, ignis__module *unit);
extern struct ignis__variants_type ignis__variants;
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__variant_exists(const ignis__device *device, ignis__builtin builtin,
                                                              ignis_dtype dtype, const char *define);
IGNIS__PRIVATE bool ignis__builtin_launch(const ignis__work *work, ignis__builtin builtin, void *function,
                                          const unsigned grid[3], const unsigned block[3], unsigned shared,
                                          void **params);
IGNIS__PRIVATE void *ignis__builtin_get_variant(const char *call, ignis__device *device, ignis__builtin builtin,
                                                ignis_dtype dtype, const char *define);
IGNIS__PRIVATE void *ignis__builtin_get(const char *call, ignis__device *device, ignis__builtin builtin,
                                        ignis_dtype dtype);

/* warmup.c */
IGNIS__COLD IGNIS__PRIVATE ignis_ticket ignis__warmup_record(const char *path, ignis__request_reader *read_formula);

/* record_read.c */
IGNIS__PRIVATE void ignis__request_free(ignis__request *request);
IGNIS__COLD IGNIS__PRIVATE char *ignis__request_word(char **line, bool *whole);
IGNIS__COLD IGNIS__PRIVATE bool ignis__request_read(char *line, ignis__request_reader *read_formula,
                                                    ignis__request *request, ignis__string_writer *why);

/* setup.c */
IGNIS__COLD IGNIS__PRIVATE void ignis__kernels_setup(const char *call, const ignis_desc *desc);
IGNIS__COLD IGNIS__PRIVATE void ignis__builtins_close(ignis__device *device);
IGNIS__PRIVATE void ignis__kernel_binaries_close(void);

/* elementwise.c */
IGNIS__PRIVATE bool ignis__elementwise(const ignis__work *work, ignis__builtin builtin, ignis_dtype dtype,
                                       int64_t numel, void **params);
IGNIS__PRIVATE bool ignis__work_fill(const ignis__work *work, ignis__array *array, double value);
IGNIS__PRIVATE ignis_status ignis__array_set(const char *call, ignis_array handle, double value);
IGNIS__PRIVATE bool ignis__same_device(const char *call, const ignis__array *dst, const ignis__array *src,
                                       const char *name);
IGNIS__PRIVATE ignis__builtin ignis__builtin_cast(ignis_dtype dtype);
IGNIS__PRIVATE bool ignis__array_convert(const char *call, ignis__array *dst, ignis__array *src);
IGNIS__PRIVATE bool ignis__array_copy_peer(const char *call, ignis__array *dst, ignis__array *src);
IGNIS__PRIVATE ignis_status ignis__array_binary(const char *call, ignis__builtin builtin, ignis_array dst,
                                                ignis_array a, ignis_array b);

/* random.c */
#ifndef IGNIS_NO_TENSORS
IGNIS__PRIVATE ignis_array ignis__random_launches(void);
IGNIS__PRIVATE bool ignis__random_take(const ignis__work *work, ignis_dtype dtype, int64_t numel,
                                       ignis__random *random);
IGNIS__PRIVATE bool ignis__random_step(const ignis__work *work, ignis_array launches, ignis__address *step);
#endif

/* graph.c */
#ifndef IGNIS_NO_TENSORS
IGNIS__COLD IGNIS__PRIVATE void ignis__graph_destroy(const char *call, ignis__capture *capture, void *exec);
IGNIS__PRIVATE bool ignis__graph_launchable(const char *call, ignis__device *device, void *stream);
IGNIS__PRIVATE void ignis__graphs_close(const char *call);
#endif
