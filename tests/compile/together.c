// SPDX-License-Identifier: MIT
/* all headers, in the order that a user would choose last */
#include "ignis_collective.h"
#include "ignis_kernels.h"
#include "ignis.h"
