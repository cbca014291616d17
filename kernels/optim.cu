/*  optim.cu - optimizers, for all parameters of one element type in one launch

    One program per floating element type: compiled with -DIGNIS_T=<ignis_dtype>. Computes in float (double for double).

    A table in device memory lists the parameters, and a list of chunks cuts them into pieces of up to IGNIS_CHUNK elements, one
    block each. What changes from step to step (count of steps, learning rate, clipping) lies in device memory too, and the device itself
    moves it on, so that a CUDA graph of a step can be replayed.

        ignis_optim_advance     once a step, first: counts, and computes learning rate and bias corrections
        ignis_adamw, ignis_sgd  the step
        ignis_grad_squares      the sum of squares of each chunk of gradients
        ignis_grad_clip         from these the norm of all gradients and what to multiply them with
*/
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define THREADS 256
#define IGNIS_CHUNK 8192

/* The host has the same three structs. */
struct ignis_parameter {
    T *data, *grad;
    Wide *first;    /* first moment or momentum; null without */
    Wide *second;   /* second moment; null without */
    Wide *master;   /* the parameter in full precision; null without */
    long long count;
    double decay;   /* weight decay of this parameter */
};

struct ignis_chunk {
    long long parameter, start;
};

struct ignis_optim_state {
    double base_lr;       /* what the caller has set; the schedule scales it */
    double clip;          /* gradients are multiplied with this; 1 unless clipped */
    double norm;          /* of all gradients before clipping */
    double lr;            /* of this step */
    double first_scale;   /* 1 / (1 - beta1^step), 1 / sqrt(1 - beta2^step) */
    double second_scale;
    long long step;       /* the first one is 1 */
};

/* >>state ------------------------------------------------------------------------------------------------------- */

enum { IGNIS_SCHEDULE_CONSTANT, IGNIS_SCHEDULE_COSINE, IGNIS_SCHEDULE_LINEAR };

/*  One thread. The learning rate grows linearly for warmup steps, then falls from 1 to floor times base_lr until step total. */
extern "C" __global__ void ignis_optim_advance(ignis_optim_state *state, double beta1, double beta2, int schedule, long long warmup,
                                               long long total, double floor)
{
    const long long step = state->step + 1;
    double factor = 1;
    if (step <= warmup) {
        factor = (double)step / (double)warmup;
    } else if (schedule != IGNIS_SCHEDULE_CONSTANT) {
        const double span = (double)max(total - warmup, 1LL), done = min((double)(step - warmup) / span, 1.0);
        const double left = schedule == IGNIS_SCHEDULE_COSINE ? 0.5 * (1 + cospi(done)) : 1 - done;
        factor = floor + (1 - floor) * left;
    }
    state->step = step;
    state->lr = state->base_lr * factor;
    state->first_scale = 1 / (1 - pow(beta1, (double)step));
    state->second_scale = 1 / sqrt(1 - pow(beta2, (double)step));
}

/* >>step -------------------------------------------------------------------------------------------------------- */

/*  N elements of any type from and to an address that is aligned to 16 bytes, or to as many as there are. */
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

/*  The elements from the thread's first on, N at a time. update(parameter, gradient, first, second) changes one. */
template <int N, bool has_second, typename Update>
__device__ inline void step_share(const ignis_parameter &p, long long at, long long end, Wide clip, bool zero_grad, Update update)
{
    for (; at + N <= end; at += THREADS * N) {
        Wide value[N], grad[N], first[N] = {}, second[N] = {};
        load_all(grad, p.grad + at);
        if (p.master)
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
        store_all(p.data + at, value);
        if (p.master)
            store_all(p.master + at, value);
        if (p.first)
            store_all(p.first + at, first);
        if (has_second)
            store_all(p.second + at, second);
        if (zero_grad) {
            const Wide zero[N] = {};
            store_all(p.grad + at, zero);
        }
    }
}

template <bool has_second, typename Update>
__device__ inline void step_chunk(const ignis_parameter &p, long long start, Wide clip, bool zero_grad, Update update)
{
    constexpr int N = 16 / sizeof(T);
    const long long end = min(start + IGNIS_CHUNK, p.count);
    const bool packs = ignis_is_aligned(p.data, 16) && ignis_is_aligned(p.grad, 16); /* the rest is the optimizer's own and is aligned */
    const long long body = packs ? start + (end - start) / N * N : start;
    step_share<N, has_second>(p, start + threadIdx.x * N, body, clip, zero_grad, update);
    step_share<1, has_second>(p, body + threadIdx.x, end, clip, zero_grad, update);
}

/*  AdamW (Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019) */
extern "C" __global__ void __launch_bounds__(THREADS)
ignis_adamw(const ignis_parameter *parameters, const ignis_chunk *chunks, const ignis_optim_state *state, double beta1, double beta2,
            double eps, int zero_grad)
{
    const ignis_chunk chunk = chunks[blockIdx.x];
    const ignis_parameter p = parameters[chunk.parameter];
    const Wide keep = Wide(1 - state->lr * p.decay), step_size = Wide(state->lr * state->first_scale);
    const Wide second_scale = Wide(state->second_scale), b1 = Wide(beta1), b2 = Wide(beta2), not_b1 = Wide(1 - beta1), not_b2 = Wide(1 - beta2);
    const Wide wide_eps = Wide(eps);
    step_chunk<true>(p, chunk.start, Wide(state->clip), zero_grad != 0, [=](Wide &value, Wide grad, Wide &first, Wide &second) {
        first = b1 * first + not_b1 * grad;
        second = b2 * second + not_b2 * grad * grad;
        value = value * keep - step_size * first / (sqrt(second) * second_scale + wide_eps);
    });
}

/*  Stochastic gradient descent with momentum (first may be null when that is 0) and weight decay that is part of the gradient. */
extern "C" __global__ void __launch_bounds__(THREADS)
ignis_sgd(const ignis_parameter *parameters, const ignis_chunk *chunks, const ignis_optim_state *state, double momentum, int zero_grad)
{
    const ignis_chunk chunk = chunks[blockIdx.x];
    const ignis_parameter p = parameters[chunk.parameter];
    const Wide lr = Wide(state->lr), decay = Wide(p.decay), wide_momentum = Wide(momentum);
    step_chunk<false>(p, chunk.start, Wide(state->clip), zero_grad != 0, [=](Wide &value, Wide grad, Wide &first, Wide &) {
        first = wide_momentum * first + (grad + decay * value);
        value -= lr * first;
    });
}

/* >>clipping ---------------------------------------------------------------------------------------------------- */

template <int N> __device__ inline Wide sum_of_squares(const T *grad, long long at, long long end)
{
    Wide sum = 0;
    for (; at + N <= end; at += THREADS * N) {
        Wide g[N];
        load_all(g, grad + at);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum += g[i] * g[i];
    }
    return sum;
}

/*  squares[block] = the sum of squares of the chunk's gradients. */
extern "C" __global__ void __launch_bounds__(THREADS)
ignis_grad_squares(double *squares, const ignis_parameter *parameters, const ignis_chunk *chunks)
{
    constexpr int N = 16 / sizeof(T);
    const ignis_chunk chunk = chunks[blockIdx.x];
    const T *grad = parameters[chunk.parameter].grad;
    const long long end = min(chunk.start + IGNIS_CHUNK, parameters[chunk.parameter].count);
    const long long body = ignis_is_aligned(grad, 16) ? chunk.start + (end - chunk.start) / N * N : chunk.start;
    Wide sum = sum_of_squares<N>(grad, chunk.start + threadIdx.x * N, body);
    sum += sum_of_squares<1>(grad, body + threadIdx.x, end);
    sum = ignis_block_sum(sum);
    if (threadIdx.x == 0)
        squares[blockIdx.x] = (double)sum;
}

/*  One block. The norm is left alone up to max_norm, and gradients are scaled down to that otherwise. */
extern "C" __global__ void __launch_bounds__(THREADS)
ignis_grad_clip(ignis_optim_state *state, const double *squares, long long count, double max_norm)
{
    double sum = 0;
    for (long long i = threadIdx.x; i < count; i += THREADS)
        sum += squares[i];
    sum = ignis_block_sum(sum);
    if (threadIdx.x == 0) {
        const double norm = sqrt(sum);
        state->norm = norm;
        state->clip = norm > max_norm ? max_norm / norm : norm != norm ? norm : 1;
    }
}
