# CREM gateway. `make help` lists the targets.
SHELL := /bin/bash
STAGE := integration/scripts/stage
SCHEMATHESIS := python3 -B integration/rest/conformance.py target/release/crem-gateway "$$(integration/scripts/schemathesis)"
CARGO_DENY := target/tools/bin/cargo-deny
DENY_VERSION := 0.20.2

.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-fast fmt clippy deny unit nostd conformance break-on-purpose vectors sim sim-directed sim-planted fec-check bench-fec bench-dataplane restore ipfix rest bench-meter bench-config test-schemathesis test-api-load test-previous fuzz curves curves-quick e2e test-qemu doc clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## install the Debian packages that building and testing need (root)
	@integration/scripts/setup

build: setup ## build every program, optimised
	cargo build --release --locked --workspace --bins

demo: build ## the pair at 20 ms RTT and 1 % loss against the bare path (root, about 3 minutes after the build)
	integration/scripts/with-hugepages 512 target/release/scenario demo

test: ## everything that CI runs (root)
	@$(STAGE) --start
	@$(STAGE) setup $(MAKE) -s setup
	@$(STAGE) fmt $(MAKE) -s fmt
	@$(STAGE) clippy $(MAKE) -s clippy
	@$(STAGE) deny $(MAKE) -s deny
	@$(STAGE) nostd $(MAKE) -s nostd
	@$(STAGE) unit $(MAKE) -s unit
	@$(STAGE) build $(MAKE) -s build
	@$(STAGE) vectors $(MAKE) -s vectors
	@$(STAGE) sim $(MAKE) -s sim SEEDS=200
	@$(STAGE) sim-directed $(MAKE) -s sim-directed
	@$(STAGE) fec-check $(MAKE) -s fec-check
	@$(STAGE) restore $(MAKE) -s restore
	@$(STAGE) ipfix $(MAKE) -s ipfix
	@$(STAGE) rest $(MAKE) -s rest
	@$(STAGE) e2e $(MAKE) -s e2e
	@$(STAGE) qemu $(MAKE) -s test-qemu
	@$(STAGE) --summary

test-fast: fmt clippy unit ## the checks that need no second build

fmt: ## formatting
	cargo fmt --all --check

clippy: setup ## lints, warnings are errors
	cargo clippy --locked --workspace --all-targets -- -D warnings

deny: $(CARGO_DENY) ## licences, sources and bans of dependencies
	$(CARGO_DENY) --locked check bans licenses sources

# It runs once: optimising it takes longer than what it does.
$(CARGO_DENY):
	CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --quiet --debug --root target/tools --version $(DENY_VERSION) cargo-deny

nostd: ## the protocol crates build without std
	cargo build --locked -p crem-fec -p crem-wire -p crem-core -p crem-meter --no-default-features

unit: setup ## unit, property and DPDK tests (root for the DPDK tests)
	PROMTOOL="$$(integration/scripts/promtool)" ETCD="$$(integration/scripts/etcd)" integration/scripts/with-hugepages 256 cargo test --locked --workspace

conformance: ## write docs/conformance.md from the register and the tests
	cargo run --locked -q -p crem-integration --bin conformance

break-on-purpose: ## break the product on purpose in a copy of the tree; the tests have to fail (about 15 minutes)
	cargo run --locked -q -p crem-integration --bin conformance -- break

vectors: build ## test vectors of the protocol documents, and that the runner sees a broken product function
	target/release/vectors integration/testdata/vectors
	cargo test --locked -q -p crem-integration --no-default-features --features mutate --test vectors_mutate

SEEDS ?= 200
# From 200 seeds on, everything that can occur has to.
SIMFULL := $(shell [ $(SEEDS) -ge 200 ] && echo --complete; [ $(SEEDS) -ge 2000 ] && echo --packets 100000000)
SIM := cargo run --release --locked -q -p crem-sim --features coverage --bin sim --

sim: ## SEEDS worlds of hosts, gateways and paths in virtual time (default 200; from there on all that can occur has to); SEED=n repeats one
	@mkdir -p target/results
ifeq ($(SEED),many)
	@$(SIM) many $(SIMFLAGS)
else ifdef SEED
	@$(SIM) seed $(SEED) $(SIMFLAGS)
else
	@$(SIM) seeds $(SEEDS) --equal 200 --many $(SIMFULL) --json target/results/sim.json
endif

sim-directed: ## the worlds that are built for something rare, each once: together they meet all that can occur
	cargo test --release --locked -q -p crem-sim --features coverage --test directed

sim-planted: ## the simulator finds each of five planted faults within 200 seeds
	cargo test --release --locked -q -p crem-sim --features mutate --test planted -- --nocapture

fec-check: ## coding kernels under a checker of memory accesses, and against ISA-L
	integration/scripts/fec-check

bench-fec: ## coding against ISA-L, reed-solomon-erasure and the XOR bound (about 2 minutes after the build)
	cargo build --release --locked -q -p crem-bench-fec
	integration/scripts/with-hugepages 320 target/release/bench-fec --check --isal "$$(integration/scripts/isal)"

bench-dataplane: ## what a packet costs the pipeline of the data plane on one core, from memory (root, about 6 minutes after the build)
	cargo build --release --locked -q -p crem-bench-dataplane
	integration/scripts/with-hugepages 2400 target/release/bench-dataplane --check

restore: build ## restore every request packet of the captures
	target/release/restore integration/testdata/captures/*.pcap.gz

ipfix: build ## IPFIX of every capture through a strict check and the collectors of Debian; export and collect against bad peers
	python3 -B integration/ipfix/test_check.py -q
	python3 -B integration/ipfix/processes.py target/release/crem-gateway target/results/ipfix-processes
	python3 -B integration/ipfix/interop.py target/release/ipfix-replay target/results/ipfix integration/testdata/captures/*.pcap.gz

bench-meter: ## what metering and encoding cost, against their limits (about 1 minute after the build)
	@mkdir -p target/results
	cargo build --release --locked -q -p crem-meter --example costs
	cargo build --release --locked -q -p crem-ipfix --example encode
	cargo build --release --locked -q -p crem-integration --bin csf-cost-4k
	@python3 -B integration/scripts/bench-meter target/release target/results/bench-meter.json

test-schemathesis: build ## the API of running processes against its description (about 5 minutes after the build); SEED=n for other requests
	@$(SCHEMATHESIS) target/results $(if $(SEED),--seed $(SEED))

# The same with a time for all of it, as a part of `make test`.
rest: build
	@$(SCHEMATHESIS) target/results --seconds 40

test-api-load: build ## 200 API clients without a pause during a transfer; what they wait for, and that nothing is dropped (root)
	integration/scripts/with-hugepages 512 target/release/scenario integration/scenarios/api-load.toml

test-previous: build ## control processes of this version with the data plane of the version before (root, some minutes for building it)
	@mkdir -p target/results
	@# The version before knows no captures.
	@sed '/^diagnose/d' integration/scenarios/api.toml >target/results/api-previous.toml
	integration/scripts/with-hugepages 512 target/release/scenario --gateway "$$(integration/scripts/previous)" --results target/results/previous target/results/api-previous.toml

FUZZ_SECONDS ?= 60

fuzz: ## every fuzz target for FUZZ_SECONDS (default 60), guided by coverage (about 15 minutes after the build)
	integration/scripts/fuzz $(FUZZ_SECONDS)

bench-config: ## what checking and applying a document with 200 peers and 2,000 connections costs, against its limit
	cargo run --release --locked -q -p crem-control --example bench_config -- --check

curves: ## goodput and completion time against loss, and the targets of the protocol in simulation (at most 45 minutes on 2 cores)
	cargo build --release --locked -q -p crem-sim --bin experiments
	target/release/experiments curves writes residual classify overload

curves-quick: ## the same with a twentieth of the packets
	cargo build --release --locked -q -p crem-sim --bin experiments
	target/release/experiments curves writes residual classify overload --shrink 20 --docs target/results/docs

e2e: build ## the pair in network namespaces, every scenario (root)
	ETCD="$$(integration/scripts/etcd)" integration/scripts/with-hugepages 512 target/release/scenario all

test-qemu: build ## a gateway in a guest of QEMU, on virtio ports of DPDK, and its peer outside (root)
	@kernel=$$(integration/scripts/guest-kernel) && [ -z "$$kernel" ] || CREM_GUEST_KERNEL="$$kernel" \
		integration/scripts/with-hugepages 512 target/release/scenario integration/scenarios/qemu.toml

doc: ## API documentation of the product crates
	cargo doc --locked --no-deps --workspace

clean: ## remove build output
	cargo clean
