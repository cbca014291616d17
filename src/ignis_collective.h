/*  ignis_collective.h - GPU arrays shared between processes, and collective operations between GPUs, for C and C++

    SPDX-License-Identifier: MIT
    Part of Ignis; the licence is at the end of ignis.h.

#include "collective/manual.txt"
*/
#include "ignis.h"

#ifndef IGNIS_COLLECTIVE_INCLUDED
#define IGNIS_COLLECTIVE_INCLUDED

#define IGNIS_COLLECTIVE_VERSION IGNIS_VERSION /* as IGNIS_VERSION */
#if !defined(IGNIS_VERSION) || IGNIS_VERSION != IGNIS_COLLECTIVE_VERSION
#error "ignis.h and ignis_collective.h are of different versions: copy all headers of Ignis from one release"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#include "collective/vmm/vmm.h"
#include "collective/channel/channel.h"
#include "collective/transport/transport.h"
#include "collective/transport/share.h"
#include "collective/comm/comm.h"
#include "collective/comm/operation.h"
#include "models/parallel.h"
#include "collective/parallel/model_parallel.h"
#include "collective/parallel/data_parallel.h"
#include "collective/parallel/tensor_parallel.h"
#ifdef __cplusplus
} /* extern "C" */

/*  In C++ option structs can be passed by reference: ignis_vmm_create({...}). */
// amalgamate: overloads
#endif

#endif /* IGNIS_COLLECTIVE_INCLUDED */

#ifdef IGNIS_IMPLEMENTATION
#ifndef IGNIS_COLLECTIVE_IMPLEMENTED
#define IGNIS_COLLECTIVE_IMPLEMENTED
#ifdef ignis_comm_init
#error "IGNIS_TRACE_CALLS: define IGNIS_IMPLEMENTATION before the first #include of ignis_collective.h"
#endif
#ifdef IGNIS__AT /* what the implementation calls keeps the call site of the program */
#undef IGNIS__AT
#define IGNIS__AT(call) call
#endif

#include "collective/room.h"
#include "collective/setup.c"
/* --- what the collective layer needs of the system: handles of memory --------------------------------------------- */

#include "collective/vmm/room.h"
#ifdef _WIN32

#include "collective/vmm/system_windows.c"
#else /* POSIX */

#include "collective/vmm/system_posix.c"
#endif

#include "collective/vmm/driver_call.c"
#include "collective/vmm/physical_memory.c"
#include "collective/vmm/block.c"
#include "collective/vmm/vmm.c"
#include "collective/vmm/range.c"
#include "collective/vmm/export_import.c"
#include "collective/vmm/array.c"
#include "collective/peer/room.h"
#include "collective/peer/error.c"
#ifdef _WIN32

#include "collective/peer/system_windows.c"
#else /* POSIX */

#include "collective/peer/system_posix.c"
#endif

#include "collective/peer/sha256.c"
#include "collective/peer/connection.c"
#include "collective/peer/secret_file.c"
#include "collective/peer/listener.c"
#include "collective/peer/connect.c"
#include "collective/peer/socket_posix.c"
#include "collective/channel/room.h"
#include "collective/channel/method.c"
#ifndef _WIN32

#include "collective/channel/fifo.c"
#include "collective/channel/shared_ring.c"
#else /* Windows */

#include "collective/channel/named_pipe.c"
#endif

#include "collective/channel/channel.c"
#include "collective/transport/room.h"
#ifdef _WIN32

#include "collective/transport/system_windows.c"
#else /* POSIX */

#include "collective/transport/system_posix.c"
#endif

#include "collective/transport/record.c"
#include "collective/transport/export.c"
#include "collective/transport/memory.c"
#include "collective/transport/select.c"
#include "collective/transport/transport.c"
#include "collective/transport/handle.c"
#include "collective/transport/import.c"
#include "collective/transport/send_receive.c"
#include "collective/transport/measure.c"
#include "collective/transport/share.c"
#include "collective/comm/room.h"
#include "collective/comm/nccl.c"
#include "collective/job/room.h"
#include "collective/job/launcher.c"
#include "collective/job/protocol.c"
#include "collective/job/poller.c"
#ifdef _WIN32

#include "collective/job/system_windows.c"
#else /* POSIX */

#include "collective/job/system_posix.c"
#endif

#include "collective/job/host.c"
#include "collective/job/unique_id.c"
#include "collective/job/message.c"
#include "collective/job/agreement.c"
#include "collective/job/rendezvous.c"
#include "collective/comm/region.c"
#include "collective/comm/kernel.c"
#include "collective/comm/tuning.c"
#include "collective/comm/comm.c"
#include "collective/comm/group.c"
#include "collective/comm/vote.c"
#include "collective/comm/region_setup.c"
#include "collective/comm/create.c"
#include "collective/comm/algorithm.c"
#include "collective/comm/failure.c"
#include "collective/comm/launch.c"
#include "collective/comm/window.c"
#include "collective/comm/operation.c"
#include "collective/comm/synchronize.c"
#include "collective/comm/init_all.c"
#include "collective/comm/init_rank.c"
#include "collective/parallel/room.h"
#include "collective/parallel/model_parallel.c"
#include "collective/parallel/group.c"
#include "collective/parallel/gather.c"
#include "collective/parallel/shard.c"
#include "collective/parallel/data_parallel.c"
#include "collective/parallel/regroup.c"
#include "collective/parallel/tensor_parallel.c"
#include "collective/parallel/vocab_parallel.c"
#endif /* IGNIS_COLLECTIVE_IMPLEMENTED */
#endif /* IGNIS_IMPLEMENTATION */

// amalgamate: traced calls, and ignis_comm_init_all ignis_comm_split_all ignis_comm_shrink_all
