"""Data sets: where they come from, the proof that they are the published ones, and their arrays.

Nothing here needs more than numpy until a data set has to be fetched.
"""

from bsfl.learning.datasets.catalogue import CATALOGUE, Entry
from bsfl.learning.datasets.dataset import Dataset, Published
from bsfl.learning.datasets.downloads import Limits, Watcher
from bsfl.learning.datasets.load import Obtained, get_dataset, load_any, load_dataset, where_is
from bsfl.learning.datasets.own import OwnData, own_data

__all__ = [
    "CATALOGUE",
    "Dataset",
    "Entry",
    "Limits",
    "Obtained",
    "OwnData",
    "Published",
    "Watcher",
    "get_dataset",
    "load_any",
    "load_dataset",
    "own_data",
    "where_is",
]
