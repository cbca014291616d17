#pragma once
/*  Params of the choice of experts. Kernels define Wide, the type of logits and shares. */
typedef struct ignis__expert_choice {
    IGNIS__POINTER(int32_t) chosen;    /* [rows, slots] */
    IGNIS__POINTER(Wide) shares;       /* the same */
    IGNIS__POINTER(const Wide) logits; /* [rows, experts] */
    IGNIS__POINTER(const Wide) bias;   /* [experts], with sigmoids */
    double scale;                      /* of shares */
    int experts, slot_count, normalises;
    int groups, used_groups; /* a token has experts of `used_groups` groups; equal, or 0: of any */
    int unused;
} ignis__expert_choice;
IGNIS__ASSERT_SIZE(ignis__expert_choice, 64);
