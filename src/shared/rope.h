#pragma once
enum { IGNIS__ROPE_HALF = 256 }; /* pairs of a head that are rotated, at most */

/*  kernels/attention_hopper_backward.cu: the rotation of q and k; their gradients are rotated back. */
typedef struct ignis__rotation {
    long long offset;                /* position of the first row */
    IGNIS__POINTER(const float) own; /* frequencies on the device; or null: those after it */
    float frequencies[IGNIS__ROPE_HALF];
} ignis__rotation;
IGNIS__ASSERT_SIZE(ignis__rotation, 1040);
