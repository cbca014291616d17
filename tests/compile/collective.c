/* ignis_collective.h alone */
#include "ignis_collective.h"
