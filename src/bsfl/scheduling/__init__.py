"""What a Scheduler is made of: who is there, who owes an answer, what they said, what was learned.

clients      the caller's ids, who belongs to the fleet, what is known of each
answers      judges answers one by one, and makes a report of them
outstanding  invitations that nobody has answered yet
learned      the policy's state and the ledger, which change together or not at all
last_round   what is known of the last round by now
threads      lets one thread at a time in
"""
