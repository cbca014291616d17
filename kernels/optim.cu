// SPDX-License-Identifier: MIT
/*  optim.cu - optimizers, for all parameters of one element type in one launch

    One program per floating element type: compiled with -DIGNIS_T=<ignis_dtype>. Computes in float (double
    for double).

    A table in device memory lists the parameters. Each takes ceil(count / chunk) blocks of a launch, from its
    first_block on; so a launch has as many blocks as all parameters together. A step has more of them, from
    first_step on, each of which takes IGNIS__OPTIM_SHARE elements: what blocks that run at a time read and write then
    is close together, where the memory is faster. Values that change from step to step (count of steps, learning
    rate, clipping) is in device memory too, and the device itself moves it on, so that a CUDA graph of a step
    can be replayed.

        ignis_optim_table       writes rows of the table, without any memory of the host that would have to stay
        ignis_optim_advance     once a step, first: counts, computes learning rate and each parameter's bias
        corrections; or has the step skipped
        ignis_adamw, ...        the step: ignis_adam, _sgd, _rmsprop, _lion too; all take the same arguments
        ignis_muon              before the matrices are made orthogonal, and ignis_muon_apply after that
        ignis_grad_squares      the sum of squares of each block's gradients
        ignis_grad_clip         from these the norm of all gradients and what the next step multiplies them with

    Gradients may be those of a loss times SCALE. Then what a step multiplies them with has 1 / SCALE in it;
    gradients that are not finite have the step skipped and the scale lowered, and it grows after a number of
    steps without one: Micikevicius et al., Mixed Precision Training, 2018.

        ignis_grad_zero         sets all gradients to zero, and their sums
        ignis_grad_accumulate   adds all gradients to their sums, and sets them to zero */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;
#include "shared/optimizer.h"

#define THREADS 256

/*  Whether parameters may have sums of gradients, and averages: only in the program of optim_extra.cu, as both take
    registers. */
#ifdef IGNIS_OPTIM_EXTRA
constexpr bool extra = true;
#else
constexpr bool extra = false;
#endif

/*  Whether f32 copies may be split. */
constexpr bool can_split = ignis_is_same<T, ignis_bf16>;

/*  Blocks of AdamW that run on a multiprocessor at a time, at least. */
constexpr int BLOCKS = extra || sizeof(Wide) > 4 ? 3 : 4;

/* >>state ------------------------------------------------------------------------------------------------------- */

extern "C" __global__ void ignis_optim_table(ignis__optim_row *table, ignis__optim_batch rows, int count)
{
    ignis_grid_dependency();
    if (threadIdx.x < count)
        table[threadIdx.x] = rows.rows[threadIdx.x];
}

enum { SCHEDULE_CONSTANT, SCHEDULE_COSINE, SCHEDULE_LINEAR };

/*  Two threads for each of the rows; rows without a gradient come last; rows 0: no bias corrections. As the
    step waits for this kernel, a thread computes its beta's logarithm, which is minus infinity for 0, before
    it waits, and reads all of the state at once. The learning rate grows linearly for warmup steps, then
    falls from 1 to floor times the base rate until step total. The scale of the loss grows after interval
    steps, and does not fall below lowest; 0: there is no scale, and no step is skipped. */
extern "C" __global__ void __launch_bounds__(IGNIS__OPTIM_ADVANCE_THREADS)
    ignis_optim_advance(double *state, ignis__optim_row *table, int rows, double beta1, double beta2, int schedule,
                        long long warmup, long long total, double floor, double growth, double backoff, double lowest,
                        long long interval)
{
    ignis_grid_dependents_launch();
    const double log_beta = log(threadIdx.x % 2 ? beta2 : beta1);
    ignis_grid_dependency_wait(__double_as_longlong(fabs(log_beta)));
    double now[IGNIS__OPTIM_COUNT + 1];
#pragma unroll
    for (int i = 0; i < IGNIS__OPTIM_COUNT; i += 2) {
        const auto pack = ignis_load<2>(state + i);
        now[i] = pack[0];
        now[i + 1] = pack[1];
    }
    __syncthreads();
    now[IGNIS__OPTIM_SKIP] = interval > 0 && !isfinite(now[IGNIS__OPTIM_NORM]);
    now[IGNIS__OPTIM_CHECKED] = 0;
    now[IGNIS__OPTIM_CLIP] = now[IGNIS__OPTIM_CLIP_NEXT] / now[IGNIS__OPTIM_SCALE];
    now[IGNIS__OPTIM_CLIP_NEXT] = 1;
    if (now[IGNIS__OPTIM_SKIP] != 0) {
        now[IGNIS__OPTIM_SCALE] = max(now[IGNIS__OPTIM_SCALE] * backoff, lowest);
        now[IGNIS__OPTIM_GOOD] = 0;
        now[IGNIS__OPTIM_SKIPPED] += 1;
    } else {
        now[IGNIS__OPTIM_GOOD] += interval > 0;
        if (interval > 0 && now[IGNIS__OPTIM_GOOD] >= (double)interval) {
            if (isfinite((float)(now[IGNIS__OPTIM_SCALE] * growth)))
                now[IGNIS__OPTIM_SCALE] *= growth;
            now[IGNIS__OPTIM_GOOD] = 0;
        }
        const double step = now[IGNIS__OPTIM_STEP] + 1;
        double factor = 1;
        if (step <= (double)warmup) {
            factor = step / (double)warmup;
        } else if (schedule != SCHEDULE_CONSTANT) {
            const double done = min((step - (double)warmup) / (double)max(total - warmup, 1LL), 1.0);
            const double left = schedule == SCHEDULE_COSINE ? 0.5 * (1 + cospi(done)) : 1 - done;
            factor = floor + (1 - floor) * left;
        }
        now[IGNIS__OPTIM_STEP] = step;
        now[IGNIS__OPTIM_FACTOR] = factor;
        now[IGNIS__OPTIM_LR] = now[IGNIS__OPTIM_BASE_LR] * factor;
        for (int i = threadIdx.x; i < 2 * rows; i += blockDim.x) {
            ignis__optim_row &row = table[i / 2];
            if (row.data) {
                const double scale = -1 / expm1(max(step - *row.missed, 1.0) * log_beta);
                *(i % 2 ? &row.second_scale : &row.first_scale) = i % 2 ? sqrt(scale) : scale;
            } else if (i % 2 == 0) {
                *row.missed += 1;
            }
        }
    }
    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = IGNIS__OPTIM_CLIP_NEXT; i < IGNIS__OPTIM_COUNT; i++)
            state[i] = now[i];
    }
}

/*  A block's share of the table. All its threads make one. is_step: of a launch with the blocks of a step. */
struct chunk {
    ignis__optim_row parameter;
    long long start, end;

    __device__ chunk(const ignis__optim_row *table, int count, bool is_step = false)
    {
        const auto first = [=](const ignis__optim_row &p) { return is_step ? p.first_step : p.first_block; };
        int low = 0, high = count; /* the parameter is the last one that begins at this block or before it */
        while (high - low > THREADS) {
            const int middle = (low + high) / 2;
            if (first(table[middle]) <= blockIdx.x)
                low = middle;
            else
                high = middle;
        }
        low += __syncthreads_count(low + (int)threadIdx.x < high && first(table[low + threadIdx.x]) <= blockIdx.x) - 1;
        parameter = table[low];
        const long long size = is_step ? IGNIS__OPTIM_SHARE : parameter.chunk;
        start = (blockIdx.x - first(parameter)) * size;
        end = min(start + size, parameter.count);
    }
};

/*  The learning rate and the weight decay of a parameter in the running step. */
struct rates {
    double lr, decay;

    __device__ rates(const ignis__optim_row &p, const double *state)
        : lr(p.group ? p.group[IGNIS__OPTIM_GROUP_LR] * state[IGNIS__OPTIM_FACTOR] : state[IGNIS__OPTIM_LR]),
          decay(p.group && p.decay != 0 ? p.group[IGNIS__OPTIM_GROUP_DECAY] : p.decay)
    {
    }
};

/* >>step -------------------------------------------------------------------------------------------------------- */

/*  Loads or stores N elements of any type at an address that is aligned to 16 bytes, or to all of them. */
template <int N, typename E> __device__ inline void load_all(Wide (&to)[N], const E *from)
{
    constexpr int per_word = 16 / sizeof(E) < N ? 16 / sizeof(E) : N;
#pragma unroll
    for (int i = 0; i < N; i += per_word) {
        const auto pack = ignis_load_streaming<per_word>(from + i);
#pragma unroll
        for (int k = 0; k < per_word; k++)
            to[i + k] = Wide(pack[k]);
    }
}

template <int N, typename E> __device__ inline void store_all(E *to, const Wide (&from)[N])
{
    constexpr int per_word = 16 / sizeof(E) < N ? 16 / sizeof(E) : N;
#pragma unroll
    for (int i = 0; i < N; i += per_word) {
        ignis_pack<E, per_word> pack;
#pragma unroll
        for (int k = 0; k < per_word; k++)
            pack[k] = E(from[i + k]);
        ignis_store_streaming(to + i, pack);
    }
}

/*  Loads N gradients, with the sum of those before them. */
template <int N> __device__ inline void load_gradients(Wide (&grad)[N], const ignis__optim_row &p, long long at)
{
    load_all(grad, p.grad + at);
    if (extra && p.sum) {
        Wide sum[N];
        load_all(sum, p.sum + at);
#pragma unroll
        for (int i = 0; i < N; i++)
            grad[i] += sum[i];
    }
}

template <int N, typename E> __device__ inline void store_zeros(E *to)
{
    const Wide zero[N] = {};
    store_all(to, zero);
}

/*  Loads N values of a bf16 parameter whose f32 copy is split: into the parameter, which is the copy rounded, halves
    away from zero, and the copy's 16 low bits. So the high bits are the parameter's, less one if they were rounded up;
    a zero was not. */
template <int N> __device__ inline void load_split(Wide (&value)[N], const ignis__optim_row &p, long long at)
{
    constexpr int M = N < 8 ? N : 8;
#pragma unroll
    for (int i = 0; i < N; i += M) {
        const auto high = ignis_load_streaming<M>((const uint16_t *)p.data + at + i);
        const auto low = ignis_load_streaming<M>((const uint16_t *)p.master + at + i);
#pragma unroll
        for (int k = 0; k < M; k++) {
            const uint32_t up = (high[k] & 0x7FFF) != 0 && low[k] >= 0x8000;
            value[i + k] = Wide(__uint_as_float((high[k] - up) << 16 | low[k]));
        }
    }
}

template <int N> __device__ inline void store_split(const ignis__optim_row &p, long long at, const Wide (&value)[N])
{
    constexpr int M = N < 8 ? N : 8;
#pragma unroll
    for (int i = 0; i < N; i += M) {
        ignis_pack<uint16_t, M> high, low;
#pragma unroll
        for (int k = 0; k < M; k++) {
            const float x = float(value[i + k]);
            const uint32_t bits = __float_as_uint(x);
            high[k] = uint16_t(x == x ? (bits + 0x8000) >> 16 : 0x7FC0);
            low[k] = uint16_t(x == x ? bits : 0);
        }
        ignis_store_streaming((uint16_t *)p.data + at + i, high);
        ignis_store_streaming((uint16_t *)p.master + at + i, low);
    }
}

/*  Moves N averages towards the values, as they are stored. */
template <int N>
__device__ inline void average_share(const ignis__optim_row &p, long long at, const Wide (&value)[N])
{
    const Wide share = Wide(p.average_share);
    Wide average[N];
    load_all(average, p.average + at);
#pragma unroll
    for (int i = 0; i < N; i++)
        average[i] += share * ((p.master ? value[i] : Wide(T(value[i]))) - average[i]);
    store_all(p.average + at, average);
}

/*  The elements from the thread's first on, N at a time. update(parameter, gradient, first, second) changes
    one. is_last: of the kernels of a step. */
template <int N, bool has_second, bool is_last, typename Update>
__device__ inline void step_share(const ignis__optim_row &p, long long at, long long end, Wide clip, bool zero_grad,
                                  Update update)
{
    for (; at + N <= end; at += THREADS * N) {
        Wide value[N], grad[N], first[N] = {}, second[N] = {};
        load_gradients(grad, p, at);
        if (can_split && p.is_split)
            load_split(value, p, at);
        else if (p.master)
            load_all(value, p.master + at);
        else
            load_all(value, p.data + at);
        if (p.first)
            load_all(first, p.first + at);
        if (has_second)
            load_all(second, p.second + at);
#pragma unroll
        for (int i = 0; i < N; i++)
            update(value[i], grad[i] * clip, first[i], second[i]);
        if (can_split && p.is_split) {
            store_split(p, at, value);
        } else {
            store_all(p.data + at, value);
            if (p.master)
                store_all(p.master + at, value);
        }
        if (p.first)
            store_all(p.first + at, first);
        if (has_second)
            store_all(p.second + at, second);
        if (extra && is_last && p.average)
            average_share(p, at, value);
        if (zero_grad)
            store_zeros<N>(p.grad + at);
        if (extra && is_last && p.sum)
            store_zeros<N>(p.sum + at);
    }
}

/*  Sets a block's share of an array to zero. */
template <typename E> __device__ inline void zero_chunk(const chunk &c, E *array)
{
    constexpr int N = 16 / sizeof(E);
    const long long end = c.end;
    const long long body = ignis_is_aligned(array, 16) ? c.start + (end - c.start) / N * N : c.start;
    for (long long at = c.start + threadIdx.x * N; at < body; at += THREADS * N)
        store_zeros<N>(array + at);
    for (long long at = body + threadIdx.x; at < end; at += THREADS)
        array[at] = E(0);
}

template <bool has_second, bool is_last = true, typename Update>
__device__ inline void step_chunk(const chunk &c, const double *state, bool zero_grad, Update update)
{
    constexpr int N = 16 / sizeof(Wide); /* so that neighbours have neighbouring words of all arrays */
    const ignis__optim_row &p = c.parameter;
    const long long end = c.end;
    const Wide clip = Wide(state[IGNIS__OPTIM_CLIP]);
    if (state[IGNIS__OPTIM_SKIP] != 0) {
        if (zero_grad)
            zero_chunk(c, c.parameter.grad);
        if (extra && is_last && c.parameter.sum)
            zero_chunk(c, c.parameter.sum);
        return;
    }
    const bool packs = ignis_is_aligned(p.data, 16) &&
                       ignis_is_aligned(p.grad, 16); /* the other arrays are the optimizer's own and are aligned */
    const long long body = packs ? c.start + (end - c.start) / N * N : c.start;
    step_share<N, has_second, is_last>(p, c.start + threadIdx.x * N, body, clip, zero_grad, update);
    step_share<1, has_second, is_last>(p, body + threadIdx.x, end, clip, zero_grad, update);
}

/*  AdamW (Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019) */
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    ignis_adamw(const ignis__optim_row *table, int count, const double *state, double beta1, double beta2, double eps,
                int zero_grad)
{
    ignis_grid_dependency();
    const chunk c(table, count, true);
    const rates r(c.parameter, state);
    const Wide b1 = Wide(beta1), not_b1 = Wide(1 - beta1), b2 = Wide(beta2), not_b2 = Wide(1 - beta2),
               wide_eps = Wide(eps);
    const Wide keep = Wide(1 - r.lr * r.decay),
               step_size = Wide(r.lr * c.parameter.first_scale);
    const Wide second_scale = Wide(c.parameter.second_scale);
    step_chunk<true>(c, state, zero_grad != 0, [=](Wide &value, Wide grad, Wide &first, Wide &second) {
        first = b1 * first + not_b1 * grad;
        second = b2 * second + not_b2 * grad * grad;
        value = value * keep - step_size * first / (sqrt(second) * second_scale + wide_eps);
    });
}

/*  Adam (Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015), with weight decay that is
    part of the gradient. */
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    ignis_adam(const ignis__optim_row *table, int count, const double *state, double beta1, double beta2, double eps,
               int zero_grad)
{
    ignis_grid_dependency();
    const chunk c(table, count, true);
    const rates r(c.parameter, state);
    const Wide b1 = Wide(beta1), not_b1 = Wide(1 - beta1), b2 = Wide(beta2), not_b2 = Wide(1 - beta2),
               wide_eps = Wide(eps);
    const Wide decay = Wide(r.decay), step_size = Wide(r.lr * c.parameter.first_scale),
               second_scale = Wide(c.parameter.second_scale);
    step_chunk<true>(c, state, zero_grad != 0, [=](Wide &value, Wide grad, Wide &first, Wide &second) {
        grad += decay * value;
        first = b1 * first + not_b1 * grad;
        second = b2 * second + not_b2 * grad * grad;
        value -= step_size * first / (sqrt(second) * second_scale + wide_eps);
    });
}

/*  RMSprop (Tieleman and Hinton, Lecture 6.5, Coursera: Neural Networks for Machine Learning, 2012), with
    momentum (first may be null if that is 0) of the divided gradient, and eps outside of the root, as in
    PyTorch. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_rmsprop(const ignis__optim_row *table, int count, const double *state, double momentum, double alpha,
                  double eps, int zero_grad)
{
    ignis_grid_dependency();
    const chunk c(table, count, true);
    const rates r(c.parameter, state);
    const Wide lr = Wide(r.lr), decay = Wide(r.decay), wide_momentum = Wide(momentum),
               wide_eps = Wide(eps);
    const Wide b2 = Wide(alpha), not_b2 = Wide(1 - alpha);
    step_chunk<true>(c, state, zero_grad != 0, [=](Wide &value, Wide grad, Wide &first, Wide &second) {
        grad += decay * value;
        second = b2 * second + not_b2 * grad * grad;
        grad /= sqrt(second) + wide_eps;
        first = wide_momentum * first + grad;
        value -= lr * first;
    });
}

/*  Lion (Chen et al., Symbolic Discovery of Optimization Algorithms, NeurIPS 2023) */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_lion(const ignis__optim_row *table, int count, const double *state, double beta1, double beta2, double,
               int zero_grad)
{
    ignis_grid_dependency();
    const chunk c(table, count, true);
    const rates r(c.parameter, state);
    const Wide b1 = Wide(beta1), not_b1 = Wide(1 - beta1), b2 = Wide(beta2), not_b2 = Wide(1 - beta2),
               lr = Wide(r.lr);
    const Wide keep = Wide(1 - r.lr * r.decay);
    step_chunk<false>(c, state, zero_grad != 0, [=](Wide &value, Wide grad, Wide &first, Wide &) {
        const Wide way = b1 * first + not_b1 * grad;
        value = value * keep - (way > 0 ? lr : way < 0 ? -lr : way * lr); /* NaN stays */
        first = b2 * first + not_b2 * grad;
    });
}

/*  Muon (Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024): momentum in first,
    and where Nesterov's leads in second, which the host then makes orthogonal. The values stay, and so do the
    gradients. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_muon(const ignis__optim_row *table, int count, const double *state, double momentum, double, double, int)
{
    ignis_grid_dependency();
    const chunk c(table, count, true);
    const Wide keep = Wide(momentum), not_keep = Wide(1 - momentum);
    step_chunk<true, false>(c, state, false, [=](Wide &, Wide grad, Wide &first, Wide &second) {
        first = keep * first + not_keep * grad;
        second = keep * first + not_keep * grad;
    });
}

/*  Applies the step, which is in second. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_muon_apply(const ignis__optim_row *table, int count, const double *state, double, double, double,
                     int zero_grad)
{
    ignis_grid_dependency();
    const chunk c(table, count, true);
    const rates r(c.parameter, state);
    const Wide lr = Wide(r.lr), keep = Wide(1 - r.lr * r.decay);
    step_chunk<true>(c, state, zero_grad != 0,
                     [=](Wide &value, Wide, Wide &, Wide &second) { value = value * keep - lr * second; });
}

/*  Stochastic gradient descent with momentum (first may be null when that is 0) and weight decay that is part
    of the gradient. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_sgd(const ignis__optim_row *table, int count, const double *state, double momentum, double, double,
              int zero_grad)
{
    ignis_grid_dependency();
    const chunk c(table, count, true);
    const rates r(c.parameter, state);
    const Wide lr = Wide(r.lr), decay = Wide(r.decay), wide_momentum = Wide(momentum);
    step_chunk<false>(c, state, zero_grad != 0, [=](Wide &value, Wide grad, Wide &first, Wide &) {
        first = wide_momentum * first + (grad + decay * value);
        value -= lr * first;
    });
}

/* >>gradients --------------------------------------------------------------------------------------------------- */

template <int N> __device__ inline Wide sum_of_squares(const ignis__optim_row &p, long long at, long long end)
{
    Wide sum = 0;
    for (; at + N <= end; at += THREADS * N) {
        Wide g[N];
        load_gradients(g, p, at);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum += g[i] * g[i];
    }
    return sum;
}

__device__ inline Wide gradient_at(const ignis__optim_row &p, long long at)
{
    Wide grad[1];
    load_gradients(grad, p, at);
    return grad[0];
}

__device__ inline Wide largest(const ignis__optim_row &p, long long at, long long end)
{
    Wide most = 0;
    for (; at < end; at += THREADS)
        most = max(most, fabs(gradient_at(p, at)));
    return most;
}

/*  squares[block] = the sum of squares of the block's gradients; where f64 does not hold it, minus its root.
    With a state, only where their norm is not known. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_grad_squares(double *squares, const ignis__optim_row *table, int count, const double *state)
{
    ignis_grid_dependency();
    constexpr int N = 16 / sizeof(T);
    if (state && state[IGNIS__OPTIM_CHECKED] != 0)
        return;
    const chunk c(table, count);
    const T *grad = c.parameter.grad;
    const long long end = c.end;
    const long long body = ignis_is_aligned(grad, 16) ? c.start + (end - c.start) / N * N : c.start;
    Wide sum = sum_of_squares<N>(c.parameter, c.start + threadIdx.x * N, body);
    sum += sum_of_squares<1>(c.parameter, body + threadIdx.x, end);
    sum = ignis_block_sum(sum);
    double result = (double)sum;
    if (!ignis_is_same<T, ignis_f16> &&
        !ignis_squares_fit(sum)) { /* once more, in double, or times a power of two: then it is minus the norm */
        double scale = 1;
        if (sizeof(T) == 8)
            scale = ignis_square_scale((double)ignis_block_max(largest(c.parameter, c.start + threadIdx.x, end)));
        result = 0;
        for (long long at = c.start + threadIdx.x; at < end; at += THREADS) {
            const double scaled = (double)gradient_at(c.parameter, at) * scale;
            result += scaled * scaled;
        }
        result = ignis_block_sum(result);
        if (sizeof(T) == 8)
            result = -sqrt(result) / scale;
    }
    if (threadIdx.x == 0)
        squares[c.parameter.first_square + (blockIdx.x - c.parameter.first_block)] = result;
}

/*  One block. Gradients are left alone up to max_norm, and scaled down to it otherwise. 0 for it: the norm
    alone, where it is not known. lead: the state whose loss scale the gradients have, which becomes that of state; it
    may be state. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_grad_clip(double *state, const double *lead, const double *squares, long long count, double max_norm)
{
    ignis_grid_dependency();
    double sum = 0, scale = 1;
    bool roots = false;
    if (max_norm == 0 && state[IGNIS__OPTIM_CHECKED] != 0)
        return;
    for (long long i = threadIdx.x; i < count; i += THREADS) {
        sum += squares[i];
        roots = roots || squares[i] < 0;
    }
    sum = ignis_block_sum(sum);
    if (__syncthreads_or(roots) || (sum != 0 && !ignis_squares_fit(sum))) {
        const auto root = [=](long long i) { return squares[i] < 0 ? -squares[i] : sqrt(squares[i]); };
        double most = 0;
        for (long long i = threadIdx.x; i < count; i += THREADS)
            most = max(most, root(i));
        scale = ignis_square_scale(ignis_block_max(most));
        sum = 0;
        for (long long i = threadIdx.x; i < count; i += THREADS)
            sum += root(i) * scale * (root(i) * scale);
        sum = ignis_block_sum(sum);
    }
    if (threadIdx.x == 0) {
        const double norm = sqrt(sum) / scale / lead[IGNIS__OPTIM_SCALE];
        if (lead != state) {
            state[IGNIS__OPTIM_SCALE] = lead[IGNIS__OPTIM_SCALE];
            state[IGNIS__OPTIM_GOOD] = lead[IGNIS__OPTIM_GOOD];
        }
        state[IGNIS__OPTIM_NORM] = norm;
        state[IGNIS__OPTIM_CHECKED] = 1;
        state[IGNIS__OPTIM_CLIP_NEXT] = max_norm == 0 ? 1 : norm > max_norm ? max_norm / norm : norm != norm ? norm : 1;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) ignis_grad_zero(const ignis__optim_row *table, int count)
{
    ignis_grid_dependency();
    const chunk c(table, count);
    zero_chunk(c, c.parameter.grad);
    if (extra && c.parameter.sum)
        zero_chunk(c, c.parameter.sum);
}

#ifdef IGNIS_OPTIM_EXTRA
/*  The elements from the thread's first on, N at a time. */
template <int N> __device__ inline void accumulate_share(const ignis__optim_row &p, long long at, long long end)
{
    for (; at + N <= end; at += THREADS * N) {
        Wide sum[N];
        load_gradients(sum, p, at);
        store_all(p.sum + at, sum);
        store_zeros<N>(p.grad + at);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) ignis_grad_accumulate(const ignis__optim_row *table, int count)
{
    ignis_grid_dependency();
    constexpr int N = 16 / sizeof(Wide);
    const chunk c(table, count);
    const long long end = c.end;
    const long long body = ignis_is_aligned(c.parameter.grad, 16) ? c.start + (end - c.start) / N * N : c.start;
    accumulate_share<N>(c.parameter, c.start + threadIdx.x * N, body);
    accumulate_share<1>(c.parameter, body + threadIdx.x, end);
}
#endif
