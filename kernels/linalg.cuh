// SPDX-License-Identifier: MIT
/*  linalg.cuh - batches of matrices, and teams of threads that work on one matrix each

    Included after ignis.cuh. T is float or double: kernels of shorter types are those of float, and
    never launched. Used by the kernels linalg*.cu. */
#ifndef LINALG_CUH
#define LINALG_CUH

typedef ignis_wide<ignis_type<IGNIS_T>> T;

#include "shared/linalg.h"

/*  A batch of matrices, with their elements by index. */
struct Matrix : ignis__matrix_view {
    __device__ T &operator()(long long matrix, long long i, long long j) const
    {
        return at[matrix * batch + i * row + j * column];
    }
};

/*  The threads that work on one matrix: a block, or `size` neighbours of a warp: 8, 16 or 32. All teams of a block run
    the same number of steps, as their matrices have one size. */
struct Team {
    int size, rank, number; /* number: of the team in its block */
    long long matrix;

    __device__ Team(int size)
        : size(size), rank((int)threadIdx.x % size), number((int)threadIdx.x / size),
          matrix((long long)blockIdx.x * (blockDim.x / size) + threadIdx.x / size)
    {
    }
    __device__ void sync() const
    {
        if (size > 32)
            __syncthreads();
        else
            __syncwarp();
    }
};

/*  Returns the dynamic shared memory of a block. */
__device__ inline T *block_memory()
{
    extern __shared__ double linalg_memory[];
    return (T *)linalg_memory;
}

/*  Returns memory of a team for `elements` elements. */
__device__ inline T *team_memory(const Team &team, int elements) { return block_memory() + team.number * elements; }

/*  Return the sum, or the largest, of x over the threads of a team. NaN is the largest. */
template <typename Op> __device__ inline T team_reduce(const Team &team, T x, const Op &op)
{
    __shared__ T of_warps[8];
    for (int distance = min(team.size, 32) / 2; distance > 0; distance /= 2)
        x = op(x, __shfl_xor_sync(0xffffffff, x, distance));
    if (team.size <= 32)
        return x;
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = of_warps[0];
    for (int w = 1; w < team.size / 32; w++)
        x = op(x, of_warps[w]);
    return x;
}

__device__ inline T team_sum(const Team &team, T x)
{
    return team_reduce(team, x, [](T a, T b) { return a + b; });
}

__device__ inline T team_largest(const Team &team, T x)
{
    return team_reduce(team, x, [](T a, T b) { return a <= b || b != b ? b : a; });
}

/*  Returns the power of 2 that brings x, above 0, to 1 up to 2; 1 for what has none: 0, NaN, infinity, and the
    smallest numbers. */
__device__ inline T power_of_2(T x)
{
    T power;
    if constexpr (sizeof(T) == 8)
        power = __longlong_as_double(__double_as_longlong(x) & 0x7ff0000000000000LL);
    else
        power = __int_as_float(__float_as_int(x) & 0x7f800000);
    return power > 0 && power < ignis_infinity<T>() ? power : T(1);
}

__device__ inline T not_a_number() { return T(__int_as_float(0x7fffffff)); }

#endif /* LINALG_CUH */
