// SPDX-License-Identifier: MIT
/*  published_values.h - written by published_values.py, which says how: texts of SmolLM2-135M-Instruct (Q4_1)

    A prompt, its ids, and the likeliest tokens after it; the last one is a chat. Its answer ends by itself.
    The least difference of two logits that decide about a token is 0.082. */
static const struct published_case {
    const char *prompt;
    int32_t ids[64];
    int count;
    int32_t answer[16];
    int answer_count;
} published_cases[] = {
    {"The capital of France is", {504, 3575, 282, 4649, 314}, 5, {7042, 30, 198, 198, 504, 2988, 314, 42}, 8},
    {"1, 2, 3, 4, 5, 6,",
     {33, 28, 216, 34, 28, 216, 35, 28, 216, 36, 28, 216, 37, 28, 216, 38, 28},
     17,
     {216, 39, 28, 216, 40, 28, 216, 41},
     8},
    {"def add(a, b):\n    return",
     {1604, 803, 24, 81, 28, 278, 727, 472, 1003},
     9,
     {253, 1232, 278, 198, 198, 19, 12066, 6486},
     8},
    {"What is the capital of France?",
     {1, 9690, 198, 2683, 359, 253,  5356, 5646, 11173, 3365, 3511, 308, 34519, 28,  7018, 411, 407,  19712, 8182,
      2, 198,  1,   4093, 198, 1780, 314,  260,  3575,  282,  4649, 47,  2,     198, 1,    520, 9531, 198},
     37,
     {504, 3575, 282, 4649, 314, 7042, 30, 2},
     8},
};

static const char published_text[] = "The sky is blue because air scatters short waves of light more than long ones. "
                                     "In the evening the light comes a longer way, and the sun looks red.";
enum { PUBLISHED_TOKENS = 33 }; /* of this text */
static const double published_perplexity = 56.823402763;
