#pragma once
/*  Params of kernels/gather.cu and kernels/select.cu. */

/*  The work of ignis_scatter_last for an element that has claimed a place: dst[place] = src[i]; dst[i] = src[place],
    and 0 for elements without a place; dst[place] = 0. */
enum { IGNIS__SCATTER_ASSIGN, IGNIS__SCATTER_TAKE, IGNIS__SCATTER_CLEAR };

/*  Indices of several dimensions, and the sizes of these. */
typedef struct ignis__index_list {
    IGNIS__POINTER(const void) ids[8];
    long long size[8];
    int id_bytes[8], count;
} ignis__index_list;
IGNIS__ASSERT_SIZE(ignis__index_list, 168);

enum { IGNIS__SELECT_TILE = 4096 }; /* elements of a block of ignis_select_count and _write */

/*  The sizes of the array whose coordinates are written; rank 0: positions are. */
typedef struct ignis__select_sizes {
    long long size[8];
    int rank;
} ignis__select_sizes;
IGNIS__ASSERT_SIZE(ignis__select_sizes, 72);

/*  How elements are counted: by themselves as numbers of bins; in bins of one width from low to high; between edges,
    `bins` + 1 sorted ones. The last bin has its upper edge, too. */
enum { IGNIS__COUNT_BY_VALUE, IGNIS__COUNT_BY_WIDTH, IGNIS__COUNT_BY_EDGES };
