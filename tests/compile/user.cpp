// the same in C++, with option structs by reference
#include "ignis.h"

int main()
{
    ignis_array_desc desc = {};
    desc.shape = IGNIS_SHAPE(2, 3);
    ignis_array array = ignis_array_create(desc);
    if (array.id != 0 || ignis_status_last() != IGNIS_ERROR_NOT_SETUP)
        return 1;
    ignis_status_clear();
    return ignis_shutdown() == IGNIS_OK ? 0 : 1;
}
