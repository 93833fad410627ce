# `make` lists the targets. `make test` and `make demo` do all set-up themselves; what they cannot install they name.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# With the variable, each of the many Python processes would compile the sources again: of the tests, too
unexport PYTHONDONTWRITEBYTECODE
# Spark's workers would otherwise be whatever `python3` is first on the path
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done || true)
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# Maven is done before a second compiler would pay
MVN := MAVEN_OPTS='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' mvn -q -B -ntp -Dstyle.color=never
MAVEN := $(MVN) -f jars/pom.xml
# the helper, and the Spark source that uses it
MAVEN_BOTH := $(MVN) -f jars/reactor.xml
SEED ?= $(shell date +%s)

# What a target is made of. A second run finds these newer than their sources and does nothing.
PYTHON_READY := $(VENV)/.installed
PACKAGE_JARS := connector/aeron_spark/jars
JARS_READY := $(PACKAGE_JARS)/aeron-spark-helper.jar
DELTA_READY := jars/target/delta.verified
# Java's class data for the tests, whose many JVMs start in half the time with it
CLASS_DATA := jars/target/classes.jsa
PEERS_READY := jars/target/peers.verified
JAVA_SOURCES := $(shell find jars/src/main jars/spark/src/main -type f 2>/dev/null)
# `make test PARALLEL=` runs one test after the other
PARALLEL := yes
# `make bench ONLY=reading` runs one part of the benchmarks, and QUICK=yes all with tiny sizes
ONLY :=
QUICK :=
BENCH_OPTIONS :=
# `make check ALL=yes` runs the tests without a JVM of all packages
ALL :=
# which tests run; test-full takes those marked `full`, too, and check leaves out those marked `slow`
MARKS := not soak and not full and not peers
# in the command: TESTS='tests/net -k loss' runs these alone, ORDER=random in random order, ARGS=... goes to pytest
TESTS ?=
ORDER ?= written
ARGS ?=
# --any: no limit for the CPU seconds of all tests together. In a random order, shared set-ups start more often
CPU_SUM := $(if $(filter random,$(ORDER)),--any)
# the seed that chooses the tests marked `sampled`, a tenth of them; empty: all
SAMPLE ?= $(shell date +%s)
OPTIONS = -m '$(MARKS)' $(if $(filter random,$(ORDER)),-p randomly) $(if $(TESTS),,$(SAMPLE:%=--sample=%)) $(ARGS)
SUBMAKE := $(MAKE) --no-print-directory
BESIDE = --beside '$(SUBMAKE) lint' --beside '$(SUBMAKE) java-test'
SUITES = $(BIN)/python -m tests.suites $(if $(PARALLEL),,--serial)

.PHONY: help setup jars check lint java-test test test-full test-peers demo soak bench docs site wheel release test-matrix clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## virtual environment, Python packages, jars
	@# pip and Maven at the same time: both wait much for downloads and for the disk
	@$(SUBMAKE) -j 2 --output-sync=line $(PYTHON_READY) $(JARS_READY) $(DELTA_READY)
	@$(SUBMAKE) $(CLASS_DATA)

$(PYTHON_READY): setup.cfg pyproject.toml constraints.txt
	@PYTHON="$(PYTHON)" .ci/require python
	@# not $(PYTHON): the line above may just have installed it
	@test -x $(BIN)/python || { python="$(PYTHON)"; "$${python:-python3}" -m venv $(VENV); }
	@echo "installing Python packages into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

jars: $(JARS_READY) $(DELTA_READY)  ## Aeron, the Java helper and the Spark source into the package, Delta for Spark

$(JARS_READY): jars/pom.xml jars/reactor.xml jars/spark/pom.xml jars/checksums.sha256 $(JAVA_SOURCES)
	@.ci/require java maven
	@echo "building the Java helper and the Spark source"
	@rm -rf jars/target/package jars/target/spark
	@$(MAVEN_BOTH) package -Dpackage.jars='$(CURDIR)/jars/target/package'
	@.ci/verify-jars jars/target/package
	@.ci/verify-jars jars/target/spark
	@mkdir -p $(PACKAGE_JARS)/spark
	@# each in one step, so that nobody who starts a JVM meanwhile meets half a jar; the helper last: make looks at it
	@mv -f jars/target/package/spark/aeron-spark-jvm.jar $(PACKAGE_JARS)/spark/
	@for jar in jars/target/package/aeron-all-*.jar jars/target/package/aeron-spark-helper.jar; do \
		mv -f "$$jar" $(PACKAGE_JARS)/; touch "$(PACKAGE_JARS)/$${jar##*/}"; done
	@# another version, left by an earlier build, would be on the class path, too
	@for jar in $(PACKAGE_JARS)/aeron-all-*.jar; do \
		grep -q "  $${jar##*/}\$$" jars/checksums.sha256 || rm -f "$$jar"; done

# One Maven at a time: two would fill the same empty repository
$(DELTA_READY): jars/pom.xml jars/checksums.sha256 | $(JARS_READY)
	@.ci/require java maven
	@echo "fetching Delta Lake for Spark"
	@rm -rf jars/target/delta.new
	@$(MAVEN) -P delta generate-resources -Ddelta.jars='$(CURDIR)/jars/target/delta.new'
	@.ci/verify-jars jars/target/delta.new
	@rm -rf jars/target/delta && mv jars/target/delta.new jars/target/delta
	@touch $@

$(CLASS_DATA): $(JARS_READY) $(PYTHON_READY) tests/class_data.py
	@rm -f $@
	@# without the data the tests only take longer: another Java may refuse to write it
	@$(BIN)/python -m tests.class_data $@ || echo "no class data: Java starts slowly in the tests"

$(PEERS_READY): jars/peers.xml jars/checksums.sha256
	@.ci/require java maven
	@echo "fetching Kafka and sbe-tool, with which the benchmarks compare"
	@rm -rf jars/target/peers.new
	@for profile in broker spark-kafka sbe-tool; do \
		$(MVN) -f jars/peers.xml -P $$profile generate-resources \
			-Dpeer.jars='$(CURDIR)/jars/target/peers.new/'$$profile; \
		.ci/verify-jars jars/target/peers.new/$$profile; done
	@rm -rf jars/target/peers && mv jars/target/peers.new jars/target/peers
	@touch $@

lint: $(PYTHON_READY)  ## format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: MARKS := not soak and not full and not peers and not slow
check: BESIDE = --beside '$(SUBMAKE) lint'
check: $(PYTHON_READY)  ## the fast loop: lint, and the quick tests without a JVM that the change can break; ALL=yes runs all of them
	@$(SUITES) --any --unit $(if $(ALL),,--changed) $(BESIDE) -- $(OPTIONS) --hypothesis-profile=quick --cpu-limit=0.5

java-test: $(JARS_READY)  ## the tests of the Java helper, of the guard and of the Spark source, without a driver
	$(MAVEN_BOTH) -P tests test

test: setup  ## what CI runs: lint, the Java tests, the tests without a JVM, and those with real Aeron and Spark
	@.ci/require namespaces tmux
	@$(SUITES) $(CPU_SUM) $(if $(TESTS),--only '$(TESTS)',$(BESIDE)) -- $(OPTIONS)

test-full: MARKS := not soak and not peers
test-full: CPU_SUM := --any
test-full: SAMPLE :=
test-full: test  ## everything that is not minutes of random kills: test, and the tests marked `full`

test-peers: peer-compilers setup  ## publishers in Go and Rust, and Aeron's C media driver, with aeron-spark; needs Go and Rust
	@$(PIP) install -c constraints.txt -e '.[peers]'
	@tests/peers/build
	$(BIN)/python -m pytest -m peers --cpu-limit=0 $(ARGS) tests/peers

.PHONY: peer-compilers
peer-compilers:
	@.ci/require c-compiler libbsd go rust

demo: setup  ## real flights through Aeron and Spark into Delta, and back; then behind a NAT, through a secure server
	$(BIN)/python -m demo

soak: setup  ## the long forms of the tests, from a printed seed (SEED=... repeats one)
	@.ci/require namespaces tmux
	@echo "seed: $(SEED)   (repeat with: make soak SEED=$(SEED))"
	AERON_SPARK_SEED=$(SEED) $(BIN)/python -m pytest -m soak -s --hypothesis-seed=$(SEED) tests

bench: setup $(PEERS_READY)  ## the benchmarks, against real peers in one run; ONLY=name runs one part, QUICK=yes tiny sizes
	$(BIN)/python -m benchmarks $(ONLY:%=--only %) $(if $(QUICK),--quick) $(BENCH_OPTIONS)

docs: $(PYTHON_READY)  ## write what docs/ has of the code's own tables: options, commands, events, stream requests, the endpoint, promises
	@mkdir -p docs
	$(BIN)/python -m tools.options_page > docs/options.md.new
	@mv docs/options.md.new docs/options.md
	$(BIN)/python -m tools.keyword_source > keywords.py.new
	@mv keywords.py.new connector/aeron_spark/options/keywords.py
	$(BIN)/python -m tools.java_options > options.json.new
	@mv options.json.new jars/spark/src/main/resources/io/aeronspark/spark/options.json
	$(BIN)/python -m tools.command_page docs
	$(BIN)/python -m tools.event_page > docs/events.md.new
	@mv docs/events.md.new docs/events.md
	$(BIN)/python -m tools.stream_request_page > docs/stream-requests.md.new
	@mv docs/stream-requests.md.new docs/stream-requests.md
	$(BIN)/python -m tools.stream_request_page --json > docs/stream-requests.json.new
	@mv docs/stream-requests.json.new docs/stream-requests.json
	$(BIN)/python -m tools.protocol_page
	$(BIN)/python -m tests.promises > docs/promises.md.new
	@mv docs/promises.md.new docs/promises.md

site: $(PYTHON_READY)  ## the pages as a site in site/html, in the order of reading; a warning, such as a broken link, is an error
	@$(PIP) install -c constraints.txt -e '.[site]'
	$(BIN)/sphinx-build -q -W --keep-going -b html -c site -d site/.doctrees . site/html

wheel: $(PYTHON_READY) $(JARS_READY)  ## dist/*.whl, which carries its jars
	@rm -rf build dist
	$(BIN)/python -m build --wheel --no-isolation
	@rm -rf build

release: $(PYTHON_READY) $(JARS_READY)  ## wheel, sdist, SBOM and checksums of the last commit in dist/, built twice and tried
	$(BIN)/python -m tools.release dist

test-matrix: $(JARS_READY) $(PYTHON_READY)  ## the promises of the README's table with each Spark, Python and Java; ONLY=4.1.4 runs some
	@.ci/require namespaces
	$(BIN)/python -m tools.matrix $(ONLY)

clean:  ## remove what was built, and the virtual environment
	rm -rf $(VENV) .matrix build dist jars/target $(PACKAGE_JARS) demo-output benchmark-output site/html site/.doctrees tests/peers/built
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -maxdepth 2 -name '*.egg-info' -type d -prune -exec rm -rf {} +
