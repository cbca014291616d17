/*  ignis_gradcheck - compare the gradients of a function with central finite differences
    All inputs are f64 leaves, on one device. The function is called twice for each element of each input that
    requires a gradient, with the same random numbers each time, and recorded also where a no-grad section is
    open. The relative error is |a - b| / max(1, |a|, |b|).
    Returns: the largest relative error, also when it is above desc->tolerance; NaN on failure.
    Errors: FREED, ARGUMENT (an input that is the result of an operation or, in a backward function, older
    than it), DTYPE (an input that is not f64), MISMATCH (above the tolerance; the message names input and
    element), those of fn.
    Ownership: inputs keep their values; their gradients are set to zero. Other leaves that fn uses get theirs
    as from any backward.
    Threads: any. Waits. */
IGNIS_API double ignis_gradcheck(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs, int count,
                                 const ignis_gradcheck_desc *desc);
