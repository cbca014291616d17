/* >>vmm --------------------------------------------------------------------------------------------------------- */

/*  Physical memory of a device, without an address. */
typedef struct ignis_vmm {
    uint64_t id;
} ignis_vmm;

/*  A range of addresses, into which physical memory can be mapped. */
typedef struct ignis_vmm_range {
    uint64_t id;
} ignis_vmm_range;

/*  How physical memory can be handed to another process. The numbers are the driver's
    (CUmemAllocationHandleType), but for DEFAULT, and for NONE, which is 0 there. */
typedef enum ignis_vmm_handle_type {
    IGNIS_VMM_HANDLE_NONE = -1,    /* not at all */
    IGNIS_VMM_HANDLE_DEFAULT = 0,  /* what the system has: POSIX_FD, on Windows WIN32 */
    IGNIS_VMM_HANDLE_POSIX_FD = 1, /* a file descriptor */
    IGNIS_VMM_HANDLE_WIN32 = 2,    /* an NT handle */
    /* a global share handle of Windows; Ignis makes none, as anybody could open it */
    IGNIS_VMM_HANDLE_WIN32_KMT = 4,
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
    int64_t size; /* required: bytes; rounded up to whole granules, see ignis_vmm_info.size */
    int device;   /* where the memory lies (the thread's current device; IGNIS_DEVICE_0 for device 0) */
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
    Returns: bytes (2 MiB on today's devices), the smallest that works or the one that the driver recommends
    for speed; -1 on failure.
    Errors: DEVICE (no such device), UNSUPPORTED (no virtual memory management), LIBRARY (the driver is too
    old), CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int64_t ignis_vmm_granularity(int device, bool recommended);

/*  ignis_vmm_prop_of, ignis_vmm_access_of - the driver's structs for memory of a device, and for what a
    device may do
    Returns: the struct, filled; a shareable one names the system's handle type.
    Errors: none.
    Ownership: nothing to free; win32_security is null.
    Threads: any. */
IGNIS_API ignis_vmm_prop ignis_vmm_prop_of(int device, bool shareable);
IGNIS_API ignis_vmm_access_desc ignis_vmm_access_of(int device, bool read_write);

/*  ignis_vmm_check - report what a driver function of the caller's has answered as Ignis would: name, number,
    and what was being done
    Returns: IGNIS_OK for 0; else CUDA, or MEMORY for CUDA_ERROR_OUT_OF_MEMORY.
    Errors: CUDA, MEMORY.
    Ownership: context, such as "mapping the cache", is read only.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_check(int driver_error, const char *context);

/*  ignis_vmm_create - physical memory on a device, without an address
    It counts in ignis_memory_info.vmm_bytes; ignis_desc.memory_limit does not limit it. Cached memory is
    given back before it fails.
    Returns: the memory, or no handle.
    Errors: ARGUMENT, DEVICE, MEMORY, UNSUPPORTED, LIBRARY, CUDA.
    Ownership: the caller frees it with ignis_vmm_free.
    Threads: any. */
IGNIS_API ignis_vmm ignis_vmm_create(const ignis_vmm_desc *desc);

/*  ignis_vmm_free - let go of physical memory
    It goes back to the device when its last mapping is gone and every process that imported it has let go of
    it, too.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second free).
    Ownership: the handle is stale afterwards; mappings stay valid.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_free(ignis_vmm vmm);

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

/*  ignis_vmm_query, ignis_vmm_range_query - facts about physical memory, and about a range
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT; of physical memory, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_query(ignis_vmm vmm, ignis_vmm_info *info);
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
    Needed for every device that is to use it, after every map; peer access of contexts does not matter.
    ignis_vmm_get_access tells the access to the granule at an offset.
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

/*  ignis_vmm_export - a handle of physical memory for another process
    Returns: IGNIS_OK, and *handle filled.
    Errors: FREED, ARGUMENT (made with IGNIS_VMM_HANDLE_NONE), CUDA.
    Ownership: the caller closes the handle once it was sent: ignis_vmm_handle_close. Until then it, too,
    keeps the memory.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_export(ignis_vmm vmm, ignis_vmm_handle *handle);

/*  ignis_vmm_import - the physical memory of a handle that another process has exported
    Nothing that the sender says is trusted: the memory's kind and device come from the driver, and its size
    is verified by mapping it.
    Units: size in bytes, ignis_vmm_info.size of the exporter.
    Returns: the memory, or no handle.
    Errors: ARGUMENT (no handle, size is not the memory's), DEVICE (it lies on another device than `device`),
    UNSUPPORTED, CUDA.
    Ownership: the caller frees it with ignis_vmm_free; the handle stays the caller's.
    Threads: any. */
IGNIS_API ignis_vmm ignis_vmm_import(const ignis_vmm_handle *handle, int64_t size, int device);

/*  ignis_vmm_handle_close - close an exported or received handle; a second time does nothing
    Returns: IGNIS_OK.
    Errors: ARGUMENT (null).
    Ownership: what the handle was becomes free; *handle is emptied.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_handle_close(ignis_vmm_handle *handle);

/*  ignis_vmm_handle_duplicate - on Windows, where handles are numbers of one process: make a handle valid in
    another process of this user
    Its number, in out->win32, can then be sent as 8 bytes. ignis_channel_send does both at once, and
    elsewhere sends descriptors.
    Returns: IGNIS_OK, and *out filled.
    Errors: ARGUMENT, PEER (there is no such process, or it is not this user's), UNSUPPORTED (not on Windows).
    Ownership: *out belongs to the other process, which closes it: do not close it here. *handle stays the
    caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_handle_duplicate(const ignis_vmm_handle *handle, int64_t process_id,
                                                  ignis_vmm_handle *out);

/*  ignis_vmm_array - an array in physical memory of its own, that other devices and processes can be let into
    It is an ordinary array with device memory from the start, whose content is undefined.
    Shape: as for ignis_array_create; memory is taken in whole granules (2 MiB), so make few and large ones.
    Returns: the array, or no handle.
    Errors: ARGUMENT, SHAPE, DEVICE, MEMORY, UNSUPPORTED, LIBRARY, CUDA.
    Ownership: the caller frees it as any array; address and memory go back when its last view is gone.
    Threads: any. */
IGNIS_API ignis_array ignis_vmm_array(const ignis_vmm_array_desc *desc);

/*  ignis_vmm_array_map - an array over a mapped part of a range; desc as for ignis_array_create, without ptr
    and release_fn
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
