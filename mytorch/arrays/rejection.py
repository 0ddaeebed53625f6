"""Draws that need a varying number of uniform numbers: Poisson, gamma and binomial numbers, generated one after the other.

Each draw begins with the uniform after the last one of the draw before, so the draws are sequential loops. They are written for
Python floats in lists, and `kernels/numba/random.py` compiles the same functions. All functions read float64 uniforms u and
`spare`, the unused half of a pair of normal numbers (NaN if there is none), and fill `out`. They return the number of
uniforms that they used (-1 if u was too short) and the new spare.

Algorithms and order of draws are the same as in PyTorch. Gamma: Marsaglia and Tsang, 2000. Poisson: product of uniforms (Knuth), or
transformed rejection (Hörmann, 1993, "PTRS"). Binomial: sums of geometric numbers (Devroye, 1986), or transformed rejection
(Hörmann, 1993, "BTRS").
"""

from math import ceil, cos, exp, floor, lgamma, log, log1p, nan, pi, sin, sqrt


def gamma(d, c, power, u, spare, out):
    """Fills out with gamma numbers of shape d + 1/3, with c = 1 / sqrt(9 d), times uniform^power. No draw if d is not > 0."""
    position, end = 0, len(u)
    for i in range(len(d)):
        if not d[i] > 0.0:
            out[i] = d[i]
            continue
        # Shapes below 1: a gamma number of shape a + 1 times uniform^(1/a) has shape a.
        scale = 1.0
        if power[i] > 0.0:
            if position >= end:
                return -1, spare
            scale = (1.0 - u[position]) ** power[i]
            position += 1
        while True:
            y = 0.0
            x = 0.0
            while y <= 0.0:
                if position + 3 > end:
                    return -1, spare
                # Box and Muller give two normal numbers; the second is kept for the next draw.
                if spare == spare:
                    x, spare = spare, nan
                else:
                    radius, theta = sqrt(-2.0 * log1p(-u[position + 1])), 2.0 * pi * u[position]
                    x, spare = radius * cos(theta), radius * sin(theta)
                    position += 2
                y = 1.0 + c[i] * x
            # Candidate d v with v = (1 + c x)³. The first test is a squeeze that avoids the logarithms in most cases.
            v, xx, w = y * y * y, x * x, 1.0 - u[position]
            position += 1
            if w < 1.0 - 0.03310000151395798 * xx * xx or log(w) < 0.5 * xx + d[i] * (
                1.0 - v + log(v)
            ):  # float32(0.0331)
                out[i] = scale * d[i] * v
                break
    return position, spare


def poisson(rate, u, spare, out):
    """Fills out with Poisson numbers."""
    position, end = 0, len(u)
    for i in range(len(rate)):
        lam = rate[i]
        k = 0.0
        if lam >= 10.0:
            # PTRS: a table mountain as hat function, with the constants of Hörmann's paper.
            b = 0.931 + 2.53 * sqrt(lam)
            a = -0.059 + 0.02483 * b
            inverse, limit = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2.0)
            while True:
                if position + 2 > end:
                    return -1, spare
                x, v = u[position] - 0.5, u[position + 1]
                position += 2
                s = 0.5 - abs(x)
                if s <= 0.0:
                    continue
                k = float(floor((2.0 * a / s + b) * x + lam + 0.43))
                # Immediate acceptance in most cases.
                if s >= 0.07 and v <= limit:
                    break
                if k < 0.0 or (s < 0.013 and v > s):
                    continue
                # The exact test: v times the hat against the probability of k.
                if v <= 0.0 or log(v) + log(inverse) - log(a / (s * s) + b) <= -lam + k * log(lam) - lgamma(k + 1.0):
                    break
        elif lam > 0.0:
            # Knuth: the number of uniforms whose product stays above e^-lambda.
            product, limit = 1.0, exp(-lam)
            while True:
                if position >= end:
                    return -1, spare
                product *= u[position]
                position += 1
                if product <= limit:
                    break
                k += 1.0
        else:
            k = lam  # 0 or NaN
        out[i] = k
    return position, spare


def binomial(count, p, product, sd, u, spare, out):
    """Fills out with the successes in `count` trials of probability p <= 1/2; product = count * p, sd = standard deviation."""
    position, end = 0, len(u)
    for i in range(len(count)):
        n, k = count[i], 0.0
        if not (n > 0.0 and p[i] > 0.0):
            k = 0.0
        elif product[i] >= 10.0:
            # BTRS: transformed rejection with the constants of Hörmann's paper. m is the mode.
            b = 1.15 + 2.53 * sd[i]
            a = -0.0873 + 0.0248 * b + 0.01 * p[i]
            limit, r = 0.92 - 4.2 / b, p[i] / (1.0 - p[i])
            alpha, m = (2.83 + 5.1 / b) * sd[i], float(floor((n + 1.0) * p[i]))
            while True:
                if position + 2 > end:
                    return -1, spare
                x, v = u[position] - 0.5, u[position + 1]
                position += 2
                s = 0.5 - abs(x)
                if s <= 0.0:
                    continue
                k = float(floor((2.0 * a / s + b) * x + product[i] + 0.5))
                if k < 0.0 or k > n:
                    continue
                if (s >= 0.07 and v <= limit) or v <= 0.0:
                    break
                # log of the probability of k relative to the mode, by Stirling's formula; its error terms follow.
                bound = (
                    (m + 0.5) * log((m + 1.0) / (r * (n - m + 1.0)))
                    + (n + 1.0) * log((n - m + 1.0) / (n - k + 1.0))
                    + (k + 0.5) * log(r * (n - k + 1.0) / (k + 1.0))
                )
                for sign, j in ((1.0, m), (1.0, n - m), (-1.0, k), (-1.0, n - k)):
                    if j <= 9.0:  # Stirling's error: log j! less its approximation
                        tail = lgamma(j + 1.0) - (j + 0.5) * log(j + 1.0) + (j + 1.0) - 0.9189385332046727
                    else:
                        square = (j + 1.0) * (j + 1.0)
                        tail = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (j + 1.0)
                    bound += sign * tail
                if log(v * alpha / (a / (s * s) + b)) <= bound:
                    break
        else:
            # Geometric numbers: log(u) / log(1 - p) trials until the next success.
            total, scale = 0.0, log1p(-p[i])
            while True:
                if position >= end:
                    return -1, spare
                total += ceil(log(max(u[position], 1e-300)) / scale)
                position += 1
                if total > n:
                    break
                k += 1.0
        out[i] = k
    return position, spare
