#ifndef IGNIS_NO_TENSORS

/* >>formula - formulas: any expression, element by element ------------------------------------------------------

   A formula is a text such as "a*x + y". It becomes one kernel, compiled when it is first used.
   Threads: every function may be called from any thread. Streams: work is queued on the current stream. */

#define IGNIS_MAX_INPUTS 16 /* of a formula */

/*  The named inputs of a formula; IGNIS_ARRAYS(x, y, IGNIS_ARRAY_VALUE(a, 2.5)) makes them. */
typedef struct ignis_array_inputs {
    /* Separated by commas: "x, y, a". MACRO(name, anything) may replace a name. */
    const char *names;
    int count; /* 1 to IGNIS_MAX_INPUTS */
    /* Arrays, and values made by ignis_array_value. */
    ignis_array array[IGNIS_MAX_INPUTS];
} ignis_array_inputs;

/*  ignis_array_map - compute a formula of arrays into dst, element by element, in one pass: see ON FORMULAS
    ignis_array_map(y, "a*x + y", IGNIS_ARRAYS(x, y, IGNIS_ARRAY_VALUE(a, 2.0)))
    Shapes: inputs broadcast by NumPy's rules, up to 8 dimensions; dst has as many elements as the result, and gives
    it its shape where all inputs are values. Any
    dtypes. The result is converted to the dtype of dst by the rules of ignis_array_from_host. f64 is computed
    in f64, also if only dst is f64. Integers are computed as i64 until they meet a floating type. All else is
    computed in f32. dst may be an input. It may not be an input that is broadcast, nor overlap an input in
    part.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (the formula, with its column in the message; names; null; never written to;
    overlaps dst), SHAPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_map(ignis_array dst, const char *formula, ignis_array_inputs inputs);

/*  ignis_array_map_many - compute several results of a formula, separated by commas, in one pass
    ignis_array_map_many(2, (ignis_array[]){x, r}, "x + a*p, r - a*q", IGNIS_ARRAYS(x, r, p, q,
    IGNIS_ARRAY_VALUE(a, t))) Each result is as in ignis_array_map and may be an input: all inputs are read
    before a result is written. count is 1 to IGNIS_MAX_INPUTS.
    Returns: IGNIS_OK, or the reason.
    Errors: those of ignis_array_map; ARGUMENT (count is not the formula's number of results; two results
    overlap).
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_map_many(int count, const ignis_array *results, const char *formula,
                                            ignis_array_inputs inputs);

/*  A reduction to one element. argmax and argmin return the first position. */
typedef enum ignis_reducer {
    IGNIS_REDUCE_SUM = 1,
    IGNIS_REDUCE_MEAN,
    IGNIS_REDUCE_PROD,
    IGNIS_REDUCE_MAX,
    IGNIS_REDUCE_MIN,
    IGNIS_REDUCE_ANY, /* whether any element is true */
    IGNIS_REDUCE_ALL,
    IGNIS_REDUCE_ARGMAX, /* the position of the largest element in the reduced dimensions */
    IGNIS_REDUCE_ARGMIN,
    IGNIS_REDUCE_LOGSUMEXP, /* the logarithm of the sum of exp, without overflow */
    IGNIS_REDUCE_NORM,      /* the root of the sum of squares, without overflow; its gradient at 0 is 0 */
    IGNIS_REDUCE_COUNT
} ignis_reducer;

/*  ignis_array_reduce - reduce a formula of arrays to its sum, mean, largest element, ... in one pass
    ignis_array_reduce(dot, IGNIS_REDUCE_SUM, "x*y", IGNIS_ARRAYS(x, y))
    Shapes: inputs broadcast by NumPy's rules. dst broadcasts to their shape, and the formula is reduced where
    that is larger: dst of [1] is for all elements, [rows, 1] for each row, [cols] or [1, cols] for each
    column. Dtypes as in ignis_array_map. Sums are in f32 (f64 in f64, i64 of integers), in a fixed order. The
    mean of integers is the mean of their exact sum. NaN is the largest and the smallest number. The sum of no
    elements is 0, prod and all are 1, the mean is NaN.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (unknown reducer; the formula; names; null; never written to; overlaps dst), SHAPE
    (dst does not broadcast to the formula; max, min, argmax or argmin of no elements; argmax or argmin along
    dimensions that are not neighbours), DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_reduce(ignis_array dst, ignis_reducer reducer, const char *formula,
                                          ignis_array_inputs inputs);

/*  ignis_array_value - make a number an input of ignis_array_map; IGNIS_ARRAY_VALUE(name, number) names it
    Another number needs no other kernel, unlike a number in the text of a formula.
    Returns: a handle that names the number among arrays, until the thread has made 64 more.
    Errors: none.
    Ownership: nothing to free.
    Threads: any; the handle is for the calling thread only. */
IGNIS_API ignis_array ignis_array_value(double value);

#endif /* IGNIS_NO_TENSORS */
