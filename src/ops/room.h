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
#define IGNIS__OP_PRODUCTS (2 * IGNIS_MAX_LAYERS)

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
    bool saves;     /* it computes what its backward function needs: it records, or a checkpoint keeps it */
    bool replays;   /* its results are those that a checkpoint has kept: nothing is to be computed */
    /* Built-in kernels of products and attention are chosen so that a row has the same bits alone or beside
       others. */
    bool steady;
    int count, made_count, saved_count, product_count;
    int kept_count;                      /* of the saved arrays: the last ones, which only the vjp function reads */
    ignis__block *zeroed;                /* memory of ignis__op_zeroed */
    struct ignis__gemm_pending *pending; /* between ignis__gemm_join and ignis__gemm_join_end; else NULL */
    ignis__tensor *tensors[IGNIS__OP_INPUTS]; /* NULL if the operation works on arrays */
    ignis__array *in[IGNIS__OP_INPUTS];
    /* Of tensors. From here on only what the counts say is set. */
    ignis__tape_state tape_state[IGNIS__OP_INPUTS];
    ignis__array *made[IGNIS__OP_MADE];         /* nobody else sees them until ignis__op_hand_over */
    ignis__array *saved[IGNIS__OP_SAVED];       /* for its backward function */
    ignis__array *products[IGNIS__OP_PRODUCTS]; /* made by ignis__op_new_product */
} ignis__op;

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

#include "../shared/cross_entropy.h"

/*  The results of forward. The log-sums of rows have two parts: [2, rows], the maximum and the rest. */
typedef struct ignis__cross_entropy_results {
    ignis__array *loss, *scale, *log_sums;
} ignis__cross_entropy_results;

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
IGNIS__PRIVATE void ignis__vjp_of_cross_entropy(const ignis_vjp_args *args);
extern const char ignis__soft_cross_entropy_name[35];
IGNIS__PRIVATE void ignis__vjp_of_soft_cross_entropy(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_grid_sample(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_pad_border(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_max_pool(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_avg_pool(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_upsample(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_adjoint(const ignis_vjp_args *args);
IGNIS__PRIVATE ignis_tensor ignis__softmax_of(ignis__tensor *x, ignis_tensor values);

/* operation.c */
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE bool ignis__op_fail(ignis__op *op, ignis_diagnostic diagnostic, const char *format, ...);
IGNIS__PRIVATE bool ignis__op_begin(ignis__op *op, const char *call, int count, const ignis_tensor *handles);
IGNIS__PRIVATE bool ignis__op_begin_backward(ignis__op *op, const char *call, const ignis_backward_args *args);
IGNIS__PRIVATE ignis__array *ignis__op_new(ignis__op *op, const ignis_shape *shape, ignis_dtype dtype);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__op_new_like(ignis__op *op, const ignis__array *like);
IGNIS__PRIVATE ignis__array *ignis__op_new_product(ignis__op *op, const ignis_shape *shape, ignis_dtype dtype);
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

/* row_launch.c */
IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__op_rows(ignis__op *op, const ignis__array *array, int64_t *rows, int64_t *n);
IGNIS__PRIVATE int64_t ignis__row_share(ignis_dtype dtype, bool packed);
IGNIS__PRIVATE unsigned ignis__row_threads(int64_t n, int64_t share, unsigned most);
IGNIS__PRIVATE ignis__rows ignis__rows_plan(const ignis__op *op, ignis_dtype dtype, int64_t rows, int64_t n,
                                            bool packed, int arrays, int blocks);
IGNIS__PRIVATE void ignis__rows_launch(ignis__op *op, const ignis__rows *plan, ignis__builtin warp,
                                       ignis__builtin block, ignis_dtype dtype, void **params);

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
