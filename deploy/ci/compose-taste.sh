#!/usr/bin/env bash
# What .ci/run has compose-ci.sh run beside the cluster: up, a container killed, down.
set -euo pipefail
"${BIN:-.venv/bin}/python" -m pytest -m "compose and taste" -s tests/compose
