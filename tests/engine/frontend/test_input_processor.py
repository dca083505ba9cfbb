from typing import Any

import msgspec
import pytest

from stoker_engine.errors import ContextLengthError, ParameterError
from stoker_engine.frontend.input_processor import MAX_EXTERNAL_ID_LENGTH, MAX_INLINE_WORK, InputProcessor, RequestOptions, processing_work
from stoker_engine.frontend.parallel_sampling import ParentRequest
from stoker_engine.frontend.renderer import Prompt, TemplatedPrompt
from stoker_engine.protocol import MAX_REQUEST_ID_LENGTH, EngineCoreRequest, decode_request, encode
from stoker_engine.sampling_params import MAX_N, SamplingParams
from stoker_engine.tokenizer import Tokenizer

OPTIONS = RequestOptions(request_id="chat-1")


@pytest.fixture
def processor(smollm2_tokenizer: Tokenizer) -> InputProcessor:
    return InputProcessor(smollm2_tokenizer, max_model_len=32, max_logprobs=20, vocab_size=49152)


def process(processor: InputProcessor, prompt: Prompt = "Hello", options: RequestOptions = OPTIONS, **params: Any) -> EngineCoreRequest:
    return processor.process(prompt, SamplingParams(**params), options)


def test_a_text_becomes_a_request_that_the_engine_can_decode(processor: InputProcessor, smollm2_tokenizer: Tokenizer) -> None:
    options = RequestOptions(request_id="chat-1", arrival_time=5.0, cache_salt="salt")
    request = process(processor, "Hello 😀", options, temperature=0.5, bad_words=["bad"], logit_bias={5: 1.5})
    assert request.prompt_token_ids == smollm2_tokenizer.encode("Hello 😀")
    assert (request.arrival_time, request.cache_salt) == (5.0, "salt")
    assert request.sampling_params.temperature == 0.5
    assert decode_request(encode(request)) == request


@pytest.mark.parametrize(
    ("prompt", "params", "words"),
    [
        ((1, 2), {}, "prompt must be a text or a list of token ids, got a tuple"),
        (None, {}, "prompt must be a text or a list of token ids, got a NoneType"),
        ([1, 2.0], {}, "prompt is no list of token ids: Expected `int`, got `float`"),
        ([1, "a"], {}, "prompt is no list of token ids: Expected `int`, got `str`"),
        ("a", {"max_tokens": 2.0}, "max_tokens: Expected `int | null`, got `float`"),
        ("a", {"stop": "word"}, "stop: Expected `array`, got `str`"),
        ("a", {"ignore_eos": 1}, "ignore_eos: Expected `bool`, got `int`"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(processor: InputProcessor, prompt: Any, params: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError) as raised:
        process(processor, prompt, **params)
    assert words in str(raised.value)
    assert raised.value.parameter == next(iter(params), "prompt")


def test_internal_ids_extend_the_external_id_and_are_unique(processor: InputProcessor) -> None:
    requests = [process(processor) for _ in range(100)]
    assert all(request.external_request_id == "chat-1" for request in requests)
    assert all(len(request.request_id) == len("chat-1-") + 16 and request.request_id.startswith("chat-1-") for request in requests)
    assert len({request.request_id for request in requests}) == 100


def test_params_are_cloned_and_never_changed(processor: InputProcessor) -> None:
    params = SamplingParams(max_tokens=None, seed=-1, prompt_logprobs=0)
    before = msgspec.json.encode(params)
    request = processor.process("Hello", params, OPTIONS)
    assert msgspec.json.encode(params) == before
    assert (request.sampling_params.max_tokens, request.sampling_params.seed, request.sampling_params.skip_reading_prefix_cache) == (31, -1, True)


@pytest.mark.case("C018")
@pytest.mark.parametrize(("length", "max_tokens", "expected"), [(31, None, 1), (31, 1, 1), (20, 12, 12), (1, None, 31)])
def test_a_prompt_with_room_for_its_output_is_accepted(processor: InputProcessor, length: int, max_tokens: int | None, expected: int) -> None:
    assert process(processor, [5] * length, max_tokens=max_tokens).sampling_params.max_tokens == expected


@pytest.mark.case("C018")
@pytest.mark.parametrize(("length", "max_tokens"), [(31, 16), (32, 1), (40, 16), (20, 13), (32, None), (40, None), (1, 33)])
def test_a_prompt_without_room_is_refused_with_all_three_numbers(processor: InputProcessor, length: int, max_tokens: int | None) -> None:
    with pytest.raises(ContextLengthError) as raised:
        process(processor, [5] * length, max_tokens=max_tokens)
    numbers = [32, length] + ([] if max_tokens is None else [max_tokens])
    assert all(f" {number} " in str(raised.value) for number in numbers)


def test_ids_that_cannot_fit_are_refused_before_they_are_looked_at(processor: InputProcessor) -> None:
    with pytest.raises(ContextLengthError, match="prompt has 1000000 tokens"):
        process(processor, [-1] * 1_000_000)


def test_the_work_of_a_request_counts_all_that_is_tokenized_or_walked() -> None:
    assert processing_work("x" * 4096, SamplingParams()) == 4096 == MAX_INLINE_WORK
    assert processing_work(TemplatedPrompt("x" * 5000), SamplingParams()) == 5000
    assert processing_work([1], SamplingParams(bad_words=["x"] * 1000)) > MAX_INLINE_WORK
    assert processing_work([1] * 100_000, SamplingParams()) > MAX_INLINE_WORK
    assert processing_work([1], SamplingParams(allowed_token_ids=[1] * 49152)) > MAX_INLINE_WORK


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(processor: InputProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Tokenizer, text: str) -> list[int]:
        raise AssertionError(f"tokenized {len(text)} characters")

    monkeypatch.setattr(Tokenizer, "encode", fail)
    with pytest.raises(ContextLengthError, match="at least 33 tokens") as raised:
        process(processor, "a" * 100_000)
    assert raised.value.parameter == "input_text"


def test_the_longest_text_of_the_longest_token_fits(processor: InputProcessor, smollm2_tokenizer: Tokenizer) -> None:
    longest = max((smollm2_tokenizer.token_bytes(i).decode(errors="ignore") for i in range(17, 49152)), key=len)
    assert len(process(processor, longest * 31, max_tokens=1).prompt_token_ids) == 31


@pytest.mark.parametrize("prompt", [[], ""])
def test_an_empty_prompt_is_refused(processor: InputProcessor, prompt: Prompt) -> None:
    with pytest.raises(ParameterError, match="empty"):
        process(processor, prompt)


@pytest.mark.case("C060")
@pytest.mark.parametrize("token_id", [-1, 257, 258, 305, 2**70])
def test_a_prompt_id_that_model_or_tokenizer_lacks_is_refused(byte_tokenizer: Tokenizer, token_id: int) -> None:
    small_model = InputProcessor(byte_tokenizer, 32, 20, vocab_size=257)
    with pytest.raises(ParameterError, match=f"token id {token_id}, outside the vocabulary of 257") as raised:
        process(small_model, [1, token_id])
    assert raised.value.parameter == "prompt"
    padded_model = InputProcessor(byte_tokenizer, 32, 20, vocab_size=320)
    assert process(padded_model, [257]).prompt_token_ids == [257]
    with pytest.raises(ParameterError, match="outside the vocabulary of 258"):
        process(padded_model, [305])


@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        ({"logit_bias": {49152: 1.0}}, "logit_bias"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"allowed_token_ids": [1, 49152]}, "allowed_token_ids"),
        ({"allowed_token_ids": [1] * 49153}, "allowed_token_ids"),
        ({"stop_token_ids": [49152]}, "stop_token_ids"),
        ({"logprob_token_ids": [49152]}, "logprob_token_ids"),
        ({"logprob_token_ids": [1, 2], "logprobs": 3}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"min_tokens": 32, "max_tokens": None}, "min_tokens"),
        ({"stop": ["x" * 1025]}, "stop"),
        ({"stop": ["\ud800"]}, "stop"),
        ({"bad_words": ["x" * 1025]}, "bad_words"),
        ({"seed": 2**64 - 1, "n": 2}, "seed"),
    ],
)
def test_what_the_model_does_not_allow_is_refused_by_name(processor: InputProcessor, params: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ParameterError) as raised:
        process(processor, **params)
    assert raised.value.parameter == parameter


@pytest.mark.case("C022")
@pytest.mark.parametrize("stop", [[""], ["END", ""]])
def test_an_empty_stop_string_is_refused_by_name(processor: InputProcessor, stop: list[str]) -> None:
    with pytest.raises(ParameterError) as raised:
        process(processor, stop=stop)
    assert raised.value.parameter == "stop"


def test_all_logprobs_are_allowed_where_the_limit_is_the_vocabulary(byte_tokenizer: Tokenizer) -> None:
    assert process(InputProcessor(byte_tokenizer, 32, 258, 258), [1], logprobs=-1).sampling_params.logprobs == -1


@pytest.mark.parametrize(
    ("options", "parameter"),
    [({"priority": 1}, "priority"), ({"cache_salt": ""}, "cache_salt"), ({"cache_salt": "\udc00"}, "cache_salt"), ({"request_id": "\ud800"}, "request_id")],
)
def test_options_that_cannot_be_honored_are_refused(processor: InputProcessor, options: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ParameterError) as raised:
        process(processor, options=RequestOptions(**({"request_id": "r"} | options)))
    assert raised.value.parameter == parameter


def test_the_longest_request_id_is_short_enough_for_the_engine_with_all_its_choices(processor: InputProcessor) -> None:
    request = process(processor, n=MAX_N, temperature=1.0, options=RequestOptions(request_id="é" * MAX_EXTERNAL_ID_LENGTH))
    assert max(map(len, ParentRequest(request).child_request_ids)) <= MAX_REQUEST_ID_LENGTH
    with pytest.raises(ParameterError, match="request_id must have at most 960 characters, got 961"):
        process(processor, options=RequestOptions(request_id="r" * (MAX_EXTERNAL_ID_LENGTH + 1)))


def test_a_priority_is_taken_where_priorities_count(smollm2_tokenizer: Tokenizer) -> None:
    processor = InputProcessor(smollm2_tokenizer, 32, 20, 49152, priority_scheduling=True)
    assert process(processor, options=RequestOptions(request_id="r", priority=-3)).priority == -3
    with pytest.raises(ParameterError, match="priority"):
        process(processor, options=RequestOptions(request_id="r", priority=2**40))


@pytest.mark.case("C046")
def test_the_ends_of_the_model_travel_with_the_request_unless_ignored(processor: InputProcessor) -> None:
    assert process(processor, stop_token_ids=[7]).eos_token_ids == [2]
    assert process(processor, stop_token_ids=[7]).sampling_params.stop_token_ids == [7]
    assert process(processor, ignore_eos=True).eos_token_ids == []


def test_bad_words_are_tokenized_bare_and_after_a_space(processor: InputProcessor, smollm2_tokenizer: Tokenizer) -> None:
    request = process(processor, bad_words=[" hello", "\n"])
    encoded = smollm2_tokenizer.encode_chat
    assert request.bad_words_token_ids[:2] == [encoded("hello"), encoded(" hello")]
    assert encoded("\n") in request.bad_words_token_ids


def test_a_bad_word_outside_the_model_vocabulary_is_refused(byte_tokenizer: Tokenizer) -> None:
    with pytest.raises(ParameterError, match="bad_words needs the token id 257"):
        process(InputProcessor(byte_tokenizer, 32, 20, 257), [1], bad_words=["</s>"])


def test_a_templated_prompt_gets_no_second_bos(byte_tokenizer: Tokenizer) -> None:
    processor = InputProcessor(byte_tokenizer, 32, 20, 258)
    assert process(processor, TemplatedPrompt("<s>hi")).prompt_token_ids == [256, *b"hi"]


def test_a_prompt_with_a_lone_surrogate_is_refused(processor: InputProcessor) -> None:
    with pytest.raises(ParameterError, match="lone surrogate at character 1"):
        process(processor, "a\ud800")


def test_allowing_only_tokens_that_end_the_request_before_its_min_tokens_is_refused(processor: InputProcessor, smollm2_tokenizer: Tokenizer) -> None:
    for allowed, stops in (([5], [5]), (list(smollm2_tokenizer.eos_token_ids), [])):
        restrictions: dict[str, Any] = {"allowed_token_ids": allowed, "stop_token_ids": stops}
        with pytest.raises(ParameterError, match="allowed_token_ids has only tokens that end the request") as error:
            processor.process("Hello", SamplingParams(max_tokens=4, min_tokens=4, **restrictions), OPTIONS)
        assert error.value.parameter == "allowed_token_ids"
        assert processor.process("Hello", SamplingParams(max_tokens=4, **restrictions), OPTIONS)
