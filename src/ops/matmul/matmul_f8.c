/*  >>ops.matmul.matmul_f8 - ignis_matmul_f8: a product of 8-bit floats with scales

    Needs a device of compute capability 8.9. Nothing is recorded.
    Uses: dispatch, product. */

#include "room.h"

/*  Checks that input i of ignis_matmul_f8 is [1] or has `numel` elements, of a dtype. */
static void ignis__f8_check_input(ignis__op *op, int i, const char *name, ignis_dtype dtype, int64_t numel, bool one)
{
    const ignis__array *array = op->in[i];
    if (op->ok && array->dtype != dtype)
        ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "%s is %s; %s is needed", name, ignis__dtypes[array->dtype].name,
                       ignis__dtypes[dtype].name);
    if (op->ok && array->numel != numel && !(one && array->numel == 1))
        ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "%s is %s; %s[%lld] is needed", name,
                       ignis__shape_write(&array->shape).text, one ? "[1] or " : "", (long long)numel);
}

IGNIS_API ignis_tensor ignis_matmul_f8(ignis_tensor a, ignis_tensor b, ignis_tensor scale_a, ignis_tensor scale_b,
                                       ignis_tensor bias, ignis_dtype dtype)
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
        ignis__op_fail(&op, IGNIS_DIAG_BAD_ENUM, "dtype is %d; IGNIS_F16, IGNIS_BF16 or IGNIS_F32 is needed",
                       (int)dtype);
    else if (!ignis__dtype_is_f8(op.in[0]->dtype))
        ignis__op_fail(&op, IGNIS_DIAG_DTYPE_DIFFERS, "a is %s; f8_e4m3 or f8_e5m2 is needed",
                       ignis__dtypes[op.in[0]->dtype].name);
    else if (ignis__op_same_dtype(&op, 1, "b") && op.in[1]->shape.ndim != 2)
        ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "b is %s; [n, k] is needed",
                       ignis__shape_write(&op.in[1]->shape).text);
    if (op.ok && ignis__matmul_shapes(&op, 1, &product, &shape))
        for (i = 2; i < count; i++) {
            ignis__f8_check_input(&op, i, names[which[i]], which[i] == 4 ? dtype : IGNIS_F32,
                                  which[i] == 2 ? product.m : product.n, which[i] < 4);
            *places[which[i]] = op.in[i];
        }
    if (op.ok && ignis__capability(&op.work.device->info) < 89)
        ignis__op_fail(&op, IGNIS_DIAG_UNSUPPORTED, "device %d is of compute capability %d.%d; 8.9 is needed",
                       op.work.device->info.device, op.work.device->info.compute_major,
                       op.work.device->info.compute_minor);
    if (op.ok) {
        product.dtype = (int)dtype;
        product.operands = product.k > 0 ? (int)op.in[0]->dtype : 0;
        out = ignis__op_new(&op, &shape, dtype);
        if (op.ok && out->numel > 0)
            ignis__gemm_run(&op, &product, out, op.in[0], op.in[1], &epilogue);
    }
    return ignis__op_end(&op, out, NULL);
}
