"""Fuzzed scenario files: each is read, or refused in one line that names it.

The shipped scenarios are changed where it hurts: other types, huge numbers, NaN, unknown and
missing keys, junk in junk, odd characters, and bytes that are no TOML at all.
"""

import copy
import datetime
import json
import math
import tomllib
from collections import Counter

import numpy as np
import pytest

from attacks import of_long_form
from bsfl.errors import BsflError, InvalidInput
from bsfl.experiments import parse_scenario, read_scenario, shipped_scenarios

HUGE = 10**400
ODD = (
    *(0, -1, 1, 2, 7, 10**9, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, HUGE, -HUGE, 16**5000),
    *(
        0.0,
        -0.0,
        0.5,
        1.0,
        1.5,
        -3.5,
        1e-300,
        5e-324,
        1e300,
        1.8e308,
        math.nan,
        math.inf,
        -math.inf,
    ),
    *(True, False, "", " ", "x", "auto", "random", "genie", "bsfl", "phones", "trace", "always"),
    *("$\\frac", "[red]x[/red]", "\u202eleft", "日本", "🦊", "\0", "\n", "\x1b[2J", "a" * 500),
    *("../../etc/passwd", "/dev/zero", "no/such.py:Class", "mine.py:", ":", "os:system", "NaN"),
    *([], [[]], [1], [1.0, 2.0], [2.0, 1.0], [math.nan, 1.0], [HUGE, 1], ["a"], [[1, [2, {}]]]),
    *({}, {"kind": "barrier"}, {"kind": 3}, {"": ""}, {"a": {"b": {"c": []}}}),
    *({"kind": "lognormal", "quantile": math.nan}, {"kind": "min-participation", "share": HUGE}),
    *(datetime.date(1979, 5, 27), datetime.time(7, 32), datetime.datetime(1979, 5, 27, 7, 32)),
)
KEYS = (
    *("title", "rounds", "time_s", "cohort_size", "seeds", "first_seed", "clients", "round"),
    *("objective", "learning", "policies", "n_clients", "tau_min", "tau_max", "latency", "kind"),
    *("population", "availability", "drift", "failures", "data", "features", "probability", "path"),
    *(
        "alpha",
        "policy",
        "over_selection",
        "deadline_s",
        "min_responses",
        "late",
        "buffer_size",
        "concurrency",
        "partition",
    ),
    *("index", "memory", "window", "gamma", "share", "factor", "at", "ramp", "noise", "spread"),
    *("dataset", "samples", "model_bytes", "jitter", "beta", "epochs", "engine", "quality", "x"),
    *("", " ", "a.b", "日本", "$", "\n", "]", "rouns", "a" * 300, "__class__", "self"),
)
WORDS = (b"\0", b"\xff", b'"', b"[", b"]", b"{", b"=", b"\n", b"[[a]]\n", b"'''", b"#", b".", b"\\")


def toml(value):
    """Return a value as it stands in a TOML file."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value) if abs(value) < 10**1000 else hex(value)
        case float():
            return repr(value)
        case str():
            return (
                json.dumps(value).replace("\x7f", "\\u007f") if value.isascii() else quoted(value)
            )
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            inside = (f"{toml(key)} = {toml(one)}" for key, one in value.items())
            return f"{{{', '.join(inside)}}}"
        case _:
            return value.isoformat()


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


def as_file(content):
    return "\n".join(f"{toml(key)} = {toml(value)}" for key, value in content.items()).encode()


def places(value, found):
    """Return every table and list in a content, with the content itself."""
    if isinstance(value, dict | list) and value:
        found.append(value)
        for one in value.values() if isinstance(value, dict) else value:
            places(one, found)
    return found


def mutate(rng, content):
    """Change one thing somewhere in a content."""

    def pick(values):
        return copy.deepcopy(values[rng.integers(len(values))])

    found = places(content, [])
    if not found:
        return
    place = found[rng.integers(len(found))]
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    key = keys[rng.integers(len(keys))]
    match rng.integers(8):
        case 0 | 1 | 2:
            place[key] = pick(ODD)
        case 3:
            del place[key]
        case 4 if isinstance(place, dict):
            place[pick(KEYS)] = pick(ODD)
        case 5 if isinstance(place, dict):
            place[pick(KEYS)] = place.pop(key)
        case 6:
            other = found[rng.integers(len(found))]  # a part of it where it does not belong
            place[key] = copy.deepcopy(other)
        case _:
            value = place[key]
            if isinstance(value, int | float) and abs(value) < 10**300:
                place[key] = pick((-value, value + 0.5, str(value), HUGE))
            else:
                place[key] = [value]


def damaged(rng, text):
    changed = bytearray(text)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(0, len(changed) + 1))
        changed[at : at + int(rng.integers(0, 8))] = WORDS[rng.integers(len(WORDS))]
    return bytes(changed)


def attack(folder, n_cases, seed):
    """Read fuzzed files; return how many were read, and how many refused."""
    rng, outcomes = np.random.default_rng(seed), Counter()
    shipped = [tomllib.loads(p.read_text(encoding="utf-8")) for p in shipped_scenarios().values()]
    path, refused = folder / "fuzzed.toml", []
    for i in range(n_cases):
        content = copy.deepcopy(shipped[rng.integers(len(shipped))])
        fleet = content["clients"]  # smaller, and as odd
        fleet["n_clients"] = min(fleet["n_clients"], 60)
        content["cohort_size"] = min(content["cohort_size"], 5)
        for _ in range(rng.integers(1, 4)):
            mutate(rng, content)
        text = as_file(content)
        path.write_bytes(damaged(rng, text) if rng.random() < 0.15 else text)
        try:
            read_scenario(path)
            outcomes["read"] += 1
        except BsflError as error:
            outcomes["refused"] += 1
            refused.append(str(error))
        except Exception as error:
            kept = folder / f"case-{i}.toml"
            kept.write_bytes(path.read_bytes())
            outcomes[f"{type(error).__name__}: {str(error)[:100]} ({kept})"] += 1
    assert all(one.startswith("fuzzed.toml") and len(one.splitlines()) == 1 for one in refused), [
        one for one in refused if not one.startswith("fuzzed.toml") or len(one.splitlines()) > 1
    ]
    assert set(outcomes) <= {"read", "refused"}, outcomes
    return outcomes


def test_fuzzed_scenarios(tmp_path):
    outcomes = attack(tmp_path, 200, seed=0)
    assert min(outcomes["read"], outcomes["refused"]) > 0


@pytest.mark.attack
@pytest.mark.parametrize("seed", range(1, 7))
def test_many_fuzzed_scenarios(tmp_path, seed):
    n_cases = of_long_form(2_000)
    outcomes = attack(tmp_path, n_cases, seed=seed)
    print(dict(outcomes))
    assert min(outcomes["read"], outcomes["refused"]) >= n_cases // 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = " + "9" * 5000, "fuzzed.toml: not a TOML file: Exceeds the limit"),
        (f"rounds = {HUGE}", "fuzzed.toml: rounds must be a whole number of 64 bits"),
        (f"rounds = {hex(16**5000)}", "fuzzed.toml: rounds must be a whole number of 64 bits"),
        (f"a = {'[' * 100_000}", "fuzzed.toml: more than 20 levels of nesting"),
        (f"a = {'[' * 30}{']' * 30}", "fuzzed.toml: more than 20 levels of nesting"),
        ("#" * 1_000_001, "fuzzed.toml: cannot be read: it has more than 1,000,000 bytes"),
        ("\0", "fuzzed.toml: not a TOML file"),
        ('fleet.latency.path = "\\u0000"', "fleet.latency.path must not hold the character NUL"),
        ("fleet.n_clients = 10000000000000000000", "fleet.n_clients must be a whole number of 64"),
    ],
)
def test_numbers_and_files_beyond_all_reason(tmp_path, text, message):
    (tmp_path / "fuzzed.toml").write_text(text)
    with pytest.raises(InvalidInput, match=message) as caught:
        read_scenario(tmp_path / "fuzzed.toml")
    assert len(str(caught.value)) < 300


def test_a_title_is_one_line_and_a_label_is_short():
    content = tomllib.loads(shipped_scenarios()["phones"].read_text(encoding="utf-8"))
    for title in ("two\nlines", "\x1b[2J", "\ud800"):
        with pytest.raises(InvalidInput, match="phones: title must be one line of text, got '"):
            parse_scenario({**content, "title": title}, name="phones", file="phones")
    for label, message in (("a\nb", "may hold letters"), ("a" * 101, "may have 100 characters")):
        with pytest.raises(InvalidInput, match=rf"phones \[policies\]: a policy's label {message}"):
            parse_scenario({**content, "policies": {label: {}}}, name="phones", file="phones")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 10**9}, "rounds must be a whole number of at most 100,000,000"),
        ({"seeds": 10**9}, "seeds must be a whole number of at most 100,000"),
        ({"n_clients": 10**9}, "n_clients must be a whole number of at most 10,000,000"),
    ],
)
def test_counts_beyond_all_reason(changes, message):
    content = tomllib.loads(shipped_scenarios()["phones"].read_text(encoding="utf-8"))
    for key, value in changes.items():
        (content["clients"] if key in content["clients"] else content)[key] = value
    with pytest.raises(InvalidInput, match=message):
        parse_scenario(content, name="phones", file="phones")
