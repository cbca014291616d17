/*  models/setup.c - registers what ignis_shutdown closes of models

    Sequences are closed before graphs, as they hold some. Adapters, models and tokenizers follow, in this
    order.
    Uses: ignis__closers of ignis.h. Locks: one of its own, around the registration. */

#include "room.h"

IGNIS__PRIVATE void ignis__sequences_close(const char *call);
IGNIS__PRIVATE void ignis__loras_close(const char *call);
IGNIS__PRIVATE void ignis__models_close(const char *call);
IGNIS__PRIVATE void ignis__tokenizers_close(const char *call);

static void ignis__models_close_all(const char *call)
{
    ignis__loras_close(call);
    ignis__models_close(call);
    ignis__tokenizers_close(call);
}

/*  Checks the setup, as ignis__enter does, and registers. The functions that open a tokenizer or a model
    begin with it; all other functions need one of these objects. In C++ a constructor may call them before
    the kernels are registered. */
IGNIS__PRIVATE bool ignis__models_enter(const char *call)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    if (!ignis__enter(call))
        return false;
    ignis__mutex_lock(&lock);
    if (!ignis__kernels_above)
        ignis__kernels_above = &ignis__model_kernels;
    ignis__closers[IGNIS__CLOSE_BEFORE_GRAPHS] = ignis__sequences_close;
    ignis__closers[IGNIS__CLOSE_MODELS] = ignis__models_close_all;
    ignis__mutex_unlock(&lock);
    return true;
}
