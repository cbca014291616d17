/*  >>linalg.norm - ignis_matrix_norm, ignis_cond and ignis_matrix_exp: chains of other operations

    Their gradients are those of the operations that they consist of.
    Uses: matrix, solve, svd, and the room ops. */

#include "room.h"

/*  Checks that a tensor is a batch of matrices of f32 or f64; square ones if asked for. */
static bool ignis__linalg_accepts(const char *call, ignis_tensor a, bool square)
{
    ignis__op op;
    bool ok;
    if (!ignis__op_begin(&op, call, 1, &a))
        return false;
    ok = ignis__linalg_check(&op, 0, "a", square);
    ignis__op_leave(&op);
    return ok;
}

/*  Reduces a formula of a along the last dimension but `dim`, or, for 2, along the last two. */
static ignis_tensor ignis__linalg_reduce(ignis_reducer reducer, const char *formula, ignis_tensor a, int dim)
{
    ignis_reduce_desc desc = IGNIS__ZERO;
    desc.dims[0] = dim == 2 ? -1 : -1 - dim;
    desc.dims[1] = -2;
    desc.dim_count = dim == 2 ? 2 : 1;
    return ignis_map_reduce(reducer, formula, IGNIS_INPUTS(a), &desc);
}

static ignis_tensor ignis__matrix_norm(ignis_tensor a, ignis_norm_kind kind)
{
    switch (kind) {
    case IGNIS_NORM_FROBENIUS: return ignis__linalg_reduce(IGNIS_REDUCE_NORM, "a", a, 2);
    case IGNIS_NORM_ONE:
        return ignis__linalg_reduce(IGNIS_REDUCE_MAX, "a", ignis__linalg_reduce(IGNIS_REDUCE_SUM, "abs(a)", a, 1), 0);
    case IGNIS_NORM_INFINITY:
        return ignis__linalg_reduce(IGNIS_REDUCE_MAX, "a", ignis__linalg_reduce(IGNIS_REDUCE_SUM, "abs(a)", a, 0), 0);
    case IGNIS_NORM_SPECTRAL: return ignis__linalg_reduce(IGNIS_REDUCE_MAX, "a", ignis_svd(a, NULL, NULL), 0);
    default: return ignis__linalg_reduce(IGNIS_REDUCE_SUM, "a", ignis_svd(a, NULL, NULL), 0);
    }
}

static bool ignis__norm_kind_valid(const char *call, ignis_norm_kind kind)
{
    if (kind >= IGNIS_NORM_FROBENIUS && kind <= IGNIS_NORM_NUCLEAR)
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "kind is %d; expected an ignis_norm_kind", (int)kind);
}

IGNIS_API ignis_tensor ignis_matrix_norm(ignis_tensor a, ignis_norm_kind kind)
{
    static const char call[] = "ignis_matrix_norm";
    ignis_scope scope;
    if (!ignis__linalg_accepts(call, a, false) || !ignis__norm_kind_valid(call, kind))
        return ignis__no_tensor();
    scope = ignis_scope_begin();
    return scope.id ? ignis_scope_return(scope, ignis__matrix_norm(a, kind)) : ignis__no_tensor();
}

IGNIS_API ignis_tensor ignis_cond(ignis_tensor a, ignis_norm_kind kind)
{
    static const char call[] = "ignis_cond";
    ignis_tensor values, info, result;
    ignis_scope scope;
    if (!ignis__linalg_accepts(call, a, kind != IGNIS_NORM_SPECTRAL) || !ignis__norm_kind_valid(call, kind))
        return ignis__no_tensor();
    scope = ignis_scope_begin();
    if (!scope.id)
        return ignis__no_tensor();
    if (kind == IGNIS_NORM_SPECTRAL) {
        values = ignis_svd(a, NULL, NULL);
        result = ignis__tensor_formula("a/b", ignis__linalg_reduce(IGNIS_REDUCE_MAX, "a", values, 0),
                                       ignis__linalg_reduce(IGNIS_REDUCE_MIN, "a", values, 0));
    } else {
        result = ignis__tensor_formula("a*b", ignis__matrix_norm(a, kind),
                                       ignis__matrix_norm(ignis_inverse(a, &info), kind));
    }
    return ignis_scope_return(scope, result);
}

/*  Returns the approximant of degree 13 of exp(x), for x with a norm of 5.37 at most (Higham 2005, with coefficients
    divided by the first one). */
static ignis_tensor ignis__exp_pade(ignis_tensor x, ignis_tensor eye)
{
    ignis_tensor x2 = ignis_matmul(x, x), x4 = ignis_matmul(x2, x2), x6 = ignis_matmul(x2, x4), odd, even, info;
    odd = ignis_map("1.5440497506703088e-17*x6 + 2.529153491597966e-13*x4 + 6.306022705717595e-10*x2",
                    IGNIS_INPUTS(x6, x4, x2));
    odd = ignis_matmul(x6, odd);
    odd = ignis_map("odd + 5.175983436853002e-07*x6 + 0.00016304347826086958*x4 + 0.018333333333333333*x2 + 0.5*eye",
                    IGNIS_INPUTS(odd, x6, x4, x2, eye));
    odd = ignis_matmul(x, odd);
    even = ignis_map("2.8101705462199623e-15*x6 + 1.48377004840414e-11*x4 + 2.0431513566525008e-08*x2",
                     IGNIS_INPUTS(x6, x4, x2));
    even = ignis_matmul(x6, even);
    even = ignis_map("even + 1.0351966873706003e-05*x6 + 0.0019927536231884057*x4 + 0.12*x2 + eye",
                     IGNIS_INPUTS(even, x6, x4, x2, eye));
    return ignis_solve(ignis_sub(even, odd), ignis_add(even, odd), &info);
}

/*  Finds how often the matrices must be halved to have a norm of 5.37 at most. Waits. False, and reported, if that
    cannot be read. */
static bool ignis__exp_halvings(ignis_tensor a, int *count, double *scale)
{
    const uint64_t failures = ignis__failures();
    ignis_tensor norms;
    double size;
    if (ignis_no_grad_begin() != IGNIS_OK)
        return false;
    norms = ignis__matrix_norm(a, IGNIS_NORM_ONE);
    size = ignis_item(ignis_map_reduce(IGNIS_REDUCE_MAX, "norms", IGNIS_INPUTS(norms), NULL));
    (void)ignis_no_grad_end();
    *scale = 1;
    for (*count = 0; size > 5.371920351148152 && *count < 1000; ++*count) {
        size /= 2;
        *scale /= 2;
    }
    return ignis__failures() == failures;
}

IGNIS_API ignis_tensor ignis_matrix_exp(ignis_tensor a)
{
    static const char call[] = "ignis_matrix_exp";
    ignis_tensor_desc desc = IGNIS__ZERO;
    ignis_tensor_info info;
    ignis_tensor result = IGNIS__ZERO;
    ignis_scope scope;
    double scale;
    int halvings = 0;
    if (!ignis__linalg_accepts(call, a, true) || ignis_tensor_query(a, &info) != IGNIS_OK)
        return ignis__no_tensor();
    if (ignis_tensor_numel(a) == 0)
        return ignis_scale(a, 1);
    scope = ignis_scope_begin();
    if (!scope.id)
        return ignis__no_tensor();
    desc.dtype = info.dtype;
    desc.device = info.device ? info.device : IGNIS_DEVICE_0;
    if (ignis__exp_halvings(a, &halvings, &scale)) {
        int64_t n = info.shape.dim[info.shape.ndim - 1];
        result = ignis__exp_pade(ignis_scale(a, scale), ignis_tensor_eye(n, n, &desc));
    }
    for (; halvings > 0 && result.id; halvings--)
        result = ignis_matmul(result, result);
    return ignis_scope_return(scope, result);
}
