# SPDX-License-Identifier: Apache-2.0
# Simulated tracers for the device process, replay and benchmarks; the root Makefile includes this file after
# hw/tracer-rtl/rtl.mk, which makes SystemVerilog of a preset.
#   RTL_SIMULATIONS  list of PRESET:KIND; kind fast (no assertions) or waves (with --trace-waves)
#   PRESET, MEMORY   with DEVICE=rtl: what simulates (ddr4-1ch) and memory time (what suits the preset)

# `make test` compiles both for its regression. Its parts simulate the small one alone; MERAPI_FULL=1 does not spare the
# minutes that the other takes to compile. A run with another preset, and a bench of one, need that one.
rtl_for_tests := $(if $(filter 1,$(MERAPI_FULL))$(filter test,$(MAKECMDGOALS)),,$(filter test-%,$(MAKECMDGOALS)))
rtl_of_run := $(if $(filter rtl,$(DEVICE))$(filter bench-rtl,$(MAKECMDGOALS)),$(filter-out sim-small ddr4-1ch,$(PRESET)))
RTL_SIMULATIONS ?= $(if $(rtl_of_run),$(rtl_of_run):fast,sim-small:fast $(if $(rtl_for_tests),,ddr4-1ch:fast))
$(if $(call given,RTL_SIMULATIONS),$(call expect_words,RTL_SIMULATIONS,\
  $(foreach p,$(rtl_tracers),$(p):fast $(p):waves),PRESET:KIND))
# The simulation is one thread and all of a run's time. clang makes it a fifth faster than gcc; machine code for the
# machine that builds it.
RTL_FAST_CXX ?= clang++
RTL_FAST_FLAGS := -std=c++20 -O3 -march=native -fPIC
# A precompiled header of clang's names its clone: ccache could not give it to another.
rtl_clang := $(if $(findstring clang,$(RTL_FAST_CXX)),\
  'VK_PCH_I_FAST=-include $$(VK_PCH_H)' 'VK_PCH_I_SLOW=-include $$(VK_PCH_H)')
# With one lane, a cycle executes what has something to do: parts of the model are chosen by a record of a trace
# (gate_model.py). With several, there is one function for all lanes, and one for all banks: a simulation's time is that of
# fetching code then (docs/simulation.md). Options of a command in a preset's folder, behind -O3, which would turn everything
# on again: tables have other names in each instance, reordered blocks another order, and of what is equal another one is
# kept. With clang, whose vectors this needs, that function evaluates them all at once; not with waveforms, which are of
# single instances.
rtl_sharing := $(addprefix sim/rtl/,instances.vlt share_instances.py verilated_cpp.py)
rtl_vectors := $(addprefix sim/rtl/,vectors.vlt vector_instances.py instance_function.py instance_vectors.h)
rtl_gating := $(addprefix sim/rtl/,gate_model.py gated_code.py unit_clusters.py model_units.py \
  split_statements.py unit_order.py verilated_cpp.py gates.h)
rtl_has_one_lane = grep -q '"lanes": 1,' $(RTL_BUILD)/$*/preset.json
# $(1): kind.
rtl_is_at_once = $(and $(findstring clang,$(RTL_FAST_CXX)),$(filter fast,$(1)))
rtl_apart = $$($(rtl_has_one_lane) || echo $(CURDIR)/sim/rtl/instances.vlt $(if $(rtl_is_at_once),$(CURDIR)/sim/rtl/vectors.vlt) \
  -fno-dfg-scoped -fno-table -fno-reorder -fno-dedup)
# Of eight lanes.
RTL_WIDE := ddr4-4ch hbm2
# What the regression compares with the model that Verilator makes (test_rtl_regression.py).
rtl_rewritten = $(filter sim-small $(if $(call rtl_is_at_once,fast),ddr4-1ch $(RTL_WIDE)),$(RTL_PRESETS))
rtl_simulation_ready = $(foreach s,$(RTL_SIMULATIONS),$(RTL_BUILD)/$(subst :,/,$(s))/ready)
RTL_PLUGIN_SOURCES := $(wildcard sim/rtl/*.cc sim/rtl/*.h sim/rtl/*.in sim/rtl/*.cmake sim/rtl/plugin/CMakeLists.txt) \
  sim/engine/engine.h $(rtl_sharing) $(rtl_vectors) $(rtl_gating) sim/rtl/plain_evaluation.py

# $(1): kind, $(2): Verilator's further flags.
rtl_verilate = echo "rtl: verilating $$* ($(1))"; \
  cd $(RTL_BUILD)/$$* && VERILATOR_ROOT=$$(rtl_verilator_root) $$(RTL_NICE) perl $$(rtl_verilator_root)/bin/verilator \
  --cc -O3 --noassert --x-assign fast --x-initial fast -Wno-fatal -Wno-WIDTH -Wno-UNOPTFLAT $(2) \
  --prefix V$$(subst -,_,$$*) --top-module Tracer --Mdir $(1) -I. --output-split 20000 --no-timing $$(call rtl_apart,$(1)) \
  -f filelist.f > $(1).log 2>&1 || { grep -m 20 Error $(1).log || tail -5 $(1).log; exit 1; }
# $(1): kind, $(2): what makes its C++, $(3): what is made of that, $(4): the compiler's optimization, $(5): what must be there.
define rtl_simulation_rule
$(RTL_BUILD)/%/$(1)/ready: $(RTL_BUILD)/%/filelist.f sim/rtl/simulations.mk $(RTL_VENV)/ready $$(rtl_sharing) $$(rtl_vectors) \
  $$(rtl_gating) sim/rtl/plain_evaluation.py | $(5)
	@rm -rf $$(@D) && mkdir -p $$(@D)
	@$(2)
	@$(3)
	@$$(unless_dry) VERILATOR_ROOT=$$(rtl_verilator_root) $$(RTL_NICE) $$(MAKE) -C $$(@D) $$(rtl_jobs) -f V$$(subst -,_,$$*).mk \
	  CXX=$$(RTL_FAST_CXX) $$(rtl_clang) \
	  OPT_FAST="$$(RTL_FAST_FLAGS) $(4)" OPT_GLOBAL="$$(RTL_FAST_FLAGS) $(4)" OPT_SLOW="-std=c++20 -O0 -fPIC" \
	  libV$$(subst -,_,$$*).a libverilated.a > $$(@D)/make.log 2>&1 || { tail -20 $$(@D)/make.log; exit 1; }
	@touch $$@
endef
# By another name: make -n executes a line that names MAKE.
rtl_make = $(MAKE)
# $(1): kind.
rtl_shared = python3 sim/rtl/share_instances.py $$(@D) > $$(@D)/shared.log \
  $(if $(rtl_is_at_once),&& python3 sim/rtl/vector_instances.py $$(@D) > $$(@D)/vectors.log)
# $(1): what is recorded, $(2): of which sources it is beside the C++, $(3): kind of the simulation that records it.
rtl_record = python3 tools/rtl_record.py $(1) $$* $$(@D) --sources $(2) --window sim/test/windows/javac.img.xz \
  --replay build/native/bin/merapi-replay --recorder $(RTL_BUILD)/recorder/$(3) --compiler $(RTL_FAST_CXX) -- \
  env -u MAKEFLAGS $$(rtl_make) --no-print-directory rtl-recorder RTL_RECORDER=$$*:$(3) RTL_BUILD=$(RTL_BUILD) \
  RTL_FAST_CXX=$(RTL_FAST_CXX) 'RTL_FAST_FLAGS=$(RTL_FAST_FLAGS)'
# Status of gate_model.py and rtl_record.py for what cannot be done with this model or compiler, however often one tries: the
# simulation is slower without it. What else fails (a full disk, a program that was killed) ends make, and the next one tries again.
rtl_refused := 3
# $(1): what is done, $(2): its log, $(3): what is said of the preset when it cannot be done. It stands in an `if` of make:
# no commas, and brackets by pairs.
rtl_unless_refused = status=0; { $(1); } > $(2) 2>&1 || status=$$$$?; \
  if [ $$$$status = $(rtl_refused) ]; then echo "rtl: $$* is $(strip $(3)); $(2) says why"; \
  elif [ $$$$status != 0 ]; then tail -n 20 $(2); \
    echo "rtl: expected $$* made faster by a recorded trace and found the failure above; see $(2) and start again" >&2; exit 1; fi
rtl_gated = $(call rtl_unless_refused,$(RTL_VENV)/bin/python sim/rtl/gate_model.py check $$(@D) \
  && $(call rtl_record,activity,$(rtl_gating),recording) && $(RTL_VENV)/bin/python sim/rtl/gate_model.py gate $$(@D),$$(@D)/gates.log,\
  simulated as Verilator wrote it and slow)
# Of presets whose traces are short.
rtl_profiled = $$(if $$(filter sim-small ddr4-1ch,$$*),$$(if $$(findstring clang,$$(RTL_FAST_CXX)), \
  $(call rtl_unless_refused,$(call rtl_record,profile,,profiling),$$(@D)/profile.log,compiled without a profile),:),:)
rtl_use_of_profile = $$$$([ ! -e $$(@D)/profile.profdata ] || echo -fprofile-instr-use=profile.profdata)
rtl_as_fast = { if $$(rtl_has_one_lane); then $(rtl_gated); else $(rtl_shared); fi; } \
  && python3 sim/rtl/plain_evaluation.py $$(@D) && { $(rtl_profiled); }
# A trace is recorded by merapi-replay.
$(eval $(call rtl_simulation_rule,fast,$(call rtl_verilate,fast),$(call rtl_as_fast,fast),$(rtl_use_of_profile),\
  native $(RTL_TOOLS)/dramsim3))
$(eval $(call rtl_simulation_rule,waves,$(call rtl_verilate,waves,--trace),$(call rtl_shared,waves)))
$(eval $(call rtl_simulation_rule,recording,$(call rtl_verilate,recording),\
  $(RTL_VENV)/bin/python sim/rtl/gate_model.py record $$(@D),-O1))
# What fast is about to be compiled from.
$(eval $(call rtl_simulation_rule,profiling,cp $$(@D)/../fast/* $$(@D),:,-fprofile-instr-generate))
.PRECIOUS: $(RTL_BUILD)/%/filelist.f $(RTL_BUILD)/%/fast/ready $(RTL_BUILD)/%/waves/ready $(RTL_BUILD)/%/recording/ready $(RTL_BUILD)/%/profiling/ready

rtl-archives: $(foreach p,$(rtl_rewritten),$(RTL_BUILD)/$(p)/fast/ready)

# DRAMsim3 comes as a crate. Debian 12 has a cargo that reads today's registries under another name than Debian 13.
.PHONY: rtl-cargo
rtl-cargo:
	@[ -e $(RTL_TOOLS)/dramsim3 ] || command -v cargo > /dev/null || { \
	  [ "$$(id -u)" = 0 ] || { \
	    echo "rtl: expected cargo, found none; as root run: apt-get update && apt-get install cargo-web (Debian 12) or cargo (13)" >&2; exit 1; }; \
	  echo "rtl: installing cargo"; mkdir -p $(RTL_TOOLS); \
	  { tools/apt_install.sh cargo-web || tools/apt_install.sh cargo; } \
	    > $(RTL_TOOLS)/cargo.log 2>&1 || { tail -15 $(RTL_TOOLS)/cargo.log; exit 1; }; }
$(RTL_TOOLS)/dramsim3: | rtl-cargo

# What an earlier run made and this one does not name stays as long as it is of these sources: whoever finds a simulation in
# lib/ takes it for the present tracer.
.PHONY: rtl-simulations
rtl-simulations: setup ## build the simulated tracers of DEVICE=rtl and merapi-replay --rtl (RTL_SIMULATIONS=)
	@$(call one_at_a_time,rtl) $(MAKE) --no-print-directory rtl-simulations-alone RTL_SIMULATIONS='$(RTL_SIMULATIONS)'

.PHONY: rtl-simulations-alone
rtl-simulations-alone: rtl_together = $(foreach s,$(RTL_SIMULATIONS),$(firstword $(subst :, ,$(s))))
rtl-simulations-alone: $(rtl_simulation_ready) | $(RTL_TOOLS)/dramsim3
	@for made in $(RTL_BUILD)/lib/merapi-rtl-*.so; do \
	  [ ! -e "$$made" ] || [ -z "$$(find $(RTL_SOURCES) $(RTL_PLUGIN_SOURCES) -newer "$$made" -print -quit)" ] || rm -f "$$made"; done
	@echo "rtl: linking $(RTL_SIMULATIONS)"
	@$(call rtl_link,$(RTL_BUILD)/plugin,$(RTL_SIMULATIONS))

# $(1): folder of the build, $(2): list of PRESET:KIND.
define rtl_link
cmake -S sim/rtl/plugin -B $(1) -G Ninja $(LAUNCHERS) \
  -DCMAKE_CXX_COMPILER=$(RTL_FAST_CXX) -DMERAPI_RTL_BUILD=$(RTL_BUILD) \
  "-DMERAPI_SIMULATIONS=$(subst $() $(),;,$(strip $(2)))" -DMERAPI_VERILATOR=$(rtl_verilator_root) \
  -DMERAPI_DRAMSIM3=$(RTL_TOOLS)/dramsim3 > $(1).log 2>&1 || { cat $(1).log; exit 1; }; \
$(RTL_NICE) cmake --build $(1) --parallel $(RTL_JOBS) > $(1)-build.log 2>&1 || { tail -40 $(1)-build.log; exit 1; }
endef

# The tracer of which rtl_record.py takes a record: RTL_RECORDER is PRESET:KIND.
$(if $(call given,RTL_RECORDER),$(call expect_words,RTL_RECORDER,$(foreach p,$(rtl_tracers),$(p):recording $(p):profiling),PRESET:KIND))
rtl_recorder_preset = $(firstword $(subst :, ,$(RTL_RECORDER)))
rtl_recorder_kind = $(lastword $(subst :, ,$(RTL_RECORDER)))
rtl_recorder_at = $(RTL_BUILD)/$(rtl_recorder_preset)/$(rtl_recorder_kind)
.PHONY: rtl-recorder
rtl-recorder:
	$(if $(RTL_RECORDER),,$(error RTL_RECORDER: expected PRESET:KIND, found nothing))
	@rm -rf $(rtl_recorder_at)
	@$(MAKE) --no-print-directory $(rtl_recorder_at)/ready
	@$(call rtl_link,$(RTL_BUILD)/plugin-$(rtl_recorder_kind),$(RTL_RECORDER))
	@[ $(rtl_recorder_kind) != recording ] \
	  || cp $(rtl_recorder_at)/activity.names $(RTL_BUILD)/recorder/recording/$(rtl_recorder_preset).activity.names

ifeq ($(DEVICE),rtl)
run: rtl-simulations
endif

# Eight lanes take many minutes to compile: not part of make test. A folder of their own, so that what make test uses stays.
RTL_WIDE_BUILD := $(CURDIR)/build/rtl-wide
.PHONY: test-rtl-wide
test-rtl-wide: native ## the regression and windows of real programs on the presets with eight lanes (MERAPI_SEEDS=)
	@$(MAKE) --no-print-directory rtl rtl-simulations RTL_BUILD=$(RTL_WIDE_BUILD) RTL_PRESETS='$(RTL_WIDE)' \
	  RTL_SIMULATIONS='$(RTL_WIDE:%=%:fast)'
	@MERAPI_RTL_BUILD=$(RTL_WIDE_BUILD) MERAPI_SEEDS=$${MERAPI_SEEDS:-$(if $(filter 1,$(MERAPI_FULL)),200,4)} \
	  $(PYTEST) sim/rtl/test/test_rtl_regression.py sim/test/test_windows.py -k '$(subst $() $(), or ,$(RTL_WIDE))'

.PHONY: bench-rtl
$(if $(filter bench-rtl,$(MAKECMDGOALS)),$(if $(call given,PRESET),$(call expect_words,PRESET,$(rtl_tracers),presets of one tracer)))
bench-rtl: jdk apps rtl-simulations ## the RTL on windows of real programs, beside one thread of G1; build/bench/rtl.json (PRESET=)
	@python3 sim/bench/bench_rtl.py $(if $(call given,PRESET),--preset "$$PRESET")

# Their tests: sim/test/test_rtl.py, sim/run/test/test_run_rtl.py.
test test-native: rtl-simulations
