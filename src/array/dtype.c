/* ===============================================================================================================
   >>array - shapes, element types, conversion, storage, arrays, views, copies, pins

   An array is a handle over a storage; a storage is device memory that arrays and their views share. This part:
   tables of dtypes and owners, shapes.
   May use: >>memory, >>stream, >>capture, >>pool. Locks: see array.c and storage.c; this part takes none.
   =============================================================================================================== */

#include "room.h"

/* clang-format off */
IGNIS__PRIVATE const struct ignis__dtypes_type ignis__dtypes[] = {
    {"default", 0},
#define IGNIS__DTYPE_ROW(NAME, name, size) {#name, size},
    IGNIS_DTYPES(IGNIS__DTYPE_ROW)
#undef IGNIS__DTYPE_ROW
};
/* clang-format on */

static const char *const ignis__owners[] = {"none", "ignis", "nvccl", "wnais"};

IGNIS__ONE_COPY IGNIS__PRIVATE const char *ignis__owner_name(ignis_owner owner)
{
    return (unsigned)owner < IGNIS_OWNER_COUNT ? ignis__owners[owner] : "unknown owner";
}

IGNIS_API const char *ignis_dtype_name(ignis_dtype dtype)
{
    return (unsigned)dtype < IGNIS_DTYPE_COUNT ? ignis__dtypes[dtype ? dtype : IGNIS_F32].name : "unknown dtype";
}

IGNIS_API int ignis_dtype_size(ignis_dtype dtype)
{
    return (unsigned)dtype < IGNIS_DTYPE_COUNT ? ignis__dtypes[dtype ? dtype : IGNIS_F32].size : 0;
}

IGNIS_API const char *ignis_owner_name(ignis_owner owner)
{
    return ignis__owner_name(owner ? owner : IGNIS_OWNER_IGNIS);
}

IGNIS__PRIVATE bool ignis__owner_valid(const char *call, ignis_owner owner)
{
    if (owner > IGNIS_OWNER_DEFAULT && owner < IGNIS_OWNER_COUNT)
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call,
                             "there is no owner %d; IGNIS_OWNER_IGNIS, _NVCCL and _WNAIS are 1 to 3", (int)owner);
}

IGNIS__PRIVATE bool ignis__dtype_valid(const char *call, ignis_dtype dtype)
{
    if (dtype > IGNIS_DTYPE_DEFAULT && dtype < IGNIS_DTYPE_COUNT)
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "there is no dtype %d; IGNIS_F16 to IGNIS_F8_E5M2 are %d to %d",
                             (int)dtype, (int)IGNIS_F16, (int)IGNIS_F8_E5M2);
}

IGNIS__COLD IGNIS__PRIVATE ignis__shape_text ignis__shape_write(const ignis_shape *shape)
{
    ignis__shape_text out;
    ignis__string_writer text;
    int i;
    ignis__string_begin(&text, out.text, sizeof out.text);
    ignis__string_add(&text, "[");
    for (i = 0; i < shape->ndim && i < IGNIS_MAX_DIMS; i++)
        ignis__string_add(&text, "%s%lld", i ? ", " : "", (long long)shape->dim[i]);
    ignis__string_add(&text, "]");
    return out;
}

/*  Multiplies two numbers of 0 or more. False if the product overflows. */
IGNIS__PRIVATE bool ignis__multiply(int64_t a, int64_t b, int64_t *product)
{
    if (a != 0 && b > INT64_MAX / a)
        return false;
    *product = a * b;
    return true;
}

/*  Checks a shape and counts its elements. The product without zeros must fit, too, so that a stride can always be
    computed. */
IGNIS__PRIVATE bool ignis__shape_check(const char *call, const ignis_shape *shape, ignis_dtype dtype, int64_t *numel)
{
    int64_t product = ignis__dtypes[dtype].size;
    bool empty = false, fits = true;
    int i;
    if (shape->ndim < 1 || shape->ndim > IGNIS_MAX_DIMS)
        return ignis__fail_false(IGNIS_DIAG_SHAPE_RANK, call,
                                 "a shape has 1 to %d dimensions, this one has %d; IGNIS_SHAPE(1) is a single element",
                                 IGNIS_MAX_DIMS, shape->ndim);
    for (i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] < 0)
            return ignis__fail_false(IGNIS_DIAG_SHAPE_DIM, call, "dimension %d of shape %s is negative", i,
                                     ignis__shape_write(shape).text);
        if (shape->dim[i] == 0)
            empty = true;
        else
            fits = fits && ignis__multiply(product, shape->dim[i], &product);
    }
    if (!fits)
        return ignis__fail_false(IGNIS_DIAG_SHAPE_OVERFLOW, call,
                                 "shape %s of %s has more bytes than 63 bits can count", ignis__shape_write(shape).text,
                                 ignis__dtypes[dtype].name);
    *numel = empty ? 0 : product / ignis__dtypes[dtype].size;
    return true;
}
