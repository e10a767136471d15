# SPDX-License-Identifier: MIT
"""Figures from runs: medians with what they came from, and differences with their interval."""
import math
import statistics


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": values}


def interval_ranks(n, confidence=0.95):
    """Ranks (from 0) of the two values between which the median of their source lies with at least this confidence.

    By the binomial distribution: nothing is assumed of the values but that they are independent. Fewer than six values
    have no such interval: the widest ranks there are.
    """
    tail = (1 - confidence) / 2
    if n >= 1000:  # the sum takes long, and the normal form is right to a rank
        low = int(n / 2 + statistics.NormalDist().inv_cdf(tail) * math.sqrt(n) / 2)
        return low, n - 1 - low
    low, below = 0, 0.5 ** n
    while low < n // 2:
        below += math.comb(n, low + 1) * 0.5 ** n
        if below > tail:
            break
        low += 1
    return low, n - 1 - low


def median_interval(values, confidence=0.95):
    ordered = sorted(values)
    low, high = interval_ranks(len(ordered), confidence)
    return ordered[low], ordered[high]


def difference(pairs):
    """Of pairs (a, b): the median of b - a and the interval in which it lies with 95 % confidence."""
    differences = [b - a for a, b in pairs]
    low, high = median_interval(differences)
    return {"median": round(statistics.median(differences), 2), "low": round(low, 2), "high": round(high, 2),
            "n": len(differences)}


def within(found, noise, limit):
    """Is the difference at most the limit, or no larger than what the same thing twice shows?"""
    return found["median"] <= max(limit, abs(noise["low"]), abs(noise["high"]))
