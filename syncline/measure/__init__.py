"""Real processes and the scripts of others: launch, calibrate, trace, validate.

`processes` starts and joins processes, `launching` trains in them, `calibration` measures links, `recording` notes
what an unmodified script does, `replaying` puts that on another network, `validation` holds predictions against
measurements.
"""
