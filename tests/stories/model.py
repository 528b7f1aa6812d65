"""A model of a Scheduler in plain dicts and lists, written from the design alone.

It knows the life of a round and the bookkeeping of clients. It does not know which clients a policy
selects: it takes the cohort that `select` returned and checks that it is allowed.

Where the design leaves a question open, a comment that starts with "Decision:" has the answer which
a user would expect.
"""

import math
from typing import NamedTuple
from unittest.mock import ANY

import pytest

from bsfl.types import OUTCOMES

NAN = math.nan


def agree(found, expected, where):
    """Raise unless two values are equal, floats but for rounding; NaN equals NaN.

    An object is compared with a dict of what its attributes must be.
    """
    difference = f"{where}: the library has {found!r}, the model {expected!r}"
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            found = {name: getattr(found, name) for name in expected}
        assert found.keys() == expected.keys(), difference
        for name, value in expected.items():
            agree(found[name], value, f"{where}, {name}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), difference
        for i, value in enumerate(expected):
            agree(found[i], value, f"{where}, {i}")
    elif isinstance(expected, float) and isinstance(found, int | float):
        both_nan = math.isnan(found) and math.isnan(expected)
        assert both_nan or math.isclose(found, expected, rel_tol=1e-9), difference
    else:
        assert found == expected, difference


class Response(NamedTuple):
    """A valid response; NaN: not reported."""

    outcome: str = "ok"
    latency_s: float = NAN
    loss: float = NAN
    samples: float = NAN


FAILURE = Response("failed")
"""What a rejected response of a pending client counts as."""
REJECTED = "counts as failed"
IGNORED = "ignored"


def plain(response):
    """Return a valid latency or Observation as a Response."""
    if isinstance(response, int | float):
        return Response(latency_s=float(response))
    given = {name: getattr(response, name) for name in Response._fields}
    return Response(**{name: value for name, value in given.items() if value is not None})


def new_client():
    """Return all that is known of a client that has just joined."""
    return {
        "member": True,
        "online": True,
        "samples": NAN,
        "quality": 1.0,
        "features": [NAN, NAN],
        "rounds": 0,  # that were opened while it was a member
        "missed_rounds": 0,  # in a row, up to now, in which it was not available
        "absent_rounds": 0,  # the same, but since it came online without a round meanwhile
        "invitations": 0,
        "participations": 0,
        "dropped": 0,
        "fair_count": 0.0,
        "last_selected": 0,
        "last_loss": NAN,
        "responded": 0,
        "timeouts": 0,
        "failed": 0,
        "late": 0,
        "latencies": [],
    }


class Model:
    """The state of one Scheduler, made with the same settings.

    `calls` collects what a policy is to be called with, by dense index; `records` what callbacks get when
    a round closes. The tests that compare them empty them.
    """

    def __init__(self, settings, needs):
        vars(self).update(settings)
        self.needs = needs
        self.round = 0
        self.clients = {}  # by id, in the order of joining
        self.rounds = {}  # by number: those that are open, have pending clients, or are recent
        self.calls, self.records = [], []

    # --- what it shows --------------------------------------------------------------------------

    def members(self):
        return [c for c, row in self.clients.items() if row["member"]]

    def open_rounds(self):
        return [r for r in self.rounds.values() if r["open"]]

    def pending_rounds(self, client):
        """Return the numbers of the rounds in which a client is pending, oldest first."""
        return [n for n, r in self.rounds.items() if client in r["pending"]]

    def in_flight(self):
        return list(dict.fromkeys(c for r in self.rounds.values() for c in r["pending"]))

    def available(self, now):
        """Return who can be selected: online, and not in flight as long as an invitation lives."""
        busy = set()
        if self.lifetime_s is not None:
            alive = (r for r in self.rounds.values() if now - r["opened_s"] < self.lifetime_s)
            busy = {c for r in alive for c in r["pending"]}
        return [c for c, row in self.clients.items() if row["online"] and c not in busy]

    def shown(self):
        """Return what the properties and the table of a Scheduler show."""
        names = ("round", "cohort", "pending", "n_invited", "target_responses", "deadline_s")
        return {
            "round": self.round,
            "clients": self.members(),
            "in_flight": self.in_flight(),
            "pending": [[r[name] for name in (*names, "opened_s")] for r in self.open_rounds()],
            "settings": [self.cohort_size, self.over_selection, self.max_open_rounds],
            "table": [self.row(client) for client in self.clients],
            "last_round": self.record(self.rounds[self.round]) if self.round else None,
        }

    def row(self, client):
        k = self.clients[client]
        names = ("member", "online", "invitations", "participations", "late", "timeouts")
        # Decision: the median of a lognormal latency is the geometric mean of those observed.
        logs = [math.log(latency_s) for latency_s in k["latencies"]]
        return {
            "client": client,
            **{name: k[name] for name in names},
            "failures": k["failed"],
            "pending": len(self.pending_rounds(client)),
            "participation_ratio": k["participations"] / k["fair_count"]
            if k["fair_count"]
            else None,
            "last_selected": k["last_selected"] or None,
            "latency_s": pytest.approx(math.exp(sum(logs) / len(logs)), rel=1e-4) if logs else None,
        }

    def record(self, r):
        """Return what the record of a round says."""
        outcomes = [response.outcome for response in r["reported"].values()]
        n_late = sum(r["reported"][c].outcome == "ok" for c in r["late"])
        counts = {
            "n_fresh": outcomes.count("ok") - n_late,
            "n_timeouts": outcomes.count("timeout"),
            "n_failed": outcomes.count("failed"),
            "n_late": n_late,
        }
        names = ("round", "cohort", "n_invited", "n_available", "target_responses", "is_discarded")
        return {
            **{name: r[name] for name in names},
            **(counts if outcomes else dict.fromkeys(counts)),
            "is_short": r["n_available"] < r["n_invited"],
            "duration_s": self.duration(r),
        }

    def fresh(self, r):
        """Return the clients that responded before a round closed."""
        reported = r["reported"].items()
        return [c for c, one in reported if one.outcome == "ok" and c not in r["late"]]

    def duration(self, r):
        """Return the longest latency that was waited for, or what the caller's time says."""
        if r["was_cut"]:
            return ANY  # of a forgotten client no latency is known any more
        if r["measured_s"] is not None:
            return r["measured_s"]
        waited = self.fresh(r)
        if len(waited) < r["target_responses"]:
            waited = [c for c in r["reported"] if c not in r["late"]]
        latencies = [r["reported"][c].latency_s for c in waited]
        return max((s for s in latencies if not math.isnan(s)), default=None)

    def places(self, clients):
        """Return the dense indices of clients."""
        place = {client: i for i, client in enumerate(self.clients)}
        return sorted(place[c] for c in clients)

    # --- clients --------------------------------------------------------------------------------

    def join(self, clients, attributes=None):
        """Add clients; `attributes`: for each a dict of samples, quality, features."""
        for client, given in zip(clients, attributes or [{}] * len(clients), strict=True):
            row = self.clients.setdefault(client, new_client())
            row.update(given, member=True, online=True, absent_rounds=0)

    def leave(self, clients):
        for client in clients:
            self.clients[client].update(member=False, online=False)

    def offline(self, clients):
        for client in clients:
            self.clients[client]["online"] = False

    def rename(self, client, name):
        """Give a client another id; return whether no other client has it."""
        # Decision: its own id is not that of another client, but nothing changes: False, as the
        # library answers. An id that a renamed or forgotten client once had is free again.
        if name in self.clients:
            return False
        self.clients = {name if c == client else c: row for c, row in self.clients.items()}
        for r in self.rounds.values():
            r["reported"] = {name if c == client else c: o for c, o in r["reported"].items()}
            for group in ("cohort", "pending", "late", "credited"):
                r[group] = type(r[group])(name if c == client else c for c in r[group])
        return True

    def forget(self, clients):
        """Remove clients and all that rounds know of them; rounds without pending ones close."""
        gone = set(clients)
        for client in gone:
            del self.clients[client]
        for r in self.rounds.values():
            r["was_cut"] |= bool(gone & set(r["cohort"]))
            r["cohort"] = [c for c in r["cohort"] if c not in gone]
            r["reported"] = {c: o for c, o in r["reported"].items() if c not in gone}
            r["late"] -= gone
            r["credited"] -= gone
        self.abandon(gone)

    def abandon(self, clients):
        for r in self.rounds.values():
            had = bool(r["pending"])
            r["pending"] = [c for c in r["pending"] if c not in clients]
            if r["open"] and had and not r["pending"]:
                self.end(r, automatic=True)
        self.prune()

    # --- rounds ---------------------------------------------------------------------------------

    def begin(self, named, now, timed):
        """Do what `select` does before the policy is asked; return who is available."""
        if named is not None:
            self.join([c for c in named if c not in self.clients or not self.clients[c]["member"]])
            for client, row in self.clients.items():
                row["online"] = client in named
        while len(self.open_rounds()) >= self.max_open_rounds:
            self.end(self.open_rounds()[0], automatic=True, now=now, timed=timed)
        return self.available(now)

    def check_allowed(self, cohort, available, target, over_selection, may_select_fewer):
        """Check a cohort: its size, and that it holds available clients, in the order of joining."""
        assert cohort == [c for c in self.clients if c in set(cohort)], cohort
        assert set(cohort) <= set(available), f"{cohort} of {available}"
        if over_selection == "auto":
            low, high = target, 2 * target  # m where more would only ever drop the same clients
        else:
            low = high = math.ceil(round(over_selection * target, 6))
        assert low <= cohort.n_invited <= high
        most = min(cohort.n_invited, len(available))
        least = min(most, 1) if may_select_fewer else most
        assert least <= len(cohort) <= most

    def open(self, cohort, available, target, deadline_s, now, timed):
        """Open a round with the cohort that the policy selected."""
        self.round += 1
        for client in available:
            self.clients[client]["fair_count"] += min(1.0, target / len(available))
        for row in self.clients.values():
            row["rounds"] += row["member"]
            # Decision: an online client in flight is not missing.
            for name in ("missed_rounds", "absent_rounds"):
                row[name] = 0 if row["online"] else row[name] + 1
        for client in cohort:
            self.clients[client]["invitations"] += 1
            self.clients[client]["last_selected"] = self.round
        r = self.rounds[self.round] = {
            "round": self.round,
            "cohort": list(cohort),
            "pending": list(cohort),
            "n_invited": cohort.n_invited,
            "n_available": len(available),
            "target_responses": target,
            "deadline_s": deadline_s,
            "opened_s": now,
            "timed": timed,
            "open": True,
            "confirmed": False,  # whether its credit is final
            "is_discarded": False,
            "reported": {},  # Responses by client
            "late": set(),  # those of the reported clients that came after it had closed
            "credited": set(),
            "measured_s": None,
            "was_announced": False,  # whether the policy knows the cohort
            "was_cut": False,  # whether one of its clients was forgotten
        }
        if not cohort:
            # Decision: nobody is pending in an empty round, so it closes at once; nothing was
            # measured.
            self.end(r, automatic=True)
        self.prune()

    def to_forget(self):
        """Return the clients that may be forgotten now, and those that must be."""
        if self.forget_after is None:
            return set(), set()
        latest = self.forget_after + math.ceil(self.forget_after / 10) + 1
        rows = self.clients.items()
        # Decision: a client that was online between two rounds alone may be forgotten, or not.
        may = {c for c, row in rows if row["missed_rounds"] >= self.forget_after}
        return may, {c for c, row in rows if row["absent_rounds"] > latest}

    def validate(self, responses, number):
        """Return what responses count as, by round, and for each rejected one what becomes of it.

        Args:
            responses: By client: the response, and whether it is possible.
            number: The round that they respond to; None: the latest in which a client is pending.
        """
        by_round, rejected = {}, {}
        for client, (response, is_possible) in responses.items():
            rounds = self.pending_rounds(client) if client in self.clients else []
            if number is not None:
                rounds = [n for n in rounds if n == number]
            if not rounds:
                rejected[client] = IGNORED
                continue
            given = plain(response) if is_possible else FAILURE
            if given.outcome == "ok" and self.lacks_something(client, given, rounds[-1]):
                # Decision: the latency is known, and was waited for.
                given, is_possible = FAILURE._replace(latency_s=given.latency_s), False
            if not is_possible:
                rejected[client] = REJECTED
            by_round.setdefault(rounds[-1], {})[client] = given
        return by_round, rejected

    def lacks_something(self, client, given, number):
        """Return whether a response lacks what the policy needs."""
        # Decision: of a response that is dropped the policy needs no more than its latency.
        if self.is_dropped(self.rounds[number]):
            return False
        return (
            ("loss" in self.needs and math.isnan(given.loss))
            or ("losses from 0" in self.needs and given.loss < 0)
            or ("samples" in self.needs and math.isnan(self.with_samples(client, given).samples))
        )

    def is_dropped(self, r):
        """Return whether responses to a round are late and not applied."""
        staleness = self.round - r["round"]
        stale = self.max_staleness is not None and staleness > self.max_staleness
        # Decision: a late response to a discarded round is discarded, like the round.
        return not r["open"] and (self.late == "drop" or stale or r["is_discarded"])

    def observe(self, by_round, now, timed):
        """Learn from responses, given by round and client as `validate` returned them."""
        for number, responses in sorted(by_round.items()):
            r = self.rounds[number]
            is_late, dropped = not r["open"], self.is_dropped(r)
            for client, given in responses.items():
                self.learn(r, client, given, is_late, dropped)
            self.announce(r, responses, dropped)
            if r["open"] and (len(self.fresh(r)) >= r["target_responses"] or not r["pending"]):
                self.end(r, automatic=True, now=now, timed=timed)
        self.prune()

    def learn(self, r, client, given, is_late, dropped):
        row = self.clients[client]
        r["pending"].remove(client)
        r["reported"][client] = given
        if is_late:
            r["late"].add(client)
        if not math.isnan(given.loss):
            # Decision: the last loss that a client reported, whatever became of the response.
            row["last_loss"] = given.loss
        if given.outcome != "ok":
            row["timeouts" if given.outcome == "timeout" else "failed"] += 1
            return
        row["responded"] += 1
        row["latencies"].append(given.latency_s)
        if is_late:
            row["late"] += 1
            row["dropped" if dropped else "participations"] += 1

    def announce(self, r, responses, dropped):
        """Note a report to the policy; the first one of a round names its cohort."""
        if not responses and (r["was_announced"] or not r["cohort"]):
            return
        place = {client: i for i, client in enumerate(self.clients)}
        rows = [self.with_samples(c, responses[c]) for c in sorted(responses, key=place.get)]
        columns = {name: [getattr(row, name) for row in rows] for name in Response._fields}
        columns["outcome"] = [OUTCOMES.index(row.outcome) for row in rows]
        self.calls.append(
            {
                "round": r["round"],
                "staleness": self.round - r["round"],
                "invited": self.places([] if r["was_announced"] else r["cohort"]),
                "dropped": dropped,
                "clients": self.places(responses),
                **columns,
            }
        )
        r["was_announced"] = True

    def with_samples(self, client, given):
        """Return a response with the samples that are known of the client, if it has none."""
        if math.isnan(given.samples):
            return given._replace(samples=self.clients[client]["samples"])
        return given

    def end(self, r, *, automatic, aggregated=None, discard=False, now=None, timed=False):
        """Close a round and credit the participations."""
        if not r["was_announced"]:
            self.announce(r, {}, dropped=False)
        r.update(open=False, confirmed=not automatic, is_discarded=discard)
        if r["timed"] and timed:
            r["measured_s"] = now - r["opened_s"]
        self.credit(r, [] if discard else (self.fresh(r) if aggregated is None else aggregated))
        self.calls.append(
            {
                "round": r["round"],
                "aggregated": self.places(r["credited"]),
                "late": self.places(r["pending"]),
                "discarded": discard,
                "duration_s": self.duration(r),
            }
        )
        self.records.append(self.record(r))

    def credit(self, r, clients):
        for client in r["credited"]:
            self.clients[client]["participations"] -= 1
        r["credited"] = set(clients)
        for client in r["credited"]:
            self.clients[client]["participations"] += 1

    def close(self, number, aggregated, discard, now, timed):
        """Close a round by hand; return whether that is possible."""
        r = self.rounds.get(number)
        if r is None or r["confirmed"]:
            # Decision: a plain close of a closed round changes nothing and is no mistake.
            return aggregated is None and not discard
        if r["open"]:
            how = {"aggregated": aggregated, "discard": discard}
            self.end(r, automatic=False, **how, now=now, timed=timed)
        elif aggregated is not None or discard:
            # Decision: what late responses were credited with stays; they were reported before.
            self.credit(r, [] if discard else aggregated)
            r.update(confirmed=True, is_discarded=discard)
        self.prune()
        return True

    def prune(self):
        """Drop the rounds that need nothing more.

        Decision: the credit of a round can be replaced while it has pending clients, and as long
        as it is one of the last `max_open_rounds`.
        """
        newest = self.round - self.max_open_rounds
        self.rounds = {
            n: r for n, r in self.rounds.items() if r["open"] or r["pending"] or n > newest
        }

    def shift(self, seconds):
        """Move all moments: files hold ages, and the clock went on while nothing ran."""
        for r in self.rounds.values():
            r["opened_s"] += seconds
