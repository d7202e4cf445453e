"""Two agents in sequence, each a nested graph; a person approves what the first one wants to do.

    python examples/tool_approval.py

The clerk has a tool that needs approval, `refund`, and one that does not, `look_up`. The writer has `look_up` alone, in
nodes of the same names and in calls with the same ids. The run shows that the writer starts fresh all the same: it has
no messages, it asks nobody, and its tools see none of the answers that the clerk's tools see. The models are scripts,
and so is the person, so that it runs offline and prints the same each time.
"""

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from pregel import END, START, InMemorySaver, Pregel, StateGraph, get_runtime
from pregel.approval import Policy, ToolCall, tool_node

Message = dict[str, Any]


class Case(TypedDict, total=False):
    """The state of the whole: what the customer wrote, and one line from each agent."""

    complaint: str
    reports: Annotated[list[str], operator.add]


class Agent(Case, total=False):
    """The state of one agent. Its messages are its own: the outer graph has no such key."""

    messages: Annotated[list[Message], operator.add]


# --- the tools ----------------------------------------------------------------------------------------------------


def look_up(order: str) -> str:
    """Say what is known of an order."""
    runtime = get_runtime()
    where = runtime.config["configurable"]["checkpoint_ns"]
    print(f"  look_up of {order} ran in {where}|{runtime.task_id}, which sees {len(runtime.answers)} answers")
    return "a lamp of 120 EUR that arrived broken"


def refund(order: str, amount: int) -> str:
    """Pay money back."""
    print(f"  refund of {amount} EUR for {order} ran")
    return f"{amount} EUR were refunded"


# --- the models ---------------------------------------------------------------------------------------------------


def call(id_: str, name: str, **arguments: Any) -> ToolCall:
    """Return a tool call as a model makes it."""
    return {"id": id_, "name": name, "arguments": arguments}


# What each model says, turn by turn; `{last}` is what its last tool call came to.
CLERK: list[Message] = [
    {
        "role": "assistant",
        "tool_calls": [call("1", "look_up", order="A7"), call("2", "refund", order="A7", amount=500)],
    },
    {"role": "assistant", "content": "The clerk: {last}."},
]
WRITER: list[Message] = [
    {"role": "assistant", "tool_calls": [call("1", "look_up", order="A7"), call("2", "look_up", order="A8")]},
    {"role": "assistant", "content": "The writer: dear customer, about {last}, we are sorry."},
]


def model(name: str, script: list[Message]) -> Callable[[Agent], Agent]:
    """Return a node that plays a model: it says the next line of its script."""

    def speak(state: Agent) -> Agent:
        messages = state.get("messages", [])
        print(f"{name}: the model speaks, after {len(messages)} messages")
        line = script[sum(message["role"] == "assistant" for message in messages)]
        if "tool_calls" in line:
            return {"messages": [line]}
        said = line["content"].format(last=messages[-1]["content"])
        return {"messages": [{**line, "content": said}], "reports": [said]}

    return speak


# --- the graphs ---------------------------------------------------------------------------------------------------


def agent(name: str, script: list[Message], tools: dict[str, Callable[..., Any]], policy: Policy = ()) -> Pregel[Any]:
    """Return an agent as a graph: the model speaks and its tools run, until it calls no more of them."""
    graph = StateGraph(Agent).add_node("model", model(name, script)).add_node("tools", tool_node(tools, policy))
    graph.add_edge(START, "model").add_edge("tools", "model")
    graph.add_conditional_edges("model", lambda state: "tools" if "tool_calls" in state["messages"][-1] else END)
    return graph.compile(name=name)


clerk = agent("clerk", CLERK, {"look_up": look_up, "refund": refund}, {"refund": "Pays money to the customer"})
writer = agent("writer", WRITER, {"look_up": look_up})

graph = StateGraph(Case).add_node("clerk", clerk).add_node("writer", writer)
graph.add_edge(START, "clerk").add_edge("clerk", "writer")

# --- the person ---------------------------------------------------------------------------------------------------

ANSWERS: list[Any] = [
    "yes",  # of a wrong type: refused and asked again
    [{"id": "2", "name": "refund", "decision": "edit", "arguments": {"order": "A7", "amount": 120}}],
]


def main() -> None:
    """Run the case, and answer each question from the script."""
    program = graph.compile(InMemorySaver())
    result = program.invoke({"complaint": "My lamp is broken."}, thread_id="case")
    for answer in ANSWERS:
        [question] = result["__interrupt__"]
        print(f"question {question.id}")
        for kind, entries in question.value.items():
            print(f"  {kind}: {entries}")
        print(f"answer: {answer}")
        result = program.resume(answer, thread_id="case")
    print(*result["reports"], sep="\n")


if __name__ == "__main__":
    main()
