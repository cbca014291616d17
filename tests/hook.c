// SPDX-License-Identifier: MIT
/*  hook.c - the variables of hook.h, once for the rooms of src/ and the test that links them */
#include "hook.h"

hook_functions call_hook;
__thread int call_hook_result;
