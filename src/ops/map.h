/* >>ops.formula - formulas of tensors ---------------------------------------------------------------------------

   A formula is one kernel forward, and one for all gradients of a result.
   ON FORMULAS has the language. */

/*  The named inputs of a formula: IGNIS_INPUTS(x, y, IGNIS_VALUE(a, 2.5), IGNIS_NAMED(w, model->weights))
    makes them. */
typedef struct ignis_inputs {
    const char *names; /* separated by commas: "x, y, a, w". MACRO(name, anything) may replace a name */
    int count;         /* 1 to IGNIS_MAX_INPUTS */
    ignis_tensor tensor[IGNIS_MAX_INPUTS]; /* tensors, and values made by ignis_value */
} ignis_inputs;

/*  ignis_map - a formula of tensors, element by element, in one pass, with its gradient: see ON FORMULAS
    ignis_map("silu(gate) * up", IGNIS_INPUTS(gate, up))
    Shapes: inputs broadcast by NumPy's rules, up to 8 dimensions. Any dtypes: the result has the widest
    floating type of the inputs (f32 where f16 meets bf16, and where all are integers), a comparison u8, an
    integer i64. Gradients of inputs that are broadcast are summed in f32 (f64 in f64), in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (the formula, which the message has with the column; names; null; never written
    to), SHAPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_map(const char *formula, ignis_inputs inputs);

/*  ignis_map_shape - a new tensor of a shape from a formula of index(), rand(), randn() and values, without tensors
    ignis_map_shape("index(0) == index(1)", IGNIS_SHAPE(8, 8), IGNIS_NO_INPUTS, NULL)
    values has numbers made by ignis_value alone, or is IGNIS_NO_INPUTS. desc may be null for all defaults: the result
    is converted to its dtype.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (the formula, which the message has with the column; names; null; a tensor), SHAPE, DTYPE, DEVICE,
    MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_map_shape(const char *formula, ignis_shape shape, ignis_inputs values,
                                       const ignis_tensor_desc *desc);

/*  ignis_map_many - several results of a formula, which are written apart by commas, in one pass
    ignis_map_many("s = sin(t); c = cos(t); a*c - b*s, a*s + b*c", IGNIS_INPUTS(a, b, t), 2, results)
    Each is as in ignis_map; all have the shape that the inputs give. count is 1 to IGNIS_MAX_INPUTS. Backward
    takes one pass for each of those that are used.
    Returns: IGNIS_OK, and results[0] to results[count - 1] filled; on failure they are 0.
    Errors: those of ignis_map; ARGUMENT (count, which is not that of the formula's results).
    Ownership: as ignis_tensor_from_host, for each result.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_map_many(const char *formula, ignis_inputs inputs, int count, ignis_tensor *results);

typedef struct ignis_reduce_desc {
    int dims[IGNIS_MAX_DIMS]; /* that are reduced; negative ones count from the last one on */
    int dim_count;            /* (0: all are) */
    bool keepdim; /* they stay, with 1 element (false: the result lacks them; it is [1] when none is left) */
} ignis_reduce_desc;

/*  ignis_map_sum, ignis_map_mean - the sum or mean of all elements of a formula of tensors, in one pass;
    ignis_map_reduce - that, the
    largest, ... of all, or along dimensions
    Shapes and dtypes as in ignis_map, and [1] for all. desc may be null for all dimensions. any and all give
    u8, argmax and argmin i64, sums of comparisons i64, the mean of integers f32, rounded once. Sums are in
    f32 (f64 in f64, i64 of integers), in a fixed order. Sums of i64 wrap around; means of i64 do so only
    along dimensions that are not neighbours. NaN is the largest and the smallest number. The sum and norm of
    nothing is 0, prod and all 1, the mean NaN, logsumexp minus infinity.
    Gradients: of max and min the first of equal elements has it; of prod they are right beside zeros, too.
    argmax, argmin, and max, min and prod with a gradient, along dimensions that are not neighbours cost two
    copies: of the formula, in f32 at least, and of that with these dimensions last.
    Returns: the tensor, or no handle.
    Errors: those of ignis_map; ARGUMENT (no such reducer), SHAPE (no such dimension, or twice; max, min,
    argmax or argmin of nothing).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_map_sum(const char *formula, ignis_inputs inputs);
IGNIS_API ignis_tensor ignis_map_mean(const char *formula, ignis_inputs inputs);
IGNIS_API ignis_tensor ignis_map_reduce(ignis_reducer reducer, const char *formula, ignis_inputs inputs,
                                        const ignis_reduce_desc *desc);

/*  ignis_value - a number as an input of ignis_map; IGNIS_VALUE(name, number) calls it
    Another number needs no other kernel, unlike another one in the text of a formula. It has no gradient.
    Returns: a handle that names the number among tensors, until the thread has made 64 more.
    Errors: none.
    Ownership: nothing to free.
    Threads: any; the handle is for the calling thread only. */
IGNIS_API ignis_tensor ignis_value(double value);
