"""Fixture files, and the comparison of results with them.

A result is {"rounds": [one value a round], other names: any values}.
"""

import gzip
import json
import time
from importlib import import_module
from pathlib import Path

PARTS = ("scheduling", "simulation", "flower")
FIXTURES = Path(__file__).parent / "fixtures"


def part(name):
    """Return the module of a part."""
    return import_module(f".{name}", __package__)


def compute(part_name, case):
    """Return what a case records today, as JSON gives it back: every float keeps all its bits."""
    return json.loads(json.dumps(part(part_name).compute(case), allow_nan=False))


def timed(job):
    """Return what a case records, and how many seconds that took."""
    start = time.perf_counter()
    result = compute(*job)
    return result, time.perf_counter() - start


def path_of(part_name):
    return FIXTURES / f"{part_name}.json.gz"


def write(part_name, results):
    """Write the fixture of a part; equal results give equal bytes."""
    lines = [
        f"{json.dumps(case)}: {json.dumps(result, separators=(',', ':'), allow_nan=False)}"
        for case, result in results.items()
    ]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    path_of(part_name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def read(part_name):
    """Return the fixture of a part."""
    return json.loads(gzip.decompress(path_of(part_name).read_bytes()))


def difference(golden, now):
    """Return where a result first differs from the golden one, and both values; None: nowhere."""
    rounds = zip(golden["rounds"], now["rounds"], strict=False)
    for number, (old, new) in enumerate(rounds, start=1):
        if not same(old, new):
            return f"round {number}: {_both(old, new)}"
    if len(golden["rounds"]) != len(now["rounds"]):
        return f"number of rounds: golden {len(golden['rounds'])}, now {len(now['rounds'])}"
    return None if same(golden, now) else _both(golden, now)


def same(old, new):
    """Return whether two values are equal to the last bit, and of one type."""
    return json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


def _both(old, new):
    """Return two values for people; of two mappings only the entries that differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = [k for k in sorted(old.keys() | new.keys()) if not same(old.get(k), new.get(k))]
        return "; ".join(f"{k}: {_both(old.get(k), new.get(k))}" for k in names)
    return f"golden {json.dumps(old)[:300]}, now {json.dumps(new)[:300]}"
