"""Online co-simulation: workers at their own pace and servers, where the events decide the order of the math.

Read `server_interface` (settings, observer, results, places of servers on the network), `server_policy` (decisions of a
server), then `async_workers`, which simulates workers and servers, and `hierarchy` for local servers below an upper
server.
"""
