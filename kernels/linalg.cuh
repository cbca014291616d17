// SPDX-License-Identifier: MIT
/*  linalg.cuh - batches of matrices, and teams of threads that work on one matrix each

    Included after ignis.cuh. T is float or double: kernels of shorter types are those of float, and
    never launched. Used by the kernels linalg*.cu. */
#ifndef LINALG_CUH
#define LINALG_CUH

typedef ignis_wide<ignis_type<IGNIS_T>> T;

/*  A batch of matrices by strides, in elements; they may be negative. The host has the same struct. */
struct Matrix {
    T *at;
    long long row, column, batch;

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

/*  Returns memory of a team for `elements` elements: its part of the dynamic shared memory. */
__device__ inline T *team_memory(const Team &team, int elements)
{
    extern __shared__ double linalg_memory[];
    return (T *)linalg_memory + (long long)team.number * elements;
}

__device__ inline T not_a_number() { return T(__int_as_float(0x7fffffff)); }

#endif /* LINALG_CUH */
