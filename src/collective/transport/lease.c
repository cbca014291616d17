/* ===============================================================================================================
   >>transport - VMM, legacy IPC, peer copy, host-staged: one table of functions each.
   =============================================================================================================== */

/* --- what it needs of the system: leases, which tell that nobody uses an array any more; shared host memory; who we are ---- */

/*  Beside descriptors, what a handle brings can lie in the private folder under a name, which whoever takes
    it removes: a FIFO as lease, a file with a copy. */
