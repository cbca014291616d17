// SPDX-License-Identifier: MIT
/*  effects.h - a plugin of the engine that paints for its renderer, with an Ignis of its own that nobody else sees */
#ifndef EFFECTS_H
#define EFFECTS_H

#include "../../ignis.h"

#ifdef __cplusplus
extern "C" {
#endif

bool effects_start(const ignis_desc *desc);
/*  The renderer's memory, and the timeline by which both take turns: in frame n it is painted by 2 n + 1 and shown by 2
    n + 2. */
bool effects_attach(const ignis_external_desc *pixels, const ignis_external_fence_desc *timeline);
bool effects_paint(int frame); /* queued; pixel i becomes 1000 frame + i */
bool effects_stop(void);

#ifdef __cplusplus
}
#endif

#endif /* EFFECTS_H */
