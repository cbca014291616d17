#pragma once
/*  Params of the kernels that multiply matrices. Kernels define T, the type of the result, Operand, that of a and b,
    and Wide, that of sums. Null pointers leave their part out. */

/*  The activation of an epilogue. Up to GELU it is an ignis_activation. */
enum {
    IGNIS__ACTIVATION_NONE,
    IGNIS__ACTIVATION_RELU,
    IGNIS__ACTIVATION_GELU,
    /* The second product of a gated layer: silu(gate) * product. pre holds the gate and after it the products, which
       are written if `keeps`, and read by a gradient. Its out is [2, m, n] too: of the gate and the product. There are
       no batches, and no other epilogue. */
    IGNIS__ACTIVATION_GATED,
    /* The result [m, n / 2] is silu of the first half of the columns, times the second half. For products that
       ignis__gemm_supports_paired takes. */
    IGNIS__ACTIVATION_PAIRED
};

/*  The operand that has patches, with -DIGNIS_PATCHES. */
enum { IGNIS__NO_OPERAND, IGNIS__OPERAND_A, IGNIS__OPERAND_B };

/*  The operand that pairs of blocks of kernels/gemm_hopper.cu share, with -DIGNIS_PAIRS. */
enum { IGNIS__SHARE_NOTHING, IGNIS__SHARE_A, IGNIS__SHARE_B };

/*  Of kernels/gemm.cu. */
enum {
    IGNIS__GEMM_THREADS = 256, /* of a block */
    IGNIS__GEMM_COLUMNS = 128, /* of a block of ignis_gemm_finish and ignis_gemm_apply */
    IGNIS__GEMM_FINISH_ROWS = 16,
    IGNIS__GEMM_APPLY_ROWS = 32,
    IGNIS__GEMM_SUMS_COLUMNS = 32 /* of a block of ignis_gemm_sums */
};

/*  Products of one result that do not wait for each other: the launch before this one is such a product, the next
    launch may be one. */
enum { IGNIS__BESIDE_LAST = 1, IGNIS__BESIDE_NEXT = 2 };

/*  The patches of an array of images [image, height, width, pixel elements]: a row of the matrix is a pixel of a grid,
    a column is an element of a patch. The patch of grid pixel (r, c) has tap (i, j) at row
    first[0] + r * stride[0] + i * step[0] of the image, and the same for columns. Outside of the image it is zero.
    Volumes [image, depth, height, width, pixel elements] have planes as well, with -DIGNIS_VOLUMES=1. */
typedef struct ignis__patches {
    ignis__divisor rows, columns;     /* of the grid */
    ignis__divisor channels, across;  /* of a tap, and taps in a row of a patch */
    int height, width;                /* of the array */
    int first[3], stride[3], step[3]; /* of rows, of columns, of planes */
    int apart;                        /* of patches of a: the pixels of out are not contiguous */
    /* of patches of a with b by columns: tap (i, j) is tap weight + i * weight_step[0] + j * weight_step[1] of b */
    int weight, weight_step[3];
    int weight_channels;                      /* [weight_channels, taps, n], as it is stored */
    long long weight_row;                     /* elements from one of these channels to the next */
    long long pixel;                          /* elements between the pixels of the array */
    long long out_image, out_row, out_column; /* of patches of a: elements of out between images, rows and columns */
    long long out_plane;
    ignis__divisor planes, down; /* planes of the grid, and rows of taps in a plane of a patch */
    int depth;                   /* of the array */
    int beside;                  /* of patches of a: IGNIS__BESIDE_LAST, IGNIS__BESIDE_NEXT */
} ignis__patches;
IGNIS__ASSERT_SIZE(ignis__patches, 200);

/*  A product: out = what the epilogue makes of factor * op(a) op(b). */
typedef struct ignis__gemm_params {
    IGNIS__POINTER(const Operand) a, b;
    IGNIS__POINTER(T) out;        /* of a gradient of a gated activation [2, m, n]: of the gate, of the multiplicand */
    IGNIS__POINTER(const T) bias; /* [n], added to each row */
    /* Like out: the input of the activation; a forward product writes it, a gradient reads it. Gated: [2, m, n], the
       gate, which both read, and the multiplicand, which a forward product writes if `keeps`. */
    IGNIS__POINTER(T) pre;
    IGNIS__POINTER(const T) residual; /* like out, added after the activation */
    /* Wide [split, batch, m, n]: sums over parts of k, for ignis_gemm_finish, which does the rest */
    IGNIS__POINTER(void) partial;
    /* [split, m], by wgmma [split, tile column, m]: the sums of op(a) over its rows, of a product without batches */
    IGNIS__POINTER(Wide) row_sums;
    IGNIS__POINTER(Wide) column_sums; /* [row tile, n]: the sums of the results of a tile over its columns */
    IGNIS__POINTER(const float) scale_a, scale_b; /* of operands of 8 bits: [1] or [m], [1] or [n] */
    long long m, n, k, batch;
    long long batch_a, batch_b; /* elements between the matrices of a batch */
    long long row_a, row_b;     /* elements between the rows of a and b, as they are stored */
    long long split_k;          /* elements of k of a split, a multiple of 32 */
    double factor;
    int splits, transpose_a, transpose_b; /* a is stored [k, m]; b is stored [n, k] */
    int activation, gradient;             /* gradient: the result is multiplied by the derivative at pre */
    int scales_a, scales_b;               /* elements from one scale to the next: 0 if one is for all */
    int accumulate, keeps;                /* out is added to the result; see pre */
    /* Rows are full packs of 16 bytes. IGNIS__HALF_PACKED: taps of patches, and weights, are packs of 8 bytes. */
    int packed_a, packed_b, packed_out;
    int box_a, box_b;     /* kernels/gemm_hopper.cu: rows of an operand that are loaded at a time */
#ifndef IGNIS__NO_PATCHES /* kernels of plain products end here */
    ignis__patches patches;
} ignis__gemm_params;
IGNIS__ASSERT_SIZE(ignis__gemm_params, 424);
#else
} ignis__gemm_params;
IGNIS__ASSERT_SIZE(ignis__gemm_params, 224);
#endif

enum { IGNIS__HALF_PACKED = 2 };

/*  A copy of an operand whose rows are made of packs, or are half of one or less: `row` elements, then zeros. */
typedef struct ignis__gemm_copy {
    IGNIS__POINTER(T) to;
    IGNIS__POINTER(const T) from;
    long long row, stride, rows;
} ignis__gemm_copy;
IGNIS__ASSERT_SIZE(ignis__gemm_copy, 40);

/*  Of kernels/depthwise.cu. */
enum {
    IGNIS__DEPTHWISE_THREADS = 256, /* of a block */
    IGNIS__DEPTHWISE_ACROSS = 16,   /* of them side by side along the channels, at most */
    IGNIS__DEPTHWISE_PIXELS = 4,    /* of a thread */
    IGNIS__DEPTHWISE_STRIP = 4,     /* pixels of a row, of a thread */
    IGNIS__DEPTHWISE_TAPS = 9       /* of a block that sums the gradient of weights */
};

/*  kernels/unfold.cu: patches of images as rows of a matrix. Of sides in the order of those of patches. */
enum { IGNIS__UNFOLD_ROWS, IGNIS__UNFOLD_COLUMNS, IGNIS__UNFOLD_PLANES };

enum { IGNIS__UNFOLD_THREADS = 256 }; /* of a block */

typedef struct ignis__unfolding {
    ignis__patches patches;
    ignis__divisor packs;     /* of a row of the matrix (ignis_unfold), of a pixel (ignis_fold) */
    ignis__divisor size[3];   /* of the image */
    ignis__divisor stride[3]; /* from one patch to the next */
    int taps, packed;         /* packed: channels are a multiple of a pack, and both arrays are aligned */
    long long count;          /* packs of the result, or elements */
} ignis__unfolding;
IGNIS__ASSERT_SIZE(ignis__unfolding, 304);

/*  kernels/grouped_mma.cu: tiles of the grid, and the pixels of the array that one reads. */
typedef struct ignis__conv_tiles {
    ignis__divisor across, down;  /* tiles in a row of an image, and rows of tiles */
    ignis__divisor columns, halo; /* columns of a tile, and of the pixels that it reads */
    int rows, halo_rows, count;
} ignis__conv_tiles;
IGNIS__ASSERT_SIZE(ignis__conv_tiles, 60);

/*  kernels/gemm_grouped.cuh: the groups of the rows of a product. */
typedef struct ignis__gemm_groups {
    IGNIS__POINTER(const void) offsets; /* [count + 1] integers that ascend */
    long long count, rows;
    int offset_bytes; /* 4 or 8 */
    int keeps;        /* rows of no group stay as they are; else they become 0 */
} ignis__gemm_groups;
IGNIS__ASSERT_SIZE(ignis__gemm_groups, 32);
