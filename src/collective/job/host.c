/*  Which system this is, and which namespaces of it. IGNIS_COMM_HOST says it instead. */
static uint64_t ignis__job_host(void)
{
    const char *named = ignis__env("IGNIS_COMM_HOST");
    return named && *named ? ignis__hash(IGNIS__HASH_START, named, strlen(named))
                           : ignis__host_namespaces(ignis__host_hash());
}
