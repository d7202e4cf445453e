"""Changes of stored state from outside: edits of the root and of nested namespaces, and replays (rules 9.3, 9.4).

Every one is a new checkpoint; nothing is changed in place.
"""

from __future__ import annotations

from . import pauses, rules, stored
from .checkpoint import Found, Saved
from .effects import Program, Put, Stop
from .errors import InvalidRequestError, NoCheckpointError
from .locate import locate
from .namespace import is_memory, parts
from .request import Edit, Halted, Outcome, Request
from .standing import Standing


class Editing(Standing):
    """A run that begins by changing what is stored."""

    __slots__ = ()

    def replay(self) -> Program[Outcome | None]:
        """Run again from the checkpoint that was read, with new activations and no records (rule 9.4)."""
        self.earlier, self.scope.root.answers, self.scope.root.passed = None, {}, set()
        self.top += 1
        rules.refork(self.graph, self.head, self.top)
        self.settle()
        return (yield from self.began())

    def edit(self, request: Edit, forked: bool) -> Program[Outcome | None]:
        """Change the state of the root, and run it too if the edit came as input (rules 4.4, 9.3)."""
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
            pauses.pass_pauses(head)
        yield from self.put(begins=True)
        if not request.run:
            return Outcome(head.status, head)
        return self.paused(parts.waits) if head.status == "paused" else self.reached()

    def edit_below(self, request: Request, number: int | None) -> Program[Outcome]:
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
