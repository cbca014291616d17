#pragma once
/*  Two arrays that are looped over together, each by strides of its own. Index i counts through all dimensions, the
    last one fastest. It names element sum of i[d] * from[d] of one array, and sum of i[d] * to[d] of the other. If
    packs are counted, the last dimension is that of packs: its size is that in elements divided by those of a pack,
    and its strides are of packs. */
typedef struct ignis__strided {
    long long size[8], from[8], to[8];
    uint32_t multiplier[8], shift[8]; /* divide by size, as in ignis__divisor */
    long long count;                  /* elements or packs in all */
    long long step;                   /* in the first array, from one element of a pack to the next */
    int rank;
} ignis__strided;
IGNIS__ASSERT_SIZE(ignis__strided, 280);
