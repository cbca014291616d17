/*  base/atomic.c - atomic 64-bit integers, and positions of bits

    Loads acquire, stores release, read-modify-write does both. GCC and clang use builtins, Microsoft's compiler
    intrinsics.
    May use: compiler.c. */

#include "room.h"

/*  Atomics: acquire on load, release on store, both on read-modify-write. */
#if defined(__GNUC__)
IGNIS__INLINE IGNIS__PRIVATE uint64_t ignis__atomic_load(const uint64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
IGNIS__INLINE IGNIS__PRIVATE void ignis__atomic_store(uint64_t *at, uint64_t value)
{
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}
IGNIS__INLINE IGNIS__PRIVATE uint64_t ignis__atomic_add(uint64_t *at, uint64_t value)
{
    return __atomic_add_fetch(at, value, __ATOMIC_ACQ_REL);
}
IGNIS__INLINE IGNIS__PRIVATE bool ignis__atomic_swap_if(uint64_t *at, uint64_t *expected, uint64_t value)
{
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
IGNIS__PRIVATE int ignis__log2(uint64_t value) { return 63 - __builtin_clzll(value); }
IGNIS__PRIVATE int ignis__lowest_bit(uint64_t value) { return __builtin_ctzll(value); }
#else
IGNIS__INLINE IGNIS__PRIVATE uint64_t ignis__atomic_load(const uint64_t *at)
{
    uint64_t value = (uint64_t)__iso_volatile_load64((const volatile __int64 *)at);
#ifdef _M_ARM64
    __dmb(_ARM64_BARRIER_ISH);
#else
    _ReadWriteBarrier(); /* the processor keeps the order by itself */
#endif
    return value;
}
IGNIS__INLINE IGNIS__PRIVATE void ignis__atomic_store(uint64_t *at, uint64_t value)
{
    _InterlockedExchange64((volatile __int64 *)at, (__int64)value);
}
IGNIS__INLINE IGNIS__PRIVATE uint64_t ignis__atomic_add(uint64_t *at, uint64_t value)
{
    return (uint64_t)_InterlockedExchangeAdd64((volatile __int64 *)at, (__int64)value) + value;
}
IGNIS__INLINE IGNIS__PRIVATE bool ignis__atomic_swap_if(uint64_t *at, uint64_t *expected, uint64_t value)
{
    uint64_t was = (uint64_t)_InterlockedCompareExchange64((volatile __int64 *)at, (__int64)value, (__int64)*expected);
    bool swapped = was == *expected;
    *expected = was;
    return swapped;
}
IGNIS__PRIVATE int ignis__log2(uint64_t value)
{
    unsigned long bit;
    _BitScanReverse64(&bit, value);
    return (int)bit;
}
IGNIS__PRIVATE int ignis__lowest_bit(uint64_t value)
{
    unsigned long bit;
    _BitScanForward64(&bit, value);
    return (int)bit;
}
#endif
