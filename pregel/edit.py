"""Changes of stored state from outside: edits of the root and of nested namespaces, and replays (rules 9.3, 9.4).

Every one is a new checkpoint; nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import pauses, rules, stored, withdraw
from .channels import MISSING
from .checkpoint import Commit, Found, Saved, TaskRecord
from .effects import FOREVER, Cancel, Program, Put, Start, Stop
from .errors import InvalidRequestError, NoCheckpointError
from .locate import locate
from .namespace import is_memory, owner, parts
from .request import Change, Edit, Halted, Outcome, Request
from .scope import is_of
from .standing import Standing
from .task import Done, Ending, Interrupted, NodeTask, PregelNode
from .types import END, START


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
        if forked:
            self.earlier, self.scope.root.answers, self.scope.root.passed = None, {}, set()
        commits = []
        for index, step in enumerate(request.steps):
            self.top += 1
            if forked and not index:
                rules.refork(self.graph, head, self.top)
            else:
                head.advance(self.top, "update", keep_line=True)
            yield from self._change(step)
            if forked:
                self.settle()
            if index == len(request.steps) - 1:
                rules.edit(self.graph, head, self.top, request.gotos, request.sends)
                left = self.split(rules.plan(self.graph, head))
                if request.run and left.todo and not forked:
                    pauses.pass_pauses(head)
            commits.append(self.commit())
        yield from self._put(commits)
        if not request.run:
            return Outcome(head.status, head)
        return self.paused(left.waits) if head.status == "paused" else self.reached()

    def _calling_tasks(self, path: Sequence[Found], claimed: Sequence[int]) -> list[TaskRecord]:
        """Return records that let the calling tasks run again: what they asked may have been withdrawn below them."""
        records: list[TaskRecord] = []
        above = ""
        for found, number in zip(path, claimed, strict=True):
            assert found.saved is not None, "a level without state is left out"
            namespace = found.saved.checkpoint.namespace
            remembered = is_memory(namespace)
            task = stored.calling_task(found.saved, self.scope.root.serializer) if remembered else owner(namespace)
            parent, _, id_ = task.rpartition("|")
            if parent != above:
                raise InvalidRequestError(
                    f"the memory {namespace!r} is called by a graph without one, and cannot be edited as a node",
                    hint="edit it without as_node, or the graph that calls it",
                )
            records.append(TaskRecord(parent, number, id_, "cancelled", b""))
            above = namespace
        return records

    def _put(self, commits: Sequence[Commit], records: Sequence[TaskRecord] = ()) -> Program[None]:
        reply: Stop | None = yield Put(commits, records, True)
        if reply is not None:
            raise Halted(reply.error)

    def _change(self, step: Sequence[Change]) -> Program[None]:
        """Apply the changes of one super-step to the head; those in the name of a node as if it had just run."""
        head, number = self.head, self.top
        acting = [change for change in step if change.as_node is not None]
        done = self._done() if acting else {}
        gone: list[str] = []
        if any(change.as_node == END for change in acting):
            gone = [task.id for task in rules.pending(self.graph, head) if task.id not in done]
            self._keep(list(done.values()))
            withdraw.everything(self.graph, head, number)
        writes = [write for change in step for write in change.values.items()]
        head.channels.apply(rules.prepare(head, writes, "the update"), number)
        rules.collect(head, number, writes, self.scope.collect)
        for change in acting:
            if change.as_node != END:
                node = self._node(str(change.as_node))
                gone += withdraw.withdraw(self.graph, head, number, node, change.task_id, done)
                rules.send_on(self.graph, head, number, (yield from self._routed(node)))
        if acting:
            head.discarded = tuple(dict.fromkeys(gone))
            self.settle()
            if head.status == "running" and not self.split(rules.plan(self.graph, head)).todo:
                head.status = "paused"  # the questions of others are all that is left

    def _keep(self, finished: Sequence[Done]) -> None:
        """Fold what tasks have finished of a step that will not be: their writes, not where they lead."""
        head, number = self.head, self.top
        try:
            folded = rules.prepare_fold(head, finished)
        except rules.Refused as refused:
            raise refused.error from refused
        head.channels.apply(folded, number)
        writes = [(name, value) for ending in finished for name, value, _ in ending.writes]
        rules.collect(head, number, writes, self.scope.collect)
        rules.remember(head, number, finished)
        self.earlier = None

    def _done(self) -> dict[str, Done]:
        return {id_: ending for id_, ending in (self.earlier or {}).items() if isinstance(ending, Done)}

    def _node(self, name: str) -> PregelNode:
        if name in self.graph.nodes:
            return self.graph.nodes[name]
        node = PregelNode(START, _enter)
        node.targets = self.graph.entry
        return node

    def _routed(self, node: PregelNode) -> Program[Done]:
        """Return where a node leads on the present state. Raises what a router raises."""
        task = NodeTask(node, MISSING, self.top, edge=True)
        if not node.routers:
            return Done(task, [])
        stop: Stop | None = yield Start([task], self.head)
        if stop is not None:
            raise Halted(stop.error)
        reply: list[Ending] | Stop = yield FOREVER
        while isinstance(reply, Stop):
            yield Cancel()
            reply = yield FOREVER
        (ending,) = reply
        if isinstance(ending, Done):
            return ending
        if isinstance(ending, Interrupted):
            raise InvalidRequestError(f"a router of {node.name!r} pauses; it cannot in an edit")
        raise Halted(ending.error or InvalidRequestError(f"the routers of {node.name!r} were stopped"))

    def edit_below(self, request: Request, number: int | None) -> Program[Outcome]:
        """Edit a nested namespace. Every level above gets a commit with it, under which the edit lies (rule 9.3).

        So the edit counts as a run (rule 10.3), and a branch that began before does not see it (rule 9.4).
        """
        assert isinstance(request, Edit), "only an edit begins in a nested namespace"
        root, between, found, remembered = yield from locate(self.scope.namespace, self.scope.root.serializer)
        saved = self._editable(root, found, remembered, number)
        assert root.saved is not None, "what lies above is there"
        self.restore(saved)
        top = epoch = root.top + 1
        claims = []
        for level in between:
            assert level.saved is not None, "a level without state is left out"
            epoch, above = level.top + 1, top if is_memory(level.saved.checkpoint.namespace) else epoch
            claims.append(stored.claim(level.saved.checkpoint, epoch, above))
        acting = any(change.as_node is not None for step in request.steps for change in step)
        claimed = [top, *(claim.checkpoint.id for claim in claims)]
        again = self._calling_tasks([*between, found], claimed) if acting and not remembered else []
        self.top = found.top
        if not remembered:  # what points to an idle memory is the root, whatever it was made under
            self.head.epoch = top if is_memory(self.scope.namespace) else epoch
        commits = []
        for step in request.steps:
            self.top += 1
            self.head.advance(self.top, "update", keep_line=True)
            yield from self._change(step)
            commits.append(self.commit())
        memory = self._moved_memory(root.saved) if remembered else None
        claims.insert(0, stored.claim(root.saved.checkpoint, top, memory=memory))
        yield from self._put([*claims, *commits], again)
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
        checkpoint = saved.checkpoint
        if checkpoint.caller != self.graph.name or (self.scope.guessed and not is_of(checkpoint, self.graph)):
            raise InvalidRequestError(
                f"namespace {namespace!r} holds the state of graph {checkpoint.caller!r}, which is no node of a graph "
                f"that {self.graph.name!r} knows",
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


def _enter(state: Any) -> None:
    """Do nothing: an edit in the name of START is there for the entry edges."""
