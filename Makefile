# Every target does its own set-up. PYTHON=python3.12 make test takes another Python.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Not ppi: half a gigabyte, for one function.
EXTRAS = local parquet xlsx inspect hf keyring metrics patches langchain memory postgres ladybug langgraph mem0 ray server mcp dev

.PHONY: demo test slow alone frozen chromium lint bench docs constraints clean

PIP = $(BIN)/pip install -q --disable-pip-version-check --no-compile

# Modules are compiled when they are imported first: most of those installed never are.
unexport PYTHONDONTWRITEBYTECODE

DEMO = examples/demo
REPORT = build/demo.html

# A run that is there already asks nothing: a store of its own shows the work each time. Only what a
# local model needs is installed, unless everything is.
demo: $(if $(wildcard $(READY)),$(READY),.venv/.demo)
	$(BIN)/textevolve models pull qwen2.5-coder-1.5b
	@mkdir -p build; rm -f build/demo.db*
	$(BIN)/textevolve evaluate @$(DEMO)/question.txt @$(DEMO)/first.txt @$(DEMO)/second.txt \
	    @$(DEMO)/third.txt --profile $(DEMO)/profile.yaml --model local/qwen2.5-coder-1.5b \
	    --store build/demo.db -o $(REPORT)
	@echo "The report: file://$(CURDIR)/$(REPORT)"

# A process more than there are cores, since many tests wait.
test slow: export PYTEST_XDIST_AUTO_NUM_WORKERS := $(shell \
    $(PYTHON) -c 'import os; print(os.cpu_count() + 1)')

# Those of a quick run; .ci/run takes all.
TESTS = not slow and not alone
EXAMPLES = quick

# What tests import is compiled once here; each process of pytest would compile all of it.
.venv/.compiled: $(READY)
	@$(BIN)/pytest -q -n 0 --collect-only tests/[a-l]*/ >/dev/null & \
	    $(BIN)/pytest -q -n 0 --collect-only tests/[m-z]*/ tests/test_*.py >/dev/null; wait
	@touch $@

test: .venv/.compiled
	$(BIN)/pytest -q -m '$(TESTS)' --hypothesis-profile $(EXAMPLES)

# With all examples of the property tests.
slow: .venv/.compiled chromium
	$(BIN)/pytest -q -m '(slow or hypothesis) and not alone' --hypothesis-profile repeatable
	$(MAKE) alone

# The tests of a cluster, which each pytest would start anew. No other file is collected.
alone: $(READY)
	$(BIN)/pytest -q -n 0 -m alone $$(grep -rl --include='test_*.py' mark.alone tests)

# What users can see, and the figures of every kind of run, written anew; read the difference.
frozen: $(READY)
	RECORD_FIGURES=1 $(BIN)/pytest -q -n 0 -m '' tests/guards tests/test_recorded_figures.py \
	    tests/server/test_frozen_http.py

# Pages are tested in a browser where there is one; without it those tests are skipped.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	    { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	      apt-get update -qq && apt-get install -y -qq chromium; } || \
	    echo "no Chromium: the tests of pages in a browser are skipped"

# What differs between systems is in these modules; the files that import none have the same types.
SYSTEM = $$(grep -rlE --include='*.py' '^ *(import|from) (asyncio|ctypes|fcntl|mmap|msvcrt|$\
    multiprocessing|os|pathlib|resource|select|shutil|signal|socket|ssl|stat|subprocess|sys)\b' src)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/pyright --pythonplatform Windows $(SYSTEM)
	$(BIN)/pyright --pythonplatform Darwin $(SYSTEM)
	$(BIN)/lint-imports
	$(BIN)/deptry src
	$(BIN)/python tools/house.py --short

bench: $(READY)
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/import_time.py
	$(BIN)/python benchmarks/flat_memory.py

# The site in build/site, with what is generated from the code; broken links fail.
docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q
	@echo "Look at it (search needs HTTP): $(BIN)/python -m http.server --directory build/site"

.venv/.docs: docs/constraints.txt $(READY)
	$(PIP) --no-deps --require-hashes -r docs/constraints.txt
	@touch $@

constraints: $(READY)
	printf '%s\n' '# Pinned versions with hashes; made by `make constraints`.' > constraints.txt
	$(BIN)/uv pip compile pyproject.toml $(EXTRAS:%=--extra %) --universal --generate-hashes \
	    --no-emit-index-url --no-header --no-annotate -q >> constraints.txt
	printf '%s\n' '# What `make docs` needs; made by `make constraints`.' > docs/constraints.txt
	$(BIN)/uv pip compile pyproject.toml --extra docs -c constraints.txt --universal --generate-hashes \
	    --no-emit-index-url --no-header --no-annotate -q >> docs/constraints.txt

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis

# uv takes half a minute, pip four. Its index is pip's.
UV = index="$$($(BIN)/pip config get global.index-url 2>/dev/null || true)"; \
    index="$${PIP_INDEX_URL:-$$index}"; $${index:+env UV_DEFAULT_INDEX="$$index"} \
    $(BIN)/uv pip install -q -p .venv

.venv/.uv: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed; name one with PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	    { [ "$$(id -u)" = 0 ] && apt-get install -y -qq python3-venv; } || \
	    { echo "venv is missing: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv
	@sed -n '/^uv==/,/[^\\]$$/p' constraints.txt > .venv/uv.txt
	$(PIP) --require-hashes -r .venv/uv.txt
	@touch $@

.venv/.demo: pyproject.toml | .venv/.uv
	$(UV) -c constraints.txt '.[local]'
	@touch $@

$(READY): constraints.txt pyproject.toml | .venv/.uv
	@# With pip where uv cannot, as with an index of another kind.
	$(UV) --no-deps --require-hashes -r constraints.txt || \
	    $(PIP) --no-deps --require-hashes -r constraints.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@
