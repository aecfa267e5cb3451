"""House rule: without raftlog[spark] and raftlog[table] installed, the tests can still be collected and run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCKED = (
    "pyspark",
    "pyarrow",
    "pandas",
    "numpy",
    "py4j",
    "deltalake",
    "duckdb",
    "polars",
    "pyiceberg",
    "sqlalchemy",
    "fastavro",
    "moto",
    "boto3",
)
PROGRAM = f"""
import importlib, sys
from pathlib import Path
sys.modules.update(dict.fromkeys({BLOCKED!r}))
for folder in ("pipeline", "interop_spark", "tables"):
    for path in sorted(Path("tests", folder).glob("test_*.py")):
        importlib.import_module(".".join(path.with_suffix("").parts))
        print(path)
"""


def test_tests_are_collected_without_the_libraries_of_extras() -> None:
    """Modules that they need of it are imported when they run: `make test` on a fresh machine looks at them all."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "test_mirror" in done.stdout and "interop_spark" in done.stdout
