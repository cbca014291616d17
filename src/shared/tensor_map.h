#pragma once
/*  A TMA map: a description of an array's tiles for TMA (sm_90 and up). The driver packs the bits on the host for each
    launch, and the kernel gets them by value, as const __grid_constant__: a graph keeps those of the capture. */
typedef struct IGNIS__ALIGNED(64) ignis__tensor_map {
    uint64_t words[16];
} ignis__tensor_map;
IGNIS__ASSERT_SIZE(ignis__tensor_map, 128);
