"""Online co-simulation: workers at their own pace and a server, where events decide what the math sees.

Read `lanes` (where servers are on the network), `served` (what is asked for, and what is told), `gates` (replies that
wait), `desks` (what a server knows), `serving` (what it decides), then `apart`, which plays it, with `hierarchy` where
local servers have one above.
"""
