// SPDX-License-Identifier: MIT
// the same in C++, with option structs by reference; with IGNIS_STATIC in two units, each of which has Ignis for itself
#ifdef WITH_COLLECTIVE
#include "ignis_collective.h"
#else
#include "ignis.h"
#endif

// A failure is recorded by the Ignis of this unit.
static bool failures_are_seen()
{
    ignis_array_desc desc = {};
    desc.shape = IGNIS_SHAPE(2, 3);
    ignis_array array = ignis_array_create(desc);
    if (array.id != 0 || ignis_status_last() != IGNIS_ERROR_NOT_SETUP)
        return false;
    ignis_status_clear();
#ifndef IGNIS_NO_TENSORS
    ignis_tensor_desc tensor_desc = {};
    tensor_desc.host_count = 1;
    float number = 1;
    if (ignis_tensor_from_host(&number, IGNIS_SHAPE(1), tensor_desc).id != 0 ||
        ignis_tensor_zeros(IGNIS_SHAPE(1), NULL).id != 0 || ignis_tensor_randn(IGNIS_SHAPE(1), tensor_desc).id != 0 ||
        ignis_status_last() != IGNIS_ERROR_NOT_SETUP)
        return 1;
    ignis_status_clear();
#endif
#ifdef WITH_COLLECTIVE
    ignis_comm_desc comm = {};
    if (ignis_comm_init(comm).id != 0 || ignis_status_last() != IGNIS_ERROR_NOT_SETUP)
        return false;
    ignis_status_clear();
#endif
    return ignis_shutdown() == IGNIS_OK;
}

bool first_unit();
#ifdef FIRST_UNIT
bool first_unit() { return failures_are_seen(); }
#else
int main()
{
#ifdef WITH_FIRST_UNIT
    if (!first_unit())
        return 1;
#endif
    return failures_are_seen() ? 0 : 1;
}
#endif
