// SPDX-License-Identifier: MIT
/* {} in the place of a desc, in C++: it is a null pointer, all defaults where a desc may be null, and means one
   function alone; and descs by reference. */
#include "ignis.h"
#ifdef WITH_MODELS
#include "ignis_models.h"
#endif

ignis_status begin() { return ignis_setup({}); }
ignis_array array() { return ignis_array_create({}); }
ignis_kernel kernel() { return ignis_kernel_compile({}); }
void *stream() { return ignis_stream_create({}); }
ignis_tensor zeros() { return ignis_tensor_zeros(IGNIS_SHAPE(2), {}); }
ignis_tensor attention(ignis_tensor x) { return ignis_sdpa(x, x, x, {}); }
ignis_optimizer optimizer() { return ignis_adamw({}); }
ignis_tensor numbers() { return ignis_add(ignis_tensor_arange(0, 4, 1, {}), ignis_tensor_linspace(0, 1, 4, {})); }

/* By reference. */
ignis_tensor range(const ignis_tensor_desc &desc) { return ignis_tensor_arange(0, 4, 1, desc); }
ignis_tensor steps(const ignis_tensor_desc &desc) { return ignis_tensor_linspace(0, 1, 4, desc); }
ignis_tensor identity(const ignis_tensor_desc &desc) { return ignis_tensor_eye(2, 2, desc); }
ignis_tensor sums(ignis_tensor x, const ignis_reduce_desc &desc)
{
    return ignis_map_reduce(IGNIS_REDUCE_SUM, "x*x", IGNIS_INPUTS(x), desc);
}

/* Each of two descs is a reference, a pointer or {}. */
ignis_tensor packed(ignis_tensor x, const ignis_sdpa_desc &desc, const ignis_rope_desc &rope)
{
    ignis_tensor made[] = {ignis_sdpa_packed(x, desc, rope),  ignis_sdpa_packed(x, desc, &rope),
                           ignis_sdpa_packed(x, &desc, rope), ignis_sdpa_packed(x, &desc, &rope),
                           ignis_sdpa_packed(x, desc, {}),    ignis_sdpa_packed(x, {}, rope),
                           ignis_sdpa_packed(x, {}, {})};
    return ignis_concat(made, 7, 0);
}
#ifdef WITH_MODELS
ignis_status text(ignis_sequence sequence, const ignis_generate_desc &desc) { return ignis_generate(sequence, desc); }
#endif
