SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# Where the tools that check the code come from. Another environment that has the `dev` extra may be named:
# make lint BIN=/path/to/env/bin
BIN ?= .venv/bin
READY := $(if $(filter .venv/bin,$(BIN)),.venv/.ready)

# The interpreter that the environments are made from: the first that runs here and can make one (a version
# manager's shim may be there and not run; Debian splits ensurepip off).
PYTHON ?= $(shell for p in python3.11 python3.12; do \
	"$$p" -c 'import ensurepip, venv' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

EXTRAS := tf-cpu kfp airflow kubernetes gcs postgres demo dev
comma := ,
space := $(empty) $(empty)
AIRFLOW_KUBERNETES := apache-airflow-providers-cncf-kubernetes

# uv brings its own certificates; a machine behind a proxy with a CA of its own has that CA in the system's.
ifndef SSL_CERT_FILE
export UV_SYSTEM_CERTS := true
export UV_NATIVE_TLS := true
endif
# The environments are named one by one, so an activated one must not be picked up.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: .venv/.ready ## Train on real photographs through a Kubeflow pipeline on this machine
	.venv/bin/python -m cachew_pipelines.demo

.PHONY: test
test: .venv/.ready .venvs/airflow2/.ready .venvs/tf219/.ready .venvs/proto/.ready ## Run all tests in the three environments they need
	.venv/bin/python tools/test_environments.py

.PHONY: lint
lint: lint-ruff lint-format lint-types lint-imports lint-spelling ## Check style, types, layers and spelling

.PHONY: lint-ruff
lint-ruff: $(READY)
	$(BIN)/ruff check .

.PHONY: lint-format
lint-format: $(READY)
	$(BIN)/ruff format --check .

# mypy takes a package's name from its folder, and four of the folders have other names than their packages.
.PHONY: lint-types
lint-types: $(READY)
	@mkdir -p .lint/packages
	@for folder in components operators pipelines manifests; do \
		ln -sfn "../../$$folder" ".lint/packages/cachew_$$folder"; done
	$(BIN)/mypy cachew_core .lint/packages $(wildcard tests benchmarks tools)

.PHONY: lint-imports
lint-imports: $(READY)
	$(BIN)/lint-imports

.PHONY: lint-spelling
lint-spelling: $(READY)
	$(BIN)/codespell

.PHONY: format
format: $(READY) ## Format the code and mend what can be mended without thought
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: bench
bench: .venv/.ready ## Measure speed beside stock tf.data service
	.venv/bin/python -m benchmarks

.PHONY: bench-caching
bench-caching: .venv/.ready ## Measure what storing data costs and pays
	.venv/bin/python -m benchmarks caching
	.venv/bin/python -m benchmarks autocaching

.PHONY: docs
docs: $(READY) ## Build the documentation into site/
	$(BIN)/python tools/render_settings.py
	$(BIN)/mkdocs build --strict --quiet

# Generated with protoc 29: TensorFlow 2.19 brings protobuf 5.29, which refuses newer generated code.
.PHONY: proto
proto: .venvs/proto/.ready ## Generate the Python code of the gRPC messages
	tools/generate_protos .venvs/proto/bin/python .

# Resolved without what this machine may hold besides the public index, for every Python from 3.11 up.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --upgrade

.PHONY: constraints
constraints: $(READY) ## Resolve the versions of the three environments anew
	$(COMPILE) pyproject.toml - $(EXTRAS:%=--extra %) \
		-o constraints.txt <<< '$(AIRFLOW_KUBERNETES)'
	$(COMPILE) pyproject.toml - --extra airflow --extra tf-cpu --extra test \
		-o constraints-airflow2.txt <<< $$'apache-airflow<3\n$(AIRFLOW_KUBERNETES)'
	$(COMPILE) pyproject.toml - --extra tf-cpu --extra test \
		-o constraints-tf219.txt <<< 'tensorflow-cpu<2.20'
	@# Say only where a version depends on the interpreter; what holds for all lines is said in pyproject.toml.
	sed -i "s/ ; python_full_version < '3.13' and sys_platform == 'linux'$$//" constraints*.txt

.PHONY: clean
clean: ## Remove everything that make has written
	rm -rf .venv .venvs .lint .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf build dist site reports *.egg-info

.venv/.ready: pyproject.toml setup.py constraints.txt
	@test -n "$(PYTHON)" || { echo 'make: Cachew needs Python 3.11 or 3.12 with the venv module' \
		'(on Debian and Ubuntu: apt-get install python3-venv), and found neither python3.11 nor python3.12' \
		'that can make an environment. Another one may be named: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	test -x .venv/bin/pip || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	.venv/bin/uv pip install --quiet --python .venv/bin/python --constraint constraints.txt \
		--editable '.[$(subst $(space),$(comma),$(EXTRAS))]' $(AIRFLOW_KUBERNETES)
	touch $@

.venvs/airflow2/.ready: constraints-airflow2.txt .venv/.ready
	test -x .venvs/airflow2/bin/python || .venv/bin/uv venv --quiet --python .venv/bin/python .venvs/airflow2
	.venv/bin/uv pip install --quiet --python .venvs/airflow2/bin/python --constraint $< \
		--editable '.[airflow,tf-cpu,test]' $(AIRFLOW_KUBERNETES)
	touch $@

.venvs/tf219/.ready: constraints-tf219.txt .venv/.ready
	test -x .venvs/tf219/bin/python || .venv/bin/uv venv --quiet --python .venv/bin/python .venvs/tf219
	.venv/bin/uv pip install --quiet --python .venvs/tf219/bin/python --constraint $< --editable '.[tf-cpu,test]'
	touch $@

# grpcio-tools of that age looks for pkg_resources, which setuptools dropped later.
.venvs/proto/.ready: .venv/.ready
	test -x .venvs/proto/bin/python || .venv/bin/uv venv --quiet --python .venv/bin/python .venvs/proto
	.venv/bin/uv pip install --quiet --python .venvs/proto/bin/python 'grpcio-tools==1.71.2' 'setuptools<80'
	touch $@
