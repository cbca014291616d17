/* >>vmm - physical memory, address ranges, mappings, access ------------------------------------------------

   Physical memory has no address. A range of addresses has no memory. A mapping connects the two, and access
   opens a mapping to devices. Handles take physical memory to other processes.
   Threads: every function may be called from any thread.
   Ownership: the caller frees what a function returns; physical memory lives until its last mapping ends. */

/*  Physical memory of a device, without an address. */
typedef struct ignis_vmm {
    uint64_t id;
} ignis_vmm;

/*  A range of addresses, into which physical memory can be mapped. */
typedef struct ignis_vmm_range {
    uint64_t id;
} ignis_vmm_range;

/*  Kinds of handles by which another process gets physical memory. The values are the driver's
    (CUmemAllocationHandleType), except DEFAULT, and NONE, which is 0 there. */
typedef enum ignis_vmm_handle_type {
    IGNIS_VMM_HANDLE_NONE = -1,    /* not at all */
    IGNIS_VMM_HANDLE_DEFAULT = 0,  /* POSIX_FD, on Windows WIN32 */
    IGNIS_VMM_HANDLE_POSIX_FD = 1, /* a file descriptor */
    IGNIS_VMM_HANDLE_WIN32 = 2,    /* an NT handle */
    /* a global handle of Windows that any user could open: refused */
    IGNIS_VMM_HANDLE_WIN32_KMT = 4,
    IGNIS_VMM_HANDLE_MAX = 0x7FFFFFFF
} ignis_vmm_handle_type;

/*  CUmemAllocationType */
typedef enum ignis_vmm_allocation_type {
    IGNIS_VMM_ALLOCATION_INVALID = 0,
    IGNIS_VMM_ALLOCATION_PINNED = 1, /* the memory never moves; the only type that Ignis creates */
    IGNIS_VMM_ALLOCATION_MAX = 0x7FFFFFFF
} ignis_vmm_allocation_type;

/*  CUmemLocationType */
typedef enum ignis_vmm_location_type {
    IGNIS_VMM_LOCATION_INVALID = 0,
    IGNIS_VMM_LOCATION_DEVICE = 1, /* the only one that Ignis creates */
    IGNIS_VMM_LOCATION_HOST = 2,
    IGNIS_VMM_LOCATION_HOST_NUMA = 3,
    IGNIS_VMM_LOCATION_HOST_NUMA_CURRENT = 4,
    IGNIS_VMM_LOCATION_MAX = 0x7FFFFFFF
} ignis_vmm_location_type;

/*  Access of a device to mapped memory: CUmemAccess_flags. */
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
    int64_t size; /* required: bytes; rounded up to whole granules, see ignis_vmm_info.size */
    int device;   /* the memory is on this device (the thread's current one; IGNIS_DEVICE_0 for device 0) */
    ignis_vmm_handle_type handle_type; /* IGNIS_VMM_HANDLE_DEFAULT: it can be exported */
} ignis_vmm_desc;

typedef struct ignis_vmm_info {
    int64_t size;                      /* bytes, a multiple of granularity */
    int64_t granularity;               /* bytes, the smallest of the device */
    int device;                        /* the memory is on this device */
    ignis_vmm_handle_type handle_type; /* the handle that ignis_vmm_export makes */
    bool imported;                     /* created by another process */
    int mappings;                      /* how often ignis_vmm_map has mapped it */
    ignis_vmm_prop prop;               /* from the driver */
} ignis_vmm_info;

typedef struct ignis_vmm_range_info {
    void *ptr;            /* the first address */
    int64_t size;         /* reserved bytes */
    int64_t mapped_bytes; /* of them, mapped ones */
    int mappings;
    int arrays; /* live ones of ignis_vmm_array_map */
} ignis_vmm_range_info;

/*  A handle by which another process maps the same memory. Its holder closes it: ignis_vmm_handle_close. */
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
    const char *tag;   /* a name for messages and audits; copied, at most 31 bytes ("") */
} ignis_vmm_array_desc;

/*  ignis_vmm_granularity - return the unit of physical memory on a device
    Returns: bytes (2 MiB on today's devices): the minimum, or what the driver recommends for speed; -1 on
    failure.
    Errors: DEVICE (no such device), UNSUPPORTED (no virtual memory management), LIBRARY (the driver is too
    old), CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int64_t ignis_vmm_granularity(int device, bool recommended);

/*  ignis_vmm_prop_of, ignis_vmm_access_of - fill the driver's structs for memory of a device, and for its
    access
    Returns: the struct, filled; a shareable one names the system's handle type.
    Errors: none.
    Ownership: nothing to free; win32_security is null.
    Threads: any. */
IGNIS_API ignis_vmm_prop ignis_vmm_prop_of(int device, bool shareable);
IGNIS_API ignis_vmm_access_desc ignis_vmm_access_of(int device, bool read_write);

/*  ignis_vmm_check - report an error of a driver call as Ignis reports its own
    Returns: IGNIS_OK for 0; else CUDA, or MEMORY for CUDA_ERROR_OUT_OF_MEMORY.
    Errors: CUDA, MEMORY.
    Ownership: context says what was attempted ("mapping the cache"); it is only read.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_check(int driver_error, const char *context);

/*  ignis_vmm_create - allocate physical memory on a device, without an address
    It counts in ignis_memory_info.vmm_bytes; ignis_desc.memory_limit does not limit it. The cache is trimmed
    before an allocation fails.
    Returns: the memory, or no handle.
    Errors: ARGUMENT, DEVICE, MEMORY, UNSUPPORTED, LIBRARY, CUDA.
    Ownership: the caller frees it with ignis_vmm_free.
    Threads: any. */
IGNIS_API ignis_vmm ignis_vmm_create(const ignis_vmm_desc *desc);

/*  ignis_vmm_free - free physical memory
    The device gets it back after the last mapping has ended and every process that imported it has freed it.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second free).
    Ownership: the handle is stale afterwards; mappings stay valid.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_free(ignis_vmm vmm);

/*  ignis_vmm_reserve - reserve a range of addresses, without memory
    size is rounded up to whole granules of the current device; alignment is 0 or a power of two.
    Returns: the range, or no handle.
    Errors: ARGUMENT, MEMORY, UNSUPPORTED, LIBRARY, CUDA.
    Ownership: the caller frees it with ignis_vmm_unreserve.
    Threads: any. */
IGNIS_API ignis_vmm_range ignis_vmm_reserve(int64_t size, int64_t alignment);

/*  ignis_vmm_unreserve - free a range of addresses
    Returns: IGNIS_OK; on failure nothing changes.
    Errors: FREED, ARGUMENT (memory is mapped in it).
    Ownership: the handle is stale afterwards.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_unreserve(ignis_vmm_range range);

/*  ignis_vmm_query, ignis_vmm_range_query - read facts about physical memory, and about a range
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT; of physical memory, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_query(ignis_vmm vmm, ignis_vmm_info *info);
IGNIS_API ignis_status ignis_vmm_range_query(ignis_vmm_range range, ignis_vmm_range_info *info);

/*  ignis_vmm_map - map all of a physical memory at an offset in a range
    No device may touch it before ignis_vmm_set_access. The same memory may be mapped several times.
    Units: offset in bytes, a multiple of the granularity.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (outside the range, something is mapped there, not a multiple), MEMORY, CUDA.
    Ownership: the mapping keeps the memory until ignis_vmm_unmap.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_map(ignis_vmm_range range, int64_t offset, ignis_vmm vmm);

/*  ignis_vmm_unmap - end the mapping that begins at an offset
    Waits until the devices with access have done the work that was queued before.
    Returns: IGNIS_OK; on failure nothing changes.
    Errors: FREED, ARGUMENT (no mapping begins there, or arrays use it), CUDA.
    Ownership: physical memory that was already freed returns to the device.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_vmm_unmap(ignis_vmm_range range, int64_t offset);

/*  ignis_vmm_set_access, ignis_vmm_get_access - set or read the access of a device to a mapped slice of a
    range
    Set it for every device that uses the slice, after every map. Peer access of contexts has no effect.
    ignis_vmm_get_access reads the access to the granule at an offset.
    Units: offset and size in bytes, multiples of the granularity.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (not mapped throughout, not a multiple, no such access), DEVICE, CUDA (the device
    cannot reach it).
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_set_access(ignis_vmm_range range, int64_t offset, int64_t size, int device,
                                            ignis_vmm_access access);
IGNIS_API ignis_status ignis_vmm_get_access(ignis_vmm_range range, int64_t offset, int device,
                                            ignis_vmm_access *access);

/*  ignis_vmm_export - make a handle of physical memory for another process
    Returns: IGNIS_OK, and *handle filled.
    Errors: FREED, ARGUMENT (made with IGNIS_VMM_HANDLE_NONE), CUDA.
    Ownership: the caller closes the handle after sending it: ignis_vmm_handle_close. The handle keeps the
    memory.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_export(ignis_vmm vmm, ignis_vmm_handle *handle);

/*  ignis_vmm_import - import physical memory from the handle of another process
    The sender is not trusted: the driver tells the kind and the device of the memory, and mapping it proves
    its size.
    Units: size in bytes, ignis_vmm_info.size of the exporter.
    Returns: the memory, or no handle.
    Errors: ARGUMENT (no handle, size is not the memory's), DEVICE (the memory is on another device),
    UNSUPPORTED, CUDA.
    Ownership: the caller frees it with ignis_vmm_free; the handle stays the caller's.
    Threads: any. */
IGNIS_API ignis_vmm ignis_vmm_import(const ignis_vmm_handle *handle, int64_t size, int device);

/*  ignis_vmm_handle_close - close an exported or received handle; a second time does nothing
    Returns: IGNIS_OK.
    Errors: ARGUMENT (null).
    Ownership: the handle is closed and *handle is cleared.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_handle_close(ignis_vmm_handle *handle);

/*  ignis_vmm_handle_duplicate - make a handle valid in another process of this user (Windows only)
    Windows handles are numbers of one process. The number in out->win32 can be sent as 8 bytes.
    ignis_channel_send duplicates and sends in one call; elsewhere it sends descriptors.
    Returns: IGNIS_OK, and *out filled.
    Errors: ARGUMENT, PEER (the process does not exist or belongs to another user), UNSUPPORTED (not on
    Windows).
    Ownership: *out belongs to the other process, which closes it: do not close it here. *handle stays the
    caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_handle_duplicate(const ignis_vmm_handle *handle, int64_t process_id,
                                                  ignis_vmm_handle *out);

/*  ignis_vmm_array - create an array in its own physical memory, to share with other devices and processes
    It is an ordinary array; its content is undefined.
    Shape: as for ignis_array_create; memory comes in whole granules (2 MiB), so prefer few large arrays.
    Returns: the array, or no handle.
    Errors: ARGUMENT, SHAPE, DEVICE, MEMORY, UNSUPPORTED, LIBRARY, CUDA.
    Ownership: the caller frees it as any array; address and memory are freed with its last view.
    Threads: any. */
IGNIS_API ignis_array ignis_vmm_array(const ignis_vmm_array_desc *desc);

/*  ignis_vmm_array_map - create an array over a mapped slice of a range
    desc is that of ignis_array_create, without ptr and release_fn.
    Units: offset in bytes, a multiple of the element size.
    Returns: the array, or no handle.
    Errors: FREED, ARGUMENT (not mapped throughout), CONTRACT (desc.device has no access), SHAPE.
    Ownership: the caller frees it; until then ignis_vmm_unmap fails.
    Threads: any. */
IGNIS_API ignis_array ignis_vmm_array_map(ignis_vmm_range range, int64_t offset, const ignis_array_desc *desc);

/*  ignis_vmm_of_array - find the physical memory of an array
    Units: *offset (may be null) in bytes, from the start of the memory to the array's first element.
    Returns: the memory, or no handle.
    Errors: FREED, ARGUMENT (the array is in memory of another kind), CUDA.
    Ownership: the caller frees it with ignis_vmm_free; it keeps the memory, as a mapping does.
    Threads: any. */
IGNIS_API ignis_vmm ignis_vmm_of_array(ignis_array array, int64_t *offset);
