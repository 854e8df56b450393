"""The page of ``syncline explore``: a projection whose settings the user moves.

Read ``settings`` (the settings, as a link) and ``settings_spec`` (the settings, as a spec), ``answers`` (the results,
computed by the functions of ``syncline project``), ``words`` and ``pictures`` (sentences and figures), then ``page``
and
``server``, which alone use the web framework.
"""
