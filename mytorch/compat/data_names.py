"""Names of `torch.utils.data` that packages import, and that the library does not use."""

import re

np_str_obj_array_pattern = re.compile(r"[SaUO]")  # kinds of NumPy arrays that do not become tensors
