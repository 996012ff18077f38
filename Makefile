# One verb, one target; `make help` lists them. Set-up happens by itself: .ci/setup.sh.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo ui test test-quick test-cluster test-browser test-mlflow test-airflow test-lineage test-object-stores test-lower test-long bench mutants fuzz soak explore lint types docs docs-serve docs-check pictures format lock proto release setup clean

# A shell that forbids bytecode makes TensorFlow's import take ten seconds instead of two.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export NO_MKDOCS_2_WARNING := 1
PYTHON := .venv/bin/python
MOTO := 5.2.5
# A file's tests run in one process, so that what they share is made once; the long files begin (tests/conftest.py). Some
# wait for Spark and Airflow, so there are two processes more than cores.
TEST_PROCESSES = $(shell expr $$(nproc) + 2)
QUICK_TESTS := not (spark or airflow or tf or slow or integration or e2e or parity or cluster or browser or mlflow or object_store or long)
ATHERIS := 3.0.0
# Carries axe-core 4.12.1; without its dependency Playwright, of which no file is used.
AXE := axe-playwright-python==0.1.8
LINEAGE := apache-airflow-providers-openlineage==2.20.3 $(addsuffix ==1.54.0,openlineage-python openlineage-integration-common openlineage-sql) \
  httpx2==2.16.2 httpcore2==2.16.2 truststore==0.10.5
# What requirements-dev.txt lacks of them; without their dependencies, so that no second Airflow is installed.
AIRFLOW_TEST_TOOLS := pytest pytest-timeout pytest-xdist hypothesis jsonschema
AIRFLOW_PAGES := test_airflow_runs test_pages test_run_pages test_model_pages test_model_changes
AIRFLOW_TESTS := $(addprefix tests/integration/airflow/,test_own_dags.py test_dags.py test_provider.py $(addsuffix .py,$(AIRFLOW_PAGES))) \
  $(addprefix tests/unit/deepspark_ops/operators/tasks/,test_turn.py) \
  -k "own_runs or test_own_dags or test_turn or graph_is or valid_and_a_description or every_template or connection_says \
  $(addprefix or ,$(AIRFLOW_PAGES))"
# What the other tests of the DAGs say holds for the Airflow that requirements-dev.txt locks.
# Limits of a version (3.1.0) or of a line of versions (3.2), with reasons in docs/start/installation.md.
AIRFLOW_LIMITS_3.1.0 := "structlog<25.5"
AIRFLOW_LIMITS_3.1.1 := "structlog<25.5"
AIRFLOW_LIMITS_3.2 := "svcs<26"
AIRFLOW_LIMITS = $(AIRFLOW_LIMITS_$(VERSION)) $(AIRFLOW_LIMITS_$(basename $(VERSION)))
GRPC_TOOLS := 1.71.2
# Makes code for protobuf 5.29, which loads with that and everything later: with each TensorFlow from 2.18 on.

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' Makefile

demo: ## Train LeNet on handwritten digits through Airflow, from nothing to an exported model
	@.ci/setup.sh run
	@.venv/bin/deepspark demo

ui: ## Start Airflow on 127.0.0.1 (PORT=8080) with the DAGs; Ctrl-C ends it
	@.ci/setup.sh run
	@exec .venv/bin/deepspark ui --port $(or $(PORT),8080)

setup: ## Bring the virtual environment with the tests' tools, and Java
	@.ci/setup.sh test

.venv/spark-classes.jsa: requirements-dev.txt | setup
	$(PYTHON) -m tests.spark_classes $@

# In a fresh clone each process of the tests would compile every module for itself, at the same time as the others.
# The quick tests come first: a quick test that imports TensorFlow is an error only where no other test imports it.
build/tests.compiled: | setup
	@mkdir -p build
	@for tests in "$(QUICK_TESTS)" ""; do \
	  $(PYTHON) -m pytest --collect-only -m "$$tests" >build/tests.compiled.log || { cat build/tests.compiled.log; exit 1; }; \
	done
	@mv build/tests.compiled.log $@

# The tests of DAGs, which come first, wait a lot: types are checked meanwhile. The last lines stay pytest's.
test: setup ## Everything: lint, import borders, types, all tests on all cores; prints the slowest 25
	@$(MAKE) --no-print-directory -j lint .venv/spark-classes.jsa build/tests.compiled
	mypy >build/types.log 2>&1 & types=$$!; \
	$(PYTHON) -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --durations 25; tests=$$?; \
	wait $$types || { cat build/types.log; exit 1; }; exit $$tests

test-quick: setup ## The tests of single modules that need neither Spark, Airflow nor TensorFlow, on all cores
	$(PYTHON) -m pytest -n auto --dist loadfile --no-loadscope-reorder \
	  -m "$(QUICK_TESTS)"

test-cluster: setup ## A Spark standalone cluster, also in network namespaces, and its packets; as root; not part of make test
	$(PYTHON) -m pytest -m cluster tests/integration

test-browser: setup ## The tests of form and pages in a real browser (Chromium), with axe-core; not part of make test
	test -d .venv/axe || uv pip install --quiet --target .venv/axe --no-deps --python $(PYTHON) "$(AXE)"
	$(PYTHON) -m pytest -m browser tests/e2e

test-airflow: setup ## The DAGs beside another Airflow, VERSION=3.1.8, in an environment of its own: read, some run, and the pages; not part of make test
	test -n "$(VERSION)" || { echo "make test-airflow VERSION=3.1.8: which Airflow?" >&2; exit 2; }
	test -d .venv/airflow-$(VERSION) || uv venv --quiet --python $(PYTHON) .venv/airflow-$(VERSION)
	uv pip install --quiet --python .venv/airflow-$(VERSION)/bin/python -e ".[airflow,spark,tables]" "apache-airflow==$(VERSION)" $(AIRFLOW_LIMITS) $(AIRFLOW_TEST_TOOLS)
	rm -rf deepspark.egg-info  # a second record of the package would hide other plugins from Airflow's tasks
	.venv/airflow-$(VERSION)/bin/python -m pytest -W default --disable-warnings -p no:cacheprovider -m "not lineage" $(AIRFLOW_TESTS)

test-lineage: setup ## What OpenLineage's file transport gets of a DAG's run, with its packages in a folder of their own; not part of make test
	test -d .venv/lineage || uv pip install --quiet --target .venv/lineage --no-deps --python $(PYTHON) $(LINEAGE)
	$(PYTHON) -m pytest -m lineage tests/integration/airflow tests/e2e/test_lineage_dag.py

test-mlflow: setup ## Runs and models told to a real MLflow server, in environments of their own; not part of make test
	test -d .venv/mlflow || uv venv --quiet --python $(PYTHON) .venv/mlflow
	uv pip install --quiet --python .venv/mlflow/bin/python --require-hashes -r requirements-mlflow.txt
	test -d .venv/mlflow-server || uv venv --quiet --python $(PYTHON) .venv/mlflow-server
	uv pip install --quiet --python .venv/mlflow-server/bin/python "$$(sed -n 's/^mlflow-skinny\(==[^ ]*\).*/mlflow\1/p' requirements-mlflow.txt)"
	$(PYTHON) -m pytest -m mlflow tests/integration/tracking

test-object-stores: setup ## Data in S3 and Hadoop's file systems, with moto's server in an environment of its own; not part of make test
	test -d .venv/moto || uv venv --quiet --python $(PYTHON) .venv/moto
	uv pip install --quiet --python .venv/moto/bin/python "moto[server]==$(MOTO)"
	$(PYTHON) -m pytest -m object_store tests/integration/stores tests/e2e/test_store_dag.py

test-lower: setup ## The tests of single modules and the recorded cases with the oldest versions of the declared ranges; not part of make test
	test -d .venv/lower || uv venv --quiet --python $(PYTHON) .venv/lower
	uv pip install --quiet --compile-bytecode --python .venv/lower/bin/python --require-hashes -r requirements-lower.txt
	uv pip install --quiet --python .venv/lower/bin/python --no-deps --no-build-isolation --editable .
	.venv/lower/bin/python -m pytest -W default -n $(TEST_PROCESSES) --dist loadfile tests/unit tests/parity  # old packages warn

test-long: setup ## What takes minutes (CONTRIBUTING.md lists it); not part of make test
	$(PYTHON) -m pytest -m long

.venv/peers/.installed: benchmarks/peers/requirements.txt | setup
	$(PYTHON) -m venv --clear .venv/peers
	.venv/peers/bin/python -m pip install --quiet -r $<
	touch $@

bench: .venv/peers/.installed ## Training beside Keras, JAX and PyTorch, in an environment of their own: NETS=lenet,mlp MINUTES=15 REPEATS=3 JSON=file CHOICE=kept
	$(PYTHON) -m benchmarks.speed $(if $(NETS),--nets $(NETS)) $(if $(REPEATS),--repeats $(REPEATS)) \
	  $(if $(MINUTES),--minutes $(MINUTES)) $(if $(JSON),--json $(JSON)) $(if $(CHOICE),--choice $(CHOICE))

mutants: setup ## Plant faults, one after the other, and see that each turns a test red
	$(PYTHON) -m tests.mutants

fuzz: setup ## Damaged input for every reader, SECONDS=600 in all, SEED=N again; what is found is kept in build/fuzz; GUIDED=1 by coverage
	$(if $(GUIDED),test -d .venv/atheris || uv venv --quiet --python $(PYTHON) .venv/atheris)
	$(if $(GUIDED),uv pip install --quiet --python .venv/atheris/bin/python "atheris==$(ATHERIS)")
	PYTHONPATH=$(if $(GUIDED),$$(echo .venv/atheris/lib/python3.*/site-packages)) $(PYTHON) -m tests.fuzz \
	  --seconds $(or $(SECONDS),600) --seed $(or $(SEED),0) $(if $(GUIDED),--guided)

soak: setup ## Training under random faults for MINUTES=20: SEED=N again, STRATEGY=sync; page and logs in build/soak
	$(PYTHON) -m tests.soak --minutes $(or $(MINUTES),20) --seed $(or $(SEED),0) --strategy $(or $(STRATEGY),easgd)

explore: setup ## The property tests on new random examples; what it prints on failure repeats the example
	$(PYTHON) -m pytest -m hypothesis --hypothesis-profile=explore

lint: ## Lint, format and import borders; installs nothing outside the clone
	@.ci/setup.sh tools
	ruff check .
	ruff format --check .
	lint-imports

types: ## Types, strict on both packages; installs nothing outside the clone
	@.ci/setup.sh tools
	mypy

docs: ## Build the docs site into build/site; a dead link or anchor fails; in an environment of its own
	@.ci/setup.sh tools
	@.ci/docs_environment.sh
	.venv/docs/bin/mkdocs build --strict

docs-serve: ## Show the docs site on 127.0.0.1 (PORT=8000) until Ctrl-C; a page that changes is built again
	@.ci/setup.sh tools
	@.ci/docs_environment.sh
	@exec .venv/docs/bin/mkdocs serve --dev-addr 127.0.0.1:$(or $(PORT),8000)

pictures: setup ## Take the pictures of docs/images anew from small runs in Airflow, by Chromium: NAMES="form runs", FOLDER=build/pictures keeps the runs
	$(if $(FOLDER),DEEPSPARK_PICTURES=$(FOLDER)) $(PYTHON) -m docs.pictures $(NAMES)

docs-check: ## Examples in docstrings, the generated pages and README.md against the code
	@.ci/setup.sh tools
	$(PYTHON) -m pytest --doctest-modules caffe_import deepspark_ops tests/architecture/test_readme.py
	$(PYTHON) -m docs.generate --check

format: ## Rewrite the code's format, the generated pages of docs/reference and the stub files
	@.ci/setup.sh tools
	ruff check --fix-only .
	ruff format .
	$(PYTHON) -m docs.generate

lock: ## Resolve the requirements anew into the lock files
	@.ci/setup.sh tools
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --extra all pyproject.toml -o requirements.txt
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --extra dev -c requirements.txt pyproject.toml -o requirements-dev.txt
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --group pyproject.toml:docs --group pyproject.toml:release -o requirements-docs.txt
	uv pip compile --quiet --universal --resolution lowest-direct --python-version 3.11 --generate-hashes -c .ci/lower_constraints.txt --extra dev pyproject.toml -o requirements-lower.txt
	cp requirements.txt requirements-mlflow.txt  # whose versions are kept, where MLflow can have them
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra mlflow pyproject.toml -o requirements-mlflow.txt

proto: ## Generate caffe_pb2 from caffe.proto, with a compiler in an environment of its own
	@.ci/setup.sh tools
	test -d .venv/proto || $(PYTHON) -m venv .venv/proto
	.venv/proto/bin/python -m pip install --quiet "grpcio-tools==$(GRPC_TOOLS)"
	.venv/proto/bin/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. caffe_import/proto/caffe.proto

release: setup ## Build and check wheel and source distribution of VERSION=1.1.0, from the last commit; sends nothing
	.ci/release.sh $(VERSION)

clean: ## Remove what set-up, tests and builds made; keeps runs, datasets, models and Airflow's folder
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build *.egg-info spark-warehouse
	find caffe_import deepspark_ops tests dags plugins benchmarks .ci -name __pycache__ -type d -prune -exec rm -rf {} +
