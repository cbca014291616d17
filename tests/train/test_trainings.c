// SPDX-License-Identifier: MIT
/*  test_trainings.c - trainings that are saved and continued: to the bit, whole or not at all, and damaged files */
#include "fault.h"
#include "tensor.h"

#include "processes.h"

#include <sys/resource.h>
#include <sys/stat.h>

enum { STEPS = 6, SAVED_AT = 3, ROWS = 4, WIDTH = 24, HIDDEN = 20, PARAMETERS = 4, PATH = 512 };

/* --- a process that is killed at a step of writing --- */

#ifndef _WIN32
static int kill_at, kill_step; /* 0: never */

static void step_of_writing(void)
{
    if (kill_at && ++kill_step == kill_at)
        raise(SIGKILL);
}

/*  The functions of the C library that files are written with. */
size_t fwrite(const void *data, size_t size, size_t count, FILE *file)
{
    size_t i;
    step_of_writing();
    for (i = 0; i < size * count && putc_unlocked(((const unsigned char *)data)[i], file) != EOF; i++)
        ;
    return i / (size ? size : 1);
}
int fsync(int descriptor)
{
    step_of_writing();
    return descriptor < 0; /* no power fails here, and disks are slow */
}
int rename(const char *from, const char *to)
{
    int result;
    step_of_writing();
    result = renameat(AT_FDCWD, from, AT_FDCWD, to);
    step_of_writing();
    return result;
}
#endif

/* --- a training --- */

/*  How to train. */
typedef struct form {
    ignis_dtype dtype;
    int optimizers; /* of parameters: 1 is AdamW of all, 2 Muon of matrices and AdamW of the rest, 3 SGD and a group */
    bool scales, averages, drops;
} form;

typedef struct run {
    form how;
    ignis_tensor all[PARAMETERS], losses, input, targets;
    ignis_optimizer optimizers[2];
    int optimizer_count, step;
    ignis_training training;
} run;

static const char *const names[] = {"up.weight", "up.bias", "down.weight", "down.bias"};
static const char *const state_names[] = {"losses"};

static ignis_tensor values_of(ignis_shape shape, ignis_dtype dtype, bool is_parameter, int seed)
{
    double values[WIDTH * HIDDEN];
    int i;
    for (i = 0; i < WIDTH * HIDDEN; i++)
        values[i] = (double)((i * 37 + seed * 11) % 101 - 50) / 200;
    return tensor_of(values, shape, dtype, is_parameter);
}

static void run_optimizers(run *r)
{
    ignis_adamw_desc adamw;
    ignis_muon_desc muon;
    ignis_sgd_desc sgd;
    int i;
    memset(&adamw, 0, sizeof adamw);
    adamw.lr = 1e-2, adamw.weight_decay = 0.1, adamw.zero_grad = true;
    adamw.ema_decay = r->how.averages ? 0.9 : 0;
    adamw.loss_scale.initial = r->how.scales ? 256 : 0;
    adamw.loss_scale.interval = 2;
    adamw.schedule.kind = IGNIS_SCHEDULE_COSINE, adamw.schedule.warmup = 2, adamw.schedule.total = 20;
    memset(&muon, 0, sizeof muon);
    muon.zero_grad = true;
    memset(&sgd, 0, sizeof sgd);
    sgd.momentum = 0.9, sgd.zero_grad = true;
    r->optimizer_count = r->how.optimizers == 2 ? 2 : 1;
    r->optimizers[0] = r->how.optimizers == 1   ? ignis_adamw(&adamw)
                       : r->how.optimizers == 2 ? ignis_muon(&muon)
                                                : ignis_sgd(&sgd);
    if (r->how.optimizers == 2)
        r->optimizers[1] = ignis_adamw(&adamw);
    for (i = 0; i < PARAMETERS; i++) {
        if (r->how.optimizers == 3 && i == 2)
            CHECK_INT(ignis_optimizer_add_group(r->optimizers[0], 0.02, 0), 1);
        CHECK_OK(ignis_optimizer_add(r->optimizers[r->how.optimizers == 2 && i % 2], r->all[i], i % 2 == 0));
    }
}

/*  The arguments of ignis_training_create. */
static ignis_training_desc training_of(run *r)
{
    ignis_training_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.names = names, desc.tensors = r->all, desc.count = PARAMETERS;
    desc.optimizers = r->optimizers, desc.optimizer_count = r->optimizer_count;
    desc.state_names = state_names, desc.state = &r->losses, desc.state_count = 1;
    return desc;
}

static void run_begin(run *r, const form *how, int seed)
{
    ignis_training_desc desc;
    memset(r, 0, sizeof *r);
    r->how = *how;
    r->all[0] = values_of(IGNIS_SHAPE(HIDDEN, WIDTH), how->dtype, true, seed);
    r->all[1] = values_of(IGNIS_SHAPE(HIDDEN), how->dtype, true, seed + 1);
    r->all[2] = values_of(IGNIS_SHAPE(3, HIDDEN), how->dtype, true, seed + 2);
    r->all[3] = values_of(IGNIS_SHAPE(3), how->dtype, true, seed + 3);
    r->losses = values_of(IGNIS_SHAPE(STEPS), IGNIS_F64, false, 1);
    r->input = values_of(IGNIS_SHAPE(ROWS, WIDTH), how->dtype, false, 5);
    r->targets = tensor_counting(IGNIS_SHAPE(ROWS), IGNIS_I32, 0, false);
    run_optimizers(r);
    desc = training_of(r);
    r->training = ignis_training_create(&desc);
    CHECK(r->training.id);
}

static void run_end(run *r)
{
    int i;
    CHECK_OK(ignis_training_free(r->training));
    for (i = 0; i < r->optimizer_count; i++)
        CHECK_OK(ignis_optimizer_free(r->optimizers[i]));
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_tensor_release(r->all[i]));
    CHECK_OK(ignis_tensor_release(r->losses));
    CHECK_OK(ignis_tensor_release(r->input));
    CHECK_OK(ignis_tensor_release(r->targets));
}

static void run_step(run *r)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor hidden = ignis_gelu(ignis_linear(r->input, r->all[0], r->all[1])), loss;
    double losses[STEPS];
    int i;
    if (r->how.drops)
        hidden = ignis_dropout(hidden, 0.25);
    loss = ignis_cross_entropy(ignis_linear(hidden, r->all[2], r->all[3]), r->targets, NULL);
    CHECK_OK(ignis_array_to_host(ignis_tensor_data(r->losses), losses, IGNIS_F64, STEPS));
    losses[r->step++] = ignis_item(loss);
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(r->losses), losses, IGNIS_F64, STEPS));
    if (r->how.scales)
        loss = ignis_scale_loss(r->optimizers[0], loss);
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    for (i = 0; i < r->optimizer_count; i++)
        CHECK_OK(ignis_optimizer_step(r->optimizers[i]));
    CHECK_OK(ignis_scope_end(scope));
}

/*  Everything that a run has: its losses, parameters and averages. */
typedef struct course {
    double losses[STEPS], parameters[PARAMETERS][WIDTH * HIDDEN], averages[WIDTH * HIDDEN];
    ignis_optimizer_info info;
} course;

static void course_of(run *r, course *c)
{
    ignis_array average = ignis_optimizer_state(r->optimizers[0], 0, IGNIS_OPTIMIZER_EMA);
    int i;
    memset(c, 0, sizeof *c);
    CHECK_OK(ignis_array_to_host(ignis_tensor_data(r->losses), c->losses, IGNIS_F64, STEPS));
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_array_to_host(ignis_tensor_data(r->all[i]), c->parameters[i], IGNIS_F64,
                                     ignis_array_numel(ignis_tensor_data(r->all[i]))));
    if (average.id)
        CHECK_OK(ignis_array_to_host(average, c->averages, IGNIS_F64, WIDTH * HIDDEN));
    CHECK_OK(ignis_optimizer_query(r->optimizers[0], &c->info));
}

/*  Returns a run to a course. */
static void run_restore(run *r, const course *c)
{
    int i;
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_array_from_host(ignis_tensor_data(r->all[i]), c->parameters[i], IGNIS_F64,
                                       ignis_array_numel(ignis_tensor_data(r->all[i]))));
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(r->losses), c->losses, IGNIS_F64, STEPS));
}

static const form plain = {IGNIS_F32, 1, false, false, false};

/*  Saves at a step while the training goes on; a fresh training that loads it has the same course from there on. */
TEST(a_training_that_is_continued_has_the_bits_of_an_unbroken_one)
{
    static const form forms[] = {{IGNIS_F32, 1, false, true, true},
                                 {IGNIS_BF16, 1, false, true, false},
                                 {IGNIS_F16, 1, true, false, true},
                                 {IGNIS_F32, 2, false, false, false},
                                 {IGNIS_F64, 3, false, false, true}};
    static run first, second;
    static course unbroken, continued;
    int k, i;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(forms); k++) {
        const char *folder = test_path("run");
        CHECK_OK(ignis_seed(7));
        run_begin(&first, &forms[k], 1);
        for (i = 0; i < STEPS; i++) {
            if (i == SAVED_AT)
                CHECK_OK(ignis_training_save(first.training, folder));
            run_step(&first);
        }
        course_of(&first, &unbroken);
        CHECK_OK(ignis_training_wait(first.training));
        CHECK_OK(ignis_training_wait(first.training)); /* nothing more to wait for */
        run_end(&first);
        CHECK_OK(ignis_seed(99));
        run_begin(&second, &forms[k], 50);
        CHECK_OK(ignis_training_load(second.training, folder));
        for (second.step = SAVED_AT; second.step < STEPS;)
            run_step(&second);
        course_of(&second, &continued);
        CHECK(memcmp(&unbroken, &continued, sizeof unbroken) == 0);
        run_end(&second);
    }
}

/* --- files --- */

/*  The name of the first file in a folder that begins so. */
static const char *file_that_begins(const char *folder, const char *begin)
{
    static char path[PATH];
    DIR *open = opendir(folder);
    struct dirent *entry;
    *path = 0;
    while (open && !*path && (entry = readdir(open)) != NULL)
        if (strncmp(entry->d_name, begin, strlen(begin)) == 0)
            snprintf(path, sizeof path, "%.250s/%.250s", folder, entry->d_name);
    if (open)
        closedir(open);
    return path;
}

static size_t read_all(const char *path, char *data, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(data, 1, capacity - 1, file) : 0;
    CHECK(file != NULL);
    if (file)
        fclose(file);
    data[size] = 0;
    return size;
}

static bool has_file(const char *folder, const char *name)
{
    char path[PATH];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &info) == 0;
}

static void write_in(const char *folder, const char *name, const char *text)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    test_write_file(path, text, strlen(text));
}

TEST(a_folder_has_one_training_and_the_files_of_others_stay)
{
    static const char left[] = "model-0123456789abcdef-00001-of-00002.safetensors",
                      part[] = "training-0123456789abcdef-00002-of-00002.safetensors.99-1-abc.ignis-part";
    static const char *const foreign[] = {"model-00001-of-00002.safetensors", "config.json",
                                          "model-0123456789abcdeX-00001-of-00002.safetensors",
                                          "model-0123456789abcdef-00001-of-00002.safetensors.bak"};
    static char index[8192];
    const char *folder = test_path("one");
    ignis_storage_entry entries[20];
    run r;
    int i;
    SETUP(NULL);
    run_begin(&r, &plain, 1);
    CHECK_OK(ignis_training_save(r.training, folder));
    CHECK_OK(ignis_training_wait(r.training));
    CHECK_INT(test_files_in(folder), 3);
    write_in(folder, left, "x"), write_in(folder, part, "x");
    for (i = 0; i < COUNT_OF(foreign); i++)
        write_in(folder, foreign[i], "{}");
    CHECK_OK(ignis_training_save(r.training, folder)); /* and the next one ends it */
    CHECK_OK(ignis_training_save(r.training, folder));
    CHECK_OK(ignis_training_wait(r.training));
    CHECK(!has_file(folder, left) && !has_file(folder, part));
    for (i = 0; i < COUNT_OF(foreign); i++)
        CHECK(has_file(folder, foreign[i]));
    CHECK_INT(test_files_in(folder), 3 + COUNT_OF(foreign));
    read_all(test_path("one/model.safetensors.index.json"), index, sizeof index);
    CHECK_HAS(index, "\"up.weight\": \"model-");
    CHECK_HAS(index, "-00001-of-00001.safetensors\"");
    CHECK_HAS(index, "\"total_size\": 2252,"); /* of 563 elements in f32 */
    for (i = 0; i < COUNT_OF(foreign); i++) {
        char path[PATH];
        snprintf(path, sizeof path, "%s/%s", folder, foreign[i]);
        remove(path);
    }
    CHECK_INT(ignis_file_list(file_that_begins(folder, "model-"), entries, 20), 4);
    CHECK_INT(ignis_file_list(file_that_begins(folder, "training-"), entries, 20), 1 + 3 * PARAMETERS + 2);
    run_end(&r);
}

/*  The folder readers see is that of the index: a single file beside it would hide it. */
TEST(what_is_refused)
{
    static const char *const twice[] = {"a", "b", "a", "c"}, *const unnamed[] = {"a", NULL, "b", "c"},
                             *const malformed[] = {"a", "\xff", "b", "c"};
    ignis_training_desc desc;
    ignis_training none = {0};
    ignis_lbfgs_desc lbfgs;
    ignis_optimizer other;
    run r;
    const form averaged = {IGNIS_F32, 1, false, true, false};
    SETUP(NULL);
    CHECK_REFUSED(0, ignis_training_create(NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    run_begin(&r, &averaged, 1);
    desc = training_of(&r);
    desc.count = 0;
    CHECK_REFUSED(0, ignis_training_create(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc = training_of(&r), desc.names = NULL;
    CHECK_REFUSED(0, ignis_training_create(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc = training_of(&r), desc.names = unnamed;
    CHECK_REFUSED(0, ignis_training_create(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_MESSAGE_HAS("desc.names[1] is null");
    desc = training_of(&r), desc.names = malformed;
    CHECK_REFUSED(0, ignis_training_create(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STORAGE_NAME);
    desc = training_of(&r), desc.names = twice;
    CHECK_REFUSED(0, ignis_training_create(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STORAGE_NAME);
    CHECK_MESSAGE_HAS("two tensors have the name 'a'");
    desc = training_of(&r), desc.count = 3;
    CHECK_REFUSED(0, ignis_training_create(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("parameter 3 of optimizers[0], [3], is not among the tensors");
    desc = training_of(&r), desc.ranks.rank = 2, desc.ranks.size = 2;
    CHECK_REFUSED(0, ignis_training_create(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    memset(&lbfgs, 0, sizeof lbfgs);
    other = ignis_lbfgs(&lbfgs);
    desc = training_of(&r), desc.optimizers = &other;
    CHECK_REFUSED(0, ignis_training_create(&desc).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_OK(ignis_optimizer_free(other));
    CHECK_STATUS(ignis_training_save(r.training, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_training_load(r.training, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_training_load(r.training, test_path("nowhere")), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS("nowhere/model.safetensors.index.json");
    CHECK_STATUS(ignis_training_save(none, "x"), IGNIS_ERROR_FREED, IGNIS_DIAG_TRAINING_FREED);
    CHECK_STATUS(ignis_training_wait(none), IGNIS_ERROR_FREED, IGNIS_DIAG_TRAINING_FREED);
    CHECK_OK(ignis_training_free(none));
    CHECK_OK(ignis_optimizer_swap_ema(r.optimizers[0]));
    CHECK_STATUS(ignis_training_save(r.training, test_path("swapped")), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_OPTIMIZER_STATE);
    CHECK_STATUS(ignis_training_wait(r.training), IGNIS_ERROR_PEER, IGNIS_DIAG_TRAINING_RANK);
    CHECK_OK(ignis_optimizer_swap_ema(r.optimizers[0]));
    mkdir(test_path("single"), 0777);
    write_in(test_path("single"), "model.safetensors", "x");
    CHECK_STATUS(ignis_training_save(r.training, test_path("single")), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS("single/model.safetensors' exists");
    CHECK_STATUS(ignis_training_wait(r.training), IGNIS_ERROR_PEER, IGNIS_DIAG_TRAINING_RANK);
    write_in(test_folder, "file", "x");
    CHECK_OK(ignis_training_save(r.training, test_path("file"))); /* its thread fails */
    CHECK(ignis_training_wait(r.training) == IGNIS_ERROR_IO);
    CHECK_HAS(ignis_status_message(), "file/model-");
    ignis_status_clear();
    CHECK_OK(ignis_graph_begin());
    CHECK_STATUS(ignis_training_save(r.training, "x"), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_OK(ignis_graph_free(ignis_graph_end()));
    CHECK_OK(ignis_training_save(r.training, test_path("sound")));
    CHECK_OK(ignis_training_wait(r.training));
    run_end(&r);
}

/* --- damage --- */

/*  Replaces a text in a file; the rest of the file stays. A shorter one is filled with spaces. */
static bool replace_text(const char *path, const char *before, const char *after)
{
    static char data[65536];
    size_t size = read_all(path, data, sizeof data), i, length = strlen(before);
    for (i = 0; i + length <= size; i++)
        if (memcmp(data + i, before, length) == 0)
            break;
    if (i + length > size || strlen(after) > length)
        return false;
    memset(data + i, ' ', length);
    memcpy(data + i, after, strlen(after));
    test_write_file(path, data, size);
    return true;
}

TEST(damaged_folders_are_refused_and_touch_nothing)
{
    static const struct {
        const char *file, *before, *after; /* after NULL: the file is removed */
        ignis_status status;
        ignis_diagnostic diagnostic;
        const char *message, *message_too;
    } table[] = {
        {"model.s", "", NULL, IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO, "model.safetensors.index.json", "be opened"},
        {"model-", "", NULL, IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO, "/model-", "be opened"},
        {"training-", "", NULL, IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO, "/training-", "be opened"},
        {"model.s", "{\n  \"metadata\"", "[", IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT, "is not a sound index",
         "a { is missing"},
        {"model.s", "ignis_ranks", "other", IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT, "no ignis_ranks",
         "not a saved training"},
        {"model.s", "\"ignis_ranks\": 1", "\"ignis_ranks\": 0", IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT,
         "ignis_ranks is 0", "expected 1 to 99999"},
        {"model.s", "\"ignis_ranks\": 1", "\"ignis_ranks\": 2", IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT,
         "tensor 'down.bias' in", "-00001-of-00002.safetensors'"},
        {"model.s", "\"ignis_save\": \"", "\"ignis_save\":\"x", IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT,
         "ignis_save is", "expected 16 digits"},
        {"model.s", "\"up.bias\"", "\"up.b\"", IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT, "has tensor 'up.bias'",
         "in 'no file' alone"},
        {"model.s", "\"down.weight\"", "\"up.weight\"", IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT,
         "has tensor 'up.weight' twice", NULL},
        {"model.s", "-00001-of-00001.safetensors", "-00001-of-00001.safetensorz", IGNIS_ERROR_FORMAT,
         IGNIS_DIAG_STORAGE_FORMAT, "has tensor 'up.weight' in", "expected a file"},
        {"model-", "up.bias", "up_bias", IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STORAGE_MISSING, "has tensor 'up_bias'",
         "does not have there"},
        {"model-", "\"shape\":[20,24]", "\"shape\":[24,20]", IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS,
         "'up.weight' as [24, 20]", "expected [20, 24]"},
        {"model-", "\"dtype\":\"F32\"", "\"dtype\":\"I32\"", IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS,
         "as I32; expected f32", "/model-"},
        {"model-", "\"ignis_save\":\"", "\"ignis_savf\":\"", IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT,
         "is of the save 'none'", "expected"},
        {"training-", "optimizer.0.first.up.bias@0", "optimizer.0.first.up.bias@1", IGNIS_ERROR_SHAPE,
         IGNIS_DIAG_SHAPE_DIFFERS, "'optimizer.0.first.up.bias@1' as [20]", "expected a piece of [20]"},
        {"training-", "optimizer.0.first.up.bias@0", "optimizer.0.first.up.bias", IGNIS_ERROR_ARGUMENT,
         IGNIS_DIAG_STORAGE_MISSING, "'optimizer.0.first.up.bias  '", "does not have there"},
        {"training-", "optimizer.0.first.up.bias@0", "optimizer.0.first.up.bias@x", IGNIS_ERROR_ARGUMENT,
         IGNIS_DIAG_STORAGE_MISSING, "does not have there", NULL},
        {"training-", "first.down.bias@0", "first.down.bias@9", IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS,
         "expected a piece of [3]", NULL},
        {"training-", "state.losses", "state.looses", IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STORAGE_MISSING,
         "'state.looses'", "does not have there"},
        {"training-", "state.losses", "up.weight", IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STORAGE_MISSING, "'up.weight",
         "does not have there"},
    };
    const char *folder = test_path("damaged");
    char index[PATH];
    static course before, after;
    run r;
    int i;
    SETUP(NULL);
    run_begin(&r, &plain, 1);
    run_step(&r);
    for (i = 0; i < COUNT_OF(table); i++) {
        char path[PATH];
        CHECK_OK(ignis_training_save(r.training, folder));
        CHECK_OK(ignis_training_wait(r.training));
        course_of(&r, &before);
        snprintf(index, sizeof index, "%s/model.safetensors.index.json", folder);
        snprintf(path, sizeof path, "%s",
                 strcmp(table[i].file, "model.s") == 0 ? index : file_that_begins(folder, table[i].file));
        if (!table[i].after)
            CHECK_INT(remove(path), 0);
        else
            CHECK(replace_text(path, table[i].before, table[i].after));
        CHECK_STATUS(ignis_training_load(r.training, folder), table[i].status, table[i].diagnostic);
        CHECK_MESSAGE_HAS(table[i].message);
        if (table[i].message_too)
            CHECK_MESSAGE_HAS(table[i].message_too);
        course_of(&r, &after);
        CHECK(memcmp(&before, &after, sizeof before) == 0);
    }
    run_end(&r);
}

/* --- cut short --- */

/*  A rank of two whose other rank votes as it does and never writes a file; and one where that has failed. */
static ignis_status sum_alike(uint64_t group, ignis_array array)
{
    int64_t votes[3];
    CHECK_OK(ignis_array_to_host(array, votes, IGNIS_I64, 3));
    votes[1] = group ? 0 : votes[0];
    return ignis_array_from_host(array, votes, IGNIS_I64, 3);
}

TEST(a_rank_that_does_not_write_leaves_the_training_before)
{
    const char *folder = test_path("half");
    static course before, after;
    ignis_training_desc desc;
    ignis_training half;
    run r;
    SETUP(NULL);
    run_begin(&r, &plain, 1);
    run_step(&r);
    CHECK_OK(ignis_training_save(r.training, folder));
    CHECK_OK(ignis_training_wait(r.training));
    course_of(&r, &before);
    desc = training_of(&r);
    desc.ranks.size = 2, desc.ranks.sum_fn = sum_alike;
    half = ignis_training_create(&desc);
    CHECK(half.id);
    run_step(&r);
    CHECK_OK(ignis_training_save(half, folder));
    CHECK_OK(ignis_training_free(half)); /* which has written its own files */
    CHECK_INT(test_files_in(folder), 5);
    CHECK_OK(ignis_training_load(r.training, folder));
    course_of(&r, &after);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    desc.ranks.group = 1; /* now the other rank says that it has failed */
    CHECK_REFUSED(0, ignis_training_create(&desc).id, IGNIS_ERROR_PEER, IGNIS_DIAG_TRAINING_RANK);
    CHECK_MESSAGE_HAS("rank 1 has failed");
    run_end(&r);
}

#ifndef _WIN32
enum { KILLS = 40 };

/*  Trains nothing: in a dry run all values are 0. */
static int save_and_be_killed(void)
{
    ignis_desc desc = test_desc(NULL);
    char folder[PATH];
    run r;
    int at;
    desc.dry_run = true;
    if (!process_receive(PROCESS_SOCKET, &at, sizeof at, NULL) ||
        !process_receive(PROCESS_SOCKET, folder, sizeof folder, NULL) || ignis_setup(&desc) != IGNIS_OK)
        return 90;
    run_begin(&r, &plain, 1);
    kill_at = at;
    CHECK_OK(ignis_training_save(r.training, folder));
    CHECK_OK(ignis_training_wait(r.training));
    kill_at = 0;
    run_end(&r);
    return ignis_shutdown() != IGNIS_OK || test__state.failures ? 91 : 0;
}

/*  Until the index is renamed, the folder has the old training; from then on the new one, whose values are 0. */
TEST(a_process_that_is_killed_at_any_step_leaves_a_whole_training)
{
    static const course zeros;
    static course before, after;
    static char folder[PATH];
    process children[KILLS];
    run r;
    int i, code, old = 0, new = 0, unhurt = 0;
    for (i = 0; i < KILLS; i++)
        children[i] = process_start("save");
    SETUP(NULL);
    run_begin(&r, &plain, 1);
    run_step(&r);
    course_of(&r, &before);
    snprintf(folder, sizeof folder, "%s", test_path("killed"));
    for (i = 0; i < KILLS; i++) {
        const int at = i + 1;
        CHECK_OK(ignis_training_save(r.training, folder));
        CHECK_OK(ignis_training_wait(r.training));
        CHECK_INT(test_files_in(folder), 3); /* what was left is gone */
        CHECK(process_send(children[i].socket, &at, sizeof at, -1));
        CHECK(process_send(children[i].socket, folder, sizeof folder, -1));
        code = process_end(&children[i]);
        CHECK(code == 0 || code == -1);
        unhurt += code == 0;
        CHECK_OK(ignis_training_load(r.training, folder));
        course_of(&r, &after);
        if (memcmp(&before, &after, sizeof before) == 0) {
            CHECK(new == 0 && code == -1);
            old++;
        } else {
            CHECK(memcmp(zeros.parameters, after.parameters, sizeof zeros.parameters) == 0 && after.info.step == 0);
            new ++;
        }
        run_restore(&r, &before);
    }
    CHECK(old > 15 && new > unhurt &&unhurt > 0);
    run_end(&r);
}
#endif

TEST(a_disk_that_fills_up_leaves_the_training_before)
{
    const char *folder = test_path("full");
    static course before, after;
    struct rlimit limit, small;
    run r;
    NEEDS_POSIX("limits of a process");
    SETUP(NULL);
    run_begin(&r, &plain, 1);
    CHECK_OK(ignis_training_save(r.training, folder));
    CHECK_OK(ignis_training_wait(r.training));
    course_of(&r, &before);
    run_step(&r);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    small = limit;
    small.rlim_cur = 2048;
    setrlimit(RLIMIT_FSIZE, &small);
    CHECK_OK(ignis_training_save(r.training, folder));
    CHECK_INT(ignis_training_wait(r.training), IGNIS_ERROR_IO);
    ignis_status_clear();
    setrlimit(RLIMIT_FSIZE, &limit);
    CHECK_INT(test_files_in(folder), 3);
    CHECK_OK(ignis_training_load(r.training, folder));
    course_of(&r, &after);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    run_end(&r);
}

/* --- failures --- */

/*  Saves and loads with one call failing: nothing stays behind, and a later save is whole. */
static ignis_status save_with_fault(const char *prefix, int at, host_counter *counter, bool *reached)
{
    const char *folder = test_path("faults");
    ignis_training_desc desc;
    ignis_training training;
    ignis_status status;
    run r;
    run_begin(&r, &plain, 1);
    CHECK_OK(ignis_training_save(r.training, folder));
    CHECK_OK(ignis_training_wait(r.training));
    desc = training_of(&r);
    fault_plan(prefix, at, 2, counter, false);
    training = ignis_training_create(&desc);
    status = training.id ? ignis_training_save(training, folder) : ignis_status_last();
    if (status == IGNIS_OK)
        status = ignis_training_wait(training);
    if (status == IGNIS_OK)
        status = ignis_training_load(training, folder);
    *reached = fault_over(counter);
    ignis_status_clear();
    if (training.id && ignis_training_free(training) != IGNIS_OK)
        ignis_status_clear(); /* the save that has failed */
    CHECK_OK(ignis_training_load(r.training, folder));
    run_end(&r);
    return status;
}

TEST(every_host_allocation_fails_once)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_status status;
    bool reached = true;
    int at, failed = 0;
    SETUP(&desc);
    for (at = 1; at < 400 && reached; at++) {
        status = save_with_fault(NULL, at, &counter, &reached);
        if (status != IGNIS_OK)
            CHECK_INT(status, IGNIS_ERROR_MEMORY);
        failed += status != IGNIS_OK;
    }
    CHECK(!reached && failed > 40);
}

TEST(every_driver_call_fails_once)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_status status = IGNIS_OK;
    bool reached = true;
    int at, failed = 0;
    NEEDS_NO_MEMCHECK();
    SETUP(&desc);
    for (at = 1; at < 400 && reached; at++) {
        status = save_with_fault("cu", at, &counter, &reached);
        failed += status != IGNIS_OK;
    }
    CHECK_INT(status, IGNIS_OK);
    CHECK(!reached && failed > 20);
}

int main(int argc, char **argv)
{
#ifndef _WIN32
    if (process_role(argc, argv))
        return save_and_be_killed();
#endif
    return test_run(argc, argv);
}
