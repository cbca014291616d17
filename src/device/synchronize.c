/*  device/synchronize.c - ignis_synchronize

    Waits for the current device and reports what failed meanwhile, on the thread that asks.
    May use: stream.c, callback.c. Locks: none of its own. */

#include "room.h"

IGNIS_API ignis_status ignis_synchronize(void)
{
    static const char call[] = "ignis_synchronize";
    ignis__binding binding;
    ignis__device *device;
    bool ok;
    if (!ignis__enter(call) || ignis__capture_refuses(call) ||
        (device = ignis__device_current_enter(call, &binding)) == NULL)
        return ignis__failed();
    ok = ignis__device_wait(call, device);
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}
