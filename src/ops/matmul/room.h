/*  ops/matmul - products: the choice of a kernel, its launch, cuBLASLt, layers. */
#pragma once

#include "../room.h"

/*  A product of row-major matrices: out [batch, m, n] = op(a) op(b). */
typedef struct ignis__product {
    int64_t m, n, k, batch;
    int64_t batch_a, batch_b;     /* elements between the matrices of a batch; 0: one matrix for all */
    int transpose_a, transpose_b; /* a is stored [k, m]; b is stored [n, k] */
    int dtype, epilogue;          /* one of cuBLASLt's */
    int alignment;                /* of all addresses, in bytes: 16, 8, 4 or 2 */
    int operands;                 /* the dtype of a and b if it differs from dtype; else 0 */
} ignis__product;

/*  The epilogue of a product, in this order. A NULL array leaves its step out. Sums need a product without
    batches. */
typedef struct ignis__epilogue {
    double factor;      /* of the product; 0: 1 */
    ignis__array *bias; /* [n], added to each row */
    int activation;     /* an ignis_activation, or another IGNIS__ACTIVATION */
    bool gradient;      /* the product is multiplied by the derivative of the activation at pre */
    /* Like out: receives the product with its bias; of a gradient, what was kept. Gated: [2, m, n], see
       above. */
    ignis__array *pre;
    bool keeps;                      /* of gated ones that are not a gradient */
    ignis__array *residual;          /* like out, added */
    ignis__array *column_sums;       /* [n]: the sums of the results over m */
    bool accumulate;                 /* the result is added to out */
    ignis__array *row_sums;          /* [m]: the sums of op(a) over k */
    ignis__array *scale_a, *scale_b; /* of operands of 8 bits, f32: [1] or [m], [1] or [n] */
} ignis__epilogue;

/*  The sides of an image, whose patches may be an operand. */
enum { IGNIS__ROWS, IGNIS__COLUMNS, IGNIS__PLANES, IGNIS__SIDES };

#include "../../shared/gemm.h"

IGNIS__STATIC_ASSERT(activations, IGNIS__ACTIVATION_RELU == (int)IGNIS_ACTIVATION_RELU &&
                                      IGNIS__ACTIVATION_GELU == (int)IGNIS_ACTIVATION_GELU);

/*  A product, and what its launch depends on. */
typedef struct ignis__gemm {
    ignis__gemm_params params; /* of the kernel; of a plain product up to the patches */
    int patches_of;            /* IGNIS__OPERAND_A or _B; IGNIS__NO_OPERAND: a plain product */
    /* Of a product with patches: the k of wgmma; 0: it cannot be used. */
    int64_t wgmma_k;
    int64_t images, weights;     /* of these; and the channels of the weights */
    bool volumes;                /* images have planes */
    bool folded;                 /* pairs of pixels are one with twice the channels */
    ignis_dtype dtype, operands; /* of the result; of a and b */
    int rows;                    /* of a wgmma tile; 0: as ignis__gemm_rows finds */
    int pairs;                   /* IGNIS__SHARE_A or _B; IGNIS__SHARE_NOTHING: no pairs */
    int beside; /* what patches.beside becomes if kernels/gemm_hopper.cu computes the product, and nothing else */
} ignis__gemm;

/*  A kernel: the tile of a block, its threads, blocks of an SM at a time, and nanoseconds: of 64 elements of
    k of a tile for an SM, and for a block at least; between two tiles; before the first. On an H200, of
    16-bit elements, and of f32 in plain CUDA C. */
typedef struct ignis__gemm_tile {
    ignis__builtin builtin;
    int rows, columns;
    unsigned threads;
    int blocks, step, latency, between, before;
} ignis__gemm_tile;

/*  A kernel, and how it is launched for a product. */
typedef struct ignis__gemm_kernel {
    ignis__builtin builtin;
    int rows, columns, summed_rows; /* of a tile; summed_rows of it are one row of column_sums */
    bool sums_rows;                 /* it computes row_sums */
    bool stays;                     /* a block computes one tile after the other */
    bool packs;                     /* operands whose rows are no full packs are copied first */
    bool transposes;                /* operands that are not contiguous along k are transposed first */
    int64_t splits;                 /* of k */
    unsigned threads, shared;
    int blocks;                  /* of an SM at a time */
    char define[IGNIS__DEFINES]; /* of its variant; "": none */
} ignis__gemm_kernel;

/*  A tiny product that waits to be launched together with another one. */
typedef struct ignis__gemm_pending {
    ignis__gemm p;
    ignis_dtype dtype;
    int64_t blocks; /* 0: there is no product */
} ignis__gemm_pending;

/*  Matrices [count, rows, columns] in memory. */
typedef struct ignis__gemm_matrix {
    ignis__address at;
    int64_t count, rows, columns;
    int64_t row, batch; /* elements from a row to the next, and from a matrix to the next; batch 0: one for all */
    int packed;         /* rows are full packs, of 16 bytes, or of 8: IGNIS__HALF_PACKED */
} ignis__gemm_matrix;

typedef struct ignis__autotune {
    uint64_t key;
    bool own;
    struct ignis__autotune *next;
} ignis__autotune;

struct ignis__measurements_type {
    ignis__mutex
        lock; /* never held while measuring: the work that is waited for may wait for another thread's product */
    bool is_read;
    ignis__autotune *first;
};

/*  The gradients of a linear layer; NULL: not needed. */
typedef struct ignis__linear_grads {
    ignis__array *x, *w, *bias;
} ignis__linear_grads;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* product.c */
IGNIS__PRIVATE ignis__product ignis__product_of(ignis_dtype dtype, int64_t m, int64_t n, int64_t k, int transpose_b);
extern const ignis__gemm_tile ignis__gemm_tile_sizes[12];

/* gemm_select.c */
IGNIS__PRIVATE int64_t ignis__gemm_tiles(const ignis__gemm *p, int rows, int columns);
IGNIS__PRIVATE bool ignis__gemm_allows_tensor_cores(ignis_dtype operands);
IGNIS__PRIVATE bool ignis__gemm_has_wgmma(const ignis__op *op, ignis_dtype dtype);
IGNIS__PRIVATE bool ignis__gemm_takes_wgmma(const ignis__op *op, const ignis__gemm *p);
IGNIS__PRIVATE bool ignis__gemm_has_pairs(const ignis__op *op);
IGNIS__PRIVATE bool ignis__gemm_may_share_a(const ignis__gemm *p);
IGNIS__PRIVATE bool ignis__gemm_shares_a(int rows, int columns, int blocks);
IGNIS__PRIVATE ignis__gemm ignis__gemm_by_wgmma(const ignis__gemm *product);
IGNIS__PRIVATE bool ignis__gemm_shares_b(const ignis__gemm *p, int columns);
IGNIS__PRIVATE bool ignis__gemm_skips(const ignis__gemm *p, int rows, int columns);
extern int64_t ignis__gemm_pack_limit;
IGNIS__PRIVATE int ignis__gemm_columns(const ignis__gemm *p, int columns);
IGNIS__PRIVATE bool ignis__gemm_gates(const ignis__gemm *p);
IGNIS__PRIVATE int64_t ignis__gemm_out_columns(const ignis__gemm *p);
IGNIS__PRIVATE bool ignis__gemm_finishes_in_registers(const ignis__gemm *p, int columns);
IGNIS__PRIVATE ignis__address ignis__gemm_extra_matrix(const ignis__gemm *p);
IGNIS__PRIVATE const char *ignis__gemm_patches_define(const ignis__gemm *p);
IGNIS__PRIVATE void ignis__gemm_mma_define(char *define, size_t size, const ignis__gemm *p);
IGNIS__PRIVATE void ignis__gemm_hopper_define(char *define, size_t size, const ignis__gemm *p, int columns,
                                              bool direct);
IGNIS__PRIVATE int64_t ignis__gemm_ahead_k(ignis_dtype dtype);
IGNIS__PRIVATE bool ignis__gemm_takes_ahead(const ignis__gemm *product, const ignis__epilogue *epilogue);
IGNIS__PRIVATE bool ignis__gemm_takes_192_rows(const ignis__gemm *p, const ignis__epilogue *epilogue);
IGNIS__PRIVATE ignis__gemm_kernel ignis__gemm_choose(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *gemm,
                                                     const ignis__epilogue *epilogue);

/* gemm_params.c */
IGNIS__PRIVATE ignis__gemm_matrix ignis__gemm_operand(const ignis__gemm *gemm, bool is_b);
IGNIS__PRIVATE void ignis__gemm_set_operand(ignis__gemm *gemm, bool is_b, const ignis__gemm_matrix *matrix);
IGNIS__PRIVATE ignis__gemm_matrix ignis__gemm_result(const ignis__gemm *gemm, ignis__address at, int64_t columns,
                                                     bool pairs);
IGNIS__PRIVATE void ignis__gemm_tma_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype, bool rounds,
                                        const ignis__gemm_matrix *matrix, int box_rows);
IGNIS__PRIVATE void ignis__patches_tma_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype,
                                           const ignis__gemm *p, int count);
IGNIS__PRIVATE void ignis__patches_out_tma_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype,
                                               const ignis__gemm *p);
IGNIS__PRIVATE bool ignis__gemm_packed(ignis_dtype dtype, ignis__address addresses, int64_t row, int64_t batch);
IGNIS__PRIVATE void ignis__gemm_add_sums(ignis__op *op, ignis__array *out, ignis__address from, int64_t count);
IGNIS__PRIVATE ignis__address ignis__gemm_scratch(ignis__op *op, int64_t count, ignis_dtype dtype);
IGNIS__PRIVATE ignis__address ignis__gemm_sums_scratch(ignis__op *op, ignis__array *out, int64_t count,
                                                       ignis_dtype dtype);
IGNIS__PRIVATE ignis__gemm ignis__gemm_describe(ignis__op *op, const ignis__product *product, ignis__array *out,
                                                const ignis__epilogue *epilogue);
IGNIS__PRIVATE void ignis__gemm_launch_finish(ignis__op *op, ignis__builtin builtin, int rows, ignis_dtype dtype,
                                              ignis__gemm *p, const ignis__epilogue *epilogue);
IGNIS__COLD IGNIS__PRIVATE void ignis__gemm_request(ignis_dtype dtype, const ignis__gemm *product,
                                                    const ignis__epilogue *epilogue);

/* gemm_launch.c */
IGNIS__PRIVATE double ignis__gemm_flops(const ignis__gemm *p);
IGNIS__PRIVATE void ignis__gemm_join(ignis__op *op, ignis__gemm_pending *pending);
IGNIS__PRIVATE void ignis__gemm_join_end(ignis__op *op);
IGNIS__PRIVATE void ignis__gemm_plan_copy(ignis__op *op, ignis_dtype dtype, ignis__gemm_copy *copy,
                                          ignis__gemm_matrix *matrix, int64_t pack);
IGNIS__PRIVATE void ignis__gemm_copies(ignis__op *op, ignis_dtype dtype, ignis__gemm_copy *a, ignis__gemm_copy *b);
IGNIS__PRIVATE bool ignis__gemm_compute(ignis__op *op, ignis_dtype dtype, ignis__gemm *gemm,
                                        const ignis__epilogue *epilogue);
IGNIS__PRIVATE bool ignis__gemm_run(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a,
                                    ignis__array *b, const ignis__epilogue *epilogue);

/* cublaslt.c */
IGNIS__PRIVATE int ignis__alignment_of(ignis__address a, ignis__address b, ignis__address c);
IGNIS__PRIVATE bool ignis__lt_multiply(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a,
                                       ignis__array *b, const ignis__epilogue *epilogue, bool *row_sums);
IGNIS__PRIVATE void ignis__matmul_close(ignis__device *device);
IGNIS__PRIVATE bool ignis__cublaslt_available(const char *call);

/* autotune.c */
extern struct ignis__measurements_type ignis__measurements;
IGNIS__PRIVATE bool ignis__autotune_picks_builtin(ignis__op *op, const ignis__product *product, ignis__array *out,
                                                  ignis__array *a, ignis__array *b, const ignis__epilogue *epilogue);
IGNIS__PRIVATE void ignis__autotune_close(void);

/* dispatch.c */
IGNIS__PRIVATE bool ignis__gemm_is_tiny(const ignis__op *op, const ignis__product *product);
IGNIS__PRIVATE bool ignis__gemm_beats_cublaslt(const ignis__op *op, const ignis__product *product);
IGNIS__PRIVATE bool ignis__matmul_run(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a,
                                      ignis__array *b, const ignis__epilogue *epilogue);

/* matmul.c */
IGNIS__PRIVATE ignis__product ignis__matmul_product_a(const ignis__product *p);
IGNIS__PRIVATE ignis__product ignis__matmul_product_b(const ignis__product *p);
IGNIS__PRIVATE bool ignis__matmul_shapes(ignis__op *op, int transpose_b, ignis__product *product, ignis_shape *out);

/* linear.c */
IGNIS__PRIVATE ignis__linear_grads ignis__linear_grads_of(ignis__array *x, ignis__array *w, ignis__array *bias);
IGNIS__PRIVATE void ignis__linear_gradients(ignis__op *op, const ignis__product *forward, ignis__array *g,
                                            ignis__array *x, ignis__array *w, const ignis__epilogue *epilogue,
                                            ignis__linear_grads to);
IGNIS__PRIVATE ignis__array *ignis__bias_gradient(ignis__op *op, const ignis_backward_args *args, int input,
                                                  const ignis__array *g, int64_t n);
IGNIS__PRIVATE ignis_status ignis__linear_backward(const ignis_backward_args *args);

/* mlp.c */
IGNIS__PRIVATE bool ignis__gradient_wants_column_sums(void);

/* of vjp_table.c */
IGNIS__PRIVATE void ignis__vjp_of_mlp(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_mlp_gated(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_product(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_matmul(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_linear(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__groups_multiply(ignis__op *op, const ignis__product *product, ignis__array *out,
                                           ignis__array *a, ignis__array *b, ignis__gemm_groups *groups);
IGNIS__PRIVATE void ignis__vjp_of_grouped_linear(const ignis_vjp_args *args);
