/*  >>tensor.creation - new tensors that a kernel fills: random numbers, arange, linspace, eye

    Uses: tensor; the kernels PATTERN and RANDOM.
    Threads: random numbers and their counter belong to the thread. */

#include "room.h"

/*  Creates a tensor by an elementwise kernel; params are the address, ..., the number of elements. random,
    *step: the numbers and their counter; NULL if there are none. */
IGNIS__COLD static ignis_tensor ignis__tensor_create_by_kernel(const char *call, ignis__builtin builtin,
                                                               ignis_shape shape, const ignis_tensor_desc *desc,
                                                               void **params, int last, ignis__random *random,
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
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "the tensor is %s; f16, bf16, f32 or f64 is needed",
                    ignis__dtypes[array->dtype].name);
    } else if (ignis__work_begin(call, array->storage->device, &work)) {
        ok = !random || (ignis__random_take(&work, array->dtype, array->numel, random) &&
                         ignis__random_step(&work, random->launches, step));
        ok = ok && ignis__work_write(&work, array, &to) &&
             ignis__elementwise(&work, builtin, array->dtype, array->numel, params);
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
    return ignis__enter(call) ? ignis__tensor_create_by_kernel(call, builtin, shape, desc, params, 6, &random, &step)
                              : ignis__no_tensor();
}

IGNIS_API ignis_tensor ignis_tensor_rand(ignis_shape shape, const ignis_tensor_desc *desc)
{
    return ignis__tensor_random("ignis_tensor_rand", IGNIS__BUILTIN(RAND), shape, desc);
}

IGNIS_API ignis_tensor ignis_tensor_randn(ignis_shape shape, const ignis_tensor_desc *desc)
{
    return ignis__tensor_random("ignis_tensor_randn", IGNIS__BUILTIN(RANDN), shape, desc);
}

/*  Creates a tensor of numbers at equal distances. A negative count: the ends give no line, and it is
    reported. */
IGNIS__COLD static ignis_tensor ignis__tensor_create_line(const char *call, double start, double end, double step,
                                                          int64_t middle, int64_t count, const ignis_tensor_desc *desc)
{
    void *params[] = {NULL, &start, &end, &step, &middle, NULL};
    if (!ignis__enter(call))
        return ignis__no_tensor();
    if (count < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "from %g to %g in steps of %g is not a number of elements", start, end,
                    step);
        return ignis__no_tensor();
    }
    return ignis__tensor_create_by_kernel(call, IGNIS__BUILTIN(LINE), IGNIS_SHAPE(count), desc, params, 5, NULL, NULL);
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_tensor_arange(double start, double end, double step,
                                                       const ignis_tensor_desc *desc)
{
    double count = (end - start) / step;
    int64_t n = count >= 0 && count < 9e15 ? (int64_t)count : -1;
    return ignis__tensor_create_line("ignis_tensor_arange", start, end, step, INT64_MAX,
                                     n + (n >= 0 && (double)n < count), desc);
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_tensor_linspace(double start, double end, int64_t count,
                                                         const ignis_tensor_desc *desc)
{
    static const char call[] = "ignis_tensor_linspace";
    double step = count > 1 ? (end - start) / ((double)count - 1) : 0;
    if (ignis__enter(call) && count < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %lld, below 0", (long long)count);
    if (count < 0)
        return ignis__no_tensor();
    return ignis__tensor_create_line("ignis_tensor_linspace", start, end, step, count - count / 2, count, desc);
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_tensor_eye(int64_t rows, int64_t columns, const ignis_tensor_desc *desc)
{
    static const char call[] = "ignis_tensor_eye";
    ignis__address none = 0;
    int64_t diagonal = 0;
    void *params[] = {NULL, &none, &rows, &columns, &diagonal, &diagonal, NULL};
    if (!ignis__enter(call))
        return ignis__no_tensor();
    return ignis__tensor_create_by_kernel(call, IGNIS__BUILTIN(BAND), IGNIS_SHAPE(rows, columns), desc, params, 6, NULL,
                                          NULL);
}
