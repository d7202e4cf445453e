"""One attempt of one task: what it has asked, which graphs it calls, what has become known of it so far.

After it has ended, everything that a node reached through it is refused.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from . import rules
from .answer_schema import Described, describe
from .channels import MISSING
from .checkpoint import SerializationError
from .errors import AttemptEnded, BranchError, CallOrderError, InvalidRequestError, NodeError
from .head import Head
from .interrupt import GraphInterrupt, Interrupt
from .namespace import join, parts, without_ids
from .scope import Scope
from .task import NodeTask, escape, is_storable, unescape
from .threads import Slots, StopSignal, branch

_here: ContextVar[Attempt | None] = ContextVar("pregel_attempt", default=None)


class Attempt:
    """One attempt of one task. After it has ended, everything that a node reached through it is refused."""

    __slots__ = (
        "_askers",
        "_branch",
        "_calls",
        "_keyed",
        "_prefix",
        "_questions",
        "after",
        "asked",
        "calls",
        "ended",
        "fault",
        "head",
        "loan",
        "memory",
        "memos",
        "number",
        "scope",
        "signal",
        "task",
    )

    def __init__(self, task: NodeTask, scope: Scope, head: Head, number: int = 1) -> None:
        self.task = task
        self.scope = scope
        self.head = head
        self.number = number
        self.signal: StopSignal = scope.signal
        self.ended = False
        self.asked: dict[str | None, Interrupt] = {}  # by id, in the order of asking
        # which branch asked first is chance: its question, under a number, might get another one's answer
        self.fault: BranchError | None = None
        self.after: Any = MISSING  # the value of the pause that the node wants after itself
        self.memory: dict[str, int] = {}  # how far the memories of child calls got (rule 8.5)
        self.memos: dict[str, Any] = {}  # outcomes of finished child calls, for the next attempt
        # child calls that are running, by namespace: when they have ended, and what tells them to
        self.calls: dict[str, tuple[Future[None], Callable[[], Any]]] = {}
        # the slot that this task holds is its children's while it waits for them
        self.loan = None if scope.slots is None else Slots(1, scope.slots)
        self._askers: set[object] = set()  # the branches that have asked
        self._branch: object = None
        self._questions = 0
        self._calls = 0
        self._keyed: set[str] = set()  # namespaces of child calls with a key: these can be made again
        self._prefix: str | None = None

    def check(self) -> None:
        """Raise AttemptEnded unless the attempt is still going on."""
        if self.ended or self.signal.cut_off:
            raise AttemptEnded(
                f"task {self.task.id!r} (attempt {self.number}) has ended",
                hint="let the node wait for what it starts",
                task=self.task.id,
            )

    @property
    def prefix(self) -> str:
        """The namespace of the task's own things: its id below the namespace of its graph."""
        if self._prefix is None:
            self._prefix = join(self.scope.namespace, self.task.id)
        return self._prefix

    # --- questions ----------------------------------------------------------------------------------------------

    def ask(self, value: Any, key: str | None, schema: Any) -> Any:
        """Return the answer to a question, or note the question and raise (rules 6.1, 6.8)."""
        self.check()
        question = self.question(value, key, schema)
        if self.is_answered(question):
            return self.answer(question.id or "")
        self.note(question)
        interrupt = GraphInterrupt(value)
        interrupt.interrupts = (question,)
        raise interrupt

    def question(self, value: Any, key: str | None, schema: Any) -> Interrupt:
        """Return the next question of this attempt, with its id."""
        if key is None:
            self._one_branch("a question")
            mark = str(self._questions)
            self._questions += 1
        else:
            mark = f"={_checked_key(key)}"
        node, where = self.task.node.name, parts(self.scope.namespace)
        described = None if schema is None else self._described(schema)
        now = datetime.now(UTC).isoformat()
        return Interrupt(value, f"{self.prefix}#{mark}", node, where, "inside", (node,), described, now)

    def _described(self, schema: Any) -> Described:
        try:
            return describe(schema, self.scope.root.serializer.name_of)
        except (TypeError, NameError, SerializationError) as error:  # NameError: an annotation that cannot be resolved
            node = self.task.node.name
            raise NodeError(
                f"node {node!r} asks with a schema that cannot be kept: {error}",
                hint="use plain types, Literal, TypedDict, or a class of the root graph's state or of register_type()",
                node=node,
            ) from error

    def note(self, question: Interrupt) -> None:
        """Note a question: whatever the node does now, its task ends by asking, unless its ending is fixed already."""
        if not self.ended and question.id not in self.asked:
            self.asked[question.id] = question
            self._askers.add(branch())

    def questions(self) -> tuple[Interrupt, ...]:
        """Return the questions noted, in the order of asking; those of several branches by their ids (rule 3.1)."""
        if len(self._askers) > 1:
            return tuple(sorted(self.asked.values(), key=lambda question: question.id or ""))
        return tuple(self.asked.values())

    def reorder(self, first: Iterable[Interrupt]) -> None:
        """Put questions that were asked side by side into an order that does not depend on who came first."""
        together = {question.id: question for question in first if question.id in self.asked}
        before = {id_: question for id_, question in self.asked.items() if id_ not in together}
        self.asked = before | together
        self._askers = {branch()}

    def is_answered(self, question: Interrupt) -> bool:
        """Whether there is an answer for a question."""
        return question.id in self.scope.root.answers

    def answer(self, id_: str) -> Any:
        """Return an answer, a fresh object each time."""
        return self.scope.root.serializer.decode(self.scope.root.answers[id_])

    def answers(self) -> dict[int | str, Any]:
        """Return this task's own answers by index or key."""
        start = f"{self.prefix}#"
        found: dict[int | str, Any] = {}
        for id_ in self.scope.root.answers:
            if id_.startswith(start) and "|" not in (mark := id_[len(start) :]):
                found[unescape(mark[1:]) if mark[0] == "=" else int(mark)] = self.answer(id_)
        return found

    def _one_branch(self, what: str) -> None:
        here = branch()
        if self._branch is None:
            self._branch = here
        elif self._branch != here:
            self.fault = BranchError(
                f"node {self.task.node.name!r} asks for {what} from a second branch, where order says nothing",
                hint="give each of them a key",
                node=self.task.node.name,
            )
            raise self.fault

    # --- child calls ----------------------------------------------------------------------------------------------

    def child_namespace(self, key: str | None, *, memory: bool) -> str:
        """Return the namespace of the next child call, or of the one with this key (rule 8.4).

        One with a memory has the names of nodes instead of the ids of tasks, which differ from call to call (rule 8.5).
        """
        self.check()
        prefix = without_ids(self.prefix) if memory else self.prefix
        if key is not None:
            return f"{prefix}#={_checked_key(key)}"
        self._one_branch("a child call")
        number = self._calls
        self._calls += 1
        return f"{prefix}#{number}" if number else prefix

    def was_called(self, namespace: str) -> bool:
        """Whether this attempt has made the call with that key already."""
        return namespace in self._keyed

    def finished_call(self, namespace: str) -> Any:
        """Return the outcome of a call that an earlier attempt finished, or None (rule 5.7)."""
        return self.memos.get(namespace)

    def finish_call(self, namespace: str, outcome: Any) -> None:
        """Keep the outcome of a call for the next attempt, or for a second call under the same key."""
        if self.task.node.retry_policy or namespace in self._keyed:
            self.memos[namespace] = outcome

    @contextmanager
    def open_call(self, namespace: str, stop: Callable[[], Any]) -> Iterator[None]:
        """Count a child call as running: the task does not end before it; `stop` tells it to (rule 5.9).

        Raises CallOrderError if a call runs in that namespace already.
        """
        call = (Future[None](), stop)
        if self.calls.setdefault(namespace, call) is not call:
            raise CallOrderError(
                f"node {self.task.node.name!r} makes two calls at once in namespace {namespace!r}",
                hint="give each call a key of its own",
                node=self.task.node.name,
            )
        try:
            yield
        finally:
            del self.calls[namespace]
            call[0].set_result(None)

    def _chain(self) -> list[Attempt]:
        """Return the attempts that call one another, from the root's down to this one."""
        chain = [self]
        while chain[0].scope.calling is not None:
            chain.insert(0, chain[0].scope.calling)  # type: ignore[arg-type] # what calls a child is an attempt
        return chain

    def goes_on(self, task: str) -> bool:
        """Whether a task, given with its namespace, belongs to the super-steps that are going on."""
        for theirs, mine, attempt in zip(parts(task), parts(self.prefix), self._chain(), strict=True):
            if theirs != mine:
                return rules.is_pending(attempt.head, theirs.partition("#")[0])
        return True

    def child_scope(self, graph: Any, namespace: str, *, as_node: bool) -> Scope:
        """Return where a child runs: in its own namespace, on what the root run shares (rule 8.6)."""
        parent, head = self.scope, self.head
        scope = Scope(graph, parent.root, parent.modes if parent.root.subgraphs else frozenset())
        scope.namespace = namespace
        scope.parent_namespace = parent.namespace
        scope.nested = True
        scope.epochs = head.line
        scope.epoch = head.number
        scope.saving = parent.saving and graph.memory is not False
        scope.memory = ChainMap(self.memory, head.memory, parent.memory)
        scope.calling = self
        if graph.memory:  # its checkpoints lie under the root's, whose numbers alone are the same at every level
            top = self._chain()[0].head
            scope.epochs, scope.epoch, scope.called_by = top.line, top.number, self.prefix
        scope.fresh = not (graph.memory or head.restored or self.number > 1 or namespace in self._keyed)
        if "#=" in namespace.rpartition("|")[2]:
            self._keyed.add(namespace)
        scope.slots = self.loan
        scope.blocks_loop = parent.blocks_loop
        scope.signal = StopSignal(self.signal)
        if as_node:
            scope.collect = parent.graph.reduced & graph.channels.keys()
        return scope


def _checked_key(key: Any) -> str:
    if not isinstance(key, str) or not is_storable(key):
        raise InvalidRequestError(f"a key is text without NUL or lone surrogates, not {key!r}")
    return escape(key)


def current() -> Attempt:
    """Return the attempt whose node is calling. Raises InvalidRequestError outside of a node."""
    attempt = _here.get()
    if attempt is None:
        raise InvalidRequestError(
            "this works only inside a node of a running graph",
            hint="in a thread of your own, wrap what it runs in runtime.bind(...)",
        )
    return attempt


def enclosing() -> Attempt | None:
    """Return the attempt that is calling, None outside of nodes."""
    return _here.get()


def enter(attempt: Attempt) -> None:
    """Make an attempt the one that is calling, in this context."""
    _here.set(attempt)
