"""The page of ``syncline explore``: a projection whose settings the user moves.

Read ``settings`` (the settings, as a link and as a spec), ``answers`` (the results, computed by the functions of
``syncline project``, and the sentences about them), ``pictures`` and ``markup`` (figures and HTML), then ``server``,
which alone uses the web framework.
"""
