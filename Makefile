# Only python3 (3.11 or newer, with venv) and make are taken for granted; see `make help`.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help peer-suites setup kernel demo test test-long test-lowest test-newest test-python quick check format broken-rules mutants soak soak-hour soak-groups soak-spark bench bench-all bench-history bench-spark fuzz fuzz-kernels fuzz-schedules fuzz-interruptions fuzz-properties broken-bounds scorecard site site-check lock dist dist-check release clean

help: ## list these commands
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 20

setup: ## the venv .venv with all that is pinned (quick when nothing changed)
	@$(PYTHON) tools/setup_venv.py

kernel: ## compile the record kernels in place, where their sources have changed
	@$(BIN)/python setup.py --quiet build_ext --inplace

demo: setup ## flights through a dying cluster: real Kafka, real Spark
	@$(BIN)/odradek demo $(ARGS)

test: setup ## all suites (SUITES="unit simulation" for some)
	@$(BIN)/python tools/run_tests.py $(SUITES)

test-long: setup ## all suites with tests marked `long` and all cases of searches and tables (nightly)
	@ODRADEK_WHOLE=1 $(BIN)/python tools/run_tests.py --long $(SUITES)

quick: ## unit tests and spec cases without slow ones: for the loop of an edit
	@$(BIN)/python tools/run_tests.py quick

test-lowest: setup ## the quick suite with the lowest versions of dependencies that are let in (ARGS=--list)
	@$(BIN)/python tools/range_ends.py lowest $(ARGS)

test-newest: setup ## the quick suite with the newest versions, whatever requirements.lock says (ARGS=--list)
	@$(BIN)/python tools/range_ends.py newest $(ARGS)

test-python: ## the suites that need no brokers under another Python: PYTHON=3.13 or its path (SUITES="unit" for some)
	@python3 tools/test_python.py $(PYTHON) $(SUITES)

format: ## write the sources as `make check` wants them, as far as a tool can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: setup ## format, lint, types, rooms and house rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/unit/test_house*.py tests/unit/test_pages.py tests/unit/test_public_names.py

broken-bounds: setup ## disable each bound check of the kernels: a test must notice (ARGS="--list")
	@$(BIN)/python tools/break_bounds.py $(ARGS)

peer-suites: setup ## other libraries' own tests against our modules (CHECKOUT="sources …" ARGS=--json)
	@$(BIN)/python tools/peer_suites.py $(ARGS) $(CHECKOUT)

bench: setup ## Odradek beside its peers on one broker, some rows in a few minutes (ARGS="--help")
	@$(BIN)/python -m benchmarks.run $(ARGS)

bench-all: setup ## all rows with ten million records (an hour)
	@$(BIN)/python -m benchmarks.run --all $(ARGS)

bench-history: setup ## a few ratios to peers, added to docs/bench-history.jsonl; 1: one is worse (ARGS="--help")
	@$(BIN)/python -m benchmarks.history $(ARGS)

bench-spark: setup ## Spark's source and sink beside the JVM connector, ten million rows (ARGS="--help")
	@$(BIN)/python -m benchmarks.spark $(ARGS)

broken-rules: setup ## break each rule on purpose: a test must notice (ARGS="--list")
	@$(BIN)/python tools/break_rules.py $(ARGS)

mutants: setup ## let mutmut change core modules everywhere: a test must notice (ARGS="backoff" for one)
	@$(BIN)/python tools/mutants.py $(ARGS)

fuzz: fuzz-kernels fuzz-schedules fuzz-properties ## kernels under sanitizers, then schedules, SECONDS (600) each; properties

fuzz-kernels: setup ## all kernels under ASan and UBSan for SECONDS (600); new cases each time, or SEED=...
	FUZZ_SECONDS=$(or $(SECONDS),600) FUZZ_SEED=$(or $(SEED),$$(date +%s)) $(BIN)/pytest -q -s tests/fuzz

fuzz-schedules: setup ## random schedules of faults for SECONDS (600)
	$(BIN)/odradek simulate explore --jobs 2 --seconds $(or $(SECONDS),600) $(ARGS)

fuzz-interruptions: setup ## an exception at every bytecode of the paths that users call (an hour)
	ODRADEK_WHOLE=1 ODRADEK_EVERY_BYTECODE=1 $(BIN)/pytest -q --timeout 0 tests/property/test_interruptions.py

fuzz-properties: setup ## the property tests under other examples
	ODRADEK_WHOLE=1 HYPOTHESIS_PROFILE=explore $(BIN)/pytest -q tests/property

soak: setup ## faults of real brokers and processes for MINUTES (30), judged by their history (KAFKA=3.9)
	@$(BIN)/python tools/soak.py --minutes $(or $(MINUTES),30) $(if $(KAFKA),--kafka $(KAFKA)) $(ARGS)

soak-hour: ## the same in one round of an hour: each kind of fault must be hit (KAFKA=3.9)
	@$(MAKE) soak MINUTES=60 ARGS="--round-minutes 60 $(ARGS)"

soak-groups: setup ## groups of Java, librdkafka, aiokafka, kafka-python and ours, MINUTES (15) on Kafka 4.4 and 3.9
	@$(BIN)/python tools/soak_groups.py --minutes $(or $(MINUTES),15) $(ARGS)

soak-spark: setup ## topic, exactly-once topic, exactly-once Parquet under FAULTS (50): every record counted
	@$(BIN)/python tools/soak_spark.py --faults $(or $(FAULTS),50) $(ARGS)

scorecard: setup ## other clients beside ours while simulated brokers misbehave (ARGS="--help")
	@$(BIN)/python -m benchmarks.scorecard.run $(ARGS)

site: setup ## the site of these pages in build/site, links and all checked (ARGS="--help")
	@$(BIN)/python -m tools.website.build $(ARGS)

site-check: ## look at the built site in a real browser: contrast, headings, keyboard, a phone's width
	@$(BIN)/python -m tools.website.check $(ARGS)

lock: setup ## write the requirements.lock files anew
	@$(BIN)/python tools/lock.py $(ARGS)

dist: setup ## sdist and wheels for Linux in dist/, the same bytes each time (ARGS="--help")
	@$(BIN)/python tools/dist.py $(ARGS)

dist-check: setup ## install what is in dist/ as users do, without a compiler (ARGS="--help")
	@$(BIN)/python tools/dist_check.py $(ARGS)

release: setup ## walk the checklist of a release; publishes nothing (ARGS=--quick: without distributions)
	@$(BIN)/python tools/release.py $(ARGS)

clean: ## remove the venv and all caches of this checkout
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
