/*  kernel/tensor_map.c - TMA maps: descriptions of arrays for the unit that copies tiles (sm_90 and up)

    Checked against the rules of the driver, so that a failure names the dimension. GEMM, attention and convolution
    use them.
    May use: >>loader. Locks: none. */

#include "room.h"

/*  Makes a TMA map of an array of up to 5 dimensions, the contiguous one first. `strides` are in bytes, for each
    dimension after the first; they and the address are multiples of 16. A tile has box[i] elements of dimension i;
    its rows of 128 bytes are swizzled in shared memory, in chunks of 16 bytes. Reads outside of the array give zeros,
    and writes there are dropped. With pixels (NULL: none) the array is [image, row, column, channel], or
    [image, plane, row, column, channel], and a tile has box[0] channels. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__tensor_map_make(const ignis__work *work, ignis__tensor_map *map,
                                                               const ignis__tensor_map_desc *desc)
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
    const ignis__tensor_pixels *pixels = desc->pixels;
    const ignis_dtype dtype = desc->dtype;
    const int rank = desc->rank;
    int type = dtype == IGNIS_F16          ? F16
               : dtype == IGNIS_BF16       ? BF16
               : dtype == IGNIS_F64        ? F64
               : ignis__dtype_is_f8(dtype) ? U8
               : desc->rounds              ? TF32
                                           : F32,
        i;
    unsigned long long sizes[5], steps[5], aligned[24];
    unsigned boxes[5], walk[5];
    void *at = aligned + (64 - (uintptr_t)aligned % 64) % 64 / sizeof *aligned;
    IGNIS_ASSERT(rank >= 1 && rank <= 5 && !ignis__dtype_is_int(dtype) && (!pixels || rank >= 4));
    for (i = 0; i < rank; i++) {
        sizes[i] = (unsigned long long)desc->dims[i];
        steps[i] = i + 1 < rank ? (unsigned long long)desc->strides[i] : 0;
        boxes[i] = pixels ? 0 : (unsigned)desc->box[i];
        walk[i] = pixels && i > 0 && i + 1 < rank ? (unsigned)pixels->step[i - 1] : 1;
    }
    if (pixels ? IGNIS__CUDA_FAILED(work->call, work->device, cuTensorMapEncodeIm2col,
                                    (at, type, (unsigned)rank, (void *)(uintptr_t)desc->data, sizes, steps,
                                     pixels->lower, pixels->upper, (unsigned)desc->box[0], (unsigned)pixels->count,
                                     walk, NO_INTERLEAVE, SWIZZLE_128_BYTES, PROMOTE_TO_128_BYTES, ZEROS_OUTSIDE))
               : IGNIS__CUDA_FAILED(work->call, work->device, cuTensorMapEncodeTiled,
                                    (at, type, (unsigned)rank, (void *)(uintptr_t)desc->data, sizes, steps, boxes, walk,
                                     NO_INTERLEAVE, SWIZZLE_128_BYTES, PROMOTE_TO_128_BYTES, ZEROS_OUTSIDE)))
        return false;
    memcpy(map, at, sizeof *map);
    return true;
}
