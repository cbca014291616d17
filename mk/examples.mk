# SPDX-License-Identifier: MIT
# Examples, programs to use, benchmarks.

EXAMPLES := $(patsubst examples/%.c,$(OUT)/%,$(wildcard examples/*.c)) \
    $(patsubst examples/%.cpp,$(OUT)/%,$(wildcard examples/*.cpp))

# What needs the headers of a graphics API is built where they are.
VULKAN_HEADER := $(wildcard $(addsuffix /vulkan/vulkan.h,/usr/include /usr/local/include))
OPENGL_HEADER := $(and $(wildcard /usr/include/EGL/eglext.h),$(wildcard /usr/include/GL/glext.h))
EXAMPLES := $(if $(VULKAN_HEADER),$(EXAMPLES),$(filter-out %/vulkan_buffer,$(EXAMPLES)))
$(OUT)/vulkan_buffer: LDLIBS += -lvulkan
# A server has to be named to the one of servers.
BENCHES := $(filter-out %/bench_serve,$(patsubst bench/%.c,$(OUT)/%,$(wildcard bench/*.c)))

# Programs to use. Each is one file, which includes its parts.
APPS := $(patsubst apps/%/,$(OUT)/%,$(wildcard apps/*/))

# The examples share one compilation of the implementation: theirs is taken for there already. `make check-docs`
# compiles each as its users do. Not optimized, which takes a third of the time: what takes long runs on the device.
IMPLEMENTED := -DIGNIS_IMPLEMENTED -DIGNIS_KERNELS_IMPLEMENTED -DIGNIS_MODELS_IMPLEMENTED -DIGNIS_COLLECTIVE_IMPLEMENTED
$(OUT)/implementation.o: $(HEADERS)
	@mkdir -p $(OUT)
	printf '#include "%s"\n' ignis_models.h ignis_collective.h | \
	    $(CC) -O0 -g -I. $(LANE_CFLAGS) -DIGNIS_IMPLEMENTATION -x c -c - -o $@

$(OUT)/%: examples/%.c $(OUT)/implementation.o
	@mkdir -p $(OUT)
	$(CC) -O0 -g -I. $(LANE_CFLAGS) $(IMPLEMENTED) $< $(OUT)/implementation.o -o $@ $(LDLIBS)

$(APPS): $(OUT)/%: $(wildcard apps/*/*.c) $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -O0 -g -I. $(LANE_CFLAGS) apps/$*/$*.c -o $@ $(LDLIBS)

$(OUT)/%: examples/%.cpp $(OUT)/implementation.o
	@mkdir -p $(OUT)
	$(CXX) -std=c++11 -O0 -g -Wall -Wextra -Werror -I. $(LANE_CFLAGS) $(IMPLEMENTED) $< $(OUT)/implementation.o \
	    -o $@ $(LDLIBS)

$(OUT)/%: examples/%.cu $(HEADERS)
	@mkdir -p $(OUT)
	$(NVCC) -I. $< -o $@

$(OUT)/%: bench/%.c $(wildcard bench/*.h) $(HEADERS)
	@mkdir -p $(OUT)
	$(CC) -O2 -I. $< -o $@ $(LDLIBS)

# What `make run` runs, in this order, each by its command below or alone. The example that mixes in cudart code needs
# nvcc, and a GPU that cudart sees too, the one for Vulkan its headers and a GPU; the ranks of examples/allreduce.c
# and examples/tensor_parallel.c need a GPU each.
VULKAN := $(if $(VULKAN_HEADER),$(if $(filter GPU,$(DEVICE)),vulkan_buffer))
NVCC := $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
CUDART := $(if $(NVCC),$(if $(filter GPU,$(DEVICE)),interop_cudart))
RANKS := $(if $(filter simulator,$(DEVICE)),2,$(if $(word 2,$(wildcard /dev/nvidia[0-9]*)),2,1))
RUN := fit_image train_gpt cnn hello save_load custom_kernel formula heat spectral burgers wgan_gp pinn moe cg custom_op \
    memory_contract frame_loop \
    share_array ring $(CUDART) $(VULKAN) allreduce tensor_parallel generate character lora

fit_image = $(OUT)/fit_image $(OUT)/fit_image.png
heat = $(OUT)/heat $(OUT)/heat.png
spectral = $(OUT)/spectral $(OUT)/spectral.png
burgers = $(OUT)/burgers $(OUT)/burgers.png $(OUT)/burgers_loss.svg
wgan_gp = $(OUT)/wgan_gp $(OUT)/wgan_gp.png
pinn = $(OUT)/pinn $(if $(SIMULATOR),10)
moe = $(OUT)/moe $(if $(SIMULATOR),10)
cg = $(OUT)/cg $(OUT)/cg.png
train_gpt = $(OUT)/train_gpt $(if $(SIMULATOR),--steps 100) --out $(OUT)/loss.svg --save $(OUT)/gpt.safetensors \
    --export $(OUT)/gpt
generate = $(OUT)/generate $(OUT)/gpt 'static '
character = IGNIS_FRAMES=$(if $(SIMULATOR),20,240) $(OUT)/character $(OUT)/gpt 'static '
lora = $(OUT)/lora $(OUT)/gpt README.md $(OUT)/adapter $(if $(SIMULATOR),20)
save_load = $(OUT)/save_load $(OUT)/sine.safetensors
share_array = $(OUT)/share_array_a & $(OUT)/share_array_b && wait $$!
ring = $(OUT)/ring_producer & $(OUT)/ring_consumer 20 || $(OUT)/ring_consumer && wait $$!
allreduce = examples/launch.sh $(RANKS) $(OUT)/allreduce
tensor_parallel = examples/launch.sh $(RANKS) $(OUT)/tensor_parallel

# On the simulator cuBLASLt's stand-in multiplies, ten times as fast as built-in kernels, whose tests run there, too.
ifeq ($(DEVICE),simulator)
run check-docs check-resume check-gpus: export IGNIS_MATMUL ?= cublaslt
endif

define run_example
	@echo '== on the $(DEVICE): $(or $($1),$(OUT)/$1)'
	@$(or $($1),$(OUT)/$1)

endef

# The programs are compiled side by side.
run: $(SIMULATOR)
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(EXAMPLES) $(addprefix $(OUT)/,$(CUDART))
	$(foreach example,$(RUN),$(call run_example,$(example)))
	@echo 'Look at these pictures, the best first:'
	@echo '    $(OUT)/fit_image.png  a network learns a picture: the picture, then what it has made of it so far'
	@echo '    $(OUT)/spectral.png   two shear layers roll up into vortices'
	@echo '    $(OUT)/burgers.png    a network solves an equation, above the exact solution'
	@echo '    $(OUT)/wgan_gp.png    points that a network makes, beside real ones and the numbers of its critic'
	@echo '    $(OUT)/heat.png       a plate cools, at six times'
	@echo '    $(OUT)/loss.svg       the loss of a small GPT while it learns'
	@echo "    $(OUT)/cg.png         Poisson's equation, solved by conjugate gradients"

bench: $(SIMULATOR) $(BENCHES)
	@for bench in $(BENCHES); do echo "== $$bench, on the $(DEVICE)"; $$bench || exit 1; done

.PHONY: run bench
