"""python -m bsfl: the same as the bsfl command."""

from bsfl.cli import main

main()
