# Everything sets itself up in .venv from the package registry; only Python 3.11 to 3.13 and make are needed.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
export PIP_DISABLE_PIP_VERSION_CHECK = 1
SHELL = /bin/bash
.SHELLFLAGS = -o pipefail -c
# $(call install,ENVIRONMENT,EXTRAS): this checkout, the packages that it needs and the small extras, by the hashes
# of uv.lock. torch and CUDA are apart: each index builds its own torch, for CPUs or a version of CUDA, with other hashes.
HASHED = -m pip install --quiet --no-deps --require-hashes --no-build-isolation
APART = torch cuda-bindings cuda-toolkit nvidia-cudnn-cu13 nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvshmem-cu13 triton
SMALL = plots sentencepiece tensorboard zstd
EXPORT = export --quiet --frozen --no-emit-project --no-annotate --no-header
define install
	@$(1)/bin/python -m pip --version > /dev/null 2>&1 || "$(PYTHON)" -m venv $(1)
	$(1)/bin/python $(HASHED) -r .ci/build.txt
	$(1)/bin/uv $(EXPORT) $(addprefix --extra=,$(SMALL) $(2)) $(APART:%=--prune=%) > $(1)/locked.txt
	$(1)/bin/python $(HASHED) -r $(1)/locked.txt
	$(1)/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .
endef
TORCH = -m pip install --quiet -c constraints.txt torch

EXECUTORCH = tests/parity/test_live_executorch.py
TPU = tests/planning/test_libtpu.py

.PHONY: help venv demo demo-phone demo-transfer test test-lowest test-all rest landing audit check docs plans \
	sbom release lock clean

help:
	@echo "make demo     pretrain a tiny SqueezeBERT on this machine, interrupt it, resume it, look at it"
	@echo "make demo-phone  fine-tune the demo's model, quantise it, classify three sentences with the file for phones"
	@echo "make demo-transfer  teach a tiny student with a tiny teacher"
	@echo "make test     the tests, minutes;  make test-all  every test, in four environments (docs/testing.md)"
	@echo "make docs     the documentation site, in site/;  make check  format, lint and types"
	@echo "make plans    docs/plans.md and docs/reproduce.md, hours the first time"
	@echo "make venv     only the package, in .venv;  make lock  the versions of all packages;  make clean  remove what make made"

venv: .venv/core.stamp

.venv/core.stamp: pyproject.toml uv.lock .ci/build.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else "Python 3.11 to 3.13 is needed: make PYTHON=/path/to/python3.11")'
	@echo "Installing bertzoo and what it needs into .venv ..."
	$(call install,.venv)
	@touch $@

.venv/test.stamp: .venv/core.stamp
	$(call install,.venv,test)
	@touch $@

.venv-parity/stamp: pyproject.toml uv.lock .ci/build.txt .ci/weights.txt
	$(call install,.venv-parity,test parity tfds parquet gcs beam wandb mlflow trackio optuna mediapipe onnx)
	.venv-parity/bin/python $(TORCH)
	.venv-parity/bin/python $(HASHED) -r .ci/weights.txt
	@touch $@

.venv/docs.stamp: .venv/core.stamp
	$(call install,.venv,docs)
	@touch $@

# What files for phones are made with and run by.
.venv/litert.stamp: .venv/core.stamp
	$(call install,.venv,litert)
	@touch $@

# Apart, as docs/pytorch.md has it: without what other exports need.
.venv-executorch/stamp: pyproject.toml uv.lock .ci/build.txt
	$(call install,.venv-executorch,test executorch)
	.venv-executorch/bin/python $(TORCH)
	@touch $@

demo: .venv/litert.stamp
	PATH="$(CURDIR)/.venv/bin:$$PATH" bash launch/demo.sh

demo-phone: .venv/litert.stamp
	PATH="$(CURDIR)/.venv/bin:$$PATH" bash launch/demo_phone.sh

demo-transfer: .venv/core.stamp
	PATH="$(CURDIR)/.venv/bin:$$PATH" bash launch/demo_transfer.sh

# Bytecode is kept, whatever the environment says: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

# BUDGET=--budget fails if a cold run compiles more programs than tests/tiers.py permits.
test: .venv/test.stamp
	.venv/bin/python -m pytest $(BUDGET)

# The same with the lowest versions that pyproject.toml permits.
test-lowest: .venv-lowest/stamp
	.venv-lowest/bin/python -m pytest

.venv-lowest/stamp: .venv/core.stamp
	@.venv-lowest/bin/python -m pip --version > /dev/null 2>&1 || "$(PYTHON)" -m venv .venv-lowest
	.venv/bin/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct \
		--only-binary :all: --no-binary bertzoo-jax -e '.[test,plots,sentencepiece,tensorboard,zstd]'
	@touch $@

# Apart, as jax looks for TPUs wherever libtpu is installed.
.venv-tpu/stamp: pyproject.toml uv.lock .ci/build.txt
	$(call install,.venv-tpu,test tpu-plan)
	@touch $@

# Everything else: long runs, several processes, other formats and other implementations, TPU compilation. SINCE=REV runs
# what can reach a change since REV; SINCE=landing what .ci/run runs (docs/testing.md). MEASURE=--measure writes each
# file's seconds to tests/ledger.json. What cannot be compared fails, and is not skipped. The first two run at once.
CHOSEN = $(if $(SINCE),--files=.pytest_cache/chosen.txt) $(MEASURE)
rest: .venv/test.stamp .venv/docs.stamp .venv-parity/stamp .venv-executorch/stamp .venv-tpu/stamp
	$(if $(SINCE),.venv/bin/python tests/landing.py $(SINCE))
	log="$$(mktemp)"; trap 'kill $$pid 2> /dev/null; rm -f "$$log"' EXIT; \
	.venv-tpu/bin/python -m pytest -m slow -n 0 $(TPU) $(CHOSEN) > "$$log" 2>&1 & pid=$$!; \
	BERTZOO_PARITY=1 .venv-executorch/bin/python -m pytest -n 0 $(EXECUTORCH) $(CHOSEN); executorch=$$?; \
	wait $$pid; tpu=$$?; cat "$$log"; exit $$((executorch | tpu))
	BERTZOO_PARITY=1 .venv-parity/bin/python -m pytest tests/parity -m "" --ignore=$(EXECUTORCH) $(CHOSEN)
	.venv/bin/python -m pytest -m slow --ignore=$(TPU) --ignore=tests/parity $(CHOSEN)

# Before a landing: record in tests/ledger.json what the last one ran, which ended with REV.
landing: .venv/test.stamp
	.venv/bin/python tests/landing.py --landed $(or $(REV),origin/main)

# Known vulnerabilities of the locked packages, by osv.dev. Fails where osv.dev cannot be reached.
audit: .venv/core.stamp
	.venv/bin/uv audit --frozen --preview-features audit-command

test-all: test rest audit

check: .venv/test.stamp
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m ruff check .
	.venv/bin/python -m pyright --pythonpath .venv/bin/python
	PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/actionlint

# Strict: a broken link, a page outside the navigation, or a name without a description fails.
docs: .venv/docs.stamp
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict
	@echo "The site: site/index.html"

plans: .venv-tpu/stamp
	.venv-tpu/bin/python -m benchmarks speed.plans --compile
	.venv-tpu/bin/python -m benchmarks render

# The bill of materials of a release: every package of every extra with its files and hashes, in CycloneDX's format.
sbom: .venv/core.stamp
	@mkdir -p dist
	version="$$(.venv/bin/bertzoo --version | cut -d ' ' -f 2)"; \
	.venv/bin/uv export --quiet --frozen --all-extras --format cyclonedx1.5 --preview-features sbom-export \
		| sed 's/"name": "bertzoo-jax",/& "version": "'"$$version"'",/' > dist/bertzoo_jax.cdx.json

# The files of a release, in dist/; the environment's TAG must be v and the version.
release: sbom
	@version="v$$(.venv/bin/bertzoo --version | cut -d ' ' -f 2)"; [ "$$TAG" = "$$version" ] || \
		{ echo "TAG=$$TAG is not $$version, the version of bertzoo/core/version.py. Tag $$version, or change it." >&2; exit 1; }
	.venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# New versions: make lock UPGRADE=--upgrade. constraints.txt has the versions for `pip install -c`, which takes no hashes.
lock: .venv/core.stamp
	.venv/bin/uv lock --quiet $(UPGRADE)
	.venv/bin/uv $(EXPORT) --all-extras --no-hashes | sed 's/ ;.*//' > constraints.txt.new
	.venv/bin/uv $(EXPORT) --only-group build > .ci/build.txt.new
	mv constraints.txt.new constraints.txt
	mv .ci/build.txt.new .ci/build.txt

clean:
	rm -rf .venv .venv-parity .venv-executorch .venv-tpu .venv-lowest build dist site *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
