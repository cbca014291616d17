// SPDX-License-Identifier: MIT
/*  tape.h - what tests of the tape share: vectors of three numbers, and the user's operations

    All operations are users' own (tensor.h), except ignis_reshape, which costs no launch, and ignis_matmul. */
#ifndef TAPE_H
#define TAPE_H

#include "tensor.h"

#include <limits.h>
#include <math.h>

static inline ignis_tensor vector3(double a, double b, double c, bool requires_grad)
{
    double values[3];
    values[0] = a, values[1] = b, values[2] = c;
    return tensor_of(values, IGNIS_SHAPE(3), IGNIS_F32, requires_grad);
}

static inline ignis_tensor double3(double a, double b, double c, bool requires_grad)
{
    double values[3];
    values[0] = a, values[1] = b, values[2] = c;
    return tensor_of(values, IGNIS_SHAPE(3), IGNIS_F64, requires_grad);
}

static inline ignis_array array_of(double a, double b, double c)
{
    double values[3];
    ignis_array array = make(IGNIS_SHAPE(3), IGNIS_F32);
    values[0] = a, values[1] = b, values[2] = c;
    CHECK_OK(ignis_array_from_host(array, values, IGNIS_F64, 3));
    return array;
}

#define CHECK_GRAD(tensor, a, b, c) check_values3(__LINE__, ignis_tensor_grad(tensor), a, b, c)
#define CHECK_ARRAY(array, a, b, c) check_values3(__LINE__, array, a, b, c)
static inline void check_values3(int line, ignis_array array, double a, double b, double c)
{
    char text[256];
    double *v;
    if (!array.id || ignis_array_numel(array) != 3) {
        test__fail(__FILE__, line, "there is no such array");
        return;
    }
    v = array_values(array);
    if (v[0] != a || v[1] != b || v[2] != c) {
        snprintf(text, sizeof text, "[%.9g, %.9g, %.9g], expected [%.9g, %.9g, %.9g]", v[0], v[1], v[2], a, b, c);
        test__fail(__FILE__, line, text);
    }
    free(v);
}

static inline bool has_grad(ignis_tensor tensor) { return ignis_tensor_grad(tensor).id != 0; }

static inline ignis_rule rule_of(const char *name, ignis_status (*fn)(const ignis_backward_args *))
{
    ignis_rule rule;
    memset(&rule, 0, sizeof rule);
    rule.name = name;
    rule.backward_fn = fn;
    return rule;
}

typedef struct layer {
    ignis_tensor weight;
    int calls, fail_at; /* the call that fails; 0: none */
    bool random;
} layer;

/*  x * w * x, and x * random where wanted */
static inline ignis_tensor layer_run(const ignis_tensor *inputs, int count, void *user_data)
{
    layer *l = (layer *)user_data;
    ignis_tensor none = {0}, y;
    CHECK_INT(count, 1);
    if (++l->calls == l->fail_at)
        return none;
    y = user_mul(user_mul(inputs[0], l->weight), inputs[0]);
    return l->random ? user_mul(y, ignis_tensor_rand(IGNIS_SHAPE(3), NULL)) : y;
}

#endif
