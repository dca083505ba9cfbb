"""OutputSocket: the PUSH to one api. It never blocks in a send, and counts what the api has not taken yet."""

import time
from typing import Any

import zmq

from stoker_engine.core.send_buffers import BufferPool
from stoker_engine.protocol import EngineCoreOutputs
from stoker_engine.serialization import MessageEncoder

MAX_BACKLOG_MESSAGES = 10_000
"""One per step: a minute and more of a fast engine's outputs. An api that took none of them is not late but stopped."""
MAX_BACKLOG_BYTES = 64 << 20
"""What a stopped api may cost the engine in memory; the outputs of a minute at 32 streams are 10 MB, log probabilities of long prompts 3 MB each."""
CONNECT_POLL_MS = 100
FLUSH_POLL_SECONDS = 0.005


class OutputSocket:
    """For one thread. Outputs are encoded into reused buffers; large ones are sent from where they are."""

    def __init__(self, context: zmq.Context[Any], address: str, client: bytes, identity: bytes) -> None:
        self.client = client
        self._identity = identity
        self._encoder = MessageEncoder()
        self._buffers = BufferPool()
        self._push: zmq.Socket[bytes] = context.socket(zmq.PUSH)
        self._push.setsockopt(zmq.SNDHWM, 0)
        self._push.setsockopt(zmq.IMMEDIATE, 1)
        self._push.setsockopt(zmq.RECONNECT_IVL, 20)
        # Nothing is copied behind our back: a tracker must tell of the message's own memory.
        self._push.copy_threshold = 0
        self._push.connect(address)

    @property
    def excess(self) -> str | None:
        """Why the api must be given up, if it must."""
        num_messages, num_bytes = self._buffers.num_messages, self._buffers.num_bytes
        if num_messages <= MAX_BACKLOG_MESSAGES and num_bytes <= MAX_BACKLOG_BYTES:
            return None
        return f"it has not taken {num_messages} messages, {num_bytes >> 20} MiB"

    def wait_for_connection(self) -> None:
        """Waits a moment for the api's end."""
        self._push.poll(CONNECT_POLL_MS, zmq.POLLOUT)

    def send(self, outputs: EngineCoreOutputs | bytes) -> bool:
        """Hands one message over; False, and nothing sent, where there is no connection."""
        body = self._buffers.take()
        arrays: list[memoryview] = []
        if isinstance(outputs, bytes):
            body[:] = outputs
        else:
            arrays = self._encoder.encode_into(outputs, body)
        try:
            self._push.send(self.client, zmq.NOBLOCK | zmq.SNDMORE)
        except zmq.Again:
            self._buffers.put_back(body)
            return False
        self._push.send(self._identity, zmq.SNDMORE)
        num_bytes = len(body) + sum(map(len, arrays))
        if self._buffers.wants_tracking(num_bytes):
            self._buffers.sent_tracked(self._send_from_memory(body, arrays), body, arrays, num_bytes)
        else:
            self._push.send_multipart([body, *arrays])
            self._buffers.sent_copied(body, num_bytes)
        return True

    def close(self, flush_seconds: float) -> None:
        """Waits, at most so long, until the api has taken everything."""
        deadline = time.monotonic() + flush_seconds
        tracker = self._buffers.last_tracker
        while tracker is not None and not tracker.done and time.monotonic() < deadline:
            time.sleep(FLUSH_POLL_SECONDS)
        # What was copied into the socket, and the last batch on its way to the kernel, are libzmq's to deliver.
        self._push.close(max(0, int((deadline - time.monotonic()) * 1000)))

    def abandon(self) -> None:
        """Closes at once; what the api has not taken is dropped."""
        self._push.close(0)

    def _send_from_memory(self, body: bytearray, arrays: list[memoryview]) -> zmq.MessageTracker:
        """The frames leave in order, so that the last one's tracker is everyone's."""
        *frames, last = [body, *arrays]
        for frame in frames:
            self._push.send(frame, zmq.SNDMORE, copy=False)
        return self._push.send(last, copy=False, track=True)
