"""Whether the token sampled last ends a request. Stop strings are the frontend's matter."""

from stoker_engine.core.request import Request, RequestStatus
from stoker_engine.sampling_params import RepetitionDetection

REPETITION_DETECTED = "repetition_detected"


def check_stop(request: Request) -> RequestStatus | None:
    """The status the request ends with, `request.stop_reason` set; None where it goes on.

    `min_tokens` holds back every end but the length caps: a request that can grow no further ends whatever it asked for.
    """
    token_id = request.sequence.token_ids[-1]
    if token_id in request.end_token_ids and _may_stop(request):
        if token_id not in request.wire.eos_token_ids:
            request.stop_reason = token_id
        return RequestStatus.FINISHED_STOPPED
    if request.num_tokens >= request.max_num_tokens:
        return RequestStatus.FINISHED_LENGTH_CAPPED
    detection = request.wire.sampling_params.repetition_detection
    if detection is not None and _may_stop(request) and is_repeating(request.sequence.output_token_ids, detection):
        request.stop_reason = REPETITION_DETECTED
        return RequestStatus.FINISHED_REPETITION
    return None


def _may_stop(request: Request) -> bool:
    return request.num_output_tokens >= request.wire.sampling_params.min_tokens


def is_repeating(token_ids: list[int], detection: RepetitionDetection) -> bool:
    """Whether the last tokens are `min_count` copies of one pattern of `min_size` to `max_size` tokens."""
    for size in range(detection.min_size, detection.max_size + 1):
        length = size * detection.min_count
        if length > len(token_ids):
            return False
        if token_ids[-1] != token_ids[-1 - size]:
            continue
        tail = token_ids[-length:]
        if tail[size:] == tail[:-size]:
            return True
    return False
