/*  >>vmm.system_windows - NT handles as handles of memory

    Shares memory by NT handles, which only processes of this user can open. The functions have the names of
    system_posix.c.
    Uses: Windows.
    Locks: a static one for each object that is created once. */

#include "room.h"

#ifdef _MSC_VER
#pragma comment(lib, "advapi32.lib")
#endif

/*  Creates a security descriptor that gives access to this process' user alone, also to files in a folder
    that has it. Free it with LocalFree; NULL if the system does not tell the user. */
static PSECURITY_DESCRIPTOR ignis__security_descriptor_create(void)
{
    union {
        TOKEN_USER user;
        char space[sizeof(TOKEN_USER) + 68]; /* SECURITY_MAX_SID_SIZE */
    } info;
    PSECURITY_DESCRIPTOR made = NULL;
    HANDLE token = NULL;
    char *name = NULL, text[256];
    DWORD size = 0;
    if (OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token) &&
        GetTokenInformation(token, TokenUser, &info, (DWORD)sizeof info, &size) &&
        ConvertSidToStringSidA(info.user.User.Sid, &name)) {
        snprintf(text, sizeof text, "D:P(A;OICI;GA;;;%s)", name);
        if (!ConvertStringSecurityDescriptorToSecurityDescriptorA(text, SDDL_REVISION_1, &made, NULL))
            made = NULL;
        LocalFree(name);
    }
    if (token)
        CloseHandle(token);
    return made;
}

/*  Returns that descriptor, created once. */
IGNIS__PRIVATE PSECURITY_DESCRIPTOR ignis__security_descriptor(void)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    static PSECURITY_DESCRIPTOR descriptor;
    ignis__mutex_lock(&lock);
    if (!descriptor)
        descriptor = ignis__security_descriptor_create();
    ignis__mutex_unlock(&lock);
    return descriptor;
}

/*  Returns OBJECT_ATTRIBUTES with that descriptor; NULL if Windows cannot create one. */
IGNIS__PRIVATE void *ignis__vmm_security_attributes(void)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    static struct {
        ULONG length;
        HANDLE root;
        void *name;
        ULONG attributes;
        PSECURITY_DESCRIPTOR descriptor;
        void *quality;
    } object;
    ignis__mutex_lock(&lock);
    object.length = (ULONG)sizeof object;
    object.descriptor = ignis__security_descriptor();
    ignis__mutex_unlock(&lock);
    return object.descriptor ? &object : NULL;
}

/*  POSIX descriptors are ints; on Windows an int holds a handle, of which 32 bits are significant. */
IGNIS__PRIVATE HANDLE ignis__fd_handle(int fd) { return (HANDLE)(intptr_t)fd; }
IGNIS__PRIVATE int ignis__fd_of(HANDLE handle) { return (int)(intptr_t)handle; }
IGNIS__PRIVATE int ignis__vmm_handle_fd(const ignis_vmm_handle *handle) { return ignis__fd_of((HANDLE)handle->win32); }
IGNIS__PRIVATE void ignis__vmm_handle_set_fd(ignis_vmm_handle *handle, int fd)
{
    handle->type = IGNIS_VMM_HANDLE_WIN32;
    handle->win32 = (void *)ignis__fd_handle(fd);
}

IGNIS__PRIVATE void ignis__vmm_handle_close(ignis_vmm_handle *handle)
{
    if (handle->type == IGNIS_VMM_HANDLE_WIN32 && handle->win32)
        CloseHandle((HANDLE)handle->win32);
}
IGNIS__PRIVATE bool ignis__vmm_handle_set_cloexec(ignis_vmm_handle *handle) { return handle->win32 != NULL; }

IGNIS__PRIVATE bool ignis__vmm_handle_duplicate(const char *call, const ignis_vmm_handle *handle, int64_t process_id,
                                                ignis_vmm_handle *out)
{
    HANDLE process = OpenProcess(PROCESS_DUP_HANDLE, FALSE, (DWORD)process_id), made = NULL;
    bool ok = process && DuplicateHandle(GetCurrentProcess(), (HANDLE)handle->win32, process, &made, 0, FALSE,
                                         DUPLICATE_SAME_ACCESS);
    if (!ok)
        ignis__fail(IGNIS_DIAG_CHANNEL_LOST, call,
                    "the handle cannot be duplicated into process %lld: Windows error %lu", (long long)process_id,
                    GetLastError());
    if (process)
        CloseHandle(process);
    out->win32 = (void *)made;
    return ok;
}
