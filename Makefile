# Every target makes the virtual environment it needs. `make` alone lists the targets.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

# What an environment was made from: when these files change, pip runs again.
SOURCES := pyproject.toml $(wildcard constraints.txt) hatch_build.py $(wildcard platform/millrace/kernel/*.[ch]) \
	platform/millrace/kernel/build.py ops/millrace_tools/message_types.py \
	$(addprefix platform/millrace/wire/,api.py controller_apis.py kio_schemas.py)
# At a terminal pip draws its progress.
QUIET := $(if $(MAKE_TERMOUT),,--quiet)
CONSTRAINTS := $(if $(wildcard constraints.txt),-c constraints.txt)

.DEFAULT_GOAL := help
# Tests start over a thousand Python processes, and each would compile Millrace's modules again.
unexport PYTHONDONTWRITEBYTECODE
# Two processes for each core and one more (tests/conftest.py), five at most, each with a file of tests at a time; ARGS="-n 0" for one.
PROCESSES := -n auto --maxprocesses 5 --dist loadfile --no-loadscope-reorder
# Apache Kafka's versions that tests and benchmarks compare with: folder and version.
KAFKA_3.9 := 3.9.1
KAFKA_4.1 := 4.1.1
PEERS := $(patsubst %,.peers/%/.complete,kafka-3.9 kafka-4.1 mirrormaker2 spark-kafka spark-delta spark-s3)

ARCHIVES := $(VENV)/spark-classes.jsa $(VENV)/zookeeper-classes.jsa

.PHONY: archive help hive iceberg iceberg-connect demo up test test-all unit newest-dagster browser chromium prometheus soak lint docs bench dist dist-other release peers \
	peers-if-possible stores venv clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-all ## A year of flights from a producer into a warehouse table, under Dagster
	@$(BIN)/millrace demo $(ARGS)

up: $(VENV)/.installed-all ## ZooKeeper, broker and Dagster until Ctrl-C; ARGS="--dir DIR" for its state
	@$(BIN)/millrace up $(ARGS)

test: $(VENV)/.installed-dev $(ARCHIVES) peers-if-possible ## The proof (tests/proof.txt), ten minutes on two cores; ARGS="-k word" for some of it
	$(BIN)/python -m pytest $(PROCESSES) --proof $(ARGS)

test-all: $(VENV)/.installed-dev $(ARCHIVES) peers-if-possible ## All tests, half an hour on two cores; ARGS="-k word" for some
	$(BIN)/python -m pytest $(PROCESSES) $(ARGS)

# In an environment of their own, made quickly and a sixth as large.
LIGHT := .venv-unit
UNIT := tests/unit/platform tests/unit/broker tests/unit/support tests/unit/test_house_rules.py

unit: ## Ruff, and unit tests of platform and broker: a minute, without Spark and Dagster; ARGS="tests/unit/broker/net" for some
	@$(MAKE) --no-print-directory VENV=$(LIGHT) $(LIGHT)/.installed-unit
	$(LIGHT)/bin/ruff check --quiet
	$(LIGHT)/bin/python -m pytest $(PROCESSES) $(if $(filter tests/%,$(ARGS)),,$(UNIT)) $(ARGS)

# Dagster's packages of one release; pip then says that it is newer than pyproject.toml allows, where it is.
NEWEST := .venv-newest
DAGSTER := dagster dagster-pipes dagster-webserver dagster-graphql dagster-dg-cli dagster-postgres
DAGSTER_TESTS := tests/unit/pipelines/test_dagster_internals.py tests/unit/pipelines/declaration tests/unit/pipelines/defs \
	$(sort $(wildcard tests/integration/test_dagster_*.py)) tests/integration/test_up.py

newest-dagster: ## The tests of Dagster's side with its newest release, whatever pyproject.toml allows
	@$(MAKE) --no-print-directory VENV=$(NEWEST) $(NEWEST)/.installed-dev
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade $(DAGSTER)
	$(NEWEST)/bin/python -m pytest $(PROCESSES) $(DAGSTER_TESTS) $(ARGS)

browser: $(VENV)/.installed-dev $(ARCHIVES) chromium ## Clicks through the pages of the console and of Dagster in Debian's Chromium
	$(BIN)/python -m pytest -rs tests/integration/test_console_browser.py tests/integration/test_dagster_browser.py $(ARGS)

chromium:
	@command -v "$${MILLRACE_CHROMIUM:-chromium}" >/dev/null || \
		{ apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends chromium fonts-liberation; } || \
		{ echo "make browser needs Chromium: root installs Debian's package chromium, or MILLRACE_CHROMIUM names one."; \
		  exit 1; }

prometheus: $(VENV)/.installed-dev ## Tries dashboards, alert rules and ten faults in Debian's Prometheus
	@{ command -v promtool && command -v prometheus-node-exporter; } >/dev/null || \
		{ apt-get update --quiet && \
		  apt-get install --quiet --yes --no-install-recommends prometheus prometheus-node-exporter; } || \
		{ echo "make prometheus needs Debian's packages prometheus and prometheus-node-exporter, which root installs."; exit 1; }
	MILLRACE_MINUTE_S=0.5 $(BIN)/python -m pytest -rs tests/integration/test_alert_rules.py \
		tests/integration/test_dashboards.py tests/integration/test_ten_faults.py $(ARGS)

soak: $(VENV)/.installed-dev ## The long forms of the tests of storage, requests and loads, an hour or more; says what they did
	$(BIN)/python -m pytest -m soak --soak --timeout 900 $(ARGS)

lint: $(VENV)/.installed-dev ## ruff, mypy and the layer contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.installed-docs ## The documentation as a site, in build/docs/site; any fault of a page or a link ends it
	@$(BIN)/python -m millrace_tools.docs_site

bench: $(VENV)/.installed-dev ## Rates beside yardsticks of the same run; ARGS="produce" for one
	@$(BIN)/millrace bench $(ARGS)

peers: $(PEERS) ## Apache Kafka's jars and mirror, Spark's Kafka source, Delta Lake and client of S3, as judges (needs Maven's mvn)

peers-if-possible:
	@if command -v mvn >/dev/null; then $(MAKE) --no-print-directory peers || \
		echo "Apache Kafka's jars could not be brought: the tests that need them are skipped."; fi

# Judges of Iceberg tables: Spark's runtime needs Spark 4.1, and PyPI has DuckDB's extension for 1.5.
ICEBERG_SPARK := pyspark==4.1.4
ICEBERG_DUCKDB := duckdb==1.5.5 duckdb-extension-iceberg==1.5.5 duckdb-extension-avro==1.5.5

iceberg: .peers/iceberg/.complete ## Spark 4.1 with Iceberg's runtime, its REST catalog, and DuckDB's extension, as judges (needs Maven's mvn)

.peers/iceberg/.complete: tests/peers/iceberg/pom.xml tests/peers/iceberg-rest/pom.xml | $(VENV)/.installed-dev
	mvn --batch-mode --quiet --file $< package -Dpeers.directory=$(CURDIR)/$(@D)/libs
	mvn --batch-mode --quiet --file tests/peers/iceberg-rest/pom.xml package -Dpeers.directory=$(CURDIR)/$(@D)/rest
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(@D)/pyspark $(ICEBERG_SPARK)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(@D)/duckdb $(ICEBERG_DUCKDB)
	@touch $@

hive: .peers/hive/.complete ## Hive's metastore, in which tests find tables (needs Maven's mvn, and Postgres beside it)

iceberg-connect: .peers/iceberg-connect/.complete ## Iceberg's sink for Kafka Connect, beside which `bench` measures loads (needs Maven's mvn)

# Servers that stand in for stores of tables, and their versions.
AZURITE := 3.37.0
FAKE_GCS := v1.56.1
MINIO := v0.0.0-20260212201848-7aac2a2c5b7c
STORES := $(patsubst %,.peers/stores-%/.complete,azure gcs hdfs minio)

stores: $(STORES) ## MinIO, fake-gcs-server, Azurite and Hadoop's MiniDFS, in which tests keep tables (needs go, npm and Maven's mvn)

.peers/stores-gcs/.complete:
	GOBIN=$(CURDIR)/$(@D) go install github.com/fsouza/fake-gcs-server@$(FAKE_GCS)
	@touch $@

.peers/stores-minio/.complete:
	GOBIN=$(CURDIR)/$(@D) go install github.com/minio/minio@$(MINIO)
	@touch $@

.peers/stores-azure/.complete:
	npm install --silent --no-audit --no-fund --no-save --prefix $(@D) azurite@$(AZURITE)
	@touch $@

.peers/kafka-%/.complete: tests/peers/pom.xml | $(VENV)/.installed-dev
	@command -v mvn >/dev/null || \
		{ echo "make peers needs Maven (the program mvn, in Debian's package maven) and Java 17."; exit 1; }
	mvn --batch-mode --quiet --file $< package -Dkafka.version=$(KAFKA_$*) -Dpeers.directory=$(CURDIR)/$(@D)/libs
	PYTHONPATH=tests/support $(BIN)/python -m millrace_support.class_archives kafka $*
	@touch $@

POMS := hive iceberg-connect mirrormaker2 spark-delta spark-s3 stores-hdfs
$(patsubst %,.peers/%/.complete,$(POMS)): .peers/%/.complete: tests/peers/%/pom.xml
	mvn --batch-mode --quiet --file $< package -Dpeers.directory=$(CURDIR)/$(@D)/libs
	@touch $@

# The classes of a load and of ZooKeeper, with which the JVMs of tests start in two thirds of the time.
$(VENV)/%-classes.jsa: tests/support/millrace_support/class_archives.py $(VENV)/.installed-dev
	PYTHONPATH=tests/support $(BIN)/python -m millrace_support.class_archives $* $@

# Spark's own Kafka source, and what it needs of a jar that no registry has, compiled by the compiler that PySpark carries.
.peers/spark-kafka/.complete: tests/peers/spark-kafka/pom.xml tests/peers/spark-kafka/NoTokens.scala | $(VENV)/.installed-dev
	mvn --batch-mode --quiet --file $< package -Dpeers.directory=$(CURDIR)/$(@D)/libs
	jars="$$($(BIN)/python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "jars")')/*" && \
		java -cp "$$jars" scala.tools.nsc.Main -nobootcp -classpath "$$jars" -d $(@D)/libs/no-tokens.jar \
			tests/peers/spark-kafka/NoTokens.scala
	@touch $@

archive: $(VENV)/.installed-pipelines ## build/executors.tar.gz: a Python with Millrace for Spark's executors (docs/spark-clusters.md)
	@mkdir -p build
	@$(BIN)/millrace warehouse pack build/executors.tar.gz

dist: $(VENV)/.installed-dev ## Source archive and wheels in dist/: with the compiled kernel for Linux, and without it for all
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	for wheel in dist/*-linux_*.whl; do test ! -e "$$wheel" || { PATH="$(CURDIR)/$(BIN):$$PATH" \
		$(BIN)/auditwheel repair --wheel-dir dist "$$wheel" && rm "$$wheel"; } || exit 1; done
	MILLRACE_NO_KERNEL=1 $(BIN)/python -m hatchling build -t wheel -d dist

# The kernel for the other common architecture (x86_64 or aarch64), by a compiler that brings its C library.
OTHER := $(if $(filter x86_64,$(shell uname -m)),aarch64,x86_64)
OTHER_COMPILER := $(CURDIR)/$(BIN)/python -m ziglang cc -target $(OTHER)-linux-gnu.2.17

dist-other: $(VENV)/.installed-release dist
	CC="$(OTHER_COMPILER)" _PYTHON_HOST_PLATFORM=linux-$(OTHER) $(BIN)/python -m hatchling build -t wheel -d dist
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist dist/*-linux_$(OTHER).whl
	rm dist/*-linux_$(OTHER).whl
	$(BIN)/python -m millrace.kernel.build  # the build has left the other architecture's kernel here

# An environment as a user of all extras gets it, for the bill of materials and the licences.
RELEASED := build/release
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' platform/millrace/version.py)
NOTES ?=

release: $(VENV)/.installed-release dist-other ## dist/ with all that a release has, each part checked; NOTES=--unreleased to try it
	$(BIN)/python -m millrace_tools.release.notes CHANGELOG.md $(NOTES) > dist/release-notes.md
	$(BIN)/abi3audit --strict dist/*-abi3-*.whl
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/python -m millrace_tools.release.smoke dist/*-abi3-*_$$(uname -m).whl $(CONSTRAINTS)
	rm -rf $(RELEASED) && $(PYTHON) -m venv $(RELEASED)
	$(RELEASED)/bin/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS) "$$(echo dist/*-abi3-*_$$(uname -m).whl)[all]"
	$(BIN)/pip-licenses --python $(RELEASED)/bin/python --output-file dist/licenses.json
	sed 's/^dynamic = .*/version = "$(VERSION)"/' pyproject.toml > $(RELEASED)/pyproject.toml  # the tool looks for it there
	$(BIN)/cyclonedx-py environment --pyproject $(RELEASED)/pyproject.toml --output-reproducible \
		--output-file dist/millrace-log-$(VERSION).cdx.json $(RELEASED)/bin/python
	cd dist && sha256sum *.whl *.tar.gz *.json > SHA256SUMS

venv: $(VENV)/.installed-dev

clean:
	rm -rf $(VENV) $(LIGHT) $(NEWEST)

$(VENV)/.installed-%: $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Millrace needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1);" \
		       "name another one: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip uninstall -qq --yes millrace  # what the distribution millrace-log was called before
	$(BIN)/python -m pip install $(QUIET) --disable-pip-version-check $(CONSTRAINTS) -e '.[$*]'
	@$(BIN)/python -m millrace.kernel
	@test $* = unit || $(BIN)/python -c 'from millrace.java import find_java; find_java()' 2>/dev/null || \
		$(BIN)/python -m pip install $(QUIET) --disable-pip-version-check $(CONSTRAINTS) -e '.[java]'
	@touch $@
