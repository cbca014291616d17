#pragma once
/*  Params of kernels/border.cu: arrays with elements of their own around them. */

enum { IGNIS__BORDER_REFLECT, IGNIS__BORDER_REPLICATE, IGNIS__BORDER_CIRCULAR };

enum { IGNIS__BORDER_THREADS = 256 }; /* of a block */

/*  Sizes and strides of src and dst, which is larger by elements before and after; the last dimension counts packs if
    `packed`. Strides are of elements. */
typedef struct ignis__border {
    long long src[8], dst[8], before[8], src_stride[8], dst_stride[8];
    ignis__divisor by[8]; /* divide by the sizes of the array whose elements the threads have */
    long long count;      /* elements or packs of that array */
    int rank, mode, packed;
} ignis__border;
IGNIS__ASSERT_SIZE(ignis__border, 440);
