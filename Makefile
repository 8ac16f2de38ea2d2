# Tidemark's entry points. A machine with Python >= 3.11 and make is enough.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
PYTEST_ARGS ?=
# File by file on two workers, in order: what takes long (crash, integration) comes first.
IN_PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup s3a kafka pipelines demo test lint bench soak lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with everything Tidemark needs (PYTHON=... picks the Python)
	@scripts/java.sh $(VENV)
	@scripts/classes.sh $(VENV)

# PYTHON reaches the script only when given, so that the script's own list is the default.
$(STAMP): requirements/runtime.txt requirements/dev.txt pyproject.toml
	@python=$$($(if $(PYTHON),PYTHON='$(PYTHON)') scripts/find-python.sh) && \
	    echo "setup: $$python -> $(VENV)" && \
	    $$python -m venv $(VENV)
	@echo "setup: installing requirements/dev.txt (PySpark alone is 456 MB the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

s3a: setup ## fetch the jars with which Spark reads S3 (13 MB; needs Maven)
	@scripts/jars.sh $(VENV) s3a

kafka: setup ## fetch Kafka, a schema registry and Spark's connector (170 MB; needs Maven)
	@scripts/jars.sh $(VENV) kafka
	@scripts/jars.sh $(VENV) kafka-spark
	@scripts/kafka-registry.sh $(VENV)
	@scripts/classes.sh $(VENV)

pipelines: setup ## install what Spark Declarative Pipelines need, a baseline of the benchmark
	@scripts/pipelines.sh $(VENV)

demo: setup $(if $(filter kafka,$(DEMO)),kafka) ## a live auction and maintained views (DEMO=kafka: through a real broker)
	$(BIN)/tidemark demo $(if $(filter kafka,$(DEMO)),--kafka)

test: setup ## lint, then run all tests but the soak tests
	@rm -f $(VENV)/untested
	@scripts/test-deps.sh $(VENV)
	@$(MAKE) --no-print-directory lint
	$(BIN)/pytest $(IN_PARALLEL) $(PYTEST_ARGS)
	@if [ -s $(VENV)/untested ]; then cat $(VENV)/untested; fi

lint: setup ## ruff, pyright and the layer contract
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	scripts/pyright.sh $(VENV)
	$(BIN)/lint-imports

bench: setup ## quick benchmarks of persist and of maintained views
	$(BIN)/tidemark bench persist --quick
	$(BIN)/tidemark bench views --quick

soak: setup ## the long tests
	$(BIN)/pytest -m soak $(PYTEST_ARGS)

# The pins stay as they are unless UPGRADE=1. dev comes first, so that runtime pins the same.
COMPILE = uv pip compile --quiet --generate-hashes --universal --no-header \
	--python-version 3.11 $(if $(UPGRADE),--upgrade)

lock: ## write the pinned requirements/*.txt from pyproject.toml (needs uv; UPGRADE=1 for newer)
	$(COMPILE) pyproject.toml --extra dev --output-file requirements/dev.txt
	$(COMPILE) pyproject.toml --constraint requirements/dev.txt --output-file requirements/runtime.txt
	$(COMPILE) requirements/java.in --output-file requirements/java.txt
	$(COMPILE) requirements/dbt.in --output-file requirements/dbt.txt
	$(COMPILE) requirements/pipelines.in --constraint requirements/dev.txt --output-file requirements/pipelines.txt
	@! grep -nE '(index-url|find-links|https?://|file:)' requirements/*.txt || \
	    { echo "a requirements file names a host" >&2; exit 1; }

clean: ## remove .venv, caches and what Spark left behind
	rm -rf $(VENV) dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log artifacts
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
