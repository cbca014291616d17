// SPDX-License-Identifier: MIT
/*  test_generate_threads.c - threads that use the same models, adapters, sequences and tokenizers, on streams of their
    own, and free them */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "byte_tokenizer.h"
#include "checkpoint.h"

/*  Driver calls that fail here leave their objects with the simulator. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libnvrtc\nleak:libcuda\n"; }

enum { ROOM = 128, MANY = 70, TEXTS = 4, PROMPT = 9, DRAWN = 4, THREADS = 4 };

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 10, VOCAB = 260 }; /* blocks run one after the other there */
#else
enum { ROUNDS = 60, VOCAB = 1100 }; /* three blocks draw a token */
#endif

/*  All models of this program have the same weights, so that what one says is what any says. */
static ck_model small = {.family = "llama",
                         .layers = 2,
                         .hidden = 16,
                         .heads = 2,
                         .kv_heads = 1,
                         .head_dim = 8,
                         .inner = 24,
                         .vocab = VOCAB,
                         .context = ROOM,
                         .tied = true,
                         .eps = 1e-5,
                         .theta = 10000,
                         .seed = 3};

static void write_models(void)
{
    ck_bytes file;
    ck_make(&small);
    ck_write_folder(&small, test_path("folder"), IGNIS_F32, 2);
    write_tokenizer(test_path("folder"));
    file = ck_gguf(&small, 0, NULL);
    test_write_file(test_path("model.gguf"), file.data, file.size);
    free(file.data);
}

static ignis_model open_model(const char *name, int sequences,
                              bool (*progress_fn)(int64_t done, int64_t total, void *user_data))
{
    ignis_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.path = test_path(name);
    desc.sequences = sequences;
    desc.progress_fn = progress_fn;
    return ignis_model_open(&desc);
}

/* what texts are when nobody disturbs ---------------------------------------------------------------------------------
   */

static struct {
    int32_t ids[TEXTS][PROMPT + DRAWN];
    float logits[TEXTS][VOCAB];
} texts;

static ignis_generate_desc text_desc(int text)
{
    ignis_generate_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.sampling.temperature = text % 2;
    desc.sampling.seed = (uint64_t)text;
    desc.sampling.top_k = text == 3 ? 50 : 0;
    desc.sampling.top_p = text == 3 ? 0.9 : 0;
    desc.max_tokens = DRAWN;
    desc.end_count = -1;
    return desc;
}

/*  A text from its prompt on. False: something has failed. */
static bool write_text(ignis_model model, int text, int32_t *ids, float *logits)
{
    ignis_generate_desc desc = text_desc(text);
    ignis_sequence sequence = ignis_sequence_begin(model);
    bool ok;
    int i;
    for (i = 0; i < PROMPT; i++)
        ids[i] = (text * 50 + i * 7) % VOCAB;
    ok = sequence.id && ignis_sequence_feed(sequence, ids, PROMPT) == IGNIS_OK &&
         ignis_generate(sequence, &desc) == IGNIS_OK &&
         ignis_sequence_ids(sequence, ids, PROMPT + DRAWN) == PROMPT + DRAWN &&
         ignis_sequence_logits(sequence, logits, VOCAB) == IGNIS_OK;
    return (!sequence.id || ignis_sequence_free(sequence) == IGNIS_OK) && ok;
}

static void check_text(ignis_model model, int text)
{
    int32_t ids[PROMPT + DRAWN];
    float logits[VOCAB];
    if (!write_text(model, text, ids, logits))
        return;
    CHECK(memcmp(ids, texts.ids[text], sizeof ids) == 0);
    CHECK(memcmp(logits, texts.logits[text], sizeof logits) == 0);
}

/* handles that all threads use ----------------------------------------------------------------------------------------
   */

typedef enum kind { MODEL, LORA, SEQUENCE, TOKENIZER, KINDS } kind;
enum { PLACES = 5, KEPT = 4096 };

static struct {
    uint64_t place[KINDS][PLACES]; /* stale handles stay here until others come */
    uint64_t made[KINDS], freed[KINDS];
    uint64_t kept[KEPT], kept_count; /* adapters that sequences had when they were to be freed */
    bool faults;                     /* calls fail at random */
    host_counter counter;
    pthread_barrier_t start;
} shared;

/*  A handle is freed whatever fails on the way, and what failed is reported. */
static void check_freed(ignis_status status) { CHECK(status == IGNIS_OK || shared.faults); }

typedef struct worker {
    int number;
    unsigned random;
    pthread_t thread;
} worker;

static ignis_status free_handle(kind of, uint64_t id)
{
    ignis_model model = {id};
    ignis_lora lora = {id};
    ignis_sequence sequence = {id};
    ignis_tokenizer tokenizer = {id};
    switch (of) {
    case MODEL: return ignis_model_free(model);
    case LORA: return ignis_lora_free(lora);
    case SEQUENCE: return ignis_sequence_free(sequence);
    default: return ignis_tokenizer_free(tokenizer);
    }
}

/*  Frees a handle that others may use, or have freed. */
static void let_go_of(kind of, uint64_t id)
{
    ignis_status status;
    if (!id)
        return;
    status = free_handle(of, id);
    if (of == LORA && status == IGNIS_ERROR_ARGUMENT) {
        const uint64_t at = ignis__atomic_add(&shared.kept_count, 1) - 1; /* it returns the new value */
        CHECK(at < KEPT);
        shared.kept[at % KEPT] = id;
        return;
    }
    if (status != IGNIS_ERROR_FREED) /* it is freed, though a call may have failed on the way */
        ignis__atomic_add(&shared.freed[of], 1);
    if (!shared.faults)
        CHECK(status == IGNIS_OK || status == IGNIS_ERROR_FREED);
}

static void put(worker *w, kind of, uint64_t id)
{
    if (!id)
        return;
    ignis__atomic_add(&shared.made[of], 1);
    let_go_of(of, test_swap(&shared.place[of][test_draw(&w->random, PLACES)], id));
}

static uint64_t take(worker *w, kind of)
{
    return ignis__atomic_load(&shared.place[of][test_draw(&w->random, PLACES)]);
}

static ignis_model any_model(worker *w) { return (ignis_model){take(w, MODEL)}; }
static ignis_lora any_lora(worker *w) { return (ignis_lora){take(w, LORA)}; }
static ignis_sequence any_sequence(worker *w) { return (ignis_sequence){take(w, SEQUENCE)}; }
static ignis_tokenizer any_tokenizer(worker *w) { return (ignis_tokenizer){take(w, TOKENIZER)}; }

/*  Others free, fill, cut and set what this thread works with: these failures are the documented ones. */
static void expect_documented(int call)
{
    ignis_status_info info;
    char text[1024];
    ignis_status_query(&info);
    switch (info.diagnostic) {
    case IGNIS_DIAG_NONE:
    case IGNIS_DIAG_MODEL_FREED:
    case IGNIS_DIAG_LORA_FREED:
    case IGNIS_DIAG_SEQUENCE_FREED:
    case IGNIS_DIAG_TOKENIZER_FREED:
    case IGNIS_DIAG_TENSOR_FREED:
    case IGNIS_DIAG_WRONG_KIND:
    case IGNIS_DIAG_CACHE_FULL:
    case IGNIS_DIAG_CONTEXT_FULL:
    case IGNIS_DIAG_COUNT_MISMATCH: /* a sequence without a token */
    case IGNIS_DIAG_BAD_NUMBER: /* two sequences of a step are one; one was cut shorter than where it is to be cut */
    case IGNIS_DIAG_WRONG_MODEL:
    case IGNIS_DIAG_DOUBLE_ACQUIRE:   /* another thread saves them, too */
    case IGNIS_DIAG_LORA_STATE:       /* adapters of another model, or of sequences */
    case IGNIS_DIAG_TOKENIZER_FORMAT: /* that GGUF file has none */
    case IGNIS_DIAG_MODEL_CANCELLED: break;
    default:
        if (shared.faults && (info.diagnostic == IGNIS_DIAG_TOKENIZER_IO || info.status == IGNIS_ERROR_MEMORY ||
                              info.status == IGNIS_ERROR_CUDA || info.status == IGNIS_ERROR_COMPILE))
            break;
        snprintf(text, sizeof text, "call %d: %s: %.800s", call, ignis_diagnostic_name(info.diagnostic), info.message);
        test__fail(__FILE__, __LINE__, text);
    }
    ignis_status_clear();
}

/* what the threads do ---------------------------------------------------------------------------------------------- */

static bool stop_half_way(int64_t done, int64_t total, void *user_data)
{
    (void)user_data;
    return done < total / 2;
}

static void use_files(worker *w)
{
    ignis_model_info info;
    ignis_model_desc desc;
    char folder[32];
    snprintf(folder, sizeof folder, "saved%d", w->number);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path(test_draw(&w->random, 2) ? "folder" : "model.gguf");
    if (ignis_model_inspect(&desc, &info) == IGNIS_OK)
        CHECK_INT(info.vocab, VOCAB);
    if (ignis_model_save(any_model(w), test_path(folder)) != IGNIS_OK)
        return;
    desc.path = test_path(folder);
    if (ignis_model_inspect(&desc, &info) == IGNIS_OK)
        CHECK_INT(info.hidden, small.hidden);
}

static void use_model(worker *w)
{
    static const char part[] = "model.layers.1.self_attn.v_proj.weight",
                      whole[] = "model.layers.0.mlp.down_proj.weight";
    const double *wanted = ck_values(&small, part, 0);
    ignis_scope scope = ignis_scope_begin();
    ignis_model model = any_model(w);
    ignis_tensor_desc i32 = tensor_desc(IGNIS_I32, false);
    ignis_tensor tensor, rows, weights[64];
    ignis_model_info info;
    double values[8 * 16];
    float scores[2 * PROMPT * VOCAB];
    int i, wrong = 0, count = ignis_model_weights(model, weights, 64);
    if (ignis_model_query(model, &info) == IGNIS_OK)
        CHECK_INT(info.layers, small.layers);
    if (count >= 0)
        CHECK_INT(count, 2 + 2 * 6);
    tensor = ignis_model_tensor(model, whole);
    if (tensor.id)
        (void)ignis_tensor_shape(tensor);
    rows = ignis_model_tensor(model, part);
    if (rows.id && ignis_tensor_to_host(rows, values, IGNIS_F64, 8 * 16) == IGNIS_OK) {
        for (i = 0; i < 8 * 16; i++)
            wrong += values[i] != wanted[i];
        CHECK_INT(wrong, 0);
    }
    i32.host_dtype = IGNIS_I32;
    tensor = ignis_model_forward(model, ignis_tensor_from_host(texts.ids, IGNIS_SHAPE(2, PROMPT), &i32));
    if (tensor.id)
        (void)ignis_tensor_to_host(tensor, scores, IGNIS_F32, COUNT_OF(scores));
    ignis_tape_clear();
    (void)ignis_scope_end(scope);
}

static void use_lora(worker *w)
{
    static const char *const targets[] = {"o_proj", "up_proj"};
    ignis_lora_desc desc;
    ignis_lora_info info;
    ignis_lora none = {0}, lora;
    ignis_tensor tensors[16];
    char folder[32];
    snprintf(folder, sizeof folder, "lora%d", w->number);
    memset(&desc, 0, sizeof desc);
    desc.rank = 2;
    desc.targets = targets;
    desc.target_count = (int)test_draw(&w->random, 3);
    switch (test_draw(&w->random, 6)) {
    case 0:
        lora = ignis_lora_create(any_model(w), &desc);
        if (lora.id && ignis_synchronize() == IGNIS_OK) /* other threads use it on other streams */
            put(w, LORA, lora.id);
        else if (lora.id)
            check_freed(ignis_lora_free(lora));
        break;
    case 1: put(w, LORA, ignis_lora_open(any_model(w), test_path("adapter")).id); break;
    case 2: (void)ignis_model_set_lora(any_model(w), any_lora(w)); break;
    case 3: (void)ignis_lora_save(any_lora(w), test_path(folder)); break;
    default:
        (void)ignis_model_set_lora(any_model(w), none);
        (void)ignis_sequence_set_lora(any_sequence(w), any_lora(w));
        lora = any_lora(w);
        if (ignis_lora_query(lora, &info) == IGNIS_OK)
            CHECK(!info.merged && info.adapters > 0);
        CHECK(ignis_lora_weights(lora, tensors, 16) != 0);
    }
}

/*  Adapters that change nothing are merged into a model that no other thread sees: what it says stays the same. */
static void use_merged(worker *w)
{
    ignis_model model = open_model("folder", 1, NULL);
    ignis_lora lora = ignis_lora_create(model, NULL);
    if (lora.id && ignis_model_set_lora(model, lora) == IGNIS_OK && ignis_lora_merge(lora) == IGNIS_OK)
        check_text(model, (int)test_draw(&w->random, TEXTS));
    if (lora.id)
        check_freed(ignis_lora_free(lora));
    if (model.id)
        check_freed(ignis_model_free(model));
}

/*  A fork has the ids of its sequence, and says what a sequence says that is given them: to some bits, as more than 64
    at once round otherwise. */
static void check_sequence(worker *w)
{
    ignis_sequence fork = ignis_sequence_fork(any_sequence(w)), fresh;
    int32_t ids[ROOM];
    float logits[VOCAB], expected[VOCAB];
    int count = fork.id ? ignis_sequence_ids(fork, ids, ROOM) : 0, far = 0, i;
    if (count > 0 && ignis_sequence_logits(fork, logits, VOCAB) == IGNIS_OK) {
        fresh = ignis_sequence_begin(any_model(w));
        if (fresh.id && ignis_sequence_feed(fresh, ids, count) == IGNIS_OK &&
            ignis_sequence_logits(fresh, expected, VOCAB) == IGNIS_OK)
            for (i = 0; i < VOCAB; i++)
                far += !(fabsf(logits[i] - expected[i]) < 1e-4f);
        CHECK_INT(far, 0);
        if (fresh.id)
            check_freed(ignis_sequence_free(fresh));
    }
    if (fork.id) {
        CHECK_INT(ignis_sequence_length(fork), count);
        check_freed(ignis_sequence_free(fork));
        ignis_status_clear();
        CHECK_FAILS(ignis_sequence_fork(fork), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    }
}

static void use_sequence(worker *w)
{
    static const ignis_message talk[] = {{"user", "Hi<end>"}, {"assistant", "yes"}};
    ignis_sequence s = any_sequence(w), several[3];
    ignis_sampling_desc sampling[3];
    ignis_sequence_info info;
    int32_t ids[MANY];
    int i, length;
    memset(sampling, 0, sizeof sampling);
    for (i = 0; i < MANY; i++)
        ids[i] = (int32_t)test_draw(&w->random, VOCAB);
    for (i = 0; i < 3; i++) {
        several[i] = any_sequence(w);
        sampling[i].temperature = i;
        sampling[i].seed = w->random;
    }
    switch (test_draw(&w->random, 12)) {
    case 0:
    case 1:
        s = ignis_sequence_begin(any_model(w));
        (void)ignis_sequence_feed(s, ids, test_draw(&w->random, 2) ? MANY : 8);
        put(w, SEQUENCE, s.id);
        break;
    case 2: put(w, SEQUENCE, ignis_sequence_fork(s).id); break;
    case 3: (void)ignis_sequence_feed(s, ids, (int)test_draw(&w->random, 17)); break;
    case 4: (void)ignis_sequence_set(s, ids, (int)test_draw(&w->random, 17)); break;
    case 5: (void)ignis_sequence_text(s, "text<end>", 9); break;
    case 6: (void)ignis_sequence_chat(s, talk, 2); break;
    case 7: (void)ignis_sequence_next(s, sampling + 1); break;
    case 8: (void)ignis_sequence_next_all(several, (int)test_draw(&w->random, 4), sampling, ids); break;
    case 9:
        length = ignis_sequence_length(s);
        if (length > 0)
            (void)ignis_sequence_truncate(s, (int)test_draw(&w->random, (unsigned)length));
        break;
    case 10:
        if (ignis_sequence_query(s, &info) == IGNIS_OK)
            CHECK(info.length >= 0 && info.length <= info.context && info.free_tokens >= 0);
        break;
    default: check_sequence(w);
    }
}

/*  What a text_fn may do: all of it, with its own sequence and with others'. */
typedef struct shower {
    worker *w;
    ignis_sequence sequence;
} shower;

static bool show(const char *text, size_t size, void *user_data)
{
    shower *s = (shower *)user_data;
    CHECK(text && size > 0);
    switch (test_draw(&s->w->random, 12)) {
    case 0: return false;
    case 1: let_go_of(SEQUENCE, s->sequence.id); break; /* it goes on as if it were still there */
    case 2: (void)ignis_sequence_truncate(s->sequence, 1); break;
    case 3: use_sequence(s->w); break;
    case 4: use_model(s->w); break;
    case 5: (void)ignis_sequence_next(s->sequence, NULL); break;
    default: break;
    }
    return true;
}

static void use_generate(worker *w)
{
    static const char *const stops[] = {"ab", "\xC3"};
    ignis_generate_desc desc;
    ignis_generate_info info;
    shower s;
    memset(&desc, 0, sizeof desc);
    s.w = w;
    s.sequence = any_sequence(w);
    desc.sampling.temperature = 1;
    desc.sampling.seed = w->random;
    desc.max_tokens = 1 + (int)test_draw(&w->random, 12);
    desc.text_fn = test_draw(&w->random, 4) ? show : NULL;
    desc.user_data = &s;
    desc.stops = stops;
    desc.stop_count = (int)test_draw(&w->random, 3);
    desc.info = &info;
    if (ignis_generate(s.sequence, &desc) == IGNIS_OK)
        CHECK(info.ending != IGNIS_ENDING_NONE && info.tokens <= desc.max_tokens);
}

static void use_tokenizer(worker *w)
{
    static const char text[] = "\xC3\xA9t\xC3\xA9 <end>!";
    static const ignis_message talk[] = {{"user", "a"}};
    ignis_tokenizer t = test_draw(&w->random, 3) ? any_tokenizer(w) : ignis_model_tokenizer(any_model(w));
    ignis_tokenizer_info info;
    ignis_text_stream stream;
    int32_t ids[16];
    char out[64];
    int count, i, size, at = 0;
    if (!test_draw(&w->random, 4))
        put(w, TOKENIZER, ignis_tokenizer_open(test_path("folder")).id);
    if (ignis_tokenizer_query(t, &info) == IGNIS_OK)
        CHECK_INT(info.tokens, 257);
    count = ignis_tokenizer_encode(t, text, (int64_t)strlen(text), NULL, ids, 16);
    if (count < 0)
        return;
    CHECK_INT(count, 8);
    CHECK_INT(ids[6], 256);
    if (ignis_tokenizer_decode(t, ids, count, NULL, out, sizeof out) >= 0)
        CHECK(memcmp(out, "\xC3\xA9t\xC3\xA9 !", 7) == 0);
    if (ignis_tokenizer_piece(t, 256, out, sizeof out) >= 0)
        CHECK(memcmp(out, "<end>", 5) == 0);
    memset(&stream, 0, sizeof stream);
    stream.tokenizer = t;
    for (i = 0; i < count; i++, at += size)
        if ((size = ignis_text_stream_put(&stream, ids[i], out + at, (int)sizeof out - at)) < 0)
            return;
    if (ignis_text_stream_end(&stream, out + at, (int)sizeof out - at) >= 0)
        CHECK(at == 7 && memcmp(out, "\xC3\xA9t\xC3\xA9 !", 7) == 0);
    size = (int)ignis_chat_render(t, talk, 1, NULL, out, sizeof out);
    if (size >= 0)
        CHECK(size == 12 && memcmp(out, "[user]a<end>", 12) == 0);
    count = ignis_chat_encode(t, talk, 1, NULL, ids, 16);
    if (count >= 0)
        CHECK_INT(count, 8);
}

/*  Lets a call fail some calls from now on, of whatever thread. */
static void plan_a_fault(worker *w)
{
    static const char *const prefixes[] = {NULL,          "cuLaunchKernel", "cuMemcpy",     "cuMemAlloc",
                                           "cuGraphInst", "cuStreamBegin",  "cuEventRecord"};
    const char *prefix = prefixes[test_draw(&w->random, COUNT_OF(prefixes))];
    int at = 1 + (int)test_draw(&w->random, 40);
    if (prefix) {
        fault_arm(prefix, at, 2);
        return;
    }
    pthread_mutex_lock(&shared.counter.lock);
    shared.counter.fail_at = shared.counter.calls + at;
    pthread_mutex_unlock(&shared.counter.lock);
}

static void *work(void *context)
{
    worker *w = (worker *)context;
    void *stream = w->number % 2 ? ignis_stream_create(NULL) : NULL;
    int rounds = test_env("IGNIS_SOAK") ? 40 * ROUNDS : ROUNDS, round, call;
    kind of;
    CHECK_OK(ignis_stream_use(stream));
    pthread_barrier_wait(&shared.start);
    for (round = 0; round < rounds; round++) {
        if (shared.faults && test_draw(&w->random, 4) == 0)
            plan_a_fault(w);
        call = (int)test_draw(&w->random, 32);
        of = (kind)test_draw(&w->random, KINDS);
        if (call == 0)
            put(w, MODEL,
                open_model(test_draw(&w->random, 3) ? "folder" : "model.gguf", 2,
                           test_draw(&w->random, 4) ? NULL : stop_half_way)
                    .id);
        else if (call == 1)
            let_go_of(of, take(w, test_draw(&w->random, 8) ? of : TOKENIZER));
        else if (call == 2)
            use_files(w);
        else if (call == 3)
            use_merged(w);
        else if (call < 6)
            use_model(w);
        else if (call < 10)
            use_lora(w);
        else if (call < 13)
            use_tokenizer(w);
        else if (call < 16)
            check_text(any_model(w), (int)test_draw(&w->random, TEXTS));
        else if (call < 19)
            use_generate(w);
        else
            use_sequence(w);
        expect_documented(call);
    }
    CHECK_OK(ignis_stream_use(NULL));
    if (stream)
        CHECK_OK(ignis_stream_free(stream));
    return NULL;
}

static void run(bool faults, unsigned seed)
{
    ignis_desc setup = test_counting_desc(&shared.counter);
    worker workers[THREADS];
    ignis_model model;
    ignis_lora lora;
    int i, k;
    SETUP(&setup);
    write_models();
    model = open_model("folder", 2, NULL);
    for (i = 0; i < TEXTS; i++)
        CHECK(write_text(model, i, texts.ids[i], texts.logits[i]));
    lora = ignis_lora_create(model, NULL);
    CHECK_OK(ignis_lora_save(lora, test_path("adapter")));
    memset(shared.place, 0, sizeof shared.place);
    memset(shared.freed, 0, sizeof shared.freed);
    shared.kept_count = 0;
    for (i = 0; i < PLACES; i++) {
        shared.place[MODEL][i] = i ? open_model("folder", 2, NULL).id : model.id;
        shared.place[LORA][i] = i ? ignis_lora_create(model, NULL).id : lora.id;
        shared.place[SEQUENCE][i] = ignis_sequence_begin((ignis_model){shared.place[MODEL][i]}).id;
        shared.place[TOKENIZER][i] = ignis_tokenizer_open(test_path("folder")).id;
    }
    for (i = 0; i < KINDS; i++)
        shared.made[i] = PLACES;
    CHECK_OK(ignis_synchronize());
    shared.faults = faults;
    pthread_barrier_init(&shared.start, NULL, THREADS);
    for (i = 0; i < THREADS; i++) {
        workers[i].number = i;
        workers[i].random = seed * 1000 + (unsigned)i;
        CHECK_INT(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(workers[i].thread, NULL), 0);
    pthread_barrier_destroy(&shared.start);
    (void)fault_over(&shared.counter);
    shared.faults = false;
    for (i = KINDS - 1; i >= 0; i--) /* sequences before their adapters */
        for (k = 0; k < PLACES; k++)
            let_go_of((kind)i, shared.place[i][k]);
    for (i = 0; i < (int)shared.kept_count; i++)
        let_go_of(LORA, shared.kept[i]);
    ignis_status_clear();
    for (i = 0; i < KINDS; i++)
        CHECK_INT(shared.freed[i], shared.made[i]);
    CHECK_INT(memory().live_bytes, 0);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(shared.counter.blocks, 0);
    ck_free(&small);
}

/*  Of threads that merge the same adapters one does so, once. */
static struct {
    ignis_lora lora;
    pthread_barrier_t start;
    uint64_t merged;
} merge;

static void *merge_it(void *context)
{
    (void)context;
    pthread_barrier_wait(&merge.start);
    if (ignis_lora_merge(merge.lora) == IGNIS_OK)
        ignis__atomic_add(&merge.merged, 1);
    else
        CHECK_INT(ignis_status_last(), IGNIS_ERROR_ARGUMENT);
    ignis_status_clear();
    return NULL;
}

TEST(threads_merge_once)
{
    float ones[24];
    pthread_t threads[THREADS];
    ignis_lora_desc desc;
    ignis_tensor tensors[8], rows;
    double before, after;
    ignis_model model;
    int turn, i;
    SETUP(NULL);
    write_models();
    memset(&desc, 0, sizeof desc);
    desc.rank = 1;
    for (i = 0; i < 24; i++)
        ones[i] = 1;
    for (turn = 0; turn < 4; turn++) {
        model = open_model("folder", 1, NULL);
        merge.lora = ignis_lora_create(model, &desc);
        merge.merged = 0;
        CHECK_INT(ignis_lora_weights(merge.lora, tensors, 8), 8);
        for (i = 0; i < 8; i++)
            CHECK_OK(ignis_array_from_host(ignis_tensor_data(tensors[i]), ones, IGNIS_F32, numel_of(tensors[i])));
        rows = ignis_model_tensor(model, "model.layers.1.self_attn.v_proj.weight");
        before = value_at(rows, 5);
        CHECK_OK(ignis_synchronize());
        pthread_barrier_init(&merge.start, NULL, THREADS);
        for (i = 0; i < THREADS; i++)
            CHECK_INT(pthread_create(&threads[i], NULL, merge_it, NULL), 0);
        for (i = 0; i < THREADS; i++)
            CHECK_INT(pthread_join(threads[i], NULL), 0);
        pthread_barrier_destroy(&merge.start);
        CHECK_INT(merge.merged, 1);
        after = value_at(rows, 5); /* + alpha / rank, which is 1 */
        CHECK_CLOSE(after, before + 1, 1e-6);
        let_go(rows);
        CHECK_OK(ignis_lora_free(merge.lora));
        CHECK_OK(ignis_model_free(model));
    }
    ck_free(&small);
}

/*  A stream that has not begun when a call puts its work there. */
static void be_late(void *user_data)
{
    (void)user_data;
    test_sleep_ms(20);
}

/*  What a failed call has put into its stream is done when it returns: the pages that it gives back are others', on
    streams of their own. */
TEST(a_failed_call_leaves_nothing_under_way)
{
    ignis_generate_desc text = text_desc(1);
    ignis_sequence sequence;
    int32_t ids[40] = {0};
    ignis_model model;
    bool done, ok;
    void *stream;
    int way, at;
    SETUP(NULL);
    write_models();
    model = open_model("folder", 2, NULL);
    stream = ignis_stream_create(NULL);
    CHECK_OK(ignis_stream_use(stream));
    CHECK(write_text(model, 1, texts.ids[1], texts.logits[1]));
    for (way = 0; way < 3; way++) {
        for (ok = false, at = 2; !ok && at < 80; at += 4) {
            sequence = ignis_sequence_begin(model);
            CHECK_OK(ignis_sequence_feed(sequence, ids, 3));
            CHECK_OK(ignis_stream_call(stream, be_late, NULL));
            fault_arm("cuLaunchKernel", at, 2);
            ok = way == 0   ? ignis_sequence_feed(sequence, ids, 40) == IGNIS_OK
                 : way == 1 ? ignis_sequence_next_all(&sequence, 1, NULL, ids) == IGNIS_OK
                            : ignis_generate(sequence, &text) == IGNIS_OK;
            fault_disarm();
            ignis_status_clear();
            CHECK_OK(ignis_stream_query(stream, &done));
            CHECK(done);
            CHECK_OK(ignis_sequence_free(sequence));
        }
        CHECK(ok);
    }
    CHECK_OK(ignis_stream_free(stream));
    CHECK_OK(ignis_model_free(model));
    ck_free(&small);
}

TEST(threads_share_all_handles) { run(false, 1); }
TEST(threads_share_all_handles_while_calls_fail) { run(true, 2); }

int main(int argc, char **argv)
{
    setenv("IGNIS_SIM_STREAMS", "thread",
           0); /* what is under way while another thread works is under way on a GPU too */
    return test_run(argc, argv);
}
