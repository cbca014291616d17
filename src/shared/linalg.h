#pragma once
/*  Sizes of matrices and of blocks. */
enum {
    IGNIS__LINALG_SMALL = 64,        /* rows and columns of a matrix that a team has in shared memory, at most */
    IGNIS__LINALG_QR_PANEL = 32,     /* columns that a block factors at a time, at most */
    IGNIS__LINALG_THREADS = 256,     /* of a block */
    IGNIS__LINALG_TEAM_THREADS = 128 /* of a block of teams, at most, and of one that rotates */
};

/*  A batch of matrices of T by strides, in elements, which may be negative: exchanged strides are a transpose. */
typedef struct ignis__matrix_view {
    IGNIS__POINTER(T) at;
    long long row, column, batch; /* from an element to that of the next row, column, matrix */
} ignis__matrix_view;
IGNIS__ASSERT_SIZE(ignis__matrix_view, 32);
