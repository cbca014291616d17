/* ===============================================================================================================
   >>ops - the operations: checks, forward, backward rule.
   =============================================================================================================== */

/*  An operation under way. It holds its inputs, owns the arrays that it makes, has entered their device, and knows the stream. `ok` turns
    false at the first failure, which is reported then; what follows does nothing, so an operation checks once, at its end. */
#define IGNIS__OP_INPUTS (3 * IGNIS_MAX_LAYERS) /* the backward of so many layers has the most, forwards at most 2 + IGNIS_MAX_INPUTS */
#define IGNIS__OP_MADE 160

typedef struct ignis__op {
    ignis__work work;
    int as_major; /* kernels are chosen as on a device of this compute capability; 0: on the device that it is */
    bool ok;
    bool records;   /* an input requires a gradient, and recording is on */
    bool knows_one; /* its backward function takes no grad_output for one that is 1 */
    bool steady;    /* own kernels of products and attention are chosen so that a row has the same bits whatever rows there are */
    int count, made_count, saved_count;
    ignis__block *zeroed;                     /* what ignis__op_zeroed has taken */
    struct ignis__gemm_held *held;            /* between ignis__gemm_join and ignis__gemm_join_end; else null */
    ignis__tensor *tensors[IGNIS__OP_INPUTS]; /* null where the operation works on arrays */
    ignis__array *in[IGNIS__OP_INPUTS];
    ignis__standing standing[IGNIS__OP_INPUTS]; /* of tensors. From here on only what the counts say is set */
    ignis__array *made[IGNIS__OP_MADE];         /* which nobody else sees, until ignis__op_hand_over */
    ignis__array *saved[IGNIS__OP_INPUTS];      /* what its backward function is given */
} ignis__op;

/*  Reports a failure, if it is the operation's first. */
IGNIS__PRINTF(3, 4)
IGNIS__COLD static bool ignis__op_fail(ignis__op *op, ignis_diagnostic diagnostic, const char *format, ...)
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

/*  Enters the device that all inputs are on. On failure nothing is held. */
static bool ignis__op_enter(ignis__op *op)
{
    const char *call = op->work.call;
    ignis__device *device = op->in[0]->storage->device;
    int i;
    for (i = 1; i < op->count; i++)
        if (op->in[i]->storage->device != device)
            break;
    if (i < op->count)
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "input 0 is on device %d, input %d is on device %d", ignis__device_ordinal(device), i,
                    ignis__device_ordinal(op->in[i]->storage->device));
    else if (ignis__work_begin(call, device, &op->work))
        return op->ok = true;
    ignis__op_drop_inputs(op);
    return false;
}

/*  Begins an operation on tensors. On failure it is over. */
static bool ignis__op_begin(ignis__op *op, const char *call, int count, const ignis_tensor *handles)
{
    memset(op, 0, offsetof(ignis__op, standing));
    op->work.call = call;
    for (; op->count < count; op->count++) {
        ignis__tensor *tensor = ignis__tensor_hold(call, handles[op->count]);
        ignis__array *array = tensor ? ignis__tensor_enter(call, tensor, &op->standing[op->count]) : NULL;
        if (!array || !ignis__watch_read(call, array)) {
            if (array)
                ignis__array_drop(call, array);
            if (tensor)
                ignis__tensor_drop(call, tensor);
            ignis__op_drop_inputs(op);
            return false;
        }
        op->tensors[op->count] = tensor;
        op->in[op->count] = array;
        op->records = op->records || op->standing[op->count].requires_grad;
    }
    if (op->records)
        ignis__tensor_thread_now()->saw_trainable = true;
    op->records = op->records && ignis__recording();
    return ignis__op_enter(op);
}

/*  Begins a backward function on the gradient and all that was saved, in this order. On failure it is over. */
static bool ignis__op_begin_backward(ignis__op *op, const char *call, const ignis_backward_args *args)
{
    memset(op, 0, offsetof(ignis__op, standing));
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

/*  A new array on the operation's device. Null after a failure. */
static ignis__array *ignis__op_new(ignis__op *op, const ignis_shape *shape, ignis_dtype dtype)
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

IGNIS__ONE_COPY static ignis__array *ignis__op_new_like(ignis__op *op, const ignis__array *like)
{
    return ignis__op_new(op, &like->shape, like->dtype);
}

IGNIS__ONE_COPY static ignis__array *ignis__op_new_row(ignis__op *op, int64_t n, ignis_dtype dtype)
{
    ignis_shape shape = IGNIS_SHAPE(n);
    return ignis__op_new(op, &shape, dtype);
}

static ignis__array *ignis__op_new_rows(ignis__op *op, int64_t rows, int64_t n, ignis_dtype dtype)
{
    ignis_shape shape = IGNIS_SHAPE(rows, n);
    return ignis__op_new(op, &shape, dtype);
}

/*  A new view of an input's elements from `offset` on. Null after a failure. */
static ignis__array *ignis__op_view(ignis__op *op, ignis__array *from, const ignis_shape *shape, int64_t numel, int64_t offset)
{
    ignis__array *view = NULL;
    if (op->ok)
        view = ignis__array_view_make(op->work.call, from, shape, numel, offset * ignis__dtypes[from->dtype].size);
    op->ok = view != NULL;
    if (view)
        op->made[op->made_count++] = view;
    return view;
}

/*  Lets others see an array, with so many references. False: the operation has not made it, or has handed it over before. */
static bool ignis__op_hand_over(ignis__op *op, ignis__array *array, int references)
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

/*  Addresses for the operation's kernels; 0 after a failure, and for no elements. Reading what was never written is a failure. */
IGNIS__ONE_COPY static ignis__address ignis__op_read(ignis__op *op, ignis__array *array)
{
    ignis__address address = 0;
    op->ok = op->ok && array && ignis__work_read(&op->work, array, &address);
    return op->ok ? address : 0;
}

IGNIS__ONE_COPY static ignis__address ignis__op_write(ignis__op *op, ignis__array *array)
{
    ignis__address address = 0;
    op->ok = op->ok && array && ignis__work_write(&op->work, array, &address);
    return op->ok ? address : 0;
}

/*  Launches one of Ignis' kernels, in the variant of `define` ("-DIGNIS_HEAD_DIM=64"; null: none). No blocks: runs nothing. */
static void ignis__op_launch(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, const char *define, int64_t grid_x, int64_t grid_y,
                             int64_t grid_z, unsigned block_x, unsigned block_y, size_t shared_bytes, void **params)
{
    unsigned grid[] = {(unsigned)grid_x, (unsigned)grid_y, (unsigned)grid_z}, block[] = {block_x, block_y, 1};
    void *function;
    if (!op->ok || grid_x == 0 || grid_y == 0 || grid_z == 0)
        return;
    if (grid_x > INT32_MAX || grid_y > 65535 || grid_z > 65535) {
        ignis__op_fail(op, IGNIS_DIAG_SHAPE_OVERFLOW, "the tensors are larger than one launch can cover");
        return;
    }
    function = define ? ignis__builtin_get_variant(op->work.call, op->work.device, builtin, dtype, define)
                      : ignis__builtin_get(op->work.call, op->work.device, builtin, dtype);
    op->ok = function && ignis__builtin_launch(&op->work, builtin, function, grid, block, (unsigned)shared_bytes, params);
}

/*  A kernel of one row of threads in one row of blocks. */
IGNIS__ONE_COPY static void ignis__op_launch_row(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, int64_t blocks, unsigned threads,
                                                 void **params)
{
    ignis__op_launch(op, builtin, dtype, NULL, blocks, 1, 1, threads, 1, 0, params);
}

/*  The kernels of elements: 256 threads do 4096 of them. */
IGNIS__ONE_COPY static void ignis__op_map(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, int64_t numel, void **params)
{
    ignis__op_launch_row(op, builtin, dtype, ignis__ceil_div(numel, 4096), 256, params);
}

/*  Copies bytes on the device. */
IGNIS__ONE_COPY static void ignis__op_copy(ignis__op *op, ignis__array *to, ignis__array *from)
{
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, to);
    op->ok = op->ok && ignis__copy_on_device(&op->work, target, source, ignis__array_bytes(from));
}

IGNIS__ONE_COPY static void ignis__op_zero(ignis__op *op, ignis__array *array)
{
    ignis__address target = ignis__op_write(op, array);
    if (op->ok && array->numel > 0)
        op->ok = ignis__copy_zeros(&op->work, target, ignis__array_bytes(array));
}

static void ignis__op_fill(ignis__op *op, ignis__array *array, double value)
{
    op->ok = op->ok && ignis__work_fill(&op->work, array, value);
}

/*  The operation's word of 8 bytes that is 0 for its kernels, and that they leave 0. */
static ignis__address ignis__op_zeroed(ignis__op *op)
{
    if (op->ok && !op->zeroed) {
        op->zeroed = ignis__memory_take_zeroed(op->work.call, op->work.device, op->work.stream);
        op->ok = op->zeroed != NULL;
    }
    return op->ok ? op->zeroed->address : 0;
}

/*  Lets the arrays go that an operation has made but for the first so many, and has not handed over. */
static void ignis__op_unmake(ignis__op *op, int count)
{
    while (op->made_count > count)
        ignis__array_destroy(op->work.call, op->made[--op->made_count]);
}

/*  Ends an operation. Arrays that it made and has not handed over go; the failure status, or IGNIS_OK. */
static ignis_status ignis__op_leave(ignis__op *op)
{
    const char *call = op->work.call;
    if (op->zeroed && op->ok)
        ignis__memory_give_zeroed(call, op->work.device, op->zeroed);
    else if (op->zeroed)
        ignis__memory_give(call, op->work.device, op->zeroed);
    ignis__op_unmake(op, 0);
    ignis__op_drop_inputs(op);
    ignis__work_end(&op->work);
    return op->ok ? IGNIS_OK : ignis__failed();
}

/*  The same of one with two results, of which the second one (null, or no handle: there is none) is not left alone behind a failure. */
static void ignis__op_leave_two(ignis__op *op, ignis_tensor *second)
{
    if (ignis__op_leave(op) != IGNIS_OK && second && second->id) {
        (void)ignis_tensor_release(*second);
        *second = ignis__no_tensor();
    }
}

/*  The entry of an operation on tensors, with what it saves. standings: as for ignis__node_make. Null after a failure. */
static ignis__node *ignis__op_record(ignis__op *op, int count, ignis__tensor *const *inputs, const ignis__standing *standings,
                                     const ignis_rule *rule)
{
    const char *call = op->work.call;
    ignis__node *node = ignis__node_make(call, count, inputs, standings, rule);
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

/*  A tensor of what an operation has made out of some tensors, recorded by the rule (null: not at all). No handle after a failure. */
static ignis_tensor ignis__op_result(ignis__op *op, ignis__array *output, int count, ignis__tensor *const *inputs,
                                     const ignis__standing *standings, const ignis_rule *rule)
{
    ignis_tensor result = IGNIS__ZERO;
    ignis__tensor *made;
    ignis__node *node = NULL;
    if (!op->ok)
        return result;
    if (!ignis__op_hand_over(op, output, 1))
        ignis__array_claim(output);
    made = ignis__tensor_make(op->work.call, output, false);
    if (!made) {
        ignis__array_unclaim(op->work.call, output);
    } else if (rule && (node = ignis__op_record(op, count, inputs, standings, rule)) == NULL) {
        ignis__tensors_bury(op->work.call, made);
        made = NULL;
    }
    if (node) {
        node->knows_one = op->knows_one;
        ignis__tensor_result(made, node);
        ignis__tape_append(node);
    }
    op->ok = made != NULL;
    return made ? ignis__tensor_publish(made) : result;
}

/*  Ends an operation with its result, recorded by the rule (null: never) where a gradient is wanted. No handle after a failure. */
static ignis_tensor ignis__op_end(ignis__op *op, ignis__array *output, const ignis_rule *rule)
{
    ignis_tensor result = ignis__op_result(op, output, op->count, op->tensors, op->standing, op->records ? rule : NULL);
    ignis__op_leave(op);
    return result;
}

/*  Saves an array for the backward function (null: nothing). */
IGNIS__ONE_COPY static void ignis__op_save(ignis__op *op, ignis__array *array)
{
    if (op->ok && array)
        op->saved[op->saved_count++] = array;
}

/*  The same for inputs from a first to before a last one. */
static void ignis__op_save_inputs(ignis__op *op, int first, int last)
{
    for (; first < last; first++)
        ignis__op_save(op, op->in[first]);
}

/*  A rule whose backward function needs what the operation has saved, and params. */
IGNIS__ONE_COPY static ignis_rule ignis__op_rule(const ignis__op *op, const char *name,
                                                 ignis_status (*backward_fn)(const ignis_backward_args *args), const void *params,
                                                 size_t params_size)
{
    ignis_rule rule = IGNIS__ZERO;
    rule.name = name;
    rule.backward_fn = backward_fn;
    rule.saved_count = op->saved_count;
    rule.params = params;
    rule.params_size = params_size;
    return rule;
}

/*  Ends an operation on tensors whose backward function needs what it saved, and params. Integers have no gradient. */
IGNIS__ONE_COPY static ignis_tensor ignis__op_end_recorded(ignis__op *op, ignis__array *output, const char *name,
                                                           ignis_status (*backward_fn)(const ignis_backward_args *args), const void *params,
                                                           size_t params_size)
{
    ignis_rule rule = ignis__op_rule(op, name, backward_fn, params, params_size);
    return ignis__op_end(op, output, op->ok && ignis__dtype_is_float(output->dtype) ? &rule : NULL);
}

/*  Ends a backward function: hands arrays that it made to the tape, each for the input of the same place (null: none), where it is needed. */
IGNIS__ONE_COPY static ignis_status ignis__op_give(ignis__op *op, const ignis_backward_args *args, int count,
                                                   ignis__array *const *gradients)
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

/*  The same, where the sums of the columns of the first gradient are known, for ignis__walk_sums_leave; null: they are not. */
static ignis_status ignis__op_give_with_sums(ignis__op *op, const ignis_backward_args *args, int count, ignis__array *const *gradients,
                                             ignis__array *sums)
{
    ignis_array known = IGNIS__ZERO;
    ignis_status status;
    if (op->ok && sums) {
        ignis__op_hand_over(op, sums, 0);
        known.id = sums->slot.handle;
    }
    status = ignis__op_give(op, args, count, gradients);
    if (known.id)
        ignis__walk_sums_leave(args->grad_inputs[0], known);
    return status;
}

/*  The same for a single input. */
static ignis_status ignis__op_give_one(ignis__op *op, const ignis_backward_args *args, ignis__array *gradient)
{
    return ignis__op_give(op, args, 1, &gradient);
}

IGNIS__ONE_COPY static bool ignis__op_same_dtype(ignis__op *op, int input, const char *name)
{
    if (op->in[input]->dtype != op->in[0]->dtype)
        ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "%s is %s, the first input is %s", name, ignis__dtypes[op->in[input]->dtype].name,
                       ignis__dtypes[op->in[0]->dtype].name);
    return op->ok;
}

IGNIS__ONE_COPY static bool ignis__op_is_float(ignis__op *op, int input, const char *name)
{
    if (!ignis__dtype_is_float(op->in[input]->dtype))
        ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "%s is %s; f16, bf16, f32 or f64 is needed", name,
                       ignis__dtypes[op->in[input]->dtype].name);
    return op->ok;
}

IGNIS__ONE_COPY static bool ignis__op_is_index(ignis__op *op, int input, const char *name)
{
    ignis_dtype dtype = op->in[input]->dtype;
    if (dtype != IGNIS_I32 && dtype != IGNIS_I64)
        ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "%s is %s; i32 or i64 is needed", name, ignis__dtypes[dtype].name);
    return op->ok;
}

IGNIS__ONE_COPY static bool ignis__op_same_shape(ignis__op *op, int input, const char *name)
{
    const ignis_shape *a = &op->in[0]->shape, *b = &op->in[input]->shape;
    if (!ignis__shape_same(a, b))
        ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "%s is %s, the first input is %s", name, ignis__shape_write(b).text,
                       ignis__shape_write(a).text);
    return op->ok;
}

/*  Whether an input is a row of n elements, one for each of the last dimension of the first one. */
static bool ignis__op_is_row(ignis__op *op, int input, const char *name, int64_t n)
{
    const ignis_shape *shape = &op->in[input]->shape;
    if (shape->ndim != 1 || shape->dim[0] != n)
        ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "%s is %s; x is %s, and needs [%lld]", name, ignis__shape_write(shape).text,
                       ignis__shape_write(&op->in[0]->shape).text, (long long)n);
    return op->ok;
}

/*  What is added to a variance; 0 is 1e-5. As f32 it is a normal number, or rows of zeros would be divided by 0. */
static bool ignis__op_eps(ignis__op *op, double *eps)
{
    static const double smallest = 1.1754943508222875e-38; /* 2^-126 */
    if (!ignis__is_finite(*eps) || *eps < 0)
        ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "eps is %g, not 0 or more", *eps);
    if (*eps == 0)
        *eps = 1e-5;
    else if (op->ok && *eps < smallest && op->in[0]->dtype != IGNIS_F64)
        *eps = smallest;
    return op->ok;
}

/*  An array that a desc names is on the operation's device. */
static bool ignis__op_same_device(ignis__op *op, const ignis__array *array, const char *name)
{
    if (array->storage->device != op->work.device)
        ignis__op_fail(op, IGNIS_DIAG_DEVICE_DIFFERS, "desc->%s is on device %d, x is on device %d", name,
                       ignis__device_ordinal(array->storage->device), ignis__device_ordinal(op->work.device));
    return op->ok;
}

/*  A dimension by number, from the last one on backwards where negative. */
static bool ignis__op_dim(ignis__op *op, int *dim, const char *name)
{
    int ndim = op->in[0]->shape.ndim;
    if (*dim < -ndim || *dim >= ndim)
        return ignis__op_fail(op, IGNIS_DIAG_DIM_RANGE, "%s is %d, outside -%d to %d of %s", name, *dim, ndim, ndim - 1,
                              ignis__shape_write(&op->in[0]->shape).text);
    if (*dim < 0)
        *dim += ndim;
    return op->ok;
}

/*  Sums and statistics are in this. */
static ignis_dtype ignis__wide_dtype(ignis_dtype dtype) { return dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32; }

/*  What ignis_wide is in kernels, in an array. */
static ignis_dtype ignis__sum_dtype(ignis_dtype dtype) { return ignis__dtype_is_int(dtype) ? IGNIS_I64 : ignis__wide_dtype(dtype); }

/*  Elements of 16 bytes, which a thread reads at a time. */
static int64_t ignis__pack_elements(ignis_dtype dtype) { return 16 / ignis__dtypes[dtype].size; }

/* >>ops.shape - reshape: the smallest operation, and the pattern of the others --------------------------------------------- */

static ignis_status ignis__reshape_backward(const ignis_backward_args *args)
{
    args->grad_inputs[0] = args->grad_output; /* the same elements in the same order; the tape gives leaves their own shape */
    return IGNIS_OK;
}

IGNIS_API ignis_tensor ignis_reshape(ignis_tensor tensor, ignis_shape shape)
{
    static const char call[] = "ignis_reshape";
    ignis__op op;
    ignis__array *view;
    int64_t numel = 0;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    op.ok = ignis__shape_infer(call, &shape, op.in[0]->numel) && ignis__shape_check(call, &shape, op.in[0]->dtype, &numel);
    if (op.ok && numel != op.in[0]->numel)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "%s cannot become %s: %lld elements are not %lld",
                       ignis__shape_write(&op.in[0]->shape).text, ignis__shape_write(&shape).text, (long long)op.in[0]->numel,
                       (long long)numel);
    view = ignis__op_view(&op, op.in[0], &shape, numel, 0);
    return ignis__op_end_recorded(&op, view, "reshape", ignis__reshape_backward, NULL, 0);
}

/* >>ops.matmul - matrix products: own kernels ------------------------------------------------------------------------------ */

/*  A product of row-major matrices: out [batch, m, n] = op(a) op(b). */
typedef struct ignis__product {
    int64_t m, n, k, batch;
    int64_t batch_a, batch_b;     /* elements between the matrices of a batch; 0: one matrix for all */
    int transpose_a, transpose_b; /* a is stored [k, m]; b is stored [n, k] */
    int dtype, epilogue;          /* one of cuBLASLt's */
    int alignment;                /* of all addresses, in bytes: 16, 8, 4 or 2 */
    int operands;                 /* the dtype of a and b, where it is not dtype; 0: it is */
} ignis__product;

/*  a [m, k] times b, which is [k, n], or where it is transposed [n, k]. */
static ignis__product ignis__product_of(ignis_dtype dtype, int64_t m, int64_t n, int64_t k, int transpose_b)
{
    ignis__product p = IGNIS__ZERO;
    p.m = m;
    p.n = n;
    p.k = k;
    p.batch = 1;
    p.batch_a = m * k;
    p.batch_b = k * n;
    p.transpose_b = transpose_b;
    p.dtype = (int)dtype;
    return p;
}

/*  An ignis_activation of products alone, the second ones of a gated layer: silu(gate) * product. pre has the gate and behind it the products,
    which are written where `keeps`, and read by a gradient. Its out is [2, m, n], too: of the gate and the product. There are no batches, and
    nothing else is done. */
#define IGNIS__ACTIVATION_GATED 3

/*  An ignis_activation of products alone: silu of the first half of the columns, times the second, is the result [m, n / 2]. For those that
    ignis__gemm_pairs takes. */
#define IGNIS__ACTIVATION_PAIRED 4

/*  What is done to a product before it is stored, in this order; null arrays leave their part out. Sums need a product without batches. */
typedef struct ignis__epilogue {
    double factor;      /* of the product; 0: 1 */
    ignis__array *bias; /* [n], added to each row */
    int activation;     /* an ignis_activation, or one of those above; 0: none */
    bool gradient;      /* the product is multiplied by the derivative of the activation at pre */
    ignis__array *pre;  /* like out: where the product with its bias is kept; of a gradient, what was kept. Gated: [2, m, n], see above */
    bool keeps;         /* of gated ones that are no gradient */
    ignis__array *residual;          /* like out, added */
    ignis__array *column_sums;       /* [n]: the sums of the results over m */
    bool accumulate;                 /* the result is added to what is in out */
    ignis__array *row_sums;          /* [m]: the sums of op(a) over k */
    ignis__array *scale_a, *scale_b; /* of operands of 8 bits, f32: [1] or [m], [1] or [n] */
} ignis__epilogue;

/*  The patches of a convolution, as in kernels/gemm.cuh. */
typedef struct ignis__patches {
    ignis__divisor rows, columns, channels, across;
    int height, width, first[2], stride[2], step[2], apart, weight, weight_step[2], weight_channels;
    int64_t weight_row, pixel, out_image, out_row, out_column;
} ignis__patches;

/*  The parameters of the kernels, as in kernels/gemm.cuh. */
typedef struct ignis__gemm {
    ignis__address a, b, out, bias, pre, residual, partial, row_sums, column_sums, scale_a, scale_b;
    int64_t m, n, k, batch, batch_a, batch_b, row_a, row_b, split_k;
    double factor;
    int splits, transpose_a, transpose_b, activation, gradient, scales_a, scales_b, accumulate, keeps, packed_a, packed_b, packed_out,
        box_a, box_b;
    ignis__patches patches;
    /* what kernels do not see */
    int patches_of;              /* the operand that has patches: 1 is a, 2 is b; 0: it is a plain product */
    int64_t wgmma_k;             /* of a product with patches: what k is by wgmma; 0: that cannot be used */
    int64_t images, weights;     /* of these; and the channels of the weights */
    bool folded;                 /* pairs of pixels are one with twice the channels */
    ignis_dtype dtype, operands; /* of the result; of a and b */
    int rows;                    /* of a tile by wgmma; 0: as ignis__gemm_rows finds */
    int pairs;                   /* what pairs of blocks of kernels/gemm_hopper.cu share, as below; 0: there are none */
} ignis__gemm;

enum { IGNIS__SHARE_A = 1, IGNIS__SHARE_B };

/*  A kernel: the tile of a block, its threads, blocks of a multiprocessor at a time, and nanoseconds: of 64 elements of k of a tile for a
    multiprocessor, and for a block at least; between two tiles; before the first. On an H200, of 16-bit elements, and of f32 in plain CUDA C. */
typedef struct ignis__gemm_tile {
    ignis__builtin builtin;
    int rows, columns;
    unsigned threads;
    int blocks, step, latency, between, before;
} ignis__gemm_tile;

/* clang-format off */
static const ignis__gemm_tile ignis__gemm_tile_sizes[] = {
    {IGNIS__BUILTIN_GEMM_HOPPER, 128, 256, 384, 1, 690, 690, 1000, 800},
    {IGNIS__BUILTIN_GEMM_HOPPER, 128, 192, 384, 1, 525, 525, 100, 1800},
    {IGNIS__BUILTIN_GEMM_HOPPER, 192, 192, 512, 1, 800, 800, 1500, 800}, /* or fewer columns: ignis__gemm_fit */
    {IGNIS__BUILTIN_GEMM_HOPPER, 128, 128, 384, 1, 380, 300, 600, 800},
    {IGNIS__BUILTIN_GEMM_HOPPER, 128, 64, 384, 1, 220, 165, 600, 700}, /* in pairs */
    {IGNIS__BUILTIN_GEMM_HOPPER, 128, 64, 384, 2, 230, 250, 600, 800},
    {IGNIS__BUILTIN_GEMM_HOPPER, 64, 128, 384, 2, 240, 400, 600, 800},
    {IGNIS__BUILTIN_GEMM_MMA, 128, 128, 256, 1, 1000, 1000, 1000, 1500},
    {IGNIS__BUILTIN_GEMM_MMA_SMALL, 64, 64, 128, 3, 280, 490, 1000, 1600},
    {IGNIS__BUILTIN_GEMM, 128, 128, 256, 1, 7000, 7000, 1000, 2000},
    {IGNIS__BUILTIN_GEMM_SMALL, 64, 64, 256, 2, 2400, 2900, 1000, 1000},
    {IGNIS__BUILTIN_GEMM_TINY, 16, 32, 256, 1, 220, 580, 1700, 0},
};
/* clang-format on */

/*  A kernel, and how it is launched for a product. */
typedef struct ignis__gemm_kernel {
    ignis__builtin builtin;
    int rows, columns, summed_rows; /* of a tile; so many rows of it are one row of column_sums */
    bool sums_rows;                 /* it makes row_sums */
    bool stays;                     /* a block does one tile after the other */
    bool packs;                     /* operands whose rows are no packs are copied first */
    bool turns;                     /* those that do not lie by k are copied so */
    int64_t splits;                 /* of k */
    unsigned threads, shared;
    int blocks;                  /* of a multiprocessor at a time */
    char define[IGNIS__DEFINES]; /* of its variant; "": none */
} ignis__gemm_kernel;

static int64_t ignis__gemm_tiles(const ignis__gemm *p, int rows, int columns)
{
    return ignis__ceil_div(p->m, rows) * ignis__ceil_div(p->n, columns) * p->batch;
}

/*  Whether tensor cores may multiply elements of a dtype: of f32 they leave some bits out. */
static bool ignis__gemm_rounds(ignis_dtype operands)
{
    return operands == IGNIS_F16 || operands == IGNIS_BF16 || (operands == IGNIS_F32 && ignis__allow_tf32) || ignis__dtype_is_f8(operands);
}

/*  Whether the device, the driver and the compiler have wgmma for the dtype. */
static bool ignis__gemm_has_wgmma(const ignis__op *op, ignis_dtype dtype)
{
    return ignis__gemm_rounds(dtype) && op->work.device->info.compute_major == 9 && ignis__cuda.cuTensorMapEncodeTiled &&
           ignis__wgmma_compiles(op->work.call);
}

/*  Whether wgmma can be used: what the copy engine takes are fewer than 2^31 elements a side, and f32 has to lie by k, or is turned: in packs. */
static bool ignis__gemm_takes_wgmma(const ignis__op *op, const ignis__gemm *p)
{
    int64_t most = INT32_MAX - 256;
    bool by_k = !p->transpose_a && p->transpose_b,
         turns = p->k % 4 == 0 && (p->transpose_a || p->packed_a) && (!p->transpose_b || p->packed_b);
    return ignis__gemm_has_wgmma(op, p->operands) && (p->operands != IGNIS_F32 || (!p->patches_of && (by_k || turns))) && p->k > 0 &&
           (!p->patches_of || p->wgmma_k) && p->m < most && p->n < most && p->k < most && p->batch < most;
}

/*  Whether blocks can come in pairs. */
static bool ignis__gemm_has_pairs(const ignis__op *op) { return op->work.device->clusters && op->work.device->info.multiprocessors > 1; }

/*  Whether pairs of blocks with tiles of 64 columns may share a; and whether such tiles are theirs. */
static bool ignis__gemm_may_share_a(const ignis__gemm *p) { return !p->patches_of && p->n > 64; }

static bool ignis__gemm_shares_a(int rows, int columns, int blocks) { return rows == 128 && columns == 64 && blocks == 1; }

/*  A product as wgmma has it: taps of patches are whole steps, and operands that are not of 16 bits lie by k. */
static ignis__gemm ignis__gemm_by_wgmma(const ignis__gemm *product)
{
    ignis__gemm p = *product;
    if (p.patches_of)
        p.k = p.wgmma_k;
    if (ignis__dtypes[p.operands].size != 2) {
        p.row_a = p.row_b = p.k;
        p.transpose_a = 0;
        p.transpose_b = 1;
    }
    return p;
}

/*  Whether tiles are finished beside the next one: kernels/gemm_hopper_ahead.cuh. */
static bool ignis__gemm_is_ahead(const ignis__gemm_tile *tile) { return tile->columns == 192 && tile->rows == 128; }

/*  Whether rows, which are copied to whole packs of 16 bytes where they are none, begin at sectors of the L2 cache, of 32 bytes. */
static bool ignis__gemm_whole_sectors(const ignis__gemm *p, int64_t row)
{
    return ignis__ceil_div(row, ignis__pack_elements(p->operands)) % 2 == 0;
}

/*  Whether pairs of blocks that share b pay. */
static bool ignis__gemm_shares_b(const ignis__gemm *p, int columns)
{
    return columns > 64 && !p->patches_of && p->m > 128 &&
           !(ignis__gemm_whole_sectors(p, p->row_a) && ignis__gemm_whole_sectors(p, p->row_b));
}

/*  Whether kernels/gemm_hopper.cu leaves out what does not exist of such tiles, when it loads them. */
static bool ignis__gemm_skips(const ignis__gemm *p, int rows, int columns) { return !p->patches_of && (columns <= 128 || rows == 192); }

/*  Estimates the nanoseconds of a kernel for a product whose k is shared out: by the multiprocessor with the most blocks, by the rounds of blocks
    that there is room for, and by the L2 cache, which gives 11500 bytes a nanosecond, 16000 to tiles of 192 rows, and to wgmma 5900 of rows that do
    not begin at its sectors. ignis_gemm_finish has 8 loads under way a thread. */
static double ignis__gemm_time(const ignis__op *op, const ignis__gemm *p, const ignis__gemm_tile *tile, int64_t splits)
{
    int64_t size = ignis__dtypes[p->operands].size, processors = op->work.device->info.multiprocessors, room = processors * tile->blocks;
    bool hopper = tile->builtin == IGNIS__BUILTIN_GEMM_HOPPER,
         shares_b = hopper && ignis__gemm_has_pairs(op) && ignis__gemm_shares_b(p, tile->columns);
    bool shares_a = ignis__gemm_shares_a(tile->rows, tile->columns, tile->blocks);
    int64_t between = tile->between;
    int64_t down = shares_b ? 2 * ignis__ceil_div(p->m, 2 * tile->rows) : ignis__ceil_div(p->m, tile->rows),
            across = ignis__ceil_div(p->n, tile->columns);
    int64_t blocks = down * across * p->batch * splits, rounds = ignis__ceil_div(blocks, room);
    bool skips = hopper && ignis__gemm_skips(p, tile->rows, tile->columns);
    double rows = (skips ? (double)p->m / (double)down : (double)ignis__clamp(p->m, 0, tile->rows)) / (shares_a ? 2 : 1);
    double columns = (skips ? (double)p->n / (double)across : (double)ignis__clamp(p->n, 0, tile->columns)) / (shares_b ? 2 : 1);
    double whole = tile->rows == 192 ? 16000 : 11500, parts = hopper && !p->patches_of ? 5900 : whole;
    double each = rows / (ignis__gemm_whole_sectors(p, p->row_a) ? whole : parts) +
                  columns / (ignis__gemm_whole_sectors(p, p->row_b) ? whole : parts);
    double scale =
        tile->builtin == IGNIS__BUILTIN_GEMM || tile->builtin == IGNIS__BUILTIN_GEMM_SMALL || tile->builtin == IGNIS__BUILTIN_GEMM_TINY
            ? size == 8 ? 2 : 1
            : (double)size / 2;
    double step = scale * tile->step * (double)ignis__ceil_div(blocks, processors), latency = scale * tile->latency * (double)rounds;
    double cache = 64.0 * (double)size * each * (double)(blocks < room ? blocks : room) * (double)rounds, time;
    step = step > latency ? step : latency;
    step = step > cache ? step : cache;
    if (hopper && p->dtype == IGNIS_F32 && tile->blocks == 1 && splits == 1 &&
        !ignis__gemm_is_ahead(tile)) /* so much is stored, and nothing multiplied */
        between += tile->rows * tile->columns / 8;
    time = step * (double)ignis__ceil_div(ignis__ceil_div(p->k, splits), 64) + (double)(between * rounds + tile->before);
    if (splits > 1)
        time += 2000 + 600 * (double)ignis__ceil_div(splits, 8) + (double)(p->m * p->n * p->batch * (4 * splits + size)) / 3000;
    return time;
}

/*  Parts of k, of 128 at least, that fill so many rounds of blocks; 1: no more than pay for adding them up. */
static int64_t ignis__gemm_splits(const ignis__op *op, const ignis__gemm *p, const ignis__gemm_tile *tile, int rounds)
{
    int64_t room = rounds * op->work.device->info.multiprocessors * tile->blocks / ignis__gemm_tiles(p, tile->rows, tile->columns),
            splits = 2;
    double whole = (double)tile->latency * (double)p->k / 64, part = 75 + (double)(p->m * p->n * p->batch) / 750;
    while (rounds == 1 && splits < room && 2 * (double)(splits * splits) * part < whole)
        splits *= 2;
    return ignis__clamp(rounds == 1 ? splits : room, 1, ignis__clamp(p->k / 128, 1, room > 1 ? room : 1));
}

/*  Larger operands are not copied. */
static int64_t ignis__gemm_pack_limit = (int64_t)1 << 30;

/*  Rows of a tile by wgmma: fewer where a convolution's gradient of w has no more. */
static int ignis__gemm_rows(const ignis__gemm *p) { return p->rows ? p->rows : p->patches_of == 2 && p->m <= 64 && p->n > 64 ? 64 : 128; }

/*  Its columns: 64 where there are no more, unless of 8 bits, else 128, or 256 if that is asked for. */
static int ignis__gemm_columns(const ignis__gemm *p, int columns)
{
    return p->n <= 64 && !ignis__dtype_is_f8(p->operands) ? 64 : ignis__gemm_rows(p) == 64 || columns == 64 ? 128 : columns;
}

static bool ignis__gemm_gates(const ignis__gemm *p) { return p->activation == IGNIS__ACTIVATION_GATED; }

/*  Columns of the result. */
static int64_t ignis__gemm_out_columns(const ignis__gemm *p) { return p->activation == IGNIS__ACTIVATION_PAIRED ? p->n / 2 : p->n; }

/*  Whether a product by wgmma is finished in registers, with tiles of so many columns: kernels/gemm_hopper.cu. */
static bool ignis__gemm_direct(const ignis__gemm *p, int columns)
{
    int others = (p->gradient != 0) + (p->residual != 0) + (p->accumulate != 0);
    bool gates = ignis__gemm_gates(p), paired = p->activation == IGNIS__ACTIVATION_PAIRED;
    if (p->dtype == IGNIS_F32 ? gates || paired || p->column_sums : (gates && columns != 192) || (paired && columns != 128))
        return false;
    return p->packed_out && !p->partial && p->factor == 1 && others <= 1 && !(p->activation && p->row_sums) &&
           (p->gradient ? !p->bias : !p->column_sums && !(others && p->activation));
}

/*  What is read from or written to beside the result when a product is finished in registers. */
static ignis__address ignis__gemm_other(const ignis__gemm *p) { return p->residual ? p->residual : p->accumulate ? p->out : p->pre; }

/*  What a variant has to be told of operands that are not of the result's dtype. */
static const char *ignis__gemm_operands_define(ignis_dtype dtype)
{
    return dtype == IGNIS_F8_E4M3 ? " -DIGNIS_OPERANDS=8" : dtype == IGNIS_F8_E5M2 ? " -DIGNIS_OPERANDS=9" : "";
}

/*  The variant of kernels/gemm_mma.cu. */
static void ignis__gemm_mma_define(char *define, size_t size, const ignis__gemm *p)
{
    snprintf(define, size, "-DIGNIS_TRANSPOSE_A=%d -DIGNIS_TRANSPOSE_B=%d -DIGNIS_PATCHES=%d%s", p->transpose_a, p->transpose_b,
             p->patches_of, ignis__gemm_operands_define(p->operands));
}

/*  The variant of kernels/gemm_hopper.cu. Each that does not finish in registers finishes all products. */
static void ignis__gemm_hopper_define(char *define, size_t size, const ignis__gemm *p, int columns, bool direct)
{
    snprintf(define, size,
             "-DIGNIS_TRANSPOSE_A=%d -DIGNIS_TRANSPOSE_B=%d -DIGNIS_PATCHES=%d -DIGNIS_COLUMNS=%d -DIGNIS_DIRECT=%d -DIGNIS_ACTIVATION=%d "
             "-DIGNIS_OTHER=%d%s%s%s",
             p->transpose_a, p->transpose_b, p->patches_of, columns, direct, direct ? p->activation : 0,
             !direct                ? 0
             : p->gradient          ? 2
             : ignis__gemm_gates(p) ? 3
                                    : ignis__gemm_other(p) != p->pre,
             ignis__gemm_rows(p) == 64    ? " -DIGNIS_ROWS=64"
             : ignis__gemm_rows(p) == 192 ? " -DIGNIS_ROWS=192"
                                          : "",
             p->pairs == IGNIS__SHARE_A ? " -DIGNIS_PAIRS=1"
             : p->pairs                 ? " -DIGNIS_PAIRS=2"
                                        : "",
             ignis__gemm_operands_define(p->operands));
}

/*  The least k of tiles that are finished beside the next one: 12 steps of 128 bytes. */
static int64_t ignis__gemm_ahead_k(ignis_dtype dtype) { return 11 * 128 / ignis__dtypes[dtype].size + 1; }

/*  Whether a tile may be finished beside the next one: kernels/gemm_hopper_ahead.cuh. f32 would wait for what is read, and 8 bits have no registers
    for it. */
static bool ignis__gemm_ahead(const ignis__gemm *product, const ignis__epilogue *epilogue)
{
    ignis__gemm p = *product;
    p.column_sums = epilogue->column_sums != NULL;
    return !p.patches_of && !epilogue->row_sums && p.k >= ignis__gemm_ahead_k(p.dtype) && !ignis__dtype_is_f8(p.operands) &&
           !(p.dtype == IGNIS_F32 && (p.gradient || p.residual || p.accumulate)) && ignis__gemm_direct(&p, 192);
}

/*  Whether a tile may have 192 rows: nothing is read beside the operands and a bias, and nothing summed. */
static bool ignis__gemm_large(const ignis__gemm *p, const ignis__epilogue *epilogue)
{
    return !p->patches_of && !ignis__dtype_is_f8(p->operands) && p->m > 128 && p->n > 128 && !p->gradient && !p->residual &&
           !p->accumulate && !epilogue->row_sums && !epilogue->column_sums && ignis__gemm_direct(p, 192) && !ignis__gemm_gates(p);
}

/*  Whether the device has the variant with so many columns, and rows: where nothing is compiled, others may have been recorded. */
static bool ignis__gemm_exists(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *product, const ignis__epilogue *epilogue,
                               int rows, int columns, int pairs)
{
    ignis__gemm p = *product;
    char define[IGNIS__DEFINES];
    if (!ignis__compile_never)
        return true;
    p.column_sums = epilogue->column_sums != NULL;
    p.rows = rows;
    p.pairs = pairs;
    ignis__gemm_hopper_define(define, sizeof define, &p, columns, ignis__gemm_direct(&p, columns));
    return ignis__variant_exists(op->work.device, IGNIS__BUILTIN_GEMM_HOPPER, dtype, define);
}

/*  Gives a tile of 192 rows as many of its columns as are best, a multiple of 16; false: there is no such kernel. */
static bool ignis__gemm_fit(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *p, const ignis__epilogue *epilogue,
                            ignis__gemm_tile *tile)
{
    ignis__gemm_tile fitted = *tile;
    const ignis__gemm_tile widest = *tile;
    double least = -1;
    for (fitted.columns = 64; fitted.columns <= widest.columns; fitted.columns += 16) {
        double time;
        fitted.step = fitted.latency = widest.step * fitted.columns / widest.columns;
        time = ignis__gemm_time(op, p, &fitted, 1);
        if ((least >= 0 && time >= least) || !ignis__gemm_exists(op, dtype, p, epilogue, fitted.rows, fitted.columns, 0))
            continue;
        *tile = fitted;
        least = time;
    }
    return least >= 0;
}

/*  The one place that chooses an own kernel: tensor cores for 16-bit types and f32 that may be rounded, else plain CUDA C; tiles and splits of k by
    the least time. wgmma needs rows of whole packs, and mma.sync is 12 times slower without: other operands are copied for them. */
static ignis__gemm_kernel ignis__gemm_choose(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *p, const ignis__epilogue *epilogue)
{
    ignis__gemm_tile best = IGNIS__ZERO;
    ignis__gemm_kernel kernel = IGNIS__ZERO;
    ignis__gemm by_wgmma = ignis__gemm_by_wgmma(p);
    int64_t bytes_a = (p->batch_a ? p->batch : 1) * p->m * p->k * ignis__dtypes[p->operands].size;
    int64_t bytes_b = (p->batch_b ? p->batch : 1) * p->k * p->n * ignis__dtypes[p->operands].size;
    bool eights = ignis__dtype_is_f8(p->operands);
    bool tensor_cores = ignis__gemm_rounds(p->operands) && ignis__capability(&op->work.device->info) >= (eights ? 89 : 80),
         wgmma = tensor_cores && ignis__gemm_takes_wgmma(op, p);
    bool packed = p->packed_a && p->packed_b, may_pack = !p->patches_of && (p->packed_a || bytes_a <= ignis__gemm_pack_limit) &&
                                                         (p->packed_b || bytes_b <= ignis__gemm_pack_limit);
    bool turns = p->operands == IGNIS_F32 && (p->transpose_a || !p->transpose_b), /* by wgmma */
        may_turn = (!p->transpose_a || bytes_a <= ignis__gemm_pack_limit) && (p->transpose_b || bytes_b <= ignis__gemm_pack_limit);
    int64_t processors = op->work.device->info.multiprocessors;
    int64_t wide = ignis__gemm_tiles(p, 128, 192), other = ignis__gemm_tiles(p, 128, 128);
    bool ahead = ignis__gemm_ahead(p, epilogue) &&
                 (op->steady ? 3 * ignis__ceil_div(wide, processors) < 2 * ignis__ceil_div(other, processors) /* fewer rounds */
                             : wide > processors) && /* a block needs a next tile */
                 ignis__gemm_exists(op, dtype, &by_wgmma, epilogue, 0, 192, 0);
    bool pairs = wgmma && ignis__gemm_has_pairs(op) && !op->steady && ignis__gemm_may_share_a(p) &&
                 ignis__gemm_exists(op, dtype, &by_wgmma, epilogue, 0, 64, IGNIS__SHARE_A);
    bool large = wgmma && !op->steady && ignis__gemm_large(p, epilogue);
    unsigned staging, stage, stages; /* bytes of a row and of a step of k; steps that are on their way */
    double least = 0, packing = 3000 + (double)((p->packed_a ? 0 : bytes_a) + (p->packed_b ? 0 : bytes_b)) / 1500;
    double turning = (p->transpose_a ? 3000 + (double)bytes_a / 2000 : 0) + (p->transpose_b ? 0 : 3000 + (double)bytes_b / 2000);
    double gating = ignis__gemm_gates(p) ? (double)(3 * p->m * p->n * ignis__dtypes[dtype].size) / 3000 : 0; /* not beside another tile */
    int i, turn;
    for (i = 0; i < IGNIS__COUNT(ignis__gemm_tile_sizes); i++) {
        ignis__gemm_tile tile = ignis__gemm_tile_sizes[i];
        bool hopper = tile.builtin == IGNIS__BUILTIN_GEMM_HOPPER;
        bool mma = tile.builtin == IGNIS__BUILTIN_GEMM_MMA || tile.builtin == IGNIS__BUILTIN_GEMM_MMA_SMALL;
        bool is_tiny = tile.builtin == IGNIS__BUILTIN_GEMM_TINY; /* exact, for every type, and for little work */
        bool is_large = tile.rows == 192, is_ahead = ignis__gemm_is_ahead(&tile);
        bool shares_a = ignis__gemm_shares_a(tile.rows, tile.columns, tile.blocks);
        const ignis__gemm *of = hopper ? &by_wgmma : p;
        int64_t tiles = ignis__gemm_tiles(p, tile.rows, tile.columns);
        if ((is_tiny ? tiles > 4 * processors || (tensor_cores && packed && dtype != IGNIS_F32) : (hopper || mma) != tensor_cores) ||
            (is_ahead && !ahead) || (eights && (is_tiny || tile.columns > 128)) ||
            (hopper && (!wgmma || !(turns ? may_turn : packed || may_pack) ||
                        (is_large ? !large || !ignis__gemm_fit(op, dtype, of, epilogue, &tile)
                                  : (shares_a ? !pairs : tile.columns != ignis__gemm_columns(p, tile.columns)) ||
                                        tile.rows != ignis__gemm_rows(p)))) ||
            (op->steady && (is_tiny || best.threads || tile.columns > 192))) /* k is in one order in all that are left */
            continue;
        for (turn = 0; turn <= (p->k < 256 || op->steady || is_ahead || is_large ? 0 : 3); turn++) {
            int64_t splits = turn ? ignis__gemm_splits(op, of, &tile, turn) : 1;
            double time = turn && splits == 1 ? least : ignis__gemm_time(op, of, &tile, splits);
            bool packs = !packed && (hopper ? !turns : mma && may_pack && 12 * time > time + packing);
            time = packs ? time + packing : !packed && mma ? 12 * time : time;
            time += (is_ahead ? 0 : gating) + (hopper && turns ? turning : 0);
            if (best.threads && time >= least)
                continue;
            best = tile;
            least = time;
            kernel.splits = splits;
            kernel.packs = packs;
            kernel.turns = hopper && turns;
        }
    }
    kernel.builtin = best.builtin;
    kernel.rows = kernel.summed_rows = best.rows;
    kernel.columns = best.columns;
    kernel.threads = best.threads;
    kernel.blocks = best.blocks;
    tensor_cores = tensor_cores && best.builtin != IGNIS__BUILTIN_GEMM_TINY;
    kernel.sums_rows = !tensor_cores || dtype != IGNIS_F32; /* as what is summed would be rounded */
    if (p->patches_of)
        snprintf(kernel.define, sizeof kernel.define, "-DIGNIS_PATCHES=%d", p->patches_of);
    if (!tensor_cores)
        return kernel;
    ignis__gemm_mma_define(kernel.define, sizeof kernel.define, p);
    if (best.builtin == IGNIS__BUILTIN_GEMM_HOPPER) {
        kernel.summed_rows = 64;
        kernel.stays = true;
        /* steps of both operands, 64 rows of staging for each warpgroup that multiplies, and the barriers: kernels/gemm_hopper.cu */
        staging = kernel.rows == 192 ? 64 * 2 : kernel.columns == 192 ? 256 * 2 : kernel.blocks == 2 ? 64 * 2 : 68 * 4;
        stage = 128u * (unsigned)(kernel.rows + (by_wgmma.transpose_b ? kernel.columns : (kernel.columns + 63) / 64 * 64));
        stages = ignis__gemm_shares_a(kernel.rows, kernel.columns, kernel.blocks) ? 8
                 : kernel.rows == 192                                             ? (unsigned)ignis__clamp(202 * 1024 / stage, 1, 6)
                 : kernel.columns > 128 || kernel.blocks == 2                     ? 4
                                                                                  : 6;
        kernel.shared = stages * (stage + 16) + (kernel.threads / 128 - 1) * 64 * staging + 48;
    } else {
        kernel.shared = 4 * 64 * 2 * (unsigned)kernel.rows; /* 4 steps of 64 bytes of each row of both operands */
    }
    return kernel;
}

/*  A map of [batch, rows, row], so many elements between rows and matrices, in tiles of 128 bytes of some rows; rounds: f32 to tf32, when it is
    loaded. */
static void ignis__gemm_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype, bool rounds, ignis__address at, int64_t row,
                            int64_t row_stride, int64_t rows, int64_t batch, int64_t stride, int box_rows)
{
    int64_t size = ignis__dtypes[dtype].size;
    int64_t dims[] = {row, rows, stride ? batch : 1}, strides[] = {size * row_stride, size * (stride ? stride : row_stride * rows)};
    int box[] = {(int)(128 / size), box_rows, 1};
    op->ok = op->ok && ignis__tensor_map_make(&op->work, map, dtype, rounds, at, 3, dims, strides, box, NULL);
}

/*  A map of the array that has patches: so many pixels of the grid, for a tap. */
static void ignis__patches_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype, const ignis__gemm *p, int count)
{
    const ignis__patches *q = &p->patches;
    int64_t row = q->pixel * q->width, dims[] = {q->pixel, q->width, q->height, p->images};
    int64_t strides[] = {2 * q->pixel, 2 * row, 2 * row * q->height};
    ignis__tensor_pixels pixels;
    int box = 64, grid[] = {(int)q->columns.size, (int)q->rows.size}, i;
    pixels.count = count;
    for (i = 0; i < 2; i++) {
        pixels.lower[i] = q->first[1 - i];
        pixels.step[i] = q->stride[1 - i];
        pixels.upper[i] = q->first[1 - i] + pixels.step[i] * (grid[i] - 1) - (int)(dims[1 + i] - 1);
    }
    op->ok =
        op->ok && ignis__tensor_map_make(&op->work, map, dtype, false, p->patches_of == 1 ? p->a : p->b, 4, dims, strides, &box, &pixels);
}

/*  A map of the pixels of out that are those of the grid. */
static void ignis__patches_out_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype, const ignis__gemm *p)
{
    const ignis__patches *q = &p->patches;
    int64_t dims[] = {p->n, q->columns.size, q->rows.size, p->images};
    int64_t strides[] = {2 * q->out_column, 2 * q->out_row, 2 * q->out_image};
    ignis__tensor_pixels pixels = IGNIS__ZERO;
    int box = 64;
    pixels.step[0] = pixels.step[1] = 1;
    pixels.count = 64;
    op->ok = op->ok && ignis__tensor_map_make(&op->work, map, dtype, false, p->out, 4, dims, strides, &box, &pixels);
}

/*  Whether all rows of so many elements, from these addresses on, are whole packs. */
static bool ignis__gemm_packed(ignis_dtype dtype, ignis__address addresses, int64_t row, int64_t batch)
{
    int64_t pack = ignis__pack_elements(dtype);
    return addresses % 16 == 0 && row % pack == 0 && batch % pack == 0;
}

/*  Adds [count, n] up, in the order of the rows. */
static void ignis__gemm_sums(ignis__op *op, ignis__array *out, ignis__address from, int64_t count)
{
    ignis__address to = ignis__op_write(op, out);
    void *params[] = {&to, &from, &count, &out->numel};
    if (from == to) /* there was one */
        return;
    ignis__op_launch_row(op, IGNIS__BUILTIN_GEMM_SUMS, out->dtype, ignis__ceil_div(out->numel, 32), 256, params);
}

static ignis__address ignis__gemm_room(ignis__op *op, int64_t count, ignis_dtype dtype)
{
    return ignis__op_write(op, ignis__op_new_row(op, count, ignis__wide_dtype(dtype)));
}

/*  Where a kernel puts so many rows of sums for ignis__gemm_sums: a single one of the same type is the result. */
static ignis__address ignis__gemm_sums_room(ignis__op *op, ignis__array *out, int64_t count, ignis_dtype dtype)
{
    return count == 1 && dtype == ignis__wide_dtype(dtype) ? ignis__op_write(op, out) : ignis__gemm_room(op, count * out->numel, dtype);
}

/*  The parameters but for sums over parts; out and what goes with it has elements. */
static ignis__gemm ignis__gemm_params(ignis__op *op, const ignis__product *product, ignis__array *out, const ignis__epilogue *epilogue)
{
    ignis__gemm p = IGNIS__ZERO;
    p.dtype = (ignis_dtype)product->dtype;
    p.operands = product->operands ? (ignis_dtype)product->operands : p.dtype;
    p.m = product->m;
    p.n = product->n;
    p.k = product->k;
    p.batch = product->batch;
    p.batch_a = product->batch_a;
    p.batch_b = product->batch_b;
    p.transpose_a = product->transpose_a;
    p.transpose_b = product->transpose_b;
    p.row_a = p.transpose_a ? p.m : p.k;
    p.row_b = p.transpose_b ? p.k : p.n;
    p.factor = epilogue->factor != 0 ? epilogue->factor : 1;
    p.splits = 1;
    p.split_k = p.k;
    p.activation = epilogue->activation;
    p.gradient = epilogue->gradient;
    p.accumulate = epilogue->accumulate;
    p.keeps = epilogue->keeps;
    if (epilogue->bias)
        p.bias = ignis__op_read(op, epilogue->bias);
    if (epilogue->scale_a) {
        p.scale_a = ignis__op_read(op, epilogue->scale_a);
        p.scales_a = epilogue->scale_a->numel > 1;
    }
    if (epilogue->scale_b) {
        p.scale_b = ignis__op_read(op, epilogue->scale_b);
        p.scales_b = epilogue->scale_b->numel > 1;
    }
    if (epilogue->pre && (epilogue->gradient || ignis__gemm_gates(&p)))
        p.pre = ignis__op_read(op, epilogue->pre);
    if (epilogue->pre && (epilogue->keeps || !p.pre))
        p.pre = ignis__op_write(op, epilogue->pre);
    if (epilogue->residual)
        p.residual = ignis__op_read(op, epilogue->residual);
    p.out = ignis__op_write(op, out);
    p.packed_out = ignis__gemm_packed((ignis_dtype)product->dtype, p.out | p.bias | p.pre | p.residual, ignis__gemm_out_columns(&p), 0);
    return p;
}

/*  Launches a kernel that does what comes behind a product: 128 columns of so many rows a block. */
static void ignis__gemm_end(ignis__op *op, ignis__builtin builtin, int rows, ignis_dtype dtype, ignis__gemm *p,
                            const ignis__epilogue *epilogue)
{
    void *params[] = {p};
    int64_t sums = ignis__ceil_div(p->m, rows);
    if (epilogue->column_sums)
        p->column_sums = ignis__gemm_sums_room(op, epilogue->column_sums, sums, dtype);
    ignis__op_launch(op, builtin, dtype, p->patches_of == 1 ? "-DIGNIS_PATCHES=1" : NULL, ignis__gemm_tiles(p, rows, 128), 1, 1, 256, 1, 0,
                     params);
    if (epilogue->column_sums)
        ignis__gemm_sums(op, epilogue->column_sums, p->column_sums, sums);
}

/*  While programs are recorded: those that devices choose for such products, of these sizes and others. */
IGNIS__COLD static void ignis__gemm_request(ignis_dtype dtype, const ignis__gemm *product, const ignis__epilogue *epilogue)
{
    bool eights = ignis__dtype_is_f8(product->operands), rounds = ignis__gemm_rounds(product->operands),
         by_k = ignis__dtypes[product->operands].size != 2;
    static const int widths[] = {64, 128, 192, 256};
    ignis__gemm p = *product;
    char define[IGNIS__DEFINES];
    int i, direct;
    if (!ignis__requests.path[0] || p.activation == IGNIS__ACTIVATION_PAIRED) /* by ignis__gemm_pairs */
        return;
    p.row_sums = epilogue->row_sums != NULL;
    p.column_sums = epilogue->column_sums != NULL;
    ignis__request_builtin(IGNIS__BUILTIN_GEMM_FINISH, dtype);
    define[0] = 0;
    if (p.patches_of)
        snprintf(define, sizeof define, "-DIGNIS_PATCHES=%d", p.patches_of);
    if (!eights) {
        ignis__request_own(IGNIS__BUILTIN_GEMM_TINY, dtype, define, 0, IGNIS__EVERY_ARCH);
        ignis__request_own(IGNIS__BUILTIN_GEMM, dtype, define, 0, rounds ? 79 : IGNIS__EVERY_ARCH);
    }
    ignis__gemm_mma_define(define, sizeof define, &p);
    if (rounds)
        ignis__request_own(IGNIS__BUILTIN_GEMM_MMA, dtype, define, eights ? 89 : 80, IGNIS__EVERY_ARCH);
    if (rounds && by_k && !eights && !p.patches_of) {
        ignis__request_builtin(IGNIS__BUILTIN_TRANSPOSE_TILES, dtype);
        p = ignis__gemm_by_wgmma(&p);
    }
    for (i = 0; rounds && (!p.patches_of || (!by_k && p.wgmma_k)) && i < (eights ? 2 : IGNIS__COUNT(widths)); i++)
        for (p.pairs = 0; p.pairs <= IGNIS__SHARE_B; p.pairs++) {
            p.n = widths[i] > 64 || p.pairs || eights ? (product->n > 64 ? product->n : 256) : 64; /* as many columns as such a tile has */
            if (p.pairs == IGNIS__SHARE_A
                    ? widths[i] != 64 || !ignis__gemm_may_share_a(&p)
                    : ignis__gemm_columns(&p, widths[i]) != widths[i] || (widths[i] == 192 && !ignis__gemm_ahead(product, epilogue)) ||
                          (p.pairs && !ignis__gemm_shares_b(&p, widths[i])))
                continue;
            for (direct = widths[i] == 192; direct <= ignis__gemm_direct(&p, widths[i]); direct++) {
                ignis__gemm_hopper_define(define, sizeof define, &p, widths[i], direct);
                ignis__request_own(IGNIS__BUILTIN_GEMM_HOPPER, dtype, define, 90, 90);
            }
        }
    p.n = product->n;
    p.rows = 192; /* with some of the columns that such tiles may have */
    for (i = 0; rounds && ignis__gemm_large(product, epilogue) && i < 3; i++)
        for (p.pairs = 0; p.pairs <= (ignis__gemm_shares_b(&p, widths[i]) ? IGNIS__SHARE_B : 0); p.pairs += IGNIS__SHARE_B) {
            ignis__gemm_hopper_define(define, sizeof define, &p, widths[i], true);
            ignis__request_own(IGNIS__BUILTIN_GEMM_HOPPER, dtype, define, 90, 90);
        }
}

/*  A tiny product that waits for another one, to be launched with it. */
typedef struct ignis__gemm_held {
    ignis__gemm p;
    ignis_dtype dtype;
    int64_t blocks; /* 0: there is none */
} ignis__gemm_held;

static double ignis__gemm_flops(const ignis__gemm *p) { return 2.0 * (double)p->m * (double)p->n * (double)p->k * (double)p->batch; }

/*  ends: nothing is to be launched behind this product, so that it may wait for another one. */
static void ignis__gemm_launch_tiny(ignis__op *op, ignis_dtype dtype, const char *define, const ignis__gemm *p, int64_t blocks, bool ends)
{
    ignis__gemm_held *held = p->patches_of ? NULL : op->held;
    ignis__gemm both[2] = IGNIS__ZERO;
    double flops = ignis__gemm_flops(p);
    unsigned first_blocks = (unsigned)blocks;
    void *params[] = {both, &first_blocks};
    if (held && !held->blocks && ends) {
        held->p = *p;
        held->dtype = dtype;
        held->blocks = blocks;
        return;
    }
    both[0] = *p;
    if (held && held->blocks) { /* of plain products kernels have what is before the patches */
        memcpy((char *)both + offsetof(ignis__gemm, patches), &held->p, offsetof(ignis__gemm, patches));
        blocks += held->blocks;
        flops += ignis__gemm_flops(&held->p);
        op->held = NULL;
    }
    ignis__cost(-1, flops, (int)dtype);
    ignis__op_launch(op, IGNIS__BUILTIN_GEMM_TINY, dtype, define, blocks, 1, 1, 256, 1, 0, params);
}

/*  Two products follow that do not depend on each other, the second perhaps by other means, and then ignis__gemm_join_end: where both are tiny they
    are one launch. Products that are measured run many times, and are not joined. */
static void ignis__gemm_join(ignis__op *op, ignis__gemm_held *held)
{
    held->blocks = 0;
    op->held = ignis__matmul_by == IGNIS_MATMUL_MEASURE ? NULL : held;
}

static void ignis__gemm_join_end(ignis__op *op)
{
    const ignis__gemm_held *held = op->held;
    op->held = NULL;
    if (held && held->blocks) /* there was no other one */
        ignis__gemm_launch_tiny(op, held->dtype, NULL, &held->p, held->blocks, false);
}

/*  Rows of an operand that the copy engine loads at a time: 128 of a tile in one piece, where its last tile has more than 64, so that nothing is
    loaded of what does not exist. */
static int ignis__gemm_box(int64_t rows) { return rows % 128 == 0 || rows % 128 > 64 ? 128 : 64; }

/*  The same of both, where the variant is known: tiles of more than 128 columns and of patches are loaded whole; of a single tile just what there
    is of a, in two pieces where pairs share it. Sums of columns need zeros in what there is not. */
static void ignis__gemm_boxes(ignis__gemm *p, int rows, int columns)
{
    bool whole = !ignis__gemm_skips(p, rows, columns), few = p->m < 128 && !p->column_sums, shares_a = p->pairs == IGNIS__SHARE_A;
    p->box_a = p->transpose_a      ? 64
               : whole             ? rows
               : few && p->m <= 64 ? (int)p->m
               : few && shares_a   ? (int)ignis__ceil_div(p->m, 16) * 8
               : shares_a          ? 64
               : rows == 192       ? p->m % 192 == 0 || p->m % 192 > 128 ? 192 : 64
                                   : ignis__gemm_box(p->m);
    p->box_b = !p->transpose_b                                              ? 64
               : whole || rows == 192                                       ? columns
               : columns == 64 || p->activation == IGNIS__ACTIVATION_PAIRED ? 64
                                                                            : ignis__gemm_box(p->n);
}

/*  Launches the product itself; ends: as above. */
static void ignis__gemm_launch(ignis__op *op, ignis__gemm_kernel *kernel, ignis_dtype dtype, ignis__gemm *p, bool ends)
{
    int64_t blocks = ignis__gemm_tiles(p, kernel->rows, kernel->columns) * p->splits, processors = op->work.device->info.multiprocessors;
    ignis__tensor_map a, b, out, other;
    ignis__address another = ignis__gemm_other(p);
    bool direct = ignis__gemm_direct(p, kernel->columns), gated = ignis__gemm_gates(p);
    void *mapped[] = {&a, &b, &out, &other, p}, *plain[] = {p};
    if (kernel->builtin == IGNIS__BUILTIN_GEMM_TINY) {
        ignis__gemm_launch_tiny(op, dtype, kernel->define[0] ? kernel->define : NULL, p, blocks, ends);
        return;
    }
    if (kernel->stays) { /* kernels/gemm_hopper.cu */
        p->rows = kernel->rows;
        p->pairs = ignis__gemm_shares_a(kernel->rows, kernel->columns, kernel->blocks)     ? IGNIS__SHARE_A
                   : ignis__gemm_has_pairs(op) && ignis__gemm_shares_b(p, kernel->columns) ? IGNIS__SHARE_B
                                                                                           : 0;
        ignis__gemm_hopper_define(kernel->define, sizeof kernel->define, p, kernel->columns, direct);
        if (p->pairs == IGNIS__SHARE_B && !ignis__variant_exists(op->work.device, kernel->builtin, dtype, kernel->define)) {
            p->pairs = 0;
            ignis__gemm_hopper_define(kernel->define, sizeof kernel->define, p, kernel->columns, direct);
        }
        if (direct && !p->patches.apart && !ignis__variant_exists(op->work.device, kernel->builtin, dtype, kernel->define)) {
            direct = false; /* nobody recorded just this one */
            ignis__gemm_hopper_define(kernel->define, sizeof kernel->define, p, kernel->columns, direct);
        }
        if (p->pairs) {
            blocks = 2 * p->splits *
                     (p->pairs == IGNIS__SHARE_A ? ignis__gemm_tiles(p, kernel->rows, 2 * kernel->columns)
                                                 : ignis__gemm_tiles(p, 2 * kernel->rows, kernel->columns));
            processors &= ~(int64_t)1;
        }
        blocks = ignis__clamp(blocks, 1, kernel->blocks * processors);
        ignis__gemm_boxes(p, kernel->rows, kernel->columns);
        if (p->patches_of == 1)
            ignis__patches_map(op, &a, dtype, p, kernel->rows);
        else
            ignis__gemm_map(op, &a, p->operands, true, p->a, p->transpose_a ? p->m : p->k, p->row_a, p->transpose_a ? p->k : p->m, p->batch,
                            p->batch_a, p->box_a);
        if (p->patches_of == 1) /* weights: a tap is a matrix */
            ignis__gemm_map(op, &b, dtype, true, p->b, p->weights, p->patches.weight_row,
                            p->transpose_b ? p->n : p->patches.weight_channels, p->patches.weight_row / p->weights, p->weights, p->box_b);
        else if (p->patches_of == 2)
            ignis__patches_map(op, &b, dtype, p, 64);
        else
            ignis__gemm_map(op, &b, p->operands, true, p->b, p->transpose_b ? p->k : p->n, p->row_b, p->transpose_b ? p->n : p->k, p->batch,
                            p->batch_b, p->pairs == IGNIS__SHARE_B ? p->box_b / 2 : p->box_b);
        other = out = a; /* where they are not used */
        if (direct && p->patches.apart)
            ignis__patches_out_map(op, &out, dtype, p);
        else if (direct)
            ignis__gemm_map(op, &out, dtype, false, p->out, ignis__gemm_out_columns(p), ignis__gemm_out_columns(p), p->m,
                            gated && p->gradient ? 2 : p->batch, p->m * p->n, 64);
        if (direct && another)
            ignis__gemm_map(op, &other, dtype, false, another, p->n, p->n, p->m, gated && (p->gradient || p->keeps) ? 2 : p->batch,
                            p->m * p->n, 64);
    }
    ignis__cost(-1, ignis__gemm_flops(p), (int)dtype);
    ignis__op_launch(op, kernel->builtin, dtype, kernel->define[0] ? kernel->define : NULL, blocks, 1, 1, kernel->threads, 1,
                     kernel->shared, kernel->stays ? mapped : plain);
}

/*  A copy of an operand, as in kernels/gemm.cu. */
typedef struct ignis__gemm_copy {
    ignis__address to, from;
    int64_t row, stride, rows;
} ignis__gemm_copy;

/*  Gives an operand, matrices of so many rows, room of its own where they are packs, of so many elements: those of 16 bytes or fewer. */
static void ignis__gemm_move(ignis__op *op, ignis_dtype dtype, ignis__gemm_copy *copy, ignis__address *at, int64_t *row, int64_t rows,
                             int64_t count, int64_t *batch, int *packed, int64_t pack)
{
    int64_t whole = ignis__pack_elements(dtype);
    memset(copy, 0, sizeof *copy);
    if (*packed)
        return;
    copy->from = *at;
    copy->row = *row;
    copy->stride = ignis__ceil_div(*row, pack) * pack;
    copy->rows = *batch ? rows * count : rows;
    copy->to = ignis__op_write(op, ignis__op_new_row(op, ignis__ceil_div(copy->rows * copy->stride, whole) * whole, dtype));
    *at = copy->to;
    *row = copy->stride;
    *batch = *batch ? rows * copy->stride : 0;
    *packed = (int)(whole / pack);
}

/*  Makes one or two copies. */
static void ignis__gemm_copies(ignis__op *op, ignis_dtype dtype, ignis__gemm_copy *a, ignis__gemm_copy *b)
{
    void *params[] = {a, b};
    int64_t pack = ignis__pack_elements(dtype),
            packs = ignis__ceil_div(a->rows * a->stride, pack) + ignis__ceil_div(b->rows * b->stride, pack);
    ignis__op_launch_row(op, IGNIS__BUILTIN_GEMM_PACK, dtype, ignis__ceil_div(packs, 256), 256, params);
}

/*  Copies operands whose rows are no packs to where they are. */
static void ignis__gemm_pack(ignis__op *op, ignis_dtype dtype, ignis__gemm *p)
{
    ignis__gemm_copy a, b;
    ignis__gemm_move(op, dtype, &a, &p->a, &p->row_a, p->transpose_a ? p->k : p->m, p->batch, &p->batch_a, &p->packed_a,
                     ignis__pack_elements(dtype));
    ignis__gemm_move(op, dtype, &b, &p->b, &p->row_b, p->transpose_b ? p->n : p->k, p->batch, &p->batch_b, &p->packed_b,
                     ignis__pack_elements(dtype));
    ignis__gemm_copies(op, dtype, &a, &b);
}

/*  Gives an operand, matrices [k, rows], room of its own where they are [rows, k]. */
static void ignis__gemm_turn(ignis__op *op, ignis_dtype dtype, ignis__address *at, int64_t k, int64_t rows, int64_t count, int64_t *batch)
{
    int64_t matrices = *batch ? count : 1, one = 1;
    ignis__address from = *at;
    void *params[] = {at, &from, &matrices, &k, &one, &rows, &one};
    *at = ignis__op_write(op, ignis__op_new_row(op, matrices * k * rows, dtype));
    *batch = *batch ? k * rows : 0;
    ignis__op_launch_row(op, IGNIS__BUILTIN_TRANSPOSE_TILES, dtype,
                         ignis__clamp(matrices * ignis__ceil_div(k, 64) * ignis__ceil_div(rows, 64), 1, INT32_MAX), 256, params);
}

/*  Chooses a kernel for the parameters, and runs it. False: row sums are left to the caller. */
static bool ignis__gemm_compute(ignis__op *op, ignis_dtype dtype, ignis__gemm *p, const ignis__epilogue *epilogue)
{
    ignis__gemm_kernel kernel = ignis__gemm_choose(op, dtype, p, epilogue);
    bool row_sums = epilogue->row_sums && kernel.sums_rows;
    int64_t shares = kernel.stays ? ignis__ceil_div(p->n, kernel.columns) : 1; /* of the tiles of a row in its sum */
    ignis__gemm_request(dtype, p, epilogue);
    if (kernel.packs)
        ignis__gemm_pack(op, p->operands, p);
    if (kernel.turns && p->transpose_a)
        ignis__gemm_turn(op, dtype, &p->a, p->k, p->m, p->batch, &p->batch_a);
    if (kernel.turns && !p->transpose_b)
        ignis__gemm_turn(op, dtype, &p->b, p->k, p->n, p->batch, &p->batch_b);
    if (kernel.turns)
        *p = ignis__gemm_by_wgmma(p);
    if (kernel.stays && p->patches_of && p->k != p->wgmma_k) { /* each tap of a patch has whole steps */
        p->patches.channels = ignis__divisor_of((int64_t)p->patches.channels.size * p->wgmma_k / p->k);
        p->k = p->split_k = p->wgmma_k;
    }
    if (kernel.splits > 1) {
        int64_t whole = ignis__dtype_is_f8(p->operands) ? 128 : 64;
        p->split_k = ignis__ceil_div(ignis__ceil_div(p->k, kernel.splits), whole) * whole;
        p->splits = (int)ignis__ceil_div(p->k, p->split_k);
    }
    if (p->splits > 1)
        p->partial = ignis__gemm_room(op, p->splits * p->batch * p->m * p->n, dtype);
    else if (epilogue->column_sums)
        p->column_sums = ignis__gemm_sums_room(op, epilogue->column_sums, ignis__ceil_div(p->m, kernel.summed_rows), dtype);
    if (row_sums)
        p->row_sums = ignis__gemm_sums_room(op, epilogue->row_sums, p->splits * shares, dtype);
    ignis__gemm_launch(op, &kernel, dtype, p, p->splits == 1 && !epilogue->column_sums && !(row_sums && dtype != ignis__wide_dtype(dtype)));
    if (p->splits > 1)
        ignis__gemm_end(op, IGNIS__BUILTIN_GEMM_FINISH, 16, dtype, p, epilogue);
    else if (epilogue->column_sums)
        ignis__gemm_sums(op, epilogue->column_sums, p->column_sums, ignis__ceil_div(p->m, kernel.summed_rows));
    if (row_sums)
        ignis__gemm_sums(op, epilogue->row_sums, p->row_sums, p->splits * shares);
    return row_sums;
}

/*  A product by own kernels; out has elements. False: its row sums are left to the caller. */
static bool ignis__gemm_run(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a, ignis__array *b,
                            const ignis__epilogue *epilogue)
{
    ignis_dtype dtype = (ignis_dtype)product->dtype;
    ignis__gemm p = ignis__gemm_params(op, product, out, epilogue);
    if (p.k > 0) {
        p.a = ignis__op_read(op, a);
        p.b = ignis__op_read(op, b);
    }
    if (!op->ok)
        return false;
    p.packed_a = p.k == 0 || ignis__gemm_packed(p.operands, p.a, p.row_a, p.batch_a);
    p.packed_b = p.k == 0 || ignis__gemm_packed(p.operands, p.b, p.row_b, p.batch_b);
    return ignis__gemm_compute(op, dtype, &p, epilogue);
}

/* >>ops.matmul - matrix products: cuBLASLt with cached plans --------------------------------------------------------------- */

enum { /* numbers of cuBLASLt's enumerations */
       IGNIS__LT_COMPUTE_32F = 68,
       IGNIS__LT_COMPUTE_64F = 70,
       IGNIS__LT_COMPUTE_32F_TF32 = 77,
       IGNIS__LT_R_32F = 0,
       IGNIS__LT_R_64F = 1,
       IGNIS__LT_R_16F = 2,
       IGNIS__LT_R_16BF = 14,
       IGNIS__LT_DESC_TRANSA = 3,
       IGNIS__LT_DESC_TRANSB = 4,
       IGNIS__LT_DESC_EPILOGUE = 7,
       IGNIS__LT_DESC_BIAS_POINTER = 8,
       IGNIS__LT_LAYOUT_BATCH_COUNT = 5,
       IGNIS__LT_LAYOUT_BATCH_STRIDE = 6,
       IGNIS__LT_PREFERENCE_WORKSPACE = 1,
       IGNIS__LT_PREFERENCE_REDUCTION = 3,
       IGNIS__LT_REDUCTION_NONE = 0,
       IGNIS__LT_REDUCTION_COMPUTE_TYPE = 2,
       IGNIS__LT_PREFERENCE_ALIGNMENT_A = 5, /* B, C and D follow */
       IGNIS__LT_EPILOGUE_NONE = 1,
       IGNIS__LT_EPILOGUE_BIAS = 4,
       IGNIS__LT_EPILOGUE_BGRADB = 512,
       IGNIS__LT_NOT_SUPPORTED = 15,
       IGNIS__LT_WORKSPACE = 32 << 20 /* bytes: what NVIDIA advises for Hopper */
};

typedef struct ignis__lt_algo {
    uint64_t data[8];
} ignis__lt_algo;

typedef struct ignis__lt_choice {
    ignis__lt_algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} ignis__lt_choice;

/*  What cuBLASLt has chosen for a product, kept for the next one of the same kind. It thinks in columns: a row-major matrix is its transpose there,
    so it computes out^T = op(b)^T op(a)^T with the operands exchanged, and nothing is copied. */
typedef struct ignis__plan {
    ignis__product product;
    void *desc, *layout_a, *layout_b, *layout_out; /* in cuBLASLt's order: its A is our b */
    ignis__lt_choice choice;
    ignis__mutex lock; /* the bias address is written into desc */
    struct ignis__plan *next;
} ignis__plan;

#define IGNIS__PLAN_BUCKETS 64

/*  `planning` of a device guards its plans: cuBLASLt may load kernels for one, and wait for the device and another thread. */
static struct {
    void *handle[IGNIS_MAX_DEVICES];
    ignis__plan *plans[IGNIS_MAX_DEVICES][IGNIS__PLAN_BUCKETS];
} ignis__matmul = IGNIS__ZERO;

#define IGNIS__CUBLASLT(name, args) IGNIS_CALL_HOOK(#name, ignis__cublaslt.name args)

IGNIS__ONE_COPY static bool ignis__lt_check(const char *call, const char *function, int error)
{
    static const struct {
        int error;
        const char *name;
    } names[] = {{1, "CUBLAS_STATUS_NOT_INITIALIZED"}, {3, "CUBLAS_STATUS_ALLOC_FAILED"},      {7, "CUBLAS_STATUS_INVALID_VALUE"},
                 {8, "CUBLAS_STATUS_ARCH_MISMATCH"},   {13, "CUBLAS_STATUS_EXECUTION_FAILED"}, {14, "CUBLAS_STATUS_INTERNAL_ERROR"},
                 {15, "CUBLAS_STATUS_NOT_SUPPORTED"}};
    const char *name = "an unknown status";
    int i;
    if (error == 0)
        return true;
    for (i = 0; i < IGNIS__COUNT(names); i++)
        if (names[i].error == error)
            name = names[i].name;
    ignis__fail_because(IGNIS_DIAG_CUBLAS_CALL, call, error, name, NULL, "%s failed with %s (%d)", function, name, error);
    return false;
}
#define IGNIS__LT_OK(call, name, args) ignis__lt_check(call, #name, IGNIS__CUBLASLT(name, args))

static int ignis__lt_type(int dtype)
{
    return dtype == IGNIS_F16    ? IGNIS__LT_R_16F
           : dtype == IGNIS_BF16 ? IGNIS__LT_R_16BF
           : dtype == IGNIS_F64  ? IGNIS__LT_R_64F
                                 : IGNIS__LT_R_32F;
}

static void ignis__plan_free(ignis__plan *plan)
{
    if (plan->layout_a)
        (void)IGNIS__CUBLASLT(cublasLtMatrixLayoutDestroy, (plan->layout_a));
    if (plan->layout_b)
        (void)IGNIS__CUBLASLT(cublasLtMatrixLayoutDestroy, (plan->layout_b));
    if (plan->layout_out)
        (void)IGNIS__CUBLASLT(cublasLtMatrixLayoutDestroy, (plan->layout_out));
    if (plan->desc)
        (void)IGNIS__CUBLASLT(cublasLtMatmulDescDestroy, (plan->desc));
    ignis__free(plan);
}

/*  A matrix stored by rows, [rows, columns], as cuBLASLt sees it: [columns, rows] by columns. */
static bool ignis__plan_layout(const char *call, const ignis__plan *plan, int64_t rows, int64_t columns, int64_t batch_stride,
                               void **layout)
{
    int batch = (int)plan->product.batch;
    if (!IGNIS__LT_OK(call, cublasLtMatrixLayoutCreate,
                      (layout, ignis__lt_type(plan->product.dtype), (uint64_t)columns, (uint64_t)rows, columns)))
        return false;
    return plan->product.batch == 1 ||
           (IGNIS__LT_OK(call, cublasLtMatrixLayoutSetAttribute, (*layout, IGNIS__LT_LAYOUT_BATCH_COUNT, &batch, sizeof batch)) &&
            IGNIS__LT_OK(call, cublasLtMatrixLayoutSetAttribute,
                         (*layout, IGNIS__LT_LAYOUT_BATCH_STRIDE, &batch_stride, sizeof batch_stride)));
}

/*  Describes the product, and lets cuBLASLt choose. *supported turns false when it has no kernel for it. */
static bool ignis__plan_fill(const char *call, void *handle, ignis__plan *plan, void *bias, bool *supported)
{
    const ignis__product *p = &plan->product;
    int compute = p->dtype == IGNIS_F64                        ? IGNIS__LT_COMPUTE_64F
                  : p->dtype == IGNIS_F32 && ignis__allow_tf32 ? IGNIS__LT_COMPUTE_32F_TF32
                                                               : IGNIS__LT_COMPUTE_32F;
    int scale = p->dtype == IGNIS_F64 ? IGNIS__LT_R_64F : IGNIS__LT_R_32F, found = 0, error = 0, i;
    size_t workspace = IGNIS__LT_WORKSPACE;
    uint32_t alignment = (uint32_t)p->alignment,
             /* parts of a sum are not rounded to 16 bits; a short sum is not split, as adding its parts up takes longer */
        reduction = p->k <= 512 ? IGNIS__LT_REDUCTION_NONE : IGNIS__LT_REDUCTION_COMPUTE_TYPE;
    void *preference = NULL;
    bool ok;
    *supported = true;
    ok = IGNIS__LT_OK(call, cublasLtMatmulDescCreate, (&plan->desc, compute, scale)) &&
         IGNIS__LT_OK(call, cublasLtMatmulDescSetAttribute, (plan->desc, IGNIS__LT_DESC_TRANSA, &p->transpose_b, sizeof p->transpose_b)) &&
         IGNIS__LT_OK(call, cublasLtMatmulDescSetAttribute, (plan->desc, IGNIS__LT_DESC_TRANSB, &p->transpose_a, sizeof p->transpose_a)) &&
         IGNIS__LT_OK(call, cublasLtMatmulDescSetAttribute, (plan->desc, IGNIS__LT_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue)) &&
         (p->epilogue == IGNIS__LT_EPILOGUE_NONE ||
          IGNIS__LT_OK(call, cublasLtMatmulDescSetAttribute, (plan->desc, IGNIS__LT_DESC_BIAS_POINTER, &bias, sizeof bias))) &&
         ignis__plan_layout(call, plan, p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n, p->batch_b, &plan->layout_a) &&
         ignis__plan_layout(call, plan, p->transpose_a ? p->k : p->m, p->transpose_a ? p->m : p->k, p->batch_a, &plan->layout_b) &&
         ignis__plan_layout(call, plan, p->m, p->n, p->m * p->n, &plan->layout_out) &&
         IGNIS__LT_OK(call, cublasLtMatmulPreferenceCreate, (&preference)) &&
         IGNIS__LT_OK(call, cublasLtMatmulPreferenceSetAttribute,
                      (preference, IGNIS__LT_PREFERENCE_REDUCTION, &reduction, sizeof reduction)) &&
         IGNIS__LT_OK(call, cublasLtMatmulPreferenceSetAttribute,
                      (preference, IGNIS__LT_PREFERENCE_WORKSPACE, &workspace, sizeof workspace));
    for (i = 0; ok && i < 4; i++)
        ok = IGNIS__LT_OK(call, cublasLtMatmulPreferenceSetAttribute,
                          (preference, IGNIS__LT_PREFERENCE_ALIGNMENT_A + i, &alignment, sizeof alignment));
    if (ok) {
        error = IGNIS__CUBLASLT(cublasLtMatmulAlgoGetHeuristic, (handle, plan->desc, plan->layout_a, plan->layout_b, plan->layout_out,
                                                                 plan->layout_out, preference, 1, &plan->choice, &found));
        *supported = error != IGNIS__LT_NOT_SUPPORTED && (error != 0 || found > 0);
        ok = !*supported || ignis__lt_check(call, "cublasLtMatmulAlgoGetHeuristic", error);
    }
    if (preference)
        (void)IGNIS__CUBLASLT(cublasLtMatmulPreferenceDestroy, (preference));
    return ok;
}

/*  The plan for a product on a device that is entered. Null: not supported, or a failure that was reported (*supported tells). */
static ignis__plan *ignis__plan_get(const char *call, ignis__device *device, const ignis__product *product, void *bias, bool *supported)
{
    int index = ignis__device_ordinal(device),
        bucket = (int)(ignis__hash(IGNIS__HASH_START, product, sizeof *product) % IGNIS__PLAN_BUCKETS);
    ignis__plan *plan;
    *supported = true;
    ignis__mutex_lock(&device->planning);
    for (plan = ignis__matmul.plans[index][bucket]; plan; plan = plan->next)
        if (memcmp(&plan->product, product, sizeof *product) == 0)
            break;
    if (!plan && (ignis__matmul.handle[index] || (ignis__library_load(call, IGNIS_LIBRARY_CUBLASLT) &&
                                                  IGNIS__LT_OK(call, cublasLtCreate, (&ignis__matmul.handle[index]))))) {
        plan = (ignis__plan *)ignis__alloc_for(call, sizeof *plan);
        if (plan) {
            plan->product = *product;
            ignis__mutex_init(&plan->lock);
            if (ignis__plan_fill(call, ignis__matmul.handle[index], plan, bias, supported) && *supported) {
                plan->next = ignis__matmul.plans[index][bucket];
                ignis__matmul.plans[index][bucket] = plan;
            } else {
                ignis__plan_free(plan);
                plan = NULL;
            }
        }
    }
    ignis__mutex_unlock(&device->planning);
    return plan;
}

static int ignis__alignment_of(ignis__address a, ignis__address b, ignis__address c)
{
    ignis__address bits = a | b | c | 16;
    return (int)(bits & (~bits + 1));
}

/*  A product by cuBLASLt: out = factor * op(a) op(b), with IGNIS__LT_EPILOGUE_BIAS plus bias [n] in each row; IGNIS__LT_EPILOGUE_BGRADB makes
    bias [m] the sums of op(a) over k. False: it has no kernel for it, and nothing was done. All sizes are positive. */
static bool ignis__lt_run(ignis__op *op, const ignis__product *product, double factor, int epilogue, ignis__array *out, ignis__array *a,
                          ignis__array *b, ignis__array *bias)
{
    static const float zero_f32 = 0;
    static const double zero_f64 = 0;
    float factor_f32 = (float)factor;
    ignis__product described = *product;
    bool wide = product->dtype == IGNIS_F64, known, traced;
    ignis__traced item;
    ignis__address at_a = ignis__op_read(op, a), at_b = ignis__op_read(op, b), at_out = ignis__op_write(op, out), at_bias = 0;
    ignis__block *workspace = NULL;
    ignis__plan *plan;
    void *bias_pointer;
    if (bias)
        at_bias = epilogue == IGNIS__LT_EPILOGUE_BGRADB ? ignis__op_write(op, bias) : ignis__op_read(op, bias);
    if (!op->ok)
        return true;
    described.epilogue = epilogue;
    described.alignment = ignis__alignment_of(at_a, at_b, at_out);
    bias_pointer = (void *)(uintptr_t)at_bias;
    plan = ignis__plan_get(op->work.call, op->work.device, &described, bias_pointer, &known);
    if (!plan) {
        op->ok = !known;
        return known;
    }
    if (plan->choice.workspace) {
        workspace = ignis__memory_take(op->work.call, op->work.device, op->work.stream, (int64_t)plan->choice.workspace);
        op->ok = workspace != NULL;
    }
    if (bias)
        ignis__mutex_lock(&plan->lock);
    if (bias && op->ok)
        op->ok = IGNIS__LT_OK(op->work.call, cublasLtMatmulDescSetAttribute,
                              (plan->desc, IGNIS__LT_DESC_BIAS_POINTER, &bias_pointer, sizeof bias_pointer));
    ignis__cost(-1, 2.0 * (double)product->m * (double)product->n * (double)product->k * (double)product->batch, product->dtype);
    traced = op->ok && ignis__profiling() &&
             ignis__traced_open(&item, IGNIS__TRACED_KERNEL, op->work.call, op->work.device, op->work.stream, NULL, "cublasLtMatmul");
    if (op->ok)
        op->ok = IGNIS__LT_OK(op->work.call, cublasLtMatmul,
                              (ignis__matmul.handle[op->work.device - ignis__devices], plan->desc,
                               wide ? (const void *)&factor : (const void *)&factor_f32, (const void *)(uintptr_t)at_b, plan->layout_a,
                               (const void *)(uintptr_t)at_a, plan->layout_b, wide ? (const void *)&zero_f64 : (const void *)&zero_f32,
                               (const void *)(uintptr_t)at_out, plan->layout_out, (void *)(uintptr_t)at_out, plan->layout_out,
                               &plan->choice.algo, (void *)(uintptr_t)(workspace ? workspace->address : 0), plan->choice.workspace,
                               op->work.stream));
    if (traced)
        (void)ignis__traced_close(&item, op->ok);
    if (bias)
        ignis__mutex_unlock(&plan->lock);
    if (workspace)
        ignis__memory_give(op->work.call, op->work.device, workspace);
    return true;
}

/*  The same with an epilogue: the bias inside the product where cuBLASLt can, and what else there is in a pass behind it. */
static bool ignis__lt_multiply(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a, ignis__array *b,
                               const ignis__epilogue *epilogue, bool *row_sums)
{
    bool narrow = product->dtype != IGNIS_F64, biased = false;
    bool keeps = epilogue->pre && !epilogue->gradient && epilogue->activation != IGNIS__ACTIVATION_GATED;
    ignis__array *to = epilogue->accumulate ? ignis__op_new_like(op, out) : keeps ? epilogue->pre : out;
    ignis__epilogue rest = *epilogue;
    double factor = epilogue->factor != 0 ? epilogue->factor : 1;
    ignis__gemm p;
    rest.factor = 1;
    *row_sums = false;
    if (product->k == 0)
        ignis__op_zero(op, to);
    else if (epilogue->bias && narrow)
        biased = ignis__lt_run(op, product, factor, IGNIS__LT_EPILOGUE_BIAS, to, a, b, epilogue->bias);
    else if (epilogue->row_sums && product->dtype == IGNIS_F32) /* it adds 16-bit numbers up in 16 bits */
        *row_sums = ignis__lt_run(op, product, factor, IGNIS__LT_EPILOGUE_BGRADB, to, a, b, epilogue->row_sums);
    if (product->k > 0 && !biased && !*row_sums && !ignis__lt_run(op, product, factor, IGNIS__LT_EPILOGUE_NONE, to, a, b, NULL))
        return false;
    if (biased)
        rest.bias = NULL;
    if (keeps && biased && to == epilogue->pre)
        rest.pre = NULL; /* it is there */
    if (rest.activation || rest.residual || rest.column_sums || rest.accumulate) {
        p = ignis__gemm_params(op, product, out, &rest);
        p.partial = ignis__op_read(op, to);
        p.packed_out = p.packed_out && p.partial % 16 == 0;
        ignis__gemm_end(op, IGNIS__BUILTIN_GEMM_APPLY, 32, out->dtype, &p, &rest);
    } else if (rest.bias) {
        ignis__address at = ignis__op_write(op, out), from = ignis__op_read(op, rest.bias);
        void *params[] = {&at, &at, &from, &out->numel, &rest.bias->numel, &out->numel};
        ignis__op_map(op, IGNIS__BUILTIN_ADD_SPREAD, out->dtype, out->numel, params);
    }
    return true;
}

/*  Frees the plans of a device; its context is current. */
static void ignis__matmul_close(ignis__device *device)
{
    int index = ignis__device_ordinal(device), bucket;
    for (bucket = 0; bucket < IGNIS__PLAN_BUCKETS; bucket++) {
        while (ignis__matmul.plans[index][bucket]) {
            ignis__plan *plan = ignis__matmul.plans[index][bucket];
            ignis__matmul.plans[index][bucket] = plan->next;
            ignis__plan_free(plan);
        }
    }
    if (ignis__matmul.handle[index])
        (void)IGNIS__CUBLASLT(cublasLtDestroy, (ignis__matmul.handle[index]));
    ignis__matmul.handle[index] = NULL;
}

/* >>ops.matmul ------------------------------------------------------------------------------------------------------------- */

static bool ignis__lt_there(const char *call)
{
    return ignis__library_there(call, IGNIS_LIBRARY_CUBLASLT, "Ignis' own kernels compute products");
}

/* >>ops.matmul - which is faster: measured once for each kind of product on a kind of device ---------------------------------- */

#define IGNIS__MEASURE_ROUNDS 3 /* of which the fastest counts */
#define IGNIS__MEASURE_RUNS 4   /* in a round */

typedef struct ignis__measured {
    uint64_t key;
    bool own;
    struct ignis__measured *next;
} ignis__measured;

static struct {
    ignis__mutex lock; /* nobody measures with it: the work that is waited for may wait for a product of another thread */
    bool is_read;
    ignis__measured *first;
} ignis__measurements = {IGNIS__MUTEX_INIT, false, NULL};

static ignis__measured *ignis__measured_find(uint64_t key)
{
    ignis__measured *found = ignis__measurements.first;
    while (found && found->key != key)
        found = found->next;
    return found;
}

/*  Remembers one that is not known. Without memory it is not remembered. */
static void ignis__measured_add(uint64_t key, bool own)
{
    ignis__measured *added = (ignis__measured *)ignis__alloc(sizeof *added);
    if (!added)
        return;
    added->key = key;
    added->own = own;
    added->next = ignis__measurements.first;
    ignis__measurements.first = added;
}

static bool ignis__measured_path(char *path, size_t size)
{
    snprintf(path, size, "%s/products.txt", ignis__kernels_state.cache_dir);
    return ignis__kernels_state.cache_dir[0] != 0;
}

/*  Reads what was measured before: lines of a key, "own" or "cublaslt", and words for people. */
IGNIS__COLD static void ignis__measured_read(const char *call)
{
    char path[1024], *text, *line;
    size_t size = 0;
    if (ignis__measurements.is_read || !ignis__measured_path(path, sizeof path))
        return;
    ignis__measurements.is_read = true;
    text = (char *)ignis__cache_read(call, path, &size);
    for (line = text; line && line < text + size; line++) {
        char *end = (char *)memchr(line, '\n', (size_t)(text + size - line)), *word;
        unsigned long long key;
        if (!end)
            break;
        *end = 0;
        key = strtoull(line, &word, 16);
        if (word == line + 16 && (strncmp(word, " own ", 5) == 0 || strncmp(word, " cublaslt ", 10) == 0) && !ignis__measured_find(key))
            ignis__measured_add(key, word[1] == 'o');
        line = end;
    }
    ignis__free(text);
}

IGNIS__COLD static void ignis__measured_write(const char *call, const char *line)
{
    char path[1024], why[160], theirs[160];
    bool ok;
    if (!ignis__measured_path(path, sizeof path) || !ignis__cache_folder(call))
        return;
    ok = ignis__line_append(path, line, true, why, sizeof why);
    if (!ok && !ignis__path_is_private(path, theirs, sizeof theirs)) /* an older version's, by a umask that lets a group write: a new one */
        ok = ignis__file_remove(path) && ignis__line_append(path, line, true, why, sizeof why);
    if (!ok)
        ignis__cache_warn(call, "write", path, why);
}

/*  What a choice holds for: the product, what is done to it, the device, and those who compute it. */
static uint64_t ignis__measured_key(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a, ignis__array *b,
                                    const ignis__epilogue *epilogue)
{
    static const int sources[] = {IGNIS__SOURCE_GEMM_CU, IGNIS__SOURCE_GEMM_CUH, IGNIS__SOURCE_GEMM_MMA_CU, IGNIS__SOURCE_GEMM_HOPPER_CU,
                                  IGNIS__SOURCE_GEMM_HOPPER_AHEAD_CUH};
    const ignis_device_info *info = &op->work.device->info;
    ignis__product described = *product;
    int parts[] = {epilogue->activation,          epilogue->gradient,         epilogue->bias != NULL,
                   epilogue->pre != NULL,         epilogue->residual != NULL, epilogue->row_sums != NULL,
                   epilogue->column_sums != NULL, ignis__allow_tf32,          info->multiprocessors};
    int i;
    uint64_t key;
    described.alignment = ignis__alignment_of(ignis__op_read(op, a), ignis__op_read(op, b), ignis__op_write(op, out));
    key = ignis__hash(IGNIS__HASH_START, &described, sizeof described);
    key = ignis__hash(key, parts, sizeof parts);
    key = ignis__hash(key, info->name, strlen(info->name));
    key = ignis__hash(key, &ignis__libraries[IGNIS_LIBRARY_CUBLASLT].release, sizeof(uint64_t));
    for (i = 0; i < IGNIS__COUNT(sources); i++)
        key = ignis__hash(key, &ignis__sources[sources[i]].hash, sizeof(uint64_t));
    return key;
}

/*  Runs the product by one of them, and gives the nanoseconds of one run of the fastest round; -1: it cannot, or a failure. */
IGNIS__COLD static int64_t ignis__measure_one(ignis__op *op, bool own, const ignis__product *product, ignis__array *out, ignis__array *a,
                                              ignis__array *b, const ignis__epilogue *epilogue)
{
    int64_t best = -1, start;
    int round, run, made = op->made_count;
    bool row_sums;
    for (round = 0; op->ok && round <= IGNIS__MEASURE_ROUNDS; round++) { /* the first one loads, and does not count */
        start = ignis__monotonic_ns();
        for (run = 0; run < (round ? IGNIS__MEASURE_RUNS : 1); run++) {
            if (own)
                ignis__gemm_run(op, product, out, a, b, epilogue);
            else if (!ignis__lt_multiply(op, product, out, a, b, epilogue, &row_sums))
                return -1;
            ignis__op_unmake(op, made);
        }
        op->ok = op->ok && !IGNIS__CUDA_FAILED(op->work.call, op->work.device, cuStreamSynchronize, (op->work.stream));
        start = ignis__monotonic_ns() - start;
        if (round && (best < 0 || start < best))
            best = start;
    }
    return op->ok ? best / IGNIS__MEASURE_RUNS : -1;
}

/*  Whether it is known which one computes a product: *own. If not, that is remembered where `keeps`; another thread may have been the first. */
static bool ignis__measured_known(const char *call, uint64_t key, bool *own, bool keeps)
{
    const ignis__measured *found;
    ignis__mutex_lock(&ignis__measurements.lock);
    ignis__measured_read(call);
    found = ignis__measured_find(key);
    if (found)
        *own = found->own;
    else if (keeps)
        ignis__measured_add(key, *own);
    ignis__mutex_unlock(&ignis__measurements.lock);
    return found != NULL;
}

/*  Whether an own kernel is to compute the product. Measures that where it is not known; a capture cannot, and takes cuBLASLt then. */
static bool ignis__measured_own(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a, ignis__array *b,
                                const ignis__epilogue *epilogue)
{
    uint64_t key;
    int64_t own, other;
    bool is_own = false;
    ignis__record before, failure;
    char line[256], why[1024];
    if (product->k == 0 || epilogue->accumulate) /* to measure would add up */
        return false;
    key = ignis__measured_key(op, product, out, a, b, epilogue);
    if (ignis__measured_known(op->work.call, key, &is_own, false) || !op->ok || ignis__capture_on(op->work.device))
        return is_own;
    other = ignis__measure_one(op, false, product, out, a, b, epilogue);
    if (!op->ok)
        return false;
    before = ignis__quiet_begin();
    own = ignis__measure_one(op, true, product, out, a, b, epilogue);
    ignis__quiet_end(&before, &failure, why, sizeof why);
    if (!op->ok) { /* without NVRTC, say; the run itself reports it where there is no other way */
        op->ok = true;
        if (other >= 0 && !ignis__measured_known(op->work.call, key, &is_own, true))
            ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: cuBLASLt computes this product, unmeasured. %s", op->work.call, why);
        return other < 0 || is_own;
    }
    is_own = own >= 0 && (other < 0 || own < other);
    snprintf(line, sizeof line, "%016llx %s (own %.1f us, cuBLASLt %.1f us): %s %lld x %lld x %lld, batch %lld\n", (unsigned long long)key,
             is_own ? "own" : "cublaslt", (double)own * 1e-3, (double)other * 1e-3, ignis__dtypes[product->dtype].name,
             (long long)product->m, (long long)product->n, (long long)product->k, (long long)product->batch);
    if (!ignis__measured_known(op->work.call, key, &is_own, true)) {
        ignis__measured_write(op->work.call, line);
        ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: measured: %s", op->work.call, line + 17);
    }
    return is_own;
}

static void ignis__measured_close(void)
{
    while (ignis__measurements.first) {
        ignis__measured *next = ignis__measurements.first->next;
        ignis__free(ignis__measurements.first);
        ignis__measurements.first = next;
    }
    ignis__measurements.is_read = false;
}

/* >>ops.matmul - the choice ------------------------------------------------------------------------------------------------ */

/*  Products of few tiny tiles. */
static bool ignis__gemm_is_tiny(const ignis__op *op, const ignis__product *product)
{
    int64_t tiles = ignis__ceil_div(product->m, 16) * ignis__ceil_div(product->n, 32) * product->batch;
    return tiles <= 2 * op->work.device->info.multiprocessors && product->k <= 512;
}

/*  Of those by wgmma: a round of tiles at least, of which next to nothing lies outside; of those that are finished beside the next one, a tenth
    may. */
static bool ignis__gemm_fills(const ignis__op *op, const ignis__product *product)
{
    int64_t m = ignis__ceil_div(product->m, 128) * product->batch, n = product->n;
    double size = (double)product->m * (double)n * (double)product->batch / 128;
    return m * ignis__ceil_div(n, 256) >= op->work.device->info.multiprocessors && product->k >= 256 &&
           ((double)(m * ignis__ceil_div(n, 256) * 256) < 1.04 * size ||
            (product->k >= ignis__gemm_ahead_k((ignis_dtype)product->dtype) && product->k <= 4096 &&
             (double)(m * ignis__ceil_div(n, 192) * 192) < 1.1 * size));
}

/*  The same of f32, which lies along the sum, or is turned: cuBLASLt is slow where neither operand does; where one does not, the other one has to
    have many rows. */
static bool ignis__gemm_fills_words(const ignis__op *op, const ignis__product *product)
{
    bool turns_a = product->transpose_a, turns_b = !product->transpose_b;
    int64_t most = ignis__gemm_pack_limit / ignis__dtypes[IGNIS_F32].size / product->batch;
    double tiles = (double)product->m * (double)product->n * (double)product->batch / (128 * 128);
    if (!turns_a && !turns_b)
        return product->m >= 512 && product->n >= 64 && product->k >= 64 && tiles > 0.9 * op->work.device->info.multiprocessors;
    return ignis__gemm_fills(op, product) && (!turns_a || product->m * product->k <= most) &&
           (!turns_b || product->n * product->k <= most) && (turns_a == turns_b || (turns_a ? product->n : product->m) >= 8192);
}

/*  Products for which own kernels are at least as fast as cuBLASLt on an H200: of few tiny tiles (alone by tensor cores 1 us slower, but what is done
    to them costs nothing), and large ones by wgmma. */
static bool ignis__gemm_leads(const ignis__op *op, const ignis__product *product)
{
    ignis_dtype dtype = (ignis_dtype)product->dtype;
    if (ignis__gemm_is_tiny(op, product))
        return ignis__nvrtc_there(op->work.call);
    return product->k <= 8192 && /* at 32768 and more they were slower */
           (product->m | product->n | product->k) % ignis__pack_elements(dtype) == 0 &&
           (dtype == IGNIS_F32 ? ignis__gemm_fills_words(op, product) : ignis__gemm_fills(op, product)) &&
           ignis__nvrtc_there(op->work.call) && ignis__gemm_has_wgmma(op, dtype);
}

/*  A product, whose sizes may be zero, and what is done to it (null: nothing). False: epilogue->row_sums are left to the caller. */
static bool ignis__matmul_run(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a, ignis__array *b,
                              const ignis__epilogue *epilogue)
{
    static const ignis__epilogue nothing = IGNIS__ZERO;
    int by = ignis__matmul_by;
    bool row_sums = false, own = by == IGNIS_MATMUL_OWN;
    if (!epilogue)
        epilogue = &nothing;
    if (!op->ok || out->numel == 0)
        return false;
    if (by == IGNIS_MATMUL_AUTO)
        own = ignis__gemm_leads(op, product) || !ignis__lt_there(op->work.call);
    else if (by == IGNIS_MATMUL_MEASURE)
        own = !ignis__lt_there(op->work.call) || ignis__measured_own(op, product, out, a, b, epilogue);
    if (!own && ignis__lt_multiply(op, product, out, a, b, epilogue, &row_sums))
        return row_sums;
    if (by == IGNIS_MATMUL_CUBLASLT)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "cuBLASLt has no kernel for this product of %s on device %d",
                              ignis__dtypes[product->dtype].name, op->work.device->info.device);
    return ignis__gemm_run(op, product, out, a, b, epilogue);
}

/*  The product that gives da. y = a b: da = g b^T; y = a b^T: da = g b. */
static ignis__product ignis__matmul_product_a(const ignis__product *p)
{
    ignis__product q = *p;
    q.n = p->k;
    q.k = p->n;
    q.transpose_b = !p->transpose_b;
    q.batch_a = p->m * p->n;
    return q;
}

/*  The product that gives db. y = a b: db [k, n] = a^T g; y = a b^T: db [n, k] = g^T a. */
static ignis__product ignis__matmul_product_b(const ignis__product *p)
{
    ignis__product q = *p;
    q.transpose_a = 1;
    q.transpose_b = 0;
    q.m = p->transpose_b ? p->n : p->k;
    q.n = p->transpose_b ? p->k : p->n;
    q.k = p->m;
    q.batch_a = p->transpose_b ? p->m * p->n : p->batch_a;
    q.batch_b = p->transpose_b ? p->batch_a : p->m * p->n;
    return q;
}

static ignis_status ignis__matmul_backward(const ignis_backward_args *args)
{
    const ignis__product *p = (const ignis__product *)args->params;
    ignis__array *gradients[2] = {NULL, NULL};
    ignis__product of_a = ignis__matmul_product_a(p), of_b = ignis__matmul_product_b(p);
    ignis__gemm_held held;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, p->transpose_b ? "ignis_matmul_t" : "ignis_matmul", args))
        return ignis__failed();
    ignis__gemm_join(&op, &held);
    if (args->needed[0]) {
        gradients[0] = ignis__op_new_like(&op, op.in[1]);
        ignis__matmul_run(&op, &of_a, gradients[0], op.in[0], op.in[2], NULL);
    }
    if (args->needed[1]) {
        gradients[1] = ignis__op_new_like(&op, op.in[2]);
        ignis__matmul_run(&op, &of_b, gradients[1], p->transpose_b ? op.in[0] : op.in[1], p->transpose_b ? op.in[1] : op.in[0], NULL);
    }
    ignis__gemm_join_end(&op);
    return ignis__op_give(&op, args, 2, gradients);
}

/*  Checks the shapes of a product, and describes it. A 2-D b serves all rows of a, whose leading dimensions are folded into m. */
static bool ignis__matmul_shapes(ignis__op *op, int transpose_b, ignis__product *product, ignis_shape *out)
{
    const ignis_shape *a = &op->in[0]->shape, *b = &op->in[1]->shape;
    int64_t inner_b, leading_a;
    int i;
    if (a->ndim < 2 || b->ndim < 2 || (b->ndim > 2 && b->ndim != a->ndim))
        return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE,
                              "a is %s, b is %s; both have 2 dimensions or more, and leading ones that spread over each other",
                              ignis__shape_write(a).text, ignis__shape_write(b).text);
    inner_b = b->dim[b->ndim - (transpose_b ? 1 : 2)];
    if (a->dim[a->ndim - 1] != inner_b)
        return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "inner dimensions differ: a is %s, b is %s%s", ignis__shape_write(a).text,
                              ignis__shape_write(b).text, transpose_b ? ", transposed" : "");
    for (i = 0; b->ndim > 2 && i < b->ndim - 2; i++)
        if (a->dim[i] != b->dim[i])
            return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "leading dimensions differ: a is %s, b is %s", ignis__shape_write(a).text,
                                  ignis__shape_write(b).text);
    leading_a = ignis__shape_product(a, 0, a->ndim - 2);
    *product = ignis__product_of(op->in[0]->dtype, a->dim[a->ndim - 2] * (b->ndim == 2 ? leading_a : 1),
                                 b->dim[b->ndim - (transpose_b ? 2 : 1)], inner_b, transpose_b);
    product->batch = b->ndim == 2 ? 1 : leading_a;
    *out = *a;
    out->dim[a->ndim - 1] = product->n;
    return true;
}

/*  a and b with leading dimensions that spread over each other. False: they do not, need not, or the inner ones do not fit. */
static bool ignis__matmul_spread(const ignis_shape *a, const ignis_shape *b, int transpose_b, ignis_shape *spread)
{
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim, i, leading;
    bool differ = a->ndim < ndim;
    if (a->ndim < 2 || b->ndim < 2 || a->dim[a->ndim - 1] != b->dim[b->ndim - (transpose_b ? 1 : 2)])
        return false;
    for (leading = ndim - 2, i = 0; i < leading; i++) {
        int in_a = i - ndim + a->ndim, in_b = i - ndim + b->ndim;
        int64_t of_a = in_a < 0 ? 1 : a->dim[in_a], of_b = in_b < 0 ? 1 : b->dim[in_b];
        if (of_a != of_b && of_a != 1 && of_b != 1)
            return false;
        differ = differ || (b->ndim > 2 && (in_b < 0 || of_a != of_b)); /* b of two dimensions serves all of a */
        spread[0].dim[i] = spread[1].dim[i] = of_a == 1 ? of_b : of_a;
    }
    spread[0].ndim = spread[1].ndim = ndim;
    memcpy(spread[0].dim + leading, a->dim + a->ndim - 2, 2 * sizeof a->dim[0]);
    memcpy(spread[1].dim + leading, b->dim + b->ndim - 2, 2 * sizeof b->dim[0]);
    return differ;
}

static ignis_tensor ignis__matmul_op(const char *call, ignis_tensor a, ignis_tensor b, int transpose_b)
{
    ignis_tensor inputs[] = {a, b};
    ignis__product product;
    ignis__array *out = NULL;
    ignis_shape shape, spread[2];
    ignis_tensor result;
    ignis__op op;
    int i;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    if (ignis__matmul_spread(&op.in[0]->shape, &op.in[1]->shape, transpose_b, spread)) { /* and again, with copies that are spread */
        ignis__op_leave(&op);
        inputs[0] = ignis_expand(a, spread[0]);
        inputs[1] = ignis_expand(b, spread[1]);
        result = ignis__matmul_op(call, inputs[0], inputs[1], transpose_b);
        for (i = 0; i < 2; i++)
            if (inputs[i].id)
                (void)ignis_tensor_release(inputs[i]);
        return result;
    }
    if (ignis__op_is_float(&op, 0, "a") && ignis__op_same_dtype(&op, 1, "b") && ignis__matmul_shapes(&op, transpose_b, &product, &shape)) {
        out = ignis__op_new(&op, &shape, op.in[0]->dtype);
        ignis__matmul_run(&op, &product, out, op.in[0], op.in[1], NULL);
    }
    ignis__op_save_inputs(&op, 0, 2);
    return ignis__op_end_recorded(&op, out, transpose_b ? "matmul_t" : "matmul", ignis__matmul_backward, &product, sizeof product);
}

IGNIS_API ignis_tensor ignis_matmul(ignis_tensor a, ignis_tensor b) { return ignis__matmul_op("ignis_matmul", a, b, 0); }

IGNIS_API ignis_tensor ignis_matmul_t(ignis_tensor a, ignis_tensor b) { return ignis__matmul_op("ignis_matmul_t", a, b, 1); }

/*  Whether input i of ignis_matmul_f8 is [1] or has so many elements, of a dtype. */
static void ignis__f8_fits(ignis__op *op, int i, const char *name, ignis_dtype dtype, int64_t numel, bool one)
{
    const ignis__array *array = op->in[i];
    if (op->ok && array->dtype != dtype)
        ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "%s is %s; %s is needed", name, ignis__dtypes[array->dtype].name,
                       ignis__dtypes[dtype].name);
    if (op->ok && array->numel != numel && !(one && array->numel == 1))
        ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "%s is %s; %s[%lld] is needed", name, ignis__shape_write(&array->shape).text,
                       one ? "[1] or " : "", (long long)numel);
}

IGNIS_API ignis_tensor ignis_matmul_f8(ignis_tensor a, ignis_tensor b, ignis_tensor scale_a, ignis_tensor scale_b, ignis_tensor bias,
                                       ignis_dtype dtype)
{
    static const char call[] = "ignis_matmul_f8", *const names[] = {"a", "b", "scale_a", "scale_b", "bias"};
    ignis_tensor given[] = {a, b, scale_a, scale_b, bias}, inputs[5];
    ignis__array **places[5] = {NULL}, *out = NULL;
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__product product;
    ignis_shape shape;
    ignis__op op;
    int which[5], count = 0, i;
    places[2] = &epilogue.scale_a;
    places[3] = &epilogue.scale_b;
    places[4] = &epilogue.bias;
    for (i = 0; i < 5; i++)
        if (i < 2 || given[i].id) {
            which[count] = i;
            inputs[count++] = given[i];
        }
    if (!ignis__op_begin(&op, call, count, inputs))
        return ignis__no_tensor();
    if (dtype != IGNIS_F16 && dtype != IGNIS_BF16 && dtype != IGNIS_F32)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_ENUM, "dtype is %d; IGNIS_F16, IGNIS_BF16 or IGNIS_F32 is needed", (int)dtype);
    else if (!ignis__dtype_is_f8(op.in[0]->dtype))
        ignis__op_fail(&op, IGNIS_DIAG_DTYPE_DIFFERS, "a is %s; f8_e4m3 or f8_e5m2 is needed", ignis__dtypes[op.in[0]->dtype].name);
    else if (ignis__op_same_dtype(&op, 1, "b") && op.in[1]->shape.ndim != 2)
        ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "b is %s; [n, k] is needed", ignis__shape_write(&op.in[1]->shape).text);
    if (op.ok && ignis__matmul_shapes(&op, 1, &product, &shape))
        for (i = 2; i < count; i++) {
            ignis__f8_fits(&op, i, names[which[i]], which[i] == 4 ? dtype : IGNIS_F32, which[i] == 2 ? product.m : product.n, which[i] < 4);
            *places[which[i]] = op.in[i];
        }
    if (op.ok && ignis__capability(&op.work.device->info) < 89)
        ignis__op_fail(&op, IGNIS_DIAG_UNSUPPORTED, "device %d is of compute capability %d.%d; 8.9 is needed", op.work.device->info.device,
                       op.work.device->info.compute_major, op.work.device->info.compute_minor);
    if (op.ok) {
        product.dtype = (int)dtype;
        product.operands = product.k > 0 ? (int)op.in[0]->dtype : 0;
        out = ignis__op_new(&op, &shape, dtype);
        if (op.ok && out->numel > 0)
            ignis__gemm_run(&op, &product, out, op.in[0], op.in[1], &epilogue);
    }
    return ignis__op_end(&op, out, NULL);
}

/* --- new tensors by a kernel: random ones, and those of a pattern ------------------------------------------------------------------ */

/*  By a kernel of elements: params are the address, ..., the number of elements. random, *step: its numbers and their counter (null: none). */
IGNIS__COLD static ignis_tensor ignis__tensor_made(const char *call, ignis__builtin builtin, ignis_shape shape,
                                                   const ignis_tensor_desc *desc, void **params, int last, ignis__random *random,
                                                   ignis__address *step)
{
    ignis_array made = ignis__tensor_array_create(call, shape, desc);
    ignis__array *array;
    ignis__address to;
    ignis__work work;
    bool ok = false;
    if (!made.id)
        return ignis__no_tensor();
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
    params[0] = &to;
    params[last] = &array->numel;
    if (random && !ignis__dtype_is_float(array->dtype)) {
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "the tensor is %s; f16, bf16, f32 or f64 is needed", ignis__dtypes[array->dtype].name);
    } else if (ignis__work_begin(call, array->storage->device, &work)) {
        ok =
            !random || (ignis__random_take(&work, array->dtype, array->numel, random) && ignis__random_step(&work, random->launches, step));
        ok = ok && ignis__work_write(&work, array, &to) && ignis__elementwise(&work, builtin, array->dtype, array->numel, params);
        ignis__work_end(&work);
    }
    if (!ok)
        ignis__array_discard(call, &made);
    ignis__array_drop(call, array);
    return ignis__tensor_adopt(call, made, desc && desc->requires_grad);
}

IGNIS__COLD static ignis_tensor ignis__tensor_random(const char *call, ignis__builtin builtin, ignis_shape shape,
                                                     const ignis_tensor_desc *desc)
{
    ignis__random random;
    ignis__address step;
    double from = 0, by = 1; /* low and high; mean and deviation */
    void *params[] = {NULL, &from, &by, &random.seed, &random.first, &step, NULL};
    return ignis__enter(call) ? ignis__tensor_made(call, builtin, shape, desc, params, 6, &random, &step) : ignis__no_tensor();
}

IGNIS_API ignis_tensor ignis_tensor_rand(ignis_shape shape, const ignis_tensor_desc *desc)
{
    return ignis__tensor_random("ignis_tensor_rand", IGNIS__BUILTIN_RAND, shape, desc);
}

IGNIS_API ignis_tensor ignis_tensor_randn(ignis_shape shape, const ignis_tensor_desc *desc)
{
    return ignis__tensor_random("ignis_tensor_randn", IGNIS__BUILTIN_RANDN, shape, desc);
}

/*  Numbers in a row; where count is negative, the ends are no line. */
IGNIS__COLD static ignis_tensor ignis__tensor_line(const char *call, double start, double end, double step, int64_t middle, int64_t count,
                                                   const ignis_tensor_desc *desc)
{
    void *params[] = {NULL, &start, &end, &step, &middle, NULL};
    if (!ignis__enter(call))
        return ignis__no_tensor();
    if (count < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "from %g to %g in steps of %g are no number of elements", start, end, step);
        return ignis__no_tensor();
    }
    return ignis__tensor_made(call, IGNIS__BUILTIN_LINE, IGNIS_SHAPE(count), desc, params, 5, NULL, NULL);
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_tensor_arange(double start, double end, double step, const ignis_tensor_desc *desc)
{
    double count = (end - start) / step;
    int64_t n = count >= 0 && count < 9e15 ? (int64_t)count : -1;
    return ignis__tensor_line("ignis_tensor_arange", start, end, step, INT64_MAX, n + (n >= 0 && (double)n < count), desc);
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_tensor_linspace(double start, double end, int64_t count, const ignis_tensor_desc *desc)
{
    static const char call[] = "ignis_tensor_linspace";
    double step = count > 1 ? (end - start) / ((double)count - 1) : 0;
    if (ignis__enter(call) && count < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %lld, below 0", (long long)count);
    if (count < 0)
        return ignis__no_tensor();
    return ignis__tensor_line("ignis_tensor_linspace", start, end, step, count - count / 2, count, desc);
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_tensor_eye(int64_t rows, int64_t columns, const ignis_tensor_desc *desc)
{
    static const char call[] = "ignis_tensor_eye";
    ignis__address none = 0;
    int64_t diagonal = 0;
    void *params[] = {NULL, &none, &rows, &columns, &diagonal, &diagonal, NULL};
    if (!ignis__enter(call))
        return ignis__no_tensor();
    return ignis__tensor_made(call, IGNIS__BUILTIN_BAND, IGNIS_SHAPE(rows, columns), desc, params, 6, NULL, NULL);
}

/* >>ops.sum ---------------------------------------------------------------------------------------------------------------- */

static int64_t ignis__power_of_2_up(int64_t x) { return x <= 1 ? 1 : (int64_t)2 << ignis__log2((uint64_t)x - 1); }

/*  Geometry of the kernels that sum columns: threads lie side by side along a row of packs, and share its columns out among the rest. */
static void ignis__column_threads(int64_t packs, int64_t rows, unsigned *x, unsigned *y)
{
    *x = (unsigned)ignis__power_of_2_up(ignis__clamp(packs, 1, 32));
    *y = (unsigned)ignis__clamp(ignis__power_of_2_up(ignis__ceil_div(rows, 4)), 1, 512 / (int64_t)*x);
}

/*  out [outer, inner] = factor * the sum over n of a, or of the products of a and b where b is not null. */
static void ignis__op_sum(ignis__op *op, ignis__array *out, ignis__array *a, ignis__array *b, double factor, const ignis__spread *spread)
{
    ignis_dtype dtype = out->dtype, wide = ignis__wide_dtype(dtype);
    int64_t blocks = 2 * (int64_t)op->work.device->info.multiprocessors, per_pack = ignis__pack_elements(dtype);
    int64_t outer = spread->outer, n = spread->n, inner = spread->inner, count = outer * inner, part_length, parts, packs, grid;
    unsigned x, y;
    bool rows = inner == 1;
    ignis__builtin builtin = rows ? b ? IGNIS__BUILTIN_DOT_ROWS : IGNIS__BUILTIN_SUM_ROWS
                             : b  ? IGNIS__BUILTIN_DOT_COLUMNS
                                  : IGNIS__BUILTIN_SUM_COLUMNS;
    ignis__address to, to_partial = 0, from_a, from_b = 0;
    void *params[10], *finish[] = {&to, &to_partial, &factor, &count, &parts};
    int used = 0;
    if (!op->ok || count == 0)
        return;
    if (n == 0) {
        ignis__op_zero(op, out);
        return;
    }
    if (rows && (n <= 4096 && outer >= 8)) { /* a warp does a row */
        x = 32;
        y = 8;
        parts = 1;
        grid = ignis__ceil_div(outer, 8);
    } else if (rows) { /* a block does a part of a row */
        x = (unsigned)ignis__power_of_2_up(ignis__clamp(n / per_pack, 32, 512));
        y = 1;
        parts = ignis__clamp(blocks / outer, 1, ignis__ceil_div(n, 8192));
        grid = outer * parts;
    } else {
        packs = inner % per_pack == 0 ? inner / per_pack : inner;
        ignis__column_threads(packs, n, &x, &y);
        grid = outer * ignis__ceil_div(packs, (int64_t)x);
        parts = ignis__clamp(blocks / grid, 1, ignis__ceil_div(n, 4 * (int64_t)y));
        grid *= parts;
    }
    part_length = ignis__ceil_div(n, parts);
    if (rows && parts > 1)
        part_length = ignis__ceil_div(part_length, 64) * 64; /* parts begin with packs if rows do */
    parts = ignis__ceil_div(n, part_length);
    from_a = ignis__op_read(op, a);
    if (b)
        from_b = ignis__op_read(op, b);
    if (parts > 1)
        to_partial = ignis__op_write(op, ignis__op_new_row(op, parts * count, wide));
    to = ignis__op_write(op, out);
    params[used++] = &to;
    params[used++] = &to_partial;
    params[used++] = &from_a;
    if (b)
        params[used++] = &from_b;
    params[used++] = &factor;
    params[used++] = &outer;
    params[used++] = &n;
    if (!rows)
        params[used++] = &inner;
    params[used++] = &part_length;
    params[used++] = &parts;
    ignis__op_launch(op, builtin, dtype, NULL, ignis__clamp(grid, 1, INT32_MAX), 1, 1, x, y, 0, params);
    if (parts == 1)
        return;
    per_pack = ignis__pack_elements(wide);
    packs = count % per_pack == 0 ? count / per_pack : count;
    ignis__column_threads(packs, parts, &x, &y);
    grid = ignis__clamp(ignis__ceil_div(packs, (int64_t)x), 1, INT32_MAX);
    ignis__op_launch(op, IGNIS__BUILTIN_SUM_FINISH, dtype, NULL, grid, 1, 1, x, y, 0, finish);
}

/*  What a sum's gradient needs to know. */
typedef struct ignis__sum_params {
    ignis__spread spread;
    double factor;
    ignis_shape shape; /* of the input */
} ignis__sum_params;

static ignis_status ignis__sum_backward(const ignis_backward_args *args)
{
    ignis__sum_params p = *(const ignis__sum_params *)args->params;
    int64_t span = p.spread.n * p.spread.inner, numel = p.spread.outer * span;
    ignis__address from, to;
    void *params[] = {&to, &from, &p.factor, &span, &p.spread.inner, &numel};
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, "ignis_sum", args))
        return ignis__failed();
    gradient = ignis__op_new(&op, &p.shape, op.in[0]->dtype);
    from = ignis__op_read(&op, op.in[0]);
    to = ignis__op_write(&op, gradient);
    ignis__op_map(&op, IGNIS__BUILTIN_SPREAD_SCALED, op.in[0]->dtype, numel, params);
    return ignis__op_give(&op, args, 1, &gradient);
}

/*  The sum along a dimension, or of all elements where whole; divided by how many they are where mean. */
static ignis_tensor ignis__sum(const char *call, ignis_tensor tensor, bool whole, int dim, bool mean)
{
    ignis__sum_params p = IGNIS__ZERO;
    ignis__spread all = {1, 1, 1};
    ignis__op op;
    ignis__array *out;
    ignis_shape shape;
    int i;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    all.n = op.in[0]->numel;
    ignis__op_is_float(&op, 0, "the tensor");
    if (!whole)
        ignis__op_dim(&op, &dim, "dim");
    if (op.ok) {
        p.shape = op.in[0]->shape;
        p.spread = whole ? all : ignis__spread_along(&p.shape, dim);
        p.factor = mean && p.spread.n ? 1.0 / (double)p.spread.n : 1.0;
    }
    shape = op.in[0]->shape;
    if (whole || shape.ndim == 1) {
        shape = IGNIS_SHAPE(1);
    } else if (op.ok) {
        shape.ndim--;
        for (i = dim; i < shape.ndim; i++)
            shape.dim[i] = shape.dim[i + 1];
    }
    out = ignis__op_new(&op, &shape, op.in[0]->dtype);
    if (out && mean && p.spread.n == 0)
        ignis__op_fill(&op, out, ignis__nan());
    else if (out)
        ignis__op_sum(&op, out, op.in[0], NULL, p.factor, &p.spread);
    return ignis__op_end_recorded(&op, out, mean ? "mean" : "sum", ignis__sum_backward, &p, sizeof p);
}

IGNIS_API ignis_tensor ignis_sum(ignis_tensor tensor) { return ignis__sum("ignis_sum", tensor, true, 0, false); }
IGNIS_API ignis_tensor ignis_mean(ignis_tensor tensor) { return ignis__sum("ignis_mean", tensor, true, 0, true); }
IGNIS_API ignis_tensor ignis_sum_dim(ignis_tensor tensor, int dim) { return ignis__sum("ignis_sum_dim", tensor, false, dim, false); }
IGNIS_API ignis_tensor ignis_mean_dim(ignis_tensor tensor, int dim) { return ignis__sum("ignis_mean_dim", tensor, false, dim, true); }

/* >>ops.sum - cumsum ----------------------------------------------------------------------------------------------------------- */

/*  Rows of at least 2^12 elements are shared out in tiles, and read once: kernels/scan.cu. */
static void ignis__op_cumsum_rows(ignis__op *op, ignis__address target, ignis__address source, ignis_dtype dtype, int64_t outer, int64_t n,
                                  int reverse)
{
    int64_t wide = ignis__dtypes[ignis__sum_dtype(dtype)].size, tile = 256 * 64 / wide, words;
    int packed = n % ignis__pack_elements(dtype) == 0 && (source | target) % 16 == 0, warps = n <= 1024, tiles;
    ignis__address said = 0, next = 0;
    ignis__array *zeros;
    void *rows[] = {&target, &source, &outer, &n, &reverse, &packed, &warps},
         *each[] = {&target, &said, &next, &source, &outer, &n, &tiles, &reverse, &packed};
    if (n < 4096 || outer * ignis__ceil_div(n, tile) > INT32_MAX) {
        ignis__op_launch_row(op, IGNIS__BUILTIN_SCAN_ROWS, dtype, ignis__clamp(ignis__ceil_div(outer, warps ? 8 : 1), 1, INT32_MAX), 256,
                             rows);
        return;
    }
    tiles = (int)ignis__ceil_div(n, tile);
    words = outer * (tiles + ignis__ceil_div(tiles, 256)) * wide / 4;
    zeros = ignis__op_new_row(op, words + 1, IGNIS_I64);
    if (!zeros)
        return;
    ignis__op_zero(op, zeros);
    said = ignis__op_write(op, zeros);
    next = said + 8 * (uint64_t)words;
    ignis__op_launch_row(op, IGNIS__BUILTIN_SCAN_TILES, dtype, ignis__clamp(3 * op->work.device->info.multiprocessors, 1, outer * tiles),
                         256, each);
}

/*  out[outer, i, inner] = the sum of from[outer, j, inner] over j <= i, or over j >= i if reverse */
static ignis__array *ignis__op_cumsum(ignis__op *op, ignis__array *from, const ignis__spread *s, int reverse)
{
    ignis__array *out = ignis__op_new_like(op, from);
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, out), none = 0, partial = 0;
    int64_t outer = s->outer, n = s->n, inner = s->inner, part_length, parts, blocks;
    void *params[] = {&target, &partial, &source, &outer, &n, &inner, &part_length, &parts, &reverse};
    if (!op->ok || outer * n * inner == 0)
        return out;
    if (inner == 1) {
        ignis__op_cumsum_rows(op, target, source, out->dtype, outer, n, reverse);
        return out;
    }
    parts = ignis__clamp(1024 * op->work.device->info.multiprocessors / (outer * inner), 1, ignis__ceil_div(n, 128));
    part_length = ignis__ceil_div(ignis__ceil_div(n, parts), 64) * 64;
    parts = ignis__ceil_div(n, part_length);
    blocks = ignis__clamp(ignis__ceil_div(outer * parts * inner, 256), 1, INT32_MAX);
    if (parts > 1) {
        partial = ignis__op_write(op, ignis__op_new_row(op, outer * parts * inner, ignis__sum_dtype(out->dtype)));
        params[0] = &none;
        ignis__op_launch_row(op, IGNIS__BUILTIN_SCAN_COLUMNS, out->dtype, blocks, 256, params);
        params[0] = &target;
    }
    ignis__op_launch_row(op, IGNIS__BUILTIN_SCAN_COLUMNS, out->dtype, blocks, 256, params);
    return out;
}

static ignis_status ignis__cumsum_backward(const ignis_backward_args *args)
{
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_cumsum", args))
        return ignis__failed();
    return ignis__op_give_one(&op, args, ignis__op_cumsum(&op, op.in[0], (const ignis__spread *)args->params, 1));
}

IGNIS_API ignis_tensor ignis_cumsum(ignis_tensor tensor, int dim)
{
    ignis__spread s = {1, 1, 1};
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, "ignis_cumsum", 1, &tensor))
        return ignis__no_tensor();
    if (ignis__dtypes[op.in[0]->dtype].size == 1)
        ignis__op_fail(&op, IGNIS_DIAG_DTYPE_DIFFERS, "the tensor is %s, whose sums would not fit; ignis_cast makes it %s",
                       ignis__dtypes[op.in[0]->dtype].name, op.in[0]->dtype == IGNIS_U8 ? "i64" : "f32");
    if (ignis__op_dim(&op, &dim, "dim")) {
        s = ignis__spread_along(&op.in[0]->shape, dim);
        out = ignis__op_cumsum(&op, op.in[0], &s, 0);
    }
    return ignis__op_end_recorded(&op, out, "cumsum", ignis__cumsum_backward, &s, sizeof s);
}

/* >>ops.pointwise - add, sub, mul: the second operand may spread over the first -------------------------------------------- */

typedef struct ignis__binary_params {
    ignis__spread spread; /* of the second operand; n = 1 for equal shapes */
    ignis_shape shape;    /* of the second operand */
    int saved_a, saved_b; /* places among the saved arrays, -1: not saved */
} ignis__binary_params;

/*  The second operand's gradient: factor * the sum of g, or of g * a, over where it was spread. */
static ignis__array *ignis__binary_reduce(ignis__op *op, ignis__array *g, ignis__array *a, double factor, const ignis__binary_params *p)
{
    ignis__array *gradient = ignis__op_new(op, &p->shape, g->dtype);
    if (gradient)
        ignis__op_sum(op, gradient, g, a, factor, &p->spread);
    return gradient;
}

/*  A new array of g's shape: an elementwise kernel of two arrays, the second of which may spread. */
static ignis__array *ignis__binary_map(ignis__op *op, ignis__builtin same, ignis__builtin spreading, ignis__array *a, ignis__array *b,
                                       const ignis__spread *spread)
{
    ignis__array *out = ignis__op_new_like(op, a);
    ignis__address from_a = ignis__op_read(op, a), from_b = ignis__op_read(op, b), to = ignis__op_write(op, out);
    int64_t span = spread->n * spread->inner, inner = spread->inner;
    void *params[] = {&to, &from_a, &from_b, &span, &inner, &a->numel};
    bool is_same = spread->n == 1;
    ignis__request_builtin(same, a->dtype); /* what other sizes take */
    ignis__request_builtin(spreading, a->dtype);
    if (is_same)
        params[3] = &a->numel;
    ignis__op_map(op, is_same ? same : spreading, a->dtype, a->numel, params);
    return out;
}

static ignis__array *ignis__op_scaled(ignis__op *op, ignis__array *from, double factor)
{
    ignis__array *out = ignis__op_new_like(op, from);
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, out);
    void *params[] = {&target, &source, &factor, &from->numel};
    ignis__op_map(op, IGNIS__BUILTIN_SCALE, from->dtype, from->numel, params);
    return out;
}

/*  Records what the gradient of an operand takes at other sizes, where it was spread, or was not. */
static void ignis__binary_record(ignis_array gradient, double sign)
{
    ignis_array_info info;
    if (!ignis__requests.path[0] || ignis_array_query(gradient, &info) != IGNIS_OK)
        return;
    ignis__request_builtin(IGNIS__BUILTIN_SUM_ROWS, info.dtype);
    if (sign < 0)
        ignis__request_builtin(IGNIS__BUILTIN_SCALE, info.dtype);
}

/*  a + b and a - b: g for a; g or -g for b, summed over where b was spread. */
static ignis_status ignis__sum_rule(const char *call, const ignis_backward_args *args, double sign)
{
    const ignis__binary_params *p = (const ignis__binary_params *)args->params;
    ignis__array *gradients[2] = {NULL, NULL};
    ignis__op op;
    if (args->needed[0])
        args->grad_inputs[0] = args->grad_output;
    if (!args->needed[1])
        return IGNIS_OK;
    ignis__binary_record(args->grad_output, sign);
    if (p->spread.n == 1 && sign > 0) {
        args->grad_inputs[1] = args->grad_output;
        return IGNIS_OK;
    }
    if (!ignis__op_begin_backward(&op, call, args))
        return ignis__failed();
    gradients[1] = p->spread.n == 1 ? ignis__op_scaled(&op, op.in[0], sign) : ignis__binary_reduce(&op, op.in[0], NULL, sign, p);
    return ignis__op_give(&op, args, 2, gradients);
}

static ignis_status ignis__add_backward(const ignis_backward_args *args) { return ignis__sum_rule("ignis_add", args, 1); }
static ignis_status ignis__sub_backward(const ignis_backward_args *args) { return ignis__sum_rule("ignis_sub", args, -1); }

static ignis_status ignis__mul_backward(const ignis_backward_args *args)
{
    const ignis__binary_params *p = (const ignis__binary_params *)args->params;
    ignis__array *gradients[2] = {NULL, NULL};
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_mul", args))
        return ignis__failed();
    ignis__binary_record(args->grad_output, 1);
    if (args->needed[0])
        gradients[0] = ignis__binary_map(&op, IGNIS__BUILTIN_MUL, IGNIS__BUILTIN_MUL_SPREAD, op.in[0], op.in[1 + p->saved_b], &p->spread);
    if (args->needed[1] && p->spread.n == 1)
        gradients[1] = ignis__binary_map(&op, IGNIS__BUILTIN_MUL, IGNIS__BUILTIN_MUL_SPREAD, op.in[0], op.in[1 + p->saved_a], &p->spread);
    else if (args->needed[1])
        gradients[1] = ignis__binary_reduce(&op, op.in[0], op.in[1 + p->saved_a], 1, p);
    return ignis__op_give(&op, args, 2, gradients);
}

typedef struct ignis__binary_kind {
    const char *name;
    ignis_status (*backward_fn)(const ignis_backward_args *args);
    ignis__builtin same, spreading;
    bool saves;
} ignis__binary_kind;

static ignis_tensor ignis__binary(const char *call, const ignis__binary_kind *kind, ignis_tensor a, ignis_tensor b, bool bias)
{
    ignis_tensor inputs[] = {a, b};
    const ignis_shape *shape;
    ignis__binary_params p = IGNIS__ZERO;
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    ignis__op_is_float(&op, 0, "a");
    ignis__op_same_dtype(&op, 1, bias ? "the bias" : "b");
    shape = &op.in[0]->shape;
    p.shape = op.in[1]->shape;
    if (bias && (p.shape.ndim != 1 || p.shape.dim[0] != shape->dim[shape->ndim - 1]))
        ignis__op_fail(&op, IGNIS_DIAG_SPREAD_SHAPE, "the bias of %s is [%lld], this one is %s", ignis__shape_write(shape).text,
                       (long long)shape->dim[shape->ndim - 1], ignis__shape_write(&p.shape).text);
    if (!ignis__spread_find(shape, &p.shape, &p.spread))
        ignis__op_fail(&op, IGNIS_DIAG_SPREAD_SHAPE, "b is %s, which is not the shape of a, %s, and does not spread over it",
                       ignis__shape_write(&p.shape).text, ignis__shape_write(shape).text);
    if (op.ok)
        out = ignis__binary_map(&op, kind->same, kind->spreading, op.in[0], op.in[1], &p.spread);
    if (kind->saves && op.standing[0].requires_grad) {
        p.saved_b = op.saved_count;
        ignis__op_save(&op, op.in[1]);
    }
    if (kind->saves && op.standing[1].requires_grad) {
        p.saved_a = op.saved_count;
        ignis__op_save(&op, op.in[0]);
    }
    return ignis__op_end_recorded(&op, out, kind->name, kind->backward_fn, &p, sizeof p);
}

static const ignis__binary_kind ignis__binary_add = {"add", ignis__add_backward, IGNIS__BUILTIN_ADD, IGNIS__BUILTIN_ADD_SPREAD, false};
static const ignis__binary_kind ignis__binary_sub = {"sub", ignis__sub_backward, IGNIS__BUILTIN_SUB, IGNIS__BUILTIN_SUB_SPREAD, false};
static const ignis__binary_kind ignis__binary_mul = {"mul", ignis__mul_backward, IGNIS__BUILTIN_MUL, IGNIS__BUILTIN_MUL_SPREAD, true};

IGNIS_API ignis_tensor ignis_add(ignis_tensor a, ignis_tensor b) { return ignis__binary("ignis_add", &ignis__binary_add, a, b, false); }
IGNIS_API ignis_tensor ignis_sub(ignis_tensor a, ignis_tensor b) { return ignis__binary("ignis_sub", &ignis__binary_sub, a, b, false); }
IGNIS_API ignis_tensor ignis_mul(ignis_tensor a, ignis_tensor b) { return ignis__binary("ignis_mul", &ignis__binary_mul, a, b, false); }
IGNIS_API ignis_tensor ignis_add_bias(ignis_tensor tensor, ignis_tensor bias)
{
    return ignis__binary("ignis_add_bias", &ignis__binary_add, tensor, bias, true);
}

/* >>ops.pointwise - scale, cast, dropout ----------------------------------------------------------------------------------- */

static ignis_status ignis__scale_backward(const ignis_backward_args *args)
{
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_scale", args))
        return ignis__failed();
    return ignis__op_give_one(&op, args, ignis__op_scaled(&op, op.in[0], *(const double *)args->params));
}

IGNIS_API ignis_tensor ignis_scale(ignis_tensor tensor, double factor)
{
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, "ignis_scale", 1, &tensor))
        return ignis__no_tensor();
    if (ignis__op_is_float(&op, 0, "the tensor"))
        out = ignis__op_scaled(&op, op.in[0], factor);
    return ignis__op_end_recorded(&op, out, "scale", ignis__scale_backward, &factor, sizeof factor);
}

static ignis__array *ignis__op_cast(ignis__op *op, ignis__array *from, ignis_dtype dtype)
{
    ignis__array *out = ignis__op_new(op, &from->shape, dtype);
    ignis__address source, target;
    void *params[] = {&target, &source, &from->numel};
    if (out && dtype == from->dtype) {
        ignis__op_copy(op, out, from);
        return out;
    }
    source = ignis__op_read(op, from);
    target = ignis__op_write(op, out);
    ignis__op_map(op, (ignis__builtin)((int)IGNIS__BUILTIN_CAST_F16 + (int)dtype - (int)IGNIS_F16), from->dtype, from->numel, params);
    return out;
}

static ignis_status ignis__cast_backward(const ignis_backward_args *args)
{
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_cast", args))
        return ignis__failed();
    return ignis__op_give_one(&op, args, ignis__op_cast(&op, op.in[0], *(const ignis_dtype *)args->params));
}

IGNIS_API ignis_tensor ignis_cast(ignis_tensor tensor, ignis_dtype dtype)
{
    static const char call[] = "ignis_cast";
    ignis__op op;
    ignis_dtype before;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    before = op.in[0]->dtype;
    op.ok = ignis__dtype_valid(call, dtype);
    if (op.ok)
        out = ignis__op_cast(&op, op.in[0], dtype);
    return ignis__op_end_recorded(&op, out, "cast", ignis__cast_backward, &before, sizeof before);
}

/*  An element is dropped when its 32-bit random word is below the threshold; backward makes the words again. */
typedef struct ignis__dropout_params {
    int64_t threshold;
    double scale;
    ignis__random random; /* whose counter of launches is saved as an array, where there is one */
} ignis__dropout_params;

static ignis__array *ignis__op_dropout(ignis__op *op, ignis__array *from, const ignis__dropout_params *given)
{
    ignis__dropout_params p = *given;
    ignis__array *out = ignis__op_new_like(op, from);
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, out), step = 0;
    void *params[] = {&target, &source, &p.threshold, &p.scale, &p.random.seed, &p.random.first, &step, &from->numel};
    op->ok = op->ok && ignis__random_step(&op->work, p.random.launches, &step);
    ignis__op_map(op, IGNIS__BUILTIN_DROPOUT, from->dtype, from->numel, params);
    return out;
}

static ignis_status ignis__dropout_backward(const ignis_backward_args *args)
{
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_dropout", args))
        return ignis__failed();
    return ignis__op_give_one(&op, args, ignis__op_dropout(&op, op.in[0], (const ignis__dropout_params *)args->params));
}

IGNIS_API ignis_tensor ignis_dropout(ignis_tensor tensor, double probability)
{
    static const char call[] = "ignis_dropout";
    ignis__dropout_params p = IGNIS__ZERO;
    ignis__op op;
    ignis__array *out = NULL, *launches;
    ignis_tensor result;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    ignis__op_is_float(&op, 0, "the tensor");
    if (!(probability >= 0 && probability < 1))
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "the probability is %g, outside 0 to below 1", probability);
    if (op.ok) {
        p.threshold = (int64_t)(probability * 4294967296.0 + 0.5);
        p.scale = 1 / (1 - probability);
        op.ok = ignis__random_take(&op.work, op.in[0]->dtype, op.in[0]->numel, &p.random);
        out = ignis__op_dropout(&op, op.in[0], &p);
    }
    launches = op.ok && p.random.launches.id ? ignis__array_hold(call, p.random.launches) : NULL;
    ignis__op_save(&op, launches);
    result = ignis__op_end_recorded(&op, out, "dropout", ignis__dropout_backward, &p, sizeof p);
    if (launches)
        ignis__array_drop(call, launches);
    return result;
}

/* >>ops.pointwise - activations: functions of one element, which save their input ------------------------------------------ */

/*  out = kernel(a, ...): up to three arrays of one shape. */
static ignis__array *ignis__op_map_arrays(ignis__op *op, ignis__builtin builtin, int count, ignis__array *const *from)
{
    ignis__array *out = ignis__op_new_like(op, from[0]);
    ignis__address source[3], target;
    void *params[] = {&target, &source[0], &source[1], &source[2], NULL};
    int i;
    for (i = 0; i < count; i++)
        source[i] = ignis__op_read(op, from[i]);
    target = ignis__op_write(op, out);
    params[1 + count] = &from[0]->numel;
    ignis__op_map(op, builtin, from[0]->dtype, from[0]->numel, params);
    return out;
}

typedef struct ignis__activation {
    const char *call; /* behind ignis_ the name of the rule */
    ignis__builtin forward, backward;
} ignis__activation;

static ignis_status ignis__activation_backward(const ignis_backward_args *args)
{
    const ignis__activation *kind = *(const ignis__activation *const *)args->params;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, kind->call, args))
        return ignis__failed();
    return ignis__op_give_one(&op, args, ignis__op_map_arrays(&op, kind->backward, 2, op.in));
}

static ignis_tensor ignis__activate(const ignis__activation *kind, ignis_tensor tensor)
{
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, kind->call, 1, &tensor))
        return ignis__no_tensor();
    ignis__op_save(&op, op.in[0]);
    if (ignis__op_is_float(&op, 0, "the tensor"))
        out = ignis__op_map_arrays(&op, kind->forward, 1, op.in);
    return ignis__op_end_recorded(&op, out, kind->call + 6, ignis__activation_backward, &kind, sizeof kind);
}

static const ignis__activation ignis__act_relu = {"ignis_relu", IGNIS__BUILTIN_RELU, IGNIS__BUILTIN_RELU_BACKWARD};
static const ignis__activation ignis__act_gelu = {"ignis_gelu", IGNIS__BUILTIN_GELU, IGNIS__BUILTIN_GELU_BACKWARD};
static const ignis__activation ignis__act_gelu_exact = {"ignis_gelu_exact", IGNIS__BUILTIN_GELU_EXACT, IGNIS__BUILTIN_GELU_EXACT_BACKWARD};
static const ignis__activation ignis__act_silu = {"ignis_silu", IGNIS__BUILTIN_SILU, IGNIS__BUILTIN_SILU_BACKWARD};

IGNIS_API ignis_tensor ignis_relu(ignis_tensor tensor) { return ignis__activate(&ignis__act_relu, tensor); }
IGNIS_API ignis_tensor ignis_gelu(ignis_tensor tensor) { return ignis__activate(&ignis__act_gelu, tensor); }
IGNIS_API ignis_tensor ignis_gelu_exact(ignis_tensor tensor) { return ignis__activate(&ignis__act_gelu_exact, tensor); }
IGNIS_API ignis_tensor ignis_silu(ignis_tensor tensor) { return ignis__activate(&ignis__act_silu, tensor); }

static ignis_status ignis__silu_mul_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *gradients[2];
    ignis__address dgate, dup, g, gate, up;
    int64_t n;
    int i;
    void *params[] = {&dgate, &dup, &g, &gate, &up, &n};
    if (!ignis__op_begin_backward(&op, "ignis_silu_mul", args))
        return ignis__failed();
    n = op.in[0]->numel;
    for (i = 0; i < 2; i++)
        gradients[i] = ignis__op_new_like(&op, op.in[1]);
    g = ignis__op_read(&op, op.in[0]);
    gate = ignis__op_read(&op, op.in[1]);
    up = ignis__op_read(&op, op.in[2]);
    dgate = ignis__op_write(&op, gradients[0]);
    dup = ignis__op_write(&op, gradients[1]);
    ignis__op_map(&op, IGNIS__BUILTIN_SILU_MUL_BACKWARD, op.in[1]->dtype, n, params);
    return ignis__op_give(&op, args, 2, gradients);
}

IGNIS_API ignis_tensor ignis_silu_mul(ignis_tensor gate, ignis_tensor up)
{
    ignis_tensor inputs[] = {gate, up};
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, "ignis_silu_mul", 2, inputs))
        return ignis__no_tensor();
    ignis__op_save_inputs(&op, 0, 2);
    if (ignis__op_is_float(&op, 0, "gate") && ignis__op_same_dtype(&op, 1, "up") && ignis__op_same_shape(&op, 1, "up"))
        out = ignis__op_map_arrays(&op, IGNIS__BUILTIN_SILU_MUL, 2, op.in);
    return ignis__op_end_recorded(&op, out, "silu_mul", ignis__silu_mul_backward, NULL, 0);
}

/* >>ops.map - formulas of tensors -------------------------------------------------------------------------------------------- */

/*  What the gradients of a formula need to know. Saved are the inputs that they are computed from. */
typedef struct ignis__map_rule {
    ignis__formula *formula;
    ignis_shape shape; /* of the result */
    int result;        /* of the formula, which this is the gradient of */
    ignis__random random;
    int saved[IGNIS_MAX_INPUTS];
    ignis_shape given;    /* of the gradient that comes in, in the dimensions of shape: 1 where the result is reduced */
    double factor;        /* of that gradient */
    int kept, kept_saved; /* of a reduction, and where it is saved */
    uint32_t same;        /* bits of inputs whose gradient it is */
    double value[IGNIS_MAX_INPUTS];
    int count; /* of tensors */
    struct {
        int input; /* which one of the formula it is */
        ignis_dtype dtype;
        ignis_shape shape;
    } tensor[IGNIS_MAX_INPUTS]; /* stored as far as there are some */
} ignis__map_rule;

/*  The sum of an array, of the dtype or W, over where one of a shape was spread over it: by neighbouring dimensions, the last first. */
static ignis__array *ignis__map_gather(ignis__op *op, ignis__array *from, const ignis_shape *spread_over, const ignis_shape *shape,
                                       ignis_dtype dtype)
{
    int64_t stride[1][IGNIS__MAP_ANY_RANK], dim[IGNIS_MAX_DIMS];
    ignis__array *out = from;
    ignis__spread spread;
    int rank, d;
    ignis__map_strides(spread_over, shape, stride[0]);
    rank = ignis__map_collapse(spread_over, 1, stride, dim);
    spread.inner = 1;
    for (d = rank - 1; d >= 0 && op->ok; d--) {
        if (stride[0][d]) {
            spread.inner *= dim[d];
            continue;
        }
        spread.n = dim[d];
        spread.outer = 1;
        for (rank = 0; rank < d; rank++)
            spread.outer *= dim[rank];
        from = out;
        out = d < 2 ? ignis__op_new(op, shape, from->dtype) : ignis__op_new_row(op, spread.outer * spread.inner, from->dtype);
        if (out)
            ignis__op_sum(op, out, from, NULL, 1, &spread);
    }
    return op->ok && out->dtype != dtype ? ignis__op_cast(op, out, dtype) : out;
}

/*  Whether a tensor has fewer elements than the shape, over which it was spread. */
static bool ignis__map_spread(const ignis__map_rule *p, int tensor)
{
    const ignis_shape *shape = &p->tensor[tensor].shape;
    return ignis__shape_product(shape, 0, shape->ndim) != ignis__shape_product(&p->shape, 0, p->shape.ndim);
}

/*  Whether the needed tensors were spread along the same neighbouring dimensions: then one kernel sums all gradients, too. */
static bool ignis__map_spread_alike(const ignis__map_rule *p, uint32_t needed)
{
    const ignis_shape *shape, *first = NULL;
    ignis__spread spread;
    int i, d;
    for (i = 0; i < p->count; i++) {
        if (!(needed >> p->tensor[i].input & 1) || !ignis__map_spread(p, i))
            continue;
        shape = &p->tensor[i].shape;
        if (!first)
            first = shape;
        for (d = 1; d <= p->shape.ndim; d++)
            if ((d <= shape->ndim ? shape->dim[shape->ndim - d] : 1) != (d <= first->ndim ? first->dim[first->ndim - d] : 1))
                return false;
    }
    return first && ignis__shape_product(&p->shape, 0, p->shape.ndim) > 0 && ignis__spread_find(&p->shape, first, &spread);
}

/*  What the gradients come as. fused: those of what was spread are summed at once; apart: all are as wide and as long as they can be, and what
    is to become of each comes behind: so they are at any sizes. */
static void ignis__map_backward_results(const ignis__map_rule *p, uint32_t needed, bool wide, bool fused, bool apart, ignis__map_run *run,
                                        int *tensor)
{
    int i, k;
    run->outs = 0;
    run->reduced = 0;
    for (i = 0; i < p->formula->count; i++) { /* in the order of the formula's inputs */
        if (!(needed >> i & 1))
            continue;
        for (k = 0; k < p->count && p->tensor[k].input != i; k++)
            ;
        tensor[run->outs] = k;
        if (fused && ignis__map_spread(p, k)) {
            run->reduced |= (uint32_t)1 << run->outs;
            run->reduction = IGNIS_REDUCE_SUM;
            run->to_shape = &p->tensor[k].shape;
        }
        run->out[run->outs++] = !apart && (fused || !ignis__map_spread(p, k)) ? p->tensor[k].dtype : wide ? IGNIS_F64 : IGNIS_F32;
    }
}

/*  Records what gradients take at other sizes. */
static void ignis__map_backward_record(const char *call, const ignis__map_rule *p, const ignis__map_run *run)
{
    int k;
    if (!ignis__requests.path[0])
        return;
    ignis__request_builtin(IGNIS__BUILTIN_SUM_ROWS, run->dtype[p->formula->count]); /* of a gradient that is the one that comes in */
    if (run->outs == 0)
        return;
    ignis__map_record_run(call, run);
    ignis__request_builtin(IGNIS__BUILTIN_SUM_ROWS, run->out[0]);
    for (k = 0; k < p->count; k++)
        if (ignis__dtype_is_float(p->tensor[k].dtype) && p->tensor[k].dtype != run->out[0])
            ignis__request_builtin((ignis__builtin)((int)IGNIS__BUILTIN_CAST_F16 + (int)p->tensor[k].dtype - (int)IGNIS_F16), run->out[0]);
}

/*  Of a logsumexp: the gradient that comes in over the sum, whose exponentials begin at what is kept, the largest. Null after a failure. */
static ignis__array *ignis__map_over_sum(ignis__op *op, const ignis__map_rule *p)
{
    ignis__array *kept = op->in[p->kept_saved], *out = ignis__op_new(op, &p->given, kept->dtype);
    ignis__map_run run = IGNIS__ZERO;
    run.formula = ignis__formula_get(op->work.call, "g/s", "g, s", 2, 0);
    op->ok = op->ok && run.formula;
    run.shape = p->given;
    run.used = 3;
    run.input[0] = run.input[1] = &p->given;
    run.dtype[0] = op->in[0]->dtype;
    run.dtype[1] = kept->dtype;
    run.address[0] = ignis__op_read(op, op->in[0]);
    run.address[1] = ignis__op_read(op, kept) + (ignis__address)(kept->numel / 2 * ignis__dtypes[kept->dtype].size);
    run.outs = 1;
    run.out[0] = kept->dtype;
    run.to[0] = ignis__op_write(op, out);
    if (op->ok) {
        ignis__map_record_run(op->work.call, &run);
        op->ok = ignis__map_launch(&op->work, &run);
    }
    return op->ok ? out : NULL;
}

static ignis_status ignis__map_backward(const ignis_backward_args *args)
{
    static const char call[] = "ignis_map";
    const ignis__map_rule *p = (const ignis__map_rule *)args->params;
    ignis__array *gradients[IGNIS_MAX_INPUTS] = {NULL}, *made[IGNIS_MAX_INPUTS] = {NULL};
    uint32_t needed = 0, all = 0;
    ignis__array *given;
    ignis__map_needs needs;
    ignis__map_run run = IGNIS__ZERO;
    ignis__op op;
    int i, count = p->formula->count, tensor[IGNIS_MAX_INPUTS];
    bool wide = false, fused, apart = false;
    if (!ignis__op_begin_backward(&op, call, args))
        return ignis__failed();
    given = p->kept == IGNIS_REDUCE_LOGSUMEXP ? ignis__map_over_sum(&op, p) : op.in[0];
    if (!given)
        return ignis__op_give(&op, args, p->count, gradients);
    run.formula = p->formula;
    run.shape = p->shape;
    run.dtype[count] = given->dtype;
    run.input[count] = &p->given;
    run.factor = p->factor;
    for (i = 0; i < count; i++) {
        run.value[i] = p->value[i];
        if (p->saved[i]) {
            run.dtype[i] = op.in[p->saved[i]]->dtype;
            run.input[i] = &op.in[p->saved[i]]->shape;
            wide = wide || run.dtype[i] == IGNIS_F64;
        }
    }
    for (i = 0; i < p->count; i++) {
        wide = wide || p->tensor[i].dtype == IGNIS_F64;
        if (!args->needed[i] || !ignis__dtype_is_float(p->tensor[i].dtype))
            continue;
        all |= (uint32_t)1 << p->tensor[i].input;
        if (!(p->same >> p->tensor[i].input & 1) || p->tensor[i].dtype != op.in[0]->dtype)
            needed |= (uint32_t)1 << p->tensor[i].input;
    }
    run.result = p->result;
    run.random = p->random;
    op.ok = ignis__map_needs_get(call, p->formula, p->result, needed ? needed : all, ignis__map_kept_value(p->kept), &needs);
    run.used = needs.used | (uint32_t)1 << count;
    if (p->kept) {
        run.kept = p->kept;
        run.used |= (uint32_t)2 << count;
        run.input[count + 1] = &p->given;
        run.dtype[count + 1] = op.in[p->kept_saved]->dtype;
        run.address[count + 1] = ignis__op_read(&op, op.in[p->kept_saved]);
    }
    run.needed = needed;
    fused = ignis__map_spread_alike(p, needed);
    if (op.ok) {
        ignis__map_backward_results(p, needed, wide, false, true, &run, tensor);
        ignis__map_backward_record(call, p, &run);
    }
    if (needed && op.ok) {
        ignis__map_backward_results(p, needed, wide, fused, false, &run, tensor);
        apart = !ignis__map_there(call, op.work.device, &run);
        fused = fused && !apart;
        if (apart)
            ignis__map_backward_results(p, needed, wide, false, true, &run, tensor);
    }
    for (i = 0; i < run.outs && op.ok; i++) {
        made[tensor[i]] = ignis__op_new(&op, run.reduced >> i & 1 ? &p->tensor[tensor[i]].shape : &p->shape, run.out[i]);
        run.to[i] = ignis__op_write(&op, made[tensor[i]]);
    }
    for (i = 0; i <= count; i++)
        if (needed && (run.used >> i & 1) && run.input[i])
            run.address[i] = ignis__op_read(&op, i == count ? given : op.in[p->saved[i]]);
    if (op.ok && needed)
        op.ok = ignis__map_launch(&op.work, &run);
    for (i = 0; i < p->count && op.ok; i++) {
        if (!(all >> p->tensor[i].input & 1))
            continue;
        if (!made[i] && !ignis__map_spread(p, i))
            args->grad_inputs[i] = args->grad_output;
        else if (made[i] && (fused || !ignis__map_spread(p, i)) && made[i]->dtype == p->tensor[i].dtype)
            gradients[i] = made[i];
        else
            gradients[i] = ignis__map_gather(&op, made[i] ? made[i] : op.in[0], &p->shape, &p->tensor[i].shape, p->tensor[i].dtype);
    }
    return ignis__op_give(&op, args, p->count, gradients);
}

IGNIS_API ignis_tensor ignis_value(double value)
{
    ignis_tensor handle;
    handle.id = ignis__value_make(value);
    return handle;
}

typedef enum ignis__loss_kind {
    IGNIS__LOSS_NONE, /* any formula */
    IGNIS__LOSS,      /* its result is of f32 at least */
    IGNIS__LOSS_ALIKE /* that, and its first two inputs are of one shape, over which the others spread */
} ignis__loss_kind;

/*  What a model gives and its targets must not spread over each other by mistake. */
static bool ignis__map_fits_loss(ignis__op *op, const ignis__map_run *run)
{
    if (!ignis__op_is_float(op, 0, "the first input") || !ignis__op_same_shape(op, 1, "targets"))
        return false;
    if (ignis__shape_same(&run->shape, &op->in[0]->shape))
        return true;
    return ignis__op_fail(op, IGNIS_DIAG_SPREAD_SHAPE, "the weights do not spread over the first input, which is %s, but make it %s",
                          ignis__shape_write(&op->in[0]->shape).text, ignis__shape_write(&run->shape).text);
}

/*  A formula of tensors up to its result: run is ready to be launched, and the rule filled but for what is known then. */
static bool ignis__map_tensors(ignis__op *op, const char *call, const char *formula, const ignis_inputs *inputs, int results,
                               ignis__map_run *run, ignis__map_rule *rule, ignis__loss_kind loss)
{
    uint64_t ids[IGNIS_MAX_INPUTS], others[IGNIS_MAX_INPUTS];
    ignis_tensor handles[IGNIS_MAX_INPUTS];
    int at[IGNIS_MAX_INPUTS], i;
    for (i = 0; i < inputs->count && i < IGNIS_MAX_INPUTS; i++)
        ids[i] = inputs->tensor[i].id;
    if (!ignis__map_begin(call, formula, inputs->names, inputs->count, ids, run, others, at, &rule->count))
        return false;
    for (i = 0; i < rule->count; i++)
        handles[i].id = others[i];
    if (!ignis__op_begin(op, call, rule->count, handles))
        return false;
    for (i = 0; i < rule->count; i++) {
        run->input[at[i]] = &op->in[i]->shape;
        run->dtype[at[i]] = op->in[i]->dtype;
    }
    op->ok = ignis__map_prepare(&op->work, formula, inputs->names, inputs->count, results, run);
    if (loss == IGNIS__LOSS_ALIKE && op->ok)
        op->ok = ignis__map_fits_loss(op, run);
    for (i = 0; i < rule->count && op->ok; i++)
        run->address[at[i]] = ignis__op_read(op, op->in[i]);
    if (!op->ok || !op->records)
        return true;
    rule->formula = run->formula;
    rule->shape = run->shape;
    rule->result = 0;
    rule->random = run->random;
    memcpy(rule->value, run->value, sizeof rule->value);
    memset(rule->saved, 0, sizeof rule->saved);
    rule->given = run->shape;
    rule->factor = 1;
    rule->kept = 0;
    for (i = 0; i < rule->count; i++) {
        rule->tensor[i].input = at[i];
        rule->tensor[i].dtype = op->in[i]->dtype;
        rule->tensor[i].shape = op->in[i]->shape;
    }
    return true;
}

static const char ignis__map_name_of_each[] = "map";

/*  A result as a tensor, recorded with what its gradients are computed from. */
static ignis_tensor ignis__map_result(ignis__op *op, ignis__array *out, const char *name, ignis__map_rule *rule)
{
    ignis__array *launches = NULL;
    ignis_tensor result;
    ignis__map_needs needs;
    ignis_rule record;
    uint32_t needed = 0;
    bool records = op->ok && op->records && ignis__dtype_is_float(out->dtype);
    int i;
    if (records) {
        for (i = 0; i < rule->count; i++)
            if (op->standing[i].requires_grad && ignis__dtype_is_float(op->in[i]->dtype))
                needed |= (uint32_t)1 << rule->tensor[i].input;
        memset(&needs, 0, sizeof needs);
        op->ok = needed == 0 ||
                 ignis__map_needs_get(op->work.call, rule->formula, rule->result, needed, ignis__map_kept_value(rule->kept), &needs);
        rule->same = name == ignis__map_name_of_each ? needs.same : 0;
        for (i = 0; i < rule->count && op->ok; i++)
            if (needs.used >> rule->tensor[i].input & 1) {
                rule->saved[rule->tensor[i].input] = 1 + op->saved_count;
                ignis__op_save(op, op->in[i]);
            }
        if (op->ok && rule->formula->randoms && rule->random.launches.id) { /* the gradients make the random numbers again */
            launches = ignis__array_hold(op->work.call, rule->random.launches);
            op->ok = launches != NULL;
            ignis__op_save(op, launches);
        }
    }
    record = ignis__op_rule(op, name, ignis__map_backward, rule,
                            offsetof(ignis__map_rule, tensor) + (size_t)rule->count * sizeof rule->tensor[0]);
    result = ignis__op_result(op, out, op->count, op->tensors, op->standing, records ? &record : NULL);
    if (launches)
        ignis__array_drop(op->work.call, launches);
    op->saved_count = 0;
    return result;
}

/*  Ends an operation of one result. */
static ignis_tensor ignis__map_end(ignis__op *op, ignis__array *out, const char *name, ignis__map_rule *rule)
{
    ignis_tensor result = ignis__map_result(op, out, name, rule);
    ignis__op_leave(op);
    return result;
}

/*  A formula of several results, which are recorded apart. */
static ignis_status ignis__map(const char *call, const char *formula, const ignis_inputs *inputs, int count, ignis_tensor *results,
                               ignis__loss_kind loss)
{
    ignis__map_rule rule;
    ignis__map_run run;
    ignis__array *out[IGNIS_MAX_INPUTS] = {NULL};
    ignis__op op;
    int k;
    memset(results, 0, sizeof *results * (size_t)count);
    if (!ignis__map_tensors(&op, call, formula, inputs, count, &run, &rule, loss))
        return ignis__failed();
    for (k = 0; k < count && op.ok; k++) {
        run.out[k] = ignis__map_dtype(&run, k);
        if (loss)
            run.out[k] = ignis__wide_dtype(run.out[k]);
        out[k] = ignis__op_new(&op, &run.shape, run.out[k]);
        run.to[k] = ignis__op_write(&op, out[k]);
    }
    op.ok = op.ok && ignis__map_launch(&op.work, &run);
    for (k = 0; k < count && op.ok; k++) {
        rule.result = k;
        memset(rule.saved, 0, sizeof rule.saved);
        results[k] = ignis__map_result(&op, out[k], ignis__map_name_of_each, &rule);
    }
    if (ignis__op_leave(&op) == IGNIS_OK)
        return IGNIS_OK;
    for (k = 0; k < count; k++) {
        if (results[k].id)
            (void)ignis_tensor_release(results[k]);
        results[k].id = 0;
    }
    return ignis__failed();
}

/*  One result. */
static ignis_tensor ignis__map_each(const char *call, const char *formula, const ignis_inputs *inputs, ignis__loss_kind loss)
{
    ignis_tensor result;
    (void)ignis__map(call, formula, inputs, 1, &result, loss);
    return result;
}

IGNIS_API ignis_tensor ignis_map(const char *formula, ignis_inputs inputs)
{
    return ignis__map_each("ignis_map", formula, &inputs, IGNIS__LOSS_NONE);
}

IGNIS_API ignis_status ignis_map_many(const char *formula, ignis_inputs inputs, int count, ignis_tensor *results)
{
    static const char call[] = "ignis_map_many";
    return ignis__map_results(call, count, results) ? ignis__map(call, formula, &inputs, count, results, IGNIS__LOSS_NONE)
                                                    : ignis__failed();
}

/*  The shape of a reduction: `kept` has 1 in the dimensions of desc (null: in all), *out lacks them unless they are kept. */
static bool ignis__map_reduced_shape(ignis__op *op, const ignis_shape *shape, const ignis_reduce_desc *desc, ignis_shape *kept,
                                     ignis_shape *out)
{
    uint32_t dims = 0;
    int i, d;
    *kept = *shape;
    memset(out, 0, sizeof *out);
    if (desc && (desc->dim_count < 0 || desc->dim_count > IGNIS_MAX_DIMS))
        return ignis__op_fail(op, IGNIS_DIAG_DIM_RANGE, "desc->dim_count is %d, outside 0 to %d", desc->dim_count, IGNIS_MAX_DIMS);
    for (i = 0; desc && i < desc->dim_count; i++) {
        d = desc->dims[i] < 0 ? desc->dims[i] + shape->ndim : desc->dims[i];
        if (d < 0 || d >= shape->ndim || dims >> d & 1)
            return ignis__op_fail(op, IGNIS_DIAG_DIM_RANGE, "desc->dims[%d] is %d, %s %s", i, desc->dims[i],
                                  d >= 0 && d < shape->ndim ? "which was there before, of" : "outside of", ignis__shape_write(shape).text);
        dims |= (uint32_t)1 << d;
    }
    for (d = 0; d < shape->ndim; d++) {
        bool is = !desc || desc->dim_count == 0 || (dims >> d & 1);
        if (is)
            kept->dim[d] = 1;
        if (!is || (desc && desc->keepdim))
            out->dim[out->ndim++] = kept->dim[d];
    }
    if (out->ndim == 0) {
        out->ndim = 1;
        out->dim[0] = 1;
    }
    return true;
}

static ignis_tensor ignis__map_reduced(const char *call, ignis_reducer reducer, const char *formula, const ignis_inputs *inputs,
                                       const ignis_reduce_desc *desc, ignis__loss_kind loss)
{
    ignis_shape kept, shape;
    ignis__map_rule rule;
    ignis__map_run run;
    ignis__array *out = NULL, *aside;
    ignis_dtype dtype;
    ignis__op op;
    int64_t numel;
    double none = 0;
    char type;
    if (ignis__enter(call) && !ignis__map_reducer_valid(call, reducer))
        return ignis__no_tensor();
    if (!ignis__map_tensors(&op, call, formula, inputs, 1, &run, &rule, loss))
        return ignis__no_tensor();
    if (op.ok && ignis__map_reduced_shape(&op, &run.shape, desc, &kept, &shape)) {
        type = run.formula->term[run.formula->result[0]].type;
        dtype = ignis__map_dtype(&run, 0);
        dtype = reducer == IGNIS_REDUCE_ANY || reducer == IGNIS_REDUCE_ALL ? IGNIS_U8
                : reducer == IGNIS_REDUCE_ARGMAX || reducer == IGNIS_REDUCE_ARGMIN ||
                        (type == 'b' && reducer != IGNIS_REDUCE_MEAN && !ignis__map_reduces_wide((int)reducer))
                    ? IGNIS_I64
                : type != 'w' && (reducer == IGNIS_REDUCE_MEAN || ignis__map_reduces_wide((int)reducer)) ? IGNIS_F32
                : loss                                                                                   ? ignis__wide_dtype(dtype)
                                                                                                         : dtype;
        out = ignis__op_new(&op, &shape, dtype);
        numel = ignis__shape_product(&run.shape, 0, run.shape.ndim);
        run.out[0] = dtype;
        run.reduced = 1;
        run.reduction = reducer;
        run.to_shape = &kept;
        if (reducer == IGNIS_REDUCE_MEAN && numel)
            run.factor = (double)(numel / ignis__shape_product(&kept, 0, kept.ndim));
        rule.given = kept;
        rule.factor = 1 / run.factor;
        if (op.records && ignis__dtype_is_float(dtype) &&
            ((reducer >= IGNIS_REDUCE_PROD && reducer <= IGNIS_REDUCE_MIN) || ignis__map_reduces_wide((int)reducer))) {
            aside = ignis__op_new_rows(&op, reducer == IGNIS_REDUCE_LOGSUMEXP ? 2 : 1, ignis__shape_product(&kept, 0, kept.ndim),
                                       ignis__map_kept_value((int)reducer) ? ignis__wide_dtype(dtype) : IGNIS_I64);
            run.kept = rule.kept = (int)reducer;
            run.kept_to = ignis__op_write(&op, aside);
            rule.kept_saved = 1 + op.saved_count;
            ignis__op_save(&op, aside);
        }
        if (op.ok && numel == 0 && out->numel > 0) {
            op.ok = ignis__map_reduce_none(call, reducer, &none);
            ignis__op_fill(&op, out, none);
        } else {
            run.to[0] = ignis__op_write(&op, out);
            op.ok = op.ok && ignis__map_reduce(&op.work, &run);
        }
    }
    return ignis__map_end(&op, out, ignis__map_reductions[reducer].name, &rule);
}

IGNIS_API ignis_tensor ignis_map_sum(const char *formula, ignis_inputs inputs)
{
    return ignis__map_reduced("ignis_map_sum", IGNIS_REDUCE_SUM, formula, &inputs, NULL, IGNIS__LOSS_NONE);
}

IGNIS_API ignis_tensor ignis_map_mean(const char *formula, ignis_inputs inputs)
{
    return ignis__map_reduced("ignis_map_mean", IGNIS_REDUCE_MEAN, formula, &inputs, NULL, IGNIS__LOSS_NONE);
}

IGNIS_API ignis_tensor ignis_map_reduce(ignis_reducer reducer, const char *formula, ignis_inputs inputs, const ignis_reduce_desc *desc)
{
    return ignis__map_reduced("ignis_map_reduce", reducer, formula, &inputs, desc, IGNIS__LOSS_NONE);
}

/* >>ops.shape - transpose -------------------------------------------------------------------------------------------------- */

/*  [a, m, b, n, c] becomes [a, n, b, m, c]. */
typedef struct ignis__exchange {
    int64_t a, m, b, n, c;
} ignis__exchange;

static ignis__array *ignis__op_exchange(ignis__op *op, ignis__array *from, const ignis_shape *shape, const ignis__exchange *given)
{
    ignis__exchange e = *given;
    ignis__array *out = ignis__op_new(op, shape, from->dtype);
    ignis__address source, target;
    bool tiles = e.c == 1 && e.m >= 16 && e.n >= 16;
    int64_t edge = ignis__dtypes[from->dtype].size <= 4 ? 64 : 32, pack = ignis__pack_elements(from->dtype), blocks;
    void *params[] = {&target, &source, &e.a, &e.m, &e.b, &e.n, &e.c};
    ignis__request_builtin(IGNIS__BUILTIN_TRANSPOSE_RUNS, from->dtype);
    if (out && (e.m == 1 || e.n == 1) && (e.b == 1 || e.m == e.n)) { /* the order stays */
        ignis__op_copy(op, out, from);
        return out;
    }
    source = ignis__op_read(op, from);
    target = ignis__op_write(op, out);
    blocks = tiles ? e.a * e.b * ignis__ceil_div(e.m, edge) * ignis__ceil_div(e.n, edge)
                   : ignis__ceil_div(from->numel, 1024 * (e.c % pack == 0 ? pack : 1));
    if (from->numel > 0)
        ignis__op_launch_row(op, tiles ? IGNIS__BUILTIN_TRANSPOSE_TILES : IGNIS__BUILTIN_TRANSPOSE_RUNS, from->dtype,
                             ignis__clamp(blocks, 1, INT32_MAX), 256, params);
    return out;
}

typedef struct ignis__transpose_params {
    ignis__exchange back;
    ignis_shape shape; /* of the input */
} ignis__transpose_params;

static ignis_status ignis__transpose_backward(const ignis_backward_args *args)
{
    const ignis__transpose_params *p = (const ignis__transpose_params *)args->params;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_transpose", args))
        return ignis__failed();
    return ignis__op_give_one(&op, args, ignis__op_exchange(&op, op.in[0], &p->shape, &p->back));
}

IGNIS_API ignis_tensor ignis_transpose(ignis_tensor tensor, int dim0, int dim1)
{
    ignis__transpose_params p = IGNIS__ZERO;
    ignis__exchange e;
    ignis__op op;
    ignis__array *out = NULL;
    ignis_shape shape;
    int low, high;
    if (!ignis__op_begin(&op, "ignis_transpose", 1, &tensor))
        return ignis__no_tensor();
    if (ignis__op_dim(&op, &dim0, "dim0") && ignis__op_dim(&op, &dim1, "dim1")) {
        low = dim0 < dim1 ? dim0 : dim1;
        high = dim0 < dim1 ? dim1 : dim0;
        p.shape = shape = op.in[0]->shape;
        shape.dim[low] = p.shape.dim[high];
        shape.dim[high] = p.shape.dim[low];
        e.a = ignis__shape_product(&p.shape, 0, low);
        e.m = p.shape.dim[low];
        e.b = low < high ? ignis__shape_product(&p.shape, low + 1, high) : 1;
        e.n = low < high ? p.shape.dim[high] : 1;
        e.c = ignis__shape_product(&p.shape, high + 1, p.shape.ndim);
        p.back = e;
        p.back.m = e.n;
        p.back.n = e.m;
        out = ignis__op_exchange(&op, op.in[0], &shape, &e);
    }
    return ignis__op_end_recorded(&op, out, "transpose", ignis__transpose_backward, &p, sizeof p);
}

/* >>ops.shape - concat, split, slice ------------------------------------------------------------------------------------------- */

/*  Copies rows of `length` elements between arrays whose rows are `to_row` and `from_row` elements apart, from and to an offset. */
static void ignis__op_copy_rows(ignis__op *op, ignis__array *to, int64_t to_offset, int64_t to_row, ignis__array *from, int64_t from_offset,
                                int64_t from_row, int64_t length, int64_t rows)
{
    uint64_t size = (uint64_t)ignis__dtypes[from->dtype].size;
    ignis__address source = ignis__op_read(op, from) + (uint64_t)from_offset * size;
    ignis__address target = ignis__op_write(op, to) + (uint64_t)to_offset * size;
    void *params[] = {&target, &source, &to_row, &from_row, &length, &rows};
    ignis__op_map(op, IGNIS__BUILTIN_COPY_ROWS, from->dtype, length * rows, params);
}

typedef struct ignis__concat_params {
    int dim;
    int64_t row; /* elements of the result from one row to the next */
    ignis_shape shapes[IGNIS__OP_INPUTS];
} ignis__concat_params;

static ignis_status ignis__concat_backward(const ignis_backward_args *args)
{
    const ignis__concat_params *p = (const ignis__concat_params *)args->params;
    ignis__array *gradients[IGNIS__OP_INPUTS];
    ignis__op op;
    int64_t offset = 0, rows, length;
    int i;
    if (!ignis__op_begin_backward(&op, "ignis_concat", args))
        return ignis__failed();
    for (i = 0; i < args->input_count; i++) {
        rows = ignis__shape_product(&p->shapes[i], 0, p->dim);
        length = ignis__shape_product(&p->shapes[i], p->dim, p->shapes[i].ndim);
        gradients[i] = args->needed[i] ? ignis__op_new(&op, &p->shapes[i], op.in[0]->dtype) : NULL;
        if (gradients[i])
            ignis__op_copy_rows(&op, gradients[i], 0, length, op.in[0], offset, p->row, length, rows);
        offset += length;
    }
    return ignis__op_give(&op, args, args->input_count, gradients);
}

/*  Up to IGNIS__OP_INPUTS tensors; those from `joined` on get a dimension of 1 at dim first, for a stack. first: the number that the caller knows the
    first one by, for messages. */
static ignis_tensor ignis__concat_few(const char *call, const ignis_tensor *tensors, int count, int dim, int joined, int first)
{
    ignis__concat_params p = IGNIS__ZERO;
    ignis__op op;
    ignis__array *out = NULL;
    ignis_shape shape;
    int64_t offset = 0, rows = 1, length;
    int i, k;
    if (!ignis__op_begin(&op, call, count, tensors))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    if (joined == 0 && shape.ndim == IGNIS_MAX_DIMS)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_RANK, "a stack of %s would have more than %d dimensions", ignis__shape_write(&shape).text,
                       IGNIS_MAX_DIMS);
    if (joined == 0 && dim >= -shape.ndim - 1 && dim <= shape.ndim)
        dim += dim < 0 ? shape.ndim + 1 : 0;
    else
        ignis__op_dim(&op, &dim, "dim");
    for (i = 0; op.ok && i < count; i++) {
        ignis_shape its = op.in[i]->shape;
        bool fits;
        if (i >= joined && (i == 0 || its.ndim == shape.ndim - 1)) {
            memmove(its.dim + dim + 1, its.dim + dim, sizeof its.dim[0] * (size_t)(its.ndim++ - dim));
            its.dim[dim] = 1;
        }
        if (i == 0)
            shape = its;
        fits = its.ndim == shape.ndim;
        for (k = 0; fits && k < shape.ndim; k++)
            fits = k == dim || its.dim[k] == shape.dim[k];
        if (i >= joined && i > 0)
            fits = fits && op.in[i]->shape.ndim < its.ndim;
        if (ignis__op_same_dtype(&op, i, "one of the tensors") && !fits && joined < count) {
            memmove(shape.dim + dim, shape.dim + dim + 1, sizeof shape.dim[0] * (size_t)(--shape.ndim - dim));
            ignis__op_fail(&op, IGNIS_DIAG_PARTS_SHAPE, "tensor %d is %s, tensor 0 is %s; those of a stack are of one shape", first + i,
                           ignis__shape_write(&op.in[i]->shape).text, ignis__shape_write(&shape).text);
        }
        if (op.ok && !fits)
            ignis__op_fail(&op, IGNIS_DIAG_PARTS_SHAPE, "tensor %d is %s, tensor 0 is %s; they may differ in dimension %d only", first + i,
                           ignis__shape_write(&its).text, ignis__shape_write(&p.shapes[0]).text, dim);
        p.shapes[i] = its;
        if (op.ok && i > 0 && shape.dim[dim] > INT64_MAX - its.dim[dim])
            ignis__op_fail(&op, IGNIS_DIAG_SHAPE_OVERFLOW, "dimension %d of the result is above 2^63 with tensor %d, which is %s", dim,
                           first + i, ignis__shape_write(&its).text);
        if (op.ok && i > 0)
            shape.dim[dim] += its.dim[dim];
    }
    out = ignis__op_new(&op, &shape, op.in[0]->dtype);
    if (out) {
        p.dim = dim;
        p.row = ignis__shape_product(&shape, dim, shape.ndim);
        rows = ignis__shape_product(&shape, 0, dim);
    }
    for (i = 0; op.ok && i < count; i++) {
        length = ignis__shape_product(&p.shapes[i], dim, shape.ndim);
        ignis__op_copy_rows(&op, out, offset, p.row, op.in[i], 0, length, length, rows);
        offset += length;
    }
    return ignis__op_end_recorded(&op, out, "concat", ignis__concat_backward, &p, sizeof p);
}

static ignis_tensor ignis__concat(const char *call, const ignis_tensor *tensors, int count, int dim, bool stack)
{
    ignis_tensor few[IGNIS__OP_INPUTS], result;
    int used = 1, at;
    if (!ignis__enter(call) || !ignis__given(call, "tensors", tensors))
        return ignis__no_tensor();
    if (count < 1) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 1", count);
        return ignis__no_tensor();
    }
    if (count <= IGNIS__OP_INPUTS)
        return ignis__concat_few(call, tensors, count, dim, stack ? 0 : count, 0);
    few[0] = ignis__concat_few(call, tensors, IGNIS__OP_INPUTS, dim, stack ? 0 : count, 0);
    for (at = IGNIS__OP_INPUTS; at < count && few[0].id; at += used - 1) {
        for (used = 1; used < IGNIS__OP_INPUTS && at + used - 1 < count; used++)
            few[used] = tensors[at + used - 1];
        result = ignis__concat_few(call, few, used, dim, stack ? 1 : count, at - 1);
        (void)ignis_tensor_release(few[0]);
        few[0] = result;
    }
    return few[0];
}

IGNIS_API ignis_tensor ignis_concat(const ignis_tensor *tensors, int count, int dim)
{
    return ignis__concat("ignis_concat", tensors, count, dim, false);
}

IGNIS_API ignis_tensor ignis_stack(const ignis_tensor *tensors, int count, int dim)
{
    return ignis__concat("ignis_stack", tensors, count, dim, true);
}

/*  The parts of a split are parts of a tensor that nobody else sees. The first of their backwards that a walk comes to makes its gradient, zero but
    for that part; the others put theirs in. So it is whole when the split's own turn comes. */
static ignis_status ignis__split_backward(const ignis_backward_args *args)
{
    args->grad_inputs[0] = args->grad_output;
    return IGNIS_OK;
}

typedef struct ignis__part_params {
    int64_t offset, row, length, rows;
    ignis_shape whole;
} ignis__part_params;

/*  Puts the gradient of a part into that of the whole, which is made, and given, where `sum` is null. */
static ignis_status ignis__part_give(const char *call, const ignis_backward_args *args, ignis__array *sum)
{
    const ignis__part_params *p = (const ignis__part_params *)args->params;
    ignis__array *made = NULL;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, call, args))
        return ignis__failed();
    if (!sum) {
        sum = made = ignis__op_new(&op, &p->whole, op.in[0]->dtype);
        if (made)
            ignis__op_zero(&op, made);
    }
    if (sum)
        ignis__op_copy_rows(&op, sum, p->offset, p->row, op.in[0], 0, p->length, p->length, p->rows);
    return ignis__op_give(&op, args, 1, &made);
}

static ignis_status ignis__part_backward(const ignis_backward_args *args)
{
    return ignis__part_give("ignis_split", args, ignis__walk_sum(0));
}

/*  The part of an input of `size` from `start` on along dim: a view where it is in one piece, else a copy. */
static ignis__array *ignis__op_part(ignis__op *op, int dim, int64_t start, int64_t size, ignis__part_params *p)
{
    ignis_shape shape = op->in[0]->shape;
    int64_t inner = ignis__shape_product(&shape, dim + 1, shape.ndim);
    ignis__array *out;
    p->whole = shape;
    p->rows = ignis__shape_product(&shape, 0, dim);
    p->row = shape.dim[dim] * inner;
    p->offset = start * inner;
    p->length = size * inner;
    shape.dim[dim] = size;
    if (p->rows == 1)
        return ignis__op_view(op, op->in[0], &shape, p->length, p->offset);
    out = ignis__op_new(op, &shape, op->in[0]->dtype);
    if (out)
        ignis__op_copy_rows(op, out, 0, p->length, op->in[0], p->offset, p->row, p->length, p->rows);
    return out;
}

/*  A part of a split. */
static ignis_tensor ignis__part(const char *call, ignis_tensor whole, int dim, int64_t start, int64_t size)
{
    ignis__part_params p;
    ignis__op op;
    ignis__array *out;
    if (!ignis__op_begin(&op, call, 1, &whole))
        return ignis__no_tensor();
    out = ignis__op_part(&op, dim, start, size, &p);
    return ignis__op_end_recorded(&op, out, "part", ignis__part_backward, &p, sizeof p);
}

/*  Checks a split, fills in the sizes of equal parts, and gives the tensor of which the parts are made. */
static ignis_tensor ignis__split_whole(const char *call, ignis_tensor tensor, int *dim, int count, const int64_t *sizes)
{
    ignis__op op;
    ignis__array *view;
    const ignis_shape *shape;
    int64_t left; /* of the dimension */
    int i;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    shape = &op.in[0]->shape;
    left = ignis__op_dim(&op, dim, "dim") ? shape->dim[*dim] : 0;
    for (i = 0; sizes && i < count; i++)
        left = sizes[i] < 0 || sizes[i] > left ? -1 : left - sizes[i];
    if (op.ok && sizes && left != 0)
        ignis__op_fail(&op, IGNIS_DIAG_PARTS_SHAPE, "the sizes do not add up to dimension %d of %s, or one is negative", *dim,
                       ignis__shape_write(shape).text);
    else if (op.ok && !sizes && shape->dim[*dim] % count != 0)
        ignis__op_fail(&op, IGNIS_DIAG_PARTS_SHAPE, "dimension %d of %s cannot be cut into %d equal parts", *dim,
                       ignis__shape_write(shape).text, count);
    view = ignis__op_view(&op, op.in[0], shape, op.in[0]->numel, 0);
    return ignis__op_end_recorded(&op, view, "split", ignis__split_backward, NULL, 0);
}

IGNIS_API ignis_status ignis_split(ignis_tensor tensor, int dim, int count, const int64_t *sizes, ignis_tensor *parts)
{
    static const char call[] = "ignis_split";
    ignis_tensor whole;
    ignis_tensor_info info;
    int64_t start = 0, size;
    int i;
    if (!ignis__enter(call) || !ignis__given(call, "parts", parts))
        return ignis__failed();
    if (count < 1)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 1", count);
    memset(parts, 0, sizeof *parts * (size_t)count);
    whole = ignis__split_whole(call, tensor, &dim, count, sizes);
    if (!whole.id || ignis_tensor_query(whole, &info) != IGNIS_OK)
        return ignis__failed();
    for (i = 0; i < count; i++) {
        size = sizes ? sizes[i] : info.shape.dim[dim] / count;
        parts[i] = ignis__part(call, whole, dim, start, size);
        if (!parts[i].id)
            break;
        start += size;
    }
    (void)ignis_tensor_release(whole);
    if (i == count)
        return IGNIS_OK;
    while (i-- > 0) {
        (void)ignis_tensor_release(parts[i]);
        parts[i].id = 0;
    }
    return ignis__failed();
}

static ignis_status ignis__slice_backward(const ignis_backward_args *args) { return ignis__part_give("ignis_slice", args, NULL); }

IGNIS_API ignis_tensor ignis_slice(ignis_tensor tensor, int dim, int64_t start, int64_t len)
{
    const ignis_shape *shape;
    ignis__part_params p = IGNIS__ZERO;
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, "ignis_slice", 1, &tensor))
        return ignis__no_tensor();
    shape = &op.in[0]->shape;
    if (ignis__op_dim(&op, &dim, "dim") && (start < 0 || len < 0 || start > shape->dim[dim] || len > shape->dim[dim] - start))
        ignis__op_fail(&op, IGNIS_DIAG_SLICE_RANGE, "elements %lld to %lld + %lld are outside dim %d of shape %s", (long long)start,
                       (long long)start, (long long)len, dim, ignis__shape_write(shape).text);
    if (op.ok)
        out = ignis__op_part(&op, dim, start, len, &p);
    return ignis__op_end_recorded(&op, out, "slice", ignis__slice_backward, &p, sizeof p);
}

/* >>ops.shape - strided copies: slice_step, permute, flip, expand, pad --------------------------------------------------------- */

/*  to[to_offset + sum of i[d] * to[d]] = from[from_offset + sum of i[d] * from[d]] for every i below size; in elements. */
typedef struct ignis__strides {
    int rank;
    int64_t size[IGNIS_MAX_DIMS], from[IGNIS_MAX_DIMS], to[IGNIS_MAX_DIMS], from_offset, to_offset;
} ignis__strides;

/*  The parameter of the kernels: see kernels/shape.cu. */
typedef struct ignis__strided {
    int64_t size[IGNIS_MAX_DIMS], from[IGNIS_MAX_DIMS], to[IGNIS_MAX_DIMS];
    uint32_t multiplier[IGNIS_MAX_DIMS], shift[IGNIS_MAX_DIMS];
    int64_t count, step;
    int rank;
} ignis__strided;

static void ignis__shape_strides(const ignis_shape *shape, int64_t *strides)
{
    int i;
    int64_t stride = 1;
    for (i = shape->ndim - 1; i >= 0; stride *= shape->dim[i--])
        strides[i] = stride;
}

/*  For the kernel: dimensions that one stride serves are one; sorted: the largest steps of `to` first. False: there are no elements. */
static bool ignis__strides_merge(const ignis__strides *s, ignis__strided *k, bool sorted)
{
    int i, d, at;
    memset(k, 0, sizeof *k);
    for (i = 0; i < s->rank; i++) {
        if (s->size[i] == 0)
            return false;
        if (s->size[i] == 1)
            continue;
        for (at = k->rank++; sorted && at > 0 && llabs(k->to[at - 1]) < llabs(s->to[i]); at--) {
            k->size[at] = k->size[at - 1];
            k->from[at] = k->from[at - 1];
            k->to[at] = k->to[at - 1];
        }
        k->size[at] = s->size[i];
        k->from[at] = s->from[i];
        k->to[at] = s->to[i];
    }
    for (d = 0, i = 1; i < k->rank; i++) {
        if (k->from[d] == k->from[i] * k->size[i] && k->to[d] == k->to[i] * k->size[i])
            k->size[d] *= k->size[i];
        else
            k->size[++d] = k->size[i];
        k->from[d] = k->from[i];
        k->to[d] = k->to[i];
    }
    k->rank = k->rank ? d + 1 : 0;
    return true;
}

/*  Whether strides, but for that of one dimension (-1: none), are multiples of a pack. */
static bool ignis__strides_packed(const int64_t *strides, int rank, int but, int64_t pack)
{
    int i;
    for (i = 0; i < rank; i++)
        if (i != but && strides[i] % pack)
            return false;
    return true;
}

static void ignis__strided_finish(ignis__strided *k)
{
    int i;
    if (k->rank == 0)
        k->size[k->rank++] = 1;
    for (i = 0, k->count = 1; i < k->rank; i++) {
        ignis__divisor size = ignis__divisor_of(k->size[i]);
        k->count *= k->size[i];
        k->shift[i] = size.shift;
        k->multiplier[i] = size.multiplier;
    }
}

static void ignis__op_strided(ignis__op *op, ignis__array *to, ignis__array *from, const ignis__strides *s)
{
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, to);
    ignis__strided k;
    int64_t pack = from ? ignis__pack_elements(from->dtype) : 1, rows, columns, src_row, dst_row, edge, blocks;
    int last, x, packs, gathers;
    void *params[] = {&target, &source, &k, &packs, &gathers},
         *tiles[] = {&target, &source, &k, &rows, &columns, &src_row, &dst_row, &packs};
    if (!op->ok || !ignis__strides_merge(s, &k, true))
        return;
    source += (uint64_t)s->from_offset * (uint64_t)ignis__dtypes[from->dtype].size;
    target += (uint64_t)s->to_offset * (uint64_t)ignis__dtypes[from->dtype].size;
    last = k.rank - 1;
    for (x = 0; x < last; x++)
        if (k.from[x] == 1 && k.size[x] >= 16 && k.size[last] >= 16 && k.to[last] == 1)
            break;
    if (x < last) { /* contiguous along one dimension here, along another there */
        edge = ignis__dtypes[from->dtype].size <= 4 ? 64 : 32;
        rows = k.size[last];
        src_row = k.from[last];
        columns = k.size[x];
        dst_row = k.to[x];
        for (k.rank = last - 1; x < k.rank; x++) {
            k.size[x] = k.size[x + 1];
            k.from[x] = k.from[x + 1];
            k.to[x] = k.to[x + 1];
        }
        packs = (source | target) % 16 == 0 && (rows | columns | src_row | dst_row) % pack == 0 &&
                ignis__strides_packed(k.from, k.rank, -1, pack) && ignis__strides_packed(k.to, k.rank, -1, pack);
        if (k.rank == 0)
            k.from[0] = k.to[0] = 0;
        ignis__strided_finish(&k);
        blocks = k.count * ignis__ceil_div(rows, edge) * ignis__ceil_div(columns, edge);
        ignis__op_launch_row(op, IGNIS__BUILTIN_STRIDED_TILES, from->dtype, ignis__clamp(blocks, 1, INT32_MAX), 256, tiles);
        return;
    }
    packs = last >= 0 && k.to[last] == 1 && k.size[last] % pack == 0 && target % 16 == 0 && ignis__strides_packed(k.to, k.rank, last, pack);
    gathers = !packs || k.from[last] != 1 || source % 16 != 0 || !ignis__strides_packed(k.from, k.rank, last, pack);
    if (packs) {
        k.step = k.from[last];
        k.size[last] /= pack;
        k.from[last] *= pack;
        k.to[last] *= pack;
    }
    ignis__strided_finish(&k);
    ignis__op_launch_row(op, IGNIS__BUILTIN_STRIDED_COPY, from->dtype, ignis__ceil_div(k.count, 1024), 256, params);
}

/*  Operations that are one strided copy, each element being copied once at most: their gradient is the same copy backwards. */
typedef struct ignis__strided_params {
    const char *call;
    ignis_shape shape; /* of the input */
    ignis__strides back;
    bool whole; /* every element of the input is copied */
} ignis__strided_params;

static ignis_status ignis__strided_backward(const ignis_backward_args *args)
{
    const ignis__strided_params *p = (const ignis__strided_params *)args->params;
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, p->call, args))
        return ignis__failed();
    gradient = ignis__op_new(&op, &p->shape, op.in[0]->dtype);
    if (gradient && !p->whole)
        ignis__op_zero(&op, gradient);
    ignis__op_strided(&op, gradient, op.in[0], &p->back);
    return ignis__op_give(&op, args, 1, &gradient);
}

/*  Begins such an operation: strides are those of an input that is copied as it is. */
static bool ignis__strided_begin(ignis__op *op, const char *call, ignis_tensor tensor, ignis__strides *s)
{
    memset(s, 0, sizeof *s);
    if (!ignis__op_begin(op, call, 1, &tensor))
        return false;
    s->rank = op->in[0]->shape.ndim;
    memcpy(s->size, op->in[0]->shape.dim, sizeof s->size);
    ignis__shape_strides(&op->in[0]->shape, s->from);
    return true;
}

/*  Ends it. Strides of `to` that are 0 become those of the whole output. Where a fill is given, the copy goes into the midst of it. */
static ignis_tensor ignis__strided_end(ignis__op *op, const char *name, const ignis_shape *shape, ignis__strides *s, const double *fill)
{
    ignis__array *out = ignis__op_new(op, shape, op->in[0]->dtype);
    ignis__strided_params p = IGNIS__ZERO;
    int64_t numel = 1;
    int i;
    if (out) {
        ignis__shape_strides(shape, s->to);
        for (i = 0; i < s->rank; i++)
            numel *= s->size[i];
        if (fill && numel != out->numel)
            ignis__op_fill(op, out, *fill);
        ignis__op_strided(op, out, op->in[0], s);
        p.call = op->work.call;
        p.shape = op->in[0]->shape;
        p.whole = numel == op->in[0]->numel;
        p.back = *s;
        memcpy(p.back.from, s->to, sizeof s->to);
        memcpy(p.back.to, s->from, sizeof s->from);
        p.back.from_offset = s->to_offset;
        p.back.to_offset = s->from_offset;
    }
    return ignis__op_end_recorded(op, out, name, ignis__strided_backward, &p, sizeof p);
}

/*  Every step-th element of the dimension, from `start` on, which has to lie inside. */
static void ignis__strides_step(ignis__strides *s, int dim, int64_t start, int64_t len, int64_t step)
{
    s->from_offset += start * s->from[dim];
    s->from[dim] *= len > 1 ? step : 1;
    s->size[dim] = len;
}

IGNIS_API ignis_tensor ignis_slice_step(ignis_tensor tensor, int dim, int64_t start, int64_t len, int64_t step)
{
    ignis__strides s;
    ignis_shape shape;
    ignis__op op;
    int64_t room; /* elements from start on */
    if (!ignis__strided_begin(&op, "ignis_slice_step", tensor, &s))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    if (step == 0)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "step is 0");
    if (ignis__op_dim(&op, &dim, "dim")) {
        room = start < 0 || start >= shape.dim[dim] ? 0 : 1 + (step > 0 ? (shape.dim[dim] - 1 - start) / step : -(start / step));
        if (start < 0 || start > shape.dim[dim] || len < 0 || len > room)
            ignis__op_fail(&op, IGNIS_DIAG_SLICE_RANGE, "%lld elements from %lld on in steps of %lld are outside dim %d of shape %s",
                           (long long)len, (long long)start, (long long)step, dim, ignis__shape_write(&shape).text);
    }
    if (op.ok) {
        shape.dim[dim] = len;
        ignis__strides_step(&s, dim, len ? start : 0, len, step);
    }
    return ignis__strided_end(&op, "slice_step", &shape, &s, NULL);
}

/*  Dimension i of count is one of the tensor's, which the dims before it do not have. */
static bool ignis__op_dim_once(ignis__op *op, const int *dims, int i, int *dim, unsigned *seen)
{
    *dim = dims[i];
    if (!ignis__op_dim(op, dim, "a dimension"))
        return false;
    if (*seen >> *dim & 1)
        return ignis__op_fail(op, IGNIS_DIAG_DIM_RANGE, "dimension %d of %s is given twice", *dim,
                              ignis__shape_write(&op->in[0]->shape).text);
    *seen |= 1u << *dim;
    return true;
}

IGNIS_API ignis_tensor ignis_permute(ignis_tensor tensor, const int *dims, int count)
{
    ignis__strides s, given;
    ignis_shape shape;
    ignis__op op;
    unsigned seen = 0;
    int i, dim;
    if (!ignis__strided_begin(&op, "ignis_permute", tensor, &s))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    given = s;
    if (!dims)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "dims is null");
    else if (count != shape.ndim)
        ignis__op_fail(&op, IGNIS_DIAG_COUNT_MISMATCH, "dims has %d dimensions, the tensor is %s", count, ignis__shape_write(&shape).text);
    for (i = 0; op.ok && i < count && ignis__op_dim_once(&op, dims, i, &dim, &seen); i++) {
        shape.dim[i] = s.size[i] = given.size[dim];
        s.from[i] = given.from[dim];
    }
    return ignis__strided_end(&op, "permute", &shape, &s, NULL);
}

IGNIS_API ignis_tensor ignis_flip(ignis_tensor tensor, const int *dims, int count)
{
    ignis__strides s;
    ignis_shape shape;
    ignis__op op;
    unsigned seen = 0;
    int i, dim;
    if (!ignis__strided_begin(&op, "ignis_flip", tensor, &s))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    if (!dims)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "dims is null");
    else if (count < 0)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "count is %d, below 0", count);
    for (i = 0; op.ok && i < count && ignis__op_dim_once(&op, dims, i, &dim, &seen); i++)
        if (s.size[dim] > 0)
            ignis__strides_step(&s, dim, s.size[dim] - 1, s.size[dim], -1);
    return ignis__strided_end(&op, "flip", &shape, &s, NULL);
}

IGNIS_API ignis_tensor ignis_pad(ignis_tensor tensor, const int64_t *before, const int64_t *after, int count, double value)
{
    ignis__strides s;
    ignis_shape shape;
    ignis__op op;
    int64_t strides[IGNIS_MAX_DIMS];
    int i;
    if (!ignis__strided_begin(&op, "ignis_pad", tensor, &s))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    if (count != shape.ndim)
        ignis__op_fail(&op, IGNIS_DIAG_COUNT_MISMATCH, "count is %d, the tensor is %s", count, ignis__shape_write(&shape).text);
    for (i = 0; op.ok && i < count; i++) {
        int64_t low = before ? before[i] : 0, high = after ? after[i] : 0;
        if (low < 0 || high < 0)
            ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "dimension %d is padded by %lld and %lld; ignis_slice makes it shorter", i,
                           (long long)low, (long long)high);
        else if (low > INT64_MAX - shape.dim[i] || high > INT64_MAX - shape.dim[i] - low)
            ignis__op_fail(&op, IGNIS_DIAG_SHAPE_OVERFLOW, "dimension %d of %s, padded by %lld and %lld, is more than 63 bits can count", i,
                           ignis__shape_write(&op.in[0]->shape).text, (long long)low, (long long)high);
        else
            shape.dim[i] += low + high;
    }
    op.ok = op.ok && ignis__shape_check(op.work.call, &shape, op.in[0]->dtype, &strides[0]);
    if (op.ok)
        ignis__shape_strides(&shape, strides);
    for (i = 0; op.ok && before && i < count; i++)
        s.to_offset += before[i] * strides[i];
    return ignis__strided_end(&op, "pad", &shape, &s, &value);
}

/*  Strides of a shape that spreads over another one, as in NumPy: 0 where it is repeated. -1 in `out` becomes what the shape has there. */
static bool ignis__expand_strides(ignis__op *op, const ignis_shape *shape, ignis_shape *out, ignis__strides *s)
{
    int64_t strides[IGNIS_MAX_DIMS];
    bool fits = out->ndim >= shape->ndim && out->ndim <= IGNIS_MAX_DIMS;
    int i, lacking = fits ? out->ndim - shape->ndim : 0;
    memset(s, 0, sizeof *s);
    if (out->ndim < 1 || out->ndim > IGNIS_MAX_DIMS)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_RANK, "shape has %d dimensions, not 1 to %d", out->ndim, IGNIS_MAX_DIMS);
    s->rank = out->ndim;
    ignis__shape_strides(shape, strides);
    for (i = 0; fits && i < out->ndim; i++) {
        int64_t of_shape = i < lacking ? 1 : shape->dim[i - lacking];
        if (out->dim[i] == -1 && i >= lacking)
            out->dim[i] = of_shape;
        fits = out->dim[i] == of_shape || (of_shape == 1 && out->dim[i] >= 0);
        s->from[i] = out->dim[i] != of_shape || i < lacking ? 0 : strides[i - lacking];
        s->size[i] = out->dim[i];
    }
    if (!fits)
        return ignis__op_fail(op, IGNIS_DIAG_SPREAD_SHAPE, "%s does not spread over %s", ignis__shape_write(shape).text,
                              ignis__shape_write(out).text);
    return true;
}

static ignis_status ignis__expand_backward(const ignis_backward_args *args)
{
    const ignis_shape *shapes = (const ignis_shape *)args->params; /* before and after */
    ignis__array *gradient, *from, *sorted = NULL;
    ignis__strides s, moved;
    ignis__spread spread = {1, 1, 1};
    ignis_shape out = shapes[1];
    ignis__op op;
    int i, phase;
    if (!ignis__op_begin_backward(&op, "ignis_expand", args))
        return ignis__failed();
    from = op.in[0];
    gradient = ignis__op_new(&op, &shapes[0], from->dtype);
    if (gradient && !ignis__spread_find(&out, &shapes[0], &spread) && ignis__expand_strides(&op, &shapes[0], &out, &s)) {
        /* what is summed lies in several places: it is put in front first, so that there is one sum, rounded once */
        spread.outer = spread.n = spread.inner = 1;
        memset(&moved, 0, sizeof moved);
        for (phase = 0; phase < 2; phase++)
            for (i = 0; i < s.rank; i++)
                if ((s.from[i] == 0 && s.size[i] != 1) == (phase == 0)) {
                    moved.size[moved.rank] = s.size[i];
                    moved.from[moved.rank++] = ignis__shape_product(&out, i + 1, s.rank);
                    *(phase ? &spread.inner : &spread.n) *= s.size[i];
                }
        for (i = 0; i < moved.rank; i++)
            out.dim[i] = moved.size[i];
        ignis__shape_strides(&out, moved.to);
        from = sorted = ignis__op_new(&op, &out, gradient->dtype);
        ignis__op_strided(&op, sorted, op.in[0], &moved);
    }
    if (gradient)
        ignis__op_sum(&op, gradient, from, NULL, 1, &spread);
    return ignis__op_give(&op, args, 1, &gradient);
}

IGNIS_API ignis_tensor ignis_expand(ignis_tensor tensor, ignis_shape shape)
{
    ignis__strides s;
    ignis__op op;
    ignis__array *out = NULL;
    ignis_shape shapes[2];
    if (!ignis__op_begin(&op, "ignis_expand", 1, &tensor))
        return ignis__no_tensor();
    shapes[0] = op.in[0]->shape;
    if (ignis__expand_strides(&op, &shapes[0], &shape, &s)) {
        out = ignis__op_new(&op, &shape, op.in[0]->dtype);
        if (out)
            ignis__shape_strides(&shape, s.to);
        ignis__op_strided(&op, out, op.in[0], &s);
    }
    shapes[1] = shape;
    return ignis__op_end_recorded(&op, out, "expand", ignis__expand_backward, shapes, sizeof shapes);
}

/* >>ops.shape - triangles ---------------------------------------------------------------------------------------------------------- */

typedef struct ignis__band {
    int64_t low, high; /* what is kept of column - row */
} ignis__band;

static ignis__array *ignis__op_band(ignis__op *op, ignis__array *from, const ignis__band *given)
{
    ignis__band band = *given;
    ignis__array *out = ignis__op_new_like(op, from);
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, out);
    const int64_t *dims = from->shape.dim + from->shape.ndim - 2;
    int64_t rows = dims[0], columns = dims[1];
    void *params[] = {&target, &source, &rows, &columns, &band.low, &band.high, &from->numel};
    ignis__op_map(op, IGNIS__BUILTIN_BAND, from->dtype, from->numel, params);
    return out;
}

static ignis_status ignis__band_backward(const ignis_backward_args *args)
{
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_tril", args))
        return ignis__failed();
    return ignis__op_give_one(&op, args, ignis__op_band(&op, op.in[0], (const ignis__band *)args->params));
}

static ignis_tensor ignis__band_op(const char *call, const char *name, ignis_tensor tensor, int64_t low, int64_t high)
{
    ignis__band band = {low, high};
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    if (op.in[0]->shape.ndim < 2)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_RANK, "the tensor is %s; two dimensions or more are needed",
                       ignis__shape_write(&op.in[0]->shape).text);
    if (op.ok)
        out = ignis__op_band(&op, op.in[0], &band);
    return ignis__op_end_recorded(&op, out, name, ignis__band_backward, &band, sizeof band);
}

IGNIS_API ignis_tensor ignis_tril(ignis_tensor tensor, int64_t diagonal)
{
    return ignis__band_op("ignis_tril", "tril", tensor, INT64_MIN, diagonal);
}

IGNIS_API ignis_tensor ignis_triu(ignis_tensor tensor, int64_t diagonal)
{
    return ignis__band_op("ignis_triu", "triu", tensor, diagonal, INT64_MAX);
}

/* >>ops.matmul - linear: x w^T + bias, the bias inside the product --------------------------------------------------------- */

/*  The gradients of y = x w^T + bias, those that are not null: dx = g w, by the epilogue; dw = g^T x; and db, the sum of g over its rows, inside
    the latter product where it can be. */
static void ignis__linear_gradients(ignis__op *op, const ignis__product *forward, ignis__array *g, ignis__array *x, ignis__array *w,
                                    ignis__array *dx, const ignis__epilogue *epilogue, ignis__array *dw, ignis__array *db)
{
    ignis__product of_x = ignis__matmul_product_a(forward), of_w = ignis__matmul_product_b(forward);
    ignis__epilogue sums = IGNIS__ZERO;
    ignis__spread rows = {1, forward->m, forward->n};
    ignis__gemm_held held;
    bool summed = false;
    if (!op->ok)
        return;
    ignis__gemm_join(op, &held);
    if (dx)
        ignis__matmul_run(op, &of_x, dx, g, w, epilogue);
    sums.row_sums = db;
    if (dw)
        summed = ignis__matmul_run(op, &of_w, dw, g, x, &sums);
    ignis__gemm_join_end(op);
    if (db && !summed)
        ignis__op_sum(op, db, g, NULL, 1.0, &rows);
}

/*  The gradient of a bias, an input, where g goes to the product. Null: it is given already, as whoever made g has left the sums of its columns. */
static ignis__array *ignis__bias_gradient(ignis__op *op, const ignis_backward_args *args, int input, const ignis__array *g, int64_t n)
{
    ignis_array known = IGNIS__ZERO;
    if (op->ok)
        known = ignis__walk_sums_take(g, n);
    if (known.id)
        args->grad_inputs[input] = known;
    return known.id ? NULL : ignis__op_new_row(op, n, g->dtype);
}

static ignis_status ignis__linear_backward(const ignis_backward_args *args)
{
    const ignis__product *p = (const ignis__product *)args->params;
    ignis__array *gradients[3] = {NULL, NULL, NULL};
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__op op;
    epilogue.residual = args->needed[0] ? ignis__walk_sum(0) : NULL; /* x may have a gradient from another layer by now */
    if (!ignis__op_begin_backward(&op, "ignis_linear", args))
        return ignis__failed();
    if (args->needed[0])
        gradients[0] = ignis__op_new_like(&op, op.in[1]);
    if (args->needed[1])
        gradients[1] = ignis__op_new_like(&op, op.in[2]);
    if (args->input_count > 2 && args->needed[2])
        gradients[2] = ignis__bias_gradient(&op, args, 2, op.in[0], p->n);
    ignis__linear_gradients(&op, p, op.in[0], op.in[1], op.in[2], gradients[0], &epilogue, gradients[1], gradients[2]);
    if (epilogue.residual)
        ignis__walk_sum_taken(0);
    return ignis__op_give(&op, args, args->input_count, gradients);
}

IGNIS_API ignis_tensor ignis_linear(ignis_tensor x, ignis_tensor w, ignis_tensor bias)
{
    ignis_tensor inputs[] = {x, w, bias};
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__product product;
    ignis__array *out = NULL;
    ignis_shape shape;
    ignis__op op;
    int count = bias.id ? 3 : 2;
    if (!ignis__op_begin(&op, "ignis_linear", count, inputs))
        return ignis__no_tensor();
    if (ignis__op_is_float(&op, 0, "x") && ignis__op_same_dtype(&op, 1, "w") && (count == 2 || ignis__op_same_dtype(&op, 2, "bias"))) {
        if (op.in[1]->shape.ndim != 2)
            ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "w is %s; [out, in] is needed", ignis__shape_write(&op.in[1]->shape).text);
        else if (ignis__matmul_shapes(&op, 1, &product, &shape) && count == 3 && op.in[2]->numel != product.n)
            ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "bias is %s; w %s needs [%lld]", ignis__shape_write(&op.in[2]->shape).text,
                           ignis__shape_write(&op.in[1]->shape).text, (long long)product.n);
    }
    if (op.ok) {
        out = ignis__op_new(&op, &shape, op.in[0]->dtype);
        epilogue.bias = count == 3 ? op.in[2] : NULL;
        ignis__matmul_run(&op, &product, out, op.in[0], op.in[1], &epilogue);
    }
    ignis__op_save_inputs(&op, 0, 2);
    return ignis__op_end_recorded(&op, out, "linear", ignis__linear_backward, &product, sizeof product);
}

/* >>ops.matmul - mlp: linear layers one behind the other, with all that is between them inside the products ------------------- */

typedef struct ignis__mlp {
    int count, activation;
    int bias[IGNIS_MAX_LAYERS];             /* the places of the biases among the inputs, which are x, the weights, the biases; 0: none */
    ignis__product layer[IGNIS_MAX_LAYERS]; /* the tape keeps as many as there are */
} ignis__mlp;

/*  From the last layer to the lowest that has something to give; ahead is the gradient of what goes into a layer, or of the product before. */
static ignis_status ignis__mlp_backward(const ignis_backward_args *args)
{
    const ignis__mlp *p = (const ignis__mlp *)args->params;
    enum { GRAD, X, WEIGHTS };
    const int hidden = WEIGHTS + p->count, pre = p->activation == IGNIS_ACTIVATION_RELU ? hidden : hidden + p->count - 1;
    ignis__array *gradients[IGNIS__OP_INPUTS] = {NULL}, *g, *db, *ahead;
    ignis__epilogue epilogue;
    ignis__product below;
    ignis__op op;
    int l = p->count - 1, lowest = 0, bias;
    if (!ignis__op_begin_backward(&op, "ignis_mlp", args))
        return ignis__failed();
    while (!args->needed[0] && lowest < l && !args->needed[1 + lowest] && !(p->bias[lowest] && args->needed[p->bias[lowest]]))
        lowest++;
    for (g = op.in[GRAD]; op.ok && l >= lowest; l--, g = ahead) {
        memset(&epilogue, 0, sizeof epilogue);
        db = ahead = NULL;
        bias = p->bias[l];
        if (bias && args->needed[bias] && !gradients[bias])
            db = gradients[bias] = ignis__bias_gradient(&op, args, bias, g, p->layer[l].n);
        if (args->needed[1 + l])
            gradients[1 + l] = ignis__op_new_like(&op, op.in[WEIGHTS + l]);
        if (l == 0 && args->needed[0])
            gradients[0] = ahead = ignis__op_new_like(&op, op.in[X]);
        if (l > lowest) {
            ahead = ignis__op_new_like(&op, op.in[hidden + l - 1]);
            epilogue.activation = p->activation;
            epilogue.gradient = true;
            epilogue.pre = op.in[pre + l - 1];
            bias = p->bias[l - 1];
            below = ignis__matmul_product_b(&p->layer[l - 1]);
            if (bias && args->needed[bias] && !(args->needed[l] && ignis__gemm_is_tiny(&op, &below))) /* whose row sums cost nothing */
                epilogue.column_sums = gradients[bias] = ignis__op_new_row(&op, p->layer[l - 1].n, g->dtype);
            if (op.ok && epilogue.column_sums && ahead->numel == 0)
                ignis__op_zero(&op, epilogue.column_sums);
        }
        ignis__linear_gradients(&op, &p->layer[l], g, l ? op.in[hidden + l - 1] : op.in[X], op.in[WEIGHTS + l], ahead, &epilogue,
                                gradients[1 + l], db);
    }
    return ignis__op_give(&op, args, args->input_count, gradients);
}

/*  Checks the inputs, and describes all products. of_two: messages have the names of ignis_mlp. *shape: of all results, but for its last
    dimension. */
static bool ignis__mlp_shapes(ignis__op *op, ignis__mlp *p, bool of_two, ignis_shape *shape)
{
    char w_name[24], b_name[24];
    int l;
    if (!ignis__op_is_float(op, 0, "x"))
        return false;
    for (l = 0; l < p->count; l++) {
        const ignis_shape *w = &op->in[1 + l]->shape;
        const ignis__array *bias = p->bias[l] ? op->in[p->bias[l]] : NULL;
        snprintf(w_name, sizeof w_name, of_two ? "w%d" : "weights[%d]", l + of_two);
        snprintf(b_name, sizeof b_name, of_two ? "b%d" : "biases[%d]", l + of_two);
        if (!ignis__op_same_dtype(op, 1 + l, w_name) || (bias && !ignis__op_same_dtype(op, p->bias[l], b_name)))
            return false;
        if (l == 0 && w->ndim != 2)
            return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "%s is %s; [out, in] is needed", w_name, ignis__shape_write(w).text);
        if (l == 0 && !ignis__matmul_shapes(op, 1, &p->layer[0], shape))
            return false;
        if (l > 0 && (w->ndim != 2 || w->dim[1] != p->layer[l - 1].n))
            return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "%s is %s; [out, %lld] is needed", w_name, ignis__shape_write(w).text,
                                  (long long)p->layer[l - 1].n);
        if (l > 0)
            p->layer[l] = ignis__product_of(op->in[0]->dtype, p->layer[0].m, w->dim[0], w->dim[1], 1);
        if (bias && bias->numel != p->layer[l].n)
            return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "%s is %s; [%lld] is needed", b_name, ignis__shape_write(&bias->shape).text,
                                  (long long)p->layer[l].n);
    }
    return true;
}

/*  biases: null, or one for each layer, without a handle for none. */
static ignis_tensor ignis__mlp_op(const char *call, bool of_two, ignis_tensor x, const ignis_tensor *weights, const ignis_tensor *biases,
                                  int count, ignis_activation activation)
{
    ignis_tensor inputs[IGNIS__OP_INPUTS] = IGNIS__ZERO;
    ignis__array *out[IGNIS_MAX_LAYERS] = {NULL}, *pre[IGNIS_MAX_LAYERS] = {NULL};
    ignis__epilogue epilogue;
    ignis__mlp p = IGNIS__ZERO;
    ignis_shape shape;
    ignis__op op;
    int used = 1 + count, l;
    p.count = count;
    p.activation = (int)activation;
    inputs[0] = x;
    memcpy(inputs + 1, weights, sizeof *weights * (size_t)count);
    for (l = 0; l < count; l++)
        if (biases && biases[l].id)
            inputs[p.bias[l] = used++] = biases[l];
    if (!ignis__op_begin(&op, call, used, inputs))
        return ignis__no_tensor();
    if (activation != IGNIS_ACTIVATION_RELU && activation != IGNIS_ACTIVATION_GELU)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_ENUM, "activation is %d; it is IGNIS_ACTIVATION_RELU or _GELU", (int)activation);
    else
        ignis__mlp_shapes(&op, &p, of_two, &shape);
    for (l = 0; op.ok && l < count; l++) {
        shape.dim[shape.ndim - 1] = p.layer[l].n;
        out[l] = ignis__op_new(&op, &shape, op.in[0]->dtype);
        memset(&epilogue, 0, sizeof epilogue);
        epilogue.bias = p.bias[l] ? op.in[p.bias[l]] : NULL;
        if (l < count - 1) {
            epilogue.activation = p.activation;
            if (op.records && activation != IGNIS_ACTIVATION_RELU) /* its gradient sees in the result what it needs */
                epilogue.pre = pre[l] = ignis__op_new(&op, &shape, op.in[0]->dtype);
        }
        ignis__matmul_run(&op, &p.layer[l], out[l], l ? out[l - 1] : op.in[0], op.in[1 + l], &epilogue);
    }
    if (op.records && op.ok) {
        ignis__op_save_inputs(&op, 0, 1 + count);
        for (l = 0; l < count - 1; l++)
            ignis__op_save(&op, out[l]);
        for (l = 0; l < count - 1; l++)
            ignis__op_save(&op, pre[l]);
    }
    return ignis__op_end_recorded(&op, out[count - 1], "mlp", ignis__mlp_backward, &p,
                                  offsetof(ignis__mlp, layer) + sizeof p.layer[0] * (size_t)count);
}

IGNIS_API ignis_tensor ignis_mlp(ignis_tensor x, ignis_tensor w1, ignis_tensor b1, ignis_tensor w2, ignis_tensor b2,
                                 ignis_activation activation)
{
    ignis_tensor weights[] = {w1, w2}, biases[] = {b1, b2};
    return ignis__mlp_op("ignis_mlp", true, x, weights, biases, 2, activation);
}

IGNIS_API ignis_tensor ignis_mlp_layers(ignis_tensor x, const ignis_tensor *weights, const ignis_tensor *biases, int count,
                                        ignis_activation activation)
{
    static const char call[] = "ignis_mlp_layers";
    if (!ignis__enter(call) || !ignis__given(call, "weights", weights))
        return ignis__no_tensor();
    if (count < 1 || count > IGNIS_MAX_LAYERS) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, outside 1 to %d", count, IGNIS_MAX_LAYERS);
        return ignis__no_tensor();
    }
    return ignis__mlp_op(call, false, x, weights, biases, count, activation);
}

/* >>ops.matmul - gated layers, whose gate and what is times it stand in one array -------------------------------------------- */

typedef struct ignis__mlp_gated {
    ignis__product up, down; /* that of the gate is as up */
} ignis__mlp_gated;

static ignis_status ignis__mlp_gated_backward(const ignis_backward_args *args)
{
    const ignis__mlp_gated *p = (const ignis__mlp_gated *)args->params;
    enum { GRAD, X, GATE, UP, DOWN, HIDDEN, BOTH }; /* what is saved */
    const ignis_shape shape = IGNIS_SHAPE(p->up.m, p->up.n);
    ignis__array *gradients[4] = {NULL}, *both = NULL, *of, *dx[2] = {NULL, NULL};
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__op op;
    int i;
    if (!ignis__op_begin_backward(&op, "ignis_mlp_gated", args))
        return ignis__failed();
    for (i = 1; i < 4; i++)
        if (args->needed[i])
            gradients[i] = ignis__op_new_like(&op, op.in[X + i]);
    if (args->needed[0] || args->needed[1] || args->needed[2])
        both = ignis__op_new_like(&op, op.in[BOTH]);
    epilogue.activation = IGNIS__ACTIVATION_GATED;
    epilogue.gradient = true;
    epilogue.pre = op.in[BOTH];
    ignis__linear_gradients(&op, &p->down, op.in[GRAD], op.in[HIDDEN], op.in[DOWN], both, &epilogue, gradients[3], NULL);
    memset(&epilogue, 0, sizeof epilogue);
    for (i = 0; both && i < 2; i++) { /* of the gate, of up */
        of = ignis__op_view(&op, both, &shape, p->up.m * p->up.n, i * p->up.m * p->up.n);
        epilogue.residual = dx[0];
        if (args->needed[0])
            dx[i] = ignis__op_new_like(&op, op.in[X]);
        ignis__linear_gradients(&op, &p->up, of, op.in[X], op.in[GATE + i], dx[i], &epilogue, gradients[1 + i], NULL);
    }
    gradients[0] = dx[1];
    return ignis__op_give(&op, args, 4, gradients);
}

IGNIS_API ignis_tensor ignis_mlp_gated(ignis_tensor x, ignis_tensor w_gate, ignis_tensor w_up, ignis_tensor w_down)
{
    enum { X, GATE, UP, DOWN, INPUTS };
    ignis_tensor inputs[] = {x, w_gate, w_up, w_down};
    ignis__array *out = NULL, *hidden = NULL, *both = NULL, *first;
    ignis__epilogue epilogue = IGNIS__ZERO;
    const ignis_shape *gate, *up, *down;
    ignis__mlp_gated p = IGNIS__ZERO;
    ignis_shape shape, pair;
    ignis__op op;
    if (!ignis__op_begin(&op, "ignis_mlp_gated", INPUTS, inputs))
        return ignis__no_tensor();
    gate = &op.in[GATE]->shape, up = &op.in[UP]->shape, down = &op.in[DOWN]->shape;
    if (ignis__op_is_float(&op, X, "x") && ignis__op_same_dtype(&op, GATE, "w_gate") && ignis__op_same_dtype(&op, UP, "w_up") &&
        ignis__op_same_dtype(&op, DOWN, "w_down")) {
        if (gate->ndim != 2)
            ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "w_gate is %s; [hidden, in] is needed", ignis__shape_write(gate).text);
        else if (ignis__matmul_shapes(&op, 1, &p.up, &shape) && !ignis__shape_same(gate, up))
            ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "w_up is %s; that of w_gate is needed, %s", ignis__shape_write(up).text,
                           ignis__shape_write(gate).text);
        else if (op.ok && (down->ndim != 2 || down->dim[1] != p.up.n))
            ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "w_down is %s; [out, %lld] is needed", ignis__shape_write(down).text,
                           (long long)p.up.n);
    }
    if (op.ok) {
        p.down = ignis__product_of(op.in[X]->dtype, p.up.m, down->dim[0], p.up.n, 1);
        hidden = ignis__op_new(&op, &shape, op.in[X]->dtype);
        shape.dim[shape.ndim - 1] = p.down.n;
        out = ignis__op_new(&op, &shape, op.in[X]->dtype);
        pair = IGNIS_SHAPE(op.records ? 2 : 1, p.up.m, p.up.n);
        both = ignis__op_new(&op, &pair, op.in[X]->dtype);
    }
    if (op.ok) {
        pair = IGNIS_SHAPE(p.up.m, p.up.n);
        first = ignis__op_view(&op, both, &pair, p.up.m * p.up.n, 0);
        ignis__matmul_run(&op, &p.up, first, op.in[X], op.in[GATE], NULL);
        epilogue.activation = IGNIS__ACTIVATION_GATED;
        epilogue.pre = both;
        epilogue.keeps = op.records;
        ignis__matmul_run(&op, &p.up, hidden, op.in[X], op.in[UP], &epilogue);
        ignis__matmul_run(&op, &p.down, out, hidden, op.in[DOWN], NULL);
    }
    ignis__op_save_inputs(&op, 0, INPUTS);
    ignis__op_save(&op, hidden);
    ignis__op_save(&op, both);
    return ignis__op_end_recorded(&op, out, "mlp_gated", ignis__mlp_gated_backward, &p, sizeof p);
}

/* --- operations on rows: how their kernels are launched ------------------------------------------------------------------------- */

/*  The tensor as rows of its last dimension. */
IGNIS__ONE_COPY static bool ignis__op_rows(ignis__op *op, const ignis__array *array, int64_t *rows, int64_t *n)
{
    *n = array->shape.dim[array->shape.ndim - 1];
    *rows = *n ? array->numel / *n : 0;
    if (*n >= (int64_t)1 << 30)
        ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "the last dimension has %lld elements, 2^30 or more", (long long)*n);
    return op->ok;
}

/*  Rows shared out as by ignis_row in kernels/ignis.cuh: a warp has 4 packs a lane, or without packs a block 8 elements a thread. */
#define IGNIS__ROW_PACKS 4
#define IGNIS__ROW_ELEMENTS 8
#define IGNIS__ROW_BLOCKS ((int64_t)1 << 30) /* which take turns, where there are more rows */

typedef struct ignis__rows {
    bool warp;        /* a warp has a row in registers; else a block has it, in one or more rounds */
    int packed, kept; /* the kernels' parameters */
    unsigned threads;
    int64_t blocks;
    size_t shared;
} ignis__rows;

/*  What a thread of a block has in a round. */
static int64_t ignis__row_share(ignis_dtype dtype, bool packed)
{
    return packed ? IGNIS__ROW_PACKS * ignis__pack_elements(dtype) : IGNIS__ROW_ELEMENTS;
}

static unsigned ignis__row_threads(int64_t n, int64_t share, unsigned most)
{
    return (unsigned)ignis__clamp(ignis__ceil_div(ignis__ceil_div(n, share), 32) * 32, 32, (int64_t)most);
}

/*  For kernels that walk over `arrays` arrays to and fro; 0: there is nothing to keep. So many blocks, 1 or 2, are to fit on a multiprocessor. */
static ignis__rows ignis__rows_plan(const ignis__op *op, ignis_dtype dtype, int64_t rows, int64_t n, bool packed, int arrays, int blocks)
{
    ignis__rows plan = IGNIS__ZERO;
    int64_t share = ignis__row_share(dtype, packed), rounds, round_bytes, room = op->work.device->info.shared_per_block / blocks - 2048;
    plan.packed = packed;
    plan.warp = packed && n <= 32 * share;
    plan.threads = plan.warp ? 128 : ignis__row_threads(n, share, 512);
    plan.blocks = ignis__clamp(plan.warp ? ignis__ceil_div(rows, 4) : rows, 0, IGNIS__ROW_BLOCKS);
    if (packed && !plan.warp && arrays) {
        rounds = ignis__ceil_div(n, plan.threads * share);
        round_bytes = (int64_t)plan.threads * IGNIS__ROW_PACKS * 16 * arrays;
        plan.kept = (int)(rounds - 1 < room / round_bytes ? rounds - 1 : room / round_bytes);
        plan.shared = (size_t)(plan.kept * round_bytes);
    }
    return plan;
}

static void ignis__rows_launch(ignis__op *op, const ignis__rows *plan, ignis__builtin warp, ignis__builtin block, ignis_dtype dtype,
                               void **params)
{
    ignis__op_launch(op, plan->warp ? warp : block, dtype, NULL, plan->blocks, 1, 1, plan->threads, 1, plan->shared, params);
}

/* >>ops.conv - convolutions: products of patches ------------------------------------------------------------------------------- */

/*  A convolution along the rows or the columns of its images. */
typedef struct ignis__conv_side {
    int64_t in, out, kernel, stride, padding, dilation;
} ignis__conv_side;

/*  A convolution; channels and outs are a group's. It is patches of x, [images * out * out, kernel * kernel * channels], times weights. */
typedef struct ignis__conv {
    int64_t images, channels, outs, groups;
    ignis__conv_side side[2];
    ignis_dtype dtype;
    int sides; /* 1: of rows of points */
} ignis__conv;

/*  How a grid of pixels and the taps of its patches walk along a side of an array, as in kernels/gemm.cuh: and along the taps of the weights. */
typedef struct ignis__conv_walk {
    int64_t grid, taps, first, stride, step, weight, weight_step;
} ignis__conv_walk;

static ignis__conv_walk ignis__conv_forward_walk(const ignis__conv_side *side)
{
    ignis__conv_walk walk;
    walk.grid = side->out;
    walk.taps = side->kernel;
    walk.first = -side->padding;
    walk.stride = side->stride;
    walk.step = side->dilation;
    walk.weight = 0;
    walk.weight_step = 1;
    return walk;
}

/*  From one tap to the next one that is on the same pixels of x, from those of another patch. */
static int64_t ignis__conv_tap_step(const ignis__conv_side *side)
{
    int64_t common = side->stride, rest = side->dilation;
    while (rest) { /* greatest common divisor */
        int64_t next = common % rest;
        common = rest;
        rest = next;
    }
    return side->stride / common;
}

/*  How many phases patches meet: those of the first few taps, which differ. So as many as there are taps, however long the stride is. */
static int64_t ignis__conv_phases(const ignis__conv_side *side)
{
    int64_t step = ignis__conv_tap_step(side);
    return step < side->kernel ? step : side->kernel;
}

/*  Of the gradient: pixels phase, phase + stride ... of x are a grid whose patches are of the gradient of the result. Pixel h of x is in the patch of
    pixel (h + padding - tap * dilation) / stride of the result, where that is a whole number: for the phase of one of the first taps those are every
    few taps, and from one to the next it is by some pixels. Taps are counted from the last one on, so that pixels rise. */
static ignis__conv_walk ignis__conv_backward_walk(const ignis__conv_side *side, int64_t tap, int64_t *phase)
{
    ignis__conv_walk walk = IGNIS__ZERO;
    int64_t step = ignis__conv_tap_step(side), at = (tap * side->dilation - side->padding) % side->stride;
    *phase = at < 0 ? at + side->stride : at;
    walk.grid = *phase < side->in ? ignis__ceil_div(side->in - *phase, side->stride) : 0;
    walk.taps = ignis__ceil_div(side->kernel - tap, step);
    walk.stride = 1;
    walk.step = side->dilation / (side->stride / step);
    walk.weight = tap + (walk.taps - 1) * step;
    walk.weight_step = -step;
    walk.first = (*phase + side->padding - walk.weight * side->dilation) / side->stride;
    return walk;
}

/*  Whether there are pixels of x that no patch meets. */
static bool ignis__conv_skips(const ignis__conv_side *side)
{
    int64_t phases = ignis__conv_phases(side), tap, phase, met = 0;
    for (tap = 0; tap < phases; tap++) {
        ignis__conv_backward_walk(side, tap, &phase);
        met += phase < side->in;
    }
    return met < (side->stride < side->in ? side->stride : side->in);
}

/*  Whether a grid is one that the copy engine walks through: corners of a box of pixels are bytes, as is what taps add. */
static bool ignis__conv_takes_pixels(const ignis__conv_walk *walk, int64_t size)
{
    int64_t upper = walk->first + walk->stride * (walk->grid - 1) - (size - 1);
    return walk->first >= -128 && walk->first <= 127 && upper >= -128 && upper <= 127 && walk->stride <= 8 &&
           (walk->taps - 1) * walk->step <= 255;
}

static int64_t ignis__conv_taps(const ignis__conv *c) { return c->side[0].kernel * c->side[1].kernel; }

/*  A convolution that is a product of matrices as they are: x [rows, channels] w^T. */
static bool ignis__conv_is_product(const ignis__conv *c, ignis__product *product)
{
    int i;
    if (c->groups != 1)
        return false;
    for (i = 0; i < 2; i++)
        if (c->side[i].kernel != 1 || c->side[i].stride != 1 || c->side[i].padding != 0)
            return false;
    *product = ignis__product_of(c->dtype, c->images * c->side[0].in * c->side[1].in, c->outs, c->channels, 1);
    return true;
}

/*  Each channel of the result is that of one channel of x. */
static bool ignis__conv_is_depthwise(const ignis__conv *c) { return c->groups > 1 && c->channels == 1 && c->outs == 1; }

/*  An array of pixels, or weights, that is an operand: rows of so many channels. */
typedef struct ignis__conv_operand {
    ignis__address at;
    int64_t channels; /* as they lie there */
    int packed;       /* they are whole packs: 1: of 16 bytes, 2: of 8 */
} ignis__conv_operand;

/*  Reads two operands. For tensor cores, channels that are no packs are copied to where they are; packs of few channels are half as large. */
static void ignis__conv_operands(ignis__op *op, const ignis__conv *c, ignis__conv_operand operand[2], ignis__array *const arrays[2],
                                 const int64_t channels[2])
{
    bool tensor_cores = op->work.device->info.compute_major >= 8 && !ignis__conv_is_depthwise(c) &&
                        (c->dtype == IGNIS_F16 || c->dtype == IGNIS_BF16 || (c->dtype == IGNIS_F32 && ignis__allow_tf32));
    ignis__gemm_copy copies[2] = IGNIS__ZERO;
    int64_t none = 0;
    int i;
    for (i = 0; i < 2; i++) {
        int64_t whole = ignis__pack_elements(c->dtype), pack = 2 * channels[i] <= whole ? whole / 2 : whole;
        operand[i].at = ignis__op_read(op, arrays[i]);
        operand[i].channels = channels[i];
        if (channels[i] % pack == 0 && operand[i].at % (uint64_t)(pack * ignis__dtypes[c->dtype].size) == 0)
            operand[i].packed = (int)(whole / pack);
        else
            operand[i].packed = 0;
        if (op->ok && tensor_cores && ignis__array_bytes(arrays[i]) <= ignis__gemm_pack_limit && arrays[i]->numel > 0)
            ignis__gemm_move(op, c->dtype, &copies[i], &operand[i].at, &operand[i].channels, arrays[i]->numel / channels[i], 1, &none,
                             &operand[i].packed, pack);
    }
    if (op->ok && (copies[0].to || copies[1].to))
        ignis__gemm_copies(op, c->dtype, &copies[0], &copies[1]);
}

/*  The patches of an array of pixels with so many channels, and what wgmma would have as k. */
static void ignis__conv_patches(ignis__gemm *p, const ignis__conv *c, int of, const ignis__conv_walk walk[2], int64_t height, int64_t width,
                                const ignis__conv_operand *pixels, int64_t channels)
{
    ignis__patches *q = &p->patches;
    int64_t whole = ignis__ceil_div(channels, 64) * 64;
    int i;
    p->patches_of = of;
    p->images = c->images;
    q->rows = ignis__divisor_of(walk[0].grid);
    q->columns = ignis__divisor_of(walk[1].grid);
    q->channels = ignis__divisor_of(channels);
    q->across = ignis__divisor_of(walk[1].taps);
    q->height = (int)height;
    q->width = (int)width;
    q->pixel = c->groups * pixels->channels;
    for (i = 0; i < 2; i++) {
        q->first[i] = (int)walk[i].first;
        q->stride[i] = (int)walk[i].stride;
        q->step[i] = (int)walk[i].step;
    }
    q->weight = (int)(walk[0].weight * c->side[1].kernel + walk[1].weight);
    q->weight_step[0] = (int)(walk[0].weight_step * c->side[1].kernel);
    q->weight_step[1] = (int)walk[1].weight_step;
    p->wgmma_k = 0;
    if (c->groups == 1 && ignis__cuda.cuTensorMapEncodeIm2col && ignis__conv_takes_pixels(&walk[0], height) &&
        ignis__conv_takes_pixels(&walk[1], width) && (of == 1 || channels == whole))
        p->wgmma_k = of == 1 ? walk[0].taps * walk[1].taps * whole : p->k;
}

/*  The weights as the second operand of a product with patches. */
static void ignis__conv_weights(ignis__gemm *p, const ignis__conv *c, const ignis__conv_operand *w)
{
    p->b = w->at;
    p->batch_b = c->outs * ignis__conv_taps(c) * w->channels;
    p->weights = w->channels;
    p->patches.weight_row = ignis__conv_taps(c) * w->channels;
    p->patches.weight_channels = (int)c->outs;
    p->packed_b = w->packed;
}

/*  A depthwise convolution with the parameters of its product (kernels/depthwise.cu); sums: of the gradient of w (null: another one). Packs
    of channels go by strips of pixels, where there is such a variant: 3, 5 or 7 taps side by side. */
static void ignis__depthwise(ignis__op *op, const ignis__conv *c, ignis__gemm *p, ignis__array *sums)
{
    enum { TAPS = 9, PIXELS = 4, STRIP = 4, MOST_ACROSS = 16 }; /* of a block, or of a thread */
    const ignis__patches *q = &p->patches;
    int64_t pack = ignis__pack_elements(c->dtype), slabs, blocks, chunks, units, in_row = ignis__ceil_div(q->columns.size, STRIP);
    int64_t processors = op->work.device->info.multiprocessors, taps = q->across.size;
    bool packed = ignis__gemm_packed(c->dtype, p->a | (sums ? p->b : p->out | p->bias), c->groups, 0);
    bool by_strips = packed && (taps == 3 || taps == 5 || taps == 7) && q->step[1] == 1 && q->stride[1] <= 2 && (sums ? p->n : p->k) <= 64;
    ignis__divisor strips = ignis__divisor_of(in_row);
    char define[64];
    int across;
    void *params[] = {p, &across, &strips};
    pack = packed ? pack : 1;
    across = (int)ignis__clamp(ignis__power_of_2_up(ignis__ceil_div(c->groups, pack)), 1, MOST_ACROSS);
    slabs = ignis__ceil_div(c->groups, across * pack);
    snprintf(define, sizeof define, "-DIGNIS_TAPS=%d -DIGNIS_STRIDE=%d", (int)taps, q->stride[1]);
    ignis__request_builtin(sums ? IGNIS__BUILTIN_DEPTHWISE_WEIGHTS : IGNIS__BUILTIN_DEPTHWISE, c->dtype); /* what other addresses take */
    if (sums)
        ignis__request_builtin(IGNIS__BUILTIN_GEMM_FINISH, c->dtype);
    if (!sums) {
        units = by_strips ? p->m / q->columns.size * in_row : ignis__ceil_div(p->m, PIXELS);
        blocks = ignis__ceil_div(units, 256 / across);
        blocks = by_strips ? ignis__clamp(ignis__ceil_div(4 * processors, slabs), 1, blocks) : blocks;
        ignis__op_launch(op, packed ? IGNIS__BUILTIN_DEPTHWISE : IGNIS__BUILTIN_DEPTHWISE_ODD, c->dtype, by_strips ? define : NULL,
                         slabs * blocks, 1, 1, 256, 1, 0, params);
        return;
    }
    units = by_strips ? p->k / q->columns.size * in_row : p->k;
    chunks = by_strips ? ignis__ceil_div(p->n / taps, taps == 3 ? 3 : 1) : ignis__ceil_div(p->n, TAPS);
    blocks = (by_strips ? 2 : 4) * processors; /* of which each adds up some units a thread at least */
    p->splits = (int)ignis__clamp(blocks / (slabs * chunks), 1, ignis__ceil_div(units, 256 / across * (by_strips ? 2 : 8)));
    p->split_k = ignis__ceil_div(units, p->splits);
    p->partial = ignis__gemm_sums_room(op, sums, p->splits, c->dtype);
    ignis__op_launch(op, packed ? IGNIS__BUILTIN_DEPTHWISE_WEIGHTS : IGNIS__BUILTIN_DEPTHWISE_WEIGHTS_ODD, c->dtype,
                     by_strips ? define : NULL, slabs * chunks * p->splits, 1, 1, 256, 1, 0, params);
    ignis__gemm_sums(op, sums, p->partial, p->splits);
}

/*  Tiles of a grid, as in kernels/grouped_mma.cu. */
typedef struct ignis__conv_tiles {
    ignis__divisor across, down, columns, halo;
    int rows, halo_rows, count;
} ignis__conv_tiles;

/*  How a product by kernels/grouped_mma.cu is shared out: a slab of groups a block, of so many chunks of 8 channels. */
typedef struct ignis__grouped {
    ignis__conv_tiles tiles;
    int channels, outs, taps, slab, slabs;
    int64_t shared;
    char define[IGNIS__DEFINES];
} ignis__grouped;

static bool ignis__is_power_of_2(int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

/*  Whether a product with patches is one of groups of few channels, and how it is shared out: tiles of up to 32 columns and as many rows as
    a step of both operands in 40 KiB has room for. weights: it is the gradient of w. */
static bool ignis__grouped_plan(const ignis__conv *c, const ignis__gemm *p, bool weights, ignis__grouped *plan)
{
    enum { ROOM = 40 << 10, MOST_STEPS = 28 };
    const ignis__patches *q = &p->patches;
    ignis__conv_tiles *tiles = &plan->tiles;
    int64_t channels = q->channels.size, outs = weights ? p->m : p->n, taps = (weights ? p->n : p->k) / channels, rows = q->rows.size,
            columns = q->columns.size, tap_rows = taps / q->across.size, slab = 1, steps, out_chunks, bytes = 0, halo_columns, row, width,
            best = 0;
    bool halves = c->dtype == IGNIS_F16 || c->dtype == IGNIS_BF16;
    if (!halves || channels < 8 || outs < 8 || channels > 64 || outs > 64 || !ignis__is_power_of_2(channels) ||
        !ignis__is_power_of_2(outs) || p->packed_a != 1 || p->packed_b != 1 ||
        (weights ? p->batch_a != outs || p->batch_b != channels : p->batch_a != channels || !p->packed_out) || p->accumulate)
        return false;
    while (slab < 8 && (slab * 8 < channels || slab * 8 < p->batch * channels))
        slab *= 2;
    steps = ignis__ceil_div(taps * channels, 16);
    out_chunks = slab * outs / channels;
    if (steps * ignis__ceil_div(out_chunks, 8) > MOST_STEPS || out_chunks > 64)
        return false;
    width = ignis__ceil_div(columns, ignis__ceil_div(columns, 32));
    halo_columns = (width - 1) * q->stride[1] + ((int64_t)q->across.size - 1) * q->step[1] + 1;
    for (row = 1; row <= rows; row++) {
        int64_t halo = ((row - 1) * q->stride[0] + (tap_rows - 1) * q->step[0] + 1) * halo_columns * slab * 16;
        halo += weights ? ignis__ceil_div(row * width, 32) * 32 * out_chunks * 16 : 0;
        if (halo > ROOM)
            break;
        best = row;
    }
    if (best == 0)
        return false;
    best = ignis__ceil_div(rows, ignis__ceil_div(rows, best));
    memset(plan, 0, sizeof *plan);
    tiles->across = ignis__divisor_of(ignis__ceil_div(columns, width));
    tiles->down = ignis__divisor_of(ignis__ceil_div(rows, best));
    tiles->columns = ignis__divisor_of(width);
    tiles->halo = ignis__divisor_of(halo_columns);
    tiles->rows = (int)best;
    tiles->halo_rows = (int)((best - 1) * q->stride[0] + (tap_rows - 1) * q->step[0] + 1);
    tiles->count = (int)((weights ? p->k : p->m) / (rows * columns) * tiles->across.size * tiles->down.size);
    bytes = tiles->halo_rows * halo_columns * slab * 16 + (weights ? ignis__ceil_div(best * width, 32) * 32 * out_chunks * 16 : 0);
    plan->channels = (int)channels;
    plan->outs = (int)outs;
    plan->taps = (int)taps;
    plan->slab = (int)slab;
    plan->slabs = (int)ignis__ceil_div(p->batch * channels, slab * 8);
    plan->shared = 128 + 2 * bytes;
    snprintf(plan->define, sizeof plan->define, "-DIGNIS_CHANNELS=%d -DIGNIS_OUTS=%d -DIGNIS_TAPS=%d -DIGNIS_SLAB=%d", (int)channels,
             (int)outs, (int)taps, (int)slab);
    return true;
}

/*  Whether the device has the kernel, or somebody has recorded it. While programs are recorded: asks for that of older devices, too. */
static bool ignis__grouped_exists(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *p, const ignis__grouped *plan, bool weights)
{
    ignis__builtin builtin = weights ? IGNIS__BUILTIN_GROUPED_WEIGHTS : IGNIS__BUILTIN_GROUPED;
    char define[32];
    if (op->work.device->info.compute_major < 8 || !ignis__variant_exists(op->work.device, builtin, dtype, plan->define))
        return false;
    if (ignis__requests.path[0]) {
        snprintf(define, sizeof define, "-DIGNIS_PATCHES=%d", p->patches_of);
        ignis__request_builtin(IGNIS__BUILTIN_GEMM_FINISH, dtype);
        ignis__request_own(IGNIS__BUILTIN_GEMM_TINY, dtype, define, 0, 79);
        ignis__request_own(IGNIS__BUILTIN_GEMM, dtype, define, 0, 79);
    }
    return true;
}

/*  Runs it; sums: the gradient of w (null: another one). */
static void ignis__grouped_run(ignis__op *op, const ignis__conv *c, ignis__gemm *p, ignis__grouped *plan, ignis__array *sums)
{
    int64_t blocks = ignis__clamp(2 * op->work.device->info.multiprocessors / plan->slabs, 1, plan->tiles.count), steps, warps;
    void *params[] = {p, &plan->tiles};
    if (sums) { /* warps that share out the pixels make a split each: K_WARPS of kernels/grouped_mma.cu */
        steps = ignis__ceil_div(plan->taps * plan->channels, 16);
        warps = plan->slab * 8 == plan->channels && plan->outs > 8 && steps > 7 ? 4 : 8;
        warps /= ignis__clamp(plan->slab * plan->outs / plan->channels, 1, warps);
        p->splits = (int)(blocks * warps);
        p->partial = ignis__gemm_sums_room(op, sums, p->splits, c->dtype);
    }
    ignis__cost(-1, ignis__gemm_flops(p), (int)c->dtype);
    ignis__op_launch(op, sums ? IGNIS__BUILTIN_GROUPED_WEIGHTS : IGNIS__BUILTIN_GROUPED, c->dtype, plan->define, blocks * plan->slabs, 1, 1,
                     256, 1, (size_t)plan->shared, params);
    if (sums)
        ignis__gemm_sums(op, sums, p->partial, p->splits);
}

/*  A product with patches, whose first operand has so many channels, with all groups. */
static ignis__product ignis__conv_product(const ignis__conv *c, int64_t m, int64_t n, int64_t k, int64_t channels)
{
    ignis__product p = ignis__product_of(c->dtype, m, n, k, 0);
    p.batch = c->groups;
    p.batch_a = channels;
    p.batch_b = 0;
    return p;
}

/*  Runs a product with patches. False: row sums are left to the caller. */
static bool ignis__conv_compute(ignis__op *op, const ignis__conv *c, ignis__gemm *p, ignis__array *sums, const ignis__epilogue *epilogue)
{
    ignis__grouped plan;
    if (!op->ok)
        return false;
    if (p->packed_a != 1 || p->packed_b != 1)
        p->wgmma_k = 0;
    if (ignis__conv_is_depthwise(c)) {
        ignis__depthwise(op, c, p, sums);
        return false;
    }
    if ((c->groups == 1 && !p->folded) || !ignis__grouped_plan(c, p, sums != NULL, &plan) ||
        !ignis__grouped_exists(op, c->dtype, p, &plan, sums != NULL))
        return ignis__gemm_compute(op, c->dtype, p, epilogue);
    ignis__grouped_run(op, c, p, &plan, sums);
    return false;
}

static void ignis__conv_forward(ignis__op *op, const ignis__conv *c, ignis__array *out, ignis__array *x, ignis__array *w,
                                ignis__array *bias)
{
    ignis__array *const arrays[2] = {x, w};
    ignis__conv_operand operand[2];
    ignis__conv_walk walk[2];
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__product product;
    ignis__gemm p;
    const int64_t channels[2] = {c->channels, c->channels};
    epilogue.bias = bias;
    if (!op->ok || out->numel == 0)
        return;
    if (ignis__conv_is_product(c, &product)) {
        ignis__matmul_run(op, &product, out, x, w, &epilogue);
        return;
    }
    ignis__conv_operands(op, c, operand, arrays, channels);
    walk[0] = ignis__conv_forward_walk(&c->side[0]);
    walk[1] = ignis__conv_forward_walk(&c->side[1]);
    product = ignis__conv_product(c, c->images * c->side[0].out * c->side[1].out, c->outs, ignis__conv_taps(c) * operand[0].channels,
                                  operand[0].channels);
    product.transpose_b = 1;
    p = ignis__gemm_params(op, &product, out, &epilogue);
    p.a = operand[0].at;
    p.packed_a = operand[0].packed;
    ignis__conv_patches(&p, c, 1, walk, c->side[0].in, c->side[1].in, &operand[0], operand[0].channels);
    ignis__conv_weights(&p, c, &operand[1]);
    p.patches.out_column = c->groups * c->outs;
    p.patches.out_row = p.patches.out_column * c->side[1].out;
    p.patches.out_image = p.patches.out_row * c->side[0].out;
    ignis__conv_compute(op, c, &p, NULL, &epilogue);
}

/*  dx: for each phase of the strides a product of patches of g and those weights that meet there. */
static void ignis__conv_grad_x(ignis__op *op, const ignis__conv *c, ignis__array *dx, ignis__array *g, ignis__array *w)
{
    static const ignis__epilogue nothing = IGNIS__ZERO;
    ignis__array *const arrays[2] = {g, w};
    const int64_t channels[2] = {c->outs, c->channels};
    int64_t size = ignis__dtypes[c->dtype].size, phases[2], tap[2], phase[2];
    ignis__conv_operand operand[2];
    ignis__conv_walk walk[2];
    ignis__product product;
    ignis__gemm p;
    if (!op->ok || dx->numel == 0)
        return;
    if (g->numel == 0 || w->numel == 0 || ignis__conv_skips(&c->side[0]) || ignis__conv_skips(&c->side[1]))
        ignis__op_zero(op, dx);
    if (!op->ok || g->numel == 0 || w->numel == 0)
        return;
    ignis__conv_operands(op, c, operand, arrays, channels);
    phases[0] = ignis__conv_phases(&c->side[0]);
    phases[1] = ignis__conv_phases(&c->side[1]);
    for (tap[0] = 0; tap[0] < phases[0] && op->ok; tap[0]++) {
        walk[0] = ignis__conv_backward_walk(&c->side[0], tap[0], &phase[0]);
        for (tap[1] = 0; walk[0].grid && tap[1] < phases[1] && op->ok; tap[1]++) {
            int made = op->made_count;
            walk[1] = ignis__conv_backward_walk(&c->side[1], tap[1], &phase[1]);
            if (walk[1].grid == 0)
                continue;
            product = ignis__conv_product(c, c->images * walk[0].grid * walk[1].grid, c->channels,
                                          walk[0].taps * walk[1].taps * operand[0].channels, operand[0].channels);
            p = ignis__gemm_params(op, &product, dx, &nothing);
            p.a = operand[0].at;
            p.packed_a = operand[0].packed;
            ignis__conv_patches(&p, c, 1, walk, c->side[0].out, c->side[1].out, &operand[0], operand[0].channels);
            ignis__conv_weights(&p, c, &operand[1]);
            p.row_b = operand[1].channels;
            p.patches.apart = c->side[0].stride > 1 || c->side[1].stride > 1;
            p.patches.out_column = c->groups * c->channels * c->side[1].stride;
            p.patches.out_row = c->groups * c->channels * c->side[1].in * c->side[0].stride;
            p.patches.out_image = c->groups * c->channels * c->side[1].in * c->side[0].in;
            p.out += (uint64_t)((phase[0] * c->side[1].in + phase[1]) * c->groups * c->channels * size);
            ignis__conv_compute(op, c, &p, NULL, &nothing);
            ignis__op_unmake(op, made);
        }
    }
}

/*  Whether the gradient of w reads pairs of pixels as one of 8 channels: in first layers, of few channels and every other pixel. */
static bool ignis__conv_folds(const ignis__op *op, const ignis__conv *c, const ignis__conv_operand operand[2])
{
    const ignis__conv_side *side = &c->side[1];
    return op->ok && c->groups == 1 && (c->dtype == IGNIS_F16 || c->dtype == IGNIS_BF16) && op->work.device->info.compute_major >= 8 &&
           operand[1].packed == 2 && operand[1].channels == 4 && operand[1].at % 16 == 0 && operand[0].packed == 1 && side->stride == 2 &&
           side->dilation == 1 && side->in % 2 == 0;
}

/*  dw = g^T times the patches of x, db (null: none) = the sum of g over its rows, inside that product where it can be. */
static void ignis__conv_grad_w(ignis__op *op, const ignis__conv *c, ignis__array *dw, ignis__array *db, ignis__array *g, ignis__array *x)
{
    ignis__array *const arrays[2] = {g, x};
    ignis__conv_operand operand[2];
    ignis__conv_walk walk[2];
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__product product;
    ignis__array *out = dw;
    ignis__spread rows = {1, c->images * c->side[0].out * c->side[1].out, c->groups * c->outs};
    ignis__gemm p;
    const int64_t channels[2] = {c->outs, c->channels};
    int64_t taps, width = c->side[1].in, skipped = 0;
    bool summed = false, folded;
    epilogue.row_sums = c->groups == 1 ? db : NULL;
    if (op->ok && dw && dw->numel > 0 && (g->numel == 0 || x->numel == 0)) {
        ignis__op_zero(op, dw);
    } else if (op->ok && dw && dw->numel > 0) {
        ignis__conv_operands(op, c, operand, arrays, channels);
        walk[0] = ignis__conv_forward_walk(&c->side[0]);
        walk[1] = ignis__conv_forward_walk(&c->side[1]);
        folded = ignis__conv_folds(op, c, operand);
        if (folded) { /* pairs of pixels: the first of them may belong to no tap */
            skipped = c->side[1].padding % 2;
            walk[1].first = -(c->side[1].padding + skipped) / 2;
            walk[1].stride = 1;
            walk[1].taps = ignis__ceil_div(walk[1].taps + skipped, 2);
            operand[1].channels *= 2;
            operand[1].packed = 1;
            width /= 2;
        }
        taps = walk[0].taps * walk[1].taps;
        if (operand[1].channels != c->channels)
            out = ignis__op_new_row(op, c->groups * c->outs * taps * operand[1].channels, c->dtype);
        product = ignis__conv_product(c, c->outs, taps * operand[1].channels, rows.n, operand[0].channels);
        product.batch_b = operand[1].channels;
        product.transpose_a = 1;
        p = ignis__gemm_params(op, &product, out, &epilogue);
        p.a = operand[0].at;
        p.b = operand[1].at;
        p.row_a = c->groups * operand[0].channels;
        p.packed_a = operand[0].packed;
        p.packed_b = operand[1].packed;
        ignis__conv_patches(&p, c, 2, walk, c->side[0].in, width, &operand[1], operand[1].channels);
        p.folded = folded;
        summed = ignis__conv_compute(op, c, &p, out, &epilogue);
        if (op->ok && out != dw) { /* without the channels that were added */
            ignis__strides s = IGNIS__ZERO;
            s.rank = 3;
            s.size[0] = c->groups * c->outs * c->side[0].kernel;
            s.size[1] = c->side[1].kernel;
            s.size[2] = c->channels;
            s.from[1] = operand[1].channels / (folded ? 2 : 1);
            s.from[0] = walk[1].taps * operand[1].channels;
            s.to[1] = c->channels;
            s.to[0] = s.size[1] * s.to[1];
            s.from[2] = s.to[2] = 1;
            s.from_offset = skipped * s.from[1];
            ignis__op_strided(op, dw, out, &s);
        }
    }
    if (db && !summed)
        ignis__op_sum(op, db, g, NULL, 1.0, &rows);
}

static ignis_status ignis__conv_backward(const ignis_backward_args *args)
{
    const ignis__conv *c = (const ignis__conv *)args->params;
    ignis__array *gradients[3] = {NULL, NULL, NULL};
    ignis__product product;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, c->sides == 1 ? "ignis_conv1d" : "ignis_conv2d", args))
        return ignis__failed();
    if (args->needed[1])
        gradients[1] = ignis__op_new_like(&op, op.in[2]);
    if (args->input_count > 2 && args->needed[2])
        gradients[2] = ignis__op_new_row(&op, c->groups * c->outs, c->dtype);
    if (args->needed[0])
        gradients[0] = ignis__op_new_like(&op, op.in[1]);
    if (ignis__conv_is_product(c, &product)) {
        ignis__linear_gradients(&op, &product, op.in[0], op.in[1], op.in[2], gradients[0], NULL, gradients[1], gradients[2]);
        return ignis__op_give(&op, args, args->input_count, gradients);
    }
    if (op.ok && gradients[0])
        ignis__conv_grad_x(&op, c, gradients[0], op.in[0], op.in[2]);
    if (op.ok && (gradients[1] || gradients[2]))
        ignis__conv_grad_w(&op, c, gradients[1], gradients[2], op.in[0], op.in[1]);
    return ignis__op_give(&op, args, args->input_count, gradients);
}

/*  Takes one number of the desc: of rows and columns, or of the one side that there is. */
static bool ignis__conv_number(ignis__op *op, const char *name, const int *given, int sides, int least, int standard, int64_t to[2])
{
    int i;
    to[0] = standard;
    for (i = 0; i < sides; i++) {
        if (given && given[i] < 0)
            return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc.%s[%d] is %d, below %d", name, i, given[i], least);
        to[2 - sides + i] = given && given[i] ? given[i] : standard;
    }
    return true;
}

/*  Checks shapes and numbers, describes the convolution, and gives the shape of its result. */
static bool ignis__conv_describe(ignis__op *op, int sides, const ignis_conv_desc *desc, ignis__conv *c, ignis_shape *out)
{
    static const char *const needs[] = {"[images, length, channels] and [outs, length, channels / groups]",
                                        "[images, height, width, channels] and [outs, height, width, channels / groups]"};
    const ignis_shape *x = &op->in[0]->shape, *w = &op->in[1]->shape;
    int64_t groups = desc && desc->groups ? desc->groups : 1, outs, most = 1 << 30;
    int64_t stride[2], padding[2], dilation[2];
    int i;
    if (groups < 1)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc.groups is %lld, below 1", (long long)groups);
    if (!ignis__conv_number(op, "stride", desc ? desc->stride : NULL, sides, 1, 1, stride) ||
        !ignis__conv_number(op, "padding", desc ? desc->padding : NULL, sides, 0, 0, padding) ||
        !ignis__conv_number(op, "dilation", desc ? desc->dilation : NULL, sides, 1, 1, dilation))
        return false;
    if (x->ndim != sides + 2 || w->ndim != sides + 2)
        return ignis__op_fail(op, IGNIS_DIAG_CONV_SHAPE, "x is %s, w is %s; %s are needed", ignis__shape_write(x).text,
                              ignis__shape_write(w).text, needs[sides - 1]);
    outs = w->dim[0];
    if (x->dim[sides + 1] % groups || x->dim[sides + 1] / groups != w->dim[sides + 1] || outs % groups)
        return ignis__op_fail(op, IGNIS_DIAG_CONV_SHAPE,
                              "x is %s, w is %s, of %lld groups; channels of x are groups times those of w, and the %lld of "
                              "the result come in as many groups",
                              ignis__shape_write(x).text, ignis__shape_write(w).text, (long long)groups, (long long)outs);
    memset(c, 0, sizeof *c);
    c->images = x->dim[0];
    c->channels = w->dim[sides + 1];
    c->outs = outs / groups;
    c->groups = groups;
    c->dtype = op->in[0]->dtype;
    c->sides = sides;
    *out = *x;
    out->dim[sides + 1] = outs;
    for (i = 0; i < 2; i++) {
        ignis__conv_side *side = &c->side[i];
        int at = i - 1 + sides; /* of x and w; 0: rows of a convolution that has none */
        int64_t reach;
        side->in = at ? x->dim[at] : 1;
        side->kernel = at ? w->dim[at] : 1;
        side->stride = stride[i];
        side->padding = padding[i];
        side->dilation = dilation[i];
        if (side->kernel < 1)
            return ignis__op_fail(op, IGNIS_DIAG_CONV_SHAPE, "x is %s, w is %s: w has at least one row and column",
                                  ignis__shape_write(x).text, ignis__shape_write(w).text);
        if (side->in > most || side->kernel > most) /* before products of them */
            return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "dimension %d of x %s or of w %s is longer than 2^30", at,
                                  ignis__shape_write(x).text, ignis__shape_write(w).text);
        reach = (side->kernel - 1) * side->dilation + 1;
        if (side->in + 2 * side->padding < reach)
            return ignis__op_fail(
                op, IGNIS_DIAG_CONV_SHAPE,
                "dimension %d of x %s with a padding of %lld on both sides is shorter than the %lld of w %s with a dilation of %lld", at,
                ignis__shape_write(x).text, (long long)side->padding, (long long)reach, ignis__shape_write(w).text,
                (long long)side->dilation);
        if (side->in + 2 * side->padding > most)
            return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED,
                                  "dimension %d of x %s with its padding, and the patches, are longer than 2^30", at,
                                  ignis__shape_write(x).text);
        if (side->stride > side->in + 2 * side->padding) /* as far as that there is one patch alike */
            side->stride = side->in + 2 * side->padding;
        side->out = (side->in + 2 * side->padding - reach) / side->stride + 1;
        if (at)
            out->dim[at] = side->out;
    }
    if ((double)c->images * (double)c->side[0].in * (double)c->side[1].in > (double)most ||
        (double)c->images * (double)c->side[0].out * (double)c->side[1].out > (double)most ||
        (double)ignis__conv_taps(c) * (double)(c->channels + 8) > (double)most ||
        (double)ignis__conv_taps(c) * (double)(c->outs + 8) > (double)most)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "x, the result or a patch has more than 2^30 pixels or elements");
    return true;
}

static ignis_tensor ignis__conv_op(const char *call, int sides, ignis_tensor x, ignis_tensor w, ignis_tensor bias,
                                   const ignis_conv_desc *desc)
{
    ignis_tensor inputs[] = {x, w, bias};
    ignis__array *out = NULL;
    ignis__conv conv;
    ignis_shape shape;
    ignis__op op;
    int count = bias.id ? 3 : 2;
    if (!ignis__op_begin(&op, call, count, inputs))
        return ignis__no_tensor();
    if (ignis__op_is_float(&op, 0, "x") && ignis__op_same_dtype(&op, 1, "w") && (count == 2 || ignis__op_same_dtype(&op, 2, "bias")) &&
        ignis__conv_describe(&op, sides, desc, &conv, &shape)) {
        if (count == 3 && (op.in[2]->shape.ndim != 1 || op.in[2]->numel != conv.groups * conv.outs))
            ignis__op_fail(&op, IGNIS_DIAG_CONV_SHAPE, "bias is %s; w %s needs [%lld]", ignis__shape_write(&op.in[2]->shape).text,
                           ignis__shape_write(&op.in[1]->shape).text, (long long)(conv.groups * conv.outs));
        out = ignis__op_new(&op, &shape, op.in[0]->dtype);
        if (out)
            ignis__conv_forward(&op, &conv, out, op.in[0], op.in[1], count == 3 ? op.in[2] : NULL);
    }
    ignis__op_save_inputs(&op, 0, 2);
    return ignis__op_end_recorded(&op, out, call + 6, ignis__conv_backward, &conv, sizeof conv);
}

IGNIS_API ignis_tensor ignis_conv1d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc *desc)
{
    return ignis__conv_op("ignis_conv1d", 1, x, w, bias, desc);
}

IGNIS_API ignis_tensor ignis_conv2d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc *desc)
{
    return ignis__conv_op("ignis_conv2d", 2, x, w, bias, desc);
}

/* >>ops.norm - quantize_f8 ------------------------------------------------------------------------------------------------- */

/*  By rows, or all of op->in[0]. */
static void ignis__op_quantize(ignis__op *op, bool per_row, ignis__array *out, ignis__array *scale)
{
    enum { WARP, BLOCK, ALL }; /* in the order of the kernels of a type */
    int first = out->dtype == IGNIS_F8_E4M3 ? IGNIS__BUILTIN_QUANTIZE_F8_E4M3_WARP : IGNIS__BUILTIN_QUANTIZE_F8_E5M2_WARP;
    ignis__array *x = op->in[0], *room;
    ignis__address from = ignis__op_read(op, x), to = ignis__op_write(op, out), scales = ignis__op_write(op, scale), largest;
    int64_t rows, n, blocks;
    ignis__rows plan;
    if (!op->ok)
        return;
    if (per_row) {
        void *params[] = {&to, &scales, &from, &rows, &n, &plan.packed, &plan.kept};
        ignis__op_rows(op, x, &rows, &n);
        plan = ignis__rows_plan(op, x->dtype, rows, n, from % 16 == 0, 1, 2);
        ignis__rows_launch(op, &plan, (ignis__builtin)(first + WARP), (ignis__builtin)(first + BLOCK), x->dtype, params);
    } else {
        int packed = from % 16 == 0;
        void *find[] = {&largest, &from, &x->numel, &packed}, *params[] = {&to, &scales, &from, &largest, &x->numel, &packed};
        room = ignis__op_new_row(op, 1, IGNIS_F32);
        if (room)
            ignis__op_fill(op, room, 0);
        largest = ignis__op_write(op, room);
        blocks = ignis__clamp(ignis__ceil_div(x->numel, 256 * ignis__pack_elements(x->dtype)), 1,
                              (int64_t)8 * op->work.device->info.multiprocessors);
        ignis__op_launch_row(op, IGNIS__BUILTIN_QUANTIZE_LARGEST, x->dtype, blocks, 256, find);
        ignis__op_launch_row(op, (ignis__builtin)(first + ALL), x->dtype, blocks, 256, params);
    }
}

IGNIS_API ignis_tensor ignis_quantize_f8(ignis_tensor x, ignis_dtype dtype, bool per_row, ignis_tensor *scale)
{
    static const char call[] = "ignis_quantize_f8";
    ignis__array *out = NULL, *scales = NULL;
    ignis_tensor result;
    ignis_shape shape;
    ignis__op op;
    if (!scale) {
        ignis__fail_null(call, "scale");
        return ignis__no_tensor();
    }
    *scale = ignis__no_tensor();
    if (!ignis__op_begin(&op, call, 1, &x))
        return ignis__no_tensor();
    if (!ignis__dtype_is_f8(dtype))
        ignis__op_fail(&op, IGNIS_DIAG_BAD_ENUM, "dtype is %d; IGNIS_F8_E4M3 or IGNIS_F8_E5M2 is needed", (int)dtype);
    if (op.ok && ignis__op_is_float(&op, 0, "x")) {
        shape = op.in[0]->shape;
        shape.ndim = per_row ? shape.ndim : 1;
        shape.dim[shape.ndim - 1] = 1;
        out = ignis__op_new(&op, &op.in[0]->shape, dtype);
        scales = ignis__op_new(&op, &shape, IGNIS_F32);
        if (op.ok && out->numel == 0)
            ignis__op_fill(&op, scales, 1);
        else if (op.ok)
            ignis__op_quantize(&op, per_row, out, scales);
    }
    if (op.ok)
        *scale = ignis__op_result(&op, scales, 0, NULL, NULL, NULL);
    result = ignis__op_result(&op, out, op.count, op.tensors, op.standing, NULL);
    ignis__op_leave_two(&op, scale);
    return result;
}

/* >>ops.norm - softmax ----------------------------------------------------------------------------------------------------- */

static ignis_status ignis__softmax_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *dx;
    ignis__address to, grad, y;
    ignis__rows plan;
    int64_t rows, n;
    void *params[] = {&to, &grad, &y, &rows, &n, &plan.packed, &plan.kept};
    if (!ignis__op_begin_backward(&op, "ignis_softmax", args))
        return ignis__failed();
    ignis__op_rows(&op, op.in[1], &rows, &n);
    dx = ignis__op_new_like(&op, op.in[1]);
    grad = ignis__op_read(&op, op.in[0]);
    y = ignis__op_read(&op, op.in[1]);
    to = ignis__op_write(&op, dx);
    plan = ignis__rows_plan(&op, op.in[1]->dtype, rows, n, to % 16 == y % 16 && to % 16 == grad % 16, 2, 1);
    ignis__rows_launch(&op, &plan, IGNIS__BUILTIN_SOFTMAX_BACKWARD_WARP, IGNIS__BUILTIN_SOFTMAX_BACKWARD_BLOCK, op.in[1]->dtype, params);
    return ignis__op_give(&op, args, 1, &dx);
}

IGNIS_API ignis_tensor ignis_softmax(ignis_tensor tensor)
{
    ignis__op op;
    ignis__array *out;
    ignis__address x, y;
    ignis__rows plan;
    int64_t rows, n;
    void *params[] = {&y, &x, &rows, &n, &plan.packed, &plan.kept};
    if (!ignis__op_begin(&op, "ignis_softmax", 1, &tensor))
        return ignis__no_tensor();
    ignis__op_is_float(&op, 0, "x");
    ignis__op_rows(&op, op.in[0], &rows, &n);
    out = ignis__op_new_like(&op, op.in[0]);
    x = ignis__op_read(&op, op.in[0]);
    y = ignis__op_write(&op, out);
    plan = ignis__rows_plan(&op, op.in[0]->dtype, rows, n, x % 16 == y % 16, 1, 2);
    ignis__rows_launch(&op, &plan, IGNIS__BUILTIN_SOFTMAX_WARP, plan.kept ? IGNIS__BUILTIN_SOFTMAX_LONG : IGNIS__BUILTIN_SOFTMAX_BLOCK,
                       op.in[0]->dtype, params);
    ignis__op_save(&op, out);
    return ignis__op_end_recorded(&op, out, "softmax", ignis__softmax_backward, NULL, 0);
}

/*  Saved: x, log_sums. */
static ignis_status ignis__log_softmax_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *dx;
    ignis__address to, grad, x, log_sums;
    ignis__rows plan;
    int64_t rows, n;
    void *params[] = {&to, &grad, &x, &log_sums, &rows, &n, &plan.packed, &plan.kept};
    if (!ignis__op_begin_backward(&op, "ignis_log_softmax", args))
        return ignis__failed();
    ignis__op_rows(&op, op.in[1], &rows, &n);
    dx = ignis__op_new_like(&op, op.in[1]);
    grad = ignis__op_read(&op, op.in[0]);
    x = ignis__op_read(&op, op.in[1]);
    log_sums = ignis__op_read(&op, op.in[2]);
    to = ignis__op_write(&op, dx);
    plan = ignis__rows_plan(&op, op.in[1]->dtype, rows, n, to % 16 == x % 16 && to % 16 == grad % 16, 2, 1);
    ignis__rows_launch(&op, &plan, IGNIS__BUILTIN_LOG_SOFTMAX_BACKWARD_WARP, IGNIS__BUILTIN_LOG_SOFTMAX_BACKWARD_BLOCK, op.in[1]->dtype,
                       params);
    return ignis__op_give(&op, args, 1, &dx);
}

IGNIS_API ignis_tensor ignis_log_softmax(ignis_tensor tensor)
{
    ignis__op op;
    ignis__array *out, *sums = NULL;
    ignis__address x, y, log_sums;
    ignis__rows plan;
    int64_t rows, n;
    void *params[] = {&y, &log_sums, &x, &rows, &n, &plan.packed, &plan.kept};
    if (!ignis__op_begin(&op, "ignis_log_softmax", 1, &tensor))
        return ignis__no_tensor();
    ignis__op_is_float(&op, 0, "x");
    if (ignis__op_rows(&op, op.in[0], &rows, &n))
        sums = ignis__op_new_rows(&op, 2, rows, ignis__wide_dtype(op.in[0]->dtype));
    out = ignis__op_new_like(&op, op.in[0]);
    x = ignis__op_read(&op, op.in[0]);
    y = ignis__op_write(&op, out);
    log_sums = ignis__op_write(&op, sums);
    plan = ignis__rows_plan(&op, op.in[0]->dtype, rows, n, x % 16 == y % 16, 1, 2);
    ignis__rows_launch(&op, &plan, IGNIS__BUILTIN_LOG_SOFTMAX_WARP,
                       plan.kept ? IGNIS__BUILTIN_LOG_SOFTMAX_LONG : IGNIS__BUILTIN_LOG_SOFTMAX_BLOCK, op.in[0]->dtype, params);
    ignis__op_save(&op, op.in[0]);
    ignis__op_save(&op, sums);
    return ignis__op_end_recorded(&op, out, "log_softmax", ignis__log_softmax_backward, NULL, 0);
}

/* >>ops.norm - layer_norm, rms_norm ---------------------------------------------------------------------------------------- */

/*  The kernels of one of the two; those of rms_norm take the same parameters, and leave out what they do not need. */
typedef struct ignis__norm {
    const char *call, *name;
    bool rms;
    ignis__builtin warp, add_warp, averages, columns, rows, rows_backward; /* but for averages and columns each the first of four */
} ignis__norm;

#define IGNIS__NORM_KERNELS(NAME)                                                                              \
    IGNIS__BUILTIN_##NAME##_WARP, IGNIS__BUILTIN_ADD_##NAME##_WARP, IGNIS__BUILTIN_##NAME##_BACKWARD_AVERAGES, \
        IGNIS__BUILTIN_##NAME##_BACKWARD_COLUMNS, IGNIS__BUILTIN_##NAME##_ROWS_FEW, IGNIS__BUILTIN_##NAME##_ROWS_BACKWARD_FEW

/*  The kernels of norm.cu and norm_add.cu, counted from that named _warp. */
enum { IGNIS__NORM_WARP, IGNIS__NORM_ROW, IGNIS__NORM_LONG, IGNIS__NORM_BLOCK };

static const ignis__norm ignis__layer_norm = {"ignis_layer_norm", "layer_norm", false, IGNIS__NORM_KERNELS(LAYER_NORM)};
static const ignis__norm ignis__rms_norm = {"ignis_rms_norm", "rms_norm", true, IGNIS__NORM_KERNELS(RMS_NORM)};

/*  What the backward kernels work on. The partial sums of dw come first, then those of db, but of rms_norm, and of the columns of dx. */
typedef struct ignis__norm_backward_work {
    ignis__address dx, partial_w, partial_b, partial_dx, dy, x, w, mean, rstd, before; /* before: what is added to dx (0: nothing) */
    bool sums_dx;
    int64_t rows, n;
    int packed;
} ignis__norm_backward_work;

/*  How the kernels of norm_odd.cuh are launched. No threads: they cannot be. */
typedef struct ignis__norm_plan {
    ignis__builtin builtin;
    bool even; /* that is one of those named _even */
    unsigned threads;
    int64_t blocks;
    size_t shared;
} ignis__norm_plan;

#define IGNIS__NORM_FLIGHT 4     /* packs of an array that a thread has at a time */
#define IGNIS__NORM_ANYWHERE 2   /* rows begin at the same addresses modulo 16 in all arrays: instead of packed */
#define IGNIS__NORM_LONG_PACKS 8 /* of a long packed row that a thread has */

/*  How many blocks a multiprocessor holds at a time, 1 at least. */
static int64_t ignis__op_resident(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, unsigned threads, size_t shared)
{
    void *function = op->ok ? ignis__builtin_get(op->work.call, op->work.device, builtin, dtype) : NULL;
    int resident = 0;
    op->ok = function && !IGNIS__CUDA_FAILED(op->work.call, op->work.device, cuOccupancyMaxActiveBlocksPerMultiprocessor,
                                             (&resident, function, (int)threads, shared));
    return resident > 1 ? resident : 1;
}

/*  After how many rows one begins at the same address modulo 16 again. */
static int64_t ignis__norm_turn(ignis_dtype dtype, int64_t n)
{
    int64_t pack = ignis__pack_elements(dtype), turn = pack;
    while (turn > 1 && n * turn / 2 % pack == 0)
        turn /= 2;
    return turn;
}

/*  Whether rows of whole packs are for the kernels named _even, whose threads have one pack of a row: where those are faster. */
static bool ignis__norm_is_even(ignis_dtype dtype, int64_t n, bool backward)
{
    int64_t pack = ignis__pack_elements(dtype), packs = n / pack;
    return n % pack == 0 && packs > (backward ? 32 : 128) && packs <= (backward ? 512 : 256);
}

/*  builtin: the first of the four kernels; arrays: of rows, which are read. Rows of a team begin at the same
    address modulo 16. In backward each team has a few rows at least, as its block leaves a row of partial sums. What a block may have of
    shared memory decides for the most arrays that there can be: the same rows have the same kernel, and its bits. */
static ignis__norm_plan ignis__norm_rows_plan(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, int64_t rows, int64_t n, int arrays,
                                              bool backward)
{
    static const struct {
        int packs, threads, teams; /* packs of a row that a thread has, threads of a team at most, teams of a block */
    } shapes[] = {{1, 32, 4}, {4, 32, 4}, {4, 512, 1}};
    const ignis_device_info *info = &op->work.device->info;
    int64_t pack = ignis__pack_elements(dtype), packs = n / pack, turn;
    ignis__norm_plan plan = IGNIS__ZERO;
    int count = (int)(sizeof shapes / sizeof *shapes), i = 0;
    plan.threads = ignis__row_threads(packs, 1, 512);
    if (ignis__norm_is_even(dtype, n, backward) &&
        (int64_t)plan.threads * 16 * IGNIS__NORM_FLIGHT * (backward ? 3 : 2) <= info->shared_per_block - 2048) {
        plan.builtin = (ignis__builtin)((int)builtin + count);
        plan.even = true;
        plan.shared = (size_t)plan.threads * 16 * (size_t)(IGNIS__NORM_FLIGHT * arrays);
        turn = rows ? ignis__ceil_div(rows, IGNIS__NORM_FLIGHT) : 1; /* of all blocks together, which are to have equally many */
        plan.blocks = ignis__clamp(ignis__ceil_div(turn, backward ? 2 : 1), 1,
                                   info->multiprocessors * ignis__op_resident(op, plan.builtin, dtype, plan.threads, plan.shared));
        plan.blocks = ignis__ceil_div(turn, ignis__ceil_div(turn, plan.blocks));
        return plan;
    }
    while (i < count && packs > (int64_t)shapes[i].packs * shapes[i].threads)
        i++;
    plan.threads = i < count ? ignis__row_threads(packs, shapes[i].packs, (unsigned)shapes[i].threads) * (unsigned)shapes[i].teams : 0;
    if ((int64_t)plan.threads * 16 * IGNIS__NORM_FLIGHT * 4 > info->shared_per_block - 8192)
        plan.threads = 0;
    if (plan.threads == 0)
        return plan;
    plan.builtin = (ignis__builtin)((int)builtin + i);
    plan.shared = (size_t)plan.threads * 16 * (size_t)(IGNIS__NORM_FLIGHT * arrays + (backward ? 1 : 2) * shapes[i].packs);
    turn = ignis__ceil_div(ignis__norm_turn(dtype, n), shapes[i].teams);
    plan.blocks = ignis__clamp(ignis__ceil_div(rows, shapes[i].teams * (backward ? 4 : 1)), 1,
                               info->multiprocessors * ignis__op_resident(op, plan.builtin, dtype, plan.threads, plan.shared));
    plan.blocks = plan.blocks < turn ? turn : plan.blocks / turn * turn;
    return plan;
}

/*  Whether rows are for these kernels, if they are not too long for them; addresses: all of them, of rows, by or. */
static bool ignis__norm_is_odd(ignis_dtype dtype, int64_t n, bool packed, ignis__address addresses)
{
    return (!packed || ignis__norm_is_even(dtype, n, false)) && addresses % 16 == 0;
}

/*  Which kernel of norm.cu, or norm_add.cu, and how it is launched. */
static int ignis__norm_kernel(const ignis__op *op, ignis_dtype dtype, int64_t rows, int64_t n, bool packed, bool anywhere,
                              ignis__rows *plan)
{
    int64_t packs = ignis__ceil_div(n, ignis__pack_elements(dtype));
    int share = packs <= 512 * IGNIS__ROW_PACKS ? IGNIS__ROW_PACKS : IGNIS__NORM_LONG_PACKS;
    *plan = ignis__rows_plan(op, dtype, rows, n, packed || anywhere, 1, 2);
    plan->packed = anywhere ? IGNIS__NORM_ANYWHERE : packed;
    if (plan->warp)
        return IGNIS__NORM_WARP;
    if (!packed || packs > 512 * share)
        return IGNIS__NORM_BLOCK;
    plan->threads = ignis__row_threads(packs, share, 512);
    plan->shared = 0;
    return share == IGNIS__ROW_PACKS ? IGNIS__NORM_ROW : IGNIS__NORM_LONG;
}

static void ignis__norm_partials(ignis__op *op, bool rms, ignis__norm_backward_work *work, ignis_dtype wide, int64_t count)
{
    ignis__address size = (ignis__address)(count * work->n * ignis__dtypes[wide].size);
    work->partial_w = ignis__op_write(op, ignis__op_new_row(op, (2 + work->sums_dx) * count * work->n, wide));
    work->partial_b = work->partial_w + size;
    work->partial_dx = work->sums_dx ? work->partial_b + (rms ? 0 : size) : 0;
}

/*  dx and partial sums; returns how many. Rows that a team has at a time are read once, by a few blocks on each multiprocessor, which add up
    over many rows. What is too long for that, or begins at other addresses modulo 16 in one array than in another, takes two kernels: averages of
    every row, then all columns. work->before becomes 0 where it is not in dx, and work->sums_dx false where there are no sums of that. */
static int64_t ignis__norm_backward_run(ignis__op *op, const ignis__norm *norm, ignis__norm_backward_work *work, ignis_dtype dtype)
{
    int64_t processors = op->work.device->info.multiprocessors, pack = ignis__pack_elements(dtype), turn = ignis__norm_turn(dtype, work->n);
    int64_t count, across;
    unsigned threads = 128;
    ignis_dtype wide = ignis__wide_dtype(dtype);
    ignis__address average_g, average_gh;
    ignis__norm_plan plan = IGNIS__ZERO;
    void *rows[] = {&work->dx,   &work->partial_w, &work->partial_b, &work->dy,     &work->x,         &work->w, &work->mean,
                    &work->rstd, &work->rows,      &work->n,         &work->before, &work->partial_dx}; /* the last of even rows */
    void *averages[] = {&average_g,  &average_gh, &work->dy,   &work->x, &work->w,
                        &work->mean, &work->rstd, &work->rows, &work->n, &work->packed};
    void *columns[] = {&work->dx,   &work->partial_w, &work->partial_b, &work->dy,   &work->x, &work->w,     &work->mean,
                       &work->rstd, &average_g,       &average_gh,      &work->rows, &work->n, &work->packed};
    ignis__request_builtin(norm->rows_backward, dtype); /* what other devices choose */
    ignis__request_builtin(norm->averages, dtype);
    work->before = work->before % 16 ? 0 : work->before;
    if ((work->dx | work->dy | work->x) % 16 == 0)
        plan = ignis__norm_rows_plan(op, norm->rows_backward, dtype, work->rows, work->n, work->before ? 3 : 2, true);
    work->sums_dx = work->sums_dx && plan.even;
    if (plan.threads) {
        ignis__norm_partials(op, norm->rms, work, wide, plan.blocks);
        ignis__op_launch(op, plan.builtin, dtype, NULL, plan.blocks, 1, 1, plan.threads, 1, plan.shared, rows);
        return plan.blocks;
    }
    work->before = 0;
    if (!work->packed && (work->dx - work->x) % 16 == 0 && (work->dx - work->dy) % 16 == 0)
        work->packed = IGNIS__NORM_ANYWHERE;
    across = ignis__ceil_div(work->packed ? work->n / pack + (work->packed == IGNIS__NORM_ANYWHERE ? 2 * pack : 0) : work->n, threads);
    count = ignis__clamp(ignis__ceil_div(processors * 8, across), 1, work->rows);
    count = work->packed == IGNIS__NORM_ANYWHERE ? ignis__ceil_div(count, turn) * turn : count;
    ignis__norm_partials(op, norm->rms, work, wide, count);
    average_g = ignis__op_write(op, ignis__op_new_row(op, work->rows, wide));
    average_gh = ignis__op_write(op, ignis__op_new_row(op, work->rows, wide));
    ignis__op_launch_row(op, norm->averages, dtype, ignis__clamp(work->rows, 0, IGNIS__ROW_BLOCKS), 256, averages);
    ignis__op_launch(op, norm->columns, dtype, NULL, across, count, 1, threads, 1, 0, columns);
    return count;
}

/*  Whether a tensor is the result of a layer whose bias needs a gradient: the sums of the columns of its own. */
static bool ignis__bias_is_in(ignis__tensor *tensor)
{
    const ignis__node *node = ignis__walk_maker(tensor);
    const ignis__mlp *mlp;
    int bias = 0;
    if (node && node->backward_fn == ignis__linear_backward && node->input_count > 2) {
        bias = 2;
    } else if (node && node->backward_fn == ignis__mlp_backward) {
        mlp = (const ignis__mlp *)node->params;
        bias = mlp->bias[mlp->count - 1];
    }
    return bias > 0 && node->needed[bias];
}

/*  For a backward function that is running: whether the gradient that it gives for its first input is that of such a result, on its own or where it
    is added to something. */
static bool ignis__bias_is_behind(void)
{
    ignis__tensor *tensor = ignis__tensor_thread_now()->walk->at->inputs[0];
    const ignis__node *node = ignis__walk_maker(tensor);
    int i;
    if (!node || node->backward_fn != ignis__add_backward)
        return ignis__bias_is_in(tensor);
    for (i = 0; i < 2; i++)
        if (ignis__shape_same(&node->inputs[i]->shape, &tensor->shape) && ignis__bias_is_in(node->inputs[i]))
            return true;
    return false;
}

/*  The sums of the columns of one to three matrices of the wide type, one behind the other, of so many rows each. */
static void ignis__sum_partials(ignis__op *op, ignis_dtype dtype, ignis__address *to, int matrices, ignis__address partial, int rows,
                                int64_t n)
{
    void *params[] = {&to[0], &to[1], &to[2], &partial, &rows, &n};
    ignis__op_launch(op, IGNIS__BUILTIN_NORM_BACKWARD_SUM, dtype, NULL, ignis__ceil_div(n, 32), matrices, 1, 512, 1, 0, params);
}

/*  Saved: x, w, rstd, and mean of layer_norm. */
static ignis_status ignis__norm_backward(const ignis_backward_args *args)
{
    const ignis__norm *norm = *(const ignis__norm *const *)args->params;
    ignis__op op;
    ignis__array *gradients[3] = {NULL, NULL, NULL}, *before = args->needed[0] ? ignis__walk_sum(0) : NULL, *sums = NULL;
    ignis__norm_backward_work work = IGNIS__ZERO;
    ignis__address to[3] = {0, 0, 0}; /* dw, db, sums */
    int64_t n;
    ignis_dtype dtype;
    int partial_count, count = norm->rms ? 1 : 2, i;
    if (!ignis__op_begin_backward(&op, norm->call, args))
        return ignis__failed();
    dtype = op.in[1]->dtype;
    ignis__op_rows(&op, op.in[1], &work.rows, &work.n);
    n = work.n;
    for (i = 0; i < args->input_count; i++) /* x, w, b */
        gradients[i] = ignis__op_new_like(&op, op.in[i ? 2 : 1]);
    if (op.in[1]->numel == 0) {
        for (i = 1; i < args->input_count; i++)
            ignis__op_zero(&op, gradients[i]);
    } else {
        work.dy = ignis__op_read(&op, op.in[0]);
        work.x = ignis__op_read(&op, op.in[1]);
        work.w = ignis__op_read(&op, op.in[2]);
        work.rstd = ignis__op_read(&op, op.in[3]);
        work.mean = norm->rms ? 0 : ignis__op_read(&op, op.in[4]);
        work.dx = ignis__op_write(&op, gradients[0]);
        work.before = before ? ignis__op_read(&op, before) : 0;
        work.sums_dx = args->needed[0] && ignis__bias_is_behind();
        work.packed = n % ignis__pack_elements(dtype) == 0 && (work.dy | work.x | work.w | work.dx) % 16 == 0;
        partial_count = (int)ignis__norm_backward_run(&op, norm, &work, dtype);
        if (work.before)
            ignis__walk_sum_taken(0);
        for (i = 0; i < count; i++)
            to[i] = ignis__op_write(&op, gradients[1 + i]);
        if (work.sums_dx)
            to[count++] = ignis__op_write(&op, sums = ignis__op_new_row(&op, n, dtype));
        ignis__sum_partials(&op, dtype, to, count, work.partial_w, partial_count, n);
    }
    return ignis__op_give_with_sums(&op, args, args->input_count, gradients, sums);
}

/*  Inputs: x, w, b of layer_norm, and in the end what is added to x first, if anything is. */
static bool ignis__norm_check(ignis__op *op, const ignis__norm *norm, double *eps, int64_t n)
{
    static const char *const names[] = {"x", "w", "b"};
    int weights = norm->rms ? 2 : 3, i;
    ignis__op_is_float(op, 0, "x");
    for (i = 1; i < weights; i++) {
        ignis__op_same_dtype(op, i, names[i]);
        ignis__op_is_row(op, i, names[i], n);
    }
    if (op->count > weights && ignis__op_same_dtype(op, weights, "y"))
        ignis__op_same_shape(op, weights, "y");
    return ignis__op_eps(op, eps);
}

/*  What the forward kernels work on. */
typedef struct ignis__norm_work {
    ignis__address y, mean, rstd, x, w, b, sum, other;
    int64_t rows, n, numel;
    double eps;
} ignis__norm_work;

static bool ignis__norm_packed(const ignis__norm_work *work, ignis_dtype dtype)
{
    return work->n % ignis__pack_elements(dtype) == 0 && (work->x | work->y | work->w | work->b | work->sum | work->other) % 16 == 0;
}

/*  The norm of x, or of sum = x + other, which is made in the same walk where all of them begin at multiples of 16 bytes. */
static void ignis__norm_run(ignis__op *op, const ignis__norm *norm, ignis__norm_work *work, ignis_dtype dtype)
{
    bool packed, anywhere;
    int kernel;
    ignis__rows plan;
    ignis__norm_plan odd = IGNIS__ZERO;
    void *plain[] = {&work->y,    &work->mean, &work->rstd, &work->x,     &work->w,  &work->b,
                     &work->rows, &work->n,    &work->eps,  &plan.packed, &plan.kept};
    void *adding[] = {&work->y,    &work->mean, &work->rstd, &work->x,   &work->w,     &work->b,
                      &work->rows, &work->n,    &work->eps,  &work->sum, &work->other, &plan.kept};
    void *add[] = {&work->sum, &work->x, &work->other, &work->numel};
    ignis__request_builtin(norm->rows, dtype); /* what other sizes and devices choose */
    ignis__request_builtin(norm->warp, dtype);
    if (work->sum) {
        ignis__request_builtin(norm->add_warp, dtype);
        ignis__request_builtin(IGNIS__BUILTIN_ADD, dtype);
    }
    for (;;) {
        packed = ignis__norm_packed(work, dtype);
        if (ignis__norm_is_odd(dtype, work->n, packed, work->x | work->y | work->sum | work->other)) {
            odd = ignis__norm_rows_plan(op, norm->rows, dtype, work->rows, work->n, work->sum ? 2 : 1, false);
        }
        if (odd.threads || !work->sum || packed)
            break;
        ignis__op_map(op, IGNIS__BUILTIN_ADD, dtype, work->numel, add);
        work->x = work->sum; /* from here on it is the norm of a tensor as any other, by the same kernels */
        work->sum = work->other = 0;
    }
    if (odd.threads) {
        ignis__op_launch(op, odd.builtin, dtype, NULL, odd.blocks, 1, 1, odd.threads, 1, odd.shared, adding);
        return;
    }
    anywhere = !packed && (work->x - work->y) % 16 == 0 && work->n > 32 * ignis__row_share(dtype, true);
    kernel = (int)(work->sum ? norm->add_warp : norm->warp) + ignis__norm_kernel(op, dtype, work->rows, work->n, packed, anywhere, &plan);
    ignis__op_launch(op, (ignis__builtin)kernel, dtype, NULL, plan.blocks, 1, 1, plan.threads, 1, plan.shared, work->sum ? adding : plain);
}

/*  The tensor of a sum of the operation's first and last input. */
static ignis_tensor ignis__norm_sum(ignis__op *op, ignis__array *sum)
{
    ignis__tensor *added[2];
    ignis__binary_params same = IGNIS__ZERO;
    ignis_rule rule;
    int last = op->count - 1;
    same.spread.outer = same.spread.n = same.spread.inner = 1;
    rule = ignis__op_rule(op, "add", ignis__add_backward, &same, sizeof same);
    rule.saved_count = 0;
    added[0] = op->tensors[0];
    added[1] = op->tensors[last];
    return ignis__op_result(op, sum, 2, added, NULL,
                            op->records && (op->standing[0].requires_grad || op->standing[last].requires_grad) ? &rule : NULL);
}

/*  inputs: as ignis__norm_check has them. sum_out: null where nothing is added. */
static ignis_tensor ignis__norm_forward(const char *call, const ignis__norm *norm, int count, const ignis_tensor *inputs, double eps,
                                        ignis_tensor *sum_out)
{
    ignis__op op;
    ignis__array *out, *sum = NULL, *means = NULL, *rstds;
    ignis__tensor *made[3];
    ignis_tensor result = IGNIS__ZERO;
    ignis__norm_work work = IGNIS__ZERO;
    ignis_dtype dtype;
    ignis_rule rule;
    if (sum_out)
        *sum_out = ignis__no_tensor();
    if (!ignis__op_begin(&op, call, count, inputs))
        return result;
    dtype = op.in[0]->dtype;
    work.eps = eps;
    work.numel = op.in[0]->numel;
    ignis__op_rows(&op, op.in[0], &work.rows, &work.n);
    ignis__norm_check(&op, norm, &work.eps, work.n);
    out = ignis__op_new_like(&op, op.in[0]);
    rstds = ignis__op_new_row(&op, work.rows, ignis__wide_dtype(dtype));
    work.x = ignis__op_read(&op, op.in[0]);
    work.w = ignis__op_read(&op, op.in[1]);
    work.y = ignis__op_write(&op, out);
    work.rstd = ignis__op_write(&op, rstds);
    if (!norm->rms) {
        means = ignis__op_new_row(&op, work.rows, ignis__wide_dtype(dtype));
        work.b = ignis__op_read(&op, op.in[2]);
        work.mean = ignis__op_write(&op, means);
    }
    if (sum_out) {
        sum = ignis__op_new_like(&op, op.in[0]);
        work.other = ignis__op_read(&op, op.in[count - 1]);
        work.sum = ignis__op_write(&op, sum);
    }
    ignis__norm_run(&op, norm, &work, dtype);
    ignis__op_save(&op, sum ? sum : op.in[0]);
    ignis__op_save(&op, op.in[1]);
    ignis__op_save(&op, rstds);
    ignis__op_save(&op, means);
    if (!sum_out)
        return ignis__op_end_recorded(&op, out, norm->name, ignis__norm_backward, &norm, sizeof norm);
    *sum_out = ignis__norm_sum(&op, sum);
    made[0] = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, sum_out->id);
    made[1] = op.tensors[1];
    made[2] = op.tensors[2];
    rule = ignis__op_rule(&op, norm->name, ignis__norm_backward, &norm, sizeof norm);
    result = ignis__op_result(&op, out, norm->rms ? 2 : 3, made, NULL, op.records ? &rule : NULL);
    if (made[0])
        ignis__tensor_drop(call, made[0]);
    ignis__op_leave_two(&op, sum_out);
    return result;
}

IGNIS_API ignis_tensor ignis_layer_norm(ignis_tensor x, ignis_tensor w, ignis_tensor b, double eps)
{
    ignis_tensor inputs[] = {x, w, b};
    return ignis__norm_forward("ignis_layer_norm", &ignis__layer_norm, 3, inputs, eps, NULL);
}

IGNIS_API ignis_tensor ignis_rms_norm(ignis_tensor x, ignis_tensor w, double eps)
{
    ignis_tensor inputs[] = {x, w};
    return ignis__norm_forward("ignis_rms_norm", &ignis__rms_norm, 2, inputs, eps, NULL);
}

/*  The norm of x + y, whose sum goes to the caller, or with sum null away. */
static ignis_tensor ignis__add_norm(const char *call, const ignis__norm *norm, int count, const ignis_tensor *inputs, double eps,
                                    ignis_tensor *sum)
{
    ignis_tensor unasked, result = ignis__norm_forward(call, norm, count, inputs, eps, sum ? sum : &unasked);
    if (!sum && unasked.id)
        (void)ignis_tensor_release(unasked);
    return result;
}

IGNIS_API ignis_tensor ignis_add_layer_norm(ignis_tensor x, ignis_tensor y, ignis_tensor w, ignis_tensor b, double eps, ignis_tensor *sum)
{
    ignis_tensor inputs[] = {x, w, b, y};
    return ignis__add_norm("ignis_add_layer_norm", &ignis__layer_norm, 4, inputs, eps, sum);
}

IGNIS_API ignis_tensor ignis_add_rms_norm(ignis_tensor x, ignis_tensor y, ignis_tensor w, double eps, ignis_tensor *sum)
{
    ignis_tensor inputs[] = {x, w, y};
    return ignis__add_norm("ignis_add_rms_norm", &ignis__rms_norm, 3, inputs, eps, sum);
}

/* >>ops.image - pooling and upsampling ---------------------------------------------------------------------------------------- */

/*  The parameters of the kernels: see kernels/image.cuh, pool.cu and upsample.cu. */
typedef struct ignis__images {
    ignis__divisor packs, width, height;
    int src_width, src_height, packed, share;
    int64_t channels, count;
} ignis__images;

typedef struct ignis__pooling {
    ignis__images images;
    int window[2], padding[2];
    ignis__divisor stride[2];
    int exclude_padding, index_bytes;
} ignis__pooling;

typedef struct ignis__scaling {
    int in, out, step, start, is_linear;
    ignis__divisor den, by_step;
} ignis__scaling;

typedef struct ignis__resampling {
    ignis__images images;
    ignis__scaling dim[2];
} ignis__resampling;

#define IGNIS__IMAGE_LIMIT ((int64_t)1 << 28) /* of sizes: products of two, and sums of some, fit */

/*  The image that an operation works on: its dimensions, of which a signal lacks that of rows. Reports what is none. */
static bool ignis__image_check(ignis__op *op, const int64_t *second_numbers, int count, int64_t *n, int64_t *size, int64_t *channels)
{
    const ignis_shape *shape = &op->in[0]->shape;
    int i;
    if (!ignis__op_is_float(op, 0, "x"))
        return false;
    if (shape->ndim != 3 && shape->ndim != 4)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "x is %s; [n, height, width, channels] or [n, length, channels] is needed",
                              ignis__shape_write(shape).text);
    *n = shape->dim[0];
    size[0] = shape->ndim == 4 ? shape->dim[1] : 1;
    size[1] = shape->dim[shape->ndim - 2];
    *channels = shape->dim[shape->ndim - 1];
    for (i = 1; i < shape->ndim; i++)
        if (shape->dim[i] >= IGNIS__IMAGE_LIMIT)
            return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "x is %s, where a size is 2^28 or more", ignis__shape_write(shape).text);
    for (i = 0; shape->ndim == 3 && i < count; i++)
        if (second_numbers[i])
            return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER,
                                  "x is %s, a signal; the second number of each dimension in desc has to be 0, not %lld",
                                  ignis__shape_write(shape).text, (long long)second_numbers[i]);
    return true;
}

/*  The shape of a result of other rows and columns. */
static ignis_shape ignis__image_shape(const ignis_shape *like, const int64_t *size)
{
    ignis_shape shape = *like;
    if (shape.ndim == 4)
        shape.dim[1] = size[0];
    shape.dim[shape.ndim - 2] = size[1];
    return shape;
}

/*  dst out of src; addresses: of all arrays, by or. shares: a thread may have more packs, as long as 128 bytes stay side by side. */
static void ignis__images_set(ignis__images *images, ignis_dtype dtype, int64_t n, int64_t channels, const int64_t *dst, const int64_t *src,
                              ignis__address addresses, bool shares)
{
    int64_t pack = ignis__pack_elements(dtype), packs;
    images->packed = channels % pack == 0 && addresses % 16 == 0;
    images->share = shares && images->packed && channels % (4 * 8 * pack) == 0 ? 4 : 1;
    packs = images->packed ? channels / pack / images->share : channels;
    images->packs = ignis__divisor_of(packs);
    images->width = ignis__divisor_of(dst[1]);
    images->height = ignis__divisor_of(dst[0]);
    images->src_height = (int)src[0];
    images->src_width = (int)src[1];
    images->channels = channels;
    images->count = n * dst[0] * dst[1] * packs;
}

static void ignis__images_launch(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, const ignis__images *images, void **params)
{
    ignis__op_launch_row(op, builtin, dtype, ignis__clamp(ignis__ceil_div(images->count, 256), 0, INT32_MAX), 256, params);
}

/*  What the gradient of a pool, or of upsampling, needs to know; sizes of the input and of the result. */
typedef struct ignis__pool_params {
    const char *call;
    bool is_max;
    ignis_shape shape;
    int64_t n, channels, in[2], out[2];
    ignis__pooling pooling;
} ignis__pool_params;

/*  The addresses of a pool's arrays, by or; there are no packs of indices of 4 bytes, as if one of them were odd. */
static ignis__address ignis__pool_addresses(const ignis__pooling *pooling, ignis__address addresses)
{
    return addresses | (ignis__address)(pooling->index_bytes == 4);
}

static ignis_status ignis__pool_backward(const ignis_backward_args *args)
{
    const ignis__pool_params *p = (const ignis__pool_params *)args->params;
    ignis__pooling pooling = p->pooling;
    ignis__address dx, dy, index = 0;
    ignis__array *gradient;
    ignis__op op;
    void *max[] = {&dx, &dy, &index, &pooling}, *average[] = {&dx, &dy, &pooling};
    if (!ignis__op_begin_backward(&op, p->call, args))
        return ignis__failed();
    gradient = ignis__op_new(&op, &p->shape, op.in[0]->dtype);
    dx = ignis__op_write(&op, gradient);
    dy = ignis__op_read(&op, op.in[0]);
    if (p->is_max)
        index = ignis__op_read(&op, op.in[1]);
    ignis__images_set(&pooling.images, op.in[0]->dtype, p->n, p->channels, p->in, p->out, ignis__pool_addresses(&pooling, dx | dy | index),
                      false);
    ignis__images_launch(&op, p->is_max ? IGNIS__BUILTIN_MAX_POOL_BACKWARD : IGNIS__BUILTIN_AVG_POOL_BACKWARD, op.in[0]->dtype,
                         &pooling.images, p->is_max ? max : average);
    return ignis__op_give(&op, args, 1, &gradient);
}

/*  Fills in the windows along a dimension, and how many there are. Reports what does not fit. */
static bool ignis__pool_windows(ignis__op *op, const ignis_pool_desc *desc, int given, int dim, ignis__pool_params *p)
{
    int64_t window = desc->window[given], stride = desc->stride[given] ? desc->stride[given] : window, padding = desc->padding[given], room;
    if (window < 1 || window >= IGNIS__IMAGE_LIMIT)
        return ignis__op_fail(op, window < 1 ? IGNIS_DIAG_BAD_NUMBER : IGNIS_DIAG_UNSUPPORTED, "desc->window[%d] is %lld, %s", given,
                              (long long)window, window < 1 ? "below 1" : "2^28 or more");
    if (stride < 0)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->stride[%d] is %lld, below 0", given, (long long)stride);
    if (padding < 0 || padding > window / 2)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->padding[%d] is %lld, outside of 0 to %lld, half of the window", given,
                              (long long)padding, (long long)(window / 2));
    room = p->in[dim] + 2 * padding - window;
    if (room < 0 || p->in[dim] == 0)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "x is %s, too small for a window of %lld and a padding of %lld",
                              ignis__shape_write(&op->in[0]->shape).text, (long long)window, (long long)padding);
    stride = stride < 4 * IGNIS__IMAGE_LIMIT ? stride : 4 * IGNIS__IMAGE_LIMIT; /* which is more than there can be room for */
    p->out[dim] = room / stride + 1;
    if (desc->ceil_mode && room % stride && p->out[dim] * stride < p->in[dim] + padding)
        p->out[dim]++;
    p->pooling.window[dim] = (int)window;
    p->pooling.padding[dim] = (int)padding;
    p->pooling.stride[dim] = ignis__divisor_of(stride);
    return true;
}

static ignis_tensor ignis__pool_images(const char *call, bool is_max, ignis_tensor tensor, const ignis_pool_desc *desc)
{
    ignis__pool_params p = IGNIS__ZERO;
    ignis__pooling *pooling = &p.pooling;
    ignis__address x, y = 0, index = 0;
    ignis__array *out = NULL, *places;
    ignis_shape shape;
    ignis_dtype dtype;
    int64_t second[3];
    bool is_signal;
    ignis__op op;
    void *max[] = {&y, &index, &x, pooling}, *average[] = {&y, &x, pooling};
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    dtype = op.in[0]->dtype;
    p.call = call;
    p.is_max = is_max;
    p.shape = op.in[0]->shape;
    is_signal = p.shape.ndim == 3;
    if (!desc)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "desc is null");
    if (op.ok) {
        second[0] = desc->window[1];
        second[1] = desc->stride[1];
        second[2] = desc->padding[1];
        pooling->window[0] = 1; /* of a signal's rows, which are one */
        pooling->stride[0] = ignis__divisor_of(1);
        p.out[0] = 1;
    }
    if (op.ok && ignis__image_check(&op, second, 3, &p.n, p.in, &p.channels) && ignis__pool_windows(&op, desc, is_signal ? 0 : 1, 1, &p) &&
        (is_signal || ignis__pool_windows(&op, desc, 0, 0, &p))) {
        pooling->exclude_padding = desc->exclude_padding;
        shape = ignis__image_shape(&p.shape, p.out);
        out = ignis__op_new(&op, &shape, dtype);
        x = ignis__op_read(&op, op.in[0]);
        y = ignis__op_write(&op, out);
        if (is_max && op.records && out) {
            pooling->index_bytes = (int64_t)pooling->window[0] * pooling->window[1] <= 256 ? 1 : 4;
            places = ignis__op_new_row(&op, out->numel, pooling->index_bytes == 1 ? IGNIS_U8 : IGNIS_I32);
            index = ignis__op_write(&op, places);
            ignis__op_save(&op, places);
        }
        ignis__images_set(&pooling->images, dtype, p.n, p.channels, p.out, p.in, ignis__pool_addresses(pooling, x | y | index),
                          !is_max && pooling->window[0] == 2 && pooling->window[1] == 2);
        ignis__images_launch(&op, is_max ? IGNIS__BUILTIN_MAX_POOL : IGNIS__BUILTIN_AVG_POOL, dtype, &pooling->images,
                             is_max ? max : average);
    }
    return ignis__op_end_recorded(&op, out, is_max ? "max_pool" : "avg_pool", ignis__pool_backward, &p, sizeof p);
}

IGNIS_API ignis_tensor ignis_max_pool(ignis_tensor x, const ignis_pool_desc *desc)
{
    return ignis__pool_images("ignis_max_pool", true, x, desc);
}
IGNIS_API ignis_tensor ignis_avg_pool(ignis_tensor x, const ignis_pool_desc *desc)
{
    return ignis__pool_images("ignis_avg_pool", false, x, desc);
}

typedef struct ignis__upsample_params {
    ignis_shape shape;
    int64_t n, channels, in[2], out[2];
    ignis__resampling resampling;
} ignis__upsample_params;

static ignis_status ignis__upsample_backward(const ignis_backward_args *args)
{
    const ignis__upsample_params *p = (const ignis__upsample_params *)args->params;
    ignis__resampling resampling = p->resampling;
    ignis__address dx, dy;
    ignis__array *gradient;
    ignis__op op;
    void *params[] = {&dx, &dy, &resampling};
    if (!ignis__op_begin_backward(&op, "ignis_upsample", args))
        return ignis__failed();
    gradient = ignis__op_new(&op, &p->shape, op.in[0]->dtype);
    dx = ignis__op_write(&op, gradient);
    dy = ignis__op_read(&op, op.in[0]);
    ignis__images_set(&resampling.images, op.in[0]->dtype, p->n, p->channels, p->in, p->out, dx | dy, false);
    ignis__images_launch(&op, IGNIS__BUILTIN_UPSAMPLE_BACKWARD, op.in[0]->dtype, &resampling.images, params);
    return ignis__op_give(&op, args, 1, &gradient);
}

/*  Where the positions of a dimension lie. A single pixel has no corners to be aligned, and all positions are that one. */
static void ignis__scaling_set(ignis__scaling *s, int64_t in, int64_t out, const ignis_upsample_desc *desc)
{
    bool is_linear = desc->mode == IGNIS_UPSAMPLE_LINEAR, aligned = is_linear && desc->align_corners && in > 1;
    s->in = (int)in;
    s->out = (int)out;
    s->is_linear = is_linear;
    s->step = (int)(aligned ? in - 1 : is_linear ? 2 * in : in);
    s->start = is_linear && !aligned ? (int)(in - out) : 0;
    s->den = ignis__divisor_of(aligned ? (out > 1 ? out - 1 : 1) : is_linear ? 2 * out : out);
    s->by_step = ignis__divisor_of(s->step);
}

IGNIS_API ignis_tensor ignis_upsample(ignis_tensor tensor, const ignis_upsample_desc *desc)
{
    ignis__upsample_params p = IGNIS__ZERO;
    ignis__address x, y = 0;
    ignis__array *out = NULL;
    ignis_shape shape;
    ignis__op op;
    int d;
    void *params[] = {&y, &x, &p.resampling};
    if (!ignis__op_begin(&op, "ignis_upsample", 1, &tensor))
        return ignis__no_tensor();
    p.shape = op.in[0]->shape;
    if (!desc)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "desc is null");
    else if ((int)desc->mode < 0 || desc->mode >= IGNIS_UPSAMPLE_COUNT)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "desc->mode is %d, which is no mode", (int)desc->mode);
    else if (desc->align_corners && desc->mode != IGNIS_UPSAMPLE_LINEAR)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "desc->align_corners is set, which only IGNIS_UPSAMPLE_LINEAR can do");
    else
        ignis__image_check(&op, &desc->size[1], 1, &p.n, p.in, &p.channels);
    for (d = p.shape.ndim == 4 ? 0 : 1, p.out[0] = 1; op.ok && d < 2; d++) {
        int given = p.shape.ndim == 4 ? d : 0;
        p.out[d] = desc->size[given];
        if (p.out[d] < 1 || p.out[d] >= IGNIS__IMAGE_LIMIT)
            ignis__op_fail(&op, p.out[d] < 1 ? IGNIS_DIAG_BAD_NUMBER : IGNIS_DIAG_UNSUPPORTED, "desc->size[%d] is %lld, %s", given,
                           (long long)p.out[d], p.out[d] < 1 ? "below 1" : "2^28 or more");
        else if (p.in[d] == 0)
            ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "x is %s, which has no pixels", ignis__shape_write(&p.shape).text);
    }
    if (op.ok) {
        shape = ignis__image_shape(&p.shape, p.out);
        out = ignis__op_new(&op, &shape, op.in[0]->dtype);
        x = ignis__op_read(&op, op.in[0]);
        y = ignis__op_write(&op, out);
        for (d = 0; d < 2; d++)
            ignis__scaling_set(&p.resampling.dim[d], p.in[d], p.out[d], desc);
        ignis__images_set(&p.resampling.images, op.in[0]->dtype, p.n, p.channels, p.out, p.in, x | y, true);
        ignis__images_launch(&op, IGNIS__BUILTIN_UPSAMPLE, op.in[0]->dtype, &p.resampling.images, params);
    }
    return ignis__op_end_recorded(&op, out, "upsample", ignis__upsample_backward, &p, sizeof p);
}

/* >>ops.image - batch_norm, group_norm ----------------------------------------------------------------------------------------- */

/*  The parameter of the kernels: see kernels/channel_norm.cu. */
typedef struct ignis__channel_sizes {
    int64_t outer, rows, channels, groups, part_length, parts;
    int packed;
} ignis__channel_sizes;

typedef struct ignis__channel_norm {
    const char *call;
    bool given; /* mean and variance do not depend on x */
    ignis__channel_sizes sizes;
} ignis__channel_norm;

/*  How the kernels that go through all of x share it out. addresses: of all arrays of its type, by or. */
static void ignis__channels_plan(ignis__op *op, ignis_dtype dtype, ignis__address addresses, ignis__channel_sizes *s, unsigned *threads,
                                 int64_t *blocks)
{
    int64_t pack = ignis__pack_elements(dtype), packs, tiles;
    s->packed = s->channels % pack == 0 && addresses % 16 == 0;
    packs = s->packed ? s->channels / pack : s->channels;
    threads[0] = (unsigned)ignis__power_of_2_up(ignis__clamp(packs, 1, 32));
    threads[1] = 256 / threads[0];
    tiles = ignis__ceil_div(packs, threads[0]) * s->outer;
    s->parts =
        ignis__clamp(4 * (int64_t)op->work.device->info.multiprocessors / tiles, 1, ignis__ceil_div(s->rows, 4 * (int64_t)threads[1]));
    s->part_length = ignis__ceil_div(s->rows, s->parts);
    s->parts = ignis__ceil_div(s->rows, s->part_length);
    *blocks = ignis__clamp(tiles * s->parts, 1, INT32_MAX);
}

/*  Kernels that have a warp for each group. */
static void ignis__channels_launch_groups(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, const ignis__channel_sizes *s,
                                          void **params)
{
    ignis__op_launch_row(op, builtin, dtype, ignis__clamp(ignis__ceil_div(s->outer * s->groups, 8), 1, INT32_MAX), 256, params);
}

/*  Saved: x, w, means, rstds. */
static ignis_status ignis__channel_norm_backward(const ignis_backward_args *args)
{
    const ignis__channel_norm *p = (const ignis__channel_norm *)args->params;
    ignis__channel_sizes s = p->sizes;
    ignis__array *gradients[3] = {NULL, NULL, NULL};
    ignis__address dx = 0, dw = 0, db = 0, dy, x, w, mean, rstd, grads = 0, products = 0, average_g = 0, average_gh = 0;
    ignis_dtype dtype, wide;
    unsigned threads[2];
    int64_t blocks;
    ignis__op op;
    int i;
    void *sums[] = {&grads, &products, &dy, &x, &mean, &rstd, &s}, *weights[] = {&dw, &db, &grads, &products, &s},
         *averages[] = {&average_g, &average_gh, &grads, &products, &w, &s},
         *backward[] = {&dx, &dy, &x, &w, &mean, &rstd, &average_g, &average_gh, &s};
    if (!ignis__op_begin_backward(&op, p->call, args))
        return ignis__failed();
    dtype = op.in[1]->dtype;
    wide = ignis__wide_dtype(dtype);
    for (i = 0; i < 3; i++) /* x, w, b */
        if (args->needed[i])
            gradients[i] = ignis__op_new_like(&op, op.in[i ? 2 : 1]);
    if (op.in[1]->numel == 0) {
        for (i = 1; i < 3; i++)
            if (gradients[i])
                ignis__op_zero(&op, gradients[i]);
        return ignis__op_give(&op, args, 3, gradients);
    }
    dy = ignis__op_read(&op, op.in[0]);
    x = ignis__op_read(&op, op.in[1]);
    w = ignis__op_read(&op, op.in[2]);
    mean = ignis__op_read(&op, op.in[3]);
    rstd = ignis__op_read(&op, op.in[4]);
    dx = gradients[0] ? ignis__op_write(&op, gradients[0]) : 0;
    dw = gradients[1] ? ignis__op_write(&op, gradients[1]) : 0;
    db = gradients[2] ? ignis__op_write(&op, gradients[2]) : 0;
    ignis__channels_plan(&op, dtype, dx | dy | x, &s, threads, &blocks);
    if (gradients[1] || gradients[2] || !p->given) {
        grads = ignis__op_write(&op, ignis__op_new_row(&op, s.outer * s.parts * s.channels, wide));
        products = ignis__op_write(&op, ignis__op_new_row(&op, s.outer * s.parts * s.channels, wide));
        ignis__op_launch(&op, IGNIS__BUILTIN_CHANNEL_SUMS, dtype, NULL, blocks, 1, 1, threads[0], threads[1], 0, sums);
    }
    if (gradients[1] || gradients[2])
        ignis__op_launch_row(&op, IGNIS__BUILTIN_CHANNEL_WEIGHTS, dtype, ignis__ceil_div(s.channels, 32), 256, weights);
    if (gradients[0] && !p->given) {
        average_g = ignis__op_write(&op, ignis__op_new_row(&op, s.outer * s.groups, wide));
        average_gh = ignis__op_write(&op, ignis__op_new_row(&op, s.outer * s.groups, wide));
        ignis__channels_launch_groups(&op, IGNIS__BUILTIN_CHANNEL_AVERAGES, dtype, &s, averages);
    }
    if (gradients[0])
        ignis__op_launch(&op, IGNIS__BUILTIN_CHANNEL_BACKWARD, dtype, NULL, blocks, 1, 1, threads[0], threads[1], 0, backward);
    return ignis__op_give(&op, args, 3, gradients);
}

/*  Ends an operation on x, w and b, whose sizes are known. running: mean and variance, held; null: none. */
static ignis_tensor ignis__channel_norm_end(ignis__op *op, const char *name, ignis__channel_norm *p, double momentum, double eps,
                                            ignis__array *const *running)
{
    static const char *const names[] = {"x", "w", "b"};
    ignis__channel_sizes s = p->sizes;
    ignis_dtype dtype = op->in[0]->dtype, wide = ignis__wide_dtype(dtype);
    ignis__array *out = NULL, *means = NULL, *rstds = NULL;
    ignis__address x, y, w, b, mean, rstd, part_means = 0, squares = 0, running_mean = 0, running_var = 0;
    unsigned threads[2];
    int64_t blocks;
    int i;
    void *statistics[] = {&part_means, &squares, &x, &s}, *apply[] = {&y, &x, &w, &b, &mean, &rstd, &s},
         *finish[] = {&mean, &rstd, &part_means, &squares, &running_mean, &running_var, &momentum, &eps, &s, &x};
    for (i = 1; i < 3 && op->ok; i++)
        if (ignis__op_same_dtype(op, i, names[i]))
            ignis__op_is_row(op, i, names[i], s.channels);
    if (op->ok && s.channels >= IGNIS__IMAGE_LIMIT)
        ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "x is %s, with 2^28 channels or more", ignis__shape_write(&op->in[0]->shape).text);
    ignis__op_eps(op, &eps);
    out = ignis__op_new_like(op, op->in[0]);
    means = ignis__op_new_rows(op, s.outer, s.groups, wide);
    rstds = ignis__op_new_rows(op, s.outer, s.groups, wide);
    x = ignis__op_read(op, op->in[0]);
    w = ignis__op_read(op, op->in[1]);
    b = ignis__op_read(op, op->in[2]);
    y = ignis__op_write(op, out);
    mean = ignis__op_write(op, means);
    rstd = ignis__op_write(op, rstds);
    if (running) {
        running_mean = ignis__op_read(op, running[0]);
        running_var = ignis__op_read(op, running[1]);
        if (!p->given) {
            running_mean = ignis__op_write(op, running[0]);
            running_var = ignis__op_write(op, running[1]);
        }
    }
    if (op->ok && out->numel > 0) {
        ignis__channels_plan(op, dtype, x | y, &s, threads, &blocks);
        if (!p->given) {
            part_means = ignis__op_write(op, ignis__op_new_row(op, s.outer * s.parts * s.channels, wide));
            squares = ignis__op_write(op, ignis__op_new_row(op, s.outer * s.parts * s.channels, wide));
            ignis__op_launch(op, IGNIS__BUILTIN_CHANNEL_STATISTICS, dtype, NULL, blocks, 1, 1, threads[0], threads[1], 0, statistics);
        }
        ignis__channels_launch_groups(op, IGNIS__BUILTIN_CHANNEL_FINISH, dtype, &s, finish);
        ignis__op_launch(op, IGNIS__BUILTIN_CHANNEL_APPLY, dtype, NULL, blocks, 1, 1, threads[0], threads[1], 0, apply);
    }
    ignis__op_save_inputs(op, 0, 2);
    ignis__op_save(op, means);
    ignis__op_save(op, rstds);
    return ignis__op_end_recorded(op, out, name, ignis__channel_norm_backward, p, sizeof *p);
}

/*  The running averages, held. Reports what does not fit. */
static bool ignis__batch_norm_running(ignis__op *op, const ignis_batch_norm_desc *desc, int64_t channels, ignis__array **running)
{
    static const char *const names[] = {"running_mean", "running_var"};
    ignis_dtype wide = ignis__wide_dtype(op->in[0]->dtype);
    int i;
    for (i = 0; i < 2 && op->ok; i++) {
        running[i] = ignis__array_hold(op->work.call, i ? desc->running_var : desc->running_mean);
        op->ok = running[i] != NULL;
        if (!op->ok)
            return false;
        if (ignis__op_same_device(op, running[i], names[i]) && running[i]->dtype != wide)
            ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "desc->%s is %s; %s is needed for x of %s", names[i],
                           ignis__dtypes[running[i]->dtype].name, ignis__dtypes[wide].name, ignis__dtypes[op->in[0]->dtype].name);
        else if (running[i]->shape.ndim != 1 || running[i]->numel != channels)
            ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "desc->%s is %s; x is %s, and needs [%lld]", names[i],
                           ignis__shape_write(&running[i]->shape).text, ignis__shape_write(&op->in[0]->shape).text, (long long)channels);
    }
    return op->ok;
}

IGNIS_API ignis_tensor ignis_batch_norm(ignis_tensor x, ignis_tensor w, ignis_tensor b, const ignis_batch_norm_desc *desc)
{
    static const char call[] = "ignis_batch_norm";
    ignis_tensor inputs[] = {x, w, b}, result;
    ignis_batch_norm_desc d = IGNIS__ZERO;
    ignis__array *running[2] = {NULL, NULL};
    ignis__channel_norm p = IGNIS__ZERO;
    ignis__op op;
    bool has;
    int i;
    if (!ignis__op_begin(&op, call, 3, inputs))
        return ignis__no_tensor();
    d = desc ? *desc : d;
    has = d.running_mean.id != 0 || d.running_var.id != 0;
    p.call = call;
    p.given = d.eval;
    p.sizes.outer = 1;
    p.sizes.channels = p.sizes.groups = op.in[0]->shape.dim[op.in[0]->shape.ndim - 1];
    p.sizes.rows = ignis__shape_product(&op.in[0]->shape, 0, op.in[0]->shape.ndim - 1);
    ignis__op_is_float(&op, 0, "x");
    if (op.ok && has && (d.running_mean.id == 0 || d.running_var.id == 0))
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "desc->%s is given alone", d.running_mean.id ? "running_mean" : "running_var");
    else if (op.ok && d.eval && !has)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "desc->running_mean and running_var are not given, and desc->eval is set");
    else if (op.ok && !(d.momentum >= 0 && d.momentum <= 1))
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "desc->momentum is %g, outside of 0 to 1", d.momentum);
    else if (op.ok && !d.eval && p.sizes.rows < 2)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "x is %s; a channel has %lld elements, and needs 2 for a variance",
                       ignis__shape_write(&op.in[0]->shape).text, (long long)p.sizes.rows);
    has = has && ignis__batch_norm_running(&op, &d, p.sizes.channels, running);
    if (!d.eval && ignis__tensor_thread_now()->random_again)
        has = false; /* a checkpoint runs its function again, and they have moved the first time */
    result = ignis__channel_norm_end(&op, "batch_norm", &p, d.momentum == 0 ? 0.1 : d.momentum, d.eps, has ? running : NULL);
    for (i = 0; i < 2; i++)
        if (running[i])
            ignis__array_drop(call, running[i]);
    return result;
}

IGNIS_API ignis_tensor ignis_group_norm(ignis_tensor x, int groups, ignis_tensor w, ignis_tensor b, double eps)
{
    static const char call[] = "ignis_group_norm";
    ignis_tensor inputs[] = {x, w, b};
    const ignis_shape *shape;
    ignis__channel_norm p = IGNIS__ZERO;
    ignis__op op;
    if (!ignis__op_begin(&op, call, 3, inputs))
        return ignis__no_tensor();
    shape = &op.in[0]->shape;
    p.call = call;
    p.sizes.outer = shape->dim[0];
    p.sizes.channels = shape->dim[shape->ndim - 1];
    p.sizes.groups = groups;
    p.sizes.rows = shape->ndim > 1 ? ignis__shape_product(shape, 1, shape->ndim - 1) : 1;
    ignis__op_is_float(&op, 0, "x");
    if (op.ok && shape->ndim < 2)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "x is %s; [n, ..., channels] is needed", ignis__shape_write(shape).text);
    else if (op.ok && groups < 1)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "groups is %d, below 1", groups);
    else if (op.ok && p.sizes.channels % groups != 0)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "x is %s, whose channels are not a multiple of %d groups",
                       ignis__shape_write(shape).text, groups);
    return ignis__channel_norm_end(&op, "group_norm", &p, 0, eps, NULL);
}

/* >>ops.rope --------------------------------------------------------------------------------------------------------------- */

#define IGNIS__ROPE_HALF 256

/*  The parameters of the kernel; the last one is passed by value, as the launch may be captured and the memory of a table be gone. */
typedef struct ignis__rope {
    int64_t rows, seq, offset;
    int heads, half;
    double frequencies[IGNIS__ROPE_HALF];
} ignis__rope;

/*  The root of x of some degree, by Newton's method: the C library's pow would have to be linked. */
static double ignis__root(double x, int degree)
{
    double root = 1, power, factor, step = 1;
    int i, exponent;
    for (i = 0; i < 2000 && (step > 1e-15 || step < -1e-15); i++) {
        power = 1;
        factor = root;
        for (exponent = degree; exponent; exponent >>= 1) {
            power *= exponent & 1 ? factor : 1;
            factor *= factor;
        }
        step = (x / power - 1) / degree;
        step = step > 0.5 ? 0.5 : step;
        root *= 1 + step;
    }
    return root;
}

/*  Multiplies a number, whose digits go on in low, by another. The error of the product is exact (Dekker: A Floating-Point Technique for
    Extending the Available Precision, 1971). */
static void ignis__multiply_long(double *x, double *low, double y, double y_low)
{
    double product = *x * y, x_most = *x * 134217729, y_most = y * 134217729, error;
    x_most -= x_most - *x;
    y_most -= y_most - y;
    error = x_most * y_most - product;
    error += x_most * (y - y_most) + (*x - x_most) * y_most;
    error += (*x - x_most) * (y - y_most) + *x * y_low + *low * y;
    *x = product + error;
    *low = error - (*x - product);
}

/*  The frequencies base^(-i / count). exact: for angles in f64, for which powers of a root that is rounded are off, the more so the higher. */
static void ignis__rope_frequencies(double *frequencies, int count, double base, bool exact)
{
    double ratio = ignis__root(1 / base, count), ratio_low = 0, power = base, power_low = 0, low = 0;
    int i;
    for (i = 0; exact && i < count; i++)
        ignis__multiply_long(&power, &power_low, ratio, 0);
    if (exact)
        ratio_low = ratio * ((1 - power - power_low) / count);
    frequencies[0] = 1;
    for (i = 1; i < count; i++) {
        frequencies[i] = frequencies[i - 1];
        if (exact)
            ignis__multiply_long(&frequencies[i], &low, ratio, ratio_low);
        else
            frequencies[i] *= ratio;
    }
}

/*  Rounds frequencies for types whose angles are in f32. Returns `to`. */
static float *ignis__rope_floats(float *to, const double *frequencies)
{
    int i;
    for (i = 0; i < IGNIS__ROPE_HALF; i++)
        to[i] = (float)frequencies[i];
    return to;
}

/*  Turns the heads at the beginning of rows of x into rows of y, perhaps x. own: frequencies on the device; null: those of the parameters. */
static void ignis__rope_turn(ignis__op *op, ignis__rope *rope, ignis_dtype dtype, ignis__address y, int64_t y_row, ignis__address x,
                             int64_t x_row, ignis__array *own, double direction)
{
    ignis__address table = own ? ignis__op_read(op, own) : 0;
    int64_t pack = ignis__pack_elements(dtype), threads;
    int own_is_wide = own && own->dtype == IGNIS_F64;
    int packed = !own_is_wide && rope->half % pack == 0 && (x_row | y_row) % pack == 0 && (x | y) % 16 == 0;
    float frequencies[IGNIS__ROPE_HALF];
    void *params[] = {&y,           &x,          &y_row,     &x_row,  &rope->rows, &rope->seq,   &rope->offset,
                      &rope->heads, &rope->half, &direction, &packed, &table,      &own_is_wide, rope->frequencies};
    if (dtype != IGNIS_F64)
        params[13] = ignis__rope_floats(frequencies, rope->frequencies);
    threads = rope->rows * (packed ? rope->half / pack : rope->half) * ((rope->heads + 1) / 2); /* a thread turns 2 heads */
    ignis__op_launch_row(op, IGNIS__BUILTIN_ROPE, dtype, ignis__ceil_div(threads, 256), 256, params);
}

/*  The same for whole rows, from the operation's input to an array like it. */
static void ignis__rope_run(ignis__op *op, ignis__rope *rope, ignis__array *out, ignis__array *own, double direction)
{
    ignis__address x = ignis__op_read(op, op->in[0]), y = ignis__op_write(op, out);
    int64_t width = (int64_t)2 * rope->heads * rope->half;
    ignis__rope_turn(op, rope, op->in[0]->dtype, y, width, x, width, own, direction);
}

static ignis_status ignis__rope_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *dx;
    ignis__rope rope;
    if (!ignis__op_begin_backward(&op, "ignis_rope", args))
        return ignis__failed();
    memcpy(&rope, args->params, sizeof rope);
    dx = ignis__op_new_like(&op, op.in[0]);
    ignis__rope_run(&op, &rope, dx, args->saved_count ? op.in[1] : NULL, -1);
    return ignis__op_give(&op, args, 1, &dx);
}

/*  Whether the caller's frequencies on the device fit heads of that many pairs. */
static bool ignis__rope_own_check(ignis__op *op, const ignis_rope_desc *desc, const ignis__array *own, int pairs)
{
    if (desc->inv_freq || desc->inv_freq_f64 || desc->inv_freq_count)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "both desc->inv_freq%s and desc->inv_freq_array are given",
                              desc->inv_freq_f64 ? "_f64" : "");
    if (!ignis__op_same_device(op, own, "inv_freq_array"))
        return false;
    if (own->dtype != IGNIS_F32 && (own->dtype != IGNIS_F64 || op->in[0]->dtype != IGNIS_F64))
        return ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "desc->inv_freq_array is %s; f32 is needed%s", ignis__dtypes[own->dtype].name,
                              op->in[0]->dtype == IGNIS_F64 ? ", or f64" : "");
    if (own->numel != pairs)
        return ignis__op_fail(op, IGNIS_DIAG_COUNT_MISMATCH, "desc->inv_freq_array is %s; heads of %d elements have %d frequencies",
                              ignis__shape_write(&own->shape).text, 2 * pairs, pairs);
    return true;
}

/*  Fills in what the kernel needs, for heads at the beginning of the input's rows. Reports what does not fit. */
static bool ignis__rope_prepare(ignis__op *op, const ignis_rope_desc *desc, const ignis__array *own, int heads, int64_t head_dim,
                                ignis__rope *rope)
{
    const ignis_shape *shape = &op->in[0]->shape;
    double base;
    int i;
    memset(rope, 0, sizeof *rope);
    base = desc->base == 0 ? 10000.0 : desc->base;
    if (head_dim % 2 != 0)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "%s has heads of %lld elements, which do not turn in pairs",
                              ignis__shape_write(shape).text, (long long)head_dim);
    if (head_dim > 2 * IGNIS__ROPE_HALF) /* which have no room in the parameters */
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "heads have %lld elements, more than %d", (long long)head_dim,
                              2 * IGNIS__ROPE_HALF);
    if (!(base > 0 && base < 1e300))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->base is %g, not a positive number", desc->base);
    if (desc->pos_offset > INT32_MAX || desc->pos_offset < -INT32_MAX)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->pos_offset is %lld, beyond 2^31", (long long)desc->pos_offset);
    rope->heads = heads;
    rope->half = (int)(head_dim / 2);
    rope->seq = shape->ndim > 1 ? shape->dim[shape->ndim - 2] : 1;
    rope->rows = op->in[0]->numel / shape->dim[shape->ndim - 1];
    rope->offset = desc->pos_offset;
    if (own)
        return ignis__rope_own_check(op, desc, own, rope->half);
    if (desc->inv_freq && desc->inv_freq_f64)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "both desc->inv_freq and desc->inv_freq_f64 are given");
    if ((desc->inv_freq || desc->inv_freq_f64 || desc->inv_freq_count) && desc->inv_freq_count != rope->half)
        return ignis__op_fail(op, IGNIS_DIAG_COUNT_MISMATCH, "desc->inv_freq_count is %d; heads of %d elements have %d frequencies",
                              desc->inv_freq_count, 2 * rope->half, rope->half);
    if (desc->inv_freq_count && !desc->inv_freq && !desc->inv_freq_f64)
        return ignis__op_fail(op, IGNIS_DIAG_NULL_ARGUMENT, "desc->inv_freq is null");
    for (i = 0; i < desc->inv_freq_count; i++)
        rope->frequencies[i] = desc->inv_freq ? (double)desc->inv_freq[i] : desc->inv_freq_f64[i];
    if (!desc->inv_freq_count)
        ignis__rope_frequencies(rope->frequencies, rope->half, base, op->in[0]->dtype == IGNIS_F64);
    return true;
}

/*  The frequencies that the caller has on the device, held; null: none, or the operation has failed. */
static ignis__array *ignis__rope_own(ignis__op *op, const ignis_rope_desc *desc)
{
    ignis__array *own = NULL;
    if (op->ok && desc->inv_freq_array.id)
        op->ok = (own = ignis__array_hold(op->work.call, desc->inv_freq_array)) != NULL;
    return own;
}

IGNIS_API ignis_tensor ignis_rope(ignis_tensor tensor, const ignis_rope_desc *desc)
{
    static const char call[] = "ignis_rope";
    ignis__op op;
    ignis__rope rope;
    ignis__array *out = NULL, *own = NULL;
    ignis_tensor result;
    int64_t width;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    width = op.in[0]->shape.dim[op.in[0]->shape.ndim - 1];
    if (!desc)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "desc is null");
    else if (desc->num_heads < 1)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "desc->num_heads is %d, below 1", desc->num_heads);
    else if (ignis__op_is_float(&op, 0, "x") && (width == 0 || width % (2 * (int64_t)desc->num_heads) != 0))
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS,
                       "x is %s; its last dimension has to be %d heads of an even number of elements, which turn in pairs",
                       ignis__shape_write(&op.in[0]->shape).text, desc->num_heads);
    else
        own = ignis__rope_own(&op, desc);
    if (op.ok && ignis__rope_prepare(&op, desc, own, desc->num_heads, width / desc->num_heads, &rope)) {
        out = ignis__op_new_like(&op, op.in[0]);
        ignis__rope_run(&op, &rope, out, own, 1);
        if (own && op.records) /* through a view: the array itself stays the caller's */
            ignis__op_save(&op, ignis__op_view(&op, own, &own->shape, own->numel, 0));
    }
    result = ignis__op_end_recorded(&op, out, "rope", ignis__rope_backward, &rope, sizeof rope);
    if (own)
        ignis__array_drop(call, own);
    return result;
}

/* >>ops.sort - radix sort ------------------------------------------------------------------------------------------------------ */

/*  Rows [rows, n] of elements, with their positions: lists in pairs, of which each pass reads one and writes the other. See kernels/sort.cu. */
typedef struct ignis__radix {
    ignis_dtype dtype;
    int64_t rows, n;
    ignis__address keys[2], positions[2];
} ignis__radix;

/*  Makes so many of the lists. */
static void ignis__radix_begin(ignis__op *op, ignis__radix *sort, ignis_dtype dtype, int64_t rows, int64_t n, int lists)
{
    int i;
    memset(sort, 0, sizeof *sort);
    sort->dtype = dtype;
    sort->rows = rows;
    sort->n = n;
    for (i = 0; i < lists; i++) {
        sort->keys[i] = ignis__op_write(op, ignis__op_new_row(op, rows * n, dtype));
        sort->positions[i] = ignis__op_write(op, ignis__op_new_row(op, rows * n, IGNIS_I32));
    }
}

/*  Sorts what begins at `from`, by its lowest bytes: so many passes. The first k of each row go to values and positions; without these, and
    from == keys[0], all of them are in keys[0] and positions[0] then. */
static void ignis__radix_run(ignis__op *op, ignis__radix *sort, ignis__address from, int passes, int descending, ignis__address values,
                             ignis__address positions, int64_t k)
{
    int size = (int)ignis__dtypes[sort->dtype].size, tile = 512 * (size == 8 ? 8 : 12), stride = 256 * passes, pass, shift, tiles, parts;
    int64_t blocks = sort->rows * ignis__ceil_div(sort->n, tile), digits = sort->rows * 256;
    ignis__array *zeros = ignis__op_new_row(op, passes * (digits + 256 * blocks + 1), IGNIS_I32);
    ignis__address counts, said, next, none = 0, *in = &from, *in_positions = &none;
    void *count[] = {&counts, &from, &sort->n, &parts, &passes, &descending};
    if (!zeros || blocks == 0)
        return;
    ignis__op_zero(op, zeros);
    counts = ignis__op_write(op, zeros);
    said = counts + 4 * (uint64_t)(passes * digits);
    next = said + 4 * (uint64_t)(passes * 256 * blocks);
    tiles = (int)ignis__ceil_div(sort->n, tile);
    parts = (int)ignis__ceil_div(sort->n, 4 * tile);
    ignis__op_launch_row(op, IGNIS__BUILTIN_SORT_COUNT, sort->dtype, sort->rows * parts, 512, count);
    for (pass = 0; pass < passes; pass++, counts += 1024, said += 1024 * (uint64_t)blocks, next += 4) {
        bool is_last = pass == passes - 1 && values;
        int out = from == sort->keys[0] ? 1 - pass % 2 : pass % 2;
        void *params[] = {is_last ? &values : &sort->keys[out],
                          &sort->positions[out],
                          is_last ? &positions : &none,
                          in,
                          in_positions,
                          &counts,
                          &stride,
                          &said,
                          &next,
                          &sort->n,
                          &k,
                          &tiles,
                          &shift,
                          &descending};
        shift = 8 * pass;
        ignis__op_launch(op, IGNIS__BUILTIN_SORT_PASS, sort->dtype, NULL, blocks, 1, 1, 512, 1, (size_t)tile * (size_t)(size + 4), params);
        in = &sort->keys[out];
        in_positions = &sort->positions[out];
    }
    if (!values && passes % 2) {
        sort->keys[0] = sort->keys[1];
        sort->positions[0] = sort->positions[1];
    }
}

/*  How many bytes numbers of up to this have, at least 1. */
static int ignis__radix_passes(uint64_t highest)
{
    int passes = 1;
    while (passes < 8 && highest >> (8 * passes))
        passes++;
    return passes;
}

/* >>ops.embedding ---------------------------------------------------------------------------------------------------------- */

/*  Geometry of kernels/embedding.cu. */
#define IGNIS__EMBEDDING_CHUNK 64

/*  rows [vocab, n]: at each id the sum of grad [ids, n] over all places of it, in order; adds: to what is there, without which it is 0. */
static void ignis__op_add_rows(ignis__op *op, ignis__array *rows, ignis__array *grad, ignis__array *ids, int64_t vocab, int64_t n, int adds)
{
    ignis_dtype dtype = grad->dtype;
    int64_t count = ids->numel, larger = count > 2 * vocab ? count : 2 * vocab, chunks, share, across;
    int id_bytes = (int)ignis__dtypes[ids->dtype].size, packed;
    ignis__radix sort;
    ignis__address to, from, partial, bounds, source = ignis__op_read(op, ids);
    unsigned threads;
    void *keys[] = {&sort.keys[0], &bounds, &source, &id_bytes, &count, &vocab}, *begins[] = {&bounds, &sort.keys[0], &count, &vocab};
    void *whole[] = {&to, &partial, &from, &sort.keys[0], &sort.positions[0], &count, &vocab, &n, &packed, &adds};
    void *finish[] = {&to, &partial, &bounds, &vocab, &n, &packed, &adds};
    if (!op->ok || rows->numel == 0)
        return;
    ignis__radix_begin(op, &sort, IGNIS_I32, 1, count, 2);
    bounds = ignis__op_write(op, ignis__op_new_row(op, 2 * vocab, IGNIS_I32));
    ignis__op_launch_row(op, IGNIS__BUILTIN_EMBEDDING_KEYS, dtype, ignis__ceil_div(larger, 256), 256, keys);
    ignis__radix_run(op, &sort, sort.keys[0], ignis__radix_passes((uint64_t)vocab), 0, 0, 0, 0); /* vocab: ids out of range */
    ignis__op_launch_row(op, IGNIS__BUILTIN_EMBEDDING_BOUNDS, dtype, ignis__ceil_div(count, 256), 256, begins);
    chunks = ignis__ceil_div(count, IGNIS__EMBEDDING_CHUNK);
    partial = ignis__op_write(op, ignis__op_new_row(op, 2 * chunks * n, ignis__wide_dtype(dtype)));
    from = ignis__op_read(op, grad);
    to = ignis__op_write(op, rows);
    packed = n % ignis__pack_elements(dtype) == 0 && (to | from) % 16 == 0;
    share = packed ? ignis__pack_elements(dtype) : 1;
    threads = ignis__row_threads(n, share, 256);
    across = ignis__ceil_div(n, threads * share);
    ignis__op_launch(op, IGNIS__BUILTIN_EMBEDDING_CHUNKS, dtype, NULL, chunks, across, 1, threads, 1, 0, whole);
    ignis__op_launch(op, IGNIS__BUILTIN_EMBEDDING_ROWS, dtype, NULL, ignis__clamp(vocab, 0, 65536), across, 1, threads, 1, 0, finish);
}

static ignis_status ignis__embedding_backward(const ignis_backward_args *args)
{
    const int64_t *table = (const int64_t *)args->params; /* vocab, n */
    ignis__op op;
    ignis__array *sum = ignis__walk_sum(0), *made = NULL; /* a table that is the weight of the last product, too, has a gradient by now */
    bool adds = sum && ignis__array_is_private(sum);
    if (!ignis__op_begin_backward(&op, "ignis_embedding", args))
        return ignis__failed();
    if (!adds)
        sum = made = ignis__op_new_rows(&op, table[0], table[1], op.in[0]->dtype);
    ignis__op_add_rows(&op, sum, op.in[0], op.in[1], table[0], table[1], adds);
    return ignis__op_give(&op, args, 1, &made);
}

/*  The shape of ids, with n behind it. */
static bool ignis__embedding_shape(ignis__op *op, ignis_shape *shape)
{
    const ignis__array *table = op->in[0], *ids = op->in[1];
    *shape = ids->shape;
    if (!ignis__op_is_index(op, 1, "ids"))
        return false;
    if (table->shape.ndim != 2)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "table is %s; [vocab, n] is needed", ignis__shape_write(&table->shape).text);
    if (ids->shape.ndim == IGNIS_MAX_DIMS)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_RANK, "ids is %s; the result would have more than %d dimensions",
                              ignis__shape_write(&ids->shape).text, IGNIS_MAX_DIMS);
    if (table->shape.dim[0] > INT32_MAX || table->shape.dim[1] >= (int64_t)1 << 30 || ids->numel > INT32_MAX)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED,
                              "table is %s, and ids has %lld elements; 2^31 rows or ids, or 2^30 columns, are too many",
                              ignis__shape_write(&table->shape).text, (long long)ids->numel);
    shape->dim[shape->ndim++] = table->shape.dim[1];
    return true;
}

IGNIS_API ignis_tensor ignis_embedding(ignis_tensor table, ignis_tensor ids)
{
    ignis_tensor inputs[] = {table, ids};
    ignis__op op;
    ignis_shape shape;
    ignis__array *out = NULL;
    ignis__address from, indices, to;
    ignis_dtype dtype;
    int64_t count, sizes[2]; /* vocab, n */
    int id_bytes, packed;
    void *params[] = {&to, &from, &indices, &id_bytes, &count, &sizes[0], &sizes[1], &packed};
    if (!ignis__op_begin(&op, "ignis_embedding", 2, inputs))
        return ignis__no_tensor();
    dtype = op.in[0]->dtype;
    if (ignis__op_is_float(&op, 0, "table") && ignis__embedding_shape(&op, &shape)) {
        out = ignis__op_new(&op, &shape, dtype);
        from = ignis__op_read(&op, op.in[0]);
        indices = ignis__op_read(&op, op.in[1]);
        to = ignis__op_write(&op, out);
        id_bytes = (int)ignis__dtypes[op.in[1]->dtype].size;
        count = op.in[1]->numel;
        sizes[0] = op.in[0]->shape.dim[0];
        sizes[1] = op.in[0]->shape.dim[1];
        packed = sizes[1] % ignis__pack_elements(dtype) == 0 && (from | to) % 16 == 0;
        ignis__op_launch_row(&op, IGNIS__BUILTIN_EMBEDDING, dtype, sizes[1] ? count : 0,
                             ignis__row_threads(sizes[1], ignis__row_share(dtype, packed != 0), 256), params);
    }
    ignis__op_save(&op, op.in[1]);
    return ignis__op_end_recorded(&op, out, "embedding", ignis__embedding_backward, sizes, sizeof sizes);
}

/* >>ops.index - gather, index_select, scatter_add ------------------------------------------------------------------------------ */

/*  How elements of a shape belong to an array indexed along a dimension: strides.from leads to a place, strides.to to the index. */
typedef struct ignis__indexing {
    const char *call;
    ignis_shape shape; /* of what is indexed */
    int64_t size, dim_stride;
    int dim;
    ignis__strides strides;
} ignis__indexing;

/*  strides.to is left to the caller. */
static void ignis__indexing_make(ignis__indexing *x, const char *call, const ignis_shape *indexed, int dim, const ignis_shape *shape)
{
    memset(x, 0, sizeof *x);
    x->call = call;
    x->shape = *indexed;
    x->dim = dim;
    x->size = indexed->dim[dim];
    x->strides.rank = shape->ndim;
    memcpy(x->strides.size, shape->dim, sizeof shape->dim);
    ignis__shape_strides(indexed, x->strides.from);
    x->dim_stride = x->strides.from[dim];
    x->strides.from[dim] = 0;
}

/*  GATHER: to[i] = from[place of i], 0 where the index is outside, or NaN of a type that has it. SCATTER: to[place of i] = from[i], where
    no two places are the same. */
static void ignis__op_indexed(ignis__op *op, ignis__builtin builtin, ignis__array *to, ignis__array *from, ignis__array *ids,
                              const ignis__indexing *x, int nan)
{
    ignis__address source = ignis__op_read(op, from), indices = ignis__op_read(op, ids), target = ignis__op_write(op, to);
    ignis__strided k;
    int64_t pack, size = x->size, dim_stride = x->dim_stride;
    int id_bytes = (int)ignis__dtypes[ids->dtype].size, packs, last;
    void *params[] = {&target, &source, &indices, &id_bytes, &k, &size, &dim_stride, &nan, &packs};
    if (!op->ok || !ignis__strides_merge(&x->strides, &k, false))
        return;
    pack = ignis__pack_elements(to->dtype);
    last = k.rank - 1;
    packs = builtin == IGNIS__BUILTIN_GATHER && last >= 0 && k.from[last] == 1 && k.to[last] == 0 &&
            (k.size[last] | dim_stride) % pack == 0 && (source | target) % 16 == 0 && ignis__strides_packed(k.from, k.rank, last, pack);
    if (packs) {
        k.size[last] /= pack;
        k.from[last] *= pack;
    }
    ignis__strided_finish(&k);
    ignis__op_launch_row(op, builtin, to->dtype, ignis__ceil_div(k.count, builtin == IGNIS__BUILTIN_GATHER ? 1024 : 256), 256, params);
}

/*  The rows of `to` along its last dimension, where each gets the sums of its own row of elements, n of them, and a warp can hold it; else 0. */
static int64_t ignis__scatter_rows(const ignis__op *op, const ignis__array *to, const ignis__indexing *x, int64_t *n)
{
    const ignis_device_info *info = &op->work.device->info;
    int64_t rows = x->size ? to->numel / x->size : 0;
    int i;
    *n = x->dim == x->shape.ndim - 1 ? x->strides.size[x->dim] : 0;
    for (i = 0; i < x->dim; i++)
        if (x->strides.size[i] != x->shape.dim[i])
            return 0;
    return *n && (*n <= 8192 || rows >= info->multiprocessors) && rows <= INT32_MAX &&
                   x->size * ignis__dtypes[ignis__sum_dtype(to->dtype)].size <= info->shared_per_block
               ? rows
               : 0;
}

/*  to[place of i] += from[i], in a fixed order */
static void ignis__op_scatter_add(ignis__op *op, ignis__array *to, ignis__array *from, ignis__array *ids, const ignis__indexing *x)
{
    ignis__address source = ignis__op_read(op, from), indices = ignis__op_read(op, ids), target = ignis__op_write(op, to), partial;
    ignis__strided k;
    ignis__radix sort;
    int64_t size = x->size, dim_stride = x->dim_stride, blocks, rows, n;
    int id_bytes = (int)ignis__dtypes[ids->dtype].size;
    ignis_dtype dtype;
    uint32_t none;
    void *keys[] = {&sort.keys[0], &indices, &id_bytes, &k, &size, &dim_stride, &none};
    void *sums[] = {&target, &partial, &source, &sort.keys[0], &sort.positions[0], &k.count, &none};
    void *finish[] = {&target, &partial, &sort.keys[0], &k.count, &none}, *whole[] = {&target, &source, &indices, &id_bytes, &n, &size};
    if (!op->ok || !ignis__strides_merge(&x->strides, &k, false))
        return;
    dtype = to->dtype;
    rows = ignis__scatter_rows(op, to, x, &n);
    ignis__request_builtin(IGNIS__BUILTIN_SORT_COUNT, IGNIS_I32); /* where it takes another way */
    if (rows) {
        ignis__op_launch(op, IGNIS__BUILTIN_SCATTER_ADD_ROWS, dtype, NULL, rows, 1, 1, 32, 1,
                         (size_t)(size * ignis__dtypes[ignis__sum_dtype(dtype)].size), whole);
        return;
    }
    if (to->numel > INT32_MAX || from->numel > INT32_MAX) {
        ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "%lld elements are added to %lld; 2^31 are too many", (long long)from->numel,
                       (long long)to->numel);
        return;
    }
    none = (uint32_t)to->numel;
    ignis__strided_finish(&k);
    blocks = ignis__ceil_div(k.count, 256);
    ignis__radix_begin(op, &sort, IGNIS_I32, 1, k.count, 2);
    partial = ignis__op_write(op, ignis__op_new_row(op, blocks * 16, ignis__sum_dtype(dtype)));
    ignis__op_launch_row(op, IGNIS__BUILTIN_SCATTER_KEYS, dtype, blocks, 256, keys);
    ignis__radix_run(op, &sort, sort.keys[0], ignis__radix_passes(none), 0, 0, 0, 0);
    ignis__op_launch_row(op, IGNIS__BUILTIN_SEGMENT_SUMS, dtype, blocks, 256, sums);
    ignis__op_launch_row(op, IGNIS__BUILTIN_SEGMENT_FINISH, dtype, blocks, 256, finish);
}

static ignis_status ignis__gather_backward(const ignis_backward_args *args)
{
    const ignis__indexing *x = (const ignis__indexing *)args->params;
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, x->call, args))
        return ignis__failed();
    gradient = ignis__op_new(&op, &x->shape, op.in[0]->dtype);
    if (gradient) {
        ignis__op_zero(&op, gradient);
        ignis__op_scatter_add(&op, gradient, op.in[0], op.in[1], x);
    }
    return ignis__op_give(&op, args, 1, &gradient);
}

static ignis_status ignis__scatter_add_backward(const ignis_backward_args *args)
{
    const ignis__indexing *x = (const ignis__indexing *)args->params;
    ignis__op op;
    ignis__array *gradients[3] = {NULL, NULL, NULL};
    if (args->needed[0])
        args->grad_inputs[0] = args->grad_output;
    if (!args->needed[2])
        return IGNIS_OK;
    if (!ignis__op_begin_backward(&op, x->call, args))
        return ignis__failed();
    gradients[2] = ignis__op_new(&op, &op.in[1]->shape, op.in[0]->dtype);
    if (gradients[2])
        ignis__op_indexed(&op, IGNIS__BUILTIN_GATHER, gradients[2], op.in[0], op.in[1], x, 0);
    return ignis__op_give(&op, args, 3, gradients);
}

/*  A sum of rows by index, as the embedding's; what is before the dimension is moved behind it, and back. */
static ignis_status ignis__index_select_backward(const ignis_backward_args *args)
{
    const ignis__indexing *x = (const ignis__indexing *)args->params;
    ignis__op op;
    ignis__array *gradient, *moved, *sums;
    int64_t outer = ignis__shape_product(&x->shape, 0, x->dim), inner = x->dim_stride, count;
    ignis__exchange there = {1, outer, 1, 1, inner}, back = {1, x->size, 1, outer, inner};
    ignis_shape shape;
    if (!ignis__op_begin_backward(&op, x->call, args))
        return ignis__failed();
    there.n = count = op.in[1]->numel;
    if (outer * inner >= (int64_t)1 << 30 || x->size > INT32_MAX || count > INT32_MAX)
        ignis__op_fail(&op, IGNIS_DIAG_UNSUPPORTED,
                       "the gradient of %s along dimension %d; 2^31 rows, or rows of 2^30 elements, are too many",
                       ignis__shape_write(&x->shape).text, x->dim);
    if (x->dim > 0) /* also where those before it are 1 */
        ignis__request_builtin(IGNIS__BUILTIN_TRANSPOSE_RUNS, op.in[0]->dtype);
    if (outer == 1) {
        gradient = ignis__op_new(&op, &x->shape, op.in[0]->dtype);
        if (gradient)
            ignis__op_add_rows(&op, gradient, op.in[0], op.in[1], x->size, inner, 0);
        return ignis__op_give(&op, args, 1, &gradient);
    }
    shape = IGNIS_SHAPE(op.in[0]->numel);
    moved = op.ok ? ignis__op_exchange(&op, op.in[0], &shape, &there) : NULL;
    sums = ignis__op_new_row(&op, outer * x->size * inner, op.in[0]->dtype);
    if (sums)
        ignis__op_add_rows(&op, sums, moved, op.in[1], x->size, outer * inner, 0);
    gradient = op.ok ? ignis__op_exchange(&op, sums, &x->shape, &back) : NULL;
    return ignis__op_give(&op, args, 1, &gradient);
}

typedef struct ignis__index_kind {
    const char *call, *name;
    ignis_status (*backward_fn)(const ignis_backward_args *args);
    bool row, adds; /* index_select; scatter_add */
} ignis__index_kind;

/*  The index has as many dimensions as the tensor, along dim of any size, along others of its size at most; or is a row. src is added. */
static ignis_tensor ignis__index_op(const ignis__index_kind *kind, ignis_tensor tensor, int dim, ignis_tensor index,
                                    const ignis_tensor *src)
{
    ignis_tensor inputs[] = {tensor, index, src ? *src : index};
    ignis__indexing x = IGNIS__ZERO;
    ignis__op op;
    ignis__array *out = NULL;
    ignis_shape shape, ids;
    int i;
    bool fits;
    if (!ignis__op_begin(&op, kind->call, src ? 3 : 2, inputs))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    ids = op.in[1]->shape;
    fits = ids.ndim == (kind->row ? 1 : shape.ndim);
    if (ignis__op_dim(&op, &dim, "dim") && ignis__op_is_index(&op, 1, "index"))
        for (i = 0; fits && i < ids.ndim && !kind->row; i++)
            fits = i == dim || ids.dim[i] <= shape.dim[i];
    if (op.ok && !fits)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS,
                       kind->row ? "index is %s, and not one row; the tensor is %s, and dim %d"
                                 : "index is %s, the tensor is %s; it may be larger in dimension %d only",
                       ignis__shape_write(&ids).text, ignis__shape_write(&shape).text, dim);
    if (src && ignis__op_same_dtype(&op, 2, "src") && !ignis__shape_same(&ids, &op.in[2]->shape))
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "src is %s, index is %s", ignis__shape_write(&op.in[2]->shape).text,
                       ignis__shape_write(&ids).text);
    if (op.ok) {
        int64_t count = ids.dim[0];
        if (kind->row)
            ids = shape, ids.dim[dim] = count;
        ignis__indexing_make(&x, kind->call, &shape, dim, &ids);
        if (kind->row)
            x.strides.to[dim] = 1;
        else
            ignis__shape_strides(&ids, x.strides.to);
        out = ignis__op_new(&op, kind->adds ? &shape : &ids, op.in[0]->dtype);
    }
    if (out && kind->adds) {
        ignis__op_copy(&op, out, op.in[0]);
        ignis__op_scatter_add(&op, out, op.in[2], op.in[1], &x);
    } else if (out) {
        ignis__op_indexed(&op, IGNIS__BUILTIN_GATHER, out, op.in[0], op.in[1], &x, 1);
    }
    ignis__op_save(&op, op.in[1]);
    return ignis__op_end_recorded(&op, out, kind->name, kind->backward_fn, &x, sizeof x);
}

IGNIS_API ignis_tensor ignis_gather(ignis_tensor tensor, int dim, ignis_tensor index)
{
    static const ignis__index_kind kind = {"ignis_gather", "gather", ignis__gather_backward, false, false};
    return ignis__index_op(&kind, tensor, dim, index, NULL);
}

IGNIS_API ignis_tensor ignis_index_select(ignis_tensor tensor, int dim, ignis_tensor index)
{
    static const ignis__index_kind kind = {"ignis_index_select", "index_select", ignis__index_select_backward, true, false};
    return ignis__index_op(&kind, tensor, dim, index, NULL);
}

IGNIS_API ignis_tensor ignis_scatter_add(ignis_tensor tensor, int dim, ignis_tensor index, ignis_tensor src)
{
    static const ignis__index_kind kind = {"ignis_scatter_add", "scatter_add", ignis__scatter_add_backward, false, true};
    return ignis__index_op(&kind, tensor, dim, index, &src);
}

IGNIS_API ignis_tensor ignis_one_hot(ignis_tensor ids, int64_t classes, ignis_dtype dtype)
{
    static const char call[] = "ignis_one_hot";
    ignis__op op;
    ignis__array *out = NULL;
    ignis__address indices, to;
    ignis_shape shape;
    int id_bytes;
    void *params[] = {&to, &indices, &id_bytes, &classes, NULL};
    if (!ignis__op_begin(&op, call, 1, &ids))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    op.ok = ignis__dtype_valid(call, dtype);
    if (op.ok && classes < 0)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "classes is %lld, below 0", (long long)classes);
    if (op.ok && shape.ndim == IGNIS_MAX_DIMS)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_RANK, "ids is %s; the result would have more than %d dimensions",
                       ignis__shape_write(&shape).text, IGNIS_MAX_DIMS);
    if (op.ok && ignis__op_is_index(&op, 0, "ids")) {
        shape.dim[shape.ndim++] = classes;
        out = ignis__op_new(&op, &shape, dtype);
    }
    if (out) {
        indices = ignis__op_read(&op, op.in[0]);
        to = ignis__op_write(&op, out);
        id_bytes = (int)ignis__dtypes[op.in[0]->dtype].size;
        params[4] = &out->numel;
        ignis__op_map(&op, IGNIS__BUILTIN_ONE_HOT, dtype, out->numel, params);
    }
    return ignis__op_end(&op, out, NULL);
}

/* >>ops.sort ------------------------------------------------------------------------------------------------------------------- */

/*  As ignis__op_sort_rows, for a k of at most 1024. A block selects from a row; where rows are too few to keep the device busy, blocks select
    from parts of 4096 elements first, and what they leave, a row of k elements for each part, takes the row's place until it is short. */
static void ignis__op_select(ignis__op *op, ignis_dtype dtype, ignis__address values, ignis__address positions, ignis__address from,
                             int64_t rows, int64_t n, int k, int descending)
{
    bool few_rows = rows < op->work.device->info.multiprocessors;
    ignis__builtin builtin = few_rows ? IGNIS__BUILTIN_SORT_SELECT_FEW : IGNIS__BUILTIN_SORT_SELECT;
    int items = (int)ignis__power_of_2_up(k > 64 ? k : 64), parts;
    ignis__address to, to_positions, from_positions = 0;
    void *params[] = {&to, &to_positions, &from, &from_positions, &n, &parts, &k, &items, &descending};
    size_t shared = (ignis__dtypes[dtype].size == 8 ? 16 : 8) * (size_t)items;
    for (; few_rows && n > 8192 && op->ok; n = (int64_t)parts * k, from = to, from_positions = to_positions) {
        parts = (int)ignis__ceil_div(n, 4096);
        to = ignis__op_write(op, ignis__op_new_row(op, rows * parts * k, dtype));
        to_positions = ignis__op_write(op, ignis__op_new_row(op, rows * parts * k, IGNIS_I64));
        ignis__op_launch(op, builtin, dtype, NULL, rows * parts, 1, 1, 512, 1, shared, params);
    }
    to = values;
    to_positions = positions;
    parts = 1;
    ignis__op_launch(op, builtin, dtype, NULL, rows, 1, 1, few_rows ? 512 : 256, 1, shared, params);
}

/*  values and positions [rows, k]: the first k of each of the rows [rows, n] in order. */
static void ignis__op_sort_rows(ignis__op *op, ignis__array *values, ignis__array *positions, ignis__array *from, int64_t rows, int64_t n,
                                int64_t k, int descending)
{
    ignis_dtype dtype = from->dtype;
    int size = (int)ignis__dtypes[dtype].size, n_int = (int)n, k_int = (int)k, width, items;
    size_t item = size == 8 ? 16 : size == 4 ? 8 : 4; /* bytes */
    int64_t threads = ignis__ceil_div(n, 256) * 32, most = op->work.device->info.shared_per_block / (size + 2) / 2 < 8192 ? 4096 : 8192;
    ignis__address source = ignis__op_read(op, from), to = ignis__op_write(op, values), places = ignis__op_write(op, positions);
    ignis__radix sort;
    void *few[] = {&to, &places, &source, &rows, &n_int, &width, &items, &k_int, &descending};
    void *row[] = {&to, &places, &source, &n_int, &k_int, &descending};
    if (!op->ok || rows * k == 0)
        return;
    ignis__request_builtin(IGNIS__BUILTIN_SORT_SMALL, dtype); /* for rows of any length */
    ignis__request_builtin(IGNIS__BUILTIN_SORT_COUNT, dtype);
    if (n <= 256) {
        width = (int)ignis__power_of_2_up(n);
        items = 1024;
        ignis__op_launch(op, IGNIS__BUILTIN_SORT_SMALL, dtype, NULL, ignis__ceil_div(rows, items / width), 1, 1, 256, 1,
                         item * (size_t)items, few);
    } else if (n > 4096 && k <= 1024) {
        ignis__op_select(op, dtype, to, places, source, rows, n, k_int, descending);
    } else if (n <= most) {
        ignis__op_launch(op, IGNIS__BUILTIN_SORT_ROW, dtype, NULL, rows, 1, 1, (unsigned)threads, 1, (size_t)(threads * 8 * (size + 2)),
                         row);
    } else {
        ignis__radix_begin(op, &sort, dtype, rows, n, size < 3 ? size - 1 : 2);
        ignis__radix_run(op, &sort, source, size, descending, to, places, k);
    }
}

/*  The first k of each row along a dimension; `positions` becomes where they come from. Null after a failure. */
static ignis__array *ignis__op_sort(ignis__op *op, int dim, int64_t k, int descending, ignis__array **positions)
{
    ignis__array *from = op->in[0], *values, *places;
    ignis_shape shape = from->shape, rows;
    ignis__spread s = ignis__spread_along(&shape, dim);
    ignis__exchange there = {s.outer, s.n, 1, s.inner, 1}, back = {s.outer, s.inner, 1, k, 1};
    *positions = NULL;
    if (s.n > INT32_MAX - 8192) {
        ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "dimension %d of %s is sorted; 2^31 elements are too many", dim,
                       ignis__shape_write(&shape).text);
        return NULL;
    }
    shape.dim[dim] = k;
    rows = IGNIS_SHAPE(from->numel);
    if (dim + 1 < shape.ndim) { /* also where the dimensions behind it are 1 */
        ignis__request_builtin(IGNIS__BUILTIN_TRANSPOSE_RUNS, from->dtype);
        ignis__request_builtin(IGNIS__BUILTIN_TRANSPOSE_RUNS, IGNIS_I64);
    }
    if (s.inner != 1)
        from = ignis__op_exchange(op, from, &rows, &there);
    rows = s.inner == 1 ? shape : IGNIS_SHAPE(s.outer * k * s.inner);
    values = ignis__op_new(op, &rows, op->in[0]->dtype);
    places = ignis__op_new(op, &rows, IGNIS_I64);
    if (places)
        ignis__op_sort_rows(op, values, places, from, s.outer * s.inner, s.n, k, descending);
    if (s.inner != 1 && op->ok) {
        values = ignis__op_exchange(op, values, &shape, &back);
        places = ignis__op_exchange(op, places, &shape, &back);
    }
    *positions = places;
    return op->ok ? values : NULL;
}

static ignis_status ignis__sort_backward(const ignis_backward_args *args)
{
    const ignis__indexing *x = (const ignis__indexing *)args->params;
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, x->call, args))
        return ignis__failed();
    gradient = ignis__op_new(&op, &x->shape, op.in[0]->dtype);
    if (gradient && gradient->numel != op.in[0]->numel)
        ignis__op_zero(&op, gradient);
    if (gradient)
        ignis__op_indexed(&op, IGNIS__BUILTIN_SCATTER, gradient, op.in[0], op.in[1], x, 0);
    return ignis__op_give(&op, args, 1, &gradient);
}

/*  k null: all. */
static ignis_tensor ignis__sort(const char *call, const char *name, ignis_tensor tensor, const int64_t *k, int dim, bool descending,
                                ignis_tensor *indices)
{
    ignis__indexing x = IGNIS__ZERO;
    ignis__op op;
    ignis__array *values = NULL, *positions = NULL;
    ignis_tensor result;
    ignis_rule rule;
    if (indices)
        *indices = ignis__no_tensor();
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    if (ignis__op_dim(&op, &dim, "dim") && k && (*k < 0 || *k > op.in[0]->shape.dim[dim]))
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "k is %lld, outside 0 to the %lld of dimension %d of %s", (long long)*k,
                       (long long)op.in[0]->shape.dim[dim], dim, ignis__shape_write(&op.in[0]->shape).text);
    if (op.ok)
        values = ignis__op_sort(&op, dim, k ? *k : op.in[0]->shape.dim[dim], descending, &positions);
    if (values) {
        ignis__indexing_make(&x, call, &op.in[0]->shape, dim, &values->shape);
        ignis__shape_strides(&values->shape, x.strides.to);
        ignis__op_save(&op, positions);
    }
    if (values && indices)
        *indices = ignis__op_result(&op, positions, 0, NULL, NULL, NULL);
    rule = ignis__op_rule(&op, name, ignis__sort_backward, &x, sizeof x);
    result = ignis__op_result(&op, values, op.count, op.tensors, op.standing, op.records ? &rule : NULL);
    ignis__op_leave_two(&op, indices);
    return result;
}

IGNIS_API ignis_tensor ignis_sort(ignis_tensor tensor, int dim, bool descending, ignis_tensor *indices)
{
    return ignis__sort("ignis_sort", "sort", tensor, NULL, dim, descending, indices);
}

IGNIS_API ignis_tensor ignis_topk(ignis_tensor tensor, int64_t k, int dim, bool largest, ignis_tensor *indices)
{
    return ignis__sort("ignis_topk", "topk", tensor, &k, dim, largest, indices);
}

/* >>ops.loss --------------------------------------------------------------------------------------------------------------- */

typedef struct ignis__cross_entropy {
    int64_t rows, classes, stride, ignore_index;
    int mean, target_bytes;
} ignis__cross_entropy;

/*  Saved: the gradients themselves of the inputs that need one, of a loss whose gradient is 1, and nobody else's. */
static ignis_status ignis__cross_entropy_rescale(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *made[3] = {NULL, NULL, NULL};
    int i, at = 0;
    for (i = 0; i < args->input_count && !args->grad_output.id; i++)
        if (args->needed[i])
            args->grad_inputs[i] = args->saved[at++];
    if (!args->grad_output.id)
        return IGNIS_OK;
    if (!ignis__op_begin_backward(&op, "ignis_cross_entropy", args))
        return ignis__failed();
    for (i = 0; i < args->input_count; i++) {
        ignis__array *saved;
        ignis__address gradient, grad;
        int64_t numel;
        void *params[] = {&gradient, &grad, &numel};
        if (!args->needed[i])
            continue;
        saved = op.in[1 + at];
        numel = saved->numel;
        if (ignis__walk_retains()) {
            made[i] = ignis__op_new_like(&op, saved);
            ignis__op_copy(&op, made[i], saved);
        }
        grad = ignis__op_read(&op, op.in[0]);
        gradient = ignis__op_write(&op, made[i] ? made[i] : saved);
        ignis__op_map(&op, IGNIS__BUILTIN_CROSS_ENTROPY_RESCALE, saved->dtype, numel, params);
        if (op.ok && !made[i])
            args->grad_inputs[i] = args->saved[at];
        at++;
    }
    return ignis__op_give(&op, args, args->input_count, made);
}

/*  The gradient from what forward has found out of the rows. It may take the logits' place. */
static void ignis__cross_entropy_launch_backward(ignis__op *op, ignis__cross_entropy *entropy, ignis_dtype dtype, ignis__address gradient,
                                                 ignis__address grad, ignis__address logits, ignis__address targets,
                                                 ignis__address log_sums, ignis__address scale)
{
    ignis__rows plan = ignis__rows_plan(op, dtype, entropy->rows, entropy->classes, logits % 16 == gradient % 16, 0, 2);
    void *params[] = {&gradient,        &grad,
                      &log_sums,        &logits,
                      &targets,         &entropy->target_bytes,
                      &entropy->rows,   &entropy->classes,
                      &entropy->stride, &entropy->ignore_index,
                      &scale,           &plan.packed};
    if (plan.warp) { /* there is no such kernel */
        plan.threads = ignis__row_threads(entropy->classes, ignis__row_share(dtype, true), 512);
        plan.blocks = entropy->rows;
    }
    ignis__op_launch_row(op, IGNIS__BUILTIN_CROSS_ENTROPY_BACKWARD, dtype, plan.blocks, plan.threads, params);
}

/*  Saved: logits, targets, log_sums, scale. */
static ignis_status ignis__cross_entropy_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__cross_entropy entropy;
    ignis__array *made;
    ignis__address gradient, grad, logits, targets, log_sums, scale;
    ignis_dtype dtype;
    int i;
    if (!ignis__op_begin_backward(&op, "ignis_cross_entropy", args))
        return ignis__failed();
    memcpy(&entropy, args->params, sizeof entropy);
    dtype = op.in[1]->dtype;
    made = ignis__op_new_like(&op, op.in[1]);
    grad = ignis__op_read(&op, op.in[0]);
    logits = ignis__op_read(&op, op.in[1]);
    targets = ignis__op_read(&op, op.in[2]);
    log_sums = ignis__op_read(&op, op.in[3]);
    scale = ignis__op_read(&op, op.in[4]);
    gradient = ignis__op_write(&op, made);
    ignis__cross_entropy_launch_backward(&op, &entropy, dtype, gradient, grad, logits, targets, log_sums, scale);
    for (i = 1; i < args->input_count; i++)
        args->grad_inputs[i].id = 0;
    return ignis__op_give(&op, args, 1, &made);
}

/*  What the kernels of all rows do not do. */
static bool ignis__cross_entropy_is_soft(const ignis_cross_entropy_desc *desc)
{
    return desc && (desc->label_smoothing != 0 || desc->reduction == IGNIS_REDUCTION_NONE);
}

/*  The logits are an input, or are to be made of one: so many rows of `columns`. */
static bool ignis__cross_entropy_prepare(ignis__op *op, const ignis_cross_entropy_desc *desc, int64_t rows, int64_t columns,
                                         const ignis__array *targets, ignis__cross_entropy *entropy)
{
    memset(entropy, 0, sizeof *entropy);
    entropy->rows = rows;
    entropy->stride = columns;
    if (targets->dtype != IGNIS_I32 && targets->dtype != IGNIS_I64)
        return ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "targets is %s; i32 or i64 is needed", ignis__dtypes[targets->dtype].name);
    if (entropy->stride == 0 || targets->numel != entropy->rows)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS,
                              "%s is %s, targets %s; one target is needed for each of %lld rows of at least one class",
                              op->in[1] == targets ? "logits" : "hidden", ignis__shape_write(&op->in[0]->shape).text,
                              ignis__shape_write(&targets->shape).text, (long long)rows);
    if (desc && (desc->reduction < IGNIS_REDUCTION_MEAN || desc->reduction >= IGNIS_REDUCTION_COUNT))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_ENUM, "desc->reduction is %d", (int)desc->reduction);
    if (desc && !(desc->label_smoothing >= 0 && desc->label_smoothing <= 1))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->label_smoothing is %g, outside 0 to 1", desc->label_smoothing);
    if (desc && (desc->classes < 0 || desc->classes > entropy->stride))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->classes is %lld; there are %lld columns of logits",
                              (long long)desc->classes, (long long)entropy->stride);
    entropy->classes = desc && desc->classes ? desc->classes : entropy->stride;
    entropy->ignore_index = desc && (desc->ignore_index || desc->ignore_zero) ? desc->ignore_index : -100;
    entropy->mean = !desc || desc->reduction == IGNIS_REDUCTION_MEAN;
    entropy->target_bytes = (int)ignis__dtypes[targets->dtype].size;
    return true;
}

/*  f16 does not hold the gradient of a mean before it is scaled up; other types do, and forward has all that it needs at hand. */
static bool ignis__cross_entropy_is_fused(ignis_dtype dtype) { return dtype != IGNIS_F16; }

typedef struct ignis__cross_entropy_work {
    ignis__address loss, scale, log_sums, gradient, logits, targets, losses, count;
    ignis__rows plan;
    ignis__builtin builtin;
    bool counts; /* the kernel finds out itself which rows are not ignored */
    bool part;   /* these are some of the rows, whose count is there */
} ignis__cross_entropy_work;

#define IGNIS__FEW_ROWS 128          /* that one block, a warp a row, is through with sooner than three launches are made */
#define IGNIS__COUNT_BLOCKS 64       /* and a count of these, and one more number, is what they leave */
#define IGNIS__ROWS_EXACT 2          /* for packed: all rows are whole packs of 16 bytes */
#define IGNIS__LOSS_WARP_THREADS 640 /* of a block that makes no gradient, of rows that a warp has */
#define IGNIS__LOSS_THREADS 256      /* and of those that a block has */
#define IGNIS__ROUND_BLOCKS 7        /* on a multiprocessor, each with a row in flight: one more is 4 % slower on an H200 */
#define IGNIS__SHORT_ROW 16          /* elements of a row that a thread has, of few rows */

static bool ignis__cross_entropy_is_few(const ignis__cross_entropy *entropy, const ignis__cross_entropy_work *work)
{
    return work->plan.warp && entropy->rows <= IGNIS__FEW_ROWS && !work->part;
}

/*  How the rows are shared out. Blocks stay for many rows, as many as the device holds at a time, so that few have something to hand over. */
static void ignis__cross_entropy_plan(ignis__op *op, const ignis__cross_entropy *entropy, ignis__cross_entropy_work *work,
                                      ignis_dtype dtype)
{
    ignis__rows *plan = &work->plan;
    int64_t resident;
    *plan = ignis__rows_plan(op, dtype, entropy->rows, entropy->classes, !work->gradient || work->logits % 16 == work->gradient % 16,
                             work->gradient ? 1 : 0, 2);
    if (plan->packed && (work->logits | work->gradient) % 16 == 0 &&
        (entropy->classes | entropy->stride) % ignis__pack_elements(dtype) == 0)
        plan->packed = IGNIS__ROWS_EXACT;
    work->counts = !work->gradient && plan->packed == IGNIS__ROWS_EXACT && !work->part && !ignis__cross_entropy_is_few(entropy, work);
    if (work->counts) {
        plan->threads = plan->warp ? IGNIS__LOSS_WARP_THREADS : IGNIS__LOSS_THREADS;
        plan->blocks = ignis__ceil_div(entropy->rows, plan->warp ? plan->threads / 32 : 1);
    }
    work->builtin = work->counts && plan->warp          ? IGNIS__BUILTIN_CROSS_ENTROPY_LOSS_WARP
                    : work->counts                      ? IGNIS__BUILTIN_CROSS_ENTROPY_LOSS_BLOCK
                    : plan->warp                        ? IGNIS__BUILTIN_CROSS_ENTROPY_WARP
                    : plan->packed != IGNIS__ROWS_EXACT ? IGNIS__BUILTIN_CROSS_ENTROPY_BLOCK
                    : plan->threads <= 128              ? IGNIS__BUILTIN_CROSS_ENTROPY_ROUND
                                                        : IGNIS__BUILTIN_CROSS_ENTROPY_EXACT;
    ignis__request_builtin(IGNIS__BUILTIN_CROSS_ENTROPY_COUNT, dtype); /* what other numbers of rows take */
    ignis__request_builtin(IGNIS__BUILTIN_CROSS_ENTROPY_WARP, dtype);
    if (!work->gradient)
        ignis__request_builtin(IGNIS__BUILTIN_CROSS_ENTROPY_LOSS_WARP, dtype);
    if (ignis__cross_entropy_is_few(entropy, work))
        return;
    resident = ignis__op_resident(op, work->builtin, dtype, plan->threads, plan->shared);
    if (work->builtin == IGNIS__BUILTIN_CROSS_ENTROPY_ROUND && resident > IGNIS__ROUND_BLOCKS)
        resident = IGNIS__ROUND_BLOCKS;
    plan->blocks = ignis__clamp(plan->blocks, 1, op->work.device->info.multiprocessors * resident);
}

static void ignis__cross_entropy_count(ignis__op *op, ignis__cross_entropy *entropy, ignis__cross_entropy_work *work, ignis_dtype dtype)
{
    void *count[] = {&work->count, &work->targets, &entropy->target_bytes, &entropy->rows, &entropy->ignore_index};
    ignis__op_launch_row(op, IGNIS__BUILTIN_CROSS_ENTROPY_COUNT, dtype, IGNIS__COUNT_BLOCKS, 256, count);
}

static void ignis__cross_entropy_launch(ignis__op *op, ignis__cross_entropy *entropy, ignis__cross_entropy_work *work, ignis_dtype dtype)
{
    void *rows[] = {&work->loss,       &work->scale,     &work->log_sums,        &work->gradient,
                    &work->logits,     &work->targets,   &entropy->target_bytes, &entropy->rows,
                    &entropy->classes, &entropy->stride, &entropy->ignore_index, &entropy->mean,
                    &work->losses,     &work->count,     &work->plan.packed,     &work->plan.kept};
    if (ignis__cross_entropy_is_few(entropy, work)) { /* it has the first twelve */
        int64_t threads = entropy->classes > IGNIS__SHORT_ROW ? dtype == IGNIS_F64 ? 256 : 1024 : 32 * ignis__ceil_div(entropy->rows, 32);
        ignis__op_launch_row(op, IGNIS__BUILTIN_CROSS_ENTROPY_FEW, dtype, 1, (unsigned)ignis__clamp(threads, 32, 1024), rows);
        return;
    }
    if (!work->counts && !work->part)
        ignis__cross_entropy_count(op, entropy, work, dtype);
    ignis__op_launch(op, work->builtin, dtype, NULL, work->plan.blocks, 1, 1, work->plan.threads, 1, work->plan.shared, rows);
}

/*  What forward gives. The logarithms of the rows' sums of exp(x) have two parts: [2, rows], the maximum and what it lacks. */
typedef struct ignis__cross_entropy_found {
    ignis__array *loss, *scale, *log_sums;
} ignis__cross_entropy_found;

/*  Of op->in[0] and the targets op->in[1]; the gradient is written unless null. */
static void ignis__cross_entropy_forward(ignis__op *op, ignis__cross_entropy *entropy, const ignis__cross_entropy_found *found,
                                         ignis__array *gradient)
{
    ignis__cross_entropy_work work = IGNIS__ZERO;
    ignis__array *losses = NULL, *count = NULL;
    ignis_dtype dtype = op->in[0]->dtype;
    work.logits = ignis__op_read(op, op->in[0]);
    work.targets = ignis__op_read(op, op->in[1]);
    if (gradient)
        work.gradient = ignis__op_write(op, gradient);
    if (op->ok)
        ignis__cross_entropy_plan(op, entropy, &work, dtype);
    if (op->ok) {
        losses = ignis__op_new_row(op, 2 * work.plan.blocks, ignis__wide_dtype(dtype)); /* or losses and counts */
        count = work.counts ? NULL : ignis__op_new_row(op, IGNIS__COUNT_BLOCKS + 1, IGNIS_I64);
    }
    work.loss = ignis__op_write(op, found->loss);
    work.scale = ignis__op_write(op, found->scale);
    work.log_sums = ignis__op_write(op, found->log_sums);
    work.losses = ignis__op_write(op, losses);
    work.count = work.counts ? ignis__op_zeroed(op) : ignis__op_write(op, count);
    if (op->ok)
        ignis__cross_entropy_launch(op, entropy, &work, dtype);
}

/* --- losses by formulas */

static bool ignis__reduction_valid(const char *call, ignis_reduction reduction)
{
    if (!ignis__enter(call))
        return false;
    if (reduction >= IGNIS_REDUCTION_MEAN && reduction < IGNIS_REDUCTION_COUNT)
        return true;
    return ignis__refuse(IGNIS_DIAG_BAD_ENUM, call, "there is no reduction %d; IGNIS_REDUCTION_MEAN to _NONE are 0 to 2", (int)reduction);
}

/*  Losses of elements. */
static ignis_tensor ignis__loss(const char *call, const char *formula, ignis_inputs inputs, ignis_reduction reduction)
{
    if (!ignis__reduction_valid(call, reduction))
        return ignis__no_tensor();
    if (reduction == IGNIS_REDUCTION_NONE)
        return ignis__map_each(call, formula, &inputs, IGNIS__LOSS_ALIKE);
    return ignis__map_reduced(call, reduction == IGNIS_REDUCTION_SUM ? IGNIS_REDUCE_SUM : IGNIS_REDUCE_MEAN, formula, &inputs, NULL,
                              IGNIS__LOSS_ALIKE);
}

IGNIS_API ignis_tensor ignis_mse_loss(ignis_tensor x, ignis_tensor targets, ignis_reduction reduction)
{
    return ignis__loss("ignis_mse_loss", "square(x - targets)", IGNIS_INPUTS(x, targets), reduction);
}

IGNIS_API ignis_tensor ignis_l1_loss(ignis_tensor x, ignis_tensor targets, ignis_reduction reduction)
{
    return ignis__loss("ignis_l1_loss", "abs(x - targets)", IGNIS_INPUTS(x, targets), reduction);
}

IGNIS_API ignis_tensor ignis_huber_loss(ignis_tensor x, ignis_tensor targets, double delta, ignis_reduction reduction)
{
    static const char call[] = "ignis_huber_loss";
    if (ignis__enter(call) && !(delta > 0)) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "delta is %g, which is not above 0", delta);
        return ignis__no_tensor();
    }
    return ignis__loss(call, "d = x - targets; abs(d) < delta ? 0.5*d*d : delta*(abs(d) - 0.5*delta)",
                       IGNIS_INPUTS(x, targets, IGNIS_VALUE(delta, delta)), reduction);
}

/*  softplus(x) is s + max(x, 0), with the s of both signs; the half that max's gradient has at 0 is right. */
IGNIS_API ignis_tensor ignis_bce_with_logits(ignis_tensor logits, ignis_tensor targets, const ignis_bce_desc *desc)
{
    ignis_tensor x = logits, t = targets, w = desc && desc->weight.id ? desc->weight : ignis_value(1),
                 p = desc && desc->pos_weight.id ? desc->pos_weight : ignis_value(1);
    return ignis__loss("ignis_bce_with_logits",
                       "s = softplus(-abs(x)); a = s + max(x, 0); b = s + max(-x, 0); "
                       "l = with_grad(t == 1 ? 0 : (1 - t)*a, (1 - t)*a) + with_grad(p*t == 0 ? 0 : p*t*b, p*t*b); "
                       "with_grad(w == 0 ? 0 : w*l, w == 0 ? w*detach(l) : w*l)",
                       IGNIS_INPUTS(x, t, w, p), desc ? desc->reduction : IGNIS_REDUCTION_MEAN);
}

/*  A formula's sum over the last dimension. */
static ignis_tensor ignis__loss_rows(const char *call, const char *formula, ignis_inputs inputs, ignis__loss_kind loss)
{
    static const ignis_reduce_desc last = {{-1}, 1, false};
    return ignis__map_reduced(call, IGNIS_REDUCE_SUM, formula, &inputs, &last, loss);
}

/*  Checks rows of classes and their targets [...], and makes these a column beside the rows: [..., 1]. False: reported. */
static bool ignis__rows_begin(const char *call, ignis_tensor rows, ignis_tensor targets, const ignis_cross_entropy_desc *desc,
                              ignis__cross_entropy *entropy, ignis_tensor *column)
{
    ignis__op op;
    ignis_tensor inputs[] = {rows, targets};
    int64_t count, columns;
    ignis_shape shape;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return false;
    op.ok = ignis__op_is_float(&op, 0, "the first input") && ignis__op_rows(&op, op.in[0], &count, &columns) &&
            ignis__cross_entropy_prepare(&op, desc, count, columns, op.in[1], entropy);
    shape = op.in[0]->shape;
    if (ignis__op_leave(&op) != IGNIS_OK)
        return false;
    shape.dim[shape.ndim - 1] = 1;
    *column = ignis_reshape(targets, shape);
    return column->id != 0;
}

/*  What a reduction makes of the losses of rows, which it takes over. In the mean, rows with the target k do not count (no targets: all do). */
static ignis_tensor ignis__loss_of_rows(const char *call, ignis_tensor losses, ignis_reduction reduction, ignis_tensor targets, int64_t k)
{
    ignis_tensor sum, count, result = ignis__no_tensor();
    if (!losses.id || reduction == IGNIS_REDUCTION_NONE)
        return losses;
    if (reduction == IGNIS_REDUCTION_SUM || !targets.id) {
        result = reduction == IGNIS_REDUCTION_SUM ? ignis_sum(losses) : ignis_mean(losses);
    } else {
        sum = ignis_sum(losses);
        count = sum.id ? ignis_map_sum("targets != k", IGNIS_INPUTS(targets, IGNIS_VALUE(k, (double)k))) : sum;
        if (count.id)
            result = ignis_map("sum / count", IGNIS_INPUTS(sum, count));
        ignis__tensor_discard(call, sum);
        ignis__tensor_discard(call, count);
    }
    ignis__tensor_discard(call, losses);
    return result;
}

IGNIS_API ignis_tensor ignis_kl_div(ignis_tensor x, ignis_tensor targets, bool log_targets, ignis_reduction reduction)
{
    static const char call[] = "ignis_kl_div";
    ignis_tensor t = targets, losses;
    if (!ignis__reduction_valid(call, reduction))
        return ignis__no_tensor();
    losses = ignis__loss_rows(call, log_targets ? "t == -inf ? 0 : exp(t)*(t - x)" : "t == 0 ? 0 : t*(log(t) - x)", IGNIS_INPUTS(x, t),
                              IGNIS__LOSS_ALIKE);
    return ignis__loss_of_rows(call, losses, reduction, ignis__no_tensor(), 0);
}

/*  Lengths are taken times s = 2^-20: that of a row may be beyond the largest number. */
IGNIS_API ignis_tensor ignis_cosine_similarity(ignis_tensor a, ignis_tensor b)
{
    static const char call[] = "ignis_cosine_similarity";
    static const ignis_reduce_desc last = {{-1}, 1, true};
    ignis_inputs of_a = IGNIS_INPUTS(a), of_b = IGNIS_INPUTS(b);
    ignis_tensor m = ignis__map_reduced(call, IGNIS_REDUCE_NORM, "a*9.5367431640625e-7", &of_a, &last, IGNIS__LOSS),
                 result = ignis__no_tensor();
    ignis_tensor n = m.id ? ignis__map_reduced(call, IGNIS_REDUCE_NORM, "b*9.5367431640625e-7", &of_b, &last, IGNIS__LOSS) : m;
    ignis_tensor c = n.id ? ignis__loss_rows(call, "s = 9.5367431640625e-7; (a/max(m, 1e-8*s)*s) * (b/max(n, 1e-8*s)*s)",
                                             IGNIS_INPUTS(a, b, m, n), IGNIS__LOSS_ALIKE)
                          : n;
    if (c.id) /* roundings make no angle of it whose cosine is above 1 */
        result = ignis_map("with_grad(min(max(c, -1), 1), c)", IGNIS_INPUTS(c));
    ignis__tensor_discard(call, m);
    ignis__tensor_discard(call, n);
    ignis__tensor_discard(call, c);
    return result;
}

/*  log(sum of exp(x)) of each row in two parts: the maximum and what it lacks, as views, [..., 1]. False: reported. */
static bool ignis__cross_entropy_sums(const char *call, ignis_tensor x, ignis_tensor targets, ignis__cross_entropy *entropy,
                                      ignis_tensor *max, ignis_tensor *rest)
{
    ignis__op op;
    ignis_tensor inputs[2];
    ignis__cross_entropy_found found;
    ignis__array *parts[2] = {NULL, NULL};
    ignis_dtype wide;
    ignis_shape shape;
    int i;
    inputs[0] = x;
    inputs[1] = targets;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return false;
    wide = ignis__wide_dtype(op.in[0]->dtype);
    shape = op.in[0]->shape;
    shape.dim[shape.ndim - 1] = 1;
    found.loss = ignis__op_new_row(&op, 1, wide);
    found.scale = ignis__op_new_row(&op, 1, wide);
    found.log_sums = ignis__op_new_row(&op, 2 * entropy->rows, wide);
    for (i = 0; i < 2 && op.ok; i++)
        parts[i] = ignis__op_view(&op, found.log_sums, &shape, entropy->rows, i * entropy->rows);
    if (op.ok)
        ignis__cross_entropy_forward(&op, entropy, &found, NULL);
    *max = ignis__op_result(&op, parts[0], 0, NULL, NULL, NULL);
    *rest = ignis__op_result(&op, parts[1], 0, NULL, NULL, NULL);
    ignis__op_leave_two(&op, max);
    return rest->id != 0;
}

/*  Against the target q, which is 1 - e at its class and e / n everywhere: the sum of q (m - x + l), whose gradient is exp(x - m - l) - q. So it is
    said, instead of found through m and l, the parts of the logarithms of the rows' sums, from which it would take another walk. */
static ignis_tensor ignis__soft_cross_entropy(const char *call, ignis_tensor x, ignis_tensor targets, const ignis_cross_entropy_desc *desc)
{
    ignis__cross_entropy entropy;
    ignis_tensor t = ignis__no_tensor(), m = t, l = t, losses = t;
    if (!ignis__rows_begin(call, x, targets, desc, &entropy, &t))
        return losses;
    if (ignis__cross_entropy_sums(call, x, targets, &entropy, &m, &l))
        losses = ignis__loss_rows(call,
                                  "c = index(-1); q = (c == t ? 1 - e : 0) + e/n; t == k || c >= n ? 0 : t < 0 || t >= n ? nan*x"
                                  " : with_grad(q == 0 ? 0 : q*(m - x + l), x*detach(exp(x - m - l) - q))",
                                  IGNIS_INPUTS(x, t, m, l, IGNIS_VALUE(k, (double)entropy.ignore_index),
                                               IGNIS_VALUE(n, (double)entropy.classes), IGNIS_VALUE(e, desc->label_smoothing)),
                                  IGNIS__LOSS);
    ignis__tensor_discard(call, t);
    ignis__tensor_discard(call, m);
    ignis__tensor_discard(call, l);
    return ignis__loss_of_rows(call, losses, desc->reduction, targets, entropy.ignore_index);
}

IGNIS_API ignis_tensor ignis_nll_loss(ignis_tensor x, ignis_tensor targets, const ignis_cross_entropy_desc *desc)
{
    static const char call[] = "ignis_nll_loss";
    ignis__cross_entropy entropy;
    ignis_tensor t = ignis__no_tensor(), losses = ignis__no_tensor();
    if (ignis__enter(call) && desc && desc->label_smoothing != 0) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "label_smoothing is for ignis_cross_entropy");
        return losses;
    }
    if (!ignis__rows_begin(call, x, targets, desc, &entropy, &t))
        return losses;
    losses = ignis__loss_rows(call, "t == k ? 0 : t < 0 || t >= n ? nan*x : index(-1) == t ? -x : 0",
                              IGNIS_INPUTS(x, t, IGNIS_VALUE(k, (double)entropy.ignore_index), IGNIS_VALUE(n, (double)entropy.classes)),
                              IGNIS__LOSS);
    ignis__tensor_discard(call, t);
    return ignis__loss_of_rows(call, losses, desc ? desc->reduction : IGNIS_REDUCTION_MEAN, targets, entropy.ignore_index);
}

IGNIS_API ignis_tensor ignis_cross_entropy(ignis_tensor logits_tensor, ignis_tensor targets_tensor, const ignis_cross_entropy_desc *desc)
{
    static const char call[] = "ignis_cross_entropy";
    ignis__op op;
    ignis__cross_entropy entropy;
    ignis_tensor inputs[] = {logits_tensor, targets_tensor};
    ignis__array *made = NULL;
    ignis__cross_entropy_found found = {NULL, NULL, NULL};
    ignis_dtype wide;
    int64_t rows, columns;
    bool fused;
    if (ignis__cross_entropy_is_soft(desc))
        return ignis__soft_cross_entropy(call, logits_tensor, targets_tensor, desc);
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    wide = ignis__wide_dtype(op.in[0]->dtype);
    fused = op.records && ignis__cross_entropy_is_fused(op.in[0]->dtype);
    op.knows_one = fused;
    op.ok = ignis__op_is_float(&op, 0, "logits") && ignis__op_rows(&op, op.in[0], &rows, &columns) &&
            ignis__cross_entropy_prepare(&op, desc, rows, columns, op.in[1], &entropy);
    if (op.ok) {
        made = fused ? ignis__op_new_like(&op, op.in[0]) : NULL;
        found.loss = ignis__op_new_row(&op, 1, wide);
        found.scale = ignis__op_new_row(&op, 1, wide);
        found.log_sums = ignis__op_new_row(&op, 2 * entropy.rows, wide);
    }
    if (op.ok)
        ignis__cross_entropy_forward(&op, &entropy, &found, made);
    ignis__op_save(&op, fused ? made : op.in[0]);
    if (!fused) {
        ignis__op_save(&op, op.in[1]);
        ignis__op_save(&op, found.log_sums);
        ignis__op_save(&op, found.scale);
    }
    return ignis__op_end_recorded(&op, found.loss, "cross_entropy", fused ? ignis__cross_entropy_rescale : ignis__cross_entropy_backward,
                                  &entropy, sizeof entropy);
}

/* >>ops.loss - linear_cross_entropy: the logits are made, used and forgotten in chunks of rows ------------------------------------ */

#define IGNIS__CHUNK_LOGITS ((int64_t)1 << 27) /* of a chunk, about, where the caller does not say */
#define IGNIS__CHUNK_ROWS 4096 /* of a chunk, at least: adding up the weight's gradient takes 6 % of the products of so many */

typedef struct ignis__linear_entropy {
    ignis__cross_entropy entropy; /* of all rows */
    ignis__product product;       /* logits = hidden w^T, of all rows */
    int64_t chunk;                /* rows of one, but for the last */
} ignis__linear_entropy;

/*  What the chunks of one call share. Null: not wanted, or not needed. */
typedef struct ignis__chunks {
    ignis__array *hidden, *w, *logits, *gradient; /* gradient: of the logits; it may be the same array */
    ignis__array *dhidden, *dw;
    ignis__array *part, *sum; /* of dw, where chunks of a 16-bit type are added up in f32: that of one chunk, and of all so far */
} ignis__chunks;

static int64_t ignis__chunk_count(const ignis__linear_entropy *p)
{
    return ignis__clamp(ignis__ceil_div(p->entropy.rows, p->chunk), 1, INT64_MAX);
}

/*  Rows of [rows, n] as an array. */
static ignis__array *ignis__op_view_rows(ignis__op *op, ignis__array *of, int64_t first, int64_t rows, int64_t n)
{
    ignis_shape shape = IGNIS_SHAPE(rows, n);
    return ignis__op_view(op, of, &shape, rows * n, first * n);
}

/*  The arrays for the gradients that are wanted. */
static void ignis__chunks_gradients(ignis__op *op, const ignis__linear_entropy *p, bool hidden, bool w, ignis__chunks *c)
{
    ignis_dtype dtype = c->w->dtype, wide = ignis__wide_dtype(dtype);
    if (hidden)
        c->dhidden = ignis__op_new_like(op, c->hidden);
    if (w)
        c->dw = ignis__op_new_like(op, c->w);
    if (w && dtype != wide && ignis__chunk_count(p) > 1) {
        c->part = ignis__op_new_like(op, c->w);
        c->sum = ignis__op_new_row(op, c->w->numel, wide);
    }
    if (c->dw && p->entropy.rows == 0)
        ignis__op_zero(op, c->dw);
}

/*  The product of a chunk's rows, which begin at `first`. */
static ignis__product ignis__chunk_product(const ignis__linear_entropy *p, int64_t first)
{
    ignis__product q = p->product;
    q.m = ignis__clamp(p->entropy.rows - first, 0, p->chunk);
    q.batch_a = q.m * q.k;
    return q;
}

static void ignis__chunk_logits(ignis__op *op, const ignis__linear_entropy *p, const ignis__chunks *c, int64_t first)
{
    ignis__product q = ignis__chunk_product(p, first);
    ignis__array *rows = op->ok && q.m ? ignis__op_view_rows(op, c->hidden, first, q.m, q.k) : NULL;
    if (rows)
        ignis__matmul_run(op, &q, c->logits, rows, c->w, NULL);
}

/*  From the gradient of a chunk's logits to its rows of dhidden, and its part of dw: chunks are added up in their order. */
static void ignis__chunk_backward(ignis__op *op, const ignis__linear_entropy *p, const ignis__chunks *c, int64_t first)
{
    ignis__product q = ignis__chunk_product(p, first), of_w = ignis__matmul_product_b(&q), of_hidden = ignis__matmul_product_a(&q);
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__address dw, sum, part;
    int is_first = first == 0, is_last = first + q.m >= p->entropy.rows;
    ignis__array *rows;
    if (!op->ok || q.m == 0)
        return;
    if (c->dhidden) {
        rows = ignis__op_view_rows(op, c->dhidden, first, q.m, q.k);
        if (rows)
            ignis__matmul_run(op, &of_hidden, rows, c->gradient, c->w, NULL);
    }
    rows = c->dw ? ignis__op_view_rows(op, c->hidden, first, q.m, q.k) : NULL;
    if (!rows)
        return;
    epilogue.accumulate = !c->sum && !is_first;
    ignis__matmul_run(op, &of_w, c->sum ? c->part : c->dw, c->gradient, rows, &epilogue);
    if (c->sum) {
        void *params[] = {&dw, &sum, &part, &is_first, &is_last, &c->dw->numel};
        part = ignis__op_read(op, c->part);
        if (!is_first)
            (void)ignis__op_read(op, c->sum);
        sum = ignis__op_write(op, c->sum);
        dw = ignis__op_write(op, c->dw);
        ignis__op_map(op, IGNIS__BUILTIN_CROSS_ENTROPY_ADD_UP, c->dw->dtype, c->dw->numel, params);
    }
}

/*  The loss of a chunk, and the gradient of its logits where there is an array for it. */
static void ignis__chunk_loss(ignis__op *op, const ignis__linear_entropy *p, const ignis__chunks *c, const ignis__cross_entropy_work *all,
                              int64_t first)
{
    ignis__cross_entropy entropy = p->entropy;
    ignis__cross_entropy_work work = *all;
    ignis_dtype dtype = c->w->dtype, wide = ignis__wide_dtype(dtype);
    entropy.rows = ignis__chunk_product(p, first).m;
    work.part = true;
    work.loss += (ignis__address)(first / p->chunk * ignis__dtypes[wide].size);
    work.log_sums += (ignis__address)(2 * first * ignis__dtypes[wide].size);
    work.targets += (ignis__address)(first * entropy.target_bytes);
    work.logits = entropy.rows ? ignis__op_read(op, c->logits) : 0;
    work.gradient = c->gradient ? ignis__op_write(op, c->gradient) : 0;
    if (op->ok)
        ignis__cross_entropy_plan(op, &entropy, &work, dtype);
    if (op->ok)
        work.losses = ignis__op_write(op, ignis__op_new_row(op, 2 * work.plan.blocks, wide));
    if (op->ok)
        ignis__cross_entropy_launch(op, &entropy, &work, dtype);
}

/*  Saved: hidden, w, targets, log_sums, scale. Makes the logits once more. */
static ignis_status ignis__linear_entropy_backward(const ignis_backward_args *args)
{
    enum { GRAD, HIDDEN, W, TARGETS, LOG_SUMS, SCALE };
    ignis__op op;
    ignis__linear_entropy p;
    ignis__chunks c = IGNIS__ZERO;
    ignis__array *gradients[2];
    int64_t first;
    int kept;
    memcpy(&p, args->params, sizeof p);
    if (!ignis__op_begin_backward(&op, "ignis_linear_cross_entropy", args))
        return ignis__failed();
    c.hidden = op.in[HIDDEN];
    c.w = op.in[W];
    c.logits = c.gradient = ignis__op_new_rows(&op, p.chunk, p.entropy.stride, c.w->dtype);
    ignis__chunks_gradients(&op, &p, args->needed[0], args->needed[1], &c);
    kept = op.made_count;
    for (first = 0; op.ok && first < p.entropy.rows; first += p.chunk) {
        int64_t size = ignis__dtypes[op.in[LOG_SUMS]->dtype].size;
        ignis__cross_entropy entropy = p.entropy;
        ignis__address logits;
        entropy.rows = ignis__chunk_product(&p, first).m;
        ignis__chunk_logits(&op, &p, &c, first);
        logits = ignis__op_write(&op, c.logits);
        ignis__cross_entropy_launch_backward(&op, &entropy, c.w->dtype, logits, ignis__op_read(&op, op.in[GRAD]), logits,
                                             ignis__op_read(&op, op.in[TARGETS]) + (ignis__address)(first * entropy.target_bytes),
                                             ignis__op_read(&op, op.in[LOG_SUMS]) + (ignis__address)(2 * first * size),
                                             ignis__op_read(&op, op.in[SCALE]));
        ignis__chunk_backward(&op, &p, &c, first);
        ignis__op_unmake(&op, kept);
    }
    gradients[0] = c.dhidden;
    gradients[1] = c.dw;
    return ignis__op_give(&op, args, 2, gradients);
}

/*  Rows of a chunk, where the caller does not say. More than one take memory for the weight's gradient in f32: a chunk of 16 bits and its sum. */
static int64_t ignis__linear_entropy_rows(int64_t rows, const ignis__array *w)
{
    int64_t chunk = ignis__clamp(IGNIS__CHUNK_LOGITS / w->shape.dim[0] / 256 * 256, IGNIS__CHUNK_ROWS, INT64_MAX);
    return ignis__dtypes[w->dtype].size == 2 && rows <= chunk + 3 * w->shape.dim[1] ? rows : chunk;
}

/*  Checks the inputs, and describes what is to be done. */
static bool ignis__linear_entropy_prepare(ignis__op *op, const ignis_cross_entropy_desc *desc, ignis__linear_entropy *p)
{
    const ignis_shape *hidden = &op->in[0]->shape, *w = &op->in[1]->shape;
    int64_t rows, n;
    memset(p, 0, sizeof *p);
    if (!ignis__op_is_float(op, 0, "hidden") || !ignis__op_same_dtype(op, 1, "weight") || !ignis__op_rows(op, op->in[0], &rows, &n))
        return false;
    if (w->ndim != 2 || w->dim[1] != n || w->dim[0] == 0 || n == 0)
        return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE,
                              "hidden is %s, weight %s; [..., n] and [classes, n] are needed, neither of them 0",
                              ignis__shape_write(hidden).text, ignis__shape_write(w).text);
    if (w->dim[0] >= (int64_t)1 << 30)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "weight is %s, with 2^30 rows or more", ignis__shape_write(w).text);
    if (ignis__cross_entropy_is_soft(desc))
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "label_smoothing and IGNIS_REDUCTION_NONE are for ignis_cross_entropy");
    if (desc && desc->chunk < 0)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->chunk is %lld, below 0", (long long)desc->chunk);
    if (!ignis__cross_entropy_prepare(op, desc, rows, w->dim[0], op->in[2], &p->entropy))
        return false;
    p->chunk = desc && desc->chunk ? desc->chunk : ignis__linear_entropy_rows(rows, op->in[1]);
    p->chunk = ignis__clamp(rows, 1, p->chunk);
    p->product = ignis__product_of(op->in[0]->dtype, rows, w->dim[0], n, 1);
    return true;
}

IGNIS_API ignis_tensor ignis_linear_cross_entropy(ignis_tensor hidden, ignis_tensor weight, ignis_tensor targets,
                                                  const ignis_cross_entropy_desc *desc)
{
    ignis__op op;
    ignis__linear_entropy p;
    ignis__chunks c = IGNIS__ZERO;
    ignis_tensor inputs[] = {hidden, weight, targets};
    ignis__array *loss = NULL, *losses = NULL, *log_sums = NULL, *scale = NULL;
    ignis__cross_entropy_work work = IGNIS__ZERO;
    ignis_dtype dtype, wide;
    int64_t first;
    bool fused;
    int kept;
    if (!ignis__op_begin(&op, "ignis_linear_cross_entropy", 3, inputs))
        return ignis__no_tensor();
    c.hidden = op.in[0];
    c.w = op.in[1];
    dtype = c.w->dtype;
    wide = ignis__wide_dtype(dtype);
    fused = op.records && ignis__cross_entropy_is_fused(dtype);
    op.knows_one = fused;
    op.ok = ignis__linear_entropy_prepare(&op, desc, &p);
    if (op.ok) {
        loss = ignis__op_new_row(&op, 1, wide);
        losses = ignis__chunk_count(&p) > 1 ? ignis__op_new_row(&op, ignis__chunk_count(&p), wide) : loss;
        scale = ignis__op_new_row(&op, 1, wide);
        log_sums = ignis__op_new_row(&op, 2 * p.entropy.rows, wide);
        c.logits = ignis__op_new_rows(&op, p.chunk, p.entropy.stride, dtype);
        work.loss = ignis__op_write(&op, losses);
        work.scale = ignis__op_write(&op, scale);
        work.log_sums = ignis__op_write(&op, log_sums);
        work.targets = ignis__op_read(&op, op.in[2]);
        work.count = ignis__op_write(&op, ignis__op_new_row(&op, IGNIS__COUNT_BLOCKS + 1, IGNIS_I64));
        ignis__cross_entropy_count(&op, &p.entropy, &work, dtype);
    }
    if (op.ok && fused) {
        c.gradient = c.logits; /* takes their place */
        ignis__chunks_gradients(&op, &p, op.standing[0].requires_grad, op.standing[1].requires_grad, &c);
    }
    kept = op.made_count;
    for (first = 0; op.ok && (first == 0 || first < p.entropy.rows); first += p.chunk) { /* the loss of no rows is 0, or as a mean NaN */
        ignis__chunk_logits(&op, &p, &c, first);
        ignis__chunk_loss(&op, &p, &c, &work, first);
        if (fused)
            ignis__chunk_backward(&op, &p, &c, first);
        ignis__op_unmake(&op, kept);
    }
    if (op.ok && losses != loss) {
        ignis__spread spread = {1, losses->numel, 1};
        ignis__op_sum(&op, loss, losses, NULL, 1.0, &spread);
    }
    ignis__op_save(&op, c.dhidden);
    ignis__op_save(&op, c.dw);
    if (!fused) {
        ignis__op_save_inputs(&op, 0, 3);
        ignis__op_save(&op, log_sums);
        ignis__op_save(&op, scale);
    }
    return ignis__op_end_recorded(&op, loss, "linear_cross_entropy", fused ? ignis__cross_entropy_rescale : ignis__linear_entropy_backward,
                                  &p, sizeof p);
}

/* >>ops.attention ---------------------------------------------------------------------------------------------------------- */

/*  As in kernels/attention.cuh: rows of the heads of a tensor, as elements from one row, head and batch to the next. */
typedef struct ignis__attention_rows {
    ignis__address data;
    int64_t row, head, batch;
} ignis__attention_rows;

typedef struct ignis__attention {
    ignis__attention_rows q, k, v, out, grad_out, grad_q, grad_k, grad_v;
    ignis__address lse, delta;
    int batches, heads, kv_heads, head_dim, sq, sk, causal;
    double scale, softcap;
    ignis__attention_rows bias, grad_bias;
    ignis__address lengths;
    int window;                  /* max(sq, sk): none */
    int bias_dtype, has_lengths; /* 0: none. These and the next are the host's: no kernel has them */
    int windowed;                /* the caller has set a window, which longer rows go beyond */
} ignis__attention;

/*  For profiles: the next kernel has to do with so many tensors like q, and like k, and computes so many products of [sq, sk, head_dim], of which
    those count that the mask and the window show; lengths are the device's. */
static void ignis__attention_cost(const ignis__attention *p, ignis_dtype dtype, int like_q, int like_k, int products)
{
    double pairs = (double)p->batches * p->heads, size = ignis__dtypes[dtype].size, seen = 0;
    int i, place, first, last;
    if (!ignis__profiling())
        return;
    for (i = 0; i < p->sq; i++) {
        place = i + p->sk - p->sq;
        first = place >= p->window ? place - p->window + 1 : 0;
        last = p->causal ? place : p->sk - 1 - place < p->window ? p->sk - 1 : place + p->window - 1;
        seen += last >= first ? last - first + 1 : 0;
    }
    ignis__cost(size * p->head_dim * (like_q * pairs * p->sq + like_k * (double)p->batches * p->kv_heads * p->sk),
                2.0 * products * pairs * seen * p->head_dim, (int)dtype);
}

/*  How a kernel is launched: its blocks have so many rows, walk over so many at a time, and have threads and dynamic shared memory. */
typedef struct ignis__attention_shape {
    int rows, walk, threads, shared;
} ignis__attention_shape;

typedef struct ignis__attention_variant {
    char define[96];
    ignis__builtin forward_kernel, delta_kernel, kv_kernel, q_kernel, bias_kernel;
    ignis__attention_shape forward, kv, q, bias;
} ignis__attention_variant;

/*  Whether there is a window, or lengths of sequences. */
static bool ignis__attention_ranged(const ignis__attention *p) { return p->has_lengths || p->window < (p->sq > p->sk ? p->sq : p->sk); }

/*  Adds the options of kernels/attention.cuh that make the variant of a program. */
static void ignis__attention_options(char *define, size_t size, const ignis__attention *p, bool ranged)
{
    size_t length = strlen(define);
    if (ranged)
        length += (size_t)snprintf(define + length, size - length, " -DIGNIS_RANGE=1");
    if (p->softcap > 0)
        length += (size_t)snprintf(define + length, size - length, " -DIGNIS_SOFTCAP=1");
    if (p->bias_dtype)
        snprintf(define + length, size - length, " -DIGNIS_BIAS=%d", p->bias_dtype);
}

/*  Geometry of kernels/attention_mma.cu for each size of heads that it is compiled for, without the shared memory. */
static const struct {
    int head_dim;
    ignis__attention_shape forward, kv, q;
} ignis__attention_mma[] = {
    {32, {128, 64, 128, 0}, {128, 64, 128, 0}, {128, 64, 128, 0}}, {64, {128, 64, 128, 0}, {128, 64, 128, 0}, {128, 64, 128, 0}},
    {96, {128, 32, 128, 0}, {64, 64, 128, 0}, {128, 32, 128, 0}},  {128, {128, 32, 128, 0}, {64, 64, 128, 0}, {128, 32, 128, 0}},
    {192, {64, 32, 128, 0}, {32, 32, 192, 0}, {64, 16, 128, 0}},   {256, {64, 32, 128, 0}, {32, 32, 128, 0}, {64, 16, 128, 0}},
};

static int ignis__op_major(const ignis__op *op) { return op->as_major ? op->as_major : op->work.device->info.compute_major; }

/*  The one place that chooses tensor cores or plain CUDA C: f16 and bf16 with mma.m16n8k16, where rows are packs of 16 bytes. */
static bool ignis__attention_takes_mma(const ignis__op *op, ignis_dtype dtype, const ignis__attention *p)
{
    const ignis__attention_rows *tensors = &p->q;
    bool takes = (dtype == IGNIS_F16 || dtype == IGNIS_BF16) && ignis__op_major(op) >= 8 && p->head_dim % 8 == 0;
    int i;
    for (i = 0; i < 8 && !op->as_major; i++) /* to grad_v; those that are not there are 0 */
        takes = takes && tensors[i].data % 16 == 0;
    return takes;
}

/*  Geometry of kernels/attention_hopper.cu, by most elements of a head: teams of a block, groups of 64 queries of a team, keys of a tile, and tiles
    of k, and of v, that are there or on their way. */
typedef struct ignis__attention_hopper_shape {
    int head_dim, teams, groups, keys, stages;
} ignis__attention_hopper_shape;

static const ignis__attention_hopper_shape ignis__attention_hopper[] = {{64, 2, 2, 64, 4},  {64, 1, 3, 128, 4},  {128, 1, 2, 64, 4},
                                                                        {128, 1, 3, 80, 2}, {128, 1, 2, 128, 2}, {192, 1, 2, 96, 2},
                                                                        {256, 1, 2, 80, 2}};

/*  The fastest shape, as measured on an H200. ranged: with a variant of the program, which three groups have no registers for, or do not pay for
    where a window is narrow. Three groups pay for heads of more than 64 where items are many, as the last ones of blocks end at different times.
    Steady: the same one for any number of queries and keys. */
static const ignis__attention_hopper_shape *ignis__attention_hopper_choose(const ignis__op *op, const ignis__attention *p, bool ranged)
{
    const ignis__attention_hopper_shape *shapes = ignis__attention_hopper;
    int64_t items = ignis__ceil_div(p->sq, 3 * 64) * p->batches * p->heads, multiprocessors = op->work.device->info.multiprocessors;
    if (p->head_dim <= 64)
        return ranged || op->steady || p->sq <= (p->causal ? 2048 : 1024) ? &shapes[0] : &shapes[1];
    if (p->head_dim <= 128 && op->steady)
        return &shapes[4];
    if (p->head_dim <= 128)
        return p->sk <= 256 ? &shapes[2] : !ranged && p->sq > 256 && items >= 8 * multiprocessors ? &shapes[3] : &shapes[4];
    return p->head_dim <= 192 ? &shapes[5] : &shapes[6];
}

/*  The options of its program, but for those of a variant. */
static void ignis__attention_hopper_define(char *define, size_t size, const ignis__attention *p, const ignis__attention_hopper_shape *shape)
{
    snprintf(define, size, "-DIGNIS_HEAD_DIM=%d -DIGNIS_CAUSAL=%d -DIGNIS_FORWARD_GROUPS=%d -DIGNIS_FORWARD_KEYS=%d", p->head_dim,
             p->causal, shape->groups, shape->keys);
}

/*  Whether the kernels by wgmma can be had. Where the caller has asked for them and they cannot, the logger hears why. */
static bool ignis__attention_takes_wgmma(const ignis__op *op, ignis_dtype dtype, const ignis__attention *p)
{
    const ignis__attention_rows *tensors = &p->q;
    const char *why = NULL;
    int i;
    if (ignis__attention_by == IGNIS_ATTENTION_MMA)
        return false;
    if (ignis__op_major(op) != 9)
        why = "the device is not of compute capability 9.0";
    else if (!op->as_major && !ignis__cuda.cuTensorMapEncodeTiled)
        why = "the driver is older than CUDA 12.0";
    else if (!op->as_major && !ignis__wgmma_compiles(op->work.call))
        why = "NVRTC is older than 12.0, or the bundle has no such kernels";
    else if (dtype != IGNIS_F16 && dtype != IGNIS_BF16)
        why = "the dtype is not f16 or bf16";
    else if (p->head_dim % 8 != 0 || p->head_dim < 64 || p->head_dim > 256)
        why = "head_dim is not a multiple of 8 from 64 to 256";
    else if (p->batches == 0 || p->sq == 0 || p->sk == 0)
        why = "there is no query or no key";
    else if (p->bias_dtype)
        why = "there is a bias";
    for (i = 0; i < 8 && !op->as_major; i++) /* to grad_v; those that are not there are 0 */
        if (tensors[i].data % 16 != 0 || (tensors[i].row | tensors[i].head | tensors[i].batch) % 8 != 0)
            why = why ? why : "rows are not aligned to 16 bytes";
    if (why && !op->as_major && ignis__attention_by == IGNIS_ATTENTION_WGMMA)
        ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_UNSUPPORTED, "%s: not by IGNIS_ATTENTION_WGMMA, as %s", op->work.call, why);
    return !why;
}

/*  The map of a tensor, for tiles of so many of its `length` rows, which lie in shared memory as slabs of 64 columns one behind the other. Heads of
    whole slabs are copied so many slabs at a time, others slab by slab: what the last one lacks is zeros. */
static void ignis__attention_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype, const ignis__attention *p,
                                 const ignis__attention_rows *tensor, int heads, int length, int rows, int slabs)
{
    int64_t dims[] = {64, length, p->head_dim / 64, heads, p->batches};
    int64_t strides[] = {2 * tensor->row, 128, 2 * tensor->head, 2 * tensor->batch};
    int box[] = {64, rows, slabs, 1, 1}, rank = 5;
    if (p->head_dim % 64 != 0) { /* no dimension of slabs */
        rank = 4;
        dims[0] = p->head_dim;
        dims[2] = heads;
        dims[3] = p->batches;
        strides[1] = strides[2];
        strides[2] = strides[3];
        box[2] = 1;
    }
    op->ok = op->ok && ignis__tensor_map_make(&op->work, map, dtype, false, tensor->data, rank, dims, strides, box, NULL);
}

/*  How many numbers for each query forward leaves for backward in lse: with a bias a bound and a sum. */
static int ignis__attention_lses(const ignis__attention *p) { return p->bias_dtype ? 2 : 1; }

static ignis__attention_variant ignis__attention_choose(const ignis__op *op, ignis_dtype dtype, const ignis__attention *p)
{
    ignis__attention_variant variant = IGNIS__ZERO;
    int i, head_dim = 32, size = dtype == IGNIS_F64 ? 8 : 4, pack = 16 / size, bytes, lines;
    int stats = 1 + ignis__attention_lses(p); /* numbers for a query that backward has in shared memory */
    if (ignis__attention_takes_mma(op, dtype, p)) {
        for (i = 0; ignis__attention_mma[i].head_dim < p->head_dim;)
            i++;
        head_dim = ignis__attention_mma[i].head_dim;
        variant.forward_kernel = IGNIS__BUILTIN_SDPA_MMA;
        variant.delta_kernel = IGNIS__BUILTIN_SDPA_MMA_BACKWARD_DELTA;
        variant.kv_kernel = IGNIS__BUILTIN_SDPA_MMA_BACKWARD_KV;
        variant.q_kernel = IGNIS__BUILTIN_SDPA_MMA_BACKWARD_Q;
        variant.bias_kernel = IGNIS__BUILTIN_SDPA_MMA_BACKWARD_BIAS;
        variant.forward = ignis__attention_mma[i].forward;
        variant.kv = ignis__attention_mma[i].kv;
        variant.q = ignis__attention_mma[i].q;
        variant.forward.shared = 2 * head_dim * (variant.forward.rows + 4 * variant.forward.walk);
        variant.kv.shared = 2 * head_dim * (2 * variant.kv.rows + 4 * variant.kv.walk) + 8 * stats * variant.kv.walk;
        variant.q.shared = 2 * head_dim * (2 * variant.q.rows + 4 * variant.q.walk) + 4 * stats * variant.q.rows;
        variant.bias = variant.q;
        variant.bias.shared -= 4 * head_dim * variant.q.walk; /* one tile of keys at a time, not two */
    } else {                                                  /* as computed at the top of kernels/attention.cu */
        while (head_dim < p->head_dim)
            head_dim *= 2;
        bytes = head_dim * size;
        variant.forward_kernel = IGNIS__BUILTIN_SDPA;
        variant.delta_kernel = IGNIS__BUILTIN_SDPA_BACKWARD_DELTA;
        variant.kv_kernel = IGNIS__BUILTIN_SDPA_BACKWARD_KV;
        variant.q_kernel = IGNIS__BUILTIN_SDPA_BACKWARD_Q;
        variant.bias_kernel = IGNIS__BUILTIN_SDPA_BACKWARD_BIAS;
        variant.forward.threads = variant.kv.threads = bytes > 1024 ? 64 : 128;
        variant.forward.walk = variant.kv.walk = 16384 / bytes < 8 * pack ? 16384 / bytes : 8 * pack;
        lines = variant.forward.threads / 8;
        variant.forward.rows = lines * (2048 / bytes < pack ? 2048 / bytes : pack);
        variant.kv.rows = lines * (bytes > 1024 ? 1 : 1024 / bytes < pack ? 1024 / bytes : pack);
        variant.forward.shared =
            (variant.forward.rows + variant.forward.walk) * (bytes + 16) + variant.forward.rows * (variant.forward.walk * size + 16);
        variant.kv.shared = (2 * variant.kv.rows + variant.kv.walk) * (bytes + 16) + 2 * variant.kv.rows * (variant.kv.walk * size + 16);
        variant.q = variant.bias = variant.kv;
    }
    snprintf(variant.define, sizeof variant.define, "-DIGNIS_HEAD_DIM=%d", head_dim);
    ignis__attention_options(variant.define, sizeof variant.define, p, ignis__attention_ranged(p));
    return variant;
}

/*  Of kernels/attention_hopper_backward.cu; see ignis__attention_is_few and ignis__attention_is_direct. */
static const char *const ignis__attention_backward_forms[] = {"", " -DIGNIS_FEW=1", " -DIGNIS_DIRECT=1"};

/*  While programs are recorded: those that devices of every kind choose, of one of the two variants. */
IGNIS__COLD static void ignis__attention_request_variant(ignis__op *op, ignis_dtype dtype, const ignis__attention *p, bool backward)
{
    static const struct {
        int major, first;
    } kinds[] = {{7, 0}, {8, 80}}; /* the former for rows that are not aligned, too */
    bool ranged = ignis__attention_ranged(p) || p->softcap > 0;
    ignis__attention_variant variant;
    char define[IGNIS__DEFINES];
    int i, most;
    for (i = 0; i < IGNIS__COUNT(kinds); i++) {
        op->as_major = kinds[i].major;
        variant = ignis__attention_choose(op, dtype, p);
        ignis__request_own(backward ? variant.delta_kernel : variant.forward_kernel, dtype, variant.define, kinds[i].first,
                           IGNIS__EVERY_ARCH);
    }
    op->as_major = 9;
    if (ignis__attention_takes_wgmma(op, dtype, p) && backward) {
        for (i = 0; i < IGNIS__COUNT(ignis__attention_backward_forms); i++) {
            if ((i == 1 && p->heads != p->kv_heads) || (i == 2 && p->head_dim != 128))
                continue;
            snprintf(define, sizeof define, "-DIGNIS_HEAD_DIM=%d -DIGNIS_CAUSAL=%d%s", p->head_dim, p->causal,
                     ignis__attention_backward_forms[i]);
            ignis__attention_options(define, sizeof define, p, ranged);
            ignis__request_own(IGNIS__BUILTIN_SDPA_HOPPER_BACKWARD_ROWS, dtype, define, 90, 90);
        }
    } else if (ignis__attention_takes_wgmma(op, dtype, p)) {
        for (i = 0, most = 0; i < IGNIS__COUNT(ignis__attention_hopper); i++) { /* all shapes of the smallest head_dim that holds it */
            if (ignis__attention_hopper[i].head_dim < p->head_dim || (most && ignis__attention_hopper[i].head_dim > most))
                continue;
            most = ignis__attention_hopper[i].head_dim;
            ignis__attention_hopper_define(define, sizeof define, p, &ignis__attention_hopper[i]);
            ignis__attention_options(define, sizeof define, p, ranged);
            ignis__request_own(IGNIS__BUILTIN_SDPA_HOPPER, dtype, define, 90, 90);
        }
    }
    op->as_major = 0;
}

/*  Those for rows as many as these or others, which a window may show whole, or not. */
IGNIS__COLD static void ignis__attention_request(ignis__op *op, ignis_dtype dtype, const ignis__attention *given, bool backward)
{
    ignis__attention p = *given;
    if (!op->ok || !ignis__requests.path[0])
        return;
    ignis__attention_request_variant(op, dtype, &p, backward);
    p.window = ignis__attention_ranged(&p) ? p.sq > p.sk ? p.sq : p.sk : 0;
    if (p.windowed && !p.has_lengths)
        ignis__attention_request_variant(op, dtype, &p, backward);
}

static void ignis__attention_launch(ignis__op *op, const ignis__attention_variant *variant, ignis__builtin kernel,
                                    const ignis__attention_shape *shape, ignis_dtype dtype, int rows, int heads, ignis__attention *p)
{
    int64_t blocks = ignis__ceil_div(rows, shape->rows) * heads * p->batches;
    void *params[] = {p};
    ignis__op_launch(op, kernel, dtype, variant->define, blocks, 1, 1, (unsigned)shape->threads, 1, (size_t)shape->shared, params);
}

/*  Where the rows of a contiguous tensor of the shape [rows, width] or [batch, rows, width] are. */
IGNIS__ONE_COPY static ignis__attention_rows ignis__attention_rows_of(const ignis_shape *shape, int head_dim, ignis__address address)
{
    ignis__attention_rows rows;
    IGNIS_ASSERT(shape->ndim >= 2);
    rows.data = address;
    rows.row = shape->dim[shape->ndim - 1];
    rows.head = head_dim;
    rows.batch = rows.row * shape->dim[shape->ndim - 2];
    return rows;
}

/*  Where the rows of a bias are, whose shape has been checked; a dimension that is shared has no steps. */
static ignis__attention_rows ignis__attention_bias_rows(const ignis_shape *shape, ignis__address address)
{
    ignis__attention_rows rows = IGNIS__ZERO;
    int64_t *steps[] = {&rows.row, &rows.head, &rows.batch}, step = shape->dim[shape->ndim - 1];
    int i;
    rows.data = address;
    for (i = 0; i < shape->ndim - 1; i++) {
        int64_t size = shape->dim[shape->ndim - 2 - i];
        *steps[i] = size > 1 ? step : 0;
        step *= size;
    }
    return rows;
}

/*  The addresses of the bias and the lengths, which are inputs of the operation from one on, in this order. Returns the input behind them. */
static int ignis__attention_extras(ignis__op *op, int input, ignis__attention *p)
{
    if (p->bias_dtype) {
        p->bias = ignis__attention_bias_rows(&op->in[input]->shape, ignis__op_read(op, op->in[input]));
        input++;
    }
    if (p->has_lengths)
        p->lengths = ignis__op_read(op, op->in[input++]);
    return input;
}

/*  The addresses of q, k, v, which were checked, and of the result. */
static void ignis__attention_operands(ignis__op *op, ignis__array *out, ignis__attention *p)
{
    if (!op->ok)
        return;
    p->q = ignis__attention_rows_of(&op->in[0]->shape, p->head_dim, ignis__op_read(op, op->in[0]));
    p->k = ignis__attention_rows_of(&op->in[1]->shape, p->head_dim, ignis__op_read(op, op->in[1]));
    p->v = ignis__attention_rows_of(&op->in[2]->shape, p->head_dim, ignis__op_read(op, op->in[2]));
    p->out = ignis__attention_rows_of(&op->in[0]->shape, p->head_dim, ignis__op_write(op, out));
    ignis__attention_extras(op, 3, p);
}

static bool ignis__attention_heads(ignis__op *op, int heads, int64_t kv_heads)
{
    if (heads % kv_heads != 0)
        ignis__op_fail(op, IGNIS_DIAG_SDPA_HEADS, "num_heads (%d) must be a multiple of num_kv_heads (%lld)", heads, (long long)kv_heads);
    return op->ok;
}

/*  Fills in the sizes of rows of queries and of keys. Reports what is too large. */
static bool ignis__attention_fill(ignis__op *op, const ignis_shape *q, const ignis_shape *k, int heads, int kv_heads, int64_t head_dim,
                                  int most, ignis__attention *p)
{
    int64_t sq = q->dim[q->ndim - 2], sk = k->dim[k->ndim - 2], batches = q->ndim == 3 ? q->dim[0] : 1, limit = (int64_t)1 << 30;
    if (head_dim > most)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "head_dim is %lld; %d is the most", (long long)head_dim, most);
    if (sq >= limit || sk >= limit || batches >= limit)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "queries are %s, keys are %s; 2^30 rows are too many", ignis__shape_write(q).text,
                              ignis__shape_write(k).text);
    p->batches = (int)batches;
    p->heads = heads;
    p->kv_heads = kv_heads;
    p->head_dim = (int)head_dim;
    p->sq = (int)sq;
    p->sk = (int)sk;
    p->scale = ignis__root(1.0 / (double)head_dim, 2);
    return true;
}

/*  Fills in the sizes from q, k and v; kv_heads 0: as many as k has. Heads have up to `most` elements. Reports what does not fit. */
static bool ignis__attention_sizes(ignis__op *op, int heads, int kv_heads, int most, ignis__attention *p)
{
    const ignis_shape *q = &op->in[0]->shape, *k = &op->in[1]->shape, *v = &op->in[2]->shape;
    int64_t width, head_dim, kv_width;
    int last = q->ndim - 1;
    if (!ignis__op_is_float(op, 0, "q") || !ignis__op_same_dtype(op, 1, "k") || !ignis__op_same_dtype(op, 2, "v"))
        return false;
    if (q->ndim < 2 || q->ndim > 3)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "q is %s; it has to be [rows, width] or [batch, rows, width]",
                              ignis__shape_write(q).text);
    if (k->ndim != q->ndim || (q->ndim == 3 && k->dim[0] != q->dim[0]))
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "k is %s, which does not go with q %s", ignis__shape_write(k).text,
                              ignis__shape_write(q).text);
    if (!ignis__shape_same(v, k))
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "v is %s, k is %s", ignis__shape_write(v).text, ignis__shape_write(k).text);
    width = q->dim[last];
    kv_width = k->dim[last];
    if (width == 0 || width % heads != 0)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "q is %s; its last dimension has to be num_heads (%d) heads of equal size",
                              ignis__shape_write(q).text, heads);
    head_dim = width / heads;
    if (kv_heads == 0 && (kv_width == 0 || kv_width % head_dim != 0 || kv_width > width))
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "k is %s; its last dimension has to be 1 to %d heads of %lld elements",
                              ignis__shape_write(k).text, heads, (long long)head_dim);
    if (kv_heads != 0 && kv_width != kv_heads * head_dim)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "k is %s; its last dimension has to be num_kv_heads (%d) heads of %lld elements",
                              ignis__shape_write(k).text, kv_heads, (long long)head_dim);
    if (!ignis__attention_heads(op, heads, kv_width / head_dim))
        return false;
    return ignis__attention_fill(op, q, k, heads, (int)(kv_width / head_dim), head_dim, most, p);
}

/*  The same for q, k and v in the rows of one tensor. */
static bool ignis__attention_packed_sizes(ignis__op *op, int heads, int kv_heads, ignis__attention *p)
{
    const ignis_shape *shape = &op->in[0]->shape;
    int64_t width = shape->dim[shape->ndim - 1], all = heads + 2 * (int64_t)kv_heads;
    if (!ignis__op_is_float(op, 0, "qkv"))
        return false;
    if (shape->ndim < 2 || shape->ndim > 3)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "qkv is %s; it has to be [rows, width] or [batch, rows, width]",
                              ignis__shape_write(shape).text);
    if (width == 0 || width % all != 0)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE,
                              "qkv is %s; its last dimension has to be num_heads (%d) and 2 * num_kv_heads (%d) heads of equal size",
                              ignis__shape_write(shape).text, heads, kv_heads);
    return ignis__attention_fill(op, shape, shape, heads, kv_heads, width / all, 256, p);
}

/*  Room for so many numbers for each query head of each row. */
static ignis__array *ignis__attention_stat(ignis__op *op, const ignis__attention *p, ignis_dtype dtype, int count)
{
    return ignis__op_new_row(op, (int64_t)count * p->batches * p->heads * p->sq, ignis__wide_dtype(dtype));
}

static void ignis__attention_backward_run(ignis__op *op, ignis_dtype dtype, ignis__attention *p)
{
    ignis__attention_variant variant;
    int64_t blocks =
        ignis__clamp(ignis__ceil_div((int64_t)p->batches * p->heads * p->sq, 8), 0, 16 * op->work.device->info.multiprocessors);
    void *params[] = {p};
    p->delta = ignis__op_write(op, ignis__attention_stat(op, p, dtype, 1));
    if (!op->ok)
        return;
    variant = ignis__attention_choose(op, dtype, p);
    ignis__attention_cost(p, dtype, 2, 0, 0);
    ignis__op_launch(op, variant.delta_kernel, dtype, variant.define, blocks, 1, 1, 256, 1, 0, params);
    if (p->grad_k.data) {
        ignis__attention_cost(p, dtype, 2, 4, 4);
        ignis__attention_launch(op, &variant, variant.kv_kernel, &variant.kv, dtype, p->sk, p->kv_heads, p);
    }
    if (p->grad_q.data) {
        ignis__attention_cost(p, dtype, 3, 2, 3);
        ignis__attention_launch(op, &variant, variant.q_kernel, &variant.q, dtype, p->sq, p->heads, p);
    }
    if (p->grad_bias.data) {
        blocks = ignis__ceil_div(p->sk, variant.bias.walk) * (p->bias.row ? ignis__ceil_div(p->sq, variant.bias.rows) : 1) *
                 (p->bias.head ? p->heads : 1) * (p->bias.batch ? p->batches : 1);
        ignis__op_launch(op, variant.bias_kernel, dtype, variant.define, blocks, 1, 1, (unsigned)variant.bias.threads, 1,
                         (size_t)variant.bias.shared, params);
    }
}

/*  Makes the gradient of the bias, an input of the backward function, where it is needed. */
static ignis__array *ignis__attention_grad_bias(ignis__op *op, int input, bool needed, ignis__attention *p)
{
    ignis__array *grad;
    if (!p->bias_dtype || !needed)
        return NULL;
    grad = ignis__op_new_like(op, op->in[input]);
    p->grad_bias = ignis__attention_bias_rows(&op->in[input]->shape, ignis__op_write(op, grad));
    return grad;
}

/*  The same by kernels/attention_hopper_backward.cu, for all three gradients. */
typedef struct ignis__attention_scratch {
    ignis__address lse, delta, grad_q, turns, next, sums;
    int rows, section;
} ignis__attention_scratch;

/*  What q and k were turned by, for the kernel that turns their gradients back. */
typedef struct ignis__rotation {
    int64_t offset;
    ignis__address own; /* frequencies on the device; 0: those behind it */
    float frequencies[IGNIS__ROPE_HALF];
} ignis__rotation;

/*  Whether a block has queries and walks over keys, not the other way round: all queries of a head fit a tile, and keys are far more. Nobody else
    has queries of the head of k and v, then. With a cap heads of 72 to 128 have no registers for that. */
static bool ignis__attention_is_few(const ignis__attention *p)
{
    return p->sq <= 128 && p->sk >= 512 && p->heads == p->kv_heads && (p->softcap <= 0 || p->head_dim == 64 || p->head_dim > 128);
}

/*  Tiles of the kernels: keys that a block has, queries that it walks over at a time; or the other way round. */
static int ignis__attention_backward_keys(const ignis__attention *p) { return p->head_dim <= 128 ? 128 : 64; }
static int ignis__attention_backward_queries(const ignis__attention *p)
{
    return p->head_dim == 64 || ignis__attention_is_few(p) ? 128 : 64;
}

/*  Whether threads add to grad_q, not copies: turns are shorter, where few tiles of queries make blocks wait for them. */
static bool ignis__attention_is_direct(const ignis__attention *p)
{
    return p->head_dim == 128 && p->sq <= 256 && p->sk >= 2048 && !ignis__attention_is_few(p);
}

/*  Blocks of a cluster, which have keys next to each other. */
static int ignis__attention_backward_cluster(const ignis__attention *p) { return p->head_dim <= 128 || ignis__attention_is_few(p) ? 1 : 2; }

/*  A tile with few queries would be mostly room for what is kept in float. */
static bool ignis__attention_backward_takes_wgmma(ignis__op *op, ignis_dtype dtype, const ignis__attention *p)
{
    int least = p->head_dim == 64 ? 32 : 16;
    bool clustered;
    ignis__attention_request(op, dtype, p, true);
    if (!op->ok || !ignis__attention_takes_wgmma(op, dtype, p))
        return false;
    clustered = ignis__attention_backward_cluster(p) == 1 || op->work.device->clusters;
    if (p->sq < least && ignis__attention_by == IGNIS_ATTENTION_WGMMA)
        ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_UNSUPPORTED, "%s: backward not by IGNIS_ATTENTION_WGMMA, as there are fewer than %d queries",
                    op->work.call, least);
    else if (!clustered && ignis__attention_by == IGNIS_ATTENTION_WGMMA)
        ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_UNSUPPORTED,
                    "%s: backward not by IGNIS_ATTENTION_WGMMA, as the device has no clusters of blocks", op->work.call);
    return p->sq >= least && clustered;
}

/*  As computed in the kernels' source: tiles of keys and queries in slabs of 64 columns, scores, grad_q on its way or what comes from the cluster's
    other block, statistics, barriers. */
static int ignis__attention_backward_shared(const ignis__attention *p)
{
    int keys = ignis__attention_backward_keys(p), queries = ignis__attention_backward_queries(p), wide = p->head_dim > 128;
    int slabs = (p->head_dim + 63) / 64, columns = (p->head_dim + 15) / 16 * 16, stages = slabs == 4 ? 3 : 4;
    if (ignis__attention_is_few(p)) {
        stages = slabs == 1 ? 4 : slabs == 4 ? 1 : 2; /* of keys and values */
        return slabs * 128 * (2 * stages * keys + 2 * queries) + (wide ? 2 : 1) * 2 * keys * queries + 2 * 4 * queries +
               8 * (1 + 2 * stages);
    }
    return slabs * 128 * (2 * keys + stages * queries) + (wide ? 6 : 2) * 2 * keys * queries +
           (wide ? 2 * 128 * keys : 2 * 4 * queries * columns) + stages * 4 * queries + 104;
}

/*  Tiles of keys of a part, where queries are few: so that there are about 256 blocks. */
static int ignis__attention_backward_part(const ignis__attention *p)
{
    int64_t tiles = ignis__ceil_div(p->sk, ignis__attention_backward_keys(p));
    return (int)ignis__ceil_div(tiles, ignis__clamp(ignis__ceil_div(256, (int64_t)p->batches * p->heads), 1, tiles));
}

/*  Heads of keys walked at a time: their q, grad_out and grad_q fit 40 MiB of L2. The more of them, the fewer blocks wait for turns at one tile. With
    a causal mask two sections at least: the last goes the other way. */
static int ignis__attention_backward_section(const ignis__attention *p)
{
    int64_t pairs = (int64_t)p->batches * p->kv_heads, bytes = (int64_t)p->sq * p->head_dim * 8 * (p->heads / p->kv_heads), section = 1;
    while (2 * section * bytes <= (int64_t)40 << 20 && section < pairs)
        section *= 2;
    return (int)ignis__ceil_div(pairs, section < pairs ? ignis__ceil_div(pairs, section) : p->causal ? 2 : 1);
}

/*  sums: room for those of 64 rows of each column, which the kernels' source describes; 0: nobody wants them. rotation: by which the gradients of q
    and k turn back, which have as many rows then; null: they do not turn, and may have sums. */
static void ignis__attention_backward_wgmma(ignis__op *op, ignis_dtype dtype, ignis__attention *p, ignis__address sums,
                                            ignis__rotation *rotation)
{
    int keys = ignis__attention_backward_keys(p), queries = ignis__attention_backward_queries(p);
    int cluster = ignis__attention_backward_cluster(p), slabs = p->head_dim / 64; /* blocks; whole ones */
    bool few = ignis__attention_is_few(p), direct = ignis__attention_is_direct(p);
    int64_t tiles = ignis__ceil_div(p->sq, queries) * p->heads * p->batches, rows = tiles * queries;
    int64_t columns = ignis__ceil_div(p->head_dim, 16) * 16, turns = tiles * (cluster > 1 ? 4 : direct ? 2 : 1);
    int64_t blocks = cluster * ignis__ceil_div(p->sk, cluster * keys) * p->kv_heads * p->batches;
    int64_t finish = tiles, floats = rows * columns;                  /* of grad_q */
    int lanes = p->head_dim <= 64 ? 8 : p->head_dim <= 128 ? 16 : 32; /* for a row */
    ignis__attention_scratch scratch;
    ignis__tensor_map q, k, v, grad_out, grad_k, grad_v;
    void *params[] = {p, &scratch, rotation}, *maps[] = {&q, &k, &v, &grad_out, &grad_k, &grad_v, p, &scratch};
    char define[96];
    ignis__attention_map(op, &q, dtype, p, &p->q, p->heads, p->sq, queries, slabs);
    ignis__attention_map(op, &k, dtype, p, &p->k, p->kv_heads, p->sk, keys, cluster > 1 ? 1 : slabs);
    ignis__attention_map(op, &v, dtype, p, &p->v, p->kv_heads, p->sk, keys, slabs);
    ignis__attention_map(op, &grad_out, dtype, p, &p->grad_out, p->heads, p->sq, queries, slabs);
    ignis__attention_map(op, &grad_k, dtype, p, &p->grad_k, p->kv_heads, p->sk, keys, slabs);
    ignis__attention_map(op, &grad_v, dtype, p, &p->grad_v, p->kv_heads, p->sk, keys, slabs);
    scratch.section = few ? ignis__attention_backward_part(p) : ignis__attention_backward_section(p);
    if (few) {
        blocks = ignis__ceil_div(ignis__ceil_div(p->sk, keys), scratch.section) * p->heads * p->batches;
        floats = blocks * p->sq * columns;
        finish = ignis__ceil_div((int64_t)p->heads * p->batches * p->sq * columns, 8 * 256);
    }
    scratch.grad_q = ignis__op_write(op, ignis__op_new_row(op, floats + 2 * rows + turns + 1, IGNIS_F32));
    scratch.lse = scratch.grad_q + (ignis__address)(floats * 4);
    scratch.delta = scratch.lse + (ignis__address)(rows * 4);
    scratch.turns = scratch.delta + (ignis__address)(rows * 4);
    scratch.next = scratch.turns + (ignis__address)(turns * 4);
    scratch.sums = sums;
    scratch.rows = (int)ignis__ceil_div(p->sq, queries) * queries;
    snprintf(define, sizeof define, "-DIGNIS_HEAD_DIM=%d -DIGNIS_CAUSAL=%d%s", p->head_dim, p->causal,
             ignis__attention_backward_forms[few + 2 * direct]); /* one at most */
    ignis__attention_options(define, sizeof define, p, ignis__attention_ranged(p) || p->softcap > 0);
    ignis__attention_cost(p, dtype, 2, 0, 0);
    ignis__op_launch(op, IGNIS__BUILTIN_SDPA_HOPPER_BACKWARD_ROWS, dtype, define, ignis__ceil_div(rows / 4 * lanes, 256), 1, 1, 256, 1, 0,
                     params);
    ignis__attention_cost(p, dtype, 2, 4, 5);
    ignis__op_launch(op, IGNIS__BUILTIN_SDPA_HOPPER_BACKWARD, dtype, define, blocks, 1, 1, 384, 1,
                     (size_t)ignis__attention_backward_shared(p), maps);
    if (rotation)
        finish += finish / p->heads * p->kv_heads;
    ignis__op_launch(op, rotation ? IGNIS__BUILTIN_SDPA_HOPPER_BACKWARD_TURNED : IGNIS__BUILTIN_SDPA_HOPPER_BACKWARD_FINISH, dtype, define,
                     finish, 1, 1, 256, 1, 0, params);
}

static ignis_status ignis__sdpa_backward(const ignis_backward_args *args)
{
    ignis__attention p;
    ignis__op op; /* of grad_out, q, k, v, out, lse, the bias, the lengths */
    ignis__array *gradients[4] = {NULL, NULL, NULL, NULL};
    ignis_dtype dtype;
    bool wgmma;
    if (!ignis__op_begin_backward(&op, "ignis_sdpa", args))
        return ignis__failed();
    memcpy(&p, args->params, sizeof p);
    dtype = op.in[1]->dtype;
    p.q = ignis__attention_rows_of(&op.in[1]->shape, p.head_dim, ignis__op_read(&op, op.in[1]));
    p.k = ignis__attention_rows_of(&op.in[2]->shape, p.head_dim, ignis__op_read(&op, op.in[2]));
    p.v = ignis__attention_rows_of(&op.in[3]->shape, p.head_dim, ignis__op_read(&op, op.in[3]));
    p.out = ignis__attention_rows_of(&op.in[4]->shape, p.head_dim, ignis__op_read(&op, op.in[4]));
    p.grad_out = ignis__attention_rows_of(&op.in[4]->shape, p.head_dim, ignis__op_read(&op, op.in[0])); /* it has the numel of out */
    p.lse = ignis__op_read(&op, op.in[5]);
    ignis__attention_extras(&op, 6, &p);
    wgmma = ignis__attention_backward_takes_wgmma(&op, dtype, &p);
    if (args->needed[0] || wgmma) {
        gradients[0] = ignis__op_new_like(&op, op.in[1]);
        p.grad_q = ignis__attention_rows_of(&op.in[1]->shape, p.head_dim, ignis__op_write(&op, gradients[0]));
    }
    if (args->needed[1] || args->needed[2] || wgmma) { /* they come together */
        gradients[1] = ignis__op_new_like(&op, op.in[2]);
        p.grad_k = ignis__attention_rows_of(&op.in[2]->shape, p.head_dim, ignis__op_write(&op, gradients[1]));
        gradients[2] = ignis__op_new_like(&op, op.in[3]);
        p.grad_v = ignis__attention_rows_of(&op.in[3]->shape, p.head_dim, ignis__op_write(&op, gradients[2]));
    }
    if (p.bias_dtype)
        gradients[3] = ignis__attention_grad_bias(&op, 6, args->needed[3], &p);
    if (wgmma)
        ignis__attention_backward_wgmma(&op, dtype, &p, 0, NULL);
    else
        ignis__attention_backward_run(&op, dtype, &p);
    return ignis__op_give(&op, args, p.bias_dtype ? 4 : 3, gradients);
}

/*  Adds the tensors of a desc to the inputs of an operation, behind `count`. Returns how many there are then. */
static int ignis__sdpa_inputs(const ignis_sdpa_desc *desc, ignis_tensor *inputs, int count)
{
    if (desc && desc->bias.id)
        inputs[count++] = desc->bias;
    if (desc && desc->lengths.id)
        inputs[count++] = desc->lengths;
    return count;
}

/*  Checks what a desc has beside heads, mask and scale; its tensors are inputs from one on. The sizes are known. */
static bool ignis__sdpa_variant(ignis__op *op, const ignis_sdpa_desc *desc, int input, ignis__attention *p)
{
    const ignis_shape *shape;
    int64_t sizes[4];
    int i;
    if (desc->window < 0)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->window is %d, below 0", desc->window);
    if (!(desc->softcap >= 0 && desc->softcap < 1e30))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->softcap is %g, not a positive number", desc->softcap);
    p->window = p->sq > p->sk ? p->sq : p->sk;
    p->windowed = desc->window > 0;
    if (desc->window && desc->window < p->window)
        p->window = p->causal && desc->window >= p->sk ? p->window : desc->window; /* no key is further behind than sk - 1 */
    p->softcap = desc->softcap;
    if (desc->bias.id) {
        shape = &op->in[input]->shape;
        p->bias_dtype = (int)op->in[input]->dtype;
        if (p->bias_dtype != (int)op->in[0]->dtype && (p->bias_dtype != IGNIS_F32 || op->in[0]->dtype == IGNIS_F64))
            ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "desc->bias is %s, the first input is %s", ignis__dtypes[p->bias_dtype].name,
                           ignis__dtypes[op->in[0]->dtype].name);
        sizes[0] = p->batches, sizes[1] = p->heads, sizes[2] = p->sq, sizes[3] = p->sk;
        for (i = 0; i < shape->ndim && i < 4; i++)
            if (shape->dim[shape->ndim - 1 - i] != sizes[3 - i] && (i == 0 || shape->dim[shape->ndim - 1 - i] != 1))
                break;
        if (shape->ndim < 1 || shape->ndim > 4 || i < shape->ndim)
            ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE,
                           "desc->bias is %s; it has to be [%d or 1, %d or 1, %d or 1, %d], or the last of these",
                           ignis__shape_write(shape).text, p->batches, p->heads, p->sq, p->sk);
        input++;
    }
    if (desc->lengths.id) {
        shape = &op->in[input]->shape;
        p->has_lengths = 1;
        if (op->in[input]->dtype != IGNIS_I32)
            ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "desc->lengths is %s; i32 is needed", ignis__dtypes[op->in[input]->dtype].name);
        if (shape->ndim != 1 || shape->dim[0] != p->batches)
            ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "desc->lengths is %s; there are %d sequences", ignis__shape_write(shape).text,
                           p->batches);
    }
    return op->ok;
}

/*  q, k and v as three tensors; in one; of one query, where num_kv_heads follows from the shapes. */
typedef enum ignis__sdpa_kind { IGNIS__SDPA, IGNIS__SDPA_PACKED, IGNIS__SDPA_DECODE } ignis__sdpa_kind;

static bool ignis__sdpa_prepare(ignis__op *op, const ignis_sdpa_desc *desc, ignis__sdpa_kind kind, ignis__attention *p)
{
    static const ignis_sdpa_desc defaults = IGNIS__ZERO;
    int heads, kv_heads;
    desc = desc ? desc : &defaults;
    heads = desc->num_heads ? desc->num_heads : 1;
    kv_heads = desc->num_kv_heads || kind == IGNIS__SDPA_DECODE ? desc->num_kv_heads : heads;
    memset(p, 0, sizeof *p);
    if (heads < 1)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->num_heads is %d, below 1", heads);
    if (kv_heads < (kind == IGNIS__SDPA_DECODE ? 0 : 1))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->num_kv_heads is %d, below 1", kv_heads);
    if ((int)desc->mask < 0 || desc->mask >= IGNIS_MASK_COUNT)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_ENUM, "desc->mask is %d, not one of ignis_mask", (int)desc->mask);
    if (!(desc->scale >= 0 && desc->scale < 1e30))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->scale is %g, not a positive number", desc->scale);
    if ((kv_heads && !ignis__attention_heads(op, heads, kv_heads)) ||
        !(kind == IGNIS__SDPA_PACKED ? ignis__attention_packed_sizes(op, heads, kv_heads, p)
                                     : ignis__attention_sizes(op, heads, kv_heads, kind == IGNIS__SDPA_DECODE ? 512 : 256, p)))
        return false;
    p->causal = desc->mask == IGNIS_MASK_CAUSAL;
    if (desc->scale > 0)
        p->scale = desc->scale;
    return ignis__sdpa_variant(op, desc, kind == IGNIS__SDPA_PACKED ? 1 : 3, p);
}

/*  How the items of the forward pass are shared out; kernels/attention_hopper.cu has the same. */
typedef struct ignis__forward_plan {
    ignis__address counter, parts;
    int section, splits, tiles;
} ignis__forward_plan;

#define IGNIS__SECTION_BYTES ((int64_t)32 << 20) /* of k and v, that stay in the second level cache of an H200 */

/*  Forward by kernels/attention_hopper.cu. */
static void ignis__sdpa_wgmma(ignis__op *op, ignis_dtype dtype, ignis__attention *p)
{
    const ignis__attention_hopper_shape *shape;
    int64_t multiprocessors = op->work.device->info.multiprocessors, pairs = (int64_t)p->batches * p->heads;
    int64_t items, tiles, seen, least, wanted, slabs = ignis__ceil_div(p->head_dim, 64), shared;
    int64_t heads_of_section = IGNIS__SECTION_BYTES / (4 * (int64_t)p->sk * p->head_dim);
    ignis__tensor_map q, k, v, out;
    ignis__forward_plan plan = IGNIS__ZERO;
    void *params[] = {&q, &k, &v, &out, p, &plan}, *combine[] = {p, &plan};
    bool ranged = ignis__attention_ranged(p) || p->softcap > 0; /* one program for both: a cap alone is no faster */
    char define[IGNIS__DEFINES];
    shape = ignis__attention_hopper_choose(op, p, ranged);
    ignis__attention_map(op, &q, dtype, p, &p->q, p->heads, p->sq, 64, p->head_dim / 64);
    ignis__attention_map(op, &k, dtype, p, &p->k, p->kv_heads, p->sk, shape->keys, p->head_dim / 64);
    ignis__attention_map(op, &v, dtype, p, &p->v, p->kv_heads, p->sk, shape->keys, p->head_dim / 64);
    ignis__attention_map(op, &out, dtype, p, &p->out, p->heads, p->sq, 64, p->head_dim / 64);
    ignis__attention_hopper_define(define, sizeof define, p, shape);
    ignis__attention_options(define, sizeof define, p, ranged);

    items = ignis__ceil_div(p->sq, 64 * shape->groups) * pairs;
    tiles = ignis__ceil_div(p->sk, shape->keys);
    seen = 64 * shape->groups + (p->causal ? 1 : 2) * (int64_t)p->window; /* keys, by the queries of an item, at most */
    tiles = ignis__clamp(ignis__ceil_div(seen, shape->keys) + 1, 1, tiles);
    least = shape->keys > 64 ? 2 : 4; /* tiles of keys that are worth a split */
    wanted = op->steady ? 1 : ignis__clamp(multiprocessors / items, 1, tiles > least ? tiles / least : 1);
    plan.tiles = (int)ignis__ceil_div(tiles, wanted);
    plan.splits = (int)ignis__ceil_div(tiles, plan.tiles);
    plan.section = (int)ignis__clamp(((int64_t)1 << ignis__log2((uint64_t)(heads_of_section | 1))) * (p->heads / p->kv_heads), 1, pairs);
    plan.counter = ignis__op_zeroed(op);
    if (plan.splits > 1)
        plan.parts = ignis__op_write(op, ignis__op_new_row(op, plan.splits * pairs * p->sq * (p->head_dim + 2), IGNIS_F32));
    shared = slabs * 128 * (64 * shape->groups * (p->head_dim <= 128 ? 3 : 1) + 2 * shape->stages * shape->keys);
    shared = shape->teams * shared + (shape->teams - 1) * 1024 + 256; /* a team begins at a multiple of 1024 bytes */
    ignis__attention_cost(p, dtype, 2, 2, 2);
    ignis__op_launch(op, IGNIS__BUILTIN_SDPA_HOPPER, dtype, define, ignis__clamp(items * plan.splits, 1, multiprocessors), 1, 1,
                     (unsigned)(128 * (shape->teams * shape->groups + 1)), 1, (size_t)shared, params);
    if (plan.splits > 1)
        ignis__op_launch(op, IGNIS__BUILTIN_SDPA_HOPPER_COMBINE, dtype, define, ignis__ceil_div(pairs * p->sq, 8), 1, 1, 256, 1, 0,
                         combine);
}

/*  Forward by the kernels that are the best for the operands. */
static void ignis__sdpa_run(ignis__op *op, ignis_dtype dtype, ignis__attention *p)
{
    ignis__attention_variant variant;
    if (op->ok)
        ignis__attention_request(op, dtype, p, false);
    if (op->ok && ignis__attention_takes_wgmma(op, dtype, p)) {
        ignis__sdpa_wgmma(op, dtype, p);
    } else if (op->ok) {
        variant = ignis__attention_choose(op, dtype, p);
        ignis__attention_cost(p, dtype, 2, 2, 2);
        ignis__attention_launch(op, &variant, variant.forward_kernel, &variant.forward, dtype, p->sq, p->heads, p);
    }
}

IGNIS_API ignis_tensor ignis_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc *desc)
{
    ignis_tensor inputs[5] = {q, k, v};
    ignis__attention p;
    ignis__op op;
    ignis__array *out, *lse;
    if (!ignis__op_begin(&op, "ignis_sdpa", ignis__sdpa_inputs(desc, inputs, 3), inputs))
        return ignis__no_tensor();
    ignis__sdpa_prepare(&op, desc, IGNIS__SDPA, &p);
    out = ignis__op_new_like(&op, op.in[0]);
    ignis__attention_operands(&op, out, &p);
    if (op.records) {
        lse = ignis__attention_stat(&op, &p, op.in[0]->dtype, ignis__attention_lses(&p));
        p.lse = ignis__op_write(&op, lse);
        ignis__op_save_inputs(&op, 0, 3);
        ignis__op_save(&op, out);
        ignis__op_save(&op, lse);
        ignis__op_save_inputs(&op, 3, op.count);
    }
    ignis__sdpa_run(&op, op.in[0]->dtype, &p);
    return ignis__op_end_recorded(&op, out, "sdpa", ignis__sdpa_backward, &p, sizeof p);
}

/*  What the backward of q, k and v in one tensor needs beside what was saved. */
typedef struct ignis__sdpa_packed {
    ignis__attention attention;
    ignis__rope rope; /* of q and k, no heads: they do not turn */
} ignis__sdpa_packed;

/*  Where q, k and v are in the rows of one tensor, which begin with the heads of q, then those of k. */
static void ignis__attention_parts(const ignis__attention *p, const ignis__array *array, ignis__address address, ignis__attention_rows *q,
                                   ignis__attention_rows *k, ignis__attention_rows *v)
{
    ignis__address head = address ? (ignis__address)(p->head_dim * ignis__dtypes[array->dtype].size) : 0;
    *q = *k = *v = ignis__attention_rows_of(&array->shape, p->head_dim, address);
    k->data += head * (ignis__address)p->heads;
    v->data += head * (ignis__address)(p->heads + p->kv_heads);
}

/*  q, k and v for the kernels; turned: q and k that have turned, null where they do not. */
static void ignis__sdpa_packed_operands(ignis__op *op, ignis__array *qkv, ignis__array *turned, ignis__attention *p)
{
    ignis__attention_rows behind;
    ignis__attention_parts(p, qkv, ignis__op_read(op, qkv), &p->q, &p->k, &p->v);
    if (turned)
        ignis__attention_parts(p, turned, ignis__op_read(op, turned), &p->q, &p->k, &behind);
}

/*  The gradient of qkv by wgmma, with the sums of its columns where the projection that made qkv has a bias, and q and k have not turned since.
    Returns those sums, or null. */
static ignis__array *ignis__sdpa_packed_wgmma(ignis__op *op, ignis_dtype dtype, ignis__attention *p, bool summed, ignis__rotation *rotation)
{
    int parts = (int)(ignis__ceil_div(p->sk, 64) * p->batches);
    int64_t n = (int64_t)(p->heads + 2 * p->kv_heads) * p->head_dim;
    ignis__address partial = 0, to[3] = {0, 0, 0};
    ignis__array *sums;
    if (summed)
        partial = ignis__op_write(op, ignis__op_new_row(op, parts * n, IGNIS_F32));
    ignis__attention_backward_wgmma(op, dtype, p, partial, rotation);
    if (!summed)
        return NULL;
    to[0] = ignis__op_write(op, sums = ignis__op_new_row(op, n, dtype));
    ignis__sum_partials(op, dtype, to, 1, partial, parts, n);
    return sums;
}

static ignis_status ignis__sdpa_packed_backward(const ignis_backward_args *args)
{
    ignis__sdpa_packed packed;
    ignis__attention *p = &packed.attention;
    ignis__op op; /* of grad_out, qkv, out, lse, the bias, the lengths, q and k that have turned, their frequencies */
    ignis__array *gradients[2], *sums = NULL, *own;
    ignis__address address;
    ignis__rotation rotation;
    bool wgmma, turns_alone; /* the gradients, behind the kernels of attention */
    int next;
    if (!ignis__op_begin_backward(&op, "ignis_sdpa_packed", args))
        return ignis__failed();
    memcpy(&packed, args->params, sizeof packed);
    next = ignis__attention_extras(&op, 4, p);
    ignis__sdpa_packed_operands(&op, op.in[1], next < op.count ? op.in[next] : NULL, p);
    p->out = ignis__attention_rows_of(&op.in[2]->shape, p->head_dim, ignis__op_read(&op, op.in[2]));
    p->grad_out = ignis__attention_rows_of(&op.in[2]->shape, p->head_dim, ignis__op_read(&op, op.in[0])); /* it has the numel of out */
    p->lse = ignis__op_read(&op, op.in[3]);
    gradients[0] = ignis__op_new_like(&op, op.in[1]);
    gradients[1] = ignis__attention_grad_bias(&op, 4, p->bias_dtype && args->needed[1], p);
    address = ignis__op_write(&op, gradients[0]);
    if (op.ok)
        ignis__attention_parts(p, gradients[0], address, &p->grad_q, &p->grad_k, &p->grad_v);
    own = next + 1 < op.count ? op.in[next + 1] : NULL;
    rotation.offset = packed.rope.offset;
    rotation.own = own ? ignis__op_read(&op, own) : 0;
    ignis__rope_floats(rotation.frequencies, packed.rope.frequencies);
    wgmma = ignis__attention_backward_takes_wgmma(&op, op.in[1]->dtype, p);
    turns_alone = !wgmma || p->head_dim % 16 != 0 || ignis__attention_is_few(p);
    if (wgmma)
        sums = ignis__sdpa_packed_wgmma(&op, op.in[1]->dtype, p, args->needed[0] && !packed.rope.heads && ignis__bias_is_behind(),
                                        turns_alone || !packed.rope.heads ? NULL : &rotation);
    else
        ignis__attention_backward_run(&op, op.in[1]->dtype, p);
    if (packed.rope.heads && turns_alone) /* back, where they are */
        ignis__rope_turn(&op, &packed.rope, op.in[1]->dtype, address, p->grad_q.row, address, p->grad_q.row, own, -1);
    return ignis__op_give_with_sums(&op, args, p->bias_dtype ? 2 : 1, gradients, sums);
}

/*  An array for so many heads of each row of qkv. */
static ignis__array *ignis__sdpa_packed_new(ignis__op *op, const ignis__attention *p, int heads)
{
    ignis_shape shape = op->in[0]->shape;
    shape.dim[shape.ndim - 1] = op->ok ? (int64_t)heads * p->head_dim : 0;
    return ignis__op_new(op, &shape, op->in[0]->dtype);
}

/*  Turns q and k into an array of their own. */
static ignis__array *ignis__sdpa_packed_turn(ignis__op *op, const ignis_rope_desc *desc, ignis__array *own, ignis__sdpa_packed *packed)
{
    const ignis__attention *p = &packed->attention;
    int heads = p->heads + p->kv_heads;
    ignis__array *turned;
    ignis__address from, to;
    if (desc->num_heads != 0 && desc->num_heads != heads)
        ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "rope->num_heads is %d; q and k have %d heads", desc->num_heads, heads);
    if (!op->ok || !ignis__rope_prepare(op, desc, own, heads, p->head_dim, &packed->rope))
        return NULL;
    turned = ignis__sdpa_packed_new(op, p, heads);
    from = ignis__op_read(op, op->in[0]);
    to = ignis__op_write(op, turned);
    ignis__rope_turn(op, &packed->rope, op->in[0]->dtype, to, (int64_t)heads * p->head_dim, from,
                     op->in[0]->shape.dim[op->in[0]->shape.ndim - 1], own, 1);
    return turned;
}

IGNIS_API ignis_tensor ignis_sdpa_packed(ignis_tensor qkv, const ignis_sdpa_desc *desc, const ignis_rope_desc *rope)
{
    static const char call[] = "ignis_sdpa_packed";
    ignis__sdpa_packed packed = IGNIS__ZERO;
    ignis__attention *p = &packed.attention;
    ignis__op op;
    ignis__array *out, *lse, *own = NULL, *turned = NULL;
    ignis_tensor result, inputs[3] = {qkv};
    if (!ignis__op_begin(&op, call, ignis__sdpa_inputs(desc, inputs, 1), inputs))
        return ignis__no_tensor();
    ignis__sdpa_prepare(&op, desc, IGNIS__SDPA_PACKED, p);
    if (rope) {
        own = ignis__rope_own(&op, rope);
        turned = ignis__sdpa_packed_turn(&op, rope, own, &packed);
    }
    out = ignis__sdpa_packed_new(&op, p, p->heads);
    if (op.ok)
        ignis__sdpa_packed_operands(&op, op.in[0], turned, p);
    if (op.ok)
        p->out = ignis__attention_rows_of(&out->shape, p->head_dim, ignis__op_write(&op, out));
    if (op.ok)
        ignis__attention_extras(&op, 1, p);
    if (op.records) {
        lse = ignis__attention_stat(&op, p, op.in[0]->dtype, ignis__attention_lses(p));
        p->lse = ignis__op_write(&op, lse);
        ignis__op_save(&op, op.in[0]);
        ignis__op_save(&op, out);
        ignis__op_save(&op, lse);
        ignis__op_save_inputs(&op, 1, op.count);
        ignis__op_save(&op, turned);
        if (own) /* through a view: the array itself stays the caller's */
            ignis__op_save(&op, ignis__op_view(&op, own, &own->shape, own->numel, 0));
    }
    ignis__sdpa_run(&op, op.in[0]->dtype, p);
    result = ignis__op_end_recorded(&op, out, "sdpa_packed", ignis__sdpa_packed_backward, &packed, sizeof packed);
    if (own)
        ignis__array_drop(call, own);
    return result;
}

/*  How a cache is shared among blocks. */
typedef struct ignis__decode_variant {
    char define[96];
    ignis__builtin kernel, combine_kernel;
    int heads;                   /* query heads that a block does: it reads the keys once for all of them */
    int keys;                    /* that a block walks over at a time */
    int threads, shared, blocks; /* of a block; blocks that a multiprocessor should have */
} ignis__decode_variant;

/*  Geometry of kernels/attention_decode_mma.cu and kernels/attention_decode.cu. */
static ignis__decode_variant ignis__decode_choose(const ignis__op *op, ignis_dtype dtype, const ignis__attention *p)
{
    ignis__decode_variant variant = IGNIS__ZERO;
    int head_dim = 64, group = p->heads / p->kv_heads, warps;
    while (head_dim < p->head_dim)
        head_dim *= 2;
    snprintf(variant.define, sizeof variant.define, "-DIGNIS_HEAD_DIM=%d", head_dim);
    ignis__attention_options(variant.define, sizeof variant.define, p, ignis__attention_ranged(p));
    if (head_dim <= 256 && ignis__attention_takes_mma(op, dtype, p)) {
        warps = head_dim <= 128 ? 4 : 2;
        variant.kernel = IGNIS__BUILTIN_SDPA_MMA_DECODE;
        variant.combine_kernel = IGNIS__BUILTIN_SDPA_MMA_DECODE_COMBINE;
        variant.heads = 16;
        variant.keys = 16 * warps;
        variant.threads = 32 * warps;
        variant.shared = 2 * variant.keys * 3 * 2 * head_dim;
        variant.blocks = head_dim <= 64 ? 4 : 2;
    } else {
        group = group > 2 && dtype == IGNIS_F64 && head_dim > 256 ? 2 : group;
        variant.kernel = group == 1   ? IGNIS__BUILTIN_SDPA_DECODE_1
                         : group == 2 ? IGNIS__BUILTIN_SDPA_DECODE_2
                                      : IGNIS__BUILTIN_SDPA_DECODE_4;
        variant.combine_kernel = IGNIS__BUILTIN_SDPA_DECODE_COMBINE;
        variant.heads = group < 3 ? group : 4;
        variant.keys = 64;
        variant.threads = 256;
        variant.blocks = 2;
    }
    return variant;
}

/*  While programs are recorded: those that devices of every kind choose, of rows that a window shows whole, or not. */
IGNIS__COLD static void ignis__decode_request(ignis__op *op, ignis_dtype dtype, const ignis__attention *given)
{
    ignis__attention p = *given;
    int major, turn;
    for (turn = 0; op->ok && ignis__requests.path[0] && turn < (p.windowed && !p.has_lengths ? 2 : 1); turn++) {
        for (major = 7; major <= 8; major++) {
            ignis__decode_variant variant;
            op->as_major = major;
            variant = ignis__decode_choose(op, dtype, &p);
            ignis__request_own(variant.kernel, dtype, variant.define, major == 7 ? 0 : 80, IGNIS__EVERY_ARCH);
        }
        p.window = ignis__attention_ranged(&p) ? p.sq > p.sk ? p.sq : p.sk : 0;
    }
    op->as_major = 0;
}

/*  One block for each key head and split of its keys, then one for each query head. */
static void ignis__decode_run(ignis__op *op, ignis__attention *p, ignis_dtype dtype)
{
    ignis__decode_variant variant = ignis__decode_choose(op, dtype, p);
    int64_t passes = ignis__ceil_div(p->heads / p->kv_heads, variant.heads), items = passes * p->kv_heads * p->batches;
    int64_t wanted = ignis__clamp((int64_t)variant.blocks * op->work.device->info.multiprocessors / items, 1, 1024);
    int per_split = (int)(ignis__ceil_div(ignis__ceil_div(p->window, wanted), variant.keys) * variant.keys);
    int splits = (int)ignis__ceil_div(p->window, per_split); /* what the query sees at most: without a window all keys */
    int64_t numbers = (int64_t)p->batches * p->heads * splits * (p->head_dim + 2);
    ignis__address scratch = ignis__op_write(op, ignis__op_new_row(op, numbers, ignis__wide_dtype(dtype)));
    void *parts[] = {p, &scratch, &per_split}, *combine[] = {p, &scratch, &splits};
    ignis__decode_request(op, dtype, p);
    ignis__op_launch(op, variant.kernel, dtype, variant.define, splits, passes * p->kv_heads, p->batches, (unsigned)variant.threads, 1,
                     (size_t)variant.shared, parts);
    ignis__op_launch(op, variant.combine_kernel, dtype, variant.define, (int64_t)p->batches * p->heads, 1, 1, 128, 1, 0, combine);
}

static ignis_tensor ignis__decode_sdpa(const char *call, ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc *desc)
{
    ignis_tensor inputs[5] = {q, k, v};
    ignis__attention p;
    ignis__op op;
    ignis__array *out;
    if (!ignis__op_begin(&op, call, ignis__sdpa_inputs(desc, inputs, 3), inputs))
        return ignis__no_tensor();
    if (ignis__sdpa_prepare(&op, desc, IGNIS__SDPA_DECODE, &p) && (p.sq != 1 || p.sk < 1))
        ignis__op_fail(&op, IGNIS_DIAG_SDPA_SHAPE, "q is %s, k is %s; one query and at least one key are needed",
                       ignis__shape_write(&op.in[0]->shape).text, ignis__shape_write(&op.in[1]->shape).text);
    out = ignis__op_new_like(&op, op.in[0]);
    ignis__attention_operands(&op, out, &p);
    if (op.ok && p.batches > 0)
        ignis__decode_run(&op, &p, out->dtype);
    return ignis__op_end(&op, out, NULL);
}

IGNIS_API ignis_tensor ignis_decode_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, int num_heads)
{
    static const char call[] = "ignis_decode_sdpa";
    ignis_sdpa_desc desc = IGNIS__ZERO;
    desc.num_heads = num_heads;
    if (num_heads >= 1)
        return ignis__decode_sdpa(call, q, k, v, &desc);
    if (ignis__enter(call))
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "num_heads is %d, below 1", num_heads);
    return ignis__no_tensor();
}

IGNIS_API ignis_tensor ignis_decode_sdpa_with(ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc *desc)
{
    return ignis__decode_sdpa("ignis_decode_sdpa_with", q, k, v, desc);
}

/* ===============================================================================================================
   >>optim - optimizers: all parameters of one element type in one launch, state and schedule on the device.
   =============================================================================================================== */

/*  A row of the table that the kernels read; kernels/optim.cu has the same. */
typedef struct ignis__optim_row {
    ignis__address data, grad, first, second, master, missed;
    int64_t count, chunk, first_block, first_step;
    double decay, scales[2]; /* the device writes scales */
} ignis__optim_row;

enum { /* the state in device memory; kernels/optim.cu has the same */
       IGNIS__OPTIM_BASE_LR,
       IGNIS__OPTIM_CLIP_NEXT,
       IGNIS__OPTIM_NORM,
       IGNIS__OPTIM_STEP,
       IGNIS__OPTIM_CLIP,
       IGNIS__OPTIM_LR,
       IGNIS__OPTIM_SCALE = 8,
       IGNIS__OPTIM_SKIPPED = 10,
       IGNIS__OPTIM_STATES = 16
};

#define IGNIS__OPTIM_BATCH 39   /* rows that one launch carries to the table */
#define IGNIS__OPTIM_SHARE 1024 /* elements that a block of a step takes */

typedef struct ignis__optim_batch {
    ignis__optim_row rows[IGNIS__OPTIM_BATCH];
} ignis__optim_batch;

typedef struct ignis__parameter {
    ignis__tensor *tensor; /* held */
    ignis__array *data;    /* claimed, as are these; null without */
    ignis__array *first, *second, *master, *missed;
    double decay;
    bool has_row; /* the table gathered last has its gradient */
    bool grouped; /* its gradient's memory is shared: it is not dropped */
} ignis__parameter;

typedef struct ignis__optimizer {
    ignis__slot slot; /* first; its lock guards the rest */
    ignis__device *device;
    const char *name;
    ignis__builtin step;
    bool has_first, has_second, has_missed, no_master, zero_grad, drop_grad, like_adamw;
    double lr, beta1, beta2, eps, weight_decay; /* beta1 may be a momentum, and beta2 an alpha */
    ignis_schedule_desc schedule;
    ignis_loss_scale_desc scale; /* interval 0: none */
    ignis__parameter *parameters;
    int count, capacity;
    ignis__array *state;      /* f64; claimed */
    ignis__array *table;      /* rows, as bytes; claimed, null before the first step */
    ignis__capture *table_of; /* the capture that it was made for, and that alone uses it; null: none */
    ignis__optim_row
        *rows;       /* what the table holds, in the order of element types; with has_missed those without a gradient, too, behind them */
    int row_count;   /* 0: no gradients */
    bool is_written; /* the table holds them */
    int rows_of[IGNIS_DTYPE_COUNT];
    int64_t blocks_of[IGNIS_DTYPE_COUNT], steps_of[IGNIS_DTYPE_COUNT]; /* blocks of a launch, and of a step */
} ignis__optimizer;

static ignis__pool ignis__optimizers = IGNIS__POOL(ignis__optimizer, IGNIS__KIND_OPTIMIZER, "optimizer", IGNIS_DIAG_OPTIMIZER_FREED);

IGNIS__ONE_COPY static void ignis__optimizer_unclaim(const char *call, ignis__array **array)
{
    if (*array)
        ignis__array_unclaim(call, *array);
    *array = NULL;
}

static void ignis__parameter_end(const char *call, ignis__parameter *parameter)
{
    ignis__optimizer_unclaim(call, &parameter->data);
    ignis__optimizer_unclaim(call, &parameter->first);
    ignis__optimizer_unclaim(call, &parameter->second);
    ignis__optimizer_unclaim(call, &parameter->master);
    ignis__optimizer_unclaim(call, &parameter->missed);
    if (parameter->tensor)
        ignis__tensor_drop(call, parameter->tensor);
    parameter->tensor = NULL;
}

static void ignis__optimizer_drop(const char *call, ignis__optimizer *optimizer)
{
    int i;
    if (!ignis__pool_drop(optimizer))
        return;
    for (i = 0; i < optimizer->count; i++)
        ignis__parameter_end(call, &optimizer->parameters[i]);
    ignis__optimizer_unclaim(call, &optimizer->state);
    ignis__optimizer_unclaim(call, &optimizer->table);
    ignis__free(optimizer->parameters);
    ignis__free(optimizer->rows);
    ignis__pool_give(&ignis__optimizers, optimizer);
}

static ignis__optimizer *ignis__optimizer_hold(const char *call, ignis_optimizer handle)
{
    return (ignis__optimizer *)ignis__handle_hold(call, &ignis__optimizers, handle.id);
}

/*  A new array of the optimizer, zeros like another one, of another dtype. On failure it may be there, for the caller to end. */
static bool ignis__optimizer_array(const char *call, const ignis__array *like, ignis_dtype dtype, ignis__array **claimed)
{
    ignis_array made = ignis__array_create_like(call, like, dtype);
    *claimed = ignis__array_adopt(call, made);
    return *claimed && ignis__array_set_zero(call, made) == IGNIS_OK;
}

/*  Adds the optimizers that an array belongs to to a text; returns how often. */
static int ignis__optimizers_claiming(ignis__text *text, const ignis__array *array)
{
    ignis__optimizer *optimizer;
    uint64_t index = 0;
    int count = 0, i;
    while ((optimizer = (ignis__optimizer *)ignis__pool_next(&ignis__optimizers, &index)) != NULL) {
        ignis__mutex_lock(&optimizer->slot.lock);
        for (i = 0; i < optimizer->count; i++) {
            if (optimizer->parameters[i].data != array)
                continue;
            ignis__text_add(text, ", an optimizer changes it");
            count++;
        }
        ignis__mutex_unlock(&optimizer->slot.lock);
        ignis__optimizer_drop("ignis_array_free", optimizer);
    }
    return count;
}

/* --- making one ------------------------------------------------------------------------------------------------------ */

/*  The state of a new optimizer, on the thread's current device. */
static bool ignis__optimizer_start(const char *call, ignis__optimizer *optimizer)
{
    double state[IGNIS__OPTIM_STATES] = IGNIS__ZERO;
    ignis_array_desc desc = IGNIS__ZERO;
    desc.shape = IGNIS_SHAPE(IGNIS__OPTIM_STATES);
    desc.dtype = IGNIS_F64;
    desc.tag = "optimizer";
    state[IGNIS__OPTIM_BASE_LR] = optimizer->lr;
    state[IGNIS__OPTIM_CLIP_NEXT] = state[IGNIS__OPTIM_CLIP] = 1;
    state[IGNIS__OPTIM_SCALE] = optimizer->scale.initial;
    optimizer->state = ignis__array_adopt(call, ignis__array_create(call, &desc));
    if (!optimizer->state)
        return false;
    optimizer->device = optimizer->state->storage->device;
    if (ignis__array_from_host(call, optimizer->state, state, IGNIS_F64) == IGNIS_OK)
        return true;
    ignis__optimizer_unclaim(call, &optimizer->state);
    return false;
}

IGNIS__ONE_COPY static bool ignis__optimizer_number(const char *call, const char *name, double value, double low, double below)
{
    if (ignis__is_finite(value) && value >= low && value < below)
        return true;
    return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "%s is %g, outside %g to below %g", name, value, low, below);
}

/*  By its bits: where the compiler assumes that there is no NaN, one would be equal to 0. */
static double ignis__default(double value, double otherwise)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits << 1 ? value : otherwise;
}

/*  Checks what all optimizers have in common, and makes one from a filled template. */
IGNIS__COLD static ignis_optimizer ignis__optimizer_make(const char *call, ignis__optimizer *given, const char *beta1, const char *beta2)
{
    ignis_optimizer handle = IGNIS__ZERO;
    const ignis_schedule_desc *schedule = &given->schedule;
    const double no_limit = 1e300;
    ignis__optimizer *optimizer;
    ignis_loss_scale_desc *scale = &given->scale;
    if (scale->initial == 0)
        memset(scale, 0, sizeof *scale); /* no interval: no step looks at the gradients */
    else if (scale->interval == 0)
        scale->interval = 2000;
    scale->initial = ignis__default(scale->initial, 1);
    scale->growth = ignis__default(scale->growth, 2);
    scale->backoff = ignis__default(scale->backoff, 0.5);
    scale->lowest = ignis__default(scale->lowest, scale->initial < 1 ? scale->initial : 1);
    if (!ignis__optimizer_number(call, "lr", given->lr, 0, no_limit) || !ignis__optimizer_number(call, beta1, given->beta1, 0, 1) ||
        !ignis__optimizer_number(call, beta2, given->beta2, 0, 1) || !ignis__optimizer_number(call, "eps", given->eps, 0, no_limit) ||
        !ignis__optimizer_number(call, "weight_decay", given->weight_decay, 0, no_limit) ||
        !ignis__optimizer_number(call, "loss_scale.initial", scale->initial, 1e-30, 1e30) ||
        !ignis__optimizer_number(call, "loss_scale.growth", scale->growth, 1, 1e30) ||
        !ignis__optimizer_number(call, "loss_scale.backoff", scale->backoff, 1e-30, 1) ||
        !ignis__optimizer_number(call, "loss_scale.lowest", scale->lowest, 1e-30, 1e30) ||
        !ignis__optimizer_number(call, "loss_scale.interval", (double)scale->interval, 0, no_limit) ||
        !ignis__optimizer_number(call, "schedule.floor", schedule->floor, 0, no_limit) ||
        !ignis__optimizer_number(call, "schedule.warmup", (double)schedule->warmup, 0, no_limit))
        return handle;
    if (scale->lowest > scale->initial) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "loss_scale.lowest is %g, which is above loss_scale.initial, %g", scale->lowest,
                    scale->initial);
        return handle;
    }
    if ((int)schedule->kind < IGNIS_SCHEDULE_CONSTANT || schedule->kind > IGNIS_SCHEDULE_LINEAR) {
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no schedule %d; IGNIS_SCHEDULE_CONSTANT to _LINEAR are 0 to 2",
                    (int)schedule->kind);
        return handle;
    }
    if (schedule->kind != IGNIS_SCHEDULE_CONSTANT && schedule->total <= schedule->warmup) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "schedule.total is %lld, which is not above schedule.warmup, %lld",
                    (long long)schedule->total, (long long)schedule->warmup);
        return handle;
    }
    optimizer = (ignis__optimizer *)ignis__pool_take(call, &ignis__optimizers);
    if (!optimizer)
        return handle;
    ignis__pool_fill(&ignis__optimizers, optimizer, given);
    if (!ignis__optimizer_start(call, optimizer)) {
        ignis__pool_give(&ignis__optimizers, optimizer);
        return handle;
    }
    handle.id = ignis__pool_publish(&ignis__optimizers, optimizer);
    return handle;
}

/*  Begins a call that makes an optimizer: `given` has what all descs have. */
#define IGNIS__OPTIMIZER_GIVEN(desc_type, default_lr, its_name, its_step) \
    ignis_optimizer none = IGNIS__ZERO;                                   \
    ignis__optimizer given;                                               \
    desc_type d;                                                          \
    if (!ignis__enter(call))                                              \
        return none;                                                      \
    memset(&d, 0, sizeof d);                                              \
    memset(&given, 0, sizeof given);                                      \
    if (desc)                                                             \
        d = *desc;                                                        \
    given.name = its_name;                                                \
    given.step = its_step;                                                \
    given.lr = ignis__default(d.lr, default_lr);                          \
    given.weight_decay = d.weight_decay;                                  \
    given.schedule = d.schedule;                                          \
    given.no_master = d.no_master;                                        \
    given.zero_grad = d.zero_grad;                                        \
    given.drop_grad = d.drop_grad;                                        \
    given.scale = d.loss_scale

IGNIS__COLD IGNIS_API ignis_optimizer ignis_adamw(const ignis_adamw_desc *desc)
{
    static const char call[] = "ignis_adamw";
    IGNIS__OPTIMIZER_GIVEN(ignis_adamw_desc, 1e-3, "adamw", d.coupled ? IGNIS__BUILTIN_ADAM : IGNIS__BUILTIN_ADAMW);
    given.has_first = given.has_second = given.has_missed = true;
    given.beta1 = ignis__default(d.beta1, 0.9);
    given.beta2 = ignis__default(d.beta2, 0.999);
    given.eps = ignis__default(d.eps, 1e-8);
    return ignis__optimizer_make(call, &given, "beta1", "beta2");
}

IGNIS__COLD IGNIS_API ignis_optimizer ignis_sgd(const ignis_sgd_desc *desc)
{
    static const char call[] = "ignis_sgd";
    IGNIS__OPTIMIZER_GIVEN(ignis_sgd_desc, 1e-3, "sgd", IGNIS__BUILTIN_SGD);
    given.has_first = d.momentum != 0;
    given.beta1 = d.momentum;
    return ignis__optimizer_make(call, &given, "momentum", "");
}

IGNIS__COLD IGNIS_API ignis_optimizer ignis_rmsprop(const ignis_rmsprop_desc *desc)
{
    static const char call[] = "ignis_rmsprop";
    IGNIS__OPTIMIZER_GIVEN(ignis_rmsprop_desc, 1e-2, "rmsprop", IGNIS__BUILTIN_RMSPROP);
    given.has_first = d.momentum != 0;
    given.has_second = true;
    given.beta1 = d.momentum;
    given.beta2 = ignis__default(d.alpha, 0.99);
    given.eps = ignis__default(d.eps, 1e-8);
    return ignis__optimizer_make(call, &given, "momentum", "alpha");
}

IGNIS__COLD IGNIS_API ignis_optimizer ignis_lion(const ignis_lion_desc *desc)
{
    static const char call[] = "ignis_lion";
    IGNIS__OPTIMIZER_GIVEN(ignis_lion_desc, 1e-4, "lion", IGNIS__BUILTIN_LION);
    given.has_first = true;
    given.beta1 = ignis__default(d.beta1, 0.9);
    given.beta2 = ignis__default(d.beta2, 0.99);
    return ignis__optimizer_make(call, &given, "beta1", "beta2");
}

IGNIS__COLD IGNIS_API ignis_optimizer ignis_muon(const ignis_muon_desc *desc)
{
    static const char call[] = "ignis_muon";
    IGNIS__OPTIMIZER_GIVEN(ignis_muon_desc, 1e-3, "muon", IGNIS__BUILTIN_MUON);
    given.has_first = given.has_second = true;
    given.beta1 = ignis__default(d.momentum, 0.95);
    given.like_adamw = d.like_adamw;
    return ignis__optimizer_make(call, &given, "momentum", "");
}

IGNIS__COLD IGNIS_API ignis_status ignis_optimizer_free(ignis_optimizer handle)
{
    static const char call[] = "ignis_optimizer_free";
    const uint64_t failures = ignis__failures();
    ignis__optimizer *optimizer;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    optimizer = ignis__optimizer_hold(call, handle);
    if (!optimizer)
        return ignis__failed();
    live = ignis__handle_kill(optimizer);
    ignis__optimizer_drop(call, optimizer);
    return live ? ignis__ended(failures, true) : ignis__fail(IGNIS_DIAG_OPTIMIZER_FREED, call, "another thread has freed the optimizer");
}

/*  Ends every optimizer; for ignis_shutdown, before tensors end. */
static void ignis__optimizers_close(const char *call)
{
    ignis__optimizer *optimizer;
    uint64_t index = 0;
    while ((optimizer = (ignis__optimizer *)ignis__pool_next(&ignis__optimizers, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "optimizer: %s of %d parameter%s on device %d", optimizer->name,
                           optimizer->count, optimizer->count == 1 ? "" : "s", ignis__device_ordinal(optimizer->device));
        ignis__handle_kill(optimizer);
        ignis__optimizer_drop(call, optimizer);
    }
}

/* --- parameters ------------------------------------------------------------------------------------------------------ */

IGNIS__COLD static bool ignis__parameter_check(const char *call, const ignis__optimizer *optimizer, ignis__tensor *tensor)
{
    ignis__standing standing = ignis__tensor_standing(tensor);
    int i;
    if (!standing.leaf || !standing.requires_grad)
        return ignis__refuse(IGNIS_DIAG_PARAMETER_KIND, call, "the tensor, %s, %s", ignis__shape_write(&tensor->shape).text,
                             standing.leaf ? "requires no gradient" : "is the result of an operation");
    if (tensor->device != optimizer->device)
        return ignis__refuse(IGNIS_DIAG_DEVICE_DIFFERS, call, "the tensor is on device %d, the optimizer is on device %d",
                             ignis__device_ordinal(tensor->device), ignis__device_ordinal(optimizer->device));
    if (optimizer->step == IGNIS__BUILTIN_MUON && tensor->shape.ndim != 2)
        return ignis__refuse(IGNIS_DIAG_SHAPE_DIFFERS, call, "the tensor is %s; parameters of Muon have two dimensions",
                             ignis__shape_write(&tensor->shape).text);
    for (i = 0; i < optimizer->count; i++)
        if (optimizer->parameters[i].tensor == tensor)
            return ignis__refuse(IGNIS_DIAG_PARAMETER_KIND, call, "the tensor, %s, was added already, as parameter %d",
                                 ignis__shape_write(&tensor->shape).text, i);
    return true;
}

/*  Room for one more parameter. */
static bool ignis__optimizer_grow(const char *call, ignis__optimizer *optimizer)
{
    int wanted = optimizer->capacity ? 2 * optimizer->capacity : 16;
    ignis__parameter *parameters;
    ignis__optim_row *rows;
    if (optimizer->count < optimizer->capacity)
        return true;
    parameters = (ignis__parameter *)ignis__alloc(sizeof *parameters * (size_t)wanted);
    rows = (ignis__optim_row *)ignis__alloc(sizeof *rows * (size_t)wanted);
    if (!parameters || !rows) {
        ignis__free(parameters);
        ignis__free(rows);
        ignis__fail_host_memory(call, (sizeof *parameters + sizeof *rows) * (size_t)wanted);
        return false;
    }
    memset(parameters, 0, sizeof *parameters * (size_t)wanted);
    if (optimizer->count)
        memcpy(parameters, optimizer->parameters, sizeof *parameters * (size_t)optimizer->count);
    ignis__free(optimizer->parameters);
    ignis__free(optimizer->rows);
    optimizer->parameters = parameters;
    optimizer->rows = rows;
    optimizer->row_count = 0;
    optimizer->is_written = false;
    optimizer->capacity = wanted;
    ignis__optimizer_unclaim(call, &optimizer->table); /* made anew, larger, at the next step */
    return true;
}

/*  Steps that a new parameter has missed: all until now. */
static bool ignis__parameter_missed(const char *call, const ignis__optimizer *optimizer, ignis__parameter *parameter)
{
    ignis_array_desc desc = IGNIS__ZERO;
    ignis_shape one = IGNIS_SHAPE(1);
    ignis__array *step;
    bool ok;
    desc.shape = one;
    desc.dtype = IGNIS_F64;
    desc.device = ignis__device_in_desc(optimizer->device);
    desc.tag = "optimizer";
    parameter->missed = ignis__array_adopt(call, ignis__array_create(call, &desc));
    if (!parameter->missed)
        return false;
    step = ignis__array_adopt(call, ignis__array_view(call, optimizer->state, &one, 1, IGNIS__OPTIM_STEP * (int64_t)sizeof(double)));
    ok = step && ignis__array_convert(call, parameter->missed, step);
    ignis__optimizer_unclaim(call, &step);
    return ok;
}

/*  Takes a tensor in; what the parameter has got by the time of a failure is the caller's to end. */
static bool ignis__parameter_start(const char *call, const ignis__optimizer *optimizer, ignis__parameter *parameter)
{
    ignis_dtype dtype = parameter->tensor->dtype, wide = ignis__wide_dtype(dtype);
    ignis__array *data = ignis__tensor_array(call, parameter->tensor);
    bool ok;
    if (!data)
        return false;
    ignis__array_claim(data);
    parameter->data = data;
    ignis__array_drop(call, data);
    ok = !optimizer->has_first || ignis__optimizer_array(call, data, wide, &parameter->first);
    ok = ok && (!optimizer->has_second || ignis__optimizer_array(call, data, wide, &parameter->second));
    ok = ok && (!optimizer->has_missed || ignis__parameter_missed(call, optimizer, parameter));
    if (ok && dtype != wide && !optimizer->no_master)
        ok = ignis__optimizer_array(call, data, wide, &parameter->master) && ignis__array_convert(call, parameter->master, data);
    return ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_optimizer_add(ignis_optimizer handle, ignis_tensor tensor, bool decay)
{
    static const char call[] = "ignis_optimizer_add";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    ignis__parameter *parameter;
    ignis__tensor *held;
    bool ok;
    if (!optimizer)
        return ignis__failed();
    held = ignis__capture_refuses(call) ? NULL : ignis__tensor_hold(call, tensor);
    if (!held) {
        ignis__optimizer_drop(call, optimizer);
        return ignis__failed();
    }
    ignis__mutex_lock(&optimizer->slot.lock);
    ok = ignis__parameter_check(call, optimizer, held) && ignis__optimizer_grow(call, optimizer);
    if (ok) {
        parameter = &optimizer->parameters[optimizer->count];
        memset(parameter, 0, sizeof *parameter);
        parameter->tensor = held;
        parameter->decay = decay ? optimizer->weight_decay : 0;
        held = NULL;
        ok = ignis__parameter_start(call, optimizer, parameter);
        if (ok)
            optimizer->count++;
        else
            ignis__parameter_end(call, parameter);
    }
    ignis__mutex_unlock(&optimizer->slot.lock);
    if (held)
        ignis__tensor_drop(call, held);
    ignis__optimizer_drop(call, optimizer);
    return ok ? IGNIS_OK : ignis__failed();
}

/* --- the table ------------------------------------------------------------------------------------------------------- */

/*  What a call on an optimizer writes to, beside the state. */
typedef enum ignis__optim_writes { IGNIS__WRITES_DATA = 1, IGNIS__WRITES_GRADS = 2 } ignis__optim_writes;

/*  The row of a parameter; false without failure in *ok when it has no gradient, or no elements. */
static bool ignis__parameter_row(const ignis__work *work, ignis__parameter *parameter, unsigned writes, ignis__optim_row *row, bool *ok)
{
    ignis__array *grad = NULL;
    memset(row, 0, sizeof *row);
    ignis__mutex_lock(&parameter->tensor->slot.lock);
    parameter->grouped = parameter->tensor->group != NULL;
    if (parameter->tensor->grad)
        grad = (ignis__array *)ignis__pool_hold(&ignis__arrays, parameter->tensor->grad->slot.handle);
    ignis__mutex_unlock(&parameter->tensor->slot.lock);
    if (!grad)
        return false;
    row->count = parameter->data->numel;
    row->decay = parameter->decay;
    *ok = ignis__work_read(work, grad, &row->grad) && ignis__work_read(work, parameter->data, &row->data) &&
          (!parameter->first || ignis__work_write(work, parameter->first, &row->first)) &&
          (!parameter->second || ignis__work_write(work, parameter->second, &row->second)) &&
          (!parameter->master || ignis__work_write(work, parameter->master, &row->master)) &&
          (!parameter->missed || ignis__work_write(work, parameter->missed, &row->missed));
    if (*ok && writes & IGNIS__WRITES_DATA)
        ignis__storage_written(parameter->data->storage);
    if (*ok && writes & IGNIS__WRITES_GRADS)
        ignis__storage_written(grad->storage);
    ignis__array_drop(work->call, grad); /* the tensor has it, and keeps its memory */
    return *ok && row->count > 0;
}

/*  Writes rows to the table. They travel as parameters of a kernel, so nothing of the host's needs to stay. */
static bool ignis__optimizer_write(const ignis__work *work, ignis__optimizer *optimizer, int count, ignis_dtype dtype)
{
    unsigned grid[3] = {1, 1, 1}, block[3] = {64, 1, 1};
    void *function = ignis__builtin_get(work->call, work->device, IGNIS__BUILTIN_OPTIM_TABLE, dtype);
    ignis__optim_batch batch;
    ignis__address table;
    int at, some;
    void *params[] = {&table, &batch, &some};
    bool ok = function && ignis__work_write(work, optimizer->table, &table);
    for (at = 0; ok && at < count; at += some) {
        some = count - at < IGNIS__OPTIM_BATCH ? count - at : IGNIS__OPTIM_BATCH;
        memset(&batch, 0, sizeof batch);
        memcpy(batch.rows, optimizer->rows + at, sizeof *optimizer->rows * (size_t)some);
        ok = ignis__builtin_launch(work, IGNIS__BUILTIN_OPTIM_TABLE, function, grid, block, 0, params);
        table += sizeof *optimizer->rows * (uint64_t)some;
    }
    return ok;
}

static bool ignis__optimizer_table(const char *call, ignis__optimizer *optimizer)
{
    ignis_array_desc desc = IGNIS__ZERO;
    if (optimizer->table)
        return true;
    desc.shape = IGNIS_SHAPE((int64_t)sizeof *optimizer->rows * optimizer->capacity);
    desc.dtype = IGNIS_U8;
    desc.device = ignis__device_in_desc(optimizer->device);
    desc.tag = "optimizer";
    optimizer->table = ignis__array_adopt(call, ignis__array_create(call, &desc));
    return optimizer->table != NULL;
}

/*  Writes the first rows to the table; those of a capture to a table of its own, which its graph then finds as it is now. */
static bool ignis__optimizer_renew(const ignis__work *work, ignis__optimizer *optimizer, int count, ignis_dtype dtype)
{
    ignis__capture *capture = ignis__capture_on(optimizer->device);
    ignis__work aside = *work;
    bool ok;
    if (capture || optimizer->table_of)
        ignis__optimizer_unclaim(work->call, &optimizer->table);
    optimizer->table_of = capture;
    if (!ignis__optimizer_table(work->call, optimizer))
        return false;
    capture = ignis__capture_pause();
    aside.stream = ignis__stream_now(work->device);
    ok = ignis__optimizer_write(&aside, optimizer, count, dtype);
    return ignis__capture_resume(work->call, capture) && ok;
}

/*  Takes a row into the table, as number `at`; returns whether the table has another one there. */
static bool ignis__optimizer_row(ignis__optimizer *optimizer, int at, const ignis__optim_row *row)
{
    bool changed = at >= optimizer->row_count || memcmp(row, &optimizer->rows[at], sizeof *row) != 0;
    optimizer->rows[at] = *row;
    return changed;
}

/*  Brings the table up to date: the parameters that have a gradient, ordered by element type, and behind them those that miss a step. */
static bool ignis__optimizer_gather(const ignis__work *work, ignis__optimizer *optimizer, unsigned writes)
{
    ignis_dtype dtype, some = IGNIS_F32;
    ignis__optim_row row;
    int i, count = 0;
    bool ok = true, changed = !optimizer->is_written || optimizer->table_of != ignis__capture_on(optimizer->device);
    memset(optimizer->rows_of, 0, sizeof optimizer->rows_of);
    memset(optimizer->blocks_of, 0, sizeof optimizer->blocks_of);
    memset(optimizer->steps_of, 0, sizeof optimizer->steps_of);
    for (dtype = IGNIS_F16; ok && dtype <= IGNIS_F64; dtype = (ignis_dtype)(dtype + 1)) {
        for (i = 0; ok && i < optimizer->count; i++) {
            if (optimizer->parameters[i].tensor->dtype != dtype)
                continue;
            optimizer->parameters[i].has_row = ignis__parameter_row(work, &optimizer->parameters[i], writes, &row, &ok);
            if (!optimizer->parameters[i].has_row)
                continue;
            row.chunk = row.count <= 128 * 1024 ? 1024 : 8192; /* small ones are spread: they take as long as one block does */
            row.first_block = optimizer->blocks_of[dtype];
            row.first_step = optimizer->steps_of[dtype];
            optimizer->blocks_of[dtype] += ignis__ceil_div(row.count, row.chunk);
            optimizer->steps_of[dtype] += ignis__ceil_div(row.count, IGNIS__OPTIM_SHARE);
            optimizer->rows_of[dtype]++;
            changed |= ignis__optimizer_row(optimizer, count++, &row);
            some = dtype;
        }
    }
    for (i = 0; ok && optimizer->has_missed && count > 0 && i < optimizer->count; i++) {
        if (optimizer->parameters[i].has_row)
            continue;
        memset(&row, 0, sizeof row);
        ok = ignis__work_write(work, optimizer->parameters[i].missed, &row.missed);
        changed |= ignis__optimizer_row(optimizer, count++, &row);
    }
    ok = ok && (!changed || ignis__optimizer_renew(work, optimizer, count, some));
    optimizer->row_count = ok ? count : 0;
    optimizer->is_written = ok;
    return ok;
}

/*  For profiles: what a step reads and writes of parameters of a dtype. */
IGNIS__COLD static double ignis__optimizer_bytes(const ignis__optimizer *optimizer, ignis_dtype dtype)
{
    double bytes = 0;
    int i;
    for (i = 0; i < optimizer->count; i++) {
        const ignis__parameter *p = &optimizer->parameters[i];
        double data = (double)ignis__array_bytes(p->data);
        if (p->data->dtype == dtype)
            bytes += data * (optimizer->zero_grad ? 3 : 2) + (p->master ? 2 * (double)ignis__array_bytes(p->master) : data) +
                     (p->first ? 2 * (double)ignis__array_bytes(p->first) : 0) +
                     (p->second ? 2 * (double)ignis__array_bytes(p->second) : 0);
    }
    return bytes;
}

/*  Launches a kernel for the rows of every element type: params at table_at and behind become the rows and their count, *squares that of its
    first block. */
static bool ignis__optimizer_launch(const ignis__work *work, ignis__optimizer *optimizer, ignis__builtin builtin, int table_at,
                                    void **params, ignis__address *squares)
{
    unsigned grid[3] = {1, 1, 1}, block[3] = {256, 1, 1};
    ignis__address table;
    ignis_dtype dtype;
    void *function;
    int count;
    bool steps = builtin != IGNIS__BUILTIN_GRAD_SQUARES && builtin != IGNIS__BUILTIN_GRAD_ZERO;
    bool ok = ignis__work_write(work, optimizer->table, &table);
    params[table_at] = &table;
    params[table_at + 1] = &count;
    for (dtype = IGNIS_F16; ok && dtype <= IGNIS_F64; dtype = (ignis_dtype)(dtype + 1)) {
        count = optimizer->rows_of[dtype];
        if (!count)
            continue;
        ok = (steps ? optimizer->steps_of : optimizer->blocks_of)[dtype] <= INT32_MAX;
        if (!ok) {
            ignis__fail(IGNIS_DIAG_SHAPE_OVERFLOW, work->call, "the parameters are more than one launch can cover");
            break;
        }
        grid[0] = (unsigned)(steps ? optimizer->steps_of : optimizer->blocks_of)[dtype];
        function = ignis__builtin_get(work->call, work->device, builtin, dtype);
        if (ignis__profiling() && (builtin == IGNIS__BUILTIN_ADAMW || builtin == IGNIS__BUILTIN_SGD))
            ignis__cost(ignis__optimizer_bytes(optimizer, dtype), 0, 0);
        ok = function && ignis__builtin_launch(work, builtin, function, grid, block, 0, params);
        table += sizeof *optimizer->rows * (uint64_t)count;
        if (squares)
            *squares += sizeof(double) * (uint64_t)optimizer->blocks_of[dtype];
    }
    params[table_at] = params[table_at + 1] = NULL;
    return ok;
}

/*  Holds and locks an optimizer, enters its device and gathers the table. On failure nothing is held. */
static ignis__optimizer *ignis__optimizer_begin(const char *call, ignis_optimizer handle, unsigned writes, ignis__work *work)
{
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    if (!optimizer)
        return NULL;
    ignis__mutex_lock(&optimizer->slot.lock);
    if (optimizer->count == 0) {
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call, "the optimizer has no parameters; ignis_optimizer_add gives it some");
    } else if (ignis__work_begin(call, optimizer->device, work)) {
        if (writes & IGNIS__WRITES_DATA && (optimizer->zero_grad || optimizer->drop_grad))
            writes |= IGNIS__WRITES_GRADS;
        if (ignis__optimizer_gather(work, optimizer, writes))
            return optimizer;
        ignis__work_end(work);
    }
    ignis__mutex_unlock(&optimizer->slot.lock);
    ignis__optimizer_drop(call, optimizer);
    return NULL;
}

static ignis_status ignis__optimizer_end(ignis__optimizer *optimizer, const ignis__work *work, bool ok)
{
    ignis__work_end(work);
    ignis__mutex_unlock(&optimizer->slot.lock);
    ignis__optimizer_drop(work->call, optimizer);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  An element type that the step compiles anyway, for the kernels that do not care. */
static ignis_dtype ignis__optimizer_dtype(const ignis__optimizer *optimizer)
{
    ignis_dtype dtype = IGNIS_F16;
    while (dtype < IGNIS_F64 && !optimizer->rows_of[dtype])
        dtype = (ignis_dtype)(dtype + 1);
    return dtype;
}

/* --- step, clipping, zero -------------------------------------------------------------------------------------------- */

static bool ignis__optimizer_advance(const ignis__work *work, ignis__optimizer *optimizer, ignis__address *state)
{
    unsigned one[3] = {1, 1, 1}, block[3] = {32, 1, 1};
    int schedule = (int)optimizer->schedule.kind, rows = optimizer->has_missed ? optimizer->row_count : 0;
    ignis__address table;
    void *function = ignis__builtin_get(work->call, work->device, IGNIS__BUILTIN_OPTIM_ADVANCE, ignis__optimizer_dtype(optimizer));
    void *params[] = {state,
                      &table,
                      &rows,
                      &optimizer->beta1,
                      &optimizer->beta2,
                      &schedule,
                      &optimizer->schedule.warmup,
                      &optimizer->schedule.total,
                      &optimizer->schedule.floor,
                      &optimizer->scale.growth,
                      &optimizer->scale.backoff,
                      &optimizer->scale.lowest,
                      &optimizer->scale.interval};
    while (block[0] < 512 && block[0] < 2 * (unsigned)rows) /* two threads a row; kernels/optim.cu has the most, too */
        block[0] *= 2;
    ignis__cost(0, 0, 0); /* the arrays are for the kernel behind it */
    return function && ignis__work_write(work, optimizer->table, &table) &&
           ignis__builtin_launch(work, IGNIS__BUILTIN_OPTIM_ADVANCE, function, one, block, 0, params);
}

/*  The norm of all gradients, for the next step. max_norm 0: where it is not known, and they are not clipped. */
static bool ignis__optimizer_norm(const ignis__work *work, ignis__optimizer *optimizer, double max_norm)
{
    unsigned one[3] = {1, 1, 1}, block[3] = {256, 1, 1};
    ignis__storage *storage;
    ignis__address state, squares, at, checked = 0;
    uint64_t base;
    int64_t blocks = 0;
    int dtype;
    void *sums[] = {&at, NULL, NULL, &checked}, *clip[] = {&state, &squares, &blocks, &max_norm}, *function;
    bool ok = false;
    for (dtype = 0; dtype < IGNIS_DTYPE_COUNT; dtype++)
        blocks += optimizer->blocks_of[dtype];
    if (blocks == 0)
        return true;
    storage = ignis__storage_make(work->call, work->device, blocks * (int64_t)sizeof(double));
    if (!storage)
        return false;
    ignis__atomic_add(&storage->users, 1); /* this call */
    if (ignis__storage_use(work->call, storage, work->device, work->stream, &base) && ignis__work_write(work, optimizer->state, &state)) {
        squares = at = base;
        checked = max_norm == 0 ? state : 0;
        function = ignis__optimizer_launch(work, optimizer, IGNIS__BUILTIN_GRAD_SQUARES, 1, sums, &at)
                       ? ignis__builtin_get(work->call, work->device, IGNIS__BUILTIN_GRAD_CLIP, ignis__optimizer_dtype(optimizer))
                       : NULL;
        ok = function && ignis__builtin_launch(work, IGNIS__BUILTIN_GRAD_CLIP, function, one, block, 0, clip);
    }
    ignis__storage_drop(work->call, storage);
    return ok;
}

/*  About the nearest orthogonal matrix to `second`, times sqrt(k), in its place: Newton-Schulz, Jordan's coefficients, by the smaller side. */
static bool ignis__muon_orthogonal(const ignis__optimizer *optimizer, const ignis__parameter *parameter)
{
    const ignis_shape *shape = &parameter->data->shape;
    double rows = (double)shape->dim[0], columns = (double)shape->dim[1];
    double k = optimizer->like_adamw ? 0.04 * (rows > columns ? rows : columns) : rows > columns ? rows / columns : 1;
    ignis_scope scope = ignis_scope_begin();
    ignis_array second;
    ignis_tensor u, norm, x, y, a, b;
    int i;
    bool ok;
    second.id = parameter->second->slot.handle;
    u = ignis_tensor_from_array(second, false);
    norm = ignis_map_reduce(IGNIS_REDUCE_NORM, "u", IGNIS_INPUTS(u), NULL);
    x = ignis_cast(ignis_map("u / max(norm, 1e-7)", IGNIS_INPUTS(u, norm)), parameter->second->dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_BF16);
    ignis__request_builtin(IGNIS__BUILTIN_TRANSPOSE_RUNS, parameter->second->dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_BF16);
    if (rows > columns)
        x = ignis_transpose(x, 0, 1);
    for (i = 0; i < 5; i++) {
        a = ignis_matmul_t(x, x);
        b = ignis_matmul(a, a);
        b = ignis_map("-4.775*a + 2.0315*b", IGNIS_INPUTS(a, b));
        y = ignis_matmul(b, x);
        x = ignis_map("3.4445*x + y", IGNIS_INPUTS(x, y));
    }
    if (rows > columns)
        x = ignis_transpose(x, 0, 1);
    ok = x.id &&
         ignis_array_map(second, "sqrt(k)*x", IGNIS_ARRAYS(IGNIS_NAMED(x, ignis_tensor_data(x)), IGNIS_ARRAY_VALUE(k, k))) == IGNIS_OK;
    return ignis_scope_end(scope) == IGNIS_OK && ok;
}

/*  All matrices that have a gradient. */
static bool ignis__muon_orthogonals(const ignis__optimizer *optimizer)
{
    const ignis__parameter *parameter;
    bool ok = true, has;
    int i;
    for (i = 0; i < optimizer->count && ok; i++) {
        parameter = &optimizer->parameters[i];
        ignis__mutex_lock(&parameter->tensor->slot.lock);
        has = parameter->tensor->grad != NULL;
        ignis__mutex_unlock(&parameter->tensor->slot.lock);
        if (has && parameter->data->numel > 0)
            ok = ignis__muon_orthogonal(optimizer, parameter);
    }
    return ok;
}

IGNIS_API ignis_status ignis_optimizer_step(ignis_optimizer handle)
{
    ignis__work work;
    ignis__optimizer *optimizer = ignis__optimizer_begin("ignis_optimizer_step", handle, IGNIS__WRITES_DATA, &work);
    ignis__address state;
    int zero_grad, i;
    void *params[] = {NULL, NULL, &state, NULL, NULL, NULL, &zero_grad};
    bool ok;
    if (!optimizer)
        return ignis__failed();
    zero_grad = optimizer->zero_grad;
    for (i = 0; optimizer->drop_grad && i < optimizer->count; i++)
        zero_grad |= optimizer->parameters[i].grouped;
    params[3] = &optimizer->beta1;
    params[4] = &optimizer->beta2;
    params[5] = &optimizer->eps;
    ok = optimizer->row_count == 0 ||
         ((optimizer->scale.interval == 0 || ignis__optimizer_norm(&work, optimizer, 0)) &&
          ignis__work_write(&work, optimizer->state, &state) && ignis__optimizer_advance(&work, optimizer, &state) &&
          ignis__optimizer_launch(&work, optimizer, optimizer->step, 0, params, NULL));
    if (optimizer->row_count && optimizer->step == IGNIS__BUILTIN_MUON)
        ok = ok && ignis__muon_orthogonals(optimizer) &&
             ignis__optimizer_launch(&work, optimizer, IGNIS__BUILTIN_MUON_APPLY, 0, params, NULL);
    for (i = 0; ok && optimizer->drop_grad && i < optimizer->count; i++)
        (void)ignis__gradient_drop(work.call, optimizer->parameters[i].tensor);
    return ignis__optimizer_end(optimizer, &work, ok);
}

IGNIS_API ignis_status ignis_optimizer_zero_grad(ignis_optimizer handle)
{
    ignis__work work;
    ignis__optimizer *optimizer = ignis__optimizer_begin("ignis_optimizer_zero_grad", handle, IGNIS__WRITES_GRADS, &work);
    void *params[2];
    if (!optimizer)
        return ignis__failed();
    return ignis__optimizer_end(optimizer, &work, ignis__optimizer_launch(&work, optimizer, IGNIS__BUILTIN_GRAD_ZERO, 0, params, NULL));
}

IGNIS_API ignis_status ignis_clip_grad_norm(ignis_optimizer handle, double max_norm)
{
    static const char call[] = "ignis_clip_grad_norm";
    ignis__work work;
    ignis__optimizer *optimizer;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (ignis__is_nan(max_norm) || !(max_norm > 0))
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "max_norm is %g, which is not above 0", max_norm);
    optimizer = ignis__optimizer_begin(call, handle, IGNIS__WRITES_GRADS, &work);
    if (!optimizer)
        return ignis__failed();
    return ignis__optimizer_end(optimizer, &work, ignis__optimizer_norm(&work, optimizer, max_norm));
}

IGNIS_API ignis_tensor ignis_scale_loss(ignis_optimizer handle, ignis_tensor loss)
{
    static const char call[] = "ignis_scale_loss";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    ignis_tensor scale = ignis__no_tensor(), result = scale;
    ignis_tensor_info info;
    ignis_array state, view;
    if (!optimizer)
        return result;
    if (ignis_tensor_query(loss, &info) == IGNIS_OK && info.dtype == IGNIS_F16) {
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call,
                    "the loss is f16, which does not hold the scale as its gradient; those of >>ops.loss are f32");
    } else if (info.dtype) {
        state.id = optimizer->state->slot.handle;
        view = ignis_array_slice(state, 0, IGNIS__OPTIM_SCALE, 1);
        if (view.id)
            scale = ignis_tensor_from_array(view, false);
        if (scale.id)
            result = ignis_map("loss * scale", IGNIS_INPUTS(loss, scale));
        if (view.id)
            ignis_array_free(view);
        ignis__tensor_discard(call, scale);
    }
    ignis__optimizer_drop(call, optimizer);
    return result;
}

/* --- looking at and changing the state ------------------------------------------------------------------------------- */

IGNIS_API ignis_status ignis_optimizer_set_lr(ignis_optimizer handle, double lr)
{
    static const char call[] = "ignis_optimizer_set_lr";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    ignis_array view = IGNIS__ZERO;
    ignis__array *array;
    ignis_shape one = IGNIS_SHAPE(1);
    bool ok;
    if (!optimizer)
        return ignis__failed();
    ok = ignis__optimizer_number(call, "lr", lr, 0, 1e300);
    if (ok)
        view = ignis__array_view(call, optimizer->state, &one, 1, IGNIS__OPTIM_BASE_LR * (int64_t)sizeof(double));
    ok = view.id != 0;
    if (ok) {
        array = (ignis__array *)ignis__pool_hold(&ignis__arrays, view.id);
        ok = ignis__array_from_host(call, array, &lr, IGNIS_F64) == IGNIS_OK;
        ignis__array_discard(call, &view);
        ignis__array_drop(call, array);
    }
    ignis__optimizer_drop(call, optimizer);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_optimizer_query(ignis_optimizer handle, ignis_optimizer_info *info)
{
    static const char call[] = "ignis_optimizer_query";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    double state[IGNIS__OPTIM_STATES];
    ignis_status status;
    if (!optimizer)
        return ignis__failed();
    if (!info) {
        status = ignis__fail_null(call, "info");
    } else {
        memset(info, 0, sizeof *info);
        status = ignis__array_to_host(call, optimizer->state, state, IGNIS_F64);
        if (status == IGNIS_OK) {
            info->step = (int64_t)state[IGNIS__OPTIM_STEP];
            info->lr = state[IGNIS__OPTIM_LR];
            info->grad_norm = state[IGNIS__OPTIM_NORM];
            info->loss_scale = state[IGNIS__OPTIM_SCALE];
            info->skipped = (int64_t)state[IGNIS__OPTIM_SKIPPED];
            ignis__mutex_lock(&optimizer->slot.lock);
            info->parameters = optimizer->count;
            ignis__mutex_unlock(&optimizer->slot.lock);
        }
    }
    ignis__optimizer_drop(call, optimizer);
    return status;
}

IGNIS__COLD IGNIS_API ignis_array ignis_optimizer_state(ignis_optimizer handle, int parameter, ignis_optimizer_part part)
{
    static const char call[] = "ignis_optimizer_state";
    ignis_array none = IGNIS__ZERO;
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    const ignis__parameter *p;
    const ignis__array *array = NULL;
    if (!optimizer)
        return none;
    ignis__mutex_lock(&optimizer->slot.lock);
    if ((int)part < IGNIS_OPTIMIZER_SELF || part > IGNIS_OPTIMIZER_MISSED) {
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no part %d; IGNIS_OPTIMIZER_SELF to _MISSED are 0 to 4", (int)part);
    } else if (part == IGNIS_OPTIMIZER_SELF) {
        array = optimizer->state;
    } else if (parameter < 0 || parameter >= optimizer->count) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "parameter is %d, outside 0 to %d", parameter, optimizer->count - 1);
    } else {
        p = &optimizer->parameters[parameter];
        array = part == IGNIS_OPTIMIZER_FIRST    ? p->first
                : part == IGNIS_OPTIMIZER_SECOND ? p->second
                : part == IGNIS_OPTIMIZER_MASTER ? p->master
                                                 : p->missed;
    }
    if (array)
        none.id = array->slot.handle;
    ignis__mutex_unlock(&optimizer->slot.lock);
    ignis__optimizer_drop(call, optimizer);
    return none;
}

/* ===============================================================================================================
   >>graph - CUDA graphs: capture and replay.
   =============================================================================================================== */

typedef struct ignis__graph {
    ignis__slot slot;
    void *exec;              /* CUgraphExec */
    ignis__capture *capture; /* what it was made of */
} ignis__graph;

static ignis__pool ignis__graphs = IGNIS__POOL(ignis__graph, IGNIS__KIND_GRAPH, "graph", IGNIS_DIAG_GRAPH_FREED);

/*  Takes apart what a capture has become; exec may be null. The device is idle, and what the capture took of its memory goes to Ignis' own stream. */
IGNIS__COLD static void ignis__graph_destroy(const char *call, ignis__capture *capture, void *exec)
{
    if (exec)
        (void)IGNIS__CUDA(cuGraphExecDestroy, (exec));
    ignis__memory_forget_stream(capture->device, capture);
    ignis__capture_destroy(call, capture);
}

static ignis__graph *ignis__graph_hold(const char *call, ignis_graph handle)
{
    return (ignis__graph *)ignis__handle_hold(call, &ignis__graphs, handle.id);
}

static void ignis__graph_drop(const char *call, ignis__graph *graph)
{
    ignis__device *device = graph->capture->device;
    ignis__binding binding;
    bool lost = ignis__devices_lost(), entered;
    if (!ignis__pool_drop(graph))
        return;
    entered = ignis__device_enter_to_give(call, device, &binding);
    if (entered)
        (void)ignis__device_finish(device);
    ignis__graph_destroy(call, graph->capture, lost ? NULL : graph->exec); /* where the device cannot be entered, too */
    if (entered)
        ignis__device_leave(&binding);
    ignis__pool_give(&ignis__graphs, graph);
}

IGNIS__COLD IGNIS_API ignis_status ignis_graph_begin(void)
{
    static const char call[] = "ignis_graph_begin";
    ignis__binding binding;
    ignis__device *device;
    bool ok;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (ignis__capturing())
        return ignis__fail(IGNIS_DIAG_CAPTURE_STATE, call, "this thread captures already; call ignis_graph_end first");
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return ignis__failed();
    /* trimmed, as what earlier graphs left can become memory of this one */
    ok = ignis__device_wait(call, device) && ignis__cache_trim(call, device, &ignis__caches[device - ignis__devices]) >= 0 &&
         ignis__capture_begin(call, device);
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_graph ignis_graph_end(void)
{
    static const char call[] = "ignis_graph_end";
    ignis_graph handle = IGNIS__ZERO;
    ignis__capture *capture;
    ignis__graph *graph = NULL;
    ignis__binding binding;
    void *exec;
    bool entered;
    if (!ignis__enter(call))
        return handle;
    capture = ignis__capturing();
    if (!capture) {
        ignis__fail(IGNIS_DIAG_CAPTURE_STATE, call, "this thread captures nothing; call ignis_graph_begin first");
        return handle;
    }
    entered = ignis__device_enter(call, capture->device, &binding);
    exec = ignis__capture_end(call, capture); /* without the device too, as the capture has to end; then it gives no graph */
    if (exec && entered)
        graph = (ignis__graph *)ignis__pool_take(call, &ignis__graphs);
    if (graph) {
        graph->exec = exec;
        graph->capture = capture;
        handle.id = ignis__pool_publish(&ignis__graphs, graph);
    } else {
        ignis__graph_destroy(call, capture, exec);
    }
    if (entered)
        ignis__device_leave(&binding);
    return handle;
}

/*  False, and reported: the stream is captured, by whomever. The driver would refuse a launch into it, and spoil the capture. */
static bool ignis__graph_launchable(const char *call, ignis__device *device, void *stream)
{
    int captures = 0;
    if (IGNIS__CUDA_FAILED(call, device, cuStreamIsCapturing, (stream, &captures)))
        return false;
    if (captures)
        ignis__fail(
            IGNIS_DIAG_CAPTURE_REFUSED, call,
            "the current stream is being captured, and CUDA puts no graph into another one: launch it before the capture begins or after "
            "it ends, or capture the same work again");
    return !captures;
}

IGNIS_API ignis_status ignis_graph_launch(ignis_graph handle)
{
    static const char call[] = "ignis_graph_launch";
    ignis__graph *graph = ignis__graph_hold(call, handle);
    const ignis__held *held;
    ignis__work work;
    ignis__device *device;
    ignis__traced item;
    bool traced, ok = false;
    if (!graph)
        return ignis__failed();
    device = graph->capture->device;
    if (ignis__thread_now()->device != ignis__device_ordinal(device))
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "the graph is for device %d, device %d is current", ignis__device_ordinal(device),
                    ignis__thread_now()->device);
    else if (ignis__work_begin(call, device, &work)) {
        ok = ignis__graph_launchable(call, device, work.stream);
        traced = ok && ignis__profiling() && ignis__traced_open(&item, IGNIS__TRACED_GRAPH, call, device, work.stream, NULL, "graph");
        ok = ok && !IGNIS__CUDA_FAILED(call, device, cuGraphLaunch, (graph->exec, work.stream));
        if (traced)
            (void)ignis__traced_close(&item, ok);
        if (ok)
            ignis__atomic_add(&graph->capture->replays->count, 1);
        for (held = ok ? graph->capture->held : NULL; held; held = held->next) {
            if (held->written)
                ignis__storage_written((ignis__storage *)held->item);
            if (held->lent)
                ignis__storage_lent((ignis__storage *)held->item);
        }
        ignis__work_end(&work);
    }
    ignis__graph_drop(call, graph);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_graph_free(ignis_graph handle)
{
    static const char call[] = "ignis_graph_free";
    const uint64_t failures = ignis__failures();
    ignis__graph *graph;
    ignis_status status = IGNIS_OK;
    if (!handle.id)
        return IGNIS_OK;
    graph = ignis__graph_hold(call, handle);
    if (!graph)
        return ignis__failed();
    if (ignis__capture_refuses(call))
        status = ignis__failed();
    else if (!ignis__handle_kill(graph))
        status = ignis__fail(IGNIS_DIAG_GRAPH_FREED, call, "another thread has freed the graph");
    ignis__graph_drop(call, graph);
    return status == IGNIS_OK ? ignis__ended(failures, true) : status;
}

static void ignis__graphs_close(const char *call)
{
    ignis__graph *graph;
    ignis__binding binding;
    uint64_t index = 0;
    while (ignis__captures.first) {
        ignis__capture *open = ignis__captures.first;
        bool entered = ignis__device_enter(call, open->device, &binding);
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "a capture on device %d that ignis_graph_end has not ended",
                           ignis__device_ordinal(open->device));
        ignis__graph_destroy(call, open, ignis__capture_end(call, open));
        if (entered)
            ignis__device_leave(&binding);
    }
    while ((graph = (ignis__graph *)ignis__pool_next(&ignis__graphs, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "graph on device %d", ignis__device_ordinal(graph->capture->device));
        ignis__handle_kill(graph);
        ignis__graph_drop(call, graph);
    }
}

/* ===============================================================================================================
   >>file - safetensors files, read and written.
   =============================================================================================================== */

/*  A file is the length of its header as 8 bytes, little-endian; the header, JSON; the data of all tensors, little-endian, row by row:
        {"__metadata__": {"key": "text", ...}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
    Offsets count from the end of the header. No byte of the data belongs to two tensors, and none to no tensor.
    github.com/huggingface/safetensors is the reference. */

#define IGNIS__HEADER_LIMIT 100000000 /* bytes, as in the reference */

/*  Every dtype of the format, in the reference's order of alignment: files are written from the last to the first. */
static const struct {
    const char *name;
    int bits;
    ignis_dtype dtype, loaded; /* the same; what it is loaded as, by its values. 0: Ignis has none */
} ignis__stored_types[] = {
    {"BOOL", 8, IGNIS_DTYPE_DEFAULT, IGNIS_U8},
    {"F4", 4, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"F6_E2M3", 6, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"F6_E3M2", 6, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"U8", 8, IGNIS_U8, IGNIS_U8},
    {"I8", 8, IGNIS_DTYPE_DEFAULT, IGNIS_I32},
    {"F8_E5M2", 8, IGNIS_F8_E5M2, IGNIS_F8_E5M2},
    {"F8_E4M3", 8, IGNIS_F8_E4M3, IGNIS_F8_E4M3},
    {"F8_E8M0", 8, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"F8_E4M3FNUZ", 8, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"F8_E5M2FNUZ", 8, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"I16", 16, IGNIS_DTYPE_DEFAULT, IGNIS_I32},
    {"U16", 16, IGNIS_DTYPE_DEFAULT, IGNIS_I32},
    {"F16", 16, IGNIS_F16, IGNIS_F16},
    {"BF16", 16, IGNIS_BF16, IGNIS_BF16},
    {"I32", 32, IGNIS_I32, IGNIS_I32},
    {"U32", 32, IGNIS_DTYPE_DEFAULT, IGNIS_I64},
    {"F32", 32, IGNIS_F32, IGNIS_F32},
    {"C64", 64, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"F64", 64, IGNIS_F64, IGNIS_F64},
    {"I64", 64, IGNIS_I64, IGNIS_I64},
    {"U64", 64, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
};

/*  One tensor of a file. */
typedef struct ignis__stored {
    const char *name;
    int type; /* in ignis__stored_types */
    ignis_shape shape;
    int64_t begin, end; /* of its bytes in the data */
    int index;          /* in the caller's list, when a file is written */
} ignis__stored;

/* --- text in UTF-8 and JSON -------------------------------------------------------------------------------------- */

static bool ignis__utf8_valid(const char *text)
{
    size_t left = strlen(text);
    int length;
    for (; left > 0; text += length, left -= (size_t)length)
        if ((length = ignis__utf8_length(text, left)) == 0)
            return false;
    return true;
}

/*  Writes a character's bytes, at most 4; how many there are. */
static int ignis__utf8_write(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

/*  A name for a message, in a struct, so that a message can hold several: in quotes, cut. */
typedef struct ignis__name_text {
    char text[80];
} ignis__name_text;

IGNIS__COLD static ignis__name_text ignis__name_write(const char *name)
{
    ignis__name_text out;
    size_t cut = ignis__utf8_cut(name, sizeof out.text - 8);
    memset(&out, 0, sizeof out);
    out.text[0] = '\'';
    memcpy(out.text + 1, name, cut);
    memcpy(out.text + cut + 1, name[cut] ? "...'" : "'", name[cut] ? 4 : 1);
    return out;
}

/*  A reader of JSON. After the first fault, which is kept, all fails, without a step ahead. Strings are decoded where they are. */
typedef struct ignis__json {
    char *start, *at, *end;
    const char *what; /* it reads, in messages; null: the header */
    char fault[256];  /* "" for none */
} ignis__json;

IGNIS__PRINTF(2, 3)
IGNIS__COLD static bool ignis__json_fail(ignis__json *json, const char *format, ...)
{
    ignis__text text;
    va_list args;
    if (json->fault[0])
        return false;
    ignis__text_begin(&text, json->fault, sizeof json->fault);
    ignis__text_add(&text, "at byte %lld of %s, ", (long long)(json->at - json->start), json->what ? json->what : "the header");
    va_start(args, format);
    ignis__text_addv(&text, format, args);
    va_end(args);
    return false;
}

/*  The next character behind white space; 0 at the end. */
IGNIS__COLD static char ignis__json_peek(ignis__json *json)
{
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t'))
        json->at++;
    return json->at < json->end ? *json->at : 0;
}

IGNIS__ONE_COPY static bool ignis__json_take(ignis__json *json, char wanted)
{
    if (json->fault[0] || ignis__json_peek(json) != wanted)
        return false;
    json->at++;
    return true;
}

static bool ignis__json_expect(ignis__json *json, char wanted)
{
    return ignis__json_take(json, wanted) || ignis__json_fail(json, "a %c is missing", wanted);
}

/*  Whether another element follows before `close`; steps over what is before it. *first is true behind the opening bracket. */
IGNIS__COLD static bool ignis__json_more(ignis__json *json, char close, bool *first)
{
    bool behind_element = !*first;
    *first = false;
    if (json->fault[0] || ignis__json_take(json, close))
        return false;
    if (behind_element && !ignis__json_take(json, ','))
        return ignis__json_fail(json, "a comma or %c is missing", close);
    return true;
}

/*  The number of four hexadecimal digits; -1 when they are not. */
IGNIS__COLD static int ignis__json_hex(ignis__json *json)
{
    int value = 0, i;
    if (json->end - json->at < 4)
        return -1;
    for (i = 0; i < 4; i++) {
        char c = *json->at++;
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/*  Writes the character that an escape, behind its backslash, stands for; the place behind it. */
static char *ignis__json_escape(ignis__json *json, char *out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *known = json->at < json->end && *json->at ? strchr(names, *json->at) : NULL;
    int code, low;
    if (known) {
        json->at++;
        *out++ = values[known - names];
        return out;
    }
    if (json->at == json->end || *json->at != 'u') {
        ignis__json_fail(json, "a backslash begins no escape");
        return out;
    }
    json->at++;
    code = ignis__json_hex(json);
    if (code >= 0xD800 && code < 0xDC00) { /* the first half of a pair */
        low = json->end - json->at >= 2 && json->at[0] == '\\' && json->at[1] == 'u' ? (json->at += 2, ignis__json_hex(json)) : -1;
        code = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : -1;
    } else if (code >= 0xDC00 && code < 0xE000) {
        code = -1;
    }
    if (code < 0) {
        ignis__json_fail(json, "\\u is not followed by the four digits of a character, or of two surrogates in their order");
        return out;
    }
    return out + ignis__utf8_write(out, (uint32_t)code);
}

/*  A string, decoded and ended with a 0; *size tells of those inside. "" after a fault. */
IGNIS__COLD static const char *ignis__json_string(ignis__json *json, size_t *size)
{
    char *text, *out;
    int length;
    *size = 0;
    if (!ignis__json_take(json, '"')) {
        ignis__json_fail(json, "a string is missing");
        return "";
    }
    text = out = json->at;
    while (!json->fault[0] && json->at < json->end && *json->at != '"') {
        if (*json->at == '\\') {
            json->at++;
            out = ignis__json_escape(json, out);
        } else if ((unsigned char)*json->at < ' ') {
            ignis__json_fail(json, "a string holds the control character 0x%02x, which has to be escaped",
                             (unsigned)(unsigned char)*json->at);
        } else if ((length = ignis__utf8_length(json->at, (size_t)(json->end - json->at))) == 0) {
            ignis__json_fail(json, "a string is not well-formed UTF-8");
        } else {
            memmove(out, json->at, (size_t)length);
            json->at += length;
            out += length;
        }
    }
    if (json->at == json->end)
        ignis__json_fail(json, "%s ends inside a string", json->what ? json->what : "the header");
    if (json->fault[0])
        return "";
    json->at++;
    *out = 0; /* at the closing quote, or before it */
    *size = (size_t)(out - text);
    return text;
}

/*  A whole number that is not negative and fits 63 bits; 0 after a fault. */
IGNIS__COLD static int64_t ignis__json_count(ignis__json *json)
{
    int64_t value = 0;
    const char *digits;
    char c = ignis__json_peek(json);
    if (c < '0' || c > '9') {
        ignis__json_fail(json, "a whole number, not below 0, is missing");
        return 0;
    }
    for (digits = json->at; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++) {
        if (value > (INT64_MAX - (*json->at - '0')) / 10) {
            ignis__json_fail(json, "a number does not fit 63 bits");
            return 0;
        }
        value = value * 10 + (*json->at - '0');
    }
    if (json->at < json->end && (*json->at == '.' || *json->at == 'e' || *json->at == 'E'))
        ignis__json_fail(json, "a number is not whole");
    else if (*digits == '0' && json->at - digits > 1)
        ignis__json_fail(json, "a number begins with 0");
    return json->fault[0] ? 0 : value;
}

/*  Steps over the digits of a number; false when there are none. */
static bool ignis__json_digits(ignis__json *json)
{
    const char *digits = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
        json->at++;
    return json->at > digits;
}

/*  Steps over true, false, null, a number or a string. */
static void ignis__json_skip_scalar(ignis__json *json)
{
    static const char *const words[] = {"true", "false", "null"};
    char c = ignis__json_peek(json);
    size_t size;
    bool ok;
    int i;
    if (c == '"') {
        ignis__json_string(json, &size);
        return;
    }
    for (i = 0; i < IGNIS__COUNT(words); i++) {
        size = strlen(words[i]);
        if ((size_t)(json->end - json->at) >= size && memcmp(json->at, words[i], size) == 0) {
            json->at += size;
            return;
        }
    }
    if (c == '-')
        json->at++;
    if (json->at < json->end && *json->at == '0')
        ok = (json->at++, true);
    else
        ok = ignis__json_digits(json);
    if (ok && json->at < json->end && *json->at == '.')
        ok = (json->at++, ignis__json_digits(json));
    if (ok && json->at < json->end && (*json->at == 'e' || *json->at == 'E')) {
        json->at++;
        if (json->at < json->end && (*json->at == '+' || *json->at == '-'))
            json->at++;
        ok = ignis__json_digits(json);
    }
    if (!ok)
        ignis__json_fail(json, "there is no value");
}

/*  The value of checked digits: exact up to 2^53 and 22 decimals, else nearly. strtod goes by the program's locale. */
IGNIS__MAYBE_UNUSED static double ignis__decimal(const char *text, const char *end)
{
    double value = 0, power = 1, factor = 10;
    bool negative = text < end && *text == '-', fraction = false, shrinks;
    int exponent = 0, shift = 0;
    uint64_t digits = 0;
    for (text += negative; text < end && *text != 'e' && *text != 'E'; text++) {
        if (*text == '.') {
            fraction = true;
        } else if (digits < UINT64_C(1000000000000000000)) {
            digits = digits * 10 + (uint64_t)(*text - '0');
            shift -= fraction;
        } else {
            shift += !fraction;
        }
    }
    if (text < end) {
        shrinks = text + 1 < end && text[1] == '-';
        for (text += text + 1 < end && (shrinks || text[1] == '+') ? 2 : 1; text < end && exponent < 100000; text++)
            exponent = exponent * 10 + (*text - '0');
        shift += shrinks ? -exponent : exponent;
    }
    value = (double)digits;
    for (exponent = shift < 0 ? -shift : shift; exponent && digits; exponent >>= 1, factor *= factor)
        power *= exponent & 1 ? factor : 1;
    value = digits == 0 ? 0 : shift < 0 ? value / power : value * power;
    return negative ? -value : value;
}

/*  Any number. */
IGNIS__MAYBE_UNUSED static double ignis__json_number(ignis__json *json)
{
    const char *begin;
    char c = ignis__json_peek(json);
    begin = json->at;
    if (c != '-' && (c < '0' || c > '9')) {
        ignis__json_fail(json, "a number is missing");
        return 0;
    }
    ignis__json_skip_scalar(json);
    return json->fault[0] ? 0 : ignis__decimal(begin, json->at);
}

#define IGNIS__JSON_DEPTH 64

/*  Steps over a value of any kind. */
static void ignis__json_skip(ignis__json *json)
{
    uint64_t objects = 0; /* what is open, the innermost in the lowest bit: 1 for an object, 0 for an array */
    int depth = 0;
    size_t size;
    while (!json->fault[0]) {
        char c = ignis__json_peek(json);
        bool first = c == '{' || c == '[';
        if (first && depth == IGNIS__JSON_DEPTH) {
            ignis__json_fail(json, "values are nested deeper than %d", IGNIS__JSON_DEPTH);
        } else if (first) {
            json->at++;
            objects = objects << 1 | (uint64_t)(c == '{');
            depth++;
        } else {
            ignis__json_skip_scalar(json);
        }
        while (depth > 0 && !ignis__json_more(json, objects & 1 ? '}' : ']', &first)) {
            objects >>= 1;
            depth--;
        }
        if (depth == 0)
            return;
        if (objects & 1) {
            ignis__json_string(json, &size);
            ignis__json_expect(json, ':');
        }
    }
}

