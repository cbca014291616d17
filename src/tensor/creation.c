/*  >>tensor.creation - new tensors that a kernel fills: random numbers, arange, linspace, eye

    Uses: tensor; the kernels PATTERN and RANDOM.
    Threads: random numbers and their counter belong to the thread. */

#include "room.h"

/*  Creates a tensor by an elementwise kernel. */
IGNIS__COLD IGNIS__PRIVATE ignis_tensor ignis__tensor_create_by_kernel(const ignis__creation *creation)
{
    const char *call = creation->call;
    ignis__random *random = creation->random;
    ignis_array made = ignis__tensor_array_create(call, creation->shape, creation->desc);
    ignis__array *array;
    ignis__address to;
    ignis__work work;
    bool ok = false;
    if (!made.id)
        return ignis__no_tensor();
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
    creation->params[0] = &to;
    creation->params[creation->last] = &array->numel;
    if (random && ignis__dtype_is_float(array->dtype) == creation->integers) {
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "the tensor is %s; %s is needed", ignis__dtypes[array->dtype].name,
                    creation->integers ? "i32, i64 or u8" : "f16, bf16, f32 or f64");
    } else if (ignis__work_begin(call, array->storage->device, &work)) {
        ok = !random || (ignis__random_take(&work, array->dtype, array->numel * creation->words, random) &&
                         ignis__random_step(&work, random->launches, creation->step));
        ok = ok && ignis__work_write(&work, array, &to) &&
             ignis__elementwise(&work, creation->builtin, array->dtype, array->numel, creation->params);
        ignis__work_end(&work);
    }
    if (!ok)
        ignis__array_discard(call, &made);
    ignis__array_drop(call, array);
    return ignis__tensor_adopt(call, made, creation->desc && creation->desc->requires_grad);
}

/*  Describes a creation without random numbers. */
static ignis__creation ignis__creation_of(const char *call, ignis__builtin builtin, ignis_shape shape,
                                          const ignis_tensor_desc *desc, void **params, int last)
{
    ignis__creation creation = IGNIS__ZERO;
    creation.call = call;
    creation.builtin = builtin;
    creation.shape = shape;
    creation.desc = desc;
    creation.params = params;
    creation.last = last;
    return creation;
}

IGNIS__COLD static ignis_tensor ignis__tensor_random(const char *call, ignis__builtin builtin, ignis_shape shape,
                                                     const ignis_tensor_desc *desc)
{
    ignis__random random;
    ignis__address step;
    double from = 0, by = 1; /* low and high; mean and deviation */
    void *params[] = {NULL, &from, &by, &random.seed, &random.first, &step, NULL};
    ignis__creation creation = ignis__creation_of(call, builtin, shape, desc, params, 6);
    creation.random = &random;
    creation.step = &step;
    creation.words = 1;
    return ignis__enter(call) ? ignis__tensor_create_by_kernel(&creation) : ignis__no_tensor();
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
    ignis__creation creation = ignis__creation_of(call, IGNIS__BUILTIN(LINE), IGNIS_SHAPE(count), desc, params, 5);
    if (!ignis__enter(call))
        return ignis__no_tensor();
    if (count < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "from %g to %g in steps of %g is not a number of elements", start, end,
                    step);
        return ignis__no_tensor();
    }
    return ignis__tensor_create_by_kernel(&creation);
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
    ignis__creation creation =
        ignis__creation_of(call, IGNIS__BUILTIN(BAND), IGNIS_SHAPE(rows, columns), desc, params, 6);
    if (!ignis__enter(call))
        return ignis__no_tensor();
    return ignis__tensor_create_by_kernel(&creation);
}
