// SPDX-License-Identifier: MIT
/*  test_generate_parallel.c - models that several ranks share: the scores of one GPU up to rounding, the same bits on
    all ranks */
#include "fault.h"
#include "tensor.h"

#include "ignis_collective.h"
#include "ignis_models.h"

#include "checkpoint.h"
#include "processes.h"

#include <math.h>

enum { RANKS_MAX = 4, VOCAB = 53, CONTEXT = 160, SHORT = 21, LONG = 90, SCORES = 4, TEXT = 64 };

static ck_model gpt2 = {.family = "gpt2", .kv_heads = 4, .tied = true, .seed = 1};
static ck_model llama = {.family = "llama", .kv_heads = 4, .biases = true, .theta = 10000, .seed = 2};
static ck_model qwen2 = {.family = "qwen2", .kv_heads = 4, .tied = true, .theta = 1e6, .seed = 4};
static ck_model qwen3 = {.family = "qwen3", .kv_heads = 4, .theta = 1e6, .seed = 5};
static ck_model *const models[] = {&gpt2, &llama, &qwen2, &qwen3};
enum { MODELS = 4 };

/*  Writes model.gguf, or a folder of shards. */
static const char *model_written(const ck_model *of, bool is_gguf, int type, ignis_dtype dtype)
{
    ck_model m = *of;
    ck_bytes file;
    m.layers = 2;
    m.hidden = m.inner = 64;
    m.heads = ck_is_gpt2(&m) ? 4 : 8;
    m.head_dim = ck_is_gpt2(&m) ? 16 : 8;
    m.vocab = VOCAB;
    m.context = CONTEXT;
    m.eps = 1e-5;
    ck_make(&m);
    if (is_gguf) {
        file = ck_gguf(&m, type, NULL);
        test_write_file(test_path("m.gguf"), file.data, file.size);
        free(file.data);
    } else {
        ck_write_folder(&m, test_path("m"), dtype == IGNIS_F64 ? IGNIS_F32 : dtype, 2);
    }
    ck_free(&m);
    return test_path(is_gguf ? "m.gguf" : "m");
}

/* --- ranks as threads --------------------------------------------------------------------------------------------- */

typedef struct rank rank;

typedef struct run {
    int ranks;
    double timeout_s;
    char path[128];
    ignis_dtype dtype;
    void (*work)(rank *r, ignis_model model);
} run;

struct rank {
    const run *of;
    int number;
    ignis_comm comm;
    float scores[SCORES][VOCAB];
    int32_t text[TEXT];
    int length;
    double log_prob;
    ignis_status status;
    ignis_model_info info;
};

static void *rank_run(void *context)
{
    rank *r = (rank *)context;
    ignis_model_desc desc;
    ignis_model model;
    CHECK_OK(ignis_device_use(r->number));
    memset(&desc, 0, sizeof desc);
    desc.path = r->of->path;
    desc.dtype = r->of->dtype;
    desc.sequences = 2;
    desc.weights = IGNIS_WEIGHTS_NUMBERS; /* as shares are always */
    if (r->of->ranks > 1)
        desc.parallel = ignis_comm_parallel(r->comm);
    model = ignis_model_open(&desc);
    CHECK(model.id);
    if (model.id) {
        CHECK_OK(ignis_model_query(model, &r->info));
        r->of->work(r, model);
        CHECK_OK(ignis_model_free(model));
    }
    return NULL;
}

static void run_ranks(const run *of, rank *ranks)
{
    pthread_t threads[RANKS_MAX];
    ignis_comm comms[RANKS_MAX];
    ignis_comm_desc desc;
    int i;
    memset(ranks, 0, sizeof *ranks * (size_t)of->ranks);
    memset(comms, 0, sizeof comms);
    memset(&desc, 0, sizeof desc);
    desc.timeout_s =
        of->timeout_s > 0 ? of->timeout_s : 240; /* four ranks compile their kernels beside other tests on two cores */
    if (of->ranks > 1)
        CHECK_OK(ignis_comm_init_all(comms, NULL, of->ranks, &desc));
    for (i = 0; i < of->ranks; i++) {
        ranks[i].of = of;
        ranks[i].number = i;
        ranks[i].comm = comms[i];
        pthread_create(&threads[i], NULL, rank_run, &ranks[i]);
    }
    for (i = 0; i < of->ranks; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; of->ranks > 1 && i < of->ranks; i++)
        CHECK_OK(ignis_comm_destroy(comms[i]));
}

static void prompt_fill(int32_t *ids, int count)
{
    int i;
    for (i = 0; i < count; i++)
        ids[i] = (i * 31 + 7 * (i / 5)) % VOCAB;
}

static void text_add(rank *r, int32_t id)
{
    CHECK(id >= 0);
    if (r->length < TEXT)
        r->text[r->length++] = id;
}

/*  All that sequences do. The scores follow from prompts alone, and not from what is drawn. */
static void speak(rank *r, ignis_model model)
{
    ignis_sampling_desc sampling[2];
    ignis_sequence_info info;
    ignis_sequence both[2];
    ignis_generate_desc generate;
    int32_t ids[LONG], drawn[2];
    int i;
    memset(sampling, 0, sizeof sampling);
    prompt_fill(ids, LONG);
    sampling[0].temperature = sampling[1].temperature = 0.9;
    sampling[0].seed = 5, sampling[1].seed = 6;
    sampling[1].top_k = 20;
    both[0] = ignis_sequence_begin(model);
    CHECK_OK(ignis_sequence_feed(both[0], ids, SHORT));
    CHECK_OK(ignis_sequence_logits(both[0], r->scores[0], VOCAB));
    for (i = 0; i < 5; i++) /* a step, its graph captured, the graph again */
        text_add(r, ignis_sequence_next(both[0], NULL));
    for (i = 0; i < 8; i++)
        text_add(r, ignis_sequence_next(both[0], &sampling[0]));
    both[1] = ignis_sequence_fork(both[0]);
    CHECK(both[1].id);
    for (i = 0; i < 5; i++) {
        CHECK_OK(ignis_sequence_next_all(both, 2, sampling, drawn));
        text_add(r, drawn[0]), text_add(r, drawn[1]);
    }
    CHECK_OK(ignis_sequence_query(both[1], &info));
    r->log_prob = info.log_prob;
    CHECK_OK(ignis_sequence_truncate(both[0], SHORT - 8));
    CHECK_OK(ignis_sequence_logits(both[0], r->scores[1], VOCAB));
    CHECK_OK(ignis_sequence_free(both[1]));
    memset(&generate, 0, sizeof generate);
    generate.sampling = sampling[1];
    generate.max_tokens = 10;
    generate.end_count = -1;
    CHECK_OK(ignis_generate(both[0], &generate));
    CHECK_INT(ignis_sequence_length(both[0]), SHORT - 8 + 10);
    CHECK_INT(ignis_sequence_ids(both[0], ids, LONG), SHORT - 8 + 10);
    for (i = SHORT - 8; i < SHORT - 8 + 10; i++)
        text_add(r, ids[i]);
    prompt_fill(ids, LONG);
    CHECK_OK(ignis_sequence_set(both[0], ids, 5));
    CHECK_OK(ignis_sequence_feed(both[0], ids + 5, LONG - 5)); /* more than 64 at a time */
    CHECK_OK(ignis_sequence_logits(both[0], r->scores[2], VOCAB));
    CHECK_OK(ignis_sequence_logits(both[0], r->scores[3], VOCAB));
    CHECK_OK(ignis_sequence_free(both[0]));
}

static double greatest(const float *scores)
{
    double most = 0;
    int i;
    for (i = 0; i < VOCAB; i++)
        most = fabs((double)scores[i]) > most ? fabs((double)scores[i]) : most;
    return most;
}

static void compare(const rank *many, int ranks, const rank *one, double tolerance, const char *name)
{
    int i, k, r;
    for (r = 1; r < ranks; r++) {
        CHECK(memcmp(many[r].scores, many[0].scores, sizeof many[0].scores) == 0);
        CHECK_INT(many[r].length, many[0].length);
        CHECK(memcmp(many[r].text, many[0].text, sizeof many[0].text) == 0);
        CHECK(many[r].log_prob == many[0].log_prob);
    }
    CHECK_INT(many[0].length, 5 + 8 + 10 + 10);
    for (k = 0; k < SCORES; k++) {
        double worst = 0, most = greatest(one->scores[k]);
        for (i = 0; i < VOCAB; i++)
            worst = fmax(worst, fabs((double)many[0].scores[k][i] - (double)one->scores[k][i]));
        if (!(worst <= tolerance * most))
            printf("%s, %d ranks, scores %d: %g of %g away from one GPU's\n", name, ranks, k, worst, most);
        CHECK(most > 0 && worst <= tolerance * most);
    }
}

static void check_shared(const ck_model *m, bool is_gguf, int type, ignis_dtype dtype, int most_ranks, double tolerance)
{
    static rank one[1], many[RANKS_MAX];
    run of;
    memset(&of, 0, sizeof of);
    snprintf(of.path, sizeof of.path, "%s", model_written(m, is_gguf, type, dtype));
    of.dtype = dtype;
    of.work = speak;
    of.ranks = 1;
    run_ranks(&of, one);
    for (of.ranks = 2; of.ranks <= most_ranks; of.ranks += 2) {
        run_ranks(&of, many);
        compare(many, of.ranks, one, tolerance, m->family);
        CHECK_INT(many[1].info.rank, 1);
        CHECK_INT(many[1].info.ranks, of.ranks);
        CHECK_INT(many[1].info.heads, one->info.heads);
        CHECK_INT(many[1].info.inner, one->info.inner);
        CHECK_INT(many[1].info.cache_bytes_of_token * of.ranks, one->info.cache_bytes_of_token);
        CHECK(many[1].info.weight_bytes < one->info.weight_bytes);
    }
}

TEST(two_ranks_of_every_family)
{
    int i;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    for (i = 0; i < MODELS; i++)
        check_shared(models[i], false, 0, IGNIS_F32, 2, 2e-5);
}

TEST(four_ranks)
{
    SETUP(NULL);
    NEEDS_DEVICES(4);
    check_shared(&qwen3, false, 0, IGNIS_F32, 4, 2e-5);
    if (test_takes_all()) /* with biases, as two ranks have it */
        check_shared(&gpt2, false, 0, IGNIS_F32, 4, 2e-5);
}

TEST(other_dtypes)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    check_shared(&llama, false, 0, IGNIS_BF16, 2, 4e-2);
    check_shared(&llama, false, 0, IGNIS_F64, 2, 1e-6); /* scores are f32 */
    if (test_takes_all())                               /* the kernels of bf16 with another type */
        check_shared(&gpt2, false, 0, IGNIS_F16, 2, 5e-3);
}

/*  Rows of q and k change places, and rows of quantised weights are cut between blocks. */
TEST(gguf_files)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    check_shared(&gpt2, true, 0, IGNIS_F32, 2, 2e-5);
    check_shared(&llama, true, 0, IGNIS_F32, 2, 2e-5);
    check_shared(&llama, true, 3, IGNIS_F32, 2, 2e-5);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static ignis_status inspect(const char *path, int number, int ranks, ignis_model_info *info)
{
    ignis_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.parallel.rank = number;
    desc.parallel.size = ranks;
    return ignis_model_inspect(&desc, info);
}

TEST(a_rank_knows_what_it_takes)
{
    ignis_model_info one, info;
    int64_t parameters = 0, bytes = 0;
    int i;
    SETUP(NULL);
    model_written(&llama, false, 0, IGNIS_F32);
    CHECK_OK(inspect(test_path("m"), 0, 0, &one));
    CHECK_INT(one.ranks, 1);
    for (i = 0; i < 4; i++) {
        CHECK_OK(inspect(test_path("m"), i, 4, &info));
        CHECK_INT(info.file_bytes, 4 * info.parameters);
        parameters += info.parameters;
        bytes += info.weight_bytes;
    }
    /* embedding, 5 norms and biases of o and down are there 4 times, the rest once */
    CHECK_INT(parameters, one.parameters + 3 * (VOCAB * 64 + 5 * 64 + 2 * 2 * 64));
    CHECK_INT(bytes, 4 * parameters);
}

#define CHECK_SAYS(call, expected, words)                     \
    do {                                                      \
        CHECK_INT(call, expected);                            \
        CHECK(strstr(ignis_status_message(), words) != NULL); \
        if (!strstr(ignis_status_message(), words))           \
            printf("message: %s\n", ignis_status_message());  \
        ignis_status_clear();                                 \
    } while (0)

TEST(shares_that_cannot_be)
{
    ignis_model_desc desc;
    ignis_model_info info;
    ignis_comm none = {0};
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.path = model_written(&llama, false, 0, IGNIS_F32);
    CHECK_SAYS(inspect(desc.path, 0, 3, &info), IGNIS_ERROR_UNSUPPORTED, "8 heads cannot be shared by 3 ranks");
    CHECK_SAYS(inspect(desc.path, 0, 8, &info), IGNIS_ERROR_UNSUPPORTED,
               "4 heads of keys and values cannot be shared by 8 ranks");
    CHECK_SAYS(inspect(desc.path, 2, 2, &info), IGNIS_ERROR_ARGUMENT, "rank 2 of 2");
    CHECK_SAYS(inspect(desc.path, -1, 2, &info), IGNIS_ERROR_ARGUMENT, "rank -1 of 2");
    CHECK_SAYS(inspect(desc.path, 0, 65, &info), IGNIS_ERROR_ARGUMENT, "up to 64");
    CHECK_INT(ignis_comm_parallel(none).size, -1);
    ignis_status_clear();
    desc.parallel = ignis_comm_parallel(none);
    ignis_status_clear();
    CHECK_INT(ignis_model_open(&desc).id, 0);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_ARGUMENT);
    ignis_status_clear();
    desc.parallel.size = 2;
    CHECK_INT(ignis_model_open(&desc).id, 0);
    CHECK(strstr(ignis_status_message(), "sum_fn") != NULL);
    ignis_status_clear();
    desc.requires_grad = true;
    CHECK_SAYS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_UNSUPPORTED, "no gradients");
    desc.requires_grad = false;
    desc.weights = IGNIS_WEIGHTS_Q4_0;
    CHECK_SAYS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_UNSUPPORTED, "shares are numbers");
    desc.weights = IGNIS_WEIGHTS_DEFAULT;
    desc.path = model_written(&llama, true, 3, IGNIS_F32); /* Q8_0: 64 elements of a row of o are two blocks */
    CHECK_OK(inspect(desc.path, 1, 2, &info));
    CHECK_SAYS(inspect(desc.path, 1, 4, &info), IGNIS_ERROR_UNSUPPORTED, "shares of 4 ranks have 16 of its 64");
}

static void refuse(rank *r, ignis_model model)
{
    int32_t ids[4] = {1, 2, 3, 4};
    ignis_tensor tokens;
    ignis_tensor_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.dtype = IGNIS_I32;
    tokens = ignis_tensor_from_host(ids, IGNIS_SHAPE(4), &desc);
    CHECK(tokens.id);
    CHECK_INT(ignis_model_forward(model, tokens).id, 0);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_UNSUPPORTED);
    CHECK(strstr(ignis_status_message(), r->number ? "rank 1 of 2" : "rank 0 of 2") != NULL);
    ignis_status_clear();
    CHECK_INT(ignis_model_save(model, test_path("saved")), IGNIS_ERROR_UNSUPPORTED);
    ignis_status_clear();
    CHECK_INT(ignis_lora_create(model, NULL).id, 0);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_UNSUPPORTED);
    ignis_status_clear();
    CHECK_INT(ignis_lora_open(model, test_path("m")).id, 0);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_UNSUPPORTED);
    ignis_status_clear();
    CHECK_OK(ignis_tensor_release(tokens));
}

/*  Ranks that are not one: other tokens, other seeds, other temperatures; then they are again. */
static void disagree(rank *r, ignis_model model)
{
    ignis_sequence s = ignis_sequence_begin(model);
    ignis_sampling_desc sampling;
    int32_t ids[SHORT];
    int turn;
    prompt_fill(ids, SHORT);
    memset(&sampling, 0, sizeof sampling);
    for (turn = 0; turn < 4; turn++) {
        int32_t own = ids[4];
        sampling.temperature = 0.5;
        sampling.seed = 1;
        if (r->number == 1 && turn == 0)
            ids[4] = 50;
        if (r->number == 1 && turn == 1)
            sampling.seed = 2;
        if (r->number == 1 && turn == 2)
            sampling.temperature = 0.6;
        CHECK_OK(ignis_sequence_truncate(
            s, 0)); /* else what they have in common with the tokens before differs, and so do the sums */
        CHECK_OK(ignis_sequence_feed(s, ids, SHORT));
        ids[4] = own;
        if (turn < 3) {
            CHECK_INT(ignis_sequence_next(s, &sampling), -1);
            CHECK_INT(ignis_status_last(), IGNIS_ERROR_MISMATCH);
            ignis_status_clear();
            CHECK_INT(ignis_sequence_length(s), SHORT);
        } else {
            text_add(r, ignis_sequence_next(s, &sampling));
        }
    }
    CHECK_INT(ignis_sequence_next(s, r->number ? &sampling : NULL), -1);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_MISMATCH);
    ignis_status_clear();
    CHECK_OK(ignis_sequence_free(s));
}

/*  Rank 1 feeds one token more, and so its sums have other sizes. */
static void feed_more(rank *r, ignis_model model)
{
    ignis_sequence s = ignis_sequence_begin(model);
    int32_t ids[SHORT];
    prompt_fill(ids, SHORT);
    r->status = ignis_sequence_feed(s, ids, SHORT - (r->number == 0));
    CHECK(r->status == IGNIS_ERROR_MISMATCH || r->status == IGNIS_ERROR_TIMEOUT || r->status == IGNIS_ERROR_PEER);
    ignis_status_clear();
    CHECK_INT(ignis_sequence_length(s), 0);
    CHECK(ignis_sequence_feed(s, ids, SHORT) != IGNIS_OK); /* the communicator is broken */
    ignis_status_clear();
    CHECK_OK(ignis_sequence_free(s));
}

/*  Rank 1 makes no call, after a few that it did. */
static void stay_away(rank *r, ignis_model model)
{
    ignis_sequence s = ignis_sequence_begin(model);
    int32_t ids[SHORT];
    int i;
    prompt_fill(ids, SHORT);
    CHECK_OK(ignis_sequence_feed(s, ids, SHORT));
    for (i = 0; i < 4; i++)
        CHECK(ignis_sequence_next(s, NULL) >= 0);
    if (r->number == 0) {
        CHECK_INT(ignis_sequence_next(s, NULL), -1);
        CHECK_INT(ignis_status_last(), IGNIS_ERROR_TIMEOUT);
        ignis_status_clear();
        CHECK_INT(ignis_sequence_length(s), SHORT + 4);
    }
    CHECK_OK(ignis_sequence_free(s));
}

static void check_pair(void (*work)(rank *r, ignis_model model), double timeout_s)
{
    static rank ranks[2];
    run of;
    memset(&of, 0, sizeof of);
    snprintf(of.path, sizeof of.path, "%s", model_written(&llama, false, 0, IGNIS_F32));
    of.ranks = 2;
    of.timeout_s = timeout_s;
    of.work = work;
    run_ranks(&of, ranks);
    CHECK_INT(ranks[0].text[0], ranks[1].text[0]);
}

TEST(a_share_is_no_whole_model)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    check_pair(refuse, 0);
}

TEST(ranks_that_differ_are_told)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    check_pair(disagree, 0);
}

TEST(other_lengths_are_told)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    check_pair(feed_more, 2);
}

TEST(a_rank_that_stays_away_is_told)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    check_pair(stay_away, 2);
}

/*  One rank reads files, and ends another communicator, while another rank waits for it in an operation, as ranks do
    that are done with them at different times. */
TEST(files_are_read_while_a_rank_waits)
{
    ignis_comm comms[2], others[2];
    ignis_comm_desc desc;
    ignis_model_desc from;
    ignis_array a[2];
    ignis_model model;
    int i, round;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    if (!test_is_simulator())
        SKIP("a driver may let what is allocated wait for what runs on other devices");
    memset(&desc, 0, sizeof desc);
    memset(&from, 0, sizeof from);
    desc.timeout_s = 20;
    from.path = model_written(&qwen3, false, 0, IGNIS_F32);
    from.weights = IGNIS_WEIGHTS_NUMBERS;
    CHECK_OK(ignis_comm_init_all(comms, NULL, 2, &desc));
    CHECK_OK(ignis_comm_init_all(others, NULL, 2, &desc));
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_device_use(i));
        a[i] = test_array(3, 5);
    }
    for (round = 0; round < 2; round++) { /* in the first one all that operations need is loaded */
        CHECK_OK(ignis_comm_all_reduce(comms[0], a[0], a[0], IGNIS_OP_SUM));
        if (round) {
            model = ignis_model_open(&from);
            CHECK(model.id);
            CHECK_OK(ignis_model_free(model));
            CHECK_OK(ignis_comm_destroy(others[1]));
        }
        CHECK_OK(ignis_comm_all_reduce(comms[1], a[1], a[1], IGNIS_OP_SUM));
        for (i = 0; i < 2; i++)
            CHECK_OK(ignis_comm_synchronize(comms[i]));
    }
    CHECK_OK(ignis_comm_destroy(others[0]));
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_comm_destroy(comms[i]));
        CHECK_OK(ignis_array_free(a[i]));
    }
}

/* --- ranks as processes ------------------------------------------------------------------------------------------- */

/*  Two processes draw the same text; then rank 1 dies, and rank 0 learns it. */
static int role_rank(int number)
{
    ignis_desc setup = test_desc(NULL);
    char rendezvous[128];
    int32_t ids[SHORT], text[8];
    ignis_sampling_desc sampling;
    ignis_model_desc from;
    ignis_comm_desc desc;
    ignis_sequence s;
    ignis_model model;
    ignis_comm comm;
    ignis_status status;
    int i;
    if (!process_receive(PROCESS_SOCKET, test_folder, sizeof test_folder, NULL) || ignis_setup(&setup) != IGNIS_OK)
        return 1;
    memset(&desc, 0, sizeof desc);
    memset(&from, 0, sizeof from);
    memset(&sampling, 0, sizeof sampling);
    snprintf(rendezvous, sizeof rendezvous, "dir:%s", test_path("meet"));
    desc.rank = number;
    desc.size = 2;
    desc.rendezvous = rendezvous;
    desc.device = number ? number : IGNIS_DEVICE_0;
    desc.timeout_s = 10;
    comm = ignis_comm_init(&desc);
    CHECK_OK(ignis_device_use(number));
    from.path = test_path("m");
    from.parallel = ignis_comm_parallel(comm);
    model = ignis_model_open(&from);
    s = ignis_sequence_begin(model);
    prompt_fill(ids, SHORT);
    CHECK_OK(ignis_sequence_feed(s, ids, SHORT));
    sampling.temperature = 1;
    for (i = 0; i < 8; i++)
        text[i] = ignis_sequence_next(s, &sampling);
    CHECK(process_send(PROCESS_SOCKET, text, sizeof text, -1));
    if (number == 1) {
        CHECK(process_meet(PROCESS_SOCKET)); /* by now rank 0 has its steps, too */
        fflush(stdout);
        _exit(test__state.failures != 0);
    }
    CHECK_INT(ignis_sequence_next(s, &sampling), -1);
    status = ignis_status_last();
    CHECK(status == IGNIS_ERROR_PEER || status == IGNIS_ERROR_TIMEOUT);
    printf("%s\n", ignis_status_message());
    ignis_status_clear();
    CHECK_INT(ignis_sequence_length(s), SHORT + 8);
    fflush(stdout);
    _exit(test__state.failures != 0);
}

TEST(processes)
{
    process children[2];
    int32_t text[2][8];
    int i;
    NEEDS_POSIX("communicators between processes");
    SETUP(NULL);
    NEEDS_DEVICES(2);
    model_written(&qwen2, false, 0, IGNIS_F32);
    CHECK_INT(mkdir(test_path("meet"), 0700), 0);
    for (i = 0; i < 2; i++) {
        children[i] = process_start(i ? "1" : "0");
        CHECK(process_send(children[i].socket, test_folder, sizeof test_folder, -1));
    }
    for (i = 0; i < 2; i++) {
        memset(text[i], i, sizeof text[i]);
        CHECK(process_receive(children[i].socket, text[i], sizeof text[i], NULL));
    }
    CHECK(process_meet(children[1].socket));
    for (i = 0; i < 2; i++)
        CHECK_INT(process_end(&children[i]), 0);
    CHECK(text[0][0] >= 0 && memcmp(text[0], text[1], sizeof text[0]) == 0);
    test_remove_folder(test_path("meet"));
}

/*  What frees, in all headers, with nothing to free. */
static void free_nothing(void)
{
    static const ignis_array no_array = {0};
    static const ignis_event no_event = {0};
    static const ignis_kernel no_kernel = {0};
    static const ignis_tensor no_tensor = {0};
    static const ignis_optimizer no_optimizer = {0};
    static const ignis_graph no_graph = {0};
    static const ignis_tokenizer no_tokenizer = {0};
    static const ignis_model no_model = {0};
    static const ignis_lora no_lora = {0};
    static const ignis_sequence no_sequence = {0};
    static const ignis_fence no_fence = {0};
    static const ignis_gl_buffer no_gl_buffer = {0};
    static const ignis_vmm no_vmm = {0};
    static const ignis_vmm_range no_range = {0};
    static const ignis_channel no_channel = {0};
    static const ignis_transport no_transport = {0};
    static const ignis_comm no_comm = {0};
    static const ignis_parallel no_parallel = {0};
    ignis_status before = ignis_status_last();
    CHECK_INT(ignis_stream_forget(NULL), IGNIS_OK);
    CHECK_INT(ignis_stream_free(NULL), IGNIS_OK);
    CHECK_INT(ignis_event_free(no_event), IGNIS_OK);
    CHECK_INT(ignis_host_free(NULL), IGNIS_OK);
    CHECK_INT(ignis_array_free(no_array), IGNIS_OK);
    CHECK_INT(ignis_array_free_as(no_array, IGNIS_OWNER_NVCCL), IGNIS_OK);
    CHECK_INT(ignis_array_free_as(no_array, IGNIS_OWNER_IGNIS), IGNIS_OK);
    CHECK_INT(ignis_contract_release(no_array, IGNIS_OWNER_NVCCL), IGNIS_OK);
    CHECK_INT(ignis_kernel_free(no_kernel), IGNIS_OK);
    CHECK_INT(ignis_tensor_release(no_tensor), IGNIS_OK);
    CHECK_INT(ignis_optimizer_free(no_optimizer), IGNIS_OK);
    CHECK_INT(ignis_graph_free(no_graph), IGNIS_OK);
    CHECK_INT(ignis_tokenizer_free(no_tokenizer), IGNIS_OK);
    CHECK_INT(ignis_model_free(no_model), IGNIS_OK);
    CHECK_INT(ignis_lora_free(no_lora), IGNIS_OK);
    CHECK_INT(ignis_sequence_free(no_sequence), IGNIS_OK);
    CHECK_INT(ignis_fence_free(no_fence), IGNIS_OK);
    CHECK_INT(ignis_gl_unregister(no_gl_buffer), IGNIS_OK);
    CHECK_INT(ignis_vmm_free(no_vmm), IGNIS_OK);
    CHECK_INT(ignis_vmm_unreserve(no_range), IGNIS_OK);
    CHECK_INT(ignis_vmm_handle_close(NULL), IGNIS_OK);
    CHECK_INT(ignis_channel_close(no_channel), IGNIS_OK);
    CHECK_INT(ignis_transport_handle_close(NULL), IGNIS_OK);
    CHECK_INT(ignis_transport_release_handle(no_transport, no_array), IGNIS_OK);
    CHECK_INT(ignis_transport_destroy(no_transport), IGNIS_OK);
    CHECK_INT(ignis_comm_destroy(no_comm), IGNIS_OK);
    CHECK_INT(ignis_parallel_free(no_parallel), IGNIS_OK);
    CHECK_INT(ignis_status_last(), before);
}

TEST(freeing_nothing_is_fine)
{
    free_nothing(); /* before ignis_setup */
    SETUP(NULL);
    free_nothing();
    CHECK(ignis_device_use(-7) == IGNIS_ERROR_DEVICE);
    free_nothing(); /* what has failed before stays */
    ignis_status_clear();
    CHECK_INT(test_log_count(IGNIS_DIAG_ARRAY_FREED), 0);
    CHECK_OK(ignis_shutdown());
    free_nothing();
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    setenv("IGNIS_SIM_DEVICES", "4", 0);
    /* On the simulator all threads of a sum wait by looking again and again: with few of them, a rank that still
       compiles gets a core, too. */
    setenv("IGNIS_COMM_TUNE", "ll_blocks=3,ll_threads=64,blocks=3,threads=64,chunk=3K,lanes=2", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* multicast is not asked for on machines that others use too */
    if (role)
        return role_rank(atoi(role));
    return test_run(argc, argv);
}
