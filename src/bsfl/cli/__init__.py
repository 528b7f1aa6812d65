"""The command line: parse arguments, call the library, print, set the exit code."""

import sys
from importlib.util import find_spec

from bsfl import __version__
from bsfl.errors import MissingExtra
from bsfl.extras import optional_imports, require

TERMINAL, SIMULATOR, FIGURES = ("typer", "rich"), ("joblib", "scipy"), ("matplotlib", "plotly")
"""Packages that every command needs, that simulating commands need, that plotting commands need."""
NEEDS = {
    **dict.fromkeys(
        ("run", "advise", "reproduce", "leaderboard", "ablation"), (*SIMULATOR, *FIGURES)
    ),
    "report": ("scipy", *FIGURES),
}
"""What each command needs in addition, so that one error can name every missing extra."""


def main() -> None:
    """Run the command line, or exit with the name of the missing extra; --version needs none."""
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
