// SPDX-License-Identifier: MIT
/*  collective.cuh - how the GPUs of a communicator synchronize: regions, flags, packets, deadlines

    Every rank has a region: memory of one layout that all ranks write. A rank pushes data into the regions of others,
    and waits for theirs in its own, so no rank reads over a link.

        control     poison: another rank has given up, and tells why; the next word has the fingerprint that it saw
                    headers: what each rank begins: its fingerprint, and the low 8 bits of the operation's number
        flags       for the flags protocol: the progress of each block of each rank
        packets     for the LL protocol: each 8-byte word is 4 bytes of data and the operation's number, so data and
                    their arrival are seen at once
        data        for the flags protocol
        pairs       flags and data of send and receive, which have their own numbers

    Operations are numbered. All ranks do the same ones in the same order, so they agree on the numbers. A kernel reads
    the number from the rank's state at its start and advances it at its end, so a CUDA graph can be replayed. No
    operation has number 0.

    When may memory of a region be written again? Everything but pairs exists twice, for odd and even operations. Every
    rank waits in every operation for the header of every other one. So a rank at operation k has seen all others begin
    k - 1, after they had ended k - 2, the last one that used the memory of k. Inside an operation, steps have slots;
    see the kernels.

    A fingerprint is all that must be equal on all ranks, in 56 bits; the low 8 bits are for the number. This tells a
    header of this operation from the previous content: the header of two operations before, or zero.

    Numbers repeat after 2^32 operations. So every 2^31 operations packets and flags of both sets are cleared, each set
    by the operation after the one that used it, before the header that lets others continue.

    A wait ends early when the deadline passes, the host asks for it, or another rank has poisoned the region. The first
    thread that sees it writes a record for the host and poisons all other ranks. The others, and all later kernels,
    return when they see that.
*/
#ifndef IGNIS_COLLECTIVE_CUH
#define IGNIS_COLLECTIVE_CUH

#define N IGNIS_RANKS

/* >>ptx --------------------------------------------------------------------------------------------------------- */

__device__ inline uint32_t ignis_ptx_ld_relaxed_u32(const void *from)
{
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ inline unsigned long long ignis_ptx_ld_acquire_u64(const void *from)
{
    unsigned long long value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

__device__ inline void ignis_ptx_st_release_u64(void *to, unsigned long long value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

__device__ inline void ignis_ptx_st_relaxed_u64(void *to, unsigned long long value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

/*  Two words. Each is loaded and stored atomically, the pair is not. */
struct alignas(16) ignis_two_words {
    unsigned long long x, y;
};

__device__ inline ignis_two_words ignis_ptx_ld_relaxed_v2(const void *from)
{
    ignis_two_words pair;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(pair.x), "=l"(pair.y) : "l"(from) : "memory");
    return pair;
}

__device__ inline void ignis_ptx_st_relaxed_v2(void *to, unsigned long long x, unsigned long long y)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(x), "l"(y) : "memory");
}

__device__ inline void ignis_ptx_fence_acq_rel_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

__device__ inline unsigned long long ignis_ptx_globaltimer() /* nanoseconds */
{
    unsigned long long time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

/* >>layout ------------------------------------------------------------------------------------------------------ */

#include "shared/collective.h"

__device__ inline char *ignis_comm_header_at(char *region, uint32_t set, int from)
{
    return region + 256 + set * 128 + from * 8;
}
__device__ inline char *ignis_comm_flag_at(char *region, uint32_t set, int phase, int block, int from)
{
    return region + IGNIS__COMM_FLAGS + ((set * 2 + phase) * IGNIS__COMM_BLOCKS + block) * 128 + from * 16;
}
__device__ inline char *ignis_comm_packets_at(char *region, uint32_t set, int phase, int from)
{
    constexpr int each = IGNIS__COMM_PACKETS_SIZE / (N > 4 ? 8 : N > 2 ? 4 : 2);
    return region + IGNIS__COMM_PACKETS + (size_t)(set * 2 + phase) * IGNIS__COMM_PACKETS_SIZE + (size_t)from * each;
}
__device__ inline char *ignis_comm_data_at(char *region, uint32_t set, int phase)
{
    return region + IGNIS__COMM_DATA + (size_t)(set * 2 + phase) * IGNIS__COMM_DATA_SIZE;
}

template <bool condition, typename A, typename B> struct ignis_comm_choose { typedef A type; };
template <typename A, typename B> struct ignis_comm_choose<false, A, B> { typedef B type; };

/*  A fingerprint with a number, and a check for that number. */
__device__ inline unsigned long long ignis_comm_numbered(unsigned long long print, uint32_t number)
{
    return print | (number & 0xFF);
}
__device__ inline bool ignis_comm_is_of(unsigned long long word, uint32_t number)
{
    return word > 0xFF && (word & 0xFF) == (number & 0xFF);
}

__device__ inline uint32_t ignis_comm_next(uint32_t op) { return op == 0xFFFFFFFF ? 2 : op + 1; }

/* >>deadlines --------------------------------------------------------------------------------------------------- */

/*  Writes the record and poisons the other ranks, once. */
__device__ inline void ignis_comm_report(ignis__comm_state *state, uint32_t code, uint32_t peer, uint32_t reporter,
                                         uint32_t op, unsigned long long mine, unsigned long long theirs)
{
    ignis__comm_record *record = state->record;
    if (atomicCAS(&state->broken, 0, code) != 0)
        return;
    record->peer = peer;
    record->reporter = reporter;
    record->op = op;
    record->mine = mine;
    record->theirs = theirs;
    ignis_ptx_st_release_u64(&record->code, code);
    for (uint32_t r = 0; r < state->size; r++) {
        const bool differs = code == IGNIS__COMM_MISMATCH && r == peer; /* for that rank, this one differs */
        const unsigned long long about = differs ? state->rank : peer, print = differs ? mine : theirs;
        if (r == state->rank)
            continue;
        ignis_ptx_st_relaxed_u64(state->region[r] + 8, print);
        ignis_ptx_st_release_u64(state->region[r], (unsigned long long)reporter << 16 | about << 8 | code);
    }
    ignis_ptx_fence_acq_rel_sys();
}

/*  Tells a thread that has waited for a while whether to give up. begun is 0 at first, then the time when the
    wait began. */
__device__ inline bool ignis_comm_give_up(ignis__comm_state *state, unsigned long long *begun, long long timeout_ns,
                                          uint32_t op, int peer, unsigned long long mine)
{
    const unsigned long long now = ignis_ptx_globaltimer(),
                             poison = ignis_ptx_ld_acquire_u64(state->region[state->rank]);
    const uint32_t abort = (uint32_t)ignis_ptx_ld_acquire_u64(&state->record->abort);
    if (*begun == 0)
        *begun = now;
    if (poison)
        ignis_comm_report(state, poison & 0xFF, poison >> 8 & 0xFF, poison >> 16 & 0xFF, op, mine,
                           ignis_ptx_ld_acquire_u64(state->region[state->rank] + 8));
    else if (abort)
        ignis_comm_report(state, abort & 0xFF, abort >> 8 & 0xFF, state->rank, op, mine, 0);
    else if ((long long)(now - *begun) > timeout_ns)
        ignis_comm_report(state, IGNIS__COMM_TIMEOUT, peer, state->rank, op, mine, 0);
    return ignis_ptx_ld_relaxed_u32(&state->broken) != 0;
}

/*  State of a thread in an operation. */
struct ignis_comm_progress {
    const ignis__comm_call &call;
    uint32_t op, set;
    bool over; /* this thread has given up: it stores no results */

    /* Called by every thread of the block. */
    __device__ ignis_comm_progress(const ignis__comm_call &call) : call(call)
    {
        ignis__comm_state *state = call.state;
        const uint32_t last = ignis_ptx_ld_relaxed_u32(&state->op[blockIdx.x]),
                       broken = ignis_ptx_ld_relaxed_u32(&state->broken);
        const uint32_t poison = ignis_ptx_ld_relaxed_u32(call.region[call.rank]); /* three loads, one wait */
        op = ignis_comm_next(last);
        set = op & 1;
        over = (broken | poison) != 0;
        if (over) {
            unsigned long long begun = 0;
            over = ignis_comm_give_up(state, &begun, call.timeout_ns, op, call.rank, call.fingerprint);
        }
        delay();
    }

    /* Called by every thread of the block, last of all. */
    __device__ void end() const
    {
        uint32_t *counts = call.state->op;
        __syncthreads();
        if (threadIdx.x == 0)
            counts[blockIdx.x] = op;
        if (threadIdx.x == 0 && blockIdx.x == 0)
            call.state->running = 0;
        if (blockIdx.x == 0) /* for the blocks that this launch does not have */
            for (int b = gridDim.x + threadIdx.x; b < IGNIS__COMM_BLOCKS; b += blockDim.x)
                counts[b] = op;
    }

    /*  Waits until ready() is true. False if the thread has given up. peer() returns the rank that it waits for. */
    template <typename Ready, typename Peer> __device__ bool wait(Ready ready, Peer peer)
    {
        unsigned long long begun = 0;
        for (uint32_t spins = 1; !over; spins++) {
            if (ready())
                return true;
            if (spins % 1024 == 0)
                over = ignis_comm_give_up(call.state, &begun, call.timeout_ns, op, peer(), call.fingerprint);
        }
        return false;
    }

    /*  Called by one warp of block 0, in this order: post_header tells all ranks the operation of this one,
        await_header checks that they run the same. */
    __device__ void post_header(int lane)
    {
        if (lane == 31 && atomicExch(&call.state->running, 1) != 0) {
            ignis_comm_report(call.state, IGNIS__COMM_TWICE, call.rank, call.rank, op, call.fingerprint, 0);
            over = true;
        }
        if ((op & 0x7FFFFFFF) == 3 || (op & 0x7FFFFFFF) == 4)
            clear_set(lane);
        delay();
        if (lane < N && lane != call.rank && !over)
            ignis_ptx_st_release_u64(ignis_comm_header_at(call.region[lane], set, call.rank),
                                     ignis_comm_numbered(call.fingerprint, op));
    }

    __device__ void await_header(int lane)
    {
        if (lane >= N || lane == call.rank)
            return;
        const char *const theirs = ignis_comm_header_at(call.region[call.rank], set, lane);
        unsigned long long header = 0;
        const bool came = wait(
            [&] {
                header = ignis_ptx_ld_acquire_u64(theirs);
                return ignis_comm_is_of(header, op);
            },
            [&] { return lane; });
        if (came && header != ignis_comm_numbered(call.fingerprint, op)) {
            ignis_comm_report(call.state, IGNIS__COMM_MISMATCH, lane, call.rank, op, call.fingerprint, header);
            over = true;
        }
    }

    /*  Delays blocks at random, for tests. */
    __device__ void delay() const
    {
#ifdef IGNIS_COMM_DELAY
        const uint32_t hash =
            (op * 2654435761u ^ blockIdx.x * 40503u ^ call.rank * 2246822519u ^ (uint32_t)ignis_ptx_globaltimer()) *
            3266489917u;
        if (hash >> 30 == 0)
            __nanosleep(hash >> 14 & 0x3FFF);
#endif
    }

  private:
    /*  Clears packets and flags of the set that the last operation used. */
    __device__ void clear_set(int lane) const
    {
        char *const region = call.region[call.rank];
        const uint32_t last = set ^ 1;
        uint4 *const packets = (uint4 *)(region + IGNIS__COMM_PACKETS + (size_t)last * 2 * IGNIS__COMM_PACKETS_SIZE);
        uint4 *const flags = (uint4 *)(region + IGNIS__COMM_FLAGS + last * 2 * IGNIS__COMM_BLOCKS * 128);
        for (int i = lane; i < 2 * IGNIS__COMM_PACKETS_SIZE / 16; i += 32)
            packets[i] = make_uint4(0, 0, 0, 0);
        for (int i = lane; i < 2 * IGNIS__COMM_BLOCKS * 128 / 16; i += 32)
            flags[i] = make_uint4(0, 0, 0, 0);
        ignis_ptx_fence_acq_rel_sys();
        __syncwarp();
    }
};

#endif /* IGNIS_COLLECTIVE_CUH */
