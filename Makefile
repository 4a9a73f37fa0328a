# The two commands that matter: `make doctor` and `make test`. The work is in scripts/.
#
#   ARGS    passed on: make doctor ARGS="--profile gpu-inference --format json"
#   PYTHON  the interpreter that .venv is made from (3.10 or newer)

ARGS ?=
PYTHON ?= python3
export PYTHON

.PHONY: help doctor test test-machine test-gpu test-playbooks lint bench docs setup clean

help:
	@echo 'make doctor   set up, then diagnose this machine (changes nothing on it)'
	@echo 'make test     set up, then run every test that this machine can'
	@echo 'make test-machine   all tests on a real Linux in QEMU (half an hour; make test runs those of doctor and apply)'
	@echo 'make test-playbooks   the tests of the Ansible collection, alone (10 minutes)'
	@echo 'make test-gpu   the tests on a real GPU, where there is one (not part of make test)'
	@echo 'make lint     ruff and mypy'
	@echo 'make bench    all benchmarks'
	@echo 'make docs     write the generated pages of docs/'
	@echo 'make setup    the environment for developing, in .venv'
	@echo 'make clean    remove what was built'

doctor:
	@scripts/setup run
	@scripts/doctor $(ARGS)

test:
	@scripts/setup dev
	@scripts/test $(ARGS)

test-machine:
	@scripts/setup dev
	@scripts/test-machine $(ARGS)

test-gpu:
	@scripts/setup dev
	@scripts/test-gpu $(ARGS)

test-playbooks:
	@scripts/setup dev
	@scripts/test-playbooks $(ARGS)

lint:
	@scripts/setup dev
	@scripts/lint

bench:
	@scripts/setup bench
	@.venv/bin/python -m bench $(ARGS)

docs:
	@scripts/setup dev
	@.venv/bin/python -m hwtune.docs

setup:
	@scripts/setup dev

clean:
	rm -rf build dist .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
