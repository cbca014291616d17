// SPDX-License-Identifier: MIT
/* the unit that only uses Ignis; linked with ignis.c, which implements it */
#ifdef WITH_COLLECTIVE
#include "ignis_collective.h"
#else
#include "ignis.h"
#endif

int main(void)
{
    ignis_array_desc desc = {IGNIS_SHAPE(2, 3), IGNIS_F32, 0, IGNIS_OWNER_IGNIS, NULL, NULL, NULL, NULL, NULL};
    ignis_array array = ignis_array_create(&desc);
    if (array.id != 0 || ignis_status_last() != IGNIS_ERROR_NOT_SETUP)
        return 1;
    ignis_status_clear();
#ifdef WITH_COLLECTIVE
    if (ignis_comm_init(NULL).id != 0 || ignis_status_last() != IGNIS_ERROR_NOT_SETUP)
        return 1;
    ignis_status_clear();
#endif
    return ignis_shutdown() == IGNIS_OK ? 0 : 1;
}
