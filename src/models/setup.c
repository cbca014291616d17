/*  models/setup.c - makes the kernels of models known, and registers what ignis_shutdown closes of models

    Uses: ignis__closers of ignis.h.
    Locks: one of its own, around both. */

#include "room.h"

static ignis__mutex ignis__models_lock = IGNIS__MUTEX_INIT;

/*  Checks the setup, as ignis__enter does. The functions that open a tokenizer or a model begin with it; all other
    functions need one of these objects. In C++ a constructor may call them before the kernels are registered. */
IGNIS__PRIVATE bool ignis__models_enter(const char *call)
{
    if (!ignis__enter(call))
        return false;
#ifdef __cplusplus
    ignis__mutex_lock(&ignis__models_lock);
    if (!ignis__kernels_above) {
        ignis__kernels_above = &ignis__model_kernels;
        ignis__kernel_list_above = &ignis__model_kernel_list;
    }
    ignis__mutex_unlock(&ignis__models_lock);
#endif
    return true;
}

/*  Registers the function that closes the objects of a room at ignis_shutdown. Called before the first object is made.
    */
IGNIS__PRIVATE void ignis__models_close_by(int closer, void (*close)(const char *call))
{
    ignis__mutex_lock(&ignis__models_lock);
    ignis__closers[closer] = close;
    ignis__mutex_unlock(&ignis__models_lock);
}
