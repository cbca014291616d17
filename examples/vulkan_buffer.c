// SPDX-License-Identifier: MIT
/*  vulkan_buffer.c - a kernel writes a buffer of Vulkan, which Vulkan uses without a copy or a wait of the host

    Vulkan allocates memory and a timeline semaphore, and exports both as descriptors. Ignis makes an array and a fence
    of them. A formula writes the heights of a wave, CUDA sets the timeline to 1, and Vulkan's queue, which waits for
    that, does with the buffer what a renderer would: here it copies it to where the host can look. Vulkan sets the
    timeline to 2, and CUDA goes on. Only at the end a thread waits.

    Needs a GPU of NVIDIA, and libvulkan-dev; a program for Windows asks for OPAQUE_WIN32 handles instead.

        cc -I. examples/vulkan_buffer.c -o vulkan_buffer -lvulkan -lm -ldl -lpthread && ./vulkan_buffer
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

#define COUNT 1024
#define FD VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT
#define SEMAPHORE_FD VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT

static VkPhysicalDevice physical;
static VkDevice device;

static void check(VkResult result, const char *what)
{
    if (result == VK_SUCCESS)
        return;
    printf("%s failed with %d\n", what, (int)result);
    exit(1);
}

/* A buffer in memory of its own, to be exported or to be seen by the host. */
static VkBuffer make_buffer(bool exported, VkDeviceMemory *memory, VkDeviceSize *size)
{
    VkExternalMemoryBufferCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                                 .handleTypes = FD};
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .pNext = exported ? &external : NULL,
                               .size = COUNT * sizeof(float)};
    VkExportMemoryAllocateInfo exports = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, .handleTypes = FD};
    VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                     .pNext = exported ? &exports : NULL};
    VkMemoryPropertyFlags wanted = exported
                                       ? VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
                                       : VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    VkPhysicalDeviceMemoryProperties types;
    VkMemoryRequirements needs;
    VkBuffer buffer;
    info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT; /* a renderer's: VERTEX_BUFFER, STORAGE_BUFFER */
    check(vkCreateBuffer(device, &info, NULL, &buffer), "vkCreateBuffer");
    vkGetBufferMemoryRequirements(device, buffer, &needs);
    vkGetPhysicalDeviceMemoryProperties(physical, &types);
    while (!(needs.memoryTypeBits >> allocate.memoryTypeIndex & 1) ||
           (types.memoryTypes[allocate.memoryTypeIndex].propertyFlags & wanted) != wanted)
        allocate.memoryTypeIndex++;
    *size = allocate.allocationSize = needs.size;
    check(vkAllocateMemory(device, &allocate, NULL, memory), "vkAllocateMemory");
    check(vkBindBufferMemory(device, buffer, *memory, 0), "vkBindBufferMemory");
    return buffer;
}

/* Opens the Vulkan device that is one of CUDA's. */
static void open_device(VkInstance instance)
{
    const char *extensions[] = {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME, VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME};
    VkPhysicalDeviceTimelineSemaphoreFeatures features = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES,
                                                          .timelineSemaphore = VK_TRUE};
    VkDeviceQueueCreateInfo queues = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &(float){1}};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &features,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queues};
    VkPhysicalDevice found[16];
    uint32_t count = 16;
    vkEnumeratePhysicalDevices(instance, &count, found);
    for (uint32_t i = 0; i < count && !physical; i++) {
        VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
        VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                                  .pNext = &id};
        vkGetPhysicalDeviceProperties2(found[i], &properties);
        for (int k = 0; k < ignis_device_count(); k++) {
            ignis_device_info cuda;
            if (ignis_device_query(k, &cuda) == IGNIS_OK && memcmp(cuda.uuid, id.deviceUUID, VK_UUID_SIZE) == 0) {
                printf("%s is device %d of CUDA\n", properties.properties.deviceName, k);
                ignis_device_use(k);
                physical = found[i];
            }
        }
    }
    if (!physical)
        printf("no device of Vulkan is one of CUDA's\n"), exit(1);
    info.enabledExtensionCount = 2;
    info.ppEnabledExtensionNames = extensions;
    check(vkCreateDevice(physical, &info, NULL, &device), "vkCreateDevice");
}

int main(void)
{
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2};
    VkInstanceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
    VkExportSemaphoreCreateInfo exports = {.sType = VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO,
                                           .handleTypes = SEMAPHORE_FD};
    VkSemaphoreTypeCreateInfo timeline = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                          .pNext = &exports,
                                          .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo semaphores = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &timeline};
    VkDeviceMemory memory, host_memory;
    VkDeviceSize size, host_size;
    VkInstance instance;
    VkSemaphore semaphore;
    VkQueue queue;
    float *heights;

    ignis_setup(NULL);
    check(vkCreateInstance(&create, NULL, &instance), "vkCreateInstance");
    open_device(instance);
    vkGetDeviceQueue(device, 0, 0, &queue);
    VkBuffer buffer = make_buffer(true, &memory, &size), host = make_buffer(false, &host_memory, &host_size);
    check(vkCreateSemaphore(device, &semaphores, NULL, &semaphore), "vkCreateSemaphore");
    check(vkMapMemory(device, host_memory, 0, VK_WHOLE_SIZE, 0, (void **)&heights), "vkMapMemory");

    /* Both as descriptors, which are the driver's afterwards. */
    PFN_vkGetMemoryFdKHR get_memory = (PFN_vkGetMemoryFdKHR)vkGetDeviceProcAddr(device, "vkGetMemoryFdKHR");
    PFN_vkGetSemaphoreFdKHR get_semaphore = (PFN_vkGetSemaphoreFdKHR)vkGetDeviceProcAddr(device, "vkGetSemaphoreFdKHR");
    ignis_external_desc shared = {
        .type = IGNIS_EXTERNAL_FD, .size = (int64_t)size, .shape = IGNIS_SHAPE(COUNT), .tag = "heights"};
    ignis_external_fence_desc fences = {.type = IGNIS_FENCE_TIMELINE_FD};
    check(get_memory(device, &(VkMemoryGetFdInfoKHR){VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR, NULL, memory, FD},
                     &shared.fd),
          "vkGetMemoryFdKHR");
    check(get_semaphore(
              device,
              &(VkSemaphoreGetFdInfoKHR){VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR, NULL, semaphore, SEMAPHORE_FD},
              &fences.fd),
          "vkGetSemaphoreFdKHR");
    ignis_array array = ignis_external_array(&shared);
    ignis_fence fence = ignis_external_fence(&fences);

    /* Vulkan's part: behind value 1, then value 2. */
    VkCommandPool pool;
    VkCommandBuffer commands;
    check(vkCreateCommandPool(device, &(VkCommandPoolCreateInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO},
                              NULL, &pool),
          "vkCreateCommandPool");
    VkCommandBufferAllocateInfo allocate = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = pool, .commandBufferCount = 1};
    check(vkAllocateCommandBuffers(device, &allocate, &commands), "vkAllocateCommandBuffers");
    check(vkBeginCommandBuffer(commands,
                               &(VkCommandBufferBeginInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO}),
          "vkBeginCommandBuffer");
    VkBufferMemoryBarrier comes = {.sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER,
                                   .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT,
                                   .srcQueueFamilyIndex = VK_QUEUE_FAMILY_EXTERNAL,
                                   .buffer = buffer,
                                   .size = VK_WHOLE_SIZE};
    VkMemoryBarrier seen = {VK_STRUCTURE_TYPE_MEMORY_BARRIER, NULL, VK_ACCESS_TRANSFER_WRITE_BIT,
                            VK_ACCESS_HOST_READ_BIT};
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 0, NULL, 1,
                         &comes, 0, NULL);
    vkCmdCopyBuffer(commands, buffer, host, 1, &(VkBufferCopy){.size = COUNT * sizeof(float)});
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &seen, 0, NULL, 0,
                         NULL);
    check(vkEndCommandBuffer(commands), "vkEndCommandBuffer");
    VkTimelineSemaphoreSubmitInfo values = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .waitSemaphoreValueCount = 1,
                                            .pWaitSemaphoreValues = &(uint64_t){1},
                                            .signalSemaphoreValueCount = 1,
                                            .pSignalSemaphoreValues = &(uint64_t){2}};
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .pNext = &values,
                           .waitSemaphoreCount = 1,
                           .pWaitSemaphores = &semaphore,
                           .pWaitDstStageMask = &(VkPipelineStageFlags){VK_PIPELINE_STAGE_ALL_COMMANDS_BIT},
                           .commandBufferCount = 1,
                           .pCommandBuffers = &commands,
                           .signalSemaphoreCount = 1,
                           .pSignalSemaphores = &semaphore};
    check(vkQueueSubmit(queue, 1, &submit, VK_NULL_HANDLE), "vkQueueSubmit");

    /* CUDA's part. */
    ignis_array_map(array, "sin(2*pi*index(0)/count)", IGNIS_ARRAYS(array, IGNIS_ARRAY_VALUE(count, COUNT)));
    ignis_fence_signal(fence, 1);
    ignis_fence_wait(fence, 2);
    ignis_array_zero(array); /* Vulkan has what it needs */
    ignis_synchronize();
    if (ignis_status_last() == IGNIS_OK)
        printf("Vulkan saw %.3f %.3f %.3f %.3f\n", heights[0], heights[COUNT / 8], heights[COUNT / 4],
               heights[COUNT / 2 + COUNT / 4]);

    ignis_fence_free(fence);
    ignis_array_free(array); /* before Vulkan frees its memory */
    vkDeviceWaitIdle(device);
    vkDestroySemaphore(device, semaphore, NULL);
    vkDestroyBuffer(device, buffer, NULL);
    vkDestroyBuffer(device, host, NULL);
    vkFreeMemory(device, memory, NULL);
    vkFreeMemory(device, host_memory, NULL);
    vkDestroyCommandPool(device, pool, NULL);
    vkDestroyDevice(device, NULL);
    vkDestroyInstance(instance, NULL);
    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK;
}
