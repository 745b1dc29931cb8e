"""The notebook docs/spark.ipynb: its code cells run one after the other, and give what its text says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[3] / "docs" / "spark.ipynb"


def cells() -> list[dict[str, Any]]:
    return list(json.loads(NOTEBOOK.read_text())["cells"])


def test_the_notebook_is_kept_without_outputs() -> None:
    found = [cell for cell in cells() if cell["cell_type"] == "code"]
    assert len(found) > 4
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in found)


@pytest.mark.long
def test_the_cells_of_the_notebook_run(
    spark_session: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="the notebook draws with matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    names: dict[str, Any] = {}
    try:
        for number, cell in enumerate(cells()):
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)  # noqa: S102
        heights = [[bar.get_height() for bar in figure.axes[0].patches] for figure in map(plt.figure, [1, 2])]
    finally:
        plt.close("all")
        shutil.rmtree(names["place"], ignore_errors=True)
    out = capsys.readouterr().out
    assert "900 orders now, 1,800 before the delete" in out
    assert "orders us: 600 records" in out
    assert names["now"].keys() == {"us", "ap"}
    assert heights[0] == [names["then"][region] for region in ("ap", "eu", "us")] + [
        names["now"].get(region, 0) for region in ("ap", "eu", "us")
    ]
    assert sum(heights[1]) == 1_800
