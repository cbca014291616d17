/*  >>comm.tuning - IGNIS_COMM_TUNE

    Reads parameters for measurements from the environment.
    Uses: ignis__comm_tune.
    Invariants: unknown names and bad numbers are errors.
    Locks: none. */

#include "room.h"

IGNIS__PRIVATE bool ignis__comm_tune_read(const char *call, ignis__comm_tune *tune)
{
    static const struct {
        const char *name;
        size_t offset;
        int64_t value;
    } known[] = {
#define IGNIS__COMM_TUNE_ROW(name, value) {#name, offsetof(ignis__comm_tune, name), value},
        IGNIS__COMM_TUNES(IGNIS__COMM_TUNE_ROW)
#undef IGNIS__COMM_TUNE_ROW
    };
    const char *text = ignis__env("IGNIS_COMM_TUNE");
    int i;
    for (i = 0; i < IGNIS__COUNT(known); i++)
        *(int64_t *)(void *)((char *)tune + known[i].offset) = known[i].value;
    while (text && *text) {
        size_t length = strcspn(text, "=");
        char *end = NULL;
        long long value = text[length] ? strtoll(text + length + 1, &end, 0) : -1;
        for (i = 0; i < IGNIS__COUNT(known); i++)
            if (strlen(known[i].name) == length && strncmp(known[i].name, text, length) == 0)
                break;
        if (end && (*end == 'K' || *end == 'M')) {
            value = *end == 'K' ? value << 10 : value << 20;
            end++;
        }
        if (i == IGNIS__COUNT(known) || !end || end == text + length + 1 || (*end && *end != ',') || value < 0)
            return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                     "IGNIS_COMM_TUNE has \"%s\"; expected name=number with a known name", text);
        *(int64_t *)(void *)((char *)tune + known[i].offset) = value;
        text = *end ? end + 1 : end;
    }
    tune->lanes = ignis__clamp(tune->lanes, 1, IGNIS__COMM_LANES);
    return true;
}
