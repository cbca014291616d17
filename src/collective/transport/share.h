/* >>share - arrays that two processes use ----------------------------------------------------------------------- */

/*  ignis_share_send - give the process at the other end of a channel an array to use as its own, without a
    copy
    The array was made by ignis_vmm_array (or lies in memory of ignis_vmm_create); a view will do, but all the
    memory that it lies in becomes accessible. Waits for the work on its device, so the other side finds what
    was written before. From then on both use the same memory: who may write when is theirs to agree on, by
    messages through the channel.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (IGNIS_DIAG_NOT_SHAREABLE; a listening channel), UNSUPPORTED
    (IGNIS_DIAG_CHANNEL_DESCRIPTOR: not a channel of the default method; this thread captures a graph), PEER,
    TIMEOUT, CUDA, MEMORY.
    Ownership: the array stays the caller's, and has one reference more; it is neither freed nor transferred
    (IGNIS_DIAG_FREE_EXPORTED) until the other process has freed its array, or died. Closing the channel
    changes nothing of that.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_share_send(ignis_channel channel, ignis_array array);

/*  ignis_share_receive - take the next array from a channel
    It is an ordinary array, on the same GPU, whatever number that has here; its shape, dtype and tag are the
    sender's. What the sender says is checked before anything is done with it.
    Returns: the array, or no handle.
    Errors: FREED, ARGUMENT (a listening channel; what came next is a message, which stays for
    ignis_channel_receive), FORMAT (IGNIS_DIAG_TRANSPORT_RECORD: what came is no array), MISMATCH and PEER
    (what it says is not true, as for ignis_transport_import_handle), UNSUPPORTED
    (IGNIS_DIAG_TRANSPORT_UNAVAILABLE: this process does not see the GPU), PEER, TIMEOUT, CUDA, MEMORY.
    Ownership: the caller frees it with ignis_array_free; its memory lives until both sides have freed it,
    also when the sender dies.
    Threads: any. Waits until the deadline. */
IGNIS_API ignis_array ignis_share_receive(ignis_channel channel);
