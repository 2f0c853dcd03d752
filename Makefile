# Every target installs what it needs into .venv first; the machine needs only Python and make.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet
INSTALLED := .venv/installed
DEV := .venv/installed-dev

.PHONY: run test test-fast coverage check format docs analysis findings findings-cifar10 bench fuzz torture \
	portable clean

# One torch thread per worker: more would only wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest

run: $(INSTALLED)
	$(BIN)/rdpfl-sim scenarios/ring_30pct.toml

test: check  # the complete suite, which must pass before a change is merged
	$(PYTEST) -n 2

test-fast: $(DEV)  # without the tests that are marked slow: less than two minutes on two cores
	$(PYTEST) -n 2 -m "not slow"

coverage: $(DEV)  # the complete suite; fails below 95 % of lines and branches
	$(PYTEST) -n 2 --cov --cov-report=term:skip-covered

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DEV)  # the documentation as a site that opens without a server: site/index.html
	$(BIN)/python -m docs.tools.build site

fuzz: $(DEV)  # 500 random scenarios with every pair of components, new ones every time; prints a coverage table
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.campaign

torture: $(DEV)  # simulate power failures; kill -9 runs, sweeps, workers and Ray actors 200 times
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture

portable:  # compare pinned runs with two emulated processors; needs qemu-x86_64, installs nothing
	$(BIN)/python -m tests.pinned.portable

SWEEPS := $(wildcard analysis/scenarios/*.toml)
analysis: $(DEV)  # run what is missing, then execute every notebook
	for sweep in $(SWEEPS); do $(BIN)/rdpfl-sim sweep $$sweep --output analysis/runs || exit 1; done
	$(BIN)/python analysis/execute.py analysis/*.ipynb

FOUND := analysis/findings
findings: $(DEV)  # run what is missing (about an hour on two cores), then write figures, tables and pages
	for sweep in overview readings defences strengths controls rivals heterogeneity speed_control loss waiting timing \
			topology limits; do \
		$(BIN)/rdpfl-sim sweep $(FOUND)/scenarios/$$sweep.toml --output $(FOUND)/runs || exit 1; done
	RDPFL_SIM=$(BIN)/rdpfl-sim sh $(FOUND)/breakdowns.sh $(FOUND)/runs
	$(BIN)/python $(FOUND)/collect.py $(FOUND)/runs
	$(BIN)/python $(FOUND)/draw.py

findings-cifar10: $(DEV)  # the paper's tables: some hours on two cores; PROFILE=full has the paper's size
	$(BIN)/rdpfl-sim data cifar10
	for sweep in $(addprefix scenarios/paper/,clean robustness ablation sensitivity ambiguities) $(FOUND)/scenarios/lambda_cifar10; do \
		$(BIN)/rdpfl-sim sweep $$sweep.toml --profile $(PROFILE) --output $(FOUND)/runs/$(PROFILE) || exit 1; done
	$(BIN)/rdpfl-sim sweep $(FOUND)/scenarios/size_cifar10.toml --output $(FOUND)/runs/$(PROFILE)
	$(BIN)/python $(FOUND)/collect.py $(FOUND)/runs/$(PROFILE) $(PROFILE)
	$(BIN)/python $(FOUND)/draw.py
findings-cifar10: PROFILE ?= hour

bench: $(DEV)  # about a quarter of an hour; writes docs/scale/speed.md
	$(BIN)/python benchmarks/bench.py

# The package and what a run needs. TORCH_INDEX is a package index with another build of PyTorch.
$(INSTALLED): pyproject.toml
	@test -x $(BIN)/python || { echo "Creating .venv"; $(PYTHON) -m venv .venv; }
	@test -n "$(TORCH_INDEX)" || $(HAS_TORCH) || $(HAS_GPU) || printf '%s\n' $(CPU_HINT)
	@test -z "$(TORCH_INDEX)" || echo "Installing PyTorch from $(TORCH_INDEX)"
	@test -z "$(TORCH_INDEX)" || $(PIP) torch torchvision --index-url "$(TORCH_INDEX)"
	@echo "Installing rdpfl-sim and what a run needs (PyTorch, matplotlib, ...)"
	@$(PIP) --editable .
	@touch $@

# What tests, style checks, notebooks and the documentation need in addition.
$(DEV): pyproject.toml $(INSTALLED)
	@echo "Installing what tests and documentation need (pytest, mypy, Ray, ...)"
	@$(PIP) --editable ".[dev]"
	@touch $@

HAS_TORCH := $(BIN)/python -c 'import importlib.util as u; raise SystemExit(u.find_spec("torch") is None)'
HAS_GPU := test "$$(uname)" != Linux -o -e /dev/nvidia0 -o -e /dev/kfd -o -e /dev/dxg
CPU_HINT := \
	'Hint: this machine seems to have no GPU. The CPU build of PyTorch is a twentieth of the size.' \
	'      To install it, press Ctrl-C and use: make run TORCH_INDEX=URL' \
	'      URL is the index URL that the selector on the installation page of PyTorch shows for CPU.'

clean:
	rm -rf .venv build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
