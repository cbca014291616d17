/* ===============================================================================================================
   >>vmm - physical memory, address ranges, mappings, access; export and import.
   =============================================================================================================== */

/* --- what is open in ignis_collective.h ------------------------------------------------------------------------------- */

/*  A section that has something to close says so when it is first used; what was built on others is closed
    before them. */
typedef enum ignis__section {
    IGNIS__SECTION_VMM,
    IGNIS__SECTION_CHANNEL,
    IGNIS__SECTION_TRANSPORT,
    IGNIS__SECTION_JOB,
    IGNIS__SECTION_COMM,
    IGNIS__SECTION_PARALLEL,
    IGNIS__SECTION_COUNT
} ignis__section;

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

static void ignis__section_use(ignis__section section, void (*close)(const char *call))
{
    ignis__mutex_lock(&ignis__sections.lock);
    ignis__sections.close[section] = close;
    ignis__collective_close = ignis__sections_close;
    ignis__mutex_unlock(&ignis__sections.lock);
}

/*  The check that stands first in every public function that makes or finds something of this header. */
static bool ignis__collective_enter(const char *call)
{
    return ignis__enter(call) &&
           (!ignis__global.dry_run ||
            ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                              "this is a dry run, of one device in one process: nothing is shared in it"));
}
