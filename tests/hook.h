// SPDX-License-Identifier: MIT
/*  hook.h - lets a test see each call of the driver, NVRTC, cuBLASLt and NCCL, or take its place

    Ignis makes these calls through IGNIS_CALL_HOOK. call_hook.begin is asked first, with the name of the function: a
    result other than 0 is the result, and nothing is called. call_hook.end gets the result of a call that was made, and
    returns the one that Ignis sees. A null pointer changes nothing.
    The rooms of src/ are compiled with this header and share the variables of hook.c. A test that has a header of Ignis
    in itself has its own. */
#ifndef HOOK_H
#define HOOK_H

#ifdef IGNIS__PARTS
#define HOOK_VARIABLE extern
#else
#define HOOK_VARIABLE static
#endif

typedef struct hook_functions {
    int (*begin)(const char *name);
    int (*end)(const char *name, int result);
} hook_functions;

HOOK_VARIABLE hook_functions call_hook;
HOOK_VARIABLE __thread int call_hook_result;

static inline int hook_begin(const char *name)
{
    return call_hook_result = call_hook.begin ? call_hook.begin(name) : 0;
}

static inline int hook_end(const char *name, int result)
{
    return call_hook.end ? call_hook.end(name, result) : result;
}

#define IGNIS_CALL_HOOK(name, call) (hook_begin(name) != 0 ? call_hook_result : hook_end(name, (int)(call)))

#endif /* HOOK_H */
