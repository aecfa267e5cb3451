"""Plants a bug in every process of a guest: POWER_CUT_PLANT names a function, as module:function, of tests/planted.

For tests of the harness, which must be able to fail. Only these tests put this folder on a path.
"""

import importlib
import os

if os.environ.get("POWER_CUT_PLANT"):
    import pytest

    _module, _, _function = os.environ["POWER_CUT_PLANT"].partition(":")
    getattr(importlib.import_module(_module), _function)(pytest.MonkeyPatch())
