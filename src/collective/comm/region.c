/*  >>comm - communicators and collective operations

    Types of this room: the region of a rank, what kernels read and write, the communicator itself.
    Uses: vmm, peer, job, nccl; arrays, modules and streams of ignis.h.
    Invariants: src/shared/collective.h has the layout of a region and the structs that kernels read.
    Locks: a communicator's slot, one operation at a time; then regions->lock; then the job's lock. */

#include "room.h"

/*  Buffer of one set and phase, compiled into kernels. It fits chunks of 64 KB in two phases with 128
    blocks. */

/*  The handle of the communicator that was used last, by device. */
IGNIS__PRIVATE uint64_t ignis__comm_last_used[IGNIS_MAX_DEVICES];

IGNIS__PRIVATE ignis__pool ignis__comms =
    IGNIS__POOL(ignis__comm, IGNIS__KIND_COMM, "communicator", IGNIS_DIAG_COMM_FREED);

/*  Tells if it has Ignis' kernels, not only NCCL. */
IGNIS__PRIVATE bool ignis__comm_has_region(const ignis__comm *comm) { return comm->memory->regions->address[0] != 0; }

/*  Returns the bytes of a rank's region. */
IGNIS__PRIVATE int64_t ignis__comm_region_bytes(int size)
{
    return IGNIS__COMM_PAIR_DATA + (int64_t)size * IGNIS__COMM_LANES * IGNIS__COMM_PAIR_SLOTS * IGNIS__COMM_PAIR_SLOT;
}
