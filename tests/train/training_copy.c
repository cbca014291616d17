// SPDX-License-Identifier: MIT
/*  training_copy.c - the other side of trainings_compare.py

    training_copy IN FOLDER RANKS       saves the tensors of IN, with an AdamW that has taken one step of rate 0, as a
                                        training of that many ranks: one process plays them all */
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 8 };

/*  Sums the votes of ranks that agree: rank `group` modulo 16 has put its own into `array`. The last number is that of
    the run. */
static ignis_status sum_alike(uint64_t group, ignis_array array)
{
    int64_t votes[RANKS_MAX + 1];
    const int rank = (int)(group % 16), ranks = (int)(group / 16);
    int i;
    ignis_array_to_host(array, votes, IGNIS_I64, ranks + 1);
    for (i = 0; i < ranks; i++)
        votes[i] = votes[rank];
    votes[ranks] = 77;
    return ignis_array_from_host(array, votes, IGNIS_I64, ranks + 1);
}

static void save_as_ranks(ignis_training_desc *desc, const char *folder, int ranks)
{
    ignis_training trainings[RANKS_MAX];
    int i;
    for (i = 0; i < ranks; i++) {
        desc->ranks.rank = i;
        desc->ranks.size = ranks;
        desc->ranks.group = (uint64_t)(16 * ranks + i);
        desc->ranks.sum_fn = sum_alike;
        trainings[i] = ignis_training_create(desc);
        ignis_training_save(trainings[i], folder);
    }
    for (i = 0; i < ranks; i++)
        ignis_training_wait(trainings[i]);
    for (i = 0; i < ranks; i++)
        ignis_training_free(trainings[i]);
}

int main(int argc, char **argv)
{
    const int ranks = argc == 4 ? atoi(argv[3]) : 0;
    ignis_storage_entry *entries;
    ignis_training_desc desc;
    ignis_adamw_desc adamw;
    ignis_optimizer optimizer;
    ignis_tensor *tensors;
    const char **names;
    ignis_scope scope;
    int count, i;
    if (ranks < 1 || ranks > RANKS_MAX || ignis_setup(NULL) != IGNIS_OK)
        return fprintf(stderr, "training_copy: see its head\n"), 1;
    scope = ignis_scope_begin();
    count = ignis_file_list(argv[1], NULL, 0);
    entries = (ignis_storage_entry *)calloc((size_t)count + 1, sizeof *entries);
    names = (const char **)calloc((size_t)count + 1, sizeof *names);
    tensors = (ignis_tensor *)calloc((size_t)count + 1, sizeof *tensors);
    ignis_file_list(argv[1], entries, count);
    for (i = 0; i < count; i++)
        names[i] = entries[i].name;
    ignis_load_trainable(argv[1], names, tensors, count);
    memset(&adamw, 0, sizeof adamw);
    memset(&desc, 0, sizeof desc);
    adamw.lr = 1e-300; /* below each value's rounding */
    optimizer = ignis_adamw(&adamw);
    for (i = 0; i < count; i++) {
        ignis_optimizer_add(optimizer, tensors[i], false);
        ignis_backward(ignis_sum(tensors[i]), IGNIS_NO_ARRAY);
    }
    ignis_optimizer_step(optimizer);
    desc.names = names;
    desc.tensors = tensors;
    desc.count = count;
    desc.optimizers = &optimizer;
    desc.optimizer_count = 1;
    save_as_ranks(&desc, argv[2], ranks);
    ignis_optimizer_free(optimizer);
    ignis_scope_end(scope);
    free(entries), free(names), free(tensors);
    if (ignis_status_last() != IGNIS_OK)
        fprintf(stderr, "training_copy: %s\n", ignis_status_message());
    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK;
}
