#!/usr/bin/env bash
# Builds the wheel as users get it, installs it into a clean virtual environment, and runs the demo from there.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/raftlog-wheel-XXXXXX")
trap 'rm -rf "$work"' EXIT
pip() { "$1" -m pip --quiet --disable-pip-version-check "${@:2}"; }

"${PYTHON:-python3}" -m venv "$work/build"
constraints=$PWD/deploy/constraints.txt
pip "$work/build/bin/python" install build
"$work/build/bin/python" -m build --outdir "$work/dist" . >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
"${PYTHON:-python3}" -m venv "$work/clean"
pip "$work/clean/bin/python" install --constraint "$constraints" "$(echo "$work"/dist/*.whl)[demo]"

# from a folder without a checkout, so that nothing but what was installed can be imported
cd "$work"
said=$(clean/bin/raftlog version)
case $(echo dist/*.whl) in
    dist/raftlog-"${said#raftlog }"-*) echo "$said: $(stat -c %s dist/*.whl) bytes" ;;
    *) echo "the wheel $(echo dist/*.whl) says that it is $said"; exit 1 ;;
esac
clean/bin/python - <<'PROGRAM'
from importlib.metadata import files, version
import raftlog
assert version("raftlog") == raftlog.__version__, (version("raftlog"), raftlog.__version__)
typed = sorted(str(each.parent) for each in files("raftlog") if each.name == "py.typed")
assert typed == ["pyspark_raftlog", "raftlog"], typed
PROGRAM
clean/bin/raftlog demo --records 5000
