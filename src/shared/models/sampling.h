#pragma once
/*  Params of the kernels that sample tokens. */

enum {
    IGNIS__DRAW_PARTS = 64, /* slices of a row's logits */
    IGNIS__DRAW_PART = 24,  /* bytes of the result of one */
    /* bytes of a draw_bins of kernels/models/generate_draw.cu */
    IGNIS__DRAW_BINS = 2048 * 12 + 32 + 16384 * 4 + IGNIS__DRAW_PARTS * 12
};

/*  A number that is added to a logit. The biases of a row are in the order of their ids. */
typedef struct ignis__generate_bias {
    int32_t id;
    float bias;
} ignis__generate_bias;
IGNIS__ASSERT_SIZE(ignis__generate_bias, 8);

typedef struct ignis__draw {
    IGNIS__POINTER(const float) logits; /* [rows, stride] */
    IGNIS__POINTER(float) scores;       /* of the same size */
    IGNIS__POINTER(ignis__generate_row) rows;
    IGNIS__POINTER(const ignis__generate_bias) biases; /* [rows, bias_room] */
    IGNIS__POINTER(struct draw_part) parts;            /* [rows, IGNIS__DRAW_PARTS] */
    IGNIS__POINTER(const uint32_t) masks;              /* [any number, mask_room]: a bit for each token */
    IGNIS__POINTER(struct draw_bins) bins;             /* [rows] */
    long long stride;
    int vocab, bias_room, mask_room;
} ignis__draw;
IGNIS__ASSERT_SIZE(ignis__draw, 80);
