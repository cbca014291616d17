// SPDX-License-Identifier: MIT
/*  test_sequence_file.c - sequences in files: they continue with the same bits; files that are cut off, altered, of
    another model or of another version are refused; failures leave the old file, and no page in use */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "generate.h"

enum { CONTEXT = 160, MOST = 131 };

static const test_shape tiny = {1, 2, 1, 8, 16, 16, 120, false, false, false, IGNIS_F32};
static const test_shape bigger = {2, 2, 1, 8, 16, 24, 120, false, true, true, IGNIS_BF16};
static const test_shape learned = {1, 1, 1, 8, 16, 24, 120, true, true, false, IGNIS_F16};
static const test_shape windowed = {2, 2, 1, 8, 24, 40, 77, false, false, true, IGNIS_F32};

static int free_tokens(ignis_sequence s)
{
    ignis_sequence_info info;
    CHECK_OK(ignis_sequence_query(s, &info));
    return info.free_tokens;
}

/*  Two sequences go on in the same way. */
static void check_equal(const test_model *t, ignis_sequence a, ignis_sequence b, int steps, int line)
{
    ignis_sampling_desc sampling;
    ignis_sequence_info info[2];
    int32_t ids[2][CONTEXT];
    float logits[2][MOST];
    int i, same = ignis_sequence_length(a) == ignis_sequence_length(b);
    memset(&sampling, 0, sizeof sampling);
    sampling.temperature = 0.8;
    sampling.repetition_penalty = 1.2;
    sampling.seed = 7;
    memset(ids, 0, sizeof ids);
    memset(logits, 0, sizeof logits);
    CHECK_OK(ignis_sequence_query(a, &info[0]));
    CHECK_OK(ignis_sequence_query(b, &info[1]));
    same = same && info[0].log_prob == info[1].log_prob;
    for (i = 0; i < steps; i++)
        same = same && ignis_sequence_next(a, &sampling) == ignis_sequence_next(b, &sampling);
    (void)ignis_sequence_ids(a, ids[0], CONTEXT);
    (void)ignis_sequence_ids(b, ids[1], CONTEXT);
    if (ignis_sequence_length(a) > 0) {
        CHECK_OK(ignis_sequence_logits(a, logits[0], t->shape.vocab));
        CHECK_OK(ignis_sequence_logits(b, logits[1], t->shape.vocab));
    }
    if (!same || memcmp(ids[0], ids[1], sizeof ids[0]) != 0 || memcmp(logits[0], logits[1], sizeof logits[0]) != 0)
        test__fail(__FILE__, line, "the sequence that was loaded goes on in another way");
}

static size_t read_all(const char *name, unsigned char *bytes, size_t room)
{
    FILE *file = fopen(test_path(name), "rb");
    size_t size = file ? fread(bytes, 1, room, file) : 0;
    if (file)
        fclose(file);
    return size;
}

TEST(it_continues_with_the_same_bits)
{
    static const test_shape *const models[] = {&tiny, &bigger, &learned, &windowed};
    static const int lengths[] = {0, 1, 16, 17, 70, 97};
    static unsigned char bytes[2][1 << 17];
    int m, i;
    SETUP(NULL);
    for (m = 0; m < COUNT_OF(models); m++) {
        test_model t;
        test_model_begin(&t, models[m], CONTEXT, 3);
        if (models[m] == &windowed)
            t.model->layer[0].window = 9, t.model->layer[1].window = 5;
        for (i = m == 0 ? 0 : 3; i < COUNT_OF(lengths); i++) {
            ignis_sequence s = prompted(&t, lengths[i]), loaded;
            size_t size;
            if (i % 2 && lengths[i])
                CHECK(ignis_sequence_next(s, NULL) >= 0);
            if (m == 3 && lengths[i] == 97)
                CHECK_OK(ignis_sequence_truncate(s, 20)); /* the window before is gone */
            CHECK_OK(ignis_sequence_save(s, test_path("s")));
            loaded = ignis_sequence_load(t.handle, test_path("s"));
            CHECK_OK(ignis_sequence_save(loaded, test_path("again")));
            size = read_all("s", bytes[0], sizeof bytes[0]);
            CHECK(size > 0 && size < sizeof bytes[0]);
            CHECK_INT(read_all("again", bytes[1], sizeof bytes[1]), (int)size);
            CHECK(memcmp(bytes[0], bytes[1], size) == 0);
            check_equal(&t, s, loaded, lengths[i] ? 3 : 0, __LINE__);
            CHECK_OK(ignis_sequence_truncate(s, ignis_sequence_length(s) / 2));
            CHECK_OK(ignis_sequence_truncate(loaded, ignis_sequence_length(loaded) / 2));
            check_equal(&t, s, loaded, lengths[i] > 1 ? 2 : 0, __LINE__);
            CHECK_OK(ignis_sequence_free(loaded));
            CHECK_OK(ignis_sequence_free(s));
        }
        test_model_end(&t);
    }
    CHECK_INT(memory().live_bytes, 0);
}

/*  A file is smaller than what it holds would be without a cache of pages, and another context reads it. */
TEST(other_contexts_and_caches)
{
    test_model t, roomy, narrow;
    ignis_sequence s, loaded, other;
    SETUP(NULL);
    test_model_begin(&t, &tiny, CONTEXT, 2);
    test_model_begin(&roomy, &tiny, 2 * CONTEXT, 1);
    test_model_begin(&narrow, &tiny, 64, 1);
    s = prompted(&t, 70);
    CHECK_OK(ignis_sequence_save(s, test_path("s")));
    loaded = ignis_sequence_load(roomy.handle, test_path("s"));
    check_equal(&t, s, loaded, 3, __LINE__);
    CHECK_OK(ignis_sequence_free(loaded));
    CHECK_FAILS(ignis_sequence_load(narrow.handle, test_path("s")), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_CONTEXT_FULL);
    CHECK_MESSAGE_HAS("has 70 tokens, which do not fit the context of 64");
    CHECK_OK(ignis_sequence_truncate(s, 0));
    s = (CHECK_OK(ignis_sequence_free(s)), prompted(&t, CONTEXT - 10));
    other = prompted(&t, CONTEXT - 40);
    CHECK_FAILS(ignis_sequence_load(t.handle, test_path("s")), IGNIS_ERROR_MEMORY, IGNIS_DIAG_CACHE_FULL);
    CHECK_MESSAGE_HAS("2 of them free, and 5 are needed");
    CHECK_OK(ignis_sequence_free(other));
    loaded = ignis_sequence_load(t.handle, test_path("s"));
    CHECK_INT(ignis_sequence_length(loaded), 70);
    CHECK_OK(ignis_sequence_free(loaded));
    CHECK_OK(ignis_sequence_free(s));
    test_model_end(&narrow);
    test_model_end(&roomy);
    test_model_end(&t);
}

/*  Writes a file with some bytes changed. */
static void write_changed(const unsigned char *bytes, size_t size, size_t at, const void *with, size_t count)
{
    unsigned char *copy = (unsigned char *)malloc(size + 1);
    memcpy(copy, bytes, size);
    if (count)
        memcpy(copy + at, with, count);
    test_write_file(test_path("d"), copy, size);
    free(copy);
}

TEST(what_is_refused)
{
    static const test_shape deeper = {2, 2, 1, 8, 16, 16, 120, false, false, false, IGNIS_F32};
    static unsigned char bytes[1 << 16];
    const uint32_t two = 2;
    ignis_sequence s, none = {0};
    test_model t, of_shape, of_weights;
    float other = 3;
    size_t size, at;
    int before;
    SETUP(NULL);
    test_model_begin(&t, &tiny, CONTEXT, 2);
    test_model_begin(&of_shape, &deeper, CONTEXT, 1);
    test_model_begin(&of_weights, &tiny, CONTEXT, 1);
    CHECK_OK(ignis_array_write_rows(ignis_tensor_data(of_weights.model->norm), ignis_tensor_data(t.model->norm), 0));
    {
        float norm[16];
        CHECK_OK(ignis_array_to_host(ignis_tensor_data(of_weights.model->norm), norm, IGNIS_F32, 16));
        norm[3] += other;
        CHECK_OK(ignis_array_from_host(ignis_tensor_data(of_weights.model->norm), norm, IGNIS_F32, 16));
    }
    s = prompted(&t, 40);
    CHECK_OK(ignis_sequence_save(s, test_path("s")));
    size = read_all("s", bytes, sizeof bytes);
    before = free_tokens(s);
    CHECK_FAILS(ignis_sequence_load(of_shape.handle, test_path("s")), IGNIS_ERROR_MISMATCH, IGNIS_DIAG_SEQUENCE_MODEL);
    CHECK_MESSAGE_HAS("is of a model of 1 layers, 16 elements and 120 tokens");
    CHECK_MESSAGE_HAS("this one has 2 layers");
    CHECK_FAILS(ignis_sequence_load(of_weights.handle, test_path("s")), IGNIS_ERROR_MISMATCH,
                IGNIS_DIAG_SEQUENCE_MODEL);
    write_changed(bytes, size, offsetof(ignis__sequence_header, version), &two, sizeof two);
    CHECK_FAILS(ignis_sequence_load(t.handle, test_path("d")), IGNIS_ERROR_FORMAT, IGNIS_DIAG_SEQUENCE_FILE);
    CHECK_MESSAGE_HAS("has version 2; expected 1");
    write_changed(bytes, size, 0, "Q", 1);
    CHECK_FAILS(ignis_sequence_load(t.handle, test_path("d")), IGNIS_ERROR_FORMAT, IGNIS_DIAG_SEQUENCE_FILE);
    CHECK_MESSAGE_HAS("does not begin with IGNISSEQ");
    for (at = 0; at < size; at += 1 + at / 5) { /* cut off, and a byte changed */
        unsigned char changed = (unsigned char)(bytes[at] ^ 4);
        write_changed(bytes, at, 0, NULL, 0);
        CHECK_FAILS(ignis_sequence_load(t.handle, test_path("d")), IGNIS_ERROR_FORMAT, IGNIS_DIAG_SEQUENCE_FILE);
        write_changed(bytes, size, at, &changed, 1);
        CHECK(ignis_sequence_load(t.handle, test_path("d")).id == 0);
        CHECK(ignis_status_last() == IGNIS_ERROR_FORMAT || ignis_status_last() == IGNIS_ERROR_MISMATCH ||
              ignis_status_last() == IGNIS_ERROR_ARGUMENT); /* of another model; more tokens than the context */
        ignis_status_clear();
        CHECK_INT(free_tokens(s), before);
    }
    write_changed(bytes, size - 1, 0, NULL, 0);
    CHECK_FAILS(ignis_sequence_load(t.handle, test_path("d")), IGNIS_ERROR_FORMAT, IGNIS_DIAG_SEQUENCE_FILE);
    CHECK_MESSAGE_HAS("bytes; expected ");
    CHECK_FAILS(ignis_sequence_load(t.handle, test_path("missing")), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_FAILS(ignis_sequence_load(t.handle, test_folder), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_FAILS(ignis_sequence_load(t.handle, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_sequence_save(s, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_sequence_save(s, test_path("no/folder")), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_STATUS(ignis_sequence_save(none, test_path("s")), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    CHECK_OK(ignis_sequence_free(s));
    test_model_end(&of_weights);
    test_model_end(&of_shape);
    CHECK_OK(ignis_status_last());
    test_model_end(&t);
}

/*  One call fails: the file is the old one, or nothing is loaded; the next time all is well. */
static void check_faults(const char *prefix, int stride)
{
    static unsigned char old[1 << 15], now[1 << 15];
    static host_counter counter;
    ignis_desc setup = test_counting_desc(&counter);
    ignis_sequence s, loaded;
    size_t size;
    int at, before, failures = 0, loads;
    bool reached = true;
    test_model t;
    SETUP(&setup);
    test_model_begin(&t, &tiny, CONTEXT, 2);
    s = prompted(&t, 20);
    CHECK_OK(ignis_sequence_save(s, test_path("s")));
    size = read_all("s", old, sizeof old);
    CHECK(ignis_sequence_next(s, NULL) >= 0);
    before = free_tokens(s);
    for (loads = 0; loads < 2; loads++, reached = true)
        for (at = 1; at < 500 && reached; at += stride) {
            bool ok;
            loaded.id = 0;
            fault_plan(prefix, at, 2, &counter, false);
            if (loads)
                ok = (loaded = ignis_sequence_load(t.handle, test_path("s"))).id != 0;
            else
                ok = ignis_sequence_save(s, test_path("s")) == IGNIS_OK;
            reached = fault_over(&counter);
            failures += !ok;
            CHECK(ok || ignis_status_last() != IGNIS_OK);
            ignis_status_clear();
            if (!ok && !loads) {
                CHECK_INT(read_all("s", now, sizeof now), (int)size);
                CHECK(memcmp(old, now, size) == 0);
            }
            if (ok && !loads)
                size = read_all("s", old, sizeof old);
            if (loaded.id)
                CHECK_OK(ignis_sequence_free(loaded));
            CHECK_INT(free_tokens(s), before);
        }
    loaded = ignis_sequence_load(t.handle, test_path("s"));
    check_equal(&t, s, loaded, 2, __LINE__);
    CHECK_OK(ignis_sequence_free(loaded));
    CHECK_OK(ignis_sequence_free(s));
    test_model_end(&t);
    CHECK(failures > 0 && at < 500);
}

TEST(each_copy_fails_once) { check_faults("cuMemcpy", 3); }
TEST(each_wait_fails_once) { check_faults("cuStreamSynchronize", 3); }
TEST(each_host_allocation_fails_once) { check_faults(NULL, 1); }

int main(int argc, char **argv) { return test_run(argc, argv); }
