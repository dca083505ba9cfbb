"""What each endpoint takes and answers: the table that the OpenAPI document is made of."""

from dataclasses import dataclass
from typing import Any

from stoker_engine.startup_report import StartupReport
from stoker_gateway.anthropic import protocol as messages
from stoker_gateway.anthropic.errors import MessagesErrorBody
from stoker_gateway.anthropic.request import COUNT_TOKENS_RULES, MESSAGES_RULES, CountTokensRequest, MessagesRequest
from stoker_gateway.api.engine_control import IsPaused, IsSleeping, PauseQuery, ResetQuery, SleepQuery, WakeUpQuery
from stoker_gateway.api.health import Health
from stoker_gateway.api.load import Load
from stoker_gateway.api.responses.stored import GetQuery, ItemsQuery
from stoker_gateway.openai.errors import ErrorBody
from stoker_gateway.openai.fields import CHAT_RULES, COMPLETION_RULES, FieldRules
from stoker_gateway.openai.protocol import ChatCompletion, ChatCompletionChunk, Completion, Model, ModelList
from stoker_gateway.openai.request import ChatCompletionRequest, CompletionRequest
from stoker_gateway.openai.responses import events
from stoker_gateway.openai.responses.protocol import DeletedResponse, InputItemList, Response
from stoker_gateway.openai.responses.request import RESPONSES_RULES, ResponsesRequest
from stoker_gateway.openai.tokenization import DETOKENIZE_RULES, TOKENIZE_RULES, Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest, Version

NO_RULES = FieldRules(ignored=frozenset())
READ_ERRORS = (400, 401, 404, 500, 503)
CHANGE_ERRORS = (400, 401, 403, 404, 500, 503)
BODY_ERRORS = (400, 401, 403, 404, 413, 415, 429, 500, 503, 504)
CONTROL_ERRORS = (400, 401, 403, 409, 500, 503)
RESPONSE_EVENTS = (
    events.Created,
    events.Queued,
    events.InProgress,
    events.ItemAdded,
    events.PartAdded,
    events.TextDelta,
    events.TextDone,
    events.ReasoningDelta,
    events.ReasoningDone,
    events.ArgumentsDelta,
    events.ArgumentsDone,
    events.PartDone,
    events.ItemDone,
    events.Completed,
    events.Incomplete,
    events.Failed,
)
DONE = "[DONE]"
MESSAGE_EVENTS = messages.MessageEvent.__args__


@dataclass(slots=True, frozen=True, kw_only=True)
class Operation:
    """`answer` is the type of a 200, and of a 503 where `is_probe`; None is a page of `page_type`. `events` are what a stream has in its place; an `end`
    that is no JSON may follow them.

    `links` are the endpoints whose path takes the answer's id.
    """

    summary: str
    answer: Any
    body: Any = None
    rules: FieldRules = NO_RULES
    query: Any = None
    events: tuple[Any, ...] = ()
    end: str | None = None
    errors: tuple[int, ...] = READ_ERRORS
    error: Any = ErrorBody
    is_probe: bool = False
    page_type: str = "text/plain"
    links: tuple[tuple[str, str], ...] = ()


def _control(summary: str, *, query: Any = None, answer: Any = dict[str, Any]) -> Operation:
    return Operation(summary=summary, answer=answer, query=query, errors=CONTROL_ERRORS)


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", "/v1/chat/completions"): Operation(
        summary="Answer a chat",
        body=ChatCompletionRequest,
        rules=CHAT_RULES,
        answer=ChatCompletion,
        events=(ChatCompletionChunk, ErrorBody),
        end=DONE,
        errors=BODY_ERRORS,
    ),
    ("POST", "/v1/completions"): Operation(
        summary="Complete prompts",
        body=CompletionRequest,
        rules=COMPLETION_RULES,
        answer=Completion,
        events=(Completion, ErrorBody),
        end=DONE,
        errors=BODY_ERRORS,
    ),
    ("POST", "/v1/messages"): Operation(
        summary="Answer a chat, in Anthropic's shape",
        body=MessagesRequest,
        rules=MESSAGES_RULES,
        answer=messages.Message,
        events=(*MESSAGE_EVENTS, MessagesErrorBody),
        errors=BODY_ERRORS,
        error=MessagesErrorBody,
    ),
    ("POST", "/v1/messages/count_tokens"): Operation(
        summary="Count what a message would read",
        body=CountTokensRequest,
        rules=COUNT_TOKENS_RULES,
        answer=messages.TokenCount,
        errors=BODY_ERRORS,
        error=MessagesErrorBody,
    ),
    ("POST", "/v1/responses"): Operation(
        summary="Create a response",
        body=ResponsesRequest,
        rules=RESPONSES_RULES,
        answer=Response,
        events=RESPONSE_EVENTS,
        errors=BODY_ERRORS,
        links=(
            ("GET", "/v1/responses/{response_id}"),
            ("DELETE", "/v1/responses/{response_id}"),
            ("POST", "/v1/responses/{response_id}/cancel"),
            ("GET", "/v1/responses/{response_id}/input_items"),
        ),
    ),
    ("GET", "/v1/responses/{response_id}"): Operation(summary="Fetch a response", query=GetQuery, answer=Response, events=RESPONSE_EVENTS),
    ("DELETE", "/v1/responses/{response_id}"): Operation(summary="Forget a response", answer=DeletedResponse, errors=CHANGE_ERRORS),
    ("POST", "/v1/responses/{response_id}/cancel"): Operation(summary="End a response in the background", answer=Response, errors=CHANGE_ERRORS),
    ("GET", "/v1/responses/{response_id}/input_items"): Operation(summary="List what a response has read", query=ItemsQuery, answer=InputItemList),
    ("GET", "/v1/models"): Operation(summary="List the names of the model", answer=ModelList, errors=(401, 500, 503)),
    ("GET", "/v1/models/{model}"): Operation(summary="Describe the model", answer=Model),
    ("POST", "/tokenize"): Operation(summary="Text or messages to token ids", body=TokenizeRequest, rules=TOKENIZE_RULES, answer=Tokenized, errors=BODY_ERRORS),
    ("POST", "/detokenize"): Operation(summary="Token ids to text", body=DetokenizeRequest, rules=DETOKENIZE_RULES, answer=Detokenized, errors=BODY_ERRORS),
    ("GET", "/"): Operation(summary="The playground: a page to chat with the model", answer=None, errors=(404,), page_type="text/html"),
    ("GET", "/version"): Operation(summary="The version of the server", answer=Version, errors=(401,)),
    ("GET", "/openapi.json"): Operation(summary="This document", answer=dict[str, Any], errors=(401,)),
    ("GET", "/livez"): Operation(summary="Whether the process answers", answer=Health, errors=()),
    ("GET", "/readyz"): Operation(summary="Whether requests would be served", answer=Health, errors=(), is_probe=True),
    ("GET", "/health"): Operation(summary="As /readyz", answer=Health, errors=(), is_probe=True),
    ("GET", "/startupz"): Operation(summary="How far the engine has come", answer=StartupReport, errors=(), is_probe=True),
    ("GET", "/load"): Operation(summary="How busy the server is", answer=Load, errors=()),
    ("GET", "/metrics"): Operation(summary="Metrics for Prometheus", answer=None, errors=()),
    ("GET", "/metrics/vllm"): Operation(summary="The same under vLLM's names", answer=None, errors=()),
    ("POST", "/pause"): _control("Stop computing", query=PauseQuery),
    ("POST", "/resume"): _control("Go on computing"),
    ("GET", "/is_paused"): _control("Whether it computes", answer=IsPaused),
    ("POST", "/sleep"): _control("Give memory back", query=SleepQuery),
    ("POST", "/wake_up"): _control("Take memory again", query=WakeUpQuery),
    ("GET", "/is_sleeping"): _control("Whether it sleeps", answer=IsSleeping),
    ("POST", "/reset_prefix_cache"): _control("Empty the prefix cache", query=ResetQuery),
    ("POST", "/start_profile"): _control("Begin a profile"),
    ("POST", "/stop_profile"): _control("End a profile"),
}
