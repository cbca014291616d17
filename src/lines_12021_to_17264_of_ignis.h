/*  ignis.h - v0.5.0 - GPU arrays with tracked ownership, CUDA kernels compiled at run time, and tape autograd, for C and C++

    SPDX-License-Identifier: MIT
    The licence is at the end of the file. What has changed: CHANGELOG.md.

    CONTENTS. A tag stands at a section of the declarations and at that of the implementation; in the manual behind the topic.

        >>status        statuses, messages, diagnostics, the logger     ON ERRORS
        >>setup         ignis_setup and ignis_shutdown; libraries       HOW TO USE, OPTIONS, ON DRY RUNS
        >>device        devices, facts about them
        >>stream        streams, events, waiting for a device           ON STREAMS AND CUDART
        >>memory        what Ignis holds of a device's memory           ON MEMORY
        >>array         shapes, dtypes, owners; arrays and views        STEP BY STEP
        >>elementwise   fill, copy, cast, add, mul, scale of arrays
        >>map           formulas: any expression, element by element    ON FORMULAS
        >>contract      who owns an array, who may free it; the audit   ON OWNERSHIP
        >>kernel        CUDA source compiled, cached, launched          ON KERNELS, ON SHIPPING
        >>tensor        tensors, scopes, random numbers                 ON TENSORS AND SCOPES
        >>tape          recording, backward, checkpoints, gradcheck     ON THE TAPE
        >>ops           operations on tensors, in families: >>ops.matmul .conv .pointwise .map .sum .shape .norm .image .rope
                        .embedding .index .sort .loss .attention
        >>optim         AdamW, SGD and others, schedules, clipping, loss scaling
        >>graph         a step captured once, replayed with one call    ON GRAPHS
        >>file          safetensors files                               ON FILES
        >>text          tokenizers               (with IGNIS_MODELS)    ON MODELS
        >>chat          chat templates           (with IGNIS_MODELS)    ON MODELS
        >>grammar       texts of a given form    (with IGNIS_MODELS)    ON MODELS
        >>model         checkpoints opened       (with IGNIS_MODELS)    ON MODELS
        >>lora          adapters of models       (with IGNIS_MODELS)    ON MODELS
        >>generate      sequences, sampling      (with IGNIS_MODELS)    ON MODELS
        >>dlpack        arrays from and for PyTorch, CuPy, JAX          ON DLPACK
        >>graphics      memory and fences of Vulkan, D3D12, OpenGL      ON GRAPHICS
        >>profile       traces, rooflines, pictures of memory           ON PROFILES

        In the implementation alone: >>platform >>loader >>pool >>capture >>random >>gguf >>dry.

    HOW TO USE

        Copy ignis.h and ignis_kernels.h into your project. In ONE C or C++ file, above the #include:

            #define IGNIS_IMPLEMENTATION
            #include "ignis.h"

        and build it with one of

            cc hello.c -o hello -lm -ldl -lpthread
            nvcc hello.cu

        Every other file just includes ignis.h. No CUDA toolkit is needed to compile, and nothing is linked but the C library: the driver
        (libcuda) is opened by ignis_setup, the compiler (NVRTC) when the first kernel has to be compiled.

    ---- begin example first
    #define IGNIS_IMPLEMENTATION
    #include "ignis.h"
    #include <stdio.h>

    int main(void)
    {
        const char *source = "extern \"C\" __global__ void twice(float *y, const float *x, int n)"
                             "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }";
        ignis_array_desc shape = {.shape = IGNIS_SHAPE(4)};
        ignis_kernel_desc desc = {.source = source, .entry = "twice"};
        ignis_launch launch = {.grid = {1}, .block = {32}};
        float numbers[4] = {1, 2, 3, 4};
        ignis_setup(NULL);
        ignis_array x = ignis_array_create(&shape), y = ignis_array_create(&shape);
        ignis_kernel twice = ignis_kernel_compile(&desc);
        ignis_array_from_host(x, numbers, IGNIS_F32, 4);
        ignis_arg args[] = {ignis_arg_array(y), ignis_arg_array(x), ignis_arg_i32(4)};
        ignis_kernel_launch(twice, &launch, args, 3);
        ignis_array_to_host(y, numbers, IGNIS_F32, 4);
        if (ignis_status_last() == IGNIS_OK)
            printf("%g %g %g %g\n", numbers[0], numbers[1], numbers[2], numbers[3]);
        ignis_array_free(x);
        ignis_array_free(y);
        return ignis_shutdown() != IGNIS_OK;
    }
    ---- end example

    and it trains models, too:

    ---- begin example fit
    #define IGNIS_IMPLEMENTATION
    #include "ignis.h"
    #include <stdio.h>

    int main(void) // finds w with x w = y
    {
        float x[4][2] = {{1, 0}, {0, 1}, {1, 1}, {1, -1}}, y[4] = {2, -3, -1, 5};
        ignis_tensor_desc wanted = {.requires_grad = true};
        ignis_adamw_desc adamw = {.lr = 0.1};
        ignis_setup(NULL);
        ignis_tensor w = ignis_tensor_zeros(IGNIS_SHAPE(2, 1), &wanted);
        ignis_tensor input = ignis_tensor_from_host(x, IGNIS_SHAPE(4, 2), NULL), target = ignis_tensor_from_host(y, IGNIS_SHAPE(4, 1), NULL);
        ignis_optimizer optimizer = ignis_adamw(&adamw);
        ignis_optimizer_add(optimizer, w, false);
        for (int step = 0; step < 200; step++) {
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor error = ignis_sub(ignis_matmul(input, w), target);
            ignis_backward(ignis_mean(ignis_mul(error, error)), IGNIS_NO_ARRAY);
            ignis_optimizer_step(optimizer);
            ignis_optimizer_zero_grad(optimizer);
            ignis_scope_end(scope);
        }
        float found[2] = {0, 0};
        ignis_tensor_to_host(w, found, IGNIS_F32, 2);
        printf("w = %.2f %.2f\n", found[0], found[1]); // w = 2.00 -3.00
        ignis_optimizer_free(optimizer);
        ignis_tensor_release(w);
        ignis_tensor_release(input);
        ignis_tensor_release(target);
        return ignis_shutdown() != IGNIS_OK;
    }
    ---- end example

    WHAT IT DOES NOT DO

        No strided arrays: an array, and every view of one, is contiguous. No managed memory. No 32-bit systems. No GPUs but NVIDIA's.
        It does not order your streams for you: as in CUDA, work on two streams runs in any order unless events order it. Memory is safe all
        the same: it is not reused before the work that Ignis has queued on it, on any stream, is done.

    STEP BY STEP

        ignis_setup                 once, from one thread; null for defaults
        ignis_array_create          a shape, a dtype; device memory is taken when the array is first used
        ignis_array_from_host       copy and convert from the host; ignis_array_to_host back, waiting for the result
        ignis_kernel_compile        your CUDA source, compiled for the current device, or taken from the cache
        ignis_kernel_launch         grid, block, arguments that are checked against the kernel's parameters
        ignis_tensor_from_host      for training: tensors, operations on them, ignis_backward, ignis_optimizer_step
        ignis_array_free            as its owner; a second free is an error, not a crash
        ignis_shutdown              reports what you forgot to free, and frees it

    ON ERRORS (>>status)

        A call that can fail returns ignis_status, or a handle whose id is 0. The first failure of a thread is kept until
        ignis_status_clear: its status, a numbered diagnostic, the call, and a sentence that says what was expected and what came. A call
        that is given handle 0 fails quietly when a failure is recorded already: so a chain of calls is checked once, at its end, and the
        message is that of the first thing that went wrong; ignis_status_latest_message has that of the latest one. To free or release no handle,
        or null, does nothing and is OK, at any time. ignis_status_begin and _end enclose a job that has failures of its own. What fails in a function
        of yours that a call runs (a backward function, say) names that call, too. Warnings and errors go to ignis_desc.logger, else to
        stderr: none is dropped silently. Whatever fails leaves everything else as it was: the library keeps working.

            status              who can fix it
            NOT_SETUP ARGUMENT SHAPE DTYPE FREED CONTRACT COMPILE MISMATCH     you: the program is wrong
            MEMORY                                                             you: free something, or ask for less
            LIBRARY DEVICE UNSUPPORTED                                         the machine: driver, NVRTC, GPU
            CUDA                                                               the driver; often a fault in a kernel
            IO FORMAT PEER TIMEOUT                                             files and other processes

        A fault inside a kernel (an access out of bounds, say) shows at a later call. From then on CUDA refuses every call of the process,
        on all devices, until the process ends: nothing that it has on a GPU can be used or read any more. Ignis reports it once as CUDA,
        then as DEVICE; handles can still be freed, and ignis_shutdown returns.

    ON MEMORY (>>memory)

        Freed device memory stays in a cache, one per device, ordered by streams: the next array on the same stream takes it without a
        driver call or a wait. When the driver has no more, Ignis takes blocks of other streams once an event says that they are free,
        gives free segments back to the driver and tries again; only then a call fails with IGNIS_ERROR_MEMORY, and the message has all the
        numbers. ignis_memory_query shows them, ignis_memory_trim gives free segments back, ignis_desc.memory_limit bounds what is reserved.
        With ignis_desc.memory_bypass (or IGNIS_MEMORY_BYPASS=1) each array has an allocation of its own, so that compute-sanitizer sees
        accesses beyond its end; that is slow.

        Reading an array that nobody has written to is an error. Ignis counts its writes to memory in a version, which all views of the memory
        share (ignis_array_info.version). What your own kernels write, and code that was given an address, Ignis cannot see: such an array
        counts as written, and after changing it in place call ignis_array_mark_written. Arrays that wrap one pointer have a version each.

    ON OWNERSHIP (>>contract)

        Every array has an owner: IGNIS_OWNER_IGNIS, or a layer that works on it for a while and acquires it first
        (IGNIS_OWNER_NVCCL, the collective layer; IGNIS_OWNER_WNAIS, the storage layer).

            - only the owner frees; anybody may ask ignis_contract_assert_owner
            - nobody frees while ref_count is above 0; ownership does not move while it is above 1
            - acquiring what one owns already, and releasing what one does not own, are errors
            - views (slice, reshape) are arrays of their own: freeing the parent leaves them valid, and their memory alive
            - wrapped memory (ignis_array_desc.ptr) is never freed by Ignis

        While ignis_save, ignis_load or a collective operation runs, its layer owns the arrays it works on; views and copies that are made
        meanwhile are Ignis' own. ignis_contract_audit lists tracked arrays by age. ignis_shutdown reports what is still alive: arrays, tensors that
        no scope has released, with their arrays, and whatever else has a handle of its own. Messages name a freed array as it was (array #7
        'weights', freed), so that they can be matched with earlier ones.

    ON KERNELS (>>kernel)

        Kernels are compiled by NVRTC to machine code of the device ("sm_90a" where there is such a form), and kept in memory and on disk
        ($IGNIS_CACHE_DIR, else ~/.cache/ignis; beyond 256 MiB the least recently used are deleted). A cached kernel needs no
        compiler run. The version of NVRTC is part of the key, so that another one compiles anew; where there is none, what the last one has
        left is used. Errors name your file and line (ignis_kernel_desc.name). A folder or a file of it that is another user's, or that others may
        write to, is not used, and the logger says so: what lies there could be anybody's program. The same holds for bundles and records that the
        environment names. A program that has more rights than whoever starts it (setuid, capabilities of its file) reads no variable at all.

        #include "ignis.cuh" gives a kernel bf16 and half types, 16-byte packs and reductions; other headers come from memory
        (ignis_kernel_desc.headers) or from files: beside ignis_kernel_desc.name, and in the folders of options such as "-I/usr/local/cuda/include".
        There is no include path but that. All that is included is part of the key, so a changed header is compiled anew; a kernel that includes
        by a macro (#include NAME, __has_include(NAME)) is compiled in every process, as its headers are not known before.

        Several functions of one source are one program, compiled once: desc.entry = "advance; count<int>" names them, and ignis_kernel_entry gives
        each a handle. They share the __device__ and __constant__ variables, which ignis_kernel_set_symbol writes and ignis_kernel_get_symbol reads.
        ignis_kernel_occupancy tells which block size fills the device, and how many blocks run at once: as many may wait for each other in a
        cooperative launch (ignis_launch.cooperative).

    ON SHIPPING (>>setup, >>kernel)

        A program that is given to others needs their driver and nothing else, when its kernels are compiled beforehand, into a bundle:

            1. IGNIS_RECORD=game.record ./game           as it is, on a GPU, on the simulator, or with IGNIS_DRY_RUN=1 without either: each
                                                         program that it asks for becomes a line of the file (ignis_desc.record)
            2. ignis_embed game.record --archs 75,80,86,89,90a,100,120 --ptx 75 --ptx 80 -o game_kernels.h
                                                         compiles them, without a GPU (cc -O2 -I. tools/ignis_embed.c -lm -ldl -lpthread)
            3. ignis_desc desc = {.bundle = ignis_bundle, .bundle_size = sizeof ignis_bundle, .compile = IGNIS_COMPILE_NEVER};
                                                         or -o game.ignis, and ignis_desc.bundle_path
            4. ignis_bundle_check(NULL)                  at the start of the program: all that does not fit, in one message

        The bundle is asked before the caches. With IGNIS_COMPILE_NEVER neither NVRTC nor cuBLASLt is opened: what is in no bundle, and in no
        warm cache, is an error that names program, options, compute capability and the line to add to the record. Without it the
        bundle is what makes the first start fast, and the rest is compiled. The environment does as well: IGNIS_BUNDLE, IGNIS_COMPILE=never.

        What is recorded? Every kernel of Ignis that is asked for, formulas and kernels of the program's own with all of their text; so walk all its
        ways while recording, with the dtypes that will occur. Of a source of Ignis a bundle has what was asked for, and what other sizes, strides,
        addresses or devices take instead, of a formula kernels for any shapes: they may be slower than one for the shape. A program that does not
        train has no backward kernels, one with AdamW no other optimizer. Several runs add to one file, and ignis_embed takes several files. Which
        kernel Ignis chooses depends on the device, too. So that a record made anywhere serves compute capability 7.5 to 12.0, whatever chooses by
        the device records what each kind of device would choose: plain CUDA C below 8.0, mma.sync from 8.0 on, wgmma on 9.0, in all tiles that other
        sizes take; ignis_embed compiles each for those it is for. Products are own kernels' while recording and with IGNIS_COMPILE_NEVER, unless
        ignis_desc.matmul says otherwise. Other dtypes are another program, and so are attention of another head_dim and convolutions of other
        groups, taps and strides. Sequences of a model take other kernels for more than 64 tokens at once, and to draw: ignis_model_warmup while
        recording asks for all. With IGNIS_DRY_RUN=1 and IGNIS_COMPILE=never a program says without a GPU what its bundle lacks.

        Which architectures? Machine code for 80 runs on 8.0, 8.6 and 8.9; that for 90a on 9.0 alone, and only it has wgmma. PTX serves
        everything newer than it is, but the driver compiles it when the program first runs (a third of a second each, which the driver keeps):
        a way for GPUs that do not exist yet. ignis_embed says what each costs. Images of one architecture are packed together, in blocks of 2 MB at
        most, as they are much alike; one that is asked for unpacks its block, which takes 30 ms at most and stays in memory until
        ignis_shutdown. --plain packs nothing.

        Ignis, ignis_embed and the record must be of one version. A damaged or truncated bundle is refused: but a bundle is a program, and one
        that somebody has made on purpose can do what programs can. A kernel that another compiler has made, such as nvcc -cubin, is given
        to ignis_kernel_compile as ignis_kernel_desc.image.

    ON TENSORS AND SCOPES (>>tensor)

        A tensor is an array plus its gradient and its place on the tape. What operations return belongs to the thread's current scope:
        ignis_scope_begin opens one, ignis_scope_end releases all tensors made in it, ignis_scope_return ends it and passes one tensor on to
        the enclosing one. Outside of scopes, as for the weights of a model, a tensor lives until ignis_tensor_release. Its array
        (ignis_tensor_data) holds a reference, so it cannot be freed under the tensor.

        C and C++ leave open which argument of a call is computed first. In ignis_sub(ignis_dropout(a, 0.1), ignis_dropout(b, 0.1)) either mask may be
        drawn first, so random numbers, and with them all that follows, depend on the compiler; gradients that are added up may differ in their
        last bits. Who wants the same bits from every compiler gives such results names, a statement each.

    ON THE TAPE (>>tape, >>ops)

        Operations on tensors that require a gradient are recorded; ignis_backward goes through the record in reverse order and adds gradients
        to the leaves. Each thread has its own tape. An entry is freed with the tensor that it made, so results that are not used cost nothing;
        what backward needs stays alive when its tensor is released, and is freed as backward passes it (ignis_backward_retain keeps it for
        another one). Your own operation is recorded as Ignis' own are, by ignis_tape_record: a kernel, a result, and a rule for its gradient
        (examples/custom_op.c); ignis_gradcheck tells whether the rule is right. ignis_checkpoint trades time for memory, and between
        ignis_no_grad_begin and _end nothing is recorded. A gradient is set and dropped by ignis_tensor_set_grad.

        What an operation saved must not change before backward uses it: a backward that finds a saved array written to since (its version
        has changed) fails, and no gradient changes. Operations inside a capture are exempt, as each launch writes anew what they save.

        A backward function may call ignis_backward itself. What it has recorded is differentiated at once, and leaves that it has made have
        their gradients when the call returns. Everything older waits for the enclosing backward, which writes the gradients of all other
        leaves at its end: so a backward that fails, at whatever depth, has changed no leaf. A backward function ends the scopes and no-grad
        sections that it begins, and no others; so do the functions given to ignis_checkpoint and ignis_gradcheck.

    ON FORMULAS (>>map, >>ops.map)

        What is computed element by element needs no kernel: it is written down, compiled once, and is one pass over memory. Its gradient
        is made.

            y    = ignis_map("silu(gate) * up", IGNIS_INPUTS(gate, up));
            loss = ignis_map_mean("d = p - t; abs(d) < delta ? 0.5*d*d : delta*(abs(d) - 0.5*delta)",
                                  IGNIS_INPUTS(p, t, IGNIS_VALUE(delta, 1.0)));
            ignis_array_map(y, "a*x + y", IGNIS_ARRAYS(x, y, IGNIS_ARRAY_VALUE(a, 2.0)));    (arrays, the result into y)
            ignis_array_reduce(dot, IGNIS_REDUCE_SUM, "x*y", IGNIS_ARRAYS(x, y));

        A formula is an expression, after any number of `name = expression;`. Names are those of the variables in IGNIS_INPUTS; what is no
        variable gets one by IGNIS_NAMED(name, tensor), and a number that changes is IGNIS_VALUE(name, number). It is a part of C:

            operators   ?:   ||   &&   |   ^   &   ==  !=   <  >  <=  >=   <<  >>   +  -   *  /  %   in C's order, those that bind more
                        tightly behind the others; and before a value  -  +  !  ~
            functions   abs sign max min clamp(x, low, high) relu floor ceil round trunc
                        exp exp2 expm1 log log2 log10 log1p sqrt rsqrt cbrt pow square
                        sin cos tan asin acos atan atan2 sinh cosh tanh
                        sigmoid logsigmoid softplus silu gelu gelu_exact erf lerp(x, y, weight) isnan isinf isfinite
                        index(dim): where the element is in that dimension of the result; -1 is the last one
                        rand() randn(): a random number in [0, 1), and a standard normal one
                        detach(x)  with_grad(value, other): see below
            constants   pi e inf nan, 12  1.5  1e-3, and as in C 1.5f, which is 1.5, and 0xff of up to 16 digits

        Unlike in C, / of integers is the true quotient. Comparisons are 0 or 1, and so is what ?: && || ! take, where anything but 0 is
        true. All branches are computed; of a branch that is not taken no infinity or NaN gets into the value or a gradient. round goes to
        the even neighbour at a half; a % b has the sign of a. Formulas of integers alone are computed in 64 bits and wrap around, a % 0
        is 0; an integer becomes f32 where it meets a floating type, so an i64 beyond 2^24 is rounded there (2^53 in f64), but not in
        comparisons, as index(0) < n, which are made in f64. Integers stay integers in abs, sign, max, min, clamp, relu, square, in pow with a
        whole number of 0 and more, and in floor, ceil, round and trunc, of quotients too: floor(a/b) of integers is exact, and where b is 0
        the largest or smallest i64. | ^ & ~ << >> take integers alone, of 64 bits; a shift by 64 and more, or by less than 0, moves all bits
        out, and >> keeps the sign.

        Where there is no derivative: that of abs, sign and relu at 0 is 0, that of abs at NaN NaN, that of max and min at a tie one half for
        each, that of clamp at its ends 1, that of floor, ceil, round, trunc, of comparisons and of what has bits 0, that of pow(x, 0) 0. NaN
        passes through max, min, clamp and relu. What ?:, max, min, clamp, relu, abs, or a reduction to the largest or smallest, has not chosen
        has the derivative 0, also where other derivatives of the formula, or the gradient that comes in, are infinity or NaN. That of sqrt at 0
        is infinity, so sqrt(x*x) has none there, and max(sqrt(x*x), 1e-6) has 0. What is minus infinity adds nothing to a logsumexp, and its
        gradient is 0. Results of 16 bits are computed by shorter functions, exact to their rounding; f32 and f64 by CUDA's accurate ones.

        A gradient can be given instead: detach(x) is x without one, and with_grad(value, other) has the value of the one and the gradient
        of the other. So with_grad(round(x), x) rounds, and is x to its gradient; with_grad(f, x*detach(p) + y*detach(q)) has the gradients
        p and q, whatever f is.

        Each rand() and randn() in a formula is another number, for each element and call; `r = rand();` names one. They follow from
        ignis_seed as those of ignis_dropout do, in graphs too, and are the same in the gradient: "rand() < p ? 0 : x/(1 - p)" is a dropout.
        A formula takes up to 8, of which randn() counts as two. rand() has 24 bits, and 53 where the formula is computed in f64; a result of
        16 bits may round it up to 1.

        Several results are one pass: ignis_map_many("s = sin(t); c = cos(t); a*c - b*s, a*s + b*c", inputs, 2, results), and
        ignis_array_map_many, which updates arrays together.

        Losses that have no function of their own in >>ops.loss are a line each, for ignis_map_mean, _sum or ignis_map (y is -1 or 1):

            hinge             "max(1 - x*y, 0)"                      soft margin       "softplus(-x*y)"
            margin ranking    "max(margin - y*(a - b), 0)"           Poisson           "exp(x) - t*x"
            log-cosh          "d = abs(x - t); d + softplus(-2*d) - log(2)"
            Gaussian          "0.5*(log(v) + square(x - t)/v)"
            focal             "p = sigmoid(-x*y); -square(p)*logsigmoid(x*y)"

        A formula is compiled when it is first used, for the dtypes, ranks and places of spreading that it meets, and kept until
        ignis_shutdown, on disk beyond that. ignis_warmup does not know it, ignis_warmup_record does, when an earlier run has recorded it. So
        a text that is made anew with other numbers in it each time is a mistake: values are for that. Errors name the column. A formula has
        at most 1000 words and signs, and is nested up to 60 deep; it can do nothing but compute.

    ON MATRIX PRODUCTS (>>ops.matmul)

        Ignis' own kernels compute products of few tiles, and large ones of f16, bf16 and, where ignis_desc.allow_tf32 is set, f32 on compute
        capability 9.0, where they are the faster ones; others are left to cuBLASLt where it is found, but no program needs it. Own kernels do
        biases, activations and sums of gradients inside the products. On 8.0 and up those of these types are on tensor cores, but for small ones
        whose rows are no multiples of 16 bytes. f32 on 9.0 is copied first where an operand does not lie along the sum: as a of a^T b, and as b
        of a b. Those of 8 bits, ignis_matmul_f8, are by own kernels alone, on 8.9 and up.
        ignis_desc.matmul, or IGNIS_MATMUL in the environment, chooses: IGNIS_MATMUL_OWN takes own kernels alone,
        IGNIS_MATMUL_CUBLASLT cuBLASLt alone. IGNIS_MATMUL_MEASURE times both the first time that a kind of product is asked for,
        outside of captures, and keeps the faster one in the file products.txt of the kernel cache's folder: the price is some 26 runs of each kind,
        and that another cache may choose otherwise and so give other last bits. With one cache, or without measuring, equal inputs give
        equal bits. ignis_mlp, ignis_mlp_layers and ignis_mlp_gated are linear layers one behind the other in as few passes as can be.

    ON GRAPHS (>>graph)

        ignis_graph_begin captures what follows, a whole training step with its optimizer, and ignis_graph_launch replays it with one call.
        Run the step once before. Inputs are copied into the same tensors before each launch; results keep their handles, and count as never
        written until the first launch. Dropout draws a new mask at each launch. A graph has no graphs inside: launch several one after the other.

        What a call is given by value is part of the graph as it was at the capture, and each launch has it so: scalar arguments of kernels
        (ignis_arg_f32 and its like), the numbers of IGNIS_VALUE and IGNIS_ARRAY_VALUE, factors, shapes, addresses. What is to change lies in an
        array, of one element in the place of a number. An optimizer keeps its learning rate so.

        To wait for a context spoils what any thread captures there. So ignis_graph_begin waits for the device, and for threads that wait for it
        already (in ignis_synchronize, say), as long as their work takes; and while a thread captures, those that wait do so stream by stream.

    ON FILES (>>file)

        ignis_save and ignis_load keep named tensors in the safetensors format, which other tools read too. A file is written whole or not
        at all; reading a damaged or malicious one is an error, and does no harm.

    ON MODELS (>>text, >>chat, >>grammar, >>model, >>lora, >>generate)

        With #define IGNIS_MODELS above the #include, in every file that uses them, language models are opened as they are published: a folder
        of Hugging Face (config.json, model.safetensors or its shards, tokenizer.json) or a GGUF file. The families are GPT-2, Llama (2, 3,
        TinyLlama, SmolLM2), Qwen2 and Qwen3. What a description asks for and Ignis does not have, a sliding window say, is refused by name.

            ignis_model_desc from = {.path = "SmolLM2-135M", .dtype = IGNIS_BF16};
            ignis_model_info info;
            ignis_model_inspect(&from, &info);             // no GPU is needed: info.weight_bytes, info.cache_bytes, ...
            ignis_model model = ignis_model_open(&from);
            ignis_tensor logits = ignis_model_forward(model, ids);

        ignis_tokenizer_open takes the same folder or file, or tokenizer.json alone, and needs no GPU (with a dry run, none at all). Ids are those of
        Hugging Face's library tokenizers. There is no engine for regular expressions: the patterns, normalizers and decoders of these families are
        known, others are refused by name. ignis_text_stream turns ids into text as they come, and never cuts a character. Text of users, in which
        "<|im_end|>" must not end anything, is encoded with ignis_encode_desc.plain.

        Matrices that a GGUF file has quantised as Q8_0, Q4_0, Q4_K or Q6_K stay so on the device, bit for bit: an 8B model of 5 GB takes 5 GB,
        not 16, and a step reads as much less. That is the default, as whoever quantised a file wanted just this, and numbers of 16 bits would be
        rounded once more. desc.weights asks for numbers instead, or has any model quantised as it is read. Steps multiply with the blocks
        in f16 and bf16 on tensor cores of sm_80 and up; prompts of more than 64 tokens, ignis_model_forward, other dtypes and older devices
        make numbers of one weight at a time.

        A model is trained as any other: open it with desc.requires_grad, give ignis_model_weights to an optimizer, and go backward from a
        loss of ignis_model_forward. ignis_model_save writes a folder, which transformers opens, too. ignis_model_tensor finds a weight by its
        name. q, k and v are the rows of one weight, as are gate and up: for training a part alone its rows have to be copied back by hand.

        With adapters (LoRA: Hu et al. 2021, arXiv 2106.09685) the model's weights stay as they are, and some of its products get a correction of low
        rank, y = x W^T + scale (x A^T) B^T, of which A and B alone are trained: the optimizer's state is theirs, and no gradient of W is computed.

            ignis_lora_desc small = {.rank = 16, .alpha = 32};
            ignis_model model = ignis_model_open(&from);           // without desc.requires_grad
            ignis_lora lora = ignis_lora_create(model, &small);
            ignis_model_set_lora(model, lora);                     // from here on ignis_model_forward uses it
            count = ignis_lora_weights(lora, weights, 512);        // what an optimizer gets
            ...
            ignis_lora_save(lora, "adapter");                      // as PEFT writes it; ignis_lora_open reads such folders
            ignis_lora_merge(lora);                                // into the weights, before text is generated with it

        Messages become text by the model's chat template, a program in Jinja which ignis_chat_render runs as transformers does, to the byte.
        ignis_chat_encode makes ids of them: what a message says is never a control token, whatever the template does with it. Tools and other
        variables come as JSON, {"tools": [...], "enable_thinking": false}.

        A sequence is the tokens of one text, and their keys and values in the model's cache. ignis_generate shows text as it grows;
        ignis_sequence_next gives one token, ignis_sequence_next_all one of each of many texts, for which the weights are read once. Tokens
        are drawn on the device, and a step is a graph from its second time on. ignis_model_warmup compiles and captures all of it beforehand, for
        programs whose first answers may not wait.

            ignis_sequence sequence = ignis_sequence_begin(model);
            ignis_sequence_text(sequence, "Once upon a time", 16);     // ignis_sequence_chat for messages, ignis_sequence_feed for ids
            ignis_sampling_desc how = {.temperature = 0.7, .top_p = 0.9, .seed = 1};
            int32_t id = ignis_sequence_next(sequence, &how);

        The same ids give the same logits, to the bit, whatever else a step computes; so the same seed gives the same text. The cache has
        pages for desc.sequences of desc.context tokens; forks share theirs. When it is full a call fails with IGNIS_ERROR_MEMORY, changes
        nothing, and can be made again after another sequence was freed or truncated.

        A sequence with a grammar is drawn to a given form: only tokens that its text can go on with, and those that end it only where it may
        end. The grammar is GBNF, as llama.cpp has it, or a JSON schema (>>grammar has what of it there is).

            ignis_sequence_grammar(sequence, "root ::= [0-9]{4} \"-\" [0-9]{2} \"-\" [0-9]{2}");     // a date
            ignis_sequence_grammar(sequence, "{\"type\": \"object\"}");                           // any object of JSON
            ignis_generate(sequence, &desc);

        A model for which one GPU is too small or too slow is shared by several, for sequences: desc.parallel = ignis_comm_parallel(comm) of
        ignis_collective.h, whose manual has it under ON MODELS OF SEVERAL GPUS.

    ON STREAMS AND CUDART (>>stream)

        Ignis uses each device's primary context, as the CUDA runtime does, so pointers, streams and events mix: wrap cudaMalloc memory
        with ignis_array_desc.ptr, put work into your cudaStream_t with ignis_stream_use, give ignis_array_device_ptr to your own kernels. Call
        ignis_stream_forget before you destroy a stream that Ignis has used. A program without cudart makes its streams and events by
        ignis_stream_create and ignis_event_create, and orders them by ignis_stream_wait.

    ON FRAME LOOPS (>>stream, >>array, >>kernel)

        A loop that must not stand still reads back by ignis_array_to_host_async into memory of ignis_host_alloc, asks the ticket in a
        later frame by ignis_ticket_query, and ends it by ignis_ticket_wait when it is done. What else waits says so, behind "Threads:".
        Streams, events, pinned memory and kernels are made before the loop, and a first frame is run: the first use of a size, a stream or
        a kernel asks the driver, which may wait for the device. ignis_stream_call tells the program when a stream is done with what it has,
        and ignis_kernel_reload puts a new program in the place of one that is in use. examples/frame_loop.cpp is such a loop.

    ON DRY RUNS (>>setup, >>memory)

        How much memory will a program need, and of what? With ignis_desc.dry_run, or IGNIS_DRY_RUN=1 in the environment of a program as it is, no
        driver is opened, and nothing is compiled, allocated or run: checks, shapes, the tape and the cache of device memory work as always, on
        addresses alone. So ignis_memory_query has the peak that the program would have, and ignis_memory_rows what it is made of. The device is an
        H200, or ignis_desc.dry_device (facts of ignis_device_query from another machine, say), and running out of its memory fails as it would
        there, as does with IGNIS_COMPILE_NEVER a kernel that the bundle lacks. What is read from the device is 0, so a program that goes where
        values lead it goes where zeros do; sources of kernels are not looked at. There is one device; sharing, communicators and graphics APIs are
        refused (UNSUPPORTED).

    ON DLPACK (>>dlpack)

        DLPack is how array libraries lend each other memory without a copy: a struct with an address, a shape and a function that gives it back.
        ignis_array_to_dlpack makes one over an array's memory, ignis_array_from_dlpack an array over another library's. In Python the struct
        travels in a capsule named "dltensor_versioned" (major 1) or "dltensor" (major 0), for torch.from_dlpack and its like; tests/dlpack_torch.py
        does it with ctypes alone. What was lent is a view: the memory lives until it is given back, whoever frees the array before. Both sides may
        write; what the other side writes counts for ignis_backward only after ignis_array_mark_written.

    ON GRAPHICS (>>graphics)

        A renderer and kernels work on the same memory, without a copy. Vulkan and Direct3D 12 export what they have allocated as a handle of the
        system; ignis_external_array makes an array over it, ignis_external_fence a fence of an exported timeline semaphore, or of a fence of
        Direct3D. The two sides take turns by its value, which only rises, and no thread of the program waits:

            ignis_fence_wait(fence, 2 * frame + 1);        behind what Vulkan signals with its vkQueueSubmit
            ignis_array_map(points, "x + dt*v", ...);      kernels as always
            ignis_fence_signal(fence, 2 * frame + 2);      what Vulkan's next vkQueueSubmit waits for

        The other API must be on the same GPU: ignis_device_find finds the device of a VkPhysicalDeviceIDProperties.deviceUUID, and on Windows that
        of a LUID. In Vulkan the memory is allocated with VkExportMemoryAllocateInfo and the handle type OPAQUE_FD (OPAQUE_WIN32 on Windows), the
        semaphore is a timeline with VkExportSemaphoreCreateInfo; a buffer bound to the memory has its VkExternalMemoryBufferCreateInfo.
        ignis_external_desc takes the allocationSize of the whole VkDeviceMemory. Vulkan takes the buffer over from, and gives it back to, the queue
        family VK_QUEUE_FAMILY_EXTERNAL.

        Whose is the handle? A descriptor belongs to the driver once the call has succeeded, and stays the caller's if it fails. An NT handle
        stays the caller's, and can be closed after the call. The memory itself stays the exporter's: free the array before vkFreeMemory.
        ignis_array_free and ignis_fence_free of such things wait for the work that is queued on them; so a wait for a value that nobody signals
        never lets them return, nor ignis_shutdown. Such an array is not in the cache of device memory, and is not shared with other processes.

        An OpenGL buffer is registered once by ignis_gl_register, and is an array between ignis_gl_map and ignis_gl_unmap, at another address each
        time perhaps. The calls are made by the thread in which OpenGL's context is current. tests/gpu_vulkan.c, tests/gpu_opengl.c and
        examples/vulkan_buffer.c are whole programs. Handles of Windows follow the documentation of CUDA: those of Vulkan are tested under Wine
        against the simulator, those of Direct3D 12 for their arguments alone, and none has run on Windows itself.

    ON PROFILES (>>profile)

        Between ignis_profile_begin and ignis_profile_end Ignis writes down what it runs: calls on the host, kernels, copies, collective
        operations and graphs on the device, and memory in use. ignis_profile_end writes a trace for ui.perfetto.dev or chrome://tracing, and a
        table of kernels beside the device's rates (a roofline). Times are those of events around each kernel: some 2 us more than it takes
        itself, so short kernels seem longer, and each launch takes the host a few us more. CUPTI is not used, and nothing is to be installed.
        Bytes are those of the arrays that the operation has, each once, read or written, and where it has several kernels the longest one has
        them all; FLOPs those of products and attention: what Ignis does not know is left out, rather than guessed. A capture is not written down,
        and a graph is one item, as events in it have no time. Kernels that the caller launches by other means are not seen. ignis_memory_snapshot
        draws who has the memory.

    ON THREADS

        Every function may be called from any thread, and several may use one handle: of two that free it, one gets an error. Each
        thread has its own current device, current stream and first failure. After fork, every call in the child fails: CUDA does not
        survive fork. Compiling a kernel blocks only the threads that need the same kernel.

        Tensors are shared by these rules:

            - scopes, no-grad sections, random numbers and the tape are the thread's own
            - leaves, such as weights, belong to all: each thread records its own operations on them and runs its own backward. What several
              threads add to one gradient is added one after the other, also on streams of their own: nothing is lost, but the order is not
              fixed, and so the last bit of the sum is not
            - what one thread has recorded, others may read, query, ignis_detach and release, also during its backward, which holds what it
              needs. Recording more on it, ignis_backward and ignis_tape_dot are errors (TAPE_OF_OTHER)
            - ignis_zero_grad and ignis_tensor_set_grad are atomic, too. An optimizer's step, and reading a gradient, come after the backwards
              whose result they are to see: wait for those threads, and for their streams if they have other ones

    ON SHARED LIBRARIES

        Where two shared libraries of one process have Ignis inside and export its functions, the system's loader gives both the functions
        of the one that was loaded first: one ignis_setup for both, one state, and undefined behaviour when their versions differ. (Not on
        Windows, where a DLL always has its own functions.) So build a shared library with IGNIS_HIDDEN, or with -fvisibility=hidden: then it
        has an Ignis of its own. The price: each has its own setup, cache of device memory and compiled kernels, handles of one mean
        nothing to the other (pass device pointers instead, ignis_array_desc.ptr wraps them), and a program cannot call the functions in it.
        If a library is to offer Ignis to others, it exports the functions, and is the only one in the process that does.

        A library with Ignis inside may be unloaded, and loaded again, while threads that have used it live on. Let go first what others would
        call: free communicators, have tensors that were lent by DLPack given back, and call ignis_shutdown. From then on nothing of Ignis runs in
        any thread, nor when one ends: dlclose or FreeLibrary takes the handlers away that the system was given, and all memory is given back. What
        a reload may lose, of each thread that has failed behind ignis_shutdown and lives on, is a message of more than 255 bytes, and what
        ignis_status_begin has put aside there. libcuda and NVRTC stay loaded. (musl never unloads, nor does macOS where a library has variables
        of threads.) On Windows have the threads that used it end before FreeLibrary: under Wine some of those that ended behind it still ran code of
        the library, and it has not been tried on Windows itself.

    OPTIONS, for the file with the implementation; each with its price

        #define IGNIS_STATIC       all functions are static: no symbols, one copy per file that includes it
        #define IGNIS_HIDDEN       nothing of Ignis is exported from the shared library that contains it: see ON SHARED LIBRARIES. In C++ g++'s
                                   -Wattributes is off in that file
        #define IGNIS_API ...      linkage of your own, such as __declspec(dllexport)
        #define IGNIS_LINK_CUDA    bind to libcuda, NVRTC and cuBLASLt at link time: needs toolkit 12.4 or newer to build,
                                   -lcuda -lnvrtc -lcublasLt to link, and all three where it runs
        #define IGNIS_NO_TENSORS   arrays and kernels alone, in every file: no formulas, tensors, tape, operations, graphs, files. Compiles in
                                   a third of the time, and makes a program 1.4 MB smaller (gcc 12 -O2, stripped: 0.8 MB instead of 2.2)
        #define IGNIS_MODELS       adds tokenizers, checkpoints and generation of text, in every file that uses them: see ON MODELS
        #define IGNIS_TRACE_CALLS  in any file, before the #include: ignis_memory_rows and profiles know the lines of this file that take memory
                                   and launch kernels. Two stores a call; such functions are macros then
        #define IGNIS_ASSERT(c)    instead of assert
        #define IGNIS_ALLOW_FAST_MATH  compile although -ffast-math, -ffinite-math-only or /fp:fast is on, which is an error otherwise: such a
                                   compiler drops checks for NaN and infinity, so bad numbers are not refused, and conversions of NaN give
                                   anything. Better: compile this one file without the flag, or with -fno-fast-math behind it. Kernels never
                                   see it
        ignis_desc.allocator       instead of malloc; handle slots and messages still come from malloc, as they outlive ignis_shutdown

    LIMITS

        Driver for CUDA 11.4 or newer, NVRTC 11.2 or newer, a GPU that this NVRTC compiles for. 8 dimensions, 64 devices, 2^27 live
        handles of a kind, 64 kernel parameters, 2^31 - 1 blocks of 4096 elements in one built-in operation.
        On Windows, paths and variables are UTF-8, of up to 1023 UTF-16 units; libraries are not looked for in PATH or the current folder; what is
        kept of a thread ends with the fiber that first called Ignis in it. Programs of MinGW and of clang in its mode for Microsoft's
        compiler have run under Wine, none on Windows itself. README.md says what to do in Visual Studio.
*/
/*  What the implementation needs of the system: -std=c99 hides it, unless one of these is defined before the first system header. */
#if defined(IGNIS_IMPLEMENTATION) && !defined(IGNIS_IMPLEMENTED)
#if defined(__APPLE__) && defined(_POSIX_C_SOURCE) && !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE /* where _POSIX_C_SOURCE hides more than it brings */
#elif defined(__STRICT_ANSI__) && !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE) && \
    !defined(_XOPEN_SOURCE) && !defined(_WIN32) && !defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#if defined(EOF) || defined(CLOCKS_PER_SEC)
#define IGNIS__TOO_LATE /* stdio.h or time.h came before */
#endif
#endif
#endif

#if defined(IGNIS_IMPLEMENTATION) && !defined(IGNIS_ALLOW_FAST_MATH)
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ + 0) || defined(_M_FP_FAST)
#error "Ignis does not compile with -ffast-math, -ffinite-math-only or /fp:fast, which drop its checks for NaN: see IGNIS_ALLOW_FAST_MATH"
#endif
#endif

#if defined(IGNIS_INCLUDED) && (IGNIS_VERSION_MAJOR != 0 || IGNIS_VERSION_MINOR != 5 || IGNIS_VERSION_PATCH != 0)
#error "two versions of ignis.h are included in one file"
#endif

#ifndef IGNIS_INCLUDED
#define IGNIS_INCLUDED

/*  The version of this header. IGNIS_VERSION is a number to compare: 500 for 0.5.0. */
#define IGNIS_VERSION_MAJOR 0
#define IGNIS_VERSION_MINOR 5
#define IGNIS_VERSION_PATCH 0
#define IGNIS_VERSION (10000 * IGNIS_VERSION_MAJOR + 100 * IGNIS_VERSION_MINOR + IGNIS_VERSION_PATCH)

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef IGNIS_API
#if defined(IGNIS_STATIC) && defined(__GNUC__)
#define IGNIS_API static __attribute__((unused))
#elif defined(IGNIS_STATIC)
#define IGNIS_API static
#elif defined(IGNIS_HIDDEN) && defined(IGNIS_IMPLEMENTATION) && defined(__GNUC__) && !defined(_WIN32)
/* What the linker hides is hidden for all files. In the others a template of a function's address would have to be hidden, too, and each class
   with such a member: g++ warns of those that are not. */
#define IGNIS_API extern __attribute__((visibility("hidden")))
#if defined(__cplusplus) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wattributes"
#endif
#else
#define IGNIS_API extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------------
   Declarations, a section for each tag: types, then functions. Every option struct may be zero-initialised: 0 means the
   default named beside the field. Each function is documented in one form: what it does, then Returns, Errors,
   Ownership, Threads. "any" after Threads: callable from any thread at any time, also on one handle from several.
   Streams are named only where work is put on one: that is always the calling thread's current stream of the array's
   device, and the call does not wait unless it says so. Every function but ignis_setup, the status functions, the version,
   and names and sizes of dtypes and owners fails with IGNIS_ERROR_NOT_SETUP before ignis_setup, after ignis_shutdown, in
   a forked child, and in a function given to ignis_stream_call. */

/*  Handles. 0 is no handle. A handle names a slot and its generation, so one that was freed is recognised for ever. */
typedef struct ignis_array {
    uint64_t id;
} ignis_array;

/*  A kernel that ignis_kernel_compile has made. */
typedef struct ignis_kernel {
    uint64_t id;
} ignis_kernel;

/*  A point in the work of a stream: ignis_event_create. */
typedef struct ignis_event {
    uint64_t id;
} ignis_event;

/*  A counter that CUDA and a graphics API wait for and raise: ignis_external_fence. */
typedef struct ignis_fence {
    uint64_t id;
} ignis_fence;

/*  A buffer of OpenGL that can be mapped as an array: ignis_gl_register. */
typedef struct ignis_gl_buffer {
    uint64_t id;
} ignis_gl_buffer;

/*  A copy between device and host that nobody waits for yet: ignis_ticket_wait. */
typedef struct ignis_ticket {
    uint64_t id;
} ignis_ticket;

/* >>status ------------------------------------------------------------------------------------------------------ */

/*  IGNIS_STATUSES - every status, as X(enumerator suffix, meaning). */
#define IGNIS_STATUSES(X)                                                                \
    X(NOT_SETUP, "ignis_setup has not been called, or Ignis cannot be called here")      \
    X(ARGUMENT, "an argument is out of its range, null or contradictory")                \
    X(SHAPE, "shapes do not fit together, or a size overflows")                          \
    X(DTYPE, "an element type is not the one that is needed")                            \
    X(FREED, "the handle was freed, or never existed")                                   \
    X(CONTRACT, "a rule of the memory contract was about to be broken")                  \
    X(MEMORY, "host, pinned or device memory has run out")                               \
    X(LIBRARY, "the driver, NVRTC or cuBLASLt is missing, or too old")                   \
    X(DEVICE, "no such device, or the devices were lost to an earlier fault")            \
    X(COMPILE, "CUDA source did not compile; the log is in the message")                 \
    X(CUDA, "the driver refused a call")                                                 \
    X(UNSUPPORTED, "the request is meaningful, but this device or version cannot do it") \
    X(IO, "a file could not be read or written")                                         \
    X(FORMAT, "a file is not what it claims to be")                                      \
    X(PEER, "another process died or broke the protocol")                                \
    X(TIMEOUT, "a deadline has passed")                                                  \
    X(MISMATCH, "ranks disagree about a collective operation")

typedef enum ignis_status {
    IGNIS_OK = 0,
#define IGNIS__STATUS_ENUM(name, meaning) IGNIS_ERROR_##name,
    IGNIS_STATUSES(IGNIS__STATUS_ENUM)
#undef IGNIS__STATUS_ENUM
        IGNIS_STATUS_COUNT
} ignis_status;

/*  IGNIS_DIAGNOSTICS - every thing that can go wrong, as X(enumerator suffix, status suffix, the rule).
    Message texts may change between versions; these ids stay, so tests and tools compare ids. */
#define IGNIS_DIAGNOSTICS(X)                                                                                         \
    X(NOT_SETUP, NOT_SETUP, "call ignis_setup first")                                                                \
    X(FORKED, NOT_SETUP, "CUDA does not survive fork; call ignis_setup in the child's own program")                  \
    X(ALREADY_SETUP, ARGUMENT, "call ignis_shutdown before the next ignis_setup")                                    \
    X(NULL_ARGUMENT, ARGUMENT, "a pointer that must not be null is null")                                            \
    X(BAD_ENUM, ARGUMENT, "an enumerator is outside its enumeration")                                                \
    X(BAD_NUMBER, ARGUMENT, "a number is outside its range")                                                         \
    X(COUNT_MISMATCH, ARGUMENT, "a count is not the one that is needed")                                             \
    X(SHAPE_RANK, SHAPE, "a shape has 1 to IGNIS_MAX_DIMS dimensions")                                               \
    X(SHAPE_DIM, SHAPE, "a dimension is not negative")                                                               \
    X(SHAPE_OVERFLOW, SHAPE, "the number of elements and bytes fits 63 bits")                                        \
    X(SHAPE_DIFFERS, SHAPE, "shapes are equal, or hold equally many elements")                                       \
    X(SLICE_RANGE, SHAPE, "a slice lies inside its dimension")                                                       \
    X(SLICE_STRIDED, SHAPE, "only contiguous slices can be views")                                                   \
    X(ROWS_OVERFLOW, SHAPE, "rows are written inside the destination")                                               \
    X(DTYPE_DIFFERS, DTYPE, "arrays have the same element type")                                                     \
    X(ARRAY_FREED, FREED, "an array is used only while its handle is live")                                          \
    X(KERNEL_FREED, FREED, "a kernel is used only while its handle is live")                                         \
    X(ARRAY_UNWRITTEN, ARGUMENT, "an array is written before it is read")                                            \
    X(WRONG_KIND, FREED, "a handle is used only as what it is")                                                      \
    X(FREE_BY_OTHER, CONTRACT, "only its owner frees an array")                                                      \
    X(FREE_REFERENCED, CONTRACT, "an array is not freed while others hold references to it")                         \
    X(DOUBLE_ACQUIRE, CONTRACT, "an owner does not acquire what it owns already")                                    \
    X(RELEASE_BY_OTHER, CONTRACT, "only its owner releases an array")                                                \
    X(TRANSFER_REFERENCED, CONTRACT, "ownership does not move while ref_count is above 1")                           \
    X(OWNER_DIFFERS, CONTRACT, "an array is owned by the expected owner")                                            \
    X(REF_COUNT_ZERO, CONTRACT, "a reference is given back only after it was taken")                                 \
    X(REF_COUNT_OVERFLOW, CONTRACT, "a reference count stays below 2^31")                                            \
    X(PIN_TWICE, CONTRACT, "pinned host memory is allocated once per array")                                         \
    X(PIN_MISSING, CONTRACT, "pinned host memory is freed only after it was allocated")                              \
    X(ARRAY_LEAKED, CONTRACT, "every array is freed before shutdown")                                                \
    X(HOST_MEMORY, MEMORY, "the host allocator has memory")                                                          \
    X(DEVICE_MEMORY, MEMORY, "the device has memory")                                                                \
    X(PINNED_MEMORY, MEMORY, "the system has pinned host memory")                                                    \
    X(LIBRARY_MISSING, LIBRARY, "the library is installed where it is looked for")                                   \
    X(LIBRARY_SYMBOL, LIBRARY, "the library is new enough to have the function")                                     \
    X(DEVICE_NONE, DEVICE, "there is a CUDA device")                                                                 \
    X(DEVICE_RANGE, DEVICE, "a device ordinal is below ignis_device_count")                                          \
    X(DEVICE_DIFFERS, DEVICE, "arrays, streams and kernels of one call are on one device")                           \
    X(DEVICE_LOST, DEVICE, "no device is used after a fault, until the process ends")                                \
    X(COMPILE_FAILED, COMPILE, "the CUDA source compiles")                                                           \
    X(ENTRY_MISSING, COMPILE, "the source has a __global__ function of the entry's name")                            \
    X(ARG_COUNT, ARGUMENT, "a kernel gets as many arguments as it has parameters")                                   \
    X(ARG_SIZE, ARGUMENT, "an argument is as large as the kernel's parameter")                                       \
    X(LAUNCH_SIZE, ARGUMENT, "a launch stays inside the limits of device and kernel")                                \
    X(CUDA_CALL, CUDA, "the driver accepts the call")                                                                \
    X(STREAM_INVALID, ARGUMENT, "a stream belongs to the current device")                                            \
    X(UNSUPPORTED, UNSUPPORTED, "the device and the libraries can do what is asked")                                 \
    X(CACHE_IO, IO, "the kernel cache folder can be read and written")                                               \
    X(TENSOR_FREED, FREED, "a tensor is used only while its handle is live")                                         \
    X(GRAD_OF_INTEGERS, DTYPE, "gradients are floating-point")                                                       \
    X(SCOPE_ORDER, ARGUMENT, "scopes and no-grad sections end in the order in which they began, innermost first")    \
    X(TAPE_OF_OTHER, ARGUMENT, "a tape belongs to the thread that recorded it")                                      \
    X(TAPE_WALKED, ARGUMENT, "what a backward walks is not cleared under it")                                        \
    X(RECORDED_TWICE, ARGUMENT, "a tensor is the result of one operation")                                           \
    X(BACKWARD_NOT_SCALAR, ARGUMENT, "backward starts from one element, or from a gradient that is given")           \
    X(BACKWARD_TWICE, ARGUMENT, "what was recorded is walked once")                                                  \
    X(BACKWARD_FAILED, ARGUMENT, "a backward function says itself what went wrong")                                  \
    X(GRADIENT_LATE, ARGUMENT, "a gradient is known before it is given to other ranks")                              \
    X(PARALLEL_BUSY, ARGUMENT, "one backward at a time averages gradients over ranks")                               \
    X(NO_GRAD_WANTED, ARGUMENT, "gradients exist for tensors that require them")                                     \
    X(CAPTURE_STATE, ARGUMENT, "a thread captures one graph at a time")                                              \
    X(CAPTURE_REFUSED, UNSUPPORTED, "what waits for the device or reads host memory is not captured")                \
    X(GRAPH_FREED, FREED, "a graph is used only while its handle is live")                                           \
    X(GRADIENT_WRONG, MISMATCH, "a gradient is that of its function")                                                \
    X(MATMUL_SHAPE, SHAPE, "matrices fit together")                                                                  \
    X(CUBLAS_CALL, CUDA, "cuBLASLt accepts the call")                                                                \
    X(SDPA_HEADS, ARGUMENT, "query heads come in equal groups, one for each key head")                               \
    X(SDPA_SHAPE, SHAPE, "queries, keys and values fit together")                                                    \
    X(SPREAD_SHAPE, SHAPE, "the second shape is the first one, or spreads over it")                                  \
    X(DIM_RANGE, SHAPE, "a dimension is one that the tensor has")                                                    \
    X(PARTS_SHAPE, SHAPE, "parts differ in one dimension only, and add up")                                          \
    X(OPTIMIZER_FREED, FREED, "an optimizer is used only while its handle is live")                                  \
    X(PARAMETER_KIND, ARGUMENT, "parameters and checked inputs are leaves that require gradients, each once")        \
    X(STORAGE_IO, IO, "a file of tensors can be read and written")                                                   \
    X(STORAGE_FORMAT, FORMAT, "a file of tensors is a sound safetensors file")                                       \
    X(STORAGE_NAME, ARGUMENT, "tensors in a file have names in UTF-8, each of them once")                            \
    X(STORAGE_MISSING, ARGUMENT, "a tensor that is to be loaded is in the file")                                     \
    X(FREE_EXPORTED, CONTRACT, "an array is not freed, and does not change its owner, while other processes use it") \
    X(VMM_FREED, FREED, "VMM memory and address ranges are used only while their handles are live")                  \
    X(VMM_STATE, ARGUMENT, "memory is mapped once at a place, and unmapped as it was mapped")                        \
    X(VMM_SIZE, ARGUMENT, "sizes and offsets of VMM memory are multiples of its granularity")                        \
    X(NOT_SHAREABLE, ARGUMENT, "what is shared was made to be shared")                                               \
    X(CHANNEL_FREED, FREED, "a channel is used only while its handle is live")                                       \
    X(CHANNEL_IO, IO, "a channel can be opened, read and written")                                                   \
    X(CHANNEL_DESCRIPTOR, UNSUPPORTED, "a descriptor travels through a socket")                                      \
    X(CHANNEL_LOST, PEER, "the other side of a channel is there")                                                    \
    X(CHANNEL_MESSAGE, PEER, "messages keep to the protocol")                                                        \
    X(CHANNEL_TIMEOUT, TIMEOUT, "the other side answers before the deadline")                                        \
    X(TRANSPORT_FREED, FREED, "a transport is used only while its handle is live")                                   \
    X(TRANSPORT_STATE, ARGUMENT, "a transport is initialized before it is used")                                     \
    X(TRANSPORT_HANDLE, ARGUMENT, "a receive through IPC has the sender's handle")                                   \
    X(TRANSPORT_UNAVAILABLE, UNSUPPORTED, "the two devices can reach each other that way")                           \
    X(TRANSPORT_RECORD, FORMAT, "a handle that is imported is whole, and of this job")                               \
    X(TRANSPORT_PEER, PEER, "a handle comes from the process that it names")                                         \
    X(TRANSPORT_MISMATCH, MISMATCH, "a handle says what its memory is")                                              \
    X(COMM_FREED, FREED, "a communicator is used only while its handle is live")                                     \
    X(COMM_ENVIRONMENT, ARGUMENT, "the environment names rank and size, and does not contradict itself")             \
    X(COMM_RENDEZVOUS, PEER, "all ranks meet")                                                                       \
    X(COMM_TIMEOUT, TIMEOUT, "all ranks come to a collective operation before its deadline")                         \
    X(COMM_MISMATCH, MISMATCH, "all ranks ask for the same operation, count, dtype and root")                        \
    X(COMM_PEER, PEER, "all ranks are alive")                                                                        \
    X(COMM_BROKEN, PEER, "a communicator that has failed is shrunk or destroyed")                                    \
    X(COMM_OVERLAP, ARGUMENT, "input and output are the same memory, or apart")                                      \
    X(NCCL_CALL, CUDA, "NCCL accepts the call")                                                                      \
    X(PARALLEL_FREED, FREED, "data-parallel training is used only while its handle is live")                         \
    X(KERNEL_HEADER, ARGUMENT, "each header of a kernel has a name of its own")                                      \
    X(HANDLE_LEAKED, CONTRACT, "kernels, communicators and other handles are freed before shutdown")                 \
    X(OVERLAP, ARGUMENT, "what is read and what is written are the same memory, or apart")                           \
    X(SAVED_CHANGED, ARGUMENT, "what backward needs of the forward pass is not written to before it")                \
    X(GRADIENT_SHARED, ARGUMENT, "a gradient that is summed over ranks stays in its memory")                         \
    X(EVENT_FREED, FREED, "an event is used only while its handle is live")                                          \
    X(EVENT_STATE, ARGUMENT, "time is measured between events that were recorded, and are done")                     \
    X(TICKET_FREED, FREED, "a ticket is waited for once")                                                            \
    X(HOST_UNKNOWN, ARGUMENT, "pinned host memory is freed as it was allocated, once")                               \
    X(INSIDE_CALLBACK, NOT_SETUP, "what runs when a stream is done does not call Ignis")                             \
    X(SYMBOL_MISSING, ARGUMENT, "a kernel has a __constant__ or __device__ variable of that name")                   \
    X(FORMULA, ARGUMENT, "a formula is sound, and has named inputs")                                                 \
    X(CONV_SHAPE, SHAPE, "images, weights and bias of a convolution fit together")                                   \
    X(REPORT_IO, IO, "a report can be written to the file that is named")                                            \
    X(PROFILE_STATE, ARGUMENT, "one profile at a time is begun, and ended")                                          \
    X(KERNEL_MISSING, COMPILE, "where nothing is compiled, each program is in the bundle or in the cache")           \
    X(KERNEL_IMAGE, FORMAT, "the image of a kernel is a whole cubin, fatbin or PTX text")                            \
    X(BUNDLE_IO, IO, "a bundle can be read, and a record be written")                                                \
    X(BUNDLE_FORMAT, FORMAT, "a bundle is as ignis_embed has made it")                                               \
    X(BUNDLE_MISMATCH, MISMATCH, "a bundle is made by and for this version of Ignis, and for the device")            \
    X(GGUF_FORMAT, FORMAT, "a file of tensors and keys is a sound GGUF file")                                        \
    X(SEQUENCE_FREED, FREED, "a sequence is used only while its handle is live")                                     \
    X(CONTEXT_FULL, ARGUMENT, "a sequence is no longer than the context of its model")                               \
    X(CACHE_FULL, MEMORY, "the cache of a model has pages for all its sequences")                                    \
    X(WRONG_MODEL, ARGUMENT, "sequences of one step are of one model")                                               \
    X(MODEL_FREED, FREED, "a model is used only while its handle is live")                                           \
    X(MODEL_CONFIG, FORMAT, "a model's description is complete, and contradicts neither itself nor the weights")     \
    X(MODEL_CANCELLED, IO, "what opens a model is not told to stop")                                                 \
    X(LORA_FREED, FREED, "adapters are used only while their handle is live")                                        \
    X(LORA_FORMAT, FORMAT, "the files of adapters are complete, and fit the model")                                  \
    X(LORA_STATE, ARGUMENT, "adapters are set on the model they were made for, and merged once")                     \
    X(TOKENIZER_FREED, FREED, "a tokenizer is used only while its handle is live")                                   \
    X(TOKENIZER_IO, IO, "the files of a tokenizer can be read")                                                      \
    X(TOKENIZER_FORMAT, FORMAT, "the files of a tokenizer are whole, and do not contradict each other")              \
    X(TOKEN_RANGE, ARGUMENT, "an id is one of the tokenizer's")                                                      \
    X(GRAMMAR, ARGUMENT, "a grammar is sound, and texts keep to it")                                                 \
    X(EXTERNAL_HANDLE, ARGUMENT, "what a graphics API hands over is open, and of the type that is named")            \
    X(FENCE_FREED, FREED, "a fence is used only while its handle is live")                                           \
    X(FENCE_VALUE, ARGUMENT, "the value of a fence only rises")                                                      \
    X(GL_BUFFER_FREED, FREED, "a registered OpenGL buffer is used only while its handle is live")                    \
    X(GL_BUFFER_STATE, ARGUMENT, "an OpenGL buffer is mapped once, and unmapped before it is unregistered")          \
    X(GL_BUFFER_USED, CONTRACT, "an OpenGL buffer is unmapped when no view and no graph uses its memory")            \
    X(CHAT_TEMPLATE, ARGUMENT, "a chat template is sound, and has what it needs")                                    \
    X(CHAT_REFUSED, ARGUMENT, "a chat template takes the messages: if not, it says why")                             \
    X(CHAT_LIMIT, UNSUPPORTED, "a chat template keeps within its limits of steps, depth and memory")                 \
    X(CHAT_VARIABLES, ARGUMENT, "the variables of a chat are an object of JSON")                                     \
    X(NO_TOKEN, ARGUMENT, "some token can be drawn: its logit is a number, and nothing forbids it")

typedef enum ignis_diagnostic {
    IGNIS_DIAG_NONE = 0,
#define IGNIS__DIAGNOSTIC_ENUM(name, status, rule) IGNIS_DIAG_##name,
    IGNIS_DIAGNOSTICS(IGNIS__DIAGNOSTIC_ENUM)
#undef IGNIS__DIAGNOSTIC_ENUM
        IGNIS_DIAG_COUNT
} ignis_diagnostic;

/*  The first failure of a thread since ignis_status_clear. Strings live until the thread's next ignis_status_clear, and no longer than until
    another thread calls ignis_shutdown: of a message that is longer the first 255 bytes stay then.
    Messages are UTF-8 in one line, to which the lines of a log may be added. Names and texts from files, peers, the environment and the caller are
    shown so that they cannot end the line or move a terminal: control characters, signs that turn the direction of writing and bytes that are no
    UTF-8 are written as \n, \x1b and so on. A message of more than 4,000 bytes loses its middle. What goes to the logger is written so, too. */
typedef struct ignis_status_info {
    ignis_status status;
    ignis_diagnostic diagnostic;
    const char *call;        /* the public function that failed */
    const char *message;     /* "call: what was expected and what came" */
    int driver_error;        /* CUresult, nvrtcResult or cublasStatus_t; 0: none */
    const char *driver_name; /* its name, "" for none */
    const char *log;         /* the whole compile log, or the files that were tried; "" for none */
} ignis_status_info;

/*  How serious a message to the logger is. */
typedef enum ignis_log_level { IGNIS_LOG_INFO = 1, IGNIS_LOG_WARNING, IGNIS_LOG_ERROR } ignis_log_level;

/*  Gets every warning and error at the moment it happens, and information when ignis_desc.verbose is set.
    It is called on the thread that failed, and must not call Ignis. */
typedef struct ignis_logger {
    void (*log_fn)(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data);
    void *user_data;
} ignis_logger;

/*  ignis_status_last - the first failure of this thread since ignis_status_clear
    Returns: its status, IGNIS_OK for none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any; each has its own. */
IGNIS_API ignis_status ignis_status_last(void);

/*  ignis_status_message - the sentence of that failure, such as "ignis_array_slice: dim 3 is outside [2, 3]"
    Returns: the text, "" for no failure.
    Errors: none.
    Ownership: lives until this thread's ignis_status_clear, or another thread's ignis_shutdown.
    Threads: any; each has its own. */
IGNIS_API const char *ignis_status_message(void);

/*  ignis_status_latest_message - the sentence of this thread's latest failure since ignis_status_clear, which may be the first
    Returns: the text, "" for no failure. A call that failed quietly, as it was given handle 0 after a failure, has none.
    Errors: none.
    Ownership: lives until this thread's next failure or ignis_status_clear, or another thread's ignis_shutdown.
    Threads: any; each has its own. */
IGNIS_API const char *ignis_status_latest_message(void);

/*  ignis_status_query - everything that is known of that failure
    Returns: its status.
    Errors: none; a null info is allowed.
    Ownership: the strings live until this thread's ignis_status_clear, or another thread's ignis_shutdown.
    Threads: any; each has its own. */
IGNIS_API ignis_status ignis_status_query(ignis_status_info *info);

/*  ignis_status_clear - forget the failure, so that the next one is kept
    Returns: nothing.
    Errors: none.
    Ownership: frees the texts of the failure, and that of ignis_status_latest_message.
    Threads: any; each has its own. */
IGNIS_API void ignis_status_clear(void);

/*  ignis_status_begin - put the thread's failure aside, so that a job which runs in a thread of others can ask for its own
    Until ignis_status_end the thread is as after ignis_status_clear: ignis_status_last, _message and _query are about what fails in between. Such
    pairs may be nested.
    Returns: nothing.
    Errors: none. Where there is no memory to put a failure aside, it stays the thread's first.
    Ownership: texts of the failure that is put aside live on.
    Threads: any; each has its own. Begin and end in one thread. */
IGNIS_API void ignis_status_begin(void);

/*  ignis_status_end - forget what has failed since ignis_status_begin, and have back what had failed before it
    Returns: the status of the first failure in between, IGNIS_OK for none.
    Errors: ARGUMENT (nothing was begun in this thread).
    Ownership: frees the texts of the failures in between.
    Threads: any; each has its own. */
IGNIS_API ignis_status ignis_status_end(void);

/*  ignis_status_name - "IGNIS_ERROR_SHAPE" for IGNIS_ERROR_SHAPE
    Returns: a constant string, "unknown status" for a number that is none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_status_name(ignis_status status);

/*  ignis_diagnostic_name - "SLICE_STRIDED" for IGNIS_DIAG_SLICE_STRIDED
    Returns: a constant string, "unknown diagnostic" for a number that is none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_diagnostic_name(ignis_diagnostic diagnostic);

/*  ignis_diagnostic_rule - the rule behind a diagnostic: "only contiguous slices can be views"
    Returns: a constant string, "" for a number that is none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_diagnostic_rule(ignis_diagnostic diagnostic);

/* >>setup ------------------------------------------------------------------------------------------------------- */

/*  Where Ignis' own host memory comes from. Set both functions or none. Called from any thread. */
typedef struct ignis_allocator {
    void *(*alloc_fn)(size_t size, void *user_data);
    void (*free_fn)(void *ptr, void *user_data);
    void *user_data;
} ignis_allocator;

/*  Who computes matrix products. Own kernels sum in a fixed order; so does cuBLASLt, in another one, so the last bits of the two differ. */
typedef enum ignis_matmul_by {
    IGNIS_MATMUL_AUTO,     /* own kernels for large products of f16, bf16 and tf32 on compute capability 9.0; else cuBLASLt, if found */
    IGNIS_MATMUL_CUBLASLT, /* cuBLASLt alone; without it products fail */
    IGNIS_MATMUL_OWN,      /* own kernels alone; cuBLASLt is not loaded */
    IGNIS_MATMUL_MEASURE,  /* the faster one of each kind of product, measured once a device and kept in the kernel cache's folder */
    IGNIS_MATMUL_COUNT
} ignis_matmul_by;

/*  Which kernels compute ignis_sdpa. */
typedef enum ignis_attention_by {
    IGNIS_ATTENTION_AUTO, /* IGNIS_ATTENTION_WGMMA where it can be had, else IGNIS_ATTENTION_MMA */
    IGNIS_ATTENTION_MMA, /* for tensor cores of every device that has them, in plain CUDA C for the others and for what those do not take */
    IGNIS_ATTENTION_WGMMA, /* for devices of compute capability 9.0, where they can: see ignis_sdpa; the others where they cannot */
    IGNIS_ATTENTION_COUNT
} ignis_attention_by;

/*  Whether programs may be compiled where the program runs: see ON SHIPPING. */
typedef enum ignis_compile_when {
    IGNIS_COMPILE_AUTO,  /* what is in no bundle and no cache is compiled */
    IGNIS_COMPILE_NEVER, /* what is in no bundle and no cache is an error; NVRTC is never opened */
    IGNIS_COMPILE_COUNT
} ignis_compile_when;

typedef struct ignis_desc {
    int device;                   /* the device that threads start with (0) */
    const char *cuda_library;     /* path of libcuda / nvcuda (searched) */
    const char *nvrtc_library;    /* path of libnvrtc (searched when a kernel has to be compiled) */
    const char *cublas_library;   /* path of libcublasLt (searched when a matrix product is asked for; none is needed) */
    const char *nccl_library;     /* path of libnccl, for ignis_collective.h (searched when asked for) */
    const char *cache_dir;        /* folder of the kernel cache (IGNIS_CACHE_DIR, else the user's cache folder); "off": none */
    int64_t cache_limit;          /* bytes that the kernel cache may hold (256 MiB) */
    int64_t memory_limit;         /* bytes of device memory that Ignis may reserve on each device (no limit) */
    bool allow_tf32;              /* true: products of f32 may round their factors to tf32 (10 bits), which is several times faster */
    bool memory_bypass;           /* true: no caching of device memory, each block is one driver allocation (IGNIS_MEMORY_BYPASS=1) */
    bool verbose;                 /* true: the logger gets information too (IGNIS_VERBOSE=1) */
    ignis_allocator allocator;    /* malloc and free */
    ignis_logger logger;          /* writes warnings and errors to stderr */
    ignis_matmul_by matmul;       /* who computes matrix products (IGNIS_MATMUL=cublaslt, own or measure; the faster as a rule) */
    ignis_attention_by attention; /* which kernels compute ignis_sdpa (IGNIS_ATTENTION=mma or wgmma; the fastest) */
    const char *record;           /* file to which each program that is asked for is added, for ignis_embed (IGNIS_RECORD; none) */
    const void *bundle;           /* programs that ignis_embed has compiled, in memory that lives until ignis_shutdown (none) */
    size_t bundle_size;           /* bytes of it */
    const char *bundle_path;      /* the same in a file (IGNIS_BUNDLE; none) */
    ignis_compile_when compile;   /* whether other programs may be compiled (IGNIS_COMPILE=never; yes) */
    bool dry_run;                 /* true: no driver, nothing runs, memory is only counted (IGNIS_DRY_RUN=1): see ON DRY RUNS */
    const struct ignis_device_info *dry_device; /* the device of a dry run: facts that are 0 are those of an H200 (all) */
    bool trace_memory; /* true: ignis_memory_rows knows what the peak was made of (IGNIS_TRACE_MEMORY=1; always in a dry run) */
} ignis_desc;

/*  The libraries that are opened at run time. */
typedef enum ignis_library {
    IGNIS_LIBRARY_CUDA = 1,
    IGNIS_LIBRARY_NVRTC,
    IGNIS_LIBRARY_CUBLASLT,
    IGNIS_LIBRARY_NCCL,
    IGNIS_LIBRARY_COUNT
} ignis_library;

typedef struct ignis_library_info {
    const char *path;    /* the name it was opened by; "linked" with IGNIS_LINK_CUDA, but for NCCL */
    int version;         /* 1000 * major + 10 * minor */
    int functions;       /* functions that Ignis knows */
    int functions_found; /* of which this version has so many */
} ignis_library_info;

/*  ignis_setup - load the driver and get ready; desc may be null for all defaults
    Opens no context and uses no device memory yet: a device is opened when it is first used.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (set up already, contradictory desc), LIBRARY (no driver; the message lists every place that was
    tried), DEVICE (no such device), IO and FORMAT (of the bundle; the record), MEMORY.
    Ownership: desc and its strings are copied, desc->bundle is not.
    Threads: one thread, before the others use Ignis. */
IGNIS_API ignis_status ignis_setup(const ignis_desc *desc);

/*  ignis_shutdown - free everything that Ignis holds, after reporting what is still alive: arrays, tensors, kernels, graphs, optimizers, channels
    It is said to the logger, a line each up to 20; of kernels with the file of their source, or the caller's line (ignis_call_site).
    Handles from before stay stale for ever, also after another ignis_setup. Without a setup it does nothing.
    Returns: IGNIS_OK, or the first driver error met on the way; everything is released all the same.
    Errors: CUDA, ARGUMENT (inside a function that ignis_backward, ignis_checkpoint or ignis_gradcheck runs: nothing is freed then).
    Ownership: wrapped memory and streams stay the caller's.
    Threads: one thread, when no other is inside an Ignis call. Waits for all devices that were used. */
IGNIS_API ignis_status ignis_shutdown(void);

/*  ignis_version_string - IGNIS_VERSION_MAJOR, _MINOR and _PATCH as text
    Returns: a constant string.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_version_string(void);

/*  ignis_call_site - say where in the caller's code the calling thread is, for ignis_memory_rows and what is made of them
    It holds until the next one. With IGNIS_TRACE_CALLS defined before the #include, calls that make something say it themselves.
    Returns: nothing.
    Errors: none.
    Ownership: file is a constant string, such as __FILE__.
    Threads: any; each has its own. */
IGNIS_API void ignis_call_site(const char *file, int line);

/*  ignis_library_query - load a library if it is not loaded, and say which file it came from
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, LIBRARY (missing; the message lists every place that was tried).
    Ownership: info->path lives until ignis_shutdown.
    Threads: any. */
IGNIS_API ignis_status ignis_library_query(ignis_library library, ignis_library_info *info);

/* >>device ------------------------------------------------------------------------------------------------------ */

#define IGNIS_MAX_DEVICES 64 /* that a process can use */

typedef struct ignis_device_info {
    int device; /* Ignis' and the driver's ordinal */
    char name[128];
    unsigned char uuid[16];
    char pci_bus_id[16]; /* "0000:1b:00.0" */
    int compute_major, compute_minor;
    int multiprocessors;
    int warp_size; /* threads */
    int max_threads_per_block;
    int shared_per_block; /* bytes of shared memory that a block may ask for, the opt-in maximum */
    int64_t l2_bytes;
    int64_t memory_total;  /* bytes */
    int driver_version;    /* 1000 * major + 10 * minor, such as 13000 */
    unsigned char luid[8]; /* Windows: what Direct3D and Vulkan call the adapter; 0 elsewhere */
    unsigned node_mask;    /* Windows: which node of that adapter; 0: there is no luid */
} ignis_device_info;

/*  ignis_device_count - how many CUDA devices this process sees
    Returns: the count, 0 when there is none or on failure.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_device_count(void);

/*  ignis_device_query - facts about one device; opens no context
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, DEVICE (no such device).
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_device_query(int device, ignis_device_info *info);

/*  ignis_device_find - the device that another API calls by this UUID (16 bytes), or, on Windows, by this LUID (8 bytes)
    Vulkan has both in VkPhysicalDeviceIDProperties, Direct3D the LUID of its adapter. A null one does not matter.
    Returns: its ordinal, -1 on failure.
    Errors: ARGUMENT (both are null), DEVICE (there is no such device, or CUDA_VISIBLE_DEVICES hides it), CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_device_find(const void *uuid, const void *luid);

/*  ignis_device_use - make a device the calling thread's current one, and open it if need be
    Afterwards its primary context is current in this thread, for cudart code too.
    Returns: IGNIS_OK, or the reason.
    Errors: DEVICE (no such device, or all lost to a fault), MEMORY, CUDA.
    Ownership: Ignis holds the primary context until ignis_shutdown.
    Threads: any; each has its own current device. */
IGNIS_API ignis_status ignis_device_use(int device);

/*  ignis_device_current - the calling thread's current device
    Returns: its ordinal, -1 before ignis_setup.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; each has its own. */
IGNIS_API int ignis_device_current(void);

/* >>stream ------------------------------------------------------------------------------------------------------ */

/*  ignis_stream_use - put the calling thread's work on the current device into the caller's cudaStream_t or CUstream
    null goes back to Ignis' own stream, which is a blocking one: ordered with the legacy default stream of cudart code. cudaStreamLegacy is
    accepted. cudaStreamPerThread is not, as it is one handle of as many streams as there are threads; in a program compiled with
    --default-stream per-thread, which makes that the default one of cudart calls, give each thread that uses Ignis a stream of cudaStreamCreate.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (the stream is of another device, or the per-thread one), UNSUPPORTED (it is that of a capture), CUDA.
    Ownership: the stream stays the caller's; call ignis_stream_forget before destroying it.
    Threads: any; each has its own current stream per device. */
IGNIS_API ignis_status ignis_stream_use(void *stream);

/*  ignis_stream_current - the stream that the calling thread's work on the current device goes to
    Returns: a CUstream (also a cudaStream_t), null on failure.
    Errors: NOT_SETUP, DEVICE, CUDA.
    Ownership: stays where it was.
    Threads: any; each has its own. */
IGNIS_API void *ignis_stream_current(void);

/*  ignis_stream_forget - before the caller destroys a stream: wait for its work, and stop using it
    Memory of arrays made on it moves to Ignis' own stream; a thread that has it as its current stream goes back to that one
    at its next call.
    Returns: IGNIS_OK; also for a stream that Ignis never saw.
    Errors: ARGUMENT (null, or one of ignis_stream_create, which ignis_stream_free forgets), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the stream stays the caller's.
    Threads: any. Waits for the stream. */
IGNIS_API ignis_status ignis_stream_forget(void *stream);

typedef struct ignis_stream_desc {
    int priority; /* above 0: the device prefers its work, the more the higher, as far as it tells priorities apart (0, as other streams) */
} ignis_stream_desc;

/*  ignis_stream_create - a new stream of the current device, for ignis_stream_use and ignis_array_desc.stream; desc may be null
    It is ordered with no other stream (cudaStreamNonBlocking). Making one takes the driver some time: make streams when a program starts.
    Returns: a CUstream (also a cudaStream_t), null on failure.
    Errors: DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_stream_free; ignis_shutdown reports and frees those that are left.
    Threads: any. */
IGNIS_API void *ignis_stream_create(const ignis_stream_desc *desc);

/*  ignis_stream_free - forget a stream of ignis_stream_create, as by ignis_stream_forget, and destroy it
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (not one of ignis_stream_create, or freed already), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the address means nothing afterwards, and may be that of a later stream.
    Threads: any. Waits for the stream. */
IGNIS_API ignis_status ignis_stream_free(void *stream);

/*  ignis_stream_query - whether all work that was put into a stream is done; null for the calling thread's current one
    Returns: IGNIS_OK, and *done; or what the work failed with.
    Errors: ARGUMENT (null done, no stream of this device), UNSUPPORTED (it is captured), DEVICE, CUDA.
    Ownership: nothing to free.
    Threads: any. Does not wait. */
IGNIS_API ignis_status ignis_stream_query(void *stream, bool *done);

/*  ignis_stream_wait - let what is put into a stream from now on begin when all is done that another one has so far
    ignis_stream_wait_event - the same for what the other one had when the event was recorded; at once for one that never was
    null for the calling thread's current stream. The streams may be of different devices. In a capture a stream that waits for the one that
    is captured becomes part of the graph, too, and the captured one has to wait for it before ignis_graph_end; Ignis itself still puts
    its work into the captured one alone. What is outside of the capture cannot be waited for in it.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (no stream of this device), FREED, UNSUPPORTED (one of the two belongs to a capture that the other cannot join),
    DEVICE, CUDA.
    Ownership: unchanged; the event may be recorded again, or freed, at once.
    Threads: any. The calling thread does not wait. */
IGNIS_API ignis_status ignis_stream_wait(void *stream, void *other);
IGNIS_API ignis_status ignis_stream_wait_event(void *stream, ignis_event event);

/*  ignis_stream_call - call a function of the program once all is done that a stream has so far
    It runs on a thread of the driver, and what is put into the stream later begins when it has returned: so it sets a flag or wakes a
    thread. It must not wait for work of the device, nor call CUDA or Ignis: calls of Ignis inside it fail with IGNIS_DIAG_INSIDE_CALLBACK.
    In a capture it becomes part of the graph, and is called at each launch. After a fault of the device it is not called any more.
    null for the calling thread's current stream.
    Returns: IGNIS_OK, or the reason; then it is not called.
    Errors: ARGUMENT (null fn, no stream of this device), UNSUPPORTED (another thread captures the stream), MEMORY, DEVICE, CUDA.
    Ownership: user_data lives until the call; in a capture until the graph is freed.
    Threads: any. Streams: queued on the one given. */
IGNIS_API ignis_status ignis_stream_call(void *stream, void (*fn)(void *user_data), void *user_data);

/*  ignis_event_create - a point in the work of the current device's streams, that can be waited for and timed
    Returns: the event, never recorded; or no handle.
    Errors: DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_event_free.
    Threads: any. */
IGNIS_API ignis_event ignis_event_create(void);

/*  ignis_event_record - put an event behind all that a stream has so far; null for the calling thread's current stream
    Recording it again moves it. In a capture it is a point of the graph: ignis_stream_wait_event alone can use it then, until it is
    recorded anew.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no stream of this device), DEVICE (a stream of another device than the event), UNSUPPORTED (another thread captures
    the stream), CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the one given. */
IGNIS_API ignis_status ignis_event_record(ignis_event event, void *stream);

/*  ignis_event_query - whether the work before an event is done; ignis_event_wait - wait until it is
    An event that was never recorded is done.
    Returns: IGNIS_OK, and *done; or what the work failed with.
    Errors: FREED, ARGUMENT (null done), UNSUPPORTED (it was recorded in a capture), DEVICE, CUDA.
    Ownership: unchanged.
    Threads: any. ignis_event_wait waits; nobody may record the event in a capture meanwhile. */
IGNIS_API ignis_status ignis_event_query(ignis_event event, bool *done);
IGNIS_API ignis_status ignis_event_wait(ignis_event event);

/*  ignis_event_elapsed_ms - the time between two events of one device, in milliseconds, to about half a microsecond
    The driver gives it as a float: of more than ten seconds it is one part in 16 million that it is exact to.
    Returns: IGNIS_OK, and *ms.
    Errors: FREED, ARGUMENT (null ms; an event was never recorded, or is not done), UNSUPPORTED (recorded in a capture), DEVICE, CUDA.
    Ownership: unchanged.
    Threads: any. Does not wait. */
IGNIS_API ignis_status ignis_event_elapsed_ms(ignis_event first, ignis_event last, double *ms);

/*  ignis_event_free - free an event
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second free).
    Ownership: the handle is stale afterwards; streams that wait for it go on waiting.
    Threads: any. */
IGNIS_API ignis_status ignis_event_free(ignis_event event);

/*  ignis_synchronize - wait until all work on the current device is done, and report what failed meanwhile
    Returns: IGNIS_OK, or the failure of an earlier kernel or copy.
    Errors: DEVICE (the devices were lost to a fault), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: nothing to free.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_synchronize(void);

/* >>memory ------------------------------------------------------------------------------------------------------ */

/*  All sizes in bytes. "reserved" is what Ignis holds of the driver, "live" what arrays use of it. */
typedef struct ignis_memory_info {
    int64_t device_total, device_free; /* as the driver says, all processes together */
    int64_t live_bytes, live_peak;
    int64_t reserved_bytes, reserved_peak;
    int64_t live_blocks;
    int64_t segments;                /* driver allocations held */
    int64_t largest_free;            /* the largest block that the cache could hand out */
    int64_t allocations, cache_hits; /* requests since setup, and how many needed no driver call */
    int64_t driver_allocations, driver_frees;
    int64_t limit;        /* ignis_desc.memory_limit; 0: none */
    int64_t pinned_bytes; /* pinned host memory, of all devices together */
    int64_t vmm_bytes;    /* physical memory of ignis_collective.h, beside what is reserved: see ON VIRTUAL MEMORY there */
} ignis_memory_info;

/*  ignis_memory_query - what Ignis holds of a device's memory, and what the device has
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, DEVICE, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_memory_query(int device, ignis_memory_info *info);

/*  Memory by what it was taken for. */
typedef struct ignis_memory_row {
    char tag[32];       /* of the array; "": it has none, or it is memory that an operation works with */
    const char *call;   /* the function that made it, */
    const char *inside; /* and the one that has run that, such as "ignis_backward"; "" */
    const char *file;   /* where the caller's code called it, if compiled with IGNIS_TRACE_CALLS; "" */
    int line;
    int64_t live_bytes, live_blocks;
    int64_t peak_bytes; /* that it had when live_bytes of the device was at its peak; 0 without ignis_desc.trace_memory */
} ignis_memory_row;

/*  ignis_memory_rows - what a device's memory is used for: by tag, function and place in the caller's code, the most at the peak first
    With ignis_desc.trace_memory, and in a dry run, rows stay when their memory is freed, and say what they had at the peak; else there are those
    alone that live. Bytes are those of blocks, which are rounded up to 512. rows may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT, DEVICE, MEMORY.
    Ownership: rows are copies; their strings are constant.
    Threads: any. */
IGNIS_API int ignis_memory_rows(int device, ignis_memory_row *rows, int capacity);

/*  ignis_memory_trim - give cached memory that no array uses back to the driver, and pinned memory that was kept for the next file that is read
    With several devices in use, what a file is read through is kept: to free pinned memory CUDA waits for all of them.
    Returns: the number of bytes of the device that were given back, -1 on failure.
    Errors: DEVICE, UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: live arrays are not touched.
    Threads: any. May wait for the device, and for all others. */
IGNIS_API int64_t ignis_memory_trim(int device);

/*  ignis_host_alloc - pinned (page-locked) host memory, which every device copies to and from while the program goes on
    Takes the system a while: allocate when a program starts. Its content is undefined.
    Returns: the address, null on failure.
    Errors: ARGUMENT (size below 1), DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_host_free; ignis_shutdown reports and frees what is left.
    Threads: any. */
IGNIS_API void *ignis_host_alloc(int64_t size);

/*  ignis_host_free - free memory of ignis_host_alloc; null does nothing
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (not an address that ignis_host_alloc gave, or freed already), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the memory is gone when the call returns.
    Threads: any. Waits for the device, as copies may still use it, and as CUDA does for all others. */
IGNIS_API ignis_status ignis_host_free(void *memory);

/* >>array ------------------------------------------------------------------------------------------------------- */

#define IGNIS_MAX_DIMS 8 /* of a shape */

/*  The dimensions of an array: IGNIS_SHAPE(rows, columns). Elements are in row-major order, the last dimension is contiguous. */
typedef struct ignis_shape {
    int ndim;
    int64_t dim[IGNIS_MAX_DIMS];
} ignis_shape;

/*  IGNIS_DTYPES - every element type, as X(enumerator suffix, lower-case name, bytes). Those of 8 bits are of the OCP 8-bit Floating Point
    Specification (2023): e4m3 has 4 bits of exponent, 3 of fraction and no infinities, e5m2 5 and 2. Arrays, their operations, formulas and what
    moves elements take them; operations of networks do not. */
#define IGNIS_DTYPES(X)    \
    X(F16, f16, 2)         \
    X(BF16, bf16, 2)       \
    X(F32, f32, 4)         \
    X(F64, f64, 8)         \
    X(I32, i32, 4)         \
    X(I64, i64, 8)         \
    X(U8, u8, 1)           \
    X(F8_E4M3, f8_e4m3, 1) \
    X(F8_E5M2, f8_e5m2, 1)

typedef enum ignis_dtype {
    IGNIS_DTYPE_DEFAULT = 0, /* IGNIS_F32 */
#define IGNIS__DTYPE_ENUM(NAME, name, size) IGNIS_##NAME,
    IGNIS_DTYPES(IGNIS__DTYPE_ENUM)
#undef IGNIS__DTYPE_ENUM
        IGNIS_DTYPE_COUNT
} ignis_dtype;

/*  Who may free an array or move its ownership: Ignis itself, the collective layer, the storage layer. */
typedef enum ignis_owner {
    IGNIS_OWNER_DEFAULT = 0, /* in option structs: IGNIS_OWNER_IGNIS */
    IGNIS_OWNER_IGNIS,
    IGNIS_OWNER_NVCCL,
    IGNIS_OWNER_WNAIS,
    IGNIS_OWNER_COUNT
} ignis_owner;

/*  Names device 0 in an option struct while another device is current. */
#define IGNIS_DEVICE_0 (-1)

typedef struct ignis_array_desc {
    ignis_shape shape; /* required: IGNIS_SHAPE(rows, columns) */
    ignis_dtype dtype; /* IGNIS_F32 */
    int device;        /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    ignis_owner owner; /* IGNIS_OWNER_IGNIS */
    void *stream;      /* stream in whose order its memory is taken and given back (the current stream at its first use) */
    void *ptr;         /* device memory to wrap, never freed by Ignis (its own memory, allocated at the first use) */
    void (*release_fn)(void *ptr, void *user_data); /* with ptr: called once, when the last array over it is gone and its work is done */
    void *release_data;
    const char *tag; /* a name for messages and audits; copied, the first 31 bytes count ("") */
} ignis_array_desc;

typedef struct ignis_array_info {
    uint64_t id; /* counts up from 1 within the process, never used twice */
    ignis_shape shape;
    ignis_dtype dtype;
    int device;
    ignis_owner owner;
    int ref_count;
    void *stream;          /* null until memory is allocated, unless the desc named one */
    void *ptr;             /* device memory; null until it is allocated. The caller may write there, so the array counts as written */
    void *pinned_host_ptr; /* null unless ignis_array_pin was called */
    int64_t created_at_ns; /* nanoseconds since 1970-01-01 UTC, exact to a few milliseconds */
    bool owns_memory;      /* false for views and wrapped memory */
    bool on_device;        /* device memory is allocated */
    uint64_t parent;       /* info.id of the array it is a view of; 0: none */
    char tag[32];
    uint64_t version; /* of its memory: how often it was written to, as far as Ignis knows (see ignis_array_mark_written) */
} ignis_array_info;

/*  ignis_dtype_name - "f32" for IGNIS_F32; ignis_owner_name - "nvccl" for IGNIS_OWNER_NVCCL
    IGNIS_DTYPE_DEFAULT and IGNIS_OWNER_DEFAULT have the names of what they stand for.
    Returns: a constant string, "unknown dtype" or "unknown owner" for a number that is none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_dtype_name(ignis_dtype dtype);
IGNIS_API const char *ignis_owner_name(ignis_owner owner);

/*  ignis_dtype_size - the bytes of an element of a dtype; IGNIS_DTYPE_DEFAULT is IGNIS_F32
    Returns: 1, 2, 4 or 8; 0 for a number that is no dtype.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_dtype_size(ignis_dtype dtype);

/*  ignis_array_create - a new array, or one that wraps memory of the caller
    Shape: 1 to 8 dimensions, each 0 or more; numel and bytes must fit 63 bits. No device memory is taken until the
    array is first used; reading it is an error until it is written. Wrapped memory counts as written.
    Returns: the array, or no handle.
    Errors: ARGUMENT (also for a desc.ptr that is not device memory, or in an allocation that ends before the array), SHAPE, DEVICE,
    UNSUPPORTED (desc.stream is that of a capture), MEMORY.
    Ownership: the caller frees it with ignis_array_free. Wrapped memory stays the caller's and must outlive the array.
    Threads: any. */
IGNIS_API ignis_array ignis_array_create(const ignis_array_desc *desc);

/*  ignis_array_free - free an array as IGNIS_OWNER_IGNIS; ignis_array_free_as - free it as the owner named
    The memory goes back in stream order once its last view is freed too; pinned host memory goes at once, as by ignis_array_unpin.
    Returns: IGNIS_OK, or why the array was left as it is.
    Errors: FREED (also for a second free), CONTRACT (another owner, or ref_count above 0; the message says who holds references).
    Ownership: the handle is stale afterwards; views of the array stay valid.
    Threads: any; waits while the system ends a process that had the array by IPC, for 5 s at most. Streams: work that is queued on the array
    still finishes first. */
IGNIS_API ignis_status ignis_array_free(ignis_array array);
IGNIS_API ignis_status ignis_array_free_as(ignis_array array, ignis_owner owner);

/*  ignis_array_is_live - whether the handle names an array that was not freed
    Returns: true or false.
    Errors: none.
    Ownership: nothing to free.
    Threads: any; another thread may free it the moment after. */
IGNIS_API bool ignis_array_is_live(ignis_array array);

/*  ignis_array_query - every attribute of an array
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: pointers in info live as long as the array's memory.
    Threads: any. */
IGNIS_API ignis_status ignis_array_query(ignis_array array, ignis_array_info *info);

/*  ignis_array_numel - number of elements; ignis_array_size_bytes - bytes of all elements
    Returns: the number, -1 on failure.
    Errors: FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int64_t ignis_array_numel(ignis_array array);
IGNIS_API int64_t ignis_array_size_bytes(ignis_array array);

/*  ignis_array_to_string - "array #7 [2, 3] f32 on device 0, owner ignis, ref_count 0, 'weights'"
    A stale handle gives "array #7 'weights', freed", or "array handle 0x... (freed)" once its slot has been used and freed again.
    Returns: the length of the whole text without its end, as snprintf does; out may be null when capacity is 0.
    Errors: ARGUMENT.
    Ownership: the text is written to out, cut to capacity - 1 bytes and always ended.
    Threads: any. */
IGNIS_API int ignis_array_to_string(ignis_array array, char *out, size_t capacity);

/*  ignis_array_to_device - allocate the array's device memory now, if it is not
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, MEMORY, CUDA.
    Ownership: the memory is the array's.
    Threads: any. */
IGNIS_API ignis_status ignis_array_to_device(ignis_array array);

/*  ignis_array_device_ptr - the address of the array's first element, after ignis_array_to_device
    Returns: a device pointer (CUdeviceptr), null on failure and for an array of no elements.
    Errors: FREED, MEMORY, CUDA.
    Ownership: the array's; valid until the array and its views are freed. Work that the caller queues with the pointer
    on another stream than the array's has to be finished, or ordered before the array's stream, when the array is freed.
    Threads: any. */
IGNIS_API void *ignis_array_device_ptr(ignis_array array);

/*  ignis_array_mark_written - say that the caller's code has written, or is about to write, to an array
    Counts as a write in the array's version, so that a backward that needs the old content fails instead of giving a wrong gradient. For
    what Ignis cannot see: kernels of the caller that change an array in place, and code that has its address. Inside a capture it is said of each
    launch of the graph.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED; inside a capture MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_array_mark_written(ignis_array array);

/*  ignis_array_zero - set every byte to zero
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_zero(ignis_array array);

/*  ignis_array_from_host - copy count elements of type dtype from the host, converting to the array's type
    Conversion: to a floating type rounds to nearest even, keeps NaN, infinities and signed zeros, overflows to infinity. Floating types
    of 8 bits saturate, at 448 (e4m3) and 57344 (e5m2), infinities too. To an integer type rounds toward zero and saturates; NaN becomes 0.
    0 for dtype means the array's own.
    Returns: IGNIS_OK, or the reason; on failure the array's content is undefined.
    Errors: FREED, ARGUMENT (null data, count is not numel, no such dtype), MEMORY, CUDA.
    Ownership: data may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_from_host(ignis_array array, const void *data, ignis_dtype dtype, int64_t count);

/*  ignis_array_from_host_raw - copy the array's exact bytes from the host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null bytes, size is not size_bytes), MEMORY, CUDA.
    Ownership: bytes may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_from_host_raw(ignis_array array, const void *bytes, int64_t size);

/*  ignis_array_to_host - copy all elements to the host, converting to dtype by the rules of ignis_array_from_host
    Returns: IGNIS_OK, or the reason; on failure the content of out is undefined.
    Errors: FREED, ARGUMENT (null out, count is not numel, no such dtype, the array was never written to), MEMORY, CUDA.
    Ownership: out is the caller's.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_array_to_host(ignis_array array, void *out, ignis_dtype dtype, int64_t count);

/*  ignis_array_to_host_raw - copy the array's exact bytes to the host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null out, size is not size_bytes, the array was never written to), CUDA.
    Ownership: out is the caller's.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_array_to_host_raw(ignis_array array, void *out, int64_t size);

/*  ignis_array_to_host_async, ignis_array_from_host_async - as ignis_array_to_host and _from_host, but the call does not wait
    The copy has its place in the order of the stream: what is written to the array later on that stream is not seen by it. The array may be
    freed at once. The host memory must live, and be left alone, until the ticket is done. Pinned memory (ignis_host_alloc, ignis_array_pin,
    cudaMallocHost) of the array's own type is copied directly. Other memory goes through pieces of pinned memory that Ignis keeps, and a
    thread of the driver, which copies or converts them: then later work of the stream waits for that thread, too.
    Returns: a ticket for ignis_ticket_wait, or no handle.
    Errors: FREED, ARGUMENT (null memory, count is not numel, no such dtype, the array was never written to), UNSUPPORTED (this thread
    captures a graph), MEMORY, CUDA. What fails later is reported by ignis_ticket_wait.
    Ownership: the caller ends the ticket by ignis_ticket_wait; out and data stay the caller's.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_ticket ignis_array_to_host_async(ignis_array array, void *out, ignis_dtype dtype, int64_t count);
IGNIS_API ignis_ticket ignis_array_from_host_async(ignis_array array, const void *data, ignis_dtype dtype, int64_t count);

/*  ignis_ticket_query - whether what a ticket stands for is through, well or not
    Returns: IGNIS_OK, and *done; the ticket stays.
    Errors: FREED, ARGUMENT (null done).
    Ownership: unchanged.
    Threads: any. Does not wait. */
IGNIS_API ignis_status ignis_ticket_query(ignis_ticket ticket, bool *done);

/*  ignis_ticket_wait - wait for what a ticket stands for, and end the ticket
    ignis_shutdown waits for tickets that are left, and reports them.
    Returns: IGNIS_OK, or what it failed with.
    Errors: FREED, DEVICE (the devices were lost to a fault), CUDA, and those of the work itself.
    Ownership: the handle is stale afterwards, also after a failure; the host memory is the caller's alone again.
    Threads: any; several that wait at the same time all get the answer. Waits. */
IGNIS_API ignis_status ignis_ticket_wait(ignis_ticket ticket);

/*  ignis_array_clone - a copy that shares no memory with the array
    Returns: a new array of the same shape, dtype, device, owner and tag; or no handle.
    Errors: FREED, ARGUMENT (the array was never written to), MEMORY, CUDA.
    Ownership: the caller frees it.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_array ignis_array_clone(ignis_array array);

/*  ignis_array_slice - elements [start, start + len) along dimension dim, as a view of the same memory
    Only contiguous slices can be views: dim 0, or a dim with nothing but 1s before it.
    Returns: the view, with the array's owner and tag; or no handle.
    Errors: FREED, SHAPE (dim or range outside the shape, or a strided slice).
    Ownership: the caller frees it; it keeps the memory alive after the array itself is freed.
    Threads: any. */
IGNIS_API ignis_array ignis_array_slice(ignis_array array, int dim, int64_t start, int64_t len);

/*  ignis_array_reshape - the same elements under another shape, as a view of the same memory
    One dimension of the new shape may be -1: it becomes what is left over.
    Returns: the view, with the array's owner and tag; or no handle.
    Errors: FREED, SHAPE (numel differs, or more than one -1).
    Ownership: the caller frees it; it keeps the memory alive after the array itself is freed.
    Threads: any. */
IGNIS_API ignis_array ignis_array_reshape(ignis_array array, ignis_shape shape);

/*  ignis_array_write_rows - copy all of src into dst from row start_row on
    Shapes: dst [rows, ...], src [r, ...] of the same dtype; src must be whole rows: its bytes divide by those of a row of dst.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, DTYPE, SHAPE (not whole rows, or beyond the last row), DEVICE (different devices), ARGUMENT (src was never written to, or
    overlaps those rows in part), CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_write_rows(ignis_array dst, ignis_array src, int64_t start_row);

/*  ignis_array_pin - allocate pinned (page-locked) host memory of the array's size, for staging
    Returns: the host address, null on failure (and for an array of no elements).
    Errors: FREED, CONTRACT (pinned already), MEMORY.
    Ownership: the array's; freed by ignis_array_unpin or with the array.
    Threads: any. */
IGNIS_API void *ignis_array_pin(ignis_array array);

/*  ignis_array_unpin - free the pinned host memory, as IGNIS_OWNER_IGNIS
    Pinned memory belongs to Ignis whoever owns the array; a layer that owns the array may be staging through it, so it is not freed then.
    Returns: IGNIS_OK, or why it was left as it is.
    Errors: FREED, CONTRACT (not pinned, or another layer owns the array), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the address of ignis_array_pin is invalid afterwards.
    Threads: any. Waits for the device, as copies may still use it, and as CUDA does for all others. */
IGNIS_API ignis_status ignis_array_unpin(ignis_array array);

/*  ignis_array_increment_ref, ignis_array_decrement_ref - take a reference to an array, and give it back
    While ref_count is above 0 the array cannot be freed; above 1 its ownership cannot move.
    Returns: the new ref_count, -1 on failure.
    Errors: FREED, CONTRACT (decrement at 0).
    Ownership: the caller gives back every reference that it takes.
    Threads: any. */
IGNIS_API int ignis_array_increment_ref(ignis_array array);
IGNIS_API int ignis_array_decrement_ref(ignis_array array);

/*  ignis_array_transfer_ownership - make owner the array's owner, whoever owns it now
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (ref_count above 1).
    Ownership: only owner may free the array afterwards.
    Threads: any; waits as ignis_array_free does. */
IGNIS_API ignis_status ignis_array_transfer_ownership(ignis_array array, ignis_owner owner);

/* >>elementwise ------------------------------------------------------------------------------------------------- */

/*  ignis_array_fill - set every element to value, converted by the rules of ignis_array_from_host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_fill(ignis_array array, double value);

/*  ignis_array_copy - copy all elements of src into dst, converting by the rules of ignis_array_from_host
    Shapes: equal numel. dst and src may be on different devices when their dtypes are equal. They must be the same memory or apart.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DEVICE, ARGUMENT (src was never written to, or overlaps dst in part), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of dst's device, after the work queued on that of src's. */
IGNIS_API ignis_status ignis_array_copy(ignis_array dst, ignis_array src);

/*  ignis_array_cast - a new array of another element type with the same elements
    Returns: the new array, with the array's shape, device, owner and tag; or no handle.
    Errors: FREED, ARGUMENT, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: the caller frees it.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_array ignis_array_cast(ignis_array array, ignis_dtype dtype);

/*  ignis_array_add - dst = a + b; ignis_array_mul - dst = a * b, element by element
    Shapes: equal numel; one dtype. f16 and bf16 are computed in f32 and rounded once; integers wrap around. dst may be a or b, but
    not overlap them in part.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (a or b was never written to, or overlaps dst in part), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_add(ignis_array dst, ignis_array a, ignis_array b);
IGNIS_API ignis_status ignis_array_mul(ignis_array dst, ignis_array a, ignis_array b);

/*  ignis_array_scale - dst = src * factor, element by element
    Shapes: equal numel; one dtype. f16, bf16 and f32 are computed in f32 with the factor rounded to f32; integers are computed in f64
    and converted by the rules of ignis_array_from_host. dst may be src, but not overlap it in part.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (src was never written to, or overlaps dst in part), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_scale(ignis_array dst, ignis_array src, double factor);

#ifndef IGNIS_NO_TENSORS

/* >>map --------------------------------------------------------------------------------------------------------- */

#define IGNIS_MAX_INPUTS 16 /* of a formula */

/*  The named inputs of a formula: IGNIS_ARRAYS(x, y, IGNIS_ARRAY_VALUE(a, 2.5)) makes them. */
typedef struct ignis_array_inputs {
    const char *names;                   /* separated by commas: "x, y, a". In place of a name may stand MACRO(name, anything) */
    int count;                           /* 1 to IGNIS_MAX_INPUTS */
    ignis_array array[IGNIS_MAX_INPUTS]; /* arrays, and what ignis_array_value has given */
} ignis_array_inputs;

/*  ignis_array_map - dst = a formula of arrays, element by element, in one pass: see ON FORMULAS
    ignis_array_map(y, "a*x + y", IGNIS_ARRAYS(x, y, IGNIS_ARRAY_VALUE(a, 2.0)))
    Shapes: inputs spread over each other by NumPy's rules, up to 8 dimensions; dst has as many elements as the result. Any dtypes: the
    result is converted to that of dst by the rules of ignis_array_from_host; f64 is computed in f64 (also where only dst is f64), all
    else in f32, integers as i64 as long as they meet no floating type. dst may be an input, but not one that is spread, nor overlap one
    in part.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (the formula, which the message has with the column; names; null; never written to; overlaps dst), SHAPE,
    DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_map(ignis_array dst, const char *formula, ignis_array_inputs inputs);

/*  ignis_array_map_many - several results of a formula of arrays, which are written apart by commas, in one pass
    ignis_array_map_many(2, (ignis_array[]){x, r}, "x + a*p, r - a*q", IGNIS_ARRAYS(x, r, p, q, IGNIS_ARRAY_VALUE(a, alpha)))
    Each is as in ignis_array_map, and may be an input: all are read before one is written. count is 1 to IGNIS_MAX_INPUTS.
    Returns: IGNIS_OK, or the reason.
    Errors: those of ignis_array_map; ARGUMENT (count, which is not that of the formula's results; two of them overlap).
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_map_many(int count, const ignis_array *results, const char *formula, ignis_array_inputs inputs);

/*  How many elements become one. Of argmax and argmin the first place counts. */
typedef enum ignis_reducer {
    IGNIS_REDUCE_SUM = 1,
    IGNIS_REDUCE_MEAN,
    IGNIS_REDUCE_PROD,
    IGNIS_REDUCE_MAX,
    IGNIS_REDUCE_MIN,
    IGNIS_REDUCE_ANY, /* whether one is true */
    IGNIS_REDUCE_ALL,
    IGNIS_REDUCE_ARGMAX, /* the place of the largest element in the dimensions that are reduced */
    IGNIS_REDUCE_ARGMIN,
    IGNIS_REDUCE_LOGSUMEXP, /* log of the sum of exp, which does not overflow */
    IGNIS_REDUCE_NORM,      /* root of the sum of squares, which do not overflow; its gradient at 0 is 0 */
    IGNIS_REDUCE_COUNT
} ignis_reducer;

/*  ignis_array_reduce - dst = the sum, the mean, the largest, ... of a formula of arrays, in one pass
    ignis_array_reduce(dot, IGNIS_REDUCE_SUM, "x*y", IGNIS_ARRAYS(x, y))
    Shapes: inputs spread over each other by NumPy's rules; dst spreads over what they give, and the formula is reduced where that has
    more elements: dst of [1] is for all elements, [rows, 1] for each row, [cols] or [1, cols] for each column. Dtypes as in
    ignis_array_map; sums are in f32 (f64 in f64, i64 of integers), in a fixed order. The mean of integers is that of their exact sum. NaN
    is the largest and the smallest number. The sum of nothing is 0, prod and all 1, the mean NaN.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such reducer; the formula; names; null; never written to; overlaps dst), SHAPE (dst does not spread over
    the formula; max, min, argmax or argmin of nothing; argmax or argmin along dimensions that are no neighbours), DEVICE, MEMORY,
    LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_reduce(ignis_array dst, ignis_reducer reducer, const char *formula, ignis_array_inputs inputs);

/*  ignis_array_value - a number as an input of ignis_array_map; IGNIS_ARRAY_VALUE(name, number) calls it
    Another number needs no other kernel, unlike another one in the text of a formula.
    Returns: something that stands for it among arrays, until the thread has made 64 more.
    Errors: none.
    Ownership: nothing to free.
    Threads: any; the calling thread's alone. */
IGNIS_API ignis_array ignis_array_value(double value);

#endif /* IGNIS_NO_TENSORS */

/* >>contract ---------------------------------------------------------------------------------------------------- */

typedef struct ignis_contract_entry {
    uint64_t array_id; /* ignis_array_info.id */
    ignis_owner owner; /* now, or when it was freed */
    int64_t age_ms;    /* since it was tracked */
    ignis_shape shape;
    ignis_dtype dtype;
    bool freed;
    char tag[32];
    int64_t bytes;
    int ref_count;
    int views;   /* other arrays that use the same memory */
    int exports; /* handles of it that other processes hold, or may still take up */
} ignis_contract_entry;

/*  ignis_contract_acquire - take the ownership of an array for a layer, before that layer works on it
    The array is tracked from then on.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (already owned by it, or ref_count above 1).
    Ownership: moves to by.
    Threads: any; acquisitions are one at a time. */
IGNIS_API ignis_status ignis_contract_acquire(ignis_array array, ignis_owner by);

/*  ignis_contract_release - give the ownership of an array back to IGNIS_OWNER_IGNIS
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (not owned by it, or ref_count above 1).
    Ownership: moves to IGNIS_OWNER_IGNIS.
    Threads: any; releases are one at a time. */
IGNIS_API ignis_status ignis_contract_release(ignis_array array, ignis_owner by);

/*  ignis_contract_assert_owner - check that an array is owned by the expected owner
    Returns: IGNIS_OK if it is.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (another owner).
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_contract_assert_owner(ignis_array array, ignis_owner owner);

/*  ignis_contract_track - list an array in the audit; ignis_contract_untrack - no longer, also after it was freed
    Tracking again starts its age anew. An array that was tracked by this call stays in the audit as freed until it is untracked;
    one that was only acquired leaves the audit when it is freed.
    Returns: IGNIS_OK, or the reason; untracking what is not tracked is fine.
    Errors: FREED (track), MEMORY.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_contract_track(ignis_array array);
IGNIS_API ignis_status ignis_contract_untrack(ignis_array array);

/*  ignis_contract_audit - list the tracked arrays older than min_age_ms milliseconds, oldest first
    0 means 5000, as only old arrays are likely leaks; a negative number lists all. entries may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT.
    Ownership: entries are copies.
    Threads: any. */
IGNIS_API int ignis_contract_audit(ignis_contract_entry *entries, int capacity, int64_t min_age_ms);

/*  ignis_contract_tracked_count - how many arrays are tracked
    Returns: the count, -1 on failure.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_contract_tracked_count(void);

/*  ignis_contract_reset - forget everything that is tracked; owners and arrays stay as they are
    Returns: IGNIS_OK.
    Errors: NOT_SETUP.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_contract_reset(void);

/* >>kernel ------------------------------------------------------------------------------------------------------ */

/*  A header in memory, for #include "name" in a kernel. */
typedef struct ignis_kernel_header {
    const char *name;
    const char *text;
} ignis_kernel_header;

typedef struct ignis_kernel_desc {
    const char *source; /* CUDA C++ text, unless there is an image; #include "ignis.cuh" gives it types and helpers of Ignis' kernels */
    const char *name;   /* the file name that compile errors show; files in its folder can be included ("kernel.cu") */
    const char *entry;  /* required: the __global__ function; a template instance or namespaced name is fine: "scale<float>";
                                   in an image as the image has it, mangled unless extern "C". Several of one program: "advance; count<int>",
                                   of which the handle launches the first, and ignis_kernel_entry gives the others */
    const char *const *options; /* NVRTC options such as "-DN=4", "-I/usr/local/cuda/include" (none) */
    int option_count;
    const ignis_kernel_header *headers; /* headers in memory, found before any file (none beside those of Ignis) */
    int header_count;
    const void *image; /* instead of source: what a compiler has made, a cubin, fatbin or PTX text; no options, no headers (none) */
    size_t image_size; /* bytes of it */
} ignis_kernel_desc;

typedef struct ignis_launch {
    int64_t grid[3];      /* blocks; y and z: 0 means 1. x = 0 runs nothing and succeeds, so empty arrays need no special case */
    int block[3];         /* threads, x required; y and z: 0 means 1 */
    int64_t shared_bytes; /* dynamic shared memory of a block, above 48 KB too (0) */
    bool dependent; /* the kernel may begin before what is ahead of it on the stream has ended, as it waits for that itself: all of its
                             threads call ignis_grid_dependency_wait, of ignis.cuh, before they touch what any other work touches. For compute
                             capability 9.0 and up with a driver of 12.3 and up; elsewhere it begins behind the others, as without (false) */
    bool
        cooperative; /* all blocks run at once, so that they may wait for each other: no more of them than ignis_kernel_occupancy says. Needs
                             a driver of 12.3 and up (false) */
} ignis_launch;

/*  What kind of argument an ignis_arg is; set by ignis_arg_array and its like. */
typedef enum ignis_arg_type {
    IGNIS_ARG_ARRAY = 1,
    IGNIS_ARG_I32,
    IGNIS_ARG_I64,
    IGNIS_ARG_F32,
    IGNIS_ARG_F64,
    IGNIS_ARG_PTR,
    IGNIS_ARG_BYTES
} ignis_arg_type;

typedef struct ignis_arg {
    ignis_arg_type type;
    size_t size; /* of an IGNIS_ARG_BYTES */
    union {
        ignis_array array;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
        void *ptr;
        const void *bytes;
    } value;
} ignis_arg;

typedef struct ignis_kernel_info {
    const char *entry; /* lives as long as the kernel */
    int parameters;    /* -1: the driver is older than 12.4 and does not tell */
    int registers;     /* per thread */
    int local_bytes;   /* per thread, where registers spill */
    int shared_bytes;  /* static, per block */
    int max_threads;   /* per block */
    bool from_cache;   /* true: no compiler ran for the device that is current */
} ignis_kernel_info;

/*  How many blocks of a kernel run at once. */
typedef struct ignis_occupancy {
    int block;  /* threads of a block */
    int blocks; /* of a multiprocessor */
    int grid;   /* of the device: the most that a cooperative launch may have */
} ignis_occupancy;

/*  ignis_kernel_compile - compile CUDA source for the current device, or take it from the cache
    The kernel runs on every device: on one of another architecture it is compiled again at its first launch there. With an image
    (ignis_kernel_desc.image) nothing is compiled: its tables are checked to lie inside of it, and the driver takes it or refuses it.
    Returns: the kernel, or no handle.
    Errors: ARGUMENT, LIBRARY (no NVRTC), COMPILE (the log is part of the message; or IGNIS_COMPILE_NEVER and no such program), FORMAT
    (the image, or the bundle, is damaged), UNSUPPORTED (the image is for other devices), DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_kernel_free. desc, its strings and the image are copied.
    Threads: any. */
IGNIS_API ignis_kernel ignis_kernel_compile(const ignis_kernel_desc *desc);

/*  ignis_kernel_launch - run a kernel on the current device
    args are the kernel's parameters in order; array arguments are checked, allocated if need be, and become pointers. Of parameters the driver
    tells sizes alone: an f64 array for a `float *`, or an i32 for a `float`, cannot be seen. Nor can whether a parameter is const, so a launch
    does not count as writing to an array that was written before: where it does, call ignis_array_mark_written.
    Returns: IGNIS_OK, or the reason. A fault inside the kernel shows at a later call.
    Errors: FREED, ARGUMENT (count, sizes, limits of the launch), DEVICE (an array of another device), MEMORY, CUDA.
    Ownership: unchanged; args may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_kernel_launch(ignis_kernel kernel, const ignis_launch *launch, const ignis_arg *args, int arg_count);

/*  ignis_kernel_query - registers, memory and limits of a kernel on the current device
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT, LIBRARY, COMPILE, CUDA.
    Ownership: info->entry lives as long as the kernel.
    Threads: any. */
IGNIS_API ignis_status ignis_kernel_query(ignis_kernel kernel, ignis_kernel_info *info);

/*  ignis_kernel_entry - another __global__ function of a kernel's program, as a handle of its own
    It shares the program: one compilation, and one set of variables on each device. entry is one of those that ignis_kernel_desc.entry names, or
    one that the program has under just this name, as it is extern "C". ignis_kernel_reload of any handle replaces the program of all.
    Returns: the kernel, or no handle.
    Errors: FREED, ARGUMENT, COMPILE (the program has no such entry), LIBRARY, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_kernel_free. The program lives as long as one of its handles does.
    Threads: any. */
IGNIS_API ignis_kernel ignis_kernel_entry(ignis_kernel kernel, const char *entry);

/*  ignis_kernel_occupancy - how many blocks of a kernel run at once on the current device; with a block of 0 threads, of which size
    block: threads of a block; 0: the size of which most threads run at once, and of several such the largest. shared_bytes: as in ignis_launch.
    Returns: IGNIS_OK, and *out filled. Its blocks are 0 where not even one fits.
    Errors: FREED, ARGUMENT (null, a block or shared_bytes outside the limits of device and kernel), LIBRARY, COMPILE, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_kernel_occupancy(ignis_kernel kernel, int block, int64_t shared_bytes, ignis_occupancy *out);

/*  ignis_kernel_set_symbol - write to a __constant__ or __device__ variable of a kernel's program, on the current device
    name: as in the source for a variable outside of namespaces, else its mangled name. size: all of its bytes. Each program that was compiled has
    variables of its own, on each device, with the values of the source at first; handles of ignis_kernel_entry share them.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null, no such variable, another size), LIBRARY, COMPILE, UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: data may be reused when the call returns.
    Threads: any. Streams: queued on the current stream: what other streams launch is not ordered with it. */
IGNIS_API ignis_status ignis_kernel_set_symbol(ignis_kernel kernel, const char *name, const void *data, int64_t size);

/*  ignis_kernel_get_symbol - read a __constant__ or __device__ variable of a kernel's program on the current device; see ignis_kernel_set_symbol
    Returns: IGNIS_OK, and data filled; zeros in a dry run.
    Errors: FREED, ARGUMENT (null, no such variable, another size), LIBRARY, COMPILE, UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: nothing to free.
    Threads: any. Streams: waits for the current one: what other streams write is not waited for. */
IGNIS_API ignis_status ignis_kernel_get_symbol(ignis_kernel kernel, const char *name, void *data, int64_t size);

/*  ignis_kernel_reload - compile another program in the background, and let a kernel be that one when it is ready
    Handles of ignis_kernel_entry for the same program take it, too: it has to have their entries, and names in desc those that are not extern "C".
    Launches go on with the old program meanwhile, and for ever if the new one does not compile: then the logger gets the compiler's log,
    and ignis_ticket_wait the failure. Threads may launch the kernel all the time; each launch, and each capture, takes what is the newest
    then. Variables of the new program (ignis_kernel_set_symbol) have the values of its source. Of several reloads the one that was asked for
    last wins.
    What was replaced stays loaded until the kernel is freed.
    Returns: a ticket for ignis_ticket_wait, or no handle.
    Errors: FREED, ARGUMENT, DEVICE, MEMORY. By ignis_ticket_wait: LIBRARY (no NVRTC), COMPILE, MEMORY, CUDA.
    Ownership: desc and its strings are copied. The caller ends the ticket by ignis_ticket_wait.
    Threads: any. Compiles on a thread of its own, for each device that the kernel was used on. */
IGNIS_API ignis_ticket ignis_kernel_reload(ignis_kernel kernel, const ignis_kernel_desc *desc);

/*  ignis_kernel_free - free a kernel
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures a graph).
    Ownership: the handle is stale afterwards; launches that are queued still run, and graphs that captured one keep the kernel.
    Threads: any. */
IGNIS_API ignis_status ignis_kernel_free(ignis_kernel kernel);

/*  ignis_arg_array, _i32, _i64, _f32, _f64, _ptr - one kernel argument; ignis_arg_bytes - a struct passed by value
    Returns: the argument.
    Errors: none here; ignis_kernel_launch checks.
    Ownership: borrows; bytes must live until ignis_kernel_launch returns.
    Threads: any. */
IGNIS_API ignis_arg ignis_arg_array(ignis_array array);
IGNIS_API ignis_arg ignis_arg_i32(int32_t value);
IGNIS_API ignis_arg ignis_arg_i64(int64_t value);
IGNIS_API ignis_arg ignis_arg_f32(float value);
IGNIS_API ignis_arg ignis_arg_f64(double value);
IGNIS_API ignis_arg ignis_arg_ptr(void *value);
IGNIS_API ignis_arg ignis_arg_bytes(const void *bytes, size_t size);

/*  ignis_warmup - compile Ignis' own kernels, and count kernels of the caller, ahead of their first use, on parallel threads
    descs may be null when count is 0. With IGNIS_COMPILE_NEVER, of Ignis' own those that the bundle has are loaded.
    Returns: IGNIS_OK, or the first failure; the others are compiled all the same.
    Errors: ARGUMENT, LIBRARY, COMPILE, DEVICE, MEMORY, CUDA.
    Ownership: everything goes to the caches; nothing to free.
    Threads: any. Waits for the compilers. */
IGNIS_API ignis_status ignis_warmup(const ignis_kernel_desc *descs, int count);

/*  ignis_warmup_record - compile all that an earlier run has asked for, in the background, ahead of its first use
    path: a record (ignis_desc.record, IGNIS_RECORD): of formulas and kernels in variants, of which ignis_warmup knows nothing, it is what
    tells dtypes, ranks and options. The programs in it that are for the current device are compiled on parallel threads, but for those that a
    bundle or a cache has, and go to the caches. What is used meanwhile is not compiled twice: its first use waits. A line that does not
    compile fails with its number in the message; the others are compiled all the same.
    Returns: a ticket for ignis_ticket_wait, or no handle.
    Errors: ARGUMENT, IO (no such file), FORMAT (a line is no line of a record, or of another version of Ignis), DEVICE, MEMORY. By
    ignis_ticket_wait: LIBRARY, COMPILE, MEMORY, CUDA, the first failure.
    Ownership: the file is read before the call returns. The caller ends the ticket by ignis_ticket_wait.
    Threads: any. Compiles on threads of its own. */
IGNIS_API ignis_ticket ignis_warmup_record(const char *path);

/*  What is in a bundle, and what of it the current device can use. */
typedef struct ignis_bundle_info {
    int version;            /* IGNIS_VERSION of the ignis_embed that made it */
    int64_t bytes;          /* of the bundle */
    int programs, images;   /* programs, and what they were compiled to: one for each architecture */
    int usable, missing;    /* programs that have an image for the device; that have none, and that it may ask for */
    char architectures[64]; /* "75 80 90a ptx75": a number with ptx before it stands for PTX */
} ignis_bundle_info;

/*  ignis_bundle_check - whether the bundle of ignis_setup is whole, of this version, and serves the current device; info may be null
    Unpacks each image and looks at it, which takes 15 ms for each megabyte that comes out; the driver is not asked. One failure names all that
    was found: another version of Ignis, other kernels than those of this program, images that are damaged, programs without an image for the
    device. What the program will ask for and nobody recorded it cannot know.
    Returns: IGNIS_OK, or the reason; *info is filled in both cases, unless there is no bundle.
    Errors: ARGUMENT (there is no bundle), FORMAT, MISMATCH, COMPILE (programs are missing), DEVICE, MEMORY.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_bundle_check(ignis_bundle_info *info);

#ifndef IGNIS_NO_TENSORS

/* >>tensor ------------------------------------------------------------------------------------------------------ */

/*  An array, its gradient, and its place on the tape. */
typedef struct ignis_tensor {
    uint64_t id;
} ignis_tensor;

/*  The tensors that a thread has made since ignis_scope_begin. */
typedef struct ignis_scope {
    uint64_t id;
} ignis_scope;

typedef struct ignis_tensor_desc {
    ignis_dtype dtype;      /* IGNIS_F32 */
    int device;             /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    bool requires_grad;     /* whether ignis_backward computes a gradient for it (false) */
    ignis_dtype host_dtype; /* of the data given to ignis_tensor_from_host (dtype, but f32 for f16 and bf16) */
    const char *tag;        /* as in ignis_array_desc */
    int64_t host_count;     /* elements that the data given to ignis_tensor_from_host has, which must be the shape's (0: not checked) */
} ignis_tensor_desc;

typedef struct ignis_tensor_info {
    ignis_shape shape;
    ignis_dtype dtype;
    int device;
    bool requires_grad;
    bool is_leaf; /* made by the caller, not by an operation on tensors that require a gradient */
    ignis_array data;
    ignis_array grad;      /* no handle until a gradient was computed */
    const char *operation; /* that recorded it on the tape; "" for none */
} ignis_tensor_info;

/*  ignis_tensor_from_host - a new tensor with the values at data
    Shape: as in ignis_array_create. data holds numel elements of desc->host_dtype; give their count as desc->host_count, so that a buffer
    which is too short for the shape is an error instead of being read beyond its end. desc may be null for all defaults.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (null data, host_count is not numel, no such dtype), SHAPE, DTYPE (a gradient of integers), DEVICE, MEMORY, CUDA.
    Ownership: the current scope's, else the caller's, who releases it with ignis_tensor_release; data may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tensor_from_host(const void *data, ignis_shape shape, const ignis_tensor_desc *desc);

/*  ignis_tensor_from_array - a tensor over the memory of an array
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE (a gradient of integers), MEMORY.
    Ownership: as ignis_tensor_from_host. The array stays the caller's; its memory lives until both are gone.
    Threads: any. */
IGNIS_API ignis_tensor ignis_tensor_from_array(ignis_array array, bool requires_grad);

/*  ignis_tensor_zeros, _ones, _rand, _randn - a new tensor of zeros, ones, uniform values in [0, 1), standard normal values
    Random values come from Philox 4x32-10 (Salmon et al., SC 2011) keyed by ignis_seed: the same seed and the same calls give the same
    values on every GPU and on the simulator, but for the last bit of a normal value's logarithm and cosine.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT, SHAPE, DTYPE (random or differentiable integers), DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any; each thread has its own sequence of random numbers. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tensor_zeros(ignis_shape shape, const ignis_tensor_desc *desc);
IGNIS_API ignis_tensor ignis_tensor_ones(ignis_shape shape, const ignis_tensor_desc *desc);
IGNIS_API ignis_tensor ignis_tensor_rand(ignis_shape shape, const ignis_tensor_desc *desc);
IGNIS_API ignis_tensor ignis_tensor_randn(ignis_shape shape, const ignis_tensor_desc *desc);

/*  ignis_tensor_arange - start, start + step, ... up to before end; ignis_tensor_linspace - count numbers at equal distances, start and end
    being the first and the last; ignis_tensor_eye - a matrix with ones on its diagonal. desc may be null for all defaults.
    Numbers are computed in double, and converted by the rules of ignis_array_from_host.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (a step that does not lead to end, a negative count), SHAPE, DTYPE (a gradient of integers), DEVICE, MEMORY, LIBRARY,
    COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tensor_arange(double start, double end, double step, const ignis_tensor_desc *desc);
IGNIS_API ignis_tensor ignis_tensor_linspace(double start, double end, int64_t count, const ignis_tensor_desc *desc);
IGNIS_API ignis_tensor ignis_tensor_eye(int64_t rows, int64_t columns, const ignis_tensor_desc *desc);

/*  ignis_seed - start the calling thread's sequence of random numbers anew (0 at ignis_setup)
    Returns: IGNIS_OK.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; each has its own sequence. */
IGNIS_API ignis_status ignis_seed(uint64_t seed);

/*  ignis_tensor_data - the array of a tensor's values; ignis_tensor_grad - the array of its gradient
    Returns: the array, or no handle (no gradient was computed yet: that is no failure).
    Errors: FREED.
    Ownership: the tensor's: it holds a reference, so ignis_array_free refuses. The gradient is accumulated by each ignis_backward until
    ignis_zero_grad, or a step of an optimizer with zero_grad or drop_grad.
    Threads: any. */
IGNIS_API ignis_array ignis_tensor_data(ignis_tensor tensor);
IGNIS_API ignis_array ignis_tensor_grad(ignis_tensor tensor);

/*  ignis_tensor_query - every attribute of a tensor
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: arrays in info are the tensor's.
    Threads: any. */
IGNIS_API ignis_status ignis_tensor_query(ignis_tensor tensor, ignis_tensor_info *info);

/*  ignis_tensor_shape, ignis_tensor_numel - the shape of a tensor, and how many elements it has
    Returns: the shape (ndim 0 on failure), the number (-1 on failure).
    Errors: FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_shape ignis_tensor_shape(ignis_tensor tensor);
IGNIS_API int64_t ignis_tensor_numel(ignis_tensor tensor);

/*  ignis_tensor_to_string - "tensor [2, 3] f32 on device 0, leaf, requires a gradient, 'weights'", or "..., result of matmul"
    A stale handle gives "tensor handle 0x... (freed)".
    Returns: the length of the whole text without its end, as snprintf does; out may be null when capacity is 0; -1 on failure.
    Errors: ARGUMENT.
    Ownership: the text is written to out, cut to capacity - 1 bytes and always ended.
    Threads: any. */
IGNIS_API int ignis_tensor_to_string(ignis_tensor tensor, char *out, size_t capacity);

/*  ignis_tensor_to_host - copy all elements to the host, converting to dtype, as ignis_array_to_host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null out, count is not numel, no such dtype), MEMORY, CUDA.
    Ownership: out is the caller's.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_tensor_to_host(ignis_tensor tensor, void *out, ignis_dtype dtype, int64_t count);

/*  ignis_item - the value of a tensor of one element; ignis_item_i64 - the value of one of integers, without rounding
    Returns: the value; on failure NaN, for ignis_item_i64 INT64_MIN.
    Errors: FREED, SHAPE (more or fewer elements), DTYPE (ignis_item_i64 of a tensor that is not of integers), ARGUMENT (never written to;
    ignis_item of an i64 that no double is equal to, which happens beyond 2^53), CUDA.
    Ownership: nothing to free.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API double ignis_item(ignis_tensor tensor);
IGNIS_API int64_t ignis_item_i64(ignis_tensor tensor);

/*  ignis_tensor_release - release a tensor's handle
    Memory that the tape needs for a gradient stays until ignis_backward or ignis_tape_clear.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: the handle is stale afterwards.
    Threads: any. */
IGNIS_API ignis_status ignis_tensor_release(ignis_tensor tensor);

/*  ignis_scope_begin - from here on, tensors that the calling thread makes belong to a new scope inside the current one
    Returns: the scope, or no handle.
    Errors: MEMORY.
    Ownership: end it with ignis_scope_end or ignis_scope_return.
    Threads: any; each has its own scopes. */
IGNIS_API ignis_scope ignis_scope_begin(void);

/*  ignis_scope_end - release every tensor of the scope that was not released yet
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (not the innermost open scope of this thread).
    Ownership: the tensors' handles are stale afterwards.
    Threads: the one that began the scope. */
IGNIS_API ignis_status ignis_scope_end(ignis_scope scope);

/*  ignis_scope_return - end the scope, and pass one of its tensors on to the enclosing scope, or to the caller where there is none
    Returns: the tensor, also when the scope could not be ended.
    Errors: ARGUMENT (not the innermost open scope of this thread).
    Ownership: as for a tensor made outside of the scope.
    Threads: the one that began the scope. */
IGNIS_API ignis_tensor ignis_scope_return(ignis_scope scope, ignis_tensor tensor);

/* >>tape -------------------------------------------------------------------------------------------------------- */

/*  What a backward function is given, and what it fills. */
typedef struct ignis_backward_args {
    ignis_array grad_output;  /* gradient of the output, in its shape and dtype; not to be written to */
    const ignis_array *saved; /* the memory of ignis_rule.saved, in order, by handles that are good until the function returns; not to be
                                 written to */
    int saved_count;
    const void *params; /* the copy of ignis_rule.params */
    int input_count;
    const bool *needed;       /* for each input, whether its gradient is wanted */
    ignis_array *grad_inputs; /* to be filled, for each needed input, with an array of its numel and dtype, which the tape takes
                                  over; may be grad_output, a saved array, or one array twice; no handle counts as zero */
    void *user_data;          /* ignis_rule.user_data */
} ignis_backward_args;

/*  How the gradient of an operation is computed. */
typedef struct ignis_rule {
    const char *name; /* a constant string: messages and graphs show it */
    ignis_status (*backward_fn)(const ignis_backward_args *args);
    const ignis_array *saved; /* arrays whose memory backward needs: that is kept, also when they are freed */
    int saved_count;
    const void *params; /* small values that backward needs, copied (none) */
    size_t params_size;
    void *user_data;
} ignis_rule;

/*  A function of tensors, for ignis_checkpoint and ignis_gradcheck. */
typedef ignis_tensor (*ignis_tensor_fn)(const ignis_tensor *inputs, int count, void *user_data);

typedef struct ignis_gradcheck_desc {
    double step;      /* of the finite differences, relative to max(1, |x|) (1e-5) */
    double tolerance; /* relative error that passes (1e-6) */
} ignis_gradcheck_desc;

/*  ignis_backward - compute the gradient of a tensor with regard to every leaf that requires one
    grad_output is the gradient of the tensor itself; IGNIS_NO_ARRAY means 1, for a tensor of one element. Gradients are added to those that
    leaves have; they are written once, at the end. Entries of the tape are freed as backward passes them: a second backward through them is an
    error (see ignis_backward_retain). After a failure they are freed too, and no leaf has changed.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (the tensor requires no gradient, has more than one element without grad_output, was walked already, or was
    recorded by another thread; an operation on the way saved an array that was written to since; a backward function of the caller failed
    without saying why), SHAPE, DTYPE, DEVICE, MEMORY, CUDA, and what backward functions fail with.
    Ownership: grad_output stays the caller's.
    Threads: the one that recorded it. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_backward(ignis_tensor tensor, ignis_array grad_output);

/*  ignis_backward_retain - ignis_backward that keeps the entries of the tape for another one (retain_graph in PyTorch)
    Each adds its gradients to those that the leaves have. What backward needs stays in memory until an ignis_backward passes it, or the tensors
    that were computed from it are released. Saved arrays must not change in between.
    Returns: IGNIS_OK, or the reason; what was recorded is kept either way.
    Errors: those of ignis_backward.
    Ownership: grad_output stays the caller's.
    Threads: the one that recorded it. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_backward_retain(ignis_tensor tensor, ignis_array grad_output);

/*  ignis_tensor_set_grad - copy an array's values into a tensor's gradient, whose memory is kept, or made where there is none
    IGNIS_NO_ARRAY drops the gradient: its memory is freed, and optimizers do not update the tensor, until another one is computed.
    Shapes: equal numel; the tensor's dtype and device.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (the tensor requires no gradient, as those of integers; grad was never written to; a parameter of
    data-parallel training, whose gradient cannot be dropped), MEMORY, CUDA.
    Ownership: grad stays the caller's.
    Threads: any, but a gradient is not dropped while another thread's optimizer makes a step with it. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_tensor_set_grad(ignis_tensor tensor, ignis_array grad);

/*  ignis_zero_grad - set a tensor's gradient to zero; its memory is kept, or made where there is none
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (the tensor requires no gradient), MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_zero_grad(ignis_tensor tensor);

/*  ignis_detach - a tensor over the same memory that is not on the tape and requires no gradient
    Returns: the tensor, or no handle.
    Errors: FREED, MEMORY.
    Ownership: as ignis_tensor_from_host.
    Threads: any. */
IGNIS_API ignis_tensor ignis_detach(ignis_tensor tensor);

/*  ignis_no_grad_begin, ignis_no_grad_end - between them the calling thread records nothing; they nest
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (end without begin).
    Ownership: nothing to free.
    Threads: any; each has its own depth. */
IGNIS_API ignis_status ignis_no_grad_begin(void);
IGNIS_API ignis_status ignis_no_grad_end(void);

/*  ignis_tape_record - make output the result of an operation on inputs, whose gradients rule computes
    Ignis' own operations are recorded in the same way. Nothing is recorded inside ignis_no_grad_begin, or when no input requires a
    gradient. output must be new: a leaf that requires no gradient itself, and that no recorded operation has as an input.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (output is not new, null rule, an input recorded by another thread), DTYPE (integers), MEMORY.
    Ownership: inputs are kept, params are copied. Saved arrays stay the caller's: the tape keeps their memory, and they may be freed at once, used
    for ever, or saved again.
    Threads: any; the entry belongs to the calling thread's tape. */
IGNIS_API ignis_status ignis_tape_record(ignis_tensor output, const ignis_tensor *inputs, int count, const ignis_rule *rule);

/*  ignis_tape_clear - free all entries of the calling thread's tape
    Returns: IGNIS_OK, or the reason.
    Errors: NOT_SETUP, ARGUMENT (inside a backward function).
    Ownership: saved memory is freed; tensors stay, and a backward through them is an error.
    Threads: any; each has its own tape. */
IGNIS_API ignis_status ignis_tape_clear(void);

/*  ignis_tape_length - how many operations the calling thread's tape holds
    Returns: the number, -1 on failure.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; each has its own tape. */
IGNIS_API int64_t ignis_tape_length(void);

/*  ignis_tape_dot - the operations that lead to a tensor as a Graphviz graph, with shapes, and the bytes that each keeps for backward
    Returns: the length of the whole text without its end, as snprintf does; out may be null when capacity is 0; -1 on failure.
    Errors: FREED, ARGUMENT, MEMORY.
    Ownership: the text is written to out, cut to capacity - 1 bytes and always ended.
    Threads: the one that recorded it. */
IGNIS_API int64_t ignis_tape_dot(ignis_tensor tensor, char *out, size_t capacity);

/*  ignis_checkpoint - run a function without keeping what its backward needs, and run it again in backward (Chen et al. 2016)
    The function runs in a scope of its own: what it makes is released when it returns, but for its result. The second run sees the same random
    numbers. Tensors that fn uses beside its inputs, such as weights, get their gradients too. Where inputs, or others that were there before and that
    operations in fn read, were written to before the backward, that fails. Where no tensor that fn uses requires a gradient, nothing is recorded.
    Returns: a new tensor over what fn returns, or no handle.
    Errors: FREED, ARGUMENT (fn has begun and not ended, or ended and not begun, a scope or a no-grad section), those of fn, MEMORY. Where fn writes
    to its inputs, the backward fails.
    Ownership: as ignis_tensor_from_host. user_data must live until backward.
    Threads: any. */
IGNIS_API ignis_tensor ignis_checkpoint(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs, int count);

/*  ignis_gradcheck - compare the gradients of a function with central finite differences
    All inputs are f64 leaves, on one device. The function is called twice for each element of each input that requires a gradient, with the same
    random numbers each time, and recorded also where a no-grad section is open. The relative error is |a - b| / max(1, |a|, |b|).
    Returns: the largest relative error, also when it is above desc->tolerance; NaN on failure.
    Errors: FREED, ARGUMENT (an input that is the result of an operation or, in a backward function, older than it), DTYPE (an input that is not
    f64), MISMATCH (above the tolerance; the message names input and element), those of fn.
    Ownership: inputs keep their values; their gradients are set to zero. Other leaves that fn uses get theirs as from any backward.
    Threads: any. Waits. */
IGNIS_API double ignis_gradcheck(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs, int count,
                                 const ignis_gradcheck_desc *desc);

/* >>ops --------------------------------------------------------------------------------------------------------- */

/*  Operations make new tensors, which belong to the current scope; inputs keep their values. All inputs of one call are on one device and,
    unless it says otherwise, of one dtype: f16, bf16, f32 or f64. Each is recorded for ignis_backward when an input requires a gradient.
    f16 and bf16 are computed in f32 and rounded once, at the end. */

/* >>ops.matmul -------------------------------------------------------------------------------------------------- */

/*  ignis_matmul - matrix product a b; ignis_matmul_t - a b^T, without transposing b in memory
    Shapes: a [..., m, k]; b [k, n] ([n, k] for _t) or [..., k, n]; the result [..., m, n]. Leading dimensions that differ spread over each
    other by NumPy's rules, by copies (ignis_expand); b [k, n] serves all of a as it is.
    f16, bf16 and f32 are summed in f32 (f32 by tf32 with ignis_desc.allow_tf32), f64 in f64.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (inner or leading dimensions differ), DTYPE, DEVICE, MEMORY, LIBRARY (no NVRTC or, where asked for, no cuBLASLt), CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_matmul(ignis_tensor a, ignis_tensor b);
IGNIS_API ignis_tensor ignis_matmul_t(ignis_tensor a, ignis_tensor b);

/*  ignis_linear - x w^T + bias, as a layer of a network
    Shapes: x [..., in]; w [out, in]; bias [out], or no handle for none; the result [..., out]. Sums as in ignis_matmul; in f16 and
    bf16 cuBLASLt may round the product once before it adds the bias.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY (no NVRTC or, where asked for, no cuBLASLt), CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_linear(ignis_tensor x, ignis_tensor w, ignis_tensor bias);

/*  ignis_quantize_f8 - numbers as floats of 8 bits and a scale: q = x / scale
    The scale is what makes the largest of the numbers 448, or 57344 in e5m2, the largest that there are: of all of them, or of each row; 1 where
    all are zero. What is left are 4 significant bits, or 3. NaN stays and does not count; with an infinity, all of its scale are NaN or zero.
    Shapes: x [..., n] of any; the result like x; *scale [1], or per row [..., 1].
    Dtypes: x f16, bf16, f32 or f64; dtype f8_e4m3 or f8_e5m2; *scale f32.
    Returns: the tensor, and *scale filled; or no handles. They have no gradient.
    Errors: FREED, ARGUMENT (no such dtype; scale is null; x was never written to), DTYPE, UNSUPPORTED (rows of 2^30 or more), MEMORY, LIBRARY,
    COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host, for both.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_quantize_f8(ignis_tensor x, ignis_dtype dtype, bool per_row, ignis_tensor *scale);

/*  ignis_matmul_f8 - the product of two matrices of 8 bits an element by their scales: (scale_a a) (scale_b b)^T + bias
    By tensor cores, which do twice as many of these operations a second as of those of 16 bits. Scales are those of ignis_quantize_f8.
    Shapes: a [..., m, k]; b [n, k]; scale_a [1], or one for each row of a; scale_b [1] or one for each of the n; bias [n]; the result [..., m, n].
    Dtypes: a and b f8_e4m3, or both f8_e5m2; scales f32, no handle for 1; bias, or no handle for none, and the result are of dtype: f16, bf16 or f32.
    Precision: products are exact, and added up by tensor cores 512 at a time, with some 13 bits behind the point of the largest, then in f32: of
    noise, the error was a third of a thousandth of the standard deviation of the results on an H200. Scales are multiplied in f32, and the result is
    rounded once.
    Returns: the tensor, or no handle. It has no gradient.
    Errors: FREED, ARGUMENT (no such dtype), SHAPE, DTYPE, DEVICE, MEMORY, UNSUPPORTED (the device's compute capability is below 8.9), LIBRARY,
    COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_matmul_f8(ignis_tensor a, ignis_tensor b, ignis_tensor scale_a, ignis_tensor scale_b, ignis_tensor bias,
                                       ignis_dtype dtype);

typedef enum ignis_activation {
    IGNIS_ACTIVATION_RELU = 1,
    IGNIS_ACTIVATION_GELU /* as ignis_gelu; the numbers are those of kernels/gemm.cuh, too */
} ignis_activation;

/*  ignis_mlp - two linear layers and the activation between them: activation(x w1^T + b1) w2^T + b2
    The same as ignis_linear, ignis_relu or ignis_gelu, and ignis_linear, in fewer passes over memory: biases, the activation, its gradient and the
    gradients of the biases are part of the products, as far as those who compute them can (ignis_desc.matmul).
    Shapes: x [..., in]; w1 [hidden, in]; w2 [out, hidden]; b1 [hidden] and b2 [out], or no handles for none; the result [..., out].
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (no such activation), FREED, SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY (as ignis_linear), CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_mlp(ignis_tensor x, ignis_tensor w1, ignis_tensor b1, ignis_tensor w2, ignis_tensor b2,
                                 ignis_activation activation);

#define IGNIS_MAX_LAYERS 8 /* of ignis_mlp_layers */

/*  ignis_mlp_layers - any number of linear layers, as ignis_mlp, with the activation between them, not behind the last
    count is 1 to IGNIS_MAX_LAYERS. Deeper networks are several of these, and the activation between them.
    Shapes: x [..., in]; weights[i] [out, in], in being the out of the layer before; biases null for none, or biases[i] [out], or no handle for a
    layer that has none; the result [..., out of the last layer].
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (no such activation, count), FREED, SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY (as ignis_linear), CUDA.
    Ownership: as ignis_tensor_from_host. The arrays of handles are the caller's.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_mlp_layers(ignis_tensor x, const ignis_tensor *weights, const ignis_tensor *biases, int count,
                                        ignis_activation activation);

/*  ignis_mlp_gated - the gated layers of Llama and its like (SwiGLU, Shazeer 2020): (silu(x w_gate^T) * (x w_up^T)) w_down^T
    The same as ignis_linear three times and ignis_silu_mul, in fewer passes over memory: the gate is applied in the product by w_up, and gradients
    of both leave the product by w_down, as far as those who compute them can (ignis_desc.matmul).
    Shapes: x [..., in]; w_gate and w_up [hidden, in]; w_down [out, hidden]; the result [..., out].
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY (as ignis_linear), CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_mlp_gated(ignis_tensor x, ignis_tensor w_gate, ignis_tensor w_up, ignis_tensor w_down);

/* >>ops.conv ---------------------------------------------------------------------------------------------------- */

/*  Of rows and columns, in this order; ignis_conv1d takes the first of each. */
typedef struct ignis_conv_desc {
    int stride[2];   /* pixels from one patch to the next (1) */
    int padding[2];  /* zeros before the first and behind the last pixel (0) */
    int dilation[2]; /* pixels from one tap of a patch to the next (1) */
    int groups;      /* the channels of a result depend on those of x in the same one of so many groups (1) */
} ignis_conv_desc;

/*  ignis_conv2d - convolution of images: each pixel of the result is the product of w and a patch of x, plus bias; ignis_conv1d - of rows of
    points. As in PyTorch it is a correlation: w is not turned round.
    Channels are the last dimension ("channels last", NHWC), where a bias, a norm or ignis_linear have theirs. Images that come as NCHW become that
    by ignis_permute(x, (int[]){0, 2, 3, 1}, 4), weights [outs, channels, height, width] of PyTorch by the same.
    Shapes: x [images, height, width, channels], w [outs, kernel height, kernel width, channels / groups], bias [outs] or no handle for none;
    the result [images, out height, out width, outs] with out = floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1. For
    ignis_conv1d the same without height. desc may be null for all defaults.
    Nothing is copied to make patches. f16 and bf16 use tensor cores on devices of compute capability 8.0 and up, f32 with ignis_desc.allow_tf32;
    channels of a group that are no multiple of 8 (tf32: 4), nor 4 (2), are copied to where they are. A 1 x 1 kernel of stride 1 without padding is
    ignis_linear, computed by whom ignis_desc.matmul says; all others are computed by own kernels. f16, bf16 and f32 are summed in f32, f64 in
    f64, gradients too, in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (a number of desc below 0), SHAPE (dimensions of x and w, channels that are not groups times those of w, a bias that
    is not [outs], a patch larger than the image with its padding), DTYPE, DEVICE, MEMORY, LIBRARY (no NVRTC), COMPILE, CUDA, UNSUPPORTED (more
    than 2^30 pixels, or elements of a patch).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_conv2d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc *desc);
IGNIS_API ignis_tensor ignis_conv1d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc *desc);

/* >>ops.pointwise ----------------------------------------------------------------------------------------------- */

/*  ignis_add, ignis_sub, ignis_mul - a + b, a - b and a * b, element by element
    Shapes: b has the shape of a, or spreads over it: compared from the last dimension on, b may lack leading dimensions, or have 1 for one
    dimension or several neighbouring ones. So b may be a row, a column or a single element. The gradient of b is summed
    accordingly, in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (b does not spread over a), DTYPE, DEVICE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_add(ignis_tensor a, ignis_tensor b);
IGNIS_API ignis_tensor ignis_sub(ignis_tensor a, ignis_tensor b);
IGNIS_API ignis_tensor ignis_mul(ignis_tensor a, ignis_tensor b);

/*  ignis_add_bias - add a bias [cols] to each row of a tensor [..., cols]
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (the bias is not [cols]), DTYPE, DEVICE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_add_bias(ignis_tensor tensor, ignis_tensor bias);

/*  ignis_scale - every element times factor; f16, bf16 and f32 with the factor rounded to f32
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_scale(ignis_tensor tensor, double factor);

/*  ignis_cast - the same elements as another dtype, by the rules of ignis_array_from_host
    The gradient is cast back. A result of integers has none.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (no such dtype, never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_cast(ignis_tensor tensor, ignis_dtype dtype);

/*  ignis_dropout - set each element to zero with the given probability, and divide the others by 1 - probability
    Which ones follows from ignis_seed and the calls since; backward computes the mask again, so none is kept. In a graph it also follows
    from how often that was launched: see ignis_graph_launch. For evaluation leave it out.
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, ARGUMENT (probability outside 0 to below 1, never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any; each thread has its own sequence of random numbers. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_dropout(ignis_tensor tensor, double probability);

/*  ignis_relu - max(x, 0); ignis_silu - x / (1 + exp(-x));
    ignis_gelu - x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); ignis_gelu_exact - x/2 (1 + erf(x / sqrt(2)))
    NaN stays NaN. The gradient of relu at 0 is 0.
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_relu(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_gelu(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_gelu_exact(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_silu(ignis_tensor tensor);

/*  ignis_silu_mul - silu(gate) * up in one pass, for gated MLPs; silu(gate) is not rounded in between
    Shapes: equal.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_silu_mul(ignis_tensor gate, ignis_tensor up);

/* >>ops.map ----------------------------------------------------------------------------------------------------- */

/*  The named inputs of a formula: IGNIS_INPUTS(x, y, IGNIS_VALUE(a, 2.5), IGNIS_NAMED(w, model->weights)) makes them. */
typedef struct ignis_inputs {
    const char *names;                     /* separated by commas: "x, y, a, w". In place of a name may stand MACRO(name, anything) */
    int count;                             /* 1 to IGNIS_MAX_INPUTS */
    ignis_tensor tensor[IGNIS_MAX_INPUTS]; /* tensors, and what ignis_value has given */
} ignis_inputs;

/*  ignis_map - a formula of tensors, element by element, in one pass, with its gradient: see ON FORMULAS
    ignis_map("silu(gate) * up", IGNIS_INPUTS(gate, up))
    Shapes: inputs spread over each other by NumPy's rules, up to 8 dimensions. Any dtypes: the result has the widest floating type of the
    inputs (f32 where f16 meets bf16, and where all are integers), a comparison u8, an integer i64. Gradients of inputs that are spread
    are summed in f32 (f64 in f64), in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (the formula, which the message has with the column; names; null; never written to), SHAPE, DEVICE, MEMORY,
    LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_map(const char *formula, ignis_inputs inputs);

/*  ignis_map_many - several results of a formula, which are written apart by commas, in one pass
    ignis_map_many("s = sin(t); c = cos(t); a*c - b*s, a*s + b*c", IGNIS_INPUTS(a, b, t), 2, results)
    Each is as in ignis_map; all have the shape that the inputs give. count is 1 to IGNIS_MAX_INPUTS. Backward takes one pass for each of
    those that are used.
    Returns: IGNIS_OK, and results[0] to results[count - 1] filled; on failure they are 0.
    Errors: those of ignis_map; ARGUMENT (count, which is not that of the formula's results).
    Ownership: as ignis_tensor_from_host, for each result.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_map_many(const char *formula, ignis_inputs inputs, int count, ignis_tensor *results);

typedef struct ignis_reduce_desc {
    int dims[IGNIS_MAX_DIMS]; /* that are reduced; negative ones count from the last one on */
    int dim_count;            /* (0: all are) */
    bool keepdim;             /* they stay, with 1 element (false: the result lacks them; it is [1] when none is left) */
} ignis_reduce_desc;

/*  ignis_map_sum, ignis_map_mean - the sum or mean of all elements of a formula of tensors, in one pass; ignis_map_reduce - that, the
    largest, ... of all, or along dimensions
    Shapes and dtypes as in ignis_map, and [1] for all. desc may be null for all dimensions. any and all give u8, argmax and argmin i64, sums of
    comparisons i64, the mean of integers f32, rounded once. Sums are in f32 (f64 in f64, i64 of integers), in a fixed order. Those of i64 wrap
    around; means of i64 do so only along dimensions that are no neighbours. NaN is the largest and the smallest number.
    The sum and norm of nothing is 0, prod and all 1, the mean NaN, logsumexp minus infinity.
    Gradients: of max and min the first of equal elements has it; of prod they are right beside zeros, too.
    Returns: the tensor, or no handle.
    Errors: those of ignis_map; ARGUMENT (no such reducer), SHAPE (no such dimension, or twice; max, min, argmax or argmin of nothing;
    argmax, argmin or a gradient of max, min or prod along dimensions that are no neighbours).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_map_sum(const char *formula, ignis_inputs inputs);
IGNIS_API ignis_tensor ignis_map_mean(const char *formula, ignis_inputs inputs);
IGNIS_API ignis_tensor ignis_map_reduce(ignis_reducer reducer, const char *formula, ignis_inputs inputs, const ignis_reduce_desc *desc);

/*  ignis_value - a number as an input of ignis_map; IGNIS_VALUE(name, number) calls it
    Another number needs no other kernel, unlike another one in the text of a formula. It has no gradient.
    Returns: something that stands for it among tensors, until the thread has made 64 more.
    Errors: none.
    Ownership: nothing to free.
    Threads: any; the calling thread's alone. */
IGNIS_API ignis_tensor ignis_value(double value);

/* >>ops.sum ----------------------------------------------------------------------------------------------------- */

/*  ignis_sum, ignis_mean - the sum or mean of all elements; ignis_sum_dim, ignis_mean_dim - along one dimension
    Shapes: [1]; along a dimension the shape without it, [1] for a tensor of one dimension. A negative dim counts from the last one on.
    Summed in f32 (f64 in f64) in a fixed order. The sum of no elements is 0, their mean NaN.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension), DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_sum(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_mean(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_sum_dim(ignis_tensor tensor, int dim);
IGNIS_API ignis_tensor ignis_mean_dim(ignis_tensor tensor, int dim);

/*  ignis_cumsum - the sums of all elements up to each one along a dimension, in the tensor's dtype
    A negative dim counts from the last one on. Floating types are summed in f32 (f64 in f64) in a fixed order, and rounded once; i32 and i64
    wrap around.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension), DTYPE (u8), ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_cumsum(ignis_tensor tensor, int dim);

/* >>ops.shape --------------------------------------------------------------------------------------------------- */

/*  ignis_reshape - the same elements under another shape, over the same memory; one dimension may be -1: what is left over
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (numel differs, more than one -1), MEMORY.
    Ownership: as ignis_tensor_from_host.
    Threads: any. */
IGNIS_API ignis_tensor ignis_reshape(ignis_tensor tensor, ignis_shape shape);

/*  ignis_transpose - swap two dimensions, in new memory; negative ones count from the last one on. Any dtype.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension), ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_transpose(ignis_tensor tensor, int dim0, int dim1);

/*  ignis_concat - concatenate count tensors along a dimension, in new memory. Any dtype.
    Shapes: equal but for that dimension. More than eight are concatenated in several passes.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension, another one differs), DTYPE, DEVICE, ARGUMENT (null, count, never written to), MEMORY, LIBRARY,
    COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_concat(const ignis_tensor *tensors, int count, int dim);

/*  ignis_split - cut a tensor along a dimension into count parts of the given sizes, or into equal ones where sizes is null. Any dtype.
    Parts along the first dimension share the tensor's memory. Backward puts all parts' gradients into one array.
    Returns: IGNIS_OK, and parts[0] to parts[count - 1] filled; on failure they are 0.
    Errors: FREED, SHAPE (no such dimension, sizes do not add up, no equal parts), ARGUMENT (null, count, never written to), MEMORY, LIBRARY,
    COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host, for each part.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_split(ignis_tensor tensor, int dim, int count, const int64_t *sizes, ignis_tensor *parts);

/*  ignis_slice - elements [start, start + len) along a dimension; a negative dim counts from the last one on. Any dtype.
    Along the first dimension, and where only dimensions of 1 are before it, the slice shares the tensor's memory; else it is a copy.
    Backward puts the gradient into zeros of the tensor's shape: for many slices of one tensor ignis_split takes less.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension, range outside of it), ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_slice(ignis_tensor tensor, int dim, int64_t start, int64_t len);

/*  ignis_slice_step - elements start, start + step, ... along a dimension, len of them; a negative step goes backwards. Any dtype.
    A copy, as arrays have no strides; backward puts the gradient into zeros of the tensor's shape.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension, range outside of it), ARGUMENT (step 0, never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_slice_step(ignis_tensor tensor, int dim, int64_t start, int64_t len, int64_t step);

/*  ignis_permute - dimensions in another order: dimension i of the result is dims[i] of the tensor, which count are; ignis_flip - count
    dimensions backwards. Both in new memory, in one pass. Any dtype. A negative dimension counts from the last one on.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension, one given twice), ARGUMENT (null, count, never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_permute(ignis_tensor tensor, const int *dims, int count);
IGNIS_API ignis_tensor ignis_flip(ignis_tensor tensor, const int *dims, int count);

/*  ignis_expand - repeat the elements of dimensions of 1 until a shape is filled, in new memory. Any dtype.
    Shapes: compared from the last dimension on, the tensor may lack leading ones; -1 in shape keeps a dimension. The gradient is summed
    over what was repeated, in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (does not spread over shape), ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_expand(ignis_tensor tensor, ignis_shape shape);

/*  ignis_stack - put count tensors of one shape side by side along a new dimension, in new memory: dimension dim of the result. Any dtype.
    Returns: the tensor, or no handle.
    Errors: as ignis_concat; SHAPE, too, where shapes differ, or have IGNIS_MAX_DIMS dimensions.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_stack(const ignis_tensor *tensors, int count, int dim);

/*  ignis_pad - put before[i] elements of a value in front of dimension i, and after[i] behind it, in new memory. Any dtype.
    count is the number of dimensions; null for before or after is none. The value is converted as by ignis_array_fill.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (larger than 63 bits can count), ARGUMENT (count, a negative width, never written to), MEMORY, LIBRARY, COMPILE,
    CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_pad(ignis_tensor tensor, const int64_t *before, const int64_t *after, int count, double value);

/*  ignis_tril, ignis_triu - the lower or upper triangle of matrices [..., rows, columns], zeros elsewhere, in new memory. Any dtype.
    diagonal is the last one that is kept below, or the first one above: 0 the main diagonal, 1 the one to the right of it, -1 that to the
    left.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (fewer than two dimensions), ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tril(ignis_tensor tensor, int64_t diagonal);
IGNIS_API ignis_tensor ignis_triu(ignis_tensor tensor, int64_t diagonal);

/* >>ops.norm ---------------------------------------------------------------------------------------------------- */

/*  ignis_softmax - exp(x) / sum of exp(x) over the last dimension
    ignis_log_softmax - its logarithm, x - log(sum of exp(x)), which keeps its digits where softmax has none left
    One walk over memory each, and one for the gradient. A row of nothing but -infinity becomes zeros, and their logarithm stays -infinity, with
    a gradient of 0; one with NaN or +infinity becomes NaN. What all of a row have in common changes nothing, however large.
    Shapes: x [..., n], of a floating dtype, which the result has, too.
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (a last dimension of 2^30 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_softmax(ignis_tensor x);
IGNIS_API ignis_tensor ignis_log_softmax(ignis_tensor x);

/*  ignis_layer_norm - (x - mean) / sqrt(variance + eps) * w + b, with mean and variance over the last dimension
    ignis_rms_norm - x / sqrt(mean of x^2 + eps) * w
    Shapes: x [..., n]; w and b [n]. eps 0 means 1e-5, as in PyTorch's layer_norm; for next to none give a tiny one, such as 1e-30: beside types
    other than f64 the least that counts is 2^-126.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (eps below 0, or NaN), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (n of 2^30 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_layer_norm(ignis_tensor x, ignis_tensor w, ignis_tensor b, double eps);
IGNIS_API ignis_tensor ignis_rms_norm(ignis_tensor x, ignis_tensor w, double eps);

/*  ignis_add_layer_norm, ignis_add_rms_norm - x + y, the end of a residual branch, and its norm: one walk over memory for both
    Gives what ignis_add and then ignis_layer_norm or ignis_rms_norm give, to the last bit. *sum becomes x + y, another tensor of the result's kind,
    and may be the variable that x is in: h = ignis_add_layer_norm(x, h, w, b, eps, &x). sum may be null where only the norm is needed.
    Backward needs nothing of this kind: the gradient of a norm adds itself to that which its input has from elsewhere, in one walk too, and
    the same walk makes the gradient of the bias where x or y is what ignis_linear or ignis_mlp gave.
    Shapes: x and y [..., n], the same; w and b [n]. eps as above.
    Returns: the norm, or no handle; then *sum is none either.
    Errors: FREED, ARGUMENT (eps below 0, or NaN), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (n of 2^30 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_add_layer_norm(ignis_tensor x, ignis_tensor y, ignis_tensor w, ignis_tensor b, double eps, ignis_tensor *sum);
IGNIS_API ignis_tensor ignis_add_rms_norm(ignis_tensor x, ignis_tensor y, ignis_tensor w, double eps, ignis_tensor *sum);

/* >>ops.image --------------------------------------------------------------------------------------------------- */

/*  Images are channels-last, [n, height, width, channels], and signals [n, length, channels]. Of the two numbers of a dimension in a desc the first
    is of rows, the second of columns; a signal's is the first, and its second is 0. Gradients are gathered in a fixed order: equal
    inputs give equal bits. */

typedef struct ignis_pool_desc {
    int window[2];        /* required: rows and columns that a result is made of */
    int stride[2];        /* from one window to the next (window) */
    int padding[2];       /* on both sides, half of the window at most (0) */
    bool ceil_mode;       /* a last window may reach beyond the padding, if it begins before it (false: such a one is left out) */
    bool exclude_padding; /* of ignis_avg_pool: divide by the elements inside of the image (false: by those in the padding too) */
} ignis_pool_desc;

/*  ignis_max_pool, ignis_avg_pool - the largest or the average element of each window, channel by channel, as in PyTorch
    Shapes: x [n, height, width, channels] or [n, length, channels]; the result has (size + 2 padding - window) / stride + 1 rows and columns,
    rounded down, or up with ceil_mode. Padding is minus infinity to ignis_max_pool, zero to ignis_avg_pool. NaN is the largest
    number. The first of equal elements has the gradient (with NaN, the last NaN). The average over all of an image is
    ignis_mean_dim(ignis_reshape(x, IGNIS_SHAPE(n, -1, channels)), 1).
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (null desc, window below 1, stride or padding below 0, padding above half of the window, a second number for a
    signal), SHAPE (no image nor signal, too small for the window), DTYPE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (height, width, channels
    or window of 2^28 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_max_pool(ignis_tensor x, const ignis_pool_desc *desc);
IGNIS_API ignis_tensor ignis_avg_pool(ignis_tensor x, const ignis_pool_desc *desc);

typedef enum ignis_upsample_mode {
    IGNIS_UPSAMPLE_NEAREST = 0, /* the pixel at o * size / new_size, rounded down */
    IGNIS_UPSAMPLE_LINEAR,      /* linear between neighbours: bilinear for images */
    IGNIS_UPSAMPLE_COUNT
} ignis_upsample_mode;

typedef struct ignis_upsample_desc {
    int64_t size[2];          /* required: rows and columns of the result; fewer than before, too */
    ignis_upsample_mode mode; /* IGNIS_UPSAMPLE_NEAREST */
    bool align_corners; /* of LINEAR: pixels are points, and the first and last ones stay where they are (false: pixels are squares, and
                                 the borders of the image stay; what would lie outside of all centers is the pixel there) */
} ignis_upsample_desc;

/*  ignis_upsample - an image or a signal at another size, as PyTorch's interpolate
    Shapes: x [n, height, width, channels] or [n, length, channels]; the result has the rows and columns of desc. Where pixels lie is exact; of
    PyTorch's modes, NEAREST is what "nearest" would be without its rounding.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (null desc, size below 1, no such mode, align_corners without LINEAR, a second number for a signal), SHAPE (no image
    nor signal, one of no pixels), DTYPE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (a size or channels of 2^28 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_upsample(ignis_tensor x, const ignis_upsample_desc *desc);

typedef struct ignis_batch_norm_desc {
    ignis_array running_mean; /* [channels] of f32, or f64 for x of f64: averages that training moves, and evaluation uses (none) */
    ignis_array running_var;  /* the same for the variance; given together with running_mean, or not at all */
    double momentum;          /* how far they move towards those of x, above 0 to 1 (0.1) */
    double eps;               /* (1e-5) */
    bool eval;                /* normalize by the running averages, which stay (false: by those of x) */
} ignis_batch_norm_desc;

/*  ignis_batch_norm - (x - mean) / sqrt(variance + eps) * w + b, with mean and variance of each channel over all else
    Training also moves running_mean and running_var, in place, on the current stream: running += momentum * (that of x - running), where the
    variance of x is without bias, its sum divided by n - 1. So does each launch of a graph. A checkpoint that runs its function again
    moves them once. Begin with zeros and ones.
    Shapes: x [..., channels]; w and b [channels]. desc may be null for all defaults.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (eps below 0, momentum outside of 0 to 1, one running array alone, or none to evaluate with), SHAPE (also: fewer
    than 2 elements a channel to train with), DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (channels of 2^28 or more).
    Ownership: as ignis_tensor_from_host; the running arrays stay the caller's.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_batch_norm(ignis_tensor x, ignis_tensor w, ignis_tensor b, const ignis_batch_norm_desc *desc);

/*  ignis_group_norm - the same with mean and variance of each image, and in it of each of `groups` groups of neighbouring channels
    Shapes: x [n, ..., channels], the channels a multiple of groups; w and b [channels]. eps 0 means 1e-5, as in ignis_layer_norm.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (groups below 1, eps below 0, or NaN), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (channels of
    2^28 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_group_norm(ignis_tensor x, int groups, ignis_tensor w, ignis_tensor b, double eps);

/* >>ops.rope ---------------------------------------------------------------------------------------------------- */

typedef struct ignis_rope_desc {
    int num_heads;              /* required: a row is num_heads heads of head_dim elements */
    double base;                /* of the inverse frequencies base^(-2i / head_dim) (10000) */
    int64_t pos_offset;         /* position of the first row of every sequence (0) */
    const float *inv_freq;      /* on the host: other inverse frequencies, such as those of llama3, NTK or YaRN scaling (those of base) */
    int inv_freq_count;         /* head_dim / 2 */
    ignis_array inv_freq_array; /* instead of them: head_dim / 2 frequencies on the device, in f32, or for x of f64 also in f64 (none) */
    const double *inv_freq_f64; /* instead of inv_freq, on the host: as many (none) */
} ignis_rope_desc;

/*  ignis_rope - rotary position embedding, in the half-rotating order of Llama and Qwen
    Shapes: x [..., seq, num_heads * head_dim]; the position of a row is its index in seq plus desc->pos_offset. Elements i and
    i + head_dim / 2 of every head turn by position * inv_freq[i], an angle in f64 for x of f64, else in f32. Frequencies on the device are read
    as the kernel runs, so a graph reads them anew at each launch; backward reads them again.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (null desc, num_heads below 1, base not positive, pos_offset beyond 2^31, inv_freq_count or the array's numel is
    not head_dim / 2, frequencies given twice or never written to), SHAPE (the last dimension is not num_heads times an even head_dim), DTYPE,
    DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (head_dim above 512).
    Ownership: as ignis_tensor_from_host; inv_freq may be reused when the call returns, and inv_freq_array be freed.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_rope(ignis_tensor x, const ignis_rope_desc *desc);

/* >>ops.embedding ----------------------------------------------------------------------------------------------- */

/*  ignis_embedding - rows of a table: out[..., :] = table[ids[...], :]
    Shapes: table [vocab, n]; ids, of i32 or i64, any; the result is that of ids with n behind it. An id outside of the table gives a row of NaN, and
    no gradient. The gradient of the table is summed in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (n of 2^30, or 2^31 ids or rows, or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_embedding(ignis_tensor table, ignis_tensor ids);

/* >>ops.index --------------------------------------------------------------------------------------------------- */

/*  ignis_gather - elements by index along a dimension: for dim 0, out[i, j, ...] = tensor[index[i, j, ...], j, ...]. Any dtype.
    Shapes: index, of i32 or i64, has the tensor's dimensions, is of any size along dim and of the tensor's at most along the others; the
    result has its shape. An index outside gives NaN, of an integer dtype 0, and no gradient. The gradient is summed in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension, index too large), DTYPE, DEVICE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA;
    in backward UNSUPPORTED (2^31 elements).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_gather(ignis_tensor tensor, int dim, ignis_tensor index);

/*  ignis_index_select - slices along a dimension by index: for dim 0, out[i, ...] = tensor[index[i], ...]. Any dtype.
    Shapes: index, of i32 or i64, is [n]; the result is the tensor's with n along dim. Indices outside, and the gradient, as for
    ignis_gather.
    Returns: the tensor, or no handle.
    Errors: as ignis_gather.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_index_select(ignis_tensor tensor, int dim, ignis_tensor index);

/*  ignis_scatter_add - the tensor, with the elements of src added by index: for dim 0, out[index[i, j, ...], j, ...] += src[i, j, ...]
    Any dtype.
    Shapes: src that of index, index as for ignis_gather. What belongs to an index outside is dropped. Sums are in f32 (f64 in f64), rounded
    once, in a fixed order: equal inputs give equal bits.
    Returns: the tensor, or no handle.
    Errors: as ignis_gather; UNSUPPORTED (2^31 elements).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_scatter_add(ignis_tensor tensor, int dim, ignis_tensor index, ignis_tensor src);

/*  ignis_one_hot - rows of zeros with a 1 at each id: out[..., c] = ids[...] == c, of any dtype
    Shapes: ids, of i32 or i64, any; the result is that of ids with classes behind it. An id that is no class gives zeros.
    Returns: the tensor, which has no gradient, or no handle.
    Errors: FREED, SHAPE, DTYPE, ARGUMENT (classes below 0, no such dtype, never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_one_hot(ignis_tensor ids, int64_t classes, ignis_dtype dtype);

/* >>ops.sort ---------------------------------------------------------------------------------------------------- */

/*  ignis_sort - elements along a dimension in order, stable; ignis_topk - the k largest or smallest ones, in order. Any dtype.
    A negative dim counts from the last one on. NaN counts as larger than all numbers, both zeros as equal; of equal elements the first
    comes first. *indices, where indices is not null, becomes a tensor of i64 with where each element comes from along dim; it has no
    gradient, the result has.
    Returns: the tensor, or no handle, and none in *indices.
    Errors: FREED, SHAPE (no such dimension), ARGUMENT (k outside of the dimension, never written to), MEMORY, LIBRARY, COMPILE, CUDA,
    UNSUPPORTED (2^31 elements along dim).
    Ownership: as ignis_tensor_from_host, for both.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_sort(ignis_tensor tensor, int dim, bool descending, ignis_tensor *indices);
IGNIS_API ignis_tensor ignis_topk(ignis_tensor tensor, int64_t k, int dim, bool largest, ignis_tensor *indices);

/* >>ops.loss ---------------------------------------------------------------------------------------------------- */

/*  What a function gives of many losses: each element of the first input has one, or each row, as the function says. Losses, their mean and their
    sum are of f32, or f64 where an input is: a scaled loss (ignis_scale_loss) does not overflow, and its gradient is rounded once. */
typedef enum ignis_reduction {
    IGNIS_REDUCTION_MEAN = 0, /* of the losses that count, [1]; NaN where there are none, and the gradient 0 */
    IGNIS_REDUCTION_SUM,      /* [1] */
    IGNIS_REDUCTION_NONE,     /* all of them, in the shape of the elements or rows */
    IGNIS_REDUCTION_COUNT
} ignis_reduction;

/*  ignis_mse_loss - (x - target)^2 of each element; ignis_l1_loss - |x - target|; ignis_huber_loss - d^2 / 2 of d = |x - target| where d is below
    delta, delta (d - delta / 2) elsewhere (Huber, Robust Estimation of a Location Parameter, 1964)
    One pass over memory, and one for the gradients, of x and of targets. PyTorch's smooth_l1_loss with beta is ignis_huber_loss with delta = beta,
    divided by beta. Losses that are not here are a line each: see ON FORMULAS.
    Shapes: equal; targets of any dtype, x of a floating one.
    Returns: the tensor, or no handle.
    Errors: those of ignis_map; ARGUMENT (no such reduction, delta not above 0), SHAPE, DTYPE.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_mse_loss(ignis_tensor x, ignis_tensor targets, ignis_reduction reduction);
IGNIS_API ignis_tensor ignis_l1_loss(ignis_tensor x, ignis_tensor targets, ignis_reduction reduction);
IGNIS_API ignis_tensor ignis_huber_loss(ignis_tensor x, ignis_tensor targets, double delta, ignis_reduction reduction);

typedef struct ignis_bce_desc {
    ignis_tensor weight;       /* of each element's loss, spread over the logits; the mean is over all elements all the same (1) */
    ignis_tensor pos_weight;   /* of the part of target 1, spread over the logits (1) */
    ignis_reduction reduction; /* IGNIS_REDUCTION_MEAN */
} ignis_bce_desc;

/*  ignis_bce_with_logits - binary cross-entropy of each element: -weight (pos_weight t log(p) + (1 - t) log(1 - p)), with p = sigmoid(logit)
    From the logits themselves, so that nothing overflows and small losses keep their digits. One pass, and one for the gradients.
    Shapes: targets that of logits, of any dtype, from 0 to 1; weights spread over it. desc may be null for all defaults.
    Returns: the tensor, or no handle.
    Errors: those of ignis_map; ARGUMENT (no such reduction), SHAPE, DTYPE.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_bce_with_logits(ignis_tensor logits, ignis_tensor targets, const ignis_bce_desc *desc);

/*  ignis_kl_div - the Kullback-Leibler divergence of each row: the sum over the last dimension of t (log(t) - x), 0 where t is 0
    As in PyTorch, x are log-probabilities, and targets probabilities, or with log_targets log-probabilities, too. The mean is over rows
    (PyTorch's "batchmean"). One pass, one over the rows' losses, and one for the gradients.
    Shapes: equal, [..., classes]; without reduction the result is [...], or [1].
    Returns: the tensor, or no handle.
    Errors: those of ignis_map; ARGUMENT (no such reduction), SHAPE, DTYPE.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_kl_div(ignis_tensor x, ignis_tensor targets, bool log_targets, ignis_reduction reduction);

/*  ignis_cosine_similarity - the cosine of the angle between rows: a b / (|a| |b|), sums over the last dimension
    Each length counts as 1e-8 at least. Two norms, a sum and a formula. The loss for y = 1 (alike) or -1 is a line:
    ignis_map_mean("y > 0 ? 1 - c : max(c - margin, 0)", IGNIS_INPUTS(c, y, IGNIS_VALUE(margin, 0.5))).
    Shapes: equal, [..., n]; the result is [...], or [1], of f32, or f64 where an input is.
    Returns: the tensor, or no handle.
    Errors: those of ignis_map; SHAPE, DTYPE.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_cosine_similarity(ignis_tensor a, ignis_tensor b);

typedef struct ignis_cross_entropy_desc {
    int64_t ignore_index;      /* rows with this target have neither loss nor gradient (-100) */
    bool ignore_zero;          /* with ignore_index 0: that it is meant, and not the default */
    ignis_reduction reduction; /* of the rows that are not ignored (IGNIS_REDUCTION_MEAN) */
    double label_smoothing;    /* what part of the target is spread evenly over all classes, from 0 to 1 (0) */
    int64_t classes;           /* later columns are padding: they are ignored, and their gradient is 0 (all columns are classes) */
    int64_t chunk;             /* of ignis_linear_cross_entropy: rows whose logits exist at a time (4096, or as many as have
                                  2^27 logits; all, where that takes less memory) */
} ignis_cross_entropy_desc;

/*  ignis_cross_entropy - mean or sum over rows of log(sum of exp(logits)) - logits[target]
    Shapes: logits [..., classes]; targets, of i32 or i64, [...]; the result is [1], of f32, or f64 for logits of f64. desc may be null for
    all defaults.
    A target that is no class and not ignored makes the loss and the gradient of its row NaN, and so does a row of nothing but -infinity. Where all
    rows are ignored the mean is NaN, and the gradient 0. What all logits of a row have in common costs neither loss nor gradient any digits.
    With label_smoothing e the target is 1 - e at its class, and e / classes is added to every class (Szegedy et al., Rethinking the Inception
    Architecture for Computer Vision, 2016). That, and IGNIS_REDUCTION_NONE (a loss for each row, [...]), are computed by formulas: two walks over the
    logits, and one in backward, which needs them; fewer than 2^24 classes.
    The gradient of f32, f64 and bf16 is computed with the loss, and backward only passes it on; it is scaled, and rounded once more, where
    the gradient of the loss is not 1.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (desc->classes outside of 1 to the columns, reduction, label_smoothing), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY,
    COMPILE, CUDA, UNSUPPORTED (2^30 columns or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_cross_entropy(ignis_tensor logits, ignis_tensor targets, const ignis_cross_entropy_desc *desc);

/*  ignis_nll_loss - -x[target] of each row, for log-probabilities x: what ignis_cross_entropy has behind its logarithm
    A pass over all of x, one over the rows' losses, and one that writes the gradient. Ignored rows and targets that are no class as in
    ignis_cross_entropy; label_smoothing has to be 0. desc may be null for all defaults. ignis_log_softmax gives such x.
    Shapes: x [..., classes]; targets, of i32 or i64, [...]; without reduction the result is [...], or [1].
    Returns: the tensor, or no handle.
    Errors: those of ignis_cross_entropy; UNSUPPORTED (label_smoothing).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_nll_loss(ignis_tensor x, ignis_tensor targets, const ignis_cross_entropy_desc *desc);

/*  ignis_linear_cross_entropy - the cross-entropy of the logits hidden weight^T, which are never there as a whole
    The same as ignis_cross_entropy(ignis_matmul_t(hidden, weight), targets, desc), for vocabularies whose logits are larger than all else: they
    are made in chunks of desc->chunk rows, and so is their gradient. The gradients of hidden and weight are computed with the loss; backward passes
    them on, or scales them, and rounds them once more, where the gradient of the loss is not 1. For f16, whose range is small, backward computes
    them from the logits, which it makes once more: a fourth product. Sums over chunks have a fixed order, in f32 at least.
    Rows of hidden that are ignored, and rows of weight behind desc->classes, have to be finite: the gradients multiply them by 0.
    Its price is memory for a chunk of logits, both gradients from forward on, and for 16-bit types with more than one chunk 6 bytes for each
    element of weight meanwhile; and a pass over weight and its sum for each chunk: small chunks are slow.
    Shapes: hidden [..., n], weight [classes, n], of one dtype; targets, of i32 or i64, [...]; the result is [1], of f32, or f64 for f64.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (desc->classes outside of 1 to the rows of weight, reduction, chunk below 0), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY,
    COMPILE, CUDA, UNSUPPORTED (n or classes of 2^30 or more; label_smoothing, IGNIS_REDUCTION_NONE).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_linear_cross_entropy(ignis_tensor hidden, ignis_tensor weight, ignis_tensor targets,
                                                  const ignis_cross_entropy_desc *desc);

/* >>ops.attention ----------------------------------------------------------------------------------------------- */

typedef enum ignis_mask {
    IGNIS_MASK_CAUSAL = 0, /* of sq queries and sk keys, query i sees the keys before i + sk - sq + 1: the last query sees all */
    IGNIS_MASK_NONE,       /* every query sees all keys */
    IGNIS_MASK_COUNT
} ignis_mask;

typedef struct ignis_sdpa_desc {
    int num_heads;        /* a row of q is num_heads heads of head_dim elements (1) */
    int num_kv_heads;     /* a row of k or v is num_kv_heads such heads, each shared by num_heads / num_kv_heads query heads (num_heads) */
    ignis_mask mask;      /* IGNIS_MASK_CAUSAL */
    double scale;         /* of the scores, positive (1 / sqrt(head_dim)) */
    int window;           /* a query sees keys that are less than so many places from its own (all) */
    double softcap;       /* scores become softcap * tanh(score / softcap) (they stay as they are) */
    ignis_tensor bias;    /* [batch or 1, num_heads or 1, sq or 1, sk], is added to the scores, behind the softcap (none) */
    ignis_tensor lengths; /* i32 [batch]: how many keys each sequence has, the first ones (sk) */
} ignis_sdpa_desc;

/*  ignis_sdpa - scaled dot-product attention of all heads: softmax(scale q k^T) v, without ever storing the scores
    Shapes: q [sq, num_heads * head_dim]; k and v [sk, num_kv_heads * head_dim]; or all with a batch in front; head_dim is at most 256. The
    result has the shape of q. A query that sees no key gives zeros, and no gradient. desc may be null for all defaults.
    desc->window: query i is at the place of key i + sk - sq. With a causal mask it sees that key and the window - 1 before it, else window - 1 on
    both sides. desc->lengths: one number where there is no batch; below 0 counts as 0, above sk as sk. Queries behind their sequence's length see
    its keys as others do. Keys that nobody sees take no time, forward and backward. desc->softcap is that of Gemma 2.
    In keys and values that no query of their sequence sees, in queries that see no key, and in the gradients of their results anything may stand, NaN
    and infinities too: it reaches no result and no gradient. What only some queries see reaches only those; but with tensor cores a NaN or an
    infinity there may make others NaN, too.
    desc->bias has the dtype of q, or f32 for f16 and bf16; dimensions of 1 in front may be missing, and it may be -infinity. Low numbers such as
    -1e9 or the lowest of the dtype mask, too: beside others such keys have weight 0, and alone they count alike. Its gradient is added up over
    what shares it, in f32 or f64. ALiBi is a bias [1, num_heads, 1, sk] of slope * j: what all keys of a query have in common
    does not matter. A key that a bias masks is seen all the same: what stands there has to be finite.
    f16 and bf16 use tensor cores on devices of compute capability 8.0 and up, if head_dim is a multiple of 8; probabilities are rounded
    to the dtype there. Compute capability 9.0 has kernels of its own, twice as fast, where head_dim is 64 at least, there are a query and a key
    (for the gradients 32 queries, or 16 if head_dim is not 64) and no bias, and CUDA is 12.0 or newer; their gradients need 4 bytes for each
    element of q while they are computed. ignis_desc.attention takes the one kind or the other; what IGNIS_ATTENTION_WGMMA cannot take is told to
    the logger, as information (ignis_desc.verbose). Equal inputs give equal bits, with all kernels. Few queries and many keys need memory for
    the parts of a result, at most 2^18 bytes for each multiprocessor.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (num_heads or num_kv_heads below 1, num_heads is not a multiple of num_kv_heads, no such mask, scale or softcap is
    not positive, window below 0), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (head_dim above 256, 2^30 rows or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc *desc);

/*  ignis_sdpa_packed - ignis_sdpa of q, k and v where one projection (ignis_linear) left them: nothing is copied
    Shapes: qkv [seq, (num_heads + 2 num_kv_heads) * head_dim], or with a batch in front: in each row the heads of q, then those of k, then those of
    v. The result is [seq, num_heads * head_dim], or with the batch. Its gradient is one array of the shape of qkv. Same bits as ignis_sdpa of the
    three parts, where qkv begins at a multiple of 16 bytes; elsewhere f16 and bf16 use no tensor cores. desc may be null for all defaults.
    With rope q and k turn first as by ignis_rope, into memory of their own, where they stay for backward; its num_heads is 0, or that of q and k
    together. Without, rope is null; the backward of f16 and bf16 on compute capability 9.0 then also adds up the gradient of the projection's bias.
    Returns: the tensor, or no handle.
    Errors: those of ignis_sdpa and ignis_rope.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_sdpa_packed(ignis_tensor qkv, const ignis_sdpa_desc *desc, const ignis_rope_desc *rope);

/*  ignis_decode_sdpa - attention of one new query to all keys of a cache, for generation token by token
    Shapes: q [1, num_heads * head_dim]; k and v [past + 1, num_kv_heads * head_dim], the new token's included, at least one row; or all with a
    batch in front; num_kv_heads follows from the shapes, head_dim is at most 512. The result has the shape of q. The scores are scaled by
    1 / sqrt(head_dim). Nothing is recorded: the result requires no gradient.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (num_heads below 1, or not a multiple of the number of key heads), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE,
    CUDA, UNSUPPORTED (head_dim above 512, 2^30 rows or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_decode_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, int num_heads);

/*  ignis_decode_sdpa_with - ignis_decode_sdpa with the options of ignis_sdpa
    The query comes last in its sequence, also where lengths say that this has fewer keys than the cache has room for: a window is the last
    `window` keys before the length. So a batch may have sequences of different lengths, and a graph that was captured may go on with a cache
    that grows, whose length is in device memory. A sequence without a key gives zeros. desc->mask does not matter, num_kv_heads may be 0: as
    many as k has room for. desc may be null for all defaults.
    Returns: the tensor, or no handle.
    Errors: those of ignis_sdpa and ignis_decode_sdpa.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_decode_sdpa_with(ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc *desc);

/* >>optim ------------------------------------------------------------------------------------------------------- */

/*  Parameters, and the state that is kept for each of them. */
typedef struct ignis_optimizer {
    uint64_t id;
} ignis_optimizer;

typedef enum ignis_schedule {
    IGNIS_SCHEDULE_CONSTANT,
    IGNIS_SCHEDULE_COSINE, /* half a cosine from lr down to floor * lr */
    IGNIS_SCHEDULE_LINEAR  /* a straight line */
} ignis_schedule;

/*  The learning rate over the steps. It grows linearly to lr in the first `warmup` steps, and reaches its last value at step `total`. */
typedef struct ignis_schedule_desc {
    ignis_schedule kind; /* IGNIS_SCHEDULE_CONSTANT */
    int64_t warmup;      /* steps (0) */
    int64_t total;       /* steps, warm-up included; required but for a constant rate */
    double floor;        /* what part of lr is left at the end (0) */
} ignis_schedule_desc;

/*  The scale of the loss, for f16, whose small gradients would be 0: ignis_scale_loss. */
typedef struct ignis_loss_scale_desc {
    double initial;   /* 65536 is usual (0: losses are not scaled) */
    double growth;    /* what it is multiplied with after interval steps without infinite gradients (2) */
    double backoff;   /* and after a step that is skipped (0.5) */
    int64_t interval; /* 2000 */
    double lowest;    /* where it stops falling, to grow again from there (1; initial, where that is less) */
} ignis_loss_scale_desc;

typedef struct ignis_adamw_desc {
    double lr;           /* 1e-3 */
    double beta1;        /* 0.9 */
    double beta2;        /* 0.999 */
    double eps;          /* 1e-8 */
    double weight_decay; /* 0 */
    ignis_schedule_desc schedule;
    bool
        no_master; /* f16 and bf16 parameters are changed as they are, without an f32 copy: saves 4 bytes each, loses small changes (false) */
    bool zero_grad; /* a step sets the gradients to zero, in the same pass (false) */
    bool
        drop_grad; /* a step leaves no gradients, so the next backward need not add to zeros: their memory, and two passes over it, are saved.
                       Those of data-parallel training stay where they are, and become zero (false) */
    bool coupled; /* Adam: weight decay is part of the gradient (false) */
    ignis_loss_scale_desc loss_scale;
} ignis_adamw_desc;

typedef struct ignis_sgd_desc {
    double lr;           /* 1e-3 */
    double momentum;     /* 0 */
    double weight_decay; /* 0 */
    ignis_schedule_desc schedule;
    bool no_master; /* these as in ignis_adamw_desc */
    bool zero_grad;
    bool drop_grad;
    ignis_loss_scale_desc loss_scale;
} ignis_sgd_desc;

typedef struct ignis_rmsprop_desc {
    double lr;           /* 1e-2 */
    double alpha;        /* 0.99 */
    double eps;          /* 1e-8 */
    double momentum;     /* 0 */
    double weight_decay; /* 0 */
    ignis_schedule_desc schedule;
    bool no_master; /* these as in ignis_adamw_desc */
    bool zero_grad;
    bool drop_grad;
    ignis_loss_scale_desc loss_scale;
} ignis_rmsprop_desc;

typedef struct ignis_lion_desc {
    double lr;           /* 1e-4 */
    double beta1;        /* 0.9 */
    double beta2;        /* 0.99 */
    double weight_decay; /* 0 */
    ignis_schedule_desc schedule;
    bool no_master; /* these as in ignis_adamw_desc */
    bool zero_grad;
    bool drop_grad;
    ignis_loss_scale_desc loss_scale;
} ignis_lion_desc;

typedef struct ignis_muon_desc {
    double lr;           /* 1e-3 */
    double momentum;     /* 0.95 */
    double weight_decay; /* 0 */
    ignis_schedule_desc schedule;
    bool like_adamw; /* steps of the size that AdamW's have, so that its lr and weight_decay serve here (false: PyTorch's "original") */
    bool no_master;  /* these as in ignis_adamw_desc */
    bool zero_grad;
    bool drop_grad;
    ignis_loss_scale_desc loss_scale;
} ignis_muon_desc;

typedef struct ignis_optimizer_info {
    int64_t step;     /* steps so far */
    double lr;        /* of the last step */
    double grad_norm; /* when gradients were clipped last, before it; with a loss scale that of the last step, too, without the scale */
    int parameters;
    double loss_scale; /* 1 where losses are not scaled */
    int64_t skipped;   /* steps, which step does not count */
} ignis_optimizer_info;

typedef enum ignis_optimizer_part {
    IGNIS_OPTIMIZER_SELF,   /* f64 [16]: learning rate, clipping, count of steps, scale of the loss */
    IGNIS_OPTIMIZER_FIRST,  /* of a parameter: momentum */
    IGNIS_OPTIMIZER_SECOND, /* mean of the squared gradients; of Muon the last step, which need not be saved */
    IGNIS_OPTIMIZER_MASTER, /* f32 copy of an f16 or bf16 parameter */
    IGNIS_OPTIMIZER_MISSED  /* f64 [1], of AdamW and Adam: steps that a parameter had no gradient for */
} ignis_optimizer_part;

/*  ignis_adamw - an optimizer by AdamW (Loshchilov and Hutter 2019): weight decay apart from the gradient; or Adam (Kingma and Ba 2015)
    ignis_sgd - by stochastic gradient descent with momentum; weight decay is part of the gradient, as in PyTorch
    ignis_rmsprop - by RMSprop (Tieleman and Hinton 2012), as in PyTorch, not centered: momentum is of the divided gradient, eps outside of the root
    ignis_lion - by Lion (Chen et al. 2023): steps of equal size along the sign of a mean; decay as AdamW's
    ignis_muon - by Muon (Jordan et al. 2024), as in PyTorch: the momentum of a matrix, with Nesterov's lead, made orthogonal by five rounds of a
    Newton-Schulz iteration in bf16 (f64 of f64). Its parameters have two dimensions; embeddings, heads and the rest take AdamW beside it. A step
    is some 25 launches and 15 products for each matrix; it is scaled by sqrt(max(1, rows / columns)), or with like_adamw by
    0.2 sqrt(max(rows, columns)) (Liu et al., Muon is Scalable for LLM Training, 2025).
    Bias is corrected by the steps that a parameter has had a gradient for: one that is added, or gets its first gradient, at step 1000 begins as
    those of step 1 did. Schedules count the optimizer's steps.
    It lives on the current device. desc may be null for all defaults.
    Returns: the optimizer, or no handle.
    Errors: ARGUMENT (a number outside its range, which none allows NaN or infinity, schedule.total), DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_optimizer_free.
    Threads: any. */
IGNIS_API ignis_optimizer ignis_adamw(const ignis_adamw_desc *desc);
IGNIS_API ignis_optimizer ignis_sgd(const ignis_sgd_desc *desc);
IGNIS_API ignis_optimizer ignis_rmsprop(const ignis_rmsprop_desc *desc);
IGNIS_API ignis_optimizer ignis_lion(const ignis_lion_desc *desc);
IGNIS_API ignis_optimizer ignis_muon(const ignis_muon_desc *desc);

/*  ignis_optimizer_add - make a tensor a parameter of an optimizer: a leaf that requires a gradient; decay: whether weight decay applies to it
    Master copies are made of the values that the tensor has now.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no leaf, no gradient required, added already, never written to), UNSUPPORTED (this thread captures a graph),
    SHAPE (Muon, and not two dimensions), DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: the optimizer keeps the tensor's memory until it is freed.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_optimizer_add(ignis_optimizer optimizer, ignis_tensor tensor, bool decay);

/*  ignis_optimizer_step - update all parameters that have a gradient
    One launch for each element type. Step count, learning rate and clipping are kept and updated on the device, so a CUDA graph of a step can be
    replayed. Without any gradient nothing happens, and no step is counted. With a loss scale the gradients are looked through first, which
    ignis_clip_grad_norm does, too, and a step with an infinity or NaN among them is skipped: parameters, state, step count and schedule stay. So does
    one whose squares add up to infinity.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no parameters), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_optimizer_step(ignis_optimizer optimizer);

/*  ignis_optimizer_zero_grad - set the gradients of all parameters to zero; their memory is kept
    Returns: IGNIS_OK, or the reason.
    Errors: as ignis_optimizer_step.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_optimizer_zero_grad(ignis_optimizer optimizer);

/*  ignis_clip_grad_norm - if the norm of all gradients together is above max_norm, let the next step scale them down to it
    The gradients themselves stay as they are: ignis_optimizer_step multiplies them as it reads them. Nothing is copied to the host;
    ignis_optimizer_query returns the norm; an infinite max_norm changes nothing else. The sum is computed in a fixed order.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (max_norm is not above 0, no parameters), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_clip_grad_norm(ignis_optimizer optimizer, double max_norm);

/*  ignis_scale_loss - a loss times the optimizer's loss scale, to begin backward with
    The next step divides the gradients by it, and clipping measures them without it. The scale is on the device, where the steps change it as
    ignis_loss_scale_desc says (Micikevicius et al., Mixed Precision Training, 2018; PyTorch's GradScaler): nothing waits, also in a graph.
    backward comes before the next step; a loss has the scale of one optimizer.
    Returns: the tensor, of f64; a loss times 1 where the optimizer has no loss scale; or no handle.
    Errors: FREED, DTYPE (a loss of f16, whose gradient the scale would be), DEVICE, and those of ignis_map.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_tensor ignis_scale_loss(ignis_optimizer optimizer, ignis_tensor loss);

/*  ignis_optimizer_set_lr - set the learning rate from the next step on, which the schedule scales
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (negative), MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_optimizer_set_lr(ignis_optimizer optimizer, double lr);

/*  ignis_optimizer_query - step count, learning rate and gradient norm of an optimizer
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT, CUDA.
    Ownership: *info is a copy.
    Threads: any. Streams: queued on the current stream of the optimizer's device, and waits for it. */
IGNIS_API ignis_status ignis_optimizer_query(ignis_optimizer optimizer, ignis_optimizer_info *info);

/*  ignis_optimizer_state - the array of a part of an optimizer's state, for saving it and, by ignis_array_copy, for restoring it
    parameter counts in the order of ignis_optimizer_add; IGNIS_OPTIMIZER_SELF ignores it. Training continues bit for bit as without the
    interruption when all parts and parameters are restored, after all parameters have been added. IGNIS_OPTIMIZER_MISSED is 0 where every step had a
    gradient of the parameter: a state that was saved without it, as before 0.5.0, needs it only where that was not so.
    Returns: the array, or no handle; a part that this optimizer or parameter does without is no failure.
    Errors: FREED, ARGUMENT (no such part or parameter).
    Ownership: the optimizer's.
    Threads: any. */
IGNIS_API ignis_array ignis_optimizer_state(ignis_optimizer optimizer, int parameter, ignis_optimizer_part part);

/*  ignis_optimizer_free - free an optimizer
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: the handle is stale afterwards; the parameters stay.
    Threads: any. */
IGNIS_API ignis_status ignis_optimizer_free(ignis_optimizer optimizer);

/* >>graph ------------------------------------------------------------------------------------------------------- */

/*  Work that was captured once and is replayed with one call. */
typedef struct ignis_graph {
    uint64_t id;
} ignis_graph;

/*  ignis_graph_begin - from here on, what the calling thread queues on its current stream is captured instead of run
    Work of other threads is not captured: it goes to their own streams. Run the same work once before: kernels are compiled, plans made
    and optimizer tables filled then. While it captures, calls that would have to wait or to read host memory (to_host, item, from_host,
    synchronize, freeing a kernel, a graph or pinned memory, adding to an optimizer) fail with IGNIS_ERROR_UNSUPPORTED and leave the capture
    as it is; so does ignis_graph_launch. Memory taken during the capture stays with the graph.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (this thread captures already), DEVICE, CUDA.
    Ownership: nothing to free; end it with ignis_graph_end.
    Threads: any; each captures for itself. Waits for the device first, and for threads that wait for it. */
IGNIS_API ignis_status ignis_graph_begin(void);

/*  ignis_graph_end - end the capture, and make the graph
    Returns: the graph, or no handle; the capture is over either way.
    Errors: ARGUMENT (nothing is captured), MEMORY, CUDA.
    Ownership: the caller frees it with ignis_graph_free. Arrays and kernels that the captured work uses are kept alive by the graph; results keep
    their handles, and each launch writes into them anew.
    Threads: the one that began. */
IGNIS_API ignis_graph ignis_graph_end(void);

/*  ignis_graph_launch - replay the captured work
    Random numbers (ignis_dropout, ignis_tensor_rand, ignis_tensor_randn) are new at each launch, and within one the same for an operation and
    its gradient. They follow from the seed and the calls before, as of the capture, and from the count of launches, which begins at 1.
    CUDA puts no graph into another one: while the current stream is captured, the launch is refused and the capture goes on.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, DEVICE (another device is current), UNSUPPORTED (the current stream is captured), CUDA.
    Ownership: unchanged.
    Threads: any; launches of one graph must not overlap on different streams. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_graph_launch(ignis_graph graph);

/*  ignis_graph_free - free a graph, and the memory that only it used
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures).
    Ownership: the handle is stale afterwards; results stay valid.
    Threads: any. Waits for the device. */
IGNIS_API ignis_status ignis_graph_free(ignis_graph graph);

/* >>file -------------------------------------------------------------------------------------------------------- */

typedef struct ignis_storage_entry {
    char name[256];    /* cut, at a whole character, to 255 bytes */
    ignis_dtype dtype; /* that ignis_load makes: of BOOL U8, of I8, I16 and U16 I32, of U32 I64; IGNIS_DTYPE_DEFAULT: it has none */
    ignis_shape shape; /* [1] for a tensor without dimensions */
    int64_t bytes;     /* in the file */
} ignis_storage_entry;

/*  ignis_save - write tensors and their names to a safetensors file
    Names are UTF-8, different from each other and not "__metadata__"; one tensor may have several. The file is identical to what the
    Python package safetensors writes for the same tensors. It is written beside path, flushed to the disk and renamed, so path holds
    the old file or the new one, whatever happens; on a failure it holds the old one. The new one has the old one's mode, and its owner and group as
    far as the system lets it; a symbolic link stays, and what it leads to is replaced; other names of the old file (hard links) keep that. So do all
    calls that write models, adapters and their descriptions. On Windows a new file has the rights that its folder gives.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (null, a count below 0, a bad name, a tensor that was never written to), FREED, CONTRACT (an array is owned by another
    layer or being saved or loaded by another thread), UNSUPPORTED (this thread captures a graph), MEMORY, IO, CUDA.
    Ownership: while it works IGNIS_OWNER_WNAIS owns the tensors' arrays. names and tensors may be reused when the call returns.
    Threads: any. Streams: reads on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_save(const char *path, const char *const *names, const ignis_tensor *tensors, int count);

/*  ignis_load - read tensors from a safetensors file by their names; what else is in the file does not matter
    Where tensors[i].id is 0 a new tensor that requires no gradient is made on the current device; else the values go into that
    tensor, whose shape and dtype must be those of the file. A tensor without dimensions counts as [1]. Numbers of a type that Ignis has not become
    those of one that holds their values, as ignis_storage_entry says. The whole header is checked, and every name found, before the first tensor is
    touched.
    Returns: IGNIS_OK, or the reason; then no tensor was made, and those given are as they were unless it is MEMORY, CUDA or IO (another process
    has shortened the file meanwhile, say).
    Errors: ARGUMENT (null, a count below 0, a name that is not in the file), FORMAT (the file is damaged, truncated or not safetensors),
    SHAPE, DTYPE (the tensor given is another than the file's), UNSUPPORTED (a dtype that Ignis does not have, or this thread captures a graph),
    FREED, CONTRACT (an array is owned by another layer or being saved or loaded by another thread), MEMORY, IO, CUDA.
    Ownership: new tensors as ignis_tensor_from_host. While it works IGNIS_OWNER_WNAIS owns the tensors' arrays.
    Threads: any. Streams: writes on the current stream, and waits for the current device. */
IGNIS_API ignis_status ignis_load(const char *path, const char *const *names, ignis_tensor *tensors, int count);

/*  ignis_storage_list - the tensors in a safetensors file, in the order of their data
    entries may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT, FORMAT (the file is damaged, truncated or not safetensors), MEMORY, IO.
    Ownership: entries are copies.
    Threads: any. */
IGNIS_API int ignis_storage_list(const char *path, ignis_storage_entry *entries, int capacity);

#endif /* IGNIS_NO_TENSORS */

#ifdef IGNIS_MODELS
#ifdef IGNIS_NO_TENSORS
#error "IGNIS_MODELS needs tensors: do not define IGNIS_NO_TENSORS"
#endif

/* >>text -------------------------------------------------------------------------------------------------------- */

/*  A tokenizer: text to the ids that a language model takes, and back. All of it is host work: no GPU is used, so after an ignis_setup with
    dry_run, which needs none, everything here does what it does elsewhere. */
typedef struct ignis_tokenizer {
    uint64_t id;
} ignis_tokenizer;

/*  What tokens are pieces of. */
typedef enum ignis_tokenizer_kind {
    IGNIS_TOKENIZER_BYTES = 1, /* of bytes: GPT-2, Llama 3, Qwen2 and 3, SmolLM */
    IGNIS_TOKENIZER_PIECES,    /* of characters, with bytes for those that are missing: Llama 2, TinyLlama */
    IGNIS_TOKENIZER_COUNT
} ignis_tokenizer_kind;

typedef struct ignis_tokenizer_info {
    ignis_tokenizer_kind kind;
    char family[16];   /* whose way to split text it has: "gpt2", "llama3", "qwen2", "smollm", "llama" (2), or "bytes": it does not split */
    int tokens;        /* ids are below it; models may have more rows than that */
    int bos, eos;      /* the ids that begin and end a text; -1: the files do not say */
    int unknown;       /* stands for what the vocabulary lacks; -1: nothing does */
    int padding;       /* fills up rows of a batch; -1: the files do not say */
    bool adds_bos;     /* true: encoding puts bos in front, unless ignis_encode_desc.no_bos is set */
    bool has_template; /* true: there is a chat template */
} ignis_tokenizer_info;

typedef struct ignis_encode_desc {
    bool no_bos; /* true: nothing is put in front of the text or behind it (what the files say, bos as a rule) */
    bool plain;  /* true: control tokens that are written in the text, such as <|im_end|>, are text like any other */
} ignis_encode_desc;

typedef struct ignis_decode_desc {
    bool control; /* true: control tokens are written out, too (left out) */
} ignis_decode_desc;

/*  ignis_tokenizer_open - open a tokenizer of Hugging Face, or that of a GGUF file
    path: tokenizer.json, or a folder with it, where tokenizer_config.json and chat_template.jinja are read, too, if they are there: they say
    what bos, eos and padding are, whether bos and eos are added, and have the chat template. truncation and padding of the file are ignored.
    Or a GGUF file, whose weights are not read.
    Returns: the tokenizer, or no handle.
    Errors: ARGUMENT (null), IO, FORMAT (damaged, or it contradicts itself), UNSUPPORTED (a model other than BPE, a normalizer, pre-tokenizer,
    post-processor, decoder or pattern that Ignis does not know, an added token of more than 256 bytes, of a vocabulary with scores a token of more
    than 1024; the message names it), MEMORY.
    Ownership: the caller frees it with ignis_tokenizer_free; the files may change afterwards.
    Threads: any. */
IGNIS_API ignis_tokenizer ignis_tokenizer_open(const char *path);

/*  ignis_tokenizer_free - free a tokenizer
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: calls of other threads that use it end as if it were still there; later ones fail.
    Threads: any. */
IGNIS_API ignis_status ignis_tokenizer_free(ignis_tokenizer tokenizer);

/*  ignis_tokenizer_query - facts about a tokenizer
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT (null).
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_tokenizer_query(ignis_tokenizer tokenizer, ignis_tokenizer_info *info);

/*  ignis_tokenizer_encode - the ids of a text, equal to those of Hugging Face's library tokenizers
    size: bytes of the text, which is UTF-8; what is not becomes U+FFFD. desc may be null. ids may be null when capacity is 0.
    Returns: how many ids there are, also when that is more than capacity, and only the first are written; -1 on failure.
    Errors: FREED, ARGUMENT (null, a size below 0 or above 2^29, a capacity below 0), MEMORY.
    Ownership: text may be freed when the call returns.
    Threads: any; one tokenizer may be used by many at once. */
IGNIS_API int ignis_tokenizer_encode(ignis_tokenizer tokenizer, const char *text, int64_t size, const ignis_encode_desc *desc, int32_t *ids,
                                     int capacity);

/*  ignis_tokenizer_decode - the text of ids
    It is bytes, also where ids that a model has made are no UTF-8 together; tokenizers has U+FFFD there. See ignis_text_stream for text that
    grows. desc may be null. out may be null when capacity is 0.
    Returns: how many bytes there are, without a 0 at the end, also when that is more than capacity, and only the first are written; -1 on failure.
    Errors: FREED, ARGUMENT (null, a count or capacity below 0, an id that the tokenizer does not have), MEMORY.
    Ownership: nothing to free.
    Threads: any; one tokenizer may be used by many at once. */
IGNIS_API int64_t ignis_tokenizer_decode(ignis_tokenizer tokenizer, const int32_t *ids, int count, const ignis_decode_desc *desc, char *out,
                                         int64_t capacity);

/*  ignis_tokenizer_piece - the bytes that an id stands for in the middle of a text; of a control token, how it is written
    Returns: how many bytes there are, 0 for an id without a token, also when that is more than capacity; -1 on failure.
    Errors: FREED, ARGUMENT (null, a capacity below 0, an id that the tokenizer does not have), MEMORY.
    Ownership: nothing to free.
    Threads: any; one tokenizer may be used by many at once. */
IGNIS_API int ignis_tokenizer_piece(ignis_tokenizer tokenizer, int32_t id, char *out, int capacity);

/*  Text that grows id by id, in whole characters. Zeroed, with a tokenizer, it is at the beginning of a text; it may be copied, and need not
    be freed. */
typedef struct ignis_text_stream {
    ignis_tokenizer tokenizer;
    bool control; /* true: control tokens are written out, too (left out) */
    bool inside;  /* true: there was text before, so a space that comes first stays */
    char held[4]; /* the beginning of a character; for Ignis, as is what follows */
    int held_count;
    int stripped;
} ignis_text_stream;

/*  ignis_text_stream_put - the text that one more id makes
    A character that is not whole yet is held back; what can become none is U+FFFD.
    Returns: how many bytes there are, often 0, without a 0 at the end. If that is more than capacity, nothing was written, and the stream is as
    before; -1 on failure.
    Errors: FREED, ARGUMENT (null, a capacity below 0, an id that the tokenizer does not have), MEMORY.
    Ownership: nothing to free.
    Threads: any; one stream by one thread at a time. */
IGNIS_API int ignis_text_stream_put(ignis_text_stream *stream, int32_t id, char *out, int capacity);

/*  ignis_text_stream_end - the text that is held back, U+FFFD as it is no whole character; the stream is at the beginning of a text again
    Returns: how many bytes there are, 0 or 3. If that is more than capacity, nothing was written, and the stream is as before; -1 on failure.
    Errors: ARGUMENT (null, a capacity below 0), NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; one stream by one thread at a time. */
IGNIS_API int ignis_text_stream_end(ignis_text_stream *stream, char *out, int capacity);

/* >>chat -------------------------------------------------------------------------------------------------------- */

/*  One message of a chat. */
typedef struct ignis_message {
    const char *role;    /* "system", "user", "assistant" and what else the template knows */
    const char *content; /* null: none */
} ignis_message;

/*  How a chat becomes a text. Zero for all: the tokenizer's template, no beginning of an answer, no variables. */
typedef struct ignis_chat_desc {
    const char *chat_template;  /* null: the tokenizer's own */
    bool add_generation_prompt; /* true: the text ends where the assistant's answer begins */
    const char *json;           /* an object of variables: {"tools": [...], "enable_thinking": false}; null: none */
    int64_t now;                /* seconds since 1970, which strftime_now tells as local time; 0: those of the clock */
} ignis_chat_desc;

/*  ignis_chat_render - the text that a chat becomes by a chat template
    A template is a program in Jinja. It is run as Hugging Face's transformers runs it (trim_blocks, lstrip_blocks, break and continue, tojson,
    raise_exception, strftime_now, {% generation %} without effect), and the text has the same bytes. It knows messages, tools and documents
    (none), add_generation_prompt, the tokenizer's bos_token, eos_token, unk_token and pad_token as far as there are such, and the
    variables of desc.json, which come last: "messages" among them takes the place of the messages given, so that these can have more than a
    role and a content, such as "tool_calls". Of a message's "reasoning_content", "thinking" and "reasoning" the first that is there becomes its
    "reasoning_content", and its "thinking" where it has none. Of Jinja there are: text, comments, raw, if, for (also with a condition, else, break,
    continue, loop.), set, set blocks, with, macro, call, filter, all operators but **, slices, and the filters, tests, methods and functions of a
    table; letters have the cases of Unicode 14, and whole numbers are of 64 bits. A failure says the line and column in the template. A template is
    stopped after 2e7 steps, which count all that takes time, 256 MiB of host memory, or 250 nested calls and blocks.
    tokenizer: may be no handle where desc.chat_template is given. desc may be null. Text that is no UTF-8 becomes U+FFFD, byte by byte. out may
    be null when capacity is 0.
    Returns: how many bytes there are, without a 0 at the end, also when that is more than capacity, and only the first are written; -1 on
    failure.
    Errors: FREED, ARGUMENT (null, a count or capacity below 0, no template, a template that is not sound, fails or refuses the messages,
    variables that are no JSON), UNSUPPORTED (what the template uses is missing here, by name; its limits), MEMORY.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int64_t ignis_chat_render(ignis_tokenizer tokenizer, const ignis_message *messages, int count, const ignis_chat_desc *desc,
                                    char *out, int64_t capacity);

/*  ignis_chat_encode - the ids that a chat becomes: its text, rendered as above and encoded, without a bos but that of the template
    A control token is one only where all of it is the template's text. What came from the messages or from desc.json, through whatever the
    template does with it, is text like any other, so that nobody can end his turn or begin another's by writing <|im_end|>; but for such
    text the ids are those of the rendered text as a whole. Variables whose name ends in _token, such as "bos_token", count as the template's text,
    and so does a message's role that is a word of letters, digits, _ and -: a template may put a control token together around it.
    Added tokens that are no control tokens, such as <think>, are themselves everywhere. ids may be null when capacity is 0.
    Returns: how many ids there are, also when that is more than capacity, and only the first are written; -1 on failure.
    Errors: those of ignis_chat_render, UNSUPPORTED (a control token that is only found in normalized text, beside text of a message), and
    ARGUMENT where there is no tokenizer.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_chat_encode(ignis_tokenizer tokenizer, const ignis_message *messages, int count, const ignis_chat_desc *desc,
                                int32_t *ids, int capacity);

/* >>grammar ----------------------------------------------------------------------------------------------------- */

/*  ignis_grammar_check - whether ignis_sequence_grammar takes a grammar
    A text that begins with { is a JSON schema. Of its keywords there are: type, enum, const, properties, required, additionalProperties (false;
    where there are no properties also true and a schema), items, minItems, maxItems, minLength, maxLength, anyOf, oneOf (taken as anyOf), $ref to
    "#" and "#/..." (a JSON pointer, also into arrays), $defs, definitions; title, description, default, examples, $schema, $id, $comment, deprecated,
    readOnly and writeOnly say nothing about texts. Others are refused by name, as are enum, const, anyOf, oneOf and $ref beside keywords other
    than a type of enum and const. Without a type it is that of the keywords. Texts are JSON with the properties that the schema names, in its
    order, little white space, and numbers of up to 16 digits, 16 decimals, and exponents of two.
    Any other text is GBNF as of llama.cpp: rules "name ::= ...", of which root is the text; literals, classes [a-z] and [^a-z], the point for any
    character, names, groups, alternatives, * + ? {n} {n,} {n,m}, comments from # on, the escapes \n \r \t \\ \" \[ \] \xFF \uFFFF \UFFFFFFFF. No
    rule may begin with itself. Rules may be within 500 others in a text: deeper ones are not drawn.
    Returns: IGNIS_OK, or the reason, with line and column, or the byte of the schema.
    Errors: ARGUMENT (null, no sound grammar, none of whose texts ends), UNSUPPORTED (a keyword of schemas that Ignis does not have, too large, too
    ambiguous a grammar), MEMORY.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_grammar_check(const char *grammar);

/* >>model ------------------------------------------------------------------------------------------------------- */

/*  A model that was opened: its weights on a device, its description, its tokenizer. */
typedef struct ignis_model {
    uint64_t id;
} ignis_model;

typedef enum ignis_model_family {
    IGNIS_MODEL_GPT2 = 1,
    IGNIS_MODEL_LLAMA, /* Llama 2 and 3, TinyLlama, SmolLM, SmolLM2 */
    IGNIS_MODEL_QWEN2, /* and Qwen2.5 */
    IGNIS_MODEL_QWEN3,
    IGNIS_MODEL_FAMILY_COUNT
} ignis_model_family;

/*  The GPUs that share a model, one rank each: ignis_comm_parallel of ignis_collective.h makes it of a communicator. rank and size are enough for
    ignis_model_inspect. */
typedef struct ignis_model_parallel {
    int rank, size; /* 0, 0: the whole model is here */
    uint64_t group; /* that the functions get */
    /* array = its sum over the ranks, the same bits on all: queued on the current stream, captured by graphs */
    ignis_status (*sum_fn)(uint64_t group, ignis_array array);
    ignis_status (*check_fn)(uint64_t group); /* what went wrong in the sums that are done; does not wait */
} ignis_model_parallel;

/*  How the matrices of a model lie on the device. Norms, biases and GPT-2's positions are numbers of the model's dtype always. */
typedef enum ignis_weights {
    IGNIS_WEIGHTS_DEFAULT = 0, /* quantised as in the file, if they are; numbers of the dtype with requires_grad or parallel */
    IGNIS_WEIGHTS_NUMBERS,     /* numbers of the dtype */
    IGNIS_WEIGHTS_Q8_0,        /* all quantised: 34 bytes for 32 elements, */
    IGNIS_WEIGHTS_Q4_0,        /* 18 for 32, */
    IGNIS_WEIGHTS_Q4_K,        /* 144 for 256; where rows are no multiples of 256 elements, Q8_0 */
    IGNIS_WEIGHTS_COUNT
} ignis_weights;

typedef struct ignis_model_desc {
    const char *path; /* required: a folder with config.json and model.safetensors (or its shards), or a .gguf file */
    ignis_dtype
        dtype; /* of what is computed, and of weights that are not quantised: f32, f16, bf16 or f64 (that of most in the file; else bf16) */
    ignis_weights weights;   /* whether matrices are quantised (as in the file) */
    int device;              /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    bool requires_grad;      /* whether ignis_backward computes gradients for the weights (false) */
    int context;             /* tokens that a sequence has room for (the model's, but at most 4096) */
    int sequences;           /* that are there at a time (1) */
    ignis_dtype cache_dtype; /* of their keys and values: f32, f16 or bf16 (dtype, and no other is taken by ignis_sequence_begin) */
    bool (*progress_fn)(int64_t done, int64_t total, void *user_data); /* bytes of the file that were read; false stops (none) */
    void *user_data;                                                   /* for progress_fn */
    ignis_model_parallel parallel;                                     /* the ranks that share the model, of which this is one (none) */
} ignis_model_desc;

typedef struct ignis_model_info {
    ignis_model_family family;
    int layers, hidden, heads, kv_heads, head_dim, inner, vocab;
    int model_context;            /* tokens that the model was made for */
    int context, sequences;       /* as in ignis_model_desc, filled in */
    ignis_dtype dtype;            /* of what is computed, and of weights that are not quantised */
    ignis_dtype cache_dtype;      /* of the keys and values of sequences */
    bool tied;                    /* one table serves as embedding and head */
    int rank, ranks;              /* that share it, and this one; 0, 1: nobody else. What follows is this rank's share */
    int64_t parameters;           /* numbers in the weights */
    int64_t quantised;            /* of them, those that are quantised on the device */
    int64_t file_bytes;           /* of the weights in the file */
    int64_t weight_bytes;         /* of the weights on the device */
    int64_t cache_bytes_of_token; /* keys and values of all layers */
    int64_t cache_bytes;          /* those of all sequences at their full context */
    int64_t workspace_bytes;      /* what a pass over the first 512 tokens of a sequence takes besides, about */
    int32_t ends[16];             /* tokens that end a text: see ignis_model_inspect */
    int end_count;                /* of ends; 0: there are none */
} ignis_model_info;

/*  ignis_model_inspect - what a model is and how much memory it will take, from its files alone: no device is needed, nor ignis_setup
    All of a model but the values of its weights is checked, as ignis_model_open does. With desc->parallel.rank and .size it is
    about that rank's share.
    info->ends: of a folder those of generation_config.json, or else of config.json; of a GGUF file those that its keys name (eos_token_id,
    eot_token_id, eom_token_id, ...), and tokens of its vocabulary that llama.cpp knows by their texts (<|eot_id|>, <|im_end|>, <end_of_turn>, ...).
    A tensor of the files that the family has no use for is refused by name. These alone are passed over, in folders: rotary_emb.inv_freq; of GPT-2
    attn.bias, the causal mask, and attn.masked_bias; lm_head.weight where tie_word_embeddings is true.
    Returns: IGNIS_OK, and *info filled, or the reason.
    Errors: ARGUMENT (null, a number or dtype of desc out of its range), IO (a file is missing or cannot be read), FORMAT (a damaged file; a
    description that is not complete or contradicts itself or the weights: which is missing, or has another shape), UNSUPPORTED (another
    family, a tensor that it has no use for, a GGUF file that is a part of several, or something in the description or a type of weights that
    Ignis does not have: the message names it and its value; sizes of which the ranks of desc->parallel cannot have equal shares; these with
    requires_grad), MEMORY.
    Ownership: info is the caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_model_inspect(const ignis_model_desc *desc, ignis_model_info *info);

/*  ignis_model_open - read a model from its files to a device
    Families go by "model_type" of config.json, or "general.architecture" of a GGUF file. Weights in safetensors files are F32, F16, BF16 or
    F64; in GGUF files also Q8_0, Q4_0, Q4_1, Q4_K, Q5_K and Q6_K. By default matrices stay quantised, but for Q4_1 and Q5_K; these become numbers
    of the model's dtype, as does a weight of several tensors (q, k and v; gate and up) of which one is not quantised, and gate and up where their
    types differ. IGNIS_WEIGHTS_Q8_0, _Q4_0 and _Q4_K quantise every matrix, whatever it is in the file, but for those whose rows are no multiples of
    32 elements; Q8_0 and Q4_0 give the blocks that ggml's reference does. Several threads read and convert while others' parts are copied;
    desc->progress_fn is called on the caller's thread. With desc->parallel a rank reads and has its share, in numbers of the dtype: only sequences
    work with that.
    Returns: the model, or no handle.
    Errors: those of ignis_model_inspect; IO (desc->progress_fn has returned false), DEVICE, UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the caller's, until ignis_model_free; the weights are the model's, whatever scope is current.
    Threads: any. Streams: writes on the current stream, and waits for it. */
IGNIS_API ignis_model ignis_model_open(const ignis_model_desc *desc);

/*  ignis_model_query - what a model is
    Returns: IGNIS_OK, and *info filled, or the reason.
    Errors: ARGUMENT (null info), FREED.
    Ownership: info is the caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_model_query(ignis_model model, ignis_model_info *info);

/*  ignis_model_tensor - a weight by its Hugging Face name, such as "model.norm.weight" or "transformer.h.0.mlp.c_fc.weight"
    Weights that one product reads are one tensor: "model.layers.0.self_attn.qkv_proj.weight" has the rows of q_proj, k_proj and v_proj, and
    "model.layers.0.mlp.gate_up_proj.weight" those of gate_proj and up_proj; their biases likewise. The name of one of its parts gives a new
    tensor over those rows, which shares their memory and requires no gradient: for reading and writing values. Weights of products are [out,
    in], those of GPT-2 too, whose files have them the other way round. A tied head is its embedding. The name of a quantised weight, or of a part
    of it, gives a new tensor with a copy of its numbers in the model's dtype: for reading.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (null, no such weight), FREED, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: a weight is the model's: do not release it; a part as ignis_tensor_from_array, a copy as ignis_tensor_from_host.
    Threads: any. Streams: copies are queued on the current stream. */
IGNIS_API ignis_tensor ignis_model_tensor(ignis_model model, const char *name);

/*  ignis_model_tokenizer - the tokenizer in a model's folder, or in its GGUF file
    It is opened by the first call, so that who has ids only, in training say, neither needs one nor waits for it.
    Returns: the tokenizer, or no handle.
    Errors: FREED, and those of ignis_tokenizer_open: IO where the folder has none.
    Ownership: the model's: do not free it.
    Threads: any. */
IGNIS_API ignis_tokenizer ignis_model_tokenizer(ignis_model model);

/*  ignis_model_weights - all weights of a model that are not quantised, each once: what an optimizer gets
    tensors may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT, FREED.
    Ownership: the tensors are the model's: do not release them.
    Threads: any. */
IGNIS_API int ignis_model_weights(ignis_model model, ignis_tensor *tensors, int capacity);

/*  ignis_model_forward - the scores of every next token, for whole texts
    Shapes: ids [seq] or [batch, seq], of i32 or i64, from position 0; the result is [seq, vocab] or [batch, seq, vocab]. Each place sees those
    before it. Made of Ignis' operations, and recorded as they are: with ignis_model_desc.requires_grad a model is trained through it. Adapters that
    are set (ignis_model_set_lora) take part. Gradients pass quantised weights, to adapters, and the tape keeps the blocks alone.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (ids of other shapes, or longer than GPT-2's positions), UNSUPPORTED (a share of a model), and those of
    ignis_embedding, ignis_linear, ignis_rope,
    ignis_sdpa and the norms.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_model_forward(ignis_model model, ignis_tensor ids);

/*  ignis_model_save - write a model as a folder, which transformers and ignis_model_open open: config.json and model.safetensors
    Names and layouts are those of Hugging Face; the dtype is the model's, of which quantised weights are written as numbers. The folder is made if
    need be. What the folder that the model was opened from still has of a tokenizer, a chat template and generation_config.json is copied, file by
    file: tokenizer.json, tokenizer_config.json, special_tokens_map.json, added_tokens.json, chat_template.jinja and .json, vocab.json, merges.txt,
    tokenizer.model. A GGUF
    file has nothing to copy. Adapters (>>lora) are not part of it before they are merged.
    Returns: IGNIS_OK, or the reason; then the folder may have some of the files, each of them whole.
    Errors: ARGUMENT (null), FREED, UNSUPPORTED (this thread captures a graph; a share of a model; a GGUF file's own frequencies, which
    config.json has no words for), and those of ignis_save.
    Ownership: as ignis_save.
    Threads: any. Streams: reads on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_model_save(ignis_model model, const char *folder);

/*  ignis_model_free - free a model and its weights
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: the handle is stale afterwards, and those of the weights are when no sequence, no adapters and no call of another thread use the model
    any more. What the tape needs of them stays until ignis_backward or ignis_tape_clear.
    Threads: any. Calls of other threads that use it end as if it were still there. */
IGNIS_API ignis_status ignis_model_free(ignis_model model);

/* >>lora -------------------------------------------------------------------------------------------------------- */

/*  Adapters of a model: pairs of narrow matrices beside some of its products. */
typedef struct ignis_lora {
    uint64_t id;
} ignis_lora;

typedef struct ignis_lora_desc {
    int rank;       /* rows of A and columns of B, at most 65536 (8) */
    double alpha;   /* what A and B give is multiplied by alpha / rank (rank) */
    bool rslora;    /* by alpha / sqrt(rank) instead (Kalajdzievski 2023, arXiv 2312.03732) (false) */
    double dropout; /* so much of the input of A is left out while gradients are recorded: not inside of ignis_no_grad_begin (0) */
    const char *const *targets; /* products that get an adapter, by the end of their names in whole words: "q_proj", "mlp.c_proj",
                                   "layers.3.mlp.up_proj"; "all-linear" is all (as PEFT: "c_attn" of GPT-2, else "q_proj" and "v_proj") */
    int target_count;           /* of targets */
    ignis_dtype
        dtype;     /* of A and B: f16, bf16, f32 or f64; where the model's is another one, what they work on is converted (the model's) */
    uint64_t seed; /* of A: equal ones begin alike (0) */
} ignis_lora_desc;

typedef struct ignis_lora_info {
    int rank, adapters; /* adapters: products that have one */
    double alpha, dropout, scale;
    bool rslora;
    bool set, merged; /* on the model by ignis_model_set_lora; into its weights by ignis_lora_merge */
    ignis_dtype dtype;
    int64_t parameters; /* numbers in all A and B */
} ignis_lora_info;

/*  ignis_lora_create - make adapters for a model
    A [rank, in] is uniform within 1 / sqrt(in), which is what PEFT's Kaiming initialisation comes to, and B [out, rank] is 0: at first they change
    nothing. Products of the layers can have one, the head and the embedding cannot. desc may be null for all defaults.
    Returns: the adapters, which are not set yet; or no handle.
    Errors: FREED, ARGUMENT (a number or dtype of desc out of its range, null, a target that names no product: the message has the names),
    UNSUPPORTED (this thread captures a graph), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: the caller's, until ignis_lora_free, whatever scope is current. They keep the model's memory alive, its handle they do not.
    Threads: any. Streams: queued on the current stream of the model's device. */
IGNIS_API ignis_lora ignis_lora_create(ignis_model model, const ignis_lora_desc *desc);

/*  ignis_lora_open - read adapters as PEFT writes them: a folder with adapter_config.json and adapter_model.safetensors
    Which products have one is what the file of tensors says. A and B keep the file's dtype, and can be trained on, with the file's dropout. What
    would compute something else is refused by its name: DoRA, biases, modules_to_save, patterns of ranks or alphas, initialisations that change the
    base (PiSSA, OLoRA), and every key that Ignis does not know, unless it is null, false, 0 or empty.
    Returns: the adapters, which are not set yet; or no handle.
    Errors: FREED, ARGUMENT (null), IO (a file is missing or cannot be read), FORMAT (a damaged file; a number that is missing or out of its range; a
    tensor that is missing, has no place in the model, or another shape), UNSUPPORTED (as above, named with its value; dtypes that differ; this
    thread captures a graph), MEMORY, CUDA.
    Ownership: as ignis_lora_create.
    Threads: any. Streams: writes on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_lora ignis_lora_open(ignis_model model, const char *folder);

/*  ignis_model_set_lora - let ignis_model_forward use adapters, in place of those before; no handle: none
    Sequences (>>generate) do not: while adapters are set, calls that compute tokens fail with IGNIS_ERROR_UNSUPPORTED. Merge them first, or set none.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (adapters of another model, or merged ones).
    Ownership: unchanged; freeing the adapters takes them off.
    Threads: any; a forward that runs goes on with those it began with. */
IGNIS_API ignis_status ignis_model_set_lora(ignis_model model, ignis_lora lora);

/*  ignis_lora_query - what there is to know about adapters
    Returns: IGNIS_OK, and *info filled, or the reason.
    Errors: FREED, ARGUMENT (null info).
    Ownership: info is the caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_lora_query(ignis_lora lora, ignis_lora_info *info);

/*  ignis_lora_weights - A and B of every adapter, by layers: what an optimizer gets
    tensors may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: FREED, ARGUMENT.
    Ownership: the tensors are the adapters': do not release them.
    Threads: any. */
IGNIS_API int ignis_lora_weights(ignis_lora lora, ignis_tensor *tensors, int capacity);

/*  ignis_lora_save - write adapters as a folder that PEFT and ignis_lora_open open: adapter_config.json and adapter_model.safetensors
    The folder is made if need be. base_model_name_or_path is the path that the model was opened from. Merged ones can be saved, too.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (null), FREED, UNSUPPORTED (this thread captures a graph), and those of ignis_save.
    Ownership: as ignis_save.
    Threads: any. Streams: reads on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_lora_save(ignis_lora lora, const char *folder);

/*  ignis_lora_merge - add scale B A to the model's weights, for good: the model then is one without adapters, and as fast
    B A is computed in f32 (f64 in f64), and each weight rounded once, to the model's dtype. There is no way back: what was rounded off is lost, and
    taking B A off again would not bring it back. To have the old weights, open the model again. Keys and values of sequences that exist stay those of
    the old weights. The adapters are taken off the model, and can still be saved.
    Returns: IGNIS_OK, or the reason; after a failure some weights may be merged, and another call goes on with the others.
    Errors: FREED, ARGUMENT (merged already, or by another thread now), UNSUPPORTED (this thread captures a graph; the model has quantised
    weights), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any, while no other one uses the model. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_lora_merge(ignis_lora lora);

/*  ignis_lora_free - free adapters, and take them off their model
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: the handle and those of A and B are stale afterwards. What the tape needs of them stays until ignis_backward or ignis_tape_clear.
    Threads: any. Calls of other threads that use them end as if they were still there; A and B are stale then. */
IGNIS_API ignis_status ignis_lora_free(ignis_lora lora);

/* >>generate ---------------------------------------------------------------------------------------------------- */

/*  Tokens of a text, and what a model's cache has of them. */
typedef struct ignis_sequence {
    uint64_t id;
} ignis_sequence;

/*  What is added to the logit of a token. */
typedef struct ignis_logit_bias {
    int32_t id;
    float bias; /* -infinity forbids the token */
} ignis_logit_bias;

/*  How a token is drawn from logits, in this order: biases, repetition penalty, the sequence's grammar, temperature, top_k, top_p, min_p - the
    order of Hugging Face's processors; llama.cpp has the temperature last. */
typedef struct ignis_sampling_desc {
    double temperature;             /* logits are divided by it; 0: always the likeliest token, the lowest one of equals (0) */
    int top_k;                      /* of the likeliest so many, and those that are equal to the last (all) */
    double top_p;                   /* of the fewest that have this much of the probability (all) */
    double min_p;                   /* of those with this much of the likeliest one's probability (all) */
    double repetition_penalty;      /* logits of tokens that were there are divided by it, negative ones multiplied (1) */
    int penalty_window;             /* were there among the latest so many (all) */
    uint64_t seed;                  /* equal ones draw the same tokens behind the same ids, whatever else a step computes (0) */
    const ignis_logit_bias *biases; /* in rising order of their ids (none) */
    int bias_count;                 /* at most 512 */
} ignis_sampling_desc;

typedef struct ignis_sequence_info {
    int length, context; /* tokens that it has, and may have */
    int free_tokens;     /* that the cache has whole pages for, for all sequences of the model */
    double log_prob;     /* of the token drawn last, by the model itself: at temperature 1, nothing cut off */
} ignis_sequence_info;

/*  ignis_sequence_begin - a new sequence of a model, without a token
    The first one of a model makes its cache, in pages of 16 tokens, for ignis_model_desc.sequences sequences of ignis_model_desc.context tokens;
    there may be more, if they are shorter or share what they begin with.
    Returns: the sequence, or no handle.
    Errors: FREED, UNSUPPORTED (this thread captures a graph; heads of more than 256 elements or of no multiple of 8, more than 2^19 tokens; a
    cache_dtype that is not the model's), MEMORY (also where the device has no room for the cache), LIBRARY, COMPILE, CUDA.
    Ownership: the caller frees it with ignis_sequence_free. It keeps the model's memory alive.
    Threads: any; calls for sequences of one model wait for each other. With ignis_model_desc.parallel all ranks make the same calls in the same
    order, and those that compute also fail with MISMATCH, TIMEOUT and PEER: what ranks disagree about, and ranks that do not come or have died.
    Streams: the first one works on the current stream of the model's device. */
IGNIS_API ignis_sequence ignis_sequence_begin(ignis_model model);

/*  ignis_sequence_feed - append tokens, and compute their keys and values
    They are computed now, 512 at a time. More than 64 at a time take the kernels of ignis_matmul and ignis_sdpa, which are many times as fast, and
    round otherwise; of fewer the last one is computed when its logits are needed.
    Returns: IGNIS_OK, or the reason; then the sequence is as it was.
    Errors: FREED, ARGUMENT (null, a count below 0, an id that the model has not, more tokens than the context), MEMORY (the cache is full; the
    message has the numbers), UNSUPPORTED (this thread captures a graph; adapters are set), LIBRARY, COMPILE, CUDA.
    Ownership: ids may be reused when the call returns.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_feed(ignis_sequence sequence, const int32_t *ids, int count);

/*  ignis_sequence_next - draw a token behind the last one, and append it
    The bits of all logits are the same alone, in any batch, in a fork, after truncating and feeding: they follow from the ids, and from which of
    them were computed more than 64 at a time. sampling may be null: the likeliest token.
    On devices of compute capability 9.x a step of one sequence, of a model in f16 or bf16 whose weights are not quantised, or are 16 to 128 MB a
    layer then (56 MB where some are Q8_0), is one launch whose blocks wait for each other (a cooperative launch): it begins when other work has
    left room for one on each multiprocessor. Not where heads of more than 128 elements have norms.
    Returns: the token; -1 on failure, and then the sequence is as it was.
    Errors: FREED, ARGUMENT (no token yet, the context is full, a number of sampling outside of its range; no token can be drawn: all are forbidden,
    or no logit is a number above minus infinity), MEMORY (the cache is full), UNSUPPORTED (this thread captures a graph; adapters are set), LIBRARY,
    COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API int32_t ignis_sequence_next(ignis_sequence sequence, const ignis_sampling_desc *sampling);

/*  ignis_sequence_next_all - ignis_sequence_next of sequences of one model, in one step: the weights are read once for all
    sampling: one for each of them; null: the likeliest tokens. Steps of 1, 2, 4, ... sequences are captured as graphs when they come for the second
    time; up to 64 at once, or as many as ignis_model_desc.sequences, but 8 at least.
    Returns: IGNIS_OK, with the tokens in ids; or the reason, and then ids are -1 and all sequences as they were; but where no token can be drawn for
    some, the others go on: those of which ids has a token.
    Errors: those of ignis_sequence_next; ARGUMENT (null, a count below 0, sequences of different models, one of them twice).
    Ownership: unchanged.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_next_all(const ignis_sequence *sequences, int count, const ignis_sampling_desc *sampling,
                                               int32_t *ids);

/*  ignis_sequence_logits - what the model says of the token behind the last one
    count: the tokens that the model has.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null, no token yet, another count), MEMORY (the cache is full), UNSUPPORTED (this thread captures a graph; adapters
    are set), LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_logits(ignis_sequence sequence, float *logits, int count);

/*  ignis_sequence_length - how many tokens it has
    Returns: the number; -1 on failure.
    Errors: FREED.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API int ignis_sequence_length(ignis_sequence sequence);

/*  ignis_sequence_query - what there is to know about it
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT.
    Ownership: info is a copy.
    Threads: any. */
IGNIS_API ignis_status ignis_sequence_query(ignis_sequence sequence, ignis_sequence_info *info);

/*  ignis_sequence_ids - its tokens, from the first one on
    ids may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: FREED, ARGUMENT.
    Ownership: ids are copies.
    Threads: any. */
IGNIS_API int ignis_sequence_ids(ignis_sequence sequence, int32_t *ids, int capacity);

/*  ignis_sequence_truncate - leave the first `length` tokens
    Pages of the cache that nobody needs any more are free for others.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (below 0, or more than it has), UNSUPPORTED (this thread captures a graph).
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_sequence_truncate(ignis_sequence sequence, int length);

/*  ignis_sequence_fork - a second sequence that begins with the same tokens
    Both share the pages of the cache; who writes to a page that others have too gets a copy of it first. Give both different seeds to draw
    different texts.
    Returns: the sequence, or no handle.
    Errors: FREED, UNSUPPORTED (this thread captures a graph), MEMORY.
    Ownership: the caller frees it with ignis_sequence_free.
    Threads: any. */
IGNIS_API ignis_sequence ignis_sequence_fork(ignis_sequence sequence);

/*  ignis_sequence_grammar - have what comes behind the sequence's tokens drawn by a grammar, which begins here; null: no grammar any more
    Of the tokens only those can be drawn from which on the text can still become one of the grammar's: others are left out ahead of temperature
    and the rest, whatever the biases. Those that end texts (ignis_model_info.ends, the tokenizer's eos) can be drawn where it may end, other control
    tokens never. Tokens that are fed have to keep to the grammar, too, which the next draw checks. Forks go on with it. After a truncation it is
    where the text is then; where tokens ahead of its beginning are cut off, it begins at the new end. ignis_generate ends with IGNIS_ENDING_GRAMMAR
    where nothing can come but the end. Equal seeds draw equal texts, whatever else is in a step; tokens are not drawn ahead. What a grammar
    is: ignis_grammar_check. Sequences of a model share what was found out about one. Where a text comes to a place of it for the first time, that
    takes time of the host: of JSON with 128k tokens 0.1 ms on average and 2.6 ms at most in one measured text, on one CPU.
    Returns: IGNIS_OK, or the reason; then the sequence is as it was. Later draws fail with ARGUMENT where fed tokens do not keep to the grammar, or
    none can follow, and with UNSUPPORTED where the text is at too many places of it at once.
    Errors: FREED, those of ignis_grammar_check and of ignis_model_tokenizer; UNSUPPORTED (this thread captures a graph).
    Ownership: grammar may be reused when the call returns.
    Threads: any. */
IGNIS_API ignis_status ignis_sequence_grammar(ignis_sequence sequence, const char *grammar);

/*  ignis_sequence_free - free a sequence, and what only it has of the cache
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures a graph).
    Ownership: the handle is stale afterwards.
    Threads: any. Calls of other threads that use it end as if it were still there, and it gives up what it has of the cache then. */
IGNIS_API ignis_status ignis_sequence_free(ignis_sequence sequence);

/*  Why a text has ended. */
typedef enum ignis_ending {
    IGNIS_ENDING_NONE = 0, /* it has not: there was a failure */
    IGNIS_ENDING_TOKEN,    /* the model has drawn a token that ends texts */
    IGNIS_ENDING_STOP,     /* one of desc.stops has come */
    IGNIS_ENDING_LENGTH,   /* there are desc.max_tokens */
    IGNIS_ENDING_CONTEXT,  /* the context is full */
    IGNIS_ENDING_CALLER,   /* desc.text_fn has returned false */
    IGNIS_ENDING_GRAMMAR,  /* nothing can come any more by the sequence's grammar */
    IGNIS_ENDING_COUNT
} ignis_ending;

typedef struct ignis_generate_info {
    ignis_ending ending;
    int tokens;            /* that were drawn, with the one that ended the text */
    int stop;              /* the number of the stop that has come; -1: none */
    double seconds, first; /* that all of them, and the first one, have taken */
} ignis_generate_info;

typedef struct ignis_generate_desc {
    ignis_sampling_desc sampling;
    int max_tokens;      /* (as many as the context has room for) */
    const int32_t *ends; /* tokens that end the text, and are not shown; with end_count below 0: none (those that the model's files name) */
    int end_count;       /* of ends (0: those of the model) */
    const char *const *stops; /* texts that end it, and are not shown, nor what comes behind them (none) */
    int stop_count;
    bool (*text_fn)(const char *text, size_t size,
                    void *user_data); /* gets the text as it grows, in whole characters; false ends it (none) */
    void *user_data;                  /* for text_fn */
    ignis_generate_info *info;        /* is filled in, if it is not null */
} ignis_generate_desc;

/*  ignis_sequence_set - make a sequence consist of these tokens
    What it has in common with them from the first one on stays, and is not computed again: the way to go on with a talk whose text is made anew
    every turn.
    Returns: IGNIS_OK, or the reason; then it may have only what both have in common, and after ARGUMENT is as it was.
    Errors: those of ignis_sequence_feed.
    Ownership: ids may be reused when the call returns.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_set(ignis_sequence sequence, const int32_t *ids, int count);

/*  ignis_sequence_chat - make a sequence consist of a talk, up to where the model's answer begins
    As ignis_sequence_set of what ignis_chat_encode makes of the messages by the model's own template, with add_generation_prompt. Text of messages
    never becomes a control token.
    Returns: IGNIS_OK, or the reason; then it may have only what both have in common.
    Errors: those of ignis_sequence_feed, ignis_model_tokenizer and ignis_chat_encode.
    Ownership: messages may be reused when the call returns.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_chat(ignis_sequence sequence, const ignis_message *messages, int count);

/*  ignis_sequence_text - append a text
    As ignis_sequence_feed of what the model's tokenizer makes of it. What the files put in front of texts (bos) comes if the sequence has no token
    yet. size: bytes of the text, which is UTF-8. Control tokens such as <|im_end|> are control tokens.
    Returns: IGNIS_OK, or the reason; then the sequence is as it was.
    Errors: those of ignis_sequence_feed, ignis_model_tokenizer and ignis_tokenizer_encode.
    Ownership: text may be reused when the call returns.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_text(ignis_sequence sequence, const char *text, int64_t size);

/*  ignis_generate - draw tokens until the text ends, and show it as it grows
    A stop may lie across tokens: what could still become one is held back, and never shown if it does. A token that ends the text, and those that
    make a stop, stay in the sequence. desc may be null.
    Returns: IGNIS_OK when the text has ended, for whatever reason: desc->info has it; else the reason of the failure, and the tokens so far stay.
    Errors: those of ignis_sequence_next; ARGUMENT (a count below 0, a stop that is null or empty, max_tokens below 0); those of
    ignis_model_tokenizer where there is a text_fn or a stop.
    Ownership: text is valid inside text_fn alone.
    Threads: any; text_fn is called on the caller's, and may call Ignis. Streams: works on the current stream of the model's device, and waits for
    it. */
IGNIS_API ignis_status ignis_generate(ignis_sequence sequence, const ignis_generate_desc *desc);

/*  What a model is to be ready for. */
typedef struct ignis_model_warmup_desc {
    int sequences;                                             /* of one step, at most (ignis_model_desc.sequences) */
    int tokens;                                                /* of one ignis_sequence_feed, at most (512) */
    bool (*progress_fn)(int done, int total, void *user_data); /* parts of the work that are done; false stops (none) */
    void *user_data;                                           /* for progress_fn */
} ignis_model_warmup_desc;

/*  ignis_model_warmup - compile the kernels that sequences of a model use, measure its products and capture its steps as graphs
    Without it the first call of each size does so, which takes seconds where the cache of kernels is empty. It computes on sequences of its own:
    steps of 1, 2, 4, ... sequences with each way of drawing tokens, prompts of each length class up to desc->tokens, and one of the whole context.
    Later calls with at most desc->sequences and desc->tokens compile nothing. While programs are recorded (ignis_desc.record), a record with it
    has all that sequences of the model take. desc may be null.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (a number below 0), IO (desc->progress_fn has returned false), and those of ignis_sequence_begin, _feed and _next_all:
    MEMORY where other sequences have left too little of the cache.
    Ownership: nothing to free; its sequences are freed.
    Threads: any; calls for sequences of the model wait between its parts. progress_fn is called on the caller's. Streams: works on the current
    stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_model_warmup(ignis_model model, const ignis_model_warmup_desc *desc);

#endif /* IGNIS_MODELS */

/* >>dlpack ------------------------------------------------------------------------------------------------------ */

/*  The structs of DLPack (github.com/dmlc/dlpack), under names of Ignis: they are laid out as DLTensor, DLManagedTensor and
    DLManagedTensorVersioned are, and a pointer to one may be cast to the other. */
typedef struct ignis_dlpack_tensor {
    void *data;
    int32_t device_type, device_id; /* 2: memory of a CUDA device */
    int32_t ndim;
    uint8_t code, bits; /* 0: integers, 1: unsigned ones, 2: floating-point numbers, 4: bf16, 6: bool */
    uint16_t lanes;
    int64_t *shape, *strides; /* in elements; strides may be null: row by row */
    uint64_t byte_offset;     /* of the first element, from data on */
} ignis_dlpack_tensor;

typedef struct ignis_dlpack { /* major 0 */
    ignis_dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct ignis_dlpack *self); /* gives it back; null: nobody has to */
} ignis_dlpack;

typedef struct ignis_dlpack_versioned { /* major 1 */
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct ignis_dlpack_versioned *self);
    uint64_t flags; /* 1: read only; 2: a copy */
    ignis_dlpack_tensor tensor;
} ignis_dlpack_versioned;

/*  ignis_array_to_dlpack - lend an array's memory to another library
    major: 0 for an ignis_dlpack, 1 for an ignis_dlpack_versioned. stream: what the other library works on (a cudaStream_t): it waits for what the
    calling thread's current stream has now, and the memory is not reused before what it has at the end. Null: it works on the current stream, or
    on cudart's default one while the current one is Ignis' own, which is ordered with that.
    Memory is allocated if need be. The array counts as written from then on.
    Returns: the struct, null on failure.
    Errors: FREED, ARGUMENT (no such major, no stream of this device), UNSUPPORTED (this thread captures a graph), MEMORY, CUDA.
    Ownership: the other side calls the struct's deleter, once, on any thread, and may not use the memory afterwards. Until then there is one more
    view of the array, which has its owner, and which ignis_shutdown reports and ends: then the memory is gone, and the deleter only frees the
    struct.
    Threads: any. Streams: see stream. */
IGNIS_API void *ignis_array_to_dlpack(ignis_array array, int major, void *stream);

/*  ignis_array_from_dlpack - an array over memory that another library lends
    major: what managed is, as above. stream: what the other library has worked on; the current stream waits for it. Null: there is nothing to wait
    for, or it is cudart's default one, and the current one Ignis' own, which is ordered with that.
    Shapes: contiguous, row by row, whatever the strides of dimensions of 1 and of tensors without elements; one without dimensions becomes [1]. bool
    becomes IGNIS_U8.
    Returns: the array, owned by IGNIS_OWNER_IGNIS, with the tag "dlpack"; or no handle.
    Errors: ARGUMENT (null, no such major, another version than its struct says, an address that is not aligned or no memory of the device),
    UNSUPPORTED (memory of another kind of device, read-only memory, this thread captures a graph), DEVICE, DTYPE, SHAPE (strided, more than 8
    dimensions), MEMORY, CUDA.
    Ownership: managed is the array's, and its deleter is called when the last array over the memory is gone and its work done. After a failure it is
    still the caller's.
    Threads: any. Streams: see stream. */
IGNIS_API ignis_array ignis_array_from_dlpack(void *managed, int major, void *stream);

/* >>graphics ---------------------------------------------------------------------------------------------------- */

/*  What memory of another API comes as. */
typedef enum ignis_external_type {
    IGNIS_EXTERNAL_FD = 1,         /* a descriptor of Vulkan's handle type OPAQUE_FD; not on Windows */
    IGNIS_EXTERNAL_WIN32,          /* an NT handle of Vulkan's handle type OPAQUE_WIN32; Windows alone, as those that follow */
    IGNIS_EXTERNAL_D3D12_HEAP,     /* an NT handle of ID3D12Device::CreateSharedHandle for an ID3D12Heap */
    IGNIS_EXTERNAL_D3D12_RESOURCE, /* the same for a committed ID3D12Resource; that is always dedicated */
    IGNIS_EXTERNAL_COUNT
} ignis_external_type;

typedef struct ignis_external_desc {
    ignis_external_type type; /* required */
    int fd;                   /* IGNIS_EXTERNAL_FD: the descriptor */
    void *handle;             /* the others: the NT handle */
    int64_t size;             /* required: bytes of the whole memory object, as it was allocated */
    int64_t offset;           /* bytes from its beginning to the array (0) */
    bool dedicated;           /* true: Vulkan memory with a VkMemoryDedicatedAllocateInfo */
    ignis_shape shape;        /* required, as in ignis_array_desc */
    ignis_dtype dtype;        /* IGNIS_F32 */
    int device;               /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    const char *tag;          /* as in ignis_array_desc ("") */
} ignis_external_desc;

/*  ignis_external_array - an array over memory that Vulkan or Direct3D 12 has allocated and exported
    It counts as written. Several arrays over one memory object are views of one, or each come from a handle that was exported for it.
    Returns: the array, owned by IGNIS_OWNER_IGNIS; or no handle.
    Errors: ARGUMENT (null, no such type, no open handle, a size below 1, an offset that is no multiple of an element or from which on the memory
    ends before the array), SHAPE, DTYPE, DEVICE, UNSUPPORTED (a type of another system, a driver without the functions, a dry run, this
    thread captures a graph), MEMORY, CUDA (the driver does not know the handle, or the size is not the memory's).
    Ownership: the caller frees it with ignis_array_free, which waits for its work, before the other API frees the memory. desc->fd belongs to the
    driver after success, and is still the caller's after a failure; desc->handle is always the caller's.
    Threads: any. */
IGNIS_API ignis_array ignis_external_array(const ignis_external_desc *desc);

/*  What a fence of another API comes as. */
typedef enum ignis_fence_type {
    IGNIS_FENCE_TIMELINE_FD = 1, /* a timeline semaphore of Vulkan by a descriptor (OPAQUE_FD); not on Windows */
    IGNIS_FENCE_TIMELINE_WIN32,  /* the same by an NT handle (OPAQUE_WIN32); Windows alone */
    IGNIS_FENCE_D3D12,           /* an NT handle of ID3D12Device::CreateSharedHandle for an ID3D12Fence; Windows alone */
    IGNIS_FENCE_TYPE_COUNT
} ignis_fence_type;

typedef struct ignis_external_fence_desc {
    ignis_fence_type type; /* required */
    int fd;                /* IGNIS_FENCE_TIMELINE_FD: the descriptor */
    void *handle;          /* the others: the NT handle */
    int device;            /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
} ignis_external_fence_desc;

/*  ignis_external_fence - a timeline semaphore of Vulkan, or a fence of Direct3D 12, that was exported
    Returns: the fence, or no handle.
    Errors: ARGUMENT (null, no such type, no open handle), DEVICE, UNSUPPORTED (a type of another system, a driver without the functions, a dry
    run, this thread captures a graph), MEMORY, CUDA (the driver does not know the handle).
    Ownership: the caller frees it with ignis_fence_free; ignis_shutdown reports and frees what is left. desc->fd and desc->handle as
    those of ignis_external_array.
    Threads: any. */
IGNIS_API ignis_fence ignis_external_fence(const ignis_external_fence_desc *desc);

/*  ignis_fence_wait - let what is put into the current stream from now on begin when the fence has reached a value
    A value that it has already, or has passed, is not waited for. Nobody notices a value that never comes: what comes later in the stream never
    runs.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (the stream is captured: each launch of the graph would wait for the same value), DEVICE, MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the fence's device; the calling thread does not wait. */
IGNIS_API ignis_status ignis_fence_wait(ignis_fence fence, uint64_t value);

/*  ignis_fence_signal - set the fence to a value when all is done that the current stream has so far
    What that work wrote to memory of the other API can be seen by who waits for the value. The value must be above all that the fence has had;
    Ignis knows those that it was given by this handle.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (a value that is not above the last one), UNSUPPORTED (the stream is captured: each launch of the graph would signal
    the same value), DEVICE, MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the fence's device. */
IGNIS_API ignis_status ignis_fence_signal(ignis_fence fence, uint64_t value);

/*  ignis_fence_free - free a fence; the semaphore itself stays the other API's
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second free).
    Ownership: the handle is stale afterwards.
    Threads: any. Waits for the waits and signals that are queued. */
IGNIS_API ignis_status ignis_fence_free(ignis_fence fence);

/*  What kernels do with an OpenGL buffer. */
typedef enum ignis_gl_access {
    IGNIS_GL_READ_WRITE,
    IGNIS_GL_READ,  /* they only read it */
    IGNIS_GL_WRITE, /* they write all of it: what it held is lost at each ignis_gl_map */
    IGNIS_GL_ACCESS_COUNT
} ignis_gl_access;

/*  ignis_gl_register - make a buffer of OpenGL known to CUDA, on the current device, which must be the one that OpenGL draws with
    buffer: its name, of glGenBuffers, with storage of glBufferData. It takes the driver some time: do it when the buffer is made, and again
    after a glBufferData that has changed its size.
    Returns: the registered buffer, or no handle.
    Errors: ARGUMENT (no such access), DEVICE, UNSUPPORTED (a driver without the functions, a dry run, this thread captures a graph), MEMORY,
    CUDA (no OpenGL context is current in this thread, or it has no such buffer).
    Ownership: the caller frees it with ignis_gl_unregister, before glDeleteBuffers; ignis_shutdown reports and frees what is left.
    Threads: one in which OpenGL's context is current. */
IGNIS_API ignis_gl_buffer ignis_gl_register(unsigned buffer, ignis_gl_access access);

/*  ignis_gl_map - the memory of a registered buffer, as an array, until ignis_gl_unmap
    What OpenGL was told before is done before work that is queued from now on. OpenGL must not use the buffer meanwhile. It counts as written.
    dtype: IGNIS_DTYPE_DEFAULT is IGNIS_F32. shape: of ndim 0 is as many elements as fit, in one dimension.
    Returns: the array, owned by IGNIS_OWNER_IGNIS, with the tag "gl"; or no handle.
    Errors: FREED, ARGUMENT (mapped already, a buffer of fewer bytes than the array), SHAPE, DTYPE, UNSUPPORTED (this thread captures a graph),
    DEVICE, MEMORY, CUDA.
    Ownership: ignis_gl_unmap ends it; the caller may free the array before, which does not unmap the buffer.
    Threads: one in which OpenGL's context is current. Streams: mapped in the order of the current stream. */
IGNIS_API ignis_array ignis_gl_map(ignis_gl_buffer buffer, ignis_dtype dtype, ignis_shape shape);

/*  ignis_gl_unmap - give the memory back to OpenGL, and free the array
    What OpenGL is told from now on comes after the work that is queued on the array, on whatever stream.
    Returns: IGNIS_OK, or why the buffer is still mapped.
    Errors: FREED, ARGUMENT (not mapped), CONTRACT (the array has references or another owner; views of it, or a graph, use the memory), UNSUPPORTED
    (this thread captures a graph), CUDA.
    Ownership: the array's handle is stale afterwards.
    Threads: one in which OpenGL's context is current; no other one may be inside a call with the array. Does not wait. */
IGNIS_API ignis_status ignis_gl_unmap(ignis_gl_buffer buffer);

/*  ignis_gl_unregister - free a registered buffer; the buffer itself stays OpenGL's
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second time), ARGUMENT (it is mapped), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the handle is stale afterwards.
    Threads: one in which OpenGL's context is current. */
IGNIS_API ignis_status ignis_gl_unregister(ignis_gl_buffer buffer);

/* >>profile ----------------------------------------------------------------------------------------------------- */

/*  What a kernel has taken in a profile, all launches together. */
typedef struct ignis_profile_row {
    char name[72]; /* the kernel, its formula, "copy to the device" and its like, or "graph" */
    int device;
    ignis_dtype dtype; /* of a product; IGNIS_DTYPE_DEFAULT: flops are not known */
    int64_t count;
    double ms;               /* on the device */
    double bytes, flops;     /* 0: not known */
    double memory_share;     /* of the rate that the device's memory has by its clock and width; 0: not known */
    double arithmetic_share; /* of the rate that its multiprocessors have at their highest clock; 0: not known */
} ignis_profile_row;

/*  ignis_profile_begin - write down what runs from here on, in all threads
    Of 262144 items at most; what comes later is counted, and ignis_profile_end says so.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (a profile is begun already), UNSUPPORTED (this thread captures a graph; a dry run), CUDA.
    Ownership: nothing to free; end it with ignis_profile_end. ignis_shutdown drops one that is not ended.
    Threads: any. Waits for the devices that are open. */
IGNIS_API ignis_status ignis_profile_begin(void);

/*  ignis_profile_end - end the profile, and write what was written down
    trace: a file of Chrome's trace events (JSON) for ui.perfetto.dev and chrome://tracing; null: none. table: a file of text, a line a kernel,
    the longest first; null: none.
    Returns: IGNIS_OK, or the first failure; the profile is over either way.
    Errors: ARGUMENT (none is begun), UNSUPPORTED (this thread captures a graph), MEMORY, IO, CUDA.
    Ownership: ignis_profile_rows has the rows until the next profile ends.
    Threads: any; what other threads queue meanwhile is written down, or not. Waits for the devices that are open: so where several ranks are
    threads of a process, when none of them waits for a collective operation of this one. */
IGNIS_API ignis_status ignis_profile_end(const char *trace, const char *table);

/*  ignis_profile_rows - what the last profile that was ended says of each kernel, the longest first
    rows may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT.
    Ownership: rows are copies.
    Threads: any. */
IGNIS_API int ignis_profile_rows(ignis_profile_row *rows, int capacity);

/*  ignis_memory_snapshot - write down what has the memory of all devices: a path that ends in ".svg" is drawn, another one is JSON
    The rows of ignis_memory_rows, and in JSON all arrays that are alive, with what ignis_array_query says of them. ignis_desc.trace_memory
    adds what the peak was made of, IGNIS_TRACE_CALLS the caller's lines. With a path as IGNIS_DRY_RUN in the environment, which has a point or a
    slash, ignis_shutdown writes one.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (null path), MEMORY, IO.
    Ownership: nothing to free.
    Threads: any; what other threads make meanwhile is in it, or not. */
IGNIS_API ignis_status ignis_memory_snapshot(const char *path);

#ifdef __cplusplus
} /* extern "C" */

/*  In C++ option structs can be passed by reference: ignis_array_create({...}). {} alone is a null pointer: all defaults, where that is allowed.
    Static, so that each file's call the functions of that file with IGNIS_STATIC. */
static inline ignis_status ignis_setup(const ignis_desc &desc) { return ignis_setup(&desc); }
static inline void *ignis_stream_create(const ignis_stream_desc &desc) { return ignis_stream_create(&desc); }
static inline ignis_array ignis_array_create(const ignis_array_desc &desc) { return ignis_array_create(&desc); }
static inline ignis_array ignis_external_array(const ignis_external_desc &desc) { return ignis_external_array(&desc); }
static inline ignis_fence ignis_external_fence(const ignis_external_fence_desc &desc) { return ignis_external_fence(&desc); }
static inline ignis_kernel ignis_kernel_compile(const ignis_kernel_desc &desc) { return ignis_kernel_compile(&desc); }
static inline ignis_ticket ignis_kernel_reload(ignis_kernel kernel, const ignis_kernel_desc &desc)
{
    return ignis_kernel_reload(kernel, &desc);
}
static inline ignis_status ignis_kernel_launch(ignis_kernel kernel, const ignis_launch &launch, const ignis_arg *args, int arg_count)
{
    return ignis_kernel_launch(kernel, &launch, args, arg_count);
}

#ifndef IGNIS_NO_TENSORS
static inline ignis_tensor ignis_tensor_from_host(const void *data, ignis_shape shape, const ignis_tensor_desc &desc)
{
    return ignis_tensor_from_host(data, shape, &desc);
}
static inline ignis_tensor ignis_tensor_zeros(ignis_shape shape, const ignis_tensor_desc &desc) { return ignis_tensor_zeros(shape, &desc); }
static inline ignis_tensor ignis_tensor_ones(ignis_shape shape, const ignis_tensor_desc &desc) { return ignis_tensor_ones(shape, &desc); }
static inline ignis_tensor ignis_tensor_rand(ignis_shape shape, const ignis_tensor_desc &desc) { return ignis_tensor_rand(shape, &desc); }
static inline ignis_tensor ignis_tensor_randn(ignis_shape shape, const ignis_tensor_desc &desc) { return ignis_tensor_randn(shape, &desc); }
static inline double ignis_gradcheck(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs, int count,
                                     const ignis_gradcheck_desc &desc)
{
    return ignis_gradcheck(fn, user_data, inputs, count, &desc);
}
static inline ignis_tensor ignis_conv2d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc &desc)
{
    return ignis_conv2d(x, w, bias, &desc);
}
static inline ignis_tensor ignis_conv1d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc &desc)
{
    return ignis_conv1d(x, w, bias, &desc);
}
static inline ignis_tensor ignis_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc &desc)
{
    return ignis_sdpa(q, k, v, &desc);
}
static inline ignis_tensor ignis_sdpa_packed(ignis_tensor qkv, const ignis_sdpa_desc &desc, const ignis_rope_desc *rope)
{
    return ignis_sdpa_packed(qkv, &desc, rope);
}
static inline ignis_tensor ignis_sdpa_packed(ignis_tensor qkv, const ignis_sdpa_desc &desc, const ignis_rope_desc &rope)
{
    return ignis_sdpa_packed(qkv, &desc, &rope);
}
static inline ignis_tensor ignis_max_pool(ignis_tensor x, const ignis_pool_desc &desc) { return ignis_max_pool(x, &desc); }
static inline ignis_tensor ignis_avg_pool(ignis_tensor x, const ignis_pool_desc &desc) { return ignis_avg_pool(x, &desc); }
static inline ignis_tensor ignis_upsample(ignis_tensor x, const ignis_upsample_desc &desc) { return ignis_upsample(x, &desc); }
static inline ignis_tensor ignis_batch_norm(ignis_tensor x, ignis_tensor w, ignis_tensor b, const ignis_batch_norm_desc &desc)
{
    return ignis_batch_norm(x, w, b, &desc);
}
static inline ignis_tensor ignis_decode_sdpa_with(ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc &desc)
{
    return ignis_decode_sdpa_with(q, k, v, &desc);
}
static inline ignis_tensor ignis_rope(ignis_tensor x, const ignis_rope_desc &desc) { return ignis_rope(x, &desc); }
static inline ignis_tensor ignis_cross_entropy(ignis_tensor logits, ignis_tensor targets, const ignis_cross_entropy_desc &desc)
{
    return ignis_cross_entropy(logits, targets, &desc);
}
static inline ignis_tensor ignis_nll_loss(ignis_tensor x, ignis_tensor targets, const ignis_cross_entropy_desc &desc)
{
    return ignis_nll_loss(x, targets, &desc);
}
static inline ignis_tensor ignis_bce_with_logits(ignis_tensor logits, ignis_tensor targets, const ignis_bce_desc &desc)
{
    return ignis_bce_with_logits(logits, targets, &desc);
}
static inline ignis_tensor ignis_linear_cross_entropy(ignis_tensor hidden, ignis_tensor weight, ignis_tensor targets,
                                                      const ignis_cross_entropy_desc &desc)
{
    return ignis_linear_cross_entropy(hidden, weight, targets, &desc);
}
static inline ignis_optimizer ignis_adamw(const ignis_adamw_desc &desc) { return ignis_adamw(&desc); }
static inline ignis_optimizer ignis_sgd(const ignis_sgd_desc &desc) { return ignis_sgd(&desc); }
static inline ignis_optimizer ignis_rmsprop(const ignis_rmsprop_desc &desc) { return ignis_rmsprop(&desc); }
static inline ignis_optimizer ignis_lion(const ignis_lion_desc &desc) { return ignis_lion(&desc); }
static inline ignis_optimizer ignis_muon(const ignis_muon_desc &desc) { return ignis_muon(&desc); }
#ifdef IGNIS_MODELS
static inline int ignis_tokenizer_encode(ignis_tokenizer tokenizer, const char *text, int64_t size, const ignis_encode_desc &desc,
                                         int32_t *ids, int capacity)
{
    return ignis_tokenizer_encode(tokenizer, text, size, &desc, ids, capacity);
}
static inline int64_t ignis_tokenizer_decode(ignis_tokenizer tokenizer, const int32_t *ids, int count, const ignis_decode_desc &desc,
                                             char *out, int64_t capacity)
{
    return ignis_tokenizer_decode(tokenizer, ids, count, &desc, out, capacity);
}
static inline int64_t ignis_chat_render(ignis_tokenizer tokenizer, const ignis_message *messages, int count, const ignis_chat_desc &desc,
                                        char *out, int64_t capacity)
{
    return ignis_chat_render(tokenizer, messages, count, &desc, out, capacity);
}
static inline int ignis_chat_encode(ignis_tokenizer tokenizer, const ignis_message *messages, int count, const ignis_chat_desc &desc,
                                    int32_t *ids, int capacity)
{
    return ignis_chat_encode(tokenizer, messages, count, &desc, ids, capacity);
}
#endif
#endif
#ifdef IGNIS_MODELS
static inline ignis_status ignis_model_inspect(const ignis_model_desc &desc, ignis_model_info *info)
{
    return ignis_model_inspect(&desc, info);
}
static inline ignis_model ignis_model_open(const ignis_model_desc &desc) { return ignis_model_open(&desc); }
static inline ignis_lora ignis_lora_create(ignis_model model, const ignis_lora_desc &desc) { return ignis_lora_create(model, &desc); }
static inline int32_t ignis_sequence_next(ignis_sequence sequence, const ignis_sampling_desc &sampling)
{
    return ignis_sequence_next(sequence, &sampling);
}
static inline ignis_status ignis_model_warmup(ignis_model model, const ignis_model_warmup_desc &desc)
{
    return ignis_model_warmup(model, &desc);
}
#endif

template <typename... ignis__dims> static inline ignis_shape ignis__make_shape(ignis__dims... dims)
{
    static_assert(sizeof...(dims) >= 1 && sizeof...(dims) <= IGNIS_MAX_DIMS, "a shape has 1 to IGNIS_MAX_DIMS dimensions");
    return ignis_shape{int(sizeof...(dims)), {static_cast<int64_t>(dims)...}};
}

/*  IGNIS_SHAPE(4, 3) - a shape of 1 to IGNIS_MAX_DIMS dimensions; IGNIS_NO_ARRAY - no handle */
#define IGNIS_SHAPE(...) ignis__make_shape(__VA_ARGS__)
#define IGNIS_NO_ARRAY (ignis_array{0})
#ifndef IGNIS_NO_TENSORS
template <typename... ignis__arrays> static inline ignis_array_inputs ignis__make_array_inputs(const char *names, ignis__arrays... arrays)
{
    static_assert(sizeof...(arrays) >= 1 && sizeof...(arrays) <= IGNIS_MAX_INPUTS, "a formula has 1 to IGNIS_MAX_INPUTS inputs");
    return ignis_array_inputs{names, int(sizeof...(arrays)), {arrays...}};
}

template <typename... ignis__tensors_> static inline ignis_inputs ignis__make_inputs(const char *names, ignis__tensors_... tensors)
{
    static_assert(sizeof...(tensors) >= 1 && sizeof...(tensors) <= IGNIS_MAX_INPUTS, "a formula has 1 to IGNIS_MAX_INPUTS inputs");
    return ignis_inputs{names, int(sizeof...(tensors)), {tensors...}};
}

/*  IGNIS_INPUTS(x, y) - tensors as the inputs of a formula, with their names; IGNIS_ARRAYS(x, y) - arrays */
#define IGNIS_ARRAYS(...) ignis__make_array_inputs(#__VA_ARGS__, __VA_ARGS__)
#define IGNIS_INPUTS(...) ignis__make_inputs(#__VA_ARGS__, __VA_ARGS__)
#endif
#else
#define IGNIS_ARRAYS(...) \
    ((ignis_array_inputs){#__VA_ARGS__, (int)(sizeof((ignis_array[]){__VA_ARGS__}) / sizeof(ignis_array)), {__VA_ARGS__}})
#define IGNIS_INPUTS(...) ((ignis_inputs){#__VA_ARGS__, (int)(sizeof((ignis_tensor[]){__VA_ARGS__}) / sizeof(ignis_tensor)), {__VA_ARGS__}})
#define IGNIS_SHAPE(...) ((ignis_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#define IGNIS_NO_ARRAY ((ignis_array){0})
#endif

/*  Among the inputs of a formula: a number, or a tensor or array that is no variable, by a name. */
#define IGNIS_VALUE(name, number) ignis_value(number)
#define IGNIS_ARRAY_VALUE(name, number) ignis_array_value(number)
#define IGNIS_NAMED(name, input) (input)

#endif /* IGNIS_INCLUDED */

/* ===============================================================================================================
   Implementation. Layers, bottom first; a section uses only what stands above it.
   =============================================================================================================== */
#ifdef IGNIS_IMPLEMENTATION
#ifndef IGNIS_IMPLEMENTED
#define IGNIS_IMPLEMENTED
#ifdef IGNIS__AT
#error "IGNIS_TRACE_CALLS: define IGNIS_IMPLEMENTATION before the first #include of ignis.h"
#endif

/* ===============================================================================================================
   >>platform - threads, atomics, clock, libraries, files, host memory. The only place that knows the system.
   =============================================================================================================== */

#include <errno.h>
#include <limits.h>
#ifdef IGNIS_MODELS
#include <math.h>
#endif
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _MSC_VER
#pragma warning(push) /* what /sdl makes errors of functions of C that have no replacement elsewhere; unused helpers of optional layers */
#pragma warning(disable : 4996 4505)
#endif
#ifdef _WIN32
#ifndef _INC_WINDOWS /* the file has not included it: it gets less of it, and fewer macros */
#define IGNIS__WINDOWS_OWN
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#ifndef NOGDI
#define NOGDI
#endif
#ifndef NOUSER
#define NOUSER
#endif
#endif
#include <windows.h>
#include <fcntl.h>
#include <io.h>
#ifdef IGNIS__WINDOWS_OWN /* words that programs use; the headers of Windows only want them to be empty under their other names */
#undef near
#undef far
#undef NEAR
#undef FAR
#define NEAR
#define FAR
#undef IN
#undef OUT
#undef OPTIONAL
#undef DELETE_TREE
#undef IGNIS__WINDOWS_OWN
#endif
#else
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif
#if defined(__GLIBC__) ? !defined(__USE_XOPEN2K8) : defined(IGNIS__TOO_LATE)
#error "ignis.h: with -std=c99 or c11, put #define _POSIX_C_SOURCE 200809L above the first #include of this file"
#endif
#endif

#if UINTPTR_MAX != 0xFFFFFFFFFFFFFFFF
#error "ignis.h needs a 64-bit system, as CUDA does"
#endif

#ifndef IGNIS_ASSERT
#include <assert.h>
#define IGNIS_ASSERT(condition) assert(condition)
#endif

/* clang-format off */
#ifdef __cplusplus
#define IGNIS__ZERO {}
#else
#define IGNIS__ZERO {0}
#endif
/* clang-format on */

#if defined(__MINGW_PRINTF_FORMAT)
#define IGNIS__PRINTF(at, first) __attribute__((format(__MINGW_PRINTF_FORMAT, at, first)))
#elif defined(__GNUC__)
#define IGNIS__PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define IGNIS__PRINTF(at, first)
#endif

/*  On what only the tensor layer uses, for IGNIS_NO_TENSORS. */
#ifdef __GNUC__
#define IGNIS__MAYBE_UNUSED __attribute__((unused))
#else
#define IGNIS__MAYBE_UNUSED
#endif

/*  What keeps compiling short. IGNIS__COLD: on functions that run when something has failed, once, or before files and compilers: made small,
    and out of the way of the others. IGNIS__ONE_COPY: on helpers with many callers; inlined, they are a sixth of all code. */
#if defined(__GNUC__)
#define IGNIS__COLD __attribute__((cold, noinline))
#define IGNIS__ONE_COPY __attribute__((noinline))
#elif defined(_MSC_VER)
#define IGNIS__COLD __declspec(noinline)
#define IGNIS__ONE_COPY __declspec(noinline)
#else
#define IGNIS__COLD
#define IGNIS__ONE_COPY
#endif

#define IGNIS__COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/*  Atomics: acquire on load, release on store, both on read-modify-write. */
#if defined(__GNUC__)
static uint64_t ignis__atomic_load(const uint64_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static void ignis__atomic_store(uint64_t *at, uint64_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
static uint64_t ignis__atomic_add(uint64_t *at, uint64_t value) { return __atomic_add_fetch(at, value, __ATOMIC_ACQ_REL); }
static bool ignis__atomic_swap_if(uint64_t *at, uint64_t *expected, uint64_t value)
{
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
static int ignis__log2(uint64_t value) { return 63 - __builtin_clzll(value); }
static int ignis__lowest_bit(uint64_t value) { return __builtin_ctzll(value); }
#else
#include <intrin.h>
static uint64_t ignis__atomic_load(const uint64_t *at)
{
    uint64_t value = (uint64_t)__iso_volatile_load64((const volatile __int64 *)at);
#ifdef _M_ARM64
    __dmb(_ARM64_BARRIER_ISH);
#else
    _ReadWriteBarrier(); /* the processor keeps the order by itself */
#endif
    return value;
}
static void ignis__atomic_store(uint64_t *at, uint64_t value) { _InterlockedExchange64((volatile __int64 *)at, (__int64)value); }
static uint64_t ignis__atomic_add(uint64_t *at, uint64_t value)
{
    return (uint64_t)_InterlockedExchangeAdd64((volatile __int64 *)at, (__int64)value) + value;
}
static bool ignis__atomic_swap_if(uint64_t *at, uint64_t *expected, uint64_t value)
{
    uint64_t was = (uint64_t)_InterlockedCompareExchange64((volatile __int64 *)at, (__int64)value, (__int64)*expected);
    bool swapped = was == *expected;
    *expected = was;
    return swapped;
}
static int ignis__log2(uint64_t value)
{
    unsigned long bit;
    _BitScanReverse64(&bit, value);
    return (int)bit;
}
static int ignis__lowest_bit(uint64_t value)
{
    unsigned long bit;
    _BitScanForward64(&bit, value);
    return (int)bit;
}
#endif

#ifdef _WIN32

typedef SRWLOCK ignis__mutex;
#define IGNIS__MUTEX_INIT SRWLOCK_INIT
static void ignis__mutex_init(ignis__mutex *mutex) { InitializeSRWLock(mutex); }
static void ignis__mutex_lock(ignis__mutex *mutex) { AcquireSRWLockExclusive(mutex); }
static bool ignis__mutex_try(ignis__mutex *mutex) { return TryAcquireSRWLockExclusive(mutex) != 0; }
static void ignis__mutex_unlock(ignis__mutex *mutex) { ReleaseSRWLockExclusive(mutex); }

/*  What a thread that holds a mutex waits for: it gives the mutex back meanwhile, until another thread wakes all who wait. */
typedef CONDITION_VARIABLE ignis__condition;
#define IGNIS__CONDITION_INIT CONDITION_VARIABLE_INIT
IGNIS__MAYBE_UNUSED static void ignis__condition_wait(ignis__condition *condition, ignis__mutex *mutex)
{
    SleepConditionVariableSRW(condition, mutex, INFINITE, 0);
}
IGNIS__MAYBE_UNUSED static void ignis__condition_wake(ignis__condition *condition) { WakeAllConditionVariable(condition); }

typedef SRWLOCK ignis__rwlock;
static void ignis__rwlock_init(ignis__rwlock *lock) { InitializeSRWLock(lock); }
static void ignis__rwlock_read(ignis__rwlock *lock) { AcquireSRWLockShared(lock); }
static void ignis__rwlock_read_end(ignis__rwlock *lock) { ReleaseSRWLockShared(lock); }
IGNIS__MAYBE_UNUSED static void ignis__rwlock_write(ignis__rwlock *lock) { AcquireSRWLockExclusive(lock); }
IGNIS__MAYBE_UNUSED static void ignis__rwlock_write_end(ignis__rwlock *lock) { ReleaseSRWLockExclusive(lock); }

typedef HANDLE ignis__thread_handle;
#define IGNIS__THREAD_RESULT DWORD WINAPI
static bool ignis__thread_start(ignis__thread_handle *thread, DWORD(WINAPI *run)(void *), void *context)
{
    *thread = CreateThread(NULL, 0, run, context, 0, NULL);
    return *thread != NULL;
}
static void ignis__thread_join(ignis__thread_handle thread)
{
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
}
IGNIS__MAYBE_UNUSED static void ignis__thread_detach(ignis__thread_handle thread) { CloseHandle(thread); }
static int ignis__core_count(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (int)info.dwNumberOfProcessors;
}

/*  What Ignis keeps of a thread: parts of zeroed memory, which the callback at the thread's end frees. The compilers' own variables will
    not do: MinGW's are gone when the callback runs. The callback comes when a fiber is deleted, too, on any thread. */
enum { IGNIS__LOCAL_THREAD, IGNIS__LOCAL_ENV, IGNIS__LOCAL_VALUES, IGNIS__LOCAL_TENSORS, IGNIS__LOCAL_COUNT };

typedef struct ignis__locals {
    DWORD owner;
    void (*release)(void *);
    void *value;
    void *part[IGNIS__LOCAL_COUNT];
} ignis__locals;

static struct {
    ignis__mutex lock;
    uint64_t made;
    DWORD here, at_exit; /* slots of the thread, and of the fiber with a callback */
    bool closing;
} ignis__local_slots = {IGNIS__MUTEX_INIT, 0, 0, 0, false};

static void WINAPI ignis__locals_end(void *pointer)
{
    ignis__locals *locals = (ignis__locals *)pointer;
    int i;
    if (!ignis__local_slots.closing) {
        if (locals->owner != GetCurrentThreadId())
            return;
        if (locals->release)
            locals->release(locals->value);
        TlsSetValue(ignis__local_slots.here, NULL);
    }
    for (i = 0; i < IGNIS__LOCAL_COUNT; i++)
        HeapFree(GetProcessHeap(), 0, locals->part[i]);
    HeapFree(GetProcessHeap(), 0, locals);
}

IGNIS__COLD static void *ignis__local_make(int which, size_t size)
{
    static uint64_t nowhere[2048]; /* where there is no memory, threads share it: better than none */
    ignis__locals *locals;
    void *part = NULL;
    ignis__mutex_lock(&ignis__local_slots.lock);
    if (!ignis__local_slots.made) {
        ignis__local_slots.here = TlsAlloc();
        ignis__local_slots.at_exit = FlsAlloc(ignis__locals_end);
        ignis__atomic_store(&ignis__local_slots.made, 1);
    }
    ignis__mutex_unlock(&ignis__local_slots.lock);
    locals = (ignis__locals *)TlsGetValue(ignis__local_slots.here);
    if (!locals && (locals = (ignis__locals *)HeapAlloc(GetProcessHeap(), HEAP_ZERO_MEMORY, sizeof *locals)) != NULL) {
        locals->owner = GetCurrentThreadId();
        TlsSetValue(ignis__local_slots.here, locals);
        FlsSetValue(ignis__local_slots.at_exit, locals);
    }
    if (locals)
        part = locals->part[which] = HeapAlloc(GetProcessHeap(), HEAP_ZERO_MEMORY, size);
    return part ? part : nowhere;
}

static void *ignis__local(int which, size_t size)
{
    ignis__locals *locals = ignis__atomic_load(&ignis__local_slots.made) ? (ignis__locals *)TlsGetValue(ignis__local_slots.here) : NULL;
    return locals && locals->part[which] ? locals->part[which] : ignis__local_make(which, size);
}

/*  A variable `name` of which each thread has its own: IGNIS__LOCAL(type, name, which) declares it; a macro makes it look like one. */
#define IGNIS__LOCAL(type, name, which) \
    static type *name##_get(void) { return (type *)ignis__local(which, sizeof(type)); }

/*  Calls release(value) when the calling thread ends, which has variables. False: it cannot. */
static bool ignis__at_thread_exit(void (*release)(void *), void *value)
{
    ignis__locals *locals = (ignis__locals *)TlsGetValue(ignis__local_slots.here);
    if (!locals)
        return false;
    locals->release = release;
    locals->value = value;
    return true;
}

/*  Nothing is called any more when a thread ends. FlsFree calls back once for each thread that has variables, to free them. */
static void ignis__thread_exits_close(void)
{
    if (!ignis__local_slots.made)
        return;
    ignis__local_slots.closing = true;
    FlsFree(ignis__local_slots.at_exit);
    TlsFree(ignis__local_slots.here);
    ignis__local_slots.closing = false;
    ignis__local_slots.made = 0;
}

/*  Calls unload when the library that has Ignis inside is unloaded. A program never is: there other threads run until its very end. */
#define IGNIS__AT_UNLOAD
static void ignis__at_unload(void (*unload)(void))
{
    static uint64_t told;
    HMODULE module = NULL;
    if (ignis__atomic_add(&told, 1) == 1 &&
        GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                           (LPCWSTR)(const void *)&ignis__local_slots, &module) &&
        module != GetModuleHandleW(NULL))
        (void)atexit(unload);
}

static void ignis__at_fork(void (*in_child)(void)) { (void)in_child; }

static int64_t ignis__wall_ns(void)
{
    FILETIME time; /* 100 ns ticks since 1601 */
    GetSystemTimeAsFileTime(&time);
    return ((int64_t)(((uint64_t)time.dwHighDateTime << 32) | time.dwLowDateTime) - 116444736000000000) * 100;
}
static int64_t ignis__monotonic_ns(void)
{
    LARGE_INTEGER count, frequency;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&frequency);
    return count.QuadPart / frequency.QuadPart * 1000000000 + count.QuadPart % frequency.QuadPart * 1000000000 / frequency.QuadPart;
}

/*  Paths and variables are UTF-8 here as on other systems, and UTF-16 for Windows. Empty, which names no file: it is no UTF-8, or long. */
enum { IGNIS__WIDE = 1024 };
static const WCHAR *ignis__utf16(const char *text, WCHAR out[IGNIS__WIDE])
{
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, out, IGNIS__WIDE) == 0)
        out[0] = 0;
    return out;
}

/*  What the last call of Windows has failed for. */
IGNIS__COLD static void ignis__system_error(char *out, size_t size)
{
    DWORD error = GetLastError();
    WCHAR wide[256];
    char text[3 * 256];
    if (FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS | FORMAT_MESSAGE_MAX_WIDTH_MASK, NULL, error, 0, wide,
                       IGNIS__COUNT(wide), NULL) == 0 ||
        WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, sizeof text, NULL, NULL) == 0)
        text[0] = 0;
    snprintf(out, size, "%sWindows error %lu", text, error);
}

/*  A variable of the environment; null: there is none, or it is too long. It stays as it is until this thread has asked for seven others. */
typedef struct ignis__env_texts {
    int next;
    char text[8][IGNIS__WIDE];
} ignis__env_texts;

static const char *ignis__env(const char *name)
{
    ignis__env_texts *texts = (ignis__env_texts *)ignis__local(IGNIS__LOCAL_ENV, sizeof(ignis__env_texts));
    WCHAR wide[IGNIS__WIDE], value[IGNIS__WIDE];
    char *text = texts->text[texts->next++ & 7];
    DWORD length = GetEnvironmentVariableW(ignis__utf16(name, wide), value, IGNIS__WIDE);
    if (length >= IGNIS__WIDE || (length == 0 && GetLastError() == ERROR_ENVVAR_NOT_FOUND))
        return NULL;
    value[length] = 0;
    return WideCharToMultiByte(CP_UTF8, 0, value, -1, text, IGNIS__WIDE, NULL, NULL) > 0 ? text : NULL;
}

/*  A name is looked for beside the program, in the system's folder and where AddDllDirectory says: not in PATH or the current folder, where
    others may have put one. What a library needs is looked for beside it, too. */
static void *ignis__library_open(const char *path, char *why, size_t why_size)
{
    WCHAR wide[IGNIS__WIDE], whole[IGNIS__WIDE];
    bool is_path = strpbrk(path, "/\\") != NULL;
    HMODULE module = NULL;
    ignis__utf16(path, wide);
    if (!is_path)
        module = LoadLibraryExW(wide, NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
    else if (GetFullPathNameW(wide, IGNIS__WIDE, whole, NULL) - 1 < IGNIS__WIDE - 1)
        module = LoadLibraryExW(whole, NULL, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
    if (!module)
        ignis__system_error(why, why_size);
    return (void *)module;
}
static void *ignis__library_symbol(void *library, const char *name)
{
    void *symbol = NULL;
    FARPROC function = GetProcAddress((HMODULE)library, name);
    memcpy(&symbol, &function, sizeof symbol);
    return symbol;
}

/*  Calls visit(context, name) for every entry of a folder; false when it cannot be read. */
static bool ignis__folder_list(const char *path, void (*visit)(void *context, const char *name), void *context)
{
    WCHAR pattern[IGNIS__WIDE + 2];
    WIN32_FIND_DATAW entry;
    char name[3 * MAX_PATH + 1];
    HANDLE find;
    int length = lstrlenW(ignis__utf16(path, pattern));
    if (length == 0)
        return false;
    pattern[length] = '\\';
    pattern[length + 1] = '*';
    pattern[length + 2] = 0;
    find = FindFirstFileW(pattern, &entry);
    if (find == INVALID_HANDLE_VALUE)
        return false;
    do
        if (WideCharToMultiByte(CP_UTF8, 0, entry.cFileName, -1, name, sizeof name, NULL, NULL) > 0)
            visit(context, name);
    while (FindNextFileW(find, &entry));
    FindClose(find);
    return true;
}
static bool ignis__folder_make(const char *path)
{
    WCHAR wide[IGNIS__WIDE];
    return CreateDirectoryW(ignis__utf16(path, wide), NULL) || GetLastError() == ERROR_ALREADY_EXISTS;
}
/*  A file that somebody reads cannot be replaced: tried for a second. */
static bool ignis__file_rename(const char *from, const char *to)
{
    WCHAR wide[2][IGNIS__WIDE];
    int left = 200;
    ignis__utf16(from, wide[0]), ignis__utf16(to, wide[1]);
    while (!MoveFileExW(wide[0], wide[1], MOVEFILE_REPLACE_EXISTING)) {
        DWORD error = GetLastError();
        if ((error != ERROR_ACCESS_DENIED && error != ERROR_SHARING_VIOLATION) || --left == 0)
            return false;
        Sleep(5);
    }
    return true;
}
static bool ignis__file_remove(const char *path)
{
    WCHAR wide[IGNIS__WIDE];
    return DeleteFileW(ignis__utf16(path, wide)) != 0;
}
static HANDLE ignis__file_handle(const char *path, DWORD access, DWORD share, DWORD how, DWORD flags)
{
    WCHAR wide[IGNIS__WIDE];
    return CreateFileW(ignis__utf16(path, wide), access, share, NULL, how, flags, NULL);
}
static bool ignis__file_info(const char *path, int64_t *size, int64_t *time)
{
    WCHAR wide[IGNIS__WIDE];
    WIN32_FILE_ATTRIBUTE_DATA data;
    if (!GetFileAttributesExW(ignis__utf16(path, wide), GetFileExInfoStandard, &data) || (data.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY))
        return false;
    *size = (int64_t)(((uint64_t)data.nFileSizeHigh << 32) | data.nFileSizeLow);
    *time = (int64_t)(((uint64_t)data.ftLastWriteTime.dwHighDateTime << 32) | data.ftLastWriteTime.dwLowDateTime);
    return true;
}
enum { IGNIS__SHARE_ALL = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE };
static void ignis__file_touch(const char *path)
{
    HANDLE file = ignis__file_handle(path, FILE_WRITE_ATTRIBUTES, IGNIS__SHARE_ALL, OPEN_EXISTING, 0);
    FILETIME now;
    if (file == INVALID_HANDLE_VALUE)
        return;
    GetSystemTimeAsFileTime(&now);
    SetFileTime(file, NULL, NULL, &now);
    CloseHandle(file);
}
static unsigned long ignis__process_id(void) { return GetCurrentProcessId(); }

#else /* POSIX */

typedef pthread_mutex_t ignis__mutex;
#define IGNIS__MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
static void ignis__mutex_init(ignis__mutex *mutex)
{
    static const ignis__mutex unlocked = IGNIS__MUTEX_INIT;
    memcpy(mutex, &unlocked, sizeof *mutex); /* as a variable of this type begins: each array's memory has one, and the call takes longer */
}
static void ignis__mutex_lock(ignis__mutex *mutex) { pthread_mutex_lock(mutex); }
static bool ignis__mutex_try(ignis__mutex *mutex) { return pthread_mutex_trylock(mutex) == 0; }
static void ignis__mutex_unlock(ignis__mutex *mutex) { pthread_mutex_unlock(mutex); }

typedef pthread_cond_t ignis__condition;
#define IGNIS__CONDITION_INIT PTHREAD_COND_INITIALIZER
IGNIS__MAYBE_UNUSED static void ignis__condition_wait(ignis__condition *condition, ignis__mutex *mutex)
{
    pthread_cond_wait(condition, mutex);
}
IGNIS__MAYBE_UNUSED static void ignis__condition_wake(ignis__condition *condition) { pthread_cond_broadcast(condition); }

typedef pthread_rwlock_t ignis__rwlock;
static void ignis__rwlock_init(ignis__rwlock *lock) { pthread_rwlock_init(lock, NULL); }
static void ignis__rwlock_read(ignis__rwlock *lock) { pthread_rwlock_rdlock(lock); }
static void ignis__rwlock_read_end(ignis__rwlock *lock) { pthread_rwlock_unlock(lock); }
IGNIS__MAYBE_UNUSED static void ignis__rwlock_write(ignis__rwlock *lock) { pthread_rwlock_wrlock(lock); }
IGNIS__MAYBE_UNUSED static void ignis__rwlock_write_end(ignis__rwlock *lock) { pthread_rwlock_unlock(lock); }

typedef pthread_t ignis__thread_handle;
#define IGNIS__THREAD_RESULT void *
static bool ignis__thread_start(ignis__thread_handle *thread, void *(*run)(void *), void *context)
{
    return pthread_create(thread, NULL, run, context) == 0;
}
static void ignis__thread_join(ignis__thread_handle thread) { pthread_join(thread, NULL); }
IGNIS__MAYBE_UNUSED static void ignis__thread_detach(ignis__thread_handle thread) { pthread_detach(thread); }
static int ignis__core_count(void) { return (int)sysconf(_SC_NPROCESSORS_ONLN); }

static struct {
    ignis__mutex lock;
    bool made;
    pthread_key_t key;
} ignis__thread_exits = {IGNIS__MUTEX_INIT, false, 0};

/*  Calls release(value) when the calling thread ends. False: it cannot. */
static bool ignis__at_thread_exit(void (*release)(void *), void *value)
{
    bool made;
    ignis__mutex_lock(&ignis__thread_exits.lock);
    if (!ignis__thread_exits.made)
        ignis__thread_exits.made = pthread_key_create(&ignis__thread_exits.key, release) == 0;
    made = ignis__thread_exits.made;
    ignis__mutex_unlock(&ignis__thread_exits.lock);
    return made && pthread_setspecific(ignis__thread_exits.key, value) == 0;
}

/*  Nothing is called any more when a thread ends. A forked child may find the lock taken for ever. */
static void ignis__thread_exits_close(void)
{
    if (!ignis__mutex_try(&ignis__thread_exits.lock))
        return;
    if (ignis__thread_exits.made)
        pthread_key_delete(ignis__thread_exits.key);
    ignis__thread_exits.made = false;
    ignis__mutex_unlock(&ignis__thread_exits.lock);
}

/*  On the function that runs when the library that has Ignis inside is unloaded, or the program ends: what ignis__at_fork is given the system
    forgets then by itself. Not by atexit, which the thread sanitizer puts off to the program's end. */
#define IGNIS__AT_UNLOAD __attribute__((destructor))
static void ignis__at_unload(void (*unload)(void)) { (void)unload; }

/*  A variable of which each thread has its own. */
#define IGNIS__LOCAL(type, name, which) static __thread type name;

static void ignis__at_fork(void (*in_child)(void)) { pthread_atfork(NULL, NULL, in_child); }

static int64_t ignis__clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
#ifdef CLOCK_REALTIME_COARSE /* as of the last tick, which is enough for the age of an array, and read four times as fast */
static int64_t ignis__wall_ns(void) { return ignis__clock_ns(CLOCK_REALTIME_COARSE); }
#else
static int64_t ignis__wall_ns(void) { return ignis__clock_ns(CLOCK_REALTIME); }
#endif
static int64_t ignis__monotonic_ns(void) { return ignis__clock_ns(CLOCK_MONOTONIC); }

/*  The one place that reads the environment. Whoever starts a program that has more rights than they have - setuid, setgid, capabilities of its
    file - says nothing by it: no library, no file, no folder. */
static const char *ignis__env(const char *name)
{
#if defined(__linux__)
    bool secure = getauxval(AT_SECURE) != 0;
#elif defined(__APPLE__) || defined(__FreeBSD__) || defined(__NetBSD__) || defined(__OpenBSD__) || defined(__DragonFly__)
    bool secure = issetugid() != 0;
#else
    bool secure = getuid() != geteuid() || getgid() != getegid();
#endif
    return secure ? NULL : getenv(name);
}

static void *ignis__library_open(const char *path, char *why, size_t why_size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(why, why_size, "%s", dlerror());
    return library;
}
static void *ignis__library_symbol(void *library, const char *name) { return dlsym(library, name); }

/*  Calls visit(context, name) for every entry of a folder; false when it cannot be read. */
IGNIS__COLD static bool ignis__folder_list(const char *path, void (*visit)(void *context, const char *name), void *context)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    if (!folder)
        return false;
    while ((entry = readdir(folder)) != NULL)
        visit(context, entry->d_name);
    closedir(folder);
    return true;
}
static bool ignis__folder_make(const char *path) { return mkdir(path, 0700) == 0 || errno == EEXIST; }
static bool ignis__file_rename(const char *from, const char *to) { return rename(from, to) == 0; }
static bool ignis__file_remove(const char *path) { return remove(path) == 0; }
static bool ignis__file_info(const char *path, int64_t *size, int64_t *time)
{
    struct stat info;
    struct timespec changed;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return false;
    *size = (int64_t)info.st_size;
#ifdef __APPLE__
    changed = info.st_mtimespec;
#else
    changed = info.st_mtim;
#endif
    *time = (int64_t)changed.tv_sec * 1000000000 + changed.tv_nsec;
    return true;
}
static void ignis__file_touch(const char *path) { (void)utimensat(AT_FDCWD, path, NULL, 0); }
static unsigned long ignis__process_id(void) { return (unsigned long)getpid(); }

#endif

/*  Runs work(context, 0) to work(context, count - 1) on up to as many threads as there are cores, and waits. */
typedef struct ignis__parallel_job {
    void (*work)(void *context, int index);
    void *context;
    uint64_t next;
    uint64_t count;
} ignis__parallel_job;

static IGNIS__THREAD_RESULT ignis__parallel_run(void *pointer)
{
    ignis__parallel_job *job = (ignis__parallel_job *)pointer;
    for (;;) {
        uint64_t index = ignis__atomic_add(&job->next, 1) - 1;
        if (index >= job->count)
            return 0;
        job->work(job->context, (int)index);
    }
}

static void ignis__parallel(int count, void (*work)(void *context, int index), void *context)
{
    ignis__parallel_job job = IGNIS__ZERO;
    ignis__thread_handle threads[32];
    int started = 0, wanted = ignis__core_count();
    job.work = work;
    job.context = context;
    job.count = (uint64_t)count;
    if (wanted > IGNIS__COUNT(threads))
        wanted = IGNIS__COUNT(threads);
    if (wanted > count)
        wanted = count;
    while (started < wanted - 1 && ignis__thread_start(&threads[started], ignis__parallel_run, &job))
        started++;
    ignis__parallel_run(&job);
    while (started > 0)
        ignis__thread_join(threads[--started]);
}

/*  Host memory. Zeroed, as every struct of Ignis starts from zero. */
static ignis_allocator ignis__allocator;

static void *ignis__alloc(size_t size)
{
    void *memory = ignis__allocator.alloc_fn ? ignis__allocator.alloc_fn(size, ignis__allocator.user_data) : malloc(size);
    if (memory)
        memset(memory, 0, size);
    return memory;
}

IGNIS__ONE_COPY static void ignis__free(void *memory)
{
    if (!memory)
        return;
    if (ignis__allocator.free_fn)
        ignis__allocator.free_fn(memory, ignis__allocator.user_data);
    else
        free(memory);
}

static char *ignis__copy_string(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = (char *)ignis__alloc(size);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

/*  Text that grows at its end inside a fixed buffer; what does not fit is cut, and the text always ended. */
typedef struct ignis__text {
    char *data;
    size_t capacity, length; /* length counts what would have been written, as snprintf does */
} ignis__text;

IGNIS__ONE_COPY static void ignis__text_begin(ignis__text *text, char *data, size_t capacity)
{
    text->data = data;
    text->capacity = capacity;
    text->length = 0;
    if (capacity)
        data[0] = 0;
}

IGNIS__PRINTF(2, 0)
IGNIS__COLD static void ignis__text_addv(ignis__text *text, const char *format, va_list args)
{
    size_t used = text->length < text->capacity ? text->length : text->capacity;
    int added = vsnprintf(used < text->capacity ? text->data + used : NULL, text->capacity - used, format, args);
    if (added > 0)
        text->length += (size_t)added;
}

IGNIS__PRINTF(2, 3)
IGNIS__COLD static void ignis__text_add(ignis__text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ignis__text_addv(text, format, args);
    va_end(args);
}

/*  Bytes of the character at the beginning of a text of `size` bytes; 0 when it is not well-formed UTF-8 (Unicode, table 3-7). */
IGNIS__COLD static int ignis__utf8_length(const char *text, size_t size)
{
    const unsigned char *byte = (const unsigned char *)text;
    unsigned char low = 0x80, high = 0xBF; /* what the second byte may be */
    int length, i;
    if (size == 0)
        return 0;
    if (byte[0] < 0x80)
        return 1;
    if (byte[0] < 0xC2 || byte[0] > 0xF4)
        return 0;
    length = byte[0] < 0xE0 ? 2 : byte[0] < 0xF0 ? 3 : 4;
    if ((size_t)length > size)
        return 0;
    if (byte[0] == 0xE0)
        low = 0xA0; /* shorter forms exist */
    else if (byte[0] == 0xED)
        high = 0x9F; /* surrogates */
    else if (byte[0] == 0xF0)
        low = 0x90;
    else if (byte[0] == 0xF4)
        high = 0x8F; /* beyond U+10FFFF */
    if (byte[1] < low || byte[1] > high)
        return 0;
    for (i = 2; i < length; i++)
        if ((byte[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

/*  The longest beginning of a text, in whole characters, that fits into so many bytes. */
static size_t ignis__utf8_cut(const char *text, size_t limit)
{
    size_t size = strlen(text), cut = size < limit ? size : limit;
    while (cut > 0 && cut + 3 > limit && ((unsigned char)text[cut] & 0xC0) == 0x80)
        cut--;
    return cut;
}

/*  Adds text that may come from outside, as it is shown: what a terminal obeys or hides, what ends a line and what is no UTF-8 is written as an
    escape. With `lines`, ends of lines and tabs stay. */
IGNIS__COLD static void ignis__text_add_shown(ignis__text *text, const char *from, size_t size, bool lines)
{
    static const char letters[] = "abtnvfr"; /* of the bytes from 7 on */
    size_t at = 0, plain = 0;
    while (at < size) {
        const unsigned char *byte = (const unsigned char *)from + at;
        int length = ignis__utf8_length(from + at, size - at), i;
        bool control = byte[0] < ' ' ? !lines || !strchr("\n\t", (int)byte[0]) || !byte[0] : byte[0] == 0x7F;
        bool hidden =
            (length == 2 && byte[0] == 0xC2 && byte[1] < 0xA0) || /* U+0080 to U+009F; then directions of writing, ends of lines */
            (length == 3 && byte[0] == 0xE2 && byte[1] == 0x80 && (byte[2] == 0x8E || byte[2] == 0x8F || (byte[2] & 0xF8) == 0xA8)) ||
            (length == 3 && byte[0] == 0xE2 && byte[1] == 0x81 && byte[2] >= 0xA6 && byte[2] <= 0xA9);
        if (length && !control && !hidden) {
            at += (size_t)length;
            continue;
        }
        ignis__text_add(text, "%.*s", (int)(at - plain), from + plain);
        length = length ? length : 1;
        for (i = 0; i < length; i++) {
            if (byte[i] >= 7 && byte[i] < 14)
                ignis__text_add(text, "\\%c", letters[byte[i] - 7]);
            else
                ignis__text_add(text, "\\x%02x", (unsigned)byte[i]);
        }
        plain = at += (size_t)length;
    }
    ignis__text_add(text, "%.*s", (int)(at - plain), from + plain);
}

/*  Makes a folder and those above it. */
IGNIS__COLD static bool ignis__folder_make_all(const char *path)
{
    char part[1024];
    size_t i, length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return false;
    for (i = 1; i < length; i++) {
        if (path[i] != '/' && path[i] != '\\')
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        (void)ignis__folder_make(part); /* may exist, or be a drive; the last one tells */
    }
    return ignis__folder_make(path);
}

/*  Files of tensors: read in parts, flushed and renamed when written. */

/*  What a file to write to may be: a new one only; one that is added to, which is no link; one that takes the place of what was there; a new one
    that nobody else may read. */
typedef enum ignis__file_how { IGNIS__FILE_NEW, IGNIS__FILE_APPEND, IGNIS__FILE_REPLACE, IGNIS__FILE_PRIVATE } ignis__file_how;

#ifdef _WIN32

/*  A file to read from, and its size; -1: it cannot be opened, or is no regular file. close it with ignis__file_close. */
IGNIS__MAYBE_UNUSED static int ignis__file_open(const char *path, int64_t *size)
{
    HANDLE file = ignis__file_handle(path, GENERIC_READ, IGNIS__SHARE_ALL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL);
    LARGE_INTEGER length;
    int descriptor = -1;
    if (file == INVALID_HANDLE_VALUE)
        return -1;
    if (GetFileType(file) == FILE_TYPE_DISK && GetFileSizeEx(file, &length))
        descriptor = _open_osfhandle((intptr_t)file, _O_RDONLY);
    if (descriptor < 0)
        CloseHandle(file);
    else
        *size = (int64_t)length.QuadPart;
    return descriptor;
}
/*  Reads a part of it. Returns the bytes that there were, fewer than `size` at the end of the file; -1 on failure. */
IGNIS__MAYBE_UNUSED static int64_t ignis__file_read_at(int file, int64_t at, void *out, int64_t size)
{
    int64_t done = 0;
    int got = 1;
    if (_lseeki64(file, at, SEEK_SET) < 0)
        return -1;
    for (; got > 0 && done < size; done += got)
        if ((got = _read(file, (char *)out + done, (unsigned)(size - done < 1 << 30 ? size - done : 1 << 30))) < 0)
            return -1;
    return done;
}
IGNIS__MAYBE_UNUSED static void ignis__file_close(int file) { (void)_close(file); }

/*  A file to write to, or null. */
static FILE *ignis__file_create(const char *path, ignis__file_how how)
{
    static const DWORD dispositions[] = {CREATE_NEW, OPEN_ALWAYS, CREATE_ALWAYS, CREATE_NEW};
    HANDLE handle = ignis__file_handle(path, how == IGNIS__FILE_APPEND ? FILE_APPEND_DATA | SYNCHRONIZE : GENERIC_WRITE, IGNIS__SHARE_ALL,
                                       dispositions[how], FILE_ATTRIBUTE_NORMAL);
    int descriptor = handle == INVALID_HANDLE_VALUE ? -1 : _open_osfhandle((intptr_t)handle, _O_WRONLY | _O_BINARY);
    FILE *file = descriptor < 0 ? NULL : _fdopen(descriptor, "wb");
    if (descriptor >= 0 && !file)
        _close(descriptor);
    else if (handle != INVALID_HANDLE_VALUE && descriptor < 0)
        CloseHandle(handle);
    return file;
}
/*  Writes to the disk what was written to the file. */
IGNIS__MAYBE_UNUSED static bool ignis__file_flush(FILE *file) { return fflush(file) == 0 && _commit(_fileno(file)) == 0; }
/*  The same for the name of a file that was renamed, where the system can do it. */
IGNIS__MAYBE_UNUSED static void ignis__folder_flush(const char *path_of_file) { (void)path_of_file; }
/*  Whether nobody else owns a file or may write to it: folders of a user are so on Windows. */
static bool ignis__file_is_private(int file, char *why, size_t size) { return (void)file, (void)size, *why = 0, true; }
static bool ignis__stream_is_private(FILE *file, char *why, size_t size) { return (void)file, (void)size, *why = 0, true; }
static bool ignis__path_is_private(const char *path, char *why, size_t size) { return (void)path, (void)size, *why = 0, true; }
/*  The file that a path stands for, links followed; null: there is no memory, or *loop, links lead round. */
IGNIS__MAYBE_UNUSED static char *ignis__file_target(const char *path, bool *loop) { return *loop = false, ignis__copy_string(path); }
/*  Gives a new file the mode and owner of the one that it is to replace, if there is one: here it has what its folder gives. */
IGNIS__MAYBE_UNUSED static void ignis__file_inherit(FILE *file, const char *path) { (void)file, (void)path; }
/*  Whether there is something at a path that is no regular file, so must not be replaced by one. */
IGNIS__MAYBE_UNUSED static bool ignis__path_is_special(const char *path)
{
    WCHAR wide[IGNIS__WIDE];
    DWORD attributes = GetFileAttributesW(ignis__utf16(path, wide));
    return attributes != INVALID_FILE_ATTRIBUTES && (attributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_DEVICE)) != 0;
}

#else /* POSIX */

IGNIS__MAYBE_UNUSED static void ignis__system_error(char *out, size_t size) { snprintf(out, size, "%s", strerror(errno)); }

/*  A file to read from, and its size; -1: it cannot be opened, or is no regular file. close it with ignis__file_close. */
IGNIS__MAYBE_UNUSED static int ignis__file_open(const char *path, int64_t *size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not block */
    struct stat info;
    int error = 0;
    if (file < 0)
        return -1;
    if (fstat(file, &info) != 0)
        error = errno;
    else if (!S_ISREG(info.st_mode))
        error = EINVAL;
    else
        *size = (int64_t)info.st_size;
    if (error)
        close(file), file = -1;
    errno = error;
    return file;
}
/*  Reads a part of it. Returns the bytes that there were, fewer than `size` at the end of the file; -1 on failure. */
IGNIS__MAYBE_UNUSED static int64_t ignis__file_read_at(int file, int64_t at, void *out, int64_t size)
{
    int64_t done = 0;
    ssize_t got = 1;
    while (got > 0 && done < size) {
        got = pread(file, (char *)out + done, (size_t)(size - done), (off_t)(at + done));
        if (got < 0 && errno != EINTR)
            return -1;
        done += got > 0 ? got : 0;
        got = got < 0 ? 1 : got; /* interrupted: once more */
    }
    return done;
}
IGNIS__MAYBE_UNUSED static void ignis__file_close(int file) { close(file); }

/*  A file to write to, or null. */
static FILE *ignis__file_create(const char *path, ignis__file_how how)
{
    static const int flags[] = {O_EXCL, O_APPEND | O_NOFOLLOW | O_NONBLOCK, O_TRUNC, O_EXCL}, modes[] = {0666, 0644, 0666, 0600};
    int descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags[how], modes[how]);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "wb");
    if (descriptor >= 0 && !file)
        close(descriptor);
    return file;
}
/*  Writes to the disk what was written to the file. */
IGNIS__MAYBE_UNUSED static bool ignis__file_flush(FILE *file) { return fflush(file) == 0 && fsync(fileno(file)) == 0; }
/*  The same for the name of a file that was renamed, where the system can do it. */
IGNIS__COLD IGNIS__MAYBE_UNUSED static void ignis__folder_flush(const char *path_of_file)
{
    const char *slash = strrchr(path_of_file, '/');
    size_t length = slash == path_of_file ? 1 : slash ? (size_t)(slash - path_of_file) : 1;
    char folder[1024];
    int descriptor;
    if (length >= sizeof folder)
        return;
    memcpy(folder, slash ? path_of_file : ".", length);
    folder[length] = 0;
    descriptor = open(folder, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    (void)fsync(descriptor);
    close(descriptor);
}
/*  Whether a file or folder is this user's, or root's, and nobody else may write to it: else `why` says what is wrong. */
IGNIS__COLD static bool ignis__stat_is_private(const struct stat *info, char *why, size_t size)
{
    *why = 0;
    if (info->st_uid != geteuid() && info->st_uid != 0)
        snprintf(why, size, "it is of user %lu, and we are user %lu", (unsigned long)info->st_uid, (unsigned long)geteuid());
    else if (info->st_mode & 022)
        snprintf(why, size, "others may write to it (mode 0%o); chmod go-w it", (unsigned)info->st_mode & 07777);
    return *why == 0;
}
static bool ignis__file_is_private(int file, char *why, size_t size)
{
    struct stat info;
    *why = 0;
    if (fstat(file, &info) != 0)
        snprintf(why, size, "%s", strerror(errno));
    else if (!S_ISREG(info.st_mode))
        snprintf(why, size, "it is no regular file");
    return *why == 0 && ignis__stat_is_private(&info, why, size);
}
static bool ignis__stream_is_private(FILE *file, char *why, size_t size) { return ignis__file_is_private(fileno(file), why, size); }
/*  As ignis__stat_is_private, of what a path names; true where nothing is there. */
static bool ignis__path_is_private(const char *path, char *why, size_t size)
{
    struct stat info;
    *why = 0;
    return stat(path, &info) != 0 || ignis__stat_is_private(&info, why, size);
}
/*  The file that a path stands for, links followed, also where there is none yet; null: there is no memory, or *loop, links lead round. */
IGNIS__COLD IGNIS__MAYBE_UNUSED static char *ignis__file_target(const char *path, bool *loop)
{
    char link[4096], *at = ignis__copy_string(path);
    int round;
    *loop = false;
    for (round = 0; at; round++) {
        ssize_t length = readlink(at, link, sizeof link);
        const char *slash = strrchr(at, '/');
        size_t folder = length > 0 && link[0] != '/' && slash ? (size_t)(slash - at) + 1 : 0;
        char *next;
        if (length < 0)
            return at;
        *loop = round == 40 || length == (ssize_t)sizeof link;
        next = *loop ? NULL : (char *)ignis__alloc(folder + (size_t)length + 1);
        if (next) {
            memcpy(next, at, folder);
            memcpy(next + folder, link, (size_t)length);
        }
        ignis__free(at);
        at = next;
    }
    errno = *loop ? ELOOP : ENOMEM;
    return NULL;
}
/*  Gives a new file the mode and owner of the one that it is to replace, if there is one. A group that cannot be given gets no more than others. */
IGNIS__COLD IGNIS__MAYBE_UNUSED static void ignis__file_inherit(FILE *file, const char *path)
{
    struct stat info;
    mode_t mode;
    if (stat(path, &info) != 0)
        return;
    mode = info.st_mode & 0777;
    if (fchown(fileno(file), info.st_uid, info.st_gid) != 0 && fchown(fileno(file), (uid_t)-1, info.st_gid) != 0)
        mode = (mode_t)((mode & 0707u) | (mode & (mode << 3) & 070u));
    (void)fchmod(fileno(file), mode);
}
/*  Whether there is something at a path that is no regular file, so must not be replaced by one. */
IGNIS__MAYBE_UNUSED static bool ignis__path_is_special(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

#endif

/*  Reads a whole regular file into memory of ignis__alloc; null when it cannot be read, or where `why` is given, when others own it or may write to
    it, which *why then says; else it is "". */
IGNIS__COLD static void *ignis__file_read_as(const char *path, size_t *size, char *why, size_t why_size)
{
    int64_t length = 0;
    int file = ignis__file_open(path, &length);
    bool taken = file >= 0 && (!why || ignis__file_is_private(file, why, why_size));
    void *data = taken ? ignis__alloc((size_t)length + 1) : NULL;
    if (why && file < 0)
        *why = 0;
    *size = (size_t)length;
    if (data && ignis__file_read_at(file, 0, data, length) != length) {
        ignis__free(data);
        data = NULL;
    }
    if (file >= 0)
        ignis__file_close(file);
    return data;
}

IGNIS__COLD static void *ignis__file_read(const char *path, size_t *size) { return ignis__file_read_as(path, size, NULL, 0); }

/*  A name for a file that is to become `path` by renaming: in the same folder, and no other thread's or process's. The time tells processes of
    one number apart, as of two containers, or of one that is started again after it was killed. */
IGNIS__MAYBE_UNUSED static char *ignis__file_part_path(const char *path)
{
    static uint64_t serial;
    size_t size = strlen(path) + 80, name = strlen(path);
    char *part = (char *)ignis__alloc(size);
    while (name > 0 && path[name - 1] != '/' && path[name - 1] != '\\')
        name--;
    name += ignis__utf8_cut(path + name, 160); /* systems have names of up to 255 bytes */
    if (part)
        snprintf(part, size, "%.*s.%lu-%llu-%llx.ignis-part", (int)name, path, ignis__process_id(),
                 (unsigned long long)ignis__atomic_add(&serial, 1), (unsigned long long)ignis__wall_ns());
    return part;
}

/*  A 64-bit FNV-1a hash (Fowler, Noll, Vo), continued from `hash`. */
#define IGNIS__HASH_START 0xCBF29CE484222325u
static uint64_t ignis__hash(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *byte = (const unsigned char *)data;
    while (size--)
        hash = (hash ^ *byte++) * 0x100000001B3u;
    return hash;
}

/* ===============================================================================================================
   >>status - the error record of each thread, the logger, names of statuses and diagnostics.
   =============================================================================================================== */

/*  Every call of a driver library passes through here, so tests can count calls and make the n-th one fail. */
#ifndef IGNIS_CALL_HOOK
#define IGNIS_CALL_HOOK(name, call) (call)
#endif

/*  One failure. */
typedef struct ignis__record {
    ignis_status status;
    ignis_diagnostic diagnostic;
    const char *call;
    int driver_error;
    const char *driver_name;
    char *message;   /* from malloc, as it may outlive ignis_shutdown; null: text is enough, or there was no memory */
    const char *log; /* the end of message */
    char text[256];  /* the message, or its beginning */
} ignis__record;

/*  A failure that ignis_status_begin has put aside. */
typedef struct ignis__aside {
    int depth; /* of which one */
    ignis__record record;
    char *latest_message;
    struct ignis__aside *outer;
} ignis__aside;

/*  A call that runs functions of the caller: messages of what fails in them name it, too. */
typedef struct ignis__outer_call {
    const char *call;
    const char *rule; /* the rule whose backward function runs; null: none does */
    const struct ignis__outer_call *outer;
} ignis__outer_call;

/*  What a thread keeps. The device section uses the last part. */
typedef struct ignis__thread {
    ignis__record record;            /* the first failure */
    ignis_status latest;             /* of the last one, recorded or not */
    uint64_t failures;               /* so many were reported */
    char *latest_message;            /* from malloc; null: it is that of the first, or there was no memory for it */
    ignis__aside *aside;             /* from malloc, the innermost one */
    int depth;                       /* ignis_status_begin calls that have not ended */
    int stuck;                       /* from this one on there was no memory to put the failure aside; 0: there was */
    const ignis__outer_call *inside; /* the innermost one */
    bool quiet;                      /* failures are answers to what was tried, and not reported */
    bool called_back;                /* it runs a function given to ignis_stream_call */
    const char *file;                /* where the caller's code is, as ignis_call_site has said; null: it has not */
    int line, number;                /* which thread it is in profiles, from 1 on; 0: in none */
    double bytes, flops;             /* of the next kernel, while a profile is written down */
    int rate;                        /* an ignis_dtype: which of the device's rates the flops go by */
    bool told;                       /* the bytes are what that kernel moves, and not those of all arrays of its operation */
    uint64_t operation;              /* which one that is, in this thread */

    void *attached[2]; /* arrays of the tensor section, from malloc */
    uint64_t tape;     /* the number of its tape; 0: none */
    void (*tensors_end)(void);
    struct ignis__thread *before, *after; /* in ignis__threads */
    bool listed, ended;                   /* it is there; it ends, and will not be there again */
    struct ignis__capture *capture;       /* what ignis_graph_begin has begun */

    uint64_t setup; /* the setup that the rest belongs to: an older one is forgotten */
    int device;
    uint64_t forgets; /* ignis_stream_forget calls seen */
    void *stream[IGNIS_MAX_DEVICES];
    uint64_t stream_serial[IGNIS_MAX_DEVICES];
} ignis__thread;

IGNIS__LOCAL(ignis__thread, ignis__this_thread, IGNIS__LOCAL_THREAD)
#ifdef _WIN32
#define ignis__this_thread (*ignis__this_thread_get())
#endif

static struct {
    uint64_t ready;   /* between ignis_setup and ignis_shutdown */
    uint64_t forked;  /* this process is a child of the one that called ignis_setup */
    uint64_t setups;  /* how many there were */
    uint64_t refused; /* calls since ignis_setup was last called, or ignis_shutdown, while nothing was set up: the first is logged */
    bool verbose;
    bool dry_run;
    ignis_logger logger;
} ignis__global;

IGNIS__COLD static void ignis__log(ignis_log_level level, ignis_diagnostic diagnostic, const char *message)
{
    static const char *const names[] = {"", "info", "warning", "error"};
    if (level == IGNIS_LOG_INFO && !ignis__global.verbose)
        return;
    if (ignis__global.logger.log_fn)
        ignis__global.logger.log_fn(level, diagnostic, message, ignis__global.logger.user_data);
    else
        fprintf(stderr, "ignis: %s: %s\n", names[level], message);
}

/*  What a message says, and below it a log of several lines, "" for none, with what came from outside as it is shown. A message that is longer
    loses its middle. */
#define IGNIS__MESSAGE 4000
IGNIS__COLD static void ignis__text_add_message(ignis__text *text, const char *message, const char *log)
{
    size_t size = strlen(message), first = size, last = size;
    if (size > IGNIS__MESSAGE) {
        first = ignis__utf8_cut(message, IGNIS__MESSAGE * 3 / 4);
        last = size - IGNIS__MESSAGE / 4;
        while (((unsigned char)message[last] & 0xC0) == 0x80)
            last++;
    }
    ignis__text_add_shown(text, message, first, false);
    if (last > first)
        ignis__text_add(text, " ... %lld bytes ... ", (long long)(last - first));
    ignis__text_add_shown(text, message + last, size - last, false);
    ignis__text_add(text, "%s", *log ? "\n" : "");
    ignis__text_add_shown(text, log, strlen(log), true);
}

IGNIS__PRINTF(4, 5)
IGNIS__COLD static void ignis__note_log(ignis_log_level level, ignis_diagnostic diagnostic, const char *log, const char *format, ...)
{
    char message[1024], shown[2048];
    ignis__text text;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    ignis__text_begin(&text, shown, sizeof shown);
    ignis__text_add_message(&text, message, log);
    ignis__log(level, diagnostic, shown);
}
#define ignis__note(level, diagnostic, ...) ignis__note_log(level, diagnostic, "", __VA_ARGS__)

/* clang-format off */
static const struct {
    const char *name;
    ignis_status status;
    const char *rule;
} ignis__diagnostics[] = {
    {"NONE", IGNIS_OK, ""},
#define IGNIS__DIAGNOSTIC_ROW(name, status, rule) {#name, IGNIS_ERROR_##status, rule},
    IGNIS_DIAGNOSTICS(IGNIS__DIAGNOSTIC_ROW)
#undef IGNIS__DIAGNOSTIC_ROW
};
/* clang-format on */

static const char *ignis__record_text(const ignis__record *record) { return record->message ? record->message : record->text; }

static void ignis__record_drop(ignis__thread *thread)
{
    free(thread->record.message);
    memset(&thread->record, 0, sizeof thread->record);
}

static void ignis__latest_drop(ignis__thread *thread)
{
    free(thread->latest_message);
    thread->latest_message = NULL;
}

/*  Threads that keep something from malloc: it goes when they end, and at ignis_shutdown, as a library with Ignis inside may be unloaded
    before they end. */
static struct {
    ignis__mutex lock;
    ignis__thread *first;
} ignis__threads = {IGNIS__MUTEX_INIT, NULL};

static void ignis__thread_unlist(ignis__thread *thread)
{
    ignis__mutex_lock(&ignis__threads.lock);
    if (thread->before)
        thread->before->after = thread->after;
    else
        ignis__threads.first = thread->after;
    if (thread->after)
        thread->after->before = thread->before;
    thread->listed = false;
    ignis__mutex_unlock(&ignis__threads.lock);
}

static void ignis__aside_free(ignis__thread *thread)
{
    while (thread->aside) {
        ignis__aside *aside = thread->aside;
        thread->aside = aside->outer;
        free(aside->record.message);
        free(aside->latest_message);
        free(aside);
    }
}

static void ignis__attached_free(ignis__thread *thread)
{
    free(thread->attached[0]);
    free(thread->attached[1]);
    thread->attached[0] = thread->attached[1] = NULL;
}

/*  Other destructors of the thread may use Ignis behind this one, and bring it here once more. */
IGNIS__COLD static void ignis__thread_exit(void *pointer)
{
    ignis__thread *thread = (ignis__thread *)pointer;
    bool forked = ignis__atomic_load(&ignis__global.forked) != 0;
    if (thread->listed && !forked)
        ignis__thread_unlist(thread);
    thread->ended = true;
    ignis__record_drop(thread);
    ignis__latest_drop(thread);
    ignis__aside_free(thread);
    ignis__attached_free(thread);
    if (thread->tensors_end && !forked)
        thread->tensors_end();
}

static void ignis__unload(void);

/*  The calling thread keeps something from malloc. */
IGNIS__COLD static void ignis__thread_watch(ignis__thread *thread)
{
    if (thread->listed || ignis__atomic_load(&ignis__global.forked))
        return;
    ignis__at_unload(ignis__unload);
    if (!ignis__at_thread_exit(ignis__thread_exit, thread) || thread->ended)
        return;
    ignis__mutex_lock(&ignis__threads.lock);
    thread->before = NULL;
    thread->after = ignis__threads.first;
    if (thread->after)
        thread->after->before = thread;
    ignis__threads.first = thread;
    thread->listed = true;
    ignis__mutex_unlock(&ignis__threads.lock);
}

/*  Frees a thread's messages, and what it has put aside: of the first failure's its beginning stays. */
static void ignis__messages_cut(ignis__thread *thread)
{
    ignis__latest_drop(thread);
    ignis__aside_free(thread);
    free(thread->record.message);
    thread->record.message = NULL;
    thread->record.log = "";
}

/*  Frees what threads keep, at ignis_shutdown, but the messages of the calling thread, which may ask for them. */
static void ignis__threads_close(void)
{
    ignis__thread *thread;
    ignis__mutex_lock(&ignis__threads.lock);
    for (thread = ignis__threads.first; thread; thread = thread->after) {
        ignis__attached_free(thread);
        if (thread != &ignis__this_thread)
            ignis__messages_cut(thread);
    }
    ignis__mutex_unlock(&ignis__threads.lock);
}

/*  Keeps a copy of a failure's message as the latest. */
IGNIS__COLD static void ignis__latest_keep(ignis__thread *thread, const char *message)
{
    size_t size = strlen(message) + 1;
    ignis__latest_drop(thread);
    thread->latest_message = (char *)malloc(size);
    if (thread->latest_message)
        memcpy(thread->latest_message, message, size);
}

/*  Makes a record this thread's first failure, if it has none, or frees it: the first failure is the one worth knowing. */
static ignis_status ignis__record_adopt(const ignis__record *record)
{
    ignis__thread *thread = &ignis__this_thread;
    ignis_status status = record->status;
    thread->latest = status;
    thread->failures += !thread->quiet;
    ignis__thread_watch(thread);
    if (thread->record.status == IGNIS_OK) {
        thread->record = *record;
        if (!thread->quiet)
            ignis__latest_drop(thread);
        return status;
    }
    if (!thread->quiet)
        ignis__latest_keep(thread, ignis__record_text(record));
    free(record->message);
    return status;
}

/*  Makes a failure of another thread, where it was reported already, one of this thread, too. */
IGNIS__MAYBE_UNUSED IGNIS__COLD static ignis_status ignis__record_repeat(const ignis__record *record)
{
    ignis__record copy = *record;
    size_t size = record->message ? strlen(record->message) + 1 : 0;
    copy.log = "";
    copy.message = size ? (char *)malloc(size) : NULL;
    if (copy.message) {
        memcpy(copy.message, record->message, size);
        copy.log = copy.message + (record->log - record->message);
    }
    return ignis__record_adopt(&copy);
}

/*  Between the two, failures of this thread are not reported. The first is *failure; its message goes to `why` without the call. */
IGNIS__MAYBE_UNUSED static ignis__record ignis__quiet_begin(void)
{
    ignis__thread *thread = &ignis__this_thread;
    ignis__record before = thread->record;
    memset(&thread->record, 0, sizeof thread->record);
    thread->quiet = true;
    return before;
}

IGNIS__MAYBE_UNUSED static void ignis__quiet_end(const ignis__record *before, ignis__record *failure, char *why, size_t why_size)
{
    ignis__thread *thread = &ignis__this_thread;
    const char *colon;
    *failure = thread->record;
    colon = strstr(ignis__record_text(failure), ": ");
    snprintf(why, why_size, "%s", colon ? colon + 2 : ignis__record_text(failure));
    failure->message = NULL;
    failure->log = NULL;
    ignis__record_drop(thread);
    thread->record = *before;
    thread->quiet = false;
}

IGNIS__MAYBE_UNUSED static void ignis__outer_call_begin(ignis__outer_call *outer, const char *call, const char *rule)
{
    outer->call = call;
    outer->rule = rule;
    outer->outer = ignis__this_thread.inside;
    ignis__this_thread.inside = outer;
}

IGNIS__MAYBE_UNUSED static void ignis__outer_call_end(const ignis__outer_call *outer) { ignis__this_thread.inside = outer->outer; }

/*  Names the calls inside which a call has failed, the innermost first. */
static void ignis__text_add_outer_calls(ignis__text *text, const ignis__outer_call *outer, const char *call)
{
    const char *before = " (inside ";
    for (; outer; outer = outer->outer) {
        if (outer->rule)
            ignis__text_add(text, "%sthe backward of '%s', %s", before, outer->rule, outer->call);
        else if (outer->call != call) /* which was named just before */
            ignis__text_add(text, "%s%s", before, outer->call);
        else
            continue;
        before = ", ";
        call = outer->call;
    }
    if (*before == ',')
        ignis__text_add(text, ")");
}

/*  What a call ends with that gives something back: with the failure that came up meanwhile, if one did, although what was to end has ended. */
static uint64_t ignis__failures(void) { return ignis__this_thread.failures; }
static ignis_status ignis__ended(uint64_t failures_before, bool ok)
{
    const ignis__thread *thread = &ignis__this_thread;
    return ok && thread->failures == failures_before ? IGNIS_OK : thread->latest;
}

IGNIS__PRINTF(2, 0)
IGNIS__COLD static ignis_status ignis__failv(ignis__record cause, const char *format, va_list args)
{
    const char *log = cause.log ? cause.log : "";
    char *said = NULL, beginning[sizeof cause.text];
    ignis__text text;
    int round;

    cause.status = ignis__diagnostics[cause.diagnostic].status;
    ignis__text_begin(&text, beginning, sizeof beginning);
    for (round = 0; round < 2; round++) { /* the first round measures */
        va_list again;
        va_copy(again, args);
        ignis__text_add(&text, "%s: ", cause.call);
        ignis__text_addv(&text, format, again);
        ignis__text_add_outer_calls(&text, ignis__this_thread.inside, cause.call);
        va_end(again);
        if (round == 1 || text.length < sizeof beginning || (said = (char *)malloc(text.length + 1)) == NULL)
            break;
        ignis__text_begin(&text, said, text.length + 1);
    }
    ignis__text_begin(&text, cause.text, sizeof cause.text);
    ignis__text_add_message(&text, said ? said : beginning, log);
    if (text.length >= sizeof cause.text || *log)
        cause.message = (char *)malloc(text.length + 1);
    if (cause.message) {
        ignis__text_begin(&text, cause.message, text.length + 1);
        ignis__text_add_message(&text, said ? said : beginning, log);
    }
    free(said);
    cause.log = cause.message && *log ? strchr(cause.message, '\n') + 1 : "";
    if (!cause.driver_name)
        cause.driver_name = "";
    if (!ignis__this_thread.quiet)
        ignis__log(IGNIS_LOG_ERROR, cause.diagnostic, ignis__record_text(&cause));
    return ignis__record_adopt(&cause);
}

IGNIS__PRINTF(3, 4)
IGNIS__COLD static ignis_status ignis__fail(ignis_diagnostic diagnostic, const char *call, const char *format, ...)
{
    ignis__record cause = IGNIS__ZERO;
    ignis_status status;
    va_list args;
    cause.diagnostic = diagnostic;
    cause.call = call;
    va_start(args, format);
    status = ignis__failv(cause, format, args);
    va_end(args);
    return status;
}

/*  Fails with a message, and is always false: what a check that refuses returns. */
IGNIS__PRINTF(3, 4)
IGNIS__COLD static bool ignis__refuse(ignis_diagnostic diagnostic, const char *call, const char *format, ...)
{
    ignis__record cause = IGNIS__ZERO;
    va_list args;
    cause.diagnostic = diagnostic;
    cause.call = call;
    va_start(args, format);
    (void)ignis__failv(cause, format, args);
    va_end(args);
    return false;
}

IGNIS__PRINTF(6, 7)
IGNIS__COLD static ignis_status ignis__fail_because(ignis_diagnostic diagnostic, const char *call, int error, const char *name,
                                                    const char *log, const char *format, ...)
{
    ignis__record cause = IGNIS__ZERO;
    ignis_status status;
    va_list args;
    cause.diagnostic = diagnostic;
    cause.call = call;
    cause.driver_error = error;
    cause.driver_name = name;
    cause.log = log;
    va_start(args, format);
    status = ignis__failv(cause, format, args);
    va_end(args);
    return status;
}

IGNIS__COLD static ignis_status ignis__fail_host_memory(const char *call, size_t size)
{
    return ignis__fail(IGNIS_DIAG_HOST_MEMORY, call, "out of host memory: %lld bytes were asked for", (long long)size);
}

/*  Zeroed memory. Null, and reported: there is none. */
IGNIS__ONE_COPY static void *ignis__alloc_for(const char *call, size_t size)
{
    void *memory = ignis__alloc(size);
    if (!memory)
        ignis__fail_host_memory(call, size);
    return memory;
}

IGNIS__COLD static ignis_status ignis__fail_null(const char *call, const char *argument)
{
    return ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "%s is null%s", argument,
                       strcmp(argument, "desc") == 0 ? " (in C++ {} is null, too)" : "");
}

/*  Whether an argument that may not be null was given. */
IGNIS__ONE_COPY static bool ignis__given(const char *call, const char *name, const void *argument)
{
    if (!argument)
        ignis__fail_null(call, name);
    return argument != NULL;
}

/*  Whether what a call fills has room for so many, which may be none. */
static bool ignis__room_given(const char *call, const char *name, const void *out, int capacity)
{
    if (capacity < 0)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    return capacity == 0 || ignis__given(call, name, out);
}

/*  What the system has refused to do with a file just now. */
IGNIS__COLD static ignis_status ignis__fail_file(ignis_diagnostic diagnostic, const char *call, const char *path, const char *what)
{
    char reason[256];
    ignis__system_error(reason, sizeof reason);
    return ignis__fail(diagnostic, call, "'%s' cannot be %s: %s", path, what, reason);
}

/*  The status of the failure that was just reported, for the caller of what reported it. */
IGNIS__ONE_COPY static ignis_status ignis__failed(void) { return ignis__this_thread.latest; }

/*  Fails for what each call fails for until ignis_setup has succeeded: only the first goes to the log. */
IGNIS__COLD static void ignis__refuse_once(ignis_diagnostic diagnostic, const char *call, const char *why)
{
    ignis__record cause = IGNIS__ZERO;
    if (ignis__atomic_add(&ignis__global.refused, 1) == 1) {
        ignis__fail(diagnostic, call, "%s", why);
        return;
    }
    cause.status = ignis__diagnostics[diagnostic].status;
    cause.diagnostic = diagnostic;
    cause.call = call;
    cause.driver_name = cause.log = "";
    snprintf(cause.text, sizeof cause.text, "%s: %s", call, why);
    (void)ignis__record_adopt(&cause);
}

/*  Why Ignis cannot be called here. */
IGNIS__COLD static void ignis__enter_refuse(const char *call)
{
    if (ignis__this_thread.called_back)
        ignis__fail(
            IGNIS_DIAG_INSIDE_CALLBACK, call,
            "this is inside a function given to ignis_stream_call, on a thread of the driver, where nothing of Ignis or CUDA can be "
            "called");
    else if (ignis__atomic_load(&ignis__global.forked))
        ignis__refuse_once(IGNIS_DIAG_FORKED, call,
                           "this process was forked after ignis_setup, and CUDA does not work across fork; exec a new program instead");
    else if (ignis__this_thread.record.status == IGNIS_OK)
        ignis__refuse_once(IGNIS_DIAG_NOT_SETUP, call, "ignis_setup has not been called, or ignis_shutdown has");
    else /* most likely ignis_setup has failed and said why: one message is enough for all calls after it */
        ignis__this_thread.latest = IGNIS_ERROR_NOT_SETUP;
}

/*  The check that stands first in every public function. */
static bool ignis__enter(const char *call)
{
    if (ignis__atomic_load(&ignis__global.ready) && !ignis__atomic_load(&ignis__global.forked) && !ignis__this_thread.called_back)
        return true;
    ignis__enter_refuse(call);
    return false;
}

IGNIS_API void ignis_call_site(const char *file, int line)
{
    ignis__this_thread.file = file;
    ignis__this_thread.line = line;
}

IGNIS_API ignis_status ignis_status_last(void) { return ignis__this_thread.record.status; }

IGNIS_API const char *ignis_status_message(void) { return ignis__record_text(&ignis__this_thread.record); }

IGNIS_API const char *ignis_status_latest_message(void)
{
    const ignis__thread *thread = &ignis__this_thread;
    return thread->latest_message ? thread->latest_message : ignis_status_message();
}

IGNIS__COLD IGNIS_API ignis_status ignis_status_query(ignis_status_info *info)
{
    const ignis__record *record = &ignis__this_thread.record;
    bool failed = record->status != IGNIS_OK;
    if (info) {
        info->status = record->status;
        info->diagnostic = record->diagnostic;
        info->call = failed ? record->call : "";
        info->message = ignis_status_message();
        info->driver_error = record->driver_error;
        info->driver_name = failed ? record->driver_name : "";
        info->log = failed ? record->log : "";
    }
    return record->status;
}

IGNIS__COLD IGNIS_API void ignis_status_clear(void)
{
    ignis__record_drop(&ignis__this_thread);
    ignis__latest_drop(&ignis__this_thread);
}

IGNIS__COLD IGNIS_API void ignis_status_begin(void)
{
    ignis__thread *thread = &ignis__this_thread;
    ignis__aside *aside;
    thread->depth++;
    if (thread->record.status == IGNIS_OK)
        return;
    aside = (ignis__aside *)malloc(sizeof *aside);
    if (!aside) {
        thread->stuck = thread->stuck ? thread->stuck : thread->depth;
        return;
    }
    aside->depth = thread->depth;
    aside->record = thread->record;
    aside->latest_message = thread->latest_message;
    aside->outer = thread->aside;
    thread->aside = aside;
    memset(&thread->record, 0, sizeof thread->record);
    thread->latest_message = NULL;
}

IGNIS__COLD IGNIS_API ignis_status ignis_status_end(void)
{
    ignis__thread *thread = &ignis__this_thread;
    ignis__aside *aside = thread->aside && thread->aside->depth == thread->depth ? thread->aside : NULL;
    ignis_status status = thread->record.status;
    if (thread->depth == 0)
        return ignis__fail(IGNIS_DIAG_SCOPE_ORDER, "ignis_status_end", "there is no ignis_status_begin in this thread that has not ended");
    if (aside) {
        ignis_status_clear();
        thread->record = aside->record;
        thread->latest_message = aside->latest_message;
        thread->aside = aside->outer;
        free(aside);
    } else if (!thread->stuck || thread->depth < thread->stuck) {
        ignis_status_clear();
    }
    if (--thread->depth < thread->stuck)
        thread->stuck = 0;
    return status;
}

IGNIS_API const char *ignis_status_name(ignis_status status)
{
    /* clang-format off */
    static const char *const names[] = {
        "IGNIS_OK",
#define IGNIS__STATUS_NAME(name, meaning) "IGNIS_ERROR_" #name,
        IGNIS_STATUSES(IGNIS__STATUS_NAME)
#undef IGNIS__STATUS_NAME
    };
    /* clang-format on */
    return (unsigned)status < IGNIS_STATUS_COUNT ? names[status] : "unknown status";
}

IGNIS_API const char *ignis_diagnostic_name(ignis_diagnostic diagnostic)
{
    return (unsigned)diagnostic < IGNIS_DIAG_COUNT ? ignis__diagnostics[diagnostic].name : "unknown diagnostic";
}

IGNIS_API const char *ignis_diagnostic_rule(ignis_diagnostic diagnostic)
{
    return (unsigned)diagnostic < IGNIS_DIAG_COUNT ? ignis__diagnostics[diagnostic].rule : "";
}

IGNIS_API const char *ignis_version_string(void)
{
#define IGNIS__TEXT_OF(x) #x
#define IGNIS__TEXT(x) IGNIS__TEXT_OF(x)
    return IGNIS__TEXT(IGNIS_VERSION_MAJOR) "." IGNIS__TEXT(IGNIS_VERSION_MINOR) "." IGNIS__TEXT(IGNIS_VERSION_PATCH);
}

/* ===============================================================================================================
   >>loader - the driver, NVRTC and cuBLASLt, opened at run time from one table a library.
   =============================================================================================================== */

/*  X(return type, name, (argument types), first CUDA version that has it, required). The prototypes are Ignis' own: enumerations
    are int, handles void *, and device addresses ignis__address. tests/prototypes.cpp holds them against the toolkit's headers. */
typedef unsigned long long ignis__address;

typedef struct ignis__ipc_handle { /* CUipcMemHandle and CUipcEventHandle */
    char bytes[64];
} ignis__ipc_handle;

typedef struct ignis__nccl_id { /* ncclUniqueId */
    char bytes[128];
} ignis__nccl_id;

#define IGNIS__CUDA_API(X)                                                                                                                 \
    X(int, cuInit, (unsigned), 2000, 1)                                                                                                    \
    X(int, cuDriverGetVersion, (int *), 2020, 1)                                                                                           \
    X(int, cuGetErrorName, (int, const char **), 6000, 1)                                                                                  \
    X(int, cuGetErrorString, (int, const char **), 6000, 1)                                                                                \
    X(int, cuDeviceGetCount, (int *), 2000, 1)                                                                                             \
    X(int, cuDeviceGet, (int *, int), 2000, 1)                                                                                             \
    X(int, cuDeviceGetName, (char *, int, int), 2000, 1)                                                                                   \
    X(int, cuDeviceGetUuid_v2, (void *, int), 11040, 1)                                                                                    \
    X(int, cuDeviceGetLuid, (char *, unsigned *, int), 10000, 0) /* Windows alone has it */                                                \
    X(int, cuDeviceGetPCIBusId, (char *, int, int), 4010, 1)                                                                               \
    X(int, cuDeviceGetAttribute, (int *, int, int), 2000, 1)                                                                               \
    X(int, cuDeviceTotalMem_v2, (size_t *, int), 3020, 1)                                                                                  \
    X(int, cuDevicePrimaryCtxRetain, (void **, int), 7000, 1)                                                                              \
    X(int, cuDevicePrimaryCtxRelease_v2, (int), 11000, 1)                                                                                  \
    X(int, cuCtxGetCurrent, (void **), 4000, 1)                                                                                            \
    X(int, cuCtxSetCurrent, (void *), 4000, 1)                                                                                             \
    X(int, cuCtxPushCurrent_v2, (void *), 4000, 1)                                                                                         \
    X(int, cuCtxPopCurrent_v2, (void **), 4000, 1)                                                                                         \
    X(int, cuCtxSynchronize, (void), 2000, 1)                                                                                              \
    X(int, cuMemGetInfo_v2, (size_t *, size_t *), 3020, 1)                                                                                 \
    X(int, cuMemAlloc_v2, (ignis__address *, size_t), 3020, 1)                                                                             \
    X(int, cuMemFree_v2, (ignis__address), 3020, 1)                                                                                        \
    X(int, cuMemHostAlloc, (void **, size_t, unsigned), 2020, 1)                                                                           \
    X(int, cuMemFreeHost, (void *), 2000, 1)                                                                                               \
    X(int, cuPointerGetAttributes, (unsigned, int *, void **, ignis__address), 7000, 1)                                                    \
    X(int, cuMemsetD8Async, (ignis__address, unsigned char, size_t, void *), 3020, 1)                                                      \
    X(int, cuMemcpyHtoDAsync_v2, (ignis__address, const void *, size_t, void *), 3020, 1)                                                  \
    X(int, cuMemcpyDtoHAsync_v2, (void *, ignis__address, size_t, void *), 3020, 1)                                                        \
    X(int, cuMemcpyDtoDAsync_v2, (ignis__address, ignis__address, size_t, void *), 3020, 1)                                                \
    X(int, cuMemcpyPeerAsync, (ignis__address, void *, ignis__address, void *, size_t, void *), 4000, 1)                                   \
    X(int, cuStreamCreate, (void **, unsigned), 2000, 1)                                                                                   \
    X(int, cuStreamCreateWithPriority, (void **, unsigned, int), 5050, 1)                                                                  \
    X(int, cuStreamDestroy_v2, (void *), 4000, 1)                                                                                          \
    X(int, cuStreamSynchronize, (void *), 2000, 1)                                                                                         \
    X(int, cuStreamWaitEvent, (void *, void *, unsigned), 3020, 1)                                                                         \
    X(int, cuStreamGetCtx, (void *, void **), 9020, 1)                                                                                     \
    X(int, cuEventCreate, (void **, unsigned), 2000, 1)                                                                                    \
    X(int, cuEventRecord, (void *, void *), 2000, 1)                                                                                       \
    X(int, cuEventDestroy_v2, (void *), 4000, 1)                                                                                           \
    X(int, cuModuleLoadData, (void **, const void *), 2000, 1)                                                                             \
    X(int, cuModuleUnload, (void *), 2000, 1)                                                                                              \
    X(int, cuModuleGetFunction, (void **, void *, const char *), 2000, 1)                                                                  \
    X(int, cuModuleGetGlobal_v2, (ignis__address *, size_t *, void *, const char *), 3020, 1)                                              \
    X(int, cuFuncGetAttribute, (int *, int, void *), 2020, 1)                                                                              \
    X(int, cuFuncSetAttribute, (void *, int, int), 9000, 1)                                                                                \
    X(int, cuFuncGetParamInfo, (void *, size_t, size_t *, size_t *), 12040, 0)                                                             \
    X(int, cuStreamBeginCapture_v2, (void *, int), 10010, 1)                                                                               \
    X(int, cuStreamIsCapturing, (void *, int *), 10000, 1)                                                                                 \
    X(int, cuStreamEndCapture, (void *, void **), 10000, 1)                                                                                \
    X(int, cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), 11040, 1)                                                   \
    X(int, cuGraphLaunch, (void *, void *), 10000, 1)                                                                                      \
    X(int, cuGraphExecDestroy, (void *), 10000, 1)                                                                                         \
    X(int, cuGraphDestroy, (void *), 10000, 1)                                                                                             \
    X(int, cuMemGetAddressRange_v2, (ignis__address *, size_t *, ignis__address), 3020, 1)                                                 \
    X(int, cuDeviceCanAccessPeer, (int *, int, int), 4000, 1)                                                                              \
    X(int, cuCtxEnablePeerAccess, (void *, unsigned), 4000, 1)                                                                             \
    X(int, cuDeviceGetP2PAttribute, (int *, int, int, int), 8000, 1)                                                                       \
    X(int, cuMemHostRegister_v2, (void *, size_t, unsigned), 6050, 1)                                                                      \
    X(int, cuMemHostUnregister, (void *), 4000, 1)                                                                                         \
    X(int, cuMemHostGetDevicePointer_v2, (ignis__address *, void *, unsigned), 3020, 1)                                                    \
    X(int, cuStreamQuery, (void *), 2000, 1)                                                                                               \
    X(int, cuEventQuery, (void *), 2000, 1)                                                                                                \
    X(int, cuEventElapsedTime, (float *, void *, void *), 2000, 1)                                                                         \
    X(int, cuEventSynchronize, (void *), 2000, 1)                                                                                          \
    X(int, cuLaunchHostFunc, (void *, void (*)(void *), void *), 10000, 1)                                                                 \
    X(int, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *, void *, int, size_t), 6050, 1)                                             \
    X(int, cuMemGetAllocationGranularity, (size_t *, const void *, int), 10020, 1)                                                         \
    X(int, cuMemCreate, (unsigned long long *, size_t, const void *, unsigned long long), 10020, 1)                                        \
    X(int, cuMemRelease, (unsigned long long), 10020, 1)                                                                                   \
    X(int, cuMemAddressReserve, (ignis__address *, size_t, size_t, ignis__address, unsigned long long), 10020, 1)                          \
    X(int, cuMemAddressFree, (ignis__address, size_t), 10020, 1)                                                                           \
    X(int, cuMemMap, (ignis__address, size_t, size_t, unsigned long long, unsigned long long), 10020, 1)                                   \
    X(int, cuMemUnmap, (ignis__address, size_t), 10020, 1)                                                                                 \
    X(int, cuMemSetAccess, (ignis__address, size_t, const void *, size_t), 10020, 1)                                                       \
    X(int, cuMemGetAccess, (unsigned long long *, const void *, ignis__address), 10020, 1)                                                 \
    X(int, cuMemExportToShareableHandle, (void *, unsigned long long, int, unsigned long long), 10020, 1)                                  \
    X(int, cuMemImportFromShareableHandle, (unsigned long long *, void *, int), 10020, 1)                                                  \
    X(int, cuMemGetAllocationPropertiesFromHandle, (void *, unsigned long long), 10020, 1)                                                 \
    X(int, cuMemRetainAllocationHandle, (unsigned long long *, void *), 11000, 1)                                                          \
    X(int, cuIpcGetMemHandle, (void *, ignis__address), 4010, 1)                                                                           \
    X(int, cuIpcOpenMemHandle_v2, (ignis__address *, ignis__ipc_handle, unsigned), 11000, 1)                                               \
    X(int, cuIpcCloseMemHandle, (ignis__address), 4010, 1)                                                                                 \
    X(int, cuIpcGetEventHandle, (void *, void *), 4010, 1)                                                                                 \
    X(int, cuIpcOpenEventHandle, (void **, ignis__ipc_handle), 4010, 1)                                                                    \
    X(int, cuImportExternalMemory, (void **, const void *), 10000, 0)                                                                      \
    X(int, cuExternalMemoryGetMappedBuffer, (ignis__address *, void *, const void *), 10000, 0)                                            \
    X(int, cuDestroyExternalMemory, (void *), 10000, 0)                                                                                    \
    X(int, cuImportExternalSemaphore, (void **, const void *), 10000, 0)                                                                   \
    X(int, cuSignalExternalSemaphoresAsync, (void *const *, const void *, unsigned, void *), 10000, 0)                                     \
    X(int, cuWaitExternalSemaphoresAsync, (void *const *, const void *, unsigned, void *), 10000, 0)                                       \
    X(int, cuDestroyExternalSemaphore, (void *), 10000, 0)                                                                                 \
    X(int, cuGraphicsGLRegisterBuffer, (void **, unsigned, unsigned), 3000, 0)                                                             \
    X(int, cuGraphicsUnregisterResource, (void *), 3000, 0)                                                                                \
    X(int, cuGraphicsMapResources, (unsigned, void **, void *), 3000, 0)                                                                   \
    X(int, cuGraphicsUnmapResources, (unsigned, void **, void *), 3000, 0)                                                                 \
    X(int, cuGraphicsResourceGetMappedPointer_v2, (ignis__address *, size_t *, void *), 3020, 0)                                           \
    X(int, cuTensorMapEncodeTiled,                                                                                                         \
      (void *, int, unsigned, void *, const unsigned long long *, const unsigned long long *, const unsigned *, const unsigned *, int,     \
       int, int, int),                                                                                                                     \
      12000, 0)                                                                                                                            \
    X(int, cuTensorMapEncodeIm2col,                                                                                                        \
      (void *, int, unsigned, void *, const unsigned long long *, const unsigned long long *, const int *, const int *, unsigned,          \
       unsigned, const unsigned *, int, int, int, int),                                                                                    \
      12000, 0)                                                                                                                            \
    X(int, cuLaunchKernelEx, (const void *, void *, void **, void **), 12030 /* such launches in graphs, too */, 0)                        \
    X(int, cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), 4000, \
      1)

#define IGNIS__NVRTC_API(X)                                                                                                   \
    X(int, nvrtcVersion, (int *, int *), 7000, 1)                                                                             \
    X(const char *, nvrtcGetErrorString, (int), 7000, 1)                                                                      \
    X(int, nvrtcCreateProgram, (void **, const char *, const char *, int, const char *const *, const char *const *), 7000, 1) \
    X(int, nvrtcDestroyProgram, (void **), 7000, 1)                                                                           \
    X(int, nvrtcAddNameExpression, (void *, const char *), 8000, 1)                                                           \
    X(int, nvrtcCompileProgram, (void *, int, const char *const *), 7000, 1)                                                  \
    X(int, nvrtcGetProgramLogSize, (void *, size_t *), 7000, 1)                                                               \
    X(int, nvrtcGetProgramLog, (void *, char *), 7000, 1)                                                                     \
    X(int, nvrtcGetLoweredName, (void *, const char *, const char **), 8000, 1)                                               \
    X(int, nvrtcGetCUBINSize, (void *, size_t *), 11010, 1)                                                                   \
    X(int, nvrtcGetCUBIN, (void *, char *), 11010, 1)                                                                         \
    X(int, nvrtcGetPTXSize, (void *, size_t *), 7000, 1)                                                                      \
    X(int, nvrtcGetPTX, (void *, char *), 7000, 1)                                                                            \
    X(int, nvrtcGetNumSupportedArchs, (int *), 11020, 1)                                                                      \
    X(int, nvrtcGetSupportedArchs, (int *), 11020, 1)

#define IGNIS__CUBLASLT_API(X)                                                                                                       \
    X(size_t, cublasLtGetVersion, (void), 10010, 1)                                                                                  \
    X(int, cublasLtCreate, (void **), 10010, 1)                                                                                      \
    X(int, cublasLtDestroy, (void *), 10010, 1)                                                                                      \
    X(int, cublasLtMatmulDescCreate, (void **, int, int), 11000, 1)                                                                  \
    X(int, cublasLtMatmulDescDestroy, (void *), 10010, 1)                                                                            \
    X(int, cublasLtMatmulDescSetAttribute, (void *, int, const void *, size_t), 10010, 1)                                            \
    X(int, cublasLtMatrixLayoutCreate, (void **, int, uint64_t, uint64_t, int64_t), 10010, 1)                                        \
    X(int, cublasLtMatrixLayoutDestroy, (void *), 10010, 1)                                                                          \
    X(int, cublasLtMatrixLayoutSetAttribute, (void *, int, const void *, size_t), 10010, 1)                                          \
    X(int, cublasLtMatmulPreferenceCreate, (void **), 10010, 1)                                                                      \
    X(int, cublasLtMatmulPreferenceDestroy, (void *), 10010, 1)                                                                      \
    X(int, cublasLtMatmulPreferenceSetAttribute, (void *, int, const void *, size_t), 10010, 1)                                      \
    X(int, cublasLtMatmulAlgoGetHeuristic, (void *, void *, void *, void *, void *, void *, void *, int, void *, int *), 10010, 1)   \
    X(int, cublasLtMatmul,                                                                                                           \
      (void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *, void *, void *, \
       const void *, void *, size_t, void *),                                                                                        \
      10010, 1)

#define IGNIS__NCCL_API(X)                                                                       \
    X(int, ncclGetVersion, (int *), 2190, 1)                                                     \
    X(int, ncclGetUniqueId, (ignis__nccl_id *), 2190, 1)                                         \
    X(int, ncclCommInitRank, (void **, int, ignis__nccl_id, int), 2190, 1)                       \
    X(int, ncclCommInitRankConfig, (void **, int, ignis__nccl_id, int, void *), 2190, 1)         \
    X(int, ncclCommFinalize, (void *), 2190, 1)                                                  \
    X(int, ncclCommDestroy, (void *), 2190, 1)                                                   \
    X(int, ncclCommAbort, (void *), 2190, 1)                                                     \
    X(int, ncclCommGetAsyncError, (void *, int *), 2190, 1)                                      \
    X(const char *, ncclGetErrorString, (int), 2190, 1)                                          \
    X(const char *, ncclGetLastError, (void *), 2190, 1)                                         \
    X(int, ncclAllReduce, (const void *, void *, size_t, int, int, void *, void *), 2190, 1)     \
    X(int, ncclReduce, (const void *, void *, size_t, int, int, int, void *, void *), 2190, 1)   \
    X(int, ncclBroadcast, (const void *, void *, size_t, int, int, void *, void *), 2190, 1)     \
    X(int, ncclAllGather, (const void *, void *, size_t, int, void *, void *), 2190, 1)          \
    X(int, ncclReduceScatter, (const void *, void *, size_t, int, int, void *, void *), 2190, 1) \
    X(int, ncclSend, (const void *, size_t, int, int, void *, void *), 2190, 1)                  \
    X(int, ncclRecv, (void *, size_t, int, int, void *, void *), 2190, 1)                        \
    X(int, ncclGroupStart, (void), 2190, 1)                                                      \
    X(int, ncclGroupEnd, (void), 2190, 1)

#define IGNIS__API_MEMBER(ret, name, args, version, required) ret(*name) args;

static struct ignis__cuda_api {
    IGNIS__CUDA_API(IGNIS__API_MEMBER)
} ignis__cuda;

static struct ignis__nvrtc_api {
    IGNIS__NVRTC_API(IGNIS__API_MEMBER)
} ignis__nvrtc;

static struct ignis__cublaslt_api {
    IGNIS__CUBLASLT_API(IGNIS__API_MEMBER)
} ignis__cublaslt;

static struct ignis__nccl_api {
    IGNIS__NCCL_API(IGNIS__API_MEMBER)
} ignis__nccl;

/*  The one way to call them: IGNIS__CUDA(cuMemFree_v2, (address)). */
#define IGNIS__CUDA(name, args) IGNIS_CALL_HOOK(#name, ignis__cuda.name args)
#define IGNIS__NVRTC(name, args) IGNIS_CALL_HOOK(#name, ignis__nvrtc.name args)

typedef struct ignis__symbol {
    const char *name;
    size_t offset; /* of the pointer in its api struct */
    int version;
    bool required;
} ignis__symbol;

typedef struct ignis__library_spec {
    const char *title;
    const char *env;        /* the variable that names the file */
    const char *names[6];   /* for the system's own search, newest first */
    const char *folders[6]; /* below CUDA_PATH, and as they are */
    const char *wheels[3];  /* below each Python's site-packages */
    const char *companion;  /* a library that this one opens by itself, and must find beside it */
    const char *help;
    void *api;
    const ignis__symbol *symbols;
    int symbol_count;
} ignis__library_spec;

#define IGNIS__CUDA_SYMBOL(ret, name, args, version, required) {#name, offsetof(struct ignis__cuda_api, name), version, required},
static const ignis__symbol ignis__cuda_symbols[] = {IGNIS__CUDA_API(IGNIS__CUDA_SYMBOL)};
#define IGNIS__NVRTC_SYMBOL(ret, name, args, version, required) {#name, offsetof(struct ignis__nvrtc_api, name), version, required},
static const ignis__symbol ignis__nvrtc_symbols[] = {IGNIS__NVRTC_API(IGNIS__NVRTC_SYMBOL)};
#define IGNIS__CUBLASLT_SYMBOL(ret, name, args, version, required) {#name, offsetof(struct ignis__cublaslt_api, name), version, required},
static const ignis__symbol ignis__cublaslt_symbols[] = {IGNIS__CUBLASLT_API(IGNIS__CUBLASLT_SYMBOL)};
#define IGNIS__NCCL_SYMBOL(ret, name, args, version, required) {#name, offsetof(struct ignis__nccl_api, name), version, required},
static const ignis__symbol ignis__nccl_symbols[] = {IGNIS__NCCL_API(IGNIS__NCCL_SYMBOL)};

/* clang-format off */
static const ignis__library_spec ignis__library_specs[IGNIS_LIBRARY_COUNT] = {
    {"", "", {0}, {0}, {0}, NULL, "", NULL, NULL, 0},
#ifdef _WIN32
    {"the CUDA driver", "IGNIS_CUDA_LIBRARY", {"nvcuda.dll"}, {0}, {0}, NULL,
     "install NVIDIA's display driver", &ignis__cuda, ignis__cuda_symbols, IGNIS__COUNT(ignis__cuda_symbols)},
    {"NVRTC", "IGNIS_NVRTC_LIBRARY", {"nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"},
     {"\\bin\\x64\\nvrtc64_130_0.dll", "\\bin\\nvrtc64_130_0.dll", "\\bin\\nvrtc64_120_0.dll", "\\bin\\nvrtc64_112_0.dll"},
     {"\\nvidia\\cu13\\bin\\x86_64\\nvrtc64_130_0.dll", "\\nvidia\\cuda_nvrtc\\bin\\nvrtc64_120_0.dll"}, "nvrtc-builtins64_",
     "install it with the CUDA Toolkit or by: pip install nvidia-cuda-nvrtc", &ignis__nvrtc, ignis__nvrtc_symbols,
     IGNIS__COUNT(ignis__nvrtc_symbols)},
    {"cuBLASLt", "IGNIS_CUBLAS_LIBRARY", {"cublasLt64_13.dll", "cublasLt64_12.dll", "cublasLt64_11.dll"},
     {"\\bin\\x64\\cublasLt64_13.dll", "\\bin\\cublasLt64_13.dll", "\\bin\\cublasLt64_12.dll", "\\bin\\cublasLt64_11.dll"},
     {"\\nvidia\\cu13\\bin\\x86_64\\cublasLt64_13.dll", "\\nvidia\\cublas\\bin\\cublasLt64_12.dll"}, NULL,
     "install it with the CUDA Toolkit or by: pip install nvidia-cublas", &ignis__cublaslt, ignis__cublaslt_symbols,
     IGNIS__COUNT(ignis__cublaslt_symbols)},
    {"NCCL", "IGNIS_NCCL_LIBRARY", {"nccl.dll"}, {0}, {0}, NULL, "NVIDIA makes none for Windows", &ignis__nccl, ignis__nccl_symbols,
     IGNIS__COUNT(ignis__nccl_symbols)},
#else
    {"the CUDA driver", "IGNIS_CUDA_LIBRARY", {"libcuda.so.1", "libcuda.so"},
     {"/usr/lib/wsl/lib/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"}, {0}, NULL,
     "install NVIDIA's driver (on a machine without a GPU, `make sim-env` in Ignis' repository tells how to use its simulator)",
     &ignis__cuda, ignis__cuda_symbols, IGNIS__COUNT(ignis__cuda_symbols)},
    {"NVRTC", "IGNIS_NVRTC_LIBRARY", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"},
     {"/lib64/libnvrtc.so", "/lib/libnvrtc.so", "/lib64/libnvrtc.so.13", "/lib64/libnvrtc.so.12"},
     {"/nvidia/cu13/lib/libnvrtc.so.13", "/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"}, "libnvrtc-builtins.so.",
     "install it with the CUDA Toolkit or by: pip install nvidia-cuda-nvrtc", &ignis__nvrtc, ignis__nvrtc_symbols,
     IGNIS__COUNT(ignis__nvrtc_symbols)},
    {"cuBLASLt", "IGNIS_CUBLAS_LIBRARY", {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"},
     {"/lib64/libcublasLt.so", "/lib/libcublasLt.so", "/lib64/libcublasLt.so.13", "/lib64/libcublasLt.so.12"},
     {"/nvidia/cu13/lib/libcublasLt.so.13", "/nvidia/cublas/lib/libcublasLt.so.12"}, NULL,
     "install it with the CUDA Toolkit or by: pip install nvidia-cublas", &ignis__cublaslt, ignis__cublaslt_symbols,
     IGNIS__COUNT(ignis__cublaslt_symbols)},
    {"NCCL", "IGNIS_NCCL_LIBRARY", {"libnccl.so.2", "libnccl.so"}, {"/lib64/libnccl.so.2", "/lib/libnccl.so.2"},
     {"/nvidia/nccl/lib/libnccl.so.2"}, NULL,
     "install it with your system's packages or by: pip install nvidia-nccl-cu13", &ignis__nccl, ignis__nccl_symbols,
     IGNIS__COUNT(ignis__nccl_symbols)},
#endif
};
/* clang-format on */

static struct ignis__loaded {
    uint64_t loaded;   /* the api struct is filled */
    uint64_t missing;  /* ignis__library_there has not found it */
    char path[1024];   /* what it was opened by */
    char wanted[1024]; /* ignis_desc's path, "" for a search */
    int version, found;
    uint64_t release; /* the exact version, for cache keys */
} ignis__libraries[IGNIS_LIBRARY_COUNT];

static ignis__mutex ignis__loader_lock = IGNIS__MUTEX_INIT;

#ifdef IGNIS_LINK_CUDA

#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>
#if CUDA_VERSION < 12040
#error "IGNIS_LINK_CUDA needs the headers of CUDA 12.4 or newer; without it Ignis loads older drivers at run time"
#endif
#ifdef cuEventElapsedTime /* newer headers call another version so, which older drivers lack */
#undef cuEventElapsedTime
#ifdef __cplusplus
extern "C" CUresult CUDAAPI cuEventElapsedTime(float *, CUevent, CUevent);
#else
CUresult CUDAAPI cuEventElapsedTime(float *, CUevent, CUevent);
#endif
#endif

/*  One that is declared in a header which needs OpenGL's, and one that only the driver of Windows has: neither is in every library that is linked. */
#if defined(__GNUC__) && !defined(_WIN32)
#define IGNIS__WEAK __attribute__((weak))
#else
#define IGNIS__WEAK
#endif
#ifdef __cplusplus
extern "C" {
#endif
CUresult CUDAAPI cuGraphicsGLRegisterBuffer(CUgraphicsResource *, unsigned, unsigned) IGNIS__WEAK;
CUresult CUDAAPI cuDeviceGetLuid(char *, unsigned *, CUdevice) IGNIS__WEAK;
#ifdef __cplusplus
}
#endif

/*  The cast through void(*)(void) is the one that compilers let pass between unlike function types. */
static void ignis__library_bind(ignis_library which, struct ignis__loaded *library)
{
    snprintf(library->path, sizeof library->path, "linked");
    library->found = ignis__library_specs[which].symbol_count;
#define IGNIS__CUDA_LINK(ret, name, args, version, required) ignis__cuda.name = (ret(*) args)(void (*)(void))name;
#define IGNIS__NVRTC_LINK(ret, name, args, version, required) ignis__nvrtc.name = (ret(*) args)(void (*)(void))name;
#define IGNIS__CUBLASLT_LINK(ret, name, args, version, required) ignis__cublaslt.name = (ret(*) args)(void (*)(void))name;
    switch (which) {
    case IGNIS_LIBRARY_CUDA: IGNIS__CUDA_API(IGNIS__CUDA_LINK) break;
    case IGNIS_LIBRARY_NVRTC: IGNIS__NVRTC_API(IGNIS__NVRTC_LINK) break;
    default: IGNIS__CUBLASLT_API(IGNIS__CUBLASLT_LINK) break;
    }
}

#endif /* IGNIS_LINK_CUDA */

/*  One search for a library: where it looked, and why each place was not it. */
typedef struct ignis__search {
    const ignis__library_spec *spec;
    const char *below; /* the folder of Pythons that is being listed */
    void *library;
    char path[1024];
    ignis__text tried;
} ignis__search;

/*  Where the companion of a library is looked for: a folder, and the beginning of its name. */
typedef struct ignis__companion {
    char folder[1024];
    const char *prefix;
} ignis__companion;

IGNIS__COLD static void ignis__companion_open(void *context, const char *name)
{
    const ignis__companion *companion = (const ignis__companion *)context;
    char path[2048], why[512];
    if (strncmp(name, companion->prefix, strlen(companion->prefix)) != 0 || strstr(name, ".alt"))
        return;
    snprintf(path, sizeof path, "%s/%s", companion->folder, name);
    (void)ignis__library_open(path, why, sizeof why); /* without it NVRTC itself says what it misses */
}

IGNIS__COLD static bool ignis__search_try(ignis__search *search, const char *path)
{
    char why[512];
    const char *slash = strrchr(path, '/');
#ifdef _WIN32
    const char *backslash = strrchr(path, '\\');
    slash = !slash || (backslash && backslash > slash) ? backslash : slash;
#endif
    if (search->library)
        return true;
    if (slash && search->spec->companion) {
        ignis__companion companion;
        companion.prefix = search->spec->companion;
        snprintf(companion.folder, sizeof companion.folder, "%.*s", (int)(slash - path), path);
        (void)ignis__folder_list(companion.folder, ignis__companion_open, &companion);
    }
    search->library = ignis__library_open(path, why, sizeof why);
    if (search->library) {
        snprintf(search->path, sizeof search->path, "%s", path);
        return true;
    }
    ignis__text_add(&search->tried, "%s  ", search->tried.length ? "\n" : ""); /* a line for each */
    ignis__text_add_shown(&search->tried, path, strlen(path), false);
    ignis__text_add(&search->tried, ": ");
    ignis__text_add_shown(&search->tried, why, strlen(why), false);
    return false;
}

/*  Tries a file that is only worth a line in the report when it is there. */
IGNIS__COLD static void ignis__search_try_existing(ignis__search *search, const char *folder, const char *file)
{
    char path[1024];
    int64_t size, time;
    snprintf(path, sizeof path, "%s%s", folder, file);
    if (ignis__file_info(path, &size, &time))
        ignis__search_try(search, path);
}

IGNIS__COLD static void ignis__search_wheels(ignis__search *search, const char *packages)
{
    int i;
    for (i = 0; i < IGNIS__COUNT(search->spec->wheels) && search->spec->wheels[i]; i++)
        ignis__search_try_existing(search, packages, search->spec->wheels[i]);
}

IGNIS__COLD static void ignis__search_python(void *context, const char *name)
{
    ignis__search *search = (ignis__search *)context;
    char packages[1024];
#ifdef _WIN32
    static const char *const kinds[] = {"Lib/site-packages", "site-packages"}; /* of a Python, and of what its user has installed */
    const char *prefix = "Python3";
#else
    static const char *const kinds[] = {"site-packages", "dist-packages"};
    const char *prefix = "python3";
#endif
    int i;
    if (strncmp(name, prefix, strlen(prefix)) != 0)
        return;
    for (i = 0; i < IGNIS__COUNT(kinds); i++) {
        snprintf(packages, sizeof packages, "%s/%s/%s", search->below, name, kinds[i]);
        ignis__search_wheels(search, packages);
    }
}

/*  A folder, and in it a folder of Pythons or, where `below` is null, itself one. */
IGNIS__COLD static void ignis__search_pythons(ignis__search *search, const char *root, const char *below)
{
    char folder[1024];
    if (!root || !*root || search->library)
        return;
    snprintf(folder, sizeof folder, "%s%s", root, below ? below : "/Lib/site-packages");
    search->below = folder;
    if (below)
        (void)ignis__folder_list(folder, ignis__search_python, search);
    else
        ignis__search_wheels(search, folder);
}

IGNIS__COLD static void ignis__search_everywhere(ignis__search *search)
{
#ifdef _WIN32
    static const char *const roots[] = {"CUDA_PATH", "CUDA_HOME"};
#else
    static const char *const roots[] = {"CUDA_PATH", "CUDA_HOME", NULL};
#endif
    const ignis__library_spec *spec = search->spec;
    int i, r;
    for (i = 0; i < IGNIS__COUNT(spec->names) && spec->names[i]; i++)
        if (ignis__search_try(search, spec->names[i]))
            return;
    for (r = 0; r < IGNIS__COUNT(roots); r++) {
        const char *root = roots[r] ? ignis__env(roots[r]) : "/usr/local/cuda";
        for (i = 0; root && i < IGNIS__COUNT(spec->folders) && spec->folders[i]; i++)
            ignis__search_try_existing(search, spec->wheels[0] ? root : "", spec->folders[i]);
    }
#ifdef _WIN32
    ignis__search_pythons(search, ignis__env("VIRTUAL_ENV"), NULL);
    ignis__search_pythons(search, ignis__env("CONDA_PREFIX"), NULL);
    ignis__search_pythons(search, ignis__env("APPDATA"), "\\Python");
    ignis__search_pythons(search, ignis__env("LOCALAPPDATA"), "\\Programs\\Python");
#else
    ignis__search_pythons(search, ignis__env("VIRTUAL_ENV"), "/lib");
    ignis__search_pythons(search, ignis__env("CONDA_PREFIX"), "/lib");
    ignis__search_pythons(search, ignis__env("HOME"), "/.local/lib");
    ignis__search_pythons(search, "/usr/local", "/lib");
    ignis__search_pythons(search, "/usr", "/lib");
#endif
}

IGNIS__COLD static bool ignis__library_find(const char *call, ignis_library which, struct ignis__loaded *library)
{
    const ignis__library_spec *spec = &ignis__library_specs[which];
    const char *from_env = ignis__env(spec->env);
    ignis__search search = IGNIS__ZERO;
    char tried[4096];
    int i;

#ifdef IGNIS_LINK_CUDA
    if (which != IGNIS_LIBRARY_NCCL) { /* which is never linked: most programs do without it */
        ignis__library_bind(which, library);
        return true;
    }
#endif
    search.spec = spec;
    ignis__text_begin(&search.tried, tried, sizeof tried);
    if (library->wanted[0]) /* a path that was asked for is the only one: another library would be a silent surprise */
        ignis__search_try(&search, library->wanted);
    else if (from_env && *from_env)
        ignis__search_try(&search, from_env);
    else
        ignis__search_everywhere(&search);
    if (!search.library)
        return ignis__fail_because(IGNIS_DIAG_LIBRARY_MISSING, call, 0, NULL, tried,
                                   "%s was not found: %s, or name its file in %s. Tried:", spec->title, spec->help, spec->env) == IGNIS_OK;
    library->found = 0;
    for (i = 0; i < spec->symbol_count; i++) {
        const ignis__symbol *symbol = &spec->symbols[i];
        void *function = ignis__library_symbol(search.library, symbol->name);
        memcpy((char *)spec->api + symbol->offset, &function, sizeof function);
        library->found += function != NULL;
        if (!function && symbol->required) {
            bool is_nccl = which == IGNIS_LIBRARY_NCCL;
            int needed = !is_nccl && symbol->version < 11040 ? 11040 : symbol->version; /* the oldest version that Ignis is made for */
            return ignis__refuse(IGNIS_DIAG_LIBRARY_SYMBOL, call,
                                 "%s (%s) has no function %s; it is not that library, or older than %s %d.%d", spec->title, search.path,
                                 symbol->name, is_nccl ? "NCCL" : "CUDA", needed / 1000, needed % 1000 / 10);
        }
    }
    snprintf(library->path, sizeof library->path, "%s", search.path);
    return true;
}

/*  Reads the version, as 1000 * major + 10 * minor, and exactly. */
IGNIS__COLD static void ignis__library_read_version(ignis_library which, struct ignis__loaded *library)
{
    int version = 0, minor = 0;
    size_t packed;
    switch (which) {
    case IGNIS_LIBRARY_CUDA:
        IGNIS__CUDA(cuDriverGetVersion, (&version));
        library->version = version;
        library->release = (uint64_t)version;
        break;
    case IGNIS_LIBRARY_NVRTC:
        IGNIS__NVRTC(nvrtcVersion, (&version, &minor));
        library->version = version * 1000 + (minor < 100 ? minor : 99) * 10;
        library->release = (uint64_t)version << 32 | (uint32_t)minor;
        break;
    case IGNIS_LIBRARY_NCCL: /* 22809 for 2.28.9 */
        (void)IGNIS_CALL_HOOK("ncclGetVersion", ignis__nccl.ncclGetVersion(&version));
        library->version = version / 10000 * 1000 + version / 100 % 100 * 10;
        library->release = (uint64_t)version;
        break;
    default:
        packed = ignis__cublaslt.cublasLtGetVersion(); /* 130100 for 13.1.0; 11401 for 11.4.1 */
        library->version =
            (int)(packed >= 100000 ? packed / 10000 * 1000 + packed / 100 % 100 * 10 : packed / 1000 * 1000 + packed / 100 % 10 * 10);
        library->release = packed;
    }
}

/*  Loads a library once. A failure is reported again at the next try, which may succeed: the user may have installed it. */
static bool ignis__library_load(const char *call, ignis_library which)
{
    struct ignis__loaded *library = &ignis__libraries[which];
    bool ok = true;
    if (ignis__atomic_load(&library->loaded))
        return true;
    ignis__mutex_lock(&ignis__loader_lock);
    if (!ignis__atomic_load(&library->loaded)) {
        ok = ignis__library_find(call, which, library);
        if (ok) {
            ignis__library_read_version(which, library);
            ignis__atomic_store(&library->loaded, 1);
            ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: %s is %s, version %d.%d", call, ignis__library_specs[which].title,
                        library->path, library->version / 1000, library->version % 1000 / 10);
        }
    }
    ignis__mutex_unlock(&ignis__loader_lock);
    return ok;
}

/*  Whether a library can be had. That it cannot is found out once, and the logger is told what follows from it. */
IGNIS__MAYBE_UNUSED static bool ignis__library_there(const char *call, ignis_library which, const char *then)
{
    struct ignis__loaded *library = &ignis__libraries[which];
    ignis__record before, failure;
    char why[2048];
    bool found;
    if (ignis__atomic_load(&library->missing))
        return false;
    if (ignis__atomic_load(&library->loaded))
        return true;
    before = ignis__quiet_begin();
    found = ignis__library_load(call, which);
    ignis__quiet_end(&before, &failure, why, sizeof why);
    if (!found && ignis__atomic_add(&library->missing, 1) == 1)
        ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: %s. %s", call, then, why);
    return found;
}

IGNIS__COLD IGNIS_API ignis_status ignis_library_query(ignis_library library, ignis_library_info *info)
{
    static const char call[] = "ignis_library_query";
    const struct ignis__loaded *loaded;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (library < IGNIS_LIBRARY_CUDA || library >= IGNIS_LIBRARY_COUNT)
        return ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no library %d; IGNIS_LIBRARY_CUDA to _NCCL are 1 to 4", (int)library);
    if (!info)
        return ignis__fail_null(call, "info");
    if (!ignis__library_load(call, library))
        return IGNIS_ERROR_LIBRARY;
    loaded = &ignis__libraries[library];
    info->path = loaded->path;
    info->version = loaded->version;
    info->functions = ignis__library_specs[library].symbol_count;
    info->functions_found = loaded->found;
    return IGNIS_OK;
}

/* ===============================================================================================================
   >>pool - handles. A slot counts how often it was used; a handle carries the count it was given.
   =============================================================================================================== */

/*  What private functions that give something up are called, here and in all sections:
        drop       one hold less (the opposite of hold); the last one of a dead item takes it apart
        unclaim    one reference less of an array (the opposite of claim), which may be its last
        give       back to those that are kept for the next who takes one (the opposite of take): slots, blocks, events
        unuse      of a block of memory that becomes free (the opposite of use)
        destroy    takes apart what nobody uses any more
        discard    of what was made by a call that failed then
        free       of host memory, as in ignis__free; public: of a handle, which is stale from then on (kill)
        unload     of a library or a module
        forget     of something that is not Ignis' own and is about to go, such as a stream of the caller
        close      of all that a section has, at ignis_shutdown */

/*  Who holds a lock takes only those that stand further right in a line, so that no two threads wait for each other:
        ignis__setup_lock     all others
        an optimizer's slot   a tensor's slot; those of memory and streams
        a model's engine      a model's slot
        a model's slot        planning, compiling
        planning, compiling   the loader's, the kernel caches', those of memory and streams
        ignis__audits         an array's slot, ignis__tracking
        ignis__tapes          a tape
        memory and streams    ignis__storages, a storage, a device
                              a fence, a device
                              an OpenGL buffer, an array's slot, a storage, a device
                              asking or trimming of a cache, the cache, a device
                              trimming of a cache, a stream of the caller, a device
                              an event of the caller, a stream of the caller, a device
    Behind a device's, a pool's, ignis__captures, ignis__callbacks, ignis__measurements and those of the kernel caches nothing is locked.
    Nobody waits for the device holding one that a launch needs: what runs there may wait for that launch. The logger is called with locks
    held, so it must not call Ignis. */

/*  handle: generation (32 bits) | kind (5 bits) | slot (27 bits). A slot's state: generation (32 bits) | holds (32 bits).
    An odd generation is live. The handle itself is one hold; a call that uses the item takes another, so an item is only taken
    apart when nobody is inside it. Slots are never freed and a generation never comes back (a slot that has used up its
    generations is not used again), which is why a stale handle is recognised for ever. */
typedef enum ignis__kind {
    IGNIS__KIND_ARRAY = 1,
    IGNIS__KIND_KERNEL,
    IGNIS__KIND_TENSOR,
    IGNIS__KIND_OPTIMIZER,
    IGNIS__KIND_GRAPH,
    IGNIS__KIND_EVENT,
    IGNIS__KIND_TICKET,
    IGNIS__KIND_FENCE,
    IGNIS__KIND_GL_BUFFER,
    IGNIS__KIND_VMM, /* from here on those of ignis_collective.h */
    IGNIS__KIND_RANGE,
    IGNIS__KIND_CHANNEL,
    IGNIS__KIND_TRANSPORT,
    IGNIS__KIND_COMM,
    IGNIS__KIND_PARALLEL,
    IGNIS__KIND_TOKENIZER, /* from here on those of IGNIS_MODELS */
    IGNIS__KIND_MODEL,
    IGNIS__KIND_SEQUENCE,
    IGNIS__KIND_LORA,
    IGNIS__KIND_COUNT,
    IGNIS__KIND_VALUE = 31 /* no handle of a pool: a number among the inputs of a formula */
} ignis__kind;

#define IGNIS__SLOT_BITS 27
#define IGNIS__SLOT_MASK (((uint64_t)1 << IGNIS__SLOT_BITS) - 1)

static uint64_t ignis__handle_kind(uint64_t handle) { return handle >> IGNIS__SLOT_BITS & 31; }

typedef struct ignis__slot {
    uint64_t state;
    uint64_t handle;   /* while live */
    ignis__mutex lock; /* for the item's own fields */
    struct ignis__slot *next_free;
    uint32_t index;
} ignis__slot;

/*  What an item was that is freed by now, so that messages about its stale handle can name it. It stays until the slot's next item is freed. */
typedef struct ignis__former {
    uint64_t handle, id;
    char name[32];
} ignis__former;

#define IGNIS__POOL_FIRST_PAGE 64u
#define IGNIS__POOL_PAGES 21 /* page k holds 64 << k items: 2^27 in all, but for 64 */

typedef struct ignis__pool {
    size_t item_size; /* items begin with an ignis__slot */
    ignis__kind kind;
    const char *what;       /* an item is, in messages */
    ignis_diagnostic freed; /* of a stale handle */
    size_t former;          /* where an item keeps its ignis__former; 0: it has none */
    ignis__mutex lock;
    uint64_t count; /* slots ever made */
    char *pages[IGNIS__POOL_PAGES];
    ignis__slot *free;
    struct ignis__pool *next;
} ignis__pool;

static uint64_t ignis__pools; /* a list of those with pages: the address of the first */

#define IGNIS__POOL(item, kind, what, freed) IGNIS__POOL_NAMED(item, kind, what, freed, 0)
#define IGNIS__POOL_NAMED(item, kind, what, freed, former)                             \
    {                                                                                  \
        sizeof(item), kind, what, freed, former, IGNIS__MUTEX_INIT, 0, {0}, NULL, NULL \
    }

static ignis__slot *ignis__pool_slot(const ignis__pool *pool, uint64_t index)
{
    uint64_t shifted = index + IGNIS__POOL_FIRST_PAGE;
    int page = ignis__log2(shifted) - 6;
    return (ignis__slot *)(void *)(pool->pages[page] + (shifted - ((uint64_t)IGNIS__POOL_FIRST_PAGE << page)) * pool->item_size);
}

/*  Slots come from malloc and stay: they outlive ignis_shutdown, and with it the user's allocator. They go when a library is unloaded. */
IGNIS__COLD static ignis__slot *ignis__pool_grow(ignis__pool *pool)
{
    uint64_t index = pool->count, shifted = index + IGNIS__POOL_FIRST_PAGE;
    int page = ignis__log2(shifted) - 6;
    ignis__slot *slot;
    if (page >= IGNIS__POOL_PAGES)
        return NULL;
    if (!pool->pages[page]) {
        pool->pages[page] = (char *)calloc(IGNIS__POOL_FIRST_PAGE << page, pool->item_size);
        if (!pool->pages[page])
            return NULL;
        if (page == 0) {
            uint64_t first = ignis__atomic_load(&ignis__pools);
            do
                pool->next = (ignis__pool *)(uintptr_t)first;
            while (!ignis__atomic_swap_if(&ignis__pools, &first, (uint64_t)(uintptr_t)pool));
        }
    }
    slot = ignis__pool_slot(pool, index);
    slot->index = (uint32_t)index;
    ignis__mutex_init(&slot->lock);
    ignis__atomic_store(&pool->count, index + 1);
    return slot;
}

/*  Frees all slots, when nobody can ask for a handle any more. */
IGNIS__COLD static void ignis__pools_free(void)
{
    ignis__pool *pool = (ignis__pool *)(uintptr_t)ignis__atomic_load(&ignis__pools);
    int page;
    for (; pool; pool = pool->next) {
        for (page = 0; page < IGNIS__POOL_PAGES; page++) {
            free(pool->pages[page]);
            pool->pages[page] = NULL;
        }
        ignis__atomic_store(&pool->count, 0);
        pool->free = NULL;
    }
    ignis__atomic_store(&ignis__pools, 0);
}

/*  A slot that nobody else can see yet; fill the item, then ignis__pool_publish it. Null, and reported: out of memory. */
static void *ignis__pool_take(const char *call, ignis__pool *pool)
{
    ignis__slot *slot;
    ignis__mutex_lock(&pool->lock);
    slot = pool->free;
    if (slot)
        pool->free = slot->next_free;
    else
        slot = ignis__pool_grow(pool);
    ignis__mutex_unlock(&pool->lock);
    if (!slot)
        ignis__fail_host_memory(call, pool->item_size);
    return slot;
}

/*  The same, with zeros behind the slot, up to what the item keeps of its former one. */
static void *ignis__pool_take_zeroed(const char *call, ignis__pool *pool)
{
    char *item = (char *)ignis__pool_take(call, pool);
    if (item)
        memset(item + sizeof(ignis__slot), 0, (pool->former ? pool->former : pool->item_size) - sizeof(ignis__slot));
    return item;
}

/*  Fills an item that was taken with all of another one but its slot, which others look at in one that is not live, too. */
IGNIS__MAYBE_UNUSED static void ignis__pool_fill(const ignis__pool *pool, void *item, const void *from)
{
    memcpy((char *)item + sizeof(ignis__slot), (const char *)from + sizeof(ignis__slot), pool->item_size - sizeof(ignis__slot));
}

/*  Gives the item a handle, by which others see it, and as many holds. */
static uint64_t ignis__pool_publish_held(ignis__pool *pool, void *item, int holds)
{
    ignis__slot *slot = (ignis__slot *)item;
    uint64_t generation = (ignis__atomic_load(&slot->state) >> 32) + 1;
    uint64_t handle = generation << 32 | (uint64_t)pool->kind << IGNIS__SLOT_BITS | slot->index;
    slot->handle = handle;
    ignis__atomic_store(&slot->state, generation << 32 | (uint64_t)holds); /* from here on it is everybody's, and may be another's */
    return handle;
}

static uint64_t ignis__pool_publish(ignis__pool *pool, void *item) { return ignis__pool_publish_held(pool, item, 1); }

/*  Makes the slot free for others; the item is taken apart already. */
IGNIS__ONE_COPY static void ignis__pool_give(ignis__pool *pool, void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    if (ignis__atomic_load(&slot->state) >> 32 >= 0xFFFFFFFEu)
        return;
    ignis__mutex_lock(&pool->lock);
    slot->next_free = pool->free;
    pool->free = slot;
    ignis__mutex_unlock(&pool->lock);
}

/*  The item of a slot, held, if it is live and of that generation; any generation will do for 0. */
static inline void *ignis__pool_hold_slot(ignis__pool *pool, uint64_t index, uint64_t generation)
{
    ignis__slot *slot = ignis__pool_slot(pool, index);
    uint64_t state = ignis__atomic_load(&slot->state);
    do {
        if (!(state >> 32 & 1) || (generation && state >> 32 != generation))
            return NULL;
    } while (!ignis__atomic_swap_if(&slot->state, &state, state + 1));
    return slot;
}

/*  The item of a live handle, held; null when the handle is stale or was never given out. */
static void *ignis__pool_hold(ignis__pool *pool, uint64_t handle)
{
    uint64_t index = handle & IGNIS__SLOT_MASK;
    if (ignis__handle_kind(handle) != (uint64_t)pool->kind || index >= ignis__atomic_load(&pool->count) || handle >> 32 == 0)
        return NULL;
    return ignis__pool_hold_slot(pool, index, handle >> 32);
}

/*  The next live item from a slot on, held; null: there is none. Begin with index 0. */
static void *ignis__pool_next(ignis__pool *pool, uint64_t *index)
{
    void *item = NULL;
    while (!item && *index < ignis__atomic_load(&pool->count))
        item = ignis__pool_hold_slot(pool, (*index)++, 0);
    return item;
}

/*  One more hold of an item that others hold; false: the last one was just given back, and the item is being taken apart. */
IGNIS__MAYBE_UNUSED static bool ignis__pool_hold_more(void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    uint64_t state = ignis__atomic_load(&slot->state);
    do {
        if (!(state & 0xFFFFFFFFu))
            return false;
    } while (!ignis__atomic_swap_if(&slot->state, &state, state + 1));
    return true;
}

/*  Gives a hold back. True: it was the last one of a dead item, which the caller now takes apart. */
static bool ignis__pool_drop(void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    uint64_t state = ignis__atomic_add(&slot->state, (uint64_t)-1);
    return (state & 0xFFFFFFFFu) == 0 && !(state >> 32 & 1);
}

/*  Whether a held item is still live; ask with its lock taken, under which it dies. */
static bool ignis__pool_live(const void *item) { return ignis__atomic_load(&((const ignis__slot *)item)->state) >> 32 & 1; }

/*  Makes the handles of a live, held and locked item stale. The handle's own hold remains to be dropped. */
static void ignis__pool_kill(void *item) { ignis__atomic_add(&((ignis__slot *)item)->state, (uint64_t)1 << 32); }

/*  "array #7 'weights'": what messages call an item; 0 for no id, "" for no name. */
typedef struct ignis__label {
    char text[80];
} ignis__label;

IGNIS__COLD static ignis__label ignis__label_write(const char *what, uint64_t id, const char *name)
{
    ignis__label out;
    ignis__text text;
    ignis__text_begin(&text, out.text, sizeof out.text);
    ignis__text_add(&text, "%s", what);
    if (id)
        ignis__text_add(&text, " #%llu", (unsigned long long)id);
    if (*name)
        ignis__text_add(&text, " '%s'", name);
    return out;
}

/*  Writes down what an item is that is about to die; it is locked. */
static void ignis__former_write(ignis__former *former, const ignis__slot *slot, uint64_t id, const char *name)
{
    size_t length = strlen(name);
    former->handle = slot->handle;
    former->id = id;
    length = length < sizeof former->name ? length : sizeof former->name - 1;
    memcpy(former->name, name, length);
    former->name[length] = 0;
}

/*  "array #7 'weights', freed" for a stale handle; "" where that is forgotten, or was never there. */
IGNIS__COLD static ignis__label ignis__label_stale(ignis__pool *pool, uint64_t handle)
{
    uint64_t index = handle & IGNIS__SLOT_MASK;
    ignis__former former = IGNIS__ZERO;
    ignis__label out = IGNIS__ZERO;
    ignis__text text;
    ignis__slot *slot;
    if (!handle || !pool->former || ignis__handle_kind(handle) != (uint64_t)pool->kind || index >= ignis__atomic_load(&pool->count))
        return out;
    slot = ignis__pool_slot(pool, index);
    ignis__mutex_lock(&slot->lock);
    memcpy(&former, (const char *)slot + pool->former, sizeof former);
    ignis__mutex_unlock(&slot->lock);
    ignis__text_begin(&text, out.text, sizeof out.text);
    if (former.handle == handle)
        ignis__text_add(&text, "%s, freed", ignis__label_write(pool->what, former.id, former.name).text);
    return out;
}

IGNIS__COLD static void ignis__fail_stale(const char *call, ignis__pool *pool, uint64_t handle)
{
    uint64_t kind = ignis__handle_kind(handle);
    ignis__label label = ignis__label_stale(pool, handle);
    if (kind != (uint64_t)pool->kind && kind >= IGNIS__KIND_ARRAY && kind < IGNIS__KIND_COUNT)
        ignis__fail(IGNIS_DIAG_WRONG_KIND, call, "%s handle 0x%llx is the handle of something else", pool->what,
                    (unsigned long long)handle);
    else if (*label.text)
        ignis__fail(pool->freed, call, "%s (handle 0x%llx)", label.text, (unsigned long long)handle);
    else if (handle)
        ignis__fail(pool->freed, call, "%s handle 0x%llx was freed, or never existed", pool->what, (unsigned long long)handle);
    /* 0 is what a failed call returned: the first error says why */
    else if (ignis__this_thread.record.status == IGNIS_OK)
        ignis__fail(pool->freed, call, "%s handle is 0: no %s was created", pool->what, pool->what);
    else
        ignis__this_thread.latest = ignis__diagnostics[pool->freed].status;
}

/*  The item of a handle, held, for a public call; null, and reported, when there is none. */
IGNIS__ONE_COPY static void *ignis__handle_hold(const char *call, ignis__pool *pool, uint64_t handle)
{
    void *item = NULL;
    if (ignis__enter(call) && (item = ignis__pool_hold(pool, handle)) == NULL)
        ignis__fail_stale(call, pool, handle);
    return item;
}

/*  Makes the handle of a held item stale, once; false: another thread has. The caller's hold remains. */
static bool ignis__handle_kill(void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    bool live;
    ignis__mutex_lock(&slot->lock);
    live = ignis__pool_live(item);
    if (live) {
        ignis__pool_kill(item);
        ignis__pool_drop(item); /* the handle's own hold */
    }
    ignis__mutex_unlock(&slot->lock);
    return live;
}

/*  What is alive at ignis_shutdown is reported, a line each, and counted beyond this many. */
#define IGNIS__LEAKS_SHOWN 20
static int ignis__leaks; /* reported by the ignis_shutdown that is under way */

IGNIS__PRINTF(3, 4)
IGNIS__COLD static void ignis__leak_report(const char *call, ignis_diagnostic diagnostic, const char *format, ...)
{
    char line[512];
    va_list args;
    if (ignis__leaks++ >= IGNIS__LEAKS_SHOWN)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ignis__note(IGNIS_LOG_WARNING, diagnostic, "%s: still alive: %s", call, line);
}

/* ===============================================================================================================
   >>device - contexts, device facts, what a thread uses.
   =============================================================================================================== */

/*  Numbers of the driver's enumerations. */
enum {
    IGNIS__CU_INVALID_VALUE = 1,
    IGNIS__CU_OUT_OF_MEMORY = 2,
    IGNIS__CU_NO_DEVICE = 100,
    IGNIS__CU_INVALID_IMAGE = 200,
    IGNIS__CU_INVALID_PTX = 218,
    IGNIS__CU_NO_JIT = 221,
    IGNIS__CU_UNSUPPORTED_PTX = 222,
    IGNIS__CU_NO_BINARY = 209,
    IGNIS__CU_ATTRIBUTE_MAX_THREADS = 1,
    IGNIS__CU_ATTRIBUTE_WARP_SIZE = 10,
    IGNIS__CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    IGNIS__CU_ATTRIBUTE_CLOCK = 13,        /* kHz, the highest */
    IGNIS__CU_ATTRIBUTE_MEMORY_CLOCK = 36, /* kHz */
    IGNIS__CU_ATTRIBUTE_MEMORY_BITS = 37,
    IGNIS__CU_ATTRIBUTE_L2_BYTES = 38,
    IGNIS__CU_ATTRIBUTE_MAJOR = 75,
    IGNIS__CU_ATTRIBUTE_MINOR = 76,
    IGNIS__CU_ATTRIBUTE_SHARED_OPTIN = 97,
    IGNIS__CU_ATTRIBUTE_CLUSTERS = 120,
    IGNIS__CU_STREAM_DEFAULT = 0, /* a blocking stream: ordered with the legacy default stream */
    IGNIS__CU_STREAM_NON_BLOCKING = 1,
    IGNIS__CU_STREAM_LEGACY = 1, /* handles of streams, these two */
    IGNIS__CU_STREAM_PER_THREAD = 2,
    IGNIS__CU_EVENT_DEFAULT = 0,
    IGNIS__CU_EVENT_DISABLE_TIMING = 2,
    IGNIS__CU_POINTER_MEMORY_TYPE = 2,
    IGNIS__CU_POINTER_ORDINAL = 9,
    IGNIS__CU_POINTER_RANGE_START = 11,
    IGNIS__CU_POINTER_RANGE_SIZE = 12,
    IGNIS__CU_MEMORY_HOST = 1,
    IGNIS__CU_MEMORY_DEVICE = 2,
    IGNIS__CU_CAPTURE_RELAXED = 2,
    IGNIS__CU_NOT_FOUND = 500,
    IGNIS__CU_NOT_READY = 600,
    IGNIS__CU_CAPTURE_UNSUPPORTED = 900,
    IGNIS__CU_FUNC_MAX_THREADS = 0,
    IGNIS__CU_FUNC_SHARED = 1,
    IGNIS__CU_FUNC_LOCAL = 3,
    IGNIS__CU_FUNC_REGISTERS = 4,
    IGNIS__CU_FUNC_PTX_VERSION = 5, /* the architecture that it was compiled for first: 90 */
    IGNIS__CU_FUNC_MAX_DYNAMIC_SHARED = 8,
    IGNIS__CU_LAUNCH_COOPERATIVE = 2,
    IGNIS__CU_LAUNCH_DEPENDENT = 6 /* programmatic stream serialization */
};

/*  What cuLaunchKernelEx takes. */
typedef struct ignis__launch_attribute {
    int id, padding;
    union {
        int allowed;
        char room[64];
    } value;
} ignis__launch_attribute;

typedef struct ignis__launch_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    ignis__launch_attribute *attributes;
    unsigned attribute_count;
} ignis__launch_config;

/*  A stream that the caller brought, or has made by ignis_stream_create. */
typedef struct ignis__foreign_stream {
    void *stream;
    bool created;
    uint64_t serial;   /* tells this stream from a later one at the same address */
    int holds;         /* its place in the list, and threads that are about to wait for it */
    ignis__mutex lock; /* held while a thread waits for it */
    bool forgotten;    /* by its owner, who may have destroyed it */
    struct ignis__foreign_stream *next;
} ignis__foreign_stream;

typedef struct ignis__spare_event {
    void *event;
    struct ignis__spare_event *next;
} ignis__spare_event;

typedef struct ignis__device {
    uint64_t opened;
    uint64_t captures;     /* that threads have open: until they end, nothing may wait for the context */
    ignis__rwlock waiting; /* read by threads that wait for the context, written by one that begins to capture */
    ignis__mutex lock;
    ignis__mutex planning; /* matrix products */
    int handle;            /* CUdevice */
    void *context;
    void *stream; /* Ignis' own */
    ignis_device_info info;
    int clusters; /* whether blocks can come in clusters */
    ignis__foreign_stream *foreign;
    ignis__spare_event *events;
    uint64_t no_dependents; /* own kernels come from PTX for devices that know no dependent launch, and do not wait */
} ignis__device;

/*  A device's compute capability as one number: 89 is 8.9. */
static int ignis__capability(const ignis_device_info *info) { return 10 * info->compute_major + info->compute_minor; }

static ignis__device ignis__devices[IGNIS_MAX_DEVICES];
static int ignis__device_ordinal(const ignis__device *device) { return (int)(device - ignis__devices); }
static uint64_t ignis__devices_fault; /* the driver error that ended all work of the process, 0: none */
static bool ignis__allow_tf32;
static int ignis__matmul_by, ignis__attention_by; /* as in ignis_desc, or in the environment */
static int ignis__device_total;
static int ignis__device_first;
static uint64_t ignis__stream_serials; /* given out so far */
static uint64_t ignis__stream_forgets; /* ignis_stream_forget calls so far */

/*  Errors after which the driver answers every call of the process with the same error, whatever the device. */
static bool ignis__cuda_is_fatal(int error)
{
    static const short fatal[] = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721};
    int i;
    for (i = 0; i < IGNIS__COUNT(fatal); i++)
        if (fatal[i] == error)
            return true;
    return false;
}

/*  A kernel or copy has faulted, on whatever device: CUDA refuses everything on every device from then on. */
static bool ignis__devices_lost(void) { return ignis__atomic_load(&ignis__devices_fault) != 0; }

static const char *ignis__cuda_name(int error)
{
    const char *name = NULL;
    return ignis__cuda.cuGetErrorName && ignis__cuda.cuGetErrorName(error, &name) == 0 && name ? name : "unknown error";
}

/*  Turns a driver error into a failure of `call`. device may be null where none is concerned. */
IGNIS__COLD static ignis_status ignis__cuda_fail(const char *call, ignis__device *device, const char *function, int error)
{
    const char *name = ignis__cuda_name(error), *text = NULL;
    int ordinal = device ? ignis__device_ordinal(device) : -1;
    if (device && ignis__cuda_is_fatal(error)) {
        uint64_t none = 0;
        ignis__atomic_swap_if(&ignis__devices_fault, &none, (uint64_t)error);
        return ignis__fail_because(IGNIS_DIAG_CUDA_CALL, call, error, name, NULL,
                                   "an earlier kernel or copy has faulted: %s (%d), seen by %s on device %d. All arrays are lost, and CUDA "
                                   "keeps every device from this process until it ends",
                                   name, error, function, ordinal);
    }
    if (ignis__cuda.cuGetErrorString && ignis__cuda.cuGetErrorString(error, &text) != 0)
        text = NULL;
    return ignis__fail_because(error == IGNIS__CU_OUT_OF_MEMORY ? IGNIS_DIAG_DEVICE_MEMORY : IGNIS_DIAG_CUDA_CALL, call, error, name, NULL,
                               "%s failed with %s (%d)%s%s", function, name, error, text ? ": " : "", text ? text : "");
}

/*  if (IGNIS__CUDA_FAILED(call, device, cuMemFree_v2, (address))) return ...; the failure is recorded. */
#define IGNIS__CUDA_FAILED(call, device, name, args) (ignis__cuda_check(call, device, #name, IGNIS__CUDA(name, args)) != IGNIS_OK)
IGNIS__ONE_COPY static ignis_status ignis__cuda_check(const char *call, ignis__device *device, const char *function, int error)
{
    return error == 0 ? IGNIS_OK : ignis__cuda_fail(call, device, function, error);
}

IGNIS__ONE_COPY static ignis__device *ignis__device_get(const char *call, int ordinal)
{
    if (ordinal >= 0 && ordinal < ignis__device_total)
        return &ignis__devices[ordinal];
    if (ignis__device_total == 0)
        ignis__fail(IGNIS_DIAG_DEVICE_NONE, call, "there is no CUDA device");
    else
        ignis__fail(IGNIS_DIAG_DEVICE_RANGE, call, "there is no device %d; there are %d, from 0", ordinal, ignis__device_total);
    return NULL;
}

/*  Asks for the facts about a locked device, once: others read them without the lock. */
IGNIS__COLD static bool ignis__device_read(const char *call, ignis__device *device)
{
    ignis_device_info read = IGNIS__ZERO, *info = &read;
    const struct {
        int attribute;
        int *into;
    } facts[] = {
        {IGNIS__CU_ATTRIBUTE_MAJOR, &info->compute_major},
        {IGNIS__CU_ATTRIBUTE_MINOR, &info->compute_minor},
        {IGNIS__CU_ATTRIBUTE_MULTIPROCESSORS, &info->multiprocessors},
        {IGNIS__CU_ATTRIBUTE_WARP_SIZE, &info->warp_size},
        {IGNIS__CU_ATTRIBUTE_MAX_THREADS, &info->max_threads_per_block},
        {IGNIS__CU_ATTRIBUTE_SHARED_OPTIN, &info->shared_per_block},
    };
    int i, l2 = 0;
    size_t total = 0;

    if (device->info.warp_size)
        return true;
    info->device = ignis__device_ordinal(device);
    info->driver_version = ignis__libraries[IGNIS_LIBRARY_CUDA].version;
    if (IGNIS__CUDA_FAILED(call, NULL, cuDeviceGet, (&device->handle, info->device)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetName, (info->name, (int)sizeof info->name, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetUuid_v2, (info->uuid, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetPCIBusId, (info->pci_bus_id, (int)sizeof info->pci_bus_id, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceTotalMem_v2, (&total, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetAttribute, (&l2, IGNIS__CU_ATTRIBUTE_L2_BYTES, device->handle)))
        return false;
    for (i = 0; i < IGNIS__COUNT(facts); i++)
        if (IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetAttribute, (facts[i].into, facts[i].attribute, device->handle)))
            return false;
    if (IGNIS__CUDA(cuDeviceGetAttribute, (&device->clusters, IGNIS__CU_ATTRIBUTE_CLUSTERS, device->handle)) != 0)
        device->clusters = 0; /* the driver is older than they are */
    info->l2_bytes = l2;
    info->memory_total = (int64_t)total;
    if (!ignis__cuda.cuDeviceGetLuid || IGNIS__CUDA(cuDeviceGetLuid, ((char *)info->luid, &info->node_mask, device->handle)) != 0) {
        memset(info->luid, 0, sizeof info->luid);
        info->node_mask = 0;
    }
    device->info = read;
    return true;
}

/*  A context that is made current for one call. */
typedef struct ignis__binding {
    bool pushed;
} ignis__binding;

/*  Makes the device's context that of the thread. Returns what the driver says, of the call *what. */
static int ignis__context_try(ignis__device *device, ignis__binding *binding, const char **what)
{
    void *current = NULL;
    int error;
    binding->pushed = false;
    *what = "cuCtxGetCurrent";
    if ((error = IGNIS__CUDA(cuCtxGetCurrent, (&current))) != 0 || current == device->context)
        return error;
    *what = current ? "cuCtxPushCurrent_v2" : "cuCtxSetCurrent";
    error = current ? IGNIS__CUDA(cuCtxPushCurrent_v2, (device->context)) : IGNIS__CUDA(cuCtxSetCurrent, (device->context));
    binding->pushed = current && error == 0;
    return error;
}

/*  A thread without a context gets this one and keeps it, as with cudart; one that has another gets that back. */
static bool ignis__context_enter(const char *call, ignis__device *device, ignis__binding *binding)
{
    const char *what;
    int error = ignis__context_try(device, binding, &what);
    return error == 0 || ignis__cuda_fail(call, device, what, error) == IGNIS_OK;
}

IGNIS__ONE_COPY static void ignis__context_leave(const ignis__binding *binding)
{
    void *context;
    if (binding->pushed)
        (void)IGNIS__CUDA(cuCtxPopCurrent_v2, (&context)); /* what was pushed can be popped */
}

IGNIS__COLD static bool ignis__device_open_locked(const char *call, ignis__device *device)
{
    ignis__binding binding;
    bool made;
    if (!ignis__device_read(call, device) || IGNIS__CUDA_FAILED(call, device, cuDevicePrimaryCtxRetain, (&device->context, device->handle)))
        return false;
    if (ignis__context_enter(call, device, &binding)) {
        made = !IGNIS__CUDA_FAILED(call, device, cuStreamCreate, (&device->stream, IGNIS__CU_STREAM_DEFAULT));
        ignis__context_leave(&binding);
        if (made)
            return true;
    }
    (void)IGNIS__CUDA(cuDevicePrimaryCtxRelease_v2, (device->handle)); /* the first failure is the one reported */
    device->context = NULL;
    return false;
}

/*  Opens the device if it is not, and makes its context current. Every path that succeeds here ends in ignis__device_leave. */
static bool ignis__device_enter(const char *call, ignis__device *device, ignis__binding *binding)
{
    int error = (int)ignis__atomic_load(&ignis__devices_fault);
    if (error) {
        ignis__fail_because(IGNIS_DIAG_DEVICE_LOST, call, error, ignis__cuda_name(error), NULL,
                            "an earlier kernel or copy has faulted: %s (%d); CUDA keeps every device from this process until it ends",
                            ignis__cuda_name(error), error);
        return false;
    }
    if (!ignis__atomic_load(&device->opened)) {
        ignis__mutex_lock(&device->lock);
        if (!ignis__atomic_load(&device->opened) && ignis__device_open_locked(call, device))
            ignis__atomic_store(&device->opened, 1);
        ignis__mutex_unlock(&device->lock);
        if (!ignis__atomic_load(&device->opened))
            return false;
    }
    return ignis__context_enter(call, device, binding);
}

/*  Enters an opened device to give something back, which must not fail for one call of the driver: it is tried again. False, and nothing reported,
    after a fault. */
static bool ignis__device_enter_to_give(const char *call, ignis__device *device, ignis__binding *binding)
{
    const char *what;
    if (ignis__devices_lost())
        return false;
    return ignis__context_try(device, binding, &what) == 0 || ignis__context_enter(call, device, binding);
}

static void ignis__device_leave(const ignis__binding *binding) { ignis__context_leave(binding); }

/*  Forgets what a thread has of an older setup, and its streams of which somebody else has said that they go. */
IGNIS__COLD static void ignis__thread_renew(ignis__thread *thread, uint64_t forgets)
{
    int i;
    if (thread->setup != ignis__global.setups) {
        thread->setup = ignis__global.setups;
        thread->device = ignis__device_first;
        thread->capture = NULL;
        thread->forgets = forgets;
        memset(thread->stream, 0, sizeof thread->stream);
    }
    if (thread->forgets != forgets) {
        thread->forgets = forgets;
        for (i = 0; i < ignis__device_total; i++) {
            ignis__foreign_stream *foreign;
            if (!thread->stream[i])
                continue;
            ignis__mutex_lock(&ignis__devices[i].lock);
            for (foreign = ignis__devices[i].foreign; foreign && foreign->serial != thread->stream_serial[i]; foreign = foreign->next)
                ;
            ignis__mutex_unlock(&ignis__devices[i].lock);
            if (!foreign)
                thread->stream[i] = NULL;
        }
    }
}

/*  The calling thread's state, fresh after an ignis_setup and after an ignis_stream_forget that concerns it. */
static ignis__thread *ignis__thread_now(void)
{
    ignis__thread *thread = &ignis__this_thread;
    uint64_t forgets = ignis__atomic_load(&ignis__stream_forgets);
    if (thread->setup != ignis__global.setups || thread->forgets != forgets)
        ignis__thread_renew(thread, forgets);
    return thread;
}

/*  The device that a desc names, and what names a device in one. */
static int ignis__desc_device(int device) { return device == 0 ? ignis__thread_now()->device : device == IGNIS_DEVICE_0 ? 0 : device; }
static int ignis__device_in_desc(const ignis__device *device)
{
    return device == ignis__devices ? IGNIS_DEVICE_0 : ignis__device_ordinal(device);
}

IGNIS__COLD static ignis_status ignis__devices_setup(const char *call, int first)
{
    int error, i;
    error = IGNIS__CUDA(cuInit, (0));
    if (error == IGNIS__CU_NO_DEVICE)
        return ignis__fail_because(IGNIS_DIAG_DEVICE_NONE, call, error, ignis__cuda_name(error), NULL, "the driver finds no CUDA device");
    if (error != 0)
        return ignis__cuda_fail(call, NULL, "cuInit", error);
    error = IGNIS__CUDA(cuDeviceGetCount, (&ignis__device_total));
    if (error != 0)
        return ignis__cuda_fail(call, NULL, "cuDeviceGetCount", error);
    if (ignis__device_total > IGNIS_MAX_DEVICES)
        ignis__device_total = IGNIS_MAX_DEVICES;
    for (i = 0; i < ignis__device_total; i++) {
        memset(&ignis__devices[i], 0, sizeof ignis__devices[i]);
        ignis__rwlock_init(&ignis__devices[i].waiting);
        ignis__mutex_init(&ignis__devices[i].lock);
        ignis__mutex_init(&ignis__devices[i].planning);
    }
    ignis__atomic_store(&ignis__devices_fault, 0); /* the driver is asked anew */
    ignis__device_first = first;
    return ignis__device_get(call, first) ? IGNIS_OK : IGNIS_ERROR_DEVICE;
}

/*  Waits for the device and lets go of it. Goes on after an error, and reports the first. */
IGNIS__COLD static void ignis__device_close(const char *call, ignis__device *device)
{
    void *current = NULL;
    bool lost = ignis__devices_lost();
    (void)IGNIS__CUDA(cuCtxSetCurrent, (device->context));
    while (device->events) {
        ignis__spare_event *spare = device->events;
        device->events = spare->next;
        (void)IGNIS__CUDA(cuEventDestroy_v2, (spare->event));
        ignis__free(spare);
    }
    while (device->foreign) {
        ignis__foreign_stream *foreign = device->foreign;
        device->foreign = foreign->next;
        if (foreign->created)
            (void)IGNIS__CUDA(cuStreamDestroy_v2, (foreign->stream));
        ignis__free(foreign);
    }
    if (lost)
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (device->stream));
    else
        (void)IGNIS__CUDA_FAILED(call, device, cuStreamDestroy_v2, (device->stream));
    if (IGNIS__CUDA(cuCtxGetCurrent, (&current)) == 0 && current == device->context)
        (void)IGNIS__CUDA(cuCtxSetCurrent, (NULL)); /* the context ends with its last user */
    (void)IGNIS__CUDA_FAILED(call, NULL, cuDevicePrimaryCtxRelease_v2, (device->handle));
    ignis__atomic_store(&device->opened, 0);
}

IGNIS_API int ignis_device_count(void) { return ignis__enter("ignis_device_count") ? ignis__device_total : 0; }

/*  Reads the facts about a device that is perhaps not open. */
IGNIS__COLD static bool ignis__device_know(const char *call, ignis__device *device)
{
    bool ok;
    ignis__mutex_lock(&device->lock);
    ok = ignis__device_read(call, device);
    ignis__mutex_unlock(&device->lock);
    return ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_device_query(int ordinal, ignis_device_info *info)
{
    static const char call[] = "ignis_device_query";
    ignis__device *device;
    if (!ignis__enter(call) || !ignis__given(call, "info", info))
        return ignis__failed();
    device = ignis__device_get(call, ordinal);
    if (!device)
        return IGNIS_ERROR_DEVICE;
    if (!ignis__device_know(call, device))
        return ignis__failed();
    *info = device->info;
    return IGNIS_OK;
}

IGNIS__COLD IGNIS_API int ignis_device_find(const void *uuid, const void *luid)
{
    static const char call[] = "ignis_device_find";
    char wanted[2 * 16 + 1] = "";
    int i;
    if (!ignis__enter(call) || !ignis__given(call, "uuid and luid", uuid ? uuid : luid))
        return -1;
    for (i = 0; i < ignis__device_total; i++) {
        const ignis_device_info *info = &ignis__devices[i].info;
        if (!ignis__device_know(call, &ignis__devices[i]))
            return -1;
        if ((!uuid || memcmp(uuid, info->uuid, sizeof info->uuid) == 0) &&
            (!luid || (info->node_mask && memcmp(luid, info->luid, sizeof info->luid) == 0)))
            return i;
    }
    for (i = 0; i < (uuid ? 16 : 8); i++)
        snprintf(wanted + 2 * i, 3, "%02x", ((const unsigned char *)(uuid ? uuid : luid))[i]);
    ignis__fail(IGNIS_DIAG_DEVICE_RANGE, call, "none of the %d devices that this process sees has the %s %s%s", ignis__device_total,
                uuid ? "UUID" : "LUID", wanted, uuid && luid ? " and that LUID" : "");
    return -1;
}

IGNIS__COLD IGNIS_API ignis_status ignis_device_use(int ordinal)
{
    static const char call[] = "ignis_device_use";
    ignis__device *device;
    ignis__binding binding;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    device = ignis__device_get(call, ordinal);
    if (!device || !ignis__device_enter(call, device, &binding))
        return ignis__failed();
    ignis__device_leave(&binding);
    if (IGNIS__CUDA_FAILED(call, device, cuCtxSetCurrent, (device->context)))
        return ignis__failed();
    ignis__thread_now()->device = ordinal;
    return IGNIS_OK;
}

IGNIS_API int ignis_device_current(void) { return ignis__enter("ignis_device_current") ? ignis__thread_now()->device : -1; }

/*  The calling thread's current device, opened and entered; null on failure. */
static ignis__device *ignis__device_current_enter(const char *call, ignis__binding *binding)
{
    ignis__device *device;
    if (!ignis__enter(call))
        return NULL;
    device = ignis__device_get(call, ignis__thread_now()->device);
    return device && ignis__device_enter(call, device, binding) ? device : NULL;
}

/* ===============================================================================================================
   >>capture - a thread's work that becomes a CUDA graph: where it goes meanwhile, what the graph keeps, what is refused.
   =============================================================================================================== */

/*  Something that a graph needs as long as it lives, and what gives it up. */
typedef struct ignis__held {
    void *item;
    void (*drop)(const char *call, void *item);
    bool written; /* a storage, by the graph */
    bool lent;    /* a storage, to a kernel of the caller in the graph */
    struct ignis__held *next;
} ignis__held;

/*  How often a graph was launched. Outlives the graph, as arrays do that have their memory from it. */
typedef struct ignis__replays {
    uint64_t users; /* the capture or graph, and storages */
    uint64_t count;
} ignis__replays;

static void ignis__replays_drop(ignis__replays *replays)
{
    if (ignis__atomic_add(&replays->users, (uint64_t)-1) == 0)
        ignis__free(replays);
}

/*  A thread has one between ignis_graph_begin and ignis_graph_end; then it is the graph's. What other sections have to do with it:
        ignis__memory_take        memory that is taken meanwhile is of a part of the cache whose key is the capture, and stays with the graph
        ignis__capture_hold       keeps what the work uses and what was there before: storages, kernels of the caller
        ignis__capture_pause      begins work that is to be done once, before any launch, and not by the graph
        ignis__capture_refuses    makes a call fail that would have to wait or to read host memory, or that is to happen once */
typedef struct ignis__capture {
    ignis__device *device;
    ignis__replays *replays;     /* of the graph that it becomes */
    uint64_t serial;             /* tells it from other captures */
    void *stream;                /* made for it alone: other threads go on working on theirs */
    struct ignis__capture *next; /* of those that threads have open */
    ignis__held *held;
    struct ignis__array *launches; /* counted by the graph itself, for random numbers; held, null where there are none */
} ignis__capture;

/*  Those that are open, for ignis_shutdown: a thread may have ended without ending its own. */
static struct {
    ignis__mutex lock;
    ignis__capture *first;
} ignis__captures = {IGNIS__MUTEX_INIT, NULL};

static ignis__capture *ignis__capturing(void) { return ignis__thread_now()->capture; }

/*  The capture that takes up the thread's work on this device, or null. */
IGNIS__ONE_COPY static ignis__capture *ignis__capture_on(const ignis__device *device)
{
    ignis__capture *capture = ignis__capturing();
    return capture && capture->device == device ? capture : NULL;
}

/*  The stream that the calling thread's work goes to on an open device. */
IGNIS__ONE_COPY static void *ignis__stream_now(const ignis__device *device)
{
    const ignis__thread *thread = ignis__thread_now();
    void *stream = thread->stream[device - ignis__devices];
    if (thread->capture && thread->capture->device == device)
        return thread->capture->stream;
    return stream ? stream : device->stream;
}

/*  True: the thread captures, and the call has failed. */
IGNIS__ONE_COPY static bool ignis__capture_refuses(const char *call)
{
    if (!ignis__capturing())
        return false;
    ignis__fail(
        IGNIS_DIAG_CAPTURE_REFUSED, call,
        "this cannot be captured: it waits for the device, reads host memory or is to be done once; call it before ignis_graph_begin or "
        "after ignis_graph_end");
    return true;
}

static ignis__held *ignis__capture_find(const ignis__capture *capture, const void *item)
{
    ignis__held *held = capture->held;
    while (held && held->item != item)
        held = held->next;
    return held;
}

/*  Keeps an item for the graph: its count of users (null: it counts the caller already) goes up, once; `drop` makes it go down. */
static bool ignis__capture_hold(const char *call, ignis__capture *capture, void *item, uint64_t *users,
                                void (*drop)(const char *call, void *item))
{
    ignis__held *held;
    if (ignis__capture_find(capture, item))
        return true;
    held = (ignis__held *)ignis__alloc_for(call, sizeof *held);
    if (!held)
        return false;
    if (users)
        ignis__atomic_add(users, 1);
    held->item = item;
    held->drop = drop;
    held->next = capture->held;
    capture->held = held;
    return true;
}

/*  Between the two the thread's work runs on its own stream, of an entered device. Resume waits for it: a capture has no order with others. */
IGNIS__MAYBE_UNUSED static ignis__capture *ignis__capture_pause(void)
{
    ignis__capture *capture = ignis__capturing();
    ignis__thread_now()->capture = NULL;
    return capture;
}

IGNIS__MAYBE_UNUSED static bool ignis__capture_resume(const char *call, ignis__capture *capture)
{
    bool ok = !capture || !IGNIS__CUDA_FAILED(call, capture->device, cuStreamSynchronize, (ignis__stream_now(capture->device)));
    ignis__thread_now()->capture = capture;
    return ok;
}

/*  Gives up what the capture holds. The device is idle. */
IGNIS__MAYBE_UNUSED static void ignis__capture_destroy(const char *call, ignis__capture *capture)
{
    while (capture->held) {
        ignis__held *held = capture->held;
        capture->held = held->next;
        held->drop(call, held->item);
        ignis__free(held);
    }
    ignis__replays_drop(capture->replays);
    ignis__free(capture);
}

/*  The thread's work goes to a capture from here on. The device is entered, and idle, so that no work of before is missing an event. */
IGNIS__COLD IGNIS__MAYBE_UNUSED static bool ignis__capture_begin(const char *call, ignis__device *device)
{
    ignis__capture *capture = (ignis__capture *)ignis__alloc(sizeof *capture);
    ignis__replays *replays = (ignis__replays *)ignis__alloc(sizeof *replays);
    if (!capture || !replays) {
        ignis__free(capture), ignis__free(replays);
        ignis__fail_host_memory(call, sizeof *capture + sizeof *replays);
        return false;
    }
    replays->users = 1;
    capture->replays = replays;
    capture->serial = ignis__atomic_add(&ignis__stream_serials, 1);
    capture->device = device;
    ignis__atomic_add(&device->captures, 1);   /* from here on nobody begins to wait for the context, */
    ignis__rwlock_write(&device->waiting);     /* and this waits for those who do so now: */
    ignis__rwlock_write_end(&device->waiting); /* to wait for a context in which a stream is captured spoils the capture */
    /* Relaxed: the allocator may ask the driver for memory meanwhile. */
    if (!IGNIS__CUDA_FAILED(call, device, cuStreamCreate, (&capture->stream, IGNIS__CU_STREAM_NON_BLOCKING)) &&
        !IGNIS__CUDA_FAILED(call, device, cuStreamBeginCapture_v2, (capture->stream, IGNIS__CU_CAPTURE_RELAXED))) {
        ignis__mutex_lock(&ignis__captures.lock);
        capture->next = ignis__captures.first;
        ignis__captures.first = capture;
        ignis__mutex_unlock(&ignis__captures.lock);
        ignis__thread_now()->capture = capture;
        return true;
    }
    ignis__atomic_add(&device->captures, (uint64_t)-1);
    if (capture->stream)
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (capture->stream));
    ignis__free(replays), ignis__free(capture);
    return false;
}

/*  Ends a capture, in any case, and makes an executable graph of it, which needs what the capture holds. Null on failure. */
IGNIS__COLD IGNIS__MAYBE_UNUSED static void *ignis__capture_end(const char *call, ignis__capture *capture)
{
    ignis__device *device = capture->device;
    void *captured = NULL, *exec = NULL;
    bool ok = !IGNIS__CUDA_FAILED(call, device, cuStreamEndCapture, (capture->stream, &captured)) && captured &&
              !IGNIS__CUDA_FAILED(call, device, cuGraphInstantiateWithFlags, (&exec, captured, 0));
    ignis__capture **link = &ignis__captures.first;
    if (ignis__capturing() == capture)
        ignis__thread_now()->capture = NULL;
    ignis__mutex_lock(&ignis__captures.lock);
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    ignis__mutex_unlock(&ignis__captures.lock);
    ignis__atomic_add(&device->captures, (uint64_t)-1);
    if (captured)
        (void)IGNIS__CUDA(cuGraphDestroy, (captured));
    (void)IGNIS__CUDA(cuStreamDestroy_v2, (capture->stream));
    return ok ? exec : NULL;
}

/* ===============================================================================================================
   >>stream - streams of the caller, events between streams, waiting for a device.
   =============================================================================================================== */

/*  Writes a stream of the caller down, after checking that it is one of this device. 0: it is not. */
IGNIS__COLD static uint64_t ignis__stream_adopt(const char *call, ignis__device *device, void *stream)
{
    ignis__foreign_stream *foreign;
    const ignis__capture *capture;
    uint64_t serial = 0;
    void *context = NULL;
    bool legacy = (uintptr_t)stream == IGNIS__CU_STREAM_LEGACY; /* of the current context */
    if ((uintptr_t)stream == IGNIS__CU_STREAM_PER_THREAD) {
        ignis__fail(
            IGNIS_DIAG_STREAM_INVALID, call,
            "CU_STREAM_PER_THREAD (cudaStreamPerThread) is another stream in each thread, and no thread can wait for that of another: "
            "memory could not be handed on safely. Make a stream for this thread with cudaStreamCreate");
        return 0;
    }
    ignis__mutex_lock(&ignis__captures.lock);
    for (capture = ignis__captures.first; capture && capture->stream != stream; capture = capture->next)
        ;
    ignis__mutex_unlock(&ignis__captures.lock);
    if (capture) {
        ignis__fail(IGNIS_DIAG_CAPTURE_REFUSED, call,
                    "stream %p is that of a capture, and goes with ignis_graph_end. Work of the thread that captures goes there by itself",
                    stream);
        return 0;
    }
    if (!legacy && IGNIS__CUDA_FAILED(call, device, cuStreamGetCtx, (stream, &context)))
        return 0;
    if (!legacy && context != device->context) {
        ignis__fail(IGNIS_DIAG_STREAM_INVALID, call, "stream %p belongs to another device or context than device %d's primary context",
                    stream, ignis__device_ordinal(device));
        return 0;
    }
    ignis__mutex_lock(&device->lock);
    for (foreign = device->foreign; foreign && foreign->stream != stream; foreign = foreign->next)
        ;
    if (!foreign) {
        foreign = (ignis__foreign_stream *)ignis__alloc(sizeof *foreign);
        if (foreign) {
            ignis__mutex_init(&foreign->lock);
            foreign->stream = stream;
            foreign->holds = 1;
            foreign->serial = ignis__atomic_add(&ignis__stream_serials, 1);
            foreign->next = device->foreign;
            device->foreign = foreign;
        }
    }
    if (foreign)
        serial = foreign->serial;
    ignis__mutex_unlock(&device->lock);
    if (!serial)
        ignis__fail_host_memory(call, sizeof *foreign);
    return serial;
}

/*  Keeps an event of the device for the next one who needs one. */
IGNIS__ONE_COPY static void ignis__event_give(ignis__device *device, ignis__spare_event *spare)
{
    ignis__mutex_lock(&device->lock);
    spare->next = device->events;
    device->events = spare;
    ignis__mutex_unlock(&device->lock);
}

/*  An event behind what is queued on a stream now; null on failure. ignis__event_give takes it back. */
static ignis__spare_event *ignis__event_record(const char *call, ignis__device *device, void *stream)
{
    ignis__spare_event *spare;
    ignis__binding binding;
    if (!ignis__device_enter(call, device, &binding))
        return NULL;
    ignis__mutex_lock(&device->lock);
    spare = device->events;
    if (spare)
        device->events = spare->next;
    ignis__mutex_unlock(&device->lock);
    if (!spare) {
        spare = (ignis__spare_event *)ignis__alloc_for(call, sizeof *spare);
        if (spare && IGNIS__CUDA_FAILED(call, device, cuEventCreate, (&spare->event, IGNIS__CU_EVENT_DISABLE_TIMING))) {
            ignis__free(spare);
            spare = NULL;
        }
    }
    if (spare && IGNIS__CUDA_FAILED(call, device, cuEventRecord, (spare->event, stream))) {
        ignis__event_give(device, spare);
        spare = NULL;
    }
    ignis__device_leave(&binding);
    return spare;
}

/*  Makes `later` wait for what is queued on `earlier` now. The streams may be of different devices. */
static bool ignis__stream_order(const char *call, ignis__device *earlier_device, void *earlier, ignis__device *later_device, void *later)
{
    ignis__spare_event *spare;
    ignis__binding binding;
    bool ok;
    if (earlier_device == later_device && earlier == later)
        return true;
    spare = ignis__event_record(call, earlier_device, earlier);
    ok = spare && ignis__device_enter(call, later_device, &binding);
    if (ok) {
        ok = !IGNIS__CUDA_FAILED(call, later_device, cuStreamWaitEvent, (later, spare->event, 0));
        ignis__device_leave(&binding);
    }
    if (spare)
        ignis__event_give(earlier_device, spare); /* the wait refers to the record, not to the event: it can be recorded again at once */
    return ok;
}

/*  The stream of the caller that comes next after `serial`, held; null: there is none. */
static ignis__foreign_stream *ignis__foreign_next(ignis__device *device, uint64_t serial)
{
    ignis__foreign_stream *foreign, *next = NULL;
    ignis__mutex_lock(&device->lock);
    for (foreign = device->foreign; foreign; foreign = foreign->next)
        if (foreign->serial > serial && (!next || foreign->serial < next->serial))
            next = foreign;
    if (next)
        next->holds++;
    ignis__mutex_unlock(&device->lock);
    return next;
}

/*  What is known of a stream of the caller, held; null: it is none. */
static ignis__foreign_stream *ignis__foreign_hold(ignis__device *device, const void *stream)
{
    ignis__foreign_stream *foreign;
    ignis__mutex_lock(&device->lock);
    for (foreign = device->foreign; foreign && foreign->stream != stream; foreign = foreign->next)
        ;
    if (foreign)
        foreign->holds++;
    ignis__mutex_unlock(&device->lock);
    return foreign;
}

static void ignis__foreign_drop(ignis__device *device, ignis__foreign_stream *foreign)
{
    bool last;
    ignis__mutex_lock(&device->lock);
    last = --foreign->holds == 0;
    ignis__mutex_unlock(&device->lock);
    if (last)
        ignis__free(foreign);
}

/*  Draws a stream of the caller into the thread's capture, behind what that has queued on `from`; serial: what ignis__stream_adopt gave. A
    thread that waits for the stream is waited for, as its wait would spoil the capture. */
IGNIS__MAYBE_UNUSED static bool ignis__capture_draw(const char *call, ignis__device *device, void *from, uint64_t serial)
{
    ignis__foreign_stream *foreign = ignis__foreign_next(device, serial - 1);
    bool ok;
    IGNIS_ASSERT(foreign && foreign->serial == serial);
    ignis__mutex_lock(&foreign->lock);
    ok = ignis__stream_order(call, device, from, device, foreign->stream);
    ignis__mutex_unlock(&foreign->lock);
    ignis__foreign_drop(device, foreign);
    return ok;
}

/*  Waits for a stream, unless a capture has drawn it in. Returns the driver's error. */
static int ignis__stream_finish(void *stream)
{
    int captures = 0, error = IGNIS__CUDA(cuStreamIsCapturing, (stream, &captures));
    return error == 0 && !captures ? IGNIS__CUDA(cuStreamSynchronize, (stream)) : error;
}

/*  Waits for the work of an entered device. While a thread captures on its context, which a wait would spoil, or when that wait has failed: for
    each known stream that no capture has drawn in. Returns the first error; the work is through also then, unless the devices are lost. */
IGNIS__COLD static int ignis__device_finish(ignis__device *device)
{
    ignis__foreign_stream *foreign;
    uint64_t serial = 0;
    int first = IGNIS__CU_CAPTURE_UNSUPPORTED, error;
    ignis__rwlock_read(&device->waiting);
    if (!ignis__atomic_load(&device->captures))
        first = IGNIS__CUDA(cuCtxSynchronize, ());
    ignis__rwlock_read_end(&device->waiting);
    if (first == 0 || ignis__cuda_is_fatal(first))
        return first;
    if (first == IGNIS__CU_CAPTURE_UNSUPPORTED) /* others may capture, too */
        first = 0;
    error = ignis__stream_finish(device->stream);
    first = first ? first : error;
    while ((foreign = ignis__foreign_next(device, serial)) != NULL) {
        ignis__mutex_lock(&foreign->lock);
        error = foreign->forgotten ? 0 : ignis__stream_finish(foreign->stream);
        ignis__mutex_unlock(&foreign->lock);
        first = first ? first : error;
        serial = foreign->serial;
        ignis__foreign_drop(device, foreign);
    }
    return first;
}

/*  The same, where the failure is to be reported. */
static bool ignis__device_wait(const char *call, ignis__device *device)
{
    return ignis__cuda_check(call, device, "cuCtxSynchronize", ignis__device_finish(device)) == IGNIS_OK;
}

IGNIS__COLD IGNIS_API ignis_status ignis_stream_use(void *stream)
{
    static const char call[] = "ignis_stream_use";
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    uint64_t serial = 0;
    bool ok;
    if (!device)
        return ignis__failed();
    if (stream == device->stream)
        stream = NULL;
    ok = !stream || (serial = ignis__stream_adopt(call, device, stream)) != 0;
    ignis__device_leave(&binding);
    if (!ok)
        return ignis__failed();
    ignis__this_thread.stream[device - ignis__devices] = stream;
    ignis__this_thread.stream_serial[device - ignis__devices] = serial;
    return IGNIS_OK;
}

IGNIS_API void *ignis_stream_current(void)
{
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter("ignis_stream_current", &binding);
    if (!device)
        return NULL;
    ignis__device_leave(&binding);
    return ignis__stream_now(device);
}

/* --- streams that Ignis makes, events of the caller -------------------------------------------------------------------- */

IGNIS__COLD IGNIS_API void *ignis_stream_create(const ignis_stream_desc *desc)
{
    static const char call[] = "ignis_stream_create";
    void *stream = NULL;
    int priority = desc ? desc->priority : 0; /* the driver's are the other way round */
    ignis__foreign_stream *foreign;
    uint64_t serial;
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    if (!device)
        return NULL;
    if (!IGNIS__CUDA_FAILED(call, device, cuStreamCreateWithPriority,
                            (&stream, IGNIS__CU_STREAM_NON_BLOCKING, priority < -INT_MAX ? INT_MAX : -priority))) {
        serial = ignis__stream_adopt(call, device, stream);
        foreign = serial ? ignis__foreign_next(device, serial - 1) : NULL;
        if (foreign) {
            foreign->created = true;
            ignis__foreign_drop(device, foreign);
        } else {
            (void)IGNIS__CUDA(cuStreamDestroy_v2, (stream));
            stream = NULL;
        }
    }
    ignis__device_leave(&binding);
    return stream;
}

/*  Names those that ignis_device_close frees. */
IGNIS__COLD static void ignis__streams_leaked(const char *call)
{
    const ignis__foreign_stream *foreign;
    int i;
    for (i = 0; i < ignis__device_total; i++)
        for (foreign = ignis__devices[i].foreign; foreign; foreign = foreign->next)
            if (foreign->created)
                ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "stream %p of device %d, of ignis_stream_create", foreign->stream, i);
}

static bool ignis__stream_known(ignis__device *device, const void *stream)
{
    const ignis__capture *capture = ignis__capture_on(device);
    const ignis__foreign_stream *foreign;
    if (!ignis__atomic_load(&device->opened))
        return false;
    if (stream == device->stream || (capture && stream == capture->stream))
        return true;
    ignis__mutex_lock(&device->lock);
    for (foreign = device->foreign; foreign && foreign->stream != stream; foreign = foreign->next)
        ;
    ignis__mutex_unlock(&device->lock);
    return foreign != NULL;
}

/*  The device of a stream that a call names, entered: of one that Ignis knows, or else the current one if it is of that. null, and
    reported, when there is none. A stream of null becomes the current one. */
static ignis__device *ignis__stream_enter(const char *call, void **stream, ignis__binding *binding)
{
    ignis__device *device = ignis__device_current_enter(call, binding);
    int i;
    if (!device)
        return NULL;
    if (!*stream)
        *stream = ignis__stream_now(device);
    if (ignis__stream_known(device, *stream))
        return device;
    for (i = 0; i < ignis__device_total && (uintptr_t)*stream != IGNIS__CU_STREAM_LEGACY; i++) { /* each device has one of that name */
        if (ignis__stream_known(&ignis__devices[i], *stream)) {
            ignis__device_leave(binding);
            return ignis__device_enter(call, &ignis__devices[i], binding) ? &ignis__devices[i] : NULL;
        }
    }
    if (ignis__stream_adopt(call, device, *stream))
        return device;
    ignis__device_leave(binding);
    return NULL;
}

/*  Whether a stream is captured, by whatever thread. */
static bool ignis__stream_captured(const char *call, ignis__device *device, void *stream, bool *captured)
{
    int status = 0;
    bool ok = !ignis__atomic_load(&device->captures) || !IGNIS__CUDA_FAILED(call, device, cuStreamIsCapturing, (stream, &status));
    *captured = status != 0;
    return ok;
}

IGNIS__COLD static bool ignis__fail_captured(const char *call, const char *what)
{
    return ignis__refuse(IGNIS_DIAG_CAPTURE_REFUSED, call, "%s", what);
}

/*  Makes a stream of an entered device wait for an event; captured: one recorded in a capture, which the stream then joins. A thread that
    waits for the stream is waited for, as its wait would spoil the capture. */
static bool ignis__stream_await(const char *call, ignis__device *device, void *stream, void *event, bool captured)
{
    ignis__foreign_stream *foreign;
    uint64_t serial;
    bool joined, ok;
    if (!ignis__stream_captured(call, device, stream, &joined))
        return false;
    if (captured == joined)
        return !IGNIS__CUDA_FAILED(call, device, cuStreamWaitEvent, (stream, event, 0));
    if (joined)
        return ignis__fail_captured(call, "the stream is captured, and cannot wait for what is outside of the capture");
    if (!ignis__capture_on(device) || stream == device->stream || (uintptr_t)stream == IGNIS__CU_STREAM_LEGACY)
        return ignis__fail_captured(call,
                                    "what is to be waited for is captured: only other streams of the caller, on the capture's device and "
                                    "at the hand of its thread, join a capture");
    serial = ignis__stream_adopt(call, device, stream);
    foreign = serial ? ignis__foreign_next(device, serial - 1) : NULL;
    if (!foreign)
        return false;
    ignis__mutex_lock(&foreign->lock);
    ok = !IGNIS__CUDA_FAILED(call, device, cuStreamWaitEvent, (stream, event, 0));
    ignis__mutex_unlock(&foreign->lock);
    ignis__foreign_drop(device, foreign);
    return ok;
}

IGNIS_API ignis_status ignis_stream_query(void *stream, bool *done)
{
    static const char call[] = "ignis_stream_query";
    ignis__foreign_stream *foreign;
    ignis__device *device;
    ignis__binding binding;
    bool captured, ok = false;
    int error;
    if (!ignis__enter(call) || !ignis__given(call, "done", done))
        return ignis__failed();
    device = ignis__stream_enter(call, &stream, &binding);
    if (!device)
        return ignis__failed();
    foreign = ignis__foreign_hold(device, stream);
    if (foreign &&
        !ignis__mutex_try(&foreign->lock)) { /* a thread waits for it, or draws it into a capture, which a question would spoil */
        *done = false;
        ok = true;
    } else {
        if (ignis__stream_captured(call, device, stream, &captured)) {
            error = captured ? IGNIS__CU_CAPTURE_UNSUPPORTED : IGNIS__CUDA(cuStreamQuery, (stream));
            *done = error == 0;
            ok = captured ? ignis__fail_captured(call, "the stream is captured: its work runs at each launch of the graph")
                          : error == IGNIS__CU_NOT_READY || ignis__cuda_check(call, device, "cuStreamQuery", error) == IGNIS_OK;
        }
        if (foreign)
            ignis__mutex_unlock(&foreign->lock);
    }
    if (foreign)
        ignis__foreign_drop(device, foreign);
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_stream_wait(void *stream, void *other)
{
    static const char call[] = "ignis_stream_wait";
    ignis__device *earlier = NULL, *later;
    ignis__spare_event *spare = NULL;
    ignis__binding binding;
    bool captured = false, ok;
    later = ignis__stream_enter(call, &stream, &binding);
    if (!later)
        return ignis__failed();
    ignis__device_leave(&binding);
    earlier = ignis__stream_enter(call, &other, &binding);
    if (!earlier)
        return ignis__failed();
    ok = ignis__stream_captured(call, earlier, other, &captured);
    if (ok && (earlier != later || stream != other))
        ok = (spare = ignis__event_record(call, earlier, other)) != NULL;
    ignis__device_leave(&binding);
    if (!spare || !ignis__device_enter(call, later, &binding)) {
        if (spare)
            ignis__event_give(earlier, spare);
        return ok && !spare ? IGNIS_OK : ignis__failed();
    }
    ok = ignis__stream_await(call, later, stream, spare->event, captured);
    ignis__device_leave(&binding);
    ignis__event_give(earlier, spare);
    return ok ? IGNIS_OK : ignis__failed();
}

typedef struct ignis__event {
    ignis__slot slot; /* its lock is held while the event is recorded, or asked */
    ignis__device *device;
    void *event;
    bool recorded;
    uint64_t capture; /* the serial of the capture in which it was recorded last; 0: it was in none */
} ignis__event;

static ignis__pool ignis__events = IGNIS__POOL(ignis__event, IGNIS__KIND_EVENT, "event", IGNIS_DIAG_EVENT_FREED);

IGNIS__COLD IGNIS_API ignis_event ignis_event_create(void)
{
    static const char call[] = "ignis_event_create";
    ignis_event handle = IGNIS__ZERO;
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    ignis__event *event = device ? (ignis__event *)ignis__pool_take_zeroed(call, &ignis__events) : NULL;
    if (event && IGNIS__CUDA_FAILED(call, device, cuEventCreate, (&event->event, IGNIS__CU_EVENT_DEFAULT))) {
        ignis__pool_give(&ignis__events, event);
    } else if (event) {
        event->device = device;
        handle.id = ignis__pool_publish(&ignis__events, event);
    }
    if (device)
        ignis__device_leave(&binding);
    return handle;
}

static void ignis__event_drop(ignis__event *event)
{
    if (ignis__pool_drop(event)) {
        (void)IGNIS__CUDA(cuEventDestroy_v2, (event->event)); /* after a fault there is nothing more to say */
        ignis__pool_give(&ignis__events, event);
    }
}

/*  The event of a handle, held, and its device entered; null, and reported, when that cannot be. */
static ignis__event *ignis__event_enter(const char *call, ignis_event handle, ignis__binding *binding)
{
    ignis__event *event = (ignis__event *)ignis__handle_hold(call, &ignis__events, handle.id);
    if (event && !ignis__device_enter(call, event->device, binding)) {
        ignis__event_drop(event);
        event = NULL;
    }
    return event;
}

static ignis_status ignis__event_leave(ignis__event *event, const ignis__binding *binding, bool ok)
{
    ignis__device_leave(binding);
    ignis__event_drop(event);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  What a locked event says of work outside of captures; *error is the driver's, IGNIS__CU_NOT_READY where work goes on. False: reported. */
static bool ignis__event_ask(const char *call, ignis__event *event, int *error)
{
    if (event->capture)
        return ignis__fail_captured(call, "the event was recorded in a capture: it is a point of the graph, until it is recorded again");
    *error = IGNIS__CUDA(cuEventQuery, (event->event));
    return *error == IGNIS__CU_NOT_READY || ignis__cuda_check(call, event->device, "cuEventQuery", *error) == IGNIS_OK;
}

IGNIS_API ignis_status ignis_event_record(ignis_event handle, void *stream)
{
    static const char call[] = "ignis_event_record";
    ignis__binding binding;
    ignis__event *event = (ignis__event *)ignis__handle_hold(call, &ignis__events, handle.id);
    ignis__device *device = event ? ignis__stream_enter(call, &stream, &binding) : NULL;
    const ignis__capture *capture;
    bool captured, ok = false;
    if (!event)
        return ignis__failed();
    if (!device) {
        ignis__event_drop(event);
        return ignis__failed();
    }
    if (device != event->device) {
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "the event is of device %d, the stream of device %d",
                    ignis__device_ordinal(event->device), ignis__device_ordinal(device));
    } else if (ignis__stream_captured(call, device, stream, &captured)) {
        capture = captured ? ignis__capture_on(device) : NULL;
        ok = captured == (capture != NULL) || ignis__fail_captured(call, "another thread captures the stream");
        ignis__mutex_lock(&event->slot.lock);
        ok = ok && !IGNIS__CUDA_FAILED(call, device, cuEventRecord, (event->event, stream));
        if (ok) {
            event->recorded = true;
            event->capture = capture ? capture->serial : 0;
        }
        ignis__mutex_unlock(&event->slot.lock);
    }
    return ignis__event_leave(event, &binding, ok);
}

IGNIS_API ignis_status ignis_event_query(ignis_event handle, bool *done)
{
    static const char call[] = "ignis_event_query";
    ignis__binding binding;
    ignis__event *event = ignis__event_enter(call, handle, &binding);
    int error = 0;
    bool ok;
    if (!event)
        return ignis__failed();
    ignis__mutex_lock(&event->slot.lock);
    ok = ignis__given(call, "done", done) && ignis__event_ask(call, event, &error);
    ignis__mutex_unlock(&event->slot.lock);
    if (done)
        *done = ok && error == 0;
    return ignis__event_leave(event, &binding, ok);
}

IGNIS_API ignis_status ignis_event_wait(ignis_event handle)
{
    static const char call[] = "ignis_event_wait";
    ignis__binding binding;
    ignis__event *event = ignis__event_enter(call, handle, &binding);
    int error = 0;
    bool ok;
    if (!event)
        return ignis__failed();
    ignis__mutex_lock(&event->slot.lock);
    ok = ignis__event_ask(call, event, &error);
    ignis__mutex_unlock(&event->slot.lock);
    if (ok && error != 0)
        ok = !IGNIS__CUDA_FAILED(call, event->device, cuEventSynchronize, (event->event));
    return ignis__event_leave(event, &binding, ok);
}

IGNIS_API ignis_status ignis_event_elapsed_ms(ignis_event first, ignis_event last, double *ms)
{
    static const char call[] = "ignis_event_elapsed_ms";
    ignis_event handles[] = {first, last};
    ignis__event *events[2] = {NULL, NULL};
    ignis__binding bindings[2];
    float elapsed = 0;
    int i, error = 0;
    bool ok = true;
    if (!ignis__enter(call) || !ignis__given(call, "ms", ms))
        return ignis__failed();
    for (i = 0; ok && i < 2; i++) {
        events[i] = ignis__event_enter(call, handles[i], &bindings[i]);
        ok = events[i] != NULL;
        if (!ok)
            break;
        ignis__mutex_lock(&events[i]->slot.lock);
        ok = ignis__event_ask(call, events[i], &error);
        if (ok && (error != 0 || !events[i]->recorded))
            ok = ignis__refuse(IGNIS_DIAG_EVENT_STATE, call, "the %s event %s", i ? "last" : "first",
                               error ? "is not done: wait for it, or ask by ignis_event_query" : "was never recorded");
        ignis__mutex_unlock(&events[i]->slot.lock);
    }
    if (ok && events[0]->device != events[1]->device)
        ok = ignis__refuse(IGNIS_DIAG_DEVICE_DIFFERS, call, "the events are of device %d and device %d",
                           ignis__device_ordinal(events[0]->device), ignis__device_ordinal(events[1]->device));
    ok = ok && !IGNIS__CUDA_FAILED(call, events[0]->device, cuEventElapsedTime, (&elapsed, events[0]->event, events[1]->event));
    for (i = 1; i >= 0; i--)
        if (events[i])
            (void)ignis__event_leave(events[i], &bindings[i], true);
    if (ok)
        *ms = (double)elapsed;
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_event_free(ignis_event handle)
{
    static const char call[] = "ignis_event_free";
    const uint64_t failures = ignis__failures();
    ignis__event *event;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    event = (ignis__event *)ignis__handle_hold(call, &ignis__events, handle.id);
    if (!event)
        return ignis__failed();
    live = ignis__handle_kill(event);
    if (!live)
        ignis__fail_stale(call, &ignis__events, handle.id);
    ignis__event_drop(event);
    return ignis__ended(failures, live);
}

IGNIS__COLD static void ignis__events_close(const char *call)
{
    ignis__event *event;
    uint64_t index = 0;
    while ((event = (ignis__event *)ignis__pool_next(&ignis__events, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "event of device %d", ignis__device_ordinal(event->device));
        ignis__handle_kill(event);
        ignis__event_drop(event);
    }
}

IGNIS_API ignis_status ignis_stream_wait_event(void *stream, ignis_event handle)
{
    static const char call[] = "ignis_stream_wait_event";
    ignis__binding binding;
    ignis__event *event = (ignis__event *)ignis__handle_hold(call, &ignis__events, handle.id);
    ignis__device *device = event ? ignis__stream_enter(call, &stream, &binding) : NULL;
    const ignis__capture *capture = ignis__capturing();
    bool ok;
    if (!event)
        return ignis__failed();
    if (!device) {
        ignis__event_drop(event);
        return ignis__failed();
    }
    ignis__mutex_lock(&event->slot.lock);
    if (event->capture && !(capture && capture->serial == event->capture))
        ok = ignis__fail_captured(call, "the event was recorded in a capture that is over, or another thread's");
    else
        ok = !event->recorded || ignis__stream_await(call, device, stream, event->event, event->capture != 0);
    ignis__mutex_unlock(&event->slot.lock);
    return ignis__event_leave(event, &binding, ok);
}

/* --- functions of the program that streams call --------------------------------------------------------------------------- */

typedef struct ignis__callback {
    void (*fn)(void *user_data);
    void *user_data;
    bool captured; /* called at each launch of a graph, which frees it */
    struct ignis__callback *next;
} ignis__callback;

/*  Those that are not captured and were not called yet. Nobody calls the driver with the lock held, as the driver's thread takes it. */
static struct {
    ignis__mutex lock;
    ignis__callback *first;
} ignis__callbacks = {IGNIS__MUTEX_INIT, NULL};

static void ignis__callback_free(ignis__callback *callback)
{
    ignis__callback **link = &ignis__callbacks.first;
    ignis__mutex_lock(&ignis__callbacks.lock);
    while (*link != callback)
        link = &(*link)->next;
    *link = callback->next;
    ignis__mutex_unlock(&ignis__callbacks.lock);
    ignis__free(callback);
}

static void ignis__callback_drop(const char *call, void *item)
{
    (void)call;
    ignis__free(item);
}

/*  Runs one, and calls of Ignis in it fail. The thread may be one that calls Ignis otherwise: what it has recorded stays. */
static void ignis__callback_run(void *context)
{
    ignis__callback *callback = (ignis__callback *)context;
    ignis__thread *thread = &ignis__this_thread;
    ignis__record before = thread->record;
    ignis_status latest = thread->latest;
    memset(&thread->record, 0, sizeof thread->record);
    thread->called_back = true;
    callback->fn(callback->user_data);
    thread->called_back = false;
    ignis__record_drop(thread);
    thread->record = before;
    thread->latest = latest;
    if (!callback->captured)
        ignis__callback_free(callback);
}

IGNIS_API ignis_status ignis_stream_call(void *stream, void (*fn)(void *user_data), void *user_data)
{
    static const char call[] = "ignis_stream_call";
    ignis__capture *capture;
    ignis__callback *callback = NULL;
    ignis__device *device;
    ignis__binding binding;
    bool captured, ok = false;
    if (!ignis__enter(call))
        return ignis__failed();
    if (!fn)
        return ignis__fail_null(call, "fn");
    device = ignis__stream_enter(call, &stream, &binding);
    if (!device)
        return ignis__failed();
    capture = ignis__capture_on(device);
    if (!ignis__stream_captured(call, device, stream, &captured) ||
        (captured && !capture && !ignis__fail_captured(call, "another thread captures the stream"))) {
        callback = NULL; /* reported */
    } else if ((callback = (ignis__callback *)ignis__alloc_for(call, sizeof *callback)) != NULL) {
        callback->fn = fn;
        callback->user_data = user_data;
        callback->captured = captured;
        if (!captured) {
            ignis__mutex_lock(&ignis__callbacks.lock);
            callback->next = ignis__callbacks.first;
            ignis__callbacks.first = callback;
            ignis__mutex_unlock(&ignis__callbacks.lock);
        }
        if (captured && !ignis__capture_hold(call, capture, callback, NULL, ignis__callback_drop))
            ignis__free(callback);
        else
            ok = !IGNIS__CUDA_FAILED(call, device, cuLaunchHostFunc, (stream, ignis__callback_run, callback));
        if (!ok && !captured)
            ignis__callback_free(callback);
    }
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Those that are never called, after a fault. The devices are idle. */
IGNIS__COLD static void ignis__callbacks_close(void)
{
    while (ignis__callbacks.first)
        ignis__callback_free(ignis__callbacks.first);
}

IGNIS_API ignis_status ignis_synchronize(void)
{
    static const char call[] = "ignis_synchronize";
    ignis__binding binding;
    ignis__device *device;
    bool ok;
    if (!ignis__enter(call) || ignis__capture_refuses(call) || (device = ignis__device_current_enter(call, &binding)) == NULL)
        return ignis__failed();
    ok = ignis__device_wait(call, device);
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

/* ===============================================================================================================
   >>profile - what runs, and how long: written down here, and made into reports further below.
   =============================================================================================================== */

typedef enum ignis__traced_kind {
    IGNIS__TRACED_CALL, /* on the host */
    IGNIS__TRACED_KERNEL,
    IGNIS__TRACED_COPY,
    IGNIS__TRACED_GRAPH,
    IGNIS__TRACED_COLLECTIVE,
    IGNIS__TRACED_MEMORY /* what a device has in use from then on */
} ignis__traced_kind;

typedef struct ignis__traced {
    ignis__traced_kind kind;
    int device, thread, line, rate;
    bool told;
    uint64_t operation;
    const char *call, *file; /* file may be null */
    char name[72];
    void *stream, *first, *last; /* events; null of what the host does */
    int64_t begin_ns, end_ns;    /* on the host */
    double bytes, flops;         /* 0: not known */
    int64_t at_ns;               /* on the device, by the host's clock, once it was asked; and how long, -1 where that is not known */
    double ms;
} ignis__traced;

#define IGNIS__TRACED_MOST ((size_t)1 << 18) /* what comes later is counted alone */

static struct {
    uint64_t on; /* read without the lock, as one branch of a launch */
    ignis__traced *items;
    size_t count, capacity, lost;
    int threads;
    int64_t begin_ns;
    struct {
        void *event; /* recorded when the host's clock was at ns */
        int64_t ns;
    } base[IGNIS_MAX_DEVICES];
    struct ignis__named *named[64]; /* names of functions, always kept */
    ignis_profile_row *rows;        /* of the last one that has ended */
    int row_count;
} ignis__profile;

static ignis__mutex ignis__profile_lock = IGNIS__MUTEX_INIT;

static bool ignis__profiling(void) { return ignis__atomic_load(&ignis__profile.on) != 0; }

/*  The names of kernels, by their functions. */
typedef struct ignis__named {
    void *function;
    char name[72];
    struct ignis__named *next;
} ignis__named;

/*  Without memory a function has no name. */
IGNIS__COLD static void ignis__function_name(void *function, const char *name)
{
    ignis__named **list = &ignis__profile.named[((uintptr_t)function >> 4) % 64], *named;
    ignis__mutex_lock(&ignis__profile_lock);
    for (named = *list; named && named->function != function; named = named->next)
        ;
    if (!named && (named = (ignis__named *)ignis__alloc(sizeof *named)) != NULL) {
        named->function = function;
        named->next = *list;
        *list = named;
    }
    if (named)
        snprintf(named->name, sizeof named->name, "%s", name);
    ignis__mutex_unlock(&ignis__profile_lock);
}

/*  The next kernel that this thread launches reads and writes so many bytes; of less than 0, what its operands have. rate: an ignis_dtype. */
static void ignis__cost(double bytes, double flops, int rate)
{
    ignis__thread *thread = &ignis__this_thread;
    if (!ignis__profiling())
        return;
    if (bytes >= 0)
        thread->bytes = bytes;
    thread->told = bytes >= 0;
    thread->flops = flops;
    thread->rate = rate;
}

/*  Puts an item into the profile, if there is one still; its events are those of the profile then. */
IGNIS__COLD static bool ignis__traced_add(const ignis__traced *traced)
{
    ignis__traced *items;
    size_t capacity;
    bool ok = false;
    ignis__mutex_lock(&ignis__profile_lock);
    if (ignis__profiling() && traced->begin_ns >= ignis__profile.begin_ns) {
        capacity = ignis__profile.capacity;
        if (ignis__profile.count == capacity && capacity < IGNIS__TRACED_MOST) {
            capacity = capacity ? 2 * capacity : 1024;
            items = (ignis__traced *)ignis__alloc(capacity * sizeof *items);
            if (items) {
                if (ignis__profile.count)
                    memcpy(items, ignis__profile.items, ignis__profile.count * sizeof *items);
                ignis__free(ignis__profile.items);
                ignis__profile.items = items;
                ignis__profile.capacity = capacity;
            }
        }
        ok = ignis__profile.count < ignis__profile.capacity;
        if (ok)
            ignis__profile.items[ignis__profile.count++] = *traced;
        else
            ignis__profile.lost++;
    }
    ignis__mutex_unlock(&ignis__profile_lock);
    return ok;
}

IGNIS__COLD static void ignis__traced_events_free(ignis__traced *traced)
{
    if (traced->first)
        (void)IGNIS__CUDA(cuEventDestroy_v2, (traced->first));
    if (traced->last)
        (void)IGNIS__CUDA(cuEventDestroy_v2, (traced->last));
    traced->first = traced->last = NULL;
}

/*  Something of this thread begins now. */
IGNIS__COLD static void ignis__traced_begin(ignis__traced *traced, ignis__traced_kind kind, const char *call, const ignis__device *device)
{
    ignis__thread *thread = &ignis__this_thread;
    memset(traced, 0, sizeof *traced);
    if (!thread->number) {
        ignis__mutex_lock(&ignis__profile_lock);
        thread->number = ++ignis__profile.threads;
        ignis__mutex_unlock(&ignis__profile_lock);
    }
    traced->kind = kind;
    traced->device = ignis__device_ordinal(device);
    traced->thread = thread->number;
    traced->call = call;
    traced->file = thread->file;
    traced->line = thread->line;
    traced->begin_ns = ignis__monotonic_ns();
}

/*  Relates the clocks of host and device, which is entered, on a stream that has nothing to do and waits for no other. */
IGNIS__COLD static void ignis__profile_base(ignis__device *device)
{
    int index = ignis__device_ordinal(device);
    void *event = NULL, *stream = NULL;
    ignis__mutex_lock(&ignis__profile_lock);
    if (!ignis__profile.base[index].event && IGNIS__CUDA(cuStreamCreate, (&stream, IGNIS__CU_STREAM_NON_BLOCKING)) == 0) {
        if (IGNIS__CUDA(cuEventCreate, (&event, IGNIS__CU_EVENT_DEFAULT)) == 0) {
            (void)IGNIS__CUDA(cuEventRecord, (event, stream));
            (void)IGNIS__CUDA(cuEventSynchronize, (event));
            ignis__profile.base[index].event = event;
            ignis__profile.base[index].ns = ignis__monotonic_ns();
        }
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (stream));
    }
    ignis__mutex_unlock(&ignis__profile_lock);
}

/*  What is queued on a stream between the two is an item of the profile. Work that a capture records is none: it has no time yet. False: no
    profile, or no events, which is counted. The device is entered. function: of a kernel; name: of anything else. */
IGNIS__COLD static bool ignis__traced_open(ignis__traced *traced, ignis__traced_kind kind, const char *call, ignis__device *device,
                                           void *stream, void *function, const char *name)
{
    ignis__thread *thread = &ignis__this_thread;
    const ignis__named *named;
    bool ok;
    if (ignis__capture_on(device)) {
        thread->bytes = thread->flops = 0;
        return false;
    }
    ignis__profile_base(device);
    ignis__traced_begin(traced, kind, call, device);
    traced->stream = stream;
    traced->bytes = thread->bytes;
    traced->flops = thread->flops;
    traced->rate = thread->rate;
    traced->told = thread->told;
    traced->operation = thread->operation;
    traced->ms = -1;
    thread->bytes = thread->flops = 0;
    thread->told = false;
    ignis__mutex_lock(&ignis__profile_lock);
    for (named = ignis__profile.named[((uintptr_t)function >> 4) % 64]; function && named && named->function != function;
         named = named->next)
        ;
    snprintf(traced->name, sizeof traced->name, "%s", name ? name : named ? named->name : call);
    ignis__mutex_unlock(&ignis__profile_lock);
    ok = IGNIS__CUDA(cuEventCreate, (&traced->first, IGNIS__CU_EVENT_DEFAULT)) == 0 &&
         IGNIS__CUDA(cuEventCreate, (&traced->last, IGNIS__CU_EVENT_DEFAULT)) == 0 &&
         IGNIS__CUDA(cuEventRecord, (traced->first, stream)) == 0;
    if (!ok) {
        ignis__traced_events_free(traced);
        ignis__mutex_lock(&ignis__profile_lock);
        ignis__profile.lost++;
        ignis__mutex_unlock(&ignis__profile_lock);
    }
    return ok;
}

/*  ok: what was between the two has been queued. */
IGNIS__COLD static bool ignis__traced_close(ignis__traced *traced, bool ok)
{
    bool recorded = ok && IGNIS__CUDA(cuEventRecord, (traced->last, traced->stream)) == 0;
    traced->end_ns = ignis__monotonic_ns();
    if (!recorded || !ignis__traced_add(traced))
        ignis__traced_events_free(traced);
    return ok;
}

/*  The same for what copies or fills so many bytes. */
static bool ignis__traced_copy(ignis__traced *traced, const char *call, ignis__device *device, void *stream, const char *name, int64_t size)
{
    if (!ignis__profiling())
        return false;
    ignis__cost((double)size, 0, 0);
    return ignis__traced_open(traced, IGNIS__TRACED_COPY, call, device, stream, NULL, name);
}

/*  What a device has in use from now on. */
IGNIS__COLD static void ignis__traced_memory(int device, int64_t live, int64_t reserved)
{
    ignis__traced traced = IGNIS__ZERO;
    traced.kind = IGNIS__TRACED_MEMORY;
    traced.device = device;
    traced.begin_ns = ignis__monotonic_ns();
    traced.bytes = (double)live;
    traced.flops = (double)reserved;
    (void)ignis__traced_add(&traced);
}

/*  A call on the host that began at begin_ns and ends now. */
IGNIS__COLD static void ignis__traced_call(const char *call, const ignis__device *device, int64_t begin_ns)
{
    ignis__traced traced;
    ignis__traced_begin(&traced, IGNIS__TRACED_CALL, call, device);
    traced.end_ns = traced.begin_ns;
    traced.begin_ns = begin_ns;
    (void)ignis__traced_add(&traced);
}

/* ===============================================================================================================
   >>memory - a caching allocator per device, ordered by streams; pinned host memory.
   =============================================================================================================== */

/*  Driver allocations ("segments") are cut into blocks. A free block belongs to the stream it was freed on: work queued on that
    stream is ordered before its next use there, so it can be handed out again at once. Another stream may take it only after
    waiting for an event of that stream. Blocks are kept in bins by size, each bin sorted, so the first that fits fits best.
    Small requests live in segments of their own, so that they do not nail large ones down. */
#define IGNIS__BLOCK_UNIT 512
#define IGNIS__SMALL_LIMIT ((int64_t)1 << 20)
#define IGNIS__SMALL_SEGMENT ((int64_t)2 << 20)
#define IGNIS__MEDIUM_LIMIT ((int64_t)10 << 20)
#define IGNIS__MEDIUM_SEGMENT ((int64_t)20 << 20)
#define IGNIS__BINS 512
#define IGNIS__NO_HOST_MEMORY (-1) /* beside the driver's error numbers */

/*  What memory was taken for. */
typedef struct ignis__origin {
    const char *call, *inside, *file; /* the last two may be null */
    int line;
    char tag[32];
} ignis__origin;

static void ignis__origin_now(ignis__origin *origin, const char *call)
{
    const ignis__thread *thread = &ignis__this_thread;
    origin->call = call;
    origin->inside = thread->inside ? thread->inside->call : NULL;
    origin->file = thread->file;
    origin->line = thread->line;
}

/*  A row of what is counted. */
typedef struct ignis__counted {
    ignis_memory_row row; /* its peak is that of the peak with the number... */
    uint64_t peaks;       /* ...and the live bytes where there was another one since */
    struct ignis__counted *next;
} ignis__counted;

typedef struct ignis__block {
    ignis__address address;
    int64_t size;
    ignis__origin origin;           /* of its last use; call is null when it is over */
    ignis__counted *counted;        /* null: nobody counts */
    struct ignis__cache_part *part; /* stream and size class it belongs to */
    bool used;
    struct ignis__block *below, *above;    /* neighbours in the segment */
    struct ignis__block *smaller, *larger; /* neighbours in the bin */
    struct ignis__block *next_segment;     /* of a segment's first block, which lives as long as the segment */
} ignis__block;

typedef struct ignis__cache_part {
    void *stream;  /* or the capture whose memory this is */
    bool captured; /* its blocks are used by a graph: no other stream takes them, and their segments stay */
    bool is_small;
    struct ignis__cache_part *next;
    ignis__block *zeroed;              /* of what ignis__memory_take_zeroed gives, linked by `larger`: in no bin, as if used */
    uint64_t filled[IGNIS__BINS / 64]; /* a bit for each bin that is not empty */
    ignis__block *bins[IGNIS__BINS];
} ignis__cache_part;

/*  Pinned host memory: of the caller, or a piece through which Ignis copies. */
typedef struct ignis__pinned {
    void *memory;
    int64_t size;
    struct ignis__pinned *next;
} ignis__pinned;

typedef struct ignis__cache {
    ignis__pinned *lent, *spare;   /* by ignis_host_alloc; pieces that nobody uses now */
    ignis__mutex lock;             /* which nobody holds during a call that may wait for the device: */
    ignis__mutex asking, trimming; /* taken before lock by who asks the driver for memory, and by who gives it back */
    ignis__cache_part *parts;
    ignis__block *segments;     /* their first blocks */
    ignis__block *spare_blocks; /* block structs for reuse, linked by `above` */
    ignis_memory_info info;
    ignis__counted *counted; /* with ignis_desc.trace_memory */
    uint64_t peaks;          /* of live_bytes so far */
} ignis__cache;

static ignis__cache ignis__caches[IGNIS_MAX_DEVICES];
static bool ignis__memory_bypass, ignis__memory_traced;
static uint64_t ignis__pinned_bytes;

/*  Up to 63 units each size has its bin; above, a power of two has eight. */
static int ignis__bin_of(int64_t size)
{
    uint64_t units = (uint64_t)size / IGNIS__BLOCK_UNIT;
    int log;
    if (units < 64)
        return (int)units;
    log = ignis__log2(units);
    return 64 + (log - 6) * 8 + (int)(units >> (log - 3) & 7);
}

static void ignis__bin_insert(ignis__block *block)
{
    int bin = ignis__bin_of(block->size);
    ignis__block **head = &block->part->bins[bin], *after = *head, *before = NULL;
    while (after && after->size < block->size) {
        before = after;
        after = after->larger;
    }
    block->smaller = before;
    block->larger = after;
    if (before)
        before->larger = block;
    else
        *head = block;
    if (after)
        after->smaller = block;
    block->part->filled[bin / 64] |= (uint64_t)1 << bin % 64;
}

static void ignis__bin_remove(ignis__block *block)
{
    int bin = ignis__bin_of(block->size);
    ignis__cache_part *part = block->part;
    if (block->smaller)
        block->smaller->larger = block->larger;
    else
        part->bins[bin] = block->larger;
    if (block->larger)
        block->larger->smaller = block->smaller;
    if (!part->bins[bin])
        part->filled[bin / 64] &= ~((uint64_t)1 << bin % 64);
    block->smaller = block->larger = NULL;
}

static ignis__block *ignis__bin_best(const ignis__cache_part *part, int64_t size)
{
    int bin = ignis__bin_of(size), word = (bin + 1) / 64;
    ignis__block *block = part->bins[bin];
    uint64_t bits;
    while (block && block->size < size)
        block = block->larger;
    if (block)
        return block;
    bits = word < IGNIS__BINS / 64 ? part->filled[word] & ~(uint64_t)0 << (bin + 1) % 64 : 0;
    while (!bits && ++word < IGNIS__BINS / 64)
        bits = part->filled[word];
    return bits ? part->bins[word * 64 + ignis__lowest_bit(bits)] : NULL;
}

/*  The stream's part for a size class, made when it is new; null: out of host memory. */
static ignis__cache_part *ignis__cache_part_of(ignis__cache *cache, void *stream, bool captured, bool is_small)
{
    ignis__cache_part *part = cache->parts;
    while (part && !(part->stream == stream && part->is_small == is_small))
        part = part->next;
    if (!part && (part = (ignis__cache_part *)ignis__alloc(sizeof *part)) != NULL) {
        part->stream = stream;
        part->captured = captured;
        part->is_small = is_small;
        part->next = cache->parts;
        cache->parts = part;
    }
    return part;
}

static ignis__block *ignis__block_take(ignis__cache *cache, ignis__cache_part *part, ignis__address address, int64_t size)
{
    ignis__block *block = cache->spare_blocks;
    if (block) {
        cache->spare_blocks = block->above;
        memset(block, 0, sizeof *block);
    } else {
        block = (ignis__block *)ignis__alloc(sizeof *block);
        if (!block)
            return NULL;
    }
    block->part = part;
    block->address = address;
    block->size = size;
    return block;
}

static void ignis__block_give(ignis__cache *cache, ignis__block *block)
{
    block->above = cache->spare_blocks;
    cache->spare_blocks = block;
}

/*  Joins `block` with the one above it, which goes. Both are free and in no bin. */
static void ignis__block_join(ignis__cache *cache, ignis__block *block)
{
    ignis__block *above = block->above;
    block->size += above->size;
    block->above = above->above;
    if (block->above)
        block->above->below = block;
    ignis__block_give(cache, above);
}

/*  Puts a block that became free into its bin, joined with free neighbours of the same stream. */
static void ignis__block_unuse(ignis__cache *cache, ignis__block *block)
{
    block->used = false;
    if (block->above && !block->above->used && block->above->part == block->part) {
        ignis__bin_remove(block->above);
        ignis__block_join(cache, block);
    }
    if (block->below && !block->below->used && block->below->part == block->part) {
        block = block->below;
        ignis__bin_remove(block);
        ignis__block_join(cache, block);
    }
    ignis__bin_insert(block);
}

/*  Takes a free block out of its bin for `size` bytes, and gives the rest back. Without host memory for the rest it keeps all. */
static void ignis__block_use(ignis__cache *cache, ignis__block *block, int64_t size)
{
    ignis__bin_remove(block);
    block->used = true;
    if (block->size > size) {
        ignis__block *rest = ignis__block_take(cache, block->part, block->address + (uint64_t)size, block->size - size);
        if (rest) {
            rest->below = block;
            rest->above = block->above;
            if (rest->above)
                rest->above->below = rest;
            block->above = rest;
            block->size = size;
            ignis__bin_insert(rest);
        }
    }
}

/*  The row of an origin in a list, added if it is new; null: out of host memory. */
IGNIS__COLD static ignis__counted *ignis__counted_find(ignis__counted **list, const ignis__origin *origin)
{
    const char *inside = origin->inside ? origin->inside : "", *file = origin->file ? origin->file : "";
    ignis__counted *counted = *list;
    while (counted &&
           !(counted->row.call == origin->call && counted->row.line == origin->line && strcmp(counted->row.inside, inside) == 0 &&
             strcmp(counted->row.tag, origin->tag) == 0 && strcmp(counted->row.file, file) == 0))
        counted = counted->next;
    if (counted || (counted = (ignis__counted *)ignis__alloc(sizeof *counted)) == NULL)
        return counted;
    memcpy(counted->row.tag, origin->tag, sizeof counted->row.tag);
    counted->row.call = origin->call;
    counted->row.inside = inside;
    counted->row.file = file;
    counted->row.line = origin->line;
    counted->next = *list;
    return *list = counted;
}

/*  What a row had at the peak is what it has, unless that was written down when it changed later. */
static int64_t ignis__counted_peak(const ignis__cache *cache, const ignis__counted *counted)
{
    return counted->peaks == cache->peaks ? counted->row.peak_bytes : counted->row.live_bytes;
}

IGNIS__COLD static void ignis__counted_add(ignis__cache *cache, ignis__counted *counted, int64_t bytes)
{
    counted->row.peak_bytes = ignis__counted_peak(cache, counted);
    counted->peaks = cache->peaks;
    counted->row.live_bytes += bytes;
    counted->row.live_blocks += bytes > 0 ? 1 : -1;
}

static void ignis__counted_free(ignis__counted **list)
{
    while (*list) {
        ignis__counted *next = (*list)->next;
        ignis__free(*list);
        *list = next;
    }
}

static void ignis__memory_count(ignis__cache *cache, int64_t live, int64_t reserved)
{
    ignis_memory_info *info = &cache->info;
    info->live_bytes += live;
    info->live_blocks += (live > 0) - (live < 0);
    info->reserved_bytes += reserved;
    info->segments += (reserved > 0) - (reserved < 0);
    if (info->live_bytes > info->live_peak) {
        info->live_peak = info->live_bytes;
        cache->peaks++;
    }
    if (info->reserved_bytes > info->reserved_peak)
        info->reserved_peak = info->reserved_bytes;
    if (ignis__profiling())
        ignis__traced_memory((int)(cache - ignis__caches), info->live_bytes, info->reserved_bytes);
}

/*  A block begins to be used, or ends. */
static void ignis__block_begin(ignis__cache *cache, ignis__block *block, const ignis__origin *origin)
{
    block->origin = *origin;
    block->counted = ignis__memory_traced ? ignis__counted_find(&cache->counted, origin) : NULL;
    if (block->counted)
        ignis__counted_add(cache, block->counted, block->size);
    ignis__memory_count(cache, block->size, 0);
}

static void ignis__block_end(ignis__cache *cache, ignis__block *block)
{
    if (block->counted)
        ignis__counted_add(cache, block->counted, -block->size);
    ignis__memory_count(cache, -block->size, 0);
    block->counted = NULL;
    block->origin.call = NULL;
}

/*  A new segment as one free block in its bin, at least `size` bytes; null: no memory. The lock of the cache is given up for the driver, which
    may wait for the device. Only who asks it too waits for this, and may then find that there is memory already. The part is found anew each
    time, as another thread may have forgotten its stream; null: out of host memory. */
IGNIS__COLD static ignis__block *ignis__segment_make(ignis__cache *cache, ignis__cache_part **part, int64_t size, int64_t wanted,
                                                     int *error)
{
    void *stream = (*part)->stream;
    bool captured = (*part)->captured, is_small = (*part)->is_small;
    ignis__address address = 0;
    ignis__block *block = NULL;
    int64_t room;
    ignis__mutex_unlock(&cache->lock);
    ignis__mutex_lock(&cache->asking);
    ignis__mutex_lock(&cache->lock);
    *part = ignis__cache_part_of(cache, stream, captured, is_small);
    if (*part && !ignis__memory_bypass)
        block = ignis__bin_best(*part, size);
    room = cache->info.limit - cache->info.reserved_bytes;
    if (cache->info.limit && wanted > room)
        wanted = room / IGNIS__BLOCK_UNIT * IGNIS__BLOCK_UNIT;
    if (*part && !block && wanted >= size) {
        ignis__mutex_unlock(&cache->lock);
        *error = IGNIS__CUDA(cuMemAlloc_v2, (&address, (size_t)wanted));
        ignis__mutex_lock(&cache->lock);
        *part = ignis__cache_part_of(cache, stream, captured, is_small);
        block = *part && *error == 0 ? ignis__block_take(cache, *part, address, wanted) : NULL;
        if (block) {
            block->next_segment = cache->segments;
            cache->segments = block;
            cache->info.driver_allocations++;
            ignis__memory_count(cache, 0, wanted);
            ignis__bin_insert(block);
        } else if (*error == 0) {
            (void)IGNIS__CUDA(cuMemFree_v2, (address));
            *error = IGNIS__NO_HOST_MEMORY;
        }
    }
    ignis__mutex_unlock(&cache->asking);
    return block;
}

static int64_t ignis__segment_size(int64_t size)
{
    int64_t step = IGNIS__SMALL_SEGMENT;
    if (size <= IGNIS__SMALL_LIMIT)
        return IGNIS__SMALL_SEGMENT;
    if (size < IGNIS__MEDIUM_LIMIT)
        return IGNIS__MEDIUM_SEGMENT;
    return size > INT64_MAX - step ? size : (size + step - 1) / step * step;
}

/*  Makes what a part has zeroed as free as any other block: of a graph that never ran, the words were not even zeroed. */
static void ignis__zeroed_unuse(ignis__cache *cache, ignis__cache_part *part)
{
    while (part->zeroed) {
        ignis__block *block = part->zeroed;
        part->zeroed = block->larger;
        block->larger = NULL;
        ignis__block_unuse(cache, block);
    }
}

/*  Takes every segment that is free from end to end out of the cache, whose lock is held. A list of them, by next_segment. */
IGNIS__COLD static ignis__block *ignis__segments_take(ignis__cache *cache)
{
    ignis__block **link = &cache->segments, *block, *taken = NULL;
    ignis__cache_part *part;
    for (part = cache->parts; part; part = part->next)
        if (!part->captured)
            ignis__zeroed_unuse(cache, part);
    while (*link) {
        ignis__block *first = *link;
        for (block = first; block && !block->used && !block->part->captured; block = block->above)
            ;
        if (block) {
            link = &first->next_segment;
            continue;
        }
        for (block = first; block; block = block->above)
            ignis__bin_remove(block);
        while (first->above)
            ignis__block_join(cache, first);
        *link = first->next_segment;
        first->next_segment = taken;
        taken = first;
    }
    return taken;
}

/*  Gives back every segment that is free from end to end. Waits for the device, so the streams of blocks do not matter any more. What runs there may
    wait for what another thread is about to launch: only who trims too waits for this. Returns the bytes, -1 after a failure. */
IGNIS__COLD static int64_t ignis__cache_trim(const char *call, ignis__device *device, ignis__cache *cache)
{
    ignis__block *taken, *first;
    int64_t freed = 0;
    bool ok = true;
    if (ignis__atomic_load(&device->captures))
        return 0;
    ignis__mutex_lock(&cache->trimming);
    ignis__mutex_lock(&cache->lock);
    taken = ignis__segments_take(cache);
    ignis__mutex_unlock(&cache->lock);
    if (taken)
        ok = ignis__device_wait(call, device);
    while ((first = taken) != NULL) {
        taken = first->next_segment;
        ok = ok && !IGNIS__CUDA_FAILED(call, device, cuMemFree_v2, (first->address));
        ignis__mutex_lock(&cache->lock);
        if (ok) {
            cache->info.driver_frees++;
            freed += first->size;
            ignis__memory_count(cache, 0, -first->size);
            ignis__block_give(cache, first);
        } else {
            first->next_segment = cache->segments;
            cache->segments = first;
            ignis__bin_insert(first);
        }
        ignis__mutex_unlock(&cache->lock);
    }
    ignis__mutex_unlock(&cache->trimming);
    return ok ? freed : -1;
}

/*  The best free block of another stream, after making `part`'s stream wait for what that stream still does with it. */
IGNIS__COLD static ignis__block *ignis__block_steal(const char *call, ignis__device *device, ignis__cache *cache, ignis__cache_part *part,
                                                    int64_t size)
{
    ignis__cache_part *other;
    ignis__block *best = NULL;
    for (other = cache->parts; other; other = other->next) {
        ignis__block *block = other == part || other->captured ? NULL : ignis__bin_best(other, size);
        if (block && (!best || block->size < best->size))
            best = block;
    }
    if (!best || !ignis__stream_order(call, device, best->part->stream, device, part->stream))
        return NULL;
    ignis__block_use(cache, best, size); /* cut first, so that the rest stays with its stream */
    best->part = part;
    best->used = false;
    ignis__bin_insert(best);
    return best;
}

/*  A free block in its bin, at least `size` bytes; null: no memory. The lock of the cache is given up while it waits for the device. */
static ignis__block *ignis__memory_find(const char *call, ignis__device *device, ignis__cache *cache, ignis__cache_part *part, int64_t size,
                                        int *error)
{
    ignis__block *block = ignis__bin_best(part, size);
    void *stream = part->stream;
    bool is_small = part->is_small, trimmed;
    if (block) {
        cache->info.cache_hits++;
        return block;
    }
    block = ignis__segment_make(cache, &part, size, ignis__segment_size(size), error);
    if (!block && part)
        block = ignis__segment_make(cache, &part, size, size, error);
    if (block || !part || part->captured || ignis__capturing()) /* the rest needs events or waits */
        return block;
    block = ignis__block_steal(call, device, cache, part, size);
    if (block)
        return block;
    ignis__mutex_unlock(&cache->lock);
    trimmed = ignis__cache_trim(call, device, cache) >= 0;
    ignis__mutex_lock(&cache->lock);
    part = trimmed ? ignis__cache_part_of(cache, stream, false, is_small) : NULL;
    block = part ? ignis__bin_best(part, size) : NULL;
    return block || !part ? block : ignis__segment_make(cache, &part, size, size, error);
}

IGNIS__COLD static int64_t ignis__cache_largest_free(const ignis__cache *cache)
{
    const ignis__cache_part *part;
    int64_t largest = 0;
    int word;
    for (part = cache->parts; part; part = part->next) {
        for (word = IGNIS__BINS / 64 - 1; word >= 0; word--) {
            const ignis__block *block;
            if (!part->filled[word])
                continue;
            for (block = part->bins[word * 64 + ignis__log2(part->filled[word])]; block; block = block->larger)
                if (block->size > largest)
                    largest = block->size;
            break;
        }
    }
    return largest;
}

/*  "1.50 GiB", "20.0 MiB", "512 bytes". */
IGNIS__COLD static ignis__label ignis__size_write(int64_t bytes)
{
    ignis__label out;
    ignis__text text;
    ignis__text_begin(&text, out.text, sizeof out.text);
    if (bytes >= (int64_t)1 << 30)
        ignis__text_add(&text, "%.2f GiB", (double)bytes / (double)(1 << 30));
    else if (bytes >= 1 << 20)
        ignis__text_add(&text, "%.1f MiB", (double)bytes / (1 << 20));
    else
        ignis__text_add(&text, "%lld bytes", (long long)bytes);
    return out;
}

IGNIS__COLD static ignis_status ignis__fail_device_memory(const char *call, ignis__device *device, const ignis__cache *cache, int64_t size,
                                                          int error)
{
    size_t available = 0, total = 0;
    const ignis_memory_info *info = &cache->info;
    char limit[sizeof(ignis__label) + 16] = "no limit is set";
    if (error != 0 && error != IGNIS__CU_OUT_OF_MEMORY)
        return ignis__cuda_fail(call, device, "cuMemAlloc_v2", error);
    (void)IGNIS__CUDA(cuMemGetInfo_v2, (&available, &total)); /* for the sentence only */
    if (info->limit)
        snprintf(limit, sizeof limit, "the limit is %s", ignis__size_write(info->limit).text);
    return ignis__fail_because(
        IGNIS_DIAG_DEVICE_MEMORY, call, error, error ? ignis__cuda_name(error) : NULL, NULL,
        "out of memory on device %d: %s were asked for; arrays use %s of %s reserved (largest free block %s), %s, %s beside that are VMM "
        "memory, and the device has %s of %s free",
        ignis__device_ordinal(device), ignis__size_write(size).text, ignis__size_write(info->live_bytes).text,
        ignis__size_write(info->reserved_bytes).text, ignis__size_write(ignis__cache_largest_free(cache)).text, limit,
        ignis__size_write(info->vmm_bytes).text, ignis__size_write((int64_t)available).text, ignis__size_write((int64_t)total).text);
}

/*  Memory of at least `size` bytes for work on `stream`; null on failure. The device is entered. */
static ignis__block *ignis__memory_take_for(const char *call, const ignis__origin *origin, ignis__device *device, void *stream,
                                            int64_t size)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__cache_part *part;
    ignis__block *block = NULL;
    int64_t rounded = size > INT64_MAX - IGNIS__BLOCK_UNIT ? size : (size + IGNIS__BLOCK_UNIT - 1) / IGNIS__BLOCK_UNIT * IGNIS__BLOCK_UNIT;
    ignis__capture *capture = ignis__capture_on(device);
    int error = 0;

    ignis__mutex_lock(&cache->lock);
    cache->info.allocations++;
    part = ignis__cache_part_of(cache, capture ? (void *)capture : stream, capture != NULL, rounded <= IGNIS__SMALL_LIMIT);
    if (!part)
        error = IGNIS__NO_HOST_MEMORY;
    if (part && ignis__memory_bypass) /* exact sizes, so that a memory checker sees every byte beyond them */
        block = ignis__segment_make(cache, &part, size, size, &error);
    else if (part)
        block = ignis__memory_find(call, device, cache, part, rounded, &error);
    if (block) {
        ignis__block_use(cache, block, ignis__memory_bypass ? block->size : rounded);
        ignis__block_begin(cache, block, origin);
    } else if (error == IGNIS__NO_HOST_MEMORY) {
        ignis__fail_host_memory(call, part ? sizeof *block : sizeof *part);
    } else if (!ignis__devices_lost()) {
        ignis__fail_device_memory(call, device, cache, size, error);
    }
    ignis__mutex_unlock(&cache->lock);
    return block;
}

static ignis__block *ignis__memory_take(const char *call, ignis__device *device, void *stream, int64_t size)
{
    ignis__origin origin;
    ignis__origin_now(&origin, call);
    memset(origin.tag, 0, sizeof origin.tag);
    return ignis__memory_take_for(call, &origin, device, stream, size);
}

/*  Gives memory back in the order of its stream. The device is entered. */
static void ignis__memory_give(const char *call, ignis__device *device, ignis__block *block)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__mutex_lock(&cache->lock);
    ignis__block_end(cache, block);
    ignis__block_unuse(cache, block);
    ignis__mutex_unlock(&cache->lock);
    if (ignis__memory_bypass && !ignis__capturing())
        (void)ignis__cache_trim(call, device, cache);
}

/*  A word of 8 bytes that is 0 when the stream gets to it. Null on failure. The device is entered.
    Kernels leave it 0, so one that was given back needs no zeroing for its next use on the stream. In a graph, the first use zeroes it. */
IGNIS__MAYBE_UNUSED static ignis__block *ignis__memory_take_zeroed(const char *call, ignis__device *device, void *stream)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__capture *capture = ignis__capture_on(device);
    ignis__cache_part *part;
    ignis__origin origin = IGNIS__ZERO;
    ignis__block *block;
    ignis__mutex_lock(&cache->lock);
    part = ignis__cache_part_of(cache, capture ? (void *)capture : stream, capture != NULL, true);
    block = part ? part->zeroed : NULL;
    if (block) {
        part->zeroed = block->larger;
        block->larger = NULL;
        cache->info.allocations++;
        cache->info.cache_hits++;
        ignis__origin_now(&origin, call);
        ignis__block_begin(cache, block, &origin);
    }
    ignis__mutex_unlock(&cache->lock);
    if (block || (block = ignis__memory_take(call, device, stream, 8)) == NULL)
        return block;
    if (!IGNIS__CUDA_FAILED(call, device, cuMemsetD8Async, (block->address, 0, 8, stream)))
        return block;
    ignis__memory_give(call, device, block);
    return NULL;
}

/*  Gives the word back after its kernels were queued. One that may not be 0 is for ignis__memory_give. */
IGNIS__MAYBE_UNUSED static void ignis__memory_give_zeroed(const char *call, ignis__device *device, ignis__block *block)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    if (ignis__memory_bypass) {
        ignis__memory_give(call, device, block);
        return;
    }
    ignis__mutex_lock(&cache->lock);
    ignis__block_end(cache, block);
    block->larger = block->part->zeroed;
    block->part->zeroed = block;
    ignis__mutex_unlock(&cache->lock);
}

static void ignis__cache_part_merge(ignis__cache *cache, ignis__cache_part *from, ignis__cache_part *into)
{
    ignis__block *first, *block;
    ignis__zeroed_unuse(cache, from);
    for (first = cache->segments; first; first = first->next_segment) {
        for (block = first; block; block = block->above) {
            if (block->part != from)
                continue;
            if (!block->used)
                ignis__bin_remove(block);
            block->part = into;
            if (!block->used)
                ignis__bin_insert(block);
        }
    }
}

/*  Hands a stream's blocks, free and used, to Ignis' own stream. The stream is idle. */
IGNIS__COLD static void ignis__memory_forget_stream(ignis__device *device, void *stream)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__cache_part **link = &cache->parts;
    ignis__mutex_lock(&cache->trimming); /* what it has taken out of the cache may come back to its part */
    ignis__mutex_lock(&cache->lock);
    while (*link) {
        ignis__cache_part *part = *link, *own = cache->parts;
        while (own && !(own->stream == device->stream && !own->captured && own->is_small == part->is_small))
            own = own->next;
        if (part->stream == stream && own) {
            ignis__cache_part_merge(cache, part, own);
            *link = part->next;
            ignis__free(part);
            continue;
        }
        if (part->stream == stream) {
            ignis__zeroed_unuse(cache, part);
            part->stream = device->stream;
            part->captured = false;
        }
        link = &part->next;
    }
    ignis__mutex_unlock(&cache->lock);
    ignis__mutex_unlock(&cache->trimming);
}

IGNIS__COLD static void ignis__memory_setup(int64_t limit, bool bypass, bool traced)
{
    int i;
    ignis__memory_bypass = bypass;
    ignis__memory_traced = traced;
    ignis__pinned_bytes = 0;
    for (i = 0; i < ignis__device_total; i++) {
        memset(&ignis__caches[i], 0, sizeof ignis__caches[i]);
        ignis__mutex_init(&ignis__caches[i].lock);
        ignis__mutex_init(&ignis__caches[i].asking);
        ignis__mutex_init(&ignis__caches[i].trimming);
        ignis__caches[i].info.limit = limit;
    }
}

/*  Frees every segment and all host memory of a device's cache. Its context is current. */
IGNIS__COLD static void ignis__memory_close(const char *call, ignis__device *device)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    bool lost = ignis__devices_lost(); /* then each call would fail with the error that is known already */
    while (cache->segments) {
        ignis__block *first = cache->segments, *block = first;
        cache->segments = first->next_segment;
        if (lost)
            (void)IGNIS__CUDA(cuMemFree_v2, (first->address));
        else
            (void)IGNIS__CUDA_FAILED(call, device, cuMemFree_v2, (first->address));
        while (block) {
            ignis__block *above = block->above;
            ignis__block_give(cache, block);
            block = above;
        }
    }
    while (cache->spare_blocks) {
        ignis__block *block = cache->spare_blocks;
        cache->spare_blocks = block->above;
        ignis__free(block);
    }
    while (cache->lent || cache->spare) {
        ignis__pinned **list = cache->lent ? &cache->lent : &cache->spare, *pinned = *list;
        *list = pinned->next;
        (void)IGNIS__CUDA(cuMemFreeHost, (pinned->memory)); /* fails with what is known already, if at all */
        ignis__free(pinned);
    }
    while (cache->parts) {
        ignis__cache_part *part = cache->parts;
        cache->parts = part->next;
        ignis__free(part);
    }
    ignis__counted_free(&cache->counted);
}

/*  What the driver knows of an address: the type of memory, 0 where it knows none (pageable host memory), and its device. */
static bool ignis__address_query(const char *call, ignis__device *device, const void *ptr, int *type, int *ordinal)
{
    int attributes[2] = {IGNIS__CU_POINTER_MEMORY_TYPE, IGNIS__CU_POINTER_ORDINAL};
    void *values[2] = {type, ordinal};
    *type = *ordinal = 0;
    return !IGNIS__CUDA_FAILED(call, device, cuPointerGetAttributes, (2, attributes, values, (ignis__address)(uintptr_t)ptr));
}

/*  The allocation, or the reserved range of addresses, that an address lies in; a size of 0 where the driver does not tell. */
static bool ignis__address_range(const char *call, ignis__device *device, const void *ptr, ignis__address *start, size_t *size)
{
    int attributes[2] = {IGNIS__CU_POINTER_RANGE_START, IGNIS__CU_POINTER_RANGE_SIZE};
    void *values[2] = {start, size};
    *start = 0;
    *size = 0;
    return !IGNIS__CUDA_FAILED(call, device, cuPointerGetAttributes, (2, attributes, values, (ignis__address)(uintptr_t)ptr));
}

/*  Pinned host memory; the device is entered. Null on failure. */
static void *ignis__pinned_take(const char *call, ignis__device *device, int64_t size)
{
    void *memory = NULL;
    int error = IGNIS__CUDA(cuMemHostAlloc, (&memory, (size_t)size, 0));
    if (error == 0) {
        ignis__atomic_add(&ignis__pinned_bytes, (uint64_t)size);
        return memory;
    }
    if (error == IGNIS__CU_OUT_OF_MEMORY)
        ignis__fail_because(IGNIS_DIAG_PINNED_MEMORY, call, error, ignis__cuda_name(error), NULL,
                            "out of pinned host memory: %lld bytes were asked for, %lld are pinned already", (long long)size,
                            (long long)ignis__atomic_load(&ignis__pinned_bytes));
    else
        ignis__cuda_fail(call, device, "cuMemHostAlloc", error);
    return NULL;
}

/*  Waits for the device, as copies may still use the memory, and frees that (null: nothing), also when the device cannot be entered; after a fault
    there is nothing to wait for, and the memory ends with the process. */
static ignis_status ignis__pinned_end(const char *call, ignis__device *device, void *memory)
{
    ignis__binding binding;
    bool entered, ok;
    if (ignis__devices_lost())
        return IGNIS_OK;
    entered = ignis__device_enter_to_give(call, device, &binding);
    ok = entered && ignis__device_wait(call, device);
    if (memory && IGNIS__CUDA_FAILED(call, device, cuMemFreeHost, (memory)))
        ok = false;
    if (entered)
        ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

static ignis_status ignis__pinned_give(const char *call, ignis__device *device, void *memory, int64_t size)
{
    ignis__atomic_add(&ignis__pinned_bytes, (uint64_t)-size);
    return ignis__pinned_end(call, device, memory);
}

/*  New pinned memory with what Ignis knows of it; null on failure. The device is entered. */
IGNIS__COLD static ignis__pinned *ignis__pinned_make(const char *call, ignis__device *device, int64_t size)
{
    ignis__pinned *pinned = (ignis__pinned *)ignis__alloc_for(call, sizeof *pinned);
    if (!pinned)
        return NULL;
    pinned->size = size;
    pinned->memory = ignis__pinned_take(call, device, size);
    if (pinned->memory)
        return pinned;
    ignis__free(pinned);
    return NULL;
}

static void ignis__pinned_keep(ignis__device *device, ignis__pinned **list, ignis__pinned *pinned)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__mutex_lock(&cache->lock);
    pinned->next = *list;
    *list = pinned;
    ignis__mutex_unlock(&cache->lock);
}

/*  A piece of pinned memory that Ignis uses for a while, with room for so many bytes: the smallest spare one that has, or a new one.
    ignis__piece_give gives it back, or ignis__piece_keep when nothing uses it any more. */
#define IGNIS__PIECE ((int64_t)1 << 20) /* to copy through */
static ignis__pinned *ignis__piece_take(const char *call, ignis__device *device, int64_t size)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__pinned *piece = NULL, **link, **best = NULL;
    int64_t room = 4096; /* few sizes, so that pieces fit again */
    ignis__mutex_lock(&cache->lock);
    for (link = &cache->spare; *link; link = &(*link)->next)
        if ((*link)->size >= size && (!best || (*link)->size < (*best)->size))
            best = link;
    if (best) {
        piece = *best;
        *best = piece->next;
    }
    ignis__mutex_unlock(&cache->lock);
    while (room < size && room < IGNIS__PIECE)
        room *= 2;
    return piece ? piece : ignis__pinned_make(call, device, room < size ? size : room);
}

/*  Gives a piece back that nothing uses any more. */
static void ignis__piece_keep(ignis__device *device, ignis__pinned *piece)
{
    ignis__pinned_keep(device, &ignis__caches[device - ignis__devices].spare, piece);
}

/*  Waits for the device, then keeps a piece, or frees it where it is large. But CUDA waits for all devices to free it, one of which may wait for what
    this thread has yet to begin, if both are ranks of this process: where there are others, it is kept. */
IGNIS__MAYBE_UNUSED static ignis_status ignis__piece_give(const char *call, ignis__device *device, ignis__pinned *piece)
{
    ignis_status status;
    int opened = 0, i;
    for (i = 0; i < ignis__device_total; i++)
        opened += ignis__atomic_load(&ignis__devices[i].opened) != 0;
    if (piece->size > IGNIS__PIECE && opened <= 1) {
        status = ignis__pinned_give(call, device, piece->memory, piece->size);
        ignis__free(piece);
        return status;
    }
    status = ignis__pinned_end(call, device, NULL);
    ignis__piece_keep(device, piece);
    return status;
}

/*  Frees the large ones of a device's spare pieces. */
IGNIS__COLD static bool ignis__pieces_trim(const char *call, ignis__device *device, ignis__cache *cache)
{
    ignis__pinned *taken = NULL, *piece, **link;
    bool ok = true;
    ignis__mutex_lock(&cache->lock);
    for (link = &cache->spare; *link;)
        if ((*link)->size > IGNIS__PIECE) {
            piece = *link;
            *link = piece->next;
            piece->next = taken;
            taken = piece;
        } else {
            link = &(*link)->next;
        }
    ignis__mutex_unlock(&cache->lock);
    while ((piece = taken) != NULL) {
        taken = piece->next;
        ok = ignis__pinned_give(call, device, piece->memory, piece->size) == IGNIS_OK && ok;
        ignis__free(piece);
    }
    return ok;
}

IGNIS__COLD IGNIS_API void *ignis_host_alloc(int64_t size)
{
    static const char call[] = "ignis_host_alloc";
    ignis__pinned *pinned;
    ignis__device *device;
    ignis__binding binding;
    if (!ignis__enter(call))
        return NULL;
    if (size < 1) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld, below 1", (long long)size);
        return NULL;
    }
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return NULL;
    pinned = ignis__pinned_make(call, device, size);
    ignis__device_leave(&binding);
    if (!pinned)
        return NULL;
    ignis__pinned_keep(device, &ignis__caches[device - ignis__devices].lent, pinned);
    return pinned->memory;
}

IGNIS__COLD IGNIS_API ignis_status ignis_host_free(void *memory)
{
    static const char call[] = "ignis_host_free";
    ignis__pinned *pinned = NULL, **link;
    ignis_status status;
    int i;
    if (!memory)
        return IGNIS_OK;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (ignis__capture_refuses(call))
        return ignis__failed();
    for (i = 0; !pinned && i < ignis__device_total; i++) {
        ignis__cache *cache = &ignis__caches[i];
        ignis__mutex_lock(&cache->lock);
        for (link = &cache->lent; *link && (*link)->memory != memory; link = &(*link)->next)
            ;
        pinned = *link;
        if (pinned)
            *link = pinned->next;
        ignis__mutex_unlock(&cache->lock);
    }
    if (!pinned)
        return ignis__fail(IGNIS_DIAG_HOST_UNKNOWN, call, "%p is no address of ignis_host_alloc, or was freed already", memory);
    status = ignis__pinned_give(call, &ignis__devices[i - 1], memory, pinned->size);
    ignis__free(pinned);
    return status;
}

IGNIS__COLD static void ignis__pinned_leaked(const char *call)
{
    const ignis__pinned *pinned;
    int i;
    for (i = 0; i < ignis__device_total; i++)
        for (pinned = ignis__caches[i].lent; pinned; pinned = pinned->next)
            ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "pinned host memory %p of ignis_host_alloc, %lld bytes", pinned->memory,
                               (long long)pinned->size);
}

IGNIS__COLD IGNIS_API ignis_status ignis_memory_query(int ordinal, ignis_memory_info *info)
{
    static const char call[] = "ignis_memory_query";
    ignis__device *device;
    ignis__cache *cache;
    ignis__binding binding;
    size_t available = 0, total = 0;
    bool ok;
    if (!ignis__enter(call) || !ignis__given(call, "info", info))
        return ignis__failed();
    device = ignis__device_get(call, ordinal);
    if (!device || !ignis__device_enter(call, device, &binding))
        return ignis__failed();
    ok = !IGNIS__CUDA_FAILED(call, device, cuMemGetInfo_v2, (&available, &total));
    ignis__device_leave(&binding);
    cache = &ignis__caches[ordinal];
    ignis__mutex_lock(&cache->lock);
    *info = cache->info;
    info->largest_free = ignis__cache_largest_free(cache);
    ignis__mutex_unlock(&cache->lock);
    info->device_free = (int64_t)available;
    info->device_total = (int64_t)total;
    info->pinned_bytes = (int64_t)ignis__atomic_load(&ignis__pinned_bytes);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD static int ignis__row_order(const void *a, const void *b)
{
    const ignis_memory_row *x = (const ignis_memory_row *)a, *y = (const ignis_memory_row *)b;
    int order = (x->peak_bytes < y->peak_bytes) - (x->peak_bytes > y->peak_bytes);
    return order ? order : (x->live_bytes < y->live_bytes) - (x->live_bytes > y->live_bytes);
}

/*  All rows of a device in a block of memory, in order; null, and reported, without memory. */
IGNIS__COLD static ignis_memory_row *ignis__rows_make(const char *call, ignis__cache *cache, int *count)
{
    ignis__counted *list = NULL, **from = ignis__memory_traced ? &cache->counted : &list, *counted;
    ignis__block *first, *block;
    ignis_memory_row *rows = NULL;
    bool ok = true;
    *count = 0;
    ignis__mutex_lock(&cache->lock);
    for (first = ignis__memory_traced ? NULL : cache->segments; first; first = first->next_segment) {
        for (block = first; ok && block; block = block->above) {
            if (!block->used || !block->origin.call)
                continue;
            counted = ignis__counted_find(&list, &block->origin);
            ok = counted != NULL;
            if (ok) {
                counted->row.live_bytes += block->size;
                counted->row.live_blocks++;
            }
        }
    }
    for (counted = *from; counted; counted = counted->next)
        ++*count;
    rows = ok ? (ignis_memory_row *)ignis__alloc((size_t)(*count + 1) * sizeof *rows) : NULL;
    for (counted = *from, *count = 0; rows && counted; counted = counted->next) {
        rows[*count] = counted->row;
        rows[(*count)++].peak_bytes = ignis__memory_traced ? ignis__counted_peak(cache, counted) : 0;
    }
    ignis__mutex_unlock(&cache->lock);
    ignis__counted_free(&list);
    if (rows)
        qsort(rows, (size_t)*count, sizeof *rows, ignis__row_order);
    else
        ignis__fail_host_memory(call, (size_t)(*count + 1) * sizeof *rows);
    return rows;
}

IGNIS__COLD IGNIS_API int ignis_memory_rows(int ordinal, ignis_memory_row *rows, int capacity)
{
    static const char call[] = "ignis_memory_rows";
    ignis_memory_row *made;
    ignis__device *device;
    int count = 0;
    if (!ignis__enter(call) || !ignis__room_given(call, "rows", rows, capacity))
        return -1;
    device = ignis__device_get(call, ordinal);
    made = device ? ignis__rows_make(call, &ignis__caches[ordinal], &count) : NULL;
    if (!made)
        return -1;
    if (capacity > 0)
        memcpy(rows, made, (size_t)(count < capacity ? count : capacity) * sizeof *rows);
    ignis__free(made);
    return count;
}

IGNIS__COLD IGNIS_API int64_t ignis_memory_trim(int ordinal)
{
    static const char call[] = "ignis_memory_trim";
    ignis__device *device;
    ignis__cache *cache;
    ignis__binding binding;
    int64_t freed;
    if (!ignis__enter(call) || ignis__capture_refuses(call))
        return -1;
    device = ignis__device_get(call, ordinal);
    if (!device || !ignis__device_enter(call, device, &binding))
        return -1;
    cache = &ignis__caches[ordinal];
    freed = ignis__cache_trim(call, device, cache);
    if (!ignis__pieces_trim(call, device, cache))
        freed = -1;
    ignis__device_leave(&binding);
    return freed;
}

/* ===============================================================================================================
   >>array - shapes, element types, conversion, storage, arrays, views, copies, pins.
   =============================================================================================================== */

/* clang-format off */
static const struct {
    const char *name;
    int size;
} ignis__dtypes[] = {
    {"default", 0},
#define IGNIS__DTYPE_ROW(NAME, name, size) {#name, size},
    IGNIS_DTYPES(IGNIS__DTYPE_ROW)
#undef IGNIS__DTYPE_ROW
};
/* clang-format on */

static const char *const ignis__owners[] = {"none", "ignis", "nvccl", "wnais"};

IGNIS__ONE_COPY static const char *ignis__owner_name(ignis_owner owner)
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

IGNIS_API const char *ignis_owner_name(ignis_owner owner) { return ignis__owner_name(owner ? owner : IGNIS_OWNER_IGNIS); }

static bool ignis__owner_valid(const char *call, ignis_owner owner)
{
    if (owner > IGNIS_OWNER_DEFAULT && owner < IGNIS_OWNER_COUNT)
        return true;
    return ignis__refuse(IGNIS_DIAG_BAD_ENUM, call, "there is no owner %d; IGNIS_OWNER_IGNIS, _NVCCL and _WNAIS are 1 to 3", (int)owner);
}

static bool ignis__dtype_valid(const char *call, ignis_dtype dtype)
{
    if (dtype > IGNIS_DTYPE_DEFAULT && dtype < IGNIS_DTYPE_COUNT)
        return true;
    return ignis__refuse(IGNIS_DIAG_BAD_ENUM, call, "there is no dtype %d; IGNIS_F16 to IGNIS_F8_E5M2 are %d to %d", (int)dtype,
                         (int)IGNIS_F16, (int)IGNIS_F8_E5M2);
}

/*  "[2, 3]" in a struct, so that a message can hold several. */
typedef struct ignis__shape_text {
    char text[IGNIS_MAX_DIMS * 22 + 4];
} ignis__shape_text;

IGNIS__COLD static ignis__shape_text ignis__shape_write(const ignis_shape *shape)
{
    ignis__shape_text out;
    ignis__text text;
    int i;
    ignis__text_begin(&text, out.text, sizeof out.text);
    ignis__text_add(&text, "[");
    for (i = 0; i < shape->ndim && i < IGNIS_MAX_DIMS; i++)
        ignis__text_add(&text, "%s%lld", i ? ", " : "", (long long)shape->dim[i]);
    ignis__text_add(&text, "]");
    return out;
}

/*  a * b of numbers that are not negative; false when it does not fit. */
static bool ignis__multiply(int64_t a, int64_t b, int64_t *product)
{
    if (a != 0 && b > INT64_MAX / a)
        return false;
    *product = a * b;
    return true;
}

/*  Checks a shape and counts its elements. The product without its zeros must fit too, so a stride can always be computed. */
static bool ignis__shape_check(const char *call, const ignis_shape *shape, ignis_dtype dtype, int64_t *numel)
{
    int64_t product = ignis__dtypes[dtype].size;
    bool empty = false, fits = true;
    int i;
    if (shape->ndim < 1 || shape->ndim > IGNIS_MAX_DIMS)
        return ignis__refuse(IGNIS_DIAG_SHAPE_RANK, call,
                             "a shape has 1 to %d dimensions, this one has %d; IGNIS_SHAPE(1) is a single element", IGNIS_MAX_DIMS,
                             shape->ndim);
    for (i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] < 0)
            return ignis__refuse(IGNIS_DIAG_SHAPE_DIM, call, "dimension %d of shape %s is negative", i, ignis__shape_write(shape).text);
        if (shape->dim[i] == 0)
            empty = true;
        else
            fits = fits && ignis__multiply(product, shape->dim[i], &product);
    }
    if (!fits)
        return ignis__refuse(IGNIS_DIAG_SHAPE_OVERFLOW, call, "shape %s of %s has more bytes than 63 bits can count",
                             ignis__shape_write(shape).text, ignis__dtypes[dtype].name);
    *numel = empty ? 0 : product / ignis__dtypes[dtype].size;
    return true;
}

/* --- conversion on the host ------------------------------------------------------------------------------------ */

/*  Elements travel as int64_t (integers) or double (floats), both of which hold every value of their types, and are rounded
    once, at the end. kernels/ignis.cuh does the same on the device, bit for bit. */

/*  Rounds to a binary float of `fraction` bits and `exponent` bits, to nearest even (IEEE 754-2008, 4.3.1). */
static uint32_t ignis__round_double(double value, int fraction, int exponent)
{
    uint64_t bits, significand, rounded, remainder, middle;
    uint32_t sign, infinity = ((1u << exponent) - 1) << fraction;
    int power, shift;
    memcpy(&bits, &value, sizeof bits);
    sign = (uint32_t)(bits >> 63) << (fraction + exponent);
    power = (int)(bits >> 52 & 0x7FF);
    significand = bits & 0xFFFFFFFFFFFFFu;
    if (power == 0x7FF)
        return sign | infinity | (significand ? 1u << (fraction - 1) : 0);
    if (power == 0)
        return sign; /* far below every subnormal of a smaller type */
    significand |= (uint64_t)1 << 52;
    power += ((1 << (exponent - 1)) - 1) - 1023; /* the exponent field in the small type */
    shift = 52 - fraction;
    if (power < 1) { /* a subnormal: its exponent is that of field 1, with fewer bits */
        shift += 1 - power;
        power = 1;
        if (shift > 63)
            return sign;
    }
    rounded = significand >> shift;
    remainder = significand & (((uint64_t)1 << shift) - 1);
    middle = (uint64_t)1 << (shift - 1);
    if (remainder > middle || (remainder == middle && (rounded & 1)))
        rounded++;
    /* The hidden bit adds 1 to the field where it is set, and a carry of the rounding goes on into it. */
    rounded += (uint64_t)(power - 1) << fraction;
    return sign | (rounded >= infinity ? infinity : (uint32_t)rounded);
}

static double ignis__widen_float(uint32_t bits, int fraction, int exponent)
{
    uint64_t sign = (uint64_t)(bits >> (fraction + exponent)) << 63, wide;
    int power = (int)(bits >> fraction) & ((1 << exponent) - 1);
    uint64_t low = bits & ((1u << fraction) - 1);
    double value;
    if (power == (1 << exponent) - 1) {
        wide = (uint64_t)0x7FF << 52 | low << (52 - fraction);
    } else if (power == 0 && low == 0) {
        wide = 0;
    } else {
        if (power == 0) { /* a subnormal: shift its highest bit into the hidden place */
            int up = fraction - ignis__log2(low);
            low = low << up & ((1u << fraction) - 1);
            power = 1 - up;
        }
        wide = (uint64_t)(power + 1023 - ((1 << (exponent - 1)) - 1)) << 52 | low << (52 - fraction);
    }
    wide |= sign;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/*  f8_e5m2 is rounded as f16 is, but infinity becomes the largest number. */
static uint32_t ignis__round_e5m2(double value)
{
    uint32_t bits = ignis__round_double(value, 2, 5);
    return (bits & 0x7F) == 0x7C ? bits - 1 : bits;
}

/*  f8_e4m3 is, with 5 bits of exponent, a number 256 times smaller; its last bits are a NaN instead of one. */
static uint32_t ignis__round_e4m3(double value)
{
    uint32_t wide = ignis__round_double(value / 256, 3, 5), size = wide & 0xFF, sign = wide >> 1 & 0x80;
    return value != value ? 0x7F : sign | (size < 0x7E ? size : 0x7E);
}

static double ignis__widen_e4m3(uint32_t bits)
{
    uint32_t size = bits & 0x7F;
    return ignis__widen_float((bits & 0x80) << 1 | (size == 0x7F ? 0xFF : size), 3, 5) * 256;
}

/*  A double that rounds to every shorter type as the integer itself would: what a double cannot hold goes into its last bit. */
static double ignis__widen_int(int64_t value)
{
    const int64_t low = 0x7FF;
    if (value > -((int64_t)1 << 53) && value < (int64_t)1 << 53)
        return (double)value;
    return (double)((value & ~low) | (value & low ? low + 1 : 0));
}

/*  Whether it is neither NaN nor infinite, by its bits: so the answer stands where the compiler assumes that no number is one of these. */
IGNIS__MAYBE_UNUSED static bool ignis__is_finite(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits >> 52 & 0x7FF) != 0x7FF;
}

IGNIS__MAYBE_UNUSED static bool ignis__is_nan(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits << 1 > (uint64_t)0x7FF << 53;
}

static int64_t ignis__double_to_int(double value, int64_t lowest, int64_t highest)
{
    if (value != value)
        return 0;
    if (value >= (double)highest) /* for 2^63 - 1 that is 2^63, which is as well the first that does not fit */
        return highest;
    return value <= (double)lowest ? lowest : (int64_t)value;
}

IGNIS__MAYBE_UNUSED static int64_t ignis__ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }

IGNIS__ONE_COPY static int64_t ignis__clamp(int64_t value, int64_t lowest, int64_t highest)
{
    return value < lowest ? lowest : value > highest ? highest : value;
}

static bool ignis__dtype_is_int(ignis_dtype dtype) { return dtype >= IGNIS_I32 && dtype <= IGNIS_U8; }

static bool ignis__dtype_is_f8(ignis_dtype dtype) { return dtype == IGNIS_F8_E4M3 || dtype == IGNIS_F8_E5M2; }

/*  What elements travel in. */
typedef union ignis__wide {
    double f;
    int64_t i;
} ignis__wide;

#define IGNIS__FOR_EACH(type, statement)                    \
    for (i = 0; i < count; i++) {                           \
        type x;                                             \
        memcpy(&x, from + i * (int64_t)sizeof x, sizeof x); \
        statement;                                          \
    }                                                       \
    break;

static void ignis__load_wide(ignis__wide *to, const char *from, ignis_dtype dtype, int64_t count)
{
    int64_t i;
    switch (dtype) {
    case IGNIS_F16: IGNIS__FOR_EACH(uint16_t, to[i].f = ignis__widen_float(x, 10, 5))
    case IGNIS_BF16: IGNIS__FOR_EACH(uint16_t, to[i].f = ignis__widen_float(x, 7, 8))
    case IGNIS_F32: IGNIS__FOR_EACH(float, to[i].f = (double)x)
    case IGNIS_F64: IGNIS__FOR_EACH(double, to[i].f = x)
    case IGNIS_I32: IGNIS__FOR_EACH(int32_t, to[i].i = x)
    case IGNIS_I64: IGNIS__FOR_EACH(int64_t, to[i].i = x)
    case IGNIS_F8_E4M3: IGNIS__FOR_EACH(uint8_t, to[i].f = ignis__widen_e4m3(x))
    case IGNIS_F8_E5M2: IGNIS__FOR_EACH(uint8_t, to[i].f = ignis__widen_float(x, 2, 5))
    default: IGNIS__FOR_EACH(uint8_t, to[i].i = x)
    }
}
#undef IGNIS__FOR_EACH

#define IGNIS__FOR_EACH(type, expression)                 \
    for (i = 0; i < count; i++) {                         \
        type x = (type)(expression);                      \
        memcpy(to + i * (int64_t)sizeof x, &x, sizeof x); \
    }                                                     \
    break;

static void ignis__store_wide(char *to, const ignis__wide *from, ignis_dtype dtype, int64_t count)
{
    int64_t i;
    switch (dtype) {
    case IGNIS_F16: IGNIS__FOR_EACH(uint16_t, ignis__round_double(from[i].f, 10, 5))
    case IGNIS_BF16: IGNIS__FOR_EACH(uint16_t, ignis__round_double(from[i].f, 7, 8))
    case IGNIS_F32: IGNIS__FOR_EACH(float, from[i].f)
    case IGNIS_F64: IGNIS__FOR_EACH(double, from[i].f)
    case IGNIS_I32: IGNIS__FOR_EACH(int32_t, ignis__clamp(from[i].i, INT32_MIN, INT32_MAX))
    case IGNIS_I64: IGNIS__FOR_EACH(int64_t, from[i].i)
    case IGNIS_F8_E4M3: IGNIS__FOR_EACH(uint8_t, ignis__round_e4m3(from[i].f))
    case IGNIS_F8_E5M2: IGNIS__FOR_EACH(uint8_t, ignis__round_e5m2(from[i].f))
    default: IGNIS__FOR_EACH(uint8_t, ignis__clamp(from[i].i, 0, UINT8_MAX))
    }
}
#undef IGNIS__FOR_EACH

static void ignis__convert(void *to, ignis_dtype to_dtype, const void *from, ignis_dtype from_dtype, int64_t count)
{
    ignis__wide wide[256];
    int64_t done, part, i;
    bool from_int = ignis__dtype_is_int(from_dtype), to_int = ignis__dtype_is_int(to_dtype);
    for (done = 0; done < count; done += part) {
        part = count - done < IGNIS__COUNT(wide) ? count - done : IGNIS__COUNT(wide);
        ignis__load_wide(wide, (const char *)from + done * ignis__dtypes[from_dtype].size, from_dtype, part);
        if (from_int && to_dtype == IGNIS_F64)
            for (i = 0; i < part; i++)
                wide[i].f = (double)wide[i].i;
        else if (from_int && !to_int)
            for (i = 0; i < part; i++)
                wide[i].f = ignis__widen_int(wide[i].i);
        else if (!from_int && to_int)
            for (i = 0; i < part; i++)
                wide[i].i = ignis__double_to_int(wide[i].f, INT64_MIN, INT64_MAX);
        ignis__store_wide((char *)to + done * ignis__dtypes[to_dtype].size, wide, to_dtype, part);
    }
}

IGNIS__ONE_COPY IGNIS__MAYBE_UNUSED static bool ignis__shape_same(const ignis_shape *a, const ignis_shape *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, sizeof a->dim[0] * (size_t)a->ndim) == 0;
}

IGNIS__ONE_COPY static void ignis__shape_copy(ignis_shape *to, const ignis_shape *from)
{
    memset(to, 0, sizeof *to); /* dimensions that do not count are 0, whatever the caller left there */
    to->ndim = from->ndim;
    memcpy(to->dim, from->dim, sizeof from->dim[0] * (size_t)from->ndim);
}

/* --- storage: device memory that arrays and their views share ---------------------------------------------------- */

/*  Memory is taken at the first use. Which other streams have used it is kept, so that its next user comes behind them. */
typedef struct ignis__used_on {
    ignis__device *device;
    void *stream;
} ignis__used_on;

typedef struct ignis__storage {
    uint64_t users; /* arrays */
    ignis__mutex lock;
    ignis__device *device;
    ignis__block *block; /* null: not allocated, or wrapped */
    uint64_t address;    /* 0: not allocated */
    int64_t size;        /* bytes */
    bool wrapped;
    bool external; /* memory of a graphics API, which no other process gets from here */
    ignis__origin origin;
    void (*release_fn)(void *ptr, void *user_data); /* of wrapped memory; null: the caller sees to it */
    void *release_data;
    void *stream;            /* in whose order the memory is taken and given; null: not decided */
    uint64_t at_hand;        /* the same as a number, once there is memory: work on that stream needs no lock to use it; 0: it does */
    ignis__replays *replays; /* of the graph whose memory it is, and which writes there at each launch; null: none's */
    ignis__used_on used_on[4];
    int used_on_count;
    void *summed_on;                      /* the stream that has added to it last, if it is a gradient; null: none */
    uint64_t version;                     /* counts what is written to it, as far as Ignis knows */
    uint64_t lent;                        /* 1: the caller's code was given the address, and may have written there */
    uint64_t listed;                      /* 1: it is in the list of those that have to do with a stream of the caller */
    struct ignis__storage *next, *before; /* in that list */
} ignis__storage;

/*  Work that writes to the memory is about to be queued; what a capture records writes at each launch, and counts there. */
static void ignis__storage_written(ignis__storage *storage)
{
    const ignis__capture *capture = ignis__capture_on(storage->device);
    ignis__held *held = capture ? ignis__capture_find(capture, storage) : NULL;
    if (held)
        held->written = true;
    else if (!capture) /* else it is memory of the capture's own */
        ignis__atomic_add(&storage->version, 1);
}

/*  The same for a kernel of the caller, of which Ignis does not know whether it writes. */
static void ignis__storage_lent(ignis__storage *storage)
{
    const ignis__capture *capture = ignis__capture_on(storage->device);
    ignis__held *held = capture ? ignis__capture_find(capture, storage) : NULL;
    if (held)
        held->lent = true;
    else if (!capture)
        ignis__atomic_store(&storage->lent, 1);
}

/*  How often the memory was written to, as far as Ignis knows. */
static uint64_t ignis__storage_version(const ignis__storage *storage)
{
    const ignis__replays *replays = ignis__atomic_load(&storage->address) ? storage->replays : NULL;
    return ignis__atomic_load(&storage->version) + (replays ? ignis__atomic_load(&replays->count) : 0);
}

/*  False: reading it is a mistake. What a capture reads may be written before the launch, if there is memory for it. */
static bool ignis__storage_readable(const ignis__storage *storage)
{
    if (storage->wrapped || !ignis__atomic_load(&storage->address))
        return storage->wrapped;
    return ignis__storage_version(storage) || ignis__atomic_load(&storage->lent) || ignis__capture_on(storage->device);
}

/*  Those that have to do with a stream of the caller, for ignis_stream_forget, whoever uses them: arrays, graphs, a call that gives them up.
    The many that have to do with Ignis' own streams alone are made and freed without the list's lock, which is taken before a storage's. */
static struct {
    ignis__mutex lock;
    ignis__storage *first;
} ignis__storages = {IGNIS__MUTEX_INIT, NULL};

/*  Puts a storage in that list that is about to be used on a stream, if that is one of the caller. */
static void ignis__storage_enlist(ignis__storage *storage, const ignis__device *device, const void *stream)
{
    if (!stream || stream == device->stream || ignis__atomic_load(&storage->listed))
        return;
    ignis__mutex_lock(&ignis__storages.lock);
    if (!ignis__atomic_load(&storage->listed)) {
        storage->next = ignis__storages.first;
        if (storage->next)
            storage->next->before = storage;
        ignis__storages.first = storage;
        ignis__atomic_store(&storage->listed, 1);
    }
    ignis__mutex_unlock(&ignis__storages.lock);
}

/*  A storage with no users yet; null on failure. */
static ignis__storage *ignis__storage_make(const char *call, ignis__device *device, int64_t size)
{
    ignis__storage *storage = (ignis__storage *)ignis__alloc_for(call, sizeof *storage);
    if (!storage)
        return NULL;
    ignis__mutex_init(&storage->lock);
    storage->device = device;
    storage->size = size;
    ignis__origin_now(&storage->origin, call);
    return storage;
}

static void ignis__storage_destroy(ignis__storage *storage)
{
    if (ignis__atomic_load(&storage->listed)) {
        ignis__mutex_lock(&ignis__storages.lock);
        if (storage->before)
            storage->before->next = storage->next;
        else
            ignis__storages.first = storage->next;
        if (storage->next)
            storage->next->before = storage->before;
        ignis__mutex_unlock(&ignis__storages.lock);
    }
    if (storage->replays)
        ignis__replays_drop(storage->replays);
    ignis__free(storage);
}

/*  Work on `stream` is about to use the memory: it comes behind the stream of the memory, where the block's last user may still be. */
static bool ignis__storage_used_on(const char *call, ignis__storage *storage, ignis__device *device, void *stream)
{
    ignis__used_on *slot;
    int i;
    if (stream == storage->stream && device == storage->device)
        return true;
    for (i = 0; i < storage->used_on_count; i++)
        if (storage->used_on[i].stream == stream && storage->used_on[i].device == device)
            return true;
    if (!ignis__stream_order(call, storage->device, storage->stream, device, stream))
        return false;
    if (storage->used_on_count < IGNIS__COUNT(storage->used_on)) {
        slot = &storage->used_on[storage->used_on_count++];
    } else { /* more streams than places: make the memory's own stream wait for one of them now, and forget that one */
        slot = &storage->used_on[0];
        if (!ignis__stream_order(call, slot->device, slot->stream, storage->device, storage->stream))
            return false;
    }
    slot->device = device;
    slot->stream = stream;
    return true;
}

/*  Lets work on `stream` of the storage's device, which is about to add to a sum, come after what was added before on another stream. */
IGNIS__MAYBE_UNUSED static bool ignis__storage_sum_on(const char *call, ignis__storage *storage, void *stream)
{
    bool ok;
    ignis__storage_enlist(storage, storage->device, stream);
    ignis__mutex_lock(&storage->lock);
    ok = !storage->summed_on || ignis__stream_order(call, storage->device, storage->summed_on, storage->device, stream);
    storage->summed_on = stream;
    ignis__mutex_unlock(&storage->lock);
    return ok;
}

/*  Gives the memory of a storage without users back, behind all that used it. Where the device cannot be entered it stays out of use. */
static void ignis__storage_give(const char *call, ignis__storage *storage)
{
    ignis__device *unordered[IGNIS__COUNT(storage->used_on)];
    ignis__spare_event *last = NULL;
    ignis__binding binding, other;
    bool entered = ignis__device_enter_to_give(call, storage->device, &binding);
    bool listed = ignis__atomic_load(&storage->listed) != 0; /* no other thread can see it if not */
    int i, count = 0;
    if (listed)
        ignis__mutex_lock(&storage->lock);
    /* A thread that forgets one of these streams waits until it is not needed here, so nothing waits here. */
    for (i = 0; i < storage->used_on_count; i++) {
        ignis__used_on *used = &storage->used_on[i];
        if (!entered || !ignis__stream_order(call, used->device, used->stream, storage->device, storage->stream))
            unordered[count++] = used->device;
    }
    if (entered && !storage->block && storage->stream)
        last = ignis__event_record(call, storage->device, storage->stream);
    if (listed)
        ignis__mutex_unlock(&storage->lock);
    while (count-- > 0) {
        if (ignis__device_enter_to_give(call, unordered[count], &other)) {
            (void)ignis__device_finish(unordered[count]); /* without an order, waiting is what is left */
            ignis__device_leave(&other);
        }
    }
    if (entered) {
        if (storage->block) {
            ignis__memory_give(call, storage->device, storage->block);
        } else if (storage->stream) { /* the memory goes to somebody who knows nothing of streams */
            if (!last || IGNIS__CUDA(cuEventSynchronize, (last->event)) != 0)
                (void)ignis__device_finish(storage->device);
            if (last)
                ignis__event_give(storage->device, last);
        }
        ignis__device_leave(&binding);
    }
    if (storage->release_fn)
        storage->release_fn((void *)(uintptr_t)storage->address, storage->release_data);
}

/*  One user less; the last gives the memory back, unless it is the caller's, and so is all order. */
static void ignis__storage_drop(const char *call, ignis__storage *storage)
{
    if (ignis__atomic_add(&storage->users, (uint64_t)-1) != 0)
        return;
    if (storage->block || storage->release_fn)
        ignis__storage_give(call, storage);
    ignis__storage_destroy(storage);
}

static void ignis__storage_drop_held(const char *call, void *item) { ignis__storage_drop(call, (ignis__storage *)item); }

static bool ignis__capture_hold_storage(const char *call, ignis__capture *capture, ignis__storage *storage)
{
    return ignis__capture_hold(call, capture, storage, &storage->users, ignis__storage_drop_held);
}

/*  Takes memory where there is none, and orders work on `stream` of `device` behind what used it before. */
IGNIS__ONE_COPY static bool ignis__storage_prepare(const char *call, ignis__storage *storage, ignis__device *device, void *stream,
                                                   uint64_t *address)
{
    ignis__capture *open = ignis__capturing(), *capture = open && open->device == device ? open : NULL;
    ignis__block *block = NULL;
    bool forgotten = false; /* another thread has forgotten the stream, and memory was taken for it after that */
    void *from = NULL;
    bool ok = true;
    if (!capture)
        ignis__storage_enlist(storage, device, stream);
    ignis__mutex_lock(&storage->lock);
    if (!storage->stream) /* that of a capture ends with it */
        storage->stream = device == storage->device && !capture ? stream : storage->device->stream;
    if (!ignis__atomic_load(&storage->address) && storage->size > 0) {
        from = storage->stream;
        ignis__mutex_unlock(&storage->lock); /* this may wait for the device, and that for who waits for the lock */
        block = ignis__memory_take_for(call, &storage->origin, storage->device, from, storage->size);
        ignis__mutex_lock(&storage->lock);
        ok = block != NULL;
        if (ok && !ignis__atomic_load(&storage->address)) {
            storage->block = block;
            if (open && open->device == storage->device) {
                storage->replays = open->replays;
                ignis__atomic_add(&open->replays->users, 1);
            }
            ignis__atomic_store(&storage->address, block->address);
            block = NULL;
        }
        if (storage->replays)
            storage->stream = storage->device->stream; /* which gets the memory when the graph goes */
        else
            forgotten = storage->stream != from;
    }
    if (ok && capture) /* all streams were idle when it began: no order is missing */
        ok = storage->replays == capture->replays || ignis__capture_hold_storage(call, capture, storage);
    else
        ok = ok && (storage->size == 0 || ignis__storage_used_on(call, storage, device, stream));
    *address = ignis__atomic_load(&storage->address);
    if (*address)
        ignis__atomic_store(&storage->at_hand, (uintptr_t)storage->stream);
    ignis__mutex_unlock(&storage->lock);
    if (block) /* another thread was faster */
        ignis__memory_give(call, storage->device, block);
    if (forgotten)
        ignis__memory_forget_stream(storage->device, from);
    return ok;
}

/*  The address for work on `stream` of `device`, allocating if need be. 0: failure, or nothing to store. */
static bool ignis__storage_use(const char *call, ignis__storage *storage, ignis__device *device, void *stream, uint64_t *address)
{
    const ignis__capture *capture = ignis__capturing();
    if (device != storage->device || ignis__atomic_load(&storage->at_hand) != (uintptr_t)stream || (capture && capture->device == device))
        return ignis__storage_prepare(call, storage, device, stream, address);
    *address = ignis__atomic_load(&storage->address);
    return true;
}

/* --- arrays ------------------------------------------------------------------------------------------------------ */

/*  What the bytes of a model's quantised weight are: [rows, columns], in parts of rows that are of one type. count 0: any other array. */
typedef struct ignis__blocks {
    int count, columns;
    struct {
        int type, rows; /* type: an ignis__gguf_type */
    } part[3];
} ignis__blocks;

typedef struct ignis__array {
    ignis__slot slot; /* first; its lock guards what may change: owner, ref_count, pinned, tracking */
    ignis__storage *storage;
    int64_t offset; /* bytes into the storage */
    int64_t numel;
    ignis_shape shape;
    ignis_dtype dtype;
    ignis_owner owner;
    int ref_count;
    bool view;
    bool owned_by_refs; /* its last reference frees it: a tensor or the tape made it */
    bool tracked_by_user;
    uint64_t id;
    uint64_t parent;
    int64_t created_at_ns;
    int64_t tracked_at_ns; /* monotonic; 0: not tracked */
    uint64_t audit;        /* the last one that has listed it */
    int exports;           /* of the references, those that ignis_collective.h holds for other processes */
    const void *borrower;  /* the call that has made its layer the owner until it ends; null: none */
    void *pinned;
    char tag[32];
    ignis__blocks blocks; /* of a quantised weight, which is a row of u8 */
    ignis__former former; /* the slot's array before this one */
} ignis__array;

static ignis__pool ignis__arrays =
    IGNIS__POOL_NAMED(ignis__array, IGNIS__KIND_ARRAY, "array", IGNIS_DIAG_ARRAY_FREED, offsetof(ignis__array, former));
static uint64_t ignis__array_ids; /* given out so far, in this process */

static int64_t ignis__array_bytes(const ignis__array *array) { return array->numel * ignis__dtypes[array->dtype].size; }

IGNIS__ONE_COPY static ignis__label ignis__array_label(const ignis__array *array)
{
    return ignis__label_write("array", array->id, array->tag);
}

/*  The array of a handle, held; null, and reported, when there is none. */
static ignis__array *ignis__array_hold(const char *call, ignis_array handle)
{
    return (ignis__array *)ignis__handle_hold(call, &ignis__arrays, handle.id);
}

/*  The version of what an array holds; none of what nobody has written yet, or of what each launch of a graph writes. */
#define IGNIS__UNWRITTEN UINT64_MAX
IGNIS__MAYBE_UNUSED static uint64_t ignis__array_version(const ignis__array *array)
{
    bool written = !ignis__capture_on(array->storage->device) && ignis__storage_readable(array->storage);
    return written ? ignis__storage_version(array->storage) : IGNIS__UNWRITTEN;
}

/*  Takes a dead array apart. */
static void ignis__array_destroy(const char *call, ignis__array *array)
{
    if (array->pinned)
        ignis__pinned_give(call, array->storage->device, array->pinned, ignis__array_bytes(array));
    ignis__storage_drop(call, array->storage);
    array->pinned = NULL;
    array->storage = NULL;
    ignis__pool_give(&ignis__arrays, array);
}

IGNIS__ONE_COPY static void ignis__array_drop(const char *call, ignis__array *array)
{
    if (ignis__pool_drop(array))
        ignis__array_destroy(call, array);
}

/*  Ends a call on an array that it holds, or could not hold: null. */
IGNIS__ONE_COPY static ignis_status ignis__array_end(const char *call, ignis__array *array, bool ok)
{
    if (array)
        ignis__array_drop(call, array);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Locks a held array for a change of its own fields; false, and reported, when another thread has freed it meanwhile. */
static bool ignis__array_lock(const char *call, ignis__array *array)
{
    ignis__mutex_lock(&array->slot.lock);
    if (ignis__pool_live(array))
        return true;
    ignis__mutex_unlock(&array->slot.lock);
    return ignis__refuse(IGNIS_DIAG_ARRAY_FREED, call, "%s, freed by another thread meanwhile", ignis__array_label(array).text);
}

static void ignis__array_unlock(ignis__array *array) { ignis__mutex_unlock(&array->slot.lock); }

/*  Arrays that were freed while ignis_contract_track watched them: the audit shows them until they are untracked. */
typedef struct ignis__tracked_freed {
    uint64_t handle;
    uint64_t audit; /* the last one that has listed it when it was alive */
    int64_t tracked_at_ns;
    ignis_contract_entry entry;
    struct ignis__tracked_freed *next;
} ignis__tracked_freed;

static struct {
    ignis__mutex lock;
    int live; /* tracked arrays that are not freed */
    int freed_count;
    ignis__tracked_freed *freed;
} ignis__tracking = {IGNIS__MUTEX_INIT, 0, 0, NULL};

IGNIS__COLD static void ignis__track_entry(const ignis__array *array, ignis_contract_entry *entry)
{
    memset(entry, 0, sizeof *entry);
    entry->array_id = array->id;
    entry->owner = array->owner;
    entry->shape = array->shape;
    entry->dtype = array->dtype;
    entry->bytes = ignis__array_bytes(array);
    entry->ref_count = array->ref_count;
    entry->views = (int)ignis__atomic_load(&array->storage->users) - 1;
    entry->exports = array->exports;
    memcpy(entry->tag, array->tag, sizeof entry->tag);
}

/*  A tracked array has died. One that was only acquired leaves the audit; one that the user watches stays, as freed. */
IGNIS__COLD static void ignis__track_freed(const ignis__array *array)
{
    ignis__tracked_freed *freed = array->tracked_by_user ? (ignis__tracked_freed *)ignis__alloc(sizeof *freed) : NULL;
    ignis__mutex_lock(&ignis__tracking.lock);
    ignis__tracking.live--;
    if (freed) {
        ignis__track_entry(array, &freed->entry);
        freed->entry.freed = true;
        freed->handle = array->slot.handle;
        freed->audit = array->audit;
        freed->tracked_at_ns = array->tracked_at_ns;
        freed->next = ignis__tracking.freed;
        ignis__tracking.freed = freed;
        ignis__tracking.freed_count++;
    }
    ignis__mutex_unlock(&ignis__tracking.lock);
}

/*  A reference that keeps an array alive, and with it the pointer: for tensors and the tape, to whom it belongs from now on. */
IGNIS__ONE_COPY IGNIS__MAYBE_UNUSED static void ignis__array_claim(ignis__array *array)
{
    ignis__mutex_lock(&array->slot.lock);
    array->ref_count++;
    array->owned_by_refs = true;
    ignis__atomic_add(&array->slot.state, 1);
    ignis__mutex_unlock(&array->slot.lock);
}

/*  Claims an array that was just made, which lives as long as its claims from then on; null for no handle. */
IGNIS__ONE_COPY IGNIS__MAYBE_UNUSED static ignis__array *ignis__array_adopt(const char *call, ignis_array made)
{
    ignis__array *array = made.id ? (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id) : NULL;
    if (!array)
        return NULL;
    ignis__array_claim(array);
    ignis__array_drop(call, array);
    return array;
}

/*  Makes the handle of a live, held and locked array stale. */
static void ignis__array_kill(ignis__array *array)
{
    if (array->tracked_at_ns)
        ignis__track_freed(array);
    ignis__former_write(&array->former, &array->slot, array->id, array->tag);
    ignis__pool_kill(array);
    ignis__pool_drop(array); /* the handle's own hold; the caller still has one */
}

/*  Gives a reference of a locked array back; the last one ends an array that belongs to its references. */
static int ignis__array_unref(ignis__array *array)
{
    int count = --array->ref_count;
    if (count == 0 && array->owned_by_refs && ignis__pool_live(array))
        ignis__array_kill(array);
    return count;
}

IGNIS__MAYBE_UNUSED static void ignis__array_unclaim(const char *call, ignis__array *array)
{
    ignis__mutex_lock(&array->slot.lock);
    if (array->ref_count > 0) /* a caller may have given back references that were not theirs */
        ignis__array_unref(array);
    ignis__array_unlock(array);
    ignis__array_drop(call, array);
}

/*  A new array over a storage, of which it becomes a user. Only its maker sees it until ignis__array_publish. Null: no memory. */
static ignis__array *ignis__array_make(const char *call, ignis__storage *storage, const ignis_shape *shape, ignis_dtype dtype,
                                       int64_t numel)
{
    ignis__array *array = (ignis__array *)ignis__pool_take_zeroed(call, &ignis__arrays);
    if (!array)
        return NULL;
    ignis__atomic_add(&storage->users, 1);
    array->storage = storage;
    array->numel = numel;
    ignis__shape_copy(&array->shape, shape);
    array->dtype = dtype;
    array->owner = IGNIS_OWNER_IGNIS;
    array->id = ignis__atomic_add(&ignis__array_ids, 1);
    array->created_at_ns = ignis__wall_ns();
    return array;
}

/*  References that it has already are claims. */
static ignis_array ignis__array_publish(ignis__array *array)
{
    ignis_array handle;
    handle.id = ignis__pool_publish_held(&ignis__arrays, array, 1 + array->ref_count);
    return handle;
}

/*  What wrapped memory must be: memory that the device can use, of that device, and as large as the array. */
IGNIS__COLD static bool ignis__array_wrappable(const char *call, ignis__device *device, void *ptr, int64_t size)
{
    int type, ordinal, wanted = ignis__device_ordinal(device);
    ignis__address start, at = (ignis__address)(uintptr_t)ptr;
    size_t range;
    if (!ignis__address_query(call, device, ptr, &type, &ordinal) || !ignis__address_range(call, device, ptr, &start, &range))
        return false;
    if (type == 0 || type == IGNIS__CU_MEMORY_HOST)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "desc.ptr %p is not device memory; copy host memory with ignis_array_from_host",
                             ptr);
    if (ordinal != wanted)
        return ignis__refuse(IGNIS_DIAG_DEVICE_DIFFERS, call, "desc.ptr %p is memory of device %d, the array is to be on device %d", ptr,
                             ordinal, wanted);
    if (range && (uint64_t)size > start + range - at)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call,
                             "the array has %lld bytes, but from desc.ptr %p on there are %llu left of the %llu of its memory",
                             (long long)size, ptr, (unsigned long long)(start + range - at), (unsigned long long)range);
    return true;
}

/*  The part of ignis_array_create that needs the device: a pointer to check, unless it is an external one, and a stream to write down. */
IGNIS__COLD static bool ignis__array_attach(const char *call, ignis__device *device, ignis__storage *storage, const ignis_array_desc *desc,
                                            bool external)
{
    ignis__binding binding;
    bool ok;
    if (!ignis__device_enter(call, device, &binding))
        return false;
    ok = (!desc->ptr || storage->size == 0 || external || ignis__array_wrappable(call, device, desc->ptr, storage->size)) &&
         (!desc->stream || desc->stream == device->stream || ignis__stream_adopt(call, device, desc->stream) != 0);
    ignis__device_leave(&binding);
    storage->wrapped = desc->ptr != NULL;
    storage->external = external;
    storage->address = (uint64_t)(uintptr_t)desc->ptr;
    storage->stream = desc->stream;
    ignis__storage_enlist(storage, device, desc->stream);
    if (ok) { /* what fails to become an array stays the caller's */
        storage->release_fn = desc->release_fn;
        storage->release_data = desc->release_data;
    }
    return ok;
}

/*  external: desc->ptr is memory of a graphics API, of which the caller of this knows how much there is. */
static ignis_array ignis__array_create_over(const char *call, const ignis_array_desc *desc, bool external)
{
    ignis_array handle = IGNIS__ZERO;
    ignis__device *device;
    ignis__storage *storage;
    ignis__array *array;
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    ignis_owner owner = desc->owner ? desc->owner : IGNIS_OWNER_IGNIS;
    int ordinal = ignis__desc_device(desc->device);
    int64_t numel;
    size_t length;

    if (!ignis__dtype_valid(call, dtype) || !ignis__owner_valid(call, owner) || !ignis__shape_check(call, &desc->shape, dtype, &numel) ||
        (device = ignis__device_get(call, ordinal)) == NULL ||
        (storage = ignis__storage_make(call, device, numel * ignis__dtypes[dtype].size)) == NULL)
        return handle;
    array = (!desc->ptr && !desc->stream) || ignis__array_attach(call, device, storage, desc, external)
                ? ignis__array_make(call, storage, &desc->shape, dtype, numel)
                : NULL;
    if (!array) {
        ignis__storage_destroy(storage);
        return handle;
    }
    array->owner = owner;
    if (desc->tag) {
        length = ignis__utf8_cut(desc->tag, sizeof array->tag - 1);
        memcpy(array->tag, desc->tag, length);
        memcpy(storage->origin.tag, array->tag, sizeof array->tag);
    }
    return ignis__array_publish(array);
}

static ignis_array ignis__array_create(const char *call, const ignis_array_desc *desc)
{
    return ignis__array_create_over(call, desc, false);
}

IGNIS_API ignis_array ignis_array_create(const ignis_array_desc *desc)
{
    static const char call[] = "ignis_array_create";
    ignis_array none = IGNIS__ZERO;
    if (!ignis__enter(call) || !ignis__given(call, "desc", desc))
        return none;
    return ignis__array_create(call, desc);
}

/*  Whose a view or a copy of an array is: that of its owner, or of who has it back after a loan. Another thread may be about to transfer it. */
static ignis_owner ignis__array_owner(const ignis__array *array)
{
    ignis__mutex *lock = (ignis__mutex *)(uintptr_t)&array->slot.lock;
    ignis_owner owner;
    ignis__mutex_lock(lock);
    owner = array->borrower ? IGNIS_OWNER_IGNIS : array->owner;
    ignis__mutex_unlock(lock);
    return owner;
}

/*  An array like another one, of another dtype perhaps, with memory of its own. */
IGNIS__COLD static ignis_array ignis__array_create_like(const char *call, const ignis__array *like, ignis_dtype dtype)
{
    ignis_array_desc desc = IGNIS__ZERO;
    desc.shape = like->shape;
    desc.dtype = dtype;
    desc.device = ignis__device_in_desc(like->storage->device);
    desc.owner = ignis__array_owner(like);
    desc.tag = like->tag;
    return ignis__array_create(call, &desc);
}

/*  Views of an array share its storage, owner and tag. Only its maker sees this one until ignis__array_publish. */
static ignis__array *ignis__array_view_make(const char *call, const ignis__array *of, const ignis_shape *shape, int64_t numel,
                                            int64_t offset)
{
    ignis__array *view = ignis__array_make(call, of->storage, shape, of->dtype, numel);
    if (!view)
        return NULL;
    view->offset = of->offset + offset;
    view->owner = ignis__array_owner(of);
    view->view = true;
    view->parent = of->id;
    memcpy(view->tag, of->tag, sizeof view->tag);
    return view;
}

static ignis_array ignis__array_view(const char *call, const ignis__array *of, const ignis_shape *shape, int64_t numel, int64_t offset)
{
    ignis_array none = IGNIS__ZERO;
    ignis__array *view = ignis__array_view_make(call, of, shape, numel, offset);
    return view ? ignis__array_publish(view) : none;
}

/*  Writes who holds what an array exports; ignis_collective.h, which knows, puts itself here. The array is locked. */
static void (*ignis__export_holders)(ignis__text *text, const ignis__array *array);

/*  Looks which of those are gone by now, before an array is refused, and waits for processes that are just being ended; set there, too. Both
    are set before an array counts an export, so they are read after its lock. */
static void (*ignis__exports_reap)(const char *call, ignis__array *array, bool wait);

/*  The array of a handle, held and locked for a change of its own fields; null, and reported, when there is none. */
IGNIS__ONE_COPY static ignis__array *ignis__array_enter(const char *call, ignis_array handle)
{
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array || ignis__array_lock(call, array))
        return array;
    ignis__array_drop(call, array);
    return NULL;
}

/*  The same for calls of the contract: what other processes hold no longer is let go of before; with wait, also what is just being ended. */
static ignis__array *ignis__array_enter_reaped(const char *call, ignis_array handle, bool wait)
{
    ignis__array *array = ignis__array_enter(call, handle);
    if (!array || array->exports == 0)
        return array;
    ignis__array_unlock(array);
    ignis__exports_reap(call, array, wait);
    if (ignis__array_lock(call, array))
        return array;
    ignis__array_drop(call, array);
    return NULL;
}

IGNIS__ONE_COPY static ignis_status ignis__array_leave(const char *call, ignis__array *array, bool ok)
{
    ignis__array_unlock(array);
    return ignis__array_end(call, array, ok);
}

IGNIS__COLD static ignis_status ignis__fail_exported(const char *call, const ignis__array *array, const char *what)
{
    char holders[512];
    ignis__text text;
    ignis__text_begin(&text, holders, sizeof holders);
    if (ignis__export_holders)
        ignis__export_holders(&text, array);
    return ignis__fail(IGNIS_DIAG_FREE_EXPORTED, call, "%s cannot be %s while %d handle%s of it %s out: %s", ignis__array_label(array).text,
                       what, array->exports, array->exports == 1 ? "" : "s", array->exports == 1 ? "is" : "are", holders);
}

/*  Writes who claims an array, each after a comma, and returns how many claims those are; the sections above put themselves here. */
static int (*ignis__claim_holders)(ignis__text *text, const ignis__array *array);

/*  The array is held, and had references when it was locked. */
IGNIS__COLD static ignis_status ignis__fail_referenced(const char *call, const ignis__array *array, ignis_owner owner, int ref_count)
{
    char holders[512];
    ignis__text text;
    int others;
    ignis__text_begin(&text, holders, sizeof holders);
    others = ref_count - (ignis__claim_holders ? ignis__claim_holders(&text, array) : 0);
    if (others > 0)
        ignis__text_add(&text, ", %d held otherwise, as by ignis_array_increment_ref", others);
    return ignis__fail(IGNIS_DIAG_FREE_REFERENCED, call, "%s, owned by %s, cannot be freed while its ref_count is %d, not 0%s%s",
                       ignis__array_label(array).text, ignis__owner_name(owner), ref_count, text.length ? ":" : "",
                       text.length ? holders + 1 : "");
}

static ignis_status ignis__array_free_as(const char *call, ignis_array handle, ignis_owner as)
{
    const uint64_t failures = ignis__failures();
    ignis__array *array;
    ignis_owner owner;
    int ref_count = 0;
    bool ok = false;
    if (!handle.id)
        return IGNIS_OK;
    array = ignis__array_enter_reaped(call, handle, true);
    if (!array)
        return ignis__failed();
    if (!ignis__owner_valid(call, as))
        return ignis__array_leave(call, array, false);
    owner = array->owner;
    if (owner != as)
        ignis__fail(IGNIS_DIAG_FREE_BY_OTHER, call, "%s is owned by %s and may only be freed by it, not by %s",
                    ignis__array_label(array).text, ignis__owner_name(owner), ignis__owner_name(as));
    else if (array->exports > 0)
        ignis__fail_exported(call, array, "freed");
    else if (array->ref_count > 0)
        ref_count = array->ref_count;
    else
        ok = true;
    if (ok)
        ignis__array_kill(array);
    ignis__array_unlock(array);
    if (ref_count) /* without its lock, which who holds it takes behind others */
        ignis__fail_referenced(call, array, owner, ref_count);
    (void)ignis__array_end(call, array, ok);
    return ignis__ended(failures, ok);
}

IGNIS_API ignis_status ignis_array_free(ignis_array array) { return ignis__array_free_as("ignis_array_free", array, IGNIS_OWNER_IGNIS); }

IGNIS_API ignis_status ignis_array_free_as(ignis_array array, ignis_owner owner)
{
    return ignis__array_free_as("ignis_array_free_as", array, owner);
}

IGNIS_API bool ignis_array_is_live(ignis_array handle)
{
    bool usable = ignis__atomic_load(&ignis__global.ready) && !ignis__atomic_load(&ignis__global.forked);
    void *array = usable ? ignis__pool_hold(&ignis__arrays, handle.id) : NULL;
    if (!array)
        return false;
    ignis__array_drop("ignis_array_is_live", (ignis__array *)array);
    return true;
}

IGNIS_API ignis_status ignis_array_query(ignis_array handle, ignis_array_info *info)
{
    static const char call[] = "ignis_array_query";
    ignis__array *array = ignis__array_enter(call, handle);
    ignis__storage *storage;
    uint64_t address;
    if (!array)
        return ignis__failed();
    if (!ignis__given(call, "info", info))
        return ignis__array_leave(call, array, false);
    storage = array->storage;
    address = ignis__atomic_load(&storage->address);
    info->id = array->id;
    info->shape = array->shape;
    info->dtype = array->dtype;
    info->device = ignis__device_ordinal(storage->device);
    info->owner = array->owner;
    info->ref_count = array->ref_count;
    info->ptr = address ? (void *)(uintptr_t)(address + (uint64_t)array->offset) : NULL;
    info->pinned_host_ptr = array->pinned;
    info->created_at_ns = array->created_at_ns;
    info->owns_memory = !array->view && !storage->wrapped;
    info->on_device = address != 0;
    info->parent = array->parent;
    memcpy(info->tag, array->tag, sizeof info->tag);
    info->version = ignis__storage_version(storage);
    ignis__array_unlock(array);
    if (address)
        ignis__atomic_store(&storage->lent, 1);
    ignis__mutex_lock(&storage->lock);
    info->stream = storage->stream;
    ignis__mutex_unlock(&storage->lock);
    return ignis__array_end(call, array, true);
}

IGNIS_API int64_t ignis_array_numel(ignis_array handle)
{
    static const char call[] = "ignis_array_numel";
    ignis__array *array = ignis__array_hold(call, handle);
    int64_t numel;
    if (!array)
        return -1;
    numel = array->numel;
    ignis__array_drop(call, array);
    return numel;
}

IGNIS_API int64_t ignis_array_size_bytes(ignis_array handle)
{
    static const char call[] = "ignis_array_size_bytes";
    ignis__array *array = ignis__array_hold(call, handle);
    int64_t size;
    if (!array)
        return -1;
    size = ignis__array_bytes(array);
    ignis__array_drop(call, array);
    return size;
}

IGNIS__COLD static void ignis__array_describe(ignis__text *text, const ignis__array *array)
{
    ignis__text_add(text, "array #%llu %s %s on device %d, owner %s, ref_count %d", (unsigned long long)array->id,
                    ignis__shape_write(&array->shape).text, ignis__dtypes[array->dtype].name, ignis__device_ordinal(array->storage->device),
                    ignis__owner_name(array->owner), array->ref_count);
    if (*array->tag)
        ignis__text_add(text, ", '%s'", array->tag);
}

IGNIS__COLD IGNIS_API int ignis_array_to_string(ignis_array handle, char *out, size_t capacity)
{
    static const char call[] = "ignis_array_to_string";
    ignis__array *array;
    ignis__label label;
    ignis__text text;
    char none[1];
    if (!ignis__enter(call) || (capacity && !ignis__given(call, "out", out)))
        return -1;
    ignis__text_begin(&text, out ? out : none, capacity);
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (array) {
        ignis__mutex_lock(&array->slot.lock);
        ignis__array_describe(&text, array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
    } else {
        label = ignis__label_stale(&ignis__arrays, handle.id);
        if (*label.text)
            ignis__text_add(&text, "%s", label.text);
        else
            ignis__text_add(&text, "array handle 0x%llx (freed)", (unsigned long long)handle.id);
    }
    return (int)text.length;
}

/*  An array that is still alive at ignis_shutdown; `what` comes before its description. */
IGNIS__COLD static void ignis__array_leaked(const char *call, const ignis__array *array, const char *what)
{
    char line[256];
    ignis__text text;
    ignis__text_begin(&text, line, sizeof line);
    ignis__array_describe(&text, array);
    ignis__leak_report(call, IGNIS_DIAG_ARRAY_LEAKED, "%s%s, %lld bytes, %lld ms old", what, line, (long long)ignis__array_bytes(array),
                       (long long)((ignis__wall_ns() - array->created_at_ns) / 1000000));
}

/* --- work on arrays: an operation enters the device, gets addresses on the current stream, and leaves ------------------- */

typedef struct ignis__work {
    const char *call;
    ignis__device *device;
    ignis__binding binding;
    void *stream;
    int64_t begin_ns; /* of a profile; 0: there is none */
} ignis__work;

static bool ignis__work_begin(const char *call, ignis__device *device, ignis__work *work)
{
    work->call = call;
    work->device = device;
    if (!ignis__device_enter(call, device, &work->binding))
        return false;
    work->stream = ignis__stream_now(device);
    work->begin_ns = ignis__profiling() ? ignis__monotonic_ns() : 0;
    if (work->begin_ns) {
        ignis__this_thread.operation++;
        ignis__this_thread.told = false;
        ignis__this_thread.bytes = ignis__this_thread.flops = 0;
    }
    return true;
}

static void ignis__work_end(const ignis__work *work)
{
    if (work->begin_ns)
        ignis__traced_call(work->call, work->device, work->begin_ns);
    ignis__device_leave(&work->binding);
}

/*  The address of an array's first element; its memory is allocated if need be. */
static bool ignis__work_address(const ignis__work *work, ignis__array *array, ignis__address *address)
{
    uint64_t base;
    if (!ignis__storage_use(work->call, array->storage, work->device, work->stream, &base))
        return false;
    *address = base && array->numel ? base + (uint64_t)array->offset : 0;
    if (ignis__profiling())
        ignis__this_thread.bytes += (double)ignis__array_bytes(array);
    return true;
}

/*  What has no elements is not written, whatever it is a view of. */
static void ignis__array_written(ignis__array *array)
{
    if (array->numel > 0)
        ignis__storage_written(array->storage);
}

/*  The address for work that writes the array. */
static bool ignis__work_write(const ignis__work *work, ignis__array *array, ignis__address *address)
{
    if (!ignis__work_address(work, array, address))
        return false;
    ignis__array_written(array);
    return true;
}

/*  False, and reported: nobody has written what the array holds. */
static bool ignis__array_readable(const char *call, const ignis__array *array)
{
    bool readable = array->numel == 0 || ignis__storage_readable(array->storage);
    if (!readable && ignis__atomic_load(&array->storage->address) && array->storage->replays)
        ignis__fail(IGNIS_DIAG_ARRAY_UNWRITTEN, call, "%s is written by a graph, which was never launched", ignis__array_label(array).text);
    else if (!readable)
        ignis__fail(IGNIS_DIAG_ARRAY_UNWRITTEN, call,
                    "%s was never written to; if the caller's own code did it, say so with ignis_array_mark_written",
                    ignis__array_label(array).text);
    return readable;
}

/*  The address for work that reads it, where memory that nobody has written is a mistake. */
static bool ignis__work_read(const ignis__work *work, ignis__array *array, ignis__address *address)
{
    return ignis__array_readable(work->call, array) && ignis__work_address(work, array, address);
}

/*  The array of a handle, held, and its device entered for work on it; null, and reported, when that cannot be. */
IGNIS__ONE_COPY static ignis__array *ignis__array_work(const char *call, ignis_array handle, ignis__work *work)
{
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array || ignis__work_begin(call, array->storage->device, work))
        return array;
    ignis__array_drop(call, array);
    return NULL;
}

/*  Ends that, also after it could not begin. */
IGNIS__ONE_COPY static ignis_status ignis__array_work_end(const ignis__work *work, ignis__array *array, bool ok)
{
    if (!array)
        return ignis__failed();
    ignis__work_end(work);
    return ignis__array_end(work->call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_to_device(ignis_array handle)
{
    ignis__work work;
    ignis__array *array = ignis__array_work("ignis_array_to_device", handle, &work);
    ignis__address address;
    return ignis__array_work_end(&work, array, array && ignis__work_address(&work, array, &address));
}

IGNIS_API void *ignis_array_device_ptr(ignis_array handle)
{
    ignis__work work;
    ignis__array *array = ignis__array_work("ignis_array_device_ptr", handle, &work);
    ignis__address address = 0;
    bool ok = array && ignis__work_address(&work, array, &address);
    if (ok)
        ignis__atomic_store(&array->storage->lent, 1);
    return ignis__array_work_end(&work, array, ok) == IGNIS_OK ? (void *)(uintptr_t)address : NULL;
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_mark_written(ignis_array handle)
{
    static const char call[] = "ignis_array_mark_written";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis__work work;
    ignis__address address;
    bool ok = array != NULL;
    if (ok && ignis__capture_on(array->storage->device)) { /* each launch writes there, so the graph has to know the memory */
        ok = ignis__work_begin(call, array->storage->device, &work);
        if (ok) {
            ok = ignis__work_write(&work, array, &address);
            ignis__work_end(&work);
        }
    } else if (ok) {
        ignis__array_written(array);
    }
    return ignis__array_end(call, array, ok);
}

/*  Queued copies, and what sets bytes to zero. */
static bool ignis__copy_up(const ignis__work *work, ignis__address to, const void *from, int64_t size)
{
    ignis__traced traced;
    bool open = ignis__traced_copy(&traced, work->call, work->device, work->stream, "copy to the device", size);
    bool ok = !IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyHtoDAsync_v2, (to, from, (size_t)size, work->stream));
    return open ? ignis__traced_close(&traced, ok) : ok;
}

static bool ignis__copy_down(const ignis__work *work, void *to, ignis__address from, int64_t size)
{
    ignis__traced traced;
    bool open = ignis__traced_copy(&traced, work->call, work->device, work->stream, "copy to the host", size);
    bool ok = !IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyDtoHAsync_v2, (to, from, (size_t)size, work->stream));
    return open ? ignis__traced_close(&traced, ok) : ok;
}

static bool ignis__copy_zeros(const ignis__work *work, ignis__address to, int64_t size)
{
    ignis__traced traced;
    bool open = ignis__traced_copy(&traced, work->call, work->device, work->stream, "zeros", size);
    bool ok = !IGNIS__CUDA_FAILED(work->call, work->device, cuMemsetD8Async, (to, 0, (size_t)size, work->stream));
    return open ? ignis__traced_close(&traced, ok) : ok;
}

static bool ignis__copy_on_device(const ignis__work *work, ignis__address to, ignis__address from, int64_t size)
{
    ignis__traced traced;
    bool open, ok;
    if (size == 0 || to == from)
        return true;
    open = ignis__traced_copy(&traced, work->call, work->device, work->stream, "copy on the device", 2 * size);
    ok = !IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyDtoDAsync_v2, (to, from, (size_t)size, work->stream));
    return open ? ignis__traced_close(&traced, ok) : ok;
}

static ignis_status ignis__array_set_zero(const char *call, ignis_array handle)
{
    ignis__work work;
    ignis__array *array = ignis__array_work(call, handle, &work);
    ignis__address address = 0;
    bool ok = array && ignis__work_write(&work, array, &address);
    if (ok && array->numel)
        ok = ignis__copy_zeros(&work, address, ignis__array_bytes(array));
    return ignis__array_work_end(&work, array, ok);
}

IGNIS_API ignis_status ignis_array_zero(ignis_array array) { return ignis__array_set_zero("ignis_array_zero", array); }

/*  The driver has read pageable memory when the copy call returns; pinned memory it reads later, so there Ignis waits. */
IGNIS__COLD static bool ignis__copy_from_host(const ignis__work *work, ignis__address to, const void *from, int64_t size)
{
    int type, ordinal;
    if (size == 0)
        return true;
    if (ignis__capture_refuses(work->call))
        return false;
    if (!ignis__address_query(work->call, work->device, from, &type, &ordinal) || !ignis__copy_up(work, to, from, size))
        return false;
    return type == 0 || !IGNIS__CUDA_FAILED(work->call, work->device, cuStreamSynchronize, (work->stream));
}

IGNIS__COLD static bool ignis__copy_to_host(const ignis__work *work, void *to, ignis__address from, int64_t size)
{
    if (ignis__capture_refuses(work->call))
        return false;
    if (size > 0 && !ignis__copy_down(work, to, from, size))
        return false;
    return !IGNIS__CUDA_FAILED(work->call, work->device, cuStreamSynchronize, (work->stream));
}

/*  Converting copies go through this many bytes of host memory. */
#define IGNIS__CONVERT_CHUNK ((int64_t)4 << 20)

static bool ignis__convert_from_host(const ignis__work *work, ignis__address to, ignis_dtype to_dtype, const void *from,
                                     ignis_dtype from_dtype, int64_t count)
{
    int64_t size = ignis__dtypes[to_dtype].size, step = IGNIS__CONVERT_CHUNK / size, done, part;
    void *chunk = ignis__alloc((size_t)((count < step ? count : step) * size + 1));
    bool ok = chunk != NULL;
    if (!ok)
        ignis__fail_host_memory(work->call, (size_t)IGNIS__CONVERT_CHUNK);
    for (done = 0; ok && done < count; done += part) {
        part = count - done < step ? count - done : step;
        ignis__convert(chunk, to_dtype, (const char *)from + done * ignis__dtypes[from_dtype].size, from_dtype, part);
        ok = ignis__copy_from_host(work, to + (uint64_t)(done * size), chunk, part * size);
    }
    ignis__free(chunk);
    return ok;
}

static bool ignis__convert_to_host(const ignis__work *work, void *to, ignis_dtype to_dtype, ignis__address from, ignis_dtype from_dtype,
                                   int64_t count)
{
    int64_t size = ignis__dtypes[from_dtype].size, step = IGNIS__CONVERT_CHUNK / size, done, part;
    void *chunk = ignis__alloc((size_t)((count < step ? count : step) * size + 1));
    bool ok = chunk != NULL;
    if (!ok)
        ignis__fail_host_memory(work->call, (size_t)IGNIS__CONVERT_CHUNK);
    for (done = 0; ok && done < count; done += part) {
        part = count - done < step ? count - done : step;
        ok = ignis__copy_to_host(work, chunk, from + (uint64_t)(done * size), part * size);
        if (ok)
            ignis__convert((char *)to + done * ignis__dtypes[to_dtype].size, to_dtype, chunk, from_dtype, part);
    }
    ignis__free(chunk);
    return ok;
}

/*  What the four transfers check: a host pointer, and as many elements or bytes as the array has. */
IGNIS__COLD static bool ignis__transfer_check(const char *call, const ignis__array *array, const void *host, const char *host_name,
                                              int64_t count, int64_t needed, const char *unit)
{
    if (count != needed)
        return ignis__refuse(IGNIS_DIAG_COUNT_MISMATCH, call, "%s %s %s has %lld %s, the call says %lld", ignis__array_label(array).text,
                             ignis__shape_write(&array->shape).text, ignis__dtypes[array->dtype].name, (long long)needed, unit,
                             (long long)count);
    return needed == 0 || ignis__given(call, host_name, host);
}

IGNIS__COLD static ignis_status ignis__array_from_host(const char *call, ignis__array *array, const void *data, ignis_dtype dtype)
{
    ignis__work work;
    ignis__address address;
    bool ok = ignis__work_begin(call, array->storage->device, &work);
    if (ok) {
        ok = (array->numel == 0 || !ignis__capture_refuses(call)) && ignis__work_write(&work, array, &address) &&
             (dtype == array->dtype ? ignis__copy_from_host(&work, address, data, ignis__array_bytes(array))
                                    : ignis__convert_from_host(&work, address, array->dtype, data, dtype, array->numel));
        ignis__work_end(&work);
    }
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD static ignis_status ignis__array_to_host(const char *call, ignis__array *array, void *out, ignis_dtype dtype)
{
    ignis__work work;
    ignis__address address;
    bool ok = ignis__work_begin(call, array->storage->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, array, &address) &&
             (dtype == array->dtype ? ignis__copy_to_host(&work, out, address, ignis__array_bytes(array))
                                    : ignis__convert_to_host(&work, out, dtype, address, array->dtype, array->numel));
        ignis__work_end(&work);
    }
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_from_host(ignis_array handle, const void *data, ignis_dtype dtype, int64_t count)
{
    static const char call[] = "ignis_array_from_host";
    ignis__array *array = ignis__array_hold(call, handle);
    bool ok = array != NULL;
    if (ok && dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    ok = ok && ignis__dtype_valid(call, dtype) && ignis__transfer_check(call, array, data, "data", count, array->numel, "elements") &&
         ignis__array_from_host(call, array, data, dtype) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_from_host_raw(ignis_array handle, const void *bytes, int64_t size)
{
    static const char call[] = "ignis_array_from_host_raw";
    ignis__array *array = ignis__array_hold(call, handle);
    bool ok = array && ignis__transfer_check(call, array, bytes, "bytes", size, ignis__array_bytes(array), "bytes") &&
              ignis__array_from_host(call, array, bytes, array->dtype) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_to_host(ignis_array handle, void *out, ignis_dtype dtype, int64_t count)
{
    static const char call[] = "ignis_array_to_host";
    ignis__array *array = ignis__array_hold(call, handle);
    bool ok = array != NULL;
    if (ok && dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    ok = ok && ignis__dtype_valid(call, dtype) && ignis__transfer_check(call, array, out, "out", count, array->numel, "elements") &&
         ignis__array_to_host(call, array, out, dtype) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_to_host_raw(ignis_array handle, void *out, int64_t size)
{
    static const char call[] = "ignis_array_to_host_raw";
    ignis__array *array = ignis__array_hold(call, handle);
    bool ok = array && ignis__transfer_check(call, array, out, "out", size, ignis__array_bytes(array), "bytes") &&
              ignis__array_to_host(call, array, out, array->dtype) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

/* --- tickets: work that a call has begun and not waited for --------------------------------------------------------------- */

/*  A part of a transfer that goes through a piece: a thread of the driver copies or converts it, in its place in the stream. */
typedef struct ignis__transfer_part {
    void *to;
    const void *from;
    ignis_dtype to_dtype, from_dtype;
    int64_t count;
} ignis__transfer_part;

typedef struct ignis__ticket {
    ignis__slot slot;
    ignis__device *device;
    ignis__spare_event *done;    /* behind the work; null: there is nothing to wait for */
    ignis__pinned *piece;        /* null: none is needed */
    ignis__transfer_part *parts; /* what the driver's thread has to do */
    void (*run)(void *context);  /* on a thread of its own, which is joined by who waits; null: there is none */
    void *context;
    ignis__thread_handle thread;
    bool joined;
    uint64_t through;     /* 1: it has run */
    ignis__record record; /* what failed in it */
} ignis__ticket;

static ignis__pool ignis__tickets = IGNIS__POOL(ignis__ticket, IGNIS__KIND_TICKET, "ticket", IGNIS_DIAG_TICKET_FREED);

/*  A ticket with nothing in it, that only its maker sees; null on failure. */
static ignis__ticket *ignis__ticket_make(const char *call, ignis__device *device)
{
    ignis__ticket *ticket = (ignis__ticket *)ignis__pool_take_zeroed(call, &ignis__tickets);
    if (ticket)
        ticket->device = device;
    return ticket;
}

static IGNIS__THREAD_RESULT ignis__ticket_thread(void *pointer)
{
    ignis__ticket *ticket = (ignis__ticket *)pointer;
    ticket->run(ticket->context);
    ticket->record = ignis__this_thread.record;
    memset(&ignis__this_thread.record, 0, sizeof ticket->record);
    ignis__atomic_store(&ticket->through, 1);
    return 0;
}

/*  A ticket for what a new thread does; null on failure. */
static ignis__ticket *ignis__ticket_start(const char *call, ignis__device *device, void (*run)(void *context), void *context)
{
    ignis__ticket *ticket = ignis__ticket_make(call, device);
    if (!ticket)
        return NULL;
    ticket->run = run;
    ticket->context = context;
    if (ignis__thread_start(&ticket->thread, ignis__ticket_thread, ticket))
        return ticket;
    ignis__pool_give(&ignis__tickets, ticket);
    ignis__fail(IGNIS_DIAG_HOST_MEMORY, call, "the system has no thread to compile on");
    return NULL;
}

/*  Takes a ticket apart whose work is through. */
static void ignis__ticket_destroy(ignis__ticket *ticket)
{
    if (ticket->done)
        ignis__event_give(ticket->device, ticket->done);
    if (ticket->piece)
        ignis__piece_keep(ticket->device, ticket->piece);
    ignis__free(ticket->parts);
    free(ticket->record.message);
    ignis__pool_give(&ignis__tickets, ticket);
}

static void ignis__ticket_drop(ignis__ticket *ticket)
{
    if (ignis__pool_drop(ticket))
        ignis__ticket_destroy(ticket);
}

static void ignis__transfer_part_run(void *context)
{
    const ignis__transfer_part *part = (const ignis__transfer_part *)context;
    if (part->to_dtype == part->from_dtype)
        memcpy(part->to, part->from, (size_t)(part->count * ignis__dtypes[part->to_dtype].size));
    else
        ignis__convert(part->to, part->to_dtype, part->from, part->from_dtype, part->count);
}

/*  Whether a transfer needs no piece: all of the host's memory is pinned, as its ends are. */
static bool ignis__transfer_direct(const ignis__work *work, const void *host, int64_t size, bool *direct)
{
    int first, last = 0, ordinal;
    bool ok = ignis__address_query(work->call, work->device, host, &first, &ordinal) &&
              ignis__address_query(work->call, work->device, (const char *)host + size - 1, &last, &ordinal);
    *direct = ok && first != 0 && last != 0;
    return ok;
}

/*  Queues a transfer of an array that has elements; out or data is null. */
static bool ignis__transfer_queue(const ignis__work *work, ignis__ticket *ticket, ignis__address address, ignis_dtype array_dtype,
                                  void *out, const void *data, ignis_dtype dtype, int64_t count)
{
    int64_t size = ignis__dtypes[array_dtype].size, step = IGNIS__PIECE / size, done;
    ignis__transfer_part *part;
    bool direct = false, ok = true;
    if (dtype == array_dtype && !ignis__transfer_direct(work, out ? out : data, count * size, &direct))
        return false;
    if (direct && out)
        return ignis__copy_down(work, out, address, count * size);
    if (direct)
        return ignis__copy_up(work, address, data, count * size);
    ticket->parts = (ignis__transfer_part *)ignis__alloc_for(work->call, (size_t)((count + step - 1) / step) * sizeof *part);
    if (!ticket->parts)
        return false;
    ticket->piece = ignis__piece_take(work->call, work->device, IGNIS__PIECE);
    ok = ticket->piece != NULL;
    for (done = 0, part = ticket->parts; ok && done < count; done += part->count, part++) {
        ignis__address at = address + (uint64_t)(done * size);
        void *piece = ticket->piece->memory;
        part->count = count - done < step ? count - done : step;
        part->to = out ? (char *)out + done * ignis__dtypes[dtype].size : (char *)piece;
        part->from = out ? (const char *)piece : (const char *)data + done * ignis__dtypes[dtype].size;
        part->to_dtype = out ? dtype : array_dtype;
        part->from_dtype = out ? array_dtype : dtype;
        ok = (!out || ignis__copy_down(work, piece, at, part->count * size)) &&
             !IGNIS__CUDA_FAILED(work->call, work->device, cuLaunchHostFunc, (work->stream, ignis__transfer_part_run, part)) &&
             (out || ignis__copy_up(work, at, piece, part->count * size));
    }
    return ok;
}

IGNIS__COLD static ignis_ticket ignis__transfer_begin(const char *call, ignis_array handle, void *out, const void *data, ignis_dtype dtype,
                                                      int64_t count, bool to_host)
{
    ignis_ticket result = IGNIS__ZERO;
    ignis__work work;
    ignis__array *array = ignis__array_work(call, handle, &work);
    ignis__ticket *ticket = NULL;
    ignis__address address = 0;
    bool ok = array != NULL;
    if (ok && dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    ok = ok && ignis__dtype_valid(call, dtype) &&
         ignis__transfer_check(call, array, to_host ? out : data, to_host ? "out" : "data", count, array->numel, "elements") &&
         !ignis__capture_refuses(call) &&
         (to_host ? ignis__work_read(&work, array, &address) : ignis__work_write(&work, array, &address)) &&
         (ticket = ignis__ticket_make(call, work.device)) != NULL;
    if (ok && count > 0) {
        ok = ignis__transfer_queue(&work, ticket, address, array->dtype, out, data, dtype, count) &&
             (ticket->done = ignis__event_record(call, work.device, work.stream)) != NULL;
        if (!ok)
            (void)ignis__device_finish(work.device); /* what is queued already uses the host's memory and the piece */
    }
    if (ok)
        result.id = ignis__pool_publish(&ignis__tickets, ticket);
    else if (ticket)
        ignis__ticket_destroy(ticket);
    ignis__array_work_end(&work, array, ok);
    return result;
}

IGNIS_API ignis_ticket ignis_array_to_host_async(ignis_array array, void *out, ignis_dtype dtype, int64_t count)
{
    return ignis__transfer_begin("ignis_array_to_host_async", array, out, NULL, dtype, count, true);
}

IGNIS_API ignis_ticket ignis_array_from_host_async(ignis_array array, const void *data, ignis_dtype dtype, int64_t count)
{
    return ignis__transfer_begin("ignis_array_from_host_async", array, NULL, data, dtype, count, false);
}

IGNIS_API ignis_status ignis_ticket_query(ignis_ticket handle, bool *done)
{
    static const char call[] = "ignis_ticket_query";
    ignis__ticket *ticket = (ignis__ticket *)ignis__handle_hold(call, &ignis__tickets, handle.id);
    ignis__binding binding;
    bool ok;
    if (!ticket)
        return ignis__failed();
    ok = ignis__given(call, "done", done);
    if (ok) {
        *done = !ticket->run || ignis__atomic_load(&ticket->through);
        if (ticket->done && !ignis__devices_lost() && (ok = ignis__device_enter(call, ticket->device, &binding)) == true) {
            *done = IGNIS__CUDA(cuEventQuery, (ticket->done->event)) != IGNIS__CU_NOT_READY;
            ignis__device_leave(&binding);
        }
    }
    ignis__ticket_drop(ticket);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Waits for the work of a held ticket, and ends the ticket and the hold. */
static ignis_status ignis__ticket_finish(const char *call, ignis__ticket *ticket)
{
    ignis__binding binding;
    bool ok = true, entered = ticket->done && ignis__device_enter(call, ticket->device, &binding);
    if (ticket->done) {
        ok = entered;
        if (!ignis__devices_lost() && IGNIS__CUDA_FAILED(call, ticket->device, cuEventSynchronize, (ticket->done->event))) {
            ok = false;
            (void)ignis__device_finish(ticket->device); /* what the work uses is the caller's again from here on */
        }
    }
    if (entered)
        ignis__device_leave(&binding);
    if (ticket->run) {
        ignis__mutex_lock(&ticket->slot.lock);
        if (!ticket->joined)
            ignis__thread_join(ticket->thread);
        ticket->joined = true;
        ignis__mutex_unlock(&ticket->slot.lock);
        ok = ticket->record.status == IGNIS_OK || ignis__record_repeat(&ticket->record) == IGNIS_OK;
    }
    ignis__handle_kill(ticket);
    ignis__ticket_drop(ticket);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_ticket_wait(ignis_ticket handle)
{
    static const char call[] = "ignis_ticket_wait";
    ignis__ticket *ticket = (ignis__ticket *)ignis__handle_hold(call, &ignis__tickets, handle.id);
    return ticket ? ignis__ticket_finish(call, ticket) : ignis__failed();
}

/*  Tickets that nobody has waited for. */
IGNIS__COLD static void ignis__tickets_close(const char *call)
{
    ignis__ticket *ticket;
    uint64_t index = 0;
    while ((ticket = (ignis__ticket *)ignis__pool_next(&ignis__tickets, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "ticket of device %d, not waited for", ignis__device_ordinal(ticket->device));
        (void)ignis__ticket_finish(call, ticket);
    }
}

/*  Whether `size` bytes of dst from an offset on, which are about to be written, and those of src are the same, or apart. */
static bool ignis__array_apart(const char *call, const ignis__array *dst, int64_t offset, int64_t size, const ignis__array *src)
{
    uint64_t to = ignis__atomic_load(&dst->storage->address), from = ignis__atomic_load(&src->storage->address);
    uint64_t from_size = (uint64_t)ignis__array_bytes(src);
    if (!to || !from || size == 0 || from_size == 0)
        return true;
    to += (uint64_t)(dst->offset + offset);
    from += (uint64_t)src->offset;
    if (to + (uint64_t)size <= from || from + from_size <= to || (to == from && (uint64_t)size == from_size))
        return true;
    return ignis__refuse(IGNIS_DIAG_OVERLAP, call,
                         "%s (%llu bytes at 0x%llx) is read while a part of it is written, as %lld bytes of %s at 0x%llx",
                         ignis__array_label(src).text, (unsigned long long)from_size, (unsigned long long)from, (long long)size,
                         ignis__array_label(dst).text, (unsigned long long)to);
}

/*  Copies the bytes of src over those of dst from an offset on; both on one device. */
static bool ignis__array_copy_bytes(const char *call, ignis__array *dst, int64_t offset, ignis__array *src)
{
    ignis__work work;
    ignis__address to, from;
    bool ok = ignis__work_begin(call, dst->storage->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, src, &from) && ignis__work_write(&work, dst, &to) &&
             ignis__copy_on_device(&work, to + (uint64_t)offset, from, ignis__array_bytes(src));
        ignis__work_end(&work);
    }
    return ok;
}

/*  Frees an array that a failed call has made and not yet returned. */
IGNIS__ONE_COPY static void ignis__array_discard(const char *call, ignis_array *handle)
{
    ignis__array *array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle->id);
    ignis__handle_kill(array);
    ignis__array_drop(call, array);
    handle->id = 0;
}

IGNIS__COLD IGNIS_API ignis_array ignis_array_clone(ignis_array handle)
{
    static const char call[] = "ignis_array_clone";
    ignis_array copy = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle), *made;
    if (!array)
        return copy;
    copy = ignis__array_create_like(call, array, array->dtype);
    if (copy.id) {
        made = (ignis__array *)ignis__pool_hold(&ignis__arrays, copy.id);
        if (!ignis__array_copy_bytes(call, made, 0, array))
            ignis__array_discard(call, &copy);
        ignis__array_drop(call, made);
    }
    ignis__array_drop(call, array);
    return copy;
}

IGNIS__COLD static ignis_array ignis__array_slice(const char *call, const ignis__array *array, int dim, int64_t start, int64_t len)
{
    ignis_array none = IGNIS__ZERO;
    ignis_shape shape = array->shape;
    int64_t leading = 1, trailing = 1, numel;
    int i;
    if (dim < 0 || dim >= shape.ndim) {
        ignis__fail(IGNIS_DIAG_SLICE_RANGE, call, "dim %d is outside shape %s", dim, ignis__shape_write(&shape).text);
        return none;
    }
    if (start < 0 || len < 0 || len > shape.dim[dim] || start > shape.dim[dim] - len) {
        ignis__fail(IGNIS_DIAG_SLICE_RANGE, call, "elements %lld to %lld + %lld are outside dim %d of shape %s", (long long)start,
                    (long long)start, (long long)len, dim, ignis__shape_write(&shape).text);
        return none;
    }
    for (i = 0; i < dim; i++)
        leading = shape.dim[i] > 1 ? 2 : leading; /* more than one is all that counts */
    if (leading > 1) {
        ignis__fail(IGNIS_DIAG_SLICE_STRIDED, call,
                    "a slice of dim %d of shape %s is strided: its elements are not next to each other. A view can hold dim 0, or a dim "
                    "with only 1s "
                    "before it; copy strided slices with a kernel",
                    dim, ignis__shape_write(&shape).text);
        return none;
    }
    for (i = dim + 1; i < shape.ndim; i++)
        trailing *= shape.dim[i];
    shape.dim[dim] = len;
    if (!ignis__shape_check(call, &shape, array->dtype, &numel))
        return none;
    return ignis__array_view(call, array, &shape, numel, array->numel ? start * trailing * ignis__dtypes[array->dtype].size : 0);
}

IGNIS_API ignis_array ignis_array_slice(ignis_array handle, int dim, int64_t start, int64_t len)
{
    static const char call[] = "ignis_array_slice";
    ignis_array view = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array)
        return view;
    view = ignis__array_slice(call, array, dim, start, len);
    ignis__array_drop(call, array);
    return view;
}

/*  Replaces the one -1 of a shape by what is left of numel; a shape without it stays. */
static bool ignis__shape_infer(const char *call, ignis_shape *shape, int64_t numel)
{
    int64_t known = 1;
    int i, open = -1;
    for (i = 0; i < shape->ndim && i < IGNIS_MAX_DIMS; i++) {
        if (shape->dim[i] == -1 && open >= 0)
            return ignis__refuse(IGNIS_DIAG_SHAPE_DIM, call, "shape %s leaves more than one dimension open",
                                 ignis__shape_write(shape).text);
        if (shape->dim[i] == -1)
            open = i;
        else if (shape->dim[i] < 0 || !ignis__multiply(known, shape->dim[i], &known))
            return true; /* the check that follows says what is wrong */
    }
    if (open >= 0 && (known == 0 || numel % known != 0))
        return ignis__refuse(IGNIS_DIAG_SHAPE_DIFFERS, call, "%lld elements cannot be laid out as %s", (long long)numel,
                             ignis__shape_write(shape).text);
    if (open >= 0)
        shape->dim[open] = numel / known;
    return true;
}

IGNIS__COLD IGNIS_API ignis_array ignis_array_reshape(ignis_array handle, ignis_shape shape)
{
    static const char call[] = "ignis_array_reshape";
    ignis_array view = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle);
    int64_t numel;
    if (!array)
        return view;
    if (ignis__shape_infer(call, &shape, array->numel) && ignis__shape_check(call, &shape, array->dtype, &numel)) {
        if (numel != array->numel)
            ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "%s %s has %lld elements, the new shape %s has %lld",
                        ignis__array_label(array).text, ignis__shape_write(&array->shape).text, (long long)array->numel,
                        ignis__shape_write(&shape).text, (long long)numel);
        else
            view = ignis__array_view(call, array, &shape, numel, 0);
    }
    ignis__array_drop(call, array);
    return view;
}

IGNIS__COLD static bool ignis__write_rows_check(const char *call, const ignis__array *dst, const ignis__array *src, int64_t start_row,
                                                int64_t *row_bytes)
{
    int64_t rows = dst->shape.dim[0];
    *row_bytes = rows && dst->numel ? ignis__array_bytes(dst) / rows : 0;
    if (dst->dtype != src->dtype)
        return ignis__refuse(IGNIS_DIAG_DTYPE_DIFFERS, call, "dst is %s, src is %s", ignis__dtypes[dst->dtype].name,
                             ignis__dtypes[src->dtype].name);
    if (dst->storage->device != src->storage->device)
        return ignis__refuse(IGNIS_DIAG_DEVICE_DIFFERS, call, "dst is on device %d, src is on device %d",
                             ignis__device_ordinal(dst->storage->device), ignis__device_ordinal(src->storage->device));
    if (start_row < 0 || start_row > rows)
        return ignis__refuse(IGNIS_DIAG_ROWS_OVERFLOW, call, "row %lld is outside dst %s", (long long)start_row,
                             ignis__shape_write(&dst->shape).text);
    if (src->numel && (*row_bytes == 0 || ignis__array_bytes(src) % *row_bytes != 0))
        return ignis__refuse(IGNIS_DIAG_SHAPE_DIFFERS, call, "src %s is not a whole number of rows of dst %s",
                             ignis__shape_write(&src->shape).text, ignis__shape_write(&dst->shape).text);
    if (src->numel && ignis__array_bytes(src) / *row_bytes > rows - start_row)
        return ignis__refuse(IGNIS_DIAG_ROWS_OVERFLOW, call,
                             "writing %lld bytes at row %lld (offset %lld) goes beyond the %lld bytes of dst %s",
                             (long long)ignis__array_bytes(src), (long long)start_row, (long long)(start_row * *row_bytes),
                             (long long)ignis__array_bytes(dst), ignis__shape_write(&dst->shape).text);
    return true;
}

IGNIS__ONE_COPY static void ignis__array_drop_all(const char *call, int count, ignis__array **arrays)
{
    while (count > 0)
        ignis__array_drop(call, arrays[--count]);
}

/*  Holds two or three arrays of one call; false when one is stale, with none held. A null handle pointer is skipped. */
static bool ignis__array_hold_all(const char *call, int count, const ignis_array *handles, ignis__array **arrays)
{
    int i;
    for (i = 0; i < count; i++) {
        arrays[i] = ignis__array_hold(call, handles[i]);
        if (!arrays[i]) {
            ignis__array_drop_all(call, i, arrays);
            return false;
        }
    }
    return true;
}

IGNIS_API ignis_status ignis_array_write_rows(ignis_array dst, ignis_array src, int64_t start_row)
{
    static const char call[] = "ignis_array_write_rows";
    const ignis_array handles[] = {dst, src};
    ignis__array *arrays[2];
    int64_t row_bytes;
    bool ok;
    if (!ignis__array_hold_all(call, 2, handles, arrays))
        return ignis__failed();
    ok = ignis__write_rows_check(call, arrays[0], arrays[1], start_row, &row_bytes) &&
         ignis__array_apart(call, arrays[0], start_row * row_bytes, ignis__array_bytes(arrays[1]), arrays[1]) &&
         (arrays[1]->numel == 0 || ignis__array_copy_bytes(call, arrays[0], start_row * row_bytes, arrays[1]));
    ignis__array_drop_all(call, 2, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Gives the array its pinned memory; null: asks whether it may have some. */
IGNIS__COLD static bool ignis__array_set_pinned(const char *call, ignis__array *array, void *memory)
{
    bool ok;
    if (!ignis__array_lock(call, array))
        return false;
    ok = !array->pinned || ignis__refuse(IGNIS_DIAG_PIN_TWICE, call, "%s has pinned host memory already", ignis__array_label(array).text);
    if (ok)
        array->pinned = memory;
    ignis__array_unlock(array);
    return ok;
}

IGNIS__COLD IGNIS_API void *ignis_array_pin(ignis_array handle)
{
    static const char call[] = "ignis_array_pin";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis__device *device;
    ignis__binding binding;
    void *pinned = NULL;
    if (!array)
        return NULL;
    device = array->storage->device;
    if (ignis__array_set_pinned(call, array, NULL) && array->numel > 0 && ignis__device_enter(call, device, &binding)) {
        pinned = ignis__pinned_take(call, device, ignis__array_bytes(array)); /* which may wait for the device: without the lock */
        if (pinned && !ignis__array_set_pinned(call, array, pinned)) {
            (void)ignis__pinned_give(call, device, pinned, ignis__array_bytes(array));
            pinned = NULL;
        }
        ignis__device_leave(&binding);
    }
    ignis__array_drop(call, array);
    return pinned;
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_unpin(ignis_array handle)
{
    static const char call[] = "ignis_array_unpin";
    ignis__array *array = ignis__array_enter(call, handle);
    void *pinned = NULL;
    bool ok = false;
    if (!array)
        return ignis__failed();
    if (ignis__capture_refuses(call))
        return ignis__array_leave(call, array, false);
    if (array->owner != IGNIS_OWNER_IGNIS) {
        ignis__fail(IGNIS_DIAG_FREE_BY_OTHER, call,
                    "%s is owned by %s, which may be using its pinned host memory; that is freed when ignis owns the array",
                    ignis__array_label(array).text, ignis__owner_name(array->owner));
    } else if (!array->pinned && array->numel > 0) {
        ignis__fail(IGNIS_DIAG_PIN_MISSING, call, "%s has no pinned host memory", ignis__array_label(array).text);
    } else {
        ok = true;
        pinned = array->pinned;
        array->pinned = NULL;
    }
    ignis__array_unlock(array);
    if (pinned)
        ok = ignis__pinned_give(call, array->storage->device, pinned, ignis__array_bytes(array)) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

IGNIS_API int ignis_array_increment_ref(ignis_array handle)
{
    static const char call[] = "ignis_array_increment_ref";
    ignis__array *array = ignis__array_enter(call, handle);
    int count = -1;
    if (!array)
        return -1;
    if (array->ref_count == INT_MAX)
        ignis__fail(IGNIS_DIAG_REF_COUNT_OVERFLOW, call, "%s has %d references, and no room for another", ignis__array_label(array).text,
                    array->ref_count);
    else
        count = ++array->ref_count;
    ignis__array_leave(call, array, true);
    return count;
}

IGNIS_API int ignis_array_decrement_ref(ignis_array handle)
{
    static const char call[] = "ignis_array_decrement_ref";
    ignis__array *array = ignis__array_enter(call, handle);
    int count = -1;
    if (!array)
        return -1;
    if (array->ref_count == 0)
        ignis__fail(IGNIS_DIAG_REF_COUNT_ZERO, call, "%s, owned by %s, has a ref_count of 0 already", ignis__array_label(array).text,
                    ignis__owner_name(array->owner));
    else
        count = ignis__array_unref(array);
    ignis__array_leave(call, array, true);
    return count;
}

/*  Moves ownership of a locked array. */
IGNIS__COLD static ignis_status ignis__array_transfer(const char *call, ignis__array *array, ignis_owner owner)
{
    if (array->exports > 0)
        return ignis__fail_exported(call, array, "given to another owner");
    if (array->ref_count > 1)
        return ignis__fail(IGNIS_DIAG_TRANSFER_REFERENCED, call, "%s cannot move from owner %s to %s while its ref_count is %d, above 1",
                           ignis__array_label(array).text, ignis__owner_name(array->owner), ignis__owner_name(owner), array->ref_count);
    array->owner = owner;
    array->borrower = NULL;
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_array_transfer_ownership(ignis_array handle, ignis_owner owner)
{
    static const char call[] = "ignis_array_transfer_ownership";
    ignis__array *array = ignis__array_enter_reaped(call, handle, true);
    if (!array)
        return ignis__failed();
    return ignis__array_leave(call, array, ignis__owner_valid(call, owner) && ignis__array_transfer(call, array, owner) == IGNIS_OK);
}

/*  Every storage that has the stream as its own, or was used on it, takes Ignis' own stream instead. The stream is idle. */
IGNIS__COLD static void ignis__storages_forget_stream(ignis__device *device, void *stream)
{
    ignis__storage *storage;
    ignis__mutex_lock(&ignis__storages.lock);
    for (storage = ignis__storages.first; storage; storage = storage->next) {
        int i;
        ignis__mutex_lock(&storage->lock);
        if (storage->device == device && storage->stream == stream) {
            ignis__atomic_store(&storage->at_hand, 0);
            storage->stream = device->stream;
        }
        if (storage->device == device && storage->summed_on == stream)
            storage->summed_on = NULL;
        for (i = 0; i < storage->used_on_count; i++)
            if (storage->used_on[i].stream == stream && storage->used_on[i].device == device)
                storage->used_on[i--] = storage->used_on[--storage->used_on_count];
        ignis__mutex_unlock(&storage->lock);
    }
    ignis__mutex_unlock(&ignis__storages.lock);
}

/*  Waits for a stream, and takes it out of all that has to do with it. created: it is one of ignis_stream_create, which has to be known. gone:
    nothing has to do with it any more, though its work may have failed. */
IGNIS__COLD static ignis_status ignis__stream_forget(const char *call, void *stream, bool created, bool *gone)
{
    ignis_status status = IGNIS_OK;
    bool found = !created;
    int i;
    if (!stream)
        return IGNIS_OK;
    if (!ignis__enter(call) || ignis__capture_refuses(call))
        return ignis__failed();
    for (i = 0; i < ignis__device_total; i++) {
        ignis__device *device = &ignis__devices[i];
        ignis__foreign_stream *foreign, **link;
        ignis__binding binding;
        uint64_t serial;
        bool entered, mine, ok;
        if (!ignis__atomic_load(&device->opened))
            continue;
        ignis__mutex_lock(&device->lock);
        for (foreign = device->foreign; foreign && foreign->stream != stream; foreign = foreign->next)
            ;
        found = foreign ? foreign->created == created : found;
        serial = foreign ? foreign->serial : 0;
        ignis__mutex_unlock(&device->lock);
        if (!foreign || !found)
            continue;
        entered = ignis__device_enter_to_give(call, device, &binding) ||
                  ignis__device_enter(call, device, &binding); /* the second says why not */
        if (!entered && !ignis__atomic_load(&ignis__devices_fault))
            return ignis__failed(); /* nothing is forgotten, as nothing can be waited for */
        ignis__mutex_lock(&device->lock);
        for (link = &device->foreign; *link && (*link)->serial != serial; link = &(*link)->next)
            ;
        foreign = *link;
        mine = foreign != NULL; /* else another thread was faster, and another stream may have its place in memory */
        if (mine)
            *link = foreign->next;
        found = mine || !created;
        ignis__mutex_unlock(&device->lock);
        if (mine) {
            ignis__atomic_add(&ignis__stream_forgets, 1);
            ok = entered && !IGNIS__CUDA_FAILED(call, device, cuStreamSynchronize, (stream));
            ignis__mutex_lock(&foreign->lock); /* the stream is idle: a thread that waits for it does not for long */
            foreign->forgotten = true;
            ignis__mutex_unlock(&foreign->lock);
            ignis__foreign_drop(device, foreign);
            if (!ok)
                status = ignis__failed();
            if (entered && !ok)
                (void)ignis__device_finish(device); /* what was the stream's is used again from here on */
            ignis__storages_forget_stream(device, stream);
            if (entered) {
                (void)IGNIS__CUDA(cuStreamSynchronize, (stream)); /* arrays freed until then have made it wait for other streams */
                ignis__memory_forget_stream(device, stream);
            }
        }
        if (entered)
            ignis__device_leave(&binding);
    }
    *gone = found;
    if (found)
        return status;
    return ignis__fail(IGNIS_DIAG_STREAM_INVALID, call,
                       created ? "stream %p is none of ignis_stream_create, or was freed already"
                               : "stream %p is one of ignis_stream_create: free it with ignis_stream_free",
                       stream);
}

IGNIS__COLD IGNIS_API ignis_status ignis_stream_forget(void *stream)
{
    bool gone = false;
    return ignis__stream_forget("ignis_stream_forget", stream, false, &gone);
}

IGNIS__COLD IGNIS_API ignis_status ignis_stream_free(void *stream)
{
    bool gone = false;
    ignis_status status = ignis__stream_forget("ignis_stream_free", stream, true, &gone);
    if (gone)
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (stream)); /* it is this thread's alone, whatever its work ended with */
    return status;
}

/* ===============================================================================================================
   >>contract - acquire, release, assert, track, audit.
   =============================================================================================================== */

/*  What is tracked is kept in the array itself, under its lock; the tracking lock guards the counts and the freed ones. */
static void ignis__track(ignis__array *array, bool by_user)
{
    bool fresh = array->tracked_at_ns == 0;
    if (fresh || by_user)
        array->tracked_at_ns = ignis__monotonic_ns();
    array->tracked_by_user = array->tracked_by_user || by_user;
    if (fresh) {
        ignis__mutex_lock(&ignis__tracking.lock);
        ignis__tracking.live++;
        ignis__mutex_unlock(&ignis__tracking.lock);
    }
}

static void ignis__untrack(ignis__array *array)
{
    if (array->tracked_at_ns) {
        ignis__mutex_lock(&ignis__tracking.lock);
        ignis__tracking.live--;
        ignis__mutex_unlock(&ignis__tracking.lock);
    }
    array->tracked_at_ns = 0;
    array->tracked_by_user = false;
}

/*  Drops a freed array out of the list, which is locked. */
static void ignis__tracked_forget(ignis__tracked_freed **link)
{
    ignis__tracked_freed *freed = *link;
    *link = freed->next;
    ignis__tracking.freed_count--;
    ignis__free(freed);
}

/*  Makes a layer the owner of a held array until a call of it ends; the borrower tells the call from others, and may borrow an array again.
    Unlike ignis_contract_acquire it does not mind references, and leaves no trace: ignis__contract_return gives the array back. */
IGNIS__MAYBE_UNUSED static bool ignis__contract_borrow(const char *call, ignis__array *array, ignis_owner by, const void *borrower)
{
    ignis_owner owner;
    bool again;
    if (!ignis__array_lock(call, array))
        return false;
    owner = array->owner;
    again = array->borrower == borrower;
    if (owner == IGNIS_OWNER_IGNIS) {
        array->owner = by;
        array->borrower = borrower;
    }
    ignis__array_unlock(array);
    if (owner == IGNIS_OWNER_IGNIS || again)
        return true;
    return ignis__refuse(owner == by ? IGNIS_DIAG_DOUBLE_ACQUIRE : IGNIS_DIAG_OWNER_DIFFERS, call, "%s is owned by %s%s",
                         ignis__array_label(array).text, ignis__owner_name(owner),
                         owner == by ? " already: another thread's call works on it, or it was acquired"
                                     : ", which has to release it first");
}

IGNIS__MAYBE_UNUSED static void ignis__contract_return(ignis__array *array, const void *borrower)
{
    ignis__mutex_lock(&array->slot.lock);
    if (array->borrower == borrower) {
        array->owner = IGNIS_OWNER_IGNIS;
        array->borrower = NULL;
    }
    ignis__array_unlock(array);
}

IGNIS_API ignis_status ignis_contract_acquire(ignis_array handle, ignis_owner by)
{
    static const char call[] = "ignis_contract_acquire";
    ignis__array *array = ignis__array_enter_reaped(call, handle, false);
    bool ok;
    if (!array)
        return ignis__failed();
    ok = ignis__owner_valid(call, by);
    if (ok && array->owner == by)
        ok = ignis__refuse(IGNIS_DIAG_DOUBLE_ACQUIRE, call, "%s is already owned by %s: a double acquire", ignis__array_label(array).text,
                           ignis__owner_name(by));
    ok = ok && ignis__array_transfer(call, array, by) == IGNIS_OK;
    if (ok)
        ignis__track(array, false);
    return ignis__array_leave(call, array, ok);
}

IGNIS_API ignis_status ignis_contract_release(ignis_array handle, ignis_owner by)
{
    static const char call[] = "ignis_contract_release";
    ignis__array *array;
    bool ok;
    if (!handle.id)
        return IGNIS_OK;
    array = ignis__array_enter_reaped(call, handle, false);
    if (!array)
        return ignis__failed();
    ok = ignis__owner_valid(call, by);
    if (ok && array->owner != by)
        ok = ignis__refuse(IGNIS_DIAG_RELEASE_BY_OTHER, call, "%s is owned by %s, not by %s, which therefore cannot release it",
                           ignis__array_label(array).text, ignis__owner_name(array->owner), ignis__owner_name(by));
    return ignis__array_leave(call, array, ok && ignis__array_transfer(call, array, IGNIS_OWNER_IGNIS) == IGNIS_OK);
}

IGNIS__COLD IGNIS_API ignis_status ignis_contract_assert_owner(ignis_array handle, ignis_owner owner)
{
    static const char call[] = "ignis_contract_assert_owner";
    ignis__array *array = ignis__array_enter_reaped(call, handle, false);
    bool ok;
    if (!array)
        return ignis__failed();
    ok = ignis__owner_valid(call, owner);
    if (ok && array->owner != owner)
        ok = ignis__refuse(IGNIS_DIAG_OWNER_DIFFERS, call, "%s was expected to be owned by %s, but is owned by %s",
                           ignis__array_label(array).text, ignis__owner_name(owner), ignis__owner_name(array->owner));
    return ignis__array_leave(call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_contract_track(ignis_array handle)
{
    static const char call[] = "ignis_contract_track";
    ignis__array *array = ignis__array_enter_reaped(call, handle, false);
    if (!array)
        return ignis__failed();
    ignis__track(array, true);
    return ignis__array_leave(call, array, true);
}

IGNIS__COLD IGNIS_API ignis_status ignis_contract_untrack(ignis_array handle)
{
    static const char call[] = "ignis_contract_untrack";
    ignis__tracked_freed **link;
    ignis__array *array;
    bool live;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (array) {
        ignis__mutex_lock(&array->slot.lock);
        live = ignis__pool_live(array); /* else another thread has freed it meanwhile */
        if (live)
            ignis__untrack(array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
        if (live)
            return IGNIS_OK;
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    for (link = &ignis__tracking.freed; *link && (*link)->handle != handle.id; link = &(*link)->next)
        ;
    if (*link)
        ignis__tracked_forget(link);
    ignis__mutex_unlock(&ignis__tracking.lock);
    return IGNIS_OK;
}

static int ignis__audit_older(const void *a, const void *b)
{
    int64_t age_a = ((const ignis_contract_entry *)a)->age_ms, age_b = ((const ignis_contract_entry *)b)->age_ms;
    uint64_t id_a = ((const ignis_contract_entry *)a)->array_id, id_b = ((const ignis_contract_entry *)b)->array_id;
    return age_a != age_b ? (age_a < age_b) - (age_a > age_b) : (id_a > id_b) - (id_a < id_b);
}

/*  Audits are one at a time, and numbered: an array that is freed between the looks at the live and at the freed ones is listed once. */
static struct {
    ignis__mutex lock;
    uint64_t count;
} ignis__audits = {IGNIS__MUTEX_INIT, 0};

/*  Collects the oldest `capacity` entries in the order of their age; returns how many there are in all. */
typedef struct ignis__audit {
    ignis_contract_entry *entries;
    int capacity, kept, found;
    int64_t now_ns, min_age_ms;
} ignis__audit;

IGNIS__COLD static void ignis__audit_add(ignis__audit *audit, ignis_contract_entry *entry, int64_t tracked_at_ns)
{
    int place;
    entry->age_ms = (audit->now_ns - tracked_at_ns) / 1000000;
    if (entry->age_ms <= audit->min_age_ms)
        return;
    audit->found++;
    for (place = audit->kept; place > 0 && ignis__audit_older(entry, &audit->entries[place - 1]) < 0; place--)
        if (place < audit->capacity)
            audit->entries[place] = audit->entries[place - 1];
    if (place < audit->capacity)
        audit->entries[place] = *entry;
    if (audit->kept < audit->capacity)
        audit->kept++;
}

IGNIS__COLD IGNIS_API int ignis_contract_audit(ignis_contract_entry *entries, int capacity, int64_t min_age_ms)
{
    static const char call[] = "ignis_contract_audit";
    ignis__audit audit = IGNIS__ZERO;
    ignis__tracked_freed *freed;
    ignis__slot *dead = NULL;
    ignis__array *array;
    uint64_t index = 0;
    if (!ignis__enter(call) || !ignis__room_given(call, "entries", entries, capacity))
        return -1;
    while (ignis__exports_reap && (array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        bool exported;
        ignis__mutex_lock(&array->slot.lock);
        exported = array->exports > 0;
        ignis__mutex_unlock(&array->slot.lock);
        if (exported)
            ignis__exports_reap(call, array, false);
        ignis__array_drop(call, array);
    }
    audit.entries = entries;
    audit.capacity = capacity;
    audit.now_ns = ignis__monotonic_ns();
    audit.min_age_ms = min_age_ms == 0 ? 5000 : min_age_ms;
    index = 0;
    ignis__mutex_lock(&ignis__audits.lock);
    ignis__audits.count++;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        ignis_contract_entry entry;
        ignis__mutex_lock(&array->slot.lock);
        if (array->tracked_at_ns && ignis__pool_live(array)) {
            ignis__track_entry(array, &entry);
            ignis__audit_add(&audit, &entry, array->tracked_at_ns);
            array->audit = ignis__audits.count;
        }
        ignis__array_unlock(array);
        if (ignis__pool_drop(array)) { /* another thread has freed it meanwhile */
            array->slot.next_free = dead;
            dead = &array->slot;
        }
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    for (freed = ignis__tracking.freed; freed; freed = freed->next)
        if (freed->audit != ignis__audits.count)
            ignis__audit_add(&audit, &freed->entry, freed->tracked_at_ns);
    ignis__mutex_unlock(&ignis__tracking.lock);
    ignis__mutex_unlock(&ignis__audits.lock);
    while (dead) { /* without the lock: who is told of the release of wrapped memory may audit, too */
        array = (ignis__array *)(void *)dead;
        dead = dead->next_free;
        ignis__array_destroy(call, array);
    }
    return audit.found;
}

IGNIS_API int ignis_contract_tracked_count(void)
{
    int count;
    if (!ignis__enter("ignis_contract_tracked_count"))
        return -1;
    ignis__mutex_lock(&ignis__tracking.lock);
    count = ignis__tracking.live + ignis__tracking.freed_count;
    ignis__mutex_unlock(&ignis__tracking.lock);
    return count;
}

IGNIS__COLD static void ignis__tracking_reset(const char *call)
{
    ignis__array *array;
    uint64_t index = 0;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        ignis__mutex_lock(&array->slot.lock);
        if (ignis__pool_live(array))
            ignis__untrack(array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    while (ignis__tracking.freed)
        ignis__tracked_forget(&ignis__tracking.freed);
    ignis__mutex_unlock(&ignis__tracking.lock);
}

IGNIS_API ignis_status ignis_contract_reset(void)
{
    static const char call[] = "ignis_contract_reset";
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    ignis__tracking_reset(call);
    return IGNIS_OK;
}

/* ===============================================================================================================
   >>kernel - NVRTC, the kernel cache in memory and on disk, launches, Ignis' own kernels.
   =============================================================================================================== */

#include "ignis_kernels.h"

#if !defined(IGNIS_KERNELS_VERSION) || IGNIS_KERNELS_VERSION != IGNIS_VERSION
#error "ignis.h and ignis_kernels.h are of different versions: copy all headers of Ignis from one release"
#endif

enum { IGNIS__NVRTC_OUT_OF_MEMORY = 1, IGNIS__NVRTC_INVALID_OPTION = 5, IGNIS__NVRTC_COMPILATION = 6 };

/*  What is compiled: text, options, headers, and the name that is looked up in the result. */
typedef struct ignis__program {
    const char *source;
    const char *name;  /* for compile errors */
    const char *entry; /* a name expression; null: entries are extern "C" and looked up as they are */
    const char *const *options;
    int option_count;
    const ignis_kernel_header *headers; /* beside those of Ignis */
    int header_count;
    const void *image; /* what a compiler has made of it; then there is no text */
    size_t image_size;
    const char *part;           /* of a source of Ignis in records and bundles: the first of the kernels that are meant; null: all */
    const char *formula, *line; /* of a formula's kernel: its text, which messages have, and its line of a record; else null */
} ignis__program;

/*  What comes out: an image for one architecture, and the entry's name in it, in one block of memory. */
typedef struct ignis__image {
    uint64_t key[2];
    char *memory;
    char *lowered;
    void *data;
    size_t size;
    uint64_t holds;            /* of the memory cache, and of those who load it */
    struct ignis__image *next; /* in the memory cache */
} ignis__image;

/*  Every kernel has a module of its own, loaded from an image, so that its __device__ variables are its own too. */
typedef struct ignis__module {
    void *module; /* CUmodule */
    char *lowered;
    bool from_cache;
} ignis__module;

#define IGNIS__MAX_OPTIONS 64
#define IGNIS__IMAGE_BYTES ((size_t)64 << 20) /* that the memory cache may hold */

static struct {
    ignis__mutex lock;
    ignis__image *images;       /* the memory cache, last used first */
    ignis__mutex compiling[16]; /* by key: who asks for a program that is being compiled waits for it */
    char cache_dir[900];        /* "": no disk cache */
    int64_t cache_limit;
    bool cache_broken;     /* a warning was given */
    bool last_read;        /* the next one was looked for */
    uint64_t last_release; /* of the NVRTC that has last written to the disk cache */
} ignis__kernels_state;

IGNIS__COLD static char *ignis__source_join(const ignis__source *source)
{
    size_t size = 1, used = 0, length;
    char *text;
    int i;
    for (i = 0; i < source->line_count; i++)
        size += strlen(source->lines[i]) + 1;
    text = (char *)ignis__alloc(size);
    for (i = 0; text && i < source->line_count; i++) {
        length = strlen(source->lines[i]);
        memcpy(text + used, source->lines[i], length);
        used += length;
        text[used++] = '\n';
    }
    return text;
}

/*  Sources that others include. NVRTC gets them from memory, by their names. */
static bool ignis__source_is_header(int source) { return strstr(ignis__sources[source].name, ".cuh") != NULL; }

/* --- the disk cache ----------------------------------------------------------------------------------------------- */

/*  One file an image, named by its key: a header, the lowered name, the image. A file is written under another name and then
    renamed, so a reader meets a whole file or none; whatever is not whole is compiled again. */
typedef struct ignis__cache_header {
    char magic[8];
    uint64_t key[2];
    uint64_t lowered_size, image_size;
    uint64_t checksum; /* of what follows */
} ignis__cache_header;

static const char ignis__cache_magic[8] = {'I', 'G', 'N', 'I', 'S', 'B', 'I', '1'};

IGNIS__COLD static void ignis__cache_path(char *path, size_t size, const uint64_t key[2])
{
    snprintf(path, size, "%s/%016llx%016llx.ignis", ignis__kernels_state.cache_dir, (unsigned long long)key[0], (unsigned long long)key[1]);
}

/*  why: "", or the reason. */
IGNIS__COLD static void ignis__cache_warn(const char *call, const char *what, const char *path, const char *why)
{
    bool warned;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    warned = ignis__kernels_state.cache_broken;
    ignis__kernels_state.cache_broken = true;
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    if (!warned)
        ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_CACHE_IO,
                    "%s: cannot %s %s%s%s; kernels are compiled again in every process. ignis_desc.cache_dir or "
                    "IGNIS_CACHE_DIR names another folder, \"off\" none",
                    call, what, path, *why ? ": " : "", why);
}

/*  Reads a file of the cache. One that others own or may write to is left alone: it could be anybody's program. */
IGNIS__COLD static void *ignis__cache_read(const char *call, const char *path, size_t *size)
{
    char why[160];
    void *data = ignis__file_read_as(path, size, why, sizeof why);
    if (*why)
        ignis__cache_warn(call, "use", path, why);
    return data;
}

/*  Makes the folder of the cache; false, and a warning: it is not there, or others own it or may write to it. */
IGNIS__COLD static bool ignis__cache_folder(const char *call)
{
    const char *folder = ignis__kernels_state.cache_dir;
    char why[160] = "";
    if (ignis__folder_make_all(folder) && ignis__path_is_private(folder, why, sizeof why))
        return true;
    ignis__cache_warn(call, *why ? "use the folder" : "make the folder", folder, why);
    return false;
}

/*  Whether a table of `count` times `each` bytes at `at` lies inside of an image. */
static bool ignis__image_has(size_t size, uint64_t at, uint64_t count, uint64_t each)
{
    return at <= size && count <= (size - at) / (each ? each : 1);
}

static uint64_t ignis__image_number(const unsigned char *image, uint64_t at, int bytes)
{
    uint64_t number = 0;
    while (bytes-- > 0)
        number = number << 8 | image[at + (uint64_t)bytes];
    return number;
}

/*  The driver, which is told no size, must not read beyond an image, behind which a byte is 0. Null: it does not; else what is wrong. */
IGNIS__COLD static const char *ignis__image_fault(const void *data, size_t size)
{
    const unsigned char *image = (const unsigned char *)data;
    uint64_t i, sections, segments, count;
    if (size >= 64 && memcmp(image, "\177ELF\002", 5) == 0) {
        segments = ignis__image_number(image, 32, 8);
        sections = ignis__image_number(image, 40, 8);
        count = ignis__image_number(image, 60, 2);
        if ((count && ignis__image_number(image, 58, 2) != 64) || !ignis__image_has(size, sections, count, 64) ||
            !ignis__image_has(size, segments, ignis__image_number(image, 56, 2), ignis__image_number(image, 54, 2)))
            return "it is an ELF file, a cubin, whose tables are not inside of it";
        for (i = 0; i < count; i++) {
            uint64_t at = sections + 64 * i;
            if (ignis__image_number(image, at + 4, 4) != 8 && /* which has no bytes */
                !ignis__image_has(size, ignis__image_number(image, at + 24, 8), ignis__image_number(image, at + 32, 8), 1))
                return "it is an ELF file, a cubin, of which a section is not inside of it";
        }
        return NULL;
    }
    if (size >= 16 && ignis__image_number(image, 0, 4) == 0xBA55ED50u)
        return ignis__image_has(size, ignis__image_number(image, 6, 2), ignis__image_number(image, 8, 8), 1)
                   ? NULL
                   : "it is a fatbin that says it is longer";
    if (size > 0 && memchr(image, 0, size - 1) == NULL && strstr((const char *)image, ".version"))
        return NULL; /* PTX, with or without a zero at its end */
    return "it is neither a cubin, nor a fatbin, nor PTX";
}

/*  Whether bytes of a file, behind which there is room for one more, are the image of its key, which is then in them. */
IGNIS__COLD static bool ignis__cache_parse(ignis__image *image, char *file, size_t size)
{
    ignis__cache_header header;
    size_t body;
    if (size < sizeof header)
        return false;
    memcpy(&header, file, sizeof header);
    body = size - sizeof header;
    if (memcmp(header.magic, ignis__cache_magic, sizeof header.magic) != 0 || header.key[0] != image->key[0] ||
        header.key[1] != image->key[1] || header.lowered_size < 1 || header.lowered_size > body ||
        header.image_size != body - header.lowered_size || header.checksum != ignis__hash(IGNIS__HASH_START, file + sizeof header, body) ||
        memchr(file + sizeof header, 0, (size_t)header.lowered_size) != file + sizeof header + header.lowered_size - 1)
        return false;
    file[size] = 0;
    image->lowered = file + sizeof header;
    image->data = file + sizeof header + header.lowered_size;
    image->size = (size_t)header.image_size;
    return ignis__image_fault(image->data, image->size) == NULL;
}

IGNIS__COLD static bool ignis__image_from_disk(const char *call, ignis__image *image)
{
    char path[1024], *file;
    size_t size = 0;
    if (!ignis__kernels_state.cache_dir[0])
        return false;
    ignis__cache_path(path, sizeof path, image->key);
    file = (char *)ignis__cache_read(call, path, &size);
    if (!file)
        return false;
    if (ignis__cache_parse(image, file, size)) {
        image->memory = file;
        ignis__file_touch(path); /* the least recently used file is the first to go */
        return true;
    }
    ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_CACHE_IO, "%s: %s is damaged, and is made again", call, path);
    ignis__free(file);
    return false;
}

/*  Finds the oldest file of the cache, and the bytes of all. */
typedef struct ignis__cache_scan {
    int64_t total, oldest_time, oldest_size;
    char oldest[1024];
} ignis__cache_scan;

/*  Whether a file of the folder is the cache's own: the name of an image, 32 hexadecimal digits, or of what was to become one, or nvrtc.txt. */
static bool ignis__cache_is_own(const char *name)
{
    size_t length = strlen(name), digits = strspn(name, "0123456789abcdef"), part = strlen(".ignis-part");
    const char *behind = digits == 32 ? name + 32 : name;
    if (digits == 32 && strcmp(behind, ".ignis") == 0)
        return true;
    return (digits == 32 ? strncmp(behind, ".ignis.", 7) == 0 : strncmp(name, "nvrtc.txt.", 10) == 0) && length > part &&
           strcmp(name + length - part, ".ignis-part") == 0;
}

IGNIS__COLD static void ignis__cache_scan_file(void *context, const char *name)
{
    ignis__cache_scan *scan = (ignis__cache_scan *)context;
    char path[1024];
    int64_t size, time;
    snprintf(path, sizeof path, "%s/%s", ignis__kernels_state.cache_dir, name);
    if (!ignis__cache_is_own(name) || !ignis__file_info(path, &size, &time))
        return;
    scan->total += size;
    if (!scan->oldest[0] || time < scan->oldest_time) {
        scan->oldest_time = time;
        scan->oldest_size = size;
        snprintf(scan->oldest, sizeof scan->oldest, "%s", path);
    }
}

IGNIS__COLD static void ignis__cache_evict(void)
{
    ignis__cache_scan scan;
    do {
        memset(&scan, 0, sizeof scan);
        if (!ignis__folder_list(ignis__kernels_state.cache_dir, ignis__cache_scan_file, &scan) ||
            scan.total <= ignis__kernels_state.cache_limit)
            return;
    } while (ignis__file_remove(scan.oldest));
}

/*  Writes down whose images these are: a program finds them without NVRTC, too. */
IGNIS__COLD static void ignis__cache_sign(const char *call)
{
    uint64_t release = ignis__libraries[IGNIS_LIBRARY_NVRTC].release;
    char path[1024], text[32], *part;
    FILE *file;
    bool ok, signs;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    signs = ignis__kernels_state.last_release != release;
    ignis__kernels_state.last_release = release;
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    if (!signs)
        return;
    snprintf(path, sizeof path, "%s/nvrtc.txt", ignis__kernels_state.cache_dir);
    snprintf(text, sizeof text, "%llx\n", (unsigned long long)release);
    part = ignis__file_part_path(path);
    file = part ? ignis__file_create(part, IGNIS__FILE_PRIVATE) : NULL;
    ok = file != NULL;
    if (ok) {
        ok = fwrite(text, strlen(text), 1, file) == 1;
        ok = fclose(file) == 0 && ok && ignis__file_rename(part, path);
        if (!ok)
            (void)ignis__file_remove(part);
    }
    ignis__free(part);
    if (!ok)
        ignis__cache_warn(call, "write", path, "");
}

IGNIS__COLD static void ignis__image_to_disk(const char *call, const ignis__image *image)
{
    char path[1024], *part;
    ignis__cache_header header;
    size_t lowered_size = strlen(image->lowered) + 1;
    FILE *file;
    bool ok;
    if (!ignis__kernels_state.cache_dir[0] || !ignis__cache_folder(call))
        return;
    memcpy(header.magic, ignis__cache_magic, sizeof header.magic);
    memcpy(header.key, image->key, sizeof header.key);
    header.lowered_size = lowered_size;
    header.image_size = image->size;
    header.checksum = ignis__hash(ignis__hash(IGNIS__HASH_START, image->lowered, lowered_size), image->data, image->size);
    ignis__cache_path(path, sizeof path, image->key);
    part = ignis__file_part_path(path);
    file = part ? ignis__file_create(part, IGNIS__FILE_PRIVATE) : NULL;
    if (!file) {
        ignis__cache_warn(call, "write", path, "");
        ignis__free(part);
        return;
    }
    ok = fwrite(&header, sizeof header, 1, file) == 1 && fwrite(image->lowered, lowered_size, 1, file) == 1 &&
         fwrite(image->data, image->size, 1, file) == 1;
    ok = fclose(file) == 0 && ok;
    ok = ok && ignis__file_rename(part, path);
    if (!ok) {
        (void)ignis__file_remove(part);
        ignis__cache_warn(call, "write", path, "");
    }
    ignis__free(part);
    ignis__cache_sign(call);
    ignis__cache_evict();
}

/* --- the key of an image ---------------------------------------------------------------------------------------------- */

IGNIS__COLD static void ignis__key_add_bytes(uint64_t key[2], const void *data, size_t size)
{
    key[0] = ignis__hash(key[0], data, size);
    key[1] = ignis__hash(key[1] * 3, data, size);
}

IGNIS__COLD static void ignis__key_add(uint64_t key[2], const char *text) { ignis__key_add_bytes(key, text, strlen(text) + 1); }

/*  NVRTC reads included files from the folder of the source, of the including file and of each -I, and does not tell which it read. So every
    file that an #include could mean is looked for, and its text becomes part of the key: one too many does no harm. */
typedef struct ignis__included {
    struct ignis__included *next;
    char path[1024], tidy[1024];
    int64_t size, time;
} ignis__included;

typedef struct ignis__include_search {
    const ignis__program *program;
    ignis__included *first, **last; /* each file once, in the order it was found */
    int count;
    bool complete; /* every #include was understood, and every file could be listed */
} ignis__include_search;

#define IGNIS__MAX_INCLUDED 10000 /* more are a cycle of links */

static size_t ignis__folder_length(const char *path)
{
    size_t length = strlen(path);
    while (length > 0 && path[length - 1] != '/' && path[length - 1] != '\\')
        length--;
    return length;
}

/*  Takes "folder/../" and "./" out of a path, so that headers that include each other are known again under ever longer names. What is left need
    not be the file: the folder may be a link to one elsewhere. */
static void ignis__path_tidy(char *path)
{
    char *at = path, *up, *folder;
    while ((up = strstr(path, "/./")) != NULL)
        memmove(up, up + 2, strlen(up + 2) + 1);
    while ((up = strstr(at, "/../")) != NULL) {
        for (folder = up; folder > path && folder[-1] != '/'; folder--)
            ;
        if (folder == up || strncmp(folder, "../", 3) == 0) {
            at = up + 3;
        } else {
            memmove(folder, up + 4, strlen(up + 4) + 1);
            at = path;
        }
    }
}

/*  Lists the file `name` of a folder, if there is one. */
IGNIS__COLD static void ignis__include_add(ignis__include_search *search, const char *folder, size_t folder_length, const char *name,
                                           size_t name_length)
{
    ignis__included *file;
    char path[sizeof file->path], tidy[sizeof file->tidy];
    bool slash = folder_length > 0 && folder[folder_length - 1] != '/' && folder[folder_length - 1] != '\\';
    int64_t size, time;
    int length = snprintf(path, sizeof path, "%.*s%s%.*s", (int)folder_length, folder, slash ? "/" : "", (int)name_length, name);
    if (length >= (int)sizeof path) {
        search->complete = false;
        return;
    }
    if (!ignis__file_info(path, &size, &time))
        return;
    memcpy(tidy, path, sizeof path);
    ignis__path_tidy(tidy);
    for (file = search->first; file; file = file->next)
        if (file->size == size && file->time == time && strcmp(file->tidy, tidy) == 0)
            return;
    file = search->count < IGNIS__MAX_INCLUDED ? (ignis__included *)ignis__alloc(sizeof *file) : NULL;
    if (!file) {
        search->complete = false;
        return;
    }
    memcpy(file->path, path, sizeof path);
    memcpy(file->tidy, tidy, sizeof tidy);
    file->size = size;
    file->time = time;
    *search->last = file;
    search->last = &file->next;
    search->count++;
}

/*  What an option names: the folder of "-Ifolder", "-I=folder", "--include-path=folder", the file of "-include=file", or what follows such
    an option as a string of its own. "" for macros. What names neither does no harm. */
static const char *ignis__option_value(const char *option)
{
    if (option[0] != '-')
        return option;
    if (option[1] == 'D' || option[1] == 'U')
        return "";
    option += option[1] == 'I' ? 2 : strcspn(option, "= ");
    return option + strspn(option, "= ");
}

static bool ignis__header_is_known(const ignis__program *program, const char *name, size_t length)
{
    int i;
    for (i = 0; i < IGNIS__SOURCE_COUNT; i++)
        if (ignis__source_is_header(i) && strlen(ignis__sources[i].name) == length && memcmp(ignis__sources[i].name, name, length) == 0)
            return true;
    for (i = 0; i < program->header_count; i++)
        if (strlen(program->headers[i].name) == length && memcmp(program->headers[i].name, name, length) == 0)
            return true;
    return false;
}

/*  Lists what an #include of a name in a file could mean: no file when there is such a header in memory. */
IGNIS__COLD static void ignis__include_find(ignis__include_search *search, const char *includer, const char *name, size_t length)
{
    const ignis__program *program = search->program;
    int i;
    if (length == 0 || ignis__header_is_known(program, name, length))
        return;
    ignis__include_add(search, "", 0, name, length);
    ignis__include_add(search, includer, ignis__folder_length(includer), name, length);
    ignis__include_add(search, program->name, ignis__folder_length(program->name), name, length);
    for (i = 0; i < program->option_count; i++) {
        const char *folder = ignis__option_value(program->options[i]);
        if (*folder)
            ignis__include_add(search, folder, strlen(folder), name, length);
    }
}

/*  Whether a word of a text goes on in the next line, behind a backslash. */
IGNIS__COLD static bool ignis__word_is_split(const char *text)
{
    const char *at = text, *next;
    while ((at = strchr(at, '\\')) != NULL) {
        next = at + 1 + (at[1] == '\r');
        if (*next == '\n' && at > text && at[-1] >= 'a' && at[-1] <= 'z' && next[1] >= 'a' && next[1] <= 'z')
            return true;
        at++;
    }
    return false;
}

/*  Finds each #include and __has_include of a text, also those that conditions or comments leave out. */
IGNIS__COLD static void ignis__include_scan(ignis__include_search *search, const char *includer, const char *text)
{
    const char *at = text, *before, *behind, *end;
    if (ignis__word_is_split(text)) /* it may be an include */
        search->complete = false;
    while ((at = strstr(at, "include")) != NULL) {
        bool asks = at - text >= 6 && strncmp(at - 6, "__has_", 6) == 0;
        for (before = at; before > text && (before[-1] == ' ' || before[-1] == '\t'); before--)
            ;
        at += strlen("include");
        behind = at += strncmp(at, "_next", 5) == 0 ? 5 : 0;
        at += strspn(at, " \t(");
        end = *at == '"' || *at == '<' ? at + 1 + strcspn(at + 1, *at == '"' ? "\"\n" : ">\n") : NULL;
        if (end && *end && *end != '\n')
            ignis__include_find(search, includer, at + 1, (size_t)(end - at - 1));
        else if (asks
                     ? memchr(behind, '(', (size_t)(at - behind)) != NULL
                     : before > text && (before[-1] == '#' || (before - 2 >= text && strchr("%*", before[-2]) && strchr(":/", before[-1]))))
            search->complete = false; /* its name is a macro, in the next line, or behind a comment */
    }
}

/*  Adds all files that a program may include to a key, and where they are. False: it cannot be told which. */
IGNIS__COLD static bool ignis__key_add_included(const ignis__program *program, uint64_t key[2], bool with_paths)
{
    ignis__include_search search = IGNIS__ZERO;
    ignis__included *file;
    int i;
    search.program = program;
    search.last = &search.first;
    search.complete = true;
    ignis__include_scan(&search, program->name, program->source);
    for (i = 0; i < program->header_count; i++)
        ignis__include_scan(&search, program->headers[i].name, program->headers[i].text);
    for (i = 0; i < program->option_count; i++) {
        const char *name = ignis__option_value(program->options[i]);
        ignis__include_find(&search, program->name, name, strlen(name));
    }
    for (file = search.first; file; file = file->next) {
        size_t size;
        char *text = (char *)ignis__file_read(file->path, &size);
        if (text) {
            if (with_paths)
                ignis__key_add(key, file->path);
            ignis__key_add_bytes(key, text, size);
            ignis__include_scan(&search, file->path, text);
        }
        search.complete = search.complete && text;
        ignis__free(text);
    }
    while ((file = search.first) != NULL) {
        search.first = file->next;
        ignis__free(file);
    }
    return search.complete;
}

/*  What a program is, whatever compiles it and for whom; without the files that it includes. */
IGNIS__COLD static void ignis__program_key(const ignis__program *program, uint64_t key[2])
{
    char facts[256];
    int i;
    key[0] = IGNIS__HASH_START;
    key[1] = ~IGNIS__HASH_START;
    snprintf(facts, sizeof facts, "%d options, %d headers", program->option_count, program->header_count);
    ignis__key_add(key, facts);
    for (i = 0; i < IGNIS__SOURCE_COUNT; i++) {
        if (!ignis__source_is_header(i))
            continue;
        snprintf(facts, sizeof facts, "%016llx", (unsigned long long)ignis__sources[i].hash);
        ignis__key_add(key, facts);
    }
    ignis__key_add(key, program->source);
    ignis__key_add(key, program->name);
    ignis__key_add(key, program->entry ? program->entry : "");
    if (program->part)
        ignis__key_add(key, program->part);
    for (i = 0; i < program->option_count; i++)
        ignis__key_add(key, program->options[i]);
    for (i = 0; i < program->header_count; i++) {
        ignis__key_add(key, program->headers[i].name);
        ignis__key_add(key, program->headers[i].text);
    }
}

/*  A hash of the files that a program includes; 0: there are none. */
IGNIS__COLD static uint64_t ignis__program_included(const ignis__program *program)
{
    uint64_t key[2] = {0, 0};
    (void)ignis__key_add_included(program, key, false);
    return key[0];
}

static bool ignis__compile_never; /* ignis_desc.compile */

IGNIS__MAYBE_UNUSED static bool ignis__nvrtc_there(const char *call)
{
    return ignis__library_there(call, IGNIS_LIBRARY_NVRTC, "Kernels come from the bundle and from the cache alone");
}

/*  The exact version of NVRTC; of one that is not there, the one that has last written to the kernel cache; 0: there was none. */
IGNIS__COLD static uint64_t ignis__compiler_release(const char *call)
{
    struct ignis__loaded *nvrtc = &ignis__libraries[IGNIS_LIBRARY_NVRTC];
    char path[1024], why[160] = "", *text;
    uint64_t release;
    size_t size = 0;
    if (!ignis__compile_never && (ignis__atomic_load(&nvrtc->loaded) || ignis__nvrtc_there(call)))
        return nvrtc->release;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    if (!ignis__kernels_state.last_read && ignis__kernels_state.cache_dir[0]) {
        snprintf(path, sizeof path, "%s/nvrtc.txt", ignis__kernels_state.cache_dir);
        text = (char *)ignis__file_read_as(path, &size, why, sizeof why);
        if (text) {
            text[size] = 0;
            ignis__kernels_state.last_release = (uint64_t)strtoull(text, NULL, 16);
        }
        ignis__free(text);
    }
    ignis__kernels_state.last_read = true;
    release = ignis__kernels_state.last_release;
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    if (*why)
        ignis__cache_warn(call, "use", path, why);
    return release;
}

/*  Everything that the image depends on, which has all parts of a program. False: there is more than can be told, so it must not be cached. */
IGNIS__COLD static bool ignis__image_key(const ignis__program *program, const ignis__device *device, uint64_t release, uint64_t key[2])
{
    ignis__program whole = *program;
    char facts[256];
    whole.part = NULL;
    ignis__program_key(&whole, key);
    snprintf(facts, sizeof facts, "nvrtc %llx sm %d.%d", (unsigned long long)release, device->info.compute_major,
             device->info.compute_minor);
    ignis__key_add(key, facts);
    return ignis__key_add_included(program, key, true);
}

/* --- compiling ------------------------------------------------------------------------------------------------------ */

IGNIS__COLD static ignis_status ignis__nvrtc_fail(const char *call, const char *function, int error)
{
    const char *name = ignis__nvrtc.nvrtcGetErrorString(error);
    return ignis__fail_because(error == IGNIS__NVRTC_OUT_OF_MEMORY ? IGNIS_DIAG_HOST_MEMORY : IGNIS_DIAG_COMPILE_FAILED, call, error, name,
                               NULL, "%s failed with %s (%d)", function, name, error);
}

IGNIS__COLD static bool ignis__nvrtc_check(const char *call, const char *function, int error)
{
    return error == 0 || ignis__nvrtc_fail(call, function, error) == IGNIS_OK;
}
#define IGNIS__NVRTC_OK(call, name, args) ignis__nvrtc_check(call, #name, IGNIS__NVRTC(name, args))

/*  -arch for a device: its own machine code where this NVRTC knows it, with the architecture-specific instructions that come with 9.0
    ("sm_90a"); else the newest older virtual architecture, which the driver translates. */
IGNIS__COLD static bool ignis__arch_choose(const char *call, const ignis__device *device, char *arch, size_t size, bool *is_ptx)
{
    int known[64], count = 0, best = 0, i, wanted = ignis__capability(&device->info);
    if (!IGNIS__NVRTC_OK(call, nvrtcGetNumSupportedArchs, (&count)))
        return false;
    count = count > IGNIS__COUNT(known) ? 0 : count;
    if (!IGNIS__NVRTC_OK(call, nvrtcGetSupportedArchs, (known)))
        return false;
    for (i = 0; i < count; i++)
        if (known[i] <= wanted && known[i] > best)
            best = known[i];
    if (!best)
        return ignis__refuse(IGNIS_DIAG_UNSUPPORTED, call,
                             "device %d has compute capability %d.%d; NVRTC %d.%d compiles for %d.%d and newer", device->info.device,
                             device->info.compute_major, device->info.compute_minor, ignis__libraries[IGNIS_LIBRARY_NVRTC].version / 1000,
                             ignis__libraries[IGNIS_LIBRARY_NVRTC].version % 1000 / 10, known[0] / 10, known[0] % 10);
    *is_ptx = best != wanted;
    snprintf(arch, size, "-arch=%s_%d%s", *is_ptx ? "compute" : "sm", best, !*is_ptx && best >= 90 ? "a" : "");
    return true;
}

/*  The options that Ignis adds, unless the program has its own, and the program's. Returns how many. */
IGNIS__COLD static int ignis__options_gather(const ignis__program *program, const char *arch, const char **options)
{
    static const char *const defaults[] = {"-arch", "-std=c++17", "-default-device"};
    static const char *const long_names[] = {"--gpu-architecture", "--std", "--device-as-default-execution-space"};
    int count = 0, i, own;
    for (i = 0; i < IGNIS__COUNT(defaults); i++) {
        size_t stem = strcspn(defaults[i], "=");
        for (own = 0; own < program->option_count; own++)
            if (strncmp(program->options[own], defaults[i], stem) == 0 ||
                strncmp(program->options[own] + (program->options[own][0] == '-'), defaults[i], stem) == 0 ||
                strncmp(program->options[own], long_names[i], strlen(long_names[i])) == 0)
                break;
        if (own == program->option_count)
            options[count++] = i == 0 ? arch : defaults[i];
    }
    for (i = 0; i < program->option_count; i++)
        options[count++] = program->options[i];
    return count;
}

static bool ignis__has_include_path(const ignis__program *program)
{
    int i;
    for (i = 0; i < program->option_count; i++)
        if (strncmp(program->options[i], "-I", 2) == 0 || strncmp(program->options[i], "--include-path", 14) == 0)
            return true;
    return false;
}

/*  Reports what a compile had to say: remarks as a warning, errors as the failure. */
IGNIS__COLD static ignis_status ignis__compile_log(const char *call, const ignis__program *program, const char *arch, void *handle,
                                                   int error)
{
    size_t size = 0;
    char *log;
    const char *missing;
    bool entry_missing;
    ignis_status status;
    if (error != 0 && error != IGNIS__NVRTC_COMPILATION && error != IGNIS__NVRTC_INVALID_OPTION)
        return ignis__nvrtc_fail(call, "nvrtcCompileProgram", error);
    if (IGNIS__NVRTC(nvrtcGetProgramLogSize, (handle, &size)) != 0)
        size = 0;
    log = (char *)ignis__alloc(size + 1);
    if (log && size && IGNIS__NVRTC(nvrtcGetProgramLog, (handle, log)) != 0)
        log[0] = 0;
    while (log && *log && log[strlen(log) - 1] == '\n')
        log[strlen(log) - 1] = 0;
    if (error == 0) {
        if (log && *log)
            ignis__note_log(IGNIS_LOG_WARNING, IGNIS_DIAG_COMPILE_FAILED, log, "%s: the compiler has remarks on %s:", call, program->name);
        ignis__free(log);
        return IGNIS_OK;
    }
    entry_missing = log && program->entry && strncmp(log, "__nv_name_map", 13) == 0;
    missing = log ? strstr(log, "open source file \"") : NULL;
    if (entry_missing)
        status =
            ignis__fail_because(IGNIS_DIAG_ENTRY_MISSING, call, error, ignis__nvrtc.nvrtcGetErrorString(error), log,
                                "%s has no __global__ function (or not exactly one) that is called '%s'", program->name, program->entry);
    else if (missing) {
        missing = strchr(missing, '"') + 1;
        status = ignis__fail_because(
            IGNIS_DIAG_COMPILE_FAILED, call, error, ignis__nvrtc.nvrtcGetErrorString(error), log,
            "%s includes \"%.*s\", which is not found. %s; desc.headers gives headers from memory; \"ignis.cuh\" "
            "is always there, with int8_t to uint64_t, ignis_f16, ignis_bf16, 16-byte packs, warp and block reductions",
            program->name, (int)strcspn(missing, "\""), missing,
            ignis__has_include_path(program) ? "It is in no folder that desc.options name, nor beside desc.name"
                                             : "There is no include path: desc.options may give one, as in \"-I/usr/local/cuda/include\"");
    } else
        status = ignis__fail_because(IGNIS_DIAG_COMPILE_FAILED, call, error, ignis__nvrtc.nvrtcGetErrorString(error), log,
                                     "%s does not compile with %s", program->name, arch);
    ignis__free(log);
    return status;
}

/*  The next name of a list with ; between names, and its length without the blanks around it; null: there is none. */
IGNIS__COLD static const char *ignis__entry_next(const char **list, size_t *length)
{
    const char *name = *list ? *list + strspn(*list, " \t\n") : "";
    if (!*name)
        return NULL;
    *length = strcspn(name, ";");
    *list = name + *length + (name[*length] == ';');
    while (*length > 0 && strchr(" \t\n", name[*length - 1]))
        --*length;
    return name;
}

/*  Where a name is in a list, from 0 on; -1: it is not there. */
IGNIS__COLD static int ignis__entry_index(const char *list, const char *wanted)
{
    size_t length;
    const char *name;
    int i;
    for (i = 0; (name = ignis__entry_next(&list, &length)) != NULL; i++)
        if (length == strlen(wanted) && memcmp(name, wanted, length) == 0)
            return i;
    return -1;
}

/*  A name of a list by its place, in memory of ignis__alloc. Null, and reported: there is no memory. */
IGNIS__COLD static char *ignis__entry_copy(const char *call, const char *list, int index)
{
    size_t length = 0;
    const char *name = ignis__entry_next(&list, &length);
    char *copy;
    while (index-- > 0)
        name = ignis__entry_next(&list, &length);
    copy = (char *)ignis__alloc_for(call, length + 1);
    if (copy && name)
        memcpy(copy, name, length);
    return copy;
}

/*  Copies the lowered names, in a list as the entries are, and the image of a compiled program out of NVRTC. */
IGNIS__COLD static bool ignis__image_fetch(const char *call, const ignis__program *program, void *handle, bool is_ptx, ignis__image *image)
{
    const char *list, *lowered;
    size_t size = 1, length;
    bool ok = is_ptx ? IGNIS__NVRTC_OK(call, nvrtcGetPTXSize, (handle, &image->size))
                     : IGNIS__NVRTC_OK(call, nvrtcGetCUBINSize, (handle, &image->size));
    ignis__text names;
    int round, i;
    for (round = 0; ok && round < 2; round++) { /* the first one measures */
        if (round == 1 && (image->memory = (char *)ignis__alloc_for(call, size + image->size)) == NULL)
            return false;
        ignis__text_begin(&names, image->memory, round == 1 ? size : 0);
        list = program->entry;
        for (i = 0; ok && ignis__entry_next(&list, &length) != NULL; i++) {
            char *entry = ignis__entry_copy(call, program->entry, i);
            ok = entry && IGNIS__NVRTC_OK(call, nvrtcGetLoweredName, (handle, entry, &lowered));
            if (ok)
                ignis__text_add(&names, "%s%s", i == 0 ? "" : ";", lowered);
            ignis__free(entry);
        }
        size = names.length + 1;
    }
    if (!ok)
        return false;
    image->lowered = image->memory;
    image->data = image->memory + size;
    return is_ptx ? IGNIS__NVRTC_OK(call, nvrtcGetPTX, (handle, (char *)image->data))
                  : IGNIS__NVRTC_OK(call, nvrtcGetCUBIN, (handle, (char *)image->data));
}

/*  All headers in memory as NVRTC takes them: those of Ignis, then the program's. */
typedef struct ignis__headers {
    char *own[IGNIS__SOURCE_COUNT];
    int own_count, count;
    const char **names, **texts; /* in one block */
} ignis__headers;

/*  The text behind its byte order mark, which NVRTC does not skip. */
static const char *ignis__without_mark(const char *text) { return strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? text + 3 : text; }

static void ignis__headers_free(ignis__headers *headers)
{
    while (headers->own_count > 0)
        ignis__free(headers->own[--headers->own_count]);
    ignis__free((void *)headers->names);
}

IGNIS__COLD static bool ignis__headers_gather(const char *call, const ignis__program *program, ignis__headers *headers)
{
    size_t most = (size_t)(IGNIS__SOURCE_COUNT + program->header_count);
    bool ok;
    int i;
    memset(headers, 0, sizeof *headers);
    headers->names = (const char **)ignis__alloc(2 * most * sizeof *headers->names);
    headers->texts = headers->names + most;
    ok = headers->names != NULL;
    for (i = 0; ok && i < IGNIS__SOURCE_COUNT; i++) {
        char *text;
        if (!ignis__source_is_header(i))
            continue;
        text = ignis__source_join(&ignis__sources[i]);
        ok = text != NULL;
        headers->own[headers->own_count++] = text;
        headers->names[headers->count] = ignis__sources[i].name;
        headers->texts[headers->count++] = text;
    }
    for (i = 0; ok && i < program->header_count; i++) {
        headers->names[headers->count] = program->headers[i].name;
        headers->texts[headers->count++] = ignis__without_mark(program->headers[i].text);
    }
    if (!ok) {
        ignis__headers_free(headers);
        ignis__fail_host_memory(call, 1);
    }
    return ok;
}

/*  arch: an option of NVRTC, which is loaded. */
IGNIS__COLD static bool ignis__image_compile(const char *call, const ignis__program *program, const char *arch, bool is_ptx,
                                             ignis__image *image)
{
    const char *options[IGNIS__MAX_OPTIONS + 3];
    ignis__headers headers;
    const char *list;
    size_t length;
    void *handle = NULL;
    int error, count, i;
    bool ok;
    if (!ignis__headers_gather(call, program, &headers))
        return false;
    count = ignis__options_gather(program, arch, options);
    ok = IGNIS__NVRTC_OK(call, nvrtcCreateProgram,
                         (&handle, ignis__without_mark(program->source), program->name, headers.count, headers.texts, headers.names));
    list = program->entry;
    for (i = 0; ok && ignis__entry_next(&list, &length) != NULL; i++) {
        char *entry = ignis__entry_copy(call, program->entry, i);
        ok = entry && IGNIS__NVRTC_OK(call, nvrtcAddNameExpression, (handle, entry));
        ignis__free(entry);
    }
    if (ok) {
        error = IGNIS__NVRTC(nvrtcCompileProgram, (handle, count, options));
        ok = ignis__compile_log(call, program, options[0], handle, error) == IGNIS_OK &&
             ignis__image_fetch(call, program, handle, is_ptx, image);
    }
    if (handle)
        (void)IGNIS__NVRTC(nvrtcDestroyProgram, (&handle));
    ignis__headers_free(&headers);
    return ok;
}

/* --- records: which programs are asked for ------------------------------------------------------------------------------ */

/*  Each program that is asked for becomes a line of a file, once a process. tools/ignis_embed.c reads them:

        ignis VERSION                           of what wrote the lines below
        own FIRST-LAST FILE PART OPTION...      a source of Ignis, for compute capabilities from FIRST to LAST: 90 is 9.0; of its kernels
                                                those that are asked for with PART (see ignis__parts), or all where no PART is named
        formula FIRST-LAST "TEXT" "NAMES" INPUTS INTEGERS NUMBERS
                                                a kernel of a formula, as ignis__map_spec_write writes it; a bundle has those of other sizes, too
        kernel FIRST-LAST "NAME" "ENTRY" "SOURCE" OPTIONS "OPTION"... "HEADER" "TEXT"...       another program

    Which kernels are chosen depends on the device. So that a record serves all of them, whoever chooses asks for what each kind of device would
    choose: of compute capability 7.5, of 8.0 and newer, and of 9.0. */
static struct {
    ignis__mutex lock;
    char path[1024]; /* "": nothing is recorded */
    bool from_environment;
    uint64_t *lines; /* hashes of those that are written */
    int count, room;
    bool broken; /* a warning was given */
} ignis__requests = {IGNIS__MUTEX_INIT, {0}, false, NULL, 0, 0, false};

#define IGNIS__EVERY_ARCH 999

#ifndef IGNIS_NO_TENSORS
enum { IGNIS__MAP_SPEC = 15 + 3 * IGNIS_MAX_INPUTS + 4 }; /* numbers of an ignis__map_spec */
#endif

static bool ignis__program_is_own(const ignis__program *program)
{
    int i;
    for (i = 0; i < IGNIS__SOURCE_COUNT && ignis__sources[i].name != program->name; i++)
        ;
    return i < IGNIS__SOURCE_COUNT;
}

/*  The compute capabilities that an own source compiles for. */
static void ignis__program_range(const ignis__program *program, int *first, int *last)
{
    bool own = ignis__program_is_own(program), wgmma = own && strstr(program->name, "hopper");
    int i;
    *first = wgmma ? 90 : own && strstr(program->name, "_mma.") ? 80 : 0;
    for (i = 0; own && i < program->option_count; i++)
        *first = strstr(program->options[i], "-DIGNIS_CLUSTERS") ? 90 : *first;
    *last = wgmma ? 90 : IGNIS__EVERY_ARCH;
}

/*  A program as messages and bundles name it: "gemm_mma.cu ignis_gemm_mma -DIGNIS_T=2 -DIGNIS_TRANSPOSE_A=0", "kernel.cu scale<float> -DN=4". */
IGNIS__COLD static void ignis__program_write(ignis__text *text, const ignis__program *program)
{
    const char *which = program->part ? program->part : program->entry;
    int i;
    if (program->formula) {
        ignis__text_add(text, "the formula '%s'", program->formula);
        return;
    }
    ignis__text_add(text, "%s%s%s", program->name, which ? " " : "", which ? which : "");
    for (i = 0; i < program->option_count; i++)
        ignis__text_add(text, " %s", program->options[i]);
}

IGNIS__COLD static void ignis__request_quote(ignis__text *text, const char *word)
{
    ignis__text_add(text, " \"");
    while (*word) {
        size_t plain = strcspn(word, "\"\\\r\n");
        ignis__text_add(text, "%.*s", (int)plain, word);
        word += plain;
        if (*word)
            ignis__text_add(text, "\\%c", *word == '\n' ? 'n' : *word == '\r' ? 'r' : *word);
        word += *word != 0;
    }
    ignis__text_add(text, "\"");
}

IGNIS__COLD static void ignis__request_write(ignis__text *text, const ignis__program *program, int first, int last)
{
    int i;
    if (program->line) {
        ignis__text_add(text, "%s\n", program->line);
        return;
    }
    ignis__text_add(text, "%s %d-%d", ignis__program_is_own(program) ? "own" : "kernel", first, last);
    if (ignis__program_is_own(program)) {
        ignis__text_add(text, " ");
        ignis__program_write(text, program);
    } else {
        ignis__request_quote(text, program->name);
        ignis__request_quote(text, program->entry ? program->entry : "");
        ignis__request_quote(text, program->source);
        ignis__text_add(text, " %d", program->option_count);
        for (i = 0; i < program->option_count; i++)
            ignis__request_quote(text, program->options[i]);
        for (i = 0; i < program->header_count; i++) {
            ignis__request_quote(text, program->headers[i].name);
            ignis__request_quote(text, program->headers[i].text);
        }
    }
    ignis__text_add(text, "\n");
}

/*  Adds a line to a file: one write, so that lines of several processes stay whole. A link is not followed; is_private: nor is a file written that
    others own or may write to. False: *why says the reason. */
IGNIS__COLD static bool ignis__line_append(const char *path, const char *line, bool is_private, char *why, size_t size)
{
    FILE *file = ignis__file_create(path, IGNIS__FILE_APPEND);
    bool ok;
    *why = 0;
    if (file && is_private && !ignis__stream_is_private(file, why, size)) {
        fclose(file);
        return false;
    }
    ok = file && setvbuf(file, NULL, _IONBF, 0) == 0 && fwrite(line, strlen(line), 1, file) == 1;
    if (!ok)
        ignis__system_error(why, size);
    return file && fclose(file) == 0 && ok;
}

/*  Whether a line is new; then it is remembered, if there is memory. The lock is held. */
IGNIS__COLD static bool ignis__request_is_new(uint64_t hash)
{
    int i;
    for (i = 0; i < ignis__requests.count; i++)
        if (ignis__requests.lines[i] == hash)
            return false;
    if (ignis__requests.count == ignis__requests.room) {
        int room = 2 * ignis__requests.room + 64;
        uint64_t *lines = (uint64_t *)ignis__alloc((size_t)room * sizeof *lines);
        if (!lines)
            return true;
        if (ignis__requests.count)
            memcpy(lines, ignis__requests.lines, (size_t)ignis__requests.count * sizeof *lines);
        ignis__free(ignis__requests.lines);
        ignis__requests.lines = lines;
        ignis__requests.room = room;
    }
    ignis__requests.lines[ignis__requests.count++] = hash;
    return true;
}

IGNIS__COLD static void ignis__request_add(const ignis__program *program, int first, int last)
{
    ignis__text text;
    char *line = NULL, why[160] = "out of memory";
    size_t size = 0;
    int turn;
    if (!ignis__requests.path[0])
        return;
    for (turn = 0; turn < 2; turn++) { /* the first measures */
        ignis__text_begin(&text, line, size);
        ignis__request_write(&text, program, first, last);
        if (turn == 0 && (line = (char *)ignis__alloc(size = text.length + 1)) == NULL)
            break;
    }
    ignis__mutex_lock(&ignis__requests.lock);
    if (!line ||
        (ignis__request_is_new(ignis__hash(IGNIS__HASH_START, line, size)) &&
         !ignis__line_append(ignis__requests.path, line, ignis__requests.from_environment, why, sizeof why) && !ignis__requests.broken)) {
        ignis__requests.broken = true;
        ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_BUNDLE_IO, "%s cannot be recorded in %s: %s", program->name, ignis__requests.path, why);
    }
    ignis__mutex_unlock(&ignis__requests.lock);
    ignis__free(line);
}

/* --- bundles: programs compiled beforehand ------------------------------------------------------------------------------- */

/*  A bundle is a header, its entries, their texts, and blocks of images, all little-endian; tools/ignis_embed.c writes it. Images of an architecture
    are packed together, being much alike. What is before the blocks, and each block, has a checksum: the driver sees nothing of what is damaged. */
typedef struct ignis__bundle_header {
    char magic[8];
    uint64_t checksum; /* of what is between it and the images */
    uint64_t size;     /* bytes of the bundle */
    uint64_t blocks;   /* where they begin */
    uint64_t sources;  /* a hash of Ignis' own */
    uint32_t version, count;
} ignis__bundle_header;

typedef struct ignis__bundle_entry {
    uint64_t key[2];                /* of the program */
    uint64_t included;              /* of the files that it includes */
    uint64_t checksum;              /* of the bytes of the block that are stored */
    uint64_t offset, stored, whole; /* where they are, and how many; bytes of the block, which is packed when they are more */
    uint64_t at, size;              /* of the image in the block: a zero is behind it */
    uint32_t text;                  /* where its name is, and behind that of the kernel in the image, each with a zero */
    uint16_t arch;                  /* 90 for 9.0 */
    uint16_t first, last;           /* compute capabilities that ask for the program */
    uint8_t kind;                   /* 0: machine code, 'a': with what one chip alone has, 'f': a family of chips; 'p': PTX */
    uint8_t nothing[5];
} ignis__bundle_entry;

static const char ignis__bundle_magic[8] = {'I', 'G', 'N', 'I', 'S', 'B', 'N', '2'};

#define IGNIS__BUNDLE_IMAGE ((uint64_t)256 << 20) /* bytes, of a block too: more are none */

/*  A block that was unpacked. */
typedef struct ignis__bundle_block {
    uint64_t offset, whole; /* in the bundle; bytes */
    unsigned char *bytes;
    struct ignis__bundle_block *next;
} ignis__bundle_block;

typedef struct ignis__bundle {
    const unsigned char *data; /* null: there is none */
    void *memory;              /* what of it is Ignis' own */
    ignis__bundle_header header;
    ignis__bundle_block *blocks; /* kept until it is closed */
    bool wgmma;                  /* it has kernels with products of warpgroups */
    char from[300];
} ignis__bundle;

static ignis__bundle ignis__the_bundle;                     /* of ignis_setup */
static ignis__mutex ignis__bundle_lock = IGNIS__MUTEX_INIT; /* for its blocks */

static ignis__bundle_entry ignis__bundle_get(const ignis__bundle *bundle, uint32_t index)
{
    ignis__bundle_entry entry;
    memcpy(&entry, bundle->data + sizeof(ignis__bundle_header) + index * sizeof entry, sizeof entry);
    return entry;
}

static const char *ignis__bundle_text(const ignis__bundle *bundle, const ignis__bundle_entry *entry)
{
    return (const char *)bundle->data + entry->text;
}

/*  A hash of all of Ignis' sources. */
static uint64_t ignis__sources_hash(void)
{
    uint64_t hash = IGNIS__HASH_START;
    int i;
    for (i = 0; i < IGNIS__SOURCE_COUNT; i++)
        hash = ignis__hash(hash, &ignis__sources[i].hash, sizeof ignis__sources[i].hash);
    return hash;
}

/*  Adds a reason to a text, and is always false. */
IGNIS__PRINTF(2, 3)
IGNIS__COLD static bool ignis__reason(ignis__text *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ignis__text_addv(why, format, args);
    va_end(args);
    return false;
}

/*  Looks at everything but the images. False: it is no bundle, `why` says the reason. */
IGNIS__COLD static bool ignis__bundle_open(ignis__bundle *bundle, const void *data, size_t size, ignis__text *why)
{
    ignis__bundle_header *header = &bundle->header;
    const unsigned char *bytes = (const unsigned char *)data;
    size_t behind = offsetof(ignis__bundle_header, size);
    uint64_t texts, checksum;
    uint32_t i;
    if (size < sizeof *header)
        return ignis__reason(why, "it has %llu bytes, %d are the least", (unsigned long long)size, (int)sizeof *header);
    memcpy(header, data, sizeof *header);
    texts = sizeof *header + (uint64_t)header->count * sizeof(ignis__bundle_entry);
    if (memcmp(header->magic, ignis__bundle_magic, sizeof header->magic) != 0)
        return ignis__reason(why, "it does not begin with %.8s", ignis__bundle_magic);
    if (header->size != size)
        return ignis__reason(why, "it has %llu bytes, and says that it has %llu", (unsigned long long)size,
                             (unsigned long long)header->size);
    if (header->blocks > size || texts >= header->blocks || bytes[header->blocks - 1] != 0)
        return ignis__reason(why, "%u entries and their names do not end at byte %llu of %llu", (unsigned)header->count,
                             (unsigned long long)header->blocks, (unsigned long long)size);
    checksum = ignis__hash(IGNIS__HASH_START, bytes + behind, (size_t)header->blocks - behind);
    if (checksum != header->checksum)
        return ignis__reason(why, "its entries have the checksum %016llx, which should be %016llx", (unsigned long long)checksum,
                             (unsigned long long)header->checksum);
    bundle->data = bytes;
    for (i = 0; i < header->count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        bool named = entry.text >= texts && entry.text < header->blocks &&
                     entry.text + strlen(ignis__bundle_text(bundle, &entry)) + 1 < header->blocks;
        if (!named || entry.offset < header->blocks || entry.offset > size || entry.stored > size - entry.offset ||
            entry.stored > entry.whole || entry.whole > IGNIS__BUNDLE_IMAGE || entry.at >= entry.whole ||
            entry.size >= entry.whole - entry.at || !memchr("\0afp", entry.kind, 4)) {
            ignis__text_add(why, "entry %u of %u: the name at %u, %llu bytes at %llu that become %llu, of which %llu at %llu, kind %d",
                            (unsigned)i, (unsigned)header->count, (unsigned)entry.text, (unsigned long long)entry.stored,
                            (unsigned long long)entry.offset, (unsigned long long)entry.whole, (unsigned long long)entry.size,
                            (unsigned long long)entry.at, (int)entry.kind);
            bundle->data = NULL;
            return false;
        }
        bundle->wgmma = bundle->wgmma || (entry.kind == 'a' && strstr(ignis__bundle_text(bundle, &entry), "_hopper") != NULL);
    }
    return true;
}

/*  Unpacks what ignis_embed has packed: bytes of before, at a distance, or new ones, whose bits a range coder gives by the odds that those before
    have taught: at the same place of 16, as instructions have so many bytes. A quick and a slow estimate are averaged. */
enum {
    IGNIS__PACK_KIND = 0,   /* new or not; by what was before, and the place */
    IGNIS__PACK_AGAIN = 48, /* at a distance of before */
    IGNIS__PACK_WHICH = 52, /* of the last four */
    IGNIS__PACK_NEW = 64,   /* new bytes: behind others, behind bytes that were there before */
    IGNIS__PACK_NUMBERS = 33 * 32,
    IGNIS__PACK_LENGTH = IGNIS__PACK_NEW + 2 * 16 * 256,              /* below 31, at a new distance, at one of before; by the place */
    IGNIS__PACK_LONG = IGNIS__PACK_LENGTH + 2 * 16 * 32,              /* what is beyond that */
    IGNIS__PACK_DISTANCE = IGNIS__PACK_LONG + IGNIS__PACK_NUMBERS,    /* of 2, 3, 4 and more bytes */
    IGNIS__PACK_LOW = IGNIS__PACK_DISTANCE + 4 * IGNIS__PACK_NUMBERS, /* its lowest 4 bits: of few bytes, of more */
    IGNIS__PACK_ODDS = IGNIS__PACK_LOW + 2 * 16
};

typedef struct ignis__unpacker {
    const unsigned char *at, *end;
    uint32_t range, code;
    uint16_t odds[IGNIS__PACK_ODDS][2];
} ignis__unpacker;

static unsigned ignis__unpack_bit(ignis__unpacker *u, unsigned index)
{
    uint16_t *odds = u->odds[index];
    uint32_t bound;
    if (u->range < 1u << 24) {
        u->range <<= 8;
        u->code = u->code << 8 | (u->at < u->end ? *u->at++ : 0u);
    }
    bound = (u->range >> 16) * (((uint32_t)odds[0] + odds[1]) / 2);
    if (u->code < bound) {
        u->range = bound;
        odds[0] = (uint16_t)(odds[0] + (65535 - odds[0]) / 16);
        odds[1] = (uint16_t)(odds[1] + (65535 - odds[1]) / 64);
        return 0;
    }
    u->code -= bound;
    u->range -= bound;
    odds[0] = (uint16_t)(odds[0] - odds[0] / 16);
    odds[1] = (uint16_t)(odds[1] - odds[1] / 64);
    return 1;
}

static unsigned ignis__unpack_bits(ignis__unpacker *u, unsigned index, int count)
{
    unsigned bits = 1;
    while (!(bits >> count))
        bits = 2 * bits + ignis__unpack_bit(u, index + bits);
    return bits - (1u << count);
}

/*  A number from 1 on: how many bits it has, and those below the highest one; the lowest 4 have odds of their own where `low` is not 0. */
static uint32_t ignis__unpack_number(ignis__unpacker *u, unsigned index, unsigned low)
{
    unsigned count = ignis__unpack_bits(u, index, 5), i;
    uint32_t number = 1;
    for (i = count; i > 0 && !(low && i == 4); i--)
        number = number << 1 | ignis__unpack_bit(u, index + 32 + count * 32 + i - 1);
    return i ? number << 4 | ignis__unpack_bits(u, low, 4) : number;
}

/*  False: it is not what was packed. */
static bool ignis__unpack(ignis__unpacker *u, unsigned char *out, size_t size, const unsigned char *packed, size_t packed_size)
{
    size_t at = 0, i;
    uint32_t last[4] = {0, 0, 0, 0}, distance, length; /* distances, the last one first */
    unsigned before = 0, again, kind, which;           /* before: 0 a new byte, 1 and 2 bytes at a new and at an old distance */
    for (i = 0; i < IGNIS__PACK_ODDS; i++)
        u->odds[i][0] = u->odds[i][1] = 32768;
    u->at = packed;
    u->end = packed + packed_size;
    u->range = 0xFFFFFFFFu;
    for (i = 0; i < 4; i++)
        u->code = u->code << 8 | (u->at < u->end ? *u->at++ : 0u);
    while (at < size) {
        if (!ignis__unpack_bit(u, IGNIS__PACK_KIND + 16 * before + (at & 15))) {
            out[at] = (unsigned char)ignis__unpack_bits(u, IGNIS__PACK_NEW + (before ? 4096u : 0u) + (unsigned)(at & 15) * 256, 8);
            at++;
            before = 0;
            continue;
        }
        again = ignis__unpack_bit(u, IGNIS__PACK_AGAIN + before);
        length = ignis__unpack_bits(u, IGNIS__PACK_LENGTH + (again * 16 + (unsigned)(at & 15)) * 32, 5);
        length = 2 - again + (length < 31 ? length : 30 + ignis__unpack_number(u, IGNIS__PACK_LONG, 0));
        which = 3;
        if (again) {
            which = ignis__unpack_bits(u, IGNIS__PACK_WHICH, 2);
            distance = last[which];
        } else {
            kind = length < 5 ? length - 2 : 3;
            distance = ignis__unpack_number(u, IGNIS__PACK_DISTANCE + kind * IGNIS__PACK_NUMBERS, IGNIS__PACK_LOW + 16 * (kind > 1));
        }
        for (; which > 0; which--)
            last[which] = last[which - 1];
        last[0] = distance;
        if (distance == 0 || distance > at || length > size - at)
            return false;
        for (; length > 0; length--, at++)
            out[at] = out[at - distance];
        before = 1 + again;
    }
    return true;
}

/*  The block of an entry, unpacked; the lock is held. When it is damaged, `why` says how. */
IGNIS__COLD static ignis_diagnostic ignis__block_get(ignis__bundle *bundle, const ignis__bundle_entry *entry, ignis__bundle_block **got,
                                                     ignis__text *why)
{
    const unsigned char *stored = bundle->data + entry->offset;
    ignis__bundle_block *block = bundle->blocks;
    ignis__unpacker *unpacker;
    uint64_t checksum;
    bool whole = true;
    while (block && block->offset != entry->offset)
        block = block->next;
    *got = block;
    if (block)
        return IGNIS_DIAG_NONE;
    checksum = ignis__hash(IGNIS__HASH_START, stored, (size_t)entry->stored);
    if (checksum != entry->checksum) {
        ignis__text_add(why, "its %llu bytes at %llu have the checksum %016llx, which should be %016llx", (unsigned long long)entry->stored,
                        (unsigned long long)entry->offset, (unsigned long long)checksum, (unsigned long long)entry->checksum);
        return IGNIS_DIAG_BUNDLE_FORMAT;
    }
    block = (ignis__bundle_block *)ignis__alloc(sizeof *block);
    unpacker = (ignis__unpacker *)ignis__alloc(sizeof *unpacker);
    if (block)
        block->bytes = (unsigned char *)ignis__alloc((size_t)entry->whole);
    if (!block || !block->bytes || !unpacker) {
        if (block)
            ignis__free(block->bytes);
        ignis__free(block);
        ignis__free(unpacker);
        return IGNIS_DIAG_HOST_MEMORY;
    }
    if (entry->stored == entry->whole)
        memcpy(block->bytes, stored, (size_t)entry->whole);
    else
        whole = ignis__unpack(unpacker, block->bytes, (size_t)entry->whole, stored, (size_t)entry->stored);
    ignis__free(unpacker);
    if (!whole) {
        ignis__text_add(why, "%llu bytes at %llu cannot be unpacked to %llu", (unsigned long long)entry->stored,
                        (unsigned long long)entry->offset, (unsigned long long)entry->whole);
        ignis__free(block->bytes);
        ignis__free(block);
        return IGNIS_DIAG_BUNDLE_FORMAT;
    }
    block->offset = entry->offset;
    block->whole = entry->whole;
    block->next = bundle->blocks;
    bundle->blocks = *got = block;
    return IGNIS_DIAG_NONE;
}

/*  The image of an entry, with a zero behind it, which lives until the blocks are dropped. When it is damaged, `why` says how. */
IGNIS__COLD static ignis_diagnostic ignis__bundle_unpack(ignis__bundle *bundle, const ignis__bundle_entry *entry, void **unpacked,
                                                         ignis__text *why)
{
    ignis__bundle_block *block;
    ignis_diagnostic wrong;
    const char *why_not = NULL;
    ignis__mutex_lock(&ignis__bundle_lock);
    wrong = ignis__block_get(bundle, entry, &block, why);
    ignis__mutex_unlock(&ignis__bundle_lock);
    if (wrong != IGNIS_DIAG_NONE)
        return wrong;
    if (entry->at >= block->whole || entry->size >= block->whole - entry->at || block->bytes[entry->at + entry->size] != 0)
        why_not = "its block is another one";
    why_not = why_not ? why_not : ignis__image_fault(block->bytes + entry->at, (size_t)entry->size);
    if (why_not) {
        ignis__text_add(why, "%s: %llu bytes at %llu of %llu that are at %llu", why_not, (unsigned long long)entry->size,
                        (unsigned long long)entry->at, (unsigned long long)entry->whole, (unsigned long long)entry->offset);
        return IGNIS_DIAG_BUNDLE_FORMAT;
    }
    *unpacked = block->bytes + entry->at;
    return IGNIS_DIAG_NONE;
}

static void ignis__blocks_drop(ignis__bundle *bundle)
{
    while (bundle->blocks) {
        ignis__bundle_block *block = bundle->blocks;
        bundle->blocks = block->next;
        ignis__free(block->bytes);
        ignis__free(block);
    }
}

/*  How well an image serves a compute capability; 0: not. Machine code: its major version, from its minor one on, or one chip; PTX: all newer. */
static int ignis__bundle_serves(const ignis__bundle_entry *entry, int capability)
{
    if (entry->kind == 'p')
        return entry->arch <= capability ? entry->arch : 0;
    if (entry->kind == 'a')
        return entry->arch == capability ? 3000 : 0;
    return entry->arch / 10 == capability / 10 && entry->arch <= capability ? 1000 + entry->arch : 0;
}

/*  The image of a program that serves a compute capability best, among those that serve it worse than `below`; how well. 0: there is none. */
IGNIS__COLD static int ignis__bundle_find(const ignis__bundle *bundle, const uint64_t key[2], int capability, int below,
                                          ignis__bundle_entry *found)
{
    int best = 0, serves;
    uint32_t i;
    for (i = 0; i < bundle->header.count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        if (entry.key[0] != key[0] || entry.key[1] != key[1])
            continue;
        serves = ignis__bundle_serves(&entry, capability);
        if (serves > best && serves < below) {
            best = serves;
            *found = entry;
        }
    }
    return best;
}

/*  "75 80 90a ptx75", from the oldest on. */
IGNIS__COLD static void ignis__bundle_archs(const ignis__bundle *bundle, const uint64_t *key, ignis__text *text)
{
    int last = 0, next;
    do {
        ignis__bundle_entry of_next = IGNIS__ZERO;
        uint32_t i;
        next = 0;
        for (i = 0; i < bundle->header.count; i++) {
            ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
            int place = (entry.kind == 'p' ? 65536 * 4 : 0) + entry.arch * 4 + (entry.kind == 'a' ? 1 : entry.kind == 'f' ? 2 : 0) + 1;
            if (place > last && (next == 0 || place < next) && (!key || (entry.key[0] == key[0] && entry.key[1] == key[1]))) {
                next = place;
                of_next = entry;
            }
        }
        if (next)
            ignis__text_add(text, "%s%s%d%s", last ? " " : "", of_next.kind == 'p' ? "ptx" : "", of_next.arch,
                            of_next.kind == 'a'   ? "a"
                            : of_next.kind == 'f' ? "f"
                                                  : "");
        last = next;
    } while (next);
}

/*  A program that is in no bundle and no cache, where it cannot be compiled. */
IGNIS__COLD static bool ignis__program_missing(const char *call, const ignis__program *program, const ignis__device *device)
{
    const ignis__bundle *bundle = &ignis__the_bundle;
    const char *why = ignis__compile_never ? "ignis_desc.compile is IGNIS_COMPILE_NEVER" : "there is no NVRTC";
    char name[400], archs[128], line[480] = "";
    int first, last, capability = ignis__capability(&device->info);
    ignis__text text;
    uint64_t key[2];
    ignis__program_range(program, &first, &last);
    ignis__program_key(program, key);
    ignis__text_begin(&text, name, sizeof name);
    ignis__program_write(&text, program);
    ignis__text_begin(&text, archs, sizeof archs);
    if (bundle->data)
        ignis__bundle_archs(bundle, key, &text);
    if (ignis__program_is_own(program))
        snprintf(line, sizeof line, ", or add this line to the record: own %d-%d %s", first, last, name);
    else if (program->line)
        snprintf(line, sizeof line, ", or add this line to the record: %s", program->line);
    if (archs[0])
        ignis__fail(
            IGNIS_DIAG_KERNEL_MISSING, call,
            "%s is in %s for %s, but not for compute capability %d.%d, which device %d has, and %s. Make the bundle with ignis_embed "
            "--archs ...,%d",
            name, bundle->from, archs, capability / 10, capability % 10, device->info.device, why, capability);
    else
        ignis__fail(
            IGNIS_DIAG_KERNEL_MISSING, call,
            "%s is not in %s, for compute capability %d.%d, which device %d has, and %s. Make the bundle with ignis_embed from what "
            "the program records where it is asked for (ignis_desc.record)%s",
            name, bundle->data ? bundle->from : "the kernel cache, and there is no bundle", capability / 10, capability % 10,
            device->info.device, why, line);
    return false;
}

/*  Whether products of warpgroups can be had of the bundle, or of NVRTC, which has them from 12.0 on. */
IGNIS__MAYBE_UNUSED static bool ignis__wgmma_compiles(const char *call)
{
    const ignis__bundle *bundle = &ignis__the_bundle;
    return bundle->wgmma || (!(bundle->data && ignis__compile_never) && ignis__compiler_release(call) >> 32 >= 12);
}

/*  Whether what is in no bundle and no cache is compiled. */
static bool ignis__compiler_there(const char *call)
{
    return !ignis__compile_never &&
           (!ignis__the_bundle.data ||
            ignis__library_there(call, IGNIS_LIBRARY_NVRTC, "Kernels come from the bundle and from the cache alone"));
}

/*  Whether the bundle has a program for a device. */
static bool ignis__program_bundled(const ignis__device *device, const ignis__program *program)
{
    ignis__bundle_entry entry;
    uint64_t key[2];
    if (!ignis__the_bundle.data)
        return false;
    ignis__program_key(program, key);
    return ignis__bundle_find(&ignis__the_bundle, key, ignis__capability(&device->info), INT32_MAX, &entry) > 0;
}

/*  An image of a program, compiled for a device where it may be. */
IGNIS__COLD static bool ignis__program_compile(const char *call, const ignis__program *program, const ignis__device *device,
                                               ignis__image *image)
{
    char arch[32];
    bool is_ptx;
    if (!ignis__compiler_there(call))
        return ignis__program_missing(call, program, device);
    return ignis__library_load(call, IGNIS_LIBRARY_NVRTC) && ignis__arch_choose(call, device, arch, sizeof arch, &is_ptx) &&
           ignis__image_compile(call, program, arch, is_ptx, image);
}

/* --- images and modules --------------------------------------------------------------------------------------------- */

static void ignis__image_drop(ignis__image *image)
{
    if (!image || ignis__atomic_add(&image->holds, (uint64_t)-1) > 0)
        return;
    ignis__free(image->memory);
    ignis__free(image);
}

/*  Takes an image out of the list of the memory cache, whose lock is held; null when it is not there. */
IGNIS__COLD static ignis__image *ignis__image_unlink(const uint64_t key[2])
{
    ignis__image **link, *image;
    for (link = &ignis__kernels_state.images; *link; link = &(*link)->next)
        if ((*link)->key[0] == key[0] && (*link)->key[1] == key[1])
            break;
    image = *link;
    if (image)
        *link = image->next;
    return image;
}

/*  An image of the memory cache, held; null when it is not there. */
static ignis__image *ignis__image_find(const uint64_t key[2])
{
    ignis__image *image;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    image = ignis__image_unlink(key);
    if (image) {
        image->next = ignis__kernels_state.images;
        ignis__kernels_state.images = image;
        ignis__atomic_add(&image->holds, 1);
    }
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    return image;
}

/*  Puts an image into the memory cache, instead of one of its key; the ones that were used least recently make room. */
IGNIS__COLD static void ignis__image_keep(ignis__image *image)
{
    ignis__image **link = &ignis__kernels_state.images;
    size_t bytes = 0;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    ignis__image_drop(ignis__image_unlink(image->key));
    ignis__atomic_add(&image->holds, 1);
    image->next = *link;
    *link = image;
    while (*link && bytes + (*link)->size <= IGNIS__IMAGE_BYTES) {
        bytes += (*link)->size;
        link = &(*link)->next;
    }
    while (*link) {
        ignis__image *old = *link;
        *link = old->next;
        ignis__image_drop(old);
    }
    ignis__mutex_unlock(&ignis__kernels_state.lock);
}

/*  The image of a program, held: from memory, from disk, or compiled, always so where the caches are not trusted. Null on failure. Who asks for one
    that is being compiled waits for it. It is cached when its key is what it was: a file that it includes may have changed meanwhile. */
IGNIS__COLD static ignis__image *ignis__image_get(const char *call, ignis__device *device, const ignis__program *program,
                                                  const uint64_t key[2], bool trust, bool *from_cache)
{
    ignis__mutex *compiling = &ignis__kernels_state.compiling[key[0] % (uint64_t)IGNIS__COUNT(ignis__kernels_state.compiling)];
    ignis__image *image;
    uint64_t key_now[2];
    ignis__mutex_lock(compiling);
    image = trust ? ignis__image_find(key) : NULL;
    *from_cache = image != NULL;
    if (!image) {
        image = (ignis__image *)ignis__alloc_for(call, sizeof *image);
        if (image) {
            image->holds = 1;
            memcpy(image->key, key, sizeof image->key);
            *from_cache = trust && ignis__image_from_disk(call, image);
        }
        if (image && *from_cache) {
            ignis__image_keep(image);
        } else if (image && !ignis__program_compile(call, program, device, image)) {
            ignis__image_drop(image);
            image = NULL;
        } else if (image && ignis__image_key(program, device, ignis__compiler_release(call), key_now) &&
                   memcmp(key, key_now, sizeof key_now) == 0) {
            ignis__image_to_disk(call, image);
            ignis__image_keep(image);
        }
    }
    ignis__mutex_unlock(compiling);
    return image;
}

/*  False after a failure: of the driver, when *error is not 0, which the caller may mend or report; another one is reported already. */
IGNIS__COLD static bool ignis__module_load(const char *call, const ignis__image *image, ignis__module *unit, int *error)
{
    unit->lowered = ignis__copy_string(image->lowered);
    if (!unit->lowered) {
        *error = 0;
        ignis__fail_host_memory(call, strlen(image->lowered) + 1);
        return false;
    }
    *error = IGNIS__CUDA(cuModuleLoadData, (&unit->module, image->data));
    if (*error == 0)
        return true;
    ignis__free(unit->lowered);
    unit->lowered = NULL;
    return false;
}

IGNIS__COLD static void ignis__module_unload(ignis__module *unit)
{
    if (unit->module)
        (void)IGNIS__CUDA(cuModuleUnload, (unit->module));
    ignis__free(unit->lowered);
    memset(unit, 0, sizeof *unit);
}

/*  Unloads a module whose launches may still be queued, even if the device cannot be entered; after a fault it ends with the process. */
static void ignis__module_unload_when_idle(const char *call, ignis__device *device, ignis__module *unit)
{
    ignis__binding binding;
    bool lost = ignis__devices_lost(), entered = ignis__device_enter_to_give(call, device, &binding);
    if (entered)
        (void)ignis__device_finish(device);
    if (lost)
        unit->module = NULL;
    ignis__module_unload(unit);
    if (entered)
        ignis__device_leave(&binding);
}

/*  Whether a driver's error means that an image is not for it, or not for the device. */
static bool ignis__image_is_foreign(int error)
{
    return error == IGNIS__CU_INVALID_IMAGE || error == IGNIS__CU_NO_BINARY || error == IGNIS__CU_INVALID_PTX ||
           error == IGNIS__CU_NO_JIT || error == IGNIS__CU_UNSUPPORTED_PTX;
}

/*  Loads a program from the bundle: its best image that the driver takes. False with *failed: that is reported; else it is not there. */
IGNIS__COLD static bool ignis__module_from_bundle(const char *call, ignis__device *device, const ignis__program *program,
                                                  ignis__module *unit, bool *failed)
{
    ignis__bundle *bundle = &ignis__the_bundle;
    int capability = ignis__capability(&device->info), serves = INT32_MAX, error = 0;
    uint64_t key[2], included;
    ignis__bundle_entry entry;
    *failed = false;
    if (!bundle->data)
        return false;
    ignis__program_key(program, key);
    included = ignis__compile_never ? 0 : ignis__program_included(program);
    while (!*failed && (serves = ignis__bundle_find(bundle, key, capability, serves, &entry)) > 0) {
        const char *name = ignis__bundle_text(bundle, &entry);
        ignis__image image = IGNIS__ZERO;
        ignis_diagnostic wrong;
        char why[256];
        ignis__text text;
        if (included != 0 && included != entry.included)
            continue; /* the files are there, and are others now */
        ignis__text_begin(&text, why, sizeof why);
        wrong = ignis__bundle_unpack(bundle, &entry, &image.data, &text);
        image.lowered = (char *)(uintptr_t)(name + strlen(name) + 1);
        *failed = wrong != IGNIS_DIAG_NONE;
        if (wrong == IGNIS_DIAG_HOST_MEMORY)
            ignis__fail_host_memory(call, (size_t)entry.whole);
        else if (wrong != IGNIS_DIAG_NONE)
            ignis__fail(wrong, call, "%s is damaged: of %s for %d%s %s", bundle->from, name, (int)entry.arch,
                        entry.kind == 'p' ? " (PTX)" : "", why);
        else if (ignis__module_load(call, &image, unit, &error))
            unit->from_cache = true;
        else if (error == 0 || !ignis__image_is_foreign(error))
            *failed = error == 0 || ignis__cuda_fail(call, device, "cuModuleLoadData", error) != IGNIS_OK;
        else
            ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: the driver does not take %s for %d%s of %s: %s (%d)", call, name,
                        (int)entry.arch, entry.kind == 'p' ? " (PTX)" : "", bundle->from, ignis__cuda_name(error), error);
        if (unit->module)
            return true;
    }
    return false;
}

/*  Loads the image that the caller has. */
IGNIS__COLD static bool ignis__module_from_image(const char *call, ignis__device *device, const ignis__program *program,
                                                 ignis__module *unit)
{
    ignis__image image = IGNIS__ZERO;
    int error = 0;
    image.lowered = (char *)(uintptr_t)program->entry;
    image.data = (void *)(uintptr_t)program->image;
    unit->from_cache = true;
    if (ignis__module_load(call, &image, unit, &error))
        return true;
    if (error != 0 && ignis__image_is_foreign(error))
        ignis__fail_because(IGNIS_DIAG_UNSUPPORTED, call, error, ignis__cuda_name(error), NULL,
                            "the driver does not take the image of kernel %s, %llu bytes with the hash %016llx, for device %d of compute "
                            "capability %d.%d: %s (%d)",
                            program->entry, (unsigned long long)program->image_size,
                            (unsigned long long)ignis__hash(IGNIS__HASH_START, program->image, program->image_size), device->info.device,
                            device->info.compute_major, device->info.compute_minor, ignis__cuda_name(error), error);
    else if (error != 0)
        ignis__cuda_fail(call, device, "cuModuleLoadData", error);
    return false;
}

/*  Loads a program on a device that is entered. Loading may wait for the device, and that for a kernel which waits for what another thread is
    about to launch on another one: no lock is held meanwhile. */
IGNIS__COLD static bool ignis__module_make(const char *call, ignis__device *device, const ignis__program *program, ignis__module *unit)
{
    uint64_t key[2];
    bool trust, again;
    int first, last;
    memset(unit, 0, sizeof *unit);
    if (program->image && !ignis__global.dry_run)
        return ignis__module_from_image(call, device, program, unit);
    ignis__program_range(program, &first, &last);
    if (!program->image)
        ignis__request_add(program, first, last);
    if (ignis__global.dry_run) /* nothing is compiled, but what would be missing is missing */
        return (!ignis__compile_never || !ignis__the_bundle.data || program->image || ignis__program_bundled(device, program) ||
                ignis__program_missing(call, program, device)) &&
               !IGNIS__CUDA_FAILED(call, device, cuModuleLoadData, (&unit->module, NULL));
    if (ignis__module_from_bundle(call, device, program, unit, &again) || again)
        return unit->module != NULL;
    trust = ignis__image_key(program, device, ignis__compiler_release(call), key);
    do {
        int error = 0;
        ignis__image *image = ignis__image_get(call, device, program, key, trust, &unit->from_cache);
        bool loaded = image && ignis__module_load(call, image, unit, &error);
        ignis__image_drop(image);
        if (loaded)
            return true;
        /* in a cache, but not for this driver: that is like a damaged file */
        again = unit->from_cache && (error == IGNIS__CU_INVALID_IMAGE || error == IGNIS__CU_NO_BINARY);
        trust = false;
        if (error != 0 && !again)
            ignis__cuda_fail(call, device, "cuModuleLoadData", error);
    } while (again);
    return false;
}

/* --- the bundle and the record of ignis_setup ------------------------------------------------------------------------- */

static void ignis__bundle_close(void)
{
    ignis__blocks_drop(&ignis__the_bundle);
    ignis__free(ignis__the_bundle.memory);
    memset(&ignis__the_bundle, 0, sizeof ignis__the_bundle);
    ignis__free(ignis__requests.lines);
    ignis__requests.lines = NULL;
    ignis__requests.count = ignis__requests.room = 0;
    ignis__requests.path[0] = 0;
}

IGNIS__COLD static bool ignis__requests_setup(const char *call, const ignis_desc *desc)
{
    const char *env = ignis__env("IGNIS_RECORD"), *path = desc->record ? desc->record : env ? env : "";
    char line[32], why[160];
    ignis__requests.broken = false;
    if (strlen(path) >= sizeof ignis__requests.path)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "the path of the record is longer than %d bytes",
                             (int)sizeof ignis__requests.path - 1);
    snprintf(ignis__requests.path, sizeof ignis__requests.path, "%s", path);
    snprintf(line, sizeof line, "ignis %d\n", IGNIS_VERSION);
    ignis__requests.from_environment = !desc->record;
    if (*path && !ignis__line_append(path, line, !desc->record, why, sizeof why))
        return ignis__refuse(IGNIS_DIAG_BUNDLE_IO, call, "%s'%s' cannot be written: %s", desc->record ? "" : "IGNIS_RECORD: ", path, why);
    return true;
}

IGNIS__COLD static bool ignis__bundle_setup(const char *call, const ignis_desc *desc)
{
    ignis__bundle *bundle = &ignis__the_bundle;
    const char *env = ignis__env("IGNIS_BUNDLE"), *path = desc->bundle ? NULL : desc->bundle_path ? desc->bundle_path : env;
    const void *data = desc->bundle;
    size_t size = desc->bundle_size;
    char why[300] = "";
    ignis__text text;
    if (desc->bundle && desc->bundle_path)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "desc.bundle and desc.bundle_path are both set; a program has one bundle");
    if (!data && (!path || !*path))
        return true;
    snprintf(bundle->from, sizeof bundle->from, "%s", data ? "ignis_desc.bundle" : path);
    if (!data && (data = bundle->memory = ignis__file_read_as(path, &size, desc->bundle_path ? NULL : why, sizeof why)) == NULL)
        return *why ? ignis__refuse(IGNIS_DIAG_BUNDLE_IO, call, "IGNIS_BUNDLE: '%s' is not used, as a bundle is a program: %s", path, why)
                    : ignis__fail_file(IGNIS_DIAG_BUNDLE_IO, call, path, "read") == IGNIS_OK;
    ignis__text_begin(&text, why, sizeof why);
    if (!ignis__bundle_open(bundle, data, size, &text))
        return ignis__refuse(IGNIS_DIAG_BUNDLE_FORMAT, call, "%s is damaged, or no bundle: %s", bundle->from, why);
    return true;
}

/*  Counts the programs of a bundle for a device, and names those without an image for it. */
IGNIS__COLD static void ignis__bundle_count(const ignis__bundle *bundle, int capability, ignis_bundle_info *info, ignis__text *missing)
{
    ignis__bundle_entry found;
    uint32_t i, k;
    for (i = 0; i < bundle->header.count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        bool seen = false;
        for (k = 0; k < i && !seen; k++) {
            ignis__bundle_entry before = ignis__bundle_get(bundle, k);
            seen = memcmp(entry.key, before.key, sizeof entry.key) == 0;
        }
        if (seen)
            continue;
        info->programs++;
        if (ignis__bundle_find(bundle, entry.key, capability, INT32_MAX, &found) > 0) {
            info->usable++;
        } else if (capability >= entry.first && capability <= entry.last) {
            if (info->missing++ < 4)
                ignis__text_add(missing, "%s%s", info->missing == 1 ? "" : "; ", ignis__bundle_text(bundle, &entry));
        }
    }
}

IGNIS__COLD IGNIS_API ignis_status ignis_bundle_check(ignis_bundle_info *info)
{
    static const char call[] = "ignis_bundle_check";
    const ignis__bundle *bundle = &ignis__the_bundle;
    ignis__bundle looked_at;
    ignis_bundle_info own;
    ignis__device *device;
    ignis_diagnostic wrong = IGNIS_DIAG_NONE;
    int capability, damaged = 0;
    char faults[700], missing[500];
    ignis__text text, names;
    uint32_t i;
    if (!ignis__enter(call) || (device = ignis__device_get(call, ignis__thread_now()->device)) == NULL || !ignis__device_know(call, device))
        return ignis__failed();
    if (!bundle->data)
        return ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "there is no bundle: ignis_desc.bundle, bundle_path and IGNIS_BUNDLE name none");
    info = info ? info : &own;
    memset(info, 0, sizeof *info);
    info->version = (int)bundle->header.version;
    info->bytes = (int64_t)bundle->header.size;
    info->images = (int)bundle->header.count;
    ignis__text_begin(&names, info->architectures, sizeof info->architectures);
    ignis__bundle_archs(bundle, NULL, &names);
    ignis__text_begin(&names, missing, sizeof missing);
    capability = ignis__capability(&device->info);
    ignis__bundle_count(bundle, capability, info, &names);
    ignis__text_begin(&text, faults, sizeof faults);
    looked_at = *bundle;
    looked_at.blocks = NULL; /* what is for other devices is not kept */
    for (i = 0; i < bundle->header.count && wrong != IGNIS_DIAG_HOST_MEMORY; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        char why[256];
        ignis__text reason;
        void *image = NULL;
        ignis__text_begin(&reason, why, sizeof why);
        wrong = ignis__bundle_unpack(&looked_at, &entry, &image, &reason);
        if (wrong == IGNIS_DIAG_HOST_MEMORY)
            ignis__fail_host_memory(call, (size_t)entry.whole);
        else if (wrong != IGNIS_DIAG_NONE && damaged++ < 2)
            ignis__text_add(&text, "%s%s for %d: %s", damaged == 1 ? " " : "; ", ignis__bundle_text(bundle, &entry), (int)entry.arch, why);
    }
    ignis__blocks_drop(&looked_at);
    if (wrong == IGNIS_DIAG_HOST_MEMORY)
        return ignis__failed();
    if (damaged)
        return ignis__fail(IGNIS_DIAG_BUNDLE_FORMAT, call, "%s: %d of %d images are damaged:%s", bundle->from, damaged, info->images,
                           faults);
    if (info->version != IGNIS_VERSION)
        return ignis__fail(IGNIS_DIAG_BUNDLE_MISMATCH, call,
                           "%s was made by ignis_embed of version %d.%d.%d, this program has Ignis %d.%d.%d: its own kernels are others",
                           bundle->from, info->version / 10000, info->version / 100 % 100, info->version % 100, IGNIS_VERSION_MAJOR,
                           IGNIS_VERSION_MINOR, IGNIS_VERSION_PATCH);
    if (bundle->header.sources != ignis__sources_hash())
        return ignis__fail(IGNIS_DIAG_BUNDLE_MISMATCH, call,
                           "%s was made with another ignis_kernels.h: its sources have the hash %016llx, those of this program %016llx",
                           bundle->from, (unsigned long long)bundle->header.sources, (unsigned long long)ignis__sources_hash());
    if (info->missing)
        return ignis__fail(
            IGNIS_DIAG_KERNEL_MISSING, call,
            "%s has %d of %d programs for compute capability %d.%d, which device %d has, and is for %s. Make it with ignis_embed "
            "--archs ...,%d. Missing: %s%s",
            bundle->from, info->usable, info->usable + info->missing, capability / 10, capability % 10, device->info.device,
            info->architectures, capability, missing, info->missing > 4 ? "; and more" : "");
    return IGNIS_OK;
}

/*  A function of a module, allowed all shared memory of a block: another thread could lower what a launch asked for. A driver that loads lazily
    loads it now: at its first launch that might wait for what runs on the device. */
IGNIS__COLD static bool ignis__function_get(const char *call, ignis__device *device, const ignis__module *unit, const char *name,
                                            void **function)
{
    int fixed; /* bytes that it declares */
    if (IGNIS__CUDA_FAILED(call, device, cuModuleGetFunction, (function, unit->module, name)) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&fixed, IGNIS__CU_FUNC_SHARED, *function)) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncSetAttribute,
                           (*function, IGNIS__CU_FUNC_MAX_DYNAMIC_SHARED, device->info.shared_per_block - fixed)))
        return false;
    ignis__function_name(*function, name);
    return true;
}

/*  Whether a function can wait for what is ahead of it: not where it was made from PTX for older devices, which has no instruction for that. */
IGNIS__COLD static bool ignis__function_waits(const char *call, ignis__device *device, void *function, bool *waits)
{
    int version = 0;
    *waits = device->info.compute_major >= 9;
    if (*waits && IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&version, IGNIS__CU_FUNC_PTX_VERSION, function)))
        return false;
    *waits = *waits && version >= 90;
    return true;
}

/* --- kernels of the caller ------------------------------------------------------------------------------------------ */

#define IGNIS__MAX_PARAMS 64

/*  A kernel on one device. */
typedef struct ignis__kernel_code {
    ignis__module module;
    void *function;
    int params; /* -1: the driver does not tell */
    size_t param_size[IGNIS__MAX_PARAMS];
    int max_threads, static_shared;
    bool waits;  /* for what is ahead of it, if it asks for that */
    char *entry; /* which function it is */
    uint64_t
        entries; /* ignis__kernel_code * of other entries of the module, which is this one's: the newest, a list by `entries` of each */
} ignis__kernel_code;

typedef struct ignis__kernel {
    ignis__slot slot;
    char *memory; /* of all that the program points to */
    ignis__program program;
    char *entry;                  /* the first of the program, or what ignis_kernel_entry has asked for */
    struct ignis__kernel *shares; /* whose program it is then, held; null: its own */
    const char *file;             /* where the caller has made it, as ignis_call_site says; null: it does not */
    int line;
    uint64_t code[IGNIS_MAX_DEVICES]; /* ignis__kernel_code *, made at the first use on a device */
    uint64_t newest; /* what has replaced the program, as an ignis__kernel * that is in no pool; 0: nothing has. Its lock is the slot's */
    struct ignis__kernel
        *older;               /* what that has replaced, in the same way. All live as long as the handle's, so that launches need no lock */
    uint64_t reloads, reload; /* asked for of this one so far; the number of the one that has made it */
    ignis__former former;
} ignis__kernel;

static ignis__pool ignis__kernels =
    IGNIS__POOL_NAMED(ignis__kernel, IGNIS__KIND_KERNEL, "kernel", IGNIS_DIAG_KERNEL_FREED, offsetof(ignis__kernel, former));

static ignis__kernel *ignis__kernel_hold(const char *call, ignis_kernel handle)
{
    return (ignis__kernel *)ignis__handle_hold(call, &ignis__kernels, handle.id);
}

/*  The program that launches of a held kernel run. */
static ignis__kernel *ignis__kernel_newest(ignis__kernel *kernel)
{
    ignis__kernel *owner = kernel->shares ? kernel->shares : kernel;
    ignis__kernel *newest = (ignis__kernel *)(uintptr_t)ignis__atomic_load(&owner->newest);
    return newest ? newest : owner;
}

IGNIS__COLD static void ignis__kernel_code_free(ignis__kernel_code *code)
{
    while (code) {
        ignis__kernel_code *next = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&code->entries);
        ignis__free(code->entry);
        ignis__free(code);
        code = next;
    }
}

IGNIS__COLD static void ignis__kernel_unload(const char *call, ignis__kernel *kernel)
{
    int i;
    for (i = 0; i < ignis__device_total; i++) {
        ignis__kernel_code *code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&kernel->code[i]);
        if (code)
            ignis__module_unload_when_idle(call, &ignis__devices[i], &code->module);
        ignis__kernel_code_free(code);
    }
    ignis__free(kernel->memory);
    ignis__free(kernel->entry);
}

IGNIS__COLD static void ignis__kernel_destroy(const char *call, ignis__kernel *kernel)
{
    ignis__kernel *version = (ignis__kernel *)(uintptr_t)ignis__atomic_load(&kernel->newest), *older, *shares = kernel->shares;
    for (; version; version = older) {
        older = version->older;
        ignis__kernel_unload(call, version);
        ignis__free(version);
    }
    ignis__kernel_unload(call, kernel);
    ignis__pool_give(&ignis__kernels, kernel);
    if (shares && ignis__pool_drop(shares))
        ignis__kernel_destroy(call, shares); /* which shares nobody's */
}

IGNIS__ONE_COPY static void ignis__kernel_drop(const char *call, ignis__kernel *kernel)
{
    if (ignis__pool_drop(kernel))
        ignis__kernel_destroy(call, kernel);
}

static void ignis__kernel_drop_held(const char *call, void *item) { ignis__kernel_drop(call, (ignis__kernel *)item); }

IGNIS__COLD static bool ignis__kernel_read(const char *call, ignis__device *device, const ignis__module *unit, const char *name,
                                           ignis__kernel_code *code)
{
    size_t offset;
    int error = 0;
    if (!ignis__function_get(call, device, unit, name, &code->function) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&code->max_threads, IGNIS__CU_FUNC_MAX_THREADS, code->function)) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&code->static_shared, IGNIS__CU_FUNC_SHARED, code->function)) ||
        !ignis__function_waits(call, device, code->function, &code->waits))
        return false;
    code->params = -1;
    if (ignis__cuda.cuFuncGetParamInfo) {
        code->params = 0;
        while (code->params < IGNIS__MAX_PARAMS && (error = IGNIS__CUDA(cuFuncGetParamInfo, (code->function, (size_t)code->params, &offset,
                                                                                             &code->param_size[code->params]))) == 0)
            code->params++;
    }
    return error == IGNIS__CU_INVALID_VALUE /* the number after the last parameter */ ||
           ignis__cuda_check(call, device, "cuFuncGetParamInfo", error) == IGNIS_OK;
}

/*  The function that code->entry names: one of those that were asked for when the program was compiled, or that the module has by this name. */
IGNIS__COLD static bool ignis__kernel_read_entry(const char *call, ignis__device *device, const ignis__kernel *program,
                                                 const ignis__module *unit, ignis__kernel_code *code)
{
    int index = unit->lowered ? ignis__entry_index(program->program.entry, code->entry) : -1, error = 0;
    char *name = index >= 0 ? ignis__entry_copy(call, unit->lowered, index) : code->entry;
    bool ok = name != NULL;
    bool missing = false;
    void *function;
    if (ok) {
        error = IGNIS__CUDA(cuModuleGetFunction, (&function, unit->module, name));
        missing = error == IGNIS__CU_NOT_FOUND || error == IGNIS__CU_INVALID_VALUE; /* of an empty name it says that */
    }
    if (missing && index >= 0)
        ok = ignis__refuse(IGNIS_DIAG_ENTRY_MISSING, call, "%s has no __global__ function (or not exactly one) that is called '%s'",
                           program->program.image ? "desc.image" : program->program.name, code->entry);
    else if (missing)
        ok = ignis__refuse(IGNIS_DIAG_ENTRY_MISSING, call,
                           "the program of kernel %s has no entry '%s': give desc.entry all names, \"%s; %s\", or make it extern \"C\"",
                           program->entry, code->entry, program->entry, code->entry);
    ok = ok && ignis__kernel_read(call, device, unit, name, code);
    if (ok)
        ignis__function_name(code->function, code->entry); /* as the caller has written it */
    if (name != code->entry)
        ignis__free(name);
    return ok;
}

/*  The kernel's code on a device that is entered, loaded at the first use there. Null on failure. */
IGNIS__COLD static ignis__kernel_code *ignis__kernel_code_get(const char *call, ignis__device *device, ignis__kernel *kernel)
{
    uint64_t *place = &kernel->code[device - ignis__devices];
    ignis__kernel_code *code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(place), *made;
    if (code)
        return code;
    made = (ignis__kernel_code *)ignis__alloc_for(call, sizeof *made);
    if (!made)
        return NULL;
    made->entry = ignis__copy_string(kernel->entry);
    if (!made->entry)
        ignis__fail_host_memory(call, strlen(kernel->entry) + 1);
    else if (ignis__module_make(call, device, &kernel->program, &made->module) &&
             ignis__kernel_read_entry(call, device, kernel, &made->module, made)) {
        ignis__mutex_lock(&kernel->slot.lock); /* another thread may have been as fast, and its code be in use */
        code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(place);
        if (!code) {
            ignis__atomic_store(place, (uint64_t)(uintptr_t)made);
            code = made;
        }
        ignis__mutex_unlock(&kernel->slot.lock);
    }
    if (code != made) {
        ignis__module_unload(&made->module);
        ignis__kernel_code_free(made);
    }
    return code;
}

/*  Another entry of a program, whose code is there. Null on failure. */
IGNIS__COLD static ignis__kernel_code *ignis__kernel_code_make_entry(const char *call, ignis__device *device, ignis__kernel *program,
                                                                     ignis__kernel_code *code, const char *entry)
{
    ignis__kernel_code *made = (ignis__kernel_code *)ignis__alloc_for(call, sizeof *made);
    if (!made)
        return NULL;
    made->entry = ignis__copy_string(entry);
    if (!made->entry)
        ignis__fail_host_memory(call, strlen(entry) + 1);
    if (!made->entry || !ignis__kernel_read_entry(call, device, program, &code->module, made)) {
        ignis__kernel_code_free(made);
        return NULL;
    }
    ignis__mutex_lock(&program->slot.lock); /* two threads may both add it: both stay */
    made->entries = ignis__atomic_load(&code->entries);
    ignis__atomic_store(&code->entries, (uint64_t)(uintptr_t)made);
    ignis__mutex_unlock(&program->slot.lock);
    return made;
}

/*  That entry, looked for first. */
static ignis__kernel_code *ignis__kernel_code_entry(const char *call, ignis__device *device, ignis__kernel *program,
                                                    ignis__kernel_code *code, const char *entry)
{
    ignis__kernel_code *found = code;
    while (found && strcmp(found->entry, entry) != 0)
        found = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&found->entries);
    return found ? found : ignis__kernel_code_make_entry(call, device, program, code, entry);
}

/*  What launches of a held kernel run on a device that is entered, and its program. Null on failure. */
static ignis__kernel_code *ignis__kernel_code_of(const char *call, ignis__device *device, ignis__kernel *kernel)
{
    ignis__kernel *program = ignis__kernel_newest(kernel);
    ignis__kernel_code *code = ignis__kernel_code_get(call, device, program);
    return code && kernel->shares ? ignis__kernel_code_entry(call, device, program, code, kernel->entry) : code;
}

static ignis__program ignis__program_from(const ignis_kernel_desc *desc)
{
    ignis__program program = IGNIS__ZERO;
    program.source = desc->source;
    program.name = desc->name ? desc->name : "kernel.cu";
    program.entry = desc->entry;
    program.options = desc->options;
    program.option_count = desc->option_count;
    program.headers = desc->headers;
    program.header_count = desc->header_count;
    program.image = desc->image;
    program.image_size = desc->image_size;
    return program;
}

/*  Entries have names, each once. */
IGNIS__COLD static bool ignis__kernel_entries_check(const char *call, const ignis_kernel_desc *desc)
{
    const char *list = desc->entry, *name;
    size_t length = 0;
    int i, same;
    if (!ignis__given(call, "desc.entry", desc->entry))
        return false;
    for (i = 0; (name = ignis__entry_next(&list, &length)) != NULL && length > 0; i++) {
        char *copy = ignis__entry_copy(call, desc->entry, i);
        if (!copy)
            return false;
        same = ignis__entry_index(desc->entry, copy);
        ignis__free(copy);
        if (same != i)
            return ignis__refuse(IGNIS_DIAG_ENTRY_MISSING, call, "desc.entry is \"%s\", with one name twice", desc->entry);
    }
    if (i == 0 || name)
        return ignis__refuse(IGNIS_DIAG_ENTRY_MISSING, call, "desc.entry is \"%s\", where a name is missing", desc->entry);
    return true;
}

/*  A kernel whose image is given: it is looked at where a zero is behind it. */
IGNIS__COLD static bool ignis__kernel_image_check(const char *call, const ignis_kernel_desc *desc)
{
    const char *wrong;
    char *copy;
    if (desc->source || desc->option_count || desc->header_count)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call,
                             "desc.image is set, and desc.source, options or headers are; it is one or the other");
    if (!ignis__kernel_entries_check(call, desc))
        return false;
    copy = desc->image_size < IGNIS__BUNDLE_IMAGE ? (char *)ignis__alloc(desc->image_size + 1) : NULL;
    if (!copy)
        return ignis__fail_host_memory(call, desc->image_size) == IGNIS_OK;
    memcpy(copy, desc->image, desc->image_size);
    wrong = ignis__image_fault(copy, desc->image_size);
    if (wrong)
        ignis__fail(IGNIS_DIAG_KERNEL_IMAGE, call, "desc.image of kernel %s, %llu bytes with the hash %016llx: %s", desc->entry,
                    (unsigned long long)desc->image_size, (unsigned long long)ignis__hash(IGNIS__HASH_START, copy, desc->image_size),
                    wrong);
    ignis__free(copy);
    return !wrong;
}

/*  A header has a name and a text, and a name of its own: NVRTC refuses two of one name. */
IGNIS__COLD static bool ignis__kernel_header_check(const char *call, const ignis_kernel_desc *desc, int index)
{
    const ignis_kernel_header *header = &desc->headers[index];
    ignis__program before = ignis__program_from(desc);
    before.header_count = index;
    if (!header->name || !header->text)
        ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "desc.headers[%d].%s is null", index, header->name ? "text" : "name");
    else if (ignis__header_is_known(&before, header->name, strlen(header->name)))
        ignis__fail(IGNIS_DIAG_KERNEL_HEADER, call, "desc.headers[%d].name is \"%s\": a header before it, or one of Ignis, has that name",
                    index, header->name);
    else
        return true;
    return false;
}

IGNIS__COLD static bool ignis__kernel_desc_check(const char *call, const ignis_kernel_desc *desc)
{
    int i;
    if (!ignis__given(call, "desc", desc))
        return false;
    if (desc->image)
        return ignis__kernel_image_check(call, desc);
    if (!ignis__given(call, "desc.source", desc->source) || !ignis__kernel_entries_check(call, desc))
        return false;
    if (desc->option_count < 0 || desc->option_count > IGNIS__MAX_OPTIONS)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "desc.option_count is %d, outside 0 to %d", desc->option_count,
                             IGNIS__MAX_OPTIONS);
    if (desc->option_count > 0 && !ignis__given(call, "desc.options", desc->options))
        return false;
    if (desc->header_count < 0)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "desc.header_count is %d, below 0", desc->header_count);
    if (desc->header_count > 0 && !ignis__given(call, "desc.headers", desc->headers))
        return false;
    for (i = 0; i < desc->option_count; i++)
        if (!desc->options[i])
            return ignis__refuse(IGNIS_DIAG_NULL_ARGUMENT, call, "desc.options[%d] is null", i);
    for (i = 0; i < desc->header_count; i++)
        if (!ignis__kernel_header_check(call, desc, i))
            return false;
    return true;
}

IGNIS__COLD static char *ignis__program_keep(char *at, const char **text)
{
    size_t size = strlen(*text) + 1;
    memcpy(at, *text, size);
    *text = at;
    return at + size;
}

/*  Copies a program, with all its strings, into memory of the kernel. */
IGNIS__COLD static bool ignis__kernel_keep(const char *call, ignis__kernel *kernel, ignis__program program)
{
    size_t option_bytes = (size_t)program.option_count * sizeof *program.options;
    size_t header_bytes = (size_t)program.header_count * sizeof *program.headers;
    size_t size = option_bytes + header_bytes + strlen(program.name) + strlen(program.entry) + 2;
    ignis_kernel_header *headers;
    const char **options;
    char *at;
    int i;
    size += program.image ? program.image_size + 1 : strlen(program.source) + 1;
    for (i = 0; i < program.option_count; i++)
        size += strlen(program.options[i]) + 1;
    for (i = 0; i < program.header_count; i++)
        size += strlen(program.headers[i].name) + strlen(program.headers[i].text) + 2;
    kernel->entry = ignis__entry_copy(call, program.entry, 0);
    kernel->memory = at = kernel->entry ? (char *)ignis__alloc_for(call, size) : NULL;
    if (!at) {
        ignis__free(kernel->entry);
        kernel->entry = NULL;
        return false;
    }
    options = (const char **)(void *)at;
    headers = (ignis_kernel_header *)(void *)(at + option_bytes);
    at += option_bytes + header_bytes;
    if (program.image) { /* at the beginning, as the driver may want it aligned */
        memcpy(at, program.image, program.image_size);
        program.image = at;
        at += program.image_size + 1;
    } else {
        at = ignis__program_keep(at, &program.source);
    }
    at = ignis__program_keep(at, &program.name);
    at = ignis__program_keep(at, &program.entry);
    for (i = 0; i < program.option_count; i++) {
        options[i] = program.options[i];
        at = ignis__program_keep(at, &options[i]);
    }
    for (i = 0; i < program.header_count; i++) {
        headers[i] = program.headers[i];
        at = ignis__program_keep(at, &headers[i].name);
        at = ignis__program_keep(at, &headers[i].text);
    }
    program.options = options;
    program.headers = headers;
    kernel->program = program;
    return true;
}

IGNIS__COLD IGNIS_API ignis_kernel ignis_kernel_compile(const ignis_kernel_desc *desc)
{
    static const char call[] = "ignis_kernel_compile";
    ignis_kernel handle = IGNIS__ZERO;
    ignis__kernel *kernel;
    ignis__binding binding;
    ignis__device *device;
    if (!ignis__enter(call) || !ignis__kernel_desc_check(call, desc) || (device = ignis__device_current_enter(call, &binding)) == NULL)
        return handle;
    kernel = (ignis__kernel *)ignis__pool_take_zeroed(call, &ignis__kernels);
    if (kernel && !ignis__kernel_keep(call, kernel, ignis__program_from(desc))) {
        ignis__pool_give(&ignis__kernels, kernel);
    } else if (kernel) {
        kernel->file = ignis__this_thread.file;
        kernel->line = ignis__this_thread.line;
        if (ignis__kernel_code_get(call, device, kernel))
            handle.id = ignis__pool_publish(&ignis__kernels, kernel);
        else
            ignis__kernel_destroy(call, kernel);
    }
    ignis__device_leave(&binding);
    return handle;
}

/*  A handle for an entry of a held kernel's program, not published yet. */
IGNIS__COLD static ignis__kernel *ignis__kernel_make_entry(const char *call, ignis__kernel *kernel, const char *entry)
{
    ignis__kernel *made = (ignis__kernel *)ignis__pool_take_zeroed(call, &ignis__kernels);
    if (!made)
        return NULL;
    made->shares = kernel->shares ? kernel->shares : kernel;
    (void)ignis__pool_hold_more(made->shares);
    made->file = ignis__this_thread.file;
    made->line = ignis__this_thread.line;
    made->entry = ignis__copy_string(entry);
    if (made->entry)
        return made;
    ignis__fail_host_memory(call, strlen(entry) + 1);
    ignis__kernel_destroy(call, made);
    return NULL;
}

IGNIS__COLD IGNIS_API ignis_kernel ignis_kernel_entry(ignis_kernel handle, const char *entry)
{
    static const char call[] = "ignis_kernel_entry";
    ignis_kernel result = IGNIS__ZERO;
    ignis__kernel *kernel = ignis__kernel_hold(call, handle), *made;
    ignis__binding binding;
    ignis__device *device;
    if (!kernel)
        return result;
    if (ignis__given(call, "entry", entry) && (device = ignis__device_current_enter(call, &binding)) != NULL) {
        made = ignis__kernel_make_entry(call, kernel, entry);
        if (made && ignis__kernel_code_of(call, device, made))
            result.id = ignis__pool_publish(&ignis__kernels, made);
        else if (made)
            ignis__kernel_destroy(call, made);
        ignis__device_leave(&binding);
    }
    ignis__kernel_drop(call, kernel);
    return result;
}

IGNIS__COLD static bool ignis__kernel_kill(ignis__kernel *kernel)
{
    ignis__mutex_lock(&kernel->slot.lock);
    ignis__former_write(&kernel->former, &kernel->slot, 0, kernel->entry);
    ignis__mutex_unlock(&kernel->slot.lock);
    return ignis__handle_kill(kernel);
}

IGNIS__COLD IGNIS_API ignis_status ignis_kernel_free(ignis_kernel handle)
{
    static const char call[] = "ignis_kernel_free";
    const uint64_t failures = ignis__failures();
    ignis__kernel *kernel;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    kernel = ignis__kernel_hold(call, handle);
    if (!kernel)
        return ignis__failed();
    if (ignis__capture_refuses(call)) {
        ignis__kernel_drop(call, kernel);
        return ignis__failed();
    }
    live = ignis__kernel_kill(kernel);
    if (!live)
        ignis__fail_stale(call, &ignis__kernels, handle.id);
    ignis__kernel_drop(call, kernel);
    return ignis__ended(failures, live);
}

IGNIS__COLD IGNIS_API ignis_status ignis_kernel_query(ignis_kernel handle, ignis_kernel_info *info)
{
    static const char call[] = "ignis_kernel_query";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis__kernel_code *code;
    ignis__device *device;
    ignis__binding binding;
    bool ok = false;
    if (!kernel)
        return ignis__failed();
    if (ignis__given(call, "info", info) && (device = ignis__device_current_enter(call, &binding)) != NULL) {
        code = ignis__kernel_code_of(call, device, kernel);
        ok = code && !IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&info->registers, IGNIS__CU_FUNC_REGISTERS, code->function)) &&
             !IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&info->local_bytes, IGNIS__CU_FUNC_LOCAL, code->function));
        if (ok) {
            info->entry = code->entry;
            info->parameters = code->params;
            info->shared_bytes = code->static_shared;
            info->max_threads = code->max_threads;
            info->from_cache = ignis__kernel_code_get(call, device, ignis__kernel_newest(kernel))->module.from_cache;
        }
        ignis__device_leave(&binding);
    }
    ignis__kernel_drop(call, kernel);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Whether a block can have so many threads, and so much shared memory that is not static. */
static bool ignis__block_check(const char *call, const ignis__device *device, const ignis__kernel_code *code, int64_t threads,
                               int64_t shared_bytes)
{
    int64_t shared_limit = device->info.shared_per_block - code->static_shared;
    if (threads > code->max_threads)
        return ignis__refuse(IGNIS_DIAG_LAUNCH_SIZE, call, "a block of %lld threads is more than the %d that kernel %s can have",
                             (long long)threads, code->max_threads, code->entry);
    if (shared_bytes < 0 || shared_bytes > shared_limit)
        return ignis__refuse(IGNIS_DIAG_LAUNCH_SIZE, call,
                             "shared_bytes is %lld, outside 0 to the %lld that device %d leaves beside %d static bytes",
                             (long long)shared_bytes, (long long)shared_limit, device->info.device, code->static_shared);
    return true;
}

/*  How many blocks of so many threads run at once on a multiprocessor. */
static bool ignis__kernel_resident(const char *call, ignis__device *device, const ignis__kernel_code *code, int threads,
                                   int64_t shared_bytes, int *blocks)
{
    return !IGNIS__CUDA_FAILED(call, device, cuOccupancyMaxActiveBlocksPerMultiprocessor,
                               (blocks, code->function, threads, (size_t)shared_bytes));
}

IGNIS__COLD static bool ignis__kernel_occupancy(const char *call, ignis__device *device, const ignis__kernel_code *code, int block,
                                                int64_t shared_bytes, ignis_occupancy *out)
{
    int threads = block, warp = device->info.warp_size, blocks;
    if (block < 0)
        return ignis__refuse(IGNIS_DIAG_LAUNCH_SIZE, call, "block is %d, below 0", block);
    if (!ignis__block_check(call, device, code, block, shared_bytes))
        return false;
    out->block = block;
    out->blocks = 0;
    if (block > 0 && !ignis__kernel_resident(call, device, code, block, shared_bytes, &out->blocks))
        return false;
    for (threads = code->max_threads / warp * warp; block == 0 && threads > 0; threads -= warp) {
        if (!ignis__kernel_resident(call, device, code, threads, shared_bytes, &blocks))
            return false;
        if (out->block == 0 || blocks * threads > out->blocks * out->block) {
            out->block = threads;
            out->blocks = blocks;
        }
    }
    out->grid = out->blocks * device->info.multiprocessors;
    return true;
}

IGNIS__COLD IGNIS_API ignis_status ignis_kernel_occupancy(ignis_kernel handle, int block, int64_t shared_bytes, ignis_occupancy *out)
{
    static const char call[] = "ignis_kernel_occupancy";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis__kernel_code *code;
    ignis__device *device;
    ignis__binding binding;
    bool ok = false;
    if (!kernel)
        return ignis__failed();
    if (ignis__given(call, "out", out) && (device = ignis__device_current_enter(call, &binding)) != NULL) {
        code = ignis__kernel_code_of(call, device, kernel);
        ok = code && ignis__kernel_occupancy(call, device, code, block, shared_bytes, out);
        ignis__device_leave(&binding);
    }
    ignis__kernel_drop(call, kernel);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Copies to a variable of a program from data, or from it to out; the other one is null. */
IGNIS__COLD static bool ignis__symbol_copy(const ignis__work *work, ignis__kernel *program, const char *name, const void *data, void *out,
                                           int64_t size)
{
    ignis__kernel_code *code = ignis__kernel_code_get(work->call, work->device, program);
    ignis__address address = 0;
    size_t bytes = 0;
    int error = code && !ignis__global.dry_run ? IGNIS__CUDA(cuModuleGetGlobal_v2, (&address, &bytes, code->module.module, name)) : 0;
    if (code && ignis__global.dry_run && out && size > 0) /* which knows no variables */
        memset(out, 0, (size_t)size);
    if (!code || ignis__global.dry_run)
        return code != NULL;
    if (error == IGNIS__CU_NOT_FOUND)
        ignis__fail(IGNIS_DIAG_SYMBOL_MISSING, work->call, "the program of kernel %s has no __constant__ or __device__ variable '%s'",
                    program->entry, name);
    else if (ignis__cuda_check(work->call, work->device, "cuModuleGetGlobal_v2", error) == IGNIS_OK && (int64_t)bytes != size)
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, work->call, "'%s' has %lld bytes, the call says %lld", name, (long long)bytes,
                    (long long)size);
    else if (error == 0)
        return out ? ignis__copy_to_host(work, out, address, size) : ignis__copy_from_host(work, address, data, size);
    return false;
}

IGNIS__COLD static ignis_status ignis__kernel_symbol(const char *call, ignis_kernel handle, const char *name, const void *data, void *out,
                                                     int64_t size)
{
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis__device *device;
    ignis__work work;
    bool ok = false;
    if (!kernel)
        return ignis__failed();
    if (ignis__given(call, "name", name) && ignis__given(call, "data", data ? data : out) && !ignis__capture_refuses(call) &&
        (device = ignis__device_get(call, ignis__thread_now()->device)) != NULL && ignis__work_begin(call, device, &work)) {
        ok = ignis__symbol_copy(&work, ignis__kernel_newest(kernel), name, data, out, size);
        ignis__work_end(&work);
    }
    ignis__kernel_drop(call, kernel);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_kernel_set_symbol(ignis_kernel kernel, const char *name, const void *data, int64_t size)
{
    return ignis__kernel_symbol("ignis_kernel_set_symbol", kernel, name, data, NULL, size);
}

IGNIS_API ignis_status ignis_kernel_get_symbol(ignis_kernel kernel, const char *name, void *data, int64_t size)
{
    return ignis__kernel_symbol("ignis_kernel_get_symbol", kernel, name, NULL, data, size);
}

/* --- reloading -------------------------------------------------------------------------------------------------------- */

typedef struct ignis__reload {
    ignis__kernel *kernel; /* of the handle, held */
    ignis__kernel *version;
    bool device[IGNIS_MAX_DEVICES];
} ignis__reload;

static const char ignis__reload_call[] = "ignis_kernel_reload";

IGNIS__COLD static void ignis__reload_drop(ignis__reload *reload)
{
    if (reload->version) {
        ignis__kernel_unload(ignis__reload_call, reload->version);
        ignis__free(reload->version);
    }
    ignis__kernel_drop(ignis__reload_call, reload->kernel);
    ignis__free(reload);
}

/*  Whether the new program has all entries of those that handles launch. */
IGNIS__COLD static bool ignis__reload_entries(ignis__device *device, ignis__kernel *before, ignis__kernel *version)
{
    ignis__kernel_code *code = ignis__kernel_code_get(ignis__reload_call, device, version), *old;
    old = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&before->code[device - ignis__devices]);
    while (code && old && (old = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&old->entries)) != NULL)
        if (!ignis__kernel_code_entry(ignis__reload_call, device, version, code, old->entry))
            return false;
    return code != NULL;
}

/*  Compiles for all devices, and puts the result before those that were asked for earlier. */
IGNIS__COLD static void ignis__reload_run(void *context)
{
    ignis__reload *reload = (ignis__reload *)context;
    ignis__kernel *kernel = reload->kernel, *version = reload->version, *newest;
    ignis__binding binding;
    bool ok = true;
    int i;
    for (i = 0; ok && i < ignis__device_total; i++) {
        if (reload->device[i] && (ok = ignis__device_enter(ignis__reload_call, &ignis__devices[i], &binding)) == true) {
            ok = ignis__reload_entries(&ignis__devices[i], ignis__kernel_newest(kernel), version);
            ignis__device_leave(&binding);
        }
    }
    if (ok) {
        ignis__mutex_lock(&kernel->slot.lock);
        newest = (ignis__kernel *)(uintptr_t)ignis__atomic_load(&kernel->newest);
        if (newest && newest->reload > version->reload) {
            version->older = newest->older;
            newest->older = version;
        } else {
            version->older = newest;
            ignis__atomic_store(&kernel->newest, (uint64_t)(uintptr_t)version);
        }
        ignis__mutex_unlock(&kernel->slot.lock);
        reload->version = NULL;
    }
    ignis__reload_drop(reload);
}

IGNIS__COLD IGNIS_API ignis_ticket ignis_kernel_reload(ignis_kernel handle, const ignis_kernel_desc *desc)
{
    ignis_ticket result = IGNIS__ZERO;
    ignis__kernel *held = ignis__kernel_hold(ignis__reload_call, handle), *kernel = held && held->shares ? held->shares : held;
    ignis__device *device = kernel ? ignis__device_get(ignis__reload_call, ignis__thread_now()->device) : NULL;
    ignis__ticket *ticket = NULL;
    ignis__reload *reload;
    int i;
    if (!kernel)
        return result;
    if (kernel != held) {
        (void)ignis__pool_hold_more(kernel);
        ignis__kernel_drop(ignis__reload_call, held);
    }
    if (!device || !ignis__kernel_desc_check(ignis__reload_call, desc)) {
        ignis__kernel_drop(ignis__reload_call, kernel);
        return result;
    }
    reload = (ignis__reload *)ignis__alloc(sizeof *reload);
    if (reload)
        reload->version = (ignis__kernel *)ignis__alloc(sizeof *reload->version);
    if (!reload || !reload->version) {
        ignis__free(reload);
        ignis__kernel_drop(ignis__reload_call, kernel);
        ignis__fail_host_memory(ignis__reload_call, sizeof *reload + sizeof *kernel);
        return result;
    }
    reload->kernel = kernel;
    ignis__mutex_init(&reload->version->slot.lock);
    for (i = 0; i < ignis__device_total; i++)
        reload->device[i] = &ignis__devices[i] == device || ignis__atomic_load(&ignis__kernel_newest(kernel)->code[i]) != 0;
    ignis__mutex_lock(&kernel->slot.lock);
    reload->version->reload = ++kernel->reloads;
    ignis__mutex_unlock(&kernel->slot.lock);
    if (ignis__kernel_keep(ignis__reload_call, reload->version, ignis__program_from(desc)))
        ticket = ignis__ticket_start(ignis__reload_call, device, ignis__reload_run, reload);
    if (ticket)
        result.id = ignis__pool_publish(&ignis__tickets, ticket);
    else
        ignis__reload_drop(reload);
    return result;
}

/* --- launches ------------------------------------------------------------------------------------------------------- */

#define IGNIS__ARG_SCALAR(suffix, ctype, TYPE)          \
    IGNIS_API ignis_arg ignis_arg_##suffix(ctype value) \
    {                                                   \
        ignis_arg arg;                                  \
        arg.type = IGNIS_ARG_##TYPE;                    \
        arg.size = 0;                                   \
        arg.value.suffix = value;                       \
        return arg;                                     \
    }
IGNIS__ARG_SCALAR(array, ignis_array, ARRAY)
IGNIS__ARG_SCALAR(i32, int32_t, I32)
IGNIS__ARG_SCALAR(i64, int64_t, I64)
IGNIS__ARG_SCALAR(f32, float, F32)
IGNIS__ARG_SCALAR(f64, double, F64)
IGNIS__ARG_SCALAR(ptr, void *, PTR)

IGNIS_API ignis_arg ignis_arg_bytes(const void *bytes, size_t size)
{
    ignis_arg arg;
    arg.type = IGNIS_ARG_BYTES;
    arg.size = size;
    arg.value.bytes = bytes;
    return arg;
}

/*  The arguments of one launch as the driver takes them, and the arrays that are held meanwhile. */
typedef struct ignis__launch_args {
    void *params[IGNIS__MAX_PARAMS];
    ignis__address addresses[IGNIS__MAX_PARAMS];
    ignis__array *arrays[IGNIS__MAX_PARAMS];
    int array_count;
} ignis__launch_args;

static size_t ignis__arg_size(const ignis_arg *arg)
{
    switch (arg->type) {
    case IGNIS_ARG_I32:
    case IGNIS_ARG_F32: return 4;
    case IGNIS_ARG_BYTES: return arg->size;
    default: return 8;
    }
}

static bool ignis__arg_array(const ignis__work *work, ignis__launch_args *launch, int index, ignis_array handle)
{
    ignis__array *array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (!array) {
        ignis__fail_stale(work->call, &ignis__arrays, handle.id);
        return false;
    }
    launch->arrays[launch->array_count++] = array;
    if (array->storage->device != work->device)
        return ignis__refuse(IGNIS_DIAG_DEVICE_DIFFERS, work->call, "argument %d, %s, is on device %d, the kernel runs on device %d", index,
                             ignis__array_label(array).text, ignis__device_ordinal(array->storage->device),
                             ignis__device_ordinal(work->device));
    launch->params[index] = &launch->addresses[index];
    if (!ignis__work_address(work, array, &launch->addresses[index]))
        return false;
    ignis__storage_lent(array->storage);
    return true;
}

static bool ignis__args_gather(const ignis__work *work, const ignis__kernel_code *code, const ignis_arg *args, int count,
                               ignis__launch_args *launch)
{
    int i;
    launch->array_count = 0;
    if (count < 0 || count > IGNIS__MAX_PARAMS || (code->params >= 0 && count != code->params))
        return ignis__refuse(IGNIS_DIAG_ARG_COUNT, work->call, "kernel %s has %d parameters, the call gives %d arguments", code->entry,
                             code->params >= 0 ? code->params : IGNIS__MAX_PARAMS, count);
    for (i = 0; i < count; i++) {
        if (args[i].type < IGNIS_ARG_ARRAY || args[i].type > IGNIS_ARG_BYTES)
            return ignis__refuse(IGNIS_DIAG_BAD_ENUM, work->call, "argument %d has type %d; make it with an ignis_arg_ function", i,
                                 (int)args[i].type);
        if (code->params >= 0 && ignis__arg_size(&args[i]) != code->param_size[i])
            return ignis__refuse(IGNIS_DIAG_ARG_SIZE, work->call, "argument %d of kernel %s is %llu bytes, its parameter %llu", i,
                                 code->entry, (unsigned long long)ignis__arg_size(&args[i]), (unsigned long long)code->param_size[i]);
        if (args[i].type == IGNIS_ARG_BYTES && !args[i].value.bytes)
            return ignis__refuse(IGNIS_DIAG_NULL_ARGUMENT, work->call, "argument %d has no bytes", i);
        /* The driver only reads parameters; its prototype has no const. */
        if (args[i].type == IGNIS_ARG_BYTES)
            launch->params[i] = (void *)(uintptr_t)args[i].value.bytes;
        else if (args[i].type != IGNIS_ARG_ARRAY)
            launch->params[i] = (void *)(uintptr_t)&args[i].value;
        else if (!ignis__arg_array(work, launch, i, args[i].value.array))
            return false;
    }
    return true;
}

/*  Whether all blocks of a launch can run at once, the kernel alone on the device. */
IGNIS__COLD static bool ignis__launch_check_together(const ignis__work *work, const ignis__kernel_code *code, const ignis_launch *launch,
                                                     const unsigned grid[3], int threads)
{
    int64_t wanted = (int64_t)grid[0] * grid[1] * grid[2], room;
    int blocks = 0;
    if (!ignis__cuda.cuLaunchKernelEx)
        return ignis__refuse(IGNIS_DIAG_UNSUPPORTED, work->call, "cooperative launches need a driver of CUDA 12.3 or newer");
    if (!ignis__kernel_resident(work->call, work->device, code, threads, launch->shared_bytes, &blocks))
        return false;
    room = (int64_t)blocks * work->device->info.multiprocessors;
    return wanted <= room ||
           ignis__refuse(IGNIS_DIAG_LAUNCH_SIZE, work->call,
                         "a cooperative launch of %lld blocks of %d threads: kernel %s has room for %lld on device %d, %d on each of its "
                         "%d multiprocessors (ignis_kernel_occupancy)",
                         (long long)wanted, threads, code->entry, (long long)room, work->device->info.device, blocks,
                         work->device->info.multiprocessors);
}

/*  Checks a launch against the limits of device and kernel, with 0 as 1 where that is allowed. */
static bool ignis__launch_check(const ignis__work *work, const ignis__kernel_code *code, const ignis_launch *launch, unsigned grid[3],
                                unsigned block[3])
{
    static const int64_t grid_limit[3] = {INT32_MAX, 65535, 65535};
    static const int block_limit[3] = {1024, 1024, 64};
    int64_t threads = 1;
    int i;
    for (i = 0; i < 3; i++) {
        int64_t blocks = launch->grid[i] == 0 && i > 0 ? 1 : launch->grid[i];
        int size = launch->block[i] == 0 && i > 0 ? 1 : launch->block[i];
        if (blocks < 0 || blocks > grid_limit[i])
            return ignis__refuse(IGNIS_DIAG_LAUNCH_SIZE, work->call, "grid[%d] is %lld, outside 0 to %lld", i, (long long)launch->grid[i],
                                 (long long)grid_limit[i]);
        if (size < 1 || size > block_limit[i])
            return ignis__refuse(IGNIS_DIAG_LAUNCH_SIZE, work->call, "block[%d] is %d, outside 1 to %d", i, launch->block[i],
                                 block_limit[i]);
        grid[i] = (unsigned)blocks;
        block[i] = (unsigned)size;
        threads *= size;
    }
    return ignis__block_check(work->call, work->device, code, threads, launch->shared_bytes) &&
           (!launch->cooperative || ignis__launch_check_together(work, code, launch, grid, (int)threads));
}

/*  dependent: the kernel waits by itself for what is ahead of it on the stream, and may begin earlier (programmatic dependent launch). together: its
    blocks wait for each other, and all run at once; the driver has cuLaunchKernelEx. */
static bool ignis__launch_as(const ignis__work *work, void *function, const unsigned grid[3], const unsigned block[3], unsigned shared,
                             void **params, bool dependent, bool together)
{
    ignis__traced item;
    unsigned count = 0;
    bool traced, ok;
    if ((int64_t)shared > work->device->info.shared_per_block)
        return ignis__refuse(IGNIS_DIAG_UNSUPPORTED, work->call, "the kernel needs %u bytes of shared memory in a block, device %d has %d",
                             shared, work->device->info.device, work->device->info.shared_per_block);
    traced = ignis__profiling() && ignis__traced_open(&item, IGNIS__TRACED_KERNEL, work->call, work->device, work->stream, function, NULL);
    dependent = dependent && ignis__cuda.cuLaunchKernelEx && work->device->info.compute_major >= 9;
    if (dependent || together) {
        ignis__launch_attribute attributes[2];
        ignis__launch_config config = IGNIS__ZERO;
        memset(attributes, 0, sizeof attributes);
        attributes[0].value.allowed = attributes[1].value.allowed = 1;
        if (dependent)
            attributes[count++].id = IGNIS__CU_LAUNCH_DEPENDENT;
        if (together)
            attributes[count++].id = IGNIS__CU_LAUNCH_COOPERATIVE;
        memcpy(config.grid, grid, sizeof config.grid);
        memcpy(config.block, block, sizeof config.block);
        config.shared_bytes = shared;
        config.stream = work->stream;
        config.attributes = attributes;
        config.attribute_count = count;
        ok = !IGNIS__CUDA_FAILED(work->call, work->device, cuLaunchKernelEx, (&config, function, params, NULL));
    } else {
        ok = !IGNIS__CUDA_FAILED(work->call, work->device, cuLaunchKernel,
                                 (function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, work->stream, params, NULL));
    }
    return traced ? ignis__traced_close(&item, ok) : ok;
}

static ignis_status ignis__kernel_launch(const char *call, ignis__kernel *kernel, const ignis_launch *launch, const ignis_arg *args,
                                         int count)
{
    ignis__launch_args gathered;
    ignis__kernel_code *code;
    ignis__work work;
    ignis__capture *capture;
    unsigned grid[3], block[3];
    bool ok;
    ignis__device *device = ignis__device_get(call, ignis__thread_now()->device);
    if (!device || !ignis__work_begin(call, device, &work))
        return ignis__failed();
    capture = ignis__capture_on(device);
    code = ignis__kernel_code_of(call, work.device, kernel);
    ok = code != NULL;
    if (ok) {
        ok = ignis__args_gather(&work, code, args, count, &gathered) && ignis__launch_check(&work, code, launch, grid, block) &&
             (!capture || ignis__capture_hold(call, capture, kernel, &kernel->slot.state, ignis__kernel_drop_held)) &&
             (grid[0] == 0 || ignis__launch_as(&work, code->function, grid, block, (unsigned)launch->shared_bytes, gathered.params,
                                               launch->dependent && code->waits, launch->cooperative));
        ignis__array_drop_all(call, gathered.array_count, gathered.arrays);
    }
    ignis__work_end(&work);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_kernel_launch(ignis_kernel handle, const ignis_launch *launch, const ignis_arg *args, int arg_count)
{
    static const char call[] = "ignis_kernel_launch";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis_status status;
    if (!kernel)
        return ignis__failed();
    if (!launch)
        status = ignis__fail_null(call, "launch");
    else if (!args && arg_count > 0)
        status = ignis__fail_null(call, "args");
    else
        status = ignis__kernel_launch(call, kernel, launch, args, arg_count);
    ignis__kernel_drop(call, kernel);
    return status;
}

/* --- tensor maps ------------------------------------------------------------------------------------------------------ */

/*  Where the tiles of an array are, for the copy engine of sm_90 and up (TMA). The driver packs the bits on the host, for each launch anew, and
    the kernel gets them by value: a graph keeps what it was captured with. kernels/hopper.cuh has the same struct. */
typedef struct ignis__tensor_map {
    uint64_t words[16];
} ignis__tensor_map;

/*  What pixels of images a tile has: so many, one after the other of a box in each image, from lower to upper, which count from the first and
    the last pixel on, of every step-th row and column. Columns come first. */
typedef struct ignis__tensor_pixels {
    int lower[2], upper[2], step[2], count;
} ignis__tensor_pixels;

/*  A map of an array of up to 5 dimensions, the contiguous one first. `strides` are the bytes from one element to the next of the dimensions
    after it, multiples of 16 as the address is. A tile has box[i] elements of dimension i; its rows of 128 bytes lie in shared memory with
    their chunks of 16 bytes swizzled. What is outside of the array reads as zeros, and is not written. With pixels (null: none) the array is
    [image, row, column, channel], and a tile has box[0] channels of them. */
IGNIS__MAYBE_UNUSED static bool ignis__tensor_map_make(const ignis__work *work, ignis__tensor_map *map, ignis_dtype dtype, bool rounds,
                                                       ignis__address data, int rank, const int64_t *dims, const int64_t *strides,
                                                       const int *box, const ignis__tensor_pixels *pixels)
{
    enum {
        U8 = 0,
        F16 = 6,
        F32 = 7,
        F64 = 8,
        BF16 = 9,
        TF32 = 11,
        NO_INTERLEAVE = 0,
        SWIZZLE_128_BYTES = 3,
        PROMOTE_TO_128_BYTES = 2,
        ZEROS_OUTSIDE = 0
    };
    int type = dtype == IGNIS_F16          ? F16
               : dtype == IGNIS_BF16       ? BF16
               : dtype == IGNIS_F64        ? F64
               : ignis__dtype_is_f8(dtype) ? U8
               : rounds                    ? TF32
                                           : F32,
        i;
    unsigned long long sizes[5], steps[5], aligned[24];
    unsigned boxes[5], walk[5];
    void *at = aligned + (64 - (uintptr_t)aligned % 64) % 64 / sizeof *aligned;
    IGNIS_ASSERT(rank >= 1 && rank <= 5 && !ignis__dtype_is_int(dtype) && (!pixels || rank == 4));
    for (i = 0; i < rank; i++) {
        sizes[i] = (unsigned long long)dims[i];
        steps[i] = i + 1 < rank ? (unsigned long long)strides[i] : 0;
        boxes[i] = pixels ? 0 : (unsigned)box[i];
        walk[i] = pixels && (i == 1 || i == 2) ? (unsigned)pixels->step[i - 1] : 1;
    }
    if (pixels ? IGNIS__CUDA_FAILED(work->call, work->device, cuTensorMapEncodeIm2col,
                                    (at, type, (unsigned)rank, (void *)(uintptr_t)data, sizes, steps, pixels->lower, pixels->upper,
                                     (unsigned)box[0], (unsigned)pixels->count, walk, NO_INTERLEAVE, SWIZZLE_128_BYTES,
                                     PROMOTE_TO_128_BYTES, ZEROS_OUTSIDE))
               : IGNIS__CUDA_FAILED(work->call, work->device, cuTensorMapEncodeTiled,
                                    (at, type, (unsigned)rank, (void *)(uintptr_t)data, sizes, steps, boxes, walk, NO_INTERLEAVE,
                                     SWIZZLE_128_BYTES, PROMOTE_TO_128_BYTES, ZEROS_OUTSIDE)))
        return false;
    memcpy(map, at, sizeof *map);
    return true;
}

/* --- Ignis' own kernels ----------------------------------------------------------------------------------------------- */

/*  Those of generation, which others do not warm up. */
#ifdef IGNIS_MODELS
#define IGNIS__BUILTINS_MODELS(X)                                               \
    X(BLOCKS_ROWS, BLOCKS_CU, "ignis_blocks_rows")                              \
    X(BLOCKS_EMBEDDING, BLOCKS_CU, "ignis_blocks_embedding")                    \
    X(BLOCKS_EMBED, BLOCKS_CU, "ignis_blocks_embed")                            \
    X(GENERATE_WORDS, GENERATE_CU, "ignis_generate_words")                      \
    X(GENERATE_ROWS, GENERATE_CU, "ignis_generate_rows")                        \
    X(GENERATE_CHUNK, GENERATE_CU, "ignis_generate_chunk")                      \
    X(GENERATE_EMBED, GENERATE_CU, "ignis_generate_embed")                      \
    X(GENERATE_NORM, GENERATE_CU, "ignis_generate_norm")                        \
    X(GENERATE_GATE, GENERATE_CU, "ignis_generate_gate")                        \
    X(GENERATE_CACHE, GENERATE_CU, "ignis_generate_cache")                      \
    X(GENERATE_GATHER, GENERATE_CU, "ignis_generate_gather")                    \
    X(GENERATE_COPY, GENERATE_CU, "ignis_generate_copy")                        \
    X(GENERATE_DRAW, GENERATE_DRAW_CU, "ignis_generate_draw")                   \
    X(GENERATE_DRAW_BINS, GENERATE_DRAW_CU, "ignis_generate_draw_bins")         \
    X(GENERATE_DRAW_CUT, GENERATE_DRAW_CU, "ignis_generate_draw_cut")           \
    X(GEMV_1, GEMV_CU, "ignis_gemv_1")                                          \
    X(GEMV_2, GEMV_CU, "ignis_gemv_2")                                          \
    X(GEMV_4, GEMV_CU, "ignis_gemv_4")                                          \
    X(GEMV_8, GEMV_CU, "ignis_gemv_8")                                          \
    X(GEMV_GATED_1, GEMV_CU, "ignis_gemv_gated_1")                              \
    X(GEMV_GATED_2, GEMV_CU, "ignis_gemv_gated_2")                              \
    X(GEMV_GATED_4, GEMV_CU, "ignis_gemv_gated_4")                              \
    X(GEMV_GATED_8, GEMV_CU, "ignis_gemv_gated_8")                              \
    X(GEMV_MMA_NORM, GEMV_MMA_CU, "ignis_gemv_mma_norm")                        \
    X(GEMV_MMA_1, GEMV_MMA_CU, "ignis_gemv_mma_1")                              \
    X(GEMV_MMA_8, GEMV_MMA_CU, "ignis_gemv_mma_8")                              \
    X(GEMV_MMA_16, GEMV_MMA_CU, "ignis_gemv_mma_16")                            \
    X(GEMV_MMA_32, GEMV_MMA_CU, "ignis_gemv_mma_32")                            \
    X(GEMV_MMA_64, GEMV_MMA_CU, "ignis_gemv_mma_64")                            \
    X(GEMV_CLUSTER, GEMV_CLUSTER_CU, "ignis_gemv_cluster")                      \
    X(GEMV_CLUSTER_BLOCKS, GEMV_CLUSTER_BLOCKS_CU, "ignis_gemv_cluster_blocks") \
    X(GEMV_BLOCKS_ROWS, GEMV_BLOCKS_CU, "ignis_gemv_blocks_rows")               \
    X(GEMV_BLOCKS_1, GEMV_BLOCKS_CU, "ignis_gemv_blocks_1")                     \
    X(GEMV_BLOCKS_8, GEMV_BLOCKS_CU, "ignis_gemv_blocks_8")                     \
    X(GEMV_BLOCKS_16, GEMV_BLOCKS_CU, "ignis_gemv_blocks_16")                   \
    X(GEMV_BLOCKS_32, GEMV_BLOCKS_CU, "ignis_gemv_blocks_32")                   \
    X(GEMV_BLOCKS_64, GEMV_BLOCKS_CU, "ignis_gemv_blocks_64")                   \
    X(PAGED_1, ATTENTION_PAGED_CU, "ignis_attention_paged_1")                   \
    X(PAGED_2, ATTENTION_PAGED_CU, "ignis_attention_paged_2")                   \
    X(PAGED_MMA, ATTENTION_PAGED_MMA_CU, "ignis_attention_paged_mma")           \
    X(PAGED_MANY, ATTENTION_PAGED_MANY_CU, "ignis_attention_paged_many")        \
    X(GENERATE_STEP, GENERATE_STEP_CU, "ignis_generate_step")
#else
#define IGNIS__BUILTINS_MODELS(X)
#endif

/*  X(enumerator, source, entry). Each source is one program a dtype, compiled with -DIGNIS_T=<dtype> when one of its kernels is first used. */
#define IGNIS__BUILTINS(X)                                                                     \
    X(FILL, ELEMENTWISE_CU, "ignis_fill")                                                      \
    X(ADD, ELEMENTWISE_CU, "ignis_add")                                                        \
    X(ADD_EACH, ELEMENTWISE_CU, "ignis_add_each")                                              \
    X(MUL, ELEMENTWISE_CU, "ignis_mul")                                                        \
    X(SCALE, ELEMENTWISE_CU, "ignis_scale")                                                    \
    X(CAST_F16, ELEMENTWISE_CU, "ignis_cast_f16")                                              \
    X(CAST_BF16, ELEMENTWISE_CU, "ignis_cast_bf16")                                            \
    X(CAST_F32, ELEMENTWISE_CU, "ignis_cast_f32")                                              \
    X(CAST_F64, ELEMENTWISE_CU, "ignis_cast_f64")                                              \
    X(CAST_I32, ELEMENTWISE_CU, "ignis_cast_i32")                                              \
    X(CAST_I64, ELEMENTWISE_CU, "ignis_cast_i64")                                              \
    X(CAST_U8, ELEMENTWISE_CU, "ignis_cast_u8")                                                \
    X(CAST_F8_E4M3, ELEMENTWISE_CU, "ignis_cast_f8_e4m3")                                      \
    X(CAST_F8_E5M2, ELEMENTWISE_CU, "ignis_cast_f8_e5m2")                                      \
    X(SDPA, ATTENTION_CU, "ignis_sdpa")                                                        \
    X(SDPA_BACKWARD_DELTA, ATTENTION_CU, "ignis_sdpa_backward_delta")                          \
    X(SDPA_BACKWARD_KV, ATTENTION_CU, "ignis_sdpa_backward_kv")                                \
    X(SDPA_BACKWARD_Q, ATTENTION_CU, "ignis_sdpa_backward_q")                                  \
    X(SDPA_BACKWARD_BIAS, ATTENTION_CU, "ignis_sdpa_backward_bias")                            \
    X(SDPA_MMA, ATTENTION_MMA_CU, "ignis_sdpa")                                                \
    X(SDPA_MMA_BACKWARD_DELTA, ATTENTION_MMA_CU, "ignis_sdpa_backward_delta")                  \
    X(SDPA_MMA_BACKWARD_KV, ATTENTION_MMA_CU, "ignis_sdpa_backward_kv")                        \
    X(SDPA_MMA_BACKWARD_Q, ATTENTION_MMA_CU, "ignis_sdpa_backward_q")                          \
    X(SDPA_MMA_BACKWARD_BIAS, ATTENTION_MMA_CU, "ignis_sdpa_backward_bias")                    \
    X(SDPA_HOPPER, ATTENTION_HOPPER_CU, "ignis_sdpa")                                          \
    X(SDPA_HOPPER_COMBINE, ATTENTION_HOPPER_CU, "ignis_sdpa_combine")                          \
    X(SDPA_HOPPER_BACKWARD_ROWS, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_rows")     \
    X(SDPA_HOPPER_BACKWARD, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward")               \
    X(SDPA_HOPPER_BACKWARD_FINISH, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_finish") \
    X(SDPA_HOPPER_BACKWARD_TURNED, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_turned") \
    X(SDPA_DECODE_1, ATTENTION_DECODE_CU, "ignis_sdpa_decode_1")                               \
    X(SDPA_DECODE_2, ATTENTION_DECODE_CU, "ignis_sdpa_decode_2")                               \
    X(SDPA_DECODE_4, ATTENTION_DECODE_CU, "ignis_sdpa_decode_4")                               \
    X(SDPA_DECODE_COMBINE, ATTENTION_DECODE_CU, "ignis_sdpa_decode_combine")                   \
    X(SDPA_MMA_DECODE, ATTENTION_DECODE_MMA_CU, "ignis_sdpa_decode")                           \
    X(SDPA_MMA_DECODE_COMBINE, ATTENTION_DECODE_MMA_CU, "ignis_sdpa_decode_combine")           \
    X(SUB, POINTWISE_CU, "ignis_sub")                                                          \
    X(ADD_SPREAD, POINTWISE_CU, "ignis_add_spread")                                            \
    X(SUB_SPREAD, POINTWISE_CU, "ignis_sub_spread")                                            \
    X(MUL_SPREAD, POINTWISE_CU, "ignis_mul_spread")                                            \
    X(SPREAD_SCALED, POINTWISE_CU, "ignis_spread_scaled")                                      \
    X(DROPOUT, POINTWISE_CU, "ignis_dropout")                                                  \
    X(RELU, ACTIVATION_CU, "ignis_relu")                                                       \
    X(RELU_BACKWARD, ACTIVATION_CU, "ignis_relu_backward")                                     \
    X(GELU, ACTIVATION_CU, "ignis_gelu")                                                       \
    X(GELU_BACKWARD, ACTIVATION_CU, "ignis_gelu_backward")                                     \
    X(GELU_EXACT, ACTIVATION_CU, "ignis_gelu_exact")                                           \
    X(GELU_EXACT_BACKWARD, ACTIVATION_CU, "ignis_gelu_exact_backward")                         \
    X(SILU, ACTIVATION_CU, "ignis_silu")                                                       \
    X(SILU_BACKWARD, ACTIVATION_CU, "ignis_silu_backward")                                     \
    X(SILU_MUL, ACTIVATION_CU, "ignis_silu_mul")                                               \
    X(SILU_MUL_BACKWARD, ACTIVATION_CU, "ignis_silu_mul_backward")                             \
    X(GEMM, GEMM_CU, "ignis_gemm")                                                             \
    X(GEMM_SMALL, GEMM_CU, "ignis_gemm_small")                                                 \
    X(GEMM_TINY, GEMM_CU, "ignis_gemm_tiny")                                                   \
    X(GEMM_MMA, GEMM_MMA_CU, "ignis_gemm_mma")                                                 \
    X(GEMM_MMA_SMALL, GEMM_MMA_CU, "ignis_gemm_mma_small")                                     \
    X(GEMM_HOPPER, GEMM_HOPPER_CU, "ignis_gemm_hopper")                                        \
    X(DEPTHWISE, DEPTHWISE_CU, "ignis_depthwise")                                              \
    X(DEPTHWISE_ODD, DEPTHWISE_CU, "ignis_depthwise_odd")                                      \
    X(DEPTHWISE_WEIGHTS, DEPTHWISE_CU, "ignis_depthwise_weights")                              \
    X(DEPTHWISE_WEIGHTS_ODD, DEPTHWISE_CU, "ignis_depthwise_weights_odd")                      \
    X(GROUPED, GROUPED_MMA_CU, "ignis_grouped")                                                \
    X(GROUPED_WEIGHTS, GROUPED_MMA_CU, "ignis_grouped_weights")                                \
    X(GEMM_FINISH, GEMM_CU, "ignis_gemm_finish")                                               \
    X(GEMM_PACK, GEMM_CU, "ignis_gemm_pack")                                                   \
    X(GEMM_SUMS, GEMM_CU, "ignis_gemm_sums")                                                   \
    X(GEMM_APPLY, GEMM_CU, "ignis_gemm_apply")                                                 \
    X(SUM_ROWS, REDUCE_CU, "ignis_sum_rows")                                                   \
    X(DOT_ROWS, REDUCE_CU, "ignis_dot_rows")                                                   \
    X(SUM_COLUMNS, REDUCE_CU, "ignis_sum_columns")                                             \
    X(DOT_COLUMNS, REDUCE_CU, "ignis_dot_columns")                                             \
    X(SUM_FINISH, REDUCE_CU, "ignis_sum_finish")                                               \
    X(TRANSPOSE_RUNS, SHAPE_CU, "ignis_transpose_runs")                                        \
    X(TRANSPOSE_TILES, SHAPE_CU, "ignis_transpose_tiles")                                      \
    X(COPY_ROWS, SHAPE_CU, "ignis_copy_rows")                                                  \
    X(STRIDED_COPY, SHAPE_CU, "ignis_strided_copy")                                            \
    X(STRIDED_TILES, SHAPE_CU, "ignis_strided_tiles")                                          \
    X(SCAN_ROWS, SCAN_CU, "ignis_scan_rows")                                                   \
    X(SCAN_TILES, SCAN_CU, "ignis_scan_tiles")                                                 \
    X(SCAN_COLUMNS, SCAN_CU, "ignis_scan_columns")                                             \
    X(LINE, PATTERN_CU, "ignis_line")                                                          \
    X(BAND, PATTERN_CU, "ignis_band")                                                          \
    X(ONE_HOT, PATTERN_CU, "ignis_one_hot")                                                    \
    X(GATHER, GATHER_CU, "ignis_gather")                                                       \
    X(SCATTER, GATHER_CU, "ignis_scatter")                                                     \
    X(SCATTER_ADD_ROWS, GATHER_CU, "ignis_scatter_add_rows")                                   \
    X(SCATTER_KEYS, GATHER_CU, "ignis_scatter_keys")                                           \
    X(SEGMENT_SUMS, GATHER_CU, "ignis_segment_sums")                                           \
    X(SEGMENT_FINISH, GATHER_CU, "ignis_segment_finish")                                       \
    X(SORT_SMALL, SORT_CU, "ignis_sort_small")                                                 \
    X(SORT_ROW, SORT_CU, "ignis_sort_row")                                                     \
    X(SORT_SELECT, SORT_CU, "ignis_sort_select")                                               \
    X(SORT_SELECT_FEW, SORT_CU, "ignis_sort_select_few")                                       \
    X(SORT_COUNT, SORT_CU, "ignis_sort_count")                                                 \
    X(SORT_PASS, SORT_CU, "ignis_sort_pass")                                                   \
    X(RANDOM_ADVANCE, RANDOM_CU, "ignis_random_advance")                                       \
    X(RAND, RANDOM_CU, "ignis_rand")                                                           \
    X(RANDN, RANDOM_CU, "ignis_randn")                                                         \
    X(OPTIM_TABLE, OPTIM_CU, "ignis_optim_table")                                              \
    X(OPTIM_ADVANCE, OPTIM_CU, "ignis_optim_advance")                                          \
    X(ADAMW, OPTIM_CU, "ignis_adamw")                                                          \
    X(ADAM, OPTIM_CU, "ignis_adam")                                                            \
    X(SGD, OPTIM_CU, "ignis_sgd")                                                              \
    X(RMSPROP, OPTIM_CU, "ignis_rmsprop")                                                      \
    X(LION, OPTIM_CU, "ignis_lion")                                                            \
    X(MUON, OPTIM_CU, "ignis_muon")                                                            \
    X(MUON_APPLY, OPTIM_CU, "ignis_muon_apply")                                                \
    X(GRAD_SQUARES, OPTIM_CU, "ignis_grad_squares")                                            \
    X(GRAD_CLIP, OPTIM_CU, "ignis_grad_clip")                                                  \
    X(GRAD_ZERO, OPTIM_CU, "ignis_grad_zero")                                                  \
    X(LAYER_NORM_WARP, NORM_CU, "ignis_layer_norm_warp")                                       \
    X(LAYER_NORM_ROW, NORM_CU, "ignis_layer_norm_row")                                         \
    X(LAYER_NORM_LONG, NORM_CU, "ignis_layer_norm_long")                                       \
    X(LAYER_NORM_BLOCK, NORM_CU, "ignis_layer_norm_block")                                     \
    X(LAYER_NORM_BACKWARD_AVERAGES, NORM_CU, "ignis_layer_norm_backward_averages")             \
    X(LAYER_NORM_BACKWARD_COLUMNS, NORM_CU, "ignis_layer_norm_backward_columns")               \
    X(RMS_NORM_WARP, NORM_CU, "ignis_rms_norm_warp")                                           \
    X(RMS_NORM_ROW, NORM_CU, "ignis_rms_norm_row")                                             \
    X(RMS_NORM_LONG, NORM_CU, "ignis_rms_norm_long")                                           \
    X(RMS_NORM_BLOCK, NORM_CU, "ignis_rms_norm_block")                                         \
    X(RMS_NORM_BACKWARD_AVERAGES, NORM_CU, "ignis_rms_norm_backward_averages")                 \
    X(RMS_NORM_BACKWARD_COLUMNS, NORM_CU, "ignis_rms_norm_backward_columns")                   \
    X(NORM_BACKWARD_SUM, NORM_CU, "ignis_norm_backward_sum")                                   \
    X(ADD_LAYER_NORM_WARP, NORM_ADD_CU, "ignis_add_layer_norm_warp")                           \
    X(ADD_LAYER_NORM_ROW, NORM_ADD_CU, "ignis_add_layer_norm_row")                             \
    X(ADD_LAYER_NORM_LONG, NORM_ADD_CU, "ignis_add_layer_norm_long")                           \
    X(ADD_LAYER_NORM_BLOCK, NORM_ADD_CU, "ignis_add_layer_norm_block")                         \
    X(ADD_RMS_NORM_WARP, NORM_ADD_CU, "ignis_add_rms_norm_warp")                               \
    X(ADD_RMS_NORM_ROW, NORM_ADD_CU, "ignis_add_rms_norm_row")                                 \
    X(ADD_RMS_NORM_LONG, NORM_ADD_CU, "ignis_add_rms_norm_long")                               \
    X(ADD_RMS_NORM_BLOCK, NORM_ADD_CU, "ignis_add_rms_norm_block")                             \
    X(LAYER_NORM_ROWS_FEW, NORM_ODD_CU, "ignis_layer_norm_rows_few")                           \
    X(LAYER_NORM_ROWS_WARP, NORM_ODD_CU, "ignis_layer_norm_rows_warp")                         \
    X(LAYER_NORM_ROWS_BLOCK, NORM_ODD_CU, "ignis_layer_norm_rows_block")                       \
    X(LAYER_NORM_ROWS_EVEN, NORM_ODD_CU, "ignis_layer_norm_rows_even")                         \
    X(LAYER_NORM_ROWS_BACKWARD_FEW, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_few")        \
    X(LAYER_NORM_ROWS_BACKWARD_WARP, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_warp")      \
    X(LAYER_NORM_ROWS_BACKWARD_BLOCK, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_block")    \
    X(LAYER_NORM_ROWS_BACKWARD_EVEN, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_even")      \
    X(RMS_NORM_ROWS_FEW, NORM_ODD_CU, "ignis_rms_norm_rows_few")                               \
    X(RMS_NORM_ROWS_WARP, NORM_ODD_CU, "ignis_rms_norm_rows_warp")                             \
    X(RMS_NORM_ROWS_BLOCK, NORM_ODD_CU, "ignis_rms_norm_rows_block")                           \
    X(RMS_NORM_ROWS_EVEN, NORM_ODD_CU, "ignis_rms_norm_rows_even")                             \
    X(RMS_NORM_ROWS_BACKWARD_FEW, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_few")            \
    X(RMS_NORM_ROWS_BACKWARD_WARP, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_warp")          \
    X(RMS_NORM_ROWS_BACKWARD_BLOCK, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_block")        \
    X(RMS_NORM_ROWS_BACKWARD_EVEN, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_even")          \
    X(CHANNEL_STATISTICS, CHANNEL_NORM_CU, "ignis_channel_statistics")                         \
    X(CHANNEL_FINISH, CHANNEL_NORM_CU, "ignis_channel_finish")                                 \
    X(CHANNEL_APPLY, CHANNEL_NORM_CU, "ignis_channel_apply")                                   \
    X(CHANNEL_SUMS, CHANNEL_NORM_CU, "ignis_channel_sums")                                     \
    X(CHANNEL_WEIGHTS, CHANNEL_NORM_CU, "ignis_channel_weights")                               \
    X(CHANNEL_AVERAGES, CHANNEL_NORM_CU, "ignis_channel_averages")                             \
    X(CHANNEL_BACKWARD, CHANNEL_NORM_CU, "ignis_channel_backward")                             \
    X(MAX_POOL, POOL_CU, "ignis_max_pool")                                                     \
    X(MAX_POOL_BACKWARD, POOL_CU, "ignis_max_pool_backward")                                   \
    X(AVG_POOL, POOL_CU, "ignis_avg_pool")                                                     \
    X(AVG_POOL_BACKWARD, POOL_CU, "ignis_avg_pool_backward")                                   \
    X(UPSAMPLE, UPSAMPLE_CU, "ignis_upsample")                                                 \
    X(UPSAMPLE_BACKWARD, UPSAMPLE_CU, "ignis_upsample_backward")                               \
    X(SOFTMAX_WARP, SOFTMAX_CU, "ignis_softmax_warp")                                          \
    X(SOFTMAX_BLOCK, SOFTMAX_CU, "ignis_softmax_block")                                        \
    X(SOFTMAX_LONG, SOFTMAX_CU, "ignis_softmax_long")                                          \
    X(SOFTMAX_BACKWARD_WARP, SOFTMAX_CU, "ignis_softmax_backward_warp")                        \
    X(SOFTMAX_BACKWARD_BLOCK, SOFTMAX_CU, "ignis_softmax_backward_block")                      \
    X(LOG_SOFTMAX_WARP, LOG_SOFTMAX_CU, "ignis_log_softmax_warp")                              \
    X(LOG_SOFTMAX_BLOCK, LOG_SOFTMAX_CU, "ignis_log_softmax_block")                            \
    X(LOG_SOFTMAX_LONG, LOG_SOFTMAX_CU, "ignis_log_softmax_long")                              \
    X(LOG_SOFTMAX_BACKWARD_WARP, LOG_SOFTMAX_CU, "ignis_log_softmax_backward_warp")            \
    X(LOG_SOFTMAX_BACKWARD_BLOCK, LOG_SOFTMAX_CU, "ignis_log_softmax_backward_block")          \
    X(CROSS_ENTROPY_COUNT, SOFTMAX_CU, "ignis_cross_entropy_count")                            \
    X(CROSS_ENTROPY_WARP, SOFTMAX_CU, "ignis_cross_entropy_warp")                              \
    X(CROSS_ENTROPY_FEW, SOFTMAX_CU, "ignis_cross_entropy_few")                                \
    X(CROSS_ENTROPY_ROUND, SOFTMAX_CU, "ignis_cross_entropy_round")                            \
    X(CROSS_ENTROPY_EXACT, SOFTMAX_CU, "ignis_cross_entropy_exact")                            \
    X(CROSS_ENTROPY_BLOCK, SOFTMAX_CU, "ignis_cross_entropy_block")                            \
    X(CROSS_ENTROPY_LOSS_WARP, SOFTMAX_CU, "ignis_cross_entropy_loss_warp")                    \
    X(CROSS_ENTROPY_LOSS_BLOCK, SOFTMAX_CU, "ignis_cross_entropy_loss_block")                  \
    X(CROSS_ENTROPY_RESCALE, SOFTMAX_CU, "ignis_cross_entropy_rescale")                        \
    X(CROSS_ENTROPY_ADD_UP, SOFTMAX_CU, "ignis_cross_entropy_add_up")                          \
    X(QUANTIZE_LARGEST, QUANTIZE_CU, "ignis_quantize_largest")                                 \
    X(QUANTIZE_F8_E4M3_WARP, QUANTIZE_CU, "ignis_quantize_f8_e4m3_warp")                       \
    X(QUANTIZE_F8_E4M3_BLOCK, QUANTIZE_CU, "ignis_quantize_f8_e4m3_block")                     \
    X(QUANTIZE_F8_E4M3, QUANTIZE_CU, "ignis_quantize_f8_e4m3")                                 \
    X(QUANTIZE_F8_E5M2_WARP, QUANTIZE_CU, "ignis_quantize_f8_e5m2_warp")                       \
    X(QUANTIZE_F8_E5M2_BLOCK, QUANTIZE_CU, "ignis_quantize_f8_e5m2_block")                     \
    X(QUANTIZE_F8_E5M2, QUANTIZE_CU, "ignis_quantize_f8_e5m2")                                 \
    X(CROSS_ENTROPY_BACKWARD, SOFTMAX_CU, "ignis_cross_entropy_backward")                      \
    X(ROPE, ROPE_CU, "ignis_rope")                                                             \
    X(EMBEDDING, EMBEDDING_CU, "ignis_embedding")                                              \
    X(EMBEDDING_KEYS, EMBEDDING_CU, "ignis_embedding_keys")                                    \
    X(EMBEDDING_BOUNDS, EMBEDDING_CU, "ignis_embedding_bounds")                                \
    X(EMBEDDING_CHUNKS, EMBEDDING_CU, "ignis_embedding_chunks")                                \
    X(EMBEDDING_ROWS, EMBEDDING_CU, "ignis_embedding_rows")                                    \
    IGNIS__BUILTINS_MODELS(X)

typedef enum ignis__builtin {
#define IGNIS__BUILTIN_ENUM(name, source, entry) IGNIS__BUILTIN_##name,
    IGNIS__BUILTINS(IGNIS__BUILTIN_ENUM)
#undef IGNIS__BUILTIN_ENUM
        IGNIS__BUILTIN_COUNT
} ignis__builtin;

static const struct {
    int source;
    const char *entry;
} ignis__builtins[] = {
#define IGNIS__BUILTIN_ROW(name, source, entry) {IGNIS__SOURCE_##source, entry},
    IGNIS__BUILTINS(IGNIS__BUILTIN_ROW)
#undef IGNIS__BUILTIN_ROW
};

/*  Kernels from a first to a last one of which sizes, addresses or the device choose, or that are always launched together: records and bundles have
    all of them or none. Others are there alone. The first one's name is that of the part. */
static const struct {
    ignis__builtin first, last;
} ignis__parts[] = {
#define IGNIS__PART(first, last)                      \
    {                                                 \
        IGNIS__BUILTIN_##first, IGNIS__BUILTIN_##last \
    }
    IGNIS__PART(SDPA_BACKWARD_DELTA, SDPA_BACKWARD_BIAS),
    IGNIS__PART(SDPA_MMA_BACKWARD_DELTA, SDPA_MMA_BACKWARD_BIAS),
    IGNIS__PART(SDPA_HOPPER, SDPA_HOPPER_COMBINE),
    IGNIS__PART(SDPA_HOPPER_BACKWARD_ROWS, SDPA_HOPPER_BACKWARD_TURNED),
    IGNIS__PART(SDPA_DECODE_1, SDPA_DECODE_COMBINE),
    IGNIS__PART(SDPA_MMA_DECODE, SDPA_MMA_DECODE_COMBINE),
    IGNIS__PART(GEMM, GEMM_SMALL),
    IGNIS__PART(GEMM_MMA, GEMM_MMA_SMALL),
    IGNIS__PART(DEPTHWISE, DEPTHWISE_ODD),
    IGNIS__PART(DEPTHWISE_WEIGHTS, DEPTHWISE_WEIGHTS_ODD),
    IGNIS__PART(GEMM_FINISH, GEMM_SUMS),
    IGNIS__PART(TRANSPOSE_RUNS, TRANSPOSE_TILES),
    IGNIS__PART(STRIDED_COPY, STRIDED_TILES),
    IGNIS__PART(SUM_ROWS, SUM_FINISH),
    IGNIS__PART(SCAN_ROWS, SCAN_COLUMNS),
    IGNIS__PART(SCATTER_ADD_ROWS, SEGMENT_FINISH),
    IGNIS__PART(SORT_SMALL, SORT_SELECT_FEW),
    IGNIS__PART(SORT_COUNT, SORT_PASS),
    IGNIS__PART(LAYER_NORM_WARP, LAYER_NORM_BLOCK),
    IGNIS__PART(LAYER_NORM_BACKWARD_AVERAGES, LAYER_NORM_BACKWARD_COLUMNS),
    IGNIS__PART(RMS_NORM_WARP, RMS_NORM_BLOCK),
    IGNIS__PART(RMS_NORM_BACKWARD_AVERAGES, RMS_NORM_BACKWARD_COLUMNS),
    IGNIS__PART(ADD_LAYER_NORM_WARP, ADD_LAYER_NORM_BLOCK),
    IGNIS__PART(ADD_RMS_NORM_WARP, ADD_RMS_NORM_BLOCK),
    IGNIS__PART(LAYER_NORM_ROWS_FEW, LAYER_NORM_ROWS_EVEN),
    IGNIS__PART(LAYER_NORM_ROWS_BACKWARD_FEW, LAYER_NORM_ROWS_BACKWARD_EVEN),
    IGNIS__PART(RMS_NORM_ROWS_FEW, RMS_NORM_ROWS_EVEN),
    IGNIS__PART(RMS_NORM_ROWS_BACKWARD_FEW, RMS_NORM_ROWS_BACKWARD_EVEN),
    IGNIS__PART(CHANNEL_STATISTICS, CHANNEL_APPLY),
    IGNIS__PART(CHANNEL_SUMS, CHANNEL_BACKWARD),
    IGNIS__PART(SOFTMAX_WARP, SOFTMAX_LONG),
    IGNIS__PART(SOFTMAX_BACKWARD_WARP, SOFTMAX_BACKWARD_BLOCK),
    IGNIS__PART(LOG_SOFTMAX_WARP, LOG_SOFTMAX_LONG),
    IGNIS__PART(LOG_SOFTMAX_BACKWARD_WARP, LOG_SOFTMAX_BACKWARD_BLOCK),
    IGNIS__PART(CROSS_ENTROPY_WARP, CROSS_ENTROPY_BLOCK),
    IGNIS__PART(CROSS_ENTROPY_LOSS_WARP, CROSS_ENTROPY_LOSS_BLOCK),
    IGNIS__PART(EMBEDDING_KEYS, EMBEDDING_ROWS),
    IGNIS__PART(QUANTIZE_F8_E4M3_WARP, QUANTIZE_F8_E4M3_BLOCK),
    IGNIS__PART(QUANTIZE_F8_E5M2_WARP, QUANTIZE_F8_E5M2_BLOCK),
#ifdef IGNIS_MODELS
    IGNIS__PART(BLOCKS_ROWS, BLOCKS_EMBED),
    IGNIS__PART(GENERATE_WORDS, GENERATE_DRAW),
    IGNIS__PART(GEMV_1, GEMV_8),
    IGNIS__PART(GEMV_GATED_1, GEMV_GATED_8),
    IGNIS__PART(GEMV_BLOCKS_ROWS, GEMV_BLOCKS_64),
    IGNIS__PART(GEMV_MMA_NORM, GEMV_MMA_8),
    IGNIS__PART(GEMV_MMA_16, GEMV_MMA_64),
    IGNIS__PART(PAGED_1, PAGED_2),
#endif
#undef IGNIS__PART
};

/*  The name of a kernel's part. */
static const char *ignis__builtin_part(ignis__builtin builtin)
{
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__parts); i++)
        if (builtin >= ignis__parts[i].first && builtin <= ignis__parts[i].last)
            return ignis__builtins[ignis__parts[i].first].entry;
    return ignis__builtins[builtin].entry;
}

/*  Records a kernel of Ignis' own, which this device or another asks for; `define`: options behind that of the dtype, separated by spaces. */
IGNIS__COLD static void ignis__request_own(ignis__builtin builtin, ignis_dtype dtype, const char *define, int first, int last)
{
    ignis__program program = IGNIS__ZERO;
    char option[256];
    const char *options[] = {option};
    snprintf(option, sizeof option, "-DIGNIS_T=%d%s%s", (int)dtype, *define ? " " : "", define);
    program.name = ignis__sources[ignis__builtins[builtin].source].name;
    program.part = ignis__builtin_part(builtin);
    program.options = options;
    program.option_count = 1;
    ignis__request_add(&program, first, last);
}

/*  Records a kernel for all devices that have it. */
static void ignis__request_builtin(ignis__builtin builtin, ignis_dtype dtype)
{
    ignis__program program = IGNIS__ZERO;
    int first, last;
    if (!ignis__requests.path[0])
        return;
    program.name = ignis__sources[ignis__builtins[builtin].source].name;
    ignis__program_range(&program, &first, &last);
    ignis__request_own(builtin, dtype, "", first, last);
}

/*  Whether the bundle has a kernel with these options, for devices of a compute capability; 0: for any. */
static bool ignis__bundle_has(const ignis__bundle *bundle, ignis__builtin builtin, ignis_dtype dtype, const char *define, int capability)
{
    char name[256];
    uint32_t i;
    if (!bundle->data)
        return false;
    snprintf(name, sizeof name, "%s %s -DIGNIS_T=%d%s%s", ignis__sources[ignis__builtins[builtin].source].name,
             ignis__builtin_part(builtin), (int)dtype, *define ? " " : "", define);
    for (i = 0; i < bundle->header.count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        if (strcmp(ignis__bundle_text(bundle, &entry), name) == 0 && (!capability || ignis__bundle_serves(&entry, capability)))
            return true;
    }
    return false;
}

/*  Whether a kernel may be launched before what is ahead of it has ended: its threads begin by ignis_grid_dependency_wait. */
static bool ignis__builtin_waits(ignis__builtin builtin)
{
    switch (ignis__builtins[builtin].source) {
    case IGNIS__SOURCE_ACTIVATION_CU:
    case IGNIS__SOURCE_ATTENTION_HOPPER_CU:
    case IGNIS__SOURCE_ATTENTION_HOPPER_BACKWARD_CU:
    case IGNIS__SOURCE_ELEMENTWISE_CU:
    case IGNIS__SOURCE_EMBEDDING_CU:
    case IGNIS__SOURCE_GEMM_CU:
    case IGNIS__SOURCE_GEMM_HOPPER_CU:
    case IGNIS__SOURCE_GEMM_MMA_CU:
    case IGNIS__SOURCE_LOG_SOFTMAX_CU:
    case IGNIS__SOURCE_NORM_CU:
    case IGNIS__SOURCE_NORM_ADD_CU:
    case IGNIS__SOURCE_NORM_GRAD_CU:
    case IGNIS__SOURCE_NORM_ODD_CU:
    case IGNIS__SOURCE_OPTIM_CU:
    case IGNIS__SOURCE_POINTWISE_CU:
    case IGNIS__SOURCE_QUANTIZE_CU:
    case IGNIS__SOURCE_REDUCE_CU:
    case IGNIS__SOURCE_ROPE_CU:
    case IGNIS__SOURCE_SOFTMAX_CU:
    case IGNIS__SOURCE_SORT_CU: return true;
#ifdef IGNIS_MODELS
    case IGNIS__SOURCE_GEMV_MMA_CU:
    case IGNIS__SOURCE_GEMV_CLUSTER_CU:
    case IGNIS__SOURCE_GEMV_CLUSTER_BLOCKS_CU:
    case IGNIS__SOURCE_GEMV_BLOCKS_CU:
    case IGNIS__SOURCE_ATTENTION_PAGED_CU:
    case IGNIS__SOURCE_ATTENTION_PAGED_MMA_CU:
    case IGNIS__SOURCE_ATTENTION_PAGED_MANY_CU:
    case IGNIS__SOURCE_GENERATE_DRAW_CU:
    case IGNIS__SOURCE_GENERATE_STEP_CU: return true;
    case IGNIS__SOURCE_GENERATE_CU: return builtin >= IGNIS__BUILTIN_GENERATE_EMBED && builtin <= IGNIS__BUILTIN_GENERATE_GATHER;
#endif
    default: return false;
    }
}

/*  What is loaded of them on each device: modules by source and dtype, functions (0 until their first use) by kernel and dtype. */
static struct ignis__builtin_code {
    ignis__module modules[IGNIS__SOURCE_COUNT][IGNIS_DTYPE_COUNT];
    uint64_t functions[IGNIS__BUILTIN_COUNT][IGNIS_DTYPE_COUNT];
} ignis__builtin_codes[IGNIS_MAX_DEVICES];

#define IGNIS__DEFINES 200 /* characters of options that make a variant, with the end */

/*  Compiles a source for a dtype, with more options (null: none), and loads it on an entered device; of a bundle a part (null: all). */
IGNIS__COLD static bool ignis__builtin_make(const char *call, ignis__device *device, int source, const char *part, ignis_dtype dtype,
                                            const char *defines, ignis__module *unit)
{
    ignis__program program = IGNIS__ZERO;
    char dtype_define[32], copy[IGNIS__DEFINES];
    const char *options[10];
    char *text = ignis__source_join(&ignis__sources[source]), *at;
    bool made;
    if (!text) {
        ignis__fail_host_memory(call, 1);
        return false;
    }
    snprintf(dtype_define, sizeof dtype_define, "-DIGNIS_T=%d", (int)dtype);
    options[program.option_count++] = dtype_define;
    snprintf(copy, sizeof copy, "%s", defines ? defines : "");
    for (at = copy; *at && program.option_count < IGNIS__COUNT(options); at += strcspn(at, " ")) {
        if (*at == ' ')
            *at++ = 0;
        options[program.option_count++] = at;
    }
    program.source = text;
    program.name = ignis__sources[source].name;
    program.part = part;
    program.options = options;
    made = ignis__module_make(call, device, &program, unit);
    ignis__free(text);
    return made;
}

/*  Loads the module of a kernel's source for a dtype on a device that is entered. Null on failure. */
IGNIS__COLD static ignis__module *ignis__builtin_module(const char *call, ignis__device *device, ignis__builtin builtin, ignis_dtype dtype)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    int source = ignis__builtins[builtin].source;
    ignis__module *place = &ignis__builtin_codes[device - ignis__devices].modules[source][dtype];
    ignis__module made;
    bool loaded;
    ignis__mutex_lock(&lock);
    loaded = place->module != NULL;
    ignis__mutex_unlock(&lock);
    if (loaded)
        return place;
    if (!ignis__builtin_make(call, device, source, ignis__builtin_part(builtin), dtype, NULL, &made))
        return NULL;
    ignis__mutex_lock(&lock); /* another thread may have been as fast, and its functions be in use */
    loaded = place->module != NULL;
    if (!loaded)
        *place = made;
    ignis__mutex_unlock(&lock);
    if (loaded)
        ignis__module_unload(&made);
    return place;
}

/*  The function of a kernel in a variant that more than the dtype decides. */
typedef struct ignis__variant {
    ignis__builtin builtin;
    ignis_dtype dtype;
    char define[IGNIS__DEFINES]; /* options, separated by spaces */
    ignis__module module;
    void *function;
    struct ignis__variant *next;
} ignis__variant;

static struct {
    ignis__mutex lock;
    ignis__variant *first[IGNIS_MAX_DEVICES];
} ignis__variants = {IGNIS__MUTEX_INIT, {0}};

static ignis__variant *ignis__variant_find(const ignis__device *device, ignis__builtin builtin, ignis_dtype dtype, const char *define)
{
    ignis__variant *variant;
    ignis__mutex_lock(&ignis__variants.lock);
    for (variant = ignis__variants.first[device - ignis__devices]; variant; variant = variant->next)
        if (variant->builtin == builtin && variant->dtype == dtype && strcmp(variant->define, define) == 0)
            break;
    ignis__mutex_unlock(&ignis__variants.lock);
    return variant;
}

/*  Whether a variant can be had: compiled, or as somebody recorded it for this kind of device. */
IGNIS__MAYBE_UNUSED static bool ignis__variant_exists(const ignis__device *device, ignis__builtin builtin, ignis_dtype dtype,
                                                      const char *define)
{
    return !ignis__compile_never || ignis__variant_find(device, builtin, dtype, define) ||
           ignis__bundle_has(&ignis__the_bundle, builtin, dtype, define, ignis__capability(&device->info));
}

/*  The function of a kernel in its module. Where one that should wait cannot, none is launched early. */
IGNIS__COLD static bool ignis__builtin_function(const char *call, ignis__device *device, ignis__builtin builtin, const ignis__module *unit,
                                                void **function)
{
    bool waits = true;
    if (!ignis__function_get(call, device, unit, ignis__builtins[builtin].entry, function) ||
        (ignis__builtin_waits(builtin) && !ignis__function_waits(call, device, *function, &waits)))
        return false;
    if (!waits)
        ignis__atomic_store(&device->no_dependents, 1);
    return true;
}

/*  Launches one of Ignis' own kernels, early where it waits by itself. */
static bool ignis__builtin_launch(const ignis__work *work, ignis__builtin builtin, void *function, const unsigned grid[3],
                                  const unsigned block[3], unsigned shared, void **params)
{
    return ignis__launch_as(work, function, grid, block, shared, params,
                            ignis__builtin_waits(builtin) && !ignis__atomic_load(&work->device->no_dependents),
                            ignis__builtins[builtin].source == IGNIS__SOURCE_GENERATE_STEP_CU);
}

static void *ignis__builtin_get_variant(const char *call, ignis__device *device, ignis__builtin builtin, ignis_dtype dtype,
                                        const char *define)
{
    ignis__variant *variant = ignis__variant_find(device, builtin, dtype, define);
    IGNIS_ASSERT(strlen(define) < IGNIS__DEFINES);
    if (variant)
        return variant->function;
    variant = (ignis__variant *)ignis__alloc_for(call, sizeof *variant);
    if (!variant)
        return NULL;
    variant->builtin = builtin;
    variant->dtype = dtype;
    snprintf(variant->define, sizeof variant->define, "%s", define);
    if (!ignis__builtin_make(call, device, ignis__builtins[builtin].source, ignis__builtin_part(builtin), dtype, define,
                             &variant->module) ||
        !ignis__builtin_function(call, device, builtin, &variant->module, &variant->function)) {
        ignis__module_unload(&variant->module);
        ignis__free(variant);
        return NULL;
    }
    ignis__mutex_lock(&ignis__variants.lock); /* two threads may make the same one; both stay, the newer is found */
    variant->next = ignis__variants.first[device - ignis__devices];
    ignis__variants.first[device - ignis__devices] = variant;
    ignis__mutex_unlock(&ignis__variants.lock);
    return variant->function;
}

/*  The function of one of Ignis' own kernels on a device that is entered; null on failure. */
static void *ignis__builtin_get(const char *call, ignis__device *device, ignis__builtin builtin, ignis_dtype dtype)
{
    uint64_t *place = &ignis__builtin_codes[device - ignis__devices].functions[builtin][dtype];
    void *function = (void *)(uintptr_t)ignis__atomic_load(place);
    ignis__module *unit;
    if (function)
        return function;
    ignis__request_builtin(builtin, dtype);
    if (ignis__bundle_has(&ignis__the_bundle, builtin, dtype, "", 0)) { /* where it has a module of its own */
        function = ignis__builtin_get_variant(call, device, builtin, dtype, "");
        ignis__atomic_store(place, (uint64_t)(uintptr_t)function);
        return function;
    }
    unit = ignis__builtin_module(call, device, builtin, dtype);
    if (!unit || !ignis__builtin_function(call, device, builtin, unit, &function))
        return NULL;
    ignis__atomic_store(place, (uint64_t)(uintptr_t)function);
    return function;
}

/* --- reading records ------------------------------------------------------------------------------------------------------- */

/*  A line of a record: see ignis__requests. */
typedef struct ignis__request {
    ignis__program program; /* its text is that of the line; an own source has none yet. No name: the line asks for nothing */
    int source;             /* of Ignis' own, or -1 */
    int first, last, line;
    const char *options[IGNIS__MAX_OPTIONS]; /* program.options, unless the request was moved */
    ignis_kernel_header *headers;            /* ignis__request_free frees them, and the text of a formula's kernel */
    char *text;
#ifndef IGNIS_NO_TENSORS
    const struct ignis__formula *formula; /* of a line of a formula, and its ignis__map_spec */
    uint16_t spec[IGNIS__MAP_SPEC];
#endif
} ignis__request;

static void ignis__request_free(ignis__request *request)
{
    ignis__free(request->headers);
    ignis__free(request->text);
    request->headers = NULL;
    request->text = NULL;
}

/*  Reads the line of a formula, which comes in >>map. */
#ifndef IGNIS_NO_TENSORS
static bool ignis__request_read_formula(char *line, ignis__request *request, bool *whole, ignis__text *why);
#else
IGNIS__COLD static bool ignis__request_read_formula(char *line, ignis__request *request, bool *whole, ignis__text *why)
{
    (void)line, (void)request, (void)whole;
    return ignis__reason(why, "it is a formula, and IGNIS_NO_TENSORS leaves formulas out");
}
#endif

/*  The next word of a line, in its place: in quotes, with \n, \r, \" and \\ for what they stand for, or up to a blank. Null: there is none, or
    (*whole false) no quote at its end. */
IGNIS__COLD static char *ignis__request_word(char **line, bool *whole)
{
    char *from = *line + strspn(*line, " "), *word = from, *to;
    if (*from == 0)
        return NULL;
    if (*from != '"') {
        from += strcspn(from, " ");
        *line = from + (*from != 0);
        *from = 0;
        return word;
    }
    word = to = ++from;
    for (; *from && *from != '"'; from++) {
        bool escaped = *from == '\\' && from[1];
        from += escaped;
        *to++ = (char)(!escaped ? *from : *from == 'n' ? '\n' : *from == 'r' ? '\r' : *from);
    }
    *whole = *whole && *from == '"';
    *line = from + (*from != 0);
    *to = 0;
    return *whole ? word : NULL;
}

/*  The source, part and options of a line. */
IGNIS__COLD static bool ignis__request_read_own(char *line, ignis__request *request, bool *whole, ignis__text *why)
{
    ignis__program *program = &request->program;
    char *word = ignis__request_word(&line, whole);
    int source = 0, builtin = 0;
    while (word && source < IGNIS__SOURCE_COUNT && strcmp(ignis__sources[source].name, word) != 0)
        source++;
    if (!word || source == IGNIS__SOURCE_COUNT)
        return ignis__reason(why, "Ignis has no source %s", word ? word : "");
    if (!ignis__sources[source].lines)
        return ignis__reason(why, "%s is of the operations of tensors, which IGNIS_NO_TENSORS leaves out", word);
    request->source = source;
    program->name = ignis__sources[source].name;
    program->source = "";
    word = ignis__request_word(&line, whole);
    if (word && *word != '-') {
        while (builtin < IGNIS__BUILTIN_COUNT &&
               (ignis__builtins[builtin].source != source || strcmp(ignis__builtin_part((ignis__builtin)builtin), word) != 0))
            builtin++;
        if (builtin == IGNIS__BUILTIN_COUNT)
            return ignis__reason(why, "%s of Ignis has no part %s", program->name, word);
        program->part = word;
        word = ignis__request_word(&line, whole);
    }
    for (; word; word = ignis__request_word(&line, whole)) {
        if (program->option_count == IGNIS__MAX_OPTIONS)
            return ignis__reason(why, "there are more than %d options", IGNIS__MAX_OPTIONS);
        request->options[program->option_count++] = word;
    }
    return true;
}

/*  A program with all of its text. */
IGNIS__COLD static bool ignis__request_read_kernel(char *line, ignis__request *request, bool *whole, ignis__text *why)
{
    ignis__program *program = &request->program;
    char *name = ignis__request_word(&line, whole), *entry = ignis__request_word(&line, whole);
    char *source = ignis__request_word(&line, whole), *word = ignis__request_word(&line, whole);
    long options = word ? strtol(word, NULL, 10) : -1;
    if (options < 0 || options > IGNIS__MAX_OPTIONS)
        return ignis__reason(why, "a kernel is a name, an entry, a source, a number of options, the options, and headers");
    program->name = name;
    program->entry = *entry ? entry : NULL;
    program->source = source;
    for (; options > 0 && (word = ignis__request_word(&line, whole)) != NULL; options--)
        request->options[program->option_count++] = word;
    if (options > 0)
        return ignis__reason(why, "there are fewer options than the line says");
    request->headers =
        (ignis_kernel_header *)ignis__alloc((strlen(line) / 4 + 1) * sizeof *request->headers); /* two words in quotes each */
    if (!request->headers)
        return ignis__reason(why, "out of memory");
    while ((word = ignis__request_word(&line, whole)) != NULL) {
        request->headers[program->header_count].name = word;
        request->headers[program->header_count++].text = word = ignis__request_word(&line, whole);
        if (!word)
            return ignis__reason(why, "a header has no text");
    }
    program->headers = request->headers;
    return true;
}

/*  Reads a line, which it changes, and which the request then points to. False: it is none, `why` says the reason. */
IGNIS__COLD static bool ignis__request_read(char *line, ignis__request *request, ignis__text *why)
{
    bool whole = true, read = false;
    char *word = ignis__request_word(&line, &whole), *range = word && *word != '#' ? ignis__request_word(&line, &whole) : NULL, *end = word;
    memset(request, 0, sizeof *request);
    request->source = -1;
    request->program.options = request->options;
    if (whole && (!word || *word == '#'))
        return true;
    if (whole && strcmp(word, "ignis") == 0) {
        if (range && atoi(range) == IGNIS_VERSION)
            return true;
        return ignis__reason(why, "the record is of version %s, this is %d; record again", range ? range : "", IGNIS_VERSION);
    }
    request->first = range ? (int)strtol(range, &end, 10) : -1;
    request->last = range && *end == '-' ? (int)strtol(end + 1, &end, 10) : -1;
    if (!whole)
        ;
    else if (request->first < 0 || request->last < 0 || request->last > IGNIS__EVERY_ARCH || *end)
        ignis__text_add(why, "behind '%s' has to be a range of compute capabilities, such as 80-%d", word, IGNIS__EVERY_ARCH);
    else if (strcmp(word, "own") == 0)
        read = ignis__request_read_own(line, request, &whole, why);
    else if (strcmp(word, "kernel") == 0)
        read = ignis__request_read_kernel(line, request, &whole, why);
    else if (strcmp(word, "formula") == 0)
        read = ignis__request_read_formula(line, request, &whole, why);
    else
        ignis__text_add(why, "'%s' is not ignis, own, formula or kernel", word);
    if (!whole) {
        ignis__text_begin(why, why->data, why->capacity);
        ignis__text_add(why, "a word has no quote at its end");
    }
    if (read && whole)
        return true;
    ignis__request_free(request);
    return false;
}

/* --- warming up --------------------------------------------------------------------------------------------------------- */

/*  Jobs are Ignis' own programs (`own` of them), then the caller's or those of a record. Each keeps its failure for the caller. */
typedef struct ignis__warmup {
    const char *call;
    ignis__device *device;
    int own, count;
    const ignis_kernel_desc *descs;
    ignis__record *records;
    ignis__request *requests; /* instead of descs */
    char *text, *path;        /* of the record, in memory of Ignis */
} ignis__warmup;

/*  For how many dtypes a source is one program without further choices: headers for none, and sources whose kernels come in variants. */
static int ignis__source_dtypes(int source)
{
    const char *name = ignis__sources[source].name;
    int builtin = 0;
    while (builtin < IGNIS__COUNT(ignis__builtins) && ignis__builtins[builtin].source != source)
        builtin++;
    if (builtin == IGNIS__COUNT(ignis__builtins) || !ignis__sources[source].lines || strncmp(name, "attention", 9) == 0 ||
        strncmp(name, "collective", 10) == 0 || strncmp(name, "gemm_", 5) == 0 || strncmp(name, "gemv_", 5) == 0 ||
        strncmp(name, "grouped_", 8) == 0 || strncmp(name, "generate_step", 13) == 0)
        return 0;
    if (strncmp(name, "generate_draw", 13) == 0) /* logits are floats in any case */
        return 1;
    return source == IGNIS__SOURCE_ELEMENTWISE_CU || source == IGNIS__SOURCE_SORT_CU ? IGNIS_DTYPE_COUNT - 1
                                                                                     : 4 /* the floating types come first */;
}

#define IGNIS__WARMUP_OWN (IGNIS__SOURCE_COUNT * (IGNIS_DTYPE_COUNT - 1))

IGNIS__COLD static void ignis__warmup_own(const ignis__warmup *warmup, int source, ignis_dtype dtype)
{
    int builtin;
    for (builtin = 0; builtin < IGNIS__COUNT(ignis__builtins); builtin++)
        if ((int)dtype <= ignis__source_dtypes(source) && ignis__builtins[builtin].source == source &&
            (!ignis__compile_never || ignis__bundle_has(&ignis__the_bundle, (ignis__builtin)builtin, dtype, "", 0)))
            ignis__builtin_get(warmup->call, warmup->device, (ignis__builtin)builtin, dtype);
}

IGNIS__COLD static void ignis__warmup_program(const ignis__warmup *warmup, int index)
{
    ignis__request *request = warmup->requests ? &warmup->requests[index] : NULL;
    ignis__program program = request ? request->program : ignis__program_from(&warmup->descs[index]);
    ignis__module module;
    ignis__outer_call outer;
    char where[300], *source = NULL;
    if (request) {
        snprintf(where, sizeof where, "line %d of %s", request->line, warmup->path);
        ignis__outer_call_begin(&outer, where, NULL);
        program.options = request->options;
    }
    if (request && request->source >= 0) {
        program.source = source = ignis__source_join(&ignis__sources[request->source]);
        if (!source)
            ignis__fail_host_memory(warmup->call, 1);
    }
    if ((program.source || program.image) && ignis__module_make(warmup->call, warmup->device, &program, &module))
        ignis__module_unload(&module); /* its image stays in the caches */
    ignis__free(source);
    if (request)
        ignis__outer_call_end(&outer);
}

IGNIS__COLD static void ignis__warmup_job(void *context, int index)
{
    ignis__warmup *warmup = (ignis__warmup *)context;
    ignis__thread *thread = &ignis__this_thread;
    ignis__record before = thread->record;
    ignis__binding binding;
    memset(&thread->record, 0, sizeof thread->record);
    if (ignis__device_enter(warmup->call, warmup->device, &binding)) {
        if (index < warmup->own)
            ignis__warmup_own(warmup, index / (IGNIS_DTYPE_COUNT - 1), (ignis_dtype)(index % (IGNIS_DTYPE_COUNT - 1) + 1));
        else
            ignis__warmup_program(warmup, index - warmup->own);
        ignis__device_leave(&binding);
    }
    warmup->records[index] = thread->record;
    thread->record = before;
}

/*  Runs all jobs. The first failure becomes the thread's. */
IGNIS__COLD static ignis_status ignis__warmup_run(ignis__warmup *warmup)
{
    int count = warmup->own + warmup->count, i;
    ignis_status status = IGNIS_OK;
    warmup->records = (ignis__record *)ignis__alloc(sizeof(ignis__record) * (size_t)(count + 1));
    if (!warmup->records)
        return ignis__fail_host_memory(warmup->call, sizeof(ignis__record) * (size_t)(count + 1));
    ignis__parallel(count, ignis__warmup_job, warmup);
    for (i = 0; i < count; i++) {
        ignis__record *record = &warmup->records[i];
        if (record->status != IGNIS_OK && status == IGNIS_OK)
            status = record->status;
        if (record->status != IGNIS_OK)
            ignis__record_adopt(record);
    }
    ignis__free(warmup->records);
    return status;
}

IGNIS__COLD IGNIS_API ignis_status ignis_warmup(const ignis_kernel_desc *descs, int count)
{
    static const char call[] = "ignis_warmup";
    ignis__warmup warmup = IGNIS__ZERO;
    ignis__binding binding;
    int i;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    if (count > 0 && !ignis__given(call, "descs", descs))
        return ignis__failed();
    for (i = 0; i < count; i++)
        if (!ignis__kernel_desc_check(call, &descs[i]))
            return ignis__failed();
    warmup.device = ignis__device_current_enter(call, &binding);
    if (!warmup.device)
        return ignis__failed();
    ignis__device_leave(&binding);
    warmup.call = call;
    warmup.own = IGNIS__WARMUP_OWN;
    warmup.count = count;
    warmup.descs = descs;
    return ignis__warmup_run(&warmup);
}

static const char ignis__warmup_record_call[] = "ignis_warmup_record";

IGNIS__COLD static void ignis__warmup_free(ignis__warmup *warmup)
{
    while (warmup->count > 0)
        ignis__request_free(&warmup->requests[--warmup->count]);
    ignis__free(warmup->requests);
    ignis__free(warmup->text);
    ignis__free(warmup->path);
    ignis__free(warmup);
}

IGNIS__COLD static void ignis__warmup_background(void *context)
{
    (void)ignis__warmup_run((ignis__warmup *)context);
    ignis__warmup_free((ignis__warmup *)context);
}

/*  Whether a request is for a device, and not for what one before it compiles, too: of own sources that is the whole. */
IGNIS__COLD static bool ignis__warmup_takes(const ignis__warmup *warmup, const ignis__request *request)
{
    const ignis_device_info *info = &warmup->device->info;
    int capability = ignis__capability(info), i;
    uint64_t key[2], other[2];
    ignis__program whole = request->program;
    if (!whole.name || capability < request->first || capability > request->last)
        return false;
    if (request->source >= 0 && strstr(whole.name, "hopper") && !ignis__wgmma_compiles(warmup->call))
        return false;
    if (!ignis__the_bundle.data)
        whole.part = NULL;
    ignis__program_key(&whole, key);
    for (i = 0; i < warmup->count; i++) {
        whole = warmup->requests[i].program;
        if (!ignis__the_bundle.data)
            whole.part = NULL;
        ignis__program_key(&whole, other);
        if (key[0] == other[0] && key[1] == other[1])
            return false;
    }
    return true;
}

/*  Reads the requests of a record that are for the device. */
IGNIS__COLD static bool ignis__warmup_read(ignis__warmup *warmup)
{
    char *line, *end, reason[300];
    int lines = 1;
    ignis__text why;
    for (line = warmup->text; (line = strchr(line, '\n')) != NULL; line++)
        lines++;
    warmup->requests = (ignis__request *)ignis__alloc_for(warmup->call, (size_t)lines * sizeof *warmup->requests);
    if (!warmup->requests)
        return false;
    lines = 0;
    for (line = warmup->text; line; line = end) {
        ignis__request *request = &warmup->requests[warmup->count];
        end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        lines++;
        ignis__text_begin(&why, reason, sizeof reason);
        if (!ignis__request_read(line, request, &why))
            return ignis__refuse(IGNIS_DIAG_BUNDLE_FORMAT, warmup->call, "line %d of %s is none of a record: %s", lines, warmup->path,
                                 reason);
        request->line = lines;
        if (ignis__warmup_takes(warmup, request))
            warmup->count++;
        else
            ignis__request_free(request);
    }
    return true;
}

IGNIS__COLD IGNIS_API ignis_ticket ignis_warmup_record(const char *path)
{
    static const char *const call = ignis__warmup_record_call;
    ignis_ticket result = IGNIS__ZERO;
    ignis__ticket *ticket = NULL;
    ignis__warmup *warmup;
    ignis__device *device;
    ignis__binding binding;
    size_t size;
    if (!ignis__enter(call) || !ignis__given(call, "path", path))
        return result;
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return result;
    ignis__device_leave(&binding);
    warmup = (ignis__warmup *)ignis__alloc_for(call, sizeof *warmup);
    if (!warmup)
        return result;
    memset(warmup, 0, sizeof *warmup);
    warmup->call = call;
    warmup->device = device;
    warmup->path = ignis__copy_string(path);
    warmup->text = (char *)ignis__file_read(path, &size);
    if (warmup->text)
        warmup->text[size] = 0;
    if (!warmup->path)
        ignis__fail_host_memory(call, strlen(path) + 1);
    else if (!warmup->text)
        ignis__fail_file(IGNIS_DIAG_BUNDLE_IO, call, path, "read");
    else if (memchr(warmup->text, 0, size))
        ignis__fail(IGNIS_DIAG_BUNDLE_FORMAT, call, "%s is no record: it has bytes that are 0", path);
    else if (ignis__warmup_read(warmup))
        ticket = ignis__ticket_start(call, device, ignis__warmup_background, warmup);
    if (ticket)
        result.id = ignis__pool_publish(&ignis__tickets, ticket);
    else
        ignis__warmup_free(warmup);
    return result;
}

IGNIS__COLD static void ignis__kernels_setup(const char *call, const ignis_desc *desc)
{
    const char *env = ignis__env("IGNIS_CACHE_DIR"), *chosen = desc->cache_dir && *desc->cache_dir ? desc->cache_dir
                                                               : env && *env                       ? env
                                                                                                   : NULL;
    char *dir = ignis__kernels_state.cache_dir;
    size_t size = sizeof ignis__kernels_state.cache_dir;
    static bool locks_made;
    char why[160];
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__kernels_state.compiling) && !locks_made; i++)
        ignis__mutex_init(&ignis__kernels_state.compiling[i]);
    if (!locks_made)
        ignis__mutex_init(&ignis__kernels_state.lock);
    locks_made = true;
    ignis__kernels_state.cache_limit = desc->cache_limit ? desc->cache_limit : (int64_t)256 << 20;
    ignis__kernels_state.cache_broken = ignis__kernels_state.last_read = false;
    ignis__kernels_state.last_release = 0;
    dir[0] = 0;
    if (chosen && strcmp(chosen, "off") == 0)
        return;
    if (chosen && strlen(chosen) >= size)
        ignis__cache_warn(call, "use the folder (its name is too long)", chosen, "");
    else if (chosen)
        snprintf(dir, size, "%s", chosen);
#ifdef _WIN32
    else if (ignis__env("LOCALAPPDATA") && strlen(ignis__env("LOCALAPPDATA")) + 16 < size)
        snprintf(dir, size, "%s\\ignis\\kernels", ignis__env("LOCALAPPDATA"));
#else
    else if (ignis__env("XDG_CACHE_HOME") && *ignis__env("XDG_CACHE_HOME") && strlen(ignis__env("XDG_CACHE_HOME")) + 16 < size)
        snprintf(dir, size, "%s/ignis", ignis__env("XDG_CACHE_HOME"));
    else if (ignis__env("HOME") && *ignis__env("HOME") && strlen(ignis__env("HOME")) + 16 < size)
        snprintf(dir, size, "%s/.cache/ignis", ignis__env("HOME"));
#endif
    if (dir[0] && !ignis__path_is_private(dir, why, sizeof why)) {
        ignis__cache_warn(call, "use the folder", dir, why);
        dir[0] = 0;
    }
}

/*  Unloads Ignis' own kernels from a device; its context is current. */
IGNIS__COLD static void ignis__builtins_close(ignis__device *device)
{
    struct ignis__builtin_code *code = &ignis__builtin_codes[device - ignis__devices];
    int source, dtype;
    for (source = 0; source < IGNIS__SOURCE_COUNT; source++)
        for (dtype = 0; dtype < IGNIS_DTYPE_COUNT; dtype++)
            ignis__module_unload(&code->modules[source][dtype]);
    memset(code, 0, sizeof *code);
    while (ignis__variants.first[device - ignis__devices]) {
        ignis__variant *variant = ignis__variants.first[device - ignis__devices];
        ignis__variants.first[device - ignis__devices] = variant->next;
        ignis__module_unload(&variant->module);
        ignis__free(variant);
    }
}

static void ignis__images_close(void)
{
    while (ignis__kernels_state.images) {
        ignis__image *image = ignis__kernels_state.images;
        ignis__kernels_state.images = image->next;
        ignis__image_drop(image);
    }
}

/* ===============================================================================================================
   >>elementwise - fill, copy, cast, add, mul, scale.
   =============================================================================================================== */

/*  Geometry of kernels/elementwise.cu: 256 threads do 4096 elements. */
static bool ignis__elementwise(const ignis__work *work, ignis__builtin builtin, ignis_dtype dtype, int64_t numel, void **params)
{
    unsigned grid[3] = {0, 1, 1}, block[3] = {256, 1, 1};
    int64_t blocks = (numel + 4095) / 4096;
    void *function;
    if (numel == 0)
        return true;
    if (blocks > INT32_MAX)
        return ignis__refuse(IGNIS_DIAG_SHAPE_OVERFLOW, work->call, "%lld elements are more than one launch can cover", (long long)numel);
    grid[0] = (unsigned)blocks;
    function = ignis__builtin_get(work->call, work->device, builtin, dtype);
    return function && ignis__builtin_launch(work, builtin, function, grid, block, 0, params);
}

static bool ignis__work_fill(const ignis__work *work, ignis__array *array, double value)
{
    ignis__address to;
    char element[8];
    void *params[] = {&to, element, &array->numel};
    ignis__convert(element, array->dtype, &value, IGNIS_F64, 1);
    return ignis__work_write(work, array, &to) && ignis__elementwise(work, IGNIS__BUILTIN_FILL, array->dtype, array->numel, params);
}

static ignis_status ignis__array_set(const char *call, ignis_array handle, double value)
{
    ignis__work work;
    ignis__array *array = ignis__array_work(call, handle, &work);
    return ignis__array_work_end(&work, array, array && ignis__work_fill(&work, array, value));
}

IGNIS_API ignis_status ignis_array_fill(ignis_array array, double value) { return ignis__array_set("ignis_array_fill", array, value); }

static bool ignis__same_numel(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->numel == src->numel)
        return true;
    return ignis__refuse(IGNIS_DIAG_SHAPE_DIFFERS, call, "dst %s has %lld elements, %s %s has %lld", ignis__shape_write(&dst->shape).text,
                         (long long)dst->numel, name, ignis__shape_write(&src->shape).text, (long long)src->numel);
}

static bool ignis__same_dtype(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->dtype == src->dtype)
        return true;
    return ignis__refuse(IGNIS_DIAG_DTYPE_DIFFERS, call, "dst is %s, %s is %s", ignis__dtypes[dst->dtype].name, name,
                         ignis__dtypes[src->dtype].name);
}

static bool ignis__same_device(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->storage->device == src->storage->device)
        return true;
    return ignis__refuse(IGNIS_DIAG_DEVICE_DIFFERS, call, "dst is on device %d, %s is on device %d",
                         ignis__device_ordinal(dst->storage->device), name, ignis__device_ordinal(src->storage->device));
}

/*  Converts on one device. */
static bool ignis__array_convert(const char *call, ignis__array *dst, ignis__array *src)
{
    ignis__work work;
    ignis__address to, from;
    ignis__builtin cast = (ignis__builtin)((int)IGNIS__BUILTIN_CAST_F16 + (int)dst->dtype - (int)IGNIS_F16);
    void *params[] = {&to, &from, &src->numel};
    bool ok = ignis__work_begin(call, dst->storage->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, src, &from) && ignis__work_write(&work, dst, &to) &&
             (dst->dtype == src->dtype ? ignis__copy_on_device(&work, to, from, ignis__array_bytes(src))
                                       : ignis__elementwise(&work, cast, src->dtype, src->numel, params));
        ignis__work_end(&work);
    }
    return ok;
}

/*  Copies between devices, on the current stream of dst's device, behind the work on that of src's. */
static bool ignis__array_copy_peer(const char *call, ignis__array *dst, ignis__array *src)
{
    ignis__device *from_device = src->storage->device;
    ignis__work work, from_work;
    ignis__address to, from;
    uint64_t base;
    ignis__traced item;
    bool traced, ok = ignis__work_begin(call, from_device, &from_work);
    if (!ok)
        return false;
    ok = ignis__work_read(&from_work, src, &from);
    ignis__work_end(&from_work);
    if (!ok || !ignis__work_begin(call, dst->storage->device, &work))
        return false;
    ok = ignis__work_write(&work, dst, &to) && ignis__stream_order(call, from_device, from_work.stream, work.device, work.stream) &&
         ignis__storage_use(call, src->storage, work.device, work.stream, &base);
    if (ok && src->numel > 0) {
        traced = ignis__traced_copy(&item, call, work.device, work.stream, "copy between devices", ignis__array_bytes(src));
        ok = !IGNIS__CUDA_FAILED(call, work.device, cuMemcpyPeerAsync,
                                 (to, work.device->context, from, from_device->context, (size_t)ignis__array_bytes(src), work.stream));
        if (traced)
            (void)ignis__traced_close(&item, ok);
    }
    ignis__work_end(&work);
    return ok;
}

IGNIS_API ignis_status ignis_array_copy(ignis_array dst, ignis_array src)
{
    static const char call[] = "ignis_array_copy";
    ignis_array handles[] = {dst, src};
    ignis__array *arrays[2];
    bool ok;
    if (!ignis__array_hold_all(call, 2, handles, arrays))
        return ignis__failed();
    ok = ignis__same_numel(call, arrays[0], arrays[1], "src") &&
         ignis__array_apart(call, arrays[0], 0, ignis__array_bytes(arrays[0]), arrays[1]);
    if (ok && arrays[0]->storage->device == arrays[1]->storage->device)
        ok = ignis__array_convert(call, arrays[0], arrays[1]);
    else if (ok && arrays[0]->dtype != arrays[1]->dtype) /* the kernel would have to reach across; cast on one side first */
        ok = ignis__same_device(call, arrays[0], arrays[1], "src");
    else if (ok)
        ok = ignis__array_copy_peer(call, arrays[0], arrays[1]);
    ignis__array_drop_all(call, 2, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_array ignis_array_cast(ignis_array handle, ignis_dtype dtype)
{
    static const char call[] = "ignis_array_cast";
    ignis_array made = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle), *target;
    if (!array)
        return made;
    if (ignis__dtype_valid(call, dtype))
        made = ignis__array_create_like(call, array, dtype);
    if (made.id) {
        target = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
        if (!ignis__array_convert(call, target, array))
            ignis__array_discard(call, &made);
        ignis__array_drop(call, target);
    }
    ignis__array_drop(call, array);
    return made;
}

/*  dst = f(sources), all of one dtype and numel on one device. params are the kernel's, with addresses[0] for dst. */
static ignis_status ignis__array_map(const char *call, ignis__builtin builtin, int count, const ignis_array *handles,
                                     const char *const *names, ignis__address *addresses, void **params, int64_t *numel)
{
    ignis__array *arrays[3];
    ignis__work work;
    bool ok = true;
    int i;
    if (!ignis__array_hold_all(call, count, handles, arrays))
        return ignis__failed();
    for (i = 1; ok && i < count; i++)
        ok = ignis__same_numel(call, arrays[0], arrays[i], names[i]) && ignis__same_dtype(call, arrays[0], arrays[i], names[i]) &&
             ignis__same_device(call, arrays[0], arrays[i], names[i]) &&
             ignis__array_apart(call, arrays[0], 0, ignis__array_bytes(arrays[0]), arrays[i]);
    ok = ok && ignis__work_begin(call, arrays[0]->storage->device, &work);
    if (ok) {
        *numel = arrays[0]->numel;
        for (i = 1; ok && i < count; i++)
            ok = ignis__work_read(&work, arrays[i], &addresses[i]);
        ok = ok && ignis__work_write(&work, arrays[0], &addresses[0]) &&
             ignis__elementwise(&work, builtin, arrays[0]->dtype, *numel, params);
        ignis__work_end(&work);
    }
    ignis__array_drop_all(call, count, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

static ignis_status ignis__array_binary(const char *call, ignis__builtin builtin, ignis_array dst, ignis_array a, ignis_array b)
{
    static const char *const names[] = {"dst", "a", "b"};
    ignis_array handles[] = {dst, a, b};
    ignis__address addresses[3];
    int64_t numel;
    void *params[] = {&addresses[0], &addresses[1], &addresses[2], &numel};
    return ignis__array_map(call, builtin, 3, handles, names, addresses, params, &numel);
}

IGNIS_API ignis_status ignis_array_add(ignis_array dst, ignis_array a, ignis_array b)
{
    return ignis__array_binary("ignis_array_add", IGNIS__BUILTIN_ADD, dst, a, b);
}

IGNIS_API ignis_status ignis_array_mul(ignis_array dst, ignis_array a, ignis_array b)
{
    return ignis__array_binary("ignis_array_mul", IGNIS__BUILTIN_MUL, dst, a, b);
}

IGNIS_API ignis_status ignis_array_scale(ignis_array dst, ignis_array src, double factor)
{
    static const char *const names[] = {"dst", "src"};
    ignis_array handles[] = {dst, src};
    ignis__address addresses[2];
    int64_t numel;
    void *params[] = {&addresses[0], &addresses[1], &factor, &numel};
    return ignis__array_map("ignis_array_scale", IGNIS__BUILTIN_SCALE, 2, handles, names, addresses, params, &numel);
}

#ifndef IGNIS_NO_TENSORS

/* ===============================================================================================================
   >>random - where random numbers begin, and what tensors keep for a thread.
   =============================================================================================================== */

/*  What the tensor sections keep of a thread. */
typedef struct ignis__tensor_thread {
    uint64_t setup;                    /* the setup that it belongs to: an older one is forgotten */
    int tensor_count, tensor_capacity; /* handles made inside scopes, those of the innermost scope last */
    int scope_count, scope_capacity;
    int no_grad;
    uint64_t seed, random_used; /* blocks of four random numbers given out */
    bool random_again;          /* a checkpoint runs its function again, with the numbers of the first time */
    uint64_t random_launches;   /* and this counter of a graph's launches, by handle; 0: none */
    struct ignis__tape *tape;
    struct ignis__walk *walk;       /* the innermost backward; null: none */
    uint64_t walk_serial;           /* its serial, or 0 */
    int scope_floor, no_grad_floor; /* what was open before a function of the caller's was called, which may not end it */
    bool unbalanced;                /* the function has tried to */
    bool saw_trainable;             /* an operation had an input that requires a gradient, recorded or not */
    struct ignis__watch *watch;     /* of the checkpoint whose function runs for the first time; null: none */
} ignis__tensor_thread;

IGNIS__LOCAL(ignis__tensor_thread, ignis__this_tensor_thread, IGNIS__LOCAL_TENSORS)
#ifdef _WIN32
#define ignis__this_tensor_thread (*ignis__this_tensor_thread_get())
#endif

IGNIS__ONE_COPY static ignis__tensor_thread *ignis__tensor_thread_now(void)
{
    ignis__tensor_thread *thread = &ignis__this_tensor_thread;
    if (thread->setup != ignis__global.setups) {
        thread->setup = ignis__global.setups;
        thread->tensor_count = thread->scope_count = thread->no_grad = 0;
        thread->tensor_capacity = thread->scope_capacity = 0; /* ignis_shutdown has freed them */
        thread->seed = thread->random_used = thread->random_launches = 0;
        thread->random_again = false;
        thread->tape = NULL;
        thread->walk = NULL;
        thread->walk_serial = 0;
        thread->scope_floor = thread->no_grad_floor = 0;
        thread->unbalanced = thread->saw_trainable = false;
        thread->watch = NULL;
    }
    return thread;
}

/*  Where an operation's random numbers begin: seed, first Philox counter, and in a CUDA graph the counter of its launches. */
typedef struct ignis__random {
    uint64_t seed, first;
    ignis_array launches; /* no handle: none */
} ignis__random;

static void ignis__array_unclaim_held(const char *call, void *item) { ignis__array_unclaim(call, (ignis__array *)item); }

/*  Lets a capture count the launches of its graph, from 1: the counter begins beside the capture, and goes up ahead of its first reader. */
IGNIS__COLD static bool ignis__capture_count(const ignis__work *work, ignis__capture *capture, ignis_dtype dtype)
{
    unsigned one[3] = {1, 1, 1};
    void *function = ignis__builtin_get(work->call, work->device, IGNIS__BUILTIN_RANDOM_ADVANCE, dtype);
    ignis__address address;
    void *params[] = {&address};
    ignis__array *array;
    ignis_array_desc desc = IGNIS__ZERO;
    ignis_array made;
    bool ok;
    if (!function)
        return false;
    desc.shape = IGNIS_SHAPE(1);
    desc.dtype = IGNIS_I64;
    desc.device = ignis__device_in_desc(work->device);
    desc.tag = "launches";
    made = ignis__array_create(work->call, &desc);
    if (!made.id)
        return false;
    (void)ignis__capture_pause();
    ok = ignis__array_set_zero(work->call, made) == IGNIS_OK;
    ok = ignis__capture_resume(work->call, capture) && ok;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
    ok = ok && ignis__work_write(work, array, &address) && ignis__launch_as(work, function, one, one, 0, params, false, false);
    if (ok) {
        ignis__array_claim(array);
        ok = ignis__capture_hold(work->call, capture, array, NULL, ignis__array_unclaim_held);
        if (ok)
            capture->launches = array;
        else
            ignis__array_unclaim(work->call, array);
    } else {
        ignis__array_discard(work->call, &made);
    }
    ignis__array_drop(work->call, array);
    return ok;
}

/*  The counter of launches for random numbers of the calling thread now, or no handle. */
static ignis_array ignis__random_launches(void)
{
    const ignis__tensor_thread *thread = ignis__tensor_thread_now();
    const ignis__capture *capture = ignis__capturing();
    ignis_array launches = IGNIS__ZERO;
    if (thread->random_again)
        launches.id = thread->random_launches;
    else if (capture && capture->launches)
        launches.id = capture->launches->slot.handle;
    return launches;
}

/*  The numbers for so many elements of a tensor on the device of the work. */
static bool ignis__random_take(const ignis__work *work, ignis_dtype dtype, int64_t numel, ignis__random *random)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__capture *capture = ignis__capture_on(work->device);
    if (capture && !capture->launches && !thread->random_again && !ignis__capture_count(work, capture, dtype))
        return false;
    random->seed = thread->seed;
    random->first = thread->random_used;
    random->launches.id = 0;
    if (capture || thread->random_again)
        random->launches = ignis__random_launches();
    thread->random_used += ((uint64_t)numel + 3) / 4;
    return true;
}

/*  The address of a counter of launches for a kernel; 0 for no handle. */
static bool ignis__random_step(const ignis__work *work, ignis_array launches, ignis__address *step)
{
    ignis__array *array;
    bool ok;
    *step = 0;
    if (!launches.id)
        return true;
    array = ignis__array_hold(work->call, launches);
    ok = array && (array->storage->device != work->device || ignis__work_read(work, array, step));
    if (array)
        ignis__array_drop(work->call, array);
    return ok;
}

/* ===============================================================================================================
   >>map - formulas: a text becomes typed terms, their derivatives, a kernel.
   =============================================================================================================== */

/* --- functions and operators ---------------------------------------------------------------------------------------------- */

/*  A row for all that a term can be: how it is written in CUDA, with $a, $b and $c for its arguments and $r for itself, and its partial
    derivatives, null for 0, where $d, of those that choose, is the argument's own derivative. A term is of type W (w), an integer (i) or a truth
    value (b). Of type n are those that are integers, where `integer` is given and all arguments are, and W else. Functions with a body are what
    that formula of a, b and c is. */
typedef struct ignis__map_function {
    const char *name;
    int count; /* of arguments */
    char type;
    const char *value, *integer, *partial[2], *body;
} ignis__map_function;

enum {
    IGNIS__MAP_INPUT,
    IGNIS__MAP_NUMBER,
    IGNIS__MAP_INDEX,
    IGNIS__MAP_RAND,
    IGNIS__MAP_RANDN,
    IGNIS__MAP_SELECT,
    IGNIS__MAP_POWER,
    IGNIS__MAP_WIDE,
    IGNIS__MAP_TRUTH,
    IGNIS__MAP_NEG,
    IGNIS__MAP_NOT,
    IGNIS__MAP_INVERT,
    IGNIS__MAP_DIVIDE,
    IGNIS__MAP_WHOLE,                                /* floor, ceil, round and trunc, of one value */
    IGNIS__MAP_WHOLE_QUOTIENT = IGNIS__MAP_WHOLE + 4 /* and of the quotient of two integers */
};

/* clang-format off */
static const ignis__map_function ignis__map_functions[] = {
    {"", 0, 'w', "", NULL, {NULL, NULL}, NULL}, /* the first rows are those of the enumeration */
    {"", 0, 'w', "", NULL, {NULL, NULL}, NULL},
    {"", 0, 'i', "", NULL, {NULL, NULL}, NULL},
    {"rand", 0, 'w', "", NULL, {NULL, NULL}, NULL},
    {"randn", 2, 'w', "map_normal($a,$b)", NULL, {NULL, NULL}, NULL}, /* of two rand, which the reader gives it */
    {"?", 3, 'n', "$a?$b:$c", "$a?$b:$c", {NULL, NULL}, NULL},
    {"", 1, 'n', "map_power($a,$n)", "map_power_whole($a,$n)", {"(W)$n*map_power($a,$n-1)", NULL}, NULL},
    {"", 1, 'w', "(W)$a", NULL, {NULL, NULL}, NULL},
    {"", 1, 'b', "$a!=0", "$a!=0", {NULL, NULL}, NULL},
    {"", 1, 'n', "-$a", "(i64)(0-(u64)$a)", {"-1", NULL}, NULL},
    {"!", 1, 'b', "!$a", NULL, {NULL, NULL}, NULL},
    {"~", 1, 'i', "", "~(i64)$a", {NULL, NULL}, NULL},
    {"/", 2, 'w', "map_divide($a,$b)", NULL, {"1/$b", "-$r/$b"}, NULL},
    {"floor", 1, 'n', "floor($a)", "$a", {NULL, NULL}, NULL},
    {"ceil", 1, 'n', "ceil($a)", "$a", {NULL, NULL}, NULL},
    {"round", 1, 'n', "rint($a)", "$a", {NULL, NULL}, NULL},
    {"trunc", 1, 'n', "trunc($a)", "$a", {NULL, NULL}, NULL},
    {"", 2, 'i', "", "map_floor($a,$b)", {NULL, NULL}, NULL},
    {"", 2, 'i', "", "map_ceil($a,$b)", {NULL, NULL}, NULL},
    {"", 2, 'i', "", "map_round($a,$b)", {NULL, NULL}, NULL},
    {"", 2, 'i', "", "map_trunc($a,$b)", {NULL, NULL}, NULL},
    {"||", 2, 'b', "$a||$b", NULL, {NULL, NULL}, NULL},
    {"&&", 2, 'b', "$a&&$b", NULL, {NULL, NULL}, NULL},
    {"|", 2, 'i', "", "$a|$b", {NULL, NULL}, NULL},
    {"^", 2, 'i', "", "$a^$b", {NULL, NULL}, NULL},
    {"&", 2, 'i', "", "$a&$b", {NULL, NULL}, NULL},
    {"<<", 2, 'i', "", "map_left($a,$b)", {NULL, NULL}, NULL},
    {">>", 2, 'i', "", "map_right($a,$b)", {NULL, NULL}, NULL},
    {"==", 2, 'b', "$a==$b", "$a==$b", {NULL, NULL}, NULL},
    {"!=", 2, 'b', "$a!=$b", "$a!=$b", {NULL, NULL}, NULL},
    {"<=", 2, 'b', "$a<=$b", "$a<=$b", {NULL, NULL}, NULL},
    {">=", 2, 'b', "$a>=$b", "$a>=$b", {NULL, NULL}, NULL},
    {"<", 2, 'b', "$a<$b", "$a<$b", {NULL, NULL}, NULL},
    {">", 2, 'b', "$a>$b", "$a>$b", {NULL, NULL}, NULL},
    {"+", 2, 'n', "$a+$b", "(i64)((u64)$a+(u64)$b)", {"1", "1"}, NULL},
    {"-", 2, 'n', "$a-$b", "(i64)((u64)$a-(u64)$b)", {"1", "-1"}, NULL},
    {"*", 2, 'n', "$a*$b", "(i64)((u64)$a*(u64)$b)", {"$b", "$a"}, NULL},
    {"%", 2, 'n', "fmod($a,$b)", "map_modulo($a,$b)", {"1", "-trunc(map_divide($a,$b))"}, NULL},
    {"abs", 1, 'n', "fabs($a)", "$a<0?(i64)(0-(u64)$a):$a", {"$a>0?$d:$a<0?-$d:$a==0||$d==0?(W)0:$a", NULL}, NULL},
    {"sign", 1, 'n', "$a!=$a?$a:(W)(($a>0)-($a<0))", "(i64)(($a>0)-($a<0))", {NULL, NULL}, NULL},
    {"max", 2, 'n', "map_most($a,$b)", "map_most((i64)$a,(i64)$b)", {"$a<$b?(W)0:$a==$b?(W)0.5*$d:$d", "$b<$a?(W)0:$a==$b?(W)0.5*$d:$d"}, NULL},
    {"min", 2, 'n', "map_least($a,$b)", "map_least((i64)$a,(i64)$b)", {"$a>$b?(W)0:$a==$b?(W)0.5*$d:$d", "$b>$a?(W)0:$a==$b?(W)0.5*$d:$d"}, NULL},
    {"relu", 1, 'n', "map_most($a,(W)0)", "$a>0?$a:0", {"$a<=0?(W)0:$d", NULL}, NULL},
    {"exp", 1, 'w', "exp($a)", NULL, {"$r", NULL}, NULL},
    {"exp2", 1, 'w', "exp2($a)", NULL, {"$r*(W)0.693147180559945309", NULL}, NULL},
    {"expm1", 1, 'w', "expm1($a)", NULL, {"$r+1", NULL}, NULL},
    {"log", 1, 'w', "log($a)", NULL, {"1/$a", NULL}, NULL},
    {"log2", 1, 'w', "log2($a)", NULL, {"(W)1.44269504088896341/$a", NULL}, NULL},
    {"log10", 1, 'w', "log10($a)", NULL, {"(W)0.434294481903251828/$a", NULL}, NULL},
    {"log1p", 1, 'w', "log1p($a)", NULL, {"1/(1+$a)", NULL}, NULL},
    {"sqrt", 1, 'w', "sqrt($a)", NULL, {"(W)0.5/$r", NULL}, NULL},
    {"rsqrt", 1, 'w', "rsqrt($a)", NULL, {"(W)-0.5*$r*$r*$r", NULL}, NULL},
    {"cbrt", 1, 'w', "cbrt($a)", NULL, {"1/(3*$r*$r)", NULL}, NULL},
    {"sin", 1, 'w', "sin($a)", NULL, {"cos($a)", NULL}, NULL},
    {"cos", 1, 'w', "cos($a)", NULL, {"-sin($a)", NULL}, NULL},
    {"tan", 1, 'w', "tan($a)", NULL, {"1+$r*$r", NULL}, NULL},
    {"asin", 1, 'w', "asin($a)", NULL, {"rsqrt(1-$a*$a)", NULL}, NULL},
    {"acos", 1, 'w', "acos($a)", NULL, {"-rsqrt(1-$a*$a)", NULL}, NULL},
    {"atan", 1, 'w', "atan($a)", NULL, {"1/(1+$a*$a)", NULL}, NULL},
    {"sinh", 1, 'w', "sinh($a)", NULL, {"cosh($a)", NULL}, NULL},
    {"cosh", 1, 'w', "cosh($a)", NULL, {"sinh($a)", NULL}, NULL},
    {"tanh", 1, 'w', "tanh($a)", NULL, {"1-$r*$r", NULL}, NULL},
    {"sigmoid", 1, 'w', "map_sigmoid($a)", NULL, {"$r*(1-$r)", NULL}, NULL},
    {"softplus", 1, 'w', "map_softplus($a)", NULL, {"map_sigmoid($a)", NULL}, NULL},
    {"erf", 1, 'w', "erf($a)", NULL, {"(W)1.12837916709551257*exp(-$a*$a)", NULL}, NULL},
    {"pow", 2, 'w', "pow($a,$b)", NULL, {"$b==0||$d==0?(W)0:$b*pow($a,$b-1)*$d", "($a==0&&$b>=0)||$d==0?(W)0:$r*log($a)*$d"}, NULL},
    {"detach", 1, 'n', "$a", "$a", {NULL, NULL}, NULL},
    {"with_grad", 2, 'w', "$a", NULL, {NULL, "1"}, NULL},
    {"atan2", 2, 'w', "atan2($a,$b)", NULL, {"$b/hypot($a,$b)/hypot($a,$b)", "-$a/hypot($a,$b)/hypot($a,$b)"}, NULL},
    {"silu", 1, 0, NULL, NULL, {NULL, NULL}, "a*sigmoid(a)"},
    {"gelu", 1, 0, NULL, NULL, {NULL, NULL}, "0.5*a*(1 + tanh(0.79788456080286536*a*(1 + 0.044715*min(a*a, 100))))"},
    {"gelu_exact", 1, 0, NULL, NULL, {NULL, NULL}, "0.5*a*(1 + erf(a*0.70710678118654752))"},
    {"logsigmoid", 1, 0, NULL, NULL, {NULL, NULL}, "-softplus(-a)"},
    {"square", 1, 0, NULL, NULL, {NULL, NULL}, "a*a"},
    {"clamp", 3, 0, NULL, NULL, {NULL, NULL}, "a < b ? b : a > c ? c : a"},
    {"lerp", 3, 0, NULL, NULL, {NULL, NULL}, "a + c*(b - a)"},
    {"isnan", 1, 0, NULL, NULL, {NULL, NULL}, "a != a"},
    {"isinf", 1, 0, NULL, NULL, {NULL, NULL}, "abs(a) == inf"},
    {"isfinite", 1, 0, NULL, NULL, {NULL, NULL}, "abs(a) < inf"},
};

static const struct {
    const char *name, *value;
} ignis__map_constants[] = {{"pi", "(W)3.14159265358979324"}, {"e", "(W)2.71828182845904524"}, {"inf", "map_infinity"}, {"nan", "map_nan"}};
/* clang-format on */

/* --- reading a formula ---------------------------------------------------------------------------------------------------- */

#define IGNIS__MAP_TERMS 1000
#define IGNIS__MAP_NAMES 300
#define IGNIS__MAP_TOKENS 1000
#define IGNIS__MAP_DEPTH 60
#define IGNIS__MAP_LENGTH 16384
#define IGNIS__MAP_INDICES 8 /* and so many random numbers */

typedef struct ignis__map_term {
    short function, arg[3];
    char type;        /* w, i or b */
    short length;     /* of text */
    int64_t number;   /* an input's index; an integer; the exponent of a power; the dimension of an index; which random number it is */
    const char *text; /* of a number of type w; null: it is `number` */
} ignis__map_term;

typedef struct ignis__map_name {
    const char *text;
    size_t length;
    int term;
} ignis__map_name;

/*  A formula being read. After the first fault every token is the end. */
typedef struct ignis__map_reader {
    const char *text;
    size_t at, start; /* behind the current token; its place */
    char kind;        /* of the current token: a name (a), a number (0), an operator (+), the end (0) */
    int tokens, depth;
    bool inside; /* the body of a function */
    int name_first, name_count, term_count, result_count, randoms;
    int result[IGNIS_MAX_INPUTS];
    ignis__map_name name[IGNIS__MAP_NAMES];
    ignis__map_term term[IGNIS__MAP_TERMS];
    size_t column;
    char fault[400];
} ignis__map_reader;

static bool ignis__map_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool ignis__map_is_digit(char c) { return c >= '0' && c <= '9'; }
static size_t ignis__map_word(const char *text)
{
    size_t length = 0;
    while (ignis__map_is_letter(text[length]) || (length && ignis__map_is_digit(text[length])))
        length++;
    return length;
}

/*  The length of a number: 12, 1.5, 1.5f, 1e-3 or, of up to 16 digits, 0xff. */
static size_t ignis__map_digits(const char *text)
{
    static const char *const digits = "0123456789";
    size_t length = strspn(text, digits), whole = length, exponent;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        length = strspn(text + 2, "0123456789abcdefABCDEF");
        return length ? 2 + (length < 16 ? length : 16) : 1;
    }
    length += text[length] == '.';
    length += strspn(text + length, digits);
    if (text[length] == 'e' || text[length] == 'E') {
        exponent = 1 + (size_t)(text[length + 1] == '+' || text[length + 1] == '-');
        if (ignis__map_is_digit(text[length + exponent]))
            length += exponent + strspn(text + length + exponent, digits);
    }
    return length + (length > whole && (text[length] == 'f' || text[length] == 'F'));
}

IGNIS__PRINTF(3, 4)
IGNIS__COLD static int ignis__map_fault(ignis__map_reader *r, size_t at, const char *format, ...)
{
    va_list args;
    if (!*r->fault) {
        va_start(args, format);
        vsnprintf(r->fault, sizeof r->fault, format, args);
        va_end(args);
        r->column = at + 1;
        r->kind = 0;
    }
    return 0;
}

/*  Goes on to the next token. */
static void ignis__map_next(ignis__map_reader *r)
{
    const char *text = r->text;
    size_t at = r->at;
    if (*r->fault)
        return;
    at += strspn(text + at, " \t\r\n");
    r->start = at;
    if (!r->inside && ++r->tokens > IGNIS__MAP_TOKENS) {
        ignis__map_fault(r, at, "the formula has more than %d words and signs", IGNIS__MAP_TOKENS);
        return;
    }
    if (!text[at]) {
        r->kind = 0;
    } else if (ignis__map_is_letter(text[at])) {
        r->kind = 'a';
        at += ignis__map_word(text + at);
    } else if (ignis__map_is_digit(text[at]) || (text[at] == '.' && ignis__map_is_digit(text[at + 1]))) {
        r->kind = '0';
        at += ignis__map_digits(text + at);
        if (ignis__map_is_letter(text[at]) || ignis__map_is_digit(text[at]) || text[at] == '.')
            ignis__map_fault(r, at, "'%c' does not belong to a number", text[at]);
    } else {
        r->kind = '+';
        if (!strchr("+-*/%<>=!&|^~?:;(),", text[at]))
            ignis__map_fault(r, at, "'%c' is no part of a formula", text[at] > ' ' && text[at] < 127 ? text[at] : '?');
        else if (text[at] == '*' && text[at + 1] == '*')
            ignis__map_fault(r, at, "'**' is no part of a formula; use pow(a, b)");
        else if ((strchr("&|<>", text[at]) && text[at + 1] == text[at]) || (strchr("<>=!", text[at]) && text[at + 1] == '='))
            at++;
        at++;
    }
    r->at = at;
}

static bool ignis__map_is(const ignis__map_reader *r, const char *sign)
{
    size_t length = strlen(sign);
    return r->kind == '+' && r->at - r->start == length && strncmp(r->text + r->start, sign, length) == 0;
}

static bool ignis__map_take(ignis__map_reader *r, const char *sign)
{
    bool is = ignis__map_is(r, sign);
    if (is)
        ignis__map_next(r);
    return is;
}

/*  The current token for a message, in *out. */
IGNIS__COLD static const char *ignis__map_token(const ignis__map_reader *r, char *out, size_t size)
{
    size_t length = r->at - r->start;
    if (r->kind)
        snprintf(out, size, "'%.*s'", (int)(length < 30 ? length : 30), r->text + r->start);
    else
        snprintf(out, size, "the end");
    return out;
}

static void ignis__map_want(ignis__map_reader *r, const char *sign)
{
    char token[40];
    if (!ignis__map_take(r, sign))
        ignis__map_fault(r, r->start, "'%s' is expected before %s", sign, ignis__map_token(r, token, sizeof token));
}

/*  The term that is as given, a new one or one that is there. */
static int ignis__map_term_of(ignis__map_reader *r, const ignis__map_term *wanted)
{
    int i;
    for (i = r->term_count - 1; i >= 0; i--) {
        const ignis__map_term *term = &r->term[i];
        if (term->function == wanted->function && term->type == wanted->type && term->number == wanted->number &&
            memcmp(term->arg, wanted->arg, sizeof term->arg) == 0 && term->length == wanted->length &&
            (term->length == 0 || memcmp(term->text, wanted->text, (size_t)term->length) == 0))
            return i;
    }
    if (r->term_count == IGNIS__MAP_TERMS)
        return ignis__map_fault(r, r->start, "the formula has more than %d operations", IGNIS__MAP_TERMS);
    r->term[r->term_count] = *wanted;
    return r->term_count++;
}

/*  A term without arguments. */
static int ignis__map_leaf(ignis__map_reader *r, int function, char type, int64_t number, const char *text, size_t length)
{
    ignis__map_term term = IGNIS__ZERO;
    term.function = (short)function;
    term.type = type;
    term.number = number;
    term.text = text;
    term.length = (short)length;
    return ignis__map_term_of(r, &term);
}

static int ignis__map_integer(ignis__map_reader *r, int64_t number) { return ignis__map_leaf(r, IGNIS__MAP_NUMBER, 'i', number, NULL, 0); }

/*  A term as W, or as a truth value. */
static int ignis__map_as(ignis__map_reader *r, char type, int x)
{
    ignis__map_term term;
    if (r->term[x].type == type)
        return x;
    if (r->term[x].function == IGNIS__MAP_NUMBER && type == 'w')
        return ignis__map_leaf(r, IGNIS__MAP_NUMBER, 'w', r->term[x].number, NULL, 0);
    memset(&term, 0, sizeof term);
    term.function = type == 'w' ? IGNIS__MAP_WIDE : IGNIS__MAP_TRUTH;
    term.type = type;
    term.arg[0] = (short)x;
    return ignis__map_term_of(r, &term);
}

/*  A function of terms: the term, with its arguments in the types that it takes. */
static int ignis__map_apply(ignis__map_reader *r, int function, const int *args, int64_t number)
{
    const ignis__map_function *f = &ignis__map_functions[function];
    ignis__map_term term = IGNIS__ZERO;
    bool select = function == IGNIS__MAP_SELECT, integers = f->integer != NULL, truths = f->type == 'b' && !f->integer;
    int i;
    term.function = (short)function;
    term.number = number;
    for (i = select; i < f->count; i++)
        integers = integers && r->term[args[i]].type != 'w';
    for (i = 0; i < f->count; i++)
        term.arg[i] = (short)ignis__map_as(r, truths || (select && i == 0) ? 'b' : integers ? r->term[args[i]].type : 'w', args[i]);
    term.type = f->type != 'n' ? f->type : integers ? 'i' : 'w';
    return ignis__map_term_of(r, &term);
}

static int ignis__map_expression(ignis__map_reader *r);

/*  What a function's body is of terms. */
static int ignis__map_body(ignis__map_reader *r, const ignis__map_function *f, const int *args)
{
    static const char *const letters = "abc";
    const char *text = r->text;
    size_t at = r->at, start = r->start;
    char kind = r->kind;
    bool inside = r->inside;
    int first = r->name_first, count = r->name_count, i, result;
    if (*r->fault || count + f->count > IGNIS__MAP_NAMES)
        return ignis__map_fault(r, start, "the formula has more than %d names", IGNIS__MAP_NAMES);
    for (i = 0; i < f->count; i++) {
        r->name[count + i].text = letters + i;
        r->name[count + i].length = 1;
        r->name[count + i].term = args[i];
    }
    r->name_first = count;
    r->name_count = count + f->count;
    r->text = f->body;
    r->at = 0;
    r->inside = true;
    ignis__map_next(r);
    result = ignis__map_expression(r);
    r->text = text;
    r->at = at;
    r->start = start;
    r->kind = *r->fault ? 0 : kind;
    r->inside = inside;
    r->name_first = first;
    r->name_count = count;
    return result;
}

/*  index(d), of which d is a number in the text. */
static int ignis__map_index(ignis__map_reader *r, size_t start)
{
    const ignis__map_term *term;
    int at, count = 0, dim;
    ignis__map_next(r);
    dim = ignis__map_expression(r);
    ignis__map_want(r, ")");
    if (*r->fault)
        return 0;
    term = &r->term[dim];
    if (term->function != IGNIS__MAP_NUMBER || term->type != 'i' || term->number < -IGNIS_MAX_DIMS || term->number >= IGNIS_MAX_DIMS)
        return ignis__map_fault(r, start, "index takes the number of a dimension, -%d to %d", IGNIS_MAX_DIMS, IGNIS_MAX_DIMS - 1);
    at = ignis__map_leaf(r, IGNIS__MAP_INDEX, 'i', term->number, NULL, 0);
    for (dim = 0; dim < r->term_count; dim++)
        count += r->term[dim].function == IGNIS__MAP_INDEX;
    return count <= IGNIS__MAP_INDICES ? at : ignis__map_fault(r, start, "the formula has more than %d indices", IGNIS__MAP_INDICES);
}

/*  rand() or randn(): each is a random number of its own. */
static int ignis__map_random(ignis__map_reader *r, size_t start, bool normal)
{
    int uniform[2] = {0, 0}, i;
    ignis__map_next(r);
    ignis__map_want(r, ")");
    for (i = 0; i < 1 + normal; i++) {
        if (r->randoms == IGNIS__MAP_INDICES)
            return ignis__map_fault(r, start, "the formula takes more than %d random numbers, of which randn() is two", IGNIS__MAP_INDICES);
        uniform[i] = ignis__map_leaf(r, IGNIS__MAP_RAND, 'w', r->randoms++, NULL, 0);
    }
    return normal && !*r->fault ? ignis__map_apply(r, IGNIS__MAP_RANDN, uniform, 0) : uniform[0];
}

/*  A term to the power of a whole number that is written down. Of an integer it is one, unless the result may be a fraction, or both are
    written down. */
static int ignis__map_power(ignis__map_reader *r, int x, int64_t n)
{
    if (n < 0 || r->term[x].function == IGNIS__MAP_NUMBER)
        x = ignis__map_as(r, 'w', x);
    if (n == 0) /* of NaN, too */
        return r->term[x].type == 'w' ? ignis__map_as(r, 'w', ignis__map_integer(r, 1)) : ignis__map_integer(r, 1);
    return ignis__map_apply(r, IGNIS__MAP_POWER, &x, n);
}

/*  The integer that a term of type W was made of; false: of none. */
static bool ignis__map_narrow(ignis__map_reader *r, int x, int *integer)
{
    const ignis__map_term *term = &r->term[x];
    bool number = term->function == IGNIS__MAP_NUMBER && !term->text;
    if (number || term->function == IGNIS__MAP_WIDE)
        *integer = number ? ignis__map_integer(r, term->number) : term->arg[0];
    return number || term->function == IGNIS__MAP_WIDE;
}

/*  A function's call, behind its name, which begins at `start`. */
static int ignis__map_call(ignis__map_reader *r, size_t start, size_t length)
{
    const char *name = r->text + start;
    int function, count = 0, args[3] = {0, 0, 0};
    const ignis__map_function *f = NULL;
    if (length == 5 && strncmp(name, "index", length) == 0)
        return ignis__map_index(r, start);
    if ((length == 4 || length == 5) && strncmp(name, "randn", length) == 0)
        return ignis__map_random(r, start, length == 5);
    for (function = 0; function < IGNIS__COUNT(ignis__map_functions); function++) {
        f = &ignis__map_functions[function];
        if (strlen(f->name) == length && strncmp(f->name, name, length) == 0)
            break;
    }
    if (function == IGNIS__COUNT(ignis__map_functions))
        return ignis__map_fault(r, start, "there is no function '%.*s'", (int)(length < 30 ? length : 30), name);
    ignis__map_next(r);
    if (!ignis__map_is(r, ")")) {
        do {
            int arg = ignis__map_expression(r);
            if (count < 3)
                args[count] = arg;
            count++;
        } while (ignis__map_take(r, ","));
    }
    ignis__map_want(r, ")");
    if (count != f->count)
        return ignis__map_fault(r, start, "%s takes %d value%s, not %d", f->name, f->count, f->count == 1 ? "" : "s", count);
    if (*r->fault)
        return 0;
    if (f->body)
        return ignis__map_body(r, f, args);
    if (strcmp(f->name, "pow") == 0 && r->term[args[1]].function == IGNIS__MAP_NUMBER && r->term[args[1]].type == 'i')
        return ignis__map_power(r, args[0], r->term[args[1]].number);
    if (function >= IGNIS__MAP_WHOLE && function < IGNIS__MAP_WHOLE_QUOTIENT && r->term[args[0]].function == IGNIS__MAP_DIVIDE) {
        const short *of = r->term[args[0]].arg;
        int sides[2];
        if (ignis__map_narrow(r, of[0], &sides[0]) && ignis__map_narrow(r, of[1], &sides[1]))
            return ignis__map_apply(r, function + IGNIS__MAP_WHOLE_QUOTIENT - IGNIS__MAP_WHOLE, sides, 0);
    }
    return ignis__map_apply(r, function, args, 0);
}

IGNIS__COLD static int ignis__map_unknown(ignis__map_reader *r, size_t start, size_t length)
{
    char names[300] = "";
    ignis__text text;
    int i;
    ignis__text_begin(&text, names, sizeof names);
    for (i = r->name_first; i < r->name_count; i++)
        ignis__text_add(&text, "%s%.*s", i > r->name_first ? ", " : "", (int)r->name[i].length, r->name[i].text);
    return ignis__map_fault(r, start, "'%.*s' is not known; the names are %s", (int)(length < 30 ? length : 30), r->text + start, names);
}

/*  A name, a call, a number or an expression in parentheses. */
static int ignis__map_primary(ignis__map_reader *r)
{
    size_t start = r->start, length = r->at - start, digit;
    const char *text = r->text + start;
    char kind = r->kind, token[40];
    int i;
    if (ignis__map_take(r, "(")) {
        i = ignis__map_expression(r);
        ignis__map_want(r, ")");
        return i;
    }
    if (kind != 'a' && kind != '0')
        return ignis__map_fault(r, start, "%s where a value is expected", ignis__map_token(r, token, sizeof token));
    ignis__map_next(r);
    if (kind == '0' && length > 2 && (text[1] == 'x' || text[1] == 'X')) {
        uint64_t bits = 0;
        for (digit = 2; digit < length; digit++)
            bits = bits << 4 | (uint64_t)(ignis__map_is_digit(text[digit]) ? text[digit] - '0' : (text[digit] | 32) - 'a' + 10);
        return ignis__map_integer(r, (int64_t)bits);
    }
    if (kind == '0') {
        int64_t number = 0;
        length -= text[length - 1] == 'f' || text[length - 1] == 'F';
        for (digit = 0; digit < length && ignis__map_is_digit(text[digit]); digit++) {
            if (number > (INT64_MAX - 9) / 10)
                break;
            number = 10 * number + (text[digit] - '0');
        }
        return digit == length ? ignis__map_integer(r, number) : ignis__map_leaf(r, IGNIS__MAP_NUMBER, 'w', 0, text, length);
    }
    if (ignis__map_is(r, "("))
        return ignis__map_call(r, start, length);
    for (i = r->name_count - 1; i >= r->name_first; i--)
        if (r->name[i].length == length && strncmp(r->name[i].text, text, length) == 0)
            return r->name[i].term;
    for (i = 0; i < IGNIS__COUNT(ignis__map_constants); i++)
        if (strlen(ignis__map_constants[i].name) == length && strncmp(ignis__map_constants[i].name, text, length) == 0)
            return ignis__map_leaf(r, IGNIS__MAP_NUMBER, 'w', 0, ignis__map_constants[i].value, strlen(ignis__map_constants[i].value));
    return ignis__map_unknown(r, start, length);
}

/*  Whether a term may stand beside an operator of bits, which begins at `start`. */
static bool ignis__map_bits(ignis__map_reader *r, size_t start, const char *name, int x)
{
    if (r->term[x].type == 'w')
        ignis__map_fault(r, start, "'%s' takes integers, and one here is a floating number%s", name,
                         *name == '^'                     ? "; pow(a, b) is a power"
                         : (*name == '&' || *name == '|') ? "; && and || are those of truth values"
                                                          : "");
    return !*r->fault;
}

/*  An expression behind signs. Signs are counted, as they nest. */
static int ignis__map_unary(ignis__map_reader *r)
{
    bool minus = ignis__map_is(r, "-"), bits = ignis__map_is(r, "~");
    size_t start = r->start;
    int x;
    if (!minus && !bits && !ignis__map_is(r, "!") && !ignis__map_is(r, "+"))
        return ignis__map_primary(r);
    if (++r->depth > IGNIS__MAP_DEPTH)
        return ignis__map_fault(r, r->start, "the formula is nested deeper than %d", IGNIS__MAP_DEPTH);
    if (ignis__map_take(r, "+")) {
        x = ignis__map_unary(r);
    } else {
        ignis__map_next(r);
        x = ignis__map_unary(r);
        if (minus && r->term[x].function == IGNIS__MAP_NUMBER && r->term[x].type == 'i')
            x = ignis__map_integer(r, (int64_t)(0 - (uint64_t)r->term[x].number));
        else if (!*r->fault && (!bits || ignis__map_bits(r, start, "~", x)))
            x = ignis__map_apply(r, minus ? IGNIS__MAP_NEG : bits ? IGNIS__MAP_INVERT : IGNIS__MAP_NOT, &x, 0);
    }
    r->depth--;
    return x;
}

/*  Operators of two sides, by how tightly they bind. */
static int ignis__map_binary(ignis__map_reader *r, int level)
{
    static const char *const levels[] = {"||", "&&", "|", "^", "&", "== !=", "<= >= < >", "<< >>", "+ -", "* / %"};
    const char *name;
    int sides[2], function;
    if (level == IGNIS__COUNT(levels))
        return ignis__map_unary(r);
    sides[0] = ignis__map_binary(r, level + 1);
    for (;;) {
        size_t length = r->at - r->start, start = r->start;
        for (function = 0; function < IGNIS__COUNT(ignis__map_functions); function++) {
            name = ignis__map_functions[function].name;
            if (ignis__map_functions[function].count == 2 && *name && !ignis__map_is_letter(*name) && ignis__map_is(r, name))
                break;
        }
        if (function == IGNIS__COUNT(ignis__map_functions) || *r->fault)
            return sides[0];
        { /* one of this level? its name stands in the list as a word */
            const char *found = strstr(levels[level], name);
            while (found && (found[length] > ' ' || (found > levels[level] && found[-1] > ' ')))
                found = strstr(found + 1, name);
            if (!found)
                return sides[0];
        }
        ignis__map_next(r);
        sides[1] = ignis__map_binary(r, level + 1);
        if (!*r->fault && ignis__map_functions[function].type == 'i')
            (void)(ignis__map_bits(r, start, name, sides[0]) && ignis__map_bits(r, start, name, sides[1]));
        if (*r->fault)
            return 0;
        sides[0] = ignis__map_apply(r, function, sides, 0);
    }
}

static int ignis__map_expression(ignis__map_reader *r)
{
    int args[3];
    if (++r->depth > IGNIS__MAP_DEPTH)
        return ignis__map_fault(r, r->start, "the formula is nested deeper than %d", IGNIS__MAP_DEPTH);
    args[0] = ignis__map_binary(r, 0);
    if (ignis__map_take(r, "?")) {
        args[1] = ignis__map_expression(r);
        ignis__map_want(r, ":");
        args[2] = ignis__map_expression(r);
        args[0] = *r->fault ? 0 : ignis__map_apply(r, IGNIS__MAP_SELECT, args, 0);
    }
    r->depth--;
    return args[0];
}

/*  Statements `name = expression;`, then the expressions that are the results. */
static void ignis__map_program(ignis__map_reader *r)
{
    char token[40];
    int result;
    ignis__map_next(r);
    while (r->kind == 'a') {
        size_t start = r->start, length = r->at - start, behind = r->at + strspn(r->text + r->at, " \t\r\n");
        ignis__map_name *name = &r->name[r->name_count];
        if (r->text[behind] != '=' || r->text[behind + 1] == '=')
            break;
        ignis__map_next(r);
        ignis__map_next(r);
        result = ignis__map_expression(r);
        ignis__map_want(r, ";");
        if (r->name_count == IGNIS__MAP_NAMES)
            ignis__map_fault(r, start, "the formula has more than %d names", IGNIS__MAP_NAMES);
        if (*r->fault)
            return;
        name->text = r->text + start;
        name->length = length;
        name->term = result;
        r->name_count++;
    }
    do {
        size_t start = r->start;
        result = ignis__map_expression(r);
        if (r->result_count == IGNIS_MAX_INPUTS)
            ignis__map_fault(r, start, "the formula has more than %d results", IGNIS_MAX_INPUTS);
        else
            r->result[r->result_count++] = result;
    } while (ignis__map_take(r, ","));
    ignis__map_take(r, ";");
    if (r->kind)
        ignis__map_fault(r, r->start, "%s is not expected here", ignis__map_token(r, token, sizeof token));
}

/*  Splits the names of inputs, as a macro has made a text of its arguments: `x`, or MACRO(x, ...), whose first argument is the name.
    False: the last of the names is neither, or one too many. */
static bool ignis__map_names(const char *text, ignis__map_name *names, int *count, int capacity)
{
    *count = 0;
    for (;;) {
        ignis__map_name *name = &names[*count];
        size_t word, length = 0;
        int depth = 0;
        text += strspn(text, " \t\r\n");
        while (text[length] && (depth > 0 || text[length] != ',')) {
            depth += strchr("([{", text[length]) ? 1 : strchr(")]}", text[length]) ? -1 : 0;
            length++;
        }
        if (*count == capacity)
            return false;
        ++*count;
        name->text = text;
        name->length = length;
        word = ignis__map_word(text);
        if (word > 0 && word + strspn(text + word, " \t\r\n") == length) {
            name->length = word;
        } else {
            const char *inner = text + word + strspn(text + word, " \t\r\n");
            if (word == 0 || *inner != '(')
                return false;
            inner += 1 + strspn(inner + 1, " \t\r\n");
            word = ignis__map_word(inner);
            if (word == 0 || inner[word + strspn(inner + word, " \t\r\n")] != ',')
                return false;
            name->text = inner;
            name->length = word;
        }
        if (!text[length])
            return true;
        text += length + 1;
    }
}

