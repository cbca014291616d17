/*  linalg - linear algebra of batches of matrices: factors, systems, eigenvalues, singular values. */
#pragma once

#include "../base/room.h"
#include "../device/room.h"
#include "../array/room.h"
#include "../kernel/room.h"
#include "../formula/room.h"
#include "../tensor/room.h"
#include "../ops/room.h"
#include "../ops/matmul/room.h"

#include "../shared/linalg.h"

#define IGNIS__LINALG_PANEL 16  /* columns that a block factors at a time */
#define IGNIS__LINALG_SWEEPS 15 /* of rotations, of matrices that are not small */
#define IGNIS__LINALG_SHARED 49152

/*  A view, which kernels get by its address, and its sizes. */
typedef struct ignis__matrix {
    ignis__matrix_view view; /* first */
    int64_t rows, columns, count;
    ignis_dtype dtype;
} ignis__matrix;

/*  How many teams of threads a block has, and its shared memory. */
typedef struct ignis__teams {
    int lanes; /* threads of a team */
    unsigned threads;
    int64_t blocks;
    size_t shared;
} ignis__teams;

/*  LU factors: P a = L U in one array, and the exchanges of rows. */
typedef struct ignis__lu {
    ignis__matrix matrix;
    ignis__address pivots, info;
    int64_t pivot_batch;
} ignis__lu;

/*  Rotations of the rows of work, or of its rows and columns, and their product j. */
typedef struct ignis__jacobi {
    ignis__matrix work, j;
    ignis__address scales, places; /* as in kernels/linalg_jacobi.cu */
    ignis__array *rotated;
    int n; /* rows that have values */
} ignis__jacobi;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* matrix.c */
IGNIS__PRIVATE bool ignis__linalg_check(ignis__op *op, int input, const char *name, bool square);
IGNIS__PRIVATE bool ignis__linalg_check_right(ignis__op *op, int input, const char *name, int64_t rows);
IGNIS__PRIVATE ignis_shape ignis__linalg_leading(const ignis_shape *shape);
IGNIS__PRIVATE ignis_shape ignis__linalg_shape(const ignis_shape *shape, int64_t rows, int64_t columns);
IGNIS__PRIVATE ignis__matrix ignis__matrix_read(ignis__op *op, ignis__array *array);
IGNIS__PRIVATE ignis__matrix ignis__matrix_write(ignis__op *op, ignis__array *array);
IGNIS__PRIVATE ignis__matrix ignis__matrix_of(ignis__array *array, ignis__address at, int64_t rows, int64_t columns);
IGNIS__PRIVATE ignis__matrix ignis__matrix_block(ignis__matrix m, int64_t i, int64_t j, int64_t rows, int64_t columns);
IGNIS__PRIVATE ignis__matrix ignis__matrix_transpose(ignis__matrix m);
IGNIS__PRIVATE ignis__matrix ignis__matrix_reverse(ignis__matrix m, bool columns);
IGNIS__PRIVATE void ignis__matrix_copy(ignis__op *op, ignis__matrix to, ignis__matrix from, int64_t low, int64_t high);
IGNIS__PRIVATE ignis__matrix ignis__matrix_product(ignis__op *op, ignis__matrix a, ignis__matrix b);
IGNIS__PRIVATE void ignis__matrix_identity(ignis__op *op, ignis__matrix m);
IGNIS__PRIVATE void ignis__matrix_subtract_product(ignis__op *op, ignis__matrix c, ignis__matrix a, ignis__matrix b);
IGNIS__PRIVATE ignis__teams ignis__teams_of(const ignis__matrix *m, int64_t matrices, int lanes, int64_t elements);
IGNIS__PRIVATE int64_t ignis__matrix_half(int64_t n, int64_t unit);

IGNIS__PRIVATE ignis__matrix ignis__matrix_right(const ignis__matrix *a, ignis__array *b, ignis__address at);

/* status.c */
IGNIS__PRIVATE ignis__array *ignis__linalg_info(ignis__op *op, const ignis_shape *shape);
IGNIS__PRIVATE ignis_tensor ignis__linalg_end(const char *call, const char *what, ignis_tensor result,
                                              ignis_tensor found, ignis_tensor *info);
IGNIS__PRIVATE ignis_tensor ignis__linalg_op_end(ignis__op *op, ignis__array *output, ignis__array *numbers,
                                                 const ignis_rule *rule, const char *what, ignis_tensor *info);

/* gradient.c */
IGNIS__PRIVATE ignis_tensor ignis__tensor_columns(ignis_tensor tensor, int ndim);
IGNIS__PRIVATE ignis_tensor ignis__tensor_transposed(ignis_tensor tensor);
IGNIS__PRIVATE ignis_tensor ignis__tensor_formula(const char *formula, ignis_tensor a, ignis_tensor b);

/* triangular.c */
IGNIS__PRIVATE void ignis__matrix_solve_lower(ignis__op *op, ignis__matrix l, ignis__matrix b, bool unit);
IGNIS__PRIVATE void ignis__matrix_solve_upper(ignis__op *op, ignis__matrix u, ignis__matrix b, bool unit);

/* lu.c */
IGNIS__PRIVATE int ignis__linalg_lanes(int64_t n, int most);
IGNIS__PRIVATE void ignis__matrix_lu(ignis__op *op, const ignis__lu *lu);
IGNIS__PRIVATE void ignis__matrix_swap_rows(ignis__op *op, ignis__matrix b, const ignis__lu *lu, int64_t first,
                                            int64_t count);
IGNIS__PRIVATE ignis__array *ignis__lu_pivots(ignis__op *op, const ignis_shape *shape);
IGNIS__PRIVATE ignis__lu ignis__lu_begin(ignis__op *op, ignis__array *factors, ignis__array *pivots,
                                         ignis__array *info);

/* qr.c */
IGNIS__PRIVATE void ignis__matrix_qr(ignis__op *op, ignis__matrix q, ignis__matrix r, ignis__matrix a);

/* jacobi.c */
IGNIS__PRIVATE ignis__jacobi ignis__jacobi_begin(ignis__op *op, ignis__matrix from, bool symmetric);
IGNIS__PRIVATE void ignis__jacobi_eigh(ignis__op *op, ignis__jacobi *run);
IGNIS__PRIVATE void ignis__jacobi_svd(ignis__op *op, ignis__jacobi *run);
IGNIS__PRIVATE void ignis__jacobi_values(ignis__op *op, ignis__jacobi *run, ignis__array *values, int length);
IGNIS__PRIVATE void ignis__jacobi_rows(ignis__op *op, ignis__jacobi *run, ignis__matrix to, ignis__matrix from,
                                       int columns);

/* eigh.c */
IGNIS__PRIVATE ignis_tensor ignis__tensor_gaps(const char *formula, ignis_tensor values, ignis_tensor like);
IGNIS__PRIVATE ignis_tensor ignis__tensor_as_row(ignis_tensor numbers, ignis_tensor like, bool columns);
