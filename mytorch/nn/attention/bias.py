"""`torch.nn.attention.bias`: causal masks for scaled dot-product attention that are not stored as matrices."""

import enum

from ...arrays.errors import warn
from ...arrays.tensor import Tensor
from ...ops.creation import ones


class CausalVariant(enum.IntEnum):
    """The corner of a non-square matrix at which the diagonal of a causal mask starts."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A causal mask for `attn_mask` of `scaled_dot_product_attention`; create it with the two functions below.

    Args:
        variant: UPPER_LEFT (query i sees keys 0 … i) or LOWER_RIGHT (the last query sees all keys).
        seq_len_q: number of queries.
        seq_len_kv: number of keys.
    """

    def __init__(self, variant, seq_len_q, seq_len_kv):
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        super().__init__()
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv
        if seq_len_q > seq_len_kv and variant is CausalVariant.LOWER_RIGHT:
            warn("Lower right causal bias gives queries that see no key when seq_len_q > seq_len_kv!")

    @property
    def attention_window(self):
        """The numbers of visible keys to the left and to the right of a query, for `scaled_dot_product_attention`."""
        to_the_right = 0 if self.variant is CausalVariant.UPPER_LEFT else self.seq_len_kv - self.seq_len_q
        return self.seq_len_q + self.seq_len_kv, to_the_right

    def _materialize(self, device=None):
        return ones(self.seq_len_q, self.seq_len_kv, dtype=bool, device=device).tril(self.attention_window[1])

    def __repr__(self):
        return repr(self._materialize())


def causal_upper_left(*size):
    """Returns the mask of `is_causal=True`: query i of `size[0]` sees keys 0 … i of `size[1]`."""
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size):
    """Returns the mask in which the last of `size[0]` queries sees all `size[1]` keys, and each earlier query one key less."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)
