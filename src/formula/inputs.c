/*  >>formula.inputs - checks of inputs, the dtype and shape of results, and values among the inputs

    Every formula begins here, of arrays and of tensors. A value travels in a handle that names one of the
    thread's last IGNIS__VALUES values. Uses: cache, broadcast. Locks: none; values belong to the thread. */

#include "room.h"

/*  Finds the shape that all inputs broadcast to, by NumPy's rules. */
static bool ignis__formula_broadcast_shape(const char *call, const ignis__formula *formula, ignis__formula_run *run)
{
    ignis__formula_name names[IGNIS_MAX_INPUTS];
    int i, d, k, count = formula->count;
    memset(&run->shape, 0, sizeof run->shape);
    if (run->to_shape) {
        run->shape = *run->to_shape;
        run->to_shape = NULL;
        return true;
    }
    for (i = 0; i < count; i++)
        if (run->input[i] && run->input[i]->ndim > run->shape.ndim)
            run->shape.ndim = run->input[i]->ndim;
    for (d = 0; d < run->shape.ndim; d++) {
        run->shape.dim[d] = 1;
        for (i = 0; i < count; i++) {
            int lacking = run->input[i] ? run->shape.ndim - run->input[i]->ndim : IGNIS_MAX_DIMS;
            if (d < lacking || run->input[i]->dim[d - lacking] == 1 ||
                run->input[i]->dim[d - lacking] == run->shape.dim[d])
                continue;
            if (run->shape.dim[d] != 1) {
                ignis__formula_parse_names(formula->names, names, &k, count);
                for (k = 0; !run->input[k]; k++)
                    ;
                return ignis__fail_false(IGNIS_DIAG_BROADCAST_SHAPE, call,
                                         "%.*s is %s, which does not broadcast with %lld in dimension %d; "
                                         "%.*s is %s",
                                         (int)names[i].length, names[i].text, ignis__shape_write(run->input[i]).text,
                                         (long long)run->shape.dim[d], d, (int)names[k].length, names[k].text,
                                         ignis__shape_write(run->input[k]).text);
            }
            run->shape.dim[d] = run->input[i]->dim[d - lacking];
        }
    }
    return true;
}

/*  Returns the dtype of a result: u8 for a truth value, i64 for an integer, else the widest floating type of
    the inputs. f16 with bf16, integers alone and 8-bit types alone give f32. */
IGNIS__PRIVATE ignis_dtype ignis__formula_result_dtype(const ignis__formula_run *run, int result)
{
    char type = run->formula->term[run->formula->result[result]].type;
    ignis_dtype widest = IGNIS_DTYPE_DEFAULT;
    int i;
    for (i = 0; i < run->formula->count && type == 'w'; i++) {
        ignis_dtype dtype = run->input[i] ? run->dtype[i] : IGNIS_DTYPE_DEFAULT;
        if (dtype < IGNIS_F16 || dtype > IGNIS_F64 || dtype == widest)
            continue;
        widest = widest == IGNIS_F16 && dtype == IGNIS_BF16   ? IGNIS_F32
                 : widest == IGNIS_BF16 && dtype == IGNIS_F16 ? IGNIS_F32
                 : dtype > widest                             ? dtype
                                                              : widest;
    }
    return type == 'b' ? IGNIS_U8 : type == 'i' ? IGNIS_I64 : widest ? widest : IGNIS_F32;
}

/*  Values among the inputs. A handle names one of the last values that the thread made. */
#define IGNIS__VALUES 64

typedef struct ignis__value_list {
    double value[IGNIS__VALUES];
    uint32_t made;
} ignis__value_list;

IGNIS__LOCAL(ignis__value_list, ignis__values, IGNIS__LOCAL_VALUES)
#ifdef _WIN32
#define ignis__values (*ignis__values_get())
#endif

static uint64_t ignis__value_tag(void)
{
    return (uint64_t)(uintptr_t)&ignis__values >> 4 << 32 | (uint64_t)IGNIS__KIND_VALUE << IGNIS__SLOT_BITS;
}

IGNIS__PRIVATE uint64_t ignis__value_make(double value)
{
    ignis__values.value[++ignis__values.made % IGNIS__VALUES] = value;
    return ignis__value_tag() | (ignis__values.made & IGNIS__SLOT_MASK);
}

/*  Returns whether a handle names a value. */
static bool ignis__handle_is_value(uint64_t handle) { return ignis__handle_kind(handle) == IGNIS__KIND_VALUE; }

static bool ignis__value_get(const char *call, uint64_t handle, double *value)
{
    uint32_t ago = (ignis__values.made - (uint32_t)handle) & (uint32_t)IGNIS__SLOT_MASK;
    if ((handle & ~IGNIS__SLOT_MASK) != ignis__value_tag() || ago >= IGNIS__VALUES)
        return ignis__fail_false(
            IGNIS_DIAG_FORMULA, call,
            "a value belongs to another thread, or is too old; make it in the call, by IGNIS_VALUE");
    *value = ignis__values.value[(uint32_t)handle % IGNIS__VALUES];
    return true;
}

/*  Begins any formula: checks it, and finds which inputs are values, and which are in `found`. */
IGNIS__PRIVATE bool ignis__formula_begin(const char *call, const char *formula, const char *names, int count,
                                         const uint64_t *handles, ignis__formula_run *run,
                                         ignis__formula_handles *found)
{
    int i;
    found->count = 0;
    memset(run, 0, sizeof *run);
    if (!ignis__enter(call) || !ignis__check_not_null(call, "formula", formula) ||
        !ignis__check_not_null(call, "inputs.names", names))
        return false;
    if (count < 1 || count > IGNIS_MAX_INPUTS)
        return ignis__fail_false(IGNIS_DIAG_COUNT_MISMATCH, call, "a formula has 1 to %d inputs, not %d",
                                 IGNIS_MAX_INPUTS, count);
    for (i = 0; i < count; i++) {
        if (!ignis__handle_is_value(handles[i])) {
            found->at[found->count] = i;
            found->id[found->count++] = handles[i];
        } else if (!ignis__value_get(call, handles[i], &run->value[i]))
            return false;
    }
    return true;
}

/*  Reports that a formula has no array or tensor. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__formula_has_no_shape(const char *call)
{
    return ignis__fail_false(IGNIS_DIAG_FORMULA, call,
                             "all inputs are values; expected an array or a tensor, which gives the result its shape, "
                             "or ignis_map_shape");
}

/*  Parses the formula, which has `results` results, and finds their shape. run->input and run->dtype are set. */
IGNIS__PRIVATE bool ignis__formula_prepare(const ignis__work *work, const char *formula, const char *names, int count,
                                           int results, ignis__formula_run *run)
{
    const char *call = work->call;
    uint32_t integers = 0;
    int i;
    for (i = 0; i < count; i++)
        if (run->input[i])
            integers |= (uint32_t)ignis__dtype_is_int(run->dtype[i]) << i;
    run->formula = ignis__formula_get(call, formula, names, count, integers);
    if (!run->formula || !ignis__formula_broadcast_shape(call, run->formula, run))
        return false;
    if (run->formula->result_count != results)
        return ignis__fail_false(IGNIS_DIAG_FORMULA, call, "'%.200s' has %d results, not %d", formula,
                                 run->formula->result_count, results);
    run->used = ((uint32_t)1 << count) - 1;
    run->factor = 1;
    run->outs = results;
    return !run->formula->randoms || ignis__random_take(work, IGNIS_F32,
                                                        (ignis__shape_product(&run->shape, 0, run->shape.ndim) + 3) /
                                                            4 * 4 * run->formula->randoms,
                                                        &run->random);
}
