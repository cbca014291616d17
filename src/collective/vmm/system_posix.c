/*  >>vmm.system_posix - file descriptors as handles of memory

    Shares memory by file descriptors, which are closed on exec. The functions have the names of
    system_windows.c.
    Uses: POSIX.
    Locks: none. */

#include "room.h"

IGNIS__PRIVATE void *ignis__vmm_security_attributes(void) { return NULL; }
IGNIS__PRIVATE int ignis__vmm_handle_fd(const ignis_vmm_handle *handle) { return handle->fd; }
IGNIS__PRIVATE void ignis__vmm_handle_set_fd(ignis_vmm_handle *handle, int fd)
{
    handle->type = IGNIS_VMM_HANDLE_POSIX_FD;
    handle->fd = fd;
}

IGNIS__PRIVATE void ignis__vmm_handle_close(ignis_vmm_handle *handle)
{
    if (handle->type == IGNIS_VMM_HANDLE_POSIX_FD && handle->fd >= 0)
        close(handle->fd);
}
/*  Sets close-on-exec: a descriptor that a child inherits would keep the device memory. */
IGNIS__PRIVATE bool ignis__vmm_handle_set_cloexec(ignis_vmm_handle *handle)
{
    return fcntl(handle->fd, F_SETFD, FD_CLOEXEC) == 0;
}

IGNIS__PRIVATE bool ignis__vmm_handle_duplicate(const char *call, const ignis_vmm_handle *handle, int64_t process_id,
                                                ignis_vmm_handle *out)
{
    (void)handle, (void)process_id, (void)out;
    return ignis__fail_false(
        IGNIS_DIAG_UNSUPPORTED, call,
        "POSIX cannot duplicate a descriptor into another process; send it with ignis_channel_send");
}
