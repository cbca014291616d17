/* >>device - devices, facts about them -------------------------------------------------------------------------- */

#define IGNIS_MAX_DEVICES 64 /* that a process can use */

typedef struct ignis_device_info {
    int device; /* Ignis' and the driver's ordinal */
    char name[128];
    unsigned char uuid[16];
    char pci_bus_id[16]; /* "0000:1b:00.0" */
    int compute_major, compute_minor;
    int multiprocessors;
    int warp_size; /* threads */
    int max_threads_per_block;
    int shared_per_block; /* bytes of shared memory that a block may ask for, the opt-in maximum */
    int64_t l2_bytes;
    int64_t memory_total;  /* bytes */
    int driver_version;    /* 1000 * major + 10 * minor, such as 13000 */
    unsigned char luid[8]; /* Windows: the adapter's id in Direct3D and Vulkan; 0 elsewhere */
    unsigned node_mask;    /* Windows: the node of that adapter; 0 if there is no luid */
} ignis_device_info;

/*  ignis_device_count - return the number of CUDA devices that this process sees
    Returns: the count, 0 if there are none or on failure.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_device_count(void);

/*  ignis_device_query - return facts about one device; opens no context
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, DEVICE (no such device).
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_device_query(int device, ignis_device_info *info);

/*  ignis_device_find - find the device with the UUID (16 bytes), or on Windows the LUID (8 bytes), of another API
    Vulkan has both in VkPhysicalDeviceIDProperties, Direct3D the LUID of its adapter. One of them may be null.
    Returns: its ordinal, -1 on failure.
    Errors: ARGUMENT (both are null), DEVICE (no such device, or CUDA_VISIBLE_DEVICES hides it), CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_device_find(const void *uuid, const void *luid);

/*  ignis_device_use - make a device the calling thread's current one, and open it if necessary
    Afterwards its primary context is current in this thread, also for cudart code.
    Returns: IGNIS_OK, or the reason.
    Errors: DEVICE (no such device, or all lost to a fault), MEMORY, CUDA.
    Ownership: Ignis holds the primary context until ignis_shutdown.
    Threads: any; each has its own current device. */
IGNIS_API ignis_status ignis_device_use(int device);

/*  ignis_device_current - return the calling thread's current device
    Returns: its ordinal, -1 before ignis_setup.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; each has its own current device. */
IGNIS_API int ignis_device_current(void);
