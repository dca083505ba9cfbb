"""POST /v1/responses."""

import time

from starlette.requests import Request
from starlette.responses import Response as HttpResponse

from stoker_engine.sampling_params import SamplingParams
from stoker_gateway.api.body import read_json_body
from stoker_gateway.api.chat_plan import plan_chat
from stoker_gateway.api.event_stream import EventStream
from stoker_gateway.api.generation import off_loop_if_long, reading_size, request_options
from stoker_gateway.api.prompt_text import render_chat
from stoker_gateway.api.responses.background import Work, start_in_background
from stoker_gateway.api.responses.conversation import chat_request, own_names
from stoker_gateway.api.responses.follow import RESPONSES_END, followed
from stoker_gateway.api.responses.items import input_items
from stoker_gateway.api.responses.run import ResponseRun
from stoker_gateway.api.responses.store import StoredResponse
from stoker_gateway.api.sampling import chat_sampling_params
from stoker_gateway.api.state import ApiState
from stoker_gateway.http.disconnect import cancelled_by_disconnect
from stoker_gateway.http.json_response import json_response
from stoker_gateway.http.request_id import request_id_of
from stoker_gateway.openai.decode import decode_request
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.protocol import encode
from stoker_gateway.openai.response_ids import new_response_id
from stoker_gateway.openai.responses.protocol import (
    ReasoningResponse,
    Response,
    TextConfigResponse,
    TextFormatResponse,
    ToolResponse,
)
from stoker_gateway.openai.responses.request import RESPONSES_RULES, FunctionTool, ResponsesRequest


async def create_response(state: ApiState, http_request: Request) -> HttpResponse:
    body = await read_json_body(http_request, state.config.max_body_bytes, state.drain)
    request = await off_loop_if_long(reading_size(body), lambda: decode_request(body, ResponsesRequest, RESPONSES_RULES))
    request.check()
    state.check_model(request.model)
    previous = _previous(state, request)
    earlier = () if previous is None else previous.conversation
    size = reading_size(body) + (0 if previous is None else previous.num_bytes)
    conversation = await off_loop_if_long(size, lambda: [*earlier, *input_items(request, earlier)])
    with own_names():
        chat = await off_loop_if_long(size, lambda: chat_request(request, conversation))
        params = chat_sampling_params(chat, state.sampling_defaults)
        state.check_ready()
        prompt = await off_loop_if_long(size, lambda: render_chat(state, chat))
        plan = plan_chat(state.chat_format, state.tokenizer, chat, prompt.text, params)
    stored = StoredResponse(_new_response(request, params, state.model_names[0]), conversation)
    options = request_options(chat, http_request.headers, request_id_of(http_request, "resp"))
    if request.background:
        await start_in_background(state, stored, Work(prompt, plan, options, has_events=request.stream))
        return followed(stored, 0) if request.stream else json_response(encode(stored.response))
    run = ResponseRun(stored, state.responses, plan)
    outputs = state.engine.generate(prompt, plan.params, options)
    if request.stream:
        return EventStream(options.request_id, run.stream(outputs), RESPONSES_END)
    with cancelled_by_disconnect(http_request.scope):
        return json_response(encode(await run.whole(outputs)))


def _previous(state: ApiState, request: ResponsesRequest) -> StoredResponse | None:
    """Raises ApiError (400) for an earlier response that is not kept, or not over."""
    if request.previous_response_id is None:
        return None
    previous = state.responses.find(request.previous_response_id)
    if previous is None:
        message = f"Previous response with id '{request.previous_response_id[:100]}' not found."
        raise ApiError(message, param="previous_response_id", code="previous_response_not_found")
    if not previous.is_over:
        raise ApiError(f"The previous response is {previous.response.status}; wait until it is over.", param="previous_response_id")
    return previous


def _new_response(request: ResponsesRequest, params: SamplingParams, served_name: str) -> Response:
    return Response(
        id=new_response_id(served_name),
        created_at=int(time.time()),
        status="queued" if request.background else "in_progress",
        background=request.background,
        frequency_penalty=params.frequency_penalty,
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        metadata=request.metadata or {},
        model=request.model,
        parallel_tool_calls=request.parallel_tool_calls,
        presence_penalty=params.presence_penalty,
        previous_response_id=request.previous_response_id,
        prompt_cache_key=request.prompt_cache_key,
        reasoning=ReasoningResponse(None if request.reasoning is None else request.reasoning.effort),
        safety_identifier=request.safety_identifier,
        store=request.store,
        temperature=params.temperature,
        text=_text_config(request),
        tool_choice=request.tool_choice or "auto",
        tools=[_tool(tool) for tool in request.tools or ()],
        top_logprobs=request.top_logprobs or 0,
        top_p=params.top_p,
        user=request.user,
    )


def _text_config(request: ResponsesRequest) -> TextConfigResponse:
    wanted = None if request.text is None else request.text.format
    if wanted is None:
        return TextConfigResponse(TextFormatResponse("text"))
    return TextConfigResponse(TextFormatResponse(wanted.type, wanted.name, wanted.description, wanted.schema, wanted.strict))


def _tool(tool: FunctionTool) -> ToolResponse:
    return ToolResponse(name=tool.name or "", description=tool.description, parameters=tool.parameters, strict=bool(tool.strict))
