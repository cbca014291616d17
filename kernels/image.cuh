// SPDX-License-Identifier: MIT
/*  image.cuh - loops over images [n, height, width, channels], for kernels that compute each element of one
    from a few pixels of another

    A thread has a pack of channels of a pixel, or IGNIS__IMAGE_SHARE packs with those of its neighbours between.
    Compiled with -DIGNIS_T=<1 to 4>, the element type; blocks have IGNIS__IMAGE_THREADS threads, grids any number of
    blocks. packed: channels are a multiple of a pack, and all arrays begin at multiples of 16 bytes. */
#ifndef IGNIS_IMAGE_CUH
#define IGNIS_IMAGE_CUH

#include "divisor.cuh"
#include "shared/image.h"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define PACK (16 / (int)sizeof(T)) /* elements */

struct ignis_pixel {
    long long image;
    int y, x, channel;
};

/*  Where the first pack of thread i is in dst. */
template <int N> __device__ inline ignis_pixel pixel_of(const ignis__images &images, long long i)
{
    int pack, x, y;
    const long long pixel = ignis_divide_any(images.packs, i, pack), row = ignis_divide_any(images.width, pixel, x),
                    image = ignis_divide_any(images.height, row, y);
    return {image, y, x, pack * N};
}

/*  Returns the element of src for a pixel of dst: the same image and channel at row 0 and column 0. */
__device__ inline long long src_of(const ignis__images &images, const ignis_pixel &at)
{
    return at.image * images.src_height * images.src_width * images.channels + at.channel;
}

/*  f(first element of a pack of dst, where that is) for the first pack of each pixel of this thread's: the
    next one is images.packs.size packs on. */
template <int N, typename F> __device__ inline void each_pixel(const ignis__images &images, F f)
{
    for (long long i = (long long)blockIdx.x * IGNIS__IMAGE_THREADS + threadIdx.x; i < images.count;
         i += (long long)gridDim.x * IGNIS__IMAGE_THREADS) {
        const ignis_pixel at = pixel_of<N>(images, i);
        f(images.share == 1 ? i * N : (i * N - at.channel) * images.share + at.channel, at);
    }
}

#endif /* IGNIS_IMAGE_CUH */
