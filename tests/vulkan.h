// SPDX-License-Identifier: MIT
/*  vulkan.h - a headless Vulkan that exports memory and timeline semaphores, for tests

    Needs the loader of Vulkan (libvulkan.so.1, opened at run time) and its headers (libvulkan-dev), no display. The
    Vulkan device is the one with the UUID of the CUDA device. On the simulator Vulkan is Mesa's for CPUs
    (mesa-vulkan-drivers), whose memory the simulator maps. That does not export semaphores, so a thread carries the
    values between the simulator's timeline and Vulkan's. */
#ifndef VULKAN_TESTS_H
#define VULKAN_TESTS_H

#include "array.h"

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>

/* clang-format off */
#define GLOBAL_FUNCTIONS(X) X(vkCreateInstance)
#define INSTANCE_FUNCTIONS(X) \
    X(vkDestroyInstance) X(vkEnumeratePhysicalDevices) X(vkGetPhysicalDeviceProperties2) \
    X(vkGetPhysicalDeviceMemoryProperties) X(vkGetPhysicalDeviceExternalSemaphoreProperties) \
    X(vkGetPhysicalDeviceExternalBufferProperties) X(vkGetPhysicalDeviceQueueFamilyProperties) X(vkCreateDevice) \
    X(vkGetDeviceProcAddr)
#define DEVICE_FUNCTIONS(X) \
    X(vkDestroyDevice) X(vkGetDeviceQueue) X(vkCreateBuffer) X(vkDestroyBuffer) X(vkGetBufferMemoryRequirements) \
    X(vkAllocateMemory) X(vkFreeMemory) X(vkBindBufferMemory) X(vkMapMemory) X(vkCreateSemaphore) \
    X(vkDestroySemaphore) X(vkSignalSemaphore) X(vkWaitSemaphores) X(vkCreateCommandPool) X(vkDestroyCommandPool) \
    X(vkAllocateCommandBuffers) X(vkBeginCommandBuffer) X(vkEndCommandBuffer) X(vkCmdPipelineBarrier) \
    X(vkCmdCopyBuffer) X(vkCmdFillBuffer) X(vkQueueSubmit) X(vkDeviceWaitIdle) X(vkGetMemoryFdKHR) \
    X(vkGetSemaphoreFdKHR)
/* clang-format on */

static struct {
    PFN_vkGetInstanceProcAddr find;
#define POINTER(name) PFN_##name name;
    GLOBAL_FUNCTIONS(POINTER)
    INSTANCE_FUNCTIONS(POINTER)
    DEVICE_FUNCTIONS(POINTER)
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    VkCommandPool pool;
    uint32_t family;
    bool exports_timelines;
    int cuda; /* the device of CUDA */
} vk;

#define OK(call) CHECK_INT(call, VK_SUCCESS)

/*  A Vulkan device that CUDA has, too; on the simulator one of a CPU. */
static bool is_ours(VkPhysicalDevice physical)
{
    VkPhysicalDeviceIDProperties ids = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &ids};
    VkPhysicalDeviceExternalBufferInfo buffer = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO,
                                                 .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                                          VK_BUFFER_USAGE_TRANSFER_DST_BIT,
                                                 .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    VkExternalBufferProperties exports = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
    vk.vkGetPhysicalDeviceProperties2(physical, &properties);
    vk.vkGetPhysicalDeviceExternalBufferProperties(physical, &buffer, &exports);
    vk.cuda = ignis_device_find(ids.deviceUUID, NULL);
    if (vk.cuda < 0 && test_is_simulator() && properties.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU)
        vk.cuda = 0;
    ignis_status_clear();
    if (vk.cuda < 0 || properties.properties.apiVersion < VK_API_VERSION_1_2 ||
        !(exports.externalMemoryProperties.externalMemoryFeatures & VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT))
        return false;
    printf("Vulkan: %s is device %d of CUDA\n", properties.properties.deviceName, vk.cuda);
    return true;
}

static bool exports_timelines(void)
{
    VkSemaphoreTypeCreateInfo timeline = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                          .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkPhysicalDeviceExternalSemaphoreInfo info = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_SEMAPHORE_INFO,
                                                  .pNext = &timeline,
                                                  .handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT};
    VkExternalSemaphoreProperties exports = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_PROPERTIES};
    vk.vkGetPhysicalDeviceExternalSemaphoreProperties(vk.physical, &info, &exports);
    return (exports.externalSemaphoreFeatures & VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT) != 0;
}

/*  Null, or why there is no Vulkan to test with. */
static const char *vulkan_begin(void)
{
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2};
    VkInstanceCreateInfo instance = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
    VkPhysicalDevice physical[16];
    VkQueueFamilyProperties families[16];
    uint32_t count = 16, family_count = 16, i;
    float priority = 1;
    const char *extensions[] = {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME, VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME};
    VkPhysicalDeviceTimelineSemaphoreFeatures timelines = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES, .timelineSemaphore = VK_TRUE};
    VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    VkDeviceCreateInfo device = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                 .pNext = &timelines,
                                 .queueCreateInfoCount = 1,
                                 .pQueueCreateInfos = &queue,
                                 .ppEnabledExtensionNames = extensions};
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    void *find = library ? dlsym(library, "vkGetInstanceProcAddr") : NULL;
    if (!find)
        return "there is no libvulkan.so.1";
    memcpy(&vk.find, &find, sizeof find);
#define FIND_GLOBAL(name) vk.name = (PFN_##name)vk.find(NULL, #name);
#define FIND_OF_INSTANCE(name) vk.name = (PFN_##name)vk.find(vk.instance, #name);
#define FIND_OF_DEVICE(name) vk.name = (PFN_##name)vk.vkGetDeviceProcAddr(vk.device, #name);
    GLOBAL_FUNCTIONS(FIND_GLOBAL)
    if (vk.vkCreateInstance(&instance, NULL, &vk.instance) != VK_SUCCESS)
        return "Vulkan has no driver here";
    INSTANCE_FUNCTIONS(FIND_OF_INSTANCE)
    if (vk.vkEnumeratePhysicalDevices(vk.instance, &count, physical) < 0)
        return "Vulkan lists no devices";
    for (i = 0; i < count && !is_ours(physical[i]); i++)
        ;
    if (i == count)
        return "no device of Vulkan 1.2 that exports memory has the UUID of one of CUDA's";
    vk.physical = physical[i];
    vk.exports_timelines = exports_timelines();
    if (!vk.exports_timelines && !test_is_simulator())
        return "this Vulkan does not export timeline semaphores";
    vk.vkGetPhysicalDeviceQueueFamilyProperties(vk.physical, &family_count, families);
    for (vk.family = 0; vk.family < family_count &&
                        !(families[vk.family].queueFlags & (VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT));)
        vk.family++;
    queue.queueFamilyIndex = pool.queueFamilyIndex = vk.family;
    device.enabledExtensionCount = vk.exports_timelines ? 2 : 1;
    if (vk.vkCreateDevice(vk.physical, &device, NULL, &vk.device) != VK_SUCCESS)
        return "Vulkan cannot open the device with timeline semaphores and exported memory";
    DEVICE_FUNCTIONS(FIND_OF_DEVICE)
    vk.vkGetDeviceQueue(vk.device, vk.family, 0, &vk.queue);
    OK(vk.vkCreateCommandPool(vk.device, &pool, NULL, &vk.pool));
    CHECK_OK(ignis_device_use(vk.cuda));
    return NULL;
}

static void vulkan_end(void)
{
    if (vk.device) {
        vk.vkDestroyCommandPool(vk.device, vk.pool, NULL);
        vk.vkDestroyDevice(vk.device, NULL);
    }
    if (vk.instance)
        vk.vkDestroyInstance(vk.instance, NULL);
    memset(&vk, 0, sizeof vk);
}

#define VULKAN_SETUP()                        \
    do {                                      \
        const char *why;                      \
        SETUP(NULL);                          \
        if ((why = vulkan_begin()) != NULL) { \
            vulkan_end();                     \
            SKIP(why);                        \
        }                                     \
    } while (0)

typedef struct buffer {
    VkBuffer buffer;
    VkDeviceMemory memory;
    VkDeviceSize size, offset; /* of the whole memory; of the buffer in it */
    bool dedicated;
    void *host; /* where the host sees it, if it does */
} buffer;

static uint32_t memory_type(uint32_t allowed, VkMemoryPropertyFlags wanted)
{
    VkPhysicalDeviceMemoryProperties properties;
    uint32_t i;
    vk.vkGetPhysicalDeviceMemoryProperties(vk.physical, &properties);
    for (i = 0; i < properties.memoryTypeCount; i++)
        if (allowed >> i & 1 && (properties.memoryTypes[i].propertyFlags & wanted) == wanted)
            return i;
    CHECK(false);
    return 0;
}

/*  A buffer in memory of its own: on the device, to be exported, or seen by the host. room: bytes ahead of it, of which
    it takes some. */
static buffer make_buffer(VkDeviceSize bytes, bool exported, bool dedicated, VkDeviceSize room)
{
    buffer made = {.dedicated = dedicated};
    VkExternalMemoryBufferCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                                 .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .pNext = exported ? &external : NULL,
                               .size = bytes,
                               .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkMemoryDedicatedAllocateInfo alone = {.sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO};
    VkExportMemoryAllocateInfo exports = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
                                          .pNext = dedicated ? &alone : NULL,
                                          .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                   .pNext = exported ? &exports : NULL};
    VkMemoryRequirements needs;
    OK(vk.vkCreateBuffer(vk.device, &info, NULL, &made.buffer));
    vk.vkGetBufferMemoryRequirements(vk.device, made.buffer, &needs);
    alone.buffer = made.buffer;
    made.offset = (room + needs.alignment - 1) / needs.alignment * needs.alignment;
    made.size = memory.allocationSize = needs.size + made.offset;
    memory.memoryTypeIndex = memory_type(needs.memoryTypeBits, exported ? VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
                                                                        : VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                                                              VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
    OK(vk.vkAllocateMemory(vk.device, &memory, NULL, &made.memory));
    OK(vk.vkBindBufferMemory(vk.device, made.buffer, made.memory, made.offset));
    if (!exported)
        OK(vk.vkMapMemory(vk.device, made.memory, 0, VK_WHOLE_SIZE, 0, &made.host));
    return made;
}

static void end_buffer(const buffer *made)
{
    vk.vkDestroyBuffer(vk.device, made->buffer, NULL);
    vk.vkFreeMemory(vk.device, made->memory, NULL);
}

/*  The memory of a buffer as CUDA is told of it, with a descriptor that is the caller's. */
static ignis_external_desc describe_buffer(const buffer *made, int64_t count)
{
    VkMemoryGetFdInfoKHR info = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
                                 .memory = made->memory,
                                 .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    ignis_external_desc desc;
    memset(&desc, 0, sizeof desc);
    OK(vk.vkGetMemoryFdKHR(vk.device, &info, &desc.fd));
    desc.type = IGNIS_EXTERNAL_FD;
    desc.size = (int64_t)made->size;
    desc.offset = (int64_t)made->offset;
    desc.dedicated = made->dedicated;
    desc.shape = IGNIS_SHAPE(count);
    desc.dtype = IGNIS_I32;
    return desc;
}

/*  A timeline for both. On the simulator, where Vulkan exports none, there are two, and a thread that carries odd
    values to Vulkan's and even ones back. */
typedef struct timeline {
    VkSemaphore semaphore;
    uint64_t *simulated, last;
    pthread_t thread;
    bool carried;
} timeline;

static void *carry(void *argument)
{
    timeline *self = (timeline *)argument;
    uint64_t value;
    for (value = 1; value < self->last; value += 2) {
        VkSemaphoreSignalInfo signal = {
            .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = self->semaphore, .value = value};
        uint64_t even = value + 1;
        VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                    .semaphoreCount = 1,
                                    .pSemaphores = &self->semaphore,
                                    .pValues = &even};
        double limit = test_seconds() + 20;
        while (ignis__atomic_load(self->simulated) < value && test_seconds() < limit)
            test_sleep_ms(0);
        OK(vk.vkSignalSemaphore(vk.device, &signal));
        OK(vk.vkWaitSemaphores(vk.device, &wait, UINT64_C(20000000000)));
        ignis__atomic_store(self->simulated, even);
    }
    return NULL;
}

static int simulated_timeline(timeline *line)
{
    ignis_library_info info;
    int (*make_one)(uint64_t value) = NULL;
    void *library, *found, *page;
    int fd;
    CHECK_OK(ignis_library_query(IGNIS_LIBRARY_CUDA, &info));
    library = dlopen(info.path, RTLD_NOW | RTLD_LOCAL);
    found = library ? dlsym(library, "ignis_sim_timeline") : NULL;
    memcpy(&make_one, &found, sizeof found);
    fd = make_one ? make_one(0) : -1;
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED);
    line->simulated = (uint64_t *)page + 2;
    return fd;
}

/*  Makes one whose values go up to `last`, and returns what CUDA is told of it, with a descriptor that is the caller's.
    */
static ignis_external_fence_desc begin_timeline(timeline *line, uint64_t last)
{
    VkExportSemaphoreCreateInfo exports = {.sType = VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO,
                                           .handleTypes = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT};
    VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                      .pNext = vk.exports_timelines ? &exports : NULL,
                                      .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    VkSemaphoreGetFdInfoKHR get = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR,
                                   .handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT};
    ignis_external_fence_desc desc;
    memset(line, 0, sizeof *line);
    memset(&desc, 0, sizeof desc);
    OK(vk.vkCreateSemaphore(vk.device, &info, NULL, &line->semaphore));
    desc.type = IGNIS_FENCE_TIMELINE_FD;
    desc.fd = -1;
    get.semaphore = line->semaphore;
    line->last = last;
    if (vk.exports_timelines)
        OK(vk.vkGetSemaphoreFdKHR(vk.device, &get, &desc.fd));
    else
        desc.fd = simulated_timeline(line);
    line->carried = line->simulated && pthread_create(&line->thread, NULL, carry, line) == 0;
    return desc;
}

static void end_timeline(timeline *line)
{
    if (line->carried)
        pthread_join(line->thread, NULL);
    OK(vk.vkDeviceWaitIdle(vk.device));
    vk.vkDestroySemaphore(vk.device, line->semaphore, NULL);
    if (line->simulated)
        munmap(line->simulated - 2, 4096);
}

/*  A shared buffer comes to Vulkan's queue from outside, or goes back. */
static VkBufferMemoryBarrier passed(const buffer *made, bool comes)
{
    VkBufferMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER,
        .srcAccessMask = comes ? 0 : VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = comes ? VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT : 0,
        .srcQueueFamilyIndex = comes ? VK_QUEUE_FAMILY_EXTERNAL : vk.family,
        .dstQueueFamilyIndex = comes ? vk.family : VK_QUEUE_FAMILY_EXTERNAL,
        .buffer = made->buffer,
        .size = VK_WHOLE_SIZE};
    return barrier;
}

/*  What Vulkan does in each round: what CUDA wrote goes to the host, its second half to the beginning of `to`, and the
    rest of that is filled. */
static VkCommandBuffer record(const buffer *from, const buffer *to, const buffer *host, VkDeviceSize bytes)
{
    VkCommandBufferAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = vk.pool, .commandBufferCount = 1};
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                      .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    VkBufferMemoryBarrier come[] = {passed(from, true), passed(to, true)},
                          go[] = {passed(from, false), passed(to, false)};
    VkBufferCopy all = {.size = bytes}, half = {.srcOffset = bytes / 2, .size = bytes / 2};
    VkMemoryBarrier seen = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                            .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                            .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    VkCommandBuffer commands = VK_NULL_HANDLE;
    OK(vk.vkAllocateCommandBuffers(vk.device, &info, &commands));
    OK(vk.vkBeginCommandBuffer(commands, &begin));
    vk.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 0, NULL, 2,
                            come, 0, NULL);
    vk.vkCmdCopyBuffer(commands, from->buffer, host->buffer, 1, &all);
    vk.vkCmdCopyBuffer(commands, from->buffer, to->buffer, 1, &half);
    vk.vkCmdFillBuffer(commands, to->buffer, bytes / 2, bytes / 2, 0xC0FFEEu);
    vk.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
                            VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &seen, 2, go, 0,
                            NULL);
    OK(vk.vkEndCommandBuffer(commands));
    return commands;
}

static void submit(const VkCommandBuffer *commands, const timeline *line, uint64_t from, uint64_t to)
{
    VkTimelineSemaphoreSubmitInfo values = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .waitSemaphoreValueCount = 1,
                                            .pWaitSemaphoreValues = &from,
                                            .signalSemaphoreValueCount = 1,
                                            .pSignalSemaphoreValues = &to};
    VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &values,
                         .waitSemaphoreCount = 1,
                         .pWaitSemaphores = &line->semaphore,
                         .pWaitDstStageMask = &stage,
                         .commandBufferCount = 1,
                         .pCommandBuffers = commands,
                         .signalSemaphoreCount = 1,
                         .pSignalSemaphores = &line->semaphore};
    OK(vk.vkQueueSubmit(vk.queue, 1, &info, VK_NULL_HANDLE));
}

#endif /* VULKAN_TESTS_H */
