"""A payment is scored; a risky one waits for a person, who corrects it, and the correction decides where it goes.

    python examples/risk_gate.py

`score` asks for a pause after itself when the risk is above 80: it has run, its update is merged, and nobody has
decided yet where to go. Before `execute`, where the money leaves, there is a pause for every payment. Between pause
and resume the person corrects the state with `update_state`; because of `interrupt_before_edge` the edge is decided
on the corrected state, so a wrong alarm goes to `execute` and a real one to `reject`. The person is a script.
"""

import operator
from typing import Annotated, Any, Literal, TypedDict

from pregel import START, InMemorySaver, Pregel, Runtime, Saver, StateGraph

LIMIT = 80


class Payment(TypedDict, total=False):
    """The state: what is paid to whom, how risky it looks, and what happened."""

    amount: int
    country: str
    risk: int
    log: Annotated[list[str], operator.add]


def score(payment: Payment, runtime: Runtime[Any]) -> Payment:
    """Say how risky a payment looks."""
    risk = min(100, payment["amount"] // 100 + (60 if payment["country"] == "unknown" else 0))
    if risk > LIMIT:
        runtime.interrupt_after({"risk": risk, "question": "Is this payment what it seems to be?"})
    return {"risk": risk, "log": [f"scored {risk}"]}


def gate(payment: Payment) -> Literal["execute", "reject"]:
    """Lead to the payment, or away from it."""
    return "reject" if payment["risk"] > LIMIT else "execute"


def execute(payment: Payment) -> Payment:
    """Pay."""
    return {"log": [f"paid {payment['amount']} EUR"]}


def reject(payment: Payment) -> Payment:
    """Do not pay."""
    return {"log": ["rejected"]}


def risk_gate(saver: Saver, *, interrupt_before_edge: bool = True) -> Pregel[Payment]:
    """Return the graph ready to run."""
    graph = StateGraph(Payment)
    graph.add_node(score).add_node(execute).add_node(reject)
    graph.add_edge(START, "score").add_conditional_edges("score", gate)
    return graph.compile(saver, interrupt_before=["execute"], interrupt_before_edge=interrupt_before_edge)


def show(title: str, result: dict[str, Any]) -> None:
    """Print where a payment stands."""
    waits = [f"{pause.when} {pause.node}, then {pause.next[0]}" for pause in result.get("__interrupt__", [])]
    print(f"{title}: {', '.join(result['log'])}" + (f" | paused {waits[0]}" if waits else ""))


def main() -> None:
    """Take three payments through the gate."""
    app = risk_gate(InMemorySaver())

    show("small", app.invoke({"amount": 900, "country": "NL"}, thread_id="small"))
    show("small", app.invoke(None, thread_id="small"))

    show("wrong alarm", app.invoke({"amount": 4000, "country": "unknown"}, thread_id="wrong alarm"))
    app.update_state({"configurable": {"thread_id": "wrong alarm"}}, {"country": "NL", "risk": 40})
    show("wrong alarm", app.invoke(None, thread_id="wrong alarm"))
    show("wrong alarm", app.invoke(None, thread_id="wrong alarm"))

    show("real alarm", app.invoke({"amount": 9000, "country": "unknown"}, thread_id="real alarm"))
    show("real alarm", app.invoke(None, thread_id="real alarm"))


if __name__ == "__main__":
    main()
