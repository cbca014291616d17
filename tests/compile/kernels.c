// SPDX-License-Identifier: MIT
/* ignis_kernels.h alone */
#include "ignis_kernels.h"

typedef int not_empty;
