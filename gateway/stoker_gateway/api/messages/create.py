"""POST /v1/messages and POST /v1/messages/count_tokens."""

from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from stoker_gateway.anthropic.errors import messages_error
from stoker_gateway.anthropic.protocol import TokenCount
from stoker_gateway.anthropic.request import COUNT_TOKENS_RULES, MESSAGES_RULES, CountTokensRequest, MessagesRequest
from stoker_gateway.api.body import read_json_body
from stoker_gateway.api.chat_plan import plan_chat
from stoker_gateway.api.event_stream import EventStream
from stoker_gateway.api.generation import last_output, off_loop_if_long, reading_size, request_options
from stoker_gateway.api.messages.answer import MessageAnswer
from stoker_gateway.api.messages.chat import chat_request, prompt_request
from stoker_gateway.api.prompt_text import check_length, render_chat
from stoker_gateway.api.sampling import chat_sampling_params
from stoker_gateway.api.state import ApiState
from stoker_gateway.http.disconnect import cancelled_by_disconnect
from stoker_gateway.http.json_response import json_response
from stoker_gateway.http.request_id import request_id_of
from stoker_gateway.openai.decode import decode_request
from stoker_gateway.openai.protocol import encode
from stoker_gateway.openai.streaming import StreamEnd, named_event

MESSAGES_END = StreamEnd(b"", lambda error: named_event("error", messages_error(error, None)))


async def create_message(state: ApiState, http_request: Request) -> Response:
    body = await read_json_body(http_request, state.config.max_body_bytes, state.drain)
    request = await off_loop_if_long(reading_size(body), lambda: decode_request(body, MessagesRequest, MESSAGES_RULES))
    state.check_model(request.model)
    chat = await off_loop_if_long(reading_size(body), lambda: chat_request(request))
    params = chat_sampling_params(chat, state.sampling_defaults)
    state.check_ready()
    prompt = await off_loop_if_long(reading_size(body), lambda: render_chat(state, chat))
    plan = plan_chat(state.chat_format, state.tokenizer, chat, prompt.text, params)
    options = request_options(chat, http_request.headers, request_id_of(http_request, "msg"))
    answer = MessageAnswer(options.request_id, request.model, plan)
    outputs = state.engine.generate(prompt, plan.params, options)
    if request.stream:
        return EventStream(options.request_id, answer.stream(outputs), MESSAGES_END)
    with cancelled_by_disconnect(http_request.scope):
        async with aclosing(outputs):
            output = await last_output(outputs)
    size = sum(len(choice.text) for choice in output.outputs)
    return json_response(await off_loop_if_long(size, lambda: encode(answer.whole(output))))


async def count_tokens(state: ApiState, http_request: Request) -> Response:
    """As many as a message of the same request would read."""
    body = await read_json_body(http_request, state.config.max_body_bytes, state.drain)
    request = await off_loop_if_long(reading_size(body), lambda: decode_request(body, CountTokensRequest, COUNT_TOKENS_RULES))
    state.check_model(request.model)
    max_model_len = state.check_ready().max_model_len
    chat = await off_loop_if_long(reading_size(body), lambda: prompt_request(request))

    def count() -> int:
        text = render_chat(state, chat).text
        check_length(state, text, max_model_len)
        return len(state.tokenizer.encode_chat(text))

    return json_response(encode(TokenCount(await off_loop_if_long(len(body), count))))
