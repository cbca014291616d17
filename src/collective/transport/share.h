/* >>share - arrays that two processes use -----------------------------------------------------------------------

   One call sends an array through a channel, one receives it; both processes then use the same memory.
   Ownership: the memory lives until both have freed their arrays, also if one of them dies.
   Threads: every function may be called from any thread. */

/*  ignis_share_send - share an array with the peer of a channel, without a copy
    The array is one of ignis_vmm_array, or in memory of ignis_vmm_create. A view can be sent, but all its
    memory becomes accessible. Waits for the work on its device, so the peer finds what was written before.
    Both then use the same memory and agree by messages when each may write.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (IGNIS_DIAG_NOT_SHAREABLE; a listening channel), UNSUPPORTED
    (IGNIS_DIAG_CHANNEL_DESCRIPTOR: not a channel of the default method; this thread captures a graph), PEER,
    TIMEOUT, CUDA, MEMORY.
    Ownership: the caller keeps the array, which has one reference more. It can be neither freed nor
    transferred (IGNIS_DIAG_FREE_EXPORTED) until the other process has freed its array or died. Closing the
    channel does not change this.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_share_send(ignis_channel channel, ignis_array array);

/*  ignis_share_receive - receive the next array from a channel
    It is an ordinary array on the same GPU, which may have another ordinal here. Shape, dtype and tag are the
    sender's. The description is checked before any use.
    Returns: the array, or no handle.
    Errors: FREED, ARGUMENT (a listening channel; the next item is a message, which stays for
    ignis_channel_receive), FORMAT (IGNIS_DIAG_TRANSPORT_RECORD: not an array), MISMATCH and PEER (the
    description is wrong, as for ignis_transport_import_handle), UNSUPPORTED
    (IGNIS_DIAG_TRANSPORT_UNAVAILABLE: this process does not see the GPU), PEER, TIMEOUT, CUDA, MEMORY.
    Ownership: the caller frees it with ignis_array_free; its memory lives until both processes have freed it,
    also if the sender dies.
    Threads: any. Waits until the deadline. */
IGNIS_API ignis_array ignis_share_receive(ignis_channel channel);
