// SPDX-License-Identifier: MIT
/*  attention.h - what tests of attention share */
#ifndef ATTENTION_H
#define ATTENTION_H

#include "tensor.h"

/*  Settings by which one kind of kernels computes attention. */
static inline ignis_desc desc_by(ignis_attention_backend by)
{
    ignis_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.attention = by;
    desc.verbose = by == IGNIS_ATTENTION_WGMMA;
    return desc;
}

#endif
