// SPDX-License-Identifier: MIT
/*  rooms.h - what the rooms of src/ declare, private names too: mk/tests.mk puts it ahead of tests that link the rooms'
    objects

    Such a test includes ignis.h as a program does, and IGNIS_IMPLEMENTATION adds nothing to it: the implementation is
    linked. */
#ifndef ROOMS_H
#define ROOMS_H

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include "hook.h"

#include "ignis_models.h"

#include "ignis_collective.h"

#define IGNIS_IMPLEMENTED
#define IGNIS_MODELS_IMPLEMENTED
#define IGNIS_COLLECTIVE_IMPLEMENTED

#include "collective/channel/room.h"
#include "collective/comm/room.h"
#include "collective/job/room.h"
#include "collective/parallel/room.h"
#include "collective/peer/room.h"
#include "collective/transport/room.h"
#include "collective/vmm/room.h"
#include "file/room.h"
#include "interop/room.h"
#include "linalg/room.h"
#include "models/chat/room.h"
#include "models/generate/room.h"
#include "models/grammar/room.h"
#include "models/lora/room.h"
#include "models/tokenizer/room.h"
#include "models/weights/room.h"
#include "ops/attention/room.h"
#include "ops/conv/room.h"
#include "ops/einsum/room.h"
#include "ops/fft/room.h"
#include "ops/matmul/room.h"
#include "report/room.h"
#include "train/room.h"

#endif /* ROOMS_H */
