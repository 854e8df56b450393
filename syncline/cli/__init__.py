"""The commands of the shell: ``commands`` makes them of the questions, ``application`` runs them.

``answers``, ``trainings``, ``results``, ``replays`` and ``catalogues`` print answers; ``shell`` has what they share.
"""
