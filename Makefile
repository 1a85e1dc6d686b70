# SPDX-License-Identifier: Apache-2.0
# Every target sets up what it needs; what is there already costs a second at most.

# The path is a word of make, the shell, CMake, the linker and what they start: one that takes another character for its
# own builds beside the clone.
harmless := a b c d e f g h i j k l m n o p q r s t u v w x y z A B C D E F G H I J K L M N O P Q R S T U V W X Y Z \
  0 1 2 3 4 5 6 7 8 9 . _ / + @ - ~
# What of $(1) is none of these.
strange = $(eval others := $$(1))$(if $(foreach character,$(harmless),$(eval others := $$(subst $(character),,$$(others)))),)$(others)
ifneq (x$(call strange,$(CURDIR))x,xx)
$(error expected a clone whose path has only letters (a to z), digits and ._/+@-~, found '$(CURDIR)'; move it)
endif

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# What a recipe that fails has written in part is not there for the next make.
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# -j is for the compilers that these targets start. Two targets at once would make the same files twice, or what they need
# before it is installed.
ifeq ($(filter rtl-archives,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif
# Maven and Mill take JAVA_HOME as it is; one that names no JDK is left out.
ifneq ($(shell [ -z "$${JAVA_HOME:-}" ] || [ -x "$$JAVA_HOME/bin/java" ] || echo stale),)
unexport JAVA_HOME
endif

# What a variable holds is looked at before anything is built; $(1): its name. What it may not hold ends make.
expect_number = $(if $(filter-out 1,$(words $($(1)))$(filter-out $(shell seq 1024),$($(1)))),\
  $(error $(1): expected a number from 1 to 1024, found '$($(1))'))
# $(2): the words that it may hold, $(3): what they are.
expect_words = $(if $(filter-out $(2),$($(1))),$(error $(1): expected $(3) of $(strip $(2)), found '$($(1))'))
given = $(filter command environment,$(origin $(1)))
override JOBS := $(or $(JOBS),$(shell nproc))
$(call expect_number,JOBS)
ifneq ($(filter -- -0- -1-,-$(MERAPI_FULL)-),-$(MERAPI_FULL)-)
$(error MERAPI_FULL: expected 1 (all cases of the tests), 0 or nothing, found '$(MERAPI_FULL)')
endif
# Simulations that passed with the same program and seeds are not made again by `make test` (tools/kept_runs.py).
# Whoever names other tests has them made unless MERAPI_ONCE=1 is given.
once = $(or $(MERAPI_ONCE),$(if $(filter 1,$(MERAPI_FULL)),0,1))
ifneq ($(filter -- -0- -1-,-$(MERAPI_ONCE)-),-$(MERAPI_ONCE)-)
$(error MERAPI_ONCE: expected 0 (tests: simulations that passed before run again, too), 1 or nothing, found '$(MERAPI_ONCE)')
endif
# As it was written: `$` is the shell's and Java's, not make's.
override APP := $(value APP)
export APP
# What traces: the RTL in the main job. A program of the user's own or a guest would wait long for a simulation.
export DEVICE ?= $(if $(filter run,$(MAKECMDGOALS)),$(if $(APP),model,rtl),model)
export PRESET ?=
export MEMORY ?=

PYTEST := build/venv/bin/python -m pytest
# Simulations of the RTL beside all other tests (conftest.py), where there are processors for both.
BESIDE = $(if $(filter 1,$(JOBS)),,-n 2 --dist loadscope)
RUFF := build/venv/bin/ruff
# Compiled files are kept too; paths are taken relative to the clone, so that another clone finds them.
override MERAPI_CACHE := $(patsubst ~/%,$(shell echo ~)/%,$(or $(MERAPI_CACHE),~/.cache/merapi))
ifneq (x$(call strange,$(MERAPI_CACHE))x,xx)
$(error MERAPI_CACHE: expected a folder whose path has only letters (a to z), digits and ._/+@-~, found '$(MERAPI_CACHE)'; name another: MERAPI_CACHE=DIR)
endif
override MERAPI_CACHE := $(abspath $(MERAPI_CACHE))
export MERAPI_CACHE
export CCACHE_DIR := $(MERAPI_CACHE)/ccache
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
LAUNCHERS := -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
NATIVE_FLAGS := -G Ninja $(LAUNCHERS) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
  -DCMAKE_LIBRARY_OUTPUT_DIRECTORY=$(CURDIR)/build/native/lib \
  -DCMAKE_RUNTIME_OUTPUT_DIRECTORY=$(CURDIR)/build/native/bin
LIBMERAPI := build/native/lib/libmerapi.so
MERAPI_DEVICE := build/native/bin/merapi-device
JDK := build/jdk/image

# First in the command of a step that two makes in one clone must not take at once; as `exclusive` of tools/common.py.
one_at_a_time = mkdir -p build/locks; exec 9> build/locks/$(1); \
  flock -n 9 || { echo "waiting for another process in '$(1)'" >&2; flock 9; };
# First in a recipe of one line, of a file that several targets need, each under its own lock or none: whoever waited finds
# it made. Such a recipe starts no make: who holds this lock waits for no other one.
made_once = $(call one_at_a_time,rtl-tools) [ ! -e $@ ] || [ -n "$$(find $^ -newer $@ -print -quit)" ] || exit 0;
# A line that names MAKE is executed under make -n, too, in folders that nobody has made; this ends it.
unless_dry = $(if $(findstring n,$(filter-out --%,-$(firstword $(MAKEFLAGS)))),exit 0;)

.PHONY: help
help: ## print this list
	@echo "Merapi: garbage-collection tracing next to the memory. Targets:"
	@sed -nE 's/^([a-z][a-z-]*):[^#]*## (.*)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-22s%s\n", $$1, $$2 }'
	@echo 'Variables: DEVICE=rtl|model (run: rtl, with APP model; qemu: model), TOPOLOGY=one|two|pmem (qemu),' \
	  'PRESET=ddr4-1ch|ddr4-4ch|hbm2|sim-small|sim-lanes|sim-ports MEMORY=ideal|ddr4-2400|hbm2|FILE (DEVICE=rtl),' \
	  'APP="-cp DIR Main args" (run), JOBS=n, RTL_JOBS=n (compilers of the RTL: 2),' \
	  'MERAPI_FULL=1 (tests: all cases), MERAPI_ONCE=0 (test: again what passed before),' \
	  'MERAPI_CACHE=folder (~/.cache/merapi)'

# Before any tool runs: what they import, and how they are written, an older one does not have.
.PHONY: python
python:
	@command -v python3 > /dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null || { \
	    echo "expected python3 in PATH, found none; as root run: apt-get update && apt-get install -y python3-venv" >&2; exit 1; }; \
	  echo "installing Debian package(s): python3-venv"; mkdir -p build/setup; \
	  tools/apt_install.sh python3-venv > build/setup/python.log 2>&1 || { tail -n 15 build/setup/python.log >&2; exit 1; }; }; \
	python3 -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("expected Python 3.11 or later, '\
	'found %d.%d at %s; put another python3 first in PATH (Debian has one in /usr/bin)" % (v[0], v[1], sys.executable))'

.PHONY: setup
setup: python ## install Debian packages and the Python environment
	@python3 tools/setup.py

.PHONY: contract
contract: python ## regenerate the contract's C header, Scala constants and document tables
	@python3 tools/gen_contract.py

.PHONY: native
native: setup ## build libmerapi, the device process and the merapi command
	@$(call one_at_a_time,native) \
	  [ -f build/native/build.ninja ] || cmake -S sim -B build/native $(NATIVE_FLAGS) > build/native.log \
	  || { cat build/native.log; exit 1; }; \
	  cmake --build build/native --parallel $(JOBS)

.PHONY: jdk
jdk: native ## build the patched JDK as a folder, build/jdk/image
	@python3 tools/build_jdk.py image --variant merapi --libmerapi $(LIBMERAPI) --jobs $(JOBS)

.PHONY: jdk-stock
jdk-stock: setup ## build the same JDK without the patches, build/jdk/stock-image
	@python3 tools/build_jdk.py image --variant stock --jobs $(JOBS)

.PHONY: jdk-fastdebug
jdk-fastdebug: native ## build the patched JDK with HotSpot's asserts, build/jdk/fastdebug-image
	@python3 tools/build_jdk.py image --variant fastdebug --libmerapi $(LIBMERAPI) --jobs $(JOBS)

.PHONY: apps
apps: setup ## build the Java programs of run, qemu, the benches and tests
	@python3 tools/build_apps.py

.PHONY: run-arguments
run-arguments: python
	@python3 sim/run/run.py --check --device="$$DEVICE" --preset="$$PRESET" --memory="$$MEMORY" --app="$$APP"

.PHONY: run
run: run-arguments jdk apps ## run a real Java program with its heap in a window (DEVICE=, APP=)
	@python3 sim/run/run.py --device="$$DEVICE" --preset="$$PRESET" --memory="$$MEMORY" --app="$$APP"

.PHONY: test
test: jdk apps qemu-setup ## what every change must pass: native, JVM, runner, RTL, guest and style tests
	@MERAPI_ONCE=$(once) $(PYTEST) $(BESIDE)

.PHONY: test-native
test-native: native ## tests of libmerapi and the device process
	@$(PYTEST) sw/libmerapi/test sim/test

.PHONY: test-jvm
test-jvm: jdk apps ## tests of the patched JVM
	@$(PYTEST) sw/jvm-patch/test

.PHONY: test-jdk
test-jdk: jdk jdk-stock ## OpenJDK's own GC tests (jtreg) with the offload on, compared with the unpatched build
	@python3 tools/run_jtreg.py

.PHONY: fuzz
fuzz: setup ## fuzz libmerapi's readers (FUZZ_SECONDS= per target, 60)
	@python3 tools/fuzz.py --seconds $${FUZZ_SECONDS:-60} --jobs $(JOBS)

.PHONY: bench-jvm
bench-jvm: jdk jdk-stock apps ## measure against the unpatched JDK, side by side; build/bench/jvm.json
	@python3 sim/bench/bench_jvm.py

# Targets of further parts, each in its own folder.
-include $(sort $(wildcard hw/*/*.mk sw/*/*.mk qemu-cxl/*.mk sim/*/*.mk))

# A slip of the pen would go unseen: make takes any name. `help` names these.
VARIABLES := APP DEVICE PRESET MEMORY TOPOLOGY JOBS FUZZ_SECONDS UNIT PROOFS MUTATION_PRESET MUTANTS MUTATION_SEED MUTATION_MINUTES \
  MUTATION_FLAGS COVER_SEEDS COVER_PIECE SYNTH_PRESETS SYNTH_YOSYS RTL_PRESETS RTL_SIMULATIONS RTL_JOBS MERAPI_CACHE \
  MERAPI_FULL MERAPI_ONCE MERAPI_SEEDS MERAPI_SEED MERAPI_PRESET
# Further ones of the makefiles, and what tests and tools that make starts read.
FURTHER := NATIVE_FLAGS RTL_NICE RTL_FAST_CXX RTL_FAST_FLAGS RTL_RECORDER RTL_BUILD RTL_TOOLS RTL_VENV RTL_RECORDS PYTEST_% \
  $(addprefix MERAPI_,FIRST_SEED PORTS RECORDS RECORD_PORTS RECORD_WORK RTL_BUILD NATIVE JDK DEVICE ROGUE CLI)
space := $(subst ,, )
GIVEN := $(foreach word,$(subst \$(space),,$(MAKEOVERRIDES)),$(firstword $(subst =, ,$(subst :=,=,$(word)))))
UNREAD := $(filter-out $(VARIABLES) $(FURTHER),$(GIVEN))
ifneq ($(if $(filter 0,$(MAKELEVEL)),$(UNREAD)),)
$(warning no target reads $(UNREAD); 'make help' lists the variables)
endif

# Whoever may not install cargo is told first of all, not when libjvm and the tracer's Verilog have been made.
ifneq ($(filter test test-native test-tools test-qemu test-rtl test-rtl-wide rtl rtl-simulations axi-rtl record-rtl-work bench-rtl \
  $(if $(filter rtl,$(DEVICE)),run qemu qemu-shell),$(MAKECMDGOALS)),)
setup: | rtl-cargo
endif

.PHONY: lint
lint: setup ## style of C, C++, Python, shell and Scala, drift of generated files
	@python3 tools/lint.py

.PHONY: format
format: setup ## rewrite C, C++, Python and Scala sources in the tree's style
	@python3 tools/lint.py --fix

.PHONY: where-jdk
where-jdk: ## print the patched JDK's folder (with make -s: nothing else)
	@$(MAKE) --no-print-directory -s jdk >&2
	@echo $(CURDIR)/$(JDK)

.PHONY: where-device
where-device: ## print the path of merapi-device (with make -s: nothing else)
	@$(MAKE) --no-print-directory -s native >&2
	@echo $(CURDIR)/$(MERAPI_DEVICE)

.PHONY: clean
clean: ## remove build/ and out/ (the cache in ~/.cache/merapi stays)
	rm -rf build out
