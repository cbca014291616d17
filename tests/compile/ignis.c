// SPDX-License-Identifier: MIT
/* ignis.h alone; with -DIGNIS_IMPLEMENTATION its implementation too */
#include "ignis.h"

#ifdef WITH_MAIN
#if defined(_WIN32) && defined(IGNIS_IMPLEMENTATION)
/* Names that windows.h has macros of, and programs too; FAR is what headers of Windows still need. */
static int names_of_windows(void)
{
    int near = 1, far = 2, IN = 3, OUT = 4, OPTIONAL = 5, min = 6, max = 7, ERROR = 8;
    return near + far + IN + OUT + OPTIONAL + min + max + ERROR == 36 && sizeof(char FAR *) == 8;
}
#else
static int names_of_windows(void) { return 1; }
#endif

int main(void)
{
    ignis_shape shape = IGNIS_SHAPE(2, 3);
    ignis_array none = IGNIS_NO_ARRAY;
    return names_of_windows() && shape.ndim == 2 && none.id == 0 && ignis_version_string()[0] != 0 ? 0 : 1;
}
#endif
