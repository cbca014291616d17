// SPDX-License-Identifier: MIT
/*  test_f8_activations.c - models whose sequences multiply activations of e4m3: logits beside those of activations of
    bf16, folders of FP8, and what is refused */
#include "tensor.h"

#include "ignis_models.h"

#include "checkpoint.h"
#include "model.h"

#include <math.h>

enum { STEPS = 20, PROMPT = 70 };

static ignis_model open_f8(const char *path, ignis_weights weights, bool rounds)
{
    ignis_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.weights = weights;
    desc.dtype = IGNIS_BF16;
    desc.f8_activations = rounds;
    return ignis_model_open(&desc);
}

/*  Computes the logits behind `count` tokens, of a prompt or of one token after the other. */
static void logits_behind(ignis_model model, const ck_model *m, int count, bool is_prompt, float *logits)
{
    ignis_sequence sequence = ignis_sequence_begin(model);
    int32_t ids[PROMPT];
    int i;
    for (i = 0; i < count; i++)
        ids[i] = (i * 7 + 3) % m->vocab;
    for (i = 0; i < count; i += is_prompt ? count : 1) {
        CHECK_OK(ignis_sequence_feed(sequence, ids + i, is_prompt ? count : 1));
        CHECK_OK(ignis_sequence_logits(sequence, logits, m->vocab));
    }
    CHECK_OK(ignis_sequence_free(sequence));
}

/*  Returns how far the logits of a model with rounded activations are from those without, by the mean square of those.
    */
static double distance(const char *path, ignis_weights weights, const ck_model *m, int count, bool is_prompt)
{
    float *rounded = (float *)calloc((size_t)m->vocab, sizeof *rounded),
          *wanted = (float *)calloc((size_t)m->vocab, sizeof *wanted);
    ignis_model both[2];
    double error = 0, size = 0;
    int i;
    for (i = 0; i < 2; i++) {
        both[i] = open_f8(path, weights, i == 1);
        CHECK(both[i].id != 0);
        logits_behind(both[i], m, count, is_prompt, i ? rounded : wanted);
        CHECK_OK(ignis_model_free(both[i]));
    }
    for (i = 0; i < m->vocab; i++) {
        error += pow((double)rounded[i] - (double)wanted[i], 2);
        size += pow((double)wanted[i], 2);
    }
    free(rounded), free(wanted);
    if (getenv("IGNIS_TEST_SHOW"))
        printf("activations of e4m3: off by %g of the logits' mean square\n", sqrt(error / size));
    return sqrt(error / size);
}

static bool has_wgmma(void)
{
    ignis_device_info info;
    CHECK_OK(ignis_device_query(0, &info));
    return info.compute_major == 9;
}

/*  A rounded activation is off by about 0.026 of itself in the mean square, as a weight of F8 is. Four products round
    theirs, and a gate multiplies two results that are off: about 0.026 sqrt(5) = 0.058, and the rounding of bf16. */
TEST(logits_with_rounded_activations)
{
    ck_model m = wide;
    double far;
    SETUP(NULL);
    if (!has_wgmma())
        SKIP("the products need sm_90a");
    m.context = 96;
    ck_make(&m);
    ck_write_folder(&m, test_path("f"), IGNIS_BF16, 1);
    far = distance(test_path("f"), IGNIS_WEIGHTS_F8, &m, STEPS, false);
    CHECK(far > 0.001 && far < 0.08);
    far = distance(test_path("f"), IGNIS_WEIGHTS_F8, &m, PROMPT, true);
    CHECK(far > 0.001 && far < 0.08);
    ck_free(&m);
}

static bool weight_rounds_rows(ignis_tensor weight)
{
    ignis__array *array = ignis__borrow_array("test", weight);
    const bool rounds = array && array->blocks.count == 1 && array->blocks.rounds_rows;
    if (array)
        ignis__array_drop("test", array);
    return rounds;
}

/*  Weights of layers are multiplied with rounded rows, others are not. All weights of this folder are 1 times a scale,
    so elements of an activation are equal, and are rounded to what they are. */
TEST(a_folder_of_fp8_with_rounded_activations)
{
    ck_model m = wide;
    double far;
    SETUP(NULL);
    if (!has_wgmma())
        SKIP("the products need sm_90a");
    ck_make(&m);
    ck_write_packed(&m, test_path("q"), true, 8, "{\"quant_method\": \"fp8\"}");
    far = distance(test_path("q"), IGNIS_WEIGHTS_DEFAULT, &m, STEPS, false);
    CHECK(far < 0.03);
    ignis_model model = open_f8(test_path("q"), IGNIS_WEIGHTS_DEFAULT, true);
    ignis__model *held = ignis__model_hold("test", model);
    CHECK(weight_rounds_rows(held->layer[0].qkv) && weight_rounds_rows(held->layer[0].o));
    CHECK(weight_rounds_rows(held->layer[0].up) && weight_rounds_rows(held->layer[0].down));
    CHECK(!weight_rounds_rows(held->head) && !weight_rounds_rows(held->embedding));
    ignis__model_drop("test", held);
    CHECK_OK(ignis_model_free(model));
    ck_free(&m);
}

TEST(rounded_activations_that_are_refused)
{
    ck_model m = wide;
    ignis_model_desc desc;
    ignis_model_info info;
    ignis_device_info device;
    SETUP(NULL);
    CHECK_OK(ignis_device_query(0, &device));
    ck_make(&m);
    ck_write_folder(&m, test_path("f"), IGNIS_BF16, 1);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("f");
    desc.f8_activations = true;
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("desc->f8_activations is set, and no layer has F8 weights");
    desc.weights = IGNIS_WEIGHTS_Q8_0;
    CHECK_FAILS(ignis_model_open(&desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("no layer has F8 weights");
    desc.weights = IGNIS_WEIGHTS_F8;
    desc.dtype = IGNIS_F32;
    CHECK_FAILS(ignis_model_open(&desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("the model's dtype is f32; f16 or bf16 is expected");
    desc.dtype = IGNIS_F16;
    CHECK_OK(ignis_model_inspect(&desc, &info)); /* needs no device */
    ignis__devices[0].info.compute_major = 8, ignis__devices[0].info.compute_minor = 9;
    CHECK_FAILS(ignis_model_open(&desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("is of compute capability 8.9; 9.0 is needed");
    CHECK_MESSAGE_HAS("device 0 (");
    ignis__devices[0].info = device;
    ck_free(&m);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
