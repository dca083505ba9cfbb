"""ModelRunner: one step, from the scheduler's decision to tokens. It only orders the parts: input batch, model, sampler, prompt log probabilities."""

from dataclasses import dataclass

import torch
from torch import Tensor

from stoker_engine.core.grammar import GrammarOutput
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.scheduler_output import SchedulerOutput
from stoker_engine.models.loader import LoadedModel
from stoker_engine.sampling.cpu_picker import CpuPicker
from stoker_engine.sampling.grammar_mask import NO_BITMASKS, rows_of
from stoker_engine.sampling.picker import Picker
from stoker_engine.sampling.prompt_logprobs import PromptLogprobs
from stoker_engine.sampling.sampler import Sampler
from stoker_engine.sampling.sampling_metadata import SamplingMetadata, build_sampling_metadata
from stoker_engine.sampling.sampling_state import SamplingState, new_sampling_state
from stoker_engine.sampling.torch_picker import TorchPicker
from stoker_engine.worker.device_inputs import DeviceInputs
from stoker_engine.worker.growing_table import Int64s
from stoker_engine.worker.input_batch import InputBatch
from stoker_engine.worker.step_inputs import StepInputs


@dataclass(slots=True, frozen=True)
class _Forward:
    """What sampling needs of the forward before it. `computed` is None where no request could be run; hidden states: [T, hidden]."""

    output: ModelRunnerOutput
    computed: tuple[StepInputs, Tensor] | None


class ModelRunner:
    """Keeps what it needs of each request between steps: its tokens, sampled ones included, its blocks, its parameters."""

    def __init__(self, loaded: LoadedModel, vocab_size: int, engine_seed: int, kv_caches: list[Tensor]) -> None:
        """vocab_size: ids from there on are never sampled. engine_seed: for requests that bring no seed. kv_caches: one per layer."""
        self._model = loaded.model
        self._vocab_size = vocab_size
        self._engine_seed = engine_seed
        self._kv_caches = kv_caches
        self._batch = InputBatch(loaded.kv_cache_shape.block_size)
        self._device_inputs = DeviceInputs(loaded.ops, kv_caches[0])
        self._sampling_states: dict[str, SamplingState] = {}
        self._prompt_logprobs = PromptLogprobs(vocab_size)
        self._sampler = Sampler(vocab_size, _choose_picker(loaded, vocab_size))
        self._forwarded: _Forward | None = None
        self._metadata: SamplingMetadata | None = None
        self._metadata_step: StepInputs | None = None
        self._metadata_key: tuple[int, bytes] = (0, b"")

    @torch.inference_mode()
    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | None:
        """A step's forward. None where it is for `sample_tokens` to tell what came of it; a step of zero tokens is answered directly.

        A request whose data is inconsistent, or whose logits are not finite, fails alone.
        """
        if self._forwarded is not None:
            raise RuntimeError("execute_model before the tokens of the step before were sampled")
        self._update_requests(scheduler_output)
        output = ModelRunnerOutput()
        step = self._batch.continue_step(scheduler_output) or self._begin_step(scheduler_output, output)
        if not scheduler_output.num_scheduled_tokens:
            return output
        self._forwarded = _Forward(output, None if step is None else (step, self._forward(step)))
        return None

    @torch.inference_mode()
    def sample_tokens(self, grammar_output: GrammarOutput | None) -> ModelRunnerOutput:
        """What came of the last forward: sampled tokens, log probabilities, failures."""
        if self._forwarded is None:
            raise RuntimeError("sample_tokens without a forward before it")
        output, computed = self._forwarded.output, self._forwarded.computed
        self._forwarded = None
        if computed is not None:
            step, hidden_states = computed
            if len(self._prompt_logprobs):
                self._collect_prompt_logprobs(step, hidden_states, output)
            if step.sampling_ids:
                self._sample(step, hidden_states, grammar_output, output)
        return output

    def _update_requests(self, scheduler_output: SchedulerOutput) -> None:
        for request_id in (*scheduler_output.finished_request_ids, *scheduler_output.preempted_request_ids):
            self._batch.remove(request_id)
            self._sampling_states.pop(request_id, None)
            self._prompt_logprobs.remove(request_id)
        for request in scheduler_output.new_requests:
            self._batch.add(request)
            self._sampling_states[request.request_id] = new_sampling_state(request, self._vocab_size, self._engine_seed)
            self._prompt_logprobs.add(request)

    def _begin_step(self, scheduler_output: SchedulerOutput, output: ModelRunnerOutput) -> StepInputs | None:
        """A step that does not just go on; None where no request of it can be run."""
        self._batch.update(scheduler_output.cached_requests)
        num_scheduled_tokens = scheduler_output.num_scheduled_tokens
        output.failures = failures = self._batch.find_faults(num_scheduled_tokens)
        if failures:
            num_scheduled_tokens = {request_id: number for request_id, number in num_scheduled_tokens.items() if request_id not in failures}
        return self._batch.make_step(num_scheduled_tokens) if num_scheduled_tokens else None

    def _forward(self, step: StepInputs) -> Tensor:
        """Hidden states of the step's tokens, [T, hidden]."""
        inputs = self._device_inputs.of(step)
        return self._model.forward(inputs.input_ids, inputs.positions, inputs.attention, self._kv_caches)

    def _collect_prompt_logprobs(self, step: StepInputs, hidden_states: Tensor, output: ModelRunnerOutput) -> None:
        for index, request_id in enumerate(step.request_ids):
            if request_id not in self._prompt_logprobs:
                continue
            start, end = int(step.query_start[index]), int(step.query_start[index + 1])
            failure = self._prompt_logprobs.collect(request_id, int(step.positions[start]), hidden_states[start:end], self._model.compute_logits)
            if failure is not None:
                output.failures[request_id] = failure

    def _sample(self, step: StepInputs, hidden_states: Tensor, grammar_output: GrammarOutput | None, output: ModelRunnerOutput) -> None:
        if step.last_tokens is not None:
            hidden_states = hidden_states[torch.from_numpy(step.last_tokens).to(hidden_states.device)]
        metadata = self._sampling_metadata(step)
        bitmasks = NO_BITMASKS if grammar_output is None else rows_of(grammar_output.bitmasks, step.sampling_ids)
        sampled = self._sampler.sample(self._model.compute_logits(hidden_states), metadata, step.next_positions, bitmasks)
        for row, reason in sampled.failures.items():
            output.failures[step.sampling_ids[row]] = reason
        self._record(step, sampled.token_ids, metadata, output)
        output.logprobs = {step.sampling_ids[row]: lists for row, lists in sampled.logprobs.items()}

    def _record(self, step: StepInputs, token_ids: Int64s, metadata: SamplingMetadata, output: ModelRunnerOutput) -> None:
        """Appends the new tokens to the requests, and reports them of those that live on."""
        self._batch.append_tokens(step, token_ids)
        new_tokens = token_ids.tolist()
        for row, state in metadata.following:
            state.append(new_tokens[row])
        output.sampled_token_ids = {request_id: [token_id] for request_id, token_id in zip(step.sampling_ids, new_tokens, strict=True)}
        for request_id in output.failures:
            output.sampled_token_ids.pop(request_id, None)
        if len(self._prompt_logprobs):
            output.prompt_logprobs = {
                request_id: self._prompt_logprobs.take(request_id) for request_id in output.sampled_token_ids if request_id in self._prompt_logprobs
            }

    def _sampling_metadata(self, step: StepInputs) -> SamplingMetadata:
        """Built again only when other requests sample than in the step before."""
        if self._metadata is not None and step is self._metadata_step:
            return self._metadata
        key = (self._batch.version, step.sampling_rows.tobytes())
        if self._metadata is None or key != self._metadata_key:
            states = [self._sampling_states[request_id] for request_id in step.sampling_ids]
            self._metadata, self._metadata_key = build_sampling_metadata(states, self._vocab_size, self._model.device), key
        self._metadata_step = step
        return self._metadata


def _choose_picker(loaded: LoadedModel, vocab_size: int) -> Picker:
    return TorchPicker(vocab_size) if loaded.ops.cpu is None else CpuPicker(loaded.ops.cpu, vocab_size)
