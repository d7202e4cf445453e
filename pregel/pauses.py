"""When a run pauses between nodes, and what status a checkpoint has: pure functions (section 7 of the rules)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from .channels import MISSING
from .checkpoint import Status
from .head import Head
from .interrupt import Interrupt, When
from .namespace import join, parts
from .rules import Plan, due, pending
from .task import Done, NodeTask


class Pauses(NamedTuple):
    """The nodes before and after which a run pauses (rules 7.1, 7.2); `before_edge` withholds edges (rule 7.3)."""

    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    before_edge: bool = False


def settle(
    graph: Plan, head: Head, pauses: Pauses, ran: Sequence[Done], namespace: str, passed: Container[str]
) -> None:
    """Decide the status of a checkpoint that was just reached: done, paused with its reasons, or running.

    A pause that was `passed` does not come again: a run without a saver, or with edges withheld, may meet it twice.
    """
    head.reasons = ()
    reasons: list[Interrupt] = []
    if pauses.before or pauses.after or _wished(ran):
        reasons = [*_after(pauses, ran, namespace), *_before(graph, head, pauses, namespace)]
    if reasons and (left := [reason for reason in reasons if reason.id not in passed]):
        following = tuple(dict.fromkeys(task.label for task in pending(graph, head)))
        for reason in left:
            reason.next = following
        head.reasons = tuple(left)
    head.status = "paused" if head.reasons else _unpaused(head)


def _unpaused(head: Head) -> Status:
    if head.handover is not None:
        return "handed_over"
    return "running" if head.due or head.withheld or head.packets else "done"


def pass_pauses(head: Head) -> None:
    """Go on from the static pauses that were reached."""
    head.reasons = ()
    head.status = _unpaused(head)


def _wished(ran: Sequence[Done]) -> bool:
    for ending in ran:  # noqa: SIM110 - `any` makes a generator, and every step comes by here
        if ending.after is not MISSING:
            return True
    return False


def _after(pauses: Pauses, ran: Sequence[Done], namespace: str) -> list[Interrupt]:
    reasons = []
    for ending in ran:
        if ending.after is not MISSING:
            reasons.append(_reason(ending.task, "after", namespace, ending.after))
        elif ending.task.node.name in pauses.after and not ending.task.edge:
            reasons.append(_reason(ending.task, "after", namespace))
    return reasons


def _before(graph: Plan, head: Head, pauses: Pauses, namespace: str) -> list[Interrupt]:
    if not pauses.before:
        return []
    return [_reason(task, "before", namespace) for task in due(graph, head) if task.node.name in pauses.before]


def _reason(task: NodeTask, when: When, namespace: str, value: Any = None) -> Interrupt:
    id_ = join(namespace, f"{task.id}!{when}")
    return Interrupt(value, id_, task.node.name, parts(namespace), when)
