"""FakeEngineCore: the real engine process, scheduler and protocol with a scripted model, for tests of what talks to an engine. Needs no torch.

with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[1, 2, 3, eos])) as engine:
    ...
    engine.process.kill()
"""

import subprocess
import sys
import time
import zlib
from array import array
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import TypeVar

import msgspec

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.core.grammar import GrammarOutput
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.run import EngineProcess
from stoker_engine.core.scheduler_output import NewRequestData, SchedulerOutput
from stoker_engine.errors import ModelLoadError
from stoker_engine.executor.base import ModelDescription
from stoker_engine.log import configure_logging
from stoker_engine.protocol import LogprobsLists
from stoker_engine.settings import from_args, to_args
from stoker_engine.supervisor_pipe import SupervisorPipe

T = TypeVar("T")


class Reply(msgspec.Struct):
    """What the scripted model says to one prompt. A prompt with no reply of its own gets the script's default."""

    prompt_token_ids: list[int]
    token_ids: list[int]


class Script(msgspec.Struct, kw_only=True):
    """A scripted model. Past the end of a reply it repeats the last token; with no default reply the next token is a hash of all tokens so far.

    `load_seconds` and `step_seconds` are slept; `load_error` fails the load with these words; `crash_at_step` raises in that step; `hang_at_step`
    sleeps for an hour in it; `failing_token_id` in a prompt fails that request alone.
    """

    vocab_size: int = 49152
    max_model_len: int = 8192
    replies: list[Reply] = []
    default_reply: list[int] | None = None
    load_seconds: float = 0.0
    step_seconds: float = 0.0
    load_error: str | None = None
    crash_at_step: int | None = None
    hang_at_step: int | None = None
    failing_token_id: int | None = None


def _done(result: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(result)
    return future


class _RequestState:
    __slots__ = ("data", "num_computed", "token_ids")

    def __init__(self, data: NewRequestData) -> None:
        self.data = data
        self.token_ids = list(data.token_ids)
        self.num_computed = data.num_computed_tokens


class ScriptedExecutor:
    """An Executor whose model is a Script."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._replies = {tuple(reply.prompt_token_ids): reply.token_ids for reply in script.replies}
        self._requests: dict[str, _RequestState] = {}
        self._scheduled: list[str] = []
        self._num_steps = 0

    def load_model(self, on_progress: Callable[[float], None]) -> ModelDescription:
        for hundredth in range(100):
            if self._script.load_seconds:
                time.sleep(self._script.load_seconds / 100)
            on_progress((hundredth + 1) / 100)
        if self._script.load_error is not None:
            raise ModelLoadError(self._script.load_error)
        return ModelDescription(max_model_len=self._script.max_model_len, vocab_size=self._script.vocab_size, dtype="float32", kv_block_bytes=1024)

    def profile(self) -> int:
        return 1 << 24

    def initialize_kv_cache(self, num_blocks: int) -> None:
        pass

    def execute_model(self, scheduler_output: SchedulerOutput) -> Future[ModelRunnerOutput | None]:
        for request_id in (*scheduler_output.finished_request_ids, *scheduler_output.preempted_request_ids):
            self._requests.pop(request_id, None)
        if not scheduler_output.total_num_scheduled_tokens:
            return _done(ModelRunnerOutput())
        self._num_steps += 1
        if self._num_steps == self._script.crash_at_step:
            raise RuntimeError(f"the script crashes in step {self._num_steps}")
        time.sleep(3600 if self._num_steps == self._script.hang_at_step else self._script.step_seconds)
        for data in scheduler_output.new_requests:
            self._requests[data.request_id] = _RequestState(data)
        for request_id, num_scheduled in scheduler_output.num_scheduled_tokens.items():
            self._requests[request_id].num_computed += num_scheduled
        self._scheduled = list(scheduler_output.num_scheduled_tokens)
        return _done(None)

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        """A script has no logits for a grammar to mask."""
        output = ModelRunnerOutput()
        for request_id in self._scheduled:
            state = self._requests[request_id]
            if state.num_computed == len(state.token_ids):
                self._sample(request_id, state, output)
        return _done(output)

    def register_failure_callback(self, callback: Callable[[str], None]) -> None:
        """Never called: a script fails in its steps."""

    def sleep(self, level: int) -> None:
        """A script has no memory to give back."""

    def wake_up(self, tags: Collection[str]) -> None: ...

    def start_profile(self, directory: str) -> None:
        """A script computes nothing worth a record."""

    def stop_profile(self) -> None: ...

    def shutdown(self) -> None:
        self._requests.clear()

    def _sample(self, request_id: str, state: _RequestState, output: ModelRunnerOutput) -> None:
        data = state.data
        prompt = state.token_ids[: data.num_prompt_tokens]
        if self._script.failing_token_id in prompt:
            output.failures[request_id] = "the script fails this request"
            return
        num_output = len(state.token_ids) - data.num_prompt_tokens
        params = data.sampling_params
        if params.prompt_logprobs is not None and num_output == 0:
            output.prompt_logprobs[request_id] = self._logprobs(prompt[1:], params.prompt_logprobs)
        token_id = self._next_token(prompt, num_output, state.token_ids)
        state.token_ids.append(token_id)
        output.sampled_token_ids[request_id] = [token_id]
        if params.logprobs is not None:
            output.logprobs[request_id] = self._logprobs([token_id], params.logprobs)

    def _next_token(self, prompt: list[int], num_output: int, token_ids: list[int]) -> int:
        reply = self._replies.get(tuple(prompt), self._script.default_reply)
        if reply is None:
            return zlib.crc32(array("q", token_ids).tobytes()) % self._script.vocab_size
        return reply[min(num_output, len(reply) - 1)]

    def _logprobs(self, token_ids: list[int], num_logprobs: int) -> LogprobsLists:
        """The token itself first, at -0.125; then the token again and its successors, each 0.125 less likely."""
        rows = [[token_id, *((token_id + i) % self._script.vocab_size for i in range(num_logprobs))] for token_id in token_ids]
        values = [-0.125, *(-0.125 * (i + 1) for i in range(num_logprobs))]
        return LogprobsLists(token_ids=rows, logprobs=[values] * len(rows), ranks=[1] * len(rows))


class FakeEngineCore:
    """A child process that runs the engine with a script, on the sockets that `config` names; ends with the `with` block, or with this process."""

    def __init__(self, config: EngineConfig, script: Script) -> None:
        self.supervisor = SupervisorPipe()
        supervised = msgspec.structs.replace(config, supervisor_fd=self.supervisor.read_end)
        command = [sys.executable, "-m", "stoker_engine.testing", msgspec.json.encode(script).decode(), *to_args(supervised)]
        self.process = subprocess.Popen(command, pass_fds=(self.supervisor.read_end,))

    def __enter__(self) -> "FakeEngineCore":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.process.kill()
        self.process.wait()
        self.supervisor.close()

    def abandon(self) -> None:
        """What the engine sees when the process that started it ends."""
        self.supervisor.close()


def fake_engine_config(socket_dir: str) -> EngineConfig:
    """Settings for a FakeEngineCore; vary them by `msgspec.structs.replace`."""
    return EngineConfig(
        model=ModelConfig(uri="file:///scripted"),
        socket_dir=socket_dir,
        termination_message_path=f"{socket_dir}/engine-termination.json",
        log_level="warning",
    )


def _main() -> None:
    script = msgspec.json.decode(sys.argv[1], type=Script)
    config = from_args(EngineConfig, sys.argv[2:], program="fake-engine")
    configure_logging(config.log_level)
    sys.exit(EngineProcess(config, lambda _config: ScriptedExecutor(script)).run())


if __name__ == "__main__":
    _main()
