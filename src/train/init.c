/*  >>init - ignis_initialize: Kaiming, Xavier, orthogonal, truncated normal

    Numbers are drawn by formulas. An orthogonal matrix is the Q of a normal matrix, whose columns get the signs of R's
    diagonal: so it is uniformly distributed (Mezzadri 2007).
    Uses: the rooms formula, ops and linalg. */

#include "room.h"

static bool ignis__init_check_number(const char *call, const char *name, double value)
{
    if (ignis__is_finite(value) && value >= 0)
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "desc->%s is %g; expected a number of 0 or above", name,
                             value);
}

/*  Checks a desc and sets its defaults. */
static bool ignis__init_check(const char *call, const ignis_tensor_info *info, ignis_init_desc *d)
{
    if ((int)d->kind < IGNIS_INIT_KAIMING_UNIFORM || d->kind > IGNIS_INIT_TRUNCATED_NORMAL)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "desc->kind is %d; expected 0 to %d", (int)d->kind,
                                 (int)IGNIS_INIT_TRUNCATED_NORMAL);
    if (d->fan != IGNIS_FAN_IN && d->fan != IGNIS_FAN_OUT)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "desc->fan is %d; expected 0 or 1", (int)d->fan);
    if (!ignis__dtype_is_float(info->dtype))
        return ignis__fail_false(IGNIS_DIAG_DTYPE_DIFFERS, call, "the tensor is %s; f16, bf16, f32 or f64 is needed",
                                 ignis__dtypes[info->dtype].name);
    if (d->kind != IGNIS_INIT_TRUNCATED_NORMAL && info->shape.ndim < 2)
        return ignis__fail_false(IGNIS_DIAG_SHAPE_DIFFERS, call, "the tensor is %s; two dimensions or more are needed",
                                 ignis__shape_write(&info->shape).text);
    if (!ignis__init_check_number(call, "gain", d->gain) || !ignis__init_check_number(call, "slope", d->slope) ||
        !ignis__init_check_number(call, "std", d->std))
        return false;
    if (d->low == 0 && d->high == 0) {
        d->low = -2;
        d->high = 2;
    }
    if (!ignis__is_finite(d->mean) || !ignis__is_finite(d->low) || !ignis__is_finite(d->high) || !(d->low < d->high))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc->mean is %g, low is %g, high is %g; expected finite numbers, low below high",
                                 d->mean, d->low, d->high);
    d->std = d->std == 0 ? 1 : d->std;
    return true;
}

/*  Returns the variance of a Kaiming or Xavier kind. */
static double ignis__init_variance(const ignis_init_desc *d, const ignis_shape *shape)
{
    const double count = (double)ignis__shape_product(shape, 0, shape->ndim);
    const double fan_in = count / (double)shape->dim[0], fan_out = count / (double)shape->dim[shape->ndim - 1];
    if (d->kind == IGNIS_INIT_XAVIER_UNIFORM || d->kind == IGNIS_INIT_XAVIER_NORMAL)
        return (d->gain != 0 ? d->gain * d->gain : 1) * 2 / (fan_in + fan_out);
    return (d->gain != 0 ? d->gain * d->gain : 2 / (1 + d->slope * d->slope)) /
           (d->fan == IGNIS_FAN_IN ? fan_in : fan_out);
}

static bool ignis__init_orthogonal(ignis_array data, const ignis_tensor_info *info, double gain)
{
    const int64_t rows = info->shape.dim[0], columns = ignis__shape_product(&info->shape, 1, info->shape.ndim);
    const int64_t more = rows > columns ? rows : columns, fewer = rows > columns ? columns : rows;
    ignis_tensor_desc wide = IGNIS__ZERO;
    ignis_reduce_desc columnwise = IGNIS__ZERO;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor q, r, d;
    bool ok;
    wide.dtype = info->dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32;
    wide.device = info->device == 0 ? IGNIS_DEVICE_0 : info->device;
    columnwise.dim_count = 1; /* of dimension 0 */
    q = ignis_qr(ignis_tensor_randn(IGNIS_SHAPE(more, fewer), &wide), &r);
    d = ignis_map_reduce(IGNIS_REDUCE_SUM, "index(0) == index(1) ? r : 0", IGNIS_INPUTS(r), &columnwise);
    q = ignis_map("d < 0 ? -q : q", IGNIS_INPUTS(q, d));
    if (rows < columns)
        q = ignis_transpose(q, 0, 1);
    ok = q.id && ignis_array_map(data, "gain*q",
                                 IGNIS_ARRAYS(IGNIS_NAMED(q, ignis_tensor_data(q)),
                                              IGNIS_ARRAY_VALUE(gain, gain != 0 ? gain : 1))) == IGNIS_OK;
    return ignis_scope_end(scope) == IGNIS_OK && ok;
}

IGNIS_API ignis_status ignis_initialize(ignis_tensor tensor, const ignis_init_desc *desc)
{
    static const char call[] = "ignis_initialize";
    ignis_init_desc d = IGNIS__ZERO;
    ignis_tensor_info info;
    ignis__tensor *held;
    ignis_array data;
    double k;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    held = ignis__tensor_hold(call, tensor);
    if (!held || ignis_tensor_query(tensor, &info) != IGNIS_OK) {
        if (held)
            ignis__tensor_drop(call, held);
        return ignis__failed();
    }
    ignis__tensor_drop(call, held);
    d = desc ? *desc : d;
    if (!ignis__init_check(call, &info, &d))
        return ignis__failed();
    data = ignis_tensor_data(tensor);
    if (ignis__shape_product(&info.shape, 0, info.shape.ndim) == 0)
        return IGNIS_OK;
    if (d.kind == IGNIS_INIT_ORTHOGONAL)
        return ignis__init_orthogonal(data, &info, d.gain) ? IGNIS_OK : ignis__failed();
    if (d.kind == IGNIS_INIT_TRUNCATED_NORMAL)
        return ignis_array_map(data,
                               "s = std*sqrt(2); l = erf((low - mean)/s); h = erf((high - mean)/s);"
                               "min(max(mean + s*erfinv(l + (h - l)*rand()), low), high)",
                               IGNIS_ARRAYS(IGNIS_ARRAY_VALUE(mean, d.mean), IGNIS_ARRAY_VALUE(std, d.std),
                                            IGNIS_ARRAY_VALUE(low, d.low), IGNIS_ARRAY_VALUE(high, d.high)));
    k = ignis__init_variance(&d, &info.shape);
    if (d.kind == IGNIS_INIT_KAIMING_UNIFORM || d.kind == IGNIS_INIT_XAVIER_UNIFORM)
        return ignis_array_map(data, "sqrt(3*k)*(2*rand() - 1)", IGNIS_ARRAYS(IGNIS_ARRAY_VALUE(k, k)));
    return ignis_array_map(data, "sqrt(k)*randn()", IGNIS_ARRAYS(IGNIS_ARRAY_VALUE(k, k)));
}

IGNIS_API ignis_tensor ignis_parameter(ignis_optimizer optimizer, ignis_shape shape, const ignis_init_desc *desc)
{
    static const char call[] = "ignis_parameter";
    const bool is_weight = shape.ndim > 1;
    ignis_tensor_desc trained = IGNIS__ZERO;
    ignis__outer_call outer;
    ignis_tensor tensor;
    bool ok;
    if (!ignis__enter(call))
        return ignis__no_tensor();
    ignis__outer_call_begin(&outer, call, NULL);
    trained.requires_grad = true;
    tensor = ignis_tensor_zeros(shape, &trained);
    ok = tensor.id && ((!is_weight && !desc) || ignis_initialize(tensor, desc) == IGNIS_OK) &&
         ignis_optimizer_add(optimizer, tensor, is_weight) == IGNIS_OK;
    if (!ok)
        ignis__tensor_discard(call, tensor);
    ignis__outer_call_end(&outer);
    return ok ? tensor : ignis__no_tensor();
}
