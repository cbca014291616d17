// SPDX-License-Identifier: MIT
/* {} in the place of a desc, in C++: it is a null pointer, all defaults where a desc may be null, and means one function alone. */
#include "ignis.h"

ignis_status begin() { return ignis_setup({}); }
ignis_array array() { return ignis_array_create({}); }
ignis_kernel kernel() { return ignis_kernel_compile({}); }
void *stream() { return ignis_stream_create({}); }
ignis_tensor zeros() { return ignis_tensor_zeros(IGNIS_SHAPE(2), {}); }
ignis_tensor attention(ignis_tensor x) { return ignis_sdpa(x, x, x, {}); }
ignis_optimizer optimizer() { return ignis_adamw({}); }
