// SPDX-License-Identifier: MIT
/*  tensor_map.c - tensor maps: checks them and writes what bulk copies of kernels read

    The format is sim_tensor_map, which is private to the simulator. A kernel only passes it on.
*/
#include "driver.h"

/* Returns what is wrong with the arguments of cuTensorMapEncodeTiled or cuTensorMapEncodeIm2col; NULL if
   nothing is. */
static const char *tensor_map_fault(const sim_tensor_map *m, const CUtensorMap *to, const cuuint32_t *steps,
                                    int interleave, int l2)
{
    static const unsigned inner_limit[] = {0xFFFFFFFF, 32, 64, 128};
    if ((uintptr_t)to % 64)
        return "the map is not aligned to 64 bytes";
    if (!m->base || m->base % 16)
        return "the address is not a multiple of 16";
    if (interleave)
        return "the simulator knows no interleaved layout";
    if (m->swizzle > 3)
        return "the swizzle is not one of 0 (none) to 3 (128 bytes)";
    if ((unsigned)l2 > 3)
        return "the promotion to L2 is not one of 0 to 3";
    if (m->fill > 1 || (m->fill == 1 && (m->type < 6 || m->type > 12)))
        return "the fill outside is not 0 (zeros), or for floating types 1 (NaN)";
    for (int i = 0; i < m->rank; i++) {
        if (!m->dims[i] || m->dims[i] > (uint64_t)1 << 32)
            return "a dimension is not 1 to 2^32";
        if (!m->im2col && (!m->box[i] || m->box[i] > 256))
            return "a side of the box is not 1 to 256";
        if (!m->im2col && steps[i] != 1)
            return "the simulator knows no element strides but 1";
        if (!steps[i] || steps[i] > 8)
            return "an element stride is not 1 to 8";
        if (i && (m->strides[i] % 16 || m->strides[i] >= (uint64_t)1 << 40))
            return "a stride is not a multiple of 16 below 2^40";
    }
    if ((unsigned)m->box[0] * m->element % 16)
        return "the box's first side is not a multiple of 16 bytes";
    if ((unsigned)m->box[0] * m->element > inner_limit[m->swizzle])
        return "the box's first side is longer than the swizzle";
    return NULL;
}

/* Describes the array of a map. 0 if its type is unknown. */
static int describe(sim_tensor_map *m, CUtensorMapDataType type, cuuint32_t rank, void *base, const cuuint64_t *dims,
                    const cuuint64_t *strides, int swizzle, int fill)
{
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    if ((unsigned)type >= sizeof bytes)
        return 0;
    m->base = (uint64_t)(uintptr_t)base;
    m->rank = (uint8_t)rank;
    m->type = (uint8_t)type;
    m->element = bytes[type];
    m->swizzle = (unsigned)swizzle > 3 ? 4 : (uint8_t)swizzle;
    m->fill = (unsigned)fill > 1 ? 2 : (uint8_t)fill;
    m->strides[0] = m->element;
    for (cuuint32_t i = 0; i < rank; i++) {
        m->dims[i] = dims[i];
        if (i)
            m->strides[i] = strides[i - 1];
    }
    return 1;
}

/* Checks a map whose array and box are set, and writes it. */
static CUresult write_tensor_map(CUtensorMap *map, sim_tensor_map *m, const cuuint32_t *steps, int interleave, int l2)
{
    _Static_assert(sizeof *m == sizeof *map, "a tensor map has 128 bytes");
    memcpy(m->magic, SIM_TENSOR_MAGIC, sizeof m->magic);
    const char *fault = tensor_map_fault(m, map, steps, interleave, l2);
    if (fault)
        say("%s: %s", m->im2col ? "cuTensorMapEncodeIm2col" : "cuTensorMapEncodeTiled", fault);
    REQUIRE(!fault, ERROR_INVALID_VALUE);
    memcpy(map, m, sizeof *m);
    return leave(SUCCESS);
}

SIM_API CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base,
                                        const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                        const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                        CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
                                        CUtensorMapFloatOOBfill fill)
{
    BEGIN(cuTensorMapEncodeTiled);
    sim_tensor_map m = {0};
    REQUIRE(map && dims && box && steps && rank >= 1 && rank <= 5 && (rank == 1 || strides), ERROR_INVALID_VALUE);
    for (cuuint32_t i = 0; i < rank; i++)
        m.box[i] = box[i] > 256 ? 257 : (uint16_t)box[i];
    REQUIRE(describe(&m, type, rank, base, dims, strides, (int)swizzle, (int)fill), ERROR_INVALID_VALUE);
    return write_tensor_map(map, &m, steps, (int)interleave, (int)l2);
}

SIM_API CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base,
                                         const cuuint64_t *dims, const cuuint64_t *strides, const int *lower,
                                         const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                         const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
                                         CUtensorMapFloatOOBfill fill)
{
    static const int limits[] = {32768, 128, 16}; /* of corners, by the number of pixel dimensions */
    BEGIN(cuTensorMapEncodeIm2col);
    sim_tensor_map m = {.im2col = 1};
    REQUIRE(map && dims && steps && strides && lower && upper && rank >= 3 && rank <= 5, ERROR_INVALID_VALUE);
    REQUIRE(channels && channels <= 256 && pixels && pixels <= 1024, ERROR_INVALID_VALUE);
    m.box[0] = (uint16_t)channels;
    m.box[1] = (uint16_t)pixels;
    for (cuuint32_t i = 0; i < rank - 2; i++) {
        int limit = limits[rank - 3];
        int fits = lower[i] >= -limit && lower[i] < limit && upper[i] >= -limit && upper[i] < limit;
        if (!fits || lower[i] > (int64_t)dims[i + 1] - 1 + upper[i])
            say("cuTensorMapEncodeIm2col: the box of pixels from %d to %d of dimension %u %s", lower[i], upper[i],
                i + 1, fits ? "is empty" : "is outside of what the map can hold");
        REQUIRE(fits && lower[i] <= (int64_t)dims[i + 1] - 1 + upper[i], ERROR_INVALID_VALUE);
        m.lower[i] = (int16_t)lower[i];
        m.upper[i] = (int16_t)upper[i];
        m.steps[i] = (uint8_t)steps[i + 1];
    }
    REQUIRE(describe(&m, type, rank, base, dims, strides, (int)swizzle, (int)fill), ERROR_INVALID_VALUE);
    return write_tensor_map(map, &m, steps, (int)interleave, (int)l2);
}
