/*  >>collective.setup - what to close at ignis_shutdown

    Keeps one close function a section of this header. A section registers its function at its first use;
    ignis_shutdown then calls them, the sections that build on others first.
    Uses: ignis__closers of ignis.h.
    Locks: ignis__sections.lock, around the table alone. */

#include "room.h"

static struct {
    ignis__mutex lock;
    void (*close[IGNIS__SECTION_COUNT])(const char *call);
} ignis__sections = {IGNIS__MUTEX_INIT, {NULL}};

static void ignis__sections_close(const char *call)
{
    int i;
    for (i = IGNIS__SECTION_COUNT - 1; i >= 0; i--)
        if (ignis__sections.close[i])
            ignis__sections.close[i](call);
}

IGNIS__PRIVATE void ignis__section_use(ignis__section section, void (*close)(const char *call))
{
    ignis__mutex_lock(&ignis__sections.lock);
    ignis__sections.close[section] = close;
    ignis__closers[IGNIS__CLOSE_COLLECTIVE] = ignis__sections_close;
    ignis__mutex_unlock(&ignis__sections.lock);
}

/*  Checks at the start of every public function that creates or finds an object of this header. */
IGNIS__PRIVATE bool ignis__collective_enter(const char *call)
{
    return ignis__enter(call) &&
           (!ignis__global.dry_run || ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                                        "a dry run has one device in one process; it shares nothing"));
}
