/* all headers, in the order that a user would choose last */
#ifdef WITH_COLLECTIVE
#include "ignis_collective.h"
#endif
#include "ignis_kernels.h"
#include "ignis.h"
