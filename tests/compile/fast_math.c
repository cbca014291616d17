// SPDX-License-Identifier: MIT
/*  fast_math.c - with IGNIS_ALLOW_FAST_MATH and -ffast-math: numbers of optimizers that are NaN or infinite are refused
    all the same */
#include "ignis.h"

#include <string.h>

/*  Made of bits, which the compiler knows nothing about. */
static double of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

int main(int argc, char **argv)
{
    static const uint64_t bits[] = {0x7FF8000000000000u, 0xFFF8000000000000u, 0x7FF0000000000000u, 0xFFF0000000000000u,
                                    0x7FF0000000000001u};
    ignis_desc dry;
    int i, wrong = 0;
    (void)argv;
    memset(&dry, 0, sizeof dry);
    dry.dry_run = argc > 0;
    if (ignis_setup(&dry) != IGNIS_OK)
        return 2;
    for (i = 0; i < (int)(sizeof bits / sizeof bits[0]); i++) {
        ignis_adamw_desc adamw;
        ignis_optimizer optimizer;
        memset(&adamw, 0, sizeof adamw);
        adamw.lr = of_bits(bits[i]);
        wrong += ignis_adamw(&adamw).id != 0;
        optimizer = ignis_adamw(NULL);
        wrong += ignis_optimizer_set_lr(optimizer, of_bits(bits[i])) == IGNIS_OK;
        wrong += bits[i] != bits[2] && ignis_clip_grad_norm(optimizer, of_bits(bits[i])) != IGNIS_ERROR_ARGUMENT;
        ignis_optimizer_free(optimizer);
        ignis_status_clear();
    }
    return ignis_shutdown() == IGNIS_OK ? wrong : 3;
}
