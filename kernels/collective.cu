// SPDX-License-Identifier: MIT
/*  collective.cu - collective operations between the GPUs of one host; collective.cuh explains how they synchronize

    One program for each number of ranks: compiled with -DIGNIS_RANKS=<2 to 8>, it moves bytes. With
    -DIGNIS_T=<ignis_dtype> and -DIGNIS_OP=<ignis_op> too, it combines elements. The launch arguments say which
    ranks push to and take from which, so few kernels do all operations:

        ignis_comm_packets       LL: slices are pushed as packets, taken, and combined or concatenated
        ignis_comm_packets_two   LL: each rank combines its slice of what the others push, and pushes the result to all
        ignis_comm_parts         the first one with flags, for more data
        ignis_comm_slices        the second one with flags; if it moves bytes, a rank forwards the slice that it gets
                                 from the root
        ignis_comm_pair          send, receive or both
        ignis_comm_mark          tells the host that an operation of NCCL begins, or has ended

    The first four have one warp more than their work needs. In block 0 it meets the other ranks meanwhile; with
    flags it posts and awaits them in every block.

    The first two take little longer than a launch. They may be launched before earlier kernels have ended, and let
    later kernels begin: matrix products load their weights during a sum over the ranks. All kernels of a program
    wait for earlier ones, or none does.
*/
#include "ignis.cuh"
#include "collective.cuh"

#ifdef IGNIS_OP
typedef ignis_type<IGNIS_T> T;
#else
typedef uint8_t T;
#endif

/*  Words of a thread in flight. */
#define IGNIS_COMM_UNROLL 4

/* >>elements ---------------------------------------------------------------------------------------------------- */

/*  A word of 8 or 16 bytes of an array of count elements, from element `first` on; zeros after the end. */
template <int bytes> struct words {
    static constexpr int count = bytes / sizeof(T);
    typedef ignis_pack<T, count> Pack;
    typedef typename ignis_word_of<bytes>::type Word;

    static __device__ Word load(const char *array, long long first, long long end, bool aligned)
    {
        const T *const from = (const T *)array + first;
        if (aligned && first + count <= end)
            return ignis_word(ignis_load<count>(from));
        Pack pack;
#pragma unroll
        for (int i = 0; i < count; i++)
            pack[i] = first + i < end ? from[i] : T(0);
        return ignis_word(pack);
    }

    static __device__ void store(char *array, long long first, long long end, bool aligned, Word word)
    {
        T *const to = (T *)array + first;
        const Pack pack = ignis_pack_of<Pack>(word);
        if (aligned && first + count <= end) {
            ignis_store(to, pack);
            return;
        }
#pragma unroll
        for (int i = 0; i < count; i++)
            if (first + i < end)
                to[i] = pack[i];
    }

#ifdef IGNIS_OP
    enum { SUM, PROD, MIN, MAX, AVG };
    static constexpr bool selects = IGNIS_OP == MIN || IGNIS_OP == MAX;
    typedef typename ignis_comm_choose<selects && ignis_is_integer<T>, T, ignis_wide<T>>::type Wide;

    static __device__ Wide both(Wide a, Wide b)
    {
        if constexpr (IGNIS_OP == PROD)
            return a * b;
        else if constexpr (IGNIS_OP == MIN)
            return a < b || a != a ? a : b;
        else if constexpr (IGNIS_OP == MAX)
            return a > b || a != a ? a : b;
        else
            return a + b;
    }

    /* Combines the words of all ranks, in the order of the ranks. */
    static __device__ Word combine(const Word (&word)[N])
    {
        Wide result[count] = {};
#pragma unroll
        for (int r = 0; r < N; r++) {
            const Pack pack = ignis_pack_of<Pack>(word[r]);
#pragma unroll
            for (int i = 0; i < count; i++) {
                const Wide x = Wide(pack[i]);
                result[i] = r == 0 ? x : both(result[i], x);
            }
        }
        if constexpr (IGNIS_OP == AVG)
#pragma unroll
            for (int i = 0; i < count; i++)
                result[i] *= Wide(1) / Wide(N);
        return ignis_word(ignis_pack_round<T>(result));
    }
#endif
};

/*  Returns the k-th other rank, in an order that differs by rank, so that not all push to one rank first. */
__device__ inline int other(int rank, int k) { return rank + k < N ? rank + k : rank + k - N; }
__device__ inline bool has(uint32_t ranks, int rank) { return ranks >> rank & 1; }

/* >>packets ----------------------------------------------------------------------------------------------------- */

typedef words<8> Eight;

__device__ inline void push_packet(char *slots, long long i, uint2 data, uint32_t op)
{
    ignis_ptx_st_relaxed_v2(slots + i * 16, (unsigned long long)op << 32 | data.x,
                            (unsigned long long)op << 32 | data.y);
}

/*  Takes packet i of each of the ranks from slots(r). False if the wait was given up. */
template <typename Slots>
__device__ inline bool take_packets(ignis_comm_progress &progress, uint32_t ranks, Slots slots, long long i,
                                    uint2 (&data)[N])
{
    uint32_t missing = ranks;
    return progress.wait(
        [&] {
            ignis_two_words packet[N];
#pragma unroll
            for (int r = 0; r < N; r++)
                if (has(ranks, r))
                    packet[r] = ignis_ptx_ld_relaxed_v2(slots(r) + i * 16);
            missing = 0;
#pragma unroll
            for (int r = 0; r < N; r++)
                if (has(ranks, r)) {
                    if (packet[r].x >> 32 != progress.op || packet[r].y >> 32 != progress.op)
                        missing |= 1u << r;
                    data[r] = make_uint2((uint32_t)packet[r].x, (uint32_t)packet[r].y);
                }
            return missing == 0;
        },
        [&] { return __ffs(missing) - 1; });
}

#define PACKET_THREADS 544

extern "C" __global__ void __launch_bounds__(PACKET_THREADS, 1) ignis_comm_packets(const ignis__comm_call call)
{
    ignis_grid_dependency();
    const int workers = blockDim.x - 32, rank = call.rank;
    const long long packets = (call.count + Eight::count - 1) / Eight::count;
    const long long start = (long long)blockIdx.x * workers + threadIdx.x, stride = (long long)gridDim.x * workers;
    const auto load = [&](int part, long long i) {
        return Eight::load(call.in + part * call.in_stride, i * Eight::count, call.count, call.in_aligned);
    };
    uint2 ahead = make_uint2(0, 0); /* loads the first packet of this thread while the operation's number is read */
    if (threadIdx.x < workers && start < packets && (call.keep || (call.push && call.in_stride == 0)))
        ahead = load(rank, start);
    ignis_comm_progress progress(call);
    if (threadIdx.x < workers) {
        for (long long i = start; i < packets && call.push && !progress.over; i += stride) {
            uint2 data[N];
            if (call.in_stride == 0)
                data[0] = i == start ? ahead : load(rank, i);
#pragma unroll
            for (int k = 1; k < N; k++)
                if (call.in_stride == 0)
                    data[k] = data[0];
                else if (has(call.push, other(rank, k)))
                    data[k] = load(other(rank, k), i);
#pragma unroll
            for (int k = 1; k < N; k++)
                if (has(call.push, other(rank, k)))
                    push_packet(ignis_comm_packets_at(call.region[other(rank, k)], progress.set, 0, rank), i, data[k],
                                progress.op);
        }
        progress.delay();
        char *const slots = ignis_comm_packets_at(call.region[rank], progress.set, 0, 0);
        const size_t apart = ignis_comm_packets_at(call.region[rank], progress.set, 0, 1) - slots;
        for (long long i = start; i < packets && (call.take || call.keep); i += stride) {
            uint2 data[N], mine = make_uint2(0, 0);
            const long long at = i * Eight::count;
            if (call.keep)
                mine = i == start ? ahead : load(rank, i);
            if (!take_packets(progress, call.take, [&](int r) { return slots + r * apart; }, i, data))
                break;
#ifdef IGNIS_OP
#pragma unroll
            for (int r = 0; r < N; r++)
                if (r == rank)
                    data[r] = mine;
            Eight::store(call.out, at, call.count, call.out_aligned, Eight::combine(data));
#else
#pragma unroll
            for (int r = 0; r < N; r++) {
                const bool own = r == rank && call.keep;
                if (own || has(call.take, r))
                    Eight::store(call.out + r * call.out_stride, at, call.count, call.out_aligned,
                                 own ? mine : data[r]);
            }
#endif
        }
    } else if (blockIdx.x == 0) {
        progress.post_header(threadIdx.x - workers);
        progress.await_header(threadIdx.x - workers);
    }
    progress.end();
}

#ifdef IGNIS_OP
/*  Slice r begins at packet r * chunk. */
extern "C" __global__ void __launch_bounds__(PACKET_THREADS, 1) ignis_comm_packets_two(const ignis__comm_call call)
{
    ignis_grid_dependency();
    ignis_comm_progress progress(call);
    const int workers = blockDim.x - 32, rank = call.rank;
    if (threadIdx.x < workers) {
        const int start = blockIdx.x * workers + threadIdx.x, stride = gridDim.x * workers;
        const auto at = [&](int slice, int i) { return ((long long)slice * call.chunk + i) * Eight::count; };
        char *const first = ignis_comm_packets_at(call.region[rank], progress.set, 0, 0);
        char *const second = ignis_comm_packets_at(call.region[rank], progress.set, 1, 0);
        const size_t apart = ignis_comm_packets_at(call.region[rank], progress.set, 0, 1) - first;
        for (int i = start; i < call.chunk && !progress.over; i += stride) {
            uint2 data[N];
#pragma unroll
            for (int k = 1; k < N; k++)
                data[k] = Eight::load(call.in, at(other(rank, k), i), call.count, call.in_aligned);
#pragma unroll
            for (int k = 1; k < N; k++)
                push_packet(ignis_comm_packets_at(call.region[other(rank, k)], progress.set, 0, rank), i, data[k],
                            progress.op);
        }
        progress.delay();
        for (int i = start; i < call.chunk; i += stride) {
            uint2 data[N];
            const uint2 mine = Eight::load(call.in, at(rank, i), call.count, call.in_aligned);
            if (!take_packets(progress, call.take, [&](int r) { return first + r * apart; }, i, data))
                break;
#pragma unroll
            for (int r = 0; r < N; r++)
                if (r == rank)
                    data[r] = mine;
            const uint2 result = Eight::combine(data);
#pragma unroll
            for (int k = 1; k < N; k++)
                push_packet(ignis_comm_packets_at(call.region[other(rank, k)], progress.set, 1, rank), i, result,
                            progress.op);
            Eight::store(call.out, at(rank, i), call.count, call.out_aligned, result);
        }
        progress.delay();
        for (int i = start; i < call.chunk; i += stride) {
            uint2 data[N];
            if (!take_packets(progress, call.take, [&](int r) { return second + r * apart; }, i, data))
                break;
#pragma unroll
            for (int r = 0; r < N; r++)
                if (r != rank)
                    Eight::store(call.out, at(r, i), call.count, call.out_aligned, data[r]);
        }
    } else if (blockIdx.x == 0) {
        progress.post_header(threadIdx.x - workers);
        progress.await_header(threadIdx.x - workers);
    }
    progress.end();
}
#endif

/* >>flags ------------------------------------------------------------------------------------------------------- */

typedef words<16> Sixteen;

#define FLAG_THREADS 512 /* one warp more would leave 96 registers a thread, too few with many ranks */

/*  The last warp of a block moves no data. Between barriers with the other warps it posts the progress of
    this block and waits for the blocks of other ranks. So the other warps do not wait until their stores are
    visible everywhere. */

/*  Called by all threads of the block. False: this block has given up. */
__device__ inline bool together(ignis_comm_progress &progress)
{
    progress.over = __syncthreads_or(progress.over);
    return !progress.over;
}

/*  Called by the last warp after a barrier: makes the stores of the block visible to all ranks, and posts
    that it has done `steps` steps. */
__device__ inline void post(const ignis_comm_progress &progress, int lane, int phase, int steps)
{
    const ignis__comm_call &call = progress.call;
    if (lane < N && lane != call.rank)
        ignis_ptx_st_release_u64(ignis_comm_flag_at(call.region[lane], progress.set, phase, blockIdx.x, call.rank),
                                 (unsigned long long)progress.op << 32 | (uint32_t)steps);
}

/*  Called by the last warp before a barrier: waits for this block on all other ranks, and at first for the
    ranks. */
__device__ inline void await(ignis_comm_progress &progress, int lane, int phase, int steps)
{
    const ignis__comm_call &call = progress.call;
    if (blockIdx.x == 0 && phase == 0 && steps == 1)
        progress.await_header(lane);
    if (lane >= N || lane == call.rank)
        return;
    const char *const flag = ignis_comm_flag_at(call.region[call.rank], progress.set, phase, blockIdx.x, lane);
    progress.wait(
        [&] {
            const unsigned long long word = ignis_ptx_ld_acquire_u64(flag);
            return word >> 32 == progress.op && (uint32_t)word >= (uint32_t)steps;
        },
        [&] { return lane; });
}

/*  Moves the packs of a chunk with the first `threads` threads: load(word, k) and store(word, k) for k below
    `packs`. A thread has several words in flight. */
template <int unroll, typename Word, typename Load, typename Store>
__device__ inline void move(int threads, int packs, Load load, Store store)
{
    for (int k = threadIdx.x; k < packs; k += unroll * threads) {
        Word word[unroll];
#pragma unroll
        for (int u = 0; u < unroll; u++)
            if (k + u * threads < packs)
                load(word[u], k + u * threads);
#pragma unroll
        for (int u = 0; u < unroll; u++)
            if (k + u * threads < packs)
                store(word[u], k + u * threads);
    }
}

/*  Words of all ranks in flight; with many ranks two words need too many registers. */
#define RANKS_UNROLL (N > 5 || (N == 5 && __CUDA_ARCH__ >= 1000) ? 1 : (2 * IGNIS_COMM_UNROLL + N - 1) / N)

/*  As above, for words that go to all others: each destination needs registers for its address. */
#define PUSH_UNROLL (N > 6 ? 1 : N > 4 ? 2 : IGNIS_COMM_UNROLL)

/*  One word of each rank. */
struct ranks_words {
    uint4 at[N];
};

/*  In iteration i a block pushes its slice of step i, and then takes that of step i - 1, which has had time
    to arrive. By then all others have posted step i - 1, before which they took step i - 3. So step i + 1 may
    use the slot of step i - 3: four slots. */
extern "C" __global__ void __launch_bounds__(FLAG_THREADS, 1) ignis_comm_parts(const ignis__comm_call call)
{
    ignis_grid_dependency_wait();
    ignis_comm_progress progress(call);
    const int rank = call.rank, chunk = call.chunk, workers = blockDim.x - 32,
              lane = threadIdx.x - workers; /* lane >= 0: of the last warp */
    const long long all = (call.count + Sixteen::count - 1) / Sixteen::count;
    const auto first = [&](int step) { return ((long long)step * gridDim.x + blockIdx.x) * chunk; };
    const auto packs = [&](int step) { return (int)max(min(all - first(step), (long long)chunk), 0LL); };
    const auto slot = [&](int owner, int step, int from) {
        return (uint4 *)ignis_comm_data_at(call.region[owner], progress.set, 0) +
               (((step % IGNIS__COMM_ONE_PHASE_SLOTS) * (int)gridDim.x + (int)blockIdx.x) * N + from) * chunk;
    };
    const auto push = [&](int step) {
        const long long begin = first(step);
        if (call.in_stride == 0)
            move<PUSH_UNROLL, uint4>(
                workers, packs(step),
                [&](uint4 &word, int k) {
                    word = Sixteen::load(call.in, (begin + k) * Sixteen::count, call.count, call.in_aligned);
                },
                [&](const uint4 &word, int k) {
#pragma unroll
                    for (int o = 1; o < N; o++)
                        if (has(call.push, other(rank, o)))
                            slot(other(rank, o), step, rank)[k] = word;
                });
        else
            move<RANKS_UNROLL, ranks_words>(
                workers, packs(step),
                [&](ranks_words &word, int k) {
#pragma unroll
                    for (int o = 1; o < N; o++)
                        if (has(call.push, other(rank, o)))
                            word.at[o] = Sixteen::load(call.in + other(rank, o) * call.in_stride,
                                                       (begin + k) * Sixteen::count, call.count, call.in_aligned);
                },
                [&](const ranks_words &word, int k) {
#pragma unroll
                    for (int o = 1; o < N; o++)
                        if (has(call.push, other(rank, o)))
                            slot(other(rank, o), step, rank)[k] = word.at[o];
                });
    };
    const auto take = [&](int step) {
        const long long begin = first(step);
#ifdef IGNIS_OP
        if (call.keep)
            move<RANKS_UNROLL, ranks_words>(
                workers, packs(step),
                [&](ranks_words &word, int k) {
                    const uint4 mine = Sixteen::load(call.in + rank * call.in_stride, (begin + k) * Sixteen::count,
                                                     call.count, call.in_aligned);
#pragma unroll
                    for (int r = 0; r < N; r++)
                        word.at[r] = r == rank ? mine : slot(rank, step, r)[k];
                },
                [&](const ranks_words &word, int k) {
                    Sixteen::store(call.out, (begin + k) * Sixteen::count, call.count, call.out_aligned,
                                   Sixteen::combine(word.at));
                });
#else
        for (int r = 0; r < N; r++) {
            const bool own = r == rank;
            if (own ? !call.keep : !has(call.take, r))
                continue;
            const uint4 *const from = slot(rank, step, r);
            move<IGNIS_COMM_UNROLL, uint4>(
                workers, packs(step),
                [&](uint4 &word, int k) {
                    word = own ? Sixteen::load(call.in + rank * call.in_stride, (begin + k) * Sixteen::count,
                                               call.count, call.in_aligned)
                               : from[k];
                },
                [&](const uint4 &word, int k) {
                    Sixteen::store(call.out + r * call.out_stride, (begin + k) * Sixteen::count, call.count,
                                   call.out_aligned, word);
                });
        }
#endif
    };
    if (blockIdx.x == 0 && lane >= 0)
        progress.post_header(lane);
    for (int i = 0; i <= call.steps; i++) {
        if (lane >= 0 && i > 0)
            await(progress, lane, 0, i);
        if (lane < 0 && i < call.steps && call.push && !progress.over)
            push(i);
        progress.delay();
        if (!together(progress))
            break;
        if (lane >= 0 && i < call.steps)
            post(progress, lane, 0, i + 1);
        if (lane < 0 && i > 0)
            take(i - 1);
    }
    progress.end();
}

/*  A step of a block is a tile of slices, of which rank r combines (or forwards) slice r. With a root all
    other ranks have one: the links of the root carry everything once. In iteration i a block pushes the
    slices of tile i to their ranks, takes the results of tile i - 2, and works on its slice of tile i - 1.
    Three slots are enough in each phase. Before a block pushes slices of tile i, it has seen the others'
    results of tile i - 3, which they posted after taking those slices. Before it pushes the result of tile i
    - 1, it has seen their slices of tile i - 1, which they posted after taking the results of tile i - 4. */
extern "C" __global__ void __launch_bounds__(FLAG_THREADS, 1) ignis_comm_slices(const ignis__comm_call call)
{
    ignis_grid_dependency_wait();
    ignis_comm_progress progress(call);
    const int rank = call.rank, chunk = call.chunk, workers = blockDim.x - 32,
              lane = threadIdx.x - workers; /* lane >= 0: of the last warp */
    /* unsigned division is a shift and saves a register */
    const long long all = (unsigned long long)(call.count + Sixteen::count - 1) / Sixteen::count;
    const int tile = (call.none < N ? N - 1 : N) * chunk;
    const auto first = [&](int step) { return ((long long)step * gridDim.x + blockIdx.x) * tile; };
    /* packs that are left of a tile */
    const auto left = [&](int step) { return (int)max(min(all - first(step), (long long)tile), 0LL); };
    const auto place = [&](int slice) { return (slice - (slice > call.none)) * chunk; };
    const auto packs = [&](int left, int slice) {
        return slice == call.none ? 0 : max(min(left - place(slice), chunk), 0);
    };
    const auto slot = [&](int owner, int phase, int step, int from) {
        return (uint4 *)ignis_comm_data_at(call.region[owner], progress.set, phase) +
               (((step % IGNIS__COMM_TWO_PHASE_SLOTS) * (int)gridDim.x + (int)blockIdx.x) * N + from) * chunk;
    };
    const auto push = [&](int step) {
        const long long begin = first(step);
        const int most = left(step);
        move<RANKS_UNROLL, ranks_words>(
            workers, chunk,
            [&](ranks_words &word, int k) {
#pragma unroll
                for (int o = 1; o < N; o++)
                    if (k < packs(most, other(rank, o)))
                        word.at[o] = Sixteen::load(call.in, (begin + place(other(rank, o)) + k) * Sixteen::count,
                                                   call.count, call.in_aligned);
            },
            [&](const ranks_words &word, int k) {
#pragma unroll
                for (int o = 1; o < N; o++)
                    if (k < packs(most, other(rank, o)))
                        slot(other(rank, o), 0, step, rank)[k] = word.at[o];
            });
    };
    const auto work = [&](int step) {
        const long long begin = first(step) + place(rank);
#ifdef IGNIS_OP
        move<RANKS_UNROLL, ranks_words>(
            workers, packs(left(step), rank),
            [&](ranks_words &word, int k) {
                const uint4 mine = Sixteen::load(call.in, (begin + k) * Sixteen::count, call.count, call.in_aligned);
#pragma unroll
                for (int r = 0; r < N; r++)
                    word.at[r] = r == rank ? mine : slot(rank, 0, step, r)[k];
            },
            [&](const ranks_words &words, int k) {
                const uint4 word = Sixteen::combine(words.at);
#else
        const uint4 *const from = slot(rank, 0, step, call.root);
        move<PUSH_UNROLL, uint4>(
            workers, packs(left(step), rank), [&](uint4 &word, int k) { word = from[k]; },
            [&](const uint4 &word, int k) {
#endif
#pragma unroll
                for (int o = 1; o < N; o++)
                    if (has(call.push_two, other(rank, o)))
                        slot(other(rank, o), 1, step, rank)[k] = word;
                if (call.keep)
                    Sixteen::store(call.out, (begin + k) * Sixteen::count, call.count, call.out_aligned, word);
            });
    };
    const auto take = [&](int step) {
        const long long begin = first(step);
        const int most = left(step);
        move<RANKS_UNROLL, ranks_words>(
            workers, chunk,
            [&](ranks_words &word, int k) {
#pragma unroll
                for (int r = 0; r < N; r++)
                    if (has(call.take_two, r) && k < packs(most, r))
                        word.at[r] = slot(rank, 1, step, r)[k];
            },
            [&](const ranks_words &word, int k) {
#pragma unroll
                for (int r = 0; r < N; r++)
                    if (has(call.take_two, r) && k < packs(most, r))
                        Sixteen::store(call.out, (begin + place(r) + k) * Sixteen::count, call.count, call.out_aligned,
                                       word.at[r]);
            });
    };
    if (blockIdx.x == 0 && lane >= 0)
        progress.post_header(lane);
    for (int i = 0; i <= call.steps + 1; i++) {
        const bool works = i >= 1 && i <= call.steps;
        if (lane >= 0 && i >= 2)
            await(progress, lane, 1, i - 1);
        if (lane < 0 && i < call.steps && call.push && !progress.over)
            push(i);
        progress.delay();
        if (!together(progress))
            break;
        if (lane >= 0 && i < call.steps)
            post(progress, lane, 0, i + 1);
        if (lane >= 0 && works)
            await(progress, lane, 0, i);
        if (lane < 0 && i >= 2 && call.take_two)
            take(i - 2);
        if (!works)
            continue;
        if (!together(progress))
            break;
        if (lane < 0)
            work(i - 1);
        progress.delay();
        if (!together(progress))
            break;
        if (lane >= 0)
            post(progress, lane, 1, i);
    }
    progress.end();
}

/* >>pairs ------------------------------------------------------------------------------------------------------- */

#ifndef IGNIS_OP
/*  Flags of pairs. The receiver has a line for each sender and lane: for each slot the number of a step and
    the fingerprint. The sender has a line for each receiver and lane: the number of the last step that was
    taken. */
__device__ inline char *pair_flag(char *region, int from, int lane, uint32_t number)
{
    return region + IGNIS__COMM_PAIRS + (from * IGNIS__COMM_LANES + lane) * 128 + number % IGNIS__COMM_PAIR_SLOTS * 8;
}
__device__ inline char *pair_taken(char *region, int to, int lane)
{
    return region + IGNIS__COMM_PAIRS + (to * IGNIS__COMM_LANES + lane) * 128 + 64;
}
__device__ inline uint4 *pair_slot(char *region, int from, int lane, uint32_t number)
{
    const size_t slot = (size_t)(from * IGNIS__COMM_LANES + lane) * IGNIS__COMM_PAIR_SLOTS;
    return (uint4 *)(region + IGNIS__COMM_PAIR_DATA + (slot + number % IGNIS__COMM_PAIR_SLOTS) * IGNIS__COMM_PAIR_SLOT);
}

/*  Arguments of a launch: the blocks of sending lanes come first. in_stride is the count of bytes to send,
    out_stride that to receive; push is the mask of the receiver, take that of the sender; chunk the sending
    lanes, steps the receiving ones; fingerprint_in is that of the received message. */
extern "C" __global__ void __launch_bounds__(FLAG_THREADS, 1) ignis_comm_pair(const ignis__comm_call call)
{
    ignis_grid_dependency_wait();
    constexpr int packs_a_slot = IGNIS__COMM_PAIR_SLOT / 16;
    const int sending = call.push ? call.chunk : 0;
    const bool sends = blockIdx.x < sending;
    const int lane = sends ? blockIdx.x : blockIdx.x - sending, lanes = sends ? call.chunk : call.steps;
    const int peer = __ffs(sends ? call.push : call.take) - 1, rank = call.rank;
    const unsigned long long print = sends ? call.fingerprint : call.fingerprint_in;
    const long long bytes = sends ? call.in_stride : call.out_stride, all = (bytes + 15) / 16;
    const int steps = (int)max((all + (long long)lanes * packs_a_slot - 1) / ((long long)lanes * packs_a_slot), 1LL);
    ignis__comm_state *const state = call.state;
    uint32_t *const counter = sends ? &state->sent[peer][lane] : &state->received[peer][lane];
    const uint32_t begun = *(volatile uint32_t *)counter;
    ignis_comm_progress progress(call);
    progress.op = begun;
    for (int i = 0; i < steps; i++) {
        const uint32_t number = begun + 1 + i;
        const long long first = ((long long)i * lanes + lane) * packs_a_slot;
        const int packs = (int)max(min(all - first, (long long)packs_a_slot), 0LL);
        if (threadIdx.x == 0) {
            progress.wait(
                [&] {
                    if (sends) /* the slot is free when its previous step was taken */
                        return (int32_t)((uint32_t)ignis_ptx_ld_acquire_u64(pair_taken(call.region[rank], peer, lane)) +
                                         IGNIS__COMM_PAIR_SLOTS - number) >= 0;
                    const unsigned long long word =
                        ignis_ptx_ld_acquire_u64(pair_flag(call.region[rank], peer, lane, number));
                    const bool came = ignis_comm_is_of(word, number);
                    if (came && word != ignis_comm_numbered(print, number)) {
                        ignis_comm_report(state, IGNIS__COMM_MISMATCH, peer, rank, number, print, word);
                        progress.over = true;
                    }
                    return came;
                },
                [&] { return peer; });
        }
        progress.over = __syncthreads_or(progress.over);
        if (progress.over)
            break;
        uint4 *const slot = pair_slot(call.region[sends ? peer : rank], sends ? rank : peer, lane, number);
        if (sends)
            move<IGNIS_COMM_UNROLL, uint4>(
                blockDim.x, packs,
                [&](uint4 &word, int k) { word = Sixteen::load(call.in, (first + k) * 16, bytes, call.in_aligned); },
                [&](const uint4 &word, int k) { slot[k] = word; });
        else
            move<IGNIS_COMM_UNROLL, uint4>(
                blockDim.x, packs, [&](uint4 &word, int k) { word = slot[k]; },
                [&](const uint4 &word, int k) {
                    Sixteen::store(call.out, (first + k) * 16, bytes, call.out_aligned, word);
                });
        progress.delay();
        __syncthreads();
        if (threadIdx.x == 0 && sends)
            ignis_ptx_st_release_u64(pair_flag(call.region[peer], rank, lane, number),
                                     ignis_comm_numbered(print, number));
        else if (threadIdx.x == 0)
            ignis_ptx_st_release_u64(pair_taken(call.region[peer], rank, lane), number);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        *counter = begun + steps;
}

/* >>mark -------------------------------------------------------------------------------------------------------- */

/*  Runs before and after an operation of NCCL, which has no deadline: the host sees how long it takes. steps
    is 1 before it, 0 after. */
extern "C" __global__ void ignis_comm_mark(const ignis__comm_call call)
{
    ignis_grid_dependency_wait();
    ignis__comm_state *const state = call.state;
    if (threadIdx.x == 0)
        ignis_ptx_st_release_u64(&state->record->nccl, call.steps ? ++state->marks : 0);
}
#endif
