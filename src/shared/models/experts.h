#pragma once
/*  Params of the products of experts. Kernels define T, the type of elements, and Wide, that of sums. */
typedef struct ignis__experts {
    /* [experts * n, k]: of gate and up, or of down. Dense ones have `records` alone. */
    ignis__quantised_weight weights[2];
    IGNIS__POINTER(const T) bias[2];      /* [experts, n], or null */
    IGNIS__POINTER(const T) x;            /* of gate and up [rows, k]; of down [rows, slots, k] */
    IGNIS__POINTER(T) out;                /* of gate and up [rows, slots, n]; of down [rows, n], or null */
    IGNIS__POINTER(Wide) sum;             /* of down, [rows, n], if it has no `out` */
    IGNIS__POINTER(const int32_t) chosen; /* [rows, slots] */
    IGNIS__POINTER(const Wide) shares;
    IGNIS__POINTER(const int32_t) order; /* of slots by expert, and where those of an expert begin; or null */
    IGNIS__POINTER(const int32_t) offsets;
    IGNIS__POINTER(Wide) results; /* of down, if there is an order: [rows, slots, n] */
    double limit;                 /* of gate and up: of gpt-oss; 0: the gate is silu */
    int slot_count, n;
} ignis__experts;
IGNIS__ASSERT_SIZE(ignis__experts, 160);
