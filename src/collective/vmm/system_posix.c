/*  >>vmm.system_posix - file descriptors as handles of memory

    Shares memory by file descriptors, which are closed on exec. The functions have the names of
    system_windows.c.
    Uses: POSIX.
    Locks: none. */

#define IGNIS__VMM_HANDLE_SYSTEM IGNIS_VMM_HANDLE_POSIX_FD
#define IGNIS__CU_ATTRIBUTE_VMM_SYSTEM IGNIS__CU_ATTRIBUTE_VMM_POSIX_FD
#define IGNIS__VMM_HANDLES "file descriptors"
#define IGNIS__EXCHANGE_SYSTEM IGNIS_CHANNEL_SOCKET

static void *ignis__vmm_security_attributes(void) { return NULL; }
static int ignis__vmm_handle_fd(const ignis_vmm_handle *handle) { return handle->fd; }
static void ignis__vmm_handle_set_fd(ignis_vmm_handle *handle, int fd)
{
    handle->type = IGNIS_VMM_HANDLE_POSIX_FD;
    handle->fd = fd;
}

static void ignis__vmm_handle_close(ignis_vmm_handle *handle)
{
    if (handle->type == IGNIS_VMM_HANDLE_POSIX_FD && handle->fd >= 0)
        close(handle->fd);
}
/*  Sets close-on-exec: a descriptor that a child inherits would keep the device memory. */
static bool ignis__vmm_handle_set_cloexec(ignis_vmm_handle *handle)
{
    return fcntl(handle->fd, F_SETFD, FD_CLOEXEC) == 0;
}

static bool ignis__vmm_handle_duplicate(const char *call, const ignis_vmm_handle *handle, int64_t process_id,
                                        ignis_vmm_handle *out)
{
    (void)handle, (void)process_id, (void)out;
    return ignis__fail_false(
        IGNIS_DIAG_UNSUPPORTED, call,
        "POSIX cannot duplicate a descriptor into another process; send it with ignis_channel_send");
}
