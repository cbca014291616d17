/*  Held by ignis_setup, ignis_shutdown, and while the library is unloaded. */
static ignis__mutex ignis__setup_lock = IGNIS__MUTEX_INIT;

/*  A library with Ignis inside is unloaded, or the program ends, and other threads live on: nothing of Ignis is
    called by them any more. What stays is what they have kept since ignis_shutdown. Without one, as in a program that
    just ends, they may still be at work. */
IGNIS__AT_UNLOAD static void ignis__unload(void)
{
    if (ignis__atomic_load(&ignis__global.forked)) {
        ignis__thread_exits_close();
        return;
    }
    if (ignis__mutex_try(&ignis__setup_lock)) {
        if (!ignis__atomic_load(&ignis__global.ready)) {
            ignis__messages_cut(&ignis__this_thread);
            ignis__pools_free();
        }
        ignis__mutex_unlock(&ignis__setup_lock);
    }
    ignis__thread_exits_close();
}
