"""All planted bugs, and the search that must catch them."""

from trust import bugs_of_looks, bugs_of_noise, bugs_of_rows, bugs_of_surveys  # each plants its own when it is loaded
from trust.planting import BUGS, Bug, Catch, catch

__all__ = ["BUGS", "Bug", "Catch", "bugs_of_looks", "bugs_of_noise", "bugs_of_rows", "bugs_of_surveys", "catch"]
