"""Logs as servers write them: columns, units, outcomes, dates and decimal commas."""

import math
from datetime import UTC, datetime

import pytest

from bsfl.errors import InvalidInput
from bsfl.simulation.response_log import CsvFormat, moments_of, read_csv
from bsfl.types import FAILED, OK, TIMEOUT


@pytest.fixture
def read(tmp_path):
    def of(text, **layout):
        path = tmp_path / "log.csv"
        path.write_text(text)
        return read_csv(path, CsvFormat(**layout))

    return of


@pytest.mark.parametrize(
    ("header", "row", "unit"),
    [
        ("client,latency_s", "ann,3", "s"),
        ("Client ID;Latency (ms);x", "ann;3000;?", "ms"),
        ("cid\tduration", "ann\t3", "s"),
        ("device_id|fit_time_min", "ann|0.05", "min"),
        ("timestamp,node,elapsedMs", "17,ann,3000", "ms"),
        ("client;latency", "ann;3,000", "s"),
        ("client\tloss\tduration_ms", "ann\t0,25\t3000,0", "ms"),
    ],
)
def test_common_spellings_units_and_decimal_commas_are_understood(read, header, row, unit):
    found = read(f"{header}\n{row}\n")
    [one] = found.rows
    assert (one.client, one.latency_s, one.outcome) == ("ann", pytest.approx(3.0), OK)
    assert found.notes[1].endswith(f" in {unit}")
    assert math.isnan(one.loss) or one.loss == 0.25


def test_columns_units_and_outcomes_can_be_named(read):
    text = "who,took,when,how\nann,2000,5,ok\nbob,4000,4,ERR_NETWORK\ncem,1,3,Slow!\n"
    named = {"client": "who", "latency": "took", "time": "when", "outcome": "how", "unit": "ms"}
    found = read(text, outcomes={"ERR_NETWORK": "failed", "slow": "timeout"}, **named)
    assert [row.outcome for row in found.rows] == [OK, FAILED, TIMEOUT]
    assert [row.at for row in found.rows] == [5.0, 4.0, 3.0]
    assert [found.rows[0].latency_s, found.rows[2].latency_s] == [2.0, 0.001]
    with pytest.raises(InvalidInput, match="outcome 'x' must be one of .*got 'maybe'"):
        CsvFormat(outcomes={"x": "maybe"})
    with pytest.raises(InvalidInput, match="unit must be one of .*got 'h'"):
        CsvFormat(unit="h")


NOON = datetime(2024, 5, 31, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "text",
    [
        *("2024-05-31T12:00:00", "2024-05-31 12:00:00", "2024-05-31T14:00:00+02:00"),
        *("2024-05-31 12:00:00Z", "31.05.2024 12:00", "05/31/2024 12:00:00 PM"),
        *("31/05/2024 12:00", "2024/05/31 12:00:00.000", "31 May 2024 12:00:00 GMT"),
        *("31/May/2024:12:00:00 +0000", f"{NOON:.0f}", f"{NOON:.1f}"),
    ],
)
def test_dates_of_common_forms(text):
    assert moments_of([text, text]) == [NOON, NOON]


def test_of_two_formats_the_one_in_the_order_of_the_file_is_taken():
    days = [datetime(2024, month, day, tzinfo=UTC) for month, day in ((1, 2), (2, 1))]
    assert moments_of(["02/01/2024", "01/02/2024"]) == [day.timestamp() for day in days]
    assert moments_of([]) is None
    assert moments_of(["17171", "noon"]) is None
    assert moments_of(["1717156800000", "1717156801000"]) == [1717156800000.0, 1717156801000.0]


@pytest.mark.parametrize(("column", "order"), [("round", "round"), ("x", "file")])
def test_a_time_that_cannot_be_understood_is_ignored_with_a_sentence(read, column, order):
    found = read(f"client,latency,time,{column}\na,1,noon,2\nb,2,later,1\n")
    assert found.warning == (
        "column 'time' is ignored because its cells are no numbers and no dates of one format, "
        f"so rows are in the order of the {order}"
    )
    assert not any("time" in note for note in found.notes)
    assert [row.at for row in found.rows] == pytest.approx(
        [2.0, 1.0] if column == "round" else [math.nan] * 2, nan_ok=True
    )


CSV = "client,latency_s\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column looks like the client; .* must name the columns, and is empty"),
        ("who,latency\na,1\n", "no column looks like the client.*--client-column"),
        ("client,speed\na,1\n", "no column looks like the latency"),
        (CSV + "a,1e300\n", "line 2: latency must be a number"),
        (CSV + 'a,"3,5"\n', "line 2: latency must be a number from .*got '3,5'"),
        ("client;latency\na;1.234,5\n", "line 2: latency must be a number"),
        (CSV + "a,nan\n", "line 2: a response needs its latency, got 'nan'"),
        (CSV + " ,1\n", "line 2: the client has no name"),
        ("client,latency_s,status\na,1,ERR\n", "outcome must be ok.*--outcome ERR=failed"),
        ("client,latency_s,loss\na,1,1e99\n", "line 2: loss must be a number from"),
        (
            "client,latency\na,8500\nb,9000\nc,2\n",
            "median latency is 8,500 without a unit.*milliseconds; say --unit ms or --unit s",
        ),
    ],
)
def test_a_wrong_log_is_one_clear_line(read, text, message):
    with pytest.raises(InvalidInput, match=message) as raised:
        read(text)
    assert "\n" not in str(raised.value)


def test_a_stated_unit_is_believed(read):
    text = "client,{}\na,8500\n"
    assert read(text.format("latency_s")).rows[0].latency_s == 8500.0
    assert read(text.format("latency"), unit="s").rows[0].latency_s == 8500.0
    assert read(text.format("latency"), unit="ms").rows[0].latency_s == 8.5
    with pytest.raises(InvalidInput, match="no column 'whom'; the first line is client,latency"):
        read(text.format("latency"), client="whom")
