"""How a run begins: from a request and what is stored to the first checkpoint of the run, or straight to its end.

Every way to begin is one commit on the root namespace, and nothing runs before it is durable.
"""

from __future__ import annotations

from . import answers, log, pauses, rules, stored
from .checkpoint import Found, Saved, TaskRecord
from .edit import Editing
from .effects import Load, Program, load
from .errors import (
    CallOrderError,
    NoCheckpointerError,
    NoCheckpointError,
    ThreadPausedError,
)
from .request import Answer, Continue, Edit, Input, Outcome, Request


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


class Beginning(Editing):
    """A run up to its first super-step."""

    __slots__ = ()

    def begin(self, request: Request, number: int | None) -> Program[Outcome | None]:
        """Begin as requested; return how the run has ended if it has, None if there is something to run."""
        scope = self.scope
        if scope.namespace and not scope.nested:
            return (yield from self.edit_below(request, number))
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
            return (yield from self.edit(request, forked))
        if isinstance(request, Answer):
            return (yield from self._answer(request, forked))
        if forked:
            return (yield from self.replay())
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
        return (yield from self.began())

    def _answer(self, request: Answer, forked: bool) -> Program[Outcome | None]:
        head, root = self.head, self.scope.root
        waits = self.split(rules.plan(self.graph, head)).waits
        questions = answers.open_questions(waits.values(), root.answers)
        if request.by_id is not None:
            given = answers.check_answers(request.by_id, questions)
        else:
            given = answers.bind_answers(request.value, questions, exact=request.exact)
        given = answers.fit_answers(given, questions, self.graph.serializer.class_of)
        encoded = {id_: self.graph.serializer.encode(value) for id_, value in given.items()}
        folded = rules.prepare(head, list((request.update or {}).items()), "the command")
        passes = self.passes(waits.values())
        self.top += 1
        head.advance(self.top, "fork" if forked else "resume", keep_line=True)
        head.channels.apply(folded, self.top)
        pauses.pass_pauses(head)
        records = [TaskRecord("", self.top, id_, "answer", data) for id_, data in encoded.items()]
        yield from self.put([*records, *self.pass_records(passes)], begins=True)
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
        passes = self.passes(waits.values()) if request.passing else set()
        root.passed |= passes
        if not passes and not self.split(rules.plan(self.graph, head)).todo and waits:
            return self.paused(waits)
        self.top += 1
        head.advance(self.top, "resume", keep_line=True)
        pauses.pass_pauses(head)
        yield from self.put(self.pass_records(passes), begins=True)
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
        pauses.pass_pauses(head)
        yield from self.put()
        return self.reached()

    def _first_call(self, request: Request) -> Program[Outcome | None]:
        assert isinstance(request, Input)
        scope = self.scope
        if (number := scope.memory.get(scope.namespace)) is not None and scope.called_by:
            found = yield from load(scope.namespace, number)
            if found.saved is None:
                raise NoCheckpointError(
                    f"the memory of {scope.namespace!r}, checkpoint {number}, is not stored any more"
                )
            self._take_over(found.saved)
            self.earlier = None
        self.head.epoch, self.head.called_by = scope.epoch, scope.called_by
        self.top += 1
        rules.begin(self.graph, self.head, self.top, dict(request.values), exact=request.exact)
        rules.forget(self.head)
        self.settle()
        return (yield from self.began())

    def _is_own(self, saved: Saved) -> bool:
        """Whether the present call made this state, and not an earlier one that used the same memory (rule 8.5)."""
        scope, owner = self.scope, stored.calling_task(saved, self.graph.serializer)
        if owner == scope.called_by:
            self._take_over(saved)
            return True
        if scope.calling is not None and scope.calling.goes_on(owner):
            raise memory_in_use(self.graph.name, scope.namespace, owner, scope.called_by)
        return False

    def _take_over(self, saved: Saved) -> None:
        if saved.checkpoint.caller != self.graph.name:
            raise other_caller(self.scope.namespace, saved.checkpoint.caller, self.graph.name)
        self.restore(saved)
