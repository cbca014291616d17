#pragma once
/*  dst += src for many arrays in one launch. Each takes ceil(n / 4096) blocks from its first_block on. */
typedef struct ignis__addend {
    IGNIS__POINTER(T) dst;
    IGNIS__POINTER(const T) src;
    long long n, first_block;
} ignis__addend;
IGNIS__ASSERT_SIZE(ignis__addend, 32);

enum { IGNIS__ADDENDS = 100 }; /* in one launch: they fit a kernel's params */

typedef struct ignis__addends {
    ignis__addend at[IGNIS__ADDENDS];
} ignis__addends;
IGNIS__ASSERT_SIZE(ignis__addends, 3200);
