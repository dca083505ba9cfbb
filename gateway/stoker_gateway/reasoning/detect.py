"""Which tags a model reasons between, by its template, and whether it does so after a prompt."""

import enum

from stoker_gateway.reasoning.think import MISTRAL_THINK, THINK, ThinkTags


class Thinking(enum.Enum):
    TO_COME = enum.auto()
    BEGUN = enum.auto()
    OVER = enum.auto()


THINK_TAGS = {"think": THINK, "mistral": MISTRAL_THINK}


def detect_think_tags(template: str) -> ThinkTags | None:
    """None where the template has no such tags."""
    return next((tags for tags in (MISTRAL_THINK, THINK) if tags.end in template), None)


def thinking_of(tags: ThinkTags, prompt: str, *, is_continued: bool) -> Thinking:
    """Where a prompt leaves the model: templates that are told not to think write an empty reasoning, others begin one. `is_continued`: it ends within
    an answer."""
    end = prompt.rstrip()
    if end.endswith(tags.start) or (is_continued and prompt.rfind(tags.start) > prompt.rfind(tags.end)):
        return Thinking.BEGUN
    return Thinking.OVER if is_continued or end.endswith(tags.end) else Thinking.TO_COME
