"""A response's request as the chat completion that answers it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from stoker_engine.errors import ParameterError
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.request import ChatCompletionRequest, ChatMessage, ContentPart, MessageFunctionCall, MessageToolCall
from stoker_gateway.openai.responses.protocol import ConversationItem, FunctionCallItem, FunctionCallOutputItem, InputMessage, ReasoningItem
from stoker_gateway.openai.responses.request import FunctionTool, ResponsesRequest, ResponsesToolChoice
from stoker_gateway.openai.structured_outputs import JsonSchemaFormat, ResponseFormat
from stoker_gateway.openai.tools import FunctionDefinition, FunctionName, NamedToolChoice, Tool, ToolChoice, check_tools

_NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "logprobs": "top_logprobs",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "response_format.json_schema.schema": "text.format.schema",
}
"""Of a chat completion's fields in a response's."""
_OWN = {"model", "stream_options", "top_logprobs", "tools", "tool_choice"}
_COPIED = tuple(sorted(set(ResponsesRequest.__struct_fields__) & set(ChatCompletionRequest.__struct_fields__) - _OWN))


def chat_request(request: ResponsesRequest, conversation: Iterable[ConversationItem]) -> ChatCompletionRequest:
    """The instructions come first: those of earlier requests are not carried over. In the background it is streamed, to show how far it is.

    Raises ApiError (400) for tools that are no functions, and for a form of the answer that is not complete.
    """
    instructions = [] if request.instructions is None else [ChatMessage(role="system", content=request.instructions)]
    chat = ChatCompletionRequest(
        model=request.model,
        messages=[*instructions, *chat_messages(conversation)],
        max_completion_tokens=request.max_output_tokens,
        logprobs=request.wants_logprobs,
        top_logprobs=request.top_logprobs,
        tools=[_tool(tool, f"tools[{index}]") for index, tool in enumerate(request.tools or ())] or None,
        tool_choice=_tool_choice(request),
        reasoning_effort=None if request.reasoning is None else request.reasoning.effort,
        response_format=_response_format(request),
    )
    for name in _COPIED:
        setattr(chat, name, getattr(request, name))
    chat.stream = request.stream or request.background
    check_tools(chat.tools, chat.tool_choice)
    return chat


def chat_messages(conversation: Iterable[ConversationItem]) -> list[ChatMessage]:
    """What the assistant did in one turn, its reasoning, its text and its calls, is one message of a chat."""
    messages: list[ChatMessage] = []
    for item in conversation:
        match item:
            case InputMessage():
                _add_message(messages, item)
            case ReasoningItem():
                messages.append(ChatMessage(role="assistant", reasoning_content="".join(part.text for part in item.content)))
            case FunctionCallItem():
                call = MessageToolCall(id=item.call_id, function=MessageFunctionCall(item.name, item.arguments))
                if not messages or messages[-1].role != "assistant":
                    messages.append(ChatMessage(role="assistant"))
                _add_call(messages[-1], call)
            case FunctionCallOutputItem():
                messages.append(ChatMessage(role="tool", content=item.output, tool_call_id=item.call_id))
    return messages


@contextmanager
def own_names() -> Iterator[None]:
    """Errors name the fields of a response, not those of the chat completion that answers it."""
    try:
        yield
    except ParameterError as error:
        if error.parameter not in _NAMES:
            raise
        raise type(error)(_own_words(str(error)), _NAMES[error.parameter]) from None
    except ApiError as error:
        if error.param not in _NAMES:
            raise
        raise ApiError(_own_words(error.message), param=_NAMES[error.param], status=error.status, code=error.code) from None


def _own_words(message: str) -> str:
    return message.replace("response_format.json_schema", "text.format").replace("response_format", "text.format")


def _add_message(messages: list[ChatMessage], item: InputMessage) -> None:
    content = [ContentPart("text", part.text) for part in item.content]
    last = messages[-1] if messages else None
    if item.role == "assistant" and last is not None and last.role == "assistant" and last.content is None and not last.tool_calls:
        last.content = content
    else:
        messages.append(ChatMessage(role=item.role, content=content))


def _add_call(message: ChatMessage, call: MessageToolCall) -> None:
    if message.tool_calls is None:
        message.tool_calls = []
    message.tool_calls.append(call)


def _tool(tool: FunctionTool, path: str) -> Tool:
    if tool.type != "function":
        raise ApiError(f"{path}: tools of type {tool.type[:100]!r} are not supported by this server; only functions are.", param=f"{path}.type")
    if tool.name is None:
        raise ApiError(f"Missing required parameter: '{path}.name'.", param=f"{path}.name", code="missing_required_parameter")
    function = FunctionDefinition(name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
    return Tool(type="function", function=function)


def _tool_choice(request: ResponsesRequest) -> ToolChoice | None:
    choice = request.tool_choice
    return NamedToolChoice(type="function", function=FunctionName(choice.name)) if isinstance(choice, ResponsesToolChoice) else choice


def _response_format(request: ResponsesRequest) -> ResponseFormat | None:
    wanted = None if request.text is None else request.text.format
    if wanted is None:
        return None
    if wanted.type != "json_schema":
        return ResponseFormat(type=wanted.type)
    if wanted.name is None or wanted.schema is None:
        name = "text.format.name" if wanted.name is None else "text.format.schema"
        raise ApiError(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")
    named = JsonSchemaFormat(name=wanted.name, schema=wanted.schema, description=wanted.description, strict=wanted.strict)
    return ResponseFormat(type="json_schema", json_schema=named)
