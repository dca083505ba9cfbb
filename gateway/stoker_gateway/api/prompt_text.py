"""The text of a prompt: what the model's template makes of a chat, and whether a text can be a prompt at all."""

from stoker_engine.errors import ContextLengthError
from stoker_engine.frontend.renderer import TemplatedPrompt
from stoker_gateway.api.state import ApiState
from stoker_gateway.openai.messages import template_messages
from stoker_gateway.openai.request import ChatCompletionRequest
from stoker_gateway.openai.tools import offered_tools, template_tools


def render_chat(state: ApiState, request: ChatCompletionRequest) -> TemplatedPrompt:
    """Messages → prompt. Raises ApiError or ParameterError (400) where the messages or the template say no."""
    messages = template_messages(request.messages)
    effort = state.chat_format.effort_kwargs(request.reasoning_effort)
    return state.renderer.render_chat(
        messages,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
        template_kwargs={**effort, **(request.chat_template_kwargs or {})},
        tools=template_tools(offered_tools(request.tools, request.tool_choice)),
    )


def check_length(state: ApiState, text: str, max_model_len: int) -> None:
    """Raises ContextLengthError for a text that could not be a prompt however it is tokenized, before that costs anything."""
    characters = state.tokenizer.max_token_characters
    if characters is not None and len(text) > max_model_len * characters:
        raise ContextLengthError(
            f"The text has {len(text)} characters; a prompt of this model has at most {max_model_len} tokens of at most {characters} characters.", "prompt"
        )
