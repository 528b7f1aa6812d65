"""Entries of a journal, for tests of what is made of them."""


def opened(number, clients, **more):
    """Return the entry of a round that was opened."""
    known = {"kind": "opened", "round": number, "invited": list(clients), "n_available": 4}
    return known | {"n_invited": len(clients), "target_responses": len(clients)} | more


def responses(number, latency_s, *, outcome=None, is_late=False):
    """Return the entry of results by client."""
    outcomes = outcome or ["ok"] * len(latency_s)
    known = {"kind": "responses", "round": number, "is_late": is_late, "outcome": outcomes}
    known |= {"dropped": False}
    return known | {"clients": list(latency_s), "latency_s": list(latency_s.values())}


def closed(number, duration_s, **more):
    """Return the entry of a round that closed."""
    known = {"kind": "closed", "round": number, "duration_s": duration_s, "is_discarded": False}
    return known | {"diagnostics": {}, "aggregated": []} | more


def whole(number, latency_s, *, outcome=None, duration_s=None, **more):
    """Return the entries of a round whose clients are named a, b, c, ..."""
    clients = [chr(97 + i) for i in range(len(latency_s))]
    duration_s = duration_s or max(latency_s, default=None)
    fresh = [client for client, one in zip(clients, outcome or [], strict=False) if one == "ok"]
    return [
        opened(number, clients, **more),
        responses(number, dict(zip(clients, latency_s, strict=True)), outcome=outcome),
        closed(number, duration_s, aggregated=clients if outcome is None else fresh),
    ]


def of_100_000_clients():
    """Yield the entries of 1,000 rounds with 100 clients each."""
    for number in range(1, 1001):
        latency_s = {k: 1.0 + k % 17 for k in range((number - 1) * 100, number * 100)}
        yield opened(number, latency_s, n_available=100_000, time=1e9 + number)
        yield responses(number, latency_s)
        yield closed(number, 17.0)
