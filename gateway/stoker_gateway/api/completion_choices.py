"""The choices of one prompt of a completion request, whole or piece by piece: text, echo, logprobs, token ids."""

from msgspec import UNSET

from stoker_engine.outputs import CompletionOutput, RequestOutput
from stoker_engine.tokenizer import Tokenizer
from stoker_gateway.api.generation import finish_name
from stoker_gateway.api.logprobs import CompletionLogprobsBuilder, join, prompt_logprobs
from stoker_gateway.openai.protocol import CompletionChoice, CompletionLogprobs
from stoker_gateway.openai.request import CompletionRequest


class PromptChoices:
    """Turns the outputs of the prompt number `prompt_index` into choices, numbered `prompt_index` × n and on."""

    def __init__(self, request: CompletionRequest, tokenizer: Tokenizer, prompt_index: int, prompt: str | list[int]) -> None:
        self._request = request
        self._tokenizer = tokenizer
        self._first_index = prompt_index * (request.n or 1)
        self._prompt = prompt
        self._builders: dict[int, CompletionLogprobsBuilder] = {}
        self._is_prompt_only = request.max_tokens == 0

    def of(self, output: RequestOutput) -> list[CompletionChoice]:
        """What one output adds, in the order of the choices. A choice's first piece has the echo and what is known of the prompt."""
        return [self._choice(output, choice) for choice in sorted(output.outputs, key=lambda choice: choice.index)]

    def _choice(self, output: RequestOutput, choice: CompletionOutput) -> CompletionChoice:
        is_first = choice.index not in self._builders
        builder = self._builders.setdefault(choice.index, CompletionLogprobsBuilder(self._tokenizer))
        built = CompletionChoice(
            index=self._first_index + choice.index,
            text="",
            logprobs=None,
            finish_reason=finish_name(choice),
            stop_reason=choice.stop_reason,
            token_ids=choice.token_ids if self._request.return_token_ids else UNSET,
        )
        if is_first:
            self._add_prompt(built, output, builder)
        if self._is_prompt_only:
            self._drop_output(built)
        else:
            built.text += choice.text
            if choice.logprobs is not None:
                built.logprobs = _joined(built.logprobs, builder.add(choice.token_ids, choice.logprobs, choice.text))
        return built

    def _drop_output(self, built: CompletionChoice) -> None:
        """The one token of a prompt-only request is not shown."""
        built.stop_reason = None
        built.finish_reason = None if built.finish_reason is None else "length"
        built.token_ids = [] if self._request.return_token_ids else UNSET

    def _add_prompt(self, built: CompletionChoice, output: RequestOutput, builder: CompletionLogprobsBuilder) -> None:
        positions = output.prompt_logprobs
        if self._request.return_token_ids:
            built.prompt_token_ids = output.prompt_token_ids
        if self._request.prompt_logprobs is not None and positions is not None:
            built.prompt_logprobs = prompt_logprobs(positions)
        if self._request.echo:
            built.text = self._prompt if isinstance(self._prompt, str) else self._tokenizer.decode(self._prompt, skip_special_tokens=False)
            if self._request.logprobs is not None and positions is not None:
                built.logprobs = builder.add_prompt(output.prompt_token_ids, positions, built.text)
            else:
                builder.skip(built.text)


def _joined(first: CompletionLogprobs | None, second: CompletionLogprobs) -> CompletionLogprobs:
    return second if first is None else join(first, second)
