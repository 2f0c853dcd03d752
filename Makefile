# `make run` and `make test` do all the set-up on a machine that has Python and make.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: run test check format docs analysis findings findings-cifar10 bench fuzz torture clean

run: $(INSTALLED)
	$(BIN)/rdpfl-sim scenarios/ring_30pct.toml

test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2  # a torch thread per worker: more wait for each other

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED)  # the documentation, as a site that opens from its folder: site/index.html
	$(BIN)/python -m docs.tools.build site

fuzz: $(INSTALLED)  # 500 random scenarios, new ones every time
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/simulation/test_fuzz.py --hypothesis-profile explore

torture: $(INSTALLED)  # kill -9 runs, sweeps, their workers and Ray actors 200 times; all must end as if that had not happened
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture

SWEEPS := $(wildcard analysis/scenarios/*.toml)
analysis: $(INSTALLED)  # the runs that are missing, then every notebook from top to bottom
	for sweep in $(SWEEPS); do $(BIN)/rdpfl-sim sweep $$sweep --output analysis/runs || exit 1; done
	$(BIN)/python analysis/execute.py analysis/*.ipynb

FOUND := analysis/findings
findings: $(INSTALLED)  # the runs that are missing (on two cores less than an hour), then figures and tables
	for sweep in readings defences strengths controls rivals heterogeneity loss waiting timing topology; do \
		$(BIN)/rdpfl-sim sweep $(FOUND)/scenarios/$$sweep.toml --output $(FOUND)/runs || exit 1; done
	RDPFL_SIM=$(BIN)/rdpfl-sim sh $(FOUND)/breakdowns.sh $(FOUND)/runs
	$(BIN)/python $(FOUND)/collect.py $(FOUND)/runs
	$(BIN)/python $(FOUND)/draw.py

findings-cifar10: $(INSTALLED)  # the same for the paper's tables: on two cores some hours; PROFILE=full is the paper's size
	$(BIN)/rdpfl-sim data cifar10
	for sweep in $(addprefix scenarios/paper/,clean robustness ablation sensitivity ambiguities) $(FOUND)/scenarios/lambda_cifar10; do \
		$(BIN)/rdpfl-sim sweep $$sweep.toml --profile $(PROFILE) --output $(FOUND)/runs/$(PROFILE) || exit 1; done
	$(BIN)/rdpfl-sim sweep $(FOUND)/scenarios/size_cifar10.toml --output $(FOUND)/runs/$(PROFILE)
	$(BIN)/python $(FOUND)/collect.py $(FOUND)/runs/$(PROFILE) $(PROFILE)
	$(BIN)/python $(FOUND)/draw.py
findings-cifar10: PROFILE ?= hour

bench: $(INSTALLED)  # about a quarter of an hour; writes benchmarks/RESULTS.md and the table in README.md
	$(BIN)/python benchmarks/bench.py

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
