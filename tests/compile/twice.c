// SPDX-License-Identifier: MIT
/* declarations first, the implementation later, and each of them twice */
#include "ignis.h"
#include "ignis.h"

ignis_shape made_between(void);
ignis_shape made_between(void)
{
    ignis_shape shape = IGNIS_SHAPE(2, 3);
    return shape;
}

#define IGNIS_IMPLEMENTATION
#include "ignis.h"
#include "ignis.h"
#include "ignis_collective.h"
#include "ignis_collective.h"
#include "ignis_kernels.h"
#include "ignis_kernels.h"
