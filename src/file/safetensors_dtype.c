/* ===============================================================================================================
   >>file - safetensors files, read and written

   This part: the dtypes of the format, and what Ignis loads them as.
   May use: >>tensor, base/json.c, base/file_io.c. Files are untrusted: every number of a header is checked before
   it is used.
   =============================================================================================================== */

#include "room.h"

/*  The format: the length of the header as 8 bytes, little-endian; the header, JSON; the data of all tensors,
    little-endian, row by row:
        {"__metadata__": {"key": "text", ...}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
    Offsets count from the end of the header. Each byte of the data belongs to exactly one tensor. The reference is
    github.com/huggingface/safetensors. */

IGNIS__PRIVATE const struct ignis__file_dtypes_type ignis__file_dtypes[] = {
    {"BOOL", 8, IGNIS_DTYPE_DEFAULT, IGNIS_U8},
    {"F4", 4, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"F6_E2M3", 6, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"F6_E3M2", 6, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"U8", 8, IGNIS_U8, IGNIS_U8},
    {"I8", 8, IGNIS_DTYPE_DEFAULT, IGNIS_I32},
    {"F8_E5M2", 8, IGNIS_F8_E5M2, IGNIS_F8_E5M2},
    {"F8_E4M3", 8, IGNIS_F8_E4M3, IGNIS_F8_E4M3},
    {"F8_E8M0", 8, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"F8_E4M3FNUZ", 8, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"F8_E5M2FNUZ", 8, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"I16", 16, IGNIS_DTYPE_DEFAULT, IGNIS_I32},
    {"U16", 16, IGNIS_DTYPE_DEFAULT, IGNIS_I32},
    {"F16", 16, IGNIS_F16, IGNIS_F16},
    {"BF16", 16, IGNIS_BF16, IGNIS_BF16},
    {"I32", 32, IGNIS_I32, IGNIS_I32},
    {"U32", 32, IGNIS_DTYPE_DEFAULT, IGNIS_I64},
    {"F32", 32, IGNIS_F32, IGNIS_F32},
    {"C64", 64, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
    {"F64", 64, IGNIS_F64, IGNIS_F64},
    {"I64", 64, IGNIS_I64, IGNIS_I64},
    {"U64", 64, IGNIS_DTYPE_DEFAULT, IGNIS_DTYPE_DEFAULT},
};
