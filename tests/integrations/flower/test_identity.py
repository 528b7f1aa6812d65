"""Client names: they outlive node ids, are found without noise, and belong to one node each."""

import itertools
import logging

import pytest

pytest.importorskip("flwr", reason="the plug-in needs the extra flower")

from fake_federation import federation, start
from fake_grid import FakeGrid, fleet
from flwr.proto.node_pb2 import NodeInfo

from bsfl import BSFL, Scheduler, UniformRandom
from bsfl.errors import NotEnoughClients
from bsfl.integrations.flower.identity_queries import has_query_handler
from bsfl.integrations.flower.node_registry import NodeRegistry
from fake_clock import FakeClock


def nameless(*takes, **settings):
    """Return nodes as unmodified apps have them: registered without a name."""
    return fleet(*takes, is_registered=False, **settings)


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


# --- where names come from ------------------------------------------------------------------------


def test_an_unmodified_app_is_not_queried(caplog):
    selected, grid = federation(nameless(1.0, 1.0, handles_queries=False))
    caplog.clear()
    start(selected, grid, rounds=3)
    assert grid.queries == []
    assert selected.scheduler.clients == ["node-101", "node-102"]
    assert warnings(caplog) == []


def test_nodes_that_were_registered_with_a_name_have_it():
    selected, grid = federation(fleet(1.0, 1.0))
    start(selected, grid)
    assert selected.scheduler.clients == ["0", "1"]
    assert grid.queries == []


@pytest.mark.parametrize("identity", ["auto", "partition-id"])
def test_a_training_reply_reports_the_name(identity, caplog):
    """Until then a client is identified by its node id; afterwards that one has left."""
    nodes = nameless(1.0, 1.0, handles_queries=False)
    for k, node in enumerate(nodes.values()):
        node.reports = {"partition-id": k}
    selected, grid = federation(nodes, identity=identity)
    start(selected, grid, rounds=3)
    cohorts = [sorted(r.cohort) for r in selected.rounds]
    assert cohorts == [["node-101", "node-102"], ["0", "1"], ["0", "1"]]
    assert sorted(selected.scheduler.clients) == ["0", "1"]
    assert len(grid.queries) == (0 if identity == "auto" else 1), "one is queried to find out"


def test_any_key_of_the_node_config_can_be_the_name():
    nodes = nameless(1.0, 1.0, handles_queries=False)
    for node in nodes.values():
        node.reports = {"client-name": f"ward {node.name}", "partition-id": 5}
    selected, grid = federation(nodes, identity="client-name")
    start(selected, grid, rounds=2)
    assert sorted(selected.scheduler.clients) == ["ward 0", "ward 1"]


def test_a_client_may_report_its_name_as_a_metric():
    nodes = nameless(1.0, 1.0)
    for k, node in enumerate(nodes.values()):
        node.metrics = {"partition-id": k}
    selected, grid = federation(nodes)
    start(selected, grid, rounds=2)
    assert sorted(selected.scheduler.clients) == ["0", "1"]
    assert "2 of 2 seen" in selected.rounds[-1].line()


def test_the_first_name_that_a_node_reports_is_final():
    nodes = nameless(1.0, 1.0)
    selected, grid = federation(nodes)
    nodes[101].reports = {"partition-id": 0}
    start(selected, grid, rounds=2)
    nodes[101].reports = {"partition-id": 7}
    start(selected, grid, rounds=2)
    assert selected.scheduler.clients == ["0", "node-102"]


def test_what_was_learned_of_a_node_goes_with_it_to_its_name(tmp_path):
    """The policy does not take it for an unseen client again; no client is counted twice."""
    nodes = nameless(*[1.0] * 6)
    for k, node in enumerate(nodes.values()):
        node.reports = {"partition-id": k}
    selected, grid = federation(
        nodes, scheduler=Scheduler(BSFL(), cohort_size=2), state_path=tmp_path / "s"
    )
    start(selected, grid, rounds=3)
    scheduler = selected.scheduler
    assert sorted(scheduler.clients) == ["0", "1", "2", "3", "4", "5"]
    rows = scheduler.table()
    assert [row["participations"] for row in rows] == [1] * 6
    assert None not in [row["latency_s"] for row in rows]
    assert Scheduler.load(tmp_path / "s").clients == scheduler.clients


def test_the_name_of_a_client_that_was_here_before_brings_it_back(tmp_path):
    for first in (101, 201):
        nodes = dict(zip((first, first + 1), nameless(1.0, 1.0).values(), strict=True))
        for k, node in enumerate(nodes.values()):
            node.reports = {"partition-id": k}
        selected, grid = federation(nodes, state_path=tmp_path / "s")
        start(selected, grid, rounds=2)
        assert sorted(selected.scheduler.clients) == ["0", "1"]


def test_an_app_with_a_query_handler_is_queried(monkeypatch):
    monkeypatch.setattr("bsfl.integrations.flower.options.has_query_handler", lambda: True)
    selected, grid = federation(nameless(1.0, 1.0, 1.0))
    start(selected, grid, rounds=2)
    assert grid.queries == ["0", "1", "2"], "once each"
    assert selected.scheduler.clients == ["0", "1", "2"], "known from the first round on"


def test_an_app_without_a_query_handler_is_never_queried(monkeypatch):
    monkeypatch.setattr("bsfl.integrations.flower.options.has_query_handler", lambda: False)
    selected, grid = federation(nameless(1.0, 1.0), identity="partition-id")
    start(selected, grid, rounds=2)
    assert grid.queries == []


def test_one_node_is_queried_first_if_the_source_does_not_show_a_handler(caplog):
    selected, grid = federation(nameless(1, 1, 1, handles_queries=False), identity="partition-id")
    caplog.clear()
    start(selected, grid, rounds=2)
    assert len(grid.queries) == 1
    assert [w for w in warnings(caplog) if "has no query handler" in w] == warnings(caplog)
    assert len(warnings(caplog)) == 1
    assert selected.scheduler.clients == ["node-101", "node-102", "node-103"]


def test_a_node_without_a_name_is_identified_by_its_node_id(caplog):
    nodes = nameless(1.0, 1.0)
    nodes[102].handles_queries = False
    selected, grid = federation(nodes, identity="partition-id")
    start(selected, grid, rounds=2)
    assert selected.scheduler.clients == ["0", "node-102"]
    assert grid.queries == ["0", "1"], "not queried again"
    assert "node 102 does not reply to a query with its partition-id" in caplog.text


def test_node_ids_are_free():
    selected, grid = federation(fleet(1.0, 1.0), identity="node-id")
    start(selected, grid)
    assert selected.scheduler.clients == ["node-101", "node-102"]
    assert grid.queries == []


def test_a_function_names_clients():
    selected, grid = federation(fleet(1.0, 1.0), identity=lambda node: f"phone {node.name}")
    start(selected, grid)
    assert selected.scheduler.clients == ["phone 0", "phone 1"]
    selected, grid = federation(fleet(1.0, 1.0), identity=lambda node: node.node_id)
    start(selected, grid)
    assert selected.scheduler.clients == [101, 102]


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
    ],
)
def test_with_an_invalid_name_a_node_is_identified_by_its_node_id(name, reason, caplog):
    names = {"0": "ann", "1": name}
    selected, grid = federation(fleet(1, 1), identity=lambda node: names[node.name])
    start(selected, grid, rounds=2)
    assert selected.scheduler.clients == ["ann", "node-102"]
    assert f"node 102 is identified by its node id: {reason}" in caplog.text
    assert len([r for r in caplog.records if "identified by" in r.getMessage()]) == 1


def test_names_are_all_numbers_or_all_text(caplog):
    names = {"0": 7, "1": "eight", "2": 9}
    selected, grid = federation(fleet(1, 1, 1), identity=lambda node: names[node.name])
    start(selected, grid)
    assert selected.scheduler.clients == [7, 9, 102]
    scheduler = Scheduler(UniformRandom(), cohort_size=2)
    scheduler.join(["0", "1"])
    selected, grid = federation(fleet(1, 1), scheduler=scheduler, identity=lambda n: int(n.name))
    start(selected, grid)
    assert scheduler.clients == ["0", "1"], "spelt as the scheduler spells them"


def test_if_the_function_fails_for_a_node_it_is_identified_by_its_node_id(caplog):
    names = {"0": "ann"}
    selected, grid = federation(fleet(1, 1), identity=lambda node: names[node.name])
    start(selected, grid)
    assert selected.scheduler.clients == ["ann", "node-102"]
    assert "your identity function failed for node 102 (KeyError('1'))" in caplog.text


def test_a_node_that_never_reports_its_name_delays_only_the_first_round():
    selected, grid = federation(nameless(1.0, 1.0, 1.0), identity="partition-id")
    query = grid._query
    grid._query = lambda node, m: query(node, m) if node.name != "2" else grid._reply(m, None, 1e9)
    before = grid.clock.now
    start(selected, grid, rounds=3)
    assert set(selected.scheduler.clients) == {"0", "1"}
    assert 15.0 <= grid.clock.now - before <= 20.0


def test_if_the_first_node_is_unresponsive_others_are_queried():
    selected, grid = federation(nameless(1.0, 1.0, 1.0), identity="partition-id")
    query = grid._query
    grid._query = lambda node, m: query(node, m) if node.name != "0" else grid._reply(m, None, 1e9)
    start(selected, grid, rounds=2)
    assert set(selected.scheduler.clients) == {"1", "2"}


def test_replies_that_keep_coming_are_waited_for(monkeypatch):
    """Each node reports its name ten seconds after the one before."""
    monkeypatch.setattr("bsfl.integrations.flower.options.has_query_handler", lambda: True)
    selected, grid = federation(nameless(1, 1, 1, 1, 1, 1))
    send, turn = grid._reply, itertools.count(1)
    grid._reply = lambda m, reply, s: send(
        m, reply, s if m.metadata.message_type == "train" else 10.0 * next(turn)
    )
    start(selected, grid)
    assert len(selected.scheduler.clients) == 6
    assert 60.0 <= grid.clock.now - 1000.0 <= 65.0


def test_new_nodes_that_keep_coming_do_not_delay_a_round_with_enough_clients(monkeypatch):
    monkeypatch.setattr("bsfl.integrations.flower.options.has_query_handler", lambda: True)
    selected, grid = federation(nameless(1, 1, 1, 1, 1, 1), wait_s=25.0)
    send, turn = grid._reply, itertools.count(1)
    grid._reply = lambda m, reply, s: send(
        m, reply, s if m.metadata.message_type == "train" else 10.0 * next(turn)
    )
    start(selected, grid)
    assert len(selected.rounds[0].cohort) == 2


# --- two nodes, one name --------------------------------------------------------------------------


class Second(FakeGrid):
    """Node 202 comes after the second round with the name of client 1; 102 goes after the 4th."""

    key = b""

    def push_messages(self, messages):
        if self.sent.count(101) == 2 and 202 not in self.nodes:
            self.nodes[202] = fleet(1, 1, registered_at="9")[102]
            self.nodes[202].public_key = self.key
            self.online |= {202}
        if self.sent.count(101) == 4:
            self.online -= {102}
        return super().push_messages(messages)


def test_the_living_holder_keeps_its_name(caplog):
    selected, grid = federation(fleet(1.0, 2.0, 3.0), cohort_size=3, min_clients=2, deadline_s=10.0)
    grid.__class__ = Second
    start(selected, grid, rounds=7)
    assert selected.scheduler.clients == ["0", "1", "2"], "no unseen client"
    assert grid.sent.count(102) == 5, "as long as it is there"
    assert grid.sent[-6:].count(202) == 2, "then the other one"
    assert 202 not in grid.sent[: grid.sent.index(102, 10)]
    said = [w for w in warnings(caplog) if "node 202 reports the name '1', as node 102 does" in w]
    assert len(said) == 1, "once"


def test_the_same_public_key_takes_over_at_once(caplog):
    nodes = fleet(1.0, 2.0, 3.0, public_key=b"")
    nodes[102].public_key = b"its own"
    selected, grid = federation(nodes, cohort_size=3, deadline_s=10.0)
    grid.__class__, grid.key = Second, b"its own"
    start(selected, grid, rounds=7)
    assert (grid.sent.count(102), grid.sent.count(202)) == (3, 4)
    assert not [w for w in warnings(caplog) if "reports the name" in w]


def test_of_nodes_that_are_there_from_the_start_the_first_to_register_has_the_name():
    for honest, thief in itertools.permutations((101, 102)):
        nodes = fleet(1.0, 1.0, 1.0)
        for node, at in ((honest, "2026-01-01"), (thief, "2026-01-02")):
            nodes[node].name, nodes[node].registered_at = "7", at
        selected, grid = federation(nodes)
        grid.get_node_ids = lambda: [102, 103, 101]
        start(selected, grid, rounds=4)
        assert thief not in grid.sent
        assert grid.sent.count(honest) == 4


def test_a_fast_reply_does_not_win_a_name(monkeypatch):
    """The thief reports the name long before the node that registered first."""
    monkeypatch.setattr("bsfl.integrations.flower.options.has_query_handler", lambda: True)
    nodes = nameless(1.0, 1.0, 1.0)
    nodes[102].name, nodes[101].registered_at, nodes[102].registered_at = "0", "1", "2"
    selected, grid = federation(nodes)
    send = grid._reply
    grid._reply = lambda m, reply, s: send(
        m, reply, s if m.metadata.dst_node_id == 102 or m.metadata.message_type == "train" else 9.0
    )
    start(selected, grid, rounds=3)
    assert 102 not in grid.sent[3:]


def test_a_thief_that_reports_a_name_in_its_reply_is_not_invited_again(caplog):
    nodes = fleet(1.0, 1.0, 1.0)
    nodes[103].is_registered, nodes[103].reports = False, {"partition-id": 0}
    selected, grid = federation(nodes, cohort_size=3, min_clients=2)
    start(selected, grid, rounds=4)
    assert grid.sent.count(103) == 1, "as its node id, before it reported the name"
    assert selected.scheduler.clients == ["0", "1"]
    assert "node 103 reports the name '0', as node 101 does" in caplog.text


def test_an_error_counts_nodes_that_share_a_name():
    selected, grid = federation(fleet(1, 1, 1), identity=lambda node: "same")
    with pytest.raises(NotEnoughClients, match="3 have a name .1 distinct., 1 are free"):
        start(selected, grid)


def test_a_node_that_returns_does_not_take_its_name_back():
    clock = FakeClock()
    registry = NodeRegistry("auto", clock)
    nodes = [NodeInfo(node_id=n, name="ann", registered_at=str(n)) for n in (1, 2)]

    class Grid:
        def get_nodes(self):
            return nodes

    def holder(*online):
        registry.update(Grid(), set(online))
        return registry.clients().get("ann")

    assert holder(1, 2) == 1
    registry.mark_invited([1])
    assert holder(2) == 2
    registry.mark_invited([2])
    assert holder(1, 2) == 2, "the living holder"
    assert holder(1) == 1
    registry.forget({"ann"})
    assert holder(1, 2) == 1, "a node that is online is not forgotten"


# --- nodes that come and go -----------------------------------------------------------------------


def test_a_client_leaves_after_a_long_absence_and_is_remembered():
    selected, grid = federation(fleet(1.0, 1.0, 1.0), cohort_size=2, leave_after_s=10.0)
    start(selected, grid, rounds=5)
    grid.online -= {103}
    start(selected, grid, rounds=5)
    assert selected.scheduler.clients == ["0", "1", "2"], "five seconds are not long"
    start(selected, grid, rounds=8)
    assert selected.scheduler.clients == ["0", "1"]
    grid.online |= {103}
    start(selected, grid)
    assert selected.scheduler.clients == ["0", "1", "2"], "back again"


def test_without_leave_after_s_no_client_leaves():
    selected, grid = federation(fleet(1.0, 1.0, 1.0), leave_after_s=None)
    start(selected, grid)
    grid.online -= {103}
    grid.clock.now += 1e6
    start(selected, grid)
    assert selected.scheduler.clients == ["0", "1", "2"]


def test_a_restart_leaves_no_outdated_clients(tmp_path):
    """Nodes get new ids with every simulation, and with every restart of a SuperNode."""
    path = tmp_path / "scheduler.bsfl"
    first, grid = federation(nameless(1.0, 1.0), state_path=path)
    start(first, grid)
    nodes = dict(zip((301, 302), nameless(1.0, 1.0).values(), strict=True))
    second, grid = federation(nodes, state_path=path)
    start(second, grid)
    assert second.scheduler.clients == ["node-301", "node-302"]
    assert "2 of 2 seen" in second.rounds[0].line()


# --- query handlers in the source of an app --------------------------------------------------------

APP = '[tool.flwr.app.components]\nserverapp = "mine.server:app"\nclientapp = "mine.client:app"\n'


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("@app.query()\ndef who(message, context): ...", True),
        ("app.query()(who)", True),
        ("@app.query('default')\ndef who(message, context): ...", True),
        ("@app.query(mods=[size])\ndef who(message, context): ...", True),
        ("@app.query('other')\ndef who(message, context): ...", False),
        ("@app.query(action='other')\ndef who(message, context): ...", False),
        ("table.query('x > 1')\n@app.train()\ndef train(message, context): ...", False),
        ("register(app)", None),
    ],
)
def test_the_source_shows_whether_queries_are_handled(source, found, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "client.py").write_text(f"app = ClientApp()\n{source}")
    assert has_query_handler([str(tmp_path)]) is None, "no app"
    (tmp_path / "pyproject.toml").write_text(APP)
    assert has_query_handler(["/nowhere", str(tmp_path)]) is found


UNCLEAR = [None, "not python", "from mine.handlers import app", "app = client_app()"]


@pytest.mark.parametrize("source", UNCLEAR)
def test_an_app_whose_source_does_not_show_it(source, tmp_path):
    (tmp_path / "pyproject.toml").write_text(APP)
    if source is not None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "client.py").write_text(source)
    assert has_query_handler([str(tmp_path)]) is None
