"""The command line: parse, call, print, exit code."""

import sys

EXTRA_OF = {"typer": "cli", "rich": "cli", "joblib": "sim", "matplotlib": "plots"}


def main() -> None:
    """Run the command line, or say which extra is missing."""
    try:
        from bsfl.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in EXTRA_OF:
            raise
        sys.exit(
            f"the bsfl command needs {error.name}, which is not installed; "
            "run: pip install 'bsfl[cli,sim,plots]'"
        )
    app()
