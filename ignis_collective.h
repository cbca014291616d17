/*  ignis_collective.h - GPU arrays shared between processes, and collective operations between GPUs, for C and C++

    Part of Ignis; MIT licence, at the end of ignis.h.

    HOW TO USE

        Copy ignis.h, ignis_kernels.h and ignis_collective.h into your project. In ONE C or C++ file:

            #define IGNIS_IMPLEMENTATION
            #include "ignis_collective.h"

        It includes ignis.h, and is built in the same way. NCCL is needed for nothing on one host of up to 8 GPUs; where it is installed it
        is used for what it does best.
*/
#ifndef IGNIS_COLLECTIVE_INCLUDED
#define IGNIS_COLLECTIVE_INCLUDED

#include "ignis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>vmm --------------------------------------------------------------------------------------------------------- */

/*  Physical memory, and a range of addresses that it can be mapped into. */
typedef struct ignis_vmm {
    uint64_t id;
} ignis_vmm;

typedef struct ignis_vmm_range {
    uint64_t id;
} ignis_vmm_range;

/*  How physical memory can be handed to another process. The numbers are the driver's (CUmemAllocationHandleType), but for DEFAULT,
    and for NONE, which is 0 there. */
typedef enum ignis_vmm_handle_type {
    IGNIS_VMM_HANDLE_NONE = -1,     /* not at all */
    IGNIS_VMM_HANDLE_DEFAULT = 0,   /* what the system has: POSIX_FD, on Windows WIN32 */
    IGNIS_VMM_HANDLE_POSIX_FD = 1,  /* a file descriptor */
    IGNIS_VMM_HANDLE_WIN32 = 2,     /* an NT handle */
    IGNIS_VMM_HANDLE_WIN32_KMT = 4, /* a global share handle of Windows; Ignis makes none, as anybody could open it */
    IGNIS_VMM_HANDLE_MAX = 0x7FFFFFFF
} ignis_vmm_handle_type;

/*  CUmemAllocationType */
typedef enum ignis_vmm_allocation_type {
    IGNIS_VMM_ALLOCATION_INVALID = 0,
    IGNIS_VMM_ALLOCATION_PINNED = 1, /* the memory stays where it is, as long as it lives; the one that is made */
    IGNIS_VMM_ALLOCATION_MAX = 0x7FFFFFFF
} ignis_vmm_allocation_type;

/*  CUmemLocationType */
typedef enum ignis_vmm_location_type {
    IGNIS_VMM_LOCATION_INVALID = 0,
    IGNIS_VMM_LOCATION_DEVICE = 1, /* the one that is made */
    IGNIS_VMM_LOCATION_HOST = 2,
    IGNIS_VMM_LOCATION_HOST_NUMA = 3,
    IGNIS_VMM_LOCATION_HOST_NUMA_CURRENT = 4,
    IGNIS_VMM_LOCATION_MAX = 0x7FFFFFFF
} ignis_vmm_location_type;

/*  What a device may do with mapped memory: CUmemAccess_flags. */
typedef enum ignis_vmm_access {
    IGNIS_VMM_ACCESS_NONE = 0,
    IGNIS_VMM_ACCESS_READ = 1,
    IGNIS_VMM_ACCESS_READ_WRITE = 3,
    IGNIS_VMM_ACCESS_MAX = 0x7FFFFFFF
} ignis_vmm_access;

/*  The driver's own structs, field by field: CUmemLocation, CUmemAllocationProp, CUmemAccessDesc. */
typedef struct ignis_vmm_location {
    int type; /* ignis_vmm_location_type */
    int id;   /* of a device: its ordinal in this process */
} ignis_vmm_location;

typedef struct ignis_vmm_prop {
    int type;         /* ignis_vmm_allocation_type */
    int handle_types; /* 0, or IGNIS_VMM_HANDLE_POSIX_FD, _WIN32 */
    ignis_vmm_location location;
    void *win32_security; /* OBJECT_ATTRIBUTES *, for IGNIS_VMM_HANDLE_WIN32 */
    struct {
        unsigned char compression, gpu_direct_rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} ignis_vmm_prop;

typedef struct ignis_vmm_access_desc {
    ignis_vmm_location location;
    int access; /* ignis_vmm_access */
} ignis_vmm_access_desc;

typedef struct ignis_vmm_desc {
    int64_t size;                      /* required: bytes; rounded up to whole granules, see ignis_vmm_info.size */
    int device;                        /* where the memory lies (the thread's current device; IGNIS_DEVICE_0 for device 0) */
    ignis_vmm_handle_type handle_type; /* IGNIS_VMM_HANDLE_DEFAULT: it can be exported */
} ignis_vmm_desc;

typedef struct ignis_vmm_info {
    int64_t size;                      /* bytes, a multiple of granularity */
    int64_t granularity;               /* bytes, the smallest of the device */
    int device;                        /* where the memory lies */
    ignis_vmm_handle_type handle_type; /* as which it can be exported */
    bool imported;                     /* another process has made it */
    int mappings;                      /* places where ignis_vmm_map has mapped it */
    ignis_vmm_prop prop;               /* as the driver says */
} ignis_vmm_info;

typedef struct ignis_vmm_range_info {
    void *ptr;            /* the first address */
    int64_t size;         /* bytes, reserved */
    int64_t mapped_bytes; /* of these */
    int mappings;
    int arrays; /* made by ignis_vmm_array_map, alive */
} ignis_vmm_range_info;

/*  What another process needs to have the same memory. It belongs to who holds it: ignis_vmm_handle_close. */
typedef struct ignis_vmm_handle {
    ignis_vmm_handle_type type;
    int fd;      /* IGNIS_VMM_HANDLE_POSIX_FD: closed on exec */
    void *win32; /* IGNIS_VMM_HANDLE_WIN32: a HANDLE */
} ignis_vmm_handle;

typedef struct ignis_vmm_array_desc {
    ignis_shape shape;                 /* required: IGNIS_SHAPE(rows, columns) */
    ignis_dtype dtype;                 /* IGNIS_F32 */
    int device;                        /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    ignis_vmm_handle_type handle_type; /* IGNIS_VMM_HANDLE_DEFAULT: it can be shared */
    const int *access_devices;         /* ordinals of other devices that may read and write it (none) */
    int access_count;
    ignis_owner owner; /* IGNIS_OWNER_IGNIS */
    const char *tag;   /* a name for messages and audits; copied, the first 31 bytes count ("") */
} ignis_vmm_array_desc;

/*  ignis_vmm_granularity - the unit of physical memory on a device
    Returns: bytes (2 MiB on today's devices), the smallest that works or the one that the driver recommends for speed; -1 on failure.
    Errors: DEVICE (no such device), UNSUPPORTED (no virtual memory management), LIBRARY (the driver is too old), CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int64_t ignis_vmm_granularity(int device, bool recommended);

/*  ignis_vmm_prop_of, ignis_vmm_access_of - the driver's structs for memory of a device, and for what a device may do
    Returns: the struct, filled; a shareable one names the system's handle type.
    Errors: none.
    Ownership: nothing to free; win32_security is null.
    Threads: any. */
IGNIS_API ignis_vmm_prop ignis_vmm_prop_of(int device, bool shareable);
IGNIS_API ignis_vmm_access_desc ignis_vmm_access_of(int device, bool read_write);

/*  ignis_vmm_check - report what a driver function of the caller's has answered as Ignis would: name, number, and what was being done
    Returns: IGNIS_OK for 0; else CUDA, or MEMORY for CUDA_ERROR_OUT_OF_MEMORY.
    Errors: CUDA, MEMORY.
    Ownership: context, such as "mapping the cache", is read only.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_check(int driver_error, const char *context);

/*  ignis_vmm_create - physical memory on a device, without an address
    It is none of what ignis_memory_query counts and ignis_desc.memory_limit limits. Cached memory is given back before it fails.
    Returns: the memory, or no handle.
    Errors: ARGUMENT, DEVICE, MEMORY, UNSUPPORTED, LIBRARY, CUDA.
    Ownership: the caller frees it with ignis_vmm_free.
    Threads: any. */
IGNIS_API ignis_vmm ignis_vmm_create(const ignis_vmm_desc *desc);

/*  ignis_vmm_free - let go of physical memory
    It goes back to the device when its last mapping is gone and every process that imported it has let go of it, too.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second free).
    Ownership: the handle is stale afterwards; mappings stay valid.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_free(ignis_vmm vmm);

/*  ignis_vmm_query - facts about physical memory
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_query(ignis_vmm vmm, ignis_vmm_info *info);

/*  ignis_vmm_reserve - a range of addresses, without memory
    size is rounded up to whole granules of the current device; alignment is 0 or a power of two.
    Returns: the range, or no handle.
    Errors: ARGUMENT, MEMORY, UNSUPPORTED, LIBRARY, CUDA.
    Ownership: the caller gives it back with ignis_vmm_unreserve.
    Threads: any. */
IGNIS_API ignis_vmm_range ignis_vmm_reserve(int64_t size, int64_t alignment);

/*  ignis_vmm_unreserve - give a range back
    Returns: IGNIS_OK, or why it was left as it is.
    Errors: FREED, ARGUMENT (memory is mapped in it).
    Ownership: the handle is stale afterwards.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_unreserve(ignis_vmm_range range);

/*  ignis_vmm_range_query - facts about a range
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_range_query(ignis_vmm_range range, ignis_vmm_range_info *info);

/*  ignis_vmm_map - put physical memory, all of it, at an offset in a range
    No device may touch it before ignis_vmm_set_access. The same memory may be mapped at several places.
    Units: offset in bytes, a multiple of the granularity.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (outside the range, something is mapped there, not a multiple), MEMORY, CUDA.
    Ownership: the mapping keeps the memory until ignis_vmm_unmap.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_map(ignis_vmm_range range, int64_t offset, ignis_vmm vmm);

/*  ignis_vmm_unmap - end the mapping that begins at an offset
    Waits for the devices that had access: work that uses the mapping is done first, if it was queued before.
    Returns: IGNIS_OK, or why it was left as it is.
    Errors: FREED, ARGUMENT (no mapping begins there, or arrays use it), CUDA.
    Ownership: physical memory that was freed already goes back to the device.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_vmm_unmap(ignis_vmm_range range, int64_t offset);

/*  ignis_vmm_set_access, ignis_vmm_get_access - what a device may do with a mapped part of a range
    Needed for every device that is to use it, after every map; peer access of contexts has no say in it. Ask for the access of the
    granule at an offset.
    Units: offset and size in bytes, multiples of the granularity.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (not mapped throughout, not a multiple, no such access), DEVICE, CUDA (the device cannot reach it).
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_set_access(ignis_vmm_range range, int64_t offset, int64_t size, int device, ignis_vmm_access access);
IGNIS_API ignis_status ignis_vmm_get_access(ignis_vmm_range range, int64_t offset, int device, ignis_vmm_access *access);

/*  ignis_vmm_export - a handle of physical memory for another process
    Returns: IGNIS_OK, and *handle filled.
    Errors: FREED, ARGUMENT (made with IGNIS_VMM_HANDLE_NONE), CUDA.
    Ownership: the caller closes the handle once it was sent: ignis_vmm_handle_close. Until then it, too, keeps the memory.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_export(ignis_vmm vmm, ignis_vmm_handle *handle);

/*  ignis_vmm_import - the physical memory of a handle that another process has exported
    Nothing that the sender says is taken on trust: the memory's kind and place are the driver's, and its size is proven by mapping it.
    Units: size in bytes, ignis_vmm_info.size of the exporter.
    Returns: the memory, or no handle.
    Errors: ARGUMENT (no handle, size is not the memory's), DEVICE (it lies on another device than `device`), UNSUPPORTED, CUDA.
    Ownership: the caller frees it with ignis_vmm_free; the handle stays the caller's.
    Threads: any. */
IGNIS_API ignis_vmm ignis_vmm_import(const ignis_vmm_handle *handle, int64_t size, int device);

/*  ignis_vmm_handle_close - close an exported or received handle; a second time does nothing
    Returns: IGNIS_OK.
    Errors: ARGUMENT (null).
    Ownership: what the handle was becomes free; *handle is emptied.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_handle_close(ignis_vmm_handle *handle);

/*  ignis_vmm_array - an array in physical memory of its own, that other devices and processes can be let into
    It is an ordinary array with device memory from the start, whose content is undefined.
    Shape: as for ignis_array_create; memory is taken in whole granules (2 MiB), so make few and large ones.
    Returns: the array, or no handle.
    Errors: ARGUMENT, SHAPE, DEVICE, MEMORY, UNSUPPORTED, LIBRARY, CUDA.
    Ownership: the caller frees it as any array; address and memory go back when its last view is gone.
    Threads: any. */
IGNIS_API ignis_array ignis_vmm_array(const ignis_vmm_array_desc *desc);

/*  ignis_vmm_array_map - an array over a mapped part of a range; desc as for ignis_array_create, without ptr and release_fn
    Units: offset in bytes, a multiple of the element size.
    Returns: the array, or no handle.
    Errors: FREED, ARGUMENT (not mapped throughout), CONTRACT (desc.device has no access), SHAPE.
    Ownership: the caller frees it; until then the part stays mapped, and ignis_vmm_unmap refuses.
    Threads: any. */
IGNIS_API ignis_array ignis_vmm_array_map(ignis_vmm_range range, int64_t offset, const ignis_array_desc *desc);

/*  ignis_vmm_of_array - the physical memory that an array lies in
    Units: *offset (may be null) in bytes, from the start of the memory to the array's first element.
    Returns: the memory, or no handle.
    Errors: FREED, ARGUMENT (the array lies in memory of another kind), CUDA.
    Ownership: the caller frees it with ignis_vmm_free; it keeps the memory, as a mapping does.
    Threads: any. */
IGNIS_API ignis_vmm ignis_vmm_of_array(ignis_array array, int64_t *offset);

/* >>channel ----------------------------------------------------------------------------------------------------- */

#define IGNIS_CHANNEL_MAX_BYTES 65536 /* of one message */
#define IGNIS_CHANNEL_MAX_FDS 64      /* with one message */
#define IGNIS_CHANNEL_TOKEN_BYTES 16

/*  A channel: messages, and descriptors with them, between two processes of one machine and one user. */
typedef struct ignis_channel {
    uint64_t id;
} ignis_channel;

typedef enum ignis_channel_method {
    IGNIS_CHANNEL_DEFAULT = 0, /* IGNIS_CHANNEL_SOCKET; on Windows IGNIS_CHANNEL_PIPE */
    IGNIS_CHANNEL_SOCKET,      /* a unix socket: the one that descriptors travel through; not on Windows */
    IGNIS_CHANNEL_PIPE,        /* two FIFOs; on Windows a named pipe */
    IGNIS_CHANNEL_SHM,         /* two rings in a shared file; not on Windows */
    IGNIS_CHANNEL_METHOD_COUNT
} ignis_channel_method;

typedef struct ignis_channel_desc {
    const char *name;            /* required, the same on both sides: letters, digits, '.', '_', '-', at most 63, '.' not first */
    ignis_channel_method method; /* IGNIS_CHANNEL_DEFAULT */
    const char
        *directory; /* a folder of mode 0700, made if need be (IGNIS_COMM_DIR, else $XDG_RUNTIME_DIR/ignis, else <tmp>/ignis-<uid>) */
    const unsigned char *token; /* IGNIS_CHANNEL_TOKEN_BYTES that both sides know (random ones, in a file that the server makes) */
    double timeout_s;           /* what accept, connect, send and receive wait at most, in seconds (30) */
} ignis_channel_desc;

typedef struct ignis_channel_info {
    ignis_channel_method method;
    bool server;      /* it listens: ignis_channel_serve made it */
    bool alive;       /* the other side is there; of a server: it listens */
    int64_t peer_pid; /* process of the other side; of a socket the kernel's word for it, else the peer's own; 0: unknown */
    int64_t peer_uid; /* its user; -1: unknown */
    int64_t refused;  /* connections that a server has turned away */
    char path[512];   /* of the socket, FIFO or file; of the pipe on Windows */
} ignis_channel_info;

/*  ignis_channel_serve - open a channel for others to connect to
    What a dead server of this name has left behind is replaced. Nobody but processes of this user with the token gets in.
    Returns: a listening channel, for ignis_channel_accept, ignis_channel_query and ignis_channel_close; 0 on failure.
    Errors: ARGUMENT (no desc, name or method, a bad timeout), UNSUPPORTED (the method, on this system), IO (a live server has the name;
    the folder is not private; a path too long), MEMORY.
    Ownership: ignis_channel_close gives it back, and removes its files.
    Threads: any. */
IGNIS_API ignis_channel ignis_channel_serve(const ignis_channel_desc *desc);

/*  ignis_channel_accept - wait for the next one who connects
    Those without the token, of another user or with another protocol are turned away, counted (ignis_channel_info.refused), and the
    first of them is logged as a warning; the wait goes on.
    Returns: a channel to it, 0 on failure.
    Errors: ARGUMENT (the channel does not listen), FREED, TIMEOUT (nobody came), IO, MEMORY.
    Ownership: ignis_channel_close gives it back; it outlives the server's channel.
    Threads: any; those who accept on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_channel ignis_channel_accept(ignis_channel server);

/*  ignis_channel_connect - connect to a server of this name, which may come later, but before the deadline
    Returns: a channel to it, 0 on failure.
    Errors: ARGUMENT, UNSUPPORTED, TIMEOUT (no server came, or it did not accept), PEER (it turned us away), IO, MEMORY.
    Ownership: ignis_channel_close gives it back.
    Threads: any. Waits until the deadline. */
IGNIS_API ignis_channel ignis_channel_connect(const ignis_channel_desc *desc);

/*  ignis_channel_send - send one message of 0 to IGNIS_CHANNEL_MAX_BYTES bytes, and descriptors with it
    It arrives whole, once, in order, or not at all. fds may be null when fd_count is 0.
    Returns: IGNIS_OK once the system has taken it; the other side need not have read it.
    Errors: ARGUMENT (too much; a listening channel), FREED, UNSUPPORTED (IGNIS_DIAG_CHANNEL_DESCRIPTOR: descriptors need
    IGNIS_CHANNEL_SOCKET), PEER (the other side is gone), TIMEOUT (it does not read), IO.
    Ownership: the descriptors stay the caller's, who may close them afterwards.
    Threads: any; those who send on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_status ignis_channel_send(ignis_channel channel, const void *data, int64_t size, const int *fds, int fd_count);

/*  ignis_channel_receive - wait for the next message
    With too little room for it, *size and *fd_count say what is needed, and the message stays for the next call. size and fd_count may
    be null.
    Returns: IGNIS_OK, *size bytes in data, *fd_count descriptors in fds.
    Errors: ARGUMENT (too little room; a listening channel), FREED, TIMEOUT (nothing came; the channel stays usable), PEER (the other
    side is gone, or broke the protocol: the channel is of no use any more), IO.
    Ownership: the descriptors are the caller's to close; they are closed by exec. On failure none is left open.
    Threads: any; those who receive on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_status ignis_channel_receive(ignis_channel channel, void *data, int64_t capacity, int64_t *size, int *fds, int fd_capacity,
                                             int *fd_count);

/*  ignis_channel_query - facts about a channel, and whether the other side is alive
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_channel_query(ignis_channel channel, ignis_channel_info *info);

/*  ignis_channel_close - end a channel; the other side finds it gone, after what was sent to it before
    Calls that wait on it in other threads return.
    Returns: IGNIS_OK.
    Errors: FREED.
    Ownership: its descriptors and files go.
    Threads: any. */
IGNIS_API ignis_status ignis_channel_close(ignis_channel channel);

/* >>transport --------------------------------------------------------------------------------------------------- */

/* >>comm -------------------------------------------------------------------------------------------------------- */

#define IGNIS_COMM_MAX_RANKS 8 /* of Ignis' own kernels; beyond, NCCL does the work */

/*  A communicator: what one rank of a group of GPUs holds. */
typedef struct ignis_comm {
    uint64_t id;
} ignis_comm;

typedef enum ignis_op { IGNIS_OP_SUM, IGNIS_OP_PROD, IGNIS_OP_MIN, IGNIS_OP_MAX, IGNIS_OP_AVG, IGNIS_OP_COUNT } ignis_op;

/* --- making, splitting, ending --- */

/*  How the data of a communicator travels. */
typedef enum ignis_comm_transport {
    IGNIS_COMM_TRANSPORT_DEFAULT = 0, /* the first of the others that works between all ranks: IGNIS_COMM_PEER, IGNIS_COMM_STAGED; NCCL
                                         where ranks are on several hosts, or more than IGNIS_COMM_MAX_RANKS */
    IGNIS_COMM_PEER,                  /* GPUs read and write each other's memory (NVLink, PCIe) */
    IGNIS_COMM_STAGED,                /* through pinned host memory that all ranks map */
    IGNIS_COMM_NCCL,                  /* NCCL does the work */
    IGNIS_COMM_TRANSPORT_COUNT
} ignis_comm_transport;

typedef struct ignis_comm_desc {
    int rank;                       /* with size: this rank, 0 to size - 1 (0) */
    int size;                       /* how many ranks there are (0: rank, size and device come from the environment) */
    const char *rendezvous;         /* where they meet: "dir:/path" of a private folder, or "host:port" (IGNIS_COMM_DIR, MASTER_ADDR) */
    const char *token;              /* with "host:port": a secret that all ranks know, up to 63 bytes (IGNIS_COMM_TOKEN) */
    int device;                     /* the LOCAL_RANK-th device, or the only one; IGNIS_DEVICE_0 for device 0 */
    double timeout_s;               /* the deadline of every wait: for ranks that have not come, and inside operations (30) */
    ignis_comm_transport transport; /* one that must be used, or the call fails (IGNIS_COMM_TRANSPORT=peer, staged or nccl; the best) */
} ignis_comm_desc;

typedef struct ignis_comm_info {
    int rank, size;
    int device;                     /* of this rank */
    int local_rank, local_size;     /* among the ranks on this host */
    int hosts;                      /* that the ranks are on */
    ignis_comm_transport transport; /* that is used */
    char reason[256];               /* why this one */
    ignis_status status;            /* IGNIS_OK, or what broke the communicator: _PEER, _TIMEOUT, _MISMATCH */
    int failed_rank;                /* whom it was about; -1: nobody, or not known */
    double timeout_s;
} ignis_comm_info;

/*  ignis_comm_init - meet the other ranks, and make a communicator of all; desc may be null for all defaults
    Every rank calls it, each for a device of its own. Rank and size come from the desc or else from the environment (see ON STARTING in the
    manual); where nothing is set, it is one rank alone. Ranks are processes, or threads of one process that each say their rank.
    Returns: the communicator, or no handle.
    Errors: ARGUMENT (desc, or the environment contradicts itself), DEVICE, PEER (a rank was refused, died or uses another's GPU), TIMEOUT
    (ranks that did not come are named), IO, UNSUPPORTED (the transport that was asked for), LIBRARY (NCCL is needed and missing), MEMORY, CUDA.
    Ownership: the caller ends it with ignis_comm_destroy. desc and its strings are copied.
    Threads: any; waits for the other ranks. Memory: one region on each GPU, which every other rank maps. */
IGNIS_API ignis_comm ignis_comm_init(const ignis_comm_desc *desc);

/*  ignis_comm_split - make communicators of the ranks that give the same color
    All ranks of comm call it, with operations on comm neither before it in some ranks and after it in others. In the new one ranks
    are ordered by key, and by their rank in comm where keys are equal. A rank with a color below 0 takes part in none.
    Returns: the new communicator; no handle on failure, and, without a failure, for a color below 0.
    Errors: FREED, PEER, TIMEOUT, UNSUPPORTED, LIBRARY, MEMORY, CUDA.
    Ownership: the caller ends it with ignis_comm_destroy, before or after comm.
    Threads: one per communicator at a time; waits for the other ranks. */
IGNIS_API ignis_comm ignis_comm_split(ignis_comm comm, int color, int key);

/*  ignis_comm_shrink - make a communicator of the ranks that are still alive
    All of them call it, after comm has failed or before. They agree on who is gone first; ranks keep their order. comm itself stays as it
    is, to be destroyed: late writes of dead ranks go to its memory, which nobody uses again.
    Returns: the new communicator, or no handle.
    Errors: FREED, TIMEOUT (a rank that is alive does not call it), and those of ignis_comm_init.
    Ownership: the caller ends it with ignis_comm_destroy, and comm too.
    Threads: one per communicator at a time; waits for the other ranks. */
IGNIS_API ignis_comm ignis_comm_shrink(ignis_comm comm);

/*  ignis_comm_abort - break a communicator on all its ranks: what waits in an operation, there or here, ends with PEER
    Returns: IGNIS_OK, also when it is broken already.
    Errors: FREED.
    Ownership: it still has to be destroyed.
    Threads: any, also while another one is inside an operation on it. Does not wait. */
IGNIS_API ignis_status ignis_comm_abort(ignis_comm comm);

/*  ignis_comm_destroy - end this rank's part in a communicator, after all work on its device is done
    The others may still be inside their last operation; none of them needs to come. The last communicator of a meeting (of
    ignis_comm_init and what was split and shrunk from it) says goodbye to the other ranks.
    Returns: IGNIS_OK, or the first driver error met on the way; everything is let go all the same.
    Errors: FREED (also for a second destroy), CUDA.
    Ownership: the handle is stale afterwards.
    Threads: any. Waits for the device. */
IGNIS_API ignis_status ignis_comm_destroy(ignis_comm comm);

/*  ignis_comm_query - who takes part, how data travels and why so, and whether the communicator works
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_comm_query(ignis_comm comm, ignis_comm_info *info);

/*  ignis_comm_init_all - make the communicators of several devices of this process: comms[i] is rank i, on devices[i]
    devices may be null: the first count devices. Of desc (null: all defaults), timeout_s counts. One thread may call an operation on
    each of them in turn, as operations do not wait; or each has a thread of its own.
    Returns: IGNIS_OK, and *comms filled; all zero on failure.
    Errors: ARGUMENT (a device twice, count below 1 or above IGNIS_COMM_MAX_RANKS), DEVICE, UNSUPPORTED (two devices do not reach each
    other's memory), MEMORY, CUDA.
    Ownership: the caller ends each with ignis_comm_destroy.
    Threads: any. Waits for the devices. */
IGNIS_API ignis_status ignis_comm_init_all(ignis_comm *comms, const int *devices, int count, const ignis_comm_desc *desc);

/* --- operations --- */

/*  All ranks call the same operations on a communicator in the same order, with arrays of equal size and type, each on its own device.
    An operation is queued on the current stream of the communicator's device and returns; whether it went well says
    ignis_comm_synchronize, ignis_comm_status, or the next operation. The deadline of a wait starts when the kernel runs. After a failure results
    are undefined, and the communicator is broken: it refuses all later operations.

    in == out is allowed, as is a part of one array that lies where the operation would put it (all_gather: in is part `rank` of out;
    reduce_scatter: out is part `rank` of in). While a call queues its work IGNIS_OWNER_NVCCL owns the arrays; they must be owned by IGNIS_OWNER_IGNIS.
    All of them can be captured in graphs. A graph is launched on every rank, in the same order as other operations on the communicator, and
    not at the same time as one on another stream. One communicator used on several streams: a later operation waits for the earlier ones.

    Sums and products of f16 and bf16 are computed in f32 and rounded once; every algorithm combines in the order of the ranks, so all
    ranks get the same bits, on every run and in every transport. min and max give NaN where any rank has NaN. IGNIS_OP_AVG is the sum times 1/size, for floating types. */

/*  ignis_comm_all_reduce - out = op over the ranks of in, elementwise, on every rank
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: FREED, CONTRACT (somebody else owns an array), SHAPE (in and out differ in size), DTYPE (types differ, or the average of
    integers), DEVICE, ARGUMENT (they overlap, or op), PEER, TIMEOUT and MISMATCH (the communicator is broken), MEMORY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_all_reduce(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op);

/*  ignis_comm_reduce - out = op over the ranks of in, on rank root; out of the others is left alone, and may be no handle
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_all_reduce, and ARGUMENT (root).
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_reduce(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op, int root);

/*  ignis_comm_broadcast - array of every rank = array of rank root
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_reduce.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_broadcast(ignis_comm comm, ignis_array array, int root);

/*  ignis_comm_all_gather - out of every rank = in of rank 0, in of rank 1, ..., one after the other; out has size times as many elements
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_all_reduce.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_all_gather(ignis_comm comm, ignis_array in, ignis_array out);

/*  ignis_comm_reduce_scatter - out of rank r = op over the ranks of part r of in, which has size times as many elements
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_all_reduce.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_reduce_scatter(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op);

/*  ignis_comm_all_to_all - part r of out = part `this rank` of in of rank r; both have a multiple of size elements
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_all_reduce.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_all_to_all(ignis_comm comm, ignis_array in, ignis_array out);

/*  ignis_comm_send, ignis_comm_recv - give array to rank dest, whose next ignis_comm_recv from this rank has an array of the same size
    and type. Pairs of ranks count for themselves, apart from the other operations. A long send ends only when the other side receives, so two
    ranks that both send first wait for each other until the deadline; ignis_comm_send_recv does not.
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_all_reduce, and ARGUMENT (dest or source is this rank, or none).
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_send(ignis_comm comm, ignis_array array, int dest);
IGNIS_API ignis_status ignis_comm_recv(ignis_comm comm, ignis_array array, int source);

/*  ignis_comm_send_recv - give in to rank dest and get out from rank source at the same time; in and out are apart
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_send.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_send_recv(ignis_comm comm, ignis_array in, int dest, ignis_array out, int source);

/*  ignis_comm_barrier - no rank's stream goes on before all ranks' streams have come here
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: FREED, PEER, TIMEOUT and MISMATCH (the communicator is broken), COMPILE, CUDA.
    Ownership: nothing to free.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_barrier(ignis_comm comm);

/*  ignis_comm_synchronize - wait until the operations queued on comm are done, and report what went wrong in them
    Operations that were captured count when their graph was launched on the current stream.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures), TIMEOUT (a rank did not come), MISMATCH (ranks asked for different things), PEER
    (a rank died or gave up), CUDA.
    Ownership: nothing to free.
    Threads: any. Waits for the current stream of the device, and for the one that comm was used on last. */
IGNIS_API ignis_status ignis_comm_synchronize(ignis_comm comm);

/*  ignis_comm_status - whether comm works; does not wait
    Returns: IGNIS_OK, or TIMEOUT, MISMATCH or PEER, which have broken it.
    Errors: FREED, TIMEOUT, MISMATCH, PEER.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_comm_status(ignis_comm comm);

/* >>parallel ---------------------------------------------------------------------------------------------------- */

#ifdef __cplusplus
} /* extern "C" */

/*  In C++ option structs can be passed by reference: ignis_vmm_create({...}). */
inline ignis_vmm ignis_vmm_create(const ignis_vmm_desc &desc) { return ignis_vmm_create(&desc); }
inline ignis_array ignis_vmm_array(const ignis_vmm_array_desc &desc) { return ignis_vmm_array(&desc); }
inline ignis_channel ignis_channel_serve(const ignis_channel_desc &desc) { return ignis_channel_serve(&desc); }
inline ignis_channel ignis_channel_connect(const ignis_channel_desc &desc) { return ignis_channel_connect(&desc); }
#endif

#endif /* IGNIS_COLLECTIVE_INCLUDED */

#ifdef IGNIS_IMPLEMENTATION
#ifndef IGNIS_COLLECTIVE_IMPLEMENTED
#define IGNIS_COLLECTIVE_IMPLEMENTED

/* ===============================================================================================================
   >>vmm - physical memory, address ranges, mappings, access; export and import.
   =============================================================================================================== */

/* --- what is open in ignis_collective.h ------------------------------------------------------------------------------- */

/*  A section that has something to close says so when it is first used; what was built on others is closed before them. */
typedef enum ignis__section {
    IGNIS__SECTION_VMM,
    IGNIS__SECTION_CHANNEL,
    IGNIS__SECTION_TRANSPORT,
    IGNIS__SECTION_NCCL,
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

/* --- what the collective layer needs of the system: handles of memory ------------------------------------------------- */

#ifdef _WIN32

#include <sddl.h>
#ifdef _MSC_VER
#pragma comment(lib, "advapi32.lib")
#endif
#define IGNIS__VMM_HANDLE_SYSTEM IGNIS_VMM_HANDLE_WIN32

/*  OBJECT_ATTRIBUTES with a security descriptor that lets in the owner alone. */
typedef struct ignis__vmm_security {
    struct {
        ULONG length;
        HANDLE root;
        void *name;
        ULONG attributes;
        void *descriptor;
        void *quality;
    } object;
} ignis__vmm_security;

static bool ignis__vmm_security_make(const char *call, ignis__vmm_security *security)
{
    PSECURITY_DESCRIPTOR descriptor = NULL;
    memset(security, 0, sizeof *security);
    if (!ConvertStringSecurityDescriptorToSecurityDescriptorA("D:P(A;;GA;;;OW)", SDDL_REVISION_1, &descriptor, NULL)) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "Windows made no security descriptor for a shareable handle: error %lu", GetLastError());
        return false;
    }
    security->object.length = (ULONG)sizeof security->object;
    security->object.descriptor = descriptor;
    return true;
}
static void ignis__vmm_security_drop(ignis__vmm_security *security) { LocalFree(security->object.descriptor); }

static void ignis__vmm_handle_close(ignis_vmm_handle *handle)
{
    if (handle->type == IGNIS_VMM_HANDLE_WIN32 && handle->win32)
        CloseHandle((HANDLE)handle->win32);
}
static bool ignis__vmm_handle_ready(ignis_vmm_handle *handle) { return handle->win32 != NULL; }

#else /* POSIX */

#define IGNIS__VMM_HANDLE_SYSTEM IGNIS_VMM_HANDLE_POSIX_FD

typedef struct ignis__vmm_security {
    int object;
} ignis__vmm_security;
static bool ignis__vmm_security_make(const char *call, ignis__vmm_security *security)
{
    (void)call;
    security->object = 0;
    return true;
}
static void ignis__vmm_security_drop(ignis__vmm_security *security) { (void)security; }

static void ignis__vmm_handle_close(ignis_vmm_handle *handle)
{
    if (handle->type == IGNIS_VMM_HANDLE_POSIX_FD && handle->fd >= 0)
        close(handle->fd);
}
/*  A descriptor that a child process inherits would keep the device memory. */
static bool ignis__vmm_handle_ready(ignis_vmm_handle *handle) { return fcntl(handle->fd, F_SETFD, FD_CLOEXEC) == 0; }

#endif

/* --- driver calls, and what they say ----------------------------------------------------------------------------------- */

enum {
    IGNIS__CU_ATTRIBUTE_VMM = 102,
    IGNIS__CU_ATTRIBUTE_VMM_POSIX_FD = 103,
    IGNIS__CU_ATTRIBUTE_VMM_WIN32 = 104,
    IGNIS__CU_GRANULARITY_MINIMUM = 0,
    IGNIS__CU_GRANULARITY_RECOMMENDED = 1
};

/*  "2 MiB" in a struct, so that a message can hold several. */
typedef struct ignis__bytes_text {
    char text[32];
} ignis__bytes_text;

static ignis__bytes_text ignis__bytes_write(int64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
    ignis__bytes_text out;
    int unit = 0;
    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out.text, sizeof out.text, "%lld %s", (long long)bytes, units[unit]);
    return out;
}

/*  if (IGNIS__VMM_FAILED(call, device, cuMemMap, (...), "mapping %s", ...)) return false; the failure is recorded, with the step. */
#define IGNIS__VMM_FAILED(call, device, name, args, ...) (!ignis__vmm_step(call, device, #name, IGNIS__CUDA(name, args), __VA_ARGS__))

IGNIS__PRINTF(5, 6)
static bool ignis__vmm_step(const char *call, ignis__device *device, const char *function, int error, const char *format, ...)
{
    char step[256];
    ignis__text text;
    va_list args;
    if (error == 0)
        return true;
    ignis__text_begin(&text, step, sizeof step);
    ignis__text_add(&text, "%s, ", function);
    va_start(args, format);
    ignis__text_addv(&text, format, args);
    va_end(args);
    ignis__cuda_fail(call, device, step, error);
    return false;
}

/*  What a device can do, read once a setup. */
typedef struct ignis__vmm_facts {
    uint64_t setup;
    int vmm, shareable;
    int64_t granularity, recommended;
} ignis__vmm_facts;

static struct {
    ignis__mutex lock;
    ignis__vmm_facts facts[IGNIS_MAX_DEVICES];
} ignis__vmm_devices = {IGNIS__MUTEX_INIT, {IGNIS__ZERO}};

static bool ignis__vmm_functions(const char *call)
{
#define IGNIS__VMM_NEEDS(name)                                                                           \
    if (!ignis__cuda.name) {                                                                             \
        ignis__fail(IGNIS_DIAG_LIBRARY_SYMBOL, call,                                                     \
                    "the CUDA driver (%s) has no function " #name "; sharing memory needs CUDA 11.4 or " \
                    "newer",                                                                             \
                    ignis__libraries[IGNIS_LIBRARY_CUDA].path);                                          \
        return false;                                                                                    \
    }
    IGNIS__VMM_NEEDS(cuMemGetAllocationGranularity)
    IGNIS__VMM_NEEDS(cuMemCreate)
    IGNIS__VMM_NEEDS(cuMemRelease)
    IGNIS__VMM_NEEDS(cuMemAddressReserve)
    IGNIS__VMM_NEEDS(cuMemAddressFree)
    IGNIS__VMM_NEEDS(cuMemMap)
    IGNIS__VMM_NEEDS(cuMemUnmap)
    IGNIS__VMM_NEEDS(cuMemSetAccess)
    IGNIS__VMM_NEEDS(cuMemGetAccess)
    IGNIS__VMM_NEEDS(cuMemExportToShareableHandle)
    IGNIS__VMM_NEEDS(cuMemImportFromShareableHandle)
    IGNIS__VMM_NEEDS(cuMemGetAllocationPropertiesFromHandle)
    IGNIS__VMM_NEEDS(cuMemRetainAllocationHandle)
    IGNIS__VMM_NEEDS(cuMemGetAddressRange_v2)
#undef IGNIS__VMM_NEEDS
    return true;
}

IGNIS_API ignis_vmm_prop ignis_vmm_prop_of(int device, bool shareable)
{
    ignis_vmm_prop prop;
    memset(&prop, 0, sizeof prop);
    prop.type = IGNIS_VMM_ALLOCATION_PINNED;
    prop.handle_types = shareable ? IGNIS__VMM_HANDLE_SYSTEM : 0;
    prop.location.type = IGNIS_VMM_LOCATION_DEVICE;
    prop.location.id = device;
    return prop;
}

IGNIS_API ignis_vmm_access_desc ignis_vmm_access_of(int device, bool read_write)
{
    ignis_vmm_access_desc desc;
    desc.location.type = IGNIS_VMM_LOCATION_DEVICE;
    desc.location.id = device;
    desc.access = read_write ? IGNIS_VMM_ACCESS_READ_WRITE : IGNIS_VMM_ACCESS_READ;
    return desc;
}

IGNIS_API ignis_status ignis_vmm_check(int driver_error, const char *context)
{
    static const char call[] = "ignis_vmm_check";
    if (driver_error == 0)
        return IGNIS_OK;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    return ignis__cuda_fail(call, NULL, context ? context : "VMM operation", driver_error);
}

/*  The facts of an entered device; null, and reported, when it has no virtual memory management. */
static const ignis__vmm_facts *ignis__vmm_device(const char *call, ignis__device *device)
{
    int ordinal = (int)(device - ignis__devices);
    ignis__vmm_facts *facts = &ignis__vmm_devices.facts[ordinal];
    int attribute = IGNIS__VMM_HANDLE_SYSTEM == IGNIS_VMM_HANDLE_WIN32 ? IGNIS__CU_ATTRIBUTE_VMM_WIN32 : IGNIS__CU_ATTRIBUTE_VMM_POSIX_FD;
    ignis_vmm_prop prop = ignis_vmm_prop_of(device->handle, false);
    size_t minimum = 0, recommended = 0;
    bool ok = true;
    ignis__mutex_lock(&ignis__vmm_devices.lock);
    if (facts->setup != ignis__global.setups) {
        memset(facts, 0, sizeof *facts);
        ok = ignis__vmm_functions(call) &&
             !IGNIS__CUDA_FAILED(call, device, cuDeviceGetAttribute, (&facts->vmm, IGNIS__CU_ATTRIBUTE_VMM, device->handle)) &&
             !IGNIS__CUDA_FAILED(call, device, cuDeviceGetAttribute, (&facts->shareable, attribute, device->handle)) &&
             (!facts->vmm || (!IGNIS__VMM_FAILED(call, device, cuMemGetAllocationGranularity,
                                                 (&minimum, &prop, IGNIS__CU_GRANULARITY_MINIMUM), "device %d", ordinal) &&
                              !IGNIS__VMM_FAILED(call, device, cuMemGetAllocationGranularity,
                                                 (&recommended, &prop, IGNIS__CU_GRANULARITY_RECOMMENDED), "device %d", ordinal)));
        facts->granularity = (int64_t)minimum;
        facts->recommended = (int64_t)recommended;
        if (ok)
            facts->setup = ignis__global.setups;
    }
    ignis__mutex_unlock(&ignis__vmm_devices.lock);
    if (ok && !facts->vmm) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "device %d has no virtual memory management, so memory cannot be mapped or shared by it",
                    ordinal);
        return NULL;
    }
    return ok ? facts : NULL;
}

/*  The type that DEFAULT stands for; NONE is 0 to the driver. False, and reported: this system has no such type. */
static bool ignis__vmm_handle_type(const char *call, ignis__device *device, const ignis__vmm_facts *facts, ignis_vmm_handle_type type,
                                   int *driver_type)
{
    *driver_type = type == IGNIS_VMM_HANDLE_DEFAULT ? IGNIS__VMM_HANDLE_SYSTEM : type == IGNIS_VMM_HANDLE_NONE ? 0 : (int)type;
    if (*driver_type != 0 && *driver_type != IGNIS_VMM_HANDLE_POSIX_FD && *driver_type != IGNIS_VMM_HANDLE_WIN32 &&
        *driver_type != IGNIS_VMM_HANDLE_WIN32_KMT) {
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no handle type %d; see ignis_vmm_handle_type", (int)type);
        return false;
    }
    if (*driver_type != 0 && *driver_type != IGNIS__VMM_HANDLE_SYSTEM) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "memory is shared by %s on this system, not by handles of type %d",
                    IGNIS__VMM_HANDLE_SYSTEM == IGNIS_VMM_HANDLE_WIN32 ? "NT handles" : "file descriptors", *driver_type);
        return false;
    }
    if (*driver_type != 0 && !facts->shareable) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "device %d makes no memory that can be shared with other processes",
                    (int)(device - ignis__devices));
        return false;
    }
    return true;
}

static bool ignis__vmm_round(const char *call, int64_t size, int64_t granularity, int64_t *rounded)
{
    if (size <= 0 || size > INT64_MAX - granularity) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld, it should be from 1 to 2^63 - %lld", (long long)size,
                    (long long)granularity);
        return false;
    }
    *rounded = (size + granularity - 1) / granularity * granularity;
    return true;
}

static bool ignis__vmm_multiple(const char *call, const char *name, int64_t value, int64_t granularity)
{
    if (value >= 0 && value % granularity == 0)
        return true;
    ignis__fail(IGNIS_DIAG_VMM_SIZE, call, "%s is %lld, not a multiple of the granularity, %s", name, (long long)value,
                ignis__bytes_write(granularity).text);
    return false;
}

/*  Physical memory of the driver's. Like any other request, it gets what the cache holds in vain before it fails. */
static bool ignis__vmm_physical(const char *call, ignis__device *device, int64_t size, int handle_types, unsigned long long *handle)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis_vmm_prop prop = ignis_vmm_prop_of(device->handle, false);
    ignis__vmm_security security;
    int error;
    prop.handle_types = handle_types;
    if (handle_types) {
        if (!ignis__vmm_security_make(call, &security))
            return false;
        prop.win32_security = handle_types == IGNIS_VMM_HANDLE_WIN32 ? &security.object : NULL;
    }
    error = IGNIS__CUDA(cuMemCreate, (handle, (size_t)size, &prop, 0));
    if (error == IGNIS__CU_OUT_OF_MEMORY && !ignis__capturing()) {
        ignis__mutex_lock(&cache->lock);
        ignis__cache_trim(call, device, cache);
        ignis__mutex_unlock(&cache->lock);
        error = IGNIS__CUDA(cuMemCreate, (handle, (size_t)size, &prop, 0));
    }
    if (handle_types)
        ignis__vmm_security_drop(&security);
    return ignis__vmm_step(call, device, "cuMemCreate", error, "making %s of physical memory on device %d", ignis__bytes_write(size).text,
                           (int)(device - ignis__devices));
}

/*  Opens the devices that are to have access: the driver wants their contexts. */
static bool ignis__vmm_open(const char *call, int ordinal)
{
    ignis__device *device = ignis__device_get(call, ordinal);
    ignis__binding binding;
    if (!device || !ignis__device_enter(call, device, &binding))
        return false;
    ignis__device_leave(&binding);
    return true;
}

/* --- a block: physical memory, mapped at an address of its own ---------------------------------------------------------- */

typedef struct ignis__vmm_block {
    ignis__address address;
    int64_t size;
    unsigned long long handle;
    ignis__device *device; /* that uses it; imported memory may lie on another one */
} ignis__vmm_block;

/*  Gives back whatever of the block there is. With a lost device the driver refuses everything, and the memory ends with the process. */
static void ignis__vmm_drop(const char *call, ignis__vmm_block *block)
{
    ignis__binding binding;
    bool lost = ignis__atomic_load(&block->device->lost) != 0;
    bool entered = !lost && ignis__device_enter(call, block->device, &binding);
    if (block->address) {
        int error = IGNIS__CUDA(cuMemUnmap, (block->address, (size_t)block->size));
        if (!lost)
            ignis__vmm_step(call, block->device, "cuMemUnmap", error, "unmapping %s at 0x%llx", ignis__bytes_write(block->size).text,
                            block->address);
        error = IGNIS__CUDA(cuMemAddressFree, (block->address, (size_t)block->size));
        if (!lost)
            ignis__vmm_step(call, block->device, "cuMemAddressFree", error, "giving %s of addresses back",
                            ignis__bytes_write(block->size).text);
    }
    if (block->handle) {
        int error = IGNIS__CUDA(cuMemRelease, (block->handle));
        if (!lost)
            ignis__vmm_step(call, block->device, "cuMemRelease", error, "releasing %s", ignis__bytes_write(block->size).text);
    }
    if (entered)
        ignis__device_leave(&binding);
    memset(block, 0, sizeof *block);
}

/*  Reserves addresses for a block that has physical memory, maps it, and lets devices in. The block's device is entered. On failure
    the block has no address; its memory remains. */
static bool ignis__vmm_place(const char *call, ignis__vmm_block *block, const int *access_devices, int access_count)
{
    ignis_vmm_access_desc access[IGNIS_MAX_DEVICES + 1];
    ignis__device *device = block->device;
    ignis__address address = 0;
    int i, count = 1;
    access[0] = ignis_vmm_access_of(device->handle, true);
    for (i = 0; i < access_count; i++) {
        if (access_devices[i] == (int)(device - ignis__devices))
            continue;
        if (count > IGNIS_MAX_DEVICES) {
            ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "access is asked for %d devices, there are %d", access_count, ignis__device_total);
            return false;
        }
        if (!ignis__vmm_open(call, access_devices[i]))
            return false;
        access[count++] = ignis_vmm_access_of(ignis__devices[access_devices[i]].handle, true);
    }
    if (IGNIS__VMM_FAILED(call, device, cuMemAddressReserve, (&address, (size_t)block->size, 0, 0, 0), "reserving %s of addresses",
                          ignis__bytes_write(block->size).text))
        return false;
    if (!IGNIS__VMM_FAILED(call, device, cuMemMap, (address, (size_t)block->size, 0, block->handle, 0), "mapping %s at 0x%llx",
                           ignis__bytes_write(block->size).text, address)) {
        if (!IGNIS__VMM_FAILED(call, device, cuMemSetAccess, (address, (size_t)block->size, access, (size_t)count),
                               "letting %d device%s into %s at 0x%llx", count, count == 1 ? "" : "s", ignis__bytes_write(block->size).text,
                               address)) {
            block->address = address;
            return true;
        }
        (void)IGNIS__CUDA(cuMemUnmap, (address, (size_t)block->size)); /* the first failure is the one reported */
    }
    (void)IGNIS__CUDA(cuMemAddressFree, (address, (size_t)block->size));
    return false;
}

/*  New memory on `device`, rounded up to whole granules, that it and the others named may read and write. */
static bool ignis__vmm_make(const char *call, ignis__device *device, int64_t size, const int *access_devices, int access_count,
                            bool shareable, ignis__vmm_block *out)
{
    const ignis__vmm_facts *facts;
    ignis__binding binding;
    int handle_types;
    bool ok;
    memset(out, 0, sizeof *out);
    if (!ignis__device_enter(call, device, &binding))
        return false;
    out->device = device;
    facts = ignis__vmm_device(call, device);
    ok = facts &&
         ignis__vmm_handle_type(call, device, facts, shareable ? IGNIS_VMM_HANDLE_DEFAULT : IGNIS_VMM_HANDLE_NONE, &handle_types) &&
         ignis__vmm_round(call, size, facts->granularity, &out->size) &&
         ignis__vmm_physical(call, device, out->size, handle_types, &out->handle);
    if (ok && !ignis__vmm_place(call, out, access_devices, access_count)) {
        ignis__vmm_drop(call, out);
        ok = false;
    }
    if (!ok)
        memset(out, 0, sizeof *out);
    ignis__device_leave(&binding);
    return ok;
}

/*  What the driver says of memory from elsewhere: pinned memory of a device of this process, or it is refused. */
static bool ignis__vmm_inspect(const char *call, ignis__device *device, unsigned long long handle, ignis_vmm_prop *prop)
{
    memset(prop, 0, sizeof *prop);
    if (IGNIS__VMM_FAILED(call, device, cuMemGetAllocationPropertiesFromHandle, (prop, handle), "asking what was imported"))
        return false;
    if (prop->type == IGNIS_VMM_ALLOCATION_PINNED && prop->location.type == IGNIS_VMM_LOCATION_DEVICE && prop->location.id >= 0 &&
        prop->location.id < ignis__device_total)
        return true;
    ignis__fail(IGNIS_DIAG_NOT_SHAREABLE, call,
                "the handle is of memory of type %d at location type %d, %d; pinned memory of a device was "
                "expected",
                prop->type, prop->location.type, prop->location.id);
    return false;
}

/*  The handle as the driver takes it: a descriptor or NT handle that travels in a pointer. */
static bool ignis__vmm_take_in(const char *call, ignis__device *device, const ignis_vmm_handle *from, unsigned long long *handle)
{
    void *os = from->type == IGNIS_VMM_HANDLE_WIN32 ? from->win32 : (void *)(intptr_t)from->fd;
    return !IGNIS__VMM_FAILED(call, device, cuMemImportFromShareableHandle, (handle, os, (int)from->type), "importing handle %lld",
                              (long long)(intptr_t)os);
}

/*  Memory of another process, of exactly `size` bytes, mapped for `device` and the others named. The handle stays the caller's. */
static bool ignis__vmm_adopt_handle(const char *call, ignis__device *device, const ignis_vmm_handle *handle, int64_t size,
                                    const int *access_devices, int access_count, ignis__vmm_block *out)
{
    const ignis__vmm_facts *facts;
    ignis__binding binding;
    ignis_vmm_prop prop;
    bool ok;
    memset(out, 0, sizeof *out);
    if (!ignis__device_enter(call, device, &binding))
        return false;
    out->device = device;
    facts = ignis__vmm_device(call, device);
    ok = facts && size > 0 && ignis__vmm_multiple(call, "size", size, facts->granularity) &&
         ignis__vmm_take_in(call, device, handle, &out->handle);
    if (facts && size <= 0)
        ignis__fail(IGNIS_DIAG_VMM_SIZE, call, "size is %lld, that of shared memory is positive", (long long)size);
    out->size = size;
    if (ok && !(ignis__vmm_inspect(call, device, out->handle, &prop) && ignis__vmm_open(call, prop.location.id) &&
                ignis__vmm_place(call, out, access_devices, access_count))) {
        ignis__vmm_drop(call, out);
        ok = false;
    }
    if (!ok)
        memset(out, 0, sizeof *out);
    ignis__device_leave(&binding);
    return ok;
}

IGNIS__MAYBE_UNUSED static bool ignis__vmm_adopt(const char *call, ignis__device *device, int fd, int64_t size, const int *access_devices,
                                                 int access_count, ignis__vmm_block *out)
{
    ignis_vmm_handle handle;
    memset(&handle, 0, sizeof handle);
    handle.type = IGNIS_VMM_HANDLE_POSIX_FD;
    handle.fd = fd;
    return ignis__vmm_adopt_handle(call, device, &handle, size, access_devices, access_count, out);
}

/*  A handle of physical memory for another process, as the system has them. */
static bool ignis__vmm_give_out(const char *call, ignis__device *device, unsigned long long handle, ignis_vmm_handle *out)
{
    ignis__binding binding;
    bool ok;
    memset(out, 0, sizeof *out);
    out->type = IGNIS__VMM_HANDLE_SYSTEM;
    out->fd = -1;
    if (!ignis__device_enter(call, device, &binding))
        return false;
    ok = !IGNIS__VMM_FAILED(call, device, cuMemExportToShareableHandle,
                            (out->type == IGNIS_VMM_HANDLE_WIN32 ? (void *)&out->win32 : (void *)&out->fd, handle, (int)out->type, 0),
                            "exporting physical memory");
    if (ok && !ignis__vmm_handle_ready(out)) {
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the handle that the driver made cannot be used");
        ignis__vmm_handle_close(out);
        ok = false;
    }
    if (!ok)
        memset(out, 0, sizeof *out);
    ignis__device_leave(&binding);
    return ok;
}

/*  A descriptor of a shareable block, closed on exec, and by the caller. */
IGNIS__MAYBE_UNUSED static bool ignis__vmm_fd(const char *call, const ignis__vmm_block *block, int *fd)
{
    ignis_vmm_handle handle;
    if (!ignis__vmm_give_out(call, block->device, block->handle, &handle))
        return false;
    *fd = handle.fd;
    if (handle.type == IGNIS_VMM_HANDLE_POSIX_FD)
        return true;
    ignis__vmm_handle_close(&handle);
    ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "memory is shared by NT handles on this system, not by file descriptors");
    return false;
}

/* --- physical memory --------------------------------------------------------------------------------------------------- */

/*  Handle and mappings are holds of the same slot, so the memory is released when the last of them is gone. */
typedef struct ignis__vmm {
    ignis__slot slot;
    ignis__device *device; /* where it lies */
    unsigned long long handle;
    int64_t size, granularity;
    int handle_types;
    bool imported;
    uint64_t mappings;
} ignis__vmm;

static ignis__pool ignis__vmms = {sizeof(ignis__vmm), IGNIS__KIND_VMM, IGNIS__MUTEX_INIT, 0, {0}, NULL};

static ignis__vmm *ignis__vmm_hold(const char *call, ignis_vmm handle)
{
    ignis__vmm *vmm;
    if (!ignis__enter(call))
        return NULL;
    vmm = (ignis__vmm *)ignis__pool_hold(&ignis__vmms, handle.id);
    if (!vmm)
        ignis__fail_stale(call, "VMM", IGNIS_DIAG_VMM_FREED, IGNIS__KIND_VMM, handle.id);
    return vmm;
}

static void ignis__vmm_unhold(const char *call, ignis__vmm *vmm)
{
    ignis__vmm_block block;
    if (!ignis__pool_drop(vmm))
        return;
    memset(&block, 0, sizeof block);
    block.device = vmm->device;
    block.handle = vmm->handle;
    block.size = vmm->size;
    ignis__vmm_drop(call, &block);
    ignis__pool_give(&ignis__vmms, vmm);
}

/*  Makes a handle's item stale once; false, and reported, when another thread was faster. */
static bool ignis__vmm_kill(const char *call, ignis__slot *slot, const char *what)
{
    bool live;
    ignis__mutex_lock(&slot->lock);
    live = ignis__pool_live(slot);
    if (live)
        ignis__pool_kill(slot);
    ignis__mutex_unlock(&slot->lock);
    if (!live)
        ignis__fail(IGNIS_DIAG_VMM_FREED, call, "%s was freed", what);
    return live;
}

/* --- ranges of addresses ----------------------------------------------------------------------------------------------- */

typedef struct ignis__mapping {
    int64_t offset;
    ignis__vmm *vmm;  /* held */
    uint64_t devices; /* bit d: device d was let in */
    int arrays;
    struct ignis__mapping *next; /* by offset */
} ignis__mapping;

/*  The slot's lock guards the mappings. An array over a part holds the range. */
typedef struct ignis__range {
    ignis__slot slot;
    ignis__device *device; /* that was current; its context is entered for calls */
    ignis__address address;
    int64_t size, granularity;
    ignis__mapping *mappings;
    int arrays;
} ignis__range;

static ignis__pool ignis__ranges = {sizeof(ignis__range), IGNIS__KIND_RANGE, IGNIS__MUTEX_INIT, 0, {0}, NULL};

static ignis__range *ignis__range_hold(const char *call, ignis_vmm_range handle)
{
    ignis__range *range;
    if (!ignis__enter(call))
        return NULL;
    range = (ignis__range *)ignis__pool_hold(&ignis__ranges, handle.id);
    if (!range)
        ignis__fail_stale(call, "range", IGNIS_DIAG_VMM_FREED, IGNIS__KIND_RANGE, handle.id);
    return range;
}

/*  Ends a mapping that is in no list any more. */
static bool ignis__mapping_end(const char *call, ignis__range *range, ignis__mapping *mapping)
{
    ignis__address at = range->address + (uint64_t)mapping->offset;
    bool lost = ignis__atomic_load(&range->device->lost) != 0;
    int error = IGNIS__CUDA(cuMemUnmap, (at, (size_t)mapping->vmm->size));
    bool ok = lost || ignis__vmm_step(call, range->device, "cuMemUnmap", error, "unmapping %s at 0x%llx",
                                      ignis__bytes_write(mapping->vmm->size).text, at);
    ignis__atomic_add(&mapping->vmm->mappings, (uint64_t)-1);
    ignis__vmm_unhold(call, mapping->vmm);
    ignis__free(mapping);
    return ok;
}

/*  Waits for the devices in a mask, lost ones excepted. */
static bool ignis__devices_wait(const char *call, uint64_t mask)
{
    bool ok = true;
    for (; mask; mask &= mask - 1) {
        ignis__device *device = &ignis__devices[ignis__lowest_bit(mask)];
        ignis__binding binding;
        if (ignis__atomic_load(&device->lost))
            continue;
        if (!ignis__device_enter(call, device, &binding)) {
            ok = false;
            continue;
        }
        ok = !IGNIS__CUDA_FAILED(call, device, cuCtxSynchronize, ()) && ok;
        ignis__device_leave(&binding);
    }
    return ok;
}

static void ignis__range_unhold(const char *call, ignis__range *range)
{
    ignis__binding binding;
    bool lost, entered;
    int error;
    if (!ignis__pool_drop(range))
        return;
    lost = ignis__atomic_load(&range->device->lost) != 0;
    entered = !lost && ignis__device_enter(call, range->device, &binding);
    while (range->mappings) {
        ignis__mapping *mapping = range->mappings;
        range->mappings = mapping->next;
        ignis__devices_wait(call, mapping->devices);
        ignis__mapping_end(call, range, mapping);
    }
    error = IGNIS__CUDA(cuMemAddressFree, (range->address, (size_t)range->size));
    if (!lost)
        ignis__vmm_step(call, range->device, "cuMemAddressFree", error, "giving %s of addresses back",
                        ignis__bytes_write(range->size).text);
    if (entered)
        ignis__device_leave(&binding);
    ignis__pool_give(&ignis__ranges, range);
}

/*  Leaks are reported like those of arrays; what arrays still use goes with them. */
static void ignis__vmm_close(const char *call)
{
    uint64_t i;
    for (i = 0; i < ignis__atomic_load(&ignis__ranges.count); i++) {
        ignis__range *range = (ignis__range *)ignis__pool_hold_slot(&ignis__ranges, i, 0);
        if (!range)
            continue;
        ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_ARRAY_LEAKED, "%s: still alive: a VMM range of %s", call,
                    ignis__bytes_write(range->size).text);
        ignis__pool_kill(range);
        ignis__pool_drop(range);
        ignis__range_unhold(call, range);
    }
    for (i = 0; i < ignis__atomic_load(&ignis__vmms.count); i++) {
        ignis__vmm *vmm = (ignis__vmm *)ignis__pool_hold_slot(&ignis__vmms, i, 0);
        if (!vmm)
            continue;
        ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_ARRAY_LEAKED, "%s: still alive: %s of VMM memory on device %d", call,
                    ignis__bytes_write(vmm->size).text, (int)(vmm->device - ignis__devices));
        ignis__pool_kill(vmm);
        ignis__pool_drop(vmm);
        ignis__vmm_unhold(call, vmm);
    }
}

/*  A handle for physical memory, which becomes its; or releases it, when there is no room. */
static ignis_vmm ignis__vmm_publish(const char *call, ignis__device *device, unsigned long long handle, int64_t size, int64_t granularity,
                                    int handle_types, bool imported)
{
    ignis_vmm result = IGNIS__ZERO;
    ignis__vmm *vmm = (ignis__vmm *)ignis__pool_take(&ignis__vmms);
    if (!vmm) {
        ignis__fail_host_memory(call, sizeof *vmm);
        (void)IGNIS__CUDA(cuMemRelease, (handle));
        return result;
    }
    vmm->device = device;
    vmm->handle = handle;
    vmm->size = size;
    vmm->granularity = granularity;
    vmm->handle_types = handle_types;
    vmm->imported = imported;
    vmm->mappings = 0;
    ignis__section_use(IGNIS__SECTION_VMM, ignis__vmm_close);
    result.id = ignis__pool_publish(&ignis__vmms, vmm);
    return result;
}

/*  The device of an option struct, entered; null on failure. */
static ignis__device *ignis__vmm_enter(const char *call, int ordinal, ignis__binding *binding)
{
    ignis__device *device;
    if (!ignis__enter(call))
        return NULL;
    device = ignis__device_get(call, ordinal);
    return device && ignis__device_enter(call, device, binding) ? device : NULL;
}

static int ignis__desc_device(int device) { return device == 0 ? ignis__thread_now()->device : device == IGNIS_DEVICE_0 ? 0 : device; }

IGNIS_API int64_t ignis_vmm_granularity(int ordinal, bool recommended)
{
    static const char call[] = "ignis_vmm_granularity";
    ignis__binding binding;
    ignis__device *device = ignis__vmm_enter(call, ordinal, &binding);
    const ignis__vmm_facts *facts;
    if (!device)
        return -1;
    facts = ignis__vmm_device(call, device);
    ignis__device_leave(&binding);
    return !facts ? -1 : recommended ? facts->recommended : facts->granularity;
}

IGNIS_API ignis_vmm ignis_vmm_create(const ignis_vmm_desc *desc)
{
    static const char call[] = "ignis_vmm_create";
    ignis_vmm result = IGNIS__ZERO;
    const ignis__vmm_facts *facts;
    unsigned long long handle;
    ignis__binding binding;
    ignis__device *device;
    int handle_types;
    int64_t size;
    if (!ignis__enter(call))
        return result;
    if (!desc) {
        ignis__fail_null(call, "desc");
        return result;
    }
    device = ignis__vmm_enter(call, ignis__desc_device(desc->device), &binding);
    if (!device)
        return result;
    facts = ignis__vmm_device(call, device);
    if (facts && ignis__vmm_handle_type(call, device, facts, desc->handle_type, &handle_types) &&
        ignis__vmm_round(call, desc->size, facts->granularity, &size) && ignis__vmm_physical(call, device, size, handle_types, &handle))
        result = ignis__vmm_publish(call, device, handle, size, facts->granularity, handle_types, false);
    ignis__device_leave(&binding);
    return result;
}

IGNIS_API ignis_status ignis_vmm_free(ignis_vmm handle)
{
    static const char call[] = "ignis_vmm_free";
    ignis__vmm *vmm = ignis__vmm_hold(call, handle);
    bool ok;
    if (!vmm)
        return ignis__failed();
    ok = ignis__vmm_kill(call, &vmm->slot, "the VMM memory");
    if (ok)
        ignis__pool_drop(vmm); /* the handle's own hold; this call still has one */
    ignis__vmm_unhold(call, vmm);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_vmm_query(ignis_vmm handle, ignis_vmm_info *info)
{
    static const char call[] = "ignis_vmm_query";
    ignis__vmm *vmm = ignis__vmm_hold(call, handle);
    ignis__binding binding;
    bool ok = false;
    if (!vmm)
        return ignis__failed();
    if (!info) {
        ignis__fail_null(call, "info");
    } else if (ignis__device_enter(call, vmm->device, &binding)) {
        memset(info, 0, sizeof *info);
        info->size = vmm->size;
        info->granularity = vmm->granularity;
        info->device = (int)(vmm->device - ignis__devices);
        info->handle_type = vmm->handle_types ? (ignis_vmm_handle_type)vmm->handle_types : IGNIS_VMM_HANDLE_NONE;
        info->imported = vmm->imported;
        info->mappings = (int)ignis__atomic_load(&vmm->mappings);
        ok = !IGNIS__VMM_FAILED(call, vmm->device, cuMemGetAllocationPropertiesFromHandle, (&info->prop, vmm->handle),
                                "asking what the memory is");
        ignis__device_leave(&binding);
    }
    ignis__vmm_unhold(call, vmm);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_vmm_range ignis_vmm_reserve(int64_t size, int64_t alignment)
{
    static const char call[] = "ignis_vmm_reserve";
    ignis_vmm_range result = IGNIS__ZERO;
    const ignis__vmm_facts *facts;
    ignis__address address = 0;
    ignis__binding binding;
    ignis__range *range;
    ignis__device *device;
    int64_t rounded;
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return result;
    facts = ignis__vmm_device(call, device);
    if (alignment < 0 || (alignment & (alignment - 1)) != 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "alignment is %lld, it should be 0 or a power of two", (long long)alignment);
    } else if (facts && ignis__vmm_round(call, size, facts->granularity, &rounded) &&
               !IGNIS__VMM_FAILED(call, device, cuMemAddressReserve, (&address, (size_t)rounded, (size_t)alignment, 0, 0),
                                  "reserving %s of addresses", ignis__bytes_write(rounded).text)) {
        range = (ignis__range *)ignis__pool_take(&ignis__ranges);
        if (range) {
            range->device = device;
            range->address = address;
            range->size = rounded;
            range->granularity = facts->granularity;
            range->mappings = NULL;
            range->arrays = 0;
            ignis__section_use(IGNIS__SECTION_VMM, ignis__vmm_close);
            result.id = ignis__pool_publish(&ignis__ranges, range);
        } else {
            ignis__fail_host_memory(call, sizeof *range);
            (void)IGNIS__CUDA(cuMemAddressFree, (address, (size_t)rounded));
        }
    }
    ignis__device_leave(&binding);
    return result;
}

/*  Locks a held range; false, and reported, when another thread has freed it meanwhile. */
static bool ignis__range_lock(const char *call, ignis__range *range)
{
    ignis__mutex_lock(&range->slot.lock);
    if (ignis__pool_live(range))
        return true;
    ignis__mutex_unlock(&range->slot.lock);
    ignis__fail(IGNIS_DIAG_VMM_FREED, call, "the range was given back");
    return false;
}

static void ignis__range_unlock(ignis__range *range) { ignis__mutex_unlock(&range->slot.lock); }

IGNIS_API ignis_status ignis_vmm_unreserve(ignis_vmm_range handle)
{
    static const char call[] = "ignis_vmm_unreserve";
    ignis__range *range = ignis__range_hold(call, handle);
    bool ok;
    if (!range)
        return ignis__failed();
    ok = ignis__range_lock(call, range);
    if (ok) {
        if (range->mappings) {
            ignis__fail(IGNIS_DIAG_VMM_STATE, call, "memory is still mapped in the range, the first at offset %lld; unmap it first",
                        (long long)range->mappings->offset);
            ok = false;
        } else {
            ignis__pool_kill(range);
        }
        ignis__range_unlock(range);
    }
    if (ok)
        ignis__pool_drop(range);
    ignis__range_unhold(call, range);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_vmm_range_query(ignis_vmm_range handle, ignis_vmm_range_info *info)
{
    static const char call[] = "ignis_vmm_range_query";
    ignis__range *range = ignis__range_hold(call, handle);
    const ignis__mapping *mapping;
    bool ok = false;
    if (!range)
        return ignis__failed();
    if (!info) {
        ignis__fail_null(call, "info");
    } else if (ignis__range_lock(call, range)) {
        memset(info, 0, sizeof *info);
        info->ptr = (void *)(uintptr_t)range->address;
        info->size = range->size;
        info->arrays = range->arrays;
        for (mapping = range->mappings; mapping; mapping = mapping->next) {
            info->mapped_bytes += mapping->vmm->size;
            info->mappings++;
        }
        ignis__range_unlock(range);
        ok = true;
    }
    ignis__range_unhold(call, range);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Puts a mapping into the list of a locked range, if there is room for it. */
static bool ignis__mapping_insert(const char *call, ignis__range *range, ignis__mapping *added)
{
    ignis__mapping **at = &range->mappings, *other;
    int64_t size = added->vmm->size;
    if (added->offset > range->size - size) {
        ignis__fail(IGNIS_DIAG_VMM_SIZE, call, "%s at offset %lld do not fit into the range of %s", ignis__bytes_write(size).text,
                    (long long)added->offset, ignis__bytes_write(range->size).text);
        return false;
    }
    while ((other = *at) != NULL && other->offset + other->vmm->size <= added->offset)
        at = &other->next;
    if (other && other->offset < added->offset + size) {
        ignis__fail(IGNIS_DIAG_VMM_STATE, call, "at offset %lld, %s are mapped already", (long long)other->offset,
                    ignis__bytes_write(other->vmm->size).text);
        return false;
    }
    added->next = other;
    *at = added;
    return true;
}

IGNIS_API ignis_status ignis_vmm_map(ignis_vmm_range handle, int64_t offset, ignis_vmm memory)
{
    static const char call[] = "ignis_vmm_map";
    ignis__range *range = ignis__range_hold(call, handle);
    ignis__vmm *vmm = range ? ignis__vmm_hold(call, memory) : NULL;
    ignis__mapping *mapping = NULL, **at;
    ignis__binding binding;
    bool ok = false;
    if (vmm && ignis__vmm_multiple(call, "offset", offset, vmm->granularity)) {
        mapping = (ignis__mapping *)ignis__alloc(sizeof *mapping);
        if (!mapping)
            ignis__fail_host_memory(call, sizeof *mapping);
    }
    if (mapping && ignis__device_enter(call, range->device, &binding)) {
        mapping->offset = offset;
        mapping->vmm = vmm;
        if (ignis__range_lock(call, range)) {
            ignis__address address = range->address + (uint64_t)offset;
            if (ignis__mapping_insert(call, range, mapping)) {
                ok = !IGNIS__VMM_FAILED(call, range->device, cuMemMap, (address, (size_t)vmm->size, 0, vmm->handle, 0),
                                        "mapping %s at 0x%llx", ignis__bytes_write(vmm->size).text, address);
                for (at = &range->mappings; !ok && *at != mapping; at = &(*at)->next)
                    ;
                if (!ok)
                    *at = mapping->next;
            }
            ignis__range_unlock(range);
        }
        ignis__device_leave(&binding);
    }
    if (ok) {
        ignis__atomic_add(&vmm->mappings, 1);
    } else {
        ignis__free(mapping);
        if (vmm)
            ignis__vmm_unhold(call, vmm);
    }
    if (range)
        ignis__range_unhold(call, range);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_vmm_unmap(ignis_vmm_range handle, int64_t offset)
{
    static const char call[] = "ignis_vmm_unmap";
    ignis__range *range = ignis__range_hold(call, handle);
    ignis__mapping *mapping = NULL, **at;
    ignis__binding binding;
    bool ok = false;
    if (!range)
        return ignis__failed();
    if (!ignis__capture_refuses(call) && (ignis__atomic_load(&range->device->lost) || ignis__device_enter(call, range->device, &binding))) {
        bool entered = !ignis__atomic_load(&range->device->lost);
        if (ignis__range_lock(call, range)) {
            for (at = &range->mappings; *at && (*at)->offset != offset; at = &(*at)->next)
                ;
            mapping = *at;
            if (!mapping) {
                ignis__fail(IGNIS_DIAG_VMM_STATE, call, "no mapping begins at offset %lld of the range", (long long)offset);
            } else if (mapping->arrays) {
                ignis__fail(IGNIS_DIAG_VMM_STATE, call, "%d array%s the mapping at offset %lld; free %s first", mapping->arrays,
                            mapping->arrays == 1 ? " uses" : "s use", (long long)offset, mapping->arrays == 1 ? "it" : "them");
                mapping = NULL;
            } else {
                *at = mapping->next;
            }
            ok = mapping && ignis__devices_wait(call, mapping->devices);
            ok = mapping && ignis__mapping_end(call, range, mapping) && ok;
            ignis__range_unlock(range);
        }
        if (entered)
            ignis__device_leave(&binding);
    }
    ignis__range_unhold(call, range);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Whether a part of a locked range is mapped throughout; visits the mappings that it touches. */
static bool ignis__range_covered(const char *call, const ignis__range *range, int64_t offset, int64_t size,
                                 void (*visit)(ignis__mapping *mapping, uint64_t value), uint64_t value)
{
    ignis__mapping *mapping, *first = NULL;
    int64_t at = offset;
    bool inside = offset >= 0 && size > 0 && size <= range->size && offset <= range->size - size;
    for (mapping = inside ? range->mappings : NULL; mapping && at < offset + size; mapping = mapping->next) {
        if (mapping->offset > at || mapping->offset + mapping->vmm->size <= at)
            continue;
        first = first ? first : mapping;
        at = mapping->offset + mapping->vmm->size;
    }
    if (!inside || at < offset + size) {
        ignis__fail(IGNIS_DIAG_VMM_STATE, call, "%lld bytes at offset %lld are not mapped throughout; the range has %lld bytes",
                    (long long)size, (long long)offset, (long long)range->size);
        return false;
    }
    for (mapping = first; visit && mapping && mapping->offset < offset + size; mapping = mapping->next)
        visit(mapping, value);
    return true;
}

static void ignis__mapping_let_in(ignis__mapping *mapping, uint64_t device) { mapping->devices |= (uint64_t)1 << device; }

static void ignis__mapping_add_array(ignis__mapping *mapping, uint64_t count) { mapping->arrays += (int)(int64_t)count; }

static bool ignis__access_valid(const char *call, ignis_vmm_access access)
{
    if (access == IGNIS_VMM_ACCESS_NONE || access == IGNIS_VMM_ACCESS_READ || access == IGNIS_VMM_ACCESS_READ_WRITE)
        return true;
    ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no access %d; IGNIS_VMM_ACCESS_NONE, _READ and _READ_WRITE are 0, 1 and 3",
                (int)access);
    return false;
}

IGNIS_API ignis_status ignis_vmm_set_access(ignis_vmm_range handle, int64_t offset, int64_t size, int ordinal, ignis_vmm_access access)
{
    static const char call[] = "ignis_vmm_set_access";
    ignis__range *range = ignis__range_hold(call, handle);
    ignis_vmm_access_desc desc;
    ignis__binding binding;
    ignis__device *device;
    bool ok = false;
    if (!range)
        return ignis__failed();
    if (ignis__access_valid(call, access) && ignis__vmm_multiple(call, "offset", offset, range->granularity) &&
        ignis__vmm_multiple(call, "size", size, range->granularity) && (device = ignis__vmm_enter(call, ordinal, &binding)) != NULL) {
        desc = ignis_vmm_access_of(device->handle, false);
        desc.access = access;
        if (ignis__range_lock(call, range)) {
            ignis__address address = range->address + (uint64_t)offset;
            ok = ignis__range_covered(call, range, offset, size, NULL, 0) &&
                 !IGNIS__VMM_FAILED(call, device, cuMemSetAccess, (address, (size_t)size, &desc, 1),
                                    "setting access %d of device %d to %s at 0x%llx", (int)access, ordinal, ignis__bytes_write(size).text,
                                    address);
            if (ok && access != IGNIS_VMM_ACCESS_NONE)
                ignis__range_covered(call, range, offset, size, ignis__mapping_let_in, (uint64_t)ordinal);
            ignis__range_unlock(range);
        }
        ignis__device_leave(&binding);
    }
    ignis__range_unhold(call, range);
    return ok ? IGNIS_OK : ignis__failed();
}

static bool ignis__access_read(const char *call, ignis__device *device, ignis__address address, unsigned long long *flags)
{
    ignis_vmm_location location = ignis_vmm_access_of(device->handle, false).location;
    *flags = 0;
    return !IGNIS__VMM_FAILED(call, device, cuMemGetAccess, (flags, &location, address), "asking what device %d may do at 0x%llx",
                              (int)(device - ignis__devices), address);
}

IGNIS_API ignis_status ignis_vmm_get_access(ignis_vmm_range handle, int64_t offset, int ordinal, ignis_vmm_access *access)
{
    static const char call[] = "ignis_vmm_get_access";
    ignis__range *range = ignis__range_hold(call, handle);
    unsigned long long flags;
    ignis__binding binding;
    ignis__device *device;
    bool ok = false;
    if (!range)
        return ignis__failed();
    if (!access) {
        ignis__fail_null(call, "access");
    } else if ((device = ignis__vmm_enter(call, ordinal, &binding)) != NULL) {
        if (ignis__range_lock(call, range)) {
            ok = ignis__range_covered(call, range, offset, 1, NULL, 0) &&
                 ignis__access_read(call, device, range->address + (uint64_t)offset, &flags);
            if (ok)
                *access = (ignis_vmm_access)flags;
            ignis__range_unlock(range);
        }
        ignis__device_leave(&binding);
    }
    ignis__range_unhold(call, range);
    return ok ? IGNIS_OK : ignis__failed();
}

/* --- export and import ------------------------------------------------------------------------------------------------- */

IGNIS_API ignis_status ignis_vmm_export(ignis_vmm handle, ignis_vmm_handle *out)
{
    static const char call[] = "ignis_vmm_export";
    ignis__vmm *vmm = ignis__vmm_hold(call, handle);
    bool ok = false;
    if (!vmm)
        return ignis__failed();
    if (!out)
        ignis__fail_null(call, "handle");
    else if (!(vmm->handle_types & (int)IGNIS__VMM_HANDLE_SYSTEM))
        ignis__fail(IGNIS_DIAG_NOT_SHAREABLE, call,
                    "the memory was made with IGNIS_VMM_HANDLE_NONE; make it with IGNIS_VMM_HANDLE_DEFAULT to share it");
    else
        ok = ignis__vmm_give_out(call, vmm->device, vmm->handle, out);
    ignis__vmm_unhold(call, vmm);
    return ok ? IGNIS_OK : ignis__failed();
}

static bool ignis__vmm_handle_check(const char *call, const ignis_vmm_handle *handle)
{
    if (handle->type != IGNIS__VMM_HANDLE_SYSTEM)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "handle.type is %d, this system shares memory by type %d", (int)handle->type,
                    (int)IGNIS__VMM_HANDLE_SYSTEM);
    else if (handle->type == IGNIS_VMM_HANDLE_WIN32 ? handle->win32 == NULL : handle->fd < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the handle holds nothing");
    else
        return true;
    return false;
}

IGNIS_API ignis_vmm ignis_vmm_import(const ignis_vmm_handle *handle, int64_t size, int ordinal)
{
    static const char call[] = "ignis_vmm_import";
    const ignis__vmm_facts *facts;
    ignis_vmm result = IGNIS__ZERO;
    ignis__vmm_block block;
    ignis_vmm_prop prop;
    ignis__device *device;
    if (!ignis__enter(call))
        return result;
    if (!handle) {
        ignis__fail_null(call, "handle");
        return result;
    }
    device = ignis__device_get(call, ordinal);
    if (!device || !ignis__vmm_handle_check(call, handle) || !ignis__vmm_adopt_handle(call, device, handle, size, NULL, 0, &block))
        return result;
    (void)IGNIS__CUDA(cuMemUnmap, (block.address, (size_t)size)); /* it was mapped to prove its size */
    (void)IGNIS__CUDA(cuMemAddressFree, (block.address, (size_t)size));
    block.address = 0;
    facts = ignis__vmm_device(call, device);
    if (facts && ignis__vmm_inspect(call, device, block.handle, &prop)) {
        if (prop.location.id == device->handle)
            return ignis__vmm_publish(call, device, block.handle, size, facts->granularity, prop.handle_types, true);
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "the memory lies on device %d, not on device %d", prop.location.id, ordinal);
    }
    ignis__vmm_drop(call, &block);
    return result;
}

IGNIS_API ignis_status ignis_vmm_handle_close(ignis_vmm_handle *handle)
{
    static const char call[] = "ignis_vmm_handle_close";
    if (!handle)
        return ignis__fail_null(call, "handle");
    ignis__vmm_handle_close(handle);
    memset(handle, 0, sizeof *handle);
    return IGNIS_OK;
}

/* --- arrays ------------------------------------------------------------------------------------------------------------ */

/*  An array over memory that need not lie on its device, which the driver's view of a pointer would have to say. What release_fn
    gives back stays the caller's on failure. */
static ignis_array ignis__vmm_wrap(const char *call, ignis__device *device, ignis__address address, const ignis_array_desc *desc,
                                   void (*release_fn)(void *ptr, void *user_data), void *release_data)
{
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    ignis_array result = IGNIS__ZERO;
    ignis__storage *storage;
    ignis__array *array;
    int64_t numel;
    if (!ignis__shape_check(call, &desc->shape, dtype, &numel) ||
        (storage = ignis__storage_make(call, device, numel * ignis__dtypes[dtype].size)) == NULL)
        return result;
    storage->wrapped = true;
    storage->address = address;
    storage->stream = desc->stream;
    array = ignis__array_make(call, storage, &desc->shape, dtype, numel);
    if (!array) {
        ignis__free(storage);
        return result;
    }
    storage->release_fn = release_fn;
    storage->release_data = release_data;
    array->owner = desc->owner ? desc->owner : IGNIS_OWNER_IGNIS;
    if (desc->tag)
        snprintf(array->tag, sizeof array->tag, "%s", desc->tag);
    return ignis__array_publish(array);
}

/*  What of an array's desc can be wrong before there is memory for it. */
static bool ignis__vmm_array_check(const char *call, const ignis_array_desc *desc, int64_t *size)
{
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    int64_t numel;
    if (!ignis__dtype_valid(call, dtype) || !ignis__owner_valid(call, desc->owner ? desc->owner : IGNIS_OWNER_IGNIS) ||
        !ignis__shape_check(call, &desc->shape, dtype, &numel))
        return false;
    *size = numel * ignis__dtypes[dtype].size;
    return true;
}

static void ignis__vmm_array_release(void *ptr, void *data)
{
    (void)ptr;
    ignis__vmm_drop("ignis_array_free", (ignis__vmm_block *)data);
    ignis__free(data);
}

/*  An array over a whole block, which becomes its, at an offset; the block stays the caller's on failure. */
static ignis_array ignis__vmm_block_array(const char *call, const ignis__vmm_block *block, int64_t offset, const ignis_array_desc *desc)
{
    ignis__vmm_block *kept = (ignis__vmm_block *)ignis__alloc(sizeof *kept);
    ignis_array result = IGNIS__ZERO;
    if (!kept) {
        ignis__fail_host_memory(call, sizeof *kept);
        return result;
    }
    *kept = *block;
    result = ignis__vmm_wrap(call, block->device, block->address + (uint64_t)offset, desc, ignis__vmm_array_release, kept);
    if (!result.id)
        ignis__free(kept);
    return result;
}

IGNIS_API ignis_array ignis_vmm_array(const ignis_vmm_array_desc *desc)
{
    static const char call[] = "ignis_vmm_array";
    ignis_array result = IGNIS__ZERO;
    ignis_array_desc plain;
    ignis__vmm_block block;
    ignis__device *device;
    int64_t size;
    if (!ignis__enter(call))
        return result;
    if (!desc || (!desc->access_devices && desc->access_count > 0)) {
        ignis__fail_null(call, desc ? "desc.access_devices" : "desc");
        return result;
    }
    memset(&plain, 0, sizeof plain);
    plain.shape = desc->shape;
    plain.dtype = desc->dtype;
    plain.owner = desc->owner;
    plain.tag = desc->tag;
    if (desc->handle_type != IGNIS_VMM_HANDLE_NONE && desc->handle_type != IGNIS_VMM_HANDLE_DEFAULT &&
        desc->handle_type != IGNIS__VMM_HANDLE_SYSTEM) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "desc.handle_type is %d, this system shares memory by type %d", (int)desc->handle_type,
                    (int)IGNIS__VMM_HANDLE_SYSTEM);
        return result;
    }
    device = ignis__device_get(call, ignis__desc_device(desc->device));
    if (!device || !ignis__vmm_array_check(call, &plain, &size) ||
        !ignis__vmm_make(call, device, size ? size : 1, desc->access_devices, desc->access_count,
                         desc->handle_type != IGNIS_VMM_HANDLE_NONE, &block))
        return result;
    result = ignis__vmm_block_array(call, &block, 0, &plain);
    if (!result.id)
        ignis__vmm_drop(call, &block);
    return result;
}

/*  The part of a range that an array lies in. */
typedef struct ignis__vmm_part {
    ignis__range *range; /* held */
    int64_t offset, size;
} ignis__vmm_part;

static void ignis__vmm_part_release(void *ptr, void *data)
{
    ignis__vmm_part *part = (ignis__vmm_part *)data;
    (void)ptr;
    ignis__mutex_lock(&part->range->slot.lock);
    ignis__range_covered("ignis_array_free", part->range, part->offset, part->size, ignis__mapping_add_array, (uint64_t)-1);
    part->range->arrays--;
    ignis__mutex_unlock(&part->range->slot.lock);
    ignis__range_unhold("ignis_array_free", part->range);
    ignis__free(part);
}

static bool ignis__vmm_part_check(const char *call, const ignis__range *range, ignis__device *device, const ignis__vmm_part *part,
                                  int64_t element)
{
    unsigned long long flags = 0;
    int64_t at;
    if (part->offset % element != 0) {
        ignis__fail(IGNIS_DIAG_VMM_SIZE, call, "offset is %lld, not a multiple of the element size %lld", (long long)part->offset,
                    (long long)element);
        return false;
    }
    if (!ignis__range_covered(call, range, part->offset, part->size, NULL, 0))
        return false;
    for (at = part->offset / range->granularity * range->granularity; at < part->offset + part->size; at += range->granularity) {
        if (!ignis__access_read(call, device, range->address + (uint64_t)at, &flags))
            return false;
        if (flags == IGNIS_VMM_ACCESS_NONE) {
            ignis__fail(IGNIS_DIAG_VMM_STATE, call, "device %d has no access to the range at offset %lld; call ignis_vmm_set_access",
                        (int)(device - ignis__devices), (long long)at);
            return false;
        }
    }
    return true;
}

IGNIS_API ignis_array ignis_vmm_array_map(ignis_vmm_range handle, int64_t offset, const ignis_array_desc *desc)
{
    static const char call[] = "ignis_vmm_array_map";
    ignis_array result = IGNIS__ZERO;
    ignis__range *range = ignis__range_hold(call, handle);
    ignis__vmm_part *part = NULL;
    ignis__binding binding;
    ignis__device *device;
    int64_t size;
    if (!range)
        return result;
    if (!desc) {
        ignis__fail_null(call, "desc");
    } else if (desc->ptr || desc->release_fn) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.ptr and desc.release_fn are null: the range says where the array lies");
    } else if (ignis__vmm_array_check(call, desc, &size) &&
               (device = ignis__vmm_enter(call, ignis__desc_device(desc->device), &binding)) != NULL) {
        if (!desc->stream || desc->stream == device->stream || ignis__stream_adopt(call, device, desc->stream) != 0) {
            part = (ignis__vmm_part *)ignis__alloc(sizeof *part);
            if (!part)
                ignis__fail_host_memory(call, sizeof *part);
        }
        if (part && ignis__range_lock(call, range)) {
            part->range = range;
            part->offset = offset;
            part->size = size ? size : 1;
            if (ignis__vmm_part_check(call, range, device, part, ignis__dtypes[desc->dtype ? desc->dtype : IGNIS_F32].size))
                result = ignis__vmm_wrap(call, device, range->address + (uint64_t)offset, desc, ignis__vmm_part_release, part);
            if (result.id) {
                ignis__range_covered(call, range, offset, part->size, ignis__mapping_add_array, 1);
                range->arrays++;
            }
            ignis__range_unlock(range);
        }
        ignis__device_leave(&binding);
    }
    if (!result.id) { /* else the array has the hold */
        ignis__free(part);
        ignis__range_unhold(call, range);
    }
    return result;
}

/*  The physical memory behind an array, retained. */
typedef struct ignis__vmm_behind {
    unsigned long long handle;
    int64_t size;   /* of the memory */
    int64_t offset; /* of the array's first element in it */
    ignis_vmm_prop prop;
} ignis__vmm_behind;

/*  Finds it without the driver where Ignis has mapped it; else the array wraps a pointer of the caller's. The device is entered. */
static bool ignis__vmm_find(const char *call, ignis__array *array, ignis__vmm_behind *behind)
{
    ignis__storage *storage = array->storage;
    ignis__device *device = storage->device;
    ignis__address address = ignis__atomic_load(&storage->address), at = address + (uint64_t)array->offset, base = at;
    size_t size = 0;
    int error;
    memset(behind, 0, sizeof *behind);
    if (!address || storage->block) {
        ignis__fail(IGNIS_DIAG_NOT_SHAREABLE, call,
                    "array #%llu lies in memory that it shares with other arrays, of which nothing can be exported alone; make it with "
                    "ignis_vmm_array",
                    (unsigned long long)array->id);
        return false;
    }
    if (!ignis__vmm_functions(call))
        return false;
    if (storage->release_fn == ignis__vmm_array_release) {
        const ignis__vmm_block *block = (const ignis__vmm_block *)storage->release_data;
        base = block->address;
        size = (size_t)block->size;
    } else if (storage->release_fn == ignis__vmm_part_release) {
        ignis__range *range = ((ignis__vmm_part *)storage->release_data)->range;
        const ignis__mapping *mapping;
        ignis__mutex_lock(&range->slot.lock);
        for (mapping = range->mappings; mapping; mapping = mapping->next)
            if (range->address + (uint64_t)mapping->offset <= at) {
                base = range->address + (uint64_t)mapping->offset;
                size = (size_t)mapping->vmm->size;
            }
        ignis__mutex_unlock(&range->slot.lock);
    } else if ((error = IGNIS__CUDA(cuMemGetAddressRange_v2, (&base, &size, at))) != 0) {
        ignis__fail_because(IGNIS_DIAG_NOT_SHAREABLE, call, error, ignis__cuda_name(error), NULL,
                            "array #%llu wraps a pointer that the driver knows no allocation of: cuMemGetAddressRange gives %s (%d)",
                            (unsigned long long)array->id, ignis__cuda_name(error), error);
        return false;
    }
    error = IGNIS__CUDA(cuMemRetainAllocationHandle, (&behind->handle, (void *)(uintptr_t)at));
    if (error != 0) {
        ignis__fail_because(IGNIS_DIAG_NOT_SHAREABLE, call, error, ignis__cuda_name(error), NULL,
                            "array #%llu does not lie in memory of cuMemCreate, so it cannot be exported: cuMemRetainAllocationHandle "
                            "gives %s (%d); make it with ignis_vmm_array",
                            (unsigned long long)array->id, ignis__cuda_name(error), error);
        return false;
    }
    behind->size = (int64_t)size;
    behind->offset = (int64_t)(at - base);
    if (behind->offset + ignis__array_bytes(array) > behind->size)
        ignis__fail(IGNIS_DIAG_NOT_SHAREABLE, call, "array #%llu reaches over more than one allocation; export them one by one",
                    (unsigned long long)array->id);
    else if (ignis__vmm_inspect(call, device, behind->handle, &behind->prop))
        return true;
    (void)IGNIS__CUDA(cuMemRelease, (behind->handle));
    return false;
}

IGNIS_API ignis_vmm ignis_vmm_of_array(ignis_array handle, int64_t *offset)
{
    static const char call[] = "ignis_vmm_of_array";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis_vmm result = IGNIS__ZERO;
    const ignis__vmm_facts *facts;
    ignis__vmm_behind behind;
    ignis__binding binding;
    ignis__device *device;
    if (!array)
        return result;
    if (ignis__device_enter(call, array->storage->device, &binding)) {
        facts = ignis__vmm_device(call, array->storage->device);
        if (facts && ignis__vmm_find(call, array, &behind)) {
            device = &ignis__devices[behind.prop.location.id];
            result = ignis__vmm_publish(call, device, behind.handle, behind.size, facts->granularity, behind.prop.handle_types, false);
            if (result.id && offset)
                *offset = behind.offset;
        }
        ignis__device_leave(&binding);
    }
    ignis__array_drop(call, array);
    return result;
}

/* ===============================================================================================================
   >>channel - how a handle travels: unix socket, named pipe, shared memory.
   =============================================================================================================== */

/* --- what the collective layer needs of the system -------------------------------------------------------------------- */

/*  What went wrong below a public function, which then decides whether it is a failure: a client that is turned away is none. */
typedef struct ignis__trouble {
    ignis_diagnostic diagnostic;
    char why[320];
} ignis__trouble;

/*  Always false, to be returned. */
IGNIS__PRINTF(3, 4)
static bool ignis__trouble_set(ignis__trouble *trouble, ignis_diagnostic diagnostic, const char *format, ...)
{
    va_list args;
    trouble->diagnostic = diagnostic;
    va_start(args, format);
    vsnprintf(trouble->why, sizeof trouble->why, format, args);
    va_end(args);
    return false;
}

static ignis_status ignis__trouble_report(const char *call, const ignis__trouble *trouble)
{
    return ignis__fail(trouble->diagnostic, call, "%s", trouble->why);
}

/*  How long to wait: until the deadline, or until *stop is set. */
typedef struct ignis__until {
    int64_t deadline_ns; /* of ignis__monotonic_ns */
    const uint64_t *stop;
} ignis__until;

static bool ignis__until_stopped(const ignis__until *until) { return until->stop && ignis__atomic_load(until->stop); }

/*  The milliseconds to wait before asking again; 0: no more. */
static int ignis__until_slice(const ignis__until *until, int most_ms)
{
    int64_t left_ns = until->deadline_ns - ignis__monotonic_ns();
    if (left_ns <= 0 || ignis__until_stopped(until))
        return 0;
    return left_ns / 1000000 >= most_ms ? most_ms : (int)(left_ns / 1000000) + 1;
}

static bool ignis__trouble_late(ignis__trouble *trouble, const ignis__until *until, const char *what)
{
    if (ignis__until_stopped(until))
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_FREED, "the channel was closed meanwhile");
    return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_TIMEOUT, "%s before the deadline", what);
}

#define IGNIS__PATH_MAX 512

/*  What names may be part of a path. */
static bool ignis__name_valid(const char *name)
{
    size_t length = strlen(name);
    return length >= 1 && length <= 63 && *name != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

/*  In a time that does not depend on where they differ. */
static bool ignis__bytes_equal(const unsigned char *a, const unsigned char *b, size_t size)
{
    unsigned char difference = 0;
    while (size--)
        difference = (unsigned char)(difference | (*a++ ^ *b++));
    return difference == 0;
}

#ifdef _WIN32

#include <ntsecapi.h>
#include <sddl.h>
#ifdef _MSC_VER
#pragma comment(lib, "advapi32")
#endif

static void ignis__sleep_us(int us) { Sleep((DWORD)((us + 999) / 1000)); }

static bool ignis__random_bytes(void *out, size_t size) { return RtlGenRandom(out, (ULONG)size) != 0; }

/*  path: the wanted folder, or "" for the default; then the folder, which exists. Folders of a user's profile are private to him. */
static bool ignis__private_folder(const char *call, char *path, size_t size)
{
    const char *home = getenv("IGNIS_COMM_DIR");
    int length = (int)strlen(path);
    if (length == 0) {
        bool given = home && *home;
        if (!given)
            home = getenv("LOCALAPPDATA");
        length = snprintf(path, size, "%s%s", home ? home : ".", given ? "" : "\\ignis");
    }
    if (length < 0 || (size_t)length >= size || !ignis__folder_make(path)) {
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the folder %s cannot be made, or its path is longer than %d bytes", path, (int)size - 1);
        return false;
    }
    return true;
}

static bool ignis__socket_missing(const char *call)
{
    ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "descriptors do not travel through sockets on Windows");
    return false;
}
IGNIS__MAYBE_UNUSED static bool ignis__socket_send(const char *call, int fd, const void *data, size_t size, const int *fds, int fd_count,
                                                   int64_t deadline_ns)
{
    (void)fd, (void)data, (void)size, (void)fds, (void)fd_count, (void)deadline_ns;
    return ignis__socket_missing(call);
}
IGNIS__MAYBE_UNUSED static bool ignis__socket_receive(const char *call, int fd, void *data, size_t size, int *fds, int fd_count,
                                                      int64_t deadline_ns)
{
    (void)fd, (void)data, (void)size, (void)fds, (void)fd_count, (void)deadline_ns;
    return ignis__socket_missing(call);
}
IGNIS__MAYBE_UNUSED static int ignis__unix_listen(const char *call, const char *path)
{
    (void)path;
    return ignis__socket_missing(call) - 1;
}
IGNIS__MAYBE_UNUSED static int ignis__unix_connect(const char *call, const char *path, int64_t deadline_ns)
{
    (void)path, (void)deadline_ns;
    return ignis__socket_missing(call) - 1;
}
IGNIS__MAYBE_UNUSED static int ignis__unix_accept(const char *call, int fd, int64_t deadline_ns)
{
    (void)fd, (void)deadline_ns;
    return ignis__socket_missing(call) - 1;
}

#else /* POSIX */

#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#ifndef __USE_GNU /* what the C library does not declare under a strict standard */
#ifdef __cplusplus
extern "C" {
#endif
extern int accept4(int, struct sockaddr *, socklen_t *, int);
#ifdef __cplusplus
}
#endif
#endif
#ifdef SO_PEERCRED
#define IGNIS__SO_PEERCRED SO_PEERCRED
#elif defined(__powerpc__)
#define IGNIS__SO_PEERCRED 21
#else
#define IGNIS__SO_PEERCRED 17
#endif

static void ignis__sleep_us(int us)
{
    struct timespec time;
    time.tv_sec = us / 1000000;
    time.tv_nsec = us % 1000000 * 1000L;
    (void)nanosleep(&time, NULL);
}

static bool ignis__random_bytes(void *out, size_t size)
{
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    char *at = (char *)out;
    ssize_t got = 0;
    if (file < 0)
        return false;
    while (size > 0 && ((got = read(file, at, size)) > 0 || (got < 0 && errno == EINTR)))
        if (got > 0) {
            at += got;
            size -= (size_t)got;
        }
    close(file);
    return size == 0;
}

/*  Whether a file is ours and nobody else's. */
static bool ignis__private_file(const struct stat *info) { return info->st_uid == geteuid() && (info->st_mode & 077) == 0; }

/*  path: the wanted folder, or "" for the default; then the folder, which exists and is private. */
static bool ignis__private_folder(const char *call, char *path, size_t size)
{
    const char *home = getenv("IGNIS_COMM_DIR");
    struct stat info;
    int length = (int)strlen(path);
    if (length == 0 && home && *home) {
        length = snprintf(path, size, "%s", home);
    } else if (length == 0) {
        home = getenv("XDG_RUNTIME_DIR");
        if (home && *home == '/' && lstat(home, &info) == 0 && S_ISDIR(info.st_mode) && ignis__private_file(&info)) {
            length = snprintf(path, size, "%s/ignis", home);
        } else {
            home = getenv("TMPDIR");
            length = snprintf(path, size, "%s/ignis-%lu", home && *home ? home : "/tmp", (unsigned long)geteuid());
        }
    }
    if (length < 0 || (size_t)length >= size)
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the path of the private folder is longer than %d bytes: %.100s...", (int)size - 1, path);
    else if ((mkdir(path, 0700) != 0 && errno != EEXIST) || lstat(path, &info) != 0)
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the private folder %s cannot be made: %s", path, strerror(errno));
    else if (!S_ISDIR(info.st_mode))
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "%s is no folder (a symbolic link is none)", path);
    else if (info.st_uid != geteuid())
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the folder %s belongs to user %lu, not to us, user %lu", path, (unsigned long)info.st_uid,
                    (unsigned long)geteuid());
    else if ((info.st_mode & 0777) != 0700)
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the folder %s has mode 0%o, not 0700; chmod 700 it", path, (unsigned)info.st_mode & 0777);
    else
        return true;
    return false;
}

/*  Waits for events of a descriptor; a hang-up counts as one. */
static bool ignis__fd_wait(ignis__trouble *trouble, int fd, short events, const ignis__until *until, const char *what)
{
    struct pollfd wanted;
    int slice;
    do {
        int ready;
        slice = ignis__until_slice(until, 50);
        wanted.fd = fd;
        wanted.events = events;
        wanted.revents = 0;
        ready = poll(&wanted, 1, slice);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "poll: %s", strerror(errno));
    } while (slice > 0);
    return ignis__trouble_late(trouble, until, what);
}

static bool ignis__trouble_errno(ignis__trouble *trouble, const char *what)
{
    int error = errno;
    if (error == EPIPE || error == ECONNRESET || error == ENOTCONN)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_LOST, "the other side has closed the connection, or died");
    return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "%s: %s", what, strerror(error));
}

static void ignis__fds_close(const int *fds, int count)
{
    while (count > 0)
        close(fds[--count]);
}

/*  Room for the descriptors of one message. */
typedef union ignis__fd_room {
    struct cmsghdr align;
    char space[CMSG_SPACE(IGNIS_CHANNEL_MAX_FDS * sizeof(int))];
} ignis__fd_room;

/*  One packet, in two parts. */
static bool ignis__packet_send(ignis__trouble *trouble, int fd, const void *head, size_t head_size, const void *data, size_t size,
                               const int *fds, int fd_count, const ignis__until *until)
{
    struct iovec parts[2];
    struct msghdr message;
    ignis__fd_room room;
    memset(&message, 0, sizeof message);
    memset(&room, 0, sizeof room);
    parts[0].iov_base = (void *)(uintptr_t)head;
    parts[0].iov_len = head_size;
    parts[1].iov_base = (void *)(uintptr_t)data;
    parts[1].iov_len = size;
    message.msg_iov = parts;
    message.msg_iovlen = size ? 2 : 1;
    if (fd_count > 0) {
        struct cmsghdr *control;
        message.msg_control = room.space;
        message.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
        control = CMSG_FIRSTHDR(&message);
        control->cmsg_level = SOL_SOCKET;
        control->cmsg_type = SCM_RIGHTS;
        control->cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int));
        memcpy(CMSG_DATA(control), fds, (size_t)fd_count * sizeof(int));
    }
    for (;;) {
        if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return true;
        if (errno == EAGAIN) {
            if (!ignis__fd_wait(trouble, fd, POLLOUT, until, "the other side does not read"))
                return false;
        } else if (errno != EINTR) {
            return ignis__trouble_errno(trouble, "sendmsg");
        }
    }
}

/*  One packet of at most `capacity` bytes and IGNIS_CHANNEL_MAX_FDS descriptors; on failure none is left open. */
static bool ignis__packet_receive(ignis__trouble *trouble, int fd, void *data, size_t capacity, size_t *size, int *fds, int *fd_count,
                                  const ignis__until *until)
{
    struct iovec part;
    struct msghdr message;
    struct cmsghdr *control;
    ignis__fd_room room;
    ssize_t got;
    int count = 0;
    for (;;) {
        memset(&message, 0, sizeof message);
        part.iov_base = data;
        part.iov_len = capacity;
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = room.space;
        message.msg_controllen = sizeof room.space;
        got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got >= 0)
            break;
        if (errno == EAGAIN) {
            if (!ignis__fd_wait(trouble, fd, POLLIN, until, "nothing came from the other side"))
                return false;
        } else if (errno != EINTR) {
            return ignis__trouble_errno(trouble, "recvmsg");
        }
    }
    for (control = CMSG_FIRSTHDR(&message); control; control = CMSG_NXTHDR(&message, control)) {
        size_t bytes = control->cmsg_len - CMSG_LEN(0);
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
            continue;
        memcpy(fds + count, CMSG_DATA(control), bytes); /* all of them fit where the room for the control data fits */
        count += (int)(bytes / sizeof(int));
    }
    if (got > 0 && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        *size = (size_t)got;
        *fd_count = count;
        return true;
    }
    ignis__fds_close(fds, count);
    if (message.msg_flags & MSG_CTRUNC)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE,
                                  "a message came without all of its descriptors: more than %d, or this process may not open so many",
                                  IGNIS_CHANNEL_MAX_FDS);
    if (got > 0)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE, "a message is longer than %lld bytes", (long long)capacity);
    return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_LOST, "the other side has closed the connection, or died");
}

/*  One packet with descriptors, through a socket of ignis__unix_connect or _accept. */
IGNIS__MAYBE_UNUSED static bool ignis__socket_send(const char *call, int fd, const void *data, size_t size, const int *fds, int fd_count,
                                                   int64_t deadline_ns)
{
    ignis__trouble trouble;
    ignis__until until = {0, NULL};
    until.deadline_ns = deadline_ns;
    IGNIS_ASSERT(fd_count <= IGNIS_CHANNEL_MAX_FDS && size > 0);
    if (ignis__packet_send(&trouble, fd, data, size, NULL, 0, fds, fd_count, &until))
        return true;
    ignis__trouble_report(call, &trouble);
    return false;
}

/*  A packet of exactly so many bytes and descriptors; else failure, and no descriptor is left open. */
IGNIS__MAYBE_UNUSED static bool ignis__socket_receive(const char *call, int fd, void *data, size_t size, int *fds, int fd_count,
                                                      int64_t deadline_ns)
{
    ignis__trouble trouble;
    ignis__until until = {0, NULL};
    int came[IGNIS_CHANNEL_MAX_FDS], count = 0;
    size_t got = 0;
    until.deadline_ns = deadline_ns;
    if (!ignis__packet_receive(&trouble, fd, data, size, &got, came, &count, &until)) {
        ignis__trouble_report(call, &trouble);
        return false;
    }
    if (got != size || count != fd_count) {
        ignis__fds_close(came, count);
        ignis__fail(IGNIS_DIAG_CHANNEL_MESSAGE, call, "a message of %lld bytes and %d descriptors was expected, one of %lld and %d came",
                    (long long)size, fd_count, (long long)got, count);
        return false;
    }
    if (count > 0)
        memcpy(fds, came, (size_t)count * sizeof(int));
    return true;
}

/*  The address of a path. One that is too long for an address is reached through its folder, which stays open in *folder (else -1). */
static bool ignis__unix_address(ignis__trouble *trouble, const char *path, struct sockaddr_un *address, int *folder)
{
    const char *slash = strrchr(path, '/');
    char parent[IGNIS__PATH_MAX];
    int length;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    *folder = -1;
    if (strlen(path) < sizeof address->sun_path) {
        memcpy(address->sun_path, path, strlen(path));
        return true;
    }
    length = slash ? (int)(slash - path) : 0;
    if (length == 0 || length >= (int)sizeof parent)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "a path of %d bytes is too long for a socket", (int)strlen(path));
    memcpy(parent, path, (size_t)length);
    parent[length] = 0;
    *folder = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0)
        return ignis__trouble_errno(trouble, parent);
    length = snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d", *folder);
    if (access(address->sun_path, F_OK) == 0 && (size_t)length + strlen(slash) < sizeof address->sun_path) {
        memcpy(address->sun_path + length, slash, strlen(slash) + 1);
        return true;
    }
    close(*folder);
    *folder = -1;
    return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO,
                              "the path of a socket has at most %d bytes, and this one %d; set IGNIS_COMM_DIR to a shorter folder",
                              (int)sizeof address->sun_path - 1, (int)strlen(path));
}

/*  bind or connect, by the path. */
static int ignis__unix_reach(ignis__trouble *trouble, const char *path, bool to_listen, int *error)
{
    struct sockaddr_un address;
    int folder, fd;
    bool ok;
    *error = 0;
    if (!ignis__unix_address(trouble, path, &address, &folder))
        return -1;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        ignis__trouble_errno(trouble, "socket");
    } else {
        const struct sockaddr *to = (const struct sockaddr *)(const void *)&address;
        do
            ok = (to_listen ? bind(fd, to, sizeof address) : connect(fd, to, sizeof address)) == 0;
        while (!ok && errno == EINTR);
        if (!ok) {
            *error = errno;
            ignis__trouble_errno(trouble, path);
            close(fd);
            fd = -1;
        }
    }
    if (folder >= 0)
        close(folder);
    return fd;
}

/*  The kernel's word for who is at the other end of a socket: struct ucred, which strict standards hide. */
typedef struct ignis__peer {
    int pid;
    unsigned uid, gid;
} ignis__peer;

static bool ignis__peer_query(int fd, ignis__peer *peer)
{
    socklen_t size = sizeof *peer;
    return getsockopt(fd, SOL_SOCKET, IGNIS__SO_PEERCRED, peer, &size) == 0 && size == sizeof *peer;
}

/*  Waits for a lock of a file or folder; its descriptor is to be closed. -1 when there is none. */
static int ignis__path_lock(const char *path, int64_t deadline_ns)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (ignis__monotonic_ns() >= deadline_ns) {
            close(fd);
            return -1;
        }
        ignis__sleep_us(1000);
    }
    return fd;
}

/*  A socket that listens at a path, where only a socket that nobody listens at any more is replaced. */
static int ignis__unix_listen_quietly(ignis__trouble *trouble, const char *path)
{
    char folder[IGNIS__PATH_MAX];
    const char *slash = strrchr(path, '/');
    struct stat info;
    int fd, error, probe, lock;
    if (!slash || slash == path || (size_t)(slash - path) >= sizeof folder) {
        ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "a path of %d bytes is no place for a socket", (int)strlen(path));
        return -1;
    }
    memcpy(folder, path, (size_t)(slash - path));
    folder[slash - path] = 0;
    lock = ignis__path_lock(folder, ignis__monotonic_ns() + 5000000000); /* who else looks at the same remains waits */
    fd = ignis__unix_reach(trouble, path, true, &error);
    if (fd < 0 && error == EADDRINUSE && lstat(path, &info) == 0 && S_ISSOCK(info.st_mode)) {
        probe = ignis__unix_reach(trouble, path, false, &error);
        if (probe < 0 && error == ECONNREFUSED && unlink(path) == 0) {
            fd = ignis__unix_reach(trouble, path, true, &error);
        } else {
            ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "somebody listens at %s already", path);
            if (probe >= 0)
                close(probe);
        }
    }
    if (fd >= 0 && (chmod(path, 0600) != 0 || listen(fd, 64) != 0)) {
        ignis__trouble_errno(trouble, "listen");
        close(fd);
        (void)unlink(path);
        fd = -1;
    }
    if (lock >= 0)
        close(lock);
    return fd;
}

IGNIS__MAYBE_UNUSED static int ignis__unix_listen(const char *call, const char *path)
{
    ignis__trouble trouble;
    int fd = ignis__unix_listen_quietly(&trouble, path);
    if (fd < 0)
        ignis__trouble_report(call, &trouble);
    return fd;
}

/*  One attempt. *again: nobody listens there yet, or too many wait. */
static int ignis__unix_connect_once(ignis__trouble *trouble, const char *path, bool *again)
{
    ignis__peer peer;
    int error, fd = ignis__unix_reach(trouble, path, false, &error);
    *again = fd < 0 && (error == ENOENT || error == ECONNREFUSED || error == EAGAIN);
    if (fd >= 0 && (!ignis__peer_query(fd, &peer) || peer.uid != geteuid())) {
        ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE, "who listens at %s is another user", path);
        close(fd);
        fd = -1;
    }
    return fd;
}

/*  Connects to a path at which somebody of our user listens, or will before the deadline. */
IGNIS__MAYBE_UNUSED static int ignis__unix_connect(const char *call, const char *path, int64_t deadline_ns)
{
    ignis__trouble trouble;
    bool again;
    int fd;
    while ((fd = ignis__unix_connect_once(&trouble, path, &again)) < 0 && again && ignis__monotonic_ns() < deadline_ns)
        ignis__sleep_us(5000);
    if (fd < 0 && again)
        ignis__fail(IGNIS_DIAG_CHANNEL_TIMEOUT, call, "nobody listened at %s before the deadline", path);
    else if (fd < 0)
        ignis__trouble_report(call, &trouble);
    return fd;
}

/*  A connection that waits at a listening socket, if there is one; -1: none. */
static int ignis__unix_accept_once(int fd)
{
    int accepted;
    do
        accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (accepted < 0 && (errno == EINTR || errno == ECONNABORTED));
    return accepted;
}

/*  The next connection of our user; others are closed. */
IGNIS__MAYBE_UNUSED static int ignis__unix_accept(const char *call, int fd, int64_t deadline_ns)
{
    ignis__trouble trouble;
    ignis__until until = {0, NULL};
    ignis__peer peer;
    until.deadline_ns = deadline_ns;
    while (ignis__fd_wait(&trouble, fd, POLLIN, &until, "nobody connected")) {
        int accepted = ignis__unix_accept_once(fd);
        if (accepted >= 0 && ignis__peer_query(accepted, &peer) && peer.uid == geteuid())
            return accepted;
        if (accepted >= 0) {
            close(accepted);
        } else if (errno != EAGAIN) {
            ignis__trouble_errno(&trouble, "accept");
            break;
        }
    }
    ignis__trouble_report(call, &trouble);
    return -1;
}

#endif

/* ===============================================================================================================
   >>transport - VMM, legacy IPC, peer copy, host-staged: one table of functions each.
   =============================================================================================================== */

/* ===============================================================================================================
   >>nccl - NCCL, opened at run time.
   =============================================================================================================== */

/* ===============================================================================================================
   >>job - the processes of one program: how they meet, what they tell each other, who died.
   =============================================================================================================== */

/* ===============================================================================================================
   >>comm - communicators and collective operations.
   =============================================================================================================== */

/* --- the communicator, its region, its kernels ------------------------------------------------------------------------ */

/* --- operations ------------------------------------------------------------------------------------------------------- */

/* --- making, splitting, ending ---------------------------------------------------------------------------------------- */

/* ===============================================================================================================
   >>parallel - data-parallel training.
   =============================================================================================================== */

#endif /* IGNIS_COLLECTIVE_IMPLEMENTED */
#endif /* IGNIS_IMPLEMENTATION */
