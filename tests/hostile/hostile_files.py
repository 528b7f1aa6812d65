"""Saved schedulers that were changed at random, each with a valid checksum."""

import copy
import json
import math
import struct
from dataclasses import dataclass, field, fields, is_dataclass

import numpy as np

from bsfl import Observation, Scheduler
from bsfl._core.state import ROUNDS
from bsfl.persistence.statefile import DTYPES
from bsfl.policies import POLICIES
from every_policy import bsfl_variants, is_forgettable, pace_variants, registered
from saved_state import PRELUDE, finalised

DEEP = "a value that is nested ten thousand deep"
N_DEEP = 10_000
ODD = [None, True, False, -1, 0, 1, 2, 3, 0.5, -0.5, 10**9, 10**15, 10**18, 2**63, 10**30, 10**400]
ODD += [1e308, -1e308, 5e-324, math.nan, math.inf, "", "x", "x" * 10_000, "a\nb", [], [1], {}, DEEP]
ODD += [{"kind": "min-participation"}, {"kind": "ucb"}, {"kind": []}, [[1, 2]], ["a"] * 100]
ODD += ["auto", "\ud800"]
FLOATS = [math.nan, math.inf, -math.inf, -1.0, 0.0, 1.0, 1e308, -1e308, 1e100, -1e100]
FLOATS += [5e-324, 1e-9, 1e15, 1e30, -0.0]
WHOLES = [-1, 0, 1, 2, 2**31 - 1, 2**31, 10**9, 10**15, 10**18, 2**63 - 1, -(2**63)]
SIZES = [0, 1, 2, 3, 7, 100, -1, 10**6, 10**9, 10**18, 10**30, 2**62, 1.5, True, "3", None]
NUMBERS = [*WHOLES, *SIZES, 1e-9, 1e12, 0.5]
SETTINGS = ["loss", "exhaustive", 40, {"kind": "sliding-window", "window": 10**15}]
SETTINGS += [{"kind": "discounted", "gamma": 0.0}, {"kind": "lognormal", "optimism": 1e100}]
SETTINGS += [{"kind": "min-participation", "share": 1.0}, "apply", "drop", "/tmp/x.py:rule"]
COLUMNS = [["a", "b"], ["a", "a"], [f"x{k}" for k in range(50)]]


@dataclass
class Content:
    """The content of a file: header, and arrays as [name, dtype, shape, bytes].

    Attributes:
        limits: Declared limits of the numbers in arrays of states.
    """

    header: dict
    arrays: list
    limits: dict = field(default_factory=dict)

    def names(self, *prefixes):
        """Return the names of the arrays that begin with a prefix."""
        names = [array[0] for array in self.arrays]
        return [name for name in names if isinstance(name, str) and name.startswith(prefixes)]

    def numbers(self, i):
        """Return a copy of an array that can be changed; i is its position or its name."""
        _, dtype, shape, raw = self.arrays[self.position(i)]
        return np.frombuffer(raw, np.dtype(dtype)).reshape(shape).copy()

    def put(self, i, array):
        """Store an array."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        i = self.position(i)
        self.arrays[i] = [self.arrays[i][0], array.dtype.str, list(array.shape), array.tobytes()]

    def position(self, i):
        """Return the position of an array that is given by position or name."""
        return [array[0] for array in self.arrays].index(i) if isinstance(i, str) else i

    def to_bytes(self):
        listing = [{"name": n, "dtype": d, "shape": s} for n, d, s, _ in self.arrays]
        head = json.dumps({**self.header, "arrays": listing})
        head = head.replace(json.dumps(DEEP), "[" * N_DEEP + "]" * N_DEEP).encode()
        return finalised(struct.pack("<Q", len(head)) + head + b"".join(a[3] for a in self.arrays))


def content_of(path):
    """Return the content of a file that was saved."""
    body = path.read_bytes()[PRELUDE.size :]
    (n_head,) = struct.unpack_from("<Q", body)
    header, position, arrays = json.loads(body[8 : 8 + n_head]), 8 + n_head, []
    for entry in header.pop("arrays"):
        n_bytes = math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize
        raw = body[position : position + n_bytes]
        arrays.append([entry["name"], entry["dtype"], entry["shape"], raw])
        position += n_bytes
    return Content(header, arrays)


def originals(folder, seed=0):
    """Return contents of files of every policy, saved while rounds are open."""
    found = []
    policies = registered() | dict(list(bsfl_variants().items())[seed % 7 :: 7])
    policies |= dict(list(pace_variants().items())[seed % 5 :: 5])
    for number, policy in enumerate(policies.values()):
        scheduler = Scheduler(
            policy,
            cohort_size=1 + number % 3,
            over_selection=[1.0, 1.3, "auto"][number % 3],
            late=["apply", "drop"][number % 2],
            max_staleness=[None, 2][number // 2 % 2],
            deadline_s=[None, 30.0][number // 3 % 2],
            lifetime_s=[None, 60.0, 1e6][number // 2 % 3],
            max_open_rounds=1 + 3 * (number % 2),
            forget_after=10 if is_forgettable(policy) and number % 5 == 0 else None,
            seed=1,
        )
        ids = [list(range(12)), [f"c{k}" for k in range(12)], [2**70 + k for k in range(12)]]
        rows = {"features": [[k, k % 3] for k in range(12)]} if number % 2 else {}
        if number % 3 == 1:
            rows["quality"] = [0.5 + k % 2 / 2 for k in range(12)]
        scheduler.join(ids[number % 3], samples=[float(k + 1) for k in range(12)], **rows)
        for t in range(9):
            cohort = scheduler.select()
            scheduler.observe(
                {k: result(len(str(k)) + t + i) for i, k in enumerate(cohort[t % 2 :])}
            )
            if t == 5:
                scheduler.close(discard=True)
        if number % 4 == 0:
            scheduler.leave(scheduler.clients[2:4])
        if number % 4 == 1:
            scheduler.offline(scheduler.clients[:3])
        path = folder / f"original-{number}.bsfl"
        scheduler.save(path)
        content, engine = content_of(path), scheduler._engine
        for prefix, state in (
            ("pool/", engine.pool),
            ("task/", engine.task),
            ("policy/", engine.policy_state),
        ):
            content.limits |= limits_of(state, prefix, scheduler.round)
        found.append(content)
    return found


def limits_of(state, prefix, last_round):
    """Return the declared limits of the leaves of a state by the names of their arrays."""
    limits = {}
    for one in fields(state) if state is not None else ():
        value = getattr(state, one.name)
        if is_dataclass(value):
            limits |= limits_of(value, f"{prefix}{one.name}.", last_round)
        else:
            known = [one.metadata.get(key) for key in ("low", "high", "start")]
            known = [last_round + 1 if limit == ROUNDS else limit for limit in known]
            limits[prefix + one.name] = [x for x in known if x is not None]
    return limits


def response(number):
    """Return a response that every policy can learn from."""
    return Observation(latency_s=1.0 + number % 7, loss=1.0 + number % 3, samples=5 + number % 10)


def result(number):
    """Return a response, or a timeout or a failure now and then."""
    if number % 6 == 4:
        return Observation(latency_s=20.0, outcome="timeout")
    return Observation(outcome="failed") if number % 6 == 5 else response(number)


# --- changes of the header


def header(content, dice):
    """Change, add or remove a value anywhere in the header."""
    inner, key = content.header, ""
    while isinstance(inner, dict | list) and inner:
        tree, keys = inner, list(inner if isinstance(inner, dict) else range(len(inner)))
        key = dice.choice(keys)
        inner = tree[key]
        if dice.random() < 0.5:
            break
    if isinstance(tree, dict) and dice.random() < 0.1:
        tree["x"] = tree.pop(key)
    else:
        tree[key] = dice.choice([*ODD, *WHOLES, *SIZES, *SETTINGS, *COLUMNS, 1e-9, 1e12])


def count(content, dice):
    """Change a number of the header to one that may be possible."""
    tree = dice.choice([content.header, content.header["plan"]])
    numbers = [key for key, value in tree.items() if isinstance(value, int | float)]
    tree[dice.choice(numbers)] = dice.choice([*WHOLES, *SIZES, 1e-9, 1e12, 0.5])


def policy(content, dice):
    name = dice.choice([*POLICIES, "x", "os:system", "/tmp/x.py:Rule", "x" * 5000, ""])
    content.header["policy"] = name
    if dice.random() < 0.5:
        example = dict(POLICIES[name].example) if name in list(POLICIES) else {}
        content.header["settings"] = {k: np.asarray(v).tolist() for k, v in example.items()}


# --- changes of what is said of arrays


def _any(content, dice):
    return dice.randrange(len(content.arrays))


def array_dtype(content, dice):
    i = _any(content, dice)
    claimed = dice.choice([*DTYPES, "|O", ">f8", "<f2", "<U4", "V8", "", None, 5, "<M8[s]"])
    if claimed in DTYPES and dice.random() < 0.7:
        with np.errstate(invalid="ignore"):
            content.put(i, content.numbers(i).astype(claimed))
    else:
        content.arrays[i][1] = claimed


def array_shape(content, dice):
    array = dice.choice(content.arrays)
    shape = array[2]
    shapes = [[*shape, 1], [1, *shape], [*shape, 0], [0, 10**30], [0, 10**9], [0] * 40, [1] * 70]
    shapes += [[dice.choice(SIZES) for _ in shape], [math.prod(shape)], [], "12", None]
    array[2] = dice.choice(shapes)


def array_size(content, dice):
    """Make an array longer or shorter, and claim so."""
    i = _any(content, dice)
    shape = list(content.numbers(i).shape) or [1]
    k = dice.randrange(len(shape))
    n = shape[k]
    shape[k] = dice.choice([0, 1, max(n - 1, 0), n + 1, 2 * n + 3, 50])
    content.put(i, np.resize(content.numbers(i), shape))


def no_clients(content, dice):
    """Claim that there are no clients, or that nothing is known of them."""
    content.header["n_rows"] = 0
    for name in content.names("policy/", "rounds/"):
        if content.numbers(name).ndim and dice.random() < 0.9:
            content.put(name, content.numbers(name)[:0])


def array_name(content, dice):
    names = [*content.names(""), "", "x", None, 5, [], "policy/" + "x" * 9000, "ids/ids", "\n"]
    dice.choice(content.arrays)[0] = dice.choice(names)


def array_missing(content, dice):
    del content.arrays[_any(content, dice)]


def array_twice(content, dice):
    content.arrays.insert(_any(content, dice), list(content.arrays[_any(content, dice)]))


def array_bytes(content, dice):
    last = content.arrays[-1]
    last[3] = dice.choice([last[3] + b"\0", last[3] + bytes(1000), last[3][:-1], last[3][:-8]])


# --- changes of numbers


def possible(kind, dice):
    """Return numbers of a kind that may be within the limits of an array."""
    top = dice.choice([1, 9, 10**6, 2**30, 10**15])
    if kind == "f":
        top = dice.choice([1e100, 1e50, 1e12, 1e-300, 1.0, 30.0])
    return [0, top, -top, *(type(top)(dice.random() * top) for _ in range(3))]


BREAKING = {"f": FLOATS, "i": WHOLES, "b": [0, 1], "u": [0, 10, 45, 48, 0x80, 0xFF, 0xED]}


def numbers(content, dice):
    """Change one number of an array, or all of them, in one array or several."""
    group = dice.choice(["", "", "policy/", "pool/", "task/", "rounds/"])
    for _ in range(dice.choice([1, 1, 2, 5])):
        name = dice.choice(content.names(group))
        array = content.numbers(name)
        kind, limits = array.dtype.kind, content.limits.get(name, [])
        values = dice.choice([BREAKING[kind], possible(kind, dice), limits, range(-2, 9)])
        fresh = [dice.choice(values) for _ in range(array.size)]
        if kind in "iu":
            info = np.iinfo(array.dtype)
            fresh = [min(max(number, info.min), info.max) for number in fresh]
        where = dice.randrange(array.size) if dice.random() < 0.6 else slice(None)
        array.reshape(-1)[where] = np.array(fresh, array.dtype)[where]
        content.put(name, array)


def old_age(content, dice):
    """Claim that very much was counted, everywhere alike."""
    n = dice.choice([1, 1000, 2**30, 2**31 - 1, 10**15])
    for name in content.names("policy/", "pool/", "task/"):
        array = content.numbers(name)
        if array.dtype.kind == "i":
            grown = np.minimum(array.astype(np.int64) * n, np.iinfo(array.dtype).max)
            content.put(name, grown.astype(array.dtype))


def last_round(content, dice):
    """Move the number of the last round, and those of the rounds with it."""
    by = dice.choice([-1, 1, 10**6, 2**30 - 20, 2**31 - 40, 10**12, 10**15])
    for name in ("task/round", "rounds/number"):
        content.put(name, content.numbers(name) + by)


def ids(content, dice):
    for name in content.names("ids/"):
        array = content.numbers(name)
        if name in ("ids/ids", "ids/ids-length"):
            array[dice.randrange(len(array))] = dice.choice([*array.tolist(), *WHOLES, 1001])
            content.put(name, array)
        elif dice.random() < 0.7:
            longer = dice.choice([b"", b"\xff", b"9" * 5000, b" 5", b"1_0", "é".encode(), b"-"])
            content.put(name, np.frombuffer(array.tobytes() + longer, np.uint8))
            lengths = content.numbers("ids/ids-length")
            lengths[-1] += len(longer)
            content.put("ids/ids-length", lengths)


def one_more_round(content, dice):
    """Insert a copy of a round with another number."""
    size = content.numbers("rounds/size")
    k, ends = dice.randrange(len(size)), np.cumsum(size)
    start, stop = ends[k] - size[k], ends[k]
    for name in content.names("rounds/"):
        array = content.numbers(name)
        if len(array) == len(size) and name != "rounds/cohort":
            array = np.insert(array, k, array[k])
        elif len(array) == ends[-1]:
            array = np.insert(array, start, array[start:stop])
        if name == "rounds/number":
            array[k] -= dice.choice([0, 1, 1, 1])
        content.put(name, array)


MUTATIONS = [*[header] * 6, *[count] * 4, policy]
MUTATIONS += [array_dtype, array_shape, array_size, array_size, no_clients]
MUTATIONS += [array_name, array_missing, array_twice, array_bytes]
MUTATIONS += [*[numbers] * 12, old_age, last_round, ids, one_more_round]


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
