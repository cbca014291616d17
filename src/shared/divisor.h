#pragma once
/*  Division in kernels for x below 2^31: x / size = (upper word of x * multiplier, plus x) >> shift (Granlund and
    Montgomery, PLDI 1994). Sizes of 2^31 and more divide in 64 bits. */
typedef struct ignis__divisor {
    uint32_t size, multiplier, shift;
} ignis__divisor;
IGNIS__ASSERT_SIZE(ignis__divisor, 12);
