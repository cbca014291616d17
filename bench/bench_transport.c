// SPDX-License-Identifier: MIT
/*  bench_transport.c - the cost of sharing an array, and the bandwidth of reading it in the other process

    Two processes: the parent exports, the child imports and copies out. For each kind, from
    device 0 to device 0, and to device 1 if it exists: the bandwidth of the child's copy, beside a plain
    cuMemcpyPeerAsync (or DtoD) of its own memory, alternating in the same run; and the median times to export, exchange
    and import a handle. The peer kind works within one process, the child. The bandwidth of host copies is that of
    export and import together.

        cc -O2 -I. bench/bench_transport.c -o bench_transport -lm -ldl -lpthread && ./bench_transport
*/
#define _GNU_SOURCE
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/processes.h"
#include "timing.h"

enum { CYCLES = 201, REPEATS = 11 };

static const unsigned char token[IGNIS_TRANSPORT_TOKEN_BYTES] = {42};

typedef struct order {
    ignis_transport_kind kind; /* AUTO: the end */
    int dst, copies;
    int64_t bytes;
} order;

typedef struct result {
    double import_us;
    double gbs, plain_gbs; /* 0: not measured */
} result;

#define REQUIRE(condition) require(condition, #condition)

static ignis_transport make_transport(ignis_transport_kind kind, int dst)
{
    ignis_transport_desc desc;
    ignis_transport transport;
    memset(&desc, 0, sizeof desc);
    desc.kind = kind;
    desc.src_device = IGNIS_DEVICE_0;
    desc.dst_device = dst ? dst : IGNIS_DEVICE_0;
    desc.token = token;
    transport = ignis_transport_create(&desc);
    REQUIRE(transport.id && ignis_transport_initialize(transport) == IGNIS_OK);
    return transport;
}

static ignis_array make_array(ignis_transport_kind kind, int device, int64_t bytes)
{
    ignis_vmm_array_desc vmm;
    ignis_array_desc plain;
    ignis_array array;
    memset(&vmm, 0, sizeof vmm);
    memset(&plain, 0, sizeof plain);
    plain.shape = vmm.shape = IGNIS_SHAPE(bytes);
    plain.dtype = vmm.dtype = IGNIS_U8;
    plain.device = vmm.device = device ? device : IGNIS_DEVICE_0;
    array = kind == IGNIS_TRANSPORT_VMM   ? ignis_vmm_array(&vmm)
            : kind == IGNIS_TRANSPORT_IPC ? ignis_ipc_array(&plain)
                                          : ignis_array_create(&plain);
    REQUIRE(array.id && ignis_array_zero(array) == IGNIS_OK);
    return array;
}

static void send_handle(int socket, const ignis_transport_handle *handle)
{
    int fds[2], count = ignis_transport_handle_fds(handle, fds);
    REQUIRE(process_send(socket, handle->record, sizeof handle->record, count > 0 ? fds[0] : -1));
    REQUIRE(process_send(socket, "", 1, count > 1 ? fds[1] : -1));
}

static void receive_handle(int socket, ignis_transport_handle *handle)
{
    unsigned char record[IGNIS_TRANSPORT_RECORD_BYTES];
    int fds[2];
    char byte;
    REQUIRE(process_receive(socket, record, sizeof record, &fds[0]) && process_receive(socket, &byte, 1, &fds[1]));
    REQUIRE(ignis_transport_handle_from_fds(handle, record, fds, (fds[0] >= 0) + (fds[1] >= 0)) == IGNIS_OK);
}

/* --- the child ---------------------------------------------------------------------------------------------------- */

/*  Seconds of `copies` copies on dst's stream. */
static double copy_out(ignis_array to, ignis_array from, int copies)
{
    double start;
    int i;
    REQUIRE(ignis_array_copy(to, from) == IGNIS_OK && ignis_synchronize() == IGNIS_OK);
    start = now();
    for (i = 0; i < copies; i++)
        REQUIRE(ignis_array_copy(to, from) == IGNIS_OK);
    REQUIRE(ignis_synchronize() == IGNIS_OK);
    return now() - start;
}

static double copy_plain(int dst, void *to, void *from, int64_t bytes, int copies)
{
    ignis__device *source = &ignis__devices[0], *target = &ignis__devices[dst];
    double start = now();
    int i, error = 0;
    for (i = 0; i < copies; i++)
        error |= dst ? ignis__cuda.cuMemcpyPeerAsync((ignis__address)(uintptr_t)to, target->context,
                                                     (ignis__address)(uintptr_t)from, source->context, (size_t)bytes,
                                                     target->stream)
                     : ignis__cuda.cuMemcpyDtoDAsync_v2((ignis__address)(uintptr_t)to, (ignis__address)(uintptr_t)from,
                                                        (size_t)bytes, target->stream);
    REQUIRE(error == 0 && ignis_synchronize() == IGNIS_OK);
    return now() - start;
}

static void measure_copies(const order *todo, ignis_array seen, result *out)
{
    ignis_array to = make_array(IGNIS_TRANSPORT_PEER, todo->dst, todo->bytes),
                own = make_array(IGNIS_TRANSPORT_PEER, 0, todo->bytes);
    double shared[REPEATS], plain[REPEATS], total = (double)todo->bytes * todo->copies * 1e-9;
    void *target = ignis_array_device_ptr(to), *source = ignis_array_device_ptr(own);
    ignis_transport peer = {0};
    int i;
    if (ignis_transport_available(IGNIS_TRANSPORT_PEER, 0, todo->dst, NULL, 0))
        peer = make_transport(IGNIS_TRANSPORT_PEER, todo->dst); /* lets the plain copy take the direct way */
    REQUIRE(ignis_device_use(0) == IGNIS_OK && ignis_synchronize() == IGNIS_OK &&
            ignis_device_use(todo->dst) == IGNIS_OK);
    for (i = 0; i < REPEATS; i++) {
        shared[i] = copy_out(to, seen.id ? seen : own, todo->copies);
        plain[i] = copy_plain(todo->dst, target, source, todo->bytes, todo->copies);
    }
    out->gbs = total / median(shared, REPEATS);
    out->plain_gbs = total / median(plain, REPEATS);
    if (peer.id)
        ignis_transport_destroy(peer);
    ignis_array_free(to);
    ignis_array_free(own);
}

static int child_main(void)
{
    order todo;
    REQUIRE(ignis_setup(NULL) == IGNIS_OK);
    while (process_receive(PROCESS_SOCKET, &todo, sizeof todo, NULL) && todo.kind != IGNIS_TRANSPORT_AUTO) {
        ignis_transport transport = make_transport(todo.kind, todo.dst);
        ignis_array seen = {0}, none = {0};
        double times[CYCLES];
        result out;
        int i, cycles = todo.kind == IGNIS_TRANSPORT_PEER ? 0 : todo.copies ? 1 : CYCLES;
        memset(&out, 0, sizeof out);
        for (i = 0; i < cycles; i++) {
            ignis_transport_handle handle;
            double start;
            receive_handle(PROCESS_SOCKET, &handle);
            start = now();
            seen = ignis_transport_import_handle(transport, &handle);
            times[i] = (now() - start) * 1e6;
            REQUIRE(seen.id && ignis_transport_handle_close(&handle) == IGNIS_OK);
            if (!todo.copies)
                REQUIRE(ignis_array_free(seen) == IGNIS_OK);
            REQUIRE(process_send(PROCESS_SOCKET, "", 1, -1));
        }
        if (cycles)
            out.import_us = median(times, cycles);
        if (todo.copies) {
            measure_copies(&todo, todo.kind == IGNIS_TRANSPORT_HOST ? none : seen, &out);
            if (seen.id)
                REQUIRE(ignis_array_free(seen) == IGNIS_OK);
        }
        REQUIRE(ignis_transport_destroy(transport) == IGNIS_OK);
        REQUIRE(process_send(PROCESS_SOCKET, &out, sizeof out, -1));
    }
    return ignis_shutdown() == IGNIS_OK ? 0 : 1;
}

/* --- the parent --------------------------------------------------------------------------------------------------- */

typedef struct figures {
    double export_us,
        exchange_us; /* exchange: from the end of the export to the child's answer, its import not counted */
    result child;
} figures;

static figures run(int socket, ignis_transport_kind kind, int dst, int64_t bytes, int copies)
{
    ignis_transport transport = make_transport(kind, dst);
    double exports[CYCLES], exchanges[CYCLES];
    int i, cycles = kind == IGNIS_TRANSPORT_PEER ? 0 : copies ? 1 : CYCLES;
    figures out;
    order todo;
    memset(&out, 0, sizeof out);
    memset(&todo, 0, sizeof todo);
    todo.kind = kind;
    todo.dst = dst;
    todo.bytes = bytes;
    todo.copies = copies;
    REQUIRE(process_send(socket, &todo, sizeof todo, -1));
    for (i = 0; i < cycles; i++) {
        ignis_array array = make_array(kind, 0, bytes);
        ignis_transport_handle handle;
        double start;
        char byte;
        REQUIRE(ignis_synchronize() == IGNIS_OK);
        start = now();
        REQUIRE(ignis_transport_export_handle(transport, array, &handle) == IGNIS_OK);
        exports[i] = (now() - start) * 1e6;
        start = now();
        send_handle(socket, &handle);
        REQUIRE(process_receive(socket, &byte, 1, NULL));
        exchanges[i] = (now() - start) * 1e6;
        REQUIRE(ignis_transport_handle_close(&handle) == IGNIS_OK);
        if (copies) /* the child reads it meanwhile */
            REQUIRE(process_receive(socket, &out.child, sizeof out.child, NULL));
        REQUIRE(ignis_array_free(array) == IGNIS_OK);
    }
    if (!cycles || !copies)
        REQUIRE(process_receive(socket, &out.child, sizeof out.child, NULL));
    if (cycles) {
        out.export_us = median(exports, cycles);
        out.exchange_us = median(exchanges, cycles) - out.child.import_us;
    }
    REQUIRE(ignis_transport_destroy(transport) == IGNIS_OK);
    return out;
}

int main(int argc, char **argv)
{
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER,
                                                 IGNIS_TRANSPORT_HOST};
    ignis_device_info device;
    process child;
    order end;
    bool simulated;
    int64_t bytes;
    int k, dst, copies;
    if (process_role(argc, argv))
        return child_main();
    child = process_start("child");
    REQUIRE(ignis_setup(NULL) == IGNIS_OK && ignis_device_query(0, &device) == IGNIS_OK);
    simulated = strncmp(device.name, "Ignis Simulator", 15) == 0;
    bytes = (int64_t)(simulated ? 1 : 256) << 20;
    copies = simulated ? 2 : 20;
    printf("%s, %d of them; copies of %lld MiB%s\n", device.name, ignis_device_count(), (long long)(bytes >> 20),
           simulated ? "; simulated: the figures mean nothing" : "");
    printf("%-14s %10s %10s %7s %12s %12s %12s\n", "", "GB/s", "plain", "ratio", "export us", "exchange us",
           "import us");
    for (dst = 0; dst < ignis_device_count() && dst < 2; dst++)
        for (k = 0; k < 4; k++) {
            char reason[256];
            figures small, large;
            if (!ignis_transport_available(kinds[k], 0, dst, reason, sizeof reason)) {
                printf("%-4s[0->%d]      not available: %s\n", kinds[k] == IGNIS_TRANSPORT_VMM ? "VMM" : "", dst,
                       reason);
                continue;
            }
            small = run(child.socket, kinds[k], dst, 4096, 0);
            large = run(child.socket, kinds[k], dst, bytes, copies);
            if (kinds[k] == IGNIS_TRANSPORT_HOST)
                large.child.gbs = (double)bytes * 1e-3 / (large.export_us + large.child.import_us);
            printf("%-4s[0->%d] %3s %10.1f %10.1f %7.2f %12.1f %12.1f %12.1f\n", ignis__transport_kinds[kinds[k]].name,
                   dst, "", large.child.gbs, large.child.plain_gbs, large.child.gbs / large.child.plain_gbs,
                   small.export_us, small.exchange_us, small.child.import_us);
        }
    memset(&end, 0, sizeof end);
    REQUIRE(process_send(child.socket, &end, sizeof end, -1));
    REQUIRE(process_end(&child) == 0);
    return ignis_shutdown() == IGNIS_OK ? 0 : 1;
}
