// SPDX-License-Identifier: MIT
/*  transports.h - what tests of transports share: transports, shared arrays */
#ifndef TRANSPORTS_H
#define TRANSPORTS_H

#include "array.h"

#include "ignis_collective.h"

#include "channels.h"
#include "processes.h"

static const unsigned char token[IGNIS_TRANSPORT_TOKEN_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static inline ignis_transport make_transport(ignis_transport_kind kind, int src, int dst)
{
    ignis_transport_desc desc;
    ignis_transport transport;
    memset(&desc, 0, sizeof desc);
    desc.kind = kind;
    desc.src_device = src ? src : IGNIS_DEVICE_0;
    desc.dst_device = dst ? dst : IGNIS_DEVICE_0;
    desc.token = token;
    desc.timeout_s = 2;
    transport = ignis_transport_create(&desc);
    if (transport.id)
        CHECK_OK(ignis_transport_initialize(transport));
    return transport;
}

static inline ignis_transport_info query(ignis_transport transport)
{
    ignis_transport_info info;
    memset(&info, 0, sizeof info);
    CHECK_OK(ignis_transport_query(transport, &info));
    return info;
}

/*  An i32 array of first, first + 1, ... in memory that a kind can share. */
static inline ignis_array make_shared(ignis_transport_kind kind, int device, int64_t count, int32_t first)
{
    ignis_array_desc plain = desc_of(IGNIS_SHAPE(count), IGNIS_I32);
    ignis_vmm_array_desc vmm;
    ignis_array array;
    int32_t *values = (int32_t *)malloc((size_t)count * 4);
    int64_t i;
    memset(&vmm, 0, sizeof vmm);
    vmm.shape = plain.shape;
    vmm.dtype = IGNIS_I32;
    plain.device = vmm.device = device ? device : IGNIS_DEVICE_0;
    array = kind == IGNIS_TRANSPORT_VMM   ? ignis_vmm_array(&vmm)
            : kind == IGNIS_TRANSPORT_IPC ? ignis_ipc_array(&plain)
                                          : ignis_array_create(&plain);
    for (i = 0; i < count; i++)
        values[i] = first + (int32_t)i;
    CHECK_OK(ignis_array_from_host_raw(array, values, count * 4));
    free(values);
    return array;
}

static inline bool available(ignis_transport_kind kind, int src, int dst)
{
    return dst < ignis_device_count() && ignis_transport_available(kind, src, dst, NULL, 0);
}

static inline void reseal(const unsigned char *with, ignis__record_of_array *record)
{
    unsigned char secret[IGNIS__SECRET] = {0};
    memcpy(secret, with, IGNIS_TRANSPORT_TOKEN_BYTES);
    ignis__record_seal(secret, record, record->seal);
}

#endif
