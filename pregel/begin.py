"""How a run begins: from a request and what is stored to the first checkpoint of the run, or straight to its end.

Every way to begin is one commit on the root namespace, and nothing runs before it is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from . import log, rules, stored
from .channels import MISSING
from .checkpoint import Commit, Found, Saved, Status, TaskRecord
from .effects import Emit, Event, Load, Program, Put, Stop, load
from .errors import (
    CallOrderError,
    GraphChangedError,
    InvalidRequestError,
    NoCheckpointerError,
    NoCheckpointError,
    ThreadPausedError,
)
from .head import Head
from .interrupt import Interrupt, merge
from .locate import locate
from .namespace import is_memory, parts
from .scope import Scope
from .task import Done, Ending, Interrupted, NodeTask, Sent


class Outcome(NamedTuple):
    """How a run ended. `error` is what the call raises when it failed or was cancelled."""

    status: Status | str
    head: Head
    interrupts: tuple[Interrupt, ...] = ()
    error: BaseException | None = None


# --- requests -----------------------------------------------------------------------------------------------------


class Input(NamedTuple):
    """New input; `exact` takes the values instead of folding them (rule 8.1)."""

    values: Mapping[str, Any]
    exact: bool = False
    if_paused: str = "restart"


class Continue(NamedTuple):
    """Go on with what is unfinished; `passing` static pauses, or only recovering (rule 7.6)."""

    passing: bool = True


class Answer(NamedTuple):
    """Answers: `value` for the one pending question, or `by_id`; an update goes into the same commit (rule 4.4)."""

    value: Any = MISSING
    by_id: Mapping[str, Any] | None = None
    update: Mapping[str, Any] | None = None
    exact: bool = False  # `value` is a value for certain, whatever it looks like


class Edit(NamedTuple):
    """Change the state; `run` it too if it came as input. Targets are woken (rules 4.4, 9.3)."""

    values: Mapping[str, Any]
    gotos: Sequence[str] = ()
    sends: Sequence[Sent] = ()
    run: bool = True


Request = Input | Continue | Answer | Edit


class Halted(Exception):
    """The saver refused or failed: the run ends here and writes nothing more."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


def other_caller(namespace: str, stored_name: str, name: str) -> CallOrderError:
    """Return the error for a call that meets the state of another graph (rule 8.4)."""
    return CallOrderError(
        f"namespace {namespace!r} holds the state of graph {stored_name!r}, and {name!r} was called there",
        hint="give each call a key: child.invoke(x, key=...)",
    )


def memory_in_use(name: str, namespace: str, first: str, second: str) -> CallOrderError:
    """Return the error for a memory that two tasks of one super-step would use (rule 8.5)."""
    return CallOrderError(
        f"graph {name!r} keeps a memory in namespace {namespace!r}, "
        f"and tasks {first!r} and {second!r} of one super-step call it there",
        hint="call it in one of them, or compile it without checkpointer=True",
    )


class Beginning:
    """A run up to its first super-step: its place, its head, and how it writes."""

    __slots__ = ("earlier", "graph", "head", "saving", "scope", "top")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.graph = scope.graph
        self.saving = scope.saving
        self.head = self._fresh_head()
        self.top = 0  # the highest number of the namespace
        self.earlier: dict[str, Ending] | None = None  # how the tasks of the first step ended in an earlier run

    def begin(self, request: Request, number: int | None) -> Program[Outcome | None]:
        """Begin as requested; return how the run has ended if it has, None if there is something to run."""
        scope = self.scope
        if scope.namespace and not scope.nested:
            return (yield from self._edit_below(request, number))
        found = Found(None, 0, None)
        if self.saving and not scope.fresh:
            found = yield Load(scope.namespace, number, scope.epochs)
        self.top = found.top
        saved = found.saved
        if scope.nested:
            return (yield from self._call(request, saved))
        self._check_found(request, found, number)
        forked = number is not None and found.run is not None and number != found.run.head
        if saved is not None:
            self.restore(saved)
            scope.root.answers, scope.root.passed = stored.answers_of(saved)
        if isinstance(request, Input):
            return (yield from self._input(request))
        if isinstance(request, Edit):
            return (yield from self._edit(request, forked))
        if isinstance(request, Answer):
            return (yield from self._answer(request, forked))
        if forked:
            return (yield from self._replay())
        return (yield from self._continue(request))

    def _check_found(self, request: Request, found: Found, number: int | None) -> None:
        thread = self.scope.root.thread_id
        if not self.saving and not isinstance(request, Input):
            raise NoCheckpointerError(
                "no checkpointer: the graph keeps nothing to go on from", hint="compile(checkpointer=...)"
            )
        if found.saved is not None:
            return
        if number is not None:
            raise NoCheckpointError(f"no checkpoint {number} in thread {thread!r}", hint="see get_state_history()")
        if not isinstance(request, Input):
            raise NoCheckpointError(
                f"no checkpoint: nothing is stored for thread {thread!r}", hint="begin with an input"
            )

    def restore(self, saved: Saved) -> None:
        """Take over what was read. Raises GraphChangedError (rule 9.7)."""
        head = self._fresh_head()
        missing = [f"channel {name!r}" for name in stored.missing_channels(saved, head)]
        if not missing:
            stored.restore(head, saved, self.graph.serializer)
            withheld = (name for name, _, _ in head.withheld)
            nodes = dict.fromkeys([*withheld, *head.due, *(packet[2] for packet in head.packets)])
            missing = [f"node {name!r}" for name in nodes if name not in self.graph.nodes]
        if missing:
            raise GraphChangedError(
                f"thread {self.scope.root.thread_id!r}, checkpoint {saved.checkpoint.id}: the graph no longer has "
                f"{', '.join(missing)}",
                hint="bring them back, or start the thread anew",
                missing=tuple(missing),
            )
        self.head = head
        self.earlier = stored.endings_of(saved, rules.plan(self.graph, head), self.graph.serializer)

    def _fresh_head(self) -> Head:
        head = Head(self.graph.channels, self.graph.scheduling, self.graph.initial())
        head.epoch = self.scope.epoch
        return head

    def _input(self, request: Input) -> Program[Outcome | None]:
        head, root = self.head, self.scope.root
        pending = [task.id for task in rules.pending(self.graph, head)] if head.number else []
        if pending and request.if_paused == "error":
            raise ThreadPausedError(
                f"thread {root.thread_id!r} has pending tasks: {', '.join(pending)}",
                hint="resume it, or leave out if_paused to start again",
                pending=tuple(pending),
            )
        self.earlier, root.answers, root.passed = None, {}, set()
        self.top += 1
        rules.begin(self.graph, head, self.top, request.values, exact=request.exact)
        if pending:
            head.discarded = tuple(pending)
            log.info(log.RUN_DISCARDED, **self.bound(), tasks=pending)
        self.settle()
        return (yield from self._began())

    def _replay(self) -> Program[Outcome | None]:
        self.earlier, self.scope.root.answers, self.scope.root.passed = None, {}, set()
        self.top += 1
        rules.refork(self.graph, self.head, self.top)
        self.settle()
        return (yield from self._began())

    def _edit(self, request: Edit, forked: bool) -> Program[Outcome | None]:
        head = self.head
        folded = rules.prepare(head, list(request.values.items()), "the update")
        self.top += 1
        if forked:
            self.earlier, self.scope.root.answers, self.scope.root.passed = None, {}, set()
            rules.refork(self.graph, head, self.top)
        else:
            head.advance(self.top, "update", keep_line=True)
        head.channels.apply(folded, self.top)
        rules.edit(self.graph, head, self.top, request.gotos, request.sends)
        parts = self.split(rules.plan(self.graph, head))
        if forked:
            self.settle()
        elif request.run and parts.todo:
            rules.pass_pauses(head)
        yield from self.put(begins=True)
        if not request.run:
            return Outcome(head.status, head)
        return self.paused(parts.waits) if head.status == "paused" else self.reached()

    def _edit_below(self, request: Request, number: int | None) -> Program[Outcome]:
        """Edit a nested namespace. Every level above gets a commit with it, under which the edit lies (rule 9.3).

        So the edit counts as a run (rule 10.3), and a branch that began before does not see it (rule 9.4).
        """
        assert isinstance(request, Edit), "only an edit begins in a nested namespace"
        root, between, found, remembered = yield from locate(self.scope.namespace, self.scope.root.serializer)
        saved = self._editable(root, found, remembered, number)
        assert root.saved is not None, "what lies above is there"
        self.restore(saved)
        folded = rules.prepare(self.head, list(request.values.items()), "the update")
        top = epoch = root.top + 1
        claims = []
        for level in between:
            assert level.saved is not None, "a level without state is left out"
            epoch, above = level.top + 1, top if is_memory(level.saved.checkpoint.namespace) else epoch
            claims.append(stored.claim(level.saved.checkpoint, epoch, above))
        self.top = found.top + 1
        self.head.advance(self.top, "update", keep_line=True)
        if not remembered:  # what points to an idle memory is the root, whatever it was made under
            self.head.epoch = top if is_memory(self.scope.namespace) else epoch
        self.head.channels.apply(folded, self.top)
        rules.collect(self.head, self.top, request.values.items(), self.scope.collect)
        memory = self._moved_memory(root.saved) if remembered else None
        claims.insert(0, stored.claim(root.saved.checkpoint, top, memory=memory))
        reply: Stop | None = yield Put((*claims, self.commit()), (), True)
        if reply is not None:
            raise Halted(reply.error)
        return Outcome(self.head.status, self.head)

    def _editable(self, root: Found, found: Found, remembered: bool, number: int | None) -> Saved:
        """Return the state of a nested namespace, if an edit of it would have an effect."""
        namespace, thread = self.scope.namespace, self.scope.root.thread_id
        saved = found.saved
        if root.saved is None or saved is None:
            raise NoCheckpointError(
                f"no checkpoint: nothing is stored for namespace {namespace!r} of thread {thread!r}"
            )
        if number is not None and number != saved.checkpoint.id:
            raise InvalidRequestError(
                f"checkpoint {number} is not the newest of namespace {namespace!r}; only that one can be edited"
            )
        if saved.checkpoint.caller != self.graph.name:
            raise InvalidRequestError(
                f"namespace {namespace!r} holds the state of graph {saved.checkpoint.caller!r}, which is no node of a "
                f"graph that {self.graph.name!r} knows",
                hint="edit it by that graph: child.with_checkpointer(saver).update_state(...)",
            )
        if saved.checkpoint.status in ("done", "handed_over") and not remembered:
            raise InvalidRequestError(
                f"the graph in namespace {namespace!r} has ended, and what it wrote is with its caller",
                hint="edit the graph that called it",
            )
        if remembered and len(parts(namespace)) > 1 and root.saved.checkpoint.status != "done":
            raise InvalidRequestError(
                f"the memory {namespace!r} may be in use below a run that is not done", hint="edit it when the run is"
            )
        return saved

    def _moved_memory(self, root: Saved) -> bytes:
        serializer = self.scope.root.serializer
        return serializer.encode({**stored.memory_of(root, serializer), self.scope.namespace: self.top})

    def _answer(self, request: Answer, forked: bool) -> Program[Outcome | None]:
        head, root = self.head, self.scope.root
        waits = self.split(rules.plan(self.graph, head)).waits
        questions = rules.open_questions(waits.values(), root.answers)
        if request.by_id is not None:
            answers = rules.check_answers(request.by_id, questions)
        else:
            answers = rules.bind_answers(request.value, questions, exact=request.exact)
        answers = rules.fit_answers(answers, questions, self.graph.serializer.class_of)
        encoded = {id_: self.graph.serializer.encode(value) for id_, value in answers.items()}
        folded = rules.prepare(head, list((request.update or {}).items()), "the command")
        passes = self._passes(waits.values())
        self.top += 1
        head.advance(self.top, "fork" if forked else "resume", keep_line=True)
        head.channels.apply(folded, self.top)
        rules.pass_pauses(head)
        records = [TaskRecord("", self.top, id_, "answer", data) for id_, data in encoded.items()]
        yield from self.put([*records, *self._pass_records(passes)], begins=True)
        root.answers.update(encoded)
        root.passed.update(passes)
        return self.reached()

    def _continue(self, request: Continue) -> Program[Outcome | None]:
        head, root = self.head, self.scope.root
        if head.status == "done":
            return Outcome("done", head)
        if head.status == "paused" and not request.passing:
            return self.paused(self.split(rules.plan(self.graph, head)).waits)
        waits = self.split(rules.plan(self.graph, head)).waits
        passes = self._passes(waits.values()) if request.passing else set()
        root.passed |= passes
        if not passes and not self.split(rules.plan(self.graph, head)).todo and waits:
            return self.paused(waits)
        self.top += 1
        head.advance(self.top, "resume", keep_line=True)
        rules.pass_pauses(head)
        yield from self.put(self._pass_records(passes), begins=True)
        return self.reached()

    def _call(self, request: Request, saved: Saved | None) -> Program[Outcome | None]:
        """Begin as a child: whether to start, go on or hand out the result is read from its own stored state."""
        if saved is None or not self._is_own(saved):
            return (yield from self._first_call(request))
        head, root = self.head, self.scope.root
        if head.status in ("done", "handed_over"):
            return Outcome(head.status, head)
        parts = self.split(rules.plan(self.graph, head))
        passed = [reason.id in root.passed for reason in head.reasons]
        if not all(passed) or (parts.waits and not parts.todo):
            return self.paused(parts.waits)
        self.top += 1
        head.epoch = self.scope.epoch
        head.advance(self.top, "resume", keep_line=True)
        rules.pass_pauses(head)
        yield from self.put()
        return self.reached()

    def _first_call(self, request: Request) -> Program[Outcome | None]:
        assert isinstance(request, Input)
        scope = self.scope
        if (number := scope.memory.get(scope.namespace)) is not None and scope.caller:
            found = yield from load(scope.namespace, number)
            if found.saved is None:
                raise NoCheckpointError(
                    f"the memory of {scope.namespace!r}, checkpoint {number}, is not stored any more"
                )
            self._take_over(found.saved)
            self.earlier = None
        self.head.epoch, self.head.caller = scope.epoch, scope.caller
        self.top += 1
        rules.begin(self.graph, self.head, self.top, dict(request.values), exact=request.exact)
        rules.forget(self.head)
        self.settle()
        return (yield from self._began())

    def _is_own(self, saved: Saved) -> bool:
        """Whether the present call made this state, and not an earlier one that used the same memory (rule 8.5)."""
        self._take_over(saved)
        scope, owner = self.scope, self.head.caller
        if owner == scope.caller:
            return True
        if scope.calling is not None and scope.calling.goes_on(owner):
            raise memory_in_use(self.graph.name, scope.namespace, owner, scope.caller)
        self.head, self.earlier = self._fresh_head(), None
        return False

    def _take_over(self, saved: Saved) -> None:
        if saved.checkpoint.caller != self.graph.name:
            raise other_caller(self.scope.namespace, saved.checkpoint.caller, self.graph.name)
        self.restore(saved)

    def _began(self) -> Program[Outcome | None]:
        yield from self.put(begins=not self.scope.nested)
        yield from self.show()
        return self.reached()

    def show(self) -> Program[None]:
        """Emit the values of a checkpoint that was just reached; those of a pause are shown with it."""
        if "values" in self.scope.modes and self.head.status != "paused":
            yield Emit(Event("values", rules.output(self.graph, self.head), self.scope.namespace))

    def settle(self, ran: Sequence[Done] = ()) -> None:
        """Decide how things stand at the checkpoint that was just reached, after the tasks that ran."""
        scope = self.scope
        rules.settle(self.graph, self.head, scope.pauses, ran, scope.namespace, scope.root.passed)

    def reached(self) -> Outcome | None:
        """Return how the run ends at the checkpoint that it has reached, None if it goes on."""
        status = self.head.status
        if status == "paused":
            return self.paused({})
        return None if status == "running" else Outcome(status, self.head)

    def _passes(self, waits: Iterable[Interrupted]) -> set[str]:
        static = [i for ending in waits for i in ending.interrupts if i.when != "inside"]
        return {i.id or "" for i in (*self.head.reasons, *static)} - self.scope.root.passed

    def _pass_records(self, passes: set[str]) -> list[TaskRecord]:
        return [TaskRecord("", self.top, id_, "passed", b"") for id_ in sorted(passes)]

    def split(self, tasks: Sequence[NodeTask]) -> rules.Split:
        """Sort tasks by how they ended in an earlier run."""
        root = self.scope.root
        return rules.split(tasks, self.earlier or {}, root.answers.keys() | root.passed)

    # --- writing ---------------------------------------------------------------------------------------------------

    def put(
        self, records: Sequence[TaskRecord] = (), *, begins: bool = False, known: stored.Encoded = stored.NO_BYTES
    ) -> Program[None]:
        """Write the checkpoint that the head has just reached, with records. Raises Halted."""
        if self.saving:
            reply: Stop | None = yield Put((self.commit(known),), records, begins)
            if reply is not None:
                raise Halted(reply.error)

    def commit(self, known: stored.Encoded = stored.NO_BYTES) -> Commit:
        """Return the checkpoint that the head has just reached; `known` has the bytes of values encoded before."""
        scope, graph = self.scope, self.graph
        return stored.commit_of(
            self.head,
            graph.serializer,
            known,
            namespace=scope.namespace,
            parent_namespace=scope.namespace if self.head.parent else scope.parent_namespace,
            caller=graph.name,
            fingerprint=graph.fingerprint,
            metadata=scope.root.metadata,
        )

    def put_records(self, endings: Sequence[Ending]) -> Program[None]:
        """Write how tasks have ended. Raises Halted."""
        if self.saving and endings:
            reply: Stop | None = yield Put((), self.records(endings))
            if reply is not None:
                raise Halted(reply.error)

    def records(self, endings: Sequence[Ending]) -> list[TaskRecord]:
        """Return the records of endings, under the present checkpoint."""
        number, namespace, serializer = self.head.number, self.scope.namespace, self.graph.serializer
        return [stored.record_of(ending, ending.task.id, namespace, number, serializer) for ending in endings]

    def paused(self, waits: Mapping[str, Interrupted]) -> Outcome:
        """Return how the run stands when it is paused: the static pauses, then the questions still open."""
        asked = merge(ending.interrupts for ending in waits.values())
        answered = self.scope.root.answers
        left = [i for i in asked if i.when != "inside" or i.id not in answered]
        return Outcome("paused", self.head, (*self.head.reasons, *left))

    def bound(self) -> dict[str, Any]:
        """Return what a log line says of this run."""
        # not "thread": a standard log record has an attribute of that name, and refuses a second one
        return {"thread_id": self.scope.root.thread_id, "namespace": self.scope.namespace, "step": self.head.step}
