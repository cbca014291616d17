/*  collective/transport - arrays of one process used by another. */
#pragma once

#include "../../base/room.h"
#include "../../device/room.h"
#include "../../array/room.h"
#include "../../kernel/room.h"
#include "../room.h"
#include "../vmm/room.h"
#include "../peer/room.h"
#include "../channel/room.h"

#ifndef _WIN32
/*  Threads of a process. A dying process closes its descriptors one by one, and its leases perhaps before
    those of the driver, whose work goes on until then. The kernel tells of each thread whether it is exiting:
    state and flags (4) are words 3 and 9 of a file, after a name of any characters. The first thread stays as
    a zombie until the others are gone. */
typedef struct ignis__thread_counts {
    int64_t pid;
    int count, exiting, zombies;
} ignis__thread_counts;

#endif

#define IGNIS__RECORD_MAGIC "IGNIS-TR"
#define IGNIS__RECORD_VERSION 2
#define IGNIS__IPC_BLOCK ((int64_t)2 << 20) /* the smallest memory that the driver shares */

/*  The description of an exported array. It has no padding, so the seal covers every byte. */
typedef struct ignis__record_of_array {
    char magic[8];
    uint32_t version, kind;
    int32_t dtype, ndim;
    uint32_t pid, pid_namespace;
    int64_t dim[IGNIS_MAX_DIMS];
    int64_t block_size, offset; /* of the shared memory, and of the array in it */
    unsigned char uuid[16];     /* of the exporter's device */
    uint64_t host;              /* the machine, since its start */
    unsigned char process[16];  /* of the exporter, random: process numbers are reused */
    uint64_t serial;            /* of the export, unique in its process */
    ignis__ipc_handle ipc;      /* of IGNIS_TRANSPORT_IPC */
    char tag[32];               /* of the array */
    uint64_t name;              /* this and the seal differ between handles of one export; 0: with descriptors */
    unsigned char seal[32];
} ignis__record_of_array;

typedef struct ignis__transport {
    ignis__slot slot;
    ignis_transport_kind kind;
    ignis__device *src, *dst;
    ignis_channel_method exchange;
    ignis_channel channel;
    int64_t peer_pid;  /* at the peer of the channel; 0: unknown */
    bool peer_certain; /* known from the kernel */
    unsigned char token[IGNIS__SECRET];
    int64_t timeout_ns;
    uint64_t ready;
    uint64_t serial; /* unique in this process, as slots are reused */
    double bandwidth_gbs, latency_us;
    /* Handles sent to a receive of this process; the slot's lock guards them. */
    struct ignis__queued_handle *waiting, **waiting_end;
    char folder[IGNIS__PATH_MAX]; /* of named leases and copies; "": the default folder */
} ignis__transport;

/*  A handle that is out: an export of an array, which it holds, or a copy in a named file. */
typedef struct ignis__export {
    uint64_t transport; /* serial */
    ignis_channel channel;
    int64_t peer_pid; /* of the peer; 0: unknown */
    char description[96];
    ignis__array *array;           /* NULL: a copy */
    uint64_t turn;                 /* number of the array's last export by this transport, growing */
    ignis__record_of_array record; /* without the fields that differ between handles of one array */
    int watch;                     /* hangs up when all handles and imports are closed; -1: no lease */
    char *path;                    /* of the named file; NULL: none */
    struct ignis__export *next;
} ignis__export;

/*  The mapping of an export in this process, shared by arrays. */
typedef struct ignis__import {
    ignis__record_of_array record; /* of the export */
    uint64_t transport;            /* serial; a handle of another transport does not share the mapping */
    ignis__device *device;
    int arrays;
    ignis__mutex lock;      /* held while the first user maps it */
    bool made;              /* the memory is mapped */
    ignis__address address; /* of the shared memory */
    ignis__vmm_block block; /* of IGNIS_TRANSPORT_VMM, from another process */
    ignis__array *own;      /* of an export of this process: the array itself, held; no mapping */
    int lease;
    struct ignis__import *next;
} ignis__import;

struct ignis__shares_type {
    ignis__mutex lock; /* never held while an array is locked or the driver is called */
    uint64_t serials, names, transports;
    uint64_t ending; /* threads that have unlisted handles which their arrays still count */
    ignis__export *exports;
    ignis__import *imports;
};

/*  Facts that an export finds about an array's memory. The device is entered. */
typedef struct ignis__export_facts {
    int64_t block_size, offset;
    ignis__ipc_handle ipc;
    ignis_vmm_handle memory;
    const char *path; /* for a copy in a named file; NULL: a copy in `memory` */
} ignis__export_facts;

/*  A kind of transport; NULL functions have nothing to do. The figures are estimates; for IPC the cost of
    handles limits them, not NVLink. */
typedef struct ignis__transport_ops {
    const char *name, *word; /* for messages; in the environment */
    bool zero_copy;          /* an import is the exporter's memory, with a lease and without copies */
    bool across;             /* works between processes */
    bool copies;             /* a receive copies */
    bool descriptor;         /* its memory is a descriptor */
    bool named;              /* a named file can replace its descriptors */
    double bandwidth_gbs, latency_us;
    bool (*available)(ignis__device *src, ignis__device *dst, ignis__string_writer *why);
    bool (*start)(const char *call, ignis__device *src, ignis__device *dst);
    bool (*export_memory)(const char *call, ignis__array *array, ignis__export_facts *facts);
    bool (*import_memory)(const char *call, ignis__import *mapped, const ignis__device *home,
                          const ignis_vmm_handle *memory);
    void (*unmap_memory)(const char *call, ignis__import *mapped);
    bool (*grant_access)(const char *call, ignis__array *array, ignis__device *device);
} ignis__transport_ops;

/*  A handle that waits for a receive of this process. */
typedef struct ignis__queued_handle {
    ignis_transport_handle handle;
    struct ignis__queued_handle *next;
} ignis__queued_handle;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* system_windows.c */
IGNIS__PRIVATE uint64_t ignis__host_hash(void);
IGNIS__PRIVATE uint32_t ignis__pid_namespace(void);
IGNIS__PRIVATE bool ignis__lease_make(const char *path, int ends[2]);
IGNIS__PRIVATE bool ignis__lease_is_over(int end);
IGNIS__PRIVATE bool ignis__process_is_exiting(int64_t pid);
IGNIS__PRIVATE int ignis__fd_copy(int fd);
IGNIS__PRIVATE bool ignis__file_publish(const char *part, const char *path);
IGNIS__PRIVATE int ignis__named_file_create(const char *path, int64_t size);
IGNIS__PRIVATE int ignis__named_file_open(const char *path, bool lease);
IGNIS__PRIVATE bool ignis__named_file_exists(const char *path);
IGNIS__PRIVATE bool ignis__fd_transfer(int fd, void *data, int64_t size, int64_t offset, bool to_fd);
IGNIS__PRIVATE bool ignis__fd_size_is(int fd, int64_t size);

#ifdef _WIN32
IGNIS__PRIVATE int ignis__shared_make(size_t size);
IGNIS__PRIVATE void *ignis__shared_map(int fd, size_t size);
IGNIS__PRIVATE void ignis__shared_unmap(void *data, size_t size);
#endif

/* system_posix.c */
#ifndef _WIN32
IGNIS__PRIVATE void ignis__thread_count(void *context, const char *name);
#endif

/* record.c */
IGNIS__PRIVATE bool ignis__record_equal(const ignis__record_of_array *a, const ignis__record_of_array *b);
IGNIS__COLD IGNIS__PRIVATE bool ignis__transport_secret(const char *call,
                                                        unsigned char token[IGNIS_TRANSPORT_TOKEN_BYTES]);
extern ignis__record_of_array ignis__own_identity;
extern ignis__mutex ignis__own_identity_lock;

/* export.c */
extern ignis__pool ignis__transports;
extern struct ignis__shares_type ignis__shares;
IGNIS__PRIVATE bool ignis__array_add_export(const char *call, ignis__array *array);
IGNIS__PRIVATE void ignis__array_remove_export(const char *call, ignis__array *array);
IGNIS__PRIVATE void ignis__export_free(ignis__export *entry);
IGNIS__PRIVATE bool ignis__exports_end(const char *call, const ignis__array *array, uint64_t transport, bool unused);
IGNIS__PRIVATE void ignis__exports_reap_array(const char *call, ignis__array *array, bool wait);
IGNIS__COLD IGNIS__PRIVATE void ignis__exports_describe(ignis__string_writer *text, const ignis__array *array);

/* memory.c */
IGNIS__PRIVATE bool ignis__array_wait(const char *call, ignis__array *array);
IGNIS__PRIVATE bool ignis__peer_enable(const char *call, ignis__device *from, ignis__device *to);
IGNIS__PRIVATE bool ignis__vmm_export_memory(const char *call, ignis__array *array, ignis__export_facts *facts);
IGNIS__PRIVATE bool ignis__ipc_export_memory(const char *call, ignis__array *array, ignis__export_facts *facts);
IGNIS__PRIVATE bool ignis__peer_export_memory(const char *call, ignis__array *array, ignis__export_facts *facts);
IGNIS__PRIVATE bool ignis__host_copy(const char *call, ignis__array *array, int fd, bool to_device);
IGNIS__PRIVATE bool ignis__host_export_memory(const char *call, ignis__array *array, ignis__export_facts *facts);
IGNIS__PRIVATE bool ignis__vmm_import_memory(const char *call, ignis__import *mapped, const ignis__device *home,
                                             const ignis_vmm_handle *memory);
IGNIS__PRIVATE bool ignis__ipc_import_memory(const char *call, ignis__import *mapped, const ignis__device *home,
                                             const ignis_vmm_handle *memory);
IGNIS__PRIVATE void ignis__vmm_unmap_memory(const char *call, ignis__import *mapped);
IGNIS__PRIVATE void ignis__ipc_unmap_memory(const char *call, ignis__import *mapped);
IGNIS__PRIVATE bool ignis__vmm_grant_access(const char *call, ignis__array *array, ignis__device *device);
IGNIS__PRIVATE bool ignis__peer_grant_access(const char *call, ignis__array *array, ignis__device *device);

/* select.c */
extern const ignis__transport_ops ignis__transport_kinds[IGNIS_TRANSPORT_KIND_COUNT];
IGNIS__PRIVATE bool ignis__transport_kind_valid(const char *call, ignis_transport_kind kind);
IGNIS__PRIVATE bool ignis__transport_devices(const char *call, int src, int dst, ignis__device **devices);
IGNIS__PRIVATE bool ignis__transport_choose(const char *call, ignis__device *const *devices, bool same_process,
                                            bool descriptors, ignis_transport_choice *choice);

/* transport.c */
IGNIS__PRIVATE void ignis__handle_close(ignis_transport_handle *handle);
IGNIS__PRIVATE ignis__transport *ignis__transport_hold(const char *call, ignis_transport handle);
IGNIS__PRIVATE bool ignis__queued_handle_take(ignis__transport *transport, ignis_transport_handle *handle);
IGNIS__PRIVATE void ignis__transport_drop(ignis__transport *transport);
IGNIS__PRIVATE ignis__transport *ignis__transport_hold_ready(const char *call, ignis_transport handle);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__transport_end_call(ignis__transport *transport, bool ok);
IGNIS__PRIVATE const ignis__transport_ops *ignis__transport_ops_of(const ignis__transport *transport);
IGNIS__PRIVATE bool ignis__transport_carries_descriptors(const ignis__transport *transport);
IGNIS__PRIVATE void ignis__transport_describe(ignis__string_writer *text, const ignis__transport *transport);
IGNIS__PRIVATE void ignis__import_drop(const char *call, ignis__import *mapped);
IGNIS__PRIVATE void ignis__import_release(void *ptr, void *data);
IGNIS__PRIVATE bool ignis__array_imported_by(const ignis__array *array, uint64_t transport);
IGNIS__PRIVATE bool ignis__transports_prepare(const char *call);

/* handle.c */
IGNIS__PRIVATE void ignis__record_seal(const unsigned char token[IGNIS__SECRET], const ignis__record_of_array *record,
                                       unsigned char seal[32]);
IGNIS__PRIVATE bool ignis__record_path(const char *call, const ignis__transport *transport,
                                       const ignis__record_of_array *record, uint64_t name, char path[IGNIS__PATH_MAX]);
IGNIS__PRIVATE bool ignis__transport_export(const char *call, ignis__transport *transport, ignis__array *array,
                                            bool wait, ignis_transport_handle *handle);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__transport_hold_both(const char *call, ignis_transport handle,
                                                                        ignis_array array_handle,
                                                                        ignis__transport **transport);
IGNIS__PRIVATE ignis_status ignis__transport_end_both(const char *call, ignis__transport *transport,
                                                      ignis__array *array, bool ok);
IGNIS__PRIVATE int ignis__record_fds(const ignis__record_of_array *record, bool *memory);
IGNIS__PRIVATE bool ignis__handle_add_fds(ignis_transport_handle *handle, const void *bytes, const int *fds,
                                          int fd_count);

/* import.c */
IGNIS__PRIVATE bool ignis__record_is_consistent(const ignis__record_of_array *record, int64_t *bytes);
IGNIS__PRIVATE bool ignis__record_read(const char *call, const ignis__transport *transport,
                                       const ignis_transport_handle *handle, ignis__record_of_array *record);
IGNIS__PRIVATE bool ignis__handle_open(const char *call, const ignis__transport *transport,
                                       const ignis__record_of_array *record, ignis_transport_handle *handle);
IGNIS__PRIVATE ignis__device *ignis__record_device(const char *call, const ignis__record_of_array *record);
IGNIS__PRIVATE ignis_array ignis__import_array(const char *call, const ignis__transport *transport,
                                               const ignis__record_of_array *record, ignis_transport_handle *handle);
IGNIS__PRIVATE bool ignis__handle_copy(const char *call, const ignis__transport *transport,
                                       const ignis__record_of_array *record, ignis_transport_handle *handle,
                                       ignis__array *array);

/* send_receive.c */
IGNIS__PRIVATE bool ignis__handle_send(const char *call, ignis_channel to, const ignis_transport_handle *handle);
IGNIS__PRIVATE bool ignis__handle_receive(const char *call, ignis_channel from, ignis_transport_handle *handle);
