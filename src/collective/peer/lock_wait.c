/*  Takes a lock that another thread may have while it waits itself. */
static bool ignis__mutex_within(ignis__trouble *trouble, ignis__mutex *mutex, const ignis__until *until,
                                const char *what)
{
    while (!ignis__mutex_try(mutex)) {
        if (ignis__until_slice(until, 1) == 0)
            return ignis__trouble_late(trouble, until, what);
        ignis__sleep_us(50);
    }
    return true;
}
