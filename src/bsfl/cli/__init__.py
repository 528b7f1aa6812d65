"""The command line: parse, call, print, exit code."""

import sys

from bsfl.errors import MissingExtra
from bsfl.extras import optional_imports


def main() -> None:
    """Run the command line, or say which extra is missing."""
    try:
        with optional_imports():
            from bsfl.cli.app import app
    except MissingExtra as missing:
        sys.exit(f"error: {missing}")
    app()
