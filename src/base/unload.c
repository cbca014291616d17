/*  base/unload.c - runs when the library or program with Ignis inside is unloaded

    Cancels handlers at thread exit, and frees slots and messages if nothing is set up.
    May use: pool.c, error_record.c. Locks: ignis__setup_lock, tried, because another thread may hold it for ever. */

#include "room.h"

IGNIS__PRIVATE void (*ignis__closers[IGNIS__CLOSE_COUNT])(const char *call);

/*  Held by ignis_setup, ignis_shutdown, and while the library is unloaded. */
IGNIS__PRIVATE ignis__mutex ignis__setup_lock = IGNIS__MUTEX_INIT;

/*  Runs when a library with Ignis inside is unloaded, or the program ends, while other threads live on. No thread calls
    Ignis after that. Memory that threads have allocated since ignis_shutdown stays allocated. Without ignis_shutdown,
    as in a program that just ends, other threads may still use Ignis. */
IGNIS__AT_UNLOAD IGNIS__PRIVATE void ignis__unload(void)
{
    if (ignis__atomic_load(&ignis__global.forked)) {
        ignis__thread_exits_close();
        return;
    }
    if (ignis__mutex_try(&ignis__setup_lock)) {
        if (!ignis__atomic_load(&ignis__global.ready)) {
            ignis__messages_cut(&ignis__this_thread);
            ignis__pools_free();
        }
        ignis__mutex_unlock(&ignis__setup_lock);
    }
    ignis__thread_exits_close();
}
