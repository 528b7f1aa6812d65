"""Data sets: published ones, verified by checksums, and custom data.

numpy alone is needed until a data set must be downloaded or is looked up in the user's cache.
"""

from bsfl.learning.datasets.catalogue import CATALOGUE, Entry
from bsfl.learning.datasets.dataset import Dataset
from bsfl.learning.datasets.load import get_dataset, load_dataset, where_is

__all__ = ["CATALOGUE", "Dataset", "Entry", "get_dataset", "load_dataset", "where_is"]
