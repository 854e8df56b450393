"""The headline: eleven methods at equal effort, from the folders of their runs to the README's figure and sentences.

    python -m benchmarks.headline collect SEARCH FINALS LEDGER [LONG]   results/headline/ from the folders of runs
    python -m benchmarks.headline tables                                 what the README and docs/findings.md say
    python -m benchmarks.headline figures FOLDER                         the two pictures
    python -m benchmarks.headline demo                                   the pictures, a table, four trainings afresh

``results/headline/README.md`` has the commands that make the runs. Losses are kept by step, as no clock changes them;
times are computed from them when they are asked for.
"""
