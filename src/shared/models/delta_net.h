#pragma once
/*  Params of the kernels of recurrent layers, see generate/delta_net.c. Kernels define T, the type of elements, and
    Wide, that of states. Rows of one sequence follow each other: `tokens` of each sequence. */
typedef struct ignis__delta_net {
    IGNIS__POINTER(const ignis__generate_row) rows;
    IGNIS__POINTER(const T) qkvz;       /* [rows, channels + width] */
    IGNIS__POINTER(T) mixed;            /* [rows, channels]: q, k and v after the convolution */
    IGNIS__POINTER(const T) strengths;  /* [rows, 2, heads of v]: strengths, then decays, before their functions */
    IGNIS__POINTER(T) out;              /* [rows, width] */
    IGNIS__POINTER(const T) conv, norm; /* [channels, window], [v] */
    IGNIS__POINTER(const Wide) decay_log, decay_bias; /* [heads of v] */
    long long state;                                  /* elements of a sequence's state of all layers */
    long long layer;                                  /* where the layer's state begins in it */
    double eps;
    int tokens;
    int heads, v_heads, k, v; /* heads of q and k, and of v; elements of a head of each */
    int channels, width;      /* of q, k and v together; of v */
    int window;               /* tokens that the convolution reads */
    int tiled;                /* see ignis__model */
    int unused;
} ignis__delta_net;
IGNIS__ASSERT_SIZE(ignis__delta_net, 136);
