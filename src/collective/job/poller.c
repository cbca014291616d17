/*  >>job.poller - the poller: one thread waits for all ranks

    The type; the functions are in system_posix.c and system_windows.c.
    Uses: connections.
    Invariants: one thread waits, any thread may wake it.
    Locks: none. */

#include "room.h"
