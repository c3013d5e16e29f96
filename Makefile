# One command per intent; `make` alone lists them.

.PHONY: help demo test check fuzz bench soak services

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## export sample data with everything embedded, and show the files
	cargo run -- demo

test: ## all tests, with the servers they need (installed if missing, gone afterwards)
	OUTHAUL_TEST_NO_SYNC=1 RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((2 * $$(getconf _NPROCESSORS_ONLN)))} \
		scripts/services run -- cargo test --workspace

check: ## format, lints, docs, dependencies (installs cargo-deny if missing)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	scripts/deny

fuzz: ## an OpenAPI fuzzer against the running API: no 5xx, no undocumented answer
	scripts/fuzz-api

bench: ## measure jobs, exports, deliveries and idleness beside other programs, in one run
	scripts/bench

soak: ## the large sizes: a store of 10,000,000 chunks beside a small one, an export of 10 GB
	scripts/soak

services: ## a shell with the tests' servers running; they stop when it ends
	OUTHAUL_TEST_NO_SYNC=1 scripts/services run -- "$${SHELL:-bash}"
