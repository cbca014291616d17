#pragma once
/*  Sizes of the kernels that normalize channels. */
typedef struct ignis__channel_sizes {
    long long outer, rows, channels, groups;
    long long part_length, parts; /* rows of a part of an image; parts */
    int packed;                   /* channels are a multiple of a pack, and all arrays begin at multiples of 16 bytes */
} ignis__channel_sizes;
IGNIS__ASSERT_SIZE(ignis__channel_sizes, 56);
