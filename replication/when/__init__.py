"""When, or how often? Placements of averages at equal counts, over batches, against the rate at which noise triggers.

`setting` reads ``when.yaml``, which was written down before the first training that counts; `arms` trains many
placements of averages at once; ``__main__`` trains what is planned; `results` computes all numbers of the page.
"""
