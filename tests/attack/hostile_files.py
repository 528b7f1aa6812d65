"""Saved schedulers that somebody has changed, each with a right checksum."""

import copy
import hashlib
import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from every_policy import bsfl_variants, pace_variants, registered

from bsfl import Observation, Scheduler
from bsfl.policies import POLICIES
from bsfl.saving.statefile import DTYPES, MAGIC

OLD_FILES = sorted((Path(__file__).parents[1] / "saving" / "state_files").glob("*/*.bsfl"))
PRELUDE = struct.Struct("<12sIQ32s")
DEEP = "a value that is nested ten thousand deep"
N_DEEP = 10_000
ODD = [None, True, False, -1, 0, 1, 2, 3, 0.5, -0.5, 10**9, 10**15, 10**18, 2**63, 10**30, 10**400]
ODD += [1e308, -1e308, 5e-324, math.nan, math.inf, "", "x", "x" * 10_000, "a\nb", [], [1], {}, DEEP]
ODD += [{"kind": "floor"}, {"kind": "means"}, {"kind": []}, [[1, 2]], ["a"] * 100, "auto", "\ud800"]
FLOATS = [
    math.nan,
    math.inf,
    -math.inf,
    -1.0,
    0.0,
    1e308,
    -1e308,
    1e100,
    -1e100,
    5e-324,
    1e-9,
    1e15,
]
WHOLES = [-1, 0, 1, 2, 2**31 - 1, 2**31, 10**9, 10**15, 10**18, 2**63 - 1, -(2**63)]
SIZES = [0, 1, 2, 3, 7, 100, -1, 10**6, 10**9, 10**18, 10**30, 2**62, 1.5, True, "3", None]


@dataclass
class Content:
    """What stands in a file: header, and arrays as [name, dtype, shape, bytes]."""

    header: dict
    arrays: list

    def numbers(self, i):
        """Return a copy of an array that can be changed."""
        _, dtype, shape, raw = self.arrays[i]
        return np.frombuffer(raw, np.dtype(dtype)).reshape(shape).copy()

    def put(self, i, array, shape=None):
        """Store an array, which may claim another shape."""
        array = np.ascontiguousarray(array)
        told = list(array.shape) if shape is None else shape
        self.arrays[i] = [self.arrays[i][0], array.dtype.str, told, array.tobytes()]

    def to_bytes(self):
        listing = [{"name": n, "dtype": d, "shape": s} for n, d, s, _ in self.arrays]
        head = json.dumps({**self.header, "arrays": listing})
        head = head.replace(json.dumps(DEEP), "[" * N_DEEP + "]" * N_DEEP).encode()
        return sealed(struct.pack("<Q", len(head)) + head + b"".join(a[3] for a in self.arrays))


def sealed(body, version=1):
    """Return a file with a right checksum."""
    digest = hashlib.sha256(struct.pack("<I", version) + body).digest()
    return PRELUDE.pack(MAGIC, version, len(body), digest) + body


def content_of(path):
    """Return what stands in a file that was saved."""
    body = path.read_bytes()[PRELUDE.size :]
    (n_head,) = struct.unpack_from("<Q", body)
    header, position, arrays = json.loads(body[8 : 8 + n_head]), 8 + n_head, []
    for entry in header.pop("arrays"):
        n_bytes = math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize
        raw = body[position : position + n_bytes]
        arrays.append([entry["name"], entry["dtype"], entry["shape"], raw])
        position += n_bytes
    return Content(header, arrays)


def originals(folder):
    """Return files of every policy, saved in the middle of a round, and those of old versions."""
    found = [*OLD_FILES]
    policies = registered() | dict(list(bsfl_variants().items())[::7])
    policies |= dict(list(pace_variants().items())[::5])
    for number, policy in enumerate(policies.values()):
        scheduler = Scheduler(policy, cohort_size=3, invite=[1.0, 1.3, "auto"][number % 3], seed=1)
        ids = [list(range(12)), [f"c{k}" for k in range(12)], [2**70 + k for k in range(12)]]
        rows = {"features": [[k, k % 3] for k in range(12)]} if number % 2 else {}
        scheduler.join(ids[number % 3], samples=[float(k + 1) for k in range(12)], **rows)
        for t in range(6):
            cohort = scheduler.select()
            scheduler.observe({k: good(len(str(k)) + t + i) for i, k in enumerate(cohort[t % 2 :])})
        if number % 4 == 0:
            scheduler.leave(scheduler.clients[2:4])
        path = folder / f"original-{number}.bsfl"
        scheduler.save(path)
        found.append(path)
    return found


def good(number):
    """Return an answer that every policy can learn from."""
    return Observation(latency=1.0 + number % 7, loss=1.0 + number % 3, samples=5 + number)


def header_value(content, dice):
    content.header[dice.choice(list(content.header))] = dice.choice(ODD)


def header_whole(content, dice):
    keys = ("t", "n_state", "n_ids", "n_available", "cohort_size", "seed", "forget_after", "invite")
    content.header[dice.choice(keys)] = dice.choice([*WHOLES, *SIZES])


def header_missing(content, dice):
    del content.header[dice.choice(list(content.header))]


def header_extra(content, dice):
    content.header[dice.choice(["n_members_then", "self", "kind", "", "x"])] = dice.choice(ODD)


def schema(content, dice):
    content.header["schema"] = dice.choice([1, 2, 3, 4, 5, 0, -1, 10**30, "4", None, 1.0])


def setting(content, dice):
    settings = content.header["settings"]
    if not settings:
        content.header["settings"] = {dice.choice(["x", "tau_max", "self"]): dice.choice(ODD)}
        return
    key = dice.choice(list(settings))
    inner = settings[key]
    if isinstance(inner, dict) and dice.random() < 0.7:
        inner[dice.choice([*inner, "x"])] = dice.choice(ODD)
    elif isinstance(inner, list) and inner and dice.random() < 0.7:
        inner[dice.randrange(len(inner))] = dice.choice(ODD)
    else:
        settings[key] = dice.choice(ODD)


def setting_by_kind(content, dice):
    """Change a setting to one that could be meant, and may not fit what was learned."""
    settings = content.header["settings"]
    if settings:
        key = dice.choice(list(settings))
        limits = [1e-9, 1e12, 1e100, 0.0, 1.0, 10**9, 10**15, 2, 1, 40, "loss", "exhaustive"]
        kinds = [{"kind": "windowed", "window": 10**15}, {"kind": "discounted", "gamma": 0.0}]
        kinds += [{"kind": "lognormal", "optimism": 1e100}, {"kind": "floor", "share": 1.0}]
        settings[key] = dice.choice(limits + kinds)


def policy(content, dice):
    name = dice.choice([*POLICIES, "x", "os:system", "/tmp/x.py:Rule", "x" * 5000, ""])
    content.header["policy"] = name
    if dice.random() < 0.5:
        example = dict(getattr(POLICIES[name], "example", {})) if name in list(POLICIES) else {}
        content.header["settings"] = {k: np.asarray(v).tolist() for k, v in example.items()}


def remembers(content, dice):
    content.header["remembers"] = dice.choice([*ODD, {"index": {"kind": "means"}}, {"x": "y"}])


def _any(content, dice):
    return dice.randrange(len(content.arrays))


def array_dtype(content, dice):
    i = _any(content, dice)
    told = dice.choice([*DTYPES, "|O", ">f8", "<f2", "<U4", "V8", "", None, 5, "<M8[s]"])
    if told in DTYPES and dice.random() < 0.7:
        with np.errstate(invalid="ignore"):
            content.put(i, content.numbers(i).astype(told))
    else:
        content.arrays[i][1] = told


def array_shape(content, dice):
    i = _any(content, dice)
    shape = content.arrays[i][2]
    told = dice.choice(
        [
            [*shape, 1],
            [1, *shape],
            [*shape, 0],
            [0, 10**30],
            [0, 10**9],
            [0] * 40,
            [1] * 70,
            [dice.choice(SIZES) for _ in shape],
            [math.prod(shape)],
            [],
            "12",
            None,
        ]
    )
    content.arrays[i][2] = told


def array_length(content, dice):
    """Make an array longer or shorter, and say so."""
    i = _any(content, dice)
    array = content.numbers(i)
    if array.ndim:
        n = dice.choice([0, 1, max(len(array) - 1, 0), len(array) + 1, 2 * len(array) + 3, 1000])
        content.put(i, np.resize(array, (n, *array.shape[1:])))
    else:
        content.put(i, np.resize(array, 3))


def array_wider(content, dice):
    i = _any(content, dice)
    array = content.numbers(i)
    if array.ndim == 2:
        content.put(i, np.resize(array, (len(array), dice.choice([0, 1, 2, 3, 4, 50]))))


def wide_and_empty(content, dice):
    """Claim that nobody has very many features."""
    for i, (name, *_) in enumerate(content.arrays):
        if name == "clients/features":
            n = content.header.get("n_ids", 0)
            content.put(i, np.zeros(0), [dice.choice([0, n]), dice.choice(SIZES)])


def nobody(content, dice):
    """Claim that there are no clients, or that nothing is known of them."""
    content.header["n_state"] = 0
    for i, (name, *_) in enumerate(content.arrays):
        if name.startswith(("state/", "ledger/")) and content.numbers(i).ndim == 1:
            content.put(i, content.numbers(i)[:0])
        if name in ("waiting", "unbooked", "cohort") and dice.random() < 0.8:
            content.put(i, content.numbers(i)[:0])


def array_name(content, dice):
    i = _any(content, dice)
    names = [a[0] for a in content.arrays]
    new = [*names, "", "x", None, 5, [], "state/" + "x" * 9000, "state/memory", "clients/ids", "\n"]
    content.arrays[i][0] = dice.choice(new)


def array_missing(content, dice):
    del content.arrays[_any(content, dice)]


def array_twice(content, dice):
    content.arrays.insert(_any(content, dice), list(content.arrays[_any(content, dice)]))


def value(content, dice):
    """Change one number, or all of an array, to one that may break something."""
    i = _any(content, dice)
    array = content.numbers(i)
    if array.size == 0:
        return
    where = dice.randrange(array.size) if dice.random() < 0.6 else slice(None)
    kind = array.dtype.kind
    if kind == "f":
        array.reshape(-1)[where] = dice.choice(FLOATS)
    elif kind == "b":
        array.reshape(-1)[where] = dice.choice([True, False])
    elif kind == "u":
        array.reshape(-1)[where] = dice.choice([0, 10, 45, 48, 0x80, 0xFF, 0xED])
    else:
        info = np.iinfo(array.dtype)
        array.reshape(-1)[where] = min(max(dice.choice(WHOLES), info.min), info.max)
    content.put(i, array)


def fine_value(content, dice):
    """Change numbers of what was learned to others of their kind, within the limits."""
    learned = [i for i, a in enumerate(content.arrays) if a[0].startswith(("state/", "ledger/"))]
    i = dice.choice(learned or [0])
    array = content.numbers(i)
    if array.dtype.kind == "f":
        top = dice.choice([1e100, 1e50, 1e12, 1e-300, 1.0])
        fresh = [dice.choice([0.0, top, dice.random() * top, -top]) for _ in range(array.size)]
        content.put(i, np.array(fresh, array.dtype).reshape(array.shape))
    elif array.dtype.kind == "i":
        top = min(dice.choice([1, 10**6, 10**15, 2**31 - 1]), np.iinfo(array.dtype).max)
        fresh = [dice.choice([0, top, dice.randrange(top)]) for _ in range(array.size)]
        content.put(i, np.array(fresh, array.dtype).reshape(array.shape))


def ids(content, dice):
    for i, (name, *_) in enumerate(content.arrays):
        array = content.numbers(i)
        if name in ("clients/ids", "clients/ids-length") and len(array):
            array[dice.randrange(len(array))] = dice.choice([*array.tolist(), *WHOLES, 1001])
            content.put(i, array)
        elif name in ("clients/ids-text", "clients/ids-number") and dice.random() < 0.7:
            longer = dice.choice([b"", b"\xff", b"9" * 5000, b" 5", b"1_0", "é".encode(), b"-"])
            content.put(i, np.frombuffer(array.tobytes() + longer, np.uint8))
            for j, (other, *_) in enumerate(content.arrays):
                if other == "clients/ids-length" and len(content.numbers(j)):
                    lengths = content.numbers(j)
                    lengths[-1] += len(longer)
                    content.put(j, lengths)


def rounds(content, dice):
    for i, (name, *_) in enumerate(content.arrays):
        if name in ("waiting", "sizes"):
            array = content.numbers(i)
            if array.size and dice.random() < 0.5:
                array.reshape(-1)[dice.randrange(array.size)] = dice.choice(WHOLES)
            elif dice.random() < 0.5:
                array = np.concatenate([array, array])
            content.put(i, array)


def bytes_left(content, dice):
    content.arrays[-1][3] += b"\0" * dice.choice([1, 8, 1000])


def bytes_missing(content, dice):
    content.arrays[-1][3] = content.arrays[-1][3][: -dice.choice([1, 8])]


MUTATIONS = (
    *(header_value, header_whole, header_missing, header_extra, schema, setting, setting_by_kind),
    *(policy, remembers, array_dtype, array_shape, array_length, array_wider, wide_and_empty),
    *(nobody, array_name, array_missing, array_twice, value, value, value, fine_value, fine_value),
    *(ids, rounds, bytes_left, bytes_missing),
)


def hostile(content, dice):
    """Return the bytes of a changed file, and what was done to it."""
    content = copy.deepcopy(content)
    done = []
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        change = dice.choice(MUTATIONS)
        try:
            with np.errstate(over="ignore"):  # what a narrow array cannot hold becomes infinite
                change(content, dice)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
            continue  # an earlier change has left nothing to change here
        done.append(change.__name__)
    return content.to_bytes(), "+".join(done)
