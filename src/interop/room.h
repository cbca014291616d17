/*  interop - DLPack and graphics APIs. */
#pragma once

#include "../base/room.h"
#include "../device/room.h"
#include "../array/room.h"
#include "../kernel/room.h"
#include "../formula/room.h"

/*  The driver's structs and numbers. */
typedef union ignis__os_handle {
    int fd;
    struct {
        void *handle;
        const void *name;
    } win32;
} ignis__os_handle;

typedef struct ignis__external_memory_desc { /* CUDA_EXTERNAL_MEMORY_HANDLE_DESC */
    int type;
    ignis__os_handle os;
    unsigned long long size;
    unsigned flags, reserved[16];
} ignis__external_memory_desc;

typedef struct ignis__external_part { /* CUDA_EXTERNAL_MEMORY_BUFFER_DESC */
    unsigned long long offset, size;
    unsigned flags, reserved[16];
} ignis__external_part;

typedef struct ignis__semaphore_desc { /* CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC */
    int type;
    ignis__os_handle os;
    unsigned flags, reserved[16];
} ignis__semaphore_desc;

typedef struct ignis__semaphore_value { /* CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS and _WAIT_PARAMS */
    unsigned long long value, other[2];
    unsigned unused[12];
    unsigned flags, reserved[16];
} ignis__semaphore_value;

enum {
    IGNIS__CU_MEMORY_FD = 1,
    IGNIS__CU_MEMORY_WIN32 = 2,
    IGNIS__CU_MEMORY_D3D12_HEAP = 4,
    IGNIS__CU_MEMORY_D3D12_RESOURCE = 5,
    IGNIS__CU_MEMORY_DEDICATED = 1,
    IGNIS__CU_SEMAPHORE_D3D12 = 4,
    IGNIS__CU_SEMAPHORE_TIMELINE_FD = 9,
    IGNIS__CU_SEMAPHORE_TIMELINE_WIN32 = 10,
    IGNIS__CU_GRAPHICS_NONE = 0,
    IGNIS__CU_GRAPHICS_READ_ONLY = 1,
    IGNIS__CU_GRAPHICS_WRITE_DISCARD = 2
};

/*  For each public type: the driver's, and whether it is an NT handle. */
typedef struct ignis__external_kind {
    const char *name;
    int type;
    bool windows;
} ignis__external_kind;

#define IGNIS__GRAPHICS_CAN(call, name) ignis__graphics_supports(call, ignis__cuda.name != NULL, #name)

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* external_memory.c */
extern const ignis__external_kind ignis__fence_kinds[IGNIS_FENCE_TYPE_COUNT];
IGNIS__COLD IGNIS__PRIVATE bool ignis__graphics_supports(const char *call, bool there, const char *function);
IGNIS__COLD IGNIS__PRIVATE bool ignis__external_check(const char *call, const ignis__external_kind *kinds, int count,
                                                      int type, int fd, const void *handle);
IGNIS__COLD IGNIS__PRIVATE bool ignis__external_copy(const char *call, int fd, void *handle, ignis__os_handle *os);
IGNIS__COLD IGNIS__PRIVATE void ignis__external_settle(int fd, const ignis__os_handle *os, bool taken, bool ok);
IGNIS__COLD IGNIS__PRIVATE void ignis__external_fail(const char *call, ignis__device *device, const char *function,
                                                     int error, const char *kind, const char *more);

/* fence.c */
IGNIS__COLD IGNIS__PRIVATE void ignis__fences_close(const char *call);

/* opengl.c */
IGNIS__COLD IGNIS__PRIVATE void ignis__gl_buffers_close(const char *call);
