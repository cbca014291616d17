#ifndef IGNIS_NO_TENSORS

/* >>map - formulas: any expression, element by element ---------------------------------------------------------- */

#define IGNIS_MAX_INPUTS 16 /* of a formula */

/*  The named inputs of a formula: IGNIS_ARRAYS(x, y, IGNIS_ARRAY_VALUE(a, 2.5)) makes them. */
typedef struct ignis_array_inputs {
    const char *names; /* separated by commas: "x, y, a". In place of a name may stand MACRO(name, anything) */
    int count;         /* 1 to IGNIS_MAX_INPUTS */
    ignis_array array[IGNIS_MAX_INPUTS]; /* arrays, and what ignis_array_value has given */
} ignis_array_inputs;

/*  ignis_array_map - dst = a formula of arrays, element by element, in one pass: see ON FORMULAS
    ignis_array_map(y, "a*x + y", IGNIS_ARRAYS(x, y, IGNIS_ARRAY_VALUE(a, 2.0)))
    Shapes: inputs broadcast by NumPy's rules, up to 8 dimensions; dst has as many elements as the result. Any dtypes: the
    result is converted to that of dst by the rules of ignis_array_from_host; f64 is computed in f64 (also where only dst is f64), all
    else in f32, integers as i64 as long as they meet no floating type. dst may be an input, but not one that is spread, nor overlap one
    in part.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (the formula, which the message has with the column; names; null; never written to; overlaps dst), SHAPE,
    DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_map(ignis_array dst, const char *formula, ignis_array_inputs inputs);

/*  ignis_array_map_many - several results of a formula of arrays, which are written apart by commas, in one pass
    ignis_array_map_many(2, (ignis_array[]){x, r}, "x + a*p, r - a*q", IGNIS_ARRAYS(x, r, p, q, IGNIS_ARRAY_VALUE(a, alpha)))
    Each is as in ignis_array_map, and may be an input: all are read before one is written. count is 1 to IGNIS_MAX_INPUTS.
    Returns: IGNIS_OK, or the reason.
    Errors: those of ignis_array_map; ARGUMENT (count, which is not that of the formula's results; two of them overlap).
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_map_many(int count, const ignis_array *results, const char *formula,
                                            ignis_array_inputs inputs);

/*  How many elements become one. Of argmax and argmin the first place counts. */
typedef enum ignis_reducer {
    IGNIS_REDUCE_SUM = 1,
    IGNIS_REDUCE_MEAN,
    IGNIS_REDUCE_PROD,
    IGNIS_REDUCE_MAX,
    IGNIS_REDUCE_MIN,
    IGNIS_REDUCE_ANY, /* whether one is true */
    IGNIS_REDUCE_ALL,
    IGNIS_REDUCE_ARGMAX, /* the place of the largest element in the dimensions that are reduced */
    IGNIS_REDUCE_ARGMIN,
    IGNIS_REDUCE_LOGSUMEXP, /* log of the sum of exp, which does not overflow */
    IGNIS_REDUCE_NORM,      /* root of the sum of squares, which do not overflow; its gradient at 0 is 0 */
    IGNIS_REDUCE_COUNT
} ignis_reducer;

/*  ignis_array_reduce - dst = the sum, the mean, the largest, ... of a formula of arrays, in one pass
    ignis_array_reduce(dot, IGNIS_REDUCE_SUM, "x*y", IGNIS_ARRAYS(x, y))
    Shapes: inputs broadcast by NumPy's rules; dst spreads over what they give, and the formula is reduced where that has
    more elements: dst of [1] is for all elements, [rows, 1] for each row, [cols] or [1, cols] for each column. Dtypes as in
    ignis_array_map; sums are in f32 (f64 in f64, i64 of integers), in a fixed order. The mean of integers is that of their exact sum. NaN
    is the largest and the smallest number. The sum of nothing is 0, prod and all 1, the mean NaN.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such reducer; the formula; names; null; never written to; overlaps dst), SHAPE (dst does not spread over
    the formula; max, min, argmax or argmin of nothing; argmax or argmin along dimensions that are no neighbours), DEVICE, MEMORY,
    LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_reduce(ignis_array dst, ignis_reducer reducer, const char *formula,
                                          ignis_array_inputs inputs);

/*  ignis_array_value - a number as an input of ignis_array_map; IGNIS_ARRAY_VALUE(name, number) calls it
    Another number needs no other kernel, unlike another one in the text of a formula.
    Returns: something that stands for it among arrays, until the thread has made 64 more.
    Errors: none.
    Ownership: nothing to free.
    Threads: any; the calling thread's alone. */
IGNIS_API ignis_array ignis_array_value(double value);

#endif /* IGNIS_NO_TENSORS */
