"""Scenario files are found, read safely, and name other files relative to their own folder."""

import os
import re
import tracemalloc
from collections import Counter

import numpy as np
import pytest

import bsfl
from attacks import of_long_form
from bsfl.errors import BsflError, InvalidInput
from bsfl.experiments import read_scenario, shipped_scenarios
from small_scenario import SMALL


def test_scenarios_are_found_by_name_or_file(tmp_path):
    (tmp_path / "own.toml").write_text(SMALL.replace('"small"', '"see mine.py:Rule"'))
    own = bsfl.read_scenario(tmp_path / "own.toml")
    assert (own.name, own.title) == ("own", "see mine.py:Rule"), "a title names no file"
    assert bsfl.read_scenario("phones").name == "phones"
    os.mkfifo(tmp_path / "pipe.toml")
    for name, message in (
        ("demos", "unknown scenario 'demos'; did you mean 'demo'?"),
        (tmp_path, "is a folder; name a scenario file"),
        ("nowhere.toml", r"there is no scenario file nowhere\.toml"),
        ("q" * 500 + ".toml", "there is no scenario file"),
        (tmp_path / "pipe.toml", "there is no scenario file"),
        ("/dev/zero", "there is no scenario file /dev/zero"),
    ):
        with pytest.raises(InvalidInput, match=message):
            read_scenario(name)


def test_files_are_relative_to_the_file_that_names_them(tmp_path, monkeypatch):
    (tmp_path / "log.csv").write_text("client,latency_s\na,1.5\nb,2.5\nc,3.0\n")
    (tmp_path / "rules.py").write_text("from bsfl import UniformRandom as Mine\n")
    text = SMALL.replace('population = "lognormal"', 'population = "trace"\npath = "log.csv"')
    text += '\n[policies.mine]\npolicy = "rules.py:Mine"\n'
    (tmp_path / "own.toml").write_text(text)
    monkeypatch.chdir("/")
    plain = read_scenario(tmp_path / "own.toml").plain()
    assert plain["clients"]["latency"]["path"] == str(tmp_path / "log.csv")
    assert plain["policies"]["mine"] == {"policy": f"{tmp_path / 'rules.py'}:Mine"}


HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = = 3", "not a TOML file"),
        ("\0", "not a TOML file"),
        ("rounds = " + "9" * 5000, "not a TOML file: Exceeds the limit"),
        (f"rounds = {HUGE}", "rounds must be a whole number of 64 bits"),
        (f"rounds = 0x1{'0' * 5000}", "rounds must be a whole number of 64 bits"),
        ("a.n_clients = 9223372036854775808", "a.n_clients must be a whole number of 64 bits"),
        (f"a = {'[' * 100_000}", "more than 20 levels of nesting"),
        (f"a = {'[' * 30}{']' * 30}", "more than 20 levels of nesting"),
        ("#" * 1_000_001, "cannot be read: it has more than 1,000,000 bytes"),
        ('a.path = "\\u0000"', "a.path must not hold the character NUL"),
    ],
)
def test_what_no_scenario_file_holds_is_rejected(tmp_path, text, message):
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(InvalidInput, match=f"^own.toml: {message}") as caught:
        read_scenario(tmp_path / "own.toml")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ('[learning]\ndataset = "{}"', r"\[learning\]"),
        ('[clients.availability]\nkind = "recorded"\npath = "{}"', r"\[clients.availability\]"),
        ('[clients.availability]\nkind = "intervals"\npath = "{}"', r"\[clients.availability\]"),
        ('[policies.own]\npolicy = "{}:Rule"', r"\[policies.own\]"),
    ],
)
@pytest.mark.parametrize("file", ["/dev/zero", "pipe", "a" * 500, "a" * 500 + ".npz"])
def test_what_is_no_regular_file_is_not_read(tmp_path, part, place, file):
    os.mkfifo(tmp_path / "pipe")
    if "policy" in part:
        if len(file) < 100:
            os.symlink(file, tmp_path / "rule.py")
        file = "rule.py" if len(file) < 100 else file + ".py"
    (tmp_path / "own.toml").write_text(f"{SMALL}\n{part.format(file)}\n")
    tracemalloc.start()
    with pytest.raises(BsflError, match=rf"^own.toml {place}"):
        read_scenario(tmp_path / "own.toml")
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()


KEY = re.compile(r"[\w-]+(?= = )")
VALUE = re.compile(r'(?<= = )("[^"\n]*"|\[[^\]\n]*\]|[^\s,{}"\[\]]+)')
ODD_KEYS = ("kind", "path", "index", "share", "window", '""', '"a.b"', '"日本"', '"\\n"', "rouns")
ODD_VALUES = (
    *("0", "-1", "1", "2", "7", "1_000_000_000", "9223372036854775807", "-9223372036854775809"),
    *(HUGE, "0.0", "-0.0", "0.5", "1.0", "1.5", "-3.5", "5e-324", "1e-300", "1e300", "1.8e308"),
    *("nan", "inf", "-inf", "true", "false", '""', '" "', '"x"', '"auto"', '"random"', '"genie"'),
    *('"bsfl"', '"phones"', '"trace"', '"recorded"', '"$\\\\frac"', '"[red]x[/red]"', '"日本🦊"'),
    *('"\\u202eleft"', '"\\u0000"', '"\\n"', '"\\u001b[2J"', '"../../etc/passwd"', '"/dev/zero"'),
    *('"no/such.py:Class"', '"mine.py:"', '":"', '"os:system"', '"NaN"', f'"{"a" * 500}"'),
    *("[]", "[[]]", "[1]", "[1.0, 2.0]", "[2.0, 1.0]", "[nan, 1.0]", '["a"]', "[[1, [2, {}]]]"),
    *("{}", "{kind = 3}", '{kind = "barrier"}', '{"" = ""}', "{a = {b = {c = []}}}"),
    *('{kind = "lognormal", quantile = nan}', '{kind = "min-participation", share = 1e300}'),
    *("1979-05-27", "07:32:00", "1979-05-27T07:32:00"),
)
NO_TOML = ("\0", "\udcff", '"', "[", "]", "{", "=", "\n", "[[a]]\n", "'''", "#", ".", "\\")


def mutate(rng, text):
    """Change one thing somewhere in the text of a scenario file."""

    def pick(values):
        return values[rng.integers(len(values))]

    kind = rng.choice(["value", "value", "value", "key", "added", "moved", "removed", "broken"])
    if kind == "broken":
        start = int(rng.integers(len(text)))
        return text[:start] + pick(NO_TOML) + text[start + int(rng.integers(8)) :]
    lines = text.splitlines()
    if kind == "added":
        lines.insert(int(rng.integers(len(lines))), f"{pick(ODD_KEYS)} = {pick(ODD_VALUES)}")
    elif kind in ("moved", "removed"):
        line = lines.pop(int(rng.integers(len(lines))))
        if kind == "moved":
            lines.insert(int(rng.integers(len(lines) + 1)), line)
    elif found := list((KEY if kind == "key" else VALUE).finditer(text)):
        old = pick(found)
        new = pick((*ODD_KEYS, *KEY.findall(text))) if kind == "key" else pick(ODD_VALUES)
        return text[: old.start()] + new + text[old.end() :]
    return "\n".join(lines)


def attack(folder, n_cases, seed):
    """Read shipped scenarios with odd changes; each is read, or rejected in one line."""
    rng, outcomes = np.random.default_rng(seed), Counter()
    shipped = [path.read_text(encoding="utf-8") for path in shipped_scenarios().values()]
    small = [re.sub(r"(n_clients|cohort_size) = \d\d+", r"\1 = 20", text) for text in shipped]
    path, messages = folder / "fuzzed.toml", []
    for _ in range(n_cases):
        text = small[rng.integers(len(small))]
        for _ in range(rng.integers(1, 4)):
            text = mutate(rng, text)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        try:
            read_scenario(path)
            outcomes["read"] += 1
        except BsflError as error:
            outcomes["rejected"] += 1
            messages.append(str(error))
        except Exception as error:
            error.add_note(text)
            raise
    strange = [m for m in messages if not re.fullmatch(r"fuzzed\.toml\b.*", m)]
    assert strange == []
    assert min(outcomes["read"], outcomes["rejected"]) >= n_cases // 100, outcomes


def test_fuzzed_scenarios_are_read_or_rejected_in_one_line(tmp_path):
    attack(tmp_path, 200, seed=0)


@pytest.mark.attack
@pytest.mark.parametrize("seed", range(1, 7))
def test_many_fuzzed_scenarios_are_read_or_rejected_in_one_line(tmp_path, seed):
    attack(tmp_path, of_long_form(2_000), seed=seed)
