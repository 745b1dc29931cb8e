# The ways to build, check and run seglog. Each target does its own set-up; `make` alone lists them.
#
#   make test ARGS="-k wal"          further arguments to pytest
#   make demo FILE=app.log           the demo with this text
#   make bench NAME="append" ARGS="--json"
#   make soak PART=3                 one part of the long tests; without PART it lists them
#   make test SEGLOG_TEST_SEED=7     other random histories than those of seed 30
#   make setup PYTHON=/opt/python3   the Python to make .venv with

SHELL := /bin/sh
RUN := scripts/isolated.sh
# Three processes, a file of tests in one of them, in the order of tests/conftest.py. On two cores the third works while
# the others wait for a server, a daemon or Spark. `make test WORKERS=` is one process, as a debugger wants it.
WORKERS := -n 3 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup check format test test-all coverage slice nightly slices durations test-pythons test-pulsar test-spark test-minio test-iam test-streams test-http test-browser soak mutants demo bench bench-cli lock proto jar maven docs site clean

export SEGLOG_TEST_SEED

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-11s %s\n", $$1, $$2}'

setup: ## make .venv from requirements.lock; does nothing when it is current
	@scripts/setup.sh

check: setup ## lint, format, types, import contracts, generated files
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy
	$(RUN) python scripts/snippets.py build/snippets
	$(RUN) mypy --strict --config-file= build/snippets
	$(RUN) lint-imports
	$(RUN) python scripts/proto.py --check
	$(RUN) python scripts/jar.py --check
	$(RUN) python scripts/docs.py --check

format: setup ## put the code into its form, mend what ruff can mend
	$(RUN) ruff check --fix
	$(RUN) ruff format

test: setup ## the tests that a change has to pass: some minutes
	@$(RUN) env SEGLOG_TEST_SEED=$(or $(SEGLOG_TEST_SEED),30) python -m pytest -m "not long and not soak and not pulsar" $(WORKERS) $(ARGS)

test-all: setup ## all tests but the soak, group by group; GROUP=spark runs that one, GROUP=due those whose part changed
	@$(RUN) python -m tests.runs $(if $(filter due,$(GROUP)),due,group $(GROUP))

coverage: setup ## lines and branches of each package that make test and make test-all run together; takes an hour
	@rm -f build/coverage*
	@$(RUN) env SEGLOG_TEST_SEED=$(or $(SEGLOG_TEST_SEED),30) COVERAGE_RCFILE=$(CURDIR)/pyproject.toml \
	    python -m coverage run -m pytest -m "not soak and not pulsar" $(WORKERS) $(ARGS)
	@$(RUN) python -m coverage combine --quiet
	@for package in seglog catalog offload; do \
	    echo "$$package: $$($(RUN) python -m coverage report --include="$$package/*" | tail -1)"; \
	done

slice: setup ## the slice of the soak or of the mutants that has waited longest; NAME=word picks one
	@$(RUN) python -m tests.runs slice $(NAME)

nightly: setup ## such slices, the longest waiting first, until you stop it; MINUTES=30
	@$(RUN) python -m tests.runs nightly $(MINUTES)

slices: setup ## bring the list of slices up to date, in tests/last_run.json
	@$(RUN) python -m tests.runs list

durations: setup ## make tests/durations.json from what the last run of the tests took
	@cp build/durations.json tests/durations.json

test-pythons: setup ## what depends on the interpreter, on the newest Python that we name and on Debian's own; WHOLE=1 all of make test
	@WHOLE=$(WHOLE) scripts/pythons.sh $(ARGS)

test-pulsar: setup ## Apache Pulsar's own code reads our objects, and we read its; needs Maven, and a JDK
	@$(RUN) python -m pytest -m pulsar $(ARGS) tests/interop

test-spark: setup ## the tests of Spark's readers on another Spark: VERSION=3.5, 4.0, 4.1 or 4.2, which pip downloads
	@$(RUN) python -m tests.offload.spark.versions.other_spark $(VERSION)

test-minio: setup ## the tests that ask an S3 server, with MinIO for it; PART=9 those of that part of the soak
	@scripts/yardsticks.sh
	@$(RUN) env TESTS_MINIO="$$($(RUN) sh -c 'command -v minio')" \
	    python -m pytest -m "$(if $(PART),soak(part=$(PART)),not soak and not pulsar)" -k "s3 or http" $(WORKERS) $(ARGS) tests/catalog tests/cli tests/faults tests/offload tests/promises

test-iam: setup ## users with the policies of tenants, on MinIO: what each may do, and an attacker; PART=9 with Spark; PAGE=1 writes docs/internals/what-iam-allows.md; needs Go
	@scripts/minio.sh || echo "test-iam: its tests are skipped"
	@$(RUN) env TESTS_MINIO="$$($(RUN) sh -c 'command -v minio')" TESTS_MC="$$($(RUN) sh -c 'command -v mc')" \
	    python -m $(if $(PAGE),tests.iam.page,pytest -m "$(if $(PART),soak(part=$(PART)),not soak)" $(ARGS) tests/iam)

test-streams: setup ## the conformance suite of Durable Streams, which npm installed in SUITE=DIR
	@$(RUN) env TESTS_STREAMS="$(abspath $(SUITE))" python -m pytest -m soak $(ARGS) tests/offload/daemon/streams

test-http: setup ## thousands of calls that the OpenAPI document describes, right and wrong, to a running daemon
	@.venv/bin/python -m venv .venv/schemathesis
	@.venv/schemathesis/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/requirements-http.lock
	@$(RUN) env SEGLOG_TEST_SEED=$(or $(SEGLOG_TEST_SEED),30) TESTS_SCHEMATHESIS="$(CURDIR)/.venv/schemathesis/bin/st" \
	    python -m pytest -m soak $(ARGS) tests/offload/daemon/test_described_calls.py

test-browser: setup ## WebSocket and EventSource of a real Chromium, through a proxy that cuts them; CUTS=500; says so and skips without chromium on PATH
	@.venv/bin/python -m venv .venv/browser
	@.venv/browser/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/requirements-browser.lock
	@$(RUN) env SEGLOG_TEST_SEED=$(or $(SEGLOG_TEST_SEED),30) TESTS_CUTS=$(or $(CUTS),500) \
	    python -m pytest -m "long or soak" -rs $(ARGS) tests/offload/daemon/test_browser.py

soak: setup ## list the parts of the long tests; PART=n runs one, two processes at a time
ifdef PART
	@$(RUN) python -m pytest -m "soak(part=$(PART))" -n 2 --dist worksteal --maxschedchunk 1 $(ARGS)
else
	@$(RUN) python -m tests.work
endif

mutants: setup ## each of a list of mistakes, and the tests that must notice it; ARGS="commit" picks some
	@$(RUN) python -m tests.mutants $(ARGS)

demo: setup ## `seglog demo`: the whole way of a record, narrated, with Spark
	@$(RUN) seglog demo $${FILE:+-- "$$FILE"}
	@echo; echo "In this checkout, seglog is .venv/bin/seglog."

bench: setup ## every benchmark, or those in NAME; ARGS="--markdown" writes tables and charts
	@scripts/yardsticks.sh
	@$(RUN) python -m benchmarks $(or $(NAME),all) $(ARGS)

bench-cli: setup ## the CPU time of commands beside `python -c pass`, memory, requests; ARGS="--markdown" writes it down
	@$(RUN) python -m benchmarks cli cli-large $(ARGS)

lock: ## work out requirements.lock anew from pyproject.toml; ARGS="--upgrade" for newer versions
	@scripts/lock.sh $(ARGS)

proto: setup ## make catalog/schema_pb2.py and .pyi from schema.proto
	$(RUN) python scripts/proto.py

jar: setup ## make offload/spark/jvm/seglog-spark.jar from the Java sources, for all versions of Spark; needs a JDK and Maven
	$(RUN) python scripts/jar.py

maven: setup ## write build/maven, a Maven repository with the jar, a pom and the sources, for spark-submit --packages
	@$(RUN) python -m scripts.maven

docs: setup ## make the generated parts of docs/
	$(RUN) python scripts/docs.py

site: setup ## build the documentation site in build/site/html, with search and without a network
	@.venv/bin/python -m venv .venv/site
	@.venv/site/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r scripts/requirements-site.lock
	@$(RUN) python scripts/website.py "$(CURDIR)/.venv/site/bin/zensical"

clean: ## remove caches, build output and the demo's data; .venv stays
	rm -rf build dist tests/interop/pulsar/target demo-data spark-warehouse metastore_db derby.log *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name .venv -prune -o -name .git -prune -o -type d -name __pycache__ -exec rm -rf {} +
