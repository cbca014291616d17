// SPDX-License-Identifier: MIT
/* ignis_collective.h alone; with -DIGNIS_IMPLEMENTATION its implementation, and that of ignis.h, too */
#include "ignis_collective.h"

#ifdef WITH_MAIN
int main(void)
{
    ignis_channel none = {0};
    ignis_channel_info info;
    return ignis_channel_query(none, &info) != IGNIS_OK && ignis_version_string()[0] != 0 ? 0 : 1;
}
#endif
