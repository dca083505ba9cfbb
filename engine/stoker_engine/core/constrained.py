"""The requests of the last step that have a grammar: what they may sample, and whether that is known yet."""

from collections.abc import Iterator

from stoker_engine.core.grammar import Grammar, GrammarOutput
from stoker_engine.core.request import Request
from stoker_engine.core.scheduler import Scheduler


def awaits_tokens(scheduler: Scheduler) -> bool:
    """Whether one of them is in a step before, too: what its grammar allows depends on a token that is yet to come."""
    return any(request.num_output_placeholders > 1 for request, _ in _in_last_step(scheduler))


def make_grammar_output(scheduler: Scheduler) -> GrammarOutput | None:
    """What their grammars allow; None where there are none."""
    bitmasks = {request.request_id: bitmask for request, grammar in _in_last_step(scheduler) if (bitmask := grammar.bitmask()) is not None}
    return GrammarOutput(bitmasks) if bitmasks else None


def _in_last_step(scheduler: Scheduler) -> Iterator[tuple[Request, Grammar]]:
    """Those that sample and have not ended meanwhile."""
    constrained = scheduler.state.constrained
    if not constrained:
        return
    for request in scheduler.steps_under_way[-1].sampling:
        if request.grammar is not None and constrained.get(request.request_id) is request:
            yield request, request.grammar
