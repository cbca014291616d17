/* >>contract - who owns an array, who may free it; the audit ---------------------------------------------------- */

typedef struct ignis_contract_entry {
    uint64_t array_id; /* ignis_array_info.id */
    ignis_owner owner; /* now, or when it was freed */
    int64_t age_ms;    /* since it was tracked */
    ignis_shape shape;
    ignis_dtype dtype;
    bool freed;
    char tag[32];
    int64_t bytes;
    int ref_count;
    int views;   /* other arrays that share the memory */
    int exports; /* handles of it that other processes hold, or may still open */
} ignis_contract_entry;

/*  ignis_contract_acquire - take the ownership of an array for a layer, before that layer works on it
    The array is tracked from then on.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (already owned by it, or ref_count above 1).
    Ownership: moves to by.
    Threads: any; acquisitions are one at a time. */
IGNIS_API ignis_status ignis_contract_acquire(ignis_array array, ignis_owner by);

/*  ignis_contract_release - return the ownership of an array to IGNIS_OWNER_IGNIS
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (not owned by it, or ref_count above 1).
    Ownership: moves to IGNIS_OWNER_IGNIS.
    Threads: any; releases are one at a time. */
IGNIS_API ignis_status ignis_contract_release(ignis_array array, ignis_owner by);

/*  ignis_contract_assert_owner - check that an array is owned by the expected owner
    Returns: IGNIS_OK if it is.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (another owner).
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_contract_assert_owner(ignis_array array, ignis_owner owner);

/*  ignis_contract_track - list an array in the audit; ignis_contract_untrack - remove it, also after it was freed
    Tracking again restarts its age. An array that was tracked by this call stays in the audit as freed until it is
    untracked; one that was only acquired leaves the audit when it is freed.
    Returns: IGNIS_OK, or the reason; untracking an array that is not tracked is fine.
    Errors: FREED (track), MEMORY.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_contract_track(ignis_array array);
IGNIS_API ignis_status ignis_contract_untrack(ignis_array array);

/*  ignis_contract_audit - list the tracked arrays older than min_age_ms milliseconds, oldest first
    0 means 5000, because only old arrays are likely leaks; a negative number lists all. entries may be null if
    capacity is 0.
    Returns: the number of entries, also if that is more than capacity; -1 on failure.
    Errors: ARGUMENT.
    Ownership: entries are copies.
    Threads: any. */
IGNIS_API int ignis_contract_audit(ignis_contract_entry *entries, int capacity, int64_t min_age_ms);

/*  ignis_contract_tracked_count - return the number of tracked arrays
    Returns: the count, -1 on failure.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_contract_tracked_count(void);

/*  ignis_contract_reset - stop tracking all arrays; owners and arrays stay unchanged
    Returns: IGNIS_OK.
    Errors: NOT_SETUP.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_contract_reset(void);
