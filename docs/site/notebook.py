"""A tutorial as a notebook, and as cells: Markdown with ```python blocks that share one session.

A ```text block right after a cell is what the cell prints; tests compare it. In the notebook it is
left out: who runs the cell sees it.
"""

import json
import re
from itertools import pairwise
from typing import NamedTuple

FENCE = re.compile(r"^```(python|text)[^\n]*\n(.*?)^```[ ]*$\n?", re.MULTILINE | re.DOTALL)


class Cell(NamedTuple):
    """A piece of a tutorial."""

    kind: str
    """"code" or "markdown"."""

    text: str
    output: str | None = None
    """What a code cell prints, where the tutorial shows it."""


def cells_of(tutorial: str) -> list[Cell]:
    """Return the cells of a tutorial, in order."""
    blocks, end = [], 0
    for match in FENCE.finditer(tutorial):
        blocks += [Cell("markdown", tutorial[end : match.start()].strip())]
        blocks += [Cell("code" if match[1] == "python" else "output", match[2].rstrip("\n"))]
        end = match.end()
    blocks += [Cell("markdown", tutorial[end:].strip()), Cell("end", "")]
    blocks = [block for block in blocks if block.text or block.kind == "end"]
    cells = []
    for block, following in pairwise(blocks):
        if block.kind == "code" and following.kind == "output":
            cells.append(block._replace(output=following.text))
        elif block.kind != "output":
            cells.append(block)
    return cells


def notebook_of(tutorial: str) -> str:
    """Return a Jupyter notebook without outputs."""
    cells = [
        {
            "cell_type": cell.kind,
            "id": f"cell-{number}",
            "metadata": {},
            "source": cell.text.splitlines(keepends=True),
            **({"execution_count": None, "outputs": []} if cell.kind == "code" else {}),
        }
        for number, cell in enumerate(cells_of(tutorial), 1)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return json.dumps(
        {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5},
        indent=1,
    )
