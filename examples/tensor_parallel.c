// SPDX-License-Identifier: MIT
/*  tensor_parallel.c - a network whose matrices the GPUs divide: each has a part of every matrix

        cc -I. examples/tensor_parallel.c -o tensor_parallel -lm -ldl -lpthread
        examples/launch.sh 2 ./tensor_parallel

    It learns which of 500 tokens follows which, x -> (37 x + 11) mod 500. All ranks have the same batch. The loss is
    that of one GPU up to rounding, for any number of ranks that divides HIDDEN. torchrun, mpirun and srun start it as
    well.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"
#include <stdio.h>

enum { VOCAB = 500, WIDTH = 32, HIDDEN = 96, BATCH = 128, STEPS = 31 };
enum { TABLE, NORM, UP, UP_BIAS, DOWN, DOWN_BIAS, HEAD, PARAMETERS };

/*  The rows from `first` on of a matrix of noise, or the columns; numbers follow from the place in the whole matrix, so
    that any number of ranks begins with the same network. */
static ignis_tensor part_of(int rows, int columns, int first_row, int first_column, int all_columns, float scale)
{
    static float values[VOCAB * WIDTH];
    ignis_tensor_desc desc = {.requires_grad = true};
    for (int i = 0; i < rows * columns; i++) {
        unsigned x = (unsigned)((first_row + i / columns) * all_columns + first_column + i % columns) + 1u;
        x *= 2654435769u, x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
        values[i] = scale * ((float)(x >> 8) / 8388608.0f - 1);
    }
    return ignis_tensor_from_host(values, columns > 1 ? IGNIS_SHAPE(rows, columns) : IGNIS_SHAPE(rows), &desc);
}

static ignis_tensor loss_of(ignis_comm comm, const ignis_tensor *w, ignis_tensor tokens, ignis_tensor targets)
{
    ignis_tensor none = {0}, x = ignis_vocab_parallel_embedding(comm, w[TABLE], tokens); // [BATCH, WIDTH] on all ranks
    ignis_tensor h = ignis_column_parallel_linear(comm, ignis_rms_norm(x, w[NORM], 1e-5), w[UP], w[UP_BIAS]);
    x = ignis_add(x, ignis_row_parallel_linear(comm, ignis_gelu(h), w[DOWN], w[DOWN_BIAS]));
    ignis_tensor logits = ignis_column_parallel_linear(comm, x, w[HEAD], none); // this rank's classes
    ignis_cross_entropy_desc desc = {.classes = VOCAB};                         // the last rank may have padding
    return ignis_vocab_parallel_cross_entropy(comm, logits, targets, &desc);
}

int main(void)
{
    ignis_comm_info info = {.size = 1};
    int tokens[BATCH], targets[BATCH];
    int64_t elements = 0;
    if (ignis_setup(NULL) != IGNIS_OK)
        return 1;
    ignis_comm comm = ignis_comm_init(NULL); // rank, size and device come from the environment
    ignis_comm_query(comm, &info);
    ignis_device_use(info.device);
    if (ignis_status_last() != IGNIS_OK)
        return 1; // Ignis has written the reason to stderr
    if (HIDDEN % info.size != 0) {
        fprintf(stderr, "%d is no multiple of %d ranks\n", HIDDEN, info.size);
        return 1;
    }

    /* Embedding, the matrix into the hidden layer and the head are divided by rows, the one out of it by columns. */
    const int classes = (VOCAB + info.size - 1) / info.size, hidden = HIDDEN / info.size, r = info.rank;
    ignis_tensor_desc leaf = {.requires_grad = true};
    ignis_tensor w[PARAMETERS] = {
        [TABLE] = part_of(classes, WIDTH, r * classes, 0, WIDTH, 1),
        [NORM] = ignis_tensor_ones(IGNIS_SHAPE(WIDTH), &leaf),
        [UP] = part_of(hidden, WIDTH, r * hidden, 0, WIDTH, 0.2f),
        [UP_BIAS] = part_of(hidden, 1, r * hidden, 0, 1, 0.1f),
        [DOWN] = part_of(WIDTH, hidden, 0, r * hidden, HIDDEN, 0.1f),
        [DOWN_BIAS] = ignis_tensor_zeros(IGNIS_SHAPE(WIDTH), &leaf), // added after the sum: all ranks have it
        [HEAD] = part_of(classes, WIDTH, r * classes, 0, WIDTH, 0.1f),
    };

    /* One optimizer for parts and one for what all ranks have, so that clipping counts each number once. */
    ignis_adamw_desc adamw = {.lr = 0.02, .drop_grad = true};
    ignis_optimizer optimizers[2] = {ignis_adamw(&adamw), ignis_adamw(&adamw)};
    for (int i = 0; i < PARAMETERS; i++) {
        ignis_optimizer_add(optimizers[i == NORM || i == DOWN_BIAS], w[i], false);
        elements += ignis_tensor_numel(w[i]);
    }

    for (int step = 0; step < STEPS; step++) {
        ignis_scope scope = ignis_scope_begin();
        for (int i = 0; i < BATCH; i++) {
            tokens[i] = (step * BATCH + i) * 7 % VOCAB;
            targets[i] = (37 * tokens[i] + 11) % VOCAB;
        }
        ignis_tensor_desc ids = {.dtype = IGNIS_I32, .host_dtype = IGNIS_I32};
        ignis_tensor loss = loss_of(comm, w, ignis_tensor_from_host(tokens, IGNIS_SHAPE(BATCH), &ids),
                                    ignis_tensor_from_host(targets, IGNIS_SHAPE(BATCH), &ids));
        ignis_backward(loss, IGNIS_NO_ARRAY);
        ignis_comm_clip_grad_norms(comm, optimizers, 2, 1, 1.0);
        ignis_optimizer_step(optimizers[0]);
        ignis_optimizer_step(optimizers[1]);
        if (info.rank == 0 && (step % 10 == 0))
            printf("step %2d: loss %.3f\n", step, ignis_item(loss));
        ignis_scope_end(scope);
    }
    if (ignis_comm_synchronize(comm) == IGNIS_OK)
        printf("rank %d of %d has %lld weights\n", info.rank, info.size, (long long)elements);

    ignis_optimizer_free(optimizers[0]);
    ignis_optimizer_free(optimizers[1]);
    for (int i = 0; i < PARAMETERS; i++)
        ignis_tensor_release(w[i]);
    ignis_comm_destroy(comm);
    bool failed = ignis_status_last() != IGNIS_OK;
    return ignis_shutdown() != IGNIS_OK || failed;
}
