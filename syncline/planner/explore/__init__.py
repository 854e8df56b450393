"""The page of ``syncline explore``: a projection whose settings are moved by hand.

Read ``settings`` (what can be set, as a link and as a spec), ``answers`` (what is told of settings, by the functions of
``syncline project``), ``words`` and ``pictures`` (how it is told), then ``page`` and ``serving``, which alone know the
framework.
"""
