.DEFAULT_GOAL := help

# Built when missing. On two cores cargo-deny takes three minutes, once; the licences it reads are worth that in CI too.
CARGO_DENY_VERSION := 0.20.2
CARGO_NEXTEST_VERSION := 0.9.143

NEXTEST := cargo nextest run --workspace $(if $(CI),--profile ci)

.PHONY: help
help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: check
check: fmt clippy docs deny ## Everything that needs no test run: format, lints, documentation, dependencies

.PHONY: fmt
fmt: ## Check the format (cargo fmt writes it)
	cargo fmt --all --check

.PHONY: clippy
clippy: ## Lint the workspace, and the auditor's build by itself
	cargo clippy --locked --workspace --all-targets --features midwatch-engine/simulation -- -D warnings
	cargo clippy --locked -p midwatch --no-default-features -- -D warnings

.PHONY: docs
docs: ## Build the API documentation, with no warning
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

.PHONY: deny
deny: ## Check licences, sources and banned crates (deny.toml)
	@scripts/need-cargo-tool.sh cargo-deny $(CARGO_DENY_VERSION)
	cargo deny --locked check bans licenses sources

.PHONY: tidy
tidy: ## Run the rules of the tree alone (a part of test)
	cargo test --locked --quiet -p midwatch --test tidy

.PHONY: test
test: doctest nextest simulate ## Run every test; finds or installs (Debian) PostgreSQL, Chromium, Node.js and Python

.PHONY: doctest
doctest:
	cargo test --locked --doc --workspace --quiet

.PHONY: nextest
nextest:
	@scripts/need-cargo-tool.sh cargo-nextest $(CARGO_NEXTEST_VERSION)
	scripts/with-services.sh $(NEXTEST) --locked

SIMULATION := --locked -p midwatch-engine --features simulation --test simulation

.PHONY: simulate
simulate: ## Play simulated months of the engine with an adversary, and find the faults put in on purpose
	@scripts/need-cargo-tool.sh cargo-nextest $(CARGO_NEXTEST_VERSION)
	cargo nextest run $(if $(CI),--profile ci) --cargo-profile simulation $(SIMULATION)

.PHONY: soak
soak: ## Play simulated months of the engine on new seeds: for ten minutes, MINUTES=n, or SEEDS=n [FROM=n]
	cargo test --profile simulation $(SIMULATION) -- --ignored --nocapture soak

.PHONY: soak-processes
soak-processes: ## Kill and freeze five real processes on one PostgreSQL, and restart that, for five minutes or MINUTES=n
	env -u MIDWATCH_TEST_POSTGRES scripts/with-postgres.sh \
		cargo test --locked -p midwatch --test whole -- --ignored --nocapture five_processes

.PHONY: accept
accept: ## Run every test and write the snapshots anew; review them with git diff
	@scripts/need-cargo-tool.sh cargo-nextest $(CARGO_NEXTEST_VERSION)
	MIDWATCH_ACCEPT=1 INSTA_UPDATE=always TRYCMD=overwrite scripts/with-services.sh $(NEXTEST) --locked --no-fail-fast

.PHONY: bench-gateway
bench-gateway: ## Measure the gateway: rules beside two other CELs, what-if, governed calls on PostgreSQL (QUICK=1: fewer)
	benches/gateway/run.sh

.PHONY: bench
bench: ## Measure beside other event stores, and write docs/benchmarks.md (QUICK=1: under three minutes, writes nothing)
	benches/run.sh

.PHONY: bench-schedule
bench-schedule: ## Measure the clock with 100,000 routines, 10,000 of them due at once, and with 1,000,000 idle (QUICK=1: fewer)
	benches/schedule.sh

.PHONY: bench-schedulers
bench-schedulers: ## Measure the clock beside other schedulers, and write docs/benchmarks-schedulers.md (QUICK=1: prints only)
	benches/schedulers/run.sh

.PHONY: bench-ingress
bench-ingress: ## Measure the receiver of webhooks beside others, and write docs/benchmarks-ingress.md (QUICK=1: prints only)
	benches/ingress/run.sh

.PHONY: hostile
hostile: ## Besiege a server for minutes in the ways that are too long for every test, and print its memory
	scripts/with-services.sh cargo test --locked -p midwatch --test whole -- --include-ignored --nocapture --test-threads 1 hostile

.PHONY: fuzz
fuzz: ## Fuzz the receiver's parsing and every signing scheme for an hour (MINUTES=n for each of four targets)
	fuzz/run.sh
