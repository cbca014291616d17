#include <sddl.h>
#ifdef _MSC_VER
#pragma comment(lib, "advapi32.lib")
#endif
#define IGNIS__VMM_HANDLE_SYSTEM IGNIS_VMM_HANDLE_WIN32
#define IGNIS__CU_ATTRIBUTE_VMM_SYSTEM IGNIS__CU_ATTRIBUTE_VMM_WIN32
#define IGNIS__VMM_HANDLES "NT handles"
#define IGNIS__EXCHANGE_SYSTEM IGNIS_CHANNEL_PIPE /* what descriptors travel through */

/*  A security descriptor that lets in this process' user alone; what lies in a folder of his has it, too.
    LocalFree ends it; null: the system tells no user. */
static PSECURITY_DESCRIPTOR ignis__security_make(void)
{
    union {
        TOKEN_USER user;
        char room[sizeof(TOKEN_USER) + 68]; /* SECURITY_MAX_SID_SIZE */
    } who;
    PSECURITY_DESCRIPTOR made = NULL;
    HANDLE token = NULL;
    char *name = NULL, text[256];
    DWORD size = 0;
    if (OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token) &&
        GetTokenInformation(token, TokenUser, &who, (DWORD)sizeof who, &size) &&
        ConvertSidToStringSidA(who.user.User.Sid, &name)) {
        snprintf(text, sizeof text, "D:P(A;OICI;GA;;;%s)", name);
        if (!ConvertStringSecurityDescriptorToSecurityDescriptorA(text, SDDL_REVISION_1, &made, NULL))
            made = NULL;
        LocalFree(name);
    }
    if (token)
        CloseHandle(token);
    return made;
}

/*  The same, made once. */
static PSECURITY_DESCRIPTOR ignis__security(void)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    static PSECURITY_DESCRIPTOR descriptor;
    ignis__mutex_lock(&lock);
    if (!descriptor)
        descriptor = ignis__security_make();
    ignis__mutex_unlock(&lock);
    return descriptor;
}

/*  OBJECT_ATTRIBUTES with it; null: Windows makes none. */
static void *ignis__vmm_security(void)
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
    object.descriptor = ignis__security();
    ignis__mutex_unlock(&lock);
    return object.descriptor ? &object : NULL;
}

/*  Where other systems have descriptors, Windows has handles: numbers of which 32 bits count, so that they
    fit. */
static HANDLE ignis__fd_handle(int fd) { return (HANDLE)(intptr_t)fd; }
static int ignis__fd_of(HANDLE handle) { return (int)(intptr_t)handle; }
static int ignis__memory_fd(const ignis_vmm_handle *handle) { return ignis__fd_of((HANDLE)handle->win32); }
static void ignis__memory_set(ignis_vmm_handle *handle, int fd)
{
    handle->type = IGNIS_VMM_HANDLE_WIN32;
    handle->win32 = (void *)ignis__fd_handle(fd);
}

static void ignis__vmm_handle_close(ignis_vmm_handle *handle)
{
    if (handle->type == IGNIS_VMM_HANDLE_WIN32 && handle->win32)
        CloseHandle((HANDLE)handle->win32);
}
static bool ignis__vmm_handle_ready(ignis_vmm_handle *handle) { return handle->win32 != NULL; }

static bool ignis__vmm_handle_duplicate(const char *call, const ignis_vmm_handle *handle, int64_t process_id,
                                        ignis_vmm_handle *out)
{
    HANDLE process = OpenProcess(PROCESS_DUP_HANDLE, FALSE, (DWORD)process_id), made = NULL;
    bool ok = process && DuplicateHandle(GetCurrentProcess(), (HANDLE)handle->win32, process, &made, 0, FALSE,
                                         DUPLICATE_SAME_ACCESS);
    if (!ok)
        ignis__fail(IGNIS_DIAG_CHANNEL_LOST, call, "the handle cannot be given to process %lld: Windows error %lu",
                    (long long)process_id, GetLastError());
    if (process)
        CloseHandle(process);
    out->win32 = (void *)made;
    return ok;
}
