/*  >>parallel.vocab - tensor-parallel training: embedding and cross-entropy of a vocabulary that ranks divide

    Rank r has classes r * m to (r + 1) * m - 1. Formulas compute what the ranks exchange, and the gradient.
    Uses: tensor_parallel, formulas, losses.
    Invariant: each rank computes the loss from the same exchanged numbers, so all have its bits.
    Locks: none. */

#include "room.h"

#ifndef IGNIS_NO_TENSORS

#define IGNIS__VOCAB_LIMIT ((int64_t)1 << 24) /* formulas compute classes in f32 */

/*  Finds how many classes this rank has: rows of a table, or columns of logits; 0 if a table has other dimensions,
    which is found later. Checks how many all ranks have together. False, and reported, on failure. */
static bool ignis__vocab_begin(const char *call, ignis_comm comm, ignis_tensor handle, bool is_table, int64_t *classes,
                               ignis_comm_info *ranks)
{
    ignis__tensor *tensor;
    if (!ignis__enter(call) || ignis__comm_query(call, comm, ranks) != IGNIS_OK)
        return false;
    tensor = ignis__tensor_hold(call, handle);
    if (!tensor)
        return false;
    if (is_table)
        *classes = tensor->shape.ndim == 2 ? tensor->shape.dim[0] : 0;
    else
        *classes = tensor->shape.dim[tensor->shape.ndim - 1];
    ignis__tensor_drop(call, tensor);
    return *classes <= (IGNIS__VOCAB_LIMIT - 1) / ranks->size ||
           ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                             "%d ranks have %lld classes each; 2^24 or more together are not supported", ranks->size,
                             (long long)*classes);
}

/*  Makes an array on the device of another one; no handle, and reported, on failure. */
static ignis_array ignis__vocab_array(const char *call, const ignis__array *beside, ignis_shape shape,
                                      ignis_dtype dtype)
{
    ignis_array_desc desc = IGNIS__ZERO;
    desc.shape = shape;
    desc.dtype = dtype;
    desc.device = ignis__device_in_desc(beside->storage->device);
    return ignis__array_create(call, &desc);
}

/*  Frees an array, if there is one. */
static void ignis__vocab_free(const char *call, ignis_array *array)
{
    if (array->id)
        ignis__array_discard(call, array);
}

/*  Computes the places of classes among the `first` and later ones of this rank; some are outside. */
static ignis_tensor ignis__vocab_places(const char *call, ignis_tensor classes, int64_t first)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, classes);
    ignis__array *array = tensor ? ignis__tensor_array(call, tensor) : NULL;
    ignis_array places = IGNIS__ZERO, ids;
    if (array && ignis__dtype_is_float(array->dtype)) {
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "ids is %s; i32 or i64 is needed",
                    ignis__dtypes[array->dtype].name);
    } else if (array) {
        ids.id = array->slot.handle;
        places = ignis__vocab_array(call, array, array->shape, IGNIS_I64);
        if (places.id && ignis_array_map(places, "ids - first",
                                         IGNIS_ARRAYS(ids, IGNIS_ARRAY_VALUE(first, (double)first))) != IGNIS_OK)
            ignis__array_discard(call, &places);
    }
    if (array)
        ignis__array_drop(call, array);
    if (tensor)
        ignis__tensor_drop(call, tensor);
    return ignis__tensor_adopt(call, places, false);
}

IGNIS_API ignis_tensor ignis_vocab_parallel_embedding(ignis_comm comm, ignis_tensor table, ignis_tensor ids)
{
    static const char call[] = "ignis_vocab_parallel_embedding";
    int64_t rows;
    ignis_tensor places, looked_up, column, part, result = ignis__no_tensor();
    ignis_comm_info ranks;
    ignis__outer_call outer;
    ignis_shape shape;
    if (!ignis__vocab_begin(call, comm, table, true, &rows, &ranks))
        return result;
    ignis__outer_call_begin(&outer, call, NULL);
    places = ignis__vocab_places(call, ids, ranks.rank * rows);
    looked_up = places.id ? ignis_embedding(table, places) : places;
    shape = looked_up.id ? ignis_tensor_shape(looked_up) : IGNIS_SHAPE(1);
    shape.dim[shape.ndim - 1] = 1;
    column = looked_up.id ? ignis_reshape(places, shape) : looked_up;
    part = column.id
               ? ignis_map("i >= 0 && i < n ? x : i + first >= 0 && i + first < all ? 0 : nan",
                           IGNIS_INPUTS(IGNIS_NAMED(x, looked_up), IGNIS_NAMED(i, column), IGNIS_VALUE(n, (double)rows),
                                        IGNIS_VALUE(first, (double)(ranks.rank * rows)),
                                        IGNIS_VALUE(all, (double)(ranks.size * rows))))
               : column;
    ignis__tensor_discard(call, places);
    ignis__tensor_discard(call, looked_up);
    ignis__tensor_discard(call, column);
    if (part.id)
        result = ignis_comm_all_reduce_forward(comm, part);
    ignis__outer_call_end(&outer);
    ignis__tensor_discard(call, part);
    return result;
}

/* --- cross-entropy --- */

/*  Values of the formulas. */
typedef struct ignis__vocab_values {
    double first;   /* class of this rank */
    double columns; /* of this rank */
    double classes; /* of all ranks */
    double ignored, smoothing;
} ignis__vocab_values;

/*  Rows on their way to losses. Arrays of one number for each row are columns beside the logits. */
typedef struct ignis__vocab_rows {
    const char *call;
    ignis_comm comm;
    ignis_tensor logits, at_target; /* at_target: NaN if another rank has the target */
    ignis_array x, t, place, v;     /* arrays of tensors: logits, targets, these among the columns, at_target */
    ignis_array m;                  /* the largest logit of all ranks */
    ignis__array *sums;             /* of all ranks; claimed */
    ignis_array s, d;               /* views of sums, s first: of exp(x - m), of q (m - x) */
    ignis_array losses;             /* [...] */
    ignis__vocab_values values;
} ignis__vocab_rows;

/*  Computes the gradient, which is g (softmax - q): q is 1 - e at the target plus e / classes. Saved: logits, targets,
    m, and the logarithm of s. */
static ignis_status ignis__vocab_cross_entropy_backward(const ignis_backward_args *args)
{
    static const char call[] = "ignis_vocab_parallel_cross_entropy";
    const ignis__vocab_values *values = (const ignis__vocab_values *)args->params;
    ignis_array x = args->saved[0], t = args->saved[1], m = args->saved[2], l = args->saved[3], g;
    ignis__array *logits = ignis__array_hold(call, x), *targets = ignis__array_hold(call, t);
    ignis_status status = IGNIS_OK;
    g = logits && targets ? ignis_array_reshape(args->grad_output, targets->shape) : IGNIS_NO_ARRAY;
    args->grad_inputs[0] = g.id ? ignis__array_create_like(call, logits, logits->dtype) : IGNIS_NO_ARRAY;
    if (args->grad_inputs[0].id)
        status = ignis_array_map(
            args->grad_inputs[0],
            "c = index(-1) + first; q = (c == t ? 1 - e : 0) + e/n; "
            "t == k || c >= n ? 0 : t < 0 || t >= n ? nan : g*(exp(x - m - l) - q)",
            IGNIS_ARRAYS(x, t, m, l, g, IGNIS_ARRAY_VALUE(first, values->first), IGNIS_ARRAY_VALUE(n, values->classes),
                         IGNIS_ARRAY_VALUE(k, values->ignored), IGNIS_ARRAY_VALUE(e, values->smoothing)));
    if (status != IGNIS_OK)
        ignis__array_discard(call, &args->grad_inputs[0]);
    ignis__vocab_free(call, &g);
    if (logits)
        ignis__array_drop(call, logits);
    if (targets)
        ignis__array_drop(call, targets);
    return args->grad_inputs[0].id ? IGNIS_OK : ignis__failed();
}

/*  Returns how many zeros travel after the sums. Columns, classes or options that differ between ranks make another
    number of most, and so a MISMATCH, instead of losses that are wrong. */
static int64_t ignis__vocab_tail(const ignis__vocab_values *values)
{
    const double mixed = 3 * values->columns + values->classes + 5 * values->ignored + 1024 * values->smoothing;
    const int64_t whole = mixed > -1e15 && mixed < 1e15 ? (int64_t)mixed : 0;
    return (whole % 61 + 61) % 61;
}

/*  Makes the arrays of the rows; columns of targets tell their shape. */
static bool ignis__vocab_rows_make(ignis__vocab_rows *rows, const ignis__array *logits, const ignis__array *targets)
{
    const ignis_dtype wide = ignis__wide_dtype(logits->dtype);
    const int64_t count = targets->numel;
    ignis_shape shape = targets->shape;
    ignis_array sums;
    rows->x.id = logits->slot.handle;
    rows->t.id = targets->slot.handle;
    rows->m = ignis__vocab_array(rows->call, logits, shape, wide);
    sums = rows->m.id
               ? ignis__vocab_array(rows->call, logits, IGNIS_SHAPE(2 * count + ignis__vocab_tail(&rows->values)), wide)
               : rows->m;
    rows->sums = sums.id ? ignis__array_adopt(rows->call, sums) : NULL;
    if (!rows->sums || ignis_array_zero(sums) != IGNIS_OK)
        return false;
    rows->s = ignis__array_view(rows->call, rows->sums, &shape, count, 0);
    rows->d = ignis__array_view(rows->call, rows->sums, &shape, count, count * ignis__dtypes[wide].size);
    if (shape.ndim > 1)
        shape.ndim--;
    rows->losses = ignis__vocab_array(rows->call, logits, shape, wide);
    return rows->s.id && rows->d.id && rows->losses.id;
}

/*  Computes m, the sums, and the losses of rows. An ignored row has loss 0, a target that is not a class NaN. */
static bool ignis__vocab_rows_run(ignis__vocab_rows *rows)
{
    const ignis__vocab_values *values = &rows->values;
    const ignis_array x = rows->x, t = rows->t, m = rows->m, s = rows->s, d = rows->d, i = rows->place, v = rows->v,
                      k = ignis_array_value(values->ignored), n = ignis_array_value(values->classes),
                      first = ignis_array_value(values->first), e = ignis_array_value(values->smoothing);
    ignis_array sums;
    sums.id = rows->sums->slot.handle;
    return ignis_array_reduce(m, IGNIS_REDUCE_MAX, "index(-1) + first < n ? x : -inf", IGNIS_ARRAYS(x, first, n)) ==
               IGNIS_OK &&
           ignis_comm_all_reduce(rows->comm, m, m, IGNIS_OP_MAX) == IGNIS_OK &&
           ignis_array_reduce(s, IGNIS_REDUCE_SUM, "index(-1) + first < n ? exp(x - m) : 0",
                              IGNIS_ARRAYS(x, m, first, n)) == IGNIS_OK &&
           (values->smoothing == 0 || ignis_array_reduce(d, IGNIS_REDUCE_SUM, "index(-1) + first < n ? e/n*(m - x) : 0",
                                                         IGNIS_ARRAYS(x, m, first, n, e)) == IGNIS_OK) &&
           ignis_array_map(d, "i >= 0 && i < columns && e < 1 ? d + (1 - e)*(m - v) : d",
                           IGNIS_ARRAYS(d, i, m, v, e, IGNIS_ARRAY_VALUE(columns, values->columns))) == IGNIS_OK &&
           ignis_comm_all_reduce(rows->comm, sums, sums, IGNIS_OP_SUM) == IGNIS_OK &&
           ignis_array_map(s, "log(s)", IGNIS_ARRAYS(s)) == IGNIS_OK &&
           ignis_array_map(rows->losses, "t == k ? 0 : t < 0 || t >= n ? nan : d + s", IGNIS_ARRAYS(t, d, s, k, n)) ==
               IGNIS_OK;
}

/*  Makes the losses a tensor, recorded with the logits as its input. */
static ignis_tensor ignis__vocab_rows_record(ignis__vocab_rows *rows)
{
    const ignis_array saved[4] = {rows->x, rows->t, rows->m, rows->s};
    ignis_rule rule = IGNIS__ZERO;
    ignis_tensor losses = ignis__tensor_adopt(rows->call, rows->losses, false);
    rows->losses = IGNIS_NO_ARRAY; /* it is the tensor's, or freed */
    rule.name = "vocab_parallel_cross_entropy";
    rule.backward_fn = ignis__vocab_cross_entropy_backward;
    rule.saved = saved;
    rule.saved_count = 4;
    rule.params = &rows->values;
    rule.params_size = sizeof rows->values;
    if (losses.id && ignis_tape_record(losses, &rows->logits, 1, &rule) != IGNIS_OK) {
        ignis__tensor_discard(rows->call, losses);
        losses = ignis__no_tensor();
    }
    return losses;
}

/*  Computes the losses of rows, whose targets are columns. */
static ignis_tensor ignis__vocab_losses(ignis__vocab_rows *rows, ignis_tensor targets)
{
    const char *call = rows->call;
    ignis__tensor *logits = ignis__tensor_hold(call, rows->logits), *column = ignis__tensor_hold(call, targets);
    ignis__array *x = logits ? ignis__tensor_array(call, logits) : NULL,
                 *t = column ? ignis__tensor_array(call, column) : NULL;
    ignis_tensor place = ignis__no_tensor(), losses = place;
    if (x && t && ignis__vocab_rows_make(rows, x, t)) {
        place = ignis__vocab_places(call, targets, (int64_t)rows->values.first);
        (void)ignis_no_grad_begin();
        rows->at_target = place.id ? ignis_gather(rows->logits, -1, place) : place;
        (void)ignis_no_grad_end();
        rows->place = ignis_tensor_data(place);
        if (rows->at_target.id) {
            rows->v = ignis_tensor_data(rows->at_target);
            losses = ignis__vocab_rows_run(rows) ? ignis__vocab_rows_record(rows) : losses;
        }
    }
    ignis__tensor_discard(call, place);
    ignis__tensor_discard(call, rows->at_target);
    ignis__vocab_free(call, &rows->s);
    ignis__vocab_free(call, &rows->d);
    ignis__vocab_free(call, &rows->m);
    ignis__vocab_free(call, &rows->losses);
    if (rows->sums)
        ignis__array_unclaim(call, rows->sums);
    if (x)
        ignis__array_drop(call, x);
    if (t)
        ignis__array_drop(call, t);
    if (logits)
        ignis__tensor_drop(call, logits);
    if (column)
        ignis__tensor_drop(call, column);
    return losses;
}

IGNIS_API ignis_tensor ignis_vocab_parallel_cross_entropy(ignis_comm comm, ignis_tensor logits, ignis_tensor targets,
                                                          const ignis_cross_entropy_desc *desc)
{
    static const char call[] = "ignis_vocab_parallel_cross_entropy";
    int64_t columns;
    ignis_cross_entropy_desc options = IGNIS__ZERO;
    ignis__vocab_rows rows = IGNIS__ZERO;
    ignis__cross_entropy entropy;
    ignis_comm_info ranks;
    ignis_tensor column, result = ignis__no_tensor();
    ignis__outer_call outer;
    if (desc)
        options = *desc;
    options.classes = 0; /* those of all ranks; checked here */
    if (!ignis__vocab_begin(call, comm, logits, false, &columns, &ranks) ||
        !ignis__rows_begin(call, logits, targets, &options, &entropy, &column))
        return result;
    if (desc && (desc->classes < 0 || desc->classes > ranks.size * columns)) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->classes is %lld; %d ranks have %lld columns of logits each",
                    (long long)desc->classes, ranks.size, (long long)columns);
    } else {
        rows.call = call;
        rows.comm = comm;
        rows.logits = logits;
        rows.values.first = (double)(ranks.rank * columns);
        rows.values.columns = (double)columns;
        rows.values.classes = (double)(desc && desc->classes ? desc->classes : ranks.size * columns);
        rows.values.ignored = (double)entropy.ignore_index;
        rows.values.smoothing = options.label_smoothing;
        ignis__outer_call_begin(&outer, call, NULL);
        result = ignis__loss_of_rows(call, ignis__vocab_losses(&rows, column), options.reduction, targets,
                                     entropy.ignore_index);
        ignis__outer_call_end(&outer);
    }
    ignis__tensor_discard(call, column);
    return result;
}

#endif /* IGNIS_NO_TENSORS */
