"""Traces of recorded clients."""

import pytest

from bsfl.errors import InvalidInput
from bsfl.simulation.populations import read_trace
from bsfl.types import LATENCY_RANGE


def test_a_log_with_more_columns_is_a_trace(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        "timestamp,client,latency_ms,outcome\n"
        "2026-03-01T08:00:00Z,a,1500,success\n"
        "2026-03-01T08:01:00Z,a,,error\n"
        "2026-03-01T08:02:00Z,b,45000,timeout\n"
        "2026-03-01T08:03:00Z,b,50000,late\n"
    )
    columns, rows = read_trace(path)
    assert columns == ("latency_s",)
    never_s = LATENCY_RANGE[1]
    assert {client: values.ravel().tolist() for client, values in rows.items()} == {
        "a": [1.5, never_s],
        "b": [never_s, 50.0],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the first line must be client,latency_s or client,compute_ms_per_sample"),
        ("client,speed\na,1\n", "got client,speed"),
        ("client,latency,outcome\na,1,fine\n", "line 2: the outcome must be ok, timeout, failed"),
        ("client,latency_s\n", "there is no row below the header"),
        (
            "client,latency_s\na,1\nb,-2\n",
            "line 3: latency_s must be a number from 1e-09 to 1e\\+12, got '-2'",
        ),
        (
            "client,latency_s\na,fast\n",
            "line 2: latency_s must be a number from 1e-09 to 1e\\+12, got 'fast'",
        ),
        ("client,latency_s\na,1,2\n", "line 2: expected 2 values, got 3"),
        (
            "client,compute_ms_per_sample,bandwidth_kbps\na,1,1\na,1,1\n",
            "client 'a' has more than one row",
        ),
    ],
)
def test_bad_traces(tmp_path, content, message):
    path = tmp_path / "log.csv"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=message):
        read_trace(path)
