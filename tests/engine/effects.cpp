// SPDX-License-Identifier: MIT
/*  effects.cpp - paints into the memory of a renderer. Its Ignis is private to this file: no symbol of it leaves the
    shared library. */
#define IGNIS_STATIC
#define IGNIS_IMPLEMENTATION
#include "effects.h"

namespace
{

const char source[] = "extern \"C\" __global__ void paint(int *pixels, int n, int frame)\n"
                      "{\n"
                      "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                      "    if (i < n) pixels[i] = 1000 * frame + i;\n"
                      "}\n";

ignis_kernel kernel;
ignis_array pixels;
ignis_fence fence;
void *stream;

} // namespace

bool effects_start(const ignis_desc *desc)
{
    ignis_kernel_desc program = ignis_kernel_desc();
    if (ignis_setup(desc) != IGNIS_OK)
        return false;
    program.source = source;
    program.name = "paint.cu";
    program.entry = "paint";
    kernel = ignis_kernel_compile(program);
    stream = ignis_stream_create(nullptr);
    return kernel.id && stream;
}

bool effects_attach(const ignis_external_desc *memory, const ignis_external_fence_desc *timeline)
{
    pixels = ignis_external_array(memory);
    fence = ignis_external_fence(timeline);
    return pixels.id && fence.id;
}

bool effects_paint(int frame)
{
    const int count = static_cast<int>(ignis_array_numel(pixels));
    const ignis_launch launch = {{(static_cast<uint32_t>(count) + 255) / 256, 0, 0}, {256, 0, 0}, 0, false, false};
    const ignis_arg args[] = {ignis_arg_array(pixels), ignis_arg_i32(count), ignis_arg_i32(frame)};
    const uint64_t turn = 2 * static_cast<uint64_t>(frame);
    ignis_stream_use(stream);
    const bool ok = (frame == 0 || ignis_fence_wait(fence, turn) == IGNIS_OK) &&
                    ignis_kernel_launch(kernel, launch, args, 3) == IGNIS_OK &&
                    ignis_fence_signal(fence, turn + 1) == IGNIS_OK;
    ignis_stream_use(nullptr);
    return ok;
}

bool effects_stop()
{
    bool ok =
        (!pixels.id || ignis_array_free(pixels) == IGNIS_OK) && (!fence.id || ignis_fence_free(fence) == IGNIS_OK);
    ok = ignis_kernel_free(kernel) == IGNIS_OK && ignis_stream_free(stream) == IGNIS_OK && ok;
    pixels.id = fence.id = 0;
    return ignis_shutdown() == IGNIS_OK && ok;
}
