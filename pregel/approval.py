"""Approval of tool calls by a person: one function to call inside a node, and a ready node that runs tools.

A tool call is a plain dict with `id`, `name` and `arguments`, so any model will do. A policy says which calls need a
decision: a collection of tool names, or a mapping from a name to a rule. A rule is True, False, a description of what
the call does (which means True), or a function of the call that returns one of these; it must not change its mind when
the node runs again. The answer to the question is a list of decisions:

    [{"id": "1", "name": "pay", "decision": "approve"},
     {"id": "2", "name": "pay", "decision": "edit", "arguments": {"amount": 5}},
     {"id": "3", "name": "pay", "decision": "reject", "reason": "paid already"}]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from inspect import isawaitable, iscoroutinefunction, signature
from itertools import count
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

from . import log
from .attempt import current
from .errors import GraphValidationError, InvalidRequestError
from .runtime import get_runtime, interrupt


class ToolCall(TypedDict):
    """What a model wants to run."""

    id: str
    name: str
    arguments: dict[str, Any]


class AskedCall(ToolCall):
    """A call that needs a decision, as it is shown to a person."""

    description: str
    question: str


class ApprovalRequest(TypedDict):
    """The payload of the pause (rule 14.1). `refused` says what was wrong with the answer before, if anything."""

    needs_approval: list[AskedCall]
    automatic: list[ToolCall]
    refused: list[str]


class Decision(TypedDict):
    """One entry of an answer (rule 14.2): `arguments` belong to an edit, `reason` to a rejection.

    An approval may repeat the `arguments` that it was given for; it is refused if the call has others by then.
    """

    id: str
    name: str
    decision: Literal["approve", "edit", "reject"]
    arguments: NotRequired[dict[str, Any]]
    reason: NotRequired[str]


class ToolResponse(TypedDict):
    """The message that answers one tool call; `content` is what the tool returned."""

    role: Literal["tool"]
    tool_call_id: str
    name: str
    content: Any


class Decided(NamedTuple):
    """The calls to run, in their order and as edited, and one response for each that was rejected (rule 14.3)."""

    calls: list[ToolCall]
    responses: list[ToolResponse]


Verdict = bool | str
Rule = Verdict | Callable[[ToolCall], Verdict]
Policy = Mapping[str, Rule] | Collection[str]
Tool = Callable[..., Any]


def approve(calls: Sequence[ToolCall], policy: Policy, key: str | None = None) -> Decided:
    """Ask for a decision on each call that needs one, until all have one (rules 14.1, 14.2). None needed: no pause.

    A node runs again from its start when it is answered, so the calls must be the same then: take them from the state,
    not from a model that the same node asks. A question is named by what it asks about: if the calls have changed
    meanwhile, nobody has decided on them, and they are asked about anew. With a `key` the same calls can be asked about
    more than once in a node.

    An answer that is refused is asked again with the reason, since the engine has kept it: to raise for it would raise
    for ever. What is right in it counts. Raises InvalidRequestError for calls and policies that are malformed.
    """
    return _approve(_checked_calls(calls), _rules(policy), key, lambda call: None)


def _approve(
    checked: list[ToolCall], rules: Mapping[str, Rule], key: str | None, misfit: Callable[[ToolCall], str | None]
) -> Decided:
    """Do `approve`; `misfit` says what is wrong with edited arguments."""
    asked = _asked(checked, rules)
    automatic = [call for call in checked if call["id"] not in asked]
    decisions: dict[str, Decision] = {}
    refused: list[str] = []
    rounds = count()
    while waiting := [call for call in asked.values() if call["id"] not in decisions]:
        request = ApprovalRequest(needs_approval=waiting, automatic=automatic, refused=refused)
        content = sha256(current().scope.root.serializer.encode([waiting, refused])).hexdigest()[:12]
        answer = interrupt(request, f"{'approve' if key is None else key}.{next(rounds)}.{content}")
        given, refused = _read(answer, waiting, misfit)
        decisions |= given
    return _decided(checked, decisions)


def tool_node(
    tools: Mapping[str, Tool], policy: Policy = (), *, messages_key: str = "messages"
) -> Callable[[Any], Any]:
    """Return a node that runs the `tool_calls` of the last message, and adds one response per call in their order.

    All questions come before any tool runs. A tool is called with the arguments by name; what it raises is raised. A
    call of an unknown tool, or with arguments that the tool does not take, is answered by a response that says so; an
    edit with such arguments is refused and asked again. If one tool is an async function the node is async,
    and the others run on its event loop. The key needs a reducer that appends, such as `operator.add`.

    The limit: when a tool asks a question of its own, or fails, the node runs again from its start, and so do the
    tools that ran before it. Where that matters, send each call to a node of its own and call `approve` there.
    """
    if not isinstance(tools, Mapping) or not all(map(callable, tools.values())):
        raise GraphValidationError(f"tools are a mapping from names to functions, not {tools!r}")
    rules = _rules(policy)
    if unknown := sorted(rules.keys() - tools.keys()):
        raise GraphValidationError(f"the policy names tools that the node does not have: {unknown}; it has {[*tools]}")

    def decide(state: Any) -> tuple[list[ToolCall], list[ToolCall], list[ToolResponse]]:
        calls = _calls_of(state, messages_key)
        faults = {call["id"]: fault for call in calls if (fault := misfit(call))}
        answered = [_response(call, faults[call["id"]]) for call in calls if call["id"] in faults]
        approved, responses = _approve([call for call in calls if call["id"] not in faults], rules, None, misfit)
        return calls, approved, responses + answered

    def misfit(call: ToolCall) -> str | None:
        tool = tools.get(call["name"])
        if tool is None:
            return f"unknown tool; known are {[*tools]}"
        try:
            signature(tool).bind(**call["arguments"])
        except TypeError as error:
            return f"wrong arguments: {error}"
        except ValueError:  # a builtin without a signature says for itself what it does not take
            return None
        return None

    def update(calls: list[ToolCall], responses: list[ToolResponse]) -> dict[str, Any]:
        by_id = {response["tool_call_id"]: response for response in responses}
        return {messages_key: [by_id[call["id"]] for call in calls]} if calls else {}

    def run_tools(state: Any) -> dict[str, Any]:
        calls, approved, responses = decide(state)
        for call in approved:
            result = tools[call["name"]](**call["arguments"])
            if isawaitable(result):
                raise InvalidRequestError(
                    f"tool {call['name']!r} returned an awaitable", hint="declare it by async def"
                )
            responses.append(_response(call, result))
        return update(calls, responses)

    async def arun_tools(state: Any) -> dict[str, Any]:
        calls, approved, responses = decide(state)
        for call in approved:
            result = tools[call["name"]](**call["arguments"])
            responses.append(_response(call, await result if isawaitable(result) else result))
        return update(calls, responses)

    return arun_tools if any(map(_is_async, tools.values())) else run_tools


def _is_async(tool: Tool) -> bool:
    return iscoroutinefunction(tool) or iscoroutinefunction(getattr(tool, "__call__", None))  # noqa: B004 - its own


def _response(call: ToolCall, content: Any) -> ToolResponse:
    return ToolResponse(role="tool", tool_call_id=call["id"], name=call["name"], content=content)


# --- what is asked ------------------------------------------------------------------------------------------------


def _calls_of(state: Any, key: str) -> list[ToolCall]:
    messages = state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)
    last = messages[-1] if messages else {}
    if not isinstance(last, Mapping):
        raise InvalidRequestError(f"the last of {key!r} is no plain dict but {type(last).__name__}")
    return _checked_calls(last.get("tool_calls") or ())


def _checked_calls(calls: Sequence[Any]) -> list[ToolCall]:
    """Return the calls as fresh dicts of what a call has. No two have one id, since responses go by it."""
    if not isinstance(calls, (list, tuple)):
        raise InvalidRequestError(f"tool calls are a list, not {type(calls).__name__}")
    checked: dict[str, ToolCall] = {}
    for number, call in enumerate(calls):
        match call:
            case {"id": str(id_), "name": str(name), "arguments": arguments} if _are_arguments(arguments):
                if id_ in checked:
                    raise InvalidRequestError(f"two tool calls have the id {id_!r}", hint="give each call its own id")
                checked[id_] = ToolCall(id=id_, name=name, arguments=dict(arguments))
            case _:
                raise InvalidRequestError(
                    f"tool call {number} is malformed",
                    hint="a call is a dict with the texts `id` and `name`, and `arguments`: a dict, not JSON",
                )
    return list(checked.values())


def _are_arguments(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _rules(policy: Policy) -> Mapping[str, Rule]:
    if isinstance(policy, str):  # a collection of letters to Python
        raise InvalidRequestError(f"a policy is a collection of names, not the text {policy!r}")
    if not isinstance(policy, Collection):
        raise InvalidRequestError(f"a policy is a collection of names or a mapping from names to rules, not {policy!r}")
    return policy if isinstance(policy, Mapping) else dict.fromkeys(policy, True)


def _asked(calls: list[ToolCall], rules: Mapping[str, Rule]) -> dict[str, AskedCall]:
    """Return the calls that need approval, by id."""
    asked: dict[str, AskedCall] = {}
    for call in calls:
        rule = rules.get(call["name"], False)
        verdict = rule(call) if callable(rule) else rule
        if not isinstance(verdict, (bool, str)):  # a predicate that forgot to return must not open the gate
            raise InvalidRequestError(f"the rule for {call['name']!r} says {verdict!r}, not True, False or a text")
        if verdict is not False:
            description = "" if verdict is True else verdict
            asked[call["id"]] = AskedCall(**call, description=description, question=f"Run {call['name']}?")
    return asked


# --- what is answered ---------------------------------------------------------------------------------------------


def _read(
    answer: Any, waiting: list[AskedCall], misfit: Callable[[ToolCall], str | None]
) -> tuple[dict[str, Decision], list[str]]:
    """Return the decisions in an answer by call id, and what is refused of it. A call with any fault stays open."""
    if not isinstance(answer, (list, tuple)):
        return {}, [] if _is_empty(answer) else [f"an answer is a list of decisions, not {type(answer).__name__}"]
    asked = {(call["id"], call["name"]): call for call in waiting}
    given: dict[str, Any] = {}
    refused: dict[str, str] = {}  # by call id
    malformed: list[str] = []
    for number, entry in enumerate(answer):
        match entry:
            case {"id": str(id_), "name": str(name)} if (id_, name) not in asked:
                log.warn(log.DECISION_IGNORED, task=get_runtime().task_id, call=id_, tool=name)
            case {"id": str(id_), "name": str(name)} if not _is_empty(entry.get("decision")):
                twice = "it is decided twice" if given.setdefault(id_, entry) != entry else None
                if fault := twice or _fault(entry, asked[id_, name], misfit):
                    refused[id_] = f"{name} {id_}: {fault}"
            case {"id": str(), "name": str()}:
                pass  # an empty decision is one that is missing
            case _ if not _is_empty(entry):
                malformed.append(f"entry {number} is no dict with the texts `id` and `name`")
    return {id_: entry for id_, entry in given.items() if id_ not in refused}, [*refused.values(), *malformed]


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (str, Mapping)) and not value)


def _fault(entry: Mapping[str, Any], call: AskedCall, misfit: Callable[[ToolCall], str | None]) -> str | None:
    """Say what is wrong with a decision on a call, None if nothing is."""
    match entry["decision"]:
        case "approve" if entry.get("arguments", call["arguments"]) == call["arguments"]:
            return None
        case "approve":
            return "it has other arguments than were approved; `edit` changes them"
        case "edit":
            if not _are_arguments(entry.get("arguments")):
                return "an edit needs `arguments`, a dict"
            return misfit(ToolCall(id=call["id"], name=call["name"], arguments=dict(entry["arguments"])))
        case "reject":
            return None if isinstance(entry.get("reason"), str | None) else "the reason of a rejection is a text"
        case other:
            return f"a decision is `approve`, `edit` or `reject`, not {other!r}"


def _decided(calls: list[ToolCall], decisions: Mapping[str, Decision]) -> Decided:
    decided = Decided([], [])
    for call in calls:
        decision = decisions.get(call["id"])
        if decision and decision["decision"] == "reject":
            reason = decision.get("reason")
            decided.responses.append(_response(call, f"rejected: {reason}" if reason else "rejected"))
        elif decision and decision["decision"] == "edit":
            decided.calls.append({**call, "arguments": dict(decision["arguments"])})
        else:
            decided.calls.append(call)
    return decided
