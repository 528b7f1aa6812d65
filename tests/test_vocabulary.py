"""The library speaks the field's words: the private ones of 0.2 do not occur in it.

The words are those of the list "Checked by a test" in the vocabulary of the redesign. They are
looked for in names, docstrings, comments and all other strings, such as error messages.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "bsfl"
WORDS = """
    stranger strangers hearsay unbooked unmet evenness roster ledger reminder put_back
    all_or_nothing whoever hear heard hears told tells beyond_chance told_apart in_vain mended
    passed_over given_up as_printed the_house quickest dealt swatch awaited owes owed judged lent
    world worlds liars lies podium arena seal sealed barrier findings least_share
""".split()  # noqa: SIM905
"""Words and phrases; "_" stands for a space in prose."""
IDENTIFIERS = {"put_back", "all_or_nothing", "least_share"}
"""Phrases that are private as names alone."""

PARTS = sorted({path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py")})
"""Top-level modules and packages."""
SCENARIOS = sorted((SOURCE.parents[1] / "scenarios").glob("*.toml"))
"""The scenarios that come with bsfl."""
TEXTS = {".txt", ".html", ".js", ".css", ".md", ".toml"}
"""Files that are read as prose."""

IN_PROSE = re.compile(
    r"(?<!\w)("
    + "|".join(w if w in IDENTIFIERS else w.replace("_", r"\s+") for w in WORDS)
    + r")(?!\w)",
    re.IGNORECASE,
)
IN_NAMES = re.compile(r"(?<![a-z])(" + "|".join(WORDS) + r")(?![a-z])")


def in_name(name):
    """Return the words in an identifier, by its parts in snake_case or CamelCase."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return IN_NAMES.findall(parts.lower())


def in_prose(text):
    """Return the words in a text, each with its line, starting at 0."""
    return [(text[: m.start()].count("\n"), m.group()) for m in IN_PROSE.finditer(text)]


def words_of(path):
    """Return "file:line: word" for every private word in a file."""
    text, shown = path.read_text(), path.relative_to(SOURCE.parents[1])
    found = {(1, word) for word in in_name(path.stem)}
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {(node.lineno + i, word) for i, word in in_prose(node.value)}
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                found |= {(token.start[0], word) for _, word in in_prose(token.string)}
            elif token.type == tokenize.NAME:
                found |= {(token.start[0], word) for word in in_name(token.string)}
    else:
        found |= {(1 + i, word) for i, word in in_prose(text)}
    return [f"{shown}:{line}: {word}" for line, word in sorted(found)]


@pytest.mark.parametrize("part", PARTS)
def test_private_words_do_not_occur(part):
    root = SOURCE / part
    paths = sorted(root.rglob("*")) if root.is_dir() else [root]
    texts = [path for path in paths if path.suffix in {".py", *TEXTS}]
    assert [line for path in texts for line in words_of(path)] == []


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_private_words_do_not_occur_in_scenarios(path):
    assert not in_prose(path.read_text())


def test_words_are_found_wherever_they_stand(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path / "src" / "bsfl")
    path = tmp_path / "src" / "bsfl" / "arena.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        '"""A module.\n\nWhat is told here.\n"""\n'
        "N_WORLDS = 3  # as\tprinted\n"
        "class Ledger:\n"
        "    owed: int = 0\n"
        "    def put_back(self, roster, *, heard=0):\n"
        "        raise ValueError(f'the {1} house, in vain, the house of unsealed theory')\n"
    )
    assert [line.split(":", 1)[1] for line in words_of(path)] == [
        "1: arena",
        "3: told",
        "5: as\tprinted",
        "5: worlds",
        "6: ledger",
        "7: owed",
        "8: heard",
        "8: put_back",
        "8: roster",
        "9: in vain",
        "9: the house",
    ]
