"""All that can be known to be wrong with a graph before it runs, in one error (rule 1.5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from inspect import unwrap
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from .channels import BinaryOperatorAggregate, Channel
from .errors import GraphValidationError
from .pauses import Pauses
from .rules import Plan
from .schema import takes_two
from .types import END, START, Command, Send

Groups = tuple[frozenset[str], ...]


class Edge(NamedTuple):
    """A static edge."""

    source: str
    target: str


class Join(NamedTuple):
    """An edge that waits for one of each group."""

    groups: Groups
    target: str


class Branch(NamedTuple):
    """A conditional edge; `targets` is what it may lead to, None if that is not known."""

    source: str
    name: str
    targets: tuple[str, ...] | None


class Drawing(NamedTuple):
    """What was built, as far as its shape goes. `jumps` are the targets that nodes declare or annotate, by node."""

    nodes: Collection[str]
    edges: Sequence[Edge]
    joins: Sequence[Join]
    branches: Sequence[Branch]
    jumps: Mapping[str, tuple[str, ...] | None]


def check(drawing: Drawing, channels: Mapping[str, Channel], faults: Iterable[str] = ()) -> None:
    """Raise GraphValidationError listing every fault of a graph, those found before included."""
    found = [*faults, *_faults(drawing, channels)]
    if found:
        lines = "".join(f"\n - {fault}" for fault in found)
        raise GraphValidationError(f"the graph has {len(found)} fault(s):{lines}", faults=tuple(found))


def _faults(drawing: Drawing, channels: Mapping[str, Channel]) -> Iterator[str]:
    yield from _unknown_names(drawing)
    yield from _reducers(channels)
    yield from _reachability(drawing)


def nearest(name: object, known: Iterable[str]) -> str:
    """Return what a wrong name was probably meant to be, as the end of a sentence."""
    names = list(known)
    close = get_close_matches(str(name), names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {names}"


def unknown(what: str, name: object, known: Collection[str]) -> str:
    """Return the sentence for a name that is no node."""
    return f"{what} names {name!r}, which is no node; {nearest(name, known)}"


def _unknown_names(drawing: Drawing) -> Iterator[str]:
    nodes = drawing.nodes
    sources, targets = {*nodes, START}, {*nodes, END}

    def wrong(what: str, names: Iterable[str], known: Collection[str]) -> Iterator[str]:
        return (unknown(what, name, sorted(known)) for name in names if name not in known)

    for source, target in drawing.edges:
        yield from wrong(f"edge {source!r} -> {target!r}", [source], sources)
        yield from wrong(f"edge {source!r} -> {target!r}", [target], targets)
    for groups, target in drawing.joins:
        what = f"join before {target!r}"
        yield from wrong(what, sorted(frozenset().union(*groups)), sources)
        yield from wrong(what, [target], nodes)
    for source, name, leads in drawing.branches:
        yield from wrong(f"conditional edge {name!r}", [source], sources)
        yield from wrong(f"conditional edge {name!r} of {source!r}", leads or (), targets)
    for name, jumps in drawing.jumps.items():
        yield from wrong(f"a destination of {name!r}", jumps or (), targets)


def _reducers(channels: Mapping[str, Channel]) -> Iterator[str]:
    for key, channel in channels.items():
        if isinstance(channel, BinaryOperatorAggregate) and not takes_two(channel.operator):
            yield f"the reducer of {key!r} does not take two arguments: {channel.operator!r}"


def _reachability(drawing: Drawing) -> Iterator[str]:
    nodes = set(drawing.nodes)
    if not nodes:
        yield "the graph has no nodes"
        return
    starts = [edge.target for edge in drawing.edges if edge.source == START]
    open_starts = [branch for branch in drawing.branches if branch.source == START]
    joined = [join for join in drawing.joins if any(START in group for group in join.groups)]
    if not starts and not open_starts and not joined:
        yield "the graph has no entry; add an edge from START or set_entry_point()"
        return
    reached = _reached(drawing, nodes)
    for name in sorted(nodes - reached):
        yield f"node {name!r} cannot be reached from START"
    for join in drawing.joins:
        for group in join.groups:
            if join.target in reached and nodes >= group - {START} and not group & (reached | {START}):
                yield f"the join before {join.target!r} can never fill: none of {sorted(group)} is reached"


def _reached(drawing: Drawing, nodes: set[str]) -> set[str]:
    ways: dict[str, set[str]] = {}
    for source, target in drawing.edges:
        ways.setdefault(source, set()).add(target)
    for groups, target in drawing.joins:
        for source in frozenset().union(*groups):
            ways.setdefault(source, set()).add(target)
    for source, _, leads in drawing.branches:
        ways.setdefault(source, set()).update(nodes if leads is None else leads)
    for source, jumps in drawing.jumps.items():
        ways.setdefault(source, set()).update(nodes if jumps is None else jumps)
    reached: set[str] = set()
    todo = [START]
    while todo:
        for target in ways.get(todo.pop(), ()):
            if target in nodes and target not in reached:
                reached.add(target)
                todo.append(target)
    return reached


def uneven(edges: Collection[Edge]) -> list[str]:
    """Return the nodes that plain edges reach by ways of unequal length, and that therefore run more than once.

    That may be meant; where it is not, a join or `defer` makes it one run (rules 3.3, 3.4). Only what plain edges alone
    lead to from START is looked at: how long other ways are, and what a cycle does, is known when it runs.
    """
    following: dict[str, list[str]] = {}
    waits: dict[str, int] = {}
    for source, target in dict.fromkeys(edges):
        following.setdefault(source, []).append(target)
        waits[target] = waits.get(target, 0) + 1
    lengths: dict[str, set[int]] = {START: {0}}
    found: list[str] = []
    todo = [START]
    while todo:
        node = todo.pop()
        shortest, longest = min(lengths[node]), max(lengths[node])
        if shortest != longest and node != END:
            found.append(node)
        for target in following.get(node, ()):
            # one length goes on: what follows an uneven node is no fault of its own
            lengths.setdefault(target, set()).add(longest + 1)
            waits[target] -= 1
            if not waits[target]:
                todo.append(target)
    return found


def pause_faults(what: str, names: Sequence[str] | str, known: Sequence[str]) -> list[str]:
    """Return the faults of a list of nodes to pause at."""
    if names == "*":
        return []
    if isinstance(names, (str, bytes)) or not isinstance(names, Sequence):
        return [f'{what} takes a list of names or "*", not {names!r}']
    if "*" in names and "*" not in known:
        return [f'{what} names all nodes by "*", not by a list with "*" in it']
    return [unknown(what, name, known) for name in names if name not in known]


def pauses_of(
    before: Sequence[str] | str, after: Sequence[str] | str, before_edge: bool, nodes: Iterable[str]
) -> Pauses:
    """Return the nodes to pause at, "*" being all."""
    every = frozenset(name for name in nodes if name != START)
    return Pauses(
        every if before == "*" else frozenset(before), every if after == "*" else frozenset(after), before_edge
    )


# --- what functions say of their targets --------------------------------------------------------------------------


def annotated_targets(fn: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the targets that a router's return annotation names, `Literal["a", "b"]`; None if it names none."""
    return _literals(_returned(fn)) or None


def command_targets(fn: Callable[..., Any]) -> tuple[str, ...] | Literal[False] | None:
    """Return the targets of a node's `Command[...]` annotation: None if it may jump anywhere, False if nowhere."""
    returned = _returned(fn)
    if returned in (None, Any, object):
        return None if _may_jump(fn) else False
    if not _mentions_jump(returned):
        return False
    return _literals(returned) or None


def only_by_packets(graph: Plan, name: str) -> bool:
    """Whether a node is reached by nothing but routers that are annotated to return packets (rule 9.3)."""
    nodes = graph.nodes.values()
    by_name = {*graph.entry, *(target for node in nodes for target in (*node.targets, *node.destinations))}
    by_name |= {channel.target for channel in graph.barriers.values()}
    by_name |= {target for targets in graph.subscribers.values() for target in targets}
    routers = [router for node in nodes for router in node.routers]
    leading = [each for each in routers if each.path_map is None or name in each.path_map.values()]
    return name not in by_name and bool(leading) and all(_returns_packets(each.decide) for each in leading)


def _returns_packets(fn: Callable[..., Any]) -> bool:
    hint = _returned(fn)
    arguments = get_args(hint)
    return hint is Send or (bool(arguments) and all(argument is Send or argument is ... for argument in arguments))


def _returned(fn: Any) -> Any:
    target = fn if hasattr(fn, "__annotations__") else getattr(type(fn), "__call__", None)  # noqa: B004 - an object's own __call__
    annotations = getattr(target, "__annotations__", None) or {}
    if "return" not in annotations:
        return None
    if not isinstance(annotations["return"], str):
        return annotations["return"]
    try:
        return get_type_hints(target).get("return")
    except Exception:  # noqa: BLE001 - an annotation that cannot be resolved says nothing about targets
        return None


def _literals(hint: Any) -> tuple[str, ...]:
    if get_origin(hint) is Literal:
        return tuple(value for value in get_args(hint) if isinstance(value, str))
    return tuple(name for argument in get_args(hint) for name in _literals(argument))


def _mentions_jump(hint: Any) -> bool:
    kind = get_origin(hint) or hint
    return kind is Command or kind is Send or any(_mentions_jump(part) for part in get_args(hint))


def _may_jump(fn: Any) -> bool:
    """Whether a function without annotation may return a command: its code names Command or Send."""
    code = getattr(unwrap(fn), "__code__", None)
    return code is None or not {"Command", "Send"}.isdisjoint(code.co_names + code.co_freevars)
