// SPDX-License-Identifier: MIT
/*  apart.h - the headers, taken apart by apart.awk: declared, ahead of a test, or defined, once for many tests

    apart_models, apart_faults, apart_plain: which tests; see the Makefile
    apart_collective: with the collective layer */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#ifndef apart_plain
#include <tests/fault.h>
#endif
#define IGNIS_IMPLEMENTATION
#include <ignis.h>

#ifdef apart_models
#include <ignis_models.h>
#endif
#ifdef apart_collective
#include <ignis_collective.h>
#endif
