"""FakeEngineCore: the real engine process, scheduler and protocol with a scripted model, for tests of what talks to an engine. Needs no torch.

>>> import asyncio, tempfile
>>> from stoker_engine.frontend.clients.async_mp import AsyncMPClient
>>> from stoker_engine.frontend.clients.base import ClientConfig
>>> from stoker_engine.protocol import EngineCoreRequest
>>> from stoker_engine.sampling_params import SamplingParams
>>> async def answer(client: AsyncMPClient) -> list[int]:
...     while not client.is_ready:
...         await asyncio.sleep(0.01)
...     await client.add_request(EngineCoreRequest("a", [1, 2], SamplingParams(max_tokens=3), arrival_time=0.0))
...     token_ids: list[int] = []
...     while len(token_ids) < 3:
...         token_ids += [token_id for output in (await client.get_output()).outputs for token_id in output.new_token_ids]
...     return token_ids
>>> async def main(socket_dir: str) -> list[int]:
...     client = AsyncMPClient(ClientConfig(socket_dir))
...     script = Script(default_reply=[7, 8, 9], load_seconds=0.1, tokens_per_second=100)
...     with FakeEngineCore(fake_engine_config(socket_dir), script):
...         try:
...             return await asyncio.wait_for(answer(client), timeout=30)
...         finally:
...             await client.shutdown()
>>> with tempfile.TemporaryDirectory() as directory:
...     asyncio.run(main(directory))
[7, 8, 9]

Where the engine is a container's program, `python -m stoker_engine.testing '{"default_reply": [7, 8, 9]}'` takes the flags of `stoker-engine` after the script.
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time
import zlib
from array import array
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from types import FrameType
from typing import Annotated, TypeVar

import msgspec
import numpy as np

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.core.grammar import GrammarOutput
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.run import EngineProcess
from stoker_engine.core.scheduler_output import NewRequestData, SchedulerOutput
from stoker_engine.errors import ConfigError, ModelLoadError
from stoker_engine.executor.base import ModelDescription, OnDownload
from stoker_engine.exit_codes import ExitCode
from stoker_engine.log import configure_logging
from stoker_engine.protocol import LogprobsArrays, LogprobsLists, ModelDownload
from stoker_engine.settings import from_args, to_args
from stoker_engine.supervisor_pipe import SupervisorPipe

T = TypeVar("T")

HANG_SECONDS = 3600.0
"""Longer than any test waits."""


SCRIPTED_REVISION = "5c21" * 10
"""The commit of a scripted model."""


class Reply(msgspec.Struct, forbid_unknown_fields=True):
    """What the scripted model says to one prompt. A prompt with no reply of its own gets the script's default."""

    prompt_token_ids: list[int]
    token_ids: list[int]


class Script(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A scripted model. Past the end of a reply it repeats the last token; with no default reply the next token is a hash of all tokens so far.

    A prompt that has `quoting_token_id` twice has a reply of its own, too: what comes after the first of them, up to and with the second.

    Time: `download_seconds` of a model of 100 bytes, with `download_message` as what it waits for, `load_seconds` with progress, then `ready_seconds` of
    warming up; a step takes `step_seconds`, or as long as gives each stream `tokens_per_second`; falling asleep takes `sleep_seconds`. Faults: `load_error`
    fails the load with these words; `hang_in_load` and `hang_at_step` wait for an hour; `crash_at_step` raises; `exit_code` ends the process without a
    word, in the step `exit_at_step`, or at the end of the load where there is none; `failing_token_id` in a prompt fails that request alone. Steps count
    from 1. SIGTERM has no effect until `ignore_sigterm_seconds` after the first.
    """

    vocab_size: int = 49152
    max_model_len: int = 8192
    replies: list[Reply] = []
    default_reply: list[int] | None = None
    quoting_token_id: int | None = None
    download_seconds: float = 0.0
    download_message: str = ""
    load_seconds: float = 0.0
    ready_seconds: float = 0.0
    step_seconds: float = 0.0
    tokens_per_second: Annotated[float, msgspec.Meta(gt=0)] | None = None
    sleep_seconds: float = 0.0
    load_error: str | None = None
    hang_in_load: bool = False
    hang_at_step: int | None = None
    crash_at_step: int | None = None
    exit_code: int | None = None
    exit_at_step: int | None = None
    failing_token_id: int | None = None
    ignore_sigterm_seconds: float = 0.0


class _RequestState:
    __slots__ = ("data", "num_computed", "reply", "token_ids")

    def __init__(self, data: NewRequestData, reply: list[int] | None) -> None:
        self.data = data
        self.reply = reply
        self.token_ids = list(data.token_ids)
        self.num_computed = data.num_computed_tokens


class ScriptedExecutor:
    """An Executor whose model is a Script. Made in the process's main thread, after its signal handlers."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._replies = {tuple(reply.prompt_token_ids): reply.token_ids for reply in script.replies}
        self._requests: dict[str, _RequestState] = {}
        self._scheduled: list[str] = []
        self._num_steps = 0
        self._next_step = 0.0
        self._missing = set[str]()
        if script.ignore_sigterm_seconds:
            _ignore_signals(script.ignore_sigterm_seconds)

    def fetch_model(self, on_progress: OnDownload) -> None:
        script = self._script
        for hundredth in range(100 if script.download_seconds else 0):
            rest = script.download_seconds * (1 - hundredth / 100)
            on_progress(ModelDownload(SCRIPTED_REVISION, 100, hundredth, 100 / script.download_seconds, rest), script.download_message)
            time.sleep(script.download_seconds / 100)
        if script.download_seconds:
            on_progress(ModelDownload(SCRIPTED_REVISION, 100, 100), "")

    def load_model(self, on_progress: Callable[[float], None]) -> ModelDescription:
        script = self._script
        for hundredth in range(100):
            if script.load_seconds:
                time.sleep(script.load_seconds / 100)
            on_progress((hundredth + 1) / 100)
        if script.hang_in_load:
            time.sleep(HANG_SECONDS)
        if script.load_error is not None:
            raise ModelLoadError(script.load_error)
        if script.exit_code is not None and script.exit_at_step is None:
            os._exit(script.exit_code)
        return ModelDescription(max_model_len=script.max_model_len, vocab_size=script.vocab_size, dtype="float32", kv_block_bytes=1024)

    def profile(self) -> int:
        return 1 << 24

    def initialize_kv_cache(self, num_blocks: int) -> None:
        """A script keeps no keys and values."""
        time.sleep(self._script.ready_seconds)

    def execute_model(self, scheduler_output: SchedulerOutput) -> Future[ModelRunnerOutput | None]:
        for request_id in (*scheduler_output.finished_request_ids, *scheduler_output.preempted_request_ids):
            self._requests.pop(request_id, None)
        if not scheduler_output.total_num_scheduled_tokens:
            return _done(ModelRunnerOutput())
        self._begin_step()
        for data in scheduler_output.new_requests:
            self._requests[data.request_id] = _RequestState(data, self._reply(data.token_ids[: data.num_prompt_tokens]))
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
        """A script has no memory to give back, but must not be asked for a step without it."""
        time.sleep(self._script.sleep_seconds)
        self._missing = {"weights", "kv_cache"}

    def wake_up(self, tags: Collection[str]) -> None:
        self._missing -= set(tags)

    def start_profile(self, directory: str) -> None:
        """A script computes nothing worth a record."""

    def stop_profile(self) -> None: ...

    def shutdown(self) -> None:
        self._requests.clear()

    def _reply(self, prompt: list[int]) -> list[int] | None:
        quote = self._script.quoting_token_id
        if quote is not None and prompt.count(quote) > 1:
            start = prompt.index(quote) + 1
            return prompt[start : prompt.index(quote, start) + 1]
        return self._replies.get(tuple(prompt), self._script.default_reply)

    def _begin_step(self) -> None:
        script = self._script
        self._num_steps += 1
        if self._missing:
            raise RuntimeError(f"a step while {', '.join(sorted(self._missing))} sleep")
        if self._num_steps == script.crash_at_step:
            raise RuntimeError(f"the script crashes in step {self._num_steps}")
        if self._num_steps == script.exit_at_step and script.exit_code is not None:
            os._exit(script.exit_code)
        time.sleep(HANG_SECONDS if self._num_steps == script.hang_at_step else script.step_seconds)
        if script.tokens_per_second is not None:
            # By the clock, so that the rate holds whatever else a step costs.
            now = time.monotonic()
            time.sleep(max(0.0, self._next_step - now))
            self._next_step = max(now, self._next_step) + 1 / script.tokens_per_second

    def _sample(self, request_id: str, state: _RequestState, output: ModelRunnerOutput) -> None:
        data = state.data
        prompt = state.token_ids[: data.num_prompt_tokens]
        if self._script.failing_token_id in prompt:
            output.failures[request_id] = "the script fails this request"
            return
        num_output = len(state.token_ids) - data.num_prompt_tokens
        params = data.sampling_params
        if params.prompt_logprobs is not None and num_output == 0:
            output.prompt_logprobs[request_id] = self._prompt_logprobs(prompt[1:], params.prompt_logprobs)
        token_id = self._next_token(state, num_output)
        state.token_ids.append(token_id)
        output.sampled_token_ids[request_id] = [token_id]
        if params.logprob_token_ids is not None:
            output.logprobs[request_id] = self._logprobs(token_id, params.logprob_token_ids)
        elif params.logprobs is not None:
            output.logprobs[request_id] = self._logprobs(token_id, [(token_id + i) % self._script.vocab_size for i in range(params.logprobs)])

    def _next_token(self, state: _RequestState, num_output: int) -> int:
        if state.reply is None:
            return zlib.crc32(array("q", state.token_ids).tobytes()) % self._script.vocab_size
        return state.reply[min(num_output, len(state.reply) - 1)]

    def _logprobs(self, token_id: int, others: list[int]) -> LogprobsLists:
        """The token itself first, at -0.125; then the others, each 0.125 less likely than the one before."""
        values = [-0.125, *(-0.125 * (i + 1) for i in range(len(others)))]
        return LogprobsLists(token_ids=[[token_id, *others]], logprobs=[values], ranks=[1])

    def _prompt_logprobs(self, token_ids: list[int], num_logprobs: int) -> LogprobsArrays:
        """Of each token itself, then of it again and its successors, as `_logprobs` has them."""
        own = np.array(token_ids, np.int32).reshape(-1, 1)
        successors = (own + np.arange(num_logprobs, dtype=np.int32)) % self._script.vocab_size
        values = -0.125 * np.array([1, *range(1, num_logprobs + 1)], np.float32)
        return LogprobsArrays(
            token_ids=np.concatenate([own, successors], axis=1, dtype=np.int32),
            logprobs=np.tile(values, (len(own), 1)),
            ranks=np.ones(len(own), np.int32),
        )


def _done(result: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(result)
    return future


def _ignore_signals(seconds: float) -> None:
    """Comes between the operating system and who listens, by a handler or a wakeup descriptor: `seconds` after the first signal one SIGTERM gets through."""
    handler = signal.getsignal(signal.SIGTERM)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    wakeup_fd = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    is_over = threading.Event()

    def in_main_thread(number: int, frame: FrameType | None) -> None:
        if is_over.is_set() and callable(handler):
            handler(number, frame)

    def listen() -> None:
        os.read(read_end, 1)
        time.sleep(seconds)
        if select.select([read_end], [], [], 0)[0]:
            os.read(read_end, 4096)
        is_over.set()
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            os.write(wakeup_fd, os.read(read_end, 4096))

    signal.signal(signal.SIGTERM, in_main_thread)
    threading.Thread(target=listen, name="late-signals", daemon=True).start()


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


def _main(args: Sequence[str]) -> int:
    try:
        script = msgspec.json.decode(args[0] if args else "", type=Script)
        config = from_args(EngineConfig, args[1:], program="fake-engine")
    except msgspec.MsgspecError as error:
        sys.stderr.write(f"fake-engine: the first argument must be a script in JSON: {error}\n")
        return ExitCode.BAD_CONFIG
    except ConfigError as error:
        sys.stderr.write(f"fake-engine: {error}\n")
        return ExitCode.BAD_CONFIG
    configure_logging(config.log_level, config.log_format)
    return EngineProcess(config, lambda _config: ScriptedExecutor(script)).run()


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
