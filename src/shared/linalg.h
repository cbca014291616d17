#pragma once
/*  A batch of matrices of T by strides, in elements, which may be negative: exchanged strides are a transpose. */
typedef struct ignis__matrix_view {
    IGNIS__POINTER(T) at;
    long long row, column, batch; /* from an element to that of the next row, column, matrix */
} ignis__matrix_view;
IGNIS__ASSERT_SIZE(ignis__matrix_view, 32);
