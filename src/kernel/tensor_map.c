/* --- tensor maps ------------------------------------------------------------------------------------------------------ */

/*  Where the tiles of an array are, for the copy engine of sm_90 and up (TMA). The driver packs the bits on the host, for each launch anew, and
    the kernel gets them by value: a graph keeps what it was captured with. kernels/hopper.cuh has the same struct. */
typedef struct ignis__tensor_map {
    uint64_t words[16];
} ignis__tensor_map;

/*  What pixels of images a tile has: so many, one after the other of a box in each image, from lower to upper, which count from the first and
    the last pixel on, of every step-th row and column. Columns come first. */
typedef struct ignis__tensor_pixels {
    int lower[2], upper[2], step[2], count;
} ignis__tensor_pixels;

/*  A map of an array of up to 5 dimensions, the contiguous one first. `strides` are the bytes from one element to the next of the dimensions
    after it, multiples of 16 as the address is. A tile has box[i] elements of dimension i; its rows of 128 bytes lie in shared memory with
    their chunks of 16 bytes swizzled. What is outside of the array reads as zeros, and is not written. With pixels (null: none) the array is
    [image, row, column, channel], and a tile has box[0] channels of them. */
IGNIS__MAYBE_UNUSED static bool ignis__tensor_map_make(const ignis__work *work, ignis__tensor_map *map, ignis_dtype dtype, bool rounds,
                                                       ignis__address data, int rank, const int64_t *dims, const int64_t *strides,
                                                       const int *box, const ignis__tensor_pixels *pixels)
{
    enum {
        U8 = 0,
        F16 = 6,
        F32 = 7,
        F64 = 8,
        BF16 = 9,
        TF32 = 11,
        NO_INTERLEAVE = 0,
        SWIZZLE_128_BYTES = 3,
        PROMOTE_TO_128_BYTES = 2,
        ZEROS_OUTSIDE = 0
    };
    int type = dtype == IGNIS_F16          ? F16
               : dtype == IGNIS_BF16       ? BF16
               : dtype == IGNIS_F64        ? F64
               : ignis__dtype_is_f8(dtype) ? U8
               : rounds                    ? TF32
                                           : F32,
        i;
    unsigned long long sizes[5], steps[5], aligned[24];
    unsigned boxes[5], walk[5];
    void *at = aligned + (64 - (uintptr_t)aligned % 64) % 64 / sizeof *aligned;
    IGNIS_ASSERT(rank >= 1 && rank <= 5 && !ignis__dtype_is_int(dtype) && (!pixels || rank == 4));
    for (i = 0; i < rank; i++) {
        sizes[i] = (unsigned long long)dims[i];
        steps[i] = i + 1 < rank ? (unsigned long long)strides[i] : 0;
        boxes[i] = pixels ? 0 : (unsigned)box[i];
        walk[i] = pixels && (i == 1 || i == 2) ? (unsigned)pixels->step[i - 1] : 1;
    }
    if (pixels ? IGNIS__CUDA_FAILED(work->call, work->device, cuTensorMapEncodeIm2col,
                                    (at, type, (unsigned)rank, (void *)(uintptr_t)data, sizes, steps, pixels->lower, pixels->upper,
                                     (unsigned)box[0], (unsigned)pixels->count, walk, NO_INTERLEAVE, SWIZZLE_128_BYTES,
                                     PROMOTE_TO_128_BYTES, ZEROS_OUTSIDE))
               : IGNIS__CUDA_FAILED(work->call, work->device, cuTensorMapEncodeTiled,
                                    (at, type, (unsigned)rank, (void *)(uintptr_t)data, sizes, steps, boxes, walk, NO_INTERLEAVE,
                                     SWIZZLE_128_BYTES, PROMOTE_TO_128_BYTES, ZEROS_OUTSIDE)))
        return false;
    memcpy(map, at, sizeof *map);
    return true;
}
