#pragma once
/*  The rows of a step of generation, and what one launch uploads. */

enum {
    IGNIS__PAGE = 16,          /* tokens of a page of the KV cache */
    IGNIS__DRAWS = 8,          /* draws of a row: steps of a sequence that can be queued */
    IGNIS__UPLOAD_I32S = 960,  /* i32 values that one launch uploads */
    IGNIS__UPLOAD_ROWS = 32,   /* rows that one launch uploads */
    IGNIS__DRAW_NO_TOKEN = -1, /* in place of an id: all tokens are forbidden */
    IGNIS__DRAW_NO_LOGITS = -2 /* in place of an id: no logit is above -infinity */
};

/*  The sampled token of a row. */
typedef struct ignis__generate_draw {
    /* id: or IGNIS__DRAW_NO_TOKEN, _NO_LOGITS; kept: tokens that the filters left, 0 if the row has no filters */
    int32_t id, kept;
    float log_prob; /* of the model itself: temperature 1, no filters */
} ignis__generate_draw;
IGNIS__ASSERT_SIZE(ignis__generate_draw, 12);

/*  A row: one token of one sequence. */
typedef struct ignis__generate_row {
    IGNIS__POINTER(int32_t) ids; /* of the sequence: ids[position] is this row's token */
    /* of the KV cache: pages[table + position / IGNIS__PAGE] has the position. table: where the pages of the layer's
       group begin, a parameter of the launch */
    IGNIS__POINTER(const int32_t) pages;
    int32_t position;    /* below 0: the row does not exist */
    int32_t top_k;       /* from here on: how ids[position + 1] is sampled; 0: all */
    double temperature;  /* 0: the likeliest token */
    double top_p, min_p; /* 0: all */
    double penalty;      /* 1: none */
    uint64_t seed;
    int32_t window; /* latest tokens that the penalty counts; 0: all */
    int32_t biases; /* of the row */
    int32_t turn;   /* of recurrent layers: see `states` */
    int32_t masked; /* the number, from 1 on, of the mask of allowed tokens; 0: all are allowed */
    int32_t checks; /* other than 0: ids stay as they are, as rows of the same step read them */
    IGNIS__POINTER(ignis__generate_draw) draws;             /* [IGNIS__DRAWS], in host memory, by position */
    IGNIS__POINTER(const struct ignis__lora_pair) adapters; /* the table of the sequence's adapters, or null */
    /* of recurrent layers: [2, elements of a state], in the wide type, or null. The state before the row is the
       ((position + turn) % 2)-th one, that after it becomes the other one */
    IGNIS__POINTER(void) states;
} ignis__generate_row;
IGNIS__ASSERT_SIZE(ignis__generate_row, 112);

typedef struct ignis__upload_words {
    int32_t at[IGNIS__UPLOAD_I32S];
} ignis__upload_words;

typedef struct ignis__upload_rows_of {
    ignis__generate_row at[IGNIS__UPLOAD_ROWS];
} ignis__upload_rows_of;
