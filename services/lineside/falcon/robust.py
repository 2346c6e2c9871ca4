"""Medians and spreads that ignore what is unknown, without warnings.

A third of the way to breakdown is ordinary on shared hosts, so levels are medians and spreads are median
absolute deviations throughout. ``numpy.nanmedian`` warns on rows that know nothing and is slow on many rows.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

_GAUSSIAN = 1.4826  # MAD to standard deviation
MEDIAN_ERROR = 1.2533  # standard error of a median of n Gaussian values, times sqrt(n) / sigma


def median(values: ArrayLike) -> NDArray[np.float64]:
    """Median along the last axis over the known values; NaN where none is known.

    >>> median([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]])
    array([ 2., nan])
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)  # NaN goes last
    if ordered.shape[-1] == 0:
        return np.full(ordered.shape[:-1], np.nan)
    known = np.count_nonzero(~np.isnan(ordered), axis=-1)[..., None]
    low = np.take_along_axis(ordered, np.maximum(known - 1, 0) // 2, -1)
    high = np.take_along_axis(ordered, np.minimum(known // 2, ordered.shape[-1] - 1), -1)
    middle: NDArray[np.float64] = ((low + high) / 2)[..., 0]
    return np.where(known[..., 0] > 0, middle, np.nan)


def spread(values: ArrayLike) -> NDArray[np.float64]:
    """Robust standard deviation along the last axis: 1.4826 times the median absolute deviation.

    >>> float(spread([1.0, 2.0, 3.0, 4.0, 1000.0]))
    1.4826
    """
    known = np.asarray(values, np.float64)
    return _GAUSSIAN * median(np.abs(known - median(known)[..., None]))
