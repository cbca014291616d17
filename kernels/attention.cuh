// SPDX-License-Identifier: MIT
/*  attention.cuh - what all attention kernels share: their parameters, what a query sees, the row sums of the backward pass */
#ifndef IGNIS_ATTENTION_CUH
#define IGNIS_ATTENTION_CUH

/*  One of the tensors: head h of row r of batch b starts at data + b * batch + r * row + h * head. So a tensor may be a
    block of columns of a wider one, such as the q of a fused qkv. */
template <typename E> struct attention_rows {
    E *data;
    long long row, head, batch;

    __device__ E *at(long long b, long long h) const { return data + b * batch + h * head; }
};

/*  The parameters of every kernel; ignis.h has the same struct as ignis__attention. Forward reads q, k, v and writes out and
    lse; backward reads all of these and grad_out, and writes delta, then grad_q, grad_k, grad_v. Unused members may be null.
    Query head h attends to key head h / (heads / kv_heads). */
template <typename T> struct attention {
    typedef ignis_wide<T> Wide;

    attention_rows<const T> q, k, v;
    attention_rows<T> out; /* [batch, sq, heads * head_dim] */
    attention_rows<const T> grad_out;
    attention_rows<T> grad_q, grad_k, grad_v;
    Wide *lse;   /* [batch, heads, sq]: log of the sum of exp(scale * score) over what the query sees; +infinity if nothing */
    Wide *delta; /* [batch, heads, sq]: sum of out * grad_out */
    int batches, heads, kv_heads, head_dim;
    int sq, sk;   /* queries and keys, below 2^30 */
    int causal;   /* query i sees the keys before i + sk - sq + 1, so the last query sees all; else every query does */
    double scale; /* of the scores, positive */

    /*  The number of keys that a query sees: the first ones. */
    __device__ int visible(int query) const { return causal ? max(0, min(sk, query + sk - sq + 1)) : sk; }

    /*  The first query that sees a key. */
    __device__ int first_query(int key) const { return causal ? max(0, key - (sk - sq)) : 0; }

    __device__ long long stat(long long b, long long h) const { return (b * heads + h) * sq; }
};

/*  delta[b, h, i] = sum of out * grad_out over the head, for elements in packs of N. As many lanes as needed do a row of a
    head, so that a warp reads heads that are neighbours in memory. Blocks of 256 threads, any grid. */
template <int N, typename T> __device__ inline void attention_delta_packs(const attention<T> &p)
{
    typedef ignis_wide<T> Wide;
    int lanes = 1;
    while (lanes < 32 && lanes * N < p.head_dim)
        lanes *= 2;
    const long long items = (long long)p.batches * p.sq * p.heads, step = (long long)gridDim.x * 256 / lanes;
    const int lane = threadIdx.x % lanes;

    for (long long first = ((long long)blockIdx.x * 256 + threadIdx.x / 32 * 32) / lanes; first < items; first += step) {
        const long long item = first + threadIdx.x % 32 / lanes;
        const int h = (int)(item % p.heads);
        const long long row = item / p.heads % p.sq, b = item / p.heads / p.sq;
        Wide sum = 0;
        if (item < items) {
            const T *out = p.out.at(b, h) + row * p.out.row;
            const T *grad = p.grad_out.at(b, h) + row * p.grad_out.row;
            for (int d = lane * N; d < p.head_dim; d += lanes * N) {
                const auto x = ignis_load<N>(out + d), y = ignis_load<N>(grad + d);
#pragma unroll
                for (int i = 0; i < N; i++)
                    sum += Wide(x[i]) * Wide(y[i]);
            }
        }
        for (int distance = lanes / 2; distance > 0; distance /= 2)
            sum += __shfl_xor_sync(0xffffffff, sum, distance);
        if (lane == 0 && item < items)
            p.delta[p.stat(b, h) + row] = sum;
    }
}

template <typename E> __device__ inline bool attention_aligned(const attention_rows<E> &rows)
{
    return ignis_is_aligned(rows.data, 16) && (rows.row | rows.head | rows.batch) % (16 / (int)sizeof(E)) == 0;
}

template <typename T> __device__ inline void attention_delta(const attention<T> &p)
{
    constexpr int N = 16 / sizeof(T);
    if (p.head_dim % N == 0 && attention_aligned(p.out) && attention_aligned(p.grad_out))
        attention_delta_packs<N>(p);
    else
        attention_delta_packs<1>(p);
}

__device__ inline float power_of_2(float x) { return exp2f(x); }
__device__ inline double power_of_2(double x) { return exp2(x); }

/*  The last step of one query's attention to keys that several blocks have shared. parts has, for each batch, head and split of
    the keys: a bound of the scores in units of log 2, the sum of 2^(score - bound), and the sum of 2^(score - bound) v.
    grid = heads * batches, blocks of 128; at most 1024 splits. */
template <typename T> __device__ inline void attention_combine(const attention<T> &p, const ignis_wide<T> *parts, int splits)
{
    typedef ignis_wide<T> Wide;
    __shared__ Wide weights[1024];
    const int b = blockIdx.x / p.heads, h = blockIdx.x % p.heads, size = p.head_dim + 2;
    Wide top = -ignis_infinity<Wide>(), sum = 0;
    parts += (long long)blockIdx.x * splits * size;

    for (int i = threadIdx.x; i < splits; i += 128)
        top = max(top, parts[i * size]);
    top = ignis_block_max(top);
    for (int i = threadIdx.x; i < splits; i += 128) {
        weights[i] = power_of_2(parts[i * size] - top);
        sum += weights[i] * parts[i * size + 1];
    }
    sum = ignis_block_sum(sum); /* its barriers are those that the weights need */
    for (int d = threadIdx.x; d < p.head_dim; d += 128) {
        Wide x = 0;
#pragma unroll 8
        for (int i = 0; i < splits; i++)
            x += weights[i] * parts[i * size + 2 + d];
        p.out.at(b, h)[d] = T(x / sum);
    }
}

#endif /* IGNIS_ATTENTION_CUH */
