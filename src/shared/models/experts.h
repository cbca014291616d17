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
    /* rows of x as whole numbers, of IGNIS__EXPERTS_WHOLE_BYTES a unit, if there is an order and weights are quantised:
       of a block, eight elements after eight, their high bytes and their low ones; then all scales, then all sums */
    IGNIS__POINTER(uint8_t) whole;
    double limit; /* of gate and up: of gpt-oss; 0: the gate is silu */
    int slot_count, n;
} ignis__experts;
IGNIS__ASSERT_SIZE(ignis__experts, 168);

/*  Bytes of a unit of 128 elements as whole numbers. */
#define IGNIS__EXPERTS_WHOLE_BYTES (2 * 128 + 2 * 4 * 4)
