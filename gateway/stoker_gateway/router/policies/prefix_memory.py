"""Which replicas have had which beginnings of prompts: bounded, the least recently used forgotten first."""

from collections import OrderedDict
from collections.abc import Sequence

from stoker_gateway.router.endpoint import Endpoint

MAX_BLOCKS = 32_768
"""Of one model: 6 to 7 MB here, and more than the caches of ten replicas hold of different prompts of a few KiB."""

Holders = tuple[Endpoint, ...]


class PrefixMemory:
    """What the replicas' prefix caches probably have. A replica that has forgotten costs its own prefill, no more."""

    def __init__(self) -> None:
        self._holders: OrderedDict[int, Holders] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def holders(self, hashes: Sequence[int]) -> list[Holders]:
        """For each leading block that is known, those that have had it with all before it."""
        found: list[Holders] = []
        for block in hashes:
            if (holders := self._holders.get(block)) is None:
                break
            found.append(holders)
        return found

    def remember(self, hashes: Sequence[int], endpoint: Endpoint) -> None:
        """`endpoint` has them now; of their other holders all stay that are not leaving."""
        # The first block last: a beginning is never forgotten before what follows it.
        for block in reversed(hashes):
            holders = self._holders.get(block, ())
            if endpoint not in holders:
                self._holders[block] = (*(holder for holder in holders if not holder.view.is_terminating), endpoint)
            self._holders.move_to_end(block)
        while len(self._holders) > MAX_BLOCKS:
            self._holders.popitem(last=False)
