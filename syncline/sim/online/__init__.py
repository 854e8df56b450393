"""Online co-simulation: workers at their own pace and servers, where the events decide the order of the math.

Read `lanes` (places of servers on the network), `served` (settings and results), `gates` (replies that wait), `desks`
(state of a server), `serving` (decisions of a server), then `apart`, which plays them, and `hierarchy` for local
servers with a server above.
"""
