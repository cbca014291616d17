// SPDX-License-Identifier: MIT
/*  test_device.c - devices, and the current device of a thread */
#include "fault.h"
#include "test.h"

TEST(device_facts_make_sense)
{
    ignis_device_info info, other;
    int i, k, count;
    SETUP(NULL);
    count = ignis_device_count();
    CHECK(count >= 1 && count <= IGNIS_MAX_DEVICES);
    for (i = 0; i < count; i++) {
        CHECK_OK(ignis_device_query(i, &info));
        CHECK_INT(info.device, i);
        CHECK(info.name[0] != '\0');
        CHECK(strchr(info.pci_bus_id, ':') != NULL);
        CHECK(info.compute_major >= 5 && info.compute_minor >= 0);
        CHECK(info.multiprocessors > 0);
        CHECK_INT(info.warp_size, 32);
        CHECK_INT(info.max_threads_per_block, 1024);
        CHECK(info.shared_per_block >= 48 * 1024);
        CHECK(info.l2_bytes > 0);
        CHECK(info.memory_total >= 64 * 1024 * 1024);
        CHECK(info.driver_version >= 11000);
        for (k = 0; k < i; k++) {
            CHECK_OK(ignis_device_query(k, &other));
            CHECK(memcmp(info.uuid, other.uuid, sizeof info.uuid) != 0);
        }
    }
    CHECK_STATUS(ignis_device_query(count, &info), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
}

/*  Facts of which the driver has told a part are asked for again. */
TEST(half_of_the_facts_are_none)
{
    ignis_device_info info, all;
    int at;
    SETUP(NULL);
    NEEDS_NO_MEMCHECK();
    CHECK_OK(ignis_device_query(0, &all));
    for (at = 1; at <= 7; at++) {
        CHECK_OK(ignis_shutdown());
        SETUP(NULL);
        fault_arm("cuDeviceGetAttribute", at, 1);
        CHECK_STATUS(ignis_device_query(0, &info), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
        fault_disarm();
        CHECK_OK(ignis_device_query(0, &info));
        CHECK(memcmp(&info, &all, sizeof info) == 0);
    }
}

TEST(threads_start_with_the_device_of_the_setup)
{
    ignis_desc desc = test_desc(NULL);
    ignis_array_info info;
    ignis_array a;
    SETUP(NULL);
    CHECK_INT(ignis_device_current(), 0);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_shutdown());
    desc.device = 1;
    SETUP(&desc);
    CHECK_INT(ignis_device_current(), 1);
    a = test_array(2, 3);
    CHECK_OK(ignis_array_query(a, &info));
    CHECK_INT(info.device, 1);
    CHECK_OK(ignis_array_free(a));
}

TEST(desc_names_the_device_of_an_array)
{
    ignis_array_desc desc;
    ignis_array_info info;
    ignis_array a;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(2);
    SETUP(NULL);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_device_use(1));
    desc.device = IGNIS_DEVICE_0;
    a = ignis_array_create(&desc);
    CHECK_OK(ignis_array_query(a, &info));
    CHECK_INT(info.device, 0);
    CHECK_OK(ignis_array_fill(a, 3.0)); /* works while another device is current */
    test_check_series(a, 2, 3.0F, 0.0F);
    CHECK_INT(ignis_device_current(), 1);
    CHECK_OK(ignis_array_free(a));
}

static void *use_device_0(void *arg)
{
    (void)arg;
    CHECK_INT(ignis_device_current(), 0);
    CHECK_OK(ignis_array_free(test_array(2, 2)));
    CHECK_OK(ignis_device_use(0));
    return NULL;
}

TEST(each_thread_has_its_own_device)
{
    pthread_t thread;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_device_use(1));
    REQUIRE(pthread_create(&thread, NULL, use_device_0, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_INT(ignis_device_current(), 1);
}

TEST(copies_go_between_devices)
{
    ignis_array a, b;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    a = test_array(64, 64);
    CHECK_OK(ignis_device_use(1));
    b = test_array(64, 64);
    CHECK_OK(ignis_array_zero(b));
    CHECK_OK(ignis_array_copy(b, a));
    test_check_series(b, 64 * 64, 0.0F, 1.0F);
    CHECK_STATUS(ignis_array_add(b, b, a), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_STATUS(ignis_array_write_rows(b, a, 0), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_array_free(b));
}

int main(int argc, char **argv) { return test_run(argc, argv); }
