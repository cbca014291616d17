# SPDX-License-Identifier: MIT
# The lanes run the same tests in other ways; test-sim runs the simulator's own. Sanitizers and clang compile without
# optimizing, in a quarter of the time, and the sanitizers without GCC's warnings, which `make test` has seen: those
# take a third of it. What the lanes leave out, so that all of it ends in time:
#   LONG_TESTS    all lanes: compiling every kernel of every dtype again takes minutes
#   KERNEL_TESTS  lazy and streams: what they run is queued as the operations of ops_basic, optim and matmul are; and
#                 the sanitizers and clang: their kernels have been through them while they were written; damaged
#                 bundles are in `make fuzz`
#   MATH_TESTS    the sanitizers and clang, for the same reason
#   OPS_TESTS     the sanitizers and clang: collective kernels over all dtypes, sizes and ways
#   HOST_TESTS    lazy and streams: no work in streams, or little that others do not do as well
#   SERIAL        test-tsan: they have one thread, which that target checks
#   RANK_TESTS    all lanes: many ranks, processes or threads, each of which starts and waits for the others: too slow
#                 under a sanitizer, and little about streams; `make test` runs them
SERIAL := array cache checkpoint convert dlpack dry_run elementwise faults grammar graph kernel loader no_tensors npy \
    picture print shared tape_failures
LONG_TESTS := $(addprefix %/test_,ops_attention sdpa_documents sdpa_masks sdpa_sinks ops_rows norm_weights cross_entropy \
    ops_shape formula formula_reduce formula_table second_derivatives training)
KERNEL_TESTS := $(addprefix %/test_,optimizers groups clip init averages lbfgs losses gemm layers conv conv3d \
    conv_transpose formula_results bundle model model_refused families latent latent_kernels generate generate_batch \
    generate_kernels generate_text generate_window prefix speculate poll sequence_file experts recompute recurrent lora \
    sequence_lora fft linalg linalg_eigen linalg_factors linalg_norms random embed cache_types grouped_linear einsum \
    scan select grid_sample patches split_master trainings)
MATH_TESTS := $(KERNEL_TESTS) $(addprefix %/test_,ops_basic optim matmul linear grad)
OPS_TESTS := $(addprefix %/test_,comm_ops comm_ops_failures comm_model)
HOST_TESTS := $(addprefix %/test_,cache channel channel_strangers chat comm_model comm_ops comm_ops_failures convert \
    grammar handles loader no_tensors npy picture pool print shared status system text)
RANK_TESTS := $(addprefix %/test_,comm_grow comm_job comm_job_deaths comm_nccl dry_ranks elastic gather \
    generate_parallel hybrid parallel recompute_shards regroup saved shards tensor_parallel windows)
# $(call lane,name,tests left out): the tests of a lane, in its own folder
lane = $(patsubst $(OUT)/%,build/$1/%,$(filter-out $2,$(TESTS)))

# With stacks that are not used again, so that a pointer into one that has ended is seen. Null pointers fault by
# themselves, and pointers past the end of all memory are none of ours: without looking for either, programs compile
# in four fifths of the time. Kernels are not optimized either: that would take longer than it saves, but not under
# the thread sanitizer.
test-asan:
	ASAN_OPTIONS=detect_stack_use_after_return=1:$$ASAN_OPTIONS IGNIS_SIM_SANITIZE=address IGNIS_SIM_CXXFLAGS=-O0 \
	    IGNIS_MEMORY_BYPASS=1 $(MAKE) -j$(JOBS) test IGNIS_SIM=1 LANE=asan STRICT= \
	    LANE_CFLAGS='-O0 -fsanitize=address,undefined -fno-sanitize=null,pointer-overflow' \
	    TESTS='$(call lane,asan,$(LONG_TESTS) $(MATH_TESTS) $(OPS_TESTS) $(RANK_TESTS))'

test-tsan:
	@if grep -l 'pthread_create\|channels\.h\|ranks\.h' $(filter $(SERIAL:%=\%/test_%.c),$(TEST_SOURCES)); then \
	    echo "SERIAL in mk/lanes.mk names tests that start threads"; exit 1; fi
	IGNIS_SIM_SANITIZE=thread $(MAKE) -j$(JOBS) test IGNIS_SIM=1 LANE=tsan STRICT= LANE_CFLAGS='-O0 -fsanitize=thread' \
	    TESTS='$(call lane,tsan,$(LONG_TESTS) $(MATH_TESTS) $(OPS_TESTS) $(RANK_TESTS) $(SERIAL:%=\%/test_%))'

test-lazy:
	IGNIS_SIM_STREAMS=lazy IGNIS_SIM_ORDER=random:7 $(MAKE) -j$(JOBS) test IGNIS_SIM=1 \
	    TESTS='$(filter-out $(LONG_TESTS) $(KERNEL_TESTS) $(HOST_TESTS) $(RANK_TESTS),$(TESTS))'

test-streams:
	IGNIS_SIM_STREAMS=thread IGNIS_SIM_ORDER=reverse IGNIS_SIM_ASYNC=early $(MAKE) -j$(JOBS) test IGNIS_SIM=1 \
	    TESTS='$(filter-out $(LONG_TESTS) $(KERNEL_TESTS) $(HOST_TESTS) $(RANK_TESTS),$(TESTS))'

test-clang:
	$(MAKE) -j$(JOBS) test CC=clang IGNIS_SIM=1 LANE=clang LANE_CFLAGS=-O0 IGNIS_CACHE_DIR=$(CURDIR)/build/default/cache \
	    TESTS='$(call lane,clang,$(LONG_TESTS) $(MATH_TESTS) $(OPS_TESTS) $(RANK_TESTS))'

# Matrix products by own kernels where other lanes take the simulator's cuBLASLt. SHORT=1: without trainings, which
# compile kernels for most of their time; test_gemm has each kernel of products.
OWN_TESTS := matmul linear $(if $(SHORT),,training)
test-own:
	IGNIS_MATMUL=own $(MAKE) -j$(JOBS) test IGNIS_SIM=1 TESTS='$(OWN_TESTS:%=$(OUT)/test_%)'

test-sim: simulator
	@env -u IGNIS_SIM_STALE $(MAKE) -C sim test

COMPUTE_SANITIZER := $(firstword $(shell command -v compute-sanitizer) \
    $(wildcard /usr/local/cuda/bin/compute-sanitizer))
# API errors are what tests provoke; child processes fault on purpose; test_faults makes the calls that free memory
# fail. Not under it: kernels of several devices that wait for each other, and what happens in child processes anyway.
MEMCHECK := --tool memcheck --leak-check full --report-api-errors no --target-processes application-only \
    --error-exitcode 1

test-memcheck:
	IGNIS_MEMORY_BYPASS=1 TIME_LIMIT=1200 WRAPPER="$(COMPUTE_SANITIZER) $(MEMCHECK)" $(MAKE) test \
	    TESTS='$(filter-out %/test_faults %/test_nccl $(LONG_TESTS) $(OPS_TESTS) $(RANK_TESTS),$(TESTS))'

# 64-bit Arm (Jetson, Grace): the simulator and some tests, cross-compiled, under qemu. Tests that start themselves
# again need more of it. SHORT=1: without those whose kernels keep qemu busy; conversions are where Arm differs.
ARM := build/arm
ARM_TESTS := array convert device stream tensor text $(if $(SHORT),,elementwise graph)
test-arm:
	@$(MAKE) --no-print-directory -s -C sim BUILD=../$(ARM) CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ \
	    $(addprefix ../$(ARM)/sim/,libcuda.so.1 libnvrtc.so libcublasLt.so)
	@$(MAKE) --no-print-directory -s LANE=arm CC=aarch64-linux-gnu-gcc $(ARM_TESTS:%=$(ARM)/test_%)
	@QEMU_LD_PREFIX=/usr/aarch64-linux-gnu WRAPPER=qemu-aarch64 IGNIS_SIM_CXX=aarch64-linux-gnu-g++ \
	    IGNIS_CACHE_DIR=$(CURDIR)/$(ARM)/cache \
	    IGNIS_CUDA_LIBRARY=$(CURDIR)/$(ARM)/sim/libcuda.so.1 IGNIS_NVRTC_LIBRARY=$(CURDIR)/$(ARM)/sim/libnvrtc.so \
	    IGNIS_CUBLAS_LIBRARY=$(CURDIR)/$(ARM)/sim/libcublasLt.so sh tests/run.sh $(ARM_TESTS:%=$(ARM)/test_%)

.PHONY: test-asan test-tsan test-lazy test-streams test-clang test-own test-sim test-memcheck test-arm
