"""The collectives of gloo, as the library runs them.

``times`` has the seconds of its algorithms, ``reduce`` the seconds of its reduce, and ``wire`` the bytes on the wire.
"""
