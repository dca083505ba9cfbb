"""One question over the real HTTP endpoint, and the curl line that asks it by hand."""

import json
import shlex
from collections.abc import Mapping, Sequence

import msgspec

from stoker_operator.errors import ReplicaError
from stoker_operator.plan import ReplicaPlan

EXAMPLE_QUESTION = "What is the capital of France?"
MAX_ANSWER_TOKENS = 256
ANSWER_SECONDS = 600.0

_PATH = "/v1/chat/completions"


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _ChatCompletion(msgspec.Struct):
    choices: list[_Choice]


def greeting(plans: Sequence[ReplicaPlan], url: str) -> str:
    """Where the models are, and how to ask the first."""
    first, *others = dict.fromkeys(plan.served_name for plan in plans)
    line = f"{first} is served at {url}; try:\n{curl_line(plans[0], url)}"
    return f"{line}\nalso there: {', '.join(others)}" if others else line


def curl_line(plan: ReplicaPlan, url: str) -> str:
    """A command to paste into a shell, for the model of `plan` at `url`."""
    body = json.dumps(_body(plan, EXAMPLE_QUESTION), ensure_ascii=False)
    return f"curl {url}{_PATH} -H 'Content-Type: application/json' -d {shlex.quote(body)}"


async def ask(plan: ReplicaPlan, url: str, question: str) -> str:
    """The model's answer at temperature 0. Raises ReplicaError with the api's own words if there is none."""
    import httpx  # 0.1 s that the programs need not wait for

    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            response = await client.post(f"{url}{_PATH}", json=_body(plan, question), timeout=ANSWER_SECONDS)
    except httpx.HTTPError as error:
        raise ReplicaError(f"{plan.name}: no answer from {url}: {error or type(error).__name__}") from error
    if response.status_code != httpx.codes.OK:
        raise ReplicaError(f"{plan.name}: {url}{_PATH} answered {response.status_code}: {response.text.strip()}")
    try:
        completion = msgspec.json.decode(response.content, type=_ChatCompletion)
    except msgspec.MsgspecError as error:
        raise ReplicaError(f"{plan.name}: {url}{_PATH} answered something else than a chat completion: {error}") from error
    if not completion.choices or not completion.choices[0].message.content:
        raise ReplicaError(f"{plan.name}: the answer is empty")
    return completion.choices[0].message.content


def _body(plan: ReplicaPlan, question: str) -> Mapping[str, object]:
    """The likeliest answer, and a short one: a small model rambles at the API's default temperature, up to the end of its context."""
    message = {"role": "user", "content": question}
    return {"model": plan.served_name, "messages": [message], "temperature": 0, "max_completion_tokens": MAX_ANSWER_TOKENS}
