/* ===============================================================================================================
   >>ops - the operations: checks, forward, backward rule.

   An operation begins (inputs held, device entered), checks, makes arrays, launches, and ends as a tensor or as
   gradients.
   `ok` becomes false at the first failure, which is reported then. After that each call does nothing, so an operation
   checks once, at its end. Uses the rooms array, kernel, formula and tensor. Each operation has a part of its own.
   =============================================================================================================== */

#include "room.h"

/*  Reports a failure if it is the operation's first. */
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE bool ignis__op_fail(ignis__op *op, ignis_diagnostic diagnostic, const char *format, ...)
{
    ignis__record cause = IGNIS__ZERO;
    va_list args;
    if (!op->ok)
        return false;
    cause.diagnostic = diagnostic;
    cause.call = op->work.call;
    va_start(args, format);
    ignis__failv(cause, format, args);
    va_end(args);
    return op->ok = false;
}

IGNIS__ONE_COPY static void ignis__op_drop_inputs(ignis__op *op)
{
    int i;
    for (i = 0; i < op->count; i++) {
        ignis__array_drop(op->work.call, op->in[i]);
        if (op->tensors[i])
            ignis__tensor_drop(op->work.call, op->tensors[i]);
    }
}

/*  Enters the device of all inputs. On failure nothing is held. */
IGNIS__INLINE static bool ignis__op_enter(ignis__op *op)
{
    const char *call = op->work.call;
    ignis__device *device = op->in[0]->storage->device;
    int i;
    for (i = 1; i < op->count; i++)
        if (op->in[i]->storage->device != device)
            break;
    if (i < op->count)
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "input 0 is on device %d, input %d is on device %d",
                    ignis__device_ordinal(device), i, ignis__device_ordinal(op->in[i]->storage->device));
    else if (ignis__work_begin(call, device, &op->work))
        return op->ok = true;
    ignis__op_drop_inputs(op);
    return false;
}

/*  Begins an operation on tensors. On failure it is over. */
IGNIS__PRIVATE bool ignis__op_begin(ignis__op *op, const char *call, int count, const ignis_tensor *handles)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    memset(op, 0, offsetof(ignis__op, tape_state));
    op->work.call = call;
    for (; op->count < count; op->count++) {
        ignis__tensor *tensor = ignis__tensor_hold(call, handles[op->count]);
        ignis__array *array = tensor ? ignis__tensor_enter(call, tensor, &op->tape_state[op->count]) : NULL;
        if (!array || !ignis__checkpoint_inputs_read(call, array) ||
            (op->tape_state[op->count].requires_grad && !ignis__checkpoint_inputs_use(call, tensor, array))) {
            if (array)
                ignis__array_drop(call, array);
            if (tensor)
                ignis__tensor_drop(call, tensor);
            ignis__op_drop_inputs(op);
            return false;
        }
        op->tensors[op->count] = tensor;
        op->in[op->count] = array;
        op->records = op->records || op->tape_state[op->count].requires_grad;
    }
    if (op->records)
        thread->saw_trainable = true;
    op->records = op->records && ignis__recording();
    op->saves = op->records || thread->keeps || thread->replays;
    return ignis__op_enter(op);
}

/*  Begins a backward function on the gradient and all saved arrays, in this order. On failure it is over. */
IGNIS__PRIVATE bool ignis__op_begin_backward(ignis__op *op, const char *call, const ignis_backward_args *args)
{
    memset(op, 0, offsetof(ignis__op, tape_state));
    op->work.call = call;
    for (; op->count < 1 + args->saved_count; op->count++) {
        op->in[op->count] = ignis__array_hold(call, op->count ? args->saved[op->count - 1] : args->grad_output);
        if (!op->in[op->count]) {
            ignis__op_drop_inputs(op);
            return false;
        }
    }
    return ignis__op_enter(op);
}

/*  Makes an array on the operation's device. NULL after a failure. */
IGNIS__PRIVATE ignis__array *ignis__op_new(ignis__op *op, const ignis_shape *shape, ignis_dtype dtype)
{
    const char *call = op->work.call;
    ignis__storage *storage;
    ignis__array *array;
    int64_t numel;
    if (!op->ok)
        return NULL;
    IGNIS_ASSERT(op->made_count < IGNIS__OP_MADE);
    op->ok = false;
    if (!ignis__shape_check(call, shape, dtype, &numel) ||
        (storage = ignis__storage_make(call, op->work.device, numel * ignis__dtypes[dtype].size)) == NULL)
        return NULL;
    array = ignis__array_make(call, storage, shape, dtype, numel);
    if (!array) {
        ignis__storage_destroy(storage);
        return NULL;
    }
    op->made[op->made_count++] = array;
    op->ok = true;
    return array;
}

IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__op_new_like(ignis__op *op, const ignis__array *like)
{
    return ignis__op_new(op, &like->shape, like->dtype);
}

IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__op_new_row(ignis__op *op, int64_t n, ignis_dtype dtype)
{
    ignis_shape shape = IGNIS_SHAPE(n);
    return ignis__op_new(op, &shape, dtype);
}

IGNIS__PRIVATE ignis__array *ignis__op_new_rows(ignis__op *op, int64_t rows, int64_t n, ignis_dtype dtype)
{
    ignis_shape shape = IGNIS_SHAPE(rows, n);
    return ignis__op_new(op, &shape, dtype);
}

/*  Makes a view of an input's elements from `offset` on. NULL after a failure. */
IGNIS__PRIVATE ignis__array *ignis__op_view(ignis__op *op, ignis__array *from, const ignis_shape *shape, int64_t numel,
                                            int64_t offset)
{
    ignis__array *view = NULL;
    if (op->ok)
        view = ignis__array_view_make(op->work.call, from, shape, numel, offset * ignis__dtypes[from->dtype].size);
    op->ok = view != NULL;
    if (view)
        op->made[op->made_count++] = view;
    return view;
}

/*  Makes a result of a product, or an array that its backward function needs. If a checkpoint has kept it, returns a
    view of that, and op->replays tells that nothing is to be computed. NULL after a failure. */
IGNIS__PRIVATE ignis__array *ignis__op_new_product(ignis__op *op, const ignis_shape *shape, ignis_dtype dtype)
{
    ignis__products *replays = ignis__tensor_thread_now()->replays;
    ignis__array *array = NULL, *kept;
    if (!op->ok)
        return NULL;
    if (!replays) {
        array = ignis__op_new(op, shape, dtype);
    } else if ((kept = ignis__products_next(op->work.call, replays, shape, dtype)) != NULL) {
        op->replays = true;
        array = ignis__op_view(op, kept, shape, kept->numel, 0);
    } else {
        op->ok = false;
    }
    if (array)
        op->products[op->product_count++] = array;
    return array;
}

static bool ignis__op_is_product(const ignis__op *op, const ignis__array *array)
{
    int i = 0;
    while (i < op->product_count && op->products[i] != array)
        i++;
    return i < op->product_count;
}

/*  Gives an array to others, with `references` references. False if the operation did not make it, or handed
    it over before. */
IGNIS__INLINE static bool ignis__op_hand_over(ignis__op *op, ignis__array *array, int references)
{
    int i;
    for (i = op->made_count - 1; i >= 0; i--) {
        if (op->made[i] != array)
            continue;
        op->made[i] = op->made[--op->made_count];
        array->owned_by_refs = true;
        array->ref_count = references;
        ignis__array_publish(array);
        return true;
    }
    return false;
}

/*  Returns addresses for the operation's kernels; 0 after a failure, and if there are no elements. Reading an
    unwritten array is a failure. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__address ignis__op_read(ignis__op *op, ignis__array *array)
{
    ignis__address address = 0;
    op->ok = op->ok && array && ignis__work_read(&op->work, array, &address);
    return op->ok ? address : 0;
}

IGNIS__ONE_COPY IGNIS__PRIVATE ignis__address ignis__op_write(ignis__op *op, ignis__array *array)
{
    ignis__address address = 0;
    op->ok = op->ok && array &&
             (op->replays && ignis__op_is_product(op, array) ? ignis__work_read(&op->work, array, &address)
                                                             : ignis__work_write(&op->work, array, &address));
    return op->ok ? address : 0;
}

IGNIS__INLINE IGNIS__PRIVATE ignis__launch_shape ignis__launch_grid(int64_t grid_x, int64_t grid_y, int64_t grid_z,
                                                                    unsigned block_x, unsigned block_y, size_t shared)
{
    ignis__launch_shape shape;
    shape.grid[0] = grid_x;
    shape.grid[1] = grid_y;
    shape.grid[2] = grid_z;
    shape.block[0] = block_x;
    shape.block[1] = block_y;
    shape.shared = shared;
    return shape;
}

/*  Returns the shape of one row of threads in one row of blocks. */
IGNIS__INLINE IGNIS__PRIVATE ignis__launch_shape ignis__launch_row(int64_t blocks, unsigned threads, size_t shared)
{
    return ignis__launch_grid(blocks, 1, 1, threads, 1, shared);
}

/*  Launches a built-in kernel in the variant of `define` ("-DIGNIS_HEAD_DIM=64"; NULL: none). Without blocks
    it runs nothing. */
IGNIS__PRIVATE void ignis__op_launch(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, const char *define,
                                     ignis__launch_shape shape, void **params)
{
    const int64_t *blocks = shape.grid;
    unsigned grid[] = {(unsigned)blocks[0], (unsigned)blocks[1], (unsigned)blocks[2]},
             block[] = {shape.block[0], shape.block[1], 1};
    void *function;
    if (!op->ok || blocks[0] == 0 || blocks[1] == 0 || blocks[2] == 0)
        return;
    if (blocks[0] > INT32_MAX || blocks[1] > 65535 || blocks[2] > 65535) {
        ignis__op_fail(op, IGNIS_DIAG_SHAPE_OVERFLOW, "the tensors are larger than one launch can cover");
        return;
    }
    function = define ? ignis__builtin_get_variant(op->work.call, op->work.device, builtin, dtype, define)
                      : ignis__builtin_get(op->work.call, op->work.device, builtin, dtype);
    op->ok =
        function && ignis__builtin_launch(&op->work, builtin, function, grid, block, (unsigned)shape.shared, params);
}

/*  As ignis__op_launch, without a variant and shared memory, with one row of threads in one row of blocks. */
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__op_launch_row(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype,
                                                         int64_t blocks, unsigned threads, void **params)
{
    ignis__op_launch(op, builtin, dtype, NULL, ignis__launch_row(blocks, threads, 0), params);
}

/*  Launches an elementwise kernel: 256 threads compute 4096 elements. */
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__op_launch_elementwise(ignis__op *op, ignis__builtin builtin,
                                                                 ignis_dtype dtype, int64_t numel, void **params)
{
    ignis__op_launch_row(op, builtin, dtype, ignis__ceil_div(numel, 4096), 256, params);
}

/*  Copies bytes on the device. */
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__op_copy(ignis__op *op, ignis__array *to, ignis__array *from)
{
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, to);
    op->ok = op->ok && ignis__copy_on_device(&op->work, target, source, ignis__array_bytes(from));
}

IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__op_zero(ignis__op *op, ignis__array *array)
{
    ignis__address target = ignis__op_write(op, array);
    if (op->ok && array->numel > 0)
        op->ok = ignis__copy_zeros(&op->work, target, ignis__array_bytes(array));
}

IGNIS__PRIVATE void ignis__op_fill(ignis__op *op, ignis__array *array, double value)
{
    op->ok = op->ok && ignis__work_fill(&op->work, array, value);
}

/*  Reads bytes that earlier work of the operation writes, and waits for it. During a dry run they are 0.
    False, and reported, in a capture: a graph cannot wait. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__op_read_back(ignis__op *op, void *to, ignis__address from, int64_t size)
{
    op->ok = op->ok && ignis__copy_to_host(&op->work, to, from, size);
    return op->ok;
}

/*  Returns a word of 8 bytes that is 0 for the operation's kernels; they leave it 0. */
IGNIS__PRIVATE ignis__address ignis__op_zeroed(ignis__op *op)
{
    if (op->ok && !op->zeroed) {
        op->zeroed = ignis__memory_take_zeroed(op->work.call, op->work.device, op->work.stream);
        op->ok = op->zeroed != NULL;
    }
    return op->ok ? op->zeroed->address : 0;
}

/*  Frees the operation's arrays that were not handed over, except the first `count`. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__op_free_made(ignis__op *op, int count)
{
    while (op->made_count > count)
        ignis__array_destroy(op->work.call, op->made[--op->made_count]);
}

/*  Ends an operation, and frees its arrays that were not handed over. Returns the failure's status, or
    IGNIS_OK. */
IGNIS__INLINE IGNIS__PRIVATE ignis_status ignis__op_leave(ignis__op *op)
{
    const char *call = op->work.call;
    if (op->zeroed && op->ok)
        ignis__memory_recycle_zeroed(call, op->work.device, op->zeroed);
    else if (op->zeroed)
        ignis__memory_recycle(call, op->work.device, op->zeroed);
    ignis__op_free_made(op, 0);
    ignis__op_drop_inputs(op);
    ignis__work_end(&op->work);
    return op->ok ? IGNIS_OK : ignis__failed();
}

/*  As ignis__op_leave, for two results: on failure the second one (NULL, or no handle: there is only one) is
    released as well. */
IGNIS__PRIVATE void ignis__op_leave_two(ignis__op *op, ignis_tensor *second)
{
    if (ignis__op_leave(op) != IGNIS_OK && second && second->id) {
        (void)ignis_tensor_release(*second);
        *second = ignis__no_tensor();
    }
}

/*  Makes the node of an operation on tensors, with what it saves. tape_states: as for ignis__node_make. NULL
    after a failure. */
static ignis__node *ignis__op_record(ignis__op *op, int count, ignis__tensor *const *inputs,
                                     const ignis__tape_state *tape_states, const ignis_rule *rule)
{
    const char *call = op->work.call;
    ignis__node *node = ignis__node_make(call, count, inputs, tape_states, rule, 0);
    int i;
    for (i = 0; node && i < rule->saved_count; i++) {
        ignis__array *array = op->saved[i];
        if (ignis__node_save(node, ignis__op_hand_over(op, array, 1) ? array : ignis__array_keep(call, array)))
            continue;
        ignis__node_discard(call, node);
        return NULL;
    }
    return node;
}

/*  Gives the results of a product to the checkpoint that keeps them. */
static void ignis__op_keep_products(ignis__op *op)
{
    ignis__products *keeps = ignis__tensor_thread_now()->keeps;
    const char *call = op->work.call;
    ignis__array *array;
    int i;
    for (i = 0; keeps && op->ok && i < op->product_count; i++) {
        array = op->products[i];
        if (!ignis__op_hand_over(op, array, 1))
            array = ignis__array_keep(call, array);
        op->ok = array && ignis__products_add(call, keeps, array);
    }
}

/*  Makes a tensor of an operation's result for some of its tensors, recorded by the rule (NULL: not at all).
    No handle after a failure. */
IGNIS__PRIVATE ignis_tensor ignis__op_result(ignis__op *op, ignis__array *output, int count,
                                             ignis__tensor *const *inputs, const ignis__tape_state *tape_states,
                                             const ignis_rule *rule)
{
    ignis_tensor result = IGNIS__ZERO;
    ignis__tensor *made;
    ignis__node *node = NULL;
    if (op->product_count)
        ignis__op_keep_products(op);
    if (!op->ok)
        return result;
    if (!ignis__op_hand_over(op, output, 1))
        ignis__array_claim(output);
    made = ignis__tensor_make(op->work.call, output, false);
    if (!made) {
        ignis__array_unclaim(op->work.call, output);
    } else if (rule && (node = ignis__op_record(op, count, inputs, tape_states, rule)) == NULL) {
        ignis__tensors_destroy_chain(op->work.call, made);
        made = NULL;
    }
    if (node) {
        node->is_operation = true;
        node->knows_one = op->knows_one;
        node->kept_count = rule->saved_count ? op->kept_count : 0;
        ignis__tensor_result(made, node);
        ignis__tape_append(node);
    }
    op->ok = made != NULL;
    return made ? ignis__tensor_publish(made) : result;
}

/*  Ends an operation with its result, recorded by the rule (NULL: never) if a gradient is needed. No handle
    after a failure. */
IGNIS__INLINE IGNIS__PRIVATE ignis_tensor ignis__op_end(ignis__op *op, ignis__array *output, const ignis_rule *rule)
{
    ignis_tensor result =
        ignis__op_result(op, output, op->count, op->tensors, op->tape_state, op->records ? rule : NULL);
    ignis__op_leave(op);
    return result;
}

/*  Saves an array for the backward function (NULL: nothing). */
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__op_save(ignis__op *op, ignis__array *array)
{
    if (op->ok && array)
        op->saved[op->saved_count++] = array;
}

/*  As ignis__op_save, for the vjp function alone: backward does not see the array, nor whether it has changed. */
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__op_keep(ignis__op *op, ignis__array *array)
{
    ignis__op_save(op, array);
    op->kept_count += op->ok && array;
}

/*  As ignis__op_save, for inputs `first` to `last` - 1. */
IGNIS__PRIVATE void ignis__op_save_inputs(ignis__op *op, int first, int last)
{
    for (; first < last; first++)
        ignis__op_save(op, op->in[first]);
}

/*  Returns a rule whose backward function needs the operation's saved arrays, and params. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_rule ignis__op_rule(const ignis__op *op, const char *name,
                                                         ignis_status (*backward_fn)(const ignis_backward_args *args),
                                                         const void *params, size_t params_size)
{
    ignis_rule rule = IGNIS__ZERO;
    rule.name = name;
    rule.backward_fn = backward_fn;
    rule.saved_count = op->saved_count;
    rule.params = params;
    rule.params_size = params_size;
    return rule;
}

/*  Ends an operation on tensors whose backward function needs its saved arrays, and params. Integers have no
    gradient. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_tensor ignis__op_end_recorded(
    ignis__op *op, ignis__array *output, const char *name, ignis_status (*backward_fn)(const ignis_backward_args *args),
    const void *params, size_t params_size)
{
    ignis_rule rule = ignis__op_rule(op, name, backward_fn, params, params_size);
    return ignis__op_end(op, output, op->ok && ignis__dtype_is_float(output->dtype) ? &rule : NULL);
}

/*  Ends a backward function: hands its arrays to the tape, each for the input at its index (NULL: none) that
    needs a gradient. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__op_finish_backward(ignis__op *op, const ignis_backward_args *args,
                                                                      int count, ignis__array *const *gradients)
{
    int i;
    for (i = 0; op->ok && i < count; i++) {
        if (!gradients[i] || !args->needed[i])
            continue;
        ignis__op_hand_over(op, gradients[i], 0);
        args->grad_inputs[i].id = gradients[i]->slot.handle;
    }
    return ignis__op_leave(op);
}

/*  As ignis__op_finish_backward, when the column sums of the first gradient are known, for
    ignis__backward_pass_offer_column_sums; NULL: they are not. */
IGNIS__PRIVATE ignis_status ignis__op_finish_backward_with_sums(ignis__op *op, const ignis_backward_args *args,
                                                                int count, ignis__array *const *gradients,
                                                                ignis__array *sums)
{
    ignis_array known = IGNIS__ZERO;
    ignis_status status;
    if (op->ok && sums) {
        ignis__op_hand_over(op, sums, 0);
        known.id = sums->slot.handle;
    }
    status = ignis__op_finish_backward(op, args, count, gradients);
    if (known.id)
        ignis__backward_pass_offer_column_sums(args->grad_inputs[0], known);
    return status;
}

/*  As ignis__op_finish_backward, for one input. */
IGNIS__PRIVATE ignis_status ignis__op_finish_backward_one(ignis__op *op, const ignis_backward_args *args,
                                                          ignis__array *gradient)
{
    return ignis__op_finish_backward(op, args, 1, &gradient);
}
