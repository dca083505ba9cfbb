"""The arithmetic limit: how fast a decoder could run where nothing but memory and multiplications took time, on the machine as it was just measured."""

from dataclasses import dataclass

from stoker_engine.models.config import ModelShape

BF16_BYTES = 2
INT8_BYTES = 1


@dataclass(slots=True, frozen=True)
class Machine:
    """Measured: bytes read and bf16 operations per second. `peak` None: not measured, so that only bandwidth limits."""

    bandwidth: float
    peak: float | None = None

    def seconds(self, num_bytes: float, num_operations: float) -> float:
        """Of one operation, which reads while it computes: the slower of the two."""
        return max(num_bytes / self.bandwidth, num_operations / self.peak if self.peak else 0.0)


@dataclass(slots=True, frozen=True)
class Cost:
    """What one token costs in a decoder with a bf16 KV cache. Parameters count multiplications; norms, biases and scales are left out."""

    weight_bytes: int
    layer_parameters: int
    head_parameters: int
    kv_bytes: int
    attention_operations: int

    @classmethod
    def of(cls, shape: ModelShape, quantization: str = "none") -> "Cost":
        query, key = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        per_layer = shape.hidden_size * (2 * query + 2 * key + 3 * shape.intermediate_size)
        return cls(
            weight_bytes=BF16_BYTES if quantization == "none" else INT8_BYTES,
            layer_parameters=shape.num_layers * per_layer,
            head_parameters=shape.vocab_size * shape.hidden_size,
            kv_bytes=shape.num_layers * 2 * key * BF16_BYTES,
            attention_operations=shape.num_layers * 4 * query,
        )

    def decode_seconds(self, machine: Machine, num_requests: int, context: float) -> float:
        """One step of `num_requests` requests with `context` tokens each."""
        matrices = self._matrix_seconds(machine, num_requests, num_requests)
        keys = num_requests * context
        return matrices + machine.seconds(keys * self.kv_bytes, keys * self.attention_operations)

    def prefill_seconds(self, machine: Machine, length: int, num_requests: int = 1) -> float:
        """Prompts of `length` tokens in one step; only each one's last row gets logits."""
        matrices = self._matrix_seconds(machine, num_requests * length, num_requests)
        seen = length * (length + 1) / 2
        return matrices + num_requests * machine.seconds(length * self.kv_bytes, seen * self.attention_operations)

    def batch_seconds(self, machine: Machine, num_requests: int, concurrency: int, lengths: tuple[int, int]) -> float:
        """`num_requests` of `lengths` (input, output), `concurrency` at a time: their prefills, then their decode steps, always full."""
        input_len, output_len = lengths
        steps = (output_len - 1) * num_requests / concurrency
        return self.prefill_seconds(machine, input_len, num_requests) + steps * self.decode_seconds(machine, concurrency, input_len + output_len / 2)

    def _matrix_seconds(self, machine: Machine, rows: int, logits_rows: int) -> float:
        layers = machine.seconds(self.layer_parameters * self.weight_bytes, 2 * self.layer_parameters * rows)
        return layers + machine.seconds(self.head_parameters * self.weight_bytes, 2 * self.head_parameters * logits_rows)
