"""A prompt's beginning as a chain of blocks: equal hashes are equal beginnings."""

MAX_PROMPT_BYTES = 64 * 1024
"""About 16,000 tokens: the prompts of agents that share their first 40 KiB still differ in it."""

SMALLEST_BYTES = 128
"""About 32 tokens, two blocks of an engine; a shorter prompt is not worth remembering."""

_GROWTH = 8
"""A block is an eighth of what is before it: where a match ends is known to an eighth, and the whole of a long prompt costs 50 hashes."""


def _boundaries() -> tuple[int, ...]:
    ends = [SMALLEST_BYTES]
    while ends[-1] < MAX_PROMPT_BYTES:
        ends.append(min(MAX_PROMPT_BYTES, ends[-1] + max(SMALLEST_BYTES, ends[-1] // _GROWTH)))
    return tuple(ends)


BOUNDARIES = _boundaries()
"""Where blocks end, the same for each prompt."""


def block_hashes(prompt: bytes) -> list[int]:
    """One for each whole block, each of all bytes up to its boundary. They hold for this process: no client can find two prompts that share one."""
    hashes: list[int] = []
    start = before = 0
    for end in BOUNDARIES:
        if end > len(prompt):
            break
        before = hash((before, prompt[start:end]))
        hashes.append(before)
        start = end
    return hashes
