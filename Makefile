# EventLoop: the same commands for people and for CI.
#
#   make run           build and run the demo
#   make test          build and run the test suite, with a limit of TEST_MINUTES=45
#   make check         what to run before each commit: lint, spelling, debug build, and the suite without its exhaustive parts
#   make test-tsan     the test suite under ThreadSanitizer; only suites with these tags: TAGS="threads lifetimes"
#   make test-asan     the same under AddressSanitizer, with leak detection where the platform has it
#   make test-libraries test together with other libraries, in C and in Swift: install them, and run the tests in Examples
#   make test-nio      the part of test-libraries for SwiftNIO: each version that can be had, Hummingbird, and Hummingbird's own tests
#   make handover      replace servers under load, eight times for 10,000 clients, and fail if a client is lost (HANDOVER_CLIENTS=10000)
#   make flood         send a million datagrams as fast as possible, and fail if one is lost that the kernel does not count (FLOOD=1000000)
#   make test-libevent-regress   libevent's own regression tests on run loops; needs Debian or Ubuntu (TESTS="http/basic main/fork")
#   make test-libevent-versions  the test suite with other versions of libevent (LIBEVENTS="/opt/libevent-2.2 --source-package")
#   make test-pictures use the pages of recordings in a browser without a window (installs chromium)
#   make page          embed the page of recordings in the library, after a change of its files in Sources/EventLoopObserving/Pictures/Page
#   make pictures      make the pictures of docs/observing.md again, in docs/images
#   make build         debug build
#   make release       release build; a warning is an error
#   make perf          measure speed against other run loops, and how costs grow: a table, and charts in .build/perf.html
#   make perf-peers    the same against SwiftNIO, libuv, libev and GLib as well, in a package of its own
#   make perf-check    count allocations, system calls, instructions and cache misses, and fail if one exceeds its committed count
#   make perf-baseline update the committed counts
#   make fuzz          feed random input to what reads bytes of other processes, for a minute (FUZZ_SECONDS=600)
#   make fuzz-smoke    the same for thirty seconds
#   make models        check every interleaving of the protocols between threads, and that the checks find seeded faults
#   make fork-storm    fork a thousand times while every part of the library is busy (FORKS=1000)
#   make soak          use everything at once for half an hour, and fail if something grows or is lost (SOAK_SECONDS=1800)
#   make soak-smoke    the same for half a minute (SOAK_SMOKE_SECONDS=30)
#   make worlds        play all small worlds: every two actions from every callout, compared with a model and CFRunLoop (about half an hour)
#   make waits         check that every wait ends, whatever is ready: 44,000 combinations with each of epoll, poll and select (some minutes)
#   make simulations   run each part with 100,000 seeds, corrected programs with 10,000, and print what a simulation costs
#                      (PARTS="3 4" for the third and fourth tenth of the seeds)
#   make http-requests a server and its parser read 200,000 random requests as a plain definition reads them (HTTP_REQUESTS=200000); with
#                      SANITIZE=address all tests of the server, with leak detection
#   make test-faults   make each C library call fail with each of its errors, in every scenario: some minutes (FAULTS="--scenario ports")
#   make faults-smoke  a sample of these, in a minute or two
#   make docs          build the reference as pages in .build-docs/site; a public symbol without documentation fails
#   make api-check     fail if a public declaration differs from the committed ones (API), or is gone since the last version
#   make api-baseline  update the committed declarations
#   make format        rewrite the Swift sources in the house format
#   make lint          fail if `make format` or `make page` would change something, or if a format rule is broken
#   make spelling      check the spelling of the pages and of the comments in Sources
#   make ci            every check of CI, in its order
#   make ci-full       the same, with the long forms: the whole suite under both sanitizers, and every harness (a fifth of the simulations)
#   make clean         delete everything that these targets have built
#   make dependencies  install libevent and pkg-config if they are missing (every target that builds does this first)
#   make help          this list

SWIFT ?= swift

# Code built for a sanitizer cannot be mixed with other code, so each has its own folder.
TSAN_SCRATCH := .build-tsan
ASAN_SCRATCH := .build-asan

# Tests of fork start threads in the child, which ThreadSanitizer refuses by default.
TSAN_SETTINGS := die_after_fork=0

# The leak detector is part of AddressSanitizer on Linux. On macOS a program that is told to use it refuses to start.
ifeq ($(shell uname -s),Linux)
ASAN_SETTINGS := detect_leaks=1
else
ASAN_SETTINGS := detect_leaks=0
endif
LSAN_SETTINGS := suppressions=Scripts/lsan.supp:print_suppressions=0

# The sanitizers write into files, because their reports would be lost between the lines of a thousand tests. The paths are relative: the
# sanitizers split their options at spaces and colons, and the name of the checkout's folder may contain either. The tests run in that folder.
fail_with_reports = { code=$$?; cat $(1)/report.* 2>/dev/null; exit $$code; }

# `swift test` with a limit in minutes: if the suite hangs, it is killed, and the unfinished tests are named.
TEST_MINUTES ?= 45
RUN_TESTS = SWIFT="$(SWIFT)" TEST_MINUTES=$(TEST_MINUTES) Scripts/test

# Options of every build and test. CI needs no debug information, which takes a fifth of a build. An index it needs: SwiftPM finds the tests of
# XCTest in it.
BUILD_OPTIONS ?=
BUILD = $(SWIFT) build $(BUILD_OPTIONS)

.PHONY: help run test check test-tsan test-asan test-pictures page pictures test-libevent-regress test-libevent-versions test-libraries handover flood test-nio test-third-party build release perf perf-peers perf-check perf-baseline fuzz fuzz-smoke models test-faults faults-smoke fork-storm soak soak-smoke worlds waits simulations http-requests format lint spelling docs api-check api-baseline ci ci-full clean dependencies

help:
	@sed -n -e '/^#/!q' -e 's/^# \{0,1\}//p' Makefile

run: dependencies
	$(SWIFT) run eventloop-demo

# Building is not part of the tests' time limit.
test: dependencies
	$(BUILD) --build-tests
	$(RUN_TESTS)

# Compares long forms, starts programs, or reads the pages: make test has them.
EXHAUSTIVE := SmallWorldsTests|DifferentialTests|DocumentationTests|DemoTests|PerfTests|SimulationTests|ForkStormTests

check: lint spelling dependencies
	$(BUILD) --build-tests
	$(RUN_TESTS) --skip '$(EXHAUSTIVE)'

# Tags of suites; all suites if empty. Evaluated by the shell, because the pattern has back quotes. Package.swift reads the variable.
TAGS ?=
tagged = $(if $(TAGS),--filter "$$(Scripts/tagged $(TAGS))")
test-tsan test-asan: export EVENTLOOP_LEFT_OUT_TESTS = $(if $(TAGS),$(shell Scripts/tagged --left-out $(TAGS)))

test-tsan: dependencies
	$(BUILD) --build-tests --sanitize=thread --scratch-path $(TSAN_SCRATCH)
	rm -f $(TSAN_SCRATCH)/report.*
	TSAN_OPTIONS="$(TSAN_SETTINGS):log_path=$(TSAN_SCRATCH)/report:$$TSAN_OPTIONS" \
		$(RUN_TESTS) --sanitize=thread --scratch-path $(TSAN_SCRATCH) $(tagged) || $(call fail_with_reports,$(TSAN_SCRATCH))

test-asan: dependencies
	$(BUILD) --build-tests --sanitize=address --scratch-path $(ASAN_SCRATCH)
	rm -f $(ASAN_SCRATCH)/report.*
	ASAN_OPTIONS="$(ASAN_SETTINGS):log_path=$(ASAN_SCRATCH)/report:$$ASAN_OPTIONS" \
		LSAN_OPTIONS="$(LSAN_SETTINGS):$$LSAN_OPTIONS" \
		$(RUN_TESTS) --sanitize=address --scratch-path $(ASAN_SCRATCH) $(tagged) || $(call fail_with_reports,$(ASAN_SCRATCH))

# Names of libevent's tests; all of them if empty.
TESTS ?=

test-libevent-regress: dependencies
	SWIFT="$(SWIFT)" Scripts/test-libevent-regress $(TESTS)

# Folders that a libevent was installed into; --source-package is the distribution's source package.
LIBEVENTS ?= --source-package

test-libevent-versions: dependencies
	SWIFT="$(SWIFT)" Scripts/test-libevent-versions $(LIBEVENTS)

build: dependencies
	$(BUILD)

# A package of its own, because the main package needs libevent only.
test-libraries:
	Scripts/install-libraries
	Scripts/link-shared
	SWIFT="$(SWIFT)" Scripts/check-traits
	$(BUILD) --build-tests --package-path Examples
	$(RUN_TESTS) --package-path Examples
	$(MAKE) test-nio

# A package of its own, because it builds Hummingbird and all that is below it.
test-nio:
	Scripts/install-libraries
	Scripts/link-shared
	$(BUILD) --build-tests --package-path Examples/NIO
	$(RUN_TESTS) --package-path Examples/NIO
	SWIFT="$(SWIFT)" Scripts/test-nio-versions
	SWIFT="$(SWIFT)" Scripts/test-hummingbird

# Datagrams that come faster than they are received.
FLOOD ?= 1000000

flood: dependencies
	$(BUILD) --build-tests
	EVENTLOOP_FLOOD=$(FLOOD) $(RUN_TESTS) --filter EventLoopDatagramsTests.ReceivingTests

HANDOVER_CLIENTS ?= 10000

handover:
	$(BUILD) --build-tests --package-path Examples
	EVENTLOOP_HANDOVER_CLIENTS=$(HANDOVER_CLIENTS) $(RUN_TESTS) --package-path Examples --filter HandoverServerTests

# Other projects' code, moved by a script.
test-third-party:
	SWIFT="$(SWIFT)" Scripts/test-third-party

page:
	Scripts/embed-page

# The pages come from the test suite.
test-pictures: dependencies
	SWIFT="$(SWIFT)" Scripts/test-pictures

pictures: dependencies
	SWIFT="$(SWIFT)" Scripts/test-pictures --update-images

# Warnings are errors for the Swift compiler only: SwiftPM's own warnings about pkg-config files depend on the machine.
release: dependencies
	$(BUILD) --configuration release -Xswiftc -warnings-as-errors

# Options for eventloop-perf: make perf PERF="--quick --filter W1"
PERF ?=

# Must be the build of `release`: other flags would rebuild everything.
perf: release
	.build/release/eventloop-perf --chart .build/perf.html --json .build/perf.json $(PERF)

# Without wrk, W16 is left out.
perf-peers: dependencies
	Scripts/install-tool wrk wrk || true
	Scripts/link-shared
	$(BUILD) --package-path Benchmarks --configuration release
	mkdir -p .build
	Benchmarks/.build/release/eventloop-peers --chart .build/perf.html --json .build/perf.json $(PERF)

perf-check: release
	.build/release/eventloop-perf --counts --check Benchmarks/Baselines/counts.txt $(PERF)
	Scripts/count-instructions --check Benchmarks/Baselines/instructions.txt
	Scripts/count-cache-misses --check Benchmarks/Baselines/cache-misses.txt

perf-baseline: release
	.build/release/eventloop-perf --counts --write-baseline Benchmarks/Baselines/counts.txt
	Scripts/count-instructions --write Benchmarks/Baselines/instructions.txt
	Scripts/count-cache-misses --write Benchmarks/Baselines/cache-misses.txt

# libFuzzer comes with the toolchain, and the decoder needs nothing else.
FUZZ_SECONDS ?= 60

fuzz:
	Scripts/fuzz $(FUZZ_SECONDS)

fuzz-smoke:
	Scripts/fuzz 30

# Needs neither Swift nor libevent: spin and a C compiler.
models:
	Scripts/check-models

SOAK_SECONDS ?= 1800

FORKS ?= 1000

fork-storm: dependencies
	EVENTLOOP_FORKS=$(FORKS) $(RUN_TESTS) --filter 'ForkStormTests|ForkedStreamTests'

soak: release
	.build/release/eventloop-soak --seconds $(SOAK_SECONDS)

SOAK_SMOKE_SECONDS ?= 30

soak-smoke: release
	.build/release/eventloop-soak --seconds $(SOAK_SMOKE_SECONDS)

# The short form is part of the test suite.
worlds: dependencies
	SMALL_WORLDS=long $(RUN_TESTS) --filter SmallWorldsTests

# The short form is part of the test suite.
waits: dependencies
	EVENTLOOP_ALL_WAITS=1 $(RUN_TESTS) --filter WaitsThatEndTests

# Needs what test-libraries installs.
HTTP_REQUESTS ?= 200000
SANITIZE ?=
SANITIZED_SCRATCH = .build-examples-$(SANITIZE)
# SwiftPM runs these tests in the folder Examples, and takes paths of its options from here.
SANITIZED_SETTINGS = log_path=../$(SANITIZED_SCRATCH)/report

http-requests: dependencies
ifeq ($(SANITIZE),)
	EVENTLOOP_HTTP_REQUESTS=$(HTTP_REQUESTS) $(RUN_TESTS) --package-path Examples --filter RandomRequestTests
else
	Scripts/link-shared
	$(BUILD) --build-tests --sanitize=$(SANITIZE) --package-path Examples --scratch-path $(SANITIZED_SCRATCH)
	rm -f $(SANITIZED_SCRATCH)/report.*
	TSAN_OPTIONS="$(TSAN_SETTINGS):$(SANITIZED_SETTINGS):$$TSAN_OPTIONS" \
		ASAN_OPTIONS="$(ASAN_SETTINGS):$(SANITIZED_SETTINGS):$$ASAN_OPTIONS" \
		LSAN_OPTIONS="suppressions=../Scripts/lsan.supp:print_suppressions=0:$$LSAN_OPTIONS" EVENTLOOP_HTTP_REQUESTS=$(HTTP_REQUESTS) \
		$(RUN_TESTS) --sanitize=$(SANITIZE) --package-path Examples --scratch-path $(SANITIZED_SCRATCH) --filter HTTPTests \
		|| $(call fail_with_reports,$(SANITIZED_SCRATCH))
endif

# The tenths of the seeds.
PARTS ?= 1 2 3 4 5 6 7 8 9 10

# The short form is part of the test suite.
simulations: dependencies
	$(BUILD) --build-tests
	echo $(PARTS) | xargs -n 1 -P "$$(getconf _NPROCESSORS_ONLN)" sh -c \
		'EVENTLOOP_LONG_SIMULATIONS=$$1 $(RUN_TESTS) --skip-build --ignore-lock --filter EventLoopSimulationTests --skip SpeedTests' part
	EVENTLOOP_LONG_SIMULATIONS=1 $(RUN_TESTS) --filter EventLoopSimulationTests.SpeedTests

# Options for eventloop-fault-probe.
FAULTS ?=

# A process for each scenario, as many at once as there are processors: most cases wait. xargs fails if one of them does.
test-faults: dependencies
	$(BUILD) --product eventloop-fault-probe
	.build/debug/eventloop-fault-probe limits
	.build/debug/eventloop-fault-probe full
	.build/debug/eventloop-fault-probe scenarios $(FAULTS) | xargs -P "$$(getconf _NPROCESSORS_ONLN)" -I '{}' \
		.build/debug/eventloop-fault-probe faults $(FAULTS) --scenario '{}'

faults-smoke: dependencies
	$(BUILD) --product eventloop-fault-probe
	.build/debug/eventloop-fault-probe faults --sample $(FAULTS)

# The three use one build, with the traits that Scripts/symbol-graphs enables.
docs:
	SWIFT="$(SWIFT)" Scripts/make-docs

api-check:
	SWIFT="$(SWIFT)" Scripts/check-api

api-baseline:
	SWIFT="$(SWIFT)" Scripts/check-api --write

# Both search the folder themselves and skip hidden folders, including the build folders.
format:
	$(SWIFT) format --in-place --recursive --parallel .

lint:
	Scripts/embed-page --check
	$(SWIFT) format lint --strict --recursive --parallel .

# Installs a dictionary if there is none.
spelling:
	Scripts/check-spelling

ci:
	.ci/run

ci-full:
	.ci/run --full

clean:
	rm -rf .build .build-docs .build-third-party .build-libevent-* .build-examples-* Benchmarks/.build Examples/.build Examples/NIO/.build $(TSAN_SCRATCH) $(ASAN_SCRATCH)

dependencies:
	@Scripts/install-dependencies
