# SPDX-License-Identifier: Apache-2.0
# Targets of the emulation; included by the Makefile of the root.

export TOPOLOGY ?= one

.PHONY: qemu-setup
qemu-setup: setup ## fetch QEMU and the guest, make the guest's initramfs
	@python3 qemu-cxl/prepare.py

.PHONY: qemu
qemu: jdk apps qemu-setup ## the program of `run` in a guest with a CXL expander (DEVICE=, TOPOLOGY=)
	@python3 qemu-cxl/emulate.py --device "$$DEVICE" --topology "$$TOPOLOGY"

.PHONY: qemu-shell
qemu-shell: jdk apps qemu-setup ## a shell in such a guest, everything set up
	@python3 qemu-cxl/emulate.py --shell --device "$$DEVICE" --topology "$$TOPOLOGY"

.PHONY: test-qemu
test-qemu: jdk apps qemu-setup ## tests in guests: provisioning, shared memory, JVM, topologies
	@$(PYTEST) qemu-cxl/test
