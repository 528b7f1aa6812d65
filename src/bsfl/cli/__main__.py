"""python -m bsfl.cli: the same as the bsfl command."""

from bsfl.cli import main

main()
