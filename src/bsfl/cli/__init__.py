"""The command line: parse, call, print, exit code."""

import sys
from importlib.util import find_spec

from bsfl import __version__
from bsfl.errors import MissingExtra
from bsfl.extras import optional_imports, require

TERMINAL, SIMULATOR, FIGURES = ("typer", "rich"), ("joblib",), ("matplotlib", "plotly")
"""Packages that commands need: all of them, those that simulate, and those that draw."""
NEEDS = {
    **dict.fromkeys(
        ("run", "advise", "reproduce", "leaderboard", "ablation"), (*SIMULATOR, *FIGURES)
    ),
    "report": FIGURES,
}
"""What commands need beside the terminal's, so that one message can name it all."""


def main() -> None:
    """Run the command line, or say which extra is missing; the version needs none."""
    if sys.argv[1:] == ["--version"]:
        print_version()
        return
    try:
        if find_spec("typer") is None:
            require(*TERMINAL, *NEEDS.get("".join(sys.argv[1:2]), ()))
        with optional_imports():
            from bsfl.cli.app import app
    except MissingExtra as missing:
        sys.exit(f"error: {missing}")
    app()


def print_version() -> None:
    """Print the version."""
    print(f"bsfl {__version__}")
