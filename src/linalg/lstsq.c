/*  >>linalg.lstsq - ignis_lstsq: least squares by QR factors

    A matrix of at least as many rows as columns is factored, else its transpose, for the solution of least norm. The
    gradient is that of the factors, the product and the triangular system.
    Uses: status, qr; kernels/linalg_qr.cu. */

#include "room.h"

/*  Returns for each matrix of r the number of the first element of its diagonal that is 0 beside the others, up to
    rounding. */
static ignis_tensor ignis__lstsq_rank(const char *call, ignis_tensor r, int64_t sides)
{
    ignis__op op;
    ignis__array *numbers;
    ignis__matrix matrix;
    ignis__address to;
    ignis_tensor result;
    double tolerance;
    int n;
    void *params[] = {&to, &matrix, &n, &tolerance, &matrix.count};
    if (!ignis__op_begin(&op, call, 1, &r))
        return ignis__no_tensor();
    numbers = ignis__linalg_info(&op, &op.in[0]->shape);
    to = ignis__op_write(&op, numbers);
    matrix = ignis__matrix_read(&op, op.in[0]);
    tolerance = (double)sides * (op.in[0]->dtype == IGNIS_F64 ? 2.220446049250313e-16 : 1.1920928955078125e-07);
    n = (int)matrix.rows;
    ignis__op_launch_row(&op, IGNIS__BUILTIN(LINALG_RANK), op.in[0]->dtype,
                         ignis__clamp(ignis__ceil_div(matrix.count, IGNIS__LINALG_THREADS), 0, 65535),
                         IGNIS__LINALG_THREADS, params);
    result = ignis__op_result(&op, numbers, 0, NULL, NULL, NULL);
    ignis__op_leave(&op);
    return result;
}

/*  Returns the solution for right sides of columns; *r is the triangle. */
static ignis_tensor ignis__lstsq_solve(ignis_tensor a, ignis_tensor b, bool tall, ignis_tensor *r)
{
    ignis_triangular_desc desc = IGNIS__ZERO;
    ignis_tensor q = ignis_qr(tall ? a : ignis__tensor_transposed(a), r);
    desc.upper = true;
    desc.transpose = !tall;
    return tall ? ignis_solve_triangular(*r, ignis_matmul(ignis__tensor_transposed(q), b), &desc)
                : ignis_matmul(q, ignis_solve_triangular(*r, b, &desc));
}

/*  Checks the arguments. False, and reported, if they do not fit. */
static bool ignis__lstsq_check(const char *call, ignis_tensor a, ignis_tensor b, bool *tall, bool *vectors,
                               int64_t *sides)
{
    ignis_tensor inputs[] = {a, b};
    ignis__op op;
    bool ok;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return false;
    if (ignis__linalg_check(&op, 0, "a", false)) {
        const ignis_shape *shape = &op.in[0]->shape;
        int64_t m = shape->dim[shape->ndim - 2], n = shape->dim[shape->ndim - 1];
        ignis__linalg_check_right(&op, 1, "b", m);
        *tall = m >= n;
        *sides = m < n ? n : m;
        *vectors = op.in[1]->shape.ndim < shape->ndim;
    }
    ok = op.ok;
    ignis__op_leave(&op);
    return ok;
}

IGNIS_API ignis_tensor ignis_lstsq(ignis_tensor a, ignis_tensor b, ignis_tensor *info)
{
    static const char call[] = "ignis_lstsq";
    ignis_tensor x, r, numbers;
    ignis__tensor *held = NULL;
    ignis__array *array = NULL;
    ignis_scope scope;
    bool tall = false, vectors = false;
    int64_t sides = 0;
    if (info)
        *info = ignis__no_tensor();
    if (!ignis__lstsq_check(call, a, b, &tall, &vectors, &sides))
        return ignis__no_tensor();
    scope = ignis_scope_begin();
    if (!scope.id)
        return ignis__no_tensor();
    x = ignis__lstsq_solve(a, vectors ? ignis__tensor_columns(b, ignis_tensor_shape(a).ndim) : b, tall, &r);
    if (x.id && vectors) {
        ignis_shape shape = ignis_tensor_shape(x);
        shape.ndim--;
        x = ignis_reshape(x, shape);
    }
    numbers = x.id ? ignis__lstsq_rank(call, r, sides) : ignis__no_tensor();
    if (numbers.id && (held = ignis__tensor_hold(call, numbers)) != NULL) {
        array = ignis__tensor_array(call, held); /* outlives the scope */
        ignis__tensor_drop(call, held);
    }
    x = ignis_scope_return(scope, x);
    numbers = array ? ignis__tensor_over(call, array, false) : ignis__no_tensor();
    if (array)
        ignis__array_drop(call, array);
    return ignis__linalg_end(call, "has not full rank", x, numbers, info);
}
