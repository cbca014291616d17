/*  >>ops.random - randint, exponential, permutation, poisson, gamma, beta, categorical

    An element reads as many random words as it needs from a counter of its own: kernels/distribution.cu.
    Uses: operation, scan, sort, map; the random numbers of the room kernel. */

#include "room.h"

/*  Random numbers for the elements of an operation, and where the count of a graph's launches is. */
typedef struct ignis__drawn {
    ignis__random random;
    ignis__address step;
} ignis__drawn;

/*  Reserves a counter for each of n elements. */
static bool ignis__op_draw(ignis__op *op, ignis_dtype dtype, int64_t n, ignis__drawn *drawn)
{
    drawn->step = 0;
    op->ok = op->ok && ignis__random_take(&op->work, dtype, 4 * n, &drawn->random) &&
             ignis__random_step(&op->work, drawn->random.launches, &drawn->step);
    return op->ok;
}

static int64_t ignis__draw_blocks(int64_t n) { return ignis__clamp(ignis__ceil_div(n, 256), 0, INT32_MAX); }

/*  Runs poisson, gamma or beta: a number for each element of the inputs. */
static ignis_tensor ignis__distribution(const char *call, ignis__builtin builtin, int count, const ignis_tensor *inputs,
                                        const char *const *names)
{
    ignis__op op;
    ignis__array *out = NULL;
    ignis__drawn drawn;
    ignis__address target, first, second = 0;
    void *params[7] = {&target, &first};
    int at = 2;
    if (!ignis__op_begin(&op, call, count, inputs))
        return ignis__no_tensor();
    ignis__op_is_float(&op, 0, names[0]);
    if (count > 1 && ignis__op_same_dtype(&op, 1, names[1]))
        ignis__op_same_shape(&op, 1, names[1]);
    out = ignis__op_new_like(&op, op.in[0]);
    if (out && ignis__op_draw(&op, out->dtype, out->numel, &drawn)) {
        target = ignis__op_write(&op, out);
        first = ignis__op_read(&op, op.in[0]);
        if (count > 1) {
            second = ignis__op_read(&op, op.in[1]);
            params[at++] = &second;
        }
        params[at++] = &drawn.random.seed;
        params[at++] = &drawn.random.first;
        params[at++] = &drawn.step;
        params[at] = &out->numel;
        ignis__op_launch_row(&op, builtin, out->dtype, ignis__draw_blocks(out->numel), 256, params);
    }
    return ignis__op_end(&op, out, NULL);
}

IGNIS_API ignis_tensor ignis_poisson(ignis_tensor rates)
{
    static const char *const names[] = {"rates"};
    return ignis__distribution("ignis_poisson", IGNIS__BUILTIN(POISSON), 1, &rates, names);
}

IGNIS_API ignis_tensor ignis_gamma(ignis_tensor shapes)
{
    static const char *const names[] = {"shapes"};
    return ignis__distribution("ignis_gamma", IGNIS__BUILTIN(GAMMA), 1, &shapes, names);
}

IGNIS_API ignis_tensor ignis_beta(ignis_tensor a, ignis_tensor b)
{
    static const char *const names[] = {"a", "b"};
    ignis_tensor inputs[2];
    inputs[0] = a;
    inputs[1] = b;
    return ignis__distribution("ignis_beta", IGNIS__BUILTIN(BETA), 2, inputs, names);
}

/*  Creates a tensor of random numbers that depend on nothing; params are as ignis__tensor_create_by_kernel takes them,
    but for those of the random numbers, which come from place `at` on. */
static ignis_tensor ignis__tensor_draw(const char *call, ignis__builtin builtin, ignis_shape shape,
                                       const ignis_tensor_desc *desc, void **params, int at)
{
    ignis__creation creation = IGNIS__ZERO;
    ignis__random random;
    ignis__address step;
    params[at] = &random.seed;
    params[at + 1] = &random.first;
    params[at + 2] = &step;
    creation.call = call;
    creation.builtin = builtin;
    creation.shape = shape;
    creation.desc = desc;
    creation.params = params;
    creation.last = at + 3;
    creation.random = &random;
    creation.step = &step;
    creation.words = 4;
    creation.integers = builtin == IGNIS__BUILTIN(RANDINT);
    return ignis__tensor_create_by_kernel(&creation);
}

/*  The range of an integer dtype. */
static void ignis__integer_range(ignis_dtype dtype, int64_t *least, int64_t *most)
{
    *least = dtype == IGNIS_U8 ? 0 : dtype == IGNIS_I32 ? INT32_MIN : INT64_MIN;
    *most = dtype == IGNIS_U8 ? UINT8_MAX : dtype == IGNIS_I32 ? INT32_MAX : INT64_MAX;
}

IGNIS_API ignis_tensor ignis_tensor_randint(int64_t low, int64_t high, ignis_shape shape, const ignis_tensor_desc *desc)
{
    static const char call[] = "ignis_tensor_randint";
    ignis_tensor_desc integers = IGNIS__ZERO;
    uint64_t range = (uint64_t)high - (uint64_t)low;
    int64_t least, most;
    void *params[7] = {NULL, &low, &range};
    if (!ignis__enter(call))
        return ignis__no_tensor();
    if (desc)
        integers = *desc;
    if (integers.dtype == IGNIS_DTYPE_DEFAULT)
        integers.dtype = IGNIS_I64;
    ignis__integer_range(integers.dtype, &least, &most);
    if (low >= high || low < least || high - 1 > most) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "low is %lld, high is %lld; expected low below high, within %s",
                    (long long)low, (long long)high, ignis_dtype_name(integers.dtype));
        return ignis__no_tensor();
    }
    return ignis__tensor_draw(call, IGNIS__BUILTIN(RANDINT), shape, &integers, params, 3);
}

IGNIS_API ignis_tensor ignis_tensor_exponential(double rate, ignis_shape shape, const ignis_tensor_desc *desc)
{
    static const char call[] = "ignis_tensor_exponential";
    void *params[6] = {NULL, &rate};
    if (!ignis__enter(call))
        return ignis__no_tensor();
    if (!(rate > 0) || !ignis__is_finite(rate)) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "rate is %g; expected a number above 0", rate);
        return ignis__no_tensor();
    }
    return ignis__tensor_draw(call, IGNIS__BUILTIN(EXPONENTIAL), shape, desc, params, 2);
}

IGNIS_API ignis_tensor ignis_tensor_permutation(int64_t n, const ignis_tensor_desc *desc)
{
    static const char call[] = "ignis_tensor_permutation";
    ignis_tensor_desc integers = IGNIS__ZERO;
    ignis_tensor keys, order = ignis__no_tensor(), sorted;
    int64_t low = INT64_MIN;
    uint64_t range = 0;
    void *params[7] = {NULL, &low, &range};
    if (!ignis__enter(call))
        return order;
    if (desc)
        integers = *desc;
    if (n < 0 || (integers.dtype != IGNIS_DTYPE_DEFAULT && integers.dtype != IGNIS_I64)) {
        ignis__fail(n < 0 ? IGNIS_DIAG_BAD_NUMBER : IGNIS_DIAG_DTYPE_DIFFERS, call,
                    "n is %lld, the dtype %s; expected 0 or more numbers of i64", (long long)n,
                    ignis_dtype_name(integers.dtype));
        return order;
    }
    integers.dtype = IGNIS_I64;
    keys = ignis__tensor_draw(call, IGNIS__BUILTIN(RANDINT), IGNIS_SHAPE(n), &integers, params, 3);
    if (!keys.id)
        return order;
    sorted = ignis_sort(keys, 0, false, &order);
    (void)ignis_tensor_release(sorted);
    (void)ignis_tensor_release(keys);
    return order;
}

/*  Draws with replacement. */
static ignis_tensor ignis__categorical_draws(const char *call, ignis_tensor weights, int64_t draws)
{
    ignis__op op;
    ignis__array *out = NULL, *wide = NULL, *sums = NULL;
    ignis__drawn drawn;
    ignis_shape shape;
    ignis__address target, source, up_to;
    int64_t categories;
    void *params[] = {&target,     &source, &up_to, &categories, &draws, &drawn.random.seed, &drawn.random.first,
                      &drawn.step, NULL};
    if (!ignis__op_begin(&op, call, 1, &weights))
        return ignis__no_tensor();
    wide = op.in[0];
    shape = wide->shape;
    categories = shape.dim[shape.ndim - 1];
    shape.dim[shape.ndim - 1] = draws;
    out = ignis__op_new(&op, &shape, IGNIS_I64);
    if (out)
        sums = ignis__op_sum_up(&op, wide);
    if (sums && ignis__op_draw(&op, wide->dtype, out->numel, &drawn)) {
        target = ignis__op_write(&op, out);
        source = ignis__op_read(&op, wide);
        up_to = ignis__op_read(&op, sums);
        params[8] = &out->numel;
        ignis__op_launch_row(&op, IGNIS__BUILTIN(CATEGORICAL), wide->dtype, ignis__draw_blocks(out->numel), 256,
                             params);
    }
    return ignis__op_end(&op, out, NULL);
}

IGNIS_API ignis_tensor ignis_categorical(ignis_tensor weights, int64_t draws, bool replace)
{
    static const char call[] = "ignis_categorical";
    ignis_tensor_info info;
    ignis_tensor wide, keys, values, result = ignis__no_tensor();
    int64_t categories;
    if (!ignis__enter(call) || ignis_tensor_query(weights, &info) != IGNIS_OK)
        return result;
    categories = info.shape.dim[info.shape.ndim - 1];
    if (info.dtype < IGNIS_F16 || info.dtype > IGNIS_F64) {
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "weights is %s; f16, bf16, f32 or f64 is needed",
                    ignis_dtype_name(info.dtype));
        return result;
    }
    if (categories < 1 || draws < 0 || (!replace && draws > categories)) {
        ignis__fail(categories < 1 ? IGNIS_DIAG_SHAPE_DIFFERS : IGNIS_DIAG_BAD_NUMBER, call,
                    "draws is %lld, weights is %s; expected 0 or more draws%s of 1 or more categories",
                    (long long)draws, ignis__shape_write(&info.shape).text,
                    replace ? "" : ", without replacement at most as many as categories,");
        return result;
    }
    wide = ignis_cast(ignis_detach(weights), info.dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32);
    if (replace) {
        result = ignis__categorical_draws(call, wide, draws);
    } else {
        keys = ignis_map("log(max(wide, 0)) - log(-log(1 - rand()))", IGNIS_INPUTS(wide));
        values = ignis_topk(keys, draws, -1, true, &result);
        (void)ignis_tensor_release(values);
        (void)ignis_tensor_release(keys);
    }
    (void)ignis_tensor_release(wide);
    return result;
}
