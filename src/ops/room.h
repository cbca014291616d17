/*  ops - operations on tensors: checks, forward, backward. Knows no optimizer. */
#pragma once

#include "../base/room.h"
#include "../device/room.h"
#include "../array/room.h"
#include "../kernel/room.h"
#include "../formula/room.h"
#include "../tensor/room.h"

/* Backward of the most layers has the most inputs; forwards have 2 + IGNIS_MAX_INPUTS at most. Layers save their input,
   weights, results, these before the activation, and biases. */
#define IGNIS__OP_INPUTS (3 * IGNIS_MAX_LAYERS)
#define IGNIS__OP_SAVED (4 * IGNIS_MAX_LAYERS)
#define IGNIS__OP_MADE 160

/*  Blocks of a grid, threads of a block, and the bytes of dynamic shared memory of a block. */
typedef struct ignis__launch_shape {
    int64_t grid[3];
    unsigned block[2];
    size_t shared;
} ignis__launch_shape;

/*  A running operation. It holds its inputs, owns the arrays that it makes, has entered their device, and
    knows the stream. */
typedef struct ignis__op {
    ignis__work work;
    int as_major; /* kernels are chosen as on a device of this compute capability; 0: on the real device */
    bool ok;
    bool records;   /* an input requires a gradient, and recording is on */
    bool knows_one; /* its backward function takes no grad_output for a gradient of 1 */
    /* Built-in kernels of products and attention are chosen so that a row has the same bits alone or beside
       others. */
    bool steady;
    int count, made_count, saved_count;
    int kept_count;                      /* of the saved arrays: the last ones, which only the vjp function reads */
    ignis__block *zeroed;                /* memory of ignis__op_zeroed */
    struct ignis__gemm_pending *pending; /* between ignis__gemm_join and ignis__gemm_join_end; else NULL */
    ignis__tensor *tensors[IGNIS__OP_INPUTS]; /* NULL if the operation works on arrays */
    ignis__array *in[IGNIS__OP_INPUTS];
    /* Of tensors. From here on only what the counts say is set. */
    ignis__tape_state tape_state[IGNIS__OP_INPUTS];
    ignis__array *made[IGNIS__OP_MADE];   /* nobody else sees them until ignis__op_hand_over */
    ignis__array *saved[IGNIS__OP_SAVED]; /* for its backward function */
} ignis__op;

/*  A product of row-major matrices: out [batch, m, n] = op(a) op(b). */
typedef struct ignis__product {
    int64_t m, n, k, batch;
    int64_t batch_a, batch_b;     /* elements between the matrices of a batch; 0: one matrix for all */
    int transpose_a, transpose_b; /* a is stored [k, m]; b is stored [n, k] */
    int dtype, epilogue;          /* one of cuBLASLt's */
    int alignment;                /* of all addresses, in bytes: 16, 8, 4 or 2 */
    int operands;                 /* the dtype of a and b if it differs from dtype; else 0 */
} ignis__product;

/*  An ignis_activation of products only, the second of a gated layer: silu(gate) * product. pre holds the
    gate and after it the products, which are written if `keeps`, and read by a gradient. Its out is [2, m, n]
    too: of the gate and the product. There are no batches, and no other epilogue. */
#define IGNIS__ACTIVATION_GATED 3

/*  An ignis_activation of products only: the result [m, n / 2] is silu of the first half of the columns,
    times the second half. For products that ignis__gemm_supports_paired takes. */
#define IGNIS__ACTIVATION_PAIRED 4

/*  The epilogue of a product, in this order. A NULL array leaves its step out. Sums need a product without
    batches. */
typedef struct ignis__epilogue {
    double factor;      /* of the product; 0: 1 */
    ignis__array *bias; /* [n], added to each row */
    int activation;     /* an ignis_activation, or one of those above; 0: none */
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

#include "../shared/gemm.h"

/*  A product, and what its launch depends on. */
typedef struct ignis__gemm {
    ignis__gemm_params params; /* of the kernel; of a plain product up to the patches */
    /* The operand with patches: 1 is a, 2 is b; 0: a plain product. */
    int patches_of;
    /* Of a product with patches: the k of wgmma; 0: it cannot be used. */
    int64_t wgmma_k;
    int64_t images, weights;     /* of these; and the channels of the weights */
    bool volumes;                /* images have planes */
    bool folded;                 /* pairs of pixels are one with twice the channels */
    ignis_dtype dtype, operands; /* of the result; of a and b */
    int rows;                    /* of a wgmma tile; 0: as ignis__gemm_rows finds */
    /* The operand that pairs of blocks of kernels/gemm_hopper.cu share, as below; 0: no pairs. */
    int pairs;
} ignis__gemm;

enum { IGNIS__SHARE_A = 1, IGNIS__SHARE_B };

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

typedef struct ignis__binary_params {
    ignis__axis axis;     /* of the second operand; n = 1 for equal shapes */
    ignis_shape shape;    /* of the second operand */
    int saved_a, saved_b; /* indices of the saved arrays, -1: not saved */
} ignis__binary_params;

/*  Values that the gradients of a formula need. Saved are the inputs that they are computed from. */
typedef struct ignis__formula_rule {
    ignis__formula *formula;
    ignis_shape shape; /* of the result */
    int result;        /* of the formula, which this is the gradient of */
    ignis__random random;
    int saved[IGNIS_MAX_INPUTS];
    ignis_shape given;    /* of the incoming gradient, in the dimensions of shape: 1 where the result is reduced */
    double factor;        /* of that gradient */
    int kept, kept_saved; /* of a reduction, and where it is saved */
    uint32_t same;        /* bits of inputs whose gradient it is */
    double value[IGNIS_MAX_INPUTS];
    int count; /* of tensors */
    struct {
        int input; /* its number in the formula */
        ignis_dtype dtype;
        ignis_shape shape;
    } tensor[IGNIS_MAX_INPUTS]; /* only the first `count` are stored */
} ignis__formula_rule;

typedef enum ignis__loss_kind {
    IGNIS__LOSS_NONE, /* any formula */
    IGNIS__LOSS,      /* its result is at least f32 */
    IGNIS__LOSS_ALIKE /* and its first two inputs have one shape, to which the others broadcast */
} ignis__loss_kind;

/*  [a, m, b, n, c] becomes [a, n, b, m, c]. */
typedef struct ignis__exchange {
    int64_t a, m, b, n, c;
} ignis__exchange;

/*  Equally long rows inside an array: the first element of the first one, and elements from row to row. */
typedef struct ignis__row_slices {
    ignis__array *array;
    int64_t offset, row;
} ignis__row_slices;

/*  A copy: to[to_offset + sum of i[d] * to[d]] = from[from_offset + sum of i[d] * from[d]] for every i below
    size; in elements. */
typedef struct ignis__strides {
    int rank;
    int64_t size[IGNIS_MAX_DIMS], from[IGNIS_MAX_DIMS], to[IGNIS_MAX_DIMS], from_offset, to_offset;
} ignis__strides;

#include "../shared/strided.h"

IGNIS__STATIC_ASSERT(strided_dims, IGNIS_MAX_DIMS == 8); /* of ignis__strided */

#include "../shared/scan.h"

#include "../shared/reduce.h"

#include "../shared/sort.h"

#include "../shared/embedding.h"

#include "../shared/index.h"

/*  The gradients of a linear layer; NULL: not needed. */
typedef struct ignis__linear_grads {
    ignis__array *x, *w, *bias;
} ignis__linear_grads;

/*  Rows are distributed as by ignis_row in kernels/ignis.cuh: a warp has 4 packs a lane, or without packs a
    block has 8 elements a thread. */
#define IGNIS__ROW_PACKS 4
#define IGNIS__ROW_BLOCKS ((int64_t)1 << 30) /* they loop if there are more rows */
typedef struct ignis__rows {
    bool warp;        /* a warp has a row in registers; else a block has it, in one or more rounds */
    int packed, kept; /* the kernels' parameters */
    unsigned threads;
    int64_t blocks;
    size_t shared;
} ignis__rows;

/*  A convolution along the rows, the columns or the planes of its images. */
typedef struct ignis__conv_side {
    int64_t in, out, kernel, stride, padding, dilation;
} ignis__conv_side;

enum { IGNIS__ROWS, IGNIS__COLUMNS, IGNIS__PLANES, IGNIS__SIDES };

/*  A convolution; channels and outs are of one group. It is patches of x, [images * out * out * out, kernel * kernel *
    kernel * channels], times weights. */
typedef struct ignis__conv {
    int64_t images, channels, outs, groups;
    ignis__conv_side side[IGNIS__SIDES];
    ignis_dtype dtype;
    int sides;    /* of the call: 1 of a signal */
    bool volumes; /* there are planes; else one */
} ignis__conv;

/*  How a grid of pixels and the taps of its patches step along a side of an array, as in kernels/gemm.cuh,
    and along the taps of the weights. */
typedef struct ignis__conv_grid {
    int64_t grid, taps, first, stride, step, weight, weight_step;
} ignis__conv_grid;

/*  An array of pixels or weights that is an operand: rows of `channels` channels. */
typedef struct ignis__conv_operand {
    ignis__address at;
    int64_t channels; /* as stored */
    int packed;       /* they are full packs: 1: of 16 bytes, 2: of 8 */
} ignis__conv_operand;

/*  The plan of a product by kernels/grouped_mma.cu: a slab of groups for a block, in chunks of 8 channels. */
typedef struct ignis__grouped {
    ignis__conv_tiles tiles;
    int channels, outs, taps, slab, slabs;
    int64_t shared;
    char define[IGNIS__DEFINES];
} ignis__grouped;

/*  Kernels of layer_norm or rms_norm. Kernels of rms_norm take the same parameters, and ignore what they do
    not need. */
typedef struct ignis__norm {
    const char *call, *name;
    bool rms;
    ignis__builtin aligned[4], added[4];      /* by a warp, by a warp for a row, for long rows, by a block */
    ignis__builtin rows[4], rows_backward[4]; /* for few packs of a row, more, by a block, and those named _even */
    ignis__builtin averages, columns;
    int weight_packs; /* packs of 16 bytes that a pack's weights take: 2 of f32 ones beside 16 bits, else 1 */
} ignis__norm;

/*  The parameters of a norm's rule. */
typedef struct ignis__norm_rule {
    const ignis__norm *norm; /* first: the backward function reads nothing else */
    double eps;
} ignis__norm_rule;

/*  Arrays of the backward kernels. Partial sums of dw come first, then those of db (not of rms_norm), then
    the column sums of dx. */
typedef struct ignis__norm_backward_work {
    ignis__address dx, partial_w, partial_b, partial_dx, dy, x, w, mean, rstd,
        before; /* before: added to dx (0: nothing) */
    bool sums_dx;
    int64_t rows, n;
    int packed;
} ignis__norm_backward_work;

/*  How the kernels of norm_unaligned.cuh are launched. No threads: they cannot be. */
typedef struct ignis__norm_plan {
    ignis__builtin builtin;
    bool even; /* by the kernel named _even */
    unsigned threads;
    int64_t blocks;
    size_t shared;
} ignis__norm_plan;

#include "../shared/norm.h"

#include "../shared/border.h"
#include "../shared/image.h"

#define IGNIS__IMAGE_LIMIT ((int64_t)1 << 28) /* of sizes: products of two, and sums of some, fit 64 bits */

#include "../shared/channel_norm.h"

typedef struct ignis__channel_norm {
    const char *call;
    bool given; /* mean and variance do not depend on x */
    ignis__channel_sizes sizes;
    double eps;
} ignis__channel_norm;

#include "../shared/rope.h"

/*  The parameters of the kernel. The last one is passed by value: a captured launch may outlive a table. */
typedef struct ignis__rope {
    int64_t rows, seq, offset;
    ignis__address bounds; /* of documents, from whose first row positions count; 0: from that of the sequence */
    int heads, half;
    double frequencies[IGNIS__ROPE_HALF];
    double direction; /* of the rotation that is recorded; 1, or -1: back. This is for the host */
} ignis__rope;

/*  Rows whose first elements are heads: the first one, and elements from row to row. */
typedef struct ignis__rope_rows {
    ignis__address address;
    int64_t row;
} ignis__rope_rows;

/*  Rows [rows, n] of elements with their positions, in pairs of lists: each pass reads one and writes the
    other. See kernels/sort.cu. */
typedef struct ignis__radix {
    ignis_dtype dtype;
    int64_t rows, n;
    ignis__address keys[2], positions[2];
} ignis__radix;

/*  How elements of a shape relate to an array indexed along a dimension: strides.from leads to a position,
    strides.to to the index. */
typedef struct ignis__indexing {
    const char *call;
    ignis_shape shape; /* of the indexed array */
    int64_t size, dim_stride;
    int dim;
    ignis__strides strides;
} ignis__indexing;

typedef struct ignis__cross_entropy {
    int64_t rows, classes, stride, ignore_index;
    int mean, target_bytes;
} ignis__cross_entropy;

/*  Addresses of a backward: the gradient of the logits, that of the loss, and the results of forward. */
typedef struct ignis__cross_entropy_addresses {
    ignis__address gradient, grad, logits, targets, log_sums, scale;
} ignis__cross_entropy_addresses;

typedef struct ignis__cross_entropy_work {
    ignis__address loss, scale, log_sums, gradient, logits, targets, losses, count;
    ignis__rows plan;
    ignis__builtin builtin;
    bool counts; /* the kernel counts the rows that are not ignored itself */
    bool part;   /* these are some of the rows; their count is known */
} ignis__cross_entropy_work;

#define IGNIS__COUNT_BLOCKS 64 /* and one more number: the counts that they leave */

/*  The results of forward. The log-sums of rows have two parts: [2, rows], the maximum and the rest. */
typedef struct ignis__cross_entropy_results {
    ignis__array *loss, *scale, *log_sums;
} ignis__cross_entropy_results;

#include "../shared/attention.h"

typedef struct ignis__attention_rows ignis__attention_rows;

/*  How the caller says where documents begin. */
typedef enum ignis__documents {
    IGNIS__DOCUMENTS_NONE,
    IGNIS__DOCUMENTS_IDS,
    IGNIS__DOCUMENTS_OFFSETS
} ignis__documents;

/*  An attention, and what its launch depends on. */
typedef struct ignis__attention {
    ignis__attention_params params;
    int bias_dtype, has_lengths; /* 0: none. This and the next are for the host: no kernel has them */
    ignis__documents documents;
    int windowed; /* the caller has set a window, which longer rows exceed */
} ignis__attention;

/*  How a kernel is launched: rows of a block, rows that it steps over at a time, threads and dynamic shared
    memory. */
typedef struct ignis__attention_shape {
    int rows, walk, threads, shared;
} ignis__attention_shape;

typedef struct ignis__attention_variant {
    char define[96];
    ignis__builtin forward_kernel, delta_kernel, kv_kernel, q_kernel, bias_kernel;
    ignis__attention_shape forward, kv, q, bias;
} ignis__attention_variant;

/*  Geometry of kernels/attention_hopper.cu by the largest head size: teams of a block, groups of 64 queries
    of a team, keys of a tile, and tiles of k and of v that are loaded or on their way. */
typedef struct ignis__attention_hopper_shape {
    int head_dim, teams, groups, keys, stages;
} ignis__attention_hopper_shape;

#include "../shared/fft.h"

/*  Transforms of n complex numbers that wait for their launches. */
typedef struct ignis__fft_work {
    ignis__fft_params params;
    ignis_dtype dtype;
    int64_t n, count_c; /* count_c: indices c */
    int load, store;    /* kinds of signals */
} ignis__fft_work;

/*  The transform along one dimension: [outer, in, inner] becomes [outer, out, inner]. Signals are cut or filled to n
    points, and results are cut or filled to `out`. */
typedef struct ignis__fft_step {
    int64_t outer, in, n, out, inner; /* in and out: real numbers on the side of real signals, else complex ones */
    int load, store;
    bool is_inverse;
    double scale, inner_weight; /* inner_weight: of numbers inside a half spectrum, each of which represents two */
} ignis__fft_step;

#define IGNIS__FFT_LONGEST ((int64_t)1 << 29)

#define IGNIS__LETTERS 52
#define IGNIS__LABELS (IGNIS__LETTERS + IGNIS_MAX_DIMS) /* letters, and the dimensions of dots */

/*  A tensor of ignis_einsum, with a label for each of its dimensions. */
typedef struct ignis__term {
    ignis_tensor tensor;
    bool is_made; /* by ignis_einsum, which releases it */
    bool has_dots;
    int count;
    uint8_t label[IGNIS_MAX_DIMS];
    int64_t size[IGNIS_MAX_DIMS];
} ignis__term;

typedef struct ignis__einsum {
    ignis__op *op; /* of the checks */
    const char *equation;
    int count;
    int64_t size[IGNIS__LABELS]; /* -1: no operand has the label */
    ignis__term terms[IGNIS_MAX_OPERANDS], result;
} ignis__einsum;

/*  q, k and v as three tensors; in one tensor; or of one query, where num_kv_heads follows from the shapes. */
typedef enum ignis__sdpa_kind { IGNIS__SDPA, IGNIS__SDPA_PACKED, IGNIS__SDPA_DECODE } ignis__sdpa_kind;

/*  Values that the backward of q, k and v in one tensor needs besides the saved arrays. */
typedef struct ignis__sdpa_packed {
    ignis__attention attention;
    ignis__rope rope; /* of q and k; no heads: they are not rotated */
} ignis__sdpa_packed;

/*  A linear operation of one tensor, and its adjoint, for vjp functions: computes from op->in[0] the result, or with
    `back` the gradient. */
typedef ignis__array *(*ignis__linear_fn)(ignis__op *op, const void *params, bool back);

typedef struct ignis__adjoint {
    ignis__linear_fn fn;
    bool back;
    uint64_t params[64]; /* bytes of any struct, aligned */
} ignis__adjoint;

/*  Of sums of rows by id: row i counts for ids [i, 2^shift] elements, times the weights of these. */
typedef struct ignis__row_weights {
    ignis__array *weights;
    int shift;
} ignis__row_weights;

#define IGNIS__COMPOSED_ARRAYS 4 /* saved arrays of an operation, and its inputs */

/*  The tensors that the gradient of an operation is computed from, and the gradients. */
typedef struct ignis__gradient_args {
    ignis_tensor gradient;                      /* of the result */
    ignis_tensor saved[IGNIS__COMPOSED_ARRAYS]; /* over the saved arrays */
    const bool *needed;
    const void *params;
    ignis_tensor result[IGNIS__COMPOSED_ARRAYS]; /* for each needed input; no handle after a failure */
} ignis__gradient_args;

/*  Computes gradients by operations on tensors, so that they can be recorded. */
typedef struct ignis__composed_gradient {
    const char *call;
    void (*fn)(ignis__gradient_args *args);
    /* Of each saved array: the number of the input that it is, or one of those below. */
    signed char saved[IGNIS__COMPOSED_ARRAYS];
    /* Computes the first saved tensors again from the input, which is the last one, for operations with several
       results; NULL: not needed. */
    void (*again_fn)(ignis_tensor input, ignis_tensor *saved);
} ignis__composed_gradient;

enum { IGNIS__SAVED_OUTPUT = -1, IGNIS__SAVED_CONSTANT = -2, IGNIS__SAVED_AGAIN = -3 };

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* vjp.c, vjp_table.c, and beside the operations */
IGNIS__PRIVATE ignis_tensor ignis__vjp_input(const ignis_vjp_args *args, int input, int saved);
IGNIS__PRIVATE ignis_tensor ignis__vjp_output(const ignis_vjp_args *args, int saved);
IGNIS__PRIVATE ignis_tensor ignis__vjp_constant(const ignis_vjp_args *args, int saved);
IGNIS__PRIVATE const ignis_shape *ignis__vjp_shape(const ignis_vjp_args *args, int input);
IGNIS__PRIVATE ignis_tensor ignis__vjp_zeros(const ignis_vjp_args *args, int input, ignis_shape shape);
IGNIS__PRIVATE ignis_tensor ignis__vjp_wide(ignis_tensor x);
IGNIS__PRIVATE void ignis__vjp_linear(const ignis_vjp_args *args, ignis__linear_fn fn, const void *params, size_t size,
                                      bool back);
IGNIS__PRIVATE ignis_tensor ignis__vjp_sum_to(ignis_tensor x, const ignis_shape *shape);
IGNIS__PRIVATE ignis_tensor ignis__vjp_sum_axis(ignis_tensor x, const ignis__axis *axis);
IGNIS__PRIVATE void ignis__vjp_plain(const ignis_vjp_args *args, ignis_tensor plain, const ignis_tensor *inputs);
IGNIS__PRIVATE ignis_rule ignis__composed_rule(const ignis__op *op, const char *name,
                                               const ignis__composed_gradient *gradient, const void *params,
                                               size_t size);
IGNIS__PRIVATE void ignis__vjp_of_cumprod(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_logcumsumexp(const ignis_vjp_args *args);
IGNIS__PRIVATE ignis_tensor ignis__vjp_of_prod(ignis_tensor v, ignis_tensor g, const ignis__axis *axis);
IGNIS__PRIVATE void ignis__vjp_of_scatter(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_linear_cross_entropy(const ignis_vjp_args *args);
IGNIS__PRIVATE ignis_tensor ignis__rope_recorded(ignis_tensor x, const ignis__rope *rope, ignis__array *own,
                                                 ignis__array *bounds);
IGNIS__PRIVATE void ignis__vjp_of_dropout(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_sum(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_slice(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_concat(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_transpose(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_strided(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_band(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_rope(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_formula(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_mlp(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_mlp_gated(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_product(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_matmul(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_linear(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_fft(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_complex_mul(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_cross_entropy(const ignis_vjp_args *args);
extern const char ignis__soft_cross_entropy_name[35];
IGNIS__PRIVATE void ignis__vjp_of_soft_cross_entropy(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_conv(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_conv_transpose(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_conv_part(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_grid_sample(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_unfold(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_fold(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_pad_border(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_max_pool(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_avg_pool(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_upsample(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_adjoint(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_sdpa(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_sdpa_packed(const ignis_vjp_args *args);
IGNIS__PRIVATE ignis_tensor ignis__softmax_of(ignis__tensor *x, ignis_tensor values);

/* operation.c */
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE bool ignis__op_fail(ignis__op *op, ignis_diagnostic diagnostic, const char *format, ...);
IGNIS__PRIVATE bool ignis__op_begin(ignis__op *op, const char *call, int count, const ignis_tensor *handles);
IGNIS__PRIVATE bool ignis__op_begin_backward(ignis__op *op, const char *call, const ignis_backward_args *args);
IGNIS__PRIVATE ignis__array *ignis__op_new(ignis__op *op, const ignis_shape *shape, ignis_dtype dtype);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__op_new_like(ignis__op *op, const ignis__array *like);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__op_new_row(ignis__op *op, int64_t n, ignis_dtype dtype);
IGNIS__PRIVATE ignis__array *ignis__op_new_rows(ignis__op *op, int64_t rows, int64_t n, ignis_dtype dtype);
IGNIS__PRIVATE ignis__array *ignis__op_view(ignis__op *op, ignis__array *from, const ignis_shape *shape, int64_t numel,
                                            int64_t offset);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__address ignis__op_read(ignis__op *op, ignis__array *array);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__address ignis__op_write(ignis__op *op, ignis__array *array);
IGNIS__PRIVATE ignis__launch_shape ignis__launch_grid(int64_t grid_x, int64_t grid_y, int64_t grid_z, unsigned block_x,
                                                      unsigned block_y, size_t shared);
IGNIS__PRIVATE ignis__launch_shape ignis__launch_row(int64_t blocks, unsigned threads, size_t shared);
IGNIS__PRIVATE void ignis__op_launch(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, const char *define,
                                     ignis__launch_shape shape, void **params);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__op_launch_row(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype,
                                                         int64_t blocks, unsigned threads, void **params);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__op_launch_elementwise(ignis__op *op, ignis__builtin builtin,
                                                                 ignis_dtype dtype, int64_t numel, void **params);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__op_copy(ignis__op *op, ignis__array *to, ignis__array *from);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__op_zero(ignis__op *op, ignis__array *array);
IGNIS__PRIVATE void ignis__op_fill(ignis__op *op, ignis__array *array, double value);
IGNIS__COLD IGNIS__PRIVATE bool ignis__op_read_back(ignis__op *op, void *to, ignis__address from, int64_t size);
IGNIS__PRIVATE ignis__address ignis__op_zeroed(ignis__op *op);
IGNIS__PRIVATE void ignis__op_free_made(ignis__op *op, int count);
IGNIS__PRIVATE ignis_status ignis__op_leave(ignis__op *op);
IGNIS__PRIVATE void ignis__op_leave_two(ignis__op *op, ignis_tensor *second);
IGNIS__PRIVATE ignis_tensor ignis__op_result(ignis__op *op, ignis__array *output, int count,
                                             ignis__tensor *const *inputs, const ignis__tape_state *tape_states,
                                             const ignis_rule *rule);
IGNIS__PRIVATE ignis_tensor ignis__op_end(ignis__op *op, ignis__array *output, const ignis_rule *rule);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__op_save(ignis__op *op, ignis__array *array);
IGNIS__PRIVATE void ignis__op_save_inputs(ignis__op *op, int first, int last);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__op_keep(ignis__op *op, ignis__array *array);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_rule ignis__op_rule(const ignis__op *op, const char *name,
                                                         ignis_status (*backward_fn)(const ignis_backward_args *args),
                                                         const void *params, size_t params_size);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_tensor ignis__op_end_recorded(
    ignis__op *op, ignis__array *output, const char *name, ignis_status (*backward_fn)(const ignis_backward_args *args),
    const void *params, size_t params_size);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__op_finish_backward(ignis__op *op, const ignis_backward_args *args,
                                                                      int count, ignis__array *const *gradients);
IGNIS__PRIVATE ignis_status ignis__op_finish_backward_with_sums(ignis__op *op, const ignis_backward_args *args,
                                                                int count, ignis__array *const *gradients,
                                                                ignis__array *sums);
IGNIS__PRIVATE ignis_status ignis__op_finish_backward_one(ignis__op *op, const ignis_backward_args *args,
                                                          ignis__array *gradient);

/* check.c */
IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__op_same_dtype(ignis__op *op, int input, const char *name);
IGNIS__PRIVATE bool ignis__op_is_weight(ignis__op *op, int input, const char *name);
IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__op_is_float(ignis__op *op, int input, const char *name);
IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__op_is_index(ignis__op *op, int input, const char *name);
IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__op_same_shape(ignis__op *op, int input, const char *name);
IGNIS__PRIVATE bool ignis__op_is_row(ignis__op *op, int input, const char *name, int64_t n);
IGNIS__PRIVATE bool ignis__op_eps(ignis__op *op, double *eps);
IGNIS__PRIVATE bool ignis__op_same_device(ignis__op *op, const ignis__array *array, const char *name);
IGNIS__PRIVATE bool ignis__op_dim(ignis__op *op, int *dim, const char *name);
IGNIS__PRIVATE ignis_dtype ignis__wide_dtype(ignis_dtype dtype);
IGNIS__PRIVATE ignis_dtype ignis__sum_dtype(ignis_dtype dtype);
IGNIS__PRIVATE int64_t ignis__pack_elements(ignis_dtype dtype);

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

/* sum.c */
IGNIS__PRIVATE void ignis__op_sum(ignis__op *op, ignis__array *out, ignis__array *a, ignis__array *b, double factor,
                                  const ignis__axis *axis);

/* scale.c */
IGNIS__PRIVATE ignis__array *ignis__op_scaled(ignis__op *op, ignis__array *from, double factor);

/* binary.c */
IGNIS__PRIVATE ignis_status ignis__add_backward(const ignis_backward_args *args);

/* cast.c */
IGNIS__PRIVATE ignis__array *ignis__op_cast(ignis__op *op, ignis__array *from, ignis_dtype dtype);

/* map_backward.c */
IGNIS__PRIVATE ignis_status ignis__formula_backward(const ignis_backward_args *args);

/* map.c */
IGNIS__PRIVATE bool ignis__formula_begin_tensors(ignis__op *op, const char *call, const char *formula,
                                                 const ignis_inputs *inputs, int results, ignis__formula_run *run,
                                                 ignis__formula_rule *rule, ignis__loss_kind loss);
IGNIS__PRIVATE ignis_tensor ignis__formula_end(ignis__op *op, ignis__array *out, const char *name,
                                               ignis__formula_rule *rule);
IGNIS__PRIVATE ignis_tensor ignis__formula_tensor(const char *call, const char *formula, const ignis_inputs *inputs,
                                                  ignis__loss_kind loss);

/* map_reduce.c */
IGNIS__PRIVATE ignis_tensor ignis__formula_reduced(const char *call, ignis_reducer reducer, const char *formula,
                                                   const ignis_inputs *inputs, const ignis_reduce_desc *desc,
                                                   ignis__loss_kind loss);

/* transpose.c */
IGNIS__PRIVATE ignis__array *ignis__op_exchange(ignis__op *op, ignis__array *from, const ignis_shape *shape,
                                                const ignis__exchange *given);

/* concat.c */
IGNIS__PRIVATE ignis__row_slices ignis__row_slices_of(ignis__array *array, int64_t offset, int64_t row);
IGNIS__PRIVATE void ignis__op_copy_rows(ignis__op *op, ignis__row_slices to, ignis__row_slices from, int64_t length,
                                        int64_t rows);

/* strided_copy.c */
IGNIS__PRIVATE bool ignis__strides_merge(const ignis__strides *strides, ignis__strided *strided, bool sorted);
IGNIS__PRIVATE bool ignis__strides_packed(const long long *strides, int rank, int but, int64_t pack);
IGNIS__PRIVATE void ignis__strided_finish(ignis__strided *k);
IGNIS__PRIVATE void ignis__op_strided(ignis__op *op, ignis__array *to, ignis__array *from,
                                      const ignis__strides *strides);
IGNIS__PRIVATE bool ignis__strided_begin(ignis__op *op, const char *call, ignis_tensor tensor, ignis__strides *s);
IGNIS__PRIVATE ignis_tensor ignis__strided_end(ignis__op *op, const char *name, const ignis_shape *shape,
                                               ignis__strides *strides, const double *fill);

/* slice_step.c */
IGNIS__PRIVATE void ignis__strides_step(ignis__strides *s, int dim, int64_t start, int64_t len, int64_t step);

/* permute.c */
IGNIS__PRIVATE bool ignis__op_dim_once(ignis__op *op, const int *dims, int i, int *dim, unsigned *seen);

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

/* row_launch.c */
IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__op_rows(ignis__op *op, const ignis__array *array, int64_t *rows, int64_t *n);
IGNIS__PRIVATE int64_t ignis__row_share(ignis_dtype dtype, bool packed);
IGNIS__PRIVATE unsigned ignis__row_threads(int64_t n, int64_t share, unsigned most);
IGNIS__PRIVATE ignis__rows ignis__rows_plan(const ignis__op *op, ignis_dtype dtype, int64_t rows, int64_t n,
                                            bool packed, int arrays, int blocks);
IGNIS__PRIVATE void ignis__rows_launch(ignis__op *op, const ignis__rows *plan, ignis__builtin warp,
                                       ignis__builtin block, ignis_dtype dtype, void **params);

/* geometry.c */
IGNIS__PRIVATE ignis__conv_grid ignis__conv_forward_grid(const ignis__conv_side *side);
IGNIS__PRIVATE int64_t ignis__conv_phases(const ignis__conv_side *side);
IGNIS__PRIVATE ignis__conv_grid ignis__conv_backward_grid(const ignis__conv_side *side, int64_t tap, int64_t *phase);
IGNIS__PRIVATE bool ignis__conv_skips_pixels(const ignis__conv *conv);
IGNIS__PRIVATE int64_t ignis__conv_taps(const ignis__conv *c);
IGNIS__PRIVATE int64_t ignis__conv_pixels(const ignis__conv *c);
IGNIS__PRIVATE bool ignis__conv_is_product(const ignis__conv *c, ignis__product *product);
IGNIS__PRIVATE bool ignis__conv_is_depthwise(const ignis__conv *c);
IGNIS__PRIVATE void ignis__conv_operands(ignis__op *op, const ignis__conv *conv, ignis__conv_operand operand[2],
                                         ignis__array *const arrays[2], const int64_t channels[2]);
IGNIS__PRIVATE void ignis__conv_patches(ignis__gemm *gemm, const ignis__conv *conv, int of,
                                        const ignis__conv_grid walk[IGNIS__SIDES], const int64_t size[IGNIS__SIDES],
                                        const ignis__conv_operand *pixels, int64_t channels);
IGNIS__PRIVATE void ignis__conv_weights(ignis__gemm *p, const ignis__conv *c, const ignis__conv_operand *w);

/* depthwise.c */
IGNIS__PRIVATE void ignis__depthwise(ignis__op *op, const ignis__conv *conv, ignis__gemm *gemm, ignis__array *sums);

/* grouped.c */
IGNIS__PRIVATE bool ignis__grouped_plan(const ignis__conv *conv, const ignis__gemm *gemm, bool weights,
                                        ignis__grouped *plan);
IGNIS__PRIVATE bool ignis__grouped_exists(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *p,
                                          const ignis__grouped *plan, bool weights);
IGNIS__PRIVATE void ignis__grouped_run(ignis__op *op, const ignis__conv *c, ignis__gemm *p, ignis__grouped *plan,
                                       ignis__array *sums);

/* implicit_gemm.c */
IGNIS__PRIVATE void ignis__conv_forward(ignis__op *op, const ignis__conv *conv, ignis__array *out, ignis__array *x,
                                        ignis__array *w, ignis__array *bias);
IGNIS__PRIVATE void ignis__conv_grad_x(ignis__op *op, const ignis__conv *conv, ignis__array *dx, ignis__array *g,
                                       ignis__array *w, ignis__array *bias);
IGNIS__PRIVATE void ignis__conv_grad_w(ignis__op *op, const ignis__conv *conv, ignis__array *dw, ignis__array *db,
                                       ignis__array *g, ignis__array *x);

/* conv.c */
IGNIS__PRIVATE bool ignis__conv_read_number(ignis__op *op, const char *name, const int *given, int sides, int least,
                                            int standard, int64_t to[IGNIS__SIDES]);
IGNIS__PRIVATE int ignis__conv_side_of(int sides, int i);
IGNIS__PRIVATE void ignis__conv_drop_planes(ignis__conv *conv);

/* layer_norm_launch.c */
extern const ignis__norm ignis__layer_norm, ignis__layer_norm_wide;
extern const ignis__norm ignis__rms_norm, ignis__rms_norm_wide;
IGNIS__PRIVATE int64_t ignis__op_resident(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, unsigned threads,
                                          size_t shared);
IGNIS__PRIVATE int64_t ignis__norm_alignment_period(ignis_dtype dtype, int64_t n);
IGNIS__PRIVATE ignis__norm_plan ignis__norm_rows_plan(ignis__op *op, const ignis__norm *norm, ignis_dtype dtype,
                                                      int64_t rows, int64_t n, int arrays, bool backward);
IGNIS__PRIVATE bool ignis__norm_is_unaligned(ignis_dtype dtype, int64_t n, bool packed, ignis__address addresses);
IGNIS__PRIVATE int ignis__norm_kernel(const ignis__op *op, ignis_dtype dtype, int64_t rows, int64_t n, bool packed,
                                      bool anywhere, ignis__rows *plan);

/* layer_norm_backward.c */
IGNIS__PRIVATE void ignis__sum_partials(ignis__op *op, ignis_dtype dtype, ignis__address *to, int matrices,
                                        ignis__address partial, int rows, int64_t n);
IGNIS__PRIVATE ignis_status ignis__norm_backward(const ignis_backward_args *args);

/* image.c */
IGNIS__PRIVATE bool ignis__image_check(ignis__op *op, const int64_t *second_numbers, int count, int64_t *n,
                                       int64_t *size, int64_t *channels);
IGNIS__PRIVATE ignis_shape ignis__image_shape(const ignis_shape *like, const int64_t *size);
IGNIS__PRIVATE void ignis__images_set(ignis__images *images, ignis_dtype dtype, int64_t n, int64_t channels,
                                      const int64_t *dst, const int64_t *src, ignis__address addresses, bool shares);
IGNIS__PRIVATE void ignis__images_launch(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype,
                                         const ignis__images *images, void **params);

/* channel_norm.c */
IGNIS__PRIVATE ignis_tensor ignis__channel_norm_end(ignis__op *op, const char *name, ignis__channel_norm *norm,
                                                    double momentum, double eps, ignis__array *const *running);

/* rope.c */
IGNIS__PRIVATE double ignis__root_of_degree(double x, int degree);
IGNIS__PRIVATE double ignis__square_root(double x);
IGNIS__PRIVATE float *ignis__rope_round_frequencies(float *to, const double *frequencies);
IGNIS__PRIVATE void ignis__rope_rotate(ignis__op *op, ignis__rope *rope, ignis_dtype dtype, ignis__rope_rows y,
                                       ignis__rope_rows x, ignis__array *own, double direction);
IGNIS__PRIVATE bool ignis__rope_prepare(ignis__op *op, const ignis_rope_desc *desc, const ignis__array *own, int heads,
                                        int64_t head_dim, ignis__rope *rope);
IGNIS__PRIVATE ignis__array *ignis__rope_frequency_array(ignis__op *op, const ignis_rope_desc *desc);

/* radix_sort.c */
IGNIS__PRIVATE void ignis__radix_begin(ignis__op *op, ignis__radix *sort, ignis_dtype dtype, int64_t rows, int64_t n,
                                       int lists);
IGNIS__PRIVATE void ignis__radix_run(ignis__op *op, ignis__radix *sort, ignis__address from, int passes, int descending,
                                     ignis__address values, ignis__address positions, int64_t k);
IGNIS__PRIVATE int ignis__radix_passes(uint64_t highest);

/* embedding.c */
IGNIS__PRIVATE void ignis__op_add_rows(ignis__op *op, ignis__array *rows, ignis__array *grad, ignis__array *ids,
                                       const ignis__row_weights *weights, int64_t vocab, int64_t n, int adds);

/* index.c */
IGNIS__PRIVATE void ignis__indexing_make(ignis__indexing *x, const char *call, const ignis_shape *indexed, int dim,
                                         const ignis_shape *shape);
IGNIS__PRIVATE void ignis__op_indexed(ignis__op *op, ignis__builtin builtin, ignis__array *to, ignis__array *from,
                                      ignis__array *ids, const ignis__indexing *indexing, int nan);
IGNIS__PRIVATE ignis_status ignis__gather_backward(const ignis_backward_args *args);
IGNIS__PRIVATE void ignis__op_scatter_add(ignis__op *op, ignis__array *to, ignis__array *from, ignis__array *ids,
                                          const ignis__indexing *indexing);

IGNIS__PRIVATE bool ignis__index_fits(ignis__op *op, int *dim, bool row);
IGNIS__PRIVATE bool ignis__index_src_fits(ignis__op *op);

/* scan.c */
IGNIS__PRIVATE ignis__array *ignis__op_sum_up(ignis__op *op, ignis__array *rows);
IGNIS__PRIVATE ignis__array *ignis__op_recurrence(ignis__op *op, ignis__array *x, ignis__array *g);

/* sort.c */
IGNIS__PRIVATE void ignis__op_sort_rows(ignis__op *op, ignis__array *values, ignis__array *positions,
                                        ignis__array *from, int64_t rows, int64_t n, int64_t k, int descending);
IGNIS__PRIVATE ignis_status ignis__sort_backward(const ignis_backward_args *args);

/* cross_entropy_launch.c */
IGNIS__PRIVATE ignis_status ignis__cross_entropy_rescale(const ignis_backward_args *args);
IGNIS__PRIVATE void ignis__cross_entropy_launch_backward(ignis__op *op, ignis__cross_entropy *entropy,
                                                         ignis_dtype dtype, ignis__cross_entropy_addresses *at);
IGNIS__PRIVATE ignis_status ignis__cross_entropy_backward(const ignis_backward_args *args);
IGNIS__PRIVATE bool ignis__cross_entropy_is_soft(const ignis_cross_entropy_desc *desc);
IGNIS__PRIVATE bool ignis__cross_entropy_prepare(ignis__op *op, const ignis_cross_entropy_desc *desc, int64_t rows,
                                                 int64_t columns, const ignis__array *targets,
                                                 ignis__cross_entropy *entropy);
IGNIS__PRIVATE bool ignis__cross_entropy_is_fused(ignis_dtype dtype);
IGNIS__PRIVATE void ignis__cross_entropy_plan(ignis__op *op, const ignis__cross_entropy *entropy,
                                              ignis__cross_entropy_work *work, ignis_dtype dtype);
IGNIS__PRIVATE void ignis__cross_entropy_count(ignis__op *op, ignis__cross_entropy *entropy,
                                               ignis__cross_entropy_work *work, ignis_dtype dtype);
IGNIS__PRIVATE void ignis__cross_entropy_launch(ignis__op *op, ignis__cross_entropy *entropy,
                                                ignis__cross_entropy_work *work, ignis_dtype dtype);
IGNIS__PRIVATE void ignis__cross_entropy_forward(ignis__op *op, ignis__cross_entropy *entropy,
                                                 const ignis__cross_entropy_results *found, ignis__array *gradient);

/* loss.c */
IGNIS__PRIVATE ignis_tensor ignis__loss_rows(const char *call, const char *formula, ignis_inputs inputs,
                                             ignis__loss_kind loss);
IGNIS__PRIVATE bool ignis__rows_begin(const char *call, ignis_tensor rows, ignis_tensor targets,
                                      const ignis_cross_entropy_desc *desc, ignis__cross_entropy *entropy,
                                      ignis_tensor *column);
IGNIS__PRIVATE ignis_tensor ignis__loss_of_rows(const char *call, ignis_tensor losses, ignis_reduction reduction,
                                                ignis_tensor targets, int64_t k);

/* plan.c */
extern int64_t ignis__fft_pass_limit;
IGNIS__PRIVATE bool ignis__fft_is_smooth(int64_t n);
IGNIS__PRIVATE int64_t ignis__fft_smooth_up(int64_t n);
IGNIS__PRIVATE bool ignis__fft_fits(const ignis__op *op, const ignis__fft_work *work);
IGNIS__PRIVATE int ignis__fft_split(int64_t n, int64_t *parts);
IGNIS__PRIVATE void ignis__fft_pass(ignis__op *op, const ignis__fft_work *work);

/* passes.c */
IGNIS__PRIVATE ignis__array *ignis__fft_step_run(ignis__op *op, const ignis__fft_step *step, ignis__array *from,
                                                 ignis__array *to, const ignis_shape *shape);

/* equation.c */
IGNIS__PRIVATE bool ignis__equation_read(ignis__einsum *e);

/* contract.c */
IGNIS__PRIVATE ignis_tensor ignis__einsum_run(ignis__einsum *e);

/* select.c */
IGNIS__PRIVATE void ignis__attention_cost(const ignis__attention *p, ignis_dtype dtype, int like_q, int like_k,
                                          int products);
IGNIS__PRIVATE int ignis__attention_range(const ignis__attention *p);
IGNIS__PRIVATE int ignis__attention_hopper_range(const ignis__attention *p);
IGNIS__PRIVATE void ignis__attention_options(char *define, size_t size, const ignis__attention *p, int range);
IGNIS__PRIVATE bool ignis__attention_takes_mma(const ignis__op *op, ignis_dtype dtype, const ignis__attention *p);
IGNIS__PRIVATE const ignis__attention_hopper_shape *ignis__attention_hopper_choose(const ignis__op *op,
                                                                                   const ignis__attention *p,
                                                                                   bool ranged);
IGNIS__PRIVATE void ignis__attention_hopper_define(char *define, size_t size, const ignis__attention *p,
                                                   const ignis__attention_hopper_shape *shape);
IGNIS__PRIVATE bool ignis__attention_takes_wgmma(const ignis__op *op, ignis_dtype dtype,
                                                 const ignis__attention *attention);
IGNIS__PRIVATE void ignis__attention_tma_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype,
                                             const ignis__attention *p, const ignis__attention_rows *tensor,
                                             bool of_keys, int rows, int slabs);
IGNIS__PRIVATE int ignis__attention_lse_count(const ignis__attention *p);
IGNIS__PRIVATE ignis__attention_variant ignis__attention_choose(const ignis__op *op, ignis_dtype dtype,
                                                                const ignis__attention *attention);
extern const char *const ignis__attention_backward_forms[];
IGNIS__COLD IGNIS__PRIVATE void ignis__attention_request(ignis__op *op, ignis_dtype dtype,
                                                         const ignis__attention *given, bool backward);
IGNIS__PRIVATE void ignis__attention_launch(ignis__op *op, const ignis__attention_variant *variant,
                                            ignis__builtin kernel, const ignis__attention_shape *shape,
                                            ignis_dtype dtype, int rows, int heads, ignis__attention *p);

/* operands.c */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__attention_rows ignis__attention_rows_of(const ignis_shape *shape, int head_dim,
                                                                              ignis__address address);
IGNIS__PRIVATE ignis__attention_rows ignis__attention_bias_rows(const ignis_shape *shape, ignis__address address);
IGNIS__PRIVATE int ignis__attention_read_options(ignis__op *op, int input, ignis__attention *p);
IGNIS__PRIVATE ignis__array *ignis__attention_find_bounds(ignis__op *op, ignis__attention *p);
IGNIS__PRIVATE void ignis__attention_save_options(ignis__op *op, int input, ignis__array *bounds);
IGNIS__PRIVATE void ignis__attention_operands(ignis__op *op, ignis__array *out, ignis__attention *p);
IGNIS__PRIVATE bool ignis__attention_heads(ignis__op *op, int heads, int64_t kv_heads);
IGNIS__PRIVATE bool ignis__attention_sizes(ignis__op *op, int heads, int kv_heads, int most,
                                           ignis__attention *attention);
IGNIS__PRIVATE bool ignis__attention_packed_sizes(ignis__op *op, int heads, int kv_heads, ignis__attention *p);
IGNIS__PRIVATE ignis__array *ignis__attention_new_statistics(ignis__op *op, const ignis__attention *p,
                                                             ignis_dtype dtype, int count);

/* backward.c */
IGNIS__PRIVATE void ignis__attention_backward_run(ignis__op *op, ignis_dtype dtype, ignis__attention *attention);
IGNIS__PRIVATE ignis__array *ignis__attention_grad_bias(ignis__op *op, int input, bool needed, ignis__attention *p);
IGNIS__PRIVATE bool ignis__attention_has_one_query_tile(const ignis__attention *p);
IGNIS__PRIVATE bool ignis__attention_backward_takes_wgmma(ignis__op *op, ignis_dtype dtype, const ignis__attention *p);
IGNIS__PRIVATE void ignis__attention_backward_wgmma(ignis__op *op, ignis_dtype dtype, ignis__attention *attention,
                                                    ignis__address sums, ignis__rotation *rotation);
IGNIS__PRIVATE ignis_status ignis__sdpa_backward(const ignis_backward_args *args);

/* sdpa.c */
IGNIS__PRIVATE int ignis__sdpa_inputs(const ignis_sdpa_desc *desc, ignis_tensor *inputs, int count);
IGNIS__PRIVATE bool ignis__sdpa_prepare(ignis__op *op, const ignis_sdpa_desc *desc, ignis__sdpa_kind kind,
                                        ignis__attention *attention);
IGNIS__PRIVATE void ignis__sdpa_run(ignis__op *op, ignis_dtype dtype, ignis__attention *p);
