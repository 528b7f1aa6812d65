"""Change the source in a few random places and see whether the tests notice each change.

    python tests/mutants.py --seed 33 --count 12 [--under src/bsfl/policies] [-- PYTEST ARGUMENTS]

A mutant is one operator, constant or function that is replaced by a similar one. Each is tried with
`pytest -x`, the tests of its own package first and then all the others, and the file is restored.
The same seed and source give the same mutants; a mutant that survives may change nothing that
matters. `--list` only prints the mutants.
"""

import argparse
import ast
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SWAPS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
UNTESTED = ("strict", "frozen", "slots", "kw_only")
"""Arguments that say how code is written, not what it does."""
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum"}
N_LEAST = 6
"""Lines of a file below which it holds no logic."""


def sites(path):
    """Yield (offset, old text, new text) of everything in a file that can be mutated."""
    text = path.read_text("utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(text)
    left_out = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg in UNTESTED
    }
    left_out |= {
        id(inner)
        for node in ast.walk(tree)
        for field in ("annotation", "returns")
        if (note := getattr(node, field, None)) is not None
        for inner in ast.walk(note)
    }

    def at(line, column):
        return starts[line - 1] + len(text.splitlines()[line - 1].encode()[:column].decode())

    def between(left, right, operator):
        start, end = at(left.end_lineno, left.end_col_offset), at(right.lineno, right.col_offset)
        old, new = SWAPS[type(operator)]
        place = text.find(old, start, end)
        if place >= 0:
            yield place, old, new

    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield from between(node.left, node.comparators[0], node.ops[0])
        elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
            yield from between(node.left, node.right, node.op)
        elif isinstance(node, ast.BoolOp):
            yield from between(node.values[0], node.values[1], node.op)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield at(node.lineno, node.col_offset), "not ", ""
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            place = at(node.lineno, node.col_offset)
            old = text[place : at(node.end_lineno, node.end_col_offset)]
            yield place, old, f"({old} + 1)"
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield at(node.lineno, node.col_offset), str(node.value), str(not node.value)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", None))
            if name in CALLS:
                end = at(node.func.end_lineno, node.func.end_col_offset)
                yield end - len(name), name, CALLS[name]


def sample(folder, seed, count):
    """Return random mutants of the files below a folder: (path, offset, old, new)."""
    paths = sorted(p for p in folder.rglob("*.py") if len(p.read_text().splitlines()) >= N_LEAST)
    found = [(path, *site) for path in paths for site in sites(path)]
    return random.Random(seed).sample(found, min(count, len(found)))


def survives(path, package, arguments):
    """Return whether every test passes, and the first one that failed; its own package is first."""
    own = [ROOT / "tests" / package, ROOT / "src" / "bsfl" / package]
    parts = [[str(one) for one in own if one.exists()], []]
    for folders in parts:
        if not folders and folders is not parts[-1]:
            continue
        command = ["pytest", "-x", "-q", "-n", "2", "-p", "no:cacheprovider", *arguments, *folders]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode not in (0, 5):
            lines = [x for x in done.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))]
            return False, (lines or done.stdout.splitlines()[-1:] or ["no output"])[0][:150]
    return True, ""


def main():
    """Sample mutants and try each of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=33)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--under", type=Path, default=Path("src/bsfl"))
    parser.add_argument("--list", action="store_true", help="Only print the mutants.")
    parser.add_argument("arguments", nargs="*", help="Arguments of pytest, after --.")
    given = parser.parse_args()
    n_survived = 0
    for i, (path, offset, old, new) in enumerate(
        sample(ROOT / given.under, given.seed, given.count), 1
    ):
        text = path.read_text("utf-8")
        line = text.count("\n", 0, offset) + 1
        shown = text.splitlines()[line - 1].strip()
        print(f"{i:2} {path.relative_to(ROOT)}:{line}: {old!r} -> {new!r} in: {shown}", flush=True)
        if given.list:
            continue
        start, parts = time.monotonic(), path.relative_to(ROOT / "src" / "bsfl").parts
        try:
            path.write_text(text[:offset] + new + text[offset + len(old) :], "utf-8")
            is_alive, by = survives(path, parts[0] if len(parts) > 1 else "", given.arguments)
        finally:
            path.write_text(text, "utf-8")
        n_survived += is_alive
        outcome = "SURVIVED" if is_alive else f"found by {by}"
        print(f"   {outcome} ({time.monotonic() - start:.0f} s)", flush=True)
    if not given.list:
        print(f"{n_survived} survived")


if __name__ == "__main__":
    sys.exit(main())
