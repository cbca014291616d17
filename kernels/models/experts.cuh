// SPDX-License-Identifier: MIT
/*  models/experts.cuh - the activation of an expert, and biases of experts

    experts_product.cu applies them to rows of a step, and experts_sorted.cu to those of a prompt. For programs that
    include activation.cuh and define T and Wide. */
#ifndef IGNIS_MODELS_EXPERTS_CUH
#define IGNIS_MODELS_EXPERTS_CUH

__device__ inline Wide bias_at(const T *bias, long long row) { return bias ? Wide(bias[row]) : Wide(0); }

/*  Multiplies the gate with the other product. limit: of gpt-oss; 0: the gate is silu. */
__device__ inline Wide gated(Wide limit, Wide gate, Wide up)
{
    if (!(limit > 0))
        return silu(gate) * up;
    gate = gate > limit ? limit : gate; /* NaN passes */
    up = up > limit ? limit : up < -limit ? -limit : up;
    return gate * sigmoid(gate * Wide(1.702)) * (up + 1);
}

#endif /* IGNIS_MODELS_EXPERTS_CUH */
