# SPDX-License-Identifier: MIT
# Windows programs, compiled by MinGW, under Wine, on the simulator of Linux, whose libraries sim/windows makes
# Windows libraries of.
#   WINDOWS_LACKS  left out: NCCL, which NVIDIA builds for Linux alone
#   WINDOWS_SHORT  what test-windows runs, which keeps to some minutes: all that the system has a part in. The others
#                  compile kernels for most of their time, as on Linux; test-windows-all runs them, too
#   WINDOWS_MORE   arithmetic and bookkeeping in which only the compiler has a part: not with SHORT=1
# Kernels that Linux has compiled are found in its cache; programs of check-msvc write one of their own.
WINDOWS_LACKS := comm_nccl nccl
WINDOWS_SHORT := array channel channel_strangers comm_job comm_job_deaths device engine faults file frame graph \
    graphics loader memory share status stream system tape_threads text threads vmm
WINDOWS_MORE := checkpoint contract gradients graph_limits ops_basic tape tape_failures tensor
WINDOWS := build/windows
WINDOWS_CC := $(firstword $(shell command -v x86_64-w64-mingw32-gcc-posix x86_64-w64-mingw32-gcc))
WINDOWS_HEADERS := sys/resource.h sys/wait.h
WINDOWS_LIBRARIES := $(addprefix $(WINDOWS)/,nvcuda.dll nvrtc64_130_0.dll cublasLt64_13.dll)
WINDOWS_TESTS := $(patsubst %,$(WINDOWS)/test_%.exe,$(WINDOWS_SHORT) $(if $(SHORT),,$(WINDOWS_MORE)))
test-windows-all: WINDOWS_TESTS := $(WINDOWS)/test_engine.exe \
    $(patsubst %.c,$(WINDOWS)/%.exe,$(filter-out $(WINDOWS_LACKS:%=test_%.c),$(notdir $(TEST_SOURCES))))

# Programs are compiled with gcc's C++, too: Wine has no libstdc++. What tests include of POSIX alone is empty.
WINDOWS_LANE = LANE=windows CC=$(WINDOWS_CC) CXX=$(WINDOWS_CC) STRICT= LDLIBS=-static \
    LANE_CFLAGS=-Werror=implicit-function-declaration \
    TEST_CFLAGS='-w -I$(WINDOWS)/include -include tests/windows/posix.h'
test-windows test-windows-all: simulator $(WINDOWS)/prefix
	@mkdir -p $(addprefix $(WINDOWS)/include/,$(dir $(WINDOWS_HEADERS)))
	@touch $(WINDOWS_HEADERS:%=$(WINDOWS)/include/%)
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(WINDOWS_LANE) $(WINDOWS_TESTS)
	@WRAPPER=tests/windows/wine.sh IGNIS_CACHE_DIR=$(CURDIR)/build/default/cache sh tests/run.sh $(WINDOWS_TESTS); \
	    code=$$?; tests/windows/wine.sh --end; exit $$code

# As Visual Studio compiles, and some tests so. SHORT=1: without jobs of ranks, which take half a minute and are among
# those of MinGW.
MSVC_TESTS := array channel contract convert device file share system tensor text vmm $(if $(SHORT),,comm_job)
check-msvc: simulator $(WINDOWS)/prefix
	@sh tests/windows/msvc.sh $(MSVC_TESTS)

$(WINDOWS)/thunks: sim/windows/thunks.c ignis.h
	@mkdir -p $(WINDOWS)
	$(CC) -O0 -I. $< -o $@ -ldl -lpthread -lm

# ELF files that Wine loads as libraries of Windows.
$(WINDOWS)/%.dll: $(WINDOWS)/thunks $(wildcard sim/windows/*.h)
	$< $* >$(WINDOWS)/$*.c
	$< $* spec >$(WINDOWS)/$*.spec
	PATH=$$PATH:/usr/lib/wine winegcc -shared -O1 -Wall -Isim/windows $(WINDOWS)/$*.spec $(WINDOWS)/$*.c -o $@.so \
	    -lntdll -lkernel32 -ldl -lpthread
	mv $@.so $@

# The driver lies where NVIDIA's does, the others beside the programs.
$(WINDOWS)/prefix: $(WINDOWS_LIBRARIES) tests/windows/wine.sh
	tests/windows/wine.sh wineboot.exe -i
	cp $(WINDOWS)/nvcuda.dll $@/drive_c/windows/system32
	touch $@

.PHONY: test-windows test-windows-all check-msvc
