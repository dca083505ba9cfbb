"""A request of the Messages API as the chat completion that answers it."""

from stoker_gateway.anthropic.request import Block, Content, CountTokensRequest, MessagesRequest
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.request import ChatCompletionRequest, ChatMessage, ContentPart


def prompt_request(request: CountTokensRequest) -> ChatCompletionRequest:
    """What decides the prompt. Raises ApiError (400) naming the block that is no text."""
    messages = [] if request.system is None else [_message("system", request.system, "system")]
    messages += [_message(message.role, message.content, f"messages[{index}].content") for index, message in enumerate(request.messages)]
    is_begun = request.messages[-1].role == "assistant"
    return ChatCompletionRequest(model=request.model, messages=messages, continue_final_message=is_begun)


def chat_request(request: MessagesRequest) -> ChatCompletionRequest:
    chat = prompt_request(request)
    chat.max_completion_tokens = request.max_tokens
    chat.stop = request.stop_sequences
    chat.stream = request.stream
    chat.temperature, chat.top_k, chat.top_p = request.temperature, request.top_k, request.top_p
    return chat


def _message(role: str, content: Content, path: str) -> ChatMessage:
    if isinstance(content, str):
        return ChatMessage(role=role, content=content)
    return ChatMessage(role=role, content=[_part(block, f"{path}[{index}]") for index, block in enumerate(content)])


def _part(block: Block, path: str) -> ContentPart:
    if block.type != "text":
        raise ApiError(f"{path}: blocks of type {block.type[:100]!r} are not supported by this server; only text is.", param=f"{path}.type")
    if block.text is None:
        raise ApiError(f"Missing required parameter: '{path}.text'.", param=f"{path}.text", code="missing_required_parameter")
    return ContentPart("text", block.text)
