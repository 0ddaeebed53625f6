"""Random warps and changes of colors, and the automatic policies AutoAugment, RandAugment, TrivialAugmentWide and AugMix."""

import math
import numbers
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from ..._tensor import Tensor
from ...base import dtypes
from ...ops.movement import cat
from ...ops.random import rand, randint
from . import functional as F
from .compose import RandomTransform, Transform, chance, uniform, whole
from .functional import Colour, InterpolationMode, Sizes
from .images import to_tensor_kind
from .tones import numbers as _numbers

_NEAREST, _BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR


def _span(value, name, sizes=(2,)):
    """Return a list of limits: (-value, value) for one number."""
    if isinstance(value, numbers.Real):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be positive.")
        return [-float(value), float(value)]
    if not isinstance(value, Sequence) or len(value) not in sizes:
        raise ValueError(f"{name} should be a sequence of length {' or '.join(map(str, sizes))}, got {value!r}.")
    return list(map(float, value))


class RandomAffine(Transform):
    """Rotates, translates, scales and shears an image by random values; see `functional.affine`.

    Args:
        degrees: (minimum, maximum) angle, or d for (-d, d).
        translate: maximum translation in x and y, as fractions of the width and height (default: none).
        scale: (minimum, maximum) factor of the size (default: 1).
        shear: maximum angle parallel to x, (minimum, maximum), or both limits for x and for y (default: none).
        interpolation: NEAREST or BILINEAR.
        fill: value of pixels outside the image.
        center: (x, y) of the rotation (default: the center of the image).

    Raises:
        ValueError: if a value is out of range.
    """

    def __init__(
        self, degrees: float | Sequence[float], translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None, shear: float | Sequence[float] | None = None,
        interpolation: InterpolationMode = _NEAREST, fill: Colour = 0, center: Sequence[float] | None = None,
    ):  # fmt: skip
        if translate is not None and (len(translate) != 2 or not all(0 <= t <= 1 for t in translate)):
            raise ValueError(f"translation values should be between 0 and 1, got {translate!r}.")
        if scale is not None and (len(scale) != 2 or not all(s > 0 for s in scale)):
            raise ValueError(f"scale values should be positive, got {scale!r}.")
        shear = None if shear is None else _span(shear, "shear", (2, 4))
        super().__init__(
            degrees=_span(degrees, "degrees"), translate=translate, scale=scale, shear=shear, interpolation=interpolation,
            fill=fill, center=center,
        )  # fmt: skip

    @staticmethod
    def get_params(
        degrees: Sequence[float], translate: Sequence[float] | None, scale_ranges: Sequence[float] | None,
        shears: Sequence[float] | None, img_size: Sequence[int],
    ) -> tuple[float, tuple[int, int], float, tuple[float, float]]:  # fmt: skip
        """Returns random (angle, translation, scale, shear).

        Args:
            degrees: (minimum, maximum) angle.
            translate: maximum fractions, or None.
            scale_ranges: (minimum, maximum) factor, or None.
            shears: limits for x, or for x and y, or None.
            img_size: (width, height).
        """
        angle = uniform(degrees[0], degrees[1])
        moves = [0, 0]
        if translate is not None:
            moves = [round(uniform(-t * n, t * n)) for t, n in zip(translate, img_size, strict=True)]
        scale = 1.0 if scale_ranges is None else uniform(scale_ranges[0], scale_ranges[1])
        across = uniform(shears[0], shears[1]) if shears is not None else 0.0
        down = uniform(shears[2], shears[3]) if shears is not None and len(shears) == 4 else 0.0
        return angle, (moves[0], moves[1]), scale, (across, down)

    def forward(self, img: Any) -> Any:
        _, height, width = F.get_dimensions(img)
        values = self.get_params(self.degrees, self.translate, self.scale, self.shear, (width, height))
        return F.affine(img, *values, self.interpolation, self.fill, self.center)


class RandomPerspective(RandomTransform):
    """Changes the perspective of an image with probability p; see `functional.perspective`.

    Args:
        distortion_scale: maximum movement of the corners, as a fraction of half the size, from 0 to 1.
        p: probability.
        interpolation: NEAREST or BILINEAR.
        fill: value of pixels outside the image.
    """

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: InterpolationMode = _BILINEAR,
        fill: Colour = 0,
    ):
        if not 0 <= distortion_scale <= 1:
            raise ValueError(f"Argument distortion_scale value should be between 0 and 1, got {distortion_scale}.")
        super().__init__(p, distortion_scale=distortion_scale, interpolation=interpolation, fill=fill)

    @staticmethod
    def get_params(width: int, height: int, distortion_scale: float) -> tuple[list[list[int]], list[list[int]]]:
        """Returns the corners, and random new positions.

        Args:
            width: width of the image.
            height: height of the image.
            distortion_scale: maximum movement.
        """
        across, down = int(distortion_scale * (width // 2)) + 1, int(distortion_scale * (height // 2)) + 1
        start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        end = []
        for x, y in start:
            moved = [(n - m if at else 0) + whole(m) for at, n, m in ((x, width, across), (y, height, down))]
            end.append(moved)
        return start, end

    def function(self, img: Any) -> Any:
        _, height, width = F.get_dimensions(img)
        return F.perspective(img, *self.get_params(width, height, self.distortion_scale), self.interpolation, self.fill)


class ElasticTransform(Transform):
    """Moves the pixels of an image by smooth random displacements. Source: Simard et al., 2003.

    Args:
        alpha: size of the displacements, one number or (x, y).
        sigma: smoothness of the displacements, one number or (x, y).
        interpolation: NEAREST or BILINEAR.
        fill: value of pixels outside the image.
    """

    def __init__(
        self, alpha: float | Sequence[float] = 50.0, sigma: float | Sequence[float] = 5.0,
        interpolation: InterpolationMode = _BILINEAR, fill: Colour = 0,
    ):  # fmt: skip
        super().__init__(
            alpha=_numbers(alpha, 2, "alpha"), sigma=_numbers(sigma, 2, "sigma"), interpolation=interpolation, fill=fill
        )

    @staticmethod
    def get_params(alpha: Sequence[float], sigma: Sequence[float], size: Sequence[int]) -> Tensor:
        """Returns random displacements (1, H, W, 2).

        Args:
            alpha: size in x and y.
            sigma: smoothness in x and y.
            size: (height, width) of the image.
        """
        parts = []
        for strength, smoothness, length in zip(alpha, sigma, size, strict=True):
            noise = rand(1, 1, *size, device="cpu") * 2 - 1
            if smoothness > 0:
                kernel = int(8 * smoothness + 1)
                kernel += 1 - kernel % 2
                noise = F.gaussian_blur(noise, [kernel, kernel], list(sigma))
            parts.append(noise * (strength / length))
        return cat(parts, 1).permute(0, 2, 3, 1)

    def forward(self, img: Any) -> Any:
        _, height, width = F.get_dimensions(img)
        shifts = self.get_params(self.alpha, self.sigma, [height, width])
        shifts = shifts.to(img.device) if isinstance(img, Tensor) else shifts
        return F.elastic_transform(img, shifts, self.interpolation, self.fill)


class GaussianBlur(Transform):
    """Blurs an image with a random sigma; see `functional.gaussian_blur`.

    Args:
        kernel_size: odd size of the kernel in pixels, one number or (x, y).
        sigma: a number, or (minimum, maximum).
    """

    def __init__(self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)):
        widths = _numbers(kernel_size, 2, "kernel_size")
        if any(k <= 0 or k % 2 == 0 for k in widths):
            raise ValueError("Kernel size value should be an odd and positive number.")
        limits = _numbers(sigma, 2, "sigma")
        if not 0 < limits[0] <= limits[1]:
            raise ValueError(f"sigma values should be positive and of the form (min, max). Got {sigma}")
        super().__init__(kernel_size=widths, sigma=limits)

    @staticmethod
    def get_params(sigma_min: float, sigma_max: float) -> float:
        """Returns a random sigma.

        Args:
            sigma_min: the minimum.
            sigma_max: the maximum.
        """
        return uniform(sigma_min, sigma_max)

    def forward(self, img: Any) -> Any:
        sigma = self.get_params(*self.sigma)
        return F.gaussian_blur(img, self.kernel_size, [sigma, sigma])


class FiveCrop(Transform):
    """Returns a tuple of the four corners and the center of an image.

    Args:
        size: (height, width) of the crops, or one number for both.
    """

    function = staticmethod(F.five_crop)

    def __init__(self, size: Sizes):
        super().__init__(size=F._pair(size))


class TenCrop(Transform):
    """Returns a tuple of the four corners and the center of an image, and of the flipped image.

    Args:
        size: (height, width) of the crops, or one number for both.
        vertical_flip: flip vertically instead of horizontally.
    """

    function = staticmethod(F.ten_crop)

    def __init__(self, size: Sizes, vertical_flip: bool = False):
        super().__init__(size=F._pair(size), vertical_flip=vertical_flip)


class RandomInvert(RandomTransform):
    """Inverts the colors of an image with probability p.

    Args:
        p: probability.
    """

    function = staticmethod(F.invert)


class RandomAutocontrast(RandomTransform):
    """Applies `functional.autocontrast` with probability p.

    Args:
        p: probability.
    """

    function = staticmethod(F.autocontrast)


class RandomEqualize(RandomTransform):
    """Applies `functional.equalize` with probability p.

    Args:
        p: probability.
    """

    function = staticmethod(F.equalize)


class RandomPosterize(RandomTransform):
    """Applies `functional.posterize` with probability p.

    Args:
        bits: number of bits to keep.
        p: probability.
    """

    def __init__(self, bits: int, p: float = 0.5):
        super().__init__(p, bits=bits)

    def function(self, img: Any) -> Any:
        return F.posterize(img, self.bits)


class RandomSolarize(RandomTransform):
    """Applies `functional.solarize` with probability p.

    Args:
        threshold: the threshold.
        p: probability.
    """

    def __init__(self, threshold: float, p: float = 0.5):
        super().__init__(p, threshold=threshold)

    def function(self, img: Any) -> Any:
        return F.solarize(img, self.threshold)


class RandomAdjustSharpness(RandomTransform):
    """Applies `functional.adjust_sharpness` with probability p.

    Args:
        sharpness_factor: 0 gives a blurred image, 1 the original image.
        p: probability.
    """

    def __init__(self, sharpness_factor: float, p: float = 0.5):
        super().__init__(p, sharpness_factor=sharpness_factor)

    def function(self, img: Any) -> Any:
        return F.adjust_sharpness(img, self.sharpness_factor)


# -- automatic policies --------------------------------------------------------------------------------------------


class AutoAugmentPolicy(Enum):
    """Policies of `AutoAugment`, named by the data set on which they were learned."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


_SIGNED = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness")


def _applied(img, name, size, interpolation, fill):
    """Apply an operation of a policy to an image."""
    if name in ("ShearX", "ShearY", "TranslateX", "TranslateY"):
        angle = math.degrees(math.atan(size))
        shear = {"ShearX": [angle, 0.0], "ShearY": [0.0, angle]}.get(name, [0.0, 0.0])
        move = {"TranslateX": [int(size), 0], "TranslateY": [0, int(size)]}.get(name, [0, 0])
        center = [0.0, 0.0] if "Shear" in name else None
        return F.affine(img, 0.0, move, 1.0, shear, interpolation, fill, center)
    if name == "Rotate":
        return F.rotate(img, size, interpolation, fill=fill)
    factors = {
        "Brightness": F.adjust_brightness, "Color": F.adjust_saturation, "Contrast": F.adjust_contrast,
        "Sharpness": F.adjust_sharpness,
    }  # fmt: skip
    if name in factors:
        return factors[name](img, 1.0 + size)
    if name == "Posterize":
        return F.posterize(img, int(size))
    if name == "Solarize":
        return F.solarize(img, size)
    others = {"AutoContrast": F.autocontrast, "Equalize": F.equalize, "Invert": F.invert, "Identity": lambda x: x}
    return others[name](img)


def _magnitudes(bins, shear, move, turn, factor, bits, height, width):
    """Return {name: magnitudes of each bin, or None}; `bits` is (maximum, number of bits to remove)."""
    lines = {
        "ShearX": shear, "ShearY": shear, "TranslateX": move(width), "TranslateY": move(height), "Rotate": turn,
        "Brightness": factor, "Color": factor, "Contrast": factor, "Sharpness": factor,
    }  # fmt: skip
    space = {name: np.linspace(0.0, top, bins) for name, top in lines.items()}
    space["Posterize"] = bits[0] - np.round(np.arange(bins) / ((bins - 1) / bits[1]))
    space["Solarize"] = np.linspace(255.0, 0.0, bins)
    return space | {"AutoContrast": None, "Equalize": None}


def _of_dtype(img, name, size):
    """Return a threshold in the range of the image, and other magnitudes as they are."""
    floats = name == "Solarize" and isinstance(img, Tensor) and img.is_floating_point()
    return size / 255.0 if floats else size


class _Policy(Transform):
    """Base class of the policies."""

    def _space(self, bins: int, height: int, width: int) -> dict[str, Any]:
        raise NotImplementedError

    def _run(self, img, name, space, index):
        sizes = space.get(name)
        size = 0.0 if sizes is None else float(sizes[index])
        if name in _SIGNED and chance(0.5):
            size = -size
        return _applied(img, name, _of_dtype(img, name, size), self.interpolation, self.fill)

    def _bins(self, img, bins):
        _, height, width = F.get_dimensions(img)
        return self._space(bins, height, width)


class RandAugment(_Policy):
    """Applies randomly chosen operations of one magnitude. Source: Cubuk et al., 2019.

    Args:
        num_ops: number of operations.
        magnitude: number of the magnitude, less than num_magnitude_bins.
        num_magnitude_bins: number of magnitudes.
        interpolation: NEAREST or BILINEAR.
        fill: value of pixels outside the image (default: 0).
    """

    def __init__(
        self, num_ops: int = 2, magnitude: int = 9, num_magnitude_bins: int = 31,
        interpolation: InterpolationMode = _NEAREST, fill: Colour = None,
    ):  # fmt: skip
        if not 0 <= magnitude < num_magnitude_bins:
            raise ValueError(f"RandAugment: expected magnitude from 0 to {num_magnitude_bins - 1}, got {magnitude}.")
        super().__init__(
            num_ops=num_ops, magnitude=magnitude, num_magnitude_bins=num_magnitude_bins, interpolation=interpolation,
            fill=fill,
        )  # fmt: skip

    def _space(self, bins, height, width):
        space = _magnitudes(bins, 0.3, lambda n: 150.0 / 331.0 * n, 30.0, 0.9, (8, 4), height, width)
        return {"Identity": None} | space

    def forward(self, img: Any) -> Any:
        space = self._bins(img, self.num_magnitude_bins)
        for _ in range(self.num_ops):
            img = self._run(img, list(space)[whole(len(space))], space, self.magnitude)
        return img


class TrivialAugmentWide(_Policy):
    """Applies one randomly chosen operation of a random magnitude. Source: Müller and Hutter, 2021.

    Args:
        num_magnitude_bins: number of magnitudes.
        interpolation: NEAREST or BILINEAR.
        fill: value of pixels outside the image (default: 0).
    """

    def __init__(
        self, num_magnitude_bins: int = 31, interpolation: InterpolationMode = _NEAREST, fill: Colour = None
    ):  # fmt: skip
        super().__init__(num_magnitude_bins=num_magnitude_bins, interpolation=interpolation, fill=fill)

    def _space(self, bins, height, width):
        return {"Identity": None} | _magnitudes(bins, 0.99, lambda _: 32.0, 135.0, 0.99, (8, 6), height, width)

    def forward(self, img: Any) -> Any:
        space = self._bins(img, self.num_magnitude_bins)
        name = list(space)[whole(len(space))]
        return self._run(img, name, space, whole(self.num_magnitude_bins) if space[name] is not None else 0)


class AutoAugment(_Policy):
    """Applies a randomly chosen pair of operations of a learned policy. Source: Cubuk et al., 2018.

    Args:
        policy: an AutoAugmentPolicy.
        interpolation: NEAREST or BILINEAR.
        fill: value of pixels outside the image (default: 0).
    """

    def __init__(
        self, policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET, interpolation: InterpolationMode = _NEAREST,
        fill: Colour = None,
    ):  # fmt: skip
        if policy not in AutoAugmentPolicy:
            raise ValueError(f"The provided policy {policy} is not recognized.")
        super().__init__(policy=policy, interpolation=interpolation, fill=fill)
        self.policies = [_pair(line) for line in _POLICIES[AutoAugmentPolicy(policy).value].split("|")]

    def _space(self, bins, height, width):
        space = _magnitudes(bins, 0.3, lambda n: 150.0 / 331.0 * n, 30.0, 0.9, (8, 4), height, width)
        return space | {"Invert": None}

    @staticmethod
    def get_params(transform_num: int) -> tuple[int, Tensor, Tensor]:
        """Returns (number of the pair, two random numbers for the probabilities, two random signs).

        Args:
            transform_num: number of pairs.
        """
        return whole(transform_num), rand(2, device="cpu"), randint(0, 2, (2,), device="cpu")

    def forward(self, img: Any) -> Any:
        space = self._bins(img, 10)
        number, probabilities, signs = self.get_params(len(self.policies))
        for i, (name, p, index) in enumerate(self.policies[number]):
            if float(probabilities[i]) > p:
                continue
            sizes = space[name]
            size = 0.0 if sizes is None or index is None else float(sizes[index])
            size = -size if name in _SIGNED and int(signs[i]) == 0 else size
            img = _applied(img, name, _of_dtype(img, name, size), self.interpolation, self.fill)
        return img


def _pair(line):
    """Return ((name, probability, magnitude), …) for "name probability magnitude, …"."""
    parts = [part.split() for part in line.split(",")]
    return tuple((name, float(p), int(m) if m != "-" else None) for name, p, m in parts)


# The tables of the paper: the name, the probability and the number of the magnitude of two operations.
_POLICIES = {
    "imagenet": "Posterize .4 8,Rotate .6 9|Solarize .6 5,AutoContrast .6 -|Equalize .8 -,Equalize .6 -|Posterize .6 7,Posterize .6 6|"
    "Equalize .4 -,Solarize .2 4|Equalize .4 -,Rotate .8 8|Solarize .6 3,Equalize .6 -|Posterize .8 5,Equalize 1 -|"
    "Rotate .2 3,Solarize .6 8|Equalize .6 -,Posterize .4 6|Rotate .8 8,Color .4 0|Rotate .4 9,Equalize .6 -|"
    "Equalize 0 -,Equalize .8 -|Invert .6 -,Equalize 1 -|Color .6 4,Contrast 1 8|Rotate .8 8,Color 1 2|Color .8 8,Solarize .8 7|"
    "Sharpness .4 7,Invert .6 -|ShearX .6 5,Equalize 1 -|Color .4 0,Equalize .6 -|Equalize .4 -,Solarize .2 4|"
    "Solarize .6 5,AutoContrast .6 -|Invert .6 -,Equalize 1 -|Color .6 4,Contrast 1 8|Equalize .8 -,Equalize .6 -",
    "cifar10": "Invert .1 -,Contrast .2 6|Rotate .7 2,TranslateX .3 9|Sharpness .8 1,Sharpness .9 3|ShearY .5 8,TranslateY .7 9|"
    "AutoContrast .5 -,Equalize .9 -|ShearY .2 7,Posterize .3 7|Color .4 3,Brightness .6 7|Sharpness .3 9,Brightness .7 9|"
    "Equalize .6 -,Equalize .5 -|Contrast .6 7,Sharpness .6 5|Color .7 7,TranslateX .5 8|Equalize .3 -,AutoContrast .4 -|"
    "TranslateY .4 3,Sharpness .2 6|Brightness .9 6,Color .2 8|Solarize .5 2,Invert 0 -|Equalize .2 -,AutoContrast .6 -|"
    "Equalize .2 -,Equalize .6 -|Color .9 9,Equalize .6 -|AutoContrast .8 -,Solarize .2 8|Brightness .1 3,Color .7 0|"
    "Solarize .4 5,AutoContrast .9 -|TranslateY .9 9,TranslateY .7 9|AutoContrast .9 -,Solarize .8 3|Equalize .8 -,Invert .1 -|"
    "TranslateY .7 9,AutoContrast .9 -",
    "svhn": "ShearX .9 4,Invert .2 -|ShearY .9 8,Invert .7 -|Equalize .6 -,Solarize .6 6|Invert .9 -,Equalize .6 -|"
    "Equalize .6 -,Rotate .9 3|ShearX .9 4,AutoContrast .8 -|ShearY .9 8,Invert .4 -|ShearY .9 5,Solarize .2 6|"
    "Invert .9 -,AutoContrast .8 -|Equalize .6 -,Rotate .9 3|ShearX .9 4,Solarize .3 3|ShearY .8 8,Invert .7 -|"
    "Equalize .9 -,TranslateY .6 6|Invert .9 -,Equalize .6 -|Contrast .3 3,Rotate .8 4|Invert .8 -,TranslateY 0 2|"
    "ShearY .7 6,Solarize .4 8|Invert .6 -,Rotate .8 4|ShearY .3 7,TranslateX .9 3|ShearX .1 6,Invert .6 -|"
    "Solarize .7 2,TranslateY .6 7|ShearY .8 4,Invert .8 -|ShearX .7 9,TranslateY .8 3|ShearY .8 5,AutoContrast .7 -|"
    "ShearX .7 2,Invert .1 -",
}  # fmt: skip


class AugMix(_Policy):
    """Mixes an image with several chains of randomly chosen operations. Source: Hendrycks et al., 2019.

    Args:
        severity: number of the strongest magnitude, from 1 to 10.
        mixture_width: number of chains.
        chain_depth: number of operations in a chain; -1 chooses from 1 to 3.
        alpha: parameter of the Beta and Dirichlet distributions of the weights.
        all_ops: also use brightness, color, contrast and sharpness.
        interpolation: NEAREST or BILINEAR.
        fill: value of pixels outside the image (default: 0).
    """

    def __init__(
        self, severity: int = 3, mixture_width: int = 3, chain_depth: int = -1, alpha: float = 1.0, all_ops: bool = True,
        interpolation: InterpolationMode = _BILINEAR, fill: Colour = None,
    ):  # fmt: skip
        if not 1 <= severity <= 10:
            raise ValueError(f"The severity must be between [1, 10]. Got {severity} instead.")
        super().__init__(
            severity=severity, mixture_width=mixture_width, chain_depth=chain_depth, alpha=alpha, all_ops=all_ops,
            interpolation=interpolation, fill=fill,
        )  # fmt: skip

    def _space(self, bins, height, width):
        space = _magnitudes(bins, 0.3, lambda n: n / 3.0, 30.0, 0.9, (4, 4), height, width)
        left_out = () if self.all_ops else ("Brightness", "Color", "Contrast", "Sharpness")
        return {name: sizes for name, sizes in space.items() if name not in left_out}

    def forward(self, img: Any) -> Any:
        from ...distributions import Dirichlet

        space = self._bins(img, 10)
        original, back = to_tensor_kind(img, "AugMix")
        share = Dirichlet(original.new_full((2,), self.alpha, dtype=dtypes.float32)).sample().tolist()
        weights = (
            Dirichlet(original.new_full((self.mixture_width,), self.alpha, dtype=dtypes.float32)).sample().tolist()
        )
        mix = original.to(dtypes.float32) * share[0]
        for weight in weights:
            chain = original
            for _ in range(self.chain_depth if self.chain_depth > 0 else 1 + whole(3)):
                name = list(space)[whole(len(space))]
                chain = self._run(chain, name, space, whole(self.severity) if space[name] is not None else 0)
            mix = mix + chain * (share[1] * weight)
        return back(mix.to(original.dtype))
