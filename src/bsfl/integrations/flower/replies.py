"""What a reply tells, whoever sent it."""

import math
from typing import Any

from flwr.app import Message
from flwr.common.constant import ErrorCode

from bsfl.records import Outcome

EXPIRED = {ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE}
"""Errors with which the SuperLink answers for a client whose time is over."""


def outcome_of(reply: Message) -> Outcome:
    """Return what a reply means: the client trained, its time is over, or it failed."""
    if not reply.has_error():
        return "ok"
    return "timeout" if reply.error.code in EXPIRED else "failed"


def is_lost(reply: Message) -> bool:
    """Return whether a reply comes from the SuperLink: the client itself was not reached."""
    return reply.has_error() and reply.error.code in EXPIRED | {ErrorCode.NODE_UNAVAILABLE}


def metric(reply: Message, key: str | None) -> float | None:
    """Return a metric of a reply if one is wanted, is there, and is a finite number."""
    if key is None:
        return None
    for record in reply.content.metric_records.values():
        value: Any = record.get(key)
        if isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    return None
