/*  >>vmm.driver_call - driver calls: errors, device properties, sizes

    Reports failed driver calls with the step that failed, and reads what a device can do.
    Uses: ignis__global.cuda, the status of the thread.
    Locks: none. */

#include "room.h"

IGNIS__PRIVATE ignis__bytes_text ignis__bytes_write(int64_t bytes)
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

IGNIS__PRINTF(5, 6)
IGNIS__PRIVATE bool ignis__vmm_check_call(const char *call, ignis__device *device, const char *function, int error,
                                          const char *format, ...)
{
    char step[256];
    ignis__string_writer text;
    va_list args;
    if (error == 0)
        return true;
    ignis__string_begin(&text, step, sizeof step);
    ignis__string_add(&text, "%s, ", function);
    va_start(args, format);
    ignis__string_addv(&text, format, args);
    va_end(args);
    ignis__cuda_fail(call, device, step, error);
    return false;
}

IGNIS__PRIVATE int ignis__vmm_release_error(int error) { return ignis__devices_lost() ? 0 : error; }

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
    if (!ignis__collective_enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    return ignis__cuda_fail(call, NULL, context ? context : "VMM operation", driver_error);
}

/*  Reads the facts of an entered device. False, and reported, if it cannot manage virtual memory. */
IGNIS__PRIVATE bool ignis__vmm_read_facts(const char *call, ignis__device *device, ignis__vmm_facts *facts)
{
    ignis_vmm_prop prop = ignis_vmm_prop_of(device->handle, false);
    int ordinal = ignis__device_ordinal(device);
    if (IGNIS__CUDA_FAILED(call, device, cuDeviceGetAttribute,
                           (&facts->vmm, IGNIS__CU_ATTRIBUTE_VMM, device->handle)) ||
        IGNIS__CUDA_FAILED(call, device, cuDeviceGetAttribute,
                           (&facts->shareable, IGNIS__CU_ATTRIBUTE_VMM_SYSTEM, device->handle)))
        return false;
    if (facts->vmm)
        return !IGNIS__VMM_FAILED(call, device, cuMemGetAllocationGranularity,
                                  (&facts->granularity, &prop, IGNIS__CU_GRANULARITY_MINIMUM), "device %d", ordinal) &&
               !IGNIS__VMM_FAILED(call, device, cuMemGetAllocationGranularity,
                                  (&facts->recommended, &prop, IGNIS__CU_GRANULARITY_RECOMMENDED), "device %d",
                                  ordinal);
    return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                             "device %d has no virtual memory management: it can neither map nor share memory",
                             ordinal);
}

/*  Returns the driver's number of a handle type; -1, and reported, if this system lacks the type. */
IGNIS__PRIVATE int ignis__vmm_handle_type(const char *call, ignis_vmm_handle_type type)
{
    if (type == IGNIS_VMM_HANDLE_NONE)
        return 0;
    if (type == IGNIS_VMM_HANDLE_DEFAULT || type == IGNIS__VMM_HANDLE_SYSTEM)
        return IGNIS__VMM_HANDLE_SYSTEM;
    if (type == IGNIS_VMM_HANDLE_POSIX_FD || type == IGNIS_VMM_HANDLE_WIN32 || type == IGNIS_VMM_HANDLE_WIN32_KMT)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "handle type is %d; this system shares memory by " IGNIS__VMM_HANDLES,
                    (int)type);
    else
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "handle type is %d; expected a value of ignis_vmm_handle_type",
                    (int)type);
    return -1;
}

IGNIS__PRIVATE bool ignis__vmm_round_size(const char *call, int64_t size, int64_t granularity, int64_t *rounded)
{
    if (size <= 0 || size > INT64_MAX - granularity)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld; expected 1 to 2^63 - %lld",
                                 (long long)size, (long long)granularity);
    *rounded = (size + granularity - 1) / granularity * granularity;
    return true;
}

IGNIS__PRIVATE bool ignis__vmm_check_multiple(const char *call, const char *name, int64_t value, int64_t least,
                                              int64_t granularity)
{
    if (value >= least && value % granularity == 0)
        return true;
    return ignis__fail_false(IGNIS_DIAG_VMM_SIZE, call, "%s is %lld; expected a multiple of the granularity, %s", name,
                             (long long)value, ignis__bytes_write(granularity).text);
}
