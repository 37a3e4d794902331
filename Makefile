# Everything a newcomer needs. Each target installs what it misses first (scripts/setup).
CARGO ?= cargo
RUN = target/release/vicinity

.PHONY: help demo demo-shell demo-message test lab bench soak coverage check build deb lint deny unit loom fuzz clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make demo        two real VMs, the switch (CHANNEL=direct: shared memory) beside tap + bridge: a report
demo:
	scripts/setup $(if $(CHANNEL),lab,demo)
	$(CARGO) build --release --locked --package vicinity
	$(RUN) demo $(if $(CHANNEL),--channel $(CHANNEL))

## make demo-shell  the same two VMs, kept, with a shell in each
demo-shell:
	scripts/setup demo
	$(CARGO) build --release --locked --package vicinity
	$(RUN) demo --shell

## make demo-message  the same two VMs play ping-pong with messages, beside TCP
demo-message:
	scripts/setup demo
	$(CARGO) build --release --locked --package vicinity
	$(RUN) demo --messages

## make test        everything: lints, unit, property, protocol, hostile and VM tests
test:
	@scripts/quietly setup scripts/setup test
	@scripts/quietly lint $(MAKE) lint
	@scripts/quietly deny $(MAKE) deny
	@scripts/quietly unit $(MAKE) unit
	@scripts/quietly loom $(MAKE) loom
	@scripts/quietly fuzz $(MAKE) fuzz

## make check       format, clippy and the unit tests, without VMs: some minutes
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- --deny warnings
	$(CARGO) test --workspace --locked --lib --bins

## make soak        the long tests, three hours: hostile front-ends, members, hosts and clients, forty VMs, kills, fuzzing
soak:
	scripts/setup test
	scripts/checkpatch --fetch
	VICINITY_FUZZ_SECONDS=600 $(CARGO) test --release --locked --package vicinity-switch --test vhost_fuzz -- --nocapture
	VICINITY_SOAK_SECONDS=600 $(CARGO) test --release --locked --package vicinity-message --test hostile_member -- --nocapture for_long
	VICINITY_SOAK_SECONDS=600 $(CARGO) test --release --locked --package vicinity-mxoe --test network -- --nocapture for_long
	VICINITY_SOAK_SECONDS=600 $(CARGO) test --release --locked --package vicinity --test between_hosts -- --nocapture for_long
	VICINITY_SOAK_SECONDS=600 $(CARGO) test --release --locked --package vicinity-memory-plane --test hostile_clients -- --nocapture
	$(CARGO) test --release --locked --package vicinity-vhost --test waiting -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms -- --ignored --nocapture study
	$(CARGO) test --release --locked --package vicinity --test vms direct_churn -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms as_many_vms -- --ignored --nocapture
	VICINITY_KILLS=1000 $(CARGO) test --release --locked --package vicinity --test vms a_thousand_resets -- --nocapture
	scripts/fuzz 420

## make lab         the papers' experiments on VMs, small: about a quarter of an hour, a report
lab:
	scripts/setup demo lab
	$(CARGO) build --release --locked --package vicinity
	$(RUN) lab run --all --scale ci --output $(or $(OUTPUT),target/study/ci-$$(date -u +%Y%m%dT%H%M%SZ))

## make coverage    the lines of crates/vhost that tests reach: 90 % are promised
coverage:
	scripts/coverage

## make bench       data path, operation, message and memory plane, natively, beside OVS-DPDK, UCX and nginx
bench:
	scripts/setup demo bench
	$(CARGO) build --release --locked --package vicinity
	$(RUN) bench switch
	$(RUN) bench operate
	$(RUN) bench message
	$(RUN) bench uplink
	$(RUN) bench space

## make build       the program, in target/release
build:
	$(CARGO) build --release --locked --package vicinity

## make deb         the Debian packages, in target/deb
deb:
	scripts/setup test
	scripts/deb target/deb

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- --deny warnings
	RUSTDOCFLAGS="--deny warnings --allow rustdoc::private_intra_doc_links" $(CARGO) doc --workspace --no-deps --locked --document-private-items
	scripts/checkpatch

deny:
	scripts/deny

unit:
	$(CARGO) test --workspace --locked --no-fail-fast

loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --locked --target-dir target/loom \
		--package vicinity-vhost --lib model
	RUSTFLAGS="--cfg loom" $(CARGO) test --locked --target-dir target/loom \
		--package vicinity-window --lib model
	RUSTFLAGS="--cfg loom" $(CARGO) test --locked --target-dir target/loom \
		--package vicinity-switch --lib model

fuzz:
	scripts/fuzz 10

clean:
	$(CARGO) clean
