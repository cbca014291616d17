// SPDX-License-Identifier: MIT
/*  test_contract.c - the memory contract: who may free, acquire, release, and what the audit and shutdown report */
#include "array.h"

static ignis_array make_tagged(ignis_owner owner, const char *tag)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(2, 3), IGNIS_F16);
    desc.owner = owner;
    desc.tag = tag;
    return ignis_array_create(&desc);
}

/*  The message of the last failure names the array, and the words of the rule. */
static void check_named(int line, ignis_array array, const char *a, const char *b)
{
    char id[32];
    snprintf(id, sizeof id, "#%llu", (unsigned long long)info_of(array).id);
    test__check_text(__FILE__, line, "message", test__message, id, false);
    test__check_text(__FILE__, line, "message", test__message, a, false);
    test__check_text(__FILE__, line, "message", test__message, b, false);
}
#define CHECK_NAMED(array, a, b) check_named(__LINE__, array, a, b)

/* ownership ----------------------------------------------------------------------------------------------------- */

TEST(acquire_and_release_move_the_ownership)
{
    ignis_owner owner;
    ignis_array array;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_DEFAULT, "moved");
    for (owner = IGNIS_OWNER_NVCCL; owner <= IGNIS_OWNER_WNAIS; owner = (ignis_owner)(owner + 1)) {
        CHECK_OK(ignis_contract_assert_owner(array, IGNIS_OWNER_IGNIS));
        CHECK_OK(ignis_contract_acquire(array, owner));
        CHECK_OK(ignis_contract_assert_owner(array, owner));
        CHECK_INT(info_of(array).owner, owner);
        CHECK_OK(ignis_contract_release(array, owner));
    }
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_NVCCL));
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_WNAIS)); /* straight from another layer */
    CHECK_OK(ignis_contract_release(array, IGNIS_OWNER_WNAIS));
    CHECK_INT(info_of(array).owner, IGNIS_OWNER_IGNIS);
    CHECK_OK(ignis_contract_release(array, IGNIS_OWNER_IGNIS)); /* what Ignis owns it may release to itself */
    drop(array);
}

TEST(an_owner_does_not_acquire_twice)
{
    ignis_array array;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_DEFAULT, "");
    CHECK_STATUS(ignis_contract_acquire(array, IGNIS_OWNER_IGNIS), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_DOUBLE_ACQUIRE);
    CHECK_NAMED(array, "ignis", "acquire");
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_NVCCL));
    CHECK_STATUS(ignis_contract_acquire(array, IGNIS_OWNER_NVCCL), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_DOUBLE_ACQUIRE);
    CHECK_NAMED(array, "nvccl", "acquire");
    CHECK_OK(ignis_contract_release(array, IGNIS_OWNER_NVCCL));
    drop(array);
}

TEST(only_the_owner_releases)
{
    ignis_array array;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_DEFAULT, "");
    CHECK_STATUS(ignis_contract_release(array, IGNIS_OWNER_NVCCL), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_RELEASE_BY_OTHER);
    CHECK_NAMED(array, "ignis", "nvccl");
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_WNAIS));
    CHECK_STATUS(ignis_contract_release(array, IGNIS_OWNER_NVCCL), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_RELEASE_BY_OTHER);
    CHECK_NAMED(array, "wnais", "nvccl");
    CHECK_INT(info_of(array).owner, IGNIS_OWNER_WNAIS);
    CHECK_OK(ignis_contract_release(array, IGNIS_OWNER_WNAIS));
    drop(array);
}

TEST(ownership_stays_while_shared)
{
    ignis_array array;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_DEFAULT, "");
    CHECK_INT(ignis_array_increment_ref(array), 1);
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_NVCCL)); /* one reference is the acquirer's own */
    CHECK_INT(ignis_array_increment_ref(array), 2);
    CHECK_STATUS(ignis_contract_release(array, IGNIS_OWNER_NVCCL), IGNIS_ERROR_CONTRACT,
                 IGNIS_DIAG_TRANSFER_REFERENCED);
    CHECK_NAMED(array, "ref_count", "2");
    CHECK_STATUS(ignis_contract_acquire(array, IGNIS_OWNER_WNAIS), IGNIS_ERROR_CONTRACT,
                 IGNIS_DIAG_TRANSFER_REFERENCED);
    CHECK_NAMED(array, "ref_count", "2");
    CHECK_INT(info_of(array).owner, IGNIS_OWNER_NVCCL);
    CHECK_INT(ignis_array_decrement_ref(array), 1);
    CHECK_OK(ignis_contract_release(array, IGNIS_OWNER_NVCCL));
    CHECK_INT(ignis_array_decrement_ref(array), 0);
    drop(array);
}

TEST(the_owner_is_asserted)
{
    ignis_array array;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_WNAIS, "");
    CHECK_STATUS(ignis_contract_assert_owner(array, IGNIS_OWNER_NVCCL), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_OWNER_DIFFERS);
    CHECK_NAMED(array, "wnais", "nvccl");
    CHECK_OK(ignis_contract_assert_owner(array, IGNIS_OWNER_WNAIS));
    CHECK_OK(ignis_array_free_as(array, IGNIS_OWNER_WNAIS));
}

TEST(only_the_owner_frees)
{
    ignis_array array;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_DEFAULT, "");
    CHECK_STATUS(ignis_array_free_as(array, IGNIS_OWNER_NVCCL), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_BY_OTHER);
    CHECK_NAMED(array, "ignis", "nvccl");
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_NVCCL));
    CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_BY_OTHER);
    CHECK_NAMED(array, "ignis", "nvccl");
    CHECK(ignis_array_is_live(array));
    CHECK_OK(ignis_array_free_as(array, IGNIS_OWNER_NVCCL));
    CHECK_STATUS(ignis_array_free_as(array, IGNIS_OWNER_NVCCL), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
}

TEST(a_referenced_array_is_not_freed)
{
    ignis_array array;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_DEFAULT, "");
    CHECK_INT(ignis_array_increment_ref(array), 1);
    CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_REFERENCED);
    CHECK_NAMED(array, "ref_count is 1", "1 held by others, as by ignis_array_increment_ref");
    CHECK_INT(ignis_array_decrement_ref(array), 0);
    drop(array);
}

TEST(owners_that_do_not_exist)
{
    const ignis_owner bad[] = {(ignis_owner)-1, IGNIS_OWNER_COUNT};
    ignis_array array;
    int i;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_DEFAULT, "");
    for (i = 0; i < 2; i++) {
        CHECK_STATUS(ignis_contract_acquire(array, bad[i]), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
        CHECK_STATUS(ignis_contract_release(array, bad[i]), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
        CHECK_STATUS(ignis_contract_assert_owner(array, bad[i]), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
        CHECK_STATUS(ignis_array_transfer_ownership(array, bad[i]), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    }
    CHECK_INT(info_of(array).owner, IGNIS_OWNER_IGNIS);
    drop(array);
}

/* tracking ------------------------------------------------------------------------------------------------------ */

TEST(acquired_arrays_are_tracked_until_freed)
{
    ignis_array array;
    SETUP(NULL);
    CHECK_INT(ignis_contract_tracked_count(), 0);
    array = make_tagged(IGNIS_OWNER_DEFAULT, "");
    CHECK_INT(ignis_contract_tracked_count(), 0);
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_NVCCL));
    CHECK_INT(ignis_contract_tracked_count(), 1);
    CHECK_OK(ignis_contract_release(array, IGNIS_OWNER_NVCCL));
    CHECK_INT(ignis_contract_tracked_count(), 1);
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_WNAIS));
    CHECK_INT(ignis_contract_tracked_count(), 1); /* once per array */
    CHECK_OK(ignis_array_free_as(array, IGNIS_OWNER_WNAIS));
    CHECK_INT(ignis_contract_tracked_count(), 0);
}

TEST(a_failed_acquire_tracks_nothing)
{
    ignis_array array;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_DEFAULT, "");
    CHECK_STATUS(ignis_contract_acquire(array, IGNIS_OWNER_IGNIS), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_DOUBLE_ACQUIRE);
    CHECK_INT(ignis_contract_tracked_count(), 0);
    drop(array);
}

TEST(tracked_arrays_stay_after_their_free)
{
    ignis_contract_entry entry;
    ignis_array array;
    uint64_t id;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_DEFAULT, "watched");
    id = info_of(array).id;
    CHECK_OK(ignis_contract_track(array));
    CHECK_INT(ignis_contract_audit(&entry, 1, -1), 1);
    CHECK(!entry.freed);
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_NVCCL)); /* does not change how it is tracked */
    CHECK_OK(ignis_array_free_as(array, IGNIS_OWNER_NVCCL));
    CHECK_INT(ignis_contract_tracked_count(), 1);
    CHECK_INT(ignis_contract_audit(&entry, 1, -1), 1);
    CHECK_INT(entry.array_id, id);
    CHECK(entry.freed);
    CHECK_INT(entry.owner, IGNIS_OWNER_NVCCL);
    CHECK_INT(entry.dtype, IGNIS_F16);
    CHECK_INT(entry.shape.ndim, 2);
    CHECK_INT(entry.shape.dim[1], 3);
    CHECK_TEXT(entry.tag, "watched");
    CHECK_OK(ignis_contract_untrack(array)); /* with the stale handle */
    CHECK_INT(ignis_contract_tracked_count(), 0);
    CHECK_OK(ignis_contract_untrack(array)); /* once more is fine */
    CHECK_STATUS(ignis_contract_track(array), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
}

TEST(untracked_arrays_are_forgotten)
{
    ignis_array array;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_DEFAULT, "");
    CHECK_OK(ignis_contract_untrack(array));
    CHECK_OK(ignis_contract_track(array));
    CHECK_OK(ignis_contract_track(array));
    CHECK_INT(ignis_contract_tracked_count(), 1);
    CHECK_OK(ignis_contract_untrack(array));
    CHECK_INT(ignis_contract_tracked_count(), 0);
    drop(array);
    CHECK_INT(ignis_contract_tracked_count(), 0);
}

enum { WATCHED = 500 };
static ignis_array in_the_audit[WATCHED];

static void *free_them(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < WATCHED; i++)
        CHECK_OK(ignis_array_free(in_the_audit[i]));
    return NULL;
}

static void *untrack_them(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < WATCHED; i++)
        CHECK_OK(ignis_contract_untrack(in_the_audit[i]));
    return NULL;
}

TEST(untracking_beside_a_free_leaves_nothing)
{
    pthread_t threads[2];
    int round, i;
    SETUP(NULL);
    for (round = 0; round < 40; round++) {
        for (i = 0; i < WATCHED; i++) {
            in_the_audit[i] = make_tagged(IGNIS_OWNER_DEFAULT, "");
            CHECK_OK(ignis_contract_track(in_the_audit[i]));
        }
        REQUIRE(pthread_create(&threads[0], NULL, free_them, NULL) == 0);
        REQUIRE(pthread_create(&threads[1], NULL, untrack_them, NULL) == 0);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        CHECK_INT(ignis_contract_tracked_count(), 0);
    }
}

TEST(reset_forgets_what_is_tracked)
{
    ignis_array freed, live;
    SETUP(NULL);
    freed = make_tagged(IGNIS_OWNER_DEFAULT, "");
    live = make_tagged(IGNIS_OWNER_DEFAULT, "");
    CHECK_OK(ignis_contract_track(freed));
    CHECK_OK(ignis_contract_acquire(live, IGNIS_OWNER_NVCCL));
    drop(freed);
    CHECK_INT(ignis_contract_tracked_count(), 2);
    CHECK_OK(ignis_contract_reset());
    CHECK_INT(ignis_contract_tracked_count(), 0);
    CHECK_INT(ignis_contract_audit(NULL, 0, -1), 0);
    CHECK_INT(info_of(live).owner, IGNIS_OWNER_NVCCL); /* owners stay */
    CHECK_OK(ignis_contract_track(live));
    CHECK_INT(ignis_contract_tracked_count(), 1);
    CHECK_OK(ignis_contract_reset());
    CHECK_OK(ignis_array_free_as(live, IGNIS_OWNER_NVCCL));
}

TEST(shutdown_forgets_what_is_tracked)
{
    ignis_array array;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_DEFAULT, "");
    CHECK_OK(ignis_contract_track(array));
    drop(array);
    CHECK_OK(ignis_shutdown());
    SETUP(NULL);
    CHECK_INT(ignis_contract_tracked_count(), 0);
}

TEST(many_arrays_are_tracked)
{
    enum { MANY = 1000 };
    static ignis_array arrays[MANY];
    static ignis_contract_entry entries[MANY];
    int i, wrong = 0;
    SETUP(NULL);
    for (i = 0; i < MANY; i++) {
        arrays[i] = make_tagged(IGNIS_OWNER_DEFAULT, "");
        CHECK_OK(ignis_contract_track(arrays[i]));
    }
    CHECK_INT(ignis_contract_tracked_count(), MANY);
    CHECK_INT(ignis_contract_audit(entries, MANY, -1), MANY);
    for (i = 0; i < MANY; i++)
        wrong += entries[i].array_id != info_of(arrays[i]).id;
    CHECK_INT(wrong, 0);
    for (i = 0; i < MANY; i += 2)
        drop(arrays[i]);
    for (i = 0; i < MANY; i++)
        CHECK_OK(ignis_contract_untrack(arrays[(i * 7) % MANY]));
    CHECK_INT(ignis_contract_tracked_count(), 0);
    for (i = 1; i < MANY; i += 2)
        drop(arrays[i]);
}

/* the audit ----------------------------------------------------------------------------------------------------- */

TEST(audit_lists_every_attribute)
{
    ignis_contract_entry entry;
    ignis_array array, slice, shaped;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_WNAIS, "kv cache");
    slice = ignis_array_slice(array, 0, 0, 1);
    shaped = ignis_array_reshape(slice, IGNIS_SHAPE(3));
    CHECK_INT(ignis_array_increment_ref(array), 1);
    CHECK_OK(ignis_contract_track(array));
    CHECK_INT(ignis_contract_audit(&entry, 1, -1), 1);
    CHECK_INT(entry.array_id, info_of(array).id);
    CHECK_INT(entry.owner, IGNIS_OWNER_WNAIS);
    CHECK(entry.age_ms >= 0 && entry.age_ms < 5000);
    CHECK_INT(entry.shape.ndim, 2);
    CHECK_INT(entry.shape.dim[0], 2);
    CHECK_INT(entry.shape.dim[1], 3);
    CHECK_INT(entry.dtype, IGNIS_F16);
    CHECK(!entry.freed);
    CHECK_TEXT(entry.tag, "kv cache");
    CHECK_INT(entry.bytes, 12);
    CHECK_INT(entry.ref_count, 1);
    CHECK_INT(entry.views, 2);
    CHECK_OK(ignis_array_free_as(shaped, IGNIS_OWNER_WNAIS));
    CHECK_OK(ignis_array_free_as(slice, IGNIS_OWNER_WNAIS));
    CHECK_INT(ignis_contract_audit(&entry, 1, -1), 1);
    CHECK_INT(entry.views, 0);
    CHECK_INT(ignis_array_decrement_ref(array), 0);
    CHECK_OK(ignis_array_free_as(array, IGNIS_OWNER_WNAIS));
    CHECK_OK(ignis_contract_untrack(array));
}

TEST(audit_lists_an_array_once_that_is_freed_meanwhile)
{
    static ignis_contract_entry entries[2 * WATCHED];
    pthread_t thread;
    int round, i, k, count, twice = 0, missing = 0;
    SETUP(NULL);
    for (round = 0; round < 5; round++) {
        for (i = 0; i < WATCHED; i++) {
            in_the_audit[i] = make_tagged(IGNIS_OWNER_DEFAULT, "");
            CHECK_OK(ignis_contract_track(in_the_audit[i]));
        }
        REQUIRE(pthread_create(&thread, NULL, free_them, NULL) == 0);
        while (ignis_array_is_live(in_the_audit[WATCHED - 1])) {
            count = ignis_contract_audit(entries, 2 * WATCHED, -1);
            missing += count < WATCHED;
            twice += count > WATCHED;
            for (i = 0; i < count && count <= 2 * WATCHED; i++)
                for (k = i + 1; k < count; k++)
                    twice += entries[i].array_id == entries[k].array_id;
        }
        pthread_join(thread, NULL);
        CHECK_OK(ignis_contract_reset());
    }
    CHECK_INT(twice, 0);
    CHECK_INT(missing, 0);
}

TEST(audit_is_ordered_by_age_and_cut_to_capacity)
{
    ignis_contract_entry entries[4];
    ignis_array arrays[3];
    int i;
    SETUP(NULL);
    for (i = 0; i < 3; i++) {
        arrays[i] = make_tagged(IGNIS_OWNER_DEFAULT, "");
        CHECK_OK(ignis_contract_track(arrays[i]));
        test_sleep_ms(5);
    }
    CHECK_OK(ignis_contract_track(arrays[0])); /* anew: now it is the youngest */
    memset(entries, 0xAB, sizeof entries);
    CHECK_INT(ignis_contract_audit(entries, 2, -1), 3);
    CHECK_INT(entries[0].array_id, info_of(arrays[1]).id);
    CHECK_INT(entries[1].array_id, info_of(arrays[2]).id);
    CHECK(entries[0].age_ms >= entries[1].age_ms);
    CHECK_INT(entries[2].array_id, UINT64_C(0xABABABABABABABAB)); /* beyond capacity nothing is written */
    CHECK_INT(ignis_contract_audit(entries, 4, -1), 3);
    CHECK_INT(entries[2].array_id, info_of(arrays[0]).id);
    CHECK_INT(ignis_contract_audit(NULL, 0, -1), 3);
    CHECK_REFUSED(-1, ignis_contract_audit(NULL, 2, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(-1, ignis_contract_audit(entries, -1, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_OK(ignis_contract_reset());
    for (i = 0; i < 3; i++)
        drop(arrays[i]);
}

TEST(audit_has_an_age_threshold)
{
    ignis_contract_entry entries[2];
    ignis_array old, young;
    SETUP(NULL);
    old = make_tagged(IGNIS_OWNER_DEFAULT, "old");
    CHECK_OK(ignis_contract_acquire(old, IGNIS_OWNER_NVCCL));
    CHECK_INT(ignis_contract_audit(NULL, 0, 0), 0);
    CHECK_INT(ignis_contract_audit(NULL, 0, -1), 1);
    test_sleep_ms(5100);
    young = make_tagged(IGNIS_OWNER_DEFAULT, "young");
    CHECK_OK(ignis_contract_acquire(young, IGNIS_OWNER_NVCCL));
    CHECK_INT(ignis_contract_audit(entries, 2, 0), 1); /* 0: older than 5 seconds */
    CHECK_TEXT(entries[0].tag, "old");
    CHECK(entries[0].age_ms >= 5100);
    CHECK_INT(ignis_contract_audit(entries, 2, 4000), 1);
    CHECK_INT(ignis_contract_audit(entries, 2, 60000), 0);
    CHECK_INT(ignis_contract_audit(entries, 2, -1), 2);
    CHECK_OK(ignis_array_free_as(old, IGNIS_OWNER_NVCCL));
    CHECK_OK(ignis_array_free_as(young, IGNIS_OWNER_NVCCL));
}

/* shutdown ------------------------------------------------------------------------------------------------------ */

TEST(shutdown_reports_every_live_array)
{
    ignis_array arrays[3];
    SETUP(NULL);
    arrays[0] = make_tagged(IGNIS_OWNER_DEFAULT, "first");
    arrays[1] = make_tagged(IGNIS_OWNER_NVCCL, "second");
    arrays[2] = ignis_array_slice(arrays[0], 0, 1, 1);
    CHECK_OK(ignis_array_zero(arrays[0]));
    CHECK(ignis_array_pin(arrays[1]) != NULL);
    CHECK_INT(ignis_array_increment_ref(arrays[1]), 1);
    drop(arrays[2]);
    test_leaks_expected = true;
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_ARRAY_LEAKED), 2);
    CHECK_HAS(test_log_text(IGNIS_DIAG_ARRAY_LEAKED), "[2, 3]");
    CHECK_INT(ignis_status_last(), IGNIS_OK); /* a leak is reported; it is not a failure of the call */
}

TEST(shutdown_reports_nothing_when_all_is_freed)
{
    ignis_array array;
    SETUP(NULL);
    array = make_tagged(IGNIS_OWNER_DEFAULT, "");
    drop(array);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_ARRAY_LEAKED), 0);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
