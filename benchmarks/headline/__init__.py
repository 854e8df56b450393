"""The headline: fifteen methods at equal effort, from the finals of protocol 2 to the README's figure and sentences.

python -m benchmarks.headline words            what the README and docs/headline.md say
python -m benchmarks.headline tables           the tables in docs/findings.md
python -m benchmarks.headline figures FOLDER   the three pictures
python -m benchmarks.headline demo             a table, the pictures, and four trainings of the small form again
"""
