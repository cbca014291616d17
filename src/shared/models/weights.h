#pragma once
/*  Quantised weights; kernels/models/blocks.cuh has the layout of records. */
typedef struct ignis__quantised_weight {
    IGNIS__POINTER(const uint8_t) records, scales; /* scales: d of Q6_K, [rows, records] */
    long long k;
    int type; /* an ignis__gguf_type */
} ignis__quantised_weight;
IGNIS__ASSERT_SIZE(ignis__quantised_weight, 32);
