"""The notebook of the documentation, run from its first cell to its last on a kernel of its own."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import nbformat
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "docs" / "pipelines.ipynb"
CELL_SECONDS = 600


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = tmp_path_factory.mktemp("notebook")
    with warnings.catch_warnings():
        # The messaging library of the kernel's client warns about its own event loop.
        warnings.simplefilter("ignore")
        NotebookClient(
            notebook, timeout=CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
        ).execute()
    return notebook


def output(notebook: Any, word: str, kind: str) -> str:
    """What the one cell with this word in it shows."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and word in cell.source]
    (shown,) = [each for each in cell.outputs if kind in each.get("data", {})]
    return str(shown["data"][kind])


def test_it_is_stored_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert all(
        cell.outputs == [] and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code"
    )


def test_spark_reads_what_the_sdk_sent(ran: Any) -> None:
    totals = output(ran, "totals.toPandas()", "text/plain").split()
    amounts = [number % 90 + 10 for number in range(150)]
    assert totals[totals.index("busy") + 1] == str(sum(amounts[1::2]))


def test_plots_are_shown(ran: Any) -> None:
    section = output(ran, "charts.rows", "text/html")
    assert section.count('<rect class="bar"') == 26
    page = output(ran, "skew.html", "text/html")
    assert page.count("<svg") == 5
    for text in ("150 messages", "busy", "16 (now)"):
        assert text in page


def test_dead_letters_are_shown_and_come_back(ran: Any) -> None:
    reasons = output(ran, "dead_letter_source", "text/plain")
    assert "NoTenant" in reasons
    outcomes = output(ran, '"resubmit"', "text/plain")
    assert "planned" in outcomes
    assert "moved" in outcomes
    assert output(ran, "= '7'", "text/plain").count("order-") == 3
