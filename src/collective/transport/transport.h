/* >>transport - copies between devices and processes, by VMM, legacy IPC, peer copy or host memory -------------- */

/*  How the content of an array gets from one device to another, or from one process to another. */
typedef enum ignis_transport_kind {
    IGNIS_TRANSPORT_AUTO = 0, /* the best one that has worked in a test write and read */
    IGNIS_TRANSPORT_VMM,      /* both sides map the same physical memory: no copy; arrays of ignis_vmm_array */
    IGNIS_TRANSPORT_PEER,     /* one process copies from device to device */
    /* CUDA's older handles: no copy; arrays of ignis_ipc_array. Never chosen by itself: if the exporter dies
       while others use its memory, they fault */
    IGNIS_TRANSPORT_IPC,
    IGNIS_TRANSPORT_HOST, /* through host memory that both sides map */
    IGNIS_TRANSPORT_KIND_COUNT
} ignis_transport_kind;

/*  A way for arrays from one device to another, or from one process to another. */
typedef struct ignis_transport {
    uint64_t id;
} ignis_transport;

#define IGNIS_TRANSPORT_TOKEN_BYTES 16 /* of ignis_transport_desc.token */

typedef struct ignis_transport_desc {
    /* IGNIS_TRANSPORT_AUTO: what IGNIS_TRANSPORT in the environment names (vmm, peer, ipc, host), or the
       best */
    ignis_transport_kind kind;
    /* where arrays come from, and are used (the thread's current device; IGNIS_DEVICE_0 for device 0) */
    int src_device, dst_device;
    /* how handles travel, where the caller sends them (that of the channel, else the default) */
    ignis_channel_method exchange;
    /* a connected channel that send and receive put handles into (none); it stays the caller's */
    ignis_channel channel;
    /* IGNIS_TRANSPORT_TOKEN_BYTES that both sides know (a secret of this user, in his private folder) */
    const unsigned char *token;
    double timeout_s; /* what a receive waits at most for a sender of this process, in seconds (30) */
} ignis_transport_desc;

/*  What another process needs to have an array. The record can travel as bytes; the descriptors beside it
    through a socket: ignis_transport_handle_fds says which; on Windows they are handles, as int. With an
    exchange method that carries none, handles of all kinds but IGNIS_TRANSPORT_VMM need none: what belongs to
    them lies under a name in the private folder (that of the channel, else the default one of channels), and
    whoever imports the handle first takes it from there. */
#define IGNIS_TRANSPORT_RECORD_BYTES 296

typedef struct ignis_transport_handle {
    unsigned char record[IGNIS_TRANSPORT_RECORD_BYTES]; /* who, and what; sealed with the token */
    ignis_vmm_handle memory;                            /* of IGNIS_TRANSPORT_VMM and _HOST */
    bool has_lease;
    int lease; /* a pipe: as long as somebody has this end open, the exporter knows that the array is in use */
} ignis_transport_handle;

typedef struct ignis_transport_info {
    ignis_transport_kind kind;
    const char *name; /* "VMM", "peer", "IPC", "host" */
    int src_device, dst_device;
    ignis_channel_method exchange;
    bool ready;
    bool zero_copy;                                       /* an imported array is the exporter's memory */
    double estimated_bandwidth_gbs, estimated_latency_us; /* 1e9 bytes a second; microseconds */
    double measured_bandwidth_gbs, measured_latency_us;   /* by ignis_transport_measure; 0: not measured */
    int exported;                                         /* handles that are out */
    int imported; /* arrays that ignis_transport_import_handle has made, alive */
    int mappings; /* that these share */
} ignis_transport_info;

typedef struct ignis_transport_choice {
    ignis_transport_kind kind;
    char reason[1024]; /* why it, and why none of those before it */
} ignis_transport_choice;

/*  ignis_transport_available - whether two devices can reach each other that way
    Returns: true; or false, and why not in reason, of `capacity` bytes (may be null).
    Errors: none but NOT_SETUP, DEVICE and ARGUMENT; what makes a kind unavailable is no failure.
    Ownership: nothing to free.
    Threads: any. May write and read a little device memory. */
IGNIS_API bool ignis_transport_available(ignis_transport_kind kind, int src_device, int dst_device, char *reason,
                                         size_t capacity);

/*  ignis_transport_select - the kind that IGNIS_TRANSPORT_AUTO stands for; same_process: both sides are this
    process
    Returns: IGNIS_OK, and *choice filled.
    Errors: ARGUMENT (also an IGNIS_TRANSPORT that names no kind), DEVICE, UNSUPPORTED (none is available).
    Ownership: nothing to free.
    Threads: any. May write and read a little device memory. */
IGNIS_API ignis_status ignis_transport_select(int src_device, int dst_device, bool same_process,
                                              ignis_transport_choice *choice);

/*  ignis_transport_create - a transport between two devices, or two processes
    Without a channel, handles are the caller's to carry; the peer kind works within one process only.
    Returns: the transport, or no handle.
    Errors: ARGUMENT, DEVICE, FREED (the channel), UNSUPPORTED (the kind is not available), IO (the token's
    folder), MEMORY.
    Ownership: the caller ends it with ignis_transport_destroy.
    Threads: any. */
IGNIS_API ignis_transport ignis_transport_create(const ignis_transport_desc *desc);

/*  ignis_transport_initialize - open both devices, and access between them where the kind needs it; a second
    time does nothing
    ignis_transport_ready - whether that was done
    Returns: IGNIS_OK, or the reason; true or false.
    Errors: FREED; of ignis_transport_initialize, DEVICE, UNSUPPORTED, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_initialize(ignis_transport transport);
IGNIS_API bool ignis_transport_ready(ignis_transport transport);

/*  ignis_transport_query - facts about a transport
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT.
    Ownership: nothing to free; info->name is a constant.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_query(ignis_transport transport, ignis_transport_info *info);

/*  ignis_transport_to_string - "IPC[0->1, named_pipe]": kind, devices, exchange method
    Returns: the length of the whole text, which is cut to capacity; -1 on failure.
    Errors: FREED, ARGUMENT.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_transport_to_string(ignis_transport transport, char *out, size_t capacity);

/*  ignis_transport_export_handle - make an array known to another process
    ignis_transport_exported_handle - the handle of the array that was exported last, of those that are still
    out, once more The importer sees what was written before; of IGNIS_TRANSPORT_HOST a copy of it. The same
    array, exported again, has the same record. Waits for the work on the array.
    Returns: IGNIS_OK, and *handle filled.
    Errors: FREED, ARGUMENT (not initialized; the array lies in memory that cannot be shared, with what to use
    instead; of exported_handle, IGNIS_DIAG_TRANSPORT_HANDLE: none is out), DEVICE (it is not on src_device),
    CUDA, IO, MEMORY.
    Ownership: the array is exported (ref_count, and it can be neither freed nor transferred) until the handle
    is closed and nobody has a copy of it or an import from it, dead processes not counted. The caller closes
    the handle: ignis_transport_handle_close.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_transport_export_handle(ignis_transport transport, ignis_array array,
                                                     ignis_transport_handle *handle);
IGNIS_API ignis_status ignis_transport_exported_handle(ignis_transport transport, ignis_transport_handle *handle);

/*  ignis_transport_handle_fds - the descriptors that have to travel with a handle's record, up to two
    ignis_transport_handle_from_fds - puts a handle together from what came
    Returns: how many were written to fds; or IGNIS_OK.
    Errors: ARGUMENT (null; another number of descriptors than the record says).
    Ownership: the descriptors stay the handle's; from_fds takes them over, also when it fails.
    Threads: any. */
IGNIS_API int ignis_transport_handle_fds(const ignis_transport_handle *handle, int fds[2]);
IGNIS_API ignis_status ignis_transport_handle_from_fds(ignis_transport_handle *handle, const void *record,
                                                       const int *fds, int fd_count);

/*  ignis_transport_handle_close - close the descriptors of a handle that was sent, or imported; a second time
    does nothing
    Returns: IGNIS_OK.
    Errors: ARGUMENT (null).
    Ownership: *handle is emptied. What was imported stays.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_handle_close(ignis_transport_handle *handle);

/*  ignis_transport_release_handle - declare, as the exporter, that nobody uses an array any more
    Needed where the other side cannot say so: a handle that was never imported, and for which there is no
    channel that could have ended; or one that travelled without its lease.
    Returns: IGNIS_OK; also when nothing of it is exported.
    Errors: FREED.
    Ownership: the array can be freed afterwards.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_release_handle(ignis_transport transport, ignis_array array);

/*  ignis_transport_import_handle - the array of a handle, on dst_device
    ignis_transport_recv_with_handle - the same A handle is checked before the driver sees it: its seal, its
    size, its numbers, its device. Memory is what this process has mapped, or has exported itself, and what a
    handle says of it has to agree with that. With a channel by a socket, the sender has to be its other side,
    as the kernel names it. The same handle, imported again, shares the mapping. Shape, dtype and tag are the
    exporter's.
    Returns: an array, or no handle.
    Errors: FREED, ARGUMENT (not initialized; another kind), FORMAT (IGNIS_DIAG_TRANSPORT_RECORD: no handle,
    or its seal is broken), MISMATCH (IGNIS_DIAG_TRANSPORT_MISMATCH: it contradicts itself, the memory, or
    what came before; it is not exported any more), PEER (IGNIS_DIAG_TRANSPORT_PEER: it is of another process
    than its sender), UNSUPPORTED (the exporter's device is not visible here), CUDA, IO, MEMORY.
    Ownership: the caller frees the array, or calls ignis_transport_close_imported_handle. The handle stays
    the caller's.
    Threads: any. */
IGNIS_API ignis_array ignis_transport_import_handle(ignis_transport transport, const ignis_transport_handle *handle);
IGNIS_API ignis_array ignis_transport_recv_with_handle(ignis_transport transport, const ignis_transport_handle *handle);

/*  ignis_transport_close_imported_handle - free an array that was imported; with the last one, and its views,
    the mapping goes
    Returns: IGNIS_OK, or why the array was left as it is.
    Errors: FREED, ARGUMENT (this transport has not imported it), CONTRACT (references).
    Ownership: the array's handle is stale afterwards; then the exporter may free its own.
    Threads: any. Waits for the work on it. */
IGNIS_API ignis_status ignis_transport_close_imported_handle(ignis_transport transport, ignis_array array);

/*  ignis_transport_send, ignis_transport_send_async - make an array's content available to the receiver
    Its handle goes to *handle; or, when that is null, through the transport's channel; or, of the kinds that
    copy, to a receive of this process. The sync form waits for the work on the array; after the async one,
    call ignis_transport_synchronize before the receiver reads. Leave the array as it is until it has. Through
    FIFOs and shared memory all kinds travel but IGNIS_TRANSPORT_VMM, whose memory is a descriptor.
    Returns: IGNIS_OK, or the reason.
    Errors: those of ignis_transport_export_handle and ignis_channel_send; ARGUMENT
    (IGNIS_DIAG_TRANSPORT_HANDLE: nowhere to put it), UNSUPPORTED (IGNIS_DIAG_CHANNEL_DESCRIPTOR:
    IGNIS_TRANSPORT_VMM needs a channel that carries descriptors).
    Ownership: as for ignis_transport_export_handle.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_send(ignis_transport transport, ignis_array array,
                                            ignis_transport_handle *handle);
IGNIS_API ignis_status ignis_transport_send_async(ignis_transport transport, ignis_array array,
                                                  ignis_transport_handle *handle);

/*  ignis_transport_recv, ignis_transport_recv_async - copy what was sent into an array, for the kinds that
    copy
    The kinds that share memory have nothing to copy: ignis_transport_recv_with_handle gives the sender's
    array itself. The sync form waits for the copy; the async one leaves it on the current stream of
    dst_device.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (IGNIS_DIAG_TRANSPORT_HANDLE: the kind shares memory; not initialized), SHAPE,
    DTYPE, TIMEOUT (nothing was sent), those of import and ignis_channel_receive.
    Ownership: nothing to free.
    Threads: any. Waits until the deadline. Streams: queued on the current stream of dst_device. */
IGNIS_API ignis_status ignis_transport_recv(ignis_transport transport, ignis_array array);
IGNIS_API ignis_status ignis_transport_recv_async(ignis_transport transport, ignis_array array);

/*  ignis_transport_receive_handle - the next handle from the transport's channel
    Returns: IGNIS_OK, and *handle filled.
    Errors: FREED, ARGUMENT (it has no channel), those of ignis_channel_receive, and of an import for a handle
    that is none.
    Ownership: the caller closes the handle: ignis_transport_handle_close.
    Threads: any. Waits until the channel's deadline. */
IGNIS_API ignis_status ignis_transport_receive_handle(ignis_transport transport, ignis_transport_handle *handle);

/*  ignis_transport_synchronize - wait for all work on both devices
    Returns: IGNIS_OK, or the failure of an earlier kernel or copy.
    Errors: FREED, ARGUMENT (not initialized), DEVICE, CUDA.
    Ownership: nothing to free.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_transport_synchronize(ignis_transport transport);

/*  ignis_transport_measure - copy from src_device to dst_device the way the transport does, and note
    bandwidth and latency
    Units: bytes of the larger copy (0: 64 MiB); the results are in ignis_transport_info.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT, MEMORY, CUDA.
    Ownership: nothing to free.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_transport_measure(ignis_transport transport, int64_t bytes);

/*  ignis_transport_destroy - end a transport
    What it has exported counts as released, arrays that it has imported are freed; views of these stay valid.
    Returns: IGNIS_OK.
    Errors: FREED.
    Ownership: the handle is stale afterwards. The channel stays the caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_destroy(ignis_transport transport);

/*  ignis_ipc_array - an array in a driver allocation of its own, of whole 2 MiB blocks, for
    IGNIS_TRANSPORT_IPC
    An exported handle shows the whole allocation to the other side, so what is shared by it must not have
    neighbours. desc as for ignis_array_create, without ptr and release_fn.
    Returns: the array, or no handle.
    Errors: ARGUMENT, SHAPE, DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it as any array.
    Threads: any. */
IGNIS_API ignis_array ignis_ipc_array(const ignis_array_desc *desc);
