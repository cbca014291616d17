#pragma once
/*  How keys and values are stored, as ignis_cache_type has it: see kernels/models/cache_types.cuh. */

enum { IGNIS__CACHE_NUMBERS, IGNIS__CACHE_F8, IGNIS__CACHE_Q8_0, IGNIS__CACHE_Q4_0 };
/*  Bytes of the numbers, and of the scales, of a key or value of such a type. */
#define IGNIS__CACHE_ROW(type, head_dim) ((type) == IGNIS__CACHE_Q4_0 ? (head_dim) / 2 : (head_dim))
#define IGNIS__CACHE_SCALES(type, head_dim) ((type) == IGNIS__CACHE_F8 ? 1 : (head_dim) / 16)
