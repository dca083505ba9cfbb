"""POST /v1/completions."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from stoker_engine.errors import EngineGenerateError
from stoker_engine.frontend.input_processor import RequestOptions
from stoker_engine.frontend.renderer import Prompt
from stoker_engine.outputs import RequestOutput
from stoker_engine.sampling_params import SamplingParams
from stoker_gateway.api.body import read_json_body
from stoker_gateway.api.completion_choices import PromptChoices
from stoker_gateway.api.completion_stream import CompletionStream
from stoker_gateway.api.event_stream import EventStream
from stoker_gateway.api.generation import SYSTEM_FINGERPRINT, off_loop_if_long, prompt_logprobs_size, reading_size, request_options
from stoker_gateway.api.merge import merge
from stoker_gateway.api.prompt_truncation import truncated
from stoker_gateway.api.sampling import completion_sampling_params
from stoker_gateway.api.state import ApiState
from stoker_gateway.http.disconnect import cancelled_by_disconnect
from stoker_gateway.http.json_response import json_response
from stoker_gateway.http.request_id import request_id_of
from stoker_gateway.openai.decode import decode_completion_request
from stoker_gateway.openai.protocol import Completion, encode, make_usage
from stoker_gateway.openai.request import CompletionRequest

Outputs = AsyncGenerator[tuple[int, RequestOutput]]


async def create_completion(state: ApiState, http_request: Request) -> Response:
    body = await read_json_body(http_request, state.config.max_body_bytes, state.drain)
    request = await off_loop_if_long(reading_size(body), lambda: decode_completion_request(body))
    state.check_model(request.model)
    request_id = request_id_of(http_request, "cmpl")
    params = completion_sampling_params(request, state.sampling_defaults)
    options = request_options(request, http_request.headers, request_id)
    prompts = await _prompts(state, request, params)
    outputs = _generate(state, await _checked(state, prompts, params, options), params, options)
    choices = [PromptChoices(request, state.tokenizer, index, prompt) for index, prompt in enumerate(prompts)]
    if request.stream:
        return EventStream(request_id, CompletionStream(request, request_id, choices).events(outputs))
    with cancelled_by_disconnect(http_request.scope):
        async with aclosing(outputs):
            finished = await _finished_outputs(outputs, len(prompts))
    size = sum(map(prompt_logprobs_size, finished))
    return json_response(await off_loop_if_long(size, lambda: encode(_completion(request, request_id, choices, finished))))


async def _prompts(state: ApiState, request: CompletionRequest, params: SamplingParams) -> list[str | list[int]]:
    """Raises what forbids the request before any of it is tokenized or sent."""
    prompts = state.renderer.render_cmpl(cast("list[Prompt]", request.prompt))
    state.check_ready()
    state.engine.admission.check_batch(len(prompts), params.n)
    return cast("list[str | list[int]]", [await truncated(state, prompt, request.truncate_prompt_tokens, params) for prompt in prompts])


async def _checked(state: ApiState, prompts: list[str | list[int]], params: SamplingParams, options: RequestOptions) -> list[str | list[int]]:
    """Of several prompts the token ids: what is wrong with one is told before the answer to another begins."""
    if len(prompts) == 1:
        return prompts
    return [(await state.engine.process(prompt, params, options)).prompt_token_ids for prompt in prompts]


def _generate(state: ApiState, prompts: list[str | list[int]], params: SamplingParams, options: RequestOptions) -> Outputs:
    """One engine request per prompt, with ids of their own where there are several."""
    generators = []
    for index, prompt in enumerate(prompts):
        own_id = options.request_id if len(prompts) == 1 else f"{options.request_id}-{index}"
        generators.append(state.engine.generate(prompt, params, msgspec.structs.replace(options, request_id=own_id)))
    return merge(generators)


async def _finished_outputs(outputs: Outputs, num_prompts: int) -> list[RequestOutput]:
    """The finished output of each prompt, in the order of the prompts."""
    finished = {index: output async for index, output in outputs if output.finished}
    if len(finished) < num_prompts:
        raise EngineGenerateError("The request ended without an answer.")
    return [finished[index] for index in range(num_prompts)]


def _completion(request: CompletionRequest, request_id: str, choices: list[PromptChoices], outputs: list[RequestOutput]) -> Completion:
    return Completion(
        id=request_id,
        created=int(time.time()),
        model=request.model,
        choices=[choice for prompt_choices, output in zip(choices, outputs, strict=True) for choice in prompt_choices.of(output)],
        usage=make_usage(
            sum(len(output.prompt_token_ids) for output in outputs),
            0 if request.max_tokens == 0 else sum(output.num_output_tokens for output in outputs),
            sum(output.num_cached_tokens for output in outputs),
        ),
        system_fingerprint=SYSTEM_FINGERPRINT,
    )
