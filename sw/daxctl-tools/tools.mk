# SPDX-License-Identifier: Apache-2.0
# Targets of the merapi command; included by the Makefile of the root. `make native` builds it.

MERAPI := build/native/bin/merapi

.PHONY: test-tools
test-tools: jdk rtl-simulations ## tests of the merapi command
	@$(PYTEST) sw/daxctl-tools/test

.PHONY: where-merapi
where-merapi: ## print the path of the merapi command (with make -s: nothing else)
	@$(MAKE) --no-print-directory -s jdk >&2
	@echo $(CURDIR)/$(MERAPI)
