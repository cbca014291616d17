/*  collective/vmm - physical memory, address ranges, mappings, access. */
#pragma once

#include "../../base/room.h"
#include "../../device/room.h"
#include "../../array/room.h"
#include "../room.h"

#ifdef _WIN32
#include <sddl.h>
#define IGNIS__VMM_HANDLE_SYSTEM IGNIS_VMM_HANDLE_WIN32
#define IGNIS__CU_ATTRIBUTE_VMM_SYSTEM IGNIS__CU_ATTRIBUTE_VMM_WIN32
#define IGNIS__VMM_HANDLES "NT handles"
#define IGNIS__EXCHANGE_SYSTEM IGNIS_CHANNEL_PIPE /* how descriptors travel */
#endif

#ifndef _WIN32
#define IGNIS__VMM_HANDLE_SYSTEM IGNIS_VMM_HANDLE_POSIX_FD
#define IGNIS__CU_ATTRIBUTE_VMM_SYSTEM IGNIS__CU_ATTRIBUTE_VMM_POSIX_FD
#define IGNIS__VMM_HANDLES "file descriptors"
#define IGNIS__EXCHANGE_SYSTEM IGNIS_CHANNEL_SOCKET
#endif

enum {
    IGNIS__CU_ATTRIBUTE_VMM = 102,
    IGNIS__CU_ATTRIBUTE_VMM_POSIX_FD = 103,
    IGNIS__CU_ATTRIBUTE_VMM_WIN32 = 104,
    IGNIS__CU_GRANULARITY_MINIMUM = 0,
    IGNIS__CU_GRANULARITY_RECOMMENDED = 1,
    IGNIS__CU_IPC_LAZY_PEER = 1,
    IGNIS__CU_HOST_REGISTER_PORTABLE = 1,
    IGNIS__CU_HOST_REGISTER_MAPPED = 2,
    IGNIS__CU_ALREADY_ENABLED = 704
};

/*  A text such as "2 MiB", by value: one message can have several. */
typedef struct ignis__bytes_text {
    char text[32];
} ignis__bytes_text;

/*  True, and reported with the step, if a driver call failed: if (IGNIS__VMM_FAILED(call, device, cuMemMap,
    (...), "mapping %s", ...)) return false; */
#define IGNIS__VMM_FAILED(call, device, name, args, ...) \
    (!ignis__vmm_check_call(call, device, #name, IGNIS__CUDA(name, args), __VA_ARGS__))

/*  True if a call that releases something succeeded. Errors after a device fault are ignored: every call
    fails then. */
#define IGNIS__VMM_RELEASED(call, device, name, args, ...) \
    ignis__vmm_check_call(call, device, #name, ignis__vmm_release_error(IGNIS__CUDA(name, args)), __VA_ARGS__)

/*  What a device can do with virtual memory. */
typedef struct ignis__vmm_facts {
    int vmm, shareable;
    size_t granularity, recommended;
} ignis__vmm_facts;

typedef struct ignis__physical {
    uint64_t holds;
    ignis__device *device; /* the memory is on this device */
    unsigned long long handle;
    int64_t size;
    int handle_types;
    bool made; /* created here, not imported: counted in vmm_bytes */
} ignis__physical;

typedef struct ignis__vmm_block {
    ignis__address address;
    int64_t size;
    ignis__device *device; /* that uses it; imported memory may be on another one */
    ignis__physical *memory;
} ignis__vmm_block;

/*  A public handle of physical memory. The handle and each mapping hold the slot. */
typedef struct ignis__vmm {
    ignis__slot slot;
    ignis__physical *memory;
    int64_t granularity;
    bool imported;
    uint64_t mappings;
} ignis__vmm;

typedef struct ignis__mapping {
    int64_t offset, size;
    ignis__vmm *vmm;  /* held */
    uint64_t devices; /* bit d: device d has access */
    int arrays;
    struct ignis__mapping *next; /* by offset */
} ignis__mapping;

/*  A range of addresses. The slot's lock guards the mappings; an array over a slice holds the range. */
typedef struct ignis__range {
    ignis__slot slot;
    ignis__device *device; /* current at the call; calls enter its context */
    ignis__address address;
    int64_t size, granularity;
    ignis__mapping *mappings;
    int arrays;
} ignis__range;

/*  A range that is held and locked for a call, with an entered device. */
typedef struct ignis__range_use {
    ignis__range *range;
    ignis__device *device;
    ignis__binding binding;
} ignis__range_use;

#define IGNIS__RANGE_DEVICE (-2) /* the device of the range */

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* system_windows.c */
IGNIS__PRIVATE void *ignis__vmm_security_attributes(void);
IGNIS__PRIVATE int ignis__vmm_handle_fd(const ignis_vmm_handle *handle);
IGNIS__PRIVATE void ignis__vmm_handle_set_fd(ignis_vmm_handle *handle, int fd);
IGNIS__PRIVATE void ignis__vmm_handle_close(ignis_vmm_handle *handle);
IGNIS__PRIVATE bool ignis__vmm_handle_set_cloexec(ignis_vmm_handle *handle);
IGNIS__PRIVATE bool ignis__vmm_handle_duplicate(const char *call, const ignis_vmm_handle *handle, int64_t process_id,
                                                ignis_vmm_handle *out);

#ifdef _WIN32
IGNIS__PRIVATE PSECURITY_DESCRIPTOR ignis__security_descriptor(void);
IGNIS__PRIVATE HANDLE ignis__fd_handle(int fd);
IGNIS__PRIVATE int ignis__fd_of(HANDLE handle);
#endif

/* driver_call.c */
IGNIS__PRIVATE ignis__bytes_text ignis__bytes_write(int64_t bytes);
IGNIS__PRINTF(5, 6)
IGNIS__PRIVATE bool ignis__vmm_check_call(const char *call, ignis__device *device, const char *function, int error,
                                          const char *format, ...);
IGNIS__PRIVATE int ignis__vmm_release_error(int error);
IGNIS__PRIVATE bool ignis__vmm_read_facts(const char *call, ignis__device *device, ignis__vmm_facts *facts);
IGNIS__PRIVATE int ignis__vmm_handle_type(const char *call, ignis_vmm_handle_type type);
IGNIS__PRIVATE bool ignis__vmm_round_size(const char *call, int64_t size, int64_t granularity, int64_t *rounded);
IGNIS__PRIVATE bool ignis__vmm_check_multiple(const char *call, const char *name, int64_t value, int64_t least,
                                              int64_t granularity);

/* physical_memory.c */
IGNIS__PRIVATE void ignis__physical_drop(const char *call, ignis__physical *memory);
IGNIS__PRIVATE ignis__physical *ignis__physical_wrap(const char *call, ignis__device *device, unsigned long long handle,
                                                     int64_t size, int handle_types);
IGNIS__PRIVATE ignis__physical *ignis__physical_create(const char *call, ignis__device *device, int64_t size,
                                                       ignis_vmm_handle_type type);
IGNIS__PRIVATE bool ignis__physical_check_imported(const char *call, ignis__device *device, unsigned long long handle,
                                                   ignis_vmm_prop *prop);
IGNIS__PRIVATE bool ignis__physical_export(const char *call, const ignis__physical *memory, ignis_vmm_handle *out);

/* block.c */
IGNIS__PRIVATE bool ignis__vmm_open_device(const char *call, int ordinal);
IGNIS__PRIVATE bool ignis__vmm_block_unmap(const char *call, ignis__vmm_block *block);
IGNIS__PRIVATE void ignis__vmm_block_destroy(const char *call, ignis__vmm_block *block);
IGNIS__PRIVATE bool ignis__vmm_block_create(const char *call, ignis__device *device, int64_t size,
                                            const int *access_devices, int access_count, bool shareable,
                                            ignis__vmm_block *out);
IGNIS__PRIVATE bool ignis__vmm_block_import(const char *call, ignis__device *device, const ignis_vmm_handle *handle,
                                            int64_t size, ignis__vmm_block *out);

/* vmm.c */
IGNIS__PRIVATE ignis__vmm *ignis__vmm_hold(const char *call, ignis_vmm handle);
IGNIS__PRIVATE void ignis__vmm_drop(const char *call, ignis__vmm *vmm);
IGNIS__PRIVATE ignis_status ignis__vmm_end(const char *call, ignis__vmm *vmm, bool ok);
extern ignis__pool ignis__ranges;
IGNIS__PRIVATE ignis__range *ignis__range_hold(const char *call, ignis_vmm_range handle);
IGNIS__PRIVATE bool ignis__mapping_end(const char *call, ignis__range *range, ignis__mapping *mapping);
IGNIS__PRIVATE bool ignis__devices_wait(const char *call, uint64_t mask);
IGNIS__PRIVATE void ignis__range_drop(const char *call, ignis__range *range);
IGNIS__COLD IGNIS__PRIVATE void ignis__vmm_close(const char *call);
IGNIS__PRIVATE ignis_vmm ignis__vmm_publish(const char *call, ignis__physical *memory, size_t granularity,
                                            bool imported);
IGNIS__PRIVATE ignis__device *ignis__vmm_enter(const char *call, int ordinal, ignis__binding *binding);

/* range.c */
IGNIS__PRIVATE ignis__range *ignis__range_begin(const char *call, ignis_vmm_range handle, int ordinal,
                                                ignis__range_use *use);
IGNIS__PRIVATE ignis_status ignis__range_end(const char *call, ignis__range_use *use, bool ok);
IGNIS__PRIVATE bool ignis__range_check_mapped(const char *call, const ignis__range *range, int64_t offset, int64_t size,
                                              uint64_t devices, int arrays);
IGNIS__PRIVATE bool ignis__vmm_read_access(const char *call, ignis__device *device, ignis__address address,
                                           unsigned long long *flags);

/* array.c */
IGNIS__PRIVATE ignis_array ignis__vmm_wrap(const char *call, ignis__device *device, ignis__address address,
                                           const ignis_array_desc *desc, void (*release_fn)(void *ptr, void *user_data),
                                           void *release_data);
IGNIS__PRIVATE bool ignis__vmm_adopt_stream(const char *call, ignis__device *device, void *stream);
IGNIS__PRIVATE bool ignis__vmm_array_check(const char *call, const ignis_array_desc *desc, int64_t *size);
IGNIS__PRIVATE ignis_array ignis__array_zeroed(const char *call, ignis__device *device, ignis_dtype dtype,
                                               int64_t numel, const char *tag, bool shareable);
IGNIS__PRIVATE bool ignis__vmm_find_allocation(const char *call, const ignis__array *array, const char *instead,
                                               ignis__address *base, int64_t *size);
IGNIS__PRIVATE ignis__physical *ignis__vmm_find_physical(const char *call, ignis__array *array, int64_t *offset);
