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

