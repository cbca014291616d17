#pragma once
/*  Params of the kernels that sort the slots of rows by expert. A row has slot_count slots, one for each of its
    experts. Kernels define T, the type of elements, and Wide, that of sums. */
typedef struct ignis__experts_sorted {
    IGNIS__POINTER(const int32_t) chosen; /* [rows, slots of a row]: experts */
    IGNIS__POINTER(const Wide) shares;    /* the same */
    IGNIS__POINTER(int32_t) order;        /* slots, in the order of their experts */
    IGNIS__POINTER(int32_t) places;       /* of each slot in this order */
    IGNIS__POINTER(int32_t) offsets;      /* [experts + 1]: where the slots of an expert begin */
    IGNIS__POINTER(const T) x;            /* [rows, hidden] */
    IGNIS__POINTER(T) in;                 /* [slots, hidden]: rows of x, and then results of experts, in this order */
    IGNIS__POINTER(T) gate;               /* [slots, inner], as is up */
    IGNIS__POINTER(const T) up;
    IGNIS__POINTER(const T) bias[3]; /* [experts, inner] of gate and up, [experts, hidden] of down; or null */
    IGNIS__POINTER(T) out;           /* [rows, hidden], or null */
    IGNIS__POINTER(Wide) sum;        /* [rows, hidden], if there is no `out` */
    double limit;                    /* as in ignis__experts */
    int rows, slot_count, experts, hidden, inner, unused;
} ignis__experts_sorted;
IGNIS__ASSERT_SIZE(ignis__experts_sorted, 144);
