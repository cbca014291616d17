/*  >>linalg.jacobi - rotations of pairs of rows: what ignis_eigh and ignis_svd share

    Matrices of up to 64 rows run in one launch, a block each. Larger ones take one or two launches a round, in a fixed
    number of sweeps; after a sweep without a rotation, which the device notices itself, launches do nothing.
    Uses: matrix; kernels/linalg_jacobi.cu. */

#include "room.h"

/*  Makes the copies that are rotated: work [rows, columns], and j [rows, rows], the product of the rotations.
    symmetric: from is [n, n], and work has a row and a column of zeros more if n is odd. */
IGNIS__PRIVATE ignis__jacobi ignis__jacobi_begin(ignis__op *op, ignis__matrix from, bool symmetric)
{
    ignis__jacobi run = IGNIS__ZERO;
    int n = (int)from.rows, rows = symmetric ? n + (n & 1) : n, columns = symmetric ? rows : (int)from.columns;
    int is_symmetric = symmetric;
    ignis__array *work = ignis__op_new_row(op, from.count * rows * columns, from.dtype);
    ignis__array *j = ignis__op_new_row(op, from.count * rows * rows, from.dtype);
    ignis__address of_work = ignis__op_write(op, work), of_j = ignis__op_write(op, j);
    void *params[] = {&run.work, &run.j, &run.scales, &from, &rows, &columns, &n, &is_symmetric};
    run.scales = ignis__op_write(op, ignis__op_new_row(op, 2 * from.count, from.dtype));
    run.rotated = ignis__op_new_row(op, from.count * IGNIS__LINALG_SWEEPS, IGNIS_I32);
    ignis__op_zero(op, run.rotated);
    run.n = n;
    if (!op->ok)
        return run;
    run.work = ignis__matrix_of(work, of_work, rows, columns);
    run.j = ignis__matrix_of(j, of_j, rows, rows);
    ignis__op_launch_row(op, IGNIS__BUILTIN(LINALG_JACOBI_BEGIN), from.dtype, from.count, IGNIS__LINALG_THREADS,
                         params);
    return run;
}

/*  Returns whether a block has a matrix with this much in shared memory; *shared becomes the bytes, 0 if they are too
    many. */
static bool ignis__jacobi_is_small(const ignis__op *op, const ignis__jacobi *run, int64_t elements, size_t *shared)
{
    int64_t bytes = elements * ignis__dtypes[run->work.dtype].size;
    *shared = bytes <= op->work.device->info.shared_per_block - 4096 ? (size_t)bytes : 0;
    return run->n <= IGNIS__LINALG_SMALL;
}

/*  Brings the symmetric work to its diagonal. */
IGNIS__PRIVATE void ignis__jacobi_eigh(ignis__op *op, ignis__jacobi *run)
{
    int n = (int)run->work.rows, round, sweep, sweeps = IGNIS__LINALG_SWEEPS, in_shared;
    ignis_dtype dtype = run->work.dtype;
    ignis__address rotated = ignis__op_write(op, run->rotated), angles;
    size_t shared;
    void *block_params[] = {&run->work, &run->j, &run->scales, &n, &in_shared};
    void *find[] = {&run->work, &angles, &rotated, &run->scales, &n, &round, &sweep, &sweeps};
    void *rotate[] = {&run->work, &run->j, &angles, &rotated, &n, &round, &sweep, &sweeps};
    if (!op->ok)
        return;
    if (ignis__jacobi_is_small(op, run, (int64_t)2 * n * (n | 1), &shared)) {
        in_shared = shared > 0;
        ignis__op_launch(op, IGNIS__BUILTIN(LINALG_EIGH), dtype, NULL,
                         ignis__launch_row(run->work.count,
                                           n <= 8    ? 32
                                           : n <= 16 ? 64
                                                     : IGNIS__LINALG_TEAM_THREADS,
                                           shared),
                         block_params);
        return;
    }
    angles = ignis__op_write(op, ignis__op_new_row(op, run->work.count * n, dtype));
    for (sweep = 0; sweep < sweeps; sweep++)
        for (round = 0; round < n - 1 && op->ok; round++) {
            ignis__op_launch(op, IGNIS__BUILTIN(LINALG_EIGH_ANGLES), dtype, NULL,
                             ignis__launch_grid(ignis__ceil_div(n / 2, IGNIS__LINALG_TEAM_THREADS), run->work.count, 1,
                                                IGNIS__LINALG_TEAM_THREADS, 1, 0),
                             find);
            ignis__op_launch(
                op, IGNIS__BUILTIN(LINALG_EIGH_ROTATE), dtype, NULL,
                ignis__launch_grid(
                    ignis__clamp(ignis__ceil_div((int64_t)n / 2 * (n / 2 + n), IGNIS__LINALG_TEAM_THREADS), 1, 65535),
                    run->work.count, 1, IGNIS__LINALG_TEAM_THREADS, 1, 0),
                rotate);
        }
}

/*  Makes the rows of work orthogonal. */
IGNIS__PRIVATE void ignis__jacobi_svd(ignis__op *op, ignis__jacobi *run)
{
    int n = run->n, length = (int)run->work.columns, round, sweep, sweeps = IGNIS__LINALG_SWEEPS, in_shared;
    ignis_dtype dtype = run->work.dtype;
    ignis__address rotated = ignis__op_write(op, run->rotated);
    size_t shared;
    void *block_params[] = {&run->work, &run->j, &run->scales, &n, &length, &in_shared};
    void *rotate[] = {&run->work, &run->j, &rotated, &run->scales, &n, &length, &round, &sweep, &sweeps};
    if (!op->ok)
        return;
    if (ignis__jacobi_is_small(op, run, (int64_t)n * (length | 1) + (int64_t)n * n, &shared)) {
        in_shared = shared > 0;
        ignis__op_launch(op, IGNIS__BUILTIN(LINALG_SVD), dtype, NULL,
                         ignis__launch_row(run->work.count,
                                           n <= 2   ? 32
                                           : n <= 8 ? 64
                                                    : IGNIS__LINALG_TEAM_THREADS,
                                           shared),
                         block_params);
        return;
    }
    for (sweep = 0; sweep < sweeps; sweep++)
        for (round = 0; round < n + (n & 1) - 1 && op->ok; round++)
            ignis__op_launch(
                op, IGNIS__BUILTIN(LINALG_SVD_ROTATE), dtype, NULL,
                ignis__launch_grid(ignis__ceil_div(n, 2), run->work.count, 1, IGNIS__LINALG_TEAM_THREADS, 1, 0),
                rotate);
}

/*  Writes the values in order, and finds their places. length: of the rows whose norms they are; 0: the diagonal. */
IGNIS__PRIVATE void ignis__jacobi_values(ignis__op *op, ignis__jacobi *run, ignis__array *values, int length)
{
    ignis__address to = ignis__op_write(op, values), unsorted;
    void *params[] = {&to, &run->places, &unsorted, &run->work, &run->scales, &run->n, &length};
    unsorted = ignis__op_write(op, ignis__op_new_row(op, values ? values->numel : 0, run->work.dtype));
    run->places = ignis__op_write(op, ignis__op_new_row(op, values ? values->numel : 0, IGNIS_I32));
    ignis__op_launch_row(op, IGNIS__BUILTIN(LINALG_JACOBI_VALUES), run->work.dtype, run->work.count,
                         IGNIS__LINALG_THREADS, params);
}

/*  Copies the first rows of `columns` elements of from to their places in to. */
IGNIS__PRIVATE void ignis__jacobi_rows(ignis__op *op, ignis__jacobi *run, ignis__matrix to, ignis__matrix from,
                                       int columns)
{
    int64_t count = run->work.count;
    void *params[] = {&to, &from, &run->places, &run->scales, &run->n, &columns, &count};
    ignis__op_launch_row(op, IGNIS__BUILTIN(LINALG_JACOBI_ROWS), run->work.dtype,
                         ignis__clamp(ignis__ceil_div(count * run->n * columns, 1024), 0, 65535), IGNIS__LINALG_THREADS,
                         params);
}
