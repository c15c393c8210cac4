import pytest

pytest.register_assert_rewrite("tests.sdk.python.behaviours", "tests.sdk.python.bus")
