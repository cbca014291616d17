#pragma once
/*  Params of kernels that compute an image from another one: pooling and upsampling. Of two numbers the first is for
    rows, the second for columns. */

enum {
    IGNIS__IMAGE_THREADS = 256, /* of a block */
    IGNIS__IMAGE_SHARE = 4      /* packs of a thread, or 1: see `share` */
};

/*  The image that is computed, dst, and the image that it is computed from, src. */
typedef struct ignis__images {
    ignis__divisor packs, width, height; /* threads of a pixel; columns and rows of dst */
    int src_width, src_height;
    int packed; /* channels are a multiple of a pack, and all arrays begin at multiples of 16 bytes */
    int share;  /* packs of channels that a thread has of a pixel */
    long long channels;
    long long count; /* threads of dst */
} ignis__images;
IGNIS__ASSERT_SIZE(ignis__images, 72);

/*  Window o of a dimension begins at element o * stride - padding, and is cut where the image ends. */
typedef struct ignis__pooling {
    ignis__images images;
    int window[2], padding[2];
    ignis__divisor stride[2];
    int exclude_padding; /* averages are of the elements inside of the image */
    int index_bytes;     /* 1, 4, or 0 if there are no indices */
} ignis__pooling;
IGNIS__ASSERT_SIZE(ignis__pooling, 120);

/*  A dimension of an image that is resampled. */
typedef struct ignis__scaling {
    int in, out, step, start, is_linear;
    ignis__divisor den, by_step;
} ignis__scaling;
IGNIS__ASSERT_SIZE(ignis__scaling, 44);

typedef struct ignis__resampling {
    ignis__images images;
    ignis__scaling dim[2];
} ignis__resampling;
IGNIS__ASSERT_SIZE(ignis__resampling, 160);

enum { IGNIS__SAMPLE_ZEROS, IGNIS__SAMPLE_BORDER, IGNIS__SAMPLE_REFLECTION }; /* as ignis_grid_padding */

/*  Images that are sampled at the positions of a grid, which has the column first. */
typedef struct ignis__sampling {
    ignis__divisor packs, points; /* packs of a point, and points of an image of the result */
    int size[3];                  /* columns, rows and planes of the image */
    int sides;                    /* 2 or 3 */
    int is_nearest, padding, align_corners;
    int wide_grid; /* the grid is f32, of 16-bit images */
    int packed;    /* channels are a multiple of a pack, and all arrays begin at multiples of 16 bytes */
    int share;     /* packs of channels that a thread has of a point: 1 or IGNIS__IMAGE_SHARE */
    int lanes;     /* threads of a point, for the gradient of the grid */
    long long channels;
    long long count; /* packs of the result, or elements */
} ignis__sampling;
IGNIS__ASSERT_SIZE(ignis__sampling, 88);
