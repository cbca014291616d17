/* >>linalg - linear algebra: systems, factors, eigenvalues, singular values ---------------------------------------

   Matrices are [..., rows, columns] of f32 or f64; leading dimensions are a batch, and each matrix of it is
   computed alone. Results have gradients, unless it says otherwise. Matrices above 64 rows are computed by
   blocks, whose products follow ignis_desc.allow_tf32: leave it off for f32 here.

   A call with info fails if a matrix has no result, and names the first one: "a[3] is singular (pivot 2)".
   It waits for the device to know that. If info is not null it does not wait: *info becomes a tensor of i32
   with the leading dimensions ([1] for one matrix): 0, or the number of the first pivot that failed, from 1
   on. Results of matrices that failed then have NaN or infinities. Without waiting it can be captured.

   NaN in a matrix makes its result NaN; Cholesky fails then. */

/*  ignis_cholesky - the lower triangular L of a positive definite matrix: a = L L^T
    Only the lower triangle of a is read. The gradient is symmetric (Murray 2016).
    Shapes: a [..., n, n]; the result like a.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, ARGUMENT (a matrix is not positive definite, or has NaN; never written to), MEMORY,
    LIBRARY, COMPILE, CUDA; without info UNSUPPORTED (this thread captures a graph).
    Ownership: as ignis_tensor_from_host, also for *info.
    Threads: any. Streams: queued on the current stream, and waits for it if info is null. */
IGNIS_API ignis_tensor ignis_cholesky(ignis_tensor a, ignis_tensor *info);

/*  ignis_cholesky_solve - solve a x = b by the factor l of a = l l^T
    Shapes: l [..., n, n]; b [..., n, k], or vectors [..., n]; the result like b.
    Returns: the tensor, or no handle.
    Errors: those of ignis_solve_triangular.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_cholesky_solve(ignis_tensor l, ignis_tensor b);

typedef struct ignis_triangular_desc {
    bool upper;     /* the triangle of a that is read (the lower one) */
    bool transpose; /* solve a^T x = b */
    bool unit;      /* the diagonal of a counts as ones, and is not read */
} ignis_triangular_desc;

/*  ignis_solve_triangular - solve a x = b for a triangular a; desc may be null for all defaults
    A zero on the diagonal is not looked for: its x are infinite or NaN.
    Shapes: a [..., n, n]; b [..., n, k], or vectors [..., n]; the result like b.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_solve_triangular(ignis_tensor a, ignis_tensor b, const ignis_triangular_desc *desc);

/*  ignis_solve - solve a x = b by Gaussian elimination with partial pivoting; ignis_inverse - a^-1, for which to solve
    is quicker, and more exact
    Shapes: a [..., n, n]; b [..., n, k], or vectors [..., n]; the result like b, or like a.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (a matrix is singular: a pivot is exactly 0; never written
    to), MEMORY, LIBRARY, COMPILE, CUDA; without info UNSUPPORTED (this thread captures a graph).
    Ownership: as ignis_tensor_from_host, also for *info.
    Threads: any. Streams: queued on the current stream, and waits for it if info is null. */
IGNIS_API ignis_tensor ignis_solve(ignis_tensor a, ignis_tensor b, ignis_tensor *info);
IGNIS_API ignis_tensor ignis_inverse(ignis_tensor a, ignis_tensor *info);

/*  ignis_det - the determinant; ignis_logdet - the logarithm of its absolute value, which does not overflow, and
    in *sign, where sign is not null, its sign: 1, -1, or 0
    The determinant of a singular matrix is 0, its logarithm minus infinity, its gradient NaN.
    Shapes: a [..., n, n]; the results [...], [1] for one matrix.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host, also for *sign, which has no gradient.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_det(ignis_tensor a);
IGNIS_API ignis_tensor ignis_logdet(ignis_tensor a, ignis_tensor *sign);

/*  ignis_lu - LU factors with partial pivoting, both in one matrix: U on and above the diagonal, L below it, whose
    diagonal is 1
    *permutation becomes a tensor of i64: row permutation[i] of a is row i of L U. A singular matrix has factors, too.
    Shapes: a [..., m, n]; the result like a; *permutation [..., m]. The gradient needs m = n.
    Returns: the tensor, or no handle, and none in *permutation.
    Errors: FREED, SHAPE, DTYPE, ARGUMENT (permutation is null; never written to), UNSUPPORTED (a gradient of matrices
    that are not square), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host, for both.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_lu(ignis_tensor a, ignis_tensor *permutation);

/*  ignis_qr - a = q r: q has orthonormal columns, *r is upper triangular; by Householder reflections
    The diagonal of r may be negative.
    Shapes: a [..., m, n]; with k the smaller of m and n the result is [..., m, k], and *r [..., k, n]. The
    gradient needs m >= n and full rank (Walter and Lehmann 2012).
    Returns: the tensor, or no handle, and none in *r.
    Errors: FREED, SHAPE, DTYPE, ARGUMENT (r is null; never written to), UNSUPPORTED (a gradient of more
    columns than rows), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host, for both.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_qr(ignis_tensor a, ignis_tensor *r);

/*  ignis_lstsq - the x with the least norm of a x - b; if a has more columns than rows, the least x of those
    that solve a x = b
    By QR factors of a, or of its transpose, which must have full rank: an element of the diagonal of r that
    is max(m, n) rounding errors of the largest one, or less, counts as 0, and is the pivot that failed.
    Shapes: a [..., m, n]; b [..., m, k], or vectors [..., m]; the result [..., n, k] or [..., n].
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (a matrix has not full rank; never written to), MEMORY,
    LIBRARY, COMPILE, CUDA; without info UNSUPPORTED (this thread captures a graph).
    Ownership: as ignis_tensor_from_host, also for *info.
    Threads: any. Streams: queued on the current stream, and waits for it if info is null. */
IGNIS_API ignis_tensor ignis_lstsq(ignis_tensor a, ignis_tensor b, ignis_tensor *info);

/*  ignis_eigh - the eigenvalues of symmetric matrices, the smallest first, and in *vectors, where vectors is not
    null, eigenvectors: a v = v diag(values)
    By Jacobi's rotations. Only the lower triangle of a is read. Vectors are orthonormal, up to their signs, and
    up to rotations where values are equal: a loss must not depend on these. The gradient of the vectors divides
    by differences of values, and is infinite or NaN where two are equal; that of the values is finite.
    Shapes: a [..., n, n]; the result [..., n]; *vectors like a, a column each.
    Returns: the tensor, or no handle, and none in *vectors.
    Errors: FREED, SHAPE, DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host, for both.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_eigh(ignis_tensor a, ignis_tensor *vectors);

/*  ignis_svd - the singular values of matrices, the largest first, and singular vectors: a = u diag(values) vt
    u and vt may be null. By Jacobi's rotations of rows (Hestenes 1958). Vectors are orthonormal, also where
    values are 0. Signs, equal values, and gradients as of ignis_eigh; those of vectors also divide by values
    where a is not square.
    Shapes: a [..., m, n]; with k the smaller of m and n the result is [..., k], *u [..., m, k], *vt [..., k, n].
    Returns: the tensor, or no handle, and none in *u and *vt.
    Errors: FREED, SHAPE, DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host, for all.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_svd(ignis_tensor a, ignis_tensor *u, ignis_tensor *vt);

/*  Norms of matrices. */
typedef enum ignis_norm_kind {
    IGNIS_NORM_FROBENIUS = 0, /* the root of the sum of squares */
    IGNIS_NORM_ONE,           /* the largest sum of absolute values in a column */
    IGNIS_NORM_INFINITY,      /* the largest sum of absolute values in a row */
    IGNIS_NORM_SPECTRAL,      /* the largest singular value */
    IGNIS_NORM_NUCLEAR        /* the sum of singular values */
} ignis_norm_kind;

/*  ignis_matrix_norm - a norm of each matrix; ignis_cond - the condition number in a norm: |a| |a^-1|
    The spectral condition is that of the singular values, also of matrices that are not square. The condition
    of singular matrices is infinite or NaN. A norm of a matrix without elements is an error, but for Frobenius'.
    Shapes: a [..., m, n]; the result [...], [1] for one matrix.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, ARGUMENT (no such kind; never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_matrix_norm(ignis_tensor a, ignis_norm_kind kind);
IGNIS_API ignis_tensor ignis_cond(ignis_tensor a, ignis_norm_kind kind);

/*  ignis_matrix_exp - the exponential of matrices: I + a + a a/2 + a a a/6 + ...
    By scaling, a rational approximant of degree 13, and squaring (Higham 2005). All matrices are squared as often
    as the one with the largest norm needs, which the call waits for.
    Shapes: a [..., n, n]; the result like a.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, ARGUMENT (never written to), UNSUPPORTED (this thread captures a graph), MEMORY,
    LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API ignis_tensor ignis_matrix_exp(ignis_tensor a);
