// SPDX-License-Identifier: MIT
/*  rewrite.h - turns preprocessed CUDA C++ into C++ that compiles after shim.h */
#ifndef SIM_REWRITE_H
#define SIM_REWRITE_H

#include <stddef.h>

/* A growing string. Running out of memory aborts: this is a test tool. */
typedef struct sim_buffer {
    char *text;
    size_t length, capacity;
} sim_buffer;

void sim_append(sim_buffer *b, const char *text, size_t length);
void sim_print(sim_buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Rewrites `source`, the output of the preprocessor. Each name expression becomes a kernel of the module;
   lowered[i] gets a malloc'ed name for expressions[i]. `asm_names` gets one line "sim_ptx_x
   original.mnemonic" for each inline PTX instruction. `is_async`: whether a kernel has bulk copies, barriers
   in shared memory or products of warpgroups. Returns 0, with messages in NVRTC's form in `errors`, if
   something is refused. */
int sim_rewrite(const char *source, const char *const *expressions, int expression_count, char **lowered,
                sim_buffer *out, sim_buffer *asm_names, sim_buffer *errors, int *is_async);

#endif
