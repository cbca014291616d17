/* >>transport - copies between devices and processes, by VMM, legacy IPC, peer copy or host memory --------------

   A transport exports an array as a handle and imports it on another device or in another process. Some kinds
   share the memory, others copy. Handles travel through a channel, or the caller carries them.
   Threads: every function may be called from any thread. */

/*  Kinds of transports. */
typedef enum ignis_transport_kind {
    IGNIS_TRANSPORT_AUTO = 0, /* the best kind that passed a test write and read */
    IGNIS_TRANSPORT_VMM,      /* both sides map the same physical memory: no copy; arrays of ignis_vmm_array */
    IGNIS_TRANSPORT_PEER,     /* one process copies from device to device */
    /* CUDA's older handles: no copy; arrays of ignis_ipc_array. Never chosen by AUTO: if the exporter dies,
       users of its memory fault */
    IGNIS_TRANSPORT_IPC,
    IGNIS_TRANSPORT_HOST, /* through host memory that both sides map */
    IGNIS_TRANSPORT_KIND_COUNT
} ignis_transport_kind;

/*  A transport of arrays between two devices or processes. */
typedef struct ignis_transport {
    uint64_t id;
} ignis_transport;

#define IGNIS_TRANSPORT_TOKEN_BYTES 16 /* bytes of ignis_transport_desc.token */

typedef struct ignis_transport_desc {
    /* IGNIS_TRANSPORT_AUTO: what IGNIS_TRANSPORT in the environment names (vmm, peer, ipc, host), or the
       best */
    ignis_transport_kind kind;
    /* devices of the source and of the destination (the thread's current device; IGNIS_DEVICE_0 for device
       0) */
    int src_device, dst_device;
    /* the method by which handles travel (that of the channel, else the default) */
    ignis_channel_method exchange;
    /* a connected channel for the handles of send and receive (none); the caller keeps it */
    ignis_channel channel;
    /* IGNIS_TRANSPORT_TOKEN_BYTES that both sides know (the secret in the user's private folder) */
    const unsigned char *token;
    double timeout_s; /* the longest wait of a receive for a sender of this process, in seconds (30) */
} ignis_transport_desc;

/*  A handle, by which another process gets an array. The record travels as bytes, the descriptors of
    ignis_transport_handle_fds through a socket; on Windows they are handles, as int. With an exchange method
    that carries no descriptors, all kinds but IGNIS_TRANSPORT_VMM use a named file in the private folder
    instead. The first import of the handle removes that file. */
#define IGNIS_TRANSPORT_RECORD_BYTES 296

typedef struct ignis_transport_handle {
    unsigned char record[IGNIS_TRANSPORT_RECORD_BYTES]; /* the exporter and the array, sealed with the token */
    ignis_vmm_handle memory;                            /* for IGNIS_TRANSPORT_VMM and _HOST */
    bool has_lease;
    int lease; /* a pipe: the array is in use while this end is open in any process */
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
    int exported;                                         /* handles that are in use elsewhere */
    int imported;                                         /* live arrays of ignis_transport_import_handle */
    int mappings;                                         /* of those arrays */
} ignis_transport_info;

typedef struct ignis_transport_choice {
    ignis_transport_kind kind;
    char reason[1024]; /* why this kind, and why not the better ones */
} ignis_transport_choice;

/*  ignis_transport_available - tell if a kind of transport connects two devices
    Returns: true; or false, with the reason in `reason`, of `capacity` bytes (may be null).
    Errors: NOT_SETUP, DEVICE and ARGUMENT; an unavailable kind is not a failure.
    Ownership: nothing to free.
    Threads: any. May write and read a little device memory. */
IGNIS_API bool ignis_transport_available(ignis_transport_kind kind, int src_device, int dst_device, char *reason,
                                         size_t capacity);

/*  ignis_transport_select - choose a kind as IGNIS_TRANSPORT_AUTO does
    same_process: source and destination are in this process.
    Returns: IGNIS_OK, and *choice filled.
    Errors: ARGUMENT (also an unknown name in IGNIS_TRANSPORT), DEVICE, UNSUPPORTED (none is available).
    Ownership: nothing to free.
    Threads: any. May write and read a little device memory. */
IGNIS_API ignis_status ignis_transport_select(int src_device, int dst_device, bool same_process,
                                              ignis_transport_choice *choice);

/*  ignis_transport_create - create a transport between two devices or processes
    Without a channel the caller carries the handles. The peer kind works within one process only.
    Returns: the transport, or no handle.
    Errors: ARGUMENT, DEVICE, FREED (the channel), UNSUPPORTED (the kind is not available), IO (the token's
    folder), MEMORY.
    Ownership: the caller frees it with ignis_transport_destroy.
    Threads: any. */
IGNIS_API ignis_transport ignis_transport_create(const ignis_transport_desc *desc);

/*  ignis_transport_initialize - open both devices, and enable access between them if the kind needs it; a
    second
    call does nothing
    ignis_transport_ready - tell if that was done
    Returns: IGNIS_OK, or the reason; true or false.
    Errors: FREED; of ignis_transport_initialize, DEVICE, UNSUPPORTED, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_initialize(ignis_transport transport);
IGNIS_API bool ignis_transport_ready(ignis_transport transport);

/*  ignis_transport_query - read facts about a transport
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT.
    Ownership: nothing to free; info->name is a constant.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_query(ignis_transport transport, ignis_transport_info *info);

/*  ignis_transport_to_string - write kind, devices and exchange method: "IPC[0->1, named_pipe]"
    Returns: the length of the whole text, which is cut to capacity; -1 on failure.
    Errors: FREED, ARGUMENT.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_transport_to_string(ignis_transport transport, char *out, size_t capacity);

/*  ignis_transport_export_handle - make a handle of an array for another process
    ignis_transport_exported_handle - return the latest handle again that is still in use The importer sees
    what was written before; with IGNIS_TRANSPORT_HOST, a copy of it. Exporting the same array again gives the
    same record. Waits for the work on the array.
    Returns: IGNIS_OK, and *handle filled.
    Errors: FREED, ARGUMENT (not initialized; the memory of the array cannot be shared: the message names what
    to use; of exported_handle, IGNIS_DIAG_TRANSPORT_HANDLE: no handle is in use), DEVICE (it is not on
    src_device), CUDA, IO, MEMORY.
    Ownership: the array is exported (ref_count, and it can be neither freed nor transferred) until the
    handle, its copies and all imports from it are closed; dead processes do not count. The caller closes the
    handle: ignis_transport_handle_close.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_transport_export_handle(ignis_transport transport, ignis_array array,
                                                     ignis_transport_handle *handle);
IGNIS_API ignis_status ignis_transport_exported_handle(ignis_transport transport, ignis_transport_handle *handle);

/*  ignis_transport_handle_fds - list the descriptors that travel with a handle's record, up to two
    ignis_transport_handle_from_fds - make a handle of a record and descriptors that came
    Returns: the number of descriptors in fds; or IGNIS_OK.
    Errors: ARGUMENT (null; the record needs another number of descriptors).
    Ownership: the handle keeps the descriptors; from_fds takes them, also when it fails.
    Threads: any. */
IGNIS_API int ignis_transport_handle_fds(const ignis_transport_handle *handle, int fds[2]);
IGNIS_API ignis_status ignis_transport_handle_from_fds(ignis_transport_handle *handle, const void *record,
                                                       const int *fds, int fd_count);

/*  ignis_transport_handle_close - close the descriptors of a sent or imported handle; a second call does
    nothing
    Returns: IGNIS_OK.
    Errors: ARGUMENT (null).
    Ownership: *handle is cleared. Imported arrays stay.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_handle_close(ignis_transport_handle *handle);

/*  ignis_transport_release_handle - declare, as the exporter, that no process uses an array any more
    Needed if the importer cannot tell: a handle that was never imported and has no channel, or that travelled
    without its lease.
    Returns: IGNIS_OK; also if the array is not exported.
    Errors: FREED.
    Ownership: the array can be freed afterwards.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_release_handle(ignis_transport transport, ignis_array array);

/*  ignis_transport_import_handle - import the array of a handle on dst_device
    ignis_transport_recv_with_handle - another name of it Before the driver sees a handle, its seal, size,
    values and device are checked. They must agree with the memory that this process mapped or exported. With
    a socket channel the sender must be the peer that the kernel names. Importing a handle again shares the
    mapping. Shape, dtype and tag are the exporter's.
    Returns: an array, or no handle.
    Errors: FREED, ARGUMENT (not initialized; another kind), FORMAT (IGNIS_DIAG_TRANSPORT_RECORD: not a
    handle, or its seal is wrong), MISMATCH (IGNIS_DIAG_TRANSPORT_MISMATCH: it contradicts itself, the memory
    or an earlier handle; it is no longer exported), PEER (IGNIS_DIAG_TRANSPORT_PEER: it is of another process
    than its sender), UNSUPPORTED (the exporter's device is not visible here), CUDA, IO, MEMORY.
    Ownership: the caller frees the array, or calls ignis_transport_close_imported_handle. The caller keeps
    the handle.
    Threads: any. */
IGNIS_API ignis_array ignis_transport_import_handle(ignis_transport transport, const ignis_transport_handle *handle);
IGNIS_API ignis_array ignis_transport_recv_with_handle(ignis_transport transport, const ignis_transport_handle *handle);

/*  ignis_transport_close_imported_handle - free an imported array; the last one, and its views, end the
    mapping
    Returns: IGNIS_OK; on failure nothing changes.
    Errors: FREED, ARGUMENT (not imported by this transport), CONTRACT (references).
    Ownership: the handle is stale afterwards; then the exporter may free its array.
    Threads: any. Waits for the work on the array. */
IGNIS_API ignis_status ignis_transport_close_imported_handle(ignis_transport transport, ignis_array array);

/*  ignis_transport_send, ignis_transport_send_async - make an array's content available to the receiver
    Its handle goes to *handle; if that is null, through the transport's channel; without one, for the kinds
    that copy, to a receive of this process. ignis_transport_send waits for the work on the array. After the
    async form, call ignis_transport_synchronize before the receiver reads. Do not change the array until it
    has read. FIFOs and shared memory carry all kinds but IGNIS_TRANSPORT_VMM, whose memory is a descriptor.
    Returns: IGNIS_OK, or the reason.
    Errors: those of ignis_transport_export_handle and ignis_channel_send; ARGUMENT
    (IGNIS_DIAG_TRANSPORT_HANDLE: neither handle nor channel), UNSUPPORTED (IGNIS_DIAG_CHANNEL_DESCRIPTOR:
    IGNIS_TRANSPORT_VMM needs a channel that carries descriptors).
    Ownership: as for ignis_transport_export_handle.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_send(ignis_transport transport, ignis_array array,
                                            ignis_transport_handle *handle);
IGNIS_API ignis_status ignis_transport_send_async(ignis_transport transport, ignis_array array,
                                                  ignis_transport_handle *handle);

/*  ignis_transport_recv, ignis_transport_recv_async - copy a sent array into an array, for the kinds that
    copy
    The kinds that share memory copy nothing: ignis_transport_recv_with_handle returns the sender's array.
    ignis_transport_recv waits for the copy; the async form queues it on the current stream of dst_device.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (IGNIS_DIAG_TRANSPORT_HANDLE: the kind shares memory; not initialized), SHAPE,
    DTYPE, TIMEOUT (nothing was sent), those of import and ignis_channel_receive.
    Ownership: nothing to free.
    Threads: any. Waits until the deadline. Streams: queued on the current stream of dst_device. */
IGNIS_API ignis_status ignis_transport_recv(ignis_transport transport, ignis_array array);
IGNIS_API ignis_status ignis_transport_recv_async(ignis_transport transport, ignis_array array);

/*  ignis_transport_receive_handle - receive the next handle from the transport's channel
    Returns: IGNIS_OK, and *handle filled.
    Errors: FREED, ARGUMENT (it has no channel), those of ignis_channel_receive, and those of an import for an
    invalid handle.
    Ownership: the caller closes the handle: ignis_transport_handle_close.
    Threads: any. Waits until the channel's deadline. */
IGNIS_API ignis_status ignis_transport_receive_handle(ignis_transport transport, ignis_transport_handle *handle);

/*  ignis_transport_synchronize - wait for all work on both devices
    Returns: IGNIS_OK, or the failure of an earlier kernel or copy.
    Errors: FREED, ARGUMENT (not initialized), DEVICE, CUDA.
    Ownership: nothing to free.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_transport_synchronize(ignis_transport transport);

/*  ignis_transport_measure - measure bandwidth and latency of copies from src_device to dst_device
    Units: bytes of the larger copy (0: 64 MiB); the results are in ignis_transport_info.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT, MEMORY, CUDA.
    Ownership: nothing to free.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_transport_measure(ignis_transport transport, int64_t bytes);

/*  ignis_transport_destroy - free a transport
    Its exports count as released. Its imported arrays are freed; their views stay valid.
    Returns: IGNIS_OK.
    Errors: FREED.
    Ownership: the handle is stale afterwards. The caller keeps the channel.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_destroy(ignis_transport transport);

/*  ignis_ipc_array - create an array in its own driver allocation of whole 2 MiB blocks, for
    IGNIS_TRANSPORT_IPC
    An exported handle exposes the whole allocation, so a shared array must be alone in it. desc is that of
    ignis_array_create, without ptr and release_fn.
    Returns: the array, or no handle.
    Errors: ARGUMENT, SHAPE, DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it as any array.
    Threads: any. */
IGNIS_API ignis_array ignis_ipc_array(const ignis_array_desc *desc);
