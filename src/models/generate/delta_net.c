/*  models/generate/delta_net.c - recurrent layers of sequences: gated DeltaNet (Yang, Kautz, Hatamizadeh 2024)

    A layer: q, k, v and a gate are one product of the hidden state, strengths and decays another one. q, k and v pass a
    causal convolution over the latest tokens of each channel, and silu. q and k get length 1, and the delta rule
    (kernels/models/delta_net_rule.cu) changes the state of each head of v and reads it. The rms_norm of what it reads,
    times silu of the gate, is multiplied with o.

    A prompt takes the same kernels as a step, token by token, so the bits of a state do not depend on chunks.
    sequence_state.c has the states of sequences.
    May use: kernel_params.c. Locks: the caller holds the engine's lock. */

#include "room.h"

/*  Allocates the buffers of recurrent layers and of gates, for chunks of `rows` rows. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc_delta(const char *call, ignis__engine *engine, int64_t rows)
{
    const ignis__model *model = engine->model;
    const ignis_dtype dtype = model->dtype;
    const int64_t width = ignis__delta_width(model);
    return !model->recurrent_layers ||
           (ignis__engine_alloc(call, engine, &engine->qkvz, rows, ignis__delta_rows(model), dtype) &&
            ignis__engine_alloc(call, engine, &engine->mixed, rows, ignis__delta_channels(model), dtype) &&
            ignis__engine_alloc(call, engine, &engine->strengths, rows, (int64_t)2 * model->delta_v_heads, dtype) &&
            ignis__engine_alloc(call, engine, &engine->recalled, rows, width, dtype) &&
            ignis__engine_alloc(call, engine, &engine->gates, rows, (int64_t)model->heads * model->head_dim, dtype));
}

/*  Computes `recalled` from the products of a layer. number: among the recurrent layers; tokens: rows of a sequence. */
IGNIS__PRIVATE void ignis__delta_net_launch(ignis__op *op, ignis__engine *engine, const ignis__engine_layer *layer,
                                            int number, int count, int tokens)
{
    enum { COLUMNS = 32, THREADS = 256 }; /* as the kernels */
    const ignis__model *model = engine->model;
    const ignis_dtype dtype = model->dtype;
    char define[48];
    ignis__delta_net p;
    void *params[] = {&p};
    memset(&p, 0, sizeof p);
    p.rows = ignis__op_write(op, engine->rows);
    p.qkvz = ignis__op_write(op, engine->qkvz);
    p.mixed = ignis__op_write(op, engine->mixed);
    p.strengths = ignis__op_write(op, engine->strengths);
    p.out = ignis__op_write(op, engine->recalled);
    p.conv = ignis__op_read(op, layer->conv);
    p.norm = ignis__op_read(op, layer->delta_norm);
    p.decay_log = ignis__op_read(op, layer->decay_log);
    p.decay_bias = ignis__op_read(op, layer->decay_bias);
    p.state = model->recurrent_layers * ignis__delta_state(model);
    p.layer = number * ignis__delta_state(model);
    p.eps = model->eps;
    p.tokens = tokens;
    p.heads = model->delta_heads;
    p.v_heads = model->delta_v_heads;
    p.k = model->delta_k;
    p.v = model->delta_v;
    p.channels = (int)ignis__delta_channels(model);
    p.width = (int)ignis__delta_width(model);
    p.window = model->delta_conv;
    p.tiled = model->tiled;
    ignis__op_launch(op, IGNIS__BUILTIN(DELTA_NET_CONV), dtype, NULL,
                     ignis__launch_grid(ignis__ceil_div(p.channels, THREADS), count, 1, THREADS, 1, 0), params);
    snprintf(define, sizeof define, "-DIGNIS_DELTA_K=%d", p.k);
    ignis__op_launch(op, IGNIS__BUILTIN(DELTA_NET_RULE), dtype, define,
                     ignis__launch_grid(ignis__ceil_div(p.v, COLUMNS), p.v_heads, count / tokens, THREADS, 1, 0),
                     params);
    ignis__op_launch_row(op, IGNIS__BUILTIN(DELTA_NET_NORM), dtype, count, THREADS, params);
}

/*  Multiplies the results of attention by the sigmoids of `gates`. */
IGNIS__PRIVATE void ignis__delta_net_gate(ignis__op *op, ignis__engine *engine, int count)
{
    ignis__address x = ignis__op_write(op, engine->attended), gates = ignis__op_write(op, engine->gates);
    long long elements = count * (long long)engine->gates->shape.dim[1];
    void *params[] = {&x, &gates, &elements};
    ignis__op_launch_row(op, IGNIS__BUILTIN(DELTA_NET_GATE), engine->model->dtype,
                         ignis__clamp(ignis__ceil_div(elements, 256), 1, 1024), 256, params);
}
