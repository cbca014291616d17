#pragma once
/*  Params of the kernels that normalize channels. */

enum {
    IGNIS__CHANNEL_THREADS = 256, /* of the blocks that read all of x */
    IGNIS__CHANNEL_WARPS = 8      /* of the blocks of other kernels */
};

typedef struct ignis__channel_sizes {
    long long outer, rows, channels, groups;
    long long part_length, parts; /* rows of a part of an image; parts */
    int packed;                   /* channels are a multiple of a pack, and all arrays begin at multiples of 16 bytes */
} ignis__channel_sizes;
IGNIS__ASSERT_SIZE(ignis__channel_sizes, 56);

typedef struct ignis__channel_gradient {
    IGNIS__POINTER(T) dx;
    IGNIS__POINTER(const T) dy, x;
    IGNIS__POINTER(const W) w;
    IGNIS__POINTER(const Wide) mean, rstd;
    IGNIS__POINTER(const Wide) average_g, average_gh; /* null: mean and rstd were given */
    ignis__channel_sizes sizes;
} ignis__channel_gradient;
IGNIS__ASSERT_SIZE(ignis__channel_gradient, 120);
