// SPDX-License-Identifier: MIT
/*  device.c - devices and their attributes

    Sizes are those of an H200. Capabilities are those that the simulator has, so that a program does not
    choose a feature that is missing here.
*/
#include "driver.h"

int is_device(CUdevice device) { return device >= 0 && device < sim.device_count; }

int device_by_number(int number)
{
    for (int i = 0; i < sim.device_count; i++)
        if (sim.contexts[i].number == number)
            return i;
    return -1;
}

/* Tells whether two devices of the machine reach each other's memory. */
int devices_reach(int a, int b) { return a == b || sim.reach[a] >> b & 1; }

void uuid_of(int number, unsigned char *uuid)
{
    memcpy(uuid, "IgnisSimulator", 14);
    uuid[14] = (unsigned char)sim.cc;
    uuid[15] = (unsigned char)number;
}

SIM_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    BEGIN(cuDeviceGet);
    REQUIRE(device, ERROR_INVALID_VALUE);
    REQUIRE(is_device(ordinal), ERROR_INVALID_DEVICE);
    *device = ordinal;
    return leave(SUCCESS);
}

SIM_API CUresult cuDeviceGetCount(int *count)
{
    BEGIN(cuDeviceGetCount);
    REQUIRE(count, ERROR_INVALID_VALUE);
    *count = sim.device_count;
    return leave(SUCCESS);
}

SIM_API CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    BEGIN(cuDeviceGetName);
    REQUIRE(name && length > 0, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)length, "Ignis Simulator (CPU)");
    return leave(SUCCESS);
}

SIM_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    BEGIN(cuDeviceTotalMem_v2);
    REQUIRE(bytes, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    *bytes = sim.memory;
    return leave(SUCCESS);
}

static int device_uuid(CUuuid *uuid, CUdevice device)
{
    if (!uuid)
        return ERROR_INVALID_VALUE;
    if (!is_device(device))
        return ERROR_INVALID_DEVICE;
    uuid_of(sim.contexts[device].number, (unsigned char *)uuid->bytes);
    return SUCCESS;
}

SIM_API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    BEGIN(cuDeviceGetUuid);
    return leave(device_uuid(uuid, device));
}

SIM_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    BEGIN(cuDeviceGetUuid_v2);
    return leave(device_uuid(uuid, device));
}

/* Real drivers have LUIDs on Windows only. */
SIM_API CUresult cuDeviceGetLuid(char *luid, unsigned int *mask, CUdevice device)
{
    BEGIN(cuDeviceGetLuid);
    REQUIRE(luid && mask, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    REQUIRE(!strcmp(knob("IGNIS_SIM_LUID", "0"), "1"), ERROR_NOT_SUPPORTED);
    memcpy(luid, "simluid", 8);
    luid[7] = (char)('0' + sim.contexts[device].number);
    *mask = 1;
    return leave(SUCCESS);
}

SIM_API CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
    BEGIN(cuDeviceGetPCIBusId);
    REQUIRE(id && length > 0, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    snprintf(id, (size_t)length, "0000:%02X:00.0", (unsigned)sim.contexts[device].number + 1);
    return leave(SUCCESS);
}

SIM_API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
    unsigned domain = 0, bus = 0;
    BEGIN(cuDeviceGetByPCIBusId);
    REQUIRE(device && id, ERROR_INVALID_VALUE);
    REQUIRE(sscanf(id, "%x:%x:", &domain, &bus) == 2, ERROR_INVALID_VALUE);
    int found = domain ? -1 : device_by_number((int)bus - 1);
    REQUIRE(found >= 0, ERROR_INVALID_DEVICE);
    *device = found;
    return leave(SUCCESS);
}

/* clang-format off */
/* Attributes `first` to `last`: sizes of an H200, capabilities of the simulator. */
static const struct { int first, last, value; } attributes[] = {
    {1, 1, MAX_THREADS}, {2, 3, 1024}, {4, 4, 64},      /* threads of a block: all, x and y, z */
    {5, 5, 0x7FFFFFFF}, {6, 7, 65535},                  /* blocks of a grid: x, y and z */
    {8, 8, SHARED_DEFAULT}, {9, 9, 65536},              /* shared memory of a block, constant memory */
    {10, 10, 32}, {11, 11, 0x7FFFFFFF}, {12, 12, 65536},/* warp size, pitch, registers of a block */
    {13, 13, 1980000}, {14, 14, 512}, {15, 15, 1},      /* clock in kHz, texture alignment, copies overlap */
    /* SMs; time limit, integrated; maps host memory; compute mode */
    {16, 16, SM_COUNT}, {17, 18, 0}, {19, 19, 1}, {20, 20, 0},
    {21, 29, 0}, {30, 30, 512}, {31, 31, 1}, {32, 32, 0},/* textures; surface alignment; concurrent kernels; ECC */
    {34, 35, 0}, {36, 36, 3201000}, {37, 37, 6016},     /* PCI device, TCC; memory clock in kHz, bus width */
    {38, 38, 60 << 20}, {39, 39, THREADS_PER_SM},       /* L2 bytes, threads of an SM */
    /* copy engines, unified addresses; textures, PCI domain; pitch */
    {40, 40, 3}, {41, 41, 1}, {42, 50, 0}, {51, 51, 32},
    {52, 74, 0}, {77, 77, 0}, {78, 80, 1},              /* textures and surfaces; priorities, L1 caches */
    {81, 81, SHARED_PER_SM}, {82, 82, 65536},           /* shared memory and registers of an SM */
    /* managed memory, boards; float to double; pageable; preemption */
    {83, 86, 0}, {87, 87, 2}, {88, 89, 0}, {90, 91, 1},
    /* stream memory operations, cooperative launch; shared memory */
    {92, 94, 0}, {95, 95, 1}, {96, 96, 0}, {97, 97, SHARED_OPTIN}, {98, 98, 0},
    /* host registration; virtual memory; blocks of an SM */
    {99, 99, 1}, {100, 101, 0}, {102, 103, 1}, {104, 105, 0}, {106, 106, BLOCKS_PER_SM},
    {107, 110, 0}, {111, 111, SHARED_RESERVED},         /* compression, L2 policy, RDMA; reserved shared memory */
    /* pools, clusters, IPC events, tensor maps, multicast */
    {112, 119, 0}, {121, 121, 0}, {122, 123, 1}, {124, 124, 0}, {125, 125, 1}, {126, 129, 0},
    {130, 131, 0}, {132, 147, 0}
};
/* clang-format on */

static int attribute_value(int attribute, CUdevice device, int *out)
{
    switch (attribute) {
    case 33: *out = sim.contexts[device].number + 1; return SUCCESS; /* PCI bus */
    case 75: *out = sim.cc / 10; return SUCCESS;
    case 76: *out = sim.cc % 10; return SUCCESS;
    case 120: *out = sim.cc >= 90 && sim_has_clusters(); return SUCCESS;
    default: break;
    }
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attribute >= attributes[i].first && attribute <= attributes[i].last)
            return *out = attributes[i].value, SUCCESS;
    return ERROR_INVALID_VALUE;
}

SIM_API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    BEGIN(cuDeviceGetAttribute);
    REQUIRE(value, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    return leave(attribute_value((int)attribute, device, value));
}

SIM_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    BEGIN(cuDeviceCanAccessPeer);
    REQUIRE(can, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device) && is_device(peer), ERROR_INVALID_DEVICE);
    *can = device != peer && devices_reach(sim.contexts[device].number, sim.contexts[peer].number);
    return leave(SUCCESS);
}

/* 1: rank of the link's speed, 0 is the best; 2: access; 3: atomics; 4: arrays, not supported; 5: only some
   atomics. */
SIM_API CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
{
    BEGIN(cuDeviceGetP2PAttribute);
    REQUIRE(value && (int)attribute >= 1 && (int)attribute <= 5, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device) && is_device(peer) && device != peer, ERROR_INVALID_DEVICE);
    int reach = devices_reach(sim.contexts[device].number, sim.contexts[peer].number);
    *value = ((int)attribute == 2 || (int)attribute == 3) && reach;
    return leave(SUCCESS);
}
