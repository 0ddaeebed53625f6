"""Views, memory and the constructor, against PyTorch."""

import pytest

import mytorch


@pytest.mark.parametrize("sizes", [(2, 3), (2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4, 5), (0, 1)], ids=str)
def test_constructor_takes_sizes(torch, sizes):
    for library in (torch, mytorch):
        x = library.Tensor(*sizes)
        assert tuple(x.shape) == sizes
        assert x.dtype is library.float32
        assert not x.requires_grad


def test_base_of_a_view(torch):
    for library in (torch, mytorch):
        x = library.ones(2, 3)
        y = x.view(6)[2:]
        assert x._base is None
        assert y._base is x
        assert y._is_view()
        assert not x._is_view()


def test_grad_must_be_a_tensor(torch):
    for library in (torch, mytorch):
        with pytest.raises(TypeError, match="int"):
            library.ones(2).grad = 3
