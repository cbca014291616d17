// SPDX-License-Identifier: MIT
/*  kernel_part.h - the text that goes before a source of which only some kernels are compiled

    KERNEL_LEFT_OUT makes a kernel, whose name it takes three times, a template that nobody uses:
    "extern "C" __global__ void name(); template <int> __global__ void name(int *x, ...) {...}".
    It stays a __global__ function, as no other may have parameters that are __grid_constant__.
    KERNEL_PART_BEGIN comes after all of these: functions that only those kernels call are no mistake. */
#ifndef KERNEL_PART_H
#define KERNEL_PART_H

#define KERNEL_LEFT_OUT "#define %s %s(); template <int> __global__ void %s\n"
#define KERNEL_PART_BEGIN "#pragma nv_diag_suppress 177\n#line 1\n"

#endif /* KERNEL_PART_H */
