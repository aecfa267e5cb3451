#!/usr/bin/env bash
# What compose-ci.sh runs beside the cluster: the tests, and then, in clusters of their own, chaos with containers.
set -euo pipefail
BIN=${BIN:-.venv/bin}
"$BIN/python" -m pytest -m compose -s tests/compose
"$BIN/raftlog" chaos kill-leader pause-leader cut-off --testbed compose
