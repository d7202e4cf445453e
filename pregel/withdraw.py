"""Taking back what a node's last run has sent, for an edit in that node's name: pure functions (rule 9.3).

Only what no finished task has used is taken back; a task that nothing else has woken goes with its questions.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from .channels import MISSING
from .head import SENDS, Head
from .rules import Plan
from .task import PregelNode, escape


def withdraw(
    graph: Plan, head: Head, number: int, node: PregelNode, task_id: str | None, finished: Container[str]
) -> list[str]:
    """Take back the messages of a node, or the packets of one of its tasks; return the ids of tasks that are gone."""
    if task_id is not None:  # other packets of the node have sent the same messages
        return _packets(head, number, lambda sender: sender == task_id, finished)
    head.withheld = tuple(item for item in head.withheld if item[0] != node.name)
    gone = [id_ for barrier in node.joins if (id_ := _unfill(graph, head, number, barrier, node.name, finished))]
    for target, (act, senders) in list(head.due.items()):
        id_ = f"{graph.nodes[target].key}@{act}"
        if node.name in senders and id_ not in finished:
            left = {sender: None for sender in senders if sender != node.name}
            gone += _woken_by(head, target, act, left, id_)
    return gone + _packets(head, number, lambda sender: sender.partition("@")[0] == node.key, finished)


def everything(graph: Plan, head: Head, number: int) -> None:
    """Leave nothing to run."""
    head.due, head.withheld = {}, ()
    for name in (SENDS, *graph.barriers):
        head.scheduling.set(name, MISSING, number)


def _unfill(graph: Plan, head: Head, number: int, barrier: str, sender: str, finished: Container[str]) -> str | None:
    """Take a sender out of a barrier, also out of one that has fired if its target has not run yet."""
    channel = graph.barriers[barrier]
    value = head.scheduling.values.get(barrier, MISSING)
    target = channel.target
    if value is not MISSING:
        head.scheduling.set(barrier, tuple(s for s in value if s != sender) or MISSING, number)
    elif target in head.due:
        act, senders = head.due[target]
        id_ = f"{graph.nodes[target].key}@{act}"
        sent = tuple(s for s in senders if s in channel.senders)
        if id_ not in finished and sender in sent and channel.is_available(sent):
            head.scheduling.set(barrier, tuple(s for s in sent if s != sender) or MISSING, number)
            gone = _woken_by(head, target, act, {s: None for s in senders if s not in channel.senders}, id_)
            return gone[0] if gone else None
    return None


def _woken_by(head: Head, target: str, act: int, senders: dict[str, None], id_: str) -> list[str]:
    if senders:
        head.due[target] = (act, senders)
        return []
    del head.due[target]
    return [id_]


def _packets(head: Head, number: int, is_from: Callable[[str], bool], finished: Container[str]) -> list[str]:
    kept, gone = [], []
    for packet in head.packets:
        id_ = f"{escape(packet[2])}@{packet[0]}.{packet[1]}"
        if is_from(packet[5]) and id_ not in finished:
            gone.append(id_)
        else:
            kept.append(packet)
    if gone:
        head.scheduling.set(SENDS, kept or MISSING, number)
    return gone
