"""The two ends of a language model: token ids to vectors, vectors to logits."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from stoker_kernels.linear import Linear


@dataclass(frozen=True, slots=True)
class TokenEmbedding:
    """weight: [vocabulary, hidden]."""

    weight: Tensor

    def __call__(self, token_ids: Tensor) -> Tensor:
        return functional.embedding(token_ids, self.weight)


@dataclass(frozen=True, slots=True)
class LanguageModelHead:
    """[R, hidden] → logits [R, vocabulary] in float32, whatever the model's dtype."""

    linear: Linear

    def __call__(self, hidden: Tensor) -> Tensor:
        return self.linear(hidden).float()
