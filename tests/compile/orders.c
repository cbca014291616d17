// SPDX-License-Identifier: MIT
/* The headers in the order that -DORDER=1 to 5 names, each twice: with -DIGNIS_IMPLEMENTATION implemented the first
   time, with -DLATER declared the first time and implemented the second. */
#include "orders.h"
#ifdef LATER
#define IGNIS_IMPLEMENTATION
#endif
#include "orders.h"

ignis_model ignis_share(const char *path, ignis_comm comm);
ignis_model ignis_share(const char *path, ignis_comm comm)
{
    ignis_model_desc desc = {path,
                             IGNIS_BF16,
                             IGNIS_WEIGHTS_DEFAULT,
                             0,
                             false,
                             0,
                             0,
                             IGNIS_BF16,
                             NULL,
                             NULL,
                             ignis_comm_parallel(comm),
                             IGNIS_CACHE_DEFAULT,
                             false};
    return ignis_model_open(&desc);
}
