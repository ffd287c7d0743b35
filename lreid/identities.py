"""Identity numbers with a meaning of their own; all others are people or vehicles."""

JUNK = -1  # a bad detection in a test set: neither right nor wrong, so it never counts
DISTRACTOR = 0  # in a test set, a gallery image of a person who is never queried
UNKNOWN = -1  # in a gallery, an identity, camera or time that is not known
