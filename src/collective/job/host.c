/*  >>job.host - which ranks can share memory

    Two ranks are of one host if system and namespaces are equal.
    Uses: the functions of the system.
    Invariants: IGNIS_COMM_HOST overrides the answer, for tests. */

#include "room.h"

/*  Returns a hash of this system and its namespaces, or of IGNIS_COMM_HOST. */
IGNIS__PRIVATE uint64_t ignis__job_host(void)
{
    const char *named = ignis__env("IGNIS_COMM_HOST");
    return named && *named ? ignis__hash(IGNIS__HASH_START, named, strlen(named))
                           : ignis__host_namespaces(ignis__host_hash());
}
