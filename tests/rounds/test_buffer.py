"""The numbers of buffered aggregation."""

import pytest

from bsfl.errors import InvalidInput
from bsfl.rounds import BufferPlan


def test_a_buffer_is_not_larger_than_the_concurrency():
    with pytest.raises(InvalidInput, match="buffer must not exceed the concurrency of 3, got 4"):
        BufferPlan(concurrency=3, buffer=4)
