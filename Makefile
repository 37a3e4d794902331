# Targets for users and developers. A target that needs packages installs them first (scripts/setup).
CARGO ?= cargo
RUN = target/release/vicinity

.PHONY: help demo demo-shell demo-page demo-message demo-mpi demo-sockets selftest test lab bench soak coverage check build deb lint style clippy deny unit loom fuzz clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make demo          Compares the switch (CHANNEL=direct: shared memory) with tap + bridge in two VMs.
demo:
	scripts/setup $(if $(CHANNEL),lab,demo)
	$(CARGO) build --release --locked --package vicinity
	$(RUN) demo $(if $(CHANNEL),--channel $(CHANNEL))

## make demo-shell    Starts the same two VMs and opens a shell in each.
demo-shell:
	scripts/setup demo
	$(CARGO) build --release --locked --package vicinity
	$(RUN) demo --shell

## make demo-page     Starts the same two VMs with traffic, and the page that shows them.
demo-page:
	scripts/setup demo
	$(CARGO) build --release --locked --package vicinity
	$(RUN) demo --web

## make demo-message  Compares message latency with TCP between the same two VMs.
demo-message:
	scripts/setup demo
	$(CARGO) build --release --locked --package vicinity
	$(RUN) demo --messages

## make demo-mpi      Runs an MPI program in four VMs, on the message plane and over TCP.
demo-mpi:
	scripts/setup demo mpi
	$(CARGO) build --release --locked --package vicinity --package vicinity-myriexpress
	scripts/myriexpress target/release/libmyriexpress.a target/mpi
	$(MAKE) --directory mpi/openmpi BUILD=$(CURDIR)/target/mpi all
	mpicc -std=gnu11 -O2 mpi/openmpi/examples/figures.c -o target/mpi/figures
	$(RUN) demo --mpi

## make demo-sockets  Runs iperf3 and sockperf, unmodified, by AF_VSOCK and by TCP between two VMs.
demo-sockets:
	scripts/setup demo
	$(CARGO) build --release --locked --package vicinity
	$(MAKE) --directory guest/sockets BUILD=$(CURDIR)/target/sockets
	install $$(scripts/agent) target/sockets/vicinity-agent
	$(RUN) demo --sockets

## make selftest      Shows on VMs what works on this host, in at most ten minutes, and writes a report.
selftest:
	scripts/setup selftest
	$(CARGO) build --release --locked --package vicinity
	$(RUN) selftest

## make test          Runs all checks of CI: lints, dependencies, all tests with VMs, loom, short fuzzing.
# The agent is built where the tests look for it (tests/common).
test:
	@scripts/quietly setup scripts/setup test
	@scripts/quietly style $(MAKE) style
	@scripts/beside 'CARGO_TARGET_DIR=target/tmp/vms/agent scripts/quietly agent scripts/agent --profile dev && \
		scripts/quietly deny $(MAKE) deny && scripts/quietly loom $(MAKE) loom && \
		scripts/quietly fuzz-build scripts/fuzz build && scripts/quietly lint $(MAKE) clippy' \
		scripts/quietly unit $(MAKE) unit
	@scripts/quietly fuzz $(MAKE) fuzz

## make check         Runs rustfmt, clippy and the unit tests, without VMs, in some minutes.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- --deny warnings
	$(CARGO) test --workspace --locked --lib --bins

## make soak          Runs the long tests (four hours): hostile peers, forty VMs, kills, fuzzing.
soak:
	scripts/setup test lab
	scripts/checkpatch --fetch
	scripts/modules --fetch 6.12
	VICINITY_FUZZ_SECONDS=600 $(CARGO) test --release --locked --package vicinity-switch --test vhost_fuzz -- --nocapture
	VICINITY_SOAK_SECONDS=600 $(CARGO) test --release --locked --package vicinity-message --test hostile_member -- --nocapture for_long
	VICINITY_SOAK_SECONDS=600 $(CARGO) test --release --locked --package vicinity-mxoe --test network -- --nocapture corrupted_frames
	VICINITY_SOAK_SECONDS=600 $(CARGO) test --release --locked --package vicinity --test between_hosts -- --nocapture for_long
	VICINITY_SOAK_SECONDS=600 $(CARGO) test --release --locked --package vicinity-memory-plane --test hostile_clients -- --nocapture
	$(CARGO) test --release --locked --package vicinity-vhost --test waiting -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity-vsock --test device figures -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms -- --ignored --nocapture study
	$(CARGO) test --release --locked --package vicinity --test vms sixty_four_ports -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms two_workers -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms write_back_memory -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms a_vm_that_sends_nothing -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms eight_qemus -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms guarded_vms -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms c_programs_of_vms -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms programs_of_other_languages -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms openssh_scp -- --ignored --nocapture
	$(CARGO) install --quiet --locked --root target/tools vhost-device-vsock@0.3.0
	VHOST_DEVICE_VSOCK=$(CURDIR)/target/tools/bin/vhost-device-vsock $(CARGO) test --release --locked --package vicinity --test vms figures_of_af_vsock -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms direct_churn -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms as_many_vms -- --ignored --nocapture
	VICINITY_SOAK_SECONDS=3600 $(CARGO) test --release --locked --package vicinity --test page heap -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test libfabric -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test mpi -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms ranks_of_mpich -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms netpipe_and_hpc_challenge -- --ignored --nocapture
	$(CARGO) test --release --locked --package vicinity --test vms ranks_in_vms_of_two_hosts -- --ignored --nocapture
	VICINITY_KILLS=1000 $(CARGO) test --release --locked --package vicinity --test vms a_thousand_resets -- --nocapture
	scripts/fuzz 420

## make lab           Runs the papers' experiments at small scale on VMs, in about 15 minutes.
lab:
	scripts/setup demo lab
	$(CARGO) build --release --locked --package vicinity
	$(RUN) lab run --all --scale ci --output $(or $(OUTPUT),target/study/ci-$$(date -u +%Y%m%dT%H%M%SZ))

## make coverage      Measures the line coverage of crates/vhost; fails below 90 %.
coverage:
	scripts/coverage

## make bench         Measures all planes without VMs, in comparison with OVS-DPDK, UCX and nginx.
bench:
	scripts/setup demo bench
	$(CARGO) build --release --locked --package vicinity
	$(RUN) bench switch
	$(RUN) bench operate
	$(RUN) bench message
	$(RUN) bench uplink
	$(RUN) bench space

## make build         Builds the program in target/release.
build:
	$(CARGO) build --release --locked --package vicinity

## make deb           Builds the Debian packages in target/deb.
deb:
	scripts/setup test
	scripts/deb target/deb

## make lint          Runs rustfmt, clippy, rustdoc, checkpatch and the checks of spelling and prose.
lint: style clippy

# The checks that need no compiler.
style:
	$(CARGO) fmt --all --check
	scripts/checkpatch
	scripts/prose

# Warnings of the compiler, clippy and rustdoc are errors.
clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- --deny warnings
	RUSTDOCFLAGS="--deny warnings --allow rustdoc::private_intra_doc_links" $(CARGO) doc --workspace --no-deps --locked --document-private-items

## make deny          Checks licences, sources and known vulnerabilities of the dependencies.
deny:
	scripts/deny

## make unit          Runs all tests of the workspace, including those with VMs.
unit:
	$(CARGO) test --workspace --locked --no-fail-fast

## make loom          Runs the loom models: ring notifications, doorbells, FDB lock, ports that come and go.
loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --locked --target-dir target/loom $(LOOM_PROFILE) \
		$(foreach crate,$(LOOM_CRATES),--package $(crate)) --lib model

LOOM_CRATES := vicinity-vhost vicinity-window vicinity-switch
# What explores the models is optimized, and nothing else.
LOOM_PROFILE := --config profile.dev.opt-level=0 \
	$(foreach crate,loom generator $(LOOM_CRATES),--config profile.dev.package.$(crate).opt-level=3)

## make fuzz          Runs each fuzz target for five seconds.
fuzz:
	scripts/fuzz 5

## make clean         Removes the build products.
clean:
	$(CARGO) clean
