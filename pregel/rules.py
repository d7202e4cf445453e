"""The super-step as pure functions: what is due, how it is folded, when it pauses, what it returns.

No input or output, no threads, no clock, no logging. Functions that take a head change that head and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from .channels import MISSING, BarrierChannel, Channel, ChannelError, Folded, FoldError, Overwrite
from .errors import InvalidTargetError, InvalidUpdateError, PregelError
from .head import MEMORY, SENDS, WROTE, Head, Packet
from .task import Cancelled, Done, Failed, NodeTask, PregelNode, Sent, plain, unescape
from .types import END, START, Command, Send


class Plan(Protocol):
    """The part of a compiled graph that the rules read."""

    @property
    def nodes(self) -> Mapping[str, PregelNode]:
        """All nodes, by name."""

    @property
    def channels(self) -> Mapping[str, Channel]:
        """The channels of the state, by key."""

    @property
    def barriers(self) -> Mapping[str, BarrierChannel]:
        """The barriers, by the name that `PregelNode.joins` uses."""

    @property
    def entry(self) -> tuple[str, ...]:
        """The nodes that an input wakes."""

    @property
    def subscribers(self) -> Mapping[str, tuple[str, ...]]:
        """The nodes that a change of a channel wakes."""

    @property
    def output_keys(self) -> frozenset[str] | None:
        """The keys of the output, None for all."""


# --- what is due ------------------------------------------------------------------------------------------------


def plan(graph: Plan, head: Head) -> list[NodeTask]:
    """Return the tasks that run next, in task order: the edges withheld at a pause before what is due (rule 7.3)."""
    return _routing(graph, head) if head.withheld else due(graph, head)


def pending(graph: Plan, head: Head) -> list[NodeTask]:
    """Return all tasks that are to run: edges withheld at a pause as well as what is due beside them."""
    return _routing(graph, head) + due(graph, head)


def is_pending(head: Head, task_id: str) -> bool:
    """Whether a task is still to be folded, or its edges to be decided."""
    key, _, rest = task_id.partition("/")[0].partition("@")
    act, _, index = rest.partition(".")
    name, number, at = unescape(key), int(act), int(index or -1)
    if (name, number, at) in head.withheld:
        return True
    if not index:
        return name in head.due and head.due[name][0] == number
    return any(packet[0] == number and packet[1] == at and packet[2] == name for packet in head.packets)


def _routing(graph: Plan, head: Head) -> list[NodeTask]:
    return [NodeTask(graph.nodes[name], MISSING, act, index, edge=True) for name, act, index in head.withheld]


def due(graph: Plan, head: Head) -> list[NodeTask]:
    """Return the tasks of the next super-step in task order (rules 3.1, 3.4). Costs what is due, not what exists.

    While edges are withheld nobody knows what else will be due, so deferred nodes are held.
    """
    nodes, due = graph.nodes, head.due
    packets = [NodeTask(nodes[node], arg, act, index) for act, index, node, arg, _, _ in head.packets]
    if len(due) == 1 and not packets and not head.withheld:
        for name, entry in due.items():
            return [NodeTask(nodes[name], MISSING, entry[0])]
    tasks = [NodeTask(nodes[name], MISSING, entry[0]) for name, entry in due.items()]
    tasks.sort(key=_order)
    ready = [task for task in tasks if not task.node.defer] + packets
    return ready if ready or head.withheld else tasks


def _order(task: NodeTask) -> int:
    return task.node.order


# --- the barrier ------------------------------------------------------------------------------------------------


def begin(graph: Plan, head: Head, number: int, values: Mapping[str, Any], *, exact: bool) -> None:
    """Make the input the state of a new super-step 0 and wake the entry (rules 2.3, 3.6, 6.12).

    `exact` takes the values as they are instead of folding them: a child starts from its parent's values (rule 8.1).
    """
    folded: dict[str, Any] = dict(values) if exact else prepare(head, list(values.items()), "the input")
    if not head.number:
        head.channels.fix(number)
    _empty_scheduling(head)
    head.channels.expire(folded)
    head.channels.apply(folded, number)
    wake(graph, head, number, graph.entry, "__start__")
    _notify(graph, head, number, folded, "__start__")
    head.advance(number, "input", keep_line=False)
    head.step = 0
    head.began = number
    head.handover = None


def _empty_scheduling(head: Head) -> None:
    head.due = {}
    head.withheld = ()
    for name in list(head.scheduling.values):
        if name != MEMORY:  # it outlasts the run
            head.scheduling.set(name, MISSING, 0)


def prepare(head: Head, writes: Sequence[tuple[str, Any]], writer: str) -> Folded:
    """Fold writes that are no node's into new values. Raises InvalidUpdateError."""
    known = head.channels.channels
    if unknown := [name for name, _ in writes if name not in known]:
        raise unknown_keys(unknown, known, writer)
    try:
        return head.channels.prepare(writes)
    except FoldError as error:
        raise InvalidUpdateError(f"{writer} cannot be folded into {error.channel!r}: {error.cause}") from error


def unknown_keys(unknown: Sequence[str], known: Iterable[str], writer: str) -> InvalidUpdateError:
    """Return the error for keys that the state does not declare (rule 1.6)."""
    keys = ", ".join(repr(name) for name in unknown)
    return InvalidUpdateError(f"{writer} writes the undeclared {keys}; declared are {sorted(known)}", keys=unknown)


class Refused(Exception):
    """A fold that failed: the tasks whose writes it was folding, and why (rule 2.7)."""

    def __init__(self, tasks: tuple[NodeTask, ...], error: InvalidUpdateError) -> None:
        super().__init__(str(error))
        self.tasks = tasks
        self.error = error


def prepare_fold(head: Head, endings: Sequence[Done]) -> Folded:
    """Fold the writes of a step, in task order, into new values. Raises Refused; nothing is changed."""
    try:
        return head.channels.prepare([(name, value) for ending in endings for name, value, _ in ending.writes])
    except FoldError as error:
        raise refusal(error.channel, error.cause, endings) from error


def fold(
    graph: Plan,
    head: Head,
    number: int,
    endings: Sequence[Done],
    folded: Mapping[str, Any],
    names: Collection[str] = (),
) -> None:
    """Consume the tasks, make the folded values the present ones, wake what is reached: one barrier (rules 3.2, 3.3).

    `names` are keys whose single writes are kept for the parent (rule 8.1).
    """
    special: list[Done] = []
    for ending in endings:
        if ending.task.index < 0:
            del head.due[ending.task.node.name]
        if ending.withheld or ending.memory:
            special.append(ending)
    if special:
        tasks = [ending.task for ending in special if ending.withheld]
        head.withheld = tuple((task.node.name, task.activation, task.index) for task in tasks)
        remember(head, number, special)
    head.channels.expire(folded)
    head.channels.apply(folded, number)
    _send(head, number, _sent(endings))
    _route(graph, head, number, endings)
    _notify(graph, head, number, folded, "")
    if names:
        collect(head, number, ((name, value) for ending in endings for name, value, _ in ending.writes), names)
    head.advance(number, "loop", keep_line=False)
    head.step += 1


def collect(head: Head, number: int, writes: Iterable[tuple[str, Any]], names: Collection[str]) -> None:
    """Keep single writes to some keys, for the parent to fold (rule 8.1)."""
    if kept := [[name, value] for name, value in writes if name in names]:
        head.scheduling.apply(head.scheduling.prepare([(WROTE, kept)]), number)


def remember(head: Head, number: int, endings: Sequence[Done]) -> None:
    """Point to where the memories of child graphs stand now (rule 8.5)."""
    if moved := {name: at for ending in endings for name, at in ending.memory.items()}:
        head.scheduling.set(MEMORY, {**head.memory, **moved}, number)


def forget(head: Head) -> None:
    """Drop what a child knows of memories below it: its parent knows as much, and maybe more by now."""
    head.scheduling.set(MEMORY, MISSING, 0)


def fold_edges(graph: Plan, head: Head, number: int, endings: Sequence[Done]) -> None:
    """Wake what the edges withheld at a pause lead to: a commit that is no super-step (rule 7.3)."""
    head.withheld = ()
    remember(head, number, endings)
    _route(graph, head, number, endings)
    add_sends(head, number, _sent(endings))
    head.advance(number, "loop", keep_line=False)


def hand_over(head: Head, command: Command) -> None:
    """End a child by a command for its parent: what it had still to do is dropped (rule 4.2)."""
    _empty_scheduling(head)
    head.handover = command


def refusal(channel: str, cause: BaseException, endings: Sequence[Done]) -> Refused:
    """Return why the writes of a step to one channel are refused, with the tasks that wrote them."""
    tasks = tuple(e.task for e in endings if any(name == channel for name, _, _ in e.writes))
    writers = ", ".join(repr(task.name) for task in tasks)
    known = isinstance(cause, (ChannelError, PregelError))
    error = InvalidUpdateError(
        f"the writes of {writers} to {channel!r} cannot be folded: {cause if known else repr(cause)}",
        channel=channel,
        nodes=tuple(task.name for task in tasks),
    )
    error.__cause__ = None if known else cause
    return Refused(tasks, error)


def _sent(endings: Sequence[Done]) -> list[tuple[str, Any, bytes | None, str]]:
    return [(*sent, ending.task.id) for ending in endings if ending.sends for sent in ending.sends]


def _send(head: Head, number: int, sends: Sequence[tuple[str, Any, bytes | None, str]]) -> None:
    packets: list[Packet] = [(number, index, *sent) for index, sent in enumerate(sends)]
    head.scheduling.set(SENDS, packets or MISSING, number)


def _route(graph: Plan, head: Head, number: int, endings: Sequence[Done]) -> None:
    messages: dict[str, list[str]] = {}
    held: Collection[str] = ()
    if head.withheld:
        held = {barrier for ending in endings if ending.withheld for barrier in ending.task.node.joins}
    for ending in endings:
        node = ending.task.node
        wake(graph, head, number, ending.gotos, node.name)
        if ending.withheld:  # a jump that the node asked for itself is kept
            continue
        wake(graph, head, number, node.targets, node.name)
        for barrier in node.joins:
            messages.setdefault(barrier, []).append(node.name)
    for barrier, senders in messages.items():
        channel = graph.barriers[barrier]
        value = channel.update(head.scheduling.values.get(barrier, MISSING), senders)
        if barrier in held:  # a message of the same step comes when its edge is decided, and belongs to the same fill
            head.scheduling.set(barrier, value, number)
            continue
        head.scheduling.set(barrier, channel.consume(value), number)
        if channel.is_available(value):
            for sender in value:
                wake(graph, head, number, (channel.target,), sender)


def wake(graph: Plan, head: Head, number: int, targets: Iterable[str], sender: str) -> None:
    """Make targets due; one that is due already keeps its activation (rule 3.3)."""
    due = head.due
    for target in targets:
        entry = due.get(target)
        if entry is None:
            due[target] = (number, {sender: None})
        else:
            entry[1][sender] = None


def _notify(graph: Plan, head: Head, number: int, changed: Iterable[str], sender: str) -> None:
    if graph.subscribers:
        for name in changed:
            wake(graph, head, number, graph.subscribers.get(name, ()), sender or name)


def refork(graph: Plan, head: Head, number: int) -> None:
    """Activate what is due anew under a new number: a replayed checkpoint has no records (rule 9.4)."""
    head.due = {name: (number, senders) for name, (_, senders) in head.due.items()}
    head.withheld = tuple((name, number, index) for name, _, index in head.withheld)
    _send(head, number, [packet[2:] for packet in head.packets])
    head.advance(number, "fork", keep_line=False)


# --- routing and endings ----------------------------------------------------------------------------------------


def check_target(graph: Plan, target: object, source: str) -> str:
    """Return a target's name. Raises InvalidTargetError listing the valid ones (rule 1.6)."""
    if isinstance(target, str) and (target in graph.nodes or target == END) and target != START:
        return plain(target)
    names = [name for name in graph.nodes if name != START]
    raise InvalidTargetError(
        f"{source} leads to {target!r}, which is no node; known are {[*names, END]}", target=target
    )


def route_command(
    graph: Plan, targets: Iterable[Any], source: str, sent: Callable[[str, Any], Sent]
) -> tuple[list[str], list[Sent]]:
    """Sort targets into names and packets, END dropped. Raises InvalidTargetError."""
    gotos: list[str] = []
    sends: list[Sent] = []
    for target in targets:
        if type(target) is Send:
            if (name := check_target(graph, target.node, source)) == END:
                raise InvalidTargetError(f"{source} sends a packet to END, which takes none", target=END)
            sends.append(sent(name, target.arg))
        elif (name := check_target(graph, target, source)) != END:
            gotos.append(name)
    return gotos, sends


def edit(graph: Plan, head: Head, number: int, gotos: Sequence[str], sends: Sequence[Sent]) -> None:
    """Wake the targets of a command that was given as input (rule 4.4)."""
    wake(graph, head, number, gotos, "__command__")
    add_sends(head, number, [(*sent, "__command__") for sent in sends])


def send_on(graph: Plan, head: Head, number: int, ending: Done) -> None:
    """Wake what the edges of a node lead to, in an edit in its name (rule 9.3)."""
    remember(head, number, [ending])
    _route(graph, head, number, [ending])
    add_sends(head, number, _sent([ending]))


def add_sends(head: Head, number: int, sends: Sequence[tuple[str, Any, bytes | None, str]]) -> None:
    """Make packets due besides those that are."""
    if sends:
        new: list[Packet] = [(number, index, *sent) for index, sent in enumerate(sends)]
        head.scheduling.set(SENDS, [*head.packets, *new], number)


def first_error(tasks: Sequence[NodeTask], failed: Mapping[str, Failed | Cancelled]) -> Failed | Cancelled:
    """Return the ending whose error a step raises: the first failure in task order (rule 5.3)."""
    in_order = [failed[task.id] for task in tasks if task.id in failed]
    return next((ending for ending in in_order if type(ending) is Failed), in_order[0])


def output(graph: Plan, head: Head) -> dict[str, Any]:
    """Return the output so far, in the order of the keys, as a mapping that is the caller's own."""
    values = head.channels.read()
    keys = graph.output_keys
    return {name: values[name] for name in graph.channels if name in values and (keys is None or name in keys)}


def handed_back(head: Head, reduced: Collection[str]) -> list[tuple[str, Any]]:
    """Return what a child's own nodes wrote, for the parent to fold (rule 8.1)."""
    versions, values, began = head.channels.versions, head.channels.values, head.began
    kept: list[tuple[str, Any]] = [(name, value) for name, value in head.scheduling.values.get(WROTE, ())]
    if replaced := {name: None for name, value in kept if type(value) is Overwrite}:
        # what was folded before it is gone, and what came after it is in the value: to the parent it is one Overwrite
        kept = [(name, value) for name, value in kept if name not in replaced]
        kept += [(name, Overwrite(values[name])) for name in replaced]
    plain = [(n, values[n]) for n, v in versions.items() if v > began and n not in reduced and n in values]
    return plain + kept
