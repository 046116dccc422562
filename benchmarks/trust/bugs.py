"""All planted bugs, and the search that must catch them."""

from trust import (  # each plants its own when it is loaded
    bugs_of_looks,
    bugs_of_noise,
    bugs_of_profiles,
    bugs_of_rows,
    bugs_of_surveys,
)
from trust.planting import BUGS, Bug, Catch, catch

__all__ = [
    "BUGS", "Bug", "Catch", "bugs_of_looks", "bugs_of_noise", "bugs_of_profiles", "bugs_of_rows", "bugs_of_surveys",
    "catch",
]  # fmt: skip
