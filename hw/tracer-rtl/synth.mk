# SPDX-License-Identifier: Apache-2.0
# Area and logic paths of the tracer on UltraScale+, estimated; the root Makefile includes this file.
#   SYNTH_PRESETS  presets to synthesise
#   SYNTH_YOSYS    the Yosys to take (yosys)

SYNTH_PRESETS ?= ddr4-1ch ddr4-4ch hbm2
SYNTH_YOSYS ?= yosys
$(if $(call given,SYNTH_PRESETS),$(call expect_words,SYNTH_PRESETS,$(rtl_tracers) $(RTL_CONTEXTS),presets))

.PHONY: synth
synth: setup ## estimate area and clock for UltraScale+ with Yosys; build/synth/report.json (SYNTH_PRESETS=, SYNTH_YOSYS=)
	@$(call one_at_a_time,synth) $(MAKE) --no-print-directory synth-alone
.PHONY: synth-alone
synth-alone: rtl_together = $(SYNTH_PRESETS)
synth-alone: $(foreach p,$(SYNTH_PRESETS),$(RTL_BUILD)/$(p)/filelist.f)
	@$(RTL_NICE) python3 hw/tracer-rtl/synth/synth.py --yosys $(SYNTH_YOSYS) --work build/synth --report build/synth/report.json \
	  --rtl $(foreach p,$(SYNTH_PRESETS),$(RTL_BUILD)/$(p))
