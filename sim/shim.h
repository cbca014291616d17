// SPDX-License-Identifier: MIT
/*  shim.h - the device side of CUDA C++, for the host's C++ compiler

    Every kernel source is compiled after this text (the NVRTC stand-in contains it). It provides what NVRTC provides
    without any header: vector types, indices, barriers, warp functions, atomics, and, in shim_math.h and shim_ptx.h,
    mathematics and inline PTX. It includes no system header, which keeps a compile near 100 ms.

    Two rules hold throughout. Whatever waits calls the executor through `sim_rt`, and restores threadIdx afterwards,
    which other threads overwrite meanwhile. And what the simulator does for itself is hidden from the thread sanitizer
    (SIM_QUIET), so that it sees exactly the accesses of the kernel.
*/
#ifndef SIM_SHIM_H
#define SIM_SHIM_H

#include "shim_abi.h"

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;

/* Sanitizer builds run kernels on one OS thread, so shared memory can be plain variables, which they check. */
#if defined(SIM_THREAD_SANITIZER)
#define SIM_LANE SIM_LANE_THREAD
#define SIM_PER_WORKER static
#define SIM_QUIET static __attribute__((noinline, no_sanitize("thread")))
#elif defined(SIM_ADDRESS_SANITIZER)
#define SIM_LANE SIM_LANE_ADDRESS
#define SIM_PER_WORKER static
#define SIM_QUIET static inline
#else
#define SIM_LANE SIM_LANE_PLAIN
#define SIM_PER_WORKER static thread_local
#define SIM_QUIET static inline
#endif
#define SIM_DEVICE static inline

#define __host__
#define __device__
#define __constant__
#define __managed__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __nv_pure__ __attribute__((pure))
#if !defined(__clang__)
#define __builtin_assume(e) ((e) ? (void)0 : __builtin_unreachable())
#endif

/* ------------------------------------------------------------------------------------------- vector types */

#define SIM_VECTOR(name, T, a2, a4)                                                \
    struct name##1 { T x; };                                                       \
    struct alignas(a2) name##2 { T x, y; };                                        \
    struct name##3 { T x, y, z; };                                                 \
    struct alignas(a4) name##4 { T x, y, z, w; };                                  \
    SIM_DEVICE name##1 make_##name##1(T x) { return name##1 {x}; }                 \
    SIM_DEVICE name##2 make_##name##2(T x, T y) { return name##2 {x, y}; }         \
    SIM_DEVICE name##3 make_##name##3(T x, T y, T z) { return name##3 {x, y, z}; } \
    SIM_DEVICE name##4 make_##name##4(T x, T y, T z, T w) { return name##4 {x, y, z, w}; }

SIM_VECTOR(char, signed char, 2, 4)
SIM_VECTOR(uchar, unsigned char, 2, 4)
SIM_VECTOR(short, short, 4, 8)
SIM_VECTOR(ushort, unsigned short, 4, 8)
SIM_VECTOR(int, int, 8, 16)
SIM_VECTOR(uint, unsigned, 8, 16)
SIM_VECTOR(long, long, 16, 16)
SIM_VECTOR(ulong, unsigned long, 16, 16)
SIM_VECTOR(longlong, long long, 16, 16)
SIM_VECTOR(ulonglong, unsigned long long, 16, 16)
SIM_VECTOR(float, float, 8, 16)
SIM_VECTOR(double, double, 16, 16)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};

/* ----------------------------------------------------------------------------------- state of block and thread */

/* Their addresses are never taken: the compiler then knows that no store of the kernel changes them. */
static const sim_runtime *sim_rt;
SIM_PER_WORKER sim_block sim_this_block;
SIM_PER_WORKER uint3 sim_this_thread;

#define SIM_AT const char *sim_file = __builtin_FILE(), int sim_line = __builtin_LINE()
#define SIM_HERE \
    sim_place { sim_file, sim_line }

SIM_QUIET uint3 sim_thread_index() { return sim_this_thread; }
SIM_QUIET uint3 sim_block_index()
{
    return uint3{sim_this_block.index[0], sim_this_block.index[1], sim_this_block.index[2]};
}
SIM_QUIET uint3 sim_block_dim()
{
    return uint3{sim_this_block.block_dim[0], sim_this_block.block_dim[1], sim_this_block.block_dim[2]};
}
SIM_QUIET uint3 sim_grid_dim()
{
    return uint3{sim_this_block.grid_dim[0], sim_this_block.grid_dim[1], sim_this_block.grid_dim[2]};
}
SIM_QUIET void sim_set_thread(unsigned x, unsigned y, unsigned z) { sim_this_thread = uint3{x, y, z}; }
/* Allocates a module's variables. A thread's first access does so through a call that in glibc before 2.39
   loses vector registers, which the compiler takes for safe (bug 31372). Here none is in use. */
SIM_PER_WORKER volatile char sim_anchor;
static __attribute__((noinline)) void sim_touch_variables() { sim_anchor = 1; }
SIM_QUIET void sim_enter_block(const sim_block *block)
{
    sim_touch_variables();
    sim_this_block = *block;
}
SIM_QUIET char *sim_dynamic_shared() { return (char *)sim_this_block.dynamic_shared; }
SIM_QUIET unsigned sim_processor() { return sim_this_block.processor; }

#define threadIdx (sim_thread_index())
#define blockIdx (sim_block_index())
#define blockDim (sim_block_dim())
#define gridDim (sim_grid_dim())
#define warpSize 32

SIM_DEVICE unsigned sim_linear_thread() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
SIM_DEVICE unsigned sim_lane() { return sim_linear_thread() % SIM_WARP; }

/* ------------------------------------------------------------------------------------- failure, printf, memory */

[[noreturn]] SIM_DEVICE void sim_fail(int code, const char *text, sim_place at)
{
    sim_rt->fail(code, text, at);
    __builtin_unreachable();
}
[[noreturn]] SIM_DEVICE void sim_assert_fail(const char *text, const char *file, int line)
{
    sim_fail(710, text, sim_place{file, line});
}
SIM_DEVICE void __trap(SIM_AT) { sim_fail(719, "__trap()", SIM_HERE); }
SIM_DEVICE void __brkpt() {}

extern "C" {
int printf(const char *, ...);
void *malloc(size_t);
void free(void *) noexcept;
void *memcpy(void *, const void *, size_t) noexcept;
void *memset(void *, int, size_t) noexcept;
}

/* ------------------------------------------------------------------------------------------------- barriers */

SIM_QUIET int sim_barrier(unsigned id, unsigned count, int reduction, int predicate, sim_place at)
{
    uint3 self = sim_this_thread;
    int result = sim_rt->barrier(id, count, reduction, predicate, at);
    sim_this_thread = self;
    return result;
}
SIM_QUIET void sim_warp(unsigned mask, sim_combine combine, void *record, int fence, const char *what, sim_place at)
{
    uint3 self = sim_this_thread;
    sim_rt->warp(mask, combine, record, fence, what, at);
    sim_this_thread = self;
}
/* Lets other threads run. Loops that wait for another thread's write call it. */
SIM_QUIET void sim_yield()
{
    uint3 self = sim_this_thread;
    sim_rt->yield();
    sim_this_thread = self;
}

/* As sim_yield, for a load that returned `value`: others run if it returned the same before. */
SIM_QUIET void sim_poll(const void *address, unsigned long long value)
{
    uint3 self = sim_this_thread;
    sim_rt->poll(address, value);
    sim_this_thread = self;
}

SIM_DEVICE void __syncthreads(SIM_AT) { sim_barrier(0, 0, SIM_BARRIER_SYNC, 0, SIM_HERE); }
SIM_DEVICE int __syncthreads_count(int p, SIM_AT) { return sim_barrier(0, 0, SIM_BARRIER_COUNT, p, SIM_HERE); }
SIM_DEVICE int __syncthreads_and(int p, SIM_AT) { return sim_barrier(0, 0, SIM_BARRIER_AND, p, SIM_HERE); }
SIM_DEVICE int __syncthreads_or(int p, SIM_AT) { return sim_barrier(0, 0, SIM_BARRIER_OR, p, SIM_HERE); }
SIM_DEVICE void __syncwarp(unsigned mask = 0xffffffffu, SIM_AT) { sim_warp(mask, 0, 0, 1, "__syncwarp", SIM_HERE); }
/* Atomics are ordered here already; a fence only has to stop the compiler. The system's fence also keeps a
   load after an earlier store, which x86 does not do by itself. */
SIM_DEVICE void __threadfence() { __asm__ volatile("" ::: "memory"); }
SIM_DEVICE void __threadfence_block() { __asm__ volatile("" ::: "memory"); }
#if defined(SIM_THREAD_SANITIZER)
SIM_DEVICE void __threadfence_system() { __asm__ volatile("" ::: "memory"); } /* GCC refuses fences there */
#else
SIM_DEVICE void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#endif
SIM_DEVICE void __nanosleep(unsigned) { sim_yield(); }

/* ------------------------------------------------------------------------------------------- shared memory */

/* Fills a variable. The rewriter adds a call after every static __shared__ variable. The first thread of a
   block fills the variable, so that unwritten memory reads as NaN. */
SIM_QUIET void sim_fill_shared(unsigned long long &stamp, volatile void *memory, size_t size)
{
    if (stamp == sim_this_block.stamp)
        return;
    stamp = sim_this_block.stamp;
    for (size_t i = 0; i < size; i++)
        ((volatile unsigned char *)memory)[i] = 0xFF;
}
#define SIM_SHARED(variable)                                                  \
    {                                                                         \
        SIM_PER_WORKER unsigned long long stamp;                              \
        sim_fill_shared(stamp, (volatile void *)&variable, sizeof(variable)); \
    }

/* Converts 32-bit addresses of shared memory, as PTX has them. Dynamic shared memory begins at 0x40000000;
   static variables are numbered by their distance to one of them. Low bits equal those of the real address,
   for swizzles. */
SIM_QUIET size_t sim_static_base() { return ((size_t)&sim_anchor & ~(size_t)4095) - 0x20000000u; }

SIM_DEVICE size_t __cvta_generic_to_shared(const volatile void *p, SIM_AT)
{
    size_t dynamic = (size_t)p - (size_t)sim_dynamic_shared();
    if (sim_dynamic_shared() && dynamic < 0x1000000u)
        return 0x40000000u + dynamic;
    size_t fixed = (size_t)p - sim_static_base();
    if (fixed >= 0x40000000u)
        sim_fail(700, "__cvta_generic_to_shared of an address that is not in shared memory", SIM_HERE);
    return 0x80000000u + fixed;
}
SIM_DEVICE void *__cvta_shared_to_generic(size_t a)
{
    unsigned low = (unsigned)a;
    return low < 0x80000000u ? sim_dynamic_shared() + (low - 0x40000000u)
                             : (char *)sim_static_base() + (low - 0x80000000u);
}
SIM_DEVICE size_t __cvta_generic_to_global(const volatile void *p) { return (size_t)p; }
SIM_DEVICE void *__cvta_global_to_generic(size_t a) { return (void *)a; }

/* ------------------------------------------------------------------------------------------ warp functions */

struct sim_shuffle_record {
    unsigned long long in, out;
    unsigned source, missing;
};

SIM_QUIET void sim_shuffle_combine(void *const *records, unsigned lanes)
{
    for (unsigned left = lanes; left; left &= left - 1) {
        sim_shuffle_record *r = (sim_shuffle_record *)records[__builtin_ctz(left)];
        r->missing = !(lanes >> r->source & 1);
        r->out = r->missing ? r->in : ((sim_shuffle_record *)records[r->source])->in;
    }
}

SIM_QUIET unsigned long long sim_shuffle(unsigned mask, unsigned long long in, unsigned source, const char *what,
                                         sim_place at)
{
    sim_shuffle_record r = {in, 0, source, 0};
    sim_warp(mask, sim_shuffle_combine, &r, 0, what, at);
    if (r.missing && sim_rt->strict)
        sim_fail(719, "a shuffle reads from a lane that takes no part in it", at);
    return r.out;
}

template <class T>
SIM_DEVICE T sim_shuffle_value(unsigned mask, T value, unsigned source, const char *what, sim_place at)
{
    static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = sim_shuffle(mask, bits, source, what, at);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}

template <class T> SIM_DEVICE T __shfl_sync(unsigned mask, T value, int source, int width = 32, SIM_AT)
{
    unsigned lane = sim_lane(), w = (unsigned)width;
    return sim_shuffle_value(mask, value, (lane & ~(w - 1)) + ((unsigned)source & (w - 1)), "__shfl_sync", SIM_HERE);
}
template <class T> SIM_DEVICE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SIM_AT)
{
    unsigned lane = sim_lane(), in_segment = lane & ((unsigned)width - 1);
    return sim_shuffle_value(mask, value, in_segment < delta ? lane : lane - delta, "__shfl_up_sync", SIM_HERE);
}
template <class T> SIM_DEVICE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SIM_AT)
{
    unsigned lane = sim_lane(), in_segment = lane & ((unsigned)width - 1);
    return sim_shuffle_value(mask, value, in_segment + delta >= (unsigned)width ? lane : lane + delta,
                             "__shfl_down_sync", SIM_HERE);
}
template <class T> SIM_DEVICE T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, SIM_AT)
{
    unsigned lane = sim_lane(), source = lane ^ (unsigned)lanes;
    unsigned end = (lane & ~((unsigned)width - 1)) + (unsigned)width;
    return sim_shuffle_value(mask, value, source >= end ? lane : source, "__shfl_xor_sync", SIM_HERE);
}

enum sim_reduction { SIM_ADD, SIM_MIN, SIM_MAX, SIM_AND, SIM_OR, SIM_XOR, SIM_BALLOT, SIM_MATCH };

struct sim_reduce_record {
    long long in, out;
    sim_reduction reduction;
};

SIM_QUIET void sim_reduce_combine(void *const *records, unsigned lanes)
{
    sim_reduce_record *first = (sim_reduce_record *)records[__builtin_ctz(lanes)];
    long long all = first->reduction == SIM_BALLOT ? 0 : first->in;
    for (unsigned left = lanes; left; left &= left - 1) {
        unsigned lane = (unsigned)__builtin_ctz(left);
        sim_reduce_record *r = (sim_reduce_record *)records[lane];
        switch (left == lanes && r->reduction != SIM_BALLOT ? SIM_MATCH : r->reduction) {
        case SIM_ADD: all += r->in; break;
        case SIM_MIN: all = r->in < all ? r->in : all; break;
        case SIM_MAX: all = r->in > all ? r->in : all; break;
        case SIM_AND: all &= r->in; break;
        case SIM_OR: all |= r->in; break;
        case SIM_XOR: all ^= r->in; break;
        case SIM_BALLOT: all |= (long long)(r->in != 0) << lane; break;
        case SIM_MATCH: break;
        }
    }
    for (unsigned left = lanes; left; left &= left - 1) {
        sim_reduce_record *r = (sim_reduce_record *)records[__builtin_ctz(left)];
        r->out = all;
        if (r->reduction == SIM_MATCH) {
            r->out = 0;
            for (unsigned other = lanes; other; other &= other - 1) {
                unsigned lane = (unsigned)__builtin_ctz(other);
                r->out |= (long long)(((sim_reduce_record *)records[lane])->in == r->in) << lane;
            }
        }
    }
}

SIM_QUIET long long sim_reduce(unsigned mask, long long in, sim_reduction reduction, const char *what, sim_place at)
{
    sim_reduce_record r = {in, 0, reduction};
    sim_warp(mask, sim_reduce_combine, &r, 0, what, at);
    return r.out;
}

/* Returns the lanes of the mask that exist. */
SIM_DEVICE unsigned sim_lanes_of(unsigned mask, sim_place at)
{
    return (unsigned)sim_reduce(mask, 1, SIM_BALLOT, "__ballot_sync", at);
}
SIM_DEVICE unsigned __ballot_sync(unsigned mask, int p, SIM_AT)
{
    return (unsigned)sim_reduce(mask, p, SIM_BALLOT, "__ballot_sync", SIM_HERE);
}
SIM_DEVICE int __any_sync(unsigned mask, int p, SIM_AT)
{
    return sim_reduce(mask, p != 0, SIM_OR, "__any_sync", SIM_HERE) != 0;
}
SIM_DEVICE int __all_sync(unsigned mask, int p, SIM_AT)
{
    return sim_reduce(mask, p != 0, SIM_AND, "__all_sync", SIM_HERE) != 0;
}
SIM_DEVICE unsigned __activemask() { return sim_rt->live_lanes(); }

template <class T> SIM_DEVICE unsigned __match_any_sync(unsigned mask, T value, SIM_AT)
{
    long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return (unsigned)sim_reduce(mask, bits, SIM_MATCH, "__match_any_sync", SIM_HERE);
}
template <class T> SIM_DEVICE unsigned __match_all_sync(unsigned mask, T value, int *all, SIM_AT)
{
    unsigned lanes = sim_lanes_of(mask, SIM_HERE);
    *all = __match_any_sync(mask, value, sim_file, sim_line) == lanes;
    return *all ? lanes : 0;
}

#define SIM_REDUCE(name, T, reduction)                                                 \
    SIM_DEVICE T __reduce_##name##_sync(unsigned mask, T v, SIM_AT)                    \
    {                                                                                  \
        return (T)sim_reduce(mask, v, reduction, "__reduce_" #name "_sync", SIM_HERE); \
    }
SIM_REDUCE(add, unsigned, SIM_ADD)
SIM_REDUCE(add, int, SIM_ADD)
SIM_REDUCE(min, unsigned, SIM_MIN)
SIM_REDUCE(min, int, SIM_MIN)
SIM_REDUCE(max, unsigned, SIM_MAX)
SIM_REDUCE(max, int, SIM_MAX)
SIM_REDUCE(and, unsigned, SIM_AND)
SIM_REDUCE(or, unsigned, SIM_OR)
SIM_REDUCE(xor, unsigned, SIM_XOR)

/* --------------------------------------------------------------------------------------------------- atomics */

/* Lets others run when a spinning thread has not got what it spins for. */
SIM_DEVICE void sim_spun(bool in_vain)
{
    if (in_vain)
        sim_yield();
}

/* Updates a 4- or 8-byte value atomically. It is acquire-release, so that the usual patterns of fence and
   counter are ordered for the thread sanitizer, too. */
template <class Bits, class T, class F> SIM_DEVICE T sim_atomic_update(T *p, F f)
{
    static_assert(sizeof(Bits) == sizeof(T), "");
    Bits before = __atomic_load_n((Bits *)p, __ATOMIC_RELAXED), after;
    T old, made;
    do {
        __builtin_memcpy(&old, &before, sizeof(T));
        made = f(old);
        __builtin_memcpy(&after, &made, sizeof(T));
    } while (!__atomic_compare_exchange_n((Bits *)p, &before, after, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return old;
}

#define SIM_ATOMIC_FETCH(Name, op, T) \
    SIM_DEVICE T Name(T *p, T v) { return __atomic_fetch_##op(p, v, __ATOMIC_ACQ_REL); }

#define SIM_ATOMIC_LOOP(Name, T, Bits, expression)                                 \
    SIM_DEVICE T Name(T *p, T v)                                                   \
    {                                                                              \
        return sim_atomic_update<Bits>(p, [=](T old) -> T { return expression; }); \
    }
#define SIM_ATOMIC_SCOPE(S)                                                                              \
    SIM_ATOMIC_FETCH(atomicAdd##S, add, int)                                                             \
    SIM_ATOMIC_FETCH(atomicAdd##S, add, unsigned)                                                        \
    SIM_ATOMIC_FETCH(atomicAdd##S, add, unsigned long long)                                              \
    SIM_ATOMIC_LOOP(atomicAdd##S, float, unsigned, old + v)                                              \
    SIM_ATOMIC_LOOP(atomicAdd##S, double, unsigned long long, old + v)                                   \
    SIM_ATOMIC_FETCH(atomicSub##S, sub, int)                                                             \
    SIM_ATOMIC_FETCH(atomicSub##S, sub, unsigned)                                                        \
    SIM_ATOMIC_INTEGERS(S, int, unsigned)                                                                \
    SIM_ATOMIC_INTEGERS(S, unsigned, unsigned)                                                           \
    SIM_ATOMIC_INTEGERS(S, long long, unsigned long long)                                                \
    SIM_ATOMIC_INTEGERS(S, unsigned long long, unsigned long long)                                       \
    SIM_ATOMIC_EXCHANGE(S, float, unsigned)                                                              \
    SIM_ATOMIC_CAS(S, unsigned short)                                                                    \
    SIM_ATOMIC_LOOP(atomicInc##S, unsigned, unsigned, old >= v ? 0u : old + 1)                           \
    SIM_ATOMIC_LOOP(atomicDec##S, unsigned, unsigned, old == 0 || old > v ? v : old - 1)                 \
    SIM_DEVICE float2 atomicAdd##S(float2 *p, float2 v)                                                  \
    {                                                                                                    \
        return make_float2(atomicAdd##S(&p->x, v.x), atomicAdd##S(&p->y, v.y));                          \
    }                                                                                                    \
    SIM_DEVICE float4 atomicAdd##S(float4 *p, float4 v)                                                  \
    {                                                                                                    \
        return make_float4(atomicAdd##S(&p->x, v.x), atomicAdd##S(&p->y, v.y), atomicAdd##S(&p->z, v.z), \
                           atomicAdd##S(&p->w, v.w));                                                    \
    }
#define SIM_ATOMIC_INTEGERS(S, T, Bits)                       \
    SIM_ATOMIC_LOOP(atomicMin##S, T, Bits, v < old ? v : old) \
    SIM_ATOMIC_LOOP(atomicMax##S, T, Bits, v > old ? v : old) \
    SIM_ATOMIC_FETCH(atomicAnd##S, and, T)                    \
    SIM_ATOMIC_FETCH(atomicOr##S, or, T)                      \
    SIM_ATOMIC_FETCH(atomicXor##S, xor, T)                    \
    SIM_ATOMIC_EXCHANGE(S, T, Bits)                           \
    SIM_ATOMIC_CAS(S, T)
#define SIM_ATOMIC_EXCHANGE(S, T, Bits)                                \
    SIM_DEVICE T atomicExch##S(T *p, T v)                              \
    {                                                                  \
        T old = sim_atomic_update<Bits>(p, [=](T) -> T { return v; }); \
        sim_spun(old == v);                                            \
        return old;                                                    \
    }
#define SIM_ATOMIC_CAS(S, T)                                                                           \
    SIM_DEVICE T atomicCAS##S(T *p, T expected, T v)                                                   \
    {                                                                                                  \
        T old = expected;                                                                              \
        sim_spun(!__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)); \
        return old;                                                                                    \
    }
SIM_ATOMIC_SCOPE()
SIM_ATOMIC_SCOPE(_block)
SIM_ATOMIC_SCOPE(_system)

/* ------------------------------------------------------------------------------- loads, stores, clocks, hints */

#define SIM_LOAD(name) \
    template <class T> SIM_DEVICE T name(const T *p) { return *p; }
#define SIM_STORE(name) \
    template <class T> SIM_DEVICE void name(T *p, T v) { *p = v; }
SIM_LOAD(__ldg)
SIM_LOAD(__ldca)
SIM_LOAD(__ldcs)
SIM_LOAD(__ldcg)
SIM_LOAD(__ldcv)
SIM_LOAD(__ldlu)
SIM_STORE(__stcs)
SIM_STORE(__stcg)
SIM_STORE(__stwb)
SIM_STORE(__stwt)

SIM_DEVICE long long clock64()
{
#if defined(__x86_64__)
    return (long long)__builtin_ia32_rdtsc();
#else
    long long t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#endif
}
typedef long clock_t;
SIM_DEVICE clock_t clock() { return (clock_t)clock64(); }
extern "C" int clock_gettime(int, void *) noexcept;
/* Returns nanoseconds of a clock that all processes share. */
SIM_DEVICE unsigned long long __globaltimer()
{
    long long t[2];
    clock_gettime(1, t); /* CLOCK_MONOTONIC */
    return (unsigned long long)t[0] * 1000000000u + (unsigned long long)t[1];
}

/* ----------------------------------------------------------------------------------------- kernel descriptors */

#if defined(__clang__)
template <class T, T... I> struct sim_sequence {
};
template <int N> using sim_indices = __make_integer_seq<sim_sequence, int, N>;
#else
template <class T, T... I> struct sim_sequence {
};
template <int N> using sim_indices = sim_sequence<int, __integer_pack(N)...>;
#endif

template <class... A> struct sim_parameters {
    static constexpr int count = sizeof...(A);
    static constexpr size_t sizes[count + 1] = {sizeof(A)..., 0};
    static constexpr size_t alignments[count + 1] = {alignof(A)..., 1};
    struct table {
        size_t at[count + 1];
    };
    static constexpr table lay_out()
    {
        table t = {};
        size_t end = 0;
        for (int i = 0; i < count; i++) {
            t.at[i] = (end + alignments[i] - 1) / alignments[i] * alignments[i];
            end = t.at[i] + sizes[i];
        }
        return t;
    }
    static constexpr table offsets = lay_out();
};

template <auto Kernel> struct sim_kernel_of;
template <class... A, void (*Kernel)(A...)> struct sim_kernel_of<Kernel> : sim_parameters<A...> {
    /* The arguments are its own copies, which no store of the kernel can reach: they stay in registers. */
    static inline __attribute__((always_inline)) void loop(const unsigned *begin, const unsigned *end, A... arguments)
    {
        unsigned x0 = begin[0], x1 = end[0], y1 = end[1], z1 = end[2];
        for (unsigned z = begin[2]; z < z1; z++)
            for (unsigned y = begin[1]; y < y1; y++)
                for (unsigned x = x0; x < x1; x++) {
                    sim_set_thread(x, y, z);
                    Kernel(arguments...);
                }
    }
    template <int... I>
    static void unpack(void *const *args, const unsigned *begin, const unsigned *end, sim_sequence<int, I...>)
    {
        loop(begin, end, *(A *)args[I]...);
    }
    static void run(void *const *args, const unsigned *begin, const unsigned *end)
    {
        unpack(args, begin, end, sim_indices<(int)sizeof...(A)>());
    }
};

#define SIM_ADDRESS_0(kernel) 0
#define SIM_ADDRESS_1(kernel) (const void *)kernel
#define SIM_ENTRY(name, has_address, max_threads, cluster, flags, ...)                   \
    {                                                                                    \
        name, SIM_ADDRESS_##has_address((__VA_ARGS__)), sim_kernel_of<__VA_ARGS__>::run, \
            sim_kernel_of<__VA_ARGS__>::count, sim_kernel_of<__VA_ARGS__>::sizes,        \
            sim_kernel_of<__VA_ARGS__>::offsets.at, max_threads, cluster, flags          \
    }

#define SIM_MODULE(table, count)                                                            \
    extern "C" const sim_module_info_t sim_module_info = {SIM_ABI_VERSION, SIM_LANE, table, \
                                                          count,           &sim_rt,  sim_enter_block};

#include "shim_math.h"
#include "shim_ptx.h"
#include "shim_hopper.h"

#endif
