/*  >>parallel.tensor - tensor-parallel training: exchanges between ranks with gradients, and the linear layers

    An exchange is a pair of moves, one for the tensor and one for its gradient.
    Uses: the public functions of comm, the tape, ops.
    Invariant: all ranks make the same moves in the same order, also in backward.
    Locks: none. */

#include "room.h"

#ifndef IGNIS_NO_TENSORS

/*  Makes what a move gives this rank of an array that each rank has: a new array, or a view. No handle, and reported,
    on failure. */
static ignis_array ignis__rank_move_array(const char *call, ignis_comm comm, ignis__rank_move move,
                                          const ignis__array *from)
{
    ignis_array_desc desc = IGNIS__ZERO;
    ignis_array in, made = IGNIS__ZERO;
    ignis_comm_info ranks;
    ignis_status status = ignis__comm_query(call, comm, &ranks);
    const bool divides = move == IGNIS__MOVE_SLICE || move == IGNIS__MOVE_REDUCE_SCATTER;
    if (status != IGNIS_OK)
        return made;
    desc.shape = from->shape;
    if (divides && desc.shape.dim[0] % ranks.size != 0) {
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "x is %s; expected rows that are a multiple of the %d ranks",
                    ignis__shape_write(&from->shape).text, ranks.size);
        return made;
    }
    desc.shape.dim[0] = divides                          ? from->shape.dim[0] / ranks.size
                        : move == IGNIS__MOVE_ALL_GATHER ? from->shape.dim[0] * ranks.size
                                                         : from->shape.dim[0];
    if (move == IGNIS__MOVE_NONE)
        return ignis__array_view(call, from, &from->shape, from->numel, 0);
    if (move == IGNIS__MOVE_SLICE)
        return ignis__array_slice(call, from, 0, ranks.rank * desc.shape.dim[0], desc.shape.dim[0]);
    desc.dtype = from->dtype;
    desc.device = ignis__device_in_desc(from->storage->device);
    made = ignis__array_create(call, &desc);
    in.id = from->slot.handle;
    if (!made.id)
        return made;
    status = move == IGNIS__MOVE_ALL_REDUCE   ? ignis_comm_all_reduce(comm, in, made, IGNIS_OP_SUM)
             : move == IGNIS__MOVE_ALL_GATHER ? ignis_comm_all_gather(comm, in, made)
                                              : ignis_comm_reduce_scatter(comm, in, made, IGNIS_OP_SUM);
    if (status != IGNIS_OK)
        ignis__array_discard(call, &made);
    return made;
}

/*  The parameters of the rule of an exchange. */
typedef struct ignis__rank_rule {
    const ignis__rank_exchange *exchange;
    ignis_comm comm;
} ignis__rank_rule;

static ignis_status ignis__rank_exchange_backward(const ignis_backward_args *args)
{
    const ignis__rank_rule *rule = (const ignis__rank_rule *)args->params;
    ignis__array *gradient;
    if (rule->exchange->backward == IGNIS__MOVE_NONE) {
        args->grad_inputs[0] = args->grad_output;
        return IGNIS_OK;
    }
    gradient = ignis__array_hold(rule->exchange->call, args->grad_output);
    if (gradient) {
        args->grad_inputs[0] =
            ignis__rank_move_array(rule->exchange->call, rule->comm, rule->exchange->backward, gradient);
        ignis__array_drop(rule->exchange->call, gradient);
    }
    return args->grad_inputs[0].id ? IGNIS_OK : ignis__failed();
}

static ignis_tensor ignis__rank_exchange_run(const ignis__rank_exchange *exchange, ignis_comm comm, ignis_tensor x)
{
    const char *call = exchange->call;
    ignis__tensor *tensor = ignis__tensor_hold(call, x);
    ignis__array *array = tensor ? ignis__tensor_array(call, tensor) : NULL;
    ignis_tensor result = ignis__no_tensor();
    ignis_rule rule = IGNIS__ZERO;
    ignis__rank_rule params;
    ignis__outer_call outer;
    ignis__outer_call_begin(&outer, call, NULL);
    params.exchange = exchange;
    params.comm = comm;
    rule.name = exchange->name;
    rule.backward_fn = ignis__rank_exchange_backward;
    rule.params = &params;
    rule.params_size = sizeof params;
    if (array)
        result = ignis__tensor_adopt(call, ignis__rank_move_array(call, comm, exchange->forward, array), false);
    if (result.id && ignis_tape_record(result, &x, 1, &rule) != IGNIS_OK) {
        ignis__tensor_discard(call, result);
        result = ignis__no_tensor();
    }
    ignis__outer_call_end(&outer);
    if (array)
        ignis__array_drop(call, array);
    if (tensor)
        ignis__tensor_drop(call, tensor);
    return result;
}

/*  The second of each pair is the first one of the other: gradients of one travel as tensors of the other. */
static const ignis__rank_exchange ignis__all_reduce_forward = {"ignis_comm_all_reduce_forward", "all_reduce_forward",
                                                               IGNIS__MOVE_ALL_REDUCE, IGNIS__MOVE_NONE},
                                  ignis__all_reduce_backward = {"ignis_comm_all_reduce_backward", "all_reduce_backward",
                                                                IGNIS__MOVE_NONE, IGNIS__MOVE_ALL_REDUCE},
                                  ignis__all_gather_rows = {"ignis_comm_all_gather_rows", "all_gather_rows",
                                                            IGNIS__MOVE_ALL_GATHER, IGNIS__MOVE_REDUCE_SCATTER},
                                  ignis__reduce_scatter_rows = {"ignis_comm_reduce_scatter_rows", "reduce_scatter_rows",
                                                                IGNIS__MOVE_REDUCE_SCATTER, IGNIS__MOVE_ALL_GATHER},
                                  ignis__slice_rows = {"ignis_comm_slice_rows", "slice_rows", IGNIS__MOVE_SLICE,
                                                       IGNIS__MOVE_ALL_GATHER},
                                  ignis__all_gather_columns = {"ignis_comm_all_gather_columns", "all_gather_columns",
                                                               IGNIS__MOVE_ALL_GATHER, IGNIS__MOVE_SLICE};

IGNIS_API ignis_tensor ignis_comm_all_reduce_forward(ignis_comm comm, ignis_tensor x)
{
    return ignis__rank_exchange_run(&ignis__all_reduce_forward, comm, x);
}

IGNIS_API ignis_tensor ignis_comm_all_reduce_backward(ignis_comm comm, ignis_tensor x)
{
    return ignis__rank_exchange_run(&ignis__all_reduce_backward, comm, x);
}

IGNIS_API ignis_tensor ignis_comm_all_gather_rows(ignis_comm comm, ignis_tensor x)
{
    return ignis__rank_exchange_run(&ignis__all_gather_rows, comm, x);
}

IGNIS_API ignis_tensor ignis_comm_reduce_scatter_rows(ignis_comm comm, ignis_tensor x)
{
    return ignis__rank_exchange_run(&ignis__reduce_scatter_rows, comm, x);
}

IGNIS_API ignis_tensor ignis_comm_slice_rows(ignis_comm comm, ignis_tensor x)
{
    return ignis__rank_exchange_run(&ignis__slice_rows, comm, x);
}

/*  Gathers [1, rows, n] to [ranks, rows, n], of which [rows, ranks, n] is the transpose. */
IGNIS_API ignis_tensor ignis_comm_all_gather_columns(ignis_comm comm, ignis_tensor x)
{
    const char *call = ignis__all_gather_columns.call;
    ignis__tensor *tensor = ignis__tensor_hold(call, x);
    ignis__outer_call outer;
    ignis_tensor parts, gathered, columns, result;
    ignis_shape shape;
    int64_t n;
    if (!tensor)
        return ignis__no_tensor();
    shape = tensor->shape;
    ignis__tensor_drop(call, tensor);
    ignis__outer_call_begin(&outer, call, NULL);
    n = shape.dim[shape.ndim - 1];
    parts = ignis_reshape(x, IGNIS_SHAPE(1, ignis__shape_product(&shape, 0, shape.ndim - 1), n));
    gathered = parts.id ? ignis__rank_exchange_run(&ignis__all_gather_columns, comm, parts) : parts;
    columns = gathered.id ? ignis_transpose(gathered, 0, 1) : gathered;
    if (columns.id)
        shape.dim[shape.ndim - 1] = n * ignis_tensor_shape(gathered).dim[0];
    result = columns.id ? ignis_reshape(columns, shape) : columns;
    ignis__outer_call_end(&outer);
    ignis__tensor_discard(call, parts);
    ignis__tensor_discard(call, gathered);
    ignis__tensor_discard(call, columns);
    return result;
}

/* --- linear layers --- */

IGNIS_API ignis_tensor ignis_column_parallel_linear(ignis_comm comm, ignis_tensor x, ignis_tensor w, ignis_tensor bias)
{
    static const char call[] = "ignis_column_parallel_linear";
    ignis__outer_call outer;
    ignis_tensor input, result;
    if (!ignis__enter(call))
        return ignis__no_tensor();
    ignis__outer_call_begin(&outer, call, NULL);
    input = ignis_comm_all_reduce_backward(comm, x);
    result = input.id ? ignis_linear(input, w, bias) : input;
    ignis__outer_call_end(&outer);
    ignis__tensor_discard(call, input);
    return result;
}

IGNIS_API ignis_tensor ignis_row_parallel_linear(ignis_comm comm, ignis_tensor x, ignis_tensor w, ignis_tensor bias)
{
    static const char call[] = "ignis_row_parallel_linear";
    ignis__outer_call outer;
    ignis_tensor part, sum, result;
    if (!ignis__enter(call))
        return ignis__no_tensor();
    ignis__outer_call_begin(&outer, call, NULL);
    part = ignis_linear(x, w, ignis__no_tensor());
    sum = part.id ? ignis_comm_all_reduce_forward(comm, part) : part;
    ignis__tensor_discard(call, part);
    result = sum.id && bias.id ? ignis_add(sum, bias) : sum;
    ignis__outer_call_end(&outer);
    if (bias.id)
        ignis__tensor_discard(call, sum);
    return result;
}

/* --- clipping --- */

IGNIS_API ignis_status ignis_comm_clip_grad_norms(ignis_comm comm, const ignis_optimizer *optimizers, int count,
                                                  int divided, double max_norm)
{
    static const char call[] = "ignis_comm_clip_grad_norms";
    ignis__clip_ranks ranks;
    ignis_comm_info info;
    ignis__outer_call outer;
    ignis_status status = ignis__comm_query(call, comm, &info);
    if (status != IGNIS_OK)
        return status;
    if (divided < 0 || divided > count)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "divided is %d; expected 0 to count, which is %d", divided,
                           count);
    ignis__outer_call_begin(&outer, call, NULL);
    ranks.of = ignis_comm_ranks(comm);
    ranks.divided = divided;
    status = ignis__clip_grad_norms(call, optimizers, count, max_norm, &ranks);
    ignis__outer_call_end(&outer);
    return status;
}

#endif /* IGNIS_NO_TENSORS */
