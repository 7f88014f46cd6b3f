"""Two transcripts, field by field, with what must differ masked."""

from fnmatch import fnmatchcase
from functools import cache
from itertools import zip_longest

from differential.differences import MASKS

MISSING = "nothing"


def masked(api, value, path=""):
    """Returns the value with what must differ masked, and lists of structs sorted, as Kafka's come from hash maps."""
    for mask in masks_of(api, path):
        value = mask.keep(value)
    if isinstance(value, dict):
        return {name: masked(api, one, f"{path}.{name}".lstrip(".")) for name, one in value.items()}
    if isinstance(value, list):
        elements = [masked(api, one, path) if isinstance(one, dict) else one for one in value]
        in_any_order = path and elements and isinstance(elements[0], dict)
        return sorted(elements, key=repr) if in_any_order else elements
    return value


@cache
def masks_of(api, path):
    """Returns the masks that apply to a field; cached, since thousands of answers have the same few fields."""
    return [mask for mask in MASKS if fnmatchcase(api, mask.api) and fnmatchcase(path, mask.path)]


def differences(theirs, ours, path=""):
    """Returns (path, theirs, ours) of each field that differs."""
    if theirs == ours and type(theirs) is type(ours):
        return []
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [
            found
            for name in {**theirs, **ours}
            for found in differences(theirs.get(name, MISSING), ours.get(name, MISSING), f"{path}.{name}".lstrip("."))
        ]
    if isinstance(theirs, list) and isinstance(ours, list):
        return [
            found
            for index, (one, other) in enumerate(zip_longest(theirs, ours, fillvalue=MISSING))
            for found in differences(one, other, f"{path}[{index}]")
        ]
    if theirs in (None, "") and path.endswith("rrorMessage"):
        return []  # Millrace may give a reason where Kafka gives none
    return [(path, theirs, ours)]
