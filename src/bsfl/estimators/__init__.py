"""What is estimated of clients: each component owns its settings, checks and part of the state.

moments         which values of a client count, and how much
lognormal       a hierarchical model of latencies
indices         the speed index that BSFL ranks clients by
confidence      confidence widths
generalization  how far a client is below its share: BSFL's g
participation   a weight alpha that follows a participation target
response_value  what a response is worth: the fairness exponent, the value per second
over_selection  how many clients to invite
fairness        Gini coefficient, Lorenz curve, capped shares
"""
