"""The core: one engine, one life of a round, one stream of events.

engine    decides on commands and applies events; the only caller of policies
events    the commands and the events
rounds    rounds from their opening to their close
pool      what belongs to the clients: membership, attributes, response statistics
task      what belongs to one training job: invitations, participations, fair counts
state     states as trees of arrays: rows, snapshots, checks
clients   the caller's ids
registry  policies and components by name
"""
