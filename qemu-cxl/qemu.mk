# SPDX-License-Identifier: Apache-2.0
# Targets of the emulation; included by the Makefile of the root.

export TOPOLOGY ?= one

# It would go unseen.
$(if $(and $(APP),$(filter qemu qemu-shell,$(MAKECMDGOALS))),$(error APP: expected nothing (a guest runs the program of 'make run', and \
  'make qemu-shell' has a shell in which any other may be started), found '$(APP)'))

PCI_FLAGS := -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
  -DCMAKE_RUNTIME_OUTPUT_DIRECTORY=$(CURDIR)/build/qemu/bin

.PHONY: qemu-pci
qemu-pci: setup ## build the process that serves the tracer as a PCI function to QEMU
	@$(call one_at_a_time,qemu-pci) \
	  [ -f build/qemu/pci/build.ninja ] || { mkdir -p build/qemu && cmake -S qemu-cxl/pci -B build/qemu/pci $(PCI_FLAGS) \
	  > build/qemu/pci.log || { cat build/qemu/pci.log; exit 1; }; }; \
	  cmake --build build/qemu/pci --parallel $(JOBS)

.PHONY: qemu-setup
qemu-setup: setup qemu-pci ## fetch QEMU and the guest, make the guest's initramfs
	@python3 qemu-cxl/prepare.py

.PHONY: qemu-arguments
qemu-arguments: python
	@python3 qemu-cxl/emulate.py --check $(if $(filter qemu-shell,$(MAKECMDGOALS)),--shell) --device "$$DEVICE" --preset "$$PRESET" --memory "$$MEMORY" --topology "$$TOPOLOGY"

.PHONY: qemu
qemu: qemu-arguments jdk apps qemu-setup ## the program of `run` in a guest with a CXL expander (DEVICE=, TOPOLOGY=)
	@python3 qemu-cxl/emulate.py --device "$$DEVICE" --preset "$$PRESET" --memory "$$MEMORY" --topology "$$TOPOLOGY"

.PHONY: qemu-shell
qemu-shell: qemu-arguments jdk apps qemu-setup ## a shell in such a guest, everything set up
	@python3 qemu-cxl/emulate.py --shell --device "$$DEVICE" --preset "$$PRESET" --memory "$$MEMORY" --topology "$$TOPOLOGY"

ifeq ($(DEVICE),rtl)
qemu qemu-shell: rtl-simulations
endif

.PHONY: bench-qemu
bench-qemu: jdk apps qemu-setup ## measure the emulation: boot, reads, doorbell to completion, a run; build/bench/qemu.json
	@python3 qemu-cxl/bench_qemu.py

.PHONY: test-qemu
test-qemu: jdk apps qemu-setup rtl-simulations ## tests in guests: provisioning, shared memory, tracer function, JVM, topologies
	@$(PYTEST) qemu-cxl/test

.PHONY: checkpatch
checkpatch: setup ## the kernel's style check over the driver, a part of test-qemu
	@python3 qemu-cxl/checkpatch.py
