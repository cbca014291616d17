// SPDX-License-Identifier: MIT
/* ignis.h alone; with -DIGNIS_IMPLEMENTATION its implementation too */
#include "ignis.h"

#ifdef WITH_MAIN
int main(void)
{
    ignis_shape shape = IGNIS_SHAPE(2, 3);
    ignis_array none = IGNIS_NO_ARRAY;
    return shape.ndim == 2 && none.id == 0 && ignis_version_string()[0] != 0 ? 0 : 1;
}
#endif
