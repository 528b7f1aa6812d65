"""A Flower app with clients of unequal speed."""
