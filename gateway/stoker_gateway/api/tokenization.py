"""POST /tokenize and POST /detokenize: what the model's tokenizer makes of a prompt, a chat or token ids."""

from starlette.requests import Request
from starlette.responses import Response

from stoker_gateway.api.body import read_json_body
from stoker_gateway.api.generation import off_loop_if_long, reading_size
from stoker_gateway.api.prompt_text import check_length, render_chat
from stoker_gateway.api.state import ApiState
from stoker_gateway.http.json_response import json_response
from stoker_gateway.openai.decode import decode_request
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.protocol import encode
from stoker_gateway.openai.request import ChatCompletionRequest
from stoker_gateway.openai.tokenization import DETOKENIZE_RULES, TOKENIZE_RULES, Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest


async def tokenize(state: ApiState, http_request: Request) -> Response:
    body = await read_json_body(http_request, state.config.max_body_bytes, state.drain)
    request = await off_loop_if_long(reading_size(body), lambda: decode_request(body, TokenizeRequest, TOKENIZE_RULES))
    request.check()
    _check_model(state, request.model)
    max_model_len = state.check_ready().max_model_len
    return json_response(await off_loop_if_long(len(body), lambda: encode(_tokenized(state, request, max_model_len))))


async def detokenize(state: ApiState, http_request: Request) -> Response:
    body = await read_json_body(http_request, state.config.max_body_bytes, state.drain)
    request = await off_loop_if_long(reading_size(body), lambda: decode_request(body, DetokenizeRequest, DETOKENIZE_RULES))
    _check_model(state, request.model)
    return json_response(await off_loop_if_long(len(body), lambda: encode(_detokenized(state, request))))


def _tokenized(state: ApiState, request: TokenizeRequest, max_model_len: int) -> Tokenized:
    text = _text(state, request)
    check_length(state, text, max_model_len)
    is_special = request.prompt is not None if request.add_special_tokens is None else request.add_special_tokens
    token_ids = state.tokenizer.encode(text) if is_special else state.tokenizer.encode_chat(text)
    spellings = [state.tokenizer.spelling(token_id) for token_id in token_ids] if request.return_token_strs else None
    return Tokenized(len(token_ids), max_model_len, token_ids, spellings)


def _text(state: ApiState, request: TokenizeRequest) -> str:
    if request.messages is None:
        return request.prompt or ""
    chat = ChatCompletionRequest(
        model=state.model_names[0],
        messages=request.messages,
        add_generation_prompt=request.add_generation_prompt,
        chat_template_kwargs=request.chat_template_kwargs,
        continue_final_message=request.continue_final_message,
        tools=request.tools,
    )
    return render_chat(state, chat).text


def _detokenized(state: ApiState, request: DetokenizeRequest) -> Detokenized:
    vocab_size = state.tokenizer.vocab_size
    for token_id in request.tokens:
        if token_id >= vocab_size:
            raise ApiError(f"tokens must be below {vocab_size}, the size of the vocabulary, got {token_id}.", param="tokens")
    return Detokenized(state.tokenizer.decode(request.tokens, skip_special_tokens=False))


def _check_model(state: ApiState, model: str | None) -> None:
    if model is not None:
        state.check_model(model)
