# What people type. `make` alone lists it.

# Tests that need a server fail, instead of being skipped, when `make test` could not install it.
export TG_REQUIRE_SERVERS = 1

# A test that hangs is ended and named.
test_what_ships = cargo test --no-fail-fast --config "target.'cfg(all())'.runner='scripts/time-limit'"

# Most tests run over the development chain, which does not ship.
test = $(test_what_ships) --features dev-chain

build_dev = cargo build --profile quick --no-default-features --features dev-chain

.PHONY: help dev dist dist-try test test-here test-all lint deny bench fuzz peers instructions contracts console clean

help: ## List these commands
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

dev: ## Build for development and start everything, with sample agents
	@scripts/need cmake
	@$(build_dev)
	@exec target/quick/tiergate dev

dist: ## Build what a release carries, for x86-64 and aarch64, into dist/: half an hour
	scripts/dist

dist-try: ## Before a release: install, start, upgrade and remove what dist/ has, on a clean system
	scripts/dist-try

test: ## Install what the tests need, and run all of them
	@scripts/need cmake python3
	@scripts/test-servers
	$(test) --no-run
	$(test)

test-here: export TG_REQUIRE_SERVERS = 0
test-here: export TG_SKIPPED = $(CURDIR)/target/skipped
test-here: ## Run the tests whose servers are installed, and name all others at the end
	@scripts/need cmake python3
	@mkdir -p target && rm -f target/skipped && touch target/skipped
	$(test); status=$$?; echo "skipped: $$(wc -l <target/skipped)"; cat target/skipped; exit $$status

test-all: test ## Before a release: all tests again in release, and again without the development chain, as it ships
	$(test) --release
	$(test_what_ships)
	$(build_dev)

lint: ## Formatting and lints, with the development chain, as it ships, and as make dev builds it
	@scripts/need cmake
	cargo fmt --check
	cargo clippy --all-targets --features dev-chain -- -D warnings
	cargo clippy -- -D warnings
	cargo clippy --no-default-features --features dev-chain -- -D warnings

deny: ## Check advisories, licenses and sources of the dependencies with cargo-deny
	@command -v cargo-deny >/dev/null || { echo "make deny needs cargo-deny: cargo install --locked cargo-deny" >&2; exit 1; }
	cargo deny check

fuzz: ## Fuzz the readers of HTTP/1 for half a minute; scripts/fuzz SECONDS for longer
	scripts/fuzz

bench: ## Measure the pipeline beside a baseline of the same run
	@scripts/need cmake
	cargo bench --features dev-chain

peers: ## Measure beside nginx, haproxy and Envoy; ONLY=base for a part
	@scripts/peers

instructions: ## Count the instructions and allocations of a request; fails when they grew by more than 5 %
	@scripts/instructions

contracts: ## Compile the Solidity registries again
	@scripts/test-servers
	node contracts/compile.mjs

console: ## Compile the owner's page again
	@scripts/test-servers
	node console/build.mjs

clean: ## Remove what was built and installed here
	cargo clean
	rm -rf tools/node_modules tools/servers tools/envoy
