/*  prototypes.cpp - compares the loader tables of ignis.h with the CUDA toolkit's headers, while it compiles

    Ignis declares the functions that it loads itself: ints stand for enums, void * for handles, uint64_t for device addresses.
    A prototype fits the toolkit's when it has as many parameters, each of the same size and kind. One that does not stops the
    compiler with the function's name. tools/check_prototypes.sh compiles this, and also with each of the two planted mistakes. */
#define IGNIS_IMPLEMENTATION
#include "../ignis.h"

#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>

#include <type_traits>

enum kind { KIND_POINTER, KIND_NUMBER, KIND_FLOATING, KIND_STRUCT, KIND_VOID };

template <typename T> constexpr kind kind_of()
{
    return std::is_pointer<T>::value ? KIND_POINTER
           : std::is_floating_point<T>::value ? KIND_FLOATING
           : std::is_integral<T>::value || std::is_enum<T>::value ? KIND_NUMBER
           : std::is_void<T>::value ? KIND_VOID
                                    : KIND_STRUCT;
}

template <typename A, typename B> struct same_value {
    static constexpr bool value = kind_of<A>() == kind_of<B>() && sizeof(A) == sizeof(B);
};
template <> struct same_value<void, void> {
    static constexpr bool value = true;
};

template <typename A, typename B> struct fits {
    static constexpr bool value = false;
};
template <typename A, typename B> struct fits<A(), B()> {
    static constexpr bool value = same_value<A, B>::value;
};
template <typename A, typename B, typename A1, typename B1, typename... As, typename... Bs> struct fits<A(A1, As...), B(B1, Bs...)> {
    static constexpr bool value = same_value<A1, B1>::value && fits<A(As...), B(Bs...)>::value;
};

#define CHECK(result, name, parameters, version, required) \
    static_assert(fits<result parameters, decltype(::name)>::value, "the prototype of " #name " differs from the toolkit's");

IGNIS__CUDA_API(CHECK)
IGNIS__NVRTC_API(CHECK)
IGNIS__CUBLASLT_API(CHECK)

#ifdef PLANTED_SIZE
CHECK(int, cuMemFree_v2, (int), 0, 1)
#endif
#ifdef PLANTED_COUNT
CHECK(int, cuMemFree_v2, (uint64_t, int), 0, 1)
#endif

int main() { return 0; }
