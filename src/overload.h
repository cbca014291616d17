#ifdef __cplusplus
} /* extern "C" */

/*  In C++ option structs can be passed by reference: ignis_array_create({...}). {} alone is a null pointer: all
    defaults, where that is allowed. The overloads are static, so that with IGNIS_STATIC each file calls its own
    functions. */
// amalgamate: overloads

template <typename... ignis__dims> static inline ignis_shape ignis__make_shape(ignis__dims... dims)
{
    static_assert(sizeof...(dims) >= 1 && sizeof...(dims) <= IGNIS_MAX_DIMS,
                  "a shape has 1 to IGNIS_MAX_DIMS dimensions");
    return ignis_shape{int(sizeof...(dims)), {static_cast<int64_t>(dims)...}};
}

/*  IGNIS_SHAPE(4, 3) - a shape of 1 to IGNIS_MAX_DIMS dimensions; IGNIS_NO_ARRAY - no handle */
#define IGNIS_SHAPE(...) ignis__make_shape(__VA_ARGS__)
#define IGNIS_NO_ARRAY (ignis_array{0})
#ifndef IGNIS_NO_TENSORS
template <typename... ignis__arrays>
static inline ignis_array_inputs ignis__make_array_inputs(const char *names, ignis__arrays... arrays)
{
    static_assert(sizeof...(arrays) >= 1 && sizeof...(arrays) <= IGNIS_MAX_INPUTS,
                  "a formula has 1 to IGNIS_MAX_INPUTS inputs");
    return ignis_array_inputs{names, int(sizeof...(arrays)), {arrays...}};
}

template <typename... ignis__tensors_>
static inline ignis_inputs ignis__make_inputs(const char *names, ignis__tensors_... tensors)
{
    static_assert(sizeof...(tensors) >= 1 && sizeof...(tensors) <= IGNIS_MAX_INPUTS,
                  "a formula has 1 to IGNIS_MAX_INPUTS inputs");
    return ignis_inputs{names, int(sizeof...(tensors)), {tensors...}};
}

/*  IGNIS_INPUTS(x, y) - tensors as the inputs of a formula, with their names; IGNIS_ARRAYS(x, y) - arrays;
    IGNIS_NO_INPUTS - none, for ignis_map_shape */
#define IGNIS_ARRAYS(...) ignis__make_array_inputs(#__VA_ARGS__, __VA_ARGS__)
#define IGNIS_INPUTS(...) ignis__make_inputs(#__VA_ARGS__, __VA_ARGS__)
#define IGNIS_NO_INPUTS (ignis_inputs{"", 0, {}})
#endif
#else
#define IGNIS_ARRAYS(...)  \
    ((ignis_array_inputs){ \
        #__VA_ARGS__, (int)(sizeof((ignis_array[]){__VA_ARGS__}) / sizeof(ignis_array)), {__VA_ARGS__}})
#define IGNIS_INPUTS(...) \
    ((ignis_inputs){#__VA_ARGS__, (int)(sizeof((ignis_tensor[]){__VA_ARGS__}) / sizeof(ignis_tensor)), {__VA_ARGS__}})
#define IGNIS_NO_INPUTS ((ignis_inputs){"", 0, {{0}}})
#define IGNIS_SHAPE(...) ((ignis_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#define IGNIS_NO_ARRAY ((ignis_array){0})
#endif

/*  Inputs of a formula that are not variables: a number, or an expression of a tensor or array, with a name. */
#define IGNIS_VALUE(name, number) ignis_value(number)
#define IGNIS_ARRAY_VALUE(name, number) ignis_array_value(number)
#define IGNIS_NAMED(name, input) (input)
