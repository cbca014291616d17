// SPDX-License-Identifier: MIT
/*  test_split_master.c - f32 copies of bf16 parameters in two parts: the bits of copies in one */
#include "tensor.h"

enum { COUNT = 3001, STEPS = 8 };

typedef struct trained {
    ignis_tensor parameter;
    ignis_optimizer optimizer;
} trained;

static uint32_t random_bits(uint32_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 17, *state ^= *state << 5;
    return *state;
}

static trained trained_of(bool splits, bool adam, const float *values)
{
    ignis_adamw_desc adamw;
    ignis_tensor_desc desc;
    trained made;
    memset(&adamw, 0, sizeof adamw);
    memset(&desc, 0, sizeof desc);
    desc.dtype = IGNIS_BF16;
    desc.requires_grad = true;
    adamw.lr = 1e-3, adamw.weight_decay = 0.01;
    adamw.coupled = adam;
    adamw.zero_grad = true;
    adamw.split_master = splits;
    made.parameter = ignis_tensor_from_host(values, IGNIS_SHAPE(COUNT), &desc);
    made.optimizer = ignis_adamw(&adamw);
    CHECK_OK(ignis_optimizer_add(made.optimizer, made.parameter, true));
    return made;
}

static void trained_end(trained *t)
{
    CHECK_OK(ignis_optimizer_free(t->optimizer));
    CHECK_OK(ignis_tensor_release(t->parameter));
}

static void step(trained *t, ignis_tensor factors)
{
    ignis_scope scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(ignis_sum(ignis_mul(t->parameter, factors)), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_optimizer_step(t->optimizer));
    CHECK_OK(ignis_scope_end(scope));
}

/*  The f32 copy that the parameter and its low bits stand for. */
static uint32_t copy_of(uint16_t high, uint16_t low)
{
    return ((uint32_t)high - (low >= 0x8000 && (high & 0x7FFF) != 0)) << 16 | low;
}

TEST(steps_have_the_bits_of_a_copy_in_one)
{
    static float values[COUNT], whole[COUNT];
    static uint16_t high[COUNT], low[COUNT], plain[COUNT];
    uint32_t state = 88172645, bits;
    ignis_tensor_desc desc;
    ignis_tensor factors;
    trained one, two;
    int i, at, adam, rounded = 0;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.dtype = IGNIS_BF16;
    for (adam = 0; adam < 2; adam++) {
        for (at = 0; at < COUNT; at++)
            values[at] = at % 7 ? ((float)random_bits(&state) / 4294967296.0f - 0.5f) / 8 : 0;
        one = trained_of(false, adam, values);
        two = trained_of(true, adam, values);
        for (i = 0; i < STEPS; i++) {
            for (at = 0; at < COUNT; at++)
                values[at] = at % 5 ? (float)random_bits(&state) / 4294967296.0f - 0.5f : 0;
            factors = ignis_tensor_from_host(values, IGNIS_SHAPE(COUNT), &desc);
            step(&one, factors);
            step(&two, factors);
            CHECK_OK(ignis_tensor_release(factors));
        }
        CHECK_OK(ignis_array_to_host(ignis_optimizer_state(one.optimizer, 0, IGNIS_OPTIMIZER_MASTER), whole, IGNIS_F32,
                                     COUNT));
        CHECK_OK(
            ignis_array_to_host_raw(ignis_optimizer_state(two.optimizer, 0, IGNIS_OPTIMIZER_MASTER), low, sizeof low));
        CHECK_OK(ignis_array_to_host_raw(ignis_tensor_data(two.parameter), high, sizeof high));
        CHECK_OK(ignis_array_to_host_raw(ignis_tensor_data(one.parameter), plain, sizeof plain));
        for (at = 0; at < COUNT; at++) {
            memcpy(&bits, &whole[at], sizeof bits);
            CHECK_INT(copy_of(high[at], low[at]), bits);
            CHECK(high[at] == plain[at] || low[at] == 0x8000);
            rounded += low[at] >= 0x8000;
        }
        trained_end(&one);
        trained_end(&two);
    }
    CHECK(rounded > COUNT / 2);
}

/*  A step of a gradient of 0 keeps any value: ties, the smallest and the largest numbers, infinity. */
TEST(every_value_survives)
{
    static const uint32_t known[] = {0,          0x80000000, 1,          0x80000001, 0x7FFF,     0x8000,     0x8001,
                                     0xFFFF,     0x10000,    0x3F808000, 0x3F818000, 0xBF808000, 0xBF807FFF, 0x7F7FFFFF,
                                     0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x007FFFFF, 0x00800000};
    static float zeros[COUNT];
    static uint32_t bits[COUNT];
    static uint16_t high[COUNT], low[COUNT];
    uint32_t state = 362436069;
    ignis_adamw_desc adamw;
    ignis_array lows;
    trained t;
    int at;
    SETUP(NULL);
    t = trained_of(true, false, zeros);
    memset(&adamw, 0, sizeof adamw);
    adamw.split_master = true, adamw.zero_grad = true;
    CHECK_OK(ignis_optimizer_free(t.optimizer));
    t.optimizer = ignis_adamw(&adamw);
    CHECK_OK(ignis_optimizer_add(t.optimizer, t.parameter, false));
    lows = ignis_optimizer_state(t.optimizer, 0, IGNIS_OPTIMIZER_MASTER);
    for (at = 0; at < COUNT; at++) {
        bits[at] = at < COUNT_OF(known) ? known[at] : random_bits(&state);
        if ((bits[at] & 0x7F800000) == 0x7F800000)
            bits[at] &= 0xFF800000; /* not NaN */
        high[at] = (uint16_t)((bits[at] + 0x8000) >> 16);
        low[at] = (uint16_t)bits[at];
    }
    CHECK_OK(ignis_array_from_host_raw(ignis_tensor_data(t.parameter), high, sizeof high));
    CHECK_OK(ignis_array_from_host_raw(lows, low, sizeof low));
    CHECK_OK(ignis_zero_grad(t.parameter));
    CHECK_OK(ignis_optimizer_step(t.optimizer));
    CHECK_OK(ignis_array_to_host_raw(ignis_tensor_data(t.parameter), high, sizeof high));
    CHECK_OK(ignis_array_to_host_raw(lows, low, sizeof low));
    for (at = 0; at < COUNT; at++)
        CHECK_INT(copy_of(high[at], low[at]), bits[at]);
    trained_end(&t);
}

static ignis_training training_of(trained *t)
{
    static const char *const names[] = {"weight"};
    ignis_training_desc desc;
    ignis_training training;
    memset(&desc, 0, sizeof desc);
    desc.names = names, desc.tensors = &t->parameter, desc.count = 1;
    desc.optimizers = &t->optimizer, desc.optimizer_count = 1;
    training = ignis_training_create(&desc);
    CHECK(training.id);
    return training;
}

/*  A saved training continues with the bits; one with copies in one does not take it. */
TEST(files_have_the_low_bits)
{
    static float values[COUNT];
    static uint16_t high[2][COUNT], low[2][COUNT];
    uint32_t state = 521288629;
    ignis_tensor_desc desc;
    ignis_tensor factors;
    ignis_training training;
    trained t[2], other;
    char folder[100];
    int i, at;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.dtype = IGNIS_BF16;
    for (at = 0; at < COUNT; at++)
        values[at] = (float)random_bits(&state) / 4294967296.0f - 0.5f;
    snprintf(folder, sizeof folder, "%s/split", test_folder);
    factors = ignis_tensor_from_host(values, IGNIS_SHAPE(COUNT), &desc);
    t[0] = trained_of(true, false, values);
    step(&t[0], factors);
    step(&t[0], factors);
    training = training_of(&t[0]);
    CHECK_OK(ignis_training_save(training, folder));
    CHECK_OK(ignis_training_wait(training));
    CHECK_OK(ignis_training_free(training));
    memset(values, 0, sizeof values);
    t[1] = trained_of(true, false, values);
    training = training_of(&t[1]);
    CHECK_OK(ignis_training_load(training, folder));
    CHECK_OK(ignis_training_free(training));
    for (i = 0; i < 2; i++) {
        step(&t[i], factors);
        CHECK_OK(ignis_array_to_host_raw(ignis_optimizer_state(t[i].optimizer, 0, IGNIS_OPTIMIZER_MASTER), low[i],
                                         sizeof low[i]));
        CHECK_OK(ignis_array_to_host_raw(ignis_tensor_data(t[i].parameter), high[i], sizeof high[i]));
        trained_end(&t[i]);
    }
    CHECK(memcmp(low[0], low[1], sizeof low[0]) == 0);
    CHECK(memcmp(high[0], high[1], sizeof high[0]) == 0);
    other = trained_of(false, false, values);
    training = training_of(&other);
    CHECK(ignis_training_load(training, folder) != IGNIS_OK);
    CHECK_HAS(ignis_status_message(), ".master_low.");
    ignis_status_clear();
    CHECK_OK(ignis_training_free(training));
    trained_end(&other);
    CHECK_OK(ignis_tensor_release(factors));
}

TEST(what_does_not_fit_is_refused)
{
    ignis_adamw_desc desc;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.split_master = true;
    desc.ema_decay = 0.9;
    CHECK_FAILS(ignis_adamw(&desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("ema_decay");
    desc.ema_decay = 0;
    desc.no_master = true;
    CHECK_FAILS(ignis_adamw(&desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("no_master");
}

int main(int argc, char **argv) { return test_run(argc, argv); }
