// SPDX-License-Identifier: MIT
/*  gpu_vulkan.c - memory and timeline semaphores of a real Vulkan: `make check-graphics`

    CUDA writes and signals; Vulkan waits, copies what CUDA wrote, adds to it, and signals; CUDA waits and reads. What
    it needs: vulkan.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "vulkan.h"

/*  The same memory for CUDA. */
static ignis_array import_buffer(const buffer *made, int64_t count)
{
    ignis_external_desc desc = describe_buffer(made, count);
    ignis_array array = ignis_external_array(&desc);
    CHECK_OK(ignis_status_last());
    if (array.id)
        CHECK(fcntl(desc.fd, F_GETFD) < 0 ||
              !test_is_simulator()); /* the driver may keep the number, for which it is closed there */
    return array;
}

/*  CUDA writes `from`, Vulkan copies to `to`, CUDA reads; a number of times. */
static void take_turns(bool dedicated, VkDeviceSize room)
{
    enum { COUNT = 40000, ROUNDS = 6 }; /* no multiple of a page */
    const int64_t half = COUNT / 2;
    static int32_t ours[COUNT];
    buffer from = make_buffer(COUNT * 4, true, dedicated, room), to = make_buffer(COUNT * 4, true, dedicated, 0);
    buffer host = make_buffer(COUNT * 4, false, false, 0);
    ignis_array written = import_buffer(&from, COUNT), read = import_buffer(&to, COUNT);
    ignis_array counting = make_counting(IGNIS_SHAPE(COUNT), 0);
    VkCommandBuffer commands = record(&from, &to, &host, COUNT * 4);
    timeline line;
    ignis_external_fence_desc desc = begin_timeline(&line, 2 * ROUNDS);
    ignis_fence fence = ignis_external_fence(&desc);
    uint64_t round;
    int64_t i, wrong;
    CHECK_OK(ignis_status_last());
    for (round = 0; round < ROUNDS; round++) {
        submit(&commands, &line, 2 * round + 1, 2 * round + 2); /* it waits for what comes now */
        CHECK_OK(ignis_array_fill(written, (double)round * 1000000));
        CHECK_OK(ignis_array_add(written, written, counting));
        CHECK_OK(ignis_fence_signal(fence, 2 * round + 1));
        CHECK_OK(ignis_fence_wait(fence, 2 * round + 2));
        CHECK_OK(ignis_array_to_host(read, ours, IGNIS_I32, COUNT));
        for (i = wrong = 0; i < COUNT; i++)
            wrong += ours[i] != (i < half ? (int32_t)(round * 1000000) + (int32_t)(half + i) : 0xC0FFEE);
        CHECK_INT(wrong, 0); /* what Vulkan wrote */
        for (i = wrong = 0; i < COUNT; i++)
            wrong += ((const int32_t *)host.host)[i] != (int32_t)(round * 1000000) + (int32_t)i;
        CHECK_INT(wrong, 0); /* what Vulkan has read */
    }
    CHECK_OK(ignis_fence_free(fence));
    end_timeline(&line);
    drop(written), drop(read), drop(counting);
    end_buffer(&from), end_buffer(&to), end_buffer(&host);
}

TEST(cuda_and_vulkan_take_turns)
{
    VULKAN_SETUP();
    take_turns(false, 0);
    vulkan_end();
}

TEST(dedicated_memory_and_offsets)
{
    VULKAN_SETUP();
    take_turns(true, 0);
    take_turns(false, 5000);
    vulkan_end();
}

/*  An array that goes while its work waits for Vulkan: the work is done, and the memory is Vulkan's again. */
TEST(frees_come_after_what_vulkan_is_waited_for)
{
    enum { COUNT = 1024 };
    buffer from, to, host;
    ignis_array written, read;
    VkCommandBuffer commands;
    timeline line;
    ignis_external_fence_desc desc;
    ignis_fence fence;
    VULKAN_SETUP();
    from = make_buffer(COUNT * 4, true, false, 0), to = make_buffer(COUNT * 4, true, false, 0);
    host = make_buffer(COUNT * 4, false, false, 0);
    written = import_buffer(&from, COUNT), read = import_buffer(&to, COUNT);
    commands = record(&from, &to, &host, COUNT * 4);
    desc = begin_timeline(&line, 4);
    fence = ignis_external_fence(&desc);
    CHECK_OK(ignis_array_fill(written, 11.0));
    CHECK_OK(ignis_fence_signal(fence, 1));
    CHECK_OK(ignis_fence_wait(fence, 2));
    CHECK_OK(ignis_array_copy(written, read)); /* 11 in the first half */
    CHECK_OK(ignis_fence_signal(fence, 3));
    submit(&commands, &line, 1, 2);
    drop(read), drop(written);
    submit(&commands, &line, 3, 4);
    CHECK_OK(ignis_fence_free(fence));
    end_timeline(&line);
    CHECK_INT(((const int32_t *)host.host)[0], 11);
    CHECK_INT(((const int32_t *)host.host)[COUNT - 1], 0xC0FFEE);
    end_buffer(&from), end_buffer(&to), end_buffer(&host);
    vulkan_end();
}

TEST(a_wrong_size_is_refused_or_survived)
{
    buffer made;
    ignis_external_desc desc;
    ignis_array array;
    VkMemoryGetFdInfoKHR info = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
                                 .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    VULKAN_SETUP();
    made = make_buffer(4096, true, false, 0);
    memset(&desc, 0, sizeof desc);
    info.memory = made.memory;
    OK(vk.vkGetMemoryFdKHR(vk.device, &info, &desc.fd));
    desc.type = IGNIS_EXTERNAL_FD;
    desc.size = (int64_t)made.size * 1024;
    desc.shape = IGNIS_SHAPE(16);
    array = ignis_external_array(&desc);
    if (array.id) { /* a driver need not look */
        drop(array);
    } else {
        CHECK_FAILS(ignis_external_array(&desc), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
        CHECK(fcntl(desc.fd, F_GETFD) >= 0); /* it is still ours: now with the right size */
        desc.size = (int64_t)made.size;
        drop(ignis_external_array(&desc));
    }
    CHECK_OK(ignis_synchronize());
    end_buffer(&made);
    vulkan_end();
}

int main(int argc, char **argv) { return test_run(argc, argv); }
