/* ===============================================================================================================
   >>linalg - Cholesky, LU, QR, systems, determinants, eigenvalues, singular values

   An operation works on views of matrices in device memory: addresses with strides. Matrices of up to 64 rows are
   factored by a team of threads in shared memory, larger ones by blocks: kernels factor the blocks of the diagonal,
   products of the room ops update the rest. Gradients are computed by operations on tensors.
   Uses the rooms kernel, tensor and ops.
   =============================================================================================================== */

#include "room.h"

/*  While programs are recorded: requests the copies and products that larger matrices need. */
IGNIS__COLD static void ignis__linalg_request(ignis_dtype dtype)
{
    static const ignis__epilogue nothing = IGNIS__ZERO;
    ignis__gemm gemm = IGNIS__ZERO;
    gemm.dtype = gemm.operands = dtype;
    gemm.params.m = gemm.params.n = gemm.params.k = gemm.params.row_a = gemm.params.row_b = 256;
    gemm.params.batch = 1;
    ignis__record_builtin_for_all(IGNIS__BUILTIN(LINALG_COPY), dtype);
    ignis__gemm_request(dtype, &gemm, &nothing);
}

/*  Checks that an input is a batch of matrices of f32 or f64. */
IGNIS__PRIVATE bool ignis__linalg_check(ignis__op *op, int input, const char *name, bool square)
{
    const ignis__array *array = op->in[input];
    const ignis_shape *shape = &array->shape;
    if (array->dtype != IGNIS_F32 && array->dtype != IGNIS_F64)
        return ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "%s is %s; expected f32 or f64", name,
                              ignis__dtypes[array->dtype].name);
    if (shape->ndim < 2 || (square && shape->dim[shape->ndim - 1] != shape->dim[shape->ndim - 2]))
        return ignis__op_fail(op, IGNIS_DIAG_MATRIX_SHAPE, "%s is %s; expected %s", name,
                              ignis__shape_write(shape).text,
                              square ? "square matrices [..., n, n]" : "matrices [..., m, n]");
    if (shape->dim[shape->ndim - 1] > INT32_MAX || shape->dim[shape->ndim - 2] > INT32_MAX)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "%s is %s; sides of 2^31 and more are not supported", name,
                              ignis__shape_write(shape).text);
    ignis__linalg_request(array->dtype);
    return ignis__op_same_dtype(op, input, name);
}

/*  Checks a right side for the first input: [..., rows, k], or [..., rows] for one column. */
IGNIS__PRIVATE bool ignis__linalg_check_right(ignis__op *op, int input, const char *name, int64_t rows)
{
    const ignis_shape *a = &op->in[0]->shape, *b = &op->in[input]->shape;
    int leading = a->ndim - 2;
    bool fits = (b->ndim == leading + 1 || b->ndim == leading + 2) && b->dim[leading] == rows &&
                ignis__shape_product(b, 0, leading) == ignis__shape_product(a, 0, leading);
    int i;
    for (i = 0; fits && i < leading; i++)
        fits = a->dim[i] == b->dim[i];
    if (!ignis__op_same_dtype(op, input, name))
        return false;
    if (!fits)
        return ignis__op_fail(op, IGNIS_DIAG_MATRIX_SHAPE,
                              "%s is %s; expected the leading dimensions of the matrices %s, and %lld rows", name,
                              ignis__shape_write(b).text, ignis__shape_write(a).text, (long long)rows);
    return true;
}

/*  Returns the leading dimensions of a batch of matrices; [1] if there are none. */
IGNIS__PRIVATE ignis_shape ignis__linalg_leading(const ignis_shape *shape)
{
    ignis_shape leading = *shape;
    leading.ndim -= 2;
    return leading.ndim ? leading : IGNIS_SHAPE(1);
}

/*  Returns the shape of a batch with matrices of another size. */
IGNIS__PRIVATE ignis_shape ignis__linalg_shape(const ignis_shape *shape, int64_t rows, int64_t columns)
{
    ignis_shape result = *shape;
    result.dim[result.ndim - 2] = rows;
    result.dim[result.ndim - 1] = columns;
    return result;
}

/*  Returns the view of an array's contiguous matrices. */
IGNIS__PRIVATE ignis__matrix ignis__matrix_of(ignis__array *array, ignis__address at, int64_t rows, int64_t columns)
{
    ignis__matrix m = IGNIS__ZERO;
    m.view.at = at;
    m.view.row = columns;
    m.view.column = 1;
    m.view.batch = rows * columns;
    m.rows = rows;
    m.columns = columns;
    m.count = m.view.batch ? array->numel / m.view.batch : 0;
    m.dtype = array->dtype;
    return m;
}

static ignis__matrix ignis__matrix_of_shape(ignis__array *array, ignis__address at)
{
    const ignis_shape *shape = &array->shape;
    return ignis__matrix_of(array, at, shape->dim[shape->ndim - 2], shape->dim[shape->ndim - 1]);
}

/*  Return views of all matrices of an array [..., rows, columns]; without elements after a failure. */
IGNIS__PRIVATE ignis__matrix ignis__matrix_read(ignis__op *op, ignis__array *array)
{
    ignis__matrix none = IGNIS__ZERO;
    ignis__address at = ignis__op_read(op, array);
    return op->ok ? ignis__matrix_of_shape(array, at) : none;
}

IGNIS__PRIVATE ignis__matrix ignis__matrix_write(ignis__op *op, ignis__array *array)
{
    ignis__matrix none = IGNIS__ZERO;
    ignis__address at = ignis__op_write(op, array);
    return op->ok ? ignis__matrix_of_shape(array, at) : none;
}

/*  Returns the part of each matrix that begins at (i, j). */
IGNIS__PRIVATE ignis__matrix ignis__matrix_block(ignis__matrix m, int64_t i, int64_t j, int64_t rows, int64_t columns)
{
    m.view.at += (uint64_t)((i * m.view.row + j * m.view.column) * ignis__dtypes[m.dtype].size);
    m.rows = rows;
    m.columns = columns;
    return m;
}

IGNIS__PRIVATE ignis__matrix ignis__matrix_transpose(ignis__matrix m)
{
    ignis__matrix t = m;
    t.view.row = m.view.column;
    t.view.column = m.view.row;
    t.rows = m.columns;
    t.columns = m.rows;
    return t;
}

/*  Returns the view with its rows, and its columns if asked for, from the last one to the first. */
IGNIS__PRIVATE ignis__matrix ignis__matrix_reverse(ignis__matrix m, bool columns)
{
    if (m.rows == 0 || m.columns == 0)
        return m;
    m = ignis__matrix_block(m, m.rows - 1, columns ? m.columns - 1 : 0, m.rows, m.columns);
    m.view.row = -m.view.row;
    m.view.column = columns ? -m.view.column : m.view.column;
    return m;
}

static void ignis__matrix_launch_copy(ignis__op *op, ignis__matrix to, ignis__matrix from, int64_t low, int64_t high,
                                      int subtract)
{
    int64_t blocks = ignis__clamp(ignis__ceil_div(to.rows * to.columns * to.count, 1024), 0, 65535);
    void *params[] = {&to, &from, &to.rows, &to.columns, &to.count, &low, &high, &subtract};
    ignis__op_launch_row(op, IGNIS__BUILTIN(LINALG_COPY), to.dtype, blocks, IGNIS__LINALG_THREADS, params);
}

/*  Copies the band low <= column - row <= high, and writes 0 outside of it. */
IGNIS__PRIVATE void ignis__matrix_copy(ignis__op *op, ignis__matrix to, ignis__matrix from, int64_t low, int64_t high)
{
    ignis__matrix_launch_copy(op, to, from, low, high, 0);
}

/*  Copies a view to an array that a product reads. */
static ignis__array *ignis__matrix_pack(ignis__op *op, ignis__matrix m)
{
    ignis__array *array = ignis__op_new_row(op, m.count * m.rows * m.columns, m.dtype);
    ignis__address at = ignis__op_write(op, array);
    if (array)
        ignis__matrix_copy(op, ignis__matrix_of(array, at, m.rows, m.columns), m, INT64_MIN, INT64_MAX);
    return array;
}

/*  Returns a b in new memory. */
IGNIS__PRIVATE ignis__matrix ignis__matrix_product(ignis__op *op, ignis__matrix a, ignis__matrix b)
{
    ignis__product product = ignis__product_of(a.dtype, a.rows, b.columns, a.columns, 0);
    ignis__array *result = ignis__op_new_row(op, a.count * a.rows * b.columns, a.dtype);
    ignis__address at = ignis__op_write(op, result);
    int made = op->made_count;
    ignis__array *left = ignis__matrix_pack(op, a), *right = ignis__matrix_pack(op, b);
    product.batch = a.count;
    if (op->ok)
        (void)ignis__matmul_run(op, &product, result, left, right, NULL);
    ignis__op_free_made(op, made);
    return op->ok ? ignis__matrix_of(result, at, a.rows, b.columns) : a;
}

/*  c -= a b. The operands are copied first, as products read contiguous matrices. */
IGNIS__PRIVATE void ignis__matrix_subtract_product(ignis__op *op, ignis__matrix c, ignis__matrix a, ignis__matrix b)
{
    ignis__matrix product;
    int made = op->made_count;
    if (!op->ok || c.rows * c.columns * c.count == 0 || a.columns == 0)
        return;
    product = ignis__matrix_product(op, a, b);
    ignis__matrix_launch_copy(op, c, product, INT64_MIN, INT64_MAX, 1);
    ignis__op_free_made(op, made);
}

/*  Writes ones on the diagonal, and zeros elsewhere: a view of one element, inside a band of one diagonal. */
IGNIS__PRIVATE void ignis__matrix_identity(ignis__op *op, ignis__matrix m)
{
    ignis__array *one = ignis__op_new_row(op, 1, m.dtype);
    ignis__matrix ones = m;
    ignis__op_fill(op, one, 1);
    ones.view.at = ignis__op_read(op, one);
    ones.view.row = ones.view.column = ones.view.batch = 0;
    ignis__matrix_copy(op, m, ones, 0, 0);
}

/*  Plans teams of `lanes` threads, each with `elements` elements in shared memory. A team of up to 32 shares its warp
    with others, and a block has several warps if there is enough shared memory. */
IGNIS__PRIVATE ignis__teams ignis__teams_of(const ignis__matrix *m, int64_t matrices, int lanes, int64_t elements)
{
    int64_t bytes = (elements * ignis__dtypes[m->dtype].size + 7) / 8 * 8, fit;
    ignis__teams teams;
    while (lanes < 32 && 32 / lanes * bytes > IGNIS__LINALG_SHARED)
        lanes *= 2;
    teams.lanes = lanes;
    teams.threads = lanes > 32 ? (unsigned)lanes : (unsigned)IGNIS__LINALG_TEAM_THREADS;
    for (fit = teams.threads / (unsigned)lanes; fit * bytes > IGNIS__LINALG_SHARED && teams.threads > 32 && lanes <= 32;
         fit = teams.threads / (unsigned)lanes)
        teams.threads /= 2;
    teams.blocks = ignis__ceil_div(matrices, fit);
    teams.shared = (size_t)(fit * bytes);
    return teams;
}

/*  Returns the view of a right side of the matrices a: [..., n, k], or vectors [..., n]. */
IGNIS__PRIVATE ignis__matrix ignis__matrix_right(const ignis__matrix *a, ignis__array *b, ignis__address at)
{
    int64_t elements = a->rows * a->count;
    ignis__matrix m = ignis__matrix_of(b, at, a->rows, elements ? b->numel / elements : 0);
    m.count = a->count;
    return m;
}

/*  Returns the first part of n, a multiple of `unit`, for a division into halves. */
IGNIS__PRIVATE int64_t ignis__matrix_half(int64_t n, int64_t unit)
{
    return ignis__ceil_div(ignis__ceil_div(n, 2), unit) * unit;
}
