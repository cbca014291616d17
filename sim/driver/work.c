// SPDX-License-Identifier: MIT
/*  work.c - runs the work of an operation, and keeps alive what it needs

    Work is checked again when it runs: memory, modules and devices may be gone since it was submitted. A
    fault ends all work of the process.
*/
#include "driver.h"

#include <linux/futex.h>
#include <limits.h>
#include <sys/syscall.h>
#include <time.h>

void module_release(sim_module_object *module)
{
    if (!module || --module->references)
        return;
    sim_module_unload(module->module);
    free(module);
}

void signal_release(sim_signal *signal)
{
    if (!signal || --signal->references)
        return;
    munmap(signal->board, page);
    close(signal->file);
    free(signal);
}

void timeline_release(sim_timeline *timeline)
{
    if (!timeline || --timeline->references)
        return;
    munmap(timeline->page, page);
    close(timeline->file);
    free(timeline);
}

void work_release(sim_work *work)
{
    signal_release(work->signal);
    timeline_release(work->timeline);
    free(work->storage);
    module_release(work->module);
    plan_release(work->plan);
}

void plan_release(sim_plan *plan)
{
    if (!plan || --plan->references)
        return;
    for (int i = 0; i < plan->count; i++) {
        work_release(&plan->nodes[i].work);
        free(plan->nodes[i].after.numbers);
    }
    while (plan->goodbyes) {
        sim_goodbye *goodbye = plan->goodbyes;
        plan->goodbyes = goodbye->next;
        goodbye->call(goodbye->data);
        free(goodbye);
    }
    free(plan->nodes);
    free(plan);
}

void op_release(sim_op *op)
{
    if (!op || --op->references)
        return;
    for (int i = 0; i < op->wait_count; i++)
        op_release(op->waits[i]);
    free(op->waits);
    work_release(&op->work);
    free(op);
}

int op_wait_for(sim_op *op, sim_op *earlier)
{
    if (!earlier || earlier->done)
        return SUCCESS;
    sim_op **waits = realloc(op->waits, (size_t)(op->wait_count + 1) * sizeof *waits);
    if (!waits)
        return ERROR_OUT_OF_MEMORY;
    op->waits = waits;
    waits[op->wait_count++] = earlier;
    earlier->references++;
    return SUCCESS;
}

/* Returns the next operation that has to be done before `op`, or NULL. */
sim_op *op_blocker(sim_op *op)
{
    while (op->wait_count) {
        sim_op *last = op->waits[op->wait_count - 1];
        if (!last->done)
            return last;
        op->wait_count--;
        op_release(last);
    }
    return NULL;
}

/* Records a fault: nothing runs on any device from now on, and waits end. */
void context_fail(const sim_context *context, int code, const char *text)
{
    if (sim.error)
        return;
    __atomic_store_n(&sim.error, code, __ATOMIC_RELAXED);
    say("device %d: %s (%d): %s", context->device, code_name(code) ? code_name(code) : "error", code, text);
}

static void do_copy(const sim_copy *copy)
{
    for (size_t i = 0; i < copy->height; i++)
        memmove((char *)copy->dst + i * copy->dst_pitch, (const char *)copy->src + i * copy->src_pitch, copy->width);
}

static void do_fill(const sim_fill *fill)
{
    if (fill->size == 1)
        memset(fill->dst, (int)fill->value, fill->count);
    else if (fill->size == 2)
        for (size_t i = 0; i < fill->count; i++)
            ((uint16_t *)fill->dst)[i] = (uint16_t)fill->value;
    else
        for (size_t i = 0; i < fill->count; i++)
            ((uint32_t *)fill->dst)[i] = fill->value;
}

size_t extent(size_t pitch, size_t width, size_t height) { return (height - 1) * pitch + width; }

static int copy_is_live(const sim_copy *copy)
{
    sim_range *range;
    size_t dst_bytes = extent(copy->dst_pitch, copy->width, copy->height),
           src_bytes = extent(copy->src_pitch, copy->width, copy->height);
    return !check_span(copy->dst, dst_bytes, copy->dst_side, copy->device, ACCESS_WRITE, &range) &&
           !check_span(copy->src, src_bytes, copy->src_side, copy->device, ACCESS_READ, &range);
}

/* Checks that what the work needs still exists: another device's context or a graph may outlive it. */
int work_check(const sim_work *work, char *text, size_t text_size)
{
    sim_range *range;
    int copies = work->kind != WORK_COPY || copy_is_live(&work->copy);
    int fills = work->kind != WORK_FILL || !check_span(work->fill.dst, work->fill.count * work->fill.size, SIDE_DEVICE,
                                                       work->fill.device, ACCESS_WRITE, &range);
    if (!copies || !fills)
        return snprintf(text, text_size, "a %s found its memory freed", copies ? "fill" : "copy"),
               ERROR_ILLEGAL_ADDRESS;
    int is_word = work->kind == WORK_WRITE || work->kind == WORK_WAIT,
        access = work->kind == WORK_WRITE ? ACCESS_WRITE : ACCESS_READ;
    if (is_word && check_span(work->word.address, work->word.size, SIDE_ANY, work->word.device, access, &range))
        return snprintf(text, text_size, "a stream memory operation found its memory freed"), ERROR_ILLEGAL_ADDRESS;
    if (!work->module || !work->module->unloaded)
        return SUCCESS;
    return snprintf(text, text_size, "%s was launched after its module was unloaded", work->kernel->name),
           ERROR_ILLEGAL_ADDRESS;
}

static int plan_run(const sim_plan *plan, char *text, size_t text_size);

static int word_is_there(const sim_word *word)
{
    int narrow = word->size == 4;
    uint64_t mask = narrow ? 0xFFFFFFFFu : UINT64_MAX;
    uint64_t found = narrow ? __atomic_load_n((uint32_t *)word->address, __ATOMIC_ACQUIRE)
                            : __atomic_load_n((uint64_t *)word->address, __ATOMIC_ACQUIRE);
    switch (word->condition) {
    case WAIT_EQUAL: return found == word->value;
    case WAIT_AND: return (found & word->value) != 0;
    case WAIT_NOR: return (~(found | word->value) & mask) != 0;
    default: return narrow ? (int32_t)(uint32_t)(found - word->value) >= 0 : (int64_t)(found - word->value) >= 0;
    }
}

static void word_write(const sim_word *word)
{
    if (word->size == 4)
        __atomic_store_n((uint32_t *)word->address, (uint32_t)word->value, __ATOMIC_SEQ_CST);
    else
        __atomic_store_n((uint64_t *)word->address, word->value, __ATOMIC_SEQ_CST);
}

/* Waits for a value in memory. Called unlocked. */
static int word_wait(const sim_work *work, char *text, size_t text_size)
{
    for (;;) {
        struct timespec pause = {.tv_nsec = 20000};
        pthread_mutex_lock(&sim.lock);
        int code = sim.error ? sim.error : work_check(work, text, text_size);
        int there = !code && word_is_there(&work->word);
        pthread_mutex_unlock(&sim.lock);
        if (code || there)
            return code;
        nanosleep(&pause, NULL);
    }
}

/* Waits for a timeline. A wait that nothing can end is an error of the program, which hangs with a real
   driver. Called unlocked. */
static int timeline_wait(const sim_work *work, char *text, size_t text_size)
{
    sim_timeline_page *timeline = work->timeline->page;
    uint64_t value = atomic_load(&timeline->value), before = value;
    int64_t since = now();
    while (value < work->value && !sim_fault()) {
        struct timespec pause = {.tv_nsec = 20000};
        if (value != before)
            since = now();
        before = value;
        if (now() - since > (int64_t)sim.patience * 1000000) {
            snprintf(text, text_size,
                     "no progress: a stream waits for value %llu of a timeline, which has been at %llu for %d ms "
                     "(IGNIS_SIM_PATIENCE)",
                     (unsigned long long)work->value, (unsigned long long)value, sim.patience);
            return ERROR_LAUNCH_TIMEOUT;
        }
        nanosleep(&pause, NULL);
        value = atomic_load(&timeline->value);
    }
    return SUCCESS;
}

/* Raises a timeline. A value may only rise, as in Vulkan. */
static int timeline_raise(const sim_work *work, char *text, size_t text_size)
{
    sim_timeline_page *timeline = work->timeline->page;
    uint64_t value = atomic_load(&timeline->value);
    do {
        if (value >= work->value) {
            snprintf(text, text_size, "a stream signals value %llu of a timeline that is at %llu: the value only rises",
                     (unsigned long long)work->value, (unsigned long long)value);
            return ERROR_LAUNCH_FAILED;
        }
    } while (!atomic_compare_exchange_weak(&timeline->value, &value, work->value));
    return SUCCESS;
}

static void signal_set(sim_signal *signal, uint32_t sequence)
{
    uint32_t done = atomic_load(&signal->board->done);
    while ((int32_t)(sequence - done) > 0 && !atomic_compare_exchange_weak(&signal->board->done, &done, sequence))
        ;
    syscall(SYS_futex, &signal->board->done, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Tells whether a process runs. A killed process may still be a zombie of its parent. */
static int is_running(pid_t pid)
{
    char path[64], text[512], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[size > 0 ? size : 0] = 0;
    const char *end = strrchr(text, ')');
    if (end && end[1])
        state = end[2];
    return state != 'Z' && state != 'X' && state != 'x';
}

/* Tells whether a record is done. Work that a dead process had queued counts as done, so that nobody waits
   for ever. */
int signal_is_set(sim_signal *signal, uint32_t sequence)
{
    return (int32_t)(atomic_load(&signal->board->done) - sequence) >= 0 ||
           !is_running(atomic_load(&signal->board->recorder));
}

int sim_fault(void) { return __atomic_load_n(&sim.error, __ATOMIC_RELAXED); }

/* Waits for a record. Called unlocked. */
void signal_wait(sim_signal *signal, uint32_t sequence)
{
    while (!signal_is_set(signal, sequence) && !sim_fault()) {
        uint32_t done = atomic_load(&signal->board->done);
        struct timespec patience = {.tv_nsec = 100000000};
        if ((int32_t)(done - sequence) < 0)
            syscall(SYS_futex, &signal->board->done, FUTEX_WAIT, done, &patience, NULL, 0);
    }
}

/* Runs a kernel. Called unlocked. A block of a kernel that waits for others occupies a whole processor until
   it ends, as real blocks do that use most of its registers. A launch that does not fit begins when others
   have ended. */
static int kernel_run(const sim_work *work, char *text, size_t text_size)
{
    sim_context *context = &sim.contexts[work->launch.device];
    const unsigned *grid = work->launch.grid;
    size_t blocks = (size_t)grid[0] * grid[1] * grid[2];
    int code;
    if (!work->kernel->spins)
        return sim_execute(work->kernel, &work->launch, work->storage, text, text_size);
    pthread_mutex_lock(&sim.lock);
    while (context->resident && context->resident + blocks > SM_COUNT && !sim.error)
        pthread_cond_wait(&sim.moved, &sim.lock);
    context->resident += blocks;
    pthread_mutex_unlock(&sim.lock);
    code = sim_execute(work->kernel, &work->launch, work->storage, text, text_size);
    pthread_mutex_lock(&sim.lock);
    context->resident -= blocks;
    pthread_cond_broadcast(&sim.moved);
    pthread_mutex_unlock(&sim.lock);
    return code;
}

int work_run(const sim_work *work, char *text, size_t text_size)
{
    switch (work->kind) {
    case WORK_NOTHING: break;
    case WORK_COPY: do_copy(&work->copy); break;
    case WORK_FILL: do_fill(&work->fill); break;
    case WORK_WRITE: word_write(&work->word); break;
    case WORK_WAIT: return word_wait(work, text, text_size);
    case WORK_RAISE: return timeline_raise(work, text, text_size);
    case WORK_REACH: return timeline_wait(work, text, text_size);
    case WORK_SIGNAL: signal_set(work->signal, work->sequence); break;
    case WORK_AWAIT: signal_wait(work->signal, work->sequence); break;
    case WORK_GRAPH: return plan_run(work->plan, text, text_size);
    case WORK_KERNEL: return kernel_run(work, text, text_size);
    case WORK_CALL:
        thread.in_callback++;
        work->call(work->call_data);
        thread.in_callback--;
        break;
    }
    return SUCCESS;
}

static int plan_run(const sim_plan *plan, char *text, size_t text_size)
{
    int code = SUCCESS;
    for (int i = 0; i < plan->count && !code; i++) {
        pthread_mutex_lock(&sim.lock);
        code = work_check(&plan->nodes[i].work, text, text_size);
        pthread_mutex_unlock(&sim.lock);
        if (!code)
            code = work_run(&plan->nodes[i].work, text, text_size);
    }
    return code;
}
