// SPDX-License-Identifier: MIT
/*  polls.h - texts of ignis_generate_poll, whose tokens are there only when the device has sampled them */
#ifndef POLLS_H
#define POLLS_H

#include "ignis_models.h"

#include "test.h"

/*  The number of polls of a text: behind one without a token the device gets a millisecond. */
enum { PATIENCE = 5000 };

/*  Polls, and leaves the device time if no token came. */
static inline ignis_status poll_and_wait(ignis_sequence s, const ignis_generate_info *info, int tokens)
{
    const int before = info->tokens;
    const ignis_status status = ignis_generate_poll(s, tokens);
    CHECK(info->tokens - before <= (tokens ? tokens : 1));
    if (info->tokens == before && !info->ending)
        test_sleep_ms(1);
    return status;
}

#endif /* POLLS_H */
