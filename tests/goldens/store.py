"""Fixture files, and the comparison of results with them."""

import gzip
import json
import time
from importlib import import_module
from pathlib import Path
from typing import Any

PARTS = ("scheduling", "simulation", "flower")
FIXTURES = Path(__file__).parent / "fixtures"

Result = dict[str, Any]
"""What a case recorded: {"rounds": [one value a round], other names: any values}."""


def part(name: str) -> Any:
    """Return the module of a part."""
    return import_module(f".{name}", __package__)


def plain(result: Any) -> Any:
    """Return a result as JSON gives it back: tuples are lists, and every float keeps all its bits."""
    return json.loads(json.dumps(result, allow_nan=False))


def compute(part_name: str, case: str) -> Result:
    """Return what a case records today."""
    return plain(part(part_name).compute(case))


def timed(job: tuple[str, str]) -> tuple[Result, float]:
    """Return what a case records, and how many seconds that took."""
    start = time.perf_counter()
    result = compute(*job)
    return result, time.perf_counter() - start


def path_of(part_name: str) -> Path:
    return FIXTURES / f"{part_name}.json.gz"


def write(part_name: str, results: dict[str, Result]) -> None:
    """Write the fixture of a part; equal results give equal bytes."""
    lines = [
        f"{json.dumps(case)}: {json.dumps(result, separators=(',', ':'), allow_nan=False)}"
        for case, result in results.items()
    ]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    FIXTURES.mkdir(exist_ok=True)
    path_of(part_name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def read(part_name: str) -> dict[str, Result]:
    """Return the fixture of a part."""
    results: dict[str, Result] = json.loads(gzip.decompress(path_of(part_name).read_bytes()))
    return results


def difference(golden: Result, now: Result) -> str | None:
    """Return where a result first differs from the golden one, and both values; None: nowhere."""
    for number, (old, new) in enumerate(
        zip(golden["rounds"], now["rounds"], strict=False), start=1
    ):
        if not same(old, new):
            return f"round {number}: {_both(old, new)}"
    if len(golden["rounds"]) != len(now["rounds"]):
        return f"number of rounds: golden {len(golden['rounds'])}, now {len(now['rounds'])}"
    for name in sorted(golden.keys() | now.keys()):
        if name not in golden or name not in now or not same(golden[name], now[name]):
            return f"{name}: {_both(golden.get(name), now.get(name))}"
    return None


def same(old: Any, new: Any) -> bool:
    """Return whether two values are equal to the last bit, and of one type."""
    return json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


def _both(old: Any, new: Any) -> str:
    """Return two values for people; of two mappings only the entries that differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = [k for k in sorted(old.keys() | new.keys()) if not same(old.get(k), new.get(k))]
        return "; ".join(f"{k}: {_both(old.get(k), new.get(k))}" for k in names)
    return f"golden {_short(old)}, now {_short(new)}"


def _short(value: Any, most: int = 300) -> str:
    text = json.dumps(value)
    return text if len(text) <= most else f"{text[:most]}..."
