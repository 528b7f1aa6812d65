"""Pages for operators: the live page of a journal, and what a saved scheduler knows."""
