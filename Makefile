# A thin face over CMake: every target does its own set-up and can be the first one run.
# `make help` lists them.

PREFIX       ?= /usr/local
DESTDIR      ?=
JOBS         ?= $(shell nproc 2>/dev/null || echo 2)
FUZZ_SECONDS ?= 20
BENCH_ARGS   ?=
CMAKE_ARGS   ?=
MUTATIONS    ?= mutations

CONFIGURE = tools/configure.sh
BUILD     = cmake --build
SANITIZE_ARGS = -DTREFOIL_SANITIZE=ON -DTREFOIL_WERROR=OFF -DTREFOIL_EMULATE=OFF $(CMAKE_ARGS)

.PHONY: all cuda test demo lint sanitize tsan aarch64 replay mpich matrix mutations interop browser fuzz nightly bench docs site slurm install clean help

all: ## build build/trefoil, and the plug-in for GPUs where nvcc is
	@tools/setup.sh build
	@$(CONFIGURE) build $(CMAKE_ARGS)
	@$(BUILD) build -j $(JOBS) --target program

cuda: ## the plug-in for NVIDIA GPUs, build/libtrefoil_cuda.so, by a CUDA toolkit's nvcc; registers of its kernels
	@tools/setup.sh build
	@$(CONFIGURE) build $(CMAKE_ARGS)
	@$(BUILD) build -j $(JOBS) --target cuda

test: ## build everything and run the test suite
	@tools/setup.sh build
	@$(CONFIGURE) build $(CMAKE_ARGS)
	@$(BUILD) build -j $(JOBS)
	@tools/run_tests.sh build

demo: all ## train a small GPT on the King James Bible, two to three minutes
	@tools/setup.sh demo
	@tools/demo.sh

lint: ## format, static analysis, warnings of gcc and clang, layering, unused exports
	@tools/setup.sh build lint
	@tools/lint.sh $(JOBS)

# Without those that run what others run, to see whether documents are true.
sanitize: ## the test suite under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/setup.sh build
	@$(CONFIGURE) build-asan $(SANITIZE_ARGS)
	@$(BUILD) build-asan -j $(JOBS)
	@tools/run_tests.sh build-asan -E '^cli_(bench|docs|site|translation)$$'

tsan: ## the tests of threads under ThreadSanitizer, and small runs
	@tools/setup.sh build tsan
	@tools/tsan.sh $(JOBS)

aarch64: ## base, the device and their tests, built for AArch64 and run under QEMU
	@tools/setup.sh build aarch64
	@tools/aarch64.sh $(JOBS)

replay: ## every fuzz target under the same sanitizers, on inputs that are always the same
	@tools/setup.sh build
	@$(CONFIGURE) build-asan $(SANITIZE_ARGS)
	@$(BUILD) build-asan -j $(JOBS) --target replay_all
	@tools/run_tests.sh build-asan -C replay -L replay

mpich: ## the tests of several ranks, with MPICH in place of Open MPI
	@tools/setup.sh build mpich
	@$(CONFIGURE) build-mpich -DTREFOIL_MPI=mpich -DTREFOIL_EMULATE=OFF -DTREFOIL_CUDA=OFF $(CMAKE_ARGS)
	@$(BUILD) build-mpich -j $(JOBS)
	@tools/run_tests.sh build-mpich -L parallel

matrix: ## checkpoints of every layout resumed on every other, a minute or two
	@tools/setup.sh build
	@$(CONFIGURE) build $(CMAKE_ARGS)
	@$(BUILD) build -j $(JOBS) --target trefoil trefoil_resaves
	@tools/run_tests.sh build -C matrix -L matrix

mutations: ## mistakes are put into kernels and what runs them, one by one: tests have to find them
	@tools/setup.sh build
	@$(CONFIGURE) build $(CMAKE_ARGS)
	@$(BUILD) build -j $(JOBS)
	@tools/run_tests.sh build -C $(MUTATIONS) -L '^$(MUTATIONS)$$'

interop: all ## compare with PyTorch, transformers, llama.cpp, tiktoken and numpy (installs them)
	@tools/setup.sh interop
	@tests/interop/run.sh

browser: all ## the board's page in Chromium, on a run that trains (installs both); pictures in build/browser
	@tools/setup.sh browser
	@tests/browser/run_browser.sh

fuzz: ## every tests/fuzz/fuzz_*.c for FUZZ_SECONDS each, at random
	@tools/setup.sh build fuzz
	@tools/fuzz.sh $(FUZZ_SECONDS) $(JOBS)

# Every night another share of the shapes and types that kernels are compared on.
TURN := $(shell expr `date +%s` / 86400 % 21)

nightly: ## all that .ci/run does, other shapes of kernels, all mutations, the .deb and each set-up in a clean Debian, and an hour of random fuzzing
	@.ci/run
	@echo "TEST_TURN=$(TURN)"; TEST_TURN=$(TURN) tools/run_tests.sh build -R 'test_(gpu_)?kernel'
	@$(MAKE) --no-print-directory mutations MUTATIONS=all_mutations CMAKE_ARGS=-DTREFOIL_WERROR=ON
	@tools/setup.sh debootstrap
	@tests/package/clean_system.sh build
	@tests/package/clean_setup.sh
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=900

bench: ## speed, all of it, in two hours; BENCH_ARGS="--help" for parts of it
	@tools/setup.sh build bench demo $(if $(filter --help --markdown --no-pytorch,$(BENCH_ARGS)),,pytorch)
	@$(CONFIGURE) build $(CMAKE_ARGS)
	@$(BUILD) build -j $(JOBS) --target trefoil_bench trefoil
	@bench/run.py $(BENCH_ARGS)

docs: all ## regenerate docs/config.md, docs/commands.md, pictures and CONTRIBUTING.md's layers
	@build/trefoil config --markdown > docs/config.md.tmp
	@mv docs/config.md.tmp docs/config.md
	@tools/commands_page.py build/trefoil > docs/commands.md.tmp
	@mv docs/commands.md.tmp docs/commands.md
	@tools/layout_figures.py docs/pictures
	@if [ -f build/libtrefoil_cuda.so ]; then tools/kernel_table.py build --write; fi
	@tools/check_layers.sh --markdown > build/layers.md
	@sed -i -e '/^| folder |/,/^$$/{/^| folder |/{r build/layers.md' -e '};/^$$/!d}' CONTRIBUTING.md

site: ## the documents as a site, in build/site
	@tools/setup.sh site
	@tools/site.py build/site

slurm: all ## docs/slurm/*.sbatch on a Slurm of this machine alone (installs it; needs root)
	@tools/setup.sh slurm
	@tests/slurm/run_slurm.sh

pages: all
	@$(BUILD) build -j $(JOBS) --target pages

install: pages ## install program, manual pages and completion below DESTDIR and PREFIX (/usr/local)
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

uninstall: pages ## remove what `make install` installed with the same DESTDIR and PREFIX
	@DESTDIR="$(DESTDIR)" tools/uninstall.sh build "$(PREFIX)"

deb: pages ## build/trefoil_VERSION_ARCHITECTURE.deb, for Debian 12
	@tools/setup.sh deb
	@tools/make_deb.sh build

dist: ## build/trefoil-VERSION.tar.gz: the sources of the last commit
	@tools/make_dist.sh

package: pages ## installation, manual pages, completion, .deb, archive and containers, checked
	@tools/setup.sh deb package
	@tests/package/check_package.sh build

clean: ## remove everything that was built
	rm -rf build build-gcc build-clang build-asan build-tsan build-aarch64 build-fuzz build-mpich

help: ## this list
	@sed -n 's/^\([a-z0-9]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18
