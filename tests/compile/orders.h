// SPDX-License-Identifier: MIT
/* What orders.c includes. Orders 4 and 5 are those of programs from before version 0.5. */
#if ORDER == 1
#include "ignis_models.h"

#include "ignis_collective.h"
#elif ORDER == 2
#include "ignis_collective.h"

#include "ignis_models.h"
#elif ORDER == 3
#include "ignis.h"

#include "ignis_models.h"

#include "ignis_collective.h"
#elif ORDER == 4
#ifndef IGNIS_MODELS
#define IGNIS_MODELS
#endif
#include "ignis.h"

#include "ignis_collective.h"
#else
#ifndef IGNIS_MODELS
#define IGNIS_MODELS
#endif
#include "ignis_collective.h"
#endif
