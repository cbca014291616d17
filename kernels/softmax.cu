// SPDX-License-Identifier: MIT
/*  softmax.cu - softmax over the rows of [rows, n], and cross-entropy of logits, forward and backward

        softmax        y = exp(x - max) / sum of exp(x - max)             dx = y * (dy - sum of y * dy)
        cross-entropy  loss = max - x[target] + log(sum of exp(x - max))  dx = softmax(x) - (1 at the target)

    A row of nothing but -infinity has no probability anywhere: its softmax and the gradient of that are
    zeros, its cross-entropy NaN. NaN and +infinity make the whole row NaN.

    One program per element type: compiled with -DIGNIS_T=<1 to 4>. Losses and sums are ignis_wide<T>. Names
    of kernels as in softmax.cuh. */
#include "softmax.cuh"
#include "shared/cross_entropy.h"

#define ROUND_BLOCKS (sizeof(T) == 8 ? 4 : 8)
#define LOSS_RESIDENT \
    (sizeof(T) > 2 || __CUDA_ARCH__ < 800 ? 640 : __CUDA_ARCH__ < 1000 ? 1280 : 960) /* threads on an SM */

/* >>softmax ----------------------------------------------------------------------------------------------------- */

template <typename Team, int N> __device__ void forward(T *y, const T *x, long long rows, long long n, int kept)
{
    each_forward<Team, N>(y, x, rows, n, kept, [](long long, const exponentials &all) {
        return ignis_exp_less<T>(all.shift, all.sum == 0 ? Wide(0) : Wide(1) / all.sum);
    });
}

template <typename Team, int N>
__device__ void backward(T *dx, const T *dy, const T *y, long long rows, long long n, int kept)
{
    each_backward<Team, N>(
        dx, dy, y, rows, n, kept, [](Wide y, Wide grad) { return y * grad; },
        [](long long, Wide sum) { return [=](Wide y, Wide grad) { return y * (grad - sum); }; });
}

extern "C" __global__ void __launch_bounds__(128, WARP_BLOCKS)
    ignis_softmax_warp(T *y, const T *x, long long rows, long long n)
{
    ignis_grid_dependency();
    forward<ignis_warp_team, PACK>(y, x, rows, n, 0);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    ignis_softmax_block(T *y, const T *x, long long rows, long long n, int packed, int kept)
{
    ignis_grid_dependency();
    if (packed)
        forward<ignis_block_team, PACK>(y, x, rows, n, kept);
    else
        forward<ignis_block_team, 1>(y, x, rows, n, 0);
}

/*  Packed rows of several rounds. With 64 registers an SM has two such blocks: one reads while the other one
    writes. */
extern "C" __global__ void __launch_bounds__(512, VOCABULARY_BLOCKS)
    ignis_softmax_long(T *y, const T *x, long long rows, long long n, int, int kept)
{
    ignis_grid_dependency();
    forward<ignis_block_team, PACK>(y, x, rows, n, kept);
}

extern "C" __global__ void __launch_bounds__(128, 4)
    ignis_softmax_backward_warp(T *dx, const T *dy, const T *y, long long rows, long long n)
{
    ignis_grid_dependency();
    backward<ignis_warp_team, PACK>(dx, dy, y, rows, n, 0);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    ignis_softmax_backward_block(T *dx, const T *dy, const T *y, long long rows, long long n, int packed, int kept)
{
    ignis_grid_dependency();
    if (packed)
        backward<ignis_block_team, PACK>(dx, dy, y, rows, n, kept);
    else
        backward<ignis_block_team, 1>(dx, dy, y, rows, n, 0);
}

/* >>cross-entropy ----------------------------------------------------------------------------------------------- */

/*  The logits of all rows. A row has n classes and stride elements; elements after the classes are padding.
    The logarithm of the sum of exp(x) has two parts, log_sums[r], which is the shift, and log_sums[rows + r].
    They are never added, or a large shift would cost the rest its digits. */
struct logit_rows {
    const T *logits;
    const void *targets;
    int target_bytes;
    long long rows, n, stride, ignore_index;
    Wide *log_sums; /* [2, rows] */

    __device__ long long target(long long r) const { return ignis_index(targets, target_bytes, r); }

    /*  Stores the results of a row, and returns its loss, for the value at the target. */
    __device__ Wide loss(long long r, exponentials sums, Wide value) const
    {
        const Wide log_sum = ignis_log<T>(sums.sum);
        log_sums[r] = sums.shift;
        log_sums[rows + r] = log_sum;
        return sums.shift - value + log_sum;
    }

    /*  Returns the target class of a row; -1: it is not a class, -2: the row is ignored. */
    __device__ int class_of(long long r) const
    {
        const long long it = target(r);
        return it == ignore_index ? -2 : it >= 0 && it < n ? (int)it : -1;
    }
};

template <typename Team> __device__ inline void clear(T *row, long long first, long long end)
{
    for (long long column = first + Team::thread(); column < end; column += Team::size())
        row[column] = T(0.0f);
}

/*  Subtracts from the value at the target, if it is among these. */
template <int N> __device__ inline void subtract_at(int at, Wide factor, Wide (&values)[N])
{
    if (at >= 0 && at < N)
#pragma unroll
        for (int i = 0; i < N; i++)
            values[i] -= i == at ? factor : Wide(0);
}

__device__ inline Wide not_a_number() { return Wide(__int_as_float(0x7fffffff)); }

/*  A team's results for all of its rows. */
struct tally {
    Wide scale; /* of the gradient */
    Wide loss;  /* the sum; kept by the team's first thread */
};

/*  Computes losses, all.log_sums, and unless null the gradient, in the layout of the logits or in place: that
    of the sum of losses times scale. An ignored row has loss and gradient 0. A target that is not a class
    makes loss and gradient of its row NaN. packs: as of ignis_row. */
template <typename Team, int N, bool exact = false, int packs = ignis_row<T, Team, N>::packs>
__device__ void cross_entropy(tally &mine, T *gradient, const logit_rows &all, int kept)
{
    typedef ignis_row<T, Team, N, exact, packs> Row;
    constexpr bool ahead =
        exact && Team::one_round; /* a team asks for its next row before it stores the gradient of this one */
    const auto row_of = [&](long long turn) {
        return all.rows - 1 - turn;
    }; /* the last rows are likely to be in the cache still */
    const auto class_at = [&](long long turn) { return turn < all.rows ? all.class_of(row_of(turn)) : -2; };
    ignis_words<T, N> words;
    const auto load_ahead = [&](long long turn) {
        const T *const from = all.logits + row_of(turn) * all.stride;
        if constexpr (ahead)
            Row(from, all.n).load(words, from);
    };
    if (Team::first() < all.rows)
        load_ahead(Team::first());
    int next = Team::one_round ? class_at(Team::first()) : -2;
    for (long long turn = Team::first(); turn < all.rows; turn += Team::count()) {
        const long long r = row_of(turn);
        const T *from = all.logits + r * all.stride;
        T *to = gradient + r * all.stride;
        const int target = Team::one_round ? next : all.class_of(r);
        const Row row(from, all.n, kept);
        typename Row::Batch xs;
        int last;
        if constexpr (ahead)
            row.open(xs, words);
        else if (target != -2)
            row.load(xs, from, 0);
        const auto at_target = [&] { return target >= 0 ? Wide(from[target]) : not_a_number(); };
        /* Before the sums, whose barrier comes before all stores: the gradient may replace the logits. */
        const Wide value = Team::one_round || Team::thread() == 0 ? at_target() : Wide(0);
        if (Team::one_round)
            next = class_at(turn + Team::count()); /* after the row, as its comparison waits for it */
        if (target == -2) {
            if (next != -2)
                load_ahead(turn + Team::count());
            if (Team::thread() == 0)
                all.log_sums[r] = all.log_sums[all.rows + r] = 0;
            if (gradient)
                clear<Team>(to, 0, all.stride);
            continue;
        }
        const exponentials sums = sum_up(row, xs, from, last);
        if constexpr (!Team::is_block && !ignis_is_same<Team, thread_team>)
            __syncwarp(); /* as the barrier in the sums of a block */
        if (next != -2)
            load_ahead(turn + Team::count());
        if (Team::thread() == 0)
            mine.loss += all.loss(r, sums, value);
        if (!gradient)
            continue;
        const Wide factor = target >= 0 ? mine.scale : not_a_number();
        const ignis_exp_less<T> exp_of(sums.shift, factor / sums.sum);
        for (int round = last; round >= 0; round--) {
            if (round != last)
                row.recall(xs, from, round);
            row.each(
                round,
                [&](int column, auto &x) {
                    Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                    for (int i = 0; i < x.count; i++)
                        values[i] = exp_of(ignis_wide_at(x, i));
                    subtract_at(target - column, factor, values);
                    ignis_store(to + column, ignis_pack_round<T>(values));
                },
                xs);
        }
        clear<Team>(to, all.n, all.stride);
    }
}

/*  The gradient from log_sums of the forward pass; grad is that of the scaled sum of losses. */
template <typename Team, int N>
__device__ void cross_entropy_backward(T *gradient, const Wide *grad, const logit_rows &all, const Wide *scale)
{
    for (long long r = Team::first(); r < all.rows; r += Team::count()) {
        const T *from = all.logits + r * all.stride;
        T *to = gradient + r * all.stride;
        const int target = all.class_of(r);
        if (target == -2) {
            clear<Team>(to, 0, all.stride);
            continue;
        }
        const ignis_row<T, Team, N> row(from, all.n);
        const Wide factor = target >= 0 ? grad[0] * scale[0] : not_a_number();
        const ignis_exp_less<T> exp_of(all.log_sums[r], exp(-all.log_sums[all.rows + r]));
        ignis_batch<T, N> xs;
        for (int round = 0; row.has(round); round++) {
            row.load(xs, from, round);
            row.each(
                round,
                [&](int column, auto &x) {
                    Wide values[ignis_pack_count<decltype(x)>];
#pragma unroll
                    for (int i = 0; i < x.count; i++)
                        values[i] = exp_of(ignis_wide_at(x, i)) * factor;
                    subtract_at(target - column, factor, values);
                    ignis_store(to + column, ignis_pack_round<T>(values));
                },
                xs);
        }
        clear<Team>(to, all.n, all.stride);
    }
}

/*  The number of rows that are not ignored, and of blocks that are done. */
struct ignis_count {
    long long of_block[IGNIS__COUNT_BLOCKS];
    unsigned done;
};

/*  Returns the factor of the sum of losses: 1, or for the mean 1 / (number of rows that are not ignored). It
    is infinite if all are ignored, and the mean NaN. */
__device__ inline Wide scale_of(int mean, long long counted) { return mean ? Wide(1) / Wide(counted) : Wide(1); }

/*  As above for each thread of a warp. */
__device__ inline Wide scale_of(int mean, const ignis_count *count)
{
    long long counted = 0;
    for (int i = threadIdx.x % 32; i < IGNIS__COUNT_BLOCKS; i += 32)
        counted += count->of_block[i];
    return scale_of(mean, ignis_warp_sum(counted));
}

extern "C" __global__ void __launch_bounds__(256)
    ignis_cross_entropy_count(ignis_count *count, const void *targets, int target_bytes, long long rows,
                              long long ignore_index)
{
    ignis_grid_dependency();
    long long counted = 0;
#pragma unroll 4
    for (long long r = blockIdx.x * blockDim.x + threadIdx.x; r < rows; r += gridDim.x * blockDim.x)
        counted += ignis_index(targets, target_bytes, r) != ignore_index;
    counted = ignis_block_sum(counted);
    if (threadIdx.x == 0)
        count->of_block[blockIdx.x] = counted;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        count->done = 0;
}

/*  Called by all threads of a block whose first one has written the block's results: returns whether all
    blocks have. Then done is 0 again, for the next kernel. */
__device__ inline bool is_last_block(unsigned *done)
{
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        is_last = ignis_ptx_atom_add_acq_rel(done, 1) == gridDim.x - 1;
        if (is_last)
            *done = 0;
    }
    __syncthreads();
    return is_last;
}

/*  The end of a block's work: its sum is one of losses, and the last block to come here adds them up, in
    their order. */
__device__ inline void hand_over(Wide *loss, Wide *scale, Wide *losses, ignis_count *count, tally mine)
{
    if (threadIdx.x == 0)
        losses[blockIdx.x] = mine.loss;
    if (!is_last_block(&count->done))
        return;
    Wide sum = 0;
    for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x)
        sum += __ldcg(losses + i);
    sum = ignis_block_sum(sum);
    if (threadIdx.x == 0) {
        scale[0] = mine.scale;
        loss[0] = sum * mine.scale;
    }
}

extern "C" __global__ void __launch_bounds__(128, WARP_BLOCKS)
    ignis_cross_entropy_warp(Wide *loss, Wide *scale, Wide *log_sums, T *gradient, const T *logits, const void *targets,
                             int target_bytes, long long rows, long long n, long long stride, long long ignore_index,
                             int mean, Wide *losses, ignis_count *count, int packed)
{
    ignis_grid_dependency();
    const logit_rows all = {logits, targets, target_bytes, rows, n, stride, ignore_index, log_sums};
    tally mine = {scale_of(mean, count), 0};
    if (packed == IGNIS__ROWS_EXACT)
        cross_entropy<ignis_warp_team, PACK, true>(mine, gradient, all, 0);
    else
        cross_entropy<ignis_warp_team, PACK>(mine, gradient, all, 0);
    mine.loss = ignis_block_sum(mine.loss);
    hand_over(loss, scale, losses, count, mine);
}

/*  As above by blocks. A block keeps its state in shared memory, as registers are scarce here; for the same
    reason there are several kernels. */
template <typename Team, int N, bool exact>
__device__ inline void cross_entropy_of_block(Wide *loss, Wide *scale, T *gradient, const logit_rows &all, int mean,
                                              Wide *losses, ignis_count *count, int kept)
{
    __shared__ tally mine;
    if (threadIdx.x < 32)
        mine = {scale_of(mean, count), 0};
    __syncthreads();
    cross_entropy<Team, N, exact>(mine, gradient, all, kept);
    hand_over(loss, scale, losses, count, mine);
}

/*  Exact rows that 128 threads have in registers. */
extern "C" __global__ void __launch_bounds__(128, ROUND_BLOCKS)
    ignis_cross_entropy_round(Wide *loss, Wide *scale, Wide *log_sums, T *gradient, const T *logits,
                              const void *targets, int target_bytes, long long rows, long long n, long long stride,
                              long long ignore_index, int mean, Wide *losses, ignis_count *count, int, int)
{
    ignis_grid_dependency();
    const logit_rows all = {logits, targets, target_bytes, rows, n, stride, ignore_index, log_sums};
    cross_entropy_of_block<ignis_one_round_team, PACK, true>(loss, scale, gradient, all, mean, losses, count, 0);
}

extern "C" __global__ void __launch_bounds__(512, VOCABULARY_BLOCKS)
    ignis_cross_entropy_exact(Wide *loss, Wide *scale, Wide *log_sums, T *gradient, const T *logits,
                              const void *targets, int target_bytes, long long rows, long long n, long long stride,
                              long long ignore_index, int mean, Wide *losses, ignis_count *count, int, int kept)
{
    ignis_grid_dependency();
    const logit_rows all = {logits, targets, target_bytes, rows, n, stride, ignore_index, log_sums};
    cross_entropy_of_block<ignis_block_team, PACK, true>(loss, scale, gradient, all, mean, losses, count, kept);
}

extern "C" __global__ void __launch_bounds__(512, VOCABULARY_BLOCKS)
    ignis_cross_entropy_block(Wide *loss, Wide *scale, Wide *log_sums, T *gradient, const T *logits,
                              const void *targets, int target_bytes, long long rows, long long n, long long stride,
                              long long ignore_index, int mean, Wide *losses, ignis_count *count, int packed, int kept)
{
    ignis_grid_dependency();
    const logit_rows all = {logits, targets, target_bytes, rows, n, stride, ignore_index, log_sums};
    if (packed)
        cross_entropy_of_block<ignis_block_team, PACK, false>(loss, scale, gradient, all, mean, losses, count, kept);
    else
        cross_entropy_of_block<ignis_block_team, 1, false>(loss, scale, gradient, all, mean, losses, count, 0);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    ignis_cross_entropy_backward(T *gradient, const Wide *grad, Wide *log_sums, const T *logits, const void *targets,
                                 int target_bytes, long long rows, long long n, long long stride,
                                 long long ignore_index, const Wide *scale, int packed)
{
    ignis_grid_dependency();
    const logit_rows all = {logits, targets, target_bytes, rows, n, stride, ignore_index, log_sums};
    if (packed)
        cross_entropy_backward<ignis_block_team, PACK>(gradient, grad, all, scale);
    else
        cross_entropy_backward<ignis_block_team, 1>(gradient, grad, all, scale);
}

#if IGNIS_T == 4 /* f64 */
#define SINGLE_THREADS 256
#else
#define SINGLE_THREADS 1024
#endif

/*  As above for a few short rows, no more than the block has threads. A thread has one of the shortest: its
    few loads are under way at a time, and it waits for no other thread. */
extern "C" __global__ void __launch_bounds__(SINGLE_THREADS, 1)
    ignis_cross_entropy_few(Wide *loss, Wide *scale, Wide *log_sums, T *gradient, const T *logits, const void *targets,
                            int target_bytes, long long rows, long long n, long long stride, long long ignore_index,
                            int mean)
{
    ignis_grid_dependency();
    const logit_rows all = {logits, targets, target_bytes, rows, n, stride, ignore_index, log_sums};
    const Wide factor =
        scale_of(mean, __syncthreads_count(threadIdx.x < rows && all.target(threadIdx.x) != ignore_index));
    tally mine = {factor, 0};
    if (n <= IGNIS__SHORT_ROW)
        cross_entropy<thread_team, 1, false, IGNIS__SHORT_ROW>(mine, gradient, all, 0);
    else
        cross_entropy<ignis_warp_team, PACK>(mine, gradient, all, 0);
    const Wide sum = ignis_block_sum(mine.loss);
    if (threadIdx.x == 0) {
        scale[0] = factor;
        loss[0] = sum * factor;
    }
}

/*  gradient *= grad[0], which is 1 if backward starts from the loss: then nothing is read. Launched as
    ignis_map. */
extern "C" __global__ void __launch_bounds__(IGNIS_MAP_THREADS)
    ignis_cross_entropy_rescale(T *gradient, const Wide *grad, long long n)
{
    ignis_grid_dependency();
    const Wide factor = grad[0];
    if (factor != 1)
        ignis_map(
            n, [=](T x) { return T(Wide(x) * factor); }, gradient, gradient);
}

/*  Adds the chunks' parts of the gradient of the logits' weight: sum = part of the first, sum += part, and
    dst = sum + part of the last, rounded. Launched as ignis_map. */
extern "C" __global__ void __launch_bounds__(IGNIS_MAP_THREADS)
    ignis_cross_entropy_add_up(T *dst, Wide *sum, const T *part, int is_first, int is_last, long long n)
{
    ignis_grid_dependency();
    if (is_first)
        ignis_map(
            n, [](T x) { return Wide(x); }, sum, part);
    else if (is_last)
        ignis_map(
            n, [](Wide sum, T x) { return T(sum + Wide(x)); }, dst, sum, part);
    else
        ignis_map(
            n, [](Wide sum, T x) { return sum + Wide(x); }, sum, sum, part);
}

/* >>cross-entropy without a gradient ---------------------------------------------------------------------------- */

/*  A thread's results for its rows, which a block hands over. */
struct ignis_losses {
    Wide loss;
    int counted; /* rows that are not ignored */
};

/*  Losses of exact rows. A warp reads them in parts that fit its registers. For the team that is a warp, a
    row is one part; the warps of a block take turns at the parts of its rows. A part is read once, so its
    registers take the next one while the warp combines its lanes. Everything else of a row is done for 32
    rows at a time, by a lane for each; only then do the warps of a block combine their results. The first
    parts of 32 rows do not wait for the targets, so ignored rows are read too. */
template <typename Team> __device__ ignis_losses losses_of(const logit_rows &all)
{
    constexpr int size = 32 * PACK * IGNIS_ROW_PACKS;
    const int lane = threadIdx.x % 32, warp = Team::is_block ? threadIdx.x / 32 : 0,
              warps = Team::is_block ? blockDim.x / 32 : 1;
    const int n = (int)all.n, end = (n + size - 1) / size * size;
    ignis_losses mine = {0, 0};
    ignis_words<T, PACK> words; /* of the next part */
    const auto clear = [&] {
        Wide nothing[PACK];
#pragma unroll
        for (Wide &x : nothing)
            x = -ignis_infinity<Wide>();
#pragma unroll
        for (auto &word : words.at)
            word = ignis_word(ignis_pack_round<T>(nothing));
    };
    clear();
    for (long long turn = Team::first(); turn < all.rows; turn += 32 * Team::count()) {
        const long long r = all.rows - 1 - (turn + lane * Team::count()); /* this lane's row */
        const long long begin = r * all.stride;
        const exponentials none = {-ignis_infinity<Wide>(), 0};
        exponentials sums = none, some = none; /* of this lane's row, and this thread's share of the current row */
        uint32_t left = __ballot_sync(0xffffffff, r >= 0);
        int column = warp * size; /* of the part */
        const auto load = [&] {
            for (; Team::is_block && column >= end && left; column -= end)
                left &= left - 1;
            if (!left)
                return;
            const int at = column + lane * PACK;
            const T *const from = all.logits + __shfl_sync(0xffffffff, begin, __ffs(left) - 1) + at;
            if (Team::is_block && n - column < size)
                clear();
#pragma unroll
            for (int p = 0; p < IGNIS_ROW_PACKS; p++)
                if (at + p * 32 * PACK < n)
                    words.at[p] = ignis_word(ignis_load_once(from + p * 32 * PACK));
        };
        load();
        const uint32_t started = (2u << (warps * size - 1) / end) - 1; /* rows with a first part of any warp */
        const int target = r < 0 ? -2 : all.class_of(r);
        const Wide at_target = target < 0 ? not_a_number() : Wide(all.logits[begin + target]);
        left &= __ballot_sync(0xffffffff, target != -2) | started;
        while (left) {
            const uint32_t now = left;
            ignis_pack<T, PACK> xs[IGNIS_ROW_PACKS];
#pragma unroll
            for (int p = 0; p < IGNIS_ROW_PACKS; p++)
                xs[p] = ignis_pack_of<ignis_pack<T, PACK>>(words.at[p]);
            const Wide before = some.shift;
            some.shift = ignis_max::combine(before, ignis_pack_max(xs));
            const ignis_exp_less<T> exp_of(shift_of(some.shift));
            if (Team::is_block)
                some.sum *= exp_of(before);
#pragma unroll
            for (int p = 0; p < IGNIS_ROW_PACKS; p++)
                if (Team::is_block || p * 32 * PACK < n)
#pragma unroll
                    for (int i = 0; i < PACK; i++)
                        some.sum += exp_of(ignis_wide_at(xs[p], i));
            if (Team::is_block)
                column += warps * size;
            else
                left &= left - 1;
            load();
            if (left != now) {
                some = of_warp(some);
                if (lane == __ffs(now) - 1)
                    sums = some;
                some = none;
            }
        }
        if constexpr (Team::is_block) {
            __shared__ exponentials of_warps[IGNIS__LOSS_THREADS / 32][32];
            __syncthreads();
            of_warps[warp][lane] = sums;
            __syncthreads();
            sums = none;
            for (int w = 0; w < warps; w++)
                sums.shift = ignis_max::combine(sums.shift, of_warps[w][lane].shift);
            for (int w = 0; w < warps; w++)
                sums.sum += of_warps[w][lane].sum * ignis_exp_less<T>(shift_of(sums.shift))(of_warps[w][lane].shift);
        }
        if (r >= 0 && warp == 0) {
            sums.shift = shift_of(sums.shift);
            const Wide loss = all.loss(r, sums, at_target);
            mine.loss += target == -2 ? Wide(0) : loss;
            mine.counted += target != -2;
        }
    }
    return mine;
}

template <typename Team>
__device__ inline void cross_entropy_loss(Wide *loss, Wide *scale, const logit_rows &all, int mean,
                                          ignis_losses *losses, unsigned *done)
{
    ignis_losses mine = losses_of<Team>(all);
    mine = {ignis_block_sum(mine.loss), ignis_block_sum(mine.counted)};
    if (threadIdx.x == 0)
        losses[blockIdx.x] = mine;
    if (!is_last_block(done))
        return;
    mine = {0, 0};
    long long counted = 0;
#pragma unroll 8
    for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) {
        mine.loss += __ldcg(&losses[i].loss);
        counted += __ldcg(&losses[i].counted);
    }
    const Wide sum = ignis_block_sum(mine.loss), factor = scale_of(mean, ignis_block_sum(counted));
    if (threadIdx.x == 0) {
        scale[0] = factor;
        loss[0] = sum * factor;
    }
}

extern "C" __global__ void __launch_bounds__(IGNIS__LOSS_WARP_THREADS, LOSS_RESIDENT / IGNIS__LOSS_WARP_THREADS)
    ignis_cross_entropy_loss_warp(Wide *loss, Wide *scale, Wide *log_sums, T *, const T *logits, const void *targets,
                                  int target_bytes, long long rows, long long n, long long stride,
                                  long long ignore_index, int mean, ignis_losses *losses, unsigned *done, int, int)
{
    ignis_grid_dependency();
    const logit_rows all = {logits, targets, target_bytes, rows, n, stride, ignore_index, log_sums};
    cross_entropy_loss<ignis_warp_team>(loss, scale, all, mean, losses, done);
}

extern "C" __global__ void __launch_bounds__(IGNIS__LOSS_THREADS, LOSS_RESIDENT / IGNIS__LOSS_THREADS)
    ignis_cross_entropy_loss_block(Wide *loss, Wide *scale, Wide *log_sums, T *, const T *logits, const void *targets,
                                   int target_bytes, long long rows, long long n, long long stride,
                                   long long ignore_index, int mean, ignis_losses *losses, unsigned *done, int, int)
{
    ignis_grid_dependency();
    const logit_rows all = {logits, targets, target_bytes, rows, n, stride, ignore_index, log_sums};
    cross_entropy_loss<ignis_block_team>(loss, scale, all, mean, losses, done);
}
