// SPDX-License-Identifier: MIT
/*  plug.c - a module with Ignis inside, as engines unload and load again; test_system.c is its host */
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/*  The linker puts these in the place of what the module calls: *blocks is what it has taken and not given back, if the
    host wants to know. */
static long *counted;
static void count(long change)
{
    if (counted)
        __atomic_add_fetch(counted, change, __ATOMIC_RELAXED);
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t number, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t size)
{
    count(1);
    return __real_malloc(size);
}
void *__wrap_calloc(size_t number, size_t size)
{
    count(1);
    return __real_calloc(number, size);
}
void *__wrap_realloc(void *memory, size_t size)
{
    count(memory == NULL);
    return __real_realloc(memory, size);
}
void __wrap_free(void *memory)
{
    count(-(memory != NULL));
    __real_free(memory);
}

EXPORTED void plug_count(long *blocks);
void plug_count(long *blocks) { counted = blocks; }

static void silent(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    (void)level, (void)diagnostic, (void)message, (void)user_data;
}

/*  cuda: the path of a driver that is not there; null: a dry run. */
EXPORTED int plug_begin(const char *cuda);
int plug_begin(const char *cuda)
{
    ignis_desc desc = {0};
    desc.dry_run = cuda == NULL;
    desc.cuda_library = cuda;
    desc.logger.log_fn = silent;
    return (int)ignis_setup(&desc);
}

/*  Leaves a tape, scopes of many tensors, random numbers and values to the thread. */
EXPORTED int plug_work(void);
int plug_work(void)
{
    ignis_tensor_desc wanted = {0};
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor w;
    int i;
    wanted.requires_grad = true;
    w = ignis_tensor_ones(IGNIS_SHAPE(4), &wanted);
    for (i = 0; i < 100; i++)
        (void)ignis_map("x * a + rand()", IGNIS_INPUTS(IGNIS_NAMED(x, w), IGNIS_VALUE(a, 2)));
    if (ignis_backward(ignis_mean(ignis_gelu(w)), IGNIS_NO_ARRAY) != IGNIS_OK)
        return 1;
    return (int)ignis_scope_end(scope);
}

/*  Leaves a message to the thread: one too long for its fixed part. */
EXPORTED int plug_fail(void);
int plug_fail(void)
{
    static const char *const names =
        "a_name_that_is_much_longer_than_the_two_hundred_and_fifty_six_bytes_that_a_message_may_have_without_memory_of_"
        "its_own_"
        "and_that_nobody_would_ever_give_to_a_library_but_a_test_which_wants_to_know_whether_that_memory_is_given_back_"
        "when_the_library_is_unloaded_before_the_thread_ends";
    ignis_library_info info;
    ignis_array_desc desc = {0};
    desc.tag = names;
    (void)ignis_library_query(IGNIS_LIBRARY_COUNT, &info);
    (void)ignis_array_create(&desc);
    return ignis_status_last() == IGNIS_OK || !*ignis_status_message() || !*ignis_status_latest_message();
}

EXPORTED int plug_end(void);
int plug_end(void) { return (int)ignis_shutdown(); }
