# SPDX-License-Identifier: MIT
# Ignis. `make help` lists the targets. Needs GNU make, gcc or clang, and their C++ compiler for the simulator.

HEADERS := ignis.h ignis_kernels.h ignis_models.h ignis_collective.h
GENERATED := ignis.h ignis_models.h ignis_collective.h
STRICT := -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef -Werror
# For what has a whole header in itself: GCC takes seconds to look for misleading indentation in a long file. `make parts`
# looks in each part.
STRICT_WHOLE = $(STRICT) -Wno-misleading-indentation
LDLIBS := -lm -ldl -lpthread
LANE := default
MAKEFLAGS += --no-builtin-rules
JOBS := $(shell nproc 2>/dev/null || echo 1)
OUT := build/$(LANE)
EXE := $(if $(findstring mingw,$(CC)),.exe)

# Where programs run: on the simulator with IGNIS_SIM=1 or without an NVIDIA driver, else on the GPU.
LIBCUDA := $(shell /sbin/ldconfig -p 2>/dev/null | grep libcuda.so.1) \
    $(wildcard $(addsuffix /libcuda.so.1,$(subst :, ,$(LD_LIBRARY_PATH)) /usr/local/nvidia/lib64))
ifeq ($(IGNIS_SIM),1)
DEVICE := simulator
else ifeq ($(and $(wildcard /dev/nvidiactl /dev/dxg),$(strip $(LIBCUDA))),)
DEVICE := simulator
else
DEVICE := GPU
endif

ifeq ($(DEVICE),simulator)
SIMULATOR := simulator
export IGNIS_CUDA_LIBRARY := $(CURDIR)/build/sim/libcuda.so.1
export IGNIS_NVRTC_LIBRARY := $(CURDIR)/build/sim/libnvrtc.so
export IGNIS_CUBLAS_LIBRARY := $(CURDIR)/build/sim/libcublasLt.so
export IGNIS_NCCL_LIBRARY := $(CURDIR)/build/sim/libnccl.so.2
export IGNIS_SIM_STALE := 1
# One program more than there are cores: ranks wait for each other, and for deadlines, for a sixth of the time.
export SIDE_BY_SIDE ?= $(shell expr $(JOBS) + 1)
# Shared memory of the simulator's kernels is thread-local. In glibc's static part, as far as there is room, it is
# found without a look-up, which takes up to a tenth of a test. The room is taken from the stack of every thread.
export GLIBC_TUNABLES ?= glibc.rtld.optional_static_tls=131072
endif
export IGNIS_CACHE_DIR := $(CURDIR)/$(OUT)/cache

all:

include mk/headers.mk mk/tests.mk mk/examples.mk mk/lanes.mk mk/windows.mk mk/fuzz.mk mk/coverage.mk mk/python.mk \
    mk/checks.mk mk/install.mk

all: $(HEADERS) $(SIMULATOR) $(EXAMPLES) $(APPS) $(TESTS)

help:
	@echo "make               build the examples, the apps and the tests (and the simulator, when there is no GPU)"
	@echo "make run           run the examples"
	@echo "make test          run the tests"
	@echo "make check         run the tests in every lane, and all other checks that this machine has the tools for"
	@echo "make bench         run the benchmarks"
	@echo "make format        format the hand-written C with clang-format"
	@echo "make sim-env       print what makes programs of your own run on the simulator: eval \"\$$(make -s sim-env)\""
	@echo "make headers       write the headers from src/ and kernels/"
	@echo "make parts         compile each part of src/ alone, with what the rooms below it declare"
	@echo "make manual        write build/manual.html: the manuals and every function of the headers on one page"
	@echo "make install       copy the headers and ignis_embed to PREFIX (/usr/local), with files for pkg-config and"
	@echo "                   CMake; make uninstall removes them"
	@echo "make clean         remove build/"
	@echo "Lanes:             test-asan test-tsan test-lazy test-streams test-own test-clang test-sim (simulator),"
	@echo "                   test-memcheck (GPU)"
	@echo "Other systems:     test-windows (Windows programs under Wine), test-windows-all, check-msvc,"
	@echo "                   test-arm (aarch64 under qemu)"
	@echo "Checks:            check-chat check-compile check-dlpack check-driver-only check-kernels check-docs"
	@echo "                   check-format check-gguf check-gpus check-graphics check-headers check-install check-manual"
	@echo "                   check-minilm check-numpy check-packed check-peft check-prototypes check-published check-recipe"
	@echo "                   check-resume check-safetensors check-schemas check-serve check-tokenizers check-torch"
	@echo "                   check-trainings check-words"
	@echo "make coverage      run the tests with gcov: lines and branches of each room of src/;"
	@echo "                   build/coverage.html shows the lines that no test reaches"
	@echo "make soak          sharing ten thousand times, a hundred ranks killed: the long versions of the tests"
	@echo "make fuzz          a million damaged bundles, chat templates, grammars, safetensors files, .npy files,"
	@echo "                   tokenizers, formulas, descriptions of families and models; make fuzz-models"
	@echo "IGNIS_SIM=1        use the simulator although there is a GPU; now: $(DEVICE)"

simulator:
	@$(MAKE) --no-print-directory -s -C sim

# For programs of your own on a machine without a GPU: eval "$(make -s sim-env)"
sim-env: simulator
	@for library in CUDA:libcuda.so.1 NVRTC:libnvrtc.so CUBLAS:libcublasLt.so NCCL:libnccl.so.2; do \
	    echo "export IGNIS_$${library%:*}_LIBRARY='$(CURDIR)/build/sim/$${library#*:}'"; done

# What this machine can run of it all.
CHECKS := check-headers parts check-words check-docs check-graphics check-install check-manual check-kernels \
    check-compile check-driver-only check-gpus check-recipe check-resume test-asan test-tsan test-lazy test-streams \
    test-own test-sim
CHECKS += $(if $(shell command -v clang),test-clang) $(if $(shell command -v clang-format),check-format)
CHECKS += $(if $(shell command -v python3),check-safetensors check-numpy check-chat check-dlpack check-serve \
    check-tokenizers check-gguf check-packed check-peft check-schemas check-trainings)
CHECKS += $(if $(wildcard /usr/local/cuda/include/cuda.h),check-prototypes)
ifneq ($(DEVICE),simulator)
CHECKS += $(if $(COMPUTE_SANITIZER),test-memcheck)
endif
check: test coverage $(CHECKS)

clean:
	rm -rf build

.PHONY: all help simulator sim-env check clean
