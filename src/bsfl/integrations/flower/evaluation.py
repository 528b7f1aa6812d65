"""Evaluation by clients, under a deadline: one that is slow holds up no round."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from flwr.app import DEFAULT_TTL, Message
from flwr.serverapp import Grid

from bsfl.integrations.flower.content import ContentCheck
from bsfl.rounds import Clock, pause_s
from bsfl.rounds.round import names

_LOG = logging.getLogger("flwr")


@dataclass(slots=True, kw_only=True)
class Evaluations:
    """Sends evaluation messages, and remembers who has not answered: it is still busy.

    Attributes:
        grid: The federation.
        clock: The server's.
        check: What a reply must hold.
    """

    grid: Grid
    clock: Clock
    check: ContentCheck
    _open: dict[str, tuple[int, float]] = field(default_factory=dict)  # node, when it expires
    _awaited: dict[str, int] = field(default_factory=dict)  # nodes of the exchange that is running
    _came: dict[str, Message] = field(default_factory=dict)

    @property
    def busy(self) -> set[int]:
        """The nodes that may still be evaluating."""
        return {node for node, _ in self._open.values()}

    def listen(self) -> None:
        """Take in the replies that came; forget who has answered and what has expired."""
        for reply in self.grid.pull_messages(list(self._open)) if self._open else ():
            token = reply.metadata.reply_to_message_id
            if self._open.pop(token, None) and token in self._awaited:
                self._came[token] = reply
        now = self.clock.monotonic()
        self._open = {token: one for token, one in self._open.items() if now < one[1]}

    def exchange(
        self,
        messages: list[Message],
        timeout_s: float | None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[Message]:
        """Send messages and return the replies that came in time and can be aggregated.

        Args:
            messages: To whom it may concern.
            timeout_s: Seconds after which nobody is waited for any more.
            meanwhile: What to do while waiting.
        """
        if not messages:
            return []
        due_s = min(timeout_s or DEFAULT_TTL, DEFAULT_TTL)
        for message in messages:
            message.metadata.ttl = 2.0 * due_s
        start = self.clock.monotonic()
        went_out = set(self.grid.push_messages(messages))
        nodes = {m.metadata.message_id: m.metadata.dst_node_id for m in messages}
        waiting = {token: node for token, node in nodes.items() if token in went_out}
        self._open |= {token: (node, start + 2.0 * due_s) for token, node in waiting.items()}
        self._awaited, self._came = waiting, {}
        while True:
            self.listen()
            waited_s = self.clock.monotonic() - start
            if len(self._came) == len(waiting) or waited_s >= due_s:
                break
            meanwhile()
            self.clock.sleep(pause_s(waited_s, until=due_s))
        came, self._awaited, self._came = self._came, {}, {}
        if missing := [node for token, node in waiting.items() if token not in came]:
            _LOG.info(
                "bsfl: evaluation ended after %.1f s without nodes %s", waited_s, names(missing)
            )
        return self._usable(list(came.values()))

    def _usable(self, replies: list[Message]) -> list[Message]:
        """Return the replies that do not spoil the aggregation."""
        answers = {k: reply for k, reply in enumerate(replies) if reply.has_content()}
        faults = {k: self.check.fault(reply) for k, reply in answers.items()}
        spoilt = {k: fault for k, fault in faults.items() if fault is not None}
        if self.check.weight_key is not None:
            rest = {k: reply for k, reply in answers.items() if k not in spoilt}
            spoilt |= self.check.odd_ones(rest)
        for k, fault in spoilt.items():
            node = replies[k].metadata.src_node_id
            _LOG.warning("bsfl: the evaluation of node %d is not used: %s", node, fault)
        return [reply for k, reply in enumerate(replies) if k not in spoilt]
