/*  >>ops.transpose - ignis_transpose: exchanges two dimensions

    Tiles through shared memory; a view if the order of elements stays.
    Uses: operation; kernels/shape.cu. */

/*  [a, m, b, n, c] becomes [a, n, b, m, c]. */
typedef struct ignis__exchange {
    int64_t a, m, b, n, c;
} ignis__exchange;

static ignis__array *ignis__op_exchange(ignis__op *op, ignis__array *from, const ignis_shape *shape,
                                        const ignis__exchange *given)
{
    ignis__exchange e = *given;
    ignis__array *out = ignis__op_new(op, shape, from->dtype);
    ignis__address source, target;
    bool tiles = e.c == 1 && e.m >= 16 && e.n >= 16;
    int64_t edge = ignis__dtypes[from->dtype].size <= 4 ? 64 : 32, pack = ignis__pack_elements(from->dtype), blocks;
    void *params[] = {&target, &source, &e.a, &e.m, &e.b, &e.n, &e.c};
    ignis__record_builtin_for_all(IGNIS__BUILTIN_TRANSPOSE_RUNS, from->dtype);
    if (out && (e.m == 1 || e.n == 1) && (e.b == 1 || e.m == e.n)) { /* the order stays */
        ignis__op_copy(op, out, from);
        return out;
    }
    source = ignis__op_read(op, from);
    target = ignis__op_write(op, out);
    blocks = tiles ? e.a * e.b * ignis__ceil_div(e.m, edge) * ignis__ceil_div(e.n, edge)
                   : ignis__ceil_div(from->numel, 1024 * (e.c % pack == 0 ? pack : 1));
    if (from->numel > 0)
        ignis__op_launch_row(op, tiles ? IGNIS__BUILTIN_TRANSPOSE_TILES : IGNIS__BUILTIN_TRANSPOSE_RUNS, from->dtype,
                             ignis__clamp(blocks, 1, INT32_MAX), 256, params);
    return out;
}

typedef struct ignis__transpose_params {
    ignis__exchange back;
    ignis_shape shape; /* of the input */
} ignis__transpose_params;

static ignis_status ignis__transpose_backward(const ignis_backward_args *args)
{
    const ignis__transpose_params *p = (const ignis__transpose_params *)args->params;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_transpose", args))
        return ignis__failed();
    return ignis__op_finish_backward_one(&op, args, ignis__op_exchange(&op, op.in[0], &p->shape, &p->back));
}

IGNIS_API ignis_tensor ignis_transpose(ignis_tensor tensor, int dim0, int dim1)
{
    ignis__transpose_params p = IGNIS__ZERO;
    ignis__exchange e;
    ignis__op op;
    ignis__array *out = NULL;
    ignis_shape shape;
    int low, high;
    if (!ignis__op_begin(&op, "ignis_transpose", 1, &tensor))
        return ignis__no_tensor();
    if (ignis__op_dim(&op, &dim0, "dim0") && ignis__op_dim(&op, &dim1, "dim1")) {
        low = dim0 < dim1 ? dim0 : dim1;
        high = dim0 < dim1 ? dim1 : dim0;
        p.shape = shape = op.in[0]->shape;
        shape.dim[low] = p.shape.dim[high];
        shape.dim[high] = p.shape.dim[low];
        e.a = ignis__shape_product(&p.shape, 0, low);
        e.m = p.shape.dim[low];
        e.b = low < high ? ignis__shape_product(&p.shape, low + 1, high) : 1;
        e.n = low < high ? p.shape.dim[high] : 1;
        e.c = ignis__shape_product(&p.shape, high + 1, p.shape.ndim);
        p.back = e;
        p.back.m = e.n;
        p.back.n = e.m;
        out = ignis__op_exchange(&op, op.in[0], &shape, &e);
    }
    return ignis__op_end_recorded(&op, out, "transpose", ignis__transpose_backward, &p, sizeof p);
}
