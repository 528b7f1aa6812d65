"""How long the attack tests are: `./run test attack` plays all cases, other runs a tenth of them."""

import math
import os

IS_LONG = os.environ.get("BSFL_ATTACKS") == "long"


def of_long_form(n_cases):
    """Return how many of the cases of the long form are tried."""
    return n_cases if IS_LONG else math.ceil(n_cases / 10)
