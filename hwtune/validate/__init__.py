"""The proof: market ticks through the path of a trading host, with the latency of every stage.

Data flows one way: placement and arrivals -> the native pipeline -> Run -> statistics -> report.
Nothing here is imported by doctor.
"""
