/*  >>ops.jacobian - ignis_derivative, ignis_hvp and ignis_jacobian: gradients of gradients

    A product with second derivatives is the gradient of a gradient times a vector. A row of a Jacobian is the gradient
    of one element of the output.
    Uses: ignis_grad and public functions of other parts. */

#include "room.h"

/*  Makes zeros of the dtype and device of a tensor. shape: NULL for its own. */
static ignis_tensor ignis__zeros_like(ignis_tensor like, const ignis_shape *shape, bool requires_grad)
{
    ignis_tensor_desc desc = IGNIS__ZERO;
    ignis_tensor_info info;
    if (ignis_tensor_query(like, &info) != IGNIS_OK)
        return ignis__no_tensor();
    desc.dtype = info.dtype;
    desc.device = info.device == 0 ? IGNIS_DEVICE_0 : info.device;
    desc.requires_grad = requires_grad;
    return ignis_tensor_zeros(shape ? *shape : info.shape, &desc);
}

IGNIS_API ignis_tensor ignis_derivative(ignis_tensor output, ignis_tensor input)
{
    static const char call[] = "ignis_derivative";
    ignis_tensor_desc like = IGNIS__ZERO;
    ignis_grad_desc desc = IGNIS__ZERO;
    ignis_tensor seed, result = IGNIS__ZERO;
    ignis__outer_call outer;
    ignis_tensor_info info;
    if (!ignis__enter(call))
        return result;
    ignis__outer_call_begin(&outer, call, NULL);
    if (ignis_tensor_query(output, &info) == IGNIS_OK) {
        like.dtype = info.dtype;
        like.device = info.device == 0 ? IGNIS_DEVICE_0 : info.device;
        seed = ignis_tensor_ones(info.shape, &like);
        desc.seeds = &seed;
        desc.create_graph = true;
        if (seed.id)
            (void)ignis_grad(&output, 1, &input, 1, &result, &desc);
        ignis__tensor_discard(call, seed);
    }
    ignis__outer_call_end(&outer);
    return result;
}

/*  Fills the gradients of gradients; those that have no handle yet become zeros. */
static bool ignis__hvp_products(const ignis_tensor *inputs, int count, const ignis_tensor *vectors,
                                const ignis_tensor *grads, ignis_tensor *work, ignis_tensor *products)
{
    ignis_grad_desc desc = IGNIS__ZERO;
    ignis_tensor_info info;
    int i, used = 0;
    bool ok = true;
    for (i = 0; i < count; i++) {
        if (!grads[i].id || ignis_tensor_query(grads[i], &info) != IGNIS_OK || !info.requires_grad)
            continue;
        work[used] = grads[i];
        work[count + used++] = vectors[i];
    }
    desc.seeds = work + count;
    desc.allow_unused = true;
    ok = used == 0 || ignis_grad(work, used, inputs, count, products, &desc) == IGNIS_OK;
    for (i = 0; ok && i < count; i++)
        if (!products[i].id)
            ok = (products[i] = ignis__zeros_like(inputs[i], NULL, false)).id != 0;
    return ok;
}

IGNIS_API ignis_status ignis_hvp(ignis_tensor output, const ignis_tensor *inputs, int count,
                                 const ignis_tensor *vectors, ignis_tensor *products)
{
    static const char call[] = "ignis_hvp";
    ignis_grad_desc desc = IGNIS__ZERO;
    ignis__outer_call outer;
    ignis_tensor *grads;
    bool ok;
    int i;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "inputs", inputs) ||
        !ignis__check_not_null(call, "vectors", vectors) || !ignis__check_not_null(call, "products", products))
        return ignis__failed();
    if (count < 1 || count > INT_MAX / 32)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d; expected 1 or more", count);
    grads = (ignis_tensor *)ignis__alloc_for(call, 3 * sizeof *grads * (size_t)count);
    if (!grads)
        return ignis__failed();
    memset(products, 0, sizeof *products * (size_t)count);
    ignis__outer_call_begin(&outer, call, NULL);
    desc.create_graph = desc.allow_unused = true;
    ok = ignis_grad(&output, 1, inputs, count, grads, &desc) == IGNIS_OK;
    ok = ok && ignis__hvp_products(inputs, count, vectors, grads, grads + count, products);
    for (i = 0; i < count; i++) {
        ignis__tensor_discard(call, grads[i]);
        if (!ok) {
            ignis__tensor_discard(call, products[i]);
            products[i].id = 0;
        }
    }
    ignis__outer_call_end(&outer);
    ignis__free(grads);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Fills the rows of a matrix: row i is the gradient of element i of `of` by `by`. */
static bool ignis__jacobian_rows(const char *call, ignis_tensor of, ignis_tensor by, ignis_tensor matrix)
{
    const int64_t rows = ignis_tensor_numel(of);
    ignis_grad_desc desc = IGNIS__ZERO;
    ignis_tensor_info info;
    double *unit = rows > 0 ? (double *)ignis__alloc_for(call, sizeof *unit * (size_t)rows) : NULL;
    bool ok = rows == 0 || (unit && ignis_tensor_query(of, &info) == IGNIS_OK);
    int64_t i;
    for (i = 0; ok && i < rows; i++) {
        ignis_tensor seed = ignis__zeros_like(of, NULL, false), row = ignis__no_tensor(), flat = row;
        unit[i] = 1;
        ok = seed.id && ignis_array_from_host(ignis_tensor_data(seed), unit, IGNIS_F64, rows) == IGNIS_OK;
        unit[i] = 0;
        desc.seeds = &seed;
        desc.retain_graph = desc.allow_unused = true;
        ok = ok && ignis_grad(&of, 1, &by, 1, &row, &desc) == IGNIS_OK;
        if (ok && row.id) {
            flat = ignis_reshape(row, IGNIS_SHAPE(1, -1));
            ok = flat.id && ignis_array_write_rows(ignis_tensor_data(matrix), ignis_tensor_data(flat), i) == IGNIS_OK;
        }
        ignis__tensor_discard(call, seed);
        ignis__tensor_discard(call, row);
        ignis__tensor_discard(call, flat);
    }
    ignis__free(unit);
    return ok;
}

/*  Returns the matrix of all derivatives. No handle after a failure. */
static ignis_tensor ignis__jacobian(const char *call, ignis_tensor output, ignis_tensor input)
{
    const int64_t rows = ignis_tensor_numel(output), columns = rows < 0 ? rows : ignis_tensor_numel(input);
    const bool by_columns = columns < rows;
    ignis_tensor matrix, seed = IGNIS__ZERO, grad = IGNIS__ZERO, result;
    ignis_grad_desc desc = IGNIS__ZERO;
    ignis_shape shape;
    bool ok;
    if (columns < 0)
        return ignis__no_tensor();
    shape = by_columns ? IGNIS_SHAPE(columns, rows) : IGNIS_SHAPE(rows, columns);
    matrix = ignis__zeros_like(output, &shape, false);
    ok = matrix.id != 0;
    if (ok && by_columns) { /* the gradient is linear in its seed: its derivatives by that are columns */
        seed = ignis__zeros_like(output, NULL, true);
        desc.seeds = &seed;
        desc.create_graph = true;
        ok = seed.id && ignis_grad(&output, 1, &input, 1, &grad, &desc) == IGNIS_OK;
        ok = ok && ignis__jacobian_rows(call, grad, seed, matrix);
    } else if (ok) {
        ok = ignis__jacobian_rows(call, output, input, matrix);
    }
    ignis__tensor_discard(call, grad);
    ignis__tensor_discard(call, seed);
    result = ok && !by_columns ? matrix : ok ? ignis_transpose(matrix, 0, 1) : ignis__no_tensor();
    if (result.id != matrix.id)
        ignis__tensor_discard(call, matrix);
    return result;
}

IGNIS_API ignis_tensor ignis_jacobian(ignis_tensor output, ignis_tensor input)
{
    static const char call[] = "ignis_jacobian";
    ignis__outer_call outer;
    ignis_tensor result;
    if (!ignis__enter(call))
        return ignis__no_tensor();
    ignis__outer_call_begin(&outer, call, NULL);
    result = ignis__jacobian(call, output, input);
    ignis__outer_call_end(&outer);
    return result;
}
