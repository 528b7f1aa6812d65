"""A model of a Scheduler in plain dicts and lists, written from the design alone.

It knows the life of a round and the bookkeeping of clients. It does not know which clients a policy
selects: it takes the cohort that `select` returned and checks that it is allowed.

Where the design leaves a question open, a comment that starts with "Decision:" has the answer which
a user would expect.
"""

import math


class Ended(Exception):
    """The library differs from the model."""


def agree(what, found, expected):
    """Raise unless two values are equal, None and NaN included."""
    if not same(found, expected):
        raise Ended(f"{what}: the library has {found!r}, the model {expected!r}")


def same(one, other):
    """Return whether two values are equal; floats with a tolerance, NaN equals NaN."""
    if isinstance(one, float) or isinstance(other, float):
        if not isinstance(one, (int, float)) or not isinstance(other, (int, float)):
            return False
        return (one != one and other != other) or math.isclose(one, other, rel_tol=1e-9)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def plain(response):
    """Return a valid response, a latency or an Observation, as a dict."""
    if isinstance(response, (int, float)):
        return {"outcome": "ok", "latency_s": float(response), "loss": None, "samples": None}
    names = ("outcome", "latency_s", "loss", "samples")
    return {name: getattr(response, name) for name in names}


FAILURE = {"outcome": "failed", "latency_s": None, "loss": None, "samples": None}
"""What a rejected response of a pending client counts as."""


def new_client(n_columns):
    """Return all that is known of a client that has just joined."""
    return {
        "member": True,
        "online": True,
        "samples": math.nan,
        "quality": 1.0,
        "features": [math.nan] * n_columns,
        "member_rounds": 0,  # rounds that were opened while it was a member
        "missed_rounds": 0,  # rounds in a row, up to now, in which it was not available
        "absent_rounds": 0,  # the same, but since it came online without a round meanwhile
        "invitations": 0,
        "participations": 0,
        "fair": 0.0,
        "late": 0,
        "dropped": 0,
        "responded": 0,
        "timeouts": 0,
        "failures": 0,
        "latencies": [],
        "last_selected": None,
        "last_loss": math.nan,
    }


class Model:
    """The state of one Scheduler.

    `events` collects what a policy is to be told: ("report", ...) and ("closed", ...) dicts;
    `records` what callbacks get when a round closes. Whoever compares them empties them.
    """

    def __init__(self, settings, needs):
        self.needs = needs
        self.cohort_size = settings["cohort_size"]
        self.over_selection = settings.get("over_selection", 1.0)
        self.deadline_s = settings.get("deadline_s")
        self.late = settings.get("late", "apply")
        self.max_staleness = settings.get("max_staleness")
        self.lifetime_s = settings.get("lifetime_s")
        self.max_open_rounds = settings.get("max_open_rounds", 1)
        self.forget_after = settings.get("forget_after")
        self.round = 0
        self.clients = {}  # by id, in the order of joining
        self.rounds = {}  # by number: those that are open, have pending clients, or are recent
        self.n_columns = 0
        self.events, self.records = [], []

    # --- questions ------------------------------------------------------------------------------

    def members(self):
        return [c for c, row in self.clients.items() if row["member"]]

    def online(self):
        return [c for c, row in self.clients.items() if row["online"]]

    def open_rounds(self):
        return [r for r in self.rounds.values() if r["open"]]

    def pending_rounds(self, client):
        """Return the numbers of the rounds in which a client is pending, oldest first."""
        return [n for n, r in self.rounds.items() if client in r["pending"]]

    def in_flight(self):
        return {c for r in self.rounds.values() for c in r["pending"]}

    def available(self, now):
        """Return who can be selected: online, and not in flight as long as an invitation lives."""
        busy = set()
        if self.lifetime_s is not None:
            for r in self.rounds.values():
                if now - r["opened_s"] < self.lifetime_s:
                    busy |= set(r["pending"])
        return [c for c in self.online() if c not in busy]

    def row(self, client):
        """Return a client's row of `table`, without the estimates of its latency."""
        k = self.clients[client]
        ratio = k["participations"] / k["fair"] if k["fair"] else None
        return {
            "client": client,
            "member": k["member"],
            "online": k["online"],
            "invitations": k["invitations"],
            "participations": k["participations"],
            "late": k["late"],
            "timeouts": k["timeouts"],
            "failures": k["failures"],
            "pending": len(self.pending_rounds(client)),
            "participation_ratio": ratio,
            "last_selected": k["last_selected"],
        }

    def record(self, r):
        """Return what the record of a round says."""
        outcomes = [o["outcome"] for o in r["reported"].values()]
        n_late = len([c for c in r["late"] if r["reported"][c]["outcome"] == "ok"])
        counts = [
            outcomes.count("ok") - n_late,
            outcomes.count("timeout"),
            outcomes.count("failed"),
            n_late,
        ]
        if not outcomes:
            counts = [None] * 4
        return {
            "round": r["number"],
            "cohort": tuple(r["cohort"]),
            "n_invited": r["n_invited"],
            "n_available": r["n_available"],
            "target_responses": r["target"],
            "n_fresh": counts[0],
            "n_timeouts": counts[1],
            "n_failed": counts[2],
            "n_late": counts[3],
            "is_discarded": r["discarded"],
            "duration_s": self.duration(r),
        }

    def fresh(self, r):
        """Return the clients that responded before a round closed."""
        return [c for c, o in r["reported"].items() if o["outcome"] == "ok" and c not in r["late"]]

    def duration(self, r):
        """Return the longest latency that was waited for, or what the caller's time says."""
        if r["measured_s"] is not None:
            return r["measured_s"]
        fresh = self.fresh(r)
        waited = fresh
        if len(fresh) < r["target"]:
            waited = [c for c in r["reported"] if c not in r["late"]]
        latencies = [r["reported"][c]["latency_s"] for c in waited]
        return max((s for s in latencies if s is not None), default=None)

    # --- clients --------------------------------------------------------------------------------

    def join(self, clients, attributes=None):
        """Add clients; `attributes`: for each a dict of samples, quality, features."""
        for client in clients:
            row = self.clients.setdefault(client, new_client(self.n_columns))
            row["absent_rounds"] = 0
            row["member"] = row["online"] = True
        for client, given in zip(clients, attributes or [{}] * len(clients), strict=True):
            row = self.clients[client]
            if "features" in given and self.n_columns == 0:
                self.n_columns = len(given["features"])
                for other in self.clients.values():
                    other["features"] = [math.nan] * self.n_columns
            row.update(given)

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
            r["cohort"] = [name if c == client else c for c in r["cohort"]]
            r["pending"] = [name if c == client else c for c in r["pending"]]
            r["reported"] = {name if c == client else c: o for c, o in r["reported"].items()}
            for group in ("late", "credited"):
                r[group] = {name if c == client else c for c in r[group]}
        return True

    def forget(self, clients):
        """Remove clients and all that rounds know of them; rounds without pending ones close."""
        gone = set(clients)
        for client in gone:
            del self.clients[client]
        for r in self.rounds.values():
            if gone & set(r["cohort"]):
                r["was_cut"] = True
            r["cohort"] = [c for c in r["cohort"] if c not in gone]
            r["reported"] = {c: o for c, o in r["reported"].items() if c not in gone}
            for group in ("late", "credited"):
                r[group] -= gone
        self.stop_waiting(dict.fromkeys(self.rounds, gone))

    def abandon(self, clients=None):
        gone = self.in_flight() if clients is None else set(clients)
        self.stop_waiting(dict.fromkeys(self.rounds, gone))

    def stop_waiting(self, gone):
        for number, clients in gone.items():
            r = self.rounds[number]
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
            chosen = set(named)
            for client, row in self.clients.items():
                row["online"] = client in chosen
        while len(self.open_rounds()) >= self.max_open_rounds:
            self.end(self.open_rounds()[0], automatic=True, now=now, timed=timed)
        return self.available(now)

    def allowed(self, cohort, available, target, over_selection, may_select_fewer):
        """Check a cohort: its size, and that it holds distinct available clients."""
        agree("distinct", len(set(cohort)), len(cohort))
        if not set(cohort) <= set(available):
            raise Ended(f"{set(cohort) - set(available)} selected, but not available")
        if over_selection == "auto":
            low, high = target, 2 * target  # m where more would only ever drop the same clients
        else:
            low = high = math.ceil(round(over_selection * target, 6))
        if not low <= cohort.n_invited <= high:
            raise Ended(f"n_invited {cohort.n_invited} outside [{low}, {high}]")
        most = min(cohort.n_invited, len(available))
        least = min(most, 1) if may_select_fewer else most
        if not least <= len(cohort) <= most:
            raise Ended(f"{len(cohort)} clients selected of {len(available)} for {most} places")

    def open(self, cohort, available, target, deadline_s, now, timed):
        """Open a round with the cohort that the policy selected."""
        self.round += 1
        for client in available:
            self.clients[client]["fair"] += min(1.0, target / len(available))
        online = set(self.online())
        for client, row in self.clients.items():
            row["member_rounds"] += row["member"]
            # Decision: an online client in flight is not missing.
            for name in ("missed_rounds", "absent_rounds"):
                row[name] = 0 if client in online else row[name] + 1
        for client in cohort:
            self.clients[client]["invitations"] += 1
            self.clients[client]["last_selected"] = self.round
        r = self.rounds[self.round] = {
            "number": self.round,
            "cohort": list(cohort),
            "pending": list(cohort),
            "n_invited": cohort.n_invited,
            "n_available": len(available),
            "target": target,
            "deadline_s": deadline_s,
            "opened_s": now,
            "timed": timed,
            "open": True,
            "confirmed": False,  # whether its credit is final
            "discarded": False,
            "reported": {},  # by client: outcome, latency_s, loss, samples
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

    def validate(self, client, response, number, is_valid):
        """Return the round that a response counts for (None: ignored), and what counts."""
        rounds = self.pending_rounds(client) if client in self.clients else []
        if number is not None:
            rounds = [n for n in rounds if n == number]
        if not rounds:
            return None, None
        if not is_valid:
            return rounds[-1], dict(FAILURE)
        given = plain(response)
        # Decision: of a response that is dropped the policy needs no more than its latency.
        if self.is_dropped(self.rounds[rounds[-1]]):
            return rounds[-1], given
        samples = self.clients[client]["samples"] if given["samples"] is None else given["samples"]
        lacks = (
            ("loss" in self.needs and given["loss"] is None)
            or ("losses from 0" in self.needs and given["loss"] is not None and given["loss"] < 0)
            or ("samples" in self.needs and math.isnan(samples))
        )
        if given["outcome"] == "ok" and lacks:
            # Decision: the latency is known, and was waited for.
            return rounds[-1], {**FAILURE, "latency_s": given["latency_s"]}
        return rounds[-1], given

    def is_dropped(self, r):
        """Return whether responses to a round are late and not applied."""
        staleness = self.round - r["number"]
        stale = self.max_staleness is not None and staleness > self.max_staleness
        # Decision: a late response to a discarded round is discarded, like the round.
        return not r["open"] and (self.late == "drop" or stale or r["discarded"])

    def observe(self, by_round, now, timed):
        """Learn from responses, given by round and client as `validate` returned them."""
        for number, responses in sorted(by_round.items()):
            r = self.rounds[number]
            is_late, dropped = not r["open"], self.is_dropped(r)
            for client, given in responses.items():
                self.learn(r, client, given, is_late, dropped)
            self.announce(r, responses, dropped)
            if r["open"] and (len(self.fresh(r)) >= r["target"] or not r["pending"]):
                self.end(r, automatic=True, now=now, timed=timed)
        self.prune()

    def learn(self, r, client, given, is_late, dropped):
        row = self.clients[client]
        r["pending"].remove(client)
        r["reported"][client] = given
        if is_late:
            r["late"].add(client)
        if given["loss"] is not None:
            # Decision: the last loss that a client reported, whatever became of the response.
            row["last_loss"] = given["loss"]
        if given["outcome"] != "ok":
            row["timeouts" if given["outcome"] == "timeout" else "failures"] += 1
            return
        row["responded"] += 1
        row["latencies"].append(given["latency_s"])
        if is_late:
            row["late"] += 1
            row["dropped" if dropped else "participations"] += 1

    def announce(self, r, responses, dropped):
        """Note a report to the policy; the first one of a round names its cohort."""
        if not responses and (r["was_announced"] or not r["cohort"]):
            return
        self.events.append(
            {
                "kind": "report",
                "round": r["number"],
                "staleness": self.round - r["number"],
                "invited": set() if r["was_announced"] else set(r["cohort"]),
                "dropped": dropped,
                "responses": {c: self.as_reported(c, given) for c, given in responses.items()},
            }
        )
        r["was_announced"] = True

    def as_reported(self, client, given):
        """Return a response with the samples that are known of the client, if it has none."""
        samples = self.clients[client]["samples"]
        if given["samples"] is None and not math.isnan(samples):
            return {**given, "samples": samples}
        return given

    def end(self, r, *, automatic, aggregated=None, discard=False, now=None, timed=False):
        """Close a round and credit the participations."""
        if not r["was_announced"]:
            self.announce(r, {}, dropped=False)
        r["open"], r["confirmed"], r["discarded"] = False, not automatic, discard
        if r["timed"] and timed:
            r["measured_s"] = now - r["opened_s"]
        credited = [] if discard else (self.fresh(r) if aggregated is None else aggregated)
        self.credit(r, credited)
        self.events.append(
            {
                "kind": "closed",
                "round": r["number"],
                "aggregated": set(credited),
                "late": set(r["pending"]),
                "discarded": discard,
                "duration_s": self.duration(r),
                "was_cut": r["was_cut"],
            }
        )
        self.records.append((self.record(r), r["was_cut"]))

    def credit(self, r, clients):
        for client in r["credited"]:
            self.clients[client]["participations"] -= 1
        r["credited"] = set(clients)
        for client in r["credited"]:
            self.clients[client]["participations"] += 1

    def close_is_wrong(self, number, aggregated, discard):
        """Return whether a close must be rejected."""
        if self.round == 0 or not 1 <= number <= self.round or (aggregated and discard):
            return True
        r = self.rounds.get(number)
        if r is None or r["confirmed"]:
            # Decision: a plain close of a closed round changes nothing and is no mistake.
            return aggregated is not None or discard
        if aggregated is None:
            return False
        return len(set(aggregated)) < len(aggregated) or not set(aggregated) <= set(self.fresh(r))

    def close(self, number, aggregated, discard, now, timed):
        r = self.rounds.get(number)
        if r is None or r["confirmed"]:
            return
        if r["open"]:
            self.end(
                r, automatic=False, aggregated=aggregated, discard=discard, now=now, timed=timed
            )
        elif aggregated is not None or discard:
            # Decision: what late responses were credited with stays; they were reported before.
            self.credit(r, [] if discard else aggregated)
            r["confirmed"], r["discarded"] = True, discard
        self.prune()

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
