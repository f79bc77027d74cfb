# What people type. `make` alone lists it.

# `make test` writes here what this machine can't have. While that is nothing, a test whose server is missing fails; otherwise
# it is skipped, and listed at the end.
lacking = $(CURDIR)/target/lacking
export TG_SKIPPED = $(CURDIR)/target/skipped
list_skipped = echo "skipped: $$(wc -l <$(TG_SKIPPED))"; cat $(TG_SKIPPED)

# Servers are there on Debian, where only root looks.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin

# Without these no test runs, and none can be left out for one.
needed = rust cc cmake curl git python3 script

# A test that hangs is ended and named. Most tests run over the development chain, which does not ship.
test = scripts/run-tests --features dev-chain

build_dev = cargo build --profile quick --features dev-chain

.PHONY: help dev dist dist-try test test-ready test-servers test-programs test-here test-all lint deny bench fuzz peers instructions integrations mcp contracts console clean

help: ## List these commands
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

dev: ## Build for development and start everything, with sample agents
	@scripts/need rust cc cmake
	@$(build_dev)
	@exec target/quick/tiergate-dev

dist: ## Build what a release carries, for x86-64 and aarch64, into dist/: half an hour
	scripts/dist

dist-try: ## Before a release: install, start, upgrade and remove what dist/ has, on a clean system
	scripts/dist-try

test: test-ready ## Install what the tests need, and run all of them
	@rm -f $(TG_SKIPPED) && touch $(TG_SKIPPED)
	export TG_REQUIRE_SERVERS=$$([ -s $(lacking) ]; echo $$?); $(test); status=$$?; $(list_skipped); exit $$status

# Servers come over the network while the processor builds.
test-ready:
	@scripts/need $(needed)
	@mkdir -p target && rm -f $(lacking)
	@$(MAKE) --no-print-directory --jobs=2 test-servers test-programs

test-servers:
	@scripts/test-servers $(lacking)

# Without the variables by which make tells cargo how many jobs there may be: cargo would take these two.
test-programs:
	env -u MAKEFLAGS -u MFLAGS cargo test --tests --features dev-chain --no-run

test-here: export TG_REQUIRE_SERVERS = 0
test-here: ## Run the tests whose servers are installed, and name all others at the end
	@scripts/need $(needed)
	@mkdir -p target && rm -f $(TG_SKIPPED) && touch $(TG_SKIPPED)
	$(test); status=$$?; $(list_skipped); exit $$status

# A release lacks nothing.
test-all: export TG_REQUIRE_SERVERS = 1
test-all: export TG_WHOLE = 1
test-all: test ## Before a release: all tests again in release, and again without the development chain, as it ships
	$(test) --release -- --include-ignored
	scripts/run-tests
	$(build_dev)

lint: ## Formatting and lints, with the development chain, and as it ships
	@scripts/need rust cc cmake
	cargo fmt --check
	cargo clippy --all-targets --features dev-chain -- -D warnings
	cargo clippy -- -D warnings

deny: ## Check advisories, licenses and sources of the dependencies with cargo-deny
	@command -v cargo-deny >/dev/null || { echo "make deny needs cargo-deny: cargo install --locked cargo-deny" >&2; exit 1; }
	cargo deny check

fuzz: ## Fuzz the readers of HTTP/1 and of what other gateways send for a minute; scripts/fuzz SECONDS for longer
	scripts/fuzz

bench: ## Measure the pipeline beside a baseline of the same run
	@scripts/need rust cc cmake
	cargo bench --features dev-chain

peers: ## Measure beside nginx, haproxy and Envoy; ONLY=base for a part
	@scripts/peers

instructions: ## Count the instructions and allocations of a request; fails when they grew
	@scripts/instructions

integrations: ## Before a release: run examples/integrate whole, also AgentKit (1.2 GB), other frameworks and Axum
	@scripts/need cmake node npm pip3 python3
	@scripts/test-servers
	cargo build --features dev-chain
	@mkdir -p target/integrations/frameworks && cp tools/agentkit/*.json target/integrations
	@cp tools/frameworks/*.json target/integrations/frameworks
	npm ci --prefix target/integrations --ignore-scripts --no-audit --no-fund --loglevel=error
	npm ci --prefix target/integrations/frameworks --ignore-scripts --no-audit --no-fund --loglevel=error
	python3 -m venv --clear --without-pip target/integrations/python
	pip3 --python target/integrations/python/bin/python install --quiet --disable-pip-version-check --no-deps \
	    --only-binary :all: --require-hashes -r tools/frameworks/python.txt
	scripts/integrations --all target/integrations target/debug/tiergate

mcp: ## Before a release: try MCP with mcp-remote, the Inspector, the conformance suite and Envoy's filter
	@scripts/need node npm python3
	@scripts/test-servers
	cargo build --features dev-chain
	@mkdir -p target/mcp && cp tools/mcp/*.json target/mcp
	@# Not `ci`: an optional package for Windows is not in every registry, and so not in the lock.
	npm install --prefix target/mcp --no-save --ignore-scripts --no-audit --no-fund --loglevel=error
	scripts/mcp target/debug/tiergate target/mcp

contracts: ## Compile the Solidity registries again
	@scripts/test-servers $(lacking)
	node contracts/compile.mjs

console: ## Compile the owner's page again, and write the page of the API from its description
	@scripts/test-servers $(lacking)
	node console/build.mjs
	node console/docs.mjs

clean: ## Remove what was built and installed here
	cargo clean
	rm -rf tools/node_modules tools/servers
