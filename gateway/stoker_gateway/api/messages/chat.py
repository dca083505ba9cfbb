"""A request of the Messages API as the chat completion that answers it."""

from collections.abc import Iterator

from stoker_gateway.anthropic.request import Block, Content, CountTokensRequest, MessageParam, MessagesRequest, OutputFormat, TextPart, ToolParam
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.request import ChatCompletionRequest, ChatMessage, ContentPart, MessageFunctionCall, MessageToolCall
from stoker_gateway.openai.structured_outputs import JsonSchemaFormat, ResponseFormat
from stoker_gateway.openai.tools import FunctionDefinition, FunctionName, NamedToolChoice, Tool, ToolChoice, check_tools

_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none"}


def prompt_request(request: CountTokensRequest) -> ChatCompletionRequest:
    """What decides the prompt. Raises ApiError (400) naming the block or tool that is not supported."""
    messages = [] if request.system is None else [_system_message(request.system)]
    for index, message in enumerate(request.messages):
        messages += _messages(message, f"messages[{index}].content")
    last = messages[-1]
    chat = ChatCompletionRequest(
        model=request.model,
        messages=messages,
        continue_final_message=last.role == "assistant" and not last.tool_calls,
        tools=[_tool(tool, f"tools[{index}]") for index, tool in enumerate(request.tools or ())] or None,
        tool_choice=_tool_choice(request),
        parallel_tool_calls=request.tool_choice is None or not request.tool_choice.disable_parallel_tool_use,
    )
    if request.output_config is not None:
        chat.reasoning_effort = request.output_config.effort
        chat.response_format = _response_format(request.output_config.format)
    check_tools(chat.tools, chat.tool_choice)
    return chat


def chat_request(request: MessagesRequest) -> ChatCompletionRequest:
    chat = prompt_request(request)
    chat.max_completion_tokens = request.max_tokens
    chat.stop = request.stop_sequences
    chat.stream = request.stream
    chat.temperature, chat.top_k, chat.top_p = request.temperature, request.top_k, request.top_p
    return chat


def _system_message(content: Content) -> ChatMessage:
    if isinstance(content, str):
        return ChatMessage(role="system", content=content)
    return ChatMessage(role="system", content=[_text_part(block, f"system[{index}]") for index, block in enumerate(content)])


def _messages(message: MessageParam, path: str) -> Iterator[ChatMessage]:
    """The results of tools are messages of their own, before the text that comes with them."""
    if isinstance(message.content, str):
        yield ChatMessage(role=message.role, content=message.content)
        return
    own = ChatMessage(role=message.role)
    parts: list[ContentPart] = []
    calls: list[MessageToolCall] = []
    thoughts: list[str] = []
    for index, block in enumerate(message.content):
        place = f"{path}[{index}]"
        if block.type == "tool_result" and message.role == "user":
            yield _result_message(block, place)
        elif message.role == "assistant" and block.type in ("tool_use", "thinking", "redacted_thinking"):
            _add_to_turn(calls, thoughts, block, place)
        else:
            parts.append(_text_part(block, place))
    if parts or message.role == "assistant" or all(block.type != "tool_result" for block in message.content):
        own.content, own.tool_calls, own.reasoning_content = parts, calls or None, "".join(thoughts) if thoughts else None
        yield own


def _add_to_turn(calls: list[MessageToolCall], thoughts: list[str], block: Block, path: str) -> None:
    if block.type == "thinking":
        thoughts.append(_required(block.thinking, f"{path}.thinking"))
    elif block.type == "tool_use":
        function = MessageFunctionCall(_required(block.name, f"{path}.name"), block.input or {})
        calls.append(MessageToolCall(id=_required(block.id, f"{path}.id"), function=function))


def _result_message(block: Block, path: str) -> ChatMessage:
    content = block.content or ""
    texts = content if isinstance(content, str) else [_text_part(part, f"{path}.content[{index}]") for index, part in enumerate(content)]
    return ChatMessage(role="tool", content=texts, tool_call_id=_required(block.tool_use_id, f"{path}.tool_use_id"))


def _text_part(block: Block | TextPart, path: str) -> ContentPart:
    if block.type != "text":
        raise ApiError(f"{path}: blocks of type {block.type[:100]!r} are not supported here by this server; only text is.", param=f"{path}.type")
    return ContentPart("text", _required(block.text, f"{path}.text"))


def _required(value: str | None, path: str) -> str:
    if value is None:
        raise ApiError(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")
    return value


def _tool(tool: ToolParam, path: str) -> Tool:
    if tool.type not in (None, "custom"):
        raise ApiError(f"{path}: tools of type {tool.type[:100]!r} are not supported by this server; only custom tools are.", param=f"{path}.type")
    function = FunctionDefinition(name=tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict)
    return Tool(type="function", function=function)


def _tool_choice(request: CountTokensRequest) -> ToolChoice | None:
    choice = request.tool_choice
    if choice is None:
        return None
    if choice.type == "tool":
        return NamedToolChoice(type="function", function=FunctionName(_required(choice.name, "tool_choice.name")))
    return _CHOICES[choice.type]


def _response_format(wanted: OutputFormat | None) -> ResponseFormat | None:
    return None if wanted is None else ResponseFormat(type="json_schema", json_schema=JsonSchemaFormat(name="output", schema=wanted.schema))
