"""Client names: they outlive node ids, are found without noise, and belong to one node each."""

import itertools
import logging

import pytest
from fake_federation import federation, train
from fake_grid import FakeGrid, fleet

from bsfl import BSFL, Scheduler, UniformRandom
from bsfl.errors import NotEnoughClients
from bsfl.integrations.flower.identity_queries import has_query_handler


def nameless(*takes, **settings):
    """Return nodes as unmodified apps have them: registered without a name."""
    return fleet(*takes, is_registered=False, **settings)


def reporting(*takes, **settings):
    """Return nodes without a name that report one in their training replies."""
    nodes = nameless(*takes, **settings)
    for k, node in enumerate(nodes.values()):
        node.reports = {"partition-id": k}
    return nodes


@pytest.fixture
def with_handler(monkeypatch):
    """Let the source of the app show a query handler."""
    monkeypatch.setattr("bsfl.integrations.flower.options.has_query_handler", lambda: True)


def warnings(caplog):
    """Return the warnings of bsfl; Flower warns of a strategy that does not evaluate."""
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    return [line for line in said if line.startswith("bsfl:")]


# --- where names come from ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "identity", "clients"),
    [
        (fleet, "auto", ["0", "1"]),
        (fleet, "node-id", ["node-101", "node-102"]),
        (fleet, lambda node: f"phone {node.name}", ["phone 0", "phone 1"]),
        (fleet, lambda node: node.node_id, [101, 102]),
        (nameless, "auto", ["node-101", "node-102"]),
    ],
)
def test_names_that_need_no_query(nodes, identity, clients, caplog):
    run = train(nodes(1.0, 1.0, handles_queries=False), rounds=3, identity=identity)
    assert run.clients == clients
    assert run.grid.queries == []
    assert warnings(caplog) == []


@pytest.mark.parametrize(("identity", "n_queries"), [("auto", 0), ("partition-id", 1)])
def test_a_training_reply_reports_the_name(identity, n_queries):
    """Until then a client is identified by its node id; afterwards that one has left."""
    run = train(reporting(1.0, 1.0, handles_queries=False), rounds=3, identity=identity)
    assert run.cohorts == [["node-101", "node-102"], ["0", "1"], ["0", "1"]]
    assert sorted(run.clients) == ["0", "1"]
    assert len(run.grid.queries) == n_queries, "one is queried to find out"


def test_any_key_of_a_config_or_of_the_metrics_can_be_the_name():
    nodes = reporting(1.0, 1.0, handles_queries=False)
    nodes[101].reports["client-name"], nodes[102].metrics["client-name"] = "ward 0", 1
    run = train(nodes, rounds=2, identity="client-name")
    assert sorted(run.clients) == ["1", "ward 0"]
    assert "2 of 2 seen" in run.rounds[-1].line()


def test_the_first_name_that_a_node_reports_is_final():
    nodes = nameless(1.0, 1.0)
    nodes[101].reports = {"partition-id": 0}
    run = train(nodes, rounds=2)
    nodes[101].reports = {"partition-id": 7}
    assert run.start(2).clients == ["0", "node-102"]


def test_what_was_learned_of_a_node_goes_with_it_to_its_name(tmp_path):
    """The policy does not take it for an unseen client again; no client is counted twice."""
    path, scheduler = tmp_path / "scheduler.bsfl", Scheduler(BSFL(), cohort_size=2)
    run = train(reporting(*[1.0] * 6), rounds=3, scheduler=scheduler, state_path=path)
    assert sorted(run.clients) == ["0", "1", "2", "3", "4", "5"]
    rows = run.scheduler.table()
    assert [row["participations"] for row in rows] == [1] * 6
    assert None not in [row["latency_s"] for row in rows]
    assert Scheduler.load(path).clients == run.clients
    nodes = dict(zip(range(201, 207), reporting(*[1.0] * 6).values(), strict=True))
    again = train(nodes, rounds=3, scheduler=Scheduler(BSFL(), cohort_size=2), state_path=path)
    assert sorted(again.clients) == sorted(run.clients), "they are back"


# --- queries --------------------------------------------------------------------------------------


def test_only_an_app_with_a_query_handler_is_queried(monkeypatch):
    handles = "bsfl.integrations.flower.options.has_query_handler"
    monkeypatch.setattr(handles, lambda: True)
    run = train(nameless(1.0, 1.0, 1.0), rounds=2)
    assert run.grid.queries == run.clients == ["0", "1", "2"], "once each"
    assert {*run.cohorts[0]} <= {"0", "1", "2"}, "known from the first round on"
    monkeypatch.setattr(handles, lambda: False)
    assert train(nameless(1.0, 1.0), rounds=2, identity="partition-id").grid.queries == []


def test_one_node_is_queried_first_if_the_source_does_not_show_a_handler(caplog):
    run = train(nameless(1, 1, 1, handles_queries=False), rounds=2, identity="partition-id")
    assert len(run.grid.queries) == 1
    (warning,) = warnings(caplog)
    assert "has no query handler" in warning
    assert run.clients == ["node-101", "node-102", "node-103"]


def test_a_node_without_a_name_is_identified_by_its_node_id(caplog):
    nodes = nameless(1.0, 1.0)
    nodes[102].handles_queries = False
    run = train(nodes, rounds=2, identity="partition-id")
    assert run.clients == ["0", "node-102"]
    assert run.grid.queries == ["0", "1"], "not queried again"
    assert "node 102 does not reply to a query with its partition-id" in caplog.text


@pytest.mark.parametrize("unresponsive", [101, 103])
def test_a_node_that_never_replies_to_its_query_delays_only_the_first_round(unresponsive):
    nodes = nameless(1.0, 1.0, 1.0)
    nodes[unresponsive].query_s = 1e9
    run = train(nodes, rounds=3, identity="partition-id")
    assert set(run.clients) == {"0", "1", "2"} - {str(unresponsive - 101)}
    assert 15.0 <= run.seconds <= 20.0


@pytest.mark.parametrize(("wait_s", "n_clients"), [(300.0, 6), (25.0, 2)])
def test_replies_that_keep_coming_are_waited_for_until_wait_s(with_handler, wait_s, n_clients):
    """Each node reports its name ten seconds after the one before."""
    nodes = nameless(1, 1, 1, 1, 1, 1)
    for k, node in enumerate(nodes.values(), 1):
        node.query_s = 10.0 * k
    run = train(nodes, wait_s=wait_s)
    assert len(run.clients) == n_clients
    assert 10.0 * n_clients <= run.seconds <= 10.0 * n_clients + 7.0


# --- invalid names --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (None, "a client id must be a str or an int, got None"),
        (["a"], "a client id must be a str or an int, got"),
        (1.5, "a client id must be a str or an int, got 1.5"),
        (b"key", "a client id must be a str or an int, got b'key'"),
        ("", "a name must have a character, got ''"),
        ("x" * 1001, "a client id must have at most 1,000 characters, got 1,001"),
        (2**200, "a client id must be below 2^128"),
        (KeyError, "your identity function failed for node 102 (KeyError('1'))"),
    ],
)
def test_with_an_invalid_name_a_node_is_identified_by_its_node_id(name, reason, caplog):
    names = {"0": "ann", "1": name} if name is not KeyError else {"0": "ann"}
    run = train(fleet(1, 1), rounds=2, identity=lambda node: names[node.name])
    assert run.clients == ["ann", "node-102"]
    (warning,) = warnings(caplog)
    assert reason in warning


def test_names_are_all_numbers_or_all_text():
    names = {"0": 7, "1": "eight", "2": "9"}
    run = train(fleet(1, 1, 1), identity=lambda node: names[node.name])
    assert run.clients == [7, 9, 102]
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    scheduler.join(["0", "1"])
    train(fleet(1, 1), scheduler=scheduler, identity=lambda node: int(node.name))
    assert scheduler.clients == ["0", "1"], "spelt as the scheduler spells them"


# --- two nodes, one name --------------------------------------------------------------------------


class Second(FakeGrid):
    """Node 202 comes after round 2 with the name of client 1; 102 is away in rounds 6 and 7."""

    key = b""

    def push_messages(self, messages):
        n_rounds = self.sent.count(101)
        if n_rounds == 2 and 202 not in self.nodes:
            self.nodes[202] = fleet(1, 1, registered_at="9", public_key=self.key)[102]
            self.online |= {202}
        self.online = self.online - {102} if n_rounds in (4, 5) else self.online | {102}
        return super().push_messages(messages)


def test_the_living_holder_keeps_its_name(caplog):
    nodes = fleet(1.0, 2.0, 3.0)
    run = train(nodes, 9, cohort_size=3, min_clients=2, deadline_s=10.0, grid=Second)
    assert run.clients == ["0", "1", "2"], "no unseen client"
    sent = [node for node in run.grid.sent if node in (102, 202)]
    assert sent == [*[102] * 5, *[202] * 4], "also when the first holder is back"
    first, second = warnings(caplog)
    assert "node 202 reports the name '1', as node 102 does" in first
    assert "node 102 reports the name '1', as node 202 does" in second


def test_the_same_public_key_takes_over_at_once(caplog):
    nodes = fleet(1.0, 2.0, 3.0)
    nodes[102].public_key = b"its own"
    run = federation(nodes, cohort_size=3, deadline_s=10.0, grid=Second)
    run.grid.key = b"its own"
    run.start(7)
    assert [node for node in run.grid.sent if node in (102, 202)] == [*[102] * 3, *[202] * 4]
    assert warnings(caplog) == []


def test_of_nodes_that_are_there_from_the_start_the_first_to_register_has_the_name():
    for honest, thief in itertools.permutations((101, 102)):
        nodes = fleet(1.0, 1.0, 1.0)
        for node, at in ((honest, "2026-01-01"), (thief, "2026-01-02")):
            nodes[node].name, nodes[node].registered_at = "7", at
        run = federation(nodes)
        run.grid.get_node_ids = lambda: [102, 103, 101]
        run.start(4)
        assert (run.grid.sent.count(thief), run.grid.sent.count(honest)) == (0, 4)


def test_a_fast_reply_does_not_win_a_name(with_handler):
    """The thief reports the name long before the node that registered first."""
    nodes = nameless(1.0, 1.0, 1.0, query_s=9.0)
    nodes[102].query_s = 0.5
    nodes[102].name, nodes[101].registered_at, nodes[102].registered_at = "0", "1", "2"
    assert 102 not in train(nodes, rounds=3).grid.sent[3:]


def test_a_thief_that_reports_a_name_in_its_reply_is_not_invited_again(caplog):
    nodes = fleet(1.0, 1.0, 1.0)
    nodes[103].is_registered, nodes[103].reports = False, {"partition-id": 0}
    run = train(nodes, rounds=4, cohort_size=3, min_clients=2)
    assert run.grid.sent.count(103) == 1, "as its node id, before it reported the name"
    assert run.clients == ["0", "1"]
    assert "node 103 reports the name '0', as node 101 does" in caplog.text


def test_an_error_counts_nodes_that_share_a_name():
    with pytest.raises(NotEnoughClients, match="3 have a name .1 distinct., 1 are free"):
        train(fleet(1, 1, 1), identity=lambda node: "same")


# --- query handlers in the source of an app -------------------------------------------------------

APP = '[tool.flwr.app.components]\nserverapp = "mine.server:app"\nclientapp = "mine.client:app"\n'


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("app = ClientApp()\n@app.query()\ndef who(message, context): ...", True),
        ("app = ClientApp()\napp.query()(who)", True),
        ("app = ClientApp()\n@app.query('default')\ndef who(message, context): ...", True),
        ("app = ClientApp()\n@app.query(mods=[size])\ndef who(message, context): ...", True),
        ("app = ClientApp()\n@app.query('other')\ndef who(message, context): ...", False),
        ("app = ClientApp()\n@app.query(action='other')\ndef who(message, context): ...", False),
        ("app = ClientApp()\ntable.query('x > 1')\n@app.train()\ndef train(message): ...", False),
        ("app = ClientApp()\nregister(app)", None),
        ("app = client_app()", None),
        ("from mine.handlers import app", None),
        ("not python", None),
        (None, None),
    ],
)
def test_the_source_shows_whether_queries_are_handled(source, found, tmp_path):
    (tmp_path / "mine").mkdir()
    if source is not None:
        (tmp_path / "mine" / "client.py").write_text(source)
    assert has_query_handler([str(tmp_path)]) is None, "no app"
    (tmp_path / "pyproject.toml").write_text(APP)
    assert has_query_handler(["/nowhere", str(tmp_path)]) is found
