"""Which tags a model reasons between, by its template."""

from stoker_gateway.reasoning.think import MISTRAL_THINK, THINK, ThinkTags

THINK_TAGS = {"think": THINK, "mistral": MISTRAL_THINK}


def detect_think_tags(template: str) -> ThinkTags | None:
    """None where the template has no such tags."""
    return next((tags for tags in (MISTRAL_THINK, THINK) if tags.end in template), None)


def opens(tags: ThinkTags, prompt: str) -> bool:
    """Whether the prompt ends within reasoning."""
    return prompt.rstrip().endswith(tags.start)


def is_done(tags: ThinkTags, prompt: str) -> bool:
    """Whether the prompt ends after reasoning: templates that are told not to think write an empty one."""
    return prompt.rstrip().endswith(tags.end)
