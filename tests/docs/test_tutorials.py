"""Every tutorial runs from top to bottom, and prints what it says that it prints.

`python tests/docs/test_tutorials.py [NAME ...]` writes what the cells print into the tutorials, and the figures
that they save as tutorial-*.png into docs/images.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))

DRIVER = """
import contextlib, io, json, sys
cells, printed, names = json.load(sys.stdin), [], {"__name__": "__main__"}
for number, cell in enumerate(cells, 1):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(cell, f"cell {number}", "exec"), names)
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""
"""A session that runs cells one after another and says what each printed."""


def notebook():
    """Return the module that takes a tutorial apart for the site."""
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "docs/site/notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cells_of = notebook().cells_of


def run(cells, folder):
    """Return what each cell prints, in a folder of its own."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", DRIVER],
        input=json.dumps([cell.text for cell in cells]),
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "MPLBACKEND": "agg"},
    )
    assert ran.returncode == 0, ran.stderr
    return [text.rstrip("\n") for text in json.loads(ran.stdout)]


def code_cells(text):
    return [cell for cell in cells_of(text) if cell.kind == "code"]


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs_and_prints_what_it_says(path, tmp_path):
    cells = code_cells(path.read_text())
    assert len(cells) >= 3
    for cell, printed in zip(cells, run(cells, tmp_path), strict=True):
        if cell.output is not None:
            assert printed == cell.output, f"after\n{cell.text}"


def test_a_tutorial_is_taken_apart_and_what_its_cells_print_is_seen(tmp_path):
    text = "# A\n\n```python\nx = 2\n```\n```python\nprint(x)\n```\n\n```text\n1\n```\n\n"
    text += "B\n\n```sh\nls\n```\n"
    assert [tuple(cell) for cell in cells_of(text)] == [
        ("markdown", "# A", None),
        ("code", "x = 2", None),
        ("code", "print(x)", "1"),
        ("markdown", "B\n\n```sh\nls\n```", None),
    ]
    assert run(code_cells(text), tmp_path) == ["", "2"]


def rewritten(text, folder):
    """Return a tutorial whose ```text blocks are what its cells print now."""
    cells = code_cells(text)
    for cell, printed in zip(cells, run(cells, folder), strict=True):
        if cell.output is not None:
            old = f"```python\n{cell.text}\n```\n\n```text\n{cell.output}\n```"
            assert old in text, cell.text
            text = text.replace(old, re.sub(r"(?s)(```text\n).*", r"\1", old) + f"{printed}\n```")
    return text


if __name__ == "__main__":
    import shutil
    from tempfile import TemporaryDirectory

    for tutorial in TUTORIALS:
        if not sys.argv[1:] or tutorial.stem in sys.argv[1:]:
            with TemporaryDirectory() as place:
                tutorial.write_text(rewritten(tutorial.read_text(), place))
                for figure in Path(place).glob("tutorial-*.png"):
                    shutil.copy(figure, ROOT / "docs" / "images")
