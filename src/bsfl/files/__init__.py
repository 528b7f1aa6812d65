"""Reading and writing files that may be cut off, damaged or hostile.

atomic  replaces a file in one step, and lets one process at a time into a folder
sealed  JSON files that know their own checksum
npy     reads numpy's arrays within limits, and runs nothing
"""

from bsfl.files.atomic import alone_in, lock, replace_file, write_json

__all__ = ["alone_in", "lock", "replace_file", "write_json"]
