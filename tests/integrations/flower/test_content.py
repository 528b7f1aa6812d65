import numpy as np
import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from bsfl.integrations.flower.content import records_of, values


def test_records_of_one_kind():
    content = RecordDict({"a": ConfigRecord({"x": 1}), "b": MetricRecord({"y": 2})})
    assert records_of(content, MetricRecord) == dict(content.metric_records)
    assert records_of(content, ArrayRecord) == {}


@pytest.mark.parametrize(
    "numbers",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(3, dtype=np.int8),
        np.zeros((0, 4)),
        np.array([1.0, np.nan], dtype=">f4"),
        np.array(["a", "bc"]),
    ],
)
def test_values_are_those_of_numpy(numbers):
    shape, found = values(Array(numbers))
    assert shape == numbers.shape
    np.testing.assert_array_equal(np.sort(found, axis=None), np.sort(numbers, axis=None))
    assert found.dtype == numbers.dtype


def spoilt(change):
    array = Array(np.arange(6.0))
    array.data = change(array.data)
    return array


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[:9],
        lambda data: b"",
        lambda data: data.replace(b"<f8", b"|O8"),
        lambda data: data.replace(b"(6,)", b"(-6,"),
        lambda data: data.replace(b"(6,)", b"(9,)"),
        lambda data: data[:8] + b"\xff\xff" + data[10:],
    ],
)
def test_what_numpy_refuses_is_refused(change):
    assert error_of(lambda: values(spoilt(change))) == error_of(spoilt(change).numpy)


def error_of(call):
    try:
        call()
    except Exception as error:
        return type(error)
    raise AssertionError("nothing was refused")


def test_other_kinds_of_arrays_are_refused():
    array = Array(np.arange(6.0))
    array.stype = "tensor"
    with pytest.raises(TypeError):
        values(array)
