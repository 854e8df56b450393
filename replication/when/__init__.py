"""A study of when workers average: placements at equal counts over batches, and triggers that noise fires.

`setting` reads ``when.yaml``, which was written down before the first training that counts; `arms` trains many
placements of averages at once; ``__main__`` trains what is planned; `results` computes all numbers of the page.
"""
