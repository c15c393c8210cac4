"""What the how-to pages tell people to write works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGES = Path(__file__).parents[3] / "docs" / "how-to"


def test_the_examples_of_testing_an_application(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", (PAGES / "tests.md").read_text(), re.DOTALL)
    for number, code in enumerate(examples):
        (tmp_path / f"test_orders_{number}.py").write_text(code)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "polybus.testing.pytest_plugin",
        ".",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
