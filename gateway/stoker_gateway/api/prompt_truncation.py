"""`truncate_prompt_tokens`: the last tokens of a prompt that is too long, in place of an error."""

from stoker_engine.errors import ContextLengthError, ParameterError
from stoker_engine.frontend.renderer import Prompt, text_of
from stoker_engine.sampling_params import SamplingParams
from stoker_gateway.api.generation import off_loop_if_long
from stoker_gateway.api.state import ApiState

AS_MANY_AS_FIT = -1
_MARGIN_TOKENS = 16
"""How far from the cut of a text its tokens may differ from those of the whole."""


async def truncated(state: ApiState, prompt: Prompt, num_tokens: int | None, params: SamplingParams) -> Prompt:
    """The last `num_tokens` tokens of the prompt; a BOS that the model's texts begin with stays, as one of them. None leaves it as it is.

    -1 stands for as many as leave room for `max_tokens` of output. Raises EngineNotReadyError, QueueFullError before a text is tokenized, and
    ParameterError for 0 or a text that is no Unicode.
    """
    if num_tokens is None:
        return prompt
    if num_tokens == 0:
        raise ParameterError("truncate_prompt_tokens must be at least 1, or -1 for as many as fit, got 0", "truncate_prompt_tokens")
    limit = num_tokens
    if num_tokens == AS_MANY_AS_FIT:
        limit = state.check_ready().max_model_len - (params.max_tokens or 1)
        if limit < 1:
            raise ContextLengthError(f"max_tokens is {params.max_tokens}, which leaves no room for a prompt.", "max_tokens")
    if isinstance(prompt, list):
        return _last(state, prompt, limit)
    with state.engine.admission.preparing(params.n):
        return await off_loop_if_long(len(text_of(prompt)), lambda: _last(state, _tokenize_end(state, prompt, limit), limit))


def _tokenize_end(state: ApiState, prompt: Prompt, limit: int) -> list[int]:
    """The prompt's token ids, without the beginning of a text that cannot matter."""
    text = text_of(prompt) if not isinstance(prompt, list) else ""
    encode = state.tokenizer.encode if isinstance(prompt, str) else state.tokenizer.encode_chat
    characters = state.tokenizer.max_token_characters
    if characters is None or len(text) <= (limit + _MARGIN_TOKENS) * characters:
        return encode(text)
    token_ids = encode(text[-(limit + _MARGIN_TOKENS) * characters :])
    bos = _bos(state)
    return bos + token_ids if bos and encode(text[:characters])[:1] == bos != token_ids[:1] else token_ids


def _last(state: ApiState, token_ids: list[int], limit: int) -> list[int]:
    if len(token_ids) <= limit:
        return token_ids
    bos = _bos(state)
    if bos and token_ids[:1] == bos:
        return bos + token_ids[len(token_ids) - limit + 1 :]
    return token_ids[-limit:]


def _bos(state: ApiState) -> list[int]:
    """What every text of this model begins with; empty where that is nothing."""
    return [token_id for token_id in state.tokenizer.encode("")[:1] if token_id == state.tokenizer.bos_token_id]
