// SPDX-License-Identifier: MIT
/*  array.h - what tests that use arrays share, beyond test.h */
#ifndef ARRAY_H
#define ARRAY_H

#include "test.h"

/*  The call returns exactly value, and fails as CHECK_FAILS says: CHECK_REFUSED(0, ignis_array_clone(a).id, status,
    diagnostic) */
#define CHECK_REFUSED(value, call, status, diagnostic) \
    (CHECK((call) == (value)), test__check_failure(__FILE__, __LINE__, #call, (status), (diagnostic)))

#define COUNT_OF(table) ((int)(sizeof(table) / sizeof((table)[0])))

static inline ignis_array_desc desc_of(ignis_shape shape, ignis_dtype dtype)
{
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape = shape;
    desc.dtype = dtype;
    return desc;
}

static inline ignis_array make(ignis_shape shape, ignis_dtype dtype)
{
    ignis_array_desc desc = desc_of(shape, dtype);
    return ignis_array_create(&desc);
}

static inline ignis_array_info info_of(ignis_array array)
{
    ignis_array_info info;
    memset(&info, 0, sizeof info);
    CHECK_OK(ignis_array_query(array, &info));
    return info;
}

static inline uint64_t version_of(ignis_array array) { return info_of(array).version; }

/*  A new i32 array with the elements first, first + 1, ... */
static inline ignis_array make_counting(ignis_shape shape, int32_t first)
{
    ignis_array array = make(shape, IGNIS_I32);
    int64_t n = ignis_array_numel(array), i;
    int32_t *values = (int32_t *)malloc((size_t)n * 4 + 1);
    for (i = 0; i < n; i++)
        values[i] = first + (int32_t)i;
    CHECK_OK(ignis_array_from_host_raw(array, values, n * 4));
    free(values);
    return array;
}

/*  An array has count elements: first, first + 1, ... */
#define CHECK_COUNTING(array, count, first) check_counting(__LINE__, array, count, first)
static inline void check_counting(int line, ignis_array array, int64_t count, int32_t first)
{
    int32_t values[4096];
    int64_t i, wrong = 0;
    test__check_int(__FILE__, line, "numel", ignis_array_numel(array), count);
    if (count > 4096 || ignis_array_numel(array) != count)
        return;
    CHECK_OK(ignis_array_to_host(array, values, IGNIS_I32, count));
    for (i = 0; i < count; i++)
        wrong += values[i] != first + (int32_t)i;
    test__check_int(__FILE__, line, "elements that are not as written", wrong, 0);
}

#define CHECK_SHAPE(array, shape) check_shape(__LINE__, array, shape)
static inline void check_shape(int line, ignis_array array, ignis_shape expected)
{
    ignis_array_info info = info_of(array);
    int i;
    test__check_int(__FILE__, line, "ndim", info.shape.ndim, expected.ndim);
    for (i = 0; i < expected.ndim; i++)
        test__check_int(__FILE__, line, "dim", info.shape.dim[i], expected.dim[i]);
}

/*  free an array that IGNIS_OWNER_IGNIS owns */
static inline void drop(ignis_array array) { CHECK_OK(ignis_array_free(array)); }

/*  A draw below a limit, of a thread that has its own state. */
static inline unsigned test_draw(unsigned *state, unsigned limit)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % limit;
}

/*  Puts a handle where several threads take it from, and gives back the one that was there. */
static inline uint64_t test_swap(uint64_t *place, uint64_t value)
{
    uint64_t before = ignis__atomic_load(place);
    while (!ignis__atomic_swap_if(place, &before, value))
        ;
    return before;
}

#endif /* ARRAY_H */
