"""POST /v1/chat/completions."""

import time
from contextlib import aclosing

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from stoker_engine.outputs import CompletionOutput, RequestOutput
from stoker_gateway.api.body import read_json_body
from stoker_gateway.api.chat_delta import chat_delta, whole_message
from stoker_gateway.api.chat_plan import ChatPlan, plan_chat
from stoker_gateway.api.chat_stream import ChatStream
from stoker_gateway.api.choice_reader import ChoiceReader, with_reasoning
from stoker_gateway.api.event_stream import EventStream
from stoker_gateway.api.generation import (
    SYSTEM_FINGERPRINT,
    last_output,
    off_loop_if_long,
    prompt_logprobs_size,
    reading_size,
    request_options,
)
from stoker_gateway.api.logprobs import chat_logprobs, prompt_logprobs
from stoker_gateway.api.prompt_text import render_chat
from stoker_gateway.api.prompt_truncation import truncated
from stoker_gateway.api.sampling import chat_sampling_params
from stoker_gateway.api.state import ApiState
from stoker_gateway.http.disconnect import cancelled_by_disconnect
from stoker_gateway.http.json_response import json_response
from stoker_gateway.http.request_id import request_id_of
from stoker_gateway.openai.decode import decode_chat_completion_request
from stoker_gateway.openai.protocol import ChatCompletion, ChatCompletionChoice, encode, make_usage
from stoker_gateway.openai.request import ChatCompletionRequest


async def create_chat_completion(state: ApiState, http_request: Request) -> Response:
    body = await read_json_body(http_request, state.config.max_body_bytes, state.drain)
    request = await off_loop_if_long(reading_size(body), lambda: decode_chat_completion_request(body))
    state.check_model(request.model)
    params = chat_sampling_params(request, state.sampling_defaults)
    state.check_ready()
    rendered = await off_loop_if_long(reading_size(body), lambda: render_chat(state, request))
    plan = plan_chat(state.chat_format, state.tokenizer, request, rendered.text, params)
    prompt = await truncated(state, rendered, request.truncate_prompt_tokens, params)
    request_id = request_id_of(http_request, "chatcmpl")
    outputs = state.engine.generate(prompt, plan.params, request_options(request, http_request.headers, request_id))
    if request.stream:
        return EventStream(request_id, ChatStream(request, request_id, plan).events(outputs))
    with cancelled_by_disconnect(http_request.scope):
        async with aclosing(outputs):
            output = await last_output(outputs)
    size = prompt_logprobs_size(output) + sum(len(choice.text) for choice in output.outputs)
    return json_response(await off_loop_if_long(size, lambda: encode(_chat_completion(request, request_id, plan, output))))


def _chat_completion(request: ChatCompletionRequest, request_id: str, plan: ChatPlan, output: RequestOutput) -> ChatCompletion:
    readers = {choice.index: ChoiceReader(plan) for choice in output.outputs}
    choices = [_choice(request, readers[choice.index], choice) for choice in sorted(output.outputs, key=lambda choice: choice.index)]
    usage = make_usage(len(output.prompt_token_ids), output.num_output_tokens, output.num_cached_tokens)
    return ChatCompletion(
        id=request_id,
        created=int(time.time()),
        model=request.model,
        choices=choices,
        usage=with_reasoning(usage, readers.values()),
        system_fingerprint=SYSTEM_FINGERPRINT,
        prompt_logprobs=UNSET if output.prompt_logprobs is None else prompt_logprobs(output.prompt_logprobs),
        prompt_token_ids=output.prompt_token_ids if request.return_token_ids else UNSET,
    )


def _choice(request: ChatCompletionRequest, reader: ChoiceReader, choice: CompletionOutput) -> ChatCompletionChoice:
    return ChatCompletionChoice(
        index=choice.index,
        message=whole_message(chat_delta(reader.parts(choice))),
        logprobs=None if choice.logprobs is None else chat_logprobs(choice.token_ids, choice.logprobs, request.num_top_logprobs),
        finish_reason=reader.finish_name(choice),
        stop_reason=choice.stop_reason,
        token_ids=choice.token_ids if request.return_token_ids else UNSET,
    )
